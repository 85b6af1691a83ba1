"""Quantising models, and measuring the error of a precision."""

from .agreement import evaluate
from .evaluation import Evaluation
from .measures import TextAgreement, ValueAgreement
from .quantizer import quantize
from .settings import LayerReport, MixedReport, Quantized, QuantizeReport, Tradeoff

__all__ = [
    "Evaluation",
    "LayerReport",
    "MixedReport",
    "QuantizeReport",
    "Quantized",
    "TextAgreement",
    "Tradeoff",
    "ValueAgreement",
    "evaluate",
    "quantize",
]
