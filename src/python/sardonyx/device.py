"""Devices, and tensors in their memory."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _sardonyx
from ._sardonyx import Stream, Tensor
from .arrays import Card, input_array, numpy_dtype
from .errors import InvalidArgumentError


class Device(NamedTuple):
    """A device that can run models."""

    name: str  #: for compile()
    description: str
    target: str  #: target of generated code
    threads: int
    memory: int  #: bytes


def empty(shape: Sequence[int], dtype: Any, device: str = "host") -> Tensor:
    """Allocates an uninitialised tensor on a device. dtype: a dtype of numpy or ml_dtypes, or its name."""
    return _sardonyx.empty(device, np.dtype(numpy_dtype(dtype) if isinstance(dtype, str) else dtype).name, list(shape))


def pinned(shape: Sequence[int], dtype: Any, device: str) -> np.ndarray[Any, Any]:
    """An array in host memory that the GPU `device` copies from and to while the host goes on (page-locked), for
    Model.bind(); for "host" ordinary memory. Its elements are uninitialised. Raises errors.Error if there is none left, and
    InvalidArgumentError for a negative dim."""
    if any(n < 0 for n in shape):
        raise InvalidArgumentError(f"pinned memory of shape {tuple(shape)}: a dim can't be negative")
    kind = np.dtype(numpy_dtype(dtype) if isinstance(dtype, str) else dtype)
    memory = _sardonyx.pinned(device, min(math.prod(shape) * kind.itemsize, 2**63 - 1))  # that much never exists
    return np.asarray(memory.bytes()).view(kind).reshape(shape)


def copy(to: Tensor, value: Any) -> None:
    """Copies an array (numpy, or with `__dlpack__` in host memory or on the same device) to a tensor of the same dtype and
    shape. The copy is complete when it returns."""
    stream = Stream(to.device)
    card = None if to.device == "host" else Card(to.device, stream, stream.handle)
    owner, raw = input_array("value", value, numpy_dtype(to.dtype), card)
    stream.synchronize()  # what computes it
    to._copy_from(raw)
    del owner


def to_device(value: Any, device: str) -> Tensor:
    """A copy of an array in the memory of a device."""
    if not hasattr(value, "__dlpack__") or isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        tensor = empty(value.shape, value.dtype, device)
    elif isinstance(value, Tensor):
        tensor = _sardonyx.empty(device, value.dtype, value.shape)
    else:
        like = value if hasattr(value, "shape") else np.from_dlpack(value)
        dtype = str(like.dtype).rpartition(".")[2]  # torch's are "torch.float32"
        tensor = empty(tuple(like.shape), dtype, device)
    copy(tensor, value.numpy() if isinstance(value, Tensor) and value.device not in ("host", tensor.device) else value)
    return tensor


def chips() -> list[dict[str, Any]]:
    """All GPU chips that code can be generated for: their memories, registers, instructions and products, with peak rates.

    The table of `sardonyx devices --chips --json`; docs/devices.md has its columns.
    """
    table: list[dict[str, Any]] = json.loads(_sardonyx.chips_json())
    return table


def devices() -> list[Device]:
    """The devices that can run models, the default first."""
    return [Device(*d) for d in _sardonyx.devices()]
