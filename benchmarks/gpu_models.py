"""Whole models on a GPU compared with PyTorch: speed in one process, then time to the first result and memory in new ones."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import tempfile
import time
import traceback
from typing import Any

import torch
from gpu_engines import (
    MODELS,
    PRECISIONS,
    OnnxRuntime,
    Ours,
    call,
    compiled,
    feed_of,
    has_reference,
    onnxruntime_provider,
    our_device,
    reference,
    theirs_of,
    walk,
)
from gpu_measure import Budget, Clock, Results, clocks, interleave, relative_error

#: Sardonyx's error against float32 may be this factor of PyTorch's in the same precision, plus this much.
ERROR_FACTOR, ERROR_FLOOR = 2.0, 2e-3
MODES = {"compile": "reduce-overhead", "autotune": "max-autotune"}


def text_of(sizes: dict[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in sizes.items())


def rows(only: list[str]) -> list[tuple[str, str, dict[str, int]]]:
    """name, file, sizes. `only`: strings of which a row's key must contain one."""
    found = []
    for name, (file, sizes) in MODELS.items():
        found += [(name, file, s) for s in sizes if not only or any(o in f"{name} {file} {text_of(s)} " for o in only)]
    return found


def compiled_of(models_: dict[str, Any], path: pathlib.Path, options: Any) -> Any:
    """One program for all sizes, kept for other rows of the same file."""
    import sardonyx

    if path.stem not in models_:
        models_[path.stem] = sardonyx.compile(path, device=our_device(options.device), precision=options.precision)
    return models_[path.stem]


def measure_models(part: str, options: Any, results: Results, budget: Budget) -> None:
    """`part`: model (the network of the ONNX file), reference, autotune, fixed."""
    import models

    ours: dict[str, Any] = {}
    for name, file, sizes in rows(options.only):
        key = f"{part}/{name}/{text_of(sizes)}"
        if results.has(key) or (part == "reference" and not has_reference(file)):
            continue
        if not budget.begin():
            print(f"{key}: no time left", flush=True)
            return
        path = models.fill(options.models, options.filled / f"{file}.onnx")
        row: dict[str, Any] = {
            "name": name,
            "file": file,
            "sizes": sizes,
            "precision": options.precision,
            "engines": {},
            "seconds_to_compile": {},
        }
        try:
            start = time.perf_counter()
            model = compiled_of(ours, path, options)
            row["load_seconds"] = time.perf_counter() - start
            measure_row(part, row, path, model, options)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        torch._dynamo.reset()
        results.add(key, row)
        budget.done()
        print(line_of(key, row), flush=True)


def line_of(key: str, row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{key}: {row['failed'].splitlines()[0]}"
    times = {n: f"{e['median'] * 1e3:.3f}" if "median" in e else "failed" for n, e in row["engines"].items()}
    text = f"{key}: {times} ms"
    if "errors" in row:
        errors = ", ".join(f"{k} {v:.1e}" for k, v in row["errors"].items())
        text += f"; from float32: {errors}{'' if row['correct'] else ' WRONG'}"
    return text


def measure_row(part: str, row: dict[str, Any], path: pathlib.Path, model: Any, options: Any) -> None:
    dtype, device, file, sizes = PRECISIONS[options.precision], options.device, row["file"], row["sizes"]
    clock = Clock(device)
    feed = feed_of(path, sizes, device)
    arguments = theirs_of(feed, dtype)
    engines: dict[str, Any] = {"sardonyx": Ours(model, feed)}
    got = engines["sardonyx"].results()
    for _ in range(3):
        engines["sardonyx"]()
    if part == "fixed":
        add_fixed(engines, row, path, feed, options)
    elif part == "reference":
        add_theirs(engines, row, "reference ", reference(file, dtype, device), ["compile"], arguments, clock)
    else:
        module = walk(path, feed, dtype, device)
        theirs = [x.clone() for x in module(*arguments)]
        exact = walk(path, feed, torch.float32, device)(*theirs_of(feed, torch.float32))
        row["errors"] = {
            "sardonyx": max(relative_error(a, b) for a, b in zip(got, exact)),
            "torch": max(relative_error(a, b) for a, b in zip(theirs, exact)),
            "between": max(relative_error(a, b) for a, b in zip(got, theirs)),
        }
        row["correct"] = row["errors"]["sardonyx"] <= ERROR_FACTOR * row["errors"]["torch"] + ERROR_FLOOR
        del exact
        wanted = ["autotune"] if part == "autotune" else [e for e in ("eager", "compile") if e in options.engines]
        add_theirs(engines, row, "", module, wanted, arguments, clock)
        provider = onnxruntime_provider(device) if part == "model" and "onnxruntime" in options.engines else ""
        if provider:
            engines["onnxruntime"] = OnnxRuntime(path, feed, engines["sardonyx"].out, provider)
    row["clocks_before"] = clocks()
    row["engines"] |= interleave(clock, engines, options.turns)
    row["clocks_after"] = clocks()


def add_fixed(
    engines: dict[str, Any], row: dict[str, Any], path: pathlib.Path, feed: dict[str, torch.Tensor], options: Any
) -> None:
    """Sardonyx's program for these sizes only."""
    import sardonyx

    start = time.perf_counter()
    fixed = sardonyx.compile(path, device=our_device(options.device), precision=options.precision, dims=row["sizes"])
    row["fixed_load_seconds"] = time.perf_counter() - start
    engines["sardonyx fixed"] = Ours(fixed, feed)
    for _ in range(3):
        engines["sardonyx fixed"]()


def add_theirs(
    engines: dict[str, Any],
    row: dict[str, Any],
    prefix: str,
    module: Any,
    wanted: list[str],
    arguments: list[torch.Tensor],
    clock: Clock,
) -> None:
    """PyTorch's engines for a network; the row records the error of one that fails."""
    for engine in wanted:
        try:
            if engine == "eager":
                engines[prefix + engine] = call(module, arguments, row["file"], bool(prefix))
                continue
            torch._dynamo.reset()
            start = time.perf_counter()
            run = call(compiled(module, MODES[engine]), arguments, row["file"], bool(prefix))
            for _ in range(4):  # the second and third capture the graph
                run()
            clock.wait()
            row["seconds_to_compile"][prefix + engine] = time.perf_counter() - start
            engines[prefix + engine] = run
        except Exception as error:
            row["engines"][prefix + engine] = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}


