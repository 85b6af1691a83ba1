"""Kernels on AMD's chips by the simulated GPU's clock (docs/amd-clock.md): estimated time, share of what bounds it, and Triton's GEMM.

    python benchmarks/amd_kernels.py measure --out rows.json                       # every problem on every chip
    python benchmarks/amd_kernels.py measure --out rows.json --chips gfx1100 --only gemm --triton FOLDER
    python benchmarks/amd_kernels.py report rows.json [--before old.json]          # tables in Markdown
    python benchmarks/amd_kernels.py show gfx1100 "gemm fp16 2048 2048 2048"       # where a kernel's cycles go

Half of the problems are for tuning; kernels and choices of tiles are made with those only, and judged by the others ("report").
A bound is the larger of operations over the chip's peak (at its highest clock) and bytes, each moved once, over memory's peak
bandwidth. Compilation is for fixed sizes, caches are cold, and each problem has a process of its own. FOLDER has Triton's kernels:
see amd_triton.py. A row that was measured is not measured again unless its file is deleted or --again is given.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
TUNING = """
gemm fp16 4096 4096 4096
gemm fp16 1024 2304 768
gemm fp16 128 768 3072
gemm bf16 2048 2048 2048
gemm int8 2048 2048 2048
gemv fp16 1 8192 2048
gemv bf16 1 8192 2048
gemv w8 1 8192 2048
gemv int4 1 8192 2048
gemv int4 4 8192 2048
gemv int4 16 8192 2048
attention 1 16 16 2048 2048 64 0
attention 8 32 8 1 4096 64 0
conv 8 64 56 64 3 1
conv 8 256 56 64 1 1
depthwise 8 256 28 3 1
softmax 4096 1024
layernorm 4096 768
rmsnorm 512 2048
sum 4096 4096 1
transpose 4096 4096 1,0
chain 4096 3072
copy 4096 4096
pool 8 64 112 3 2
"""
REPORTING = """
gemm fp16 2048 2048 2048
gemm fp16 4096 768 3072
gemm fp16 4096 3072 768
gemm fp16 1576 3072 768
gemm fp16 384 768 3072
gemm fp16 64 1000 2048
gemm fp16 512 16384 2048
gemm bf16 4096 2304 768
gemm int8 1024 3072 768
gemv fp16 1 2048 8192
gemv fp16 1 28672 4096
gemv fp16 2 28672 4096
gemv fp16 8 16384 2048
gemv bf16 1 4096 14336
gemv w8 1 28672 4096
gemv w8 8 28672 4096
gemv int4 1 2048 8192
gemv int4 1 28672 4096
gemv int4 1 128256 4096
gemv int4 2 28672 4096
gemv int4 8 28672 4096
gemv int4 16 28672 4096
attention 8 12 12 512 512 64 0
attention 1 16 16 1024 1024 128 1
attention 1 32 8 1 2048 128 0
conv 8 128 28 128 3 1
conv 8 512 7 512 3 1
conv 8 1024 14 256 1 1
conv 8 64 56 256 1 1
conv 8 3 224 64 7 2
depthwise 8 96 112 3 2
depthwise 8 480 14 5 1
softmax 12288 512
softmax bf16 12288 512
softmax 64 50257
layernorm 16384 1024
layernorm bf16 16384 1024
rmsnorm 4096 4096
rmsnorm 64 4096
sum 4096 4096 0
transpose 8 512 12 64 0,2,1,3
chain 16384 1024
chain bf16 16384 1024
copy 16384 1024
pool 8 256 28 3 1
"""


def problems() -> list[tuple[str, str]]:
    """Each problem with the half that it belongs to."""
    return [(n, h) for h, text in (("tuning", TUNING), ("report", REPORTING)) for n in text.strip().splitlines()]


@dataclass
class Case:
    model: Any
    feed: dict[str, Any]
    operations: float  # of matrix instructions
    bytes: float  # each tensor once
    eight_bits: bool = False


def half(*shape: int) -> Any:
    import numpy as np

    return (np.random.default_rng(0).standard_normal(shape) * 0.1).astype(np.float16)


def model_of(nodes: list[Any], inputs: dict[str, Any], out: int, weights: list[Any], opsets: list[Any] | None = None):
    """`inputs`: type and shape by name. The result is "y"."""
    from onnx import helper

    infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", out, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), *(opsets or [])], ir_version=11)


def product_case(kind: str, m: int, n: int, k: int) -> Case:
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng, f16 = np.random.default_rng(0), TensorProto.FLOAT16
    if kind in ("int4", "w8"):  # weights of 4 and 8 bits in blocks of 32
        bits = 4 if kind == "int4" else 8
        weights = [
            numpy_helper.from_array(rng.integers(0, 255, (n, k // 32, 4 * bits), dtype=np.uint8), "w"),
            numpy_helper.from_array(half(n * k // 32), "s"),
        ]
        sizes = {"K": k, "N": n, "bits": bits, "block_size": 32}
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes)]
        opsets = [helper.make_opsetid("com.microsoft", 1)]
        moved = n * k * (bits / 8 + 2 / 32) + 2 * (m * k + m * n)
        return Case(
            model_of(nodes, {"x": (f16, [m, k])}, f16, weights, opsets), {"x": half(m, k)}, 2 * m * n * k, moved
        )
    if kind == "int8":
        w = numpy_helper.from_array(rng.integers(-127, 127, (k, n), dtype=np.int8), "w")
        nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
        made = model_of(nodes, {"x": (TensorProto.INT8, [m, k])}, TensorProto.INT32, [w])
        return Case(made, {"x": np.zeros((m, k), np.int8)}, 2 * m * n * k, m * k + n * k + 4 * m * n, True)
    t, of = (TensorProto.BFLOAT16, ml_dtypes.bfloat16) if kind == "bf16" else (f16, np.float16)
    w = helper.make_tensor("w", t, (k, n), half(k, n).astype(of).tobytes(), raw=True)
    made = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (t, [m, k])}, t, [w])
    return Case(made, {"x": half(m, k).astype(of)}, 2 * m * n * k, 2 * (m * k + n * k + m * n))


def attention_case(b: int, heads: int, key_heads: int, queries: int, keys: int, size: int, causal: int) -> Case:
    from onnx import TensorProto, helper

    shapes = {"q": [b, heads, queries, size], "k": [b, key_heads, keys, size], "v": [b, key_heads, keys, size]}
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=causal)]
    f16 = TensorProto.FLOAT16
    made = model_of(nodes, {n: (f16, s) for n, s in shapes.items()}, f16, [])
    feed = {n: half(*s) for n, s in shapes.items()}
    operations = 4 * b * heads * queries * keys * size / (1 + causal)
    return Case(made, feed, operations, 2 * 2 * (math.prod(shapes["q"]) + math.prod(shapes["k"])))


def window_case(family: str, b: int, c: int, size: int, out: int, kernel: int, stride: int) -> Case:
    """A convolution with bias and ReLU, or pooling, of a square image with channels last."""
    from onnx import TensorProto, helper, numpy_helper

    group = c if family == "depthwise" else 1
    to = (size + 2 * (kernel // 2) - kernel) // stride + 1
    window = {"strides": [stride] * 2, "pads": [kernel // 2] * 4}
    nodes, weights = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])], []
    if family == "pool":
        nodes += [helper.make_node("MaxPool", ["t"], ["v"], kernel_shape=[kernel] * 2, **window)]
    else:
        nodes += [helper.make_node("Conv", ["t", "w", "b"], ["u"], group=group, **window)]
        nodes += [helper.make_node("Relu", ["u"], ["v"])]
        weights = [half(out, c // group, kernel, kernel), half(out)]
    nodes += [helper.make_node("Transpose", ["v"], ["y"], perm=[0, 2, 3, 1])]
    tensors = [numpy_helper.from_array(w, n) for w, n in zip(weights, "wb", strict=False)]
    made = model_of(nodes, {"x": (TensorProto.FLOAT16, [b, size, size, c])}, TensorProto.FLOAT16, tensors)
    operations = 2 * b * to * to * out * c * kernel * kernel if family == "conv" else 0
    moved = 2 * (b * size * size * c + b * to * to * out + sum(w.size for w in weights))
    return Case(made, {"x": half(b, size, size, c)}, operations, moved)


def rows_case(family: str, shape: list[int], last: str, bf16: bool) -> Case:
    """What is computed from each row of a tensor, or from its elements. `last`: the last word of the problem."""
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights, read, written = [], 1.0, 1.0
    t, of = (TensorProto.BFLOAT16, ml_dtypes.bfloat16) if bf16 else (TensorProto.FLOAT16, np.float16)
    g, b = (helper.make_tensor(n, t, shape[-1:], half(shape[-1]).astype(of).tobytes(), raw=True) for n in "gb")
    if family == "softmax":
        nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    elif family == "layernorm":
        nodes, weights = [helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"])], [g, b]
    elif family == "rmsnorm":
        nodes, weights = [helper.make_node("RMSNormalization", ["x", "g"], ["y"])], [g]
    elif family == "sum":
        *shape, axis = shape
        nodes = [helper.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=0)]
        weights, written = [numpy_helper.from_array(np.array([axis], np.int64), "a")], 1 / shape[axis]
    elif family == "transpose":
        nodes = [helper.make_node("Transpose", ["x"], ["y"], perm=[int(i) for i in last.split(",")])]
    elif family == "chain":  # a residual, GELU, a bias of each column
        add, gelu = helper.make_node("Add", ["x", "r"], ["t"]), helper.make_node("Gelu", ["t"], ["u"])
        nodes, weights, read = [add, gelu, helper.make_node("Add", ["u", "b"], ["y"])], [b], 2.0
    elif family == "copy":
        nodes, read, written = [helper.make_node("Concat", ["x", "r"], ["y"], axis=1)], 2.0, 2.0
    else:
        raise ValueError(f"unknown family of problems: {family}")
    names = ["x", "r"] if family in ("chain", "copy") else ["x"]
    made = model_of(nodes, dict.fromkeys(names, (t, shape)), t, weights)
    return Case(made, {n: half(*shape).astype(of) for n in names}, 0, 2 * math.prod(shape) * (read + written))


def case_of(name: str) -> Case:
    """A problem's model and inputs. gemm, gemv: type (int4, w8: weights in blocks of 32), M, N, K; attention: batch, heads, key heads, queries, keys, head size, causal;
    conv: batch, channels, image size, output channels, kernel, stride; depthwise, pool: the same without output channels;
    sum: shape, axis; transpose: shape, permutation; others: shape, after "bf16" if it is not float16."""
    family, *words = name.split()
    if family in ("gemm", "gemv"):
        return product_case(words[0], *map(int, words[1:]))
    if family == "attention":
        return attention_case(*map(int, words))
    if family == "conv":
        return window_case(family, *map(int, words))
    if family in ("depthwise", "pool"):
        b, c, size, kernel, stride = map(int, words)
        return window_case(family, b, c, size, c, kernel, stride)
    return rows_case(family, [int(w) for w in words if w.isdigit()], words[-1], words[0] == "bf16")


def bound_us(chip: str, case: Case) -> float:
    peak16, peak8, memory = CHIPS[chip]
    return max(case.operations / (peak8 if case.eight_bits else peak16) * 1e-6, case.bytes / memory * 1e-3)


def run_one(chip: str, name: str) -> dict[str, Any]:
    """Compiles a problem for fixed sizes and runs it on the simulated chip (in this process), with cold caches."""
    os.environ["SARDONYX_SIM"] = json.dumps({"timing": "sample"})
    sys.path.insert(0, str(BUILD / "python"))
    import sardonyx

    library, device = BUILD / "lib/libamdhip64-sim.so", f"sim:{chip}"
    case = case_of(name)
    session = sardonyx.compile(case.model.SerializeToString(), device=device)
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
    """Estimated microseconds of a kernel that amd_triton.py compiled: c[m, n] = a[m, k] . b[k, n] in float16. Sizes that its tiles don't
    divide are rounded up."""
    chip, bm, bn, bk, warps, _ = re.fullmatch(r"(\w+?)_(\d+)x(\d+)x(\d+)x(\d+)x(\d+)", stem.name).groups()
    m, n, k = (-(-size // int(tile)) * int(tile) for size, tile in ((m, bm), (n, bn), (k, bk)))
    os.environ["SARDONYX_SIM"] = json.dumps({"chips": [chip], "timing": "sample"})
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
    return timing_of(BUILD / "lib/libamdhip64-sim.so")["launches"][0]["us"]


def started(words: list[str], seconds: float) -> Any:
    """What this program prints, in a process of its own; a dict with `failed` if it fails."""
    try:
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {seconds:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][-300:]}
    return json.loads(done.stdout.splitlines()[-1])


def best_triton(chip: str, name: str, folder: Path, seconds: float) -> dict[str, Any]:
    """The fastest of Triton's kernels for this chip."""
    m, n, k = map(int, name.split()[2:])
    times = {}
    for file in sorted(folder.glob(f"{chip}_*.hsaco")):
        us = started(["triton", str(file.with_suffix("")), str(m), str(n), str(k)], seconds)
        if isinstance(us, float):
            times[file.stem.split("_")[1]] = us
    best = min(times, key=times.get, default=None)
    return {"triton_us": times[best], "triton": best, "triton_of": len(times)} if best else {}


