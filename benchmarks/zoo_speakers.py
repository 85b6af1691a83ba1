"""Speech and sound, for the zoo: separation on grids of time and frequency, gated units over chunks, encoders at several rates,
diffusion of waves and of spectra, graphs of spectra, keywords, relative music, and discriminators."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, tokens


class GridNet(nn.Module):
    """TF-GridNet (Wang et al., 2023), two blocks over 65 frequencies and 100 frames: an LSTM along each axis of unfolded windows,
    and attention of whole frames."""

    def __init__(
        self, c: int = 48, hidden: int = 96, heads: int = 4, bins: int = 65, blocks: int = 2, speakers: int = 2
    ):
        super().__init__()
        self.heads, self.e, self.speakers = heads, 8, speakers
        self.first = nn.Sequential(nn.Conv2d(2, c, 3, padding=1), nn.GroupNorm(1, c))
        each = lambda f: nn.ModuleList(f() for _ in range(blocks))
        pair = lambda f: each(lambda: nn.ModuleList(f() for _ in range(2)))
        self.norms, self.lstms = (
            pair(lambda: nn.LayerNorm(c)),
            pair(lambda: nn.LSTM(4 * c, hidden, batch_first=True, bidirectional=True)),
        )
        self.back = pair(lambda: nn.ConvTranspose1d(2 * hidden, c, 4))
        point = lambda n: nn.Sequential(nn.Conv2d(c, n, 1), nn.PReLU())
        self.q, self.k, self.v = (
            each(lambda: point(heads * self.e)),
            each(lambda: point(heads * self.e)),
            each(lambda: point(c)),
        )
        self.qn, self.kn = (each(lambda: nn.LayerNorm((self.e, bins))) for _ in range(2))
        self.vn, self.out, self.on = (
            each(lambda: nn.LayerNorm((c // heads, bins))),
            each(lambda: point(c)),
            each(lambda: nn.LayerNorm((c, bins))),
        )
        self.last = nn.ConvTranspose2d(c, 2 * speakers, 3, padding=1)

    def along(self, k: int, axis: int, x: torch.Tensor) -> torch.Tensor:
        """x [batch, channels, others, along]; windows of four."""
        b, c, n, m = x.shape
        y = self.norms[k][axis](x.permute(0, 2, 3, 1)).transpose(2, 3).reshape(b * n, c, m)
        y = F.pad(y, (1, 2)).unfold(2, 4, 1).permute(0, 2, 1, 3).flatten(2)
        y = self.back[k][axis](self.lstms[k][axis](y)[0].transpose(1, 2))[..., 1 : m + 1]
        return x + y.view(b, n, c, m).transpose(1, 2)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        split = lambda t: t.unflatten(1, (self.heads, -1)).permute(0, 1, 3, 2, 4)
        q, key, v = self.qn[k](split(self.q[k](x))), self.kn[k](split(self.k[k](x))), self.vn[k](split(self.v[k](x)))
        y = F.scaled_dot_product_attention(q.flatten(3), key.flatten(3), v.flatten(3)).view_as(v)
        y = self.out[k](y.permute(0, 1, 3, 2, 4).flatten(1, 2))
        return x + self.on[k](y.transpose(1, 2)).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Spectra [batch, 2, frames, bins]."""
        x = self.first(x)
        for k in range(len(self.q)):
            x = self.along(k, 0, x)
            x = self.along(k, 1, x.transpose(2, 3)).transpose(2, 3)
            x = self.attend(k, x)
        return self.last(x).unflatten(1, (self.speakers, 2))


