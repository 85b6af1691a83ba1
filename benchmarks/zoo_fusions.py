"""Texts beside images, latents and spans, for the zoo: chosen blocks of keys, latents that read an image's pixels, images within a
text, sparse words, late interaction, spans with labels and code books of sounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, pictures, seeded, tokens
from zoo_languages import GatedMlp, RmsNorm, heads_of, turned


class ChosenBlocks(nn.Module):
    """Native sparse attention (Yuan et al., 2025), two layers over 1024 tokens: means of blocks, the four blocks of 64 whose means
    a token attends to most, and the last 128 tokens, mixed by gates."""

    def __init__(
        self, c: int = 768, heads: int = 12, layers: int = 2, block: int = 64, best: int = 4, length: int = 1024
    ):
        super().__init__()
        self.heads, self.block, self.best = heads, block, best
        self.embed = nn.Embedding(8000, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.gate, self.out = (
            each(lambda: nn.Linear(c, c + 256)),
            each(lambda: nn.Linear(c, 3 * heads)),
            each(lambda: nn.Linear(c, c)),
        )
        self.squeeze = each(lambda: nn.Linear(block, 1))
        self.norm1, self.norm2, self.mlps = (
            each(lambda: RmsNorm(c)),
            each(lambda: RmsNorm(c)),
            each(lambda: GatedMlp(c, 2 * c)),
        )
        self.norm, self.last = RmsNorm(c), nn.Linear(c, 8000)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        n, c = x.shape[1:]
        q, key, v = self.qkv[k](x).split([c, 128, 128], -1)
        q, key, v = turned(heads_of(q, self.heads)), turned(heads_of(key, 2)), heads_of(v, 2)
        pairs = self.heads // 2
        q = q.unflatten(1, (2, pairs))
        at = torch.arange(n, device=x.device)
        first = torch.arange(n // self.block, device=x.device) * self.block
        squeeze = lambda t: self.squeeze[k](t.unflatten(2, (-1, self.block)).transpose(3, 4))[..., 0]
        short_k, short_v = squeeze(key), squeeze(v)
        scores = torch.einsum("bgpnd,bgmd->bgpnm", q, short_k) / 8
        ended = first + self.block - 1 <= at[:, None]
        weights = scores.masked_fill(~ended, -1e4).softmax(-1) * ended
        far = torch.einsum("bgpnm,bgmd->bgpnd", weights, short_v)
        own = first <= at[:, None]
        rank = weights.sum(2).masked_fill(~own, -1.0) + 10 * (at[:, None] // self.block == first // self.block)
        chosen = rank.topk(self.best, -1)[1]
        place = (chosen[..., None] * self.block + torch.arange(self.block, device=x.device)).flatten(3)
        take = lambda t: t.gather(2, place.flatten(2)[..., None].expand(-1, -1, -1, 64)).unflatten(2, (n, -1))
        scores = torch.einsum("bgpnd,bgnmd->bgpnm", q, take(key)) / 8
        weights = scores.masked_fill((place > at[:, None])[:, :, None], -1e4).softmax(-1)
        chosen_y = torch.einsum("bgpnm,bgnmd->bgpnd", weights, take(v))
        near = (at[:, None] >= at) & (at[:, None] - at < 128)
        wide = lambda t: t[:, :, None].expand(-1, -1, pairs, -1, -1).flatten(1, 2)
        near_y = F.scaled_dot_product_attention(q.flatten(1, 2), wide(key), wide(v), near)
        gates = self.gate[k](x).sigmoid().unflatten(2, (3, self.heads)).permute(2, 0, 3, 1)[..., None]
        y = gates[0] * far.flatten(1, 2) + gates[1] * chosen_y.flatten(1, 2) + gates[2] * near_y
        return self.out[k](y.transpose(1, 2).flatten(2))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text)
        for k, mlp in enumerate(self.mlps):
            x = x + self.attend(k, self.norm1[k](x))
            x = x + mlp(self.norm2[k](x))
        return self.last(self.norm(x[:, -8:]))


class Perceiver(nn.Module):
    """Perceiver IO (Jaegle et al., 2021), four of 48 layers: 512 latents read 112 x 112 pixels with Fourier features by one head,
    attend to each other, and one query reads them."""

    def __init__(
        self, c: int = 1024, latents: int = 512, layers: int = 4, heads: int = 8, side: int = 112, bands: int = 64
    ):
        super().__init__()
        self.heads, into = heads, 3 + 2 * (2 * bands + 1)
        line = torch.linspace(-1, 1, side)
        y, x = torch.meshgrid(line, line, indexing="ij")
        at = torch.stack([y, x], 2).flatten(0, 1)
        angles = (at[:, :, None] * torch.linspace(1, side / 2, bands) * math.pi).flatten(1)
        self.register_buffer("places", torch.cat([at, angles.sin(), angles.cos()], 1))
        self.latents = nn.Parameter(torch.randn(1, latents, c))
        self.norm_x, self.norm_q = nn.LayerNorm(into), nn.LayerNorm(c)
        self.q, self.k, self.v, self.o = (
            nn.Linear(c, into),
            nn.Linear(into, into),
            nn.Linear(into, into),
            nn.Linear(into, c),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 3))
        self.qkv, self.out = (nn.ModuleList(nn.Linear(c, n * c) for _ in range(layers)) for n in (3, 1))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(c, c), nn.GELU(), nn.Linear(c, c)) for _ in range(layers + 1))
        self.query, self.read = nn.Parameter(torch.randn(1, 1, c)), nn.MultiheadAttention(c, 1, batch_first=True)
        self.last = nn.Linear(c, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        b = image.shape[0]
        pixels = torch.cat([image.flatten(2).transpose(1, 2), self.places.expand(b, -1, -1)], 2)
        pixels, x = self.norm_x(pixels), self.latents.expand(b, -1, -1)
        q, k, v = self.q(self.norm_q(x)), self.k(pixels), self.v(pixels)
        x = x + self.o((q @ k.transpose(1, 2) / q.shape[2] ** 0.5).softmax(-1) @ v)
        x = x + self.mlps[0](self.norms[0](x))
        for i, (qkv, out) in enumerate(zip(self.qkv, self.out, strict=True)):
            q, k, v = (heads_of(t, self.heads) for t in qkv(self.norms[2 * i + 1](x)).chunk(3, -1))
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            x = x + self.mlps[i + 1](self.norms[2 * i + 2](x))
        x = self.norms[-2](x)
        return self.last(self.norms[-1](self.read(self.query.expand(b, -1, -1), x, x, need_weights=False)[0])[:, 0])


class SeeingLanguage(nn.Module):
    """LLaVA (Liu et al., 2023) at small widths: three blocks of a ViT with 24 x 24 patches, a projection, and three layers of a
    language model that reads patches between words."""

    def __init__(self, vision: int = 768, c: int = 1024, heads: int = 16, layers: int = 3, before: int = 35):
        super().__init__()
        self.heads, self.before = heads, before
        self.patch, self.places = (
            nn.Conv2d(3, vision, 14, 14, bias=False),
            nn.Parameter(0.3 * torch.randn(1, 577, vision)),
        )
        self.token, self.norm0 = nn.Parameter(torch.randn(1, 1, vision)), nn.LayerNorm(vision)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        layer = lambda: nn.ModuleList((nn.LayerNorm(vision), nn.Linear(vision, 3 * vision), nn.Linear(vision, vision), nn.LayerNorm(vision), nn.Linear(vision, 4 * vision), nn.Linear(4 * vision, vision)))  # fmt: skip
        self.vision = each(layer)
        self.project = nn.Sequential(nn.Linear(vision, c), nn.GELU(), nn.Linear(c, c))
        self.embed = nn.Embedding(16000, c)
        self.norm1, self.norm2 = each(lambda: RmsNorm(c)), each(lambda: RmsNorm(c))
        self.qkv, self.out = each(lambda: nn.Linear(c, 3 * c, bias=False)), each(lambda: nn.Linear(c, c, bias=False))
        self.mlps, self.norm, self.last = each(lambda: GatedMlp(c, 2752)), RmsNorm(c), nn.Linear(c, 16000, bias=False)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = self.norm0(torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places)
        for norm1, qkv, out, norm2, wide, narrow in self.vision:
            q, k, v = (heads_of(t, 12) for t in qkv(norm1(x)).chunk(3, -1))
            x = x + out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            y = wide(norm2(x))
            x = x + narrow(y * (1.702 * y).sigmoid())
        words = self.embed(text)
        x = torch.cat([words[:, : self.before], self.project(x[:, 1:]), words[:, self.before :]], 1)
        for k, mlp in enumerate(self.mlps):
            q, key, v = (heads_of(t, self.heads) for t in self.qkv[k](self.norm1[k](x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(turned(q), turned(key), v, is_causal=True)
            x = x + self.out[k](y.transpose(1, 2).flatten(2))
            x = x + mlp(self.norm2[k](x))
        return self.last(self.norm(x[:, -1:]))


def shown(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    return pictures(3, 336, 336)(batch)[0], torch.randint(0, 16000, (batch, 95), generator=seeded())


class Encoder(nn.Module):
    """Four layers of a BERT of width 384 with padded texts."""

    def __init__(self, c: int = 384, layers: int = 4, heads: int = 12, kinds: int = 30522, length: int = 512):
        super().__init__()
        self.embed, self.places = nn.Embedding(kinds, c, padding_idx=0), nn.Embedding(length, c)
        layer = nn.TransformerEncoderLayer(c, heads, 4 * c, 0.0, "gelu", batch_first=True)
        self.layers, self.norm = nn.ModuleList(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False) for _ in range(layers)), nn.LayerNorm(c)  # fmt: skip

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        gone = text == 0
        x = self.norm(self.embed(text) + self.places(torch.arange(text.shape[1], device=text.device)))
        gone = torch.zeros(gone.shape, dtype=x.dtype, device=x.device).masked_fill(gone, -1e4)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=gone)
        return x


class SparseWords(nn.Module):
    """SPLADE (Formal et al., 2021): the largest log(1 + ReLU) of each word's logits over all tokens."""

    def __init__(self, c: int = 384):
        super().__init__()
        self.encoder, self.dense, self.norm = Encoder(c), nn.Linear(c, c), nn.LayerNorm(c)
        self.bias = nn.Parameter(torch.zeros(30522))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.norm(F.gelu(self.dense(self.encoder(text))))
        logits = F.linear(x, self.encoder.embed.weight, self.bias)
        return ((1 + logits.relu()).log() * (text != 0)[..., None]).amax(1)


