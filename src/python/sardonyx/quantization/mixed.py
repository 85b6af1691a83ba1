"""quantize(to="mixed"): the fastest choice of a type for each node whose error stays within a budget.

A third of the samples choose ranges and measure how much each node in each type adds to the error of the outputs. With the time
that it saves, this orders the steps from the float model to the fastest one. The others tell how many steps the budget
allows: not the error itself must meet it but a bound for other samples. Of the choices that do, the fastest is taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compiling import compile
from ..errors import InvalidArgumentError, UnsupportedError
from ..llm.weights import Blocked
from ..model import TensorInfo
from . import weight_only
from .bias_correction import correct_bias
from .budget import Found, Relative, Terms, terms_of
from .calibration import Channels
from .costs import Cost, cost_of, float8_of, target_of
from .job import Job, by_activation
from .layers import Layer, find_layers
from .microscaling import MxWeight
from .onnx_model import OnnxModel
from .qdq import FORMATS, FP8, INT8, QdqWriter
from .ranges import Range
from .settings import BITS, KINDS, Feed, LayerReport, MixedReport, QuantizeReport, Tradeoff
from .switches import Switches

Array = np.ndarray[Any, Any]
Choice = tuple["str | None", ...]

_BUDGETS = {"relative": 0.02, "decisions": 0.02, "perplexity": 0.01}
_LEAST = 9  # samples
_SENSITIVITY_RUNS = 400  # about so many, of single nodes in single types
_SENSITIVITY_SAMPLES = 8
_FURTHER = 8  # steps that are tried one by one after the first that does not fit
_CURVE = (0.25, 0.5, 0.75, 1.0)  # parts of the steps that are points of the curve
_WORTH = 0.01  # a mixed model must be faster than one of a single type by this share, which measurements can tell
_REFERENCES = 256 << 20  # bytes of the float model's outputs that are kept


@dataclass(frozen=True)
class Text:
    """Of a language model."""

    logits: str
    ids: str
    decoding: Callable[[Sequence[TensorInfo]], Mapping[str, Array]]  #: a step of decoding, for which it is to be fast


@dataclass
class _Step:
    """Layer k gets a type: what it saves and adds, compared with its type before."""

    layer: int
    kind: str
    seconds: float
    error: float


class Mixed:
    def __init__(self, job: Job, text: Text | None):
        assert job.feed is not None
        self.job, self.settings, self._text = job, job.settings, text
        self._feed: Feed = job.feed
        self._cost_sample = text.decoding if text else self._first
        metric = self.settings.metric or ("perplexity" if text else "relative")
        self.terms: Terms = terms_of(metric, (text.logits, text.ids) if text else None)
        budget = self.settings.budget if self.settings.budget is not None else _BUDGETS.get(self.terms.name)
        if budget is None:
            raise InvalidArgumentError(f"the metric '{self.terms.name}' needs a budget")
        if not budget > 0:
            raise InvalidArgumentError(f"the budget is {budget:g}; it must be above 0")
        if not 0.5 < self.settings.confidence < 1:
            raise InvalidArgumentError(f"the confidence is {self.settings.confidence:g}; it lies between 0.5 and 1")
        if self.settings.weights == "awq":
            raise InvalidArgumentError(
                "'mixed' rounds weights with gptq or rtn: awq would scale nodes that stay in float"
            )
        self.budget = budget
        self.left_out: dict[str, str] = {}
        self._references: dict[int, dict[str, Array]] = {}
        self._kept_bytes = 0

    def _first(self, inputs: Sequence[TensorInfo]) -> Mapping[str, Array]:
        return next(iter(self._feed(inputs)))

    def _part(self, checking: bool) -> Feed:
        """The samples that check the error: two of three. Or the others."""
        return lambda inputs: (s for k, s in enumerate(self._feed(inputs)) if (k % 3 != 0) == checking)

    # ---- what can be chosen

    def _types(self) -> list[str]:
        s = self.settings
        target = target_of(s.target, self.job.options)
        # int2 and int3 save memory more than time.
        wanted = s.types or tuple(k for k in KINDS if k not in ("int2", "int3") and (k != "fp8" or target != "host"))
        for kind in wanted:
            if kind not in KINDS:
                raise InvalidArgumentError(f"'mixed' chooses among {', '.join(KINDS)}, not {kind!r}")
        types = list(dict.fromkeys(wanted))
        # CDNA 3 multiplies no other.
        self.forms = {"int8": INT8, "fp8": FORMATS["fp8-fnuz"] if float8_of(target) == "fnuz" else FP8}
        if "fp8" in types and target != "host" and not float8_of(target):
            types.remove("fp8")
            self.left_out["fp8"] = f"{target} does not multiply it"
        if "fp8" in types:
            try:
                self.job.model.require_opset(FP8.opset)
            except UnsupportedError as error:
                types.remove("fp8")
                self.left_out["fp8"] = str(error)
        if "int8" in types:
            self.job.model.require_opset(INT8.opset)
        for kind in BITS:
            if kind in types:
                weight_only.check_block(BITS[kind], s.block)
        return types

    def _eligible(self, layers: Sequence[Layer], types: Sequence[str]) -> list[list[str]]:
        model = self.job.model

        def allows(p: Layer, kind: str) -> bool:
            if kind in ("int8", "fp8"):
                return model.is_float_weight(p.weight)
            return p.kind != "Conv" and not self.job.not_in_blocks(p, kind)

        return [[k for k in types if allows(p, k)] for p in layers]

    def run(self) -> QuantizeReport:
        job = self.job
        types = self._types()
        self.layers, self.kept = find_layers(job.model, self.settings.exclude, grouped=False, half=True)
        allowed = self._eligible(self.layers, types)
        self.kept |= {p.label: "none of the types is possible" for p, a in zip(self.layers, allowed) if not a}
        self.layers = [p for p, a in zip(self.layers, allowed) if a]
        self.allowed = [a for a in allowed if a]
        if not self.layers:
            raise InvalidArgumentError(
                f"the model has no MatMul, Gemm or Conv that can be {' or '.join(types) or 'any of these types'}"
                + "".join(f"; {n}: {why}" for n, why in list(self.kept.items())[:5])
            )
        self.known = {n for node in job.model.proto.graph.node for n in node.output}
        self.known |= {i.name for i in job.model.proto.graph.input}
        self.original = OnnxModel(job.model.proto)
        self.original.folder = job.model.folder
        self._calibrate(types)
        cost = cost_of(self.settings.target, self._cost_sample, self.known, job.options)
        self._time(cost, types)
        job.step("compiling the switchable model", 0)
        self.switches = Switches(job.model, self.layers, self.allowed, self.writer, job.options)
        self._sensitivities()
        return self._choose(cost, types)

    # ---- statistics

    def _calibrate(self, types: Sequence[str]) -> None:
        job, s = self.job, self.settings
        count = sum(1 for _ in self._feed(self._inputs()))
        if count < _LEAST:
            raise InvalidArgumentError(
                f"'mixed' needs at least {_LEAST} samples, two thirds of them to check the error; these are {count}"
            )
        job.feed = self._part(checking=False)
        eight = [p for p, a in zip(self.layers, self.allowed) if "int8" in a or "fp8" in a]
        self.ranges: dict[str, dict[str, Range]] = {"int8": {}, "fp8": {}}
        if eight:
            if s.smooth:
                job.smooth(eight, self.forms["int8" if "int8" in types else "fp8"], free=True)
            channels = {name: Channels(g[0].activation_axis) for name, g in by_activation(eight).items()}
            found, _ = job.ranges_of(channels)
            for name, h in found.items():
                self.ranges["int8"][name] = h.range(s.method, symmetric=s.symmetric, percentile=s.percentile)
                self.ranges["fp8"][name] = h.range("minmax", symmetric=True)
            self.means = {name: c.mean for name, c in channels.items()}
        self.blocks: dict[tuple[str, str, str], Blocked | MxWeight] = {}
        for kind in BITS:
            chosen = [p for p, a in zip(self.layers, self.allowed) if kind in a]
            for p, blocked, _ in job.round_blocks(chosen, kind) if chosen else ():
                self.blocks[p.activation, p.weight, kind] = blocked

    def _inputs(self) -> list[TensorInfo]:
        m = self.job.model
        return compile(m.with_outputs(()), folder=m.folder or None, **self.job.options).inputs

    def writer(self, model: OnnxModel) -> Callable[[Layer, str], None]:
        s = self.settings
        forms = {
            kind: QdqWriter(model, f, self.ranges[kind], symmetric=s.symmetric, per_channel=s.per_channel)
            for kind, f in self.forms.items()
        }

        def write(p: Layer, kind: str) -> None:
            if kind not in forms:
                weight_only.replace_layer(model, p, self.blocks[p.activation, p.weight, kind])
                return
            if s.correct_bias:
                correct_bias(model, p, self.means[p.activation], self.forms[kind], s.per_channel)
            forms[kind].quantise(p)

        return write

    def written(self, choice: Sequence[str | None]) -> OnnxModel:
        """A model with this choice; without any, the original."""
        if not any(choice):
            return self.original
        model = OnnxModel(self.job.model.proto)
        model.folder = self.job.model.folder
        nodes = {n.output[0]: n for n in model.proto.graph.node if n.output}
        write = self.writer(model)
        for p, kind in zip(self.layers, choice):
            if kind is not None:
                write(Layer(nodes[p.node.output[0]], p.kind, p.activation, p.weight, p.axis, p.label), kind)
        model.drop_unused()
        return model

    def single(self, kind: str) -> Choice:
        """Every layer that can have it in one type."""
        return tuple(kind if kind in a else None for a in self.allowed)

    # ---- time and error of single layers

    def _time(self, cost: Cost, types: Sequence[str]) -> None:
        self.job.step("timing float", 0)
        none = tuple(None for _ in self.layers)
        self.seconds: list[dict[str | None, float]] = []
        plain, _ = cost.layers(self._named(none), self._nodes(none))
        self.seconds = [{None: x} for x in plain]
        for kind in types:
            choice = self.single(kind)
            if not any(choice):
                continue
            self.job.step(f"timing {kind}", 0)
            found, _ = cost.layers(self._named(choice), self._nodes(choice))
            for k, x in enumerate(found):
                if choice[k]:
                    self.seconds[k][kind] = x

    def _named(self, choice: Choice) -> OnnxModel:
        self._last = self.written(choice)
        return self._last

    def _nodes(self, choice: Choice) -> list[Any]:
        """The layers' nodes in the model that was written last."""
        by_output = {n.output[0]: n for n in self._last.proto.graph.node if n.output}
        return [by_output[p.node.output[0]] for p in self.layers]

    def _relative(self) -> Terms:
        return Relative(only=[self._text.logits] if self._text else None)

    def _sensitivities(self) -> None:
        pairs = [(k, kind) for k, a in enumerate(self.allowed) for kind in a]
        count = max(1, min(_SENSITIVITY_SAMPLES, _SENSITIVITY_RUNS // len(pairs)))
        terms = self._relative()
        sums: dict[tuple[int, str], list[tuple[Array, Array]]] = {pair: [] for pair in pairs}
        none: list[str | None] = [None] * len(self.layers)
        for number, sample in enumerate(self._part(checking=False)(self.switches.inputs)):
            if number >= count:
                break
            reference = self.switches.run(sample, none)
            for at, (k, kind) in enumerate(pairs):
                self.job.step("measuring sensitivity, run", number * len(pairs) + at + 1)
                outputs = self.switches.run(sample, [*none[:k], kind, *none[k + 1 :]])
                sums[k, kind].append(terms.of(outputs, reference, sample))
        self.alone: list[dict[str, float]] = [{} for _ in self.layers]
        for (k, kind), found in sums.items():
            self.alone[k][kind] = Found(terms, found).error

    # ---- the search

    def steps(self) -> list[_Step]:
        """From float to the fastest model, by the time saved for the error added (its square: errors of rounding add up like
        those of independent noise). Of each layer, only types on the convex hull."""
        out: list[_Step] = []
        for k, seconds in enumerate(self.seconds):
            at: tuple[float, float] = (seconds[None], 0.0)
            left = [(t, max(self.alone[k][kind] ** 2, 1e-16), kind) for kind, t in seconds.items() if kind is not None]
            while True:
                better = [x for x in left if x[0] < at[0] and (x[1] > at[1] or at[1] == 0)]
                if not better:
                    break
                best = max(better, key=lambda x: (at[0] - x[0]) / (x[1] - at[1]))
                out.append(_Step(k, best[2], at[0] - best[0], best[1] - at[1]))
                at = best[:2]
        return sorted(out, key=lambda s: s.seconds / s.error, reverse=True)

    def found(
        self,
        choice: Sequence[str | None],
        run: Callable[..., dict[str, Array]] | None = None,
        *,
        hopeless: bool = False,
    ) -> Found:
        """The error on the samples that check. run: of a model with the choice; None: the switchable one. hopeless: stops where
        the error of the first samples is far above the budget."""
        none = [None] * len(self.layers)
        samples = []
        for number, sample in enumerate(self._part(checking=True)(self.switches.inputs)):
            reference = self._references.get(number)
            if reference is None:
                reference = self.switches.run(sample, none)
                size = sum(x.nbytes for x in reference.values())
                if self._kept_bytes + size <= _REFERENCES:
                    self._references[number] = reference
                    self._kept_bytes += size
            outputs = self.switches.run(sample, choice) if run is None else run(sample)
            samples.append(self.terms.of(outputs, reference, sample))
            self.job.step("checking, sample", number + 1)
            if hopeless and len(samples) in (8, 16) and Found(self.terms, samples).error > 2 * self.budget:
                return Found(self.terms, samples)
        self.checked = len(samples)
        return Found(self.terms, samples)

    def meets(self, found: Found) -> bool:
        return found.bound(self.settings.confidence) <= self.budget

    def _search(self, steps: Sequence[_Step]) -> Choice:
        """As many steps as the budget allows."""

        def after(count: int) -> list[str | None]:
            choice: list[str | None] = [None] * len(self.layers)
            for s in steps[:count]:
                choice[s.layer] = s.kind
            return choice

        low, high = 0, len(steps)
        if self.meets(self.found(after(high), hopeless=True)):
            return tuple(after(high))
        while high - low > 1:
            middle = (low + high) // 2
            if self.meets(self.found(after(middle), hopeless=True)):
                low = middle
            else:
                high = middle
        best = after(low)
        for s in steps[low + 1 : low + 1 + _FURTHER]:
            tried = [*best[: s.layer], s.kind, *best[s.layer + 1 :]]
            if self.meets(self.found(tried, hopeless=True)):
                best = tried
        return tuple(best)

    def _choose(self, cost: Cost, types: Sequence[str]) -> QuantizeReport:
        steps = self.steps()
        best = self._search(steps)
        none: Choice = tuple(None for _ in self.layers)
        points: dict[Choice, str] = {none: "float"}
        for kind in types:
            points.setdefault(self.single(kind), kind)
        points.setdefault(best, "mixed")
        choice = list(none)
        for count, s in enumerate(steps, 1):
            choice[s.layer] = s.kind
            if count in {math.ceil(part * len(steps)) for part in _CURVE}:
                points.setdefault(tuple(choice), "mixed")
        found = {c: self.found(c) for c in points}
        self.job.step("timing the candidates", 0)
        seconds = dict(zip(points, cost.total([self.written(c) for c in points])))
        chosen = self._verified(points, found, seconds)
        curve = []
        for c in sorted(points, key=lambda c: seconds[c]):
            counts = {kind: c.count(kind) for kind in types if kind in c}
            bound = found[c].bound(self.settings.confidence) if any(c) else 0.0
            curve.append(
                Tradeoff(points[c], counts, seconds[c], found[c].error, bound, bound <= self.budget, c == chosen)
            )
        mixed = MixedReport(
            self.budget, self.terms.name, self.settings.confidence, cost.what, self.checked, tuple(curve), self.left_out
        )
        return self._report(chosen, mixed)

    def _verified(
        self, points: Mapping[Choice, str], found: dict[Choice, Found], seconds: Mapping[Choice, float]
    ) -> Choice:
        """The fastest whose model, as it is written, meets the budget. A mixed one must be worth it."""
        left = [c for c in points if not any(c) or self.meets(found[c])]
        single = [c for c in left if points[c] != "mixed"]
        order = sorted(left, key=lambda c: seconds[c] * (1 + _WORTH if points[c] == "mixed" and single else 1))
        for c in order:
            if not any(c):
                return c
            model = self.written(c)
            found[c] = self.found(c, self._runner(model))
            if self.meets(found[c]):
                return c
        raise AssertionError("the float model meets every budget")

    def _runner(self, model: OnnxModel) -> Callable[..., dict[str, Array]]:
        return compile(model.with_outputs(()), folder=model.folder or None, **self.job.options)

    # ---- the result

    def _report(self, chosen: Choice, mixed: MixedReport) -> QuantizeReport:
        job = self.job
        reports = []
        for k, (p, kind) in enumerate(zip(self.layers, chosen)):
            if kind is None:
                self.kept[p.label] = self._why(k)
                continue
            e = self.alone[k][kind]
            r = self.ranges.get(kind, {}).get(p.activation, Range(np.nan, np.nan))
            sqnr = -20 * math.log10(e) if e > 0 else math.inf
            smooth = job.smoothing.get(p.label, 0.0)
            reports.append(LayerReport(p.label, e, sqnr, r.low, r.high, smooth, BITS.get(kind, 8), kind))
        model = self.written(chosen)
        job.model.proto, job.model.folder = model.proto, model.folder
        job.model.index()
        used = {p.activation: kind for p, kind in zip(self.layers, chosen) if kind in ("int8", "fp8")}
        report = job.report(reports, self.kept, {n: self.ranges[kind][n] for n, kind in used.items() if kind})
        return dataclasses.replace(report, mixed=mixed)

    def _why(self, k: int) -> str:
        seconds = self.seconds[k]
        faster = {kind: seconds[None] - t for kind, t in seconds.items() if kind is not None and t < seconds[None]}
        if not faster:
            return (
                "no type is faster: "
                + ", ".join(f"{kind} {t * 1e6:.3g} us" for kind, t in seconds.items() if kind)
                + f", float {seconds[None] * 1e6:.3g} us"
            )
        kind = max(faster, key=lambda x: faster[x])
        return (
            f"{kind} would save {faster[kind] * 1e6:.3g} us, but other nodes save more for the error that it adds "
            f"({self.alone[k][kind]:.2g} alone)"
        )
