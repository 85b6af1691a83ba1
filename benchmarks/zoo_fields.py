"""Architectures of fields that torchvision, transformers and timm leave out, for the zoo: restoration and generation of
images, volumes, sound, time series, graphs, point clouds, recommendation, optical flow and physics.

Each is written here from its paper's description, at a size that people use, in the plain style of research code: what
an exporter makes of such modules differs from what it makes of the libraries' code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Inputs = Callable[[int], tuple[torch.Tensor, ...]]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def normal(*shapes: tuple[int, ...]) -> Inputs:
    return lambda batch: tuple(torch.randn(batch, *shape, generator=seeded()) for shape in shapes)


# ---- images: restoration and generation


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


class Double(nn.Sequential):
    def __init__(self, into: int, out: int, dims: int = 2):
        conv = nn.Conv2d if dims == 2 else nn.Conv3d
        norm: Any = nn.BatchNorm2d if dims == 2 else nn.InstanceNorm3d
        rectify = (lambda: nn.ReLU()) if dims == 2 else (lambda: nn.LeakyReLU(0.01))
        layers: list[nn.Module] = []
        for c in (into, out):
            layers += [conv(c, out, 3, padding=1), norm(out, affine=True), rectify()]
        super().__init__(*layers)


class Unet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with bilinear upsampling; with `dims` = 3 nnU-Net's form (Isensee et al., 2021)."""

    def __init__(self, into: int, width: int, levels: int, classes: int, dims: int = 2):
        super().__init__()
        self.dims = dims
        widths = [min(width * 2**k, 320) if dims == 3 else width * 2**k for k in range(levels)]
        self.encoders = nn.ModuleList(Double(a, b, dims) for a, b in zip([into, *widths[:-1]], widths, strict=True))
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        up = [nn.Identity() if dims == 2 else nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(widths, widths[1:])]
        self.up = nn.ModuleList(up[::-1])
        both = [(a + b if dims == 2 else 2 * a, a) for a, b in zip(widths, widths[1:])]
        self.decoders = nn.ModuleList(Double(a, b, dims) for a, b in both[::-1])
        self.last = (nn.Conv2d if dims == 2 else nn.Conv3d)(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for k, encoder in enumerate(self.encoders):
            x = encoder(x if k == 0 else self.pool(x))
            skips.append(x)
        for up, decoder, skip in zip(self.up, self.decoders, skips[-2::-1], strict=True):
            x = up(x) if self.dims == 3 else F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = decoder(torch.cat([skip, x], 1))
        return self.last(x)


class Modulated(nn.Module):
    """A convolution of StyleGAN2 (Karras et al., 2020): the style scales each sample's weights, which are normalised."""

    def __init__(self, into: int, out: int, size: int, up: bool, demodulate: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, into, size, size) / math.sqrt(into * size * size))
        self.style, self.bias = nn.Linear(512, into), nn.Parameter(torch.zeros(out))
        self.up, self.demodulate = up, demodulate
        blur = torch.tensor([1.0, 3.0, 3.0, 1.0])
        self.register_buffer("blur", (blur[:, None] * blur / 64)[None, None].repeat(out, 1, 1, 1))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        batch, out = x.shape[0], self.weight.shape[0]
        style = self.style(w) + 1
        x = x * style[:, :, None, None]
        if self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        y = F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2)
        if self.up:
            y = F.conv2d(F.pad(y, (2, 1, 2, 1)), 0.25 * self.blur, groups=out)
        if self.demodulate:
            scale = torch.rsqrt(((self.weight[None] * style[:, None, :, None, None]) ** 2).sum((2, 3, 4)) + 1e-8)
            y = y * scale.view(batch, out, 1, 1)
        return y + self.bias.view(1, -1, 1, 1)


