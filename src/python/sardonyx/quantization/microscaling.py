"""Weights in the MX formats: float8 e4m3 or float4 e2m1 elements, of which 32 along K share a scale that is a power of two.

Open Compute Project, "OCP Microscaling Formats (MX) Specification", 1.0, 2023. In ONNX a DequantizeLinear in blocks with scales
of float8e8m0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..llm.weights import Dense
from .layers import Layer
from .onnx_model import OnnxModel, needed_onnx

Array = np.ndarray[Any, Any]

BLOCK = 32
OPSET = 24  # from which on scales may be float8e8m0

_LEAST, _MOST = -127, 127  # exponents of e8m0


@dataclass(frozen=True)
class MxForm:
    """A type of elements."""

    name: str
    dtype: Any
    bits: int
    largest: float
    exponent: int  #: of the largest power of two

    def scale(self, w: Array, importance: Array | None = None) -> Array:
        """The scale of each block [..., 32]: the specification's, floor(log2(largest)) less the format's, or the double, with
        which nothing saturates; the one with the smaller squared error, weighted by the importance of each channel."""
        most = np.abs(w).max(-1)
        base = np.floor(np.log2(np.where(most > 0, most, 1.0))) - self.exponent
        weight = 1.0 if importance is None else importance
        best, found = np.full(most.shape, np.inf), np.ones(most.shape, np.float32)
        for more in (0, 1):
            scale = np.exp2(np.clip(base + more, _LEAST, _MOST)).astype(np.float32)
            error = (weight * np.square(self.nearest(w, scale[..., None]) * scale[..., None] - w)).sum(-1)
            found, best = np.where(error < best, scale, found), np.minimum(error, best)
        return found

    def nearest(self, w: Array, scale: Array) -> Array:
        """w / scale rounded to nearest even, as float32; saturates."""
        q = np.clip(w / scale, -self.largest, self.largest)
        return np.asarray(q.astype(self.dtype).astype(np.float32))


FORMS = {
    "mxfp8": MxForm("mxfp8", np.dtype(ml_dtypes.float8_e4m3fn), 8, 448.0, 8),
    "mxfp4": MxForm("mxfp4", np.dtype(ml_dtypes.float4_e2m1fn), 4, 6.0, 2),
}


@dataclass
class MxWeight:
    """A weight [N, K] in an MX format."""

    elements: Array  #: float32 [N, blocks, 32]: numbers of the format
    scales: Array  #: float32 [N, blocks]: powers of two
    form: MxForm

    @property
    def bits(self) -> int:
        return self.form.bits

    def dense(self) -> Dense:
        """The dequantised weight."""
        return Dense((self.elements * self.scales[..., None]).reshape(len(self.elements), -1))


def rounded(w: Array, form: MxForm) -> MxWeight:
    """Rounds each weight [N, K] to nearest; K is a multiple of 32."""
    blocks = w.reshape(len(w), -1, BLOCK)
    scale = form.scale(blocks)
    return MxWeight(form.nearest(blocks, scale[..., None]), scale, form)


def obstacle(model: OnnxModel, p: Layer) -> str:
    """Why a layer's weights can't be stored so; "" if they can."""
    channels = model.dims(p.weight)[p.input_axis]
    return f"its {channels} input channels are no whole blocks of {BLOCK}" if channels % BLOCK else ""


def replace_weight(model: OnnxModel, p: Layer, weight: MxWeight) -> None:
    """The node reads its weight from a DequantizeLinear. The model has operator set 24."""
    w = model.array(p.weight)
    assert w is not None
    onnx = needed_onnx()

    def shaped(rows: Array) -> Array:
        """[N, K...] in the layout of the weight."""
        if p.kind == "Conv":
            return np.ascontiguousarray(np.moveaxis(rows.reshape(w.shape[0], *w.shape[2:], -1), -1, 1))
        return np.ascontiguousarray(rows if p.axis == 0 else rows.T)

    elements = shaped(weight.elements.reshape(len(weight.elements), -1)).astype(weight.form.dtype)
    scales = shaped(weight.scales).astype(ml_dtypes.float8_e8m0fnu)
    names = [model.add_weight(p.weight + "/elements", elements), model.add_weight(p.weight + "/scales", scales)]
    result = model.fresh(p.weight + "/dequantized")
    to = onnx.TensorProto.FLOAT16 if w.dtype == np.float16 else onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(
        "DequantizeLinear", names, [result], name=model.fresh(result + "/node"), axis=p.input_axis, block_size=BLOCK,
        output_dtype=to,
    )  # fmt: skip
    model.insert([node])
    p.node.input[1] = result
