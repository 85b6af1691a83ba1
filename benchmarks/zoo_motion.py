"""Flow, matching, stereo, video, skeletons and fields of pairs or sequences of images, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded


class Residual(nn.Module):
    """Two 3 x 3 convolutions with norms and a shortcut."""

    def __init__(self, a: int, b: int, stride: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.one, self.two = nn.Conv2d(a, b, 3, stride, 1), nn.Conv2d(b, b, 3, 1, 1)
        self.norm1, self.norm2 = norm(b), norm(b)
        self.short = nn.Identity() if a == b and stride == 1 else nn.Sequential(nn.Conv2d(a, b, 1, stride), norm(b))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm2(self.two(F.relu(self.norm1(self.one(x))))))
        return F.relu(self.short(x) + y)


def features(out: int, norm: Callable[[int], nn.Module], widths: tuple[int, ...] = (32, 64, 96)) -> nn.Module:
    """Of an eighth of the image's size."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 7, 2, 3), norm(widths[0]), nn.ReLU()]
    for k, (a, b) in enumerate(zip((widths[0], *widths), widths, strict=False)):
        layers += [Residual(a, b, 2 if k else 1, norm), Residual(b, b, 1, norm)]
    return nn.Sequential(*layers, nn.Conv2d(widths[-1], out, 1))


