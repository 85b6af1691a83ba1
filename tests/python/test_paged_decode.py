"""PagedAttention of one new token for each of many sequences, which may differ much in length: the step that the engine runs most. A
small case on the host and on simulated GPUs; those of many pages on a real NVIDIA GPU, if there is one, whose kernel divides the
keys among clusters of workgroups. The reference is NumPy, in float64.
"""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
# Results are averages of values of order 1, which are rounded to 11 bits, as are the probabilities.
TOLERANCE = 4e-3

#: heads, heads of keys, elements of a head, rows of a page, window, columns of the table, tokens of each sequence
SMALL = [
    (4, 2, 64, 16, -1, 6, [0, 80, 31]),
    (4, 4, 32, 8, 20, 6, [5, 40]),
]
LARGE = [
    (32, 8, 64, 64, -1, 8, [300]),  # one sequence: clusters of 8
    (32, 8, 64, 64, -1, 128, [8000]),  # and the keys in parts
    (32, 8, 64, 64, -1, 128, [4600, 3, 64, 63, 65]),  # clusters of 4
    (32, 8, 64, 64, -1, 80, [(37 * k * k) % 5000 for k in range(64)]),
    (32, 8, 128, 64, -1, 64, [(91 * k) % 3000 for k in range(20)]),
    (4, 4, 64, 16, -1, 40, [0, 1, 15, 16, 17, 600]),
    (8, 2, 96, 32, -1, 40, [1000, 0, 500]),
    (8, 2, 80, 48, -1, 30, [1000, 0, 500]),
    (32, 8, 64, 64, 100, 40, [2000, 50, 99, 100, 101]),
    (32, 8, 64, 64, -1, 16, [(37 * k * k) % 1023 for k in range(40)]),  # workgroups of their own
    (32, 8, 128, 64, 100, 16, [(37 * k * k) % 1023 for k in range(20)]),
    (32, 8, 64, 64, 700, 40, [(53 * k * k) % 2500 for k in range(20)]),  # clusters of 2, and keys before the window
    (24, 8, 96, 32, 90, 40, [(53 * k * k) % 1200 for k in range(12)]),
    (32, 8, 64, 8, -1, 40, [300, 7]),  # pages smaller than a tile: another kernel
]
WHERE = [(d, s) for d in ("host", "sim:gfx942", "sim:gfx1100") for s in SMALL]
WHERE += [(d, s) for d in NVIDIA for s in SMALL + LARGE]


#: The same with one_token, and so with rotation and appending in the kernel of attention where it is one of clusters.
CASES = [(*c, False) for c in WHERE] + [(*c, True) for c in WHERE]
POSITIONS = 8192  # of the tables of the rotary embedding


