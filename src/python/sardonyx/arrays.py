"""Arrays on their way into a model and out of it, without copies where their layout allows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import _sardonyx
from .errors import InvalidArgumentError

# Address, dtype's name and dims of a row-major array.
Raw = tuple[int, str, list[int]]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of this name; ml_dtypes has those that numpy has not (bfloat16, float8 of all kinds, 4 and 2 bits)."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _of_python_values(value: Any, wanted: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Numbers and lists take the model's dtype if they are of its kind: 1.5 becomes float32, but never an integer."""
    array = np.asarray(value)
    if wanted is None or array.dtype == wanted or array.dtype.kind not in "iuf":
        return array
    kinds = "iu" if wanted.kind in "iu" else "iuf" if wanted.kind == "f" or "float" in wanted.name else ""
    return np.asarray(value, dtype=wanted) if array.dtype.kind in kinds else array


def _by_dlpack(name: str, value: Any) -> tuple[Any, Raw]:
    try:
        tensor = _sardonyx.from_dlpack(value)
    except (TypeError, BufferError) as error:
        raise InvalidArgumentError(
            f"input '{name}': its __dlpack__ gives no tensor in this machine's memory; copy it there first ({error})"
        ) from None
    if tensor is None:  # strided
        try:
            array = np.ascontiguousarray(np.from_dlpack(value))
        except (BufferError, RuntimeError) as error:
            raise InvalidArgumentError(
                f"input '{name}' is not row-major, and numpy can't copy its dtype; make it contiguous first ({error})"
            ) from None
        return array, (array.ctypes.data, array.dtype.name, list(array.shape))
    return tensor, (tensor.address, tensor.dtype, tensor.shape)


def input_array(name: str, value: Any, wanted: np.dtype[Any] | None) -> tuple[Any, Raw]:
    """What must stay alive while a model reads an input, and where it lies.

    Row-major arrays of numpy and anything with `__dlpack__` in the host's memory are read where they are; others are
    copied. `wanted` is the model's dtype, which numbers and lists get; arrays keep theirs.
    """
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        return _by_dlpack(name, value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):  # arrays and scalars of numpy, and others
        array = np.asarray(value)
    else:
        try:
            array = _of_python_values(value, wanted)
        except (ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"input '{name}' is no array: {error}") from None
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
    ):  # ml_dtypes leaves the bits above the value as they are; Sardonyx wants the sign there
        shift = 8 - int(dtype[3:])
        array = np.asarray((array.view(np.int8) << shift) >> shift)
    return array, (array.ctypes.data, dtype, list(array.shape))


def output_array(buffer: _sardonyx.Tensor) -> np.ndarray[Any, Any]:
    """An output as an array of numpy, which keeps it alive."""
    return buffer.bytes().view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)
