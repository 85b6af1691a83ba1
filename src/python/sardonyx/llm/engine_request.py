"""A request to the engine: its options, what it has generated, and how its caller follows it."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np

from ..errors import Error, InvalidArgumentError
from .genai_folder import GenaiFolder
from .paged_sampling import FEW, MOST_LOGPROBS, StepKind
from .search_options import SearchOptions, search_options
from .text_stream import TextStream

_KINDS: dict[StepKind, StepKind] = {}


class Constraint(Protocol):
    """Which tokens may come next, by a grammar. Used by the engine's thread."""

    def allowed(self) -> np.ndarray[Any, Any]:
        """uint32 [vocabulary / 32]: a bit for each token."""
        ...

    def accept(self, token: int) -> bool:
        """Takes the chosen token; whether the text must end after it."""
        ...


@dataclass(frozen=True)
class RequestOptions:
    """Options of the engine's requests besides SearchOptions."""

    stop_tokens: tuple[int, ...] = ()  #: tokens that end the answer, beside the model's
    presence_penalty: float = 0.0  #: subtracted from the logits of tokens that the answer has
    frequency_penalty: float = 0.0  #: the same for each time that it has them
    logit_bias: Mapping[int, float] = field(default_factory=dict)  #: added to tokens' logits
    logprobs: int | None = None  #: log-probabilities of chosen tokens, and of as many most likely ones (up to 20)
    constraint: Constraint | None = None  #: of this request alone
    shown_tokens: tuple[int, ...] = ()  #: special tokens whose text is part of the answer's

    def __post_init__(self) -> None:
        def need(ok: bool, what: str) -> None:
            if not ok:
                raise InvalidArgumentError(what)

        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            need(isinstance(value, (int, float)) and -2 <= value <= 2, f"{name} is {value!r}; it must be from -2 to 2")
        n = self.logprobs
        need(
            n is None or (isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MOST_LOGPROBS),
            f"logprobs is {n!r}; it must be from 0 to {MOST_LOGPROBS}",
        )
        need(
            all(isinstance(v, (int, float)) and abs(v) <= 1e4 for v in self.logit_bias.values()),
            "logit_bias has a value that is no number up to 10000",
        )


def request_options(folder: GenaiFolder, given: Mapping[str, Any]) -> tuple[SearchOptions, RequestOptions]:
    """The options of both kinds, with genai_config.json's defaults. Raises InvalidArgumentError."""
    own = {f.name for f in fields(RequestOptions)}
    mine = {k: v for k, v in given.items() if k in own and v is not None}
    for name in ("stop_tokens", "shown_tokens"):
        mine[name] = tuple(mine.get(name, ()))
    search = search_options(folder.search, {k: v for k, v in given.items() if k not in own})
    if search.num_beams > 1:
        raise InvalidArgumentError("the engine has no beam search: set num_beams to 1, or use LanguageModel")
    options = RequestOptions(**mine)
    for name in ("logit_bias", "stop_tokens", "shown_tokens"):
        tokens = getattr(options, name)
        if not all(isinstance(t, int) and 0 <= t < folder.vocabulary for t in tokens):
            raise InvalidArgumentError(f"{name} has a token that is not from 0 to {folder.vocabulary - 1}")
    return search, options


@dataclass(slots=True)
class TokenEvent:
    """A token of an answer, and the text that can be shown after it (which may belong to earlier tokens too)."""

    token: int
    text: str
    logprob: float | None = None  #: by the model's unchanged logits, if asked for
    top: tuple[tuple[int, float], ...] = ()  #: the most likely tokens with theirs


@dataclass(frozen=True)
class EndEvent:
    """The last event of a request: why it ended, and text that had been held back."""

    finished: str  #: "end" (the model's end token), "stop" (a stop string or token), "length", "cancelled", "error"
    text: str = ""
    error: Error | None = None


Event = TokenEvent | EndEvent


class Wakes:
    """asyncio's loops that wait for events of requests: one message to a loop for all events of a step."""

    def __init__(self) -> None:
        self._of: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> None:
        self._of.setdefault(loop, []).append(arrived)

    def send(self) -> None:
        for loop, arrived in self._of.items():
            try:
                loop.call_soon_threadsafe(_set_all, arrived)
            except RuntimeError:  # the loop has been closed
                pass
        self._of = {}


