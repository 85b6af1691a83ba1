"""A step's inputs as arrays: which tokens are computed, where their keys and values are, and how tokens are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .engine_request import Request
from .genai_folder import GenaiFolder
from .paged_graph import GIVEN_IDS
from .paged_sampling import StepKind
from .scheduler import Piece
from .step_graph import StepGraph
from .step_sizes import PART, in_order, tiles_of

Array = np.ndarray[Any, Any]
Giving = Sequence[tuple[Request, int]]  #: of each result of a step, see giving()


MOST_PARTS = 8  #: of prompts in a step with answers


def giving(pieces: Sequence[Piece]) -> list[tuple[Request, int]]:
    """Of each result of a step, its request and the token's place in the answer."""
    return [
        (p.request, p.start + p.count - p.results + k + 1 - p.request.prompt_tokens)
        for p in pieces
        for k in range(p.results)
    ]


def same_shape(pieces: Sequence[Piece]) -> tuple[int, int] | None:
    """How many tokens and results each piece has, if all have as many and at least one result."""
    shape = pieces[0].count, pieces[0].results
    return shape if shape[1] and all((p.count, p.results) == shape for p in pieces) else None


class StepInputs:
    """Makes the inputs of steps."""

    def __init__(self, folder: GenaiFolder, step: StepGraph, rows: int, slots: int):
        """step: the folder's; rows: tokens of a page; slots: see PagedGraph.build()."""
        self._folder, self._slots, self._carried = folder, slots, step.carried
        self._ids_dtype, self._positions_dtype = step.ids_dtype, step.positions_dtype
        self.columns = -(-folder.context // rows)  #: pages of the longest sequence
        self._tables = PageTables(self.columns)

    @property
    def widest(self) -> int:
        """The width of packed()'s table for the longest sequence."""
        return 1 << (self.columns - 1).bit_length()

    @property
    def ids(self) -> str:
        """The name of the input of ids that the host knows."""
        return GIVEN_IDS if self._slots else self._folder.input_ids

    def whole(self, pieces: Sequence[Piece], giving: Giving, kind: StepKind) -> dict[str, Array]:
        """All inputs of a step of any sizes."""
        inputs = {**self.packed(pieces), **self.choice(giving, kind, max(1, len(giving)))}
        if kind.adapters:
            inputs["adapter"] = adapters_of(pieces)
        if self._slots:
            inputs[self.ids] = inputs.pop(self._folder.input_ids)
            inputs["source"] = np.full(inputs[self.ids].shape[1], -1, np.int32)
            for p, end in zip(pieces, inputs["cumulative"][1:].tolist()):
                if p.unknown:
                    inputs["source"][end - 1] = p.request.slot
            inputs["target"] = np.full(self._slots, -1, np.int32)
            inputs["target"][[r.slot for r, _ in giving if r.slot >= 0]] = [
                k for k, (r, _) in enumerate(giving) if r.slot >= 0
            ]
        return inputs

    def packed(self, pieces: Sequence[Piece]) -> dict[str, Array]:
        """The inputs that say which tokens are computed, and where their keys and values are."""
        folder = self._folder
        counts = [p.count for p in pieces]
        ids: list[int] = []
        for p in pieces:
            ids += p.ids
        cumulative = np.concatenate(([0], np.cumsum(counts)))
        columns = 1 << (max(len(p.request.pages) for p in pieces) - 1).bit_length()  # few sizes
        table = np.zeros((len(pieces), columns), np.int32)
        for row, p in zip(table, pieces):
            row[: len(p.request.pages)] = p.request.pages
        rows = [int(end) - p.results + k for end, p in zip(cumulative[1:], pieces) for k in range(p.results)]
        values = {
            folder.input_ids: np.array([ids], self._ids_dtype),
            "cumulative": cumulative.astype(np.int32),
            "past": np.array([p.start for p in pieces], np.int32),
            "table": table,
            "rows": np.array(rows or [0], np.int64),
        }
        if folder.position_ids:
            places = np.concatenate([np.arange(p.start, p.start + p.count) for p in pieces])
            values[folder.position_ids] = places[None].astype(self._positions_dtype)
        return values

    def choice(self, giving: Giving, kind: StepKind, results: int) -> dict[str, Array]:
        """The inputs that say how tokens are chosen, for each result's request and place in its answer; rows past the last
        result choose the most likely token."""
        values: dict[str, Array] = {}
        if kind.sample:
            for name, value in (("temperature", 1), ("top_p", 1), ("min_p", 0), ("random", 0)):
                values[name] = np.full((results, 1), value, np.float32)
            values["top_k"], values["pure"] = np.ones((results, 1), np.int64), np.zeros((results, 1), np.bool_)
            drawn = [(at, r, place) for at, (r, place) in enumerate(giving) if r.search.samples]
            if drawn:
                rows = [at for at, *_ in drawn]
                values["random"][rows, 0] = [r.random(place) for _, r, place in drawn]
                # Slightly below 1, so that its product with a sum stays below the sum.
                np.minimum(values["random"], np.float32(1 - 2**-22), out=values["random"])
                columns = np.array([r.drawing for _, r, _ in drawn]).T
                for name, column in zip(("temperature", "top_p", "min_p", "top_k", "pure"), columns):
                    values[name][rows, 0] = column
        if kind.adjust:
            changes = [r.changes() for r, _ in giving]
            most = max((len(c[0]) for c in changes), default=0)
            wide = 1 << max(most - 1, 0).bit_length()
            words = -(-self._folder.vocabulary // 32)
            values["touched"] = np.zeros((results, wide), np.int64)
            values["offsets"] = np.zeros((results, wide), np.float32)
            values["repeated"] = np.zeros((results, wide), np.bool_)
            values["repetition"] = np.ones((results, 1), np.float32)
            values["allowed"] = np.full((results, words), 0xFFFFFFFF, np.uint32)
            for at, ((r, _), change) in enumerate(zip(giving, changes)):
                lists: tuple[Sequence[Any], ...] = change
                values["repetition"][at] = r.search.repetition_penalty
                if r.allowed is not None:
                    values["allowed"][at] = r.allowed
                for name, items in zip(("touched", "offsets", "repeated"), lists):
                    if items:  # the rest of the row repeats the first change
                        values[name][at] = items[0]
                        values[name][at, : len(items)] = items
        return values

    def unused(self, kind: StepKind, size: int, count: int, results: int) -> dict[str, Array]:
        """Values of a step's inputs whose places no sequence uses: `size` sequences of `count` tokens, which compute tokens of
        page 0, and `results` results of each. Without the table."""
        folder = self._folder
        values: dict[str, Array] = {
            self.ids: np.zeros((1, size * count), self._ids_dtype),
            "cumulative": np.arange(size + 1, dtype=np.int32) * count,
            "past": np.zeros(size, np.int32),
            "rows": np.arange(size * count, dtype=np.int64).reshape(size, count)[:, count - results :].flatten(),
            **self.choice([], kind, size * results),
        }
        if kind.adapters:
            values["adapter"] = np.zeros(size * count, np.int64)
        if folder.position_ids:
            values[folder.position_ids] = np.zeros((1, size * count), self._positions_dtype)
        for name, (dtype, width) in self._carried.items():
            values[name] = np.zeros((1, size * count, width), dtype)
        if self._slots:
            values["source"] = np.full(size * count, -1, np.int32)
            values["target"] = np.full(self._slots, -1, np.int32)
        return values

    def fill(
        self,
        values: dict[str, Array],
        pieces: Sequence[Piece],
        giving: Giving,
        kind: StepKind,
        count: int,
        single: bool,
    ) -> None:
        """The values of a step; those of places that are not used compute tokens of page 0."""
        folder, n = self._folder, len(pieces)
        ids = values[self.ids][0]
        starts = [p.start for p in pieces]
        if count == 1:
            ids[:n] = [0 if p.unknown else p.request.tokens[p.start] if not p.guesses else p.ids[0] for p in pieces]
        else:
            for k, p in enumerate(pieces):
                ids[k * count : k * count + p.count] = p.ids
        values["past"][:n] = starts
        values["past"][n:] = 0
        self._tables.rows(pieces, values["table"])
        if single:
            values["rows"][0] = pieces[0].count - 1
        if folder.position_ids:
            at = np.minimum(np.asarray(starts)[:, None] + np.arange(count), folder.context - 1)
            values[folder.position_ids][0, : n * count] = at.reshape(-1)
        if self._slots:
            source, target = values["source"], values["target"]
            source[...] = target[...] = -1
            for k, p in enumerate(pieces):
                if p.unknown:
                    source[k * count + p.count - 1] = p.request.slot
            slots = [r.slot for r, _ in giving]
            target[slots] = range(len(slots))
        if kind.adapters:
            values["adapter"][:] = 0
            for k, p in enumerate(pieces):
                values["adapter"][k * count : (k + 1) * count] = p.request.adapter
        if kind.sample:
            results = len(values["random"])
            for name, x in self.choice(giving, kind, results).items():
                values[name][...] = x

    def unused_both(self, kind: StepKind, answers: int, tokens: int) -> dict[str, Array]:
        """unused() of a step of `answers` sequences of one token and parts of prompts, which are sequences of PART tokens but for
        the last one, with its table; without `cumulative`. Results are as many as answers."""
        sequences = answers + tiles_of(tokens)
        values = {
            **self.unused(kind, answers + tokens, 1, 1),
            "rows": np.zeros(answers, np.int64),
            "past": np.zeros(sequences, np.int32),
            "table": np.zeros((sequences, self.columns), np.int32),
            **self.choice([], kind, answers),
        }
        del values["cumulative"]
        return values

    def fill_both(
        self,
        values: dict[str, Array],
        pieces: Sequence[Piece],
        giving: Giving,
        kind: StepKind,
        answers: int,
    ) -> None:
        """The values of a step of unused_both(), whose parts of prompts come last, and which gives at most `answers` tokens. Places that no sequence uses compute tokens of page 0."""
        n = sum(p.count == 1 for p in pieces)
        single, parts = pieces[:n], pieces[n:]
        ids, past = values[self.ids][0], values["past"]
        ids[:n] = [0 if p.unknown else p.request.tokens[p.start] for p in single]
        past[:n] = [p.start for p in single]
        past[n:] = 0
        self._tables.rows(single, values["table"][:answers])
        source, target = values["source"], values["target"]
        source[...] = target[...] = -1
        source[:n] = [p.request.slot if p.unknown else -1 for p in single]
        if kind.adapters:
            values["adapter"][:] = 0
            values["adapter"][:n] = [p.request.adapter for p in single]
        begin, sequence = answers, answers
        tiles: list[Piece] = []  # a long part is several sequences with the same pages
        last = [0] * len(parts)  # rows of their last tokens
        for k in in_order([p.count for p in parts]):
            p = parts[k]
            count, end = tiles_of(p.count), begin + p.count
            last[k] = end - 1
            ids[begin:end] = p.ids
            past[sequence : sequence + count] = p.start + PART * np.arange(count)
            if kind.adapters:
                values["adapter"][begin:end] = p.request.adapter
            if p.unknown:
                source[end - 1] = p.request.slot
            tiles += [p] * count
            begin, sequence = begin + PART * count, sequence + count
        self._tables.rows(tiles, values["table"][answers:])
        rows = [k for k, p in enumerate(single) if p.results]
        rows += [row for row, p in zip(last, parts) if p.results]
        values["rows"][: len(rows)] = rows  # results are in the order of the pieces
        values["rows"][len(rows) :] = 0
        if self._folder.position_ids:
            at = values[self._folder.position_ids][0]
            at[:answers] = past[:answers]
            within = past[answers:, None] + np.arange(PART)
            at[answers:] = np.minimum(within, self._folder.context - 1).reshape(-1)[: at.size - answers]
        target[[r.slot for r, _ in giving]] = range(len(giving))
        if kind.sample:
            for name, x in self.choice(giving, kind, answers).items():
                values[name][...] = x


class PageTables:
    """The pages of the sequences that run, of which only those that are new are written."""

    def __init__(self, columns: int):
        self._table = np.zeros((64, columns), np.int32)  # by slot
        self._known: list[tuple[int, int, int]] = [(0, 0, 0)] * 64  # request's number, times preempted, pages

    def rows(self, pieces: Sequence[Piece], into: Array) -> None:
        """Writes the pieces' rows; zeros below and beside them."""
        width, taken = into.shape[1], []
        for p in pieces:
            r = p.request
            pages, slot = r.pages, r.slot
            if slot < 0:  # not of the engine's requests
                break
            while slot >= len(self._known):
                self._table = np.concatenate((self._table, np.zeros_like(self._table)))
                self._known += [(0, 0, 0)] * len(self._known)
            number, turn, count = self._known[slot]
            if number != r.number or turn != r.preempted or count != len(pages):
                same = number == r.number and turn == r.preempted and count < len(pages)
                begin = count if same else 0
                self._table[slot, begin : len(pages)] = pages[begin:]
                self._table[slot, len(pages) :] = 0
                self._known[slot] = r.number, r.preempted, len(pages)
            taken.append(slot)
        else:
            np.take(self._table[:, :width], taken, axis=0, out=into[: len(taken)])
            into[len(taken) :] = 0
            return
        into[...] = 0
        for row, p in zip(into, pieces):
            row[: len(p.request.pages)] = p.request.pages


def adapters_of(pieces: Sequence[Piece]) -> Array:
    """Which adapter each token has."""
    return np.repeat(np.array([p.request.adapter for p in pieces], np.int64), [p.count for p in pieces])


def complete(own: Mapping[str, Array], values: Mapping[str, Array]) -> None:
    """Writes a step's inputs to those of a step with room for more sequences or, if there is one sequence, for more tokens;
    `cumulative` stays, and `rows` too but for one sequence."""
    for name, to in own.items():
        value = values[name]
        if name == "cumulative" or (name == "rows" and to.size > 1):
            continue
        if name == "past":
            to[len(value) :] = 0
        if name == "table":
            to[...] = 0
            to[: len(value), : value.shape[1]] = value
        elif to.shape != value.shape and to.shape[0] == 1 == value.shape[0]:  # ids, positions and hidden states
            to[:, : value.shape[1]] = value
        else:
            to[: len(value)] = value