def measure(o: argparse.Namespace) -> None:
    rows = json.loads(o.out.read_text()) if o.out.exists() else {}
    for chip in o.chips:
        for name, half in [(p, "given") for p in o.problems] or problems():
            key = f"{chip} {name}"
            if not re.search(o.only, name) or (o.half and o.half != half):
                continue
            row = rows.get(key, {})
            begun = time.monotonic()
            if o.again or "us" not in row:
                row = {**row, "chip": chip, "name": name, "half": half}
                row.pop("failed", None)
                row.update(started(["one", chip, name], o.seconds))
            if o.triton and name.startswith("gemm fp16") and "triton_us" not in row:
                row.update(best_triton(chip, name, o.triton, o.seconds))
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
                causes = {k: round(v) for k, v in i["lost_cycles_per_wave"].items() if v >= 1}
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


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    c = commands.add_parser("measure")
    c.add_argument("--out", type=Path, required=True)
    c.add_argument("--chips", nargs="+", choices=CHIPS, default=list(CHIPS))
    c.add_argument("--only", default="", help="a regular expression of problems")
    c.add_argument("--half", choices=["tuning", "report"])
    c.add_argument("--problems", nargs="+", default=[], help='these instead, e.g. "gemm fp16 1576 2304 768"')
    c.add_argument("--seconds", type=float, default=120, help="for one kernel")
    c.add_argument("--triton", type=Path, help="folder with kernels of amd_triton.py")
    c.add_argument("--again", action="store_true")
    c.set_defaults(run=measure)
    c = commands.add_parser("report")
    c.add_argument("rows", type=Path)
    c.add_argument("--before", type=Path, help="rows of another build, to compare with")
    c.set_defaults(run=report)
    for name, run in (("one", one), ("show", show)):
        c = commands.add_parser(name)
        c.add_argument("chip", choices=CHIPS)
        c.add_argument("name")
        c.add_argument(
            "--least", type=float, default=0.02, help="share of lost cycles from which instructions are shown"
        )
        c.set_defaults(run=run)
    c = commands.add_parser("triton")
    c.add_argument("stem", type=Path)
    c.add_argument("sizes", type=int, nargs=3)
    c.set_defaults(run=lambda o: print(json.dumps(run_triton(o.stem, *o.sizes))))
    o = p.parse_args()
    o.run(o)


if __name__ == "__main__":
    main()
