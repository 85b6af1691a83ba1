"""Visits, games, series and mixed inputs, for the zoo: interests and sequences of users, returns as quantiles, residual policies, trees of
latent steps, forecasts by patches and residuals, queries of images, gated cross-attention, text-guided detection and parts of people."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded, tokens


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def conv(a: int, b: int, k: int = 3, s: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.SiLU())


class Interests(nn.Module):
    """DIN (Zhou et al., 2018) for 128 visits: an MLP of candidate, item, difference and product weighs 50 items of a history, with Dice."""

    def __init__(self, c: int = 64, items: int = 50000):
        super().__init__()
        self.embed = nn.Embedding(items, c)
        self.weigh = nn.Sequential(
            nn.Linear(4 * c, 80), nn.Sigmoid(), nn.Linear(80, 40), nn.Sigmoid(), nn.Linear(40, 1)
        )
        self.norm0, self.one, self.two, self.last = (
            nn.BatchNorm1d(3 * c),
            nn.Linear(3 * c, 200),
            nn.Linear(200, 80),
            nn.Linear(80, 1),
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(n, affine=False) for n in (200, 80))
        self.alphas = nn.ParameterList(nn.Parameter(torch.full((n,), 0.2)) for n in (200, 80))

    def dice(self, k: int, x: torch.Tensor) -> torch.Tensor:
        p = self.norms[k](x).sigmoid()
        return p * x + (1 - p) * self.alphas[k] * x

    def forward(self, visits: torch.Tensor) -> torch.Tensor:
        """The candidate and 50 items, of which 0 is none, for each visit."""
        ids = visits.flatten(0, 1)
        x = self.embed(ids)
        one, past = x[:, :1].expand(-1, ids.shape[1] - 1, -1), x[:, 1:]
        weights = self.weigh(torch.cat([one, past, one - past, one * past], 2))[..., 0] * (ids[:, 1:] > 0)
        found = (weights[..., None] * past).sum(1)
        y = self.norm0(torch.cat([x[:, 0], found, x[:, 0] * found], 1))
        y = self.dice(1, self.two(self.dice(0, self.one(y))))
        return self.last(y).sigmoid().view(visits.shape[:2])


class BehaviourSequence(nn.Module):
    """BST (Chen et al., 2019) for 128 visits: one post-normed block over 20 items and the candidate, beside wide features, and an MLP."""

    def __init__(self, c: int = 64, heads: int = 8, items: int = 50000, length: int = 21):
        super().__init__()
        self.embed, self.places, self.other = nn.Embedding(items, c), nn.Embedding(length, c), nn.Linear(40, 128)
        self.layer = nn.TransformerEncoderLayer(2 * c, heads, 8 * c, 0.0, F.leaky_relu, batch_first=True)
        n = length * 2 * c + 128
        self.mlp = nn.Sequential(
            nn.Linear(n, 1024),
            nn.LeakyReLU(),
            nn.Linear(1024, 512),
            nn.LeakyReLU(),
            nn.Linear(512, 256),
            nn.LeakyReLU(),
            nn.Linear(256, 1),
        )

    def forward(self, visits: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        ids = visits.flatten(0, 1)
        places = self.places.weight.expand(ids.shape[0], -1, -1)
        x = self.layer(torch.cat([self.embed(ids), places], 2))
        both = torch.cat([x.flatten(1), self.other(features.flatten(0, 1))], 1)
        return self.mlp(both).sigmoid().view(visits.shape[:2])


class QuantileReturns(nn.Module):
    """IQN with dueling heads (Dabney et al., 2018): 32 frames of 84 x 84 pixels, 64 fractions each, whose cosines scale the features."""

    def __init__(self, actions: int = 18, fractions: int = 64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.cosines = nn.Linear(64, 3136)
        self.value, self.more = (
            nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n)) for n in (1, actions)
        )
        self.register_buffer("waves", math.pi * torch.arange(1, 65))

    def forward(self, frames: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        b = frames.shape[0]
        x = self.body(frames.flatten(0, 1))
        waves = F.relu(self.cosines((fractions.flatten(0, 1).sigmoid()[..., None] * self.waves).cos()))
        x = x[:, None] * waves
        value, more = self.value(x), self.more(x)
        q = value + more - more.mean(2, keepdim=True)
        return q.unflatten(0, (b, -1))


class ResidualPolicy(nn.Module):
    """IMPALA's deep network (Espeholt et al., 2018): 20 frames of 72 x 96 pixels through 15 convolutions, then an LSTM of 256 units."""

    def __init__(self, actions: int = 15):
        super().__init__()
        widths = ((3, 16), (16, 32), (32, 32))
        self.into = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in widths)
        pair = lambda c: nn.Sequential(
            nn.ReLU(), nn.Conv2d(c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1)
        )
        self.blocks = nn.ModuleList(nn.ModuleList(pair(b) for _ in range(2)) for _, b in widths)
        self.dense, self.lstm = nn.Linear(32 * 9 * 12, 256), nn.LSTM(256 + actions + 1, 256, batch_first=True)
        self.policy, self.value = nn.Linear(256, actions), nn.Linear(256, 1)

    def forward(self, frames: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = frames.flatten(0, 1)
        for into, blocks in zip(self.into, self.blocks, strict=True):
            x = F.max_pool2d(into(x), 3, 2, 1)
            for block in blocks:
                x = x + block(x)
        x = F.relu(self.dense(F.relu(x).flatten(1))).unflatten(0, past.shape[:2])
        x = self.lstm(torch.cat([x, past], 2))[0]
        return self.policy(x), self.value(x)


class ReturnsAsTokens(nn.Module):
    """A decision transformer (Chen et al., 2021): 64 steps of return, state and action as three tokens each, six causal layers."""

    def __init__(
        self, state: int = 17, action: int = 6, c: int = 256, heads: int = 4, layers: int = 6, steps: int = 64
    ):
        super().__init__()
        self.gain, self.state, self.action, self.time = (
            nn.Linear(1, c),
            nn.Linear(state, c),
            nn.Linear(action, c),
            nn.Embedding(1000, c),
        )
        layer = nn.TransformerEncoderLayer(c, heads, 4 * c, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers, self.norm = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.LayerNorm(c)
        self.next_action, self.next_state = nn.Linear(c, action), nn.Linear(c, state)
        self.register_buffer("mask", torch.triu(torch.full((3 * steps, 3 * steps), -1e4), 1))

    def forward(
        self, gains: torch.Tensor, states: torch.Tensor, actions: torch.Tensor, times: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        time = self.time(times)
        x = torch.stack([self.gain(gains) + time, self.state(states) + time, self.action(actions) + time], 2)
        x = self.layers(self.norm(x.flatten(1, 2)), self.mask, is_causal=False).unflatten(1, (-1, 3))
        return self.next_action(x[:, :, 1]).tanh(), self.next_state(x[:, :, 2])


class LatentSteps(nn.Module):
    """MuZero (Schrittwieser et al., 2020): a stack of 96 x 96 pixels to 6 x 6, then five latent steps with rewards, values and policies as
    categories."""

    def __init__(self, c: int = 128, actions: int = 18, bins: int = 601, blocks: int = 3):
        super().__init__()
        cbr = lambda a, b, s=1: nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
        pair = lambda: nn.Sequential(cbr(c, c), nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
        self.into = nn.Sequential(cbr(32, c // 2, 2), cbr(c // 2, c, 2), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1))
        each = lambda: nn.ModuleList(pair() for _ in range(blocks))
        self.see, self.step, self.join, self.actions = each(), each(), cbr(c + 1, c), actions
        head = lambda n: nn.Sequential(
            nn.Conv2d(c, 16, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(576, 64),
            nn.ReLU(),
            nn.Linear(64, n),
        )
        self.reward, self.value, self.policy = head(bins), head(bins), head(actions)
        self.register_buffer("bins", torch.arange(bins) - float(bins // 2))

    @staticmethod
    def scaled(x: torch.Tensor) -> torch.Tensor:
        low, high = x.flatten(2).amin(2)[..., None, None], x.flatten(2).amax(2)[..., None, None]
        return (x - low) / (high - low + 1e-3)

    def number(self, logits: torch.Tensor) -> torch.Tensor:
        return (logits.softmax(1) * self.bins).sum(1) / 30

    def forward(self, frames: torch.Tensor, moves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.into(frames)
        for block in self.see:
            x = F.relu(x + block(x))
        x, found = self.scaled(x), []
        for k in range(moves.shape[1]):
            plane = (moves[:, k].to(x.dtype) / self.actions)[:, None, None, None].expand(-1, 1, 6, 6)
            x = self.join(torch.cat([x, plane], 1)) + x
            for block in self.step:
                x = F.relu(x + block(x))
            x = self.scaled(x)
            found.append((self.number(self.reward(x)), self.number(self.value(x)), self.policy(x)))
        return tuple(torch.stack(t, 1) for t in zip(*found, strict=True))


class PatchForecast(nn.Module):
    """TimesFM (Das et al., 2024), four layers: 16 series of 512 steps as patches of 32 with the first patch's mean and spread, per-channel
    query scales, 128 steps ahead from each patch."""

    def __init__(
        self, c: int = 768, heads: int = 12, layers: int = 4, patch: int = 32, ahead: int = 128, quantiles: int = 10
    ):
        super().__init__()
        self.patch, self.heads, self.ahead, self.quantiles = patch, heads, ahead, quantiles
        block = lambda a, b: nn.ModuleList((nn.Linear(a, c), nn.Linear(c, b), nn.Linear(a, b)))
        self.into, self.out = block(2 * patch, c), block(c, ahead * quantiles)
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.qkv, self.proj, self.norms = (
            each(lambda: nn.Linear(c, 3 * c)),
            each(lambda: nn.Linear(c, c)),
            each(lambda: nn.ModuleList(nn.LayerNorm(c) for _ in range(2))),
        )
        self.scale = nn.ParameterList(nn.Parameter(torch.zeros(c // heads)) for _ in range(layers))
        self.mlps = each(lambda: nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c)))
        angles = torch.arange(512 // patch)[:, None] * (-math.log(10000) * torch.arange(c // 2) / (c // 2)).exp()
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))

    @staticmethod
    def residual(block: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        one, two, skip = block
        return two(F.silu(one(x))) + skip(x)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        b, n = series.shape[:2]
        x = series.flatten(0, 1).unflatten(1, (-1, self.patch))
        mean = x[:, :1].mean(2, keepdim=True)
        spread = (x[:, :1] - mean).square().mean(2, keepdim=True).sqrt() + 1e-3
        x = (x - mean) / spread
        x = self.residual(self.into, torch.cat([x, torch.zeros_like(x)], 2)) + self.places
        for qkv, proj, norms, scale, mlp in zip(self.qkv, self.proj, self.norms, self.scale, self.mlps, strict=True):
            q, k, v = (heads_of(t, self.heads) for t in qkv(norms[0](x)).chunk(3, 2))
            q = q * (1.442695041 / q.shape[-1] ** 0.5 * F.softplus(scale))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
            x = x + proj(y.transpose(1, 2).flatten(2))
            x = x + mlp(norms[1](x))
        y = self.residual(self.out, x).unflatten(2, (self.ahead, self.quantiles))
        return (y[:, -1] * spread + mean).unflatten(0, (b, n))


class QueryFormer(nn.Module):
    """BLIP-2's Q-Former (Li et al., 2023), four layers: 32 queries beside 32 words of a question, every second layer attends to 257 tokens
    of an image, with feed-forward layers of their own for queries and words."""

    def __init__(
        self,
        c: int = 768,
        seen: int = 1408,
        heads: int = 12,
        layers: int = 4,
        queries: int = 32,
        vocabulary: int = 30522,
    ):
        super().__init__()
        self.heads, self.queries, self.words, self.places = (
            heads,
            nn.Parameter(torch.randn(1, queries, c) * 0.5),
            nn.Embedding(vocabulary, c),
            nn.Embedding(64, c),
        )
        self.norm0 = nn.LayerNorm(c)
        each = lambda f, n=layers: nn.ModuleList(f() for _ in range(n))
        self.qkv, self.out = each(lambda: nn.Linear(c, 3 * c)), each(lambda: nn.Linear(c, c))
        self.q, self.kv, self.out2 = (
            each(lambda: nn.Linear(c, c), layers // 2),
            each(lambda: nn.Linear(seen, 2 * c), layers // 2),
            each(lambda: nn.Linear(c, c), layers // 2),
        )
        mlp = lambda: nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))
        self.mlp_q, self.mlp_w, self.norms = (
            each(mlp),
            each(mlp),
            each(lambda: nn.ModuleList(nn.LayerNorm(c) for _ in range(4))),
        )
        self.last = nn.Linear(c, 2048)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*(heads_of(t, self.heads) for t in (q, k, v))).transpose(1, 2).flatten(2)

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        n = self.queries.shape[1]
        words = self.words(ids) + self.places.weight[: ids.shape[1]]
        x = self.norm0(torch.cat([self.queries.expand(ids.shape[0], -1, -1), words], 1))
        for k, (qkv, out, norms) in enumerate(zip(self.qkv, self.out, self.norms, strict=True)):
            x = norms[0](x + out(self.attend(*qkv(x).chunk(3, 2))))
            q, w = x[:, :n], x[:, n:]
            if k % 2 == 0:
                found = self.attend(self.q[k // 2](q), *self.kv[k // 2](image).chunk(2, 2))
                q = norms[1](q + self.out2[k // 2](found))
            x = torch.cat([norms[2](q + self.mlp_q[k](q)), norms[3](w + self.mlp_w[k](w))], 1)
        return self.last(x[:, :n])


class GatedCross(nn.Module):
    """Flamingo (Alayrac et al., 2022): four frames of 256 tokens to 64 latents by a resampler, and four blocks of text whose cross-attention
    a tanh gates, each word sees only the image before it."""

    def __init__(
        self, c: int = 1024, seen: int = 1024, heads: int = 8, d: int = 64, layers: int = 4, latents: int = 64
    ):
        super().__init__()
        self.heads, n = heads, heads * d
        self.latents, self.times = (
            nn.Parameter(torch.randn(1, latents, seen) * 0.5),
            nn.Parameter(torch.randn(1, 4, 1, 1, seen) * 0.3),
        )
        norm = nn.LayerNorm
        mlp = lambda w: nn.Sequential(
            norm(w), nn.Linear(w, 4 * w, bias=False), nn.GELU(), nn.Linear(4 * w, w, bias=False)
        )
        part = lambda w, v: nn.ModuleList(
            (
                norm(w),
                norm(v),
                nn.Linear(w, n, bias=False),
                nn.Linear(v, 2 * n, bias=False),
                nn.Linear(n, w, bias=False),
                mlp(w),
            )
        )
        self.resample, self.cross = (
            nn.ModuleList(part(seen, seen) for _ in range(2)),
            nn.ModuleList(part(c, seen) for _ in range(layers)),
        )
        self.own, self.embed = nn.ModuleList(part(c, c) for _ in range(layers)), nn.Embedding(32000, c)
        self.gates, self.last = nn.Parameter(torch.full((layers, 2), 0.5)), norm(seen)

    def attend(
        self, part: nn.ModuleList, x: torch.Tensor, seen: torch.Tensor, mask: torch.Tensor | None, causal: bool = False
    ) -> torch.Tensor:
        norm, norm_seen, to_q, to_kv, out, _ = part
        k, v = to_kv(norm_seen(seen)).chunk(2, 2)
        q, k, v = (heads_of(t, self.heads) for t in (to_q(norm(x)), k, v))
        return out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).transpose(1, 2).flatten(2))

    def forward(self, images: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Tokens [batch, images, tokens, channels]; id 1 begins the text of an image."""
        b, n = images.shape[:2]
        seen = images.flatten(0, 1)
        latents = self.latents.expand(b * n, -1, -1)
        for part in self.resample:
            latents = latents + self.attend(part, latents, torch.cat([seen, latents], 1), None)
            latents = latents + part[5](latents)
        memory = self.last(latents).view(b, -1, seen.shape[2])
        which = (ids == 1).long().cumsum(1)
        owner = torch.arange(memory.shape[1], device=ids.device) // latents.shape[1] + 1
        mask = torch.where(which[:, :, None] == owner, 0.0, -1e4).to(images.dtype)[:, None]
        x = self.embed(ids)
        for k, (cross, own) in enumerate(zip(self.cross, self.own, strict=True)):
            gate = self.gates[k].tanh()
            x = x + gate[0] * self.attend(cross, x, memory, mask)
            x = x + gate[1] * cross[5](x)
            x = x + self.attend(own, x, x, None, True)
            x = x + own[5](x)
        return x


class WordsToBoxes(nn.Module):
    """YOLO-World's neck and head (Cheng et al., 2024): features of three scales whose pixels the best of 80 texts gates, texts that pooled
    pixels update, and contrast with the texts as classes."""

    def __init__(self, widths: tuple[int, ...] = (128, 256, 512), text: int = 512, bins: int = 16):
        super().__init__()
        a, b, c = widths
        part = lambda n, m: nn.ModuleDict({"into": conv(n, m, 1), "one": nn.Sequential(conv(m // 2, m // 2), conv(m // 2, m // 2)), "guide": nn.Linear(text, m // 2), "bias": nn.Conv2d(1, 1, 1), "value": conv(m // 2, m // 2), "out": conv(2 * m, m, 1)})  # fmt: skip
        self.parts = nn.ModuleList((part(b + c, b), part(a + b, a), part(a + b, b), part(b + c, c)))
        self.downs = nn.ModuleList((conv(a, a, 3, 2), conv(b, b, 3, 2)))
        self.pool = nn.ModuleList(nn.Conv2d(n, 256, 1) for n in widths)
        self.q, self.kv, self.back, self.norm = (
            nn.Linear(text, 256),
            nn.Linear(256, 512),
            nn.Linear(256, text),
            nn.LayerNorm(text),
        )
        self.boxes = nn.ModuleList(nn.Sequential(conv(n, 64), conv(64, 64), nn.Conv2d(64, 4 * bins, 1)) for n in widths)
        self.classes = nn.ModuleList(
            nn.Sequential(conv(n, a), conv(a, a), nn.Conv2d(a, text, 1), nn.BatchNorm2d(text)) for n in widths
        )
        self.scales, self.shifts = nn.Parameter(torch.full((3,), 2.0)), nn.Parameter(torch.full((3,), -3.0))
        self.register_buffer("bins", torch.arange(bins).float())

    def mix(self, part: nn.ModuleDict, x: torch.Tensor, text: torch.Tensor, heads: int = 4) -> torch.Tensor:
        one, two = part["into"](x).chunk(2, 1)
        y = part["one"](two)
        guide = part["guide"](text).unflatten(2, (heads, -1))
        scores = torch.einsum("bmchw,bnmc->bmhwn", y.unflatten(1, (heads, -1)), guide)
        gate = (scores.amax(4) / guide.shape[3] ** 0.5 + part["bias"].bias).sigmoid()
        z = (part["value"](y).unflatten(1, (heads, -1)) * gate[:, :, None]).flatten(1, 2)
        return part["out"](torch.cat([one, two, y, z], 1))

    def forward(
        self, p3: torch.Tensor, p4: torch.Tensor, p5: torch.Tensor, text: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        up = lambda x: F.interpolate(x, scale_factor=2, mode="nearest")
        m4 = self.mix(self.parts[0], torch.cat([up(p5), p4], 1), text)
        m3 = self.mix(self.parts[1], torch.cat([up(m4), p3], 1), text)
        pixels = torch.cat(
            [F.max_pool2d(f(x), x.shape[2] // 4).flatten(2) for f, x in zip(self.pool, (m3, m4, p5), strict=True)], 2
        ).transpose(1, 2)
        k, v = self.kv(pixels).chunk(2, 2)
        found = F.scaled_dot_product_attention(*(heads_of(t, 8) for t in (self.q(self.norm(text)), k, v)))
        text = text + self.back(found.transpose(1, 2).flatten(2))
        m4 = self.mix(self.parts[2], torch.cat([self.downs[0](m3), m4], 1), text)
        m5 = self.mix(self.parts[3], torch.cat([self.downs[1](m4), p5], 1), text)
        w, boxes, scores = F.normalize(text, dim=2), [], []
        for k, x in enumerate((m3, m4, m5)):
            d = self.boxes[k](x).flatten(2).unflatten(1, (4, -1)).softmax(2)
            boxes.append((d * self.bins[:, None]).sum(2))
            scores.append(w @ self.classes[k](x).flatten(2) * self.scales[k].exp() + self.shifts[k])
        return torch.cat(boxes, 2), torch.cat(scores, 2).sigmoid()


class PartFields(nn.Module):
    """OpenPose (Cao et al., 2017) of 368 x 368 pixels: ten layers of VGG-19, then three stages of two branches with 7 x 7 convolutions."""

    def __init__(self, fields: int = 38, maps: int = 19):
        super().__init__()
        relu = lambda a, b, k=3: nn.Sequential(nn.Conv2d(a, b, k, padding=k // 2), nn.ReLU())
        plan = (3, 64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 256, 128)
        body, a = [], 3
        for n in plan[1:]:
            body.append(relu(a, n) if n else nn.MaxPool2d(2))
            a = n or a
        self.body = nn.Sequential(*body)
        first = lambda n: nn.Sequential(
            relu(128, 128), relu(128, 128), relu(128, 128), relu(128, 512, 1), nn.Conv2d(512, n, 1)
        )
        later = lambda n: nn.Sequential(
            relu(128 + fields + maps, 128, 7),
            *(relu(128, 128, 7) for _ in range(4)),
            relu(128, 128, 1),
            nn.Conv2d(128, n, 1),
        )
        self.stages = nn.ModuleList(nn.ModuleList(f(n) for n in (fields, maps)) for f in (first, later, later))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = seen = self.body(x)
        for one, two in self.stages:
            fields, maps = one(seen), two(seen)
            seen = torch.cat([fields, maps, x], 1)
        return fields, maps


def visits(length: int, *more: tuple[int, ...]) -> Inputs:
    return lambda batch: (torch.randint(0, 50000, (batch, 128, length), generator=seeded()), *normal(*more)(batch))


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "din": (Interests, visits(51)),
    "bst": (BehaviourSequence, visits(21, (128, 40))),
    "iqn_dueling": (QuantileReturns, normal((32, 4, 84, 84), (32, 64))),
    "impala_deep": (ResidualPolicy, normal((20, 3, 72, 96), (20, 16))),
    "decision_transformer_6": (
        ReturnsAsTokens,
        lambda batch: (*normal((64, 1), (64, 17), (64, 6))(batch), *tokens(64, 1000)(batch)),
    ),
    "mu_zero_5": (LatentSteps, lambda batch: (*normal((32, 96, 96))(batch), *tokens(5, 18)(batch))),
    "times_fm_4": (PatchForecast, normal((16, 512))),
    "q_former_4": (QueryFormer, lambda batch: (*normal((257, 1408))(batch), *tokens(32, 30522)(batch))),
    "flamingo_4": (
        GatedCross,
        lambda batch: (
            *normal((4, 256, 1024))(batch),
            torch.cat([torch.ones(batch, 4, 1, dtype=torch.int64), 2 + tokens(4, 30000, 63)(batch)[0]], 2).flatten(1),
        ),
    ),
    "yolo_world_neck": (WordsToBoxes, normal((128, 80, 80), (256, 40, 40), (512, 20, 20), (80, 512))),
    "open_pose_3": (PartFields, pictures(3, 368, 368)),
}
