"""Language models, for the zoo: latent keys and values, grouped experts, sinks, chunks of a state-space model, sliding chunks,
chosen blocks of keys, latents that read bytes of an image, images in a text, sparse words and spans."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, tokens


class RmsNorm(nn.Module):
    def __init__(self, c: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.scale * y.to(x.dtype)


def turned(x: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    n, size = x.shape[-2:]
    angles = torch.arange(n, device=x.device)[:, None] * base ** (-torch.arange(0, size, 2, device=x.device) / size)
    cos, sin = torch.cat([angles.cos()] * 2, 1).to(x.dtype), torch.cat([angles.sin()] * 2, 1).to(x.dtype)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Experts(nn.Module):
    """All experts as three stacked products, weighted by what the router gives each token."""

    def __init__(self, c: int, hidden: int, count: int):
        super().__init__()
        self.gate, self.up = (nn.Parameter(torch.randn(count, c, hidden) / c**0.5) for _ in range(2))
        self.down = nn.Parameter(torch.randn(count, hidden, c) / hidden**0.5)

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x [tokens, c], weights [tokens, experts], mostly zero."""
        y = F.silu(torch.einsum("tc,ech->eth", x, self.gate)) * torch.einsum("tc,ech->eth", x, self.up)
        return (torch.einsum("eth,ehc->etc", y, self.down) * weights.t()[:, :, None]).sum(0)


