"""A page of what gpu.py measured: tables in Markdown, plots, and the raw data beside them."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

PEERS = ["compile", "autotune", "eager", "twin compile", "twin autotune", "twin eager"]
COMPILED = ["compile", "autotune", "twin compile", "twin autotune"]


def label(key: str) -> str:
    """A row's key, "ViT-B/16/batch=8", for people."""
    name, _, sizes = key.rpartition("/")
    return f"{name}, {sizes}" if name else sizes


def merged(paths: list[pathlib.Path]) -> dict[str, Any]:
    """Later files' rows replace earlier ones'."""
    data: dict[str, Any] = {"rows": {}}
    for path in paths:
        one = json.loads(path.read_text())
        data["rows"] |= one["rows"]
        data |= {k: v for k, v in one.items() if k != "rows" and v}
    return data


def of_part(data: dict[str, Any], part: str) -> dict[str, Any]:
    return {k.partition("/")[2]: r for k, r in data["rows"].items() if k.partition("/")[0] == part}


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
    for key, r in of_part(data, "model").items():
        if "failed" in r:
            rows.append([label(key), f"failed: {r['failed'].splitlines()[0][:120]}"] + [""] * 7)
            continue
        e = r["engines"]
        ours, peer = time_of(e, "sardonyx"), best_peer(e, COMPILED)
        if ours and peer:
            ratios[key] = ours / peer
        rows.append(
            [
                label(key),
                milliseconds(e, "sardonyx"),
                milliseconds(e, "compile"),
                milliseconds(e, "twin compile"),
                milliseconds(e, "autotune"),
                milliseconds(e, "eager"),
                f"{ratios[key]:.2f}" if key in ratios else "",
                f"{r['engines']['sardonyx']['latency'] * 1e3:.3f}",
                f"{r['errors']['sardonyx']:.1e} / {r['errors']['torch']:.1e}{'' if r['correct'] else ' **wrong**'}",
            ]
        )
    if not rows:
        return "", {}
    head = [
        "model",
        "Sardonyx",
        "torch.compile",
        "its twin",
        "max-autotune",
        "eager",
        "ratio",
        "latency",
        "error / torch's",
    ]
    text = "## Whole models\n\nMilliseconds of a run, back to back: the median of all turns, ± half of the middle 80 %. *torch.compile* "
    text += "(`reduce-overhead`: CUDA graphs) and *eager* run the network of the same ONNX file, *its twin* is that of torchvision or transformers "
    text += "under torch.compile. *Ratio* is Sardonyx's time over that of the fastest compiled peer: below 1 Sardonyx is faster. *Latency* is a run and the wait for it. "
    text += "*Error* is the relative distance from float32, of both.\n\n" + table(head, rows)
    if ratios:
        worst = max(ratios, key=lambda k: ratios[k])
        text += f"\nGeometric mean of the ratios: **{geometric_mean(list(ratios.values())):.2f}**; the worst is {ratios[worst]:.2f} ({worst}); "
        text += f"{sum(r <= 1 for r in ratios.values())} of {len(ratios)} rows are not slower than the fastest compiled peer.\n"
    fixed = [
        (k, time_of(r["engines"], "sardonyx fixed"), time_of(r["engines"], "sardonyx"))
        for k, r in of_part(data, "model").items()
        if "engines" in r
    ]
    known = [(k, a, b) for k, a, b in fixed if a and b]
    if known:
        text += "\nOne program for all sizes, beside one that was compiled for the size:\n\n"
        text += table(
            ["model", "all sizes, ms", "this size, ms", "ratio"],
            [[label(k), f"{b * 1e3:.3f}", f"{a * 1e3:.3f}", f"{b / a:.2f}"] for k, a, b in known],
        )
    return text, ratios


