"""The nodes that can be quantised, called layers: GEMMs and convolutions of an activation and constant weights."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .onnx_model import OnnxModel, nested_graphs

Array = np.ndarray[Any, Any]


@dataclass
class Layer:
    """A MatMul, Gemm or Conv node of the main graph with constant float32 weights on the right."""

    node: Any  #: onnx.NodeProto
    kind: str  #: "MatMul", "Gemm" or "Conv"
    activation: str
    weight: str
    axis: int  #: of the weight's output channels
    label: str  #: "name (operator)"

    @property
    def input_axis(self) -> int:
        """Of the weight's input channels."""
        return 1 if self.kind == "Conv" else 1 - self.axis

    @property
    def activation_axis(self) -> int:
        """Of the activation's channels."""
        return 1 if self.kind == "Conv" else -1


def label_of(node: Any) -> str:
    if node.name:
        return f"{node.name} ({node.op_type})"
    return f"{node.op_type} of '{node.output[0]}'" if node.output else str(node.op_type)


def attribute(node: Any, name: str, default: Any) -> Any:
    for a in node.attribute:
        if a.name == name:
            return a.f if isinstance(default, float) else a.i
    return default


def excluded(node: Any, patterns: Sequence[str]) -> bool:
    """Whether a pattern ("*head*") matches the node's name or its first output's."""
    names = [node.name, *node.output[:1]]
    return any(fnmatch.fnmatchcase(n, p) for n in names for p in patterns)


def find_layers(
    model: OnnxModel, exclude: Sequence[str], *, grouped: bool, half: bool = False
) -> tuple[list[Layer], dict[str, str]]:
    """The layers in the model's order; for the other MatMul, Gemm and Conv nodes the reason why they are not quantised.

    grouped: convolutions with groups too. half: float16 weights too.
    """
    found: list[Layer] = []
    why: dict[str, str] = {}
    for node in model.proto.graph.node:
        if not _multiplies(node):
            continue
        label = label_of(node)
        reason = _obstacle(model, node, grouped, half)
        if excluded(node, exclude):
            reason = "excluded by a pattern"
        if reason:
            why[label] = reason
            continue
        rank = len(model.dims(node.input[1]))
        transposed = node.op_type == "Gemm" and attribute(node, "transB", 0)
        axis = 0 if node.op_type == "Conv" or transposed else rank - 1
        found.append(Layer(node, node.op_type, node.input[0], node.input[1], axis, label))
    for graph in nested_graphs(model.proto.graph):
        why |= {label_of(n): "it is in the graph of an If, Loop or Scan" for n in graph.node if _multiplies(n)}
    return found, why


def _multiplies(node: Any) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in ("MatMul", "Gemm", "Conv") and len(node.input) > 1


def _obstacle(model: OnnxModel, node: Any, grouped: bool, half: bool) -> str:
    weight = node.input[1]
    if weight not in model.weights:
        producer = model.producers.get(weight)
        if producer is not None and producer.op_type == "DequantizeLinear":
            return "the model quantises it already"
        return "its right operand is not constant"
    if not model.is_float_weight(weight, half=half):
        return "its weights are not float32"
    rank = len(model.dims(weight))
    if node.op_type == "Conv":
        if rank not in (3, 4):
            return f"its weights have rank {rank}"
        if not grouped and attribute(node, "group", 1) != 1:
            return "it has groups"
    elif rank != 2:
        return f"its weights have rank {rank}"
    if node.op_type == "Gemm" and attribute(node, "transA", 0):
        return "its left operand is transposed"
    if node.input[0] in model.weights:
        return "its left operand is constant"
    return ""
