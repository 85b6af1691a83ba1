"""quantize() of language models' folders: texts are the data, and the folder is written anew."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import FileError, InvalidArgumentError
from ..llm.genai_folder import read_folder
from ..model import TensorInfo
from .mixed import Text
from .onnx_model import OnnxModel
from .quantize_onnx import quantize_model
from .samples import Data
from .settings import OnStep, Quantized, Settings
from .text_agreement import decoder_inputs, windows

Array = np.ndarray[Any, Any]

_KEPT = (".json", ".jinja", ".txt", ".model")  # of a folder: the tokenizer's and configuration files


def quantize_folder(
    model: Any,
    output: Any,
    data: Data | None,
    limit: int,
    context: int,
    settings: Settings,
    options: Mapping[str, Any],
    step: OnStep,
) -> Quantized:
    """Writes a folder with the quantised decoder as model.onnx, and copies of the other files."""
    folder = read_folder(model)
    if settings.to == "table":
        raise InvalidArgumentError(
            "a calibration table is for ONNX files: give the decoder's file instead of the folder"
        )
    if output is not None:
        target = os.path.abspath(os.fspath(output))
        if os.path.realpath(target) == os.path.realpath(folder.path):
            raise InvalidArgumentError("the output is the model's own folder; give another one")
        if os.path.isfile(target):
            raise InvalidArgumentError(f"'{target}' is a file; a language model's output is a folder")

    def feed(inputs: Sequence[TensorInfo]) -> Iterable[Mapping[str, Array]]:
        assert data is not None
        return (decoder_inputs(inputs, folder, ids) for ids in windows(folder.path, data, context, limit))

    def decoding(inputs: Sequence[TensorInfo]) -> Mapping[str, Array]:
        return decoder_inputs(inputs, folder, np.ones(1, np.int64), past=context)

    text = Text(folder.logits, folder.input_ids, decoding)
    result = quantize_model(
        OnnxModel(folder.model), None if data is None else feed, None, settings, options, step, text
    )
    if output is not None:
        _write(folder.path, target, result)
    return result


def _write(source: str, target: str, result: Quantized) -> None:
    try:
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(source):
            if name.endswith(_KEPT) and name != "genai_config.json":
                shutil.copyfile(os.path.join(source, name), os.path.join(target, name))
        with open(os.path.join(source, "genai_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config["model"]["decoder"]["filename"] = "model.onnx"
        with open(os.path.join(target, "genai_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
    except OSError as error:
        raise FileError(f"the folder '{target}' could not be written: {error}") from None
    saved = OnnxModel(result.model)
    saved.folder = source
    saved.save(os.path.join(target, "model.onnx"))
