"""Molecules, genomes, graphs and points, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded
from zoo_scenes import keep_most


class GatedAttention(nn.Module):
    """Attention over the last but one dimension with a bias for each pair and gates, as in AlphaFold 2."""

    def __init__(self, c: int, heads: int, size: int, pair: int):
        super().__init__()
        self.heads, self.size = heads, size
        self.norm, self.pair_norm = nn.LayerNorm(c), nn.LayerNorm(pair)
        self.q, self.k, self.v = (nn.Linear(c, heads * size, bias=False) for _ in range(3))
        self.bias, self.gate, self.out = (
            nn.Linear(pair, heads, bias=False),
            nn.Linear(c, heads * size),
            nn.Linear(heads * size, c),
        )

    def forward(self, x: torch.Tensor, pair: torch.Tensor | None = None) -> torch.Tensor:
        x = self.norm(x)
        q, k, v = (f(x).unflatten(-1, (self.heads, self.size)) for f in (self.q, self.k, self.v))
        scores = torch.einsum("bsqhc,bskhc->bshqk", q * self.size**-0.5, k)
        if pair is not None:
            scores = scores + self.bias(self.pair_norm(pair)).permute(0, 3, 1, 2)[:, None]
        y = torch.einsum("bshqk,bskhc->bsqhc", scores.softmax(-1), v).flatten(-2)
        return self.out(torch.sigmoid(self.gate(x)) * y)


class Triangle(nn.Module):
    """Products of edges along the third side of a triangle, outgoing or incoming."""

    def __init__(self, c: int, hidden: int, outgoing: bool):
        super().__init__()
        self.norm, self.after = nn.LayerNorm(c), nn.LayerNorm(hidden)
        self.a, self.b, self.a_gate, self.b_gate = (nn.Linear(c, hidden) for _ in range(4))
        self.gate, self.out = nn.Linear(c, c), nn.Linear(hidden, c)
        self.formula = "bikc,bjkc->bijc" if outgoing else "bkic,bkjc->bijc"

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        z = self.norm(z)
        a = torch.sigmoid(self.a_gate(z)) * self.a(z)
        b = torch.sigmoid(self.b_gate(z)) * self.b(z)
        y = torch.einsum(self.formula, a, b) / math.sqrt(z.shape[2])
        return torch.sigmoid(self.gate(z)) * self.out(self.after(y))


class EvoformerBlock(nn.Module):
    def __init__(self, m: int = 256, z: int = 128):
        super().__init__()
        self.row, self.column = GatedAttention(m, 8, 32, z), GatedAttention(m, 8, 32, z)
        self.outer_norm, self.left, self.right, self.outer = (
            nn.LayerNorm(m),
            nn.Linear(m, 32),
            nn.Linear(m, 32),
            nn.Linear(1024, z),
        )
        self.going, self.coming = Triangle(z, 128, True), Triangle(z, 128, False)
        self.start, self.end = GatedAttention(z, 4, 32, z), GatedAttention(z, 4, 32, z)

        def transition(c: int) -> nn.Module:
            return nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.ReLU(), nn.Linear(4 * c, c))

        self.m_transition, self.z_transition = transition(m), transition(z)

    def forward(self, m: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        m = m + self.row(m, z)
        m = m + self.column(m.transpose(1, 2)).transpose(1, 2)
        m = m + self.m_transition(m)
        y = self.outer_norm(m)
        outer = torch.einsum("bsic,bsjd->bijcd", self.left(y), self.right(y)) / m.shape[1]
        z = z + self.outer(outer.flatten(3))
        z = z + self.going(z)
        z = z + self.coming(z)
        z = z + self.start(z, z)
        turned = z.transpose(1, 2)
        z = z + self.end(turned, turned).transpose(1, 2)
        return m, z + self.z_transition(z)


class Evoformer(nn.Module):
    """Two of AlphaFold 2's 48 blocks (Jumper et al., 2021): an alignment of 40 sequences and a map of pairs."""

    def __init__(self, blocks: int = 2):
        super().__init__()
        self.blocks = nn.ModuleList(EvoformerBlock() for _ in range(blocks))

    def forward(self, m: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for block in self.blocks:
            m, z = block(m, z)
        return m[:, 0], z


class GenomeAttention(nn.Module):
    """A layer of Enformer: keys of 64 elements, values of 96, and a bias of products with functions of the distance."""

    def __init__(self, c: int, heads: int, length: int, key: int = 64, features: int = 96):
        super().__init__()
        self.heads, self.key, self.value = heads, key, c // heads
        self.norm, self.mlp_norm = nn.LayerNorm(c), nn.LayerNorm(c)
        self.q, self.k, self.v = (
            nn.Linear(c, heads * key, bias=False),
            nn.Linear(c, heads * key, bias=False),
            nn.Linear(c, c, bias=False),
        )
        self.relative, self.out = nn.Linear(features, heads * key, bias=False), nn.Linear(c, c)
        self.content, self.position = (nn.Parameter(0.1 * torch.randn(1, heads, 1, key)) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c))
        distance = torch.arange(1.0 - length, length)
        halves = torch.exp(-math.log(2.0) * distance.abs()[:, None] / 2 ** torch.linspace(1, 8, features // 4))
        inside = (distance.abs()[:, None] <= 2 ** torch.arange(1.0, features // 4 + 1) - 1).float()
        basis = torch.cat([halves, inside], 1)
        self.register_buffer("basis", torch.cat([basis, distance.sign()[:, None] * basis], 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        y = self.norm(x)
        q = self.q(y).view(batch, length, self.heads, self.key).transpose(1, 2) * self.key**-0.5
        k = self.k(y).view(batch, length, self.heads, self.key).transpose(1, 2)
        v = self.v(y).view(batch, length, self.heads, self.value).transpose(1, 2)
        r = self.relative(self.basis).view(-1, self.heads, self.key).transpose(0, 1)
        scores = torch.einsum("bhid,bhjd->bhij", q + self.content, k)
        where = torch.einsum("bhid,hjd->bhij", q + self.position, r)
        where = F.pad(where, (1, 0)).reshape(batch, self.heads, 2 * length, length)
        where = where[:, :, 1:].reshape(batch, self.heads, length, 2 * length - 1)[..., :length]
        y = torch.einsum("bhij,bhjd->bhid", (scores + where).softmax(-1), v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return x + self.mlp(self.mlp_norm(x))


class AttentionPool(nn.Module):
    """Of pairs of neighbours each channel takes a mean weighted by a softmax."""

    def __init__(self, c: int):
        super().__init__()
        self.line = nn.Conv2d(c, c, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.pad(x, (0, x.shape[2] % 2))
        pairs = x.unflatten(2, (-1, 2))
        return (pairs * self.line(pairs).softmax(3)).sum(3)


class Enformer(nn.Module):
    """Enformer (Avsec et al., 2021) of half the width and 4 of 11 layers, on 16,000 bases: 125 bins."""

    def __init__(self, c: int = 768, layers: int = 4, bins: int = 125):
        super().__init__()

        def block(a: int, b: int, size: int) -> nn.Module:
            return nn.Sequential(
                nn.BatchNorm1d(a), nn.GELU(approximate="tanh"), nn.Conv1d(a, b, size, padding=size // 2)
            )

        self.first = nn.Conv1d(4, c // 2, 15, padding=7)
        widths = (384, 384, 448, 512, 640, 704, 768)
        self.wide = nn.ModuleList(
            block(a, b, 5) if k else nn.Identity() for k, (a, b) in enumerate(zip((384, *widths), widths))
        )
        self.thin, self.pools = (
            nn.ModuleList(block(b, b, 1) for b in widths),
            nn.ModuleList(AttentionPool(b) for b in widths),
        )
        self.layers = nn.ModuleList(GenomeAttention(c, 8, bins) for _ in range(layers))
        self.after, self.last = block(c, 2 * c, 1), nn.Linear(2 * c, 1643)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for wide, thin, pool in zip(self.wide, self.thin, self.pools, strict=True):
            x = wide(x)
            x = pool(x + thin(x))
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        x = F.gelu(self.after(x.transpose(1, 2)), approximate="tanh").transpose(1, 2)
        return F.softplus(self.last(x[:, 17:-17]))


def nearest(a: torch.Tensor, b: torch.Tensor, k: int) -> torch.Tensor:
    """Of each point of `a` the indices of the k nearest of `b`."""
    apart = a.float()[:, :, None] - b.float()[:, None]
    return (apart * apart).sum(-1).topk(k, dim=-1, largest=False)[1]


def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Rows (batch, n, k, c) of x (batch, m, c)."""
    batch, n, k = index.shape
    rows = x.gather(1, index.reshape(batch, n * k, 1).expand(-1, -1, x.shape[2]))
    return rows.reshape(batch, n, k, x.shape[2])


def pointwise(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Conv2d(a, b, 1), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers)


class PointNet2(nn.Module):
    """PointNet++ for parts (Qi et al., 2017): neighbourhoods within a radius, and values of three points interpolated back."""

    def __init__(self, classes: int = 13):
        super().__init__()
        self.counts, self.radii, self.k = (512, 128), (0.35, 0.7), 32
        self.down = nn.ModuleList(
            [pointwise(6, 64, 64, 128), pointwise(131, 128, 128, 256), pointwise(259, 256, 512, 1024)]
        )
        self.up = nn.ModuleList([pointwise(1280, 256, 256), pointwise(384, 256, 128), pointwise(134, 128, 128)])
        self.last = nn.Sequential(nn.Conv1d(128, 128, 1), nn.ReLU(), nn.Conv1d(128, classes, 1))
        keep_most(self)

    def gather(self, centres: torch.Tensor, points: torch.Tensor, x: torch.Tensor, radius: float) -> torch.Tensor:
        index = nearest(centres, points, self.k)
        apart = take(points, index) - centres[:, :, None]
        near = (apart * apart).sum(-1, keepdim=True) <= radius * radius
        index = torch.where(near[..., 0], index, index[:, :, :1])
        both = torch.cat([take(points, index) - centres[:, :, None], take(x, index)], -1)
        return both.permute(0, 3, 2, 1)

    def spread(self, fine: torch.Tensor, coarse: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        index = nearest(fine, coarse, 3)
        weight = 1 / ((take(coarse, index) - fine[:, :, None]).pow(2).sum(-1, keepdim=True) + 1e-2)
        weight = weight / weight.sum(2, keepdim=True)
        return (take(x, index) * weight).sum(2)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        places, found = [points], [points]
        for count, radius, layer in zip(self.counts, self.radii, self.down, strict=False):
            centres = places[-1][:, :count]
            found.append(layer(self.gather(centres, places[-1], found[-1], radius)).amax(2).transpose(1, 2))
            places.append(centres)
        whole = torch.cat([places[-1], found[-1]], 2).transpose(1, 2)[..., None]
        x = self.down[2](whole).amax(2, keepdim=True).squeeze(-1).transpose(1, 2).expand(-1, self.counts[-1], -1)
        for k, layer in enumerate(self.up):
            if k:
                x = self.spread(places[2 - k], places[3 - k], x)
            kept = torch.cat([found[0], points], 2) if k == 2 else found[2 - k]
            x = layer(torch.cat([kept, x], 2).transpose(1, 2)[..., None]).squeeze(-1).transpose(1, 2)
        return self.last(x.transpose(1, 2))


class VectorAttention(nn.Module):
    """A layer of Point Transformer: weights of each channel for 16 neighbours, from differences and places."""

    def __init__(self, c: int):
        super().__init__()
        self.into, self.qkv, self.out = nn.Linear(c, c), nn.Linear(c, 3 * c, bias=False), nn.Linear(c, c)
        self.place = nn.Sequential(nn.Linear(3, c), nn.ReLU(), nn.Linear(c, c))
        self.weigh = nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c))
        self.norm = nn.LayerNorm(c)

    def forward(self, x: torch.Tensor, points: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(F.relu(self.into(self.norm(x)))).chunk(3, -1)
        place = self.place(points[:, :, None] - take(points, index))
        weights = self.weigh(q[:, :, None] - take(k, index) + place)
        weights = F.softmax(weights / math.sqrt(x.shape[2]), dim=2)
        return x + self.out(torch.einsum("bnkc,bnkc->bnc", weights, take(v, index) + place))


class PointTransformer(nn.Module):
    """Point Transformer (Zhao et al., 2021), five layers and three scales."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256), classes: int = 40):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64))
        self.layers = nn.ModuleList(VectorAttention(c) for c in (64, 128, 128, 256, 256))
        self.down = nn.ModuleList(pointwise(a + 3, b) for a, b in zip(widths, widths[1:]))
        self.last = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, cloud: torch.Tensor) -> torch.Tensor:
        points, x = cloud[..., :3], self.first(cloud)
        index = nearest(points, points, 16)
        x = self.layers[0](x, points, index)
        for k, down in enumerate(self.down):
            centres = points[:, ::4]
            index = nearest(centres, points, 16)
            both = torch.cat([take(points, index) - centres[:, :, None], take(x, index)], -1)
            x = down(both.permute(0, 3, 1, 2)).max(3)[0].transpose(1, 2)
            points = centres
            index = nearest(points, points, 16)
            for layer in self.layers[2 * k + 1 : 2 * k + 3]:
                x = layer(x, points, index)
        return self.last(x.mean(1))


class Painn(nn.Module):
    """PaiNN (Schuett et al., 2021): atoms have numbers and vectors, messages along edges turn one into the other."""

    def __init__(self, c: int = 128, rounds: int = 3, bases: int = 20, cutoff: float = 5.0):
        super().__init__()
        self.c, self.cutoff, self.embed = c, cutoff, nn.Embedding(100, c)
        self.register_buffer("rates", torch.arange(1.0, bases + 1) * math.pi / cutoff)
        self.filters = nn.ModuleList(nn.Linear(bases, 3 * c) for _ in range(rounds))

        def mlp(a: int) -> nn.Module:
            return nn.Sequential(nn.Linear(a, c), nn.SiLU(), nn.Linear(c, 3 * c))

        self.messages, self.updates = (
            nn.ModuleList(mlp(c) for _ in range(rounds)),
            nn.ModuleList(mlp(2 * c) for _ in range(rounds)),
        )
        self.mixes = nn.ModuleList(nn.Linear(c, 2 * c, bias=False) for _ in range(rounds))
        self.last = nn.Sequential(nn.Linear(c, c // 2), nn.SiLU(), nn.Linear(c // 2, 1))
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, 1.5)  # vectors start at zero

    def forward(
        self, kinds: torch.Tensor, places: torch.Tensor, ends: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        c = self.c
        s = self.embed(kinds)
        batch, atoms, _ = s.shape
        v = torch.zeros(batch, atoms, 3 * c, dtype=s.dtype, device=s.device)
        source, target = ends[:, 0, :, None], ends[:, 1, :, None]
        apart = places.gather(1, source.expand(-1, -1, 3)) - places.gather(1, target.expand(-1, -1, 3))
        distance = apart.norm(dim=-1, keepdim=True).clamp(min=0.1)
        unit = (apart / distance)[..., None]
        waves = torch.sin(distance * self.rates) / distance
        fade = 0.5 * (torch.cos(distance * (math.pi / self.cutoff)) + 1) * (distance < self.cutoff).to(s.dtype)
        for filters, message, update, mix in zip(self.filters, self.messages, self.updates, self.mixes, strict=True):
            m = message(s).gather(1, source.expand(-1, -1, 3 * c)) * filters(waves) * fade
            ds, vs, vv = torch.split(m, c, -1)
            near = v.gather(1, source.expand(-1, -1, 3 * c)).view(batch, -1, 3, c)
            dv = (vs[:, :, None] * unit + vv[:, :, None] * near).flatten(2)
            s = s + torch.zeros_like(s).scatter_add(1, target.expand(-1, -1, c), ds) / 4
            v = v + torch.zeros_like(v).scatter_add(1, target.expand(-1, -1, 3 * c), dv) / 4
            left, right = mix(v.view(batch, atoms, 3, c)).chunk(2, -1)
            length = (right.pow(2).sum(2) + 1e-4).sqrt()
            a, b, d = update(torch.cat([s, length], -1)).chunk(3, -1)
            s = s + a + b * (left * right).sum(2)
            v = v + (d[:, :, None] * left).flatten(2)
        return self.last(s).sum(1) / atoms, v.view(batch, atoms, 3, c).mean(-1)


def molecules(batch: int, atoms: int = 333, edges: int = 5000) -> tuple[torch.Tensor, ...]:
    r = seeded()
    source = torch.randint(0, atoms, (batch, edges), generator=r)
    target = (source + torch.randint(1, atoms, (batch, edges), generator=r)) % atoms
    places = 2 * torch.randn(batch, atoms, 3, generator=r)
    return torch.randint(1, 100, (batch, atoms), generator=r), places, torch.stack([source, target], 1)


class Graphormer(nn.Module):
    """Graphormer (Ying et al., 2021), six layers: 32 heads of 24 elements, biases from distances and edges of paths."""

    def __init__(self, c: int = 768, heads: int = 32, layers: int = 6, path: int = 5):
        super().__init__()
        self.heads = heads
        self.nodes, self.degrees = nn.Embedding(512, c), nn.Embedding(64, c)
        self.distances, self.edges = nn.Embedding(40, heads), nn.Embedding(64, heads)
        self.steps, self.virtual = (
            nn.Parameter(torch.randn(path, heads, heads) / math.sqrt(heads)),
            nn.Parameter(torch.randn(heads)),
        )
        self.token = nn.Parameter(torch.randn(1, 1, c))
        self.qkv, self.out = (nn.ModuleList(nn.Linear(c, b) for _ in range(layers)) for b in (3 * c, c))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(c, c), nn.GELU(), nn.Linear(c, c)) for _ in range(layers))
        self.last = nn.Linear(c, 1)

    def forward(
        self, ids: torch.Tensor, degrees: torch.Tensor, distances: torch.Tensor, paths: torch.Tensor
    ) -> torch.Tensor:
        batch, count = ids.shape[:2]
        x = self.nodes(ids).sum(2) / 3 + self.degrees(degrees)
        x = torch.cat([self.token.expand(batch, -1, -1), x], 1)
        steps = torch.einsum("bijph,phk->bijk", self.edges(paths), self.steps) / distances.clamp(1, 5)[..., None]
        inner = (self.distances(distances) + steps).permute(0, 3, 1, 2)
        bias = torch.zeros(batch, self.heads, count + 1, count + 1, dtype=x.dtype, device=x.device)
        bias[:, :, 1:, 1:] = inner
        bias[:, :, 1:, 0] = bias[:, :, 1:, 0] + self.virtual[:, None]
        bias[:, :, 0, :] = bias[:, :, 0, :] + self.virtual[:, None]
        for k, (qkv, out, mlp) in enumerate(zip(self.qkv, self.out, self.mlps, strict=True)):
            y = qkv(self.norms[2 * k](x)).view(batch, count + 1, 3, self.heads, -1)
            q, key, v = y.permute(2, 0, 3, 1, 4).unbind(0)
            scores = torch.matmul(q * q.shape[-1] ** -0.5, key.transpose(2, 3)) + bias
            y = torch.matmul(scores.softmax(-1), v).permute(0, 2, 1, 3).reshape(batch, count + 1, -1)
            x = x + out(y)
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.last(self.norms[-1](x)[:, 0])


def graphs(batch: int, nodes: int = 90) -> tuple[torch.Tensor, ...]:
    r = seeded()
    ids, degrees = (
        torch.randint(0, 512, (batch, nodes, 9), generator=r),
        torch.randint(0, 64, (batch, nodes), generator=r),
    )
    distances = torch.randint(0, 40, (batch, nodes, nodes), generator=r)
    return ids, degrees, distances, torch.randint(0, 64, (batch, nodes, nodes, 5), generator=r)


class SetTransformer(nn.Module):
    """Set Transformer (Lee et al., 2019): 1000 elements attend through 32 induced points, four seeds collect them."""

    def __init__(self, into: int = 80, c: int = 320, heads: int = 4, induced: int = 32):
        super().__init__()
        self.heads, self.first = heads, nn.Linear(into, c)
        self.points = nn.ParameterList(nn.Parameter(torch.randn(1, n, c)) for n in (induced, induced, 4))
        self.lines = nn.ModuleList(nn.ModuleList(nn.Linear(c, c) for _ in range(4)) for _ in range(6))
        self.norms = nn.ModuleList(nn.ModuleList(nn.LayerNorm(c) for _ in range(2)) for _ in range(6))
        self.last = nn.Linear(c, 10)

    def attend(self, n: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        to_q, to_k, to_v, out = self.lines[n]
        q, k, v = to_q(x), to_k(y), to_v(y)
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (q.expand(y.shape[0], -1, -1), k, v))
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), 3)
        h = (q + weights @ v).transpose(1, 2).flatten(2)
        h = self.norms[n][0](h)
        return self.norms[n][1](h + F.relu(out(h)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for k in range(2):
            x = self.attend(2 * k + 1, x, self.attend(2 * k, self.points[k], x))
        y = self.attend(4, self.points[2], x)
        return self.last(self.attend(5, y, y))


class FourierOperator(nn.Module):
    """A Fourier neural operator for Darcy flow (Li et al., 2021): 85 x 85 points, 12 x 12 waves."""

    def __init__(self, c: int = 64, waves: int = 12, layers: int = 4):
        super().__init__()
        self.waves, self.first = waves, nn.Linear(3, c)
        self.low, self.high = (
            nn.ParameterList(nn.Parameter(torch.randn(c, c, waves, waves, 2) / c**0.5) for _ in range(layers))
            for _ in range(2)
        )
        self.lines = nn.ModuleList(nn.Conv2d(c, c, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.Linear(c, 128), nn.GELU(), nn.Linear(128, 1))
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                nn.init.xavier_normal_(layer.weight, 1.5)  # values that differ

    def multiply(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = x.unbind(-1)
        real, imaginary = w.float().unbind(-1)
        re = torch.einsum("bixy,ioxy->boxy", a, real) - torch.einsum("bixy,ioxy->boxy", b, imaginary)
        im = torch.einsum("bixy,ioxy->boxy", a, imaginary) + torch.einsum("bixy,ioxy->boxy", b, real)
        return torch.stack([re, im], -1)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        batch, h, w, _ = a.shape
        y = torch.linspace(0, 1, h, device=a.device, dtype=a.dtype)[None, :, None, None].expand(batch, -1, w, 1)
        x = torch.linspace(0, 1, w, device=a.device, dtype=a.dtype)[None, None, :, None].expand(batch, h, -1, 1)
        u = F.pad(self.first(torch.cat([a, y, x], -1)).permute(0, 3, 1, 2), (0, 9, 0, 9))
        m, h2, w2 = self.waves, h + 9, w + 9
        for k, (low, high, line) in enumerate(zip(self.low, self.high, self.lines, strict=True)):
            f = torch.view_as_real(torch.fft.rfft2(u.float()))
            top, bottom = self.multiply(f[:, :, :m, :m], low), self.multiply(f[:, :, -m:, :m], high)
            f = torch.cat([top, torch.zeros_like(f[:, :, m:-m, :m]), bottom], 2)
            f = F.pad(f, (0, 0, 0, w2 // 2 + 1 - m))
            spectral = torch.fft.irfft2(torch.view_as_complex(f), s=(h2, w2)).to(u.dtype)
            u = spectral + line(u)
            u = F.gelu(u) if k < len(self.lines) - 1 else u
        return self.last(u[..., :h, :w].permute(0, 2, 3, 1))


def cloud(count: int, width: int = 3) -> Inputs:
    """Places that fp16 holds: the same neighbours in every precision."""
    return lambda batch: (normal((count, width))(batch)[0].half().float(),)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "evoformer_2": (Evoformer, normal((40, 77, 256), (77, 77, 128))),
    "enformer_4": (Enformer, normal((4, 16000))),
    "pointnet2": (PointNet2, cloud(2048)),
    "point_transformer_5": (PointTransformer, cloud(1024, 6)),
    "painn": (Painn, molecules),
    "graphormer_6": (Graphormer, graphs),
    "set_transformer": (SetTransformer, normal((1000, 80))),
    "fno_2d": (FourierOperator, normal((85, 85, 1))),
}
