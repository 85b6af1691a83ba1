"""Evaluations as text and as a plot."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from ..errors import FileError, InvalidArgumentError, UnsupportedError
from .agreement import Evaluation
from .measures import HALF_MOST, ValueAgreement
from .quantizer import QuantizeReport


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
    every = len(r.layers) + len(r.kept)
    parts = [
        f"{len(r.layers)} of {every} products in {r.to} ({r.method}) from {r.samples} samples; "
        f"weights {r.weight_bytes / 1e6:.1f} MB, now {r.quantized_bytes / 1e6:.1f} MB"
    ]
    rows = []
    for v in r.layers[: max(top, 0)]:
        activation = "-" if math.isnan(v.low) else f"{number(v.low)} .. {number(v.high)}"
        rows.append([cut(v.name), str(v.bits), number(v.relative), number(v.sqnr, 4), activation, number(v.smoothing)])
    if rows:
        parts.append(table(["layer", ">bits", ">relative error", ">SQNR dB", ">activation", ">smoothing"], rows))
    if r.kept:
        reasons: dict[str, list[str]] = {}
        for name, why in r.kept.items():
            reasons.setdefault(why, []).append(name)
        parts.append(
            "\n".join(f"{len(names)} in float, {why}: {cut(', '.join(names), 90)}" for why, names in reasons.items())
        )
    return "\n\n".join(parts)


def plot(e: Evaluation, file: str) -> None:
    """Draws the SQNR of every value: .png, .svg or .pdf. Needs matplotlib."""
    if os.path.splitext(file)[1] not in (".png", ".svg", ".pdf"):
        raise InvalidArgumentError(f"'{file}': plots are written as .png, .svg or .pdf")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError("plots need the Python package 'matplotlib': pip install matplotlib") from None
    values = [*e.layers, *e.outputs]
    # Values that are equal have an infinite ratio: shown at the top of the others, with a mark of their own.
    known = [v.sqnr for v in values if math.isfinite(v.sqnr)]
    top = max([*known, 0.0]) + 10
    figure = Figure(figsize=(max(6.0, min(40.0, 0.22 * len(values) + 2)), 5), layout="constrained")
    FigureCanvasAgg(figure)
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
    try:
        figure.savefig(file)
    except OSError as error:
        raise FileError(f"'{file}' could not be written: {error.strerror}") from None
