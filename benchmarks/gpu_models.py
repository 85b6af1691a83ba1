"""Whole models on a GPU beside PyTorch: speed in one process, then time to the first result and memory in new ones."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

import torch
from gpu_engines import MODELS, PRECISIONS, Ours, call, compiled, feed_of, our_device, theirs_of, twin, walk
from gpu_measure import Budget, Clock, Results, clocks, interleave, relative_error

#: Sardonyx may be this much further from float32 than PyTorch in the same precision, and this much more.
ERROR_FACTOR, ERROR_FLOOR = 2.0, 2e-3
MODES = {"compile": "reduce-overhead", "autotune": "max-autotune"}


def text_of(sizes: dict[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in sizes.items())


def rows(only: list[str]) -> list[tuple[str, str, dict[str, int]]]:
    """name, file, sizes; of `only`: texts that a row's key must contain one of."""
    found = []
    for name, (file, sizes) in MODELS.items():
        found += [(name, file, s) for s in sizes if not only or any(o in f"{name} {file} {text_of(s)} " for o in only)]
    return found


def measure_models(options: Any, results: Results, budget: Budget) -> None:
    import models
    import sardonyx

    ours: dict[str, Any] = {}  # one program for all sizes
    for name, file, sizes in rows(options.only):
        key = f"model/{name}/{text_of(sizes)}"
        if results.has(key):
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
        }
        try:
            if file not in ours:
                start = time.perf_counter()
                ours[file] = sardonyx.compile(path, device=our_device(options.device), precision=options.precision)
                row["load_seconds"] = time.perf_counter() - start
            measure_row(row, path, ours[file], options)
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
    errors = ", ".join(f"{k} {v:.1e}" for k, v in row["errors"].items())
    return f"{key}: {times} ms; from float32: {errors}{'' if row['correct'] else ' WRONG'}"


def measure_row(row: dict[str, Any], path: pathlib.Path, model: Any, options: Any) -> None:
    import sardonyx

    dtype, device, file, sizes = PRECISIONS[options.precision], options.device, row["file"], row["sizes"]
    clock = Clock(device)
    feed = feed_of(path, sizes, device)
    arguments = theirs_of(feed, dtype)
    reference = walk(path, feed, torch.float32, device)
    exact = [x.clone() for x in reference(*theirs_of(feed, torch.float32))]
    del reference
    module = walk(path, feed, dtype, device)
    engines: dict[str, Any] = {"sardonyx": Ours(model, feed)}
    got = engines["sardonyx"].results()
    for _ in range(3):
        engines["sardonyx"]()
    if "fixed" in options.engines:
        start = time.perf_counter()
        fixed = sardonyx.compile(path, device=our_device(device), precision=options.precision, dims=sizes)
        row["fixed_load_seconds"] = time.perf_counter() - start
        engines["sardonyx fixed"] = Ours(fixed, feed)
        for _ in range(3):
            engines["sardonyx fixed"]()
    theirs = module(*arguments)
    row["errors"] = {
        "sardonyx": max(relative_error(a, b) for a, b in zip(got, exact)),
        "torch": max(relative_error(a, b) for a, b in zip(theirs, exact)),
        "between": max(relative_error(a, b) for a, b in zip(got, theirs)),
    }
    row["correct"] = row["errors"]["sardonyx"] <= ERROR_FACTOR * row["errors"]["torch"] + ERROR_FLOOR
    row["seconds_to_compile"] = {}
    other = twin(file, dtype, device) if "twin" in options.engines else None
    for prefix, peer in (("", module), ("twin ", other)):
        if peer is None:
            continue
        if "eager" in options.engines:
            engines[f"{prefix}eager"] = call(peer, arguments, file, bool(prefix))
        for engine, mode in MODES.items():
            if engine not in options.engines:
                continue
            try:
                torch._dynamo.reset()
                start = time.perf_counter()
                run = call(compiled(peer, mode), arguments, file, bool(prefix))
                for _ in range(4):  # the second and third capture the graph
                    run()
                clock.wait()
                row["seconds_to_compile"][prefix + engine] = time.perf_counter() - start
                engines[prefix + engine] = run
            except Exception as error:
                row["engines"][prefix + engine] = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}
    row["clocks_before"] = clocks()
    row["engines"] |= interleave(clock, engines, options.turns)
    row["clocks_after"] = clocks()


# ---- new processes: time to the first result, memory


def measure_first(options: Any, results: Results, budget: Budget) -> None:
    """For the smallest and the largest row of each model."""
    import models

    by_name: dict[str, list[tuple[str, dict[str, int]]]] = {}
    for name, file, sizes in rows(options.only):
        by_name.setdefault(name, []).append((file, sizes))
    for name, found in by_name.items():
        for file, sizes in [found[0], found[-1]] if len(found) > 1 else found:
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
            print(key, {n: {k: v for k, v in e.items() if k != "log"} for n, e in row["engines"].items()}, flush=True)


def in_new_process(path: pathlib.Path, sizes: dict[str, int], engine: str, options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
            "TRITON_CACHE_DIR": f"{cache}/triton",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "CUDA_CACHE_DISABLE": "1",  # the driver's, of compiled PTX
        }
        task = {
            "path": str(path),
            "sizes": sizes,
            "engine": engine,
            "device": options.device,
            "precision": options.precision,
        }
        command = [sys.executable, str(pathlib.Path(__file__).with_name("gpu.py")), "first", json.dumps(task)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:500]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def first_task(text: str) -> dict[str, Any]:
    """What the new process does. Not counted: starting Python, imports, the driver's start, reading weights for torch."""
    task = json.loads(text)
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
