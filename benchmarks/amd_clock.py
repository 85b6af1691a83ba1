"""The clock of the simulated AMD GPU beside published measurements (docs/amd-clock.md).

    python benchmarks/amd_clock.py measure --out rows.json            # every row that a program here reproduces
    python benchmarks/amd_clock.py measure --out rows.json --only mi300x --seconds 30
    python benchmarks/amd_clock.py report rows.json >> docs/amd-clock.md

amd_clock/published.json has the measurements with their sources; amd_clock/*.hip the programs. A row that takes longer than
--seconds is left out, and says so. `measure` takes up rows.json where it stopped. Rows of Triton's kernels need --triton, a
Python that has it.

A row's "mhz" is the shader clock that its source states. "mhz_range" is the lowest and the highest that the source's own
counters show for one kernel: such a row is estimated at both ends, and counts where they are within 15 % of each other.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "amd_clock"
# Products that published.json names otherwise than the table of chips.
PRODUCTS = {"MI250X-GCD": "Instinct MI250X", "MI250-GCD": "Instinct MI250"}
UNITS = {"GB/s": 1e3, "GFLOP/s": 1e3, "Gop/s": 1e3, "TFLOP/s": 1e6, "TOP/s": 1e6}  # work a microsecond to the unit


def work(row, text):
    """Bytes, operations or loads of one launch: from the row, or what the program printed."""
    said = row["work"]
    if m := re.match(r"(?:(\d+) (?:x|arrays of) )?(\d+) ([GMK])iB", said):
        return int(m.group(1) or 1) * int(m.group(2)) * {"G": 2**30, "M": 2**20, "K": 2**10}[m.group(3)]
    if "KiB" in said:
        numbers = [int(n) for n in re.findall(r"\d+", said)]
        return numbers[0] * numbers[1] * numbers[2] * 1024
    if said.startswith("printed"):
        if not (m := re.search(r"(\d+) (?:operations|flops|bytes)", text)):
            raise ValueError(f"the program printed no number of operations: {text[-200:]}")
        return int(m.group(1))
    return int(re.match(r"\d+", said).group())


def figure(row, launches, text):
    """The row's figure from the estimates of the program's launches."""
    last, kind = launches[-1], row["convert"]
    if kind in ("cycles_per_load", "ns_per_load"):
        before = launches[-2]
        per = (last["cycles"] - before["cycles"]) / work(row, text)
        return per if kind == "cycles_per_load" else per / last["mhz"] * 1e3
    if kind == "cycles_per_instruction":
        return last["cycles"] / work(row, text)
    if kind == "ms":
        return last["us"] / 1e3
    if kind == "us":
        return last["us"]
    if kind == "ns_per_workgroup":
        return last["us"] * 1e3 / last["workgroups"]
    if kind == "ipc":  # of 16 waves of 1000 instructions a workgroup, on four SIMDs, in cycles of four
        per_unit = last["workgroups"] / last["pools"]
        return per_unit * 16 * 1000 / 4 / (last["cycles"] / 4)
    return work(row, text) / last["us"] / UNITS[kind]


def launches_of(row, o, folder, mhz):
    """The estimates of the row's launches, and what the program printed."""
    product = PRODUCTS.get(row["product"], row["product"])
    if row["benchmark"].endswith(".py"):
        if not o.triton:
            raise ValueError("needs --triton")
        library = Path(o.simulator).resolve().parent.parent / "lib/libamdhip64-sim.so"
        command = [o.triton, PROGRAMS / row["benchmark"], "--chip", row["chip"], "--product", product]
        command += ["--library", library, *row["arguments"].split()]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=o.seconds)
        if done.returncode:
            raise ValueError(done.stderr[-300:])
        return json.loads(done.stdout)["launches"], ""
    times = folder / "times.json"
    flags = (row.get("flags") or "").split()
    binary = folder / ".".join([row["benchmark"], row["chip"], *(re.sub(r"[^a-z0-9]", "", f) for f in flags)])
    times.unlink(missing_ok=True)
    if not binary.exists():
        # The compiler wants a chip's name; the program then runs for the product.
        compile_ = [o.simulator, "--chip", row["chip"], *flags, "--keep", binary, PROGRAMS / row["benchmark"], "--help"]
        subprocess.run([str(c) for c in compile_], capture_output=True, timeout=120)
    command = [o.simulator, "--product", product, f"--timing={times}", "--sample", *(["--mhz", mhz] if mhz else [])]
    command += [binary, *row["arguments"].split("(")[0].split()]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=o.seconds)
    if not times.exists() or not (launches := json.loads(times.read_text())["launches"]):
        raise ValueError((done.stdout + done.stderr)[-300:])
    return launches, done.stdout