class StyleGan(nn.Module):
    def __init__(self, size: int = 128):
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [nn.Linear(512, 512), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*layers)
        self.constant = nn.Parameter(torch.randn(1, 512, 4, 4))
        widths = {4: 512, 8: 512, 16: 512, 32: 256, 64: 128, 128: 64}
        self.layers, self.colours = nn.ModuleList([Modulated(512, 512, 3, False)]), nn.ModuleList()
        self.colours.append(Modulated(512, 3, 1, False, False))
        before = 512
        for side in (8, 16, 32, 64, 128):
            if side > size:
                break
            self.layers += [Modulated(before, widths[side], 3, True), Modulated(widths[side], widths[side], 3, False)]
            self.colours.append(Modulated(widths[side], 3, 1, False, False))
            before = widths[side]

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        w = self.mapping(z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8))
        x = self.constant.expand(z.shape[0], -1, -1, -1)
        x = F.leaky_relu(self.layers[0](x, w), 0.2) * math.sqrt(2)
        image = self.colours[0](x, w)
        for k, colour in enumerate(self.colours[1:]):
            for layer in self.layers[2 * k + 1 : 2 * k + 3]:
                x = F.leaky_relu(layer(x, w), 0.2) * math.sqrt(2)
            up = F.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
            image = up + colour(x, w)
        return image


class CycleGan(nn.Module):
    """Generator of CycleGAN (Zhu et al., 2017): reflected borders, instance norms, transposed convolutions."""

    def __init__(self, width: int = 64, blocks: int = 6):
        super().__init__()

        def norm(c: int) -> list[nn.Module]:
            return [nn.InstanceNorm2d(c), nn.ReLU()]

        layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), *norm(width)]
        for k in (1, 2):
            layers += [nn.Conv2d(width * k, width * 2 * k, 3, 2, 1), *norm(width * 2 * k)]
        self.down = nn.Sequential(*layers)
        c = 4 * width
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReflectionPad2d(1),
                nn.Conv2d(c, c, 3),
                *norm(c),
                nn.ReflectionPad2d(1),
                nn.Conv2d(c, c, 3),
                norm(c)[0],
            )
            for _ in range(blocks)
        )
        layers = []
        for k in (2, 1):
            layers += [nn.ConvTranspose2d(2 * k * width, k * width, 3, 2, 1, output_padding=1), *norm(k * width)]
        self.up = nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return self.up(x)


class VectorQuantised(nn.Module):
    """VQ-VAE (van den Oord et al., 2017): each position takes the nearest vector of a codebook."""

    def __init__(self, width: int = 128, codes: int = 512, code: int = 64):
        super().__init__()

        def residual() -> nn.Module:
            return nn.Sequential(nn.ReLU(), nn.Conv2d(width, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, width, 1))

        self.first = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)
        )  # fmt: skip
        self.encoder, self.decoder = (
            nn.ModuleList(residual() for _ in range(2)),
            nn.ModuleList(residual() for _ in range(2)),
        )
        self.to_code, self.from_code = nn.Conv2d(width, code, 1), nn.Conv2d(code, width, 3, 1, 1)
        self.codes = nn.Embedding(codes, code)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width // 2, 3, 4, 2, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for layer in self.encoder:
            y = y + layer(y)
        y = self.to_code(y).permute(0, 2, 3, 1)
        flat = y.reshape(-1, y.shape[-1])
        w = self.codes.weight
        distances = (flat**2).sum(1, keepdim=True) + (w**2).sum(1) - 2 * flat @ w.t()
        y = self.codes(distances.argmin(1)).view_as(y).permute(0, 3, 1, 2)
        y = self.from_code(y)
        for layer in self.decoder:
            y = y + layer(y)
        return self.up(y)


# ---- sound


class WaveNet(nn.Module):
    """Gated dilated causal convolutions (van den Oord et al., 2016)."""

    def __init__(self, residual: int = 64, skip: int = 256, layers: int = 20):
        super().__init__()
        self.first = nn.Conv1d(256, residual, 1)
        self.dilations = [2 ** (k % 10) for k in range(layers)]
        self.filters = nn.ModuleList(nn.Conv1d(residual, residual, 2, dilation=d) for d in self.dilations)
        self.gates = nn.ModuleList(nn.Conv1d(residual, residual, 2, dilation=d) for d in self.dilations)
        self.out = nn.ModuleList(nn.Conv1d(residual, residual, 1) for _ in self.dilations)
        self.skip = nn.ModuleList(nn.Conv1d(residual, skip, 1) for _ in self.dilations)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, 256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = self.first(x), 0
        for k, d in enumerate(self.dilations):
            padded = F.pad(x, (d, 0))
            y = torch.tanh(self.filters[k](padded)) * torch.sigmoid(self.gates[k](padded))
            total = total + self.skip[k](y)
            x = x + self.out[k](y)
        return self.last(total)


