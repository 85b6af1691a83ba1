"""com.microsoft operators against ONNX Runtime's CPU execution provider, with fixed shapes and with every dim symbolic.

Results of quantised operators may differ by one step where a value lies on the border of two: ONNX Runtime fuses scales in another order.
Sums of 8-bit products are compared with exact integer sums instead: without VNNI, ONNX Runtime's own saturate at 16 bits.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper

onnxruntime = pytest.importorskip("onnxruntime")

MS = "com.microsoft"
RNG = np.random.default_rng


def rand(*shape, seed=0, scale=1.0, dtype=np.float32):
    return (RNG(seed + 7 * sum(shape)).standard_normal(shape) * scale).astype(dtype)


def quant(*shape, seed=0, dtype=np.uint8):
    info = np.iinfo(dtype)
    return RNG(seed + sum(shape)).integers(info.min, info.max + 1, shape, dtype=dtype)


def f(x):
    return np.float32(x)


def model_of(op, inputs, attrs, outputs, constant, symbolic, domain=MS, opset=17):
    names, graph_inputs, initializers = [], [], []
    for k, x in enumerate(inputs):
        names.append("" if x is None else f"i{k}")
        if x is None:
            continue
        if k in constant:
            initializers.append(onnx.numpy_helper.from_array(np.asarray(x), f"i{k}"))
            continue
        x = np.asarray(x)
        shape = [f"i{k}_{d}" for d in range(x.ndim)] if symbolic else x.shape
        graph_inputs.append(helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(x.dtype), shape))
    results = [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    graph = helper.make_graph(
        [node], op, graph_inputs, [onnx.ValueInfoProto(name=n) for n in results if n], initializers
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feed_of(inputs, constant):
    return {f"i{k}": np.asarray(x) for k, x in enumerate(inputs) if x is not None and k not in constant}


def run_ours(op, inputs, attrs=None, outputs=(0,), constant=(), symbolic=False, domain=MS):
    model = model_of(op, inputs, attrs or {}, outputs, constant, symbolic, domain)
    return list(sardonyx.compile(model).run(feed_of(inputs, constant)).values())


def run_both(op, inputs, attrs=None, outputs=(0,), constant=(), symbolic=False, domain=MS):
    model = model_of(op, inputs, attrs or {}, outputs, constant, symbolic, domain)
    feed = feed_of(inputs, constant)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feed
    )
    got = list(sardonyx.compile(model).run(feed).values())
    return got, expected


def check(
    op,
    inputs,
    attrs=None,
    outputs=(0,),
    constant=(),
    rtol=1e-5,
    atol=1e-5,
    step=0,
    symbolic=(False, True),
    domain=MS,
    parts=None,
    expected=None,
):
    """Compares with `expected`, a list of outputs, or with ONNX Runtime's results if there is none."""
    for sym in symbolic:
        if expected is None:
            got, want = run_both(op, inputs, attrs, outputs, constant, sym, domain)
        else:
            got, want = run_ours(op, inputs, attrs, outputs, constant, sym, domain), expected
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            assert a.shape == b.shape and a.dtype == b.dtype
            if parts and k in parts:
                a, b = parts[k](a), parts[k](b)
            if step:
                assert np.abs(a.astype(np.int64) - b.astype(np.int64)).max() <= step
            else:
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol)


# ---- activations and normalisation


@pytest.mark.parametrize(
    "op, inputs, attrs",
    [
        ("BiasGelu", [rand(2, 3, 8), rand(8, seed=1)], {}),
        ("Gelu", [rand(2, 5)], {}),
        ("FastGelu", [rand(2, 3, 8), rand(8, seed=1)], {}),
        ("FastGelu", [rand(2, 3, 8)], {}),
        ("QuickGelu", [rand(3, 4)], {"alpha": 1.3}),
        (
            "SkipLayerNormalization",
            [rand(2, 3, 8), rand(2, 3, 8, seed=1), rand(8), rand(8, seed=2), rand(8, seed=3)],
            {"epsilon": 1e-5},
        ),
        ("SkipLayerNormalization", [rand(2, 3, 8), rand(3, 8, seed=1), rand(8)], {}),
        (
            "SkipSimplifiedLayerNormalization",
            [rand(2, 3, 8), rand(2, 3, 8, seed=1), rand(8), rand(8, seed=3)],
            {"epsilon": 1e-5},
        ),
    ],
)
def test_element_and_norm(op, inputs, attrs):
    check(op, inputs, attrs)


