"""sardonyx.serve's Open Inference Protocol: tensors as JSON and as binary data, batches, wrong requests."""

import concurrent.futures
import json

import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper

for package in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"serving needs the package {package}")
pytest.importorskip("openai", reason="its client is the tests' client")

from sardonyx.serve import Limits  # noqa: E402
from serving import row_model, servers, write_model  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def serve(monkeypatch, folder):
    with servers(monkeypatch, folder) as start:
        yield start


def tensor(name, values, kind="FP32"):
    return {"name": name, "datatype": kind, "shape": list(np.shape(values)), "data": np.asarray(values).tolist()}


def test_inference_protocol(serve):
    models = {"rows": sardonyx.compile(row_model()), "one": sardonyx.compile(row_model(batch=1))}
    server = serve(models=models)
    about = json.loads(server.ask("GET", "/v2/models/rows")[2])
    assert about["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    assert server.ask("GET", "/v2/models/rows/versions/1/ready")[0] == 200
    x, z = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    body = {"id": "7", "inputs": [tensor("x", x), tensor("z", z)]}
    status, _, content = server.ask("POST", "/v2/models/rows/infer", body)
    answer = json.loads(content)
    assert status == 200 and answer["id"] == "7" and answer["outputs"][0]["shape"] == [2, 3]
    assert answer["outputs"][0]["data"] == (2 * x + z).reshape(-1).tolist()
    # Binary data follow the JSON part.
    data = x.astype(np.float32).tobytes()
    first = {"name": "x", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps(
        {"inputs": [first, tensor("z", z)], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    ).encode()
    length = {"Inference-Header-Content-Length": str(len(head))}
    status, headers, content = server.ask("POST", "/v2/models/rows/infer", head + data, headers=length)
    assert status == 200
    at = int(headers["Inference-Header-Content-Length"])
    assert np.array_equal(np.frombuffer(content[at:], np.float32).reshape(2, 3), 2 * x + z)
    wrong = [
        ({"inputs": [tensor("x", x)]}, 400),
        ({"inputs": [tensor("x", x), tensor("x", x)]}, 400),
        ({"inputs": [tensor("x", x), tensor("w", x)]}, 400),
        ({"inputs": [tensor("x", x, "INT64"), tensor("z", z)]}, 400),
        ({"inputs": [tensor("x", x, "TEXT"), tensor("z", z)]}, 400),
        ({"inputs": [tensor("x", x[:1]), tensor("z", z)]}, 400),
        ({"inputs": [{**tensor("x", x), "shape": [3, 2]}, tensor("z", z)]}, 400),
        ({"inputs": [{**tensor("x", x), "shape": [1 << 39] * 3}, tensor("z", z)]}, 400),
        ({"inputs": [{**tensor("x", x), "data": [["a"]]}, tensor("z", z)]}, 400),
        ({"inputs": [{**first}, tensor("z", z)]}, 400),
        ({"inputs": [tensor("x", x), tensor("z", z)], "outputs": [{"name": "none"}]}, 400),
        ({"inputs": 3}, 422),
        ({"inputs": [{"name": "x"}]}, 422),
    ]
    for content, status in wrong:
        assert server.ask("POST", "/v2/models/rows/infer", content)[0] == status, content
    for size in (24.0, True, [24], "24", -24, 1 << 70):  # of the binary data
        body = json.dumps({"inputs": [{**first, "parameters": {"binary_data_size": size}}, tensor("z", z)]}).encode()
        header = {"Inference-Header-Content-Length": str(len(body))}
        assert server.ask("POST", "/v2/models/rows/infer", body + data, headers=header)[0] == 400, size
    for value in ("9999", "-1", "\xb2", "9" * 5000, "1e3", ""):
        header = {"Inference-Header-Content-Length": value}
        assert server.ask("POST", "/v2/models/rows/infer", head, headers=header)[0] == 400, value
    assert server.ask("POST", "/v2/models/one/infer", {"inputs": [tensor("x", x[:1]), tensor("z", z[:1])]})[0] == 200


def identity(kind):
    shape = ["n", 3]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_every_type_as_json_and_as_binary_data(serve):
    whole = {f"{s}INT{b}": np.dtype(f"{s.lower()}int{b}") for s in ("", "U") for b in (8, 16, 32, 64)}
    types = {**whole, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_}
    number = {n: TensorProto.DataType.Value(n.replace("FP64", "DOUBLE").replace("FP32", "FLOAT").replace("FP", "FLOAT")) for n in types}  # fmt: skip
    server = serve(models={n.lower(): sardonyx.compile(identity(number[n])) for n in types})
    for name, dtype in types.items():
        path = f"/v2/models/{name.lower()}/infer"
        filled = np.array([[0, 1, 1], [1, 0, 1]], dtype)
        if name in whole:
            limits = np.iinfo(dtype)
            filled[0, 0], filled[1, 1] = limits.min, limits.max
        for x in (filled, np.zeros((0, 3), dtype)):
            content = server.ask("POST", path, {"inputs": [tensor("x", x, name)]})[2]
            assert b"outputs" in content, (name, content)
            answer = json.loads(content)["outputs"][0]
            assert (answer["datatype"], answer["shape"], answer["data"]) == (
                name,
                list(x.shape),
                x.reshape(-1).tolist(),
            )
            own = {"name": "x", "datatype": name, "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
            head = json.dumps({"inputs": [own], "parameters": {"binary_data_output": True}}).encode()
            header = {"Inference-Header-Content-Length": str(len(head))}
            status, headers, content = server.ask("POST", path, head + x.tobytes(), headers=header)
            assert status == 200 and content[int(headers["Inference-Header-Content-Length"]) :] == x.tobytes()
        wrong = [["a", "b", "c"], [None, 1, 1], [{}, 1, 1], [[1], [1, 2]], [1 << 70, 0, 0], [1, 1]]
        wrong += [[limits.max + 1, 0, 0], [limits.min - 1, 0, 0], [0.5, 0, 0]] if name in whole else []
        wrong += [[1, 0, 1]] if name == "BOOL" else [[1e39, 0, 0]] if name in ("FP16", "FP32") else []
        wrong.append(["x" * 60_000] + [""] * 60_000)  # numpy would make 14 GB of it
        for data in wrong:
            body = {"inputs": [{"name": "x", "datatype": name, "shape": [1, 3], "data": data}]}
            status, _, content = server.ask("POST", path, body)
            assert status == 400 and json.loads(content)["error"]["message"], (name, str(data)[:50])


def test_requests_run_as_batches(serve):
    server = serve(models={"rows": sardonyx.compile(row_model())}, limits=Limits(batch_delay=0.2, batch=8))

    def ask(k):
        x, z = np.full((1 + k % 2, 3), k, np.float32), np.ones((1 + k % 2, 3))
        if k == 5:  # runs alone, and fails alone
            z = np.ones((4, 3))
        status, _, content = server.ask("POST", "/v2/models/rows/infer", {"inputs": [tensor("x", x), tensor("z", z)]})
        return status, json.loads(content).get("outputs", [{}])[0].get("data")

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(16)))
    for k, (status, data) in enumerate(found):
        assert (status, data) == ((400, None) if k == 5 else (200, [2.0 * k + 1] * 3 * (1 + k % 2))), k
    metrics = server.ask("GET", "/metrics")[2].decode()
    runs = float(metrics.split('sardonyx_batches_total{model="rows"} ')[1].split()[0])
    assert runs <= 8  # 23 rows, 8 a batch, and the one that fails
    full = serve(models={"rows": sardonyx.compile(row_model())}, limits=Limits(queue=0))
    body = {"inputs": [tensor("x", np.ones((1, 3))), tensor("z", np.ones((1, 3)))]}
    status, headers, _ = full.ask("POST", "/v2/models/rows/infer", body)
    assert status == 429 and headers["Retry-After"] == "1"
