"""8-bit convolutions and matrix products on the host: equal to exact integer sums, and with everything around them that
becomes their epilogue. numpy is the reference: other runtimes' 8-bit kernels saturate on some CPUs."""

import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)


def integers(shape, dtype):
    """Half of them are the type's extremes, which saturating instructions would get wrong."""
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max + 1, shape)
    return np.where(RNG.random(shape) < 0.5, np.where(values % 2, info.min, info.max), values).astype(dtype)


def model(nodes, inputs, outputs, constants):
    value = lambda name, array: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), ["n", *array.shape[1:]] if array.ndim else []
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [value(k, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, t, None) for k, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def convolution(x, w, zero, pads, strides, dilations):
    """int32 sums of (x - zero) w, with padding that counts as zero."""
    x = np.pad(x.astype(np.int64) - zero, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.einsum("ncyxij,mcij->nmyx", windows, w.astype(np.int64)).astype(np.int32)


CONVOLUTIONS = {
    # x's type, w's type, zero point, channels, features, image, kernel, pads, strides, dilations
    "pointwise": (np.uint8, np.int8, 0, 64, 96, (9, 11), (1, 1), (0, 0, 0, 0), (1, 1), (1, 1)),
    "padded": (np.uint8, np.int8, 131, 16, 40, (10, 9), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
    "signed": (np.int8, np.int8, -7, 12, 33, (8, 8), (3, 3), (1, 0, 2, 1), (2, 1), (1, 1)),
    "first layer": (np.uint8, np.int8, 113, 3, 32, (23, 26), (7, 7), (3, 3, 3, 3), (2, 2), (1, 1)),
    "dilated": (np.uint8, np.int8, 9, 5, 300, (11, 12), (3, 2), (2, 0, 2, 3), (1, 2), (2, 3)),
    "unsigned weights": (np.uint8, np.uint8, 3, 8, 8, (7, 7), (3, 3), (1, 1, 1, 1), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_are_exact(case):
    x_type, w_type, zero, channels, features, image, kernel, pads, strides, dilations = CONVOLUTIONS[case]
    x, w = integers((2, channels, *image), x_type), integers((features, channels, *kernel), w_type)
    attributes = {"pads": pads, "strides": strides, "dilations": dilations}
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "zero"], ["s"], **attributes),
        # What follows a product: scales by channel, an activation function, a residual, and 8 bits again.
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["m"]),
        helper.make_node("Add", ["m", "r"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("QuantizeLinear", ["y", "quantum", "q_zero"], ["q"]),
    ]
    want = convolution(x, w, zero, pads, strides, dilations)
    scale = RNG.random((features, 1, 1)).astype(np.float32) / 4096
    r = RNG.standard_normal(want.shape).astype(np.float32)
    constants = {"w": w, "zero": x_type(zero), "scale": scale, "quantum": np.float32(0.037), "q_zero": np.uint8(3)}
    sums = model(nodes[:1], {"x": x}, {"s": TensorProto.INT32}, constants)
    assert np.array_equal(sardonyx.compile(sums)(x=x)["s"], want)
    m = model(nodes, {"x": x, "r": r}, {"q": TensorProto.UINT8}, constants)
    compiled = sardonyx.compile(m)
    y = np.maximum(np.float32(want) * scale + r, 0)
    expected = np.clip(np.rint(y / np.float32(0.037)) + 3, 0, 255)
    for got in (compiled(x=x, r=r)["q"], sardonyx.compile(m, fuse=False)(x=x, r=r)["q"]):
        # A product and a sum may be rounded once instead of twice, which moves a quotient between two integers.
        assert np.abs(got - expected).max() <= 1 and (got != expected).mean() < 1e-3
    kinds = {k.name: k.kind for k in compiled.kernels()}
    assert kinds["integer_conv"] == ("routine" if w_type is np.uint8 else "tile")  # weights with a zero point


def test_a_zero_point_of_the_run():
    """Only windows that stay inside of the image can be computed before it is known; others are a routine's."""
    x, w = integers((1, 8, 9, 9), np.uint8), integers((16, 8, 3, 3), np.int8)
    for pads, kind in (((0, 0, 0, 0), "tile"), ((1, 1, 1, 1), "routine")):
        node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["s"], pads=pads)
        zero = np.array(200, np.uint8)
        compiled = sardonyx.compile(model([node], {"x": x, "zero": zero}, {"s": TensorProto.INT32}, {"w": w}))
        assert [k.kind for k in compiled.kernels() if k.name == "integer_conv"] == [kind]
        assert np.array_equal(compiled(x=x, zero=zero)["s"], convolution(x, w, 200, pads, (1, 1), (1, 1)))


@pytest.mark.parametrize("a_type", (np.uint8, np.int8))
@pytest.mark.parametrize("b_type", (np.uint8, np.int8))
@pytest.mark.parametrize("constant", (True, False), ids=("constant", "variable"))
@pytest.mark.parametrize("rows", (1, 130))
def test_matrix_products_are_exact(a_type, b_type, constant, rows):
    a, b = integers((2, rows, 70), a_type), integers((70, 300) if constant else (2, 70, 300), b_type)
    zeros = {"za": a_type(5), "zb": b_type(100)}
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "scale"], ["y"]),
    ]
    scale = RNG.random(300).astype(np.float32)
    inputs = {"a": a} if constant else {"a": a, "b": b}
    constants = {"scale": scale, **zeros, **({"b": b} if constant else {})}
    m = model(nodes, inputs, {"s": TensorProto.INT32, "y": TensorProto.FLOAT}, constants)
    sums = ((a.astype(np.int64) - 5) @ (b.astype(np.int64) - 100)).astype(np.int32)
    got = sardonyx.compile(m)(**inputs)
    assert np.array_equal(got["s"], sums) and np.array_equal(got["y"], sums.astype(np.float32) * scale)
    del m.graph.output[0]  # the sums are read by the epilogue only
    compiled = sardonyx.compile(m)
    assert np.array_equal(compiled(**inputs)["y"], sums.astype(np.float32) * scale)
    assert sum(k.name == "integer_matmul" and k.kind == "tile" for k in compiled.kernels()) == 1


