"""Sizes that come into a graph of torch.compile from outside, and results that are sizes.

A program takes a size as the first dim of an input without elements, so that the size is a symbol of it as other dims are.
Results that are sizes follow from those of the inputs, and are computed on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import UnsupportedError

#: Sets of sizes whose results are remembered.
MOST_REMEMBERED = 256


def stand_in(size: int) -> torch.Tensor:
    """What a program's input is traced with that carries the size, without its sign."""
    return torch.empty(dims_of(size), dtype=torch.uint8)


def dims_of(x: torch.Tensor | int) -> tuple[int, ...]:
    """Of the program's input for a tensor or a size."""
    return (abs(x), 0) if isinstance(x, int) else tuple(x.shape)


def kind_of(size: int) -> int:
    """Sizes of the same kind can share a program: a size that varies is at least 2 for a trace, and has one sign."""
    return max(-2, min(size, 2))


class Place(NamedTuple):
    """Where the value of a symbol is found: an input that is the number itself, or a dim of one that is a tensor."""

    position: int
    dim: int | None

    def value(self, inputs: Sequence[Any]) -> float:
        x = inputs[self.position]
        if self.dim is not None:
            return int(x.shape[self.dim])
        return x.item() if isinstance(x, torch.Tensor) else x


def places_of(nodes: Sequence[torch.fx.Node], inputs: Sequence[Any]) -> dict[Any, Place]:
    """The places of the symbols of sizes, and of numbers that a graph reads from tensors without dims."""
    found: dict[Any, Place] = {}

    def add(value: Any, position: int, dim: int | None) -> None:
        if isinstance(value, (torch.SymInt, torch.SymFloat)) and value.node.expr.is_Symbol:
            found.setdefault(value.node.expr, Place(position, dim))

    for k, (node, x) in enumerate(zip(nodes, inputs, strict=True)):
        if not isinstance(x, torch.Tensor):
            add(x, k, None)
            continue
        value = node.meta.get("example_value")
        for d, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            add(n, k, d)
        if x.ndim == 0:
            for user in node.users:
                if user.target == "item":
                    add(user.meta.get("example_value"), k, None)
    return found


class Numbers:
    """The results of a graph that are numbers: functions of its inputs' sizes."""

    def __init__(self, values: Mapping[int, Any], places: Mapping[Any, Place]):
        """`values`: symbolic, by the results' positions. Raises UnsupportedError for those that depend on data."""
        self.expressions: dict[int, tuple[type, Any]] = {}
        self.remembered: dict[tuple[float, ...], dict[int, Any]] = {}
        symbols: dict[Any, Place] = {}
        for k, value in values.items():
            kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)]
            expression = value.node.expr
            for symbol in expression.free_symbols:
                if symbol not in places:
                    raise UnsupportedError(f"a result is the {kind.__name__} {expression}, which depends on data")
                symbols[symbol] = places[symbol]
            self.expressions[k] = kind, expression
        self.symbols = symbols

    def of(self, inputs: Sequence[Any]) -> dict[int, Any]:
        """By the results' positions."""
        if not self.expressions:
            return {}
        key = tuple(place.value(inputs) for place in self.symbols.values())
        if key not in self.remembered:
            if len(self.remembered) >= MOST_REMEMBERED:
                self.remembered.clear()
            given = {symbol: sympy_number(x) for symbol, x in zip(self.symbols, key, strict=True)}
            self.remembered[key] = {k: kind(e.xreplace(given)) for k, (kind, e) in self.expressions.items()}
        return self.remembered[key]


def sympy_number(x: float) -> Any:
    import sympy

    return sympy.Integer(x) if isinstance(x, int) else sympy.Float(x)
