"""com.microsoft activations, normalisations and products against ONNX Runtime's CPU execution provider, or against their formulas."""

import numpy as np
import pytest
import sardonyx
from contrib_models import RNG, check, f, model_of, pack, quant, rand, run_ours

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


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_range_has_a_delta_of_1(dtype):
    for inputs, want in (((2, 7), np.arange(2, 7)), ((2, 9, 3), np.arange(2, 9, 3)), ((5, 2), np.arange(0))):
        (got,) = run_ours("Range", [np.array(x, dtype) for x in inputs])
        assert got.dtype == dtype and np.array_equal(got, want)


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
    ],
)
def test_what_is_not_supported_is_refused(op, inputs, attrs, text):
    with pytest.raises(sardonyx.Error, match=text):
        sardonyx.compile(model_of(op, inputs, attrs, (0,), (), False))
