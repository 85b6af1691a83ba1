"""Copies whose rows, parts or offsets are no multiples of a vector on AMD's GPUs: slices, concatenations and transposes of odd extents load
and store vectors at any element, and the last vector of a row or part overlaps with the one before (codegen/gpu_map.cpp, gpu_blocks.cpp).
"""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

DEVICES = ["sim:gfx90a", "sim:gfx942", "sim:gfx1100", "sim:gfx1201"]
TYPES = {
    np.float16: TensorProto.FLOAT16,
    np.float32: TensorProto.FLOAT,
    np.int8: TensorProto.INT8,
    np.int64: TensorProto.INT64,
}
N = helper.make_node


def ints(name, *values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def sliced(shape, low, high):
    nodes = [N("Slice", ["x", "low", "high", "axis"], ["y"])]
    return [shape], nodes, [ints("low", low), ints("high", high), ints("axis", -1)], lambda x: x[..., low:high]


def concatenated(rows, *lengths):
    names = [f"x{k}" if k else "x" for k in range(len(lengths))]
    join = lambda *parts: np.concatenate(parts, -1)
    return [[rows, n] for n in lengths], [N("Concat", names, ["y"], axis=-1)], [], join


def transposed(shape, *perm):
    return [shape], [N("Transpose", ["x"], ["y"], perm=perm)], [], lambda x: x.transpose(perm)


CASES = {
    "slice from the middle": sliced([70, 259], 13, 230),
    "slice, the length even": sliced([2, 35, 300], 1, 291),
    "short slice": sliced([300, 61], 3, 40),
    "three odd parts": concatenated(61, 51, 133, 77),
    "a part shorter than a vector": concatenated(61, 51, 3, 77),
    "short parts beside long ones": concatenated(61, 75, 1, 75, 75),
    "two of an even length": concatenated(64, 66, 34),
    "transpose, both odd": transposed([259, 131], 1, 0),
    "transpose, one odd": transposed([12, 65, 128], 0, 2, 1),
    "transpose, few": transposed([700, 9, 9], 2, 0, 1),
    "transpose, fewer than a vector": transposed([7000, 5], 1, 0),
    "transpose of four dims": transposed([5, 33, 17, 41], 0, 3, 1, 2),
}


def model(name, dtype):
    shapes, nodes, weights, _ = CASES[name]
    inputs = [helper.make_tensor_value_info(f"x{k}" if k else "x", TYPES[dtype], s) for k, s in enumerate(shapes)]
    y = helper.make_tensor_value_info("y", TYPES[dtype], None)
    graph = helper.make_graph(nodes, "copy", inputs, [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.slow(part=3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", CASES)
def test_results(name, dtype, device):
    rng = np.random.default_rng(0)
    inputs = {f"x{k}" if k else "x": rng.integers(-100, 100, s).astype(dtype) for k, s in enumerate(CASES[name][0])}
    got = sardonyx.compile(model(name, dtype), device=device).run(inputs)["y"]
    np.testing.assert_array_equal(got, CASES[name][3](*inputs.values()))


def test_arithmetic_of_a_part():
    """What is computed, and loads that are the same along the row, whose vectors overlap."""
    shape = [70, 259]
    nodes = [
        N("Slice", ["x", "low", "high", "axis"], ["s"]),
        N("Mul", ["s", "column"], ["m"]),
        N("Add", ["m", "row"], ["y"]),
    ]
    rng = np.random.default_rng(1)
    x, column, row = (rng.standard_normal(s).astype(np.float16) for s in (shape, (70, 1), (217,)))
    weights = [ints("low", 13), ints("high", 230), ints("axis", -1)]
    weights += [numpy_helper.from_array(column, "column"), numpy_helper.from_array(row, "row")]
    of = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [of("x", TensorProto.FLOAT16, shape)], [of("y", TensorProto.FLOAT16, None)], weights
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    want = x[:, 13:230].astype(np.float64) * column + row
    for device in DEVICES:
        got = sardonyx.compile(made, device=device).run({"x": x})["y"]
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=4e-3)


def test_arithmetic_of_several_parts(tmp_path):
    """Of one part each, and of all that a part is put together from. Each thread computes packs of one of them."""
    parts, last = (61, 75), 3
    nodes = [
        N("Mul", ["x", "row"], ["product"]),
        N("Exp", ["x"], ["exp"]),
        N("Concat", ["product", "exp"], ["inner"], axis=-1),
        N("Div", ["inner", "column"], ["scaled"]),
        N("Concat", ["x", "inner", "scaled", "short"], ["y"], axis=-1),
    ]
    rng = np.random.default_rng(2)
    x, short = (rng.standard_normal((parts[0], n)).astype(np.float32) for n in (parts[1], last))
    row, column = rng.standard_normal(75).astype(np.float32), rng.uniform(1, 2, (61, 1)).astype(np.float32)
    of = lambda name, value: helper.make_tensor_value_info(
        name, TensorProto.FLOAT, None if value is None else value.shape
    )
    weights = [numpy_helper.from_array(column, "column"), numpy_helper.from_array(row, "row")]
    graph = helper.make_graph(nodes, "g", [of("x", x), of("short", short)], [of("y", None)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inner = np.concatenate([x * row, np.exp(x)], -1)
    want = np.concatenate([x, inner, inner / column, short], -1)
    for device in DEVICES:
        got = sardonyx.compile(made, device=device).run({"x": x, "short": short})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)  # of Exp, and a rounded division
    onnx.save(made, tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", "sim:gfx1100", "--source", "--kernels", "--cache-dir", "")
    assert text.count("// k") == 1 and text.count("store_pack<4>(") == 5


@pytest.mark.parametrize("name", ["slice from the middle", "three odd parts", "transpose, both odd"])
def test_code(name, tmp_path):
    """One loop, of whole vectors."""
    onnx.save(model(name, np.float16), tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", "sim:gfx1100", "--source", "--kernels", "--cache-dir", "")
    kernel = text.split("// k0_")[1]
    assert "store_pack<8>(" in kernel and "load_pack<8>(" in kernel
    assert kernel.count("for (u32 p_") == 1 or "if (done) return;" in kernel
