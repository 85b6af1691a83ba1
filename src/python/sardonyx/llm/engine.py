"""Continuous batching: requests join and leave a running batch at each step. See scheduler.py, pages.py, paged_graph.py."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError, OverloadedError, UnsupportedError
from .decoder import checked_prompt
from .engine_request import EndEvent, Event, Request, Wakes, request_options
from .engine_results import EngineStatistics, generation
from .engine_steps import EngineSteps, notify, run_steps
from .host_pages import HostPages
from .language_model import Generation
from .lora import Adapters
from .paged_decoder import PagedDecoder
from .paged_graph import CACHE_TYPES
from .paged_parallel import ParallelPagedDecoder
from .paged_sampling import StepKind
from .pages import PagePool
from .parallel import device_names
from .scheduler import Scheduler
from .speculation import DraftSpeculator, NgramSpeculator, Speculator, draft_graph
from .speculation import checked as speculation_options
from .step_inputs import MOST_PARTS
from .step_sizes import most_beside
from .step_times import StepTimes
from .texts import Prompt, Texts


def _check(
    page_tokens: int,
    max_sequences: int,
    max_waiting: int,
    step_tokens: int,
    cache_memory: int,
    swap_memory: int,
    cache_type: str,
) -> None:
    """Raises InvalidArgumentError."""
    for name, value, most in (
        ("page_tokens", page_tokens, 4096),
        ("max_sequences", max_sequences, 4096),
        ("max_waiting", max_waiting, 1 << 31),
        ("step_tokens", step_tokens, 1 << 20),
        ("cache_memory", cache_memory, 1 << 62),
        ("swap_memory", swap_memory, 1 << 62),
    ):
        least = 0 if name in ("cache_memory", "swap_memory", "max_waiting") else 1
        if not isinstance(value, int) or not least <= value <= most:
            raise InvalidArgumentError(f"{name} is {value!r}; it must be from {least} to {most}")
    if cache_type not in ("", *CACHE_TYPES):
        raise InvalidArgumentError(f"cache_type is {cache_type!r}; it must be 'int8', 'fp8' or empty")


def _checked_stages(stages: int, devices: int) -> int:
    """Raises InvalidArgumentError."""
    if not isinstance(stages, int) or stages < 1 or devices % stages:
        raise InvalidArgumentError(
            f"pipeline_parallel_size is {stages!r}; it must divide the number of devices, {devices}"
        )
    return stages


class Engine(Texts, EngineSteps):
    """A decoder that handles many requests concurrently. All members are thread-safe."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str = "host",
        devices: Sequence[str | int] | None = None,
        transport: str = "auto",
        pipeline_parallel_size: int = 1,
        precision: str = "fp32",
        threads: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        device_memory_limit: int = 0,
        progress: Callable[[Any], object] | None = None,
        cache_memory: int = 0,
        swap_memory: int = 0,
        page_tokens: int = 64,
        max_sequences: int = 64,
        max_waiting: int = 1024,
        step_tokens: int = 512,
        share_prefixes: bool = True,
        speculation: Mapping[str, Any] | None = None,
        adapters: Mapping[str, str | os.PathLike[str]] | None = None,
        cache_type: str = "",
        unpacked_weights: bool = False,
    ):
        """Loads a model folder (see LanguageModel; device to progress are its options) whose attention is
        GroupQueryAttention.

        devices, transport: several devices of this machine that divide the model among them, in place of device, as for
            LanguageModel. Without adapters and draft models.
        pipeline_parallel_size: stages into which the layers are divided. Each has as many successive devices, which divide it
            further (tensor parallelism). Must divide the number of devices.

        cache_memory: bytes of the KV cache, which never grows; 0: enough for max_sequences sequences of the model's maximum
            length, but at most half of the device's memory, or of the host's free memory.
        swap_memory: bytes of host memory to which the pages of preempted requests are copied, and from which they are copied
            back when the request runs again. If they do not fit, and with 0, they are computed again.
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
        cache_type: "int8", "fp8" (float8_e4m3fn): keys and values in 8 bits, with scales by row; empty: the model's type.
        unpacked_weights: weights of 4 and 8 bits are kept in 16 bits too, for longer steps (the option of compile()).

        Raises errors.Error: UnsupportedError for other decoders, DeviceError if memory does not suffice.
        """
        super().__init__(folder)
        _check(page_tokens, max_sequences, max_waiting, step_tokens, cache_memory, swap_memory, cache_type)
        self._devices = device_names(devices) if devices is not None else [device]
        compiling: dict[str, Any] = {
            "rows": page_tokens,
            "cache_type": cache_type,
            "device": self._devices[0],
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
            "progress": progress,
            "unpacked_weights": unpacked_weights,
            "slots": 0 if speculation else max_sequences,  # guesses follow from the tokens before them
        }
        self._adapters = Adapters(adapters or {})
        self._transport, self._stages = transport, _checked_stages(pipeline_parallel_size, len(self._devices))
        if len(self._devices) > 1 and (adapters or "draft" in (speculation or {})):
            raise UnsupportedError("adapters and draft models run on one device only")
        self._speculator: Speculator | None = None
        wanted = max_sequences * -(-self._folder.context // page_tokens)
        self._load_decoders((cache_memory, swap_memory), wanted, speculation_options(speculation), compiling)
        self._pool = PagePool(self._decoder.pages, page_tokens, share=share_prefixes)
        ahead = self._decoder.ahead and self._speculator is None
        self._scheduler = Scheduler(
            self._pool,
            most=max_sequences,
            tokens=max(step_tokens, max_sequences),
            guesses=self._speculator.most if self._speculator else None,
            stages=1 if self._speculator else self._decoder.stages,
            host=HostPages(self._decoder.copies, self._decoder.host_places, page_tokens) if swap_memory else None,
            parts=MOST_PARTS if ahead else 1,
            times=StepTimes() if ahead else None,
        )
        self._max_waiting = max_waiting
        wake = self._wake = threading.Condition()
        self._inbox: list[Request] = []
        self._live: set[Request] = set()
        self._closing = False
        self._numbers = 0
        self._ended: Counter[str] = Counter()
        self._wakes = Wakes()
        self._begin()
        # The thread does not keep the engine alive: an engine that nobody has any more ends.
        own = weakref.ref(self, lambda _: notify(wake))
        self._thread = threading.Thread(target=run_steps, args=(own, wake), name="sardonyx engine", daemon=True)
        self._thread.start()

    def _load_decoders(
        self, memory: tuple[int, int], wanted: int, guessing: dict[str, Any], compiling: dict[str, Any]
    ) -> None:
        """The decoder, with a cache of this memory (of the device, of the host) or so many pages, and what guesses its
        tokens."""
        beside = 0
        if "draft" in guessing:
            graph = draft_graph(guessing["draft"], self._folder, compiling["rows"], compiling["cache_type"])
            beside = graph.page_bytes()
        if len(self._devices) > 1:
            own = {k: v for k, v in compiling.items() if k not in ("device", "progress", "slots")}
            self._decoder = ParallelPagedDecoder(
                self._folder,
                self._devices,
                transport=self._transport,
                stages=self._stages,
                cache_memory=memory[0],
                host_memory=memory[1],
                wanted_pages=wanted,
                **own,
            )
            if "ngram" in guessing:
                self._speculator = NgramSpeculator(guessing["ngram"], guessing["tokens"])
            return
        self._decoder = PagedDecoder(
            self._folder,
            adapters=self._adapters,
            cache_memory=memory[0],
            host_memory=memory[1],
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
        """The names of its devices."""
        return self._decoder.device

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
                host_pages=s.host.places if s.host else 0,
                used_host_pages=s.host.used if s.host else 0,
                restored_tokens=s.host.restored if s.host else 0,
                guessed_tokens=self._guessed,
                right_guesses=self._right,
                ended=dict(self._ended),
            )

    def prepare(self, *kinds: StepKind) -> None:
        """Compiles the programs of these kinds of steps (none given: greedy and sampled ones) with all their kernels and, on GPUs,
        makes the captured graphs of steps of usual sizes. Otherwise that is done when requests first need it. For an engine
        that has no requests yet."""
        s = self._scheduler
        for kind in kinds or (StepKind(), StepKind("few")):
            self._decoder.warm_up(kind, s.most, s.tokens, lambda answers: min(most_beside(answers), s.tokens - answers))
        if self._speculator is not None:
            self._speculator.prepare()

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
