"""Elements that one side of a select loads, on AMD's GPUs: where the other side is selected, the tensor's first element is loaded instead, so
that there are no branches in which loads wait for each other (Emitter::guards_addresses). The reference is the host.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

N = helper.make_node
CASES = {
    "samples outside of the image": ([3, 8, 16, 16], [N("GridSample", ["x", "grid"], ["y"])]),
    "padding of odd rows": ([4, 8, 15, 21], [N("Pad", ["x", "pads"], ["y"])]),
    "parts shorter than a vector": ([40, 3], [N("Concat", ["x", "part", "x"], ["y"], axis=1)]),
    "first elements that are NaN": ([3, 8, 16, 16], [N("GridSample", ["x", "grid"], ["y"])]),
}
WEIGHTS = {
    "grid": np.random.default_rng(2).uniform(-1.5, 1.5, (3, 16, 16, 2)).astype(np.float16),
    "pads": np.array([0, 0, 1, 2, 0, 0, 2, 1]),
    "part": np.arange(200, dtype=np.float16).reshape(40, 5),
}


def model(name):
    shape, nodes = CASES[name]
    used = {i for n in nodes for i in n.input}
    graph = helper.make_graph(
        nodes,
        "select",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
        [numpy_helper.from_array(w, n) for n, w in WEIGHTS.items() if n in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("device", ["sim:gfx90a", "sim:gfx942", "sim:gfx1100", "sim:gfx1201"])
@pytest.mark.parametrize("name", CASES)
def test_results(name, device):
    x = np.random.default_rng(1).standard_normal(CASES[name][0]).astype(np.float16)
    if "NaN" in name:
        x[0, 0, 0, 0] = np.nan
    want = sardonyx.compile(model(name)).run({"x": x})["y"]
    got = sardonyx.compile(model(name), device=device).run({"x": x})["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-3, atol=2e-3)


def test_samples_have_no_branches(tmp_path):
    onnx.save(model("samples outside of the image"), tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", "sim:gfx1100", "--source", "--kernels", "--cache-dir", "")
    packs = text.split("done = 0;")[1].split("done = ")[0]
    assert packs.count(" : 0]") == 4  # the four elements around a sample