class ConvTasNet(nn.Module):
    """Separation of two speakers (Luo and Mesgarani, 2019): norms over whole signals, depthwise convolutions."""

    def __init__(self, n: int = 512, b: int = 128, h: int = 512, blocks: int = 8, repeats: int = 2):
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, n, 16, 8, bias=False), nn.ConvTranspose1d(n, 1, 16, 8, bias=False)
        self.norm, self.first = nn.GroupNorm(1, n, eps=1e-8), nn.Conv1d(n, b, 1)
        self.blocks, self.residual, self.skips = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for k in range(blocks * repeats):
            d = 2 ** (k % blocks)
            self.blocks.append(
                nn.Sequential(
                    nn.Conv1d(b, h, 1), nn.PReLU(), nn.GroupNorm(1, h, eps=1e-8),
                    nn.Conv1d(h, h, 3, padding=d, dilation=d, groups=h), nn.PReLU(), nn.GroupNorm(1, h, eps=1e-8),
                )
            )  # fmt: skip
            self.residual.append(nn.Conv1d(h, b, 1))
            self.skips.append(nn.Conv1d(h, b, 1))
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv1d(b, 2 * n, 1), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        e = F.relu(self.encoder(x))
        y, total = self.first(self.norm(e)), 0
        for block, residual, skip in zip(self.blocks, self.residual, self.skips, strict=True):
            z = block(y)
            total, y = total + skip(z), y + residual(z)
        masks = self.masks(total).view(x.shape[0], 2, e.shape[1], e.shape[2])
        parts = (masks * e[:, None]).view(2 * x.shape[0], e.shape[1], e.shape[2])
        return self.decoder(parts).view(x.shape[0], 2, -1)


