"""Matching, registration and depth, for the zoo: transport, planes that sweep a scene, fields that are integrated or spread."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures, seeded


class GraphAttentionLayer(nn.Module):
    """Messages of SuperGlue: attention of four heads whose elements lie beside one another, then two 1 x 1 convolutions."""

    def __init__(self, c: int, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.merge = (nn.Conv1d(c, c, 1) for _ in range(4))
        self.mlp = nn.Sequential(nn.Conv1d(2 * c, 2 * c, 1), nn.BatchNorm1d(2 * c), nn.ReLU(), nn.Conv1d(2 * c, c, 1))

    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        batch, c, _ = x.shape
        split = lambda t: t.reshape(batch, c // self.heads, self.heads, -1)
        q, k, v = split(self.q(x)), split(self.k(source)), split(self.v(source))
        scores = torch.einsum("bdhn,bdhm->bhnm", q, k) / (c // self.heads) ** 0.5
        found = torch.einsum("bhnm,bdhm->bdhn", scores.softmax(-1), v)
        return x + self.mlp(torch.cat([x, self.merge(found.reshape(batch, c, -1))], 1))


class SuperGlue(nn.Module):
    """SuperGlue (Sarlin et al., 2020): four of nine pairs of layers, then eight rounds of Sinkhorn's
    iteration in logarithms."""

    def __init__(self, c: int = 256, pairs: int = 4, rounds: int = 8):
        super().__init__()
        self.rounds = rounds
        widths = (3, 32, 64, 128, 256, c)
        layers: list[nn.Module] = []
        for a, b in zip(widths, widths[1:], strict=False):
            layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
        self.places = nn.Sequential(*layers[:-2])
        self.layers = nn.ModuleList(GraphAttentionLayer(c) for _ in range(2 * pairs))
        self.last, self.none = nn.Conv1d(c, c, 1), nn.Parameter(torch.tensor(1.0))

    def transport(self, scores: torch.Tensor) -> torch.Tensor:
        batch, m, n = scores.shape
        none = self.none.to(scores.dtype)
        scores = torch.cat([scores, none.expand(batch, m, 1)], 2)
        scores = torch.cat([scores, none.expand(batch, 1, n + 1)], 1)
        total = scores.new_tensor(float(m + n)).log()
        rows = torch.cat([(-total).expand(m), scores.new_tensor(float(n)).log()[None] - total])
        columns = torch.cat([(-total).expand(n), scores.new_tensor(float(m)).log()[None] - total])
        u, v = torch.zeros_like(scores[:, :, 0]), torch.zeros_like(scores[:, 0])
        for _ in range(self.rounds):
            u = rows - torch.logsumexp(scores + v[:, None], 2)
            v = columns - torch.logsumexp(scores + u[:, :, None], 1)
        return scores + u[:, :, None] + v[:, None] + total

    def forward(self, one: torch.Tensor, two: torch.Tensor, at1: torch.Tensor, at2: torch.Tensor) -> torch.Tensor:
        a, b = one + self.places(at1), two + self.places(at2)
        for k, layer in enumerate(self.layers):
            a, b = (layer(a, b), layer(b, a)) if k % 2 else (layer(a, a), layer(b, b))
        scores = torch.einsum("bdn,bdm->bnm", self.last(a), self.last(b)) / a.shape[1] ** 0.5
        return self.transport(scores.float()).exp()


def keypoints(batch: int, first: int = 400, second: int = 357) -> tuple[torch.Tensor, ...]:
    r = seeded()
    shapes = ((256, first), (256, second), (3, first), (3, second))
    return tuple(torch.randn(batch, *s, generator=r) for s in shapes)


class PlaneSweep(nn.Module):
    """MVSNet (Yao et al., 2018), shallower: two views warped to 32 planes of the first, the variance of their features, 3-D
    convolutions and the expected depth."""

    def __init__(self, planes: int = 32, c: int = 32):
        super().__init__()
        layers: list[nn.Module] = []
        for a, b, size, stride in ((3, 8, 3, 1), (8, 16, 5, 2), (16, 16, 3, 1), (16, 32, 5, 2), (32, c, 3, 1)):
            layers += [nn.Conv2d(a, b, size, stride, size // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.features = nn.Sequential(*layers[:-2])

        def block(a: int, b: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv3d(a, b, 3, stride, 1, bias=False), nn.BatchNorm3d(b), nn.ReLU())

        self.one, self.two, self.three = block(c, 8), block(8, 16, 2), block(16, 16)
        self.up = nn.Sequential(
            nn.ConvTranspose3d(16, 8, 3, 2, 1, output_padding=1, bias=False), nn.BatchNorm3d(8), nn.ReLU()
        )
        self.last = nn.Conv3d(8, 1, 3, padding=1)
        nn.init.normal_(self.last.weight, std=0.1)
        self.register_buffer("depths", torch.linspace(2, 6, planes))

    def warp(self, x: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        """`view` is a 3 x 4 matrix from the first camera's pixels times depth to the second's."""
        batch, c, h, w = x.shape
        planes = self.depths.shape[0]
        rows = torch.arange(h, dtype=x.dtype, device=x.device)
        columns = torch.arange(w, dtype=x.dtype, device=x.device)
        v, u = torch.meshgrid(rows, columns, indexing="ij")
        pixels = torch.stack([u, v, torch.ones_like(u)]).flatten(1)
        turned = view[:, :, :3] @ pixels
        points = turned[:, :, None] * self.depths.to(x.dtype)[:, None] + view[:, :, 3, None, None]
        places = points[:, :2] / points[:, 2:]
        scale = torch.tensor([(w - 1) / 2, (h - 1) / 2], dtype=x.dtype, device=x.device).view(2, 1, 1)
        grid = (places / scale - 1).permute(0, 2, 3, 1).reshape(batch, planes * h, w, 2)
        return F.grid_sample(x, grid, align_corners=True).reshape(batch, c, planes, h, w)

    def forward(self, images: torch.Tensor, views: torch.Tensor) -> torch.Tensor:
        features = [self.features(image) for image in images.unbind(1)]
        first = features[0][:, :, None].expand(-1, -1, self.depths.shape[0], -1, -1)
        total, squares = first, first * first
        for k, x in enumerate(features[1:]):
            warped = self.warp(x, views[:, k])
            total, squares = total + warped, squares + warped * warped
        count = len(features)
        volume = squares / count - (total / count) ** 2
        one = self.one(volume)
        cost = self.last(one + self.up(self.three(self.two(one)))).squeeze(1)
        return (cost.softmax(1) * self.depths.view(1, -1, 1, 1)).sum(1)


def cameras(batch: int, h: int = 128, w: int = 160) -> tuple[torch.Tensor, ...]:
    r = seeded()
    views = torch.eye(3, 4).repeat(batch, 2, 1, 1) + 0.002 * torch.randn(batch, 2, 3, 4, generator=r)
    views[..., 2, :2] *= 0.01
    views[..., 3] = 3 * torch.randn(batch, 2, 3, generator=r) * torch.tensor([1.0, 1.0, 0.02])
    (first,) = pictures(3, h, w)(batch)
    return torch.stack([first, torch.roll(first, 3, 3), torch.roll(first, 2, 2)], 1), views


class VoxelMorph(nn.Module):
    """VoxelMorph (Dalca et al., 2018): a U-Net of two volumes gives velocities, which are integrated by squaring seven times;
    the first volume is sampled there."""

    def __init__(self, size: tuple[int, int, int] = (48, 64, 64), squarings: int = 7):
        super().__init__()
        self.squarings = squarings
        down, up = (16, 32, 32, 32), (32, 32, 32, 16)
        self.down = nn.ModuleList(nn.Conv3d(a, b, 3, 2, 1) for a, b in zip((2, *down), down, strict=False))
        joined = (down[3], up[0] + down[2], up[1] + down[1], up[2] + down[0])
        self.up = nn.ModuleList(nn.Conv3d(a, b, 3, padding=1) for a, b in zip(joined, up, strict=True))
        self.flow = nn.Conv3d(16 + 2, 3, 3, padding=1)
        nn.init.normal_(self.flow.weight, std=0.05)
        grid = torch.meshgrid(*(torch.arange(float(s)) for s in size), indexing="ij")
        self.register_buffer("grid", torch.stack(grid)[None])

    def move(self, x: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
        places = (self.grid + flow).unbind(1)
        scaled = [2 * p / (s - 1) - 1 for p, s in zip(places, x.shape[2:], strict=True)]
        return F.grid_sample(x, torch.stack(scaled[::-1], -1), align_corners=True)

    def forward(self, moving: torch.Tensor, fixed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.cat([moving, fixed], 1)
        seen = [x]
        for layer in self.down:
            seen.append(F.leaky_relu(layer(seen[-1]), 0.2))
        y = seen.pop()
        for layer in self.up:
            y = F.leaky_relu(layer(y), 0.2)
            y = torch.cat([F.interpolate(y, scale_factor=2.0, mode="nearest"), seen.pop()], 1)
        flow = self.flow(y) / 2**self.squarings
        for _ in range(self.squarings):
            flow = flow + self.move(flow, flow)
        return self.move(moving, flow), flow


def volumes(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    coarse = torch.randn(2, batch, 1, 12, 16, 16, generator=r)
    one, two = (F.interpolate(x, size=(48, 64, 64), mode="trilinear") for x in coarse)
    return one, one + 0.3 * two


class SpatialPropagation(nn.Module):
    """CSPN (Cheng et al., 2018): a small encoder and decoder give a coarse depth and eight affinities a pixel; 12 rounds of
    propagation, in which measured depths stay."""

    def __init__(self, rounds: int = 12, c: int = 32):
        super().__init__()
        self.rounds = rounds

        def conv(a: int, b: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())

        self.one, self.two, self.three = conv(4, c), conv(c, 2 * c, 2), conv(2 * c, 4 * c, 2)
        self.deep = nn.Sequential(conv(4 * c, 4 * c), conv(4 * c, 4 * c))
        self.up1, self.up2 = conv(6 * c, 2 * c), conv(3 * c, c)
        self.depth, self.guide = nn.Conv2d(c, 1, 3, padding=1), nn.Conv2d(c, 8, 3, padding=1)

    def forward(self, image: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        one = self.one(torch.cat([image, sparse], 1))
        two = self.two(one)
        three = self.deep(self.three(two))
        up = lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = self.up2(torch.cat([up(self.up1(torch.cat([up(three), two], 1))), one], 1))
        first = depth = self.depth(x)
        guide = self.guide(x)
        guide = guide / guide.abs().sum(1, keepdim=True)
        centre = 1 - guide.sum(1, keepdim=True)
        known = sparse > 0
        h, w = depth.shape[2:]
        for _ in range(self.rounds):
            padded = F.pad(depth, (1, 1, 1, 1))
            near = [padded[..., i : i + h, j : j + w] for i in range(3) for j in range(3) if (i, j) != (1, 1)]
            depth = centre * first + (guide * torch.cat(near, 1)).sum(1, keepdim=True)
            depth = torch.where(known, sparse, depth)
        return depth


def measured(batch: int) -> tuple[torch.Tensor, ...]:
    (image,) = pictures(3, 228, 304)(batch)
    chosen = torch.rand(batch, 1, 228, 304, generator=seeded())
    return image, torch.where(chosen < 0.01, 1 + 300 * chosen, 0.0)


class SoftSplat(nn.Module):
    """Softmax splatting (Niklaus and Liu, 2020): features of a frame are moved along a flow and added to the four pixels
    that they reach, weighted by their importance; a small network joins both frames."""

    def __init__(self, c: int = 32):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, c, 3, padding=1), nn.PReLU(), nn.Conv2d(c, c, 3, padding=1), nn.PReLU()
        )
        self.flow = nn.Sequential(
            nn.Conv2d(6, 32, 7, 2, 3), nn.PReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.PReLU(), nn.Conv2d(32, 4, 3, 1, 1)
        )
        self.weight = nn.Conv2d(6, 1, 3, padding=1)
        self.join = nn.Sequential(
            nn.Conv2d(2 * c + 6, 64, 3, padding=1),
            nn.PReLU(),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.PReLU(),
            nn.Conv2d(64, 3, 3, padding=1),
        )

    def splat(self, x: torch.Tensor, flow: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        batch, c, h, w = x.shape
        rows = torch.arange(h, device=x.device, dtype=torch.float32)
        columns = torch.arange(w, device=x.device, dtype=torch.float32)
        flow, weight = flow.float(), weight.float().exp()
        across, down = columns + flow[:, 0], rows[:, None] + flow[:, 1]
        left, top = across.floor(), down.floor()
        values = torch.cat([x.float() * weight, weight], 1).flatten(2)
        total = torch.zeros_like(values)
        for i in (0, 1):
            for j in (0, 1):
                px, py = left + j, top + i
                share = (1 - (across - px).abs()) * (1 - (down - py).abs())
                inside = (px >= 0) & (px < w) & (py >= 0) & (py < h)
                share = torch.where(inside, share, 0.0).flatten(1)[:, None]
                to = (py.clamp(0, h - 1) * w + px.clamp(0, w - 1)).long().flatten(1)[:, None]
                total = total.scatter_add(2, to.expand(-1, c + 1, -1), values * share)
        return (total[:, :c] / (total[:, c:] + 1e-4)).reshape(batch, c, h, w).to(x.dtype)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        one, two = pair[:, :3], pair[:, 3:]
        flows = 4 * F.interpolate(self.flow(pair), scale_factor=2.0, mode="bilinear", align_corners=False)
        moved = []
        for image, flow in ((one, flows[:, :2]), (two, flows[:, 2:])):
            weight = self.weight(torch.cat([image, one - two], 1))
            moved.append(self.splat(torch.cat([image, self.features(image)], 1), flow / 2, weight))
        return (moved[0][:, :3] + moved[1][:, :3]) / 2 + self.join(torch.cat(moved, 1))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "super_glue_4": (SuperGlue, keypoints),
    "mvs_net": (PlaneSweep, cameras),
    "voxel_morph": (VoxelMorph, volumes),
    "cspn": (SpatialPropagation, measured),
    "soft_splat": (SoftSplat, pictures(6, 192, 256)),
}
