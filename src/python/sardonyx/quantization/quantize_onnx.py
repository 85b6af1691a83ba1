"""quantize() of one ONNX model, whose data and settings are checked already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .calibration import write_table
from .job import Job
from .mixed import Mixed, Text
from .onnx_model import OnnxModel
from .settings import BLOCKED, CACHES, Feed, OnStep, Quantized, Settings


def quantize_model(
    model: OnnxModel,
    feed: Feed | None,
    output: str | os.PathLike[str] | None,
    settings: Settings,
    options: Mapping[str, Any],
    step: OnStep,
    text: Text | None = None,
) -> Quantized:
    """feed: the data; None: none are needed. output: a file to write; None: none. text: what "mixed" needs to know of a language model."""
    job = Job(model, feed, settings, options, step)
    if settings.to == "table":
        report = job.table()
        if output is not None:
            write_table(output, report.ranges)
        return Quantized(None, report)
    if settings.to in CACHES:
        report = job.cache()
        if output is not None:
            model.save(output)
        return Quantized(model.proto, report)
    model.fold_weights()
    job.before = model.weight_bytes()
    if settings.to == "mixed":
        report = Mixed(job, text).run()
    else:
        report = job.blocked() if settings.to in BLOCKED else job.layers()
    if output is not None:
        model.save(output)
    return Quantized(model.proto, report)
