"""Videos and the restoration of frames, for the zoo: as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures
from zoo_scenes import conv, resize


def volume_conv(a: int, b: int, size: tuple[int, int, int], stride: tuple[int, int, int] = (1, 1, 1)) -> nn.Sequential:
    pads = tuple(s // 2 for s in size)
    return nn.Sequential(nn.Conv3d(a, b, size, stride, pads, bias=False), nn.BatchNorm3d(b))


class Bottleneck3d(nn.Module):
    def __init__(self, a: int, inner: int, b: int, time: int, stride: int):
        super().__init__()
        self.one, self.two = (
            volume_conv(a, inner, (time, 1, 1)),
            volume_conv(inner, inner, (1, 3, 3), (1, stride, stride)),
        )
        self.three = volume_conv(inner, b, (1, 1, 1))
        self.short = volume_conv(a, b, (1, 1, 1), (1, stride, stride)) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.three(F.relu(self.two(F.relu(self.one(x)))))
        return F.relu(y + self.short(x))


class SlowFast(nn.Module):
    """SlowFast of ResNet-50 (Feichtenhofer et al., 2019): four frames with many channels, 32 with few, joined after each stage."""

    def __init__(self, classes: int = 400, ratio: int = 8, share: int = 8):
        super().__init__()
        self.ratio = ratio
        self.slow_first, self.fast_first = (
            volume_conv(3, 64, (1, 7, 7), (1, 2, 2)),
            volume_conv(3, 64 // share, (5, 7, 7), (1, 2, 2)),
        )
        self.slow, self.fast, self.joins = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        slow, fast = 64, 64 // share
        for k, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
            self.joins.append(volume_conv(fast, 2 * fast, (5, 1, 1), (ratio, 1, 1)))
            slow += 2 * fast
            for path, times, parts in ((self.slow, 1 if k < 2 else 3, 1), (self.fast, 3, share)):
                a = slow if parts == 1 else fast
                layers = [
                    Bottleneck3d(
                        a if n == 0 else 4 * width // parts,
                        width // parts,
                        4 * width // parts,
                        times,
                        2 if k and n == 0 else 1,
                    )
                    for n in range(blocks)
                ]
                path.append(nn.Sequential(*layers))
            slow, fast = 4 * width, 4 * width // share
        self.last = nn.Linear(slow + fast, classes)
        for norm in self.modules():  # as keep_most
            if isinstance(norm, nn.BatchNorm3d):
                nn.init.ones_(norm.bias)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        slow, fast = F.relu(self.slow_first(video[:, :, :: self.ratio])), F.relu(self.fast_first(video))
        slow, fast = (F.max_pool3d(x, (1, 3, 3), (1, 2, 2), (0, 1, 1)) for x in (slow, fast))
        for one, two, join in zip(self.slow, self.fast, self.joins, strict=True):
            slow = torch.cat([slow, F.relu(join(fast))], 1)
            slow, fast = one(slow), two(fast)
        return self.last(torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1))


class ShiftedBlock(nn.Module):
    """A bottleneck of ResNet-50 before which an eighth of the channels comes from the next frame, an eighth from the last one."""

    def __init__(self, a: int, inner: int, b: int, stride: int, frames: int):
        super().__init__()
        self.frames, self.fold = frames, a // 8
        self.body = nn.Sequential(conv(a, inner, 1), conv(inner, inner, 3, stride), conv(inner, b, 1, 1, nn.Identity))
        self.short = conv(a, b, 1, stride, nn.Identity) if stride > 1 or a != b else nn.Identity()

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        x = x.view(n // self.frames, self.frames, c, h, w)
        moved = torch.zeros_like(x)
        moved[:, :-1, : self.fold] = x[:, 1:, : self.fold]
        moved[:, 1:, self.fold : 2 * self.fold] = x[:, :-1, self.fold : 2 * self.fold]
        moved[:, :, 2 * self.fold :] = x[:, :, 2 * self.fold :]
        return moved.view(n, c, h, w)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(self.shift(x)) + self.short(x))


class TemporalShift(nn.Module):
    """TSM (Lin et al., 2019): eight frames through a ResNet-50, whose means are averaged."""

    def __init__(self, frames: int = 8, classes: int = 174):
        super().__init__()
        self.frames, self.first = frames, nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        layers, a = [], 64
        for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
            for k in range(blocks):
                layers.append(ShiftedBlock(a, width, 4 * width, 2 if stage and k == 0 else 1, frames))
                a = 4 * width
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(a, classes)

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.first(video.flatten(0, 1)))
        return self.last(x.mean((2, 3))).unflatten(0, (-1, self.frames)).mean(1)


class SpaceTimeLstm(nn.Module):
    """A cell of PredRNN: a memory along time, and one that climbs through the layers."""

    def __init__(self, a: int, c: int, side: int):
        super().__init__()

        def layer(i: int, o: int, size: int = 5) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, size, padding=size // 2, bias=False), nn.LayerNorm((o, side, side)))

        self.x, self.h, self.m, self.o = layer(a, 7 * c), layer(c, 4 * c), layer(c, 3 * c), layer(2 * c, c)
        self.last = nn.Conv2d(2 * c, c, 1, bias=False)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ix, fx, gx, ix2, fx2, gx2, ox = self.x(x).chunk(7, 1)
        ih, fh, gh, oh = self.h(h).chunk(4, 1)
        im, fm, gm = self.m(m).chunk(3, 1)
        c = torch.sigmoid(fx + fh + 1) * c + torch.sigmoid(ix + ih) * torch.tanh(gx + gh)
        m = torch.sigmoid(fx2 + fm + 1) * m + torch.sigmoid(ix2 + im) * torch.tanh(gx2 + gm)
        both = torch.cat([c, m], 1)
        return torch.sigmoid(ox + oh + self.o(both)) * torch.tanh(self.last(both)), c, m


class PredRnn(nn.Module):
    """PredRNN (Wang et al., 2017), three layers of 64 channels: four frames seen, four predicted, of 64 x 64 digits."""

    def __init__(self, c: int = 64, layers: int = 3, patch: int = 4, side: int = 16, ahead: int = 4):
        super().__init__()
        self.patch, self.side, self.ahead, self.c = patch, side, ahead, c
        self.cells = nn.ModuleList(SpaceTimeLstm(c if k else patch * patch, c, side) for k in range(layers))
        self.last = nn.Conv2d(c, patch * patch, 1, bias=False)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        seen = F.pixel_unshuffle(frames[:, :, None], self.patch)
        zero = torch.zeros(frames.shape[0], self.c, self.side, self.side, dtype=frames.dtype, device=frames.device)
        hs, cs, m = [zero] * len(self.cells), [zero] * len(self.cells), zero
        y, results = seen[:, 0], []
        for step in range(seen.shape[1] + self.ahead - 1):
            x = seen[:, step] if step < seen.shape[1] else y
            for k, cell in enumerate(self.cells):
                x, cs[k], m = cell(x, hs[k], cs[k], m)
                hs[k] = x
            y = self.last(x)
            results.append(y)
        return F.pixel_shuffle(torch.stack(results, 1), self.patch).squeeze(2)


def warp(x: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    h, w = x.shape[2:]
    ys, xs = torch.meshgrid(
        torch.linspace(-1, 1, h, device=x.device, dtype=x.dtype), torch.linspace(-1, 1, w, device=x.device, dtype=x.dtype), indexing="ij"
    )  # fmt: skip
    scaled = torch.stack([flow[:, 0] * (2 / (w - 1)), flow[:, 1] * (2 / (h - 1))], -1)
    return F.grid_sample(x, torch.stack([xs, ys], -1) + scaled, padding_mode="border", align_corners=True)


class FlowBlock(nn.Module):
    """Of RIFE: at a smaller size, motion from the middle frame to both neighbours, and a mask."""

    def __init__(self, a: int, c: int, scale: int):
        super().__init__()
        self.scale = scale

        def layer(i: int, o: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.PReLU(o))

        self.first = nn.Sequential(layer(a, c // 2, 2), layer(c // 2, c, 2))
        self.body, self.last = nn.Sequential(*(layer(c, c) for _ in range(8))), nn.ConvTranspose2d(c, 5, 4, 2, 1)

    def forward(self, x: torch.Tensor, flow: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        s = 1 / self.scale
        x = F.interpolate(x, scale_factor=s, mode="bilinear", align_corners=False) if self.scale > 1 else x
        if flow is not None:
            small = (
                F.interpolate(flow, scale_factor=s, mode="bilinear", align_corners=False) * s
                if self.scale > 1
                else flow
            )
            x = torch.cat([x, small], 1)
        x = self.first(x)
        y = self.last(x + self.body(x))
        y = F.interpolate(y, scale_factor=2.0 * self.scale, mode="bilinear", align_corners=False)
        return y[:, :4] * (2.0 * self.scale), y[:, 4:]


class Rife(nn.Module):
    """RIFE (Huang et al., 2022): the frame between two, by three rounds of motion at a quarter, half and full size."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(FlowBlock(a, c, s) for a, c, s in ((6, 240, 4), (17, 150, 2), (17, 90, 1)))

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        one, two = left, right = pair[:, :3], pair[:, 3:]
        flow = mask = None
        for block in self.blocks:
            x = torch.cat([one, two] if flow is None else [one, two, left, right, mask], 1)
            moved, more = block(x, flow)
            flow, mask = (moved, more) if flow is None else (flow + moved, mask + more)
            left, right = warp(one, flow[:, :2]), warp(two, flow[:, 2:])
        m = torch.sigmoid(mask)
        return left * m + right * (1 - m)


