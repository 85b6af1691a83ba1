"""The zoo without its modules: the time of every architecture and of each of its kernels beside the kernel's bound.

    python benchmarks/zoo_skeletons.py pack DIR skeletons.tar.xz
    python benchmarks/zoo_kernels.py measure skeletons.tar.xz --out DIR [--device cuda:0] [--seconds 560] [--check]
    python benchmarks/zoo_kernels.py report DIR/rows.jsonl [...]

`measure` needs numpy, onnx and, on a GPU, torch. It has two phases. First each architecture gets random weights, is compiled and
run once, each in a process of its own, several at a time: that fills the cache of compiled code. Then one process at a time
measures them. A row is written as soon as it is measured, and architectures of different kinds alternate, so that what
a time limit cuts off is a few of each kind.

The bound of a kernel is the time that its bytes and operations (`Model.traffic`) take at the throughputs of a large copy and of a large GEMM, both
measured in the same run; no less than FLOOR.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import time
import traceback
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from zoo_report import Row, line_of, report, rows_of
from zoo_skeletons import Skeletons, fill

FLOOR = 1.5e-6  # seconds of a GPU's kernel that does next to nothing
RUNS = 5  # profiled runs
TURNS = 5
PREPARE_SHARE = 0.5  # of the time limit, after which measuring begins
PREPARE_SECONDS = 150  # limit of one architecture's preparation
MEASURE_SECONDS = 90  # limit of one architecture's measurement
TOKENS = (3, 1000)  # integer inputs; every vocabulary is larger
REPORT_EVERY = 15.0  # seconds


def feed_of(model: Any, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded inputs of a compiled model for this batch."""
    random = np.random.default_rng(1)
    feed = {}
    for info in model.inputs:
        shape = [d if isinstance(d, int) else batch for d in info.shape]
        if np.issubdtype(info.dtype, np.integer):
            feed[info.name] = random.integers(*TOKENS, shape).astype(info.dtype)
        else:
            feed[info.name] = random.standard_normal(shape, dtype=np.float32).astype(info.dtype)
    return feed


def distance(got: Any, want: Any) -> float:
    """Root mean square of the difference over that of `want`, the worst output's; infinite where a value is not finite."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g, np.float64), np.asarray(w, np.float64)
        if g.shape != w.shape or not np.isfinite(g).all():
            return math.inf
        worst = max(worst, float(np.sqrt(np.square(g - w).mean()) / max(np.sqrt(np.square(w).mean()), 1e-30)))
    return worst


# ---- preparing: a process for each architecture


def model_files(folder: pathlib.Path, name: str) -> dict[int, pathlib.Path]:
    """Batch of each file of an architecture that `fill_all` wrote; 0: any batch."""
    found = {}
    for path in folder.glob(f"{name}.batch*.onnx"):
        found[int(path.name.removeprefix(f"{name}.batch").removesuffix(".onnx"))] = path
    return found


def file_for(folder: pathlib.Path, name: str, batch: int) -> pathlib.Path:
    files = model_files(folder, name)
    if 0 in files or batch in files:
        return files.get(0) or files[batch]
    raise FileNotFoundError(f"{name} has no model of batch {batch} in {folder}")


def prepare_one(options: Any) -> Row:
    """Fills the skeletons of one architecture, compiles them and runs each batch once."""
    import sardonyx

    name = options.only[0]
    for batch, model in Skeletons(options.skeletons).models(name).items():
        fill(model, options.work / f"{name}.batch{batch}.onnx")
    row: Row = {"name": name}
    for batch in options.batches:
        path = file_for(options.work, name, batch)
        start = time.monotonic()
        model = sardonyx.compile(path, device=options.device, precision=options.precision, threads=options.threads)
        row.setdefault("compile_seconds", time.monotonic() - start)
        feed = feed_of(model, batch)
        start = time.monotonic()
        got = model.run(feed)
        row[f"first_run_seconds {batch}"] = time.monotonic() - start
        row[f"finite {batch}"] = all(np.isfinite(np.asarray(y, np.float64)).all() for y in got.values())
        if options.check and batch == options.batches[0]:
            row["error"] = reference_error(path, feed, list(got.values()), options.threads)
    return row


def reference_error(path: pathlib.Path, feed: dict[str, Any], got: list[Any], threads: int) -> float | str:
    """Distance from ONNX Runtime's results on the CPU in float32, or why there are none."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        return distance(got, session.run(None, feed))
    except Exception as error:
        return f"ONNX Runtime: {str(error).splitlines()[0][:200]}"


