"""Autoencoders and generators of images and video, for the zoo: causal volumes, scales predicted in turn, magnitude-preserving
layers, and pixels folded into channels."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class CausalConv3d(nn.Conv3d):
    """Padded with what came before, in time."""

    def __init__(self, a: int, b: int, k: int | tuple[int, int, int] = 3):
        k = (k,) * 3 if isinstance(k, int) else k
        super().__init__(a, b, k)
        self.before = (k[2] // 2, k[2] // 2, k[1] // 2, k[1] // 2, k[0] - 1, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(F.pad(x, self.before))


class ChannelNorm(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(c, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=1) * x.shape[1] ** 0.5 * self.gamma


class VolumeBlock(nn.Module):
    def __init__(self, a: int, b: int):
        super().__init__()
        self.one = nn.Sequential(ChannelNorm(a), nn.SiLU(), CausalConv3d(a, b))
        self.two = nn.Sequential(ChannelNorm(b), nn.SiLU(), CausalConv3d(b, b))
        self.short = CausalConv3d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.short(x) + self.two(self.one(x))


class CausalVideoDecoder(nn.Module):
    """The decoder of Wan's video autoencoder (Wan Team, 2025), half width: three latent frames of 16 x 20 to nine of 128 x 160;
    attention within a frame, frames doubled by channels."""

    def __init__(self, c: int = 48, latent: int = 16):
        super().__init__()
        w = (4 * c, 4 * c, 2 * c, c)
        self.first = CausalConv3d(latent, w[0])
        self.before, self.after = VolumeBlock(w[0], w[0]), VolumeBlock(w[0], w[0])
        self.norm, self.qkv, self.out = ChannelNorm(w[0]), nn.Conv2d(w[0], 3 * w[0], 1), nn.Conv2d(w[0], w[0], 1)
        self.blocks = nn.ModuleList(nn.Sequential(VolumeBlock(a, b), VolumeBlock(b, b)) for a, b in zip((w[0], *(n // 2 for n in w[:3])), w, strict=True))  # fmt: skip
        self.frames = nn.ModuleList(CausalConv3d(n, 2 * n, (3, 1, 1)) for n in w[:2])
        self.wider = nn.ModuleList(nn.Conv2d(n, n // 2, 3, padding=1) for n in w[:3])
        self.last = nn.Sequential(ChannelNorm(c), nn.SiLU(), CausalConv3d(c, 3))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        b, _, t, h, w = x.shape
        y = self.norm(x).transpose(1, 2).flatten(0, 1)
        q, k, v = self.qkv(y).flatten(2).transpose(1, 2)[:, None].chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, (h, w))
        return x + self.out(y).unflatten(0, (b, t)).transpose(1, 2)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = self.after(self.attend(self.before(self.first(z))))
        for k, block in enumerate(self.blocks):
            x = block(x)
            if k < 2:
                y = self.frames[k](x[:, :, 1:]).unflatten(1, (2, -1))
                x = torch.cat([x[:, :, :1], torch.stack([y[:, 0], y[:, 1]], 3).flatten(2, 3)], 2)
            if k < 3:
                b, _, t = x.shape[:3]
                y = F.interpolate(x.transpose(1, 2).flatten(0, 1), scale_factor=2, mode="nearest-exact")
                x = self.wider[k](y).unflatten(0, (b, t)).transpose(1, 2)
        return self.last(x).clamp(-1, 1)


class NextScale(nn.Module):
    """VAR (Tian et al., 2024), four of 16 layers: tokens of ten scales, each seeing its own and smaller ones, queries and keys of
    length one, a classifier for 4096 codes."""

    def __init__(
        self,
        c: int = 1024,
        heads: int = 16,
        layers: int = 4,
        scales: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16),
    ):
        super().__init__()
        self.heads, self.scales, n = heads, scales, sum(k * k for k in scales)
        self.label, self.codes, self.word = nn.Embedding(1001, c), nn.Embedding(4096, 32), nn.Linear(32, c)
        self.start, self.places, self.levels = (
            nn.Parameter(torch.randn(1, 1, c)),
            nn.Parameter(0.3 * torch.randn(1, n, c)),
            nn.Embedding(10, c),
        )
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.out = each(lambda: nn.Linear(c, 3 * c)), each(lambda: nn.Linear(c, c))
        self.scale = nn.ParameterList(nn.Parameter(torch.full((1, heads, 1, 1), 4.0).log()) for _ in range(layers))
        self.ada, self.plain = each(lambda: nn.Sequential(nn.SiLU(), nn.Linear(c, 6 * c))), nn.LayerNorm(c, elementwise_affine=False, eps=1e-6)  # fmt: skip
        self.mlps = each(lambda: nn.Sequential(nn.Linear(c, 4 * c), nn.GELU("tanh"), nn.Linear(4 * c, c)))
        self.mod, self.last = nn.Sequential(nn.SiLU(), nn.Linear(c, 2 * c)), nn.Linear(c, 4096)
        level = torch.cat([torch.full((k * k,), i) for i, k in enumerate(scales)])
        self.register_buffer("level", level)
        self.register_buffer("mask", torch.where(level[:, None] >= level, 0.0, float("-inf")))

    def forward(self, label: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Codes of the first nine scales: each next scale sees the sum of those before, resized."""
        b, biggest = label.shape[0], self.scales[-1]
        total, inputs, first = 0.0, [], 0
        for k, following in zip(self.scales, self.scales[1:], strict=False):
            image = self.codes(codes[:, first : first + k * k]).transpose(1, 2).unflatten(2, (k, k))
            total = total + F.interpolate(image, size=(biggest, biggest), mode="bicubic", align_corners=False)
            inputs.append(F.interpolate(total, size=(following, following), mode="area").flatten(2).transpose(1, 2))
            first += k * k
        given = self.label(label)
        x = torch.cat([given[:, None] + self.start, self.word(torch.cat(inputs, 1))], 1)
        x = x + self.levels(self.level) + self.places
        for k, mlp in enumerate(self.mlps):
            gate1, gate2, scale1, scale2, shift1, shift2 = self.ada[k](given).unflatten(1, (6, 1, -1)).unbind(1)
            q, key, v = (
                self.qkv[k](self.plain(x) * (1 + scale1) + shift1)
                .unflatten(2, (3, self.heads, -1))
                .permute(2, 0, 3, 1, 4)
            )
            q = F.normalize(q, dim=-1) * self.scale[k].clamp_max(math.log(100)).exp()
            y = F.scaled_dot_product_attention(q, F.normalize(key, dim=-1), v, self.mask, scale=1.0)
            x = x + self.out[k](y.transpose(1, 2).reshape(b, x.shape[1], -1)) * gate1
            x = x + mlp(self.plain(x) * (1 + scale2) + shift2) * gate2
        scale, shift = self.mod(given)[:, None].chunk(2, 2)
        return self.last(self.plain(x) * (1 + scale) + shift)


