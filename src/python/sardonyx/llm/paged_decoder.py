"""Runs the engine's steps on a device: the programs for each kind of step, the pages, and the tensors of a step."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._sardonyx import Stream, Tensor
from ..compiling import compile
from ..device import copy, devices, empty, to_device
from ..errors import DeviceError
from ..model import Model
from .decoder import _free_host_memory
from .engine_request import Request
from .genai_folder import GenaiFolder
from .lora import Adapters
from .paged_graph import PagedGraph
from .paged_sampling import StepKind
from .scheduler import Piece

Array = np.ndarray[Any, Any]
_MOST_BOUND = 64  #: sizes of steps whose tensors are kept


@dataclass
class Chosen:
    """What a step gives for each of its results: the tokens, and log-probabilities if its kind has them."""

    tokens: list[int]
    logprobs: Array | None = None  #: [results]
    top_tokens: Array | None = None  #: [results, 20]
    top_logprobs: Array | None = None


class PagedDecoder:
    """A decoder on a device with a paged KV cache. Used by one thread at a time."""

    def __init__(
        self,
        folder: GenaiFolder,
        *,
        rows: int,
        cache_memory: int,
        wanted_pages: int,
        beside: int = 0,
        adapters: Adapters | None = None,
        cache_type: str = "",
        pages: int = 0,
        device: str,
        precision: str,
        threads: int,
        cache_dir: str | os.PathLike[str] | None,
        device_memory_limit: int,
        progress: Callable[[Any], object] | None = None,
    ):
        """rows: tokens of a page; cache_memory: bytes of the cache; 0: enough for wanted_pages, but at most half of the
        device's memory, or of the host's free memory. beside: bytes of another cache, which has as many pages, for each
        page; they are part of cache_memory. pages: if not 0, as many as this, whatever the memory."""
        self.folder, self.graph = folder, PagedGraph(folder, rows, adapters, cache_type)
        self._compile: dict[str, Any] = {
            "device": device,
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
            "progress": progress,
        }
        self._programs: dict[tuple[StepKind, bool], Model] = {}
        self._lock = threading.Lock()
        self._bound: OrderedDict[tuple[StepKind, int, int, int, int], _Bound] = OrderedDict()
        self.device = self.program(StepKind(), False).device  # reports faults of the model at once
        self.page_bytes = self.graph.page_bytes() + beside
        half = self._memory() // 2
        # One more than sequences get: page 0, see PagePool.
        self.pages = pages or (cache_memory or min((1 + wanted_pages) * self.page_bytes, half)) // self.page_bytes
        if self.pages < 2:
            raise DeviceError(
                f"the KV cache needs memory for two pages of {self.page_bytes} bytes at least; give cache_memory"
            )
        self.caches = self._new_caches()
        self._weights = {n: to_device(x, self.device) for n, x in self.graph.adapter_weights.items()}

    def program(self, kind: StepKind, single: bool) -> Model:
        """The program of a step, compiled on first use; programs of one model share its weights."""
        key = kind, single
        with self._lock:
            if key not in self._programs:
                source = self.graph.build(kind, single)
                self._programs[key] = compile(source, folder=self.graph.step.data_folder, **self._compile)
            return self._programs[key]

    def _memory(self) -> int:
        for device in devices():
            if device.name == self.device and device.name != "host" and device.memory:
                return min(device.memory, _free_host_memory()) if device.name.startswith("sim") else device.memory
        return _free_host_memory()

    def _new_caches(self) -> list[Tensor]:
        rows = self.graph.rows
        what = (
            f"a KV cache of {self.pages - 1} pages of {rows} tokens takes "
            f"{self.pages * self.page_bytes / 2**30:.2f} GiB; give cache_memory in bytes"
        )
        if self.pages * self.page_bytes > self._memory():
            raise DeviceError(f"{what} (there are {self._memory() / 2**30:.2f} GiB)")
        caches = []
        zeros: Any = None
        try:
            for shape, dtype in self.graph.cache_shapes(self.pages):
                caches.append(empty(shape, dtype.name, self.device))
                # Rows past a sequence's end do not count, but must be finite, because they are multiplied by zero.
                if zeros is None or zeros.shape != shape or zeros.dtype != dtype:
                    zeros = np.zeros(shape, dtype)
                copy(caches[-1], zeros)
        except DeviceError as error:
            raise DeviceError(f"{what} ({error})") from None
        return caches

    @property
    def immediate(self) -> bool:
        """Whether start() returns when the step has been computed."""
        return self.device == "host"

    def start(self, pieces: Sequence[Piece], kind: StepKind, single: bool) -> Callable[[], Chosen]:
        """Computes the pieces together. What it returns waits for the results, which are those of the pieces that give a
        token, in order."""
        # Of each result, its request and the token's place in the answer.
        giving = [
            (p.request, p.start + p.count - p.results + k + 1 - p.request.prompt_tokens)
            for p in pieces
            for k in range(p.results)
        ]
        values = self._packed(pieces)
        if kind.adapters:
            values["adapter"] = np.repeat(
                np.array([p.request.adapter for p in pieces], np.int64), [p.count for p in pieces]
            )
        shape = pieces[0].count, pieces[0].results
        # The number of changed logits differs from step to step, so steps with any are not bound to tensors.
        if not single and not kind.adjust and shape[1] and all((p.count, p.results) == shape for p in pieces):
            bound = self._bound_for(kind, len(pieces), values["table"].shape[1], *shape)
            bound.start({**values, **self._choice(giving, kind, len(giving))})
            return lambda: self._chosen(bound.results(), len(giving), kind)
        found = self._run(kind, single, {**values, **self._choice(giving, kind, max(1, len(giving)))})
        return lambda: self._chosen(found, len(giving), kind)

    @staticmethod
    def _chosen(found: dict[str, Array], count: int, kind: StepKind) -> Chosen:
        chosen = Chosen(found["next_tokens"][:count, 0].tolist())
        if kind.logprobs:
            chosen.logprobs = found["logprob"][:count, 0]
            chosen.top_tokens, chosen.top_logprobs = found["top_tokens"][:count], found["top_logprobs"][:count]
        return chosen

    def _caches_by_name(self, names: Sequence[str]) -> dict[str, Tensor]:
        return dict(zip(names, self.caches))

    def _tensors(self, kind: StepKind) -> dict[str, Tensor]:
        """Inputs that are the same in every step: the caches, and the weights of adapters."""
        return {**self._caches_by_name(self.graph.cache_inputs), **(self._weights if kind.adapters else {})}

    def _run(self, kind: StepKind, single: bool, inputs: dict[str, Any]) -> dict[str, Array]:
        outputs = self.graph.cache_outputs
        results = self.program(kind, single).run_tensors(
            {**inputs, **self._tensors(kind)},
            on_device=True,
            outputs=self._caches_by_name(outputs),
        )
        return {n: np.asarray(t.numpy()) for n, t in results.items() if n not in outputs}

    def _packed(self, pieces: Sequence[Piece]) -> dict[str, Array]:
        """The inputs that say which tokens are computed, and where their keys and values are."""
        folder = self.folder
        counts = [p.count for p in pieces]
        ids: list[int] = []
        for p in pieces:
            ids += p.ids
        cumulative = np.concatenate(([0], np.cumsum(counts)))
        columns = 1 << (max(len(p.request.pages) for p in pieces) - 1).bit_length()  # few sizes
        table = np.zeros((len(pieces), columns), np.int32)
        for row, p in zip(table, pieces):
            row[: len(p.request.pages)] = p.request.pages
        rows = [int(end) - p.results + k for end, p in zip(cumulative[1:], pieces) for k in range(p.results)]
        values = {
            folder.input_ids: np.array([ids], self.graph.step.ids_dtype),
            "cumulative": cumulative.astype(np.int32),
            "past": np.array([p.start for p in pieces], np.int32),
            "table": table,
            "rows": np.array(rows or [0], np.int64),
        }
        if folder.position_ids:
            places = np.concatenate([np.arange(p.start, p.start + p.count) for p in pieces])
            values[folder.position_ids] = places[None].astype(self._dtype_of(folder.position_ids))
        return values

    def _dtype_of(self, name: str) -> Any:
        return next(i.dtype for i in self.program(StepKind(), False).inputs if i.name == name)

    def _choice(self, giving: Sequence[tuple[Request, int]], kind: StepKind, results: int) -> dict[str, Array]:
        """The inputs that say how tokens are chosen, for each result's request and place in its answer; rows past the last
        result choose the most likely token."""
        values: dict[str, Array] = {}
        if kind.sample:
            for name, value in (("temperature", 1), ("top_p", 1), ("min_p", 0), ("random", 0)):
                values[name] = np.full((results, 1), value, np.float32)
            values["top_k"], values["pure"] = np.ones((results, 1), np.int64), np.zeros((results, 1), np.bool_)
            for at, (r, place) in enumerate(giving):
                s = r.search
                if not s.samples:
                    continue
                values["temperature"][at], values["top_p"][at], values["min_p"][at] = s.temperature, s.top_p, s.min_p
                values["top_k"][at] = s.top_k or self.folder.vocabulary
                values["pure"][at] = not s.top_k and s.top_p == 1
                # Slightly below 1, so that its product with a sum stays below the sum.
                values["random"][at] = min(r.random(place), 1 - 2**-22)
        if kind.adjust:
            changes = [r.changes() for r, _ in giving]
            most = max((len(c[0]) for c in changes), default=0)
            wide = 1 << max(most - 1, 0).bit_length()
            words = -(-self.folder.vocabulary // 32)
            values["touched"] = np.zeros((results, wide), np.int64)
            values["offsets"] = np.zeros((results, wide), np.float32)
            values["repeated"] = np.zeros((results, wide), np.bool_)
            values["repetition"] = np.ones((results, 1), np.float32)
            values["allowed"] = np.full((results, words), 0xFFFFFFFF, np.uint32)
            for at, ((r, _), lists) in enumerate(zip(giving, changes)):
                values["repetition"][at] = r.search.repetition_penalty
                if r.allowed is not None:
                    values["allowed"][at] = r.allowed
                for name, items in zip(("touched", "offsets", "repeated"), lists):
                    if items:  # the rest of the row repeats the first change
                        values[name][at] = items[0]
                        values[name][at, : len(items)] = items
        return values

    def _bound_for(self, kind: StepKind, sequences: int, columns: int, count: int, results: int) -> _Bound:
        """A step in which every sequence has as many tokens: sizes are rounded up, so that few of them are prepared."""
        key = kind, 1 << (sequences - 1).bit_length(), columns, count, results
        if key not in self._bound:
            while len(self._bound) >= _MOST_BOUND:
                self._bound.popitem(last=False)
            self._bound[key] = _Bound(self, *key)
        self._bound.move_to_end(key)
        return self._bound[key]


class _Bound:
    """A step of `count` tokens, mostly one, for each of up to `size` sequences, the last `results` of which give a token.
    Its tensors keep their addresses, so that on GPUs it is one captured graph. Padding rows compute tokens of page 0."""

    def __init__(self, decoder: PagedDecoder, kind: StepKind, size: int, columns: int, count: int, results: int):
        folder, self.size, self._host = decoder.folder, size, decoder.device == "host"
        model = decoder.program(kind, False)
        self._values: dict[str, Array] = {
            folder.input_ids: np.zeros((1, size * count), decoder.graph.step.ids_dtype),
            "cumulative": np.arange(size + 1, dtype=np.int32) * count,
            "past": np.zeros(size, np.int32),
            "table": np.zeros((size, columns), np.int32),
            "rows": np.arange(size * count, dtype=np.int64).reshape(size, count)[:, count - results :].flatten(),
            **decoder._choice([], kind, size * results),
        }
        if kind.adapters:
            self._values["adapter"] = np.zeros(size * count, np.int64)
        if folder.position_ids:
            self._values[folder.position_ids] = np.zeros((1, size * count), decoder._dtype_of(folder.position_ids))
        tensors: dict[str, Any] = dict(self._values)
        self._found: dict[str, Any] = {}
        for info in model.outputs:
            if info.name not in decoder.graph.cache_outputs:
                shape = (size * results, *(int(d) for d in info.shape[1:])) if info.shape else (size * results,)
                self._found[info.name] = np.zeros(shape, info.dtype)
        stream = None
        if not self._host:
            tensors = {n: to_device(v, decoder.device) for n, v in tensors.items()}
            self._found = {n: empty(v.shape, v.dtype, decoder.device) for n, v in self._found.items()}
            stream = Stream(decoder.device)
        self._copies = [
            (tensors[n]._copy_from, (v.ctypes.data, v.dtype.name, list(v.shape), False))
            for n, v in self._values.items()
            if not self._host and n not in ("cumulative", "rows")  # which stay the same
        ]
        self._run = model.bind(
            {**tensors, **decoder._tensors(kind)},
            {**self._found, **decoder._caches_by_name(decoder.graph.cache_outputs)},
            stream=stream,
            synchronize=stream is None,
        )

    def start(self, values: dict[str, Array]) -> None:
        """Begins a step; values of fewer sequences than `size` are completed."""
        for name, value in values.items():
            own = self._values[name]
            if name in ("cumulative", "rows"):
                continue
            if name in ("past", "table"):
                own[len(value) :] = 0
            if own.shape != value.shape and own.shape[0] == 1 == value.shape[0]:  # ids and positions
                own[:, : value.shape[1]] = value
            else:
                own[: len(value)] = value
        for copy_from, array in self._copies:
            copy_from(array)
        self._run()

    def results(self) -> dict[str, Array]:
        """Waits for the step; its outputs by name."""
        self._run.wait()
        return {n: v if self._host else np.asarray(v.numpy()) for n, v in self._found.items()}