def prepare(names: list[str], options: Any, deadline: float) -> dict[str, Row]:
    """What each process said, or its failure under "failed". Names that found no time are absent."""
    said: dict[str, Row] = {}

    def one(name: str) -> None:
        left = deadline - time.monotonic()
        if left < 5:
            return
        command = [sys.executable, __file__, "prepare", str(options.skeletons), "--only", name]
        command += ["--work", str(options.work), "--device", options.device, "--precision", options.precision]
        command += ["--threads", str(options.threads), "--batches", *map(str, options.batches)]
        command += ["--check"] if options.check else []
        limit = min(left, PREPARE_SECONDS)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
            lines = done.stdout.strip().splitlines()
            if done.returncode == 0:
                said[name] = json.loads(lines[-1])
            else:
                text = (done.stderr.strip() or "no message").splitlines()[-1]
                said[name] = {"name": name, "failed": f"preparing, exit status {done.returncode}: {text[:600]}"}
        except subprocess.TimeoutExpired:
            if limit >= PREPARE_SECONDS:
                said[name] = {"name": name, "failed": f"preparing took more than {PREPARE_SECONDS} s"}
        if name in said:
            print(f"prepared {len(said)}: {json.dumps(said[name])}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, names))
    return said


# ---- measuring: one process, replaced when it dies


def host_ceilings() -> dict[str, float]:
    """Bytes per second of a copy, operations per second of a float32 GEMM of 1024 cubed, with numpy."""
    a = np.zeros(1 << 26, np.uint8)
    b = np.empty_like(a)
    x = np.ones((1024, 1024), np.float32)

    def best(run: Any) -> float:
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    return {
        "bytes_per_second": 2 * a.nbytes / best(lambda: np.copyto(b, a)),
        "operations_per_second": 2 * 1024**3 / best(lambda: x @ x),
    }


def measure_ceilings(device: str) -> dict[str, float]:
    if not device.startswith("cuda"):
        return host_ceilings()
    from gpu_measure import ceilings

    return ceilings(device)


def kernel_runs(run: Any) -> list[list[tuple[str, float]]]:
    """The kernels of each of RUNS runs with seconds, by the GPU's counters. Empty if the runs differ in their number."""
    import tempfile

    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(RUNS):
            run()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("cat") == "kernel"]
    found = [(e["name"], e["dur"] / 1e6) for e in sorted(events, key=lambda e: e["ts"])]
    if not found or len(found) % RUNS:
        return []
    size = len(found) // RUNS
    return [found[k * size : (k + 1) * size] for k in range(RUNS)]


def kernels_on_gpu(model: Any, feed: dict[str, Any]) -> list[Row]:
    from gpu_engines import Ours
    from gpu_profile import by_step

    engine = Ours(model, feed)
    for _ in range(2):
        engine.results()
    runs = kernel_runs(engine)
    if not runs:
        raise RuntimeError("the profiler saw no kernels, or not the same number in each run")
    return by_step(model.traffic({n: tuple(x.shape) for n, x in feed.items()}), runs)


def kernels_by_steps(model: Any, feed: dict[str, Any]) -> list[Row]:
    """Times of steps with a wait after each: of the host and of simulated chips. Only launches have bytes and operations."""
    runs = [model.profile(feed)[1] for _ in range(RUNS)]
    launches = model.traffic({n: x.shape for n, x in feed.items()})
    rows, at = [], 0
    for k, step in enumerate(runs[0]):
        row: Row = {"kind": "step", "kernel": step.kernel, "nodes": [step.nodes], "bytes": 0.0, "operations": 0.0}
        if at < len(launches) and step.kernel in launches[at].name.split(", "):
            found = launches[at]
            row |= {"kind": found.kind, "nodes": list(found.nodes), "operations": found.operations}
            row["bytes"] = found.bytes_read + found.bytes_written
            at += 1
        rows.append(row | {"seconds": min(r[k].seconds for r in runs)})
    return rows


