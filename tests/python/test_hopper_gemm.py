"""Products and convolutions on Hopper: which operands TMA loads, and how results are stored. The test inspects the PTX in program
files; no GPU is needed."""

import re

import numpy as np
import onnx
import pytest
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

HALF = TensorProto.FLOAT16
COPY = "cp.async.bulk.tensor"


def product(m, k, n, dtype=HALF, given=False):
    """x [m, k] times weights, which are constants or `given` as an input, with a bias."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
    ]
    weights = [numpy_helper.from_array(np.zeros((k, n), kind), "w")] if not given else []
    weights.append(numpy_helper.from_array(np.zeros(n, kind), "b"))
    inputs = [helper.make_tensor_value_info("x", dtype, [m, k])]
    if given:
        inputs.append(helper.make_tensor_value_info("w", dtype, [k, n]))
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("z", dtype, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def convolution(channels, out, kernel=3, stride=1, size=56, batch=8, pads=1, dilation=1, group=1):
    """A convolution with a bias, of images of [batch, size, size, channels]."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node(
            "Conv", ["t", "w", "b"], ["c"], strides=[stride] * 2, pads=[pads] * 4, dilations=[dilation] * 2, group=group
        ),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    weights = [
        numpy_helper.from_array(np.zeros((out, channels // group, kernel, kernel), np.float16), "w"),
        numpy_helper.from_array(np.zeros(out, np.float16), "b"),
    ]
    image = helper.make_tensor_value_info("x", HALF, [batch, size, size, channels])
    result = helper.make_tensor_value_info("y", HALF, None)
    graph = helper.make_graph(nodes, "g", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def kernels(model, tmp_path, arch="sm_90a", precision="fp32"):
    onnx.save(model, tmp_path / "m.onnx")
    options = ["--arch", arch, "--precision", precision, "--cache-dir", tmp_path]
    cli("compile", tmp_path / "m.onnx", *options, "-o", tmp_path / "m.sdx")
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return [k for k in re.split(r"(?=\.visible \.entry)", text)[1:] if "wgmma.mma_async" in k]


@pytest.mark.parametrize("dtype", [HALF, TensorProto.BFLOAT16], ids=["float16", "bfloat16"])
def test_plain_operands_are_copied(tmp_path, dtype):
    (kernel,) = kernels(product(4096, 768, 2304, dtype=dtype), tmp_path)
    assert COPY in kernel and "sardonyx_parameter" not in kernel
    # Weights, and nothing else, are copied before the launch before this one is done.
    before, _, after = kernel.partition("griddepcontrol.wait")
    assert before.count(COPY) == 1 and after.count(COPY) == 2
    assert ".maxntid" in kernel.partition("{")[0]


def test_operands_that_launches_write_wait_for_them(tmp_path):
    (kernel,) = kernels(product(4096, 768, 2304, given=True), tmp_path)
    before, _, after = kernel.partition("griddepcontrol.wait")
    assert COPY not in before and COPY in after


EIGHT_BITS = {
    "int8": (TensorProto.INT8, "m64n[0-9]+k32.s32.s8.s8"),
    "fp8": (TensorProto.FLOAT8E4M3FN, "k32.f32.e4m3.e4m3"),
}


def quantized(kind, operator, x, w, rounds=True, **attributes):
    """x and weights are quantised and dequantised, and so is the result if it `rounds`."""
    dtype, nodes = EIGHT_BITS[kind][0], []
    weights = [
        helper.make_tensor("w8", dtype, w, bytes(int(np.prod(w))), raw=True),
        numpy_helper.from_array(np.full(w[0 if operator == "Conv" else 1], 0.01, np.float32), "ws"),
        numpy_helper.from_array(np.float32(0.02), "s"),
        helper.make_tensor("z", dtype, [], b"\0", raw=True),
    ]

    def pair(value, name):
        nodes.append(helper.make_node("QuantizeLinear", [value, "s", "z"], [f"{name}8"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}8", "s", "z"], [name]))

    pair("x", "a")
    nodes.append(helper.make_node("DequantizeLinear", ["w8", "ws"], ["b"], axis=0 if operator == "Conv" else 1))
    nodes.append(helper.make_node(operator, ["a", "b"], ["c" if rounds else "y"], **attributes))
    if rounds:
        pair("c", "y")
        nodes.pop()
        nodes[-1].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", dtype if rounds else TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_products_of_eight_bits(tmp_path, kind):
    """K-major operands by TMA; the result is quantised in the same kernel, without dividing, and stored in words."""
    (kernel,) = kernels(quantized(kind, "MatMul", [4096, 768], [768, 2304]), tmp_path)
    assert COPY in kernel and re.search(rf"wgmma\.mma_async\S*{EIGHT_BITS[kind][1]}", kernel)
    assert not re.search(r"st\.global\.b8|div\.(rn|full)", kernel)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", *EIGHT_BITS])
def test_results_are_rounded_in_pairs(tmp_path, kind):
    """Conversions take two values each; eight results of a row are stored at a time."""
    if kind in EIGHT_BITS:
        model = quantized(kind, "MatMul", [4096, 768], [768, 2304])
    else:
        model = product(4096, 768, 2304, dtype=getattr(TensorProto, kind.upper()))
    (kernel,) = kernels(model, tmp_path)
    octets = len(re.findall(r"st\.global\.(?:v4|b64)", kernel))
    assert octets > 0
    pairs = {"float16": r"rn\.f16x2", "bfloat16": r"rn\.bf16x2", "fp8": r"rn\.satfinite\.e4m3x2", "int8": "none"}[kind]
    found = re.findall(rf"cvt\.{pairs}\.f32 [^;]*", kernel)
    assert len(found) == (0 if kind == "int8" else 4 * octets) and not any("0f00000000" in text for text in found)
    assert not re.search(r"cvt\.rn\.b?f16\.f32|div\.(rn|full)", kernel)
    # Lanes exchange what is rounded and packed: of eight results, one word each way of 8 bits (then another), two of 16.
    assert kernel.count("shfl.sync.bfly") == (2 if kind in EIGHT_BITS else 4) * octets
    if kind == "int8":  # two instructions round, saturate and join four results; three permutations exchange eight
        assert kernel.count("cvt.pack.sat.") == 4 * octets
        assert kernel.count("prmt.b32") == 3 * octets


@pytest.mark.parametrize(
    ("kind", "precision", "quick"), [("fp8", "fp32", True), ("int8", "fp16", True), ("int8", "fp32", False)]
)
def test_functions_before_a_quantisation(tmp_path, kind, precision, quick):
    """What is rounded to 8-bit floats, or computed of 16 bits, needs no float32 accuracy; integers of float32 models are exact."""
    model = quantized(kind, "MatMul", [4096, 768], [768, 2304])
    k = next(k for k, node in enumerate(model.graph.node) if node.input[0] == "c")
    model.graph.node[k].input[0] = "e"
    model.graph.node.insert(k, helper.make_node("Erf", ["c"], ["e"]))
    (kernel,) = kernels(model, tmp_path, precision=precision)
    assert (kernel.count("fma.rn.f32") < 10 * kernel.count("ex2.approx")) == quick  # 7 or 20 for each erf


def test_gated_layers_store_words_of_float8(tmp_path):
    """One of a pair of columns' results is one byte; lanes exchange them until each has a word."""
    rng, types = np.random.default_rng(0), helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN)
    weights = [numpy_helper.from_array(np.float32(1 / 16), "s"), numpy_helper.from_array(np.zeros((), types), "z")]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x8"])]
    nodes.append(helper.make_node("DequantizeLinear", ["x8", "s", "z"], ["a"]))
    for name in ("gate", "up"):
        w = rng.integers(-4, 5, (256, 512)).astype(types)
        weights += [
            numpy_helper.from_array(w, f"{name}8"),
            numpy_helper.from_array(np.ones(512, np.float32), f"{name}s"),
        ]
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}8", f"{name}s"], [f"{name}w"], axis=1))
        nodes.append(helper.make_node("MatMul", ["a", f"{name}w"], [name]))
    nodes.append(helper.make_node("Sigmoid", ["gate"], ["g"]))
    nodes.append(helper.make_node("Mul", ["gate", "g"], ["silu"]))
    nodes.append(helper.make_node("Mul", ["silu", "up"], ["m"]))
    nodes.append(helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"]))
    ends = [[helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096, 256])]]
    ends.append([helper.make_tensor_value_info("y", TensorProto.FLOAT8E4M3FN, None)])
    graph = helper.make_graph(nodes, "g", *ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (kernel,) = [k for k in kernels(model, tmp_path, precision="fp16") if COPY in k]
    words = kernel.count("st.global.b32")
    assert words > 0 and not re.search(r"st\.global\.b8|st\.shared", kernel)
    assert kernel.count("cvt.rn.satfinite.e4m3x2") == kernel.count("shfl.sync.bfly") == 2 * words


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_layers_that_differ_in_scales_share_a_kernel(tmp_path, kind):
    """Scales and zero points are arguments."""
    model = quantized(kind, "MatMul", [1024, 1024], [1024, 1024])
    layers = onnx.ModelProto()
    layers.CopyFrom(model)
    for node in model.graph.node:
        again = layers.graph.node.add()
        again.CopyFrom(node)
        swap = {"x": "y", "s": "s2", "z": "z2"}
        again.input[:] = [swap.get(i, i if i in ("w8", "ws") else i + "2") for i in node.input]
        again.output[0] += "2"
    zero = b"\5" if kind == "int8" else b"\0"
    layers.graph.initializer.append(numpy_helper.from_array(np.float32(0.07), "s2"))
    layers.graph.initializer.append(helper.make_tensor("z2", EIGHT_BITS[kind][0], [], zero, raw=True))
    first = next(n for n in layers.graph.node if n.output[0] == "y")
    first.output[0] = "y8"
    layers.graph.node.insert(
        list(layers.graph.node).index(first) + 1, helper.make_node("DequantizeLinear", ["y8", "s", "z"], ["y"])
    )
    layers.graph.output[0].name = "y2"
    assert len(kernels(layers, tmp_path)) <= 2


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_convolutions_of_eight_bits(tmp_path, kind):
    model = quantized(kind, "Conv", [8, 64, 56, 56], [64, 64, 3, 3], pads=[1] * 4)
    (kernel,) = kernels(model, tmp_path)
    assert "im2col" in kernel and re.search(rf"wgmma\.mma_async\S*{EIGHT_BITS[kind][1]}", kernel)


@pytest.mark.parametrize("kind", EIGHT_BITS)
def test_products_of_eight_bits_that_wgmma_does_not_take(tmp_path, kind):
    """K is no whole vectors: mma.sync, for float8 in float16, which is exact."""
    model = quantized(kind, "MatMul", [100, 70], [70, 50])
    assert not kernels(model, tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    assert ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8" if kind == "int8" else "cvt.rn.f16x2.e4m3x2") in text


def mixer(tokens, out, channels):
    """x + (x^T w + b)^T: tokens of [batch, tokens, channels] are multiplied."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["n"]),
        helper.make_node("Transpose", ["n"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Add", ["u", "r"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.zeros((tokens, out), np.float16), "w"),
        numpy_helper.from_array(np.zeros(out, np.float16), "b"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", HALF, ["n", tokens, channels]),
        helper.make_tensor_value_info("r", HALF, ["n", out, channels]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", HALF, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def orders(kernel):
    """Whether a's rows and b's columns are contiguous, as wgmma is told by its last two operands."""
    found = set(re.findall(r"wgmma\.mma_async[^;]*, 1, 1, 1, ([01]), ([01]);", kernel, re.S))
    assert len(found) == 1
    return next(iter(found))


def test_operands_with_contiguous_columns_are_copied(tmp_path):
    """The MLP over tokens multiplies w^T x, so that b's columns are contiguous; all batches share w."""
    found = kernels(mixer(256, 128, 768), tmp_path)
    assert found and all(COPY in k and orders(k) == ("0", "1") for k in found)
    assert all("st.global.v4" in k for k in found)


def test_operands_with_contiguous_rows_are_copied(tmp_path):
    model = mixer(256, 128, 768)
    del model.graph.node[3:]
    model.graph.output[0].name = "n"
    del model.graph.input[1]
    found = kernels(model, tmp_path)
    assert found and all(COPY in k and orders(k) == ("1", "0") for k in found)


def test_rows_that_are_no_multiple_of_sixteen_bytes_are_padded(tmp_path):
    """TMA cannot read them as they are; the program copies them first, with zeros to the next multiple."""
    found = kernels(product(4096, 770, 2304), tmp_path)
    assert found and all(COPY in k for k in found)


@pytest.mark.parametrize("n", [768, 2304, 3072])
@pytest.mark.parametrize("m", [1024, 4096])
def test_results_are_stored_sixteen_bytes_at_a_time(tmp_path, m, n):
    found = kernels(product(m, 768, n), tmp_path)
    assert found
    for k in found:
        assert "st.global.v4" in k and not re.search(r"st\.global\.b(16|32)", k)


@pytest.mark.parametrize(
    "sizes",
    [
        {"channels": 64, "out": 64},
        {"channels": 128, "out": 128, "stride": 2},
        {"channels": 256, "out": 512, "kernel": 1, "pads": 0, "stride": 2},
        {"channels": 256, "out": 256, "pads": 12, "dilation": 12},
        {"channels": 128, "out": 64, "batch": "n", "size": "s"},
        {"channels": 96, "out": 64},
        {"channels": 3, "out": 64, "kernel": 7, "stride": 2, "pads": 3, "size": 224},
    ],
    ids=["3x3", "stride", "1x1 with a stride", "dilation", "any sizes", "channels by 32", "few channels"],
)
def test_images_are_copied_under_the_taps_of_a_filter(tmp_path, sizes):
    found = [k for k in kernels(convolution(**sizes), tmp_path) if COPY in k]
    assert found and all(".im2col." in k for k in found)


def test_images_under_a_filter_of_one_pixel_are_a_product(tmp_path):
    found = kernels(convolution(256, 64, kernel=1, pads=0, batch=64), tmp_path)
    assert found and all(COPY in k and ".im2col." not in k for k in found)


@pytest.mark.parametrize("sizes", [{"channels": 48, "out": 64}, {"channels": 128, "out": 128, "group": 2}])
def test_images_whose_channels_are_fetched_otherwise(tmp_path, sizes):
    found = kernels(convolution(**sizes), tmp_path)
    assert found and all(COPY not in k for k in found)


def test_what_is_added_to_a_product_is_fetched_while_it_is_multiplied(tmp_path):
    model = product(4096, 768, 2304)
    model.graph.node.append(helper.make_node("Add", ["z", "r"], ["s"]))
    model.graph.input.append(helper.make_tensor_value_info("r", HALF, [4096, 2304]))
    model.graph.output[0].name = "s"
    (kernel,) = kernels(model, tmp_path)
    assert COPY in kernel and 0 < kernel.index("prefetch.global.L2") < kernel.index("wgmma.mma_async")
    (alone,) = kernels(product(4096, 768, 2304), tmp_path)
    assert "prefetch.global" not in alone


def test_other_chips_have_no_copy_engine(tmp_path):
    onnx.save(product(4096, 768, 2304), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    assert COPY.encode() not in (tmp_path / "m.sdx").read_bytes()


@pytest.mark.parametrize("functions", [["Erf"], ["Mish"], ["Sin", "Atan"]], ids="-".join)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.slow(part=3)
def test_no_candidate_keeps_sums_in_memory(tmp_path, functions, arch):
    """Of rows in any number, all candidates are in the file; a sum whose address a function takes lies in local memory. Sines call
    functions for large arguments, which take numbers."""
    model = product("n", 768, 3072)
    for k, function in enumerate(functions):
        last = model.graph.node[-1].output[0]
        model.graph.node.append(helper.make_node(function, [last], [f"f{k}"]))
        model.graph.output[0].name = f"f{k}"
    onnx.save(model, tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    found = re.split(r"(?=\.visible \.entry)", text)[1:]
    calls = set(re.findall(r"call\.uni [^;]*?, (\w+),", "".join(found)))
    assert len(found) > 4 and not [k for k in found if ".local" in k]
    assert all(re.search("sin|quadrant", c) for c in calls) and (not calls or "Sin" in functions)
