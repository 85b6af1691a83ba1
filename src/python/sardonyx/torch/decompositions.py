"""Which operators are left for torch.onnx when a graph is traced, and how the others decompose."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.export import exported_program
from torch.export._trace import _ignore_backend_decomps
from torch.onnx._internal.exporter import _decomp, _registration

from .repairs import MISTRANSLATED, translations

aten = torch.ops.aten


@functools.cache
def registry() -> Any:
    """torch.onnx's table of operators, without what it translates incorrectly. Making it takes longer than a small
    model's translation."""
    made = _registration.ONNXRegistry.from_torchlib()
    for key, found in list(made.functions.items()):
        if str(found[0].fx_target) in MISTRANSLATED:
            del made.functions[key]  # PyTorch's decomposition is used
    for target, function in translations().items():
        made.register_op(target, function)
    return made


def split(x: torch.Tensor, size: Any, dim: int = 0) -> list[torch.Tensor]:
    return [aten.slice.Tensor(x, dim, k, k + size) for k in range(0, max(int(x.shape[dim]), 1), size or 1)]


def split_with_sizes(x: torch.Tensor, sizes: Sequence[Any], dim: int = 0) -> list[torch.Tensor]:
    at, parts = 0, []
    for size in sizes:
        parts.append(aten.slice.Tensor(x, dim, at, at + size))
        at = at + size
    return parts


def unbind(x: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [aten.select.int(x, dim, k) for k in range(int(x.shape[dim]))]


def stable_sort(x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return aten.sort.default(x, dim, descending)  # which keeps the order of equal elements here


#: torch.onnx makes lists of tensors of these, which only its optimizer takes apart again.
LISTS: dict[Any, Callable[..., Any]] = {aten.split.Tensor: split, aten.split_with_sizes.default: split_with_sizes, aten.unbind.int: unbind}  # fmt: skip
#: PyTorch decomposes these into the lists above.
OF_LISTS = {"chunk", "split.sizes", "tensor_split", "unsafe_chunk", "hsplit", "vsplit", "dsplit"}


@functools.cache
def tables() -> tuple[dict[Any, Callable[..., Any]], dict[Any, Callable[..., Any]]]:
    """How composite operators are treated when they are called, and the decompositions of the others."""
    known = set(_decomp.get_onnx_implemented_overloads(registry()))
    table = _decomp.create_onnx_friendly_decomposition_table(known)
    composite, others = exported_program._split_decomp_table_to_cia_and_python_decomp(table)
    kept = {op: f for op, f in composite.items() if op in known and not is_of_lists(op)}
    return kept, dict(others) | LISTS | {aten.sort.stable: stable_sort}


def is_of_lists(op: Any) -> bool:
    name = op.name().removeprefix("aten::")
    return name in OF_LISTS or name.split(".")[0] in OF_LISTS


def decompositions() -> dict[Any, Callable[..., Any]]:
    return tables()[1]


@contextlib.contextmanager
def without_decomposing() -> Iterator[None]:
    """Composite operators that torch.onnx knows are recorded as they are."""
    with _ignore_backend_decomps(), exported_program._override_composite_implicit_decomp(tables()[0]):
        yield