def _set_all(arrived: list[asyncio.Event]) -> None:
    for a in arrived:
        a.set()


class Request:
    """A prompt with its answer. Made by Engine.submit(). Its caller reads events, each once: `for event in request`,
    `async for event in request`, or waits for the end with wait()."""

    def __init__(
        self,
        number: int,
        prompt: list[int],
        search: SearchOptions,
        options: RequestOptions,
        *,
        decode: Callable[[list[int]], str],
        priority: int = 0,
        client: str = "",
        room: int,
        adapter: int = 0,
        seed: bytes = b"",
    ):
        """room: the most new tokens. adapter: its number, 0 for none. seed: begins the names of its pages."""
        self.adapter, self.seed = adapter, seed
        self.number, self.priority, self.client = number, priority, client
        self.search, self.options, self.room = search, options, room
        self.prompt_tokens = len(prompt)
        self.tokens = list(prompt)  #: the prompt's and the answer's
        self.computed = 0  #: of them in the cache, or written there by a step in flight
        self.unknown = 0  #: tokens after them that steps in flight choose
        self.slot = -1  #: while it runs: its place in the decoder's table of pages and of last tokens
        self.drafted = 0  #: of them in the draft model's cache
        self.guesses: tuple[int, ...] = ()  #: by the last n-gram that was looked up
        self.text_array = np.empty(0, np.int64)  #: the tokens, for looking up
        self.text_known = 0  #: of them in text_array
        self.kept = 0  #: of the prompt found in the cache when it began
        self.pages: list[int] = []
        self.allowed: np.ndarray[Any, Any] | None = None  #: the constraint's tokens for the next step
        self.key = b""  #: of the last full page
        self.published = 0  #: full pages that others can find
        self.admitted = 0  #: its place among those that run
        self.preempted = 0  #: how often its pages were taken away
        self.ending = ""  #: why it takes part in no more steps; empty while it waits or runs
        self.finished = ""  #: the same when its caller has been told, as in EndEvent
        self.error: Error | None = None
        self.text = ""
        self.cancelled = False
        self.started = time.perf_counter()
        self.first: float | None = None  #: seconds until the first token
        self.total = 0.0
        self._stream = TextStream(decode, search.stop)
        self._random = np.random.default_rng(search.seed)
        adjusts = search.repetition_penalty != 1 or options.presence_penalty or options.frequency_penalty
        sample, pure = "", False
        if search.samples:
            pure = not search.top_k and search.top_p == 1
            sample = "few" if pure or 0 < search.top_k <= FEW else "all"
        #: For StepKind.sample: temperature, top_p, min_p, top_k, and whether neither of top_p and top_k applies.
        self.drawing = search.temperature, search.top_p, search.min_p, search.top_k or 1 << 40, pure
        kind = StepKind(
            sample,
            bool(adjusts or options.logit_bias or options.constraint is not None),
            options.logprobs is not None,
            adapter > 0,
        )
        self._kind = _KINDS.setdefault(kind, kind)  # one object, so that equal kinds are found fast
        self._drawn: list[float] = []
        self._told = 0  # tokens of which the caller knows
        self._counts: dict[int, int] = {}
        self._done = threading.Event()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._listener: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None  # set by its loop's thread
        self._listens_for_all = True  # the listener is told of every event, not of the last one only

    @property
    def answer(self) -> list[int]:
        """Tokens of the answer so far."""
        return self.tokens[self.prompt_tokens :]

    # ---- for the caller
    def cancel(self) -> None:
        """Ends the request; its memory is free before the next step."""
        self.cancelled = True

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it has ended, after at most `timeout` seconds."""
        return self._done.wait(timeout)

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._events.get()
            yield event
            if isinstance(event, EndEvent):
                return

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for events in self.batches():
            for event in events:
                yield event

    async def batches(self, pause: Callable[[], float] = lambda: 0.0) -> AsyncIterator[list[Event]]:
        """The events, those together that have come since the last ones were taken. pause: seconds from taking some to taking
        the next, in which others come; the first ones are taken at once."""
        while True:
            events = await self._arrived(False)
            yield events
            if isinstance(events[-1], EndEvent):
                return
            seconds = pause()
            if seconds > 0:
                await asyncio.sleep(seconds)

    async def ended(self) -> list[Event]:
        """All events, when the last one has come: takes less time than following them."""
        return await self._arrived(True)

    async def _arrived(self, all_of_them: bool) -> list[Event]:
        """Events that nobody has taken, one at least."""
        events: list[Event] = []
        arrived: asyncio.Event | None = None
        try:
            while True:
                with contextlib.suppress(queue.Empty):
                    while True:
                        events.append(self._events.get_nowait())
                if events and (not all_of_them or isinstance(events[-1], EndEvent)):
                    return events
                if arrived is None:  # looks again for events that came before it was known
                    arrived = asyncio.Event()
                    self._listens_for_all = not all_of_them
                    self._listener = asyncio.get_running_loop(), arrived
                    continue
                await arrived.wait()
                arrived.clear()
        finally:
            self._listener = None

    # ---- for the engine's thread
    def kind(self) -> StepKind:
        """What a step must compute to give it a token."""
        return self._kind

    def random(self, place: int) -> float:
        """The number that chooses the answer's token at this place. It depends on the seed and the place alone."""
        while len(self._drawn) <= place:
            self._drawn.append(float(self._random.random(dtype=np.float32)))
        return self._drawn[place]

    def changes(self) -> tuple[list[int], list[float], list[bool]]:
        """Tokens whose logits change, what is added to them, and whether the repetition penalty applies."""
        o = self.options
        offsets: dict[int, float] = {int(t): float(v) for t, v in o.logit_bias.items()}
        if o.presence_penalty or o.frequency_penalty:
            for token, count in self._counts.items():
                offsets[token] = offsets.get(token, 0.0) - o.presence_penalty - o.frequency_penalty * count
        repeated = set(self.tokens) if self.search.repetition_penalty != 1 else set()
        tokens = sorted(repeated | offsets.keys())
        return tokens, [offsets.get(t, 0.0) for t in tokens], [t in repeated for t in tokens]

    def take(self, token: int, ends: tuple[int, ...]) -> tuple[str, bool]:
        """Takes a chosen token. Returns why the answer ends with it, or an empty text, and whether it has no text."""
        if self.first is None:
            self.first = time.perf_counter() - self.started
        self.tokens.append(token)
        over = False
        if self._kind.adjust:
            self._counts[token] = self._counts.get(token, 0) + 1
            over = self.options.constraint.accept(token) if self.options.constraint else False
        if token in ends and not self.search.ignore_eos:
            return "end", True
        if self.options.stop_tokens and token in self.options.stop_tokens:
            return "stop", True
        if over:
            return "end", False
        return ("length" if len(self.tokens) - self.prompt_tokens >= self.room else ""), False

    def show(self, event: TokenEvent, reason: str, silent: bool, wakes: Wakes) -> str:
        """Tells the caller of a token that was taken, with its text. Returns why the answer ends with it."""
        text = "" if silent else self._stream.add(event.token)
        self._told += 1
        if self._stream.stopped:
            reason = "stop"
            del self.tokens[self.prompt_tokens + self._told :]  # guesses that were right have been taken already
        if text:
            self.text += text
            event.text = text
        self._deliver(event, wakes)
        return reason

    def end(self, reason: str, error: Error | None, wakes: Wakes) -> None:
        """The last event."""
        rest = "" if reason in ("cancelled", "error") else self._stream.finish()
        if self._stream.stopped and reason == "length":
            reason = "stop"
        self.text += rest
        self.error = error
        self.total = time.perf_counter() - self.started
        self.finished = reason
        self._deliver(EndEvent(reason, rest, error), wakes)
        self._done.set()

    def _deliver(self, event: Event, wakes: Wakes) -> None:
        self._events.put(event)
        # The event comes first: a listener that is set now finds it, or sees it before it waits.
        listener = self._listener
        if listener is not None and (self._listens_for_all or isinstance(event, EndEvent)):
            wakes.add(*listener)
