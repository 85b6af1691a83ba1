"""Speech and music, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded, tokens


class ConformerLayer(nn.Module):
    """Two halves of a feed-forward network around relative attention and a gated depthwise convolution of 31 steps."""

    def __init__(self, c: int, heads: int):
        super().__init__()
        self.heads, self.size = heads, c // heads
        self.halves = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.SiLU(), nn.Linear(4 * c, c)) for _ in range(2)
        )
        self.norm, self.conv_norm, self.last = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))
        self.position = nn.Linear(c, c, bias=False)
        self.u, self.w = (nn.Parameter(0.1 * torch.randn(heads, c // heads)) for _ in range(2))
        self.into, self.middle = nn.Conv1d(c, 2 * c, 1), nn.Conv1d(c, c, 31, padding=15, groups=c)
        self.batch_norm, self.after = nn.BatchNorm1d(c), nn.Conv1d(c, c, 1)

    def attend(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        batch, length, c = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size)
        k = self.k(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        p = self.position(positions).view(1, -1, self.heads, self.size).transpose(1, 2)
        content = (q + self.u).transpose(1, 2) @ k.transpose(-2, -1)
        where = (q + self.w).transpose(1, 2) @ p.transpose(-2, -1)
        where = F.pad(where, (1, 0)).view(batch, self.heads, 2 * length, length)  # row i is moved by length - 1 - i
        where = where[:, :, 1:].view(batch, self.heads, length, 2 * length - 1)[..., :length]
        y = ((content + where) / math.sqrt(self.size)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, c))

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = x + 0.5 * self.halves[0](x)
        x = x + self.attend(self.norm(x), positions)
        y = F.glu(self.into(self.conv_norm(x).transpose(1, 2)), 1)
        x = x + self.after(F.silu(self.batch_norm(self.middle(y)))).transpose(1, 2)
        return self.last(x + 0.5 * self.halves[1](x))


class Conformer(nn.Module):
    """The encoder of Conformer S (Gulati et al., 2020), 8 of its 16 layers: heads of 36 elements."""

    def __init__(self, c: int = 144, heads: int = 4, layers: int = 8, length: int = 333):
        super().__init__()
        self.sample = nn.Sequential(nn.Conv2d(1, c, 3, 2), nn.ReLU(), nn.Conv2d(c, c, 3, 2), nn.ReLU())
        self.into = nn.Linear(c * 19, c)
        self.layers = nn.ModuleList(ConformerLayer(c, heads) for _ in range(layers))
        place = torch.arange(length - 1, -length, -1.0)[:, None]
        rate = torch.exp(torch.arange(0, c, 2) * (-math.log(10000.0) / c))
        self.register_buffer("positions", torch.stack([torch.sin(place * rate), torch.cos(place * rate)], 2).flatten(1))
        self.last = nn.Linear(c, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.sample(x.unsqueeze(1))
        x = self.into(x.transpose(1, 2).flatten(2))
        for layer in self.layers:
            x = layer(x, self.positions)
        return self.last(x).log_softmax(-1)


class Wav2Letter(nn.Module):
    """Wav2Letter (Collobert et al., 2016): windows of 48 and 32 steps, 250 and 2000 channels."""

    def __init__(self, into: int = 80):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv1d(into, 250, 48, 2, 23), nn.ReLU()]
        for _ in range(7):
            layers += [nn.Conv1d(250, 250, 7, 1, 3), nn.ReLU()]
        layers += [nn.Conv1d(250, 2000, 32, 1, 16), nn.ReLU(), nn.Conv1d(2000, 2000, 1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv1d(2000, 40, 1))
        for layer in self.layers[::2]:
            nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.layers(x), 1)


class SpeechTransformer(nn.Module):
    """A layer of FastSpeech: attention and two convolutions, norms afterwards."""

    def __init__(self, c: int = 256, heads: int = 2, hidden: int = 1024, size: int = 9):
        super().__init__()
        self.attention, self.norm1, self.norm2 = (
            nn.MultiheadAttention(c, heads, batch_first=True),
            nn.LayerNorm(c),
            nn.LayerNorm(c),
        )
        self.one, self.two = nn.Conv1d(c, hidden, size, padding=size // 2), nn.Conv1d(hidden, c, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.two(F.relu(self.one(x.transpose(1, 2)))).transpose(1, 2))


class FastSpeech(nn.Module):
    """FastSpeech 2 (Ren et al., 2021): pitch and energy become embeddings of buckets; six frames for each phoneme."""

    def __init__(self, c: int = 256, repeats: int = 6):
        super().__init__()
        self.embed, self.repeats = nn.Embedding(80, c), repeats
        self.positions = nn.Parameter(0.1 * torch.randn(1, 800, c))
        self.encoder = nn.Sequential(*(SpeechTransformer(c) for _ in range(4)))
        self.decoder = nn.Sequential(*(SpeechTransformer(c) for _ in range(6)))
        self.predict = nn.ModuleList(
            nn.ModuleList(
                [nn.Conv1d(c, c, 3, 1, 1), nn.LayerNorm(c), nn.Conv1d(c, c, 3, 1, 1), nn.LayerNorm(c), nn.Linear(c, 1)]
            )
            for _ in range(3)
        )
        self.shades = nn.ModuleList(nn.Conv1d(1, c, 9, padding=4) for _ in range(2))
        self.mel = nn.Linear(c, 80)
        parts: list[nn.Module] = []
        for k in range(5):
            parts += [nn.Conv1d(512 if k else 80, 512 if k < 4 else 80, 5, 1, 2), nn.BatchNorm1d(512 if k < 4 else 80)]
            parts += [nn.Tanh()] if k < 4 else []
        self.post = nn.Sequential(*parts)

    def variance(self, layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        one, norm1, two, norm2, last = layers
        y = norm1(F.relu(one(x.transpose(1, 2))).transpose(1, 2))
        y = norm2(F.relu(two(y.transpose(1, 2))).transpose(1, 2))
        return last(y).squeeze(-1)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.embed(ids)
        x = self.encoder(x + self.positions[:, : x.shape[1]])
        lengths, pitch, energy = (self.variance(p, x) for p in self.predict)
        for shade, value in zip(self.shades, (pitch, energy), strict=True):
            x = x + shade(value[:, None]).transpose(1, 2)
        x = torch.repeat_interleave(x, self.repeats, dim=1)
        y = self.mel(self.decoder(x + self.positions[:, : x.shape[1]]))
        return y, y + self.post(y.transpose(1, 2)).transpose(1, 2), lengths


class WaveGlow(nn.Module):
    """WaveGlow from mel spectra to sound (Prenger et al., 2019), four of twelve flows: inverse coupling, 1 x 1 products."""

    def __init__(self, width: int = 256, flows: int = 4, layers: int = 8, group: int = 8):
        super().__init__()
        self.width, self.group = width, group
        self.up = nn.ConvTranspose1d(80, 80, 1024, 256)
        half = group // 2
        self.mixes = nn.ParameterList(
            nn.Parameter(torch.linalg.qr(torch.randn(group, group))[0][:, :, None]) for _ in range(flows)
        )
        self.starts = nn.ModuleList(nn.Conv1d(half, width, 1) for _ in range(flows))
        self.conditions = nn.ModuleList(nn.Conv1d(80 * group, 2 * width * layers, 1) for _ in range(flows))
        self.dilated = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=2**k, dilation=2**k) for k in range(layers))
            for _ in range(flows)
        )
        self.skips = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(width, 2 * width if k < layers - 1 else width, 1) for k in range(layers))
            for _ in range(flows)
        )
        self.ends = nn.ModuleList(nn.Conv1d(width, group, 1) for _ in range(flows))

    def couple(self, k: int, audio: torch.Tensor, spectrum: torch.Tensor) -> torch.Tensor:
        x, total = self.starts[k](audio), 0
        conditions, w = self.conditions[k](spectrum), self.width
        for n, (dilated, skip) in enumerate(zip(self.dilated[k], self.skips[k], strict=True)):
            y = dilated(x) + conditions[:, 2 * w * n : 2 * w * (n + 1)]
            y = skip(torch.tanh(y[:, :w]) * torch.sigmoid(y[:, w:]))
            if n < len(self.skips[k]) - 1:
                x, y = x + y[:, :w], y[:, w:]
            total = total + y
        return self.ends[k](total)

    def forward(self, mel: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        batch = mel.shape[0]
        spectrum = self.up(mel)[:, :, : -(1024 - 256)]
        spectrum = spectrum.unfold(2, self.group, self.group).permute(0, 2, 1, 3)
        spectrum = spectrum.reshape(batch, spectrum.shape[1], -1).permute(0, 2, 1)
        audio, half = noise, self.group // 2
        for k in reversed(range(len(self.mixes))):
            first, second = audio[:, :half], audio[:, half:]
            shift, scale = self.couple(k, first, spectrum).chunk(2, 1)
            audio = torch.cat([first, (second - shift) / torch.exp(scale)], 1)
            audio = F.conv1d(audio, self.mixes[k])
        return audio.permute(0, 2, 1).reshape(batch, -1)


class DualPath(nn.Module):
    """DPRNN (Luo et al., 2020): LSTMs within overlapping chunks of a signal and across them."""

    def __init__(self, c: int = 64, hidden: int = 128, layers: int = 3, chunk: int = 100):
        super().__init__()
        self.chunk = chunk
        self.encoder, self.decoder = nn.Conv1d(1, c, 16, 8, bias=False), nn.ConvTranspose1d(c, 1, 16, 8, bias=False)
        self.norm, self.first = nn.GroupNorm(1, c), nn.Conv1d(c, c, 1)
        self.lstms = nn.ModuleList(nn.LSTM(c, hidden, batch_first=True, bidirectional=True) for _ in range(2 * layers))
        self.lines = nn.ModuleList(nn.Linear(2 * hidden, c) for _ in range(2 * layers))
        self.norms = nn.ModuleList(nn.GroupNorm(1, c) for _ in range(2 * layers))
        self.masks = nn.Sequential(nn.PReLU(), nn.Conv2d(c, 2 * c, 1))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        e = self.encoder(sound)
        x = self.first(self.norm(e))
        batch, c, steps = x.shape
        hop = self.chunk // 2
        gap = (hop - steps % hop) % hop
        x = F.pad(x, (hop, gap + hop))
        x = x.unfold(2, self.chunk, hop)  # batch, c, chunks, steps of a chunk
        chunks = x.shape[2]
        for k, (lstm, line, norm) in enumerate(zip(self.lstms, self.lines, self.norms, strict=True)):
            if k % 2 == 0:
                y = x.permute(0, 2, 3, 1).reshape(batch * chunks, self.chunk, c)
                y = line(lstm(y)[0]).view(batch, chunks, self.chunk, c).permute(0, 3, 1, 2)
            else:
                y = x.permute(0, 3, 2, 1).reshape(batch * self.chunk, chunks, c)
                y = line(lstm(y)[0]).view(batch, self.chunk, chunks, c).permute(0, 3, 2, 1)
            x = x + norm(y)
        x = self.masks(x).reshape(batch * 2, c, chunks, 2, hop)
        both = F.pad(x[:, :, :, 0], (0, 0, 0, 1)) + F.pad(x[:, :, :, 1], (0, 0, 1, 0))  # the halves that overlap
        masks = both.reshape(batch, 2, c, -1)[..., hop : hop + steps].relu()
        return self.decoder((masks * e[:, None]).reshape(batch * 2, c, steps)).reshape(batch, 2, -1)


class Demucs(nn.Module):
    """Demucs (Defossez et al., 2019) of 48 channels at first: strided and transposed convolutions of waves, gates, two LSTM layers."""

    def __init__(self, channels: int = 48, depth: int = 5):
        super().__init__()
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for k in range(depth):
            a, b = (2 if k == 0 else channels * 2 ** (k - 1)), channels * 2**k
            self.encoder.append(nn.Sequential(nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)))
            layers = [nn.Conv1d(b, 2 * b, 3, padding=1), nn.GLU(1), nn.ConvTranspose1d(b, a if k else 8, 8, 4)]
            self.decoder.insert(0, nn.Sequential(*layers, *([nn.ReLU()] if k else [])))
        self.lstm, self.line = nn.LSTM(b, b, 2, batch_first=True, bidirectional=True), nn.Linear(2 * b, b)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv1d, nn.ConvTranspose1d)):
                nn.init.kaiming_normal_(
                    layer.weight, mode="fan_out" if isinstance(layer, nn.ConvTranspose1d) else "fan_in"
                )

    def forward(self, mix: torch.Tensor) -> torch.Tensor:
        x, skips = mix, []
        for layer in self.encoder:
            x = layer(x)
            skips.append(x)
        x = self.line(self.lstm(x.permute(0, 2, 1))[0]).permute(0, 2, 1)
        for layer in self.decoder:
            skip = skips.pop()
            gap = skip.shape[-1] - x.shape[-1]
            x = layer(x + skip[..., gap // 2 : gap // 2 + x.shape[-1]])
        return x.view(x.shape[0], 4, 2, x.shape[-1])


class OpenUnmix(nn.Module):
    """Open-Unmix (Stoeter et al., 2019): a mask of the spectrum by three bidirectional LSTM layers."""

    def __init__(self, bins: int = 2049, kept: int = 1487, hidden: int = 512):
        super().__init__()
        self.kept, self.bins = kept, bins
        self.mean, self.scale = nn.Parameter(torch.zeros(kept)), nn.Parameter(torch.ones(kept))
        self.one, self.norm1 = nn.Linear(2 * kept, hidden, bias=False), nn.BatchNorm1d(hidden)
        self.lstm = nn.LSTM(hidden, hidden // 2, 3, batch_first=True, bidirectional=True)
        self.two, self.norm2 = nn.Linear(2 * hidden, hidden, bias=False), nn.BatchNorm1d(hidden)
        self.three, self.norm3 = nn.Linear(hidden, 2 * bins, bias=False), nn.BatchNorm1d(2 * bins)
        self.out_scale, self.out_mean = nn.Parameter(torch.ones(bins)), nn.Parameter(torch.ones(bins))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mix = x
        batch, channels, _, frames = x.shape
        x = (x[:, :, : self.kept].permute(0, 3, 1, 2) + self.mean) * self.scale
        x = self.one(x.reshape(-1, channels * self.kept))
        x = torch.tanh(self.norm1(x)).view(batch, frames, -1)
        x = torch.cat([x, self.lstm(x)[0]], -1)
        x = F.relu(self.norm2(self.two(x.reshape(batch * frames, -1))))
        x = self.norm3(self.three(x)).view(batch, frames, channels, self.bins)
        x = x * self.out_scale + self.out_mean
        return F.relu(x).permute(0, 2, 3, 1) * mix


class SpectrumCnn(nn.Module):
    """PANNs' Cnn10 (Kong et al., 2020): sound becomes a mel spectrum by convolutions along time."""

    def __init__(self, window: int = 1024, hop: int = 320, mels: int = 64):
        super().__init__()
        self.window, self.hop = window, hop
        n, k = torch.arange(window)[None], torch.arange(window // 2 + 1)[:, None]
        hann = 0.5 - 0.5 * torch.cos(2 * math.pi * n / window)
        angle = 2 * math.pi * (n * k % window) / window
        self.register_buffer(
            "waves", (torch.cat([torch.cos(angle), -torch.sin(angle)]) * hann)[:, None] / math.sqrt(window)
        )
        centres = torch.linspace(2, window // 2 - 8, mels)
        self.register_buffer("mels", (1 - (k - centres).abs() / 8).clamp(min=0) / 8)
        self.norm, self.layers = nn.BatchNorm2d(mels), nn.ModuleList()
        for a, b in ((1, 64), (64, 128), (128, 256), (256, 512)):
            layers = [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
            self.layers.append(
                nn.Sequential(*layers, nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            )
        self.after, self.last = nn.Linear(512, 512), nn.Linear(512, 527)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        x = F.pad(sound[:, None], (self.window // 2, self.window // 2), mode="reflect")
        real, imaginary = F.conv1d(x, self.waves, stride=self.hop).chunk(2, 1)
        power = (real**2 + imaginary**2).transpose(1, 2)
        x = 10 * torch.log10(torch.clamp(power @ self.mels, min=1e-3))
        x = self.norm(x.unsqueeze(1).transpose(1, 3)).transpose(1, 3)
        for layer in self.layers:
            x = F.avg_pool2d(layer(x), 2)
        x = x.mean(3)
        x = F.relu(self.after(x.amax(2) + x.mean(2)))
        return torch.sigmoid(self.last(x))


class ComplexConv(nn.Module):
    """Halves of the channels are real and imaginary parts."""

    def __init__(self, a: int, b: int, transposed: bool = False):
        super().__init__()
        kind = nn.ConvTranspose2d if transposed else nn.Conv2d
        pads = {"padding": (2, 0), "output_padding": (1, 0)} if transposed else {"padding": (2, 0)}
        self.real, self.imaginary = (kind(a // 2, b // 2, (5, 2), (2, 1), **pads) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        re, im = torch.chunk(x, 2, 1)
        return torch.cat([self.real(re) - self.imaginary(im), self.real(im) + self.imaginary(re)], 1)


class ComplexMask(nn.Module):
    """DCCRN (Hu et al., 2020): complex convolutions and LSTMs of a spectrum by convolutions, a mask of sizes and phases."""

    def __init__(
        self, window: int = 400, hop: int = 100, size: int = 512, widths: tuple[int, ...] = (32, 64, 128, 256, 256)
    ):
        super().__init__()
        self.hop, self.gap = hop, window - hop
        n, k = torch.arange(window)[None], torch.arange(size // 2 + 1)[:, None]
        hann, angle = 0.5 - 0.5 * torch.cos(2 * math.pi * n / window), 2 * math.pi * (n * k % size) / size
        waves = torch.cat([torch.cos(angle), -torch.sin(angle)])
        self.register_buffer("forwards", (waves * hann)[:, None] / 8)
        self.register_buffer("back", (waves * hann)[:, None] * 16 / size)
        pairs = list(zip((2, *widths), widths))
        self.encoder = nn.ModuleList(nn.Sequential(ComplexConv(a, b), nn.BatchNorm2d(b), nn.PReLU()) for a, b in pairs)
        self.decoder = nn.ModuleList(
            nn.Sequential(ComplexConv(2 * b, a, True), *([nn.BatchNorm2d(a), nn.PReLU()] if a > 2 else []))
            for a, b in pairs[::-1]
        )
        rows = size // 2 // 2 ** len(widths)
        self.lstms = nn.ModuleList(nn.LSTM(rows * widths[-1] // 2, 128, 2, batch_first=True) for _ in range(2))
        self.lines = nn.ModuleList(nn.Linear(128, rows * widths[-1] // 2) for _ in range(2))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        spectrum = F.conv1d(F.pad(sound[:, None], (self.gap, self.gap)), self.forwards, stride=self.hop)
        re, im = torch.chunk(spectrum, 2, 1)
        x, skips = torch.stack([re, im], 1)[:, :, 1:], []
        for layer in self.encoder:
            x = layer(F.pad(x, (1, 0)))
            skips.append(x)
        batch, channels, rows, frames = x.shape
        a, b = (t.permute(0, 3, 1, 2).flatten(2) for t in x.chunk(2, 1))
        real, imaginary = self.lstms
        a, b = real(a)[0] - imaginary(b)[0], real(b)[0] + imaginary(a)[0]
        parts = [
            line(t).reshape(batch, frames, channels // 2, rows) for line, t in zip(self.lines, (a, b), strict=True)
        ]
        x = torch.cat(parts, 2).permute(0, 2, 3, 1)
        for layer in self.decoder:
            x = [t for pair in zip(x.chunk(2, 1), skips.pop().chunk(2, 1), strict=True) for t in pair]
            x = layer(torch.cat([x[0], x[1], x[2], x[3]], 1))[..., 1:]
        mask = F.pad(x, (0, 0, 1, 0))
        length = torch.sqrt(mask[:, 0] ** 2 + mask[:, 1] ** 2 + 1e-4)
        cosine, sine, size = mask[:, 0] / length, mask[:, 1] / length, torch.tanh(length)
        clean = torch.cat([(re * cosine - im * sine) * size, (re * sine + im * cosine) * size], 1)
        return F.conv_transpose1d(clean, self.back, stride=self.hop)[:, 0, self.gap : -self.gap]


def conditions(batch: int, frames: int = 33) -> tuple[torch.Tensor, ...]:
    r = seeded()
    return torch.randn(batch, 80, frames, generator=r), 0.6 * torch.randn(batch, 8, frames * 32, generator=r)


def spectra(batch: int, frames: int = 255) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 2, 2049, frames, generator=seeded()).abs(),)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "conformer_8": (Conformer, normal((1335, 80))),
    "wav2letter": (Wav2Letter, normal((80, 1000))),
    "fastspeech2": (FastSpeech, tokens(77, 80)),
    "waveglow_4": (WaveGlow, conditions),
    "dprnn_3": (DualPath, normal((1, 16000))),
    "demucs": (Demucs, normal((2, 42324))),
    "open_unmix": (OpenUnmix, spectra),
    "panns_cnn10": (SpectrumCnn, normal((32000,))),
    "dccrn": (ComplexMask, normal((16000,))),
}
