"""Adds and pooling between 8-bit layers, which then read 8 bits instead of floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .layers import Layer
from .onnx_model import OnnxModel
from .qdq import Format, activation_scale, dequantised, quantised
from .ranges import Histogram, Range

_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool")
#: Element-wise or without arithmetic: between an Add or a pooling and the layer that reads it.
_PASSING = ("Relu", "Clip", "Flatten", "Reshape", "Squeeze", "Identity")


@dataclass(frozen=True)
class Reading:
    """An operand of an Add or of a pooling that is read in 8 bits."""

    node: Any  #: onnx.NodeProto
    index: int  #: of its inputs
    value: str
    same_as: str = ""  #: of MaxPool: the value behind it, which takes the same scale


def find_readings(model: OnnxModel, layers: Sequence[Layer]) -> list[Reading]:
    """What Adds and pooling whose results are quantised for a layer can read in 8 bits, the last ones first.

    Of an Add, one operand that a layer computes stays as it is, since the Add is part of that layer's epilogue.
    """
    eight = {p.activation for p in layers}
    computed = {p.node.output[0] for p in layers}
    found: list[Reading] = []
    for node in reversed(model.proto.graph.node):
        if node.domain not in ("", "ai.onnx"):
            continue
        end = _end(model, node.output[0], eight) if node.op_type in (*_POOLS, "Add") else ""
        if not end:
            continue
        if node.op_type in _POOLS:
            exact = node.op_type == "MaxPool" and end == node.output[0] and len(node.output) == 1
            found.append(Reading(node, 0, node.input[0], end if exact else ""))
            eight.add(node.input[0])
            continue
        fused = [k for k, x in enumerate(node.input) if x in computed and x not in eight and _read_once(model, x)]
        for k, x in enumerate(node.input):
            if k not in fused[:1] and x not in model.weights:
                found.append(Reading(node, k, x))
                eight.add(x)
    return found


def _end(model: OnnxModel, value: str, eight: set[str]) -> str:
    """The first value of a chain of nodes after this one that is quantised; "": something else reads one of them."""
    while value not in eight:
        readers = model.readers.get(value, [])
        if value in model.outputs or value in model.captured or len(readers) != 1:
            return ""
        reader = readers[0]
        scaling = reader.op_type == "Mul" and reader.input[1] in model.weights  # SmoothQuant's, for instance
        if (reader.op_type not in _PASSING and not scaling) or reader.input[0] != value:
            return ""
        value = reader.output[0]
    return value


def _read_once(model: OnnxModel, value: str) -> bool:
    return value not in model.outputs and value not in model.captured and len(model.readers.get(value, [])) == 1


def rounding_error(h: Histogram, r: Range, form: Format, *, symmetric: bool) -> float:
    """Root mean square of what rounding the values to 8 bits changes, relative to that of the values."""
    x, n = h.centers(), h.bins.astype(np.float64)
    s = activation_scale(r, form, symmetric=symmetric)
    error = dequantised(quantised(x, s, form), s).astype(np.float64) - x
    square = float(n @ x**2)
    return float(np.sqrt((n @ error**2) / square)) if square else 0.0


def within_limit(
    model: OnnxModel, layers: Sequence[Layer], errors: Mapping[str, float], limit: float
) -> tuple[list[Reading], dict[str, str]]:
    """The readings between these layers of values whose error is known and at most the limit; of others with a known error
    the reason why not."""
    found = [r for r in find_readings(model, layers) if r.value in errors]
    why = {
        r.value: f"rounding it has an error of {errors[r.value]:.3g}, above the limit of {limit:g}"
        for r in found
        if errors[r.value] > limit
    }
    return [r for r in found if r.value not in why], why
