"""The text of tokens as they arrive, without incomplete characters, up to a stop string."""

from __future__ import annotations

from collections.abc import Callable


class TextStream:
    """add() returns the text that can be shown so far; finish() the rest.

    A token may contain a part of a character, and the last characters may be the beginning of a stop string; both are held back
    until the next tokens.
    """

    def __init__(self, decode: Callable[[list[int]], str], stop: tuple[str, ...]):
        self._decode, self._stop = decode, stop
        self._tokens: list[int] = []
        self._start = 0  # tokens before it are final in _text
        self._prefix = 0  # decoding begins here, because spaces depend on the tokens before
        self._before: int | None = 0  # characters of the tokens from _prefix to _start; None: not known
        self._text = ""
        self._shown = 0
        self.stopped = False  #: a stop string was found

    @property
    def text(self) -> str:
        """All that has been shown."""
        return self._text[: self._shown]

    def _take(self, last: bool) -> None:
        if self._before is None:
            self._before = len(self._decode(self._tokens[self._prefix : self._start]))
        now = self._decode(self._tokens[self._prefix :])
        if len(now) > self._before and (last or not now.endswith("\ufffd")):
            self._text += now[self._before :]
            self._prefix, self._start, self._before = self._start, len(self._tokens), None

    def _show(self, last: bool) -> str:
        if not self._stop:
            part, self._shown = self._text[self._shown :], len(self._text)
            return part
        found = [at for at in (self._text.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped = True
            end = max(min(found), self._shown)
        elif last:
            end = len(self._text)
        else:
            end = max(len(self._text) - self._held(), self._shown)
        part, self._shown = self._text[self._shown : end], end
        return part

    def _held(self) -> int:
        """How many characters at the end begin a stop string."""
        longest = 0
        for stop in self._stop:
            for count in range(min(len(stop) - 1, len(self._text)), longest, -1):
                if self._text.endswith(stop[:count]):
                    longest = count
                    break
        return longest

    def add(self, token: int) -> str:
        self._tokens.append(token)
        self._take(False)
        return self._show(False)

    def finish(self) -> str:
        if self.stopped:
            return ""
        self._take(True)
        return self._show(True)
