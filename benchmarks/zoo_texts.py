"""Models of texts and memories, for the zoo: as their papers describe them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded, tokens


class LongFilter(nn.Module):
    """Hyena's filters as long as the text: a network of sines of the place, and decays of each channel's own."""

    def __init__(self, c: int, length: int, hidden: int = 64, waves: int = 3):
        super().__init__()
        t = torch.linspace(0, 1, length)[:, None]
        angle = 2 * math.pi * torch.arange(length)[:, None] / length * torch.linspace(1e-4, waves - 1, waves)
        self.register_buffer("places", torch.cat([t, torch.cos(angle), -torch.sin(angle)], 1))
        rates = torch.linspace(math.log(100.0) / 1.5, math.log(100.0) / 0.3, c)
        self.register_buffer("decay", torch.exp(-t * rates))
        self.layers = nn.ModuleList(nn.Linear(a, hidden) for a in (1 + 2 * waves, hidden, hidden))
        self.frequency, self.last = nn.Parameter(torch.full((hidden,), 5.0)), nn.Linear(hidden, c, bias=False)

    def forward(self) -> torch.Tensor:
        h = self.places
        for layer in self.layers:
            h = torch.sin(self.frequency * layer(h))
        return (self.last(h) * self.decay).t()


class Hyena(nn.Module):
    """Hyena (Poli et al., 2023), four of twelve layers: gates and convolutions as long as the text in place of attention."""

    def __init__(self, c: int = 768, layers: int = 4, length: int = 1000, words: int = 8000):
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, c), nn.LayerNorm(c)
        self.into, self.out = (nn.ModuleList(nn.Linear(c, b) for _ in range(layers)) for b in (3 * c, c))
        self.local = nn.ModuleList(nn.Conv1d(3 * c, 3 * c, 3, padding=2, groups=3 * c) for _ in range(layers))
        self.filters = nn.ModuleList(LongFilter(c, length) for _ in range(layers))
        self.bias = nn.ParameterList(nn.Parameter(torch.randn(c)) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(approximate="tanh"), nn.Linear(4 * c, c)) for _ in range(layers)
        )
        self.last = nn.Linear(c, 256, bias=False)

    def mix(self, k: int, u: torch.Tensor) -> torch.Tensor:
        length = u.shape[1]
        y = self.local[k](self.into[k](u).transpose(1, 2))[..., :length]
        gate, key, value = y.chunk(3, 1)
        value = value * key
        f = torch.fft.rfft(value.float(), n=2 * length) * torch.fft.rfft(self.filters[k]().float(), n=2 * length)
        long = torch.fft.irfft(f, n=2 * length)[..., :length].to(u.dtype)
        return self.out[k]((gate * (long + value * self.bias[k][:, None])).transpose(1, 2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for k, mlp in enumerate(self.mlps):
            x = x + self.mix(k, self.norms[2 * k](x))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.last(self.norm(x))


class Retention(nn.Module):
    """RetNet's layer in its parallel form: turned queries and keys, weights that decay with the distance, no softmax."""

    def __init__(self, c: int, heads: int, length: int):
        super().__init__()
        self.heads, self.size, self.wide = heads, c // heads, 2 * c // heads
        self.q, self.k, self.v = (
            nn.Linear(c, c, bias=False),
            nn.Linear(c, c, bias=False),
            nn.Linear(c, 2 * c, bias=False),
        )
        self.gate, self.out = nn.Linear(c, 2 * c, bias=False), nn.Linear(2 * c, c, bias=False)
        angle = 1 / 10000 ** torch.linspace(0, 1, self.size // 2).repeat_interleave(2)
        turns = torch.arange(length)[:, None] * angle
        self.register_buffer("sine", torch.sin(turns))
        self.register_buffer("cosine", torch.cos(turns))
        decay = torch.log(1 - 2 ** (-5.0 - torch.arange(heads)))
        apart = torch.arange(length)[:, None] - torch.arange(length)
        mask = torch.exp((apart * decay[:, None, None]).masked_fill(apart < 0, float("-inf")))
        self.register_buffer("mask", mask / mask.sum(-1, keepdim=True).sqrt())

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        return x * self.cosine + other * self.sine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k))
        v = self.v(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        scores = self.turn(q) @ self.turn(k * self.size**-0.5).transpose(2, 3) * self.mask
        scores = scores / scores.abs().sum(-1, keepdim=True).clamp(min=1)
        y = (scores @ v).transpose(1, 2)
        y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).flatten(2)
        return self.out(F.silu(self.gate(x)) * y)


