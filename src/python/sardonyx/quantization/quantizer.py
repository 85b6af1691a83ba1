"""quantize(): converts a float model to 8-bit GEMMs and convolutions or to weights of few bits, or makes a calibration
table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from ..model import TensorInfo
from . import weight_only
from .budget import Metric
from .evaluation import is_language_model
from .onnx_model import OnnxModel
from .qdq import FORMATS
from .quantize_onnx import quantize_model
from .ranges import METHODS
from .samples import Data, Samples
from .settings import BLOCKED, TARGETS, Feed, LayerReport, OnStep, Quantized, QuantizeReport, Settings

__all__ = ["LayerReport", "QuantizeReport", "Quantized", "quantize"]

Array = np.ndarray[Any, Any]


def _check(model: Any, data: Data | None, to: str, method: str, weights: str, output_limit: float | None) -> None:
    """Raises InvalidArgumentError."""
    if to not in TARGETS:
        raise InvalidArgumentError(f"a model can be quantised to {', '.join(TARGETS)}, not {to!r}")
    if method not in METHODS:
        raise InvalidArgumentError(f"the calibration method {method!r} is not one of {', '.join(METHODS)}")
    if weights not in weight_only.METHODS:
        raise InvalidArgumentError(f"weights are rounded by {', '.join(weight_only.METHODS)}, not {weights!r}")
    if data is None and not (to in BLOCKED and weights == "rtn"):
        raise InvalidArgumentError(f"'{to}' needs data: typical inputs of the model")
    if output_limit is not None:
        if to not in FORMATS:
            raise InvalidArgumentError(f"output_limit is for {', '.join(FORMATS)}, not '{to}'; 'mixed' has a budget")
        if not output_limit > 0:
            raise InvalidArgumentError(f"output_limit is {output_limit:g}; it must be above 0")
        if is_language_model(model):
            raise InvalidArgumentError(
                "output_limit is not for language models; use 'mixed' with the metric 'perplexity'"
            )


def quantize(
    model: Any,
    data: Data | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    to: str = "int8",
    method: str = "mse",
    percentile: float = 99.99,
    per_channel: bool = True,
    symmetric: bool = False,
    smooth: bool = True,
    correct_bias: bool = True,
    residuals: bool = True,
    limit: float | None = None,
    output_limit: float | None = None,
    exclude: Sequence[str] = (),
    block: int = 32,
    weights: str = "gptq",
    budget: float | None = None,
    metric: Metric | None = None,
    types: Sequence[str] = (),
    target: str | None = None,
    confidence: float = 0.999,
    samples: int = 0,
    context: int = 512,
    options: Mapping[str, Any] | None = None,
    progress: OnStep | None = None,
) -> Quantized:
    """Quantises the MatMul, Gemm and Conv nodes of a float32 model that have constant weights.

    model: a path, bytes or an onnx.ModelProto, or the folder of a language model; then output is a folder, too.
    data: typical inputs, as evaluate() takes them. Not needed for weights="rtn".
    output: the file to write. Large weights go to OUTPUT.data.
    to: "int8": layers of 8-bit integers, as QuantizeLinear and DequantizeLinear. "fp8": the same in float8 e4m3;
        "fp8-e5m2": in e5m2; "fp8-fnuz", "fp8-e5m2-fnuz": in AMD's early forms of them, of which CDNA 3 multiplies the first.
        "int2", "int3", "int4", "int8-weights": weights of so many bits in blocks: MatMulNBits, and for Conv DequantizeLinear
        (2, 4 and 8 bits). "mxfp8", "mxfp4": weights of float8 e4m3 or float4 e2m1, of which 32 share a power of two.
        "mixed": the fastest choice of one of these, or float, for each node, whose error stays within `budget`.
        "kv-int8", "kv-fp8": the KV cache of a language model in 8 bits, with a scale for each channel of each head.
        "table": a calibration table.
    method: how the range of an activation is chosen: "mse", "minmax", "percentile" (of `percentile`) or "entropy".
    per_channel: weights have a scale for each output channel rather than one.
    symmetric: activations of int8 have no zero point.
    smooth: SmoothQuant for MatMul and Gemm, where it lowers the error on the data.
    correct_bias: corrects the biases of Conv and Gemm for the shift of each output channel's mean that rounding the weights
        causes (Nagel et al., "Data-free quantization", 2019).
    residuals: with "int8", Adds and pooling whose results are quantised for a layer read 8 bits, too, so that
        convolutional networks keep all activations in 8 bits; values whose rounding error is above the limit stay in float,
        and so do all of them if with them the error of an output on 16 samples is above it.
    limit: nodes whose error (LayerReport.relative) is larger stay in float, with "int8" and "fp8" (None: 0.05); with
        weights of fewer than 8 bits they get 8 (None: no limit).
    output_limit: with "int8" and "fp8", the largest error of an output on 16 samples, relative to the float model's. If it
        is above, nodes stay in float: those whose rounding alone adds most to it first. None: no limit.
    exclude: patterns ("*head*") of names of nodes that stay in float.
    block: weights that share a scale, of weights in blocks. Of convolutions: input channels at a tap.
    weights: "gptq", "awq" or "rtn" (round to nearest), of the same.
    budget: of "mixed": the most error, by `metric`. None: 0.02, of "perplexity" 0.01.
    metric: of "mixed". "relative": root mean square of the outputs' difference, divided by that of the float model's.
        "decisions": share of the largest elements along the last dim that differ. "perplexity": the increase, relative (of
        language models, whose default it is). Or a function error(outputs, reference, inputs) of a sample, whose mean counts,
        or a script that defines it.
    types: among which "mixed" chooses, besides float; none: all that can be faster on the target.
    target: for which "mixed" is to be fast: "host", where it measures, or a GPU ("gfx942"), for which it estimates. None: the
        device that runs the model. Of a language model, a step of decoding with `context` tokens before it counts, else a run
        with the first sample.
    confidence: of "mixed": the probability with which as many other samples stay within the budget.
    samples: the most that are read; 0: all. context: tokens of a text that a language model reads together.
    options: of compile(), for the runs: {"device": "cuda"}.
    progress: called with what is done and the number of samples so far.

    Data are read one sample at a time, several times. Raises errors.Error; UnsupportedError without the package onnx.
    """
    _check(model, data, to, method, weights, output_limit)
    settings = Settings(
        to, method, percentile, per_channel, symmetric, smooth, correct_bias, limit, tuple(exclude), block, weights,
        budget, metric or "", tuple(types), target, confidence, residuals, output_limit,
    )  # fmt: skip
    step = progress or (lambda what, count: None)
    run = dict(options or {})
    if is_language_model(model):
        from .language_folder import quantize_folder

        return quantize_folder(model, output, data, samples, context, settings, run, step)
    feed: Feed | None = None
    if data is not None:
        source = data
        if not Samples(source, []).repeatable:
            raise InvalidArgumentError("the data are read several times: pass a list, a path, or a function")

        def feed(inputs: Sequence[TensorInfo]) -> Iterable[Mapping[str, Array]]:
            return Samples(source, inputs, samples)

    return quantize_model(OnnxModel(model), feed, output, settings, run, step)
