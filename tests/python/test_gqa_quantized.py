"""GroupQueryAttention with a KV cache of 8 bits, against numpy; and against ONNX Runtime where it computes it."""

import ml_dtypes
import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

B, HEADS, KV, SIZE = 2, 4, 2, 16
TYPES = {"int8": (TensorProto.INT8, np.int8, 127), "float8": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, 448)}


def model(kind, quantised, past, packed=False, dtype=TensorProto.FLOAT):
    """kind: of TYPES or None; quantised: PER_TENSOR or PER_CHANNEL; past: length of the cache."""
    rng = np.random.default_rng(0)
    float_type = helper.tensor_dtype_to_np_dtype(dtype)
    angle = rng.random((64, SIZE // 2)) * 3
    weights = {"cos": np.cos(angle).astype(float_type), "sin": np.sin(angle).astype(float_type)}
    cache = TYPES[kind][0] if kind else dtype
    shapes = {"q": [B, "s", (HEADS + 2 * KV) * SIZE if packed else HEADS * SIZE]}
    if not packed:
        shapes |= {"k": [B, "s", KV * SIZE], "v": [B, "s", KV * SIZE]}
    inputs = [helper.make_tensor_value_info(n, dtype, s) for n, s in shapes.items()]
    inputs += [helper.make_tensor_value_info(n, cache, [B, KV, past, SIZE]) for n in ("past_key", "past_value")]
    inputs += [helper.make_tensor_value_info("lengths", TensorProto.INT32, [B])]
    inputs += [helper.make_tensor_value_info("total", TensorProto.INT32, [])]
    attributes = {"num_heads": HEADS, "kv_num_heads": KV, "do_rotary": 1}
    names = [
        "q",
        "" if packed else "k",
        "" if packed else "v",
        "past_key",
        "past_value",
        "lengths",
        "total",
        "cos",
        "sin",
    ]
    if kind:
        # Channels of uneven size, as keys have.
        spread = np.exp(rng.standard_normal((1, KV, 1, SIZE))) if quantised == "PER_CHANNEL" else np.ones(1)
        weights |= {n: (spread * s / TYPES[kind][2]).astype(np.float32) for n, s in (("ks", 5.0), ("vs", 4.0))}
        names += ["", "", "", "ks", "vs"]
        attributes |= {"k_quant_type": quantised, "v_quant_type": quantised, "kv_cache_bit_width": 8}
    outputs = [helper.make_tensor_value_info("y", dtype, None)]
    outputs += [helper.make_tensor_value_info(n, cache, None) for n in ("present_key", "present_value")]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "present_key", "present_value"], domain="com.microsoft", **attributes
    )
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), weights


def feed(rng, kind, past, new, packed, weights, float_type=np.float32):
    """Two sequences of different lengths in a cache of `past` rows, of which the first tokens are there."""
    have = np.array([past - new, past - new - 2])
    q = rng.standard_normal((B, new, (HEADS + 2 * KV) * SIZE if packed else HEADS * SIZE)).astype(float_type)
    out = {"q": q}
    if not packed:
        out |= {n: rng.standard_normal((B, new, KV * SIZE)).astype(float_type) for n in "kv"}
    for name, scale in (("past_key", "ks"), ("past_value", "vs")):
        x = rng.standard_normal((B, KV, past, SIZE))
        out[name] = stored(x, kind, weights[scale])
    return out | {"lengths": (have + new - 1).astype(np.int32), "total": np.array(have.max() + new, np.int32)}, have


def stored(x, kind, scale):
    _, dtype, most = TYPES[kind]
    q = x.astype(np.float32) / scale
    return np.clip(np.rint(q) if kind == "int8" else q, -most - (kind == "int8"), most).astype(dtype)


