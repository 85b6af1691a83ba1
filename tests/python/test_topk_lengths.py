"""TopK of rows of any length compiles: LLVM 22 crashed or refused the code for rows of 257 to 320 elements on gfx942."""

import pytest
import sardonyx
from onnx import TensorProto, helper


@pytest.mark.parametrize("length", [300, 320, 700])
def test_values(length):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, length])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [2, 5])
    k = helper.make_tensor("k", TensorProto.INT64, [1], [5])
    graph = helper.make_graph([helper.make_node("TopK", ["x", "k"], ["y", "i"])], "g", [x], [y, i], [k])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    feed = {"x": [[(7 * j + r) % length for j in range(length)] for r in range(2)]}
    card = sardonyx.compile(model, device="sim:gfx942", cache_dir="")(feed)
    host = sardonyx.compile(model, device="host")(feed)
    assert card["y"].tolist() == host["y"].tolist() and card["i"].tolist() == host["i"].tolist()
