"""A decoder whose KV cache has 8 bits: scales of keys and values for each channel of each head, from their values on texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from .onnx_model import OnnxModel, needed_onnx
from .qdq import FORMATS, Format
from .ranges import Range

Array = np.ndarray[Any, Any]

FORMS = {"kv-int8": FORMATS["int8"], "kv-fp8": FORMATS["fp8"]}

_PAST, _SCALES = (3, 4), (12, 13)  # inputs of GroupQueryAttention


class Magnitudes:
    """The largest magnitude of each channel of each head, of caches [B, heads, tokens, D]."""

    def __init__(self) -> None:
        self.largest: Array | None = None

    def add(self, values: Array) -> None:
        if not values.shape[2]:
            return
        most = np.abs(values.astype(np.float32)).max((0, 2))
        self.largest = most if self.largest is None else np.maximum(self.largest, most)


def cached(model: OnnxModel) -> list[Any]:
    """The nodes with a KV cache. Raises InvalidArgumentError if there are none, or they can't have 8 bits."""
    nodes = [n for n in model.proto.graph.node if n.op_type == "GroupQueryAttention" and n.domain == "com.microsoft"]
    inputs = {i.name for i in model.proto.graph.input}
    outputs = {o.name for o in model.proto.graph.output}
    if not nodes:
        raise InvalidArgumentError("the model has no GroupQueryAttention, whose KV cache could have 8 bits")
    for n in nodes:
        if len(n.input) > _SCALES[0] and n.input[_SCALES[0]]:
            raise InvalidArgumentError(f"the KV cache of '{n.name}' is quantised already")
        if (
            len(n.output) < 3
            or any(n.input[k] not in inputs for k in _PAST)
            or any(v not in outputs for v in n.output[1:3])
        ):
            raise InvalidArgumentError(f"the KV cache of '{n.name}' is not an input and output of the model")
    return nodes


def write(model: OnnxModel, nodes: Iterable[Any], form: Format, largest: dict[str, Array]) -> dict[str, Range]:
    """Gives the nodes scales, and the caches their type. largest: by the caches' names as outputs. Returns their ranges."""
    onnx = needed_onnx()
    element = {"int8": onnx.TensorProto.INT8, "fp8": onnx.TensorProto.FLOAT8E4M3FN}[form.name]
    places = {v.name: v for v in (*model.proto.graph.input, *model.proto.graph.output, *model.proto.graph.value_info)}
    ranges = {}
    for n in nodes:
        while len(n.input) <= _SCALES[1]:
            n.input.append("")
        for past, present, place in zip(_PAST, n.output[1:3], _SCALES):
            most = np.maximum(largest[present], 1e-6 * max(float(largest[present].max()), 1e-30))
            scale = (most / form.largest).astype(np.float32)[None, :, None, :]
            n.input[place] = model.add_weight(present + "/scale", scale)
            for name in (n.input[past], present):
                places[name].type.tensor_type.elem_type = element
            ranges[present] = Range(-float(most.max()), float(most.max()))
        n.attribute.extend(
            onnx.helper.make_attribute(k, v)
            for k, v in (("k_quant_type", "PER_CHANNEL"), ("v_quant_type", "PER_CHANNEL"), ("kv_cache_bit_width", 8))
        )
    model.index()
    return ranges
