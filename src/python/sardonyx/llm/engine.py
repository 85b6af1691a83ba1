"""Continuous batching: requests join and leave a running batch at each step. See scheduler.py, pages.py, paged_graph.py."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import Error, InvalidArgumentError, OverloadedError, UnsupportedError
from .decoder import checked_prompt
from .engine_request import EndEvent, Event, Request, TokenEvent, Wakes, request_options
from .engine_results import EngineStatistics, generation, known_error
from .language_model import Generation
from .lora import Adapters
from .paged_decoder import Chosen, PagedDecoder
from .paged_parallel import CachesLostError, ParallelPagedDecoder
from .paged_sampling import StepKind
from .pages import PagePool
from .parallel import device_names
from .scheduler import Piece, Scheduler
from .speculation import DraftSpeculator, NgramSpeculator, Speculator, draft_graph
from .speculation import checked as speculation_options
from .texts import Prompt, Texts

#: Parts of a prompt with more tokens run as one block of attention; shorter ones join the tokens of other sequences.
_SHORT = 16
_MOST_LOSSES = 3  #: how often in a row devices may be started again for the same requests


class Engine(Texts):
    """A decoder that handles many requests concurrently. All members are thread-safe."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str = "host",
        devices: Sequence[str | int] | None = None,
        transport: str = "auto",
        precision: str = "fp32",
        threads: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        device_memory_limit: int = 0,
        progress: Callable[[Any], object] | None = None,
        cache_memory: int = 0,
        page_tokens: int = 64,
        max_sequences: int = 64,
        max_waiting: int = 1024,
        step_tokens: int = 512,
        share_prefixes: bool = True,
        speculation: Mapping[str, Any] | None = None,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        cache_type: str = "",
    ):
        """Loads a model folder (see LanguageModel; device to progress are its options) whose attention is
        GroupQueryAttention.

        devices, transport: several devices of this machine that divide the model among them, in place of device, as for
            LanguageModel. Without adapters and draft models.

        cache_memory: bytes of the KV cache, which never grows; 0: enough for max_sequences sequences of the model's maximum
            length, but at most half of the device's memory, or of the host's free memory.
        page_tokens: tokens of a page, the unit of the cache that sequences allocate and share.
        max_sequences: requests that run concurrently.
        max_waiting: queued requests; if there are more, submit() raises OverloadedError.
        step_tokens: maximum tokens of a step. Long prompts are computed in chunks of this size, between which the other
            requests continue.
        share_prefixes: sequences with the same prefix share pages, also with sequences that have ended.
        speculation: tokens are guessed, and checked by a step of the model: {"ngram": N} guesses that a text goes on as it
            did after its last N tokens occurred before (fewer match too, but not one alone unless N is 1); {"draft":
            FOLDER} asks a smaller model with the same tokens, whose cache is part of cache_memory. "tokens" is how many are
            guessed at a time (4; at most 15). Requests with constraints, penalties or biases are not guessed.
        adapters: LoRA adapters by name, folders of Hugging Face's PEFT; each request may have one.
        cache_type: "int8": keys and values in 8 bits, with a scale for each row of a head; empty: in the model's type.

        Raises errors.Error: UnsupportedError for other decoders, DeviceError if memory does not suffice.
        """
        super().__init__(folder)
        for name, value, most in (
            ("page_tokens", page_tokens, 4096),
            ("max_sequences", max_sequences, 4096),
            ("max_waiting", max_waiting, 1 << 31),
            ("step_tokens", step_tokens, 1 << 20),
            ("cache_memory", cache_memory, 1 << 62),
        ):
            least = 0 if name in ("cache_memory", "max_waiting") else 1
            if not isinstance(value, int) or not least <= value <= most:
                raise InvalidArgumentError(f"{name} is {value!r}; it must be from {least} to {most}")
        if cache_type not in ("", "int8"):
            raise InvalidArgumentError(f"cache_type is {cache_type!r}; it must be 'int8' or empty")
        compiling: dict[str, Any] = {
            "rows": page_tokens,
            "cache_type": cache_type,
            "device": device,
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
            "progress": progress,
            "slots": 0 if speculation else max_sequences,  # guesses follow from the tokens before them
        }
        self._adapters = Adapters(adapters or {})
        self._devices = device_names(devices) if devices is not None else [device]
        self._transport = transport
        compiling["device"] = self._devices[0]
        if len(self._devices) > 1 and (adapters or "draft" in (speculation or {})):
            raise UnsupportedError("adapters and draft models run on one device only")
        self._speculator: Speculator | None = None
        wanted = max_sequences * -(-self._folder.context // page_tokens)
        self._load_decoders(cache_memory, wanted, speculation_options(speculation), compiling)
        self._guessed = self._right = self._losses = 0
        self._pool = PagePool(self._decoder.pages, page_tokens, share=share_prefixes)
        self._scheduler = Scheduler(
            self._pool,
            most=max_sequences,
            tokens=max(step_tokens, max_sequences),
            guesses=self._speculator.most if self._speculator else None,
        )
        self._max_waiting = max_waiting
        self._wake = threading.Condition()
        self._inbox: list[Request] = []
        self._live: set[Request] = set()
        self._closing = False
        self._numbers = 0
        self._steps = self._prompt_tokens = self._new_tokens = 0
        self._ended: Counter[str] = Counter()
        self._wakes, self._showing = Wakes(), False
        self._later: list[tuple[Request, TokenEvent, str, bool]] = []  # tokens of which callers have not been told
        self._flying: list[tuple[list[Piece], Callable[[], Chosen]]] = []  # what has been started, with its results
        # The thread does not keep the engine alive: an engine that nobody has any more ends.
        wake = self._wake
        own = weakref.ref(self, lambda _: _notify(wake))
        self._thread = threading.Thread(target=_loop, args=(own, wake), name="sardonyx engine", daemon=True)
        self._thread.start()

    def _load_decoders(self, memory: int, wanted: int, guessing: dict[str, Any], compiling: dict[str, Any]) -> None:
        """The decoder, with a cache of this memory or so many pages, and what guesses its tokens."""
        beside = 0
        if "draft" in guessing:
            graph = draft_graph(guessing["draft"], self._folder, compiling["rows"], compiling["cache_type"])
            beside = graph.page_bytes()
        if len(self._devices) > 1:
            own = {k: v for k, v in compiling.items() if k not in ("device", "progress", "slots")}
            self._decoder: Any = ParallelPagedDecoder(
                self._folder,
                self._devices,
                transport=self._transport,
                cache_memory=memory,
                wanted_pages=wanted,
                **own,
            )
            if "ngram" in guessing:
                self._speculator = NgramSpeculator(guessing["ngram"], guessing["tokens"])
            return
        self._decoder = PagedDecoder(
            self._folder,
            adapters=self._adapters,
            cache_memory=memory,
            wanted_pages=wanted,
            beside=beside,
            **compiling,
        )
        if "draft" in guessing:
            pages = self._decoder.pages
            draft = PagedDecoder(guessing["draft"], cache_memory=0, wanted_pages=0, pages=pages, **compiling)
            self._speculator = DraftSpeculator(draft, guessing["tokens"])
        elif "ngram" in guessing:
            self._speculator = NgramSpeculator(guessing["ngram"], guessing["tokens"])

    # ---- requests
    @property
    def device(self) -> str:
        return str(self._decoder.device)

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the LoRA adapters."""
        return tuple(self._adapters.names)

    def submit(
        self, prompt: Prompt, *, priority: int = 0, client: str = "", adapter: str = "", **options: Any
    ) -> Request:
        """Queues a prompt (a text, tokens, or messages); returns at once. Its events come from the Request.

        priority: requests of higher priority run first and may preempt others. client: among requests of equal priority,
        clients get equal shares of tokens. adapter: the name of one of the engine's; empty: none. The options are those of SearchOptions, without beam search, and of RequestOptions.

        Raises errors.Error: InvalidArgumentError for invalid options and for a prompt that is too long, OverloadedError if too
        many requests wait.
        """
        search, own = request_options(self._folder, options)
        tokens = self.prompt_tokens(prompt)
        checked_prompt(tokens, self._folder, search.max_new_tokens)
        number = self._adapters.number(adapter)
        if not isinstance(priority, int) or abs(priority) > 1 << 31:
            raise InvalidArgumentError(f"priority is {priority!r}, not a whole number")
        fits = (self._pool.pages - 1) * self._pool.rows
        if len(tokens) >= fits:
            raise InvalidArgumentError(
                f"the prompt has {len(tokens)} tokens, and the engine's cache has room for {fits}, the answer included; "
                "shorten it, or give the engine more cache_memory"
            )
        with self._wake:
            if self._closing:
                raise OverloadedError("the engine is being closed")
            waiting = len(self._inbox) + len(self._scheduler.waiting)
            if waiting >= max(1, self._max_waiting):
                raise OverloadedError(f"{waiting} requests wait already; ask again later")
            self._numbers += 1
            request = Request(
                self._numbers,
                tokens,
                search,
                own,
                decode=functools.partial(self.decode, shown=own.shown_tokens),
                priority=priority,
                client=client,
                room=min(search.max_new_tokens, self._folder.context - len(tokens), fits - len(tokens)),
                adapter=number,
                seed=self._adapters.key(number),
            )
            self._inbox.append(request)
            self._live.add(request)
            self._wake.notify()
        return request

    def cancel(self, request: Request) -> None:
        """Ends a request; its pages are free before the next step."""
        request.cancel()
        with self._wake:
            self._wake.notify()

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[Event]:
        """submit() with the request's events. Closing the iterator cancels the request. Raises what ended it early."""
        request = self.submit(prompt, **options)
        try:
            for event in request:
                self._raise(event)
                yield event
        finally:
            self.cancel(request)

    async def stream_async(self, prompt: Prompt, **options: Any) -> AsyncIterator[Event]:
        """stream() for asyncio."""
        request = self.submit(prompt, **options)
        try:
            async for event in request:
                self._raise(event)
                yield event
        finally:
            self.cancel(request)

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """The complete answer; requests of other threads run concurrently."""
        return self.generate_batch([prompt], **options)[0]

    def generate_batch(self, prompts: Sequence[Prompt], **options: Any) -> list[Generation]:
        """The answers to several prompts, in their order."""
        requests: list[Request] = []
        try:
            for p in prompts:
                requests.append(self.submit(p, **options))
            for r in requests:
                r.wait()
                if r.error:
                    raise r.error
        finally:
            for r in requests:
                self.cancel(r)
        return [generation(r) for r in requests]

    async def generate_async(self, prompt: Prompt, **options: Any) -> Generation:
        """generate() for asyncio; cancelling the task cancels the request."""
        request = self.submit(prompt, **options)
        try:
            self._raise((await request.ended())[-1])
        finally:
            self.cancel(request)
        return generation(request)

    @staticmethod
    def _raise(event: Event) -> None:
        if isinstance(event, EndEvent) and event.error is not None:
            raise event.error

    # ---- the whole
    def statistics(self) -> EngineStatistics:
        """A snapshot."""
        with self._wake:
            s = self._scheduler
            return EngineStatistics(
                running=len(s.running),
                waiting=len(s.waiting) + len(self._inbox),
                pages=self._pool.pages - 1,
                used_pages=self._pool.used,
                page_tokens=self._pool.rows,
                cache_bytes=self._decoder.pages * self._decoder.page_bytes,
                steps=self._steps,
                prompt_tokens=self._prompt_tokens,
                kept_tokens=s.found,
                new_tokens=self._new_tokens,
                preemptions=s.preemptions,
                guessed_tokens=self._guessed,
                right_guesses=self._right,
                ended=dict(self._ended),
            )

    def prepare(self, kind: StepKind) -> None:
        """Compiles the programs of a kind of step now, instead of when the first request needs them."""
        for single in (False, True):
            self._decoder.program(kind, single)

    def close(self, *, finish: bool = True) -> None:
        """Accepts no more requests, and returns when none is left. finish: requests that wait or run are finished; otherwise
        they are cancelled."""
        with self._wake:
            self._closing = True
            if not finish:
                for r in self._live:
                    r.cancel()
            self._wake.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if isinstance(self._decoder, ParallelPagedDecoder):
            self._decoder.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(finish=kind is None)

    # ---- the engine's thread
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
        them: on masks and penalties, and on guesses."""
        if self._speculator is not None:
            try:
                pieces = [p.guessing() for p in self._speculator.fill(pieces)]
            except Exception as error:
                for p in pieces:
                    self._end(p.request, "error", known_error(error, "the draft model failed"))
                return
        before, self._flying = self._flying, []
        wait = not self._decoder.ahead or self._speculator is not None
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
            self._flying.append((group, results))
            wait = wait or kind.adjust
        self._read(before)
        if wait:
            self._settle()

    def _groups(self, pieces: list[Piece]) -> Iterator[list[Piece]]:
        """What runs at a time: parts of prompts one by one, then all other tokens together."""
        short = 1 if self._decoder.ahead else _SHORT
        together = [p for p in pieces if p.count <= short]
        for group in [*([p] for p in pieces if p.count > short), together]:
            found = [p for p in group if not p.request.ending and self._masked(p)]
            if found:
                yield found

    def _fail(self, group: list[Piece], error: Exception) -> None:
        for p in group:
            if not p.request.ending:
                self._end(p.request, "error", known_error(error, "a step of the engine failed"))

    def _read(self, flying: list[tuple[list[Piece], Callable[[], Chosen]]]) -> None:
        """Takes the tokens of steps that have been started; meanwhile callers are told of those before them."""
        self._show()
        for group, results in flying:
            try:
                chosen = results()
            except CachesLostError as error:
                self._lose(group, error)
                continue
            except Exception as error:
                self._fail(group, error)
                continue
            self._losses = 0
            self._take(group, chosen)

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
        flying, self._flying = self._flying, []
        self._read(flying)
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
            # A guess that is the token chosen before it was computed rightly, so the token after it counts too.
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


def _notify(wake: threading.Condition) -> None:
    with wake:
        wake.notify_all()


def _loop(own: weakref.ref[Engine], wake: threading.Condition) -> None:
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
            engine._settle()
        del engine, pieces  # requests know the engine's tokenizer
