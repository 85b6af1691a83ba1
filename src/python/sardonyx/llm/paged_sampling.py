"""ONNX nodes that choose the next tokens of many sequences, each with its own options.

Filters and their order are those of sampling_graph.py; penalties, biases and masks change the logits before them. A greedy
sequence among sampled ones keeps its most likely token only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .sampling_graph import Nodes, _range

FEW = 64  #: most likely tokens that are sorted, if no sequence of a step needs more
MOST_LOGPROBS = 20


@dataclass(frozen=True)
class StepKind:
    """What a step's program computes besides the decoder: everything that at least one of its sequences needs."""

    sample: str = ""  #: "": the most likely tokens; "few": see FEW; "all": every token is sorted
    adjust: bool = False  #: penalties, biases and masks of tokens
    logprobs: bool = False
    adapters: bool = False  #: see lora.py

    def joined(self, other: StepKind) -> StepKind:
        ranks = ("", "few", "all")
        sample = max(self.sample, other.sample, key=ranks.index)
        return StepKind(
            sample, self.adjust or other.adjust, self.logprobs or other.logprobs, self.adapters or other.adapters
        )


@dataclass
class Chosen:
    """What a step gives for each of its results: the tokens, and log-probabilities if its kind has them."""

    tokens: list[int]
    logprobs: np.ndarray[Any, Any] | None = None  #: [results]
    top_tokens: np.ndarray[Any, Any] | None = None  #: [results, MOST_LOGPROBS]
    top_logprobs: np.ndarray[Any, Any] | None = None


def add_choice(n: Nodes, logits: str, vocabulary: int, kind: StepKind) -> str:
    """Takes logits [results, vocabulary] to the graph's outputs: next_tokens int64 [results, 1], whose value it returns.

    adjust: inputs touched int64 [results, changes], tokens (a row may repeat one, with the same values); offsets float32 of
    that shape, added to their logits after those with `repeated` (bool, same shape) were divided by repetition float32
    [results, 1], negative ones multiplied; allowed uint32 [results, vocabulary / 32], a bit for each token that may be
    chosen. sample: inputs temperature, top_p, min_p, random (in [0, 1)) float32 and top_k int64, all [results, 1], pure
    bool [results, 1]: neither top_k nor top_p applies. logprobs: outputs logprob float32 [results, 1], of the chosen
    token by the unchanged logits, and top_logprobs float32, top_tokens int64 [results, 20].
    """
    scores = n.cast(logits, np.float32)
    whole = scores
    if kind.adjust:
        scores = _adjusted(n, scores, vocabulary)
    if kind.sample:
        token = _drawn(n, scores, vocabulary, kind.sample)
    else:
        token = n.add("ArgMax", scores, axis=-1, keepdims=1)
    n.output(token, "next_tokens", np.int64, ["results", 1])
    if kind.logprobs:
        logs = n.add("LogSoftmax", whole, axis=-1)
        n.output(n.add("GatherElements", logs, token, axis=1), "logprob", np.float32, ["results", 1])
        count = min(MOST_LOGPROBS, vocabulary)
        best = ("sardonyx/top_logs", "sardonyx/top_places")
        n.add("TopK", logs, n.constant([count], np.int64), outputs=best, axis=-1, largest=1, sorted=1)
        n.output(best[0], "top_logprobs", np.float32, ["results", count])
        n.output(best[1], "top_tokens", np.int64, ["results", count])
    return token


def _adjusted(n: Nodes, scores: str, vocabulary: int) -> str:
    touched = n.input("touched", np.int64, ["results", "changes"])
    offsets = n.input("offsets", np.float32, ["results", "changes"])
    repeated = n.input("repeated", np.bool_, ["results", "changes"])
    repetition = n.input("repetition", np.float32, ["results", 1])
    words = -(-vocabulary // 32)
    allowed = n.input("allowed", np.uint32, ["results", words])
    now = n.add("GatherElements", scores, touched, axis=1)
    positive = n.add("Greater", now, n.constant(0, np.float32))
    lower = n.add("Where", positive, n.add("Div", now, repetition), n.add("Mul", now, repetition))
    now = n.add("Add", n.add("Where", repeated, lower, now), offsets)
    scores = n.add("ScatterElements", scores, touched, now, axis=1)
    token = np.arange(vocabulary)
    word = n.add("Gather", allowed, n.constant(token // 32, np.int64), axis=1)
    bit = n.add("BitwiseAnd", word, n.constant(np.uint32(1) << (token % 32).astype(np.uint32), np.uint32))
    may = n.add("Not", n.add("Equal", bit, n.constant(0, np.uint32)))
    return n.add("Where", may, scores, n.constant(-np.inf, np.float32))


def _drawn(n: Nodes, scores: str, vocabulary: int, which: str) -> str:
    names = ("temperature", "top_p", "min_p", "random")
    temperature, top_p, min_p, random = (n.input(name, np.float32, ["results", 1]) for name in names)
    top_k = n.input("top_k", np.int64, ["results", 1])
    pure = n.input("pure", np.bool_, ["results", 1])
    count = vocabulary if which == "all" else min(FEW, vocabulary)
    best = ("sardonyx/sorted", "sardonyx/order")
    n.add("TopK", scores, n.constant([count], np.int64), outputs=best, axis=-1, largest=1, sorted=1)
    ranked = n.add("Div", best[0], temperature)
    rank = _range(n, n.constant(count, np.int64))
    p = n.add("Softmax", n.add("Where", n.add("Less", rank, top_k), ranked, n.constant(-np.inf, np.float32)), axis=-1)
    before = n.add("CumSum", p, n.constant(1, np.int64), exclusive=1)
    at = _place(n, p, n.add("Less", before, top_p), min_p, random)
    token = n.add("GatherElements", best[1], at, axis=1)
    # In the order of tokens, with or without others that are sorted: a seed's answer does not depend on its neighbours.
    plain = n.add("Softmax", n.add("Div", scores, temperature), axis=-1)
    return n.add("Where", pure, _place(n, plain, "", min_p, random), token)


def _place(n: Nodes, p: str, keep: str, min_p: str, random: str) -> str:
    """[results, 1]: which of the probabilities p, of those that min_p and `keep` leave, the random number falls on."""
    last = n.constant([-1], np.int64)
    likely = n.add("GreaterOrEqual", p, n.add("Mul", n.add("ReduceMax", p, last, keepdims=1), min_p))
    keep = n.add("And", keep, likely) if keep else likely
    sums = n.add("CumSum", n.add("Where", keep, p, n.constant(0, np.float32)), n.constant(1, np.int64))
    target = n.add("Mul", random, n.add("ReduceMax", sums, last, keepdims=1))
    return n.add("ReduceSum", n.cast(n.add("LessOrEqual", sums, target), np.int64), last, keepdims=1)