class GatedAttentionUnits(nn.Module):
    """MossFormer (Zhao and Ma, 2023), four blocks over 2048 frames: one head of squared ReLUs within chunks of 256 and linear
    attention over all, with depthwise convolutions and three gates."""

    def __init__(self, c: int = 512, key: int = 128, chunk: int = 256, blocks: int = 4):
        super().__init__()
        self.chunk = chunk
        self.first, self.norm0 = nn.Conv1d(1, c, 16, 8, bias=False), nn.GroupNorm(1, c)
        each = lambda f: nn.ModuleList(f() for _ in range(blocks))
        project = lambda a, b: nn.ModuleList(
            (nn.LayerNorm(a), nn.Linear(a, b), nn.Conv1d(b, b, 17, padding=8, groups=b, bias=False))
        )
        self.hidden, self.qk = each(lambda: project(c, 4 * c)), each(lambda: project(c, key))
        self.scale = nn.ParameterList(nn.Parameter(torch.ones(4, key)) for _ in range(blocks))
        self.shift = nn.ParameterList(nn.Parameter(torch.zeros(4, key)) for _ in range(blocks))
        self.out, self.mask, self.last = (
            each(lambda: project(2 * c, c)),
            nn.Conv1d(c, 2 * c, 1),
            nn.ConvTranspose1d(c, 1, 16, 8, bias=False),
        )

    @staticmethod
    def project(parts: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        norm, linear, conv = parts
        x = F.silu(linear(norm(x)))
        return x + conv(x.transpose(1, 2)).transpose(1, 2)

    def block(self, k: int, x: torch.Tensor) -> torch.Tensor:
        u, v = self.project(self.hidden[k], torch.cat([F.pad(x[..., ::2], (0, 0, 1, -1)), x[..., 1::2]], 2)).chunk(2, 2)
        z = self.project(self.qk[k], x)[:, :, None] * self.scale[k] + self.shift[k]
        near_q, far_q, near_k, far_k = (t.unflatten(1, (-1, self.chunk)) for t in z.unbind(2))
        both = torch.cat([v, u], 2).unflatten(1, (-1, self.chunk))
        near = F.relu(near_q @ near_k.transpose(2, 3) / self.chunk).square() @ both
        far = far_q @ (torch.einsum("bgnd,bgne->bde", far_k, both) / x.shape[1])[:, None]
        v_out, u_out = (near + far).flatten(1, 2).chunk(2, 2)
        return x + self.project(self.out[k], u_out * v * (v_out * u).sigmoid())

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(wave))
        y = self.norm0(x).transpose(1, 2)
        for k in range(len(self.qk)):
            y = self.block(k, y)
        masks = F.relu(self.mask(y.transpose(1, 2))).unflatten(1, (2, -1))
        return self.last((masks * x[:, None]).flatten(0, 1)).view(wave.shape[0], 2, -1)


