"""Small networks of products, for the zoo: windows of volumes, regions of text, faces, speakers, notes, voice activity and styles
of speech."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded


class WindowLayer(nn.Module):
    """A Swin block over windows of 7 x 7 x 7, padded to them."""

    def __init__(self, c: int, heads: int, side: int, shifted: bool, window: int = 7):
        super().__init__()
        self.heads, self.window, self.shift = heads, min(window, side), window // 2 if shifted and side > window else 0
        n = self.window
        self.norm1, self.norm2, self.qkv, self.out = (
            nn.LayerNorm(c),
            nn.LayerNorm(c),
            nn.Linear(c, 3 * c),
            nn.Linear(c, c),
        )
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
        self.table = nn.Parameter(0.3 * torch.randn((2 * window - 1) ** 3, heads))
        at = torch.stack(torch.meshgrid(*(torch.arange(n),) * 3, indexing="ij")).flatten(1)
        far = at[:, :, None] - at[:, None] + window - 1
        self.register_buffer("index", ((far[0] * (2 * window - 1) + far[1]) * (2 * window - 1) + far[2]).flatten())
        whole = -(-side // n) * n
        part = torch.zeros(whole, whole, whole)
        for d in range(3 if self.shift else 0):
            line = torch.zeros(whole)
            line[whole - n : whole - self.shift], line[whole - self.shift :] = 1, 2
            part = part * 3 + line.view([-1 if k == d else 1 for k in range(3)])
        parts = self.split(part[None, ..., None])[..., 0]
        self.register_buffer("mask", (parts[:, None] != parts[:, :, None]).float() * -100.0 if self.shift else None)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        n = self.window
        x = x.unflatten(3, (-1, n)).unflatten(2, (-1, n)).unflatten(1, (-1, n))
        return x.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(4, 6).flatten(0, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, side, c = x.shape[0], x.shape[1], x.shape[4]
        n, more = self.window, -side % self.window
        y = F.pad(self.norm1(x), (0, 0, 0, more, 0, more, 0, more))
        whole = side + more
        if self.shift:
            y = y.roll((-self.shift,) * 3, (1, 2, 3))
        q, k, v = self.qkv(self.split(y)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
        scores = scores + self.table[self.index].view(n**3, n**3, -1).permute(2, 0, 1)
        if self.mask is not None:
            scores = (scores.unflatten(0, (b, -1)) + self.mask[:, None]).flatten(0, 1)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        m = whole // n
        y = y.view(b, m, m, m, n, n, n, c).permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(b, whole, whole, whole, c)
        if self.shift:
            y = y.roll((self.shift,) * 3, (1, 2, 3))
        x = x + y[:, :side, :side, :side]
        return x + self.mlp(self.norm2(x))


class WindowedVolumes(nn.Module):
    """Swin UNETR (Hatamizadeh et al., 2022), width 24, three stages of volumes of 64: windows of 7 x 7 x 7 that are padded, merged by eight, and
    a decoder with instance norms."""

    def __init__(self, c: int = 24, side: int = 64, classes: int = 4):
        super().__init__()
        self.patch = nn.Conv3d(1, c, 2, 2)
        self.stages, self.merges = nn.ModuleList(), nn.ModuleList()
        for k in range(3):
            n, s = c << k, side >> (k + 1)
            self.stages.append(nn.Sequential(*(WindowLayer(n, 3 << k, s, j == 1) for j in range(2))))
            self.merges.append(nn.Sequential(nn.LayerNorm(8 * n), nn.Linear(8 * n, 2 * n, bias=False)))

        def res(a: int, b: int) -> nn.Sequential:
            norm = lambda: nn.InstanceNorm3d(b)
            return nn.Sequential(
                nn.Conv3d(a, b, 3, 1, 1, bias=False),
                norm(),
                nn.LeakyReLU(0.01),
                nn.Conv3d(b, b, 3, 1, 1, bias=False),
                norm(),
                nn.LeakyReLU(0.01),
            )

        self.first = res(1, c)
        self.encode = nn.ModuleList(res(n, n) for n in (c, 2 * c, 4 * c))
        self.up = nn.ModuleList(
            nn.ConvTranspose3d(a, b, 2, 2, bias=False) for a, b in ((8 * c, 4 * c), (4 * c, 2 * c), (2 * c, c), (c, c))
        )
        self.decode = nn.ModuleList(res(2 * n, n) for n in (4 * c, 2 * c, c, c))
        self.last = nn.Conv3d(c, classes, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept, x = [self.first(image)], self.patch(image).permute(0, 2, 3, 4, 1)
        plain = lambda t: F.layer_norm(t, t.shape[-1:]).permute(0, 4, 1, 2, 3)
        for stage, merge, encode in zip(self.stages, self.merges, self.encode, strict=True):
            x = stage(x)
            kept.append(encode(plain(x)))
            parts = [x[:, i::2, j::2, k::2] for i in range(2) for j in range(2) for k in range(2)]
            x = merge(torch.cat(parts, -1))
        y = plain(x)
        for up, decode in zip(self.up, self.decode, strict=True):
            y = decode(torch.cat([up(y), kept.pop()], 1))
        return self.last(y)


class TextRegions(nn.Module):
    """DBNet++ (Liao et al., 2022) on a ResNet-18: scales of a pyramid weighted by spatial attention, and a differentiable threshold."""

    def __init__(self, c: int = 256):
        super().__init__()
        import torchvision.models as models

        net = models.resnet18(weights=None)
        self.stem, self.stages = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool), nn.ModuleList((net.layer1, net.layer2, net.layer3, net.layer4))  # fmt: skip
        self.lateral = nn.ModuleList(nn.Conv2d(n, c, 1, bias=False) for n in (64, 128, 256, 512))
        self.smooth = nn.ModuleList(nn.Conv2d(c, c // 4, 3, padding=1, bias=False) for _ in range(4))
        self.mix = nn.Conv2d(c, c // 4, 3, padding=1)
        self.channel = nn.Sequential(
            nn.Conv2d(c // 4, c // 16, 1, bias=False),
            nn.ReLU(),
            nn.Conv2d(c // 16, c // 4, 1, bias=False),
            nn.Sigmoid(),
        )
        self.spatial = nn.Sequential(
            nn.Conv2d(1, 1, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(1, 1, 1, bias=False), nn.Sigmoid()
        )
        self.weights = nn.Sequential(nn.Conv2d(c // 4, 4, 1, bias=False), nn.Sigmoid())
        up = lambda a, b: nn.ConvTranspose2d(a, b, 2, 2)
        head = lambda: nn.Sequential(nn.Conv2d(c, c // 4, 3, padding=1, bias=False), nn.BatchNorm2d(c // 4), nn.ReLU(), up(c // 4, c // 4), nn.BatchNorm2d(c // 4), nn.ReLU(), up(c // 4, 1), nn.Sigmoid())  # fmt: skip
        self.chance, self.threshold = head(), head()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, maps = self.stem(x), []
        for stage, lateral in zip(self.stages, self.lateral, strict=True):
            x = stage(x)
            maps.append(lateral(x))
        for k in (2, 1, 0):
            maps[k] = maps[k] + F.interpolate(maps[k + 1], scale_factor=2, mode="nearest")
        maps = [
            F.interpolate(f(m), size=maps[0].shape[2:], mode="nearest") for f, m in zip(self.smooth, maps, strict=True)
        ]
        y = self.mix(torch.cat(maps, 1))
        z = self.channel(y.mean((2, 3), keepdim=True)) + y
        z = self.spatial(z.mean(1, keepdim=True)) + z
        weights = self.weights(z)
        fused = torch.cat([weights[:, k : k + 1] * m for k, m in enumerate(maps)], 1)
        chance, threshold = self.chance(fused), self.threshold(fused)
        return torch.cat([chance, threshold, 1 / (1 + (-50 * (chance - threshold)).exp())], 1)


class FaceBoxes(nn.Module):
    """BlazeFace (Bazarevsky et al., 2019): blocks of 5 x 5 depthwise convolutions with padded channels, 896 anchors."""

    def __init__(self) -> None:
        super().__init__()
        widths = (24, 24, 28, 32, 36, 42, 48, 56, 64, 72, 80, 88, 96, 96, 96, 96, 96)
        steps = {3: 2, 6: 2, 12: 2}
        self.first, self.pairs = (
            nn.Conv2d(3, 24, 5, 2),
            list(zip(widths[:-1], widths[1:], [steps.get(k, 1) for k in range(1, 17)], strict=True)),
        )
        block = lambda a, b, s: nn.Sequential(nn.Conv2d(a, a, 3, s, 0 if s == 2 else 1, groups=a), nn.Conv2d(a, b, 1))
        self.blocks = nn.ModuleList(block(*p) for p in self.pairs)
        self.heads = nn.ModuleList(nn.Conv2d(a, n, 1) for a, n in ((88, 2), (96, 6), (88, 32), (96, 96)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, kept = F.relu(self.first(F.pad(x, (1, 2, 1, 2)))), None
        for k, (block, (a, b, step)) in enumerate(zip(self.blocks, self.pairs, strict=True)):
            y, short = (F.pad(x, (0, 1, 0, 1)), F.max_pool2d(x, 2, 2)) if step == 2 else (x, x)
            kept = x if k == 11 else kept
            x = F.relu(block(y) + F.pad(short, (0, 0, 0, 0, 0, b - a)))
        rows = lambda f, t, n: f(t).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, n))
        s, t, u, v = self.heads
        return torch.cat([rows(s, kept, 1), rows(t, x, 1)], 1).sigmoid(), torch.cat(
            [rows(u, kept, 16), rows(v, x, 16)], 1
        )


class MaskedDense(nn.Module):
    """CAM++'s dense layer: convolved frames are masked by the context of the whole and of segments of 100 frames."""

    def __init__(self, a: int, growth: int = 32, inner: int = 128, dilation: int = 1):
        super().__init__()
        self.norm1, self.one, self.norm2 = nn.BatchNorm1d(a), nn.Conv1d(a, inner, 1, bias=False), nn.BatchNorm1d(inner)
        self.local = nn.Conv1d(inner, growth, 3, padding=dilation, dilation=dilation, bias=False)
        self.less, self.more = nn.Conv1d(inner, inner // 2, 1), nn.Conv1d(inner // 2, growth, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm2(self.one(F.relu(self.norm1(x)))))
        segments = F.avg_pool1d(y, 100, 100, ceil_mode=True)
        n = segments.shape[2]
        segments = segments[..., None].expand(-1, -1, -1, 100).reshape(*segments.shape[:2], n * 100)[..., : y.shape[2]]
        mask = self.more(F.relu(self.less(y.mean(2, keepdim=True) + segments))).sigmoid()
        return torch.cat([x, self.local(y) * mask], 1)


class MaskedSpeaker(nn.Module):
    """CAM++ (Wang et al., 2023) with 6, 8 and 6 dense layers: 80 bands of 300 frames to an embedding of 192."""

    def __init__(self, growth: int = 32):
        super().__init__()
        conv = lambda a, b, s: nn.Sequential(nn.Conv2d(a, b, 3, (s, 1), 1, bias=False), nn.BatchNorm2d(b))
        self.stem = nn.Sequential(conv(1, 32, 1), nn.ReLU(), conv(32, 32, 2), nn.ReLU(), conv(32, 32, 1), nn.ReLU(), conv(32, 32, 2), nn.ReLU(), conv(32, 32, 2), nn.ReLU())  # fmt: skip
        layers, c = [nn.Conv1d(320, 128, 5, 2, 2, bias=False), nn.BatchNorm1d(128), nn.ReLU()], 128
        for count, dilation in ((6, 1), (8, 2), (6, 2)):
            for _ in range(count):
                layers.append(MaskedDense(c, growth, dilation=dilation))
                c += growth
            layers += [nn.BatchNorm1d(c), nn.ReLU(), nn.Conv1d(c, c // 2, 1, bias=False)]
            c //= 2
        self.layers = nn.Sequential(*layers, nn.BatchNorm1d(c), nn.ReLU())
        self.last = nn.Sequential(nn.Linear(2 * c, 192, bias=False), nn.BatchNorm1d(192, affine=False))

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.stem(bands[:, None]).flatten(1, 2))
        return self.last(torch.cat([x.mean(2), x.std(2)], 1))


class Notes(nn.Module):
    """Basic Pitch (Bittner et al., 2022): a spectrum with shifted copies for eight harmonics, wide kernels, three maps of notes."""

    def __init__(self) -> None:
        super().__init__()
        self.shifts = [-36, 0, 36, 57, 72, 84, 93, 101]
        conv = lambda a, b, k, s=(1, 1): nn.Sequential(
            nn.Conv2d(a, b, k, s, (k[0] // 2, k[1] // 2)), nn.BatchNorm2d(b), nn.ReLU()
        )
        self.level = nn.BatchNorm2d(1)
        self.contour = nn.Sequential(
            conv(8, 8, (3, 39)), conv(8, 8, (5, 5)), nn.Conv2d(8, 1, 5, padding=2), nn.Sigmoid()
        )
        self.note = nn.Sequential(
            nn.Conv2d(1, 32, 7, (1, 3), (3, 2)), nn.ReLU(), nn.Conv2d(32, 1, (7, 3), padding=(3, 1)), nn.Sigmoid()
        )
        self.onset = conv(8, 32, (5, 5), (1, 3))
        self.onset_out = nn.Sequential(nn.Conv2d(33, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, power: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = 10 * (power + 1e-3).log10()
        low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
        x = self.level(((x - low) / (high - low))[:, None])
        shifted = [F.pad(x, (-s, s)) for s in self.shifts]
        x = torch.cat(shifted, 1)
        contour = self.contour(x)
        note = self.note(contour)
        onset = self.onset_out(torch.cat([note, self.onset(x)[..., : note.shape[3]]], 1))
        return contour[:, 0], note[:, 0], onset[:, 0]


class VoiceActivity(nn.Module):
    """Silero's detector of voices (2024): 31 chunks of 576 samples by a convolution with the windowed waves of a Fourier transform,
    four convolutions, and an LSTM over chunks."""

    def __init__(self, chunk: int = 512, before: int = 64, bins: int = 129):
        super().__init__()
        self.chunk, self.before = chunk, before
        angles = 2 * math.pi * torch.arange(256) * torch.arange(bins)[:, None] / 256
        window = torch.hann_window(256)
        self.register_buffer("waves", (torch.cat([angles.cos(), -angles.sin()]) * window)[:, None])
        conv = lambda a, b, s: nn.Sequential(nn.Conv1d(a, b, 3, s, 1), nn.ReLU())
        self.convs = nn.Sequential(conv(bins, 128, 1), conv(128, 64, 2), conv(64, 64, 2), conv(64, 128, 1))
        self.lstm, self.last = nn.LSTM(128, 128, batch_first=True), nn.Conv1d(128, 1, 1)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        b = sound.shape[0]
        x = F.pad(sound, (self.before, 0)).unfold(1, self.chunk + self.before, self.chunk)
        n = x.shape[1]
        x = F.pad(x.flatten(0, 1)[:, None], (0, 64), mode="reflect")
        re, im = F.conv1d(x, self.waves, stride=128).chunk(2, 1)
        x = self.convs((re.square() + im.square() + 1e-12).sqrt())
        y = self.lstm(x.mean(2).unflatten(0, (b, n)))[0]
        return self.last(F.relu(y).transpose(1, 2)).sigmoid()


class StyledBlock(nn.Module):
    """Three dilated convolutions with instance norms that a style scales, and periodic activations."""

    def __init__(self, c: int, style: int, taps: int = 3):
        super().__init__()
        self.one = nn.ModuleList(nn.Conv1d(c, c, taps, padding=d * (taps // 2), dilation=d) for d in (1, 3, 5))
        self.two = nn.ModuleList(nn.Conv1d(c, c, taps, padding=taps // 2) for _ in range(3))
        self.mods = nn.ModuleList(nn.Linear(style, 2 * c) for _ in range(6))
        self.alphas = nn.ParameterList(nn.Parameter(torch.ones(1, c, 1)) for _ in range(6))

    def norm(self, k: int, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        scale, shift = self.mods[k](style)[..., None].chunk(2, 1)
        y = (1 + scale) * F.instance_norm(x) + shift
        return y + (1 / self.alphas[k]) * (self.alphas[k] * y).sin().square()

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        for k, (one, two) in enumerate(zip(self.one, self.two, strict=True)):
            y = one(self.norm(2 * k, x, style))
            x = x + two(self.norm(2 * k + 1, y, style))
        return x


class StyledVoice(nn.Module):
    """The decoder of StyleTTS 2 (Li et al., 2023), narrow: harmonics of the pitch, two upsamplings with styled blocks, and an inverse
    short Fourier transform of 20 samples."""

    def __init__(self, c: int = 256, style: int = 128):
        super().__init__()
        self.first, self.merge = nn.Conv1d(512, c, 7, padding=3), nn.Linear(9, 1)
        self.up = nn.ModuleList(
            (nn.ConvTranspose1d(c, c // 2, 20, 10, 5), nn.ConvTranspose1d(c // 2, c // 4, 12, 6, 3))
        )
        self.source = nn.ModuleList((nn.Conv1d(33, c // 2, 12, 6, 3), nn.Conv1d(33, c // 4, 1)))
        self.source_blocks = nn.ModuleList((StyledBlock(c // 2, style, 7), StyledBlock(c // 4, style, 11)))
        self.blocks = nn.ModuleList(
            nn.ModuleList(StyledBlock(c >> (k + 1), style, t) for t in (3, 7, 11)) for k in range(2)
        )
        self.last = nn.Conv1d(c // 4, 22, 7, padding=3)
        angles = 2 * math.pi * torch.arange(11)[:, None] * torch.arange(20) / 20
        window = torch.hann_window(20)
        share = torch.where((torch.arange(11) % 10) == 0, 1.0, 2.0)[:, None] / 20
        self.register_buffer("forth", (torch.cat([angles.cos(), -angles.sin()]) * window)[:, None])
        self.register_buffer("back", (torch.cat([share * angles.cos(), -share * angles.sin()]) * window)[:, None])

    def forward(self, x: torch.Tensor, pitch: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        # Cycles at the start of each frame of 300 samples, of whole numbers of Hz, without those that are complete.
        f0 = pitch[..., None] * torch.arange(1, 10, device=x.device)
        cycles = (f0 * 300 % 24000).float() / 24000
        start = (cycles.cumsum(1) - cycles)[:, :, None]
        phase = (start + f0[:, :, None].float() / 24000 * torch.arange(300, device=x.device)[:, None]).flatten(1, 2)
        phase = phase - phase.floor()
        sound = self.merge((2 * math.pi * phase).sin().to(x.dtype)).tanh().transpose(1, 2)
        spectrum = F.conv1d(F.pad(sound, (10, 10), mode="reflect"), self.forth, stride=5)
        re, im = spectrum.chunk(2, 1)
        size = (re.square() + im.square() + 1e-3).sqrt()
        harmonics = torch.cat([size, re / size, im / size], 1)
        x = self.first(x)
        for k, (up, blocks) in enumerate(zip(self.up, self.blocks, strict=True)):
            x = up(F.leaky_relu(x, 0.1))
            source = self.source_blocks[k](self.source[k](harmonics), style)
            x = F.pad(x, (1, 0), mode="reflect") if k == 1 else x
            x = x + source[..., : x.shape[2]]
            x = sum(block(x, style) for block in blocks) / 3
        size, angle = self.last(F.leaky_relu(x)).chunk(2, 1)
        size, angle = size.clamp(max=4).exp(), angle.sin()
        return F.conv_transpose1d(torch.cat([size * angle.cos(), size * angle.sin()], 1), self.back, stride=5)


def spoken(batch: int) -> tuple[torch.Tensor, ...]:
    """Features of 80 frames, pitches in Hz and a style."""
    r = seeded()
    x, pitch = torch.randn(batch, 512, 80, generator=r), torch.randint(80, 400, (batch, 80), generator=r)
    return x, pitch, torch.randn(batch, 128, generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "swin_unetr": (WindowedVolumes, normal((1, 64, 64, 64))),
    "db_net": (TextRegions, pictures(3, 480, 640)),
    "blaze_face": (FaceBoxes, pictures(3, 128, 128)),
    "cam_plus": (MaskedSpeaker, lambda batch: (pictures(1, 80, 300)(batch)[0].squeeze(1),)),
    "basic_pitch": (Notes, lambda batch: (torch.rand(batch, 172, 264, generator=seeded()),)),
    "silero_vad": (VoiceActivity, normal((15872,))),
    "style_tts": (StyledVoice, spoken),
}
