"""One operator at a time on AMD's chips by the simulated GPU's clock (docs/amd-clock.md), beside the time of the bytes that it must move.

    python benchmarks/amd_operators.py measure gfx1100 gfx942 --out rows.json               # all operators, float16 and float32
    python benchmarks/amd_operators.py measure gfx1201 --out rows.json --only "^(TopK|CumSum)" --dtypes float16
    python benchmarks/amd_operators.py report rows.json [--before old.json] [--worst 12]    # a table in Markdown

The share of a row is the time in which memory, at its peak, moves each tensor once (bytes_of() in amd_operator_cases.py), over the
estimated time of the launches, without the time between them. Inputs are in no cache, but results of a few MB may stay in one, so a
share may be above 1. Each estimate is one run of `sardonyx perf --timing`. A row that was measured is not measured again unless
--again is given. `measure` ends with status 1 if a row fails.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
from amd_kernels import BUILD, CHIPS
from amd_operator_cases import DTYPES, Case, Cases


def estimate(chip: str, case: Case, program: Path, seconds: float) -> dict[str, Any]:
    """A row: microseconds of all launches, their number, what the longest lost most for, and the share; or what failed."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder) / "operator.onnx", Path(folder) / "out.json"
        onnx.save(case.model, model)
        words = [program, "perf", model, "--device", f"sim:{chip}", "--timing", "--cache-dir", "", "--json", out]
        try:
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {seconds:.0f} s"}
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][-300:]}
        launches = json.loads(out.read_text())["launches"]
    us = sum(x["us"] for x in launches)
    if not us:
        return {"failed": "no launch: the operator was folded"}
    longest = max(launches, key=lambda x: x["us"])
    return {
        "us": us,
        "bytes": case.bytes,
        "launches": len(launches),
        "share": case.bytes / (CHIPS[chip][2] * 1e3) / us,
        "lost": max(longest["lost"], key=longest["lost"].get, default=""),
    }


def measure(o: argparse.Namespace) -> int:
    rows = json.loads(o.out.read_text()) if o.out.exists() else {}
    todo = []
    for chip in o.chips:
        for dtype in o.dtypes:
            for case in Cases(dtype).all:
                key = f"{chip} {dtype} {case.label}"
                if re.search(o.only, case.label) and (o.again or "us" not in rows.get(key, {})):
                    todo.append((key, chip, case))

    def run(item: tuple[str, str, Case]) -> tuple[str, dict[str, Any]]:
        key, chip, case = item
        return key, estimate(chip, case, o.program, o.seconds)

    failed = False
    with ThreadPoolExecutor(o.jobs) as pool:
        for key, row in pool.map(run, todo):
            rows[key] = row
            failed |= "us" not in row
            o.out.write_text(json.dumps(rows, indent=1))
            print(f"{key:64} {line_of(row)}", flush=True)
    return int(failed)


def line_of(row: dict[str, Any]) -> str:
    if "us" not in row:
        return str(row["failed"])
    return f"{row['us']:8.1f} us  {row['share']:.2f}  {row['launches']} launches  {row['lost']}"


def report(o: argparse.Namespace) -> int:
    """The rows with the lowest shares on any chip (all, without --worst), and their cells: us: share."""
    rows = json.loads(o.rows.read_text())
    before = json.loads(o.before.read_text()) if o.before else {}
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for key, row in rows.items():
        chip, name = key.split(" ", 1)
        if "us" in row:
            table.setdefault(name, {})[chip] = {**row, "before": before.get(key, {}).get("us")}
    chips = [c for c in CHIPS if any(c in cells for cells in table.values())]
    order = sorted(table, key=lambda name: min(cell["share"] for cell in table[name].values()))
    print(f"| operator | {' | '.join(chips)} |\n|---|{'---|' * len(chips)}")
    for name in order[: o.worst]:
        dtype, label = name.split(" ", 1)
        cells = []
        for chip in chips:
            cell = table[name].get(chip)
            was = f"{cell['before']:.1f} -> " if cell and cell["before"] else ""
            cells.append(f"{was}{cell['us']:.1f}: {cell['share']:.2f}" if cell else "")
        print(f"| {label}, {dtype} | {' | '.join(cells)} |")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("measure")
    p.add_argument("chips", nargs="+", choices=list(CHIPS), metavar="CHIP")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    p.add_argument("--only", default="", help="a regular expression that labels must match")
    p.add_argument("--again", action="store_true")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seconds", type=float, default=300, help="the time limit of a row")
    p.add_argument("--program", type=Path, default=BUILD / "bin/sardonyx")
    p.set_defaults(run=measure)
    p = commands.add_parser("report")
    p.add_argument("rows", type=Path)
    p.add_argument("--before", type=Path)
    p.add_argument("--worst", type=int)
    p.set_defaults(run=report)
    o = parser.parse_args()
    return int(o.run(o))


if __name__ == "__main__":
    sys.exit(main())
