"""Tensors without data of the operators that networks call most.

PyTorch finds the type and sizes of a result by its decomposition, which calls five to twenty operators for an activation or a
normalisation, each with sums and products of symbols. Those of these operators follow from an operand. Whatever is unusual is
left to PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

aten = torch.ops.aten

#: The first operand's type, sizes and strides, for floating point.
LIKE_FIRST = {aten.relu, aten.hardswish, aten.hardsigmoid, aten.sigmoid, aten.tanh, aten.gelu, aten.silu, aten.mish, aten.elu, aten.leaky_relu, aten.hardtanh, aten.erf, aten.exp, aten.sqrt, aten.rsqrt, aten.neg}  # fmt: skip


class Unusual(Exception):
    """An operand of which a rule does not speak."""


class Results:
    """Makes the results of a mode's operators. With `shared` memory those like an operand are views of it: for a trace, which
    does not look at it."""

    def __init__(self, mode: FakeTensorMode, shared: bool):
        self.mode, self.shared = mode, shared

    def plain(self, *tensors: Any) -> None:
        """Raises Unusual for what is no row-major tensor of floating point numbers at the begin of its memory."""
        for x in tensors:
            offset = x.storage_offset() if isinstance(x, FakeTensor) else None
            if type(x) is not FakeTensor or x.fake_mode is not self.mode or x.constant is not None:
                raise Unusual
            if x.layout != torch.strided or not x.dtype.is_floating_point or offset != 0 or not x.is_contiguous():
                raise Unusual

    def like(self, x: Any) -> torch.Tensor:
        return fast_detach(self.mode, x) if self.shared else self.empty(x.shape, x.dtype, x.device)

    def empty(self, sizes: Sequence[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        with self.mode:
            return torch.empty(tuple(sizes), dtype=dtype, device=device)

    def by_rule(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Of an operator that has a rule. Raises Unusual where it does not apply."""
        if kwargs.get("out") is not None:
            raise Unusual
        return RULES[func](self, *args, **kwargs)


class Fakes(FakeTensorMode):
    def __init__(self, shape_env: Any):
        super().__init__(shape_env=shape_env, allow_non_fake_inputs=True)
        # Keys and entries of its cache take longer than what it saves: a trace repeats operators by itself (repeats.py).
        self.cache_enabled = False

    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}
    ) -> Any:
        if func in RULES:
            try:
                return Results(self, shared=True).by_rule(func, args, kwargs)
            except Unusual:
                pass
        return super().dispatch(func, types, args, kwargs)


def statistics_type(x: torch.Tensor) -> torch.dtype:
    """Of means and deviations, which PyTorch stores in float32 on GPUs."""
    return x.dtype if x.device.type == "cpu" else torch.promote_types(x.dtype, torch.float32)


def same(a: Any, b: Any) -> bool:
    """Whether sizes are equal, without a guard."""
    a, b = (n.node.expr if isinstance(n, torch.SymInt) else n for n in (a, b))
    return bool(a == b)


def like_first(make: Results, x: Any, *rest: Any, **named: Any) -> Any:
    make.plain(x)
    return make.like(x)


def layer_norm(make: Results, x: Any, sizes: Sequence[Any], weight: Any, bias: Any, eps: float) -> Any:
    make.plain(x)
    kept = x.ndim - len(sizes)
    if kept < 0 or not all(map(same, x.shape[kept:], sizes)):
        raise Unusual
    shape = [*x.shape[:kept], *([1] * len(sizes))]
    mean, deviation = (make.empty(shape, statistics_type(x), x.device) for _ in range(2))
    return make.like(x), mean, deviation


def batch_norm(
    make: Results, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    make.plain(x, mean, variance)
    sizes = (0,) if x.device.type == "cpu" else mean.shape
    saved = [make.empty(sizes, statistics_type(x), x.device) for _ in range(2)]
    return make.like(x), *saved


def softmax(make: Results, x: Any, dim: int, half_to_float: bool) -> Any:
    make.plain(x)
    if half_to_float:
        raise Unusual
    return make.like(x)


def linear(make: Results, x: Any, weight: Any, bias: Any = None) -> Any:
    make.plain(x, weight)
    if x.ndim < 2 or weight.ndim != 2 or x.dtype != weight.dtype or not same(x.shape[-1], weight.shape[1]):
        raise Unusual
    return make.empty([*x.shape[:-1], weight.shape[0]], x.dtype, x.device)


def addmm(make: Results, bias: Any, x: Any, weight: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None) -> Any:
    make.plain(bias, x)
    if type(weight) is not FakeTensor or weight.fake_mode is not make.mode or weight.layout != torch.strided:
        raise Unusual
    if x.ndim != 2 or weight.ndim != 2 or bias.ndim != 1 or not bias.dtype == x.dtype == weight.dtype:
        raise Unusual
    if not same(x.shape[1], weight.shape[0]) or not same(bias.shape[0], weight.shape[1]):
        raise Unusual
    return make.empty([x.shape[0], weight.shape[1]], x.dtype, x.device)


def rules() -> dict[Any, Callable[..., Any]]:
    made: dict[Any, Callable[..., Any]] = {packet.default: like_first for packet in LIKE_FIRST}
    made |= {aten._softmax.default: softmax, aten._log_softmax.default: softmax}
    # Of the fast path of TransformerEncoderLayer, for which PyTorch has no rule with symbolic sizes.
    made |= {aten._transformer_encoder_layer_fwd.default: like_first}
    made |= {aten.native_layer_norm.default: layer_norm, aten.linear.default: linear, aten.addmm.default: addmm}
    return made | {aten._native_batch_norm_legit_no_training.default: batch_norm}


RULES = rules()

# Operators of graphs find their rule by the mode's own class.
torch.ops.higher_order.cond.py_impl(Fakes)(torch.ops.higher_order.cond.python_key_table[FakeTensorMode])
