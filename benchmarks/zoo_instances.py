"""Instances of images, for the zoo: masks by dynamic kernels, heads of regions, peaks of heat maps, with their selection in the graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures


def conv(a: int, b: int, stride: int = 1, size: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(a, b, size, stride, size // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU())


def distinct(layer: nn.Conv2d) -> nn.Conv2d:
    """Scores so far apart that rounding does not change their order much."""
    nn.init.normal_(layer.weight, std=4 * layer.weight[0].numel() ** -0.5)
    return layer


class Pyramid(nn.Module):
    """ResNet-18 with a feature pyramid: strides 4 to 32."""

    def __init__(self, c: int = 256, levels: int = 4):
        super().__init__()
        import torchvision

        self.body = torchvision.models.resnet18(weights=None)
        self.body.fc = nn.Identity()
        self.levels = levels
        self.side = nn.ModuleList(nn.Conv2d(a, c, 1) for a in (64, 128, 256, 512)[-levels:])
        self.out = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(levels))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        b = self.body
        x = b.maxpool(b.relu(b.bn1(b.conv1(x))))
        seen = []
        for layer in (b.layer1, b.layer2, b.layer3, b.layer4):
            x = layer(x)
            seen.append(x)
        seen = [side(y) for side, y in zip(self.side, seen[-self.levels :], strict=True)]
        for k in range(self.levels - 2, -1, -1):
            seen[k] = seen[k] + F.interpolate(seen[k + 1], size=seen[k].shape[2:], mode="nearest")
        return [out(y) for out, y in zip(self.out, seen, strict=True)]


class Solo(nn.Module):
    """SOLOv2 (Wang et al., 2020), two levels: cells predict kernels for masks, the best 100 are compared pairwise (matrix NMS)."""

    def __init__(self, c: int = 128, classes: int = 80, grids: tuple[int, ...] = (36, 24), best: int = 100):
        super().__init__()
        self.pyramid, self.grids, self.best, self.classes = Pyramid(c, 4), grids, best, classes
        norm = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.GroupNorm(16, b), nn.ReLU())
        self.mask = nn.Sequential(norm(c + 2, c), norm(c, c), nn.Conv2d(c, c, 1))
        self.kernel = nn.Sequential(norm(c + 2, c), norm(c, c), nn.Conv2d(c, c, 3, padding=1))
        self.category = nn.Sequential(norm(c, c), norm(c, c), nn.Conv2d(c, classes, 3, padding=1))
        distinct(self.category[-1])

    def place(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, h, w = x.shape
        rows = torch.linspace(-1, 1, h, device=x.device, dtype=x.dtype).view(1, 1, h, 1).expand(batch, 1, h, w)
        columns = torch.linspace(-1, 1, w, device=x.device, dtype=x.dtype).view(1, 1, 1, w).expand(batch, 1, h, w)
        return torch.cat([x, columns, rows], 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        levels = self.pyramid(image)
        features = self.mask(self.place(levels[0]))
        kernels, scores = [], []
        for x, grid in zip(levels[2:], self.grids, strict=True):
            x = F.interpolate(self.place(x), size=(grid, grid), mode="bilinear", align_corners=False)
            kernels.append(self.kernel(x).flatten(2))
            chance = torch.sigmoid(self.category(x[:, :-2]))
            peak = F.max_pool2d(chance, 2, 1, 1)[:, :, :-1, :-1] == chance
            scores.append((chance * peak).flatten(2))
        score, which = torch.cat(scores, 2).transpose(1, 2).flatten(1).topk(self.best)
        cell, kind = which // self.classes, which % self.classes
        kernel = torch.cat(kernels, 2).transpose(1, 2)
        kernel = kernel.gather(1, cell[..., None].expand(-1, -1, kernel.shape[2]))
        soft = torch.sigmoid((kernel @ features.flatten(2)) / kernel.shape[2] ** 0.5)
        hard = (soft > 0.5).to(soft.dtype)
        area = hard.sum(2).clamp(min=1.0)
        score = score * (soft * hard).sum(2) / area
        both = hard @ hard.transpose(1, 2)
        overlap = both / (area[:, :, None] + area[:, None] - both)
        overlap = torch.where(kind[:, :, None] == kind[:, None], overlap, 0.0).triu(1)
        worst = overlap.amax(1)
        decay = torch.exp(-2 * (overlap**2 - worst[:, :, None] ** 2)).amin(1)
        return score * decay, soft.mean(2)


class DynamicHead(nn.Module):
    """A stage of Sparse R-CNN: proposals attend to one another, and each makes two matrices that its region is multiplied by."""

    def __init__(self, c: int = 256, inner: int = 64, side: int = 7, classes: int = 80):
        super().__init__()
        self.c, self.inner = c, inner
        self.attention = nn.MultiheadAttention(c, 8, batch_first=True)
        self.make = nn.Linear(c, 2 * c * inner)
        self.norms = nn.ModuleList(nn.LayerNorm(n) for n in (c, inner, c, c, c, c))
        self.flat = nn.Linear(side * side * c, c)
        self.mlp = nn.Sequential(nn.Linear(c, 2048), nn.ReLU(), nn.Linear(2048, c))
        self.kind = nn.Sequential(nn.Linear(c, c, bias=False), nn.LayerNorm(c), nn.ReLU(), nn.Linear(c, classes))
        self.box = nn.Sequential(nn.Linear(c, c, bias=False), nn.LayerNorm(c), nn.ReLU(), nn.Linear(c, 4))

    def forward(self, regions: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, count, c = x.shape
        x = self.norms[0](x + self.attention(x, x, x, need_weights=False)[0])
        made = self.make(x).reshape(batch * count, 2, c * self.inner)
        one, two = made[:, 0].view(-1, c, self.inner), made[:, 1].view(-1, self.inner, c)
        y = regions.flatten(2).transpose(1, 2)
        y = F.relu(self.norms[1](torch.bmm(y, one) / 4))
        y = F.relu(self.norms[2](torch.bmm(y, two) / 4))
        y = F.relu(self.norms[3](self.flat(y.flatten(1)))).reshape(batch, count, c)
        x = self.norms[4](x + y)
        x = self.norms[5](x + self.mlp(x))
        return x, self.kind(x), self.box(x)


class SparseRcnn(nn.Module):
    """Sparse R-CNN (Sun et al., 2021): 100 learnt boxes, regions of one level by RoIAlign, two of six stages."""

    def __init__(self, boxes: int = 100, stages: int = 2, c: int = 256):
        super().__init__()
        self.pyramid = Pyramid(c, 3)
        self.boxes = nn.Parameter(0.1 + 0.8 * torch.rand(boxes, 4))
        self.features = nn.Parameter(torch.randn(boxes, c))
        self.heads = nn.ModuleList(DynamicHead(c) for _ in range(stages))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torchvision.ops import roi_align

        level = self.pyramid(image)[0]
        batch, _, h, w = level.shape
        scale = torch.tensor([8.0 * w, 8.0 * h], dtype=level.dtype, device=level.device)
        boxes = self.boxes.expand(batch, -1, -1)
        x = self.features.expand(batch, -1, -1)
        count = x.shape[1]
        owner = torch.arange(batch, device=level.device, dtype=level.dtype)[:, None, None].expand(-1, count, 1)
        kinds = boxes[..., :1]
        for head in self.heads:
            centre, size = boxes[..., :2] * scale, boxes[..., 2:] * scale / 4
            corners = torch.cat([owner, centre - size / 2, centre + size / 2], 2).flatten(0, 1)
            regions = roi_align(level, corners, 7, 0.125, 2, True)
            x, kinds, change = head(regions, x)
            boxes = torch.cat(
                [boxes[..., :2] + 0.02 * change[..., :2], boxes[..., 2:] * (0.2 * change[..., 2:]).exp()], 2
            )
        return kinds, boxes


class CenterNet(nn.Module):
    """CenterNet (Zhou et al., 2019): ResNet-18, three transposed convolutions, and the 100 highest peaks of the heat maps with
    their sizes, offsets and 17 joints, each moved to the nearest peak of its own map."""

    def __init__(self, classes: int = 1, joints: int = 17, best: int = 100):
        super().__init__()
        self.body, self.best, self.joints = Pyramid(64, 1).body, best, joints
        ups: list[nn.Module] = []
        for a, b in ((512, 256), (256, 128), (128, 64)):
            ups += [conv(a, b), nn.ConvTranspose2d(b, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.up = nn.Sequential(*ups)
        head = lambda n: nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), distinct(nn.Conv2d(64, n, 1)))
        self.heat, self.size, self.offset = head(classes), head(2), head(2)
        self.joint, self.joint_heat = head(2 * joints), head(joints)

    def peaks(self, heat: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        heat = torch.sigmoid(heat)
        kept = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        return kept.flatten(2).topk(count)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = self.body
        x = b.maxpool(b.relu(b.bn1(b.conv1(image))))
        x = self.up(b.layer4(b.layer3(b.layer2(b.layer1(x)))))
        w = x.shape[3]

        def take(values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            values = values.flatten(2).transpose(1, 2)
            return values.gather(1, at[..., None].expand(-1, -1, values.shape[2]))

        score, at = (t[:, 0] for t in self.peaks(self.heat(x), self.best))
        centre = torch.stack([at % w, at // w], 2).to(x.dtype)
        size, offset = take(self.size(x), at), take(self.offset(x), at)
        boxes = torch.cat([centre + offset - size / 2, centre + offset + size / 2], 2)
        guess = take(self.joint(x), at).unflatten(2, (self.joints, 2)) + centre[:, :, None]
        chance, spot = self.peaks(self.joint_heat(x), self.best)
        spots = torch.stack([spot % w, spot // w], 3).to(x.dtype).transpose(1, 2)
        gap = (guess[:, :, None] - spots[:, None]).float().square().sum(-1)
        near, which = gap.min(2)
        found = spots.gather(1, which[..., None].expand(-1, -1, -1, 2))
        sure = chance.transpose(1, 2).gather(1, which) > 0.1
        kept = sure & (near < 64)
        return score, boxes, torch.where(kept[..., None], found, guess)


class IntegralPose(nn.Module):
    """Integral pose regression (Sun et al., 2018): a softmax over 48 x 48 x 48 cells for each of 18 joints, and its mean place."""

    def __init__(self, joints: int = 18, depth: int = 48):
        super().__init__()
        self.body, self.joints, self.depth = Pyramid(64, 1).body, joints, depth
        ups: list[nn.Module] = []
        for a in (512, 256, 256):
            ups += [nn.ConvTranspose2d(a, 256, 4, 2, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
        self.up = nn.Sequential(*ups, distinct(nn.Conv2d(256, joints * depth, 1)))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        b = self.body
        x = b.maxpool(b.relu(b.bn1(b.conv1(image))))
        x = self.up(b.layer4(b.layer3(b.layer2(b.layer1(x)))))
        batch, _, h, w = x.shape
        heat = x.reshape(batch, self.joints, -1).softmax(2).reshape(batch, self.joints, self.depth, h, w)
        sums = heat.sum((2, 3)), heat.sum((2, 4)), heat.sum((3, 4))
        places = [
            (s * torch.arange(s.shape[2], device=x.device, dtype=s.dtype)).sum(2) / s.shape[2] - 0.5 for s in sums
        ]
        return torch.stack(places, 2)


class Proposals(nn.Module):
    """The first stage of Faster R-CNN with NMS: boxes of 3 anchors a place, the best 300 that overlap less than 0.7, and the
    classes of regions of their 100 best."""

    def __init__(self, c: int = 256, classes: int = 21):
        super().__init__()
        self.pyramid = Pyramid(c, 2)
        self.shared, self.score, self.change = (
            nn.Conv2d(c, c, 3, padding=1),
            distinct(nn.Conv2d(c, 3, 1)),
            nn.Conv2d(c, 12, 1),
        )
        self.head = nn.Sequential(nn.Linear(c * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.kind, self.box = nn.Linear(1024, classes), nn.Linear(1024, 4 * classes)
        sizes = torch.tensor([[32.0, 64.0], [64.0, 64.0], [64.0, 32.0]])
        y, x = torch.meshgrid(torch.arange(20.0), torch.arange(24.0), indexing="ij")
        centres = 16 * torch.stack([x, y], -1).reshape(-1, 1, 2) + 8
        self.register_buffer(
            "anchors", torch.cat([centres.expand(-1, 3, -1), sizes.expand(480, -1, -1)], 2).reshape(-1, 4)
        )

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from torchvision.ops import nms, roi_align

        level = self.pyramid(image)[0]
        batch = level.shape[0]
        x = F.relu(self.shared(level))
        score = self.score(x).permute(0, 2, 3, 1).flatten(1)
        change = self.change(x).permute(0, 2, 3, 1).reshape(batch, -1, 4).float()
        centre = self.anchors[:, :2] + change[..., :2] * self.anchors[:, 2:]
        size = self.anchors[:, 2:] * change[..., 2:].clamp(max=4.0).exp()
        boxes = torch.cat([centre - size / 2, centre + size / 2], 2).clamp(0, 384)
        best, which = score.float().topk(300)
        boxes = boxes.gather(1, which[..., None].expand(-1, -1, 4)).flatten(0, 1)
        owner = torch.arange(batch, device=x.device)[:, None].expand(-1, 300).flatten()
        # Boxes of different images lie apart.
        kept = nms(boxes + 500.0 * owner[:, None], best.flatten(), 0.7)
        kept = torch.cat([kept, kept.new_zeros(100)])[torch.arange(100, device=x.device)]
        regions = torch.cat([owner[kept, None].to(boxes.dtype), boxes[kept]], 1).to(level.dtype)
        y = self.head(roi_align(level, regions, 7, 1 / 16, 2, True).flatten(1))
        return self.kind(y), self.box(y)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "solo_v2": (Solo, pictures(3, 320, 448)),
    "sparse_rcnn_2": (SparseRcnn, pictures(3, 320, 448)),
    "center_net": (CenterNet, pictures(3, 384, 384)),
    "integral_pose": (IntegralPose, pictures(3, 192, 192)),
    "faster_rcnn": (Proposals, pictures(3, 320, 384)),
}
