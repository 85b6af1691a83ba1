"""com.microsoft PagedAttention: packed sequences of different lengths, whose keys and values lie in scattered pages, compared with NumPy in float64."""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper

MS = "com.microsoft"
HEADS, KV_HEADS, SIZE, ROWS, PAGES, POSITIONS = 4, 2, 32, 8, 12, 64
TABLE = [[3, 7, 1, 0], [5, 2, 0, 0], [9, 4, 11, 6]]  # pages of three sequences; the rest is not used
CARDS = [("sim:gfx942", np.float32), ("sim:gfx1100", np.float16), ("sim:gfx942", np.float16)]
OPTIONS = {
    "plain": {},
    "rotary": {"do_rotary": 1},
    "packed": {"packed": True, "do_rotary": 1, "rotary_interleaved": 1, "rotated": 16},
    "window": {"local_window_size": 5, "softcap": 2.0},
    "sink": {"sink": True, "scale": 0.4},
    "norms": {"norms": True, "do_rotary": 1},
    "slots": {"slots": True},
    "both ways": {"is_causal": 0},
}


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def case(option, past, new, dtype):
    """Inputs by the operator's names."""
    n, sequences = sum(new), len(new)
    q, k, v = (random(n, h * SIZE, seed=s).astype(dtype) for s, h in enumerate((HEADS, KV_HEADS, KV_HEADS)))
    values = {"query": np.concatenate((q, k, v), 1)} if option.get("packed") else {"query": q, "key": k, "value": v}
    values["key_cache"] = random(PAGES, ROWS, KV_HEADS, SIZE, seed=4).astype(dtype)
    values["value_cache"] = random(PAGES, ROWS, KV_HEADS, SIZE, seed=5).astype(dtype)
    values["cumulative"] = np.cumsum([0, *new]).astype(np.int32)
    values["past"] = np.array(past, np.int32)
    values["table"] = np.array(TABLE[:sequences], np.int32)
    if option.get("do_rotary"):
        angles = random(POSITIONS, option.get("rotated", SIZE) // 2, seed=8)
        values |= {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
    if option.get("slots"):  # the last token is not stored
        slots = [
            TABLE[b][p // ROWS] * ROWS + p % ROWS for b in range(sequences) for p in range(past[b], past[b] + new[b])
        ]
        values["slots"] = np.array([*slots[:-1], -1], np.int32)
    if option.get("sink"):
        values["sink"] = random(HEADS, seed=10).astype(dtype)
    if option.get("norms"):
        values["q_norm"] = (1 + 0.2 * random(SIZE, seed=11)).astype(dtype)
        values["k_norm"] = (1 + 0.2 * random(SIZE, seed=12)).astype(dtype)
    return values


ORDER = (
    "query",
    "key",
    "value",
    "key_cache",
    "value_cache",
    "cumulative",
    "past",
    "table",
    "cos",
    "sin",
    "slots",
    "sink",
)
ORDER += ("q_norm", "k_norm")


def model_of(option, values, one):
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), dims(n, x, one))
        for n, x in values.items()
    ]
    names = [n if n in values else "" for n in ORDER]
    while not names[-1]:
        names.pop()
    attributes = {n: v for n, v in option.items() if n not in ("packed", "rotated", "slots", "sink", "norms")}
    node = helper.make_node(
        "PagedAttention",
        names,
        ["y", "keys", "values"],
        domain="com.sardonyx" if "prompt" in option else MS,
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        **attributes,
    )
    kind = helper.np_dtype_to_tensor_dtype(values["query"].dtype)
    outputs = [helper.make_tensor_value_info(n, kind, None) for n in ("y", "keys", "values")]
    graph = helper.make_graph([node], "paged", inputs, outputs)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, 21 if not domain else 1) for domain in ("", MS, "com.sardonyx")],
        ir_version=10,
    )


def dims(name, x, one):
    """Numbers of tokens, sequences and pages are symbols; there may be `one` sequence."""
    free = {"key_cache": ("pages", *x.shape[1:]), "value_cache": ("pages", *x.shape[1:])}
    free |= dict.fromkeys(("query", "key", "value", "slots"), ("tokens", *x.shape[1:]))
    if not one:
        free |= {"cumulative": ("ends",), "past": ("sequences",)}
    free["table"] = (1 if one else "sequences", "columns")
    return list(free.get(name, x.shape))


