"""Weights of convolutions in 2, 4 or 8 bits per block: DequantizeLinear with blocks of input channels at each tap of a filter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..llm.weights import Blocked
from .calibration import Gram
from .layers import Layer
from .onnx_model import OnnxModel, needed_onnx

Array = np.ndarray[Any, Any]

#: Types of ONNX by bits, and the operator set from which on DequantizeLinear has them in blocks.
TYPES = {2: (np.dtype(ml_dtypes.uint2), 25), 4: (np.dtype(ml_dtypes.uint4), 21), 8: (np.dtype(np.uint8), 21)}

_ROWS = 1024  # windows of a sample that count, at most


def obstacle(model: OnnxModel, p: Layer, bits: int, block: int) -> str:
    """Why a convolution's weights can't be stored so; "" if they can."""
    if bits not in TYPES:
        return f"ONNX has no type of {bits} bits for the weights of convolutions"
    channels = model.dims(p.weight)[1]
    return f"its {channels} input channels are no whole blocks of {block}" if channels % block else ""


def rows_of(w: Array) -> Array:
    """Weights [M, C, taps...] as [M, taps * C]: blocks are of channels."""
    return np.ascontiguousarray(np.moveaxis(w, 1, -1).reshape(w.shape[0], -1))


class WindowGram(Gram):
    """The sum of x x^T over windows x [taps * C] of a convolution's input, and their number. Windows that
    reach into the padding are left out, and of many only some count, the same ones in every run."""

    def __init__(self, taps: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]):
        super().__init__()
        self._taps, self._strides, self._dilations = taps, strides, dilations
        self._random = np.random.default_rng(0)

    def add(self, values: Array) -> None:
        x = values.astype(np.float32, copy=False)
        reach = [(t - 1) * d + 1 for t, d in zip(self._taps, self._dilations)]
        axes = tuple(range(2, x.ndim))
        # An input that is smaller than a window counts with zeros around it.
        small = [max(0, r - x.shape[a]) for r, a in zip(reach, axes)]
        x = np.pad(x, [(0, 0), (0, 0), *((s // 2, s - s // 2) for s in small)])
        windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
        every = (slice(None), slice(None), *(slice(None, None, s) for s in self._strides))
        windows = windows[every + tuple(slice(None, None, d) for d in self._dilations)]
        places = np.moveaxis(windows, 1, -1)  # [N, out..., taps..., C]
        out = places.shape[: 1 + len(axes)]
        chosen = np.arange(int(np.prod(out)))
        if len(chosen) > _ROWS:
            chosen = np.sort(self._random.choice(chosen, _ROWS, replace=False))
        rows = places[np.unravel_index(chosen, out)].reshape(len(chosen), -1)
        self.add_rows(rows[np.isfinite(rows).all(-1)])


def gram_of(model: OnnxModel, p: Layer) -> WindowGram:
    given = {a.name: tuple(a.ints) for a in p.node.attribute}
    taps = tuple(model.dims(p.weight)[2:])
    one = (1,) * len(taps)
    return WindowGram(taps, given.get("strides") or one, given.get("dilations") or one)


def replace_weight(model: OnnxModel, p: Layer, weight: Blocked) -> None:
    """The node reads its weight from a DequantizeLinear. The model has the operator set of TYPES."""
    w = model.array(p.weight)
    assert w is not None
    dtype, _ = TYPES[weight.bits]
    taps = w.shape[2:]

    def shaped(rows: Array) -> Array:  # [M, taps * n] to [M, n, taps...]
        return np.ascontiguousarray(np.moveaxis(rows.reshape(w.shape[0], *taps, -1), -1, 1))

    assert weight.zeros is not None
    names = [
        model.add_weight(p.weight + "/blocks", shaped(weight.quants.reshape(w.shape[0], -1)).astype(dtype)),
        model.add_weight(p.weight + "/scales", shaped(weight.scales).astype(w.dtype)),
        model.add_weight(p.weight + "/zero_points", shaped(weight.zeros).astype(dtype)),
    ]
    result = model.fresh(p.weight + "/dequantized")
    node = needed_onnx().helper.make_node(
        "DequantizeLinear", names, [result], name=model.fresh(result + "/node"), axis=1, block_size=weight.block
    )
    model.insert([node])
    p.node.input[1] = result
