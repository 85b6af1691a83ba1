"""Vision by attention to chosen places, for the zoo: areas, deformable samples of levels and cameras, tracks, prompts, matches,
text lines, matrix factors and scans in four directions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures, seeded


class Conv(nn.Sequential):
    def __init__(self, a: int, b: int, k: int = 1, s: int = 1, groups: int = 1, act: bool = True):
        super().__init__(
            nn.Conv2d(a, b, k, s, k // 2, groups=groups, bias=False),
            nn.BatchNorm2d(b),
            nn.SiLU() if act else nn.Identity(),
        )


class AreaAttention(nn.Module):
    """Attention within four bands of rows of the image; positions by a depthwise 7 x 7 convolution of the values."""

    def __init__(self, c: int, heads: int, areas: int):
        super().__init__()
        self.heads, self.areas = heads, areas
        self.qkv, self.out, self.place = (
            Conv(c, 3 * c, act=False),
            Conv(c, c, act=False),
            Conv(c, c, 7, groups=c, act=False),
        )
        self.mlp = nn.Sequential(Conv(c, 2 * c), Conv(2 * c, c, act=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        qkv = self.qkv(x).flatten(2).transpose(1, 2).reshape(b * self.areas, h * w // self.areas, 3 * c)
        parts = qkv.view(b * self.areas, -1, self.heads, 3 * c // self.heads).permute(0, 2, 3, 1)
        q, k, v = parts.split([c // self.heads] * 3, 2)
        weights = (q.transpose(2, 3) @ k * (c // self.heads) ** -0.5).softmax(-1)
        y = v @ weights.transpose(2, 3)
        image = lambda t: t.permute(0, 3, 1, 2).reshape(b, h, w, c).permute(0, 3, 1, 2)
        x = x + self.out(image(y) + self.place(image(v)))
        return x + self.mlp(x)


class Csp(nn.Module):
    """C3k2: two bottlenecks whose results are all joined."""

    def __init__(self, a: int, b: int, share: float = 0.5):
        super().__init__()
        c = int(b * share)
        pair = lambda: nn.Sequential(Conv(c, c // 2, 3), Conv(c // 2, c, 3))
        self.first, self.last, self.parts = Conv(a, 2 * c), Conv(4 * c, b), nn.ModuleList((pair(), pair()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = list(self.first(x).chunk(2, 1))
        for part in self.parts:
            y.append(y[-1] + part(y[-1]))
        return self.last(torch.cat(y, 1))


class AreaBlocks(nn.Module):
    """A2C2f: pairs of attention blocks whose results are joined."""

    def __init__(self, c: int, areas: int):
        super().__init__()
        h = c // 2
        self.first, self.last = Conv(c, h), Conv(3 * h, c)
        pair = lambda: nn.Sequential(AreaAttention(h, h // 32, areas), AreaAttention(h, h // 32, areas))
        self.parts = nn.ModuleList((pair(), pair()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = [self.first(x)]
        for part in self.parts:
            y.append(part(y[-1]))
        return self.last(torch.cat(y, 1))


class YoloAreas(nn.Module):
    """YOLOv12-S (Tian et al., 2025): area attention in the last stages, boxes as expectations of 16 bins, depthwise heads."""

    def __init__(self, classes: int = 80, bins: int = 16, h: int = 640, w: int = 640):
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 32, 3, 2), Conv(32, 64, 3, 2), Csp(64, 128, 0.25))
        self.s8 = nn.Sequential(Conv(128, 128, 3, 2), Csp(128, 256, 0.25))
        self.s16 = nn.Sequential(Conv(256, 256, 3, 2), AreaBlocks(256, 4))
        self.s32 = nn.Sequential(Conv(256, 512, 3, 2), AreaBlocks(512, 1))
        self.up16, self.up8, self.down16, self.down32 = Csp(768, 256), Csp(512, 128), Csp(384, 256), Csp(768, 512)
        self.less8, self.less16 = Conv(128, 128, 3, 2), Conv(256, 256, 3, 2)
        box = lambda c: nn.Sequential(Conv(c, 64, 3), Conv(64, 64, 3), nn.Conv2d(64, 4 * bins, 1))
        kind = lambda c: nn.Sequential(Conv(c, c, 3, groups=c), Conv(c, 128), Conv(128, 128, 3, groups=128), Conv(128, 128), nn.Conv2d(128, classes, 1))  # fmt: skip
        self.boxes, self.kinds = (nn.ModuleList(f(c) for c in (128, 256, 512)) for f in (box, kind))
        spots, steps = [], []
        for s in (8, 16, 32):
            y, x = torch.meshgrid(torch.arange(h // s) + 0.5, torch.arange(w // s) + 0.5, indexing="ij")
            spots.append(torch.stack([x, y], 0).flatten(1))
            steps.append(torch.full((1, spots[-1].shape[1]), float(s)))
        self.register_buffer("spots", torch.cat(spots, 1))
        self.register_buffer("steps", torch.cat(steps, 1))
        self.register_buffer("bins", torch.arange(bins).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        p8 = self.s8(self.stem(x))
        p16 = self.s16(p8)
        p32 = self.s32(p16)
        up = lambda t: F.interpolate(t, scale_factor=2, mode="nearest")
        n16 = self.up16(torch.cat([up(p32), p16], 1))
        n8 = self.up8(torch.cat([up(n16), p8], 1))
        n16 = self.down16(torch.cat([self.less8(n8), n16], 1))
        n32 = self.down32(torch.cat([self.less16(n16), p32], 1))
        maps = (n8, n16, n32)
        boxes = torch.cat([f(t).flatten(2) for f, t in zip(self.boxes, maps, strict=True)], 2)
        kinds = torch.cat([f(t).flatten(2) for f, t in zip(self.kinds, maps, strict=True)], 2)
        far = (boxes.unflatten(1, (4, -1)).softmax(2) * self.bins[:, None]).sum(2)
        low, high = self.spots - far[:, :2], self.spots + far[:, 2:]
        return torch.cat([torch.cat([(low + high) / 2, high - low], 1) * self.steps, kinds.sigmoid()], 1)


def sample_levels(values: list[torch.Tensor], places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Multi-scale deformable attention as PyTorch code writes it: values [b, heads, size, h, w] of each level, places
    [b, queries, heads, levels, points, 2] in 0 ... 1, weights [b, queries, heads, levels x points]; [b, queries, c]."""
    b, n, heads = places.shape[:3]
    grids, found = 2 * places - 1, []
    for k, v in enumerate(values):
        grid = grids[:, :, :, k].transpose(1, 2).flatten(0, 1)
        found.append(F.grid_sample(v.flatten(0, 1), grid, mode="bilinear", padding_mode="zeros", align_corners=False))
    stacked = torch.stack(found, -2).flatten(-2)
    weights = weights.transpose(1, 2).reshape(b * heads, 1, n, -1)
    return (stacked * weights).sum(-1).view(b, -1, n).transpose(1, 2)


