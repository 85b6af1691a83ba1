"""Attention on simulated AMD GPUs: that the pattern is recognised, and that the results match the definition.

References are computed with numpy in float64, or by the host, where the GEMMs and the softmax are separate kernels.
"""

import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper

CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.int32: TensorProto.INT32}
# Inputs are about 1. float32: another order of sums. float16: probabilities and results are rounded to 11 bits.
TOLERANCE = {np.float32: 2e-5, np.float16: 4e-3}


def values(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def model_of(nodes, inputs, outputs, opset=23, initializers=()):
    """`inputs`: name to (numpy type, symbolic shape); the same for `outputs`."""

    def infos(items):
        return [
            helper.make_tensor_value_info(n, TYPES.get(t) or helper.np_dtype_to_tensor_dtype(np.dtype(t)), shape)
            for n, (t, shape) in items.items()
        ]

    graph = helper.make_graph(list(nodes), "g", infos(inputs), infos(outputs), list(initializers))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def attention_kernels(compiled):
    """How many kinds of attention kernels there are; whatever else runs is no GEMM."""
    assert not [k for k in compiled.kernels() if k.kind == "tile" and not k.name.startswith("attention")]
    return len({n for k in compiled.kernels() for n in k.name.split(", ") if n.startswith("attention")})


def on_device(model, chip, *feeds):
    compiled = sardonyx.compile(model, device=f"sim:{chip}")
    assert attention_kernels(compiled) >= 1
    return [compiled.run(feed) for feed in feeds]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(q, k, v, scale, allowed=True, bias=0.0, softcap=0.0, sink=None):
    """[B, H, S, D] in float64; keys' heads are repeated."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    x = q @ k.swapaxes(2, 3) * scale
    if softcap:
        x = softcap * np.tanh(x / softcap)
    x = x + bias
    x = np.where(allowed, x, -np.inf)
    top = x.max(-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    e = np.where(np.isneginf(x), 0, np.exp(x - np.where(np.isneginf(top), 0, top)))
    total = e.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    return np.where(total > 0, e / np.where(total > 0, total, 1), 0) @ v


def check(got, want, dtype):
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("chip", CHIPS)
def test_operator_with_every_option(chip):
    """ai.onnx Attention: grouped heads, causal, window by lengths, a float mask, a soft cap; one program, three sizes."""
    b, hq, hk, d, dv = 2, 4, 2, 24, 40
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], is_causal=1, softcap=3.0, scale=0.3)
    t = np.float16
    model = model_of(
        [node],
        {
            "q": (t, [b, hq, "s", d]),
            "k": (t, [b, hk, "t", d]),
            "v": (t, [b, hk, "t", dv]),
            "mask": (t, [b, 1, "s", "t"]),
        },
        {"y": (t, [b, hq, "s", dv])},
    )
    compiled = sardonyx.compile(model, device=f"sim:{chip}")
    assert attention_kernels(compiled) == 3  # for many rows, for few, and what puts the parts of few together
    for s, n in [(3, 70), (1, 9), (50, 130)]:
        feed = {
            "q": values(b, hq, s, d, dtype=t),
            "k": values(b, hk, n, d, dtype=t, seed=1),
            "v": values(b, hk, n, dv, dtype=t, seed=2),
            "mask": values(b, 1, s, n, dtype=t, seed=3),
        }
        allowed = np.arange(n)[None, :] <= np.arange(s)[:, None]
        want = reference(feed["q"], feed["k"], feed["v"], 0.3, allowed, feed["mask"].astype(np.float64), softcap=3.0)
        check(compiled.run(feed)["y"], want, t)
    assert compiled.programs == 1


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
def test_bool_mask_and_queries_without_keys(chip):
    """Rows whose mask forbids everything are zeros."""
    t = np.float32
    model = model_of(
        [helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])],
        {
            "q": (t, [1, 2, "s", 16]),
            "k": (t, [1, 2, "t", 16]),
            "v": (t, [1, 2, "t", 16]),
            "mask": (np.bool_, ["s", "t"]),
        },
        {"y": (t, [1, 2, "s", 16])},
    )
    s, n = 21, 45
    feed = {"q": values(1, 2, s, 16), "k": values(1, 2, n, 16, seed=1), "v": values(1, 2, n, 16, seed=2)}
    mask = np.random.default_rng(3).random((s, n)) < 0.3
    mask[5] = False
    feed["mask"] = mask
    (out,) = on_device(model, chip, feed)
    check(out["y"], reference(feed["q"], feed["k"], feed["v"], 0.25, mask), t)
    assert not out["y"][:, :, 5].any()


def grouped_query(t, heads, kv_heads, d, capacity, batch, **attributes):
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "pk", "pv", "lens", "total"],
        ["y", "ok", "ov"],
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=kv_heads,
        **attributes,
    )
    return model_of(
        [node],
        {
            "q": (t, [batch, "s", heads * d]),
            "k": (t, [batch, "s", kv_heads * d]),
            "v": (t, [batch, "s", kv_heads * d]),
            "pk": (t, [batch, kv_heads, capacity, d]),
            "pv": (t, [batch, kv_heads, capacity, d]),
            "lens": (np.int32, [batch]),
            "total": (np.int32, [1]),
        },
        {
            "y": (t, [batch, "s", heads * d]),
            "ok": (t, [batch, kv_heads, capacity, d]),
            "ov": (t, [batch, kv_heads, capacity, d]),
        },
        opset=21,
    )


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("window", [-1, 7])
@pytest.mark.slow(part=4)
def test_decoding_with_a_cache(chip, window):
    """GroupQueryAttention, one new token a sequence: keys are split over workgroups, sequences differ in length."""
    t, heads, kv_heads, d, capacity, batch = np.float16, 6, 2, 32, 400, 2
    model = grouped_query(t, heads, kv_heads, d, capacity, batch, local_window_size=window)
    feed = {
        "q": values(batch, 1, heads * d, dtype=t),
        "k": values(batch, 1, kv_heads * d, dtype=t, seed=1),
        "v": values(batch, 1, kv_heads * d, dtype=t, seed=2),
        "pk": values(batch, kv_heads, capacity, d, dtype=t, seed=3),
        "pv": values(batch, kv_heads, capacity, d, dtype=t, seed=4),
        "lens": np.array([376, 11], np.int32),
        "total": np.array([377], np.int32),
    }
    (out,) = on_device(model, chip, feed)
    for b, last in enumerate(feed["lens"]):
        k, v = feed["pk"][b : b + 1].copy(), feed["pv"][b : b + 1].copy()
        k[0, :, last] = feed["k"][b, 0].reshape(kv_heads, d)
        v[0, :, last] = feed["v"][b, 0].reshape(kv_heads, d)
        first = 0 if window < 0 else max(0, last + 1 - window)
        q = feed["q"][b].reshape(1, heads, 1, d)
        want = reference(q, k[:, :, first : last + 1], v[:, :, first : last + 1], d**-0.5)
        check(out["y"][b].reshape(1, heads, 1, d), want, t)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
def test_prompt_with_smooth_softmax(chip):
    """GroupQueryAttention over a prompt, causal, with a further score of 0 in every softmax."""
    t, heads, kv_heads, d, batch, s = np.float32, 4, 4, 20, 1, 37
    model = grouped_query(t, heads, kv_heads, d, 64, batch, smooth_softmax=1)
    feed = {
        "q": values(batch, s, heads * d),
        "k": values(batch, s, kv_heads * d, seed=1),
        "v": values(batch, s, kv_heads * d, seed=2),
        "pk": np.zeros((batch, kv_heads, 64, d), t),
        "pv": np.zeros((batch, kv_heads, 64, d), t),
        "lens": np.array([s - 1], np.int32),
        "total": np.array([s], np.int32),
    }
    (out,) = on_device(model, chip, feed)
    q, k, v = (feed[n].reshape(1, s, heads, d).transpose(0, 2, 1, 3) for n in "qkv")
    allowed = np.arange(s)[None, :] <= np.arange(s)[:, None]
    want = reference(q, k, v, d**-0.5, allowed, sink=0.0).transpose(0, 2, 1, 3).reshape(1, s, heads * d)
    check(out["y"], want, t)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=3)
def test_multi_head_attention_with_padding(chip):
    """MultiHeadAttention in packed layout, keys' lengths as data, an attention bias."""
    t, heads, d, batch = np.float16, 3, 64, 2
    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v", "", "lens", "bias"],
        ["y"],
        domain="com.microsoft",
        num_heads=heads,
        mask_filter_value=-30000.0,
    )
    model = model_of(
        [node],
        {
            "q": (t, [batch, "s", heads * d]),
            "k": (t, [batch, "t", heads * d]),
            "v": (t, [batch, "t", heads * d]),
            "lens": (np.int32, [batch]),
            "bias": (t, [1, heads, "s", "t"]),
        },
        {"y": (t, [batch, "s", heads * d])},
        opset=21,
    )
    s, n = 19, 75
    feed = {
        "q": values(batch, s, heads * d, dtype=t),
        "k": values(batch, n, heads * d, dtype=t, seed=1),
        "v": values(batch, n, heads * d, dtype=t, seed=2),
        "lens": np.array([75, 31], np.int32),
        "bias": values(1, heads, s, n, dtype=t, seed=3),
    }
    (out,) = on_device(model, chip, feed)
    q, k, v = (feed[x].reshape(batch, -1, heads, d).transpose(0, 2, 1, 3) for x in "qkv")
    allowed = (np.arange(n)[None, :] < feed["lens"][:, None])[:, None, None, :]
    want = reference(q, k, v, d**-0.5, allowed, feed["bias"].astype(np.float64))
    check(out["y"], want.transpose(0, 2, 1, 3).reshape(batch, s, heads * d), t)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1201"])
