"""Ranges of tensors from histograms, whose size depends on the range of the values but not on their number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

METHODS = ("minmax", "percentile", "entropy", "mse")

_BINS = 4096  # over [-limit, limit); limits are powers of two, so that doubling one merges pairs of bins exactly
_CHUNK = 1 << 20
_NEAR_OVERFLOW = 2.0**120  # of float32


@dataclass(frozen=True)
class Range:
    """The values of a tensor that its quantised form can hold."""

    low: float
    high: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


class Histogram:
    """How often values occur. Values that are not finite are counted and left out."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.count = self.nonfinite = 0
        self.limit = 0.0
        self.bins: Array = np.zeros(_BINS, np.int64)

    def add(self, values: Array) -> None:
        flat = values.reshape(-1)
        for k in range(0, flat.size, _CHUNK):
            self._chunk(flat[k : k + _CHUNK].astype(np.float32))

    def _chunk(self, x: Array) -> None:
        finite = np.isfinite(x)
        if not finite.all():
            self.nonfinite += int(x.size - np.count_nonzero(finite))
            x = x[finite]
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += x.size
        self._cover(max(-low, high))
        if self.limit:
            if self.limit >= _NEAR_OVERFLOW:  # numpy computes with the values' type
                x = x.astype(np.float64)
            self.bins += np.histogram(x, bins=_BINS, range=(-self.limit, self.limit))[0]

    def _cover(self, largest: float) -> None:
        if largest <= 0:
            return
        wanted = 2.0 ** math.ceil(math.log2(largest) + 1e-9)
        if not self.limit:
            self.limit = wanted
            return
        while self.limit < wanted:
            half = self.bins.reshape(-1, 2).sum(1)
            self.bins = np.zeros(_BINS, np.int64)
            self.bins[_BINS // 4 : _BINS // 4 * 3] = half
            self.limit *= 2

    @property
    def minmax(self) -> Range:
        """The smallest and the largest value; 0 and 0 without any."""
        return Range(self.low, self.high) if self.count else Range(0.0, 0.0)

    def range(self, method: str, *, symmetric: bool, levels: int = 255, percentile: float = 99.99) -> Range:
        """The range that a method chooses; the minimum and maximum bound it.

        "minmax"; "percentile": all but the outermost values; "entropy": the least Kullback-Leibler divergence of the values
        from the quantised ones (as TensorRT; Migacz, "8-bit inference with TensorRT", 2017); "mse": the least mean squared
        error of rounding and clipping, over 100 shrunken ranges.
        """
        if method not in METHODS:
            raise InvalidArgumentError(f"the calibration method {method!r} is not one of {', '.join(METHODS)}")
        whole = self.minmax
        if not self.count or whole.largest == 0 or method == "minmax":
            return whole
        if method == "percentile":
            return self._percentile(percentile)
        if method == "entropy":
            one_sided = not symmetric and (whole.low >= 0 or whole.high <= 0)
            threshold = self._entropy(levels if one_sided else max(2, (levels + 1) // 2))
            return Range(max(whole.low, -threshold), min(whole.high, threshold))
        return self._least_error(symmetric, levels)

    def centers(self) -> Array:
        """Of the bins."""
        width = 2 * self.limit / _BINS
        return -self.limit + width * (np.arange(_BINS) + 0.5)

    def _percentile(self, percentile: float) -> Range:
        if not 50 < percentile <= 100:
            raise InvalidArgumentError(f"a percentile of {percentile:g} is not between 50 and 100")
        part = (1 - percentile / 100) / 2
        total = np.cumsum(self.bins) / self.count
        width = 2 * self.limit / _BINS
        low = -self.limit + width * int(np.searchsorted(total, part, side="right"))
        high = -self.limit + width * (int(np.searchsorted(total, 1 - part)) + 1)
        return Range(max(self.low, min(low, 0.0)), min(self.high, max(high, 0.0)))

    def _least_error(self, symmetric: bool, levels: int) -> Range:
        x, n = self.centers(), self.bins.astype(np.float64)
        used = n > 0
        x, n = x[used], n[used]
        best, chosen = math.inf, self.minmax
        for k in range(100, 0, -1):
            low, high = self.low * k / 100, self.high * k / 100
            if symmetric:
                high = max(-low, high)
                low = -high
            step = (max(high, 0.0) - min(low, 0.0)) / (levels - 1)
            if step <= 0:
                continue
            lowest = np.rint(min(low, 0.0) / step)
            error = float(n @ (x - np.clip(np.rint(x / step), lowest, lowest + levels - 1) * step) ** 2)
            if error < best:
                best, chosen = error, Range(max(low, self.low), min(high, self.high))
        return chosen

    def _entropy(self, levels: int) -> float:
        """The threshold of |x|."""
        folded = self.bins[_BINS // 2 :] + self.bins[: _BINS // 2][::-1]
        n = folded.astype(np.float64)
        n[0] = n[1]  # zeros (after a Relu) say nothing about the range
        width = self.limit / len(n)
        last = int(np.flatnonzero(folded)[-1]) + 1
        best, chosen = math.inf, last
        for stop in range(min(levels, last), last + 1, max(1, last // 256)):
            p = n[:stop].copy()
            p[-1] += n[stop:].sum()
            # Each level spreads its count over the bins of it that are not empty.
            edges = np.minimum((np.arange(stop) * levels) // stop, levels - 1)
            sums = np.bincount(edges, n[:stop], levels)
            filled = np.bincount(edges, (n[:stop] > 0).astype(np.float64), levels)
            q = np.where(n[:stop] > 0, (sums / np.maximum(filled, 1))[edges], 0)
            q *= p.sum() / max(q.sum(), 1)
            mask = p > 0
            if (q[mask] == 0).any():
                q = np.maximum(q, 1e-9)
            divergence = float((p[mask] * np.log(p[mask] / q[mask])).sum() / p.sum())
            if divergence < best:
                best, chosen = divergence, stop
        return chosen * width
