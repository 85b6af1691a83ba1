"""The zoo's results: each small architecture, exported by torch.onnx, against its module and against ONNX Runtime.

    python benchmarks/zoo_check.py [--exporter both] [--device host] [--precision fp32] [--only swin] [--full]

Needs torch, torchvision, transformers and onnxruntime. Three results of each model are compared: the module's in float32,
ONNX Runtime's of the exported file with its optimisations off, and Sardonyx's. A row is wrong if Sardonyx is farther from ONNX
Runtime than TOLERANCE allows; if both agree and differ from the module, the exporter has changed the model, and the
row says so. The exit status is 1 if a row is wrong, Sardonyx refuses a model, or nothing was compared.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

#: Root mean square of the difference over that of the reference. float32: sums of some 10^4 terms in another order,
#: through up to 200 layers; fp16: 2^-11 a rounding, through as many.
TOLERANCE = {"fp32": 2e-4, "fp16": 2e-2, "bf16": 0.15}
SECONDS = 600  # for one model


def distance(got: Any, want: Any) -> float:
    """Root mean square of the difference over that of `want`, the worst output's; infinite if shapes or non-finite values differ."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g, np.float64), np.asarray(w, np.float64)
        finite = np.isfinite(w)
        if g.shape != w.shape or not np.array_equal(np.isfinite(g), finite):
            return float("inf")
        scale = np.sqrt(np.square(w[finite]).mean()) if finite.any() else 0.0
        error = np.sqrt(np.square((g - w)[finite]).mean()) if finite.any() else 0.0
        worst = max(worst, float(error / max(scale, 1e-30)))
    return worst


def compare(name: str, exporter: str, options: Any) -> dict[str, Any]:
    """In a process of its own; errors of a stage are in the row under the stage's name."""
    import onnxruntime
    import sardonyx
    import torch
    import zoo
    from zoo_export import export

    row: dict[str, Any] = {"name": name, "exporter": exporter}
    a = next(a for a in zoo.architectures(not options.full) if a.name == name)
    torch.set_num_threads(2)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="zoo"))
    path = folder / f"{name}.{exporter}.onnx"
    try:
        with torch.no_grad():
            module, inputs = a.module(), a.inputs(options.batch)
            exact = module(*inputs)
            exact = [y.numpy() for y in ([exact] if isinstance(exact, torch.Tensor) else exact)]
            try:
                row["symbolic"] = export(module, inputs, path, exporter)
            except Exception as error:
                return row | {"export": one_line(error)}
            del module
        feed = {f"x{k}": x.numpy() for k, x in enumerate(inputs)}
        try:
            settings = onnxruntime.SessionOptions()
            settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            settings.log_severity_level = 4
            session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
            feed = {k: x for k, x in feed.items() if k in {i.name for i in session.get_inputs()}}
            reference = session.run(None, feed)
            row["exporter_error"] = distance(reference, exact)
        except Exception as error:
            row["onnxruntime"], reference = one_line(error), exact
        start = time.perf_counter()
        try:
            model = sardonyx.compile(path, device=options.device, precision=options.precision)
            row["compile_seconds"] = time.perf_counter() - start
            row["kernels"] = len(model.kernels())
            start = time.perf_counter()
            got = list(model.run(feed).values())
            row["run_seconds"] = time.perf_counter() - start
            row["error"] = distance(got, reference)
            row["module_error"] = distance(got, exact)
        except Exception as error:
            row["sardonyx"] = one_line(error)
        return row
    finally:
        if not options.keep:
            for file in folder.glob("*"):
                file.unlink()
            folder.rmdir()


def one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:400]}"


def verdict(row: dict[str, Any], precision: str) -> tuple[bool | None, str]:
    """Whether the row is right as far as Sardonyx is concerned, None if nothing was compared, and what the row says."""
    for stage in ("crash", "sardonyx"):
        if stage in row:
            return False, f"{stage}: {row[stage]}"
    if "export" in row:
        return None, f"not exported: {row['export']}"
    limit = TOLERANCE[precision]
    if not row["error"] <= limit:
        return False, f"DIFFERS from {'the module' if 'onnxruntime' in row else 'ONNX Runtime'}"
    if "onnxruntime" in row:
        return True, f"like the module; ONNX Runtime: {row['onnxruntime']}"
    if not row["exporter_error"] <= TOLERANCE["fp32"]:
        return True, f"exporter: ONNX Runtime is {row['exporter_error']:.1e} from the module"
    return True, "" if row["symbolic"] else "fixed batch"


def check(options: Any) -> int:
    import zoo

    exporters = ["dynamo", "torchscript"] if options.exporter == "both" else [options.exporter]
    names = [a.name for a in zoo.architectures() if not options.only or any(o in f"{a.name} {a.kind} " for o in options.only)]  # fmt: skip
    tasks = [(n, e) for n in names for e in exporters]
    rows: list[dict[str, Any]] = []
    print(
        "| architecture | exporter | kernels | compile s | run s | from ONNX Runtime | from the module | |\n"
        + "|---" * 8
        + "|"
    )
    pool = None
    for name, exporter in tasks:
        pool = pool or concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            row = pool.submit(compare, name, exporter, options).result(options.seconds)
        except (BrokenProcessPool, concurrent.futures.TimeoutError) as error:
            crashed = isinstance(error, BrokenProcessPool)
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)
            pool = None
            row = {"name": name, "exporter": exporter}
            row["crash"] = "the process died" if crashed else f"no result in {options.seconds:.0f} s"
        except Exception as error:
            row = {"name": name, "exporter": exporter, "export": f"the module: {one_line(error)}"}
        right, text = verdict(row, options.precision)
        rows.append(row | {"right": right, "verdict": text})
        value = lambda key, form, row=row: format(row[key], form) if key in row else ""
        cells = [name, exporter, value("kernels", "d"), value("compile_seconds", ".2f"), value("run_seconds", ".2f")]
        cells += [value("error", ".1e"), value("module_error", ".1e"), text]
        print("| " + " | ".join(cells) + " |", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    if pool:
        pool.shutdown()
    right, wrong, none = (sum(r["right"] is v for r in rows) for v in (True, False, None))
    print(f"\n{right} rows are right, {wrong} wrong, {none} not compared")
    return 1 if wrong or not right else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exporter", default="both", choices=["both", "dynamo", "torchscript"])
    parser.add_argument("--device", default="host", help='"host", a GPU, or a simulated chip ("sim:gfx942")')
    parser.add_argument("--precision", default="fp32", choices=list(TOLERANCE))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="real sizes in place of small ones")
    parser.add_argument("--only", action="append", default=[], help="part of a name or of a kind")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit for one model")
    parser.add_argument("--keep", help="folder in which the ONNX files stay")
    parser.add_argument("--json", type=pathlib.Path, help="file for all rows")
    options = parser.parse_args()
    if options.keep:
        pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
    return check(options)


if __name__ == "__main__":
    sys.exit(main())
