"""Tensors in device memory: inputs and outputs that stay there, DLPack, streams, memory passed for outputs."""

import json

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
import sardonyx
from cli_support import UNSUPPORTED
from cli_support import sardonyx as cli
from sardonyx.arrays import Card

SIM = "sim:gfx1100"


def parse(text, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


LAYER = parse("""g (float[n, 3] x, float[3, 4] w) => (float[n, 4] y, float[n, 4] z) {
  y = MatMul (x, w)
  z = Relu (y)
}""")
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)


def close(tensors, x=X, w=W):
    for name, want in {"y": x @ w, "z": np.maximum(x @ w, 0)}.items():
        got = tensors[name]
        got = got if isinstance(got, np.ndarray) else got.numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)  # sums of three products


@pytest.fixture(scope="module")
def layer():
    return sardonyx.compile(LAYER, device=SIM)


@pytest.fixture(scope="module", params=["host", SIM])
def any_layer(request):
    return sardonyx.compile(LAYER, device=request.param)


def test_memory_of_a_device(any_layer):
    device = any_layer.device
    t = sardonyx.to_device(X, device)
    assert (t.device, t.dtype, t.shape, t.nbytes) == (device, "float32", [5, 3], 60)
    np.testing.assert_array_equal(t.numpy(), X)
    assert "float32 [5, 3]" in repr(t) and device in repr(t)
    u = sardonyx.empty((5, 3), np.float32, device)
    sardonyx.copy(u, t)
    sardonyx.copy(t, np.zeros((5, 3), np.float32))
    np.testing.assert_array_equal(u.numpy(), X)
    assert sardonyx.empty((0, 3), "bfloat16", device).numpy().dtype == ml_dtypes.bfloat16
    assert sardonyx.to_device([1.5, 2], device).dtype == "float64"
    assert sardonyx.to_device(u, device).numpy().tolist() == X.tolist()
    with pytest.raises(sardonyx.InvalidArgumentError, match="float64"):
        sardonyx.copy(u, X.astype(np.float64))
    with pytest.raises(sardonyx.InvalidArgumentError, match=r"\[3, 5\]"):
        sardonyx.copy(u, np.ascontiguousarray(X.T))
    with pytest.raises(sardonyx.InvalidArgumentError, match="dtype 'flat'"):
        sardonyx._sardonyx.empty(device, "flat", [1])


def test_sizes_of_device_memory_are_checked():
    for shape in [(-1,), (2**62, 2**62)]:
        with pytest.raises(sardonyx.InvalidArgumentError):
            sardonyx.empty(shape, np.float32, SIM)
    with pytest.raises(sardonyx.InvalidArgumentError, match="nowhere"):
        sardonyx.empty((1,), np.float32, "nowhere")


def test_inputs_and_outputs_on_the_device(any_layer):
    device = any_layer.device
    x, w = sardonyx.to_device(X, device), sardonyx.to_device(W, device)
    out = any_layer.run_tensors({"x": x, "w": w}, on_device=True)
    assert list(out) == ["y", "z"] and all(t.device == device for t in out.values())
    close(out)
    close(any_layer.run_tensors({"x": x, "w": W}))  # one here, one there
    close(any_layer(x=x, w=W))
    # An output is the next run's input.
    close(any_layer.run_tensors({"x": out["y"].numpy()[:, :3], "w": w}), (X @ W)[:, :3])


def test_outputs_outlive_the_model_on_the_device():
    model = sardonyx.compile(LAYER, device=SIM)
    out = model.run_tensors({"x": X, "w": W}, on_device=True)
    del model
    close(out)


def test_memory_given_for_outputs(any_layer):
    device = any_layer.device
    y, z = sardonyx.empty((5, 4), "float32", device), np.zeros((5, 4), np.float32)
    for scale in (1, 2):
        out = any_layer.run_tensors({"x": X * scale, "w": W}, outputs={"y": y, "z": z})
        assert out["y"] is y and out["z"] is z
        close(out, X * scale)
    out = any_layer.run_tensors({"x": X, "w": W}, outputs={"z": z})
    assert out["z"] is z
    close(out)


@pytest.mark.parametrize(
    "memory, message",
    [
        (np.zeros((5, 3), np.float32), r"\[5, 4\]"),
        (np.zeros((5, 4), np.float64), "float64"),
        (np.zeros((4, 5), np.float32).T, "row-major"),
        (np.frombuffer(bytes(80), np.float32).reshape(5, 4), "writable"),
        ("text", "str"),
    ],
)
def test_memory_that_does_not_fit_an_output(any_layer, memory, message):
    with pytest.raises(sardonyx.InvalidArgumentError, match=message):
        any_layer.run_tensors({"x": X, "w": W}, outputs={"y": memory})
    with pytest.raises(sardonyx.InvalidArgumentError, match="no output 'q'"):
        any_layer.run_tensors({"x": X, "w": W}, outputs={"q": np.zeros(3)})


