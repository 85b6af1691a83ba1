"""Molecules, graphs, weather and operators of physics, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class Egnn(nn.Module):
    """EGNN (Satorras et al., 2021) for molecules of 29 atoms, all pairs: seven rounds that move the atoms too."""

    def __init__(self, c: int = 128, rounds: int = 7, traits: int = 15):
        super().__init__()
        self.first = nn.Linear(traits, c)

        def mlp(a: int, b: int, last: list[nn.Module]) -> nn.Module:
            return nn.Sequential(nn.Linear(a, c), nn.SiLU(), nn.Linear(c, b), *last)

        self.pairs = nn.ModuleList(mlp(2 * c + 1, c, [nn.SiLU()]) for _ in range(rounds))
        self.nodes = nn.ModuleList(mlp(2 * c, c, []) for _ in range(rounds))
        self.moves = nn.ModuleList(mlp(c, 1, [nn.Tanh()]) for _ in range(rounds))
        self.gates = nn.ModuleList(nn.Linear(c, 1) for _ in range(rounds))
        self.each, self.whole = mlp(c, c, []), mlp(c, 1, [])

    def forward(self, traits: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, x = self.first(traits.flatten(0, 1)), places.flatten(0, 1)
        count = h.shape[1]
        other = 1 - torch.eye(count, dtype=h.dtype, device=h.device)[..., None]
        for pair, node, move, gate in zip(self.pairs, self.nodes, self.moves, self.gates, strict=True):
            apart = x[:, :, None] - x[:, None]
            square = apart.pow(2).sum(-1, keepdim=True)
            left, right = h[:, :, None].expand(-1, -1, count, -1), h[:, None].expand(-1, count, -1, -1)
            m = pair(torch.cat([left, right, square], 3))
            m = m * torch.sigmoid(gate(m)) * other
            x = x + (apart / (square + 1e-2).sqrt() * move(m) * other).mean(2)
            h = h + node(torch.cat([h, m.sum(2)], 2))
        return self.whole(self.each(h).sum(1) / count), x


class Directions(nn.Module):
    """DimeNet++ (Gasteiger et al., 2020), its four blocks: messages of edges, which depend on angles between edges."""

    def __init__(
        self, c: int = 128, inner: int = 64, blocks: int = 4, radial: int = 6, angular: int = 7, reach: float = 5.0
    ):
        super().__init__()
        self.reach, self.angular, self.embed = reach, angular, nn.Embedding(95, c)
        self.register_buffer("rates", torch.arange(1.0, radial + 1) * math.pi / reach)
        self.first_waves, self.first = nn.Linear(radial, c), nn.Linear(3 * c, c)

        def lines(a: int, b: int, count: int = blocks, bias: bool = False) -> nn.ModuleList:
            return nn.ModuleList(nn.Linear(a, b, bias=bias) for _ in range(count))

        self.waves1, self.waves2 = lines(radial, 8), lines(8, c)
        self.angles1, self.angles2 = lines(radial * angular, 8), lines(8, inner)
        self.own, self.neighbours = lines(c, c, bias=True), lines(c, c, bias=True)
        self.down, self.up = lines(c, inner), lines(inner, c)
        self.residuals = nn.ModuleList(
            nn.ModuleList(nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, c), nn.SiLU()) for _ in range(3))
            for _ in range(blocks)
        )
        self.out_waves, self.out_up = lines(radial, c, blocks + 1), lines(c, 256, blocks + 1)
        self.outs = nn.ModuleList(
            nn.Sequential(
                *(nn.Sequential(nn.Linear(256, 256), nn.SiLU()) for _ in range(3)), nn.Linear(256, 1, bias=False)
            )
            for _ in range(blocks + 1)
        )
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, 1.2)  # angles matter

    def read(self, k: int, x: torch.Tensor, waves: torch.Tensor, target: torch.Tensor, atoms: int) -> torch.Tensor:
        x = self.out_waves[k](waves) * x
        zero = torch.zeros(x.shape[0], atoms, x.shape[2], dtype=x.dtype, device=x.device)
        each = zero.scatter_add(1, target[..., None].expand(-1, -1, x.shape[2]), x)
        return self.outs[k](self.out_up[k](each)).sum(1) / atoms

    def forward(
        self, kinds: torch.Tensor, places: torch.Tensor, ends: torch.Tensor, both: torch.Tensor
    ) -> torch.Tensor:
        source, target = ends.unbind(1)
        atoms = kinds.shape[1]
        apart = places.gather(1, source[..., None].expand(-1, -1, 3)) - places.gather(
            1, target[..., None].expand(-1, -1, 3)
        )
        distance = (apart.pow(2).sum(-1, keepdim=True) + 1e-2).sqrt()
        d = distance / self.reach
        fade = (1 - 6 * d**5 + 15 * d**4 - 10 * d**3) * (d < 1).to(d.dtype)
        waves = torch.sin(distance * self.rates) * fade / distance
        one, two = both.unbind(1)
        unit = apart / distance
        cosine = (
            unit.gather(1, one[..., None].expand(-1, -1, 3)) * unit.gather(1, two[..., None].expand(-1, -1, 3))
        ).sum(-1)
        legendre = [torch.ones_like(cosine), cosine]
        for n in range(1, self.angular - 1):
            legendre.append(((2 * n + 1) * cosine * legendre[n] - n * legendre[n - 1]) / (n + 1))
        near = waves.gather(1, one[..., None].expand(-1, -1, waves.shape[2]))
        angles = (torch.stack(legendre, -1)[..., None] * near[..., None, :]).flatten(2)
        e = self.embed(kinds)
        c = e.shape[2]
        left, right = (e.gather(1, t[..., None].expand(-1, -1, c)) for t in (source, target))
        x = F.silu(self.first(torch.cat([left, right, F.silu(self.first_waves(waves))], 2)))
        total = self.read(0, x, waves, target, atoms)
        for k, residuals in enumerate(self.residuals):
            y = F.silu(self.neighbours[k](x)) * self.waves2[k](self.waves1[k](waves))
            y = F.silu(self.down[k](y))
            y = y.gather(1, one[..., None].expand(-1, -1, y.shape[2])) * self.angles2[k](self.angles1[k](angles))
            zero = torch.zeros(x.shape[0], x.shape[1], y.shape[2], dtype=x.dtype, device=x.device)
            y = zero.scatter_add(1, two[..., None].expand(-1, -1, y.shape[2]), y)
            h = F.silu(self.own[k](x)) + F.silu(self.up[k](y))
            h = h + residuals[0](h)
            x = x + h
            for layer in residuals[1:]:
                x = x + layer(x)
            x = x * 0.5
            total = total + self.read(k + 1, x, waves, target, atoms)
        return total


def triplets(batch: int, atoms: int = 60, edges: int = 700, triples: int = 4000) -> tuple[torch.Tensor, ...]:
    """Pairs of edges of which one ends where the other begins."""
    r = seeded()
    source = torch.randint(0, atoms, (batch, edges), generator=r)
    target = (source + torch.randint(1, atoms, (batch, edges), generator=r)) % atoms
    two = torch.randint(0, edges, (batch, triples), generator=r)
    meets = target[:, None] == source.gather(1, two)[..., None]  # batch, triples, edges
    one = torch.multinomial((meets + 1e-6).flatten(0, 1), 1, generator=r).view(batch, triples)
    places = 1.5 * torch.randn(batch, atoms, 3, generator=r)
    return (
        torch.randint(1, 95, (batch, atoms), generator=r),
        places,
        torch.stack([source, target], 1),
        torch.stack([one, two], 1),
    )


class Aggregators(nn.Module):
    """PNA (Corso et al., 2020): means, extremes and deviations of neighbours, each scaled three ways; four layers of width 75."""

    def __init__(self, c: int = 75, towers: int = 5, layers: int = 4):
        super().__init__()
        self.towers, self.embed, self.edges = towers, nn.Embedding(28, c), nn.Embedding(4, 50)
        self.kinds = nn.ModuleList(nn.Linear(50, c) for _ in range(layers))
        self.before = nn.ParameterList(
            nn.Parameter(torch.randn(towers, 3 * c, c) / (3 * c) ** 0.5) for _ in range(layers)
        )
        self.after = nn.ParameterList(
            nn.Parameter(torch.randn(towers, 13 * c, c // towers) / (13 * c) ** 0.5) for _ in range(layers)
        )
        self.lines, self.norms = (
            nn.ModuleList(nn.Linear(c, c) for _ in range(layers)),
            nn.ModuleList(nn.BatchNorm1d(c) for _ in range(layers)),
        )
        self.head = nn.Sequential(nn.Linear(c, 50), nn.ReLU(), nn.Linear(50, 25), nn.ReLU(), nn.Linear(25, 1))

    def forward(self, nodes: torch.Tensor, ends: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        source, target = ends.unbind(1)
        x, e = self.embed(nodes), self.edges(kinds)
        batch, count, c = x.shape
        ones = torch.ones(target.shape, dtype=x.dtype, device=x.device)
        degree = torch.zeros(batch, count, dtype=x.dtype, device=x.device).scatter_add(1, target, ones)
        scale = (torch.log(degree + 1) / 1.4)[..., None, None]
        degree = degree[..., None, None]
        for kind, before, after, line, norm in zip(
            self.kinds, self.before, self.after, self.lines, self.norms, strict=True
        ):
            left = x.gather(1, target[..., None].expand(-1, -1, c))
            right = x.gather(1, source[..., None].expand(-1, -1, c))
            m = torch.einsum("bec,tcd->betd", torch.cat([left, right, kind(e)], 2), before)
            where = target[..., None, None].expand_as(m)
            zero = torch.zeros(batch, count, self.towers, c, dtype=x.dtype, device=x.device)
            mean = zero.scatter_add(1, where, m) / degree
            square = zero.scatter_add(1, where, m * m) / degree
            deviation = (F.relu(square - mean * mean) + 1e-3).sqrt()
            high = (zero - 100).scatter_reduce(1, where, m, "amax")
            low = (zero + 100).scatter_reduce(1, where, m, "amin")
            y = torch.cat([mean, low, high, deviation], 3)
            own = x[:, :, None].expand(-1, -1, self.towers, -1)
            y = torch.cat([own, y, y * scale, y / scale], 3)
            y = line(torch.einsum("bntc,tcd->bntd", y, after).flatten(2))
            x = x + F.relu(norm(y.flatten(0, 1))).view(batch, count, c)
        return self.head(x)


def rings(batch: int, nodes: int = 300, more: int = 400) -> tuple[torch.Tensor, ...]:
    """Graphs with edges along a ring, so that each node has one, and others."""
    r = seeded()
    own = torch.arange(nodes).expand(batch, -1)
    ring = torch.stack([own, (own + 1) % nodes], 1)
    extra = torch.randint(0, nodes, (batch, 2, more), generator=r)
    kinds = torch.randint(0, 4, (batch, nodes + more), generator=r)
    return torch.randint(0, 28, (batch, nodes), generator=r), torch.cat([ring, extra], 2), kinds


class WaveMixer(nn.Module):
    """AFNO: a network of eight blocks for each wave of the map of tokens, whose small values become zero."""

    def __init__(self, c: int, blocks: int = 8):
        super().__init__()
        size = c // blocks
        self.blocks = blocks
        self.one, self.two = (nn.Parameter(torch.randn(2, blocks, size, size) / size**0.5) for _ in range(2))
        self.bias1, self.bias2 = (nn.Parameter(0.05 * torch.randn(2, blocks, size)) for _ in range(2))

    def line(
        self, re: torch.Tensor, im: torch.Tensor, w: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        real = torch.einsum("...bi,bio->...bo", re, w[0]) - torch.einsum("...bi,bio->...bo", im, w[1]) + b[0]
        return real, torch.einsum("...bi,bio->...bo", im, w[0]) + torch.einsum("...bi,bio->...bo", re, w[1]) + b[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, h, w, _ = x.shape
        f = torch.view_as_real(torch.fft.rfft2(x.float(), dim=(1, 2), norm="ortho"))
        re, im = (t.to(x.dtype).unflatten(3, (self.blocks, -1)) for t in f.unbind(-1))
        re, im = (F.relu(t) for t in self.line(re, im, self.one, self.bias1))
        re, im = self.line(re, im, self.two, self.bias2)
        f = F.softshrink(torch.stack([re, im], -1), 0.01).flatten(3, 4)
        return x + torch.fft.irfft2(torch.view_as_complex(f.float()), s=(h, w), dim=(1, 2), norm="ortho").to(x.dtype)


class WeatherMixer(nn.Module):
    """FourCastNet (Pathak et al., 2022), four of twelve layers, of maps of 20 quantities on 180 x 360 points."""

    def __init__(self, quantities: int = 20, c: int = 768, layers: int = 4, patch: int = 8, h: int = 176, w: int = 360):
        super().__init__()
        self.patch, self.quantities = patch, quantities
        self.patches = nn.Conv2d(quantities, c, patch, patch)
        self.places = nn.Parameter(0.1 * torch.randn(1, h // patch, w // patch, c))
        self.mixers = nn.ModuleList(WaveMixer(c) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)) for _ in range(layers)
        )
        self.last = nn.Linear(c, quantities * patch * patch, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).permute(0, 2, 3, 1) + self.places
        for k, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps, strict=True)):
            short = x
            x = mixer(self.norms[2 * k](x)) + short
            x = mlp(self.norms[2 * k + 1](x)) + x
        p = self.patch
        y = self.last(x).unflatten(3, (p, p, self.quantities))
        return y.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


class DeepOnet(nn.Module):
    """DeepONet (Lu et al., 2021): a network of 100 sensors times a network of Fourier features of places."""

    def __init__(self, sensors: int = 100, width: int = 128, out: int = 100, waves: int = 32):
        super().__init__()

        def mlp(a: int, b: int) -> nn.Module:
            layers: list[nn.Module] = [nn.Linear(a, width), nn.Tanh()]
            for _ in range(3):
                layers += [nn.Linear(width, width), nn.Tanh()]
            return nn.Sequential(*layers, nn.Linear(width, b))

        self.branch, self.trunk = mlp(sensors, out), mlp(2 * waves, out)
        self.register_buffer("waves", torch.randn(2, waves, generator=seeded()))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        angle = 2 * math.pi * places @ self.waves
        t = self.trunk(torch.cat([torch.sin(angle), torch.cos(angle)], -1))
        return torch.einsum("bfo,bpo->bfp", self.branch(values), t) + self.bias


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "egnn": (Egnn, normal((8, 29, 15), (8, 29, 3))),
    "dimenet": (Directions, triplets),
    "pna": (Aggregators, rings),
    "fourcastnet_4": (WeatherMixer, normal((20, 176, 360))),
    "deep_o_net": (DeepOnet, normal((32, 100), (1000, 2))),
}
