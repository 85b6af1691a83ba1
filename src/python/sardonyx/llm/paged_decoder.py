"""Runs the engine's steps on a device: the programs for each kind of step, the pages, and the tensors of a step."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._sardonyx import Communicator, Stream, Tensor
from ..compiling import compile
from ..device import copy, devices, empty, to_device
from ..errors import DeviceError
from ..model import Model
from .decoder import _free_host_memory
from .engine_request import Request
from .genai_folder import GenaiFolder
from .lora import Adapters
from .paged_graph import GIVEN_IDS, PagedGraph
from .paged_sampling import Chosen, StepKind
from .scheduler import Piece
from .step_both import StepsOfBoth
from .step_inputs import StepInputs, giving, same_shape
from .step_runs import GpuRun, rounded_tokens

Array = np.ndarray[Any, Any]
_MOST_BOUND = 384  #: sizes of steps whose tensors are kept


class PagedDecoder(StepInputs, StepsOfBoth):
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
        slots: int = 0,
        communicator: Communicator | None = None,
    ):
        """slots: sequences that run concurrently; with it, steps on a GPU may be started before the results of earlier ones
        have been read (`ahead`). rows: tokens of a page; cache_memory: bytes of the cache; 0: enough for wanted_pages, but at most half of the
        device's memory, or of the host's free memory. beside: bytes of another cache, which has as many pages, for each
        page; they are part of cache_memory. pages: if not 0, as many as this, whatever the memory. communicator: for a part
        of a model (see shard_graph.py)."""
        self.folder, self.graph = folder, PagedGraph(folder, rows, adapters, cache_type)
        self.ids_dtype = self.graph.step.ids_dtype
        self._compile: dict[str, Any] = {
            "device": device,
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
            "progress": progress,
            "communicator": communicator,
        }
        self._programs: dict[tuple[StepKind, bool, bool], Model] = {}
        self._lock = threading.Lock()
        self._bound: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self.ahead = slots > 0 and device.partition(":")[0] != "host"
        self.slots = slots if self.ahead else 0
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
        self._last: dict[str, Tensor] = {}
        if self.device != "host":
            self._stream = Stream(self.device)
            self._columns = -(-folder.context // rows)
            self._tables = _Tables(self._columns)
        if self.ahead:
            self._last = {"last": to_device(np.zeros(self.slots, np.int64), self.device)}
        self._weights = {n: to_device(x, self.device) for n, x in self.graph.adapter_weights.items()}

    def program(self, kind: StepKind, single: bool, prompt: bool = False) -> Model:
        """The program of a step, compiled on first use; programs of one model share its weights. single, prompt: see
        PagedGraph.build()."""
        key = kind, single, prompt
        with self._lock:
            if key not in self._programs:
                source = self.graph.build(kind, single, self.slots, prompt)
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
        token, in order. single: one piece, whose tokens are computed as one block of attention; so are those of the last of
        several pieces, if it has several tokens and joins() the others."""
        chosen = giving(pieces)
        first, last, shape = pieces[0], pieces[-1], same_shape(pieces)
        if len(pieces) > 1 and first.count == 1 < last.count and self.joins(last, pieces[:-1]):
            return self._start_both(pieces, chosen, kind)
        # The number of changed logits differs from step to step, so steps with any are not bound to tensors.
        if not kind.adjust:
            if self.device == "host":
                if not single and shape:
                    return self._start_on_host(pieces, chosen, kind)
            elif single:
                size = rounded_tokens(first.count)
                if first.results <= 1 and first.start + size <= self.folder.context:
                    return self._start_on_gpu(pieces, chosen, kind, 1, size, 1, True)
            elif shape:
                size = 1 << (len(pieces) - 1).bit_length()
                return self._start_on_gpu(pieces, chosen, kind, size, *shape, False)
        found = self._run(pieces, chosen, kind, single)
        return lambda: self._chosen(found, len(chosen), kind)

    @staticmethod
    def _chosen(found: dict[str, Array], count: int, kind: StepKind) -> Chosen:
        chosen = Chosen(found["next_tokens"][:count, 0].tolist())
        if kind.logprobs:
            chosen.logprobs = found["logprob"][:count, 0].copy()
            chosen.top_tokens = found["top_tokens"][:count].copy()
            chosen.top_logprobs = found["top_logprobs"][:count].copy()
        return chosen

    def _caches_by_name(self, names: Sequence[str]) -> dict[str, Tensor]:
        return dict(zip(names, self.caches))

    def _tensors(self, kind: StepKind) -> dict[str, Tensor]:
        """Inputs that are the same in every step: the caches, the last tokens, and the weights of adapters."""
        weights = self._weights if kind.adapters else {}
        return {**self._caches_by_name(self.graph.cache_inputs), **self._last, **weights}

    def _outputs(self) -> dict[str, Tensor]:
        """The outputs that stay on the device."""
        caches = self._caches_by_name(self.graph.cache_outputs)
        return {**caches, "last_next": self._last["last"]} if self._last else caches

    # ---- steps of any sizes, which are computed when _run() returns
    def _inputs(self, pieces: Sequence[Piece], giving: Sequence[tuple[Request, int]], kind: StepKind) -> dict[str, Any]:
        """All inputs of a step."""
        inputs: dict[str, Any] = {**self._packed(pieces), **self._choice(giving, kind, max(1, len(giving)))}
        if kind.adapters:
            inputs["adapter"] = _adapters(pieces)
        if self.ahead:
            inputs[GIVEN_IDS] = inputs.pop(self.folder.input_ids)
            inputs["source"] = np.full(inputs[GIVEN_IDS].shape[1], -1, np.int32)
            for p, end in zip(pieces, inputs["cumulative"][1:].tolist()):
                if p.unknown:
                    inputs["source"][end - 1] = p.request.slot
            inputs["target"] = np.full(self.slots, -1, np.int32)
            inputs["target"][[r.slot for r, _ in giving if r.slot >= 0]] = [
                k for k, (r, _) in enumerate(giving) if r.slot >= 0
            ]
        return inputs

    def _run(
        self, pieces: Sequence[Piece], giving: Sequence[tuple[Request, int]], kind: StepKind, single: bool
    ) -> dict[str, Array]:
        return self.compute(self._inputs(pieces, giving, kind), kind, single, None)

    def _dtype_of(self, name: str) -> Any:
        return next(i.dtype for i in self.program(StepKind(), False).inputs if i.name == name)

    # ---- steps of sizes that occur again
    def _kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._bound:
            while len(self._bound) >= _MOST_BOUND:
                self._bound.popitem(last=False)
            self._bound[key] = make()
        self._bound.move_to_end(key)
        return self._bound[key]

    def _start_on_host(
        self, pieces: Sequence[Piece], giving: Sequence[tuple[Request, int]], kind: StepKind
    ) -> Callable[[], Chosen]:
        """A step in which every sequence has as many tokens: sizes are rounded up, so that few of them are prepared."""
        values = self._packed(pieces)
        if kind.adapters:
            values["adapter"] = _adapters(pieces)
        size, shape = 1 << (len(pieces) - 1).bit_length(), (pieces[0].count, pieces[0].results)
        key = kind, size, values["table"].shape[1], *shape
        bound = self._kept(key, lambda: _HostRun(self, *key))
        bound.start({**values, **self._choice(giving, kind, len(giving))})
        return lambda: self._chosen(bound.found, len(giving), kind)

    def unused(self, kind: StepKind, size: int, count: int, results: int) -> dict[str, Array]:
        """Values of a step's inputs whose places no sequence uses: `size` sequences of `count` tokens, which compute tokens of
        page 0, and `results` results of each. Without the table."""
        folder = self.folder
        values: dict[str, Array] = {
            GIVEN_IDS if self.ahead else folder.input_ids: np.zeros((1, size * count), self.ids_dtype),
            "cumulative": np.arange(size + 1, dtype=np.int32) * count,
            "past": np.zeros(size, np.int32),
            "rows": np.arange(size * count, dtype=np.int64).reshape(size, count)[:, count - results :].flatten(),
            **self._choice([], kind, size * results),
        }
        if kind.adapters:
            values["adapter"] = np.zeros(size * count, np.int64)
        if folder.position_ids:
            values[folder.position_ids] = np.zeros((1, size * count), self._dtype_of(folder.position_ids))
        if self.ahead:
            values["source"] = np.full(size * count, -1, np.int32)
            values["target"] = np.full(self.slots, -1, np.int32)
        return values

    def read_outputs(self, kind: StepKind, single: bool, results: int, prompt: bool = False) -> dict[str, Array]:
        """Memory for a step's outputs that are read."""
        found = {}
        for info in self.program(kind, single, prompt).outputs:
            if info.name not in self.graph.cache_outputs and info.name != "last_next":
                shape = (results, *(int(d) for d in info.shape[1:])) if info.shape else (results,)
                found[info.name] = np.zeros(shape, info.dtype)
        return found

    def compute(
        self, values: dict[str, Array], kind: StepKind, single: bool, shape: tuple[int, int] | None
    ) -> dict[str, Array]:
        """A step of inputs that another process has made (see paged_parallel.py): the outputs that are read, with more rows
        than results perhaps. shape: tokens and results of each sequence, if all have as many."""
        if shape and not single and not kind.adjust:
            sequences, columns = values["table"].shape
            key = kind, single, 1 << (sequences - 1).bit_length(), *shape, columns
            if self.device == "host":
                host = self._kept(
                    (kind, key[2], columns, *shape), lambda: _HostRun(self, kind, key[2], columns, *shape)
                )
                host.start(values)
                return dict(host.found)
            run = self._kept(key, lambda: self._gpu_run(*key))
            side = run.side()
            complete(side.values, values)
            side.run()
            side.run.wait()
            found = {n: x.copy() for n, x in side.found.items()}
            run.release(side)
            return found
        outputs = self._outputs()
        stream = None if self.device == "host" else self._stream
        results = self.program(kind, single).run_tensors(
            {**values, **self._tensors(kind)}, on_device=True, outputs=outputs, stream=stream
        )
        return {n: np.asarray(t.numpy()) for n, t in results.items() if n not in outputs}

    def _gpu_run(self, kind: StepKind, single: bool, size: int, count: int, results: int, columns: int) -> GpuRun:
        values = {**self.unused(kind, size, count, results), "table": np.zeros((size, columns), np.int32)}
        constant = {n: values.pop(n) for n in ("cumulative", *(() if single else ("rows",)))}
        found = self.read_outputs(kind, single, size * results)
        return GpuRun(
            self.program(kind, single),
            self.device,
            self._stream,
            constant,
            values,
            found,
            (self._tensors(kind), self._outputs()),
        )

    def _start_on_gpu(
        self,
        pieces: Sequence[Piece],
        giving: Sequence[tuple[Request, int]],
        kind: StepKind,
        size: int,
        count: int,
        results: int,
        single: bool,
    ) -> Callable[[], Chosen]:
        """Starts a step of up to `size` sequences, each of up to `count` tokens, with as many results."""
        # Attention ends where a sequence ends; with few sequences, the table's width decides how its keys are divided.
        longest = max(len(p.request.pages) for p in pieces)
        columns = self._columns if single else min(self._columns, 1 << (longest - 1).bit_length())
        key = kind, single, size, count, results, columns
        run = self._kept(key, lambda: self._gpu_run(*key))
        side = run.side()
        self._fill(side.values, pieces, giving, kind, count, single)
        side.run()
        return self._waiting(run, side, len(giving), kind)

    def _waiting(self, run: GpuRun, side: Any, count: int, kind: StepKind) -> Callable[[], Chosen]:
        def wait() -> Chosen:
            side.run.wait()
            chosen = self._chosen(side.found, count, kind)
            run.release(side)
            return chosen

        return wait

    def _fill(
        self,
        values: dict[str, Array],
        pieces: Sequence[Piece],
        giving: Sequence[tuple[Request, int]],
        kind: StepKind,
        count: int,
        single: bool,
    ) -> None:
        """The values of a step; those of places that are not used compute tokens of page 0."""
        folder, n = self.folder, len(pieces)
        ids = values[GIVEN_IDS if self.ahead else folder.input_ids][0]
        starts = [p.start for p in pieces]
        if count == 1:
            ids[:n] = [0 if p.unknown else p.request.tokens[p.start] if not p.guesses else p.ids[0] for p in pieces]
        else:
            for k, p in enumerate(pieces):
                ids[k * count : k * count + p.count] = p.ids
        values["past"][:n] = starts
        values["past"][n:] = 0
        self._tables.rows(pieces, values["table"])
        if single:
            values["rows"][0] = pieces[0].count - 1
        if folder.position_ids:
            at = np.minimum(np.asarray(starts)[:, None] + np.arange(count), folder.context - 1)
            values[folder.position_ids][0, : n * count] = at.reshape(-1)
        if self.ahead:
            source, target = values["source"], values["target"]
            source[...] = target[...] = -1
            for k, p in enumerate(pieces):
                if p.unknown:
                    source[k * count + p.count - 1] = p.request.slot
            slots = [r.slot for r, _ in giving]
            target[slots] = range(len(slots))
        if kind.adapters:
            values["adapter"][:] = 0
            for k, p in enumerate(pieces):
                values["adapter"][k * count : (k + 1) * count] = p.request.adapter
        if kind.sample:
            results = len(values["random"])
            for name, x in self._choice(giving, kind, results).items():
                values[name][...] = x


