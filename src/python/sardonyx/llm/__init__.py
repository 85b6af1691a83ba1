"""Language models: text generation from model folders in onnxruntime-genai's format, conversion of GGUF files to such
folders, and encoders of texts."""

from .convert import convert_gguf
from .encoder import TextEncoder
from .engine import Engine
from .engine_request import EndEvent, Request, RequestOptions, TokenEvent
from .engine_results import EngineStatistics
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
    "TextEncoder",
    "TokenEvent",
    "convert_gguf",
]
