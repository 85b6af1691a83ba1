"""8-bit layers as QuantizeLinear and DequantizeLinear around the operands of MatMul, Gemm and Conv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .layers import Layer
from .onnx_model import OnnxModel, needed_onnx
from .ranges import Range

Array = np.ndarray[Any, Any]

_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Format:
    """An 8-bit type and how numbers are mapped to it."""

    name: str
    dtype: Any
    largest: float
    lowest: float
    opset: int  #: from which on QuantizeLinear has the type, for weights an axis, and of floats an output_dtype

    @property
    def is_integer(self) -> bool:
        return self.name == "int8"


INT8 = Format("int8", np.dtype(np.int8), 127.0, -128.0, 13)
FP8 = Format("fp8", np.dtype(ml_dtypes.float8_e4m3fn), 448.0, -448.0, 21)
FORMATS = {
    f.name: f
    for f in (
        INT8,
        FP8,
        Format("fp8-e5m2", np.dtype(ml_dtypes.float8_e5m2), 57344.0, -57344.0, 21),
        # AMD's FNUZ types, without infinities and -0, which CDNA 3 multiplies.
        Format("fp8-fnuz", np.dtype(ml_dtypes.float8_e4m3fnuz), 240.0, -240.0, 21),
        Format("fp8-e5m2-fnuz", np.dtype(ml_dtypes.float8_e5m2fnuz), 57344.0, -57344.0, 21),
    )
}


@dataclass(frozen=True)
class Scale:
    """x is stored as round(x / scale) + zero."""

    scale: Any  #: float32: a number, or one for each channel
    zero: int = 0


def activation_scale(r: Range, form: Format, *, symmetric: bool) -> Scale:
    """The scale of an activation with this range, which is extended to hold 0 exactly."""
    low, high = min(r.low, 0.0), max(r.high, 0.0)
    if symmetric or not form.is_integer:
        return Scale(np.float32(max(max(-low, high) / form.largest, _TINY)))
    step = max((high - low) / 255.0, _TINY)
    zero = int(np.clip(np.rint(-128.0 - low / step), -128, 127))
    return Scale(np.float32(step), zero)


def weight_scale(w: Array, axis: int | None, form: Format) -> Scale:
    """Symmetric scales: one for each index of an axis, or one (None)."""
    other = tuple(k for k in range(w.ndim) if axis is None or k != axis)
    finite = np.where(np.isfinite(w), np.abs(w), 0)
    most = finite.max(axis=other) if w.size else np.zeros(() if axis is None else w.shape[axis])
    scale = np.where(most > 0, np.maximum(most / form.largest, _TINY), 1.0)
    return Scale(scale.astype(np.float32))


def quantised(x: Array, s: Scale, form: Format, axis: int | None = None) -> Array:
    """The numbers that are stored."""
    scale = s.scale if axis is None else s.scale.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    q = x.astype(np.float32) / scale
    if form.is_integer:
        return np.asarray(np.clip(np.rint(q) + s.zero, form.lowest, form.largest).astype(form.dtype))
    return np.asarray(np.clip(q, form.lowest, form.largest).astype(form.dtype))


def dequantised(q: Array, s: Scale, axis: int | None = None) -> Array:
    """What the stored numbers stand for."""
    scale = s.scale if axis is None else s.scale.reshape([-1 if k == axis else 1 for k in range(q.ndim)])
    return np.asarray((q.astype(np.float32) - s.zero) * scale)


def rounded(x: Array, s: Scale, form: Format, axis: int | None = None) -> Array:
    return dequantised(quantised(x, s, form, axis), s, axis)


class QdqWriter:
    """Puts the nodes into a model."""

    def __init__(
        self, model: OnnxModel, form: Format, ranges: Mapping[str, Range], *, symmetric: bool, per_channel: bool
    ):
        self._model, self._form, self._ranges = model, form, ranges
        self._symmetric, self._per_channel = symmetric, per_channel
        self._activations: dict[str, str] = {}
        self._weights: dict[tuple[str, int | None], str] = {}

    def quantise(self, p: Layer) -> None:
        """Replaces the operands of a layer."""
        p.node.input[0] = self.activation(p.activation)
        p.node.input[1] = self._weight(p)

    def _node(self, kind: str, inputs: list[str], output: str, axis: int | None = None, **attributes: Any) -> Any:
        attributes |= {} if axis is None else {"axis": axis}
        return needed_onnx().helper.make_node(
            kind, inputs, [output], name=self._model.fresh(output + "/" + kind), **attributes
        )

    def activation(self, name: str) -> str:
        """A value, quantised and dequantised."""
        m = self._model
        if name in self._activations:
            return self._activations[name]
        s = activation_scale(self._ranges[name], self._form, symmetric=self._symmetric)
        scale = m.add_weight(name + "/scale", np.asarray(s.scale, np.float32))
        q, x = m.fresh(name + "/quantized"), m.fresh(name + "/dequantized")
        if self._form.is_integer:
            zero = m.add_weight(name + "/zero_point", np.asarray(s.zero).astype(self._form.dtype))
            nodes = [
                self._node("QuantizeLinear", [name, scale, zero], q),
                self._node("DequantizeLinear", [q, scale, zero], x),
            ]
        else:
            # No zero point: ONNX Runtime 1.31 takes one of float8 for the lowest value and removes a Relu in front, and it
            # fuses a Gemm between two of them to QGemm, which it then refuses.
            to = needed_onnx().helper.np_dtype_to_tensor_dtype(self._form.dtype)
            nodes = [
                self._node("QuantizeLinear", [name, scale], q, output_dtype=to),
                self._node("DequantizeLinear", [q, scale], x),
            ]
        m.insert(nodes, before=m.readers[name][0])
        self._activations[name] = x
        return x

    def _weight(self, p: Layer) -> str:
        m = self._model
        axis = p.axis if self._per_channel else None
        key = (p.weight, axis)
        if key in self._weights:
            return self._weights[key]
        w = m.array(p.weight)
        assert w is not None
        s = weight_scale(w, axis, self._form)
        scale = m.add_weight(p.weight + "/scale", np.asarray(s.scale, np.float32))
        zero = m.add_weight(p.weight + "/zero_point", np.zeros(s.scale.shape, self._form.dtype))
        q = m.add_weight(p.weight + "/quantized", quantised(w, s, self._form, axis))
        x = m.fresh(p.weight + "/dequantized")
        m.insert([self._node("DequantizeLinear", [q, scale, zero], x, axis)])
        if p.kind in ("MatMul", "Conv") and not self._form.is_integer:
            x = self._same_shape(x, w.shape)
        self._weights[key] = x
        return x

    def _same_shape(self, x: str, shape: tuple[int, ...]) -> str:
        """x through a Reshape to its own shape, which costs nothing. Without it, ONNX Runtime 1.31 fuses a MatMul or Conv of dequantised
        operands to MatMulIntegerToFloat or QLinearConv, whatever their type, and then refuses float8."""
        m = self._model
        dims = m.add_weight(x + "/shape", np.array(shape, np.int64))
        y = m.fresh(x + "/same")
        at = next(k for k, n in enumerate(m.proto.graph.node) if x in n.output)
        m.proto.graph.node.insert(at + 1, self._node("Reshape", [x, dims], y))
        return y
