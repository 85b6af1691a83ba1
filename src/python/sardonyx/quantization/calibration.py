"""Runs the float model and collects the statistics of activations that quantisation needs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..compiling import compile
from ..errors import FileError
from ..model import TensorInfo
from .onnx_model import OnnxModel
from .ranges import Histogram, Range

Array = np.ndarray[Any, Any]


class Collector(Protocol):
    """Takes a value of each sample."""

    def add(self, values: Array) -> None: ...


@dataclass
class Channels:
    """Smallest and largest value and mean of each channel of an activation. Values that are not finite count as 0."""

    axis: int
    low: Array | None = None
    high: Array | None = None
    total: Array = field(default_factory=lambda: np.zeros(0))
    count: int = 0

    def add(self, values: Array) -> None:
        x = np.moveaxis(values, self.axis, -1)
        x = x.reshape(-1, x.shape[-1])
        if not len(x):
            return
        if not np.isfinite(x).all():
            x = np.where(np.isfinite(x), x, 0)
        low, high = x.min(0).astype(np.float32), x.max(0).astype(np.float32)
        total = x.sum(0, dtype=np.float64)
        self.count += len(x)
        if self.low is None or self.high is None:
            self.low, self.high, self.total = low, high, total
        else:
            self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
            self.total = self.total + total

    @property
    def largest(self) -> Array | None:
        """Magnitudes."""
        return None if self.low is None or self.high is None else np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def mean(self) -> Array:
        return self.total / max(self.count, 1)


class Rows:
    """A random part of the rows of an activation, whose last dim are its channels: each row is kept with equal probability
    (Vitter, "Random sampling with a reservoir", 1985)."""

    def __init__(self, capacity: int, seed: int = 0):
        self._capacity, self._seen = capacity, 0
        self._random = np.random.default_rng(seed)
        self._rows: Array | None = None

    def add(self, values: Array) -> None:
        x = finite_rows(values)
        if self._rows is None:
            self._rows = np.zeros((0, x.shape[1]), np.float32)
        free = min(self._capacity - len(self._rows), len(x))
        if free > 0:
            self._rows = np.concatenate([self._rows, x[:free]])
            self._seen += free
            x = x[free:]
        if len(x):
            places = (self._random.random(len(x)) * (self._seen + 1 + np.arange(len(x)))).astype(np.int64)
            self._seen += len(x)
            for row in np.flatnonzero(places < self._capacity):
                self._rows[places[row]] = x[row]

    @property
    def rows(self) -> Array:
        return np.zeros((0, 0), np.float32) if self._rows is None else self._rows


class CheckedChannels:
    """Channels of an activation in three parts of the data, with some rows of each part, by which scales made from the other
    parts are checked. Samples take turns; the rows of the first one are divided, in case there is no other."""

    PARTS = 3

    def __init__(self, capacity: int) -> None:
        self._channels = [Channels(-1) for _ in range(self.PARTS)]
        self._rows = [Rows(capacity // self.PARTS) for _ in range(self.PARTS)]
        self._samples = 0

    def add(self, values: Array) -> None:
        x = values.reshape(-1, values.shape[-1])
        for k in range(self.PARTS):
            if not self._samples or self._samples % self.PARTS == k:
                part = x if self._samples else x[k :: self.PARTS]
                self._channels[k].add(part)
                self._rows[k].add(part)
        self._samples += 1

    def rows(self, part: int) -> Array:
        return self._rows[part].rows

    def limits(self, without: int = -1) -> tuple[Array, Array] | None:
        """The smallest and largest value of each channel in all parts, or in all but one. None: there is no row."""
        others = [c for k, c in enumerate(self._channels) if k != without]
        low = [c.low for c in others if c.low is not None]
        high = [c.high for c in others if c.high is not None]
        return (np.min(low, axis=0), np.max(high, axis=0)) if low else None


def finite_rows(values: Array) -> Array:
    """The rows along the last dim that have no NaN and no infinity, as float32."""
    x = values.reshape(-1, values.shape[-1]).astype(np.float32, copy=False)
    finite = np.isfinite(x).all(-1)
    return x if finite.all() else x[finite]


class Gram:
    """The sum of x x^T over all rows x of an activation, and their number: the Hessian of a layer's squared error."""

    def __init__(self) -> None:
        self.sum: Array | None = None
        self.count = 0
        self._fourth = 0.0  # the sum of |x|^4

    def add(self, values: Array) -> None:
        self.add_rows(finite_rows(values))

    def add_rows(self, x: Array) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # see weight_only.check_gram()
            gram = x.T @ x
        self.sum = gram if self.sum is None else self.sum + gram
        self.count += len(x)
        self._fourth += float(np.square(np.einsum("nk,nk->n", x, x, dtype=np.float64)).sum())

    def shrunk(self) -> Array:
        """The sum, moved towards a multiple of the identity by as much as its error is expected to be (Ledoit and Wolf, "A
        well-conditioned estimator for large-dimensional covariance matrices", 2004): few rows say little about how the
        channels go together, and GPTQ would fit the weights to these."""
        assert self.sum is not None
        n, s = self.count, self.sum.astype(np.float64) / self.count
        mean = float(np.trace(s)) / len(s)
        square = float(np.square(s).sum())
        distance = square - mean * mean * len(s)  # squared, of s from the multiple of the identity
        error = (self._fourth / n - square) / n  # expected, of s from what more data would give
        part = min(1.0, max(0.0, error / distance)) if distance > 0 else 1.0
        return np.asarray(((1 - part) * s + part * mean * np.eye(len(s))) * n)


def collect(
    model: OnnxModel,
    feed: Callable[[Sequence[TensorInfo]], Iterable[Mapping[str, Array]]],
    wanted: Mapping[str, list[Collector]],
    options: Mapping[str, Any],
    progress: Callable[[int], object] | None = None,
) -> int:
    """Runs the model, compiled with `options`, on each sample of feed(inputs) and gives the values of that name to their
    collectors. Returns the number of samples. Memory does not grow with it."""
    inputs = {i.name for i in model.proto.graph.input}
    compiled = compile(model.with_outputs(n for n in wanted if n not in inputs), folder=model.folder or None, **options)
    count = 0
    for sample in feed(compiled.inputs):
        values = {**compiled(sample), **sample}
        for name, collectors in wanted.items():
            for c in collectors:
                c.add(values[name])
        count += 1
        if progress:
            progress(count)
    return count


def float_values(model: OnnxModel, options: Mapping[str, Any]) -> list[str]:
    """The float32 inputs and values of a model, in its order."""
    everything = compile(model.with_outputs(()), folder=model.folder or None, **{**options, "all_outputs": True})
    names = [i.name for i in everything.inputs if i.dtype == np.float32]
    return names + [o.name for o in everything.outputs if o.dtype == np.float32]


def histograms(
    model: OnnxModel,
    feed: Callable[[Sequence[TensorInfo]], Iterable[Mapping[str, Array]]],
    names: Iterable[str],
    options: Mapping[str, Any],
    progress: Callable[[int], object] | None = None,
) -> tuple[dict[str, Histogram], int]:
    found = {name: Histogram() for name in names}
    count = collect(model, feed, {name: [h] for name, h in found.items()}, options, progress)
    return found, count


def write_table(path: str | os.PathLike[str], ranges: Mapping[str, Range]) -> None:
    """Writes calibration.json as ONNX Runtime's tools do: {"name": [lowest, highest]}."""
    content = {name: [r.low, r.high] for name, r in ranges.items()}
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        raise FileError(f"'{os.fspath(path)}' could not be written: {error.strerror}") from None