def scales(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    r = seeded()
    return torch.randint(0, 1000, (batch,), generator=r), torch.randint(0, 4096, (batch, 424), generator=r)


def unit(x: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    count = math.prod(x.shape[d] for d in dims)
    size = x.float().square().sum(dims, keepdim=True).sqrt()
    return x / (1e-4 + size.to(x.dtype) * count**-0.5)


class UnitConv(nn.Module):
    """A convolution whose weights are normalised when it runs."""

    def __init__(self, a: int, b: int, k: int = 3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(b, a, k, k))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = unit(self.weight, (1, 2, 3)) / self.weight[0].numel() ** 0.5
        return F.conv2d(x, w, padding=w.shape[2] // 2)


def unit_silu(x: torch.Tensor) -> torch.Tensor:
    return F.silu(x) / 0.596


def unit_sum(a: torch.Tensor, b: torch.Tensor, t: float = 0.3) -> torch.Tensor:
    return (a + (b - a) * t) / math.hypot(1 - t, t)


class UnitBlock(nn.Module):
    def __init__(self, a: int, b: int, embedded: int, mode: str = "", attention: bool = False):
        super().__init__()
        self.mode, self.one, self.two, self.gain = mode, UnitConv(b, b), UnitConv(b, b), UnitConv(embedded, b, 1)
        self.short = UnitConv(a, b, 1) if a != b else None
        self.qkv, self.out = (UnitConv(b, 3 * b, 1), UnitConv(b, b, 1)) if attention else (None, None)

    def forward(self, x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        if self.mode == "down":
            x = F.avg_pool2d(x, 2)
        if self.mode == "up":
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.short(x) if self.short else x
        x = unit(x, (1,)) if self.mode == "down" else x
        y = self.one(unit_silu(x)) * (self.gain(given) * 0.5 + 1)
        x = unit_sum(x, self.two(unit_silu(y)))
        if self.qkv is not None:
            q, k, v = unit(self.qkv(x).flatten(2).unflatten(1, (-1, 64, 3)), (2,)).unbind(3)
            weights = (torch.einsum("nhcq,nhck->nhqk", q, k / 8)).softmax(3)
            x = unit_sum(x, self.out(torch.einsum("nhqk,nhck->nhcq", weights, v).reshape(x.shape)))
        return x.clamp(-256, 256)


class UnitNetwork(nn.Module):
    """EDM2 (Karras et al., 2024), narrow, one block for each of three resolutions of 64 pixels: magnitude-preserving layers whose
    weights are normalised in each run."""

    def __init__(self, c: int = 128, side: int = 64):
        super().__init__()
        e = 3 * c
        self.register_buffer("rates", 2 * math.pi * torch.randn(c, generator=seeded()))
        self.register_buffer("phases", 2 * math.pi * torch.rand(c, generator=seeded()))
        self.noise, self.label = UnitConv(c, e, 1), UnitConv(1000, e, 1)
        self.first, self.last = UnitConv(5, c), UnitConv(c, 4)
        self.down = nn.ModuleList(
            (UnitBlock(c, c, e), UnitBlock(c, 2 * c, e, "down"), UnitBlock(2 * c, 3 * c, e, "down", True))
        )
        self.middle = UnitBlock(3 * c, 3 * c, e, "", True)
        self.up = nn.ModuleList(
            (UnitBlock(6 * c, 3 * c, e, "", True), UnitBlock(5 * c, 2 * c, e, ""), UnitBlock(3 * c, c, e, ""))
        )
        self.more = nn.ModuleList((UnitBlock(3 * c, 3 * c, e, "up"), UnitBlock(2 * c, 2 * c, e, "up")))

    def forward(self, x: torch.Tensor, sigma: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        waves = (sigma[:, None].log() / 4 * self.rates + self.phases).cos() * 2**0.5
        hot = F.one_hot(label, 1000).to(x.dtype) * 1000**0.5
        given = unit_silu(unit_sum(self.noise(waves[..., None, None]), self.label(hot[..., None, None]), 0.5))
        scale = (sigma.square() + 0.25).rsqrt()[:, None, None, None]
        x = self.first(torch.cat([x * scale, torch.ones_like(x[:, :1])], 1))
        kept = []
        for block in self.down:
            x = block(x, given)
            kept.append(x)
        x = self.middle(x, given)
        for k, block in enumerate(self.up):
            y = kept.pop()
            total = (x.shape[1] + y.shape[1]) ** 0.5
            joined = torch.cat([x * (total / (2 * x.shape[1]) ** 0.5), y * (total / (2 * y.shape[1]) ** 0.5)], 1)
            x = block(joined, given)
            x = self.more[k](x, given) if k < 2 else x
        return self.last(x)


class FoldedPixels(nn.Module):
    """The decoder of a deep compression autoencoder (Chen et al., 2024), narrow: 8 x 8 latents to 256 x 256 by folding pixels, with
    repeated channels as shortcuts, and multi-scale linear attention."""

    def __init__(self, latent: int = 32, widths: tuple[int, ...] = (512, 512, 256, 128, 128, 64)):
        super().__init__()
        self.first = nn.Conv2d(latent, widths[0], 3, padding=1)
        self.repeat = widths[0] // latent
        self.qkv = nn.ModuleList(nn.Conv2d(c, 3 * c, 1, bias=False) for c in widths[:2])
        self.near = nn.ModuleList(nn.Sequential(nn.Conv2d(3 * c, 3 * c, 5, padding=2, groups=3 * c, bias=False), nn.Conv2d(3 * c, 3 * c, 1, groups=3 * c // 32, bias=False)) for c in widths[:2])  # fmt: skip
        self.out = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * c, c, 1, bias=False), nn.GroupNorm(1, c)) for c in widths[:2]
        )
        glu = lambda c: nn.ModuleList((nn.Conv2d(c, 8 * c, 1), nn.Conv2d(8 * c, 8 * c, 3, padding=1, groups=8 * c), nn.Conv2d(4 * c, c, 1, bias=False), nn.GroupNorm(1, c)))  # fmt: skip
        self.glus = nn.ModuleList(glu(c) for c in widths[:2])
        res = lambda c: nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1), nn.SiLU(), nn.Conv2d(c, c, 3, padding=1, bias=False), nn.GroupNorm(1, c)
        )
        self.res = nn.ModuleList(res(c) for c in widths[2:])
        self.up = nn.ModuleList(nn.Conv2d(a, 4 * b, 3, padding=1) for a, b in zip(widths, widths[1:], strict=False))
        self.last = nn.Sequential(nn.GroupNorm(1, widths[-1]), nn.ReLU(), nn.Conv2d(widths[-1], 3, 3, padding=1))

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        y = self.qkv[k](x)
        y = torch.cat([y, self.near[k](y)], 1).flatten(2).unflatten(1, (-1, 96))
        q, key, v = y.chunk(3, 2)
        v = F.pad(v.float(), (0, 0, 0, 1), value=1.0)
        y = (v @ F.relu(key).float().transpose(2, 3)) @ F.relu(q).float()
        y = (y[:, :, :-1] / (y[:, :, -1:] + 1e-6)).to(x.dtype)
        return x + self.out[k](y.flatten(1, 2).unflatten(2, x.shape[2:]))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = self.first(z) + z.repeat_interleave(self.repeat, 1)
        for k in range(len(self.up) + 1):
            if k < 2:
                x = self.attend(k, x)
                wide, near, narrow, norm = self.glus[k]
                a, gate = near(F.silu(wide(x))).chunk(2, 1)
                x = x + norm(narrow(a * F.silu(gate)))
            else:
                x = x + self.res[k - 2](x)
            if k < len(self.up):
                y = self.up[k](x)
                x = F.pixel_shuffle(y, 2) + F.pixel_shuffle(x.repeat_interleave(y.shape[1] // x.shape[1], 1), 2)
        return self.last(x)


def noisy(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return (
        torch.randn(batch, 4, 64, 64, generator=r),
        0.1 + torch.rand(batch, generator=r),
        torch.randint(0, 1000, (batch,), generator=r),
    )


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "wan_decoder": (CausalVideoDecoder, normal((16, 3, 16, 20))),
    "var_4": (NextScale, scales),
    "edm2": (UnitNetwork, noisy),
    "dc_ae_decoder": (FoldedPixels, normal((32, 8, 8))),
}
