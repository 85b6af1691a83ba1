"""Batch inference with Ray Data: an actor pool, each of whose workers has the model and, on GPUs, a card of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import ray.data

from ..compiling import Source
from ..errors import InvalidArgumentError
from .program import SharedProgram, share

Array = np.ndarray[Any, Any]


class Predictor:
    """A model as a callable class for `Dataset.map_batches`: batches of columns in, batches of columns out."""

    def __init__(
        self,
        program: SharedProgram,
        columns: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        threads: int = 1,
    ):
        """columns: of each input the dataset's column; inputs that are not there have their own name. outputs: of each
        output that is wanted the new column; None: all, with their names. keep: columns that are passed on. threads: of
        a run on the host."""
        self._model = program.load()
        names = [i.name for i in self._model.inputs]
        known = [o.name for o in self._model.outputs]
        columns = dict(columns or {})
        outputs = dict(outputs) if outputs is not None else {n: n for n in known}
        for given, allowed, what in ((columns, names, "input"), (outputs, known, "output")):
            for name in given:
                if name not in allowed:
                    raise InvalidArgumentError(f"the model has no {what} '{name}'; it has {', '.join(allowed)}")
        twice = {c for c in outputs.values() if c in keep or list(outputs.values()).count(c) > 1}
        if twice:
            raise InvalidArgumentError(f"the column '{min(twice)}' would be there twice")
        self._columns = {n: columns.get(n, n) for n in names}
        self._outputs, self._keep, self._threads = outputs, tuple(keep), threads
        first = {i.shape[0] for i in self._model.inputs if i.shape}
        #: Rows of every run, if the model's batch is fixed.
        self._rows = next(iter(first)) if len(first) == 1 and isinstance(next(iter(first)), int) else 0

    def _input(self, name: str, dtype: Any, batch: Mapping[str, Array]) -> Array:
        column = self._columns[name]
        if column not in batch:
            raise InvalidArgumentError(
                f"there is no column '{column}' for the input '{name}'; there are {', '.join(batch)}"
            )
        x = np.asarray(batch[column])
        if x.dtype == object:
            try:
                x = np.stack([np.asarray(row) for row in x])
            except ValueError:
                raise InvalidArgumentError(f"the rows of column '{column}' differ in shape") from None
        if x.dtype != dtype:
            if not np.can_cast(x.dtype, dtype, "same_kind"):
                raise InvalidArgumentError(f"the column '{column}' is {x.dtype}, and the input '{name}' {dtype}")
            x = x.astype(dtype)
        return np.ascontiguousarray(x)

    def __call__(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Raises errors.Error for columns that do not fit the model."""
        inputs = {i.name: self._input(i.name, i.dtype, batch) for i in self._model.inputs}
        count = len(next(iter(inputs.values()))) if inputs else 0
        if self._rows:
            results = self._in_parts(inputs, count)
        else:
            results = self._model.run(inputs, threads=self._threads)
        found = {column: results[name] for name, column in self._outputs.items()}
        for column, x in found.items():
            if x.ndim == 0 or len(x) != count:
                raise InvalidArgumentError(
                    f"the output for '{column}' has the shape {x.shape}, not a row for each of {count}"
                )
        return {**{c: batch[c] for c in self._keep}, **found}

    def _in_parts(self, inputs: dict[str, Array], count: int) -> dict[str, Array]:
        """Runs of as many rows as the model has; the last one is filled with its last row."""
        parts: list[dict[str, Array]] = []
        for at in range(0, count, self._rows):
            part = {n: x[at : at + self._rows] for n, x in inputs.items()}
            missing = self._rows - len(next(iter(part.values())))
            if missing:
                part = {n: np.concatenate((x, np.repeat(x[-1:], missing, 0))) for n, x in part.items()}
            parts.append(self._model.run(part, threads=self._threads))
        return {n: np.concatenate([p[n] for p in parts])[:count] for n in parts[0]}


def map_batches(
    dataset: ray.data.Dataset,
    model: Source | SharedProgram,
    *,
    columns: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    batch_size: int = 64,
    concurrency: int | tuple[int, int] = 1,
    num_cpus: float = 1,
    num_gpus: float | None = None,
    device: str = "host",
    **options: Any,
) -> ray.data.Dataset:
    """The dataset with the model's outputs; nothing runs before its rows are asked for, and they come as a stream.

    columns, outputs, keep: see Predictor. batch_size: rows of a run. concurrency: workers, or the least and the most of
    them. num_cpus, num_gpus: of a worker, for Ray's placement; num_gpus None: one if the device is "cuda" or "hip".
    Ray shows each worker its own cards, so the device's number is left out. options: of sardonyx.compile(), once, here.

    A worker that dies is started again by Ray, and its batches run again. Raises errors.Error for a model that cannot
    be compiled; errors of runs come from the dataset.
    """
    if isinstance(model, SharedProgram):
        if options or device not in ("host", model.device):
            raise InvalidArgumentError("a shared program has been compiled; options have no effect on it")
        program = model
    else:
        program = share(model, device=device, **options)
    if num_gpus is None:
        num_gpus = 1 if program.device.partition(":")[0] in ("cuda", "hip") else 0
    least, most = (concurrency, concurrency) if isinstance(concurrency, int) else concurrency
    if not 1 <= least <= most:
        raise InvalidArgumentError(f"concurrency is {concurrency!r}; it must be at least 1, or the least and the most")
    return dataset.map_batches(
        Predictor,
        fn_constructor_kwargs={
            "program": program,
            "columns": columns,
            "outputs": outputs,
            "keep": tuple(keep),
            "threads": max(1, int(num_cpus)),
        },
        batch_size=batch_size,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=num_cpus,
        num_gpus=num_gpus,
    )
