"""Random graphs (random_graphs.py, which can run as many as wanted) on the host and on simulated GPUs; SARDONYX_TEST_DEVICE names a card."""

import os

import pytest
from random_graphs import TOLERANCE, error_of, random_model

CARD = os.environ.get("SARDONYX_TEST_DEVICE", "")
DEVICES = [CARD] if CARD else ["host", "sim:gfx942", "sim:gfx1100", "sim:gfx1201"]
GRAPHS = 8


@pytest.mark.parametrize("first", range(0, 40 if CARD else 16, GRAPHS))
@pytest.mark.parametrize("kind", sorted(TOLERANCE))
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow(part=3)
def test_random_graphs(device, kind, first):
    wrong = []
    for seed in range(first, first + GRAPHS):
        error, where = error_of(random_model(seed, kind), seed, device)
        if not error <= TOLERANCE[kind]:
            wrong.append(f"seed {seed}: {where}: {error:.3g}")
    assert not wrong


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow(part=3)
def test_random_graphs_with_symbols(device, kind):
    """Compiled once, run at several sizes. A third of the graphs suit other sizes than their own."""
    tried, wrong = 0, []
    for seed in range(100, 220 if CARD else 124):
        error, where = error_of(random_model(seed, kind, symbolic=True), seed, device)
        tried += where != "no size"
        if not error <= TOLERANCE[kind]:
            wrong.append(f"seed {seed}: {where}: {error:.3g}")
    assert not wrong
    assert tried >= 6


@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow(part=3)
def test_random_language_models(device, kind):
    """Decoder layers with a cache, compiled once and run with and without a past."""
    wrong = []
    for seed in range(40 if CARD else 4):
        error, where = error_of(random_model(seed, kind, symbolic=True, family="language"), seed, device)
        if not error <= TOLERANCE[kind]:
            wrong.append(f"seed {seed}: {where}: {error:.3g}")
    assert not wrong
