"""What a budget of error is measured by, and the bound that data which nobody has seen will meet it."""

from __future__ import annotations

import functools
import math
import runpy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import InvalidArgumentError

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]
#: error(outputs, reference, inputs) of a sample: 0 if the outputs are as good as the reference's, and more if worse.
ErrorFunction = Callable[[dict[str, Array], dict[str, Array], dict[str, Array]], float]
#: A name, or a function.
Metric = str | ErrorFunction

METRICS = ("relative", "decisions", "perplexity")


class Terms(Protocol):
    """The error of samples as a ratio of sums: of each sample, numerators and denominators, one for each output."""

    name: str

    def of(self, outputs: Values, reference: Values, inputs: Values) -> tuple[Array, Array]: ...

    def error(self, ratio: Array) -> Array:
        """The error that a ratio of sums means; grows with it."""
        ...


class Relative:
    """Root mean square of the difference, divided by that of the reference; the largest among the outputs."""

    name = "relative"

    def __init__(self, only: Sequence[str] | None = None):
        """only: these outputs; None: all."""
        self._only = only

    def of(self, outputs: Values, reference: Values, inputs: Values) -> tuple[Array, Array]:
        above, below = [], []
        for name, want in reference.items():
            if "float" not in want.dtype.name or (self._only is not None and name not in self._only):
                continue
            r, x = want.astype(np.float64).reshape(-1), outputs[name].astype(np.float64).reshape(-1)
            if r.shape != x.shape:
                raise InvalidArgumentError(
                    f"output '{name}' has another shape than the reference's; give a metric of your own"
                )
            both = np.isfinite(r) & np.isfinite(x)
            lost = np.isfinite(r) & ~np.isfinite(x)
            above.append(np.inf if lost.any() else float(np.square(x[both] - r[both]).sum()))
            below.append(float(np.square(r[both]).sum()))
        if not above:
            raise InvalidArgumentError("the model has no float output; give a metric of your own")
        return np.array(above), np.array(below)

    def error(self, ratio: Array) -> Array:
        return np.asarray(np.sqrt(np.maximum(ratio, 0)))


class Decisions:
    """Share of the decisions, the largest element along the last dim of each float output, that differ."""

    name = "decisions"

    def of(self, outputs: Values, reference: Values, inputs: Values) -> tuple[Array, Array]:
        above, below = [], []
        for name, want in reference.items():
            if ("float" in want.dtype.name) and want.ndim and want.shape[-1] > 1:
                x = outputs[name]
                same = x.shape == want.shape and x.argmax(-1) == want.argmax(-1)
                below.append(max(1, math.prod(want.shape[:-1])))
                above.append(below[-1] - np.count_nonzero(same))
        if not above:
            raise InvalidArgumentError("the model has no float output with decisions along its last dim")
        return np.array(above, np.float64), np.array(below, np.float64)

    def error(self, ratio: Array) -> Array:
        return ratio


class Perplexity:
    """Perplexity divided by the reference's, minus 1, on the text that the inputs are."""

    name = "perplexity"

    def __init__(self, logits: str, ids: str):
        self._logits, self._ids = logits, ids

    def of(self, outputs: Values, reference: Values, inputs: Values) -> tuple[Array, Array]:
        following = np.asarray(inputs[self._ids])[0, 1:].astype(np.int64)
        difference = 0.0
        for sign, values in ((1, outputs), (-1, reference)):
            x = values[self._logits][0, : len(following)].astype(np.float32)
            if len(x) != len(following):
                raise InvalidArgumentError(
                    "perplexity needs the logits of every token, and the model has the last one's"
                )
            x = x - x.max(-1, keepdims=True)
            likely = x[np.arange(len(x)), following] - np.log(np.exp(x).sum(-1, dtype=np.float64))
            difference -= sign * float(likely.sum())
        return np.array([difference]), np.array([float(len(following))])

    def error(self, ratio: Array) -> Array:
        return np.asarray(np.expm1(np.minimum(ratio, 500)))


class Own:
    """The mean of a user's function."""

    def __init__(self, function: ErrorFunction, name: str):
        self.name, self._function = name, function

    def of(self, outputs: Values, reference: Values, inputs: Values) -> tuple[Array, Array]:
        try:
            value = float(self._function(dict(outputs), dict(reference), dict(inputs)))
        except Exception as error:  # the user's
            raise InvalidArgumentError(f"the metric '{self.name}' failed: {type(error).__name__}: {error}") from error
        if math.isnan(value):
            raise InvalidArgumentError(f"the metric '{self.name}' is not a number on a sample")
        return np.array([value]), np.array([1.0])

    def error(self, ratio: Array) -> Array:
        return ratio