def attention(q, keys, values, have, new):
    """[B, S, heads, D], and caches [B, KV, rows, D] in float64."""
    y = np.zeros(q.shape)
    for b in range(B):
        for h in range(HEADS):
            for s in range(new):
                rows = have[b] + s + 1
                scores = keys[b, h // (HEADS // KV), :rows] @ q[b, s, h] / np.sqrt(SIZE)
                p = np.exp(scores - scores.max())
                y[b, s, h] = p @ values[b, h // (HEADS // KV), :rows] / p.sum()
    return y


def rotated(x, have, weights):
    """[B, S, heads, D], as rotary embedding of halves."""
    out = np.array(x, np.float64)
    for b in range(B):
        for s in range(x.shape[1]):
            c, sn = (weights[n][have[b] + s].astype(np.float64) for n in ("cos", "sin"))
            first, second = x[b, s, :, : SIZE // 2], x[b, s, :, SIZE // 2 :]
            out[b, s] = np.concatenate([first * c - second * sn, second * c + first * sn], -1)
    return out


def expected(given, kind, have, new, packed, weights):
    q = given["q"].astype(np.float64).reshape(B, new, -1, SIZE)
    if packed:
        q, k, v = q[:, :, :HEADS], q[:, :, HEADS : HEADS + KV], q[:, :, HEADS + KV :]
    else:
        k, v = (given[n].astype(np.float64).reshape(B, new, KV, SIZE) for n in "kv")
    q, k = rotated(q, have, weights), rotated(k, have, weights)
    caches = []
    for rows, past, scale in ((k, given["past_key"], weights["ks"]), (v, given["past_value"], weights["vs"])):
        cache = np.array(past)
        for b in range(B):
            part = stored(rows[b].transpose(1, 0, 2)[None], kind, scale)
            cache[b, :, have[b] : have[b] + new] = part[0]
        caches.append(cache)
    dense = [c.astype(np.float64) * weights[n] for c, n in zip(caches, ("ks", "vs"))]
    return attention(q, *dense, have, new), caches


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("quantised", "packed", "new"), [("PER_TENSOR", False, 5), ("PER_CHANNEL", True, 1)])
@pytest.mark.slow(part=4)
def test_results_and_the_cache(device, kind, quantised, packed, new):
    m, weights = model(kind, quantised, 20, packed)
    given, have = feed(np.random.default_rng(1), kind, 20, new, packed, weights)
    want, caches = expected(given, kind, have, new, packed, weights)
    got = sardonyx.compile(m, device=device).run_tensors(given)
    got = {n: t.numpy() for n, t in got.items()}
    for name, cache in zip(("present_key", "present_value"), caches):
        for b in range(B):
            ours = got[name][b, :, : have[b] + new].astype(np.float32)
            theirs = cache[b, :, : have[b] + new].astype(np.float32)
            # A value in the middle between two is rounded by its last bit: 2 of 1000 at most, to a neighbour.
            other = ours != theirs
            assert other.mean() < 2e-3 and np.abs(ours - theirs)[other].max(initial=0) <= (1 if kind == "int8" else 32)
            assert not other[:, : have[b]].any()  # the past is not touched
    y = got["y"].reshape(want.shape)
    assert np.abs(y - want).max() < 1e-4 * np.abs(want).max()  # sums in float32 of up to 20 terms


def test_halves_on_a_simulated_gpu():
    m, weights = model("int8", "PER_CHANNEL", 40, True, TensorProto.FLOAT16)
    given, have = feed(np.random.default_rng(2), "int8", 40, 1, True, weights, np.float16)
    want, _ = expected(given, "int8", have, 1, True, weights)
    y = sardonyx.compile(m, device="sim:gfx942")(given)["y"].astype(np.float64).reshape(want.shape)
    assert np.abs(y - want).max() < 6e-3 * np.abs(want).max()  # float16: 11 bits, keys and probabilities rounded


def test_what_is_refused():
    m, _ = model("int8", "PER_TENSOR", 20)
    attributes = {a.name: a for a in m.graph.node[0].attribute}
    attributes["kv_cache_bit_width"].i = 4
    with pytest.raises(sardonyx.UnsupportedError, match="a cache of 4 bits"):
        sardonyx.compile(m)
    attributes["kv_cache_bit_width"].i = 8
    attributes["k_quant_type"].s = b"PER_ROW"
    with pytest.raises(sardonyx.InvalidModelError, match="k_quant_type is 'PER_ROW'"):
        sardonyx.compile(m)
    attributes["k_quant_type"].s = b"PER_CHANNEL"
    with pytest.raises(sardonyx.InvalidModelError, match="scales of shape"):
        sardonyx.compile(m)
    attributes["k_quant_type"].s = b"NONE"
    with pytest.raises(sardonyx.InvalidModelError, match="scales of a cache whose k_quant_type is NONE"):
        sardonyx.compile(m)
