"""Points' coordinates, and real and imaginary parts, that lie next to each other: threads load packs of them all and select
(codegen/gpu_interleaved.cpp)."""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

N = helper.make_node


def model(count, read, dtype=TensorProto.FLOAT, rows=4, points=1001 * 8):
    """The product of the components `read` of points with `count` of them, times a number of each row."""
    x = helper.make_tensor_value_info("x", dtype, [points, count])
    scale = helper.make_tensor_value_info("scale", dtype, [rows, 1])
    weights = [numpy_helper.from_array(np.array(k, np.int64), f"at{k}") for k in read]
    nodes = [N("Gather", ["x", f"at{k}"], [f"c{k}"], axis=1) for k in read]
    last = f"c{read[0]}"
    for k in read[1:]:
        nodes.append(N("Mul", [last, f"c{k}"], [f"p{k}"]))
        last = f"p{k}"
    nodes.append(N("Mul", [last, "scale"], ["y"]))
    y = helper.make_tensor_value_info("y", dtype, None)
    graph = helper.make_graph(nodes, "g", [x, scale], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("device", ["sim:gfx90a", "sim:gfx942", "sim:gfx1100", "sim:gfx1201"])
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=lambda t: t.__name__)
def test_results(device, count, dtype):
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.FLOAT16
    rng = np.random.default_rng(count)
    x, scale = rng.integers(-4, 5, (8008, count)).astype(dtype), rng.integers(-4, 5, (4, 1)).astype(dtype)
    got = sardonyx.compile(model(count, range(count), kind), device=device).run({"x": x, "scale": scale})["y"]
    np.testing.assert_array_equal(got, x.prod(1) * scale)  # small integers are exact


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_code(arch, tmp_path):
    """All components: packs. Not all, which may end where memory does: elements."""

    def source(*of):
        onnx.save(model(*of), tmp_path / "m.onnx")
        return cli(
            "inspect", tmp_path / "m.onnx", "--device", f"sim:{arch}", "--source", "--kernels", "--cache-dir", ""
        )

    assert source(3, [0, 1, 2]).count("select_elements<") == 3
    assert "select_elements<" not in source(3, [0, 1])
    assert "select_elements<" not in source(5, [0, 1, 2, 3, 4])
