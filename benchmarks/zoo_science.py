"""Weather, operators, molecules and graphs, for the zoo: windows of a globe, messages between a grid and a mesh,
Galerkin attention, pairs and windows of atoms, and gated edges."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class Mlp(nn.Sequential):
    def __init__(self, a: int, hidden: int, b: int | None = None):
        super().__init__(nn.Linear(a, hidden), nn.GELU(), nn.Linear(hidden, b or a))


class GlobeLayer(nn.Module):
    """Pangu-Weather's block: windows of 2 x 6 x 12 in height, latitude and longitude, of which each latitude and height has a bias
    of its own; every other block is shifted, around the globe only along longitude."""

    def __init__(
        self, c: int, heads: int, sides: tuple[int, int, int], shifted: bool, window: tuple[int, int, int] = (2, 6, 12)
    ):
        super().__init__()
        self.heads, self.sides, self.window, self.shifted = heads, sides, window, shifted
        (z, h, w), (a, b, d) = sides, window
        n, kinds = a * b * d, (z // a) * (h // b)
        self.norm1, self.norm2, self.mlp = nn.LayerNorm(c), nn.LayerNorm(c), Mlp(c, 4 * c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.bias = nn.Parameter(0.3 * torch.randn(a * a * b * b * (2 * d - 1), kinds, heads))
        at = torch.stack(torch.meshgrid(*(torch.arange(k) for k in window), indexing="ij")).flatten(1)
        i, j = at[:, :, None], at[:, None]
        index = ((i[0] * a + j[0]) * b + i[1]) * b + j[1]
        self.register_buffer("index", (index * (2 * d - 1) + i[2] - j[2] + d - 1).flatten())
        part = torch.zeros(z, h, 1)
        part[z - a // 2 :] += 1
        part[:, h - b // 2 :] += 2
        parts = self.split(part.expand(z, h, w)[None, ..., None].contiguous())[0, ..., 0]
        mask = (parts[..., None, :] != parts[..., None]).float() * -100.0
        self.register_buffer("mask", mask[:, :1, None] if shifted else None)
        self.n = n

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, kinds, columns, tokens of a window, c]."""
        (z, h, w), (a, b, d) = self.sides, self.window
        x = x.view(x.shape[0], z // a, a, h // b, b, w // d, d, -1).permute(0, 1, 3, 5, 2, 4, 6, 7)
        return x.reshape(x.shape[0], z // a * (h // b), w // d, a * b * d, -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, c = x.shape
        (z, h, w), (a, b, d) = self.sides, self.window
        y = x.view(batch, z, h, w, c)
        if self.shifted:
            y = y.roll((-(a // 2), -(b // 2), -(d // 2)), (1, 2, 3))
        y = self.split(y)
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(4, 0, 1, 2, 5, 3, 6).unbind(0)
        bias = self.bias[self.index].view(self.n, self.n, -1, self.heads).permute(2, 3, 0, 1)[None, :, None]
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
        if self.shifted:
            scores = scores + self.mask
        y = self.out((scores.softmax(-1) @ v).transpose(3, 4).flatten(4))
        y = y.view(batch, z // a, h // b, w // d, a, b, d, c).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(batch, z, h, w, c)
        if self.shifted:
            y = y.roll((a // 2, b // 2, d // 2), (1, 2, 3))
        x = x + self.norm1(y.reshape(batch, -1, c))
        return x + self.norm2(self.mlp(x))


class GlobalWeather(nn.Module):
    """Pangu-Weather (Bi et al., 2023) on a grid of 2 degrees, four blocks: 13 levels and the surface as patches of 2 x 4 x 4."""

    def __init__(self, c: int = 96, heads: int = 6, sides: tuple[int, int, int] = (8, 24, 48)):
        super().__init__()
        self.sides = sides
        self.air, self.ground = nn.Conv3d(5, c, (2, 4, 4), (2, 4, 4)), nn.Conv2d(7, c, 4, 4)
        self.first = nn.ModuleList(GlobeLayer(c, heads, sides, k == 1) for k in range(2))
        z, h, w = sides
        self.norm, self.less = nn.LayerNorm(4 * c), nn.Linear(4 * c, 2 * c, bias=False)
        self.middle = nn.ModuleList(GlobeLayer(2 * c, 2 * heads, (z, h // 2, w // 2), k == 1) for k in range(2))
        self.more, self.mix = nn.Linear(2 * c, 4 * c, bias=False), nn.Linear(c, c)
        self.air_out, self.ground_out = (
            nn.ConvTranspose3d(2 * c, 5, (2, 4, 4), (2, 4, 4)),
            nn.ConvTranspose2d(2 * c, 4, 4, 4),
        )

    def forward(self, air: torch.Tensor, ground: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, h, w = self.sides
        x = self.air(F.pad(air, (0, 0, 0, 0, 0, 1)))
        x = torch.cat([self.ground(ground)[:, :, None], x], 2)
        x = x.flatten(2).transpose(1, 2)
        for layer in self.first:
            x = layer(x)
        kept = x
        y = x.view(-1, z, h // 2, 2, w // 2, 2, x.shape[2]).permute(0, 1, 2, 4, 3, 5, 6).flatten(4).flatten(1, 3)
        y = self.less(self.norm(y))
        for layer in self.middle:
            y = layer(y)
        y = self.more(y).view(-1, z, h // 2, w // 2, 2, 2, x.shape[2]).permute(0, 1, 2, 4, 3, 5, 6).reshape(kept.shape)
        x = torch.cat([self.mix(y), kept], 2).transpose(1, 2).unflatten(2, (z, h, w))
        return self.air_out(x[:, :, 1:])[:, :, :13], self.ground_out(x[:, :, 0])


class GridMesh(nn.Module):
    """GraphCast (Lam et al., 2023), three of 16 steps, width 256: a grid of 1800 points, a mesh of 642 nodes and the edges
    between; messages are sums over edges."""

    def __init__(self, c: int = 256, into: int = 78, grid: int = 1800, mesh: int = 642, steps: int = 3, out: int = 39):
        super().__init__()
        r = seeded()
        self.mesh = mesh
        mlp = lambda a, b=c: nn.Sequential(nn.Linear(a, c), nn.SiLU(), nn.Linear(c, b), nn.LayerNorm(b))
        edges = {"up": (grid, mesh, 2 * grid), "round": (mesh, mesh, 8 * mesh), "down": (mesh, grid, 3 * grid)}
        for name, (a, b, count) in edges.items():
            self.register_buffer(f"{name}_from", torch.randint(0, a, (count,), generator=r))
            self.register_buffer(f"{name}_to", torch.randint(0, b, (count,), generator=r))
            self.register_buffer(f"{name}_edges", torch.randn(count, 4, generator=r))
        self.register_buffer("mesh_nodes", torch.randn(mesh, 3, generator=r))
        self.grid_in, self.mesh_in, self.edge_in = mlp(into), mlp(3), nn.ModuleDict({k: mlp(4) for k in edges})
        self.up_edge, self.up_mesh, self.up_grid = mlp(3 * c), mlp(2 * c), mlp(c)
        self.edges, self.nodes = (
            nn.ModuleList(mlp(3 * c) for _ in range(steps)),
            nn.ModuleList(mlp(2 * c) for _ in range(steps)),
        )
        self.down_edge, self.down_grid = mlp(3 * c), mlp(2 * c)
        self.last = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, out))

    def message(self, name: str, mlp: nn.Module, edges: torch.Tensor, a: torch.Tensor, b: torch.Tensor):
        """New edges, and their sums at the receivers."""
        source, to = getattr(self, f"{name}_from"), getattr(self, f"{name}_to")
        new = mlp(torch.cat([edges.expand(a.shape[0], -1, -1), a[:, source], b[:, to]], 2))
        return new, torch.zeros_like(b).index_add(1, to, new)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        g = self.grid_in(fields)
        m = self.mesh_in(self.mesh_nodes).expand(g.shape[0], -1, -1)
        e = {k: f(getattr(self, f"{k}_edges")) for k, f in self.edge_in.items()}
        _, sums = self.message("up", self.up_edge, e["up"], g, m)
        m = m + self.up_mesh(torch.cat([m, sums], 2))
        g = g + self.up_grid(g)
        around = e["round"]
        for edge, node in zip(self.edges, self.nodes, strict=True):
            new, sums = self.message("round", edge, around, m, m)
            m, around = m + node(torch.cat([m, sums], 2)), around + new
        _, sums = self.message("down", self.down_edge, e["down"], m, g)
        return self.last(g + self.down_grid(torch.cat([g, sums], 2)))


class GalerkinOperator(nn.Module):
    """The Galerkin transformer (Cao, 2021): four layers of attention without softmax, normalised keys and values with their
    coordinates, over 43 x 43 points, then a spectral layer as products with fixed waves."""

    def __init__(self, c: int = 128, heads: int = 4, layers: int = 4, side: int = 43, modes: int = 12):
        super().__init__()
        self.heads, self.side = heads, side
        self.first = nn.Linear(3, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.q, self.k, self.v, self.out = (
            each(lambda: nn.Linear(c, c)),
            each(lambda: nn.Linear(c, c)),
            each(lambda: nn.Linear(c, c)),
            each(lambda: nn.Linear(c + 2 * heads, c)),
        )
        norm = lambda: nn.ModuleList(nn.LayerNorm(c // heads) for _ in range(heads))
        self.norm_k, self.norm_v = each(norm), each(norm)
        self.mlps = each(lambda: nn.Sequential(nn.Linear(c, 2 * c), nn.SiLU(), nn.Linear(2 * c, c)))
        angles = 2 * math.pi * torch.arange(side)[:, None] * torch.arange(modes) / side
        self.register_buffer("waves", torch.cat([angles.cos(), angles.sin()], 1) / side**0.5)
        self.spectral = nn.ParameterList(
            nn.Parameter(torch.randn(2 * modes, 2 * modes, c, c) / c**0.5) for _ in range(1)
        )
        self.skip, self.last = nn.Linear(c, c), nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, 1))
        y, x = torch.meshgrid(torch.linspace(0, 1, side), torch.linspace(0, 1, side), indexing="ij")
        self.register_buffer("places", torch.stack([x, y], 2).flatten(0, 1))

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        split = lambda t: t.unflatten(2, (self.heads, -1)).transpose(1, 2)
        q, key, v = split(self.q[k](x)), split(self.k[k](x)), split(self.v[k](x))
        key = torch.stack([f(key[:, i]) for i, f in enumerate(self.norm_k[k])], 1)
        v = torch.stack([f(v[:, i]) for i, f in enumerate(self.norm_v[k])], 1)
        places = self.places.expand(x.shape[0], self.heads, -1, -1)
        q, key, v = (torch.cat([places, t], 3) for t in (q, key, v))
        y = q @ (key.transpose(2, 3) / x.shape[1] @ v)
        return self.out[k](y.transpose(1, 2).flatten(2))

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        x = self.first(torch.cat([a, self.places.expand(a.shape[0], -1, -1)], 2))
        for k, mlp in enumerate(self.mlps):
            x = x + self.attend(k, x)
            x = x + mlp(x)
        image = x.unflatten(1, (self.side, self.side))
        for weight in self.spectral:
            modes = torch.einsum("bxyc,xm,yn->bmnc", image, self.waves, self.waves)
            modes = torch.einsum("bmnc,mncd->bmnd", modes, weight)
            image = F.silu(torch.einsum("bmnd,xm,yn->bxyd", modes, self.waves, self.waves) + self.skip(image))
        return self.last(image).flatten(1, 2)


class AtomWindows(nn.Module):
    """AlphaFold 3's atom transformer (Abramson et al., 2024), three blocks over 1024 atoms: 32 queries see 128 keys around them
    with a bias of pairs, adaptive norms, gated transitions, and means of atoms for each of 128 tokens."""

    def __init__(
        self, c: int = 128, pair: int = 16, heads: int = 4, layers: int = 3, atoms: int = 1024, tokens: int = 128
    ):
        super().__init__()
        self.heads, self.count, self.tokens = heads, atoms // 32, tokens
        self.feature, self.place = nn.Linear(20, c), nn.Linear(3, c, bias=False)
        self.off, self.far, self.near = (
            nn.Linear(3, pair, bias=False),
            nn.Linear(1, pair, bias=False),
            nn.Linear(c, 2 * pair),
        )
        self.pair_mlp = nn.Sequential(nn.ReLU(), nn.Linear(pair, pair), nn.ReLU(), nn.Linear(pair, pair))
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.ada = each(lambda: nn.ModuleList(nn.Linear(c, 2 * c) for _ in range(2)))
        self.qkv, self.gate, self.out = (
            each(lambda: nn.Linear(c, 3 * c)),
            each(lambda: nn.Linear(c, c)),
            each(lambda: nn.Linear(c, c)),
        )
        self.bias, self.norm_pair = each(lambda: nn.Linear(pair, heads, bias=False)), each(lambda: nn.LayerNorm(pair))
        self.gates = each(lambda: nn.ModuleList(nn.Linear(c, c) for _ in range(2)))
        self.wide, self.narrow = (
            each(lambda: nn.Linear(c, 4 * c, bias=False)),
            each(lambda: nn.Linear(2 * c, c, bias=False)),
        )
        self.plain, self.last = nn.LayerNorm(c, elementwise_affine=False), nn.Linear(c, 384)
        start = 32 * torch.arange(self.count)[:, None] - 48 + torch.arange(128)
        self.register_buffer("keys", start.clamp(0, atoms - 1))
        self.register_buffer("mask", torch.where((start >= 0) & (start < atoms), 0.0, -1e4))
        self.register_buffer("token", torch.sort(torch.randint(0, tokens, (atoms,), generator=seeded()))[0])

    def adapt(self, linear: nn.Linear, x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        scale, shift = linear(self.plain(s)).chunk(2, -1)
        return scale.sigmoid() * self.plain(x) + shift

    def forward(self, features: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        b, n = features.shape[:2]
        s = self.feature(features)
        x = s + self.place(places)
        rows = lambda t: t.unflatten(1, (self.count, 32))
        off = rows(places)[:, :, :, None] - places[:, self.keys][:, :, None]
        pair = self.off(off) + self.far(1 / (1 + off.square().sum(-1, keepdim=True)))
        a, c = self.near(F.relu(s)).chunk(2, -1)
        pair = pair + rows(a)[:, :, :, None] + c[:, self.keys][:, :, None]
        pair = pair + self.pair_mlp(pair)
        heads = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(2, 3)
        for k, (ada, gates) in enumerate(zip(self.ada, self.gates, strict=True)):
            y = self.adapt(ada[0], x, s)
            q, key, v = self.qkv[k](y).chunk(3, -1)
            q, key, v = heads(rows(q)), heads(key[:, self.keys]), heads(v[:, self.keys])
            bias = self.bias[k](self.norm_pair[k](pair)).permute(0, 1, 4, 2, 3) + self.mask[:, None, None]
            weights = (q @ key.transpose(3, 4) / q.shape[-1] ** 0.5 + bias).softmax(-1)
            z = (weights @ v).transpose(2, 3).reshape(b, n, -1)
            x = x + gates[0](s).sigmoid() * self.out[k](z * self.gate[k](y).sigmoid())
            one, two = self.wide[k](self.adapt(ada[1], x, s)).chunk(2, -1)
            x = x + gates[1](s).sigmoid() * self.narrow[k](F.silu(one) * two)
        y = F.relu(self.last(x))
        # A mean, which torch.onnx exports as a plain assignment if scatter_reduce computes it.
        index = self.token[None, :, None].expand(b, -1, -1)
        zeros = lambda c: torch.zeros(b, self.tokens, c, dtype=y.dtype, device=y.device)
        sums = zeros(y.shape[2]).scatter_add(1, index.expand(-1, -1, y.shape[2]), y)
        counts = zeros(1).scatter_add(1, index, torch.ones_like(y[..., :1]))
        return sums / counts.clamp_min(1)


class GraphRecipe(nn.Module):
    """GraphGPS (Rampášek et al., 2022), three layers: gated messages along the edges of a batch of graphs beside attention over
    all 64 nodes of each."""

    def __init__(self, c: int = 128, heads: int = 4, layers: int = 3):
        super().__init__()
        self.node, self.edge, self.walk = nn.Embedding(28, c), nn.Embedding(4, c), nn.Linear(16, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        linear = lambda: each(lambda: nn.Linear(c, c))
        self.a, self.b, self.d, self.e, self.f = (linear() for _ in range(5))
        self.attention = each(lambda: nn.MultiheadAttention(c, heads, batch_first=True))
        self.norms, self.edge_norms = (
            each(lambda: nn.ModuleList(nn.BatchNorm1d(c) for _ in range(4))),
            each(lambda: nn.BatchNorm1d(c)),
        )
        self.mlps, self.last = (
            each(lambda: nn.Sequential(nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c))),
            nn.Linear(c, 1),
        )

    def forward(
        self, kinds: torch.Tensor, walks: torch.Tensor, bonds: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        x, e = self.node(kinds) + self.walk(walks), self.edge(bonds)
        source, to = (ends[:, k, :, None].expand(-1, -1, x.shape[2]) for k in range(2))
        norm = lambda f, t: f(t.transpose(1, 2)).transpose(1, 2)
        for k, (norms, mlp) in enumerate(zip(self.norms, self.mlps, strict=True)):
            e_new = self.d[k](x).gather(1, to) + self.e[k](x).gather(1, source) + self.f[k](e)
            gate = e_new.sigmoid()
            total = torch.zeros_like(x).scatter_add(1, to, gate * self.b[k](x).gather(1, source))
            weight = torch.zeros_like(x).scatter_add(1, to, gate)
            local = x + F.relu(norm(norms[0], self.a[k](x) + total / (weight + 1e-4)))
            e = e + F.relu(norm(self.edge_norms[k], e_new))
            whole = x + self.attention[k](x, x, x, need_weights=False)[0]
            x = norm(norms[1], local) + norm(norms[2], whole)
            x = norm(norms[3], x + mlp(x))
        return self.last(x.mean(1))


def bonded(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    number = lambda high, *shape: torch.randint(0, high, (batch, *shape), generator=r)
    return number(28, 64), torch.randn(batch, 64, 16, generator=r), number(4, 256), number(64, 2, 256)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "pangu_4": (GlobalWeather, normal((5, 13, 96, 192), (7, 96, 192))),
    "graph_cast_3": (GridMesh, normal((1800, 78))),
    "galerkin_4": (GalerkinOperator, normal((1849, 1))),
    "atom_windows_3": (AtomWindows, normal((1024, 20), (1024, 3))),
    "graph_gps_3": (GraphRecipe, bonded),
}
