"""Which operators are left for torch.onnx when a graph is traced, and how the others decompose."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.export import exported_program
from torch.export._trace import _ignore_backend_decomps
from torch.onnx._internal.exporter import _decomp, _registration

from ..errors import UnsupportedError
from .repairs import MISTRANSLATED, custom_translations, translations
from .rules import RULES

aten = torch.ops.aten


def registry() -> Any:
    """torch.onnx's table of operators, without what it translates incorrectly, and with what it lacks."""
    made = torch_registry(has_torchvision())
    for target, function in custom_translations().items():  # of packages that may have been imported since
        if not any(found.is_custom for found in made.get_decomps(target)):
            made.register_op(target, function)
    return made


def has_torchvision() -> bool:
    """Whether it has registered its operators, which torch.onnx's table then has too."""
    return "torchvision" in sys.modules


@functools.cache
def torch_registry(torchvision: bool) -> Any:
    """Making it takes longer than a small model's translation."""
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


def solve_triangular(a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> torch.Tensor:  # fmt: skip
    """The inverse of `a` [..., n, n] times `b` [..., n, k]. The inverse of a lower triangle [[p, 0], [c, q]] is
    [[p', 0], [-q' c p', q']]: the blocks on the diagonal are inverted from single elements on, doubling their size
    (N. Higham, Accuracy and Stability of Numerical Algorithms, chapter 14). A step of refinement makes the residual as
    small as that of substitution, which an inverse alone does not (chapter 12)."""
    if not left:  # x a = b is a^T x^T = b^T
        return solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    if upper:
        return solve_triangular(a.flip(-2, -1), b.flip(-2), upper=False, unitriangular=unitriangular).flip(-2)
    n = int(a.shape[-1])
    if n == 0:
        return b * 0
    inverse = inverse_of_lower(a, n, unitriangular)
    triangle = a.tril(-1) + torch.eye(n, dtype=a.dtype, device=a.device) if unitriangular else a.tril()
    first = inverse @ b
    correction = inverse @ (b - triangle @ first)
    return torch.where(correction.isfinite(), first + correction, first)  # a zero on the diagonal gives infinities


def inverse_of_lower(a: torch.Tensor, n: int, unitriangular: bool) -> torch.Tensor:
    lead = a.shape[:-2]
    whole = 1 << (n - 1).bit_length()
    if whole > n:  # with an identity behind it
        eye = torch.eye(whole, dtype=a.dtype, device=a.device)
        a = torch.nn.functional.pad(a, (0, whole - n, 0, whole - n)) + eye * (torch.arange(whole, device=a.device) >= n)
    diagonal = a.diagonal(dim1=-2, dim2=-1)[..., None, None]
    inverse, size = torch.ones_like(diagonal) if unitriangular else diagonal.reciprocal(), 1
    while size < whole:
        blocks = whole // (2 * size)
        pairs = a.reshape(*lead, blocks, 2, size, blocks, 2, size)[..., 1, :, :, 0, :]  # the blocks below the diagonal
        below = pairs.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        p, q = inverse.reshape(*lead, blocks, 2, size, size).unbind(-3)
        rows = torch.cat((p, torch.zeros_like(p)), -1), torch.cat((-(q @ below @ p), q), -1)
        inverse, size = torch.cat(rows, -2), 2 * size
    return inverse.reshape(*lead, whole, whole)[..., :n, :n]


def as_strided(x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> torch.Tensor:  # fmt: skip
    """Elements of the memory of `x` by their offsets. torch.onnx takes the memory for the row-major elements of `x`, which
    it is not behind a transposition."""
    memory = x.permute(order_in_memory(x))
    return memory.reshape(-1)[offsets_of(x, size, stride, storage_offset)]


def as_strided_scatter(x: torch.Tensor, source: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> torch.Tensor:  # fmt: skip
    """`x` with other elements at these offsets of its memory."""
    order = order_in_memory(x)
    memory = x.permute(order)
    places = offsets_of(x, size, stride, storage_offset).reshape(-1)
    changed = memory.reshape(-1).scatter(0, places, source.expand(size).reshape(-1)).reshape(memory.shape)
    return changed.permute(sorted(range(x.ndim), key=lambda d: order[d]))


def order_in_memory(x: torch.Tensor) -> list[int]:
    """The dims of `x` in the order of memory, all of which it takes."""
    compare = lambda a, b: int(bool(x.stride(b) > x.stride(a))) - int(bool(x.stride(a) > x.stride(b)))
    order = sorted(range(x.ndim), key=functools.cmp_to_key(compare))
    if not x.permute(order).is_contiguous() or x.storage_offset() != 0:
        raise UnsupportedError("as_strided of a tensor that is a part of its memory")
    return order


def offsets_of(x: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any) -> torch.Tensor:
    offsets = torch.zeros((), dtype=torch.int64, device=x.device) + (storage_offset or 0)
    for n, step in zip(size, stride, strict=True):
        offsets = offsets[..., None] + torch.arange(n, device=x.device) * step
    return offsets


def triangular_solve(b: torch.Tensor, a: torch.Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The older form of it, which also gives the coefficients."""
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    coefficients, b = a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])
    given, upper = (coefficients.mT, not upper) if transpose else (coefficients, upper)
    return solve_triangular(given, b, upper=upper, unitriangular=unitriangular), coefficients.clone()


def reversed_subtraction(x: torch.Tensor, other: Any, alpha: Any = 1) -> torch.Tensor:
    """A number minus a tensor, which torch.onnx does not promote."""
    result: torch.Tensor = torch._refs.rsub(x.to(torch.result_type(x, other)), other, alpha=alpha)
    return result


#: torch.onnx makes lists of tensors of these, which only its optimizer takes apart again.
LISTS: dict[Any, Callable[..., Any]] = {aten.split.Tensor: split, aten.split_with_sizes.default: split_with_sizes, aten.unbind.int: unbind}  # fmt: skip
REPLACED: dict[Any, Callable[..., Any]] = {aten.sort.stable: stable_sort, aten.linalg_solve_triangular.default: solve_triangular, aten.triangular_solve.default: triangular_solve, aten.rsub.Scalar: reversed_subtraction, aten.as_strided.default: as_strided, aten.as_strided_scatter.default: as_strided_scatter, torch.ops.prims.as_strided_scatter.default: as_strided_scatter}  # fmt: skip
#: PyTorch decomposes these into the lists above.
OF_LISTS = {"chunk", "split.sizes", "tensor_split", "unsafe_chunk", "hsplit", "vsplit", "dsplit"}


@functools.cache
def tables(torchvision: bool) -> tuple[dict[Any, Callable[..., Any]], dict[Any, Callable[..., Any]]]:
    """How composite operators are treated when they are called, and the decompositions of the others."""
    known = set(_decomp.get_onnx_implemented_overloads(registry()))
    table = _decomp.create_onnx_friendly_decomposition_table(known)
    composite, others = exported_program._split_decomp_table_to_cia_and_python_decomp(table)
    kept = {op: f for op, f in composite.items() if op in known and not is_of_lists(op)}
    return kept, dict(others) | LISTS | REPLACED | RULES


def is_of_lists(op: Any) -> bool:
    name = op.name().removeprefix("aten::")
    return name in OF_LISTS or name.split(".")[0] in OF_LISTS


def decompositions() -> dict[Any, Callable[..., Any]]:
    return tables(has_torchvision())[1]


@contextlib.contextmanager
def without_decomposing() -> Iterator[None]:
    """Composite operators that torch.onnx knows are recorded as they are."""
    with _ignore_backend_decomps(), exported_program._override_composite_implicit_decomp(tables(has_torchvision())[0]):
        yield
