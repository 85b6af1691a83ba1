"""Seeded inputs of the zoo's modules that are written here."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Inputs = Callable[[int], tuple[torch.Tensor, ...]]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def normal(*shapes: tuple[int, ...]) -> Inputs:
    """Tensors of these shapes for each element of a batch."""
    return lambda batch: tuple(torch.randn(batch, *shape, generator=seeded()) for shape in shapes)


def tokens(length: int, vocabulary: int, *more: int) -> Inputs:
    return lambda batch: (torch.randint(0, vocabulary, (batch, length, *more), generator=seeded()),)


def pictures(*shape: int, octaves: int = 7) -> Inputs:
    """Noise of all octaves, as photographs have it: of white noise the deep layers of random networks see only the mean."""

    def make(batch: int) -> tuple[torch.Tensor, ...]:
        r, (channels, h, w) = seeded(), shape
        layers = [torch.randn(batch, channels, (h >> k) + 1, (w >> k) + 1, generator=r) for k in range(octaves)]
        parts = [F.interpolate(x, size=(h, w), mode="bilinear", align_corners=False) for x in layers]
        return (torch.stack(parts).sum(0) / octaves**0.5,)

    return make
