"""Generators of images and video by transformers, for the zoo: joint attention over text and image, adaptive norms, long
skips, linear attention, rotations in three dims, causal volumes and scales predicted one after another."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, seeded


class RmsNorm(nn.Module):
    """As these models write it: in float32, then in the type of its input."""

    def __init__(self, c: int, epsilon: float = 1e-6):
        super().__init__()
        self.scale, self.epsilon = nn.Parameter(torch.ones(c)), epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.epsilon)
        return y.to(x.dtype) * self.scale


def time_waves(t: torch.Tensor, width: int = 256) -> torch.Tensor:
    rates = torch.exp(torch.arange(width // 2, device=t.device) * (-math.log(10000.0) / (width // 2)))
    angles = t[:, None].float() * rates
    return torch.cat([angles.cos(), angles.sin()], 1).to(t.dtype)


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rotations(axes: list[torch.Tensor], sizes: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every token's places along each axis, [tokens, half of a head]."""
    angles = [a[:, None] * 10000.0 ** (-torch.arange(0, n, 2) / n) for a, n in zip(axes, sizes, strict=True)]
    joined = torch.cat(angles, 1)
    return joined.cos(), joined.sin()


def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates neighbouring elements (even, odd) of each head."""
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def grid(*sizes: int) -> list[torch.Tensor]:
    return [a.flatten().float() for a in torch.meshgrid(*(torch.arange(n) for n in sizes), indexing="ij")]


def modulate(x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x * (1 + scale[:, None]) + shift[:, None]


def plain_norm(c: int) -> nn.LayerNorm:
    return nn.LayerNorm(c, elementwise_affine=False, eps=1e-6)


def tanh_mlp(c: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(c, hidden), nn.GELU("tanh"), nn.Linear(hidden, c))


class Stream(nn.Module):
    """One side of a double block: its own norms, projections and MLP."""

    def __init__(self, c: int, heads: int):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, plain_norm(c), plain_norm(c)
        self.mod = nn.Sequential(nn.SiLU(), nn.Linear(c, 6 * c))
        self.qkv, self.out, self.mlp = nn.Linear(c, 3 * c), nn.Linear(c, c), tanh_mlp(c, 4 * c)
        self.norm_q, self.norm_k = RmsNorm(c // heads), RmsNorm(c // heads)

    def project(self, x: torch.Tensor, vector: torch.Tensor) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]]:
        parts = self.mod(vector).chunk(6, 1)
        q, k, v = (heads_of(t, self.heads) for t in self.qkv(modulate(self.norm1(x), parts[0], parts[1])).chunk(3, -1))
        return [self.norm_q(q), self.norm_k(k), v], parts

    def finish(self, x: torch.Tensor, y: torch.Tensor, parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        x = x + parts[2][:, None] * self.out(y)
        return x + parts[5][:, None] * self.mlp(modulate(self.norm2(x), parts[3], parts[4]))


class JointTransformer(nn.Module):
    """MM-DiT of Stable Diffusion 3 (Esser et al., 2024), two of 24 blocks: text and image have weights of their own and one
    attention; positions of the image are cut from a larger table."""

    def __init__(self, c: int = 1536, heads: int = 24, layers: int = 2, side: int = 64, text: int = 4096):
        super().__init__()
        self.heads, self.side = heads, side // 2
        self.patch = nn.Conv2d(16, c, 2, 2)
        self.table = nn.Parameter(0.3 * torch.randn(1, 96, 96, c))
        self.context, self.pooled = nn.Linear(text, c), nn.Sequential(nn.Linear(2048, c), nn.SiLU(), nn.Linear(c, c))
        self.time = nn.Sequential(nn.Linear(256, c), nn.SiLU(), nn.Linear(c, c))
        self.image_side = nn.ModuleList(Stream(c, heads) for _ in range(layers))
        self.text_side = nn.ModuleList(Stream(c, heads) for _ in range(layers))
        self.norm, self.mod = plain_norm(c), nn.Sequential(nn.SiLU(), nn.Linear(c, 2 * c))
        self.last = nn.Linear(c, 64)

    def forward(self, latents, t, text, pooled):
        n, first = self.side, (96 - self.side) // 2
        x = self.patch(latents).flatten(2).transpose(1, 2)
        x = x + self.table[:, first : first + n, first : first + n].reshape(1, n * n, -1)
        vector, y = self.time(time_waves(t)) + self.pooled(pooled), self.context(text)
        for image_side, text_side in zip(self.image_side, self.text_side, strict=True):
            a, parts_a = image_side.project(x, vector)
            b, parts_b = text_side.project(y, vector)
            q, k, v = (torch.cat(pair, 2) for pair in zip(a, b, strict=True))
            joint = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            x = image_side.finish(x, joint[:, : n * n], parts_a)
            y = text_side.finish(y, joint[:, n * n :], parts_b)
        shift, scale = self.mod(vector).chunk(2, 1)
        x = self.last(modulate(self.norm(x), shift, scale))
        return x.unflatten(1, (n, n)).unflatten(3, (2, 2, 16)).permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


class SingleBlock(nn.Module):
    """Attention and MLP side by side, with one projection before and one after."""

    def __init__(self, c: int, heads: int):
        super().__init__()
        self.c, self.heads = c, heads
        self.first, self.last = nn.Linear(c, 7 * c), nn.Linear(5 * c, c)
        self.norm, self.mod = plain_norm(c), nn.Sequential(nn.SiLU(), nn.Linear(c, 3 * c))
        self.norm_q, self.norm_k = RmsNorm(c // heads), RmsNorm(c // heads)

    def forward(self, x: torch.Tensor, vector: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        shift, scale, gate = self.mod(vector).chunk(3, 1)
        qkv, wide = self.first(modulate(self.norm(x), shift, scale)).split([3 * self.c, 4 * self.c], -1)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = rotate_pairs(self.norm_q(q), cos, sin), rotate_pairs(self.norm_k(k), cos, sin)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + gate[:, None] * self.last(torch.cat([y, F.gelu(wide, approximate="tanh")], -1))


class RotaryJoint(nn.Module):
    """FLUX.1 (Black Forest Labs, 2024), half width: one double and two single blocks, rotations of 16, 24 and 24 elements."""

    def __init__(
        self, c: int = 1536, heads: int = 12, double: int = 1, single: int = 2, side: int = 32, words: int = 128
    ):
        super().__init__()
        self.words = words
        self.image, self.text = nn.Linear(64, c), nn.Linear(4096, c)
        embed = lambda n: nn.Sequential(nn.Linear(n, c), nn.SiLU(), nn.Linear(c, c))
        self.time, self.guidance, self.pooled = embed(256), embed(256), embed(768)
        self.image_side = nn.ModuleList(Stream(c, heads) for _ in range(double))
        self.text_side = nn.ModuleList(Stream(c, heads) for _ in range(double))
        self.single = nn.ModuleList(SingleBlock(c, heads) for _ in range(single))
        self.norm, self.mod, self.last = plain_norm(c), nn.Sequential(nn.SiLU(), nn.Linear(c, 2 * c)), nn.Linear(c, 64)
        zeros, size = torch.zeros(side * side), c // heads
        places = [torch.cat([torch.zeros(words), a]) for a in [zeros, *grid(side, side)]]
        cos, sin = rotations(places, (size // 8, size * 7 // 16, size * 7 // 16))
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, latents, t, guidance, text, pooled):
        x, y = self.image(latents), self.text(text)
        vector = self.time(time_waves(1000 * t)) + self.guidance(time_waves(1000 * guidance)) + self.pooled(pooled)
        for image_side, text_side in zip(self.image_side, self.text_side, strict=True):
            a, parts_a = image_side.project(x, vector)
            b, parts_b = text_side.project(y, vector)
            q, k, v = (torch.cat(pair, 2) for pair in zip(b, a, strict=True))
            q, k = rotate_pairs(q, self.cos, self.sin), rotate_pairs(k, self.cos, self.sin)
            joint = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            y = text_side.finish(y, joint[:, : self.words], parts_b)
            x = image_side.finish(x, joint[:, self.words :], parts_a)
        x = torch.cat([y, x], 1)
        for block in self.single:
            x = block(x, vector, self.cos, self.sin)
        shift, scale = self.mod(vector).chunk(2, 1)
        return self.last(modulate(self.norm(x[:, self.words :]), shift, scale))


class CrossAttention(nn.Module):
    def __init__(self, c: int, heads: int, into: int | None = None):
        super().__init__()
        self.heads, self.q, self.kv, self.out = heads, nn.Linear(c, c), nn.Linear(into or c, 2 * c), nn.Linear(c, c)

    def forward(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q = heads_of(self.q(x), self.heads)
        k, v = (heads_of(t, self.heads) for t in self.kv(y).chunk(2, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))


class PixArt(nn.Module):
    """PixArt-alpha (Chen et al., 2023), four of 28 blocks: one modulation for all blocks plus a table of each, heads of 72
    elements, attention to padded text."""

    def __init__(self, c: int = 1152, heads: int = 16, layers: int = 4, side: int = 32):
        super().__init__()
        self.heads, self.side = heads, side
        self.patch, self.places = nn.Conv2d(4, c, 2, 2), nn.Parameter(0.3 * torch.randn(1, side * side, c))
        self.text = nn.Sequential(nn.Linear(4096, c), nn.GELU("tanh"), nn.Linear(c, c))
        self.time = nn.Sequential(nn.Linear(256, c), nn.SiLU(), nn.Linear(c, c))
        self.mod = nn.Sequential(nn.SiLU(), nn.Linear(c, 6 * c))
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(6, c) / c**0.5) for _ in range(layers))
        self.norms = nn.ModuleList(plain_norm(c) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(c, c) for _ in range(layers))
        self.cross = nn.ModuleList(CrossAttention(c, heads) for _ in range(layers))
        self.mlps = nn.ModuleList(tanh_mlp(c, 4 * c) for _ in range(layers))
        self.table, self.last = nn.Parameter(torch.randn(2, c) / c**0.5), nn.Linear(c, 32)

    def forward(self, latents, t, text, lengths):
        n = self.side
        x, y = self.patch(latents).flatten(2).transpose(1, 2) + self.places, self.text(text)
        time = self.time(time_waves(t))
        shared = self.mod(time).unflatten(1, (6, -1))
        kept = (torch.arange(y.shape[1], device=x.device) < lengths[:, None])[:, None, None]
        for k, (table, cross, mlp) in enumerate(zip(self.tables, self.cross, self.mlps, strict=True)):
            shift1, scale1, gate1, shift2, scale2, gate2 = (table + shared).chunk(6, 1)
            q, key, v = (
                heads_of(u, self.heads) for u in self.qkv[k](self.norms[2 * k](x) * (1 + scale1) + shift1).chunk(3, -1)
            )
            x = x + gate1 * self.out[k](F.scaled_dot_product_attention(q, key, v).transpose(1, 2).flatten(2))
            x = x + cross(x, y, kept)
            x = x + gate2 * mlp(self.norms[2 * k + 1](x) * (1 + scale2) + shift2)
        shift, scale = (self.table + time[:, None]).chunk(2, 1)
        x = self.last(self.norms[-1](x) * (1 + scale) + shift).unflatten(1, (n, n)).unflatten(3, (2, 2, 8))
        return torch.einsum("bhwpqc->bchpwq", x).reshape(-1, 8, 2 * n, 2 * n)


class LongSkips(nn.Module):
    """U-ViT-M (Bao et al., 2023), nine of 17 blocks: tokens of time and text beside patches, the first half's results are
    joined to the second half by linear layers, a 3 x 3 convolution at the end."""

    def __init__(self, c: int = 768, heads: int = 12, half: int = 4, side: int = 16):
        super().__init__()
        self.heads, self.side = heads, side
        self.patch, self.text = nn.Conv2d(4, c, 2, 2), nn.Linear(768, c)
        self.time = nn.Sequential(nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, c))
        self.places = nn.Parameter(0.3 * torch.randn(1, 78 + side * side, c))
        count = 2 * half + 1
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * count + 1))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c, bias=False) for _ in range(count))
        self.out = nn.ModuleList(nn.Linear(c, c) for _ in range(count))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)) for _ in range(count)
        )
        self.skips = nn.ModuleList(nn.Linear(2 * c, c) for _ in range(half))
        self.last, self.smooth, self.half = nn.Linear(c, 16), nn.Conv2d(4, 4, 3, padding=1), half

    def block(self, k: int, x: torch.Tensor) -> torch.Tensor:
        q, key, v = self.qkv[k](self.norms[2 * k](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out[k](F.scaled_dot_product_attention(q, key, v).transpose(1, 2).flatten(2))
        return x + self.mlps[k](self.norms[2 * k + 1](x))

    def forward(self, latents, t, text):
        n, kept = self.side, []
        x = self.patch(latents).flatten(2).transpose(1, 2)
        time = self.time(time_waves(t, x.shape[2]))[:, None]
        x = torch.cat([time, self.text(text), x], 1) + self.places
        for k in range(self.half):
            x = self.block(k, x)
            kept.append(x)
        x = self.block(self.half, x)
        for k, skip in enumerate(self.skips):
            x = self.block(self.half + 1 + k, skip(torch.cat([x, kept.pop()], 2)))
        x = self.last(self.norms[-1](x))[:, 78:].unflatten(1, (n, n)).unflatten(3, (2, 2, 4))
        return self.smooth(x.permute(0, 5, 1, 3, 2, 4).reshape(-1, 4, 2 * n, 2 * n))


class LinearImage(nn.Module):
    """Sana (Xie et al., 2024), four of 20 blocks of its 0.6 B model: linear attention with ReLU in float32 and a denominator
    from a row of ones, gated MLPs with a depthwise convolution."""

    def __init__(self, c: int = 1152, size: int = 32, layers: int = 4, side: int = 32):
        super().__init__()
        self.size, self.side, hidden = size, side, c * 5 // 2
        self.patch, self.text = nn.Conv2d(32, c, 1), nn.Linear(2304, c)
        self.norm_text = RmsNorm(c)
        self.time, self.mod = nn.Sequential(nn.Linear(256, c), nn.SiLU(), nn.Linear(c, c)), nn.Linear(c, 6 * c)
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(6, c) / c**0.5) for _ in range(layers))
        self.norms = nn.ModuleList(plain_norm(c) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(c, c) for _ in range(layers))
        self.cross = nn.ModuleList(CrossAttention(c, c // 72) for _ in range(layers))
        self.wide = nn.ModuleList(nn.Conv2d(c, 2 * hidden, 1) for _ in range(layers))
        self.near = nn.ModuleList(nn.Conv2d(2 * hidden, 2 * hidden, 3, 1, 1, groups=2 * hidden) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Conv2d(hidden, c, 1, bias=False) for _ in range(layers))
        self.last = nn.Linear(c, 32)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        q, key, v = self.qkv[k](x).transpose(1, 2).chunk(3, 1)
        split = lambda t: t.unflatten(1, (-1, self.size))
        q, key, v = F.relu(split(q)), F.relu(split(key)).transpose(2, 3), split(v)
        v = F.pad(v, (0, 0, 0, 1), value=1.0).float()
        total = (v @ key.float()) @ q.float()
        y = (total[:, :, :-1] / (total[:, :, -1:] + 1e-8)).to(x.dtype)
        return self.out[k](y.flatten(1, 2).transpose(1, 2))

    def forward(self, latents, t, text):
        n = self.side
        x, y = self.patch(latents).flatten(2).transpose(1, 2), self.norm_text(self.text(text))
        shared = self.mod(F.silu(self.time(time_waves(t)))).unflatten(1, (6, -1))
        for k, (table, cross) in enumerate(zip(self.tables, self.cross, strict=True)):
            shift1, scale1, gate1, shift2, scale2, gate2 = (table + shared).chunk(6, 1)
            x = x + gate1 * self.attend(k, self.norms[2 * k](x) * (1 + scale1) + shift1)
            x = x + cross(x, y)
            image = (self.norms[2 * k + 1](x) * (1 + scale2) + shift2).transpose(1, 2).unflatten(2, (n, n))
            a, gate = self.near[k](F.silu(self.wide[k](image))).chunk(2, 1)
            x = x + gate2 * self.narrow[k](a * F.silu(gate)).flatten(2).transpose(1, 2)
        return self.last(self.norms[-1](x)).transpose(1, 2).unflatten(2, (n, n))


class VideoTransformer(nn.Module):
    """Wan 2.1 (Wan Team, 2025), two of 30 blocks of its 1.3 B model: 5 frames of 14 x 18 patches, rotations along time,
    rows and columns, norms of whole queries and keys, attention to text."""

    def __init__(self, c: int = 1536, heads: int = 12, layers: int = 2, sides: tuple[int, int, int] = (5, 14, 18)):
        super().__init__()
        self.heads, self.sides, size = heads, sides, c // heads
        self.patch = nn.Conv3d(16, c, (1, 2, 2), (1, 2, 2))
        self.text = nn.Sequential(nn.Linear(4096, c), nn.GELU("tanh"), nn.Linear(c, c))
        self.time = nn.Sequential(nn.Linear(256, c), nn.SiLU(), nn.Linear(c, c))
        self.mod = nn.Sequential(nn.SiLU(), nn.Linear(c, 6 * c))
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(1, 6, c) / c**0.5) for _ in range(layers))
        linear = lambda: nn.ModuleList(nn.Linear(c, c) for _ in range(2 * layers))
        self.q, self.k, self.v, self.out = linear(), linear(), linear(), linear()
        self.norm_q, self.norm_k = (nn.ModuleList(RmsNorm(c) for _ in range(2 * layers)) for _ in range(2))
        self.plain, self.norm3 = plain_norm(c), nn.ModuleList(nn.LayerNorm(c) for _ in range(layers))
        self.mlps = nn.ModuleList(tanh_mlp(c, c * 35 // 6) for _ in range(layers))
        self.table, self.last = nn.Parameter(torch.randn(1, 2, c) / c**0.5), nn.Linear(c, 64)
        third = 2 * (size // 6)
        cos, sin = rotations(grid(*sides), (size - 2 * third, third, third))
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def attend(self, k: int, x: torch.Tensor, y: torch.Tensor, turned: bool) -> torch.Tensor:
        q, key = heads_of(self.norm_q[k](self.q[k](x)), self.heads), heads_of(self.norm_k[k](self.k[k](y)), self.heads)
        if turned:
            q, key = rotate_pairs(q, self.cos, self.sin), rotate_pairs(key, self.cos, self.sin)
        y = F.scaled_dot_product_attention(q, key, heads_of(self.v[k](y), self.heads))
        return self.out[k](y.transpose(1, 2).flatten(2))

    def forward(self, video, t, text):
        x, y = self.patch(video).flatten(2).transpose(1, 2), self.text(text)
        time = self.time(time_waves(t))
        shared = self.mod(time).unflatten(1, (6, -1))
        for k, (table, mlp) in enumerate(zip(self.tables, self.mlps, strict=True)):
            e = (table + shared).chunk(6, 1)
            here = self.plain(x) * (1 + e[1]) + e[0]
            x = x + self.attend(2 * k, here, here, True) * e[2]
            x = x + self.attend(2 * k + 1, self.norm3[k](x), y, False)
            x = x + mlp(self.plain(x) * (1 + e[4]) + e[3]) * e[5]
        shift, scale = (self.table + time[:, None]).chunk(2, 1)
        x = self.last(self.plain(x) * (1 + scale) + shift).unflatten(1, self.sides).unflatten(4, (2, 2, 16))
        return torch.einsum("bfhwpqc->bcfhpwq", x).flatten(5, 6).flatten(3, 4)


def with_noise(*shapes: tuple[int, ...], times: int = 1, words: int = 0) -> Inputs:
    """Latents, one to `times` numbers of each sample, then tensors of the other shapes, and lengths of texts of up to `words`."""

    def make(batch: int) -> tuple[torch.Tensor, ...]:
        r = seeded()
        latents, *others = (torch.randn(batch, *shape, generator=r) for shape in shapes)
        numbers = [torch.rand(batch, generator=r) for _ in range(times)]
        lengths = [torch.randint(words // 2, words, (batch,), generator=r)] if words else []
        return (latents, *numbers, *others, *lengths)

    return make


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "mm_dit_2": (JointTransformer, with_noise((16, 64, 64), (154, 4096), (2048,))),
    "flux_3": (RotaryJoint, with_noise((1024, 64), (128, 4096), (768,), times=2)),
    "pixart_4": (PixArt, with_noise((4, 64, 64), (120, 4096), words=120)),
    "uvit_9": (LongSkips, with_noise((4, 32, 32), (77, 768))),
    "sana_4": (LinearImage, with_noise((32, 32, 32), (300, 2304))),
    "wan_2": (VideoTransformer, with_noise((16, 5, 28, 36), (512, 4096))),
}