def first_section(data: dict[str, Any]) -> str:
    rows = []
    mib = lambda n: f"{n / 2**20:.0f}" if n else ""
    for key, r in of_part(data, "first").items():
        e = r["engines"]
        line = [label(key)]
        line += [
            f"{e[n]['seconds']:.2f}" if "seconds" in e.get(n, {}) else ("failed" if n in e else "")
            for n in ("sardonyx", "compile", "eager")
        ]
        ours = e.get("sardonyx", {})
        needed = ours.get("constants", 0) + ours.get("arena", 0) + ours.get("io", 0)
        line += [mib(ours.get("peak")), f"{ours['peak'] / needed:.2f}" if needed and ours.get("peak") else ""]
        line += [mib(e.get(n, {}).get("peak")) for n in ("compile", "eager")]
        rows.append(line)
    if not rows:
        return ""
    head = [
        "model",
        "Sardonyx, s",
        "torch.compile, s",
        "eager, s",
        "Sardonyx, MiB",
        "over what it needs",
        "torch.compile, MiB",
        "eager, MiB",
    ]
    text = "## The first result, and memory\n\nEach in a new process with empty caches: seconds from the model to its first result (Sardonyx: reading the file, compiling, loading the weights, "
    text += "one run; PyTorch: the weights to the card, compiling, one run). Memory is the most that lay on the card: weights, activations, inputs and outputs "
    text += "(PyTorch: `max_memory_allocated`). *What it needs* is weights, the planned arena, inputs and outputs.\n\n"
    return text + table(head, rows)


def kernels_section(data: dict[str, Any]) -> str:
    text = ""
    names = {
        "gemm": ("Products", "cuBLAS"),
        "conv": ("Convolutions of ResNet-50", "cuDNN"),
        "attention": ("Attention", "PyTorch's"),
    }
    ceilings = data.get("ceilings") or {}
    for part, (title, library) in names.items():
        rows, shares = [], []
        for key, r in of_part(data, part).items():
            if "failed" in r:
                rows.append([key, f"failed: {r['failed'].splitlines()[0][:100]}"] + [""] * 5)
                continue
            ours, theirs = (r["engines"][n]["median"] / r["repeats"] for n in ("sardonyx", "torch"))
            shares.append(theirs / ours)
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
                ]
            )
        if rows:
            text += f"## {title}\n\nMicroseconds of one kernel, of several in one captured graph; *speed* is that of {library} over ours in time: above 100 % Sardonyx is faster.\n\n"
            text += table(["case", "Sardonyx", library, "speed", "TFLOP/s", "TB/s", "of the roofline"], rows)
            if shares:
                text += f"\nGeometric mean of the speeds: **{100 * geometric_mean(shares):.0f} %**; {sum(s >= 0.8 for s in shares)} of {len(shares)} at 80 % or more.\n\n"
    return text


def roof(ceilings: dict[str, float], operations: float, bytes_: float) -> float:
    """Seconds below which no kernel can do this."""
    return max(operations / ceilings["operations_per_second"], bytes_ / ceilings["bytes_per_second"])


def profile_section(data: dict[str, Any]) -> str:
    text = ""
    ceilings = data.get("ceilings") or {}
    for key, r in of_part(data, "profile").items():
        if "failed" in r or not r["kernels"]:
            continue
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
        text += f"**{label(key)}**: {len(r['kernels'])} launches, {total * 1e3:.3f} ms in kernels ({r['source']})"
        if ceilings and all("bytes" in k for k in r["kernels"]):
            text += f"; at the roofline they would take {sum(roof(ceilings, k['operations'], k['bytes']) for k in r['kernels']) * 1e3:.3f} ms"
        text += "\n\n" + table(["kernel", "nodes", "µs", "share", "TFLOP/s", "TB/s", "of the roofline"], rows) + "\n"
    if not text:
        return ""
    return (
        "## Where the time goes\n\nThe slowest kernels of a run. Bytes are each kernel's tensors once and whole, operations those of products, convolutions and attention.\n\n"
        + text
    )


