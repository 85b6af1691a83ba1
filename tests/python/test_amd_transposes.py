"""Loops that transpose on AMD's chips: each thread transposes a block in registers, so that every access has 16 bytes."""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper
from test_amd_main_loops import instructions

# Sizes that blocks divide, along both variables; not one of them; along other variables than the last two.
CASES = [
    ([264, 512], [1, 0], np.float16),
    ([264, 200], [1, 0], np.float32),
    ([512, 136], [1, 0], np.int8),
    ([516, 136], [1, 0], np.float16),
    ([513, 136], [1, 0], np.float16),
    ([2, 64, 24, 40], [0, 2, 3, 1], np.float16),
    ([64, 16, 64], [2, 1, 0], np.float16),
]


def transposing(shape, perm, dtype, fused):
    """x transposed; fused: of x + z, plus r (like the result) and b (of each column)."""
    t, out = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [shape[i] for i in perm]
    shapes = {"x": shape} | ({"z": shape, "r": out, "b": out[-1:]} if fused else {})
    node = helper.make_node
    nodes = [node("Transpose", ["x"], ["y"], perm=perm)]
    if fused:
        nodes = [node("Add", ["x", "z"], ["s"]), node("Transpose", ["s"], ["t"], perm=perm)]
        nodes += [node("Add", ["t", "r"], ["u"]), node("Add", ["u", "b"], ["y"])]
    infos = [helper.make_tensor_value_info(n, t, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", t, out)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), shapes


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1201"])
@pytest.mark.parametrize("fused", [False, True])
def test_results(chip, fused):
    rng = np.random.default_rng(0)
    for shape, perm, dtype in CASES:
        if fused and dtype == np.int8:
            continue
        model, shapes = transposing(shape, perm, dtype, fused)
        # Small integers: every sum is exact.
        feed = {n: rng.integers(-60, 60, s).astype(dtype) for n, s in shapes.items()}
        expected = (feed["x"] + feed.get("z", 0)).transpose(perm) + feed.get("r", 0) + feed.get("b", 0)
        got = sardonyx.compile(model.SerializeToString(), device=f"sim:{chip}").run(feed)
        np.testing.assert_array_equal(next(iter(got.values())) if isinstance(got, dict) else got[0], expected)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_symbolic_size(chip):
    """Sizes that are not multiples of a pack, and those smaller than one, take the general form."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [64, "n"])
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = sardonyx.compile(model.SerializeToString(), device=f"sim:{chip}")
    for n in (1, 3, 4, 200, 1027, 1032):
        feed = np.random.default_rng(n).random((n, 64), np.float32)
        np.testing.assert_array_equal(program.run({"x": feed})["y"], feed.T, err_msg=f"n = {n}")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_accesses_have_16_bytes(chip, tmp_path):
    model, _ = transposing([1024, 2048], [1, 0], np.float16, False)
    onnx.save(model, tmp_path / "transpose.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "transpose.onnx", chip, tmp_path)]
    assert sum(bool(re.match(r"global_load_(dwordx4|b128)", i)) for i in code) >= 8
    assert sum(bool(re.match(r"global_store_(dwordx4|b128)", i)) for i in code) >= 8
