"""Runs a folder's decoder on a device: programs for each kind of step, caches, and the tensors that stay on the device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._sardonyx import Communicator, Stream, Tensor
from ..arrays import numpy_dtype
from ..compiling import compile
from ..device import copy, devices, empty, to_device
from ..errors import DeviceError, InvalidArgumentError
from ..model import BoundRun, Model
from .genai_folder import GenaiFolder
from .sampling_graph import SamplingKind
from .search_options import SearchOptions
from .step_graph import StepGraph

_GRANULE = 64  #: the capacity of caches is a multiple of it, in tokens


def _free_host_memory() -> int:
    """In bytes; a large number if the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62


@dataclass
class Cache:
    """The KV cache of some sequences."""

    batch: int
    capacity: int  #: tokens of each sequence; of growing caches: tokens so far
    tensors: list[Any]  #: in the order of GenaiFolder.past
    tokens: list[int] = field(
        default_factory=list
    )  #: of a single sequence: those whose keys and values are in the cache


class Decoder:
    """A decoder on a device. Used by one thread at a time."""

    def __init__(
        self,
        folder: GenaiFolder,
        *,
        device: str,
        precision: str,
        threads: int,
        cache_dir: str | os.PathLike[str] | None,
        device_memory_limit: int,
        progress: Callable[[Any], object] | None = None,
        communicator: Communicator | None = None,
    ):
        """communicator: for a part of a model (see shard_graph.py)."""
        self.folder, self.device = folder, device
        self.graph = StepGraph(folder)
        self._compile = {
            "device": device,
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
            "progress": progress,
            "communicator": communicator,
        }
        self._programs: dict[SamplingKind, Model] = {}
        self._lock = threading.Lock()
        self.program(SamplingKind("greedy"))  # reports faults of the model at once
        self.device = self._programs[SamplingKind("greedy")].device
        self.stream = Stream(self.device)

    def program(self, kind: SamplingKind) -> Model:
        """The program for a kind of step, compiled on first use; programs of one model share its weights."""
        with self._lock:
            if kind not in self._programs:
                source = self.graph.build(kind)
                self._programs[kind] = compile(source, folder=self.graph.data_folder, **self._compile)
            return self._programs[kind]

    def on_device(self, value: Any) -> Any:
        return to_device(np.ascontiguousarray(value), self.device)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        return empty(shape, dtype, self.device)

    def new_cache(self, batch: int, tokens: int) -> Cache:
        """A cache for `tokens` tokens of each sequence. Raises DeviceError if memory does not suffice."""
        layout = self.graph.cache
        if not layout.shared:
            shapes = [(batch, h, 0, d) for h, d in zip(layout.heads, layout.head_sizes)]
            return Cache(batch, 0, [self.empty(s, layout.dtype) for s in shapes])
        capacity = -(-tokens // _GRANULE) * _GRANULE
        shapes = [(batch, h, capacity, d) for h, d in zip(layout.heads, layout.head_sizes)]
        size = numpy_dtype(layout.dtype).itemsize * sum(int(np.prod(s, dtype=np.float64)) for s in shapes)
        what = (
            f"the cache of {batch} sequences of {capacity} tokens takes {size / 2**30:.2f} GiB; "
            "take fewer sequences, shorter prompts or fewer new tokens"
        )
        available = self._memory()
        if size > available:
            raise DeviceError(f"{what} (there are {available / 2**30:.2f} GiB)")
        try:
            tensors = []
            zeros: Any = None
            for shape in shapes:
                tensors.append(self.empty(shape, layout.dtype))
                # Rows after the last token do not count, but must be finite, because they are multiplied by zero.
                if zeros is None or zeros.shape != shape:
                    zeros = np.zeros(shape, numpy_dtype(layout.dtype))
                copy(tensors[-1], zeros)
        except DeviceError as error:
            raise DeviceError(f"{what} ({error})") from None
        return Cache(batch, capacity, tensors)

    def _memory(self) -> int:
        """Upper bound of caches in bytes: a card's memory, or free host memory (also for simulated cards)."""
        for device in devices():
            if device.name == self.device and device.name != "host" and device.memory:
                return min(device.memory, 1 << 62)
        return _free_host_memory()

    def grown(self, cache: Cache, tokens: int) -> Cache:
        """The cache, or a larger copy of it with a capacity of at least `tokens`."""
        if not self.graph.cache.shared or tokens <= cache.capacity:
            return cache
        larger = self.new_cache(cache.batch, max(tokens, cache.capacity * 3 // 2))
        larger.tokens = cache.tokens
        for old, new in zip(cache.tensors, larger.tensors):
            values = np.zeros(new.shape, numpy_dtype(new.dtype))
            values[:, :, : cache.capacity] = old.numpy()
            copy(new, values)
        return larger

    def step(
        self,
        kind: SamplingKind,
        ids: Any,
        lengths: Any,
        width: Any,
        cache: Cache,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        *,
        into: list[Any] | None = None,
    ) -> dict[str, Any]:
        """One run of the model. `inputs` and `outputs`: those of add_sampling(), outputs only if they have memory. Afterwards
        the cache contains the new tokens, in its own memory or in the tensors `into`; an empty list: in new memory."""
        names, folder = self.folder.past, self.folder
        given = dict(outputs)
        if self.graph.cache.shared:
            given.update(zip(folder.present, cache.tensors if into is None else into))
        every = {folder.input_ids: ids, "lengths": lengths, "width": width, **dict(zip(names, cache.tensors)), **inputs}
        results = self.program(kind).run_tensors(every, on_device=True, outputs=given)
        cache.tensors = [results[p] for p in folder.present]
        if not self.graph.cache.shared:
            cache.capacity = int(cache.tensors[0].shape[2])
        return results

    def bound_step(
        self,
        kind: SamplingKind,
        ids: Any,
        lengths: Any,
        width: Any,
        cache: Cache,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
    ) -> BoundRun:
        """The same for many launches, with memory for all outputs, and shared caches."""
        folder = self.folder
        every = {folder.input_ids: ids, "lengths": lengths, "width": width}
        every.update(zip(folder.past, cache.tensors))
        given = {**outputs, **dict(zip(folder.present, cache.tensors))}
        stream = self.stream if self.device != "host" else None
        return self.program(kind).bind({**every, **inputs}, given, stream=stream, synchronize=stream is None)


class TokenChooser:
    """The program that chooses tokens by some options, and its inputs and outputs besides the model's own."""

    def __init__(self, decoder: Decoder, options: SearchOptions, texts: list[list[int]]):
        """texts: the tokens of each sequence so far."""
        vocabulary, batch = decoder.folder.vocabulary, len(texts)
        self._decoder, self._options, self._batch = decoder, options, batch
        penalty = options.repetition_penalty != 1
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self._steps: tuple[Any, ...] = ()
        candidates = 0
        if options.samples and (options.top_k or options.top_p < 1):
            wanted = min(options.top_k or vocabulary, vocabulary)
            candidates = min(vocabulary, 1 << (wanted - 1).bit_length())  # few programs serve all top_k
        self.kind = SamplingKind("sample" if options.samples else "greedy", penalty, candidates)
        if penalty:
            seen = np.zeros((batch, vocabulary), np.uint8)
            for row, tokens in zip(seen, texts):
                row[np.asarray(tokens, np.int64)] = 1
            self.inputs["seen"] = self.outputs["seen_next"] = decoder.on_device(seen)
            self._number("repetition_penalty", options.repetition_penalty)
        if options.samples:
            self._number("temperature", options.temperature)
            self._number("min_p", options.min_p)
            if candidates:
                self._number("top_p", options.top_p)
                self.inputs["top_k"] = decoder.on_device(np.array([options.top_k or vocabulary], np.int64))
            self._steps = tuple(decoder.on_device(np.zeros(1, np.int64)) for _ in range(2))
            random = np.random.default_rng(options.seed).random((options.max_new_tokens + 2, batch), np.float32)
            # Slightly below 1, so that its product with a sum stays below the sum.
            self.inputs["random"] = decoder.on_device(np.minimum(random, np.float32(1 - 2**-22)))

    def turn(self, step: int) -> None:
        """Before each step: inputs that are read early, which the previous step must not write."""
        if self._steps:
            self.inputs["step"], self.outputs["step_next"] = self._steps[step % 2], self._steps[1 - step % 2]

    def _number(self, name: str, value: float) -> None:
        self.inputs[name] = self._decoder.on_device(np.array([value], np.float32))


def checked_prompt(tokens: list[int], folder: GenaiFolder, new: int) -> None:
    """Raises InvalidArgumentError for a prompt that is too long or empty."""
    if not tokens:
        raise InvalidArgumentError("the prompt is empty: it has no tokens")
    if len(tokens) >= folder.context:
        raise InvalidArgumentError(
            f"the prompt has {len(tokens)} tokens, and the model's limit is {folder.context}, the answer included; shorten it"
        )
    worst = max(tokens), min(tokens)
    if worst[0] >= folder.vocabulary or worst[1] < 0:
        raise InvalidArgumentError(f"the prompt's tokens must be from 0 to {folder.vocabulary - 1}")
