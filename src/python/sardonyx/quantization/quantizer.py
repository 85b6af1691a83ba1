"""quantize(): converts a float model to 8-bit GEMMs and convolutions or to weights of few bits, or makes a calibration
table."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from ..llm.weights import Blocked
from ..model import TensorInfo
from . import weight_only
from .agreement import is_language_model
from .calibration import Channels, Collector, Gram, Rows, collect, float_values, histograms, write_table
from .measures import Measure
from .onnx_model import OnnxModel
from .products import Product, find_products
from .qdq import FP8, INT8, Format, QdqWriter, rounded, weight_scale
from .ranges import METHODS, Histogram, Range
from .samples import Data, Samples
from .scaling import scale_products, smoothing

Array = np.ndarray[Any, Any]
#: The samples for inputs.
Feed = Callable[[Sequence[TensorInfo]], Iterable[Mapping[str, Array]]]
#: Called with what is done and the number of samples so far.
OnStep = Callable[[str, int], object]

TARGETS = ("int8", "fp8", "int4", "int8-weights", "table")
_ROWS = 256  # of each activation, with which smoothing is chosen
_CHECKED = 16  # samples on which errors are measured
_GRAMS = 1 << 30  # bytes of Hessians at a time; more need further passes over the data


@dataclass(frozen=True)
class LayerReport:
    """A product that was quantised."""

    name: str  #: "name (operator)"
    relative: float  #: error of its result when only it is quantised: root mean square, relative
    sqnr: float  #: the same in dB
    low: float  #: range of its activation; nan for weights of few bits
    high: float
    smoothing: float  #: SmoothQuant's strength; 0: none
    bits: int  #: of the weights


@dataclass(frozen=True)
class QuantizeReport:
    """What quantize() did."""

    to: str
    method: str
    samples: int
    layers: tuple[LayerReport, ...]  #: most sensitive first
    kept: dict[str, str]  #: MatMul, Gemm and Conv nodes that stay in float, with reasons
    weight_bytes: int  #: of all weights, before
    quantized_bytes: int  #: and after
    ranges: dict[str, Range]  #: of activations (table: of all values)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        out = dataclasses.asdict(self)
        for layer in out["layers"]:
            for key in ("relative", "sqnr", "low", "high"):
                x = layer[key]
                layer[key] = None if x != x else "inf" if x == float("inf") else x
        return out


@dataclass(frozen=True)
class Quantized:
    """The result of quantize()."""

    model: Any  #: an onnx.ModelProto; None for tables
    report: QuantizeReport


@dataclass(frozen=True)
class Settings:
    """The arguments of quantize() that control how."""

    to: str
    method: str
    percentile: float
    per_channel: bool
    symmetric: bool
    smooth: bool
    correct_bias: bool
    limit: float | None
    exclude: tuple[str, ...]
    block: int
    weights: str


def quantize(
    model: Any,
    data: Data | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    to: str = "int8",
    method: str = "mse",
    percentile: float = 99.99,
    per_channel: bool = True,
    symmetric: bool = False,
    smooth: bool = True,
    correct_bias: bool = True,
    limit: float | None = None,
    exclude: Sequence[str] = (),
    block: int = 32,
    weights: str = "gptq",
    samples: int = 0,
    context: int = 512,
    options: Mapping[str, Any] | None = None,
    progress: OnStep | None = None,
) -> Quantized:
    """Quantises the MatMul, Gemm and Conv nodes of a float32 model that have constant weights.

    model: a path, bytes or an onnx.ModelProto, or the folder of a language model; then output is a folder, too.
    data: typical inputs, as evaluate() takes them. Not needed for weights="rtn".
    output: the file to write. Large weights go to OUTPUT.data.
    to: "int8": products of 8-bit integers, as QuantizeLinear and DequantizeLinear. "fp8": the same in float8 e4m3.
        "int4", "int8-weights": MatMulNBits with weights of 4 or 8 bits (language models). "table": a calibration table.
    method: how the range of an activation is chosen: "mse", "minmax", "percentile" (of `percentile`) or "entropy".
    per_channel: weights have a scale for each output channel rather than one.
    symmetric: activations of int8 have no zero point.
    smooth: SmoothQuant for MatMul and Gemm, where it lowers the error on the data.
    correct_bias: corrects the biases of Conv and Gemm for the shift of each output channel's mean that rounding the weights
        causes (Nagel et al., "Data-free quantization", 2019).
    limit: nodes whose error (LayerReport.relative) is larger stay in float, with "int8" and "fp8" (None: 0.05); with "int4"
        their weights get 8 bits (None: no limit).
    exclude: patterns ("*head*") of names of nodes that stay in float.
    block: weights that share a scale, of "int4" and "int8-weights".
    weights: "gptq", "awq" or "rtn" (round to nearest), of the same.
    samples: the most that are read; 0: all. context: tokens of a text that a language model reads together.
    options: of compile(), for the runs: {"device": "cuda"}.
    progress: called with what is done and the number of samples so far.

    Data are read one sample at a time, several times. Raises errors.Error; UnsupportedError without the package onnx.
    """
    if to not in TARGETS:
        raise InvalidArgumentError(f"a model can be quantised to {', '.join(TARGETS)}, not {to!r}")
    if method not in METHODS:
        raise InvalidArgumentError(f"the calibration method {method!r} is not one of {', '.join(METHODS)}")
    if weights not in weight_only.METHODS:
        raise InvalidArgumentError(f"weights are rounded by {', '.join(weight_only.METHODS)}, not {weights!r}")
    blocked = to in ("int4", "int8-weights")
    if data is None and not (blocked and weights == "rtn"):
        raise InvalidArgumentError(f"'{to}' needs data: typical inputs of the model")
    settings = Settings(
        to, method, percentile, per_channel, symmetric, smooth, correct_bias, limit, tuple(exclude), block, weights
    )
    step = progress or (lambda what, count: None)
    run = dict(options or {})
    if is_language_model(model):
        from .language_folder import quantize_folder

        return quantize_folder(model, output, data, samples, context, settings, run, step)
    feed: Feed | None = None
    if data is not None:
        source = data
        if not Samples(source, []).repeatable:
            raise InvalidArgumentError("the data are read several times: pass a list, a path, or a function")

        def feed(inputs: Sequence[TensorInfo]) -> Iterable[Mapping[str, Array]]:
            return Samples(source, inputs, samples)

    return quantize_model(OnnxModel(model), feed, output, settings, run, step)


def quantize_model(
    model: OnnxModel,
    feed: Feed | None,
    output: str | os.PathLike[str] | None,
    settings: Settings,
    options: Mapping[str, Any],
    step: OnStep,
) -> Quantized:
    """quantize() of one ONNX model."""
    job = _Job(model, feed, settings, options, step)
    if settings.to == "table":
        report = job.table()
        if output is not None:
            write_table(output, report.ranges)
        return Quantized(None, report)
    report = job.blocked() if settings.to in ("int4", "int8-weights") else job.products()
    if output is not None:
        model.save(output)
    return Quantized(model.proto, report)


def _by_activation(products: Iterable[Product]) -> dict[str, list[Product]]:
    groups: dict[str, list[Product]] = {}
    for p in products:
        groups.setdefault(p.activation, []).append(p)
    return groups


class _Job:
    def __init__(
        self, model: OnnxModel, feed: Feed | None, settings: Settings, options: Mapping[str, Any], step: OnStep
    ):
        self.model, self.feed, self.settings, self.options, self.step = model, feed, settings, options, step
        self.samples = 0
        self.smoothing: dict[str, float] = {}  # by the products' labels
        self.before = model.weight_bytes()

    def _collect(self, what: str, wanted: Mapping[str, list[Collector]], model: OnnxModel | None = None) -> None:
        assert self.feed is not None
        self.step(what, 0)
        self.samples = collect(model or self.model, self.feed, wanted, self.options, lambda k: self.step(what, k))

    def _report(self, layers: Sequence[LayerReport], kept: dict[str, str], ranges: dict[str, Range]) -> QuantizeReport:
        s = self.settings
        method = s.weights if s.to in ("int4", "int8-weights") else s.method
        ordered = sorted(layers, key=lambda x: x.sqnr if x.sqnr == x.sqnr else np.inf)
        after = self.model.weight_bytes()
        return QuantizeReport(s.to, method, self.samples, tuple(ordered), kept, self.before, after, ranges)

    def table(self) -> QuantizeReport:
        assert self.feed is not None
        self.step("compiling", 0)
        names = float_values(self.model, self.options)
        found, self.samples = histograms(
            self.model, self.feed, names, self.options, lambda k: self.step("calibrating", k)
        )
        s = self.settings
        ranges = {n: h.range(s.method, symmetric=True, percentile=s.percentile) for n, h in found.items() if h.count}
        return self._report((), {}, ranges)

    def products(self) -> QuantizeReport:
        s, form = self.settings, INT8 if self.settings.to == "int8" else FP8
        self.model.require_opset(form.opset)
        products, kept = find_products(self.model, s.exclude, grouped=False)
        if not products:
            raise InvalidArgumentError(
                "the model has no MatMul, Gemm or Conv that can be quantised"
                + ("".join(f"; {n}: {why}" for n, why in list(kept.items())[:5]))
            )
        if s.smooth:
            self._smooth(products, form)
        groups = _by_activation(products)
        channels = {name: Channels(g[0].activation_axis) for name, g in groups.items()}
        found, self.samples = self._ranges(channels)
        ranges = {
            name: h.range(s.method if form.is_integer else "minmax", symmetric=s.symmetric, percentile=s.percentile)
            for name, h in found.items()
        }
        means = {name: c.mean for name, c in channels.items()}

        def round_operands(model: OnnxModel, chosen: Iterable[Product]) -> None:
            writer = QdqWriter(model, form, ranges, symmetric=s.symmetric, per_channel=s.per_channel)
            for p in chosen:
                if s.correct_bias:
                    correct_bias(model, p, means[p.activation], form, s.per_channel)
                writer.quantise(p)
            model.drop_unused()

        checked, pairs = self._with_copies(products)
        round_operands(checked, [p for _, p in pairs])
        layers = self._sensitivity(checked, pairs, ranges)
        limit = 0.05 if s.limit is None else s.limit
        too_far = {v.name: v.relative for v in layers if v.relative > limit}
        kept |= {n: f"its error alone is {e:.3g}, above the limit of {limit:g}" for n, e in too_far.items()}
        chosen = [p for p in products if p.label not in too_far]
        if not chosen:
            raise InvalidArgumentError(
                f"every node has an error above the limit of {limit:g}, the smallest {min(too_far.values()):.3g}"
            )
        round_operands(self.model, chosen)
        used = {p.activation for p in chosen}
        return self._report(
            [v for v in layers if v.name not in too_far], kept, {n: r for n, r in ranges.items() if n in used}
        )

    def _ranges(self, channels: dict[str, Channels]) -> tuple[dict[str, Histogram], int]:
        found = {name: Histogram() for name in channels}
        self._collect("calibrating", {name: [found[name], channels[name]] for name in channels})
        for name, h in found.items():
            if not h.count:
                raise InvalidArgumentError(f"the activation '{name}' has no finite values on the data")
        return found, self.samples

    def _smooth(self, products: list[Product], form: Format) -> None:
        s = self.settings
        groups = {
            name: g for name, g in _by_activation(products).items() if all(p.kind in ("MatMul", "Gemm") for p in g)
        }
        if not groups:
            return
        rows = {name: Rows(_ROWS) for name in groups}
        channels = {name: Channels(-1) for name in groups}
        self._collect("looking at channels", {name: [rows[name], channels[name]] for name in groups})
        for name, group in groups.items():
            weights = [weight_only.weight_of(self.model, p).T for p in group]
            largest = channels[name].largest
            if largest is None:
                continue
            scales, strength = smoothing(
                rows[name].rows, largest, weights, form, symmetric=s.symmetric, per_channel=s.per_channel
            )
            if scales is not None:
                scale_products(self.model, group, scales)
                self.smoothing.update({p.label: strength for p in group})
        self.model.index()

    def _with_copies(self, products: list[Product]) -> tuple[OnnxModel, list[tuple[Product, Product]]]:
        """A copy of the float model with each product duplicated; the duplicates are then quantised. So one run shows the error
        of each product alone."""
        model = OnnxModel(self.model.proto)
        model.folder = self.model.folder
        nodes = {n.output[0]: n for n in model.proto.graph.node if n.output}
        pairs = []
        for p in products:
            original = nodes[p.node.output[0]]
            twin = type(original)()
            twin.CopyFrom(original)
            twin.output[0] = model.fresh(original.output[0] + "/rounded")
            twin.name = model.fresh((original.name or original.op_type) + "/rounded")
            at = next(k for k, n in enumerate(model.proto.graph.node) if n is original)
            model.proto.graph.node.insert(at + 1, twin)
            twin = model.proto.graph.node[at + 1]
            pairs.append((p, dataclasses.replace(p, node=twin)))
        model.index()
        model.outputs |= {q.node.output[0] for _, q in pairs}
        return model, pairs

    def _sensitivity(
        self, model: OnnxModel, pairs: Sequence[tuple[Product, Product]], ranges: Mapping[str, Range]
    ) -> list[LayerReport]:
        measures = [(p, p.node.output[0], q.node.output[0], Measure()) for p, q in pairs]
        if self.feed is not None:
            model.outputs = {o.name for o in model.proto.graph.output}
            self._compare(model, measures)
        out = []
        for p, _, _, m in measures:
            v = m.result(p.label)
            r = ranges.get(p.activation, Range(np.nan, np.nan))
            out.append(LayerReport(p.label, v.relative, v.sqnr, r.low, r.high, self.smoothing.get(p.label, 0.0), 8))
        return out

    def _compare(self, model: OnnxModel, measures: Sequence[tuple[Product, str, str, Measure]]) -> None:
        assert self.feed is not None
        values: dict[str, Array] = {}

        class Keep:
            def __init__(self, name: str):
                self.name = name

            def add(self, x: Array) -> None:
                values[self.name] = x

        def each(inputs: Sequence[TensorInfo]) -> Iterable[Mapping[str, Array]]:
            assert self.feed is not None
            for k, sample in enumerate(self.feed(inputs)):
                if k >= _CHECKED:
                    return
                yield sample
                for _, float_name, own_name, m in measures:
                    m.add(values[own_name], values[float_name])

        names = [n for _, a, b, _ in measures for n in (a, b)]
        self.step("measuring errors", 0)
        collect(model, each, {n: [Keep(n)] for n in names}, self.options, lambda k: self.step("measuring errors", k))

    def blocked(self) -> QuantizeReport:
        s = self.settings
        bits = 4 if s.to == "int4" else 8
        weight_only.check_block(bits, s.block)
        products, kept = find_products(self.model, s.exclude, grouped=False, half=True)
        for p in list(products):
            if p.kind == "Conv" or not weight_only.simple_gemm(p):
                products.remove(p)
                kept[p.label] = "MatMulNBits is for matrix products" if p.kind == "Conv" else "it has factors"
        if not products:
            raise InvalidArgumentError("the model has no MatMul or Gemm with constant float weights")
        weights: dict[str, Blocked] = {}
        reports: list[LayerReport] = []
        groups = _by_activation(products)
        for part in self._parts(groups) if s.weights != "rtn" else [list(groups)]:
            grams = {name: Gram() for name in part}
            if s.weights != "rtn":
                self._collect("collecting activations", {name: [g] for name, g in grams.items()})
            for name in part:
                self.step(f"rounding weights ({s.weights})", len(reports))
                for p, blocked, relative in self._round(groups[name], grams[name], bits):
                    weights[p.node.output[0]] = blocked
                    sqnr = -20 * np.log10(relative) if relative > 0 else np.inf
                    reports.append(LayerReport(p.label, relative, float(sqnr), np.nan, np.nan, 0.0, blocked.bits))
        for p in products:
            weight_only.replace_product(self.model, p, weights[p.node.output[0]])
        self.model.drop_unused()
        return self._report(reports, kept, {})

    def _parts(self, groups: Mapping[str, list[Product]]) -> list[list[str]]:
        """The activations whose Hessians are collected together."""
        parts: list[list[str]] = [[]]
        used = 0
        for name, group in groups.items():
            k = self.model.dims(group[0].weight)[group[0].input_axis]
            size = 4 * k * k
            if parts[-1] and used + size > _GRAMS:
                parts.append([])
                used = 0
            parts[-1].append(name)
            used += size
        return parts

    def _round(self, group: list[Product], gram: Gram, bits: int) -> Iterable[tuple[Product, Blocked, float]]:
        s = self.settings
        symmetric = s.symmetric or bits == 8
        h = gram.sum
        if s.weights == "awq" and h is not None:
            w = [weight_only.weight_of(self.model, p) for p in group]
            scales = weight_only.awq_scales(w, h, gram.count, bits, s.block, symmetric)
            if scales is not None:
                scale_products(self.model, group, scales)
                h = h / np.outer(scales, scales)
        for p in group:
            w_ = weight_only.weight_of(self.model, p)
            if s.weights == "gptq" and h is not None:
                q = weight_only.gptq(w_, h, bits, s.block, symmetric)
            else:
                q = weight_only.rtn(w_, bits, s.block, symmetric)
            relative = _relative(q, w_, h)
            if bits == 4 and s.limit is not None and relative > s.limit:
                q = weight_only.rtn(w_, 8, s.block, True)
                relative = _relative(q, w_, h)
            yield p, q, relative


def _relative(q: Blocked, w: Array, gram: Array | None) -> float:
    """The error of a product's results, by second moments of its activations; without them of the weights."""
    error = q.dense().values - w
    if gram is None:
        return float(np.sqrt((error**2).sum() / max(float((w**2).sum()), 1e-30)))
    return float(np.sqrt(weight_only.loss(error, gram) / max(weight_only.loss(w, gram), 1e-30)))


def correct_bias(model: OnnxModel, p: Product, mean: Array, form: Format, per_channel: bool) -> None:
    """Adds the mean error that the weights' rounding makes in each output channel to the bias of a Conv or a plain Gemm.
    mean: of the activation's channels. Padding of convolutions is not considered."""
    if p.kind == "MatMul" or not weight_only.simple_gemm(p):
        return
    w = model.array(p.weight)
    assert w is not None
    axis = p.axis if per_channel else None
    error = rounded(w, weight_scale(w, axis, form), form, axis) - w
    if p.kind == "Conv":
        shift = -(error.sum(tuple(range(2, w.ndim))) @ mean)
    else:
        shift = -((error if p.axis == 0 else error.T) @ mean)
    shift = shift.astype(np.float32)
    if not np.isfinite(shift).all():
        return
    if len(p.node.input) > 2 and p.node.input[2]:
        bias = model.array(p.node.input[2])
        if bias is None or bias.dtype != np.float32 or bias.ndim != 1 or bias.shape != shift.shape:
            return
        model.replace_weight(p.node, 2, bias + shift)
    else:
        name = model.add_weight(p.weight + "/bias", shift)
        if len(p.node.input) > 2:
            p.node.input[2] = name
        else:
            p.node.input.append(name)
