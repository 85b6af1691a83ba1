"""The engine's thread: it plans steps, starts them, reads their results, and tells callers. See engine.py."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import Error
from .engine_request import Request, TokenEvent, Wakes
from .engine_results import known_error
from .paged_parallel import CachesLostError
from .paged_sampling import Chosen, StepKind
from .scheduler import Piece, Scheduler
from .speculation import Speculator
from .step_decoder import StepDecoder

#: Parts of a prompt with more tokens run as one block of attention; shorter ones join the tokens of other sequences.
_SHORT = 16
_MOST_LOSSES = 3  #: how often in a row devices may be started again for the same requests


class Started:
    """A step that has been started: its groups of pieces with their results, and when."""

    def __init__(self) -> None:
        self.groups: list[tuple[list[Piece], Callable[[], Chosen]]] = []
        self.begun = time.perf_counter()


class EngineSteps:
    """What the engine's thread does. The base of Engine, which has these members."""

    _wake: threading.Condition
    _decoder: StepDecoder
    _speculator: Speculator | None
    _scheduler: Scheduler
    _inbox: list[Request]
    _live: set[Request]
    _closing: bool
    _ended: Counter[str]
    _wakes: Wakes

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        raise NotImplementedError

    def _begin(self) -> None:
        """What the thread counts and keeps."""
        self._guessed = self._right = self._losses = 0
        self._steps = self._prompt_tokens = self._new_tokens = 0
        self._showing = False
        self._later: list[tuple[Request, TokenEvent, str, bool]] = []  # tokens of which callers have not been told
        self._flying: list[Started] = []  # steps that have been started, the oldest first
        self._read_at = 0.0  # when the last step's results were read

    def _next_pieces(self) -> list[Piece] | None:
        """The pieces of the next step, after new requests were added and cancelled ones removed; None if the engine is closed. The
        caller holds the lock."""
        for r in self._inbox:
            self._scheduler.add(r)
        self._inbox.clear()
        for r in [r for r in self._live if r.cancelled and not r.ending]:
            self._end(r, "cancelled")
        if self._closing and not self._live and not self._flying:
            return None
        return self._scheduler.plan() if self._live else []

    def _end(self, request: Request, reason: str, error: Error | None = None) -> None:
        """Frees its memory, then tells its caller."""
        self._leave(request, reason)
        self._tell(request, reason, error)

    def _leave(self, request: Request, reason: str) -> None:
        """Removes a request from the scheduler and frees its memory."""
        with self._wake:
            request.ending = reason
            self._scheduler.remove(request)

    def _tell(self, request: Request, reason: str, error: Error | None = None) -> None:
        with self._wake:
            self._live.discard(request)
            self._ended[reason] += 1
        request.end(reason, error, self._wakes)
        if not self._showing:
            self._wakes.send()

    def _step(self, pieces: list[Piece]) -> None:
        """Starts a step, then reads the results of the one before it. So on a GPU one step runs while the host prepares the
        next, which takes the last tokens where the GPU has them. Results are read at once where what comes next depends on
        them: on masks and penalties, and on guesses. If a model's layers are divided among devices, as many steps of different
        requests are in flight."""
        if self._speculator is not None:
            try:
                pieces = [p.guessing() for p in self._speculator.fill(pieces)]
            except Exception as error:
                for p in pieces:
                    self._end(p.request, "error", known_error(error, "the draft model failed"))
                return
        started = Started()
        least = 1 if self._decoder.ahead else self._decoder.stages - 1  # steps that stay in flight
        wait = self._speculator is not None
        for group in self._groups(pieces):
            kind, seen = StepKind(adapters=any(p.request.adapter for p in group)), None
            for p in group:
                if p.results and p.request.kind() is not seen:
                    seen = p.request.kind()
                    kind = kind.joined(seen)
            try:
                results = self._decoder.start(group, kind, len(group) == 1 and group[0].count > 1)
            except Exception as error:
                self._fail(group, error)
                continue
            for p in group:
                self._scheduler.launched(p)
            started.groups.append((group, results))
            wait = wait or kind.adjust
        self._flying.append(started)
        while len(self._flying) > least:
            self._read(self._flying.pop(0))
        if wait or not least:
            self._settle()

    def _groups(self, pieces: list[Piece]) -> Iterator[list[Piece]]:
        """What runs at a time: parts of prompts one by one, then all other tokens together. Parts may join these: alone each
        would read all weights once more."""
        short = 1 if self._decoder.ahead else _SHORT
        together: list[Piece] = []
        parts: list[Piece] = []
        for p in pieces:
            if not p.request.ending and self._masked(p):
                (together if p.count <= short else parts).append(p)
        if together:
            for p in sorted(parts, key=lambda p: -p.count):
                if self._decoder.joins(p, together):
                    parts.remove(p)
                    together.append(p)
        for p in parts:
            yield [p]
        if together:
            yield together

    def _fail(self, group: list[Piece], error: Exception) -> None:
        for p in group:
            if not p.request.ending:
                self._end(p.request, "error", known_error(error, "a step of the engine failed"))

    def _read(self, started: Started) -> None:
        """Takes the tokens of a step that has been started; meanwhile callers are told of those before them."""
        self._show()
        for group, results in started.groups:
            try:
                chosen = results()
            except CachesLostError as error:
                self._lose(group, error)
                continue
            except Exception as error:
                self._fail(group, error)
                continue
            self._losses = 0
            self._note_time(group if len(started.groups) == 1 else [], started.begun)
            self._take(group, chosen)

    def _note_time(self, group: list[Piece], begun: float) -> None:
        """Tells the scheduler how long a step took that has just ended. It began when the one before it ended, or later."""
        begun, self._read_at = max(begun, self._read_at), time.perf_counter()
        self._scheduler.measured(group, self._read_at - begun)

    def _lose(self, group: list[Piece], error: Error) -> None:
        """Devices have been started again with empty caches: requests are computed again, and their answers go on. But not for
        ever, if the devices end each time."""
        for p in group:
            p.request.unknown -= p.results - len(p.guesses)
        if any(p.turn == p.request.preempted and not p.request.ending for p in group):  # not known yet
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                for r in list(self._scheduler.running):
                    self._end(r, "error", error)
            with self._wake:
                self._scheduler.start_again()

    def _settle(self) -> None:
        """Nothing is in flight afterwards, and callers know all tokens."""
        while self._flying:
            self._read(self._flying.pop(0))
        self._show()

    def _advance(self) -> None:
        """Nothing can be started before the oldest step has been read."""
        if self._flying:
            self._read(self._flying.pop(0))
        if not self._flying:
            self._show()

    def _masked(self, piece: Piece) -> bool:
        """Asks the request's constraint, if it has one, which tokens may come next. False: it has failed."""
        r = piece.request
        if not piece.gives or r.options.constraint is None:
            return True
        try:
            r.allowed = r.options.constraint.allowed()
        except Exception as error:
            self._end(r, "error", known_error(error, "a constraint failed"))
            return False
        return True

    def _take(self, pieces: list[Piece], chosen: Chosen) -> None:
        """Gives the requests their tokens. One that has ended while the step ran gets none."""
        at = 0
        with self._wake:
            self._steps += 1
        for p in pieces:
            r, first = p.request, at
            at += p.results
            if r.ending:
                continue
            taken, reason, guesses = 0, "", len(p.guesses)
            # A guess that equals the token chosen before it was a right input, so the token after it counts too.
            while (
                taken < p.results
                and not reason
                and (not taken or p.guesses[taken - 1] == chosen.tokens[first + taken - 1])
            ):
                try:
                    reason = self._take_token(r, chosen, first + taken)
                except Exception as error:  # of a constraint
                    self._end(r, "error", known_error(error, "a constraint failed"))
                    break
                taken += 1
            if r.ending:
                continue
            r.unknown -= p.results - guesses
            wrong = p.results - taken
            if p.start < r.prompt_tokens or p.count - guesses > 1:
                self._prompt_tokens += p.count
            if guesses:
                self._guessed += guesses
                self._right += guesses - wrong
            self._scheduler.count(p, wrong)
            if reason:
                self._leave(r, reason)

    def _take_token(self, r: Request, chosen: Chosen, k: int) -> str:
        """Gives a request the step's result k; why the answer ends with it."""
        token, logprob = chosen.tokens[k], None
        self._new_tokens += 1
        top: tuple[tuple[int, float], ...] = ()
        if r.options.logprobs is not None and chosen.logprobs is not None:
            assert chosen.top_tokens is not None and chosen.top_logprobs is not None
            logprob = float(chosen.logprobs[k])
            best = zip(chosen.top_tokens[k].tolist(), chosen.top_logprobs[k].tolist())
            top = tuple(best)[: r.options.logprobs]
        reason, silent = r.take(token, self.ends)
        self._later.append((r, TokenEvent(token, "", logprob, top), reason, silent))
        return reason

    def _show(self) -> None:
        """Tells the callers of the tokens that have been taken."""
        later, self._later = self._later, []
        self._showing = True
        for r, event, reason, silent in later:
            if r.finished:  # cancelled, or ended by a stop string
                continue
            try:
                ended = r.show(event, reason, silent, self._wakes)
            except Exception as error:  # of the tokenizer
                self._end(r, "error", known_error(error, "a token has no text"))
                continue
            if ended:
                if not r.ending:
                    self._leave(r, ended)
                self._tell(r, ended)
        self._showing = False
        self._wakes.send()


def notify(wake: threading.Condition) -> None:
    with wake:
        wake.notify_all()


def run_steps(own: weakref.ref[Any], wake: threading.Condition) -> None:
    """Runs steps while there are requests."""
    while True:
        with wake:
            engine = own()
            if engine is None:
                return
            if not (engine._live or engine._closing or engine._flying):
                del engine
                wake.wait()
                continue
            pieces = engine._next_pieces()
        if pieces is None:
            return
        if pieces:
            engine._step(pieces)
        else:
            engine._advance()
        del engine, pieces  # requests know the engine's tokenizer