def measure_one(name: str, batch: int, options: Any, ceilings: dict[str, float]) -> Row:
    """In the measuring process."""
    import sardonyx

    row: Row = {"name": name, "batch": batch}
    try:
        path = file_for(options.work, name, batch)
        settings = {"device": options.device, "precision": options.precision, "threads": options.threads}
        start = time.monotonic()
        model = sardonyx.compile(path, **settings)
        row["load_seconds"] = time.monotonic() - start
        feed: dict[str, Any] = feed_of(model, batch)
        if options.device.startswith("cuda"):
            import torch
            from gpu_engines import Ours
            from gpu_measure import Clock, interleave

            if torch.cuda.current_stream() == torch.cuda.default_stream():
                torch.cuda.set_stream(torch.cuda.Stream())
            feed = {n: torch.from_numpy(x).to(options.device) for n, x in feed.items()}
            engine = Ours(model, feed)
            for _ in range(3):
                engine.results()
            timed = interleave(Clock(options.device), {"sardonyx": engine}, TURNS)["sardonyx"]
            row |= {"seconds": timed["median"], "low": timed["low"], "latency": timed["latency"]}
            row["memory"] = model.memory_in_use().peak
            del engine, model
        else:
            model.run(feed)
            seconds = []
            for _ in range(TURNS):
                start = time.perf_counter()
                model.run(feed)
                seconds.append(time.perf_counter() - start)
            row |= {"seconds": statistics.median(seconds), "low": min(seconds)}
    except Exception as error:
        traceback.print_exc()
        return row | {"failed": f"{type(error).__name__}: {str(error)[:600]}"}
    try:
        row["kernels"] = measure_kernels(path, feed, settings, ceilings)
    except Exception as error:  # the time of the model remains
        traceback.print_exc()
        row["kernels"], row["remark"] = [], f"kernels: {type(error).__name__}: {str(error)[:300]}"
    row["bound"] = sum(k["bound"] for k in row["kernels"])
    return row


def measure_kernels(path: pathlib.Path, feed: dict[str, Any], settings: Row, ceilings: dict[str, float]) -> list[Row]:
    """With "seconds" and "bound". Kernels that these sizes did not launch are left out."""
    import sardonyx

    # Launches of a captured graph overlap, so that times of kernels would not add up.
    model = sardonyx.compile(path, graphs=False, **settings)
    on_gpu = settings["device"].startswith("cuda")
    kernels = kernels_on_gpu(model, feed) if on_gpu else kernels_by_steps(model, feed)
    for k in kernels:
        bytes_time = k["bytes"] / ceilings["bytes_per_second"]
        k["bound"] = max(bytes_time, k["operations"] / ceilings["operations_per_second"], FLOOR if on_gpu else 0.0)
    return [k for k in kernels if k["seconds"] > 0]


class Worker:
    """A process that measures, started anew after one has died or taken too long."""

    def __init__(self) -> None:
        self.pool: concurrent.futures.ProcessPoolExecutor | None = None

    def call(self, seconds: float, function: Any, *arguments: Any) -> Any:
        self.pool = self.pool or concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(function, *arguments).result(seconds)
        except (BrokenProcessPool, concurrent.futures.TimeoutError) as error:
            self.stop()
            died = isinstance(error, BrokenProcessPool)
            raise RuntimeError("the process died" if died else f"no result in {seconds:.0f} s") from error

    def stop(self) -> None:
        if not self.pool:
            return
        for process in list((self.pool._processes or {}).values()):
            process.kill()
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.pool = None