class HifiGan(nn.Module):
    """Generator of HiFi-GAN V1 (Kong et al., 2020)."""

    def __init__(
        self, width: int = 512, rates: tuple[int, ...] = (8, 8, 2, 2), sizes: tuple[int, ...] = (16, 16, 4, 4)
    ):
        super().__init__()
        self.first, self.up, self.blocks = nn.Conv1d(80, width, 7, padding=3), nn.ModuleList(), nn.ModuleList()
        for rate, size in zip(rates, sizes, strict=True):
            self.up.append(nn.ConvTranspose1d(width, width // 2, size, rate, (size - rate) // 2))
            width //= 2
            for k in (3, 7, 11):
                pairs = [
                    nn.ModuleList([nn.Conv1d(width, width, k, padding=d * (k - 1) // 2, dilation=d), nn.Conv1d(width, width, k, padding=k // 2)])
                    for d in (1, 3, 5)
                ]  # fmt: skip
                self.blocks.append(nn.ModuleList(pairs))
        self.last = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for k, up in enumerate(self.up):
            x = up(F.leaky_relu(x, 0.1))
            total = 0
            for pairs in self.blocks[3 * k : 3 * k + 3]:
                y = x
                for one, two in pairs:
                    y = y + two(F.leaky_relu(one(F.leaky_relu(y, 0.1)), 0.1))
                total = total + y
            x = total / 3
        return torch.tanh(self.last(F.leaky_relu(x)))


class Crnn(nn.Module):
    """Sound events by convolutions and two bidirectional GRUs (Cakir et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b, pool in ((1, 64, (2, 2)), (64, 128, (2, 2)), (128, 128, (1, 2)), (128, 128, (1, 2))):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.AvgPool2d(pool)]
        self.convolutions = nn.Sequential(*layers)
        self.recurrent = nn.GRU(128 * 4, 128, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolutions(x)
        y, _ = self.recurrent(x.transpose(1, 2).flatten(2))
        return torch.sigmoid(self.last(y))


# ---- time series


class Tcn(nn.Module):
    """Temporal convolutional network (Bai et al., 2018)."""

    def __init__(self, width: int = 150, levels: int = 8):
        super().__init__()
        self.first = nn.Conv1d(32, width, 1)
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.Conv1d(width, width, 3, padding=2 * 2**k, dilation=2**k) for _ in range(2)])
            for k in range(levels)
        )
        self.last = nn.Linear(width, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for pair in self.layers:
            y = x
            for conv in pair:
                y = F.relu(conv(y)[:, :, : x.shape[2]])
            x = F.relu(x + y)
        return self.last(x[:, :, -1])


class NBeats(nn.Module):
    """N-BEATS with generic blocks (Oreshkin et al., 2020)."""

    def __init__(self, into: int = 512, out: int = 96, width: int = 512, blocks: int = 12):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            layers: list[nn.Module] = []
            for a in (into, width, width, width):
                layers += [nn.Linear(a, width), nn.ReLU()]
            self.blocks.append(nn.ModuleDict({"body": nn.Sequential(*layers), "theta": nn.Linear(width, into + out)}))
        self.into = into

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        forecast = 0
        for block in self.blocks:
            theta = block["theta"](block["body"](x))
            x = x - theta[:, : self.into]
            forecast = forecast + theta[:, self.into :]
        return forecast


class DLinear(nn.Module):
    """DLinear (Zeng et al., 2023): trend by a moving mean, two products along time."""

    def __init__(self, into: int = 336, out: int = 96):
        super().__init__()
        self.trend, self.season = nn.Linear(into, out), nn.Linear(into, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.cat([x[:, :1].repeat(1, 12, 1), x, x[:, -1:].repeat(1, 12, 1)], 1)
        trend = F.avg_pool1d(padded.transpose(1, 2), 25, 1).transpose(1, 2)
        y = self.season((x - trend).transpose(1, 2)) + self.trend(trend.transpose(1, 2))
        return y.transpose(1, 2)


class Forecaster(nn.Module):
    """Two LSTM layers and additive attention over their steps (Bahdanau et al., 2015)."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.lstm = nn.LSTM(64, width, 2, batch_first=True)
        self.keys, self.query, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.last = nn.Linear(2 * width, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(x)
        end = y[:, -1]
        scores = self.score(torch.tanh(self.keys(y) + self.query(end)[:, None])).softmax(1)
        return self.last(torch.cat([end, (scores * y).sum(1)], 1))


class Inverted(nn.Module):
    """iTransformer (Liu et al., 2024): variables are tokens."""

    def __init__(self, into: int = 96, width: int = 512, layers: int = 4):
        super().__init__()
        self.embed = nn.Linear(into, width)
        layer = nn.TransformerEncoderLayer(width, 8, 512, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.last = nn.Linear(width, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        x = x - mean
        deviation = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        y = self.last(self.layers(self.embed((x / deviation).transpose(1, 2)))).transpose(1, 2)
        return y * deviation + mean


# ---- graphs, points, recommendation


class GraphAttention(nn.Module):
    """Graph attention over a dense mask of edges (Velickovic et al., 2018), two layers."""

    def __init__(self, into: int = 128, width: int = 32, heads: int = 8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, heads * width, bias=False) for a in (into, heads * width))
        self.left = nn.ParameterList(nn.Parameter(0.1 * torch.randn(heads, width)) for _ in range(2))
        self.right = nn.ParameterList(nn.Parameter(0.1 * torch.randn(heads, width)) for _ in range(2))
        self.heads, self.width = heads, width

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer, left, right in zip(self.layers, self.left, self.right, strict=True):
            h = layer(x).view(x.shape[0], x.shape[1], self.heads, self.width)
            scores = (h * left).sum(-1)[:, :, None] + (h * right).sum(-1)[:, None]
            scores = F.leaky_relu(scores, 0.2).masked_fill(edges[..., None] <= 0, -1e4).softmax(2)
            x = F.elu(torch.einsum("bijh,bjhd->bihd", scores, h).flatten(2))
        return x


class MessagePassing(nn.Module):
    """Messages over a list of edges, summed at their ends (as SchNet and MeshGraphNets do), four rounds."""

    def __init__(self, width: int = 128, rounds: int = 4):
        super().__init__()

        def mlp(into: int) -> nn.Module:
            return nn.Sequential(nn.Linear(into, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))

        self.nodes, self.edges = mlp(16), mlp(8)
        self.edge, self.node = (
            nn.ModuleList(mlp(3 * width) for _ in range(rounds)),
            nn.ModuleList(mlp(2 * width) for _ in range(rounds)),
        )
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, e: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        x, e = self.nodes(x), self.edges(e)
        width = x.shape[2]
        source, target = (ends[:, k, :, None].expand(-1, -1, width) for k in (0, 1))
        for edge, node in zip(self.edge, self.node, strict=True):
            e = e + edge(torch.cat([e, x.gather(1, source), x.gather(1, target)], 2))
            sums = torch.zeros_like(x).scatter_add(1, target, e)
            x = x + node(torch.cat([x, sums], 2))
        return self.last(x)


def mesh(batch: int, nodes: int = 2000, edges: int = 12000) -> tuple[torch.Tensor, ...]:
    r = seeded()
    ends = torch.randint(0, nodes, (batch, 2, edges), generator=r)
    return torch.randn(batch, nodes, 16, generator=r), torch.randn(batch, edges, 8, generator=r), ends


class PointNet(nn.Module):
    """PointNet with its learned transformation (Qi et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()

        def stack(*widths: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for a, b in zip(widths, widths[1:]):
                layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
            return nn.Sequential(*layers)

        self.local, self.after = stack(3, 64, 128, 1024), nn.Linear(1024, 9)
        self.one, self.two = stack(3, 64, 64), stack(64, 64, 128, 1024)
        self.head = stack(1088, 512, 256, 128)
        self.last = nn.Conv1d(128, 50, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turn = self.after(self.local(x).amax(2)).view(-1, 3, 3) + torch.eye(3, device=x.device, dtype=x.dtype)
        one = self.one(torch.bmm(x.transpose(1, 2), turn).transpose(1, 2))
        whole = self.two(one).amax(2, keepdim=True).expand(-1, -1, x.shape[2])
        return self.last(self.head(torch.cat([one, whole], 1)))


class Dgcnn(nn.Module):
    """Dynamic graph CNN (Wang et al., 2019): convolutions over the 20 nearest neighbours, found again in each layer."""

    def __init__(self, k: int = 20):
        super().__init__()
        self.k = k
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
            for a, b in ((3, 64), (64, 64), (64, 128))
        )
        self.after = nn.Sequential(nn.Conv1d(256, 1024, 1, bias=False), nn.BatchNorm1d(1024), nn.LeakyReLU(0.2))
        self.last = nn.Linear(2048, 40)

    def neighbours(self, x: torch.Tensor) -> torch.Tensor:
        inner = -2 * x.transpose(2, 1) @ x
        squares = (x**2).sum(1, keepdim=True)
        near = (-squares - inner - squares.transpose(2, 1)).topk(self.k, dim=-1)[1]
        batch, channels, points = x.shape
        rows = x.transpose(2, 1)
        index = near.reshape(batch, points * self.k, 1).expand(-1, -1, channels)
        found = rows.gather(1, index).view(batch, points, self.k, channels)
        own = rows[:, :, None].expand(-1, -1, self.k, -1)
        return torch.cat([found - own, own], 3).permute(0, 3, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        all_layers = []
        for layer in self.layers:
            x = layer(self.neighbours(x)).amax(3)
            all_layers.append(x)
        y = self.after(torch.cat(all_layers, 1))
        return self.last(torch.cat([y.amax(2), y.mean(2)], 1))


class Dlrm(nn.Module):
    """DLRM (Naumov et al., 2019): 26 tables, products of all pairs."""

    def __init__(self, tables: int = 26, rows: int = 20000, width: int = 64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()
        )
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = nn.Sequential(
            nn.Linear(pairs.shape[1] + width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x, ids = x.flatten(0, 1), ids.flatten(0, 1)
        dense = self.bottom(x)
        rows = torch.stack([dense] + [t(ids[:, k]) for k, t in enumerate(self.tables)], 1)
        products = (rows @ rows.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([dense, products], 1)))


def clicks(batch: int, each: int = 256) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, each, 13, generator=r), torch.randint(0, 20000, (batch, each, 26), generator=r)


class InterestNetwork(nn.Module):
    """Deep interest network (Zhou et al., 2018): history weighted by a network of pairs with the candidate."""

    def __init__(self, items: int = 50000, width: int = 64):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.weigh = nn.Sequential(
            nn.Linear(4 * width, 80), nn.Sigmoid(), nn.Linear(80, 40), nn.Sigmoid(), nn.Linear(40, 1)
        )
        self.top = nn.Sequential(
            nn.Linear(2 * width, 200), nn.PReLU(), nn.Linear(200, 80), nn.PReLU(), nn.Linear(80, 1)
        )

    def forward(self, history: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        past, one = self.items(history), self.items(candidate)
        own = one[:, :, None].expand(-1, -1, past.shape[2], -1)
        weights = self.weigh(torch.cat([own, past, own - past, own * past], -1))
        weights = weights.masked_fill(history[..., None] == 0, 0)
        return torch.sigmoid(self.top(torch.cat([(weights * past).sum(2), one], -1)))


def visits(batch: int, each: int = 64, length: int = 100) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return (
        torch.randint(0, 50000, (batch, each, length), generator=r),
        torch.randint(0, 50000, (batch, each), generator=r),
    )


# ---- flow, fields, physics


class Flow(nn.Module):
    """Optical flow by warped features and correlations of neighbours (PWC-Net, Sun et al., 2018), four levels."""

    def __init__(self, reach: int = 4):
        super().__init__()
        self.reach = reach
        widths = (3, 16, 32, 64, 96)
        self.features = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(b, b, 3, 1, 1), nn.LeakyReLU(0.1))
            for a, b in zip(widths, widths[1:])
        )
        pairs = (2 * reach + 1) ** 2
        self.estimators = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(pairs + c + 2, 128, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(128, 96, 3, 1, 1), nn.LeakyReLU(0.1),
                nn.Conv2d(96, 64, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(64, 2, 3, 1, 1),
            )
            for c in widths[:0:-1]
        )  # fmt: skip

    def correlate(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        r, (h, w) = self.reach, a.shape[2:]
        b = F.pad(b, (r, r, r, r))
        found = [(a * b[:, :, y : y + h, x : x + w]).mean(1) for y in range(2 * r + 1) for x in range(2 * r + 1)]
        return F.leaky_relu(torch.stack(found, 1), 0.1)

    def warp(self, x: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[2:]
        ys = torch.linspace(-1, 1, h, device=x.device, dtype=x.dtype)
        xs = torch.linspace(-1, 1, w, device=x.device, dtype=x.dtype)
        grid = torch.stack([xs[None].expand(h, w), ys[:, None].expand(h, w)], -1)[None]
        scale = torch.tensor([2 / max(w - 1, 1), 2 / max(h - 1, 1)], device=x.device, dtype=x.dtype)
        return F.grid_sample(x, grid + flow.permute(0, 2, 3, 1) * scale, align_corners=True)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        one, two = [pair[:, :3]], [pair[:, 3:]]
        for layer in self.features:
            one.append(layer(one[-1]))
            two.append(layer(two[-1]))
        flow = torch.zeros_like(one[-1][:, :2])
        for k, estimator in enumerate(self.estimators):
            a, b = one[-1 - k], two[-1 - k]
            if k:
                flow = 2 * F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=False)
            b = self.warp(b, flow)
            flow = flow + estimator(torch.cat([self.correlate(a, b), a, flow], 1))
        return flow


class Nerf(nn.Module):
    """A radiance field (Mildenhall et al., 2020): encoded positions, and 64 samples a ray summed by their transmittance."""

    def __init__(self, width: int = 256, samples: int = 64):
        super().__init__()
        self.samples = samples
        self.layers = nn.ModuleList(
            nn.Linear(a, width) for a in (63, width, width, width, width + 63, width, width, width)
        )
        self.density, self.features = nn.Linear(width, 1), nn.Linear(width, width)
        self.colour = nn.Sequential(
            nn.Linear(width + 27, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid()
        )

    def encode(self, x: torch.Tensor, octaves: int) -> torch.Tensor:
        parts = [x]
        for k in range(octaves):
            parts += [torch.sin(2.0**k * x), torch.cos(2.0**k * x)]
        return torch.cat(parts, -1)

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        origin, direction = rays[..., None, :3], rays[..., None, 3:]
        depth = torch.linspace(0.1, 1, self.samples, device=rays.device, dtype=rays.dtype)[:, None]
        p = self.encode(origin + depth * direction, 10)
        h = p
        for k, layer in enumerate(self.layers):
            h = F.relu(layer(torch.cat([p, h], -1) if k == 4 else h))
        density = F.relu(self.density(h))[..., 0]
        d = self.encode(F.normalize(direction, dim=-1), 4).expand(-1, -1, self.samples, -1)
        colour = self.colour(torch.cat([self.features(h), d], -1))
        optical = density * (0.9 / self.samples)
        alpha, through = 1 - torch.exp(-optical), torch.exp(optical - optical.cumsum(-1))
        return ((alpha * through)[..., None] * colour).sum(-2)


class Siren(nn.Module):
    """Sines as activations (Sitzmann et al., 2020)."""

    def __init__(self, width: int = 256, layers: int = 5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 if k == 0 else width, width) for k in range(layers))
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, layer in enumerate(self.layers):
            x = torch.sin((6.0 if k == 0 else 2.0) * layer(x))
        return self.last(x)


class Kan(nn.Module):
    """A layer of learned functions over radial bases for each pair of features (FastKAN, Li, 2024)."""

    def __init__(self, widths: tuple[int, ...] = (784, 256, 256, 10), bases: int = 8):
        super().__init__()
        self.register_buffer("centres", torch.linspace(-2, 2, bases))
        self.norms = nn.ModuleList(nn.LayerNorm(a) for a in widths[:-1])
        self.splines = nn.ModuleList(nn.Linear(a * bases, b, bias=False) for a, b in zip(widths, widths[1:]))
        self.bases = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        for norm, spline, base in zip(self.norms, self.splines, self.bases, strict=True):
            near = torch.exp(-(((norm(x)[..., None] - self.centres) / 0.57) ** 2))
            x = spline(near.flatten(1)) + base(F.silu(x))
        return x


class VolumePatches(nn.Module):
    """A transformer over patches of a volume with a decoder of transposed convolutions (UNETR, Hatamizadeh et al., 2022)."""

    def __init__(self, width: int = 384, layers: int = 6, side: int = 64, patch: int = 16):
        super().__init__()
        self.side = side // patch
        self.patches = nn.Conv3d(1, width, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, self.side**3, width))
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        parts: list[nn.Module] = []
        for a, b in ((width, 128), (128, 64), (64, 32), (32, 16)):
            parts += [
                nn.ConvTranspose3d(a, b, 2, 2),
                nn.Conv3d(b, b, 3, padding=1),
                nn.InstanceNorm3d(b),
                nn.LeakyReLU(0.01),
            ]
        self.decoder = nn.Sequential(*parts, nn.Conv3d(16, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        y = self.layers(y).transpose(1, 2)
        return self.decoder(y.reshape(x.shape[0], -1, self.side, self.side, self.side))


#: With inputs of a batch.
FIELDS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "esrgan_4": (Esrgan, normal((3, 128, 128))),
    "edsr": (Edsr, normal((3, 128, 128))),
    "nafnet": (NafNet, normal((3, 256, 256))),
    "unet": (lambda: Unet(3, 64, 5, 2), normal((3, 256, 256))),
    "unet_3d": (lambda: Unet(1, 32, 5, 3, dims=3), normal((1, 64, 64, 64))),
    "stylegan2_128": (StyleGan, normal((512,))),
    "cyclegan": (CycleGan, normal((3, 256, 256))),
    "vq_vae": (VectorQuantised, normal((3, 128, 128))),
    "wavenet": (WaveNet, normal((256, 4000))),
    "conv_tasnet": (ConvTasNet, normal((1, 16000))),
    "hifi_gan": (HifiGan, normal((80, 100))),
    "crnn": (Crnn, normal((1, 400, 64))),
    "tcn": (Tcn, normal((32, 400))),
    "n_beats": (NBeats, normal((512,))),
    "d_linear": (DLinear, normal((336, 321))),
    "lstm_attention": (Forecaster, normal((96, 64))),
    "itransformer": (Inverted, normal((96, 321))),
    "graph_attention": (GraphAttention, normal((256, 128), (256, 256))),
    "mesh_graph": (MessagePassing, mesh),
    "pointnet": (PointNet, normal((3, 2048))),
    "dgcnn": (Dgcnn, normal((3, 1024))),
    "dlrm": (Dlrm, clicks),
    "interest_network": (InterestNetwork, visits),
    "pwc_flow": (Flow, normal((6, 256, 448))),
    "nerf": (Nerf, lambda batch: (torch.randn(batch, 1024, 6, generator=seeded()),)),
    "siren": (Siren, normal((16384, 2))),
    "kan": (Kan, normal((256, 784))),
    "unetr": (VolumePatches, normal((1, 64, 64, 64))),
}
