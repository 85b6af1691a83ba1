"""Error measures of two tensors, accumulated over many samples without keeping them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

HALF_MOST = 65504.0  #: the largest float16
_CHUNK = 1 << 20  # elements that are widened to float64 at a time


@dataclass(frozen=True)
class ValueAgreement:
    """Agreement of one value (an output, or an intermediate value) of a model with the reference's, over all samples.

    Errors are over elements that are finite in both; where there are none, or where a ratio's denominator is 0, the number
    is nan. Elements that are NaN in both, or the same infinity, count as equal.
    """

    name: str
    node: str  #: the node that computes it, "name (operator)"; "" if it is not known
    elements: int
    max_error: float  #: largest |difference|
    mean_error: float  #: mean of |difference|
    relative: float  #: root mean square of the difference, divided by that of the reference
    cosine: float  #: of the angle between both, as vectors of all elements
    sqnr: float  #: signal to quantisation noise ratio in dB: -20 log10(relative); infinite if all are equal
    equal: float  #: fraction of elements that are equal
    reference_largest: float  #: largest finite |element| of the reference
    nonfinite: int  #: NaN and infinite elements
    reference_nonfinite: int
    saturated: int  #: finite elements at or beyond the range of float16, |x| >= 65504
    reference_saturated: int
    samples: int
    other_shapes: int  #: samples in which the shapes differ; their elements are not compared
    decisions: int  #: of top1
    top1: float | None  #: fraction of argmax decisions along the last dim that agree; None: not a classifier's output


class Measure:
    """Adds up the difference of two float or integer tensors."""

    def __init__(self, *, decides: bool = False):
        self._decides = decides
        self.elements = self.equal = self.samples = self.other_shapes = self.decisions = self.agreed = 0
        self._compared = 0
        self._most = self._largest = 0.0
        self._absolute = self._squares = self._reference = self._own = self._dot = 0.0
        self._nonfinite, self._saturated = [0, 0], [0, 0]

    def add(self, value: Array, reference: Array) -> None:
        self.samples += 1
        if value.shape != reference.shape:
            self.other_shapes += 1
            return
        if self._decides and value.ndim and value.shape[-1] > 0:
            same = np.argmax(value, axis=-1) == np.argmax(reference, axis=-1)
            self.decisions += int(same.size)
            self.agreed += int(np.count_nonzero(same))
        a, r = value.reshape(-1), reference.reshape(-1)
        for k in range(0, a.size, _CHUNK):
            self._chunk(a[k : k + _CHUNK].astype(np.float64), r[k : k + _CHUNK].astype(np.float64))

    def _chunk(self, a: Array, r: Array) -> None:
        self.elements += a.size
        finite = np.isfinite(a), np.isfinite(r)
        self.equal += int(np.count_nonzero((a == r) | (np.isnan(a) & np.isnan(r))))
        for k, x in enumerate((a, r)):
            self._nonfinite[k] += int(x.size - np.count_nonzero(finite[k]))
            self._saturated[k] += int(np.count_nonzero(finite[k] & (np.abs(x) >= HALF_MOST)))
        if finite[1].any():
            self._largest = max(self._largest, float(np.abs(r[finite[1]]).max()))
        both = finite[0] & finite[1]
        if not both.all():
            a, r = a[both], r[both]
        if not a.size:
            return
        d = np.abs(a - r)
        self._compared += a.size
        self._most = max(self._most, float(d.max()))
        self._absolute += float(d.sum())
        self._squares += float(d @ d)
        self._reference += float(r @ r)
        self._own += float(a @ a)
        self._dot += float(a @ r)

    def result(self, name: str, node: str = "") -> ValueAgreement:
        none = math.nan
        relative = (
            math.sqrt(self._squares / self._reference) if self._reference > 0 else 0.0 if self._squares == 0 else none
        )
        length = math.sqrt(self._reference) * math.sqrt(self._own)
        known = self._compared > 0
        return ValueAgreement(
            name=name,
            node=node,
            elements=self.elements,
            max_error=self._most if known else none,
            mean_error=self._absolute / self._compared if known else none,
            relative=relative if known else none,
            cosine=max(-1.0, min(1.0, self._dot / length)) if length > 0 else none,
            sqnr=none if not known or math.isnan(relative) else -20 * math.log10(relative) if relative else math.inf,
            equal=self.equal / self.elements if self.elements else none,
            reference_largest=self._largest,
            nonfinite=self._nonfinite[0],
            reference_nonfinite=self._nonfinite[1],
            saturated=self._saturated[0],
            reference_saturated=self._saturated[1],
            samples=self.samples,
            other_shapes=self.other_shapes,
            decisions=self.decisions,
            top1=self.agreed / self.decisions if self.decisions else None,
        )


class TextMeasure:
    """Perplexity of two language models on the same text, from their logits."""

    def __init__(self) -> None:
        self.tokens = self.agreed = 0
        self._own = self._reference = self._divergence = 0.0

    def add(self, logits: Array, reference: Array, following: Array) -> None:
        """logits, reference: [tokens, vocabulary]; following: the token that follows each, [tokens]."""
        a, r = _log_softmax(logits), _log_softmax(reference)
        rows = np.arange(len(following))
        self.tokens += len(following)
        self._own -= float(a[rows, following].sum())
        self._reference -= float(r[rows, following].sum())
        # Probabilities add up to 1 on both sides, so this is the sum of r's probabilities times their logarithms' difference. No
        # term is negative, so that distributions which hardly differ are not lost in rounding.
        more = (r - a).astype(np.float64)
        self._divergence += float((np.exp(r) * (np.expm1(-more) + more)).sum())
        self.agreed += int(np.count_nonzero(a.argmax(-1) == r.argmax(-1)))

    def result(self) -> TextAgreement:
        n = max(self.tokens, 1)
        return TextAgreement(
            tokens=self.tokens,
            perplexity=_exp(self._own / n),
            reference_perplexity=_exp(self._reference / n),
            divergence=self._divergence / n,
            top1=self.agreed / n,
        )


@dataclass(frozen=True)
class TextAgreement:
    """Agreement of two language models on text."""

    tokens: int  #: that were predicted
    perplexity: float  #: exp of the mean negative log-likelihood of these tokens
    reference_perplexity: float
    divergence: float  #: mean Kullback-Leibler divergence of the reference's distribution from the model's, in nats
    top1: float  #: fraction of tokens for which both find the same one likeliest

    @property
    def ratio(self) -> float:
        """perplexity / reference_perplexity: 1.01 is one per cent worse."""
        return self.perplexity / self.reference_perplexity


def _log_softmax(x: Array) -> Array:
    # In place, because a vocabulary is large; float32, whose rounding is far below that of any logits.
    y: Array = x.astype(np.float32)
    y -= y.max(axis=-1, keepdims=True)
    y -= np.log(np.exp(y).sum(axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)
    return y


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
