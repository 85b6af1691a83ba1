"""More of tables and recommendation, for the zoo: trees, attention between rows, sequences of items, graphs of users."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


def entmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """1.5-entmax (Peters et al., 2019): between softmax and sparsemax, by sorting."""
    x = (x - x.amax(dim, keepdim=True)) / 2
    ordered = torch.sort(x, dim=dim, descending=True)[0]
    shape = [1] * x.ndim
    shape[dim] = -1
    ranks = torch.arange(1, x.shape[dim] + 1, device=x.device, dtype=x.dtype).view(shape)
    mean, square = ordered.cumsum(dim) / ranks, (ordered * ordered).cumsum(dim) / ranks
    delta = (1 - ranks * (square - mean * mean)) / ranks
    bounds = mean - delta.clamp(min=0).sqrt()
    support = (bounds <= ordered).sum(dim, keepdim=True)
    return (x - bounds.gather(dim, support - 1)).clamp(min=0) ** 2


def entmoid(x: torch.Tensor) -> torch.Tensor:
    """1.5-entmax of x and 0."""
    size = x.abs()
    tau = (size + F.relu(8 - size * size).sqrt()) / 2
    tau = torch.where(tau <= size, 2.0, tau)
    small = 0.25 * F.relu(tau - size) ** 2
    return torch.where(x >= 0, 1 - small, small)


class ObliviousTrees(nn.Module):
    """512 trees of depth six: all nodes of a level ask the same soft question; answers of 64 leaves."""

    def __init__(self, columns: int, trees: int = 512, depth: int = 6, out: int = 3):
        super().__init__()
        self.choice = nn.Parameter(torch.randn(columns, trees, depth))
        self.thresholds, self.temperature = (
            nn.Parameter(0.5 * torch.randn(trees, depth)),
            nn.Parameter(torch.zeros(trees, depth)),
        )
        self.leaves = nn.Parameter(torch.randn(trees, out, 2**depth))
        codes = torch.arange(2**depth) // 2 ** torch.arange(depth)[:, None] % 2
        self.register_buffer("codes", torch.stack([codes, 1 - codes], -1).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = torch.einsum("bi,itd->btd", x, entmax(self.choice.float(), 0).to(x.dtype))
        asked = (values - self.thresholds) * torch.exp(-self.temperature)
        answers = entmoid(torch.stack([-asked, asked], -1))
        chances = torch.einsum("btds,dcs->btdc", answers, self.codes).prod(2)
        return torch.einsum("btc,toc->bto", chances, self.leaves)


class NodeTrees(nn.Module):
    """NODE (Popov et al., 2020): two layers of trees, the second sees the first one's answers."""

    def __init__(self, columns: int = 90, trees: int = 512, out: int = 3):
        super().__init__()
        self.norm = nn.BatchNorm1d(columns)
        self.one, self.two = ObliviousTrees(columns), ObliviousTrees(columns + trees * out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x.flatten(0, 1))
        y = self.one(x)
        z = self.two(torch.cat([x, y.flatten(1)], 1))
        return torch.cat([y, z], 1).mean(1)


class RowAttention(nn.Module):
    """Heads of 64 elements, with a gated network after them."""

    def __init__(self, c: int, heads: int = 8, size: int = 64):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2))
        self.qkv, self.out = nn.Linear(c, 3 * heads * size, bias=False), nn.Linear(heads * size, c)
        self.into, self.back = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(-3, -2).flatten(-2))
        a, b = self.into(self.norms[1](x)).chunk(2, -1)
        return x + self.back(a * F.gelu(b))


class Saint(nn.Module):
    """SAINT (Somepalli et al., 2021): attention between the columns of a row, then between rows of 20 columns each."""

    def __init__(self, numbers: int = 12, kinds: int = 8, c: int = 32, layers: int = 2):
        super().__init__()
        self.one, self.two = nn.Parameter(torch.randn(numbers, 100)), nn.Parameter(torch.randn(numbers, 100, c) / 10)
        self.bias, self.embed = nn.Parameter(torch.zeros(numbers, c)), nn.Embedding(kinds * 50, c)
        self.register_buffer("starts", torch.arange(kinds) * 50)
        self.columns = nn.ModuleList(RowAttention(c) for _ in range(layers))
        self.rows = nn.ModuleList(RowAttention(c * (numbers + kinds + 1)) for _ in range(layers))
        self.token, self.head = (
            nn.Parameter(torch.randn(c)),
            nn.Sequential(nn.Linear(c, 1000), nn.ReLU(), nn.Linear(1000, 2)),
        )

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        batch, rows = kinds.shape[:2]
        hidden = F.relu(numbers[..., None] * self.one)
        x = torch.einsum("brnh,nhc->brnc", hidden, self.two) + self.bias
        token = self.token.expand(batch, rows, 1, -1)
        x = torch.cat([token, self.embed(kinds + self.starts), x], 2)
        shape = x.shape[2:]
        for columns, between in zip(self.columns, self.rows, strict=True):
            x = columns(x.flatten(0, 1)).unflatten(0, (batch, rows))
            x = between(x.flatten(2)).unflatten(2, shape)
        return self.head(x[:, :, 0])


def people(batch: int, rows: int = 64) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, rows, 12, generator=r), torch.randint(0, 50, (batch, rows, 8), generator=r)


