"""Shapes and element types of MIGraphX's Python module."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Iterable
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any

import ml_dtypes
import numpy as np

from . import library
from .library import Handle, call


class type_t(enum.IntEnum):
    """Element types, with the numbers of the C interface."""

    tuple_type = 0
    fp4x2_type = 1
    bool_type = 2
    half_type = 3
    float_type = 4
    double_type = 5
    uint8_type = 6
    int8_type = 7
    uint16_type = 8
    int16_type = 9
    int32_type = 10
    int64_type = 11
    uint32_type = 12
    uint64_type = 13
    fp8e4m3fnuz_type = 14
    fp8e4m3fn_type = 15
    fp8e5m2_type = 16
    bf16_type = 17
    fp8e5m2fnuz_type = 18


_NUMPY = {
    type_t.bool_type: np.bool_,
    type_t.half_type: np.float16,
    type_t.float_type: np.float32,
    type_t.double_type: np.float64,
    type_t.uint8_type: np.uint8,
    type_t.int8_type: np.int8,
    type_t.uint16_type: np.uint16,
    type_t.int16_type: np.int16,
    type_t.int32_type: np.int32,
    type_t.int64_type: np.int64,
    type_t.uint32_type: np.uint32,
    type_t.uint64_type: np.uint64,
    type_t.fp8e4m3fnuz_type: ml_dtypes.float8_e4m3fnuz,
    type_t.fp8e4m3fn_type: ml_dtypes.float8_e4m3fn,
    type_t.fp8e5m2_type: ml_dtypes.float8_e5m2,
    type_t.bf16_type: ml_dtypes.bfloat16,
    type_t.fp8e5m2fnuz_type: ml_dtypes.float8_e5m2fnuz,
}
DTYPES = {t: np.dtype(d) for t, d in _NUMPY.items()}
TYPES = {d: t for t, d in DTYPES.items()}


def parse_type(value: Any) -> type_t:
    """A type by number or by name: "float_type", "float", "int64_t". Raises ValueError."""
    if isinstance(value, str):
        word = value.removesuffix("_type").removesuffix("_t")
        value = type_t.__members__.get(f"{word}_type", value)
    try:
        return type_t(value)
    except ValueError:
        raise ValueError(f"there is no element type {value!r}; there are {', '.join(type_t.__members__)}") from None


class dynamic_dimension:
    """A dim that may have any size from `min` to `max`; `optimals`: sizes that occur often."""

    def __init__(self, min: int = 0, max: int | None = None, optimals: Iterable[int] = ()) -> None:
        self.min, self.max = int(min), int(min if max is None else max)
        self.optimals = set(optimals)

    def is_fixed(self) -> bool:
        """Whether there is only one size."""
        return self.min == self.max

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dynamic_dimension):
            return NotImplemented
        return (self.min, self.max, self.optimals) == (other.min, other.max, other.optimals)

    def __hash__(self) -> int:
        return hash((self.min, self.max))

    def __repr__(self) -> str:
        return f"[ {self.min}, {self.max}, {{{', '.join(map(str, sorted(self.optimals)))}}} ]"

    def _handle(self) -> Handle:
        (best, count) = library.sizes(sorted(self.optimals))
        optimals = library.make("optimals", "optimals_create", best, count)
        (bounds, _) = library.sizes((self.min, self.max))
        create = "dynamic_dimension_create_min_max_optimals"
        return library.make("dynamic_dimension", create, c_size_t(bounds[0]), c_size_t(bounds[1]), optimals)


def dims_handle(dims: Iterable[dynamic_dimension]) -> Handle:
    return library.handles("dynamic_dimensions", [d._handle() for d in dims])


class shape:
    """Element type and sizes: `lens` with `strides` (in elements) or a `permutation`, or `dyn_dims`.

    type: a name ("float_type", "float", "int64_t") or type_t. Without sizes: one element.
    """

    dynamic_dimension = dynamic_dimension
    type_t = type_t

    def __init__(
        self,
        *,
        type: Any = "float",
        lens: Iterable[int] | None = None,
        strides: Iterable[int] | None = None,
        permutation: Iterable[int] | None = None,
        dyn_dims: Iterable[dynamic_dimension] | None = None,
    ) -> None:
        kind = c_int(parse_type(type))
        if dyn_dims is not None:
            self._handle = library.make("shape", "shape_create_dynamic", kind, dims_handle(dyn_dims))
            return
        sizes = [1] if lens is None else [int(n) for n in lens]
        if permutation is not None:
            strides = _permuted_strides(sizes, list(permutation))
        if strides is None:
            self._handle = library.make("shape", "shape_create", kind, *library.sizes(sizes))
            return
        steps = [int(n) for n in strides]
        self._handle = library.make(
            "shape", "shape_create_with_strides", kind, *library.sizes(sizes), *library.sizes(steps)
        )

    @classmethod
    def _of(cls, handle: Handle) -> shape:
        """A copy of what a handle stands for."""
        made = cls()
        call("shape_assign_to", made._handle, handle)
        return made

    def _sizes(self, what: str) -> list[int]:
        data, n = ctypes.POINTER(c_size_t)(), c_size_t()
        call(f"shape_{what}", byref(data), byref(n), self._handle)
        return data[: n.value] if n.value else []

    def type(self) -> type_t:
        """The element type."""
        t = c_int()
        call("shape_type", byref(t), self._handle)
        return type_t(t.value)

    def lens(self) -> list[int]:
        """The sizes of the dims."""
        return self._sizes("lengths")

    def strides(self) -> list[int]:
        """The distance of neighbours along each dim, in elements."""
        return self._sizes("strides")

    def ndim(self) -> int:
        """The number of dims."""
        return library.size("shape_ndim", self._handle)

    def elements(self) -> int:
        """The number of elements."""
        return library.size("shape_elements", self._handle)

    def bytes(self) -> int:
        """The bytes of memory that a tensor takes, gaps between elements included."""
        return library.size("shape_bytes", self._handle)

    def type_string(self) -> str:
        """The name of the element type: "float_type"."""
        return self.type().name

    def type_size(self) -> int:
        """The bytes of an element."""
        return self.numpy_dtype().itemsize

    def numpy_dtype(self) -> np.dtype[Any]:
        """The element type as numpy (or ml_dtypes) has it. Raises RuntimeError for tuples and fp4x2. (Not MIGraphX's.)"""
        if self.type() not in DTYPES:
            raise RuntimeError(f"there are no tensors of {self.type_string()}")
        return DTYPES[self.type()]

    def dyn_dims(self) -> list[dynamic_dimension]:
        """The dims of a dynamic shape; of another one its sizes as fixed dims."""
        if not self.dynamic():
            return [dynamic_dimension(n, n) for n in self.lens()]
        return _dims_of_repr(repr(self))

    def packed(self) -> bool:
        """Whether the elements fill their memory, in any order."""
        if self.dynamic():
            return False
        return _space(self.lens(), self.strides()) == self.elements()

    def transposed(self) -> bool:
        """Whether the strides don't decrease; dims that are repeated don't count."""
        steps = [] if self.dynamic() else [s for s in self.strides() if s != 0]
        return steps != sorted(steps, reverse=True)

    def broadcasted(self) -> bool:
        """Whether an element is several ones of the tensor."""
        return not self.dynamic() and 0 in self.strides()

    def standard(self) -> bool:
        """Whether elements are row-major without gaps."""
        return library.flag("shape_standard", self._handle)

    def scalar(self) -> bool:
        """Whether all elements are the same one of the tensor."""
        return not self.dynamic() and all(s == 0 for s in self.strides())

    def dynamic(self) -> bool:
        """Whether sizes are not known before a run."""
        return library.flag("shape_dynamic", self._handle)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, shape):
            return NotImplemented
        return library.flag("shape_equal", self._handle, other._handle)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return library.text("+shape_text", self._handle)