class RetNet(nn.Module):
    """RetNet (Sun et al., 2023) of width 1024, four layers, 500 tokens."""

    def __init__(self, c: int = 1024, heads: int = 4, layers: int = 4, length: int = 500, words: int = 8000):
        super().__init__()
        self.embed, self.last = nn.Embedding(words, c), nn.Linear(c, 512, bias=False)
        self.layers = nn.ModuleList(Retention(c, heads, length) for _ in range(layers))
        self.norms = nn.ModuleList(nn.RMSNorm(c, eps=1e-6) for _ in range(2 * layers + 1))
        self.gates, self.ups = (
            nn.ModuleList(nn.Linear(c, 5 * c // 3, bias=False) for _ in range(layers)) for _ in range(2)
        )
        self.downs = nn.ModuleList(nn.Linear(5 * c // 3, c, bias=False) for _ in range(layers))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for k, (layer, gate, up, down) in enumerate(zip(self.layers, self.gates, self.ups, self.downs, strict=True)):
            x = x + layer(self.norms[2 * k](x))
            y = self.norms[2 * k + 1](x)
            x = x + down(F.silu(gate(y)) * up(y))
        return self.last(self.norms[-1](x))


class DynamicConv(nn.Module):
    """Dynamic convolutions (Wu et al., 2019): each token's softmax gives the taps of its sixteen heads; six layers."""

    def __init__(
        self, c: int = 512, heads: int = 16, words: int = 10000, taps: tuple[int, ...] = (3, 7, 15, 31, 31, 31)
    ):
        super().__init__()
        self.heads, self.taps, self.embed = heads, taps, nn.Embedding(words, c)
        self.into, self.out = (nn.ModuleList(nn.Linear(c, b) for _ in taps) for b in (2 * c, c))
        self.weights = nn.ModuleList(nn.Linear(c, heads * k, bias=False) for k in taps)
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * len(taps)))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(c, 1024), nn.ReLU(), nn.Linear(1024, c)) for _ in taps)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for n, (k, into, weights, out) in enumerate(zip(self.taps, self.into, self.weights, self.out, strict=True)):
            y = F.glu(into(x), -1)
            w = weights(y).unflatten(2, (self.heads, k)).softmax(-1)
            windows = F.pad(y, (0, 0, k // 2, k // 2)).unfold(1, k, 1)  # batch, tokens, channels, taps
            y = torch.matmul(windows.unflatten(2, (self.heads, -1)), w[..., None]).flatten(2)
            x = self.norms[2 * n](x + out(y))
            x = self.norms[2 * n + 1](x + self.mlps[n](x))
        return x


class Highway(nn.Module):
    def __init__(self, c: int, layers: int = 2):
        super().__init__()
        self.lines, self.gates = (nn.ModuleList(nn.Linear(c, c) for _ in range(layers)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for line, gate in zip(self.lines, self.gates, strict=True):
            g = torch.sigmoid(gate(x))
            x = g * F.relu(line(x)) + (1 - g) * x
        return x


def similarities(c: torch.Tensor, q: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """w . [c; q; c * q] of all pairs, without the pairs."""
    a, b, both = w.chunk(3)
    return (c @ a)[..., None] + (q @ b)[:, None] + (c * both) @ q.transpose(1, 2)


class BiDaf(nn.Module):
    """BiDAF (Seo et al., 2017): words and letters, attention from text to question and back, spans by LSTMs."""

    def __init__(self, words: int = 20000, letters: int = 100, c: int = 100):
        super().__init__()
        self.words, self.letters = nn.Embedding(words, c), nn.Embedding(letters, 8)
        self.spell, self.highway = nn.Conv2d(1, c, (8, 5)), Highway(2 * c)
        self.context = nn.LSTM(2 * c, c, batch_first=True, bidirectional=True)
        self.weight = nn.Parameter(torch.randn(6 * c) / c**0.5)
        self.model = nn.LSTM(8 * c, c, 2, batch_first=True, bidirectional=True)
        self.end = nn.LSTM(2 * c, c, batch_first=True, bidirectional=True)
        self.first_g, self.first_m, self.last_g, self.last_m = (nn.Linear(a * c, 1) for a in (8, 2, 8, 2))
        for layer in (self.first_g, self.first_m, self.last_g, self.last_m):
            nn.init.normal_(layer.weight, std=0.3)  # spans that stand out

    def read(self, ids: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        batch, count, length = letters.shape
        e = self.letters(letters).view(batch * count, length, 8).transpose(1, 2)[:, None]
        e = self.spell(e).squeeze(2).amax(2).view(batch, count, -1)
        return self.context(self.highway(torch.cat([e, self.words(ids)], 2)))[0]

    def forward(
        self, text: torch.Tensor, letters: torch.Tensor, question: torch.Tensor, more: torch.Tensor
    ) -> torch.Tensor:
        c, q = self.read(text, letters), self.read(question, more)
        s = similarities(c, q, self.weight)
        to_question = s.softmax(2) @ q
        to_text = torch.bmm(s.amax(2).softmax(1)[:, None], c).expand(-1, c.shape[1], -1)
        g = torch.cat([c, to_question, c * to_question, c * to_text], 2)
        m = self.model(g)[0]
        first = (self.first_g(g) + self.first_m(m)).squeeze(2)
        last = (self.last_g(g) + self.last_m(self.end(m)[0])).squeeze(2)
        return torch.stack([first, last], 1).log_softmax(2)


def questions(batch: int, text: int = 250, question: int = 17) -> tuple[torch.Tensor, ...]:
    r = seeded()

    def pair(n: int) -> list[torch.Tensor]:
        return [torch.randint(0, 20000, (batch, n), generator=r), torch.randint(0, 100, (batch, n, 16), generator=r)]

    return (*pair(text), *pair(question))


class ReadingBlock(nn.Module):
    """Of QANet: separable convolutions along the text, attention, two layers; each normalised before it."""

    def __init__(self, c: int, convs: int, size: int, heads: int = 8):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv1d(c, c, size, padding=size // 2, groups=c, bias=False), nn.Conv1d(c, c, 1), nn.ReLU())
            for _ in range(convs)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(convs + 2))
        self.attention = nn.MultiheadAttention(c, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c))
        t, k = torch.arange(500.0)[:, None], torch.arange(c // 2)
        angle = t * 10000 ** (-2 * k / c)
        self.register_buffer("places", 0.2 * torch.cat([torch.sin(angle), torch.cos(angle)], 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.places[: x.shape[1]]
        for conv, norm in zip(self.convs, self.norms, strict=False):
            x = x + conv(norm(x).transpose(1, 2)).transpose(1, 2)
        y = self.norms[-2](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norms[-1](x))


class QaNet(nn.Module):
    """QANet (Yu et al., 2018) of width 128: three passes through the same seven blocks; three of the blocks here."""

    def __init__(self, words: int = 20000, letters: int = 100, c: int = 128, blocks: int = 3):
        super().__init__()
        self.words, self.letters = nn.Embedding(words, 300), nn.Embedding(letters, 64)
        self.spell, self.narrow = nn.Conv2d(64, 200, (1, 5), padding=(0, 2)), nn.Conv1d(500, c, 1)
        self.highway, self.embed = Highway(c), ReadingBlock(c, 4, 7)
        self.weight, self.join = nn.Parameter(torch.randn(3 * c) / c**0.5), nn.Linear(4 * c, c)
        self.blocks = nn.ModuleList(ReadingBlock(c, 2, 5) for _ in range(blocks))
        self.first, self.last = nn.Linear(2 * c, 1, bias=False), nn.Linear(2 * c, 1, bias=False)

    def read(self, ids: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        e = F.relu(self.spell(self.letters(letters).permute(0, 3, 1, 2))).amax(3)
        x = self.narrow(torch.cat([e, self.words(ids).transpose(1, 2)], 1)).transpose(1, 2)
        return self.embed(self.highway(x))

    def forward(
        self, text: torch.Tensor, letters: torch.Tensor, question: torch.Tensor, more: torch.Tensor
    ) -> torch.Tensor:
        c, q = self.read(text, letters), self.read(question, more)
        s = similarities(c, q, self.weight)
        rows, columns = s.softmax(2), s.softmax(1)
        a = rows @ q
        b = rows @ columns.transpose(1, 2) @ c
        x, passes = self.join(torch.cat([c, a, c * a, c * b], 2)), []
        for _ in range(3):
            for block in self.blocks:
                x = block(x)
            passes.append(x)
        first, last = self.first(torch.cat(passes[:2], 2)), self.last(torch.cat(passes[::2], 2))
        return torch.cat([first, last], 2).transpose(1, 2).log_softmax(2)


class TransformerXl(nn.Module):
    """Transformer-XL (Dai et al., 2019), four of sixteen layers: ten heads of 41 elements, 150 tokens and as many remembered."""

    def __init__(self, c: int = 410, heads: int = 10, layers: int = 4, words: int = 20000, length: int = 150):
        super().__init__()
        self.heads, self.size, self.length = heads, c // heads, length
        self.embed = nn.Embedding(words, c)
        self.q, self.out = (nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(layers)) for _ in range(2))
        self.kv = nn.ModuleList(nn.Linear(c, 2 * c, bias=False) for _ in range(layers))
        self.r = nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(layers))
        self.content, self.position = (nn.Parameter(0.3 * torch.randn(heads, c // heads)) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(c, 2100), nn.ReLU(), nn.Linear(2100, c)) for _ in range(layers)
        )
        angle = torch.arange(2 * length - 1, -1, -1.0)[:, None] / 10000 ** (torch.arange(0, c, 2) / c)
        self.register_buffer("places", torch.cat([torch.sin(angle), torch.cos(angle)], 1))
        later = torch.arange(2 * length) > torch.arange(length, 2 * length)[:, None]
        self.register_buffer("later", later)

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        batch, heads, rows, columns = x.shape
        return F.pad(x, (1, 0)).view(batch, heads, columns + 1, rows)[:, :, 1:].reshape(batch, heads, rows, columns)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(ids)
        kept = []
        for k, (query, kv, place, out) in enumerate(zip(self.q, self.kv, self.r, self.out, strict=True)):
            kept.append(x)
            q = query(x).unflatten(2, (self.heads, -1))
            both = torch.cat([memory[:, k], x], 1)
            key, value = (t.unflatten(2, (self.heads, -1)) for t in kv(both).chunk(2, 2))
            r = place(self.places).unflatten(1, (self.heads, -1))
            scores = torch.einsum("bihd,bjhd->bhij", q + self.content, key)
            scores = scores + self.shift(torch.einsum("bihd,jhd->bhij", q + self.position, r))
            scores = (scores * self.size**-0.5).masked_fill(self.later, float("-inf")).softmax(-1)
            y = torch.einsum("bhij,bjhd->bihd", scores, value).flatten(2)
            x = self.norms[2 * k](x + out(y))
            x = self.norms[2 * k + 1](x + self.mlps[k](x))
        return x, torch.stack(kept, 1)


def remembered(batch: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(0, 20000, (batch, 150), generator=seeded()), torch.randn(
        batch, 4, 150, 410, generator=seeded()
    )


class TuringMachine(nn.Module):
    """Neural Turing machine (Graves et al., 2014): 128 rows of 20, read and written by contents, shifts and sharpening."""

    def __init__(self, into: int = 9, out: int = 8, hidden: int = 100, rows: int = 128, width: int = 20):
        super().__init__()
        self.cell, self.rows, self.width = nn.LSTMCell(into + width, hidden), rows, width
        self.read, self.write = nn.Linear(hidden, width + 6), nn.Linear(hidden, 3 * width + 6)
        self.memory = nn.Parameter(0.3 * torch.randn(rows, width))
        self.start, self.last = nn.Parameter(torch.randn(width)), nn.Linear(hidden + width, out)

    def address(self, p: torch.Tensor, before: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        key, strength, gate, shift, sharp = p.split([self.width, 1, 1, 3, 1], 1)
        near = F.cosine_similarity(memory, torch.tanh(key)[:, None], dim=2, eps=1e-4)
        weights = (F.softplus(strength) * near).softmax(1)
        gate = torch.sigmoid(gate)
        weights = gate * weights + (1 - gate) * before
        shift = shift.softmax(1)
        moved = torch.cat([weights[:, -1:], weights, weights[:, :1]], 1).unfold(1, 3, 1)
        weights = (torch.einsum("bnk,bk->bn", moved, shift) + 1e-3) ** (1 + F.softplus(sharp))
        return weights / weights.sum(1, keepdim=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        memory, read = self.memory.expand(batch, -1, -1), self.start.expand(batch, -1)
        h = c = torch.zeros(batch, self.cell.hidden_size, dtype=x.dtype, device=x.device)
        reading = writing = torch.full((batch, self.rows), 1.0 / self.rows, dtype=x.dtype, device=x.device)
        results = []
        for step in range(x.shape[1]):
            h, c = self.cell(torch.cat([x[:, step], read], 1), (h, c))
            p, more = self.write(h).split([self.width + 6, 2 * self.width], 1)
            writing = self.address(p, writing, memory)
            erase, add = more.chunk(2, 1)
            memory = memory * (1 - writing[..., None] * torch.sigmoid(erase)[:, None])
            memory = memory + writing[..., None] * torch.tanh(add)[:, None]
            reading = self.address(self.read(h), reading, memory)
            read = torch.bmm(reading[:, None], memory).squeeze(1)
            results.append(torch.sigmoid(self.last(torch.cat([h, read], 1))))
        return torch.stack(results, 1)


class SoftmaxMixture(nn.Module):
    """Mixture of softmaxes (Yang et al., 2018): three LSTMs of 960, 960 and 620, and 15 softmaxes over 10,000 words."""

    def __init__(self, words: int = 10000, c: int = 280, experts: int = 15):
        super().__init__()
        self.c, self.experts, self.embed = c, experts, nn.Embedding(words, c)
        self.lstms = nn.ModuleList(nn.LSTM(a, b, batch_first=True) for a, b in ((c, 960), (960, 960), (960, 620)))
        self.latent, self.prior = nn.Linear(620, experts * c), nn.Linear(620, experts, bias=False)
        self.bias = nn.Parameter(torch.zeros(words))
        nn.init.normal_(self.embed.weight, std=0.2)
        nn.init.normal_(self.latent.weight, std=0.5)  # words that stand out

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for lstm in self.lstms:
            x, _ = lstm(x)
        latent = torch.tanh(self.latent(x)).view(-1, self.c)
        chances = F.softmax(F.linear(latent, self.embed.weight, self.bias), -1).view(
            -1, self.experts, self.bias.shape[0]
        )
        prior = F.softmax(self.prior(x).view(-1, self.experts), -1)
        mixed = (chances * prior[..., None]).sum(1)
        return torch.log(mixed + 1e-6).view(ids.shape[0], ids.shape[1], -1)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "hyena_4": (Hyena, tokens(1000, 8000)),
    "retnet_4": (RetNet, tokens(500, 8000)),
    "dynamic_conv_6": (DynamicConv, tokens(100, 10000)),
    "bidaf": (BiDaf, questions),
    "qanet": (QaNet, questions),
    "transformer_xl_4": (TransformerXl, remembered),
    "neural_turing": (TuringMachine, normal((20, 9))),
    "softmax_mixture": (SoftmaxMixture, tokens(35, 10000)),
}
