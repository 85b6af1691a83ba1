"""Codecs, vocoders and separation of sound, for the zoo: residual codebooks, inverse transforms, oscillators, beams."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class CausalConv(nn.Module):
    """Padded by reflection on the left only."""

    def __init__(self, a: int, b: int, size: int, stride: int = 1):
        super().__init__()
        self.conv, self.pad = nn.utils.parametrizations.weight_norm(nn.Conv1d(a, b, size, stride)), size - stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x, (self.pad, 0), mode="reflect"))


class CodecBlock(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.one, self.two, self.short = CausalConv(c, c // 2, 3), CausalConv(c // 2, c, 1), CausalConv(c, c, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.short(x) + self.two(F.elu(self.one(F.elu(x))))


class ResidualCodes(nn.Module):
    """Each codebook quantises what the ones before it left."""

    def __init__(self, books: int, entries: int, c: int):
        super().__init__()
        scale = 0.8 ** torch.arange(books)[:, None, None]
        self.books = nn.Parameter(torch.randn(books, entries, c) * scale)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rest, codes = x.transpose(1, 2), []
        total = torch.zeros_like(rest)
        for book in self.books.unbind(0):
            far = rest.square().sum(-1, keepdim=True) - 2 * rest @ book.t() + book.square().sum(-1)
            code = (-far).argmax(-1)
            found = F.embedding(code, book)
            rest, total = rest - found, total + found
            codes.append(code)
        return total.transpose(1, 2), torch.stack(codes, 1)


class Encodec(nn.Module):
    """EnCodec at 24 kHz (Defossez et al., 2022), two thirds of a second: convolutions, two LSTM layers, eight codebooks, back."""

    def __init__(self, c: int = 32, ratios: tuple[int, ...] = (2, 4, 5, 8), books: int = 8):
        super().__init__()
        encode: list[nn.Module] = [CausalConv(1, c, 7)]
        for k, ratio in enumerate(ratios):
            encode += [CodecBlock(c << k), nn.ELU(), CausalConv(c << k, 2 * c << k, 2 * ratio, ratio)]
        top = c << len(ratios)
        self.encode, self.read, self.write = (
            nn.Sequential(*encode),
            nn.LSTM(top, top, 2, batch_first=True),
            nn.LSTM(top, top, 2, batch_first=True),
        )
        self.into, self.codes, self.out = (
            CausalConv(top, 128, 7),
            ResidualCodes(books, 1024, 128),
            CausalConv(128, top, 7),
        )
        self.ups, self.ratios = nn.ModuleList(), ratios[::-1]
        self.blocks = nn.ModuleList()
        for k, ratio in enumerate(self.ratios):
            a = top >> k
            self.ups.append(nn.ConvTranspose1d(a, a // 2, 2 * ratio, ratio))
            self.blocks.append(CodecBlock(a // 2))
        self.last = CausalConv(c, 1, 7)

    def remember(self, lstm: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2)
        return (lstm(x)[0] + x).transpose(1, 2)

    def forward(self, sound: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.elu(self.remember(self.read, self.encode(sound)))
        x, codes = self.codes(4 * self.into(x))
        x = self.remember(self.write, self.out(x))
        for up, block, ratio in zip(self.ups, self.blocks, self.ratios, strict=True):
            x = block(up(F.elu(x))[..., :-ratio])
        return self.last(F.elu(x)), codes


class NextBlock(nn.Module):
    def __init__(self, c: int, hidden: int):
        super().__init__()
        self.depthwise, self.norm = nn.Conv1d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c, eps=1e-6)
        self.one, self.two = nn.Linear(c, hidden), nn.Linear(hidden, c)
        self.scale = nn.Parameter(torch.full((c,), 1 / 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).transpose(1, 2))
        return x + (self.scale * self.two(F.gelu(self.one(y)))).transpose(1, 2)


class Vocos(nn.Module):
    """Vocos (Siuzdak, 2023): ConvNeXt blocks at the rate of spectra, whose magnitudes and phases are transformed back and
    overlapped."""

    def __init__(self, mels: int = 100, c: int = 512, layers: int = 8, points: int = 1024, hop: int = 256):
        super().__init__()
        self.points, self.hop = points, hop
        self.first, self.norm = nn.Conv1d(mels, c, 7, padding=3), nn.LayerNorm(c, eps=1e-6)
        self.blocks = nn.ModuleList(NextBlock(c, 1536) for _ in range(layers))
        self.final, self.head = nn.LayerNorm(c, eps=1e-6), nn.Linear(c, points + 2)
        self.register_buffer("window", torch.hann_window(points))

    def overlap(self, frames: torch.Tensor) -> torch.Tensor:
        length = (frames.shape[2] - 1) * self.hop + self.points
        return F.fold(frames, (1, length), (1, self.points), stride=(1, self.hop)).flatten(1)

    def forward(self, mels: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(mels).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        size, phase = self.head(self.final(x.transpose(1, 2))).transpose(1, 2).float().chunk(2, 1)
        size = size.exp().clamp(max=100)
        f = torch.complex(size * torch.cos(phase), size * torch.sin(phase))
        window = self.window.float()
        frames = torch.fft.irfft(f, self.points, dim=1, norm="backward") * window[:, None]
        weight = self.overlap((window * window)[None, :, None].expand(1, -1, mels.shape[2]))
        pad = (self.points - self.hop) // 2
        return 16 * self.overlap(frames)[:, pad:-pad] / weight[:, pad:-pad]


class Oscillators(nn.Module):
    """DDSP (Engel et al., 2020): pitch and loudness through a GRU to 60 harmonics, whose phases are running sums, and noise
    filtered frame by frame."""

    def __init__(self, c: int = 512, harmonics: int = 60, bands: int = 65, hop: int = 160, rate: int = 16000):
        super().__init__()
        self.hop, self.rate, self.bands = hop, rate, bands
        mlp = lambda a: nn.Sequential(
            nn.Linear(a, c), nn.LayerNorm(c), nn.LeakyReLU(), nn.Linear(c, c), nn.LayerNorm(c), nn.LeakyReLU()
        )
        self.pitch, self.loudness, self.join = mlp(1), mlp(1), mlp(c + 2)
        self.gru = nn.GRU(2 * c, c, batch_first=True)
        self.levels, self.filters = nn.Linear(c, harmonics + 1), nn.Linear(c, bands)
        self.register_buffer("numbers", torch.arange(1.0, harmonics + 1))
        self.register_buffer("window", torch.hann_window(2 * bands - 2))

    def shape(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * torch.sigmoid(x) ** math.log(10) + 1e-7

    def noise(self, sizes: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Noise of each frame convolved with the impulse response of its filter, by Fourier transforms."""
        response = torch.fft.irfft(torch.complex(sizes, torch.zeros_like(sizes)), dim=2)
        response = torch.roll(response, self.bands - 1, 2) * self.window.float()
        length = self.hop + response.shape[2]
        spectrum = torch.fft.rfft(noise, length, dim=2) * torch.fft.rfft(response, length, dim=2)
        return torch.fft.irfft(spectrum, length, dim=2)[..., : self.hop].flatten(1)

    def forward(self, pitch: torch.Tensor, loudness: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.pitch(pitch / 500), self.loudness(loudness)], 2)
        x = self.join(torch.cat([self.gru(x)[0], pitch / 500, loudness], 2))
        levels, sizes = self.shape(self.levels(x)).float(), self.shape(self.filters(x) - 3).float()
        pitch = pitch.float()
        total, levels = levels.split([1, levels.shape[2] - 1], 2)
        levels = levels * (pitch * self.numbers.float() < self.rate / 2)
        levels = total * levels / (levels.sum(2, keepdim=True) + 1e-4)
        up = lambda t: F.interpolate(
            t.transpose(1, 2), scale_factor=float(self.hop), mode="linear", align_corners=False
        )
        phase = torch.cumsum(up(pitch)[:, 0] / self.rate, 1)
        turns = phase[:, None] * self.numbers.float()[:, None]
        waves = torch.sin(2 * math.pi * (turns - turns.floor()))
        return (waves * up(levels)).sum(1) + self.noise(sizes, noise.float())


