"""Proteins, molecules and crystals, for the zoo: frames of residues, neighbours by distance, products of spherical harmonics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, seeded


class PointAttention(nn.Module):
    """Invariant point attention: scores from queries and keys, from a bias of pairs and from distances of points that the
    frames of residues place in space."""

    def __init__(
        self, c: int = 384, pair: int = 128, heads: int = 12, size: int = 16, points: int = 4, values: int = 8
    ):
        super().__init__()
        self.heads, self.size, self.points, self.values = heads, size, points, values
        self.q, self.kv = nn.Linear(c, heads * size), nn.Linear(c, 2 * heads * size)
        self.qp, self.kvp = nn.Linear(c, 3 * heads * points), nn.Linear(c, 3 * heads * (points + values))
        self.bias, self.weight = nn.Linear(pair, heads), nn.Parameter(torch.full((heads,), 0.54))
        self.out = nn.Linear(heads * (size + 4 * values + pair), c)

    def place(self, x: torch.Tensor, turn: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x = torch.stack(x.chunk(3, -1), -1)
        y = torch.einsum("bnij,bnpj->bnpi", turn, x) + at[:, :, None]
        return y.unflatten(2, (self.heads, -1))

    def forward(self, x: torch.Tensor, pair: torch.Tensor, turn: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        q = self.q(x).unflatten(2, (self.heads, -1))
        k, v = self.kv(x).unflatten(2, (self.heads, -1)).split(self.size, -1)
        qp = self.place(self.qp(x), turn, at)
        kp, vp = self.place(self.kvp(x), turn, at).split([self.points, self.values], 3)
        scores = torch.einsum("bihc,bjhc->bhij", q, k) * (1 / (3 * self.size)) ** 0.5
        scores = scores + 3**-0.5 * self.bias(pair).permute(0, 3, 1, 2)
        gap = (qp[:, :, None] - kp[:, None]).square().sum(-1)
        weight = F.softplus(self.weight) * (1 / (3 * self.points * 4.5)) ** 0.5
        scores = scores - 0.5 * torch.einsum("bijhp,h->bhij", gap, weight)
        a = scores.softmax(-1)
        o = torch.einsum("bhij,bjhc->bihc", a, v).flatten(2)
        op = torch.einsum("bhij,bjhpx->bihpx", a, vp)
        op = torch.einsum("bnij,bnhpi->bnhpj", turn, op - at[:, :, None, None])
        length = (op.square().sum(-1) + 1e-4).sqrt().flatten(2)
        opair = torch.einsum("bhij,bijc->bihc", a, pair).flatten(2)
        return self.out(torch.cat([o, *op.flatten(2, 3).unbind(-1), length, opair], 2))


class StructureModule(nn.Module):
    """AlphaFold 2's structure module (Jumper et al., 2021): four of eight rounds of point attention, each of which turns and
    moves the frames by quaternions."""

    def __init__(self, c: int = 384, pair: int = 128, rounds: int = 4):
        super().__init__()
        self.rounds = rounds
        self.first, self.pairs, self.line = nn.LayerNorm(c), nn.LayerNorm(pair), nn.Linear(c, c)
        self.attention, self.norm1, self.norm2 = PointAttention(c, pair), nn.LayerNorm(c), nn.LayerNorm(c)
        self.mlp = nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c))
        self.update, self.angles = nn.Linear(c, 6), nn.Sequential(nn.Linear(c, 128), nn.ReLU(), nn.Linear(128, 14))

    def turn(self, q: torch.Tensor) -> torch.Tensor:
        b, c, d = q.unbind(-1)
        one = torch.ones_like(b)
        size = (1 + b * b + c * c + d * d).rsqrt()
        a, b, c, d = one * size, b * size, c * size, d * size
        rows = [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d],
        ]
        return torch.stack([torch.stack(r, -1) for r in rows], -2)

    def forward(self, x: torch.Tensor, pair: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, pair = self.line(self.first(x)), self.pairs(pair)
        batch, n, _ = x.shape
        turn = torch.eye(3, dtype=x.dtype, device=x.device).expand(batch, n, 3, 3)
        at = torch.zeros(batch, n, 3, dtype=x.dtype, device=x.device)
        for _ in range(self.rounds):
            x = self.norm1(x + self.attention(x, pair, turn, at))
            x = self.norm2(x + self.mlp(x))
            step = self.update(x)
            at = at + torch.einsum("bnij,bnj->bni", turn, step[..., 3:])
            turn = turn @ self.turn(step[..., :3])
        angles = F.normalize(self.angles(x).unflatten(2, (7, 2)), dim=-1)
        return torch.cat([turn, at[..., None]], -1), angles


def residues(batch: int, n: int = 120) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, n, 384, generator=r), torch.randn(batch, n, n, 128, generator=r)


class ProteinDesign(nn.Module):
    """ProteinMPNN's encoder (Dauparas et al., 2022): 30 nearest residues by TopK, 25 distances of atoms to each as radial
    functions, three rounds in which nodes and edges change."""

    def __init__(self, c: int = 128, near: int = 30, layers: int = 3, classes: int = 21):
        super().__init__()
        self.near = near
        self.places, self.edges, self.norm = nn.Linear(66, 16), nn.Linear(16 + 25 * 16, c, bias=False), nn.LayerNorm(c)
        mlp = lambda: nn.Sequential(nn.Linear(3 * c, c), nn.GELU(), nn.Linear(c, c), nn.GELU(), nn.Linear(c, c))
        self.node, self.edge = nn.ModuleList(mlp() for _ in range(layers)), nn.ModuleList(mlp() for _ in range(layers))
        self.dense = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3 * layers))
        self.last = nn.Linear(c, classes)
        self.register_buffer("centres", torch.linspace(2, 22, 16))

    def gather(self, x: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        batch, n, k = which.shape
        found = x.gather(1, which.flatten(1)[..., None].expand(-1, -1, x.shape[2]))
        return found.reshape(batch, n, k, -1)

    def forward(self, atoms: torch.Tensor, chain: torch.Tensor) -> torch.Tensor:
        """`atoms`: N, CA, C and O of each residue."""
        atoms = atoms.float()
        n, ca, c = atoms[:, :, 0], atoms[:, :, 1], atoms[:, :, 2]
        b, a = ca - n, c - ca
        normal = torch.cross(b, a, dim=-1)
        cb = -0.58273431 * normal + 0.56802827 * b - 0.54067466 * a + ca
        atoms = torch.cat([atoms, cb[:, :, None]], 2)
        gap = (ca[:, :, None] - ca[:, None]).square().sum(-1)
        which = gap.topk(self.near, dim=2, largest=False)[1]
        batch, count, k = which.shape
        near = self.gather(atoms.flatten(2), which).unflatten(3, (5, 3))
        between = (atoms[:, :, None, :, None] - near[:, :, :, None]).square().sum(-1).add(1e-6).sqrt().flatten(3)
        waves = torch.exp(-(((between[..., None] - self.centres.float()) / 1.25) ** 2)).flatten(3)
        place = torch.arange(count, device=which.device)
        offset = (place[:, None] - which + 32).clamp(0, 64)
        same = chain[:, :, None] == chain.gather(1, which.flatten(1)).reshape(batch, count, k)
        offset = torch.where(same, offset, 65)
        dtype = self.last.weight.dtype
        e = torch.cat([self.places(F.one_hot(offset, 66).to(dtype)), waves.to(dtype)], 3)
        e = self.norm(self.edges(e))
        h = torch.zeros(batch, count, e.shape[3], dtype=dtype, device=e.device)
        for i, (node, edge, dense) in enumerate(zip(self.node, self.edge, self.dense, strict=True)):
            own = h[:, :, None].expand(-1, -1, k, -1)
            h = self.norms[3 * i](h + node(torch.cat([own, e, self.gather(h, which)], 3)).sum(2) / 30)
            h = self.norms[3 * i + 1](h + dense(h))
            own = h[:, :, None].expand(-1, -1, k, -1)
            e = self.norms[3 * i + 2](e + edge(torch.cat([own, e, self.gather(h, which)], 3)))
        return F.log_softmax(self.last(h), -1)


def backbones(batch: int, n: int = 250) -> tuple[torch.Tensor, ...]:
    r = seeded()
    step = F.normalize(torch.randn(batch, n, 3, generator=r) + 0.3, dim=-1) * 3.8
    atoms = step.cumsum(1)[:, :, None] * 0.4 + 1.4 * torch.randn(batch, n, 4, 3, generator=r)
    chain = (torch.arange(n) > n // 2).long().expand(batch, -1).contiguous()
    return atoms.half().float(), chain


class Equivariant(nn.Module):
    """NequIP (Batzner et al., 2022), degrees up to two: messages are products of features with spherical harmonics of edges,
    weighted by a network of the distance, and added at their target."""

    PATHS = (
        (0, 0, 0),
        (0, 1, 1),
        (0, 2, 2),
        (1, 0, 1),
        (1, 1, 0),
        (1, 1, 2),
        (1, 2, 1),
        (2, 0, 2),
        (2, 1, 1),
        (2, 2, 0),
    )

    def __init__(self, kinds: int = 10, c: int = 32, layers: int = 3, waves: int = 8, cutoff: float = 5.0):
        super().__init__()
        self.cutoff, self.c = cutoff, c
        self.embed = nn.Embedding(kinds, c)
        r = seeded()
        for k, (a, b, o) in enumerate(self.PATHS):
            shape = (2 * a + 1, 2 * b + 1, 2 * o + 1)
            self.register_buffer(f"path{k}", torch.randn(*shape, generator=r) / (shape[0] * shape[1]) ** 0.5)
        paths = len(self.PATHS)
        self.radial = nn.ModuleList(
            nn.Sequential(nn.Linear(waves, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, paths * c))
            for _ in range(layers)
        )
        self.mix = nn.ModuleList(nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(3)) for _ in range(layers))
        self.own = nn.ModuleList(nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(3)) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(c, 2 * c) for _ in range(layers))
        self.last = nn.Sequential(nn.Linear(c, 16), nn.SiLU(), nn.Linear(16, 1))
        self.register_buffer("rates", torch.arange(1.0, waves + 1) * math.pi / cutoff)

    def harmonics(self, d: torch.Tensor) -> list[torch.Tensor]:
        x, y, z = d.unbind(-1)
        two = [x * y, y * z, (3 * z * z - 1) / 12**0.5, x * z, (x * x - y * y) / 2]
        return [torch.ones_like(d[..., :1]), 3**0.5 * d, 15**0.5 * torch.stack(two, -1)]

    def forward(self, kinds: torch.Tensor, at: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        batch, n = kinds.shape
        source, target = ends.unbind(1)
        take = lambda x, which: x.gather(1, which[..., None].expand(-1, -1, x.shape[2]))
        gap = take(at, source) - take(at, target)
        length = gap.float().square().sum(-1, keepdim=True).add(1e-6).sqrt().to(gap.dtype)
        sh = self.harmonics(gap / length)
        u = (length / self.cutoff).clamp(max=1)
        fade = 1 - 28 * u**6 + 48 * u**7 - 21 * u**8
        waves = torch.sin(length * self.rates) / length * fade
        h = [
            self.embed(kinds)[..., None],
            *(torch.zeros(batch, n, self.c, m, dtype=at.dtype, device=at.device) for m in (3, 5)),
        ]
        for radial, mix, own, gate in zip(self.radial, self.mix, self.own, self.gates, strict=True):
            weight = radial(waves).unflatten(2, (len(self.PATHS), self.c))
            near = [take(x.flatten(2), source).reshape(batch, -1, self.c, x.shape[3]) for x in h]
            sums: list[list[torch.Tensor]] = [[], [], []]
            for k, (a, b, o) in enumerate(self.PATHS):
                product = torch.einsum("becx,bey,xyz->becz", near[a], sh[b], getattr(self, f"path{k}"))
                sums[o].append(product * weight[:, :, k, :, None])
            new = []
            for o, parts in enumerate(sums):
                message = torch.stack(parts).sum(0).flatten(2)
                where = target[..., None].expand(-1, -1, message.shape[2])
                added = torch.zeros(batch, n, message.shape[2], dtype=at.dtype, device=at.device).scatter_add(
                    1, where, message
                )
                added = added.reshape(batch, n, self.c, 2 * o + 1) / 4
                new.append((mix[o](added.transpose(2, 3)) + own[o](h[o].transpose(2, 3))).transpose(2, 3))
            one, two = torch.sigmoid(gate(new[0][..., 0])).chunk(2, -1)
            h = [F.silu(new[0]), new[1] * one[..., None], new[2] * two[..., None]]
        return self.last(h[0][..., 0]).sum(1)


def atoms(batch: int, n: int = 64, near: int = 16) -> tuple[torch.Tensor, ...]:
    r = seeded()
    kinds, at = torch.randint(0, 10, (batch, n), generator=r), 2.2 * torch.randn(batch, n, 3, generator=r)
    far = torch.cdist(at, at) + 100 * torch.eye(n)
    source = far.topk(near, largest=False)[1].flatten(1)
    target = torch.arange(n).repeat_interleave(near).expand(batch, -1)
    return kinds, at, torch.stack([source, target], 1)


class SchNet(nn.Module):
    """SchNet (Schuett et al., 2017) with its neighbours in the graph: the 24 nearest of 128 atoms in a periodic box."""

    def __init__(
        self, kinds: int = 90, c: int = 128, near: int = 24, layers: int = 4, waves: int = 50, cutoff: float = 6.0
    ):
        super().__init__()
        self.near, self.cutoff, self.embed = near, cutoff, nn.Embedding(kinds, c)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(waves, c), nn.Softplus(), nn.Linear(c, c)) for _ in range(layers)
        )
        self.into = nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Sequential(nn.Linear(c, c), nn.Softplus(), nn.Linear(c, c)) for _ in range(layers))
        self.last = nn.Sequential(nn.Linear(c, c // 2), nn.Softplus(), nn.Linear(c // 2, 1))
        self.register_buffer("centres", torch.linspace(0, cutoff, waves))

    def forward(self, kinds: torch.Tensor, at: torch.Tensor, box: torch.Tensor) -> torch.Tensor:
        gap = at[:, :, None] - at[:, None]
        gap = gap - box[:, None, None] * torch.round(gap / box[:, None, None])
        far = gap.float().square().sum(-1)
        itself = torch.eye(far.shape[1], dtype=torch.bool, device=far.device)
        far, which = torch.where(itself, 1e4, far).topk(self.near, dim=2, largest=False)
        far = far.sqrt()
        waves = torch.exp(-(((far[..., None] - self.centres.float()) * 8) ** 2) / 2).to(at.dtype)
        fade = (0.5 * (torch.cos(far * math.pi / self.cutoff) + 1) * (far < self.cutoff)).to(at.dtype)
        x = self.embed(kinds)
        batch, n, c = x.shape
        flat = which.flatten(1)[..., None].expand(-1, -1, c)
        for weigh, into, out in zip(self.filters, self.into, self.out, strict=True):
            weight = weigh(waves) * fade[..., None]
            near = into(x).gather(1, flat).reshape(batch, n, self.near, c)
            x = x + out((near * weight).sum(2))
        return self.last(x).sum(1) / n


def crystal(batch: int, n: int = 128) -> tuple[torch.Tensor, ...]:
    r = seeded()
    box = 10 + torch.rand(batch, 3, generator=r).mul(16).round() / 8
    return (
        torch.randint(1, 90, (batch, n), generator=r),
        (torch.rand(batch, n, 3, generator=r) * box[:, None]).half().float(),
        box,
    )


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "structure_module": (StructureModule, residues),
    "protein_mpnn": (ProteinDesign, backbones),
    "nequip": (Equivariant, atoms),
    "schnet": (SchNet, crystal),
}
