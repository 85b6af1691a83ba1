"""Converts arrays to inputs and outputs of a model, without copies where their layout allows."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import _sardonyx
from .errors import InvalidArgumentError

# Address, dtype's name and dims of a row-major array; whether it is in GPU memory.
Raw = tuple[int, str, list[int], bool]

# DLPack's devices whose memory the CPU can access: its own, pinned (CUDA, ROCm) and managed.
_HOST = (1, 3, 11, 13)


class Card(NamedTuple):
    """The device, besides the host, whose memory a tensor may be in, and the stream on which it is used."""

    name: str
    stream: _sardonyx.Stream  #: of that device; no handle: the host
    handle: int  #: the stream that is used: this one, or a caller's

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """In the form of `__dlpack_device__`."""
        return _sardonyx.dlpack_device(self.name)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of this name; ml_dtypes has those that numpy lacks (bfloat16, float8 of all kinds, 4 and 2 bits)."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _of_python_values(value: Any, wanted: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Converts numbers and lists to the model's dtype if it is of their kind: 1.5 to float32, but not to an integer."""
    array = np.asarray(value)
    if wanted is None or array.dtype == wanted or array.dtype.kind not in "iuf":
        return array
    kinds = "iu" if wanted.kind in "iu" else "iuf" if wanted.kind == "f" or "float" in wanted.name else ""
    return np.asarray(value, dtype=wanted) if array.dtype.kind in kinds else array


def _dlpack_tensor(what: str, value: Any, card: Card | None, writable: bool) -> _sardonyx.Tensor | None:
    """None if it is not row-major."""
    kind, number = map(int, value.__dlpack_device__())
    if kind in _HOST:
        return _sardonyx.from_dlpack(value, None, writable)
    if card is None or (kind, number) != card.dlpack_device:
        where = "the host" if card is None else card.name
        raise InvalidArgumentError(
            f"{what} lies on device {number} of DLPack's kind {kind}, but the model runs on {where}: copy it there"
        )
    # The producer makes this stream wait for what computes the elements.
    arguments = {"stream": card.handle}
    try:
        capsule = value.__dlpack__(**arguments, max_version=(1, 0))
    except TypeError:  # older than the array API of 2023
        capsule = value.__dlpack__(**arguments)
    return _sardonyx.from_dlpack(capsule, card.stream, writable)


def _by_dlpack(what: str, value: Any, card: Card | None, writable: bool = False) -> tuple[Any, Raw]:
    if isinstance(value, _sardonyx.Tensor) and card is not None and value.device == card.name:
        value._wait_in(card.stream, card.handle)
        return value, (value.address, value.dtype, value.shape, True)
    if isinstance(value, _sardonyx.Tensor) and value.device == "host":
        return value, (value.address, value.dtype, value.shape, False)
    try:
        on_card = int(value.__dlpack_device__()[0]) not in _HOST
        tensor = _dlpack_tensor(what, value, card, writable)
    except InvalidArgumentError:
        raise
    except (TypeError, BufferError, AttributeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{what}: its __dlpack__ gives no tensor that can be used; copy it to the host's memory first ({error})"
        ) from None
    if tensor is None:  # strided
        if on_card or writable:
            raise InvalidArgumentError(f"{what} is not row-major; make it contiguous first")
        try:
            array = np.ascontiguousarray(np.from_dlpack(value))
        except (BufferError, RuntimeError) as error:
            raise InvalidArgumentError(
                f"{what} is not row-major, and numpy can't copy its dtype; make it contiguous first ({error})"
            ) from None
        return array, (array.ctypes.data, array.dtype.name, list(array.shape), False)
    return tensor, (tensor.address, tensor.dtype, tensor.shape, on_card)


def input_array(name: str, value: Any, wanted: np.dtype[Any] | None, card: Card | None = None) -> tuple[Any, Raw]:
    """The object that must stay alive while a model reads an input, and the input's address.

    Row-major numpy arrays, and objects with `__dlpack__` in host or GPU memory, are read in place; others are copied. `wanted`
    is the model's dtype, which numbers and lists get; arrays keep theirs.
    """
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        return _by_dlpack(f"input '{name}'", value, card)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):  # arrays and scalars of numpy, and others
        array = np.asarray(value)
    else:
        try:
            array = _of_python_values(value, wanted)
        except (ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"input '{name}' is not an array: {error}") from None
    if array.dtype.kind not in "biufcV" or array.dtype.names is not None:
        raise InvalidArgumentError(f"input '{name}' has dtype {array.dtype}; models take numbers and booleans")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous or not array.flags.aligned:
        array = np.require(array, requirements=["C", "A"])
    dtype = array.dtype.name
    if dtype in (
        "int4",
        "int2",
    ):  # ml_dtypes leaves the upper bits undefined; Sardonyx needs the sign there
        shift = 8 - int(dtype[3:])
        array = np.asarray((array.view(np.int8) << shift) >> shift)
    return array, (array.ctypes.data, dtype, list(array.shape), False)


def output_memory(name: str, value: Any, card: Card | None) -> tuple[Any, Raw]:
    """The object that must stay alive while a model writes an output to the caller's memory, and its address: a numpy array, or
    an object with `__dlpack__` in host or GPU memory; row-major and writable."""
    what = f"the memory for output '{name}'"
    if isinstance(value, np.ndarray):
        if not (value.flags.c_contiguous and value.flags.aligned and value.flags.writeable and value.dtype.isnative):
            raise InvalidArgumentError(f"{what} must be row-major, aligned, writable and of the machine's byte order")
        return value, (value.ctypes.data, value.dtype.name, list(value.shape), False)
    if not hasattr(value, "__dlpack__"):
        raise InvalidArgumentError(f"{what} is no array but a {type(value).__name__}")
    return _by_dlpack(what, value, card, writable=True)


def output_array(buffer: _sardonyx.Tensor) -> np.ndarray[Any, Any]:
    """An output as a numpy array, which keeps it alive."""
    return buffer.bytes().view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)
