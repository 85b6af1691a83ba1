"""Semantics follow the model's operator set: every version of an operator, from operator set 7 on, whose definition a later one changed.

A version that differs from the next one in its types only needs no case; test_every_changed_version_has_a_case finds out which do.
"""

import itertools

import numpy as np
import onnx
import operators
import pytest
import sardonyx
from onnx import defs, helper

rng = np.random.default_rng(5)
X = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
M = rng.standard_normal((3, 4)).astype(np.float32)
SEQUENCE = rng.standard_normal((4, 2, 3)).astype(np.float32)
INT8 = rng.integers(-100, 100, (3, 4)).astype(np.int8)


def i64(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


def weights(gates):
    return [rng.standard_normal(s).astype(np.float32) for s in ((1, gates * 5, 3), (1, gates * 5, 5), (1, gates * 10))]


CHANNELS = [rng.standard_normal(3).astype(np.float32) for _ in range(3)] + [rng.random(3).astype(np.float32) + 0.5]
DUPLICATES = f32(1, 3, 3, 2, 1, 1, 7, 7, 0).reshape(3, 3)
REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)
ROIS = [rng.random((1, 2, 10, 10)).astype(np.float32), f32(0.5, 1, 6, 7, 0, 0, 9, 9).reshape(2, 4), i64(0, 0)]
TIES = f32(0.5, 1.5, -2.5, 3.5, 200, -300).reshape(2, 3)

