"""Triton's flash attention on AMD's chips by the simulated GPU's clock: a peer for the attention problems of amd_kernels.py.

    python -m venv triton && triton/bin/pip install triton
    triton/bin/python benchmarks/amd_triton_attention.py compile FOLDER [--chips CHIP ...]
    triton/bin/python benchmarks/amd_triton_attention.py measure FOLDER --out triton.json [--best 3]
    python benchmarks/amd_triton_attention.py report triton.json rows.json     # rows of amd_kernels.py

FOLDER gets CHIP_TYPE_HEAD_CAUSAL_BMxBNxWARPSxSTAGESxMATRIX.hsaco and .json (the kernel's name and LDS). Heads are contiguous:
q, k, v and out are [heads, rows, HEAD] in TYPE, fp16 or bf16. `measure` times every configuration with `--rows` rows for each chip, type, head
size and mask, and the `--best` of them at the other lengths.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

try:
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
except ImportError:  # "report" does without
    triton = None

BUILD = Path(__file__).resolve().parent.parent / "build"
WAVES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
#: BM, BN, warps, stages, rows of a matrix instruction
CONFIGURATIONS = {
    64: [
        (128, 64, 4, 1, 16),
        (128, 64, 4, 2, 16),
        (128, 64, 4, 1, 32),
        (128, 64, 4, 2, 32),
        (128, 32, 4, 1, 16),
        (128, 128, 4, 1, 16),
        (128, 64, 8, 1, 16),
        (128, 64, 8, 2, 16),
        (256, 64, 4, 1, 32),
        (256, 64, 8, 1, 32),
        (256, 64, 8, 2, 16),
        (64, 64, 4, 1, 16),
        (64, 64, 4, 2, 16),
        (64, 32, 4, 1, 16),
    ],
    32: [
        (128, 64, 4, 1, 16),
        (128, 64, 8, 1, 16),
        (128, 32, 4, 1, 16),
        (128, 32, 8, 1, 16),
        (128, 32, 8, 2, 16),
        (64, 64, 4, 1, 16),
        (64, 64, 4, 2, 16),
        (64, 32, 4, 1, 16),
        (64, 32, 4, 2, 16),
        (64, 32, 2, 1, 16),
        (64, 16, 4, 1, 16),
        (32, 32, 2, 1, 16),
        (256, 32, 8, 1, 16),
    ],
}
LENGTHS = (1024, 2048, 4096, 8192)
HEADS = 16
TYPES = ("fp16", "bf16")

if triton:

    @triton.jit
    def keys_of(
        sums, total, top, query, key, value, low, high, rows, BN: tl.constexpr, D: tl.constexpr, MASK: tl.constexpr
    ):
        columns, dims = tl.arange(0, BN), tl.arange(0, D)
        from_key = key + (low + columns)[None, :] * D + dims[:, None]
        from_value = value + (low + columns)[:, None] * D + dims[None, :]
        for t in range(low, high, BN):
            scores = tl.dot(query, tl.load(from_key))
            if MASK:
                scores = tl.where(rows[:, None] >= t + columns[None, :], scores, float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 1))
            shares = tl.math.exp2(scores - higher[:, None])
            rescale = tl.math.exp2(top - higher)
            total = total * rescale + tl.sum(shares, 1)
            sums = tl.dot(shares.to(query.dtype), tl.load(from_value), sums * rescale[:, None])
            top = higher
            from_key += BN * D
            from_value += BN * D
        return sums, total, top

    @triton.jit
    def attention(q, k, v, out, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
        """Flash attention; scale: of the scores, times log2(e). With CAUSAL the last tiles of rows start first."""
        tile = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
        head = tl.program_id(1) * n * D
        rows, dims = tile * BM + tl.arange(0, BM), tl.arange(0, D)
        at = head + rows[:, None] * D + dims[None, :]
        query = (tl.load(q + at) * scale).to(q.dtype.element_ty)
        top = tl.full((BM,), float("-inf"), tl.float32)
        total = tl.zeros((BM,), tl.float32)
        sums = tl.zeros((BM, D), tl.float32)
        whole = tile * BM if CAUSAL else n  # keys that all rows of the tile attend to
        sums, total, top = keys_of(sums, total, top, query, k + head, v + head, 0, whole, rows, BN, D, False)
        if CAUSAL:
            sums, total, top = keys_of(
                sums, total, top, query, k + head, v + head, whole, whole + BM, rows, BN, D, True
            )
        tl.store(out + at, (sums / total[:, None]).to(q.dtype.element_ty))


def compiled(chip, kind, head, causal, bm, bn, warps, stages, matrix):
    types = dict.fromkeys(("q", "k", "v", "out"), f"*{kind}") | {"n": "i32", "scale": "fp32"}
    types |= dict.fromkeys(("BM", "BN", "D", "CAUSAL"), "constexpr")
    source = triton.compiler.ASTSource(
        fn=attention,
        signature=types,
        constexprs={"BM": bm, "BN": bn, "D": head, "CAUSAL": causal},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(5)},
    )
    options = {"num_warps": warps, "num_stages": stages}
    if WAVES[chip] == 64:
        options["matrix_instr_nonkdim"] = matrix
    return triton.compile(source, target=GPUTarget("hip", chip, WAVES[chip]), options=options)


def compile_all(o: argparse.Namespace) -> None:
    o.folder.mkdir(parents=True, exist_ok=True)
    for chip, kind, head, causal in itertools.product(o.chips, o.types, o.heads, (0, 1)):
        for c in CONFIGURATIONS[WAVES[chip]]:
            stem = o.folder / f"{chip}_{kind}_{head}_{causal}_{'x'.join(map(str, c))}"
            if (causal and c[0] % c[1]) or stem.with_suffix(".json").exists():
                continue
            try:
                kernel = compiled(chip, kind, head, causal, *c)
            except Exception as e:  # Triton refuses some, for instance those with too much LDS
                print(f"{stem.name}: {str(e).splitlines()[0][:200]}")
                continue
            stem.with_suffix(".hsaco").write_bytes(kernel.asm["hsaco"])
            about = {"name": kernel.metadata.name, "shared": kernel.metadata.shared}
            stem.with_suffix(".json").write_text(json.dumps(about))


def run_one(stem: Path, length: int) -> float:
    """Estimated microseconds of one kernel. What was allocated is kept, so that the next kernel's operands are in no cache."""
    chip, _, head, _, config = stem.name.split("_")
    bm, _, warps, *_ = map(int, config.split("x"))
    options = {"timing": "sample", "check_waits": False, "check_races": False}  # as in amd_kernels.py
    os.environ["SARDONYX_SIM"] = json.dumps({"chips": [chip], **options})
    hip = ctypes.CDLL(str(BUILD / "lib/libamdhip64-sim.so"))
    about = json.loads(stem.with_suffix(".json").read_text())

    def check(status: int) -> None:
        if status:
            raise RuntimeError(f"{stem.name}: error {status}")

    module, function, pointers = ctypes.c_void_p(), ctypes.c_void_p(), []
    check(hip.hipModuleLoadData(ctypes.byref(module), stem.with_suffix(".hsaco").read_bytes()))
    check(hip.hipModuleGetFunction(ctypes.byref(function), module, about["name"].encode()))
    size = ctypes.c_size_t(2 * HEADS * length * int(head))
    for _ in range(4):
        pointers.append(ctypes.c_void_p())
        check(hip.hipMalloc(ctypes.byref(pointers[-1]), size))
        check(hip.hipMemset(pointers[-1], 0, size))
    scale = ctypes.c_float(math.log2(math.e) / math.sqrt(int(head)))
    arguments = [*pointers, ctypes.c_int(length), scale, ctypes.c_void_p(0), ctypes.c_void_p(0)]
    packed = (ctypes.c_void_p * len(arguments))(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments))
    check(hip.hipModuleLaunchKernel(function, length // bm, HEADS, 1, warps * WAVES[chip], 1, 1, about["shared"], None, packed, None))  # fmt: skip
    check(hip.hipDeviceSynchronize())
    hip.sardonyxSimTiming.restype = ctypes.c_char_p
    return json.loads(hip.sardonyxSimTiming())["launches"][-1]["us"]


def times_of(stems: list[Path], length: int, seconds: float) -> dict[str, float]:
    """Microseconds by configuration, measured in one process; without those that failed."""
    words = [sys.executable, __file__, "one", str(length), *map(str, stems)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"{stems[0].name} and others, {length} rows: more than {seconds:.0f} s")
        return {}
    if done.returncode:
        print(f"{length} rows: {(done.stderr.strip().splitlines() or ['no message'])[-1][-200:]}")
        return {}
    return {s.name.split("_")[4]: us for s, us in zip(stems, json.loads(done.stdout), strict=True)}


def measure(o: argparse.Namespace) -> None:
    rows = json.loads(o.out.read_text()) if o.out.exists() else {}

    def times(chip: str, kind: str, head: int, causal: int, length: int, stems: list[Path]) -> dict[str, float]:
        of = "bf16 " if kind == "bf16" else ""
        key = f"{chip} attention {of}1 {HEADS} {HEADS} {length} {length} {head} {causal}"
        if key not in rows:
            rows[key] = dict(sorted(times_of(stems, length, o.seconds).items(), key=lambda x: x[1]))
            o.out.write_text(json.dumps(rows, indent=1))
            print(key, *(f"{c} {us:.1f}" for c, us in list(rows[key].items())[:3]), f"of {len(rows[key])}", flush=True)
        return rows[key]

    for chip, kind, head, causal in itertools.product(o.chips, o.types, o.heads, (0, 1)):
        prefix = f"{chip}_{kind}_{head}_{causal}_"
        stems = sorted(f.with_suffix("") for f in o.folder.glob(prefix + "*.hsaco"))
        best = list(times(chip, kind, head, causal, o.rows, stems))[: o.best]
        for length in o.lengths:
            times(chip, kind, head, causal, length, [o.folder / (prefix + c) for c in best])


def report(o: argparse.Namespace) -> None:
    peers, ours = json.loads(o.triton.read_text()), json.loads(o.rows.read_text())
    print("| chip | problem | ours, us | Triton, us (configuration) | ours / Triton |\n|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {}
    for key, times in peers.items():
        if "us" not in ours.get(key, {}) or not times:
            continue
        chip, problem = key.split(" ", 1)
        config, us = next(iter(times.items()))
        ratios.setdefault(chip, []).append(ours[key]["us"] / us)
        print(f"| {chip} | {problem} | {ours[key]['us']:.1f} | {us:.1f} ({config}) | {ratios[chip][-1]:.2f} |")
    print("\n| chip | geometric mean | worst | problems |\n|---|---|---|---|")
    for chip, r in ratios.items():
        print(f"| {chip} | {math.exp(sum(map(math.log, r)) / len(r)):.2f} | {max(r):.2f} | {len(r)} |")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)

    def which(c: argparse.ArgumentParser) -> None:
        c.add_argument("--chips", nargs="+", choices=WAVES, default=list(WAVES))
        c.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
        c.add_argument("--heads", nargs="+", type=int, choices=(64, 128), default=[64, 128], help="elements of a head")

    c = commands.add_parser("compile")
    c.add_argument("folder", type=Path)
    which(c)
    c.set_defaults(run=compile_all)
    c = commands.add_parser("measure")
    c.add_argument("folder", type=Path)
    c.add_argument("--out", type=Path, required=True)
    which(c)
    c.add_argument("--rows", type=int, default=2048, help="length at which every configuration is timed")
    c.add_argument("--lengths", type=int, nargs="*", default=list(LENGTHS))
    c.add_argument("--best", type=int, default=3, help="configurations that are timed at the other lengths")
    c.add_argument("--seconds", type=float, default=900, help="for the kernels of one problem")
    c.set_defaults(run=measure)
    c = commands.add_parser("one")
    c.add_argument("length", type=int)
    c.add_argument("stems", type=Path, nargs="+")
    c.set_defaults(run=lambda o: print(json.dumps([run_one(stem, o.length) for stem in o.stems])))
    c = commands.add_parser("report")
    c.add_argument("triton", type=Path)
    c.add_argument("rows", type=Path)
    c.set_defaults(run=report)
    o = p.parse_args()
    o.run(o)


if __name__ == "__main__":
    main()
