"""The zoo on a GPU: architectures of zoo.py at their real sizes beside torch.compile of the module itself.

    python benchmarks/gpu.py measure --parts zoo --out zoo.json          on the card, with torchvision and transformers

A process of its own exports each module with torch.onnx, compiles it with both engines and compares the results with
the module in float32; several do so at a time. When all of them are ready, one after another has its engines take turns
on the card, as for whole models, while the others wait.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import subprocess
import sys
import time
import traceback
from typing import Any

import torch
import zoo
from gpu_engines import PRECISIONS, Ours, our_device
from gpu_measure import Budget, Clock, Results, interleave, relative_error
from gpu_models import ERROR_FACTOR, ERROR_FLOOR
from zoo_export import export

BATCHES = (1, 8)
PREPARE_SECONDS = 240  # of one architecture: longer ones are left out, and the row says so
MEASURE_SECONDS = 90
SLOWEST = 8  # kernels of a row that are listed
PROFILE_ABOVE = 0.75  # of torch.compile's time: kernels of slower rows are listed
#: With a larger error of PyTorch's own, random weights have left the range of the precision: results can't be compared.
COMPARABLE = 0.05
VERDICTS = {True: "", False: " WRONG", None: " (not comparable: PyTorch's own error is too large)"}


def wanted(only: list[str]) -> list[zoo.Architecture]:
    return [a for a in zoo.architectures() if not only or any(o in f" {a.name} {a.kind} " for o in only)]


def key_of(name: str, batch: int, options: Any) -> str:
    return f"zoo/{name}/{options.exporter} batch={batch}"


# ---- the process that measures one architecture


def for_torch(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype, device: str) -> Any:
    """Module and inputs as PyTorch likes them: floats in the precision, images channels last."""
    image = any(x.ndim == 4 for x in inputs)
    module = module.to(device=device, dtype=dtype)
    if image:
        for t in [*module.parameters(), *module.buffers()]:  # those of volumes have no such format
            if t.ndim == 4:
                t.data = t.data.contiguous(memory_format=torch.channels_last)
    moved = []
    for x in inputs:
        x = x.to(device=device, dtype=dtype if x.is_floating_point() else x.dtype)
        moved.append(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
    return module, tuple(moved)


class Worker:
    """One architecture: `prepare` compiles with both engines, `measure` has them take turns."""

    def __init__(self, name: str, options: Any):
        self.a = next(a for a in zoo.architectures() if a.name == name)
        self.options, self.clock = options, Clock(options.device)
        self.path = pathlib.Path(options.filled) / f"zoo-{name}-{options.exporter}.onnx"
        self.rows: dict[int, dict[str, Any]] = {}
        self.engines: dict[int, dict[str, Any]] = {}
        self.feeds: dict[int, dict[str, torch.Tensor]] = {}

    def prepare(self) -> None:
        module = self.a.module()
        if not self.path.exists() and not export(module, self.a.inputs(2), self.path, self.options.exporter):
            export(module, self.a.inputs(BATCHES[-1]), self.path, self.options.exporter)
        got = {batch: self.prepare_ours(batch) for batch in BATCHES}
        exact, theirs, inputs = {}, {}, {}
        for batch in BATCHES:
            module, arguments = for_torch(module, self.a.inputs(batch), torch.float32, self.options.device)
            exact[batch] = [x.cpu() for x in tensors(module(*arguments))]
        for batch in BATCHES:
            module, inputs[batch] = for_torch(
                module, self.a.inputs(batch), PRECISIONS[self.options.precision], self.options.device
            )
            theirs[batch] = tensors(module(*inputs[batch]))
        for batch, row in self.rows.items():
            if "failed" not in row:
                self.compare(row, got[batch], theirs[batch], exact[batch])
        if "compile" in self.options.engines:
            self.prepare_theirs(module, inputs)
        if self.clock.cuda:
            torch.cuda.empty_cache()

    def prepare_ours(self, batch: int) -> list[torch.Tensor]:
        import sardonyx

        options = self.options
        row = {"name": self.a.name, "kind": self.a.kind, "batch": batch, "exporter": options.exporter, "engines": {}}
        row["precision"] = options.precision
        self.rows[batch] = row
        try:
            start = time.perf_counter()
            model = sardonyx.compile(self.path, device=our_device(options.device), precision=options.precision)
            inputs = self.a.inputs(batch)
            feed = {info.name: x.to(options.device).contiguous() for info, x in zip(model.inputs, inputs, strict=True)}
            ours = Ours(model, feed)
            got = [x.clone() for x in ours.results()]
            row["first_result_seconds"] = time.perf_counter() - start
            for _ in range(3):
                ours()
            self.engines[batch], self.feeds[batch] = {"sardonyx": ours}, feed
            return got
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {str(error)[:600]}"
            return []

    def prepare_theirs(self, module: torch.nn.Module, inputs: dict[int, tuple[torch.Tensor, ...]]) -> None:
        compiled = torch.compile(module, mode="reduce-overhead", dynamic=False)
        for batch, row in self.rows.items():
            try:
                start = time.perf_counter()
                for _ in range(4):  # the second and third capture the graph
                    compiled(*inputs[batch])
                self.clock.wait()
                row["seconds_to_compile"] = time.perf_counter() - start
                if batch in self.engines:
                    self.engines[batch]["compile"] = lambda x=inputs[batch]: compiled(*x)
            except Exception as error:
                row["engines"]["compile"] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}

    def compare(self, row: dict[str, Any], got: list[Any], theirs: list[Any], exact: list[Any]) -> None:
        row["errors"] = {
            "sardonyx": max(relative_error(x, y) for x, y in zip(got, exact)),
            "torch": max(relative_error(x, y) for x, y in zip(theirs, exact)),
        }
        # None: a bound relative to an error this large would accept anything.
        comparable = row["errors"]["torch"] <= COMPARABLE
        bound = ERROR_FACTOR * row["errors"]["torch"] + ERROR_FLOOR
        row["correct"] = row["errors"]["sardonyx"] <= bound if comparable else None

    def measure(self, batch: int, ceilings: dict[str, float]) -> dict[str, Any]:
        row, engines = self.rows[batch], self.engines.get(batch)
        if not engines:
            return row
        row["engines"] |= interleave(self.clock, engines, self.options.turns)
        theirs = row["engines"].get("compile", {}).get("median", 0.0)
        if self.clock.cuda and row["engines"]["sardonyx"]["median"] > PROFILE_ABOVE * theirs:
            row["slowest"] = slowest(self.path, self.feeds[batch], self.options, ceilings)
        return row


def work(name: str, options: Any) -> None:
    """Prepares, writes "ready", waits for a line, and writes a row of JSON for each batch."""
    torch.set_num_threads(2)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    if options.device.startswith("cuda"):
        torch.cuda.set_stream(torch.cuda.Stream())
    with torch.inference_mode():
        worker = Worker(name, options)
        worker.prepare()
        print("ready", flush=True)
        ceilings = json.loads(sys.stdin.readline())
        for batch in BATCHES:
            print(json.dumps(worker.measure(batch, ceilings)), flush=True)


def slowest(path: pathlib.Path, feed: dict[str, torch.Tensor], options: Any, ceilings: dict[str, float]) -> list[Any]:
    """The kernels that lose the most time to their bound: what their bytes and operations take at the card's ceilings."""
    import sardonyx
    from gpu_profile import by_step, kernel_times

    model = sardonyx.compile(path, device=our_device(options.device), precision=options.precision, graphs=False)
    engine = Ours(model, feed)
    for _ in range(2):
        engine.results()
    runs = kernel_times(engine)
    if not runs or not all(runs):
        return []
    kernels = by_step(model.traffic({n: tuple(x.shape) for n, x in feed.items()}), runs)
    for k in kernels:
        k["bound"] = max(k["bytes"] / ceilings["bytes_per_second"], k["operations"] / ceilings["operations_per_second"])
        k["nodes"] = k["nodes"][:6]
    return sorted(kernels, key=lambda k: k["bound"] - k["seconds"])[:SLOWEST]