# (operator, version, operator set, attributes, inputs, numbers of those that must be constants)
CASES = [
    ("ArgMax", 11, 11, {"axis": 1}, [DUPLICATES], ()),
    ("ArgMin", 11, 11, {"axis": 0, "keepdims": 0}, [DUPLICATES], ()),
    ("AveragePool", 7, 7, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}, [X], ()),
    ("AveragePool", 7, 9, {"kernel_shape": [2, 2], "auto_pad": "SAME_LOWER"}, [X], ()),
    ("AveragePool", 11, 11, {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}, [X], ()),
    ("AveragePool", 11, 18, {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}, [X], ()),
    ("BatchNormalization", 7, 7, {}, [X, *CHANNELS], ()),
    ("BatchNormalization", 9, 9, {"epsilon": 1e-3}, [X, *CHANNELS], ()),
    ("BatchNormalization", 9, 13, {}, [X, *CHANNELS], (1, 2, 3, 4)),
    ("Cast", 13, 13, {"to": 6}, [X * 9], ()),
    ("Cast", 19, 19, {"to": 10}, [X * 1e5], ()),
    ("CastLike", 15, 15, {}, [X * 9, i64(1)], ()),
    ("CastLike", 19, 19, {}, [X, np.array([1], np.float16)], ()),
    ("Clip", 6, 7, {"min": -0.5, "max": 0.25}, [X], ()),
    ("Clip", 6, 10, {"max": 0.25}, [X], ()),
    ("Constant", 9, 9, {"value": helper.make_tensor("c", 1, [2], [1.5, 2.5])}, [], ()),
    ("Constant", 11, 11, {"value": helper.make_tensor("c", 7, [], [3])}, [], ()),
    ("DFT", 17, 17, {"axis": 1}, [X[..., :1]], ()),
    ("DFT", 17, 19, {"axis": 2, "onesided": 1}, [X[..., :1]], ()),
    ("DepthToSpace", 1, 10, {"blocksize": 2}, [rng.random((1, 8, 2, 3)).astype(np.float32)], ()),
    ("DequantizeLinear", 10, 10, {}, [INT8, np.float32(0.1), np.int8(3)], ()),
    ("DequantizeLinear", 19, 19, {"axis": 0}, [INT8, f32(0.1, 0.2, 0.3), np.array([3, 4, 5], np.int8)], ()),
    ("DequantizeLinear", 21, 21, {"axis": 1, "block_size": 2}, [INT8, rng.random((3, 2)).astype(np.float32)], ()),
    ("Dropout", 7, 7, {"ratio": 0.3}, [X], ()),
    ("Dropout", 10, 10, {"ratio": 0.3}, [X], ()),
    ("GRU", 7, 7, {"hidden_size": 5, "linear_before_reset": 1}, [SEQUENCE, *weights(3)], ()),
    ("GatherND", 11, 11, {}, [X, i64(0, 1, 1, 2).reshape(2, 2)], ()),
    ("Gemm", 7, 7, {"alpha": 0.5, "beta": 2.0, "transB": 1}, [M, M, f32(1, 2, 3)], ()),
    ("Gemm", 9, 10, {"transA": 1}, [M, M, f32(1)], ()),
    ("GridSample", 16, 16, {"mode": "bilinear", "padding_mode": "border"}, [X, rng.uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32)], ()),
    ("GroupNormalization", 18, 18, {"num_groups": 1}, [X, f32(2), f32(1)], ()),
    ("GroupNormalization", 18, 20, {"num_groups": 3}, [X, f32(2, 3, 4), f32(1, 0, -1)], ()),
    ("Hardmax", 11, 11, {"axis": 1}, [X], ()),
    ("Hardmax", 1, 7, {}, [X], ()),
    ("LSTM", 7, 7, {"hidden_size": 5}, [SEQUENCE, *weights(4)], ()),
    ("LogSoftmax", 11, 11, {"axis": 2}, [X], ()),
    ("LogSoftmax", 1, 8, {}, [X], ()),
    ("LpPool", 11, 11, {"kernel_shape": [2, 3], "p": 3, "pads": [1, 0, 0, 1]}, [X], ()),
    ("MaxPool", 1, 7, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 1]}, [X], ()),
    ("MaxPool", 8, 8, {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}, [X], ()),
    ("Pad", 2, 7, {"pads": [0, 1, 0, 0, 0, 0, 2, 1], "value": 1.5}, [X], ()),
    ("Pad", 2, 10, {"pads": [0, 0, 1, 2, 0, 0, 1, 1], "mode": "reflect"}, [X], ()),
    ("Pad", 11, 11, {}, [X, i64(0, 0, -1, 2, 0, 1, 1, -1), np.float32(2)], (1,)),
    ("Pad", 13, 13, {"mode": "edge"}, [X, i64(0, 0, 1, 2, 0, 1, 1, 1)], (1,)),
    ("QuantizeLinear", 10, 10, {}, [TIES, np.float32(1), np.uint8(128)], ()),
    ("QuantizeLinear", 13, 13, {"axis": 0}, [TIES, f32(1, 2), np.array([1, -2], np.int8)], ()),
    ("QuantizeLinear", 19, 19, {"axis": 1}, [TIES, f32(1, 2, 4), np.array([1, 2, 3], np.uint8)], ()),
    ("QuantizeLinear", 21, 21, {"axis": 0, "block_size": 1}, [TIES, rng.random((2, 3)).astype(np.float32) + 0.5, np.ones((2, 3), np.int8)], ()),
    ("RNN", 7, 7, {"hidden_size": 5, "direction": "reverse"}, [SEQUENCE, *weights(1)], ()),
    ("Range", 11, 11, {}, [np.float32(1), np.float32(9), np.float32(1.5)], ()),
    *((op, 13, 13, {"axes": [1, -1], "keepdims": 0}, [np.abs(X)], ()) for op in REDUCTIONS if op != "ReduceSum"),
    *((op, 1, 7, {"axes": [0]}, [np.abs(X)], ()) for op in REDUCTIONS),
    *((op, 11, 11, {}, [np.abs(X)], ()) for op in REDUCTIONS),
    ("Reshape", 5, 7, {}, [X, i64(0, -1, 5)], (1,)),
    ("Reshape", 13, 13, {}, [X, i64(-1, 10)], (1,)),
    ("Resize", 10, 10, {"mode": "nearest"}, [X, f32(1, 1, 2, 1.5)], (1,)),
    ("Resize", 10, 10, {"mode": "linear"}, [X, f32(1, 1, 2, 3)], (1,)),
    ("Resize", 11, 11, {"mode": "cubic", "cubic_coeff_a": -0.5}, [X, f32(), f32(1, 1, 2, 2)], (1, 2)),
    ("Resize", 11, 12, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, [X, f32(), f32(), i64(2, 3, 7, 9)], (1, 2, 3)),
    ("Resize", 13, 13, {"mode": "nearest", "nearest_mode": "ceil"}, [X, None, f32(1, 1, 0.5, 2)], (2,)),
    ("Resize", 13, 17, {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, [X, None, f32(1, 1, 0.6, 2)], (2,)),
    ("Resize", 18, 18, {"mode": "linear", "axes": [2, 3]}, [X, None, f32(2, 0.8)], (2,)),
    ("RoiAlign", 10, 10, {"output_height": 3, "output_width": 3, "sampling_ratio": 2}, ROIS, ()),
    ("ScatterElements", 13, 13, {"axis": 1}, [M, i64(1, 0, 2).reshape(3, 1), f32(7, 8, 9).reshape(3, 1)], ()),
    ("ScatterND", 13, 13, {}, [M, i64(2, 0).reshape(2, 1), M[:2]], ()),
    ("Shape", 13, 13, {}, [X], ()),
    ("Slice", 1, 7, {"starts": [1, -3], "ends": [100, -1], "axes": [1, 3]}, [X], ()),
    ("Slice", 1, 9, {"starts": [0, 1], "ends": [1, 2]}, [X], ()),
    ("Softmax", 11, 11, {"axis": -2}, [X], ()),
    ("Softmax", 1, 7, {}, [X], ()),
    ("SpaceToDepth", 13, 13, {"blocksize": 2}, [X[:, :, :, :4]], ()),
    ("Split", 2, 7, {"split": [1, 2], "axis": 1}, [X], ()),
    ("Split", 11, 11, {"axis": 2}, [X], ()),
    ("Split", 13, 13, {"axis": 3}, [X, i64(2, 3)], (1,)),
    ("Squeeze", 11, 11, {"axes": [-2, 0]}, [X[:1, :, :1]], ()),
    ("Squeeze", 1, 7, {}, [X[:1, :, :1]], ()),
    ("TopK", 1, 7, {"k": 2}, [X], ()),
    ("TopK", 10, 10, {"axis": 1}, [X, i64(2)], (1,)),
    ("Unsqueeze", 11, 11, {"axes": [-1, 0]}, [X], ()),
    ("Unsqueeze", 1, 7, {"axes": [1, 3]}, [M], ()),
    ("Upsample", 7, 7, {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}, [X], ()),
    ("Upsample", 7, 8, {"mode": "linear", "scales": [1.0, 1.0, 2.0, 2.0]}, [X], ()),
    ("Upsample", 9, 9, {"mode": "nearest"}, [X, f32(1, 1, 2, 2)], (1,)),
]  # fmt: skip
OUTPUTS = {"TopK": 2, "Split": 2, "Dropout": 1}
# Dims that must be known when compiling: (input, dim).
KEPT = {"DFT": [(0, -1)], "GatherND": [(1, -1)], "ScatterND": [(1, -1)]}
# Versions with cases of their own elsewhere, or of operators that do not take tensors only.
ELSEWHERE = {
    ("Attention", 23): "test_onnx_backend.py, its functions",
    ("Attention", 24): "test_onnx_backend.py, its functions",
    ("Loop", 1): "test_control_flow.py",
    ("Scan", 8): "test_control_flow.py",
    ("Cast", 23): "float8e8m0 is new in 24 and changes nothing else",
    ("CastLike", 23): "float8e8m0 is new in 24 and changes nothing else",
}  # fmt: skip


