"""Matching, tracking, reading and segmentation, for the zoo: prompts, key points, global and stereo matching, candidates that are
dropped, text lines, matrix factors, poses as classes, deformable kernels, scans of images and windows of volumes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures, seeded


class LayerNorm2d(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None, None] * ((x - mean) / torch.sqrt(spread + 1e-6)) + self.bias[:, None, None]


class Narrow(nn.Module):
    """SAM's attention, whose inner width may be half of the outer."""

    def __init__(self, c: int, heads: int = 8, less: int = 1):
        super().__init__()
        self.heads, self.q, self.k, self.v = (
            heads,
            nn.Linear(c, c // less),
            nn.Linear(c, c // less),
            nn.Linear(c, c // less),
        )
        self.out = nn.Linear(c // less, c)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            f(t).unflatten(2, (self.heads, -1)).transpose(1, 2) for f, t in ((self.q, q), (self.k, k), (self.v, v))
        )
        weights = (q @ k.permute(0, 1, 3, 2) / math.sqrt(q.shape[3])).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class PromptedMasks(nn.Module):
    """SAM's prompt encoder and mask decoder (Kirillov et al., 2023): points and a coarse mask, attention in both directions,
    masks as products of tokens and upscaled pixels."""

    def __init__(self, c: int = 256, side: int = 64):
        super().__init__()
        self.side = side
        self.register_buffer("waves", torch.randn(2, c // 2, generator=seeded()))
        self.kinds = nn.Embedding(4, c)
        self.coarse = nn.Sequential(nn.Conv2d(1, 4, 2, 2), LayerNorm2d(4), nn.GELU(), nn.Conv2d(4, 16, 2, 2), LayerNorm2d(16), nn.GELU(), nn.Conv2d(16, c, 1))  # fmt: skip
        self.tokens = nn.Parameter(torch.randn(5, c))
        self.own, self.there, self.back = (nn.ModuleList(Narrow(c, less=n) for _ in range(2)) for n in (1, 2, 2))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(9))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(c, 2048), nn.ReLU(), nn.Linear(2048, c)) for _ in range(2))
        self.final = Narrow(c, less=2)
        self.up = nn.Sequential(nn.ConvTranspose2d(c, c // 4, 2, 2), LayerNorm2d(c // 4), nn.GELU(), nn.ConvTranspose2d(c // 4, c // 8, 2, 2), nn.GELU())  # fmt: skip
        mlp = lambda n: nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c), nn.ReLU(), nn.Linear(c, n))
        self.hyper, self.quality = nn.ModuleList(mlp(c // 8) for _ in range(4)), mlp(4)

    def place(self, x: torch.Tensor) -> torch.Tensor:
        y = (2 * x - 1) @ self.waves * (2 * math.pi)
        return torch.cat([y.sin(), y.cos()], -1)

    def forward(self, features: torch.Tensor, points: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor):
        b, n = features.shape[0], self.side
        line = (torch.arange(n, device=features.device) + 0.5) / n
        y, x = torch.meshgrid(line, line, indexing="ij")
        places = self.place(torch.stack([x, y], 2).to(features.dtype).flatten(0, 1))[None]
        sparse = self.place(points)
        sparse = torch.where(labels[..., None] < 0, torch.zeros_like(sparse), sparse) + self.kinds(labels + 1)
        q = first = torch.cat([self.tokens.expand(b, -1, -1), sparse], 1)
        k = (features + self.coarse(mask)).flatten(2).transpose(1, 2)
        for i, mlp in enumerate(self.mlps):
            a = q if i == 0 else q + first
            q = self.norms[4 * i](self.own[i](a, a, q) + (q if i else 0))
            q = self.norms[4 * i + 1](q + self.there[i](q + first, k + places, k))
            q = self.norms[4 * i + 2](q + mlp(q))
            k = self.norms[4 * i + 3](k + self.back[i](k + places, q + first, q))
        q = self.norms[8](q + self.final(q + first, k + places, k))
        pixels = self.up(k.transpose(1, 2).reshape(b, -1, n, n))
        hyper = torch.stack([f(q[:, 1 + i]) for i, f in enumerate(self.hyper)], 1)
        return (hyper @ pixels.flatten(2)).unflatten(2, pixels.shape[2:]), self.quality(q[:, 0])


def prompts(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    features, points = torch.randn(batch, 256, 64, 64, generator=r), torch.rand(batch, 6, 2, generator=r)
    return features, points, torch.randint(-1, 3, (batch, 6), generator=r), torch.randn(batch, 1, 256, 256, generator=r)


class LightGlue(nn.Module):
    """LightGlue (Lindenberger et al., 2023), four of nine layers over 700 key points: learned rotations, attention across with
    one matrix of scores for both directions, a double softmax."""

    def __init__(self, c: int = 256, heads: int = 4, layers: int = 4):
        super().__init__()
        self.heads, self.turns = heads, nn.Linear(2, c // heads // 2, bias=False)
        mlp = lambda: nn.Sequential(nn.Linear(2 * c, 2 * c), nn.LayerNorm(2 * c), nn.GELU(), nn.Linear(2 * c, c))
        linear = lambda n: nn.ModuleList(nn.Linear(c, n * c) for _ in range(layers))
        self.qkv, self.out, self.qk, self.v, self.out2 = linear(3), linear(1), linear(1), linear(1), linear(1)
        self.mlps, self.mlps2 = (nn.ModuleList(mlp() for _ in range(layers)) for _ in range(2))
        self.last, self.matched = nn.Linear(c, c), nn.Linear(c, 1)

    def inside(self, k: int, x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        q, key, v = self.qkv[k](x).unflatten(2, (self.heads, -1, 3)).transpose(1, 2).unbind(-1)
        half = lambda t: torch.stack([-t[..., 1::2], t[..., ::2]], -1).flatten(-2)
        turned = lambda t: t * turn[0] + half(t) * turn[1]
        y = F.scaled_dot_product_attention(turned(q), turned(key), v).transpose(1, 2).flatten(2)
        return x + self.mlps[k](torch.cat([x, self.out[k](y)], 2))

    def across(self, k: int, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        split = lambda t: t.unflatten(2, (self.heads, -1)).transpose(1, 2)
        qa, qb, va, vb = split(self.qk[k](a)), split(self.qk[k](b)), split(self.v[k](a)), split(self.v[k](b))
        scale = qa.shape[3] ** -0.25
        scores = torch.einsum("bhid,bhjd->bhij", qa * scale, qb * scale)
        to_a = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), vb)
        to_b = torch.einsum("bhji,bhjd->bhid", scores.transpose(2, 3).softmax(-1).transpose(2, 3), va)
        join = lambda x, y: x + self.mlps2[k](torch.cat([x, self.out2[k](y.transpose(1, 2).flatten(2))], 2))
        return join(a, to_a), join(b, to_b)

    def forward(self, a: torch.Tensor, places_a: torch.Tensor, b: torch.Tensor, places_b: torch.Tensor) -> torch.Tensor:
        def turn(places: torch.Tensor) -> torch.Tensor:
            angles = self.turns(places)
            return torch.stack([angles.cos(), angles.sin()]).repeat_interleave(2, -1)[:, :, None]

        turn_a, turn_b = turn(places_a), turn(places_b)
        for k in range(len(self.mlps)):
            a, b = self.inside(k, a, turn_a), self.inside(k, b, turn_b)
            a, b = self.across(k, a, b)
        size = a.shape[2] ** 0.25
        scores = torch.einsum("bmd,bnd->bmn", self.last(a) / size, self.last(b) / size)
        za, zb = self.matched(a), self.matched(b)
        sure = F.logsigmoid(za) + F.logsigmoid(zb).transpose(1, 2)
        both = scores.log_softmax(2) + scores.transpose(1, 2).contiguous().log_softmax(2).transpose(1, 2) + sure
        bottom, right = F.logsigmoid(-zb).transpose(1, 2), F.logsigmoid(-za)
        return torch.cat([torch.cat([both, right], 2), torch.cat([bottom, torch.zeros_like(za[:, :1])], 2)], 1)


class GlobalFlow(nn.Module):
    """GMFlow (Xu et al., 2022), two of six layers: shifted windows with masks within and across the images, a softmax over all
    places, flow spread by self-similarity, upsampled by convex combinations."""

    def __init__(self, c: int = 128, layers: int = 2, h: int = 40, w: int = 56):
        super().__init__()
        self.h, self.w = h, w
        block = lambda a, b, s: nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.InstanceNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.InstanceNorm2d(b), nn.ReLU())  # fmt: skip
        self.net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.InstanceNorm2d(64), nn.ReLU(), block(64, 64, 1), block(64, 96, 2), block(96, c, 2), nn.Conv2d(c, c, 1))  # fmt: skip
        linear = lambda: nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(2 * layers))
        self.q, self.k, self.v, self.merge = linear(), linear(), linear(), linear()
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3 * layers))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(2 * c, 8 * c, bias=False), nn.GELU(), nn.Linear(8 * c, c, bias=False)) for _ in range(layers))  # fmt: skip
        self.spread_q, self.spread_k = nn.Linear(c, c), nn.Linear(c, c)
        self.up = nn.Sequential(nn.Conv2d(c + 2, 256, 3, 1, 1), nn.ReLU(), nn.Conv2d(256, 64 * 9, 1))
        y, x = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
        self.register_buffer("grid", torch.stack([x, y], 2).flatten(0, 1))
        waves = lambda t, n: t[..., None] / n * 2 * math.pi * 100.0 ** (-torch.arange(c // 4) / (c // 4))
        table = torch.cat([f(waves(t, n)) for t, n in ((y, h), (x, w)) for f in (torch.sin, torch.cos)], 2)
        self.register_buffer("table", table.permute(2, 0, 1)[None])
        area = torch.zeros(h, w)
        for a in (slice(0, -(h // 2)), slice(-(h // 2), -(h // 4)), slice(-(h // 4), None)):
            for b in (slice(0, -(w // 2)), slice(-(w // 2), -(w // 4)), slice(-(w // 4), None)):
                area[a, b] = area.max() + 1
        parts = self.windows(area[None, :, :, None])[..., 0]
        self.register_buffer("mask", (parts[:, None] != parts[:, :, None]).float() * -100.0)

    def windows(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        return x.view(b, 2, h // 2, 2, w // 2, c).transpose(2, 3).reshape(4 * b, h * w // 4, c)

    def attend(self, k: int, x: torch.Tensor, y: torch.Tensor, shifted: bool) -> torch.Tensor:
        b, n, c = x.shape
        image = lambda t: t.view(b, self.h, self.w, c)
        q, key, v = image(self.q[k](x)), image(self.k[k](y)), image(self.v[k](y))
        if shifted:
            q, key, v = (t.roll((-(self.h // 4), -(self.w // 4)), (1, 2)) for t in (q, key, v))
        q, key, v = self.windows(q), self.windows(key), self.windows(v)
        scores = q @ key.transpose(1, 2) / c**0.5
        if shifted:
            scores = (scores.unflatten(0, (b, -1)) + self.mask).flatten(0, 1)
        out = (
            (scores.softmax(-1) @ v)
            .view(b, 2, 2, self.h // 2, self.w // 2, c)
            .transpose(2, 3)
            .reshape(b, self.h, self.w, c)
        )
        if shifted:
            out = out.roll((self.h // 4, self.w // 4), (1, 2))
        return self.merge[k](out.reshape(b, n, c))

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        b = pair.shape[0]
        x = self.net(torch.cat(pair.chunk(2, 1))) + self.table
        x = x.flatten(2).transpose(1, 2)
        for k, mlp in enumerate(self.mlps):
            other = x.unflatten(0, (2, -1)).flip(0).flatten(0, 1)
            x = x + self.norms[3 * k](self.attend(2 * k, x, x, k % 2 == 1))
            y = self.norms[3 * k + 1](self.attend(2 * k + 1, x, other, k % 2 == 1))
            x = x + self.norms[3 * k + 2](mlp(torch.cat([x, y], 2)))
        one, two = x.unflatten(0, (2, -1)).unbind(0)
        chosen = (one @ two.transpose(1, 2) / one.shape[2] ** 0.5).softmax(-1)
        flow = chosen @ self.grid - self.grid
        q, key = self.spread_q(one), self.spread_k(one)
        flow = (q @ key.transpose(1, 2) / q.shape[2] ** 0.5).softmax(-1) @ flow
        image = lambda t: t.transpose(1, 2).unflatten(2, (self.h, self.w))
        flow = image(flow)
        mask = self.up(torch.cat([flow, image(one)], 1)).view(b, 1, 9, 8, 8, self.h, self.w).softmax(2)
        near = F.unfold(8 * flow, 3, padding=1).view(b, 2, 9, 1, 1, self.h, self.w)
        return (mask * near).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(b, 2, 8 * self.h, 8 * self.w)


class StereoLookups(nn.Module):
    """RAFT-Stereo (Lipson et al., 2021), four iterations: correlations of each row in four levels, sampled at the disparity, and
    recurrent convolutions."""

    def __init__(self, c: int = 128, steps: int = 4, levels: int = 4, radius: int = 4):
        super().__init__()
        self.steps, self.levels, self.radius = steps, levels, radius
        conv = lambda a, b, s=1: nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.BatchNorm2d(b), nn.ReLU())
        self.net = nn.Sequential(conv(3, 64, 2), conv(64, 64), conv(64, 96, 2), conv(96, c), nn.Conv2d(c, 256, 1))
        self.context = nn.Sequential(conv(3, 64, 2), conv(64, 96, 2), nn.Conv2d(96, 2 * c, 3, 1, 1))
        self.corr = nn.Sequential(
            nn.Conv2d(levels * (2 * radius + 1), 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU()
        )
        self.flow = nn.Sequential(nn.Conv2d(1, 64, 7, 1, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())
        self.mix = nn.Sequential(nn.Conv2d(128, 127, 3, 1, 1), nn.ReLU())
        gate = lambda: nn.Conv2d(2 * c + 128, c, 3, 1, 1)
        self.z, self.r, self.q = gate(), gate(), gate()
        self.delta = nn.Sequential(nn.Conv2d(c, 256, 3, 1, 1), nn.ReLU(), nn.Conv2d(256, 1, 3, 1, 1))
        self.up = nn.Sequential(nn.Conv2d(c, 256, 3, 1, 1), nn.ReLU(), nn.Conv2d(256, 16 * 9, 1))

    def look(self, pyramid: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        b, _, h, w = x.shape
        found, steps = [], torch.arange(-self.radius, self.radius + 1, device=x.device)
        for k, volume in enumerate(pyramid):
            place = x.reshape(b * h * w, 1, 1, 1) / 2**k + steps.view(1, 1, -1, 1)
            place = 2 * place / (volume.shape[3] - 1) - 1
            grid = torch.cat([place, torch.zeros_like(place)], 3)
            found.append(F.grid_sample(volume, grid, align_corners=True).view(b, h, w, -1))
        return torch.cat(found, 3).permute(0, 3, 1, 2)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        left, right = pair.chunk(2, 1)
        one, two = self.net(torch.cat([left, right])).unflatten(0, (2, -1)).unbind(0)
        b, c, h, w = one.shape
        volume = torch.einsum("aijk,aijh->ajkh", one, two).reshape(b * h * w, 1, 1, w) / c**0.5
        pyramid = [volume]
        for _ in range(self.levels - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], (1, 2), (1, 2)))
        state, given = self.context(left).chunk(2, 1)
        state, given = state.tanh(), given.relu()
        start = torch.arange(w, device=pair.device).to(one.dtype).expand(b, 1, h, w)
        x = start
        for _ in range(self.steps):
            flow = x - start
            motion = torch.cat([self.mix(torch.cat([self.corr(self.look(pyramid, x)), self.flow(flow)], 1)), flow], 1)
            seen = torch.cat([given, motion], 1)
            both = torch.cat([state, seen], 1)
            z, r = self.z(both).sigmoid(), self.r(both).sigmoid()
            state = (1 - z) * state + z * self.q(torch.cat([r * state, seen], 1)).tanh()
            x = x + self.delta(state)
        mask = (0.25 * self.up(state)).view(b, 1, 9, 4, 4, h, w).softmax(2)
        near = F.unfold(4 * (x - start), 3, padding=1).view(b, 1, 9, 1, 1, h, w)
        return (mask * near).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(b, 1, 4 * h, 4 * w)


def glued(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    points = lambda: (torch.randn(batch, 700, 256, generator=r), 2 * torch.rand(batch, 700, 2, generator=r) - 1)
    (a, places_a), (b, places_b) = points(), points()
    return a, places_a, b, places_b


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "sam_decoder": (PromptedMasks, prompts),
    "light_glue_4": (LightGlue, glued),
    "gm_flow_2": (GlobalFlow, pictures(6, 320, 448)),
    "raft_stereo_4": (StereoLookups, pictures(6, 192, 320)),
}