def test_streams(layer):
    stream = sardonyx.Stream(SIM)
    assert stream.device == SIM and stream.handle
    x, w = sardonyx.to_device(X, SIM), sardonyx.to_device(W, SIM)
    y, z = (sardonyx.empty((5, 4), "float32", SIM) for _ in "yz")
    for given in (stream, stream.handle):
        for _ in range(3):
            out = layer.run_tensors({"x": x, "w": w}, outputs={"y": y, "z": z}, stream=given, synchronize=False)
        stream.synchronize()
        close(out)
    # Outputs of a run that was not waited for are waited for by whoever reads them.
    out = layer.run_tensors({"x": x, "w": w}, on_device=True, stream=stream, synchronize=False)
    close(out)
    out = layer.run_tensors({"x": x, "w": w}, on_device=True, stream=stream, synchronize=False)
    close(layer.run_tensors({"x": x, "w": w}, on_device=True))
    out["y"].__dlpack__(stream=stream.handle)
    with pytest.raises(sardonyx.InvalidArgumentError, match="needs a stream"):
        layer.run_tensors({"x": x, "w": w}, synchronize=False)
    with pytest.raises(sardonyx.InvalidArgumentError, match="sim:gfx942"):
        layer.run_tensors({"x": x, "w": w}, stream=sardonyx.Stream("sim:gfx942"))
    with pytest.raises(sardonyx.InvalidArgumentError, match="no handle"):
        layer.run_tensors({"x": x, "w": w}, stream=0)
    assert sardonyx.Stream("host").handle == 0


def test_bound_runs(any_layer):
    device = any_layer.device
    x, w = sardonyx.to_device(X, device), sardonyx.to_device(W, device)
    y, z = (sardonyx.empty((5, 4), "float32", device) for _ in "yz")
    stream = sardonyx.Stream(device)
    runs = [any_layer.bind({"x": x, "w": w}, {"y": y, "z": z})]
    if device != "host":
        runs.append(any_layer.bind({"x": x, "w": w}, {"y": y, "z": z}, stream=stream, synchronize=False))
    for k, run in enumerate(runs * 3):
        sardonyx.copy(x, X * k)  # later values are seen
        run()
        stream.synchronize()
        close({"y": y, "z": z}, X * k)
    host = np.empty((5, 4), np.float32)
    any_layer.bind({"x": Foreign(x), "w": W}, {"y": host, "z": Foreign(z)})()
    close({"y": host, "z": z}, X * k)
    for inputs, outputs, message in [
        ({"x": X.tolist(), "w": W}, {"y": y, "z": z}, "list"),
        ({"x": np.asfortranarray(X), "w": W}, {"y": y, "z": z}, "row-major"),
        ({"x": x, "w": W}, {"y": y}, "output 'z'"),
        ({"x": x}, {"y": y, "z": z}, "'w' is missing"),
    ]:
        with pytest.raises(sardonyx.InvalidArgumentError, match=message):
            any_layer.bind(inputs, outputs)
    with pytest.raises(sardonyx.InvalidArgumentError, match=r"\[5, 3\]"):
        any_layer.bind({"x": x, "w": w}, {"y": x, "z": z})()


def test_copies_of_bound_runs(any_layer):
    """Runs that follow each other at once, each with pinned memory of its own and the same memory on the GPU."""
    device = any_layer.device
    w = sardonyx.to_device(W, device)
    whole = sardonyx.empty((X.nbytes + 512,), "uint8", device)
    x = whole._part(256, "float32", list(X.shape))
    y, z = (sardonyx.empty((5, 4), "float32", device) for _ in "yz")
    stream, sides = sardonyx.Stream(device), []
    pinned = [
        (sardonyx.pinned(X.shape, np.float32, device), sardonyx.pinned((5, 4), "float32", device)) for _ in range(3)
    ]
    if device == "host":
        with pytest.raises(sardonyx.InvalidArgumentError, match="synchronize=False"):
            any_layer.bind({"x": x, "w": w}, {"y": y, "z": z}, uploads=[(x, pinned[0][0])])
        return
    for up, down in pinned:
        own = {"stream": stream, "synchronize": False, "uploads": [(x, up)], "downloads": [(down, y)]}
        sides.append((any_layer.bind({"x": x, "w": w}, {"y": y, "z": z}, **own), up, down))
    for turn in range(3):
        for k, (run, up, _) in enumerate(sides):
            up[...] = X * (k + 3 * turn)
            run()
        for k, (run, _, down) in enumerate(sides):
            run.wait()
            np.testing.assert_allclose(down, X * (k + 3 * turn) @ W, rtol=1e-5, atol=1e-5)
    with pytest.raises(sardonyx.InvalidArgumentError, match="bytes"):
        any_layer.bind(
            {"x": x, "w": w}, {"y": y, "z": z}, stream=stream, synchronize=False, uploads=[(x, pinned[0][1])]
        )
    for offset, dims in ((2, [1]), (256, [200]), (0, [-1]), (1 << 40, [1])):
        with pytest.raises(sardonyx.InvalidArgumentError, match="part"):
            whole._part(offset, "float32", dims)


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_pinned_memory_that_cannot_be(device):
    with pytest.raises(sardonyx.errors.InvalidArgumentError, match="a dim can't be negative"):
        sardonyx.pinned((-1, -1), "uint8", device)
    for shape in ((2**32, 2**32), (2**50,)):  # the product of the first is beyond 64 bits
        with pytest.raises(sardonyx.errors.Error, match=r"does not fit into memory|can't be allocated"):
            sardonyx.pinned(shape, "uint8", device)


