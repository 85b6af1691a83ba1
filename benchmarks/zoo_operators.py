"""Operators of fields and scans, for the zoo: transforms in three dims and on spheres, slices of physics, products of multivectors,
recurrences by doubling, max-plus layers, retrieval, and images from k-space."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded


class FourierVolume(nn.Module):
    """A Fourier neural operator in space and time (Li et al., 2021): 40 x 40 points, 20 steps, 8 waves a dim, four corners."""

    def __init__(self, c: int = 20, waves: int = 8, layers: int = 4):
        super().__init__()
        self.waves, self.first = waves, nn.Linear(13, c)
        shape = (4, c, c, waves, waves, waves, 2)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(*shape) / c**0.5) for _ in range(layers))
        self.lines = nn.ModuleList(nn.Conv3d(c, c, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.Linear(c, 128), nn.GELU(), nn.Linear(128, 1))

    def corner(self, f: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = f.unbind(-1)
        real, imaginary = w.float().unbind(-1)
        re = torch.einsum("bixyz,ioxyz->boxyz", a, real) - torch.einsum("bixyz,ioxyz->boxyz", b, imaginary)
        im = torch.einsum("bixyz,ioxyz->boxyz", a, imaginary) + torch.einsum("bixyz,ioxyz->boxyz", b, real)
        return torch.stack([re, im], -1)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        batch, h, w, t, _ = a.shape
        axes = [torch.linspace(0, 1, n, device=a.device, dtype=a.dtype) for n in (h, w, t)]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).expand(batch, -1, -1, -1, -1)
        u = F.pad(self.first(torch.cat([a, grid], -1)).permute(0, 4, 1, 2, 3), (0, 6))
        m = self.waves
        for k, (weights, line) in enumerate(zip(self.weights, self.lines, strict=True)):
            f = torch.view_as_real(torch.fft.rfftn(u.float(), dim=(2, 3, 4), norm="ortho"))
            parts = [f[:, :, x, y, :m] for x in (slice(0, m), slice(-m, None)) for y in (slice(0, m), slice(-m, None))]
            parts = [self.corner(p, weights[i]) for i, p in enumerate(parts)]
            gap = torch.zeros(batch, f.shape[1], m, w - 2 * m, m, 2, device=f.device, dtype=f.dtype)
            low, high = (torch.cat([parts[i], gap, parts[i + 1]], 3) for i in (0, 2))
            middle = torch.zeros(batch, f.shape[1], h - 2 * m, w, m, 2, device=f.device, dtype=f.dtype)
            f = torch.cat([low, middle, high], 2)
            f = F.pad(f, (0, 0, 0, u.shape[4] // 2 + 1 - m))
            spectral = torch.fft.irfftn(torch.view_as_complex(f), s=u.shape[2:], dim=(2, 3, 4), norm="ortho").to(
                u.dtype
            )
            u = spectral + line(u)
            u = F.gelu(u) if k < 3 else u
        return self.last(u[..., :t].permute(0, 2, 3, 4, 1))


class SphericalOperator(nn.Module):
    """A spherical Fourier operator (Bonev et al., 2023): waves along 180 longitudes, Legendre functions along 90 latitudes."""

    def __init__(self, into: int = 26, c: int = 96, lats: int = 90, degrees: int = 45, layers: int = 4):
        super().__init__()
        self.degrees = degrees
        self.first, self.last = nn.Conv2d(into, c, 1), nn.Conv2d(c + into, into, 1)
        r = seeded()
        basis = torch.linalg.qr(torch.randn(degrees, lats, degrees, generator=r))[0]
        self.register_buffer("analyse", basis.transpose(1, 2).contiguous())
        self.register_buffer("synthesise", basis.contiguous())
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(c, c, degrees, 2) / c**0.5) for _ in range(layers))
        self.norms = nn.ModuleList(nn.InstanceNorm2d(c, affine=True) for _ in range(2 * layers))
        mlp = lambda: nn.Sequential(nn.Conv2d(c, 2 * c, 1), nn.GELU(), nn.Conv2d(2 * c, c, 1))
        self.mlps, self.skips = (
            nn.ModuleList(mlp() for _ in range(layers)),
            nn.ModuleList(nn.Conv2d(c, c, 1) for _ in range(layers)),
        )

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        x = self.first(fields)
        for k, (weight, mlp, skip) in enumerate(zip(self.weights, self.mlps, self.skips, strict=True)):
            y = self.norms[2 * k](x).float()
            f = torch.view_as_real(torch.fft.rfft(y, dim=3, norm="ortho"))[:, :, :, : self.degrees]
            f = torch.einsum("bchmr,mlh->bclmr", f, self.analyse.float())
            re, im = weight.float().unbind(-1)
            a, b = f.unbind(-1)
            real = torch.einsum("bilm,iol->bolm", a, re) - torch.einsum("bilm,iol->bolm", b, im)
            imaginary = torch.einsum("bilm,iol->bolm", a, im) + torch.einsum("bilm,iol->bolm", b, re)
            f = torch.einsum("bclmr,mhl->bchmr", torch.stack([real, imaginary], -1), self.synthesise.float())
            f = F.pad(f, (0, 0, 0, y.shape[3] // 2 + 1 - self.degrees))
            y = torch.fft.irfft(torch.view_as_complex(f.contiguous()), y.shape[3], dim=3, norm="ortho").to(x.dtype)
            x = F.gelu(y + skip(x))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.last(torch.cat([x, fields], 1))


class PhysicsSlices(nn.Module):
    """Transolver (Wu et al., 2024): 3586 points of a mesh are summed to 32 soft slices per head, which attend to one another."""

    def __init__(self, into: int = 7, c: int = 256, heads: int = 8, slices: int = 32, layers: int = 4):
        super().__init__()
        self.heads = heads
        size = c // heads
        self.first = nn.Sequential(nn.Linear(into, 2 * c), nn.GELU(), nn.Linear(2 * c, c))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1))
        self.x, self.f, self.out = (nn.ModuleList(nn.Linear(c, c) for _ in range(layers)) for _ in range(3))
        self.slice = nn.ModuleList(nn.Linear(size, slices) for _ in range(layers))
        self.qkv = nn.ModuleList(nn.Linear(size, 3 * size, bias=False) for _ in range(layers))
        self.temperature = nn.Parameter(torch.full((layers, 1, heads, 1, 1), 0.5))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(c, c), nn.GELU(), nn.Linear(c, c)) for _ in range(layers))
        self.last = nn.Linear(c, 4)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        split = lambda t: t.unflatten(2, (self.heads, -1)).transpose(1, 2)
        share = (self.slice[k](split(self.x[k](x))) / self.temperature[k].clamp(min=0.1)).softmax(-1)
        total = share.sum(2)[..., None] + 1e-3
        # Sums over thousands of points stay within fp16 if the shares are divided first.
        token = (share.transpose(2, 3) / total) @ split(self.f[k](x))
        q, key, v = self.qkv[k](token).chunk(3, 3)
        token = (q @ key.transpose(2, 3) / q.shape[3] ** 0.5).softmax(-1) @ v
        return self.out[k]((share @ token).transpose(1, 2).flatten(2))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        x = self.first(points)
        for k, mlp in enumerate(self.mlps):
            x = x + self.attend(k, self.norms[2 * k](x))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.last(self.norms[-1](x))


def geometric_product() -> torch.Tensor:
    """Of multivectors of the algebra with signature (0, 1, 1, 1): 16 x 16 products of blades."""
    table = torch.zeros(16, 16, 16)
    for a in range(16):
        for b in range(16):
            sign, rest = 1, a >> 1
            while rest:
                sign, rest = sign * (-1) ** bin(rest & b).count("1"), rest >> 1
            table[a ^ b, a, b] = 0 if a & b & 1 else sign
    return table


class Multivectors(nn.Module):
    """GATr (Brehmer et al., 2023): channels are multivectors of 16 elements; linear maps by grade, geometric products, and
    attention by inner products."""

    def __init__(self, channels: int = 16, layers: int = 4, heads: int = 4):
        super().__init__()
        self.heads = heads
        grades = torch.tensor([bin(b).count("1") for b in range(16)])
        same = torch.stack([torch.diag((grades == g).float()) for g in range(5)])
        raised = torch.zeros(4, 16, 16)
        for b in range(0, 16, 2):
            raised[int(grades[b]), b | 1, b] = 1
        self.register_buffer("maps", torch.cat([same, raised]))
        self.register_buffer("product", geometric_product())
        self.register_buffer("inner", torch.tensor([float(not b & 1) for b in range(16)]))
        line = lambda a, b: nn.Parameter(torch.randn(b, a, 9) / (2 * a) ** 0.5)
        self.first, self.last = line(1, channels), line(channels, 1)
        self.qkv = nn.ParameterList(line(channels, 3 * channels) for _ in range(layers))
        self.out = nn.ParameterList(line(channels, channels) for _ in range(layers))
        self.pairs = nn.ParameterList(line(channels, 2 * channels) for _ in range(layers))
        self.back = nn.ParameterList(line(channels, channels) for _ in range(layers))

    def line(self, w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("oig,gyx,bnix->bnoy", w, self.maps, x)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        size = (x.float().square() * self.inner.float()).sum(-1).mean(-1)
        return x * (size + 0.01).rsqrt()[..., None, None].to(x.dtype)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        q, key, v = self.line(self.qkv[k], x).chunk(3, 2)
        flat = lambda t: t.unflatten(2, (self.heads, -1)).transpose(1, 2).flatten(3)
        scale = self.inner.repeat(q.shape[2] // self.heads)
        scores = (flat(q) * scale) @ flat(key).transpose(2, 3) / (8 * q.shape[2] / self.heads) ** 0.5
        y = (scores.softmax(-1) @ flat(v)).unflatten(3, (-1, 16)).transpose(1, 2).flatten(2, 3)
        return self.line(self.out[k], y)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        ones = torch.ones_like(points[..., :1])
        blank = torch.zeros_like(points[..., :1])
        # A point is a trivector.
        parts = (
            [blank] * 7 + [points[..., :1]] + [blank] * 3 + [points[..., 1:2]] + [blank, points[..., 2:], ones, blank]
        )
        x = self.line(self.first, torch.cat(parts, -1)[:, :, None])
        for k in range(len(self.qkv)):
            x = x + self.attend(k, self.norm(x))
            a, b = self.line(self.pairs[k], self.norm(x)).chunk(2, 2)
            y = torch.einsum("zxy,bncx,bncy->bncz", self.product, a, b) / 4
            x = x + self.line(self.back[k], y * F.gelu(y[..., :1]))
        return self.line(self.last, self.norm(x))[:, :, 0]


class LinearRecurrence(nn.Module):
    """Linear recurrent units (Orvieto et al., 2023): complex states of 256 elements, whose recurrence over 512 steps is a
    scan by doubling; four gated layers."""

    def __init__(self, into: int = 32, c: int = 192, states: int = 256, layers: int = 4):
        super().__init__()
        self.first, self.last = nn.Linear(into, c), nn.Linear(c, 10)
        radius, angle = torch.rand(layers, states).mul(0.09).add(0.9), torch.rand(layers, states) * 3.14
        self.decay, self.angle = nn.Parameter(torch.log(-torch.log(radius))), nn.Parameter(torch.log(angle))
        self.read = nn.ModuleList(nn.Linear(c, 2 * states, bias=False) for _ in range(layers))
        self.write = nn.ModuleList(nn.Linear(2 * states, c, bias=False) for _ in range(layers))
        self.gates = nn.ModuleList(nn.Linear(c, 2 * c) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(layers))
        self.skip = nn.Parameter(torch.randn(layers, c))

    def scan(self, k: int, re: torch.Tensor, im: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """h_t = a h_(t-1) + x_t, where a has the same value for all t."""
        rate, turn = torch.exp(self.decay[k].float()), torch.exp(self.angle[k].float())
        step = 1
        while step < re.shape[1]:
            size = torch.exp(-rate * step)
            c, s = size * torch.cos(turn * step), size * torch.sin(turn * step)
            br, bi = F.pad(re, (0, 0, step, 0))[:, :-step], F.pad(im, (0, 0, step, 0))[:, :-step]
            re, im = re + c * br - s * bi, im + c * bi + s * br
            step *= 2
        return re, im

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for k, (norm, read, write, gate) in enumerate(zip(self.norms, self.read, self.write, self.gates, strict=True)):
            y = norm(x)
            scale = (1 - torch.exp(-2 * torch.exp(self.decay[k].float()))).sqrt()
            re, im = self.scan(k, *(t * scale for t in read(y).float().chunk(2, 2)))
            y = F.gelu(write(torch.cat([re, -im], 2).to(x.dtype)) + self.skip[k] * y)
            x = x + F.glu(gate(y), 2)
        return self.last(x.mean(1))


class MaxPlus(nn.Module):
    """Morphological networks (Zhang et al., 2019; Mondal et al., 2019): dilations and erosions of images with learnt elements,
    and max-plus layers in place of matrix products."""

    def __init__(self, c: int = 32, classes: int = 100):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c))
        self.up, self.down = nn.Parameter(torch.randn(2, c, 25) / 4), nn.Parameter(torch.randn(2, c, 25) / 4)
        self.mix = nn.ModuleList(nn.Sequential(nn.Conv2d(2 * c, c, 1, bias=False), nn.BatchNorm2d(c)) for _ in range(2))
        self.hidden, self.plus = nn.Linear(c * 36, 256), nn.Parameter(torch.randn(256, 256))
        self.last = nn.Linear(256, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image)
        for up, down, mix in zip(self.up, self.down, self.mix, strict=True):
            batch, c, h, w = x.shape
            windows = F.unfold(x, 5, padding=2).reshape(batch, c, 25, h * w)
            dilated = (windows + up[:, :, None]).amax(2)
            eroded = (windows - down[:, :, None]).amin(2)
            x = mix(torch.cat([dilated, eroded], 1).reshape(batch, 2 * c, h, w))
            x = F.max_pool2d(x, 2)
        h = self.hidden(F.adaptive_avg_pool2d(x, 6).flatten(1))
        return self.last((h[:, None] + self.plus).amax(2) - (self.plus - h[:, None]).amin(2))


class Retrieval(nn.Module):
    """TabR (Gorishniy et al., 2023): the 96 nearest of 8192 stored rows by TopK, values from their labels and differences."""

    def __init__(self, columns: int = 54, c: int = 192, rows: int = 8192, near: int = 96, classes: int = 7):
        super().__init__()
        self.near, self.first = near, nn.Linear(columns, c)
        self.key = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, c))
        self.register_buffer("keys", torch.randn(rows, c))
        self.register_buffer("kinds", torch.randint(0, classes, (rows,)))
        self.label, self.change = (
            nn.Embedding(classes, c),
            nn.Sequential(nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c, bias=False)),
        )
        self.block = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c))
        self.last = nn.Sequential(nn.LayerNorm(c), nn.ReLU(), nn.Linear(c, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x.flatten(0, 1))
        k = self.key(x)
        far = -k.square().sum(-1, keepdim=True) + 2 * k @ self.keys.t() - self.keys.square().sum(-1)
        which = far.topk(self.near, 1)[1]
        found = self.keys[which]
        scores = -(k[:, None] - found).square().sum(-1)
        weights = (scores / 8).softmax(1)
        values = self.label(self.kinds[which]) + self.change(k[:, None] - found)
        x = x + (weights[:, None] @ values)[:, 0]
        return self.last(x + self.block(x))


class MemoryBank(nn.Module):
    """PatchCore (Roth et al., 2022): features of two stages of a ResNet, the nearest of 4096 stored ones for each place, a
    score weighted by neighbours, and a blurred map."""

    def __init__(self, stored: int = 4096):
        super().__init__()
        import torchvision

        body = torchvision.models.resnet18(weights=None)
        self.first = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
        self.two, self.three = body.layer2, body.layer3
        self.register_buffer("bank", torch.rand(stored, 384))
        ramp = torch.exp(-((torch.arange(33.0) - 16) ** 2) / 32)
        self.register_buffer("blur", (ramp / ramp.sum()).view(1, 1, 33, 1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        two = self.two(self.first(image))
        three = self.three(two)
        pool = lambda x: F.avg_pool2d(x, 3, 1, 1)
        three = F.interpolate(pool(three), size=two.shape[2:], mode="bilinear", align_corners=False)
        x = torch.cat([pool(two), three], 1).flatten(2).transpose(1, 2)
        bank = self.bank
        far = x.square().sum(-1, keepdim=True) - 2 * x @ bank.t() + bank.square().sum(-1)
        gap, which = far.float().clamp(min=1e-4).sqrt().min(2)
        score, place = gap.max(1)
        nearest = bank[which.gather(1, place[:, None])[:, 0]]
        around = torch.cdist(nearest.float(), bank.float()).topk(9, largest=False)[1]
        query = x.gather(1, place[:, None, None].expand(-1, -1, x.shape[2])).float()
        weights = (query - bank[around].float()).square().sum(-1).sqrt().softmax(1)
        score = (1 - weights[:, 0]) * score
        side = two.shape[2]
        heat = F.interpolate(
            gap.unflatten(1, (1, side, -1)), size=image.shape[2:], mode="bilinear", align_corners=False
        )
        blur = self.blur.float()
        heat = F.pad(heat, (16, 16, 16, 16), mode="reflect")
        return score, F.conv2d(F.conv2d(heat, blur), blur.transpose(2, 3))


class KSpace(nn.Module):
    """End-to-end variational networks for MRI (Sriram et al., 2020): three cascades on eight coils of 160 x 128, each with
    Fourier transforms, a U-Net of the combined image and data consistency."""

    def __init__(self, cascades: int = 3, c: int = 18):
        super().__init__()
        conv = lambda a, b: nn.Sequential(
            nn.Conv2d(a, b, 3, 1, 1, bias=False), nn.InstanceNorm2d(b), nn.LeakyReLU(0.2),
            nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.InstanceNorm2d(b), nn.LeakyReLU(0.2),
        )  # fmt: skip
        make = lambda: nn.ModuleList(
            (conv(2, c), conv(c, 2 * c), conv(2 * c, 4 * c), conv(6 * c, 2 * c), conv(3 * c, c), nn.Conv2d(c, 2, 1))
        )
        self.nets = nn.ModuleList(make() for _ in range(cascades))
        self.weight = nn.Parameter(torch.full((cascades,), 0.7))

    def unet(self, net: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        mean, spread = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True) + 1e-3
        x = (x - mean) / spread
        one = net[0](x)
        two = net[1](F.avg_pool2d(one, 2))
        three = net[2](F.avg_pool2d(two, 2))
        up = lambda t: F.interpolate(t, scale_factor=2.0, mode="nearest")
        y = net[4](torch.cat([up(net[3](torch.cat([up(three), two], 1))), one], 1))
        return net[5](y) * spread + mean

    def image(self, k: torch.Tensor) -> torch.Tensor:
        x = torch.fft.ifftshift(torch.view_as_complex(k), dim=(2, 3))
        return torch.view_as_real(torch.fft.fftshift(torch.fft.ifft2(x, norm="ortho"), dim=(2, 3)))

    def waves(self, x: torch.Tensor) -> torch.Tensor:
        k = torch.fft.ifftshift(torch.view_as_complex(x.contiguous()), dim=(2, 3))
        return torch.view_as_real(torch.fft.fftshift(torch.fft.fft2(k, norm="ortho"), dim=(2, 3)))

    def multiply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ar, ai = a.unbind(-1)
        br, bi = b.unbind(-1)
        return torch.stack([ar * br - ai * bi, ar * bi + ai * br], -1)

    def forward(self, measured: torch.Tensor, maps: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """`measured` and `maps` of coils have a last dim of real and imaginary parts."""
        dtype = measured.dtype
        measured, maps, mask = measured.float(), maps.float(), mask.float()
        maps = maps / maps.square().sum((1, 4), keepdim=True).sqrt()
        opposite = maps * torch.tensor([1.0, -1.0], device=maps.device)
        current = measured = measured * mask
        for k, net in enumerate(self.nets):
            one = self.multiply(self.image(current), opposite).sum(1)
            one = self.unet(net, one.permute(0, 3, 1, 2).to(dtype)).float().permute(0, 2, 3, 1)
            model = self.waves(self.multiply(one[:, None], maps))
            current = current - self.weight[k].float() * mask * (current - measured) - model
        return self.image(current).square().sum((1, 4)).sqrt()


def scans(batch: int, coils: int = 8, h: int = 160, w: int = 128) -> tuple[torch.Tensor, ...]:
    r = seeded()
    maps = F.interpolate(torch.randn(batch, 2 * coils, 5, 4, generator=r), size=(h, w), mode="bilinear")
    mask = (torch.rand(batch, 1, 1, w, 1, generator=r) < 0.3).float()
    measured = torch.randn(batch, coils, h, w, 2, generator=r)
    return measured, maps.reshape(batch, coils, 2, h, w).permute(0, 1, 3, 4, 2).contiguous(), mask


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "fno_3d": (FourierVolume, normal((40, 40, 20, 10))),
    "spherical_4": (SphericalOperator, normal((26, 90, 180))),
    "transolver_4": (PhysicsSlices, normal((3586, 7))),
    "multivectors_4": (Multivectors, normal((128, 3))),
    "linear_recurrence_4": (LinearRecurrence, normal((512, 32))),
    "max_plus": (MaxPlus, pictures(3, 96, 96)),
    "tab_r": (Retrieval, normal((128, 54))),
    "patch_core": (MemoryBank, pictures(3, 224, 224)),
    "var_net_3": (KSpace, scans),
}
