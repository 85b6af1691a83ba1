"""A GGUF file's tensors as weights of the converted model: repacked, dequantised or requantised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import InvalidModelError, UnsupportedError
from .decoder_spec import DecoderSpec
from .gguf_file import GgufFile, TensorEntry
from .weights import Array, Dense, Linear, quantised, repacked

#: With int4: types that are stored in 8 bits, because they have six or more in the file.
_EIGHT_BITS = ("Q6_K", "Q8_0")


class GgufWeights:
    """decoder_graph.WeightSource of a file. `bits`: 0 (floats), 4 or 8; `block`: 32 or 128 elements."""

    def __init__(self, file: GgufFile, spec: DecoderSpec, bits: int, block: int):
        self._file, self._spec, self._bits, self._block = file, spec, bits, block
        self._used = {"rope_factors_long.weight"}  # of lengths that the converted model does not reach

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self._file.tensors

    def _entry(self, name: str, shape: tuple[int, ...]) -> TensorEntry:
        full = name if name.endswith(".bias") else f"{name}.weight"
        if full not in self._file.tensors:
            raise InvalidModelError(f"'{self._file.path}' lacks the tensor '{full}'")
        entry = self._file.tensors[full]
        if entry.shape != shape:
            raise InvalidModelError(f"'{self._file.path}': tensor '{full}' has shape {entry.shape} instead of {shape}")
        self._used.add(full)
        return entry

    def _order(self, name: str) -> Array | None:
        """Of pairs' rows: where each row of halves is, so that rotary embeddings rotate (i, i + size / 2)."""
        s, part = self._spec, name.removesuffix(".bias").rsplit(".", 1)[-1]
        if not s.paired_rope or part not in ("attn_q", "attn_k"):
            return None
        heads = s.heads if part == "attn_q" else s.kv_heads
        rows = np.arange(heads * s.head_size).reshape(heads, s.head_size // 2, 2)
        return rows.swapaxes(1, 2).reshape(-1)

    def vector(self, name: str, size: int) -> Array:
        values = self._file.floats(self._entry(name, (size,)).name)
        order = self._order(name)
        return values if order is None else values[order]

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        entry = self._entry(name, (rows, columns))
        weight = self._linear(entry)
        order = self._order(name)
        return weight if order is None else weight.rows(order)

    def _linear(self, entry: TensorEntry) -> Linear:
        if self._bits and self._block == 32:  # GGML's blocks; those of 4 bits stay so among weights of 8
            same = repacked(self._file.raw(entry.name), entry.type)
            if same is not None:
                return same
        dense = Dense(self._file.floats(entry.name))
        if not self._bits:
            return dense
        return quantised(dense, 8 if entry.type in _EIGHT_BITS else self._bits, self._block)

    def unused(self) -> Iterator[str]:
        return (name for name in self._file.tensors if name not in self._used)

    def require_all_used(self) -> None:
        """Refuses a file with tensors that were not used: the model would compute something else."""
        left = list(self.unused())
        if left:
            raise UnsupportedError(
                f"'{self._file.path}' has {len(left)} tensors that the layout of its architecture does not, '{left[0]}' first"
            )
