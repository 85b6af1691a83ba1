"""Weights in 2 to 8 bits per block for MatMulNBits: rounding to nearest, GPTQ, AWQ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from ..llm.weights import Blocked
from . import convolution, microscaling
from .calibration import Gram
from .layers import Layer, attribute
from .microscaling import MxForm, MxWeight
from .onnx_model import OnnxModel, needed_onnx

Array = np.ndarray[Any, Any]

METHODS = ("rtn", "gptq", "awq")
BLOCKS = (16, 32, 64, 128, 256)

_SHRINK = np.linspace(1.0, 0.7, 13)  # parts of a block's range that are tried
_DAMPING = 0.01  # of the Hessian's mean diagonal, as in GPTQ's paper
_STRENGTHS = np.linspace(0.05, 0.95, 10)  # of AWQ's scales


def levels(w: Array, bits: int, symmetric: bool, importance: Array | None = None) -> tuple[Array, Array]:
    """Scale and zero of each block [..., block] with the least squared error, weighted by the importance of each element's
    input channel, among ranges shrunk a little. Shapes: those of w without its last dim."""
    most = (1 << bits) - 1
    weight = 1.0 if importance is None else importance
    low, high = np.minimum(w.min(-1), 0), np.maximum(w.max(-1), 0)
    best = np.full(low.shape, np.inf)
    scale, zero = np.ones_like(low), np.zeros_like(low)
    for part in _SHRINK:
        if symmetric:
            s = np.maximum(-low, high) * part / ((1 << (bits - 1)) - 0.5)
            z = np.full_like(s, 1 << (bits - 1))
        else:
            s = (high - low) * part / most
            z = np.clip(np.rint(-low * part / np.where(s > 0, s, 1)), 0, most)
        s = np.where(s > 0, s, 1).astype(np.float32)
        error = (weight * (rounded(w, s, z, bits) - w) ** 2).sum(-1)
        better = error < best
        best = np.where(better, error, best)
        scale, zero = np.where(better, s, scale), np.where(better, z, zero)
    return scale.astype(np.float32), zero.astype(np.float32)


def stored(w: Array, scale: Array, zero: Array, bits: int) -> Array:
    return np.asarray(np.clip(np.rint(w / scale[..., None]) + zero[..., None], 0, (1 << bits) - 1))


def rounded(w: Array, scale: Array, zero: Array, bits: int) -> Array:
    return np.asarray((stored(w, scale, zero, bits) - zero[..., None]) * scale[..., None])


def rtn(w: Array, bits: int, block: int, symmetric: bool, importance: Array | None = None) -> Blocked:
    """Rounds each weight [N, K] to the nearest level of its block."""
    n, k = w.shape
    filled = np.pad(w, ((0, 0), (0, -k % block))).reshape(n, -1, block)
    weight = None
    if importance is not None:
        weight = np.pad(importance, (0, -k % block)).reshape(1, -1, block)
    scale, zero = levels(filled, bits, symmetric, weight)
    return Blocked(stored(filled, scale, zero, bits).astype(np.uint8), scale, zero.astype(np.uint8), bits, k)


def gptq(w: Array, gram: Array, bits: int, block: int, symmetric: bool) -> Blocked:
    """Rounds the columns one after another, and corrects those that follow for each error (Frantar et al., "GPTQ", 2023).

    w: [N, K]; gram: [K, K], the sum of x x^T over activations x. Blocks keep the order of columns.
    """
    most = (1 << bits) - 1

    def choose(part: Array, importance: Array) -> tuple[Array, Array]:
        return levels(part, bits, symmetric, importance)

    def nearest(x: Array, scale: Array, zero: Array) -> Array:
        return np.asarray(np.clip(np.rint(x / scale) + zero, 0, most))

    quants, scales, zeros = _gptq(w, gram, block, choose, nearest)
    return Blocked(quants.astype(np.uint8), scales, zeros.astype(np.uint8), bits, w.shape[1])


def gptq_mx(w: Array, gram: Array, form: MxForm) -> MxWeight:
    """The same to an MX format; K is a multiple of 32."""

    def choose(part: Array, importance: Array) -> tuple[Array, Array]:
        scale = form.scale(part, importance)
        return scale, np.zeros_like(scale)

    quants, scales, _ = _gptq(w, gram, microscaling.BLOCK, choose, lambda x, scale, zero: form.nearest(x, scale))
    return MxWeight(quants, scales, form)


def _gptq(
    w: Array,
    gram: Array,
    block: int,
    choose: Callable[[Array, Array], tuple[Array, Array]],
    nearest: Callable[[Array, Array, Array], Array],
) -> tuple[Array, Array, Array]:
    """The stored numbers [N, blocks, block], and scales and zeros [N, blocks]. choose: scale and zero of rows [N, block] by the
    importance of their columns; nearest: the stored numbers of a column."""
    n, k = w.shape
    h = gram.astype(np.float64)
    silent = np.diag(h) <= 0
    h[silent, silent] = 1.0
    upper = _cholesky_of_inverse(h).astype(np.float32)
    w = w.astype(np.float32).copy()
    importance = 1 / np.square(np.diag(upper))
    blocks = -(-k // block)
    quants = np.zeros((n, blocks * block), np.float32)
    scales, zeros = np.ones((n, blocks), np.float32), np.zeros((n, blocks), np.float32)
    width = max(128, block)
    for start in range(0, k, width):
        stop = min(start + width, k)
        part, u = w[:, start:stop], upper[start:stop, start:stop]
        errors = np.zeros_like(part)
        for i in range(stop - start):
            column = start + i
            g = column // block
            if column % block == 0:
                end = min(i + block, stop - start)
                scales[:, g], zeros[:, g] = choose(part[:, i:end], importance[column : start + end])
            scale, zero = scales[:, g], zeros[:, g]
            q = nearest(part[:, i], scale, zero)
            quants[:, column] = q
            errors[:, i] = (part[:, i] - (q - zero) * scale) / u[i, i]
            part[:, i + 1 :] -= errors[:, i : i + 1] * u[i : i + 1, i + 1 :]
        w[:, stop:] -= errors @ upper[start:stop, stop:]
    return quants.reshape(n, blocks, block), scales, zeros


def check_gram(activation: str, gram: Gram) -> None:
    """Raises InvalidArgumentError if the data say nothing about the activation."""
    why = ""
    if not gram.count or gram.sum is None:
        why = "has no finite values on the data"
    elif not np.isfinite(gram.sum).all():
        why = "has values on the data whose squares exceed float32's range"
    if why:
        raise InvalidArgumentError(
            f"the activation '{activation}' {why}; give other data, exclude the nodes that read it, or round weights to nearest "
            "(weights 'rtn')"
        )


def _cholesky_of_inverse(h: Array) -> Array:
    """Upper triangular; h is damped as little as it needs. Raises InvalidArgumentError."""
    mean = float(np.mean(np.diag(h)))
    for more in (1, 10, 100, 1000):
        try:
            return np.asarray(np.linalg.cholesky(np.linalg.inv(h + np.eye(len(h)) * (_DAMPING * more * mean))).T)
        except np.linalg.LinAlgError:
            pass
    raise InvalidArgumentError(
        "GPTQ can't invert the second moments of an activation: its values on the data differ too much in size; leave out the "
        "samples with the largest values, or round weights to nearest (weights 'rtn')"
    )


def loss(difference: Array, gram: Array) -> float:
    """The squared error of the layer's results: the sum over rows d of d G d^T."""
    return float(np.einsum("nk,nk->", difference @ gram, difference, dtype=np.float64))


