"""What steps have taken, and how many tokens of prompts a step beside answers may have because of that."""

from __future__ import annotations

from typing import TypeVar

#: A step with parts of prompts may take so many times as long as one of answers alone: the time between two tokens of an
#: answer then stays below three times its median, with a reserve for steps that take longer than those before them.
_MOST = 2.5
#: Smaller parts cost more of a step's time for each token, so they are made only if all steps take at most so many times as
#: long for it. With 4-bit weights, for instance, steps of more than 128 rows have a cost of their own.
_DEARER = 1.1
_PART = 64  #: tokens by which parts differ
_WEIGHT = 0.1  #: of the newest step in a mean
_LAST = 512  #: steps whose median is what a step usually lasts
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
        self._last: list[float] = []  # steps with answers since _usual was known
        self._usual = 0.0
        self._prompts = self._answers = 0.0  # tokens of the last steps with answers

    def add(self, answers: int, tokens: int, seconds: float) -> None:
        """A step of so many answers (at least one) and tokens of prompts has taken `seconds`."""
        n = 1 << (answers - 1).bit_length()
        self._last.append(seconds)
        self._prompts += tokens - self._prompts / _SHARES
        self._answers += answers - self._answers / _SHARES
        if len(self._last) == _LAST:
            self._usual = sorted(self._last)[_LAST // 2]
            self._last.clear()
        if not tokens:
            self._mean(self._alone, n, seconds)
        elif self._alone:
            more = max(0.0, seconds - self._near(self._alone, n))
            self._mean(self._more.setdefault(n, {}), -(-tokens // _PART) * _PART, more)

    @staticmethod
    def _mean(means: dict[int, float], key: int, x: float) -> None:
        now = means.get(key)
        means[key] = x if now is None else now + _WEIGHT * (min(x, _OUTLIER * now) - now if now else x)

    @staticmethod
    def _near(means: dict[int, _T], n: int) -> _T:
        return means[min(means, key=lambda k: (abs(k.bit_length() - n.bit_length()), k))]

    @staticmethod
    def _sizes(known: dict[int, float], tokens: int) -> dict[int, float]:
        """How much longer steps with up to so many tokens take, by tokens; between the sizes that are known it is estimated."""
        points = [(0, 0.0), *sorted(known.items())]
        found, at = {}, 0
        for t in range(_PART, tokens // _PART * _PART + 1, _PART):
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

    def _cost(self, more: float, tokens: int, clients: int, alone: float) -> float:
        """Seconds that a token of an answer takes where each step has at most so many tokens of prompts, which take `more`, and
        `clients` requests are to be answered at a time, in a step of `alone` without prompts: with fewer tokens of prompts than
        their answers make room for, some of them wait."""
        each = self._prompts / self._answers
        n = min(clients, tokens / each) if each else clients
        if n == clients:
            return alone / n + each * more / tokens
        fewer = self._near(self._alone, 1 << (max(1, round(n)) - 1).bit_length())
        return each * (fewer + more) / tokens

    def most(self, answers: int, tokens: int, clients: int) -> int:
        """At most `tokens`: how many of prompts may be computed beside so many answers, a multiple of 64 if it is less, where
        `clients` requests run or could. Of the sizes that keep steps short, the one with which answers take the least time; if
        they take much less with longer steps, the best of all."""
        n = 1 << (answers - 1).bit_length()
        if not self._alone or not self._more or tokens <= _PART:
            return tokens
        alone, known = self._near(self._alone, n), self._near(self._more, n)
        # If most steps have prompts, answers come evenly with larger ones, too: these are what most answers wait for.
        room = _MOST * max(alone, self._usual) - alone
        sizes, clients = self._sizes(known, tokens), max(answers, clients)
        all_alone = self._near(self._alone, 1 << (clients - 1).bit_length())
        costs = {t: self._cost(more, t, clients, all_alone) for t, more in sizes.items()}
        best = min(costs, key=lambda t: (costs[t], -t))
        fast = min((t for t, more in sizes.items() if more <= room), key=lambda t: (costs[t], -t), default=best)
        return fast if costs[fast] <= _DEARER * costs[best] else best
