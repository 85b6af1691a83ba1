"""Language models: text generation from model folders of onnxruntime-genai, and making such folders from GGUF files."""

from .convert import convert_gguf
from .language_model import Generation, LanguageModel, Statistics
from .search_options import SearchOptions

__all__ = ["Generation", "LanguageModel", "SearchOptions", "Statistics", "convert_gguf"]
