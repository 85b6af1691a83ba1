"""Every element type through the operators that move elements, tensors without elements, and invalid attributes."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import sardonyx
from operators import model_of, refused

DTYPES = [
    np.bool_,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
    ml_dtypes.float4_e2m1fn,
    ml_dtypes.int4,
    ml_dtypes.uint4,
    ml_dtypes.int2,
    ml_dtypes.uint2,
]


def i64(*values):
    return np.array(values, dtype=np.int64)


def run(op, attributes, inputs, opset=25, outputs=1, constants=(), symbolic=False):
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    model = sardonyx.compile(model_of(op, attributes, inputs, opset, outputs, constants, symbolic))
    return list(model.run({f"x{k}": a for k, a in enumerate(inputs) if a is not None and k not in constants}).values())


MOVES = [
    ("Slice", {}, lambda x: [x, i64(0), i64(2), i64(1)], lambda x: x[:, 0:2]),
    ("Concat", {"axis": 0}, lambda x: [x, x], lambda x: np.concatenate([x, x])),
    ("Gather", {"axis": 1}, lambda x: [x, i64(2, 0)], lambda x: x[:, [2, 0]]),
    ("GatherElements", {}, lambda x: [x, np.zeros((1, 3), np.int64)], lambda x: x[:1]),
    ("GatherND", {}, lambda x: [x, i64(1, 2)], lambda x: x[1, 2]),
    ("Expand", {}, lambda x: [x, i64(2, 1, 1)], lambda x: np.stack([x, x])),
    ("Tile", {}, lambda x: [x, i64(1, 2)], lambda x: np.concatenate([x, x], 1)),
    ("Transpose", {}, lambda x: [x], lambda x: x.T),
    ("Flatten", {"axis": 0}, lambda x: [x], lambda x: x.reshape(1, -1)),
    ("Split", {"axis": 0, "num_outputs": 1}, lambda x: [x], lambda x: x),
    ("Pad", {"mode": "edge"}, lambda x: [x, i64(0, 1, 0, 0)], lambda x: np.concatenate([x[:, :1], x], 1)),
    ("Pad", {}, lambda x: [x, i64(0, 0, 1, 0)], lambda x: np.concatenate([x, np.zeros((1, 3), x.dtype)])),
    ("Compress", {"axis": 0}, lambda x: [x, np.array([False, True])], lambda x: x[1:]),
    (
        "ReverseSequence",
        {},
        lambda x: [x, i64(2, 1, 0)],
        lambda x: np.stack([[x[1, 0], x[0, 1], x[0, 2]], [x[0, 0], x[1, 1], x[1, 2]]]),
    ),
    (
        "ScatterElements",
        {},
        lambda x: [x, i64([1, 1, 0]), x[:1]],
        lambda x: np.stack([[x[0, 0], x[0, 1], x[0, 2]], [x[0, 0], x[0, 1], x[1, 2]]]),
    ),
    ("ScatterND", {}, lambda x: [x, i64([1]), x[:1]], lambda x: np.stack([x[0], x[0]])),
    ("Where", {}, lambda x: [np.array([[True], [False]]), x, x[::-1].copy()], lambda x: np.stack([x[0], x[0]])),
    ("Trilu", {}, lambda x: [x], lambda x: np.where(np.tri(2, 3, -1, bool), np.zeros((), x.dtype), x)),
    ("Resize", {}, lambda x: [x, None, np.float32([1, 2])], lambda x: np.repeat(x, 2, 1)),
    ("Identity", {}, lambda x: [x], lambda x: x),
]


def raw(a):
    """Elements as integers, so that every type can be compared; a sub-byte type's unused bits are left out."""
    a = np.ascontiguousarray(a)
    if a.dtype.kind == "c":
        return a.view(np.uint32)
    bits = {"int4": 15, "uint4": 15, "float4_e2m1fn": 15, "int2": 3, "uint2": 3}.get(a.dtype.name)
    return a.view(f"u{a.dtype.itemsize}") & bits if bits else a.view(f"u{a.dtype.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.slow(part=4)
def test_moves_of_every_type(dtype):
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    for op, attributes, inputs, expected in MOVES:
        if np.dtype(dtype).kind == "c" and (op == "Trilu" or (attributes == {} and op == "Pad")):
            continue  # there are no complex constants to fill with
        if np.dtype(dtype).name == "float8_e8m0fnu" and op in ("Pad", "Trilu"):
            continue  # has no zero
        (y,) = run(op, attributes, inputs(x))
        want = expected(x)
        assert y.dtype == want.dtype, op
        np.testing.assert_array_equal(raw(y), raw(want.astype(dtype)), err_msg=op)


E = np.zeros((0, 3), np.float32)
EMPTY = [
    ("Slice", {}, [E, i64(0), i64(2), i64(1)], (0, 2)),
    ("Slice", {}, [E, i64(5), i64(-9), i64(0), i64(-1)], (0, 3)),
    ("Concat", {"axis": 0}, [E, np.ones((2, 3), np.float32)], (2, 3)),
    ("Gather", {"axis": 1}, [E, i64(0)], (0, 1)),
    ("Gather", {"axis": 0}, [E, np.zeros(0, np.int64)], (0, 3)),
    ("GatherElements", {}, [E, np.zeros((0, 3), np.int64)], (0, 3)),
    ("GatherND", {}, [E, np.zeros((0, 1), np.int64)], (0, 3)),
    ("Pad", {}, [E, i64(1, 0, 1, 0)], (2, 3)),
    ("Tile", {}, [E, i64(2, 2)], (0, 6)),
    ("Expand", {}, [E, i64(2, 1, 1)], (2, 0, 3)),
    ("ReduceSum", {}, [E, i64(0)], (1, 3)),
    ("ReduceMax", {}, [E, i64(1)], (0, 1)),
    ("ReduceMean", {}, [E, i64(1)], (0, 1)),
    ("ReduceLogSumExp", {}, [E, i64(0)], (1, 3)),
    ("ArgMax", {"axis": 1}, [E], (0, 1)),
    ("TopK", {}, [E, i64(2)], (0, 2)),
    ("CumSum", {}, [np.zeros((0, 100), np.float32), np.array(1)], (0, 100)),
    ("CumSum", {}, [np.zeros((3, 0, 2), np.float32), np.array(1)], (3, 0, 2)),
    ("NonZero", {}, [E], (2, 0)),
    ("Compress", {"axis": 1}, [E, np.array([True, False, True])], (0, 2)),
    ("Unique", {}, [E], (0,)),
    ("ScatterElements", {}, [E, np.zeros((0, 3), np.int64), E], (0, 3)),
    ("ScatterND", {}, [E, np.zeros((0, 1), np.int64), E], (0, 3)),
    ("OneHot", {}, [np.zeros(0, np.int64), np.array(4), np.float32([0, 1])], (0, 4)),
    ("Einsum", {"equation": "ij,kj->ik"}, [E, np.ones((2, 3), np.float32)], (0, 2)),
    ("Einsum", {"equation": "ji,jk->ik"}, [E, np.zeros((0, 2), np.float32)], (3, 2)),
    ("Det", {}, [np.zeros((0, 2, 2), np.float32)], (0,)),
    ("DFT", {"axis": 1}, [np.zeros((0, 4, 1), np.float32)], (0, 4, 2)),
    ("Resize", {}, [np.zeros((0, 2), np.float32), None, None, i64(0, 4)], (0, 4)),
    ("GridSample", {}, [np.zeros((0, 1, 2, 2), np.float32), np.zeros((0, 3, 3, 2), np.float32)], (0, 1, 3, 3)),
    (
        "RoiAlign",
        {},
        [np.zeros((1, 2, 3, 3), np.float32), np.zeros((0, 4), np.float32), np.zeros(0, np.int64)],
        (0, 2, 1, 1),
    ),
    ("NonMaxSuppression", {}, [np.zeros((1, 0, 4), np.float32), np.zeros((1, 2, 0), np.float32), i64(3)], (0, 3)),
    ("Hardmax", {}, [E], (0, 3)),
    ("Range", {}, [np.array(3), np.array(3), np.array(1)], (0,)),
    ("EyeLike", {}, [E], (0, 3)),
    ("Trilu", {}, [E], (0, 3)),
    ("DepthToSpace", {"blocksize": 2}, [np.zeros((0, 4, 2, 2), np.float32)], (0, 1, 4, 4)),
    ("Multinomial", {"sample_size": 0}, [np.zeros((2, 3), np.float32)], (2, 0)),
    ("RandomNormalLike", {}, [E], (0, 3)),
    (
        "TfIdfVectorizer",
        {
            "mode": "TF",
            "ngram_counts": [0],
            "ngram_indexes": [0],
            "pool_int64s": [3],
            "max_skip_count": 0,
            "min_gram_length": 1,
            "max_gram_length": 1,
        },
        [np.zeros((2, 0), np.int64)],
        (2, 1),
    ),
]


@pytest.mark.parametrize("op, attributes, inputs, shape", EMPTY, ids=lambda v: v if isinstance(v, str) else "")
def test_tensors_without_elements(op, attributes, inputs, shape):
    outputs = 2 if op == "TopK" else 1
    for symbolic in (False, True):
        if symbolic and op in ("DFT", "GatherND", "ScatterND", "Einsum"):
            continue  # their last dims must be known, or are given to others
        y = run(op, attributes, inputs, 22, outputs, symbolic=symbolic)[0]
        assert y.shape == shape
    if op == "ReduceSum" or (op == "Einsum" and y.size):
        assert (y == 0).all()
    if op == "ReduceLogSumExp":
        assert (y == -np.inf).all()


X = np.ones((2, 3), np.float32)
SENSELESS = [
    ("Slice", {}, [X, i64(0), i64(1), i64(2)], "axis"),
    ("Slice", {}, [X, i64(0, 0), i64(1, 1), i64(0, -2)], "twice"),
    ("Concat", {"axis": 2}, [X, X], "axis"),
    ("Split", {"axis": 0, "num_outputs": 2}, [X], "num_outputs"),
    ("Pad", {"mode": "circus"}, [X, i64(0, 0, 0, 0)], "mode"),
    ("Pad", {}, [X, i64(0, 0, 0)], "pads"),
    ("Pad", {}, [X, i64(-3, 0, 0, 0)], "make a dim of 2 negative"),
    ("Gather", {"axis": -3}, [X, i64(0)], "axis"),
    ("Gather", {}, [X, np.float32([0])], "indices"),
    ("GatherElements", {}, [X, i64(0)], "rank"),
    ("GatherND", {"batch_dims": 2}, [X, i64([0])], "batch_dims"),
    ("Squeeze", {}, [X, i64(0)], "is not 1"),
    ("Unsqueeze", {}, [X, i64(0, 0)], "twice"),
    ("Tile", {}, [X, i64(1)], "repeats"),
    ("Expand", {}, [X, i64(4, 3)], "can't be"),
    ("DepthToSpace", {"blocksize": 0}, [np.ones((1, 4, 2, 2), np.float32)], "blocksize"),
    ("TopK", {}, [X, i64(4)], "k is"),
    ("TopK", {"axis": 3}, [X, i64(1)], "axis"),
    ("CumSum", {}, [X, np.array(2)], "axis"),
    ("ReduceSum", {}, [X, i64(5)], "axis"),
    ("Einsum", {"equation": "ij,jk->il"}, [X, X.T.copy()], "label"),
    ("Einsum", {"equation": "ijk->i"}, [X], "rank"),
    ("Einsum", {"equation": "......i->i"}, [X], "more than one '...'"),
    ("Einsum", {"equation": "i%->i"}, [X], "%"),
    ("Einsum", {"equation": "ij,jk->ik"}, [X, X], "sizes"),
    ("Resize", {"mode": "wobbly"}, [X, None, np.float32([1, 2])], "mode"),
    ("Resize", {}, [X, None, np.float32([1, 2]), i64(2, 6)], "either"),
    ("Resize", {}, [X, None, np.float32([1])], "scales"),
    ("OneHot", {"axis": 3}, [i64(0), np.array(3), np.float32([0, 1])], "axis"),
    ("OneHot", {}, [i64(0), np.array(3), np.float32([0, 1, 2])], "off, on"),
    ("Det", {}, [X], "square"),
    ("DFT", {}, [X], "1 stands for"),
    ("BitCast", {"to": 11}, [X], "widths"),
    ("Cast", {"to": 8}, [X], "string"),
    ("Range", {}, [np.array(0), np.array(3), np.array(0)], "delta"),
    ("Compress", {"axis": 0}, [X, np.array([True, False, True])], "condition"),
    ("ScatterElements", {}, [X, np.zeros((2, 3), np.int64), X[:1]], "shape"),
    ("ScatterElements", {"reduction": "sum"}, [X, np.zeros((2, 3), np.int64), X], "reduction"),
    ("ScatterND", {}, [X, i64([0]), X], "updates"),
    ("Unique", {"axis": 4}, [X], "axis"),
    ("Trilu", {}, [X[0]], "rank"),
    ("GridSample", {}, [np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 1, 3), np.float32)], "last dim"),
    ("RoiAlign", {}, [np.ones((1, 1, 4, 4), np.float32), np.float32([[0, 0, 1e9, 1e9]]), i64(0)], "samples"),
]