class GatedMlp(nn.Module):
    def __init__(self, c: int, hidden: int):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((c, hidden), (c, hidden), (hidden, c))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LatentExperts(nn.Module):
    """DeepSeek-V3 (2024) at a width of 1024, two layers: queries, keys and values from latents, six of 32 experts from the two
    best of four groups by sigmoid scores, and one shared expert."""

    def __init__(
        self, c: int = 1024, layers: int = 2, heads: int = 16, experts: int = 32, best: int = 6, hidden: int = 512
    ):
        super().__init__()
        self.heads, self.experts, self.best = heads, experts, best
        self.embed = nn.Embedding(16000, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        linear = lambda a, b: each(lambda: nn.Linear(a, b, bias=False))
        self.q_down, self.q_norm, self.q_up = linear(c, 384), each(lambda: RmsNorm(384)), linear(384, heads * 96)
        self.kv_down, self.kv_norm, self.kv_up = (
            linear(c, 256 + 32),
            each(lambda: RmsNorm(256)),
            linear(256, heads * 128),
        )
        self.out, self.norm1, self.norm2 = linear(heads * 64, c), each(lambda: RmsNorm(c)), each(lambda: RmsNorm(c))
        self.router = nn.ParameterList(nn.Parameter(4 * torch.randn(experts, c) / c**0.5) for _ in range(layers))
        self.bias = nn.ParameterList(nn.Parameter(0.01 * torch.randn(experts)) for _ in range(layers))
        self.mix, self.shared = each(lambda: Experts(c, hidden, experts)), each(lambda: GatedMlp(c, hidden))
        self.norm, self.last = RmsNorm(c), nn.Linear(c, 16000, bias=False)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        q = heads_of(self.q_up[k](self.q_norm[k](self.q_down[k](x))), self.heads)
        q, q_place = q.split([64, 32], -1)
        latent, place = self.kv_down[k](x).split([256, 32], -1)
        key, v = heads_of(self.kv_up[k](self.kv_norm[k](latent)), self.heads).split([64, 64], -1)
        place = turned(place[:, None]).expand(-1, self.heads, -1, -1)
        q, key = torch.cat([q, turned(q_place)], -1), torch.cat([key, place], -1)
        y = F.scaled_dot_product_attention(q, key, v, is_causal=True)
        return self.out[k](y.transpose(1, 2).flatten(2))

    def route(self, k: int, x: torch.Tensor) -> torch.Tensor:
        scores = F.linear(x.float(), self.router[k].float()).sigmoid()
        biased = scores + self.bias[k].float()
        groups = biased.unflatten(1, (4, -1))
        chosen = groups.topk(2, -1)[0].sum(-1).topk(2, -1, sorted=False)[1]
        mask = torch.zeros_like(groups[..., 0]).scatter(1, chosen, 1.0)
        biased = (
            (groups * mask[..., None]).flatten(1).masked_fill(mask.repeat_interleave(self.experts // 4, 1) == 0, -1.0)
        )
        best = biased.topk(self.best, -1, sorted=False)[1]
        weights = scores.gather(1, best)
        weights = 2.5 * weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return torch.zeros_like(scores).scatter(1, best, weights).to(x.dtype)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text)
        for k in range(len(self.mix)):
            x = x + self.attend(k, self.norm1[k](x))
            y = self.norm2[k](x)
            flat = y.flatten(0, 1)
            x = x + self.mix[k](flat, self.route(k, flat)).view(x.shape) + self.shared[k](y)
        return self.last(self.norm(x[:, -1:]))


class SinkExperts(nn.Module):
    """gpt-oss (OpenAI, 2025) at a width of 1024, two layers: a learned sink in each softmax, every other layer sees 128 tokens,
    four of 16 experts with biases and clamped gates."""

    def __init__(
        self, c: int = 1024, layers: int = 2, heads: int = 16, pairs: int = 4, experts: int = 16, hidden: int = 1024
    ):
        super().__init__()
        self.heads, self.pairs, self.size = heads, pairs, 64
        self.embed = nn.Embedding(16000, c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.out = (
            each(lambda: nn.Linear(c, (heads + 2 * pairs) * 64)),
            each(lambda: nn.Linear(heads * 64, c)),
        )
        self.sinks = nn.ParameterList(nn.Parameter(torch.randn(heads)) for _ in range(layers))
        self.norm1, self.norm2, self.router = (
            each(lambda: RmsNorm(c)),
            each(lambda: RmsNorm(c)),
            each(lambda: nn.Linear(c, experts)),
        )
        self.norm, self.last = RmsNorm(c), nn.Linear(c, 16000, bias=False)
        weight = lambda *shape: nn.ParameterList(
            nn.Parameter(torch.randn(experts, *shape) / shape[0] ** 0.5) for _ in range(layers)
        )
        self.up, self.down = weight(c, 2 * hidden), weight(hidden, c)
        self.up_bias, self.down_bias = weight(1, 2 * hidden), weight(1, c)

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        q, key, v = self.qkv[k](x).split([self.heads * 64, self.pairs * 64, self.pairs * 64], -1)
        q, key, v = turned(heads_of(q, self.heads)), turned(heads_of(key, self.pairs)), heads_of(v, self.pairs)
        key, v = (t.repeat_interleave(self.heads // self.pairs, 1) for t in (key, v))
        at = torch.arange(n, device=x.device)
        seen = at[:, None] >= at
        if k % 2 == 0:
            seen = seen & (at[:, None] - at < 128)
        scores = (q @ key.transpose(2, 3) / 8).masked_fill(~seen, float("-inf"))
        sinks = self.sinks[k].view(1, -1, 1, 1).expand(x.shape[0], -1, n, -1)
        weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        return self.out[k]((weights @ v).transpose(1, 2).flatten(2))

    def experts(self, k: int, x: torch.Tensor) -> torch.Tensor:
        value, best = (3 * self.router[k](x)).topk(4, -1)
        weights = torch.zeros_like(self.router[k](x)).scatter(1, best, value.softmax(-1))
        y = torch.bmm(x.expand(self.up[k].shape[0], -1, -1), self.up[k]) + self.up_bias[k]
        gate, linear = y[..., ::2].clamp(max=7.0), y[..., 1::2].clamp(-7.0, 7.0)
        y = torch.bmm((linear + 1) * gate * (1.702 * gate).sigmoid(), self.down[k]) + self.down_bias[k]
        return (y * weights.t()[..., None]).sum(0)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text)
        for k in range(len(self.qkv)):
            x = x + self.attend(k, self.norm1[k](x))
            x = x + self.experts(k, self.norm2[k](x).flatten(0, 1)).view(x.shape)
        return self.last(self.norm(x[:, -1:]))


class ChunkedState(nn.Module):
    """Mamba-2 (Dao and Gu, 2024), four layers of the 130 M model: chunks of 64 tokens by matrix products, their states by
    differences of sums."""

    def __init__(self, c: int = 768, layers: int = 4, heads: int = 24, state: int = 128, chunk: int = 64):
        super().__init__()
        d = 2 * c
        self.d, self.heads, self.state, self.chunk = d, heads, state, chunk
        self.embed, self.norm = nn.Embedding(8000, c), RmsNorm(c)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.norms, self.into = (
            each(lambda: RmsNorm(c)),
            each(lambda: nn.Linear(c, 2 * d + 2 * state + heads, bias=False)),
        )
        self.conv = each(lambda: nn.Conv1d(d + 2 * state, d + 2 * state, 4, groups=d + 2 * state, padding=3))
        self.gated, self.out = each(lambda: RmsNorm(d)), each(lambda: nn.Linear(d, c, bias=False))
        vector = lambda low, high: nn.ParameterList(
            nn.Parameter(low + (high - low) * torch.rand(heads)) for _ in range(layers)
        )
        self.a_log, self.dt_bias, self.skip = vector(0, 2), vector(-5, -2), vector(0.5, 1.5)

    @staticmethod
    def segment_sums(x: torch.Tensor) -> torch.Tensor:
        """[..., i, j]: the sum of x over j < k <= i, and minus infinity above the diagonal."""
        n = x.shape[-1]
        ones = torch.ones(n, n, dtype=torch.bool, device=x.device)
        x = x[..., None].expand(*x.shape, n).masked_fill(~torch.tril(ones, -1), 0)
        return x.cumsum(-2).masked_fill(~torch.tril(ones), float("-inf"))

    def scan(self, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """x [batch, length, heads, size] times its step, a [batch, length, heads], b and c [batch, length, state]."""
        x, a, b, c = (t.unflatten(1, (-1, self.chunk)) for t in (x, a, b, c))
        a = a.permute(0, 3, 1, 2)
        total = a.cumsum(-1)
        inner = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, self.segment_sums(a).exp(), x)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, (total[..., -1:] - total).exp(), x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
        decay = self.segment_sums(F.pad(total[..., -1], (1, 0))).exp()
        states = torch.einsum("bhzc,bchpn->bzhpn", decay, states)[:, :-1]
        outer = torch.einsum("bcln,bchpn,bhcl->bclhp", c, states, total.exp())
        return (inner + outer).flatten(1, 2)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text)
        for k, (norm, into, conv, gated, out) in enumerate(
            zip(self.norms, self.into, self.conv, self.gated, self.out, strict=True)
        ):
            z, y, dt = into(norm(x)).split([self.d, self.d + 2 * self.state, self.heads], -1)
            y = F.silu(conv(y.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
            u, b, c = y.split([self.d, self.state, self.state], -1)
            dt = F.softplus(dt.float() + self.dt_bias[k].float())
            u = u.unflatten(2, (self.heads, -1)).float()
            y = self.scan(u * dt[..., None], -self.a_log[k].float().exp() * dt, b.float(), c.float())
            y = (y + u * self.skip[k].float()[:, None]).flatten(2).to(x.dtype)
            x = x + out(gated(y * F.silu(z)))
        return self.norm(x)


class SlidingChunks(nn.Module):
    """Longformer (Beltagy et al., 2020), three layers over 1024 tokens: each token sees 128 on both sides through overlapping
    chunks, a skewed band of scores, and the first token sees all."""

    def __init__(self, c: int = 768, heads: int = 12, layers: int = 3, one: int = 128, length: int = 1024):
        super().__init__()
        self.heads, self.one = heads, one
        self.embed, self.places = nn.Embedding(8000, c), nn.Parameter(0.3 * torch.randn(length, c))
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.all, self.out = (
            each(lambda: nn.Linear(c, 3 * c)),
            each(lambda: nn.Linear(c, 3 * c)),
            each(lambda: nn.Linear(c, c)),
        )
        self.norm1, self.norm2 = each(lambda: nn.LayerNorm(c)), each(lambda: nn.LayerNorm(c))
        self.mlps = each(lambda: nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c)))

    def attend(self, k: int, x: torch.Tensor) -> torch.Tensor:
        b, n = x.shape[:2]
        w, h = self.one, self.heads
        q, key, v = (t.unflatten(2, (h, -1)).transpose(1, 2).flatten(0, 1) for t in self.qkv[k](x).chunk(3, -1))
        q = q / q.shape[2] ** 0.5
        near = lambda t, fill=0.0: F.pad(t, (0, 0, w, w), value=fill).unfold(1, 3 * w, w).transpose(2, 3)
        chunks = q.unflatten(1, (n // w, w))
        scores = chunks @ near(key).transpose(2, 3)
        row, column = torch.arange(w, device=x.device)[:, None], torch.arange(3 * w, device=x.device)
        start = torch.arange(n // w, device=x.device)[:, None, None] * w + column - w
        seen = (column - row >= 0) & (column - row <= 2 * w) & (start >= 0) & (start < n)
        scores = scores.masked_fill(~seen, float("-inf"))
        first = q @ key[:, :1].transpose(1, 2)
        weights = torch.cat([first.unflatten(1, (n // w, w)), scores], -1).softmax(-1)
        y = weights[..., 1:] @ near(v) + weights[..., :1] * v[:, None, :1]
        y = y.flatten(1, 2)
        qa, ka, va = (t.unflatten(2, (h, -1)).transpose(1, 2).flatten(0, 1) for t in self.all[k](x).chunk(3, -1))
        whole = F.scaled_dot_product_attention(qa[:, None, :1], ka[:, None], va[:, None])[:, 0]
        y = torch.cat([whole, y[:, 1:]], 1)
        return self.out[k](y.unflatten(0, (b, h)).transpose(1, 2).flatten(2))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text) + self.places
        for k, mlp in enumerate(self.mlps):
            x = self.norm1[k](x + self.attend(k, x))
            x = self.norm2[k](x + mlp(x))
        return x


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "deepseek_v3_2": (LatentExperts, tokens(256, 16000)),
    "gpt_oss_2": (SinkExperts, tokens(512, 16000)),
    "mamba2_4": (ChunkedState, tokens(512, 8000)),
    "longformer_3": (SlidingChunks, tokens(1024, 8000)),
}
