"""ScatterElements that writes whole slices, as torch's assignments to rows and columns are exported."""

import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper


def scattered(index, extent, shape, axis, **attributes):
    """ScatterElements whose indices are a number, or numbers along the axis, in all positions: torch's select_scatter and
    slice_scatter."""
    size = list(shape)
    size[axis] = extent
    dims = [1] * len(shape)
    dims[axis] = len(index)
    nodes = [
        helper.make_node("Expand", ["index", "size"], ["indices"]),
        helper.make_node("ScatterElements", ["x", "indices", "u"], ["y"], axis=axis, **attributes),
    ]
    initializers = [
        helper.make_tensor("index", TensorProto.INT64, dims, index),
        helper.make_tensor("size", TensorProto.INT64, [len(size)], size),
    ]
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("u", size), ("y", shape))
    ]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    u = -1 - np.arange(np.prod(size), dtype=np.float32).reshape(size)
    return model, x, u


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
@pytest.mark.parametrize(
    ("index", "axis"), [([2], 1), ([-1], 1), ([0], 0), ([1], -1), ([1, 2], 1), ([0, 2], -1), ([3, 1], 1), ([2, 2], 0)]
)
def test_slices_that_are_scattered(index, axis, device):
    shape = [4, 4, 3]
    model, x, u = scattered(index, len(index), shape, axis)
    compiled = sardonyx.compile(model, device=device)
    want = x.copy()
    for m, k in enumerate(index):
        at, of = [slice(None)] * 3, [slice(None)] * 3
        at[axis], of[axis] = k, m
        want[tuple(at)] = u[tuple(of)]
    np.testing.assert_array_equal(compiled.run({"x": x, "u": u})["y"], want)
    steps = [k for k in compiled.kernels() if "ScatterElements" in str(k.nodes)]
    if len(index) == 1:
        assert [k.kind for k in steps] == ["loop"]  # known while compiling: no search for the last update of an element


def test_slices_that_are_added_to():
    model, x, u = scattered([1], 1, [4, 4, 3], 1, reduction="add")
    want = x.copy()
    want[:, 1] += u[:, 0]
    np.testing.assert_array_equal(sardonyx.compile(model).run({"x": x, "u": u})["y"], want)


def test_parts_of_slices_that_are_scattered():
    """Fewer positions than the data has in another dim: the rest stays."""
    model, x, _ = scattered([1], 1, [4, 4, 3], 1)
    part = helper.make_tensor("size", TensorProto.INT64, [3], [2, 1, 3])
    model.graph.initializer[1].CopyFrom(part)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 2
    u = -1 - np.arange(6, dtype=np.float32).reshape(2, 1, 3)
    want = x.copy()
    want[:2, 1] = u[:, 0]
    np.testing.assert_array_equal(sardonyx.compile(model).run({"x": x, "u": u})["y"], want)


def test_slices_outside_of_what_they_are_scattered_to():
    model, x, u = scattered([4], 1, [4, 4, 3], 1)
    with pytest.raises(sardonyx.Error, match="out of range"):
        sardonyx.compile(model).run({"x": x, "u": u})
