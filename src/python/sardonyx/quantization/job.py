"""Quantising one ONNX model: calibration, sensitivity of nodes, rounding of weights, and the nodes that are written."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError, UnsupportedError
from ..llm.weights import Blocked
from ..model import TensorInfo
from . import convolution, kv_cache, microscaling, weight_only
from .bias_correction import correct_bias
from .calibration import Channels, CheckedChannels, Collector, Gram, collect, float_values, histograms
from .layers import Layer, find_layers
from .measures import Measure
from .microscaling import FORMS as MX
from .microscaling import MxWeight
from .onnx_model import OnnxModel
from .output_limit import by_output_error, most_within
from .qdq import FORMATS, Format, QdqWriter
from .ranges import Histogram, Range
from .residuals import find_readings, rounding_error, within_limit
from .scaling import norm_in_front, scale_layers, smoothing
from .settings import BITS, BLOCKED, Feed, LayerReport, OnStep, QuantizeReport, Settings

Array = np.ndarray[Any, Any]

_ROWS = 256  # of each activation, with which smoothing is chosen
_CHECKED = 16  # samples on which errors are measured
_GRAMS = 1 << 30  # bytes of Hessians at a time; more need further passes over the data


def by_activation(layers: Iterable[Layer]) -> dict[str, list[Layer]]:
    groups: dict[str, list[Layer]] = {}
    for p in layers:
        groups.setdefault(p.activation, []).append(p)
    return groups


class Job:
    def __init__(
        self, model: OnnxModel, feed: Feed | None, settings: Settings, options: Mapping[str, Any], step: OnStep
    ):
        self.model, self.feed, self.settings, self.options, self.step = model, feed, settings, options, step
        self.samples = 0
        self.smoothing: dict[str, float] = {}  # by the layers' labels
        self.before = model.weight_bytes()

    def collect(self, what: str, wanted: Mapping[str, list[Collector]], model: OnnxModel | None = None) -> None:
        assert self.feed is not None
        self.step(what, 0)
        self.samples = collect(model or self.model, self.feed, wanted, self.options, lambda k: self.step(what, k))

    def report(
        self,
        reports: Sequence[LayerReport],
        kept: dict[str, str],
        ranges: dict[str, Range],
        between: Mapping[str, str] | None = None,
    ) -> QuantizeReport:
        s = self.settings
        method = s.weights if s.to in BLOCKED else s.method
        ordered = sorted(reports, key=lambda x: x.sqnr if x.sqnr == x.sqnr else np.inf)
        after = self.model.weight_bytes()
        return QuantizeReport(
            s.to, method, self.samples, tuple(ordered), kept, self.before, after, ranges, between=between or {}
        )

    def table(self) -> QuantizeReport:
        assert self.feed is not None
        self.step("compiling", 0)
        names = float_values(self.model, self.options)
        found, self.samples = histograms(
            self.model, self.feed, names, self.options, lambda k: self.step("calibrating", k)
        )
        s = self.settings
        ranges = {n: h.range(s.method, symmetric=True, percentile=s.percentile) for n, h in found.items() if h.count}
        if not ranges:
            raise InvalidArgumentError("no value of the model is a finite number on the data")
        return self.report((), {}, ranges)

    def cache(self) -> QuantizeReport:
        """The KV cache in 8 bits."""
        nodes = kv_cache.cached(self.model)
        found = {name: kv_cache.Magnitudes() for n in nodes for name in n.output[1:3]}
        self.collect("calibrating", {name: [m] for name, m in found.items()})
        largest = {name: m.largest for name, m in found.items() if m.largest is not None}
        if len(largest) < len(found):
            raise InvalidArgumentError("the data hold no tokens")
        return self.report((), {}, kv_cache.write(self.model, nodes, kv_cache.FORMS[self.settings.to], largest))

    def layers(self) -> QuantizeReport:
        s, form = self.settings, FORMATS[self.settings.to]
        self.model.require_opset(form.opset)
        layers, kept = find_layers(self.model, s.exclude, grouped=False)
        if not layers:
            raise InvalidArgumentError(
                "the model has no MatMul, Gemm or Conv that can be quantised"
                + ("".join(f"; {n}: {why}" for n, why in list(kept.items())[:5]))
            )
        if s.smooth:
            self.smooth(layers, form)
        groups = by_activation(layers)
        channels = {name: Channels(g[0].activation_axis) for name, g in groups.items()}
        # ONNX Runtime takes QuantizeLinear and DequantizeLinear around Add and pooling for integers, whatever their type is.
        reads = s.residuals and form.is_integer
        between = {r.value for r in find_readings(self.model, layers)} if reads else set()
        found, self.samples = self.ranges_of(channels, between - channels.keys())
        ranges = {
            name: h.range(s.method if form.is_integer else "minmax", symmetric=s.symmetric, percentile=s.percentile)
            for name, h in found.items()
        }
        means = {name: c.mean for name, c in channels.items()}
        # Data that say nothing about a range would clip all others to 0.
        kept |= {p.label: "its activation is 0 on all of the data" for p in layers if not found[p.activation].limit}
        layers = [p for p in layers if p.label not in kept]
        if not layers:
            raise InvalidArgumentError("the activations of all nodes are 0 on all of the data; give other data")

        def round_operands(model: OnnxModel, chosen: Iterable[Layer], ranges: Mapping[str, Range]) -> QdqWriter:
            writer = QdqWriter(model, form, ranges, symmetric=s.symmetric, per_channel=s.per_channel)
            for p in chosen:
                if s.correct_bias:
                    correct_bias(model, p, means[p.activation], form, s.per_channel)
                writer.quantise(p)
            return writer

        checked, pairs = self._with_copies(layers)
        round_operands(checked, [p for _, p in pairs], ranges)
        checked.drop_unused()
        reports = self._sensitivity(checked, pairs, ranges)
        limit = 0.05 if s.limit is None else s.limit
        too_far = {v.name: v.relative for v in reports if v.relative > limit}
        kept |= {n: f"its error alone is {e:.3g}, above the limit of {limit:g}" for n, e in too_far.items()}
        chosen = [p for p in layers if p.label not in too_far]
        if not chosen:
            raise InvalidArgumentError(
                f"every node has an error above the limit of {limit:g}, the smallest {min(too_far.values()):.3g}"
            )
        errors = {n: rounding_error(found[n], ranges[n], form, symmetric=s.symmetric) for n in between}

        def write(model: OnnxModel, chosen: Iterable[Layer], errors: Mapping[str, float]) -> dict[str, str]:
            """Returns what is read between layers: "" for values in 8 bits, of others the reason why not."""
            labels = {p.label for p in chosen}
            layers = [p for p in find_layers(model, s.exclude, grouped=False)[0] if p.label in labels]
            readings, why = within_limit(model, layers, errors, limit)
            same = {r.same_as: ranges[r.value] for r in readings if r.same_as}
            writer = round_operands(model, layers, ranges | same)
            for r in readings:
                r.node.input[r.index] = writer.activation(r.value)
            model.drop_unused()
            return {r.value: "" for r in reversed(readings)} | why

        def tried(chosen: Iterable[Layer], errors: Mapping[str, float]) -> tuple[OnnxModel, dict[str, str]]:
            trial = OnnxModel(self.model.proto)
            trial.folder = self.model.folder
            return trial, write(trial, chosen, errors)

        trial, read = tried(chosen, errors)
        eight = [name for name, why in read.items() if not why]
        error = self._output_error(trial) if eight else 0.0
        if error > limit:
            trial, _ = tried(chosen, {})
            reason = (
                f"with Adds and pooling in 8 bits the error of the outputs is {error:.3g}, above the limit of {limit:g}"
            )
            read |= dict.fromkeys(eight, reason)
        if s.output_limit is not None and self._output_error(trial) > s.output_limit:
            stays = self._above_output_limit(chosen, round_operands, lambda some: tried(some, {})[0], ranges)
            chosen = [p for p in chosen if p.label not in stays]
            trial, _ = tried(chosen, {})
            kept |= stays
            read |= {name: next(iter(stays.values())) for name, why in read.items() if not why}
        self.model.proto = trial.proto
        self.model.index()
        used = {p.activation for p in chosen} | {name for name, why in read.items() if not why}
        return self.report(
            [v for v in reports if v.name not in kept], kept, {n: r for n, r in ranges.items() if n in used}, read
        )

    def _above_output_limit(
        self,
        layers: Sequence[Layer],
        round_operands: Callable[[OnnxModel, Iterable[Layer], Mapping[str, Range]], object],
        rounded: Callable[[Iterable[Layer]], OnnxModel],
        ranges: Mapping[str, Range],
    ) -> dict[str, str]:
        """The layers that stay in float, with reasons, so that the outputs' error is within the limit: those that add most
        to it alone. rounded: the model in which these layers have 8 bits."""
        limit = self.settings.output_limit
        assert self.feed is not None and limit is not None

        def writer(model: OnnxModel) -> Callable[[Layer, str], None]:
            def write(p: Layer, _: str) -> None:
                round_operands(model, [p], ranges)

            return write

        order = by_output_error(self.model, layers, writer, self.feed, self.options, self.step)
        count = most_within(len(order), lambda n: self._output_error(rounded(order[:n])), limit)
        if not count:
            raise InvalidArgumentError(
                f"the error of the outputs is above the limit of {limit:g} with any node in 8 bits"
            )
        reason = f"with it in 8 bits the error of the outputs is above the limit of {limit:g}"
        return {p.label: reason for p in order[count:]}

    def _output_error(self, rounded: OnnxModel) -> float:
        """The largest error of an output of the rounded model on some samples, relative to the model's values."""
        assert self.feed is not None
        names = [o.name for o in self.model.proto.graph.output]
        references: dict[str, list[Array]] = {n: [] for n in names}
        measures = {n: Measure() for n in names}

        class Keep:
            def __init__(self, name: str):
                self.name = name

            def add(self, x: Array) -> None:
                references[self.name].append(x)

        class Compare(Keep):
            def add(self, x: Array) -> None:
                measures[self.name].add(x, references[self.name].pop(0))

        def some(inputs: Sequence[TensorInfo]) -> Iterable[Mapping[str, Array]]:
            assert self.feed is not None
            return itertools.islice(self.feed(inputs), _CHECKED)

        for model, collector in ((self.model, Keep), (rounded, Compare)):
            self.step("measuring errors", 0)
            collect(
                model,
                some,
                {n: [collector(n)] for n in names},
                self.options,
                lambda k: self.step("measuring errors", k),
            )
        errors = [m.result(n).relative for n, m in measures.items()]
        return max((e for e in errors if np.isfinite(e)), default=0.0)  # an output of zeros has no relative error

    def ranges_of(self, channels: dict[str, Channels], others: Iterable[str] = ()) -> tuple[dict[str, Histogram], int]:
        """Histograms of the activations whose channels are wanted, and of other values."""
        found = {name: Histogram() for name in (*channels, *others)}
        self.collect(
            "calibrating", {name: [h, *([channels[name]] if name in channels else [])] for name, h in found.items()}
        )
        for name, h in found.items():
            if not h.count:
                raise InvalidArgumentError(
                    f"the activation '{name}' has no finite values on the data; give other data, or exclude the nodes that read it"
                )
        return found, self.samples

    def smooth(self, layers: list[Layer], form: Format, *, free: bool = False) -> None:
        """SmoothQuant. free: only where a normalisation takes the scales, so that no operation is added."""
        s = self.settings
        groups = {
            name: g
            for name, g in by_activation(layers).items()
            if all(p.kind in ("MatMul", "Gemm") for p in g) and (not free or norm_in_front(self.model, name, g))
        }
        if not groups:
            return
        channels = {name: CheckedChannels(_ROWS) for name in groups}
        self.collect("looking at channels", {name: [c] for name, c in channels.items()})
        for name, group in groups.items():
            weights = [weight_only.weight_of(self.model, p).T for p in group]
            scales, strength = smoothing(
                channels[name], weights, form, symmetric=s.symmetric, per_channel=s.per_channel
            )
            if scales is not None:
                scale_layers(self.model, group, scales)
                self.smoothing.update({p.label: strength for p in group})
        self.model.index()

    def _with_copies(self, layers: list[Layer]) -> tuple[OnnxModel, list[tuple[Layer, Layer]]]:
        """A copy of the float model with each layer duplicated; the duplicates are then quantised. So one run shows the error
        of each layer alone."""
        model = OnnxModel(self.model.proto)
        model.folder = self.model.folder
        nodes = {n.output[0]: n for n in model.proto.graph.node if n.output}
        pairs = []
        for p in layers:
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
        self, model: OnnxModel, pairs: Sequence[tuple[Layer, Layer]], ranges: Mapping[str, Range]
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

    def _compare(self, model: OnnxModel, measures: Sequence[tuple[Layer, str, str, Measure]]) -> None:
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
        if s.to in BITS:
            weight_only.check_block(BITS[s.to], s.block)
        layers, kept = find_layers(self.model, s.exclude, grouped=False, half=True)
        for p in list(layers):
            if reason := self.not_in_blocks(p, s.to):
                layers.remove(p)
                kept[p.label] = reason
        if not layers:
            raise InvalidArgumentError(
                f"the model has no MatMul, Gemm or Conv whose weights can be {s.to} in blocks of {s.block}"
                + "".join(f"; {n}: {why}" for n, why in list(kept.items())[:5])
            )
        kept |= self.block_opset(layers, s.to)
        weights: dict[str, Blocked | MxWeight] = {}
        reports: list[LayerReport] = []
        for p, blocked, relative in self.round_blocks(layers, s.to):
            weights[p.node.output[0]] = blocked
            sqnr = -20 * np.log10(relative) if relative > 0 else np.inf
            reports.append(LayerReport(p.label, relative, float(sqnr), np.nan, np.nan, 0.0, blocked.bits))
        for p in layers:
            weight_only.replace_layer(self.model, p, weights[p.node.output[0]])
        self.model.drop_unused()
        return self.report(reports, kept, {})

    def not_in_blocks(self, p: Layer, kind: str) -> str:
        """Why a layer's weights can't be of this type in blocks; "" if they can."""
        if kind in MX:
            return microscaling.obstacle(self.model, p)
        if p.kind == "Conv":
            return convolution.obstacle(self.model, p, BITS[kind], self.settings.block)
        return "" if weight_only.simple_gemm(p) else "it has factors"

    def block_opset(self, layers: list[Layer], kind: str) -> dict[str, str]:
        """Converts the model to the operator set that the layers with a DequantizeLinear need. If that can't be done, takes
        these from the layers, and returns the reason of each."""
        reading = [p for p in layers if p.kind == "Conv" or kind in MX]
        if not reading:
            return {}
        try:
            self.model.require_opset(microscaling.OPSET if kind in MX else convolution.TYPES[BITS[kind]][1])
        except UnsupportedError as error:
            if len(reading) == len(layers):
                raise
            layers[:] = [p for p in layers if p.kind != "Conv"]
            return {p.label: str(error) for p in reading}
        nodes = {n.output[0]: n for n in self.model.proto.graph.node if n.output}
        for p in layers:  # the conversion has made nodes anew
            p.node = nodes[p.node.output[0]]
        return {}

    def round_blocks(self, layers: Sequence[Layer], kind: str) -> Iterable[tuple[Layer, Blocked | MxWeight, float]]:
        """The weights in blocks, and the error of each layer's results."""
        s, done = self.settings, 0
        # The second moments of a convolution's windows are its own.
        groups = by_activation(p for p in layers if p.kind != "Conv")
        groups |= {f"{p.activation} of {p.node.output[0]}": [p] for p in layers if p.kind == "Conv"}
        for part in self.parts(groups) if s.weights != "rtn" else [list(groups)]:
            grams: dict[str, Gram] = {}
            wanted: dict[str, list[Collector]] = {}
            for name in part:
                p = groups[name][0]
                grams[name] = convolution.gram_of(self.model, p) if p.kind == "Conv" else Gram()
                wanted.setdefault(p.activation, []).append(grams[name])
            if s.weights != "rtn":
                self.collect("collecting activations", wanted)
            for name in part:
                self.step(f"rounding weights ({s.weights})", done)
                done += len(groups[name])
                yield from self.round_weights(groups[name], grams[name], kind)

    def parts(self, groups: Mapping[str, list[Layer]]) -> list[list[str]]:
        """The activations whose Hessians are collected together."""
        parts: list[list[str]] = [[]]
        used = 0
        for name, group in groups.items():
            dims = self.model.dims(group[0].weight)
            k = int(np.prod(dims)) // dims[group[0].axis]
            size = 4 * k * k
            if parts[-1] and used + size > _GRAMS:
                parts.append([])
                used = 0
            parts[-1].append(name)
            used += size
        return parts

    def round_weights(
        self, group: list[Layer], gram: Gram, kind: str
    ) -> Iterable[tuple[Layer, Blocked | MxWeight, float]]:
        s, h = self.settings, gram.sum
        if s.weights != "rtn":
            weight_only.check_gram(group[0].activation, gram)
        if s.weights == "awq" and h is not None and group[0].kind != "Conv" and kind in BITS:
            w = [weight_only.weight_of(self.model, p) for p in group]
            scales = weight_only.awq_scales(w, h, gram.count, BITS[kind], s.block, s.symmetric or BITS[kind] == 8)
            if scales is not None:
                scale_layers(self.model, group, scales)
                h = h / np.outer(scales, scales)
        second = gram.shrunk() if s.weights == "gptq" else None
        for p in group:
            w_ = weight_only.weight_of(self.model, p)
            q = self._rounded(w_, second, kind)
            relative = _relative(q, w_, h)
            if q.bits < 8 and s.limit is not None and relative > s.limit:
                q = self._rounded(w_, None, "mxfp8" if kind in MX else "int8-weights")
                relative = _relative(q, w_, h)
            yield p, q, relative

    def _rounded(self, w: Array, gram: Array | None, kind: str) -> Blocked | MxWeight:
        """By GPTQ, or without second moments to nearest."""
        if kind in MX:
            return microscaling.rounded(w, MX[kind]) if gram is None else weight_only.gptq_mx(w, gram, MX[kind])
        bits, block = BITS[kind], self.settings.block
        symmetric = self.settings.symmetric or bits == 8
        if gram is None:
            return weight_only.rtn(w, bits, block, symmetric)
        return weight_only.gptq(w, gram, bits, block, symmetric)


def _relative(q: Blocked | MxWeight, w: Array, gram: Array | None) -> float:
    """The error of a layer's results, by second moments of its activations; without them of the weights."""
    error = q.dense().values - w
    if gram is None:
        return float(np.sqrt((error**2).sum() / max(float((w**2).sum()), 1e-30)))
    return float(np.sqrt(weight_only.loss(error, gram) / max(weight_only.loss(w, gram), 1e-30)))
