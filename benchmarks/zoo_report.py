"""The report of zoo_kernels.py: rows by their share of the bound, kernels by the time that they lose."""

from __future__ import annotations

import json
import math
import pathlib
import re
from typing import Any

LEAST_SHARE, LEAST_FRACTION = 0.03, 0.4  # kernels that the report calls slow
#: Relative error (root mean square) of fp16 against float32 above which a row is marked. Random weights without their
#: network's calibration may leave the range of fp16, so this is a hint and no verdict.
SUSPICIOUS = 0.05

Row = dict[str, Any]


def rows_of(path: pathlib.Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def line_of(row: Row) -> str:
    if "ceilings" in row:
        c = row["ceilings"]
        return f"copy {c['bytes_per_second'] / 1e9:.0f} GB/s, GEMM {c['operations_per_second'] / 1e12:.2f} TFLOP/s"
    head = f"{row['name']} batch {row['batch']}: "
    if "failed" in row:
        return head + "FAILED " + row["failed"].splitlines()[0][:300]
    worst = sorted(row["kernels"], key=lambda k: k["bound"] - k["seconds"])[:2]
    text = "; ".join(f"{k['seconds'] * 1e6:.0f} us of bound {k['bound'] * 1e6:.1f}: {nodes_of(k, 50)}" for k in worst)
    return head + f"{row['seconds'] * 1e3:.3f} ms, {row['bound'] / row['seconds']:.0%} of bound; worst {text}"


def nodes_of(kernel: Row, length: int) -> str:
    return " + ".join(kernel["nodes"])[:length]


def operators_of(kernel: Row) -> str:
    """Its nodes' operators without names, repetitions counted: what kernels of different networks have in common."""
    operators = [o for n in kernel["nodes"] for o in re.findall(r"\(([^()]*)\)", n)[-1:]]
    counted: list[tuple[str, int]] = []
    for o in operators:
        if counted and counted[-1][0] == o:
            counted[-1] = (o, counted[-1][1] + 1)
        else:
            counted.append((o, 1))
    text = " + ".join(o if n == 1 else f"{n} {o}" for o, n in counted) or kernel["kernel"]
    return text if len(text) <= 90 else text[:60] + " ... " + text[-25:]


def kernel_table(found: list[tuple[Row, Row]], count: int) -> list[str]:
    lines = [
        "| architecture | batch | us | bound us | of bound | of model | kind | kernel | MB | GFLOP | nodes |",
        "|---" * 11 + "|",
    ]
    for row, k in found[:count]:
        total = sum(x["seconds"] for x in row["kernels"])
        lines.append(
            f"| {row['name']} | {row['batch']} | {k['seconds'] * 1e6:.1f} | {k['bound'] * 1e6:.1f} | {k['bound'] / k['seconds']:.0%} "
            f"| {k['seconds'] / total:.0%} | {k['kind']} | {k['kernel'][:24]} | {k['bytes'] / 1e6:.2f} | {k['operations'] / 1e9:.2f} "
            f"| {nodes_of(k, 110)} |"
        )
    return lines


def report(rows: list[Row], count: int = 80) -> str:
    """Markdown: rows by their share of the bound; kernels by time lost, by operators, and the slow ones of each model."""
    good = [r for r in rows if "kernels" in r]
    failed = [r for r in rows if "failed" in r]
    lines = [f"# {len(good)} rows measured, {len(failed)} not", ""]
    lines += [line_of(r) for r in rows if "ceilings" in r]
    lines += [
        "",
        "| architecture | batch | ms | bound ms | of bound | sum of kernels ms | kernels | compile s | first run s | remark |",
    ]
    lines.append("|---" * 10 + "|")
    for r in sorted(good, key=lambda r: r["bound"] / r["seconds"]):
        total = sum(k["seconds"] for k in r["kernels"])
        remark = "" if r.get(f"finite {r['batch']}", True) else "not finite"
        remark += r.get("remark", "")
        error = r.get("error", 0.0)
        if isinstance(error, str):
            remark += f" {error}"
        elif error > SUSPICIOUS:
            remark += f" error {error:.1e}"
        lines.append(
            f"| {r['name']} | {r['batch']} | {r['seconds'] * 1e3:.3f} | {r['bound'] * 1e3:.3f} | {r['bound'] / r['seconds']:.0%} "
            f"| {total * 1e3:.3f} | {len(r['kernels'])} | {r.get('compile_seconds', math.nan):.1f} "
            f"| {r.get('first_run_seconds {}'.format(r['batch']), math.nan):.1f} | {remark} |"
        )
    every = [(r, k) for r in good for k in r["kernels"]]
    every.sort(key=lambda x: x[1]["bound"] - x[1]["seconds"])
    lines += ["", "## By time lost", "", *kernel_table(every, count)]
    lines += ["", "## By operators", "", "| lost us | kernels | time us | worst row | operators |", "|---" * 5 + "|"]
    groups: dict[str, list[tuple[Row, Row]]] = {}
    for r, k in every:
        groups.setdefault(operators_of(k), []).append((r, k))
    lost = lambda group: sum(k["seconds"] - k["bound"] for _, k in group)
    for operators, group in sorted(groups.items(), key=lambda g: -lost(g[1]))[: count // 2]:
        time_of = sum(k["seconds"] for _, k in group)
        worst = group[0][0]
        lines.append(
            f"| {lost(group) * 1e6:.0f} | {len(group)} | {time_of * 1e6:.0f} | {worst['name']} {worst['batch']} | {operators} |"
        )
    slow = []
    for r, k in every:
        total = sum(x["seconds"] for x in r["kernels"])
        if k["seconds"] > LEAST_SHARE * total and k["bound"] < LEAST_FRACTION * k["seconds"]:
            slow.append((r, k))
    slow.sort(key=lambda x: (x[0]["name"], x[0]["batch"], -x[1]["seconds"]))
    title = f"Over {LEAST_SHARE:.0%} of a model's time at under {LEAST_FRACTION:.0%} of the bound"
    lines += ["", f"## {title}: {len(slow)}", "", *kernel_table(slow, len(slow))]
    if failed:
        lines += ["", "## Not measured", ""] + [f"- {line_of(r)}" for r in failed]
    return "\n".join(lines) + "\n"
