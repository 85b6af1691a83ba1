"""sardonyx.serve's Open Inference Protocol over gRPC, with Triton's client: tensors, wrong requests, keys, batches, the end of a server."""

import concurrent.futures
import json
import threading
import time

import numpy as np
import pytest
import sardonyx

for package in ("fastapi", "uvicorn", "prometheus_client", "openai"):
    pytest.importorskip(package, reason=f"serving and its tests need the package {package}")
grpc = pytest.importorskip("grpc", reason="gRPC needs the package grpcio")
triton = pytest.importorskip("tritonclient.grpc", reason="its client is the tests' client")

from sardonyx.serve import Limits  # noqa: E402
from sardonyx.serve.grpc_messages import MESSAGES  # noqa: E402
from serving import KEY, WAIT, row_model, servers, write_model  # noqa: E402

HEADERS = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def serve(monkeypatch, folder):
    with servers(monkeypatch, folder) as start:

        def with_rows(**options):
            models = {"rows": sardonyx.compile(row_model()), "one": sardonyx.compile(row_model(batch=1))}
            return start(grpc_port=0, models=models, **options)

        yield with_rows


def client_of(server):
    return triton.InferenceServerClient(f"127.0.0.1:{server.server.grpc_port}")


def tensors(raw=True, kind="FP32", **values):
    found = []
    for name, value in values.items():
        found.append(triton.InferInput(name, list(value.shape), kind))
        if raw:
            found[-1].set_data_from_numpy(value)
    return found


def test_messages_are_those_of_the_protocol():
    """Names, numbers and types of all fields that we have, against Triton's."""
    from tritonclient.grpc import service_pb2

    for path, made in MESSAGES.items():
        theirs = service_pb2
        for part in path.split("."):
            theirs = getattr(theirs, part)
        known = {f.name: f for f in theirs.DESCRIPTOR.fields}
        for field in made.DESCRIPTOR.fields:
            other = known[field.name]
            assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated), (path, field.name)  # fmt: skip


def test_triton_client(serve):
    server = serve()
    x, z = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    with client_of(server) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("rows", headers=HEADERS) and not client.is_model_ready("none", headers=HEADERS)
        assert client.get_server_metadata(headers=HEADERS).name == "sardonyx"
        about = client.get_model_metadata("rows", headers=HEADERS, as_json=True)
        assert about["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": ["-1", "3"]}
        outputs = [triton.InferRequestedOutput("y")]
        for wanted in (None, outputs):
            found = client.infer("rows", tensors(x=x, z=z), outputs=wanted, request_id="7", headers=HEADERS)
            assert np.array_equal(found.as_numpy("y"), 2 * x + z) and found.get_response().id == "7"
        with pytest.raises(triton.InferenceServerException, match="UNAUTHENTICATED"):
            client.infer("rows", tensors(x=x, z=z))
        with pytest.raises(triton.InferenceServerException, match="UNAUTHENTICATED"):
            client.infer("rows", tensors(x=x, z=z), headers={"authorization": "Bearer wrong"})
    metrics = server.ask("GET", "/metrics")[2].decode()
    assert 'sardonyx_grpc_requests_total{method="ModelInfer",status="OK"} 2.0' in metrics
    assert 'sardonyx_grpc_requests_total{method="ModelInfer",status="UNAUTHENTICATED"} 2.0' in metrics


def raw_call(server, data, method="ModelInfer", timeout=WAIT):
    """The status of a call with these bytes, and its message."""
    with grpc.insecure_channel(f"127.0.0.1:{server.server.grpc_port}") as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        try:
            return grpc.StatusCode.OK, call(data, metadata=tuple(HEADERS.items()), timeout=timeout)
        except grpc.RpcError as error:
            return error.code(), error.details()


def request(x=None, **own):
    Infer = MESSAGES["ModelInferRequest"]
    made = Infer(model_name="rows")
    for name in ("x", "z"):
        made.inputs.add(name=name, datatype="FP32", shape=[1, 3]).contents.fp32_contents.extend([1.0, 2.0, 3.0])
    if x:
        x(made)
    return made.SerializeToString()


