"""Sound and time series, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal


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


class DeepSpeech(nn.Module):
    """DeepSpeech 2 (Amodei et al., 2016) with three bidirectional GRUs."""

    def __init__(self, width: int = 512):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5), bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5), bias=False), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
        )  # fmt: skip
        self.layers = nn.ModuleList(
            nn.GRU(a, width, batch_first=True, bidirectional=True) for a in (32 * 41, 2 * width, 2 * width)
        )
        self.last = nn.Linear(2 * width, 29)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolutions(x).flatten(1, 2).transpose(1, 2)
        for layer in self.layers:
            x, _ = layer(x)
        return self.last(x).log_softmax(-1)


class QuartzNet(nn.Module):
    """Separable convolutions along time (Kriman et al., 2020), one block of each of its five kinds."""

    def __init__(self) -> None:
        super().__init__()

        def part(a: int, b: int, size: int, stride: int = 1, dilation: int = 1) -> list[nn.Module]:
            pad = dilation * (size - 1) // 2
            depthwise = nn.Conv1d(a, a, size, stride, pad, dilation, groups=a, bias=False)
            return [depthwise, nn.Conv1d(a, b, 1, bias=False), nn.BatchNorm1d(b)]

        self.first = nn.Sequential(*part(64, 256, 33, 2), nn.ReLU())
        self.blocks, self.skips = nn.ModuleList(), nn.ModuleList()
        for a, b, size in ((256, 256, 33), (256, 256, 39), (256, 512, 51), (512, 512, 63), (512, 512, 75)):
            layers: list[nn.Module] = []
            for k in range(5):
                layers += part(a if k == 0 else b, b, size) + ([nn.ReLU()] if k < 4 else [])
            self.blocks.append(nn.Sequential(*layers))
            self.skips.append(nn.Sequential(nn.Conv1d(a, b, 1, bias=False), nn.BatchNorm1d(b)))
        self.last = nn.Sequential(
            *part(512, 512, 87, dilation=2), nn.ReLU(), nn.Conv1d(512, 1024, 1), nn.ReLU(), nn.Conv1d(1024, 29, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block, skip in zip(self.blocks, self.skips, strict=True):
            x = F.relu(block(x) + skip(x))
        return self.last(x)


class Ecapa(nn.Module):
    """Speakers by ECAPA-TDNN (Desplanques et al., 2020): chains of convolutions of parts, attentive statistics."""

    def __init__(self, width: int = 512, scale: int = 8):
        super().__init__()
        self.scale, part = scale, width // scale
        self.first = nn.Sequential(nn.Conv1d(80, width, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(width))

        def dense() -> nn.Module:
            return nn.Sequential(nn.Conv1d(width, width, 1), nn.ReLU(), nn.BatchNorm1d(width))

        self.before, self.after = nn.ModuleList(dense() for _ in range(3)), nn.ModuleList(dense() for _ in range(3))
        self.chains = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Conv1d(part, part, 3, padding=d, dilation=d), nn.ReLU(), nn.BatchNorm1d(part))
                for _ in range(scale - 1)
            )
            for d in (2, 3, 4)
        )
        self.excite = nn.ModuleList(
            nn.Sequential(nn.Conv1d(width, 128, 1), nn.ReLU(), nn.Conv1d(128, width, 1), nn.Sigmoid()) for _ in range(3)
        )
        self.join = nn.Sequential(nn.Conv1d(3 * width, 1536, 1), nn.ReLU())
        self.attention = nn.Sequential(
            nn.Conv1d(3 * 1536, 128, 1), nn.ReLU(), nn.BatchNorm1d(128), nn.Tanh(), nn.Conv1d(128, 1536, 1)
        )
        self.norm, self.last = nn.BatchNorm1d(3072), nn.Linear(3072, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        found = []
        for before, chain, after, excite in zip(self.before, self.chains, self.after, self.excite, strict=True):
            parts = list(before(x).chunk(self.scale, 1))
            for k, layer in enumerate(chain):
                parts[k + 1] = layer(parts[k + 1] + parts[k] if k else parts[k + 1])
            y = after(torch.cat(parts, 1))
            x = x + y * excite(y.mean(2, keepdim=True))
            found.append(x)
        x = self.join(torch.cat(found, 1))
        mean = x.mean(2, keepdim=True)
        deviation = ((x - mean).pow(2).mean(2, keepdim=True) + 1e-5).sqrt()
        weights = self.attention(torch.cat([x, mean.expand_as(x), deviation.expand_as(x)], 1)).softmax(2)
        mean = (weights * x).sum(2)
        variance = (weights * x.pow(2)).sum(2) - mean.pow(2)
        return self.last(self.norm(torch.cat([mean, variance.clamp(min=1e-4).sqrt()], 1)))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "wavenet": (WaveNet, normal((256, 4000))),
    "conv_tasnet": (ConvTasNet, normal((1, 16000))),
    "hifi_gan": (HifiGan, normal((80, 100))),
    "crnn": (Crnn, normal((1, 400, 64))),
    "tcn": (Tcn, normal((32, 400))),
    "n_beats": (NBeats, normal((512,))),
    "d_linear": (DLinear, normal((336, 321))),
    "lstm_attention": (Forecaster, normal((96, 64))),
    "itransformer": (Inverted, normal((96, 321))),
    "deep_speech_3": (DeepSpeech, normal((1, 161, 200))),
    "quartznet_5": (QuartzNet, normal((64, 400))),
    "ecapa_tdnn": (Ecapa, normal((80, 300))),
}
