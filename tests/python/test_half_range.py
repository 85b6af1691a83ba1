"""Precision fp16 with the ranges of values: what leaves float16's range stays in float32, and is named."""

import json

import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

DEVICE = "sim:gfx942"


def make(nodes, outputs, weights):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def spectrum():
    """As an audio front end: products of large values, their squares, sums of these, and a logarithm."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((64, 48)).astype(np.float32),
        "m": np.abs(rng.standard_normal((48, 32))).astype(np.float32),
        "v": rng.standard_normal((32, 16)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["bands"], name="transform"),
        helper.make_node("Mul", ["bands", "bands"], ["power"], name="square"),
        helper.make_node("MatMul", ["power", "m"], ["mel"], name="filters"),
        helper.make_node("Log", ["mel"], ["log"], name="log"),
        helper.make_node("MatMul", ["log", "v"], ["y"], name="project"),
    ]
    return make(nodes, [("y", ["n", 16])], weights)


SAMPLES = [{"x": (4000 * np.random.default_rng(k).standard_normal((5, 64))).astype(np.float32)} for k in range(4)]


@pytest.fixture
def table(tmp_path):
    done = sardonyx.quantize(spectrum(), SAMPLES[:2], to="table", output=tmp_path / "t.json")
    assert done.report.ranges["power"].largest > 65504 > done.report.ranges["log"].largest
    return tmp_path / "t.json"


def test_what_leaves_the_range_stays_in_float32(table):
    model = spectrum()

    def error(**options):
        e = sardonyx.evaluate(model, SAMPLES[2:], options={"device": DEVICE, "precision": "fp16", **options})
        return e.outputs[0].relative

    assert not error() < 0.05  # clamped, or infinite and then not a number
    # The last product rounds its operands to 11 bits.
    assert error(calibration_table=table) < 1e-3
    compiled = sardonyx.compile(model, device=DEVICE, precision="fp16", calibration_table=table)
    quantized, in_float = compiled.quantization
    assert quantized == 1 and [line.split("'")[1] for line in in_float] == ["transform", "square", "filters"]
    assert "reaches" in in_float[0]
    report = sardonyx.pass_report(model, "gfx942", precision="fp16", calibration_table=table)
    kept = {r.node for r in report.remarks if "leave the range" in r.reason}
    assert {"transform (MatMul)", "filters (MatMul)"} <= kept and "project (MatMul)" not in kept
    # Without a range of their own, values computed from those that leave it do, too.
    ranges = json.loads(table.read_text())
    for name in ("power", "mel"):
        del ranges[name]
    table.write_text(json.dumps(ranges))
    assert error(calibration_table=table) < 1e-3


def test_evaluate_counts_what_leaves_the_range():
    e = sardonyx.evaluate(spectrum(), SAMPLES, layers=True, options={"device": DEVICE, "precision": "fp16"})
    assert {v.name for v in e.out_of_range} == {"bands", "power", "mel"}
    layers = {v.name: v for v in e.layers}
    power = sardonyx.compile(spectrum(), all_outputs=True)
    want = sum(int((np.abs(power(s)["power"]) >= 65504).sum()) for s in SAMPLES)
    assert layers["power"].reference_saturated == want > 0 and layers["log"].reference_saturated == 0


def test_weights_out_of_range_keep_their_product_in_float32():
    rng = np.random.default_rng(1)
    w = rng.standard_normal((64, 32)).astype(np.float32)
    w[3, 5] = 1e5
    model = make([helper.make_node("MatMul", ["x", "w"], ["y"])], [("y", ["n", 32])], {"w": w})
    x = rng.standard_normal((3, 64)).astype(np.float32)
    got, want = (sardonyx.compile(model, **o)(x=x)["y"] for o in ({"device": DEVICE, "precision": "fp16"}, {}))
    # Sums of 64 terms in float32, in another order.
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_bfloat16_has_the_range_and_takes_no_table(table):
    with pytest.raises(sardonyx.InvalidArgumentError, match="only used with precision 'int8', 'fp8' or 'fp16'"):
        sardonyx.compile(spectrum(), device=DEVICE, precision="bf16", calibration_table=table)