def test_contents_and_wrong_requests(serve):
    server = serve(limits=Limits(body=1 << 16))
    code, content = raw_call(server, request())
    answer = MESSAGES["ModelInferResponse"].FromString(content)
    assert code == grpc.StatusCode.OK and np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [3, 6, 9]

    def change(**fields):
        def apply(made):
            for name, value in fields.items():
                if name == "shape":
                    del made.inputs[0].shape[:]
                    made.inputs[0].shape.extend(value)
                else:
                    setattr(made.inputs[0], name, value)

        return request(apply)

    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    wrong = [
        (b"\xff\xff\xff", invalid),
        (change(name="w"), invalid),
        (change(name="z"), invalid),
        (change(datatype="INT64"), invalid),
        (change(datatype="FP16"), invalid),
        (change(datatype="BYTES"), invalid),
        (change(shape=[3, 1]), invalid),
        (change(shape=[-1, 3]), invalid),
        (change(shape=[1 << 39] * 3), invalid),
        (change(shape=[1] * 40), invalid),
        (request(lambda m: m.raw_input_contents.append(b"x")), invalid),
        (request(lambda m: m.raw_input_contents.extend([b"x" * 12] * 2)), invalid),
        (request(lambda m: m.outputs.add(name="none")), invalid),
        (request(lambda m: setattr(m, "model_name", "none")), missing),
        (request(lambda m: setattr(m, "model_version", "2")), missing),
        (b"\x0a" + b"\xff" * (1 << 17), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ]
    for data, code in wrong:
        assert raw_call(server, data)[0] == code, data[:100]
    assert raw_call(server, b"", method="RepositoryIndex")[0] == grpc.StatusCode.UNIMPLEMENTED
    assert raw_call(server, request())[0] == grpc.StatusCode.OK


def test_random_bytes(serve):
    """Valid requests with changed bytes: each gets an answer, and the server goes on."""
    server, rng = serve(), np.random.default_rng(5)
    valid, found = request(), set()
    with grpc.insecure_channel(f"127.0.0.1:{server.server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(300):
            data = bytearray(valid)
            for at in rng.integers(0, len(data), 1 + rng.integers(4)):
                data[at] = rng.integers(256)
            try:
                call(bytes(data), metadata=tuple(HEADERS.items()), timeout=WAIT)
                found.add(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                found.add(error.code())
    assert found == {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}


def test_calls_join_batches_with_http(serve):
    server = serve(limits=Limits(batch_delay=0.2, batch=8))
    x = np.full((1, 3), 4, np.float32)
    body = {"inputs": [{"name": n, "datatype": "FP32", "shape": [1, 3], "data": x.tolist()} for n in "xz"]}

    def ask(k):
        if k % 2:
            return json.loads(server.ask("POST", "/v2/models/rows/infer", body)[2])["outputs"][0]["data"]
        with client_of(server) as client:
            return client.infer("rows", tensors(x=x, z=x), headers=HEADERS).as_numpy("y").reshape(-1).tolist()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [[12.0] * 3] * 8
    metrics = server.ask("GET", "/metrics")[2].decode()
    assert float(metrics.split('sardonyx_batches_total{model="rows"} ')[1].split()[0]) <= 4
    full = serve(limits=Limits(queue=0))
    assert raw_call(full, request())[0] == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_slow_clients(serve):
    """A call whose message does not come ends after the limit."""
    server = serve(limits=Limits(body_time=0.3))
    with grpc.insecure_channel(f"127.0.0.1:{server.server.grpc_port}") as channel:
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")
        stop = threading.Event()

        def nothing():
            stop.wait(WAIT)
            yield b""

        with pytest.raises(grpc.RpcError) as caught:
            call(nothing(), metadata=tuple(HEADERS.items()), timeout=WAIT)
        stop.set()
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED and "0.3 s" in caught.value.details()


def test_the_end_of_a_server(serve):
    """What waits for its batch is answered; then the port is closed."""
    server = serve(limits=Limits(batch_delay=0.5))
    results = []
    asker = threading.Thread(target=lambda: results.append(raw_call(server, request())[0]))
    asker.start()
    until = time.monotonic() + WAIT
    while not server.state.plain["rows"].waiting and time.monotonic() < until:
        time.sleep(0.01)
    server.end()
    asker.join(WAIT)
    server.thread.join(WAIT)
    assert results == [grpc.StatusCode.OK] and not server.thread.is_alive()
    assert raw_call(server, request(), timeout=2)[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
