"""The time of each kernel of a run, from the GPU's counters (through torch's profiler), with the bytes and operations that it must
move and compute: its place under the roofline."""

from __future__ import annotations

import json
import pathlib
import statistics
import tempfile
import traceback
from typing import Any

import torch
from gpu_engines import Ours, feed_of, our_device
from gpu_measure import Budget, Clock, Results
from gpu_models import rows, text_of

RUNS = 5


def kernel_times(engine: Any) -> list[list[tuple[str, float]]]:
    """The kernels of each run in order, with seconds. Empty if the profiler sees none."""
    found = []
    for _ in range(RUNS):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            engine()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace.json"
            profile.export_chrome_trace(str(trace))
            events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "kernel"]
        found.append([(e["name"], e["dur"] / 1e6) for e in sorted(events, key=lambda e: e["ts"])])
    return found


def alignment(steps: list[frozenset[str]], events: list[str]) -> list[int]:
    """For each event the step that launched it, or -1: the longest common subsequence, so that a kernel that is no step's, or an
    order that differs in one place, costs one match and not all that follow. A step's launches may repeat."""
    rows, columns = len(steps), len(events)
    # most[i][j]: matches of steps[i:] with events[j:].
    most = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        names, here, below = steps[i], most[i], most[i + 1]
        for j in range(columns - 1, -1, -1):
            skip = max(here[j + 1], below[j])
            here[j] = max(skip, below[j + 1] + 1) if events[j] in names else skip
    found, i, j = [-1] * columns, 0, 0
    while i < rows and j < columns:
        if events[j] in steps[i] and most[i][j] == most[i + 1][j + 1] + 1:
            found[j] = i
            i, j = i + 1, j + 1
        elif most[i][j] == most[i + 1][j]:
            i += 1
        else:
            j += 1
    for j in range(1, columns):
        if found[j] < 0 and found[j - 1] >= 0 and events[j] == events[j - 1]:
            found[j] = found[j - 1]
    return found


def by_step(steps: list[Any], runs: list[list[tuple[str, float]]]) -> list[dict[str, Any]]:
    """Times of a program's launches, in order; 0 for those that these sizes do not need."""
    names = [frozenset(s.name.split(", ")) for s in steps]
    seconds: list[list[float]] = [[] for _ in steps]
    for run in runs:
        total = [0.0] * len(steps)
        # Cached code keeps the name that its first program gave it, so names are compared only where numbers differ.
        same = len(run) == len(steps)
        places = range(len(run)) if same else alignment(names, [name for name, _ in run])
        for k, (_, time) in zip(places, run):
            if k >= 0:
                total[k] += time
        for k, time in enumerate(total):
            seconds[k].append(time)
    return [
        {
            "kind": s.kind,
            "kernel": s.name,
            "nodes": list(s.nodes),
            "bytes": s.bytes_read + s.bytes_written,
            "operations": s.operations,
            "seconds": statistics.median(seconds[k]),
        }
        for k, s in enumerate(steps)
    ]


def measure_profiles(options: Any, results: Results, budget: Budget) -> None:
    import models
    import sardonyx

    compiled: dict[str, Any] = {}
    for name, file, sizes in rows(options.only):
        key = f"profile/{name}/{text_of(sizes)}"
        if results.has(key):
            continue
        if not budget.begin():
            print(f"{key}: no time left", flush=True)
            return
        path = models.fill(options.models, options.filled / f"{file}.onnx")
        row: dict[str, Any] = {"name": name, "sizes": sizes}
        try:
            if file not in compiled:
                compiled[file] = sardonyx.compile(
                    path, device=our_device(options.device), precision=options.precision, graphs=False
                )
            model = compiled[file]
            feed = feed_of(path, sizes, options.device)
            engine = Ours(model, feed)
            for _ in range(3):
                engine.results()
            steps = model.traffic({n: tuple(x.shape) for n, x in feed.items()})
            runs = kernel_times(engine) if options.device.startswith("cuda") else []
            if runs and all(runs):
                row["source"] = "the card's counters"
                row["launched"] = len(runs[0])
                row["kernels"] = by_step(steps, runs)
                row["seconds"] = statistics.median(sum(t for _, t in run) for run in runs)
            else:  # without a profiler: times of steps, with a wait after each
                row["source"] = "steps waited for one by one"
                times = [model.profile(feed)[1] for _ in range(RUNS)]
                row["kernels"] = [
                    {"kernel": s.kernel, "nodes": [s.nodes], "seconds": statistics.median(t[k].seconds for t in times)}
                    for k, s in enumerate(times[0])
                ]
                row["seconds"] = sum(k["seconds"] for k in row["kernels"])
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        Clock(options.device).wait()
        results.add(key, row)
        budget.done()
        print(key, row.get("failed") or f"{len(row['kernels'])} kernels, {row['seconds'] * 1e3:.3f} ms", flush=True)
