"""Scenes and bodies in space, and clouds of points, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures, seeded
from zoo_relations import cloud, nearest, take
from zoo_scenes import conv, keep_most, resize


class LiftSplat(nn.Module):
    """Lift, splat, shoot (Philion and Fidler, 2020): pixels of six cameras spread over 41 depths onto a map of 200 x 200."""

    def __init__(self, depths: int = 41, c: int = 64, side: int = 200):
        super().__init__()
        import torchvision.models as models

        features = models.efficientnet_b0(weights=None).features
        self.high, self.low = features[:6], features[6:8]
        self.join = nn.Sequential(conv(320 + 112, 512), conv(512, 512))
        self.spread = nn.Conv2d(512, depths + c, 1)
        whole = models.resnet18(weights=None)
        self.first = conv(c, 64, 7, 2)
        self.one, self.two, self.three = whole.layer1, whole.layer2, whole.layer3
        self.up = nn.Sequential(conv(64 + 256, 256), conv(256, 256))
        self.last = nn.Sequential(conv(256, 128), nn.Conv2d(128, 1, 1))
        self.depths, self.c, self.side = depths, c, side
        keep_most(self)

    def forward(self, images: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        batch, cameras = images.shape[:2]
        high = self.high(images.flatten(0, 1))
        x = F.interpolate(self.low(high), scale_factor=2.0, mode="bilinear", align_corners=True)
        x = self.spread(self.join(torch.cat([high, x], 1)))
        depth, x = x[:, : self.depths].softmax(1), x[:, self.depths :]
        lifted = depth[:, None] * x[:, :, None]
        lifted = lifted.unflatten(0, (batch, cameras)).permute(0, 1, 3, 4, 5, 2).reshape(batch, -1, self.c)
        ground = torch.zeros(batch, self.side**2, self.c, dtype=x.dtype, device=x.device)
        ground = ground.scatter_add(1, cells[:, :, None].expand(-1, -1, self.c), lifted)
        x = self.first(ground.transpose(1, 2).unflatten(2, (self.side, self.side)))
        one = self.one(x)
        x = self.three(self.two(one))
        x = self.up(torch.cat([resize(x, one), one], 1))
        return self.last(F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True))


def cameras(batch: int) -> tuple[torch.Tensor, ...]:
    """Images, and for each pixel and depth its cell of the map."""
    frames = pictures(3, 128, 352)(6 * batch)[0].unflatten(0, (batch, 6))
    depth, across, turn = torch.meshgrid(
        torch.arange(41.0) + 4, torch.linspace(-0.5, 0.5, 22), torch.arange(6.0), indexing="ij"
    )
    angle = across + turn * (math.pi / 3)
    x, y = 100 + 2 * depth * torch.cos(angle), 100 + 2 * depth * torch.sin(angle)
    cells = (y.floor() * 200 + x.floor()).long().permute(2, 0, 1)  # cameras, depths, columns
    return frames, cells[:, :, None].expand(-1, -1, 8, -1).reshape(1, -1).repeat(batch, 1)


class Splats(nn.Module):
    """Gaussian splatting (Kerbl et al., 2023) of 400 ellipsoids, from near to far, to 64 x 64 pixels: projected covariances,
    colours by spherical harmonics of degree two, transmittance."""

    def __init__(self, side: int = 64):
        super().__init__()
        places = (torch.arange(side) + 0.5) / side * 2 - 1
        y, x = torch.meshgrid(places, places, indexing="ij")
        self.register_buffer("pixels", torch.stack([x, y], -1).reshape(1, 1, -1, 2))
        self.side, self.background = side, nn.Parameter(torch.tensor([0.2, 0.4, 0.6]))

    def rotation(self, q: torch.Tensor) -> torch.Tensor:
        w, x, y, z = F.normalize(q, dim=-1).unbind(-1)
        rows = [
            1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
            2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
            2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
        ]  # fmt: skip
        return torch.stack(rows, -1).unflatten(-1, (3, 3))

    def colour(self, waves: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        x, y, z = direction.unbind(-1)
        one = torch.ones_like(x)
        basis = [0.2821 * one, -0.4886 * y, 0.4886 * z, -0.4886 * x, 1.0925 * x * y, -1.0925 * y * z]
        basis += [0.3154 * (2 * z * z - x * x - y * y), -1.0925 * x * z, 0.5463 * (x * x - y * y)]
        return F.relu((torch.stack(basis, -1)[..., None] * waves).sum(-2) + 0.5)

    def forward(
        self, means: torch.Tensor, sizes: torch.Tensor, turns: torch.Tensor, opacity: torch.Tensor, waves: torch.Tensor
    ) -> torch.Tensor:
        scaled = self.rotation(turns) * torch.exp(sizes)[..., None, :]
        covariance = scaled @ scaled.transpose(-1, -2)
        x, y, z = means.unbind(-1)
        zero = torch.zeros_like(x)
        near = self.side / 4 / z  # in units of two pixels
        first = torch.stack([near, zero, -near * x / z], -1)
        j = torch.stack([first, torch.stack([zero, near, -near * y / z], -1)], -2)
        flat = j @ covariance @ j.transpose(-1, -2)
        a, b, c = flat[..., 0, 0] + 0.3, flat[..., 0, 1], flat[..., 1, 1] + 0.3
        scale = 1 / (a * c - b * b)
        apart = self.pixels * (self.side / 4) - torch.stack([x * near, y * near], -1)[:, :, None]
        dx, dy = apart[..., 0], apart[..., 1]
        a, b, c = (t[..., None] for t in (c * scale, -b * scale, a * scale))
        power = -0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy
        alpha = (torch.sigmoid(opacity) * torch.exp(power)).clamp(max=0.99)
        kept = torch.log1p(-alpha)
        through = torch.exp(kept.cumsum(1) - kept)
        colour = self.colour(waves, F.normalize(means, dim=-1))
        image = torch.einsum("bnp,bnc->bcp", alpha * through, colour)
        image = image + torch.exp(kept.sum(1))[:, None] * self.background[:, None]
        return image.unflatten(2, (self.side, self.side))


def ellipsoids(batch: int, count: int = 400) -> tuple[torch.Tensor, ...]:
    r = seeded()
    depth = torch.linspace(1, 4, count).expand(batch, count)
    xy = torch.rand(batch, count, 2, generator=r) * 2 - 1
    means = torch.cat([xy * depth[..., None], depth[..., None]], 2)
    sizes, turns = 0.3 * torch.randn(batch, count, 3, generator=r) - 1.2, torch.randn(batch, count, 4, generator=r)
    waves = 0.4 * torch.randn(batch, count, 9, 3, generator=r)
    return means, sizes, turns, torch.randn(batch, count, 1, generator=r) - 1, waves


class TensorField(nn.Module):
    """TensoRF (Chen et al., 2022): densities and colours are sums of products of planes and lines; 64 samples a ray."""

    def __init__(self, size: int = 128, samples: int = 64, dense: int = 16, coloured: int = 48):
        super().__init__()
        self.samples, self.dense = samples, dense

        def smooth(*shape: int) -> nn.Parameter:
            x = torch.randn(*shape[:2], *(max(n // 8, 1) for n in shape[2:]))
            return nn.Parameter(0.5 * F.interpolate(x, size=shape[2:], mode="bilinear", align_corners=True))

        self.planes = nn.ParameterList(smooth(1, dense + coloured, size, size) for _ in range(3))
        self.lines = nn.ParameterList(smooth(1, dense + coloured, size, 1) for _ in range(3))
        self.basis = nn.Linear(3 * coloured, 27, bias=False)
        self.colour = nn.Sequential(
            nn.Linear(5 * 30, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)
        )

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        waves = (x[..., None] * torch.tensor([1.0, 2.0], dtype=x.dtype, device=x.device)).flatten(-2)
        return torch.cat([x, torch.sin(waves), torch.cos(waves)], -1)

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        origin, direction = rays[..., None, :3], rays[..., None, 3:]
        depth = torch.linspace(0.05, 0.95, self.samples, device=rays.device, dtype=rays.dtype)[:, None]
        p = (origin + depth * direction).clamp(-1, 1)
        shape = p.shape[:3]
        flat = p.reshape(1, -1, 1, 3)
        density, features = 0, []
        for plane, line, (i, j, k) in zip(self.planes, self.lines, ((0, 1, 2), (0, 2, 1), (1, 2, 0)), strict=True):
            where = torch.stack([torch.zeros_like(flat[..., k]), flat[..., k]], -1)
            both = F.grid_sample(plane, flat[..., (i, j)], align_corners=True) * F.grid_sample(
                line, where, align_corners=True
            )
            both = both[0, :, :, 0]
            density = density + both[: self.dense].sum(0)
            features.append(both[self.dense :])
        density = F.softplus(density - 1).view(shape)
        y = self.basis(torch.cat(features).t()).view(*shape, 27)
        d = F.normalize(direction, dim=-1).expand(-1, -1, self.samples, -1)
        colour = torch.sigmoid(self.colour(self.encode(torch.cat([y, d], -1))))
        optical = density * (4.0 / self.samples)
        alpha, through = 1 - torch.exp(-optical), torch.exp(optical - optical.cumsum(-1))
        return ((alpha * through)[..., None] * colour).sum(-2)


def rays(batch: int, count: int = 1024) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return (torch.cat([torch.rand(batch, count, 3, generator=r) - 0.5, torch.randn(batch, count, 3, generator=r)], 2),)


class BodyMesh(nn.Module):
    """HMR with rotations as pairs of vectors (Kanazawa et al., 2018; Kolotouros et al., 2019): ResNet-50, three rounds of
    regression, and a body of 6890 vertices whose 24 joints form a tree."""

    def __init__(self, vertices: int = 6890, joints: int = 24):
        super().__init__()
        import torchvision.models as models

        self.backbone = nn.Sequential(*list(models.resnet50(weights=None).children())[:-1])
        n = 6 * joints + 13
        self.one, self.two, self.last = nn.Linear(2048 + n, 1024), nn.Linear(1024, 1024), nn.Linear(1024, n)
        self.mean = nn.Parameter(
            torch.cat([torch.tensor([1.0, 0, 0, 1, 0, 0]).repeat(joints), torch.zeros(10), torch.tensor([0.9, 0, 0])])[
                None
            ]
        )
        self.template = nn.Parameter(0.5 * torch.randn(vertices, 3))
        self.shapes, self.poses = (
            nn.Parameter(0.03 * torch.randn(vertices, 3, 10)),
            nn.Parameter(0.01 * torch.randn(9 * (joints - 1), 3 * vertices)),
        )
        self.regress = nn.Parameter(torch.randn(joints, vertices).mul(4).softmax(1))
        self.weights = nn.Parameter(torch.randn(vertices, joints).mul(3).softmax(1))
        self.parents = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21)
        self.joints = joints
        nn.init.xavier_normal_(self.last.weight)
        keep_most(self)

    def rotations(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.unflatten(1, (-1, 3, 2)).unbind(3)
        one = F.normalize(a, dim=-1)
        two = F.normalize(b - (one * b).sum(-1, keepdim=True) * one, dim=-1)
        return torch.stack([one, two, torch.linalg.cross(one, two, dim=-1)], -1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.backbone(image).flatten(1)
        found = self.mean.expand(x.shape[0], -1)
        for _ in range(3):
            found = found + self.last(F.relu(self.two(F.relu(self.one(torch.cat([x, found], 1))))))
        pose, shape, camera = found.split([6 * self.joints, 10, 3], 1)
        turns = self.rotations(pose)
        body = self.template + torch.einsum("bl,mkl->bmk", shape, self.shapes)
        places = torch.einsum("bik,ji->bjk", body, self.regress)
        identity = torch.eye(3, dtype=turns.dtype, device=turns.device)
        features = (turns[:, 1:] - identity).flatten(1)
        body = body + (features @ self.poses).unflatten(1, (-1, 3))
        chain = [(turns[:, 0], places[:, 0])]
        for k in range(1, self.joints):
            turn, place = chain[self.parents[k]]
            step = (places[:, k] - places[:, self.parents[k]])[..., None]
            chain.append((turn @ turns[:, k], place + (turn @ step)[..., 0]))
        turn, moved = torch.stack([t for t, _ in chain], 1), torch.stack([p for _, p in chain], 1)
        shift = moved - (turn @ places[..., None])[..., 0]
        skin = torch.einsum("vj,bjrc->bvrc", self.weights, torch.cat([turn, shift[..., None]], 3))
        body = (skin[..., :3] @ body[..., None])[..., 0] + skin[..., 3]
        flat = camera[:, None, :1] * (moved[..., :2] + camera[:, None, 1:])
        return body, flat


class LocalPool(nn.Module):
    """RandLA-Net: where the neighbours are is encoded, and pooled with a softmax of learned scores."""

    def __init__(self, a: int, b: int):
        super().__init__()

        def shared(i: int, o: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 1), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))

        h = b // 2
        self.into, self.short = shared(a, h), nn.Sequential(nn.Conv2d(a, 2 * b, 1), nn.BatchNorm2d(2 * b))
        self.place, self.again = shared(10, h), shared(h, h)
        self.scores = nn.ModuleList(nn.Linear(b, b, bias=False) for _ in range(2))
        self.pools, self.out = nn.ModuleList([shared(b, h), shared(b, b)]), nn.Conv2d(b, 2 * b, 1)
        self.norm = nn.BatchNorm2d(2 * b)

    def forward(self, x: torch.Tensor, points: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        near = take(points, index)
        own = points[:, :, None].expand_as(near)
        apart = own - near
        parts = [(apart.pow(2).sum(-1, keepdim=True) + 1e-4).sqrt(), apart, own, near]
        place = self.place(torch.cat(parts, -1).permute(0, 3, 1, 2))
        y = self.into(x)
        for k, (score, pool) in enumerate(zip(self.scores, self.pools, strict=True)):
            place = self.again(place) if k else place
            around = take(y.squeeze(3).transpose(1, 2), index).permute(0, 3, 1, 2)
            both = torch.cat([around, place], 1)
            weights = score(both.permute(0, 2, 3, 1)).softmax(2).permute(0, 3, 1, 2)
            y = pool((both * weights).sum(3, keepdim=True))
        return F.leaky_relu(self.norm(self.out(y)) + self.short(x), 0.01)


class RandLa(nn.Module):
    """RandLA-Net (Hu et al., 2020) on 2048 points: four scales, a quarter of the points each, and back by the nearest point."""

    def __init__(self, classes: int = 13):
        super().__init__()
        widths = (16, 64, 128, 256)
        self.first = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2))
        self.down = nn.ModuleList(LocalPool(2 * a if k else 8, b) for k, (a, b) in enumerate(zip((4, *widths), widths)))
        self.middle = nn.Sequential(nn.Conv2d(512, 512, 1), nn.ReLU())
        kept, ups = (32, 32, 128, 256), (512, 256, 128, 32)
        self.up = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a + b, c, 1), nn.BatchNorm2d(c), nn.ReLU())
            for a, b, c in zip(ups, kept[::-1], (256, 128, 32, 32), strict=True)
        )
        self.last = nn.Sequential(
            nn.Conv2d(32, 64, 1), nn.ReLU(), nn.Conv2d(64, 32, 1), nn.ReLU(), nn.Conv2d(32, classes, 1)
        )

    def forward(self, cloud: torch.Tensor) -> torch.Tensor:
        points, x = cloud[..., :3], self.first(cloud).transpose(1, 2)[..., None]
        places, skips = [points], []
        for k, layer in enumerate(self.down):
            index = nearest(points, points, 16)
            x = layer(x, points, index)
            if k == 0:
                skips.append(x)
            count = points.shape[1] // 4
            x = take(x.squeeze(3).transpose(1, 2), index[:, :count]).amax(2).transpose(1, 2)[..., None]
            points = points[:, :count]
            places.append(points)
            skips.append(x)
        x = self.middle(skips.pop())
        for layer in self.up:
            coarse = places.pop()
            index = nearest(places[-1], coarse, 1)
            x = take(x.squeeze(3).transpose(1, 2), index).permute(0, 3, 1, 2)
            x = layer(torch.cat([skips.pop(), x], 1))
        return self.last(x).squeeze(3)


class KernelPoints(nn.Module):
    """KPConv: neighbours count by their distances from fifteen points in space, each of which has a matrix."""

    def __init__(self, a: int, b: int, radius: float, points: int = 15):
        super().__init__()
        places = F.normalize(torch.randn(points, 3, generator=seeded()), dim=1) * 0.66 * radius
        places[0] = 0
        self.register_buffer("places", places)
        self.reach, self.weight = radius / 2, nn.Parameter(torch.randn(points, a, b) / math.sqrt(4 * a))

    def forward(
        self, x: torch.Tensor, centres: torch.Tensor, points: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        apart = take(points, index) - centres[:, :, None]
        distance = (apart[..., None, :] - self.places).pow(2).sum(-1).clamp(min=1e-4).sqrt()
        influence = F.relu(1 - distance / self.reach)
        y = torch.einsum("bnkp,bnkc->bnpc", influence, take(x, index))
        return torch.einsum("bnpc,pcd->bnd", y, self.weight)


class KernelBlock(nn.Module):
    def __init__(self, a: int, b: int, radius: float):
        super().__init__()
        h = b // 4
        self.into, self.conv, self.out = nn.Linear(a, h), KernelPoints(h, h, radius), nn.Linear(h, b)
        self.short = nn.Linear(a, b) if a != b else nn.Identity()
        self.norms = nn.ModuleList(nn.BatchNorm1d(c) for c in (h, h, b))

    def norm(self, k: int, x: torch.Tensor) -> torch.Tensor:
        return self.norms[k](x.transpose(1, 2)).transpose(1, 2)

    def forward(
        self, x: torch.Tensor, centres: torch.Tensor, points: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        y = F.leaky_relu(self.norm(0, self.into(x)), 0.1)
        y = F.leaky_relu(self.norm(1, self.conv(y, centres, points, index)), 0.1)
        short = x if centres.shape[1] == points.shape[1] else take(x, index).amax(2)
        return F.leaky_relu(self.norm(2, self.out(y)) + self.short(short), 0.1)


class KpConv(nn.Module):
    """KPConv for classes of shapes (Thomas et al., 2019) on 1000 points, two blocks at each of three scales."""

    def __init__(self, classes: int = 40):
        super().__init__()
        self.first = KernelPoints(4, 64, 0.6)
        self.same = nn.ModuleList(
            KernelBlock(a, b, r) for a, b, r in ((64, 128, 0.6), (256, 256, 0.9), (512, 512, 1.4))
        )
        self.less = nn.ModuleList(KernelBlock(a, b, r) for a, b, r in ((128, 256, 0.6), (256, 512, 0.9)))
        self.head = nn.Sequential(nn.Linear(512, 256), nn.LeakyReLU(0.1), nn.Linear(256, classes))
        keep_most(self)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        x = torch.cat([torch.ones_like(points[..., :1]), points], 2)
        index = nearest(points, points, 24)
        x = F.leaky_relu(self.first(x, points, points, index), 0.1)
        for k, same in enumerate(self.same):
            x = same(x, points, points, index)
            if k < len(self.less):
                centres = points[:, : points.shape[1] // 4]
                x = self.less[k](x, centres, points, nearest(centres, points, 24))
                points = centres
                index = nearest(points, points, 24)
        return self.head(x.mean(1))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "lift_splat": (LiftSplat, cameras),
    "gaussian_splats": (Splats, ellipsoids),
    "tensor_field": (TensorField, rays),
    "body_mesh": (BodyMesh, pictures(3, 224, 224)),
    "randla_net": (RandLa, cloud(2048, 6)),
    "kp_conv": (KpConv, cloud(1000)),
}
