"""Flows, autoregressive models of images and solvers, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded, tokens


class Coupling(nn.Module):
    """A step of Glow backwards: half of the channels scale and shift the others, a product of channels, a scale of each."""

    def __init__(self, c: int, width: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c // 2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1), nn.ReLU()
        )
        self.last, self.size = nn.Conv2d(width, c, 3, padding=1), nn.Parameter(0.1 * torch.randn(1, c, 1, 1))
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0][:, :, None, None])
        self.log_scale, self.shift = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.zeros(1, c, 1, 1))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        a, b = z.chunk(2, 1)
        h = self.last(self.body(a)) * torch.exp(3 * self.size)
        shift, scale = h[:, 0::2], torch.sigmoid(h[:, 1::2] + 2)
        z = F.conv2d(torch.cat([a, b / scale - shift], 1), self.mix)
        return z * torch.exp(-self.log_scale) - self.shift


class Glow(nn.Module):
    """Glow (Kingma and Dhariwal, 2018) from noise to images of 64 x 64: three levels of four steps, noise split in halves."""

    def __init__(self, levels: int = 3, steps: int = 4, width: int = 512, side: int = 64):
        super().__init__()
        self.sides = [side >> (k + 1) for k in range(levels)]
        widths = [12 * 2**k for k in range(levels)]
        self.steps = nn.ModuleList(nn.ModuleList(Coupling(c, width) for _ in range(steps)) for c in widths)
        self.priors = nn.ModuleList(nn.Conv2d(c // 2, c, 3, padding=1) for c in widths[:-1])

    def unsqueeze(self, z: torch.Tensor) -> torch.Tensor:
        batch, c, h, w = z.shape
        z = z.view(batch, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3)
        return z.reshape(batch, c // 4, 2 * h, 2 * w)

    def forward(self, one: torch.Tensor, two: torch.Tensor, three: torch.Tensor) -> torch.Tensor:
        noise, z = (one, two), three
        for k in reversed(range(len(self.steps))):
            if k < len(self.priors):
                mean, log_scale = self.priors[k](z).chunk(2, 1)
                z = torch.cat([z, mean + torch.exp(0.5 * torch.tanh(log_scale)) * noise[k]], 1)
            for step in self.steps[k]:
                z = step(z)
            z = self.unsqueeze(z)
        return torch.sigmoid(z)


class MaskedLinear(nn.Linear):
    def __init__(self, before: torch.Tensor, after: torch.Tensor, strict: bool = False):
        super().__init__(len(before), len(after))
        mask = after[:, None] > before if strict else after[:, None] >= before
        self.register_buffer("mask", mask.float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


class MaskedFlow(nn.Module):
    """Masked autoregressive flow (Papamakarios et al., 2017): log densities by five networks with masked weights."""

    def __init__(self, columns: int = 63, width: int = 512, blocks: int = 5):
        super().__init__()
        order = torch.arange(1, columns + 1)
        inner = torch.arange(width) % (columns - 1) + 1
        self.one = nn.ModuleList(MaskedLinear(order, inner) for _ in range(blocks))
        self.two = nn.ModuleList(MaskedLinear(inner, inner) for _ in range(blocks))
        self.last = nn.ModuleList(MaskedLinear(inner, order.repeat(2), True) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.BatchNorm1d(columns) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, total = x.flatten(0, 1), 0
        for one, two, last, norm in zip(self.one, self.two, self.last, self.norms, strict=True):
            mean, log_scale = last(F.relu(two(F.relu(one(u))))).chunk(2, 1)
            u = (u - mean) * torch.exp(-log_scale)
            total = total - log_scale.sum(1)
            u = norm(u)
            total = total + (torch.log(norm.weight) - 0.5 * torch.log(norm.running_var + norm.eps)).sum()
            u = u.flip(1)
        return (total - 0.5 * (u * u + math.log(2 * math.pi)).sum(1))[:, None] / u.shape[1]


class Spline(nn.Module):
    """Half of the columns bend the others by monotonic rational quadratic splines of eight pieces."""

    def __init__(self, columns: int, width: int, flip: bool, pieces: int = 8, reach: float = 3.0):
        super().__init__()
        self.half, self.flip, self.pieces, self.reach = columns // 2, flip, pieces, reach
        a = self.half if flip else columns - self.half
        self.out = columns - a
        self.first, self.last = nn.Linear(a, width), nn.Linear(width, self.out * (3 * pieces - 1))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(2)
        )

    def knots(self, x: torch.Tensor) -> torch.Tensor:
        """Places of the ends of the pieces, each at least 1e-3 of the whole long."""
        size = 1e-3 + (1 - 1e-3 * self.pieces) * x.softmax(-1)
        return F.pad(2 * self.reach * size.cumsum(-1), (1, 0)) - self.reach

    def bend(self, x: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = self.pieces
        xs, ys = self.knots(p[..., :n]), self.knots(p[..., n : 2 * n])
        slopes = F.pad(1e-3 + F.softplus(p[..., 2 * n :]), (1, 1), value=1.0)
        inside = (x.abs() < self.reach).to(x.dtype)
        z = x.clamp(-self.reach, self.reach)[..., None]
        k = ((z >= xs[..., :-1]).sum(-1, keepdim=True) - 1).clamp(0, n - 1)
        x0, x1, y0, y1 = xs.gather(-1, k), xs.gather(-1, k + 1), ys.gather(-1, k), ys.gather(-1, k + 1)
        d0, d1 = slopes.gather(-1, k), slopes.gather(-1, k + 1)
        slope = (y1 - y0) / (x1 - x0)
        t = ((z - x0) / (x1 - x0)).clamp(0, 1)
        s = t * (1 - t)
        below = slope + (d0 + d1 - 2 * slope) * s
        y = y0 + (y1 - y0) * (slope * t * t + d0 * s) / below
        change = slope**2 * (d1 * t * t + 2 * slope * s + d0 * (1 - t) ** 2) / below**2
        y, change = y.squeeze(-1), torch.log(change.squeeze(-1))
        return inside * y + (1 - inside) * x, inside * change

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = (x[:, : self.half], x[:, self.half :]) if self.flip else (x[:, self.half :], x[:, : self.half])
        h = self.first(a)
        for block in self.blocks:
            h = h + block(h)
        b, change = self.bend(b, self.last(h).unflatten(1, (self.out, -1)))
        return torch.cat([a, b] if self.flip else [b, a], 1), change.sum(1)


class SplineFlow(nn.Module):
    """Neural spline flow (Durkan et al., 2019), four of ten layers: log densities of rows of a table."""

    def __init__(self, columns: int = 43, width: int = 256, layers: int = 4):
        super().__init__()
        self.layers = nn.ModuleList(Spline(columns, width, k % 2 == 1) for k in range(layers))
        self.mixes = nn.ParameterList(
            nn.Parameter(torch.linalg.qr(torch.randn(columns, columns))[0]) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, total = x.flatten(0, 1), 0
        for layer, mix in zip(self.layers, self.mixes, strict=True):
            u, change = layer(u @ mix)
            total = total + change
        return (total - 0.5 * (u * u).sum(1))[:, None] / u.shape[1]


class GatedMasked(nn.Module):
    """A layer of the gated PixelCNN: a stack that sees the rows above, and one that sees the pixels to the left."""

    def __init__(self, c: int, size: int, first: bool):
        super().__init__()
        self.down = nn.Conv2d(c, 2 * c, (size // 2 + 1, size), padding=(size // 2 + 1, size // 2))
        self.right = nn.Conv2d(c, 2 * c, (1, size // 2 + (0 if first else 1)))
        self.pad = size // 2
        self.link, self.out, self.first = nn.Conv2d(2 * c, 2 * c, 1), nn.Conv2d(c, c, 1), first

    def gate(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        a, b = (x + label[:, :, None, None]).chunk(2, 1)
        return torch.tanh(a) * torch.sigmoid(b)

    def forward(
        self, v: torch.Tensor, h: torch.Tensor, down: torch.Tensor, right: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, columns = v.shape[2:]
        above = self.down(v)[:, :, : rows + 1]
        left = self.right(F.pad(h, (self.pad, 0)))[:, :, :, :columns]
        y = self.out(self.gate(left + self.link(above[:, :, :-1]), right))
        return self.gate(above[:, :, 1:], down), y if self.first else h + y


class PixelCnn(nn.Module):
    """Gated PixelCNN (van den Oord et al., 2016) conditioned on classes, seven of fifteen layers: 256 levels of three colours."""

    def __init__(self, c: int = 120, layers: int = 7):
        super().__init__()
        self.embed, self.classes = nn.Conv2d(3, c, 1), nn.Embedding(1000, 4 * c * layers)
        self.layers = nn.ModuleList(GatedMasked(c, 7 if k == 0 else 3, k == 0) for k in range(layers))
        self.head = nn.Sequential(nn.Conv2d(c, 512, 1), nn.ReLU(), nn.Conv2d(512, 768, 1))

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        v = h = self.embed(image)
        labels = self.classes(label).chunk(2 * len(self.layers), 1)
        for k, layer in enumerate(self.layers):
            v, h = layer(v, h, labels[2 * k], labels[2 * k + 1])
        return self.head(h).unflatten(1, (3, 256)).log_softmax(2)


def labelled(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, 3, 32, 32, generator=r), torch.randint(0, 1000, (batch,), generator=r)


class SwishResidual(nn.Module):
    def __init__(self, a: int, b: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, c, eps=1e-6) for c in (a, b))
        self.convs = nn.ModuleList(nn.Conv2d(c, b, 3, padding=1) for c in (a, b))
        self.short: nn.Module = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = norm(y)
            y = conv(y * torch.sigmoid(y))
        return self.short(x) + y


class PixelAttention(nn.Module):
    """All pixels attend to all, with one head as wide as the image has channels."""

    def __init__(self, c: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, c, eps=1e-6)
        self.q, self.k, self.v, self.out = (nn.Conv2d(c, c, 1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        batch, c, h, w = x.shape
        q, k, v = (f(y).reshape(batch, c, h * w) for f in (self.q, self.k, self.v))
        weights = torch.bmm(q.permute(0, 2, 1), k) * c**-0.5
        y = torch.bmm(v, weights.softmax(2).permute(0, 2, 1)).reshape(batch, c, h, w)
        return x + self.out(y)


class CodesToImage(nn.Module):
    """The decoder of VQGAN (Esser et al., 2021) by factors of 16: 8 x 8 codes to 128 x 128 pixels."""

    def __init__(self, width: int = 128, side: int = 8):
        super().__init__()
        self.side, self.codes = side, nn.Embedding(1024, 256)
        self.after, self.first = nn.Conv2d(256, 256, 1), nn.Conv2d(256, 4 * width, 3, padding=1)
        c = 4 * width
        self.middle = nn.Sequential(SwishResidual(c, c), PixelAttention(c), SwishResidual(c, c))
        self.up = nn.ModuleList()
        for level, factor in enumerate((4, 2, 2, 1, 1)):
            layers: list[nn.Module] = []
            for _ in range(3):
                layers.append(SwishResidual(c, factor * width))
                c = factor * width
                layers += [PixelAttention(c)] if level == 0 else []
            self.up.append(nn.Sequential(*layers))
        self.wide = nn.ModuleList(nn.Conv2d(f * width, f * width, 3, padding=1) for f in (4, 2, 2, 1))
        self.norm, self.last = nn.GroupNorm(32, c, eps=1e-6), nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.codes(ids).view(-1, self.side, self.side, 256).permute(0, 3, 1, 2)
        x = self.middle(self.first(self.after(x)))
        for k, layer in enumerate(self.up):
            x = layer(x)
            if k < len(self.wide):
                x = self.wide[k](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        x = self.norm(x)
        return self.last(x * torch.sigmoid(x))


class Derivative(nn.Module):
    """Of a state of 64 channels; the time is one more channel of each convolution."""

    def __init__(self, c: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, c) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(c + 1, c, 3, padding=1) for _ in range(2))

    def forward(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = x
        for norm, conv in zip(self.norms[:2], self.convs, strict=True):
            y = F.relu(norm(y))
            y = conv(torch.cat([torch.ones_like(y[:, :1]) * t, y], 1))
        return self.norms[2](y)


class OdeNet(nn.Module):
    """A neural ODE (Chen et al., 2018) for digits, solved by six steps of Runge and Kutta's method."""

    def __init__(self, c: int = 64, steps: int = 6):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, c, 3), nn.GroupNorm(32, c), nn.ReLU(), nn.Conv2d(c, c, 4, 2, 1),
            nn.GroupNorm(32, c), nn.ReLU(), nn.Conv2d(c, c, 4, 2, 1),
        )  # fmt: skip
        self.f = Derivative(c)
        self.register_buffer("times", torch.linspace(0, 1, steps + 1))
        self.head = nn.Sequential(
            nn.GroupNorm(32, c), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(x)
        for start, end in zip(self.times[:-1], self.times[1:]):
            h = end - start
            one = self.f(start, y)
            two = self.f(start + h / 2, y + h * one / 2)
            three = self.f(start + h / 2, y + h * two / 2)
            four = self.f(end, y + h * three)
            y = y + h / 6 * (one + 2 * two + 2 * three + four)
        return self.head(y)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "glow_12": (Glow, normal((6, 32, 32), (12, 16, 16), (48, 8, 8))),
    "masked_flow": (MaskedFlow, normal((500, 63))),
    "spline_flow_4": (SplineFlow, normal((500, 43))),
    "gated_pixel_cnn_7": (PixelCnn, labelled),
    "vqgan_decoder": (CodesToImage, tokens(64, 1024)),
    "neural_ode": (OdeNet, normal((1, 28, 28))),
}
