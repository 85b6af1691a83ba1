"""Softmax, log-sum-exp and norms along columns, whose elements lie across memory: one kernel that keeps columns in registers, or reads long
ones again (codegen/gpu_columns.cpp). The reference is NumPy, in float64.
"""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

DEVICES = ["sim:gfx90a", "sim:gfx942", "sim:gfx1100", "sim:gfx1201"]
# Lengths that are and are not multiples of a team; columns that packs divide, that are odd, and fewer than a pack.
SHAPES = [([3, 512, 64], 1), ([3, 100, 49], 1), ([2, 2048, 64], 1), ([2, 333, 257], 1), ([2, 600, 3], 1), ([2, 4097, 24], 1), ([1100, 1024], 0)]  # fmt: skip
TYPES = {"float16": (TensorProto.FLOAT16, np.float16, 2e-3), "float32": (TensorProto.FLOAT, np.float32, 3e-6)}


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def moments(x, axis):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-9)


N = helper.make_node
OPERATORS = {
    "Softmax": (lambda a: N("Softmax", ["x"], ["y"], axis=a), softmax),
    "LogSoftmax": (lambda a: N("LogSoftmax", ["x"], ["y"], axis=a), lambda x, a: np.log(softmax(x, a))),
    "ReduceLogSumExp": (
        lambda a: N("ReduceLogSumExp", ["x", "axis"], ["y"]),
        lambda x, a: np.log(np.exp(x).sum(a, keepdims=True)),
    ),
    "MeanVarianceNormalization": (lambda a: N("MeanVarianceNormalization", ["x"], ["y"], axes=[a]), moments),
}


def model(operator, shape, axis, dtype):
    weights = [numpy_helper.from_array(np.array([axis]), "axis")] if operator == "ReduceLogSumExp" else []
    x = helper.make_tensor_value_info("x", TYPES[dtype][0], shape)
    y = helper.make_tensor_value_info("y", TYPES[dtype][0], None)
    graph = helper.make_graph([OPERATORS[operator][0](axis)], "columns", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.slow(part=3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_results(shape, axis, operator, dtype, device):
    _, numpy, tolerance = TYPES[dtype]
    x = (np.random.default_rng(0).standard_normal(shape) * 4).astype(numpy)
    want = OPERATORS[operator][1](x.astype(np.float64), axis)
    got = sardonyx.compile(model(operator, shape, axis, dtype), device=device).run({"x": x})["y"]
    assert np.abs(got.astype(np.float64) - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("operator", OPERATORS)
def test_columns_are_loaded_once(operator, tmp_path):
    onnx.save(model(operator, [8, 512, 1024], 1, "float16"), tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", "sim:gfx942", "--source", "--kernels", "--cache-dir", "")
    assert "// k1_" not in text and len(re.findall(r"load_pack<\d+>\(b", text)) == 1
