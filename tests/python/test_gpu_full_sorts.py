"""TopK of all elements of a row, which is how argsort is exported: nothing is selected, and sorting needs no scratch memory."""

import json

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.int64: TensorProto.INT64, np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


def sorting(n, dtype, largest):
    values = helper.make_tensor_value_info("x", TYPES[dtype], ["rows", n])
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "at")]
    node = helper.make_node("TopK", ["x", "k"], ["y", "at"], largest=largest)
    graph = helper.make_graph([node], "g", [values], outputs, [numpy_helper.from_array(np.array([n]), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("n", "largest"), [(200, 1), (300, 0), (1024, 0), (1500, 1), (2048, 0), (2500, 1), (4096, 0), (4100, 0)]
)
def test_values(n, largest, dtype, device):
    """With many equal elements, whose order is that of their indices."""
    x = np.random.default_rng(n).integers(-50, 50, (3, n)).astype(dtype)
    model = sardonyx.compile(sorting(n, dtype, largest).SerializeToString(), device=device)
    got, at = model.run({"x": x}).values()
    order = np.argsort(-x if largest else x, 1, kind="stable")
    np.testing.assert_array_equal(at, order)
    np.testing.assert_array_equal(got, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_long_items_stay_in_registers(chip, tmp_path):
    onnx.save(sorting(1024, np.int64, 0), tmp_path / "m.onnx")
    options = ["--arch", chip, "--json", tmp_path / "report.json", "--report", "--cache-dir", "", "-q"]
    cli("compile", tmp_path / "m.onnx", *options)
    (target,) = json.loads((tmp_path / "report.json").read_text())
    assert [(k["scratch_bytes"], k["vgpr_spills"]) for k in target["code"]] == [(0, 0)]
