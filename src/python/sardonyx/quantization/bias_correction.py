"""Corrects the biases of layers for the shift of each output channel's mean that rounding the weights causes (Nagel et al.,
"Data-free quantization", 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import weight_only
from .layers import Layer
from .onnx_model import OnnxModel
from .qdq import Format, rounded, weight_scale

Array = np.ndarray[Any, Any]


def correct_bias(model: OnnxModel, p: Layer, mean: Array, form: Format, per_channel: bool) -> None:
    """Adds the mean error that the weights' rounding makes in each output channel to the bias of a Conv or a plain Gemm.
    mean: of the activation's channels. Padding of convolutions is not considered."""
    if p.kind == "MatMul" or not weight_only.simple_gemm(p):
        return
    w = model.array(p.weight)
    assert w is not None
    axis = p.axis if per_channel else None
    error = rounded(w, weight_scale(w, axis, form), form, axis) - w
    if p.kind == "Conv":
        shift = -(error.sum(tuple(range(2, w.ndim))) @ mean)
    else:
        shift = -((error if p.axis == 0 else error.T) @ mean)
    shift = shift.astype(np.float32)
    if not np.isfinite(shift).all():
        return
    if len(p.node.input) > 2 and p.node.input[2]:
        bias = model.array(p.node.input[2])
        if bias is None or bias.dtype != np.float32 or bias.ndim != 1 or bias.shape != shift.shape:
            return
        model.replace_weight(p.node, 2, bias + shift)
    else:
        name = model.add_weight(p.weight + "/bias", shift)
        if len(p.node.input) > 2:
            p.node.input[2] = name
        else:
            p.node.input.append(name)
