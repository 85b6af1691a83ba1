"""Beam search: follows the few most likely texts at each step, and returns the best one.

As in Hugging Face's transformers: of the 2n best continuations of n texts, those that end are kept as results with their
sum of log probabilities divided by length ** length_penalty, and the n best others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .decoder import Decoder
from .sampling_graph import SamplingKind
from .search_options import SearchOptions


@dataclass
class Beams:
    """The state of the search, independent of a model."""

    count: int
    ends: frozenset[int]
    length_penalty: float
    early_stopping: bool
    texts: list[list[int]] = field(default_factory=lambda: [[]])  #: tokens so far of each open text
    sums: list[float] = field(default_factory=lambda: [0.0])  #: their log probabilities
    results: list[tuple[float, list[int]]] = field(default_factory=list)  #: ended texts with scores
    done: bool = False

    def _add(self, tokens: list[int], total: float) -> None:
        self.results.append((total / len(tokens) ** self.length_penalty, tokens))
        self.results.sort(key=lambda r: -r[0])
        del self.results[self.count :]

    def advance(self, candidates: Sequence[tuple[float, int, int]]) -> list[int]:
        """Takes the 2 * count best continuations (sum, text, token), the best first. Gives for each text that goes on which
        one it continues."""
        texts, sums, parents = [], [], []
        for rank, (total, parent, token) in enumerate(candidates):
            tokens = [*self.texts[parent], token]
            if token in self.ends:
                if rank < self.count:
                    self._add(tokens, total)
                continue
            texts.append(tokens)
            sums.append(total)
            parents.append(parent)
            if len(texts) == self.count:
                break
        if len(self.results) >= self.count:
            reachable = candidates[0][0] / len(texts[0]) ** self.length_penalty if texts else -np.inf
            self.done = self.early_stopping or self.results[-1][0] >= reachable
        self.done = self.done or not texts
        self.texts, self.sums = texts, sums
        return parents

    def best(self) -> list[int]:
        """The best text, open ones included."""
        if not self.done:
            for tokens, total in zip(self.texts, self.sums):
                if tokens:
                    self._add(tokens, total)
        return self.results[0][1] if self.results else []


def beam_search(decoder: Decoder, prompt: list[int], options: SearchOptions, new: int) -> list[int]:
    """The new tokens of the best text, of at most `new`. Caches are reordered on the device, from one buffer to another."""
    vocabulary, n = decoder.folder.vocabulary, options.num_beams
    ends = frozenset() if options.ignore_eos else frozenset(decoder.folder.ends)
    beams = Beams(n, ends, options.length_penalty, options.early_stopping)
    candidates = min(2 * n, vocabulary)
    kind = SamplingKind("beam", options.repetition_penalty != 1, candidates)
    cache = decoder.new_cache(1, len(prompt) + new)
    spare: list[list[Any]] = []
    if decoder.graph.cache.shared:
        spare = [decoder.new_cache(n, cache.capacity).tensors for _ in range(2)]
    ids, parents = np.array([prompt], decoder.graph.ids_dtype), [0]
    for length in range(len(prompt), len(prompt) + new):
        count = len(parents)
        inputs: dict[str, Any] = {
            "beam_index": np.array(parents, np.int64),
            "beam_sums": np.array(beams.sums, np.float32),
        }
        if kind.penalty:
            inputs["repetition_penalty"] = np.array([options.repetition_penalty], np.float32)
            inputs["seen"] = np.zeros((count, vocabulary), np.uint8)
            for row, text in zip(inputs["seen"], beams.texts):
                row[prompt + text] = 1
        first = length == len(prompt)
        attended = length if first or not decoder.graph.cache.shared else cache.capacity
        width = np.zeros((count, attended), np.int8)
        into: list[Any] | None = None
        if spare and not first:
            into = spare[length % 2] if count == n else []
        results = decoder.step(kind, ids, np.full(count, length, np.int64), width, cache, inputs, {}, into=into)
        scores, choices = results["beam_scores"].numpy(), results["beam_choices"].numpy()
        parents = beams.advance(
            [(float(s), int(c) // vocabulary, int(c) % vocabulary) for s, c in zip(scores, choices)]
        )
        if beams.done:
            break
        ids = np.array([[text[-1]] for text in beams.texts], decoder.graph.ids_dtype)
    return beams.best()
