"""com.microsoft attention operators and rotary embeddings against ONNX Runtime's CPU execution provider."""

import numpy as np
import pytest
import sardonyx
from contrib_models import RNG, check, model_of, rand

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