class ZipLayer(nn.Module):
    """A Zipformer layer: weights of attention are computed once for two attentions and a non-linear one; BiasNorm, Swoosh, bypasses."""

    def __init__(self, c: int, heads: int = 4, d: int = 32, v: int = 12):
        super().__init__()
        self.heads = heads
        self.qk, self.places = nn.Linear(c, heads * (2 * d + 4)), nn.Linear(48, heads * 4, bias=False)
        self.values, self.outs = (
            nn.ModuleList(nn.Linear(*s) for _ in range(2)) for s in ((c, heads * v), (heads * v, c))
        )
        self.non_in, self.non_out = nn.Linear(c, 3 * (3 * c // 4)), nn.Linear(3 * c // 4, c)
        self.mlps = nn.ModuleList(
            nn.ModuleList((nn.Linear(c, n), nn.Linear(n, c))) for n in (3 * c // 2, 2 * c, 5 * c // 2)
        )
        self.convs = nn.ModuleList(nn.ModuleList((nn.Linear(c, 2 * c), nn.Conv1d(c, c, 31, padding=15, groups=c), nn.Linear(c, c))) for _ in range(2))  # fmt: skip
        self.bias, self.scale, self.bypass = (
            nn.Parameter(torch.zeros(c)),
            nn.Parameter(torch.zeros(1)),
            nn.Parameter(torch.full((2, c), 0.5)),
        )
        self.sizes = (heads * d, heads * d, heads * 4)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        q, k, p = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qk(x).split(self.sizes, 2))
        at = torch.arange(-n + 1, n, device=x.device, dtype=x.dtype) / 10
        waves = at.atan()[:, None] * torch.arange(1, 25, device=x.device, dtype=x.dtype)
        r = self.places(torch.cat([waves.cos(), waves.sin()], 1)).unflatten(1, (self.heads, -1)).permute(1, 2, 0)
        far = p @ r  # [batch, heads, n, 2 n - 1], then shifted row by row
        far = F.pad(far, (0, 1)).flatten(2)[..., : n * (2 * n - 1)].unflatten(2, (n, 2 * n - 1))[..., n - 1 :]
        return (q @ k.transpose(2, 3) + far).softmax(3)

    @staticmethod
    def swoosh(x: torch.Tensor) -> torch.Tensor:
        return F.softplus(x - 1) - 0.08 * x - 0.313261687

    def attend(self, k: int, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        v = self.values[k](x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        return self.outs[k]((w @ v).transpose(1, 2).flatten(2))

    def mlp(self, k: int, x: torch.Tensor) -> torch.Tensor:
        return self.mlps[k][1](self.swoosh(self.mlps[k][0](x)))

    def conv(self, k: int, x: torch.Tensor) -> torch.Tensor:
        into, depth, out = self.convs[k]
        return out(self.swoosh(depth(F.glu(into(x), 2).transpose(1, 2)).transpose(1, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, w = x, self.weights(x)
        x = x + self.mlp(0, x)
        s, y, v = self.non_in(x).chunk(3, 2)
        x = x + self.non_out((w[:, :1] @ (v * s.tanh())[:, None])[:, 0] * y)
        x = x + self.attend(0, x, w)
        x = x + self.conv(0, x)
        x = x + self.mlp(1, x)
        x = kept + (x - kept) * self.bypass[0]
        x = x + self.attend(1, x, w)
        x = x + self.conv(1, x)
        x = x + self.mlp(2, x)
        x = x * ((x - self.bias).square().mean(2, keepdim=True) + 1e-6).rsqrt() * self.scale.exp()
        return kept + (x - kept) * self.bypass[1]


class Zipformer(nn.Module):
    """Zipformer (Yao et al., 2024): 800 frames, stacks of layers at rates of 1, 1/2, 1/4 and 1/2 with weighted means of frames between."""

    def __init__(
        self, widths: tuple[int, ...] = (192, 256, 384, 256), rates: tuple[int, ...] = (1, 2, 4, 2), layers: int = 2
    ):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=(0, 1)), nn.SiLU(), nn.Conv2d(8, 32, 3, 2), nn.SiLU(), nn.Conv2d(32, 128, 3, (1, 2)), nn.SiLU())  # fmt: skip
        self.into, self.rates, self.widths = nn.Linear(128 * 19, widths[0]), rates, widths
        self.stacks = nn.ModuleList(nn.ModuleList(ZipLayer(c) for _ in range(layers)) for c in widths)
        self.means = nn.ParameterList(nn.Parameter(torch.randn(r)) for r in rates)
        self.last, self.norm = nn.Linear(max(widths), 500), nn.LayerNorm(max(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(self.first(x[:, None]).transpose(1, 2).flatten(2))
        x = x[:, : x.shape[1] // 8 * 8]
        widest = x
        for c, rate, mean, layers in zip(self.widths, self.rates, self.means, self.stacks, strict=True):
            x = F.pad(x, (0, c - x.shape[2])) if c > x.shape[2] else x[..., :c]
            y = (x.unflatten(1, (-1, rate)) * mean.softmax(0)[:, None]).sum(2) if rate > 1 else x
            for layer in layers:
                y = layer(y)
            x = x + y.repeat_interleave(rate, 1) if rate > 1 else y
            widest = x if x.shape[2] == max(self.widths) else widest
        x = torch.cat([x, widest[..., x.shape[2] :]], 2)
        return self.last(self.norm(x.unflatten(1, (-1, 2)).mean(2))).log_softmax(2)


class WaveDiffusion(nn.Module):
    """DiffWave (Kong et al., 2021), ten layers of dilated gated convolutions over 16,000 samples, conditioned on a mel spectrogram."""

    def __init__(self, c: int = 64, layers: int = 10, mels: int = 80):
        super().__init__()
        self.first, self.step = (
            nn.Conv1d(1, c, 1),
            nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU()),
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(1, 1, (3, 32), (1, 16), (1, 8)) for _ in range(2))
        each = lambda f: nn.ModuleList(f(k) for k in range(layers))
        self.dilated = each(lambda k: nn.Conv1d(c, 2 * c, 3, padding=2**k, dilation=2**k))
        self.steps, self.mels, self.outs = each(lambda k: nn.Linear(512, c)), each(lambda k: nn.Conv1d(mels, 2 * c, 1)), each(lambda k: nn.Conv1d(c, 2 * c, 1))  # fmt: skip
        self.last = nn.Sequential(nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 1, 1))
        self.register_buffer("waves", 10 ** (torch.arange(64) * 4.0 / 63))

    def forward(self, wave: torch.Tensor, mel: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(wave))
        angles = time * self.waves
        step = self.step(torch.cat([angles.sin(), angles.cos()], 1))
        m = mel[:, None]
        for up in self.up:
            m = F.leaky_relu(up(m), 0.4)
        m, total = m[:, 0, :, : wave.shape[2]], 0
        for conv, to_step, to_mel, out in zip(self.dilated, self.steps, self.mels, self.outs, strict=True):
            gate, value = (conv(x + to_step(step)[:, :, None]) + to_mel(m)).chunk(2, 1)
            more, skip = out(gate.sigmoid() * value.tanh()).chunk(2, 1)
            x, total = (x + more) / 2**0.5, total + skip
        return self.last(total / len(self.outs) ** 0.5)


class SpectrumFlow(nn.Module):
    """Matcha-TTS's decoder (Mehta et al., 2024): a 1D U-Net of Snake feed-forward transformers and convolutions over 256 frames of mels."""

    def __init__(self, c: int = 256, mels: int = 80, heads: int = 4):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(2 * mels, 4 * c), nn.SiLU(), nn.Linear(4 * c, 4 * c))
        self.heads, widths = heads, ((2 * mels, c), (c, c), (c, c), (2 * c, c), (2 * c, c))
        block = lambda a, b: nn.ModuleList((nn.Conv1d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.Conv1d(b, b, 3, padding=1), nn.GroupNorm(8, b), nn.Conv1d(a, b, 1), nn.Linear(4 * c, b)))  # fmt: skip
        self.blocks = nn.ModuleList(block(a, b) for a, b in widths)
        layer = lambda: nn.ModuleList(
            (
                nn.LayerNorm(c),
                nn.Linear(c, 3 * c),
                nn.Linear(c, c),
                nn.LayerNorm(c),
                nn.Linear(c, 4 * c),
                nn.Linear(4 * c, c),
            )
        )
        self.layers = nn.ModuleList(layer() for _ in widths)
        self.alphas, self.betas = (nn.ParameterList(nn.Parameter(torch.zeros(4 * c)) for _ in widths) for _ in range(2))
        self.down, self.up = nn.Conv1d(c, c, 3, 2, 1), nn.ConvTranspose1d(c, c, 4, 2, 1)
        self.same, self.end, self.last = (
            nn.Conv1d(c, c, 3, padding=1),
            nn.Conv1d(c, c, 3, padding=1),
            nn.Conv1d(c, mels, 1),
        )
        self.register_buffer("waves", 1000 * (-math.log(10000) * torch.arange(mels) / (mels - 1)).exp())

    def stage(self, k: int, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        one, norm1, two, norm2, skip, step = self.blocks[k]
        y = F.mish(norm1(one(x))) + step(F.mish(time))[:, :, None]
        x = (F.mish(norm2(two(y))) + skip(x)).transpose(1, 2)
        a, qkv, out, b, wide, narrow = self.layers[k]
        q, key, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in qkv(a(x)).chunk(3, 2))
        x = x + out(F.scaled_dot_product_attention(q, key, v).transpose(1, 2).flatten(2))
        h = wide(b(x))
        h = h + (h * self.alphas[k].exp()).sin().square() / (self.betas[k].exp() + 1e-9)
        return (x + narrow(h)).transpose(1, 2)

    def forward(self, x: torch.Tensor, mean: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time * self.waves
        t = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        one = self.stage(0, torch.cat([x, mean], 1), t)
        two = self.stage(1, self.down(one), t)
        y = self.stage(2, self.same(two), t)
        y = self.stage(3, torch.cat([y, two], 1), t)
        y = self.stage(4, torch.cat([self.up(y), one], 1), t)
        return self.last(F.mish(self.end(y)))


class SpectrumGraphs(nn.Module):
    """AASIST (Jung et al., 2022): fixed band-pass filters of 64,600 samples, a residual encoder, graph attention over spectrum and over
    time, the nodes with the highest scores, and a graph of both."""

    def __init__(self, c: int = 64, filters: int = 70, taps: int = 129):
        super().__init__()
        t = torch.arange(taps) - taps // 2
        edges = torch.linspace(0.001, 0.5, filters + 1)
        low = 2 * edges[:, None] * torch.sinc(2 * edges[:, None] * t)
        self.register_buffer("filters", ((low[1:] - low[:-1]) * torch.hamming_window(taps))[:, None])
        self.norm0 = nn.BatchNorm2d(1)
        widths = ((1, 32), (32, 32), (32, 64), (64, 64), (64, 64))
        part = lambda a, b: nn.ModuleList((nn.BatchNorm2d(a), nn.Conv2d(a, b, (2, 3), padding=(1, 1)), nn.BatchNorm2d(b), nn.Conv2d(b, b, (2, 3), padding=(0, 1)), nn.Conv2d(a, b, 1)))  # fmt: skip
        self.parts = nn.ModuleList(part(a, b) for a, b in widths)
        self.place = nn.Parameter(torch.randn(1, 23, c))
        graph = lambda a, b: nn.ModuleList(
            (nn.Linear(a, b), nn.Linear(b, 1), nn.Linear(a, b), nn.Linear(a, b), nn.BatchNorm1d(b))
        )
        self.graphs, self.scores = (
            nn.ModuleList((graph(c, c), graph(c, c), graph(c, 32))),
            nn.ModuleList(nn.Linear(c, 1) for _ in range(2)),
        )
        self.master, self.last = nn.Parameter(torch.randn(1, 1, c)), nn.Linear(3 * 32, 2)

    @staticmethod
    def attend(graph: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        pair, score, with_, without, norm = graph
        w = score(pair(x[:, :, None] * x[:, None]).tanh()).softmax(2)[..., 0]
        y = with_(w @ x) + without(x)
        return F.selu(norm(y.flatten(0, 1)).view_as(y))

    @staticmethod
    def keep(score: nn.Linear, x: torch.Tensor, share: float) -> torch.Tensor:
        s = score(x).sigmoid()
        which = s[..., 0].topk(int(x.shape[1] * share), 1)[1]
        return (x * s).gather(1, which[..., None].expand(-1, -1, x.shape[2]))

    def forward(self, wave: torch.Tensor) -> torch.Tensor:
        x = F.conv1d(wave, self.filters)[:, None].abs()
        x = F.selu(self.norm0(F.max_pool2d(x, 3)))
        for k, (norm1, one, norm2, two, skip) in enumerate(self.parts):
            y = two(F.selu(norm2(one(F.selu(norm1(x)) if k else x))))
            x = F.max_pool2d(y + skip(x), (1, 3))
        spectrum = x.abs().amax(3).transpose(1, 2)
        time = x.abs().amax(2).transpose(1, 2)
        spectrum = self.keep(
            self.scores[0], self.attend(self.graphs[0], spectrum + self.place[:, : spectrum.shape[1]]), 0.5
        )
        time = self.keep(self.scores[1], self.attend(self.graphs[1], time), 0.7)
        both = torch.cat([self.master.expand(x.shape[0], -1, -1), spectrum, time], 1)
        y = self.attend(self.graphs[2], both)
        return self.last(torch.cat([y[:, 0], y[:, 1:].amax(1), y[:, 1:].mean(1)], 1))


class BroadcastResiduals(nn.Module):
    """BC-ResNet-8 (Kim et al., 2021): keywords from 40 bins and 101 frames; depthwise convolutions along frequency, then along time of
    its mean, which is added back to all frequencies, with norms of five parts of the spectrum."""

    def __init__(self, classes: int = 12, scale: int = 8):
        super().__init__()
        c = [16 * scale, 8 * scale, 12 * scale, 16 * scale, 20 * scale]
        self.first = nn.Sequential(nn.Conv2d(1, c[0], 5, (2, 1), 2, bias=False), nn.BatchNorm2d(c[0]), nn.ReLU())
        self.blocks, self.plain = nn.ModuleList(), []
        for stage, (count, stride) in enumerate(((2, 1), (2, 2), (4, 2), (4, 1))):
            for k in range(count):
                a, b, s, d = c[stage] if k == 0 else c[stage + 1], c[stage + 1], (stride if k == 0 else 1), 2**stage
                into = (
                    nn.Sequential(nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
                    if a != b
                    else nn.Identity()
                )
                self.blocks.append(nn.ModuleList((into, nn.Conv2d(b, b, (3, 1), (s, 1), (1, 0), groups=b, bias=False), nn.BatchNorm2d(5 * b), nn.Conv2d(b, b, (1, 3), padding=(0, d), dilation=(1, d), groups=b, bias=False), nn.BatchNorm2d(b), nn.Conv2d(b, b, 1, bias=False))))  # fmt: skip
                self.plain.append(a == b and s == 1)
        self.last = nn.Sequential(nn.Conv2d(c[4], c[4], 5, padding=(0, 2), groups=c[4]), nn.Conv2d(c[4], 32 * scale, 1, bias=False), nn.BatchNorm2d(32 * scale), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(32 * scale, classes, 1))  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for plain, (into, high, parts, wide, norm, point) in zip(self.plain, self.blocks, strict=True):
            y = high(into(x))
            b, c, h, w = y.shape
            y = parts(y.view(b, c * 5, h // 5, w)).view(b, c, h, w)
            z = point(F.silu(norm(wide(y.mean(2, keepdim=True)))))
            x = F.relu(y + z + x if plain else y + z)
        return self.last(x).flatten(1)


class RelativeMusic(nn.Module):
    """Music Transformer (Huang et al., 2018), four layers over 1024 events: relative logits, which are skewed by padding and a view."""

    def __init__(self, c: int = 512, heads: int = 8, layers: int = 4, length: int = 1024, events: int = 390):
        super().__init__()
        self.heads, self.embed = heads, nn.Embedding(events, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.out = each(lambda: nn.Linear(c, 3 * c)), each(lambda: nn.Linear(c, c))
        self.far = nn.ParameterList(nn.Parameter(torch.randn(heads, length, c // heads) * 0.1) for _ in range(layers))
        self.norms = each(lambda: nn.ModuleList(nn.LayerNorm(c) for _ in range(2)))
        self.mlps, self.last = (
            each(lambda: nn.Sequential(nn.Linear(c, 2 * c), nn.ReLU(), nn.Linear(2 * c, c))),
            nn.Linear(c, events),
        )
        self.register_buffer("mask", torch.triu(torch.full((length, length), -1e4), 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, n = self.embed(ids), ids.shape[1]
        for qkv, out, far, norms, mlp in zip(self.qkv, self.out, self.far, self.norms, self.mlps, strict=True):
            q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in qkv(x).chunk(3, 2))
            rel = F.pad(q @ far.transpose(1, 2), (1, 0)).view(-1, self.heads, n + 1, n)[:, :, 1:]
            weights = ((q @ k.transpose(2, 3) + rel) * q.shape[-1] ** -0.5 + self.mask).softmax(3)
            x = norms[0](x + out((weights @ v).transpose(1, 2).flatten(2)))
            x = norms[1](x + mlp(x))
        return self.last(x)


class Discriminators(nn.Module):
    """HiFi-GAN's discriminators of periods (Kong et al., 2020): a second of sound folded by 2, 3, 5, 7 and 11 samples."""

    def __init__(self, periods: tuple[int, ...] = (2, 3, 5, 7, 11)):
        super().__init__()
        self.periods, c = periods, (1, 32, 128, 512, 1024)
        stack = lambda: nn.ModuleList([*(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in zip(c, c[1:], strict=False)), nn.Conv2d(1024, 1024, (5, 1), 1, (2, 0)), nn.Conv2d(1024, 1, (3, 1), 1, (1, 0))])  # fmt: skip
        self.stacks = nn.ModuleList(stack() for _ in periods)

    def forward(self, wave: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = []
        for period, convs in zip(self.periods, self.stacks, strict=True):
            more = -wave.shape[2] % period
            x = (F.pad(wave, (0, more), "reflect") if more else wave).unflatten(2, (-1, period))
            for conv in convs[:-1]:
                x = F.leaky_relu(conv(x), 0.1)
            out.append(convs[-1](x).flatten(1))
        return tuple(out)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "tf_grid_net_2": (GridNet, normal((2, 100, 65))),
    "moss_former_4": (GatedAttentionUnits, normal((1, 16392))),
    "zipformer_8": (Zipformer, normal((800, 80))),
    "diff_wave_10": (WaveDiffusion, lambda batch: (*normal((1, 16000), (80, 64))(batch), torch.full((batch, 1), 12.0))),
    "matcha_tts": (SpectrumFlow, lambda batch: (*normal((80, 256), (80, 256))(batch), torch.full((batch, 1), 0.3))),
    "aasist": (SpectrumGraphs, normal((1, 64600))),
    "bc_resnet_8": (BroadcastResiduals, normal((1, 40, 101))),
    "music_transformer_4": (RelativeMusic, tokens(1024, 390)),
    "period_discriminators": (Discriminators, normal((1, 16000))),
}
