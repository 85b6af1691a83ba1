"""Detection, segmentation, matching and depth of images, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures


def conv(
    a: int, b: int, size: int = 3, stride: int = 1, activation: Callable[[], nn.Module] = nn.ReLU, groups: int = 1, dilation: int = 1
) -> nn.Sequential:  # fmt: skip
    pad = dilation * (size // 2)
    layer = nn.Conv2d(a, b, size, stride, pad, dilation, groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(b), activation())


def keep_most(module: nn.Module) -> None:
    """Norms give values that ReLUs mostly let through. With norms and ReLUs of mean zero every layer makes the share of
    rounding errors 1.2 times as large, which many layers in a row don't bear."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.ones_(norm.bias)


def resize(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, size=like.shape[2:], mode="bilinear", align_corners=False)


class Halves(nn.Module):
    """C2f of YOLOv8: half of the channels go through a chain of blocks, all results are concatenated."""

    def __init__(self, a: int, b: int, blocks: int = 1, residual: bool = False):
        super().__init__()
        self.first, self.last = conv(a, b, 1, 1, nn.SiLU), conv((2 + blocks) * b // 2, b, 1, 1, nn.SiLU)
        c = b // 2
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(c, c, 3, 1, nn.SiLU), conv(c, c, 3, 1, nn.SiLU)) for _ in range(blocks)
        )
        self.residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """YOLOv8s (Jocher et al., 2023) with the decoding of boxes from distributions of distances."""

    def __init__(self, height: int = 384, width: int = 640, classes: int = 80):
        super().__init__()

        def stage(a: int, b: int, blocks: int) -> nn.Module:
            return nn.Sequential(conv(a, b, 3, 2, nn.SiLU), Halves(b, b, blocks, residual=True))

        self.three = nn.Sequential(conv(3, 32, 3, 2, nn.SiLU), stage(32, 64, 1), stage(64, 128, 2))
        self.four, self.five = stage(128, 256, 2), stage(256, 512, 1)
        self.narrow, self.wide = conv(512, 256, 1, 1, nn.SiLU), conv(1024, 512, 1, 1, nn.SiLU)
        self.up4, self.up3 = Halves(768, 256), Halves(384, 128)
        self.step3, self.step4 = conv(128, 128, 3, 2, nn.SiLU), conv(256, 256, 3, 2, nn.SiLU)
        self.down4, self.down5 = Halves(384, 256), Halves(768, 512)

        def head(c: int, width: int, out: int) -> nn.Module:
            return nn.Sequential(
                conv(c, width, 3, 1, nn.SiLU), conv(width, width, 3, 1, nn.SiLU), nn.Conv2d(width, out, 1)
            )

        self.boxes = nn.ModuleList(head(c, 64, 64) for c in (128, 256, 512))
        self.classes = nn.ModuleList(head(c, 128, classes) for c in (128, 256, 512))
        centres, strides = [], []
        for stride in (8, 16, 32):
            h, w = height // stride, width // stride
            y, x = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            centres.append(torch.stack([x, y]).reshape(2, -1))
            strides.append(torch.full((h * w,), float(stride)))
        self.register_buffer("centres", torch.cat(centres, 1))
        self.register_buffer("strides", torch.cat(strides))
        self.register_buffer("bins", torch.arange(16.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        three = self.three(x)
        four = self.four(three)
        y = self.narrow(self.five(four))
        pooled = [y]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        five = self.wide(torch.cat(pooled, 1))
        y4 = self.up4(torch.cat([F.interpolate(five, scale_factor=2.0), four], 1))
        y3 = self.up3(torch.cat([F.interpolate(y4, scale_factor=2.0), three], 1))
        y4 = self.down4(torch.cat([self.step3(y3), y4], 1))
        levels = [y3, y4, self.down5(torch.cat([self.step4(y4), five], 1))]
        boxes = torch.cat([head(y).flatten(2) for head, y in zip(self.boxes, levels, strict=True)], 2)
        classes = torch.cat([head(y).flatten(2) for head, y in zip(self.classes, levels, strict=True)], 2)
        distances = boxes.reshape(boxes.shape[0], 4, 16, -1).softmax(2)
        low, high = (distances * self.bins[:, None]).sum(2).chunk(2, 1)
        first, last = self.centres - low, self.centres + high
        return torch.cat([(first + last) / 2 * self.strides, (last - first) * self.strides, classes.sigmoid()], 1)


class Separable(nn.Sequential):
    def __init__(self, c: int):
        super().__init__(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1), nn.BatchNorm2d(c))


class WeightedPyramid(nn.Module):
    """BiFPN: levels are added with learned weights, down and up again."""

    def __init__(self, c: int, levels: int = 5):
        super().__init__()
        self.down, self.up = (nn.ModuleList(Separable(c) for _ in range(levels - 1)) for _ in range(2))
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(2)) for _ in range(levels - 1))
        self.up_weights = nn.ParameterList(nn.Parameter(torch.ones(3 - k // 3)) for k in range(levels - 1))

    def fuse(self, weights: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
        w = F.relu(weights)
        w = w / (w.sum() + 1e-4)
        return F.silu(sum(w[k] * x for k, x in enumerate(parts)))

    def forward(self, xs: list[torch.Tensor]) -> list[torch.Tensor]:
        tops = [xs[-1]]
        for k in reversed(range(len(xs) - 1)):
            up = F.interpolate(tops[0], scale_factor=2.0, mode="nearest")
            tops.insert(0, self.down[k](self.fuse(self.weights[k], xs[k], up)))
        outs = [tops[0]]
        for k in range(1, len(xs)):
            parts = [xs[k], tops[k]] if k < len(xs) - 1 else [xs[k]]
            small = F.max_pool2d(outs[-1], 3, 2, 1)
            outs.append(self.up[k - 1](self.fuse(self.up_weights[k - 1], *parts, small)))
        return outs


class EfficientDet(nn.Module):
    """EfficientDet-D0 (Tan et al., 2020): heads share convolutions between levels, but not norms."""

    def __init__(self, c: int = 64, classes: int = 90):
        super().__init__()
        import torchvision.models as models

        features = models.efficientnet_b0(weights=None).features
        self.parts = nn.ModuleList([features[:4], features[4:6], features[6:8]])
        self.laterals = nn.ModuleList(nn.Sequential(nn.Conv2d(a, c, 1), nn.BatchNorm2d(c)) for a in (40, 112, 320))
        self.six = nn.Sequential(nn.Conv2d(320, c, 1), nn.BatchNorm2d(c), nn.MaxPool2d(3, 2, 1))
        self.pyramids = nn.ModuleList(WeightedPyramid(c) for _ in range(3))

        def head(out: int) -> nn.Module:
            convs = nn.ModuleList(
                nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, c, 1)) for _ in range(3)
            )
            norms = nn.ModuleList(nn.ModuleList(nn.BatchNorm2d(c) for _ in range(3)) for _ in range(5))
            last = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), nn.Conv2d(c, 9 * out, 1))
            return nn.ModuleDict({"convs": convs, "norms": norms, "last": last})

        self.heads, self.outs = nn.ModuleList([head(classes), head(4)]), (classes, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        levels = []
        for part, lateral in zip(self.parts, self.laterals, strict=True):
            x = part(x)
            levels.append(lateral(x))
        levels.append(self.six(x))
        levels.append(F.max_pool2d(levels[-1], 3, 2, 1))
        for pyramid in self.pyramids:
            levels = pyramid(levels)
        results = []
        for head, out in zip(self.heads, self.outs, strict=True):
            found = []
            for y, norms in zip(levels, head["norms"], strict=True):
                for layer, norm in zip(head["convs"], norms, strict=True):
                    y = F.silu(norm(layer(y)))
                found.append(head["last"](y).permute(0, 2, 3, 1).reshape(x.shape[0], -1, out))
            results.append(torch.cat(found, 1))
        return results[0].sigmoid(), results[1]


class PyramidPooling(nn.Module):
    """PSPNet (Zhao et al., 2017): ResNet-50 with a dilated last stage, means of 1, 4, 9 and 36 parts of the image."""

    def __init__(self, classes: int = 21):
        super().__init__()
        import torchvision.models as models

        whole = models.resnet50(weights=None, replace_stride_with_dilation=[False, False, True])
        self.backbone = nn.Sequential(*list(whole.children())[:-2])
        self.pools = nn.ModuleList(nn.Sequential(nn.Conv2d(2048, 512, 1), nn.ReLU()) for _ in range(4))
        self.head = nn.Sequential(conv(4096, 512), nn.Conv2d(512, classes, 1))
        keep_most(self)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.backbone(image)
        parts = [x] + [
            resize(layer(F.adaptive_avg_pool2d(x, n)), x) for layer, n in zip(self.pools, (1, 2, 3, 6), strict=True)
        ]
        return resize(self.head(torch.cat(parts, 1)), image)


class Expand(nn.Module):
    """Gather and expansion of BiSeNet V2; with stride 2 two depthwise convolutions and a shortcut of its own."""

    def __init__(self, a: int, b: int, stride: int):
        super().__init__()
        c = 6 * a
        layers = [conv(a, a), conv(a, c, 3, stride, nn.Identity, a)]
        if stride == 2:
            layers.append(conv(c, c, 3, 1, nn.Identity, c))
        self.body = nn.Sequential(*layers, conv(c, b, 1, 1, nn.Identity))
        self.short: nn.Module = nn.Identity()
        if stride == 2:
            self.short = nn.Sequential(conv(a, a, 3, 2, nn.Identity, a), conv(a, b, 1, 1, nn.Identity))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.short(x))


