"""Products and convolutions of 8 bits on an NVIDIA GPU: exact checks, times beside our float16 and cuBLASLt, whole models.

    python benchmarks/quantized_cases.py cases DIR                                       where onnx is installed
    python benchmarks/quantized_gemm.py check DIR [--only conv]                      against exact references
    python benchmarks/quantized_gemm.py tilings DIR [--json FILE]                    every tiling: right, and how fast
    python benchmarks/quantized_gemm.py times DIR [--seconds 200]                    beside float16 and torch._scaled_mm
    python benchmarks/quantized_gemm.py models DIR NAME:INPUT=SHAPE,... [...]        whole models in turns

Needs numpy, torch and sardonyx. Operands of `check` are small integers times powers of two, so that sums are exact in any
order, also in the few bits in which Hopper adds up float8.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from typing import Any

import ml_dtypes
import numpy as np
from quantized_specs import CHAINS, CONVOLUTIONS, PAIRS, PRODUCTS, Spec

REPEATS = 8
DEVICE = "cuda:0"  #: ours
TORCH = "cuda:0"  #: torch's, for references and peers


def scales(n: int) -> np.ndarray:
    return (2.0 ** -(np.arange(n) % 3)).astype(np.float32)


def biases(n: int) -> np.ndarray:
    return ((np.arange(n) * 7 % 23 - 11) * 0.5).astype(np.float32)


def small(shape: list[int], kind: str, seed: int) -> np.ndarray:
    """Integers: sums of 4096 products of float8 stay below 2^13."""
    most = 4 if kind == "fp8" else 127
    return np.random.default_rng(seed).integers(-most, most + 1, shape, np.int8)


def filled(fill: dict[str, Any], kind: str, seed: int) -> np.ndarray:
    """The weights that an entry of the manifest describes."""
    shape, count, rng = fill["shape"], int(np.prod(fill["shape"])), np.random.default_rng(seed)
    types = {
        "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
        "INT8": np.dtype(np.int8),
        "FLOAT16": np.dtype(np.float16),
        "FLOAT": np.dtype(np.float32),
    }
    dtype = types[fill["type"]]
    if fill["fill"] == "scales":
        return scales(count)
    if fill["fill"] == "ones":
        return np.ones(shape, dtype)
    if fill["fill"] == "biases":
        return biases(count).reshape(shape)
    if fill["fill"] == "small":
        return small(shape, kind, seed).astype(dtype)
    # Repeated blocks: only the times matter.
    block = rng.standard_normal(min(count, 1 << 20), np.float32)
    mean, deviation = fill.get("mean", 0), fill.get("deviation", {"INT8": 40, "FLOAT16": 0.03}.get(fill["type"], 1))
    block = block * (0.02 if fill["fill"] == "small normal" else deviation) + mean
    if dtype == np.int8:
        block = block.round().clip(-127, 127)
    if fill["type"] == "FLOAT8E4M3FN":
        block = block.clip(-448, 448)
    return np.resize(block.astype(dtype), count).reshape(shape)


def fill_file(directory: pathlib.Path, about: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    weights = {f["name"]: filled(f, about.get("kind", ""), seed + k) for k, f in enumerate(about["fills"])}
    path = directory / f"{about['name']}.bin"
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as out:
            for w in weights.values():
                out.write(np.ascontiguousarray(w).tobytes())
        part.replace(path)
    return weights


def inputs_of(s: Spec, seed: int) -> dict[str, np.ndarray]:
    shape = [s.m, s.k, *s.size] if s.taps else [*([s.batch] if s.batch else []), s.m, s.k]
    feed = {"x": (small(shape, s.kind, seed).astype(np.float32) - s.zx) * np.float32(s.sx)}
    if s.batch:
        feed["w"] = small([s.batch, s.n, s.k], s.kind, seed + 1).astype(np.float32) * np.float32(s.sx)
    return feed


def reference(s: Spec, feed: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> np.ndarray:
    """Exact sums in float64; every later operation in float32, as ONNX defines it."""
    import torch
    import torch.nn.functional as F

    x = torch.from_numpy(feed["x"]).to(TORCH).double() / s.sx
    if s.batch:
        sums = x @ (torch.from_numpy(feed["w"]).to(TORCH).double() / s.sx).transpose(1, 2)
        y = sums.float() * (s.sx * s.sx)
    else:
        w = torch.from_numpy(weights["w"].astype(np.float64)).to(TORCH)
        channel, bias = (torch.from_numpy(f(s.n)).to(TORCH) for f in (scales, biases))
        if s.taps:
            columns = F.unfold(x, s.taps, s.dilation, s.pad, s.stride)
            height = (s.size[0] + 2 * s.pad - s.dilation * (s.taps - 1) - 1) // s.stride + 1
            sums = (w.reshape(s.n, -1) @ columns).reshape(s.m, s.n, height, -1)
            channel, bias = channel.reshape(-1, 1, 1), bias.reshape(-1, 1, 1)
        else:
            sums = x @ w
        y = sums.float() * (channel * s.sx) + bias
    if s.relu:
        y = y.relu()
    if s.rounds and s.kind == "fp8":
        y = (y / s.sy).clamp(-448, 448).to(torch.float8_e4m3fn).float() * s.sy
    elif s.rounds:
        y = (((y / s.sy).round() + s.zy).clamp(-128, 127) - s.zy) * s.sy
    return y.cpu().numpy()


def spec_of(name: str, about: dict[str, Any]) -> Spec:
    which = {"product": PRODUCTS, "pair": PAIRS, "convolution": CONVOLUTIONS}[name.partition("-")[0]]
    return which[about["spec"]].of(about["kind"])


def compiled(directory: pathlib.Path, about: dict[str, Any], **options: Any) -> Any:
    import sardonyx

    return sardonyx.compile(directory / f"{about['name']}.onnx", device=DEVICE, **options)


def check(directory: pathlib.Path, only: str) -> int:
    manifest = json.loads((directory / "cases.json").read_text())
    all_cases = {n: a for n, a in {**manifest["products"], **manifest["convolutions"]}.items() if only in n}
    weights = {n: fill_file(directory, a) for n, a in all_cases.items()}
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        models = {n: pool.submit(compiled, directory, a) for n, a in all_cases.items()}
        for n, a in all_cases.items():
            s = spec_of(n, a)
            try:
                feed = inputs_of(s, 7)
                got = np.asarray(models[n].result()(feed)["y0"])
                want = reference(s, feed, weights[n])
                wrong = int((got != want).sum())
                text = f"{wrong} of {want.size} differ, by up to {np.abs(got - want).max()}" if wrong else "exact"
            except Exception:
                wrong, text = 1, traceback.format_exc(limit=3)
            failures += wrong > 0
            print(f"{n:22} {s.m}x{s.k}x{s.n} {'taps ' + str(s.taps) if s.taps else ''} {text}", flush=True)
    print(f"{len(all_cases)} cases, {failures} wrong")
    return failures


def accuracy(directory: pathlib.Path) -> None:
    """Normally distributed operands: how far the sums of the chip are from exact ones, by the length of K."""
    import torch

    for k in (256, 1024, 4096, 16384):
        a, b = (torch.randn(1024, k, device=TORCH).to(torch.float8_e4m3fn) for _ in range(2))
        want = a.double() @ b.double().T
        one = torch.ones((), device=TORCH)
        for fast in (True, False):
            got = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast)
            error = float((got.double() - want).square().mean().sqrt() / want.square().mean().sqrt())
            print(f"cuBLASLt, K {k:6}, fast accumulation {fast}: relative error {error:.2e}")


def tilings(directory: pathlib.Path, path: pathlib.Path | None, only: str) -> int:
    """Times every tiling of some products, and checks the result of each."""
    manifest = json.loads((directory / "cases.json").read_text())
    chosen = [
        n
        for kind in ("fp8", "int8")
        for n in (
            *(f"product-{kind}-{k}" for k in (6, 9, 10, 12, 13, 14, 15, 25)),
            f"pair-{kind}-0",
            *(f"convolution-{kind}-{k}" for k in (1, 2, 9, 14)),
        )
        if only in n
    ]
    failures, rows = 0, []
    for n in chosen:
        about = {**manifest["products"], **manifest["convolutions"]}[n]
        s, weights = spec_of(n, about), fill_file(directory, about)
        feed = inputs_of(s, 7)
        want = reference(s, feed, weights)
        with tempfile.TemporaryDirectory() as folder:
            database = pathlib.Path(folder) / "all.sqlite"
            model = compiled(directory, about, tuning="exhaustive", tuning_database=database, cache_dir=folder)
            model(feed)
            with sqlite3.connect(database) as db:
                found = db.execute(
                    "SELECT problem, batches, m, n, k, candidate, seconds FROM times WHERE epilogue IS NULL ORDER BY seconds"
                ).fetchall()
            for row in found:
                if row[0].startswith(("product", "conv")) is False:
                    continue
                forced = pathlib.Path(folder) / "one.sqlite"
                shutil.copy(database, forced)
                with sqlite3.connect(forced) as db:
                    db.execute("DELETE FROM times WHERE problem = ? AND candidate != ?", (row[0], row[5]))
                got = np.asarray(compiled(directory, about, tuning_database=forced, cache_dir=folder)(feed)["y0"])
                wrong = int((got != want).sum())
                failures += wrong > 0
                rows.append({"case": n, "problem": row[0], "sizes": row[1:5], "candidate": row[5], "us": row[6] * 1e6})
                print(f"{n:20} {row[1:5]} {row[5]:45} {row[6] * 1e6:8.2f} us {wrong or 'exact'}", flush=True)
                if path:
                    path.write_text(json.dumps(rows))
    print(f"{len(rows)} tilings, {failures} wrong")
    return failures


class Turns:
    """Runs in turns on one stream: every engine under the same clocks."""

    def __init__(self, engines: dict[str, Any], runs: int):
        import torch

        self.times: dict[str, list[float]] = {n: [] for n in engines}
        for turn in range(9):
            for n in engines if turn % 2 else reversed(engines):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(runs):
                    engines[n]()
                end.record()
                end.synchronize()
                if turn > 1:
                    self.times[n].append(begin.elapsed_time(end) * 1e3 / runs)

    def median(self, name: str) -> float:
        return float(np.median(self.times[name]))


def bound(model: Any, feed: dict[str, Any]) -> Any:
    """A run without copies on torch's stream."""
    import sardonyx
    import torch

    on_card = {n: sardonyx.to_device(x, DEVICE) for n, x in feed.items()}
    shapes = model.output_shapes({n: tuple(x.shape) for n, x in feed.items()})
    out = {o.name: sardonyx.empty(shapes[o.name], o.dtype, DEVICE) for o in model.outputs}
    return model.bind(on_card, out, stream=torch.cuda.current_stream().cuda_stream, synchronize=False)