def tensors(y: Any) -> list[torch.Tensor]:
    return [y] if isinstance(y, torch.Tensor) else [t for t in y if isinstance(t, torch.Tensor)]


# ---- the process that has them take turns


class Running:
    """A worker's process. Its errors go to a file, so that it never waits for a reader."""

    def __init__(self, name: str, options: Any):
        self.name, self.errors = name, pathlib.Path(options.filled) / f"zoo-{name}.log"
        arguments = {"device": options.device, "precision": options.precision, "exporter": options.exporter}
        arguments |= {"filled": str(options.filled), "engines": options.engines, "turns": options.turns}
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__)), name, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
        )
        self.reader = concurrent.futures.ThreadPoolExecutor(1)
        self.line = self.reader.submit(self.read)

    def read(self) -> str:
        """The next line that is a row or "ready"; libraries write others."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("ready", "{")):
                return line.strip()
        return ""

    def next(self, seconds: float) -> str:
        """Its next line; raises with its last error if it ended, or TimeoutError."""
        line = self.line.result(max(0.1, seconds))
        if not line:
            last = (self.errors.read_text().strip().splitlines() or ["no error"])[-1]
            raise RuntimeError(last[:600])
        self.line = self.reader.submit(self.read)
        return line

    def go(self, ceilings: dict[str, float]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(ceilings) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.shutdown(wait=True)


def measure_zoo(options: Any, results: Results, budget: Budget) -> None:
    pathlib.Path(options.filled).mkdir(parents=True, exist_ok=True)
    rows = [a for a in wanted(options.only) if not all(results.has(key_of(a.name, b, options)) for b in BATCHES)]
    chunk = max(1, multiprocessing.cpu_count())
    for first in range(0, len(rows), chunk):
        if not budget.begin():
            print(f"{rows[first].name} and {len(rows) - first - 1} more: no time left", flush=True)
            return
        running = [Running(a.name, options) for a in rows[first : first + chunk]]
        end = min(time.monotonic() + PREPARE_SECONDS, budget.end)
        ready = [r for r in running if is_ready(r, end, options, results)]
        for r in ready:
            take_turns(r, options, results)
        budget.done()


def is_ready(r: Running, end: float, options: Any, results: Results) -> bool:
    try:
        r.next(end - time.monotonic())
        return True
    except Exception as error:
        slow = isinstance(error, concurrent.futures.TimeoutError)
        said = f"preparing it took more than {PREPARE_SECONDS} s" if slow else str(error)
        print(f"{r.name}: {said}", flush=True)
        for batch in BATCHES:
            results.add(key_of(r.name, batch, options), {"name": r.name, "batch": batch, "failed": said})
        r.end()
        return False


def take_turns(r: Running, options: Any, results: Results) -> None:
    try:
        r.go(results.data["runs"][results.run]["ceilings"])
        for batch in BATCHES:
            row = json.loads(r.next(MEASURE_SECONDS))
            key = key_of(r.name, batch, options)
            results.add(key, row)
            print(line_of(key, row), flush=True)
    except Exception:
        traceback.print_exc()
    r.end()


def line_of(key: str, row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{key}: {row['failed'].splitlines()[0]}"
    e = row["engines"]
    ours, theirs = e["sardonyx"]["median"] * 1e3, e.get("compile", {}).get("median", float("nan")) * 1e3
    text = f"{key}: {ours:.3f} / {theirs:.3f} ms = {ours / theirs:.2f}; first {row['first_result_seconds']:.1f} s"
    text += f"; torch.compile {row.get('seconds_to_compile', float('nan')):.1f} s"
    text += f"; errors {row['errors']['sardonyx']:.1e} {row['errors']['torch']:.1e}{VERDICTS[row['correct']]}"
    for k in row.get("slowest", [])[:3]:
        nodes = " + ".join(k["nodes"])[:70]
        text += f"\n    {k['seconds'] * 1e6:.0f} us, bound {k['bound'] * 1e6:.1f}: {k['kernel'][:16]} {nodes}"
    return text


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    work(sys.argv[1], argparse.Namespace(**json.loads(sys.argv[2])))
