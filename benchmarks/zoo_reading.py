"""Images, for the zoo: candidates that a tracker drops, text lines by permuted decoding, matrix factors as attention, poses as
classes, deformable kernels, scans in four directions and shifted windows of volumes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures, seeded


class Mlp(nn.Sequential):
    def __init__(self, c: int, ratio: int = 4):
        super().__init__(nn.Linear(c, ratio * c), nn.GELU(), nn.Linear(ratio * c, c))


class OneStream(nn.Module):
    """OSTrack (Ye et al., 2022), six of 12 layers: template and search region in one transformer, which twice drops the 30 % of
    the search region that the middle of the template attends to least, and restores places for the heads."""

    def __init__(self, c: int = 768, heads: int = 12, layers: int = 6, drops: tuple[int, ...] = (2, 4)):
        super().__init__()
        self.heads, self.drops = heads, drops
        self.patch = nn.Conv2d(3, c, 16, 16)
        self.places_z, self.places_x = (
            nn.Parameter(0.3 * torch.randn(1, 64, c)),
            nn.Parameter(0.3 * torch.randn(1, 256, c)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(c, c) for _ in range(layers))
        self.mlps = nn.ModuleList(Mlp(c) for _ in range(layers))
        conv = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU())
        head = lambda n: nn.Sequential(conv(c, 256), conv(256, 128), conv(128, 64), nn.Conv2d(64, n, 1))
        self.score, self.shift, self.size = head(1), head(2), head(2)

    def attend(self, k: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, key, v = self.qkv[k](x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ key.transpose(2, 3) * q.shape[3] ** -0.5).softmax(-1)
        return self.out[k]((weights @ v).transpose(1, 2).flatten(2)), weights

    def forward(self, pair: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        template, search = pair[:, :, :128, :128], pair[:, :, 128:]
        tokens = lambda t: self.patch(t).flatten(2).transpose(1, 2)
        x = torch.cat([tokens(template) + self.places_z, tokens(search) + self.places_x], 1)
        left = torch.arange(256, device=x.device).expand(x.shape[0], -1)
        gone = []
        for k, mlp in enumerate(self.mlps):
            y, weights = self.attend(k, self.norms[2 * k](x))
            x = x + y
            if k in self.drops:
                score = weights[:, :, 27:29, 64:].mean(2).mean(1)
                keep = math.ceil(0.7 * score.shape[1])
                order = score.argsort(1, descending=True)
                best, rest = order[:, :keep], order[:, keep:]
                gone.append(left.gather(1, rest))
                left = left.gather(1, best)
                x = torch.cat([x[:, :64], x[:, 64:].gather(1, best[..., None].expand(-1, -1, x.shape[2]))], 1)
            x = x + mlp(self.norms[2 * k + 1](x))
        x = self.norms[-1](x)[:, 64:]
        order = torch.cat([left, *gone], 1)
        x = F.pad(x, (0, 0, 0, 256 - x.shape[1]))
        x = torch.zeros_like(x).scatter(1, order[..., None].expand(-1, -1, x.shape[2]), x)
        image = x.transpose(1, 2).unflatten(2, (16, 16))
        score = self.score(image).sigmoid().clamp(1e-4, 1 - 1e-4)
        return score, torch.cat([self.shift(image), self.size(image).sigmoid()], 1)


class PermutedText(nn.Module):
    """PARSeq (Bautista and Atienza, 2022): a ViT over 4 x 8 patches, one decoder layer with queries of positions, all 26 letters
    at once and one refinement from the chosen letters."""

    def __init__(self, c: int = 384, heads: int = 6, layers: int = 6, letters: int = 26, kinds: int = 97):
        super().__init__()
        self.letters, self.heads = letters, heads
        self.patch, self.places = nn.Conv2d(3, c, (4, 8), (4, 8)), nn.Parameter(0.3 * torch.randn(1, 128, c))
        layer = nn.TransformerEncoderLayer(c, heads, 4 * c, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(c), enable_nested_tensor=False)
        self.embed, self.queries = nn.Embedding(kinds, c), nn.Parameter(torch.randn(1, letters, c))
        self.own, self.cross = (nn.MultiheadAttention(c, 2 * heads, batch_first=True) for _ in range(2))
        self.norms, self.mlp = nn.ModuleList(nn.LayerNorm(c) for _ in range(5)), Mlp(c)
        self.last = nn.Linear(c, kinds - 2)
        # Preferences that separate the letters of random weights, so that types of 16 bits choose the same.
        self.register_buffer("prior", 5 * torch.randn(letters, kinds - 2, generator=seeded()))

    def decode(self, text: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        n = text.shape[1]
        y = self.embed(text) * self.queries.shape[2] ** 0.5
        y = torch.cat([y[:, :1], y[:, 1:] + self.queries[:, : n - 1]], 1)
        q = self.queries.expand(text.shape[0], -1, -1)
        key = self.norms[1](y)
        q = q + self.own(self.norms[0](q), key, key, attn_mask=mask, need_weights=False)[0]
        q = q + self.cross(self.norms[2](q), memory, memory, need_weights=False)[0]
        q = q + self.mlp(self.norms[3](q))
        return self.last(self.norms[4](q))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        memory = self.encoder(self.patch(image).flatten(2).transpose(1, 2) + self.places)
        n = self.letters
        start = torch.zeros(image.shape[0], 1, dtype=torch.long, device=image.device)
        first = self.decode(start, memory, torch.zeros(n, 1, dtype=torch.bool, device=image.device))
        text = torch.cat([start, (first + self.prior)[:, :-1].argmax(-1)], 1)
        # Each letter sees the others, not itself; what follows the first end is padding.
        cloze = torch.triu(torch.ones(n, n, dtype=torch.bool, device=image.device), 1)
        cloze = cloze & ~torch.triu(torch.ones_like(cloze), 2)
        ended = (text == 1).int().cumsum(-1) > 0
        own = torch.where(ended, torch.full_like(text, 96), text)
        return self.decode(own, memory, cloze)


class StripAttention(nn.Module):
    """SegNeXt's attention: 5 x 5, then strips of 7, 11 and 21, whose sum scales the image."""

    def __init__(self, c: int):
        super().__init__()
        self.first, self.last = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.near, self.mix = nn.Conv2d(c, c, 5, 1, 2, groups=c), nn.Conv2d(c, c, 1)
        strip = lambda n: nn.Sequential(nn.Conv2d(c, c, (1, n), 1, (0, n // 2), groups=c), nn.Conv2d(c, c, (n, 1), 1, (n // 2, 0), groups=c))  # fmt: skip
        self.strips = nn.ModuleList(strip(n) for n in (7, 11, 21))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(self.first(x))
        z = self.near(y)
        return x + self.last(y * self.mix(z + sum(f(z) for f in self.strips)))


class SegNext(nn.Module):
    """SegNeXt-T (Guo et al., 2022), one to two blocks a stage: strips as attention, and a decoder that factorises the pixels into 16
    bases by six multiplicative updates ("hamburger")."""

    def __init__(
        self, widths: tuple[int, ...] = (32, 64, 160, 256), depths: tuple[int, ...] = (1, 1, 2, 1), classes: int = 150
    ):
        super().__init__()
        self.downs, self.stages = nn.ModuleList(), nn.ModuleList()
        a = 3
        for k, (c, depth) in enumerate(zip(widths, depths, strict=True)):
            stem = [nn.Conv2d(3, c // 2, 3, 2, 1), nn.BatchNorm2d(c // 2), nn.GELU(), nn.Conv2d(c // 2, c, 3, 2, 1)]
            self.downs.append(nn.Sequential(*(stem if k == 0 else [nn.Conv2d(a, c, 3, 2, 1)]), nn.BatchNorm2d(c)))
            mlp = lambda c=c, k=k: nn.Sequential(nn.Conv2d(c, 4 * c, 1), nn.Conv2d(4 * c, 4 * c, 3, 1, 1, groups=4 * c), nn.GELU(), nn.Conv2d(4 * c, c, 1))  # fmt: skip
            block = lambda c=c, mlp=mlp: nn.ModuleList((nn.BatchNorm2d(c), StripAttention(c), nn.BatchNorm2d(c), mlp()))
            self.stages.append(nn.ModuleList(block() for _ in range(depth)))
            a = c
        self.scales = nn.ParameterList(nn.Parameter(torch.full((2, c, 1, 1), 0.1)) for c in widths)
        c = 256
        self.squeeze = nn.Sequential(nn.Conv2d(sum(widths[1:]), c, 1, bias=False), nn.GroupNorm(32, c), nn.ReLU())
        self.first, self.last = nn.Conv2d(c, c, 1), nn.Sequential(nn.Conv2d(c, c, 1, bias=False), nn.GroupNorm(32, c))
        self.align = nn.Sequential(
            nn.Conv2d(c, c, 1, bias=False), nn.GroupNorm(32, c), nn.ReLU(), nn.Conv2d(c, classes, 1)
        )
        self.register_buffer("bases", F.normalize(torch.rand(1, c, 16, generator=seeded()), dim=1))

    def factors(self, x: torch.Tensor, steps: int = 6) -> torch.Tensor:
        """Non-negative matrix factors: x about bases @ parts."""
        shape = x.shape
        x = x.flatten(2)
        bases = self.bases.expand(shape[0], -1, -1)
        parts = (x.transpose(1, 2) @ bases).softmax(-1)
        for _ in range(steps):
            parts = parts * (x.transpose(1, 2) @ bases) / (parts @ (bases.transpose(1, 2) @ bases) + 1e-4)
            bases = bases * (x @ parts) / (bases @ (parts.transpose(1, 2) @ parts) + 1e-4)
        parts = parts * (x.transpose(1, 2) @ bases) / (parts @ (bases.transpose(1, 2) @ bases) + 1e-4)
        return (bases @ parts.transpose(1, 2)).view(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = []
        for down, stage, scale in zip(self.downs, self.stages, self.scales, strict=True):
            x = down(x)
            for norm1, attention, norm2, mlp in stage:
                x = x + scale[0] * attention(norm1(x))
                x = x + scale[1] * mlp(norm2(x))
            maps.append(x)
        maps = [F.interpolate(m, size=maps[1].shape[2:], mode="bilinear", align_corners=False) for m in maps[1:]]
        y = self.squeeze(torch.cat(maps, 1))
        return self.align(F.relu(y + self.last(self.factors(F.relu(self.first(y)) / y.shape[1]))))


class GatedPoses(nn.Module):
    """RTMPose's head (Jiang et al., 2023) on a ResNet-18: a gated attention unit over 17 key points, places as classes of half
    pixels."""

    def __init__(self, points: int = 17, h: int = 256, w: int = 192, c: int = 256, size: int = 128):
        super().__init__()
        import torchvision.models as models

        net = models.resnet18(weights=None)
        self.net = nn.Sequential(*list(net.children())[:-2])
        self.last = nn.Conv2d(512, points, 7, padding=3)
        self.scale0, self.mlp = nn.Parameter(torch.ones(1)), nn.Linear(h * w // 1024, c, bias=False)
        self.scale, self.uv, self.out = nn.Parameter(torch.ones(1)), nn.Linear(c, 4 * c + size, bias=False), nn.Linear(2 * c, c, bias=False)  # fmt: skip
        self.gamma, self.beta = nn.Parameter(torch.rand(2, size)), nn.Parameter(torch.rand(2, size))
        self.bias, self.skip = nn.Parameter(0.1 * torch.randn(2 * points - 1)), nn.Parameter(torch.ones(c))
        self.x, self.y, self.points, self.size = (
            nn.Linear(c, 2 * w, bias=False),
            nn.Linear(c, 2 * h, bias=False),
            points,
            size,
        )
        at = torch.arange(points)
        self.register_buffer("relative", at[None] - at[:, None] + points - 1)

    def level(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        size = x.norm(dim=-1, keepdim=True) * x.shape[-1] ** -0.5
        return x / size.clamp_min(1e-5) * scale

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.mlp(self.level(self.last(self.net(image)).flatten(2), self.scale0))
        u, v, base = F.silu(self.uv(self.level(x, self.scale))).split([512, 512, self.size], 2)
        q, k = (base[:, :, None] * self.gamma + self.beta).unbind(2)
        kernel = F.relu((q @ k.transpose(1, 2) + self.bias[self.relative]) / self.size**0.5).square()
        x = x * self.skip + self.out(u * (kernel @ v))
        return self.x(x), self.y(x)


class DeformableKernel(nn.Module):
    """InternImage's operator (Wang et al., 2023): 3 x 3 samples of each group at learned places with learned weights, written
    with grid_sample."""

    def __init__(self, c: int, groups: int):
        super().__init__()
        self.groups = groups
        self.depth = nn.Conv2d(c, c, 3, 1, 1, groups=c)
        self.norm, self.offset, self.mask = nn.LayerNorm(c), nn.Linear(c, groups * 18), nn.Linear(c, groups * 9)
        self.value, self.out = nn.Linear(c, c), nn.Linear(c, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        g = self.groups
        value = F.pad(self.value(x), (0, 0, 1, 1, 1, 1))
        y = F.gelu(self.norm(self.depth(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)))
        offset, mask = self.offset(y), self.mask(y).reshape(b, h, w, g, 9).softmax(-1)
        line = lambda n: (torch.arange(n, device=x.device, dtype=x.dtype) + 1.5) / (n + 2)
        gy, gx = torch.meshgrid(line(h), line(w), indexing="ij")
        ky, kx = torch.meshgrid(*(torch.arange(-1, 2, device=x.device, dtype=x.dtype),) * 2, indexing="ij")
        size = torch.tensor([w + 2, h + 2], device=x.device, dtype=x.dtype)
        steps = torch.stack([kx, ky], 2).reshape(9, 2) / size
        places = torch.stack([gx, gy], 2)[None, :, :, None, None] + steps
        places = places + offset.view(b, h, w, g, 9, 2) / size
        grid = (2 * places - 1).permute(0, 3, 1, 2, 4, 5).reshape(b * g, h * w, 9, 2)
        value = value.view(b, (h + 2) * (w + 2), c).transpose(1, 2).reshape(b * g, c // g, h + 2, w + 2)
        found = F.grid_sample(value, grid, align_corners=False)
        y = (found * mask.permute(0, 3, 1, 2, 4).reshape(b * g, 1, h * w, 9)).sum(-1)
        return self.out(y.view(b, c, h, w).permute(0, 2, 3, 1))


class InternImage(nn.Module):
    """InternImage-T (Wang et al., 2023), one block in each of its first three stages."""

    def __init__(self, c: int = 64, classes: int = 1000, groups: int = 4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c // 2, 3, 2, 1), nn.GELU(), nn.Conv2d(c // 2, c, 3, 2, 1))
        self.blocks, self.downs = nn.ModuleList(), nn.ModuleList()
        for k in range(3):
            n = c << k
            self.blocks.append(
                nn.ModuleList((DeformableKernel(n, groups << k), nn.LayerNorm(n), Mlp(n), nn.LayerNorm(n)))
            )
            self.downs.append(nn.Conv2d(n, 2 * n, 3, 2, 1, bias=False) if k < 2 else nn.Identity())
        self.head = nn.Linear(4 * c, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        for (kernel, norm1, mlp, norm2), down in zip(self.blocks, self.downs, strict=True):
            x = x.permute(0, 2, 3, 1)
            x = x + norm1(kernel(x))
            x = x + norm2(mlp(x))
            x = down(x.permute(0, 3, 1, 2))
        return self.head(x.mean((2, 3)))


class FourScans(nn.Module):
    """VMamba's SS2D (Liu et al., 2024): a selective scan over pixels in rows and columns, forwards and backwards, in chunks whose
    decays are products of exponentials."""

    def __init__(self, c: int, state: int = 1, rank: int = 6, chunk: int = 28):
        super().__init__()
        d = 2 * c
        self.state, self.rank, self.chunk = state, rank, chunk
        self.norm, self.into, self.out = nn.LayerNorm(c), nn.Linear(c, 2 * d, bias=False), nn.Linear(d, c, bias=False)
        self.conv, self.norm_out = nn.Conv2d(d, d, 3, 1, 1, groups=d), nn.LayerNorm(d)
        self.x_proj = nn.Parameter(torch.randn(4, rank + 2 * state, d) / d**0.5)
        self.dt_proj, self.dt_bias = (
            nn.Parameter(torch.randn(4, d, rank) / rank**0.5),
            nn.Parameter(torch.rand(4, d) * 3 - 5),
        )
        self.a_log, self.skip = nn.Parameter(torch.rand(4, d, state)), nn.Parameter(torch.ones(4, d))

    def scan(self, u: torch.Tensor, dt: torch.Tensor, bs: torch.Tensor, cs: torch.Tensor) -> torch.Tensor:
        """u, dt [b, 4, d, l], bs, cs [b, 4, state, l]."""
        a = -self.a_log.exp()
        split = lambda t: t.unflatten(-1, (-1, self.chunk))
        u, dt, bs, cs = split(u), split(dt), split(bs), split(cs)
        total = dt.cumsum(-1)
        decay = (a[:, :, :, None, None] * total[:, :, :, None]).exp()
        pair = total[..., :, None] - total[..., None, :]
        within = torch.tril(torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=u.device))
        mix = (a[:, :, :, None, None, None] * pair[:, :, :, None].masked_fill(~within, 0)).exp() * within
        drive = (dt * u)[:, :, :, None] * bs[:, :, None]
        local = torch.einsum("bkdnsij,bkdnsj->bkdnsi", mix, drive)
        carry, states = torch.zeros_like(local[..., 0, 0]), []
        for n in range(u.shape[-2]):
            states.append(carry)
            carry = carry * decay[..., n, -1] + local[..., n, -1]
        h = local + decay * torch.stack(states, -1)[..., None]
        return (h * cs[:, :, None]).sum(3).flatten(-2) + self.skip[:, :, None] * u.flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, _ = x.shape
        y, gate = self.into(self.norm(x)).chunk(2, -1)
        y = F.silu(self.conv(y.permute(0, 3, 1, 2)))
        both = torch.stack([y.flatten(2), y.transpose(2, 3).flatten(2)], 1)
        xs = torch.cat([both, both.flip(-1)], 1)
        parts = torch.einsum("bkdl,kcd->bkcl", xs, self.x_proj)
        dt, bs, cs = parts.split([self.rank, self.state, self.state], 2)
        dt = F.softplus(torch.einsum("bkrl,kdr->bkdl", dt, self.dt_proj) + self.dt_bias[:, :, None])
        ys = self.scan(xs.float(), dt.float(), bs.float(), cs.float()).to(x.dtype)
        rows, columns = (ys[:, :2] + ys[:, 2:].flip(-1)).unbind(1)
        y = rows + columns.unflatten(2, (w, h)).transpose(2, 3).flatten(2)
        y = self.norm_out(y.transpose(1, 2)).view(b, h, w, -1) * F.silu(gate)
        return x + self.out(y)


class ScannedImage(nn.Module):
    """VMamba-T (Liu et al., 2024), one block in each of its last three stages."""

    def __init__(self, c: int = 96, classes: int = 1000, side: int = 224):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 4, 4), nn.BatchNorm2d(c), nn.GELU(), nn.Conv2d(c, 2 * c, 3, 2, 1))
        self.blocks, self.mlps, self.norms, self.downs = (nn.ModuleList() for _ in range(4))
        for k in (1, 2, 3):
            n, line = c << k, side >> (2 + k)
            self.blocks.append(FourScans(n, rank=n // 16, chunk=line))
            self.mlps.append(Mlp(n))
            self.norms.append(nn.LayerNorm(n))
            self.downs.append(nn.Conv2d(n, 2 * n, 3, 2, 1) if k < 3 else nn.Identity())
        self.head = nn.Linear(8 * c, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.stem(image)
        for block, mlp, norm, down in zip(self.blocks, self.mlps, self.norms, self.downs, strict=True):
            x = block(x.permute(0, 2, 3, 1))
            x = down((x + mlp(norm(x))).permute(0, 3, 1, 2))
        return self.head(x.mean((2, 3)))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "os_track_6": (OneStream, pictures(3, 384, 256)),
    "parseq_6": (PermutedText, pictures(3, 32, 128)),
    "seg_next_5": (SegNext, pictures(3, 512, 512)),
    "rtm_pose": (GatedPoses, pictures(3, 256, 192)),
    "intern_image_3": (InternImage, pictures(3, 224, 224)),
    "vmamba_3": (ScannedImage, pictures(3, 224, 224)),
}
