"""Sardonyx beside other engines on cores that it does not have for itself: busy processes beside, or a quota of CPU time.

    python benchmarks/shared_cores.py resnet50 model.onnx --busy 2 --busy 8 --cpus 1.5 --cpus 0.5 [--seconds 9] [--turns 6]
    python benchmarks/shared_cores.py resnet50 --busy 0 --engines onnxruntime,openvino

Each --busy N is a condition: N processes of one thread compute all the time. Each --cpus Q is one too: the engines run in a control
group that gets Q CPUs' time, as in a container started with --cpus=Q (Linux, root; version 2 with the controller cpu, or version 1).

Every engine has a process, and they take turns. Sardonyx has its default number of threads (which follows the quota) and one; others
have --threads, and in a group one and, rounded up, as many as the quota gives, of which the table has the better.

A turn's time is the mean of its runs: time slices and the kernel's periods of 0.1 s are as long as runs, so a median depends on a percent
of them. Ratios are Sardonyx's time to the other's in the same turn: their median, with the least and the largest of the turns. Below 1
Sardonyx is faster.

Linux may divide cores between sessions (autogroups) instead of processes. The busy processes are in this program's session, so that
the engines feel them; other sessions' load is felt less if this one has a higher priority.
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
from dataclasses import dataclass
from pathlib import Path

import models
import numpy as np
from run import PAUSE, BusyProcesses, Worker, engines, machine

PERIOD = 100_000  # microseconds, the kernel's default


@dataclass(frozen=True)
class Condition:
    busy: int = 0
    cpus: float | None = None

    def __str__(self) -> str:
        return f"{self.busy} busy" if self.cpus is None else f"{self.cpus:g} CPUs"


def hierarchy() -> tuple[Path, bool]:
    """Where groups with the controller cpu can be made, and whether it is version 2."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Path(point), False
        if kind == "cgroup2" and "cpu" in (Path(point) / "cgroup.subtree_control").read_text().split():
            return Path(point), True
    raise SystemExit("shared_cores: no control groups with the controller cpu are mounted")


@contextlib.contextmanager
def group(cpus: float | None) -> Iterator[Path | None]:
    """A control group with this quota, and with the largest weight, so that it gets its quota beside other load; None without a quota.
    The processes in it must have ended when the context ends."""
    if cpus is None:
        yield None
        return
    root, version_2 = hierarchy()
    folder = root / f"sardonyx-benchmark-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        raise SystemExit(f"shared_cores: cannot make a control group in {root}: {error.strerror}") from error
    try:
        if version_2:
            (folder / "cpu.max").write_text(f"{round(cpus * PERIOD)} {PERIOD}")
            (folder / "cpu.weight").write_text("10000")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (folder / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD)))
            (folder / "cpu.shares").write_text("262144")
        yield folder
    finally:
        folder.rmdir()


def contenders(condition: Condition, options: argparse.Namespace) -> dict[str, tuple[str, int]]:
    """Engine and threads (0: its default) by name; Sardonyx's first."""
    ours = options.threads if condition.cpus is None else 0
    found = {"sardonyx": ("sardonyx", ours), "sardonyx, 1": ("sardonyx", 1)}
    counts = {options.threads} if condition.cpus is None else {1, math.ceil(condition.cpus)}
    for engine in options.engines:
        found |= {f"{engine}, {n}": (engine, n) for n in sorted(counts)}
    return found