@pytest.mark.parametrize("op, attributes, inputs, message", SENSELESS, ids=lambda v: v if isinstance(v, str) else "")
def test_senseless_nodes_are_refused(op, attributes, inputs, message):
    opset = 26 if op == "BitCast" else 22
    outputs = 2 if op == "TopK" else 1
    assert message in refused(op, attributes, inputs, opset, outputs)
    constants = tuple(k for k, a in enumerate(inputs) if k and a is not None)
    assert message in refused(op, attributes, inputs, opset, outputs, constants=constants)


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grids_that_are_not_a_number_are_the_first_sample(mode, padding, device):
    """NaN counts as -1, as in onnxruntime, whose results these are."""
    random = np.random.default_rng(0)
    x = random.standard_normal((1, 2, 5, 6)).astype(np.float32)
    grid = random.uniform(-1.3, 1.3, (1, 4, 4, 2)).astype(np.float32)
    grid[0, 0, 0, 0] = grid[0, 1, 1, 1] = grid[0, 2, 2] = np.nan
    node = onnx.helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding)
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in (("x", x), ("grid", grid))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    want = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x, "grid": grid}
    )[0]
    got = sardonyx.compile(model, device=device).run({"x": x, "grid": grid})["y"]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)  # a few roundings of weights of at most 1
