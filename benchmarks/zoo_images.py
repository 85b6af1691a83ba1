"""Generation, segmentation and classification of images and volumes, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class Double(nn.Sequential):
    def __init__(self, into: int, out: int, dims: int = 2):
        conv = nn.Conv2d if dims == 2 else nn.Conv3d
        norm: Any = nn.BatchNorm2d if dims == 2 else nn.InstanceNorm3d
        rectify = (lambda: nn.ReLU()) if dims == 2 else (lambda: nn.LeakyReLU(0.01))
        layers: list[nn.Module] = []
        for c in (into, out):
            layers += [conv(c, out, 3, padding=1), norm(out, affine=True), rectify()]
        super().__init__(*layers)


class Unet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with bilinear upsampling; with `dims` = 3 nnU-Net's form (Isensee et al., 2021)."""

    def __init__(self, into: int, width: int, levels: int, classes: int, dims: int = 2):
        super().__init__()
        self.dims = dims
        widths = [min(width * 2**k, 320) if dims == 3 else width * 2**k for k in range(levels)]
        self.encoders = nn.ModuleList(Double(a, b, dims) for a, b in zip([into, *widths[:-1]], widths, strict=True))
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        up = [nn.Identity() if dims == 2 else nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(widths, widths[1:])]
        self.up = nn.ModuleList(up[::-1])
        both = [(a + b if dims == 2 else 2 * a, a) for a, b in zip(widths, widths[1:])]
        self.decoders = nn.ModuleList(Double(a, b, dims) for a, b in both[::-1])
        self.last = (nn.Conv2d if dims == 2 else nn.Conv3d)(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for k, encoder in enumerate(self.encoders):
            x = encoder(x if k == 0 else self.pool(x))
            skips.append(x)
        for up, decoder, skip in zip(self.up, self.decoders, skips[-2::-1], strict=True):
            x = up(x) if self.dims == 3 else F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = decoder(torch.cat([skip, x], 1))
        return self.last(x)


class Modulated(nn.Module):
    """A convolution of StyleGAN2 (Karras et al., 2020): the style scales each sample's weights, which are normalised."""

    def __init__(self, into: int, out: int, size: int, up: bool, demodulate: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, into, size, size) / math.sqrt(into * size * size))
        self.style, self.bias = nn.Linear(512, into), nn.Parameter(torch.zeros(out))
        self.up, self.demodulate = up, demodulate
        blur = torch.tensor([1.0, 3.0, 3.0, 1.0])
        self.register_buffer("blur", (blur[:, None] * blur / 64)[None, None].repeat(out, 1, 1, 1))

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        batch, out = x.shape[0], self.weight.shape[0]
        style = self.style(w) + 1
        x = x * style[:, :, None, None]
        if self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        y = F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2)
        if self.up:
            y = F.conv2d(F.pad(y, (2, 1, 2, 1)), 0.25 * self.blur, groups=out)
        if self.demodulate:
            scale = torch.rsqrt(((self.weight[None] * style[:, None, :, None, None]) ** 2).sum((2, 3, 4)) + 1e-8)
            y = y * scale.view(batch, out, 1, 1)
        return y + self.bias.view(1, -1, 1, 1)


class StyleGan(nn.Module):
    def __init__(self, size: int = 128):
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [nn.Linear(512, 512), nn.LeakyReLU(0.2)]
        self.mapping = nn.Sequential(*layers)
        self.constant = nn.Parameter(torch.randn(1, 512, 4, 4))
        widths = {4: 512, 8: 512, 16: 512, 32: 256, 64: 128, 128: 64}
        self.layers, self.colours = nn.ModuleList([Modulated(512, 512, 3, False)]), nn.ModuleList()
        self.colours.append(Modulated(512, 3, 1, False, False))
        before = 512
        for side in (8, 16, 32, 64, 128):
            if side > size:
                break
            self.layers += [Modulated(before, widths[side], 3, True), Modulated(widths[side], widths[side], 3, False)]
            self.colours.append(Modulated(widths[side], 3, 1, False, False))
            before = widths[side]

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        w = self.mapping(z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8))
        x = self.constant.expand(z.shape[0], -1, -1, -1)
        x = F.leaky_relu(self.layers[0](x, w), 0.2) * math.sqrt(2)
        image = self.colours[0](x, w)
        for k, colour in enumerate(self.colours[1:]):
            for layer in self.layers[2 * k + 1 : 2 * k + 3]:
                x = F.leaky_relu(layer(x, w), 0.2) * math.sqrt(2)
            up = F.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
            image = up + colour(x, w)
        return image