def test_skip_layer_norm_gives_the_sum():
    check(
        "SkipLayerNormalization",
        [rand(2, 3, 8), rand(2, 3, 8, seed=1), rand(8), rand(8, seed=2)],
        {"epsilon": 1e-5},
        outputs=(0, 3),
    )
    check(
        "SkipSimplifiedLayerNormalization",
        [rand(2, 3, 8), rand(2, 3, 8, seed=1), rand(8)],
        {"epsilon": 1e-5},
        outputs=(0, 3),
    )


def test_simplified_layer_norm_in_the_default_domain():
    check(
        "SimplifiedLayerNormalization",
        [rand(2, 3, 8), rand(8, seed=1)],
        {"epsilon": 1e-6, "axis": -1, "stash_type": 1},
        domain="",
    )


def test_bias_split_gelu_and_bias_add_are_their_formulas():
    # ONNX Runtime has them for CUDA only, so numpy is the reference.
    import math

    erf = np.vectorize(math.erf)
    x, b = rand(2, 3, 8), rand(8, seed=1)
    y = sardonyx.compile(model_of("BiasSplitGelu", [x, b], {}, (0,), (), True)).run({"i0": x, "i1": b})["o0"]
    left, right = np.split((x + b).astype(np.float64), 2, axis=-1)
    np.testing.assert_allclose(y, left * right * 0.5 * (1 + erf(right / math.sqrt(2))), rtol=1e-5, atol=1e-6)
    s = rand(2, 3, 8, seed=2)
    y = sardonyx.compile(model_of("BiasAdd", [x, b, s], {}, (0,), (), True)).run({"i0": x, "i1": b, "i2": s})["o0"]
    np.testing.assert_allclose(y, x + b + s, rtol=1e-6)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("skip", [False, True])
