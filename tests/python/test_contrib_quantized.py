"""com.microsoft quantised operators against ONNX Runtime's CPU execution provider.

Results may differ by one step where a value lies on the border of two: ONNX Runtime fuses scales in another order. Sums of 8-bit products are
compared with exact integer sums instead: without VNNI, ONNX Runtime's own saturate at 16 bits.
"""

import numpy as np
import pytest
from contrib_models import RNG, check, f, quant, rand

# ---- quantised

SCALES = [f(0.03), f(0.05), f(0.07)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_qlinear_element_wise(dtype):
    za, zb, zc = (np.array(v, dtype) for v in (3, 5, 7))
    a, b = quant(2, 3, 9, dtype=dtype), quant(3, 9, seed=1, dtype=dtype)
    check("QLinearAdd", [a, SCALES[0], za, b, SCALES[1], zb, SCALES[2], zc], step=1)
    check("QLinearMul", [a, SCALES[0], za, b, SCALES[1], zb, f(0.4), zc], step=1)
    # ONNX Runtime tabulates these, with constant scales
    check("QLinearSigmoid", [a, SCALES[0], za, f(1 / 256), zc], constant=(1, 2, 3, 4), step=1)
    check("QLinearLeakyRelu", [a, SCALES[0], za, SCALES[1], zc], {"alpha": 0.1}, constant=(1, 2, 3, 4), step=1)
    check(
        "QLinearSoftmax",
        [a, SCALES[0], za, f(1 / 256), np.array(0, dtype)],
        {"axis": -1, "opset": 13},
        constant=(1, 2, 3, 4),
        step=1,
        symbolic=(False,),
    )
    check(
        "QLinearConcat",
        [SCALES[2], zc, a, SCALES[0], za, quant(2, 5, 9, seed=4, dtype=dtype), SCALES[1], zb],
        {"axis": 1},
        constant=(0, 1, 3, 4, 6, 7),
        step=1,
        symbolic=(False,),
    )
    check(
        "QLinearWhere",
        [RNG(0).random((3, 9)) < 0.5, a, SCALES[0], za, b, SCALES[1], zb, SCALES[2], zc],
        constant=(2, 3, 5, 6, 7, 8),
        step=1,
        symbolic=(False,),
    )


@pytest.mark.parametrize("channels_last", [0, 1])
def test_qlinear_pool(channels_last):
    x = quant(1, 4, 6, 5)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if channels_last else x
    tail = [SCALES[0], np.uint8(3), SCALES[1], np.uint8(7)]
    check("QLinearGlobalAveragePool", [x, *tail], {"channels_last": channels_last}, step=1, symbolic=(False,))
    for extra in (
        {},
        {"pads": [1, 1, 1, 1]},
        {"pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"ceil_mode": 1, "strides": [2, 2]},
    ):
        check(
            "QLinearAveragePool",
            [x, *tail],
            {"channels_last": channels_last, "kernel_shape": [3, 2], **extra},
            step=1,
            symbolic=(False,),
        )


def requantized(x, zero, dtype=np.uint8):
    """Quotients by an output's scale, rounded to even, as `dtype`."""
    info = np.iinfo(dtype)
    return np.clip(np.rint(x) + zero, info.min, info.max).astype(dtype)


def exact_conv(x, w, group, pad):
    """Sums of int64 products: x [N, C, H, W], w [M, C / group, R, S], as many zeros as `pad` around each image."""
    x, w = np.pad(x.astype(np.int64), [(0, 0), (0, 0), (pad, pad), (pad, pad)]), w.astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    parts = zip(np.split(windows, group, axis=1), np.split(w, group, axis=0))
    return np.concatenate([np.einsum("nchwrs,mcrs->nmhw", a, b) for a, b in parts], axis=1)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_qlinear_conv(channels_last):
    x, w = quant(1, 4, 6, 5), quant(6, 2, 3, 3, seed=1, dtype=np.int8)
    scale, bias = np.abs(rand(6, scale=0.01)) + f(0.002), RNG(2).integers(-500, 500, 6, dtype=np.int32)
    sums = exact_conv(x.astype(np.int64) - 3, w, group=2, pad=1) + bias[:, None, None]
    expected = requantized(sums * (float(SCALES[0]) * scale.astype(np.float64) / 0.5)[:, None, None], 100)
    if channels_last:
        x, expected = (np.ascontiguousarray(t.transpose(0, 2, 3, 1)) for t in (x, expected))
    inputs = [
        x,
        SCALES[0],
        np.uint8(3),
        w,
        scale,
        np.zeros(6, np.int8),
        f(0.5),
        np.uint8(100),
        bias,
    ]
    check(
        "QLinearConv",
        inputs,
        {"channels_last": channels_last, "group": 2, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]},
        constant=(1, 2, 3, 4, 5, 6, 7, 8),
        step=1,
        symbolic=(False,),
        expected=[expected],
    )


@pytest.mark.parametrize("trans_a, trans_b", [(0, 0), (1, 1)])
def test_qgemm(trans_a, trans_b):
    a, b = quant(3, 8), quant(8, 5, seed=1, dtype=np.int8)
    scale, bias = np.abs(rand(5, scale=0.01)) + f(0.002), RNG(2).integers(-500, 500, 5, dtype=np.int32)
    sums = (a.astype(np.int64) - 4) @ b.astype(np.int64) + bias
    real = sums * (1.5 * float(SCALES[0]) * scale.astype(np.float64))
    a, b = a.T.copy() if trans_a else a, b.T.copy() if trans_b else b
    base = [a, SCALES[0], np.uint8(4), b, scale, np.zeros(5, np.int8), bias]
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": 1.5}
    quantized = [requantized(real / float(f(0.2)), 9)]
    settings = {"constant": (3, 4, 5), "symbolic": (False,)}
    check("QGemm", [*base, f(0.2), np.uint8(9)], attrs, step=1, expected=quantized, **settings)
    check("QGemm", base, attrs, rtol=1e-4, atol=1e-3, expected=[real.astype(np.float32)], **settings)


def dynamically_quantized(x):
    """uint8 elements, scale and zero point of a float32 tensor as ONNX's DynamicQuantizeLinear defines them."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = f((high - low) / 255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64), scale, int(zero)


def test_integer_gemm():
    a, b = quant(2, 3, 8), quant(8, 5, seed=1, dtype=np.int8)
    sb, zb, bias = np.abs(rand(5, scale=0.01)) + f(0.002), quant(5, seed=3, dtype=np.int8), rand(5, seed=4)

    def real(a, zero, scale):
        sums = (a.astype(np.int64) - zero) @ (b.astype(np.int64) - zb)
        return (sums * (float(scale) * sb.astype(np.float64)) + bias).astype(np.float32)

    check(
        "MatMulIntegerToFloat",
        [a, b, SCALES[0], sb, np.uint8(7), zb, bias],
        constant=(1, 3, 5, 6),
        rtol=1e-4,
        atol=1e-4,
        expected=[real(a, 7, SCALES[0])],
    )
    x = rand(2, 3, 8)
    q, scale, zero = dynamically_quantized(x)
    # the input's quantisation may fall on another side of a border: one step of one of 8 products
    check(
        "DynamicQuantizeMatMul",
        [x, b, sb, zb, bias],
        constant=(1, 2, 3, 4),
        rtol=1e-3,
        atol=0.02,
        expected=[real(q, zero, scale)],
    )