class CycleGan(nn.Module):
    """Generator of CycleGAN (Zhu et al., 2017): reflected borders, instance norms, transposed convolutions."""

    def __init__(self, width: int = 64, blocks: int = 6):
        super().__init__()

        def norm(c: int) -> list[nn.Module]:
            return [nn.InstanceNorm2d(c), nn.ReLU()]

        layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), *norm(width)]
        for k in (1, 2):
            layers += [nn.Conv2d(width * k, width * 2 * k, 3, 2, 1), *norm(width * 2 * k)]
        self.down = nn.Sequential(*layers)
        c = 4 * width
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.ReflectionPad2d(1),
                nn.Conv2d(c, c, 3),
                *norm(c),
                nn.ReflectionPad2d(1),
                nn.Conv2d(c, c, 3),
                norm(c)[0],
            )
            for _ in range(blocks)
        )
        layers = []
        for k in (2, 1):
            layers += [nn.ConvTranspose2d(2 * k * width, k * width, 3, 2, 1, output_padding=1), *norm(k * width)]
        self.up = nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return self.up(x)


class VectorQuantised(nn.Module):
    """VQ-VAE (van den Oord et al., 2017): each position takes the nearest vector of a codebook."""

    def __init__(self, width: int = 128, codes: int = 512, code: int = 64):
        super().__init__()

        def residual() -> nn.Module:
            return nn.Sequential(nn.ReLU(), nn.Conv2d(width, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, width, 1))

        self.first = nn.Sequential(
            nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)
        )  # fmt: skip
        self.encoder, self.decoder = (
            nn.ModuleList(residual() for _ in range(2)),
            nn.ModuleList(residual() for _ in range(2)),
        )
        self.to_code, self.from_code = nn.Conv2d(width, code, 1), nn.Conv2d(code, width, 3, 1, 1)
        self.codes = nn.Embedding(codes, code)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width // 2, 3, 4, 2, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for layer in self.encoder:
            y = y + layer(y)
        y = self.to_code(y).permute(0, 2, 3, 1)
        flat = y.reshape(-1, y.shape[-1])
        w = self.codes.weight
        distances = (flat**2).sum(1, keepdim=True) + (w**2).sum(1) - 2 * flat @ w.t()
        y = self.codes(distances.argmin(1)).view_as(y).permute(0, 3, 1, 2)
        y = self.from_code(y)
        for layer in self.decoder:
            y = y + layer(y)
        return self.up(y)


class Dcgan(nn.Module):
    """Generator of DCGAN (Radford et al., 2016): transposed convolutions from one pixel to 64 x 64."""

    def __init__(self, width: int = 64):
        super().__init__()
        layers: list[nn.Module] = []
        before = 100
        for k, factor in enumerate((8, 4, 2, 1)):
            layers += [nn.ConvTranspose2d(before, factor * width, 4, 1 if k == 0 else 2, int(k > 0), bias=False)]
            layers += [nn.BatchNorm2d(factor * width), nn.ReLU()]
            before = factor * width
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(before, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x[:, :, None, None])