@pytest.mark.parametrize(
    "op, version, opset, attributes, inputs, constants", CASES, ids=[f"{c[0]}-{c[2]}-{k}" for k, c in enumerate(CASES)]
)
def test_version(op, version, opset, attributes, inputs, constants):
    assert defs.get_schema(op, opset).since_version == version or version < 11
    outputs = OUTPUTS.get(op, 1)
    if op == "LSTM":
        outputs = 3
    fixed = (
        ((False, ()), (False, constants)) if op == "Squeeze" and not attributes else None
    )  # which dims are 1 decides the rank
    kept = KEPT.get(op, ())
    operators.check(op, attributes, inputs, opset, outputs, constants, rtol=2e-5, atol=2e-5, variants=fixed, kept=kept)


def form(schema):
    attributes = sorted(
        (n, str(a.type), a.required, a.default_value.SerializeToString()) for n, a in schema.attributes.items()
    )
    return (
        attributes,
        [(i.name, str(i.option)) for i in schema.inputs],
        [(o.name, str(o.option)) for o in schema.outputs],
    )


def changed_versions():
    """(operator, version) of those that a later one changed in more than types, from operator set 7 on."""
    known = {name for domain, name, *_ in sardonyx._sardonyx.operators() if not domain}
    versions = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain and schema.name in known:
            versions.setdefault(schema.name, {})[schema.since_version] = schema
    for name, history in versions.items():
        order = sorted(history)
        for old, new in itertools.pairwise(order):
            if new > 7 and form(history[old]) != form(history[new]):
                yield name, old


def test_every_changed_version_has_a_case():
    tested = {(op, defs.get_schema(op, opset).since_version) for op, _, opset, *_ in CASES}
    missing = [v for v in changed_versions() if v not in tested and v not in ELSEWHERE]
    assert not missing


def test_versions_that_are_too_old_are_refused():
    # Upsample of operator set 6 had scales of another form; training is what Dropout of 6 means unless told.
    for op, attributes, opset in (
        ("Upsample", {"width_scale": 2.0, "height_scale": 2.0}, 6),
        ("Dropout", {}, 6),
        ("Neg", {}, 1),
    ):
        node = helper.make_node(op, ["x"], ["y"], **attributes)
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", 1, [1, 1, 2, 2])], [onnx.ValueInfoProto(name="y")]
        )
        with pytest.raises(sardonyx.UnsupportedError, match=f"{op}.*operator set {opset}"):
            sardonyx.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))