def plots(data: dict[str, Any], ratios: dict[str, float], out: pathlib.Path) -> list[str]:
    """Names of the files made."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sardonyx"  # the same data gives the same file
    import matplotlib.pyplot as plt

    made = []

    def save(figure: Any, name: str) -> None:
        figure.tight_layout()
        figure.savefig(out / name, metadata={"Date": None})
        plt.close(figure)
        made.append(name)

    if ratios:
        figure, axes = plt.subplots(figsize=(9, 0.3 * len(ratios) + 1.2))
        names = list(reversed(ratios))
        values = [1 / ratios[n] for n in names]
        axes.barh(names, values, color=["tab:green" if v >= 1 else "tab:orange" for v in values])
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xlabel("speed over the fastest compiled peer (higher is better)")
        save(figure, "gpu-models.svg")
    points = {
        part: [
            (r["operations"] / r["bytes"], r["operations"] * r["repeats"] / r["engines"]["sardonyx"]["median"] / 1e12)
            for r in of_part(data, part).values()
            if "engines" in r and "sardonyx" in r["engines"]
        ]
        for part in ("gemm", "conv", "attention")
    }
    points["kernels of models"] = [
        (k["operations"] / k["bytes"], k["operations"] / k["seconds"] / 1e12)
        for r in of_part(data, "profile").values()
        for k in r.get("kernels", [])
        if k.get("operations") and k.get("bytes") and k["seconds"]
    ]
    ceilings = data.get("ceilings")
    if ceilings and any(points.values()):
        figure, axes = plt.subplots(figsize=(8, 5))
        for part, found in points.items():
            if found:
                axes.scatter(*zip(*found), s=14, alpha=0.7, label=part)
        x = [2**k for k in range(-2, 13)]
        axes.plot(
            x,
            [min(ceilings["operations_per_second"], i * ceilings["bytes_per_second"]) / 1e12 for i in x],
            color="black",
            linewidth=1,
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("operations for each byte")
        axes.set_ylabel("TFLOP/s")
        axes.legend()
        save(figure, "gpu-roofline.svg")
    return made


def write_report(paths: list[pathlib.Path], out: pathlib.Path) -> None:
    data = merged(paths)
    out.mkdir(parents=True, exist_ok=True)
    e = data.get("environment", {})
    text = f"# Measured on {e.get('card', 'a GPU')}\n\n`python benchmarks/gpu.py report` made this page from [its raw data](gpu-benchmark.json) of {e.get('date', 'some day')}; "
    text += "[benchmarks](../benchmarks/README.md) says how it is measured. Absolute times hold for this machine; what is compared was measured in one process, in turns.\n\n"
    models, ratios = models_section(data)
    made = plots(data, ratios, out)
    if models:
        text += (
            models
            + "\n"
            + ("![speed over the fastest compiled peer](gpu-models.svg)\n\n" if "gpu-models.svg" in made else "")
        )
    text += first_section(data) + "\n"
    kernels = kernels_section(data)
    text += kernels + ("![roofline](gpu-roofline.svg)\n\n" if "gpu-roofline.svg" in made else "")
    text += profile_section(data)
    ceilings = data.get("ceilings") or {}
    text += "## The machine\n\n"
    if ceilings:
        text += f"Measured ceilings: {ceilings['bytes_per_second'] / 1e12:.2f} TB/s of a copy on the card (read plus written), {ceilings['operations_per_second'] / 1e12:.0f} TFLOP/s of an 8192-cubed fp16 product.\n\n"
    text += table(["", ""], [[k, str(v)] for k, v in e.get("versions", {}).items()] + [["system", e.get("system", "")]])
    clocks = [r[w] for r in data["rows"].values() for w in ("clocks_before", "clocks_after") if r.get(w)]
    if clocks:
        text += "\n" + table(
            ["", "seen between rows"],
            [[f, f"{min(c[f] for c in clocks)} to {max(c[f] for c in clocks)}"] for f in clocks[0]],
        )
    (out / "gpu-benchmark.md").write_text(text.rstrip() + "\n")
    (out / "gpu-benchmark.json").write_text(json.dumps(without_times(data), indent=1) + "\n")
    print(out / "gpu-benchmark.md")


def without_times(data: Any) -> Any:
    """Single turns are kept to five digits."""
    if isinstance(data, dict):
        return {k: without_times(v) for k, v in data.items()}
    if isinstance(data, list):
        return [without_times(v) for v in data]
    return float(f"{data:.5g}") if isinstance(data, float) and math.isfinite(data) else data
