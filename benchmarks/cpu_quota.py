"""Sardonyx beside ONNX Runtime in a control group with a quota of CPU time, as in a container started with --cpus=1.5.

    SARDONYX_MODELS=FOLDER python benchmarks/cpu_quota.py resnet50 bert_base [--cpus 1.5] [--seconds 8] [--turns 4]

Needs Linux and the right to make control groups (root): version 2 with the controller cpu, or version 1. All engines run in one new
group, in turns. Sardonyx has its default number of threads, which follows the quota, and one thread; ONNX Runtime, which does
not see quotas, is told one and, rounded up, as many threads as the quota gives. Times are means: the kernel stops a group that has used its
quota for the rest of a period of 0.1 s, which a median of short runs does not show.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import models
import numpy as np
from run import PAUSE, Worker, machine

PERIOD = 100_000  # microseconds, the kernel's default


def hierarchy() -> tuple[Path, bool]:
    """Where groups with the controller cpu can be made, and whether it is version 2."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(point), False
        if kind == "cgroup2" and "cpu" in (Path(point) / "cgroup.subtree_control").read_text().split():
            return Path(point), True
    raise SystemExit("cpu_quota: no control groups with the controller cpu are mounted")


@contextlib.contextmanager
def group(cpus: float) -> Iterator[Path]:
    """A control group with this quota. The processes in it must have ended when the context ends."""
    root, version_2 = hierarchy()
    folder = root / f"sardonyx-benchmark-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise SystemExit(f"cpu_quota: cannot make a control group in {root}: {error.strerror}") from error
    try:
        if version_2:
            (folder / "cpu.max").write_text(f"{round(cpus * PERIOD)} {PERIOD}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD)))
        yield folder
    finally:
        folder.rmdir()


def measure(path: Path, options: argparse.Namespace, folder: Path, temporary: Path) -> dict[str, float]:
    """Mean milliseconds of a run, by engine."""
    inputs, cache = temporary / "inputs.npz", temporary / path.stem
    np.savez(inputs, **models.inputs(path, models.SIZES.get(path.stem, [{}])[0]))
    most = math.ceil(options.cpus)
    engines = {"sardonyx": ("sardonyx", 0), "sardonyx, 1": ("sardonyx", 1), "onnxruntime, 1": ("onnxruntime", 1)}
    engines[f"onnxruntime, {most}"] = ("onnxruntime", most)
    with contextlib.ExitStack() as stack:
        workers = {}
        for name, (engine, threads) in engines.items():
            worker = stack.enter_context(Worker(engine, path, threads, inputs, cache))
            # It does nothing before the first command, so that the engine sees the quota when it starts.
            (folder / "cgroup.procs").write_text(str(worker.process.pid))
            worker.ask("load")
            worker.ask("run", 0, 3, "perf_counter")
            workers[name] = worker
        times: dict[str, list[float]] = {name: [] for name in workers}
        for _ in range(options.turns):
            for name, worker in workers.items():
                time.sleep(PAUSE)
                times[name] += worker.ask("run", options.seconds / options.turns, 2, "perf_counter")
    return {name: statistics.fmean(t) * 1e3 for name, t in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="names (resnet50)")
    parser.add_argument("--cpus", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=8, help="time for the runs of each engine and model")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--filled", type=Path, default=Path("build/models"), help="directory of filled skeletons")
    options = parser.parse_args()
    source = models.folder()
    if source is None:
        parser.error("set SARDONYX_MODELS to a folder of models (benchmarks/README.md)")
    known = models.find(source, options.filled)
    if unknown := [name for name in options.models if name not in known]:
        parser.error(f"no model {unknown[0]}")
    print(f"{machine()}; a group of {options.cpus} CPUs; load average {os.getloadavg()[0]:.1f}")
    with group(options.cpus) as folder, tempfile.TemporaryDirectory() as temporary:
        for name in options.models:
            rows = measure(models.fill(source, known[name]).resolve(), options, folder, Path(temporary))
            best = min(ms for engine, ms in rows.items() if engine.startswith("onnxruntime"))
            shown = "  ".join(f"{engine} {ms:.3f}" for engine, ms in rows.items())
            print(f"{name:<28} {shown}  ms  ratio {rows['sardonyx'] / best:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