class TwoBranches(nn.Module):
    """BiSeNet V2 (Yu et al., 2021): a branch of details, one of meanings, each gates the other."""

    def __init__(self, classes: int = 19):
        super().__init__()
        layers: list[nn.Module] = []
        for a, b, count in ((3, 64, 2), (64, 64, 3), (64, 128, 3)):
            layers += [conv(a if k == 0 else b, b, 3, 2 if k == 0 else 1) for k in range(count)]
        self.detail = nn.Sequential(*layers)
        self.stem, self.stem_left = conv(3, 16, 3, 2), nn.Sequential(conv(16, 8, 1), conv(8, 16, 3, 2))
        self.stem_last = conv(32, 16)
        stages = (
            (16, 32, 2),
            (32, 32, 1),
            (32, 64, 2),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 128, 1),
            (128, 128, 1),
        )
        self.stages = nn.Sequential(*(Expand(*s) for s in stages))
        self.context, self.after = nn.Sequential(nn.Conv2d(128, 128, 1), nn.ReLU()), conv(128, 128)

        def separable() -> nn.Module:
            return nn.Sequential(conv(128, 128, 3, 1, nn.Identity, 128), nn.Conv2d(128, 128, 1, bias=False))

        self.detail_keep, self.meaning_keep = separable(), separable()
        self.detail_down = nn.Sequential(conv(128, 128, 3, 2, nn.Identity), nn.AvgPool2d(3, 2, 1))
        self.meaning_up = conv(128, 128, 3, 1, nn.Identity)
        self.join = conv(128, 128, 3, 1, nn.Identity)
        self.head = nn.Sequential(conv(128, 1024), nn.Conv2d(1024, classes, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        detail = self.detail(image)
        y = self.stem(image)
        y = self.stages(self.stem_last(torch.cat([self.stem_left(y), F.max_pool2d(y, 3, 2, 1)], 1)))
        y = self.after(y + self.context(y.mean((2, 3), keepdim=True)))
        left = self.detail_keep(detail) * torch.sigmoid(resize(self.meaning_up(y), detail))
        right = self.detail_down(detail) * torch.sigmoid(self.meaning_keep(y))
        return resize(self.head(self.join(left + resize(right, left))), image)


class NestedUnet(nn.Module):
    """A block of U2-Net: a small U-Net whose input is added to its result; pools of odd sizes round up."""

    def __init__(self, levels: int, a: int, mid: int, out: int, pools: bool = True):
        super().__init__()
        self.first, self.pools = conv(a, out), pools
        d = [1 if pools else 2**k for k in range(levels - 1)] + [2 if pools else 8]
        self.down = nn.ModuleList(conv(mid if k else out, mid, dilation=d[k]) for k in range(levels))
        self.up = nn.ModuleList(conv(2 * mid, mid if k else out, dilation=d[k]) for k in reversed(range(levels - 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x = self.first(x)
        skips = []
        for k, layer in enumerate(self.down):
            pool = self.pools and 0 < k < len(self.down) - 1
            x = layer(F.max_pool2d(x, 2, 2, ceil_mode=True) if pool else x)
            skips.append(x)
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            x = layer(torch.cat([resize(x, skip) if self.pools else x, skip], 1))
        return x + first


class SalientObjects(nn.Module):
    """U2-Net, its small form (Qin et al., 2020): U-Nets as blocks of a U-Net, maps of six sizes."""

    def __init__(self) -> None:
        super().__init__()
        kinds = ((7, True), (6, True), (5, True), (4, True), (4, False), (4, False))
        self.down = nn.ModuleList(NestedUnet(n, 64 if k else 3, 16, 64, p) for k, (n, p) in enumerate(kinds))
        self.up = nn.ModuleList(NestedUnet(n, 128, 16, 64, p) for n, p in kinds[4::-1])
        self.sides, self.last = nn.ModuleList(nn.Conv2d(64, 1, 3, padding=1) for _ in kinds), nn.Conv2d(6, 1, 1)
        keep_most(self)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x, skips = image, []
        for k, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2, 2, ceil_mode=True) if k else x)
            skips.append(x)
        found = [x]
        for layer, skip in zip(self.up, skips[-2::-1], strict=True):
            x = layer(torch.cat([resize(x, skip), skip], 1))
            found.append(x)
        maps = [resize(side(y), image) for side, y in zip(self.sides, found, strict=True)]
        return torch.sigmoid(torch.cat([self.last(torch.cat(maps, 1)), *maps], 1))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "yolo_v8s": (Yolo, pictures(3, 384, 640)),
    "efficientdet_d0": (EfficientDet, pictures(3, 512, 512)),
    "pspnet": (PyramidPooling, pictures(3, 281, 377)),
    "bisenet_v2": (TwoBranches, pictures(3, 360, 640)),
    "u2net_small": (SalientObjects, pictures(3, 300, 300)),
}
