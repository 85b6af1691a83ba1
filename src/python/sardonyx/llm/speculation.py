"""Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192): tokens are guessed, and one step of the model checks them.

A guess counts if it is the token that the model chooses at its place, with the number that the request's seed has for that
place. So an answer has the same tokens as without guesses, greedy or sampled; only rounding differs, because a step
computes more tokens at a time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..errors import InvalidArgumentError, UnsupportedError
from .engine_request import Request
from .genai_folder import GenaiFolder, read_folder
from .paged_decoder import PagedDecoder
from .paged_graph import PagedGraph
from .paged_sampling import StepKind
from .scheduler import Piece

MOST_GUESSES = 15  #: with the token before them they are a short piece, see engine._SHORT
_LONGEST_NGRAM = 16


class Speculator(Protocol):
    """Guesses tokens. Used by the engine's thread."""

    def prepare(self) -> None:
        """Compiles what it needs."""
        ...

    def most(self, request: Request) -> int:
        """How many tokens it can guess after the request's last one; room for them is then reserved."""
        ...

    def fill(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces of a step, those with room for guesses with the guesses."""
        ...


def _whole(given: Mapping[str, Any], name: str, most: int, default: int | None = None) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidArgumentError(f"speculation: {name} is {value!r}; it must be from 1 to {most}")
    return value


def checked(speculation: Mapping[str, Any] | None) -> dict[str, Any]:
    """The option of an engine. Raises InvalidArgumentError."""
    if speculation is None:
        return {}
    if not isinstance(speculation, Mapping) or set(speculation) - {"ngram", "draft", "tokens"}:
        raise InvalidArgumentError('speculation has the form {"ngram": N} or {"draft": FOLDER}, and "tokens": N')
    found: dict[str, Any] = {"tokens": _whole(speculation, "tokens", MOST_GUESSES, 4)}
    if ("ngram" in speculation) == ("draft" in speculation):
        raise InvalidArgumentError('speculation needs either "ngram" or "draft"')
    if "ngram" in speculation:
        found["ngram"] = _whole(speculation, "ngram", _LONGEST_NGRAM)
    else:
        found["draft"] = read_folder(speculation["draft"])
    return found


def may_guess(request: Request) -> bool:
    """Whether its choices do not depend on the tokens before them other than through the model."""
    return request.options.constraint is None and not request.kind().adjust


class NgramSpeculator:
    """Guesses that a text goes on as it did where its last tokens occurred before (prompt lookup)."""

    def __init__(self, ngram: int, tokens: int):
        """ngram: of so many last tokens as match, the more the better; fewer than two count only if ngram is 1."""
        self._ngram, self._tokens, self._least = ngram, tokens, min(2, ngram)

    def prepare(self) -> None:
        pass

    def most(self, request: Request) -> int:
        if not may_guess(request):
            return 0
        request.guesses = self._guess(request)
        return len(request.guesses)

    def _guess(self, request: Request) -> tuple[int, ...]:
        count, text = len(request.tokens), request.text_array
        if len(text) < count:  # twice as large as needed, so that it seldom grows
            text = np.zeros(2 * count, np.int64)
            text[:count] = request.tokens
            request.text_array, request.text_known = text, count
        text[request.text_known : count] = request.tokens[request.text_known :]
        request.text_known = count
        best, size = np.empty(0, np.int64), 0
        ends = np.flatnonzero(text[: count - 1] == text[count - 1])
        while ends.size:
            best, size = ends, size + 1
            if size == self._ngram:
                break
            ends = ends[ends >= size]
            ends = ends[text[ends - size] == text[count - 1 - size]]
        if size < self._least:
            return ()
        whole = best[best + 1 + self._tokens <= count]
        at = int(whole[-1] if whole.size else best[0]) + 1
        return tuple(text[at : min(at + self._tokens, count)].tolist())

    def fill(self, pieces: Sequence[Piece]) -> list[Piece]:
        return [replace(p, guesses=p.request.guesses[: p.room]) if p.room else p for p in pieces]


class DraftSpeculator:
    """Guesses with a smaller model of the same vocabulary, whose KV cache has the same pages as the engine's."""

    def __init__(self, decoder: PagedDecoder, tokens: int):
        self._decoder, self._tokens = decoder, tokens

    def prepare(self) -> None:
        for single in (False, True):
            self._decoder.program(StepKind(), single).wait()

    def most(self, request: Request) -> int:
        if not may_guess(request):
            return 0
        return max(0, min(self._tokens, self._decoder.folder.context - len(request.tokens)))

    def fill(self, pieces: Sequence[Piece]) -> list[Piece]:
        self._read(pieces)
        guesses: dict[int, list[int]] = {p.request.number: [] for p in pieces if p.room}
        asking = [p for p in pieces if p.room]
        while asking:
            step = [self._step(p, guesses[p.request.number]) for p in asking]
            chosen = self._decoder.start(step, StepKind(), False)()
            for p, token in zip(asking, chosen.tokens, strict=True):
                guesses[p.request.number].append(token)
            asking = [p for p in asking if len(guesses[p.request.number]) < p.room]
        for p in pieces:
            if p.room:
                p.request.drafted = p.start + p.room
        return [replace(p, guesses=tuple(guesses[p.request.number])) if p.room else p for p in pieces]

    def _step(self, p: Piece, guesses: list[int]) -> Piece:
        r = p.request
        if guesses:
            return Piece(r, len(r.tokens) + len(guesses) - 1, 1, results=1, guesses=(guesses[-1],))
        # Two tokens, of which one may have been computed before: a guess that was right as the last one was not. So all
        # requests have as many, and the step is a captured graph.
        start = max(0, min(r.drafted, len(r.tokens) - 2))
        return Piece(r, start, len(r.tokens) - start, results=1)

    def _read(self, pieces: Sequence[Piece]) -> None:
        """Computes what the model computes of prompts. What was skipped by requests without guesses stays uncomputed: then
        guesses are worse, no more."""
        for p in pieces:
            r, end = p.request, p.start + p.count
            if p.room or p.count == 1 or end > self._decoder.folder.context:
                continue
            r.drafted = min(r.drafted, p.start)
            part = Piece(r, r.drafted, end - r.drafted)
            self._decoder.start([part], StepKind(), part.count > 1)()
            r.drafted = end


def draft_graph(folder: GenaiFolder, target: GenaiFolder, rows: int, cache_type: str) -> PagedGraph:
    """The draft model's graph. Raises UnsupportedError if its tokens are not those of `target`."""
    if folder.vocabulary != target.vocabulary or folder.ends != target.ends or not _same_tokens(folder, target):
        raise UnsupportedError(f"the draft model '{folder.path}' has other tokens than '{target.path}'")
    return PagedGraph(folder, rows, cache_type=cache_type)


def _same_tokens(a: GenaiFolder, b: GenaiFolder) -> bool:
    from .packages import needed

    tokenizers = needed("tokenizers")
    files = [os.path.join(f.path, "tokenizer.json") for f in (a, b)]
    try:
        first, second = (tokenizers.Tokenizer.from_file(f).get_vocab() for f in files)
    except Exception as error:  # the package has no exception type
        raise UnsupportedError(f"the draft model's '{files[0]}' can't be compared: {error}") from None
    return bool(first == second)
