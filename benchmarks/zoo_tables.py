"""Tables and recommendation, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class CrossMixture(nn.Module):
    """DCN V2 (Wang et al., 2021): products with the first layer by four experts of low rank, beside a plain network."""

    def __init__(self, tables: int = 26, width: int = 39, experts: int = 4, rank: int = 64, layers: int = 3):
        super().__init__()
        c = 13 + tables * width
        self.embed = nn.Embedding(tables * 10000, width)
        self.register_buffer("starts", torch.arange(tables) * 10000)
        self.u, self.v = (
            nn.ParameterList(nn.Parameter(torch.randn(experts, c, rank) / s) for _ in range(layers)) for s in (8, 32)
        )
        self.w = nn.ParameterList(nn.Parameter(torch.randn(experts, rank, rank) / 8) for _ in range(layers))
        self.bias, self.gates = (
            nn.ParameterList(nn.Parameter(torch.zeros(c)) for _ in range(layers)),
            nn.Linear(c, experts),
        )
        self.deep = nn.Sequential(nn.Linear(c, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU())
        self.last = nn.Linear(1000 + c, 1)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        dense, ids = dense.flatten(0, 1), ids.flatten(0, 1)
        x0 = x = torch.cat([dense, self.embed(ids + self.starts).flatten(1)], 1)
        for u, v, w, bias in zip(self.u, self.v, self.w, self.bias, strict=True):
            gates = self.gates(x).softmax(1)
            y = torch.tanh(torch.einsum("bc,ecr->ber", x, v))
            y = torch.tanh(torch.einsum("ber,eqr->beq", y, w))
            y = torch.einsum("beq,ecq->bec", y, u) + bias
            x = x + torch.einsum("bec,be->bc", x0[:, None] * y, gates)
        return torch.sigmoid(self.last(torch.cat([x, self.deep(x0)], 1)))


def ratings(batch: int, each: int = 500) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, each, 13, generator=r), torch.randint(0, 10000, (batch, each, 26), generator=r)


class InterestEvolution(nn.Module):
    """DIEN (Zhou et al., 2019): a GRU over visits, and a second one whose update gates are scaled by attention, step by step."""

    def __init__(self, items: int = 50000, width: int = 36):
        super().__init__()
        self.embed, self.gru, self.width = nn.Embedding(items, width), nn.GRU(width, width, batch_first=True), width
        self.attention = nn.Linear(width, width, bias=False)
        self.into, self.hidden = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.top = nn.Sequential(
            nn.Linear(3 * width, 200), nn.PReLU(), nn.Linear(200, 80), nn.PReLU(), nn.Linear(80, 2)
        )

    def forward(self, history: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        history, candidate = history.flatten(0, 1), candidate.flatten(0, 1)
        past, one = self.embed(history), self.embed(candidate)
        states = self.gru(past)[0]
        scores = torch.einsum("btc,bc->bt", self.attention(states), one)
        scores = scores.masked_fill(history == 0, -1e4).softmax(1)
        into, h = self.into(states), torch.zeros_like(one)
        for t in range(history.shape[1]):
            r_in, z_in, n_in = into[:, t].chunk(3, 1)
            r_h, z_h, n_h = self.hidden(h).chunk(3, 1)
            update = torch.sigmoid(z_in + z_h) * scores[:, t, None]
            new = torch.tanh(n_in + torch.sigmoid(r_in + r_h) * n_h)
            h = (1 - update) * h + update * new
        return self.top(torch.cat([h, one, past.sum(1) / history.shape[1]], 1)).softmax(1)


def journeys(batch: int, each: int = 100, length: int = 50) -> tuple[torch.Tensor, ...]:
    r = seeded()
    history = torch.randint(0, 50000, (batch, each, length), generator=r)
    return history * (torch.rand(batch, each, length, generator=r) < 0.9), torch.randint(
        1, 50000, (batch, each), generator=r
    )


class FeatureTokens(nn.Module):
    """FT-Transformer (Gorishniy et al., 2021): each column is a token; heads of 24 elements, gated networks of 256."""

    def __init__(self, numbers: int = 87, kinds: int = 12, c: int = 192, heads: int = 8, layers: int = 3):
        super().__init__()
        self.heads = heads
        self.weight, self.bias = (
            nn.Parameter(torch.randn(numbers, c) / 4),
            nn.Parameter(torch.randn(numbers + kinds, c) / 4),
        )
        self.token, self.embed = nn.Parameter(torch.randn(c)), nn.Embedding(kinds * 100, c)
        self.register_buffer("starts", torch.arange(kinds) * 100)
        self.qkv, self.out = (nn.ModuleList(nn.Linear(c, b) for _ in range(layers)) for b in (3 * c, c))
        self.into, self.back = (
            nn.ModuleList(nn.Linear(c, 512) for _ in range(layers)),
            nn.ModuleList(nn.Linear(256, c) for _ in range(layers)),
        )
        self.norms, self.last = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1)), nn.Linear(c, 2)

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        numbers, kinds = numbers.flatten(0, 1), kinds.flatten(0, 1)
        x = torch.cat([self.weight * numbers[..., None], self.embed(kinds + self.starts)], 1) + self.bias
        x = torch.cat([x, self.token.expand(x.shape[0], 1, -1)], 1)
        for k, (qkv, out, into, back) in enumerate(zip(self.qkv, self.out, self.into, self.back, strict=True)):
            y = self.norms[2 * k](x)
            q, key, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in qkv(y).chunk(3, 2))
            y = F.softmax(q @ key.transpose(2, 3) / q.shape[3] ** 0.5, -1) @ v
            x = x + out(y.transpose(1, 2).flatten(2))
            a, b = into(self.norms[2 * k + 1](x)).chunk(2, -1)
            x = x + back(a * F.relu(b))
        return self.last(F.relu(self.norms[-1](x[:, -1])))


def columns(batch: int, each: int = 64) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, each, 87, generator=r), torch.randint(0, 100, (batch, each, 12), generator=r)


class TabNet(nn.Module):
    """TabNet (Arik and Pfister, 2021): in each of three steps a sparsemax chooses columns for gated layers."""

    def __init__(self, columns: int = 300, c: int = 64, steps: int = 3, out: int = 7):
        super().__init__()
        self.c, self.norm = c, nn.BatchNorm1d(columns)

        def gated(a: int) -> nn.Module:
            return nn.Sequential(nn.Linear(a, 4 * c, bias=False), nn.BatchNorm1d(4 * c), nn.GLU(1))

        self.shared = nn.ModuleList([nn.Linear(columns, 4 * c, bias=False), nn.Linear(2 * c, 4 * c, bias=False)])
        self.norms = nn.ModuleList(nn.ModuleList(nn.BatchNorm1d(4 * c) for _ in range(2)) for _ in range(steps + 1))
        self.own = nn.ModuleList(nn.ModuleList(gated(2 * c) for _ in range(2)) for _ in range(steps + 1))
        self.choose = nn.ModuleList(
            nn.Sequential(nn.Linear(c, columns, bias=False), nn.BatchNorm1d(columns)) for _ in range(steps)
        )
        self.last = nn.Linear(c, out)

    def transform(self, k: int, x: torch.Tensor) -> torch.Tensor:
        y = F.glu(self.norms[k][0](self.shared[0](x)), 1)
        y = (y + F.glu(self.norms[k][1](self.shared[1](y)), 1)) * 0.5**0.5
        for layer in self.own[k]:
            y = (y + layer(y)) * 0.5**0.5
        return y

    def sparsemax(self, x: torch.Tensor) -> torch.Tensor:
        x = x - x.amax(1, keepdim=True)
        ordered = torch.sort(x, dim=1, descending=True)[0]
        ranks = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        sums = ordered.cumsum(1) - 1
        support = (ranks * ordered > sums).sum(1, keepdim=True)
        return torch.clamp(x - sums.gather(1, support - 1) / support.to(x.dtype), min=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x.flatten(0, 1))
        prior, total = torch.ones_like(x), 0
        attention = self.transform(0, x)[:, self.c :]
        for k, choose in enumerate(self.choose):
            mask = self.sparsemax(choose(attention) * prior)
            prior = prior * (1.5 - mask)
            y = self.transform(k + 1, mask * x)
            total = total + F.relu(y[:, : self.c])
            attention = y[:, self.c :]
        return self.last(total)


class TaskMixture(nn.Module):
    """MMoE (Ma et al., 2018): eight experts, a gate and a tower for each of three tasks."""

    def __init__(self, columns: int = 499, experts: int = 8, width: int = 256, tasks: int = 3):
        super().__init__()
        self.one, self.two = (
            nn.Parameter(torch.randn(experts, columns, 512) / 22),
            nn.Parameter(torch.randn(experts, 512, width) / 16),
        )
        self.bias1, self.bias2 = (
            nn.Parameter(torch.zeros(experts, 1, 512)),
            nn.Parameter(torch.zeros(experts, 1, width)),
        )
        self.gates = nn.Parameter(torch.randn(columns, experts, tasks) / 8)
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1)) for _ in range(tasks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        h = F.relu(torch.einsum("bc,ecd->ebd", x, self.one) + self.bias1)
        h = F.relu(torch.matmul(h, self.two) + self.bias2)
        gates = torch.einsum("bc,cet->bet", x, self.gates).softmax(1)
        mixed = torch.einsum("ebd,bet->tbd", h, gates)
        return torch.sigmoid(torch.cat([tower(mixed[k]) for k, tower in enumerate(self.towers)], 1))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "dcn_v2": (CrossMixture, ratings),
    "dien": (InterestEvolution, journeys),
    "ft_transformer": (FeatureTokens, columns),
    "tabnet": (TabNet, normal((1000, 300))),
    "mmoe": (TaskMixture, normal((1000, 499))),
}
