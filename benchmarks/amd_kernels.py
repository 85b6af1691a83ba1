"""Kernels on AMD's chips by the simulated GPU's clock (docs/amd-clock.md): estimated time, share of what bounds it, and Triton's GEMM.

    python benchmarks/amd_kernels.py measure --out rows.json                       # every problem on every chip
    python benchmarks/amd_kernels.py measure --out rows.json --chips gfx1100 --only gemm --triton FOLDER
    python benchmarks/amd_kernels.py report rows.json [--before old.json]          # tables in Markdown
    python benchmarks/amd_kernels.py measure --out rows.json --resnet 64 8         # ResNet-50's convolutions for 64 and 8 images
    python benchmarks/amd_kernels.py resnet rows.json [--before old.json]          # their table
    python benchmarks/amd_kernels.py memory rows.json                              # the table of what memory bounds
    python benchmarks/amd_kernels.py show gfx1100 "gemm fp16 2048 2048 2048"       # where a kernel's cycles go

Half of the problems are for tuning; kernels and choices of tiles are made with those only, and judged by the others ("report": sizes of
models, "large": sizes whose launch, first loads and last workgroups matter little, for kernels that memory bounds).
A bound is the larger of operations over the chip's peak (at its highest clock) and bytes, each moved once, over memory's peak
bandwidth. Compilation is for fixed sizes, caches are cold, and each problem has a process of its own. FOLDER has Triton's kernels:
see amd_triton.py. A row that was measured is not measured again unless its file is deleted or --again is given.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from amd_problems import Case, case_of, problems, resnet_convolutions

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
#: TFLOP/s in 16 bits (8 bits: twice that on CDNA, RDNA 3 the same), GB/s of memory: src/target/chips.cpp
CHIPS = {
    "gfx90a": (191.5, 191.5, 1638),
    "gfx942": (1307.4, 2614.9, 5300),
    "gfx950": (2516.6, 5033.2, 8000),
    "gfx1100": (122.8, 122.8, 960),
    "gfx1201": (195.0, 389.0, 640),
}
#: Share of memory's peak that long streams reach (memory_efficiency in src/target/timing.h, set from published measurements).
STREAMS = {"gfx90a": 0.85, "gfx942": 0.81, "gfx950": 0.81, "gfx1100": 0.90, "gfx1201": 0.90}
#: Clock under full matrix load as a share of the highest one: src/target/timing.h (matrix_mhz), src/target/chips.cpp.
SUSTAINED = {"gfx90a": 1600 / 1700, "gfx942": 1300 / 2100, "gfx950": 1800 / 2400, "gfx1100": 2400 / 2500, "gfx1201": 2750 / 2970}  # fmt: skip
#: The simulator's options. Without its checks it takes two thirds of the time, and estimates are the same.
SAMPLED = {"timing": "sample", "check_waits": False, "check_races": False}
MEMORY_BOUND = ["gemv", "copy", "chain", "softmax", "layernorm", "rmsnorm", "sum", "transpose", "depthwise", "pool"]


def bound_us(chip: str, case: Case) -> float:
    peak16, peak8, memory = CHIPS[chip]
    return max(case.operations / (peak8 if case.eight_bits else peak16) * 1e-6, case.bytes / memory * 1e-3)


def run_one(chip: str, name: str) -> dict[str, Any]:
    """Compiles a problem for fixed sizes and runs it on the simulated chip (in this process), with cold caches."""
    os.environ["SARDONYX_SIM"] = json.dumps(SAMPLED)
    sys.path.insert(0, str(BUILD / "python"))
    import sardonyx

    library, device = BUILD / "lib/libamdhip64-sim.so", f"sim:{chip}"
    case = case_of(name)
    session = sardonyx.compile(case.model.SerializeToString(), device=device)
    if case.model.graph.initializer:
        session.run(case.feed)  # weights are rearranged before the first run
    first = timing_of(library)["launches"]
    evicting, large = evicting_case()
    sardonyx.compile(evicting.SerializeToString(), device=device).run(large)
    before = len(timing_of(library)["launches"])
    session.run(case.feed)
    launches = timing_of(library)["launches"][before:]
    for x in launches:  # only the first launch of a kernel and grid has them
        same = [f for f in first if (f["kernel"], f["grid"]) == (x["kernel"], x["grid"])]
        x.setdefault("instructions", same[0].get("instructions", []) if same else [])
    return {"launches": launches, "bound_us": bound_us(chip, case)}


def evicting_case() -> tuple[Any, dict[str, Any]]:
    """A model that reads and writes more than the largest cache (256 MB), and its input."""
    import numpy as np
    from onnx import TensorProto, helper

    shape = [80 << 20]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, shape) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    return model, {"x": np.zeros(shape, np.float16)}


def timing_of(library: Path) -> dict[str, Any]:
    simulator = ctypes.CDLL(str(library))
    simulator.sardonyxSimTiming.restype = ctypes.c_char_p
    return json.loads(simulator.sardonyxSimTiming())


def run_triton(stem: Path, m: int, n: int, k: int) -> float:
    """Estimated microseconds of a kernel that amd_triton.py compiled: c[m, n] = a[m, k] . b[k, n] in 16 bits. Sizes that its tiles don't
    divide are rounded up. What was allocated is kept, so that the next kernel's operands are in no cache."""
    chip, _, tiling = stem.name.split("_")
    bm, bn, bk, warps, _ = tiling.split("x")
    m, n, k = (-(-size // int(tile)) * int(tile) for size, tile in ((m, bm), (n, bn), (k, bk)))
    os.environ["SARDONYX_SIM"] = json.dumps({"chips": [chip], **SAMPLED})
    hip = ctypes.CDLL(str(BUILD / "lib/libamdhip64-sim.so"))
    about = json.loads(stem.with_suffix(".json").read_text())

    def check(status: int) -> None:
        if status:
            raise RuntimeError(f"{stem.name}: error {status}")

    module, function, pointers = ctypes.c_void_p(), ctypes.c_void_p(), []
    check(hip.hipModuleLoadData(ctypes.byref(module), stem.with_suffix(".hsaco").read_bytes()))
    check(hip.hipModuleGetFunction(ctypes.byref(function), module, about["name"].encode()))
    for count in (m * k, n * k, m * n):
        pointers.append(ctypes.c_void_p())
        check(hip.hipMalloc(ctypes.byref(pointers[-1]), ctypes.c_size_t(2 * count)))
        check(hip.hipMemset(pointers[-1], 0, ctypes.c_size_t(2 * count)))
    arguments = [*pointers, *(ctypes.c_int(v) for v in (m, n, k, k, n, n)), ctypes.c_void_p(0), ctypes.c_void_p(0)]
    packed = (ctypes.c_void_p * len(arguments))(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in arguments))
    grid = m // int(bm) * (n // int(bn))
    threads = int(warps) * (64 if chip.startswith("gfx9") else 32)
    check(hip.hipModuleLaunchKernel(function, grid, 1, 1, threads, 1, 1, about["shared"], None, packed, None))
    check(hip.hipDeviceSynchronize())
    return timing_of(BUILD / "lib/libamdhip64-sim.so")["launches"][-1]["us"]


def run_all_triton(o: argparse.Namespace) -> None:
    """Prints the times of the fastest of Triton's kernels. All are timed with a part of K, and the `first` of these with all of it."""
    stems = sorted(o.folder.glob(f"{o.chip}_{o.kind}_*.hsaco"))
    times = {}
    for k, few in ((max(256, o.sizes[2] // 4), len(stems)), (o.sizes[2], o.first)):
        times = {stem: run_triton(stem, *o.sizes[:2], k) for stem in stems[:few]}
        stems = sorted(times, key=times.__getitem__)
    print(json.dumps({stem.stem.split("_")[2]: times[stem] for stem in stems}))


def started(words: list[str], seconds: float) -> Any:
    """What this program prints, in a process of its own; a dict with `failed` if it fails."""
    try:
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {seconds:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][-300:]}
    return json.loads(done.stdout.splitlines()[-1])


def best_triton(chip: str, name: str, folder: Path, first: int, seconds: float) -> dict[str, Any]:
    """The fastest of Triton's kernels for this chip and type."""
    kind, *sizes = name.split()[1:]
    times = started(["triton", "--first", str(first), str(folder), chip, kind, *sizes], seconds)
    if "failed" in times:
        return {"triton_failed": times["failed"]}
    best = min(times, key=times.get)
    return {"triton_us": times[best], "triton": best, "triton_of": len(list(folder.glob(f"{chip}_{kind}_*.hsaco")))}


def measure(o: argparse.Namespace) -> None:
    rows = json.loads(o.out.read_text()) if o.out.exists() else {}
    given = [*o.problems, *(name for batch in o.resnet for name in resnet_convolutions(batch))]
    for chip in o.chips:
        for name, half in [(p, "given") for p in given] or problems():
            key = f"{chip} {name}"
            if not re.search(o.only, name) or (o.half and o.half != half):
                continue
            row = rows.get(key, {})
            begun = time.monotonic()
            if o.again or "us" not in row:
                row = {**row, "chip": chip, "name": name, "half": half}
                row.pop("failed", None)
                row.update(started(["one", chip, name], o.seconds))
            if o.triton and name.startswith(("gemm fp16", "gemm bf16")) and "triton_us" not in row:
                row.update(best_triton(chip, name, o.triton, o.first, o.seconds))
            if o.out.exists():  # another process may measure other rows
                rows = json.loads(o.out.read_text())
            rows[key] = row
            o.out.write_text(json.dumps(rows, indent=1))
            share = f"{100 * row['bound_us'] / row['us']:5.1f} %" if "us" in row else row["failed"]
            print(
                f"{key:44} {row.get('us', 0):10.1f} us {share}  {row.get('limited_by', '')}  [{time.monotonic() - begun:.0f} s]",
                flush=True,
            )


def one(o: argparse.Namespace) -> None:
    done = run_one(o.chip, o.name)
    launches = done["launches"]
    longest = max(launches, key=lambda x: x["us"])
    row = {
        "us": sum(x["us"] for x in launches),
        "bound_us": done["bound_us"],
        "launches": len(launches),
        "limited_by": longest["limited_by"],
        "matrix": longest["busy"].get("matrix", 0),
        "lost": max(longest["lost"], key=longest["lost"].get, default=""),
    }
    print(json.dumps(row))


def show(o: argparse.Namespace) -> None:
    for x in run_one(o.chip, o.name)["launches"]:
        print(
            f"{x['kernel']} grid {x['grid']} block {x['block']}: {x['us']:.1f} us, {x['waves_per_simd']} waves a SIMD ({x['occupancy_limit']})"
        )
        print(
            "  busy",
            {k: round(v, 2) for k, v in x["busy"].items()},
            "l2",
            round(x["l2"], 2),
            "memory",
            round(x["memory"], 2),
        )
        print("  issued", round(x["issued"], 2), "lost", {k: round(v, 2) for k, v in x["lost"].items() if v >= 0.01})
        code = x.get("instructions", [])
        cycles = [sum(i.get("lost_cycles_per_wave", {}).values()) for i in code]
        for i, c in zip(code, cycles, strict=True):
            if c > o.least * sum(cycles):
                causes = {k: round(v) for k, v in i.get("lost_cycles_per_wave", {}).items() if v >= 1}
                print(f"  {i['offset']:6x} {i['count']:8} {c:8.0f}  {i['text'][:70]:70} {i.get('source', '')} {causes}")


def report(o: argparse.Namespace) -> None:
    rows = list(json.loads(o.rows.read_text()).values())
    before = json.loads(o.before.read_text()) if o.before else {}
    good = [r for r in rows if "us" in r]
    share = lambda r: 100 * r["bound_us"] / r["us"]
    print("| family | " + " | ".join(CHIPS) + " |\n|---|" + "---|" * len(CHIPS))
    for family in dict.fromkeys(r["name"].split()[0] for r in good):
        cells = []
        for chip in CHIPS:
            of = [r for r in good if r["chip"] == chip and r["name"].split()[0] == family and r["half"] == "report"]
            old = [before[f"{chip} {r['name']}"] for r in of if "us" in before.get(f"{chip} {r['name']}", {})]
            text = f"{statistics.median(map(share, of)):.0f} ({min(map(share, of)):.0f})" if of else ""
            if old:
                text = f"{statistics.median(map(share, old)):.0f} ({min(map(share, old)):.0f}) → " + text
            cells.append(text)
        print(f"| {family} | " + " | ".join(cells) + " |")
    for chip in CHIPS:
        of = [r for r in rows if r["chip"] == chip]
        if not of:
            continue
        old = "before, us | " if before else ""
        print(
            f"\n### {chip}\n\n| problem | half | {old}us | bound, us | share | matrix busy | limited by; most lost to | Triton, us | ours / Triton |"
        )
        print("|---|---|---|---|---|---|---|---|---|" + ("---|" if before else ""))
        for r in of:
            if "us" not in r:
                print(f"| {r['name']} | {r['half']} | {'| ' if before else ''}failed: {r['failed']} | | | | | | |")
                continue
            was = before.get(f"{chip} {r['name']}", {}).get("us")
            was = (f"{was:.1f} | " if was else "| ") if before else ""
            triton = (
                f"{r['triton_us']:.1f} ({r['triton']}) | {r['us'] / r['triton_us']:.2f}" if "triton_us" in r else "|"
            )
            print(
                f"| {r['name']} | {r['half']} | {was}{r['us']:.1f} | {r['bound_us']:.1f} | {share(r):.0f} % | {100 * r['matrix']:.0f} % | {r['limited_by']}; {r['lost']} | {triton} |"
            )


def resnet(o: argparse.Namespace) -> None:
    """ResNet-50's convolutions: shares of the bound at the highest clock, and at the one that full matrix load leaves."""
    rows = json.loads(o.rows.read_text())
    before = json.loads(o.before.read_text()) if o.before else {}

    def shares(row: dict[str, Any]) -> tuple[float, float]:
        arithmetic = case_of(row["name"]).operations / (CHIPS[row["chip"]][0] * SUSTAINED[row["chip"]]) * 1e-6
        return 100 * row["bound_us"] / row["us"], 100 * max(row["bound_us"], arithmetic) / row["us"]

    for batch in (64, 8, 1):
        counts = resnet_convolutions(batch)
        chips = [c for c in CHIPS if any("us" in rows.get(f"{c} {name}", {}) for name in counts)]
        if not chips:
            continue
        print(f"| batch {batch} | how many | " + " | ".join(chips) + " |\n|---|---|" + "---|" * len(chips))
        every: dict[str, list[tuple[int, float, float]]] = {c: [] for c in chips}
        for name, count in counts.items():
            cells = []
            for chip in chips:
                row, old = (of.get(f"{chip} {name}", {}) for of in (rows, before))
                if "us" not in row:
                    cells.append("")
                    continue
                highest, sustained = shares(row)
                every[chip].append((count, highest, sustained))
                was = f"{old['us']:.1f} → " if "us" in old else ""
                cells.append(f"{was}{row['us']:.1f} us ({highest:.0f}, {sustained:.0f} %)")
            print(f"| {name.split(' ', 2)[2]} | {count} | " + " | ".join(cells) + " |")
        for title, weighted in (("geometric mean", False), ("... of all 53 in the network", True)):
            cells = []
            for chip in chips:
                weights = [count if weighted else 1 for count, _, _ in every[chip]]
                highest, sustained = (
                    statistics.geometric_mean(
                        [x[k] for x, w in zip(every[chip], weights, strict=True) for _ in range(w)]
                    )
                    for k in (1, 2)
                )
                cells.append(f"{highest:.0f}, {sustained:.0f} %" + ("" if len(every[chip]) == len(counts) else f" of {len(every[chip])}"))  # fmt: skip
            print(f"| **{title}** | | " + " | ".join(cells) + " |")
        print()


def memory(o: argparse.Namespace) -> None:
    """Kernels that memory bounds: shares of memory's peak, and of what long streams reach of it. Rows of `before` stand for those that are
    not measured again."""
    before = json.loads(o.before.read_text()) if o.before else {}
    rows = {**before, **json.loads(o.rows.read_text())}
    print("| problem | " + " | ".join(CHIPS) + " |\n|---|" + "---|" * len(CHIPS))
    worst: dict[tuple[str, str], list[float]] = {}
    for name in dict.fromkeys(r["name"] for r in rows.values() if r["name"].split()[0] in MEMORY_BOUND):
        cells = []
        for chip in CHIPS:
            r, old = rows.get(f"{chip} {name}", {}), before.get(f"{chip} {name}", {})
            if "us" not in r:
                cells.append("")
                continue
            share = 100 * r["bound_us"] / r["us"]
            worst.setdefault((chip, name.split()[0]), []).append(share)
            was = f"{100 * old['bound_us'] / old['us']:.0f} → " if "us" in old and old["us"] != r["us"] else ""
            cells.append(f"{r['us']:.1f} us: {was}{share:.0f} % ({share / STREAMS[chip]:.0f})")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\n| family | " + " | ".join(CHIPS) + " |\n|---|" + "---|" * len(CHIPS))
    for family in MEMORY_BOUND:
        of = [worst.get((chip, family)) for chip in CHIPS]
        if any(of):
            print(f"| {family} | " + " | ".join(f"{max(x):.0f}, worst {min(x):.0f}" if x else "" for x in of) + " |")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    c = commands.add_parser("measure")
    c.add_argument("--out", type=Path, required=True)
    c.add_argument("--chips", nargs="+", choices=CHIPS, default=list(CHIPS))
    c.add_argument("--only", default="", help="a regular expression of problems")
    c.add_argument("--half", choices=["tuning", "report", "large"])
    c.add_argument("--problems", nargs="+", default=[], help='these instead, e.g. "gemm fp16 1576 2304 768"')
    c.add_argument(
        "--resnet", nargs="+", type=int, default=[], metavar="BATCH", help="ResNet-50's convolutions instead"
    )
    c.add_argument("--seconds", type=float, default=120, help="for one kernel")
    c.add_argument("--triton", type=Path, help="folder with kernels of amd_triton.py")
    c.add_argument(
        "--first", type=int, default=3, help="of its kernels, which are ranked with a quarter of K, so many are timed"
    )
    c.add_argument("--again", action="store_true")
    c.set_defaults(run=measure)
    c = commands.add_parser("report")
    c.add_argument("rows", type=Path)
    c.add_argument("--before", type=Path, help="rows of another build, to compare with")
    c.set_defaults(run=report)
    c = commands.add_parser("resnet")
    c.add_argument("rows", type=Path)
    c.add_argument("--before", type=Path, help="rows of another build, to compare with")
    c.set_defaults(run=resnet)
    c = commands.add_parser("memory")
    c.add_argument("rows", type=Path)
    c.add_argument("--before", type=Path, help="rows of another build, to compare with")
    c.set_defaults(run=memory)
    for name, run in (("one", one), ("show", show)):
        c = commands.add_parser(name)
        c.add_argument("chip", choices=CHIPS)
        c.add_argument("name")
        c.add_argument(
            "--least", type=float, default=0.02, help="share of lost cycles from which instructions are shown"
        )
        c.set_defaults(run=run)
    c = commands.add_parser("triton")
    c.add_argument("folder", type=Path)
    c.add_argument("chip", choices=CHIPS)
    c.add_argument("kind", choices=("fp16", "bf16"))
    c.add_argument("sizes", type=int, nargs=3)
    c.add_argument("--first", type=int, default=3)
    c.set_defaults(run=run_all_triton)
    o = p.parse_args()
    o.run(o)


if __name__ == "__main__":
    main()