class Raft(nn.Module):
    """RAFT's small form (Teed and Deng, 2020): correlations of all pairs are looked up around the flow, which a GRU of
    convolutions updates four times."""

    def __init__(self, hidden: int = 96, context: int = 64, levels: int = 3, radius: int = 3, rounds: int = 4):
        super().__init__()
        self.hidden, self.levels, self.radius, self.rounds = hidden, levels, radius, rounds
        self.features = features(128, nn.InstanceNorm2d)
        self.context = features(hidden + context, nn.BatchNorm2d)
        side = 2 * radius + 1
        self.correlation = nn.Conv2d(levels * side * side, 96, 1)
        self.flow1, self.flow2 = nn.Conv2d(2, 64, 7, padding=3), nn.Conv2d(64, 32, 3, padding=1)
        self.motion = nn.Conv2d(128, 80, 3, padding=1)
        into = hidden + 82 + context
        self.update, self.reset, self.new = (nn.Conv2d(into, hidden, 3, padding=1) for _ in range(3))
        self.head = nn.Sequential(nn.Conv2d(hidden, 128, 3, 1, 1), nn.ReLU(), nn.Conv2d(128, 2, 3, 1, 1))
        self.mask = nn.Sequential(nn.Conv2d(hidden, 192, 3, 1, 1), nn.ReLU(), nn.Conv2d(192, 64 * 9, 1))
        reach = torch.arange(-radius, radius + 1.0)
        self.register_buffer("window", torch.stack(torch.meshgrid(reach, reach, indexing="ij"), -1))

    def look_up(self, pyramid: list[torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        batch, _, h, w = at.shape
        centres = at.permute(0, 2, 3, 1).reshape(batch * h * w, 1, 1, 2)
        found = []
        for k, level in enumerate(pyramid):
            place = centres / 2**k + self.window
            scale = torch.tensor([level.shape[3] - 1, level.shape[2] - 1], dtype=at.dtype, device=at.device)
            values = F.grid_sample(level, 2 * place / scale - 1, align_corners=True)
            found.append(values.reshape(batch, h, w, -1))
        return torch.cat(found, -1).permute(0, 3, 1, 2)

    def enlarge(self, flow: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, _, h, w = flow.shape
        mask = mask.reshape(batch, 1, 9, 8, 8, h, w).softmax(2)
        parts = F.unfold(8 * flow, (3, 3), padding=1).reshape(batch, 2, 9, 1, 1, h, w)
        return (mask * parts).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(batch, 2, 8 * h, 8 * w)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        batch = pair.shape[0]
        both = self.features(torch.cat([pair[:, :3], pair[:, 3:]], 0))
        one, two = both[:batch], both[batch:]
        _, c, h, w = one.shape
        pairs = torch.einsum("bcn,bcm->bnm", one.flatten(2), two.flatten(2)) / math.sqrt(c)
        pyramid = [pairs.reshape(batch * h * w, 1, h, w)]
        for _ in range(self.levels - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2, 2))
        state, context = torch.split(
            self.context(pair[:, :3]), [self.hidden, self.context[-1].out_channels - self.hidden], 1
        )
        state, context = torch.tanh(state), F.relu(context)
        y, x = torch.meshgrid(torch.arange(h, device=one.device), torch.arange(w, device=one.device), indexing="ij")
        start = torch.stack([x, y]).to(one.dtype).expand(batch, -1, -1, -1)
        at = start
        for _ in range(self.rounds):
            flow = at - start
            seen = F.relu(self.correlation(self.look_up(pyramid, at)))
            moved = F.relu(self.flow2(F.relu(self.flow1(flow))))
            motion = F.relu(self.motion(torch.cat([seen, moved], 1)))
            x = torch.cat([context, motion, flow], 1)
            both = torch.cat([state, x], 1)
            update, reset = torch.sigmoid(self.update(both)), torch.sigmoid(self.reset(both))
            state = (1 - update) * state + update * torch.tanh(self.new(torch.cat([reset * state, x], 1)))
            at = at + self.head(state)
        return self.enlarge(at - start, self.mask(state))


class LinearAttention(nn.Module):
    """A layer of LoFTR: attention without softmax, keys and values are multiplied first."""

    def __init__(self, c: int = 256, heads: int = 8):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.merge = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(2 * c, 2 * c, bias=False), nn.ReLU(), nn.Linear(2 * c, c, bias=False))
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)

    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        batch, length, c = x.shape
        q = F.elu(self.q(x).view(batch, -1, self.heads, c // self.heads)) + 1
        k = F.elu(self.k(source).view(batch, -1, self.heads, c // self.heads)) + 1
        v = self.v(source).view(batch, -1, self.heads, c // self.heads) / source.shape[1]
        kv = torch.einsum("nshd,nshv->nhdv", k, v)
        z = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(1)) + 1e-6)
        y = torch.einsum("nlhd,nhdv,nlh->nlhv", q, kv, z) * source.shape[1]
        y = self.norm1(self.merge(y.reshape(batch, length, c)))
        return x + self.norm2(self.mlp(torch.cat([x, y], 2)))


class Loftr(nn.Module):
    """The coarse level of LoFTR (Sun et al., 2021): self and cross attention of two images, dual softmax of their pairs."""

    def __init__(self, c: int = 256, rounds: int = 4):
        super().__init__()
        self.features = features(c, nn.BatchNorm2d, (128, 196, 256))
        self.layers = nn.ModuleList(LinearAttention(c) for _ in range(2 * rounds))
        y, x = torch.meshgrid(torch.arange(1.0, 65), torch.arange(1.0, 65), indexing="ij")
        rate = torch.exp(torch.arange(0, c // 2, 2) * (-math.log(10000.0) / (c // 2)))[:, None, None]
        waves = torch.stack([torch.sin(x * rate), torch.cos(x * rate), torch.sin(y * rate), torch.cos(y * rate)], 1)
        self.register_buffer("positions", waves.reshape(1, c, 64, 64))

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        both = self.features(torch.cat([one, two], 0))
        a, b = both[: one.shape[0]], both[one.shape[0] :]
        a = (a + self.positions[:, :, : a.shape[2], : a.shape[3]]).flatten(2).transpose(1, 2)
        b = (b + self.positions[:, :, : b.shape[2], : b.shape[3]]).flatten(2).transpose(1, 2)
        for k, layer in enumerate(self.layers):
            if k % 2 == 0:
                a, b = layer(a, a), layer(b, b)
            else:
                a = layer(a, b)
                b = layer(b, a)
        scores = torch.einsum("nlc,nsc->nls", a / 16, b / 16) / 0.1
        return scores.softmax(1) * scores.softmax(2)


class Stereo(nn.Module):
    """PSMNet (Chang and Chen, 2018), one hourglass: a volume of feature pairs for 24 shifts, 3-D convolutions, the mean disparity."""

    def __init__(self, shifts: int = 24):
        super().__init__()
        self.shifts = shifts

        def conv2(a: int, b: int, stride: int = 1, dilation: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(a, b, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

        def conv3(a: int, b: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv3d(a, b, 3, stride, 1, bias=False), nn.BatchNorm3d(b))

        def up3(a: int, b: int) -> nn.Module:
            layer = nn.ConvTranspose3d(a, b, 3, 2, 1, output_padding=1, bias=False)
            return nn.Sequential(layer, nn.BatchNorm3d(b))

        self.first = nn.Sequential(*conv2(3, 32, 2), *conv2(32, 32), *conv2(32, 64, 2), *conv2(64, 64))
        self.deep = nn.Sequential(*conv2(64, 128, 1, 2), *conv2(128, 128, 1, 2), *conv2(128, 128, 1, 4))
        self.pools = nn.ModuleList(nn.Sequential(nn.AvgPool2d(n), nn.Conv2d(128, 32, 1), nn.ReLU()) for n in (4, 8, 12))
        self.join = nn.Sequential(*conv2(64 + 128 + 96, 128), nn.Conv2d(128, 32, 1, bias=False))
        self.start = nn.Sequential(conv3(64, 32), nn.ReLU(), conv3(32, 32), nn.ReLU())
        self.residual = nn.Sequential(conv3(32, 32), nn.ReLU(), conv3(32, 32))
        self.down1, self.down2 = conv3(32, 64, 2), conv3(64, 64, 2)
        self.same1, self.same2 = conv3(64, 64), conv3(64, 64)
        self.up1, self.up2 = up3(64, 64), up3(64, 32)
        self.last = nn.Sequential(conv3(32, 32), nn.ReLU(), nn.Conv3d(32, 1, 3, 1, 1, bias=False))
        nn.init.normal_(self.last[-1].weight, std=0.2)  # costs that differ

    def describe(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image)
        y = self.deep(x)
        pooled = [F.interpolate(p(y), size=y.shape[2:], mode="bilinear", align_corners=False) for p in self.pools]
        return self.join(torch.cat([x, y, *pooled], 1))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        a, b = self.describe(left), self.describe(right)
        width = a.shape[3]
        planes = []
        for k in range(self.shifts):
            both = torch.cat([a[..., k:], b[..., : width - k]], 1)
            planes.append(F.pad(both, (k, 0)))
        volume = self.start(torch.stack(planes, 2))
        volume = volume + self.residual(volume)
        one = F.relu(self.same1(F.relu(self.down1(volume))))
        two = F.relu(self.same2(F.relu(self.down2(one))))
        cost = self.last(self.up2(F.relu(self.up1(two) + one)) + volume)
        cost = F.interpolate(cost, scale_factor=4.0, mode="trilinear", align_corners=False).squeeze(1)
        values = torch.arange(cost.shape[1], dtype=cost.dtype, device=cost.device).view(1, -1, 1, 1)
        return (cost.softmax(1) * values).sum(1)


class Inverted3d(nn.Module):
    """A block of X3D: a 3 x 3 x 3 depthwise convolution between 1 x 1 x 1 ones, squeeze and excitation in every other."""

    def __init__(self, a: int, b: int, stride: int, excite: bool):
        super().__init__()
        c = int(2.25 * b)
        self.first = nn.Sequential(nn.Conv3d(a, c, 1, bias=False), nn.BatchNorm3d(c), nn.ReLU())
        depthwise = nn.Conv3d(c, c, 3, (1, stride, stride), 1, groups=c, bias=False)
        self.middle, self.last = (
            nn.Sequential(depthwise, nn.BatchNorm3d(c)),
            nn.Sequential(nn.Conv3d(c, b, 1, bias=False), nn.BatchNorm3d(b)),
        )
        self.excite = nn.Sequential(nn.Conv3d(c, 8, 1), nn.ReLU(), nn.Conv3d(8, c, 1), nn.Sigmoid()) if excite else None
        self.short: nn.Module = nn.Identity()
        if stride == 2:
            self.short = nn.Sequential(nn.Conv3d(a, b, 1, (1, 2, 2), bias=False), nn.BatchNorm3d(b))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.middle(self.first(x))
        if self.excite is not None:
            y = y * self.excite(y.mean((2, 3, 4), keepdim=True))
        return F.relu(self.short(x) + self.last(F.silu(y)))


class X3d(nn.Module):
    """X3D-S (Feichtenhofer, 2020): 13 frames."""

    def __init__(self) -> None:
        super().__init__()
        self.space = nn.Conv3d(3, 24, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False)
        time = nn.Conv3d(24, 24, (5, 1, 1), padding=(2, 0, 0), groups=24, bias=False)
        self.time = nn.Sequential(time, nn.BatchNorm3d(24), nn.ReLU())
        layers: list[nn.Module] = []
        for a, b, count in ((24, 24, 3), (24, 48, 5), (48, 96, 11), (96, 192, 7)):
            layers += [Inverted3d(b if k else a, b, 1 if k else 2, k % 2 == 0) for k in range(count)]
        self.layers = nn.Sequential(*layers)
        self.after = nn.Sequential(nn.Conv3d(192, 432, 1, bias=False), nn.BatchNorm3d(432), nn.ReLU())
        self.last = nn.Sequential(nn.Linear(432, 2048), nn.ReLU(), nn.Linear(2048, 400))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.after(self.layers(self.time(self.space(x))))
        return self.last(x.mean((2, 3, 4)))


class SkeletonGraph(nn.Module):
    """ST-GCN (Yan et al., 2018): 25 joints exchange values over three kinds of edges, then windows of 9 frames along time."""

    def __init__(self, joints: int = 25, classes: int = 60):
        super().__init__()
        stages = (
            (3, 64, 1),
            (64, 64, 1),
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 256, 1),
        )
        self.norm = nn.BatchNorm1d(3 * joints)
        edges = torch.rand(3, joints, joints) * (torch.rand(3, joints, joints) < 0.12)
        self.register_buffer("edges", edges / edges.sum(1, keepdim=True).clamp(min=0.1))
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(3, joints, joints)) for _ in stages)
        self.space = nn.ModuleList(nn.Conv2d(a, 3 * b, 1) for a, b, _ in stages)
        self.time = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, (9, 1), (s, 1), (4, 0)), nn.BatchNorm2d(b))
            for _, b, s in stages
        )
        self.short = nn.ModuleList(
            nn.Identity() if a == b else nn.Sequential(nn.Conv2d(a, b, 1, (s, 1)), nn.BatchNorm2d(b))
            for a, b, s in stages
        )
        self.last = nn.Linear(256, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, c, frames, joints, people = x.shape
        x = x.permute(0, 4, 3, 1, 2).reshape(batch * people, joints * c, frames)
        x = self.norm(x).view(batch * people, joints, c, frames).permute(0, 2, 3, 1).contiguous()
        for k, (weight, space, time, short) in enumerate(
            zip(self.weights, self.space, self.time, self.short, strict=True)
        ):
            y = space(x)
            n, kc, t, v = y.shape
            y = torch.einsum("nkctv,kvw->nctw", y.view(n, 3, kc // 3, t, v), self.edges * weight).contiguous()
            y = time(y)
            x = F.relu(y + short(x) if k else y)
        x = x.mean((2, 3)).view(batch, people, -1).mean(1)
        return self.last(x)


class ConvLstm(nn.Module):
    """ConvLSTM for nowcasting (Shi et al., 2015): two layers read ten frames of rain, two others continue with ten."""

    def __init__(self, widths: tuple[int, ...] = (64, 64), into: int = 16, frames: int = 10):
        super().__init__()
        self.frames, self.widths = frames, widths
        pairs = list(zip((into, *widths), widths))
        self.read = nn.ModuleList(nn.Conv2d(a + b, 4 * b, 5, padding=2) for a, b in pairs)
        self.write = nn.ModuleList(nn.Conv2d(a + b, 4 * b, 5, padding=2) for a, b in pairs)
        self.last = nn.Conv2d(sum(widths), into, 1)
        for layer in [*self.read, *self.write, self.last]:
            nn.init.xavier_normal_(layer.weight, 2.0)  # states that differ

    def step(self, layers: nn.ModuleList, x: torch.Tensor, states: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for k, layer in enumerate(layers):
            h, c = states[k]
            i, f, o, g = layer(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            x = torch.sigmoid(o) * torch.tanh(c)
            states[k] = (x, c)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = F.pixel_unshuffle(frames, 4).unflatten(1, (self.frames, 16))
        empty = [x.new_zeros(x.shape[0], c, *x.shape[3:]) for c in self.widths]
        states = [(e, e) for e in empty]
        for k in range(self.frames):
            self.step(self.read, x[:, k], states)
        seen, found = torch.zeros_like(x[:, 0]), []
        for _ in range(self.frames):
            self.step(self.write, seen, states)
            seen = self.last(torch.cat([h for h, _ in states], 1))
            found.append(seen)
        return torch.sigmoid(F.pixel_shuffle(torch.cat(found, 1), 4))


class HashGrid(nn.Module):
    """Instant neural graphics primitives (Mueller et al., 2022): features of eight corners in hashed tables of 12 levels."""

    def __init__(self, levels: int = 12, entries: int = 2**15, width: int = 2):
        super().__init__()
        self.tables = nn.Parameter(torch.randn(levels, entries, width))
        self.entries = entries
        self.sizes = [int(16 * 1.3**k) for k in range(levels)]
        self.register_buffer("corners", torch.tensor([[k >> 2 & 1, k >> 1 & 1, k & 1] for k in range(8)]))
        self.density = nn.Sequential(nn.Linear(levels * width, 64), nn.ReLU(), nn.Linear(64, 16))
        self.colour = nn.Sequential(
            nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3), nn.Sigmoid()
        )

    def harmonics(self, d: torch.Tensor) -> torch.Tensor:
        x, y, z = d.unbind(-1)
        xx, yy, zz = x * x, y * y, z * z
        parts = [torch.ones_like(x), y, z, x, x * y, y * z, 3 * zz - 1, x * z, xx - yy]
        parts += [
            y * (3 * xx - yy),
            x * y * z,
            y * (5 * zz - 1),
            z * (5 * zz - 3),
            x * (5 * zz - 1),
            z * (xx - yy),
            x * (xx - 3 * yy),
        ]
        return torch.stack(parts, -1)

    def forward(self, points: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        found = []
        for k, size in enumerate(self.sizes):
            at = points * size
            low = at.floor()
            part = (at - low)[..., None, :]
            cell = low.long()[..., None, :] + self.corners
            x, y, z = cell[..., 0], cell[..., 1] * 2654435761, cell[..., 2] * 805459861
            rows = self.tables[k][(x ^ y ^ z) % self.entries]
            weight = torch.where(self.corners.bool(), part, 1 - part).prod(-1, keepdim=True)
            found.append((rows * weight).sum(-2))
        h = self.density(torch.cat(found, -1))
        colour = self.colour(torch.cat([h, self.harmonics(F.normalize(directions, dim=-1))], -1))
        return torch.cat([colour, h[..., :1].exp()], -1)


def pairs(h: int, w: int) -> Inputs:
    """Two views of a picture, of which the second is moved by six pixels."""

    def make(batch: int) -> tuple[torch.Tensor, ...]:
        (one,) = pictures(3, h, w)(batch)
        return one, torch.roll(one, -6, 3) + 0.2 * torch.randn(one.shape, generator=seeded())

    return make


def samples(batch: int, count: int = 16384) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.rand(batch, count, 3, generator=r), torch.randn(batch, count, 3, generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "raft_small": (Raft, lambda batch: (torch.cat(pairs(200, 264)(batch), 1),)),
    "loftr": (Loftr, pairs(168, 216)),
    "psmnet_1": (Stereo, pairs(96, 192)),
    "x3d_s": (X3d, normal((3, 13, 160, 160))),
    "st_gcn": (SkeletonGraph, normal((3, 300, 25, 2))),
    "conv_lstm": (ConvLstm, normal((10, 100, 148))),
    "hash_grid": (HashGrid, samples),
}
