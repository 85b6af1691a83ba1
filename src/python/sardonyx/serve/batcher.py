"""Runs a model for many requests: those that come within a short time run as one batch, if the model has a batch dim."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import Error
from ..model import Model
from .limits import HttpError, Limits, http_error
from .metrics import Metrics

Array = np.ndarray[Any, Any]


class _Job:
    def __init__(self, inputs: dict[str, Array], signature: Any, rows: int):
        self.inputs, self.signature, self.rows = inputs, signature, rows
        self.arrived = time.monotonic()
        self.done: asyncio.Future[dict[str, Array]] = asyncio.get_running_loop().create_future()


class PlainService:
    """A model under its name. Used in one event loop; the model itself runs in another thread."""

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics):
        self.name, self.model, self._limits, self._metrics = name, model, limits, metrics
        first = [info.shape[0] if info.shape else None for info in (*model.inputs, *model.outputs)]
        #: Whether all inputs and outputs begin with the same dim, a symbol: rows of requests can then be put together.
        self.batches = bool(first) and isinstance(first[0], str) and first[0].isidentifier() and len(set(first)) == 1
        self._queue: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    @property
    def device(self) -> str:
        return self.model.device

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """All outputs. Raises HttpError: 429 if too many requests wait, 400 for inputs that the model refuses."""
        rows = self._rows(inputs)
        if len(self._queue) >= self._limits.queue:
            raise HttpError(429, f"{len(self._queue)} requests wait already; ask again later", retry=1)
        # Only requests that differ in nothing but the number of rows run together.
        signature = tuple((n, x.dtype.str, x.shape[1:]) for n, x in sorted(inputs.items())) if rows else None
        job = _Job(inputs, signature, rows)
        self._queue.append(job)
        self._metrics.inferences.labels(self.name).inc()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        self._arrived.set()
        try:
            return await job.done
        finally:
            if job in self._queue:  # the client has gone away
                self._queue.remove(job)

    def _rows(self, inputs: dict[str, Array]) -> int:
        """How many rows of a batch these are; 0: they run alone."""
        if not self.batches or any(not x.ndim for x in inputs.values()):
            return 0
        counts = {x.shape[0] for x in inputs.values()}
        return counts.pop() if len(counts) == 1 else 0

    def _most_rows(self, _: _Job) -> int:
        """Rows of a batch."""
        return self._limits.batch

    async def _work(self) -> None:
        """Runs what waits, until nothing does."""
        while self._queue:
            batch = await self._batch()
            if not batch:
                continue
            try:
                results = await asyncio.to_thread(self._run, batch)
            except Exception as error:
                if len(batch) > 1:  # one may be to blame: each runs alone
                    for job in batch:
                        await self._alone(job)
                    continue
                self._fail(batch[0], error)
                continue
            for job, result in zip(batch, results):
                if not job.done.done():
                    job.done.set_result(result)

    async def _alone(self, job: _Job) -> None:
        try:
            result = (await asyncio.to_thread(self._run, [job]))[0]
        except Exception as error:
            self._fail(job, error)
            return
        if not job.done.done():
            job.done.set_result(result)

    @staticmethod
    def _fail(job: _Job, error: Exception) -> None:
        known = http_error(error) if isinstance(error, Error) else HttpError(500, f"the model failed: {error!r}"[:500])
        if not job.done.done():
            job.done.set_exception(known)

    async def _batch(self) -> list[_Job]:
        """The first that waits, with those that fit to it and come before its time is over."""
        first = self._queue[0]
        until, most = first.arrived + self._limits.batch_delay, self._most_rows(first)
        while first.rows and self._queue and self._queue[0] is first:
            batch, rows = [first], first.rows
            for job in list(self._queue)[1:]:
                if job.signature == first.signature and rows + job.rows <= most:
                    batch.append(job)
                    rows += job.rows
            left = until - time.monotonic()
            if left <= 0 or rows >= most:
                for job in batch:
                    self._queue.remove(job)
                return batch
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
                pass
        if self._queue and self._queue[0] is first:
            self._queue.popleft()
            return [first]
        return []

    def _run(self, batch: Sequence[_Job]) -> list[dict[str, Array]]:
        self._metrics.batches.labels(self.name).inc()
        if len(batch) == 1:
            return [self.model.run(batch[0].inputs)]
        together = {n: np.concatenate([job.inputs[n] for job in batch]) for n in batch[0].inputs}
        outputs = self.model.run(together)
        ends = np.cumsum([job.rows for job in batch])[:-1]
        parts = {n: np.split(x, ends) for n, x in outputs.items()}
        return [{n: p[k] for n, p in parts.items()} for k in range(len(batch))]
