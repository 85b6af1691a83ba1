"""More networks of images, for the zoo: control of diffusion, adapters, filtered generators, scores, restoration, dense skips, three
branches, text-guided detection, distributions of boxes, parts of people, depth bins, and features of keypoints."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures


def conv(
    a: int, b: int, k: int = 3, s: int = 1, act: type[nn.Module] = nn.SiLU, groups: int = 1, dilation: int = 1
) -> nn.Sequential:
    pad = dilation * (k - 1) // 2
    return nn.Sequential(nn.Conv2d(a, b, k, s, pad, dilation, groups, bias=False), nn.BatchNorm2d(b), act())


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Residual(nn.Module):
    def __init__(self, a: int, b: int, time: int):
        super().__init__()
        self.one = nn.Sequential(nn.GroupNorm(32, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
        self.time, self.norm, self.two = nn.Linear(time, b), nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, padding=1)
        self.skip = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = self.one(x) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.two(F.silu(self.norm(y)))


class TextAttention(nn.Module):
    """Attention of pixels, to a text, and with `images` to tokens of an image too (IP-Adapter, Ye et al., 2023)."""

    def __init__(self, c: int, context: int, heads: int, images: bool):
        super().__init__()
        self.heads, self.norm0 = heads, nn.GroupNorm(32, c)
        self.into, self.back = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.norms, self.qkv, self.q = (
            nn.ModuleList(nn.LayerNorm(c) for _ in range(3)),
            nn.Linear(c, 3 * c, bias=False),
            nn.Linear(c, c, bias=False),
        )
        self.kv = nn.ModuleList(nn.Linear(context, 2 * c, bias=False) for _ in range(2 if images else 1))
        self.outs = nn.ModuleList(nn.Linear(c, c) for _ in range(2))
        self.wide, self.narrow = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*(heads_of(t, self.heads) for t in (q, k, v))).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, *contexts: torch.Tensor) -> torch.Tensor:
        y = self.into(self.norm0(x)).flatten(2).transpose(1, 2)
        y = y + self.outs[0](self.attend(*self.qkv(self.norms[0](y)).chunk(3, 2)))
        q = self.q(self.norms[1](y))
        found = sum(self.attend(q, *kv(c).chunk(2, 2)) for kv, c in zip(self.kv, contexts, strict=False))
        y = y + self.outs[1](found)
        a, gate = self.wide(self.norms[2](y)).chunk(2, 2)
        y = y + self.narrow(a * F.gelu(gate))
        return x + self.back(y.transpose(1, 2).unflatten(2, x.shape[2:]))


class ControlBranch(nn.Module):
    """A ControlNet (Zhang et al., 2023): a hint of 512 x 512 pixels to 64 x 64, a copy of an encoder of three scales, a convolution for each
    feature."""

    def __init__(self, widths: tuple[int, ...] = (320, 640, 1280), context: int = 768):
        super().__init__()
        c, t = widths[0], 4 * widths[0]
        h = (3, 16, 16, 32, 32, 96, 96, 256)
        hint = [
            m
            for k, (a, b) in enumerate(zip(h, h[1:], strict=False))
            for m in (nn.Conv2d(a, b, 3, 2 if k in (2, 4, 6) else 1, 1), nn.SiLU())
        ]
        self.hint, self.first = nn.Sequential(*hint, nn.Conv2d(256, c, 3, padding=1)), nn.Conv2d(4, c, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(c, t), nn.SiLU(), nn.Linear(t, t))
        self.residuals, self.texts, self.downs, self.zeros = (
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList([nn.Conv2d(c, c, 1)]),
        )
        for k, b in enumerate(widths):
            self.residuals.append(Residual(widths[max(k - 1, 0)], b, t))
            self.texts.append(TextAttention(b, context, 8, False))
            self.downs.append(nn.Conv2d(b, b, 3, 2, 1))
            self.zeros.extend(nn.Conv2d(b, b, 1) for _ in range(2))
        self.register_buffer("waves", (-math.log(10000) * torch.arange(c // 2) / (c // 2)).exp())

    def forward(
        self, x: torch.Tensor, hint: torch.Tensor, text: torch.Tensor, time: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        angles = time * self.waves
        t = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        x = self.first(x) + self.hint(hint)
        found = [x]
        for residual, attend, down in zip(self.residuals, self.texts, self.downs, strict=True):
            x = attend(residual(x, t), text)
            found.append(x)
            x = down(x)
            found.append(x)
        return tuple(zero(f) for zero, f in zip(self.zeros, found, strict=True))


class ImagePrompt(nn.Module):
    """IP-Adapter Plus (Ye et al., 2023): 257 tokens of an image to 16 by a resampler of four layers, then two blocks of a diffusion model
    whose cross-attention has keys of text and of image."""

    def __init__(self, seen: int = 1280, context: int = 768, c: int = 640, layers: int = 4, queries: int = 16):
        super().__init__()
        self.queries, self.into, self.out = (
            nn.Parameter(torch.randn(1, queries, context)),
            nn.Linear(seen, context),
            nn.Linear(context, context),
        )
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.norm_x, self.norm_q = each(lambda: nn.LayerNorm(context)), each(lambda: nn.LayerNorm(context))
        self.q, self.kv, self.back = each(lambda: nn.Linear(context, context, bias=False)), each(lambda: nn.Linear(context, 2 * context, bias=False)), each(lambda: nn.Linear(context, context, bias=False))  # fmt: skip
        self.mlps = each(
            lambda: nn.Sequential(
                nn.LayerNorm(context), nn.Linear(context, 4 * context), nn.GELU(), nn.Linear(4 * context, context)
            )
        )
        self.last, self.blocks = (
            nn.LayerNorm(context),
            nn.ModuleList(TextAttention(c, context, 8, True) for _ in range(2)),
        )

    def forward(self, pixels: torch.Tensor, text: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        x, q = self.into(image), self.queries.expand(image.shape[0], -1, -1)
        for norm_x, norm_q, to_q, to_kv, back, mlp in zip(
            self.norm_x, self.norm_q, self.q, self.kv, self.back, self.mlps, strict=True
        ):
            own = norm_q(q)
            k, v = to_kv(torch.cat([norm_x(x), own], 1)).chunk(2, 2)
            q = q + back(
                F.scaled_dot_product_attention(*(heads_of(t, 12) for t in (to_q(own), k, v))).transpose(1, 2).flatten(2)
            )
            q = q + mlp(q)
        tokens = self.last(self.out(q))
        for block in self.blocks:
            pixels = block(pixels, text, tokens)
        return pixels


class Filtered(nn.Module):
    """StyleGAN3's layer (Karras et al., 2021): a modulated convolution, up by two with twelve taps each way, a leaky ReLU, down again."""

    def __init__(self, a: int, b: int, up: int, style: int = 512):
        super().__init__()
        self.weight, self.style, self.bias, self.up = (
            nn.Parameter(torch.randn(b, a, 3, 3)),
            nn.Linear(style, a),
            nn.Parameter(torch.zeros(b, 1, 1)),
            up,
        )
        taps = lambda n: torch.sinc((torch.arange(n) - (n - 1) / 2) / 2) * torch.kaiser_window(n, False)
        self.register_buffer("rise", (taps(6 * up) / taps(6 * up).sum() * up)[None, None].expand(b, 1, -1).contiguous())
        self.register_buffer("fall", (taps(12) / taps(12).sum())[None, None].expand(b, 1, -1).contiguous())

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        side, style = x.shape[2], self.style(w) + 1
        norm = (style.square() @ self.weight.square().sum((2, 3)).t() + 1e-8).rsqrt()
        x = F.conv2d(x * style[:, :, None, None], self.weight, padding=1) * norm[:, :, None, None] + self.bias
        c, n = x.shape[1], self.rise.shape[2]
        for shape, stride in (((n, 1), (self.up, 1)), ((1, n), (1, self.up))):
            x = F.conv_transpose2d(x, self.rise.view(c, 1, *shape), stride=stride, groups=c)
        cut = (x.shape[2] - side * self.up) // 2
        x = F.leaky_relu(x[:, :, cut : cut + side * self.up, cut : cut + side * self.up], 0.2) * 2**0.5
        down = self.up // 2 if self.up > 2 else 2
        for shape, stride, pad in (((12, 1), (down, 1), (5, 0)), ((1, 12), (1, down), (0, 5))):
            x = F.conv2d(x, self.fall.view(c, 1, *shape), stride=stride, padding=pad, groups=c)
        return x


