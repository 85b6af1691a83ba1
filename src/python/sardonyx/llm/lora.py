"""Adapters of linear layers (LoRA; Hu et al. 2021, arXiv:2106.09685) in folders of Hugging Face's PEFT.

All adapters of an engine lie side by side: for each linear layer A [in, columns] and B [columns, out], where each adapter
has as many columns as its rank. A token's product with A is masked by its adapter's columns, so that a step computes
tokens of any adapters, and of none, with two small products a layer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError
from .genai_folder import read_json

Array = np.ndarray[Any, Any]
_MOST_RANK = 1024
_MOST_BYTES = 16 << 30
_NEUTRAL: dict[str, tuple[Any, ...]] = {  # values without effect on the product
    "bias": (None, "none"),
    "fan_in_fan_out": (None, False),
    "use_dora": (None, False),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "use_qalora": (None, False),
    "lora_bias": (None, False),
    "trainable_token_indices": (None, [], {}),
}
_TYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}
_WEIGHT = re.compile(r"(?:^|\.)layers\.(\d{1,5})\.(?:self_attn|attn|mlp)\.(\w+_proj)\.lora_([AB])(?:\.\w+)?\.weight$")
_NODE = re.compile(r"layers[./](\d{1,5})[./](?:self_attn|attn|mlp)[./](\w+_proj)(?:$|[./])")
Module = tuple[int, str]  #: a layer's number, and the name of a linear layer in it, as "q_proj"


def module_of(node: str) -> Module | None:
    """The linear layer that an ONNX node computes, by its name."""
    found = _NODE.search(node)
    return (int(found[1]), found[2]) if found else None


@dataclass(frozen=True)
class Adapter:
    """An adapter: of each linear layer A [in, rank] and B [rank, out], float32, with the scale in B."""

    path: str
    rank: int
    parts: dict[Module, tuple[Array, Array]]


def read_adapter(path: str | os.PathLike[str]) -> Adapter:
    """Raises FileError, InvalidModelError or UnsupportedError."""
    folder = os.fspath(path)
    config = read_json(os.path.join(folder, "adapter_config.json"))
    if config.get("peft_type") != "LORA":
        raise UnsupportedError(f"'{folder}' is an adapter of the type {config.get('peft_type')!r}; only LORA is known")
    for name, values in _NEUTRAL.items():
        if config.get(name) not in values:
            raise UnsupportedError(f"'{folder}': {name} is {str(config[name])[:100]}, which is not supported")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= _MOST_RANK:
        raise InvalidModelError(f"'{folder}': the rank r is {rank!r}; it must be from 1 to {_MOST_RANK}")
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool) or not abs(alpha) < 1e6:
        raise InvalidModelError(f"'{folder}': lora_alpha is {alpha!r}")
    scale = float(alpha) / (rank**0.5 if config.get("use_rslora") else rank)
    halves: dict[Module, dict[str, Array]] = {}
    for name, x in _tensors(os.path.join(folder, "adapter_model.safetensors")):
        found = _WEIGHT.search(name)
        if found is None:
            raise UnsupportedError(f"'{folder}' has '{name[:200]}', which is not of an attention's or MLP's projection")
        if x.ndim != 2 or x.shape[found[3] == "B"] != rank or not np.isfinite(x).all():
            raise InvalidModelError(
                f"'{folder}': '{name[:200]}' of shape {x.shape} does not fit the rank {rank}, or is not finite"
            )
        halves.setdefault((int(found[1]), found[2]), {})[found[3]] = x
    for (layer, which), both in halves.items():
        if set(both) != {"A", "B"}:
            raise InvalidModelError(f"'{folder}': {which} of layer {layer} lacks lora_A or lora_B")
    if not halves:
        raise InvalidModelError(f"'{folder}' has no weights")
    parts = {m: (both["A"].T, both["B"].T * np.float32(scale)) for m, both in halves.items()}
    return Adapter(folder, rank, parts)


def _tensors(file: str) -> list[tuple[str, Array]]:
    """The tensors of a safetensors file as float32."""
    try:
        import safetensors
    except ImportError as error:
        raise UnsupportedError(
            f"adapters need the Python package 'safetensors' ({error}): pip install 'sardonyx[lora]'"
        ) from None
    try:
        if os.path.getsize(file) > _MOST_BYTES:
            raise InvalidModelError(f"'{file}' has more than {_MOST_BYTES >> 30} GiB")
        with open(file, "rb") as opened:
            content = safetensors.deserialize(opened.read())
    except OSError as error:
        raise FileError(f"'{file}' could not be read: {error.strerror}; an adapter's folder needs it") from None
    except safetensors.SafetensorError as error:
        raise InvalidModelError(f"'{file}' is no safetensors file: {error}") from None
    found = []
    for name, about in content:
        dtype = _TYPES.get(about["dtype"])
        if dtype is None:
            raise UnsupportedError(f"'{file}': '{name[:200]}' is {about['dtype']}; known are {', '.join(_TYPES)}")
        values = np.frombuffer(bytes(about["data"]), dtype).reshape(about["shape"])
        found.append((name, values.astype(np.float32)))
    return found


class Adapters:
    """The adapters of an engine, side by side."""

    def __init__(self, folders: Mapping[str, str | os.PathLike[str]]):
        """Raises errors.Error."""
        self.names = list(folders)
        for name in self.names:
            if not isinstance(name, str) or not name:
                raise InvalidArgumentError(f"an adapter's name is {name!r}; it must be a text")
        self._adapters = [read_adapter(f) for f in folders.values()]
        ends = np.cumsum([a.rank for a in self._adapters])
        self.columns = int(ends[-1]) if self._adapters else 0
        self._spans = [slice(int(end) - a.rank, int(end)) for end, a in zip(ends, self._adapters)]
        self.modules = {m for a in self._adapters for m in a.parts}

    def number(self, name: str) -> int:
        """0 for no adapter. Raises InvalidArgumentError for one that is not there."""
        if not name:
            return 0
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise InvalidArgumentError(f"there is no adapter {name[:200]!r}; the engine's are: {known}")
        return 1 + self.names.index(name)

    def key(self, number: int) -> bytes:
        """Begins the names of pages, so that only texts of the same adapter share them."""
        return json.dumps([number]).encode() if number else b""

    def table(self) -> Array:
        """float32 [adapters + 1, columns]: 1 in the columns of each adapter; row 0 is of none."""
        table = np.zeros((1 + len(self._adapters), self.columns), np.float32)
        for k, span in enumerate(self._spans):
            table[1 + k, span] = 1
        return table

    def pair(
        self, module: Module, inputs: int, outputs: int, split: Mapping[str, tuple[int, int]]
    ) -> tuple[Array, Array] | None:
        """A [inputs, columns] and B [columns, outputs] of a linear layer; None: no adapter changes it.

        split: for a layer that computes several of PEFT's, where each one's outputs are: {"q_proj": (0, 64), ...}.
        Raises InvalidModelError for an adapter of other sizes."""
        layer, name = module
        places = {name: (0, outputs), **split}
        used = [n for n in places if any((layer, n) in a.parts for a in self._adapters)]
        if not used:
            return None
        count = len(used)
        a, b = np.zeros((inputs, count, self.columns), np.float32), np.zeros((count, self.columns, outputs), np.float32)
        for k, which in enumerate(used):
            begin, end = places[which]
            for adapter, span in zip(self._adapters, self._spans):
                if (layer, which) not in adapter.parts:
                    continue
                x, y = adapter.parts[layer, which]
                if len(x) != inputs or y.shape[1] != end - begin:
                    raise InvalidModelError(
                        f"'{adapter.path}': {which} of layer {layer} is for {len(x)} inputs and {y.shape[1]} outputs; the "
                        f"model has {inputs} and {end - begin}"
                    )
                a[:, k, span], b[k, span, begin:end] = x, y
        return a.reshape(inputs, -1), b.reshape(-1, outputs)

    def repeats(self, module: Module, split: Mapping[str, tuple[int, int]]) -> int:
        """How many times the columns stand side by side in pair()."""
        layer, name = module
        return sum(any((layer, n) in a.parts for a in self._adapters) for n in {name, *split})
