"""Whole models on AMD's chips, estimated by the simulated GPU's clock (docs/amd-clock.md), beside AMD's published times.

    python benchmarks/amd_models.py measure --out docs/amd-models.json [--chips gfx1100] [--only resnet50]
    python benchmarks/amd_models.py report docs/amd-models.json > docs/amd-models.md

Models are compiled once for all sizes, in float16, with random weights (SARDONYX_MODELS, see README.md). A time is the sum of the
launches of one run and of the time between launches. The step of a language model is that of language_model.py: Llama-3.2-1B's shape
at 512 tokens of context. Each row has a process of its own; a row that was measured is kept unless --again is given.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import models

BUILD = Path(__file__).resolve().parent.parent / "build"
CHIPS = {"gfx1100": "Radeon RX 7900 XTX", "gfx942": "Instinct MI300X"}
STEP = "Llama-1B step"
BATCHES = (1, 8, 16, 32, 64)
TOKENS = ((1, 128), (8, 128), (1, 384), (8, 384), (1, 512), (8, 512))
SIZES: dict[str, list[dict[str, int]]] = {
    "resnet50": [{"batch": b} for b in BATCHES],
    "bert_base": [{"batch": b, "sequence": s} for b, s in TOKENS],
    "yolov5s": [{"batch": b} for b in BATCHES],
    STEP: [{"batch": 1}, {"batch": 8}],
}
#: AMD's figures for ONNX Runtime with MIGraphX on an RX 7900 XTX, ms; the precision is not stated there.
PUBLISHED = {
    "gfx1100 resnet50 batch=1": 3.2,
    "gfx1100 resnet50 batch=8": 10.8,
    "gfx1100 resnet50 batch=64": 78.4,
    "gfx1100 bert_base batch=1 sequence=128": 11.8,
    "gfx1100 bert_base batch=8 sequence=384": 112.8,
    "gfx1100 bert_base batch=8 sequence=512": 151.7,
}
#: Options of the simulator. Layers of one shape are launches that differ in addresses alone: the first two are simulated, others take
#: the estimate of the second.
FASTER = {"check_waits": False, "check_races": False, "timing_repeats": 2}
#: Nine in ten of the published measurements in docs/amd-clock.md lie within this of the clock's estimates.
ERROR = 0.3


def key_of(chip: str, model: str, dims: dict[str, int]) -> str:
    return " ".join([chip, model, *(f"{k}={v}" for k, v in dims.items())])


def run_model(chip: str, file: Path, dims: dict[str, int]) -> dict[str, Any]:
    """The row of one run of a model file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "perf.json"
        words = [
            str(BUILD / "bin/sardonyx"),
            "perf",
            str(file),
            "--quiet",
            "--device",
            f"sim:{chip}",
            "--precision",
            "fp16",
        ]
        words += ["--timing", "--sample", "--json", str(out)]
        for k, v in dims.items():
            words += ["--dim", f"{k}={v}"]
        environment = {**os.environ, "SARDONYX_SIM": json.dumps(FASTER)}
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        found = json.loads(out.read_text())
    return row_of(found["launches"], found["estimated_seconds"] * 1e3)


def row_of(launches: list[dict[str, Any]], ms: float) -> dict[str, Any]:
    by_limit: dict[str, float] = {}
    for x in launches:
        by_limit[x["limited_by"]] = by_limit.get(x["limited_by"], 0) + x["us"]
    kernels = sum(by_limit.values())
    limit = max(by_limit, key=by_limit.__getitem__)
    return {
        "ms": ms,
        "kernels_ms": kernels / 1e3,
        "launches": len(launches),
        "limited_by": limit,
        "share": by_limit[limit] / kernels,
    }


def run_step(chip: str, batch: int, folder: Path) -> dict[str, Any]:
    """The row of a decoding step."""
    os.environ["SARDONYX_SIM"] = json.dumps({"chips": [chip], "timing": "sample", **FASTER})
    import language_model

    target = folder / "fp16"
    if not (target / "step.onnx").exists():
        language_model.prepare(folder, False, ("fp16",))
    if not (target / "model.onnx.data").exists():
        language_model.fill(target)
    runner = language_model.Runner(target, f"sim:{chip}")
    bound = runner.bound(batch, 1, language_model.CONTEXT + 1, language_model.CONTEXT + 128)
    library = ctypes.CDLL(str(BUILD / "lib/libamdhip64-sim.so"))
    library.sardonyxSimTiming.restype = ctypes.c_char_p
    before = len(json.loads(library.sardonyxSimTiming())["launches"])
    runner.time(bound, 1)
    launches = json.loads(library.sardonyxSimTiming())["launches"][before:]
    return row_of(launches, sum(x["us"] + x["launch_us"] for x in launches) / 1e3)


def measure(o: argparse.Namespace) -> None:
    rows = json.loads(o.out.read_text()) if o.out.exists() else {}
    for chip in o.chips:
        for model, sizes in SIZES.items():
            for dims in sizes:
                key = key_of(chip, model, dims)
                if o.only not in key or ("ms" in rows.get(key, {}) and not o.again):
                    continue
                begun = time.monotonic()
                words = [sys.executable, __file__, "one", "--folder", str(o.folder), chip, model, json.dumps(dims)]
                try:
                    done = subprocess.run(words, capture_output=True, text=True, timeout=o.seconds)
                    if done.returncode:
                        row = {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][-300:]}
                    else:
                        row = json.loads(done.stdout.splitlines()[-1])
                except subprocess.TimeoutExpired:
                    row = {"failed": f"more than {o.seconds:.0f} s"}
                if o.out.exists():  # another process may measure other rows
                    rows = json.loads(o.out.read_text())
                rows[key] = {"chip": chip, "model": model, "dims": dims, **row}
                o.out.write_text(json.dumps(rows, indent=1))
                print(f"{key:48} {row.get('ms', row.get('failed'))} ms  [{time.monotonic() - begun:.0f} s]", flush=True)


