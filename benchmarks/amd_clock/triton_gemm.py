"""Triton's matrix product for a card that is not there: compiled here, its launch estimated by the simulated GPU.

    python benchmarks/amd_clock/triton_gemm.py --chip gfx1100 --product "RX 7900 XTX" --library build/lib/libamdhip64-sim.so \
        --type bf16 --tile 128 128 32 --warps 4 --stages 2 1024 1024 1024

Needs the package triton, in an environment of its own; the kernel is that of Triton's tutorial, with masks along K and
fp32 results. Prints the estimate as JSON (docs/amd-clock.md).
"""

import argparse
import ctypes
import json
import os
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget


@triton.jit
def product(a, b, c, m, n, k, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, G: tl.constexpr, EVEN: tl.constexpr):  # fmt: skip
    # Workgroups go down G rows of tiles before they go to the next column.
    tiles_n = tl.cdiv(n, BN)
    group = tl.program_id(0) // (G * tiles_n)
    rows = min(tl.cdiv(m, BM) - group * G, G)
    tile_m = group * G + tl.program_id(0) % (G * tiles_n) % rows
    tile_n = tl.program_id(0) % (G * tiles_n) // rows
    row = (tile_m * BM + tl.arange(0, BM)) % m
    column = (tile_n * BN + tl.arange(0, BN)) % n
    inner = tl.arange(0, BK)
    pa = a + row[:, None] * am + inner[None, :] * ak
    pb = b + inner[:, None] * bk + column[None, :] * bn
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(tl.cdiv(k, BK)):
        if EVEN:
            x = tl.load(pa)
            y = tl.load(pb)
        else:
            x = tl.load(pa, mask=inner[None, :] < k - i * BK, other=0.0)
            y = tl.load(pb, mask=inner[:, None] < k - i * BK, other=0.0)
        sums = tl.dot(x, y, sums)
        pa += BK * ak
        pb += BK * bk
    row = tile_m * BM + tl.arange(0, BM)
    column = tile_n * BN + tl.arange(0, BN)
    tl.store(c + row[:, None] * cm + column[None, :] * cn, sums, mask=(row[:, None] < m) & (column[None, :] < n))


def compiled(o):
    scalars = ["m", "n", "k", "am", "ak", "bk", "bn", "cm", "cn"]
    names = ["a", "b", "c", *scalars, "BM", "BN", "BK", "G", "EVEN"]
    kinds = {"a": f"*{o.type}", "b": f"*{o.type}", "c": "*fp32", **dict.fromkeys(scalars, "i32")}
    # Triton takes strides of one for constants, and knows that addresses and sizes are multiples of 16.
    constants = {"ak": 1, "bn": 1, "cn": 1, "BM": o.tile[0], "BN": o.tile[1], "BK": o.tile[2], "G": o.group}
    constants["EVEN"] = o.even
    source = triton.compiler.ASTSource(
        fn=product,
        signature={n: "constexpr" if n in constants else kinds[n] for n in names},
        constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n not in constants},
    )
    warp = 64 if o.chip.startswith("gfx9") else 32
    return triton.compile(
        source, target=GPUTarget("hip", o.chip, warp), options={"num_warps": o.warps, "num_stages": o.stages}
    ), warp


def estimate(o, kernel, warp):
    os.environ["SARDONYX_SIM"] = json.dumps(
        {"chips": [o.product or o.chip], "timing": "sample", "print_failures": True}
    )
    hip = ctypes.CDLL(o.library)
    pointer = ctypes.c_void_p

    def check(status, what):
        if status:
            sys.exit(f"{what} failed: {status}")

    module, function = pointer(), pointer()
    check(hip.hipModuleLoadData(ctypes.byref(module), kernel.asm["hsaco"]), "loading the code object")
    check(hip.hipModuleGetFunction(ctypes.byref(function), module, kernel.metadata.name.encode()), "finding the kernel")
    m, n, k = o.size
    size = 4 if o.type == "fp32" else 2
    arguments = []
    for count in (m * k * size, k * n * size, m * n * 4):
        p = pointer()
        check(hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(count)), "allocating")
        check(hip.hipMemset(p, 0, ctypes.c_size_t(count)), "filling")
        arguments.append(p)
    arguments += [ctypes.c_int(v) for v in (m, n, k, k, n, n)] + [pointer(0), pointer(0)]  # no scratch
    table = (pointer * len(arguments))(*[ctypes.cast(ctypes.byref(x), pointer) for x in arguments])
    groups = -(-m // o.tile[0]) * -(-n // o.tile[1])
    for _ in range(2):
        check(
            hip.hipModuleLaunchKernel(
                function, groups, 1, 1, o.warps * warp, 1, 1, kernel.metadata.shared, None, table, None
            ),
            "launching",
        )
        check(hip.hipDeviceSynchronize(), "running")
    hip.sardonyxSimTiming.restype = ctypes.c_char_p
    return json.loads(hip.sardonyxSimTiming())["launches"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("size", type=int, nargs=3, metavar="N", help="M, N and K")
    p.add_argument("--chip", required=True)
    p.add_argument("--product", help="the card; otherwise the largest with the chip")
    p.add_argument("--library", required=True, help="the simulator's libamdhip64")
    p.add_argument("--type", choices=["fp16", "bf16", "fp32"], default="fp16")
    p.add_argument("--tile", type=int, nargs=3, default=[128, 128, 32], metavar="N", help="of M, N and K")
    p.add_argument("--group", type=int, default=8, help="rows of tiles that workgroups go down first")
    p.add_argument("--even", action="store_true", help="no masks along K, which the tile divides")
    p.add_argument("--warps", type=int, default=4)
    p.add_argument("--stages", type=int, default=2)
    o = p.parse_args()
    kernel, warp = compiled(o)
    print(json.dumps({"launches": estimate(o, kernel, warp)}))


if __name__ == "__main__":
    main()
