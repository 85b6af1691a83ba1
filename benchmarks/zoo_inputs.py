"""Seeded inputs of the zoo's modules that are written here."""

from __future__ import annotations

from collections.abc import Callable

import torch

Inputs = Callable[[int], tuple[torch.Tensor, ...]]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def normal(*shapes: tuple[int, ...]) -> Inputs:
    """Tensors of these shapes for each element of a batch."""
    return lambda batch: tuple(torch.randn(batch, *shape, generator=seeded()) for shape in shapes)


def tokens(length: int, vocabulary: int, *more: int) -> Inputs:
    return lambda batch: (torch.randint(0, vocabulary, (batch, length, *more), generator=seeded()),)