# ---- new processes: time to the first result, memory


def measure_first(options: Any, results: Results, budget: Budget) -> None:
    """Measures the largest and the smallest row of each model."""
    import models

    by_name: dict[str, list[tuple[str, dict[str, int]]]] = {}
    for name, file, sizes in rows(options.only):
        by_name.setdefault(name, []).append((file, sizes))
    found = [(n, *r[-1]) for n, r in by_name.items()] + [(n, *r[0]) for n, r in by_name.items() if len(r) > 1]
    for name, file, sizes in found:
        key = f"first/{name}/{text_of(sizes)}"
        if results.has(key):
            continue
        if not budget.begin():
            print(f"{key}: no time left", flush=True)
            return
        path = models.fill(options.models, options.filled / f"{file}.onnx")
        row: dict[str, Any] = {"name": name, "sizes": sizes, "engines": {}}
        for engine in ("sardonyx", "eager", "compile"):
            if engine == "sardonyx" or engine in options.engines:
                row["engines"][engine] = in_new_process(path, sizes, engine, options)
        results.add(key, row)
        budget.done()
        print(key, row["engines"], flush=True)


#: Modules that new processes have already imported. A process that has used a GPU cannot fork, so a server process forks them.
PRELOAD = ["torch", "numpy", "onnx", "onnx.reference", "sardonyx", "models", "gpu_models"]
FIRST_SECONDS = 300


def in_new_process(path: pathlib.Path, sizes: dict[str, int], engine: str, options: Any) -> dict[str, Any]:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOAD)
    task = {
        "path": str(path),
        "sizes": sizes,
        "engine": engine,
        "device": options.device,
        "precision": options.precision,
    }
    ours, theirs = processes.Pipe()
    with tempfile.TemporaryDirectory() as cache:
        process = processes.Process(target=first_process, args=(task, cache, theirs))
        process.start()
        theirs.close()
        try:
            found = ours.recv() if ours.poll(FIRST_SECONDS) else {"failed": f"no result in {FIRST_SECONDS} s"}
        except EOFError:
            found = {"failed": "the process ended without a result"}
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
    return dict(found)


def first_process(task: dict[str, Any], cache: str, answer: Any) -> None:
    os.environ |= {
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "CUDA_CACHE_DISABLE": "1",  # the driver's cache of assembled PTX
    }
    try:
        found = first_task(task)
    except Exception as error:
        found = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}
    answer.send(found)
    answer.close()


def first_task(task: dict[str, Any]) -> dict[str, Any]:
    """Runs in the new process. Not measured: starting Python, imports, starting the driver, reading weights for torch."""
    path, device, precision = pathlib.Path(task["path"]), task["device"], task["precision"]
    feed = feed_of(path, task["sizes"], device)
    clock = Clock(device)
    clock.wait()
    if task["engine"] == "sardonyx":
        import sardonyx

        start = time.perf_counter()
        model = sardonyx.compile(path, device=our_device(device), precision=precision, cache_dir="")
        compile_seconds = time.perf_counter() - start
        engine = Ours(model, feed)
        engine.results()
        seconds = time.perf_counter() - start
        for _ in range(3):
            engine.results()
        use = model.memory_in_use()
        io = sum(x.nbytes for x in [*feed.values(), *engine.out.values()])
        return {
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "peak": use.peak + io,
            "constants": use.constants,
            "arena": use.arena,
            "live": model.memory(task["sizes"]).live,
            "io": io,
        }
    with torch.inference_mode():
        dtype = PRECISIONS[precision]
        module = walk(path, feed, dtype, "cpu")
        arguments = theirs_of(feed, dtype)
        del feed
        start = time.perf_counter()
        module = module.to(device)
        run = call(compiled(module, "reduce-overhead") if task["engine"] == "compile" else module, arguments, "", False)
        run()
        clock.wait()
        seconds = time.perf_counter() - start
        for _ in range(3):
            run()
        clock.wait()
        weights = sum(x.nbytes for x in module.buffers())
        found = {"seconds": seconds, "constants": weights}
        if clock.cuda:
            found |= {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
        return found
