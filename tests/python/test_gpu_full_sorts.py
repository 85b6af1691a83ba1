"""TopK of all elements of a row, which is how argsort is exported: nothing is selected, and sorting needs no scratch memory."""

import json
import os

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

DEVICES = ["sim:gfx942", "sim:gfx1100", *filter(None, [os.environ.get("SARDONYX_TEST_DEVICE")])]
TYPES = {np.int64: TensorProto.INT64, np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16}


def sorting(n, dtype, largest):
    values = helper.make_tensor_value_info("x", TYPES[dtype], ["rows", n])
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "at")]
    node = helper.make_node("TopK", ["x", "k"], ["y", "at"], largest=largest)
    graph = helper.make_graph([node], "g", [values], outputs, [numpy_helper.from_array(np.array([n]), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("device", DEVICES)
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


def first_of(k, dims, largest):
    """The k first along dim 1 of a float tensor."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "at"], largest=largest, axis=1)
    values = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "at")]
    graph = helper.make_graph([node], "g", [values], outputs, [numpy_helper.from_array(np.array([k]), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "k"),
    [((1, 1025, 1), 1025), ((1, 2049, 1), 600), ((1, 1400, 3), 1400), ((2, 1100, 2), 275), ((1, 5001, 1), 4001), ((2, 4500, 1), 2049)],
)  # fmt: skip
@pytest.mark.parametrize("dims", [None, ["b", "n", "c"]], ids=["known", "symbolic"])
def test_few_long_rows(shape, k, dims, device):
    """Places are counted. Rows may have neighbours in memory; equal elements, zeros of both signs and NaN keep their order."""
    rng = np.random.default_rng(k)
    x = rng.integers(-300, 300, shape).astype(np.float32)
    x[rng.random(shape) < 0.1] = -0.0
    x[rng.random(shape) < 0.01] = np.inf
    got, at = sardonyx.compile(first_of(k, dims or shape, 0).SerializeToString(), device=device).run({"x": x}).values()
    order = np.argsort(x, 1, kind="stable")[:, :k]
    np.testing.assert_array_equal(at, order)
    np.testing.assert_array_equal(got, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("device", DEVICES)
def test_nan_of_a_long_row(device):
    """NaN counts as larger than infinity, as in NumPy."""
    x = np.random.default_rng(1).standard_normal((1, 1300, 1)).astype(np.float32)
    x[0, ::7] = np.nan
    got, at = sardonyx.compile(first_of(1300, x.shape, 0).SerializeToString(), device=device).run({"x": x}).values()
    np.testing.assert_array_equal(at, np.argsort(x, 1, kind="stable"))
    np.testing.assert_array_equal(got, np.sort(x, 1))


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_long_items_stay_in_registers(chip, tmp_path):
    onnx.save(sorting(1024, np.int64, 0), tmp_path / "m.onnx")
    options = ["--arch", chip, "--json", tmp_path / "report.json", "--report", "--cache-dir", "", "-q"]
    cli("compile", tmp_path / "m.onnx", *options)
    (target,) = json.loads((tmp_path / "report.json").read_text())
    assert [(k["scratch_bytes"], k["vgpr_spills"]) for k in target["code"]] == [(0, 0)]