def in_graph(run: Any) -> Any:
    """torch's kernels as a captured graph."""
    import torch

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def peers(m: int, k: int, n: int) -> dict[str, Any]:
    """cuBLASLt's products by torch, each on REPEATS different tensors. The second operand is [n, k] in memory."""
    import torch

    def tensors(kind: Any) -> tuple[list[Any], list[Any]]:
        return tuple([torch.randn(r, k, device=TORCH).mul(0.5).to(kind) for _ in range(REPEATS)] for r in (m, n))

    one = torch.ones((), device=TORCH)
    a8, b8 = tensors(torch.float8_e4m3fn)
    a16, b16 = tensors(torch.float16)
    ai, bi = ([x.float().mul(20).to(torch.int8) for x in t] for t in (a8, b8))

    def scaled(out: Any, fast: bool, **more: Any) -> Any:
        def run() -> None:
            for a, b in zip(a8, b8, strict=True):
                torch._scaled_mm(a, b.T, one, one, out_dtype=out, use_fast_accum=fast, **more)

        return run

    runs = {
        "cuBLASLt fp16": lambda: [a @ b.T for a, b in zip(a16, b16, strict=True)],
        "cuBLASLt fp8": scaled(torch.bfloat16, True),
        "cuBLASLt fp8 slow": scaled(torch.bfloat16, False),
        "cuBLASLt fp8-8": scaled(torch.float8_e4m3fn, True, scale_result=one),
        "cuBLASLt int8": lambda: [torch._int_mm(a, b.T) for a, b in zip(ai, bi, strict=True)],
    }
    found = {}
    for name, run in runs.items():
        try:
            found[name] = in_graph(run)
        except Exception as error:
            print(f"{name} {m}x{k}x{n}: {str(error).splitlines()[0]}")
            torch.cuda.synchronize()
    return found