class DeformableLayer(nn.Module):
    """RT-DETR's decoder layer."""

    def __init__(self, c: int, heads: int = 8, levels: int = 3, points: int = 4):
        super().__init__()
        self.heads, self.levels, self.points = heads, levels, points
        self.self_attention = nn.MultiheadAttention(c, heads, batch_first=True)
        self.offsets, self.weights = nn.Linear(c, heads * levels * points * 2), nn.Linear(c, heads * levels * points)
        self.value, self.out = nn.Linear(c, c), nn.Linear(c, c)
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(c, 1024), nn.ReLU(), nn.Linear(1024, c))

    def forward(self, x, place, box, memory, shapes):
        q = x + place
        x = self.norms[0](x + self.self_attention(q, q, x, need_weights=False)[0])
        q = x + place
        values = [
            v.transpose(1, 2).unflatten(1, (self.heads, -1)).unflatten(3, shape)
            for v, shape in zip(self.value(memory).split([h * w for h, w in shapes], 1), shapes, strict=True)
        ]
        offsets = self.offsets(q).unflatten(2, (self.heads, self.levels, self.points, 2))
        weights = self.weights(q).unflatten(2, (self.heads, -1)).softmax(-1)
        spot, size = box[:, :, None, None, None, :2], box[:, :, None, None, None, 2:]
        places = spot + offsets / self.points * size * 0.5
        x = self.norms[1](x + self.out(sample_levels(values, places, weights)))
        return self.norms[2](x + self.mlp(x))


