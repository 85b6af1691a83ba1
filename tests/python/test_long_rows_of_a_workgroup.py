"""Rows that one workgroup computes: in its registers, with operands of one stage loaded there, or read again by each stage with several
packs in flight (codegen/gpu_row_plan.cpp). A channel's scale is one load for a pack of its pixels. The reference is NumPy, in float64.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

DEVICES = ["sim:gfx90a", "sim:gfx942", "sim:gfx1100", "sim:gfx1201"]
HALF, FLOAT = np.float16, np.float32
ROWS = 17  # more are one launch whatever their length, fewer than 17 are divided

CASES = {
    "in registers, a scale for each pack": ("group", FLOAT, 20 * 1024, False),
    "in registers, half, a scale for each pack": ("group", HALF, 30 * 1024, False),
    "operands of one stage": ("layer", HALF, 30000, False),
    "operands of one stage, odd": ("layer", HALF, 30001, False),
    "read again": ("softmax", FLOAT, 30000, True),
    "read again, odd": ("softmax", FLOAT, 30001, True),
    "read again, a scale for each pack": ("group", FLOAT, 30 * 1024, True),
}


def make(name):
    """The model, and float64 arrays of its inputs and weights. `two`: the sum of two inputs is normalised, which takes twice the registers."""
    kind, dtype, length, two = CASES[name]
    rng = np.random.default_rng(length)
    channels = length // 1024
    shape = [ROWS, channels, 32, 32] if kind == "group" else [ROWS, length]
    inputs = {n: rng.standard_normal(shape).astype(dtype) for n in ("x", "z")[: 1 + two]}
    size = {"group": channels, "layer": length, "softmax": 0}[kind]
    weights = {n: rng.standard_normal(size).astype(dtype) for n in "gb"} if size else {}
    nodes = [helper.make_node("Add", ["x", "z"], ["s"])] if two else []
    operator, attributes = {
        "group": ("GroupNormalization", {"num_groups": 1}),
        "layer": ("LayerNormalization", {"axis": -1}),
        "softmax": ("Softmax", {"axis": -1}),
    }[kind]
    nodes.append(helper.make_node(operator, ["s" if two else "x", *weights], ["y"], **attributes))
    kind_of = TensorProto.FLOAT16 if dtype == HALF else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info(n, kind_of, shape) for n in inputs],
        [helper.make_tensor_value_info("y", kind_of, shape)],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, inputs, {n: w.astype(np.float64) for n, w in weights.items()}


def reference(kind, x, weights):
    rows = x.reshape(ROWS, -1)
    if kind == "softmax":
        e = np.exp(rows - rows.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)
    normal = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    scale, bias = (np.repeat(weights[n], rows.shape[1] // weights[n].size) for n in "gb")
    return normal * scale + bias


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_results(device, name):
    kind, dtype, _, _ = CASES[name]
    model, inputs, weights = make(name)
    got = sardonyx.compile(model, device=device).run(inputs)["y"]
    want = reference(kind, sum(x.astype(np.float64) for x in inputs.values()), weights)
    relative = 2.0**-10 if dtype == HALF else 2.0**-18
    np.testing.assert_allclose(
        got.astype(np.float64).reshape(want.shape), want, rtol=relative, atol=relative * np.abs(want).max()
    )


@pytest.mark.parametrize("name", CASES)
def test_code(tmp_path, name):
    """Where rows are in registers, and whether a scale is loaded once for a pack."""
    onnx.save(make(name)[0], tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", "sim:gfx1100", "--source", "--kernels", "--cache-dir", "")
    assert text.count("// k0_") == 1 and "// k1_" not in text
    assert ("+ 0 * i32(team)" in text or "loads_in_flight();" in text) == name.startswith("read again")
    # In a branch that this chip never takes, each element has its own.
    assert text.count(" = to_bits(b") == (4 if CASES[name][0] == "group" else 0)