class FilteredGenerator(nn.Module):
    """StyleGAN3-T, eight layers from 36 to 144 pixels, without margins."""

    def __init__(self, widths: tuple[int, ...] = (512, 512, 512, 256, 256, 128, 128, 64, 64)):
        super().__init__()
        self.maps = nn.Sequential(nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2))
        self.waves, self.mix = nn.Parameter(torch.randn(512, 2) * 2), nn.Conv2d(512, 512, 1)
        self.layers = nn.ModuleList(
            Filtered(a, b, 4 if k in (1, 4) else 2) for k, (a, b) in enumerate(zip(widths, widths[1:], strict=False))
        )
        self.last = nn.Conv2d(widths[-1], 3, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        w = self.maps(z * (z.square().mean(1, keepdim=True) + 1e-8).rsqrt())
        p = torch.linspace(-0.5, 0.5, 36, dtype=z.dtype, device=z.device)
        y, x = torch.meshgrid(p, p, indexing="ij")
        features = (torch.stack([x, y], 2) @ self.waves.t() * 2 * math.pi).sin().permute(2, 0, 1)
        x = self.mix(features[None].expand(z.shape[0], -1, -1, -1))
        for layer in self.layers:
            x = layer(x, w)
        return self.last(x)


class HybridAttention(nn.Module):
    """HAT (Chen et al., 2023), four blocks of 96 x 96 pixels: windows of 16 plus channel attention of convolutions, and a block whose windows
    see overlapping ones of 24; four times the pixels."""

    def __init__(self, c: int = 144, heads: int = 6, window: int = 16, blocks: int = 4):
        super().__init__()
        self.heads, self.window, self.over = heads, window, window * 3 // 2
        self.first, self.same = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        each = lambda f: nn.ModuleList(f(k) for k in range(blocks + 1))
        self.qkv, self.out = each(lambda k: nn.Linear(c, 3 * c)), each(lambda k: nn.Linear(c, c))
        self.norms = each(lambda k: nn.ModuleList(nn.LayerNorm(c) for _ in range(2)))
        self.mlps = each(lambda k: nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c)))
        self.near = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c // 3, 3, padding=1), nn.GELU(), nn.Conv2d(c // 3, c, 3, padding=1))
            for _ in range(blocks)
        )
        self.share = nn.ModuleList(
            nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c // 24, 1), nn.ReLU(), nn.Conv2d(c // 24, c, 1), nn.Sigmoid()
            )
            for _ in range(blocks)
        )
        n = window**2
        self.bias = nn.ParameterList(
            nn.Parameter(torch.randn(heads, n, n if k < blocks else self.over**2) * 0.3) for k in range(blocks + 1)
        )
        self.up = nn.Sequential(nn.Conv2d(c, 64, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(64, 3, 3, padding=1))  # fmt: skip

    def windows(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, rows, columns, c] to [batch, windows, tokens, c]."""
        w = self.window
        return x.unflatten(1, (-1, w)).unflatten(3, (-1, w)).transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def attend(self, k: int, q: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, key, v = (t.unflatten(3, (self.heads, -1)).transpose(2, 3) for t in (q, key, v))
        y = (q @ key.transpose(3, 4) * q.shape[-1] ** -0.5 + self.bias[k]).softmax(4) @ v
        y = y.transpose(2, 3).flatten(3)
        side, w = self.side, self.window
        return self.out[k](
            y.unflatten(1, (side // w, -1)).unflatten(3, (w, w)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = first = self.first(image)
        self.side = image.shape[2]
        x = x.permute(0, 2, 3, 1)
        for k, (near, share) in enumerate(zip(self.near, self.share, strict=True)):
            y = self.norms[k][0](x)
            local = near(y.permute(0, 3, 1, 2))
            local = (local * share(local)).permute(0, 2, 3, 1)
            move = self.window // 2 if k % 2 else 0
            found = self.attend(k, *(self.windows(self.qkv[k](y.roll((-move, -move), (1, 2)))).chunk(3, 3)))
            x = x + found.roll((move, move), (1, 2)) + 0.01 * local
            x = x + self.mlps[k](self.norms[k][1](x))
        q, kv = self.qkv[-1](self.norms[-1][0](x)).split((x.shape[3], 2 * x.shape[3]), 3)
        wide = F.unfold(kv.permute(0, 3, 1, 2), self.over, stride=self.window, padding=(self.over - self.window) // 2)
        key, v = wide.unflatten(1, (2, -1, self.over**2)).permute(1, 0, 4, 3, 2).unbind(0)
        x = x + self.attend(len(self.near), self.windows(q), key, v)
        x = x + self.mlps[-1](self.norms[-1][1](x))
        return self.up(self.same(x.permute(0, 3, 1, 2)) + first)


class NestedUnet(nn.Module):
    """UNet++ (Zhou et al., 2018): five scales of 256 x 256 pixels whose nodes all see the nodes before them."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256, 512), classes: int = 2):
        super().__init__()
        n = len(widths)
        two = lambda a, b: nn.Sequential(conv(a, b, act=nn.ReLU), conv(b, b, act=nn.ReLU))
        self.nodes = nn.ModuleDict(
            {
                f"{i}_{j}": two((3, *widths)[i] if j == 0 else j * widths[i] + widths[i + 1], widths[i])
                for i in range(n)
                for j in range(n - i)
            }
        )
        self.last, self.n = nn.ModuleList(nn.Conv2d(widths[0], classes, 1) for _ in range(n - 1)), n

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows: list[list[torch.Tensor]] = [[] for _ in range(self.n)]
        for i in range(self.n):
            rows[i].append(self.nodes[f"{i}_0"](F.max_pool2d(x, 2) if i else x))
            x = rows[i][0]
            for j in range(1, i + 1):
                k = i - j
                up = F.interpolate(rows[k + 1][j - 1], scale_factor=2, mode="bilinear", align_corners=True)
                rows[k].append(self.nodes[f"{k}_{j}"](torch.cat([*rows[k], up], 1)))
        return torch.stack([f(y) for f, y in zip(self.last, rows[0][1:], strict=True)]).mean(0)


class ThreeBranches(nn.Module):
    """PIDNet-S (Xu et al., 2023) of 512 x 1024 pixels: details, context and borders, which select pixels of the other two by products of
    their features, and pooled context at four scales."""

    def __init__(self, c: int = 32, classes: int = 19):
        super().__init__()
        relu = lambda a, b, s=1, k=3: conv(a, b, k, s, nn.ReLU)
        plain = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b))
        two = lambda a, b, s=1: nn.Sequential(relu(a, b, s), relu(b, b))
        self.stem = nn.Sequential(relu(3, c, 2), relu(c, c, 2), two(c, c), two(c, 2 * c, 2), two(2 * c, 2 * c))
        self.context = nn.ModuleList((two(2 * c, 4 * c, 2), two(4 * c, 8 * c, 2), two(8 * c, 16 * c, 2)))
        self.detail, self.border = (
            nn.ModuleList(two(2 * c, 2 * c) for _ in range(3)),
            nn.ModuleList((two(2 * c, c), two(c, 2 * c), two(2 * c, 4 * c))),
        )
        self.detail[2] = two(2 * c, 4 * c)
        self.squeeze, self.add = (
            nn.ModuleList((plain(4 * c, 2 * c), plain(8 * c, 2 * c))),
            nn.ModuleList((plain(4 * c, c), plain(8 * c, 2 * c))),
        )
        self.match = nn.ModuleList(nn.ModuleList((plain(2 * c, c), plain(2 * c, c))) for _ in range(2))
        self.pools = nn.ModuleList(nn.Conv2d(16 * c, 96, 1) for _ in range(5))
        self.scales, self.join, self.short = (
            conv(4 * 96, 4 * 96, 3, groups=4, act=nn.ReLU),
            nn.Conv2d(5 * 96, 4 * c, 1),
            nn.Conv2d(16 * c, 4 * c, 1),
        )
        self.ones, self.last = (
            nn.ModuleList(plain(4 * c, 4 * c) for _ in range(2)),
            nn.Sequential(relu(4 * c, 128), nn.Conv2d(128, classes, 1)),
        )

    @staticmethod
    def resized(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=False)

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.pools[0](x)
        parts = [
            self.resized(self.pools[k](F.avg_pool2d(x, n, s, n // 2)), x) + kept
            for k, (n, s) in enumerate(((5, 2), (9, 4)), 1)
        ]
        parts += [
            self.resized(self.pools[3](F.avg_pool2d(x, (8, 16))), x) + kept,
            self.pools[4](x.mean((2, 3), keepdim=True)) + kept,
        ]
        return self.join(torch.cat([kept, self.scales(torch.cat(parts, 1))], 1)) + self.short(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        p = d = x
        for k in range(2):
            x, p, d = self.context[k](x), self.detail[k](p), self.border[k](d)
            found = self.squeeze[k](x)
            one, two = self.match[k]
            w = self.resized((one(p) * self.resized(two(found), p)).sum(1, keepdim=True).sigmoid(), p)
            p = (1 - w) * p + w * self.resized(found, p)
            d = d + self.resized(self.add[k](x), d)
        x, p, d = self.pooled(self.context[2](x)), self.detail[2](p), self.border[2](d).sigmoid()
        x = self.resized(x, p)
        return self.last(self.ones[0]((1 - d) * x + p) + self.ones[1](x + d * p))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "control_net_3": (
        ControlBranch,
        lambda batch: (
            *normal((4, 64, 64))(batch),
            *pictures(3, 512, 512)(batch),
            *normal((77, 768))(batch),
            torch.full((batch, 1), 500.0),
        ),
    ),
    "ip_adapter_4": (ImagePrompt, normal((640, 32, 32), (77, 768), (257, 1280))),
    "stylegan3_8": (FilteredGenerator, normal((512,))),
    "hat_5": (HybridAttention, pictures(3, 96, 96)),
    "unet_plus_plus": (NestedUnet, pictures(3, 256, 256)),
    "pid_net_s": (ThreeBranches, pictures(3, 512, 1024)),
}
