"""Options that every Python test shares.

A test marked `slow` is one case of a long sweep. By default one case in ten of each such sweep runs, always the same
ones; `./dev test --full` runs them all. tools/run_tests.py does the same for C++.
"""

import os

import pytest
from sardonyx import _sardonyx

# Every graph that a test compiles is verified after every pass of the optimiser.
_sardonyx.verify_every_pass(True)

SLOW_PART = 10

# Tests report to nobody: ONNX Runtime 1.29 and later send events of each session to its makers unless told otherwise.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run every case of the slow sweeps")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    seen: dict[str, int] = {}
    kept, left_out = [], []
    for item in items:
        if item.get_closest_marker("slow") is None:
            kept.append(item)
            continue
        # The cases of a parametrised test, or the methods of a class.
        sweep = item.nodeid.split("[")[0] if "[" in item.nodeid else item.nodeid.rpartition("::")[0]
        index = seen.get(sweep, 0)
        seen[sweep] = index + 1
        (left_out if index % SLOW_PART else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def graphs():
    """The graphs that torch.compile(backend="sardonyx") makes during a test."""
    import sardonyx.torch
    import torch

    found: list = []
    torch._dynamo.reset()
    stop = sardonyx.torch.observe(found.append)
    yield found
    stop()
    torch._dynamo.reset()