def notes(batch: int, frames: int = 100) -> tuple[torch.Tensor, ...]:
    r = seeded()
    drift = torch.randn(batch, frames, 1, generator=r).cumsum(1)
    pitch = (220 + 4 * drift).round().clamp(100, 400)
    return pitch, torch.randn(batch, frames, 1, generator=r), torch.rand(batch, frames, 160, generator=r) * 2 - 1


class BeamFormer(nn.Module):
    """A mask-based MVDR beamformer (Heymann et al., 2016): an LSTM masks spectra of six microphones, covariances of speech and
    noise are summed over time, and 6 x 6 systems of complex numbers are solved by elimination for each band."""

    def __init__(self, bands: int = 201, hidden: int = 256):
        super().__init__()
        self.lstm = nn.LSTM(bands, hidden, batch_first=True, bidirectional=True)
        self.masks = nn.Linear(2 * hidden, 2 * bands)

    def covariance(self, re: torch.Tensor, im: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of microphones, for each band: sums over frames of m x conj(x)."""
        mask = mask / mask.sum(2, keepdim=True)
        a, b = re * mask[:, None], im * mask[:, None]
        real = torch.einsum("bcft,bdft->bfcd", a, re) + torch.einsum("bcft,bdft->bfcd", b, im)
        imaginary = torch.einsum("bcft,bdft->bfcd", b, re) - torch.einsum("bcft,bdft->bfcd", a, im)
        return real, imaginary

    def solve(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a x = b, real and positive definite, by Gauss and Jordan's elimination."""
        n = a.shape[-1]
        x = torch.cat([a, b], -1)
        for k in range(n):
            row = x[..., k, :] / x[..., k, k, None]
            x = x - x[..., :, k, None] * row[..., None, :]
            x = torch.cat([x[..., :k, :], row[..., None, :], x[..., k + 1 :, :]], -2)
        return x[..., n:]

    def forward(self, re: torch.Tensor, im: torch.Tensor) -> torch.Tensor:
        size = (re[:, 0].square() + im[:, 0].square() + 1e-6).log().transpose(1, 2)
        masks = torch.sigmoid(self.masks(self.lstm(size)[0])).transpose(1, 2).float()
        speech, noise = masks.chunk(2, 1)
        re, im = re.float(), im.float()
        sr, si = self.covariance(re, im, speech)
        nr, ni = self.covariance(re, im, noise)
        eye = 0.05 * torch.eye(nr.shape[-1], device=nr.device)
        # A complex system as a real one of twice the size.
        left = torch.cat([torch.cat([nr + eye, -ni], -1), torch.cat([ni, nr + eye], -1)], -2)
        y = self.solve(left, torch.cat([sr, si], -2))
        yr, yi = y.chunk(2, -2)
        trace = yr.diagonal(dim1=-2, dim2=-1).sum(-1), yi.diagonal(dim1=-2, dim2=-1).sum(-1)
        scale = trace[0].square() + trace[1].square() + 1e-6
        wr = (yr[..., 0] * trace[0][..., None] + yi[..., 0] * trace[1][..., None]) / scale[..., None]
        wi = (yi[..., 0] * trace[0][..., None] - yr[..., 0] * trace[1][..., None]) / scale[..., None]
        real = torch.einsum("bfc,bcft->bft", wr, re) + torch.einsum("bfc,bcft->bft", wi, im)
        imaginary = torch.einsum("bfc,bcft->bft", wr, im) - torch.einsum("bfc,bcft->bft", wi, re)
        return torch.stack([real, imaginary], 1)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "encodec": (Encodec, normal((1, 16000))),
    "vocos": (Vocos, normal((100, 96))),
    "ddsp": (Oscillators, notes),
    "mvdr_beam": (BeamFormer, normal((6, 201, 150), (6, 201, 150))),
}
