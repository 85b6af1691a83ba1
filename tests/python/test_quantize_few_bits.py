"""sardonyx.quantize() to weights of 2, 3, 4 and 8 bits per block: what is stored, and how well it rounds; convolutions too."""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper
from sardonyx.llm.weights import Blocked
from sardonyx.quantization.convolution import WindowGram, rows_of
from test_quantize import make

BITS = {"int8-weights": 8, "int4": 4, "int3": 3, "int2": 2}


def unpacked(data, bits, count):
    """Elements along the last dim of a bit stream whose first bit is the lowest of the first byte."""
    single = np.unpackbits(data, axis=-1, bitorder="little")[..., : count * bits]
    return (single.reshape(*data.shape[:-1], count, bits) << np.arange(bits)).sum(-1)


@pytest.mark.parametrize("bits", range(2, 9))
def test_elements_are_packed_as_matmulnbits_reads_them(bits):
    rng = np.random.default_rng(bits)
    q = rng.integers(0, 1 << bits, (5, 3, 16), dtype=np.uint8)
    z = rng.integers(0, 1 << bits, (5, 3), dtype=np.uint8)
    w = Blocked(q, rng.random((5, 3)).astype(np.float32), z, bits, 41)  # the last block is not whole
    assert w.packed().shape == (5, 3, 2 * bits) and w.packed_zeros().shape == (5, -(-3 * bits // 8))
    np.testing.assert_array_equal(unpacked(w.packed(), bits, 16), q)
    np.testing.assert_array_equal(unpacked(w.packed_zeros(), bits, 3), z)
    inputs = ["x", "b", "s", "z"]
    weights = {"b": w.packed(), "s": w.scales, "z": w.packed_zeros()}
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", K=41, N=5, bits=bits, block_size=16)
    model = make([node], [("x", ["n", 41])], [("y", ["n", 5])], weights)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = rng.standard_normal((3, 41)).astype(np.float32)
    want = x @ w.dense().values.T
    # Sums of 41 terms in another order.
    np.testing.assert_allclose(sardonyx.compile(model)(x=x)["y"], want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def products(rng):
    """A Gemm with a bias and a MatMul, and inputs whose channels go together: what GPTQ makes use of."""
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["h"], name="in"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="out"),
    ]
    weights = {"w": normal(64, 48), "v": normal(48, 64), "c": normal(48)}
    mix = rng.standard_normal((8, 64)) * np.exp(rng.standard_normal(64))
    data = [{"x": (rng.standard_normal((64, 8)) @ mix).astype(np.float32)} for _ in range(6)]
    return make(nodes, [("x", ["n", 64])], [("y", ["n", 64])], weights), data


@pytest.mark.parametrize("to", ["int3", "int2"])
@pytest.mark.parametrize("weights", ["rtn", "gptq", "awq"])
def test_products_of_2_and_3_bits(to, weights):
    model, data = products(np.random.default_rng(4))

    def relative(**more):
        done = sardonyx.quantize(model, data[:4], block=16, **more)
        return sardonyx.evaluate(done.model, data[4:], reference=model).outputs[0].relative, done

    found, done = relative(to=to, weights=weights)
    assert {(n.op_type, a.i) for n in done.model.graph.node for a in n.attribute if a.name == "bits"} == {
        ("MatMulNBits", BITS[to])
    }
    assert {v.bits for v in done.report.layers} == {BITS[to]}
    nearest, _ = relative(to=to, weights="rtn")
    finer, _ = relative(to={"int3": "int4", "int2": "int3"}[to], weights=weights)
    assert finer < found <= nearest * {"rtn": 1, "gptq": 0.8, "awq": 1}[weights]
    worst = done.report.layers[0]
    mixed, limited = relative(to=to, weights=weights, limit=0.99 * worst.relative)
    assert {v.name: v.bits for v in limited.report.layers}[worst.name] == 8 and mixed < found


@pytest.mark.parametrize("to", ["int4", "int2", "int3", "int8-weights"])
def test_against_onnxruntime(to):
    ort = pytest.importorskip("onnxruntime")
    model, data = products(np.random.default_rng(5))
    done = sardonyx.quantize(model, to=to, weights="rtn", block=32)
    try:
        session = ort.InferenceSession(done.model.SerializeToString(), providers=["CPUExecutionProvider"])
        theirs = session.run(None, data[0])[0]
    except Exception as error:
        assert to == "int3", error  # which its CPU provider lacks
        pytest.skip("ONNX Runtime has no kernel for 3 bits")
    ours = sardonyx.compile(done.model)(data[0])["y"]
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()  # sums of 64 terms in another order


def convolutions(rng, scale=1.0):
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["s"], name="stem", pads=[1] * 4),
        helper.make_node(
            "Conv", ["s", "w", "b"], ["a"], name="strided", strides=[2, 1], dilations=[1, 2], pads=[1] * 4
        ),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], name="pointwise"),
    ]
    weights = {"stem": normal(32, 3, 3, 3), "w": normal(64, 32, 3, 3) / 16, "b": normal(64), "v": normal(16, 64, 1, 1)}
    data = [{"x": np.cumsum(normal(2, 3, 12, 12), -1) * scale} for _ in range(6)]  # neighbours go together
    return make(nodes, [("x", ["n", 3, 12, 12])], [("y", ["n", 16, 6, 10])], weights), data