@pytest.mark.parametrize("device", ["host", SIM])
def test_an_output_in_an_inputs_memory(device):
    """Every element of y needs others of x, and z needs x after y is there."""
    model = sardonyx.compile(
        parse("g (float[8, 8] x) => (float[8, 8] y, float[8, 8] z) "
              "{ t = Transpose (x) y = Sub (x, t) m = MatMul (t, x) z = Add (m, y) }"), device=device
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    memory, other = sardonyx.to_device(x, device), sardonyx.empty((8, 8), "float32", device)
    for outputs in ({"y": memory, "z": other}, {"z": memory, "y": other}):
        for _ in range(3):  # the third is a captured graph
            sardonyx.copy(memory, x)
            out = model.run_tensors({"x": memory}, outputs=outputs)
            np.testing.assert_array_equal(out["y"].numpy(), x - x.T)
            np.testing.assert_allclose(out["z"].numpy(), x.T @ x + x - x.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["host", SIM])
def test_an_input_that_is_an_output_in_memory_of_another(device):
    model = sardonyx.compile(
        parse("g (float[8] x) => (float[8] y, float[8] z) { y = Neg (x) z = Identity (x) }"), device=device
    )
    x = np.arange(8, dtype=np.float32)
    memory = sardonyx.to_device(x, device)
    out = model.run_tensors({"x": memory}, outputs={"y": memory})
    assert out["y"].numpy().tolist() == (-x).tolist() and out["z"].numpy().tolist() == x.tolist()


@pytest.mark.parametrize("device", ["host", SIM])
def test_inputs_that_are_outputs_in_each_others_memory(device):
    model = sardonyx.compile(
        parse("g (float[8] a, float[8] b) => (float[8] y, float[8] z) { y = Identity (a) z = Identity (b) }"),
        device=device,
    )
    a, b = np.arange(8, dtype=np.float32), -np.arange(8, dtype=np.float32)
    on, other, third = (sardonyx.to_device(x, device) for x in (a, b, a))
    inputs = {"a": on, "b": other}
    for outputs in ({"y": other, "z": third}, {"y": on, "z": other}, {"y": third, "z": on}):  # one order is right
        sardonyx.copy(on, a)
        sardonyx.copy(other, b)
        out = model.run_tensors(inputs, outputs=outputs)
        assert out["y"].numpy().tolist() == a.tolist() and out["z"].numpy().tolist() == b.tolist()
    with pytest.raises(sardonyx.InvalidArgumentError, match=r"'y' and 'z'.*swap"):
        model.run_tensors(inputs, outputs={"y": other, "z": on})
    if device == "host":
        memory = np.zeros(12, np.float32)
        with pytest.raises(sardonyx.InvalidArgumentError, match=r"'y'.*in part"):
            model.run_tensors({"a": memory[:8], "b": b}, outputs={"y": memory[4:]})


class Foreign:
    """A tensor of another library on a GPU: what it is asked for, and no more."""

    def __init__(self, tensor, device=None):
        self.tensor, self.device, self.streams = tensor, device, []

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, max_version=max_version)

    def __dlpack_device__(self):
        return self.device or self.tensor.__dlpack_device__()


def test_dlpack_of_a_card(layer):
    x, w = Foreign(sardonyx.to_device(X, SIM)), Foreign(sardonyx.to_device(W, SIM))
    close(layer.run_tensors({"x": x, "w": w}))
    stream = sardonyx.Stream(SIM)
    y = Foreign(sardonyx.empty((5, 4), "float32", SIM))
    out = layer.run_tensors({"x": x, "w": w}, outputs={"y": y}, stream=stream)
    assert out["y"] is y
    close({"y": y.tensor, "z": out["z"]})
    # The producer learns on which stream its tensor is used: the model's own, then the caller's.
    assert x.streams[1] == y.streams[0] == stream.handle != x.streams[0]
    assert all(x.streams)


