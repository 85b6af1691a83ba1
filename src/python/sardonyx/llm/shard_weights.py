"""Parts of a decoder's weights: what one of several devices holds of a matrix. Read from mapped files, so that a
model need not fit the memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from ..errors import FileError, InvalidModelError, UnsupportedError
from .packages import needed
from .weights import Array

#: Parts of an axis: [start, stop) each, one after another.
Ranges = Sequence[tuple[int, int]]


def size_of(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def share(total: int, rank: int, size: int, unit: int) -> tuple[int, int]:
    """A device's part of `total` elements in whole units: about total / size; the last device has what is left over."""
    units = -(-total // unit)
    return min(rank * units // size * unit, total), min((rank + 1) * units // size * unit, total)


def share_unit(total: int, size: int, block: int) -> int:
    """Long units where they divide evenly: kernels like aligned rows."""
    for unit in (256, 128, 64, 32, 16, 8):
        if unit % block == 0 and total % (unit * size) == 0:
            return unit
    return block


def take(array: Array, axis: int, ranges: Ranges) -> Array:
    """These parts of an axis; a view if it is a single part."""
    index = [slice(None)] * array.ndim
    parts = []
    for start, stop in ranges:
        index[axis] = slice(start, stop)
        parts.append(array[tuple(index)])
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis)


def filled_up(array: Array, axis: int, size: int) -> Array:
    """Padded with zeros to this size along the axis."""
    missing = size - array.shape[axis]
    if missing <= 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


class WeightFiles:
    """The initializers of a model whose data may lie in files of its folder."""

    def __init__(self, folder: str, initializers: Any):
        self._onnx = needed("onnx")
        self._folder = folder
        self.tensors = {t.name: t for t in initializers}
        self._maps: dict[str, Array] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].dims)

    def array(self, name: str) -> Array:
        """A view of the file where it can be one."""
        tensor = self.tensors[name]
        helper = self._onnx.helper
        if tensor.data_location != self._onnx.TensorProto.EXTERNAL:
            return np.asarray(self._onnx.numpy_helper.to_array(tensor))
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        except KeyError:
            raise InvalidModelError(f"the weight '{name}' has no known type ({tensor.data_type})") from None
        if dtype.kind == "O" or dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
            raise UnsupportedError(f"the weight '{name}' is of {dtype.name}, which can't be divided among devices")
        if any(d < 0 for d in tensor.dims):
            raise InvalidModelError(f"the weight '{name}' has a negative dim")
        entries = {e.key: e.value for e in tensor.external_data}
        length = int(np.prod(tensor.dims, dtype=object)) * dtype.itemsize
        try:
            offset, said = int(entries.get("offset", 0)), int(entries.get("length", length))
        except ValueError:
            raise InvalidModelError(f"the weight '{name}' has an offset that is not a number") from None
        data = self._file(entries.get("location", ""), name)
        if offset < 0 or said != length or offset + length > data.size:
            raise InvalidModelError(
                f"the weight '{name}' should be {length} bytes at {offset} of '{entries.get('location')}', "
                f"which has {data.size}"
            )
        return data[offset : offset + length].view(dtype).reshape(tuple(tensor.dims))

    def _file(self, location: str, name: str) -> Array:
        if location not in self._maps:
            path = os.path.realpath(os.path.join(self._folder, location))
            if not location or os.path.commonpath([path, os.path.realpath(self._folder)]) != os.path.realpath(
                self._folder
            ):
                raise InvalidModelError(f"the weight '{name}' lies outside of the model's folder ('{location}')")
            try:
                self._maps[location] = (
                    np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.zeros(0, np.uint8)
                )
            except OSError as error:
                raise FileError(f"'{path}', which has weights, can't be read: {error.strerror}") from None
        return self._maps[location]


class WeightWriter:
    """The file of a part's weights, written in order."""

    def __init__(self, name: str, file: BinaryIO):
        self._name, self._file, self._size = name, file, 0
        self._onnx = needed("onnx")

    def tensor(self, name: str, array: Array) -> Any:
        """The initializer; small ones are in the model itself."""
        array = np.ascontiguousarray(array)
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = self._onnx.TensorProto(name=name, dims=array.shape, data_type=kind)
        if array.nbytes < 1024:
            tensor.raw_data = array.tobytes()
            return tensor
        self._file.write(bytes(-self._size % 64))
        self._size += -self._size % 64
        tensor.data_location = self._onnx.TensorProto.EXTERNAL
        for key, value in (("location", self._name), ("offset", self._size), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self._file.write(memoryview(array.reshape(-1).view(np.uint8)))
        self._size += array.nbytes
        return tensor


def blocks_taken(ranges: Ranges, block: int, columns: int) -> list[tuple[int, int]]:
    """The blocks of a row that hold these elements. Raises UnsupportedError if a range begins or ends inside of one."""
    found = []
    for start, stop in ranges:
        if start % block or (stop % block and stop != columns):
            raise UnsupportedError(
                f"quantised weights in blocks of {block} can't be divided at elements {start} and {stop}: take fewer devices"
            )
        found.append((start // block, -(-stop // block)))
    return found


def zero_points_taken(zeros: Array, rows: int, blocks: int, bits: int, taken: Ranges) -> Array:
    """Of MatMulNBits's zero points those of some blocks of each row: floats [rows, blocks], or bytes in which those of
    4 (2) bits are packed from the lowest bit on, each row in whole bytes."""
    if zeros.dtype != np.uint8:
        return take(zeros.reshape(rows, blocks), 1, taken)
    packed = zeros.reshape(rows, -1)
    each = 8 // bits
    single = np.stack([(packed >> (bits * k)) & ((1 << bits) - 1) for k in range(each)], axis=-1)
    chosen = take(single.reshape(rows, -1)[:, :blocks], 1, taken)
    full = filled_up(chosen, 1, -(-chosen.shape[1] // each) * each).reshape(rows, -1, each)
    result = np.zeros(full.shape[:2], np.uint8)
    for k in range(each):
        result |= (full[..., k] << (bits * k)).astype(np.uint8)
    return result
