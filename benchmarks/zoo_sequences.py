"""Texts, series and sequences, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded, tokens


class Periods(nn.Module):
    """A layer of TimesNet: the series is folded by each of its periods, images of it go through kernels of five sizes."""

    def __init__(self, c: int, hidden: int, periods: tuple[int, ...], kernels: int = 5):
        super().__init__()
        self.periods = periods
        self.one, self.two = (
            nn.ModuleList(nn.Conv2d(a, b, 2 * k + 1, padding=k) for k in range(kernels))
            for a, b in ((c, hidden), (hidden, c))
        )
        self.weigh, self.norm = nn.Linear(c, len(periods)), nn.LayerNorm(c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, c = x.shape
        found = []
        for period in self.periods:
            rows = -(-length // period)
            y = F.pad(x, (0, 0, 0, rows * period - length))
            y = y.reshape(batch, rows, period, c).permute(0, 3, 1, 2).contiguous()
            y = F.gelu(torch.stack([layer(y) for layer in self.one], -1).mean(-1))
            y = torch.stack([layer(y) for layer in self.two], -1).mean(-1)
            found.append(y.permute(0, 2, 3, 1).reshape(batch, -1, c)[:, :length])
        weights = self.weigh(x.mean(1)).softmax(1)
        return self.norm(x + (torch.stack(found, -1) * weights[:, None, None]).sum(-1))


class TimesNet(nn.Module):
    """TimesNet (Wu et al., 2023) for forecasting, with fixed periods."""

    def __init__(self, series: int = 21, c: int = 64, length: int = 96, ahead: int = 237):
        super().__init__()
        self.value, self.along = (
            nn.Conv1d(series, c, 3, padding=1, padding_mode="circular", bias=False),
            nn.Linear(length, length + ahead),
        )
        self.positions = nn.Parameter(0.1 * torch.randn(1, length, c))
        self.layers = nn.ModuleList(Periods(c, 64, (333, 48, 24, 7, 12)) for _ in range(2))
        self.last, self.ahead = nn.Linear(c, series), ahead

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        deviation = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        y = self.value(((x - mean) / deviation).permute(0, 2, 1)).transpose(1, 2) + self.positions
        y = self.along(y.permute(0, 2, 1)).permute(0, 2, 1)
        for layer in self.layers:
            y = layer(y)
        return (self.last(y) * deviation + mean)[:, -self.ahead :]


class StateSpace(nn.Module):
    """S4D (Gu et al., 2022): kernels as long as the sequence from diagonal state matrices, applied by Fourier transforms."""

    def __init__(self, into: int = 80, c: int = 256, layers: int = 4, states: int = 32, classes: int = 35):
        super().__init__()
        self.first, self.last = nn.Linear(into, c), nn.Linear(c, classes)
        self.steps = nn.ParameterList(nn.Parameter(torch.rand(c) * 4.6 - 6.9) for _ in range(layers))
        self.decay = nn.ParameterList(
            nn.Parameter(torch.log(0.5 * torch.ones(c, states)) + 0.05 * torch.randn(c, states)) for _ in range(layers)
        )
        self.rate = nn.ParameterList(
            nn.Parameter(math.pi * torch.arange(states).repeat(c, 1) + 0.05 * torch.randn(c, states))
            for _ in range(layers)
        )
        self.c = nn.ParameterList(nn.Parameter(torch.randn(2, c, states)) for _ in range(layers))
        self.d = nn.ParameterList(nn.Parameter(torch.randn(c)) for _ in range(layers))
        self.mixes = nn.ModuleList(nn.Conv1d(c, 2 * c, 1) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(layers))

    def kernel(self, k: int, length: int) -> torch.Tensor:
        step = self.steps[k].float().exp()[:, None]
        low, turn = -self.decay[k].float().exp() * step, self.rate[k].float() * step
        places = torch.arange(length, device=step.device, dtype=torch.float32)
        size, angle = torch.exp(low[..., None] * places), turn[..., None] * places
        real, imaginary = self.c[k].float()
        waves = real[..., None] * torch.cos(angle) - imaginary[..., None] * torch.sin(angle)
        return 2 * step * (waves * size).sum(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).transpose(1, 2)
        length = x.shape[2]
        for k, (mix, norm) in enumerate(zip(self.mixes, self.norms, strict=True)):
            u = norm(x.transpose(1, 2)).transpose(1, 2)
            f = torch.fft.rfft(u.float(), n=2 * length) * torch.fft.rfft(self.kernel(k, length), n=2 * length)
            y = torch.fft.irfft(f, n=2 * length)[..., :length].to(x.dtype)
            x = x + F.glu(mix(F.gelu(y + u * self.d[k][:, None])), 1)
        return self.last(x.mean(2))


class MatrixLstm(nn.Module):
    """A block of xLSTM: a matrix as memory in its parallel form, with decays from sums of log gates."""

    def __init__(self, c: int, heads: int):
        super().__init__()
        self.heads, wide = heads, 2 * c
        self.norm, self.into, self.out = (
            nn.LayerNorm(c),
            nn.Linear(c, 2 * wide, bias=False),
            nn.Linear(wide, c, bias=False),
        )
        self.local = nn.Conv1d(wide, wide, 4, padding=3, groups=wide)
        self.q, self.k, self.v = nn.ParameterList(nn.Parameter(torch.randn(wide // 4, 4, 4) / 2) for _ in range(3))
        self.gates, self.skip = nn.Linear(3 * wide, 2 * heads), nn.Parameter(torch.ones(wide))
        self.head_norm = nn.GroupNorm(heads, wide)

    def project(self, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("btgi,goi->btgo", x.unflatten(-1, (-1, 4)), weight).flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        y, gate = self.into(self.norm(x)).chunk(2, -1)
        local = F.silu(self.local(y.transpose(1, 2))[..., :length].transpose(1, 2))
        q, k, v = self.project(self.q, local), self.project(self.k, local), self.project(self.v, y)
        gates = self.gates(torch.cat([q, k, v], -1)).transpose(1, 2)
        enter, keep = gates.chunk(2, 1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        total = F.logsigmoid(keep + 3).float().cumsum(-1)
        decay = total[..., :, None] - total[..., None, :] + enter.float()[..., None, :]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        decay = decay.masked_fill(later, float("-inf"))
        most = decay.amax(-1, keepdim=True)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 * torch.exp(decay - most).to(x.dtype)
        scale = torch.maximum(scores.sum(-1, keepdim=True).abs(), torch.exp(-most).to(x.dtype))
        h = (scores / (scale + 1e-6)) @ v
        h = self.head_norm(h.transpose(1, 2).reshape(batch * length, -1)).view(batch, length, -1)
        return x + self.out((h + self.skip * local) * F.silu(gate))


class XLstm(nn.Module):
    """xLSTM (Beck et al., 2024), six blocks of the kind with matrices; heads of 192 elements."""

    def __init__(self, c: int = 384, heads: int = 4, layers: int = 6, words: int = 10000):
        super().__init__()
        self.embed, self.layers = nn.Embedding(words, c), nn.Sequential(*(MatrixLstm(c, heads) for _ in range(layers)))
        self.norm, self.last = nn.LayerNorm(c), nn.Linear(c, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.layers(self.embed(ids))))


class Elmo(nn.Module):
    """ELMo (Peters et al., 2018): words from convolutions over their letters, highways, two bidirectional LSTM layers."""

    def __init__(self, hidden: int = 512) -> None:
        super().__init__()
        filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
        self.letters = nn.Embedding(262, 16)
        self.convs = nn.ModuleList(nn.Conv1d(16, n, k) for k, n in filters)
        self.highways, self.into = nn.ModuleList(nn.Linear(2048, 4096) for _ in range(2)), nn.Linear(2048, hidden)
        self.forwards, self.backwards = (
            nn.ModuleList(nn.LSTM(hidden, hidden, batch_first=True) for _ in range(2)) for _ in range(2)
        )
        self.mix = nn.Parameter(torch.randn(3))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        batch, length, size = letters.shape
        x = self.letters(letters.view(-1, size)).transpose(1, 2)
        x = torch.cat([torch.relu(conv(x).max(-1)[0]) for conv in self.convs], 1)
        for highway in self.highways:
            new, gate = highway(x).chunk(2, -1)
            gate = torch.sigmoid(gate)
            x = gate * x + (1 - gate) * F.relu(new)
        x = self.into(x).view(batch, length, -1)
        found, a, b = [torch.cat([x, x], -1)], x, torch.flip(x, [1])
        for one, two in zip(self.forwards, self.backwards, strict=True):
            y, z = one(a)[0], two(b)[0]
            a, b = (y, z) if len(found) == 1 else (a + y, b + z)
            found.append(torch.cat([a, torch.flip(b, [1])], -1))
        weights = self.mix.softmax(0)
        return sum(w * y for w, y in zip(weights.unbind(0), found, strict=True))


class Translator(nn.Module):
    """A GRU decoder with attention over a bidirectional GRU (Bahdanau et al., 2015): 24 steps, written out."""

    def __init__(self, words: int = 12000, width: int = 500, steps: int = 24):
        super().__init__()
        self.steps, self.source, self.target = steps, nn.Embedding(words, 300), nn.Embedding(words, 300)
        self.encoder = nn.GRU(300, width, batch_first=True, bidirectional=True)
        self.start, self.keys = nn.Linear(width, width), nn.Linear(2 * width, width, bias=False)
        self.query, self.score = nn.Linear(width, width), nn.Linear(width, 1, bias=False)
        self.into, self.hidden = nn.Linear(300 + 2 * width, 3 * width), nn.Linear(width, 3 * width)
        self.out, self.last = nn.Linear(3 * width + 300, width), nn.Linear(width // 2, words)

    def forward(self, ids: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        states, last = self.encoder(self.source(ids))
        h, keys, words = torch.tanh(self.start(last[1])), self.keys(states), self.target(given)
        found = []
        for t in range(self.steps):
            scores = self.score(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(2)
            scores = scores.masked_fill(ids == 0, -1e4)
            context = torch.bmm(scores.softmax(1).unsqueeze(1), states).squeeze(1)
            r_in, z_in, n_in = self.into(torch.cat([words[:, t], context], 1)).chunk(3, 1)
            r_h, z_h, n_h = self.hidden(h).chunk(3, 1)
            z = torch.sigmoid(z_in + z_h)
            h = z * h + (1 - z) * torch.tanh(n_in + torch.sigmoid(r_in + r_h) * n_h)
            y = self.out(torch.cat([h, context, words[:, t]], 1))
            found.append(y.view(y.shape[0], -1, 2).max(-1)[0])
        return self.last(torch.stack(found, 1))


class WorldModel(nn.Module):
    """DreamerV3's world model (Hafner et al., 2023), small: 16 steps of a GRU with a norm and 32 x 32 categories, images back."""

    def __init__(self, width: int = 32, state: int = 512, groups: int = 32, actions: int = 6):
        super().__init__()
        self.groups = groups
        down, up = [], []
        for a, b in zip((3, width, 2 * width, 4 * width), (width, 2 * width, 4 * width, 8 * width)):
            down += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.GroupNorm(1, b), nn.SiLU()]
            up = (
                [nn.ConvTranspose2d(b, a, 4, 2, 1, bias=a == 3)]
                + ([nn.GroupNorm(1, a), nn.SiLU()] if a > 3 else [])
                + up
            )
        self.encoder, self.decoder = nn.Sequential(*down), nn.Sequential(*up)
        self.into = nn.Sequential(
            nn.Linear(groups * groups + actions, state, bias=False), nn.LayerNorm(state), nn.SiLU()
        )
        self.gates, self.norm = nn.Linear(2 * state, 3 * state, bias=False), nn.LayerNorm(3 * state)
        self.prior = nn.Sequential(
            nn.Linear(state, state), nn.LayerNorm(state), nn.SiLU(), nn.Linear(state, groups * groups)
        )
        self.posterior = nn.Sequential(
            nn.Linear(state + 128 * width, state), nn.LayerNorm(state), nn.SiLU(), nn.Linear(state, groups * groups)
        )
        self.start, self.image = nn.Parameter(torch.randn(state)), nn.Linear(state + groups * groups, 128 * width)

    def categories(self, logits: torch.Tensor) -> torch.Tensor:
        p = (2 * logits).unflatten(-1, (self.groups, self.groups)).softmax(-1)
        return (0.99 * p + 0.01 / self.groups).flatten(-2)

    def forward(self, images: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, steps = actions.shape[:2]
        seen = self.encoder(images.flatten(0, 1)).reshape(batch, steps, -1)
        h = torch.tanh(self.start).expand(batch, -1)
        z = self.categories(self.prior(h))
        states, divergence = [], 0
        for t in range(steps):
            x = self.into(torch.cat([z, actions[:, t]], -1))
            reset, new, update = self.norm(self.gates(torch.cat([x, h], -1))).chunk(3, -1)
            update = torch.sigmoid(update - 1)
            h = update * torch.tanh(torch.sigmoid(reset) * new) + (1 - update) * h
            expected, z = (
                self.categories(self.prior(h)),
                self.categories(self.posterior(torch.cat([h, seen[:, t]], -1))),
            )
            divergence = divergence + (z * (torch.log(z) - torch.log(expected))).sum(-1)
            states.append(torch.cat([h, z], -1))
        y = self.image(torch.stack(states, 1)).reshape(batch * steps, -1, 4, 4)
        return self.decoder(y).unflatten(0, (batch, steps)), divergence


class Performer(nn.Module):
    """Performer (Choromanski et al., 2021), four layers: random positive features in place of a softmax, heads of 80 elements."""

    def __init__(
        self, c: int = 640, heads: int = 8, layers: int = 4, features: int = 256, words: int = 1000, length: int = 1000
    ):
        super().__init__()
        self.heads, self.embed, self.positions = heads, nn.Embedding(words, c), nn.Parameter(torch.randn(1, length, c))
        self.norms, self.last = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1)), nn.Linear(c, words)
        self.q, self.k, self.v, self.out = (nn.ModuleList(nn.Linear(c, c) for _ in range(layers)) for _ in range(4))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)) for _ in range(layers)
        )
        blocks = [torch.linalg.qr(torch.randn(c // heads, c // heads))[0] for _ in range(-(-features * heads // c))]
        self.register_buffer("directions", torch.cat(blocks)[:features] * (c // heads) ** 0.5)

    def feature(self, x: torch.Tensor, query: bool) -> torch.Tensor:
        x = x * x.shape[-1] ** -0.25
        y = torch.einsum("bhnd,md->bhnm", x, self.directions)
        half = (x**2).sum(-1, keepdim=True) / 2
        most = y.amax(-1, keepdim=True) if query else y.amax((-1, -2), keepdim=True)
        return torch.exp(y - half - most) + 1e-4

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.positions
        batch, length, c = x.shape
        for k, (to_q, to_k, to_v, out, mlp) in enumerate(zip(self.q, self.k, self.v, self.out, self.mlps, strict=True)):
            y = self.norms[2 * k](x)
            q, key, v = (f(y).view(batch, length, self.heads, -1).transpose(1, 2) for f in (to_q, to_k, to_v))
            q, key = self.feature(q, True), self.feature(key, False)
            scale = 1.0 / torch.einsum("bhnm,bhm->bhn", q, key.mean(2))
            context = torch.einsum("bhnm,bhne->bhme", key, v) / length
            y = torch.einsum("bhme,bhnm,bhn->bhne", context, q, scale)
            x = x + out(y.transpose(1, 2).reshape(batch, length, c))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.last(self.norms[-1](x))


def sentences(batch: int, length: int = 50, steps: int = 24) -> tuple[torch.Tensor, ...]:
    r = seeded()
    ids = torch.randint(1, 12000, (batch, length), generator=r)
    return ids * (torch.rand(batch, length, generator=r) < 0.95), torch.randint(0, 12000, (batch, steps), generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "timesnet_2": (TimesNet, normal((96, 21))),
    "s4d_4": (StateSpace, normal((1000, 80))),
    "xlstm_6": (XLstm, tokens(333, 10000)),
    "elmo": (Elmo, tokens(77, 262, 50)),
    "gru_translator": (Translator, sentences),
    "dreamer_16": (WorldModel, normal((16, 3, 64, 64), (16, 6))),
    "performer_4": (Performer, tokens(1000, 1000)),
}
