"""Language models in folders of onnxruntime-genai: prompts in, text out."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .decoder import checked_prompt
from .local import DecoderRunner, LocalRunner
from .parallel import ParallelEngine, device_names
from .search_options import SearchOptions, search_options
from .text_stream import TextStream
from .texts import Prompt, Texts


@dataclass(frozen=True)
class Statistics:
    """Times of one generation, in seconds."""

    prompt_tokens: int
    kept_tokens: int  #: of the prompt, found in the KV cache
    new_tokens: int
    first_token: float  #: from the call to the first token
    total: float

    @property
    def tokens_per_second(self) -> float:
        """Rate of the tokens after the first; 0 if there are none."""
        rest = self.total - self.first_token
        return (self.new_tokens - 1) / rest if self.new_tokens > 1 and rest > 0 else 0.0


@dataclass(frozen=True)
class Generation:
    """An answer."""

    text: str  #: without special tokens, and without the stop string that ended it
    tokens: list[int]  #: all new ones, the end token included
    finished: str  #: why it ended: "end" (the model's end token), "stop" (a stop string), "length"
    statistics: Statistics


class _Answer:
    """One sequence while it is generated."""

    def __init__(self, model: LanguageModel, options: SearchOptions):
        self.tokens: list[int] = []
        self.finished = ""
        self._ends = () if options.ignore_eos else model.ends
        self._stream = TextStream(model.decode, options.stop)
        self.text = ""

    def add(self, token: int) -> str:
        """The text that can be shown after this token."""
        self.tokens.append(token)
        if token in self._ends:
            self.finished = "end"
            return self.finish()
        part = self._stream.add(token)
        if self._stream.stopped:
            self.finished = "stop"
        self.text += part
        return part

    def show(self, tokens: Iterable[int]) -> Iterator[str]:
        """The parts of the text as its tokens arrive, until it ends."""
        for token in tokens:
            part = self.add(token)
            if part:
                yield part
            if self.finished:
                return
        part = self.finish()
        if part:
            yield part

    def finish(self) -> str:
        part = self._stream.finish()
        if self._stream.stopped and not self.finished:
            self.finished = "stop"
        self.text += part
        self.finished = self.finished or "length"
        return part


class LanguageModel(Texts):
    """A decoder with its tokenizer. Not thread-safe: use it from one thread at a time."""

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
    ):
        """Loads a folder with genai_config.json, the decoder's .onnx file with its weights, and tokenizer.json, as
        onnxruntime-genai's model builder and convert_gguf() write it. The options are those of sardonyx.compile(), and

        devices: several devices of this machine that divide the model among them (tensor parallelism), in place of device:
            names, or indices of GPUs. Each has its own process; close() ends them.
        transport: how they exchange tensors; see sardonyx.join().

        Raises errors.Error: FileError if the folder lacks a file, InvalidModelError, UnsupportedError, DeviceError.
        """
        super().__init__(folder)
        options: dict[str, Any] = {
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
        }
        chosen = [device] if devices is None else device_names(devices)
        self._engine: DecoderRunner
        if len(chosen) > 1:
            self._engine = ParallelEngine(self._folder, chosen, transport=transport, **options)
        else:
            self._engine = LocalRunner(self._folder, device=chosen[0], progress=progress, **options)

    @property
    def device(self) -> str:
        """The names of its devices."""
        return self._engine.device

    def close(self) -> None:
        """Ends the processes of several devices; otherwise this happens when the model is destroyed."""
        if isinstance(self._engine, ParallelEngine):
            self._engine.close()

    def generate(self, prompt: Prompt, *, on_text: Callable[[str], object] | None = None, **options: Any) -> Generation:
        """Generates the answer to a prompt: a text, tokens, or messages ({"role": "user", "content": ...}).

        on_text: called with each part of the answer as soon as it is available. The options are those of SearchOptions;
        defaults are genai_config.json's. The common prefix of this prompt and the last generation is not computed again: if a
        conversation is passed with new messages, only these are computed.

        Raises errors.Error: InvalidArgumentError for invalid options and for a prompt that is too long, DeviceError when memory
        runs out. The model can be used again after an error.
        """
        parts = self.stream(prompt, **options)
        while True:
            try:
                part = next(parts)
            except StopIteration as end:
                result: Generation = end.value
                return result
            if on_text:
                on_text(part)

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[str]:
        """generate() as an iterator over the answer's parts; the Generation is the value of its StopIteration."""
        chosen = search_options(self._folder.search, options)
        started = time.perf_counter()
        tokens = self.prompt_tokens(prompt)
        checked_prompt(tokens, self._folder, chosen.max_new_tokens)
        if chosen.num_beams > 1:
            return self._stream_beams(tokens, chosen, started)
        return self._stream_one(tokens, chosen, started)

    def generate_batch(self, prompts: Sequence[Prompt], **options: Any) -> list[Generation]:
        """Generates the answers to several prompts of any lengths, in one batch. Beam search computes them one after
        another."""
        chosen = search_options(self._folder.search, options)
        if chosen.num_beams > 1 or len(prompts) == 1:
            return [self.generate(p, **options) for p in prompts]
        if not prompts:
            return []
        started = time.perf_counter()
        texts = [self.prompt_tokens(p) for p in prompts]
        for tokens in texts:
            checked_prompt(tokens, self._folder, chosen.max_new_tokens)
        answers = [_Answer(self, chosen) for _ in texts]
        first = 0.0
        _, steps = self._engine.generate(texts, chosen)
        with contextlib.closing(steps):  # type: ignore[type-var]
            for row in steps:
                first = first or time.perf_counter() - started
                for answer, token, tokens in zip(answers, row, texts):
                    full = len(tokens) + len(answer.tokens) >= self.context
                    if not answer.finished and not full:
                        answer.add(token)
                if all(a.finished for a in answers):
                    break
        for answer in answers:
            if not answer.finished:
                answer.finish()
        total = time.perf_counter() - started
        return [
            Generation(a.text, a.tokens, a.finished, Statistics(len(t), 0, len(a.tokens), first, total))
            for a, t in zip(answers, texts)
        ]

    def _stream_one(self, tokens: list[int], options: SearchOptions, started: float) -> Iterator[str]:
        kept, steps = self._engine.generate([tokens], options)
        answer, first = _Answer(self, options), 0.0

        def tokens_of_steps() -> Iterator[int]:
            nonlocal first
            for (token,) in steps:
                first = first or time.perf_counter() - started
                yield token

        with contextlib.closing(steps):  # type: ignore[type-var]
            yield from answer.show(tokens_of_steps())
        total = time.perf_counter() - started
        return Generation(
            answer.text,
            answer.tokens,
            answer.finished,
            Statistics(len(tokens), kept, len(answer.tokens), first, total),
        )

    def _stream_beams(self, tokens: list[int], options: SearchOptions, started: float) -> Iterator[str]:
        new = min(options.max_new_tokens, self.context - len(tokens))
        found = self._engine.beams(tokens, options, new)
        total = time.perf_counter() - started
        answer = _Answer(self, options)
        yield from answer.show(found)
        statistics = Statistics(len(tokens), 0, len(answer.tokens), total, total)
        return Generation(answer.text, answer.tokens, answer.finished, statistics)
