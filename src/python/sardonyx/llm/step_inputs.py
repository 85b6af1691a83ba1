"""A step's inputs as arrays: which tokens are computed, where their keys and values are, and how tokens are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .engine_request import Request
from .genai_folder import GenaiFolder
from .paged_sampling import StepKind
from .scheduler import Piece

Array = np.ndarray[Any, Any]


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
    """Makes the inputs of a step; the base of decoders."""

    folder: GenaiFolder
    ids_dtype: Any

    def _dtype_of(self, name: str) -> Any:
        """Of an input of the model."""
        raise NotImplementedError

    def _packed(self, pieces: Sequence[Piece]) -> dict[str, Array]:
        """The inputs that say which tokens are computed, and where their keys and values are."""
        folder = self.folder
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
            folder.input_ids: np.array([ids], self.ids_dtype),
            "cumulative": cumulative.astype(np.int32),
            "past": np.array([p.start for p in pieces], np.int32),
            "table": table,
            "rows": np.array(rows or [0], np.int64),
        }
        if folder.position_ids:
            places = np.concatenate([np.arange(p.start, p.start + p.count) for p in pieces])
            values[folder.position_ids] = places[None].astype(self._dtype_of(folder.position_ids))
        return values

    def _choice(self, giving: Sequence[tuple[Request, int]], kind: StepKind, results: int) -> dict[str, Array]:
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
            words = -(-self.folder.vocabulary // 32)
            values["touched"] = np.zeros((results, wide), np.int64)
            values["offsets"] = np.zeros((results, wide), np.float32)
            values["repeated"] = np.zeros((results, wide), np.bool_)
            values["repetition"] = np.ones((results, 1), np.float32)
            values["allowed"] = np.full((results, words), 0xFFFFFFFF, np.uint32)
            for at, ((r, _), lists) in enumerate(zip(giving, changes)):
                values["repetition"][at] = r.search.repetition_penalty
                if r.allowed is not None:
                    values["allowed"][at] = r.allowed
                for name, items in zip(("touched", "offsets", "repeated"), lists):
                    if items:  # the rest of the row repeats the first change
                        values[name][at] = items[0]
                        values[name][at, : len(items)] = items
        return values
