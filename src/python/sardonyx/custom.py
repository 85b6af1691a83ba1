"""Custom operators: kernels in CUDA or HIP, or element-wise expressions.

    sardonyx.custom_operator(
        "com.example::Scale",
        inputs=["x: T[n]"], outputs=["y: T[n]"], attributes=["factor: float = 2"],
        source="scale.cu", kernel="scale<T>", grid="ceildiv(n, 256)", block=256, arguments=["x", "y", "factor", "n"],
    )

docs/custom-operators.md explains each part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from . import _sardonyx
from .errors import FileError, InvalidArgumentError

#: A formula, or several: of x, y and z, or of several arguments.
Formulas: TypeAlias = "str | int | Sequence[str | int | float]"

_SUFFIXES = (".cu", ".cuh", ".hip", ".h", ".hpp", ".cpp", ".cc", ".cxx")


class Launch(NamedTuple):
    """A launch of a kernel: blocks of the grid, threads of a block, bytes of dynamic shared memory, arguments."""

    kernel: str
    grid: Formulas = 1
    block: Formulas = 1
    shared: str | int = 0
    arguments: Formulas = ()


def custom_operator(
    name: str,
    *,
    inputs: str | Sequence[str],
    outputs: str | Sequence[str] = (),
    source: str | os.PathLike[str] | None = None,
    kernel: str | None = None,
    grid: Formulas = 1,
    block: Formulas = 1,
    shared: str | int = 0,
    arguments: Formulas = (),
    launches: Sequence[Launch] = (),
    expression: str | None = None,
    attributes: str | Sequence[str] = (),
    workspace: str | Sequence[str] = (),
    let: str | Sequence[str] = (),
    require: str | Sequence[str] = (),
) -> None:
    """Registers an operator for models that are compiled from now on, in place of one of the same name.

    source is a file (a path, or a name that ends in .cu, .hip, .cpp or the like), or the text itself. Give a kernel with
    its grid, block, shared memory and arguments, or several launches, or an expression. Without arguments a kernel gets
    the inputs and then the outputs. The source runs with the permissions of the program.

    Raises InvalidArgumentError for a malformed definition, FileError for a source that can't be read. Compiling a model raises
    CompileError if the compiler refuses the source.
    """
    lists = {
        "inputs": _texts("inputs", inputs),
        "outputs": _texts("outputs", outputs),
        "attributes": _texts("attributes", attributes),
        "workspace": _texts("workspace", workspace),
        "let": _texts("let", let),
        "require": _texts("require", require),
    }
    if kernel is not None and launches:
        raise InvalidArgumentError(f"custom operator {name}: give a kernel or launches, not both")
    every = list(launches)
    if kernel is not None:
        every = [Launch(kernel, grid, block, shared, arguments)]
    text, file = _source(name, source)
    made = [
        (k.kernel, _formulas(k.grid), _formulas(k.block), str(k.shared), _formulas(k.arguments))
        for k in map(_launch, every)
    ]
    _sardonyx.register_custom_operator(name, lists, text, file, made, expression or "")


def load_custom_operators(file: str | os.PathLike[str]) -> None:
    """Registers the operators of a TOML file, as the option custom_operators does for one model."""
    _sardonyx.register_custom_operators(os.fspath(file))


def custom_operators() -> list[str]:
    """Names of the registered operators."""
    return _sardonyx.custom_operators()


def _launch(launch: Launch | tuple[object, ...]) -> Launch:
    return launch if isinstance(launch, Launch) else Launch(*launch)  # type: ignore[arg-type]


def _texts(field: str, given: str | Sequence[str]) -> list[str]:
    listed = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(text, str) for text in listed):
        raise InvalidArgumentError(f"{field}: a declaration is a text, for example 'x: T[rows, cols]'")
    return listed


def _formulas(given: Formulas) -> list[str]:
    return [str(given)] if isinstance(given, str | int) else [str(part) for part in given]


def _source(name: str, source: str | os.PathLike[str] | None) -> tuple[str, str]:
    """The text and the file that it is from."""
    if source is None:
        return "", ""
    if isinstance(source, str) and ("\n" in source or not source.endswith(_SUFFIXES)):
        return source, ""
    file = os.fspath(source)
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read(), file
    except (OSError, UnicodeDecodeError) as e:
        raise FileError(f"custom operator {name}: {file} can't be read: {e}") from e