def test_older_dlpack(layer):
    class Older(Foreign):
        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__(stream=stream)

    close(layer.run_tensors({"x": Older(sardonyx.to_device(X, SIM)), "w": W}))


def test_tensors_of_another_device(layer):
    elsewhere = sardonyx.to_device(X, "sim:gfx942")
    assert elsewhere.__dlpack_device__() == (12, 0x942)
    for x in (elsewhere, Foreign(elsewhere), Foreign(sardonyx.to_device(X, SIM), (2, 1))):
        with pytest.raises(sardonyx.InvalidArgumentError, match=f"'x'.*{SIM}"):
            layer.run_tensors({"x": x, "w": W})
    with pytest.raises(sardonyx.InvalidArgumentError, match=r"'x'.*the host"):
        sardonyx.compile(LAYER)(x=elsewhere, w=W)
    np.testing.assert_array_equal(sardonyx.to_device(elsewhere, SIM).numpy(), X)


def test_a_tensor_of_a_card_comes_to_numpy_by_a_copy():
    t = sardonyx.to_device(X, SIM)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(t)
    np.testing.assert_array_equal(np.from_dlpack(FromDevice(t)), X)
    with pytest.raises(BufferError, match="copy"):
        t.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(TypeError, match="in GPU memory"):
        t.bytes()


class FromDevice:
    """Asks for the host's memory, as numpy.from_dlpack(t, device="cpu") does in newer versions."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(dl_device=(1, 0))

    def __dlpack_device__(self):
        return (1, 0)


def test_names_of_devices_in_dlpack():
    device = sardonyx._sardonyx.dlpack_device
    assert device("host") == (1, 0) and device("cuda:3") == (2, 3) and device("hip:1") == (10, 1)
    assert device("sim:gfx90a") == (12, 0x90A)
    assert Card("cuda:1", None, 7).dlpack_device == (2, 1)


def test_perf_of_what_stays_on_the_device(tmp_path):
    onnx.save(LAYER, tmp_path / "layer.onnx")
    args = [
        tmp_path / "layer.onnx",
        "--dim",
        "n=5",
        "--runs",
        "3",
        "--warmup",
        "1",
        "--seconds",
        "0",
        "--cache-dir",
        "",
    ]
    report = tmp_path / "perf.json"
    out = cli("perf", *args, "--device", SIM, "--resident", "--json", report)
    assert "without waiting between runs" in out and "traffic" in out
    found = json.loads(report.read_text())
    stream = found["back_to_back_seconds"]
    assert found["resident"] and stream["min"] <= stream["p50"] <= stream["max"] and stream["runs"] >= 1
    # x, w and y of the product, and y and z of the other kernel, if it is one of its own.
    floats = found["bytes_per_run"] / 4
    assert floats in (15 + 12 + 20 + 20, 15 + 12 + 20 + 20 + 20)
    assert found["bytes_per_second"] == pytest.approx(found["bytes_per_run"] * found["runs_per_second"])
    assert "--device" in cli("perf", *args, "--resident", code=UNSUPPORTED)


@pytest.mark.parametrize("device", ["host", SIM])
def test_traffic_and_memory(device):
    model = parse("g (float[n, 64] x, float[64, 32] w) => (float[n, 32] y) { y = MatMul (x, w) }")
    model = sardonyx.compile(model, device=device)
    model(x=np.ones((5, 64), np.float32), w=np.ones((64, 32), np.float32))
    (product,) = model.traffic(x=(5, 64), w=(64, 32))
    assert product.kind == model.kernels()[0].kind == "tile" and product.nodes == ("MatMul",)
    assert product.operations == 2 * 5 * 32 * 64
    assert product.bytes_read == 4 * (5 * 64 + 64 * 32) and product.bytes_written == 4 * 5 * 32
    assert model.traffic(x=(10, 64), w=(64, 32))[0].operations == 2 * product.operations
    with pytest.raises(sardonyx.InvalidArgumentError, match="'w'"):
        model.traffic(x=(5, 64))
    use = model.memory_in_use()
    assert use.constants == 0 and use.peak >= use.now and (use.now > 0) == (device != "host")


@pytest.mark.parametrize("queries", [1, 40])
def test_operations_of_attention(queries):
    """On a GPU several kernels share the work, of which sizes choose: decoding or many queries."""
    model = parse("g (float[1, 2, s, 16] q, float[1, 2, 64, 16] k, float[1, 2, 64, 16] v) => (float[1, 2, s, 16] y) "
                  "{ y = Attention (q, k, v) }", opset=23)  # fmt: skip
    shapes = {"q": (1, 2, queries, 16), "k": (1, 2, 64, 16), "v": (1, 2, 64, 16)}
    for device in ("host", SIM):
        launches = sardonyx.compile(model, device=device).traffic(shapes)
        assert sum(t.operations for t in launches) == 4 * 2 * queries * 64 * 16