def awq_scales(
    weights: Sequence[Array], gram: Array, count: int, bits: int, block: int, symmetric: bool
) -> Array | None:
    """Scales of the input channels of weights [N, K] that share an activation, by its magnitudes (Lin et al., "AWQ", 2024);
    None if rounding without them is as good."""
    magnitude = np.sqrt(np.maximum(np.diag(gram), 0) / max(count, 1)).astype(np.float32)
    magnitude = np.maximum(magnitude, max(float(magnitude.max()) * 1e-4, 1e-8))

    def error(s: Array) -> float:
        total = 0.0
        for w in weights:
            q = rtn(w * s, bits, block, symmetric).dense().values / s
            total += loss(q - w, gram)
        return total

    best, chosen = error(np.ones_like(magnitude)), None
    for alpha in _STRENGTHS:
        s = magnitude**alpha
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        e = error(s)
        if e < best:
            best, chosen = e, s
    return chosen


def replace_layer(model: OnnxModel, p: Layer, weight: Blocked | MxWeight) -> None:
    """The layer's node becomes MatMulNBits; a Gemm's bias is added to its result. A Conv, and any node with a weight in an MX
    format, reads a DequantizeLinear."""
    if isinstance(weight, MxWeight):
        microscaling.replace_weight(model, p, weight)
        return
    if p.kind == "Conv":
        convolution.replace_weight(model, p, weight)
        return
    onnx = needed_onnx()
    model.use_domain("com.microsoft", 1)
    node = p.node
    w = model.array(p.weight)
    assert w is not None
    names = [
        model.add_weight(p.weight + "/blocks", weight.packed()),
        model.add_weight(p.weight + "/scales", weight.scales.astype(w.dtype)),
    ]
    zeros = weight.packed_zeros()
    if zeros is not None and not np.all(weight.zeros == 1 << (weight.bits - 1)):
        names.append(model.add_weight(p.weight + "/zero_points", zeros))
    bias = node.input[2] if p.kind == "Gemm" and len(node.input) > 2 and node.input[2] else ""
    output = node.output[0]
    layer = model.fresh(output + "/layer") if bias else output
    rows, columns = weight.shape
    new = onnx.helper.make_node(
        "MatMulNBits",
        [p.activation, *names],
        [layer],
        name=node.name,
        domain="com.microsoft",
        K=columns,
        N=rows,
        bits=weight.bits,
        block_size=weight.block,
        accuracy_level=0,
    )
    if bias:
        add = onnx.helper.make_node("Add", [layer, bias], [output], name=model.fresh(node.name + "/bias"))
        model.insert([new], before=node)
        node.CopyFrom(add)
    else:
        node.CopyFrom(new)


def weight_of(model: OnnxModel, p: Layer) -> Array:
    """A layer's weight as [N, K], in float32; K of a convolution: taps, then channels."""
    w = model.array(p.weight)
    assert w is not None
    if p.kind == "Conv":
        return convolution.rows_of(w.astype(np.float32))
    return np.ascontiguousarray((w if p.axis == 0 else w.T).astype(np.float32))


def check_block(bits: int, block: int) -> None:
    """Raises InvalidArgumentError for what MatMulNBits does not have."""
    if block not in BLOCKS:
        raise InvalidArgumentError(f"blocks have {', '.join(map(str, BLOCKS))} elements, not {block}")
    if bits not in (2, 3, 4, 8):
        raise InvalidArgumentError(f"weights have 2, 3, 4 or 8 bits, not {bits}")


def simple_gemm(p: Layer) -> bool:
    """Whether a Gemm is a layer with a bias, without factors."""
    return p.kind != "Gemm" or (attribute(p.node, "alpha", 1.0) == 1 and attribute(p.node, "beta", 1.0) == 1)
