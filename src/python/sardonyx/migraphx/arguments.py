"""Tensors of MIGraphX's Python module, in host or device memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import byref, c_bool, c_size_t, c_void_p
from typing import Any

import numpy as np

from .. import _sardonyx
from ..arrays import numpy_dtype
from . import library
from .library import Handle, call
from .shapes import TYPES, shape, shape_of_pointer, type_t

_FORMATS = {
    type_t.bool_type: "?",
    type_t.half_type: "e",
    type_t.float_type: "f",
    type_t.double_type: "d",
    type_t.uint8_type: "B",
    type_t.int8_type: "b",
    type_t.uint16_type: "H",
    type_t.int16_type: "h",
    type_t.int32_type: "i",
    type_t.int64_type: "q",
    type_t.uint32_type: "I",
    type_t.uint64_type: "Q",
}

# DLPack's devices whose memory the CPU can access: its own, pinned (CUDA, ROCm) and managed.
_HOST = (1, 3, 11, 13)


def shape_of_array(array: np.ndarray[Any, Any]) -> shape:
    if array.dtype not in TYPES:
        raise RuntimeError(f"MIGraphX has no tensors of {array.dtype}")
    if array.ndim == 0:
        return shape(type=TYPES[array.dtype], lens=[1], strides=[0])
    if any(s % array.itemsize or s < 0 for s in array.strides):
        raise RuntimeError(
            f"strides of {array.strides} bytes are not multiples of an element's size; pass a contiguous copy"
        )
    return shape(type=TYPES[array.dtype], lens=array.shape, strides=[s // array.itemsize for s in array.strides])


class _Bytes(_sardonyx.Memory):
    """The bytes of an argument, which they keep alive."""

    def __init__(self, of: argument) -> None:
        super().__init__(of.data_ptr(), "B", 1, [of.get_shape().bytes()], [1], True)
        self.of = of


class argument(_sardonyx.Memory):
    """A tensor: argument(x) of anything with Python's buffer protocol or DLPack, whose memory it shares.

    It has the buffer protocol itself (in host memory) and DLPack (in device memory too), so numpy.asarray(a) and
    torch.from_dlpack(a) share its memory.
    """

    _handle: Handle

    def __init__(self, value: Any) -> None:
        made, keep, on_device = _borrow(value)
        self._take(made, keep, on_device)

    @classmethod
    def _of(cls, handle: Handle) -> argument:
        made = cls.__new__(cls)
        made._take(handle, None, library.flag("+argument_on_device", handle))
        return made

    def _take(self, handle: Handle, keep: Any, on_device: bool) -> None:
        self._handle, self._keep, self._on_device = handle, keep, on_device
        pointer = c_void_p()
        call("argument_shape", byref(pointer), handle)
        self._shape = shape_of_pointer(pointer, handle)
        data = c_void_p()
        call("argument_buffer", byref(data), handle)
        item = self._shape.type_size()
        strides = [s * item for s in self._shape.strides()]
        format = _FORMATS.get(self._shape.type(), "")
        super().__init__(data.value or 0, format, item, self._shape.lens(), strides, not on_device)
        self._address = data.value or 0

    def get_shape(self) -> shape:
        """Element type, sizes and strides."""
        return self._shape

    def data_ptr(self) -> int:
        """Where the first element is."""
        return self._address

    def numpy(self) -> np.ndarray[Any, Any]:
        """An array of the same memory, with ml_dtypes' types where numpy has none. (Not MIGraphX's.)"""
        if self._on_device:
            raise RuntimeError("the argument is in device memory; from_gpu() copies it")
        s = self._shape
        dtype = s.numpy_dtype()
        if s.elements() == 0:
            return np.empty(s.lens(), dtype)
        flat = np.frombuffer(_Bytes(self), dtype=dtype)
        return np.lib.stride_tricks.as_strided(flat, tuple(s.lens()), tuple(n * dtype.itemsize for n in s.strides()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array.copy() if copy else array if dtype is None else array.astype(dtype)

    def tolist(self) -> list[Any]:
        """The elements in row-major order."""
        return list(np.ravel(self.numpy()).tolist())

    def __dlpack__(self, **keywords: Any) -> Any:
        if not self._on_device:
            return np.asarray(self).__dlpack__(**keywords)
        return self._tensor().__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor().__dlpack_device__()

    def _tensor(self) -> _sardonyx.Tensor:
        if not self._shape.standard():
            raise BufferError("the argument has strides")
        device = library.text("+gpu_device") if self._on_device else "host"
        dims = self._shape.lens()
        return _sardonyx.borrowed_tensor(device, self._shape.numpy_dtype().name, dims, self._address, self)

    @staticmethod
    def save(arg: argument, filename: str | os.PathLike[str]) -> None:
        """Writes an ONNX TensorProto."""
        call("argument_save", arg._handle, os.fsencode(filename))

    @staticmethod
    def load(filename: str | os.PathLike[str]) -> argument:
        return argument._of(library.make("argument", "argument_load", os.fsencode(filename)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, argument):
            return NotImplemented
        return library.flag("argument_equal", self._handle, other._handle)

    __hash__ = None  # type: ignore[assignment]  # its elements change

    def __repr__(self) -> str:
        if self._on_device:
            return f"{self._shape} in device memory"
        return "{" + ", ".join(str(v) for v in self.tolist()) + "}, " + repr(self._shape)


def _at(s: shape, address: int) -> Handle:
    """An argument without memory of its own."""
    return library.make("argument", "argument_create", s._handle, c_void_p(address))


def _of_device(value: Any) -> tuple[Handle, Any, bool]:
    """A tensor of another library in device memory."""
    device = library.text("+gpu_device")
    kind = tuple(map(int, value.__dlpack_device__()))
    if device == "host" or kind != _sardonyx.dlpack_device(device):
        raise RuntimeError(f"a tensor lies on DLPack's device {kind}, and the target gpu is {device}")
    stream = _sardonyx.Stream(device)
    tensor = _sardonyx.from_dlpack(value, stream)
    if tensor is None:
        raise RuntimeError("a tensor in device memory has strides; pass a contiguous one")
    stream.synchronize()
    s = shape(type=TYPES[np.dtype(numpy_dtype(tensor.dtype))], lens=tensor.shape or [1])
    return _at(s, tensor.address), tensor, True


def _borrow(value: Any) -> tuple[Handle, Any, bool]:
    """An argument that shares the memory of `value`; what keeps that alive; whether it is in device memory."""
    if isinstance(value, argument):
        return value._handle, value, value._on_device
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        if int(value.__dlpack_device__()[0]) not in _HOST:
            return _of_device(value)
        tensor = _sardonyx.from_dlpack(value)  # numpy's has no bfloat16
        if tensor is not None:
            s = shape(type=TYPES[np.dtype(numpy_dtype(tensor.dtype))], lens=tensor.shape or [1])
            return _at(s, tensor.address), tensor, False
    array = np.asarray(value)
    if array.dtype == object:
        raise RuntimeError(f"a tensor can't be made of {type(value).__name__}")
    return _at(shape_of_array(array), array.ctypes.data), array, False


def argument_from_pointer(shape: shape, address: int) -> argument:
    """A tensor at an address, in host or device memory, which the caller keeps alive."""
    return argument._of(_at(shape, address))


def create_argument(s: shape, values: Sequence[float]) -> argument:
    """The elements in row-major order, converted to the shape's type."""
    if len(values) != s.elements():
        raise RuntimeError(f"{len(values)} values for {s.elements()} elements")
    made = argument._of(library.make("argument", "argument_create_empty", s._handle))
    made.numpy()[...] = np.asarray(values).astype(s.numpy_dtype()).reshape(s.lens())
    return made


def generate_argument(s: shape, seed: int = 0) -> argument:
    """MIGraphX's pseudo-random elements."""
    return argument._of(library.make("argument", "argument_generate", s._handle, c_size_t(seed)))


def fill_argument(s: shape, value: float) -> argument:
    """Every element has this value."""
    made = argument._of(library.make("argument", "argument_create_empty", s._handle))
    made.numpy()[...] = np.asarray(value).astype(s.numpy_dtype())
    return made


def allocate_gpu(s: shape, host: bool = False) -> argument:
    """Device memory, or with `host` host memory that the device can access."""
    return argument._of(library.make("argument", "+allocate_gpu", s._handle, c_bool(host)))


def to_gpu(arg: Any, host: bool = False) -> argument:
    """A copy in device memory, or with `host` in host memory that the device can access."""
    made, keep, _ = _borrow(arg)
    copy = argument._of(library.make("argument", "+to_gpu", made, c_bool(host)))
    del keep
    return copy


def from_gpu(arg: argument) -> argument:
    """A copy in host memory, when what computes it is done."""
    return argument._of(library.make("argument", "+from_gpu", arg._handle))


def gpu_sync() -> None:
    """Waits for the device."""
    call("+gpu_sync")
