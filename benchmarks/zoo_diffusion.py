"""The networks of a latent diffusion model, by the shapes of Stable Diffusion 1: no package that the zoo uses has them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, out: int, embedding: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(embedding, out) if embedding else None
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor | None = None) -> torch.Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(nn.functional.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int, context: int | None = None):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(channels, channels, bias=False)
        self.k, self.v = (nn.Linear(context or channels, channels, bias=False) for _ in range(2))
        self.out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        source = x if context is None else context
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), self.k(source), self.v(source))
        )
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Of a diffusion model's U-net: attention to itself, to the text, and a gated layer."""

    def __init__(self, channels: int, heads: int, context: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.into, self.back = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own, self.cross = Attention(channels, heads), Attention(channels, heads, context)
        self.gated, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[2:]
        y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        a, gate = self.gated(self.norms[2](y)).chunk(2, dim=-1)
        y = y + self.down(a * nn.functional.gelu(gate))
        return x + self.back(y.transpose(1, 2).unflatten(2, (h, w)))


class DiffusionUnet(nn.Module):
    """The U-net of Stable Diffusion 1 by shape: 860 M parameters, latents of 64 x 64, 77 tokens of 768."""

    def __init__(self, width: int = 320, context: int = 768):
        super().__init__()
        embedding, sizes = 4 * width, [width, 2 * width, 4 * width, 4 * width]
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, skips = width, [width]
        for level, size in enumerate(sizes):
            for _ in range(2):
                attention = TransformerBlock(size, 8, context) if level < 3 else None
                self.down.append(nn.ModuleList([ResidualBlock(channels, size, embedding)] + [attention] * (level < 3)))
                channels = size
                skips.append(size)
            if level < 3:
                self.down.append(nn.ModuleList([nn.Conv2d(size, size, 3, stride=2, padding=1)]))
                skips.append(size)
        self.middle = nn.ModuleList(
            [
                ResidualBlock(channels, channels, embedding),
                TransformerBlock(channels, 8, context),
                ResidualBlock(channels, channels, embedding),
            ]
        )
        for level, size in reversed(list(enumerate(sizes))):
            for k in range(3):
                parts = [ResidualBlock(channels + skips.pop(), size, embedding)]
                if level < 3:
                    parts.append(TransformerBlock(size, 8, context))
                if k == 2 and level > 0:
                    parts.append(nn.Conv2d(size, size, 3, padding=1))
                self.up.append(nn.ModuleList(parts))
                channels = size
        self.norm, self.last = nn.GroupNorm(32, width), nn.Conv2d(width, 4, 3, padding=1)

    def apply_parts(self, parts: Any, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        for part in parts:
            if isinstance(part, ResidualBlock):
                x = part(x, t)
            elif isinstance(part, TransformerBlock):
                x = part(x, context)
            elif part.stride == (2, 2):
                x = part(x)
            else:
                x = part(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return x

    def forward(self, x: torch.Tensor, step: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(
            -9.21034 / (self.width // 2) * torch.arange(self.width // 2, device=x.device, dtype=torch.float32)
        )
        angles = step[:, None].float() * rates
        t = self.time(torch.cat([angles.cos(), angles.sin()], dim=1).to(x.dtype))
        x = self.first(x)
        kept = [x]
        for parts in self.down:
            x = self.apply_parts(parts, x, t, context)
            kept.append(x)
        x = self.apply_parts(self.middle, x, t, context)
        for parts in self.up:
            x = self.apply_parts(parts, torch.cat([x, kept.pop()], dim=1), t, context)
        return self.last(nn.functional.silu(self.norm(x)))


class ImageDecoder(nn.Module):
    """The decoder of Stable Diffusion's autoencoder by shape: latents of 32 x 32 to images of 256 x 256."""

    def __init__(self, widths: tuple[int, ...] = (512, 512, 256, 128)) -> None:
        super().__init__()
        channels = widths[0]
        self.first = nn.Conv2d(4, channels, 3, padding=1)
        self.norm_attention, self.attention = nn.GroupNorm(32, channels), Attention(channels, 1)
        self.middle = nn.ModuleList(ResidualBlock(channels, channels, 0) for _ in range(2))
        blocks: list[nn.Module] = []
        for level, size in enumerate(widths):
            for _ in range(3):
                blocks.append(ResidualBlock(channels, size, 0))
                channels = size
            if level < len(widths) - 1:
                blocks += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(size, size, 3, padding=1)]
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.last = nn.GroupNorm(32, channels), nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.middle[0](self.first(x))
        h, w = x.shape[2:]
        x = x + self.attention(self.norm_attention(x).flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, (h, w))
        return self.last(nn.functional.silu(self.norm(self.blocks(self.middle[1](x)))))
