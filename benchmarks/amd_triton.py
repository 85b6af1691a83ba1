"""Compiles Triton's GEMM for AMD's chips, on a machine without one: a peer for amd_kernels.py.

    python -m venv triton && triton/bin/pip install triton
    triton/bin/python benchmarks/amd_triton.py FOLDER [--chips CHIP ...] [--types fp16 bf16]

For each chip, type and tiling FOLDER gets CHIP_TYPE_BMxBNxBKxWARPSxSTAGES.hsaco and .json (the kernel's name and dynamic LDS). The
kernel computes c[m, n] = a[m, k] . b[k, n] in TYPE for sizes that its tiles divide; arguments: a, b, c, m, n, k, their three row
strides, two null pointers. What is there already is not compiled again.
"""

import argparse
import itertools
import json
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

#: BM, BN, BK, warps, stages
TILINGS = {
    64: [
        (256, 256, 64, 8, 2),
        (256, 256, 32, 8, 2),
        (256, 128, 64, 8, 2),
        (128, 256, 64, 8, 2),
        (256, 128, 64, 4, 2),
        (128, 128, 64, 4, 2),
        (128, 128, 64, 8, 2),
        (128, 128, 32, 4, 2),
        (128, 64, 64, 4, 2),
        (64, 128, 64, 4, 2),
        (64, 64, 64, 4, 2),
        (32, 64, 128, 4, 2),
    ],
    32: [
        (256, 128, 32, 8, 2),
        (128, 256, 32, 8, 2),
        (128, 128, 64, 8, 2),
        (128, 128, 32, 8, 2),
        (128, 128, 32, 4, 2),
        (128, 64, 64, 4, 2),
        (128, 64, 32, 4, 2),
        (64, 128, 32, 4, 2),
        (64, 64, 64, 4, 2),
        (64, 64, 32, 4, 2),
        (64, 32, 64, 4, 2),
        (32, 64, 64, 4, 2),
    ],
}
WAVES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}


@triton.jit
def product(
    a,
    b,
    c,
    m,
    n,
    k,
    row_a,
    row_b,
    row_c,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Tiles in groups of GROUP rows, which share columns of b in the L2 cache.
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = tl.program_id(0) // (GROUP * tiles_n)
    inside = tl.program_id(0) % (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    tile_m, tile_n = group * GROUP + inside % height, inside // height
    tl.assume(tile_m >= 0)
    tl.assume(tile_n >= 0)
    tl.assume(row_a > 0)
    tl.assume(row_b > 0)
    tl.assume(row_c > 0)
    rows, columns, depth = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    from_a, from_b = a + rows[:, None] * row_a + depth[None, :], b + depth[:, None] * row_b + columns[None, :]
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        sums = tl.dot(tl.load(from_a), tl.load(from_b), sums)
        from_a += BK
        from_b += BK * row_b
    tl.store(c + rows[:, None] * row_c + columns[None, :], sums.to(c.dtype.element_ty))


def compiled(chip, kind, bm, bn, bk, warps, stages):
    types = dict.fromkeys(("a", "b", "c"), f"*{kind}") | dict.fromkeys(
        ("m", "n", "k", "row_a", "row_b", "row_c"), "i32"
    )
    types |= dict.fromkeys(("BM", "BN", "BK", "GROUP"), "constexpr")
    source = triton.compiler.ASTSource(
        fn=product,
        signature=types,
        constexprs={"BM": bm, "BN": bn, "BK": bk, "GROUP": 8},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(9)},
    )
    options = {"num_warps": warps, "num_stages": stages}
    if WAVES[chip] == 64:
        options["matrix_instr_nonkdim"] = 16
    return triton.compile(source, target=GPUTarget("hip", chip, WAVES[chip]), options=options)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path)
    p.add_argument("--chips", nargs="+", choices=WAVES, default=list(WAVES))
    p.add_argument("--types", nargs="+", choices=("fp16", "bf16"), default=["fp16", "bf16"])
    o = p.parse_args()
    o.folder.mkdir(parents=True, exist_ok=True)
    for chip, kind in itertools.product(o.chips, o.types):
        for tiling in TILINGS[WAVES[chip]]:
            stem = o.folder / f"{chip}_{kind}_{'x'.join(map(str, tiling))}"
            if stem.with_suffix(".json").exists():
                continue
            try:
                kernel = compiled(chip, kind, *tiling)
            except Exception as e:  # Triton refuses some tilings, for instance those with too much LDS
                print(f"{stem.name}: {str(e).splitlines()[0][:200]}")
                continue
            stem.with_suffix(".hsaco").write_bytes(kernel.asm["hsaco"])
            about = {"name": kernel.metadata.name, "shared": kernel.metadata.shared}
            stem.with_suffix(".json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
