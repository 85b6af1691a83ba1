"""Options that every Python test shares.

A test marked `slow` is one case of a long sweep. By default one case in ten of each such sweep runs, or with
`slow(part=4)` one in four, always the same ones; `./dev test --full` runs them all. tools/run_tests.py does the same for
C++.
"""

import math
import os
import zlib

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
    sweeps: dict[tuple[str, int], list[pytest.Item]] = {}
    kept = set()
    for item in items:
        if item.get_closest_marker("slow") is None:
            kept.add(item)
            continue
        # The cases of a parametrised test, or the methods of a class.
        sweep = item.nodeid.split("[")[0] if "[" in item.nodeid else item.nodeid.rpartition("::")[0]
        part = max(marker.kwargs.get("part", SLOW_PART) for marker in item.iter_markers("slow"))
        sweeps.setdefault((sweep, part), []).append(item)
    for (_, part), cases in sweeps.items():
        # By a hash of the names: every tenth in order would keep one value only of a parameter that ten values go with.
        by_hash = sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))
        kept.update(by_hash[: math.ceil(len(cases) / part)])
    left_out = [item for item in items if item not in kept]
    items[:] = [item for item in items if item in kept]
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