def run(row, o, folder):
    clocks = row.get("mhz_range") or [row.get("mhz")]
    found = []
    for mhz in clocks:
        launches, text = launches_of(row, o, folder, mhz)
        found.append((figure(row, launches, text), launches[-1]))
    out = {"value": found[-1][0], "limited_by": found[-1][1]["limited_by"], "mhz": found[-1][1]["mhz"]}
    if len(found) > 1:
        low, high = sorted(v for v, _ in found)
        out |= {"value": (low * high) ** 0.5, "range": [low, high]}
    return out


def measure(o):
    done = json.loads(o.out.read_text()) if o.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for row in json.loads((PROGRAMS / "published.json").read_text()):
            if (
                not str(row.get("benchmark", "")).endswith((".hip", ".py"))
                or row["id"] in done
                or not re.search(o.only, row["id"])
            ):
                continue
            try:
                one = done[row["id"]] = run(row, o, Path(folder))
                print(
                    f"{row['id']:32} {row['value']:12.4g} {one['value']:12.4g} {row['unit']:10} "
                    f"{100 * (one['value'] / row['value'] - 1):+7.1f} %  {one['limited_by']}",
                    flush=True,
                )
            except subprocess.TimeoutExpired:
                done[row["id"]] = {"failed": f"more than {o.seconds} s"}
                print(f"{row['id']:32} more than {o.seconds} s", flush=True)
            except (ValueError, KeyError, IndexError, AttributeError) as e:
                done[row["id"]] = {"failed": str(e).strip()[-200:]}
                print(f"{row['id']:32} {e}", flush=True)
            o.out.write_text(json.dumps(done, indent=1))


def counts(one):
    """Whether a row counts: its clock is known, or does not matter."""
    return "range" not in one or one["range"][1] / one["range"][0] <= 1.15


def summary(title, errors):
    errors = sorted(errors)
    near = sum(e <= 0.3 for e in errors)
    return f"| {title} | {len(errors)} | {100 * statistics.median(errors):.0f} % | {100 * near / len(errors):.0f} % |"


def line(row, one):
    value = f"{one['value']:.4g}" if counts(one) else " to ".join(f"{v:.4g}" for v in one["range"])
    errors = [v / row["value"] - 1 for v in ([one["value"]] if counts(one) else one["range"])]
    return (
        f"| {row['product']} | {row['quantity']}: `{row['benchmark']} {row['arguments']}` | {row['value']:.4g} {row['unit']} | {value} | "
        f"{' to '.join(f'{100 * e:+.0f} %' for e in errors)} | {row['source']} |"
    )


def report(o):
    done = json.loads(o.rows.read_text())
    rows = [r for r in json.loads((PROGRAMS / "published.json").read_text()) if "value" in done.get(r["id"], {})]
    chips = sorted({r["chip"] for r in rows}, key=lambda c: (len(c), c))
    error = {r["id"]: abs(done[r["id"]]["value"] / r["value"] - 1) for r in rows if counts(done[r["id"]])}
    print("| chips | rows | median error | within 30 % |\n|---|---|---|---|")
    families = {"CDNA": [c for c in chips if len(c) == 6], "RDNA": [c for c in chips if len(c) > 6], "all": chips}
    for title, members in [*((c, [c]) for c in chips), *families.items()]:
        if errors := [error[r["id"]] for r in rows if r["chip"] in members and r["id"] in error]:
            print(summary(title, errors))
    head = "| product | measured | published | the clock | error | source |\n|---|---|---|---|---|---|"
    for chip in chips:
        print(f"\n### {chip}\n\n{head}")
        for r in rows:
            if r["chip"] == chip and r["id"] in error:
                print(line(r, done[r["id"]]))
    if unknown := [r for r in rows if r["id"] not in error]:
        print(f"\n### Rows whose clock is not known\n\n{head}")
        for r in unknown:
            print(line(r, done[r["id"]]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    m = commands.add_parser("measure")
    m.add_argument("--out", type=Path, required=True)
    m.add_argument("--only", default="", help="a regular expression of rows")
    m.add_argument("--seconds", type=float, default=60, help="for one row")
    m.add_argument("--triton", help="a Python with the package triton, for its kernels' rows")
    m.add_argument("--simulator", default=str(HERE.parent / "build/bin/sardonyx-sim"))
    m.set_defaults(run=measure)
    r = commands.add_parser("report")
    r.add_argument("rows", type=Path)
    r.set_defaults(run=report)
    o = p.parse_args()
    return o.run(o)


if __name__ == "__main__":
    sys.exit(main())
