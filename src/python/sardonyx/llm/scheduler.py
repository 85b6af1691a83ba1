"""Which requests take part in the engine's next step, and with how many tokens.

Every running request gets its next token in each step; the rest of the step's tokens are prompt tokens (chunked prefill).
Higher priorities go first. Among requests of equal priority, the client that has been served the fewest tokens is next (the
virtual token counter of Sheng et al. 2024, arXiv:2401.00588, without weights), then the one that has waited longest. When pages
run out, the request that comes last in this order is preempted: it loses its pages, which are copied to host memory
(host_pages.py) or computed again later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .engine_request import Request
from .host_pages import HostPages
from .pages import PagePool
from .step_sizes import PART, most_beside, room_of, size_of, sizes_beside, tiles_of
from .step_times import StepTimes

_MULTIPLE = 64
_LEAST = 256  #: tokens of a prompt's part that is not its last one, beside parts of others


@dataclass(slots=True)
class Piece:
    """Tokens of a request that a step computes: `count` from `start` on, the last of which may be guesses. Not changed after
    it was made: the dataclass is not frozen because there is one for each request and step, and that takes thrice as long."""

    request: Request
    start: int
    count: int
    results: int = 0  #: after so many of the last ones a token is chosen
    guesses: tuple[int, ...] = ()  #: tokens that the request does not have yet
    room: int = 0  #: how many guesses may be added, for which there are pages
    unknown: int = 0  #: 1: its last token is chosen by a step whose results have not been read
    turn: int = 0  #: Request.preempted when it was planned

    @property
    def gives(self) -> bool:
        return self.results > 0

    @property
    def ids(self) -> list[int]:
        """Its tokens; 0 for one that is not known yet."""
        known = self.request.tokens[self.start : self.start + self.count - len(self.guesses)]
        return [*known, *self.guesses, *(0,) * self.unknown]

    def guessing(self) -> Piece:
        """With its guesses, each of which is checked by the token chosen before it."""
        added = len(self.guesses)
        return replace(self, count=self.count + added, results=self.results + added, room=0)


class Scheduler:
    """The waiting and the running requests, and the pages. Used by one thread at a time."""

    def __init__(
        self,
        pool: PagePool,
        *,
        most: int,
        tokens: int,
        guesses: Callable[[Request], int] | None = None,
        stages: int = 1,
        host: HostPages | None = None,
        parts: int = 1,
        times: StepTimes | None = None,
    ):
        """most: running requests; tokens: of a step; guesses: how many tokens of a request can be guessed. stages: if more
        than 1, so many steps are in flight, each of requests of its own. host: where preempted requests' pages are kept. parts:
        how many parts of prompts are computed together with answers; small ones then cost as much as their tokens. times: limits
        the tokens of prompts beside answers."""
        self.pool, self.most, self.tokens, self._guesses, self._stages = pool, most, tokens, guesses, stages
        self.host, self._parts, self.times = host, parts, times
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = 0
        self.found = 0  #: tokens of prompts that were found in the cache
        self._served: dict[str, int] = {}
        self._admitted = 0
        self._slots = list(range(most - 1, -1, -1))

    def add(self, request: Request) -> None:
        if not any(r.client == request.client for r in (*self.waiting, *self.running)):
            # A client that comes (back) has no credit from the time when it asked for nothing.
            active = {r.client for r in (*self.waiting, *self.running)}
            least = min((self._served[c] for c in active), default=0)
            self._served[request.client] = max(self._served.get(request.client, 0), least)
            for gone in [c for c in self._served if c not in active and c != request.client]:
                del self._served[gone]
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """Its pages are free at once: what a step in flight writes to them comes before what later steps write."""
        self._release(request)
        if self.host:
            self.host.drop(request)
        for group in (self.waiting, self.running):
            if request in group:
                group.remove(request)

    def launched(self, piece: Piece) -> None:
        """A step that computes the piece has been started. Its results are not known."""
        r = piece.request
        r.computed = piece.start + piece.count
        r.unknown += piece.results - len(piece.guesses)

    def count(self, piece: Piece, wrong: int = 0) -> None:
        """The piece has been computed, and its tokens have been taken. wrong: guesses at its end that are not the request's
        tokens."""
        r, rows = piece.request, self.pool.rows
        self._served[r.client] = self._served.get(r.client, 0) + piece.count - wrong
        if piece.turn != r.preempted:  # its pages were taken away meanwhile
            return
        r.computed -= wrong
        if r.drafted > r.computed:
            r.drafted = r.computed
        while (r.published + 1) * rows <= piece.start + piece.count - wrong:
            at = r.published * rows
            r.key = self.pool.key(r.key, r.tokens[at : at + rows])
            self.pool.publish(r.pages[r.published], r.key)
            r.published += 1

    def measured(self, pieces: list[Piece], seconds: float) -> None:
        """A step of these pieces has taken so long."""
        parts = [p.count for p in pieces if p.count > 1]
        answers = len(pieces) - len(parts)
        if self.times and answers:
            rows = sum(size_of(answers, sum(p.results for p in pieces), parts)) - room_of(answers) if parts else 0
            self.times.add(answers, rows, seconds)

    def start_again(self) -> None:
        """The contents of all pages are lost: what runs is computed again."""
        for r in list(self.running):
            self._preempt(r, lost=True)
        self.pool.forget()
        if self.host:
            self.host.forget()

    def plan(self) -> list[Piece]:
        """The pieces of the next step; every request's pages suffice for its piece."""
        self._make_room()
        pieces: list[Piece] = []
        planned: set[int] = set()
        left = self.tokens
        parts = 0  # of prompts: on GPUs each reads all weights, so small ones cost as much as larger ones
        order = sorted(self.running, key=_place)
        # First those that generate, so that prompts never delay them.
        ready: list[Request] = []
        prompts: list[Request] = []
        for r in order:
            if r.unknown and self._stages > 1:
                continue
            if r.unknown and len(r.tokens) + r.unknown - r.prompt_tokens >= r.room:
                continue  # its last token is being computed
            (ready if len(r.tokens) + r.unknown - r.computed == 1 else prompts).append(r)
        if self._stages > 1:  # the others have steps of their own
            ready = ready[: -(-sum(r.computed >= r.prompt_tokens for r in order) // self._stages)]
        for group in ready, prompts:
            if group is prompts and pieces:
                left = self._beside(len(pieces), left)
            for r in group:
                if r.slot < 0:  # preempted meanwhile
                    continue
                if group is ready and r.computed < len(r.pages) * self.pool.rows:  # the most frequent case
                    pieces.append(Piece(r, r.computed, 1, 1, (), 0, int(r.unknown > 0), r.preempted))
                    planned.add(r.number)
                    left -= 1
                    continue
                count = self._part(r, left, pieces)
                if parts and count < self._least(self._pending(r), pieces, parts):
                    continue
                if count > 0 and self._reserve(r, count, planned):
                    left -= self._rows(piece := self._piece(r, count), pieces)
                    pieces.append(piece)
                    planned.add(r.number)
                    parts += count > 1
            if self._guesses and group and self._pending(group[0]) == 1:
                pieces, left = self._with_guesses(pieces, left)
        while left > 0 and len(self.running) < self.most:
            new = self._next()
            if (
                new is None
                or (parts and min(left, len(new.tokens)) < self._least(len(new.tokens), pieces, parts))
                or not self._admit(new)
            ):
                break
            count = self._part(new, left, pieces)
            if not self._reserve(new, count, planned):
                break
            left -= self._rows(piece := self._piece(new, count), pieces)
            pieces.append(piece)
            planned.add(new.number)
            parts += 1
        return pieces

    def _least(self, pending: int, pieces: list[Piece], parts: int) -> int:
        """Tokens of a further part of a prompt. Beside answers, with which some parts are computed, others wait for a step if
        they are small."""
        if pieces[0].count == 1:
            return 1 if parts < self._parts else _LEAST
        return min(_LEAST, pending)

    def _beside(self, answers: int, left: int) -> int:
        """How many of `left` tokens may be of prompts in a step with so many answers."""
        most = min(left, most_beside(answers))
        if self._parts == 1:
            return most
        most = max(sizes_beside(answers, most), default=most)
        clients = min(self.most, len(self.running) + len(self.waiting))
        return self.times.most(answers, most, clients) if self.times else most

    def _joined(self, pieces: list[Piece]) -> bool:
        """Whether parts of prompts join these pieces in one launch, where each begins a tile."""
        return self._parts > 1 and bool(pieces) and pieces[0].count == 1

    def _rows(self, piece: Piece, pieces: list[Piece]) -> int:
        """How many of a step's tokens a piece takes beside others."""
        if piece.count == 1 or not self._joined(pieces):
            return piece.count
        return PART * tiles_of(piece.count) + (self._more_room(pieces) if piece.results else 0)

    @staticmethod
    def _more_room(pieces: list[Piece]) -> int:
        """Rows by which there is less room for prompts if the step gives a token more."""
        results = sum(p.results for p in pieces)
        return room_of(results + 1) - room_of(results)

    @staticmethod
    def _piece(r: Request, count: int) -> Piece:
        last = r.computed + count == len(r.tokens) + r.unknown
        return Piece(r, r.computed, count, int(last), (), 0, int(last and r.unknown > 0), r.preempted)

    def _with_guesses(self, pieces: list[Piece], left: int) -> tuple[list[Piece], int]:
        """Room for guesses in what is left of the step's tokens and in free pages."""
        found, guesses = [], self._guesses
        assert guesses is not None
        for p in pieces:
            r, room = p.request, 0
            if p.count == 1 and p.gives:
                # The token after the last guess may be the answer's last one.
                room = min(guesses(r), left, r.room - (len(r.tokens) - r.prompt_tokens) - 1)
                room = max(0, min(room, (len(r.pages) + self.pool.available) * self.pool.rows - r.computed - 1))
                while len(r.pages) < self._needed(r.computed + 1 + room):
                    r.pages.append(self.pool.take())
            found.append(replace(p, room=room))
            left -= room
        return found, left

    def _part(self, r: Request, left: int, pieces: list[Piece]) -> int:
        """How many of its tokens are next. A part of a prompt on its own has whole multiples of 64 tokens if it can, so that few
        sizes occur; beside answers it takes what is left of the step's size."""
        pending, joined = self._pending(r), self._joined(pieces)
        more = self._more_room(pieces) if joined else 0
        if pending <= max(1, left - more):
            return pending
        if joined:
            # If it ended here, its token would need a larger step, so a few of its tokens wait. Unless there is no size for it.
            return left - more if pending <= left and left > more else min(pending, left)
        return left // _MULTIPLE * _MULTIPLE if left >= _MULTIPLE else left

    @staticmethod
    def _pending(r: Request) -> int:
        return len(r.tokens) + r.unknown - r.computed

    def _next(self) -> Request | None:
        """Who begins next. One that was preempted while a step computed its next token waits for that token."""
        able = (r for r in self.waiting if not r.unknown)
        return min(able, key=lambda r: (-r.priority, self._served.get(r.client, 0), r.number), default=None)

    def _needed(self, tokens: int) -> int:
        return -(-tokens // self.pool.rows)

    def _admit(self, r: Request) -> bool:
        """Starts a waiting request if there are pages for all its tokens and the next one."""
        pages, key = self.pool.find(r.tokens[:-1], r.seed)  # the last token is computed in any case, for its logits
        if self._needed(len(r.tokens) + 1) - len(pages) > self.pool.available:
            for page in pages:
                self.pool.release(page)
            return False
        r.pages, r.key, r.published = pages, key, len(pages)
        r.computed = r.drafted = len(pages) * self.pool.rows
        if self.host and self.host.tokens(r):
            while len(r.pages) < self._needed(self.host.tokens(r)):
                r.pages.append(self.pool.take())
            r.computed = self.host.restore(r, r.pages, r.published)
        if not r.preempted:
            r.kept = r.computed
        self.found += r.published * self.pool.rows
        self._admitted += 1
        r.admitted, r.slot = self._admitted, self._slots.pop()
        self.waiting.remove(r)
        self.running.append(r)
        return True

    def _reserve(self, r: Request, count: int, planned: set[int]) -> bool:
        """Pages for `count` tokens more. Those that come last and have no part in the step yet may lose theirs."""
        while len(r.pages) < self._needed(r.computed + count):
            if self.pool.available:
                r.pages.append(self.pool.take())
                continue
            others = [o for o in self.running if o.number not in planned]
            last = max(others, key=lambda o: (-o.priority, o.admitted))
            self._preempt(last)
            if last is r:
                return False
        return True

    def _make_room(self) -> None:
        """Running requests give way to a waiting one of higher priority that does not fit beside them."""
        r = self._next()
        if r is None or not self.running:
            return
        lower = [o for o in self.running if o.priority < r.priority]
        while lower and (len(self.running) >= self.most or self._needed(len(r.tokens) + 1) > self.pool.available):
            last = max(lower, key=lambda o: (-o.priority, o.admitted))
            lower.remove(last)
            self._preempt(last)

    def _preempt(self, r: Request, lost: bool = False) -> None:
        """lost: its pages have no contents any more."""
        if self.host and not lost:
            self.host.keep(r)
        self._release(r)
        r.preempted += 1
        self.preemptions += 1
        self.running.remove(r)
        self.waiting.append(r)

    def _release(self, r: Request) -> None:
        for page in reversed(r.pages):  # the end of a text is the least likely to be asked for again
            self.pool.release(page)
        r.pages, r.key, r.published, r.computed, r.drafted = [], b"", 0, 0, 0
        if r.slot >= 0:
            self._slots.append(r.slot)
            r.slot = -1


def _place(r: Request) -> tuple[int, int]:
    return -r.priority, r.admitted
