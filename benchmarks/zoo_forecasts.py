"""Forecasts of series, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class Trend(nn.Module):
    """A moving mean whose ends repeat the first and the last value; what is left is the season."""

    def __init__(self, window: int):
        super().__init__()
        self.window, self.mean = window, nn.AvgPool1d(window, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        front, back = x[:, :1].repeat(1, (self.window - 1) // 2, 1), x[:, -1:].repeat(1, self.window // 2, 1)
        trend = self.mean(torch.cat([front, x, back], 1).permute(0, 2, 1)).permute(0, 2, 1)
        return x - trend, trend


def complex_product(formula: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The last dimension holds real and imaginary parts."""
    a, b = x.unbind(-1)
    c, d = y.unbind(-1)
    re = torch.einsum(formula, a, c) - torch.einsum(formula, b, d)
    return torch.stack([re, torch.einsum(formula, a, d) + torch.einsum(formula, b, c)], -1)


class Frequencies(nn.Module):
    """FEDformer's layer: products of chosen waves with matrices, or attention between the waves of two sequences."""

    def __init__(self, c: int, heads: int, length: int, other: int | None = None, waves: int = 64):
        super().__init__()
        self.heads, self.length = heads, length
        self.q, self.out = nn.Linear(c, c), nn.Linear(c, c)
        r = torch.Generator().manual_seed(length)

        def chosen(n: int) -> torch.Tensor:
            return torch.randperm(n // 2, generator=r)[:waves].sort()[0]

        self.register_buffer("index", chosen(length))
        self.other = other
        if other:
            self.k = nn.Linear(c, c)
            self.register_buffer("other_index", chosen(other))
        size = c // heads
        self.weight = nn.Parameter(torch.randn(heads, size, size, len(self.index), 2) / math.sqrt(size))

    def waves(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x = x.unflatten(2, (self.heads, -1)).permute(0, 2, 3, 1)
        f = torch.view_as_real(torch.fft.rfft(x.float(), norm="ortho"))
        return f.index_select(3, index)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        f = self.waves(self.q(x), self.index)
        if other is not None:
            g = self.waves(self.k(other), self.other_index)
            scores = torch.tanh(complex_product("bhex,bhey->bhxy", f, g) / f.shape[2] ** 0.5)
            f = complex_product("bhxy,bhey->bhex", scores, g) / g.shape[3] ** 0.5
        f = complex_product("bhex,heox->bhox", f, self.weight.float())
        whole = torch.zeros(*f.shape[:3], self.length // 2 + 1, 2, device=f.device, dtype=f.dtype)
        whole = whole.index_copy(3, self.index, f)
        y = torch.fft.irfft(torch.view_as_complex(whole), n=self.length, norm="ortho").to(x.dtype)
        return self.out(y.permute(0, 3, 1, 2).flatten(2))


class SeasonBlock(nn.Module):
    """A layer of the encoder, or of the decoder, which sums what its moving means took away."""

    def __init__(self, c: int, heads: int, length: int, other: int | None = None):
        super().__init__()
        self.own = Frequencies(c, heads, length)
        self.cross = Frequencies(c, heads, length, other) if other else None
        self.trends = nn.ModuleList(Trend(25) for _ in range(3 if other else 2))
        self.one, self.two = nn.Conv1d(c, 2048, 1, bias=False), nn.Conv1d(2048, c, 1, bias=False)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x, total = self.trends[0](x + self.own(x))
        if self.cross is not None:
            x, trend = self.trends[1](x + self.cross(x, other))
            total = total + trend
        y = self.two(F.gelu(self.one(x.transpose(1, 2)))).transpose(1, 2)
        x, trend = self.trends[-1](x + y)
        return x, total + trend


class FedFormer(nn.Module):
    """FEDformer (Zhou et al., 2022): two encoder layers and one decoder layer that work on waves; 96 steps to 96 steps."""

    def __init__(self, series: int = 7, c: int = 512, heads: int = 8, length: int = 96, ahead: int = 96):
        super().__init__()
        self.ahead, self.split = ahead, Trend(25)
        known = length // 2 + ahead

        def embed() -> nn.Module:
            return nn.Conv1d(series, c, 3, padding=1, padding_mode="circular", bias=False)

        self.into, self.back_into = embed(), embed()
        self.marks, self.back_marks = nn.Linear(4, c, bias=False), nn.Linear(4, c, bias=False)
        self.encoder = nn.ModuleList(SeasonBlock(c, heads, length) for _ in range(2))
        self.decoder = SeasonBlock(c, heads, known, length)
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2))
        self.trend, self.last = nn.Conv1d(c, series, 3, padding=1, padding_mode="circular"), nn.Linear(c, series)

    def centred(self, norm: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = norm(x)
        return y - y.mean(1, keepdim=True)

    def forward(self, x: torch.Tensor, marks: torch.Tensor, ahead_marks: torch.Tensor) -> torch.Tensor:
        season, trend = self.split(x)
        half = x.shape[1] // 2
        mean = x.mean(1, keepdim=True).repeat(1, self.ahead, 1)
        trend = torch.cat([trend[:, -half:], mean], 1)
        season = F.pad(season[:, -half:], (0, 0, 0, self.ahead))
        y = self.into(x.permute(0, 2, 1)).transpose(1, 2) + self.marks(marks)
        for layer in self.encoder:
            y, _ = layer(y)
        y = self.centred(self.norms[0], y)
        z = self.back_into(season.permute(0, 2, 1)).transpose(1, 2) + self.back_marks(ahead_marks)
        z, more = self.decoder(z, y)
        z = self.last(self.centred(self.norms[1], z))
        trend = trend + self.trend(more.permute(0, 2, 1)).transpose(1, 2)
        return (z + trend)[:, -self.ahead :]


class NHits(nn.Module):
    """N-HiTS (Challu et al., 2023): blocks see the past pooled by 16, 8 and 1, and give knots that are interpolated."""

    def __init__(self, length: int = 480, ahead: int = 96, width: int = 512):
        super().__init__()
        self.length, self.ahead, self.pools = length, ahead, (16, 8, 1)
        self.knots = (168, 24, 1)
        self.blocks, self.backs, self.fores = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for pool, knots in zip(self.pools, self.knots, strict=True):
            layers: list[nn.Module] = [nn.Linear(-(-length // pool), width), nn.ReLU()]
            for _ in range(2):
                layers += [nn.Linear(width, width), nn.ReLU()]
            self.blocks.append(nn.Sequential(*layers))
            self.backs.append(nn.Linear(width, length))
            self.fores.append(nn.Linear(width, max(ahead // knots, 1)))
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, 1.2)  # forecasts that differ

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        total = x[:, -1:]
        x = x.flip(1)
        for pool, block, back, fore in zip(self.pools, self.blocks, self.backs, self.fores, strict=True):
            h = F.max_pool1d(x[:, None], pool, pool, ceil_mode=True).squeeze(1)
            h = block(h)
            x = x - back(h)
            y = F.interpolate(fore(h)[:, None], size=self.ahead, mode="linear", align_corners=False)
            total = total + y.squeeze(1)
        return total


class DenseBlock(nn.Module):
    """Two layers beside one, normalised."""

    def __init__(self, a: int, hidden: int, b: int):
        super().__init__()
        self.one, self.two, self.short, self.norm = (
            nn.Linear(a, hidden),
            nn.Linear(hidden, b),
            nn.Linear(a, b),
            nn.LayerNorm(b) if b > 1 else nn.Identity(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.two(F.relu(self.one(x))) + self.short(x))


class Tide(nn.Module):
    """TiDE (Das et al., 2023): dense encoder and decoder of a series with its covariates, a decoder of each step."""

    def __init__(self, length: int = 720, ahead: int = 336, covariates: int = 9, width: int = 256, step: int = 8):
        super().__init__()
        self.ahead, self.step = ahead, step
        self.features = DenseBlock(covariates, 64, 4)
        self.encoder = nn.Sequential(
            DenseBlock(length + 4 * (length + ahead) + 6, width, width), DenseBlock(width, width, width)
        )
        self.decoder = nn.Sequential(DenseBlock(width, width, width), DenseBlock(width, width, step * ahead))
        self.temporal, self.short = DenseBlock(step + 4, 128, 1), nn.Linear(length, ahead)

    def forward(self, past: torch.Tensor, covariates: torch.Tensor, traits: torch.Tensor) -> torch.Tensor:
        scale = past.abs().mean(2, keepdim=True) + 1e-3
        past = past / scale
        f = self.features(covariates)
        every = f.flatten(1)[:, None].expand(-1, past.shape[1], -1)
        g = self.decoder(self.encoder(torch.cat([past, every, traits], 2)))
        g = g.unflatten(2, (self.ahead, self.step))
        own = f[:, None, -self.ahead :].expand(-1, past.shape[1], -1, -1)
        y = self.temporal(torch.cat([g, own], 3)).squeeze(3)
        return (y + self.short(past)) * scale


def covariates(batch: int, series: int = 64) -> tuple[torch.Tensor, ...]:
    r = seeded()
    past = torch.randn(batch, series, 720, generator=r)
    return past, torch.randn(batch, 1056, 9, generator=r), torch.randn(batch, series, 6, generator=r)


class LstNet(nn.Module):
    """LSTNet (Lai et al., 2018): a convolution, GRUs over steps and over every 24th step, beside a linear part."""

    def __init__(self, series: int = 321, window: int = 168, c: int = 100, skip: int = 24, skipped: int = 5):
        super().__init__()
        self.c, self.skip, self.skipped = c, skip, skipped
        self.conv, self.gru = nn.Conv2d(1, c, (6, series)), nn.GRU(c, c)
        self.rounds = (window - 6 + 1) // skip
        self.skip_gru, self.last = nn.GRU(c, skipped), nn.Linear(c + skip * skipped, series)
        self.linear = nn.Linear(24, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, series = x.shape
        c = F.relu(self.conv(x[:, None])).squeeze(3)
        h = self.gru(c.permute(2, 0, 1))[1].squeeze(0)
        s = c[:, :, -self.rounds * self.skip :].reshape(batch, self.c, self.rounds, self.skip)
        s = s.permute(2, 0, 3, 1).reshape(self.rounds, batch * self.skip, self.c)
        s = self.skip_gru(s)[1].reshape(batch, self.skip * self.skipped)
        y = self.last(torch.cat([h, s], 1))
        z = self.linear(x[:, -24:].permute(0, 2, 1).reshape(-1, 24)).view(-1, series)
        return y + z


class GatedResidual(nn.Module):
    """GRN of the temporal fusion transformer."""

    def __init__(self, a: int, b: int, hidden: int, context: int = 0):
        super().__init__()
        self.one, self.two, self.gate = nn.Linear(a, hidden), nn.Linear(hidden, b), nn.Linear(b, 2 * b)
        self.context = nn.Linear(context, hidden, bias=False) if context else None
        self.short = nn.Linear(a, b) if a != b else nn.Identity()
        self.norm = nn.LayerNorm(b)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        h = self.one(x)
        if self.context is not None:
            h = h + self.context(context)
        return self.norm(self.short(x) + F.glu(self.gate(self.two(F.elu(h))), -1))


class Choice(nn.Module):
    """A softmax over variables chooses among their embeddings."""

    def __init__(self, variables: int, c: int, context: bool):
        super().__init__()
        self.weigh = GatedResidual(variables * c, variables, c, c if context else 0)
        self.each = nn.ModuleList(GatedResidual(c, c, c) for _ in range(variables))

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        weights = self.weigh(x.flatten(-2), context).softmax(-1)
        parts = torch.stack([layer(x[..., k, :]) for k, layer in enumerate(self.each)], -2)
        return (parts * weights[..., None]).sum(-2)


def states(found: tuple[torch.Tensor, torch.Tensor], layers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of an LSTM. torch.export takes them for tensors of rank four, which no LSTM accepts."""
    h, c = found
    return h.reshape(layers, -1, h.shape[-1]), c.reshape(layers, -1, c.shape[-1])


class FusionTransformer(nn.Module):
    """Temporal fusion transformer (Lim et al., 2021): chosen variables, an LSTM and attention whose heads share values."""

    def __init__(self, c: int = 160, heads: int = 4, past: int = 168, ahead: int = 24, known: int = 4, seen: int = 5):
        super().__init__()
        self.past, self.heads, self.known, self.size = past, heads, known, c // heads
        self.embed, self.kinds = nn.ModuleList(nn.Linear(1, c) for _ in range(known + seen)), nn.Embedding(370, c)
        self.contexts = nn.ModuleList(GatedResidual(c, c, c) for _ in range(4))
        self.choose, self.choose_ahead = Choice(known + seen, c, True), Choice(known, c, True)
        self.encoder, self.decoder = nn.LSTM(c, c, batch_first=True), nn.LSTM(c, c, batch_first=True)
        self.gates = nn.ModuleList(nn.Linear(c, 2 * c) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3))
        self.enrich, self.after = GatedResidual(c, c, c, c), GatedResidual(c, c, c)
        self.q, self.k, self.v = nn.Linear(c, c), nn.Linear(c, c), nn.Linear(c, c // heads)
        self.out, self.last = nn.Linear(c // heads, c, bias=False), nn.Linear(c, 3)
        later = torch.arange(past + ahead) > torch.arange(past, past + ahead)[:, None]
        self.register_buffer("later", later)

    def add(self, k: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.norms[k](x + F.glu(self.gates[k](y), -1))

    def forward(self, kind: torch.Tensor, known: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        e = self.kinds(kind)
        choice, cell, hidden, rich = (layer(e) for layer in self.contexts)
        parts = [layer(known[..., k : k + 1]) for k, layer in enumerate(self.embed[: self.known])]
        both = torch.stack(parts, 2)
        more = [layer(seen[..., k : k + 1]) for k, layer in enumerate(self.embed[self.known :])]
        history = torch.cat([both[:, : self.past], torch.stack(more, 2)], 2)
        before = self.choose(history, choice[:, None])
        after = self.choose_ahead(both[:, self.past :], choice[:, None])
        y, state = self.encoder(before, (hidden[None], cell[None]))
        z, _ = self.decoder(after, states(state, 1))
        x = self.add(0, torch.cat([before, after], 1), torch.cat([y, z], 1))
        x = self.enrich(x, rich[:, None])
        q = self.q(x[:, self.past :]).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k = self.k(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        scores = (q @ k.transpose(2, 3) / self.size**0.5).masked_fill(self.later, float("-inf"))
        y = (scores.softmax(-1) @ self.v(x)[:, None]).mean(1)
        tail = x[:, self.past :]
        y = self.after(self.add(1, tail, self.out(y)))
        return self.last(self.add(2, tail, y))


def loads(batch: int, past: int = 168, ahead: int = 24) -> tuple[torch.Tensor, ...]:
    r = seeded()
    kind = torch.randint(0, 370, (batch,), generator=r)
    return kind, torch.randn(batch, past + ahead, 4, generator=r), torch.randn(batch, past, 5, generator=r)


class Interaction(nn.Module):
    """Even and odd steps scale and shift each other; the halves are treated alike, down to a depth."""

    def __init__(self, c: int, depth: int, hidden: int = 4):
        super().__init__()

        def network() -> nn.Module:
            layers = [nn.ReplicationPad1d((3, 3)), nn.Conv1d(c, hidden * c, 5), nn.LeakyReLU(0.01)]
            return nn.Sequential(*layers, nn.Conv1d(hidden * c, c, 3), nn.Tanh())

        self.phi, self.psi, self.rho, self.eta = (network() for _ in range(4))
        self.halves = nn.ModuleList(Interaction(c, depth - 1, hidden) for _ in range(2)) if depth > 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        even, odd = x[:, :, ::2], x[:, :, 1::2]
        d, c = odd * torch.exp(self.phi(even)), even * torch.exp(self.psi(odd))
        even, odd = c + self.eta(d), d - self.rho(c)
        if self.halves is not None:
            even, odd = self.halves[0](even), self.halves[1](odd)
        return torch.stack([even, odd], 3).flatten(2)


class SciNet(nn.Module):
    """SCINet (Liu et al., 2022): a tree of three levels over 96 steps."""

    def __init__(self, series: int = 7, length: int = 96, ahead: int = 24):
        super().__init__()
        self.tree, self.last = Interaction(series, 3), nn.Conv1d(length, ahead, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        scale = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        y = (x - mean) / scale
        y = y + self.tree(y.permute(0, 2, 1)).permute(0, 2, 1)
        return self.last(y) * scale + mean


class DeepAr(nn.Module):
    """DeepAR (Salinas et al., 2020) that feeds its means back: three LSTM cells along 168 known and 24 predicted steps."""

    def __init__(self, width: int = 40, layers: int = 3, ahead: int = 24, covariates: int = 4):
        super().__init__()
        self.ahead, self.embed = ahead, nn.Embedding(370, 20)
        self.lstm = nn.LSTM(1 + covariates + 20, width, layers, batch_first=True)
        self.mean, self.deviation = nn.Linear(layers * width, 1), nn.Linear(layers * width, 1)

    def forward(self, past: torch.Tensor, marks: torch.Tensor, kind: torch.Tensor) -> tuple[torch.Tensor, ...]:
        past, marks, kind = past.flatten(0, 1), marks.flatten(0, 1), kind.flatten(0, 1)
        scale = 1 + past.abs().mean(1, keepdim=True)
        known = past.shape[1]
        e = self.embed(kind)[:, None]
        x = torch.cat([(past / scale)[..., None], marks[:, :known], e.expand(-1, known, -1)], 2)
        state = states(self.lstm(x)[1], self.lstm.num_layers)
        means, deviations = [], []
        for step in range(self.ahead):
            h = state[0].permute(1, 2, 0).flatten(1)
            mean, deviation = self.mean(F.relu(h)), F.softplus(self.deviation(F.relu(h)))
            means.append(mean)
            deviations.append(deviation)
            mark = marks[:, known + step : known + step + 1]
            state = states(self.lstm(torch.cat([mean[:, None], mark, e], 2), state)[1], self.lstm.num_layers)
        return torch.cat(means, 1) * scale, torch.cat(deviations, 1) * scale


def sales(batch: int, each: int = 64, known: int = 168) -> tuple[torch.Tensor, ...]:
    r = seeded()
    past, marks = torch.randn(batch, each, known, generator=r), torch.randn(batch, each, known + 24, 4, generator=r)
    return past, marks, torch.randint(0, 370, (batch, each), generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "fedformer": (FedFormer, normal((96, 7), (96, 4), (144, 4))),
    "n_hits": (NHits, normal((32, 480))),
    "tide": (Tide, covariates),
    "lstnet": (LstNet, normal((168, 321))),
    "temporal_fusion": (FusionTransformer, loads),
    "scinet": (SciNet, normal((96, 7))),
    "deep_ar": (DeepAr, sales),
}
