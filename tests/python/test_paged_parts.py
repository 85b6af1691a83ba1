"""PagedAttention of parts of prompts, 64 tokens each, beside answers: the step in which the engine computes both. A small case on the
host and on simulated GPUs; on a real NVIDIA GPU, if there is one, those that fill it, where a thread block computes two heads that
share keys. The reference is NumPy, in float64.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
PART = 64
# Results are averages of values of order 1, which are rounded to 11 bits, as are the probabilities.
TOLERANCE = 4e-3

#: heads, heads of keys, elements of a head, rows of a page, window, tokens in the cache of answers, and of parts (which are sequences);
#: tokens of the last part
SMALL = [(4, 2, 32, 16, -1, [20], [0, 70]), (2, 2, 64, 48, 30, [], [100])]
FEWER = [  # 64 and 128 tokens in all; the least; no answer
    (4, 2, 32, 16, -1, [20, 7, 0, 31, 64, 1, 2, 3], [70], 56),
    (4, 2, 64, 16, -1, [20, 7, 0, 31, 64, 1, 2, 3], [0, 64], 56),
    (4, 2, 32, 32, -1, [90], [5, 69], 2),
    (4, 4, 32, 16, 30, [], [0, 64], 33),
]
LARGE = [
    (32, 8, 64, 64, -1, [500, 3], [512 + PART * k for k in range(7)]),
    (32, 8, 128, 64, -1, [], [512 + PART * k for k in range(7)]),
    (32, 8, 128, 64, -1, [9], [100]),  # too few for two heads in a block
    (16, 8, 96, 32, 200, [], [PART * k for k in range(12)]),
    (24, 8, 64, 16, -1, [], [7 + PART * k for k in range(8)]),  # three heads share keys
    (32, 8, 128, 128, 300, [], [1000 + PART * k for k in range(6)]),
    (32, 8, 64, 256, -1, [1], [33 + PART * k for k in range(6)]),
    (32, 8, 64, 48, -1, [], [33 + PART * k for k in range(6)]),  # pages whose rows are no power of two
    (32, 8, 128, 64, -1, [500, 3, 9, 77, 1000, 64, 0, 5], [512], 56),
    (32, 8, 128, 64, -1, [500, 3, 9, 77, 1000, 64, 0, 5], [512 + PART * k for k in range(8)], 56),
    (32, 8, 64, 64, -1, [500, 3, 9, 77, 1000, 64, 0, 5], [PART * k for k in range(8)], 56),
]
CASES = [(d, s) for d in ("host", "sim:gfx942", "sim:gfx1100") for s in SMALL + FEWER] + [
    (d, s) for d in NVIDIA for s in SMALL + FEWER + LARGE
]


def make_model(heads, kv_heads, size, rows, window):
    half, whole = onnx.TensorProto.FLOAT16, onnx.TensorProto.INT32
    cache = ["pages", rows, kv_heads, size]
    inputs = {"x": (half, ["tokens", (heads + 2 * kv_heads) * size]), "keys": (half, cache), "values": (half, cache)}
    inputs |= {"cumulative": (whole, ["ends"]), "past": (whole, ["sequences"])}
    inputs |= {"table": (whole, ["sequences", "columns"])}
    outputs = {"y": (half, ["tokens", heads * size]), "new_keys": (half, cache), "new_values": (half, cache)}
    node = helper.make_node(
        "PagedAttention", ["x", "", "", "keys", "values", "cumulative", "past", "table"], list(outputs),
        domain="com.sardonyx", num_heads=heads, kv_num_heads=kv_heads, local_window_size=window, prompt=PART,
    )  # fmt: skip
    tensors = [[helper.make_tensor_value_info(n, *x) for n, x in part.items()] for part in (inputs, outputs)]
    graph = helper.make_graph([node], "parts", *tensors)
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.sardonyx", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def feed_of(heads, kv_heads, size, rows, _, answers, parts, last=PART):
    """Each answer has pages of its own, and all parts have those of one prompt."""
    rng = np.random.default_rng(1)
    past, new = [*answers, *parts], [1] * len(answers) + [PART] * (len(parts) - 1) + [last]
    owner = [*range(len(answers)), *[len(answers)] * len(parts)]
    columns = max((p + n - 1) // rows + 1 for p, n in zip(past, new, strict=True))
    pages = 1 + columns * (len(answers) + 1)
    table = (1 + rng.permutation(pages - 1)).reshape(-1, columns)[owner].astype(np.int32)
    shape = (pages, rows, kv_heads, size)
    return {
        "x": rng.standard_normal((sum(new), (heads + 2 * kv_heads) * size)).astype(np.float16),
        "keys": rng.standard_normal(shape).astype(np.float16),
        "values": rng.standard_normal(shape).astype(np.float16),
        "cumulative": np.cumsum([0, *new]).astype(np.int32),
        "past": np.array(past, np.int32),
        "table": table,
    }


def reference(feed, heads, kv_heads, size, rows, window):
    ends, past = feed["cumulative"], feed["past"]
    q, k, v = np.split(feed["x"].astype(np.float64), [heads * size, (heads + kv_heads) * size], 1)
    caches = [feed[n].astype(np.float64) for n in ("keys", "values")]
    places = [past[b] + np.arange(ends[b + 1] - ends[b]) for b in range(len(past))]
    for b, own in enumerate(places):
        for cache, x in zip(caches, (k, v), strict=True):
            cache[feed["table"][b, own // rows], own % rows] = x[ends[b] : ends[b + 1]].reshape(-1, kv_heads, size)
    y = np.zeros((len(q), heads * size))
    for b, own in enumerate(places):
        seen = np.arange(own[-1] + 1)
        keys, values = (c[feed["table"][b, seen // rows], seen % rows] for c in caches)
        queries = q[ends[b] : ends[b + 1]].reshape(len(own), kv_heads, -1, size)
        scores = np.einsum("shgd,thd->shgt", queries, keys) * size**-0.5
        allowed = seen <= own[:, None]
        if window > 0:
            allowed &= seen > own[:, None] - window
        scores = np.where(allowed[:, None, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = np.einsum("shgt,thd->shgd", weights / weights.sum(-1, keepdims=True), values)
        y[ends[b] : ends[b + 1]] = found.reshape(len(own), -1)
    return y


@pytest.mark.parametrize(("device", "shape"), CASES)
@pytest.mark.slow(part=3)
def test_parts_of_prompts(device, shape):
    feed = feed_of(*shape)
    want = reference(feed, *shape[:5])
    model = sardonyx.compile(make_model(*shape[:5]).SerializeToString(), device=device)
    np.testing.assert_allclose(model.run(feed)["y"].astype(np.float64), want, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("heads", "pairs"), [(32, True), (24, False), (8, False)])
def test_two_heads_in_a_block(heads, pairs):
    """If an even number of heads shares keys: by the shared memory (layout_attention.h) of 128 queries, and tiles of 128 keys and values,
    of which there are two and three."""
    report = sardonyx.code_report(make_model(heads, 8, 128, 64, -1).SerializeToString(), "sm_90a")
    assert any(k.lds_bytes == (128 + 5 * 128) * 128 * 2 for k in report) == pairs


def test_queries_are_read_in_place():
    """Though the last part may repeat a row: loops compute where new rows are stored, store them, and join both results."""
    report = sardonyx.code_report(make_model(32, 8, 128, 64, -1).SerializeToString(), "sm_90a")
    assert sum(k.kernel.startswith("k") for k in report) == 3, [k.kernel for k in report]