def test_quantising_rounds_as_a_division_does():
    """Quotients next to the middle of two integers, for scales of all sizes."""
    scales = np.exp(RNG.uniform(-14, 6, 8)).astype(np.float32)
    for scale in scales:
        x = ((RNG.integers(-300, 300, (1, 4096)) + 0.5) * scale).astype(np.float32)
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))], 1)
        x[0, :4] = 0, np.inf, -np.inf, 3e38
        node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"])
        m = model([node], {"x": x}, {"q": TensorProto.INT8}, {"scale": scale, "zero": np.int8(3)})
        with np.errstate(over="ignore"):
            want = np.clip(np.rint(x / scale) + 3, -128, 127)
        assert np.array_equal(sardonyx.compile(m)(x=x)["q"], want)


def test_compiled_programs_keep_their_epilogues(tmp_path):
    a, b = integers((3, 64), np.uint8), integers((64, 48), np.int8)
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["f"], ["y"]),
    ]
    compiled = sardonyx.compile(model(nodes, {"a": a}, {"y": TensorProto.FLOAT}, {"b": b}))
    compiled.save(tmp_path / "m.sdx")
    want = np.maximum(a.astype(np.int64) @ b.astype(np.int64), 0).astype(np.float32)
    assert np.array_equal(sardonyx.load(tmp_path / "m.sdx")(a=a)["y"], want)


@pytest.mark.parametrize("channels,features,groups", [(3, 32, 1), (64, 64, 2)], ids=("few weights", "groups"))
def test_dequantised_convolutions_round_as_integers(channels, features, groups):
    """Scales are powers of two, so that many results lie half-way between two integers, and sums in float32 are exact unless
    they are of transformed operands (Winograd). Constants as small as the first case's are folded elsewhere."""
    unit = 2.0**-6
    x, w = integers((2, channels, 48, 52), np.int8), integers((features, channels // groups, 3, 3), np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zx"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["dw"]),
        helper.make_node("Conv", ["dx", "dw"], ["s"], pads=[1] * 4, group=groups),
        helper.make_node("QuantizeLinear", ["s", "sy", "zx"], ["qy"]),
    ]
    constants = {"w": w, "sx": np.float32(unit), "zx": np.int8(0), "sw": np.float32(unit)}
    parts = zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True)
    sums = np.concatenate([convolution(a, b, 0, (1,) * 4, (1, 1), (1, 1)) for a, b in parts], 1)
    step = 512
    constants["sy"] = np.float32(unit * unit * step)
    got = sardonyx.compile(model(nodes, {"x": x.astype(np.float32)}, {"qy": TensorProto.INT8}, constants))
    want = np.clip(np.rint(sums / step), -128, 127)
    assert (sums % step == step // 2).sum() > 100
    assert np.array_equal(got(x=(x * unit).astype(np.float32))["qy"], want)


@pytest.mark.parametrize("dequantised", [("x", "w"), ("x",), ("w",), ()], ids="+".join)
def test_convolutions_of_dequantised_operands_are_imported_as_exact(dequantised):
    """What keeps Winograd away from them (ConvOp::exact); the sums above would not differ for each shape."""
    x, w = integers((2, 64, 16, 16), np.int8), integers((64, 32, 3, 3), np.int8)
    nodes = [helper.make_node("DequantizeLinear", [n, "scale"], [f"d{n}"]) for n in dequantised]
    operands = [f"d{n}" if n in dequantised else n for n in ("x", "w")]
    nodes.append(helper.make_node("Conv", operands, ["y"], pads=[1] * 4, group=2))
    given = x if "x" in dequantised else x.astype(np.float32)
    constants = {"w": w if "w" in dequantised else w.astype(np.float32), "scale": np.float32(0.25)}
    file = model(nodes, {"x": given}, {"y": TensorProto.FLOAT}, constants)
    imported = sardonyx.pass_report(file).passes[0].text
    conv = next(line for line in imported.splitlines() if " = conv " in line)
    assert ("exact" in conv) == (len(dequantised) == 2)
