"""Padding on AMD's GPUs, also with a change of layout: where a pack of elements follows memory it is one load, and the elements of the
others are loaded one by one (codegen/gpu_pieces.cpp)."""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper, numpy_helper
from test_amd_main_loops import instructions

CHIPS = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
MODES = {"constant": {"constant_values": 3}, "reflect": {}, "edge": {}, "wrap": {}}
# The shape, pads before and after, and the transpose in front of the padding and behind it.
CASES = {
    "rows": ([2, 5, 40, 64], [0, 0, 2, 3, 0, 0, 1, 3], None, None),
    "odd rows": ([3, 50, 93], [0, 1, 5, 0, 1, 4], None, None),
    "columns": ([70, 96], [9, 0, 3, 0], None, None),
    "cropped": ([6, 60, 96], [0, -3, -1, 0, 2, 5], None, None),
    "to channels last": ([2, 24, 30, 41], [0, 0, 3, 3, 0, 0, 3, 3], None, [0, 2, 3, 1]),
    "to channels last, long": ([1, 72, 9, 64], [0, 0, 1, 1, 0, 0, 1, 1], None, [0, 2, 3, 1]),
    "from channels last": ([2, 30, 41, 24], [0, 0, 3, 2, 0, 0, 3, 1], [0, 3, 1, 2], None),
    "matrix": ([200, 328], [7, 8, 9, 10], None, [1, 0]),
}
TYPES = [np.float16, np.float32, np.int8]


def model(name, mode, dtype):
    """y = b + the padded x, where b has a value for each element of the last dim."""
    shape, pads, before, after = CASES[name]
    t, node = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), helper.make_node
    nodes, last = [], "x"
    if before:
        nodes.append(node("Transpose", [last], ["a"], perm=before))
        last, shape = "a", [shape[k] for k in before]
    nodes.append(node("Pad", [last, "pads", "value"] if mode == "constant" else [last, "pads"], ["p"], mode=mode))
    last, half = "p", len(pads) // 2
    out = [n + pads[k] + pads[half + k] for k, n in enumerate(shape)]
    if after:
        nodes.append(node("Transpose", [last], ["t"], perm=after))
        last, out = "t", [out[k] for k in after]
    nodes.append(node("Add", [last, "b"], ["y"]))
    bias = np.arange(out[-1]).astype(dtype)
    weights = [numpy_helper.from_array(np.array(pads, np.int64), "pads"), numpy_helper.from_array(bias, "b")]
    weights.append(numpy_helper.from_array(np.array(3, dtype), "value"))
    x, y = helper.make_tensor_value_info("x", t, CASES[name][0]), helper.make_tensor_value_info("y", t, out)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), bias


def padded(x, name, mode):
    """What NumPy gives. Negative pads crop before anything is mirrored."""
    _, pads, before, after = CASES[name]
    x = x.transpose(before) if before else x
    half = len(pads) // 2
    crops = [slice(max(-pads[k], 0), n - max(-pads[half + k], 0)) for k, n in enumerate(x.shape)]
    pairs = [(max(pads[k], 0), max(pads[half + k], 0)) for k in range(half)]
    y = np.pad(x[tuple(crops)], pairs, mode, **MODES[mode])
    return y.transpose(after) if after else y


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("mode", MODES)
def test_values(mode, chip):
    for number, name in enumerate(CASES):
        dtype = TYPES[number % len(TYPES)]
        graph, bias = model(name, mode, dtype)
        x = np.random.default_rng(number).integers(-60, 60, CASES[name][0]).astype(dtype)
        got = sardonyx.compile(graph, device=f"sim:{chip}").run({"x": x})["y"]
        np.testing.assert_array_equal(got, padded(x, name, mode) + bias, err_msg=name)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", ["rows", "odd rows", "to channels last", "matrix"])
@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_packs_have_16_bytes(name, mode, chip, tmp_path):
    onnx.save(model(name, mode, np.float16)[0], tmp_path / "pad.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "pad.onnx", chip, tmp_path)]
    assert any(re.match(r"global_load_(dwordx4|b128)", i) for i in code)
    assert any(re.match(r"global_store_(dwordx4|b128)", i) for i in code)
