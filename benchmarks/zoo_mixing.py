"""Sequence mixers other than plain attention, for the zoo: gated and quadratic linear attention, learning at test time, moving
averages as spectra, low ranks, additive attention, sorted blocks, skipped layers, patches of bytes, and steps one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, tokens


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, c: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Gated(nn.Module):
    def __init__(self, c: int, hidden: int):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(c, hidden), nn.Linear(c, hidden), nn.Linear(hidden, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Stack(nn.Module):
    """Tokens through pre-normed mixers and gated layers."""

    def __init__(self, c: int, layers: int, mixer: Callable[[], nn.Module], vocabulary: int = 8000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, c)
        self.mixers, self.mlps = (nn.ModuleList(f() for _ in range(layers)) for f in (mixer, lambda: Gated(c, 3 * c)))
        self.norms = nn.ModuleList(Norm(c) for _ in range(2 * layers + 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for k, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps, strict=True)):
            x = x + mixer(self.norms[2 * k](x))
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.norms[-1](x)


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class GatedLinearAttention(nn.Module):
    """GLA (Yang et al., 2024) in chunks of 64: decays of each channel within a chunk, a state from chunk to chunk."""

    def __init__(self, c: int, heads: int = 4, chunk: int = 64):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.q, self.k, self.v = nn.Linear(c, c // 2), nn.Linear(c, c // 2), nn.Linear(c, c)
        self.decay = nn.Sequential(nn.Linear(c, 16, bias=False), nn.Linear(16, c // 2))
        self.gate, self.out, self.norm = nn.Linear(c, c), nn.Linear(c, c), Norm(c // heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = lambda t: heads_of(t, self.heads).unflatten(2, (-1, self.chunk))
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        g = split(F.logsigmoid(self.decay(x)) / 16).cumsum(3)
        last = g[:, :, :, -1:]
        q, k_in, k_out = q * g.exp() * q.shape[-1] ** -0.5, k * (-g).exp(), k * (last - g).exp()
        y = (q @ k_in.transpose(3, 4)).tril() @ v
        added = k_out.transpose(3, 4) @ v
        state, past = torch.zeros_like(added[:, :, 0]), []
        for n in range(added.shape[2]):
            past.append(state)
            state = state * last[:, :, n].transpose(2, 3).exp() + added[:, :, n]
        y = y + q @ torch.stack(past, 2)
        y = self.norm(y.flatten(2, 3)).transpose(1, 2).flatten(2)
        return self.out(y * F.silu(self.gate(x)))


class TestTimeLearner(nn.Module):
    """TTT-Linear (Sun et al., 2024): each head's state is a linear model that learns from 16 tokens at a time, in the dual form."""

    def __init__(self, c: int, heads: int = 8, batch: int = 16):
        super().__init__()
        self.heads, self.batch = heads, batch
        d = c // heads
        self.qkv, self.rate, self.out = nn.Linear(c, 3 * c), nn.Linear(c, heads), nn.Linear(c, c)
        self.w = nn.Parameter(torch.randn(heads, d, d) * 0.05)
        self.b, self.norm = nn.Parameter(torch.zeros(heads, 1, d)), nn.LayerNorm(c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (heads_of(t, self.heads) for t in self.qkv(x).chunk(3, 2))
        rates = self.rate(x).sigmoid().transpose(1, 2)[..., None] / (self.batch * q.shape[-1] ** 0.5)
        w, bias, out = self.w.expand(x.shape[0], -1, -1, -1), self.b, []
        for i in range(0, x.shape[1], self.batch):
            a, b, target, rate = (t[:, :, i : i + self.batch] for t in (q, k, v, rates))
            error = rate * (b @ w + bias - (target - b))
            out.append(a @ w + bias - (a @ b.transpose(2, 3)).tril() @ error - error.cumsum(2))
            w, bias = w - b.transpose(2, 3) @ error, bias - error.sum(2, keepdim=True)
        return self.out(self.norm(torch.cat(out, 2).transpose(1, 2).flatten(2)))


class MovingAverages(nn.Module):
    """Mega (Ma et al., 2023): 16 damped averages of each channel as one convolution by spectra, and one head of attention whose
    queries and keys they make, with gates."""

    def __init__(self, c: int, order: int = 16, key: int = 128):
        super().__init__()
        self.alpha, self.delta = nn.Parameter(torch.randn(c, order)), nn.Parameter(torch.randn(c, order))
        self.into, self.out = nn.Parameter(torch.randn(c, order)), nn.Parameter(torch.randn(c, order) / order)
        self.skip, self.value = nn.Parameter(torch.ones(c)), nn.Linear(c, 2 * c)
        self.mixed = nn.Linear(c, key + 2 * c + 2 * c)
        self.scale, self.shift = nn.Parameter(torch.ones(2, key)), nn.Parameter(torch.zeros(2, key))
        self.last, self.sizes = nn.Linear(2 * c, c), (key, 2 * c, 2 * c)

    def average(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        p = self.alpha.sigmoid()
        log = torch.log1p(-p * self.delta.sigmoid())
        kernel = (
            (p * self.into * self.out)[..., None] * (log[..., None] * torch.arange(n, device=x.device)).exp()
        ).sum(1)
        f = torch.fft.rfft(x.float().transpose(1, 2), n=2 * n) * torch.fft.rfft(kernel.float(), n=2 * n)
        return F.silu(torch.fft.irfft(f, n=2 * n)[..., :n].to(x.dtype).transpose(1, 2) + x * self.skip)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, y = F.silu(self.value(x)), self.average(x)
        z, reset, update = self.mixed(y).split(self.sizes, 2)
        q, k = (F.silu(z)[:, :, None] * self.scale + self.shift).unbind(2)
        weights = F.relu(q @ k.transpose(1, 2) / x.shape[1]).square().tril()
        out = (weights @ value) * F.silu(reset)
        gate, other = update.sigmoid().chunk(2, 2)
        return gate * self.last(out) + other * y


class TaylorAttention(nn.Module):
    """Based (Arora et al., 2024): causal linear attention whose features are 1, q and q q^T of 16 channels, in the parallel form,
    and a window of 64 tokens."""

    def __init__(self, c: int, heads: int = 8, feature: int = 16, window: int = 64, length: int = 512):
        super().__init__()
        self.heads, self.q, self.k, self.v = (
            heads,
            nn.Linear(c, heads * feature),
            nn.Linear(c, heads * feature),
            nn.Linear(c, c),
        )
        self.near, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        i = torch.arange(length)
        near = (i[:, None] - i < window) & (i[:, None] >= i)
        self.register_buffer("mask", torch.where(near, 0.0, -1e4))

    @staticmethod
    def features(x: torch.Tensor) -> torch.Tensor:
        second = (x[..., None] * x[..., None, :]).flatten(-2) / (2 * x.shape[-1]) ** 0.5
        return torch.cat([torch.ones_like(x[..., :1]), x / x.shape[-1] ** 0.25, second], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (heads_of(f(x), self.heads) for f in (self.q, self.k, self.v))
        weights = (self.features(q) @ self.features(k).transpose(2, 3)).tril()
        y = weights @ v / (weights.sum(3, keepdim=True) + 1e-3)
        a, b, d = (heads_of(t, self.heads) for t in self.near(x).chunk(3, 2))
        y = y + F.scaled_dot_product_attention(a, b, d, attn_mask=self.mask.to(x.dtype))
        return self.out(y.transpose(1, 2).flatten(2))


class LowRank(nn.Module):
    """Linformer (Wang et al., 2020): keys and values of 512 tokens projected to 64."""

    def __init__(self, c: int, heads: int = 8, length: int = 512, rank: int = 64):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.e, self.f = (nn.Parameter(torch.randn(length, rank) / length**0.5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, 2)
        k, v = torch.einsum("bnd,nk->bkd", k, self.e), torch.einsum("bnd,nk->bkd", v, self.f)
        y = F.scaled_dot_product_attention(*(heads_of(t, self.heads) for t in (q, k, v)))
        return self.out(y.transpose(1, 2).flatten(2))


class Additive(nn.Module):
    """Fastformer (Wu et al., 2021): a global query is a weighted sum of queries, a global key one of its products with keys."""

    def __init__(self, c: int, heads: int = 8):
        super().__init__()
        self.heads, self.q, self.k = heads, nn.Linear(c, c), nn.Linear(c, c)
        self.weigh_q, self.weigh_k, self.mix = nn.Linear(c, heads), nn.Linear(c, heads), nn.Linear(c, c)

    def pool(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        weights = (weights.transpose(1, 2) / (x.shape[2] // self.heads) ** 0.5).softmax(-1)
        return (weights[:, :, None] @ heads_of(x, self.heads)).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = self.q(x), self.k(x)
        k = k * self.pool(q, self.weigh_q(q))
        return self.mix(self.pool(k, self.weigh_k(k)) * q) + q


class Synthesizer(nn.Module):
    """Synthesizer (Tay et al., 2021): weights of each token by an MLP, plus learned ones, instead of products of queries and keys."""

    def __init__(self, c: int, heads: int = 8, length: int = 512):
        super().__init__()
        self.heads, d = heads, c // heads
        self.one, self.two = (
            nn.Parameter(torch.randn(heads, d, d) / d**0.5),
            nn.Parameter(torch.randn(heads, d, length) / d**0.5),
        )
        self.fixed, self.v, self.out = (
            nn.Parameter(torch.randn(heads, length, length)),
            nn.Linear(c, c),
            nn.Linear(c, c),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = F.relu(heads_of(x, self.heads) @ self.one) @ self.two + self.fixed
        return self.out((scores.softmax(3) @ heads_of(self.v(x), self.heads)).transpose(1, 2).flatten(2))


class SortedBlocks(nn.Module):
    """Sparse Sinkhorn attention (Tay et al., 2020): blocks of 64 keys are sorted by a matrix that eight normalisations make doubly
    stochastic; queries see their own block and the sorted one."""

    def __init__(self, c: int, heads: int = 8, block: int = 64, length: int = 512):
        super().__init__()
        self.heads, self.block = heads, block
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.sort = nn.Parameter(torch.randn(heads, c // heads, length // block) / (c // heads) ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (heads_of(t, self.heads).unflatten(2, (-1, self.block)) for t in self.qkv(x).chunk(3, 2))
        order = k.mean(3) @ self.sort / 0.75
        for _ in range(8):
            order = order - order.logsumexp(3, keepdim=True)
            order = order - order.logsumexp(2, keepdim=True)
        order = order.exp()
        sort = lambda t: (order @ t.flatten(3)).view_as(t)
        k, v = torch.cat([k, sort(k)], 3), torch.cat([v, sort(v)], 3)
        y = (q @ k.transpose(3, 4) * q.shape[-1] ** -0.5).softmax(4) @ v
        return self.out(y.flatten(2, 3).transpose(1, 2).flatten(2))


class MixtureOfDepths(nn.Module):
    """Mixture of depths (Raposo et al., 2024): every second layer takes only the eighth of the tokens that a router scores highest."""

    def __init__(self, c: int = 512, heads: int = 8, layers: int = 6, vocabulary: int = 8000):
        super().__init__()
        self.embed, self.heads = nn.Embedding(vocabulary, c), heads
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.routers, self.qkv = each(lambda: nn.Linear(c, 1)), each(lambda: nn.Linear(c, 3 * c))
        self.out, self.mlps = each(lambda: nn.Linear(c, c)), each(lambda: Gated(c, 3 * c))
        self.norms = nn.ModuleList(Norm(c) for _ in range(2 * layers))

    def block(self, k: int, x: torch.Tensor) -> torch.Tensor:
        q, key, v = (heads_of(t, self.heads) for t in self.qkv[k](self.norms[2 * k](x)).chunk(3, 2))
        y = self.out[k](F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).flatten(2))
        return y + self.mlps[k](self.norms[2 * k + 1](x + y))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for k, router in enumerate(self.routers):
            if k % 2 == 0:
                x = x + self.block(k, x)
                continue
            weights, which = router(x)[..., 0].topk(x.shape[1] // 8, 1)
            which, order = which.sort(1)
            weights = weights.gather(1, order)[..., None]
            index = which[..., None].expand(-1, -1, x.shape[2])
            x = x.scatter_add(1, index, self.block(k, x.gather(1, index)) * weights.sigmoid())
        return x


class BytePatches(nn.Module):
    """A byte latent transformer (Pagnoni et al., 2024): bytes with hashed n-grams, windows of attention, patches of four by
    cross-attention, four global layers, and back to bytes."""

    def __init__(self, c: int = 256, wide: int = 768, layers: int = 4, length: int = 1024, hashes: int = 20000):
        super().__init__()
        self.bytes, self.hashes, self.kinds = (
            nn.Embedding(260, c),
            nn.ModuleList(nn.Embedding(hashes, c) for _ in range(3)),
            hashes,
        )
        encode = lambda d, h: nn.TransformerEncoderLayer(d, h, 4 * d, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.first, self.last = encode(c, 4), encode(c, 4)
        self.layers = nn.ModuleList(encode(wide, 12) for _ in range(layers))
        self.to_q, self.to_kv, self.up = nn.Linear(c, c), nn.Linear(c, 2 * c), nn.Linear(c, wide)
        self.back_q, self.back_kv, self.head = nn.Linear(c, c), nn.Linear(wide, 2 * c), nn.Linear(c, 260)
        i = torch.arange(length)
        mask = lambda keep: torch.where(keep, 0.0, -1e4)
        self.register_buffer("window", mask((i[:, None] >= i) & (i[:, None] - i < 128)))
        p = torch.arange(length // 4)
        self.register_buffer("own", mask(p[:, None] == i // 4))
        self.register_buffer("before", mask(i[:, None] // 4 >= p))
        self.register_buffer("causal", mask(p[:, None] >= p))

    def cross(self, q: torch.Tensor, kv: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        k, v = kv.chunk(2, 2)
        y = F.scaled_dot_product_attention(*(heads_of(t, 4) for t in (q, k, v)), attn_mask=mask.to(q.dtype))
        return y.transpose(1, 2).flatten(2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, code = self.bytes(ids), ids
        for n, table in enumerate(self.hashes):
            code = code * 257 + F.pad(ids, (n + 1, 0))[:, : ids.shape[1]]
            x = x + table(code % self.kinds)
        x = self.first(x, self.window)
        patches = x.unflatten(1, (-1, 4)).amax(2)
        patches = patches + self.cross(self.to_q(patches), self.to_kv(x), self.own)
        y = self.up(patches)
        for layer in self.layers:
            y = layer(y, self.causal)
        x = x + self.cross(self.back_q(x), self.back_kv(y), self.before)
        return self.head(self.last(x, self.window))


class GeneralizedDelta(nn.Module):
    """RWKV-7's time mixing (Peng et al., 2025), two layers over 16 tokens one by one: a state of 64 x 64 for each head decays by
    channel, forgets along one key and learns another."""

    def __init__(self, c: int = 512, layers: int = 2, vocabulary: int = 8000, low: int = 64):
        super().__init__()
        self.embed, self.heads = nn.Embedding(vocabulary, c), c // 64
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.shifts = nn.ParameterList(nn.Parameter(torch.rand(6, c)) for _ in range(layers))
        self.rkv = each(lambda: nn.ModuleList(nn.Linear(c, c, bias=False) for _ in range(3)))
        lora = lambda act: nn.Sequential(nn.Linear(c, low, bias=False), act, nn.Linear(low, c))
        self.decay, self.rate, self.gate = (
            each(lambda: lora(nn.Tanh())),
            each(lambda: lora(nn.Identity())),
            each(lambda: lora(nn.Sigmoid())),
        )
        self.keys = nn.ParameterList(nn.Parameter(torch.ones(2, c)) for _ in range(layers))
        self.bonus = nn.ParameterList(nn.Parameter(torch.randn(c // 64, 64) * 0.1) for _ in range(layers))
        self.out, self.group = each(lambda: nn.Linear(c, c, bias=False)), each(lambda: nn.GroupNorm(c // 64, c))
        self.norms, self.mlp = each(lambda: nn.LayerNorm(c)), each(lambda: nn.ModuleList((nn.LayerNorm(c), nn.Linear(c, 4 * c, bias=False), nn.Linear(4 * c, c, bias=False))))  # fmt: skip

    def mix(self, k: int, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        delta = F.pad(x, (0, 0, 1, -1)) - x
        xr, xw, xk, xv, xa, xg = (x + delta * m for m in self.shifts[k])
        r, key, v = (f(t) for f, t in zip(self.rkv[k], (xr, xk, xv), strict=True))
        w = torch.exp(-0.606531 * self.decay[k](xw).sigmoid())
        a = self.rate[k](xa).sigmoid()
        split = lambda t: t.view(b, n, self.heads, 64)
        forget = F.normalize(split(key * self.keys[k][0]), dim=3)
        key = key * (1 + (a - 1) * self.keys[k][1])
        r, w, key, v, a = (split(t) for t in (r, w, key, v, a))
        state, out = torch.zeros(b, self.heads, 64, 64, dtype=x.dtype, device=x.device), []
        for t in range(n):
            lost = (state @ -forget[:, t, :, :, None]) * (forget[:, t] * a[:, t])[:, :, None]
            state = state * w[:, t, :, None] + lost + v[:, t, :, :, None] * key[:, t, :, None]
            out.append((state @ r[:, t, :, :, None])[..., 0])
        y = self.group[k](torch.stack(out, 1).view(b * n, c)).view(b, n, c)
        y = y + ((r * key * self.bonus[k]).sum(3, keepdim=True) * v).view(b, n, c)
        return self.out[k](y * self.gate[k](xg))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for k, (norm, (second, up, down)) in enumerate(zip(self.norms, self.mlp, strict=True)):
            x = x + self.mix(k, norm(x))
            x = x + down(F.relu(up(second(x))).square())
        return x


class ClosedFormCells(nn.Module):
    """Closed-form continuous-time networks (Hasani et al., 2022): two layers of 128 units over 48 irregular steps."""

    def __init__(self, into: int = 32, c: int = 128, out: int = 10, layers: int = 2):
        super().__init__()
        self.back = nn.ModuleList(nn.Linear((into if k == 0 else c) + c, 128) for k in range(layers))
        self.heads, self.last, self.c = (
            nn.ModuleList(nn.Linear(128, 4 * c) for _ in range(layers)),
            nn.Linear(c, out),
            c,
        )

    def forward(self, x: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
        hidden = [torch.zeros_like(x[:, 0, :1]).expand(-1, self.c) for _ in self.back]
        for t in range(x.shape[1]):
            y = x[:, t]
            for k, (back, head) in enumerate(zip(self.back, self.heads, strict=True)):
                z = 1.7159 * torch.tanh(0.666 * back(torch.cat([y, hidden[k]], 1)))
                one, two, a, b = head(z).chunk(4, 1)
                gate = (a * spans[:, t] + b).sigmoid()
                y = hidden[k] = one.tanh() * (1 - gate) + gate * two.tanh()
        return self.last(y)


def stack(mixer: type[nn.Module], layers: int, c: int = 512) -> Callable[[], nn.Module]:
    return lambda: Stack(c, layers, lambda: mixer(c))


WORDS = tokens(512, 8000)
#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "gated_linear_4": (stack(GatedLinearAttention, 4), WORDS),
    "ttt_linear_2": (stack(TestTimeLearner, 2), tokens(256, 8000)),
    "mega_4": (stack(MovingAverages, 4), WORDS),
    "based_4": (stack(TaylorAttention, 4), WORDS),
    "linformer_6": (stack(LowRank, 6), WORDS),
    "fastformer_6": (stack(Additive, 6), WORDS),
    "synthesizer_4": (stack(Synthesizer, 4), WORDS),
    "sinkhorn_4": (stack(SortedBlocks, 4), WORDS),
    "mixture_of_depths_6": (MixtureOfDepths, WORDS),
    "byte_latent_4": (BytePatches, tokens(1024, 256)),
    "rwkv7_2": (GeneralizedDelta, tokens(16, 8000)),
    "closed_form_cells": (ClosedFormCells, normal((48, 32), (48, 1))),
}
