"""Language models in folders of onnxruntime-genai: prompts in, text out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FileError, InvalidArgumentError, InvalidModelError
from .beam_search import beam_search
from .chat_template import ChatTemplate, Message
from .decoder import Cache, Decoder, TokenChooser, checked_prompt
from .genai_folder import read_folder
from .packages import needed
from .search_options import SearchOptions, search_options
from .text_stream import TextStream

#: A text, tokens, or messages of a conversation.
Prompt = str | Sequence[int] | Sequence[Message]


@dataclass(frozen=True)
class Statistics:
    """Times of one generation, in seconds."""

    prompt_tokens: int
    kept_tokens: int  #: of the prompt, that were in the cache already
    new_tokens: int
    first_token: float  #: from the call to the first token
    total: float

    @property
    def tokens_per_second(self) -> float:
        """Of the tokens after the first; 0 if there are none."""
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

    def finish(self) -> str:
        part = self._stream.finish()
        if self._stream.stopped and not self.finished:
            self.finished = "stop"
        self.text += part
        self.finished = self.finished or "length"
        return part


class LanguageModel:
    """A decoder with its tokenizer, ready to generate. To be used by one thread at a time."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str = "host",
        precision: str = "fp32",
        threads: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        device_memory_limit: int = 0,
        progress: Callable[[Any], object] | None = None,
    ):
        """Loads a folder with genai_config.json, the decoder's .onnx file with its weights, and tokenizer.json, as
        onnxruntime-genai's model builder and convert_gguf() write it. The options are those of sardonyx.compile().

        Raises errors.Error: FileError if the folder lacks a file, InvalidModelError, UnsupportedError, DeviceError.
        """
        self._folder = read_folder(folder)
        file = os.path.join(self._folder.path, "tokenizer.json")
        tokenizers = needed("tokenizers")
        if not os.path.isfile(file):
            raise FileError(f"the folder lacks '{file}'")
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(file)
        except Exception as error:  # the package has no type of its own
            raise InvalidModelError(f"'{file}' can't be read: {error}") from None
        self._template = ChatTemplate(self._folder.path)
        self._decoder = Decoder(
            self._folder,
            device=device,
            precision=precision,
            threads=threads,
            cache_dir=cache_dir,
            device_memory_limit=device_memory_limit,
            progress=progress,
        )
        self._cache: Cache | None = None  # of the last single sequence

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self._folder.context

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        return self._folder.ends

    @property
    def device(self) -> str:
        return self._decoder.device

    @property
    def has_chat_template(self) -> bool:
        """Whether messages can be given."""
        return self._template.known

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; special tokens in it count as such."""
        return list(self.tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def chat_prompt(self, messages: Sequence[Message]) -> str:
        """The text that the model is given for messages of a conversation."""
        return self._template.render(list(messages))

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """The tokens that the model is given."""
        if isinstance(prompt, str):
            return self.encode(prompt)
        items: list[Any] = list(prompt)
        if items and isinstance(items[0], dict):
            text = self.chat_prompt(items)
            return list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        if not all(isinstance(t, (int, np.integer)) for t in items):
            raise InvalidArgumentError("a prompt is a text, a list of tokens or a list of messages")
        return [int(t) for t in items]

    def generate(self, prompt: Prompt, *, on_text: Callable[[str], object] | None = None, **options: Any) -> Generation:
        """Generates the answer to a prompt: a text, tokens, or messages ({"role": "user", "content": ...}).

        on_text: called with each part of the answer as soon as it is there. The options are those of SearchOptions; defaults
        are genai_config.json's. Tokens at the prompt's start that the last generation had too are not computed again: a
        conversation that is given once more with new messages costs only these.

        Raises errors.Error: InvalidArgumentError for options that make no sense and for a prompt that is too long, DeviceError
        when memory runs out. The model can be used again after an error.
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
        """Generates the answers to several prompts at a time, of any lengths. Beam search takes them one after another."""
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
        steps = self._tokens(texts, chosen, self._decoder.new_cache(len(texts), self._room(texts, chosen)), 0)
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

    def _room(self, texts: list[list[int]], options: SearchOptions) -> int:
        return min(max(map(len, texts)) + options.max_new_tokens, self.context)

    def _stream_one(self, tokens: list[int], options: SearchOptions, started: float) -> Iterator[str]:
        cache, kept = self._cache_for(tokens, options)
        answer, first = _Answer(self, options), 0.0
        try:
            for (token,) in self._tokens([tokens[kept:]], options, cache, kept, whole=tokens):
                first = first or time.perf_counter() - started
                part = answer.add(token)
                if part:
                    yield part
                if answer.finished:
                    break
        finally:  # the last token has not been an input yet
            cache.tokens = (tokens + answer.tokens)[:-1]
        if not answer.finished:
            part = answer.finish()
            if part:
                yield part
        total = time.perf_counter() - started
        return Generation(
            answer.text,
            answer.tokens,
            answer.finished,
            Statistics(len(tokens), kept, len(answer.tokens), first, total),
        )

    def _stream_beams(self, tokens: list[int], options: SearchOptions, started: float) -> Iterator[str]:
        self._cache = None  # its memory is free for those of the beams
        new = min(options.max_new_tokens, self.context - len(tokens))
        found = beam_search(self._decoder, tokens, options, new)
        total = time.perf_counter() - started
        answer = _Answer(self, options)
        for token in found:
            part = answer.add(token)
            if part:
                yield part
            if answer.finished:
                break
        if not answer.finished:
            part = answer.finish()
            if part:
                yield part
        statistics = Statistics(len(tokens), 0, len(answer.tokens), total, total)
        return Generation(answer.text, answer.tokens, answer.finished, statistics)

    def _cache_for(self, tokens: list[int], options: SearchOptions) -> tuple[Cache, int]:
        """A cache with room, and how many of the tokens are in it."""
        cache, room = self._cache, self._room([tokens], options)
        self._cache = None  # an error on the way leaves none
        kept = 0
        if cache is not None and self._decoder.graph.cache.shared:
            while kept < min(len(cache.tokens), len(tokens) - 1) and cache.tokens[kept] == tokens[kept]:
                kept += 1
        if cache is None or (not kept and cache.capacity < room) or not self._decoder.graph.cache.shared:
            cache, kept = None, 0  # its memory is free for the new one
            cache = self._decoder.new_cache(1, room)
        else:
            cache = self._decoder.grown(cache, room)
        cache.tokens = tokens[:kept]
        return cache, kept

    def _tokens(
        self,
        texts: list[list[int]],
        options: SearchOptions,
        cache: Cache,
        kept: int,
        whole: list[int] | None = None,
    ) -> Iterator[list[int]]:
        """The chosen tokens, step by step; `kept` tokens are in the cache before the texts. Before a step's tokens are read,
        the next one has been started: it takes them from the device."""
        decoder, batch = self._decoder, len(texts)
        chooser = TokenChooser(decoder, options, [whole] if whole else texts)
        shared = decoder.graph.cache.shared
        longest = max(map(len, texts))
        ids = np.full((batch, longest), self._folder.pad % self._folder.vocabulary, decoder.graph.ids_dtype)
        for row, text in zip(ids, texts):
            if shared:
                row[: len(text)] = text
            else:
                row[longest - len(text) :] = text
        if decoder.graph.pruned and shared and len({len(t) for t in texts}) > 1:
            raise InvalidArgumentError(
                "this model gives the logits of the last position only, so prompts of different lengths can't share a batch"
            )
        lengths = [decoder.on_device(np.array([kept + len(t) for t in texts], np.int64)) for _ in range(2)]
        buffers = [decoder.empty((batch, 1), decoder.graph.ids_dtype) for _ in range(2)]
        room = decoder.on_device(np.zeros((batch, cache.capacity), np.int8)) if shared else None

        def memory(step: int) -> dict[str, Any]:
            """Turns the two sets of small tensors: what a step writes the next one reads."""
            chooser.turn(step)
            return {**chooser.outputs, "next_tokens": buffers[1 - step % 2], "lengths_next": lengths[1 - step % 2]}

        attended = room if kept and room is not None else np.zeros((batch, kept + longest), np.int8)
        decoder.step(chooser.kind, ids, lengths[0], attended, cache, chooser.inputs, memory(0))
        self._cache = cache if batch == 1 else None
        position = kept + longest  # of the longest sequence: tokens that the cache has
        steps = min(options.max_new_tokens, self.context - position)
        bound: dict[int, Any] = {}
        if shared:
            for step in (1, 2):
                outputs = memory(step)
                bound[step % 2] = decoder.bound_step(
                    chooser.kind, buffers[step % 2], lengths[step % 2], room, cache, dict(chooser.inputs), outputs
                )

        def launch(step: int) -> None:
            if shared:
                bound[step % 2]()
                return
            attended = np.zeros((batch, position + step), np.int8)
            outputs = memory(step)
            decoder.step(chooser.kind, buffers[step % 2], lengths[step % 2], attended, cache, chooser.inputs, outputs)

        try:
            for step in range(1, steps + 1):
                if step < steps:
                    launch(step)
                if shared and step > 1:
                    bound[1 - step % 2].wait()
                yield [int(t) for t in buffers[step % 2].numpy()[:, 0]]
        finally:  # a step may be on its way that nobody waits for
            decoder.stream.synchronize()
