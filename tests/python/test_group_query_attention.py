"""GroupQueryAttention with each of its options, for prompts, decoding steps and several turns, compared with NumPy in float64.

test_contrib_attention.py compares the same operator with ONNX Runtime's CPU provider.
"""

import numpy as np
import pytest
import sardonyx
from onnx import helper

CARDS = [("sim:gfx942", np.float32), ("sim:gfx1100", np.float16)]
HEADS, KV_HEADS, SIZE, ROOM, POSITIONS = 4, 2, 16, 40, 48
PLACES = ("cos", "sin", "ids", "bias", "sink", "", "", "q_norm", "k_norm")  # of inputs from 7 on

OPTIONS = {
    "plain": {},
    "packed": {"packed": True, "do_rotary": 1},
    "interleaved": {"do_rotary": 1, "rotary_interleaved": 1, "rotated": 8},
    "window": {"local_window_size": 5, "softcap": 2.0},
    "packed window": {"packed": True, "local_window_size": 3},
    "sink": {"sink": True, "scale": 0.4},
    "smooth": {"smooth_softmax": 1, "packed": True},
    "norms": {"norms": True, "do_rotary": 1, "qk_norm_epsilon": 1e-5},
    "packed norms": {"norms": True, "packed": True},
    "positions": {"do_rotary": 1, "ids": True},
    "bias": {"bias": True},
    "everything": {
        "packed": True,
        "do_rotary": 1,
        "rotary_interleaved": 1,
        "rotated": 8,
        "local_window_size": 6,
        "softcap": 3.0,
        "scale": 0.3,
        "sink": True,
        "norms": True,
        "bias": True,
        "ids": True,
    },
}
ATTRIBUTES = ("do_rotary", "rotary_interleaved", "local_window_size", "softcap", "scale", "smooth_softmax")


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def inputs_of(option, batch, fresh, tokens, dtype):
    """The operator's inputs by name, in float64 and rounded to `dtype`; `tokens`: of each sequence after this step."""
    values = {
        n: random(batch, fresh, h * SIZE, seed=k)
        for k, (n, h) in enumerate(zip("qkv", (HEADS, KV_HEADS, KV_HEADS), strict=True))
    }
    values |= {n: random(batch, KV_HEADS, ROOM, SIZE, seed=k) for k, n in enumerate(("past_k", "past_v"), 5)}
    if option.get("do_rotary"):
        angles = random(POSITIONS, option.get("rotated", SIZE) // 2, seed=8)
        values |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    if option.get("bias"):
        values["bias"] = random(1, HEADS, fresh, ROOM, seed=9)
    if option.get("sink"):
        values["sink"] = random(HEADS, seed=10)
    if option.get("norms"):
        values |= {"q_norm": 1 + 0.2 * random(SIZE, seed=11), "k_norm": 1 + 0.2 * random(SIZE, seed=12)}
    values = {n: v.astype(dtype) for n, v in values.items()}
    if option.get("ids"):  # not where the cache has them
        values["ids"] = np.random.default_rng(13).integers(0, POSITIONS, (batch, fresh))
    return values | {"lengths": np.array(tokens, np.int32) - 1, "total": np.array(ROOM, np.int32)}


def rotate(x, option, values, position):
    """x [S, H, D] at `position` [S]."""
    rotated = option.get("rotated", SIZE)
    cos, sin = (values[n].astype(np.float64)[position][:, None] for n in ("cos", "sin"))
    y = x.copy()
    if option.get("rotary_interleaved"):
        a, b = slice(0, rotated, 2), slice(1, rotated, 2)
    else:
        a, b = slice(0, rotated // 2), slice(rotated // 2, rotated)
    y[..., a], y[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., a] * sin + x[..., b] * cos
    return y


def reference(option, values, tokens):
    """Output, and present keys and values, [batch] of arrays of as many tokens as there are."""
    result = []
    for b, count in enumerate(tokens):
        fresh = min(values["q"].shape[1], count)  # later ones are padding
        past = max(0, count - values["q"].shape[1])
        x = {n: values[n][b, :fresh].astype(np.float64).reshape(fresh, -1, SIZE) for n in "qkv"}
        for n in "qk":
            if option.get("norms"):
                mean = (x[n] ** 2).mean(-1, keepdims=True)
                x[n] = x[n] / np.sqrt(mean + option.get("qk_norm_epsilon", 1e-6)) * values[f"{n}_norm"]
            if option.get("do_rotary"):
                at = values["ids"][b, :fresh] if "ids" in values else past + np.arange(fresh)
                x[n] = rotate(x[n], option, values, at)
        cache = {
            n: np.concatenate([values[f"past_{n}"][b, :, :past].astype(np.float64), x[n].transpose(1, 0, 2)], 1)
            for n in "kv"
        }
        out = np.zeros((fresh, HEADS, SIZE))
        for h in range(HEADS):
            k, v = (cache[n][h // (HEADS // KV_HEADS)] for n in "kv")
            scores = x["q"][:, h] @ k.T * (option.get("scale") or SIZE**-0.5)
            if option.get("softcap"):
                scores = option["softcap"] * np.tanh(scores / option["softcap"])
            if "bias" in values:
                scores = scores + values["bias"][0, h, :fresh, :count]
            query, key = past + np.arange(fresh)[:, None], np.arange(count)[None]
            allowed = (key <= query) & (key > query - option.get("local_window_size", count))
            scores = np.where(allowed, scores, -np.inf)
            sink = values["sink"][h].astype(np.float64) if "sink" in values else 0.0
            top = np.maximum(scores.max(1, keepdims=True), sink)
            e = np.exp(scores - top)
            extra = np.exp(sink - top) if "sink" in values or option.get("smooth_softmax") else 0
            out[:, h] = e / (e.sum(1, keepdims=True) + extra) @ v
        result.append((out.reshape(fresh, -1), cache["k"], cache["v"]))
    return result


def model_of(option, values):
    """A program for every number of new tokens."""
    names = ["q", "k", "v"] if not option.get("packed") else ["q", "", ""]
    names += ["past_k", "past_v", "lengths", "total", *(n if n in values else "" for n in PLACES)]
    while names[-1] == "":
        names.pop()
    attributes = {n: option[n] for n in (*ATTRIBUTES, "qk_norm_epsilon") if n in option}
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "key", "value"], domain="com.microsoft", num_heads=HEADS,
        kv_num_heads=KV_HEADS, **attributes,
    )  # fmt: skip
    given = []
    for n in names:
        if not n:
            continue
        shape = list(values[n].shape)
        if n in ("q", "k", "v", "ids"):
            shape[:2] = ["batch", "s"]
        elif n == "bias":
            shape[2] = "s"
        elif n in ("past_k", "past_v", "lengths"):
            shape[0] = "batch"
        if n == "q" and option.get("packed"):
            shape[2] = (HEADS + 2 * KV_HEADS) * SIZE
        given.append(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(values[n].dtype), shape))
    kind = helper.np_dtype_to_tensor_dtype(values["q"].dtype)
    outputs = [helper.make_tensor_value_info(n, kind, None) for n in ("y", "key", "value")]
    graph = helper.make_graph([node], "g", given, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    check_option(OPTIONS[name], "host", np.float32)


@pytest.mark.parametrize(("device", "dtype"), CARDS)
@pytest.mark.parametrize("name", ["packed", "norms", "everything"])
def test_options_together_on_cards(name, device, dtype):
    check_option(OPTIONS[name], device, dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "dtype"), CARDS)
@pytest.mark.parametrize("name", OPTIONS)
def test_option_on_cards(name, device, dtype):
    check_option(OPTIONS[name], device, dtype)


def check_option(option, device, dtype):
    program = None
    # A prompt of sequences of different lengths, padded on the right; a step; a turn of several tokens.
    for fresh, tokens in ((13, [13, 6]), (1, [14, 30]), (5, [21])):
        values = inputs_of(option, len(tokens), fresh, tokens, dtype)
        for b, count in enumerate(tokens):  # the rest of a cache may be anything
            for n in ("past_k", "past_v"):
                values[n][b, :, max(count, fresh) :] = np.nan
        if program is None:
            program = sardonyx.compile(model_of(option, values), device=device)
        feed = dict(values)
        if option.get("packed"):
            feed["q"] = np.concatenate([feed[n] for n in "qkv"], -1)
            del feed["k"], feed["v"]
        got = program(**feed)
        # 16-bit results are rounded at the end, and rotated or normalised keys once before.
        tolerance = 1e-5 if dtype == np.float32 else 8e-3
        for b, (out, key, value) in enumerate(reference(option, values, tokens)):
            np.testing.assert_allclose(got["y"][b, : len(out)], out, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(got["key"][b, :, : tokens[b]], key, rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(got["value"][b, :, : tokens[b]], value, rtol=tolerance, atol=tolerance)
            later = np.s_[b, :, max(tokens[b], fresh) :]  # of a buffer with room the rest stays
            np.testing.assert_array_equal(got["key"][later], values["past_k"][later])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"k_norm": None}, "together"),
        ({"q_norm": (8,)}, "norm's weight"),
        ({"past_v": None}, "together"),
        ({"past_k": (2, 3, ROOM, SIZE)}, "kv_num_heads"),
        ({"past_v": (2, KV_HEADS, ROOM - 1, SIZE)}, "length"),
        ({"k": (2, 12, KV_HEADS * SIZE)}, "number"),
    ],
)
def test_inputs_that_do_not_fit_are_errors(change, text):
    option = {"norms": True}
    values = inputs_of(option, 2, 13, [13, 6], np.float32)
    for name, shape in change.items():
        values[name] = np.zeros(shape or (0,), np.float32)
    model = model_of(option, values)
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, values[value.name].shape, strict=True):
            if dim.dim_param:
                dim.dim_value = size
    names = model.graph.node[0].input
    for name, shape in change.items():
        if shape is None:
            model.graph.input.remove(next(v for v in model.graph.input if v.name == name))
            names[list(names).index(name)] = ""
    with pytest.raises(sardonyx.Error, match=text):
        sardonyx.compile(model)
