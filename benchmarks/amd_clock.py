"""The clock of the simulated AMD GPU beside published measurements (docs/amd-clock.md).

    python benchmarks/amd_clock.py measure --out rows.json            # every row that a program here reproduces
    python benchmarks/amd_clock.py measure --out rows.json --only mi300x --seconds 30
    python benchmarks/amd_clock.py report rows.json >> docs/amd-clock.md

amd_clock/published.json has the measurements with their sources; amd_clock/*.hip the programs. A row that takes longer than
--seconds is left out, and says so. `measure` takes up rows.json where it stopped.
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


def run(row, simulator, folder, seconds):
    program = PROGRAMS / row["benchmark"]
    binary = (
        folder
        / f"{row['benchmark']}.{row['chip']}{'.' + re.sub(r'[^a-z0-9]', '', row['flags']) if row.get('flags') else ''}"
    )
    arguments = row["arguments"].split("(")[0].split()
    product = PRODUCTS.get(row["product"], row["product"])
    command = [simulator, "--product", product, "--timing=" + str(folder / "times.json"), "--sample"]
    (folder / "times.json").unlink(missing_ok=True)
    if binary.exists():
        command += [str(binary), *arguments]
    else:
        # The compiler wants a chip's name; the program then runs for the product.
        subprocess.run(
            [
                simulator,
                "--chip",
                row["chip"],
                *(row.get("flags") or "").split(),
                "--keep",
                str(binary),
                str(program),
                "--help",
            ],
            capture_output=True,
            timeout=120,
        )
        command += [str(binary), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if not (folder / "times.json").exists():
        raise ValueError((done.stdout + done.stderr)[-300:])
    launches = json.loads((folder / "times.json").read_text())["launches"]
    if not launches:
        raise ValueError((done.stdout + done.stderr)[-300:])
    return figure(row, launches, done.stdout), launches[-1]


def measure(o):
    done = json.loads(o.out.read_text()) if o.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for row in json.loads((PROGRAMS / "published.json").read_text()):
            if (
                not str(row.get("benchmark", "")).endswith(".hip")
                or row["id"] in done
                or not re.search(o.only, row["id"])
            ):
                continue
            try:
                value, launch = run(row, o.simulator, Path(folder), o.seconds)
                done[row["id"]] = {"value": value, "limited_by": launch["limited_by"], "mhz": launch["mhz"]}
                print(
                    f"{row['id']:32} {row['value']:12.4g} {value:12.4g} {row['unit']:10} {100 * (value / row['value'] - 1):+7.1f} %  {launch['limited_by']}",
                    flush=True,
                )
            except subprocess.TimeoutExpired:
                done[row["id"]] = {"failed": f"more than {o.seconds} s"}
                print(f"{row['id']:32} more than {o.seconds} s", flush=True)
            except (ValueError, KeyError, IndexError, AttributeError) as e:
                done[row["id"]] = {"failed": str(e).strip()[-200:]}
                print(f"{row['id']:32} {e}", flush=True)
            o.out.write_text(json.dumps(done, indent=1))


def report(o):
    done = json.loads(o.rows.read_text())
    rows = [r for r in json.loads((PROGRAMS / "published.json").read_text()) if "value" in done.get(r["id"], {})]
    for chip in sorted({r["chip"] for r in rows}):
        print(
            f"\n### {chip}\n\n| product | measured | published | the clock | error | source |\n|---|---|---|---|---|---|"
        )
        for r in rows:
            if r["chip"] != chip:
                continue
            value = done[r["id"]]["value"]
            print(
                f"| {r['product']} | {r['quantity']}: `{r['benchmark']} {r['arguments']}` | {r['value']:.4g} {r['unit']} | {value:.4g} | "
                f"{100 * (value / r['value'] - 1):+.0f} % | {r['source']} |"
            )
    errors = sorted(abs(done[r["id"]]["value"] / r["value"] - 1) for r in rows)
    print(
        f"\n{len(errors)} rows: median error {100 * statistics.median(errors):.0f} %; {100 * sum(e <= 0.3 for e in errors) / len(errors):.0f} % of rows within 30 %."
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(required=True)
    m = commands.add_parser("measure")
    m.add_argument("--out", type=Path, required=True)
    m.add_argument("--only", default="", help="a regular expression of rows")
    m.add_argument("--seconds", type=float, default=60, help="for one row")
    m.add_argument("--simulator", default=str(HERE.parent / "build/bin/sardonyx-sim"))
    m.set_defaults(run=measure)
    r = commands.add_parser("report")
    r.add_argument("rows", type=Path)
    r.set_defaults(run=report)
    o = p.parse_args()
    return o.run(o)


if __name__ == "__main__":
    sys.exit(main())