def make_model(heads, kv_heads, size, rows, window, one_token=False):
    cache = ["pages", rows, kv_heads, size]
    half, whole = onnx.TensorProto.FLOAT16, onnx.TensorProto.INT32
    inputs = {"x": (half, ["tokens", (heads + 2 * kv_heads) * size]), "keys": (half, cache), "values": (half, cache)}
    inputs |= {
        "cumulative": (whole, ["ends"]),
        "past": (whole, ["sequences"]),
        "table": (whole, ["sequences", "columns"]),
    }
    node = helper.make_node(
        "PagedAttention", ["x", "", "", "keys", "values", "cumulative", "past", "table"], ["y", "new_keys", "new_values"],
        domain="com.microsoft", num_heads=heads, kv_num_heads=kv_heads, local_window_size=window,
    )  # fmt: skip
    if one_token:
        node.domain = "com.sardonyx"
        node.input.extend(["cos", "sin"])
        node.attribute.extend([helper.make_attribute(n, 1) for n in ("one_token", "do_rotary")])
        inputs |= {n: (half, [POSITIONS, size // 2]) for n in ("cos", "sin")}
    outputs = {"y": (half, ["tokens", heads * size]), "new_keys": (half, cache), "new_values": (half, cache)}
    tensors = [[helper.make_tensor_value_info(n, *x) for n, x in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph([node], "decode", *tensors)
    versions = [helper.make_opsetid("", 21), *(helper.make_opsetid(n, 1) for n in ("com.microsoft", "com.sardonyx"))]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def rotated(x, feed, size):
    """Rounded to float16, as the cache stores keys."""
    cos, sin = (feed[n][feed["past"]].astype(np.float64)[:, None] for n in ("cos", "sin"))
    low, high = np.split(x.reshape(len(x), -1, size), 2, 2)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], 2).astype(np.float16).astype(np.float64)


def reference(feed, shape):
    """The output and the caches."""
    heads, kv_heads, size, rows, window, _, past = shape
    keys, values = feed["keys"].astype(np.float64), feed["values"].astype(np.float64)
    q, k, v = np.split(feed["x"].astype(np.float64), [heads * size, (heads + kv_heads) * size], 1)
    if "cos" in feed:
        q, k = (rotated(x, feed, size).reshape(len(past), -1) for x in (q, k))
    y = np.zeros((len(past), heads * size))
    for b, count in enumerate(past):
        places = np.arange(count + 1)
        pages, row = feed["table"][b, places // rows], places % rows
        keys[pages[-1], row[-1]], values[pages[-1], row[-1]] = (
            k[b].reshape(kv_heads, size),
            v[b].reshape(kv_heads, size),
        )
        seen = slice(max(0, count + 1 - window) if window > 0 else 0, None)
        own_keys, own_values = keys[pages, row][seen], values[pages, row][seen]
        queries = q[b].reshape(kv_heads, heads // kv_heads, size)
        scores = np.einsum("hgd,thd->hgt", queries, own_keys) * size**-0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = np.einsum("hgt,thd->hgd", weights, own_values) / weights.sum(-1)[..., None]
        y[b] = found.reshape(-1)
    return y, keys, values


@pytest.mark.parametrize(("device", "shape", "one_token"), CASES)
def test_one_token_each(device, shape, one_token):
    heads, kv_heads, size, rows, _, columns, past = shape
    rng, count = np.random.default_rng(1), len(past)
    feed = {
        "x": rng.standard_normal((count, (heads + 2 * kv_heads) * size)).astype(np.float16),
        "keys": rng.standard_normal((count * columns + 1, rows, kv_heads, size)).astype(np.float16),
        "values": rng.standard_normal((count * columns + 1, rows, kv_heads, size)).astype(np.float16),
        "cumulative": np.arange(count + 1, dtype=np.int32),
        "past": np.array(past, np.int32),
        "table": (1 + rng.permutation(count * columns)).reshape(count, columns).astype(np.int32),
    }
    if one_token:
        angles = np.arange(POSITIONS)[:, None] * 1e4 ** -(np.arange(size // 2) * 2 / size)
        feed |= {"cos": np.cos(angles).astype(np.float16), "sin": np.sin(angles).astype(np.float16)}
    want = reference(feed, shape)
    for b, n in enumerate(past):  # rows that no sequence has filled, and pages that it does not have
        feed["table"][b, n // rows + 1 :] = 0
    feed["keys"][0] = feed["values"][0] = np.nan
    model = sardonyx.compile(make_model(*shape[:5], one_token).SerializeToString(), device=device)
    got = model.run(feed)
    np.testing.assert_allclose(got["y"].astype(np.float64), want[0], rtol=0, atol=TOLERANCE)
    # Keys that were rotated differ by a rounding where float32 and float64 fall on two sides of one.
    error = 2.0**-10 if one_token else 0
    for name, cache in zip(("new_keys", "new_values"), want[1:]):
        np.testing.assert_allclose(got[name][1:], cache.astype(np.float16)[1:], rtol=error, atol=error / 16)


def test_one_kernel_rotates_appends_and_attends():
    """On Hopper, as many more kernels of clusters of 8, 4, 2 and 1, which have the new row in shared memory."""
    counts = []
    for one_token in (False, True):
        model = make_model(32, 8, 64, 64, -1, one_token).SerializeToString()
        counts.append(len([k for k in sardonyx.code_report(model, "sm_90a") if k.lds_bytes > 32768]))
    assert counts[1] == counts[0] + 4


@pytest.mark.parametrize(("rows", "clusters"), [(64, True), (16, True), (8, False)])
def test_kernels_of_hopper(rows, clusters):
    """Pages of whole tiles of 16 rows take the kernel whose workgroups divide the keys in clusters of 8 or fewer: by its shared memory
    (layout_attention.h) of each warp's tiles of 64 keys and values, one or two."""
    model = make_model(32, 8, 64, rows, -1).SerializeToString()
    shared = {k.lds_bytes for k in sardonyx.code_report(model, "sm_90a")}
    tiles = {8: 8 * 2 * 16 * 64 * 2, 4: 2 * 8 * 2 * 16 * 64 * 2}
    for size in tiles.values():
        assert any(size <= n < size + 4096 for n in shared) == clusters, shared


@pytest.mark.parametrize(("size", "bounded"), [(64, True), (128, False)])
def test_registers_allow_three_workgroups(tmp_path, size, bounded):
    """With many sequences, memory is the limit of the kernel that rotates, appends and attends: three of its workgroups fit on a
    multiprocessor. With longer heads it would have to spill registers for that."""
    onnx.save(make_model(32, 8, size, 64, -1, True), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    kernels = re.split(r"(?=\.visible \.entry)", text)[1:]
    assert any("attention" in k[:80] and ".minnctapersm 3" in k for k in kernels) == bounded
