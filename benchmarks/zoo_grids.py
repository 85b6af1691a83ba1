"""Space and matter, for the zoo: sparse convolutions by gathering, occupancy, planes of space and time, tensors of radiance, integrated
positions, invariant and equivariant messages, relations, crystals, hyperbolic layers and associative memories."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class SparseUnet(nn.Module):
    """MinkUNet (Choy et al., 2019), two scales of 8192 and 2048 voxels with 27 neighbours each, whose features are gathered, multiplied and
    added; a voxel without a neighbour gets zeros from a last row."""

    def __init__(self, c: int = 64, voxels: int = 8192, classes: int = 20):
        super().__init__()
        r, n = seeded(), (voxels, voxels // 4)
        for k, size in enumerate(n):
            near = (torch.arange(size)[:, None] + torch.randint(-40, 41, (size, 27), generator=r)).clamp(0, size - 1)
            missing = torch.rand(size, 27, generator=r) < 0.6
            missing[:, 13] = False
            near[:, 13] = torch.arange(size)
            self.register_buffer(f"near{k}", torch.where(missing, size, near))
        self.register_buffer("parent", torch.arange(voxels) // 4)
        self.first = nn.Linear(4, c)
        conv = lambda a, b: nn.ModuleList((nn.Linear(27 * a, b, bias=False), nn.BatchNorm1d(b)))
        self.high, self.low = (
            nn.ModuleList(conv(c, c) for _ in range(2)),
            nn.ModuleList((conv(2 * c, 2 * c), conv(2 * c, 2 * c))),
        )
        self.down, self.end = nn.Linear(c, 2 * c), nn.ModuleList((conv(3 * c, c), conv(c, c)))
        self.last = nn.Linear(c, classes)

    @staticmethod
    def convolve(part: nn.ModuleList, near: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        linear, norm = part
        y = linear(F.pad(x, (0, 0, 0, 1))[:, near].flatten(2))
        return norm(y.transpose(1, 2)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        one, two = self.high
        x = F.relu(x + self.convolve(two, self.near0, F.relu(self.convolve(one, self.near0, x))))
        y = self.down(x)
        y = torch.zeros_like(y[:, : self.near1.shape[0]]).index_add(1, self.parent, y) / 4
        one, two = self.low
        y = F.relu(y + self.convolve(two, self.near1, F.relu(self.convolve(one, self.near1, y))))
        x = torch.cat([x, y[:, self.parent]], 2)
        for part in self.end:
            x = F.relu(self.convolve(part, self.near0, x))
        return self.last(x)


class Occupancy(nn.Module):
    """Convolutional occupancy networks (Peng et al., 2020): 3000 points are averaged in cells of a plane and of a 32^3 grid, a 3D U-Net, and
    2048 queries interpolate it into five residual blocks."""

    def __init__(self, c: int = 32, side: int = 32):
        super().__init__()
        self.side, self.first = side, nn.Linear(3, 2 * c)
        self.blocks = nn.ModuleList(
            nn.ModuleList((nn.Linear(2 * c, c), nn.Linear(c, c), nn.Linear(2 * c, c, bias=False))) for _ in range(3)
        )
        two = lambda a, b: nn.Sequential(
            nn.Conv3d(a, b, 3, padding=1),
            nn.GroupNorm(8, b),
            nn.ReLU(),
            nn.Conv3d(b, b, 3, padding=1),
            nn.GroupNorm(8, b),
            nn.ReLU(),
        )
        self.down, self.up = (
            nn.ModuleList((two(c, c), two(c, 2 * c), two(2 * c, 4 * c))),
            nn.ModuleList((two(6 * c, 2 * c), two(3 * c, c))),
        )
        self.place = nn.Linear(3, 64)
        self.features = nn.ModuleList(nn.Linear(c, 64) for _ in range(5))
        self.decode, self.last = (
            nn.ModuleList(nn.ModuleList((nn.Linear(64, 64), nn.Linear(64, 64))) for _ in range(5)),
            nn.Linear(64, 1),
        )

    def forward(self, points: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        points, queries, s = points.tanh(), queries.tanh(), self.side
        cell = ((points + 1) * (s / 2)).long().clamp(0, s - 1)
        index = (cell[..., 0] * s + cell[..., 1]) * s + cell[..., 2]
        x = self.first(points)
        for k, (one, two, skip) in enumerate(self.blocks):
            if k:
                spread = index[..., None].expand(-1, -1, x.shape[2])
                best = torch.full((x.shape[0], s**3, x.shape[2]), -1e4, dtype=x.dtype, device=x.device)
                x = torch.cat([x, best.scatter_reduce(1, spread, x, "amax").gather(1, spread)], 2)
            x = skip(x) + two(F.relu(one(F.relu(x))))
        zeros = lambda c: torch.zeros(x.shape[0], s**3, c, dtype=x.dtype, device=x.device)
        sums = zeros(x.shape[2]).scatter_add(1, index[..., None].expand_as(x), x)
        counts = zeros(1).scatter_add(1, index[..., None], torch.ones_like(x[..., :1]))
        grid = (sums / counts.clamp_min(1)).transpose(1, 2).unflatten(2, (s, s, s))
        kept = []
        for k, f in enumerate(self.down):
            grid = f(F.max_pool3d(grid, 2) if k else grid)
            kept.append(grid)
        for f, skip in zip(self.up, kept[1::-1], strict=True):
            grid = f(torch.cat([F.interpolate(grid, scale_factor=2, mode="nearest"), skip], 1))
        found = F.grid_sample(grid, queries[:, :, None, None].flip(4), align_corners=True)[..., 0, 0].transpose(1, 2)
        y = self.place(queries)
        for feature, (one, two) in zip(self.features, self.decode, strict=True):
            y = y + feature(found)
            y = y + two(F.relu(one(F.relu(y))))
        return self.last(F.relu(y))[..., 0]


class SpaceTimePlanes(nn.Module):
    """4D Gaussian splatting's deformation (Wu et al., 2024): six planes of two resolutions for 16,384 Gaussians, their products, and three
    MLPs that move, turn and scale."""

    def __init__(self, c: int = 32, sides: tuple[int, int] = (64, 128), times: int = 25):
        super().__init__()
        self.pairs = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
        size = lambda k, s: times if k == 3 else s
        self.planes = nn.ParameterList(
            nn.Parameter(1 + 0.3 * torch.randn(1, c, size(b, s), size(a, s))) for s in sides for a, b in self.pairs
        )
        self.mix = nn.Sequential(nn.Linear(2 * c, 64), nn.ReLU(), nn.Linear(64, 64))
        self.heads = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n)) for n in (3, 4, 3)
        )

    def forward(self, gaussians: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Centres, turns and scales [batch, n, 10], and one time for each element of the batch."""
        b, n = gaussians.shape[:2]
        places = torch.cat([gaussians[..., :3].tanh(), time[:, None].expand(-1, n, -1)], 2)
        found = []
        for level in range(2):
            product = 1.0
            for k, (i, j) in enumerate(self.pairs):
                plane = self.planes[6 * level + k]
                grid = torch.stack([places[..., i], places[..., j]], 2).view(1, b * n, 1, 2)
                product = (
                    product * F.grid_sample(plane, grid, align_corners=True, padding_mode="border")[0, :, :, 0].t()
                )
            found.append(product)
        y = self.mix(torch.cat(found, 1))
        return gaussians + torch.cat([head(y) for head in self.heads], 1).view(b, n, 10)