def one(o: argparse.Namespace) -> None:
    dims = json.loads(o.dims)
    if o.model == STEP:
        row = run_step(o.chip, dims["batch"], o.folder)
    else:
        folder = models.folder()
        if folder is None:
            raise SystemExit("no models: set SARDONYX_MODELS (benchmarks/README.md)")
        filled = o.folder / "filled"
        filled.mkdir(parents=True, exist_ok=True)
        file = models.find(folder, filled)[o.model]
        models.fill(folder, file)
        row = run_model(o.chip, file, dims)
    print(json.dumps(row))


HEAD = """# Whole models on AMD's cards, estimated

These times are estimates by the simulated GPU's clock from the machine code that it executes ([amd-clock.md](amd-clock.md)); no card was measured. Nine in ten of the 155 published
measurements of single kernels there are within {error:.0f} % of the clock's estimate, so each time is given with that range. What a whole model adds is not covered by them: the time between launches is 4 to 5 us
each (the launches of a captured graph may take less, a busy host more), and clocks are the cards' highest.

float16, random weights, one program for all sizes. *Limited by*: what most of the kernels' time is limited by, and that share of it. Of launches that differ in addresses alone, as those of equal layers do, the first two are simulated, and others take the estimate of the second.
The step of Llama-1B is that of Llama-3.2-1B's shape at 512 tokens of context. The data are in [amd-models.json](amd-models.json). The rows are older than the rule that drops candidates which save a whole model little ([architecture.md](architecture.md)); with it, four models took 1.00 to 1.02 times as long.

    SARDONYX_MODELS=FOLDER python benchmarks/amd_models.py measure --out docs/amd-models.json
    python benchmarks/amd_models.py report docs/amd-models.json > docs/amd-models.md
"""
PUBLISHED_TEXT = """
AMD's published times are those of ONNX Runtime with MIGraphX on the same card, without their precision. A ratio of up to 0.25 is below one third at the upper end of the range too."""


def size_text(dims: dict[str, int]) -> str:
    return " x ".join(str(v) for v in dims.values()) + (" tokens" if "sequence" in dims else "")


def report(o: argparse.Namespace) -> None:
    rows = json.loads(o.rows.read_text())
    print(HEAD.format(error=100 * ERROR), end="")
    for chip in CHIPS:
        published = any(k.startswith(chip) for k in PUBLISHED)
        print(f"\n## {CHIPS[chip]} ({chip})")
        if published:
            print(PUBLISHED_TEXT)
        extra = " published, ms | ratio |" if published else ""
        print(f"\n| model | batch | ms (range) | launches | in kernels, ms | limited by |{extra}")
        print("|---|---|---|---|---|---|" + ("---|---|" if published else ""))
        keys = [key_of(chip, model, dims) for model, sizes in SIZES.items() for dims in sizes]
        for key, r in [(key, rows[key]) for key in keys if key in rows]:
            if "ms" not in r:
                print(
                    f"| {r['model']} | {size_text(r['dims'])} | failed: {r['failed']} | | | |"
                    + (" | |" if published else "")
                )
                continue
            text = f"| {r['model']} | {size_text(r['dims'])} | {r['ms']:.2f} ({(1 - ERROR) * r['ms']:.2f} to {(1 + ERROR) * r['ms']:.2f}) | {r['launches']} | {r['kernels_ms']:.2f} | {r['limited_by']} ({100 * r['share']:.0f} %) |"
            if published:
                theirs = PUBLISHED.get(key)
                text += f" {theirs} | {r['ms'] / theirs:.2f} |" if theirs else " | |"
            print(text)
        left = [
            f"{model} {size_text(dims)}"
            for model, sizes in SIZES.items()
            for dims in sizes
            if key_of(chip, model, dims) not in rows
        ]
        if left:
            print(f"\nNot estimated: {', '.join(left)}.")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    c = commands.add_parser("measure")
    c.add_argument("--out", type=Path, required=True)
    c.add_argument("--chips", nargs="+", choices=CHIPS, default=list(CHIPS))
    c.add_argument("--only", default="", help="rows whose name contains this")
    c.add_argument("--seconds", type=float, default=900, help="for one row")
    c.add_argument("--folder", type=Path, default=BUILD / "amd-models", help="for models with their weights (4 GB)")
    c.add_argument("--again", action="store_true")
    c.set_defaults(run=measure)
    c = commands.add_parser("report")
    c.add_argument("rows", type=Path)
    c.set_defaults(run=report)
    c = commands.add_parser("one")
    c.add_argument("--folder", type=Path, required=True)
    c.add_argument("chip", choices=CHIPS)
    c.add_argument("model", choices=SIZES)
    c.add_argument("dims")
    c.set_defaults(run=one)
    o = p.parse_args()
    o.run(o)


if __name__ == "__main__":
    main()
