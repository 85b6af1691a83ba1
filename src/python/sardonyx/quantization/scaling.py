"""SmoothQuant: scales of input channels that move magnitude from activations to weights.

x w = (x / s)(s w): the layer does not change in exact arithmetic, but the quantised one does. (Xiao et al., "SmoothQuant",
2023.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .calibration import CheckedChannels
from .layers import Layer
from .onnx_model import OnnxModel, needed_onnx
from .qdq import Format, activation_scale, rounded, weight_scale
from .ranges import Range

Array = np.ndarray[Any, Any]

_STRENGTHS = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8)
_GAIN = 0.9  # scaling costs an operation, so it must take away a tenth of the squared error at least

# Normalisations whose first output is elementwise proportional to a weight: index of the weight, and of a bias that is
# scaled with it.
_NORMS = {
    ("", "LayerNormalization"): (1, 2),
    ("", "SimplifiedLayerNormalization"): (1, None),
    ("", "RMSNormalization"): (1, None),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): (2, None),
}


def smoothing(
    data: CheckedChannels, weights: Sequence[Array], form: Format, *, symmetric: bool, per_channel: bool
) -> tuple[Array | None, float]:
    """The scales s of an activation's channels for 8-bit layers with these weights [K, N], and their strength; None and 0 if
    scaling gains too little. The strength is chosen by the layers' error on rows without a part in the scales and in the
    range: with few data the largest values of the channels are not those of other data, which then would be clipped."""
    whole = data.limits()
    if whole is None or not weights:
        return None, 0.0
    most = np.maximum(np.max([np.abs(w).max(1) for w in weights], axis=0), 1e-5)
    parts = [(data.rows(k), limits) for k in range(data.PARTS) if (limits := data.limits(k)) and len(data.rows(k))]

    def scales(limits: tuple[Array, Array], alpha: float) -> Array:
        magnitude = np.maximum(np.maximum(-limits[0], limits[1]), 1e-5)
        s = (magnitude**alpha / most ** (1 - alpha)).astype(np.float32)
        return np.asarray(np.clip(s / np.exp(np.log(s).mean()), 1e-4, 1e4).astype(np.float32))

    def errors(alpha: float | None) -> Array:
        """Of each part. None: without scales."""
        found = np.zeros(len(parts))
        for k, (rows, (low, high)) in enumerate(parts):
            s = np.ones_like(most) if alpha is None else scales((low, high), alpha)
            r = Range(float((low / s).min()), float((high / s).max()))
            xq = rounded(rows / s, activation_scale(r, form, symmetric=symmetric), form)
            for w in weights:
                scaled = w * s[:, None]
                axis = 1 if per_channel else None
                wq = rounded(scaled, weight_scale(scaled, axis, form), form, axis)
                found[k] += float(((xq @ wq - rows @ w) ** 2).sum(dtype=np.float64))
        return found

    # Of the parts' ratios the geometric mean: one clipped value may be most of the error of a part, and is chance.
    plain, best, strength = errors(None), _GAIN, 0.0
    for alpha in _STRENGTHS if len(plain) and (plain > 0).all() else ():
        ratio = float(np.exp(np.log(np.maximum(errors(alpha) / plain, 1e-9)).mean()))
        if ratio < best:
            best, strength = ratio, alpha
    return (scales(whole, strength), strength) if strength else (None, 0.0)


def scale_layers(model: OnnxModel, layers: Sequence[Layer], s: Array) -> str:
    """Divides the activation that the layers share by s, and multiplies their weights by it. Returns the activation's new
    name. A normalisation in front takes the division into its weights if nothing else reads it."""
    name = layers[0].activation
    for p in layers:
        w = model.array(p.weight)
        assert w is not None
        shape = [-1 if k == p.input_axis else 1 for k in range(w.ndim)]
        model.replace_weight(p.node, 1, (w * s.reshape(shape)).astype(w.dtype))
        p.weight = p.node.input[1]
    if _into_norm(model, name, layers, s):
        return name
    first = model.array(layers[0].weight)
    assert first is not None
    rank_shape = s.reshape(1, -1, 1, 1) if layers[0].kind == "Conv" else s
    inverse = model.add_weight(name + "/inverse_scale", (1 / rank_shape).astype(first.dtype))
    scaled = model.fresh(name + "/scaled")
    node = needed_onnx().helper.make_node("Mul", [name, inverse], [scaled], name=model.fresh(scaled + "/Mul"))
    model.insert([node], before=layers[0].node)
    for p in layers:
        p.node.input[0] = scaled
        p.activation = scaled
    return scaled


def norm_in_front(model: OnnxModel, name: str, layers: Sequence[Layer]) -> tuple[Any, list[int]] | None:
    """The normalisation that computes the layers' activation for them alone, and which of its inputs are scaled."""
    producer = model.producers.get(name)
    if producer is None or name in model.outputs or name in model.captured or producer.output[0] != name:
        return None
    domain = "" if producer.domain == "ai.onnx" else producer.domain
    places = _NORMS.get((domain, producer.op_type))
    nodes = [p.node for p in layers]
    if places is None or any(not any(r is n for n in nodes) for r in model.readers.get(name, [])):
        return None
    changed = [k for k in places if k is not None and k < len(producer.input) and producer.input[k]]
    return (producer, changed) if changed else None


def _into_norm(model: OnnxModel, name: str, layers: Sequence[Layer], s: Array) -> bool:
    found = norm_in_front(model, name, layers)
    if found is None:
        return False
    producer, changed = found
    arrays = [model.array(producer.input[k]) for k in changed]
    if any(a is None or a.shape != s.shape for a in arrays):
        return False
    for k, a in zip(changed, arrays):
        assert a is not None
        model.replace_weight(producer, k, (a.astype(np.float32) / s).astype(a.dtype))
    return True
