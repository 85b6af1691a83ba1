"""Restoration of images, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal


class ResidualDense(nn.Module):
    """Of ESRGAN's generator (Wang et al., 2018): five convolutions, each reads all before it."""

    def __init__(self, channels: int = 64, growth: int = 32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(channels + k * growth, growth, 3, padding=1) for k in range(4))
        self.last = nn.Conv2d(channels + 4 * growth, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x]
        for layer in self.layers:
            parts.append(F.leaky_relu(layer(torch.cat(parts, 1)), 0.2))
        return x + 0.2 * self.last(torch.cat(parts, 1))


class Esrgan(nn.Module):
    def __init__(self, blocks: int = 4):
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, padding=1)
        self.body = nn.Sequential(*(ResidualDense() for _ in range(3 * blocks)))
        self.after = nn.Conv2d(64, 64, 3, padding=1)
        self.up = nn.ModuleList(nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
        self.high, self.last = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y = y + self.after(self.body(y))
        for layer in self.up:
            y = F.leaky_relu(layer(F.interpolate(y, scale_factor=2.0, mode="nearest")), 0.2)
        return self.last(F.leaky_relu(self.high(y), 0.2))


class Edsr(nn.Module):
    """EDSR-baseline (Lim et al., 2017): residual blocks without norms, sub-pixel upsampling."""

    def __init__(self, width: int = 64, blocks: int = 16):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks)
        )
        self.up = nn.Sequential(
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(width, 4 * width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = y = self.first(x)
        for block in self.blocks:
            y = y + 0.1 * block(y)
        return self.up(y + first)


class LayerNormImage(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        y = (x - mean) / (variance + 1e-6).sqrt()
        return self.weight.view(1, -1, 1, 1) * y + self.bias.view(1, -1, 1, 1)


class NafBlock(nn.Module):
    """NAFNet (Chen et al., 2022): halves of channels multiply each other in place of an activation."""

    def __init__(self, c: int):
        super().__init__()
        self.norm1, self.norm2 = LayerNormImage(c), LayerNormImage(c)
        self.conv1, self.conv2 = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(2 * c, 2 * c, 3, padding=1, groups=2 * c)
        self.conv3, self.attention = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.conv4, self.conv5 = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(c, c, 1)
        self.beta, self.gamma = nn.Parameter(torch.ones(1, c, 1, 1)), nn.Parameter(torch.ones(1, c, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.conv2(self.conv1(self.norm1(x))).chunk(2, dim=1)
        y = a * b
        y = y * self.attention(F.adaptive_avg_pool2d(y, 1))
        y = x + self.beta * self.conv3(y)
        a, b = self.conv4(self.norm2(y)).chunk(2, dim=1)
        return y + self.gamma * self.conv5(a * b)


class NafNet(nn.Module):
    def __init__(self, width: int = 32, depths: tuple[int, ...] = (2, 2, 4)):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down, self.encoders, self.decoders, self.up = (nn.ModuleList() for _ in range(4))
        c = width
        for depth in depths:
            self.encoders.append(nn.Sequential(*(NafBlock(c) for _ in range(depth))))
            self.down.append(nn.Conv2d(c, 2 * c, 2, 2))
            c *= 2
        self.middle = nn.Sequential(*(NafBlock(c) for _ in range(2)))
        for _ in depths:
            self.up.append(nn.Sequential(nn.Conv2d(c, 2 * c, 1, bias=False), nn.PixelShuffle(2)))
            c //= 2
            self.decoders.append(NafBlock(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, skips = self.first(x), []
        for encoder, down in zip(self.encoders, self.down, strict=True):
            y = encoder(y)
            skips.append(y)
            y = down(y)
        y = self.middle(y)
        for decoder, up, skip in zip(self.decoders, self.up, skips[::-1], strict=True):
            y = decoder(up(y) + skip)
        return x + self.last(y)


class Dncnn(nn.Module):
    """Noise of a grey image (DnCNN, Zhang et al., 2017)."""

    def __init__(self, width: int = 64, layers: int = 15):
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
        for _ in range(layers):
            parts += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*parts, nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.layers(x)


class ChannelAttention(nn.Module):
    """A block of Restormer (Zamir et al., 2022): attention between channels, and a gated depthwise network."""

    def __init__(self, c: int, heads: int):
        super().__init__()
        self.heads, hidden = heads, int(c * 2.66)
        self.norm1, self.norm2 = LayerNormImage(c), LayerNormImage(c)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.qkv, self.local = nn.Conv2d(c, 3 * c, 1), nn.Conv2d(3 * c, 3 * c, 3, padding=1, groups=3 * c)
        self.out, self.into = nn.Conv2d(c, c, 1), nn.Conv2d(c, 2 * hidden, 1)
        self.depthwise, self.last = (
            nn.Conv2d(2 * hidden, 2 * hidden, 3, padding=1, groups=2 * hidden),
            nn.Conv2d(hidden, c, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, c, h, w = x.shape
        q, k, v = (t.reshape(batch, self.heads, -1, h * w) for t in self.local(self.qkv(self.norm1(x))).chunk(3, 1))
        scores = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.temperature).softmax(-1)
        x = x + self.out((scores @ v).reshape(batch, c, h, w))
        a, b = self.depthwise(self.into(self.norm2(x))).chunk(2, 1)
        return x + self.last(F.gelu(a) * b)


class Restormer(nn.Module):
    def __init__(self, width: int = 48):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.Conv2d(2 * width, 3, 3, padding=1)
        self.one = nn.Sequential(*(ChannelAttention(width, 1) for _ in range(2)))
        self.down = nn.Sequential(nn.Conv2d(width, width // 2, 3, padding=1, bias=False), nn.PixelUnshuffle(2))
        self.two = nn.Sequential(*(ChannelAttention(2 * width, 2) for _ in range(3)))
        self.up = nn.Sequential(nn.Conv2d(2 * width, 4 * width, 3, padding=1, bias=False), nn.PixelShuffle(2))
        self.three = ChannelAttention(2 * width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(self.first(x))
        y = torch.cat([self.up(self.two(self.down(y))), y], 1)
        return x + self.last(self.three(y))


class Windows(nn.Module):
    """A layer of SwinIR: attention inside windows of 8 x 8, shifted in every second layer; heads of 30 elements."""

    def __init__(self, c: int, heads: int, side: int, shift: int, window: int = 8):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.mlp = nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c))
        self.table = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        y, x = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        apart = torch.stack([y, x]).flatten(1)
        apart = apart[:, :, None] - apart[:, None] + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])
        region = torch.zeros(1, side, side, 1)
        edges = (slice(0, -window), slice(-window, -shift or None), slice(-shift, None))
        for k, (a, b) in enumerate((a, b) for a in edges for b in edges):
            region[:, a, b] = k
        region = self.split(region)[..., 0]
        self.register_buffer("mask", (region[:, None] != region[:, :, None]).float() * -100)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, h, w, c = x.shape
        n = self.window
        return x.view(batch, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, h, w, c = x.shape
        n, s = self.window, self.shift
        y = self.norm1(x)
        y = self.split(torch.roll(y, (-s, -s), (1, 2)) if s else y)
        q, k, v = self.qkv(y).reshape(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.table[self.index.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1)
        if s:
            scores = scores.view(batch, -1, self.heads, n * n, n * n) + self.mask[:, None]
            scores = scores.view(-1, self.heads, n * n, n * n)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n * n, c))
        y = y.view(batch, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(batch, h, w, c)
        x = x + (torch.roll(y, (s, s), (1, 2)) if s else y)
        return x + self.mlp(self.norm2(x))


class SwinIr(nn.Module):
    """SwinIR (Liang et al., 2021): four groups of four layers, each with a convolution at its end."""

    def __init__(self, c: int = 180, heads: int = 6, side: int = 64):
        super().__init__()
        self.first = nn.Conv2d(3, c, 3, padding=1)
        self.groups = nn.ModuleList(
            nn.Sequential(*(Windows(c, heads, side, 4 * (k % 2)) for k in range(4))) for _ in range(4)
        )
        self.convs = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(4))
        self.norm, self.after = nn.LayerNorm(c), nn.Conv2d(c, c, 3, padding=1)
        self.last = nn.Sequential(nn.Conv2d(c, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = y = self.first(x)
        for group, conv in zip(self.groups, self.convs, strict=True):
            y = y + conv(group(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        y = self.norm(y.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.last(first + self.after(y))


class Rcan(nn.Module):
    """RCAN (Zhang et al., 2018): residual groups of blocks with channel attention."""

    def __init__(self, c: int = 64, groups: int = 3, blocks: int = 6):
        super().__init__()

        def block() -> nn.Module:
            attention = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, 4, 1), nn.ReLU(), nn.Conv2d(4, c, 1), nn.Sigmoid()]
            body = [nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1)]
            return nn.ModuleList([nn.Sequential(*body), nn.Sequential(*attention)])

        self.first = nn.Conv2d(3, c, 3, padding=1)
        self.groups = nn.ModuleList(nn.ModuleList(block() for _ in range(blocks)) for _ in range(groups))
        self.ends = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(groups + 1))
        self.up = nn.Sequential(nn.Conv2d(c, 9 * c, 3, padding=1), nn.PixelShuffle(3), nn.Conv2d(c, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = y = self.first(x)
        for group, end in zip(self.groups, self.ends, strict=False):
            start = y
            for body, attention in group:
                z = body(y)
                y = y + z * attention(z)
            y = start + end(y)
        return self.up(first + self.ends[-1](y))


class HalfNorm(nn.Module):
    """A block of HINet: instance norm of half of the channels."""

    def __init__(self, a: int, b: int):
        super().__init__()
        self.one, self.two, self.short = nn.Conv2d(a, b, 3, 1, 1), nn.Conv2d(b, b, 3, 1, 1), nn.Conv2d(a, b, 1)
        self.norm = nn.InstanceNorm2d(b // 2, affine=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = torch.chunk(self.one(x), 2, 1)
        y = F.leaky_relu(torch.cat([self.norm(a), b], 1), 0.2)
        return F.leaky_relu(self.two(y), 0.2) + self.short(x)


class HiNet(nn.Module):
    """HINet (Chen et al., 2021): two U-Nets, of which the second reads an image corrected by supervised attention."""

    def __init__(self, c: int = 36, levels: int = 4):
        super().__init__()
        widths = [c * 2**k for k in range(levels)]
        self.levels = levels
        self.firsts = nn.ModuleList(nn.Conv2d(3, c, 3, padding=1) for _ in range(2))
        pairs = list(zip([c, *widths], widths))
        self.downs = nn.ModuleList(nn.ModuleList(HalfNorm(a, b) for a, b in pairs) for _ in range(2))
        self.steps = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(b, b, 4, 2, 1, bias=False) for b in widths[:-1]) for _ in range(2)
        )
        self.ups = nn.ModuleList(
            nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in widths[-2::-1]) for _ in range(2)
        )
        self.joins = nn.ModuleList(nn.ModuleList(HalfNorm(2 * a, a) for a in widths[-2::-1]) for _ in range(2))
        self.skips = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(a, a, 3, padding=1) for a in widths[-2::-1]) for _ in range(2)
        )
        self.attend = nn.ModuleList([nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, 3, 3, 1, 1), nn.Conv2d(3, c, 3, 1, 1)])
        self.mix, self.last = nn.Conv2d(2 * c, c, 1), nn.Conv2d(c, 3, 3, padding=1)

    def stage(self, k: int, y: torch.Tensor) -> torch.Tensor:
        kept = []
        for n, layer in enumerate(self.downs[k]):
            y = layer(y)
            if n < self.levels - 1:
                kept.append(y)
                y = self.steps[k][n](y)
        for up, join, skip in zip(self.ups[k], self.joins[k], self.skips[k], strict=True):
            y = join(torch.cat([up(y), skip(kept.pop())], 1))
        return y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stage(0, self.firsts[0](x))
        keep, to_image, gate = self.attend
        image = to_image(y) + x
        y = y + keep(y) * torch.sigmoid(gate(image))
        return self.last(self.stage(1, self.mix(torch.cat([self.firsts[1](x), y], 1)))) + x


class CompactSuperResolution(nn.Module):
    """The small network of Real-ESRGAN (Wang et al., 2021): PReLUs, four times the size at the end."""

    def __init__(self, c: int = 64, layers: int = 16):
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, c, 3, padding=1), nn.PReLU(c)]
        for _ in range(layers):
            parts += [nn.Conv2d(c, c, 3, padding=1), nn.PReLU(c)]
        self.body = nn.Sequential(*parts, nn.Conv2d(c, 48, 3, padding=1), nn.PixelShuffle(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + F.interpolate(x, scale_factor=4.0, mode="nearest")


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "esrgan_4": (Esrgan, normal((3, 128, 128))),
    "edsr": (Edsr, normal((3, 128, 128))),
    "nafnet": (NafNet, normal((3, 256, 256))),
    "dncnn": (Dncnn, normal((1, 128, 128))),
    "restormer_7": (Restormer, normal((3, 128, 128))),
    "swinir_16": (SwinIr, normal((3, 64, 64))),
    "rcan_18": (Rcan, normal((3, 96, 96))),
    "hinet": (HiNet, normal((3, 168, 248))),
    "srvgg_16": (CompactSuperResolution, normal((3, 125, 167))),
}
