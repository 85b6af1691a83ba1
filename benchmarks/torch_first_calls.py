"""First calls of torch.compile's backend "sardonyx" beside inductor's, each in a process of its own with empty caches.

    python benchmarks/torch_first_calls.py [--device cuda] [--dtype fp16] [--only gpt2] [--cores 4] [--turns 1] [--json rows.json]

A process has `--cores` of the machine's cores to itself, and several run at a time where the machine has more. In each turn the
two engines take the same cores one after the other; which is first alternates. A process first compiles one operator, so that
imports, libraries and the card's context are not counted. Then it calls the module once with each batch: the second batch of
Sardonyx compiles a program for all sizes (inductor compiles each size by itself). Of Sardonyx the parts of the call are
timed too. When all are done, and with nothing else running, the processes of the last turn take turns in running the modules.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpu_engines import PRECISIONS
from gpu_measure import MAX_RUNS, TURN_SECONDS, Clock, environment
from gpu_zoo import for_torch, tensors
from torch_backend import MODELS, architecture, with_own_code

ENGINES = ("sardonyx", "inductor")
BACKGROUND_SECONDS = 30


# ---- the process of one engine


class Parts:
    """Seconds of a call by what it does, and CPU seconds of all threads meanwhile."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        start, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            total = self.seconds.setdefault(name, [0.0, 0.0])
            total[0] += time.perf_counter() - start
            total[1] += time.process_time() - cpu

    def wrap(self, module: Any, attribute: str, name: str) -> None:
        function: Callable[..., Any] = getattr(module, attribute)

        def timed(*arguments: Any, **named: Any) -> Any:
            with self.part(name):
                return function(*arguments, **named)

        setattr(module, attribute, timed)


def settings_of(engine: str, device: str, folder: str) -> dict[str, Any]:
    if engine == "sardonyx":
        return {"backend": "sardonyx", "options": {"cache_dir": folder}}
    if engine == "eager":
        return {"backend": "eager"}
    return {"dynamic": False} | ({"mode": "reduce-overhead"} if device.startswith("cuda") else {})


def parts_of_sardonyx(graphs: list[Any]) -> Parts:
    import sardonyx.torch
    from sardonyx.torch import backend, graph

    parts = Parts()
    sardonyx.torch.observe(graphs.append)
    parts.wrap(graph, "trace", "trace")
    parts.wrap(graph, "translate", "translate")
    parts.wrap(graph, "compile_with_memory", "compile")
    parts.wrap(backend, "run", "run")
    return parts


def first_call(call: Callable[..., Any], inputs: Any, clock: Clock, parts: Parts | None) -> dict[str, Any]:
    if parts is not None:
        parts.seconds.clear()
    clock.wait()
    start, cpu = time.perf_counter(), time.process_time()
    call(*inputs)
    clock.wait()
    found: dict[str, Any] = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    return found | ({"parts": dict(parts.seconds)} if parts is not None else {})


def wait_for_background(graphs: list[Any]) -> None:
    models = [p.model for c in graphs for p, *_ in c.programs if p.model is not None]
    end = time.monotonic() + BACKGROUND_SECONDS
    while any(m.compiled.ready < m.compiled.objects for m in models) and time.monotonic() < end:
        time.sleep(0.01)


def work(name: str, engine: str, options: argparse.Namespace) -> None:
    if options.own:
        os.sched_setaffinity(0, options.own)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory(prefix="torch-first-") as folder, torch.inference_mode():
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder}
        settings = settings_of(engine, options.device, folder)
        clock, a = Clock(options.device), architecture(name, options.small)
        module, _ = for_torch(a.module(), a.inputs(1), PRECISIONS[options.dtype], options.device)
        inputs = [
            for_torch(torch.nn.Identity(), a.inputs(b), PRECISIONS[options.dtype], options.device)[1]
            for b in options.batches
        ]
        torch.compile(lambda x: x * 2 + 1, **settings)(torch.ones(4, device=options.device))
        torch._dynamo.reset()
        graphs: list[Any] = []
        parts = parts_of_sardonyx(graphs) if engine == "sardonyx" else None
        compiled = torch.compile(with_own_code(module, engine), **settings)
        for batch, x in zip(options.batches, inputs):
            row = first_call(compiled, x, clock, parts)
            reasons = [c.reason for c in graphs if c.reason]
            print(json.dumps({"name": name, "batch": batch, "engine": engine, "fallbacks": reasons} | row), flush=True)
            wait_for_background(graphs)
        runs = {b: (lambda x=x: tensors(compiled(*x))) for b, x in zip(options.batches, inputs)}
        for line in sys.stdin:  # batches to time
            run = runs[int(line)]
            seconds = clock.turn(run, 3)
            print(json.dumps({"turn": clock.turn(run, max(1, min(MAX_RUNS, int(TURN_SECONDS / max(seconds, 1e-7)))))}), flush=True)  # fmt: skip


# ---- the process that starts them