class TensorRadiance(nn.Module):
    """TensoRF (Chen et al., 2022): vectors and matrices of three axes, 512 rays of 64 samples, appearance with waves of directions, rendered."""

    def __init__(self, density: int = 16, colour: int = 48, side: int = 128, samples: int = 64):
        super().__init__()
        make = lambda c: nn.ParameterList(
            nn.Parameter(0.3 * torch.randn(1, c, side, w)) for _ in range(3) for w in (side, 1)
        )
        self.density, self.colour, self.samples = make(density), make(colour), samples
        self.basis = nn.Linear(3 * colour, 27, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(27 * 5 + 3 * 5, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)
        )
        self.register_buffer("depths", torch.linspace(0.2, 1.8, samples))

    @staticmethod
    def products(parts: nn.ParameterList, p: torch.Tensor) -> list[torch.Tensor]:
        out = []
        for k, (a, b, c) in enumerate(((0, 1, 2), (0, 2, 1), (1, 2, 0))):
            plane = F.grid_sample(parts[2 * k], torch.stack([p[:, a], p[:, b]], 1)[None, None], align_corners=True)
            line = F.grid_sample(
                parts[2 * k + 1], torch.stack([torch.zeros_like(p[:, c]), p[:, c]], 1)[None, None], align_corners=True
            )
            out.append((plane * line)[0, :, 0])
        return out

    @staticmethod
    def waves(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, 2 * x], 1)
        return torch.cat([x, y.sin(), y.cos()], 1)

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        start, way = 0.4 * rays[..., :3].tanh(), F.normalize(rays[..., 3:], dim=2)
        p = (start[:, :, None] + way[:, :, None] * (self.depths - 1)[:, None]).flatten(0, 2).clamp(-1, 1)
        sigma = F.softplus(torch.cat(self.products(self.density, p)).sum(0) - 2).unflatten(
            0, (-1, rays.shape[1], self.samples)
        )
        features = self.basis(torch.cat(self.products(self.colour, p)).t())
        views = way[:, :, None].expand(-1, -1, self.samples, -1).flatten(0, 2)
        rgb = self.mlp(torch.cat([self.waves(features), self.waves(views)], 1)).sigmoid().unflatten(0, sigma.shape)
        depth = sigma * 25 * (self.depths[1] - self.depths[0])
        weights = (1 - (-depth).exp()) * (depth - depth.cumsum(2)).exp()
        return (weights[..., None] * rgb).sum(2)


