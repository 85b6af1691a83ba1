"""Speech and music, for the zoo: enhancement by sub-bands and deep filters, separation by bands, recognition by two branches,
synthesis by flow matching and by styles, speakers, activity and notes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


def waves(length: int, width: int) -> torch.Tensor:
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


class GatedUnit(nn.Module):
    """The convolutional spatial gating unit: one half, normalised and convolved along time, gates the other."""

    def __init__(self, c: int, taps: int = 31):
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(c // 2), nn.Conv1d(c // 2, c // 2, taps, padding=taps // 2, groups=c // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 2)
        return a * self.conv(self.norm(b).transpose(1, 2)).transpose(1, 2)


class BranchLayer(nn.Module):
    """Attention with relative positions beside a gated MLP, merged by a depthwise convolution, between two halves of an MLP."""

    def __init__(self, c: int, heads: int, hidden: int, taps: int = 31):
        super().__init__()
        self.heads = heads
        half = lambda: nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, c))
        self.before, self.after = half(), half()
        self.norm_a, self.norm_b, self.norm = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))
        self.places = nn.Linear(c, c, bias=False)
        self.bias_u, self.bias_v = (nn.Parameter(0.3 * torch.randn(heads, c // heads)) for _ in range(2))
        self.gated = nn.Sequential(nn.Linear(c, hidden), nn.GELU(), GatedUnit(hidden, taps), nn.Linear(hidden // 2, c))
        self.mix, self.merge = nn.Conv1d(2 * c, 2 * c, taps, padding=taps // 2, groups=2 * c), nn.Linear(2 * c, c)

    def attend(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        split = lambda t: t.unflatten(2, (self.heads, -1))
        q, k, v = split(self.q(x)), split(self.k(x)).transpose(1, 2), split(self.v(x)).transpose(1, 2)
        p = split(self.places(table)[None]).transpose(1, 2)
        content = (q + self.bias_u).transpose(1, 2) @ k.transpose(2, 3)
        place = (q + self.bias_v).transpose(1, 2) @ p.transpose(2, 3)
        # Row i of [n, 2n - 1] starts at distance n - 1 - i: a pad and two views move it there.
        b, h, n, m = place.shape
        place = F.pad(place, (1, 0)).view(b, h, m + 1, n)[:, :, 1:].reshape(b, h, n, m)[..., :n]
        weights = ((content + place) / k.shape[3] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.before(x)
        both = torch.cat([self.attend(self.norm_a(x), table), self.gated(self.norm_b(x))], 2)
        x = x + self.merge(both + self.mix(both.transpose(1, 2)).transpose(1, 2))
        return self.norm(x + 0.5 * self.after(x))


class Branchformer(nn.Module):
    """E-Branchformer (Kim et al., 2022), four of 12 layers: 80 mel bands of 10 s, subsampled by four."""

    def __init__(
        self, c: int = 256, layers: int = 4, heads: int = 4, hidden: int = 1024, frames: int = 1000, bands: int = 80
    ):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, c, 3, 2), nn.ReLU(), nn.Conv2d(c, c, 3, 2), nn.ReLU())
        size = lambda n: ((n - 1) // 2 - 1) // 2
        self.first = nn.Linear(c * size(bands), c)
        n = size(frames)
        table = waves(n, c)
        # Distances n - 1 ... -(n - 1).
        back = table * torch.tensor([-1.0, 1.0]).repeat(c // 2)
        self.register_buffer("table", torch.cat([table.flip(0), back[1:]]))
        self.layers = nn.ModuleList(BranchLayer(c, heads, hidden) for _ in range(layers))
        self.norm, self.last = nn.LayerNorm(c), nn.Linear(c, 5000)

    def forward(self, mel: torch.Tensor) -> torch.Tensor:
        x = self.conv(mel[:, None])
        x = self.first(x.transpose(1, 2).flatten(2))
        for layer in self.layers:
            x = layer(x, self.table)
        return self.last(self.norm(x)).log_softmax(-1)


class SubBands(nn.Module):
    """FullSubNet (Hao et al., 2021): an LSTM over all bands, then one over each of 257 bands with its 30 neighbours."""

    def __init__(self, bands: int = 257, near: int = 15, full: int = 512, sub: int = 384):
        super().__init__()
        self.near = near
        self.full, self.full_out = nn.LSTM(bands, full, 2, batch_first=True), nn.Linear(full, bands)
        self.sub, self.sub_out = nn.LSTM(2 * near + 2, sub, 2, batch_first=True), nn.Linear(sub, 2)

    def forward(self, magnitude: torch.Tensor) -> torch.Tensor:
        b, bands, frames = magnitude.shape
        level = lambda x: x / (x.mean((1, 2), keepdim=True) + 1e-5)
        x = level(magnitude)
        whole = F.relu(self.full_out(self.full(x.transpose(1, 2))[0])).transpose(1, 2)
        padded = F.pad(x[:, None], (0, 0, self.near, self.near), mode="reflect")
        parts = (
            F.unfold(padded, (2 * self.near + 1, frames)).view(b, 2 * self.near + 1, frames, bands).permute(0, 3, 1, 2)
        )
        both = torch.cat([level(parts.flatten(2)).unflatten(2, (2 * self.near + 1, frames)), whole[:, :, None]], 2)
        y = self.sub_out(self.sub(both.flatten(0, 1).transpose(1, 2))[0])
        return y.unflatten(0, (b, bands)).permute(0, 3, 1, 2)


class GroupedLinear(nn.Module):
    def __init__(self, a: int, b: int, groups: int = 8):
        super().__init__()
        self.groups, self.weight = (
            groups,
            nn.Parameter(torch.randn(groups, a // groups, b // groups) * (groups / a) ** 0.5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("btgi,gih->btgh", x.unflatten(2, (self.groups, -1)), self.weight).flatten(2)


class GroupedGru(nn.Module):
    """Grouped projections around a GRU, as DeepFilterNet squeezes its recurrent layers."""

    def __init__(self, a: int, hidden: int, b: int, layers: int = 1):
        super().__init__()
        self.first, self.gru = GroupedLinear(a, hidden), nn.GRU(hidden, hidden, layers, batch_first=True)
        self.last = GroupedLinear(hidden, b)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.last(self.gru(F.relu(self.first(x)))[0]))


def separable(a: int, b: int, taps: tuple[int, int], step: int = 1) -> nn.Sequential:
    """A causal convolution in time, in groups, and one of single pixels."""
    groups = math.gcd(a, b)
    t, f = taps
    layers = [nn.ZeroPad2d((f // 2, f // 2, t - 1, 0)), nn.Conv2d(a, b, taps, (1, step), groups=groups, bias=False)]
    return nn.Sequential(*layers, nn.Conv2d(b, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())


class DeepFilter(nn.Module):
    """DeepFilterNet 2 (Schröter et al., 2022): gains of 32 ERB bands, and complex filters of five frames for 96 low bins."""

    def __init__(self, c: int = 64, erb: int = 32, low: int = 96, bins: int = 481, order: int = 5, hidden: int = 256):
        super().__init__()
        self.low, self.order = low, order
        self.erb = nn.ModuleList((separable(1, c, (3, 3)), separable(c, c, (1, 3), 2), separable(c, c, (1, 3), 2), separable(c, c, (1, 3))))  # fmt: skip
        self.cplx = nn.ModuleList((separable(2, c, (3, 3)), separable(c, c, (1, 3), 2)))
        self.cplx_in = GroupedLinear(c * low // 2, c * erb // 4)
        self.middle = GroupedGru(c * erb // 4, hidden, c * erb // 4)
        self.gru_erb = GroupedGru(c * erb // 4, hidden, c * erb // 4, 2)
        self.skip = nn.ModuleList(separable(c, c, (1, 1)) for _ in range(4))
        up = lambda: nn.Sequential(nn.ConvTranspose2d(c, c, (1, 3), (1, 2), (0, 1), (0, 1), groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU())  # fmt: skip
        self.up = nn.ModuleList((separable(c, c, (1, 3)), up(), up()))
        self.gain = nn.Sequential(nn.Conv2d(c, 1, (1, 3), padding=(0, 1)), nn.Sigmoid())
        self.gru_low = GroupedGru(c * erb // 4, hidden, hidden, 3)
        self.taps, self.from_low = nn.Linear(hidden, low * 2 * order), nn.Sequential(nn.Conv2d(c, 2 * order, (5, 1), bias=False), nn.BatchNorm2d(2 * order))  # fmt: skip
        self.register_buffer("spread", torch.rand(erb, bins, generator=seeded()) ** 8)

    def forward(self, spectrum: torch.Tensor, erb: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Spectrum [batch, 2, frames, bins], features [batch, 1, frames, 32] and [batch, 2, frames, 96]."""
        kept = []
        for layer in self.erb:
            erb = layer(erb)
            kept.append(erb)
        first = self.cplx[0](features)
        rows = lambda x: x.permute(0, 2, 3, 1).flatten(2)
        whole = self.middle(rows(erb) + self.cplx_in(rows(self.cplx[1](first))))
        x = self.gru_erb(whole).unflatten(2, (8, -1)).permute(0, 3, 1, 2)
        for k, layer in enumerate(self.up):
            x = layer(x + self.skip[k](kept[3 - k]))
        gains = self.gain(x + self.skip[3](kept[0])) @ self.spread
        y = self.gru_low(whole)
        filters = torch.tanh(self.taps(y)).unflatten(2, (self.low, -1))
        filters = filters + self.from_low(F.pad(first, (0, 0, 4, 0))).permute(0, 2, 3, 1)
        filters = filters.unflatten(3, (self.order, 2))
        low = F.pad(spectrum[..., : self.low], (0, 0, self.order - 3, 2)).unfold(2, self.order, 1)
        re, im = low[:, 0], low[:, 1]
        a, b = filters[..., 0], filters[..., 1]
        filtered = torch.stack([(re * a - im * b).sum(-1), (re * b + im * a).sum(-1)], 1)
        return torch.cat([filtered, (spectrum * gains)[..., self.low :]], 3)


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions over the second last dim, on halves of each head."""
    n, size = x.shape[-2:]
    rates = 10000.0 ** (-torch.arange(0, size, 2, device=x.device) / size)
    angles = torch.arange(n, device=x.device)[:, None] * rates
    cos, sin = torch.cat([angles.cos()] * 2, 1).to(x.dtype), torch.cat([angles.sin()] * 2, 1).to(x.dtype)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class RmsNorm(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=-1) * x.shape[-1] ** 0.5 * self.scale


class RotaryLayer(nn.Module):
    """Attention whose heads are gated, and an MLP."""

    def __init__(self, c: int, heads: int, size: int = 64):
        super().__init__()
        self.heads, self.norm = heads, RmsNorm(c)
        self.qkv, self.gates = nn.Linear(c, 3 * heads * size, bias=False), nn.Linear(c, heads)
        self.out = nn.Linear(heads * size, c, bias=False)
        self.mlp = nn.Sequential(RmsNorm(c), nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = self.qkv(y).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        z = F.scaled_dot_product_attention(turned(q), turned(k), v)
        z = z * self.gates(y).transpose(1, 2)[..., None].sigmoid()
        x = x + self.out(z.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class BandSplit(nn.Module):
    """BS-RoFormer (Lu et al., 2023), two of 12 layers at a width of 256: 62 bands of a stereo spectrum are split, attended
    along time and along bands, and each gets a mask of its own MLP."""

    def __init__(self, c: int = 256, layers: int = 2, heads: int = 8):
        super().__init__()
        self.bands = (2,) * 24 + (4,) * 12 + (12,) * 8 + (24,) * 8 + (48,) * 8 + (128, 129)
        sizes = [4 * n for n in self.bands]
        self.sizes = sizes
        self.split = nn.ModuleList(nn.Sequential(RmsNorm(n), nn.Linear(n, c)) for n in sizes)
        self.time = nn.ModuleList(RotaryLayer(c, heads) for _ in range(layers))
        self.band = nn.ModuleList(RotaryLayer(c, heads) for _ in range(layers))
        self.norm = RmsNorm(c)
        mask = lambda n: nn.Sequential(nn.Linear(c, 2 * c), nn.Tanh(), nn.Linear(2 * c, 2 * n), nn.GLU())
        self.masks = nn.ModuleList(mask(n) for n in sizes)

    def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
        """[batch, frames, bins x 2 channels x 2 parts]."""
        parts = spectrum.split(self.sizes, 2)
        x = torch.stack([f(p) for f, p in zip(self.split, parts, strict=True)], 2)
        b, t, n, c = x.shape
        for time, band in zip(self.time, self.band, strict=True):
            x = time(x.transpose(1, 2).reshape(b * n, t, c)).reshape(b, n, t, c).transpose(1, 2)
            x = band(x.reshape(b * t, n, c)).reshape(b, t, n, c)
        x = self.norm(x)
        masks = torch.cat([f(y) for f, y in zip(self.masks, x.unbind(2), strict=True)], 2)
        (re, im), (a, b) = (z.unflatten(2, (-1, 2)).unbind(3) for z in (spectrum, masks))
        return torch.stack([re * a - im * b, re * b + im * a], 3).flatten(2)


class ResponseNorm(nn.Module):
    """ConvNeXt V2's global response normalisation, over time."""

    def __init__(self, c: int):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.zeros(1, 1, c)), nn.Parameter(torch.zeros(1, 1, c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.norm(dim=1, keepdim=True)
        return self.scale * (x * (size / (size.mean(-1, keepdim=True) + 1e-6))) + self.shift + x


class FlowSpeech(nn.Module):
    """F5-TTS (Chen et al., 2024), four of 22 layers: noisy and given mel frames beside refined letters, a convolutional
    place embedding of 16 groups, adaptive norms."""

    def __init__(self, c: int = 1024, text: int = 512, layers: int = 4, heads: int = 16, mel: int = 100):
        super().__init__()
        self.heads, self.letters = heads, nn.Embedding(2546, text)
        self.near = nn.ModuleList(nn.Conv1d(text, text, 7, padding=3, groups=text) for _ in range(4))
        mlp = lambda: nn.Sequential(nn.LayerNorm(text), nn.Linear(text, 2 * text), nn.GELU(), ResponseNorm(2 * text), nn.Linear(2 * text, text))  # fmt: skip
        self.mlps_text = nn.ModuleList(mlp() for _ in range(4))
        self.first = nn.Linear(2 * mel + text, c)
        conv = lambda: nn.Sequential(nn.Conv1d(c, c, 31, padding=15, groups=16), nn.Mish())
        self.places = nn.Sequential(conv(), conv())
        self.time = nn.Sequential(nn.Linear(256, c), nn.SiLU(), nn.Linear(c, c))
        self.mods = nn.ModuleList(nn.Linear(c, 6 * c) for _ in range(layers))
        self.q, self.k, self.v, self.out = (nn.ModuleList(nn.Linear(c, c) for _ in range(layers)) for _ in range(4))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 2 * c), nn.GELU("tanh"), nn.Linear(2 * c, c)) for _ in range(layers)
        )
        self.norm, self.mod, self.last = nn.LayerNorm(c, elementwise_affine=False, eps=1e-6), nn.Linear(c, 2 * c), nn.Linear(c, mel)  # fmt: skip
        self.register_buffer("waves", waves(4096, text))

    def forward(self, noisy: torch.Tensor, given: torch.Tensor, t: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        n = noisy.shape[1]
        y = self.letters(F.pad(text + 1, (0, n - text.shape[1]))) + self.waves[:n]
        for near, mlp in zip(self.near, self.mlps_text, strict=True):
            y = y + mlp(near(y.transpose(1, 2)).transpose(1, 2))
        x = self.first(torch.cat([noisy, given, y], 2))
        x = x + self.places(x.transpose(1, 2)).transpose(1, 2)
        rates = torch.exp(torch.arange(128, device=t.device) * (-math.log(10000.0) / 127))
        angles = 1000 * t[:, None].float() * rates
        time = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1).to(x.dtype)))
        for k, mlp in enumerate(self.mlps):
            shift1, scale1, gate1, shift2, scale2, gate2 = self.mods[k](time)[:, None].chunk(6, 2)
            z = self.norm(x) * (1 + scale1) + shift1
            q, key, v = (f[k](z).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
            z = F.scaled_dot_product_attention(turned(q), turned(key), v).transpose(1, 2).flatten(2)
            x = x + gate1 * self.out[k](z)
            x = x + gate2 * mlp(self.norm(x) * (1 + scale2) + shift2)
        scale, shift = self.mod(time)[:, None].chunk(2, 2)
        return self.last(self.norm(x) * (1 + scale) + shift)


def phrases(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    noisy, given = torch.randn(batch, 700, 100, generator=r), torch.randn(batch, 700, 100, generator=r)
    return noisy, given, torch.rand(batch, generator=r), torch.randint(0, 2545, (batch, 130), generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "e_branchformer_4": (Branchformer, normal((1000, 80))),
    "full_sub_net": (SubBands, lambda batch: (normal((257, 100))(batch)[0].abs(),)),
    "deep_filter_net": (DeepFilter, normal((2, 100, 481), (1, 100, 32), (2, 100, 96))),
    "bs_roformer_2": (BandSplit, normal((128, 4100))),
    "f5_tts_4": (FlowSpeech, phrases),
}
