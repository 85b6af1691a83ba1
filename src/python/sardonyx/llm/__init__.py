"""Language models: text generation from model folders in onnxruntime-genai's format, and conversion of GGUF files to such
folders."""

from .convert import convert_gguf
from .engine import Engine, EngineStatistics
from .engine_request import EndEvent, Request, RequestOptions, TokenEvent
from .language_model import Generation, LanguageModel, Statistics
from .search_options import SearchOptions

__all__ = [
    "EndEvent",
    "Engine",
    "EngineStatistics",
    "Generation",
    "LanguageModel",
    "Request",
    "RequestOptions",
    "SearchOptions",
    "Statistics",
    "TokenEvent",
    "convert_gguf",
]