class IntegratedCones(nn.Module):
    """Mip-NeRF (Barron et al., 2021): 256 rays of 64 cones as Gaussians, whose waves are damped, then samples where the weights of the first
    pass are."""

    def __init__(self, c: int = 256, degrees: int = 16, samples: int = 64):
        super().__init__()
        n = 6 * degrees
        self.layers = nn.ModuleList(nn.Linear(n if k == 0 else c + n if k == 5 else c, c) for k in range(8))
        self.sigma, self.bottle, self.view, self.rgb = (
            nn.Linear(c, 1),
            nn.Linear(c, c),
            nn.Linear(c + 27, 128),
            nn.Linear(128, 3),
        )
        self.register_buffer("scales", 2.0 ** torch.arange(degrees))
        self.register_buffer("ticks", torch.linspace(2, 6, samples + 1))
        self.register_buffer("places", torch.linspace(0, 0.999, samples + 1))

    def cast(self, t: torch.Tensor, start: torch.Tensor, way: torch.Tensor) -> torch.Tensor:
        mid, half = (t[..., 1:] + t[..., :-1]) / 2, (t[..., 1:] - t[..., :-1]) / 2
        sum_ = 3 * mid.square() + half.square()
        mean = mid + 2 * mid * half.square() / sum_
        along = half.square() / 3 - 4 / 15 * half**4 * (12 * mid.square() - half.square()) / sum_.square()
        across = 1e-5 * (mid.square() / 4 + 5 / 12 * half.square() - 4 / 15 * half**4 / sum_)
        d = way[:, :, None]
        variance = along[..., None] * d.square() + across[..., None] * (
            1 - d.square() / (d.square().sum(3, keepdim=True) + 1e-6)
        )
        x = ((start[:, :, None] + mean[..., None] * d)[..., None, :] * self.scales[:, None]).flatten(3)
        damp = (-0.5 * (variance[..., None, :] * self.scales.square()[:, None]).flatten(3)).exp()
        return torch.cat([x.remainder(2 * math.pi).sin() * damp, x.remainder(2 * math.pi).cos() * damp], 3)

    def render(
        self, t: torch.Tensor, start: torch.Tensor, way: torch.Tensor, views: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = kept = self.cast(t, start, way)
        for k, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, kept], 3) if k == 5 else x))
        depth = F.softplus(self.sigma(x)[..., 0] - 1) * (t[..., 1:] - t[..., :-1])
        weights = (1 - (-depth).exp()) * (depth - depth.cumsum(2)).exp()
        y = F.relu(self.view(torch.cat([self.bottle(x), views[:, :, None].expand(-1, -1, x.shape[2], -1)], 3)))
        return weights, (weights[..., None] * self.rgb(y).sigmoid()).sum(2)

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        start, way = rays[..., :3], F.normalize(rays[..., 3:], dim=2)
        angles = (way[..., None, :] * (2.0 ** torch.arange(4, device=way.device))[:, None].to(way.dtype)).flatten(2)
        views = torch.cat([way, angles.sin(), angles.cos()], 2)
        t = self.ticks.expand(*rays.shape[:2], -1)
        weights, coarse = self.render(t, start, way, views)
        wide = F.pad(weights, (1, 1))
        wide = torch.maximum(wide[..., :-1], wide[..., 1:])
        weights = (wide[..., :-1] + wide[..., 1:]) / 2 + 0.01
        cdf = F.pad((weights / weights.sum(2, keepdim=True)).cumsum(2), (1, 0))
        above = (self.places[:, None] >= cdf[:, :, None, :]).long().sum(3).clamp(1, t.shape[2] - 1)
        pick = lambda x, i: x.gather(2, i)
        c0, c1, t0, t1 = pick(cdf, above - 1), pick(cdf, above), pick(t, above - 1), pick(t, above)
        fine = t0 + ((self.places - c0) / (c1 - c0).clamp_min(1e-4)).clamp(0, 1) * (t1 - t0)
        return torch.cat([coarse, self.render(fine, start, way, views)[1]], 2)


