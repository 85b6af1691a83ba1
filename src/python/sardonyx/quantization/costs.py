"""How long a model takes: measured on the host, estimated for GPUs that need not be present."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..compiling import compile, estimate
from ..device import chips, devices
from ..errors import InvalidArgumentError
from ..model import TensorInfo
from .onnx_model import OnnxModel

Array = np.ndarray[Any, Any]
#: A sample with the sizes for which the model is to be fast.
Sample = Callable[[Sequence[TensorInfo]], Mapping[str, Array]]

_LAUNCH = 1.5e-6  # seconds that a launch in a captured graph takes beside its work
_RUNS, _SECONDS = 9, 2.0  # runs that are measured, at least; and more while they take less than this
_MOST_RUNS = 60
_MARK = "sardonyx_layer_"


class Cost(Protocol):
    """The time of models."""

    what: str  #: for reports

    def layers(self, model: OnnxModel, layers: Sequence[Any]) -> tuple[list[float], float]:
        """Seconds for each of these nodes, with the nodes that were written for it, and for all the rest."""
        ...

    def total(self, models: Sequence[OnnxModel]) -> list[float]:
        """Seconds of a run of each, comparable with one another."""
        ...


def marked(model: OnnxModel, layers: Sequence[Any], known: Iterable[str]) -> bytes:
    """The model's file with these nodes named after their places. So are nodes whose results no node of the float model
    (`known`: its values) computes: the first layer that reads or feeds them owns them."""
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    values = set(known)
    owner = {p.output[0]: k for k, p in enumerate(layers)}
    nodes = {n.output[0]: n for n in proto.graph.node if n.output}
    for node in reversed(proto.graph.node):  # towards the inputs: quantisation of operands
        own = owner.get(node.output[0]) if node.output else None
        if own is None:
            continue
        for name in node.input:
            if name in nodes and name not in values:
                owner.setdefault(name, own)
    for node in proto.graph.node:  # towards the outputs: what follows a layer
        for name in node.input:
            if node.output and name in owner and name not in values and node.output[0] not in owner:
                owner[node.output[0]] = owner[name]
    for k, node in enumerate(proto.graph.node):
        own = owner.get(node.output[0]) if node.output else None
        node.name = f"{_MARK}{own}_{k}" if own is not None else f"n{k}"
    return bytes(proto.SerializeToString())


def _shares(steps: Iterable[tuple[Iterable[str], float]], count: int) -> tuple[list[float], float]:
    """Divides the seconds of steps, with their nodes' names, among layers."""
    parts, rest = [0.0] * count, 0.0
    for names, seconds in steps:
        owners = {int(n[len(_MARK) :].split("_")[0]) for n in names if n.startswith(_MARK)}
        for k in owners:
            parts[k] += seconds / len(owners)
        rest += 0 if owners else seconds
    return parts, rest


class HostCost:
    """CPU time of one thread, the shortest of several runs, which other programs disturb little."""

    what = "measured on the host, one thread"

    def __init__(self, sample: Sample, known: Iterable[str], options: Mapping[str, Any]):
        self._sample, self._known = sample, list(known)
        self._options = {**options, "threads": 1}

    def _compile(self, model: OnnxModel | bytes, folder: str = "") -> tuple[Any, dict[str, Array]]:
        source = model if isinstance(model, bytes) else model.with_outputs(())
        where = folder if isinstance(model, bytes) else model.folder
        compiled = compile(source, folder=where or None, **self._options)
        return compiled, dict(self._sample(compiled.inputs))

    def layers(self, model: OnnxModel, layers: Sequence[Any]) -> tuple[list[float], float]:
        compiled, sample = self._compile(marked(model, layers, self._known), model.folder)
        compiled(sample)
        least: list[tuple[list[str], float]] = []
        for run in range(_RUNS):
            steps = compiled.profile(sample)[1]
            if not run or len(steps) != len(least):
                least = [([n.split(" ")[0] for n in s.nodes.split(", ")], s.seconds) for s in steps]
            else:
                least = [(names, min(best, s.seconds)) for (names, best), s in zip(least, steps)]
        return _shares(least, len(layers))

    def total(self, models: Sequence[OnnxModel]) -> list[float]:
        pairs = [self._compile(m) for m in models]
        for m, sample in pairs:
            m(sample)
        best = [math.inf] * len(pairs)
        started, runs = time.monotonic(), 0
        while runs < _RUNS or (runs < _MOST_RUNS and time.monotonic() - started < _SECONDS * len(pairs)):
            for k, (m, sample) in enumerate(pairs):
                before = time.thread_time()
                m(sample)
                best[k] = min(best[k], time.thread_time() - before)
            runs += 1
        return best


class TargetCost:
    """Estimates of a chip: the roofline of each launch, on Hopper also the times of tilings, and a time between launches."""

    def __init__(self, target: str, sample: Sample, known: Iterable[str], options: Mapping[str, Any]):
        self.what = f"estimated for {target}"
        self._target, self._sample, self._known = target, sample, list(known)
        self._options = {k: v for k, v in options.items() if k not in ("device", "threads")}

    def _estimate(self, model: OnnxModel, source: bytes) -> list[Any]:
        folder = model.folder or None
        # An input's symbols take their sizes from the sample.
        infos = compile(source, folder=folder, **{**self._options, "device": "host"}).inputs
        sizes: dict[str, int] = {}
        for info in infos:
            shape = self._sample(infos)[info.name].shape
            for dim, size in zip(info.shape or (), shape):
                if (isinstance(dim, str) and dim.isidentifier()) or (isinstance(dim, str) and dim not in sizes):
                    sizes[dim] = size
        return estimate(source, self._target, folder=folder, sizes=sizes, **self._options)

    def layers(self, model: OnnxModel, layers: Sequence[Any]) -> tuple[list[float], float]:
        launches = self._estimate(model, marked(model, layers, self._known))
        steps = (([n.split(" ")[0] for n in e.nodes], e.seconds + _LAUNCH) for e in launches)
        return _shares(steps, len(layers))

    def total(self, models: Sequence[OnnxModel]) -> list[float]:
        return [sum(e.seconds + _LAUNCH for e in self._estimate(m, m.with_outputs(()))) for m in models]


def cost_of(target: str | None, sample: Sample, known: Iterable[str], options: Mapping[str, Any]) -> Cost:
    """The cost on a target ("host", "gfx942"); None: that of the device that runs the model."""
    target = target_of(target, options)
    return HostCost(sample, known, options) if target == "host" else TargetCost(target, sample, known, options)


def target_of(target: str | None, options: Mapping[str, Any]) -> str:
    """The name of the target, or of the device's. Raises InvalidArgumentError."""
    names = [c["chip"] for c in chips()]
    if target is not None:
        if target != "host" and target not in names:
            raise InvalidArgumentError(f"the target '{target}' is not host or one of {', '.join(names)}")
        return target
    device = str(options.get("device") or "host")
    if device == "host":
        return "host"
    for d in devices():
        if d.name == device or d.name.startswith(device + ":"):
            return d.target
    if device.partition(":")[2] in names:  # sim:gfx942
        return device.partition(":")[2]
    raise InvalidArgumentError(f"the device '{device}' is not known; name the target")


def float8_of(target: str) -> str:
    """The form of float8 that a chip multiplies: "ocp" or "fnuz"; "" if none."""
    form = next((str(c["float8"]).lower() for c in chips() if c["chip"] == target), "-")
    return "" if form == "-" else form