def test_as_exporters_write_it(chip):
    """Repeated key heads, a transposed key, a mask of the lowest float by Where, the softmax between two products."""
    t, heads, kv_heads, d = np.float32, 4, 2, 32
    lowest = float(np.finfo(np.float32).min)
    f = helper.make_node
    nodes = [
        f("Unsqueeze", ["k", "axis2"], ["k5"]),
        f("Expand", ["k5", "repeat"], ["kx"]),
        f("Reshape", ["kx", "flat"], ["kr"]),
        f("Unsqueeze", ["v", "axis2"], ["v5"]),
        f("Expand", ["v5", "repeat"], ["vx"]),
        f("Reshape", ["vx", "flat"], ["vr"]),
        f("Transpose", ["kr"], ["kt"], perm=[0, 1, 3, 2]),
        f("MatMul", ["q", "kt"], ["p"]),
        f("Div", ["p", "root"], ["scaled"]),
        f("Where", ["keep", "scaled", "low"], ["masked"]),
        f("Softmax", ["masked"], ["w"], axis=-1),
        f("MatMul", ["w", "vr"], ["o"]),
        f("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        f("Reshape", ["ot", "merge"], ["y"]),
    ]
    i64 = TensorProto.INT64
    initializers = [
        helper.make_tensor("axis2", i64, [1], [2]),
        helper.make_tensor("repeat", i64, [5], [1, 1, heads // kv_heads, 1, 1]),
        helper.make_tensor("flat", i64, [4], [0, heads, -1, d]),
        helper.make_tensor("merge", i64, [3], [0, 0, heads * d]),
        helper.make_tensor("root", TensorProto.FLOAT, [], [d**0.5]),
        helper.make_tensor("low", TensorProto.FLOAT, [], [lowest]),
    ]
    model = model_of(
        nodes,
        {
            "q": (t, ["b", heads, "s", d]),
            "k": (t, ["b", kv_heads, "t", d]),
            "v": (t, ["b", kv_heads, "t", d]),
            "keep": (np.bool_, [1, 1, "s", "t"]),
        },
        {"y": (t, ["b", "s", heads * d])},
        opset=17,
        initializers=initializers,
    )
    s, n = 18, 40
    keep = np.random.default_rng(5).random((1, 1, s, n)) < 0.5
    keep[:, :, 3] = False  # all equally low: the mean of all values
    feed = {
        "q": values(2, heads, s, d),
        "k": values(2, kv_heads, n, d, seed=1),
        "v": values(2, kv_heads, n, d, seed=2),
        "keep": keep,
    }
    (out,) = on_device(model, chip, feed)
    (host,) = [sardonyx.compile(model).run(feed)]
    k, v = feed["k"], feed["v"]
    want = reference(feed["q"], k, v, d**-0.5, keep)
    want[:, :, 3] = np.repeat(v.astype(np.float64), heads // kv_heads, 1).mean(2)
    check(out["y"], want.transpose(0, 2, 1, 3).reshape(2, s, heads * d), t)
    check(host["y"], want.transpose(0, 2, 1, 3).reshape(2, s, heads * d), t)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "host"])
def test_masked_rows_whose_nan_becomes_zero(chip):
    """Scores with 0 or minus infinity added, and after the softmax a Where of IsNaN: queries without keys give zeros."""
    t, heads, d, s, n = np.float32, 2, 32, 18, 40
    f = helper.make_node
    nodes = [
        f("Where", ["keep", "zero", "low"], ["bias"]),
        f("MatMul", ["q", "kt"], ["p"]),
        f("Mul", ["p", "factor"], ["scaled"]),
        f("Add", ["scaled", "bias"], ["masked"]),
        f("Softmax", ["masked"], ["w"], axis=-1),
        f("IsNaN", ["w"], ["bad"]),
        f("Where", ["bad", "zero", "w"], ["guarded"]),
        f("MatMul", ["guarded", "v"], ["y"]),
    ]
    scalar = lambda name, value: helper.make_tensor(name, TensorProto.FLOAT, [], [value])
    model = model_of(
        nodes,
        {
            "q": (t, ["b", heads, "s", d]),
            "kt": (t, ["b", heads, d, "t"]),
            "v": (t, ["b", heads, "t", d]),
            "keep": (np.bool_, ["b", 1, "s", "t"]),
        },
        {"y": (t, ["b", heads, "s", d])},
        opset=20,
        initializers=[scalar("zero", 0.0), scalar("low", -np.inf), scalar("factor", d**-0.5)],
    )
    keep = np.random.default_rng(5).random((2, 1, s, n)) < 0.5
    keep[:, :, 3] = False
    keep[1, :, 5] = False
    k = values(2, heads, n, d, seed=1)
    feed = {
        "q": values(2, heads, s, d),
        "kt": np.ascontiguousarray(k.swapaxes(2, 3)),
        "v": values(2, heads, n, d, seed=2),
        "keep": keep,
    }
    compiled = sardonyx.compile(model, device="host" if chip == "host" else f"sim:{chip}")
    assert attention_kernels(compiled) >= 1
    got = compiled.run(feed)["y"]
    check(got, reference(feed["q"], k, feed["v"], d**-0.5, keep), t)
    assert not got[:, :, 3].any() and not got[1, :, 5].any() and got[0, :, 5].any()


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_expanded_masks_and_scaled_operands(chip):
    """A mask of keys that is expanded for all queries and used by two attentions; queries and keys that are each multiplied
    by the root of the scale. All of it is part of the attention kernels but the mask, which is kept once for each key."""
    t, heads, d = np.float32, 3, 32
    f = helper.make_node
    nodes = [
        f("Unsqueeze", ["mask", "axes"], ["m4"]),
        f("Shape", ["x"], ["n1"], start=1, end=2),
        f("Concat", ["one", "one", "n1", "one"], ["full"], axis=0),
        f("Expand", ["m4", "full"], ["expanded"]),
        f("Where", ["expanded", "unit", "tiny"], ["kept"]),
        f("Log", ["kept"], ["bias"]),  # too dear to be computed for every score
    ]
    for k in "ab":
        source = "x" if k == "a" else "ya"
        nodes += [
            f("Reshape", [source, "split"], ["s" + k]),
            f("Transpose", ["s" + k], ["q" + k], perm=[0, 2, 1, 3]),
            f("Transpose", ["s" + k], ["k" + k], perm=[0, 2, 3, 1]),
            f("Mul", ["q" + k, "root"], ["qs" + k]),
            f("Mul", ["k" + k, "root"], ["ks" + k]),
            f("MatMul", ["qs" + k, "ks" + k], ["p" + k]),
            f("Add", ["p" + k, "bias"], ["pm" + k]),
            f("Softmax", ["pm" + k], ["w" + k], axis=-1),
            f("MatMul", ["w" + k, "q" + k], ["o" + k]),
            f("Transpose", ["o" + k], ["ot" + k], perm=[0, 2, 1, 3]),
            f("Reshape", ["ot" + k, "merge"], ["y" + k]),
        ]
    i64 = TensorProto.INT64
    initializers = [
        helper.make_tensor("axes", i64, [2], [1, 2]),
        helper.make_tensor("one", i64, [1], [1]),
        helper.make_tensor("split", i64, [4], [0, 0, heads, d]),
        helper.make_tensor("merge", i64, [3], [0, 0, heads * d]),
        helper.make_tensor("unit", TensorProto.FLOAT, [], [1.0]),
        helper.make_tensor("tiny", TensorProto.FLOAT, [], [1e-30]),
        helper.make_tensor("root", TensorProto.FLOAT, [], [d**-0.25]),
    ]
    model = model_of(
        nodes,
        {"x": (t, ["b", "s", heads * d]), "mask": (np.bool_, ["b", "s"])},
        {"yb": (t, ["b", "s", heads * d])},
        opset=17,
        initializers=initializers,
    )
    x, mask = values(2, 21, heads * d), np.random.default_rng(3).random((2, 21)) < 0.7
    compiled = sardonyx.compile(model, device=f"sim:{chip}")
    assert attention_kernels(compiled) >= 1
    loops = [k for k in compiled.kernels() if k.kind == "loop"]
    assert len(loops) == 1, [k.name for k in loops]
    # Two sequences of 2048: a mask for every query would be 32 MiB.
    assert compiled.memory(b=2, s=2048).arena < 16 << 20
    y = x
    for _ in range(2):
        s = y.reshape(2, 21, heads, d).transpose(0, 2, 1, 3)
        y = (
            reference(s, s, s, d**-0.5, bias=np.log(np.where(mask, 1, 1e-30))[:, None, None, :])
            .transpose(0, 2, 1, 3)
            .reshape(2, 21, heads * d)
        )
    check(compiled.run({"x": x, "mask": mask})["yb"], y, t)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_heads_of_all_sequences_in_one_dim(chip):
    """Scores by baddbmm, over sequences times heads, and values with both as dims of their own."""
    h, s, d = 2, 40, 32
    shapes = {
        "merged": [-1, s, d],
        "transposed": [0, 2, 1],
        "apart": [-1, h, s, s],
        "pairs": [-1, s, s],
    }
    ints = [helper.make_tensor(n, TensorProto.INT64, [len(x)], x) for n, x in shapes.items() if n != "transposed"]
    ints.append(helper.make_tensor("scale", TensorProto.FLOAT, [], [d**-0.5]))
    ints.append(helper.make_tensor("mask", TensorProto.FLOAT, [s, s], np.triu(np.full((s, s), -1e4), 1).ravel()))
    nodes = [
        helper.make_node("Reshape", ["q", "merged"], ["q3"]),
        helper.make_node("Reshape", ["k", "merged"], ["k3"]),
        helper.make_node("Transpose", ["k3"], ["kt"], perm=shapes["transposed"]),
        helper.make_node("MatMul", ["q3", "kt"], ["product"]),
        helper.make_node("Mul", ["product", "scale"], ["scaled"]),
        helper.make_node("Reshape", ["scaled", "apart"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    shape = ["batch", h, s, d]
    model = model_of(nodes, dict.fromkeys("qkv", (np.float32, shape)), {"y": (np.float32, shape)}, 18, ints)
    feed = {n: values(3, h, s, d, seed=i) for i, n in enumerate("qkv")}
    (got,) = on_device(model, chip, feed)
    want = reference(*feed.values(), d**-0.5, bias=np.triu(np.full((s, s), -1e4), 1))
    np.testing.assert_allclose(got["y"], want, rtol=0, atol=TOLERANCE[np.float32])


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_transposed_keys_of_a_gemm(chip, precision):
    """Keys that a loop computes and transposes, for scores that are stored because something else reads them."""
    b, t, h, d = 2, 50, 3, 32
    nodes = [
        helper.make_node("Sin", ["k"], ["turned"]),
        helper.make_node("Add", ["turned", "k"], ["both"]),
        helper.make_node("Transpose", ["both"], ["kt"], perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["q"], ["qt"], perm=[0, 2, 1, 3]),
        helper.make_node("MatMul", ["qt", "kt"], ["scores"]),
        helper.make_node("Tanh", ["scores"], ["y"]),
    ]
    shape = ["batch", t, h, d]
    outputs = {"y": (np.float32, ["batch", h, t, t])}
    compiled = sardonyx.compile(
        model_of(nodes, dict.fromkeys("qk", (np.float32, shape)), outputs, 18),
        device=f"sim:{chip}",
        precision=precision,
    )
    q, k = values(b, t, h, d), values(b, t, h, d, seed=1)
    got = compiled.run({"q": q, "k": k})["y"]
    want = np.tanh(np.einsum("bihd,bjhd->bhij", q.astype(np.float64), k + np.sin(k.astype(np.float64))))
    # A sum of 32 products of about 1, whose operands float16 rounds to 11 bits, before the tangent (slope at most 1).
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 if precision == "fp32" else 3e-2)
