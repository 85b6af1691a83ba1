"""What steps have taken, and how many tokens of prompts a step beside answers may have because of that."""

from __future__ import annotations

#: A step with parts of prompts may take so many times as long as one of answers alone: the time between two tokens of an
#: answer then stays below three times its median, with a reserve for steps that take longer than those before them.
_MOST = 2.5
_PART = 64  #: tokens by which parts differ
#: A limit below this is not kept: with 4-bit weights, steps of more than 128 rows have a cost of their own, and smaller parts
#: pay it more often. On an H200, parts of 64 beside answers took a model of 8B to half of its tokens per second.
_LEAST = 256
_WEIGHT = 0.1  #: of the newest step in a mean
_LAST = 512  #: steps whose median is what a step usually lasts
_OUTLIER = 2.0  #: a step counts as at most so many times the mean: some capture a graph


class StepTimes:
    """Means of steps' times, in seconds. Beside n answers, a step with t tokens of prompts is taken to last alone(n) + t * each(n);
    n counts as the next power of two, as steps of so many answers run alike; one that is not known, as the nearest that is."""

    def __init__(self) -> None:
        self._alone: dict[int, float] = {}
        self._each: dict[int, float] = {}
        self._last: list[float] = []  # steps with answers since _usual was known
        self._usual = 0.0

    def add(self, answers: int, tokens: int, seconds: float) -> None:
        """A step of so many answers (at least one) and tokens of prompts has taken `seconds`."""
        n = 1 << (answers - 1).bit_length()
        self._last.append(seconds)
        if len(self._last) == _LAST:
            self._usual = sorted(self._last)[_LAST // 2]
            self._last.clear()
        if not tokens:
            self._mean(self._alone, n, seconds)
        elif self._alone:
            rows = -(-tokens // _PART) * _PART
            self._mean(self._each, n, max(0.0, seconds - self._near(self._alone, n)) / rows)

    @staticmethod
    def _mean(means: dict[int, float], n: int, x: float) -> None:
        now = means.get(n)
        means[n] = x if now is None else now + _WEIGHT * (min(x, _OUTLIER * now) - now if now else x)

    @staticmethod
    def _near(means: dict[int, float], n: int) -> float:
        return means[min(means, key=lambda k: (abs(k.bit_length() - n.bit_length()), k))]

    def most(self, answers: int, tokens: int) -> int:
        """At most `tokens`: how many of prompts may be computed beside so many answers, a multiple of 64. All of them if the
        limit would be too small to be worth it."""
        n = 1 << (answers - 1).bit_length()
        if not self._alone or not self._each:
            return tokens
        alone, each = self._near(self._alone, n), self._near(self._each, n)
        if each <= 0:
            return tokens
        # If most steps have prompts, answers come evenly with larger ones, too: these are what most answers wait for.
        usual = max(alone, self._usual)
        limit = int((_MOST * usual - alone) / each) // _PART * _PART
        return min(tokens, limit) if limit >= _LEAST else tokens
