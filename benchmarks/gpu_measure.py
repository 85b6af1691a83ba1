"""Measurements on a GPU: engines alternate on one stream, and the state of the machine is recorded.

A turn is a number of runs enqueued to the stream without waiting in between, timed by events around them. The turns of all
engines alternate, so that all see the same clocks. The times of single runs are stored for each turn.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch

TURN_SECONDS = 0.04  # seconds; long compared with the cost of events, short compared with changes of the clocks
MAX_RUNS = 400

Engine = Callable[[], Any]  # enqueues one run to the current stream


class Clock:
    """Measures time on a torch device: by events on a GPU, by the clock on the CPU."""

    def __init__(self, device: str):
        self.cuda = device.startswith("cuda")

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def turn(self, engine: Engine, runs: int) -> float:
        """Seconds of one of `runs`."""
        if not self.cuda:
            start = time.perf_counter()
            for _ in range(runs):
                engine()
            return (time.perf_counter() - start) / runs
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            engine()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / runs

    def latency(self, engine: Engine, times: int = 20) -> float:
        """Median seconds of a run including the wait for it."""
        seconds = []
        for _ in range(times):
            self.wait()
            start = time.perf_counter()
            engine()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)


def interleave(
    clock: Clock, engines: dict[str, Engine], turns: int, seconds: float = TURN_SECONDS
) -> dict[str, dict[str, Any]]:
    """Times of single runs of each engine, all of which have run before. `seconds`: the length of a turn."""
    runs = {}
    for name, engine in engines.items():
        clock.turn(engine, 3)
        runs[name] = max(1, min(MAX_RUNS, int(seconds / max(clock.turn(engine, 3), 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in engines}
    for k in range(turns):
        order = list(engines) if k % 2 == 0 else list(reversed(engines))
        for name in order:
            times[name].append(clock.turn(engines[name], runs[name]))
    return {
        name: {**spread(t), "latency": clock.latency(engines[name]), "runs": runs[name]} for name, t in times.items()
    }


def spread(times: list[float]) -> dict[str, Any]:
    """Median, 10th and 90th percentile."""
    ordered = sorted(times)
    at = lambda p: ordered[min(len(ordered) - 1, round(p * (len(ordered) - 1)))]
    return {"median": statistics.median(times), "low": at(0.1), "high": at(0.9), "times": times}


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Root mean square of the difference over that of the reference; infinity if a value is not a number."""
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    if got.shape != want.shape or not bool(torch.isfinite(got).all()):
        return float("inf")
    return float((got - want).square().mean().sqrt() / want.square().mean().sqrt().clamp_min(1e-30))


def clocks() -> dict[str, str]:
    """What nvidia-smi reports about the GPU now; empty without nvidia-smi."""
    fields = ["clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_event_reasons.active"]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        line = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return {}
    return dict(zip(fields, (x.strip() for x in line.split(","))))


def onnxruntime_providers() -> list[str]:
    """Execution providers of the installed ONNX Runtime; empty without one."""
    try:
        import onnxruntime
    except ImportError:
        return []
    return list(onnxruntime.get_available_providers())


def environment(device: str) -> dict[str, Any]:
    import sardonyx

    versions = {"sardonyx": sardonyx.__version__, "torch": torch.__version__, "python": platform.python_version()}
    for name in ("torchvision", "transformers", "triton", "onnxruntime"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            continue
    found: dict[str, Any] = {
        "versions": versions,
        "providers": onnxruntime_providers(),
        "system": platform.platform(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    if device.startswith("cuda"):
        p = torch.cuda.get_device_properties(device)
        versions["cuda"], versions["cudnn"] = torch.version.cuda, torch.backends.cudnn.version()
        found |= {"card": p.name, "memory": p.total_memory, "units": p.multi_processor_count, "clocks": clocks()}
    else:
        found["card"] = platform.processor() or platform.machine()
    return found


def ceilings(device: str) -> dict[str, float]:
    """Measured ceilings of the GPU: bytes per second of a copy (read plus written), and operations per second of an fp16
    GEMM of 8192 cubed on random data."""
    if not device.startswith("cuda"):
        return {}
    clock = Clock(device)
    a = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    b = torch.empty_like(a)
    copy_all = lambda: b.copy_(a)
    copy = min(clock.turn(copy_all, 10) for _ in range(5))
    x, y = (torch.randn(8192, 8192, dtype=torch.float16, device=device) for _ in range(2))
    product = min(clock.turn(lambda: x @ y, 10) for _ in range(5))
    return {"bytes_per_second": 2 * (1 << 30) / copy, "operations_per_second": 2 * 8192**3 / product}


class Results:
    """Rows of a JSON file, which is written after each row; existing rows are not measured again. Each row names the run of
    the program that measured it; the environment and the ceilings of the runs are stored beside the rows."""

    def __init__(self, path: pathlib.Path, again: bool):
        self.path = path
        self.data: dict[str, Any] = {"runs": {}, "rows": {}}
        self.run = ""
        if path.exists() and not again:
            self.data |= json.loads(path.read_text())

    def begin(self, environment: dict[str, Any], ceilings: dict[str, float]) -> None:
        """Starts a run; later rows belong to it."""
        self.run = environment["date"]
        self.data["runs"][self.run] = {"environment": environment, "ceilings": ceilings}
        self.write()

    def has(self, key: str) -> bool:
        return key in self.data["rows"]

    def add(self, key: str, row: dict[str, Any]) -> None:
        self.data["rows"][key] = {"run": self.run, **row}
        self.write()

    def write(self) -> None:
        part = self.path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(self.data, indent=1))
        part.replace(self.path)


class Budget:
    """The time limit in seconds; a row is started only if one as long as the longest so far fits."""

    def __init__(self, seconds: float):
        self.end = time.monotonic() + seconds
        self.longest = 0.0
        self.began = 0.0

    def begin(self) -> bool:
        self.began = time.monotonic()
        return self.began + self.longest < self.end

    def done(self) -> None:
        self.longest = max(self.longest, time.monotonic() - self.began)
