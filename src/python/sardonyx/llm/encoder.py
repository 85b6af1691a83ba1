"""Encoders of texts: embeddings, and scores of pairs of texts, from folders with model.onnx, tokenizer.json and the
configuration files of Hugging Face's sentence-transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiling import compile
from ..errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError
from .genai_folder import read_json
from .packages import needed
from .sampling_graph import Nodes

Array = np.ndarray[Any, Any]
_POOLING = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}
_KNOWN = ("input_ids", "attention_mask", "token_type_ids")
_SHORTEST = 16  #: tokens; shorter rows are padded to this
_OFFSET = (
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "longformer",
)  # whose positions begin behind the padding token's


def find_encoder(folder: str) -> str | None:
    """The model's file, if this is the folder of an encoder."""
    if os.path.isfile(os.path.join(folder, "tokenizer.json")):
        for name in ("model.onnx", os.path.join("onnx", "model.onnx")):
            if os.path.isfile(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return None


class TextEncoder:
    """An encoder on a device. All members may be called by any thread."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        device: str = "host",
        precision: str = "fp32",
        threads: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        device_memory_limit: int = 0,
        progress: Callable[[Any], object] | None = None,
        pooling: str = "",
    ):
        """Loads a folder; device to progress are options of sardonyx.compile().

        The model has the inputs input_ids and attention_mask [batch, tokens], and token_type_ids if it wants. It gives
        embeddings if it has an output "sentence_embedding" [batch, size] or one of [batch, tokens, size], which is
        pooled, and scores of pairs if it has "logits" [batch, 1].
        pooling: "cls", "mean" or "last"; empty: as the folder's modules.json and 1_Pooling/config.json say.

        Raises errors.Error: FileError, InvalidModelError, UnsupportedError for other models.
        """
        self.path = os.fspath(folder)
        found = find_encoder(self.path)
        if found is None:
            raise FileError(f"'{self.path}' is no encoder's folder: it needs model.onnx and tokenizer.json")
        self._config = self._json("config.json")
        self._load_tokenizer()
        onnx = needed("onnx")
        try:
            graph_of: Any = onnx.load(found, load_external_data=False)
        except Exception as error:  # protobuf's errors have no common base
            raise InvalidModelError(f"'{found}' is no ONNX model: {error}") from None
        self._file, self._pooling, self._normalize = found, pooling, False
        self._output = self._choose_output(graph_of)
        self.pairs = self._output == "logits"  #: it scores pairs of texts; otherwise it gives embeddings
        self._raw_scores = self.pairs and self._activation()
        self.model = compile(
            graph_of.SerializeToString(),
            folder=os.path.dirname(found) or ".",
            device=device,
            precision=precision,
            threads=threads,
            cache_dir=cache_dir,
            device_memory_limit=device_memory_limit,
            progress=progress,
        )
        self._types = {i.name: i.dtype for i in self.model.inputs}
        shape = next(o.shape for o in self.model.outputs if o.name == self._output)
        self.size = shape[-1] if shape and isinstance(shape[-1], int) else 0  #: of an embedding; 0: not known

    # ---- the folder
    def _json(self, *names: str) -> dict[str, Any]:
        file = os.path.join(self.path, *names)
        return read_json(file) if os.path.isfile(file) else {}

    def _load_tokenizer(self) -> None:
        file, tokenizers = os.path.join(self.path, "tokenizer.json"), needed("tokenizers")
        try:
            self._whole, self._cut = (tokenizers.Tokenizer.from_file(file) for _ in range(2))
            for t in (self._whole, self._cut):
                t.no_padding()
                t.no_truncation()
        except Exception as error:  # the package has no exception type
            raise InvalidModelError(f"'{file}' can't be read: {error}") from None
        limits = [
            self._json("sentence_bert_config.json").get("max_seq_length"),
            self._json("tokenizer_config.json").get("model_max_length"),
        ]
        positions, pad = self._config.get("max_position_embeddings"), self._config.get("pad_token_id")
        if isinstance(positions, int) and self._config.get("model_type") in _OFFSET:
            positions -= 1 + (pad if isinstance(pad, int) else 1)
        numbers = [int(n) for n in (*limits, positions) if isinstance(n, (int, float)) and 1 <= n < 1 << 24]
        self.context = min(numbers, default=512)  #: tokens of a text, or of a pair
        self._cut.enable_truncation(self.context, strategy="longest_first")
        self._pad = pad if isinstance(pad, int) and pad >= 0 else 0
        self._vocabulary = self._whole.get_vocab_size()

    def _choose_output(self, model: Any) -> str:
        """The output that is used, after the pooling was added. Other outputs are removed."""
        graph = model.graph
        outputs = {v.name: len(v.type.tensor_type.shape.dim) for v in graph.output}
        fed = {i.name for i in graph.initializer}
        inputs = [v for v in graph.input if v.name not in fed]
        names = [v.name for v in inputs]
        if unknown := [n for n in names if n not in _KNOWN]:
            raise UnsupportedError(f"'{self._file}' has the input '{unknown[0]}'; encoders have {', '.join(_KNOWN)}")
        if missing := [n for n in _KNOWN[:2] if n not in names]:
            raise UnsupportedError(f"'{self._file}' lacks the input '{missing[0]}'")
        for v in inputs:
            dims = v.type.tensor_type.shape.dim
            if len(dims) != 2 or any(d.HasField("dim_value") for d in dims):
                raise UnsupportedError(f"'{self._file}': '{v.name}' must be [batch, tokens], both of any size")
            dims[0].dim_param, dims[1].dim_param = "batch", "tokens"
        del graph.value_info[:]  # sizes have other names now
        if "logits" in outputs and outputs["logits"] == 2:
            chosen = "logits"
            last = next(v for v in graph.output if v.name == chosen).type.tensor_type.shape.dim[1]
            if last.HasField("dim_value") and last.dim_value != 1:
                raise UnsupportedError(f"'{self._file}' gives {last.dim_value} scores for a pair; one is needed")
        elif outputs.get("sentence_embedding") == 2:
            chosen = "sentence_embedding"
        else:
            whole = [n for n, rank in outputs.items() if rank == 3]
            if not whole:
                raise UnsupportedError(f"'{self._file}' has no output of embeddings or scores")
            chosen = "last_hidden_state" if "last_hidden_state" in whole else whole[0]
        value = next(v for v in graph.output if v.name == chosen)
        del graph.output[:]
        if outputs[chosen] == 2:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
            graph.output.append(value)
            return chosen
        self._read_modules()
        n = Nodes(graph)
        weights = n.input("pooling_weights", np.float32, ["batch", "tokens"])
        # [batch, 1, tokens] times [batch, tokens, size]
        rows = n.add("Reshape", weights, n.constant([0, 1, -1], np.int64))
        pooled = n.add("MatMul", rows, n.cast(chosen, np.float32))
        dim = value.type.tensor_type.shape.dim[2]
        size = dim.dim_value if dim.HasField("dim_value") else self._config.get("hidden_size", "size")
        n.output(n.add("Reshape", pooled, n.constant([0, -1], np.int64)), "embedding", np.float32, ["batch", size])
        return "embedding"

    def _read_modules(self) -> None:
        """How tokens become an embedding."""
        file = os.path.join(self.path, "modules.json")
        folders = ["1_Pooling"]
        if os.path.isfile(file):
            try:
                with open(file, encoding="utf-8") as opened:
                    modules = json.load(opened)
            except (OSError, ValueError, RecursionError) as error:
                raise InvalidModelError(f"'{file}' is no JSON: {error}") from None
            if not isinstance(modules, list) or not all(isinstance(m, dict) for m in modules):
                raise InvalidModelError(f"'{file}' is no list of modules")
            folders = []
            for m in modules:
                kind, path = str(m.get("type")).rpartition(".")[2], str(m.get("path"))
                if kind == "Pooling":
                    if os.path.isabs(path) or ".." in path.split("/"):
                        raise InvalidModelError(f"'{file}' names {path!r}, which is not inside the folder")
                    folders.append(path)
                elif kind == "Normalize":
                    self._normalize = True
                elif kind != "Transformer":
                    raise UnsupportedError(
                        f"'{file}' has the module '{kind}'; known are Transformer, Pooling, Normalize"
                    )
        if self._pooling:
            if self._pooling not in _POOLING.values():
                raise InvalidArgumentError(f"pooling is '{self._pooling}'; it must be cls, mean or last")
            return
        config = self._json(folders[0], "config.json") if folders else {}
        asked = [k for k, v in config.items() if k.startswith("pooling_mode_") and v is True]
        if isinstance(config.get("pooling_mode"), str):
            asked = [f"pooling_mode_{config['pooling_mode']}"]
        if not asked:
            raise UnsupportedError(
                f"'{self.path}' does not say how tokens are pooled: it needs 1_Pooling/config.json, or give pooling"
            )
        names = {**_POOLING, **{f"pooling_mode_{v}": v for v in _POOLING.values()}}
        if len(asked) > 1 or asked[0] not in names:
            raise UnsupportedError(f"'{self.path}' pools by {', '.join(asked)}; known are {', '.join(_POOLING)}")
        self._pooling = names[asked[0]]

    def _activation(self) -> bool:
        """Whether scores are the logits themselves; otherwise the logistic function is applied."""
        section = self._json("config_sentence_transformers.json").get("activation_fn")
        asked = self._config.get("sbert_ce_default_activation_function", section)
        other = self._config.get("sentence_transformers")
        if asked is None and isinstance(other, dict):
            asked = other.get("activation_fn")
        name = str(asked or "Sigmoid").rpartition(".")[2]
        if name not in ("Sigmoid", "Identity"):
            raise UnsupportedError(f"'{self.path}' wants the activation {name!r} of scores; known: Sigmoid, Identity")
        return name == "Identity"

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Sizes to which embeddings may be cut (Kusupati et al. 2022, arXiv:2205.13147), by config.json."""
        sizes = self._config.get("matryoshka_dimensions")
        if not isinstance(sizes, list):
            return ()
        return tuple(s for s in sizes if isinstance(s, int) and s > 0)

    # ---- texts
    def encode(self, texts: Sequence[Any], *, truncate: bool = False) -> list[tuple[list[int], list[int]]]:
        """Tokens and their types for each text, pair of texts (a tuple) or list of tokens.

        truncate: what is longer than `context` is cut off; otherwise InvalidArgumentError is raised."""
        tokenizer = self._cut if truncate else self._whole
        found: list[tuple[list[int], list[int]]] = []
        for k, text in enumerate(texts):
            if isinstance(text, (str, tuple)):
                try:
                    e = tokenizer.encode(*(text if isinstance(text, tuple) else (text,)))
                except Exception as error:  # the package has no exception type
                    raise InvalidArgumentError(f"text {k} can't be cut to {self.context} tokens: {error}") from None
                tokens, types = list(e.ids), list(e.type_ids)
            else:
                tokens = [int(t) for t in text][: self.context if truncate else None]
                types = [0] * len(tokens)
                if not all(0 <= t < self._vocabulary for t in tokens):
                    raise InvalidArgumentError(f"text {k} has a token that is not from 0 to {self._vocabulary - 1}")
            if not tokens:
                raise InvalidArgumentError(f"text {k} has no tokens")
            if len(tokens) > self.context:
                raise InvalidArgumentError(
                    f"text {k} has {len(tokens)} tokens, and the model's limit is {self.context}; shorten it, or set truncate"
                )
            found.append((tokens, types))
        return found

    def padded(self, length: int) -> int:
        """Tokens of a row for a text of this length: few sizes, so that texts run together."""
        return min(max(_SHORTEST, 1 << (length - 1).bit_length()), max(self.context, length))

    def inputs(self, rows: Sequence[tuple[list[int], list[int]]]) -> dict[str, Array]:
        """The model's inputs for a batch."""
        width = self.padded(max(len(tokens) for tokens, _ in rows))
        shape = (len(rows), width)
        ids, mask, types = np.full(shape, self._pad, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        weights = np.zeros(shape, np.float32)
        for k, (tokens, kinds) in enumerate(rows):
            n = len(tokens)
            ids[k, :n], mask[k, :n], types[k, :n] = tokens, 1, kinds
            if self._pooling == "mean":
                weights[k, :n] = 1 / n
            else:
                weights[k, 0 if self._pooling == "cls" else n - 1] = 1
        values: dict[str, Array] = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": types,
            "pooling_weights": weights,
        }
        return {name: values[name].astype(dtype) for name, dtype in self._types.items()}

    def results(self, outputs: dict[str, Array], dimensions: int = 0) -> Array:
        """Of a run: embeddings float32 [rows, size], or scores float32 [rows]. dimensions: what embeddings are cut to."""
        x = np.asarray(outputs[self._output], np.float32)
        if self.pairs:
            x = x.reshape(len(x), -1)[:, 0]
            return x if self._raw_scores else (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
        if dimensions:
            x = x[:, :dimensions]
        if self._normalize or dimensions:
            x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return x

    def check_dimensions(self, dimensions: int | None) -> int:
        """0: the model's own. Raises InvalidArgumentError for a size that the model was not trained for."""
        if dimensions is None or dimensions == self.size:
            return 0
        if dimensions not in self.dimensions:
            known = ", ".join(str(d) for d in self.dimensions) or "none"
            raise InvalidArgumentError(
                f"dimensions is {dimensions}; embeddings have {self.size}, and the model names these shorter sizes: {known}"
            )
        return dimensions

    def groups(self, lengths: Sequence[int], most: int) -> list[list[int]]:
        """Places of texts that run together: those whose rows have the same size, at most `most` rows and as few as their
        tokens allow (see most_rows)."""
        by_width: dict[int, list[int]] = {}
        for k, length in enumerate(lengths):
            by_width.setdefault(self.padded(length), []).append(k)
        found = []
        for width, places in sorted(by_width.items()):
            count = min(most, most_rows(width))
            found += [places[k : k + count] for k in range(0, len(places), count)]
        return found

    def _run(self, texts: Sequence[Any], truncate: bool, dimensions: int, batch: int) -> Array:
        rows = self.encode(texts, truncate=truncate)
        found: Array = np.empty(0, np.float32)
        for places in self.groups([len(t) for t, _ in rows], batch):
            part = self.results(self.model.run(self.inputs([rows[k] for k in places])), dimensions)
            if not found.size:
                found = np.empty((len(rows), *part.shape[1:]), np.float32)
            found[places] = part
        return found

    def embed(
        self, texts: Sequence[Any], *, truncate: bool = False, dimensions: int | None = None, batch: int = 64
    ) -> Array:
        """float32 [texts, size]: the embeddings of texts or lists of tokens; rows of up to `batch` run together."""
        if self.pairs:
            raise InvalidArgumentError(f"'{self.path}' scores pairs of texts and has no embeddings")
        return self._run(texts, truncate, self.check_dimensions(dimensions), batch)

    def rerank(self, query: str, documents: Sequence[str], *, truncate: bool = False, batch: int = 64) -> Array:
        """float32 [documents]: how well each document answers the query; larger is better."""
        if not self.pairs:
            raise InvalidArgumentError(f"'{self.path}' gives embeddings and does not score pairs of texts")
        return self._run([(query, d) for d in documents], truncate, 0, batch)


def most_rows(width: int) -> int:
    """Rows of `width` tokens that run together at most, so that a batch's memory has a limit."""
    return max(1, 16384 // width)
