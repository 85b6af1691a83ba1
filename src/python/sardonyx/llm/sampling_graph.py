"""ONNX nodes that choose the next token from logits, so that sampling runs where the model runs.

The order of the filters and their meaning are those of Hugging Face's transformers: repetition penalty (Keskar et al. 2019,
arXiv:1909.05858), temperature, top-k (Fan et al. 2018, arXiv:1805.04833), top-p (Holtzman et al. 2019, arXiv:1904.09751),
min-p (Nguyen et al. 2024, arXiv:2407.01082). A token is drawn by its cumulative probability and one uniform number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .packages import needed

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class SamplingKind:
    """How a program chooses from logits; parameters are inputs of its runs."""

    mode: str  #: "greedy", "sample" or "beam"
    penalty: bool = False  #: repetition penalty
    candidates: int = (
        0  #: "sample": number of most likely tokens that are sorted; 0: all tokens count, unsorted. "beam": number kept
    )


class Nodes:
    """Adds nodes to a graph; names start with "sardonyx/"."""

    def __init__(self, graph: onnx.GraphProto):
        self._onnx, self.graph, self._count = needed("onnx"), graph, 0

    def add(self, kind: str, *inputs: str, outputs: tuple[str, ...] | None = None, **attributes: Any) -> str:
        self._count += 1
        names = outputs or (f"sardonyx/{kind}_{self._count}",)
        self.graph.node.append(
            self._onnx.helper.make_node(kind, list(inputs), list(names), name=names[0], **attributes)
        )
        return names[0]

    def constant(self, value: Any, dtype: Any) -> str:
        self._count += 1
        name = f"sardonyx/constant_{self._count}"
        self.graph.initializer.append(self._onnx.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        return self.add("Cast", value, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def input(self, name: str, dtype: Any, shape: list[Any]) -> str:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.graph.input.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, dtype: Any, shape: list[Any]) -> None:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.add("Identity", value, outputs=(name,))
        self.graph.output.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))


def _range(n: Nodes, size: str) -> str:
    """0 to size - 1; size is a scalar."""
    return n.add("Range", n.constant(0, np.int64), size, n.constant(1, np.int64))


def add_sampling(n: Nodes, logits: str, vocabulary: int, kind: SamplingKind, ids: Any = np.int64) -> None:
    """Takes logits [batch, vocabulary] to the graph's outputs.

    "greedy" and "sample": next_tokens [batch, 1] of the dtype `ids`. "beam": beam_scores float32 and beam_choices int64 [candidates of
    sums of log probabilities, and which of [batch * vocabulary] they are]; input beam_sums float32 [batch]. With
    `penalty`: inputs repetition_penalty float32 [1] and seen uint8 [batch, vocabulary]; output seen_next, which has the
    chosen tokens too (not for beams). "sample": inputs temperature, top_p, min_p float32 [1], top_k int64 [1], random
    float32 [steps, batch] in [0, 1), step int64 [1]; output step_next.
    """
    batch = "batch_size"
    scores = n.cast(logits, np.float32)
    if kind.penalty:
        penalty = n.input("repetition_penalty", np.float32, [1])
        seen = n.input("seen", np.uint8, [batch, vocabulary])
        positive = n.add("Greater", scores, n.constant(0, np.float32))
        lower = n.add("Where", positive, n.add("Div", scores, penalty), n.add("Mul", scores, penalty))
        scores = n.add("Where", n.cast(seen, np.bool_), lower, scores)
    if kind.mode == "beam":
        sums = n.input("beam_sums", np.float32, [batch])
        wide = n.add("Unsqueeze", sums, n.constant([1], np.int64))
        total = n.add("Add", n.add("LogSoftmax", scores, axis=-1), wide)
        flat = n.add("Reshape", total, n.constant([-1], np.int64))
        best = ("sardonyx/beam_values", "sardonyx/beam_index")
        n.add("TopK", flat, n.constant([kind.candidates], np.int64), outputs=best, axis=-1, largest=1, sorted=1)
        n.output(best[0], "beam_scores", np.float32, [kind.candidates])
        n.output(best[1], "beam_choices", np.int64, [kind.candidates])
        return
    if kind.mode == "greedy":
        token = n.add("ArgMax", scores, axis=-1, keepdims=1)
    else:
        token = _draw(n, scores, kind, batch)
    if kind.penalty:
        here = n.add("Equal", _range(n, n.constant(vocabulary, np.int64)), token)
        marked = n.add("Where", here, n.constant(1, np.uint8), seen)
        n.output(marked, "seen_next", np.uint8, [batch, vocabulary])
    n.output(token if ids == np.int64 else n.cast(token, ids), "next_tokens", ids, [batch, 1])


def _draw(n: Nodes, scores: str, kind: SamplingKind, batch: str) -> str:
    temperature, min_p = n.input("temperature", np.float32, [1]), n.input("min_p", np.float32, [1])
    random = n.input("random", np.float32, ["random_steps", batch])
    step = n.input("step", np.int64, [1])
    n.output(n.add("Add", step, n.constant([1], np.int64)), "step_next", np.int64, [1])
    last = n.constant([-1], np.int64)
    order = ""
    if kind.candidates:
        sorted_names = ("sardonyx/sorted", "sardonyx/order")
        count = n.constant([kind.candidates], np.int64)
        n.add("TopK", scores, count, outputs=sorted_names, axis=-1, largest=1, sorted=1)
        scores, order = sorted_names
    scores = n.add("Div", scores, temperature)
    if kind.candidates:
        top_k, top_p = n.input("top_k", np.int64, [1]), n.input("top_p", np.float32, [1])
        rank = _range(n, n.constant(kind.candidates, np.int64))
        scores = n.add("Where", n.add("Less", rank, top_k), scores, n.constant(-np.inf, np.float32))
    p = n.add("Softmax", scores, axis=-1)
    highest = n.add("ReduceMax", p, last, keepdims=1)
    keep = n.add("GreaterOrEqual", p, n.add("Mul", highest, min_p))
    if kind.candidates:
        before = n.add("CumSum", p, n.constant(1, np.int64), exclusive=1)
        keep = n.add("And", keep, n.add("Less", before, top_p))
    kept = n.add("Where", keep, p, n.constant(0, np.float32))
    sums = n.add("CumSum", kept, n.constant(1, np.int64))
    total = n.add("ReduceMax", sums, last, keepdims=1)
    number = n.add("Gather", random, step, axis=0)  # [1, batch]
    target = n.add("Mul", n.add("Transpose", number, perm=[1, 0]), total)
    below = n.cast(n.add("LessOrEqual", sums, target), np.int64)
    at = n.add("ReduceSum", below, last, keepdims=1)
    return n.add("GatherElements", order, at, axis=1) if kind.candidates else at
