"""Sizes that a program has checked are not checked again. Others must be, however often others were checked before them: those that
the graph requires, and those that decide which branch a program was compiled for.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper

#: More sizes than a program remembers.
MANY = 300


def make_model():
    """x and y side by side: both have as many rows."""
    tensors = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, dims)
        for n, dims in (("x", ["n", "a"]), ("y", ["m", "b"]), ("z", None))
    ]
    node = helper.make_node("Concat", ["x", "y"], ["z"], axis=1)
    graph = helper.make_graph([node], "rows", tensors[:2], tensors[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture(params=["host", "sim:gfx942"])
def run(request):
    model = sardonyx.compile(make_model().SerializeToString(), device=request.param)

    def compute(x, y):
        feed = {n: np.arange(np.prod(s), dtype=np.float32).reshape(s) for n, s in (("x", x), ("y", y))}
        np.testing.assert_array_equal(model.run(feed)["z"], np.concatenate(list(feed.values()), 1))

    return compute


def refused(run, x, y):
    with pytest.raises(sardonyx.Error):
        run(x, y)


def test_sizes_that_alternate(run):
    """Each of the sizes has been in a run that was right, but not together."""
    for x, y in [((4, 2), (4, 3)), ((6, 2), (6, 3))] * 2:
        run(x, y)
    refused(run, (4, 2), (6, 3))
    refused(run, (6, 2), (4, 3))
    run((4, 2), (4, 3))


def test_the_same_bytes_in_another_shape(run):
    run((6, 4), (6, 2))
    run((4, 6), (4, 3))
    refused(run, (4, 6), (6, 2))
    refused(run, (6, 4), (4, 3))


def test_refused_sizes_are_refused_again(run):
    run((4, 2), (4, 3))
    for _ in range(3):
        refused(run, (4, 2), (5, 3))
    run((4, 2), (4, 3))
    refused(run, (4, 2), (5, 3))


def test_more_sizes_than_are_remembered(run):
    for rows in range(1, MANY):
        run((rows, 1), (rows, 1))
    run((3, 1), (3, 1))
    refused(run, (3, 1), (7, 1))
    refused(run, (MANY - 1, 1), (MANY - 2, 1))


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_sizes_for_which_a_program_was_compiled(device):
    """The branches' results differ in rank, so a program has one of them, and sizes of the other one need another program."""
    value = helper.make_tensor_value_info
    branches = {}
    for name, node in (("one", ("Squeeze", ["x", "axis"])), ("many", ("Neg", ["x"]))):
        made = helper.make_node(*node, [name])
        branches[name] = helper.make_graph([made], name, [], [value(name, onnx.TensorProto.FLOAT, None)])
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Equal", ["rows", "one_row"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["y"], then_branch=branches["one"], else_branch=branches["many"]),
    ]
    constants = [onnx.numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("one_row", [1]), ("axis", [0]))]
    x, y = value("x", onnx.TensorProto.FLOAT, ["n", "m"]), value("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "branches", [x], [y], initializer=constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = sardonyx.compile(made.SerializeToString(), device=device)
    for shape in [(4, 3), (1, 3), (4, 3), (5, 3), (1, 3), (1, 5), (5, 3), (4, 3)] * 2:
        given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        wanted = given[0] if shape[0] == 1 else -given
        np.testing.assert_array_equal(model.run({"x": given})["y"], wanted, strict=True)
        y = sardonyx.to_device(np.zeros_like(wanted), device)
        model.run_tensors({"x": given}, outputs={"y": y})
        np.testing.assert_array_equal(y.numpy(), wanted, strict=True)
