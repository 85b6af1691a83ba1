"""Values between 8-bit products: that kernels store them as bytes, and that results are those of the definition."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

CHIPS = ["gfx942", "gfx950", "gfx1100", "gfx1201"]


class Net:
    """A graph in which activations and weights are quantised."""

    def __init__(self, seed=0):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(seed)

    def add(self, kind, inputs, **attributes):
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"n{len(self.nodes)}", **attributes))
        return out

    def constant(self, x, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(x), name))
        return name

    def quantized(self, x, scale, zero=0, dtype=np.int8):
        pair = [self.constant(np.float32(scale)), self.constant(np.asarray(zero, dtype))]
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [x, *pair]), *pair])

    def conv(self, x, channels, taps, **attributes):
        w = self.rng.integers(-20, 21, (channels[1], channels[0], taps, taps), np.int8)
        scales = self.constant((2.0 ** -(5 + np.arange(channels[1]) % 3)).astype(np.float32))
        w = self.add("DequantizeLinear", [self.constant(w), scales], axis=0)
        bias = self.constant(self.rng.integers(-8, 9, channels[1]).astype(np.float32) / 4)
        return self.add("Conv", [x, w, bias], pads=[taps // 2] * 4, **attributes)

    def model(self, inputs, outputs, opset=21):
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def residual_network(rounds_both=False):
    """As ResNet: pooling, a block with a convolution beside it, a block with the input beside it. Scales are powers of two, so
    that no rounding depends on the order of operations."""
    n = Net()
    x = n.quantized("x", 0.25)
    x = n.quantized(n.add("Relu", [n.conv(x, (3, 32), 7, strides=[2, 2])]), 0.5, -128)
    x = n.quantized(n.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 0.5, -128)
    for first in (True, False):
        y = n.quantized(n.add("Relu", [n.conv(x, (32 if first else 64, 32), 3)]), 2.0, -128)
        y = n.conv(y, (32, 64), 1)
        if rounds_both:
            y = n.quantized(y, 2.0, 3)
        x = n.quantized(n.conv(x, (32, 64), 1), 2.0, 5) if first else x
        x = n.quantized(n.add("Relu", [n.add("Add", [y, x])]), 2.0, -128)
    x = n.add("Flatten", [n.add("GlobalAveragePool", [x])])
    n.nodes[-1].output[0] = "y"
    return n.model({"x": ["n", 3, 32, 32]}, ["y"])


def in_onnxruntime(model, feed):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


@pytest.mark.parametrize("rounds_both", [False, True])
@pytest.mark.parametrize("device", ["host", *(f"sim:{c}" for c in CHIPS)])
@pytest.mark.slow(part=4)
def test_residual_networks_are_exact(device, rounds_both):
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32)).astype(np.float32) * 8
    model = residual_network(rounds_both)
    want = in_onnxruntime(model, {"x": x})
    assert np.ptp(want) > 10
    for precision in ("fp32", "fp16"):
        got = sardonyx.compile(model.SerializeToString(), device=device, precision=precision).run({"x": x})["y"]
        # Only the mean of 64 values is not exact: its products with 1/64 and the scale may round.
        np.testing.assert_allclose(got, want, rtol=1e-6 if precision == "fp32" else 1e-3)


@pytest.mark.parametrize("rounds_both", [False, True])
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "sm_90a"])
@pytest.mark.slow(part=3)
def test_residual_networks_keep_bytes(chip, rounds_both):
    """Every value between convolutions has a byte an element, and each convolution is one launch."""
    model = residual_network(rounds_both).SerializeToString()
    steps = sardonyx.estimate(model, chip, sizes={"n": 64}, precision="fp16")
    # The input's quantisation, six convolutions, pooling, the mean; on AMD, whose products have zero points, also a padded
    # copy for each convolution that pads.
    copies = 0 if chip == "sm_90a" else 2
    assert len(steps) == 9 + copies, [s.nodes for s in steps]
    first, pooled, wide = (64 * n for n in (16 * 16 * 32, 8 * 8 * 32, 8 * 8 * 64))
    # Results of the first convolution, written and read; of pooling; of the blocks, and what they read.
    most = 2 * first + 3 * pooled + 2 * (2 * pooled + wide) + 5 * wide + copies * 3 * wide
    assert sum(s.bytes for s in steps[2:]) + first < most * 1.1


@pytest.mark.parametrize("rounds_both", [False, True])
def test_hopper_exchanges_rounded_bytes(tmp_path, rounds_both):
    """Lanes exchange results, and bytes of the residual, packed: two words of eight columns, with two shuffles each way
    (before, eight of each result alone)."""
    onnx.save(residual_network(rounds_both), tmp_path / "m.onnx")
    options = ["--arch", "sm_90a", "--precision", "fp16", "--cache-dir", tmp_path, "--compile-ahead"]
    cli("compile", tmp_path / "m.onnx", *options, "-o", tmp_path / "m.sdx")
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    sources = [s for s in text.split("struct P : Problem<")[1:] if "gemm_tma<" in s.partition("\n}\n")[0]]
    bytes_out = [s.partition("\n}\n")[0] for s in sources if "using Out = u8" in s.partition("\n}\n")[0]]
    assert bytes_out and all("kWide = true" in s for s in bytes_out)
    by_rows = [s for s in bytes_out if "kReadsRows = true" in s]
    assert by_rows and all("kRowBytes = true" in s for s in by_rows)


def attention_network(dtype, smooth):
    heads, size, width = 2, 32, 64
    n = Net(3)
    w = [n.constant(n.rng.standard_normal((width, width)).astype(np.float32) / 8) for _ in range(3)]
    dims = n.constant(np.array([0, 0, heads, size]))
    q, k, v = (n.add("Transpose", [n.add("Reshape", [n.add("MatMul", ["x", m]), dims])], perm=[0, 2, 1, 3]) for m in w)
    scores = n.add(
        "Mul", [n.add("MatMul", [q, n.add("Transpose", [k], perm=[0, 1, 3, 2])]), n.constant(np.float32(0.2))]
    )
    y = n.add("MatMul", [n.add("Softmax", [scores], axis=-1), v])
    y = n.add("Reshape", [n.add("Transpose", [y], perm=[0, 2, 1, 3]), n.constant(np.array([0, 0, width]))])
    if smooth:
        y = n.add("Mul", [y, n.constant((2.0 ** (np.arange(width) % 3 - 1)).astype(np.float32))])
    y = n.quantized(y, 0.02, 0, dtype)
    o = n.rng.standard_normal((width, 48)).astype(np.float32)
    o = n.constant((o * 30).clip(-127, 127).astype(np.int8) if dtype == np.int8 else o.astype(dtype))
    y = n.add("MatMul", [y, n.add("DequantizeLinear", [o, n.constant(np.full(48, 0.02, np.float32))], axis=1)])
    n.nodes[-1].output[0] = "y"
    return n.model({"x": ["b", "s", width]}, ["y"])


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize(
    ("chip", "dtype"),
    [
        *((c, np.int8) for c in CHIPS),
        ("gfx942", ml_dtypes.float8_e4m3fnuz),
        ("gfx950", ml_dtypes.float8_e4m3fn),
        ("gfx1201", ml_dtypes.float8_e4m3fn),
    ],
)
@pytest.mark.slow(part=4)
def test_attention_rounds_its_result(chip, dtype, smooth):
    model = attention_network(dtype, smooth).SerializeToString()
    rng = np.random.default_rng(0)
    want_of = sardonyx.compile(model, device="host")
    got_of = sardonyx.compile(model, device=f"sim:{chip}", precision="fp16")
    names = [k.name for k in got_of.kernels()]
    assert any("attention" in n for n in names)
    # Few queries, whole tiles, several keys per query: all forms of the kernel.
    for shape in ((2, 1, 64), (1, 19, 64), (2, 130, 64)):
        x = rng.standard_normal(shape).astype(np.float32)
        want, got = want_of.run({"x": x})["y"], got_of.run({"x": x})["y"]
        error = np.sqrt(((got - want) ** 2).mean() / (want**2).mean())
        # Probabilities and values in 11 bits move a value to the next step now and then.
        assert error < (0.01 if dtype == np.int8 else 0.02), error


@pytest.mark.parametrize(("chip", "dtype"), [("sm_90a", ml_dtypes.float8_e4m3fn), ("gfx1100", np.int8)])
@pytest.mark.parametrize("smooth", [False, True])
def test_attention_stores_bytes(chip, dtype, smooth):
    """No launch between attention and the product that reads its result."""
    model = attention_network(dtype, smooth).SerializeToString()
    steps = sardonyx.estimate(model, chip, sizes={"b": 8, "s": 512}, precision="fp16")
    at = next(k for k, s in enumerate(steps) if "attention" in s.kernel)
    assert any("QuantizeLinear" in n for n in steps[at].nodes)
    assert steps[at].bytes < 8 * 512 * 64 * (3 * 2 + 1) * 1.01
    assert any("MatMul" in n for n in steps[at + 1].nodes) and "QuantizeLinear" not in str(steps[at + 1].nodes)


def test_hopper_exchanges_bytes_of_attention(tmp_path):
    """Results are rounded in pairs, and stored eight at a time."""
    onnx.save(attention_network(ml_dtypes.float8_e4m3fn, smooth=False), tmp_path / "m.onnx")
    options = ["--arch", "sm_90a", "--precision", "fp16", "--cache-dir", tmp_path, "--compile-ahead"]
    cli("compile", tmp_path / "m.onnx", *options, "-o", tmp_path / "m.sdx")
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    sources = [s.partition("\n}\n")[0] for s in text.split("struct P {")[1:]]
    attention = [s for s in sources if "attention_wgmma<" in s]
    assert attention and all("kWideOut = 1" in s for s in attention)
