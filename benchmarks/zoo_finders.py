"""Objects, letters, places and parts of images, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded
from zoo_scenes import conv, keep_most, resize


class Fire(nn.Module):
    """Of CornerNet-Squeeze: a narrow layer, then a wide one whose half is a depthwise convolution."""

    def __init__(self, a: int, b: int, stride: int = 1):
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(a, b // 2, 1, bias=False), nn.BatchNorm2d(b // 2))
        self.one = nn.Conv2d(b // 2, b // 2, 1, stride, bias=False)
        self.three = nn.Conv2d(b // 2, b // 2, 3, stride, 1, groups=b // 2, bias=False)
        self.norm, self.skip = nn.BatchNorm2d(b), stride == 1 and a == b

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.squeeze(x)
        y = self.norm(torch.cat([self.one(y), self.three(y)], 1))
        return F.relu(x + y if self.skip else y)


class Hourglass(nn.Module):
    """Down and up again, with a branch beside at each size."""

    def __init__(self, widths: tuple[int, ...], blocks: tuple[int, ...]):
        super().__init__()
        a, b = widths[:2]

        def fires(first: Fire, c: int, count: int) -> nn.Sequential:
            return nn.Sequential(first, *(Fire(c, c) for _ in range(count - 1)))

        self.beside, self.low = fires(Fire(a, a), a, blocks[0]), fires(Fire(a, b, 2), b, blocks[0])
        self.inner: nn.Module = (
            Hourglass(widths[1:], blocks[1:]) if len(widths) > 2 else fires(Fire(b, b), b, blocks[1])
        )
        self.back = nn.Sequential(*(Fire(b, b) for _ in range(blocks[0] - 1)), Fire(b, a))
        self.up = nn.ConvTranspose2d(a, a, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.beside(x) + self.up(self.back(self.inner(self.low(x))))


def corner_pool(x: torch.Tensor, dim: int, forwards: bool) -> torch.Tensor:
    """The largest value from each place to the border."""
    n, reach = x.shape[dim], 1
    while reach < n:
        pad = [0, 0, 0, 0]
        pad[2 * (3 - dim) + (0 if forwards else 1)] = reach
        moved = F.pad(x, pad, value=-1e4).narrow(dim, 0 if forwards else reach, n)
        x = torch.maximum(x, moved)
        reach *= 2
    return x


class Corner(nn.Module):
    """Pools to both sides of a kind of corner, and the maps of it."""

    def __init__(self, c: int, forwards: bool, classes: int):
        super().__init__()
        self.forwards = forwards
        self.vertical, self.horizontal = conv(c, 128), conv(c, 128)
        self.join, self.short = conv(128, c, 3, 1, nn.Identity), conv(c, c, 1, 1, nn.Identity)
        self.after = conv(c, c)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c, 1), nn.ReLU(), nn.Conv2d(c, out, 1)) for out in (classes, 1, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = corner_pool(self.vertical(x), 2, self.forwards) + corner_pool(self.horizontal(x), 3, self.forwards)
        y = self.after(F.relu(self.join(y) + self.short(x)))
        heat, embedding, offset = (head(y) for head in self.heads)
        return torch.cat([torch.sigmoid(heat), embedding, offset], 1)


class CornerNet(nn.Module):
    """CornerNet-Squeeze (Law et al., 2019), one of its two hourglasses: pooling towards corners, maps of both kinds of corners."""

    def __init__(self, classes: int = 80, c: int = 256):
        super().__init__()
        self.first = nn.Sequential(conv(3, 128, 7, 2), Fire(128, 256, 2), Fire(256, 256, 2))
        self.hourglass, self.after = Hourglass((256, 256, 384, 384, 512), (2, 2, 2, 2, 4)), conv(256, c)
        self.low, self.high = Corner(c, False, classes), Corner(c, True, classes)
        keep_most(self)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.after(self.hourglass(self.first(image)))
        return self.low(x), self.high(x)


class SiamRpn(nn.Module):
    """SiamRPN (Li et al., 2018): an AlexNet of template and search image; the template's features are kernels for the other's."""

    def __init__(self, anchors: int = 5, c: int = 256):
        super().__init__()
        self.anchors, self.c = anchors, c

        def layer(a: int, b: int, size: int, stride: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(a, b, size, stride), nn.BatchNorm2d(b)]

        self.features = nn.Sequential(
            *layer(3, 96, 11, 2), nn.MaxPool2d(3, 2), nn.ReLU(), *layer(96, 256, 5), nn.MaxPool2d(3, 2), nn.ReLU(),
            *layer(256, 384, 3), nn.ReLU(), *layer(384, 384, 3), nn.ReLU(), *layer(384, c, 3),
        )  # fmt: skip
        self.kernels = nn.ModuleList(nn.Conv2d(c, c * n * anchors, 3) for n in (2, 4))
        self.searches, self.adjust = (
            nn.ModuleList(nn.Conv2d(c, c, 3) for _ in range(2)),
            nn.Conv2d(4 * anchors, 4 * anchors, 1),
        )

    def correlate(self, x: torch.Tensor, kernel: torch.Tensor, out: int) -> torch.Tensor:
        """Each picture has kernels of its own."""
        size = kernel.shape[2]
        rows, columns = x.shape[2] - size + 1, x.shape[3] - size + 1
        windows = F.unfold(x, size)
        weight = kernel.reshape(x.shape[0], out, -1)
        return torch.bmm(weight, windows).view(x.shape[0], out, rows, columns) / weight.shape[2] ** 0.5

    def forward(self, template: torch.Tensor, search: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z, x = self.features(template), self.features(search)
        scores, boxes = (
            self.correlate(layer(x), kernel(z), n * self.anchors)
            for layer, kernel, n in zip(self.searches, self.kernels, (2, 4), strict=True)
        )
        scores = scores.unflatten(1, (2, self.anchors)).softmax(1)[:, 1]
        return scores, self.adjust(boxes)


def tracks(batch: int) -> tuple[torch.Tensor, ...]:
    return pictures(3, 127, 127)(batch)[0], pictures(3, 255, 255)(batch)[0]


class Aster(nn.Module):
    """ASTER (Shi et al., 2019) with the letters before given: text is straightened by splines between 20 points, read by
    a ResNet and LSTMs, and written by attention and a GRU."""

    def __init__(self, points: int = 20, c: int = 512, letters: int = 97, height: int = 32, width: int = 100):
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in ((3, 32), (32, 64), (64, 128), (128, 256), (256, 256)):
            layers += [conv(a, b), nn.MaxPool2d(2)]
        self.locate = nn.Sequential(
            *layers, conv(256, 256), nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2 * points)
        )
        x = torch.linspace(-0.95, 0.95, points // 2)
        places = torch.cat([torch.stack([x, torch.full_like(x, y)], 1) for y in (-0.9, 0.9)])
        self.base = nn.Parameter(places + 0.001 * torch.randn(points, 2))
        self.register_buffer("spline", self.matrix(places, height, width))
        self.height, self.width = height, width
        self.first, self.stages, before = conv(3, 32), nn.ModuleList(), 32
        for blocks, b, stride in ((3, 32, 2), (4, 64, 2), (6, 128, (2, 1)), (6, 256, (2, 1)), (3, 512, (2, 1))):
            for k in range(blocks):
                self.stages.append(self.block(before, b, stride if k == 0 else 1))
                before = b
        self.lstm = nn.LSTM(c, 256, 2, batch_first=True, bidirectional=True)
        self.embed, self.cell = nn.Embedding(letters + 1, 512), nn.GRUCell(c + 512, 512)
        self.query, self.key, self.score = nn.Linear(512, 512), nn.Linear(c, 512), nn.Linear(512, 1, bias=False)
        self.last = nn.Linear(512, letters)
        keep_most(self)

    def matrix(self, places: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """What a thin plate spline through the points gives at each pixel, as sums of the points' new places."""

        def bend(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            square = torch.cdist(a, b).double().pow(2)
            return 0.5 * square * torch.log(square.clamp(min=1e-9))

        n = len(places)
        system = torch.zeros(n + 3, n + 3, dtype=torch.float64)
        system[:n, :n], system[:n, n], system[n, :n] = bend(places, places), 1, 1
        system[:n, n + 1 :], system[n + 1 :, :n] = places, places.t()
        y, x = torch.meshgrid(
            (torch.arange(height) + 0.5) / height * 2 - 1, (torch.arange(width) + 0.5) / width * 2 - 1, indexing="ij"
        )
        pixels = torch.stack([x.flatten(), y.flatten()], 1)
        rows = torch.cat([bend(pixels, places), torch.ones(len(pixels), 1), pixels.double()], 1)
        return (rows @ torch.linalg.inv(system))[:, :n].float()

    def block(self, a: int, b: int, stride: int | tuple[int, int]) -> nn.Module:
        layers = nn.ModuleDict(
            {"one": nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b), nn.ReLU())}
        )
        layers["two"] = conv(b, b, 3, 1, nn.Identity)
        short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
        layers["short"] = short if stride != 1 or a != b else nn.Identity()
        return layers

    def forward(self, image: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        small = F.interpolate(image, size=(32, 64), mode="bilinear", align_corners=True)
        moved = self.base + 0.1 * torch.tanh(self.locate(small)).unflatten(1, (-1, 2))
        grid = torch.matmul(self.spline, moved).unflatten(1, (self.height, self.width)).clamp(-1, 1)
        x = self.first(F.grid_sample(image, grid, align_corners=False))
        for block in self.stages:
            x = F.relu(block["two"](block["one"](x)) + block["short"](x))
        x = self.lstm(x.squeeze(2).transpose(1, 2))[0]
        keys, h = self.key(x), torch.zeros(x.shape[0], 512, dtype=x.dtype, device=x.device)
        results = []
        for step in range(before.shape[1]):
            weights = self.score(torch.tanh(self.query(h)[:, None] + keys)).softmax(1)
            context = (weights * x).sum(1)
            h = self.cell(torch.cat([self.embed(before[:, step]), context], 1), h)
            results.append(self.last(h))
        return torch.stack(results, 1)


def words(batch: int, length: int = 25) -> tuple[torch.Tensor, ...]:
    return pictures(3, 64, 256, octaves=5)(batch)[0], torch.randint(0, 98, (batch, length), generator=seeded())


class Exchange(nn.Module):
    """A stage of HRNet: two blocks at each size, then each size gets the sum of all."""

    def __init__(self, widths: tuple[int, ...], blocks: int = 2):
        super().__init__()
        self.bodies = nn.ModuleList(
            nn.ModuleList(nn.Sequential(conv(c, c), conv(c, c, 3, 1, nn.Identity)) for _ in range(blocks))
            for c in widths
        )
        self.links = nn.ModuleList(
            nn.ModuleList(self.link(widths, a, b) for a in range(len(widths))) for b in range(len(widths))
        )

    def link(self, widths: tuple[int, ...], a: int, b: int) -> nn.Module:
        if a == b:
            return nn.Identity()
        if a > b:
            return conv(widths[a], widths[b], 1, 1, nn.Identity)
        steps = [
            conv(widths[a], widths[b] if k == b - 1 else widths[a], 3, 2, nn.Identity if k == b - 1 else nn.ReLU)
            for k in range(a, b)
        ]
        return nn.Sequential(*steps)

    def forward(self, xs: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for x, body in zip(xs, self.bodies, strict=True):
            for block in body:
                x = F.relu(x + block(x))
            found.append(x)
        results = []
        for b, links in enumerate(self.links):
            total = None
            for a, link in enumerate(links):
                y = link(found[a])
                y = resize(y, found[b]) if a > b else y
                total = y if total is None else total + y
            results.append(F.relu(total))
        return results


class ObjectContext(nn.Module):
    """HRNet of width 18, its small form, with object-contextual representations (Yuan et al., 2020): pixels attend to the
    means of their classes."""

    def __init__(self, classes: int = 19, c: int = 256, key: int = 128):
        super().__init__()
        widths = (18, 36, 72, 144)
        self.first = nn.Sequential(conv(3, 64, 3, 2), conv(64, 64, 3, 2), conv(64, 32), conv(32, 64))
        self.starts = nn.ModuleList([conv(64, widths[0]), conv(64, widths[1], 3, 2)])
        self.deeper = nn.ModuleList(conv(a, b, 3, 2) for a, b in zip(widths[1:], widths[2:]))
        self.stages = nn.ModuleList(Exchange(widths[: k + 2]) for k in range(3))
        whole = sum(widths)
        self.soft = nn.Sequential(conv(whole, whole, 1), nn.Conv2d(whole, classes, 1))
        self.pixels = conv(whole, c)
        self.query = nn.Sequential(conv(c, key, 1), conv(key, key, 1))
        self.key = nn.Sequential(conv(c, key, 1), conv(key, key, 1))
        self.value, self.up, self.join = conv(c, key, 1), conv(key, c, 1), conv(2 * c, c, 1)
        self.last = nn.Conv2d(c, classes, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(image)
        xs = [start(x) for start in self.starts]
        for k, stage in enumerate(self.stages):
            xs = stage(xs)
            if k < len(self.deeper):
                xs.append(self.deeper[k](xs[-1]))
        x = torch.cat([xs[0]] + [resize(y, xs[0]) for y in xs[1:]], 1)
        soft = self.soft(x)
        pixels = self.pixels(x)
        chances = soft.flatten(2).softmax(2)
        objects = torch.matmul(chances, pixels.flatten(2).transpose(1, 2)).transpose(1, 2)[..., None]
        q = self.query(pixels).flatten(2).transpose(1, 2)
        k, v = self.key(objects).squeeze(3), self.value(objects).squeeze(3)
        weights = (torch.matmul(q, k) * k.shape[1] ** -0.5).softmax(2)
        context = torch.matmul(weights, v.transpose(1, 2)).transpose(1, 2).unflatten(2, pixels.shape[2:])
        y = self.join(torch.cat([self.up(context), pixels], 1))
        return resize(self.last(y), image), soft


class SlotAttention(nn.Module):
    """Slot attention (Locatello et al., 2020): seven slots compete for the pixels in three rounds, each paints a picture."""

    def __init__(self, slots: int = 7, c: int = 64, side: int = 64, start: int = 8):
        super().__init__()
        self.slots, self.c, self.start = slots, c, start
        self.encoder = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(3 if k == 0 else c, c, 5, padding=2), nn.ReLU()) for k in range(4))
        )
        self.register_buffer("pixels", self.grid(side))
        self.register_buffer("cells", self.grid(start))
        self.place, self.place_out = nn.Linear(4, c), nn.Linear(4, c)
        self.mlp = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c))
        self.norm, self.norm_slots, self.norm_after = (nn.LayerNorm(c) for _ in range(3))
        self.q, self.k, self.v = (nn.Linear(c, c, bias=False) for _ in range(3))
        self.gru, self.after = nn.GRUCell(c, c), nn.Sequential(nn.Linear(c, 128), nn.ReLU(), nn.Linear(128, c))
        self.mean, self.deviation = nn.Parameter(torch.randn(1, 1, c)), nn.Parameter(torch.ones(1, 1, c))
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.ConvTranspose2d(c, c, 5, 2, 2, output_padding=1), nn.ReLU()]
        self.decoder = nn.Sequential(*layers, nn.Conv2d(c, c, 5, padding=2), nn.ReLU(), nn.Conv2d(c, 4, 3, padding=1))
        for layer in self.modules():  # pictures and masks that differ
            if isinstance(layer, nn.ConvTranspose2d):
                nn.init.normal_(layer.weight, std=(8 / (25 * c)) ** 0.5)
            elif isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)

    def grid(self, side: int) -> torch.Tensor:
        y, x = torch.meshgrid(torch.linspace(0, 1, side), torch.linspace(0, 1, side), indexing="ij")
        return torch.stack([x, y, 1 - x, 1 - y], -1)

    def forward(self, image: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.encoder(image).permute(0, 2, 3, 1) + self.place(self.pixels)
        x = self.norm(self.mlp(x.flatten(1, 2)))
        k, v = self.k(x), self.v(x)
        slots = self.mean + self.deviation * noise
        for _ in range(3):
            q = self.q(self.norm_slots(slots)) * self.c**-0.5
            chances = torch.einsum("bnc,bsc->bns", k, q).softmax(-1)
            weights = chances / (chances.sum(1, keepdim=True) + 1e-3)
            updates = torch.einsum("bns,bnc->bsc", weights, v)
            slots = self.gru(updates.reshape(-1, self.c), slots.reshape(-1, self.c)).view(-1, self.slots, self.c)
            slots = slots + self.after(self.norm_after(slots))
        y = slots.reshape(-1, 1, 1, self.c).expand(-1, self.start, self.start, -1) + self.place_out(self.cells)
        y = self.decoder(y.permute(0, 3, 1, 2)).unflatten(0, (-1, self.slots))
        masks = y[:, :, 3:].softmax(1)
        return (y[:, :, :3] * masks).sum(1), masks


class NetVlad(nn.Module):
    """NetVLAD (Arandjelovic et al., 2016): features of VGG-16 are softly assigned to 64 centres, their differences are summed."""

    def __init__(self, clusters: int = 64, c: int = 512, out: int = 512):
        super().__init__()
        import torchvision.models as models

        self.features = nn.Sequential(*list(models.vgg16_bn(weights=None).features.children())[:-2])
        self.assign, self.centres = nn.Conv2d(c, clusters, 1), nn.Parameter(torch.randn(clusters, c) / c**0.5)
        self.whiten = nn.Linear(clusters * c, out)
        nn.init.normal_(self.assign.weight, std=2.0)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.normalize(self.features(image), dim=1)
        chances, flat = self.assign(x).flatten(2).softmax(1), x.flatten(2)
        vlad = torch.bmm(chances, flat.transpose(1, 2)) - chances.sum(2, keepdim=True) * self.centres
        vlad = F.normalize(F.normalize(vlad, dim=2).flatten(1), dim=1)
        return F.normalize(self.whiten(vlad), dim=1)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "corner_net_1": (CornerNet, pictures(3, 256, 256)),
    "siam_rpn": (SiamRpn, tracks),
    "aster": (Aster, words),
    "hrnet_ocr": (ObjectContext, pictures(3, 256, 384)),
    "slot_attention": (SlotAttention, lambda batch: (pictures(3, 64, 64)(batch)[0], normal((7, 64))(batch)[0])),
    "net_vlad": (NetVlad, pictures(3, 160, 208)),
}
