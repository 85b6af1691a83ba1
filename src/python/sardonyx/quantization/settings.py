"""Settings of quantize(), and its reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model import TensorInfo
from .budget import Metric
from .microscaling import FORMS as MX
from .qdq import FORMATS
from .ranges import Range

Array = np.ndarray[Any, Any]
#: The samples for inputs.
Feed = Callable[[Sequence[TensorInfo]], Iterable[Mapping[str, Array]]]
#: Called with what is done and the number of samples so far.
OnStep = Callable[[str, int], object]

#: Bits of the weights in blocks.
BITS = {"int8-weights": 8, "int4": 4, "int3": 3, "int2": 2}
#: Types of weights in blocks.
BLOCKED = (*BITS, *MX)
#: Types of the KV cache of a language model, whose weights stay as they are.
CACHES = ("kv-int8", "kv-fp8")
TARGETS = (*FORMATS, *BLOCKED, *CACHES, "mixed", "table")
#: The types among which "mixed" chooses, besides float.
KINDS = ("int8", "fp8", *BITS)


@dataclass(frozen=True)
class LayerReport:
    """A layer that was quantised."""

    name: str  #: "name (operator)"
    relative: float  #: error of its result when only it is quantised: root mean square, relative
    sqnr: float  #: the same in dB
    low: float  #: range of its activation; nan for weights of few bits
    high: float
    smoothing: float  #: SmoothQuant's strength; 0: none
    bits: int  #: of the weights
    type: str = ""  #: mixed: "int8", "int4" and so on


@dataclass(frozen=True)
class Tradeoff:
    """A choice of types that "mixed" considered: a point of the curve."""

    name: str  #: "int8" if all nodes are, or "mixed"; "float"
    counts: dict[str, int]  #: nodes of each type
    seconds: float  #: of a run
    error: float  #: on the samples for checking
    bound: (
        float  #: what the error of as many other samples does not exceed, with the probability MixedReport.confidence
    )
    meets: bool  #: the bound is within the budget
    chosen: bool


@dataclass(frozen=True)
class MixedReport:
    """What "mixed" found."""

    budget: float
    metric: str
    confidence: float
    cost: str  #: how times were found
    checked: int  #: samples by which errors were measured; others chose ranges and sensitivities
    curve: tuple[Tradeoff, ...]  #: fastest first
    left_out: dict[str, str]  #: types that were not tried, with reasons


@dataclass(frozen=True)
class QuantizeReport:
    """What quantize() did."""

    to: str
    method: str
    samples: int
    layers: tuple[LayerReport, ...]  #: most sensitive first
    kept: dict[str, str]  #: MatMul, Gemm and Conv nodes that stay in float, with reasons
    weight_bytes: int  #: of all weights, before
    quantized_bytes: int  #: and after
    ranges: dict[str, Range]  #: of activations (table: of all values)
    mixed: MixedReport | None = None
    #: values that Adds and pooling between layers read: "" for those in 8 bits, for the others why they are floats
    between: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        out = dataclasses.asdict(self)
        for layer in out["layers"]:
            for key in ("relative", "sqnr", "low", "high"):
                x = layer[key]
                layer[key] = None if x != x else "inf" if x == float("inf") else x
        for point in out["mixed"]["curve"] if out["mixed"] else ():
            point["bound"] = "inf" if point["bound"] == float("inf") else point["bound"]
            point["error"] = "inf" if point["error"] == float("inf") else point["error"]
        return out


@dataclass(frozen=True)
class Quantized:
    """The result of quantize()."""

    model: Any  #: an onnx.ModelProto; None for tables
    report: QuantizeReport


@dataclass(frozen=True)
class Settings:
    """The arguments of quantize() that control how."""

    to: str
    method: str
    percentile: float
    per_channel: bool
    symmetric: bool
    smooth: bool
    correct_bias: bool
    limit: float | None
    exclude: tuple[str, ...]
    block: int
    weights: str
    budget: float | None = None
    metric: Metric = ""
    types: tuple[str, ...] = ()
    target: str | None = None
    confidence: float = 0.999
    residuals: bool = True
    output_limit: float | None = None