def rotate(x, position, values, option):
    if "cos" not in values:
        return x
    rotated = option.get("rotated", SIZE)
    cos, sin = (values[n].astype(np.float64)[position] for n in ("cos", "sin"))
    y = x.copy()
    interleaved = option.get("rotary_interleaved")
    a, b = (
        (slice(0, rotated, 2), slice(1, rotated, 2))
        if interleaved
        else (slice(0, rotated // 2), slice(rotated // 2, rotated))
    )
    y[..., a], y[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., a] * sin + x[..., b] * cos
    return y


def norm(x, weight):
    return x if weight is None else x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight.astype(np.float64)


def reference(option, values, past, new, caches=None, stored=lambda x: x):
    """The output and the caches. `stored`: what a cache keeps of a row."""
    split = np.cumsum([HEADS, KV_HEADS, KV_HEADS])[:2] * SIZE
    parts = (
        np.split(values["query"], split, 1) if option.get("packed") else [values[n] for n in ("query", "key", "value")]
    )
    q, k, v = (p.astype(np.float64).reshape(len(p), -1, SIZE) for p in parts)
    q, k = norm(q, values.get("q_norm")), norm(k, values.get("k_norm"))
    caches = caches or [values[n].astype(np.float64) for n in ("key_cache", "value_cache")]
    y = np.zeros((len(q), HEADS, SIZE))
    tokens = [(b, past[b] + s) for b in range(len(new)) for s in range(new[b])]
    for n, (b, position) in enumerate(tokens):
        q[n], k[n] = rotate(q[n], position, values, option), rotate(k[n], position, values, option)
        slot = values["slots"][n] if "slots" in values else TABLE[b][position // ROWS] * ROWS + position % ROWS
        if slot >= 0:
            for cache, x in zip(caches, (k, v), strict=True):
                cache.reshape(-1, KV_HEADS, SIZE)[slot] = stored(x[n])
    for n, (b, position) in enumerate(tokens):
        end = position + 1 if option.get("is_causal", 1) else past[b] + new[b]
        begin = max(0, position + 1 - option["local_window_size"]) if "local_window_size" in option else 0
        keys, vals = (c[TABLE[b]].reshape(-1, KV_HEADS, SIZE)[begin:end] for c in caches)
        for h in range(HEADS):
            scores = keys[:, h // (HEADS // KV_HEADS)] @ q[n, h] * option.get("scale", SIZE**-0.5)
            if "softcap" in option:
                scores = np.tanh(scores / option["softcap"]) * option["softcap"]
            sink = np.exp(values["sink"][h].astype(np.float64)) if "sink" in values else 0
            p = np.exp(scores)
            y[n, h] = p @ vals[:, h // (HEADS // KV_HEADS)] / (p.sum() + sink)
    return y.reshape(len(q), -1), *caches


def check(option, past, new, dtype, device):
    values = case(option, past, new, dtype)
    model = sardonyx.compile(model_of(option, values, len(new) == 1), device=device)
    found = model.run(values)
    # float16: the operator's own results are rounded to 11 bits, and so are rotated queries and keys.
    tolerance = 2e-5 if dtype == np.float32 else 1e-2
    for name, wanted in zip(("y", "keys", "values"), reference(option, values, past, new), strict=True):
        np.testing.assert_allclose(found[name].astype(np.float64), wanted, atol=tolerance, rtol=tolerance, err_msg=name)
    return model, values, found


@pytest.mark.parametrize("option", OPTIONS)
def test_host(option):
    check(OPTIONS[option], [9, 0, 20], [1, 5, 3], np.float32, "host")
    check(OPTIONS[option], [11], [9], np.float32, "host")


@pytest.mark.parametrize("device, dtype", CARDS)
@pytest.mark.parametrize(
    "option", ["plain", pytest.param("packed", marks=pytest.mark.slow), pytest.param("sink", marks=pytest.mark.slow)]
)
def test_simulated_card(option, device, dtype):
    check(OPTIONS[option], [9, 0, 20], [1, 2, 1], dtype, device)
    check(OPTIONS[option], [11], [9], dtype, device)


@pytest.mark.parametrize("device, dtype", [("host", np.float32), *CARDS])
@pytest.mark.parametrize(
    "option", ["packed", *(pytest.param(o, marks=pytest.mark.slow) for o in ("plain", "window", "sink", "norms"))]
)
def test_a_part_of_a_prompt_beside_answers(option, device, dtype):
    """com.sardonyx's `prompt`: sequences of one token each, then others of so many tokens each."""
    own = {**OPTIONS[option], "prompt": 4}
    check(own, [9, 0, 11], [1, 1, 4], dtype, device)
    check(own, [9, 0, 11], [1, 4, 4], dtype, device)
    check(own, [3, 11], [4, 4], dtype, device)
    check(own, [20, 3], [1, 1], dtype, device)


def test_code_for_hopper(tmp_path):
    """A prompt's attention runs on wgmma in pages too, in both forms; scores that are computed do not."""

    def products(option, new):
        values = case(option, [0] * len(new), new, np.float16)
        onnx.save(model_of(option, values, len(new) == 1), tmp_path / "m.onnx")
        cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
        return (tmp_path / "m.sdx").read_bytes().count(b"wgmma.mma_async")

    assert products({}, [9]) and products({"prompt": 64}, [1, 64])
    assert not products({"softcap": 5.0}, [9])


def test_fewer_tokens_than_sequences_are_refused():
    own = {"prompt": 9}
    values = case(own, [9, 0, 11], [1, 1, 9], np.float32)
    model = sardonyx.compile(model_of(own, values, False))
    model.run(values)  # sizes that are right are not checked again; others are, before they give a negative dim
    few = {n: values[n][:2] for n in ("query", "key", "value")}
    with pytest.raises(sardonyx.Error, match="fewer tokens than sequences"):
        model.run(values | few)
    model.run(values | {n: values[n][:10] for n in ("query", "key", "value")})  # the last sequence may have fewer
    with pytest.raises(sardonyx.Error, match="more tokens than the sequences have"):
        model.run(values | {n: np.repeat(values[n], 3, 0) for n in ("query", "key", "value")})


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_caches_are_read_and_written_in_place(device):
    """The attention is one step whose operands are the caches: no step copies or gathers them."""
    past, new = [9, 0, 20], [1, 1, 1]
    model, values, found = check({}, past, new, np.float32, device)
    kernels = model.kernels()
    assert [k.kind for k in kernels].count("tile") == 1, kernels
    caches = [sardonyx.to_device(values[n], device) for n in ("key_cache", "value_cache")]
    given = values | dict(zip(("key_cache", "value_cache"), caches, strict=True))
    places = dict(zip(("keys", "values"), caches, strict=True))
    results = model.run_tensors(given, outputs=places, on_device=True)
    for name in ("y", "keys", "values"):
        np.testing.assert_array_equal(results[name].numpy(), found[name])
    # What a run needs beside inputs and outputs (which a card gets copies of, if they are in the host's memory) does not
    # grow with the pages.
    sizes = [model.memory(pages=p, tokens=3, sequences=3, ends=4, columns=4) for p in (PAGES, 100 * PAGES)]
    own = [m.temporaries - (0 if device == "host" else m.inputs + m.outputs) for m in sizes]
    assert own[0] == own[1] < 4096


def test_pages_outside_of_the_cache_are_harmless():
    """Numbers in the table are data: no read or write outside of the cache."""
    values = case({}, [9, 0, 20], [1, 1, 1], np.float32)
    values["table"][:] = [[-5, 10**6, 3, 2**31 - 1]] * 3
    values["past"][:] = [9, 2**31 - 1, 100]
    model = sardonyx.compile(model_of({}, values, False))
    found = model.run(values)
    assert np.isfinite(found["y"]).all()
    changed = np.argwhere((found["keys"] != values["key_cache"]).any((2, 3)))
    assert changed.tolist() in ([], [[3, 1]])


def test_refusals():
    values = case({}, [9, 0, 20], [1, 1, 1], np.float32)
    for attribute in ({"k_quant_type": "PER_TENSOR"}, {"kv_cache_layout": "LATENT"}, {"rotary_offset": 8}):
        with pytest.raises(sardonyx.UnsupportedError, match="PagedAttention"):
            sardonyx.compile(model_of(attribute, values, False))
    with pytest.raises(sardonyx.Error):  # tables of another number of sequences
        sardonyx.compile(model_of({}, values, False)).run(values | {"past": values["past"][:2]})
