"""Steps on a GPU that compute a token of each of several sequences and a part of a prompt: the weights are read once for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .engine_request import Request
from .paged_graph import GIVEN_IDS
from .paged_sampling import Chosen, StepKind
from .scheduler import Piece
from .step_runs import GpuRun, rounded_both

Array = np.ndarray[Any, Any]


class StepsOfBoth:
    """A base of PagedDecoder, which has these members."""

    ahead: bool
    device: str
    folder: Any
    program: Any
    unused: Any
    read_outputs: Any
    _columns: int
    _tables: Any
    _stream: Any
    _kept: Any
    _choice: Any
    _tensors: Any
    _outputs: Any
    _waiting: Any

    def joins(self, part: Piece, answers: Sequence[Piece]) -> bool:
        """Whether a part of a prompt can be the last piece of a step in which each of the other ones has one token."""
        return (
            self.ahead
            and part.results <= 1
            and part.start + rounded_both(len(answers), part.count)[1] <= self.folder.context
            and not any(p.results and p.request.kind().adjust for p in (part, *answers))
        )

    def _start_both(
        self, pieces: Sequence[Piece], giving: Sequence[tuple[Request, int]], kind: StepKind
    ) -> Callable[[], Chosen]:
        """Starts a step of a token of each piece but the last one, which is a part of a prompt."""
        answers, tokens = rounded_both(len(pieces) - 1, pieces[-1].count)
        key = kind, "both", answers, tokens
        run = self._kept(key, lambda: self._both_run(kind, answers, tokens))
        side = run.side()
        self._fill_both(side.values, pieces, giving, kind, answers)
        side.run()
        return self._waiting(run, side, len(giving), kind)

    def _both_run(self, kind: StepKind, answers: int, tokens: int) -> GpuRun:
        values = {
            **self.unused(kind, answers + tokens, 1, 1),
            "rows": np.zeros(answers + 1, np.int64),
            "past": np.zeros(answers + 1, np.int32),
            "table": np.zeros((answers + 1, self._columns), np.int32),
            **self._choice([], kind, answers + 1),
        }
        ends = np.array([*range(answers + 1), answers + tokens], np.int32)
        del values["cumulative"]
        return GpuRun(
            self.program(kind, False, True),
            self.device,
            self._stream,
            {"cumulative": ends},
            values,
            self.read_outputs(kind, False, answers + 1, True),
            (self._tensors(kind), self._outputs()),
        )

    def _fill_both(
        self,
        values: dict[str, Array],
        pieces: Sequence[Piece],
        giving: Sequence[tuple[Request, int]],
        kind: StepKind,
        answers: int,
    ) -> None:
        """The values of _start_both()'s step. Places that no sequence uses compute tokens of page 0."""
        folder, n, part = self.folder, len(pieces) - 1, pieces[-1]
        end = answers + part.count
        ids = values[GIVEN_IDS][0]
        ids[:n] = [0 if p.unknown else p.request.tokens[p.start] for p in pieces[:-1]]
        ids[answers:end] = part.ids
        values["past"][:n] = [p.start for p in pieces[:-1]]
        values["past"][n:answers] = 0
        values["past"][answers] = part.start
        self._tables.rows(pieces[:-1], values["table"][:answers])
        self._tables.rows([part], values["table"][answers:])
        rows = [k for k, p in enumerate(pieces[:-1]) if p.results] + [end - 1] * part.results
        values["rows"][: len(rows)] = rows  # results are in the order of the pieces
        values["rows"][len(rows) :] = 0
        if folder.position_ids:
            at = values[folder.position_ids][0]
            at[:n], at[n:answers] = values["past"][:n], 0
            at[answers:] = np.arange(part.start, part.start + len(at) - answers)
        source, target = values["source"], values["target"]
        source[...] = target[...] = -1
        source[:n] = [p.request.slot if p.unknown else -1 for p in pieces[:-1]]
        if part.unknown:
            source[end - 1] = part.request.slot
        target[[r.slot for r, _ in giving]] = range(len(giving))
        if kind.adapters:
            values["adapter"][:] = 0
            values["adapter"][:n] = [p.request.adapter for p in pieces[:-1]]
            values["adapter"][answers:] = part.request.adapter
        if kind.sample:
            for name, x in self._choice(giving, kind, answers + 1).items():
                values[name][...] = x
