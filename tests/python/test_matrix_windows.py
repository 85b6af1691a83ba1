"""Depthwise convolutions by CDNA's matrix instructions (kernels/window_mfma.h) on simulated GPUs: compared with NumPy, and what their machine
code is made of."""

import re

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper
from test_amd_main_loops import instructions

TYPES = {
    "float16": (np.float16, TensorProto.FLOAT16, 1e-3),
    "bfloat16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16, 8e-3),
}
CHIPS = ["gfx90a", "gfx942", "gfx950"]
#: image (N, C, then its dims), window, strides, dilations, pads (before all dims, then after)
CASES = {
    "7x7 of a multiple of 4": ([2, 40, 20, 28], [7, 7], [1, 1], [1, 1], [3, 3, 3, 3]),
    "7x7 of 14": ([1, 24, 14, 14], [7, 7], [1, 1], [1, 1], [3, 3, 3, 3]),
    "7x7 of 7": ([3, 8, 7, 7], [7, 7], [1, 1], [1, 1], [3, 3, 3, 3]),
    "5x5 of 4": ([1, 16, 4, 4], [5, 5], [1, 1], [1, 1], [2, 2, 2, 2]),
    "5x5 of 5": ([1, 16, 3, 5], [5, 5], [1, 1], [1, 1], [2, 2, 2, 2]),
    "5x5 by steps of 2": ([2, 24, 13, 21], [5, 5], [2, 2], [1, 1], [2, 2, 2, 2]),
    "7x7 by steps of 2": ([1, 32, 16, 24], [7, 7], [2, 2], [1, 1], [3, 3, 3, 3]),
    "4x6, uneven pads, steps of 3 and 1": ([1, 40, 17, 18], [4, 6], [3, 1], [1, 1], [1, 4, 2, 1]),
    "5x5, rows 2 apart": ([1, 16, 12, 16], [5, 5], [1, 1], [2, 1], [4, 2, 4, 2]),
    "5x5, columns 2 apart": ([1, 16, 12, 16], [5, 5], [1, 1], [1, 2], [2, 4, 2, 4]),
    "20 along time": ([1, 32, 50], [20], [1], [1], [10, 9]),
    "33 along time": ([2, 24, 200], [33], [1], [1], [16, 16]),
    "48 along time, odd": ([1, 40, 131], [48], [1], [1], [20, 27]),
    "87 along time": ([1, 16, 90], [87], [1], [1], [43, 43]),
    "63 by steps of 2": ([2, 16, 150], [63], [2], [1], [31, 31]),
}


def model_of(case, last, kind):
    """relu(convolution + bias) + residual."""
    image, window, strides, dilations, pads = CASES[case]
    np_type, onnx_type, _ = TYPES[kind]
    rng = np.random.default_rng(7)
    to_last, to_first = [0, *range(2, len(image)), 1], [0, len(image) - 1, *range(1, len(image) - 1)]
    w = (rng.standard_normal([image[1], 1, *window]) / np.sqrt(np.prod(window))).astype(np_type)
    b = rng.standard_normal(image[1]).astype(np_type)
    out = [
        (d + before + after - step * (k - 1) - 1) // stride + 1
        for d, before, after, k, stride, step in zip(
            image[2:], pads[: len(window)], pads[len(window) :], window, strides, dilations, strict=True
        )
    ]
    attributes = {"group": image[1], "strides": strides, "dilations": dilations, "pads": pads}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=to_first) if last else helper.make_node("Identity", ["x"], ["t"]),
        helper.make_node("Conv", ["t", "w", "b"], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Transpose", ["r"], ["s"], perm=to_last) if last else helper.make_node("Identity", ["r"], ["s"]),
        helper.make_node("Add", ["s", "e"], ["y"]),
    ]  # fmt: skip
    shapes = {"x": image, "e": [*image[:2], *out]}
    feed = {n: rng.standard_normal(s).astype(np_type) for n, s in shapes.items()}
    want = np.maximum(convolution(feed["x"], w, b, strides, dilations, pads), 0) + feed["e"].astype(np.float64)
    if last:
        feed, want = {n: x.transpose(to_last).copy() for n, x in feed.items()}, want.transpose(to_last)
    infos = [helper.make_tensor_value_info(n, onnx_type, x.shape) for n, x in feed.items()]
    weights = [helper.make_tensor(n, onnx_type, x.shape, x.tobytes(), raw=True) for n, x in (("w", w), ("b", b))]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", onnx_type, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), feed, want


def convolution(x, w, b, strides, dilations, pads):
    """In float64."""
    rank = len(strides)
    padded = np.pad(x.astype(np.float64), [(0, 0)] * 2 + list(zip(pads[:rank], pads[rank:], strict=True)))
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(2, 2 + rank)))
    views = views[(..., *(slice(None, None, s) for s in strides), *(slice(None),) * rank)]
    views = views[(..., *(slice(None, None, d) for d in dilations))]
    taps = w.astype(np.float64).reshape(1, -1, *(1,) * rank, *w.shape[2:])
    return (views * taps).sum(tuple(range(2 + rank, 2 + 2 * rank))) + b.astype(np.float64).reshape(-1, *(1,) * rank)


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("case", CASES)
def test_values(case, last):
    """Each case on one chip and in one type: float32 sums of exact products, rounded once after the bias and once after the residual."""
    number = list(CASES).index(case)
    kind = list(TYPES)[(number + last) % 2]
    model, feed, want = model_of(case, last, kind)
    got = sardonyx.compile(model, device=f"sim:{CHIPS[number % 3]}").run(feed)["y"].astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=2 * TYPES[kind][2], atol=2 * TYPES[kind][2])


def test_rounding_of_values_at_the_border():
    """What is around an image, in memory, is not multiplied: neither other rows nor other channels."""
    image = np.full([1, 48, 9, 18], np.float16(np.nan))
    image[0, 16:32] = 1
    weights = helper.make_tensor("w", TensorProto.FLOAT16, [48, 1, 7, 7], np.ones([48, 1, 7, 7], np.float16).tobytes(), raw=True)  # fmt: skip
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=48, pads=[3] * 4)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, image.shape) for n in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    y = sardonyx.compile(model, device="sim:gfx942").run({"x": image})["y"]
    rows, columns = (np.convolve(np.ones(n), np.ones(7), "same") for n in image.shape[2:])
    np.testing.assert_array_equal(y[0, 16:32], np.broadcast_to(np.outer(rows, columns), [16, 9, 18]))
    assert np.isnan(y[0, :16]).all() and np.isnan(y[0, 32:]).all()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", ["7x7 of a multiple of 4", "7x7 of 14", "33 along time"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_instructions(case, last, chip, tmp_path):
    """All products are matrix instructions; an image's elements are loaded in packs, and without branches."""
    model, _, _ = model_of(case, last, "float16")
    onnx.save(model, tmp_path / "window.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "window.onnx", chip, tmp_path)]
    products = [text for text in code if text.startswith("v_mfma_f32_4x4x4")]
    assert len(products) >= 9
    assert not [text for text in code if re.match("v_(pk_)?fma(_mix|c)?_f32", text)]
    at = [k for k, text in enumerate(code) if text.startswith("buffer_load_dwordx")]
    if at:
        assert not [text for text in code[at[0] : at[-1]] if "branch" in text]
