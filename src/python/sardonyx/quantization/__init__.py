"""Quantising models, and measuring the error of a precision."""

from .agreement import Evaluation, evaluate
from .measures import TextAgreement, ValueAgreement
from .quantizer import LayerReport, Quantized, QuantizeReport, quantize

__all__ = [
    "Evaluation",
    "LayerReport",
    "QuantizeReport",
    "Quantized",
    "TextAgreement",
    "ValueAgreement",
    "evaluate",
    "quantize",
]
