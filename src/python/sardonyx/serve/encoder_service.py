"""Runs an encoder of texts for many requests, in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import Error
from ..llm.encoder import TextEncoder, most_rows
from .batcher import PlainService, _Job
from .limits import Limits, http_error
from .metrics import Metrics

Array = np.ndarray[Any, Any]


class EncoderService(PlainService):
    """An encoder under its name. Texts of several requests run together if their rows have the same size."""

    def __init__(self, name: str, encoder: TextEncoder, limits: Limits, metrics: Metrics):
        super().__init__(name, encoder.model, limits, metrics)
        self.encoder = encoder

    def _most_rows(self, job: _Job) -> int:
        width = job.inputs["input_ids"].shape[1]
        return min(self._limits.batch, most_rows(width))

    async def run(self, texts: Sequence[Any], *, truncate: bool, dimensions: int = 0) -> tuple[Array, int]:
        """Embeddings or scores, and the number of tokens. Raises HttpError."""
        encoder = self.encoder
        try:
            rows = await asyncio.to_thread(encoder.encode, texts, truncate=truncate)
        except Error as error:
            raise http_error(error) from None
        groups = encoder.groups([len(tokens) for tokens, _ in rows], max(1, self._limits.batch))
        jobs = [self.infer(encoder.inputs([rows[k] for k in places])) for places in groups]
        outputs = await asyncio.gather(*jobs, return_exceptions=True)
        parts = []
        for found in outputs:
            if isinstance(found, BaseException):
                raise found
            parts.append(encoder.results(found, dimensions))
        result = np.empty((len(rows), *parts[0].shape[1:]), np.float32)
        for places, part in zip(groups, parts):
            result[places] = part
        return result, sum(len(tokens) for tokens, _ in rows)