class Triplets(nn.Module):
    """GemNet-T (Gasteiger et al., 2021), two blocks: 96 atoms, 1200 edges and 6 neighbours of each, bilinear layers over radial and angular
    bases."""

    def __init__(
        self, c: int = 128, triple: int = 64, bilinear: int = 64, atoms: int = 96, edges: int = 1200, near: int = 6
    ):
        super().__init__()
        r = seeded()
        a = torch.randint(0, atoms, (edges,), generator=r)
        self.register_buffer("one", a)
        self.register_buffer("two", (a + torch.randint(1, atoms, (edges,), generator=r)) % atoms)
        self.register_buffer("near", torch.randint(0, edges, (edges, near), generator=r))
        self.register_buffer("back", torch.randperm(edges, generator=r))
        self.atom, self.edge = nn.Embedding(100, c), nn.Linear(2 * c + 16, c)
        self.radial, self.angles = nn.Parameter(torch.arange(1, 17) * math.pi), 7
        res = lambda n: nn.ModuleList((nn.Linear(n, n, bias=False), nn.Linear(n, n, bias=False)))
        block = lambda: nn.ModuleDict({"m": nn.Linear(c, c, bias=False), "ba": nn.Linear(c, c, bias=False), "rbf": nn.Linear(16, c, bias=False), "down": nn.Linear(c, triple, bias=False), "cbf": nn.Linear(16, 16, bias=False), "up": nn.Linear(bilinear, c, bias=False), "swap": nn.Linear(bilinear, c, bias=False), "res": nn.ModuleList(res(c) for _ in range(3)), "to_atom": nn.Linear(16, c, bias=False), "mlp": nn.ModuleList(res(c) for _ in range(2)), "join": nn.Linear(3 * c, c)})  # fmt: skip
        self.blocks = nn.ModuleList(block() for _ in range(2))
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(triple, 16, bilinear) / (triple * 4) ** 0.5) for _ in range(2)
        )
        self.out = nn.ModuleList(nn.Linear(c, 1) for _ in range(2))

    @staticmethod
    def residual(pair: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        return (x + F.silu(pair[1](F.silu(pair[0](x))))) * 0.5**0.5

    def forward(self, kinds: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        v = places[:, self.two] - places[:, self.one]
        d = v.square().sum(2, keepdim=True).add(0.1).sqrt()
        basis = (self.radial * d / 6).sin() / d
        u = v / d
        cos = (u[:, :, None] * u[:, self.near]).sum(3, keepdim=True).clamp(-1, 1)
        waves = (cos.acos() * torch.arange(self.angles, device=cos.device)).cos()
        h = self.atom(kinds)
        m = F.silu(self.edge(torch.cat([h[:, self.one], h[:, self.two], basis], 2)))
        energy = 0
        for block, weight, out in zip(self.blocks, self.weights, self.out, strict=True):
            x = F.silu(block["down"](F.silu(block["ba"](m)) * block["rbf"](basis)))[:, self.near]
            sums = waves.transpose(2, 3) @ x  # [batch, edges, angles, triple]
            radial = block["cbf"](basis)
            sums = radial.unsqueeze(3)[:, :, : self.angles] * sums
            y = torch.einsum("benk,knj->bej", sums, weight[:, : self.angles])
            y = (F.silu(block["up"](y)) + F.silu(block["swap"](y))[:, self.back]) * 0.5**0.5
            m = (m + F.silu(block["m"](m)) + y) * 3**-0.5
            for pair in block["res"]:
                m = self.residual(pair, m)
            gathered = torch.zeros_like(h).index_add(1, self.two, m * block["to_atom"](basis)) * 0.3
            for pair in block["mlp"]:
                gathered = self.residual(pair, gathered)
            h = (h + gathered) * 0.5**0.5
            m = m + F.silu(block["join"](torch.cat([h[:, self.one], h[:, self.two], m], 2)))
            energy = energy + out(gathered)
        return energy.sum(1)


class VectorAttention(nn.Module):
    """TorchMD-NET (Tholke and De Fabritiis, 2022), four layers of 48 atoms, all pairs: attention without softmax whose keys and values radial
    functions filter, and vectors beside scalars."""

    def __init__(self, c: int = 128, heads: int = 8, layers: int = 4, radial: int = 64):
        super().__init__()
        self.heads, self.atom, self.near = heads, nn.Embedding(100, c), nn.Embedding(100, c)
        self.filter, self.join = nn.Linear(radial, c), nn.Linear(2 * c, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.dk, self.dv = (
            each(lambda: nn.Linear(c, 5 * c)),
            each(lambda: nn.Linear(radial, c)),
            each(lambda: nn.Linear(radial, 3 * c)),
        )
        self.vec, self.out, self.norms = (
            each(lambda: nn.Linear(c, 3 * c, bias=False)),
            each(lambda: nn.Linear(c, 3 * c)),
            each(lambda: nn.LayerNorm(c)),
        )
        self.last = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, c // 2), nn.SiLU(), nn.Linear(c // 2, 1))
        self.register_buffer("means", torch.linspace(math.exp(-5), 1, radial))
        self.beta = (2 / radial * (1 - math.exp(-5))) ** -2

    def forward(self, kinds: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        b, n = kinds.shape
        v = places[:, None] - places[:, :, None]
        d = (v.square().sum(3) + 1e-4).sqrt()
        cut = 0.5 * ((d * (math.pi / 5)).cos() + 1) * (d < 5)
        f = cut[..., None] * (-self.beta * ((-d).exp()[..., None] - self.means).square()).exp()
        ways = v / d[..., None]
        others = cut * (1 - torch.eye(n, dtype=d.dtype, device=d.device))
        x = self.atom(kinds)
        x = self.join(torch.cat([x, (self.filter(f) * others[..., None] * self.near(kinds)[:, None]).sum(2)], 2))
        vectors = torch.zeros(b, n, 3, x.shape[2], dtype=x.dtype, device=x.device)
        split = lambda t: t.unflatten(-1, (self.heads, -1))
        for qkv, dk, dv, vec, out, norm in zip(self.qkv, self.dk, self.dv, self.vec, self.out, self.norms, strict=True):
            q, k, values = qkv(norm(x)).split((x.shape[2], x.shape[2], 3 * x.shape[2]), 2)
            scores = (split(q)[:, :, None] * split(k)[:, None] * split(F.silu(dk(f)))).sum(4)
            weights = F.silu(scores) * others[..., None]
            s, one, two = (values[:, None] * F.silu(dv(f))).chunk(3, 3)
            s = (split(s) * weights[..., None]).sum(2).flatten(2)
            a, c, e = vec(vectors).chunk(3, 3)
            more = (one[..., None, :] * vectors[:, None] + two[..., None, :] * ways[..., None]).sum(2) / n
            o1, o2, o3 = out(s).chunk(3, 2)
            x = x + (a * c).sum(2) * o1 + o2
            vectors = vectors + e * o3[:, :, None] + more
        return self.last(x).sum(1)


class Relations(nn.Module):
    """R-GCN (Schlichtkrull et al., 2018), two layers: 2000 nodes and 16,000 edges of 24 relations as four bases, means for each relation."""

    def __init__(
        self, c: int = 64, nodes: int = 2000, edges: int = 16000, relations: int = 24, bases: int = 4, layers: int = 2
    ):
        super().__init__()
        r = seeded()
        self.register_buffer("source", torch.randint(0, nodes, (edges,), generator=r))
        self.register_buffer("goal", torch.randint(0, nodes, (edges,), generator=r))
        self.register_buffer("kind", torch.randint(0, relations, (edges,), generator=r))
        count = torch.zeros(nodes * relations).index_add(0, self.goal * relations + self.kind, torch.ones(edges))
        self.register_buffer("share", (1 / count)[self.goal * relations + self.kind])
        self.bases = nn.ParameterList(nn.Parameter(torch.randn(c, bases * c) / c**0.5) for _ in range(layers))
        self.shares = nn.ParameterList(nn.Parameter(torch.randn(relations, bases)) for _ in range(layers))
        self.own, self.n = nn.ModuleList(nn.Linear(c, c) for _ in range(layers)), bases

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for basis, shares, own in zip(self.bases, self.shares, self.own, strict=True):
            all_ = (x @ basis).unflatten(2, (self.n, -1))
            message = (all_[:, self.source] * (shares[self.kind] * self.share[:, None])[..., None]).sum(2)
            x = F.relu(own(x) + torch.zeros_like(x).index_add(1, self.goal, message))
        return x


class Crystals(nn.Module):
    """CGCNN (Xie and Grossman, 2018), four layers: 512 atoms with 12 neighbours each, gated by batch-normed sums, pooled."""

    def __init__(self, c: int = 64, near: int = 12, atoms: int = 512, layers: int = 4, bins: int = 41):
        super().__init__()
        self.register_buffer("near", torch.randint(0, atoms, (atoms, near), generator=seeded()))
        self.first = nn.Linear(92, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.full, self.norm1, self.norm2 = (
            each(lambda: nn.Linear(2 * c + bins, 2 * c)),
            each(lambda: nn.BatchNorm1d(2 * c)),
            each(lambda: nn.BatchNorm1d(c)),
        )
        self.last = nn.Sequential(nn.Softplus(), nn.Linear(c, 128), nn.Softplus(), nn.Linear(128, 1))
        self.register_buffer("bins", torch.linspace(0, 8, bins))

    def forward(self, atoms: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.first(atoms)
        edges = (-((2 + lengths[..., None]) - self.bins).square() / 0.04).exp()
        for full, norm1, norm2 in zip(self.full, self.norm1, self.norm2, strict=True):
            both = torch.cat([x[:, :, None].expand(-1, -1, self.near.shape[1], -1), x[:, self.near], edges], 3)
            y = full(both)
            y = norm1(y.flatten(0, 2)).view_as(y)
            gate, core = y.chunk(2, 3)
            sums = (gate.sigmoid() * F.softplus(core)).sum(2)
            x = F.softplus(x + norm2(sums.flatten(0, 1)).view_as(sums))
        return self.last(x.mean(1))


class Hyperbolic(nn.Module):
    """A hyperbolic network (Ganea et al., 2018): two layers of 2048 points of a Poincare ball by Moebius products and sums, and distances to 64
    planes."""

    def __init__(self, c: int = 128, into: int = 64, planes: int = 64):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(b, a) / a**0.5) for a, b in ((into, c), (c, c)))
        self.biases = nn.ParameterList(nn.Parameter(0.01 * torch.randn(c)) for _ in range(2))
        self.points, self.ways = nn.Parameter(0.02 * torch.randn(planes, c)), nn.Parameter(0.2 * torch.randn(planes, c))

    @staticmethod
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        xy, xx, yy = (x * y).sum(-1, keepdim=True), x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
        return ((1 + 2 * xy + yy) * x + (1 - xx) * y) / (1 + 2 * xy + xx * yy)

    @staticmethod
    def length(x: torch.Tensor) -> torch.Tensor:
        return (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()

    def exp(self, x: torch.Tensor) -> torch.Tensor:
        return self.length(x).tanh() * x / self.length(x)

    def log(self, x: torch.Tensor) -> torch.Tensor:
        return self.length(x).clamp_max(0.98).atanh() * x / self.length(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.exp(0.05 * x)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            y, n = x @ weight.t(), self.length(x)
            y = (self.length(y) / n * n.clamp_max(0.98).atanh()).tanh() * y / self.length(y)
            x = self.exp(F.relu(self.log(self.add(y, bias))))
        z = self.add(-self.points, x[:, :, None])
        norm = self.length(self.ways)
        top = 2 * (z * self.ways).sum(3)
        return 2 * norm[:, 0] * (top / ((1 - z.square().sum(3)) * norm[:, 0])).asinh()


def atoms(count: int, spread: float) -> Inputs:
    return lambda batch: (
        torch.randint(1, 90, (batch, count), generator=seeded()),
        *(spread * x for x in normal((count, 3))(batch)),
    )


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "mink_unet_2": (SparseUnet, normal((8192, 4))),
    "conv_occupancy": (Occupancy, normal((3000, 3), (2048, 3))),
    "hex_planes": (SpaceTimePlanes, lambda batch: (*normal((16384, 10))(batch), torch.full((batch, 1), 0.2))),
    "tenso_rf": (TensorRadiance, normal((512, 6))),
    "mip_nerf": (IntegratedCones, normal((256, 6))),
    "gem_net_2": (Triplets, atoms(96, 2.0)),
    "torch_md_4": (VectorAttention, atoms(48, 1.5)),
    "r_gcn_2": (Relations, normal((2000, 64))),
    "cgcnn_4": (Crystals, normal((512, 92), (512, 12))),
    "hyperbolic_2": (Hyperbolic, normal((2048, 64))),
}
