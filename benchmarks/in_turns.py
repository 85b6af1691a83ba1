"""Sardonyx and other engines in one process, in turns: CPU time of a run in one thread (10th percentile), and the largest difference
of Sardonyx's results from ONNX Runtime's.

    python benchmarks/in_turns.py model.onnx ...
    python benchmarks/in_turns.py model.onnx ... --engines onnxruntime,openvino
    python benchmarks/limit_cpu.py python benchmarks/in_turns.py model.onnx ...      as on a CPU with AVX2

For machines with other load, which changes low percentiles of CPU time less than medians of latencies. The least CPU time may be too
small: virtual machines subtract what the hypervisor took, in lumps. Times are those of the whole process, because OpenVINO's one
thread need not be the caller's. Symbolic dims are 1, or --batch. Inputs are random, or those of inputs/MODEL.npz
beside the model: some models have indices as inputs, or edges of a graph.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import sardonyx
from run import OTHERS, engines
from worker import OpenVino

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


def times(run: Callable[[], object], count: int) -> list[float]:
    """CPU times of `count` runs."""
    found = []
    for _ in range(count):
        begin = time.process_time()
        run()
        found.append(time.process_time() - begin)
    return found


def openvino_run(path: Path, feed: dict[str, np.ndarray]) -> Callable[[], object] | None:
    """None, with a message, where OpenVINO refuses the model."""
    engine = OpenVino(str(path), 1)
    try:
        engine.load()
        engine.prepare(feed)
        engine.run()
    except RuntimeError as error:
        print(f"{path.stem}: OpenVINO: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return engine.run


def measure(path: Path, seconds: float, batch: int, others: list[str]) -> tuple[list[float], float]:
    """Milliseconds of Sardonyx and of the others (NaN: refused), and the largest difference relative to the largest value."""
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
    runs: list[Callable[[], object] | None] = [lambda: model.run(feed)]
    for engine in others:
        runs.append(openvino_run(path, feed) if engine == "openvino" else lambda: session.run(None, feed))
    found = [times(run, 3) if run else [math.nan] for run in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for run, t in zip(runs, found, strict=True):
            if run:
                t += times(run, max(1, int(TURN / statistics.median(t))))
    return [1e3 * float(np.percentile(t, 10)) for t in found], difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=3, help="for each model (default: 3)")
    parser.add_argument("--batch", type=int, default=1, help="size of symbolic dims (default: 1)")
    parser.add_argument(
        "--engines", type=engines, default=["onnxruntime"], metavar="LIST", help="to compare with: onnxruntime,openvino"
    )
    args = parser.parse_args()
    columns = [c for e in args.engines for c in (f"{OTHERS[e]}, ms", f"ratio to {OTHERS[e]}")]
    head = ["model", "Sardonyx, ms of CPU time", *columns, "difference", "load average"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    ratios: list[list[float]] = [[] for _ in args.engines]
    for path in args.models:
        (ours, *theirs), difference = measure(path, args.seconds, args.batch, args.engines)
        row = [path.stem, f"{ours:.3g}"]
        for found, t in zip(ratios, theirs, strict=True):
            row += [f"{t:.3g}", f"{ours / t:.2f}"]
            if not math.isnan(t):
                found.append(ours / t)
        print(f"| {' | '.join(row)} | {difference:.1e} | {os.getloadavg()[0]:.1f} |", flush=True)
    for engine, found in zip(args.engines, ratios, strict=True):
        if len(found) > 1:
            print(f"{OTHERS[engine]}: geometric mean of {len(found)} ratios {statistics.geometric_mean(found):.3f}")


if __name__ == "__main__":
    main()
