"""Writes tokenizer.json and tokenizer_config.json, as Hugging Face's tokenizers and genai read them, from GGUF metadata.

GGUF holds two kinds: "gpt2" (byte-level BPE with a list of merges, split by a regular expression that the file only names)
and "llama" (SentencePiece's BPE: scores in place of merges, bytes as tokens of their own).
"""

from __future__ import annotations

import json
import os
from typing import Any

from ..errors import FileError, InvalidModelError, UnsupportedError
from .gguf_file import GgufFile

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4

# Words and numbers as the models' authors split them; the names are GGUF's.
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SPLITS: dict[str, dict[str, Any]] = {
    "gpt-2": {},
    "smollm": {"digits": True},
    "starcoder": {"digits": True},
    "llama-bpe": {"pattern": _LLAMA3, "whole_words": True, "bos": True},
    "qwen2": {"pattern": _QWEN2, "normalizer": {"type": "NFC"}},
}

#: Names of tokens that end an answer; models have one or more of them beside the one that their file calls eos.
_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<|eom_id|>",
)


class GgufTokenizer:
    """A file's tokenizer. Raises InvalidModelError, UnsupportedError."""

    def __init__(self, file: GgufFile):
        self._file, meta = file, file.metadata
        self.kind = meta.get("tokenizer.ggml.model")
        if self.kind not in ("gpt2", "llama"):
            raise UnsupportedError(f"'{file.path}': a tokenizer of kind {self.kind!r}; gpt2 and llama can be converted")
        self.tokens = self._strings("tokens")
        count = len(self.tokens)
        types = meta.get("tokenizer.ggml.token_type", [_NORMAL] * count)
        if not isinstance(types, list) or len(types) != count or not all(isinstance(t, int) for t in types):
            raise InvalidModelError(f"'{file.path}': tokenizer.ggml.token_type does not fit the {count} tokens")
        self._types = types
        self.bos, self.pad, self._unknown = (self._id(n) for n in ("bos", "padding", "unknown"))
        eos = self._id("eos")
        by_name = {self.tokens[t]: t for t in range(count) if types[t] in (_CONTROL, _USER_DEFINED)}
        named = [by_name[name] for name in _ENDS if name in by_name]
        found = [t for t in (eos, self._id("eot"), *named) if t is not None]
        self.ends = list(dict.fromkeys(found))  #: tokens that end an answer, the file's eos first
        if not self.ends:
            raise InvalidModelError(f"'{file.path}' names no token that ends a text (tokenizer.ggml.eos_token_id)")
        template = meta.get("tokenizer.chat_template")
        self.chat_template = template if isinstance(template, str) else None

    def _strings(self, key: str) -> list[str]:
        value = self._file.metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list) or not value or not all(isinstance(t, str) for t in value):
            raise InvalidModelError(f"'{self._file.path}' lacks the list tokenizer.ggml.{key}")
        return value

    def _id(self, name: str) -> int | None:
        value = self._file.metadata.get(f"tokenizer.ggml.{name}_token_id")
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise InvalidModelError(
                f"'{self._file.path}': tokenizer.ggml.{name}_token_id is {value}, which is not a token"
            )
        return value

    def _flag(self, name: str, default: bool) -> bool:
        return bool(self._file.metadata.get(f"tokenizer.ggml.{name}", default))

    def _added(self) -> list[dict[str, Any]]:
        return [
            {
                "id": token,
                "content": self.tokens[token],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind in (_CONTROL, _UNKNOWN),
            }
            for token, kind in enumerate(self._types)
            if kind in (_CONTROL, _USER_DEFINED, _UNKNOWN)
        ]

    def adds_bos(self) -> bool:
        """Whether texts start with the bos token."""
        split = self._file.metadata.get("tokenizer.ggml.pre", "")
        usual = self.kind == "llama" or bool(_SPLITS.get(split, {}).get("bos"))
        return self.bos is not None and self._flag("add_bos_token", usual)

    def _vocabulary(self) -> dict[str, int]:
        vocabulary = {text: token for token, text in enumerate(self.tokens)}
        if len(vocabulary) < len(self.tokens):
            raise InvalidModelError(f"'{self._file.path}': two tokens of the tokenizer have the same text")
        return vocabulary

    def tokenizer_json(self) -> dict[str, Any]:
        parts = self._byte_level() if self.kind == "gpt2" else self._sentence_piece()
        post: dict[str, Any] | None = None
        if self.adds_bos():
            assert self.bos is not None
            bos = self.tokens[self.bos]
            start, text = {"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
            second = {"Sequence": {"id": "B", "type_id": 1}}
            post = {
                "type": "TemplateProcessing",
                "single": [start, text],
                "pair": [start, text, {"SpecialToken": {"id": bos, "type_id": 1}}, second],
                "special_tokens": {bos: {"id": bos, "ids": [self.bos], "tokens": [bos]}},
            }
        added = self._added()
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": parts["normalizer"],
            "pre_tokenizer": parts["pre_tokenizer"],
            "post_processor": post,
            "decoder": parts["decoder"],
            "model": parts["model"],
        }

    def _byte_level(self) -> dict[str, Any]:
        name = self._file.metadata.get("tokenizer.ggml.pre", "gpt-2")
        if name not in _SPLITS:
            raise UnsupportedError(
                f"'{self._file.path}': the tokenizer splits words as {name!r} does; known are {', '.join(_SPLITS)}"
            )
        split = _SPLITS[name]
        level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": "pattern" not in split,
        }
        first: list[dict[str, Any]] = []
        if "pattern" in split:
            first = [{"type": "Split", "pattern": {"Regex": split["pattern"]}, "behavior": "Isolated", "invert": False}]
        elif split.get("digits"):
            first = [{"type": "Digits", "individual_digits": True}]
        merges = self._strings("merges")
        pairs = [m.split(" ") for m in merges]
        if any(len(p) != 2 for p in pairs):
            raise InvalidModelError(f"'{self._file.path}': a merge of the tokenizer is not two texts")
        return {
            "normalizer": split.get("normalizer"),
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*first, level]} if first else level,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": self._bpe(merges, None, byte_fallback=False, whole_words=bool(split.get("whole_words"))),
        }

    def _sentence_piece(self) -> dict[str, Any]:
        scores = self._file.metadata.get("tokenizer.ggml.scores")
        if not isinstance(scores, list) or len(scores) != len(self.tokens):
            raise InvalidModelError(f"'{self._file.path}': tokenizer.ggml.scores does not fit the tokens")
        ids = self._vocabulary()
        merges: list[tuple[float, int, int, str]] = []
        for token, text in enumerate(self.tokens):
            if self._types[token] not in (_NORMAL, _USER_DEFINED) or len(text) > 256:
                continue
            for at in range(1, len(text)):
                left, right = ids.get(text[:at]), ids.get(text[at:])
                if left is not None and right is not None:
                    merges.append((-float(scores[token]), left, right, f"{text[:at]} {text[at:]}"))
        merges.sort(key=lambda m: m[:3])
        prefix = self._flag("add_space_prefix", True)
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        back: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if prefix:
            back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        unknown = None if self._unknown is None else self.tokens[self._unknown]
        before: list[dict[str, Any]] = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
        return {
            "normalizer": {"type": "Sequence", "normalizers": [*before, replace]},
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": back},
            "model": self._bpe([m[3] for m in merges], unknown, byte_fallback=True, whole_words=False),
        }

    def _bpe(self, merges: list[str], unknown: str | None, *, byte_fallback: bool, whole_words: bool) -> dict[str, Any]:
        return {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": byte_fallback,
            "byte_fallback": byte_fallback,
            "ignore_merges": whole_words,
            "vocab": self._vocabulary(),
            "merges": merges,
        }

    def tokenizer_config(self, context: int) -> dict[str, Any]:
        name = lambda token: None if token is None else self.tokens[token]
        config: dict[str, Any] = {
            "add_bos_token": self.adds_bos(),
            "add_eos_token": False,
            "bos_token": name(self.bos),
            "clean_up_tokenization_spaces": False,
            "eos_token": name(self.ends[0]),
            "model_max_length": context,
            "pad_token": name(self.pad if self.pad is not None else self.ends[0]),
            "tokenizer_class": "LlamaTokenizer" if self.kind == "llama" else "PreTrainedTokenizerFast",
            "unk_token": name(self._unknown),
        }
        if self.chat_template is not None:
            config["chat_template"] = self.chat_template
        return config

    def write(self, folder: str, context: int) -> None:
        """Writes both files; the tokenizers package proves that it can read the first."""
        text = json.dumps(self.tokenizer_json(), ensure_ascii=False)
        from tokenizers import Tokenizer

        try:
            Tokenizer.from_str(text)
        except Exception as error:  # its only type
            raise InvalidModelError(f"'{self._file.path}': its tokenizer is invalid: {error}") from None
        config = json.dumps(self.tokenizer_config(context), ensure_ascii=False, indent=2)
        try:
            for name, content in (("tokenizer.json", text), ("tokenizer_config.json", config)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(content)
        except OSError as error:
            raise FileError(f"'{folder}' could not be written: {error}") from None