class _Tables:
    """The pages of the sequences that run, of which only those that are new are written."""

    def __init__(self, columns: int):
        self._table = np.zeros((64, columns), np.int32)  # by slot
        self._known: list[tuple[int, int, int]] = [(0, 0, 0)] * 64  # request's number, times preempted, pages

    def rows(self, pieces: Sequence[Piece], into: Array) -> None:
        """Writes the pieces' rows; zeros below and beside them."""
        width, taken = into.shape[1], []
        for p in pieces:
            r = p.request
            pages, slot = r.pages, r.slot
            if slot < 0:  # not of the engine's requests
                break
            while slot >= len(self._known):
                self._table = np.concatenate((self._table, np.zeros_like(self._table)))
                self._known += [(0, 0, 0)] * len(self._known)
            number, turn, count = self._known[slot]
            if number != r.number or turn != r.preempted or count != len(pages):
                same = number == r.number and turn == r.preempted and count < len(pages)
                begin = count if same else 0
                self._table[slot, begin : len(pages)] = pages[begin:]
                self._table[slot, len(pages) :] = 0
                self._known[slot] = r.number, r.preempted, len(pages)
            taken.append(slot)
        else:
            np.take(self._table[:, :width], taken, axis=0, out=into[: len(taken)])
            into[len(taken) :] = 0
            return
        into[...] = 0
        for row, p in zip(into, pieces):
            row[: len(p.request.pages)] = p.request.pages


