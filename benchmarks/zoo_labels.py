"""Labels, trees and routes, for the zoo: what is decoded step by step inside of the graph, with masks, pointers and copies."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_inputs import Inputs, normal, seeded


class ConditionalField(nn.Module):
    """BiLSTM-CRF (Lample et al., 2016) with characters: Viterbi's algorithm over 40 words, then the best path backwards."""

    def __init__(self, words: int = 20000, characters: int = 100, tags: int = 17, hidden: int = 200):
        super().__init__()
        self.words, self.characters = nn.Embedding(words, 100), nn.Embedding(characters, 25)
        self.spell = nn.Conv1d(25, 50, 3, padding=1)
        self.lstm = nn.LSTM(150, hidden, batch_first=True, bidirectional=True)
        self.score = nn.Linear(2 * hidden, tags)
        self.moves, self.start, self.end = (
            nn.Parameter(torch.randn(tags, tags)),
            nn.Parameter(torch.randn(tags)),
            nn.Parameter(torch.randn(tags)),
        )

    def forward(self, words: torch.Tensor, characters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length = characters.shape[:2]
        spelt = self.spell(self.characters(characters).flatten(0, 1).transpose(1, 2)).amax(2).reshape(batch, length, -1)
        h = self.lstm(torch.cat([self.words(words), spelt], 2))[0]
        scores = 4 * self.score(h)
        best, pointers = self.start + scores[:, 0], []
        for k in range(1, length):
            value, pointer = (best[:, :, None] + self.moves).max(1)
            best = value + scores[:, k]
            pointers.append(pointer)
        score, tag = (best + self.end).max(1)
        path = [tag]
        for pointer in reversed(pointers):
            tag = pointer.gather(1, tag[:, None])[:, 0]
            path.append(tag)
        return score, torch.stack(path[::-1], 1)


def spelled(batch: int, length: int = 40, letters: int = 16) -> tuple[torch.Tensor, ...]:
    r = seeded()
    words = torch.randint(0, 20000, (batch, length), generator=r)
    return words, torch.randint(0, 100, (batch, length, letters), generator=r)


class Alignment(nn.Module):
    """Scores of a text for sound (CTC's forward algorithm, Graves et al., 2006): log-sums over 100 frames of a recurrent
    recogniser; and a path that is given, with repetitions and blanks removed."""

    def __init__(self, mels: int = 80, classes: int = 32, hidden: int = 320):
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(mels, 256, 5, 2, 2), nn.ReLU(), nn.Conv1d(256, 256, 5, 2, 2), nn.ReLU())
        self.gru = nn.GRU(256, hidden, 2, batch_first=True, bidirectional=True)
        self.last = nn.Linear(2 * hidden, classes)

    def forward(self, mels: torch.Tensor, text: torch.Tensor, path: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.gru(self.down(mels).transpose(1, 2))[0]
        chances = (4 * self.last(h)).float().log_softmax(-1)
        batch, frames, _ = chances.shape
        symbols = F.pad(text[:, :, None], (1, 0)).flatten(1)
        symbols = F.pad(symbols, (0, 1))
        states = symbols.shape[1]
        emitted = chances.gather(2, symbols[:, None].expand(-1, frames, -1))
        skips = (symbols != 0) & (symbols != F.pad(symbols, (2, 0), value=-1)[:, :-2])
        never = torch.full((batch, states), -1e5, device=chances.device)
        first = torch.arange(states, device=chances.device) < 2
        alpha = torch.where(first, emitted[:, 0], never)
        for k in range(1, frames):
            one = F.pad(alpha, (1, 0), value=-1e5)[:, :-1]
            two = torch.where(skips, F.pad(alpha, (2, 0), value=-1e5)[:, :-2], never)
            alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + emitted[:, k]
        total = torch.logsumexp(alpha[:, -2:], 1)
        kept = (path != 0) & (path != F.pad(path, (1, 0), value=-1)[:, :-1])
        # Kept symbols move to the front, by the number of those before them; the others land behind the end.
        place = torch.where(kept, kept.long().cumsum(1) - 1, frames)
        found = torch.zeros(batch, frames + 1, dtype=path.dtype, device=path.device).scatter(1, place, path)
        return total, found[:, :frames]


def uttered(batch: int, frames: int = 400, letters: int = 30) -> tuple[torch.Tensor, ...]:
    r = seeded()
    mels, text = torch.randn(batch, 80, frames, generator=r), torch.randint(1, 32, (batch, letters), generator=r)
    return mels, text, torch.randint(0, 32, (batch, frames // 8), generator=r).repeat_interleave(2, 1)


class PointerGenerator(nn.Module):
    """Summaries that copy words (See et al., 2017): ten steps of a decoder with attention and coverage; its distribution over
    50,000 words and those of the source is a mixture, to which attention is added by position."""

    def __init__(self, words: int = 50000, more: int = 40, c: int = 128, hidden: int = 256, steps: int = 10):
        super().__init__()
        self.words, self.more, self.steps = words, more, steps
        self.embed = nn.Embedding(words, c)
        self.encode = nn.LSTM(c, hidden, batch_first=True, bidirectional=True)
        self.reduce_h, self.reduce_c = nn.Linear(2 * hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.cell, self.into = nn.LSTMCell(c, hidden), nn.Linear(2 * hidden + c, c)
        self.keys, self.query = nn.Linear(2 * hidden, 2 * hidden, bias=False), nn.Linear(2 * hidden, 2 * hidden)
        self.cover, self.score = nn.Linear(1, 2 * hidden, bias=False), nn.Linear(2 * hidden, 1, bias=False)
        self.switch = nn.Linear(4 * hidden + c, 1)
        self.out = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.Linear(hidden, words))

    def forward(self, source: torch.Tensor, extended: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.encode(self.embed(source))[0]
        ends = torch.cat([seen[:, -1, :256], seen[:, 0, 256:]], 1)
        h, c = F.relu(self.reduce_h(ends)), F.relu(self.reduce_c(ends))
        keys = self.keys(seen)
        covered = torch.zeros_like(seen[..., 0])
        context = torch.zeros_like(seen[:, 0])
        word = torch.zeros_like(source[:, 0])
        found, chances = [], covered
        for _ in range(self.steps):
            x = self.into(torch.cat([context, self.embed(word)], 1))
            h, c = self.cell(x, (h, c))
            query = self.query(torch.cat([h, c], 1))
            weights = self.score(torch.tanh(keys + query[:, None] + self.cover(covered[..., None])))[..., 0].softmax(1)
            covered = covered + weights
            context = torch.bmm(weights[:, None], seen)[:, 0]
            own = torch.sigmoid(self.switch(torch.cat([context, h, c, x], 1)))
            chances = F.pad(own * self.out(torch.cat([h, context], 1)).softmax(1), (0, self.more))
            chances = chances.scatter_add(1, extended, (1 - own) * weights)
            word = chances.argmax(1)
            found.append(word)
            word = torch.where(word < self.words, word, 0)
        return torch.stack(found, 1), chances


def articles(batch: int, length: int = 200) -> tuple[torch.Tensor, ...]:
    r = seeded()
    extended = torch.randint(0, 50040, (batch, length), generator=r)
    return torch.where(extended < 50000, extended, 0), extended


class Biaffine(nn.Module):
    """A dependency parser (Dozat and Manning, 2017): three BiLSTM layers, biaffine scores of all pairs of words, and of 40
    labels for each pair."""

    def __init__(self, words: int = 20000, c: int = 200, hidden: int = 400, labels: int = 40):
        super().__init__()
        self.words, self.tags = nn.Embedding(words, c), nn.Embedding(50, 100)
        self.lstm = nn.LSTM(c + 100, hidden, 3, batch_first=True, bidirectional=True)
        mlp = lambda n: nn.Sequential(nn.Linear(2 * hidden, n), nn.LeakyReLU(0.1))
        self.head, self.child, self.head_label, self.child_label = mlp(500), mlp(500), mlp(100), mlp(100)
        self.arcs = nn.Parameter(torch.randn(501, 500) / 500**0.5)
        self.labels = nn.Parameter(torch.randn(labels, 101, 101) / 10)

    def forward(self, words: torch.Tensor, tags: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.lstm(torch.cat([self.words(words), self.tags(tags)], 2))[0]
        one = lambda x: F.pad(x, (0, 1), value=1.0)
        arcs = torch.einsum("bxi,ij,byj->bxy", one(self.child(h)), self.arcs, self.head(h))
        labels = torch.einsum("bxi,oij,byj->boxy", one(self.child_label(h)), self.labels, one(self.head_label(h)))
        chosen = arcs.argmax(2)[:, None, :, None].expand(-1, labels.shape[1], -1, -1)
        return arcs, labels.gather(3, chosen)[..., 0].transpose(1, 2)


def sentences(batch: int, length: int = 50) -> tuple[torch.Tensor, ...]:
    r = seeded()
    words = torch.randint(0, 20000, (batch, length), generator=r)
    return words, torch.randint(0, 50, (batch, length), generator=r)


class Routes(nn.Module):
    """Attention that learns to visit cities (Kool et al., 2019): three encoder layers over 50 places, and a tour of 50 steps,
    each of which takes the best place that was not visited."""

    def __init__(self, c: int = 128, heads: int = 8, layers: int = 3):
        super().__init__()
        self.heads, self.first = heads, nn.Linear(2, c)
        layer = lambda: nn.TransformerEncoderLayer(c, heads, 512, 0.0, batch_first=True)
        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.keys, self.whole, self.step = (
            nn.Linear(c, 3 * c, bias=False),
            nn.Linear(c, c, bias=False),
            nn.Linear(2 * c, c, bias=False),
        )
        self.out, self.start = nn.Linear(c, c, bias=False), nn.Parameter(torch.randn(2 * c))

    def forward(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.first(places)
        for layer in self.layers:
            x = layer(x)
        batch, n, c = x.shape
        k, v, final = self.keys(x).chunk(3, 2)
        k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (k, v))
        whole = self.whole(x.mean(1))
        visited = torch.zeros(batch, n, dtype=torch.bool, device=x.device)
        ends = self.start.expand(batch, -1)
        first = x[:, 0]
        path, total = [], torch.zeros(batch, dtype=torch.float32, device=x.device)
        for t in range(n):
            q = (whole + self.step(ends)).unflatten(1, (self.heads, 1, -1))
            scores = (q @ k.transpose(2, 3)) / (c // self.heads) ** 0.5
            scores = scores.masked_fill(visited[:, None, None], float("-inf"))
            glimpse = self.out((scores.softmax(3) @ v).transpose(1, 2).flatten(1))
            value = 10 * torch.tanh((final @ glimpse[..., None])[..., 0] / c**0.5)
            value = value.float().masked_fill(visited, float("-inf")).log_softmax(1)
            chance, place = value.max(1)
            visited = visited | F.one_hot(place, n).bool()
            last = x.gather(1, place[:, None, None].expand(-1, -1, c))[:, 0]
            first = last if t == 0 else first
            ends = torch.cat([first, last], 1)
            path.append(place)
            total = total + chance
        return torch.stack(path, 1), total


#: With inputs of a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "bilstm_crf": (ConditionalField, spelled),
    "ctc_alignment": (Alignment, uttered),
    "pointer_generator": (PointerGenerator, articles),
    "biaffine_parser": (Biaffine, sentences),
    "attention_routes": (Routes, normal((50, 2))),
}
