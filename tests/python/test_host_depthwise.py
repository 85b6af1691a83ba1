"""Depthwise convolutions of the host that oneDNN has no kernel for: of volumes, and with more padding than a tile of pixels."""

import itertools

import numpy as np
import onnx.helper as oh
import pytest
import sardonyx
from onnx import TensorProto, numpy_helper


def depthwise(x, w, bias, strides, dilations, pads):
    """By definition, in float64."""
    dims = len(strides)
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:dims], pads[dims:], strict=True)])
    out = [
        (x.shape[2 + k] - dilations[k] * (w.shape[2 + k] - 1) - 1) // strides[k] + 1 for k in range(dims)
    ]  # of each axis
    y = np.zeros((*x.shape[:2], *out)) + bias.reshape(-1, *[1] * dims)
    for tap in itertools.product(*map(range, w.shape[2:])):
        part = tuple(
            slice(t * dilations[k], t * dilations[k] + strides[k] * (out[k] - 1) + 1, strides[k])
            for k, t in enumerate(tap)
        )
        y += x[(..., *part)] * w[(slice(None), 0, *tap)].reshape(-1, *[1] * dims)
    return y


CASES = {
    "3x3x3": ((5, 9, 22), (3, 3, 3), {"pads": [1] * 6}),
    "3x3x3_stride_2": ((6, 9, 31), (3, 3, 3), {"pads": [1] * 6, "strides": [1, 2, 2]}),
    "3x3x3_stride_2_deep": ((7, 8, 16), (3, 3, 3), {"pads": [1, 1, 0, 0, 1, 2], "strides": [2, 2, 3]}),
    "over_time": ((13, 4, 5), (5, 1, 1), {"pads": [2, 0, 0, 2, 0, 0]}),
    "over_one_frame": ((3, 14, 14), (1, 3, 3), {"pads": [0, 1, 1, 0, 1, 1]}),
    "without_padding": ((4, 6, 19), (2, 3, 4), {}),
    "dilated": ((7, 9, 20), (3, 3, 3), {"pads": [2] * 6, "dilations": [2, 2, 2]}),
    "narrower_than_its_kernel": ((3, 3, 2), (3, 3, 5), {"pads": [1, 1, 2, 1, 1, 2]}),
    "image_with_much_padding": ((11, 60), (3, 3), {"pads": [16] * 4, "dilations": [16, 16]}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("channels", [3, 16, 54, 70])
@pytest.mark.parametrize("threads", [1, 2])
def test_values(case, channels, threads):
    """With SiLU and a residual as epilogue, between convolutions whose images have their channels last."""
    size, kernel, settings = CASES[case]
    dims = len(size)
    rng = np.random.default_rng(channels)
    w, bias = rng.standard_normal((channels, 1, *kernel)).astype(np.float32), rng.standard_normal(channels)
    mix = (rng.standard_normal((channels, channels)) / channels**0.5).astype(np.float32)
    settings = {"strides": [1] * dims, "dilations": [1] * dims, "pads": [0] * 2 * dims} | settings
    nodes = [
        oh.make_node("Conv", ["x", "mix"], ["a"]),
        oh.make_node("Conv", ["a", "w", "bias"], ["b"], group=channels, **settings),
        oh.make_node("Sigmoid", ["b"], ["s"]),
        oh.make_node("Mul", ["b", "s"], ["c"]),
        oh.make_node("Conv", ["c", "mix"], ["d"]),
        oh.make_node("Add", ["c", "d"], ["y"]),
    ]
    bias = bias.astype(np.float32)
    stored = {"w": w, "bias": bias, "mix": mix.reshape(*mix.shape, *[1] * dims)}
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, *size])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, name) for name, a in stored.items()],
    )
    model = sardonyx.compile(
        oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8), threads=threads
    )
    for n in (1, 2):
        x = rng.standard_normal((n, channels, *size)).astype(np.float32)
        mixed = np.einsum("nc...,oc->no...", x.astype(np.float64), mix)
        b = depthwise(mixed, w, bias, *(settings[k] for k in ("strides", "dilations", "pads")))
        c = b / (1 + np.exp(-b))
        want = c + np.einsum("nc...,oc->no...", c, mix)
        # Three sums of up to 70 products of numbers around 1, in float32.
        np.testing.assert_allclose(model(x=x)["y"], want, rtol=1e-5, atol=2e-4)