class SasRec(nn.Module):
    """SASRec (Kang and McAuley, 2018): two layers of width 50 over the last 200 items, and scores of all items."""

    def __init__(self, items: int = 12000, c: int = 50, length: int = 200, layers: int = 2):
        super().__init__()
        self.items, self.places = nn.Embedding(items, c, padding_idx=0), nn.Embedding(length, c)
        self.attention = nn.ModuleList(nn.MultiheadAttention(c, 1, batch_first=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(c, eps=1e-8) for _ in range(2 * layers + 1))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, c, 1)) for _ in range(layers)
        )
        self.c = c
        self.register_buffer("later", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        history = history.flatten(0, 1)
        kept = (history > 0).to(self.places.weight.dtype)[..., None]
        x = (self.items(history) * self.c**0.5 / 4 + self.places.weight) * kept
        for k, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            q = self.norms[2 * k](x)
            x = q + attention(q, x, x, attn_mask=self.later, need_weights=False)[0]
            x = self.norms[2 * k + 1](x)
            x = (x + mlp(x.transpose(1, 2)).transpose(1, 2)) * kept
        return self.norms[-1](x[:, -1]) @ self.items.weight.t()


def histories(batch: int, each: int = 16, length: int = 200) -> tuple[torch.Tensor, ...]:
    r = seeded()
    ids = torch.randint(1, 12000, (batch, each, length), generator=r)
    first = torch.randint(0, length - 20, (batch, each, 1), generator=r)
    return (torch.where(torch.arange(length) < first, 0, ids),)


class LightGcn(nn.Module):
    """LightGCN (He et al., 2020): three rounds of weighted sums over a graph of 943 users and 1682 items; pairs are scored."""

    def __init__(self, users: int = 943, items: int = 1682, c: int = 64, rounds: int = 3):
        super().__init__()
        self.users, self.rounds, self.count = users, rounds, users + items
        self.embed = nn.Parameter(torch.randn(users + items, c))

    def forward(self, edges: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        batch, _, count = edges.shape
        ends = torch.stack([edges[:, 0], edges[:, 1] + self.users], 1)
        source, target = ends.flatten(1), ends.flip(1).flatten(1)
        ones = torch.ones(batch, 2 * count, dtype=self.embed.dtype, device=edges.device)
        degree = torch.zeros(batch, self.count, dtype=ones.dtype, device=edges.device).scatter_add(1, target, ones)
        scale = torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0.0)
        weight = scale.gather(1, source) * scale.gather(1, target)
        x = total = self.embed.expand(batch, -1, -1)
        c = x.shape[2]
        for _ in range(self.rounds):
            messages = x.gather(1, source[..., None].expand(-1, -1, c)) * weight[..., None]
            x = torch.zeros_like(x).scatter_add(1, target[..., None].expand(-1, -1, c), messages)
            total = total + x
        total = total / (self.rounds + 1)
        user = total.gather(1, pairs[:, 0, :, None].expand(-1, -1, c))
        item = total.gather(1, pairs[:, 1, :, None].expand(-1, -1, c) + self.users)
        return (user * item).sum(2)


def interactions(batch: int, edges: int = 10000, pairs: int = 500) -> tuple[torch.Tensor, ...]:
    r = seeded()

    def both(n: int) -> torch.Tensor:
        parts = [torch.randint(0, top, (batch, n), generator=r) for top in (943, 1682)]
        return torch.stack(parts, 1)

    return both(edges), both(pairs)


class AutoInt(nn.Module):
    """AutoInt (Song et al., 2019): three layers of attention between 39 fields of 16 elements, two heads of 32."""

    def __init__(self, numbers: int = 13, kinds: int = 26, c: int = 16, width: int = 64, layers: int = 3):
        super().__init__()
        self.values, self.embed = nn.Parameter(torch.randn(numbers, c)), nn.Embedding(kinds * 5000, c)
        self.register_buffer("starts", torch.arange(kinds) * 5000)
        widths = [c] + [width] * layers
        self.q, self.k, self.v, self.short = (
            nn.ModuleList(nn.Linear(a, width, bias=False) for a in widths[:-1]) for _ in range(4)
        )
        self.last = nn.Linear((numbers + kinds) * width, 1)
        self.deep = nn.Sequential(
            nn.Linear((numbers + kinds) * c, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1)
        )

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        numbers, kinds = numbers.flatten(0, 1), kinds.flatten(0, 1)
        x = e = torch.cat([numbers[..., None] * self.values, self.embed(kinds + self.starts)], 1)
        for query, key, value, short in zip(self.q, self.k, self.v, self.short, strict=True):
            q, k, v = (torch.stack(f(x).chunk(2, 2)) for f in (query, key, value))
            y = torch.matmul(torch.matmul(q, k.transpose(2, 3)).mul(32**-0.5).softmax(-1), v)
            x = F.relu(torch.cat(y.unbind(0), 2) + short(x))
        return torch.sigmoid(self.last(x.flatten(1)) + self.deep(e.flatten(1)))


def fields(batch: int, each: int = 200) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, each, 13, generator=r), torch.randint(0, 5000, (batch, each, 26), generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "node_trees": (NodeTrees, normal((64, 90))),
    "saint": (Saint, people),
    "sas_rec": (SasRec, histories),
    "light_gcn": (LightGcn, interactions),
    "auto_int": (AutoInt, fields),
}
