"""Graphs, points, texts, recommendation, optical flow and fields, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded, tokens


class GraphAttention(nn.Module):
    """Graph attention over a dense mask of edges (Velickovic et al., 2018), two layers."""

    def __init__(self, into: int = 128, width: int = 32, heads: int = 8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, heads * width, bias=False) for a in (into, heads * width))
        self.left = nn.ParameterList(nn.Parameter(0.1 * torch.randn(heads, width)) for _ in range(2))
        self.right = nn.ParameterList(nn.Parameter(0.1 * torch.randn(heads, width)) for _ in range(2))
        self.heads, self.width = heads, width

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer, left, right in zip(self.layers, self.left, self.right, strict=True):
            h = layer(x).view(x.shape[0], x.shape[1], self.heads, self.width)
            scores = (h * left).sum(-1)[:, :, None] + (h * right).sum(-1)[:, None]
            scores = F.leaky_relu(scores, 0.2).masked_fill(edges[..., None] <= 0, -1e4).softmax(2)
            x = F.elu(torch.einsum("bijh,bjhd->bihd", scores, h).flatten(2))
        return x


class MessagePassing(nn.Module):
    """Messages over a list of edges, summed at their ends (as SchNet and MeshGraphNets do), four rounds."""

    def __init__(self, width: int = 128, rounds: int = 4):
        super().__init__()

        def mlp(into: int) -> nn.Module:
            return nn.Sequential(nn.Linear(into, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width))

        self.nodes, self.edges = mlp(16), mlp(8)
        self.edge, self.node = (
            nn.ModuleList(mlp(3 * width) for _ in range(rounds)),
            nn.ModuleList(mlp(2 * width) for _ in range(rounds)),
        )
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor, e: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        x, e = self.nodes(x), self.edges(e)
        width = x.shape[2]
        source, target = (ends[:, k, :, None].expand(-1, -1, width) for k in (0, 1))
        for edge, node in zip(self.edge, self.node, strict=True):
            e = e + edge(torch.cat([e, x.gather(1, source), x.gather(1, target)], 2))
            sums = torch.zeros_like(x).scatter_add(1, target, e)
            x = x + node(torch.cat([x, sums], 2))
        return self.last(x)


def mesh(batch: int, nodes: int = 2000, edges: int = 12000) -> tuple[torch.Tensor, ...]:
    r = seeded()
    ends = torch.randint(0, nodes, (batch, 2, edges), generator=r)
    return torch.randn(batch, nodes, 16, generator=r), torch.randn(batch, edges, 8, generator=r), ends


class PointNet(nn.Module):
    """PointNet with its learned transformation (Qi et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()

        def stack(*widths: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for a, b in zip(widths, widths[1:]):
                layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
            return nn.Sequential(*layers)

        self.local, self.after = stack(3, 64, 128, 1024), nn.Linear(1024, 9)
        self.one, self.two = stack(3, 64, 64), stack(64, 64, 128, 1024)
        self.head = stack(1088, 512, 256, 128)
        self.last = nn.Conv1d(128, 50, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turn = self.after(self.local(x).amax(2)).view(-1, 3, 3) + torch.eye(3, device=x.device, dtype=x.dtype)
        one = self.one(torch.bmm(x.transpose(1, 2), turn).transpose(1, 2))
        whole = self.two(one).amax(2, keepdim=True).expand(-1, -1, x.shape[2])
        return self.last(self.head(torch.cat([one, whole], 1)))


class Dgcnn(nn.Module):
    """Dynamic graph CNN (Wang et al., 2019): convolutions over the 20 nearest neighbours, found again in each layer."""

    def __init__(self, k: int = 20):
        super().__init__()
        self.k = k
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
            for a, b in ((3, 64), (64, 64), (64, 128))
        )
        self.after = nn.Sequential(nn.Conv1d(256, 1024, 1, bias=False), nn.BatchNorm1d(1024), nn.LeakyReLU(0.2))
        self.last = nn.Linear(2048, 40)

    def neighbours(self, x: torch.Tensor) -> torch.Tensor:
        inner = -2 * x.transpose(2, 1) @ x
        squares = (x**2).sum(1, keepdim=True)
        near = (-squares - inner - squares.transpose(2, 1)).topk(self.k, dim=-1)[1]
        batch, channels, points = x.shape
        rows = x.transpose(2, 1)
        index = near.reshape(batch, points * self.k, 1).expand(-1, -1, channels)
        found = rows.gather(1, index).view(batch, points, self.k, channels)
        own = rows[:, :, None].expand(-1, -1, self.k, -1)
        return torch.cat([found - own, own], 3).permute(0, 3, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        all_layers = []
        for layer in self.layers:
            x = layer(self.neighbours(x)).amax(3)
            all_layers.append(x)
        y = self.after(torch.cat(all_layers, 1))
        return self.last(torch.cat([y.amax(2), y.mean(2)], 1))


class Dlrm(nn.Module):
    """DLRM (Naumov et al., 2019): 26 tables, products of all pairs."""

    def __init__(self, tables: int = 26, rows: int = 20000, width: int = 64):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()
        )
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = nn.Sequential(
            nn.Linear(pairs.shape[1] + width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x, ids = x.flatten(0, 1), ids.flatten(0, 1)
        dense = self.bottom(x)
        rows = torch.stack([dense] + [t(ids[:, k]) for k, t in enumerate(self.tables)], 1)
        products = (rows @ rows.transpose(1, 2)).flatten(1)[:, self.pairs]
        return torch.sigmoid(self.top(torch.cat([dense, products], 1)))


def clicks(batch: int, each: int = 256) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, each, 13, generator=r), torch.randint(0, 20000, (batch, each, 26), generator=r)


class InterestNetwork(nn.Module):
    """Deep interest network (Zhou et al., 2018): history weighted by a network of pairs with the candidate."""

    def __init__(self, items: int = 50000, width: int = 64):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.weigh = nn.Sequential(
            nn.Linear(4 * width, 80), nn.Sigmoid(), nn.Linear(80, 40), nn.Sigmoid(), nn.Linear(40, 1)
        )
        self.top = nn.Sequential(
            nn.Linear(2 * width, 200), nn.PReLU(), nn.Linear(200, 80), nn.PReLU(), nn.Linear(80, 1)
        )

    def forward(self, history: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        past, one = self.items(history), self.items(candidate)
        own = one[:, :, None].expand(-1, -1, past.shape[2], -1)
        weights = self.weigh(torch.cat([own, past, own - past, own * past], -1))
        weights = weights.masked_fill(history[..., None] == 0, 0)
        return torch.sigmoid(self.top(torch.cat([(weights * past).sum(2), one], -1)))


def visits(batch: int, each: int = 64, length: int = 100) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return (
        torch.randint(0, 50000, (batch, each, length), generator=r),
        torch.randint(0, 50000, (batch, each), generator=r),
    )


class TextCnn(nn.Module):
    """Sentences by convolutions of three widths (Kim, 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30000, 300)
        self.layers = nn.ModuleList(nn.Conv1d(300, 100, k) for k in (3, 4, 5))
        self.last = nn.Linear(300, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids).transpose(1, 2)
        return self.last(torch.cat([F.relu(layer(x)).amax(2) for layer in self.layers], 1))


class LanguageLstm(nn.Module):
    """A word model of two LSTM layers (Zaremba et al., 2014, medium)."""

    def __init__(self, width: int = 650, words: int = 10000):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
        self.last = nn.Linear(width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(self.embed(ids))[0])


class CrossNetwork(nn.Module):
    """xDeepFM (Lian et al., 2018): products of fields compressed by convolutions, beside a plain network."""

    def __init__(self, fields: int = 26, width: int = 16):
        super().__init__()
        self.embed = nn.Embedding(200000, width)
        self.layers = nn.ModuleList(nn.Conv1d(fields * a, 64, 1) for a in (fields, 64))
        self.deep = nn.Sequential(
            nn.Linear(fields * width, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1)
        )
        self.last = nn.Linear(128, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids.flatten(0, 1))
        h, found = x, []
        for layer in self.layers:
            products = (x[:, :, None] * h[:, None]).flatten(1, 2)
            h = F.relu(layer(products))
            found.append(h.sum(2))
        return self.last(torch.cat(found, 1)) + self.deep(x.flatten(1))


class PointPillars(nn.Module):
    """Points of pillars onto a map seen from above (Lang et al., 2019), with a backbone of two scales."""

    def __init__(self, side: int = 128):
        super().__init__()
        self.side, self.first, self.norm = side, nn.Linear(9, 64, bias=False), nn.LayerNorm(64)

        def block(a: int, b: int, layers: int) -> nn.Module:
            parts: list[nn.Module] = []
            for k in range(layers):
                parts += [nn.Conv2d(b if k else a, b, 3, 1 if k else 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            return nn.Sequential(*parts)

        self.one, self.two = block(64, 64, 4), block(64, 128, 4)
        self.up1 = nn.Sequential(nn.ConvTranspose2d(64, 128, 1), nn.BatchNorm2d(128), nn.ReLU())
        self.up2 = nn.Sequential(nn.ConvTranspose2d(128, 128, 2, 2), nn.BatchNorm2d(128), nn.ReLU())
        self.last = nn.Conv2d(256, 42, 1)

    def forward(self, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.first(points))).amax(2)
        batch, _, width = x.shape
        canvas = torch.zeros(batch, self.side * self.side, width, dtype=x.dtype, device=x.device)
        canvas = canvas.scatter(1, cells[:, :, None].expand(-1, -1, width), x)
        x = self.one(canvas.transpose(1, 2).reshape(batch, width, self.side, self.side))
        return self.last(torch.cat([self.up1(x), self.up2(self.two(x))], 1))


def pillars(batch: int, count: int = 3000, points: int = 20, side: int = 128) -> tuple[torch.Tensor, ...]:
    r = seeded()
    cells = torch.stack([torch.randperm(side * side, generator=r)[:count] for _ in range(batch)])
    return torch.randn(batch, count, points, 9, generator=r), cells


class Flow(nn.Module):
    """Optical flow by warped features and correlations of neighbours (PWC-Net, Sun et al., 2018), four levels."""

    def __init__(self, reach: int = 4):
        super().__init__()
        self.reach = reach
        widths = (3, 16, 32, 64, 96)
        self.features = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(b, b, 3, 1, 1), nn.LeakyReLU(0.1))
            for a, b in zip(widths, widths[1:])
        )
        pairs = (2 * reach + 1) ** 2
        self.estimators = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(pairs + c + 2, 128, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(128, 96, 3, 1, 1), nn.LeakyReLU(0.1),
                nn.Conv2d(96, 64, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(64, 2, 3, 1, 1),
            )
            for c in widths[:0:-1]
        )  # fmt: skip

    def correlate(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        r, (h, w) = self.reach, a.shape[2:]
        b = F.pad(b, (r, r, r, r))
        found = [(a * b[:, :, y : y + h, x : x + w]).mean(1) for y in range(2 * r + 1) for x in range(2 * r + 1)]
        return F.leaky_relu(torch.stack(found, 1), 0.1)

    def warp(self, x: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[2:]
        ys = torch.linspace(-1, 1, h, device=x.device, dtype=x.dtype)
        xs = torch.linspace(-1, 1, w, device=x.device, dtype=x.dtype)
        grid = torch.stack([xs[None].expand(h, w), ys[:, None].expand(h, w)], -1)[None]
        scale = torch.tensor([2 / max(w - 1, 1), 2 / max(h - 1, 1)], device=x.device, dtype=x.dtype)
        return F.grid_sample(x, grid + flow.permute(0, 2, 3, 1) * scale, align_corners=True)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        one, two = [pair[:, :3]], [pair[:, 3:]]
        for layer in self.features:
            one.append(layer(one[-1]))
            two.append(layer(two[-1]))
        flow = torch.zeros_like(one[-1][:, :2])
        for k, estimator in enumerate(self.estimators):
            a, b = one[-1 - k], two[-1 - k]
            if k:
                flow = 2 * F.interpolate(flow, scale_factor=2.0, mode="bilinear", align_corners=False)
            b = self.warp(b, flow)
            flow = flow + estimator(torch.cat([self.correlate(a, b), a, flow], 1))
        return flow


class Nerf(nn.Module):
    """A radiance field (Mildenhall et al., 2020): encoded positions, and 64 samples a ray summed by their transmittance."""

    def __init__(self, width: int = 256, samples: int = 64):
        super().__init__()
        self.samples = samples
        self.layers = nn.ModuleList(
            nn.Linear(a, width) for a in (63, width, width, width, width + 63, width, width, width)
        )
        self.density, self.features = nn.Linear(width, 1), nn.Linear(width, width)
        self.colour = nn.Sequential(
            nn.Linear(width + 27, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid()
        )

    def encode(self, x: torch.Tensor, octaves: int) -> torch.Tensor:
        parts = [x]
        for k in range(octaves):
            parts += [torch.sin(2.0**k * x), torch.cos(2.0**k * x)]
        return torch.cat(parts, -1)

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        origin, direction = rays[..., None, :3], rays[..., None, 3:]
        depth = torch.linspace(0.1, 1, self.samples, device=rays.device, dtype=rays.dtype)[:, None]
        p = self.encode(origin + depth * direction, 10)
        h = p
        for k, layer in enumerate(self.layers):
            h = F.relu(layer(torch.cat([p, h], -1) if k == 4 else h))
        density = F.relu(self.density(h))[..., 0]
        d = self.encode(F.normalize(direction, dim=-1), 4).expand(-1, -1, self.samples, -1)
        colour = self.colour(torch.cat([self.features(h), d], -1))
        optical = density * (0.9 / self.samples)
        alpha, through = 1 - torch.exp(-optical), torch.exp(optical - optical.cumsum(-1))
        return ((alpha * through)[..., None] * colour).sum(-2)


class Siren(nn.Module):
    """Sines as activations (Sitzmann et al., 2020)."""

    def __init__(self, width: int = 256, layers: int = 5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 if k == 0 else width, width) for k in range(layers))
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for k, layer in enumerate(self.layers):
            x = torch.sin((6.0 if k == 0 else 2.0) * layer(x))
        return self.last(x)


class Kan(nn.Module):
    """A layer of learned functions over radial bases for each pair of features (FastKAN, Li, 2024)."""

    def __init__(self, widths: tuple[int, ...] = (784, 256, 256, 10), bases: int = 8):
        super().__init__()
        self.register_buffer("centres", torch.linspace(-2, 2, bases))
        self.norms = nn.ModuleList(nn.LayerNorm(a) for a in widths[:-1])
        self.splines = nn.ModuleList(nn.Linear(a * bases, b, bias=False) for a, b in zip(widths, widths[1:]))
        self.bases = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        for norm, spline, base in zip(self.norms, self.splines, self.bases, strict=True):
            near = torch.exp(-(((norm(x)[..., None] - self.centres) / 0.57) ** 2))
            x = spline(near.flatten(1)) + base(F.silu(x))
        return x


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "graph_attention": (GraphAttention, normal((256, 128), (256, 256))),
    "mesh_graph": (MessagePassing, mesh),
    "pointnet": (PointNet, normal((3, 2048))),
    "dgcnn": (Dgcnn, normal((3, 1024))),
    "dlrm": (Dlrm, clicks),
    "interest_network": (InterestNetwork, visits),
    "pwc_flow": (Flow, normal((6, 256, 448))),
    "nerf": (Nerf, lambda batch: (torch.randn(batch, 1024, 6, generator=seeded()),)),
    "siren": (Siren, normal((16384, 2))),
    "kan": (Kan, normal((256, 784))),
    "text_cnn": (TextCnn, tokens(100, 30000)),
    "lstm_words": (LanguageLstm, tokens(35, 10000)),
    "xdeepfm": (CrossNetwork, tokens(128, 200000, 26)),
    "pointpillars": (PointPillars, pillars),
}