def terms_of(metric: Metric, text: tuple[str, str] | None) -> Terms:
    """metric: a name, a script that defines error(), or a function. text: a language model's outputs with logits and inputs
    with tokens."""
    if callable(metric):
        return Own(metric, getattr(metric, "__name__", "metric"))
    if metric == "relative":
        return Relative()
    if metric == "decisions":
        return Decisions()
    if metric == "perplexity":
        if text is None:
            raise InvalidArgumentError("the metric 'perplexity' is for the folder of a language model")
        return Perplexity(*text)
    if metric.endswith(".py"):
        return Own(_script(metric), metric)
    raise InvalidArgumentError(
        f"a metric is {', '.join(METRICS)}, or a Python script that defines error(outputs, reference, inputs), not {metric!r}"
    )


def _script(path: str) -> ErrorFunction:
    try:
        function = runpy.run_path(path, run_name="sardonyx_metric").get("error")
    except Exception as error:
        raise InvalidArgumentError(f"'{path}' can't be run: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise InvalidArgumentError(f"'{path}' does not define a function error(outputs, reference, inputs)")
    found: ErrorFunction = function
    return found


class Found:
    """The error on samples, and its bound."""

    def __init__(self, terms: Terms, samples: Sequence[tuple[Array, Array]]):
        above, below = (np.array([s[k] for s in samples], np.float64) for k in (0, 1))
        self._terms, self._above, self._below = terms, above, below
        total = below.sum(0)
        with np.errstate(invalid="ignore", divide="ignore"):
            self._ratio = np.where(total > 0, above.sum(0) / total, np.where(above.sum(0) > 0, np.inf, 0.0))

    @property
    def error(self) -> float:
        """On these samples; of several outputs, the largest."""
        return float(self._terms.error(self._ratio).max())

    def bound(self, confidence: float) -> float:
        """What the error on as many other samples does not exceed, with this probability. It needs at least 2 samples.

        The error is a ratio of sums; each sample adds its residual to it (the delta method). Two bounds of the mean of other
        samples' residuals are computed, of which the larger one counts:

        - Student's, from their variance. It is too low if a few samples make up most of the error, because samples without such
          a one have a small mean and a small variance.
        - One without an assumption about their distribution up to the largest one seen, after Anderson (1969, "Confidence limits
          for the expected value of an arbitrary bounded random variable"): the mean is the integral over x of the share above x,
          and if k of n samples are above x, at most _failures(k, n) of n others are. So the largest one counts about 10 times
          with a confidence of 0.999. Errors that are 0 or 1 are counts of failures, for which it is exact and stands alone.
        """
        n = len(self._above)
        if n < 2 or not np.isfinite(self._ratio).all():
            return math.inf
        x = (self._above - self._ratio * self._below) / np.maximum(self._below.mean(0), 1e-300)
        ordered = np.sort(x, 0)
        most = _most_failures(n, confidence)[n - 1 : 0 : -1, None] / n  # above each but the largest
        worst = ordered[0] + (np.diff(ordered, axis=0) * most).sum(0)
        if not (np.isin(self._above, (0.0, 1.0)).all() and (self._below == 1).all()):
            # Twice the variance of a mean: of these samples, and of the others.
            worst = np.maximum(worst, t_quantile(confidence, n - 1) * x.std(0, ddof=1) * math.sqrt(2 / n))
        elif not self._above.any():
            worst = np.full_like(worst, _failures(0, n, confidence) / n)  # none among few proves little
        return float(self._terms.error(self._ratio + worst).max())


@functools.lru_cache(maxsize=16)
def _most_failures(n: int, confidence: float) -> Array:
    """_failures() for 0 to n."""
    return np.array([_failures(k, n, confidence) for k in range(n + 1)], np.float64)


def _failures(k: int, n: int, confidence: float) -> int:
    """The number of failures in n further trials after k in n, which is not exceeded with this probability."""
    below = 0.0
    for j in range(n + 1):
        below += math.exp(
            math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1)
            + math.lgamma(j + k + 1) + math.lgamma(2 * n - j - k + 1) - math.lgamma(2 * n + 2)
            - math.lgamma(k + 1) - math.lgamma(n - k + 1) + math.lgamma(n + 2)
        )  # fmt: skip
        if below >= confidence:
            return j
    return n


@functools.lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's distribution, by bisection of the integral of its density; probability: 0.5 to 1."""
    log_norm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)

    def above(t: float) -> float:
        # x = t / u maps the tail to (0, 1].
        u = (np.arange(4096) + 0.5) / 4096
        x = t / u
        density = np.exp(log_norm - (freedom + 1) / 2 * np.log1p(x * x / freedom))
        return float((density * t / u**2).mean())

    low, high = 1e-9, 1e9
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if above(middle) > 1 - probability else (low, middle)
    return math.sqrt(low * high)
