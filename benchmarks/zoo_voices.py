"""Speech: synthesis, recognition, separation and speakers, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, tokens


class Tacotron(nn.Module):
    """Tacotron 2 (Shen et al., 2018), 30 frames: attention that sees where it was before, two LSTM cells a frame."""

    def __init__(self, frames: int = 30, mels: int = 80, c: int = 512, width: int = 1024):
        super().__init__()
        self.frames, self.mels, self.width = frames, mels, width
        self.embed = nn.Embedding(148, c)
        self.convs = nn.Sequential(
            *(nn.Sequential(nn.Conv1d(c, c, 5, padding=2), nn.BatchNorm1d(c), nn.ReLU()) for _ in range(3))
        )
        self.lstm = nn.LSTM(c, c // 2, batch_first=True, bidirectional=True)
        self.pre = nn.Sequential(
            nn.Linear(mels, 256, bias=False), nn.ReLU(), nn.Linear(256, 256, bias=False), nn.ReLU()
        )
        self.attend, self.decode = nn.LSTMCell(256 + c, width), nn.LSTMCell(width + c, width)
        self.query, self.keys, self.score = (nn.Linear(a, b, bias=False) for a, b in ((width, 128), (c, 128), (128, 1)))
        self.where, self.places = nn.Conv1d(2, 32, 31, padding=15, bias=False), nn.Linear(32, 128, bias=False)
        self.mel, self.gate = nn.Linear(width + c, mels), nn.Linear(width + c, 1)
        widths = (mels, 512, 512, 512, 512, mels)
        layers: list[nn.Module] = []
        for k, (a, b) in enumerate(zip(widths, widths[1:])):
            layers += [nn.Conv1d(a, b, 5, padding=2), nn.BatchNorm1d(b)] + ([nn.Tanh()] if k < 4 else [])
        self.post = nn.Sequential(*layers)
        nn.init.normal_(self.mel.weight, std=0.15)  # frames that differ
        nn.init.normal_(self.gate.weight, std=0.15)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        memory = self.lstm(self.convs(self.embed(ids).transpose(1, 2)).transpose(1, 2))[0]
        keys = self.keys(memory)
        frame = memory.new_zeros(memory.shape[0], self.mels)
        h = c = h2 = c2 = memory.new_zeros(memory.shape[0], self.width)
        context = torch.zeros_like(memory[:, 0])
        weights = total = torch.zeros_like(memory[:, :, 0])
        frames, gates = [], []
        for _ in range(self.frames):
            h, c = self.attend(torch.cat([self.pre(frame), context], 1), (h, c))
            seen = self.places(self.where(torch.stack([weights, total], 1)).transpose(1, 2))
            energies = self.score(torch.tanh(self.query(h)[:, None] + seen + keys)).squeeze(2)
            weights = energies.softmax(1)
            context = torch.bmm(weights[:, None], memory).squeeze(1)
            total = total + weights
            h2, c2 = self.decode(torch.cat([h, context], 1), (h2, c2))
            both = torch.cat([h2, context], 1)
            frame = self.mel(both)
            frames.append(frame)
            gates.append(self.gate(both))
        mel = torch.stack(frames, 2)
        return mel, mel + self.post(mel), torch.sigmoid(torch.cat(gates, 1))


class WindowAttention(nn.Module):
    """Attention with embeddings of the four nearest places to either side, for keys and for values."""

    def __init__(self, c: int, heads: int = 2, window: int = 4):
        super().__init__()
        self.heads, self.window, self.size = heads, window, c // heads
        self.q, self.k, self.v, self.out = (nn.Conv1d(c, c, 1) for _ in range(4))
        self.near_k, self.near_v = (
            nn.Parameter(torch.randn(2 * window + 1, c // heads) * (c // heads) ** -0.5) for _ in range(2)
        )

    def whole(self, near: torch.Tensor, length: int) -> torch.Tensor:
        """Embeddings of all distances: zero beyond the window."""
        gap = length - 1 - self.window
        return F.pad(near, (0, 0, gap, gap))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, c, n = x.shape
        q, k, v = (f(x).view(batch, self.heads, -1, n).transpose(2, 3) for f in (self.q, self.k, self.v))
        q = q * self.size**-0.5
        near = F.pad(q @ self.whole(self.near_k, n).t(), (0, 1)).flatten(2)
        near = F.pad(near, (0, n - 1)).view(batch, self.heads, n + 1, 2 * n - 1)[:, :, :n, n - 1 :]
        weights = (q @ k.transpose(2, 3) + near).softmax(-1)
        moved = F.pad(F.pad(weights, (0, n - 1)).flatten(2), (n, 0))
        moved = moved.view(batch, self.heads, n, 2 * n)[..., 1:]
        y = weights @ v + moved @ self.whole(self.near_v, n)
        return self.out(y.transpose(2, 3).reshape(batch, c, n))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class GlowTts(nn.Module):
    """Glow-TTS (Kim et al., 2020): three of six encoder layers, four of twelve flows backwards; three frames a letter."""

    def __init__(self, c: int = 192, layers: int = 3, flows: int = 4, mels: int = 80, repeats: int = 4):
        super().__init__()
        self.embed, self.repeats, self.c, self.mels = nn.Embedding(148, c), repeats, c, mels
        self.attention = nn.ModuleList(WindowAttention(c) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Conv1d(c, 768, 3, padding=1), nn.ReLU(), nn.Conv1d(768, c, 3, padding=1))
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(ChannelNorm(c) for _ in range(2 * layers))
        self.mean = nn.Conv1d(c, mels, 1)
        self.durations = nn.Sequential(
            nn.Conv1d(c, 256, 3, padding=1), nn.ReLU(), ChannelNorm(256), nn.Conv1d(256, 256, 3, padding=1),
            nn.ReLU(), ChannelNorm(256), nn.Conv1d(256, 1, 1),
        )  # fmt: skip
        self.mixes = nn.ParameterList(nn.Parameter(torch.linalg.qr(torch.randn(4, 4))[0]) for _ in range(flows))
        self.scales, self.shifts = (
            nn.ParameterList(nn.Parameter(0.1 * torch.randn(2 * mels, 1)) for _ in range(flows)) for _ in range(2)
        )
        self.starts = nn.ModuleList(nn.Conv1d(mels, c, 1) for _ in range(flows))
        self.waves = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(c, 2 * c, 5, padding=2) for _ in range(4)) for _ in range(flows)
        )
        self.skips = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(c, 2 * c if k < 3 else c, 1) for k in range(4)) for _ in range(flows)
        )
        self.ends = nn.ModuleList(nn.Conv1d(c, 2 * mels, 1) for _ in range(flows))

    def couple(self, k: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, total = self.starts[k](x), 0
        for n, (wave, skip) in enumerate(zip(self.waves[k], self.skips[k], strict=True)):
            a, b = wave(h).chunk(2, 1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            if n < 3:
                h, y = h + y[:, : self.c], y[:, self.c :]
            total = total + y
        mean, log_scale = self.ends[k](total).chunk(2, 1)
        return mean, torch.tanh(log_scale)

    def mix(self, k: int, z: torch.Tensor) -> torch.Tensor:
        """Products of groups of four channels, two of either half."""
        batch, c, frames = z.shape
        z = z.view(batch, 2, c // 4, 2, frames).permute(0, 1, 3, 2, 4).reshape(batch, 4, c // 4, frames)
        z = F.conv2d(z, self.mixes[k][..., None, None])
        return z.view(batch, 2, 2, c // 4, frames).permute(0, 1, 3, 2, 4).reshape(batch, c, frames)

    def forward(self, ids: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(ids).transpose(1, 2)
        for k, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = self.norms[2 * k](x + attention(x))
            x = self.norms[2 * k + 1](x + mlp(x))
        z = self.mean(x).repeat_interleave(self.repeats, 2) + 0.5 * noise
        batch, c, frames = z.shape
        z = z.view(batch, c, frames // 2, 2).permute(0, 3, 1, 2).reshape(batch, 2 * c, frames // 2)
        for k in reversed(range(len(self.mixes))):
            a, b = z.chunk(2, 1)
            mean, log_scale = self.couple(k, a)
            z = self.mix(k, torch.cat([a, (b - mean) * torch.exp(-log_scale)], 1))
            z = (z - self.shifts[k]) * torch.exp(-self.scales[k])
        z = z.view(batch, 2, c, frames // 2).permute(0, 2, 3, 1).reshape(batch, c, frames)
        return z, self.durations(x).squeeze(1)


def letters(batch: int, count: int = 65, repeats: int = 4) -> tuple[torch.Tensor, ...]:
    return tokens(count, 148)(batch)[0], normal((80, count * repeats))(batch)[0]


class MelGan(nn.Module):
    """MelGAN's generator (Kumar et al., 2019): transposed convolutions by 8, 8, 2 and 2, reflected borders, dilated residuals."""

    def __init__(self, width: int = 512):
        super().__init__()
        layers: list[nn.Module] = [nn.ReflectionPad1d(3), nn.Conv1d(80, width, 7)]
        self.stages, self.residuals, self.shorts = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for r in (8, 8, 2, 2):
            layers += [
                nn.LeakyReLU(0.2),
                nn.ConvTranspose1d(width, width // 2, 2 * r, r, r // 2 + r % 2, output_padding=r % 2),
            ]
            self.stages.append(nn.Sequential(*layers))
            layers, width = [], width // 2
            self.residuals.append(nn.ModuleList(self.residual(width, 3**k) for k in range(3)))
            self.shorts.append(nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(3)))
        self.last = nn.Sequential(nn.LeakyReLU(0.2), nn.ReflectionPad1d(3), nn.Conv1d(width, 1, 7), nn.Tanh())
        for layer in self.modules():  # sound that depends on the spectrum
            if isinstance(layer, nn.ConvTranspose1d):
                nn.init.normal_(layer.weight, std=(2 * layer.in_channels) ** -0.5)
            elif isinstance(layer, nn.Conv1d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")

    def residual(self, c: int, dilation: int) -> nn.Module:
        return nn.Sequential(
            nn.LeakyReLU(0.2), nn.ReflectionPad1d(dilation), nn.Conv1d(c, c, 3, dilation=dilation), nn.LeakyReLU(0.2), nn.Conv1d(c, c, 1)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage, residuals, shorts in zip(self.stages, self.residuals, self.shorts, strict=True):
            x = stage(x)
            for residual, short in zip(residuals, shorts, strict=True):
                x = short(x) + residual(x)
        return self.last(x)


class XVector(nn.Module):
    """x-vectors of speakers (Snyder et al., 2018): dilated convolutions along time, mean and deviation of 1500 channels."""

    def __init__(self, mels: int = 24, speakers: int = 7323):
        super().__init__()
        layers: list[nn.Module] = []
        for a, b, size, dilation in (
            (mels, 512, 5, 1),
            (512, 512, 3, 2),
            (512, 512, 3, 3),
            (512, 512, 1, 1),
            (512, 1500, 1, 1),
        ):
            layers += [nn.Conv1d(a, b, size, dilation=dilation), nn.ReLU(), nn.BatchNorm1d(b)]
        self.frames, self.one = nn.Sequential(*layers), nn.Linear(3000, 512)
        self.two = nn.Sequential(nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, speakers))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.frames(x - x.mean(2, keepdim=True))
        variance, mean = torch.var_mean(x, 2)
        vector = self.one(torch.cat([mean, (variance + 1e-5).sqrt()], 1))
        return vector, self.two(vector)


class Transducer(nn.Module):
    """RNN transducer (Graves, 2012; He et al., 2019), half its layers: LSTMs and projections of sound, a network of labels,
    and the sums of all their pairs."""

    def __init__(self, mels: int = 80, width: int = 1024, c: int = 640, words: int = 1000):
        super().__init__()
        inputs = (3 * mels, c, 2 * c, c, 256)  # four layers of sound, one of labels
        self.lstms = nn.ModuleList(nn.LSTM(a, width, batch_first=True) for a in inputs)
        self.lines = nn.ModuleList(nn.Linear(width, c) for _ in inputs)
        self.norms, self.embed = nn.ModuleList(nn.LayerNorm(c) for _ in inputs), nn.Embedding(words, 256)
        self.sound, self.text, self.joint = nn.Linear(c, c), nn.Linear(c, c, bias=False), nn.Linear(c, words)

    def layer(self, k: int, x: torch.Tensor) -> torch.Tensor:
        return self.norms[k](self.lines[k](self.lstms[k](x)[0]))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = x.unflatten(1, (-1, 3)).flatten(2)
        x = self.layer(1, self.layer(0, x))
        x = self.layer(3, self.layer(2, torch.cat([x[:, ::2], x[:, 1::2]], 2)))
        y = self.layer(4, self.embed(F.pad(ids, (1, 0))))
        both = torch.tanh(self.sound(x)[:, :, None] + self.text(y)[:, None])
        return self.joint(both).log_softmax(-1)


def spoken(batch: int, frames: int = 180, words: int = 16) -> tuple[torch.Tensor, ...]:
    return normal((frames, 80))(batch)[0], tokens(words, 1000)(batch)[0]


class SepFormer(nn.Module):
    """SepFormer (Subakan et al., 2021), two of eight layers: transformers within chunks of 250 steps and across them."""

    def __init__(self, c: int = 256, layers: int = 2, chunk: int = 250):
        super().__init__()
        self.chunk = chunk
        self.encoder, self.decoder = nn.Conv1d(1, c, 16, 8, bias=False), nn.ConvTranspose1d(c, 1, 16, 8, bias=False)
        self.norm, self.first = nn.GroupNorm(1, c, eps=1e-8), nn.Conv1d(c, c, 1, bias=False)
        self.inside, self.across = (
            nn.ModuleList(
                nn.TransformerEncoderLayer(c, 8, 1024, batch_first=True, norm_first=True) for _ in range(layers)
            )
            for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(1, c, eps=1e-8) for _ in range(2))
        angle = torch.arange(chunk)[:, None] / 10000 ** (torch.arange(0, c, 2) / c)
        self.register_buffer("places", torch.stack([torch.sin(angle), torch.cos(angle)], 2).flatten(1))
        self.spread = nn.Sequential(nn.PReLU(), nn.Conv2d(c, 2 * c, 1))
        self.value, self.gate, self.last = nn.Conv1d(c, c, 1), nn.Conv1d(c, c, 1), nn.Conv1d(c, c, 1, bias=False)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        e = F.relu(self.encoder(sound))
        x = self.first(self.norm(e))
        batch, c, steps = x.shape
        hop = self.chunk // 2
        gap = (hop - steps % hop) % hop
        x = F.pad(x, (hop, gap + hop)).unfold(2, self.chunk, hop)  # batch, c, chunks, steps of a chunk
        chunks = x.shape[2]
        y = x.permute(0, 2, 3, 1).reshape(batch * chunks, self.chunk, c)
        z = y + self.places
        for layer in self.inside:
            z = layer(z)
        x = x + self.norms[0](z.view(batch, chunks, self.chunk, c).permute(0, 3, 1, 2))
        y = x.permute(0, 3, 2, 1).reshape(batch * self.chunk, chunks, c)
        z = y + self.places[:chunks]
        for layer in self.across:
            z = layer(z)
        x = x + self.norms[1](z.view(batch, self.chunk, chunks, c).permute(0, 3, 2, 1))
        x = self.spread(x).reshape(batch * 2, c, chunks, 2, hop)
        both = F.pad(x[:, :, :, 0], (0, 0, 0, 1)) + F.pad(x[:, :, :, 1], (0, 0, 1, 0))
        y = both.flatten(2)[..., hop : hop + steps]
        masks = F.relu(self.last(torch.tanh(self.value(y)) * torch.sigmoid(self.gate(y))))
        return self.decoder((masks.view(batch, 2, c, steps) * e[:, None]).flatten(0, 1)).view(batch, 2, -1)


class Snake(nn.Module):
    """x + sin(a x)^2 / a at twice the rate: twelve taps up, twelve taps down."""

    def __init__(self, c: int):
        super().__init__()
        self.a = nn.Parameter(torch.ones(c, 1))
        t = torch.arange(12) - 5.5
        taps = torch.sinc(t / 2) * (0.54 + 0.46 * torch.cos(math.pi * t / 6)) / 2
        self.register_buffer("taps", (taps / taps.sum()).expand(c, 1, 12).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c = x.shape[1]
        y = F.conv_transpose1d(F.pad(x, (5, 5), mode="replicate"), 2 * self.taps, stride=2, groups=c)[..., 15:-15]
        y = y + torch.sin(self.a * y) ** 2 / (self.a + 1e-3)
        return F.conv1d(F.pad(y, (5, 6), mode="replicate"), self.taps, stride=2, groups=c)


class BigVgan(nn.Module):
    """BigVGAN's base form (Lee et al., 2023), one of its three sizes of kernels: periodic activations without aliases."""

    def __init__(self, width: int = 512, mels: int = 100, rates: tuple[int, ...] = (8, 8, 2, 2)):
        super().__init__()
        self.first, self.ups, self.stages = nn.Conv1d(mels, width, 7, padding=3), nn.ModuleList(), nn.ModuleList()
        for r in rates:
            self.ups.append(nn.ConvTranspose1d(width, width // 2, 2 * r, r, r // 2))
            nn.init.normal_(self.ups[-1].weight, std=(2 * width) ** -0.5)  # values that bend
            width //= 2
            self.stages.append(nn.ModuleList(self.residual(width, d) for d in (1, 3, 5)))
        self.last = nn.Sequential(Snake(width), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())

    def residual(self, c: int, dilation: int) -> nn.Module:
        one, two = nn.Conv1d(c, c, 3, padding=dilation, dilation=dilation), nn.Conv1d(c, c, 3, padding=1)
        return nn.Sequential(Snake(c), one, Snake(c), two)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for up, stage in zip(self.ups, self.stages, strict=True):
            x = up(x)
            for layer in stage:
                x = x + layer(x)
        return self.last(x)


class SincNet(nn.Module):
    """SincNet (Ravanelli and Bengio, 2018): filters of sound whose two edges are learned; norms of whole maps."""

    def __init__(self, samples: int = 3200, filters: int = 80, taps: int = 251, speakers: int = 462):
        super().__init__()
        self.low, self.band = (
            nn.Parameter(torch.linspace(30, 7000, filters).half().float()),
            nn.Parameter((torch.rand(filters) * 200 + 50).half().float()),
        )
        n = (taps - 1) // 2
        self.register_buffer("steps", torch.arange(-n, 0.0))
        self.register_buffer("window", 0.54 - 0.46 * torch.cos(2 * math.pi * torch.arange(n) / taps))
        sizes, length = [], samples
        for size in (taps, 5, 5):
            length = (length - size + 1) // 3
            sizes.append(length)
        self.convs = nn.ModuleList([nn.Conv1d(filters, 60, 5), nn.Conv1d(60, 60, 5)])
        self.norms = nn.ModuleList(nn.LayerNorm((c, n)) for c, n in zip((filters, 60, 60), sizes, strict=True))
        layers: list[nn.Module] = [nn.LayerNorm(60 * length)]
        for k in range(3):
            layers += [nn.Linear(2048 if k else 60 * length, 2048), nn.LayerNorm(2048), nn.LeakyReLU(0.2)]
        self.head, self.input_norm = (
            nn.Sequential(*layers, nn.Linear(2048, speakers), nn.LogSoftmax(1)),
            nn.LayerNorm(samples),
        )

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        low = 50 + self.low.float().abs()  # in Hz, of which float16 has only every fourth
        high = (low + 50 + self.band.float().abs()).clamp(50, 8000)
        t = self.steps.float() * (2 * math.pi / 16000)
        left = (torch.sin(high[:, None] * t) - torch.sin(low[:, None] * t)) / (t / 2) * self.window
        whole = torch.cat([left, 2 * (high - low)[:, None], left.flip(1)], 1) / (2 * (high - low)[:, None])
        x = F.conv1d(self.input_norm(sound)[:, None], (whole[:, None] / 8).to(sound.dtype)).abs()
        x = F.leaky_relu(self.norms[0](F.max_pool1d(x, 3)), 0.2)
        for conv, norm in zip(self.convs, self.norms[1:], strict=True):
            x = F.leaky_relu(norm(F.max_pool1d(conv(x), 3)), 0.2)
        return self.head(x.flatten(1))


class Crepe(nn.Module):
    """CREPE (Kim et al., 2018): the pitch of frames of 1024 samples, by convolutions of 512 and 64 taps."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 1024, 128, 128, 128, 256, 512)
        self.layers = nn.ModuleList()
        for k, (a, b) in enumerate(zip(widths, widths[1:])):
            pad, conv = (
                (nn.ZeroPad1d((254, 254)), nn.Conv1d(a, b, 512, 4))
                if k == 0
                else (nn.ZeroPad1d((31, 32)), nn.Conv1d(a, b, 64))
            )
            self.layers.append(nn.Sequential(pad, conv, nn.ReLU(), nn.BatchNorm1d(b), nn.MaxPool1d(2)))
        self.last = nn.Linear(2048, 360)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = frames.flatten(0, 1)
        x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-4)
        x = x[:, None]
        for layer in self.layers:
            x = layer(x)
        return torch.sigmoid(self.last(x.transpose(1, 2).flatten(1)))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "tacotron2": (Tacotron, tokens(60, 148)),
    "glow_tts_4": (GlowTts, letters),
    "mel_gan": (MelGan, normal((80, 40))),
    "x_vector": (XVector, lambda batch: (pictures(1, 24, 300)(batch)[0].squeeze(1),)),
    "rnn_transducer": (Transducer, spoken),
    "sepformer_2": (SepFormer, normal((1, 8000))),
    "big_vgan": (BigVgan, normal((100, 24))),
    "sinc_net": (SincNet, normal((3200,))),
    "crepe": (Crepe, normal((8, 1024))),
}
