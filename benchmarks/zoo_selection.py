"""Attention over chosen tokens, for the zoo: neighbours, regions, buckets, merged tokens and experts that choose."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded, tokens


class Mlp(nn.Sequential):
    def __init__(self, c: int, ratio: int = 4):
        super().__init__(nn.Linear(c, ratio * c), nn.GELU(), nn.Linear(ratio * c, c))


class MergedTokens(nn.Module):
    """ViT-S with token merging (Bolya et al., 2023): each of 12 blocks merges the 13 most similar pairs of tokens."""

    def __init__(self, c: int = 384, heads: int = 6, layers: int = 12, merged: int = 13, classes: int = 1000):
        super().__init__()
        self.heads, self.merged = heads, merged
        self.patch, self.token = nn.Conv2d(3, c, 16, 16), nn.Parameter(torch.randn(1, 1, c))
        self.places = nn.Parameter(0.3 * torch.randn(1, 197, c))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c) for _ in range(layers))
        self.out, self.mlps = (
            nn.ModuleList(nn.Linear(c, c) for _ in range(layers)),
            nn.ModuleList(Mlp(c) for _ in range(layers)),
        )
        self.head = nn.Linear(c, classes)

    def attend(self, k: int, x: torch.Tensor, size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Larger tokens are attended to more; also gives the mean of the keys."""
        q, key, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv[k](x).chunk(3, 2))
        scores = q @ key.transpose(2, 3) / q.shape[3] ** 0.5 + size.log()[:, None, None, :, 0]
        return self.out[k]((scores.softmax(3) @ v).transpose(1, 2).flatten(2)), key.mean(1)

    def merge(self, keys: torch.Tensor, x: torch.Tensor, size: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = keys / keys.norm(dim=2, keepdim=True)
        scores = keys[:, ::2] @ keys[:, 1::2].transpose(1, 2)
        first = torch.arange(scores.shape[1], device=x.device) == 0
        scores = scores.masked_fill(first[:, None], float("-inf"))
        best, partner = scores.max(2)
        order = best.argsort(1, descending=True)
        gone, left = order[:, : self.merged], order[:, self.merged :].sort(1)[0]
        to = partner.gather(1, gone)

        def join(t: torch.Tensor) -> torch.Tensor:
            c = t.shape[2]
            one, two = t[:, ::2], t[:, 1::2]
            kept = one.gather(1, left[..., None].expand(-1, -1, c))
            moved = one.gather(1, gone[..., None].expand(-1, -1, c))
            return torch.cat([kept, two.scatter_add(1, to[..., None].expand(-1, -1, c), moved)], 1)

        total = join(size)
        return join(x * size) / total, total

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        size = torch.ones_like(x[..., :1])
        for k, mlp in enumerate(self.mlps):
            y, keys = self.attend(k, self.norms[2 * k](x), size)
            x, size = self.merge(keys, x + y, size)
            x = x + mlp(self.norms[2 * k + 1](x))
        return self.head(self.norms[-1](x)[:, 0])


class NeighbourAttention(nn.Module):
    """Each pixel attends to the 7 x 7 around it, moved inside at the borders, with a relative bias."""

    def __init__(self, c: int, heads: int, side: int, window: int = 7):
        super().__init__()
        self.heads, self.window, self.side = heads, window, side
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.bias = nn.Parameter(0.5 * torch.randn(heads, 2 * window - 1, 2 * window - 1))
        start = (torch.arange(side) - window // 2).clamp(0, side - window)
        rows = start[:, None] + torch.arange(window)
        relative = rows - torch.arange(side)[:, None] + window - 1
        self.register_buffer("places", (rows[:, None, :, None] * side + rows[None, :, None, :]).reshape(-1))
        self.register_buffer(
            "down", relative[:, None, :, None].expand(side, side, window, window).reshape(side * side, -1)
        )
        self.register_buffer(
            "across", relative[None, :, None, :].expand(side, side, window, window).reshape(side * side, -1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c = x.shape[1:]
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        near = lambda t: t[:, :, self.places].unflatten(2, (n, self.window**2))
        scores = (q[:, :, :, None] * (c // self.heads) ** -0.5 * near(k)).sum(-1)
        weights = (scores + self.bias[:, self.down, self.across]).softmax(-1)
        y = (weights[..., None] * near(v)).sum(3)
        return self.out(y.transpose(1, 2).flatten(2))


class NeighbourhoodTransformer(nn.Module):
    """NAT-Mini (Hassani et al., 2023), shallower: attention of each pixel to its neighbours, written by gathering them."""

    def __init__(self, c: int = 64, depths: tuple[int, ...] = (2, 2, 3, 1), classes: int = 1000):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, c // 2, 3, 2, 1), nn.Conv2d(c // 2, c, 3, 2, 1))
        self.stages, self.downs = nn.ModuleList(), nn.ModuleList()
        for k, depth in enumerate(depths):
            w, side = c << k, 56 >> k
            block = lambda w=w, k=k, side=side: nn.ModuleList(
                (nn.LayerNorm(w), NeighbourAttention(w, 2 << k, side), nn.LayerNorm(w), Mlp(w, 3))
            )
            self.stages.append(nn.ModuleList(block() for _ in range(depth)))
            self.downs.append(nn.Conv2d(w, 2 * w, 3, 2, 1, bias=False) if k < 3 else nn.Identity())
        self.norm, self.head = nn.LayerNorm(8 * c), nn.Linear(8 * c, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image)
        for k, (blocks, down) in enumerate(zip(self.stages, self.downs, strict=True)):
            side = 56 >> k
            x = x.flatten(2).transpose(1, 2)
            for norm1, attention, norm2, mlp in blocks:
                x = x + attention(norm1(x))
                x = x + mlp(norm2(x))
            if k < 3:
                x = down(x.transpose(1, 2).unflatten(2, (side, side)))
        return self.head(self.norm(x).mean(1))


class RoutedRegions(nn.Module):
    """BiFormer's attention (Zhu et al., 2023): 7 x 7 regions attend to the tokens of the four regions that are most similar."""

    def __init__(self, c: int, heads: int, regions: int = 7, best: int = 4):
        super().__init__()
        self.heads, self.regions, self.best = heads, regions, best
        self.qkv, self.out, self.local = nn.Linear(c, 3 * c), nn.Linear(c, c), nn.Conv2d(c, c, 5, 1, 2, groups=c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, h, w, c = x.shape
        r = self.regions
        x = x.reshape(batch, r, h // r, r, w // r, c).transpose(2, 3).reshape(batch, r * r, -1, c)
        q, k, v = self.qkv(x).chunk(3, 3)
        scores = q.mean(2) @ k.mean(2).transpose(1, 2)
        which = scores.topk(self.best, dim=2)[1]
        size = x.shape[2]

        def take(t: torch.Tensor) -> torch.Tensor:
            index = which[..., None, None].expand(-1, -1, -1, size, c)
            found = t[:, None].expand(-1, r * r, -1, -1, -1).gather(2, index).flatten(2, 3)
            return found.unflatten(3, (self.heads, -1)).transpose(2, 3).flatten(0, 1)

        q = q.unflatten(3, (self.heads, -1)).transpose(2, 3).flatten(0, 1)
        y = F.scaled_dot_product_attention(q, take(k), take(v)).transpose(1, 2).flatten(2)
        back = lambda t: t.reshape(batch, r, r, h // r, w // r, c).transpose(2, 3).reshape(batch, h, w, c)
        return self.out(back(y) + self.local(back(v).permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class BiFormer(nn.Module):
    """BiFormer (Zhu et al., 2023), its first three stages, two blocks each."""

    def __init__(self, c: int = 64, classes: int = 1000):
        super().__init__()
        self.downs, self.blocks = nn.ModuleList(), nn.ModuleList()
        for k in range(3):
            w = c << k
            down = nn.Conv2d(3, w, 4, 4) if k == 0 else nn.Conv2d(w // 2, w, 3, 2, 1)
            self.downs.append(nn.Sequential(down, nn.BatchNorm2d(w)))
            block = lambda w=w, k=k: nn.ModuleList(
                (
                    nn.Conv2d(w, w, 3, 1, 1, groups=w),
                    nn.LayerNorm(w),
                    RoutedRegions(w, 2 << k),
                    nn.LayerNorm(w),
                    Mlp(w, 3),
                )
            )
            self.blocks.append(nn.ModuleList(block() for _ in range(2)))
        self.head = nn.Linear(4 * c, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for down, blocks in zip(self.downs, self.blocks, strict=True):
            x = down(x)
            for place, norm1, attention, norm2, mlp in blocks:
                x = (x + place(x)).permute(0, 2, 3, 1)
                x = x + attention(norm1(x))
                x = (x + mlp(norm2(x))).permute(0, 3, 1, 2)
        return self.head(x.mean((2, 3)))


class HashedAttention(nn.Module):
    """Reformer's attention (Kitaev et al., 2020): tokens sorted by the bucket of their random rotation attend within chunks
    of 64 and the chunk before; four rounds are joined by their log-sums."""

    def __init__(self, c: int, heads: int, rounds: int = 4, chunk: int = 64, buckets: int = 16):
        super().__init__()
        self.heads, self.rounds, self.chunk, self.buckets = heads, rounds, chunk, buckets
        self.q, self.v, self.out = nn.Linear(c, c, bias=False), nn.Linear(c, c, bias=False), nn.Linear(c, c)
        self.register_buffer("turns", torch.randn(c // heads, rounds, buckets // 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        q, v = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.v))
        turned = torch.einsum("bhnd,drk->bhrnk", q.float(), self.turns.float())
        bucket = torch.cat([turned, -turned], -1).argmax(-1)
        # Sorted by bucket, then by place.
        place = torch.arange(n, device=x.device)
        order = (bucket * n + place).argsort(-1)
        undo = order.argsort(-1)

        def take(t: torch.Tensor) -> torch.Tensor:
            index = order[..., None].expand(-1, -1, -1, -1, t.shape[-1])
            found = t[:, :, None].expand(-1, -1, self.rounds, -1, -1).gather(3, index)
            return found.unflatten(3, (n // self.chunk, self.chunk))

        before = lambda t: torch.cat([t.roll(1, 3), t], 4)
        sq, sv = take(q), take(v)
        sk = F.normalize(sq, dim=-1)
        spot, kind = order.unflatten(3, (-1, self.chunk)), bucket.gather(3, order).unflatten(3, (-1, self.chunk))
        scores = sq @ before(sk).transpose(-1, -2) / sq.shape[-1] ** 0.5
        other, kinds = before(spot), before(kind)
        scores = scores.masked_fill(spot[..., None] < other[..., None, :], -1e4)
        scores = scores.masked_fill(spot[..., None] == other[..., None, :], -1e3)
        scores = scores.masked_fill(kind[..., None] != kinds[..., None, :], -1e4)
        total = torch.logsumexp(scores.float(), -1, keepdim=True)
        y = (scores - total).exp().to(x.dtype) @ before(sv)
        index = undo[..., None]
        y = y.flatten(3, 4).gather(3, index.expand(-1, -1, -1, -1, y.shape[-1]))
        share = total.flatten(3, 4).gather(3, index).softmax(2).to(x.dtype)
        return self.out((y * share).sum(2).transpose(1, 2).flatten(2))


class Reformer(nn.Module):
    """Reformer (Kitaev et al., 2020), four reversible layers of width 512 over 1024 characters."""

    def __init__(self, c: int = 512, layers: int = 4, heads: int = 8):
        super().__init__()
        self.embed, self.places = nn.Embedding(320, c), nn.Parameter(0.3 * torch.randn(1024, c))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers))
        self.attention = nn.ModuleList(HashedAttention(c, heads) for _ in range(layers))
        self.mlps, self.last = nn.ModuleList(Mlp(c) for _ in range(layers)), nn.Linear(2 * c, 320)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        a = b = self.embed(text) + self.places
        for k, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            a = a + attention(self.norms[2 * k](b))
            b = b + mlp(self.norms[2 * k + 1](a))
        return self.last(torch.cat([a, b], 2))


class SparseQueries(nn.Module):
    """Informer's attention (Zhou et al., 2021): the queries that differ most from uniform on sampled keys attend, the others
    take the mean."""

    def __init__(self, c: int, heads: int, length: int, factor: int = 5):
        super().__init__()
        self.heads = heads
        self.count = min(length, factor * math.ceil(math.log(length)))
        self.q, self.k, self.v, self.out = (nn.Linear(c, c) for _ in range(4))
        self.register_buffer("sample", torch.randint(0, length, (length, self.count), generator=seeded()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        n, size = q.shape[2:]
        some = k[:, :, self.sample]
        scores = (q[:, :, :, None] @ some.transpose(3, 4))[:, :, :, 0]
        spread = scores.amax(-1) - scores.sum(-1) / n
        chosen = spread.topk(self.count, sorted=False)[1][..., None]
        few = q.gather(2, chosen.expand(-1, -1, -1, size))
        y = (few @ k.transpose(2, 3) / size**0.5).softmax(-1) @ v
        mean = v.mean(2, keepdim=True).expand(-1, -1, n, -1)
        y = mean.scatter(2, chosen.expand(-1, -1, -1, size), y)
        return self.out(y.transpose(1, 2).flatten(2))


class Informer(nn.Module):
    """Informer's encoder (Zhou et al., 2021): three layers, between which convolutions and max pooling halve 192 steps."""

    def __init__(self, into: int = 7, c: int = 512, length: int = 192, heads: int = 8):
        super().__init__()
        conv = lambda a, b: nn.Conv1d(a, b, 3, padding=1, padding_mode="circular", bias=False)
        self.first, self.marks = conv(into, c), nn.Linear(4, c, bias=False)
        lengths = (length, length // 2, length // 4)
        self.attention = nn.ModuleList(SparseQueries(c, heads, n) for n in lengths)
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(7))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Conv1d(c, 2048, 1), nn.GELU(), nn.Conv1d(2048, c, 1)) for _ in range(3)
        )
        self.distil = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(c, c, 3, padding=1, padding_mode="circular"),
                nn.BatchNorm1d(c),
                nn.ELU(),
                nn.MaxPool1d(3, 2, 1),
            )
            for _ in range(2)
        )
        self.last = nn.Linear(c, 24 * into)

    def forward(self, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        x = self.first(x.transpose(1, 2)).transpose(1, 2) + self.marks(marks)
        for k, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = self.norms[2 * k](x + attention(x))
            x = self.norms[2 * k + 1](x + mlp(x.transpose(1, 2)).transpose(1, 2))
            if k < 2:
                x = self.distil[k](x.transpose(1, 2)).transpose(1, 2)
        return self.last(self.norms[6](x).mean(1)).unflatten(1, (24, -1))


class ChoosingExperts(nn.Module):
    """Expert choice (Zhou et al., 2022): each of 16 experts takes the 64 tokens that score highest for it; four layers."""

    def __init__(
        self, words: int = 8000, c: int = 512, layers: int = 4, experts: int = 16, capacity: int = 64, heads: int = 8
    ):
        super().__init__()
        self.capacity, self.heads = capacity, heads
        self.embed, self.places = nn.Embedding(words, c), nn.Parameter(0.3 * torch.randn(512, c))
        self.norms = nn.ModuleList(nn.LayerNorm(c) for _ in range(2 * layers + 1))
        self.qkv = nn.ModuleList(nn.Linear(c, 3 * c) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(c, c) for _ in range(layers))
        self.router = nn.ModuleList(nn.Linear(c, experts, bias=False) for _ in range(layers))
        one, two = (experts, c, 2 * c), (experts, 2 * c, c)
        self.into = nn.ParameterList(nn.Parameter(torch.randn(*one) / c**0.5) for _ in range(layers))
        self.back = nn.ParameterList(nn.Parameter(torch.randn(*two) / c**0.5) for _ in range(layers))

    def experts(self, k: int, x: torch.Tensor) -> torch.Tensor:
        share = (4 * self.router[k](x)).softmax(-1).transpose(1, 2)
        weight, which = share.topk(self.capacity, dim=2)
        weight = weight - weight[:, :, -1:]  # so that rounding does not decide about much
        count = which.shape[1]
        flat = which.flatten(1)[..., None].expand(-1, -1, x.shape[2])
        taken = x.gather(1, flat).unflatten(1, (count, -1))
        y = torch.einsum("betc,ech->beth", taken, self.into[k])
        y = torch.einsum("beth,ehc->betc", F.gelu(y), self.back[k]) * weight[..., None]
        return torch.zeros_like(x).scatter_add(1, flat, y.flatten(1, 2))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.embed(text) + self.places
        for k in range(len(self.qkv)):
            y = self.qkv[k](self.norms[2 * k](x))
            q, key, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in y.chunk(3, 2))
            y = F.scaled_dot_product_attention(q, key, v, is_causal=True)
            x = x + self.out[k](y.transpose(1, 2).flatten(2))
            x = x + self.experts(k, self.norms[2 * k + 1](x))
        return self.norms[-1](x)


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "merged_tokens": (MergedTokens, pictures(3, 224, 224)),
    "neighbourhood_8": (NeighbourhoodTransformer, pictures(3, 224, 224)),
    "bi_former_6": (BiFormer, pictures(3, 224, 224)),
    "reformer_4": (Reformer, tokens(1024, 320)),
    "informer": (Informer, normal((192, 7), (192, 4))),
    "expert_choice_4": (ChoosingExperts, tokens(512, 8000)),
}
