"""Policies, series and recommendation, for the zoo: unrolled samplers, smoothing, autocorrelation, random kernels, bags, dates."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class ActionBlock(nn.Module):
    """Two convolutions along time with group norms, scaled and shifted by the observation."""

    def __init__(self, a: int, b: int, seen: int):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv1d(a, b, 5, padding=2), nn.GroupNorm(8, b), nn.Mish())
        self.one, self.two, self.film = block(a, b), block(b, b), nn.Sequential(nn.Mish(), nn.Linear(seen, 2 * b))
        self.short = nn.Conv1d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        scale, shift = self.film(seen)[..., None].chunk(2, 1)
        return self.two((1 + scale) * self.one(x) + shift) + self.short(x)


class DiffusionPolicy(nn.Module):
    """Diffusion policy (Chi et al., 2023), half width: actions of 16 steps by four steps of DDIM through a U-Net along time."""

    def __init__(self, actions: int = 7, seen: int = 132, widths: tuple[int, ...] = (128, 256, 512), steps: int = 4):
        super().__init__()
        w = widths
        self.embed = nn.Sequential(nn.Linear(128, 512), nn.Mish(), nn.Linear(512, 128))
        total = 128 + seen
        pair = lambda a, b: nn.ModuleList((ActionBlock(a, b, total), ActionBlock(b, b, total)))
        self.down = nn.ModuleList((pair(actions, w[0]), pair(w[0], w[1]), pair(w[1], w[2])))
        self.less = nn.ModuleList(nn.Conv1d(n, n, 3, 2, 1) for n in w[:2])
        self.middle = pair(w[2], w[2])
        self.up = nn.ModuleList((pair(2 * w[2], w[1]), pair(2 * w[1], w[0])))
        self.more = nn.ModuleList(nn.ConvTranspose1d(n, n, 4, 2, 1) for n in (w[1], w[0]))
        self.last = nn.Sequential(
            nn.Conv1d(w[0], w[0], 5, padding=2), nn.GroupNorm(8, w[0]), nn.Mish(), nn.Conv1d(w[0], actions, 1)
        )
        times = torch.linspace(95, 5, steps)
        rates = torch.exp(torch.arange(64) * (-math.log(10000.0) / 63))
        angles = times[:, None] * rates
        self.register_buffer("times", torch.cat([angles.sin(), angles.cos()], 1))
        # The share of the signal that is left after each of these times.
        self.shares = (
            torch.cos((torch.cat([times, torch.zeros(1)]) / 100 + 0.008) / 1.008 * math.pi / 2) ** 2
        ).tolist()

    def noise(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        kept = []
        for k, (one, two) in enumerate(self.down):
            x = two(one(x, seen), seen)
            kept.append(x)
            x = self.less[k](x) if k < 2 else x
        for layer in self.middle:
            x = layer(x, seen)
        for k, (one, two) in enumerate(self.up):
            x = self.more[k](two(one(torch.cat([x, kept.pop()], 1), seen), seen))
        return self.last(x)

    def forward(self, start: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        x = start.transpose(1, 2)
        for k, (a, b) in enumerate(zip(self.shares, self.shares[1:], strict=False)):
            time = self.embed(self.times[k]).expand(x.shape[0], -1)
            noise = self.noise(x, torch.cat([time, seen], 1))
            clean = ((x - (1 - a) ** 0.5 * noise) / a**0.5).clamp(-1, 1)
            noise = (x - a**0.5 * clean) / (1 - a) ** 0.5
            x = b**0.5 * clean + (1 - b) ** 0.5 * noise
        return x.transpose(1, 2)


class Smoothing(nn.Module):
    """ES-RNN (Smyl, 2020): levels and seasons of 336 hours by Holt and Winters, step by step, then dilated LSTMs of the rest."""

    def __init__(self, season: int = 24, hidden: int = 40, ahead: int = 48):
        super().__init__()
        self.season, self.ahead = season, ahead
        self.alpha, self.gamma = nn.Parameter(torch.randn(100)), nn.Parameter(torch.randn(100))
        self.start = nn.Parameter(0.1 * torch.randn(100, season))
        self.lstms = nn.ModuleList(nn.LSTM(n, hidden, batch_first=True) for n in (2 * season, hidden, hidden, hidden))
        self.line, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, ahead)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        """`series`: hours of 100 series."""
        batch, count, length = series.shape
        y = series.float()
        alpha, gamma = torch.sigmoid(self.alpha.float()), torch.sigmoid(self.gamma.float())
        seasons = list(torch.exp(self.start.float()).expand(batch, -1, -1).unbind(2))
        level = y[:, :, 0] / seasons[0]
        levels = [level]
        seasons.append(seasons[0])
        for t in range(1, length):
            new = alpha * (y[:, :, t] / seasons[t]) + (1 - alpha) * level
            seasons.append(gamma * (y[:, :, t] / new) + (1 - gamma) * seasons[t])
            level = new
            levels.append(level)
        levels, all_seasons = torch.stack(levels, 2), torch.stack(seasons, 2)
        window = 2 * self.season
        rest = (y / all_seasons[:, :, :length]).unfold(2, window, 4)
        ends = levels[:, :, window - 1 :: 4]
        x = (rest / ends[..., None]).log().flatten(0, 1).to(series.dtype)
        for k, lstm in enumerate(self.lstms):
            d = 2**k
            n = x.shape[1] // d * d
            x = x[:, x.shape[1] - n :]
            rows = x.unflatten(1, (n // d, d)).transpose(1, 2).flatten(0, 1)
            found = lstm(rows)[0].unflatten(0, (-1, d)).transpose(1, 2).flatten(1, 2)
            x = found if k == 0 else found + x
        y = torch.exp(self.out(torch.tanh(self.line(x[:, -1]))).float()).unflatten(0, (batch, count))
        future = all_seasons[:, :, length : length + self.season].repeat(1, 1, self.ahead // self.season)
        return y * levels[:, :, -1:] * future


def hours(batch: int, count: int = 100, length: int = 336) -> tuple[torch.Tensor, ...]:
    day = torch.sin(torch.arange(length) * 2 * math.pi / 24)
    noise = torch.randn(batch, count, length, generator=seeded())
    return ((0.3 * day + 0.1 * noise).exp() * 2,)


class Autocorrelation(nn.Module):
    """Autoformer's layer (Wu et al., 2021): the eleven delays at which queries and keys correlate most, by Fourier
    transforms, and a weighted sum of values that are moved by them."""

    def __init__(self, c: int, heads: int, factor: int = 2):
        super().__init__()
        self.heads, self.factor = heads, factor
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))

    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(source), self.v(source)
        n, c = q.shape[1:]
        fq, fk = torch.fft.rfft(q.float(), dim=1), torch.fft.rfft(k.float(), dim=1)
        correlation = torch.fft.irfft(fq * torch.conj(fk), n, dim=1).mean(2)
        weights, delays = correlation.topk(int(self.factor * math.log(n)), 1)
        weights = (weights / 4).softmax(1).to(v.dtype)
        places = torch.arange(n, device=v.device)
        twice = torch.cat([v, v], 1)
        total = torch.zeros_like(v)
        for i in range(delays.shape[1]):
            index = (places + delays[:, i : i + 1])[..., None].expand(-1, -1, c)
            total = total + twice.gather(1, index) * weights[:, i, None, None]
        return self.out(total)


class Autoformer(nn.Module):
    """Autoformer's encoder (Wu et al., 2021), two layers over 240 steps: moving averages split trend and season after each."""

    def __init__(self, into: int = 21, c: int = 256, layers: int = 2):
        super().__init__()
        self.first = nn.Conv1d(into, c, 3, padding=1, padding_mode="circular", bias=False)
        self.marks = nn.Linear(4, c, bias=False)
        self.attention = nn.ModuleList(Autocorrelation(c, 8) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c, bias=False), nn.GELU(), nn.Linear(4 * c, c, bias=False))
            for _ in range(layers)
        )
        self.norm, self.last = nn.LayerNorm(c), nn.Linear(c, into)

    def season(self, x: torch.Tensor, size: int = 25) -> torch.Tensor:
        padded = torch.cat([x[:, :1].expand(-1, size // 2, -1), x, x[:, -1:].expand(-1, size // 2, -1)], 1)
        return x - F.avg_pool1d(padded.transpose(1, 2), size, 1).transpose(1, 2)

    def forward(self, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        x = self.first(x.transpose(1, 2)).transpose(1, 2) + self.marks(marks)
        for attention, mlp in zip(self.attention, self.mlps, strict=True):
            x = self.season(x + attention(x, x))
            x = self.season(x + mlp(x))
        x = self.norm(x)
        return self.last(x - x.mean(1, keepdim=True))


class RandomKernels(nn.Module):
    """MiniRocket (Dempster et al., 2021): 84 kernels of nine taps with two values at 12 dilations, the share of positive
    results for eight thresholds each, and a linear classifier."""

    def __init__(self, channels: int = 6, classes: int = 20, dilations: int = 12):
        super().__init__()
        self.dilations = [max(1, int(1.45**k)) for k in range(dilations)]
        import itertools

        kernels = torch.full((84, 1, 9), -1.0)
        for k, places in enumerate(itertools.combinations(range(9), 3)):
            kernels[k, 0, list(places)] = 2.0
        self.register_buffer("kernels", kernels)
        self.register_buffer("channels", (torch.rand(dilations, 84, channels) < 0.4).float())
        self.register_buffer("thresholds", 3 * torch.randn(dilations, 84, 8))
        self.last = nn.Linear(84 * 8 * dilations, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, length = x.shape
        found = []
        for k, dilation in enumerate(self.dilations):
            y = F.conv1d(x.reshape(-1, 1, length), self.kernels, padding=4 * dilation, dilation=dilation)
            y = torch.einsum("bckl,kc->bkl", y.reshape(batch, channels, 84, length), self.channels[k])
            positive = y[:, :, None] > self.thresholds[k][:, :, None]
            found.append(positive.to(x.dtype).mean(3).flatten(1))
        return self.last(torch.cat(found, 1) - 0.5)


class Towers(nn.Module):
    """Two towers for retrieval (Yi et al., 2019): bags of words and of items seen, weighted, normalised vectors of users and
    items, and scores of all pairs."""

    def __init__(self, words: int = 30000, items: int = 50000, c: int = 64):
        super().__init__()
        self.words, self.items = nn.Embedding(words, c, padding_idx=0), nn.Embedding(items, c, padding_idx=0)
        tower = lambda n: nn.Sequential(
            nn.Linear(n, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 128)
        )
        self.user, self.item = tower(3 * c + 10), tower(2 * c)

    def bag(self, table: nn.Embedding, which: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        x = table(which)
        present = (which > 0).to(x.dtype)
        weights = present if weights is None else present * weights
        return (x * weights[..., None]).sum(-2) / weights.sum(-1, keepdim=True).clamp(min=1)

    def forward(
        self,
        seen: torch.Tensor,
        ages: torch.Tensor,
        query: torch.Tensor,
        facts: torch.Tensor,
        names: torch.Tensor,
        ids: torch.Tensor,
    ) -> torch.Tensor:
        recent = self.bag(self.items, seen, torch.exp(-ages))
        longest = self.items(seen).masked_fill((seen == 0)[..., None], -1e4).amax(-2)
        user = self.user(torch.cat([recent, longest, self.bag(self.words, query), facts], -1))
        item = self.item(torch.cat([self.items(ids), self.bag(self.words, names)], -1))
        return 20 * F.normalize(user, dim=-1) @ F.normalize(item, dim=-1).transpose(1, 2)


def visits(batch: int, users: int = 64, items: int = 500) -> tuple[torch.Tensor, ...]:
    r = seeded()

    def bags(count: int, size: int, top: int) -> torch.Tensor:
        ids = torch.randint(1, top, (batch, count, size), generator=r)
        return torch.where(torch.rand(ids.shape, generator=r) < 0.3, 0, ids)

    seen, ages = bags(users, 50, 50000), torch.rand(batch, users, 50, generator=r)
    facts = torch.randn(batch, users, 10, generator=r)
    return (
        seen,
        ages,
        bags(users, 8, 30000),
        facts,
        bags(items, 12, 30000),
        torch.randint(1, 50000, (batch, items), generator=r),
    )


class TimedActions(nn.Module):
    """HSTU (Zhai et al., 2024): attention without softmax, SiLU of scores with a bias by distance and by the logarithm of the
    time between actions, gated; four layers over 256 actions."""

    def __init__(
        self, items: int = 20000, c: int = 256, layers: int = 4, heads: int = 4, length: int = 256, buckets: int = 64
    ):
        super().__init__()
        self.heads, self.c, self.buckets = heads, c, buckets
        self.embed, self.places = nn.Embedding(items, c), nn.Parameter(0.3 * torch.randn(length, c))
        self.uvqk = nn.ModuleList(nn.Linear(c, 4 * c, bias=False) for _ in range(layers))
        self.out, self.norms = (
            nn.ModuleList(nn.Linear(c, c) for _ in range(layers)),
            nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers)),
        )
        self.by_place = nn.Parameter(0.5 * torch.randn(layers, 2 * length - 1))
        self.by_time = nn.Parameter(0.5 * torch.randn(layers, buckets + 1))
        place = torch.arange(length)
        self.register_buffer("gaps", place[None] - place[:, None] + length - 1)
        self.register_buffer("earlier", (place[None] <= place[:, None]).float())

    def forward(self, items: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        x = self.embed(items) + self.places
        apart = (times[:, :, None] - times[:, None]).abs().clamp(min=1).float()
        bucket = (apart.log() / 0.301).long().clamp(0, self.buckets)
        n = items.shape[1]
        for k, (uvqk, out) in enumerate(zip(self.uvqk, self.out, strict=True)):
            u, v, q, key = F.silu(uvqk(self.norms[2 * k](x))).chunk(4, 2)
            q, key, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (q, key, v))
            bias = self.by_place[k][self.gaps] + self.by_time[k][bucket]
            scores = F.silu(4 * (q @ key.transpose(2, 3)) + bias[:, None]) / n**0.5 * self.earlier
            y = (scores @ v).transpose(1, 2).flatten(2)
            x = x + out(u * self.norms[2 * k + 1](y))
        x = F.normalize(x[:, -1], dim=1)
        return 20 * x @ F.normalize(self.embed.weight, dim=1).t()


def actions(batch: int, length: int = 256) -> tuple[torch.Tensor, ...]:
    r = seeded()
    items = torch.randint(0, 20000, (batch, length), generator=r)
    return items, torch.randint(1, 5000, (batch, length), generator=r).cumsum(1)


class MonotoneMixing(nn.Module):
    """QMIX (Rashid et al., 2018): recurrent agents choose among actions, and networks whose weights another network makes
    from the state join their values; 60 steps of eight agents."""

    def __init__(
        self, seen: int = 80, state: int = 168, agents: int = 8, choices: int = 14, hidden: int = 64, width: int = 32
    ):
        super().__init__()
        self.agents, self.width = agents, width
        self.first, self.gru, self.value = (
            nn.Linear(seen + agents, hidden),
            nn.GRU(hidden, hidden, batch_first=True),
            nn.Linear(hidden, choices),
        )
        maker = lambda n: nn.Sequential(nn.Linear(state, 64), nn.ReLU(), nn.Linear(64, n))
        self.one, self.two, self.shift = maker(agents * width), maker(width), nn.Linear(state, width)
        self.base = nn.Sequential(nn.Linear(state, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, seen: torch.Tensor, state: torch.Tensor, possible: torch.Tensor) -> torch.Tensor:
        batch, agents, steps, _ = seen.shape
        who = torch.eye(agents, dtype=seen.dtype, device=seen.device)[:, None].expand(batch, -1, steps, -1)
        h = F.relu(self.first(torch.cat([seen, who], 3))).flatten(0, 1)
        q = self.value(self.gru(h)[0]).unflatten(0, (batch, agents))
        best = q.masked_fill(possible < 0.3, -1e4).amax(3).transpose(1, 2)
        one = self.one(state).abs().unflatten(2, (self.agents, self.width))
        hidden = F.elu(torch.matmul(best[:, :, None], one)[:, :, 0] + self.shift(state))
        return (hidden * self.two(state).abs()).sum(2, keepdim=True) + self.base(state)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "diffusion_policy": (DiffusionPolicy, normal((16, 7), (132,))),
    "es_rnn": (Smoothing, hours),
    "autoformer_2": (Autoformer, normal((240, 21), (240, 4))),
    "mini_rocket": (RandomKernels, normal((6, 400))),
    "two_towers": (Towers, visits),
    "hstu_4": (TimedActions, actions),
    "q_mix": (
        MonotoneMixing,
        lambda batch: (*normal((8, 60, 80), (60, 168))(batch), torch.rand(batch, 8, 60, 14, generator=seeded())),
    ),
}
