"""Reads GGUF files: metadata, and tensors in the mapped file.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package gguf dequantises tensors, but its reader trusts the counts
and offsets in a file. Files are untrusted here, so this reader compares every count and length with the rest of the file before it is used.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FileError, InvalidModelError, UnsupportedError

# Value types of metadata: struct's code, bytes.
_SCALARS = {
    0: ("<B", 1),
    1: ("<b", 1),
    2: ("<H", 2),
    3: ("<h", 2),
    4: ("<I", 4),
    5: ("<i", 4),
    6: ("<f", 4),
    7: ("<?", 1),
    10: ("<Q", 8),
    11: ("<q", 8),
    12: ("<d", 8),
}
_STRING, _ARRAY = 8, 9

# Tensor types: name, elements of a block, bytes of a block.
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the file."""

    name: str
    shape: tuple[int, ...]  #: row-major: the last dim is contiguous (GGUF writes dims in the opposite order)
    type: str  #: "F32", "Q4_0", ...
    offset: int  #: of its bytes in the file
    nbytes: int


class GgufFile:
    """A file's metadata and tensors. Raises FileError, InvalidModelError, UnsupportedError."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        try:
            self._bytes = (
                np.memmap(self.path, np.uint8, mode="r") if os.path.getsize(self.path) else np.zeros(0, np.uint8)
            )
        except (OSError, ValueError) as error:
            raise FileError(f"'{self.path}' could not be read: {error}") from None
        self._view = memoryview(self._bytes)
        self._at = 0
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorEntry] = {}
        self._read()

    def _bad(self, what: str) -> InvalidModelError:
        return InvalidModelError(f"'{self.path}' is no well-formed GGUF file: {what} (at byte {self._at})")

    def _take(self, count: int, what: str) -> memoryview:
        if count > len(self._view) - self._at:
            raise self._bad(f"it ends inside {what}")
        part = self._view[self._at : self._at + count]
        self._at += count
        return part

    def _number(self, code: str, size: int, what: str) -> Any:
        return struct.unpack(code, self._take(size, what))[0]

    def _count(self, least: int, what: str) -> int:
        """A count of things of at least `least` bytes each."""
        count = int(self._number("<Q", 8, what))
        if count * least > len(self._view) - self._at:
            raise self._bad(f"{what} is {count}, which is more than the file holds")
        return count

    def _string(self, what: str) -> str:
        data = bytes(self._take(self._count(1, f"the length of {what}"), what))
        return data.decode("utf-8", errors="replace")

    def _name(self, what: str) -> str:
        """A key or a tensor's name; these go into messages."""
        name = self._string(what)
        if len(name) > 200 or not name.isprintable():
            raise self._bad(f"{what} is {name[:40]!r}, of {len(name)} characters")
        return name

    def _value(self, kind: int, what: str) -> Any:
        if kind in _SCALARS:
            return self._number(*_SCALARS[kind], what)
        if kind == _STRING:
            return self._string(what)
        if kind != _ARRAY:
            raise self._bad(f"{what} has the unknown type {kind}")
        of = self._number("<I", 4, what)
        if of == _STRING:
            return [self._string(what) for _ in range(self._count(8, what))]
        if of not in _SCALARS:
            raise self._bad(f"{what} is an array of type {of}, which arrays can't have")
        code, size = _SCALARS[of]
        count = self._count(size, what)
        return np.frombuffer(self._take(count * size, what), np.dtype(code)).tolist()

    def _read(self) -> None:
        if bytes(self._take(4, "its first four bytes")) != b"GGUF":
            self._at = 0
            raise self._bad("it does not start with GGUF")
        version = self._number("<I", 4, "its version")
        if version not in (2, 3):
            if version in (0x02000000, 0x03000000):
                raise UnsupportedError(f"'{self.path}' is a big-endian GGUF file; convert it to a little-endian one")
            raise UnsupportedError(f"'{self.path}' has GGUF version {version}; versions 2 and 3 can be read")
        tensors = self._count(24, "the number of tensors")
        for _ in range(self._count(13, "the number of metadata entries")):
            key = self._name("a metadata key")
            if key in self.metadata:
                raise self._bad(f"the key '{key}' is there twice")
            self.metadata[key] = self._value(self._number("<I", 4, f"'{key}'"), f"'{key}'")
        found = [self._tensor() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise self._bad(f"general.alignment is {alignment}")
        start = (self._at + alignment - 1) // alignment * alignment
        for entry in found:
            if entry.offset % alignment:
                raise self._bad(f"tensor '{entry.name}' is at {entry.offset}, no multiple of {alignment}")
            if start + entry.offset + entry.nbytes > len(self._view):
                raise InvalidModelError(
                    f"'{self.path}' is cut off: tensor '{entry.name}' ends at byte {start + entry.offset + entry.nbytes}, "
                    f"the file at {len(self._view)}; fetch it again"
                )
            if entry.name in self.tensors:
                raise self._bad(f"tensor '{entry.name}' is there twice")
            self.tensors[entry.name] = TensorEntry(
                entry.name, entry.shape, entry.type, start + entry.offset, entry.nbytes
            )

    def _tensor(self) -> TensorEntry:
        name = self._name("a tensor's name")
        rank = self._number("<I", 4, f"the rank of '{name}'")
        if not 1 <= rank <= 4:
            raise self._bad(f"tensor '{name}' has rank {rank}")
        dims = [int(self._number("<Q", 8, f"the dims of '{name}'")) for _ in range(rank)]
        kind = self._number("<I", 4, f"the type of '{name}'")
        offset = int(self._number("<Q", 8, f"the offset of '{name}'"))
        if kind not in TYPES:
            raise UnsupportedError(
                f"'{self.path}': tensor '{name}' has GGML's type {kind}; supported are "
                + ", ".join(t[0] for t in TYPES.values())
            )
        type_name, block, size = TYPES[kind]
        elements = 1
        for dim in dims:
            elements *= dim
        if any(not 1 <= d < 1 << 40 for d in dims) or dims[0] % block:
            raise self._bad(f"tensor '{name}' of type {type_name} has dims {dims}")
        return TensorEntry(name, tuple(reversed(dims)), type_name, offset, elements // block * size)

    def raw(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor's bytes, as rows: uint8 [everything but the last dim, bytes of a row]."""
        entry = self.tensors[name]
        rows = int(np.prod(entry.shape[:-1], dtype=np.int64))
        return np.asarray(self._bytes[entry.offset : entry.offset + entry.nbytes]).reshape(rows, -1)

    def floats(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor as float32, dequantised."""
        entry = self.tensors[name]
        return dequantise(self.raw(name), entry.type).reshape(entry.shape)


def dequantise(rows: np.ndarray[Any, Any], type_name: str) -> np.ndarray[Any, Any]:
    """Float32 of rows of bytes."""
    if type_name == "F32":
        return rows.view("<f4").astype(np.float32)
    if type_name == "F16":
        return rows.view("<f2").astype(np.float32)
    if type_name == "BF16":
        return (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize  # the K and IQ types have involved layouts, which this package follows

    return np.asarray(dequantize(rows, GGMLQuantizationType[type_name]), np.float32)
