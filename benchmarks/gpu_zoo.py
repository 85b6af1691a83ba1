"""The zoo on a GPU: architectures of zoo.py at their real sizes beside torch.compile of the module itself.

    python benchmarks/gpu.py measure --parts zoo --out zoo.json          on the card, with torchvision and transformers

Each module is exported with torch.onnx in a process of its own, several at a time, which also lets torch.compile fill its
cache; then engines take turns on the card, as for whole models. Results are compared with the module in float32.
"""

from __future__ import annotations

import concurrent.futures
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
SLOWEST = 8  # kernels of a row that are listed
#: With a larger error of PyTorch's own, random weights have left the range of the precision: results can't be compared.
COMPARABLE = 0.05
VERDICTS = {True: "", False: " WRONG", None: " (not comparable: PyTorch's own error is too large)"}


def wanted(only: list[str]) -> list[zoo.Architecture]:
    return [a for a in zoo.architectures() if not only or any(o in f"{a.name} {a.kind} " for o in only)]


def file_of(options: Any, name: str) -> pathlib.Path:
    return pathlib.Path(options.filled) / f"zoo-{name}-{options.exporter}.onnx"


def for_torch(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype, device: str) -> Any:
    """Module and inputs as PyTorch likes them: floats in the precision, images channels last."""
    image = any(x.ndim == 4 for x in inputs)
    module = module.to(device=device, dtype=dtype)
    if image:
        module = module.to(memory_format=torch.channels_last)
    moved = []
    for x in inputs:
        x = x.to(device=device, dtype=dtype if x.is_floating_point() else x.dtype)
        moved.append(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
    return module, tuple(moved)


def compile_for_torch(module: Any, inputs: tuple[torch.Tensor, ...], clock: Clock) -> Any:
    torch._dynamo.reset()
    compiled = torch.compile(module, mode="reduce-overhead", dynamic=False)
    for _ in range(4):  # the second and third capture the graph
        compiled(*inputs)
    clock.wait()
    return lambda: compiled(*inputs)


def prepare_one(name: str, options: Any) -> None:
    """In a process of its own: the ONNX file, and torch.compile's cache."""
    row = next(a for a in zoo.architectures() if a.name == name)
    torch.set_num_threads(2)
    with torch.inference_mode():
        path = file_of(options, name)
        if not path.exists() and not export(row.module(), row.inputs(2), path, options.exporter):
            export(row.module(), row.inputs(BATCHES[-1]), path, options.exporter)
        print("exported", flush=True)
        if "compile" in options.engines:
            clock = Clock(options.device)
            for batch in BATCHES:
                module, inputs = for_torch(
                    row.module(), row.inputs(batch), PRECISIONS[options.precision], options.device
                )
                compile_for_torch(module, inputs, clock)


def prepare(names: list[str], options: Any) -> dict[str, str]:
    """Several at a time; by name, why one could not be prepared."""
    failed: dict[str, str] = {}
    pathlib.Path(options.filled).mkdir(parents=True, exist_ok=True)

    def one(name: str) -> None:
        arguments = [str(pathlib.Path(__file__)), name, options.device, options.precision, options.exporter]
        arguments += [str(options.filled), ",".join(options.engines)]
        try:
            done = subprocess.run(
                [sys.executable, *arguments], capture_output=True, text=True, timeout=PREPARE_SECONDS, check=False
            )
            text = done.stderr.strip().splitlines()
            if done.returncode != 0:
                failed[name] = ("torch.compile: " if "exported" in done.stdout else "export: ") + (
                    text[-1] if text else ""
                )
        except subprocess.TimeoutExpired:
            failed[name] = f"preparing it took more than {PREPARE_SECONDS} s"

    workers = max(1, multiprocessing.cpu_count() // 2)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, names))
    return failed


def measure_zoo(options: Any, results: Results, budget: Budget) -> None:
    rows = [a for a in wanted(options.only) if not all(results.has(key_of(a, b, options)) for b in BATCHES)]
    chunk = max(1, multiprocessing.cpu_count() // 2)
    for first in range(0, len(rows), chunk):
        some = rows[first : first + chunk]
        if not budget.begin():
            print(f"{some[0].name} and {len(rows) - first - 1} more: no time left", flush=True)
            return
        failed = prepare([a.name for a in some], options)
        for a in some:
            for batch in BATCHES:
                key = key_of(a, batch, options)
                if results.has(key) or time.monotonic() > budget.end:
                    continue
                row = {"name": a.name, "kind": a.kind, "batch": batch, "exporter": options.exporter, "engines": {}}
                row["precision"] = options.precision
                if a.name in failed:
                    row["prepared"] = failed[a.name]
                try:
                    measure_architecture(a, batch, row, options, results.data["runs"][results.run]["ceilings"])
                except Exception as error:
                    row["failed"] = f"{type(error).__name__}: {str(error)[:600]}"
                    traceback.print_exc()
                results.add(key, row)
                print(line_of(key, row), flush=True)
        budget.done()


def key_of(a: zoo.Architecture, batch: int, options: Any) -> str:
    return f"zoo/{a.name}/{options.exporter} batch={batch}"


def measure_architecture(
    a: zoo.Architecture, batch: int, row: dict[str, Any], options: Any, ceilings: dict[str, float]
) -> None:
    import sardonyx

    device, dtype, clock = options.device, PRECISIONS[options.precision], Clock(options.device)
    inputs = a.inputs(batch)
    start = time.perf_counter()
    model = sardonyx.compile(file_of(options, a.name), device=our_device(device), precision=options.precision)
    feed = {info.name: x.to(device).contiguous() for info, x in zip(model.inputs, inputs, strict=True)}
    ours = Ours(model, feed)
    got = [x.clone() for x in ours.results()]
    row["first_result_seconds"] = time.perf_counter() - start
    exact_module, exact_inputs = for_torch(a.module(), inputs, torch.float32, device)
    exact = tensors(exact_module(*exact_inputs))
    del exact_module
    module, theirs_inputs = for_torch(a.module(), inputs, dtype, device)
    theirs = tensors(module(*theirs_inputs))
    row["errors"] = {
        "sardonyx": max(relative_error(x, y) for x, y in zip(got, exact)),
        "torch": max(relative_error(x, y) for x, y in zip(theirs, exact)),
    }
    # None: a bound relative to an error this large would accept anything.
    comparable = row["errors"]["torch"] <= COMPARABLE
    bound = ERROR_FACTOR * row["errors"]["torch"] + ERROR_FLOOR
    row["correct"] = row["errors"]["sardonyx"] <= bound if comparable else None
    for _ in range(3):
        ours()
    engines: dict[str, Any] = {"sardonyx": ours}
    if "compile" in options.engines:
        try:
            start = time.perf_counter()
            engines["compile"] = compile_for_torch(module, theirs_inputs, clock)
            row["seconds_to_compile"] = time.perf_counter() - start
        except Exception as error:
            row["engines"]["compile"] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    row["engines"] |= interleave(clock, engines, options.turns)
    if options.device.startswith("cuda"):
        del engines, ours
        row["slowest"] = slowest(file_of(options, a.name), feed, options, ceilings)


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


def line_of(key: str, row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{key}: {row['failed'].splitlines()[0]}"
    e = row["engines"]
    ours, theirs = e["sardonyx"]["median"] * 1e3, e.get("compile", {}).get("median", float("nan")) * 1e3
    text = f"{key}: {ours:.3f} / {theirs:.3f} ms = {ours / theirs:.2f}; first {row['first_result_seconds']:.1f} s"
    text += f"; errors {row['errors']['sardonyx']:.1e} {row['errors']['torch']:.1e}{VERDICTS[row['correct']]}"
    for k in row.get("slowest", [])[:3] if ours > theirs else []:
        nodes = " + ".join(k["nodes"])[:70]
        text += f"\n    {k['seconds'] * 1e6:.0f} us, bound {k['bound'] * 1e6:.1f}: {k['kernel'][:16]} {nodes}"
    return text


if __name__ == "__main__":
    import argparse

    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    name, device, precision, exporter, filled, engines = sys.argv[1:7]
    prepare_one(
        name,
        argparse.Namespace(
            device=device, precision=precision, exporter=exporter, filled=filled, engines=engines.split(",")
        ),
    )