class Process:
    def __init__(self, name: str, engine: str, options: argparse.Namespace, cores: list[int]):
        self.name, self.engine, self.log = name, engine, tempfile.TemporaryFile("w+")  # noqa: SIM115
        arguments = json.dumps(vars(options) | {"own": cores, "json": None})
        command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--worker", name, engine, arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def row(self) -> dict[str, Any]:
        """The next that it prints. Raises RuntimeError with its last error."""
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, ""):
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        self.log.seek(0)
        raise RuntimeError(([x for x in self.log.read().splitlines() if x.strip()] or ["no error"])[-1][:500])

    def turn(self, batch: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{batch}\n")
        self.process.stdin.flush()
        return float(self.row()["turn"])

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


Key = tuple[str, int, str]  # name, batch, engine


class Sweep:
    def __init__(self, options: argparse.Namespace):
        self.options, self.rows = options, dict[Key, list[dict[str, Any]]]()
        self.waiting: dict[tuple[str, str], Process] = {}  # of the last turn
        self.end = time.monotonic() + options.seconds
        cores = sorted(os.sched_getaffinity(0))
        share = min(options.cores or len(cores), len(cores))
        self.slots: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self.count = len(cores) // share
        for k in range(self.count):
            self.slots.put(cores[k * share : (k + 1) * share])

    def compile(self, name: str, number: int) -> None:
        cores = self.slots.get()
        for turn in range(self.options.turns):
            for engine in ENGINES if (turn + number) % 2 == 0 else ENGINES[::-1]:
                if time.monotonic() > self.end:
                    break
                process = Process(name, engine, self.options, cores)
                try:
                    for batch in self.options.batches:
                        row = process.row()
                        self.rows.setdefault((name, batch, engine), []).append(row)
                        print(json.dumps(row), flush=True)
                except RuntimeError as error:
                    print(f"{name}, {engine}: {error}", flush=True)
                if turn == self.options.turns - 1 and self.options.runs:
                    self.waiting[name, engine] = process
                else:
                    process.end()
        self.slots.put(cores)

    def measure(self, name: str, batch: int) -> dict[str, float]:
        """Medians of runs."""
        times: dict[str, list[float]] = {e: [] for e in ENGINES}
        for k in range(self.options.runs):
            for engine in ENGINES if k % 2 == 0 else ENGINES[::-1]:
                times[engine].append(self.waiting[name, engine].turn(batch))
        return {e: statistics.median(t) for e, t in times.items()}

    def report(self, name: str, batch: int) -> tuple[float, float] | None:
        """Prints the row. Returns the ratios of first calls and of runs."""
        found = [self.rows.get((name, batch, e)) for e in ENGINES]
        if not all(found):
            return None
        ours, theirs = (min((r["seconds"] for r in rows or []), default=math.nan) for rows in found)
        text = f"{name} batch {batch}: first {ours:.2f} / {theirs:.2f} s = {ours / theirs:.2f}"
        best = min(found[0] or [], key=lambda r: r["seconds"])
        text += " (" + ", ".join(f"{n} {s:.2f}" for n, (s, _) in best["parts"].items()) + ")"
        ratio = math.nan
        if all((name, e) in self.waiting for e in ENGINES) and self.options.runs and time.monotonic() < self.end:
            try:
                runs = self.measure(name, batch)
                ratio = runs["sardonyx"] / runs["inductor"]
                text += f"; {runs['sardonyx'] * 1e3:.3f} / {runs['inductor'] * 1e3:.3f} ms = {ratio:.2f}"
            except (RuntimeError, OSError) as error:
                text += f"; {error}"
        print(text + (f"; IN PYTORCH: {best['fallbacks'][0]}" if best["fallbacks"] else ""), flush=True)
        return ours / theirs, ratio

    def run(self) -> None:
        names = list(self.options.only or MODELS)
        with concurrent.futures.ThreadPoolExecutor(self.count) as pool:
            list(pool.map(self.compile, names, range(len(names))))
        found = [r for n in names for b in self.options.batches if (r := self.report(n, b))]
        for process in self.waiting.values():
            process.end()
        for what, values in (("first calls", [f for f, _ in found]), ("runs", [r for _, r in found if r == r])):
            if values:
                mean = math.exp(statistics.fmean(map(math.log, values)))
                print(f"{what}: geometric mean {mean:.2f}, largest {max(values):.2f}, of {len(values)}", flush=True)
        if self.options.json:
            rows = [r for group in self.rows.values() for r in group]
            found_all = {"environment": environment(self.options.device), "rows": rows}
            pathlib.Path(self.options.json).write_text(json.dumps(found_all, indent=1))


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        return work(sys.argv[2], sys.argv[3], argparse.Namespace(**json.loads(sys.argv[4])))
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", default="fp16" if cuda else "fp32", choices=list(PRECISIONS))
    parser.add_argument("--only", action="append", help="this architecture; may be repeated")
    parser.add_argument("--batches", type=lambda s: [int(b) for b in s.split(",")], default=[1, 8])
    parser.add_argument("--cores", type=int, default=4 if cuda else 0, help="of a process; 0: all")
    parser.add_argument("--turns", type=int, default=1, help="first calls of each")
    parser.add_argument("--runs", type=int, default=5, help="turns of running the modules")
    parser.add_argument("--seconds", type=float, default=600, help="nothing is begun later")
    parser.add_argument("--small", action="store_true", help="narrow models of few layers, to try this program")
    parser.add_argument("--json", help="file for the rows")
    Sweep(parser.parse_args()).run()


if __name__ == "__main__":
    main()
