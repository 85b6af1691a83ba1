"""Generates tokens with a decoder: tokens of prompts in, chosen tokens out, step by step. Independent of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ..errors import InvalidArgumentError
from .beam_search import beam_search
from .decoder import Cache, Decoder, TokenChooser
from .genai_folder import GenaiFolder
from .search_options import SearchOptions


class DecoderRunner(Protocol):
    """The interface through which a language model runs its decoder. Used by one thread at a time."""

    @property
    def device(self) -> str:
        """The names of its devices."""
        ...

    def generate(self, texts: list[list[int]], options: SearchOptions) -> tuple[int, Iterator[list[int]]]:
        """Continues prompts of any lengths. Returns how many of a single prompt's tokens were in the cache, and the
        chosen tokens of all, step by step, until the model's or the options' limit. Closing the iterator ends it."""
        ...

    def beams(self, tokens: list[int], options: SearchOptions, new: int) -> list[int]:
        """The new tokens, at most `new`, of the best text found by beam search."""
        ...


class LocalRunner:
    """A decoder in this process."""

    def __init__(self, folder: GenaiFolder, **options: Any):
        """options: those of Decoder."""
        self._folder = folder
        self.decoder = Decoder(folder, **options)
        self._communicator = options.get("communicator")
        self._cache: Cache | None = None  # of the last single sequence

    @property
    def device(self) -> str:
        return self.decoder.device

    def generate(self, texts: list[list[int]], options: SearchOptions) -> tuple[int, Iterator[list[int]]]:
        if len(texts) > 1:
            cache = self.decoder.new_cache(len(texts), self._capacity(texts, options))
            return 0, self._tokens(texts, options, cache, 0)
        cache, kept = self._cache_for(texts[0], options)
        return kept, self._single(texts[0], options, cache, kept)

    def beams(self, tokens: list[int], options: SearchOptions, new: int) -> list[int]:
        self._cache = None  # frees memory for the caches of the beams
        return beam_search(self.decoder, tokens, options, new)

    def _single(self, tokens: list[int], options: SearchOptions, cache: Cache, kept: int) -> Iterator[list[int]]:
        given: list[int] = []
        try:
            for row in self._tokens([tokens[kept:]], options, cache, kept, whole=tokens):
                given.extend(row)
                yield row
        finally:  # the last token has not been an input yet
            cache.tokens = (tokens + given)[:-1] if given else []

    def _capacity(self, texts: list[list[int]], options: SearchOptions) -> int:
        return min(max(map(len, texts)) + options.max_new_tokens, self._folder.context)

    def _cache_for(self, tokens: list[int], options: SearchOptions) -> tuple[Cache, int]:
        """A cache with enough capacity, and how many of the tokens are in it."""
        cache, capacity = self._cache, self._capacity([tokens], options)
        self._cache = None  # in case of an error below
        kept = 0
        if cache is not None and self.decoder.graph.cache.shared:
            while kept < min(len(cache.tokens), len(tokens) - 1) and cache.tokens[kept] == tokens[kept]:
                kept += 1
        if cache is None or (not kept and cache.capacity < capacity) or not self.decoder.graph.cache.shared:
            cache, kept = None, 0  # frees memory for the new one
            cache = self.decoder.new_cache(1, capacity)
        else:
            cache = self.decoder.grown(cache, capacity)
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
        """The chosen tokens, step by step; `kept` tokens are in the cache before the texts. The next step is started before a step's tokens are read on the host: it reads them in device memory."""
        decoder, batch = self.decoder, len(texts)
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
        capacity_width = decoder.on_device(np.zeros((batch, cache.capacity), np.int8)) if shared else None

        def memory(step: int) -> dict[str, Any]:
            """Swaps the two sets of small tensors: the next step reads what this one has written."""
            chooser.turn(step)
            return {**chooser.outputs, "next_tokens": buffers[1 - step % 2], "lengths_next": lengths[1 - step % 2]}

        attended = capacity_width if kept and capacity_width is not None else np.zeros((batch, kept + longest), np.int8)
        decoder.step(chooser.kind, ids, lengths[0], attended, cache, chooser.inputs, memory(0))
        self._cache = cache if batch == 1 else None
        position = kept + longest  # of the longest sequence: tokens that the cache has
        steps = min(options.max_new_tokens, self._folder.context - position)
        bound: dict[int, Any] = {}
        if shared:
            for step in (1, 2):
                outputs = memory(step)
                bound[step % 2] = decoder.bound_step(
                    chooser.kind,
                    buffers[step % 2],
                    lengths[step % 2],
                    capacity_width,
                    cache,
                    dict(chooser.inputs),
                    outputs,
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
                row = [int(t) for t in buffers[step % 2].numpy()[:, 0]]
                if self._communicator is not None:
                    self._communicator.check()  # if another process has failed, the result is not valid
                yield row
        finally:  # a step may be in flight
            decoder.stream.synchronize()
