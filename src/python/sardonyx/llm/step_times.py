"""What steps have taken, and how many tokens of prompts a step beside answers may have because of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .step_sizes import sizes_beside

#: Answers come evenly if steps with parts of prompts take at most so many times as long as the median.
_EVEN = 3.0
#: Such steps are the median if they are so many of all: more than half, as prompts are not evenly many.
_USUAL = 0.6
_WEIGHT = 0.1  #: of the newest step in a mean
_SPREADS = 0.02  #: of the newest step in the mean of deviations
#: Mean deviations above the mean below which most steps with parts are, some of which have more context than others.
_ABOVE = 2.0
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
        self._spread = 0.1  # mean deviation of steps with prompts from the mean of their size, as a share of it
        self._prompts = self._answers = 0.0  # tokens of the last steps with answers

    def add(self, answers: int, tokens: int, seconds: float) -> None:
        """A step of so many answers (at least one) and rows for tokens of prompts has taken `seconds`."""
        n = 1 << (answers - 1).bit_length()
        self._prompts += tokens - self._prompts / _SHARES
        self._answers += answers - self._answers / _SHARES
        if not tokens:
            self._mean(self._alone, n, seconds)
        elif self._alone:
            alone, known = self._near(self._alone, n), self._more.setdefault(n, {})
            if tokens in known:
                usual = alone + known[tokens]
                self._spread += _SPREADS * (min(abs(seconds / usual - 1), 1) - self._spread)
            self._mean(known, tokens, max(0.0, seconds - alone))

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

    def _cost(self, more: float, tokens: int, clients: int, alone: float) -> tuple[float, float]:
        """Seconds that a token of an answer takes where each step has at most so many tokens of prompts, which take `more`, and
        `clients` requests are to be answered at a time, in a step of `alone` without prompts: with fewer tokens of prompts than
        their answers make room for, some of them wait. And the share of steps that have prompts."""
        each = self._prompts / self._answers
        n = min(clients, tokens / each) if each else clients
        if n == clients:
            return alone / n + each * more / tokens, n * each / tokens
        fewer = self._near(self._alone, 1 << (max(1, round(n)) - 1).bit_length())
        return each * (fewer + more) / tokens, 1.0

    def most(self, answers: int, tokens: int, clients: int) -> int:
        """How many tokens of prompts, at most `tokens`, may be computed beside so many answers where `clients` requests run or
        could: the size of steps with which a token of an answer takes the least time, where time counts for more if answers come
        unevenly with that size: as many times as such a step is longer than _EVEN times the median. So answers come as far apart
        only as that makes more of them."""
        n = 1 << (answers - 1).bit_length()
        sizes = sizes_beside(answers, tokens)
        if not self._alone or not self._more or len(sizes) < 2:
            return tokens
        alone, known, clients = self._near(self._alone, n), self._near(self._more, n), max(answers, clients)
        all_alone = self._near(self._alone, 1 << (clients - 1).bit_length())

        def weighed(size: tuple[int, float]) -> tuple[float, int]:
            tokens, more = size
            cost, share = self._cost(more, tokens, clients, all_alone)
            longest = (alone + more) * (1 + _ABOVE * self._spread)
            return cost * max(1.0, longest / (_EVEN * alone)) if share < _USUAL else cost, -tokens

        return min(self._times(known, sizes).items(), key=weighed)[0]