def _adapters(pieces: Sequence[Piece]) -> Array:
    return np.repeat(np.array([p.request.adapter for p in pieces], np.int64), [p.count for p in pieces])


def complete(own: dict[str, Array], values: dict[str, Array]) -> None:
    """Writes a step's inputs to those of a step with room for more sequences; `cumulative` and `rows` stay."""
    for name, value in values.items():
        if name in ("cumulative", "rows"):
            continue
        to = own[name]
        if name in ("past", "table"):
            to[len(value) :] = 0
        if to.shape != value.shape and to.shape[0] == 1 == value.shape[0]:  # ids and positions
            to[:, : value.shape[1]] = value
        else:
            to[: len(value)] = value


class _HostRun:
    """A step on the host of `count` tokens, mostly one, for each of up to `size` sequences, the last `results` of which give
    a token. Padding rows compute tokens of page 0."""

    def __init__(self, decoder: PagedDecoder, kind: StepKind, size: int, columns: int, count: int, results: int):
        self._values = {**decoder.unused(kind, size, count, results), "table": np.zeros((size, columns), np.int32)}
        self.found = decoder.read_outputs(kind, False, size * results)
        self._run = decoder.program(kind, False).bind(
            {**self._values, **decoder._tensors(kind)}, {**self.found, **decoder._outputs()}
        )

    def start(self, values: dict[str, Array]) -> None:
        """Computes a step; values of fewer sequences than `size` are completed."""
        complete(self._values, values)
        self._run()
