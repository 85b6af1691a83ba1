"""Operators of users in ONNX Runtime: the provider compiles them, elsewhere the model's own function runs."""

import ep_sessions
import numpy as np
import onnx.helper as oh
import onnxruntime_ep_sardonyx as ep

OPS = """
[[operator]]
name = "mine::Scale"
code = '''
__global__ void f(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 3 * x[i];
}
'''
inputs = ["x: float32[n]"]
outputs = ["y: float32[n]"]
kernel = "f"
grid = "ceildiv(n, 64)"
block = 64
arguments = ["x", "y", "n"]
"""


def test_custom_operators_option(tmp_path):
    (tmp_path / "ops.toml").write_text(OPS)
    # The function gives twice the input, so that the results say which of the two ran.
    function = oh.make_function(
        "mine", "Scale", ["x"], ["y"], [oh.make_node("Add", ["x", "x"], ["y"])], [oh.make_opsetid("", 18)]
    )
    nodes = [oh.make_node("Relu", ["a"], ["r"]), oh.make_node("Scale", ["r"], ["b"], domain="mine")]
    tensors = [oh.make_tensor_value_info(name, 1, ["n"]) for name in "ab"]
    graph = oh.make_graph(nodes, "g", tensors[:1], tensors[1:])
    imports = [oh.make_opsetid("", 18), oh.make_opsetid("mine", 1)]
    model = oh.make_model(graph, opset_imports=imports, functions=[function], ir_version=9)
    x = np.array([1, -2, 3], np.float32)
    for options, factor in (({}, 2), ({"custom_operators": str(tmp_path / "ops.toml")}, 3)):
        session = ep_sessions.session(model, ep.register(), options)
        np.testing.assert_array_equal(session.run(None, {"a": x})[0], factor * np.maximum(x, 0))
