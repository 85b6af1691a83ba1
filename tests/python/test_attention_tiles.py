"""Attention of heads of 64 and 128 elements in 16 bits: every kind of limit and bias of scores, sizes that fill whole tiles and sizes that do
not. Some small cases on simulated GPUs, all of them on a real NVIDIA GPU, if there is one. The reference is NumPy, in float64.
"""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper
from test_gpu_attention import grouped_query, model_of, reference, values

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
SIMULATED = ["sim:gfx942", "sim:gfx1100"]
# Weights and results are rounded to 11 bits, and results are below 4.
TOLERANCE = 4e-3
F16 = np.float16

#: batch, heads, heads of keys, queries, keys, elements of a head
SMALL = [(1, 2, 1, 70, 133, 64)]
LARGE = [
    (2, 3, 3, 197, 197, 64),
    (1, 4, 2, 130, 257, 128),
    (9, 8, 8, 300, 520, 64),
    (8, 12, 3, 129, 100, 128),
    (1, 2, 2, 1500, 1500, 64),
    (1, 2, 1, 64, 1000, 128),
]
# One query a sequence: clusters of 8 workgroups and of 4, keys in parts, tiles that are not full, a head of another size.
ONE_QUERY = [
    (8, 32, 8, 1, 4096, 64),
    (1, 32, 8, 1, 4100, 64),
    (1, 2, 2, 1, 5000, 128),
    (40, 8, 2, 1, 37, 64),
    (3, 4, 4, 1, 1, 64),
    (2, 6, 2, 1, 333, 96),
]
# Enough keys for the loop over whole tiles, in which CDNA computes the scores of the next tile ahead.
LONG = [
    (d, s)
    for d in ["sim:gfx90a", "sim:gfx942", "sim:gfx950"]
    for s in [(1, 2, 1, 150, 450, 64), (1, 1, 1, 70, 300, 128)]
]
# CDNA, the kernel of many queries: with too few tiles to fill the compute units waves have 16 queries, with more 32.
MANY = [
    ("sim:gfx942", (2, 32, 1, 35, 450, 64)),
    pytest.param("sim:gfx950", (2, 32, 1, 35, 300, 128), marks=pytest.mark.slow),
    pytest.param("sim:gfx942", (3, 52, 1, 40, 450, 64), marks=pytest.mark.slow),
]
WHERE = [(d, s) for d in SIMULATED for s in SMALL] + [(d, s) for d in NVIDIA for s in SMALL + LARGE + ONE_QUERY]


def operands(size):
    b, heads, kv_heads, s, t, d = size
    shapes = {"q": (b, heads, s, d), "k": (b, kv_heads, t, d), "v": (b, kv_heads, t, d)}
    return {n: values(*shape, dtype=F16, seed=i) for i, (n, shape) in enumerate(shapes.items())}


def run(device, feed, size, mask=None, **attributes):
    names = ["q", "k", "v"] + ["mask"] * (mask is not None)
    if mask is not None:
        feed = feed | {"mask": mask}
    node = helper.make_node("Attention", names, ["y"], **attributes)
    shape = [*feed["q"].shape[:3], size[5]]
    model = model_of([node], {n: (feed[n].dtype.type, list(feed[n].shape)) for n in names}, {"y": (F16, shape)})
    return sardonyx.compile(model, device=device).run(feed)["y"].astype(np.float64)


@pytest.mark.parametrize(("device", "size"), WHERE + LONG + MANY)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.slow(part=3)
def test_plain_and_causal(device, size, causal):
    feed = operands(size)
    allowed = np.arange(size[4])[None, :] <= np.arange(size[3])[:, None] if causal else True
    want = reference(*feed.values(), size[5] ** -0.5, allowed)
    np.testing.assert_allclose(run(device, feed, size, is_causal=int(causal)), want, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("device", "size"), WHERE)
@pytest.mark.parametrize("kind", ["float", "lowest", "bool"])
def test_masks_that_are_the_same_for_all_queries(device, size, kind):
    """Biases, of which some are as low as the type has them or -inf, and lists of the keys that count."""
    feed, (b, _, _, _, t, d) = operands(size), size
    off = np.random.default_rng(5).random((b, 1, 1, t)) < 0.3
    off[..., 0] = False
    bias = values(b, 1, 1, t, dtype=F16, seed=7)
    if kind == "bool":
        got, want = run(device, feed, size, ~off), reference(*feed.values(), d**-0.5, ~off)
    else:
        bias = np.where(off, F16(-np.inf if kind == "float" else np.finfo(F16).min), bias)
        got, want = run(device, feed, size, bias), reference(*feed.values(), d**-0.5, ~off, np.where(off, 0, bias))
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("device", "size"), WHERE)
def test_keys_that_are_all_masked_alike(device, size):
    """Every score is the lowest float32 there is: all keys weigh the same, as softmax defines it."""
    feed, (b, _, _, _, t, _) = operands(size), size
    got = run(device, feed, size, np.full((b, 1, 1, t), np.finfo(np.float32).min, np.float32))
    want = reference(feed["q"], feed["k"], feed["v"], 0.0)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("device", "size"), WHERE)
