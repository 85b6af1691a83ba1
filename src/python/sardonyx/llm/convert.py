"""Converts GGUF files of the Llama family into model folders that onnxruntime-genai and sardonyx.LanguageModel load."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from ..errors import FileError, InvalidArgumentError
from .decoder_spec import DecoderSpec, decoder_spec
from .gguf_file import GgufFile
from .gguf_weights import GgufWeights
from .packages import needed
from .tokenizer_files import GgufTokenizer

PRECISIONS = {"fp32": 0, "fp16": 0, "bf16": 0, "int8": 8, "int4": 4}  #: and bits of the weights, 0 for floats


def genai_config(spec: DecoderSpec, *, bos: int | None, ends: list[int], pad: int | None) -> dict[str, Any]:
    """The contents of genai_config.json."""
    return {
        "model": {
            "bos_token_id": ends[0] if bos is None else bos,
            "context_length": spec.context,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": spec.head_size,
                "hidden_size": spec.hidden,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": spec.heads,
                "num_hidden_layers": spec.layers,
                "num_key_value_heads": spec.kv_heads,
            },
            "eos_token_id": ends[0] if len(ends) == 1 else ends,
            "pad_token_id": ends[0] if pad is None else pad,
            "type": spec.architecture,
            "vocab_size": spec.vocabulary,
        },
        "search": {
            "diversity_penalty": 0.0,
            "do_sample": False,
            "early_stopping": True,
            "length_penalty": 1.0,
            "max_length": spec.context,
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": True,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    }


def write_json(folder: str, name: str, content: dict[str, Any]) -> None:
    try:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
    except OSError as error:
        raise FileError(f"'{os.path.join(folder, name)}' could not be written: {error}") from None


def convert_gguf(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    precision: str = "int4",
    activations: str | None = None,
    block: int = 32,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Converts a GGUF file into a model folder, which is created if necessary.

    precision: "fp32", "fp16", "bf16" dequantise the weights; "int8" and "int4" keep linear layers in blocks
        (MatMulNBits). In blocks of 32, weights of the types Q4_0, Q4_1 and Q8_0 keep their values; others are quantised again
        to 4 bits (Q6_K to 8) or 8 bits.
    activations: of int8 and int4: the type of everything else, "fp32", "fp16" (the default) or "bf16".
    block: 32 or 128 elements that share a scale, of int8 and int4.
    progress: called with layers done and layers in all.

    Raises errors.Error: FileError, InvalidModelError for a file that is malformed or cut off, UnsupportedError for other
    families of models, InvalidArgumentError.
    """
    if precision not in PRECISIONS:
        raise InvalidArgumentError(f"the precision {precision!r} is not one of {', '.join(PRECISIONS)}")
    bits = PRECISIONS[precision]
    if bits and block not in (32, 128):
        raise InvalidArgumentError(f"blocks have 32 or 128 elements, not {block}")
    if not bits and activations not in (None, precision):
        raise InvalidArgumentError(f"with {precision} weights the activations have that type too")
    kept = (activations or "fp16") if bits else precision
    if PRECISIONS.get(kept, 1):
        raise InvalidArgumentError(f"activations are fp32, fp16 or bf16, not {kept!r}")
    for package in ("onnx", "gguf", "tokenizers"):
        needed(package)
    from .decoder_graph import write_decoder  # needs onnx

    file = GgufFile(path)
    spec = decoder_spec(file)
    tokenizer = GgufTokenizer(file)
    target = os.fspath(folder)
    try:
        os.makedirs(target, exist_ok=True)
    except OSError as error:
        raise FileError(f"the folder '{target}' could not be made: {error}") from None
    weights = GgufWeights(file, spec, bits, block)
    write_decoder(spec, weights, target, kept, progress)
    weights.require_all_used()
    tokenizer.write(target, spec.context)
    config = genai_config(spec, bos=tokenizer.bos, ends=tokenizer.ends, pad=tokenizer.pad)
    write_json(target, "genai_config.json", config)
