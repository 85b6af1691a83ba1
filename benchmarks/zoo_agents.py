"""Robots, points, triplanes, series and recommendation, for the zoo: planning with a world model, learned tokens, chunks of
actions, sorted points, volumes from planes, mixtures of scales, segments and products of fields."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, pictures, seeded


class NormedLinear(nn.Module):
    def __init__(self, a: int, b: int, act: Callable[[torch.Tensor], torch.Tensor] = F.mish):
        super().__init__()
        self.linear, self.norm, self.act = nn.Linear(a, b), nn.LayerNorm(b), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.norm(self.linear(x)))


def simplices(x: torch.Tensor) -> torch.Tensor:
    """TD-MPC2's SimNorm: softmax within groups of eight."""
    return x.unflatten(-1, (-1, 8)).softmax(-1).flatten(-2)


class Planner(nn.Module):
    """TD-MPC2 (Hansen et al., 2024): two rounds of sampling 512 sequences of three actions, which a latent model and five value
    networks judge; the 64 best give the next mean and spread."""

    def __init__(
        self, seen: int = 39, actions: int = 6, latent: int = 512, bins: int = 101, horizon: int = 3, best: int = 64
    ):
        super().__init__()
        self.actions, self.horizon, self.best = actions, horizon, best
        n = latent + actions
        self.encode = nn.Sequential(NormedLinear(seen, 256), NormedLinear(256, latent, simplices))
        mlp = lambda out, act: nn.Sequential(NormedLinear(n, 512), NormedLinear(512, 512), NormedLinear(512, out, act))
        self.dynamics = mlp(latent, simplices)
        self.reward = nn.Sequential(NormedLinear(n, 512), NormedLinear(512, 512), nn.Linear(512, bins))
        self.policy = nn.Sequential(NormedLinear(latent, 512), NormedLinear(512, 512), nn.Linear(512, 2 * actions))
        weight = lambda a, b: nn.Parameter(torch.randn(5, a, b) / a**0.5)
        self.q1, self.q2, self.q3 = weight(n, 512), weight(512, 512), weight(512, bins)
        self.scales = nn.Parameter(torch.ones(2, 5, 1, 512))
        self.register_buffer("bins", torch.linspace(-3, 3, bins))

    def number(self, logits: torch.Tensor) -> torch.Tensor:
        x = (logits.softmax(-1) * self.bins).sum(-1)
        return x.sign() * (x.abs().exp() - 1)

    def value(self, z: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        x = torch.cat([z, a], -1).flatten(0, 1).expand(5, -1, -1)
        for weight, scale in ((self.q1, self.scales[0]), (self.q2, self.scales[1])):
            x = F.mish(F.layer_norm(x @ weight, (512,)) * scale)
        both = self.number(x @ self.q3)
        return both[:2].mean(0).view(z.shape[:2])

    def judge(self, z: torch.Tensor, plans: torch.Tensor) -> torch.Tensor:
        total, share = torch.zeros_like(z[..., 0]), 1.0
        for k in range(self.horizon):
            both = torch.cat([z, plans[:, k]], -1)
            total = total + share * self.number(self.reward(both))
            z, share = self.dynamics(both), share * 0.99
        return total + share * self.value(z, self.policy(z).chunk(2, -1)[0].tanh())

    def forward(self, seen: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Observations [batch, 39], noise [batch, rounds, horizon, samples, actions]; the mean of the plans."""
        z = self.encode(seen)[:, None].expand(-1, noise.shape[3], -1)
        mean = torch.zeros_like(noise[:, 0, :, :1])
        spread = torch.full_like(mean, 2.0)
        for k in range(noise.shape[1]):
            plans = (mean + spread * noise[:, k]).clamp(-1, 1)
            values = self.judge(z, plans)
            top, which = values.topk(self.best, 1)
            elite = plans.gather(2, which[:, None, :, None].expand(-1, self.horizon, -1, self.actions))
            share = (0.5 * (top - top[:, :1])).exp()[:, None, :, None]
            share = share / share.sum(2, keepdim=True)
            mean = (share * elite).sum(2, keepdim=True)
            spread = (share * (elite - mean).square()).sum(2, keepdim=True).sqrt().clamp(0.05, 2.0)
        return mean[:, :, 0]


class LearnedTokens(nn.Module):
    """RT-1 (Brohan et al., 2022): six frames through an EfficientNet-B0 whose stages an instruction scales, eight learned tokens
    of each, four layers of a causal transformer, 11 actions of 256 bins."""

    def __init__(self, c: int = 512, layers: int = 4, heads: int = 8):
        super().__init__()
        import torchvision.models as models

        net = models.efficientnet_b0(weights=None).features
        self.stages = nn.ModuleList(net[k] for k in range(8))
        widths = (32, 16, 24, 40, 80, 112, 192, 320)
        self.films = nn.ModuleList(nn.Linear(512, 2 * n) for n in widths)
        self.squeeze = nn.Conv2d(320, c, 1)
        self.maps = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 64), nn.GELU(), nn.Linear(64, 8))
        self.places = nn.Parameter(0.3 * torch.randn(1, 48, c))
        layer = nn.TransformerEncoderLayer(c, heads, 4 * c, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.last = nn.Linear(c, 11 * 256)
        self.register_buffer("mask", torch.triu(torch.full((48, 48), -1e4), 1))

    def forward(self, frames: torch.Tensor, instruction: torch.Tensor) -> torch.Tensor:
        b, n = frames.shape[:2]
        x = frames.flatten(0, 1)
        text = instruction[:, None].expand(-1, n, -1).flatten(0, 1)
        for stage, film in zip(self.stages, self.films, strict=True):
            x = stage(x)
            scale, shift = film(text)[:, :, None, None].chunk(2, 1)
            x = (1 + scale) * x + shift
        x = self.squeeze(x).flatten(2).transpose(1, 2)
        weights = self.maps(x).softmax(1)
        x = torch.einsum("bnk,bnc->bkc", weights, x).reshape(b, n * 8, -1) + self.places
        return self.last(self.layers(x, self.mask, is_causal=False)[:, 7::8]).unflatten(2, (11, 256))


class ActionChunks(nn.Module):
    """ACT (Zhao et al., 2023): four cameras through a ResNet-18, an encoder over their 300 pixels each, state and style, and 100
    queries of actions."""

    def __init__(self, c: int = 512, layers: int = 2, chunk: int = 100):
        super().__init__()
        import torchvision.models as models

        net = models.resnet18(weights=None)
        self.net, self.squeeze = nn.Sequential(*list(net.children())[:-2]), nn.Conv2d(512, c, 1)
        self.state, self.style, self.marks = nn.Linear(14, c), nn.Linear(32, c), nn.Parameter(torch.randn(2, c))
        encoder = nn.TransformerEncoderLayer(c, 8, 3200, 0.0, batch_first=True)
        decoder = nn.TransformerDecoderLayer(c, 8, 3200, 0.0, batch_first=True)
        self.encoder, self.decoder = (
            nn.TransformerEncoder(encoder, layers, enable_nested_tensor=False),
            nn.TransformerDecoder(decoder, layers),
        )
        self.queries, self.places = nn.Parameter(torch.randn(1, chunk, c)), nn.Parameter(0.3 * torch.randn(1, c, 8, 40))
        self.last = nn.Linear(c, 14)

    def forward(self, cameras: torch.Tensor, state: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        b, n = cameras.shape[:2]
        maps = self.squeeze(self.net(cameras.flatten(0, 1))).unflatten(0, (b, n))
        wide = torch.cat(maps.unbind(1), 3) + self.places
        tokens = torch.stack([self.style(style), self.state(state)], 1) + self.marks
        memory = self.encoder(torch.cat([tokens, wide.flatten(2).transpose(1, 2)], 1))
        return self.last(self.decoder(self.queries.expand(b, -1, -1), memory))


class SortedPoints(nn.Module):
    """Point Transformer V3 (Wu et al., 2024), four blocks over 4096 points: sorted along a curve through a grid, attention within
    patches of 256, and max pooling of pairs of neighbours along the curve."""

    def __init__(self, c: int = 64, heads: int = 4, patch: int = 256, classes: int = 13):
        super().__init__()
        self.heads, self.patch = heads, patch
        self.first = nn.Sequential(nn.Linear(6, c), nn.LayerNorm(c), nn.GELU())
        block = lambda c: nn.ModuleList((nn.Linear(3, c), nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c), nn.LayerNorm(c), nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))))  # fmt: skip
        self.blocks = nn.ModuleList(block(n) for n in (c, c, 2 * c, 2 * c))
        self.less, self.more = nn.Linear(c, 2 * c), nn.Linear(2 * c, c)
        self.last = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, classes))

    @staticmethod
    def code(places: torch.Tensor, flipped: bool) -> torch.Tensor:
        """Bits of the grid's coordinates, interleaved (Morton's order)."""
        cell = ((places * 0.5 + 0.5).clamp(0, 0.999) * 32).long()
        x, y, z = (cell.flip(2) if flipped else cell).unbind(2)
        code = torch.zeros_like(x)
        for bit in range(5):
            for shift, t in enumerate((x, y, z)):
                code = code + t // 2**bit % 2 * 2 ** (3 * bit + shift)
        return code * places.shape[1] + torch.arange(places.shape[1], device=places.device)

    def attend(self, block: nn.ModuleList, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        place, norm1, qkv, out, norm2, mlp = block
        x = x + place(places)
        n = min(self.patch, x.shape[1])
        q, k, v = (
            qkv(norm1(x)).unflatten(1, (-1, n)).unflatten(3, (3, self.heads, -1)).permute(3, 0, 1, 4, 2, 5).unbind(0)
        )
        y = F.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)).transpose(1, 2).flatten(2)
        x = x + out(y.reshape(x.shape))
        return x + mlp(norm2(x))

    def forward(self, cloud: torch.Tensor) -> torch.Tensor:
        places, x = cloud[..., :3].clamp(-1, 1), self.first(cloud)
        take = lambda t, order: t.gather(1, order[..., None].expand(-1, -1, t.shape[2]))
        undo = None
        for k in range(2):
            order = self.code(places, k == 1).argsort(1)
            places, x = take(places, order), take(x, order)
            back = order.argsort(1)
            undo = back if undo is None else back.gather(1, undo)
            x = self.attend(self.blocks[k], x, places)
        y = self.less(x).unflatten(1, (-1, 4)).amax(2)
        few = places.unflatten(1, (-1, 4)).mean(2)
        for k in (2, 3):
            y = self.attend(self.blocks[k], y, few)
        x = x + self.more(y).repeat_interleave(4, 1)
        return take(self.last(x), undo)


class PlanesToVolume(nn.Module):
    """A large reconstruction model (Hong et al., 2023), small: patches of an image to three planes of 32 x 32 tokens by cross-attention, and 48
    samples along each of 1024 rays, rendered."""

    def __init__(self, c: int = 512, heads: int = 8, layers: int = 3, side: int = 16, planes: int = 32):
        super().__init__()
        self.heads, self.side = heads, side
        self.patch, self.places = nn.Conv2d(3, c, 14, 14), nn.Parameter(0.3 * torch.randn(1, 256, c))
        self.tokens = nn.Parameter(torch.randn(1, 3 * side * side, c))
        layer = lambda: nn.TransformerDecoderLayer(c, heads, 4 * c, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.up = nn.ConvTranspose2d(c, planes, 2, 2)
        self.mlp = nn.Sequential(nn.Linear(3 * planes, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.register_buffer("depths", torch.linspace(0.4, 2.4, 48))

    def forward(self, image: torch.Tensor, rays: torch.Tensor) -> torch.Tensor:
        b = image.shape[0]
        memory = self.patch(image).flatten(2).transpose(1, 2) + self.places
        x = self.tokens.expand(b, -1, -1)
        for layer in self.layers:
            x = layer(x, memory)
        planes = self.up(x.unflatten(1, (3, self.side, self.side)).permute(0, 1, 4, 2, 3).flatten(0, 1))
        start, way = rays[..., :3] * 0.3, F.normalize(rays[..., 3:], dim=2)
        points = start[:, :, None] + way[:, :, None] * (self.depths - 1.4)[:, None]
        x, y, z = points.unbind(-1)
        grids = torch.stack([torch.stack([x, y], -1), torch.stack([x, z], -1), torch.stack([y, z], -1)], 1)
        found = F.grid_sample(planes, grids.flatten(0, 1), align_corners=False).unflatten(0, (b, 3))
        out = self.mlp(found.permute(0, 3, 4, 1, 2).flatten(3))
        depth = F.softplus(out[..., 3] - 1) * (self.depths[1] - self.depths[0])
        alpha, left = 1 - (-depth).exp(), (depth - depth.cumsum(2)).exp()
        return ((alpha * left)[..., None] * out[..., :3].sigmoid()).sum(2)


class ScaleMixer(nn.Module):
    """TimeMixer (Wang et al., 2024), two layers: 21 series of 96 steps in four scales, trends and seasons by moving averages, mixed
    from fine to coarse and back."""

    def __init__(self, c: int = 16, length: int = 96, ahead: int = 96, layers: int = 2, scales: int = 4):
        super().__init__()
        n = [length >> k for k in range(scales)]
        self.scales, self.embed = scales, nn.Conv1d(1, c, 3, padding=1, padding_mode="circular", bias=False)
        pair = lambda a, b: nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, b))
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        self.down = each(lambda: nn.ModuleList(pair(a, b) for a, b in zip(n, n[1:], strict=False)))
        self.up = each(lambda: nn.ModuleList(pair(b, a) for a, b in zip(n, n[1:], strict=False)))
        self.mix = each(lambda: nn.Sequential(nn.Linear(c, 32), nn.GELU(), nn.Linear(32, c)))
        self.predict, self.last = nn.ModuleList(nn.Linear(k, ahead) for k in n), nn.Linear(c, 1)

    @staticmethod
    def trend(x: torch.Tensor, window: int = 25) -> torch.Tensor:
        x = torch.cat([x[:, :1].expand(-1, window // 2, -1), x, x[:, -1:].expand(-1, window // 2, -1)], 1)
        return F.avg_pool1d(x.transpose(1, 2), window, 1).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, _, channels = x.shape
        xs = [x]
        for _ in range(self.scales - 1):
            xs.append(F.avg_pool1d(xs[-1].transpose(1, 2), 2).transpose(1, 2))
        mean, spread = x.mean(1, keepdim=True), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        xs = [(t - t.mean(1, keepdim=True)) / (t.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt() for t in xs]
        xs = [self.embed(t.transpose(1, 2).reshape(b * channels, 1, -1)).transpose(1, 2) for t in xs]
        for down, up, mix in zip(self.down, self.up, self.mix, strict=True):
            trends = [self.trend(t) for t in xs]
            seasons = [(t - u).transpose(1, 2) for t, u in zip(xs, trends, strict=True)]
            trends = [t.transpose(1, 2) for t in trends]
            for k, f in enumerate(down):
                seasons[k + 1] = seasons[k + 1] + f(seasons[k])
            for k in reversed(range(len(up))):
                trends[k] = trends[k] + up[k](trends[k + 1])
            xs = [x + mix((s + t).transpose(1, 2)) for x, s, t in zip(xs, seasons, trends, strict=True)]
        y = sum(self.last(f(x.transpose(1, 2)).transpose(1, 2)) for f, x in zip(self.predict, xs, strict=True))
        return y.view(b, channels, -1).transpose(1, 2) * spread + mean


class TwoStages(nn.Module):
    """Crossformer (Zhang and Yan, 2023), two layers: segments of 12 steps of 21 series, attention along time, and between series
    through ten routers."""

    def __init__(
        self, c: int = 256, heads: int = 4, segments: int = 14, series: int = 21, routers: int = 10, layers: int = 2
    ):
        super().__init__()
        self.embed, self.place = nn.Linear(12, c), nn.Parameter(torch.randn(1, series, segments, c))
        each = lambda f: nn.ModuleList(f() for _ in range(layers))
        attention = lambda: nn.MultiheadAttention(c, heads, batch_first=True)
        self.time, self.send, self.receive = each(attention), each(attention), each(attention)
        self.routers = nn.ParameterList(nn.Parameter(torch.randn(segments, routers, c)) for _ in range(layers))
        self.norms = each(lambda: nn.ModuleList(nn.LayerNorm(c) for _ in range(4)))
        self.mlps = each(
            lambda: nn.ModuleList(nn.Sequential(nn.Linear(c, 2 * c), nn.GELU(), nn.Linear(2 * c, c)) for _ in range(2))
        )
        self.norm, self.last = nn.LayerNorm(c), nn.Linear(c * segments, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, _, series = x.shape
        x = self.norm(self.embed(x.transpose(1, 2).unflatten(2, (-1, 12))) + self.place)
        for k, (norms, mlps) in enumerate(zip(self.norms, self.mlps, strict=True)):
            y = x.flatten(0, 1)
            y = norms[0](y + self.time[k](y, y, y, need_weights=False)[0])
            y = norms[1](y + mlps[0](y)).unflatten(0, (b, series)).transpose(1, 2).flatten(0, 1)
            routers = self.routers[k].repeat(b, 1, 1)
            middle = self.send[k](routers, y, y, need_weights=False)[0]
            y = norms[2](y + self.receive[k](y, middle, middle, need_weights=False)[0])
            x = norms[3](y + mlps[1](y)).unflatten(0, (b, -1)).transpose(1, 2)
        return self.last(x.flatten(2)).transpose(1, 2)


class FieldProducts(nn.Module):
    """FiBiNET (Huang et al., 2019) for 256 visits: 26 fields weighted by squeeze and excitation, products of all pairs with a matrix
    of each pair, and an MLP."""

    def __init__(self, fields: int = 26, c: int = 16, kinds: int = 20000):
        super().__init__()
        self.embed, self.fields = nn.Embedding(kinds, c), fields
        self.squeeze = nn.Sequential(nn.Linear(fields, 8), nn.ReLU(), nn.Linear(8, fields), nn.ReLU())
        one, two = torch.triu_indices(fields, fields, 1)
        self.register_buffer("one", one)
        self.register_buffer("two", two)
        self.first, self.second = (nn.Parameter(torch.randn(len(one), c, c) / c**0.5) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(2 * len(one) * c, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Linear(400, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Linear(400, 1))  # fmt: skip

    def forward(self, visits: torch.Tensor) -> torch.Tensor:
        x = self.embed(visits.flatten(0, 1))
        weighted = x * self.squeeze(x.mean(2))[..., None]
        product = lambda t, w: torch.einsum("bpi,pij->bpj", t[:, self.one], w) * t[:, self.two]
        both = torch.cat([product(x, self.first), product(weighted, self.second)], 1)
        return self.mlp(both.flatten(1)).sigmoid().view(visits.shape[0], -1)


def cloud(batch: int) -> tuple[torch.Tensor]:
    r = seeded()
    places = 2 * torch.rand(batch, 4096, 3, generator=r) - 1
    return (torch.cat([places, torch.randn(batch, 4096, 3, generator=r)], 2),)


def frames(count: int, *shape: int, more: tuple[tuple[int, ...], ...]) -> Inputs:
    def make(batch: int) -> tuple[torch.Tensor, ...]:
        images = pictures(*shape)(batch * count)[0].unflatten(0, (batch, count))
        return (images, *normal(*more)(batch))

    return make


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "td_mpc2": (Planner, normal((39,), (2, 3, 512, 6))),
    "rt_1": (LearnedTokens, frames(6, 3, 224, 224, more=((512,),))),
    "act_chunks": (ActionChunks, frames(4, 3, 240, 320, more=((14,), (32,)))),
    "point_transformer_v3_4": (SortedPoints, cloud),
    "triplane_3": (PlanesToVolume, lambda batch: (*pictures(3, 224, 224)(batch), *normal((1024, 6))(batch))),
    "time_mixer_2": (ScaleMixer, normal((96, 21))),
    "crossformer_2": (TwoStages, normal((168, 21))),
    "fi_bi_net": (FieldProducts, lambda batch: (torch.randint(0, 20000, (batch, 256, 26), generator=seeded()),)),
}
