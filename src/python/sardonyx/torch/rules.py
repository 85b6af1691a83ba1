"""Operators that torch.onnx has not, or gives other results for, by operators that it has.

Each function has its operator's parameters; NotImplemented leaves a call to torch.onnx. Found by PyTorch's own samples of its
operators (benchmarks/torch_operators.py) and by modules as users write them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .layer_rules import LAYERS

aten = torch.ops.aten
prims = torch.ops.prims

#: The longest dim along which every element is compared with all others.
LONGEST_PAIRS = 4096


def is_short(n: Any) -> bool:
    """Whether a dim can be compared with itself; of one that varies, whether it is short now."""
    return bool((n.node.hint if isinstance(n, torch.SymInt) else n) <= LONGEST_PAIRS)


# --- scatters


def scatter_by(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, reduce: str) -> torch.Tensor:
    names = {"add": "sum", "multiply": "prod"}
    return aten.scatter_reduce.two(x, dim, index, source, names[reduce])


def scatter_value_by(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any, *, reduce: str) -> torch.Tensor:
    return scatter_by(x, dim, index, torch.full(index.shape, value, dtype=x.dtype, device=x.device), reduce=reduce)


def scatter_mean(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True) -> Any:  # fmt: skip
    """torch.onnx takes the last of the elements for their mean."""
    if reduce != "mean" or not x.ndim:
        return NotImplemented
    ones = torch.ones(index.shape, dtype=x.dtype, device=x.device)
    counts = aten.scatter_add.default(torch.zeros_like(x), dim, index, ones)
    if not include_self:
        kept = torch.where(counts == 0, x, torch.zeros_like(x))
    sums = aten.scatter_add.default(x if include_self else kept, dim, index, source[tuple(slice(0, n) for n in index.shape)])  # fmt: skip
    counts = counts + 1 if include_self else counts.clamp(min=1)
    return sums / counts if x.is_floating_point() else torch.div(sums, counts, rounding_mode="floor")


def index_reduce(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True) -> Any:  # fmt: skip
    if not x.ndim or x.dtype == torch.bool or not isinstance(source, torch.Tensor) or source.ndim != x.ndim:
        return NotImplemented
    shape = [-1 if d == dim % x.ndim else 1 for d in range(x.ndim)]
    places = index.reshape(shape).expand(source.shape)
    return aten.scatter_reduce.two(x, dim, places, source, reduce, include_self=include_self)


# --- reductions


def any_by(operator: Any) -> Callable[..., Any]:
    """torch.onnx takes a largest element, which an empty dim has not. Of bytes PyTorch's result is a byte."""

    def call(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        found = torch.logical_not(operator(torch.logical_not(x), *rest, **named))
        return found.to(torch.uint8) if x.dtype == torch.uint8 else found

    return call


def extreme(operator: Any) -> Callable[..., Any]:
    """amax and amin: torch.onnx wants the dims, and has none of bools."""

    def call(x: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        dims = list(dim) or list(range(x.ndim))
        if x.dtype == torch.bool:
            return operator(x.to(torch.uint8), dims, keepdim).to(torch.bool)
        return operator(x, dims, keepdim) if not dim and x.ndim else NotImplemented

    return call


def nansum(x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if x.is_floating_point():
        return NotImplemented
    return x.sum(dtype=dtype) if dim is None and not keepdim else x.sum(dim, keepdim, dtype=dtype)


def product(x: torch.Tensor, dims: Sequence[int] | None, *, output_dtype: Any = None) -> torch.Tensor:
    """Of the decomposition of running products."""
    x = x if output_dtype is None else x.to(output_dtype)
    for d in sorted(range(x.ndim) if dims is None else (d % x.ndim for d in dims), reverse=True):
        x = aten.prod.dim_int(x, d)
    return x


def running_product(x: torch.Tensor, dim: int, *, dtype: Any = None) -> Any:
    x = x if dtype is None and (x.is_floating_point() or x.dtype == torch.int64) else x.to(dtype or torch.int64)
    if not x.ndim or not is_short(x.shape[dim]):
        return NotImplemented
    lines = x.movedim(dim, -1)
    before = torch.ones(lines.shape[-1], lines.shape[-1], dtype=torch.bool, device=x.device).tril()
    return aten.prod.dim_int(torch.where(before, lines[..., None, :], 1), -1).movedim(-1, dim)


# --- order


def kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.ndim or x.dtype == torch.bool:
        return NotImplemented
    values, at = aten.sort.default(x, dim)
    picked = values.narrow(dim, k - 1, 1), at.narrow(dim, k - 1, 1)
    return picked if keepdim else tuple(p.squeeze(dim) for p in picked)


def median_of(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower one of two. NaN counts as the largest number, and of a line with NaN it is the result."""
    if not x.ndim or x.dtype == torch.bool:
        return NotImplemented
    values, at = aten.sort.default(x, dim)
    n = x.shape[dim]
    middle = torch.full((), (n - 1) // 2, dtype=torch.int64, device=x.device)
    if x.is_floating_point():
        missing = torch.isnan(x).sum(dim, keepdim=True)
        middle = torch.where(missing > 0, n - missing, middle)  # the first NaN
    else:
        middle = middle.expand([1 if d == dim % x.ndim else s for d, s in enumerate(x.shape)])
    return picked_at(values, at, middle, dim, keepdim)


def nanmedian_of(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
    if not x.ndim or not x.is_floating_point():
        return NotImplemented if not x.ndim else median_of(x, dim, keepdim)
    values, at = aten.sort.default(x, dim)
    count = x.shape[dim] - torch.isnan(x).sum(dim, keepdim=True)
    return picked_at(values, at, (torch.div(count - 1, 2, rounding_mode="floor")).clamp(min=0), dim, keepdim)


def picked_at(values: torch.Tensor, at: torch.Tensor, place: torch.Tensor, dim: int, keepdim: bool) -> Any:
    picked = values.gather(dim, place), at.gather(dim, place)
    return picked if keepdim else tuple(p.squeeze(dim) for p in picked)


def of_all(one: Callable[..., Any]) -> Callable[..., Any]:
    """Of all elements instead of those along a dim."""

    def call(x: torch.Tensor) -> Any:
        found = one(x.reshape(-1), 0)
        return found if found is NotImplemented else found[0]

    return call


def running_extreme(larger: bool) -> Callable[..., Any]:
    """cummax and cummin: each element's extreme is that of all before it, and its place the last where that stands."""

    def call(x: torch.Tensor, dim: int) -> Any:
        if not x.ndim:
            return x.clone(), torch.zeros((), dtype=torch.int64, device=x.device)
        if x.dtype == torch.bool:
            found = call(x.to(torch.uint8), dim)
            return found if found is NotImplemented else (found[0].to(torch.bool), found[1])
        if not is_short(x.shape[dim]):
            return NotImplemented
        lines = x.movedim(dim, -1)
        before = torch.ones(lines.shape[-1], lines.shape[-1], dtype=torch.bool, device=x.device).tril()
        info = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        least = (-math.inf if larger else math.inf) if x.is_floating_point() else (info.min if larger else info.max)
        candidates = torch.where(before, lines[..., None, :], least)
        values = candidates.amax(-1) if larger else candidates.amin(-1)
        here = lines[..., None, :] == values[..., None]
        if x.is_floating_point():  # NaN is the extreme of what follows it
            here = here | torch.isnan(lines)[..., None, :]
        numbers = torch.arange(lines.shape[-1], device=x.device)
        at = torch.where(before & here, numbers, 0).amax(-1)
        return values.movedim(-1, dim), at.movedim(-1, dim)

    return call


def searchsorted(line: torch.Tensor, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None) -> Any:  # fmt: skip
    """How many of the sorted elements are before each of x. Such a count needs no search, and is as fast for few."""
    if not is_short(line.shape[-1]):
        return NotImplemented
    if not isinstance(x, torch.Tensor):
        x = torch.full((), x, dtype=torch.result_type(line, x), device=line.device)
    line = line if sorter is None else line.gather(-1, sorter)
    common = torch.promote_types(line.dtype, x.dtype)
    line, values = line.to(common), x.to(common)
    of = line if line.ndim == 1 else line[..., None, :]
    beyond = of > values[..., None] if right or side == "right" else of >= values[..., None]
    return torch.logical_not(beyond).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def searchsorted_value(line: torch.Tensor, x: Any, **named: Any) -> Any:
    return searchsorted(line, x, **named)


def bucketize(x: Any, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def of_bytes(operator: Any) -> Callable[..., Any]:
    """Values and places of bools, which torch.onnx's translation does not take."""

    def call(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if x.dtype != torch.bool:
            return NotImplemented
        values, at = operator(x.to(torch.uint8), *rest, **named)
        return values.to(torch.bool), at

    return call


# --- elements


def whole(x: torch.Tensor) -> Any:
    """Rounding of integers."""
    return NotImplemented if x.is_floating_point() else x.clone()


def constant_of_integers(value: bool) -> Callable[..., Any]:
    def call(x: torch.Tensor) -> Any:
        return (
            NotImplemented if x.is_floating_point() else torch.full(x.shape, value, dtype=torch.bool, device=x.device)
        )

    return call


def of_type(operator: Any) -> Callable[..., Any]:
    """softmax of numbers that are cast first."""

    def call(x: torch.Tensor, dim: int, dtype: Any = None) -> Any:
        return NotImplemented if dtype in (None, x.dtype) else operator(x.to(dtype), dim)

    return call


def distances(a: torch.Tensor, b: torch.Tensor, p: float = 2, mode: int | None = None) -> Any:
    """Those of all rows of `a` to all rows of `b`. As in PyTorch, Euclidean ones of many rows follow from products."""
    rows = [n.node.hint if isinstance(n, torch.SymInt) else n for n in (a.shape[-2], b.shape[-2])]
    if p == 2 and (mode == 1 or (mode != 2 and max(rows) > 25)):
        squares = (a * a).sum(-1)[..., :, None] + (b * b).sum(-1)[..., None, :]
        return (squares - 2 * (a @ b.mT)).clamp(min=0).sqrt()
    far = (a[..., :, None, :] - b[..., None, :, :]).abs()
    if p == 0:
        return (far != 0).to(a.dtype).sum(-1)
    if p == 1:
        return far.sum(-1)
    if p == 2:
        return (far * far).sum(-1).sqrt()
    return far.amax(-1) if math.isinf(p) else far.pow(p).sum(-1).pow(1 / p)


def sum_of_bools(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    bools = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype == torch.bool
    return torch.logical_or(a, b) if bools and alpha == 1 else NotImplemented


def by_size(operator: Any) -> Callable[..., Any]:
    """A number that follows from sizes, which torch.onnx takes as an operand of an operator of tensors alone."""

    def call(x: torch.Tensor, number: Any, *rest: Any) -> Any:
        return operator(x, number, *rest) if isinstance(number, (torch.SymInt, torch.SymFloat)) else NotImplemented

    return call


def by_size_of_type(operator: Any) -> Callable[..., Any]:
    """The same where the number has to be a tensor."""

    def call(x: Any, number: Any) -> Any:
        if not isinstance(number, (torch.SymInt, torch.SymFloat)) or not isinstance(x, torch.Tensor):
            return NotImplemented
        kind = torch.result_type(x, number)
        return operator(x.to(kind), torch.full((), number, dtype=kind, device=x.device))

    return call


def where(condition: torch.Tensor, a: Any, b: Any) -> Any:
    """Of two types or of numbers, for which torch.onnx's promotion fails."""
    kind = torch.result_type(a, b)
    given = [
        x if isinstance(x, torch.Tensor) else torch.full((), x, dtype=kind, device=condition.device) for x in (a, b)
    ]
    if a is given[0] and b is given[1] and a.dtype == b.dtype:
        return NotImplemented
    return torch.where(condition, given[0].to(kind), given[1].to(kind))


def power(x: torch.Tensor, number: Any) -> Any:
    if not isinstance(number, (torch.SymInt, torch.SymFloat)) or not x.is_floating_point():
        return NotImplemented
    return x.pow(torch.full((), number, dtype=x.dtype, device=x.device))


def shift(operator: Any) -> Callable[..., Any]:
    """torch.onnx shifts uint8 as int8."""

    def call(x: Any, count: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype != torch.uint8:
            return NotImplemented
        wide = count.to(torch.int32) if isinstance(count, torch.Tensor) else count
        return (operator(x.to(torch.int32), wide) & 255).to(torch.uint8)

    return call


def shift_operator(name: str) -> Callable[..., Any]:
    """Python's << and >>, which torch.onnx knows by their other names alone."""

    def call(x: torch.Tensor, count: Any) -> Any:
        overload = "Tensor" if isinstance(count, torch.Tensor) else "Tensor_Scalar"
        operator = getattr(getattr(aten, f"bitwise_{name}_shift"), overload)
        special = shift(operator)(x, count)
        return operator(x, count) if special is NotImplemented else special

    return call


def hypot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Squares of the quotient do not overflow."""
    a, b = a.abs(), b.abs()
    most, least = torch.maximum(a, b), torch.minimum(a, b)
    quotient = least / torch.where(most == 0, torch.ones_like(most), most)
    length = most * (1 + quotient * quotient).sqrt()
    return torch.where(torch.isinf(a) | torch.isinf(b), torch.full_like(length, math.inf), length)


def number_of_two(operator: Any) -> Callable[..., Any]:
    """fmax and fmin: of a number and NaN the number."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not a.is_floating_point():
            return operator(a, b)
        return torch.where(torch.isnan(a), b, torch.where(torch.isnan(b), a, operator(a, b)))

    return call


def entropy(x: torch.Tensor) -> torch.Tensor:
    """-x log x; PyTorch's decomposition makes a tensor on the device that it asks an operand for."""
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    inner = torch.where(x == 0, torch.zeros_like(x), -x * x.clamp(min=0).log())
    return torch.where(x < 0, torch.full_like(x, -math.inf), inner)


def inverse_error_function(y: torch.Tensor) -> torch.Tensor:
    """S. Winitzki's approximation (A handy approximation for the error function and its inverse, 2008), and three steps of
    Halley's method, in float64: near 1 an error function in float32 has too few digits."""
    kind = y.dtype if y.is_floating_point() else torch.get_default_dtype()
    y = y.to(torch.float64)
    inside = torch.where(y.abs() < 1, y, torch.zeros_like(y))
    log = torch.log1p(-inside * inside)
    part = 2 / (math.pi * 0.147) + log / 2
    x = ((part * part - log / 0.147).sqrt() - part).clamp(min=0).sqrt() * torch.sign(inside)
    for _ in range(3):
        step = (torch.erf(x) - inside) / (2 / math.sqrt(math.pi) * torch.exp(-x * x))
        x = x - step / (1 + x * step)
    outside = torch.where(y.abs() == 1, y * math.inf, torch.full_like(y, math.nan))
    return torch.where(y.abs() < 1, x, outside).to(kind)


ELEMENTS: dict[Any, Callable[..., Any]] = {
    aten.scatter.reduce: scatter_by,
    aten.scatter.value_reduce: scatter_value_by,
    aten.scatter_reduce.two: scatter_mean,
    aten.index_reduce.default: index_reduce,
    aten.any.default: any_by(aten.all.default),
    aten.any.dim: any_by(aten.all.dim),
    aten.any.dims: any_by(aten.all.dims),
    aten.amax.default: extreme(aten.amax.default),
    aten.amin.default: extreme(aten.amin.default),
    aten.nansum.default: nansum,
    prims.prod.default: product,
    aten.cumprod.default: running_product,
    aten.kthvalue.default: kthvalue,
    aten.median.dim: median_of,
    aten.median.default: of_all(median_of),
    aten.nanmedian.dim: nanmedian_of,
    aten.nanmedian.default: of_all(nanmedian_of),
    aten.cummax.default: running_extreme(True),
    aten.cummin.default: running_extreme(False),
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted_value,
    aten.bucketize.Tensor: bucketize,
    aten._cdist_forward.default: distances,
    aten.cdist.default: distances,
    aten.add.Tensor: sum_of_bools,
    aten.mul.Scalar: by_size(aten.mul.Tensor),
    aten.div.Scalar: by_size(aten.div.Tensor),
    aten.pow.Tensor_Scalar: power,
    aten.remainder.Scalar: by_size_of_type(aten.remainder.Tensor),
    aten.floor_divide.Scalar: by_size_of_type(aten.floor_divide.default),
    aten.floor_divide.default: by_size_of_type(aten.floor_divide.default),
    aten.where.self: where,
    aten.where.Scalar: where,
    aten.where.ScalarSelf: where,
    aten.where.ScalarOther: where,
    aten.ceil.default: whole,
    aten.floor.default: whole,
    aten.trunc.default: whole,
    aten.round.default: whole,
    aten.isnan.default: constant_of_integers(False),
    aten.isinf.default: constant_of_integers(False),
    aten.isfinite.default: constant_of_integers(True),
    aten.softmax.int: of_type(aten.softmax.int),
    aten.log_softmax.int: of_type(aten.log_softmax.int),
    aten.sort.default: of_bytes(aten.sort.default),
    aten.max.dim: of_bytes(aten.max.dim),
    aten.min.dim: of_bytes(aten.min.dim),
    aten.divide.Tensor: aten.div.Tensor,
    aten.true_divide.Tensor: aten.div.Tensor,
    aten.multiply.Tensor: aten.mul.Tensor,
    aten.subtract.Tensor: aten.sub.Tensor,
    aten.bitwise_left_shift.Tensor: shift(aten.bitwise_left_shift.Tensor),
    aten.bitwise_right_shift.Tensor: shift(aten.bitwise_right_shift.Tensor),
    aten.bitwise_left_shift.Tensor_Scalar: shift(aten.bitwise_left_shift.Tensor_Scalar),
    aten.bitwise_right_shift.Tensor_Scalar: shift(aten.bitwise_right_shift.Tensor_Scalar),
    aten.__lshift__.Tensor: shift_operator("left"),
    aten.__lshift__.Scalar: shift_operator("left"),
    aten.__rshift__.Tensor: shift_operator("right"),
    aten.__rshift__.Scalar: shift_operator("right"),
    prims.hypot.default: hypot,
    aten.hypot.default: hypot,
    prims.fmax.default: number_of_two(torch.maximum),
    prims.fmin.default: number_of_two(torch.minimum),
    aten.fmax.default: number_of_two(torch.maximum),
    aten.fmin.default: number_of_two(torch.minimum),
    aten.special_entr.default: entropy,
    aten.erfinv.default: inverse_error_function,
    prims.erf_inv.default: inverse_error_function,
}

RULES: dict[Any, Callable[..., Any]] = ELEMENTS | LAYERS
