"""Weights of linear layers: dense, or 2 to 8 bits in blocks in the format of MatMulNBits.

A blocked weight [N, K] has K in blocks; element (n, k) is (q - zero) * scale with one scale and one zero for each block.
MatMulNBits: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Dense:
    """Float32 [N, K]."""

    values: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape[0], self.values.shape[1]

    def rows(self, index: Array) -> Dense:
        return Dense(self.values[index])


@dataclass
class Blocked:
    """Quantised [N, K]."""

    quants: Array  #: uint8 [N, blocks, block]: unpacked
    scales: Array  #: float32 [N, blocks]
    zeros: Array | None  #: uint8 or float32 [N, blocks]; None: 2 ** (bits - 1)
    bits: int
    columns: int  #: K; the last block may be padded

    @property
    def shape(self) -> tuple[int, int]:
        return self.quants.shape[0], self.columns

    @property
    def block(self) -> int:
        return int(self.quants.shape[2])

    def rows(self, index: Array) -> Blocked:
        zeros = None if self.zeros is None else self.zeros[index]
        return Blocked(self.quants[index], self.scales[index], zeros, self.bits, self.columns)

    def packed(self) -> Array:
        """The operator's B: uint8 [N, blocks, block * bits / 8], the first element in a byte's lowest bits."""
        return _pack(self.quants, self.bits)

    def packed_zeros(self) -> Array | None:
        """The operator's zero_points: uint8 [N, bytes of a row] packed likewise, or float32 [N, blocks]."""
        if self.zeros is None or self.zeros.dtype != np.uint8:
            return self.zeros
        return _pack(self.zeros, self.bits)

    def dense(self) -> Dense:
        """The dequantised weight."""
        zeros: Any = float(1 << (self.bits - 1)) if self.zeros is None else self.zeros[..., None].astype(np.float32)
        values = (self.quants.astype(np.float32) - zeros) * self.scales[..., None]
        return Dense(values.reshape(values.shape[0], -1)[:, : self.columns])


Linear = Dense | Blocked


def _pack(values: Array, bits: int) -> Array:
    """Along the last dim, which is padded to whole bytes; an element may lie in two bytes."""
    if bits == 8:
        return values
    if bits == 4 and values.shape[-1] % 2 == 0:
        return values[..., 0::2] | (values[..., 1::2] << 4)
    single = (values[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(single.reshape(*values.shape[:-1], -1), axis=-1, bitorder="little")


def concatenated(parts: list[Linear]) -> Linear | None:
    """Weights with the same input, concatenated by rows; None if they differ in kind."""
    first = parts[0]
    if isinstance(first, Dense):
        if not all(isinstance(p, Dense) for p in parts):
            return None
        return Dense(np.concatenate([p.values for p in parts if isinstance(p, Dense)]))
    same = [
        p
        for p in parts
        if isinstance(p, Blocked)
        and (p.bits, p.block) == (first.bits, first.block)
        and (None if p.zeros is None else p.zeros.dtype) == (None if first.zeros is None else first.zeros.dtype)
    ]
    if len(same) < len(parts):
        return None
    zeros = None if first.zeros is None else np.concatenate([p.zeros for p in same if p.zeros is not None])
    return Blocked(
        np.concatenate([p.quants for p in same]),
        np.concatenate([p.scales for p in same]),
        zeros,
        first.bits,
        first.columns,
    )


def quantised(dense: Dense, bits: int, block: int) -> Blocked:
    """Rounds to the nearest of 2 ** bits levels. 4 bits: between each block's minimum and maximum (and zero);
    8 bits: around zero."""
    values = dense.values
    n, k = values.shape
    filled = np.pad(values, ((0, 0), (0, -k % block))).reshape(n, -1, block)
    if bits == 8:
        scales = np.abs(filled).max(2) / 127
        inverse = np.where(scales > 0, 1 / np.where(scales > 0, scales, 1), 0)
        quants = np.rint(filled * inverse[..., None]) + 128
        return Blocked(quants.astype(np.uint8), scales.astype(np.float32), None, 8, k)
    least, greatest = np.minimum(filled.min(2), 0), np.maximum(filled.max(2), 0)
    scales = (greatest - least) / 15
    inverse = np.where(scales > 0, 1 / np.where(scales > 0, scales, 1), 0)
    zeros = np.clip(np.rint(-least * inverse), 0, 15)
    quants = np.clip(np.rint(filled * inverse[..., None]) + zeros[..., None], 0, 15)
    return Blocked(quants.astype(np.uint8), scales.astype(np.float32), zeros.astype(np.uint8), 4, k)


def _halves(rows: Array) -> Array:
    """GGML's 16 bytes of a block: element i in the lower half of byte i, element i + 16 in the upper one."""
    return np.concatenate([rows & 15, rows >> 4], axis=-1)


def _float16(pair: Array) -> Array:
    return np.ascontiguousarray(pair).view("<f2")[..., 0].astype(np.float32)


def _q4_0(blocks: Array, columns: int) -> Blocked:
    return Blocked(_halves(blocks[..., 2:]), _float16(blocks[..., :2]), None, 4, columns)


def _q4_1(blocks: Array, columns: int) -> Blocked:
    """d * q + m is (q - (-m / d)) * d, with a zero that is no integer. Where d is 0 all elements are m: (1 - 0) * m."""
    d, m, quants = _float16(blocks[..., :2]), _float16(blocks[..., 2:4]), _halves(blocks[..., 4:])
    flat = d == 0
    zeros = np.where(flat, 0, -m / np.where(flat, 1, d)).astype(np.float32)
    quants = np.where(flat[..., None], np.uint8(1), quants)
    return Blocked(quants, np.where(flat, m, d), zeros, 4, columns)


def _q8_0(blocks: Array, columns: int) -> Blocked:
    return Blocked(blocks[..., 2:] ^ np.uint8(128), _float16(blocks[..., :2]), None, 8, columns)


_REPACK: dict[str, tuple[int, Callable[[Array, int], Blocked]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q8_0": (34, _q8_0),
}


def repacked(rows: Array, type_name: str) -> Blocked | None:
    """GGML's rows [N, bytes] of blocks of 32 with the same numbers; None for types with another structure."""
    if type_name not in _REPACK:
        return None
    size, unpack = _REPACK[type_name]
    return unpack(rows.reshape(rows.shape[0], -1, size), rows.shape[1] // size * 32)