class LateInteraction(nn.Module):
    """ColBERT (Khattab and Zaharia, 2020): 32 tokens of a question against 20 documents of 180 tokens, the best of each, summed."""

    def __init__(self, c: int = 384, size: int = 128, documents: int = 20):
        super().__init__()
        self.documents, self.encoder, self.project = documents, Encoder(c), nn.Linear(c, size, bias=False)

    def forward(self, question: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        q = F.normalize(self.project(self.encoder(question)), dim=2)
        flat = documents.flatten(0, 1)
        d = F.normalize(self.project(self.encoder(flat)), dim=2) * (flat != 0)[..., None]
        scores = torch.einsum("bqc,bnkc->bnqk", q, d.unflatten(0, documents.shape[:2]))
        return scores.masked_fill((documents == 0)[:, :, None], -10.0).amax(3).sum(2)


def padded(*shapes: tuple[int, ...]) -> Inputs:
    """Texts whose ends are padding."""

    def make(batch: int) -> tuple[torch.Tensor, ...]:
        r, texts = seeded(), []
        for shape in shapes:
            text = torch.randint(1, 30522, (batch, *shape), generator=r)
            lengths = torch.randint(shape[-1] // 2, shape[-1] + 1, (batch, *shape[:-1], 1), generator=r)
            texts.append(torch.where(torch.arange(shape[-1]) < lengths, text, 0))
        return tuple(texts)

    return make


class LabelledSpans(nn.Module):
    """GLiNER (Zaratiana et al., 2023): all spans of up to 12 words against embedded labels, after a bidirectional LSTM."""

    def __init__(self, c: int = 384, labels: int = 12, width: int = 12):
        super().__init__()
        self.encoder, self.labels, self.width = Encoder(c), labels, width
        self.lstm = nn.LSTM(c, c // 2, batch_first=True, bidirectional=True)
        mlp = lambda a, b: nn.Sequential(nn.Linear(a, 4 * c), nn.ReLU(), nn.Linear(4 * c, b))
        self.start, self.end, self.join, self.label = mlp(c, c), mlp(c, c), mlp(2 * c, c), mlp(c, c)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.encoder(text)
        labels, words = x[:, : 2 * self.labels : 2], self.lstm(x[:, 2 * self.labels :])[0]
        n = words.shape[1]
        first = torch.arange(n, device=text.device)[:, None].expand(-1, self.width)
        last = (first + torch.arange(self.width, device=text.device)).clamp(max=n - 1)
        starts, ends = self.start(words)[:, first.flatten()], self.end(words)[:, last.flatten()]
        spans = self.join(torch.cat([starts, ends], 2).relu()).unflatten(1, (n, self.width))
        return torch.einsum("blkd,bcd->blkc", spans, self.label(labels))


class CodedMusic(nn.Module):
    """MusicGen (Copet et al., 2023), four of 24 layers: four code books of delayed tokens are summed, attention to a text, a head
    for each code book."""

    def __init__(self, c: int = 1024, heads: int = 16, layers: int = 4, books: int = 4, kinds: int = 2049):
        super().__init__()
        self.heads, self.books, self.kinds = heads, books, kinds
        self.embed, self.text = nn.ModuleList(nn.Embedding(kinds, c) for _ in range(books)), nn.Linear(768, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        linear = lambda n: each(lambda: nn.Linear(c, n * c, bias=False))
        self.qkv, self.out, self.q, self.kv, self.out2 = linear(3), linear(1), linear(1), linear(2), linear(1)
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(3 * layers + 1))
        self.mlps = each(
            lambda: nn.Sequential(nn.Linear(c, 4 * c, bias=False), nn.GELU(), nn.Linear(4 * c, c, bias=False))
        )
        self.heads_out = nn.ModuleList(nn.Linear(c, kinds - 1, bias=False) for _ in range(books))

    def forward(self, codes: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        books, n = codes.shape[1:]
        delayed = [F.pad(codes[:, k], (k, 0), value=self.kinds - 1)[:, :n] for k in range(books)]
        x = sum(embed(t) for embed, t in zip(self.embed, delayed, strict=True))
        half = x.shape[2] // 2
        angles = torch.arange(n, device=x.device)[:, None] * torch.exp(
            torch.arange(half, device=x.device) * (-math.log(10000.0) / (half - 1))
        )
        x, y = x + torch.cat([angles.cos(), angles.sin()], 1).to(x.dtype), self.text(text)
        for k, mlp in enumerate(self.mlps):
            q, key, v = (heads_of(t, self.heads) for t in self.qkv[k](self.norms[3 * k](x)).chunk(3, -1))
            x = x + self.out[k](F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).flatten(2))
            q = heads_of(self.q[k](self.norms[3 * k + 1](x)), self.heads)
            key, v = (heads_of(t, self.heads) for t in self.kv[k](y).chunk(2, -1))
            x = x + self.out2[k](F.scaled_dot_product_attention(q, key, v).transpose(1, 2).flatten(2))
            x = x + mlp(self.norms[3 * k + 2](x))
        x = self.norms[-1](x)
        return torch.stack([head(x) for head in self.heads_out], 1)


def composed(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    r = seeded()
    return torch.randint(0, 2048, (batch, 4, 250), generator=r), torch.randn(batch, 40, 768, generator=r)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "sparse_blocks_2": (ChosenBlocks, tokens(1024, 8000)),
    "perceiver_io_4": (Perceiver, pictures(3, 112, 112)),
    "llava_3": (SeeingLanguage, shown),
    "splade_4": (SparseWords, padded((256,))),
    "col_bert_4": (LateInteraction, padded((32,), (20, 180))),
    "gliner_4": (LabelledSpans, padded((224,))),
    "music_gen_4": (CodedMusic, composed),
}
