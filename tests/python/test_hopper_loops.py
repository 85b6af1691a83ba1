"""Loops on NVIDIA's GPUs: results in float8 are rounded two at a time, and loads of one side of a select are no branches. The test
inspects the PTX in program files; no GPU is needed."""

import re

import numpy as np
import onnx
import pytest
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper


def kernels(tmp_path, nodes, inputs, outputs, weights, arch="sm_90a"):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "--cache-dir", tmp_path, "-o", tmp_path / "m.sdx")
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return re.split(r"(?=\.visible \.entry)", text)[1:]


@pytest.mark.parametrize("norm", ["LayerNormalization", "Softmax"])
def test_float8_is_rounded_two_at_a_time(tmp_path, norm):
    weights = [numpy_helper.from_array(np.float16(0.013), "s")]
    weights.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], b"\0", raw=True))
    operands = ["x"]
    if norm == "LayerNormalization":
        operands += ["g", "b"]
        weights += [numpy_helper.from_array(np.full(768, 0.5, np.float16), n) for n in ("g", "b")]
    nodes = [helper.make_node(norm, operands, ["y"]), helper.make_node("QuantizeLinear", ["y", "s", "z"], ["q"])]
    outputs = [("y", TensorProto.FLOAT16), ("q", TensorProto.FLOAT8E4M3FN)]
    (kernel,) = kernels(tmp_path, nodes, [("x", TensorProto.FLOAT16, ["rows", 768])], outputs, weights)
    rounded = re.findall(r"cvt\.rn\.satfinite\.e4m3x2\.f32 \w+, (\S+), (\S+);", kernel)
    assert rounded and not any(x.startswith("0f") for x, _ in rounded)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT64])
def test_loads_of_both_sides_are_no_branches(tmp_path, dtype):
    node = helper.make_node("Concat", ["x", "z"], ["y"], axis=1)
    inputs = [("x", dtype, [64, 13]), ("z", dtype, [64, 11])]
    (kernel,) = kernels(tmp_path, [node], inputs, [("y", dtype)], [])
    packed = kernel[: kernel.index("st.global.v")]
    assert len(re.findall(r"@p ld\.global", packed)) >= 4
    assert not re.search(r"ld\.global\.(nc|b|u)", packed.replace("@p ld.global", ""))
