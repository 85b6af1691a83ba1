"""libmigraphx_c.so.3, MIGraphX's C interface on Sardonyx, as Python calls it."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_bool, c_char_p, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from .. import _sardonyx  # noqa: F401  libsardonyx.so, which the library needs

HERE = Path(__file__).resolve().parent
NAME = "libmigraphx_c.so.3"


def folder() -> Path:
    """The folder of the library: inside the package, or in the build directory. Raises ImportError if it was not built."""
    for place in (HERE / "lib", HERE.parents[2] / "lib" / "migraphx"):
        if (place / NAME).exists():
            return place
    raise ImportError(f"{NAME} is not there: Sardonyx was built without SARDONYX_MIGRAPHX")


_library = ctypes.CDLL(str(folder() / NAME))
_library.sardonyx_migraphx_last_error.restype = c_char_p
_library.sardonyx_migraphx_set_quiet.argtypes = [c_bool]


def call(function: str, *arguments: Any) -> None:
    """Calls migraphx_FUNCTION, or sardonyx_migraphx_FUNCTION for names that begin with "+". Raises RuntimeError with its
    message, as MIGraphX's module does."""
    name = f"sardonyx_migraphx_{function[1:]}" if function[0] == "+" else f"migraphx_{function}"
    _library.sardonyx_migraphx_set_quiet(True)  # of this thread
    status = getattr(_library, name)(*(a.pointer if isinstance(a, Handle) else a for a in arguments))
    if status != 0:
        raise RuntimeError(_library.sardonyx_migraphx_last_error().decode(errors="replace").removeprefix("migraphx_"))


class Handle:
    """An object of the library, which this one destroys; or one that `owner` keeps alive."""

    def __init__(self, kind: str, pointer: c_void_p, owner: Any = None) -> None:
        self.pointer = pointer
        self.owner = owner
        if owner is None:
            weakref.finalize(self, getattr(_library, f"migraphx_{kind}_destroy"), pointer).atexit = False


def make(kind: str, function: str, *arguments: Any) -> Handle:
    """A new object, which `function` gives through its first argument."""
    pointer = c_void_p()
    call(function, byref(pointer), *arguments)
    return Handle(kind, pointer)


def borrow(function: str, *arguments: Any, owner: Any) -> Handle:
    """An object inside another one."""
    pointer = c_void_p()
    call(function, byref(pointer), *arguments)
    return Handle("", pointer, owner)


def size(function: str, *arguments: Any) -> int:
    n = c_size_t()
    call(function, byref(n), *arguments)
    return n.value


def flag(function: str, *arguments: Any) -> bool:
    b = c_bool()
    call(function, byref(b), *arguments)
    return b.value


def text(function: str, *arguments: Any) -> str:
    t = c_char_p()
    call(function, byref(t), *arguments)
    return (t.value or b"").decode(errors="replace")


def sizes(values: Sequence[int]) -> tuple[Any, c_size_t]:
    """An array of sizes and its length, as functions take them. Raises ValueError for negative ones."""
    if any(v < 0 for v in values):
        raise ValueError(f"sizes can't be negative: {list(values)}")
    return (c_size_t * max(len(values), 1))(*values), c_size_t(len(values))


def handles(list_kind: str, items: Sequence[Handle]) -> Handle:
    """A list of objects, as functions take them."""
    pointers = (c_void_p * max(len(items), 1))(*(i.pointer for i in items))
    return make(list_kind, f"{list_kind}_create", pointers, c_size_t(len(items)))
