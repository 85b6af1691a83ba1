"""The report of gpu.py's measurements: tables in Markdown, plots, and the raw data."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

from gpu_plots import plots
from gpu_results import ceilings_of, label, merged, number_of, of_part

COMPILED = ["compile", "compile, attention written out", "autotune", "reference compile"]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows]) + "\n"


def geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def time_of(engines: dict[str, Any], name: str) -> float | None:
    e = engines.get(name, {})
    return e.get("median")


def milliseconds(engines: dict[str, Any], name: str) -> str:
    e = engines.get(name)
    if e is None:
        return ""
    if "median" not in e:
        return "failed"
    half = (e["high"] - e["low"]) / 2
    return f"{e['median'] * 1e3:.3f} ± {half * 1e3:.3f}"


def best_peer(engines: dict[str, Any], names: list[str]) -> float | None:
    times = [t for n in names if (t := time_of(engines, n))]
    return min(times) if times else None


def models_section(data: dict[str, Any]) -> tuple[str, dict[str, float]]:
    rows, ratios = [], {}
    found = {**of_part(data, "model"), **of_part(data, "decode")}
    providers = any("onnxruntime" in r.get("engines", {}) for r in found.values())
    for key, r in found.items():
        if "failed" in r:
            rows.append([label(key), f"failed: {r['failed'].splitlines()[0][:120]}"] + [""] * 6 + [number_of(data, r)])
            continue
        e = r["engines"]
        ours, peer = time_of(e, "sardonyx"), best_peer(e, COMPILED)
        if ours and peer:
            ratios[key] = ours / peer
        compiled = [n for n in COMPILED if n.startswith("compile") and time_of(e, n)] or ["compile"]
        if "errors" in r:
            error = f"{r['errors']['sardonyx']:.1e} / {r['errors']['torch']:.1e}{'' if r['correct'] else ' **wrong**'}"
        else:
            error = f"tokens alike: {r['alike']}" if r.get("alike") else ""
        rows.append(
            [
                label(key),
                milliseconds(e, "sardonyx"),
                milliseconds(e, min(compiled, key=lambda n: time_of(e, n) or 0)),
                milliseconds(e, "eager"),
                milliseconds(e, "onnxruntime"),
                f"{ratios[key]:.2f}" if key in ratios else "",
                f"{e['sardonyx']['latency'] * 1e3:.3f}",
                error,
                number_of(data, r),
            ]
        )
    if not rows:
        return "", {}
    head = ["model", "Sardonyx", "torch.compile", "eager", "ONNX Runtime"]
    head += ["ratio", "latency", "error / torch's", "run"]
    text = "## Whole models\n\nMilliseconds per run, with runs back to back: the median of all repetitions, ± half of the range from the 10th to the 90th percentile. *torch.compile* "
    text += "(`reduce-overhead`: CUDA graphs) and *eager* run the network of the same ONNX file (a decoding step: the same network, with a static KV cache). "
    text += "*Ratio* is Sardonyx's time divided by torch.compile's, measured in the same process: below 1 Sardonyx is faster. *Latency* is the time of one run including the wait for its end. "
    text += "*Error* is the relative error of both results against float32. "
    if not providers:
        text += "ONNX Runtime's CUDA provider is not installed on the machine, so its column is empty. "
    text += "*Run* is the number of the measurement run ([the machine](#the-machine)).\n\n" + table(head, rows)
    if ratios:
        worst = max(ratios, key=lambda k: ratios[k])
        text += f"\nGeometric mean of the ratios: **{geometric_mean(list(ratios.values())):.2f}**; the worst is {ratios[worst]:.2f} ({worst}); "
        text += (
            f"{sum(r <= 1 for r in ratios.values())} of {len(ratios)} rows are as fast as torch.compile or faster.\n"
        )
    return text, ratios


def other_peers_section(data: dict[str, Any]) -> str:
    """Peers with separate rows, each compared with Sardonyx in the same run."""
    text = ""
    parts = {
        "reference": (
            "reference compile",
            "Reference implementations",
            "the same architecture from torchvision or transformers, with torch.compile",
        ),
        "autotune": ("autotune", "max-autotune", "the network of the same file, with torch.compile's `max-autotune`"),
    }
    for part, (engine, title, what) in parts.items():
        rows, ratios = [], []
        for key, r in of_part(data, part).items():
            if "failed" in r:
                rows.append(
                    [label(key), f"failed: {r['failed'].splitlines()[0][:120]}", "", "", "", number_of(data, r)]
                )
                continue
            ours, theirs = time_of(r["engines"], "sardonyx"), time_of(r["engines"], engine)
            seconds = r.get("seconds_to_compile", {}).get(engine)
            if ours and theirs:
                ratios.append(ours / theirs)
            rows.append(
                [
                    label(key),
                    milliseconds(r["engines"], "sardonyx"),
                    milliseconds(r["engines"], engine),
                    f"{ours / theirs:.2f}" if ours and theirs else "",
                    f"{seconds:.0f}" if seconds else "",
                    number_of(data, r),
                ]
            )
        if rows:
            text += f"### {title}\n\n{what[0].upper() + what[1:]}.\n\n"
            text += (
                table(["model", "Sardonyx, ms", f"{title.lower()}, ms", "ratio", "s to compile", "run"], rows) + "\n"
            )
            if ratios:
                text += f"Geometric mean of the ratios: **{geometric_mean(ratios):.2f}**.\n\n"
    return text


def fixed_section(data: dict[str, Any]) -> str:
    rows, ratios = [], {}
    for key, r in of_part(data, "fixed").items():
        general, fixed = (time_of(r.get("engines", {}), n) for n in ("sardonyx", "sardonyx fixed"))
        if not general or not fixed:
            continue
        ratios[key] = general / fixed
        rows.append(
            [label(key), f"{general * 1e3:.3f}", f"{fixed * 1e3:.3f}", f"{ratios[key]:.2f}", number_of(data, r)]
        )
    if not rows:
        return ""
    worst = max(ratios, key=lambda k: ratios[k])
    text = "### One program for all sizes\n\nA program for all sizes, compared with one that was compiled for this size only.\n\n"
    text += table(["model", "all sizes, ms", "this size, ms", "ratio", "run"], rows)
    text += f"\nGeometric mean of the ratios: **{geometric_mean(list(ratios.values())):.2f}**; the worst is {ratios[worst]:.2f} "
    return text + f"({worst}); {sum(r <= 1.1 for r in ratios.values())} of {len(ratios)} are at most 10 % slower.\n\n"


def first_section(data: dict[str, Any]) -> str:
    rows, shares, memory, over = [], [], [], []
    mib = lambda n: f"{n / 2**20:.0f}" if n else ""
    for key, r in of_part(data, "first").items():
        e = r["engines"]
        line = [label(key)]
        line += [
            f"{e[n]['seconds']:.2f}" if "seconds" in e.get(n, {}) else ("failed" if n in e else "")
            for n in ("sardonyx", "compile", "eager")
        ]
        ours, theirs = e.get("sardonyx", {}), e.get("compile", {})
        share = ours["seconds"] / theirs["seconds"] if "seconds" in ours and "seconds" in theirs else None
        needed = ours.get("constants", 0) + ours.get("live", ours.get("arena", 0)) + ours.get("io", 0)
        times = ours["peak"] / needed if needed and ours.get("peak") else None
        peaks = [p for n in ("compile", "eager") if (p := e.get(n, {}).get("peak"))]
        beside = ours["peak"] / min(peaks) if peaks and ours.get("peak") else None
        line += [f"{share:.2f}" if share else "", mib(ours.get("peak")), f"{times:.2f}" if times else ""]
        line += [mib(e.get(n, {}).get("peak")) for n in ("compile", "eager")]
        line += [f"{beside:.2f}" if beside else "", number_of(data, r)]
        shares += [share] if share else []
        memory += [beside] if beside else []
        over += [times] if times else []
        rows.append(line)
    if not rows:
        return ""
    head = ["model", "Sardonyx, s", "torch.compile, s", "eager, s", "ratio", "Sardonyx, MiB", "peak / needed"]
    head += ["torch.compile, MiB", "eager, MiB", "peak / PyTorch", "run"]
    text = "## Time to the first result, and memory\n\nEach row is measured in a new process with empty caches: seconds from the model to its first result (Sardonyx: reading the file, compiling, loading the weights, "
    text += "one run; PyTorch: copying the weights to the GPU, compiling, one run). *Ratio* is Sardonyx's time divided by torch.compile's. Memory is the peak on the GPU: weights, activations, inputs and outputs "
    text += "(PyTorch: `max_memory_allocated`). *Needed* is the sum of weights, inputs, outputs, and the largest set of activations that are live at once. *Peak / PyTorch* is the ratio to the smaller of PyTorch's two peaks.\n\n"
    text += table(head, rows)
    if shares:
        text += f"\n{sum(s <= 0.25 for s in shares)} of {len(shares)} first results take at most a quarter of torch.compile's time (the largest ratio: {max(shares):.2f}).\n"
    if memory:
        text += f"\n{sum(m <= 1 for m in memory)} of {len(memory)} take no more memory than PyTorch (the largest ratio: {max(memory):.2f}); "
        text += f"{sum(o <= 1.15 for o in over)} of {len(over)} take at most 1.15 times the needed memory (the largest: {max(over):.2f}).\n"
    return text + "\n"


def kernels_section(data: dict[str, Any]) -> str:
    text = ""
    names = {
        "gemm": ("GEMM", "cuBLAS", 0.8),
        "conv": ("Convolutions of ResNet-50", "cuDNN", 0.9),
        "attention": ("Attention", "PyTorch", 0.8),
    }
    for part, (title, library, goal) in names.items():
        rows, shares, flash, below = [], [], [], []
        for key, r in of_part(data, part).items():
            if "failed" in r:
                rows.append(
                    [key, f"failed: {r['failed'].splitlines()[0][:100]}"]
                    + [""] * (6 if part == "attention" else 5)
                    + [number_of(data, r)]
                )
                continue
            ceilings = ceilings_of(data, r)
            ours, theirs = (r["engines"][n]["median"] / r["repeats"] for n in ("sardonyx", "torch"))
            shares.append(theirs / ours)
            if shares[-1] < goal:
                below.append(f"{key} ({100 * shares[-1]:.1f} %)")
            by_name = time_of(r["engines"], "flash")
            if by_name is not None:
                flash.append(by_name / r["repeats"] / ours)
            rows.append(
                [
                    key,
                    f"{ours * 1e6:.2f}",
                    f"{theirs * 1e6:.2f}",
                    f"{100 * theirs / ours:.0f} %",
                    f"{r['operations'] / ours / 1e12:.0f}",
                    f"{r['bytes'] / ours / 1e12:.2f}",
                    f"{100 * roof(ceilings, r['operations'], r['bytes']) / ours:.0f} %{'' if r['correct'] else ' **wrong**'}"
                    if ceilings
                    else "",
                    *([f"{100 * flash[-1]:.0f} %" if by_name is not None else ""] if part == "attention" else []),
                    number_of(data, r),
                ]
            )
        if rows:
            text += f"## {title}\n\nMicroseconds per kernel, measured with several in one captured graph. *Speed* is the time of {library} divided by Sardonyx's: above 100 % Sardonyx is faster.\n\n"
            last = ["speed, flash", "run"] if part == "attention" else ["run"]
            if part == "attention":
                text += "*PyTorch* is PyTorch's default for a size (cuDNN's or flash attention). *Speed, flash* compares with its flash attention, selected explicitly.\n\n"
            text += table(["case", "Sardonyx", library, "speed", "TFLOP/s", "TB/s", "of the roofline", *last], rows)
            for which, found in (("", shares), (" to flash attention", flash)):
                if found:
                    text += f"\nGeometric mean of the speeds{which}: **{100 * geometric_mean(found):.0f} %**; {sum(s >= goal for s in found)} of {len(found)} at {100 * goal:.0f} % or more.\n"
            if below:
                text += f"\nBelow {100 * goal:.0f} % of {library}'s speed: {', '.join(below)}.\n"
            text += "\n"
    return text


def roof(ceilings: dict[str, float], operations: float, bytes_: float) -> float:
    """The least time in seconds that the ceilings allow."""
    return max(operations / ceilings["operations_per_second"], bytes_ / ceilings["bytes_per_second"])


def profile_section(data: dict[str, Any]) -> str:
    text = ""
    for key, r in of_part(data, "profile").items():
        if "failed" in r or not r["kernels"]:
            continue
        ceilings = ceilings_of(data, r)
        total = sum(k["seconds"] for k in r["kernels"])
        slowest = sorted(r["kernels"], key=lambda k: -k["seconds"])[:8]
        rows = []
        for k in slowest:
            known = ceilings and k.get("bytes")
            rows.append(
                [
                    k["kernel"].split(", ")[0],
                    ", ".join(k["nodes"])[:70].replace("|", "/"),
                    f"{k['seconds'] * 1e6:.1f}",
                    f"{100 * k['seconds'] / total:.0f} %",
                    f"{k['operations'] / k['seconds'] / 1e12:.0f}" if k.get("operations") and k["seconds"] else "",
                    f"{k['bytes'] / k['seconds'] / 1e12:.2f}" if known and k["seconds"] else "",
                    f"{100 * roof(ceilings, k['operations'], k['bytes']) / k['seconds']:.0f} %"
                    if known and k["seconds"]
                    else "",
                ]
            )
        text += f"**{label(key)}**: {len(r['kernels'])} launches, {total * 1e3:.3f} ms in kernels ({r['source']}, run {number_of(data, r)})"
        if ceilings and all("bytes" in k for k in r["kernels"]):
            text += f"; their roofline time is {sum(roof(ceilings, k['operations'], k['bytes']) for k in r['kernels']) * 1e3:.3f} ms"
        text += "\n\n" + table(["kernel", "nodes", "µs", "share", "TFLOP/s", "TB/s", "of the roofline"], rows) + "\n"
    if not text:
        return ""
    return (
        "## Where the time goes\n\nThe slowest kernels of a run. Bytes count each tensor of a kernel once. Operations are those of GEMMs, convolutions and attention.\n\n"
        + text
    )


#: Launches in a chip's table: those with the largest estimates.
CHIP_ROWS = 12


def efficiencies(data: dict[str, Any], name: str) -> dict[str, float]:
    """By the nodes that a launch computes: how close it came to the roofline on the measured GPU, at the largest batch of the
    model that has a profile."""
    found: dict[str, float] = {}
    for key, r in of_part(data, "profile").items():
        ceilings = ceilings_of(data, r)
        if "failed" in r or not ceilings or key.rpartition("/")[0] != name:
            continue
        for k in r["kernels"]:
            if k.get("bytes") and k["seconds"]:
                found[", ".join(k["nodes"])] = roof(ceilings, k["operations"], k["bytes"]) / k["seconds"]
    return found


def chips_section(data: dict[str, Any]) -> str:
    """Chips that the models were compiled for, without measuring."""
    text = ""
    for key, r in of_part(data, "chip").items():
        chip, _, rest = key.partition("/")
        if "failed" in r:
            text += f"**{chip}, {label(rest)}**: failed: {r['failed'].splitlines()[0][:120]}\n\n"
            continue
        launches, known = r["launches"], efficiencies(data, r["name"])
        rows = []
        for k in sorted(launches, key=lambda k: -k["seconds"])[:CHIP_ROWS]:
            of_roof = known.get(", ".join(k["nodes"]))
            registers = f"{k['vgprs']}" + (f" + {k['agprs']}" if k.get("agprs") else "")
            rows.append(
                [
                    k["kernel"],
                    ", ".join(k["nodes"])[:60].replace("|", "/"),
                    f"{k['bytes'] / 1e6:.2f}",
                    f"{k['operations'] / 1e9:.2f}" if k["operations"] else "",
                    f"{100 * k['matrix_share']:.1f} %" if k["matrix_instructions"] else "",
                    registers,
                    f"{k['lds_bytes']}",
                    f"{k['waves_per_simd'] or ''}",
                    f"{k['seconds'] * 1e6:.2f}",
                    k["bound"],
                    f"{100 * of_roof:.0f} %" if of_roof else "",
                ]
            )
        total, moved = sum(k["seconds"] for k in launches), sum(k["bytes"] for k in launches)
        measured = [known[n] for k in launches if (n := ", ".join(k["nodes"])) in known]
        text += f"**{chip}, {label(rest)}**, {r['precision']}: {len(launches)} launches of {r['kernels']} kernels, of which {r['spills']} spill registers; "
        text += f"{moved / 1e6:.0f} MB, at best {total * 1e3:.3f} ms"
        if measured:
            text += f"; {len(measured)} of the launches were measured on the other GPU"
        text += "\n\n"
        head = ["kernel", "nodes", "MB", "GFLOP", "matrix", "VGPRs (+ AGPRs)", "LDS", "waves", "µs at best", "bound by"]
        text += table([*head, "measured elsewhere"], rows) + "\n"
    if not text:
        return ""
    about = "## AMD chips, not measured\n\nNo AMD GPU was available. These tables show the compiler's report of the programs for AMD chips: for each launch the bytes to "
    about += "move, the operations to compute, and the roofline time by the chip's data sheet. From the code come the share of matrix instructions, vector registers and accumulators per lane, LDS per workgroup in bytes, "
    about += "and occupancy in waves per SIMD. *Measured elsewhere* is how close the launch of the same nodes came to the roofline on the GPU above; it is not a prediction. "
    return about + f"Each table has the {CHIP_ROWS} launches with the largest estimates.\n\n" + text


def write_report(paths: list[pathlib.Path], out: pathlib.Path) -> None:
    data = merged(paths)
    out.mkdir(parents=True, exist_ok=True)
    cards = list(
        dict.fromkeys(r["environment"].get("card", "a GPU") for r in data["runs"].values() if r.get("ceilings"))
    )
    dates = list(data["runs"])
    days = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "no run"
    text = f"# Measured on {' and '.join(cards) or 'a GPU'}\n\n`python benchmarks/gpu.py report` generated this page from [raw data](gpu-benchmark.json) of {days}. "
    text += "[The machine](#the-machine) lists these runs, [benchmarks](../benchmarks/README.md) describes the method. Absolute times are of this machine only. Times that are compared were measured in one process, in alternating runs.\n\n"
    models, ratios = models_section(data)
    made = plots(data, ratios, out)
    if models:
        text += models + "\n" + ("![speed over torch.compile](gpu-models.svg)\n\n" if "gpu-models.svg" in made else "")
    text += other_peers_section(data) + fixed_section(data) + first_section(data)
    kernels = kernels_section(data)
    text += kernels + ("![roofline](gpu-roofline.svg)\n\n" if "gpu-roofline.svg" in made else "")
    text += profile_section(data) + chips_section(data) + machine_section(data)
    (out / "gpu-benchmark.md").write_text(text.rstrip() + "\n")
    (out / "gpu-benchmark.json").write_text(json.dumps(without_times(data), indent=1) + "\n")
    print(out / "gpu-benchmark.md")


def machine_section(data: dict[str, Any]) -> str:
    """The table of the runs that measured the rows."""
    rows = []
    for k, (date, run) in enumerate(data["runs"].items()):
        e, c = run["environment"], run.get("ceilings") or {}
        rows.append(
            [
                str(k + 1),
                date,
                e.get("card", ""),
                str(sum(r["run"] == date for r in data["rows"].values())),
                f"{c['bytes_per_second'] / 1e12:.2f}" if c else "",
                f"{c['operations_per_second'] / 1e12:.0f}" if c else "",
                ", ".join(f"{n} {v}" for n, v in e.get("versions", {}).items()),
                e.get("system", ""),
            ]
        )
    text = "## The machine\n\nThe ceilings are measured with a copy in GPU memory (bytes read plus written) and an fp16 GEMM of 8192 cubed.\n\n"
    head = ["run", "date", "device", "rows", "TB/s", "TFLOP/s", "versions", "system"]
    text += table(head, rows)
    for k, run in enumerate(data["runs"].values()):
        if remark := run["environment"].get("remark"):
            text += f"\nRun {k + 1}: {remark}\n"
    clocks = [r[w] for r in data["rows"].values() for w in ("clocks_before", "clocks_after") if r.get(w)]
    if clocks:
        text += "\n" + table(
            ["", "observed between rows"],
            [[f, f"{min(c[f] for c in clocks)} to {max(c[f] for c in clocks)}"] for f in clocks[0]],
        )
    return text


def without_times(data: Any) -> Any:
    """Times of single turns are kept to five digits."""
    if isinstance(data, dict):
        return {k: without_times(v) for k, v in data.items()}
    if isinstance(data, list):
        return [without_times(v) for v in data]
    return float(f"{data:.5g}") if isinstance(data, float) and math.isfinite(data) else data
