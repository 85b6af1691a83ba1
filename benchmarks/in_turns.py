"""Sardonyx and ONNX Runtime in one process, in turns: the least CPU time of a run in one thread, and the largest difference of results.

    python benchmarks/in_turns.py model.onnx ...
    python benchmarks/limit_cpu.py python benchmarks/in_turns.py model.onnx ...      as on a CPU with AVX2

For machines with other load, which changes minima of CPU time less than medians of latencies. Symbolic dims are 1, or --batch. Inputs are
random, or those of inputs/MODEL.npz beside the model: some models have indices as inputs, or edges of a graph.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import sardonyx

TURN = 0.12  # seconds of an engine's runs
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def inputs(session: onnxruntime.InferenceSession, path: Path, batch: int) -> dict[str, np.ndarray]:
    """Those of the model's file of inputs; else random numbers for floats, small integers for others, ones for masks."""
    saved = path.parent / "inputs" / f"{path.stem}.npz"
    if saved.exists():
        return dict(np.load(saved))
    rng = np.random.default_rng(0)
    feed = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else batch for d in i.shape]
        dtype = TYPES[i.type]
        if dtype is np.float32:
            feed[i.name] = rng.standard_normal(shape).astype(dtype)
        elif dtype is np.bool_ or "mask" in i.name:
            feed[i.name] = np.ones(shape, dtype)
        else:
            feed[i.name] = rng.integers(0, 100, shape).astype(dtype)
    return feed


def fastest(run: Callable[[], object], count: int) -> float:
    """The least CPU time of `count` runs."""
    best = float("inf")
    for _ in range(count):
        begin = time.thread_time()
        run()
        best = min(best, time.thread_time() - begin)
    return best


def measure(path: Path, seconds: float, batch: int) -> tuple[float, float, float]:
    """Milliseconds of Sardonyx and of ONNX Runtime, and the largest difference relative to the largest value."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = inputs(session, path, batch)
    model = sardonyx.compile(path, threads=1)
    got, difference = model.run(feed), 0.0
    for output, want in zip(session.get_outputs(), session.run(None, feed), strict=True):
        scale = float(np.max(np.abs(want), initial=1e-30))
        difference = max(
            difference, float(np.max(np.abs(got[output.name] - want.astype(np.float64)), initial=0)) / scale
        )
    runs: list[Callable[[], object]] = [lambda: model.run(feed), lambda: session.run(None, feed)]
    best = [fastest(run, 3) for run in runs]
    count = [max(1, int(TURN / b)) for b in best]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = [min(b, fastest(run, n)) for b, run, n in zip(best, runs, count, strict=True)]
    return 1e3 * best[0], 1e3 * best[1], difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=3, help="for each model (default: 3)")
    parser.add_argument("--batch", type=int, default=1, help="size of symbolic dims (default: 1)")
    args = parser.parse_args()
    print(
        "| model | Sardonyx, ms of CPU time | ONNX Runtime | ratio | difference | load average |\n|---|---|---|---|---|---|"
    )
    for path in args.models:
        ours, theirs, difference = measure(path, args.seconds, args.batch)
        row = [path.stem, f"{ours:.3g}", f"{theirs:.3g}", f"{ours / theirs:.2f}", f"{difference:.1e}"]
        print(f"| {' | '.join(row)} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