class RealTimeDetr(nn.Module):
    """RT-DETR-R18 (Zhao et al., 2023): attention on the coarsest level, fusion of levels, 300 queries from the best tokens."""

    def __init__(
        self, c: int = 256, layers: int = 3, queries: int = 300, h: int = 640, w: int = 640, classes: int = 80
    ):
        super().__init__()
        import torchvision.models as models

        net = models.resnet18(weights=None)
        self.stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1)
        self.stages = nn.ModuleList((net.layer2, net.layer3, net.layer4))
        project = lambda n: nn.Sequential(nn.Conv2d(n, c, 1, bias=False), nn.BatchNorm2d(c))
        self.project = nn.ModuleList(project(n) for n in (128, 256, 512))
        self.encoder = nn.TransformerEncoderLayer(c, 8, 1024, 0.0, "gelu", batch_first=True)
        self.lateral, self.up = nn.ModuleList((Conv(c, c), Conv(c, c))), nn.ModuleList((Csp(2 * c, c), Csp(2 * c, c)))
        self.less, self.down = (
            nn.ModuleList((Conv(c, c, 3, 2), Conv(c, c, 3, 2))),
            nn.ModuleList((Csp(2 * c, c), Csp(2 * c, c))),
        )
        self.first, self.norm = nn.Linear(c, c), nn.LayerNorm(c)
        self.score, self.queries = nn.Linear(c, classes), queries
        mlp = lambda: nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c), nn.ReLU(), nn.Linear(c, 4))
        self.box, self.boxes = mlp(), nn.ModuleList(mlp() for _ in range(layers))
        self.place = nn.Sequential(nn.Linear(4, 2 * c), nn.ReLU(), nn.Linear(2 * c, c))
        self.layers, self.last = nn.ModuleList(DeformableLayer(c) for _ in range(layers)), nn.Linear(c, classes)
        self.shapes = [(h // s, w // s) for s in (8, 16, 32)]
        anchors = []
        for k, (a, b) in enumerate(self.shapes):
            y, x = torch.meshgrid((torch.arange(a) + 0.5) / a, (torch.arange(b) + 0.5) / b, indexing="ij")
            anchors.append(
                torch.stack([x, y, torch.full_like(x, 0.05 * 2**k), torch.full_like(x, 0.05 * 2**k)], 2).flatten(0, 1)
            )
        self.register_buffer("anchors", torch.logit(torch.cat(anchors), 1e-2))
        angles = torch.arange(self.shapes[2][0] * self.shapes[2][1])[:, None] * 100.0 ** (
            -torch.arange(c // 2) / (c // 2)
        )
        self.register_buffer("table", torch.cat([angles.sin(), angles.cos()], 1))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        x, maps = self.stem(x), []
        for stage, project in zip(self.stages, self.project, strict=True):
            x = stage(x)
            maps.append(project(x))
        tokens = self.encoder(maps[2].flatten(2).transpose(1, 2) + self.table)
        inner = [tokens.transpose(1, 2).unflatten(2, self.shapes[2])]
        for k in range(2):
            inner[0] = self.lateral[k](inner[0])
            up = F.interpolate(inner[0], scale_factor=2, mode="nearest")
            inner.insert(0, self.up[k](torch.cat([up, maps[1 - k]], 1)))
        outer = [inner[0]]
        for k in range(2):
            outer.append(self.down[k](torch.cat([self.less[k](outer[-1]), inner[k + 1]], 1)))
        return torch.cat([t.flatten(2).transpose(1, 2) for t in outer], 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        memory = self.encode(image)
        found = self.norm(self.first(memory))
        best = self.score(found).amax(-1).topk(self.queries, 1)[1][..., None]
        take = lambda t: t.gather(1, best.expand(-1, -1, t.shape[-1]))
        x = take(found)
        box = (self.box(x) + take(self.anchors.expand(x.shape[0], -1, -1))).sigmoid()
        for layer, refine in zip(self.layers, self.boxes, strict=True):
            x = layer(x, self.place(box), box, memory, self.shapes)
            box = (refine(x) + torch.logit(box, 1e-3)).sigmoid()
        return self.last(x), box


class BirdsEye(nn.Module):
    """BEVFormer (Li et al., 2022), three layers at a width of 128: cells of a grid of the ground sample six cameras at four
    heights, where these see them, and the grid itself."""

    def __init__(self, c: int = 128, layers: int = 3, side: int = 50, h: int = 15, w: int = 25, cameras: int = 6):
        super().__init__()
        self.heads, self.h, self.w, self.side = 8, h, w, side
        self.cells, self.place = (
            nn.Parameter(torch.randn(side * side, c)),
            nn.Parameter(0.5 * torch.randn(side * side, c)),
        )
        self.camera = nn.Parameter(0.5 * torch.randn(cameras, 1, c))
        linear = lambda n: nn.ModuleList(nn.Linear(c, n) for _ in range(layers))
        self.self_offsets, self.self_weights, self.self_value, self.self_out = (
            linear(64),
            linear(32),
            linear(c),
            linear(c),
        )
        self.offsets, self.weights, self.value, self.out = linear(128), linear(64), linear(c), linear(c)
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3 * layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c)) for _ in range(layers)
        )
        y, x = torch.meshgrid((torch.arange(side) + 0.5) / side, (torch.arange(side) + 0.5) / side, indexing="ij")
        self.register_buffer("grid", torch.stack([x, y], 2).flatten(0, 1))
        heights = torch.tensor([0.1, 0.35, 0.6, 0.85])
        points = torch.cat([self.grid[None].expand(4, -1, -1), heights[:, None, None].expand(-1, side * side, 1)], 2)
        self.register_buffer("points", torch.cat([points, torch.ones(4, side * side, 1)], 2))

    def sample(self, k: int, x: torch.Tensor, features: torch.Tensor, cameras: torch.Tensor) -> torch.Tensor:
        b, n = cameras.shape[:2]
        seen = torch.einsum("bnij,pqj->bnqpi", cameras, self.points)
        depth = seen[..., 2:3]
        spot = seen[..., :2] / depth.clamp_min(1e-2)
        inside = (depth[..., 0] > 1e-2) & (spot > 0).all(-1) & (spot < 1).all(-1)
        value = self.value[k](features).transpose(2, 3).unflatten(2, (self.heads, -1)).unflatten(4, (self.h, self.w))
        offsets = self.offsets[k](x).unflatten(2, (self.heads, 4, 2, 2)) / 25
        places = (spot[:, :, :, None, :, None] + offsets[:, None]).flatten(4, 5)[:, :, :, :, None]
        weights = self.weights[k](x).unflatten(2, (self.heads, 8)).softmax(-1)[:, None].expand(-1, n, -1, -1, -1)
        y = sample_levels([value.flatten(0, 1)], places.flatten(0, 1), weights.flatten(0, 1)).unflatten(0, (b, n))
        seen_by = inside.any(-1).to(y.dtype)[..., None]
        return self.out[k]((y * seen_by).sum(1) / seen_by.sum(1).clamp_min(1))

    def forward(self, features: torch.Tensor, cameras: torch.Tensor) -> torch.Tensor:
        features = features + self.camera
        x = self.cells.expand(features.shape[0], -1, -1)
        for k, mlp in enumerate(self.mlps):
            q = x + self.place
            value = self.self_value[k](x).transpose(1, 2).unflatten(1, (8, -1)).unflatten(3, (self.side, self.side))
            places = self.grid[:, None, None, None] + self.self_offsets[k](q).unflatten(2, (8, 1, 4, 2)) / self.side
            weights = self.self_weights[k](q).unflatten(2, (8, 4)).softmax(-1)
            x = self.norms[3 * k](x + self.self_out[k](sample_levels([value], places, weights)))
            x = self.norms[3 * k + 1](x + self.sample(k, x + self.place, features, cameras))
            x = self.norms[3 * k + 2](x + mlp(x))
        return x.transpose(1, 2).unflatten(2, (self.side, self.side))


def rig(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of six cameras around the middle of the grid, and matrices that project its points into them."""
    angles = torch.arange(6) * (math.pi / 3)
    matrices = []
    for a in angles.tolist():
        look, right = torch.tensor([math.cos(a), math.sin(a), 0.0]), torch.tensor([-math.sin(a), math.cos(a), 0.0])
        down = torch.tensor([0.0, 0.0, -1.0])
        middle = torch.tensor([0.5, 0.5, 0.5])
        axes = torch.stack([0.6 * right + 0.5 * look, 0.6 * down + 0.5 * look, look])
        matrices.append(torch.cat([axes, -(axes @ middle)[:, None]], 1))
    cameras = torch.stack(matrices).expand(batch, -1, -1, -1).contiguous()
    return torch.randn(batch, 6, 375, 128, generator=seeded()), cameras


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "yolo_v12s": (YoloAreas, pictures(3, 640, 640)),
    "rt_detr_r18": (RealTimeDetr, pictures(3, 640, 640)),
    "bev_former_3": (BirdsEye, rig),
}