def in_turns(skeletons: Skeletons, only: list[str]) -> list[str]:
    """Names in order of priority: one of each kind in turn."""
    queues: dict[str, list[str]] = {}
    for name, kind in skeletons.kinds.items():
        if not only or any(o in f"{name} {kind} " for o in only):
            queues.setdefault(kind, []).append(name)
    out = []
    while any(queues.values()):
        out += [q.pop(0) for q in queues.values() if q]
    return out


def measure(options: Any) -> int:
    begin = time.monotonic()
    end = begin + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    skeletons = Skeletons(options.skeletons)
    done = {r["name"] for path in options.done for r in rows_of(path) if "kernels" in r}
    names = [n for n in in_turns(skeletons, options.only) if n not in done]
    said = prepare(names, options, begin + PREPARE_SHARE * options.seconds)
    print(f"{len(said)} of {len(names)} prepared in {time.monotonic() - begin:.0f} s", flush=True)
    rows: list[Row] = []
    reported = time.monotonic()
    worker = Worker()
    with (options.out / "rows.jsonl").open("a") as file:

        def add(row: Row) -> None:
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(line_of(row), flush=True)

        ceilings = worker.call(MEASURE_SECONDS, measure_ceilings, options.device)
        add({"ceilings": ceilings, "device": options.device, "precision": options.precision})
        late = [n for n in names if n not in said]
        for name in [n for n in names if n in said] + late:
            if name in late and time.monotonic() + 10 < end:
                said |= prepare([name], options, end)
            about = said.get(name, {"failed": "no time left"})
            for batch in options.batches:
                left = end - time.monotonic()
                row = {**about, "name": name, "kind": skeletons.kinds[name], "batch": batch}
                if "failed" not in about and left < 3:
                    row["failed"] = "no time left"
                elif "failed" not in about:
                    try:
                        limit = min(left, MEASURE_SECONDS)
                        row |= worker.call(limit, measure_one, name, batch, options, ceilings)
                        if "failed" in row:
                            worker.stop()  # an error of the driver stays with its process
                    except Exception as error:
                        row["failed"] = str(error)
                add(row)
            for path in options.work.glob(f"{name}.batch*"):
                path.unlink()
            if time.monotonic() - reported > REPORT_EVERY:
                (options.out / "report.md").write_text(report(rows))
                reported = time.monotonic()
    worker.stop()
    text = report(rows)
    (options.out / "report.md").write_text(text)
    print(text[:6000])
    return 1 if any("failed" in r for r in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("measure", "prepare"):
        p = commands.add_parser(command, help="" if command == "measure" else "one architecture; `measure` calls it")
        p.add_argument("skeletons", type=pathlib.Path, help="what zoo_skeletons.py wrote or packed")
        p.add_argument("--only", nargs="*", default=[], help="parts of names or kinds")
        p.add_argument("--device", default="cuda:0", help='a GPU, "host", or a simulated chip')
        p.add_argument("--precision", default="fp16")
        p.add_argument("--batches", nargs="*", type=int, default=[1, 8])
        p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/zoo"), help="folder of filled models")
        p.add_argument("--check", action="store_true", help="compare the first batch with ONNX Runtime's on the CPU")
        p.add_argument("--threads", type=int, default=3, help="of one process that compiles")
        if command == "measure":
            p.add_argument(
                "--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of rows.jsonl, report.md"
            )
            p.add_argument("--seconds", type=float, default=560, help="limit of the whole run")
            p.add_argument("--done", nargs="*", type=pathlib.Path, default=[], help="rows.jsonl of earlier runs")
            p.add_argument(
                "--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="that compile at a time"
            )
    r = commands.add_parser("report", help="of rows that were measured, later ones replacing earlier ones")
    r.add_argument("rows", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    if options.command == "measure":
        return measure(options)
    if options.command == "prepare":
        print(json.dumps(prepare_one(options)))
        return 0
    newest: dict[Any, Row] = {}
    for path in options.rows:
        for row in rows_of(path):
            key = (row.get("name"), row.get("batch"))
            if "failed" not in row or key not in newest:
                newest[key] = row
    print(report(list(newest.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