def _space(lens: list[int], strides: list[int]) -> int:
    return 0 if 0 in lens else 1 + sum((n - 1) * s for n, s in zip(lens, strides))


def _permuted_strides(lens: list[int], permutation: list[int]) -> list[int]:
    """Strides of a tensor whose axes lie in memory in the order of `permutation`."""
    if sorted(permutation) != list(range(len(lens))):
        raise ValueError(f"{permutation} is no permutation of {len(lens)} axes")
    strides, step = [0] * len(lens), 1
    for axis in reversed(permutation):
        strides[axis] = step
        step *= lens[axis]
    return strides


def _dims_of_repr(text: str) -> list[dynamic_dimension]:
    found = []
    for part in text.split("[ ")[1:]:
        bounds, _, rest = part.partition("{")
        low, high = (int(n) for n in bounds.strip(", ").split(", "))
        best = rest.partition("}")[0]
        found.append(dynamic_dimension(low, high, {int(n) for n in best.split(", ")} if best else ()))
    return found


def shapes_of(handle: Handle) -> list[shape]:
    """The shapes in a list."""
    count = library.size("shapes_size", handle)
    each = (library.borrow("shapes_get", handle, c_size_t(k), owner=handle) for k in range(count))
    return [shape._of(h) for h in each]


def shape_of_pointer(pointer: c_void_p, owner: Any) -> shape:
    return shape._of(Handle("", pointer, owner))