def test_group_norm_is_its_formula(channels_last, skip):
    x, gamma, beta = rand(2, 8, 3, 5), rand(8, seed=1), rand(8, seed=2)
    s, bias = rand(2, 8, 3, 5, seed=4), rand(8, seed=5)
    total = x + s + bias[:, None, None] if skip else x
    v = total.astype(np.float64).reshape(2, 4, -1)
    y = ((v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    y = y * gamma[:, None, None] + beta[:, None, None]
    y = y / (1 + np.exp(-y))
    layout = (lambda a: np.ascontiguousarray(a.transpose(0, 2, 3, 1))) if channels_last else (lambda a: a)
    inputs = [layout(x), gamma, beta] + ([layout(s), bias] if skip else [])
    attrs = {"groups": 4, "activation": 1, "channels_last": channels_last}
    model = model_of("SkipGroupNorm" if skip else "GroupNorm", inputs, attrs, (0, 1) if skip else (0,), (), False)
    out = sardonyx.compile(model).run({f"i{k}": a for k, a in enumerate(inputs)})
    np.testing.assert_allclose(out["o0"], layout(y), rtol=1e-4, atol=1e-5)
    if skip:
        np.testing.assert_allclose(out["o1"], layout(total), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_normalization(segments):
    ids = RNG(0).integers(0, 11, (2, 5), dtype=np.int32)
    seg = RNG(1).integers(0, 2, (2, 5), dtype=np.int32) if segments else None
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=np.int32)
    inputs = [
        ids,
        seg,
        rand(11, 8),
        rand(6, 8, seed=1),
        rand(2, 8, seed=2) if segments else None,
        rand(8, seed=3),
        rand(8, seed=4),
        mask,
    ]
    check("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, outputs=(0, 1), symbolic=(False,))


# ---- products


@pytest.mark.parametrize(
    "attrs, a, b",
    [
        ({"alpha": 0.5}, (2, 3, 4), (2, 4, 5)),
        ({"transA": 1}, (2, 4, 3), (2, 4, 5)),
        ({"transB": 1, "alpha": 2.0}, (2, 3, 4), (2, 5, 4)),
        ({"transBatchA": 1}, (3, 2, 4), (2, 4, 5)),
        ({"transBatchA": 1, "transA": 1, "transBatchB": 1}, (4, 2, 3), (4, 2, 5)),
    ],
)
def test_fused_matmul(attrs, a, b):
    check("FusedMatMul", [rand(*a), rand(*b, seed=1)], attrs)


def test_transpose_matmul():
    check("TransposeMatMul", [rand(3, 4), rand(5, 4, seed=1)], {"transB": 1})


@pytest.mark.parametrize(
    "activation, extra",
    [
        ("Relu", {}),
        ("LeakyRelu", {"activation_alpha": 0.2}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ],
)
def test_fused_gemm(activation, extra):
    check(
        "FusedGemm",
        [rand(3, 4), rand(5, 4, seed=1), rand(5, seed=2)],
        {"transB": 1, "alpha": 0.7, "beta": 1.5, "activation": activation, **extra},
    )


@pytest.mark.parametrize(
    "activation, params",
    [
        ("Relu", None),
        ("Clip", [-0.3, 0.4]),
        ("LeakyRelu", [0.1]),
        ("Sigmoid", None),
        ("Tanh", None),
        ("HardSigmoid", [0.3, 0.4]),
    ],
)
def test_fused_conv(activation, params):
    attrs = {"activation": activation, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    if params:
        attrs["activation_params"] = params
    check(
        "FusedConv", [rand(1, 4, 6, 7), rand(6, 4, 3, 3, seed=1), rand(6, seed=2)], attrs, rtol=1e-4, symbolic=(False,)
    )
    if activation == "Relu":
        check(
            "FusedConv",
            [rand(1, 4, 6, 7), rand(6, 4, 3, 3, seed=1), rand(6, seed=2), rand(1, 6, 3, 7, seed=3)],
            attrs,
            rtol=1e-4,
            symbolic=(False,),
        )


def pack(q, bits):
    """Packs the last axis, low bits first."""
    per = 8 // bits
    pad = -q.shape[-1] % per
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, pad)]).reshape(*q.shape[:-1], -1, per)
    return np.bitwise_or.reduce(q << (np.arange(per, dtype=np.uint8) * bits).astype(np.uint8), axis=-1).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
def test_matmul_nbits(bits, zeros):
    K, N, block = 80, 6, 32
    blocks = -(-K // block)
    q = RNG(bits).integers(0, 1 << bits, (N, blocks, block), dtype=np.uint8)
    z = RNG(1).integers(0, 1 << bits, (N, blocks), dtype=np.uint8)
    scales = np.abs(rand(N, blocks, scale=0.1)) + f(0.01)
    zero = {"none": None, "packed": pack(z, bits), "float": z.astype(np.float32) + f(0.5)}[zeros]
    inputs = [rand(2, 3, K, seed=3), pack(q, bits), scales, zero]
    attrs = {"K": K, "N": N, "bits": bits, "block_size": block}
    if zeros == "float" and bits != 4:  # ONNX Runtime refuses these; numpy is the reference
        w = ((q - zero[..., None]) * scales[..., None]).reshape(N, -1)[:, :K]
        got = sardonyx.compile(model_of("MatMulNBits", inputs, attrs, (0,), (1, 2, 3), False)).run({"i0": inputs[0]})[
            "o0"
        ]
        np.testing.assert_allclose(got, inputs[0] @ w.T, rtol=1e-4, atol=1e-4)
        return
    check("MatMulNBits", inputs, attrs, constant=(1, 2, 3), rtol=1e-4, atol=1e-4, symbolic=(False,))


def test_matmul_nbits_with_groups_and_bias():
    K, N, block, bits = 64, 5, 32, 4
    q = RNG(5).integers(0, 16, (N, 2, block), dtype=np.uint8)
    groups = RNG(6).integers(0, 2, (K,), dtype=np.int32)
    scales, bias = np.abs(rand(N, 2)) + f(0.01), rand(N, seed=9)
    inputs = [rand(3, K, seed=3), pack(q, bits), scales, None, groups, bias]
    got = sardonyx.compile(
        model_of("MatMulNBits", inputs, {"K": K, "N": N, "bits": bits, "block_size": block}, (0,), (1, 2, 4, 5), True)
    ).run({"i0": inputs[0]})["o0"]
    w = (q.reshape(N, K).astype(np.float32) - 8) * scales[:, groups]
    np.testing.assert_allclose(got, inputs[0] @ w.T + bias, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", [False, True])
def test_gather_block_quantized(bits, zero):
    rows, columns, block = 7, 64, 32
    q = RNG(0).integers(0, 1 << bits, (rows, columns), dtype=np.uint8)
    z = RNG(1).integers(0, 1 << bits, (rows, columns // block), dtype=np.uint8)
    indices = np.array([[0, 3], [6, -1]], dtype=np.int64)
    inputs = [pack(q, bits), indices, rand(rows, columns // block, seed=2), pack(z, bits) if zero else None]
    check(
        "GatherBlockQuantized",
        inputs,
        {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0},
        constant=(0, 2, 3),
        symbolic=(False,),
    )


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


def test_integer_products():
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


# ---- attention

HEADS, SIZE = 2, 8
HIDDEN = HEADS * SIZE


def masks(batch, queries, keys):
    full = np.ones((batch, keys), np.int32)
    full[0, keys - 2 :] = 0
    return {
        "none": None,
        "ends": np.array([keys - 1, keys], np.int32)[:batch],
        "keys": full,
        "queries and keys": np.broadcast_to(full[:, None], (batch, queries, keys)).copy(),
    }


@pytest.mark.parametrize("mask", ["none", "ends", "keys", "queries and keys"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, causal):
    m = masks(2, 5, 5)[mask]
    inputs = [rand(2, 5, 12), rand(12, 3 * HIDDEN, seed=1, scale=0.3), rand(3 * HIDDEN, seed=2), m]
    check(
        "Attention",
        inputs,
        {"num_heads": HEADS, "unidirectional": causal},
        rtol=1e-4,
        symbolic=(False, True) if mask == "none" else (False,),
    )


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_past_or_bias(causal):
    past = rand(2, 2, HEADS, 3, SIZE, seed=5)
    inputs = [rand(2, 4, 12), rand(12, 3 * HIDDEN, seed=1, scale=0.3), rand(3 * HIDDEN, seed=2), None]
    attrs = {"num_heads": HEADS, "unidirectional": causal}
    check("Attention", [*inputs, past], attrs, outputs=(0, 1), rtol=1e-4, symbolic=(False,))
    check("Attention", [*inputs, None, rand(1, HEADS, 4, 4, seed=6)], attrs, rtol=1e-4, symbolic=(False,))


def test_attention_with_value_heads_of_another_size():
    inputs = [rand(2, 4, 12), rand(12, 2 * HIDDEN + 12, seed=1, scale=0.3), rand(2 * HIDDEN + 12, seed=2)]
    check(
        "Attention",
        inputs,
        {"num_heads": HEADS, "qkv_hidden_sizes": [HIDDEN, HIDDEN, 12]},
        rtol=1e-4,
        symbolic=(False,),
    )


@pytest.mark.parametrize("mask", ["none", "keys", "queries and keys"])
def test_multi_head_attention(mask):
    inputs = [
        rand(2, 4, HIDDEN),
        rand(2, 6, HIDDEN, seed=1),
        rand(2, 6, HIDDEN, seed=2),
        rand(3 * HIDDEN, seed=3),
        masks(2, 4, 6)[mask],
        rand(2, HEADS, 4, 6, seed=4),
    ]
    check(
        "MultiHeadAttention",
        inputs,
        {"num_heads": HEADS, "scale": 0.4},
        rtol=1e-4,
        symbolic=(False, True) if mask == "none" else (False,),
    )


def test_multi_head_attention_with_past():
    past = [rand(2, HEADS, 3, SIZE, seed=k) for k in (5, 6)]
    inputs = [rand(2, 4, HIDDEN), rand(2, 4, HIDDEN, seed=1), rand(2, 4, HIDDEN, seed=2), None, None, None, *past]
    check(
        "MultiHeadAttention",
        inputs,
        {"num_heads": HEADS, "unidirectional": 1},
        outputs=(0, 1, 2),
        rtol=1e-4,
        symbolic=(False,),
    )


def test_multi_head_attention_packed():
    check(
        "MultiHeadAttention",
        [rand(2, 4, HIDDEN), rand(2, HEADS, 6, SIZE, seed=1), rand(2, HEADS, 6, SIZE, seed=2)],
        {"num_heads": HEADS},
        rtol=1e-4,
        symbolic=(False,),
    )


def test_decoder_masked_multi_head_attention():
    q, k, v = rand(2, 1, HIDDEN), rand(2, 1, HIDDEN, seed=1), rand(2, 1, HIDDEN, seed=2)
    past = [rand(2, HEADS, 3, SIZE, seed=s) for s in (5, 6)]
    check(
        "DecoderMaskedMultiHeadAttention", [q, *past], {"num_heads": HEADS}, rtol=1e-4, symbolic=(False,)
    )  # cross attention
    # ONNX Runtime wants past and present in one buffer for self attention, which is another operator's work here
    feed = dict(zip(("i0", "i1", "i2", "i5", "i6"), (q, k, v, *past)))
    masked = sardonyx.compile(
        model_of(
            "DecoderMaskedMultiHeadAttention", [q, k, v, None, None, *past], {"num_heads": HEADS}, (0, 1, 2), (), False
        )
    ).run(feed)
    plain = sardonyx.compile(
        model_of("MultiHeadAttention", [q, k, v, None, None, None, *past], {"num_heads": HEADS}, (0, 1, 2), (), False)
    )
    plain = plain.run({"i0": q, "i1": k, "i2": v, "i6": past[0], "i7": past[1]})
    for name in plain:
        np.testing.assert_array_equal(masked[name], plain[name])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["3d", "4d", "offset", "partial"])
def test_rotary_embedding(interleaved, form):
    rotated = 4 if form == "partial" else SIZE
    cos, sin = rand(10, rotated // 2, seed=1), rand(10, rotated // 2, seed=2)
    x = rand(2, HEADS, 5, SIZE) if form == "4d" else rand(2, 5, HIDDEN)
    ids = np.array([3], np.int64) if form == "offset" else RNG(0).integers(0, 10, (2, 5), dtype=np.int64)
    attrs = {"interleaved": interleaved}
    if form == "partial":
        attrs.update(rotary_embedding_dim=rotated, num_heads=HEADS)
    check("RotaryEmbedding", [x, ids, cos, sin], attrs, symbolic=(False,))


def gqa_inputs(batch, past, new, capacity, heads=4, kv=2, size=8, lengths=None):
    lengths = np.asarray(lengths if lengths is not None else [past + new] * batch, np.int32)
    return [
        rand(batch, new, heads * size),
        rand(batch, new, kv * size, seed=1),
        rand(batch, new, kv * size, seed=2),
        rand(batch, kv, capacity, size, seed=3),
        rand(batch, kv, capacity, size, seed=4),
        lengths - 1,
        np.array(past + new, np.int32),
    ]


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"local_window_size": 3},
        {"softcap": 2.0},
        {"scale": 0.5},
        {"smooth_softmax": 1},
        {"do_rotary": 1},
        {"do_rotary": 1, "rotary_interleaved": 1},
    ],
)
@pytest.mark.parametrize("past, new, capacity", [(0, 6, 6), (5, 1, 5), (0, 6, 9), (5, 1, 9)])
def test_group_query_attention(extra, past, new, capacity):
    size = 16 if extra.get("do_rotary") else 8  # ONNX Runtime rotates heads of multiples of 16 only
    inputs = gqa_inputs(2, past, new, capacity, size=size)
    if past == 0 and capacity == 6:  # a first step without any past
        inputs[3] = inputs[4] = None
    if extra.get("do_rotary"):
        inputs += [rand(12, size // 2, seed=8), rand(12, size // 2, seed=9)]
    valid = {k: (lambda a: a[:, :, : past + new]) for k in (1, 2)}  # beyond them a buffer's contents are unspecified
    check(
        "GroupQueryAttention",
        inputs,
        {"num_heads": 4, "kv_num_heads": 2, **extra},
        outputs=(0, 1, 2),
        rtol=1e-4,
        symbolic=(False,),
        parts=valid,
    )


def test_group_query_attention_with_ragged_pasts():
    inputs = gqa_inputs(3, 5, 1, 8, lengths=[6, 3, 4])
    valid = {k: (lambda a: np.concatenate([a[b, :, :n].ravel() for b, n in enumerate([6, 3, 4])])) for k in (1, 2)}
    check(
        "GroupQueryAttention",
        inputs,
        {"num_heads": 4, "kv_num_heads": 2},
        outputs=(0, 1, 2),
        rtol=1e-4,
        symbolic=(False,),
        parts=valid,
    )


def test_group_query_attention_packed_with_bias_and_sink():
    q, k, v, past_k, past_v, lengths, total = gqa_inputs(2, 5, 1, 5)
    inputs = [
        np.concatenate([q, k, v], axis=-1),
        None,
        None,
        past_k,
        past_v,
        lengths,
        total,
        None,
        None,
        None,
        rand(1, 4, 1, 6, seed=7),
        rand(4, seed=8),
    ]
    check(
        "GroupQueryAttention",
        inputs,
        {"num_heads": 4, "kv_num_heads": 2},
        outputs=(0, 1, 2),
        rtol=1e-4,
        symbolic=(False,),
    )


# ---- refusals


@pytest.mark.parametrize(
    "op, inputs, attrs, text",
    [
        (
            "MatMulNBits",
            [rand(2, 32), pack(quant(4, 1, 32) & 15, 4), rand(4, 1)],
            {"K": 32, "N": 4, "bits": 4, "block_size": 32, "weight_prepacked": 1},
            "prepacked",
        ),
        (
            "GroupQueryAttention",
            gqa_inputs(1, 0, 4, 4),
            {"num_heads": 4, "kv_num_heads": 2, "sliding_window_cache": 1},
            "window",
        ),
        (
            "RotaryEmbedding",
            [rand(2, 5, HIDDEN), np.array([0], np.int64), rand(10, 4), rand(10, 4)],
            {"is_packed_batching": 1},
            "packed",
        ),
    ],
)
def test_what_is_not_supported_is_refused(op, inputs, attrs, text):
    with pytest.raises(sardonyx.Error, match=text):
        sardonyx.compile(model_of(op, inputs, attrs, (0,), (), False))
