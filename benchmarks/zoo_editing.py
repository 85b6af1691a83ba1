"""Editing and compression of images, for the zoo: mattes, holes, kernels for each pixel, labels as images, lookup tables, codes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded


class ConvGru(nn.Module):
    """A GRU of convolutions over half of the channels."""

    def __init__(self, c: int):
        super().__init__()
        self.gates = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.new = nn.Conv2d(2 * c, c, 3, padding=1)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        r, z = torch.sigmoid(self.gates(torch.cat([x, h], 1))).chunk(2, 1)
        c = torch.tanh(self.new(torch.cat([x, r * h], 1)))
        return (1 - z) * h + z * c


class Matting(nn.Module):
    """Robust video matting (Lin et al., 2022), fewer blocks: features of a quarter of the frame, a recurrent decoder with states in and
    out, and a guided filter that brings the matte to full size."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        body = torchvision.models.mobilenet_v3_large(weights=None).features
        self.stages = nn.ModuleList([body[:2], body[2:4], body[4:7], body[7:9]])
        self.aspp1 = nn.Sequential(nn.Conv2d(80, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU())
        self.aspp2 = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(80, 128, 1, bias=False), nn.Sigmoid())
        widths, skips = (128, 80, 40, 32), (40, 24, 16)
        self.units = nn.ModuleList(ConvGru(w // 2) for w in widths)
        self.ups = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a + s + 3, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, s, b in zip(widths, skips, widths[1:], strict=False)
        )
        self.last = nn.Sequential(nn.Conv2d(35, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.out, self.hidden = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 16, 1)

    def remember(self, k: int, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = x.chunk(2, 1)
        b = self.units[k](b, state)
        return torch.cat([a, b], 1), b

    def filter(
        self, small: torch.Tensor, guide: torch.Tensor, image: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """The linear model of value by guide in windows of 3 x 3, at full size."""
        box = lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        mean_x, mean_y = box(guide), box(value)
        covariance = box(guide * value) - mean_x * mean_y
        variance = box(guide * guide) - mean_x * mean_x
        a = covariance / (variance + 1e-3)
        b = mean_y - a * mean_x
        up = lambda x: F.interpolate(x, size=image.shape[2:], mode="bilinear", align_corners=False)
        return up(a) * image + up(b)

    def forward(
        self, image: torch.Tensor, one: torch.Tensor, two: torch.Tensor, three: torch.Tensor, four: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        states = (one, two, three, four)
        small = F.interpolate(image, scale_factor=0.5, mode="bilinear", align_corners=False)
        pools = [small]
        for _ in range(3):
            pools.append(F.avg_pool2d(pools[-1], 2, 2))
        seen, x = [], small
        for stage in self.stages:
            x = stage(x)
            seen.append(x)
        x = self.aspp1(x) * self.aspp2(x)
        x, state = self.remember(0, x, states[0])
        kept = [state]
        for k, up in enumerate(self.ups):
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = up(torch.cat([x, seen[2 - k], pools[3 - k]], 1))
            x, state = self.remember(k + 1, x, states[k + 1])
            kept.append(state)
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = self.last(torch.cat([x, small], 1))
        colour, matte = self.out(x).split([3, 1], 1)
        full = self.filter(x, small, image, colour)
        grey, grey_small = image.mean(1, keepdim=True), small.mean(1, keepdim=True)
        matte = self.filter(x, grey_small, grey, matte)
        return (full + image).clamp(0, 1), matte.clamp(0, 1), *kept


def frame(batch: int, h: int = 384, w: int = 512) -> tuple[torch.Tensor, ...]:
    r = seeded()
    (image,) = pictures(3, h, w)(batch)
    sizes = ((64, 32), (40, 16), (20, 8), (16, 4))
    states = (torch.randn(batch, c, h // s, w // s, generator=r).tanh() for c, s in sizes)
    return torch.sigmoid(image), *states


class FourierConv(nn.Module):
    """Fast Fourier convolution (LaMa): a local part, and a global one of a 1 x 1 convolution between Fourier transforms."""

    def __init__(self, c: int, share: float = 0.75):
        super().__init__()
        g = int(c * share)
        self.sizes = (c - g, g)
        pad = {"padding": 1, "padding_mode": "reflect", "bias": False}
        self.ll, self.lg, self.gl = (
            nn.Conv2d(c - g, c - g, 3, **pad),
            nn.Conv2d(c - g, g, 3, **pad),
            nn.Conv2d(g, c - g, 3, **pad),
        )
        half = g // 2
        norm = lambda n: nn.Sequential(nn.BatchNorm2d(n), nn.ReLU())
        self.into = nn.Sequential(nn.Conv2d(g, half, 1, bias=False), *norm(half))
        self.waves = nn.Sequential(nn.Conv2d(2 * half, 2 * half, 1, bias=False), *norm(2 * half))
        self.back = nn.Conv2d(half, g, 1, bias=False)
        self.norms = nn.ModuleList((norm(c - g), norm(g)))

    def spectral(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        f = torch.view_as_real(torch.fft.rfft2(x.float(), norm="ortho"))
        batch, c, h, w, _ = f.shape
        f = f.permute(0, 1, 4, 2, 3).reshape(batch, 2 * c, h, w)
        f = self.waves(f.to(x.dtype)).float()
        f = f.reshape(batch, c, 2, h, w).permute(0, 1, 3, 4, 2).contiguous()
        y = torch.fft.irfft2(torch.view_as_complex(f), s=x.shape[2:], norm="ortho").to(x.dtype)
        return self.back(x + y)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.split(self.sizes, 1)
        local = self.ll(a) + self.gl(b)
        whole = self.lg(a) + self.spectral(b)
        return torch.cat([self.norms[0](local), self.norms[1](whole)], 1)


class Lama(nn.Module):
    """LaMa (Suvorov et al., 2022), half width and four of its nine blocks: holes are filled by convolutions of Fourier transforms."""

    def __init__(self, c: int = 32, blocks: int = 4):
        super().__init__()
        norm = lambda n: [nn.BatchNorm2d(n), nn.ReLU()]
        down: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(4, c, 7, bias=False), *norm(c)]
        for k in range(3):
            down += [nn.Conv2d(c << k, 2 * c << k, 3, 2, 1, bias=False), *norm(2 * c << k)]
        self.down = nn.Sequential(*down)
        self.blocks = nn.ModuleList(nn.Sequential(FourierConv(8 * c), FourierConv(8 * c)) for _ in range(blocks))
        up: list[nn.Module] = []
        for k in range(3, 0, -1):
            layer = nn.ConvTranspose2d(c << k, c << (k - 1), 3, 2, 1, output_padding=1, bias=False)
            up += [layer, *norm(c << (k - 1))]
        self.up = nn.Sequential(*up, nn.ReflectionPad2d(3), nn.Conv2d(c, 3, 7), nn.Sigmoid())

    def forward(self, image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.down(torch.cat([image * (1 - mask), mask], 1))
        for block in self.blocks:
            x = x + block(x)
        return mask * self.up(x) + (1 - mask) * image


def holes(batch: int, h: int = 240, w: int = 320) -> tuple[torch.Tensor, ...]:
    (image,) = pictures(3, h, w)(batch)
    (mask,) = pictures(1, h, w)(batch)
    return torch.sigmoid(image), (mask > 0.5).float()


class KernelPrediction(nn.Module):
    """Burst denoising by kernels for each pixel (Mildenhall et al., 2018): 5 x 5 weights for each of eight frames."""

    def __init__(self, frames: int = 8, size: int = 5, c: int = 32):
        super().__init__()
        self.size = size
        conv = lambda a, b: nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
        )
        self.one, self.two, self.three = conv(frames + 1, c), conv(c, 2 * c), conv(2 * c, 4 * c)
        self.up1, self.up2 = conv(6 * c, 2 * c), conv(3 * c, c)
        self.kernels = nn.Conv2d(c, frames * size * size, 1)

    def forward(self, burst: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        batch, frames, h, w = burst.shape
        one = self.one(torch.cat([burst, noise.expand(-1, -1, h, w)], 1))
        two = self.two(F.avg_pool2d(one, 2))
        three = self.three(F.avg_pool2d(two, 2))
        up = lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        x = self.up2(torch.cat([up(self.up1(torch.cat([up(three), two], 1))), one], 1))
        kernels = self.kernels(x).reshape(batch, frames, self.size**2, h, w).softmax(2)
        windows = F.unfold(burst, self.size, padding=self.size // 2).reshape(batch, frames, self.size**2, h, w)
        return (kernels * windows).sum(2).mean(1, keepdim=True)


class SpadeBlock(nn.Module):
    """Two convolutions whose instance norms are scaled and shifted by convolutions of the labels."""

    def __init__(self, a: int, b: int, labels: int, hidden: int = 64):
        super().__init__()
        c = min(a, b)
        self.convs = nn.ModuleList((nn.Conv2d(a, c, 3, padding=1), nn.Conv2d(c, b, 3, padding=1)))
        self.short = nn.Conv2d(a, b, 1, bias=False)
        self.read = nn.ModuleList(nn.Conv2d(labels, hidden, 3, padding=1) for _ in range(3))
        self.scale = nn.ModuleList(nn.Conv2d(hidden, n, 3, padding=1) for n in (a, c, a))
        self.shift = nn.ModuleList(nn.Conv2d(hidden, n, 3, padding=1) for n in (a, c, a))

    def norm(self, k: int, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        labels = F.relu(self.read[k](F.interpolate(labels, size=x.shape[2:], mode="nearest")))
        return F.instance_norm(x) * (1 + self.scale[k](labels)) + self.shift[k](labels)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = self.convs[0](F.leaky_relu(self.norm(0, x, labels), 0.2))
        y = self.convs[1](F.leaky_relu(self.norm(1, y, labels), 0.2))
        return self.short(self.norm(2, x, labels)) + y


class Gaugan(nn.Module):
    """GauGAN's generator (Park et al., 2019), half width: images of 256 x 256 from a map of 35 labels, given as numbers."""

    def __init__(self, labels: int = 35, c: int = 32):
        super().__init__()
        self.labels = labels
        self.first = nn.Conv2d(labels, 16 * c, 3, padding=1)
        widths = (16, 16, 8, 4, 2, 1)
        self.blocks = nn.ModuleList(
            SpadeBlock(a * c, b * c, labels) for a, b in zip((16, *widths), widths, strict=False)
        )
        self.last = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        kinds = torch.arange(self.labels, device=numbers.device).view(1, -1, 1, 1)
        labels = (numbers[:, None] == kinds).to(self.last.weight.dtype)
        x = self.first(F.interpolate(labels, size=(8, 8), mode="nearest"))
        for k, block in enumerate(self.blocks):
            x = block(x, labels)
            if k < 5:
                x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return torch.tanh(self.last(F.leaky_relu(x, 0.2)))


def maps(batch: int) -> tuple[torch.Tensor, ...]:
    coarse = torch.randint(0, 35, (batch, 16, 16), generator=seeded())
    return (coarse.repeat_interleave(16, 1).repeat_interleave(16, 2),)


class Divisive(nn.Module):
    """Generalised divisive normalisation and its inverse."""

    def __init__(self, c: int, inverse: bool = False):
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.1 * torch.eye(c) + 0.01 * torch.rand(c, c)), nn.Parameter(torch.ones(c))
        self.inverse = inverse

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        power = F.conv2d(x * x, self.weight[:, :, None, None], self.bias)
        return x * (power.sqrt() if self.inverse else power.rsqrt())


class Hyperprior(nn.Module):
    """Image compression with a scale hyperprior (Balle et al., 2018): rounded codes, their likelihoods and the image."""

    def __init__(self, c: int = 128, m: int = 192):
        super().__init__()
        down = lambda a, b: nn.Conv2d(a, b, 5, 2, 2)
        up = lambda a, b: nn.ConvTranspose2d(a, b, 5, 2, 2, output_padding=1)
        self.analyse = nn.Sequential(
            down(3, c), Divisive(c), down(c, c), Divisive(c), down(c, c), Divisive(c), down(c, m)
        )
        self.synthesise = nn.Sequential(
            up(m, c), Divisive(c, True), up(c, c), Divisive(c, True), up(c, c), Divisive(c, True), up(c, 3)
        )
        self.hyper = nn.Sequential(nn.Conv2d(m, c, 3, 1, 1), nn.ReLU(), down(c, c), nn.ReLU(), down(c, c))
        self.scales = nn.Sequential(up(c, c), nn.ReLU(), up(c, c), nn.ReLU(), nn.Conv2d(c, m, 3, 1, 1), nn.Softplus())
        self.medians = nn.Parameter(torch.zeros(1, c, 1, 1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = 4 * self.analyse(image)
        z = self.hyper(y.abs())
        scale = self.scales(torch.round(z - self.medians) + self.medians).clamp(min=0.11)
        codes = torch.round(y)
        size = codes.abs()
        upper = 0.5 * torch.erfc((size - 0.5) / scale * 0.5**0.5)
        lower = 0.5 * torch.erfc((size + 0.5) / scale * 0.5**0.5)
        bits = -(upper - lower).clamp(min=1e-6).log2().sum((1, 2, 3)) / 1000
        return self.synthesise(codes / 4).clamp(-2, 2), bits


class ColourTable(nn.Module):
    """Image-adaptive lookup tables of colours (Zeng et al., 2020): a mixture of three, sampled trilinearly for each pixel."""

    def __init__(self, size: int = 33, tables: int = 3):
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in ((3, 16), (16, 32), (32, 64), (64, 128), (128, 128)):
            layers += [nn.Conv2d(a, b, 3, 2, 1), nn.LeakyReLU(0.2), nn.InstanceNorm2d(b, affine=True)]
        self.weigh = nn.Sequential(*layers[:-1], nn.Conv2d(128, tables, 8))
        self.weigh[-1].bias.data = torch.tensor([1.0, 0.3, -0.3])  # as trained: of the first table most
        steps = torch.linspace(0, 1, size)
        blue, green, red = torch.meshgrid(steps, steps, steps, indexing="ij")
        same = torch.stack([red, green, blue])
        self.tables = nn.Parameter(same + 0.3 * torch.rand(tables, 3, size, size, size) * same)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        small = F.interpolate(image, size=(256, 256), mode="bilinear", align_corners=False)
        weights = self.weigh(small).flatten(1)
        table = torch.einsum("bt,tcxyz->bcxyz", weights, self.tables)
        places = (2 * image - 1).permute(0, 2, 3, 1)[:, None]
        return F.grid_sample(table, places, padding_mode="border", align_corners=True).squeeze(2)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "video_matting": (Matting, frame),
    "lama_4": (Lama, holes),
    "kernel_prediction": (KernelPrediction, lambda batch: (*pictures(8, 180, 236)(batch), *normal((1, 1, 1))(batch))),
    "gaugan": (Gaugan, maps),
    "hyperprior": (Hyperprior, pictures(3, 256, 320)),
    "colour_table": (ColourTable, lambda batch: (torch.sigmoid(pictures(3, 480, 720)(batch)[0]),)),
}