class Deformed(nn.Module):
    """A modulated deformable 3 x 3 convolution (Zhu et al., 2019), whose taps are sampled from eight groups of channels."""

    def __init__(self, c: int, groups: int = 8):
        super().__init__()
        self.groups, self.offsets = groups, nn.Conv2d(c, groups * 27, 3, padding=1)
        self.weight, self.bias = nn.Parameter(torch.randn(c, c, 9) / (9 * c) ** 0.5), nn.Parameter(torch.zeros(c))
        y, x = torch.meshgrid(torch.arange(-1.0, 2), torch.arange(-1.0, 2), indexing="ij")
        self.register_buffer("taps", torch.stack([x.flatten(), y.flatten()], -1)[:, None, None])

    def forward(self, x: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        batch, c, h, w = x.shape
        p = self.offsets(features).view(batch * self.groups, 27, h, w)
        offsets, mask = p[:, :18].unflatten(1, (9, 2)).permute(0, 1, 3, 4, 2), torch.sigmoid(p[:, 18:])
        ys, xs = torch.meshgrid(
            torch.arange(h, device=x.device, dtype=x.dtype), torch.arange(w, device=x.device, dtype=x.dtype), indexing="ij"
        )  # fmt: skip
        places = torch.stack([xs, ys], -1) + self.taps + offsets
        scale = torch.tensor([2 / (w - 1), 2 / (h - 1)], device=x.device, dtype=x.dtype)
        grid = (places * scale - 1).reshape(batch * self.groups, 9 * h, w, 2)
        y = F.grid_sample(x.reshape(batch * self.groups, c // self.groups, h, w), grid, align_corners=True)
        y = y.view(batch * self.groups, c // self.groups, 9, h, w) * mask[:, None]
        return torch.einsum("bcthw,oct->bohw", y.view(batch, c, 9, h, w), self.weight) + self.bias.view(1, -1, 1, 1)


class Edvr(nn.Module):
    """EDVR (Wang et al., 2019), five blocks behind: five frames aligned by deformable convolutions on three scales, weighted by
    their likeness to the middle one, and enlarged four times."""

    def __init__(self, c: int = 64, frames: int = 5):
        super().__init__()
        self.frames, self.first = frames, nn.Conv2d(3, c, 3, padding=1)
        self.blocks = nn.ModuleList(self.block(c) for _ in range(2))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(c, c, 3, padding=1), nn.LeakyReLU(0.1))
            for _ in range(2)
        )
        self.compare = nn.ModuleList(nn.Conv2d(2 * c, c, 3, padding=1) for _ in range(3))
        self.offset = nn.ModuleList(nn.Conv2d(2 * c if k < 2 else c, c, 3, padding=1) for k in range(3))
        self.deform = nn.ModuleList(Deformed(c) for _ in range(3))
        self.merge = nn.ModuleList(nn.Conv2d(2 * c, c, 3, padding=1) for _ in range(2))
        self.query, self.key = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.fuse = nn.Conv2d(frames * c, c, 1)
        self.behind = nn.ModuleList(self.block(c) for _ in range(5))
        self.up = nn.ModuleList(nn.Conv2d(c, 4 * c, 3, padding=1) for _ in range(2))
        self.last = nn.Sequential(nn.Conv2d(c, 64, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(64, 3, 3, padding=1))
        nn.init.xavier_normal_(self.last[2].weight, 4.0)  # as large as the enlarged frame

    def block(self, c: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1))

    def align(self, near: list[torch.Tensor], own: list[torch.Tensor]) -> torch.Tensor:
        offset = found = None
        for k in (2, 1, 0):
            y = F.leaky_relu(self.compare[k](torch.cat([near[k], own[k]], 1)), 0.1)
            if offset is not None:
                larger = F.interpolate(offset, scale_factor=2.0, mode="bilinear", align_corners=False) * 2
                y = torch.cat([y, larger], 1)
            offset = F.leaky_relu(self.offset[k](y), 0.1)
            y = self.deform[k](near[k], offset)
            if found is not None:
                y = self.merge[k](
                    torch.cat([y, F.interpolate(found, scale_factor=2.0, mode="bilinear", align_corners=False)], 1)
                )
            found = F.leaky_relu(y, 0.1) if k else y
        return found

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(self.first(video.flatten(0, 1)), 0.1)
        for block in self.blocks:
            x = x + block(x)
        levels = [x]
        for down in self.down:
            levels.append(down(levels[-1]))
        levels = [y.unflatten(0, (-1, self.frames)) for y in levels]
        middle = self.frames // 2
        own = [y[:, middle] for y in levels]
        aligned = [self.align([y[:, k] for y in levels], own) for k in range(self.frames)]
        q = self.query(aligned[middle])
        weighted = [y * torch.sigmoid((self.key(y) * q).sum(1, keepdim=True) / 8) for y in aligned]
        x = F.leaky_relu(self.fuse(torch.cat(weighted, 1)), 0.1)
        for block in self.behind:
            x = x + block(x)
        for up in self.up:
            x = F.leaky_relu(F.pixel_shuffle(up(x), 2), 0.1)
        return self.last(x) + F.interpolate(video[:, middle], scale_factor=4.0, mode="bilinear", align_corners=False)


class BilateralGrid(nn.Module):
    """HDRNet (Gharbi et al., 2017): affine changes of colours on a grid of 16 x 16 x 8, read at each pixel's brightness."""

    def __init__(self, depth: int = 8):
        super().__init__()
        layers: list[nn.Module] = []
        for k, (a, b) in enumerate(((3, 8), (8, 16), (16, 32), (32, 64))):
            layers.append(conv(a, b, 3, 2) if k else nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.ReLU()))
        self.splat, self.local = (
            nn.Sequential(*layers),
            nn.Sequential(conv(64, 64), nn.Conv2d(64, 64, 3, padding=1, bias=False)),
        )
        self.whole = nn.Sequential(
            conv(64, 64, 3, 2), conv(64, 64, 3, 2), nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(),
            nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64),
        )  # fmt: skip
        self.predict, self.depth = nn.Conv2d(64, 12 * depth, 1), depth
        self.mix, self.shifts, self.slopes = (
            nn.Parameter(torch.eye(3)[:, :, None, None] + 0.1 * torch.randn(3, 3, 1, 1)),
            nn.Parameter(torch.linspace(-1, 1, 16).repeat(3, 1)),
            nn.Parameter(torch.randn(3, 16) / 8),
        )
        self.guide = nn.Conv2d(3, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        small = F.interpolate(image, size=(256, 256), mode="bilinear", align_corners=False)
        x = self.splat(small)
        x = F.relu(self.local(x) + self.whole(x)[:, :, None, None])
        grid = resize(self.predict(x), image).unflatten(1, (12, self.depth))
        bent = F.conv2d(image, self.mix).permute(0, 2, 3, 1)[..., None] - self.shifts
        bent = (F.relu(bent) * self.slopes).sum(-1).permute(0, 3, 1, 2)
        guide = torch.sigmoid(self.guide(bent)) * self.depth - 0.5
        levels = torch.arange(self.depth, device=image.device, dtype=image.dtype).view(1, -1, 1, 1)
        weights = F.relu(1 - (guide.clamp(0, self.depth - 1) - levels).abs())
        affine = (grid * weights[:, None]).sum(2).unflatten(1, (3, 4))
        return (affine[:, :, :3] * image[:, None]).sum(2) + affine[:, :, 3]


class SecondOrder(nn.Module):
    """SAN (Dai et al., 2019), three of its twenty groups: gates from covariances of channels, whose roots are iterated."""

    def __init__(self, c: int = 64, groups: int = 3, blocks: int = 5, scale: int = 2):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, c, 3, padding=1), nn.Conv2d(c, 3, 3, padding=1)

        def block() -> nn.Module:
            return nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1))

        self.blocks = nn.ModuleList(nn.ModuleList(block() for _ in range(blocks)) for _ in range(groups))
        self.gates = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, c // 16, 1), nn.ReLU(), nn.Conv2d(c // 16, c, 1), nn.Sigmoid())
            for _ in range(groups)
        )
        self.convs = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(groups))
        self.share = nn.Parameter(torch.full((groups,), 0.5))
        self.up = nn.Sequential(nn.Conv2d(c, scale**2 * c, 3, padding=1), nn.PixelShuffle(scale))

    def root(self, x: torch.Tensor) -> torch.Tensor:
        """Of symmetric matrices, by five rounds of Newton and Schulz's iteration."""
        trace = x.diagonal(dim1=1, dim2=2).sum(1)[:, None, None] + 1e-3
        three = 3 * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        y, z = x / trace, torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand_as(x)
        for _ in range(5):
            step = 0.5 * (three - z @ y)
            y, z = y @ step, step @ z
        return y * trace.sqrt()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = x = self.first(image)
        for k, (blocks, gate, last) in enumerate(zip(self.blocks, self.gates, self.convs, strict=True)):
            y = x
            for block in blocks:
                y = y + block(y)
            y = last(y)
            flat = y.flatten(2)
            flat = flat - flat.mean(2, keepdim=True)
            covariance = (flat / flat.shape[2]) @ flat.transpose(1, 2)
            x = y * gate(self.root(covariance).mean(1)[:, :, None, None]) + x + self.share[k] * first
        return self.last(self.up(x))


def video(*shape: int) -> Inputs:
    """Frames as smooth as photographs."""
    frames = shape[0]
    return lambda batch: (pictures(*shape[1:])(batch * frames)[0].unflatten(0, (batch, frames)),)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "slow_fast": (SlowFast, lambda batch: (video(32, 3, 96, 96)(batch)[0].transpose(1, 2).contiguous(),)),
    "temporal_shift": (TemporalShift, video(8, 3, 112, 112)),
    "pred_rnn": (PredRnn, normal((4, 64, 64))),
    "rife": (Rife, pictures(6, 192, 256)),
    "edvr_5": (Edvr, video(5, 3, 48, 64)),
    "hdr_net": (BilateralGrid, pictures(3, 300, 400)),
    "second_order_3": (SecondOrder, normal((3, 64, 64))),
}
