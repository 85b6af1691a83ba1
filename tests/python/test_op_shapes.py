"""Operators that move elements: slices, pads, gathers and similar ones, against a reference, with fixed and symbolic dims."""

import numpy as np
import pytest
from operators import check, refused

RNG = np.random.default_rng(1)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values):
    return np.array(values, dtype=np.int64)


X = f32(4, 5, 6)
MAX = np.iinfo(np.int64).max
MIN = np.iinfo(np.int64).min
SLICES = [
    ([1], [3], [0], None),
    ([0, 1, 2], [9, -1, MAX], [0, 1, 2], None),
    ([-3], [MAX], [1], None),
    ([-30], [30], [1], None),
    ([3], [2], [1], None),
    ([7], [9], [1], None),
    ([-1], [MIN], [2], [-1]),
    ([MAX], [-7], [2], [-2]),
    ([4, -1], [0, -4], [1, 0], [-3, -1]),
    ([0], [2147483647], [2], [4]),
    ([-2147483648], [4], [-1], [3]),
    ([20], [-20], [1], [-1]),
]


@pytest.mark.parametrize("starts, ends, axes, steps", SLICES)
def test_slice(starts, ends, axes, steps):
    given = [X, i64(*starts), i64(*ends), i64(*axes)] + ([i64(*steps)] if steps else [])
    # Axes are known in all variants: they decide which dims change.
    for opset in (10, 13):
        check(
            "Slice",
            {},
            given,
            opset,
            constants=(1, 2, 3, 4),
            variants=((False, (3,)), (True, (1, 2, 3, 4)), (True, (3,)), (True, ())),
        )
    if steps is None:
        check("Slice", {"starts": starts, "ends": ends, "axes": axes}, [X], 9)


def test_slice_int32_indices_and_no_axes():
    check("Slice", {}, [X, np.array([1, 0], np.int32), np.array([3, 2], np.int32)], 13, constants=(1, 2))


def test_slice_refuses_a_step_of_zero():
    assert "step" in refused("Slice", {}, [X, i64(0), i64(2), i64(0), i64(0)], 13)


@pytest.mark.parametrize("opset", [7, 11])
def test_split_by_attribute(opset):
    check("Split", {"axis": 1, "split": [1, 2, 2]}, [X], opset, outputs=3)
    check("Split", {"axis": -1}, [X], opset, outputs=3)


def test_split_by_input():
    check("Split", {"axis": 1}, [X, i64(1, 0, 4)], 13, outputs=3, constants=(1,))
    check(
        "Split", {"axis": 2, "num_outputs": 4}, [X[:, :, :5]], 18, outputs=4, evaluator="onnx", variants=((False, ()),)
    )
    check("Split", {"axis": 0, "num_outputs": 2}, [X], 18, outputs=2)


def test_split_refuses_sizes_that_do_not_add_up():
    assert "add up" in refused("Split", {"axis": 1}, [X, i64(1, 1, 4)], 13, outputs=3)


@pytest.mark.parametrize("opset", [7, 13])
def test_concat(opset):
    check("Concat", {"axis": 1}, [X, X[:, :2], X[:, :0], X[:, 3:]], opset)
    check("Concat", {"axis": -1}, [np.arange(4), np.arange(3)], opset)


def test_concat_refuses_unequal_dims():
    assert "dim" in refused("Concat", {"axis": 1}, [X, X[:3]], 13, symbolic=True)


PADS = [
    ("constant", [0, 1, 0, 2, 0, 3]),
    ("constant", [-1, 1, 0, 2, -2, 0]),
    ("edge", [1, 2, 0, 0, 3, 4]),
    ("reflect", [3, 0, 2, 1, 4, 3]),
]


@pytest.mark.parametrize("mode, pads", PADS)
def test_pad(mode, pads):
    check("Pad", {"mode": mode, "pads": pads, "value": 1.5}, [X], 10)
    check("Pad", {"mode": mode}, [X, i64(*pads), np.float32(2.5)], 13, constants=(1,))
    check("Pad", {"mode": mode}, [X, i64(*pads[1:3], *pads[4:]), None, i64(1, -1)], 18, constants=(1, 3))


def test_pad_wraps():
    check("Pad", {"mode": "wrap"}, [X, i64(5, 0, 1, 2, 7, 0)], 19, constants=(1,))


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_pad_crops_first(mode):
    # onnxruntime's order: what a negative pad cuts off is not mirrored back.
    x = np.arange(6, dtype=np.float32)
    want = np.pad(x[2:], (0, 2), mode)
    import sardonyx
    from operators import model_of

    for symbolic in (False, True):
        got = sardonyx.compile(model_of("Pad", {"mode": mode}, [x, i64(-2, 2)], 13, symbolic=symbolic)).run(
            {"x0": x, "x1": i64(-2, 2)}
        )["y0"]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_gather(dtype):
    indices = np.array([[0, -1], [3, 1]], dtype)
    for axis in (0, 1, -1):
        check("Gather", {"axis": axis}, [X, indices], 13)
    check("Gather", {"axis": 1}, [X, np.array(2, dtype)], 7)