def measure(path: Path, condition: Condition, options: argparse.Namespace) -> dict[str, list[float]]:
    """Mean milliseconds of each turn, by contender."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(group(condition.cpus))
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        inputs = temporary / "inputs.npz"
        np.savez(inputs, **models.inputs(path, models.SIZES.get(path.stem, [{}])[0]))
        workers = {}
        for name, (engine, threads) in contenders(condition, options).items():
            worker = stack.enter_context(Worker(engine, path, threads, inputs, temporary / "cache"))
            # It does nothing before the first command, so that the engine sees the quota when it starts.
            if folder:
                (folder / "cgroup.procs").write_text(str(worker.process.pid))
            worker.ask("load")
            worker.ask("run", 0, 3, "perf_counter")
            workers[name] = worker
        times: dict[str, list[float]] = {name: [] for name in workers}
        with BusyProcesses(condition.busy):
            for turn in range(options.turns):
                order = list(workers) if turn % 2 == 0 else list(reversed(workers))
                for name in order:
                    time.sleep(PAUSE)
                    runs = workers[name].ask("run", options.seconds / options.turns, 2, "perf_counter")
                    times[name].append(statistics.fmean(runs) * 1e3)
    return times


def better(times: dict[str, list[float]], engine: str) -> str:
    """The contender of this engine with the least time of all turns."""
    return min(
        (name for name in times if name.startswith(f"{engine},")), key=lambda name: statistics.fmean(times[name])
    )


def ratios(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Median, least and largest of the turns' ratios."""
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    return statistics.median(each), min(each), max(each)


def row(times: dict[str, list[float]], others: list[str]) -> tuple[list[str], list[float]]:
    """Cells of the table's row, and its ratios."""
    ours, one = times["sardonyx"], times["sardonyx, 1"]
    cells = [f"{statistics.median(ours):.4g}", f"{statistics.median(one):.4g}"]
    found = []
    for theirs in [*(better(times, e) for e in others), "sardonyx, 1"]:
        middle, least, largest = ratios(ours, times[theirs])
        found.append(middle)
        if theirs != "sardonyx, 1":
            cells.append(f"{statistics.median(times[theirs]):.4g} ({theirs.split(', ')[1]})")
        cells.append(f"{middle:.2f} ({least:.2f} to {largest:.2f})")
    return cells, found


def chosen(names: list[str], filled: Path, parser: argparse.ArgumentParser) -> list[Path]:
    """Files of the models: files, or names in SARDONYX_MODELS."""
    source = models.folder()
    known = models.find(source, filled) if source else {}
    paths = []
    for name in names:
        if name in known:
            paths.append(models.fill(source, known[name]).resolve())
        elif Path(name).is_file():
            paths.append(Path(name).resolve())
        else:
            parser.error(f"no model {name}: give a file, or set SARDONYX_MODELS (benchmarks/README.md)")
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names (resnet50) or files")
    parser.add_argument(
        "--busy", type=int, action="append", default=[], metavar="N", help="a condition; may be repeated"
    )
    parser.add_argument(
        "--cpus", type=float, action="append", default=[], metavar="Q", help="a condition; may be repeated"
    )
    parser.add_argument("--engines", type=engines, default=["onnxruntime"], metavar="LIST", help="onnxruntime,openvino")
    parser.add_argument("--threads", type=int, default=2, help="of all engines, outside of groups")
    parser.add_argument("--seconds", type=float, default=9, help="time for the runs of each engine and model")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--filled", type=Path, default=Path("build/models"), help="directory of filled skeletons")
    options = parser.parse_args()
    paths = chosen(options.models, options.filled, parser)
    conditions = [Condition(busy=n) for n in options.busy] + [Condition(cpus=q) for q in options.cpus] or [Condition()]
    for condition in conditions:
        print(f"\n{machine()}; {condition}; load average {os.getloadavg()[0]:.1f}\n")
        head = ["model", "Sardonyx, ms", "one thread"]
        for engine in options.engines:
            head += [f"{engine}, ms (threads)", "ratio"]
        head.append("ratio to one thread")
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        all_ratios = []
        for path in paths:
            try:
                cells, found = row(measure(path, condition, options), options.engines)
            except RuntimeError as error:
                print(f"| {path.stem} | failed: {error} |", flush=True)
                continue
            all_ratios.append(found)
            print(f"| {path.stem} | {' | '.join(cells)} |", flush=True)
        if len(all_ratios) > 1:
            means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*all_ratios, strict=True)]
            print(f"geometric means of the ratios: {', '.join(f'{m:.2f}' for m in means)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
