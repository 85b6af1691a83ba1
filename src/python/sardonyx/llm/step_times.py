"""What steps have taken, and how many tokens of prompts a step beside answers may have because of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from .step_sizes import sizes_beside

#: Answers come evenly if steps with parts of prompts take at most so many times as long as those without: the time between two
#: tokens then stays below three times its median, with a reserve for steps that take longer than the mean of their size.
_EVEN = 2.5
#: Also if most steps have such parts, as these are the median then: so many of all, since prompts come in no even number.
_USUAL = 0.6
#: Time that even answers may cost. On an H200, an 8B model in int4 with 8 clients would have a 99th percentile of 3.0 medians
#: with 56 tokens of prompts in a step, instead of 6.6 with 448, but a fifth fewer tokens per second, and first tokens after
#: 100 ms instead of 37.
_WORTH = 1.1
_WEIGHT = 0.1  #: of the newest step in a mean
_SHARES = 1024  #: steps by which tokens of prompts are compared with those of answers
_OUTLIER = 2.0  #: a step counts as at most so many times the mean: some capture a graph
#: Parts of a size that has not been measured are taken to cost so much of what others suggest, so that they are tried.
_UNTRIED = 0.9
_T = TypeVar("_T")


class StepTimes:
    """Means of steps' times, in seconds: those with answers alone, and how much longer those with prompts take, by the prompts'
    tokens. Numbers of answers count as the next power of two, as steps of so many answers run alike; for one that is not known,
    the nearest that is."""

    def __init__(self) -> None:
        self._alone: dict[int, float] = {}
        self._more: dict[int, dict[int, float]] = {}  # by answers, then by tokens
        self._prompts = self._answers = 0.0  # tokens of the last steps with answers

    def add(self, answers: int, tokens: int, seconds: float) -> None:
        """A step of so many answers (at least one) and rows for tokens of prompts has taken `seconds`."""
        n = 1 << (answers - 1).bit_length()
        self._prompts += tokens - self._prompts / _SHARES
        self._answers += answers - self._answers / _SHARES
        if not tokens:
            self._mean(self._alone, n, seconds)
        elif self._alone:
            more = max(0.0, seconds - self._near(self._alone, n))
            self._mean(self._more.setdefault(n, {}), tokens, more)

    @staticmethod
    def _mean(means: dict[int, float], key: int, x: float) -> None:
        now = means.get(key)
        means[key] = x if now is None else now + _WEIGHT * (min(x, _OUTLIER * now) - now if now else x)

    @staticmethod
    def _near(means: dict[int, _T], n: int) -> _T:
        return means[min(means, key=lambda k: (abs(k.bit_length() - n.bit_length()), k))]

    @staticmethod
    def _times(known: dict[int, float], sizes: Sequence[int]) -> dict[int, float]:
        """How much longer steps with so many tokens take; between the sizes that are known it is estimated."""
        points = [(0, 0.0), *sorted(known.items())]
        found, at = {}, 0
        for t in sizes:
            while at + 1 < len(points) and points[at + 1][0] <= t:
                at += 1
            below, low = points[at]
            if below == t:
                found[t] = low
            elif at + 1 == len(points):
                found[t] = low * t / below
            else:
                above, high = points[at + 1]
                found[t] = _UNTRIED * (low + (high - low) * (t - below) / (above - below))
        return found

    def _cost(self, more: float, tokens: int, clients: int) -> tuple[float, float]:
        """Seconds that a token of an answer takes where steps have up to so many tokens of prompts, which take `more`, and
        `clients` requests run or wait; and the share of steps that have prompts.

        Prompts are computed one after the other, and answers side by side: a closed queue, of which the approximation of
        Schweitzer's mean value analysis gives how many requests have or wait for prompts' parts (`before`): their time there,
        in that of an answer, is ratio * (1 + others * before), and before = (clients - before) * that."""
        ratio, others = self._prompts / self._answers / tokens, 1 - 1 / clients
        linear, square = 1 + ratio - ratio * others * clients, ratio * others
        before = 2 * ratio * clients / (linear + math.sqrt(linear**2 + 4 * square * ratio * clients))
        n = clients - before
        alone = self._near(self._alone, 1 << (max(1, round(n)) - 1).bit_length())
        return (alone + n * ratio * more) / n, n * ratio

    def most(self, answers: int, tokens: int, clients: int) -> int:
        """How many tokens of prompts, at most `tokens`, may be computed beside so many answers where `clients` requests run or
        could: the size with which a token of an answer takes the least time. If answers come unevenly with a size, their time
        counts for more, by as much as its steps exceed _EVEN times those without prompts, but at most by _WORTH: short chunks
        also let first tokens wait."""
        n = 1 << (answers - 1).bit_length()
        sizes = sizes_beside(answers, tokens)
        if not self._alone or not self._more or len(sizes) < 2:
            return tokens
        alone, known, clients = self._near(self._alone, n), self._near(self._more, n), max(answers, clients)

        def weighed(size: tuple[int, float]) -> tuple[float, int]:
            tokens, more = size
            cost, share = self._cost(more, tokens, clients)
            uneven = min(_WORTH, max(1.0, (alone + more) / (_EVEN * alone))) if share < _USUAL else 1.0
            return cost * uneven, -tokens

        return min(self._times(known, sizes).items(), key=weighed)[0]
