"""Attention whose keys and values go straight to LDS, on a simulated MI350X (kernels/attention_direct.h). The reference is NumPy, in float64."""

import re

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper
from test_gpu_attention import model_of, reference, values

CHIP = "sim:gfx950"
# 64 to 128 tiles of 128 queries make small tiles, more make large ones.
BATCH = {"small": 2, "large": 5}
HEADS, QUERIES = 32, 35


def model(length, size, batch, of, heads=HEADS, queries=QUERIES, **attributes):
    shapes = {"q": (batch, heads, queries, size), "k": (batch, 1, length, size), "v": (batch, 1, length, size)}
    node = helper.make_node("Attention", list(shapes), ["y"], **attributes)
    made = model_of([node], {n: (of, list(s)) for n, s in shapes.items()}, {"y": (of, list(shapes["q"]))})
    return made, {n: values(*s, dtype=of, seed=i) for i, (n, s) in enumerate(shapes.items())}


def check(made, feed, allowed, tolerance):
    got = sardonyx.compile(made, device=CHIP).run(feed)["y"].astype(np.float64)
    want = reference(*(x.astype(np.float64) for x in feed.values()), feed["q"].shape[3] ** -0.5, allowed)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


# Fewer tiles of 64 keys than are on their way, as many, and more, with and without a partial one.
@pytest.mark.parametrize("length", [30, 64, 100, 192, 256, 300, 448, 520])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("tiles", [pytest.param("small"), pytest.param("large", marks=pytest.mark.slow)])
@pytest.mark.slow(part=3)
def test_lengths(tiles, size, length):
    # Weights and results are rounded to 11 bits, and results are below 4.
    check(*model(length, size, BATCH[tiles], np.float16), True, 4e-3)


# Keys that no score is masked of, then tiles of which some are.
@pytest.mark.parametrize("heads", [24, 48])
@pytest.mark.parametrize("size", [64, 128])
def test_causal(heads, size):
    made, feed = model(300, size, 1, np.float16, heads=heads, queries=300, is_causal=1)
    check(made, feed, np.tri(300, dtype=bool), 4e-3)


# The maxima of scores grow from tile to tile, so accumulators are rescaled in the main loop.
@pytest.mark.parametrize("tiles", BATCH)
@pytest.mark.parametrize("size", [64, 128])
def test_growing_scores(tiles, size):
    made, feed = model(640, size, BATCH[tiles], np.float16)
    feed["k"] = (feed["k"] * np.linspace(0.1, 8, 640)[:, None]).astype(np.float16)
    check(made, feed, True, 4e-3)


@pytest.mark.parametrize("tiles", BATCH)
@pytest.mark.parametrize("size", [64, 128])
def test_bfloat16_and_causal(tiles, size):
    made, feed = model(448, size, BATCH[tiles], ml_dtypes.bfloat16, is_causal=1)
    allowed = np.arange(448)[None, :] <= np.arange(QUERIES)[:, None]
    check(made, feed, allowed, 3.2e-2)  # 8 bits instead of 11


@pytest.mark.parametrize("tiles", BATCH)
def test_form(tiles, tmp_path):
    onnx.save(model(448, 128, BATCH[tiles], np.float16)[0], tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", CHIP, "--kernels", "--source")
    found = re.findall(r"attention<P, (\w+)>", text)
    assert found == [{"small": "kSmallTiles", "large": "false"}[tiles]]
