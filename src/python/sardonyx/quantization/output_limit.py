"""Which layers can have 8 bits so that the error of the model's outputs stays within a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..model import TensorInfo
from .budget import Found, Relative
from .layers import Layer
from .onnx_model import OnnxModel
from .switches import Switches, Writer

Array = np.ndarray[Any, Any]
_RUNS = 400  # about so many, of single layers in 8 bits
_SAMPLES = 4  # for each, at most


def by_output_error(
    model: OnnxModel,
    layers: Sequence[Layer],
    writer: Writer,
    samples: Callable[[Sequence[TensorInfo]], Iterable[Mapping[str, Array]]],
    options: Mapping[str, Any],
    step: Callable[[str, int], object],
) -> list[Layer]:
    """The layers, first the one that adds least to the outputs' relative error if it alone has 8 bits. writer: see
    Switches."""
    kind, none = "8 bits", [None] * len(layers)
    switches = Switches(model, layers, [[kind]] * len(layers), writer, options)
    terms = Relative()
    found: list[list[tuple[Array, Array]]] = [[] for _ in layers]
    count = max(1, min(_SAMPLES, _RUNS // len(layers)))
    for number, sample in enumerate(samples(switches.inputs)):
        if number == count:
            break
        reference = switches.run(sample, none)
        for k in range(len(layers)):
            step("measuring what nodes add to the outputs' error, run", number * len(layers) + k + 1)
            outputs = switches.run(sample, [*none[:k], kind, *none[k + 1 :]])
            found[k].append(terms.of(outputs, reference, sample))
    errors = [Found(terms, f).error for f in found]
    return [layers[k] for k in sorted(range(len(layers)), key=lambda k: errors[k])]


def most_within(count: int, error_of: Callable[[int], float], limit: float) -> int:
    """The largest number of layers, at most `count`, whose error is within the limit, if it grows with their number. 0: none
    is."""
    if error_of(count) <= limit:
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if error_of(middle) <= limit:
            low = middle
        else:
            high = middle
    return low