def times(directory: pathlib.Path, seconds: float, only: str) -> None:
    manifest = json.loads((directory / "cases.json").read_text())["timed"]
    end, geometric = time.monotonic() + seconds, []
    for case, (m, k, n) in CHAINS.items():
        if only not in case or time.monotonic() > end:
            continue
        mine = {name: a for name, a in manifest.items() if a["case"] == case}
        for a in mine.values():
            fill_file(directory, a)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            models = dict(zip(mine, pool.map(lambda a: compiled(directory, a), mine.values()), strict=True))
        engines = {}
        for name, a in mine.items():
            rng, types = np.random.default_rng(0), {"fp16": np.float16, "int8": np.int8}
            x = (rng.standard_normal((m, k), np.float32) * (30 if a["kind"] == "int8" else 1)).round(2)
            x = x.clip(-127, 127).astype(types.get(a["kind"], ml_dtypes.float8_e4m3fn))
            key = f"ours {a['kind']}{'-8' if a['rounds'] and a['kind'] == 'fp8' else ''}"
            engines[key] = bound(models[name], dict.fromkeys(a["inputs"], x))
        engines |= peers(m, k, n)
        for run in engines.values():
            for _ in range(3):
                run()
        turns = Turns(engines, max(2, min(60, int(4e12 / (2 * m * k * n * REPEATS)))))
        us = {e: turns.median(e) / REPEATS for e in engines}
        line = "  ".join(f"{e} {t:.1f}" for e, t in us.items())
        best = us.get("cuBLASLt fp8", np.nan)
        geometric.append(best / us["ours fp8"])
        print(
            f"{case} {m}x{k}x{n}: us {line}\n    fp8: {us['ours fp8'] / us['ours fp16']:.2f} of our fp16, "
            f"{geometric[-1]:.2f} of cuBLASLt's rate, {2e-6 * m * k * n / us['ours fp8']:.0f} TFLOP/s",
            flush=True,
        )
    print(f"geometric mean of the rate beside cuBLASLt's: {np.exp(np.nanmean(np.log(geometric))):.3f}")


