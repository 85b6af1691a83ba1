"""Reads a model folder of onnxruntime-genai: what the decoder's inputs and outputs are called, and the search's defaults."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from ..errors import FileError, InvalidModelError, UnsupportedError


@dataclass(frozen=True)
class GenaiFolder:
    """What genai_config.json says. Made by read_folder()."""

    path: str
    model: str  #: path of the decoder's .onnx file
    context: int
    vocabulary: int
    ends: tuple[int, ...]  #: tokens that end an answer
    pad: int
    layers: int
    input_ids: str
    attention_mask: str | None
    position_ids: str | None
    past: tuple[str, ...]  #: keys of layer 0, values of layer 0, keys of layer 1, ...
    present: tuple[str, ...]
    logits: str  #: empty: of another stage (see stage_graph.py)
    search: dict[str, Any]
    carried_in: tuple[str, ...] = ()  #: hidden states [1, tokens, width] from the stage before
    carried_out: tuple[str, ...] = ()  #: for the stage after
    weights: str = ""  #: the folder of the model's external data, if not the model's own


def read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise FileError(f"'{path}' could not be read: {error.strerror}; a model folder needs it") from None
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f"'{path}' is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidModelError(f"'{path}' does not hold a JSON object")
    return content


class _Section:
    def __init__(self, file: str, where: str, content: Any):
        if not isinstance(content, dict):
            raise InvalidModelError(f"'{file}' has no object {where}")
        self.file, self.where, self.content = file, where, content

    def section(self, name: str) -> _Section:
        return _Section(self.file, f"{self.where}.{name}", self.content.get(name))

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        value = self.content.get(name, default)
        if value is None and default is None:
            raise InvalidModelError(f"'{self.file}' lacks {self.where}.{name}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidModelError(f"'{self.file}': {self.where}.{name} is {value!r}")
        return value

    def text(self, name: str) -> str | None:
        return self.get(name, str) if self.content.get(name) else None

    def count(self, name: str) -> int:
        value = self.get(name, int)
        if not 1 <= value < 1 << 31:
            raise InvalidModelError(f"'{self.file}': {self.where}.{name} is {value}")
        return int(value)


def _layer_names(pattern: str, layers: int, file: str) -> list[str]:
    if pattern.count("%d") != 1 or pattern.count("%") != 1:
        raise InvalidModelError(f"'{file}': the name {pattern!r} needs one %d, the layer's number")
    return [pattern.replace("%d", str(k)) for k in range(layers)]


def read_folder(path: str | os.PathLike[str]) -> GenaiFolder:
    """Raises FileError if a file is missing, InvalidModelError if one makes no sense, UnsupportedError for what is no
    decoder of one model."""
    folder = os.fspath(path)
    if not os.path.isdir(folder):
        raise FileError(f"'{folder}' is not a folder; a language model is a folder with genai_config.json")
    file = os.path.join(folder, "genai_config.json")
    model = _Section(file, "model", read_json(file).get("model"))
    for other in ("encoder", "vision", "speech", "embedding"):
        if other in model.content:
            raise UnsupportedError(f"'{file}' describes a model with a part '{other}'; only decoders can be run")
    decoder = model.section("decoder")
    if "pipeline" in decoder.content:
        raise UnsupportedError(f"'{file}' describes a pipeline of models; only decoders in one file can be run")
    layers = decoder.count("num_hidden_layers")
    if layers > 4096:
        raise InvalidModelError(f"'{file}': model.decoder.num_hidden_layers is {layers}")
    inputs, outputs = decoder.section("inputs"), decoder.section("outputs")
    name = decoder.get("filename", str)
    if os.path.isabs(name) or ".." in name.split("/"):
        raise InvalidModelError(f"'{file}': the model's file {name!r} is not inside the folder")
    onnx_file = os.path.join(folder, name)
    if not os.path.isfile(onnx_file):
        raise FileError(f"the folder lacks '{onnx_file}', which genai_config.json names")
    ends = model.content.get("eos_token_id")
    listed = ends if isinstance(ends, list) else [ends]
    if not listed or not all(isinstance(t, int) for t in listed):
        raise InvalidModelError(f"'{file}': model.eos_token_id is {ends!r}")

    def both(section: _Section, start: str) -> tuple[str, ...]:
        keys = _layer_names(section.get(f"{start}_key_names", str), layers, file)
        values = _layer_names(section.get(f"{start}_value_names", str), layers, file)
        return tuple(n for pair in zip(keys, values) for n in pair)

    search = {}
    content = read_json(file).get("search")
    if isinstance(content, dict):
        search = content
    return GenaiFolder(
        path=folder,
        model=onnx_file,
        context=model.count("context_length"),
        vocabulary=model.count("vocab_size"),
        ends=tuple(listed),
        pad=model.get("pad_token_id", int, listed[0]),
        layers=layers,
        input_ids=inputs.get("input_ids", str),
        attention_mask=inputs.text("attention_mask"),
        position_ids=inputs.text("position_ids"),
        past=both(inputs, "past"),
        present=both(outputs, "present"),
        logits=outputs.get("logits", str),
        search=search,
    )