@pytest.mark.parametrize("window", [-1, 33])
def test_prompt_with_a_cache(device, size, window):
    """GroupQueryAttention over a prompt: limits of every row, a further score, NaN in what the cache has not filled."""
    b, heads, kv_heads, s, _, d = size
    room = s + 90
    model = grouped_query(F16, heads, kv_heads, d, room, b, local_window_size=window, smooth_softmax=1)
    lengths = np.array([s - 1 - 13 * (i % 3) for i in range(b)], np.int32)
    feed = {
        "q": values(b, s, heads * d, dtype=F16),
        "k": values(b, s, kv_heads * d, dtype=F16, seed=1),
        "v": values(b, s, kv_heads * d, dtype=F16, seed=2),
        "pk": np.full((b, kv_heads, room, d), np.nan, F16),
        "pv": np.full((b, kv_heads, room, d), np.nan, F16),
        "lens": lengths,
        "total": np.array([s], np.int32),
    }
    got = sardonyx.compile(model, device=device).run(feed)["y"].astype(np.float64)
    q = feed["q"].reshape(b, s, heads, d).transpose(0, 2, 1, 3)
    k, v = (feed[n].reshape(b, s, kv_heads, d).transpose(0, 2, 1, 3) for n in "kv")
    row, key = np.arange(s)[:, None], np.arange(s)[None, :]
    allowed = (key <= row) & ((row - key < window) | (window < 0))
    want = reference(q, k, v, d**-0.5, allowed, sink=0.0).transpose(0, 2, 1, 3).reshape(b, s, heads * d)
    for i, last in enumerate(lengths):  # rows after a sequence's last token are padding
        np.testing.assert_allclose(got[i, : last + 1], want[i, : last + 1], rtol=0, atol=TOLERANCE)


def test_code_for_hopper(tmp_path):
    """sm_90a's asynchronous matrix instructions, chosen by type, size of a head and form of the mask."""

    def products(d, kind, mask=None, **attributes):
        shape = [2, 2, 256, d]
        infos = {"q": (kind, shape), "k": (kind, shape), "v": (kind, shape)} | ({"mask": (kind, mask)} if mask else {})
        model = model_of([helper.make_node("Attention", list(infos), ["y"], **attributes)], infos, {"y": (kind, shape)})
        onnx.save(model, tmp_path / "m.onnx")
        cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
        return (tmp_path / "m.sdx").read_bytes().count(b"wgmma.mma_async")

    assert products(64, F16) and products(128, F16, is_causal=1) and products(64, F16, mask=[2, 1, 1, 256])
    # other heads are padded; a bias of every score is read two elements at a time, of odd rows too
    assert products(32, F16) and products(80, F16)
    assert products(64, F16, mask=[2, 1, 256, 256]) and products(128, F16, mask=[1, 2, 256, 256])
    # scores that are computed one by one, a small head, and a type without such instructions: attention.h
    assert not products(128, F16, softcap=5.0) and not products(24, F16) and not products(64, np.float32)


def test_one_query_on_hopper(tmp_path):
    """The clusters of a decoder's step (attention_step_mma.h) where keys lie as its cache does; else attention.h's kernel for few rows."""

    def clusters(q, k, arch="sm_90a", kind=F16):
        infos = {"q": (kind, q), "k": (kind, k), "v": (kind, k)}
        model = model_of([helper.make_node("Attention", list(infos), ["y"])], infos, {"y": (kind, q)})
        onnx.save(model, tmp_path / "m.onnx")
        cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
        return sorted(set(re.findall(rb"reqnctapercluster (\d)", (tmp_path / "m.sdx").read_bytes())))

    assert clusters([1, 32, 1, 64], [1, 8, 512, 64]) == [b"8"]
    assert clusters([8, 32, 1, 64], [8, 8, 512, 64]) == [b"4"]
    assert clusters([12, 32, 1, 64], [12, 8, 512, 64]) == [b"2"]
    assert clusters([17, 32, 1, 64], [17, 8, 512, 64]) == []  # workgroups of their own, without clusters
    assert clusters([17, 32, 1, 64], [17, 8, 2048, 64]) == [b"2"]
    assert clusters(["batch", 32, "queries", 64], ["batch", 8, "keys", 64]) == [b"2", b"4", b"8"]
    assert clusters([1, 32, 2, 64], [1, 8, 512, 64]) == []
    assert clusters([1, 32, 1, 64], [1, 8, 512, 64], arch="sm_90") == []
    assert clusters([1, 32, 1, 64], [1, 8, 512, 64], kind=np.float32) == []