def models(directory: pathlib.Path, rows: list[str], profile: bool) -> None:
    """ROW is SIZES@NAME[:PRECISION],...: the same inputs for all; times relative to the first."""
    import sardonyx

    for row in rows:
        sizes_text, _, names = row.partition("@")
        sizes = {k: int(v) for k, v in (s.split("=") for s in sizes_text.split(","))}
        engines = {}
        for entry in names.split(","):
            name, _, precision = entry.partition(":")
            fill_file(directory, json.loads((directory / f"{name}.json").read_text()))
            begin = time.monotonic()
            model = sardonyx.compile(directory / f"{name}.onnx", device=DEVICE, precision=precision or "fp32")
            feed, rng = {}, np.random.default_rng(0)
            for i in model.inputs:
                shape = [d if isinstance(d, int) else sizes[d] for d in i.shape]
                if i.dtype.name.startswith("int"):
                    feed[i.name] = rng.integers(0, 2 if "mask" in i.name or "type" in i.name else 1000, shape, i.dtype)
                    if "mask" in i.name:
                        feed[i.name][:] = 1
                else:
                    feed[i.name] = rng.standard_normal(shape, np.float32).astype(i.dtype)
            engines[entry] = bound(model, feed)
            engines[entry]()
            print(f"{entry}: {time.monotonic() - begin:.1f} s to compile", flush=True)
            if profile:
                _, steps = model.profile(feed)
                for step in sorted(steps, key=lambda s: -s.seconds)[:25]:
                    print(f"    {step.seconds * 1e6:8.1f} us {step.kernel} {step.nodes}"[:170])
        for run in engines.values():
            for _ in range(5):
                run()
        turns = Turns(engines, 20)
        first = turns.median(next(iter(engines)))
        for e in engines:
            t = turns.times[e]
            print(
                f"{sizes_text} {e}: {turns.median(e) / 1e3:.3f} ms ({min(t) / 1e3:.3f} to {max(t) / 1e3:.3f}), "
                f"{turns.median(e) / first:.3f} of the first",
                flush=True,
            )


def main() -> int:
    global DEVICE, TORCH
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "accuracy", "tilings", "times", "models"])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("rows", nargs="*", help="of models: batch=8,sequence=512@bert:fp16,bert_fp8:fp16")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--json", type=pathlib.Path, help="file for the times of tilings")
    parser.add_argument("--profile", action="store_true", help="also the longest steps of each model")
    parser.add_argument("--device", default=DEVICE, help="of `check`: also host, sim:gfx942")
    options = parser.parse_args()
    DEVICE, TORCH = options.device, options.device if options.device.startswith("cuda") else "cpu"
    if options.command == "check":
        return min(1, check(options.directory, options.only))
    if options.command == "accuracy":
        accuracy(options.directory)
    elif options.command == "tilings":
        return min(1, tilings(options.directory, options.json, options.only))
    elif options.command == "times":
        times(options.directory, options.seconds, options.only)
    else:
        models(options.directory, options.rows, options.profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