@pytest.mark.parametrize("to", ["int8-weights", "int4", "int2"])
def test_convolutions(to):
    model, data = convolutions(np.random.default_rng(6))
    errors = {}
    for weights in ("rtn", "gptq"):
        done = sardonyx.quantize(model, data[:4], to=to, weights=weights)
        assert "3 input channels are no whole blocks of 32" in done.report.kept["stem (Conv)"]
        assert {v.name for v in done.report.layers} == {"strided (Conv)", "pointwise (Conv)"}
        onnx.checker.check_model(done.model)
        errors[weights] = sardonyx.evaluate(done.model, data[4:], reference=model).outputs[0].relative
    # A bell curve in 2 bits keeps a relative error of about 0.35, in 4 bits 0.08, in 8 bits 0.005.
    assert errors["rtn"] < {"int2": 0.7, "int4": 0.15, "int8-weights": 0.01}[to]
    assert errors["gptq"] < errors["rtn"] * (1 if to == "int8-weights" else 0.9)
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(done.model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, data[5])[0]
    ours = sardonyx.compile(done.model)(data[5])["y"]
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()  # sums of 288 terms in another order
    stored = {t.name: onnx.TensorProto.DataType.Name(t.data_type) for t in done.model.graph.initializer}
    assert stored["w/blocks"] == {"int2": "UINT2", "int4": "UINT4", "int8-weights": "UINT8"}[to]


def test_windows_of_a_convolution():
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((2, 4, 9, 8)).astype(np.float32), rng.standard_normal((5, 4, 3, 2)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 1], dilations=[2, 3])
    y = sardonyx.compile(make([node], [("x", list(x.shape))], [("y", [2, 5, 3, 5])], {"w": w}))(x=x)["y"]
    gram = WindowGram((3, 2), (2, 1), (2, 3))
    gram.add(x)
    # The sum of squares of the results, from the second moments of the windows.
    rows = rows_of(w)
    assert gram.count == 2 * 3 * 5
    np.testing.assert_allclose(np.einsum("nk,kl,nl->n", rows, gram.sum, rows), np.square(y).sum((0, 2, 3)), rtol=1e-4)
    small = WindowGram((3, 3), (1, 1), (1, 1))
    small.add(x[:, :, :2, :1])  # smaller than a window
    assert small.count == 2 and np.isfinite(small.sum).all()


def test_what_convolutions_do_not_have():
    model, data = convolutions(np.random.default_rng(8))
    with pytest.raises(sardonyx.InvalidArgumentError, match="no type of 3 bits"):
        sardonyx.quantize(model, data, to="int3")
    with pytest.raises(sardonyx.InvalidArgumentError, match="no whole blocks of 128"):
        sardonyx.quantize(model, data, to="int4", block=128)


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("to", ["int3", "int2"])
def test_on_simulated_gpus(device, to):
    model, data = products(np.random.default_rng(9))
    done = sardonyx.quantize(model, to=to, weights="rtn", block=32)
    for rows in (1, 40):
        x = {"x": data[0]["x"][:rows]}
        host, gpu = (sardonyx.compile(done.model, device=d)(x)["y"] for d in ("host", device))
        assert np.abs(gpu - host).max() < 1e-5 * np.abs(host).max()  # sums of 64 terms in another order


@pytest.mark.parametrize("to", ["int4", "int2"])
def test_convolutions_on_a_simulated_gpu(to):
    model, data = convolutions(np.random.default_rng(10))
    done = sardonyx.quantize(model, to=to, weights="rtn")
    x = {"x": data[0]["x"][:1]}
    host, gpu = (sardonyx.compile(done.model, device=d)(x)["y"] for d in ("host", "sim:gfx942"))
    assert np.abs(gpu - host).max() < 1e-5 * np.abs(host).max()  # sums of 288 terms in another order