class Pix2Pix(nn.Module):
    """A U-Net of strided and transposed 4 x 4 convolutions (Isola et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 512, 512, 512)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for k, (a, b) in enumerate(zip((3, *widths[:-1]), widths, strict=True)):
            norm = [] if k in (0, len(widths) - 1) else [nn.BatchNorm2d(b)]
            self.down.append(nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), *norm))
        for k in range(len(widths) - 1, 0, -1):
            into = widths[k] * (1 if k == len(widths) - 1 else 2)
            self.up.append(
                nn.Sequential(nn.ConvTranspose2d(into, widths[k - 1], 4, 2, 1), nn.BatchNorm2d(widths[k - 1]))
            )
        self.last = nn.ConvTranspose2d(2 * widths[0], 3, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        for k, layer in enumerate(self.down):
            x = layer(F.leaky_relu(x, 0.2) if k else x)
            skips.append(x)
        skips.pop()
        for layer in self.up:
            x = torch.cat([layer(F.relu(x)), skips.pop()], 1)
        return torch.tanh(self.last(F.relu(x)))


class SimplePose(nn.Module):
    """Heat maps of joints: ResNet-50 and three transposed convolutions (Xiao et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision.models as models

        whole = models.resnet50(weights=None)
        self.backbone = nn.Sequential(*list(whole.children())[:-2])
        layers: list[nn.Module] = []
        for k in range(3):
            layers += [nn.ConvTranspose2d(256 if k else 2048, 256, 4, 2, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
        self.head = nn.Sequential(*layers, nn.Conv2d(256, 17, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


class StyleTransfer(nn.Module):
    """Fast style transfer (Johnson et al., 2016; instance norms, nearest upsampling)."""

    def __init__(self) -> None:
        super().__init__()

        def conv(a: int, b: int, size: int, stride: int = 1) -> list[nn.Module]:
            return [nn.ReflectionPad2d(size // 2), nn.Conv2d(a, b, size, stride)]

        def norm(c: int) -> list[nn.Module]:
            return [nn.InstanceNorm2d(c, affine=True), nn.ReLU()]

        self.down = nn.Sequential(
            *conv(3, 32, 9), *norm(32), *conv(32, 64, 3, 2), *norm(64), *conv(64, 128, 3, 2), *norm(128)
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(*conv(128, 128, 3), *norm(128), *conv(128, 128, 3), norm(128)[0]) for _ in range(5)
        )
        up = [
            nn.Upsample(scale_factor=2),
            *conv(128, 64, 3),
            *norm(64),
            nn.Upsample(scale_factor=2),
            *conv(64, 32, 3),
            *norm(32),
        ]
        self.up = nn.Sequential(*up, *conv(32, 3, 9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        for block in self.blocks:
            x = x + block(x)
        return self.up(x)


class SmallResNet(nn.Module):
    """ResNet-20 for images of 32 x 32 (He et al., 2016)."""

    def __init__(self) -> None:
        super().__init__()

        def conv(a: int, b: int, stride: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)]

        self.first = nn.Sequential(*conv(3, 16), nn.ReLU())
        self.blocks, self.strides = nn.ModuleList(), []
        before = 16
        for width in (16, 32, 64):
            for k in range(3):
                stride = 2 if k == 0 and width > 16 else 1
                self.blocks.append(nn.Sequential(*conv(before, width, stride), nn.ReLU(), *conv(width, width)))
                self.strides.append(stride)
                before = width
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block, stride in zip(self.blocks, self.strides, strict=True):
            y = block(x)
            if stride == 2:
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))
            x = F.relu(x + y)
        return self.last(x.mean((2, 3)))


class BoardNetwork(nn.Module):
    """Policy and value of a position of Go (AlphaZero, Silver et al., 2018), 8 blocks."""

    def __init__(self, width: int = 256, blocks: int = 8):
        super().__init__()

        def conv(a: int, b: int, size: int) -> list[nn.Module]:
            return [nn.Conv2d(a, b, size, padding=size // 2, bias=False), nn.BatchNorm2d(b)]

        self.first = nn.Sequential(*conv(17, width, 3), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(*conv(width, width, 3), nn.ReLU(), *conv(width, width, 3)) for _ in range(blocks)
        )
        self.policy = nn.Sequential(*conv(width, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(722, 362))
        self.value = nn.Sequential(
            *conv(width, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(361, 256), nn.ReLU(), nn.Linear(256, 1), nn.Tanh()
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.policy(x), self.value(x)


class VolumePatches(nn.Module):
    """A transformer over patches of a volume with a decoder of transposed convolutions (UNETR, Hatamizadeh et al., 2022)."""

    def __init__(self, width: int = 384, layers: int = 6, side: int = 64, patch: int = 16):
        super().__init__()
        self.side = side // patch
        self.patches = nn.Conv3d(1, width, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn(1, self.side**3, width))
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        parts: list[nn.Module] = []
        for a, b in ((width, 128), (128, 64), (64, 32), (32, 16)):
            parts += [
                nn.ConvTranspose3d(a, b, 2, 2),
                nn.Conv3d(b, b, 3, padding=1),
                nn.InstanceNorm3d(b),
                nn.LeakyReLU(0.01),
            ]
        self.decoder = nn.Sequential(*parts, nn.Conv3d(16, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        y = self.layers(y).transpose(1, 2)
        return self.decoder(y.reshape(x.shape[0], -1, self.side, self.side, self.side))


class DiffusionTransformer(nn.Module):
    """DiT (Peebles and Xie, 2023), eight layers with heads of 72 elements: time and class scale, shift and gate each part."""

    def __init__(self, c: int = 576, heads: int = 8, layers: int = 8, side: int = 32, patch: int = 2):
        super().__init__()
        self.heads, self.side, self.patch, tokens = heads, side, patch, (side // patch) ** 2
        self.embed = nn.Conv2d(4, c, patch, patch)
        self.positions = nn.Parameter(0.5 * torch.randn(1, tokens, c))
        self.time, self.classes = nn.Sequential(nn.Linear(256, c), nn.SiLU(), nn.Linear(c, c)), nn.Embedding(1001, c)
        self.register_buffer("rates", torch.exp(-math.log(10000) * torch.arange(128) / 128))
        self.modulate = nn.ModuleList(nn.Sequential(nn.SiLU(), nn.Linear(c, 6 * c)) for _ in range(layers))
        self.qkv, self.out = (nn.ModuleList(nn.Linear(c, b) for _ in range(layers)) for b in (3 * c, c))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c), nn.GELU("tanh"), nn.Linear(4 * c, c)) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(c, elementwise_affine=False, eps=1e-6)
        self.last_modulate, self.last = nn.Sequential(nn.SiLU(), nn.Linear(c, 2 * c)), nn.Linear(c, patch * patch * 8)

    def forward(self, x: torch.Tensor, t: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        angles = t[:, None] * self.rates
        condition = self.time(torch.cat([torch.cos(angles), torch.sin(angles)], -1)) + self.classes(label)
        x = self.embed(x).flatten(2).transpose(1, 2) + self.positions
        for modulate, qkv, out, mlp in zip(self.modulate, self.qkv, self.out, self.mlps, strict=True):
            shift1, scale1, gate1, shift2, scale2, gate2 = modulate(condition).chunk(6, 1)
            y = self.norm(x) * (1 + scale1.unsqueeze(1)) + shift1.unsqueeze(1)
            q, k, v = (
                qkv(y).reshape(batch, -1, 3, self.heads, x.shape[2] // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            )
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, x.shape[2])
            x = x + gate1.unsqueeze(1) * out(y)
            y = self.norm(x) * (1 + scale2.unsqueeze(1)) + shift2.unsqueeze(1)
            x = x + gate2.unsqueeze(1) * mlp(y)
        shift, scale = self.last_modulate(condition).chunk(2, 1)
        y = self.last(self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
        n, p = self.side // self.patch, self.patch
        y = y.reshape(batch, n, n, p, p, 8)
        return torch.einsum("nhwpqc->nchpwq", y).reshape(batch, 8, self.side, self.side)


def noisy(batch: int) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return (
        torch.randn(batch, 4, 32, 32, generator=r),
        20 * torch.rand(batch, generator=r),
        torch.randint(0, 1001, (batch,), generator=r),
    )


class Capsules(nn.Module):
    """Capsule network (Sabour et al., 2017): 1152 vectors vote for 10, three rounds of routing, a decoder of the votes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 256, 9), nn.Conv2d(256, 256, 9, 2)
        self.votes = nn.Parameter(0.3 * torch.randn(10, 1152, 16, 8))
        self.decoder = nn.Sequential(
            nn.Linear(160, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 784), nn.Sigmoid()
        )
        for layer in self.decoder[:5:2]:
            nn.init.xavier_normal_(layer.weight, 2.5)  # votes are short vectors

    def squash(self, x: torch.Tensor) -> torch.Tensor:
        squares = (x * x).sum(-1, keepdim=True)
        return squares / (1 + squares) * x / torch.sqrt(squares + 1e-6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = x.shape[0]
        u = self.second(F.relu(self.first(x))).reshape(batch, 32, 8, 36).permute(0, 1, 3, 2).reshape(batch, 1152, 8)
        votes = torch.einsum("jnoi,bni->bjno", self.votes, self.squash(u))
        logits = torch.zeros(batch, 10, 1152, dtype=x.dtype, device=x.device)
        for k in range(3):
            weights = logits.softmax(1)
            v = self.squash((weights.unsqueeze(-1) * votes).sum(2))
            if k < 2:
                logits = logits + torch.matmul(votes, v.unsqueeze(-1)).squeeze(-1)
        length = v.norm(dim=-1)
        mask = (length >= length.amax(1, keepdim=True)).to(x.dtype)
        return length, self.decoder((v * mask.unsqueeze(-1)).reshape(batch, -1))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "unet": (lambda: Unet(3, 64, 5, 2), normal((3, 256, 256))),
    "unet_3d": (lambda: Unet(1, 32, 5, 3, dims=3), normal((1, 64, 64, 64))),
    "stylegan2_128": (StyleGan, normal((512,))),
    "cyclegan": (CycleGan, normal((3, 256, 256))),
    "vq_vae": (VectorQuantised, normal((3, 128, 128))),
    "unetr": (VolumePatches, normal((1, 64, 64, 64))),
    "dcgan": (Dcgan, normal((100,))),
    "pix2pix": (Pix2Pix, normal((3, 256, 256))),
    "simple_pose": (SimplePose, normal((3, 256, 192))),
    "style_transfer": (StyleTransfer, normal((3, 256, 256))),
    "resnet20_32": (SmallResNet, normal((3, 32, 32))),
    "go_8": (BoardNetwork, normal((17, 19, 19))),
    "dit_8": (DiffusionTransformer, noisy),
    "capsules": (Capsules, normal((1, 28, 28))),
}
