"""evaluate() of folders of language models: perplexity on text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..compiling import compile
from ..errors import FileError, InvalidArgumentError
from ..llm.genai_folder import GenaiFolder, read_folder
from ..llm.packages import needed
from ..model import TensorInfo
from .evaluation import Evaluation, OnSample, describe
from .measures import Measure, TextMeasure
from .samples import Data, script_samples

Array = np.ndarray[Any, Any]


def read_texts(data: Data) -> Iterator[str]:
    """Texts of .txt files, of a folder of them, of a script's samples(), of a list or function."""
    if isinstance(data, (str, os.PathLike)):
        path = os.fspath(data)
        if os.path.isdir(path):
            files = sorted(n for n in os.listdir(path) if n.endswith((".txt", ".md")))
            if not files:
                raise InvalidArgumentError(f"'{path}' has no .txt or .md files")
            for name in files:
                yield _text(os.path.join(path, name))
            return
        if not path.endswith(".py"):
            yield _text(path)
            return
    items: Iterable[Any] = script_samples(path) if isinstance(data, (str, os.PathLike)) else _items(data)
    for item in items:
        if not isinstance(item, str):
            raise InvalidArgumentError(f"a language model's samples are texts, not {type(item).__name__}")
        yield item


def _items(data: Any) -> Iterable[Any]:
    items: Iterable[Any] = data() if callable(data) else data
    return items


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise FileError(f"'{path}' could not be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"'{path}' is not UTF-8 text") from None


def tokenizer_of(folder: str) -> Any:
    file = os.path.join(folder, "tokenizer.json")
    if not os.path.isfile(file):
        raise FileError(f"the folder lacks '{file}'")
    try:
        return needed("tokenizers").Tokenizer.from_file(file)
    except Exception as error:  # the package has no exception type
        raise FileError(f"'{file}' can't be read: {error}") from None


def windows(folder: str, data: Data, context: int, limit: int = 0) -> Iterator[Array]:
    """Tokens of the texts in parts of `context`, one after another; the last part of a text may be shorter, and is left out
    if it has fewer than 2."""
    if context < 2:
        raise InvalidArgumentError(f"a context of {context} tokens predicts none; give at least 2")
    tokenizer = tokenizer_of(folder)

    def every() -> Iterator[Array]:
        for text in read_texts(data):
            ids = np.asarray(tokenizer.encode(text).ids, np.int64)
            for k in range(0, len(ids), context):
                if len(ids) - k >= 2:
                    yield ids[k : k + context]

    return islice(every(), limit) if limit else every()


def decoder_inputs(inputs: Sequence[TensorInfo], folder: GenaiFolder, ids: Array, *, past: int = 0) -> dict[str, Array]:
    """The inputs of a decoder for a text from its start: an empty KV cache. past: with zeros of so many tokens in it."""
    out: dict[str, Array] = {}
    for info in inputs:
        if info.name == folder.input_ids:
            out[info.name] = ids[None].astype(info.dtype)
        elif info.name == folder.attention_mask:
            out[info.name] = np.ones((1, past + len(ids)), info.dtype)
        elif info.name == folder.position_ids:
            out[info.name] = past + np.arange(len(ids), dtype=info.dtype)[None]
        elif info.name in folder.past and info.shape is not None and len(info.shape) == 4:
            heads, size = info.shape[1], info.shape[3]
            if not (isinstance(heads, int) and isinstance(size, int)):
                raise InvalidArgumentError(f"input '{info.name}' has heads of unknown size: {info.shape}")
            out[info.name] = np.zeros((1, heads, past, size), info.dtype)
        else:
            raise InvalidArgumentError(f"input '{info.name}' is not named by genai_config.json")
    return out


def evaluate_text(
    model: Any,
    reference: Any,
    data: Data,
    context: int,
    limit: int,
    options: dict[str, Any],
    reference_options: dict[str, Any],
    progress: OnSample | None,
) -> Evaluation:
    """evaluate() for two folders; both must have one tokenizer."""
    folders = read_folder(model), read_folder(reference)
    if folders[0].vocabulary != folders[1].vocabulary:
        raise InvalidArgumentError(
            f"the models have vocabularies of {folders[0].vocabulary} and {folders[1].vocabulary} tokens"
        )
    context = min(context, folders[0].context, folders[1].context)
    pair = (compile(folders[0].model, **options), compile(folders[1].model, **reference_options))
    logits, text = Measure(), TextMeasure()
    count = 0
    for ids in windows(folders[1].path, data, context, limit):
        a, r = (
            m(decoder_inputs(m.inputs, f, ids))[f.logits][0, : len(ids) - 1].astype(np.float32)
            for m, f in zip(pair, folders)
        )
        if a.shape != r.shape or len(a) != len(ids) - 1:
            raise InvalidArgumentError(
                f"the models give logits of the shapes {a.shape} and {r.shape} for {len(ids)} tokens; perplexity needs those "
                "of every token"
            )
        logits.add(a, r)
        text.add(a, r, ids[1:])
        count += 1
        if progress:
            progress(count)
    if not count:
        raise InvalidArgumentError("the data hold no text of at least 2 tokens")
    names = describe(model, options), describe(reference, reference_options)
    return Evaluation(*names, count, (logits.result(folders[1].logits),), (), text.result())
