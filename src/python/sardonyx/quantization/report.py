"""Evaluations as text and as a plot."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import FileError, InvalidArgumentError, UnsupportedError
from .evaluation import Evaluation
from .measures import HALF_MOST, ValueAgreement
from .settings import CACHES, MixedReport, QuantizeReport


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns; those whose head starts with '>' are aligned to the right."""
    rows = [list(r) for r in rows]
    shown = [h.lstrip(">") for h in heads]
    widths = [max(len(r[k]) for r in [shown, *rows]) for k in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        parts = [c.rjust(w) if h.startswith(">") else c.ljust(w) for c, w, h in zip(cells, widths, heads)]
        return "  ".join(parts).rstrip()

    return "\n".join(line(r) for r in [shown, *rows])


def number(x: float | None, digits: int = 3) -> str:
    return "-" if x is None or math.isnan(x) else f"{x:.{digits}g}"


def percent(x: float | None) -> str:
    return "-" if x is None or math.isnan(x) else f"{100 * x:.2f} %"


def cut(text: str, width: int = 44) -> str:
    """At most `width` characters; control characters from a model's names become '?'."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def _row(v: ValueAgreement, saturation: bool, shown: str) -> list[str]:
    cells = [cut(shown), number(v.relative), number(v.max_error), number(v.mean_error), f"{v.cosine:.6f}"]
    cells += [number(v.sqnr, 4), percent(v.equal), "-" if v.top1 is None else f"{percent(v.top1)} of {v.decisions}"]
    if saturation:
        cells += [number(v.reference_largest), f"{v.saturated} / {v.reference_saturated}"]
        cells += [f"{v.nonfinite} / {v.reference_nonfinite}"]
    if v.other_shapes:
        cells[1:7] = [f"shapes differ in {v.other_shapes} of {v.samples} samples", *[""] * 5]
    return cells


def _values(what: str, values: Sequence[ValueAgreement], saturation: bool) -> str:
    heads = [what, ">relative", ">max error", ">mean error", ">cosine", ">SQNR dB", ">equal", ">top-1"]
    if saturation:
        heads += [">largest", ">saturated", ">not finite"]
    rows = [_row(v, saturation, f"{v.name}  {v.node}" if v.node and what == "layer" else v.name) for v in values]
    return table(heads, rows)


def evaluation_text(e: Evaluation, *, saturation: bool = False) -> str:
    """What `sardonyx evaluate` prints. saturation: with counts of saturated and non-finite elements, model / reference."""
    parts = [f"{cut(e.model, 100)} against {cut(e.reference, 100)}, {e.samples} samples"]
    if e.text:
        t = e.text
        parts.append(
            f"perplexity {t.perplexity:.4f}, reference {t.reference_perplexity:.4f} ({100 * (t.ratio - 1):+.2f} %), "
            f"top-1 {percent(t.top1)}, KL divergence {number(t.divergence)} nats, {t.tokens} tokens"
        )
    parts.append(_values("output", e.outputs, saturation))
    if e.layers:
        parts.append(_values("layer", e.layers, saturation))
    if saturation:
        beyond = e.out_of_range
        parts.append(
            "no value leaves the range of float16 (65504)"
            if not beyond
            else f"{len(beyond)} values leave the range of float16 (65504): "
            + ", ".join(cut(v.name, 40) for v in beyond[:20])
            + (", ..." if len(beyond) > 20 else "")
        )
    return "\n\n".join(parts)


def quantize_text(r: QuantizeReport, top: int = 15) -> str:
    """What `sardonyx quantize` prints: the most sensitive layers first."""
    if r.to == "table":
        wide = [n for n, x in r.ranges.items() if x.largest > HALF_MOST]
        parts = [f"ranges of {len(r.ranges)} values ({r.method}) from {r.samples} samples"]
        if wide:
            parts.append(
                f"{len(wide)} values leave the range of float16 (65504): "
                + ", ".join(f"{cut(n, 40)} ({number(r.ranges[n].largest)})" for n in wide[:20])
                + (", ..." if len(wide) > 20 else "")
            )
        return "\n".join(parts)
    if r.to in CACHES:
        return f"the KV cache in {r.to.removeprefix('kv-')}: {len(r.ranges)} tensors, scales per channel from {r.samples} samples"
    every = len(r.layers) + len(r.kept)
    parts = [
        f"{len(r.layers)} of {every} layers in {r.to if not r.mixed else 'fewer bits'} ({r.method}) from {r.samples} samples; "
        f"weights {r.weight_bytes / 1e6:.1f} MB, now {r.quantized_bytes / 1e6:.1f} MB"
    ]
    if r.mixed:
        parts.append(_tradeoff(r.mixed))
    rows = []
    for v in r.layers[: max(top, 0)]:
        activation = "-" if math.isnan(v.low) else f"{number(v.low)} .. {number(v.high)}"
        rows.append(
            [cut(v.name), v.type or str(v.bits), number(v.relative), number(v.sqnr, 4), activation, number(v.smoothing)]
        )
    if rows:
        parts.append(
            table(
                ["layer", "type" if r.mixed else ">bits", ">relative error", ">SQNR dB", ">activation", ">smoothing"],
                rows,
            )
        )
    if r.kept:
        reasons: dict[str, list[str]] = {}
        for name, why in r.kept.items():
            reasons.setdefault(why, []).append(name)
        parts.append(
            "\n".join(f"{len(names)} in float, {why}: {cut(', '.join(names), 90)}" for why, names in reasons.items())
        )
    if r.between:
        floats = {n: why for n, why in r.between.items() if why}
        parts.append(
            "\n".join(
                [f"{len(r.between) - len(floats)} values between layers are read in 8 bits by Adds and pooling"]
                + [f"in float, {why}: {cut(n, 90)}" for n, why in floats.items()]
            )
        )
    return "\n\n".join(parts)


def _tradeoff(m: MixedReport) -> str:
    """The curve of time and error as a table: the fastest first."""
    slowest = max(p.seconds for p in m.curve)
    rows = []
    for p in m.curve:
        types = ", ".join(f"{count} {kind}" for kind, count in p.counts.items()) or "-"
        mark = "chosen" if p.chosen else "" if p.meets else "over budget"
        bar = "#" * round(24 * p.seconds / slowest)
        rows.append([p.name, types, f"{p.seconds * 1e6:.4g}", number(p.error), number(p.bound), mark, bar])
    heads = ["choice", "nodes", ">time us", ">error", ">bound", "", "time"]
    lines = [
        f"budget {m.budget:g} ({m.metric}), checked on {m.checked} samples; bound: not exceeded on as many others with "
        f"probability {m.confidence:g}; times {m.cost}",
        table(heads, rows),
    ]
    lines += [f"{kind} was not tried: {why}" for kind, why in m.left_out.items()]
    return "\n".join(lines)


def _figure(file: str) -> tuple[Any, type]:
    if os.path.splitext(file)[1] not in (".png", ".svg", ".pdf"):
        raise InvalidArgumentError(f"'{file}': plots are written as .png, .svg or .pdf")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError("plots need the Python package 'matplotlib': pip install matplotlib") from None
    return FigureCanvasAgg, Figure


def _save(figure: Any, file: str) -> None:
    try:
        figure.savefig(file)
    except OSError as error:
        raise FileError(f"'{file}' could not be written: {error.strerror}") from None


def plot_tradeoff(r: QuantizeReport, file: str) -> None:
    """Draws time and error of the choices that "mixed" considered: .png, .svg or .pdf. Needs matplotlib."""
    canvas, figure_class = _figure(file)
    if r.mixed is None:
        raise InvalidArgumentError("only 'mixed' has a curve to draw")
    figure = figure_class(figsize=(7, 5), layout="constrained")
    canvas(figure)
    axes = figure.add_subplot()
    path = [p for p in r.mixed.curve if p.name in ("mixed", "float")]
    axes.plot([p.seconds * 1e6 for p in path], [p.error for p in path], "-", color="0.7")
    for p in r.mixed.curve:
        x = p.seconds * 1e6
        top = p.bound if math.isfinite(p.bound) else p.error
        axes.plot([x, x], [p.error, top], color="0.6")
        axes.plot([x], [p.error], "o" if p.meets else "x", color="C1" if p.chosen else "C0")
        axes.annotate(p.name + (" (chosen)" if p.chosen else ""), (x, top), fontsize=8, xytext=(4, 4),
                      textcoords="offset points")  # fmt: skip
    axes.axhline(r.mixed.budget, linestyle="--", color="C3", label=f"budget {r.mixed.budget:g}")
    axes.set_xlabel(f"time of a run, us ({r.mixed.cost})")
    axes.set_ylabel(f"{r.mixed.metric}: error, and its bound")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, file)


def plot(e: Evaluation, file: str) -> None:
    """Draws the SQNR of every value: .png, .svg or .pdf. Needs matplotlib."""
    canvas, figure_class = _figure(file)
    values = [*e.layers, *e.outputs]
    # Values that are equal have an infinite ratio: shown at the top of the others, with a mark of their own.
    known = [v.sqnr for v in values if math.isfinite(v.sqnr)]
    top = max([*known, 0.0]) + 10
    figure = figure_class(figsize=(max(6.0, min(40.0, 0.22 * len(values) + 2)), 5), layout="constrained")
    canvas(figure)
    axes = figure.add_subplot()
    for equal, mark, label in ((False, "o", "SQNR"), (True, "^", "equal")):
        at = [k for k, v in enumerate(values) if math.isinf(v.sqnr) == equal and not math.isnan(v.sqnr)]
        axes.plot(at, [top if equal else values[k].sqnr for k in at], mark, label=label)
    beyond = [k for k, v in enumerate(values) if v.reference_saturated]
    if beyond:
        axes.plot(beyond, [min([*known, 0.0])] * len(beyond), "rx", label="beyond float16")
    axes.set_xticks(range(len(values)), [cut(v.name, 24) for v in values], rotation=90, fontsize=7)
    axes.set_ylabel("signal to quantisation noise, dB")
    axes.set_title(cut(f"{e.model} against {e.reference}", 90), fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, file)