def test_gather_elements_and_nd():
    check("GatherElements", {"axis": 1}, [X, RNG.integers(-5, 5, (4, 3, 6))], 13)
    check("GatherElements", {"axis": 0}, [X, RNG.integers(0, 4, (2, 5, 3))], 11)
    check(
        "GatherND", {}, [X, RNG.integers(-4, 4, (2, 3, 2))], 12, variants=((False, ()), (False, (1,))), constants=(1,)
    )
    check("GatherND", {"batch_dims": 1}, [X, RNG.integers(0, 5, (4, 2, 1))], 12, variants=((False, ()),))


def test_gather_reads_nothing_outside():
    x = np.arange(4, dtype=np.float32)
    import sardonyx
    from operators import model_of

    got = sardonyx.compile(model_of("Gather", {}, [x, i64(9, -9)], 13)).run({"x0": x, "x1": i64(9, -9)})["y0"]
    np.testing.assert_array_equal(got, [3, 0])


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_squeeze_and_unsqueeze(opset):
    y = X[:, None, :, :, None]
    for axes in ([1], [1, -1]):
        if opset < 13:
            if opset < 11:
                axes = [a % 5 for a in axes]
            check("Squeeze", {"axes": axes}, [y], opset)
            check("Unsqueeze", {"axes": [a % 4 for a in axes] if opset < 11 else axes}, [X], opset)
        else:
            check("Squeeze", {}, [y, i64(*axes)], opset, constants=(1,))
            check("Unsqueeze", {}, [X, i64(*axes)], opset, constants=(1,))
    check("Squeeze", {}, [y], opset, variants=((False, ()),))


def test_flatten_expand_tile():
    for axis in (0, 1, 3, -1):
        check("Flatten", {"axis": axis}, [X], 13)
    check("Expand", {}, [X[:, :1], i64(2, 1, 5, 1)], 13, constants=(1,))
    check("Expand", {}, [f32(1), i64(3, 4)], 8, constants=(1,))
    check("Expand", {}, [X, i64(1)], 13, constants=(1,))
    check("Tile", {}, [X, i64(2, 1, 3)], 13, constants=(1,))
    check("Tile", {}, [X, i64(1, 0, 1)], 7, constants=(1,))


def test_depth_and_space():
    x = f32(2, 12, 4, 6)
    for mode in ("DCR", "CRD"):
        check("DepthToSpace", {"blocksize": 2, "mode": mode}, [x], 13)
    check("DepthToSpace", {"blocksize": 2}, [x], 7)
    check("SpaceToDepth", {"blocksize": 2}, [x], 13)
    assert "multiple" in refused("SpaceToDepth", {"blocksize": 4}, [x], 13, symbolic=True)


def test_center_crop_pad():
    check("CenterCropPad", {}, [X, i64(7, 2, 6)], 18, constants=(1,), evaluator="onnx")
    check("CenterCropPad", {"axes": [-1, 0]}, [X, i64(3, 9)], 18, constants=(1,), evaluator="onnx")


def test_one_hot_and_triangles():
    values = np.array([2, 5], np.float32)
    for axis in (-1, 0, 1):
        check("OneHot", {"axis": axis}, [RNG.integers(-7, 7, (3, 4)), i64(5), values], 11, constants=(1,))
    check("OneHot", {}, [np.float32([1, 2]), np.float32(3), np.float32([0, 1])], 11, constants=(1,))
    for upper in (0, 1):
        for k in (-9, -1, 0, 2, 9):
            check("Trilu", {"upper": upper}, [X, np.array(k)], 14, constants=(1,))
    check("EyeLike", {"k": -1, "dtype": 11}, [X[0]], 9)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
def test_range(dtype):
    for start, limit, delta in ((0, 10, 3), (5, -5, -2), (3, 3, 1), (4, 1, 1), (1, 2, 5)):
        check("Range", {}, [np.array(v, dtype) for v in (start, limit, delta)], 11, constants=(0, 1, 2))


def test_constant_of_shape():
    import onnx

    value = onnx.helper.make_tensor("v", onnx.TensorProto.INT32, [1], [7])
    check("ConstantOfShape", {"value": value}, [i64(2, 3)], 9, constants=(0,))
    check("ConstantOfShape", {}, [i64(2, 0)], 9, constants=(0,))
    check("ConstantOfShape", {}, [np.zeros(0, np.int64)], 9, constants=(0,), variants=((False, ()), (False, (0,))))


def test_reverse_sequence():
    check("ReverseSequence", {}, [X, i64(4, 1, 0, 3, 2)], 10)
    check("ReverseSequence", {"batch_axis": 0, "time_axis": 1}, [X, i64(4, 1, 0, 5)], 10)
