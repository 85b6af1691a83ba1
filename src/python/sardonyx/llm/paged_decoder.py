"""Runs the engine's steps on a device. See step_inputs.py, step_programs.py and step_runs.py, whose parts it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._sardonyx import Communicator, Tensor
from ..device import copy, devices, empty
from ..errors import DeviceError
from ..model import Model
from .decoder import _free_host_memory
from .genai_folder import GenaiFolder
from .host_pages import HostCopies
from .lora import Adapters
from .paged_graph import PagedGraph
from .paged_sampling import Chosen, StepKind
from .scheduler import Piece
from .step_inputs import (
    MOST_PARTS,
    Giving,
    StepInputs,
    adapters_of,
    complete,
    giving,
    same_shape,
)
from .step_programs import DeviceTensors, StepPrograms
from .step_runs import GpuRun, Side, StepRuns, powers, rounded_tokens
from .step_sizes import size_of, sizes_of_both

Array = np.ndarray[Any, Any]


class PagedDecoder:
    """A decoder on a device with a paged KV cache. Used by one thread at a time."""

    stages = 1

    def __init__(
        self,
        folder: GenaiFolder,
        *,
        rows: int,
        cache_memory: int,
        wanted_pages: int,
        host_memory: int = 0,
        beside: int = 0,
        adapters: Adapters | None = None,
        cache_type: str = "",
        pages: int = 0,
        device: str,
        precision: str,
        threads: int,
        cache_dir: str | os.PathLike[str] | None,
        device_memory_limit: int,
        unpacked_weights: bool,
        progress: Callable[[Any], object] | None = None,
        slots: int = 0,
        communicator: Communicator | None = None,
    ):
        """slots: sequences that run concurrently; with it, steps on a GPU may be started before the results of earlier ones
        have been read (`ahead`). rows: tokens of a page; cache_memory: bytes of the cache; 0: enough for wanted_pages, but at most half of the
        device's memory, or of the host's free memory. beside: bytes of another cache, which has as many pages, for each
        page; they are part of cache_memory. host_memory: bytes for preempted requests' pages. pages: if not 0, as many as this, whatever the memory. communicator: for a part
        of a model (see shard_graph.py)."""
        self.folder, self.graph = folder, PagedGraph(folder, rows, adapters, cache_type)
        self.ahead = slots > 0 and device.partition(":")[0] != "host"
        slots = slots if self.ahead else 0
        options = {
            "device": device,
            "precision": precision,
            "threads": threads,
            "cache_dir": cache_dir,
            "device_memory_limit": device_memory_limit,
            "unpacked_weights": unpacked_weights,
            "progress": progress,
            "communicator": communicator,
        }
        self.programs = StepPrograms(self.graph, slots, options)
        # Reports faults of the model at once. This program is needed in any case.
        self.device = self.programs.get(StepKind(), False, one=self.ahead).device
        self.page_bytes = self.graph.page_bytes() + beside
        half = self._memory() // 2
        # One more than sequences get: page 0, see PagePool.
        self.pages = pages or (cache_memory or min((1 + wanted_pages) * self.page_bytes, half)) // self.page_bytes
        if self.pages < 2:
            raise DeviceError(
                f"the KV cache needs memory for two pages of {self.page_bytes} bytes at least; give cache_memory"
            )
        self.inputs = StepInputs(folder, self.graph.step, rows, slots)
        self.tensors = DeviceTensors(self.graph, self._new_caches(), slots, self.device)
        self.host_places = host_memory // self.graph.page_bytes()
        self.runs = StepRuns(self.programs, self.inputs, self.tensors, self.device)

        self.copies = HostCopies(self.tensors.caches, self.host_places, self.device, self.runs.stream)

    def program(self, kind: StepKind, single: bool) -> Model:
        """The program of a step, compiled on first use. single: see PagedGraph.build()."""
        return self.programs.get(kind, single)

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

    def warm_up(self, kind: StepKind, sequences: int, tokens: int, beside: Callable[[int], int]) -> int:
        """See StepDecoder."""
        programs = [self.programs.get(kind, True)]
        if self.ahead:
            programs.append(self.programs.get(kind, False, True))
        else:
            programs.append(self.programs.get(kind, False))
        if self.device != "host":
            programs.append(self.programs.get(kind, False, one=True))
        for program in programs:
            program.wait()  # for kernels that compile in the background
        if self.device == "host":
            return 0
        runs, context = self.runs, self.folder.context
        made = len(runs.kept)
        # The largest first: then the memory of a program's intermediate values does not grow, which would move it and change
        # all graphs.
        if self.ahead:
            for answers, part in sizes_of_both(sequences, beside, context):
                runs.both(kind, answers, part).warm_up()
        widest = self.inputs.columns if self.ahead else self.inputs.widest
        for size in sorted({rounded_tokens(n) for n in range(2, min(tokens, context) + 1)}, reverse=True):
            if size <= context:
                runs.gpu(kind, True, 1, widest, size, 1).warm_up()
        for size in powers(sequences):
            for columns in powers(self.inputs.columns):
                columns = min(columns, self.inputs.columns) if self.ahead else columns
                runs.gpu(kind, False, size, columns, 1, 1).warm_up()
        return len(runs.kept) - made

    @property
    def immediate(self) -> bool:
        """Whether start() returns when the step has been computed."""
        return self.device == "host"

    def joins(self, part: Piece, answers: Sequence[Piece]) -> bool:
        """See StepDecoder."""
        return (
            self.ahead
            and part.results <= 1
            and sum(p.count > 1 for p in answers) < MOST_PARTS
            and not any(p.results and p.request.kind().adjust for p in (part, *answers))
        )

    def start(self, pieces: Sequence[Piece], kind: StepKind, single: bool) -> Callable[[], Chosen]:
        """See StepDecoder."""
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
        found = self.compute(self.inputs.whole(pieces, chosen, kind), kind, single, None)
        return lambda: chosen_of(found, len(chosen), kind)

    def _start_on_host(self, pieces: Sequence[Piece], giving: Giving, kind: StepKind) -> Callable[[], Chosen]:
        """A step in which every sequence has as many tokens: sizes are rounded up, so that few of them are prepared."""
        values = self.inputs.packed(pieces)
        if kind.adapters:
            values["adapter"] = adapters_of(pieces)
        size, columns = 1 << (len(pieces) - 1).bit_length(), values["table"].shape[1]
        run = self.runs.host(kind, size, columns, pieces[0].count, pieces[0].results)
        run.start({**values, **self.inputs.choice(giving, kind, len(giving))})
        return lambda: chosen_of(run.found, len(giving), kind)

    def _start_on_gpu(
        self,
        pieces: Sequence[Piece],
        giving: Giving,
        kind: StepKind,
        size: int,
        count: int,
        results: int,
        single: bool,
    ) -> Callable[[], Chosen]:
        """Starts a step of up to `size` sequences, each of up to `count` tokens, with as many results."""
        # Attention ends where a sequence ends; with few sequences, the table's width decides how its keys are divided.
        most = self.inputs.columns
        longest = max(len(p.request.pages) for p in pieces)
        columns = most if single else min(most, 1 << (longest - 1).bit_length())
        run = self.runs.gpu(kind, single, size, columns, count, results)
        side = run.side()
        self.inputs.fill(side.values, pieces, giving, kind, count, single)
        return self._running(run, side, len(giving), kind)

    def _start_both(self, pieces: Sequence[Piece], giving: Giving, kind: StepKind) -> Callable[[], Chosen]:
        """Starts a step of pieces of one token each, and after them parts of prompts."""
        parts = [p.count for p in pieces if p.count > 1]
        answers, tokens = size_of(len(pieces) - len(parts), len(giving), parts)
        run = self.runs.both(kind, answers, tokens)
        side = run.side()
        self.inputs.fill_both(side.values, pieces, giving, kind, answers)
        return self._running(run, side, len(giving), kind)

    @staticmethod
    def _running(run: GpuRun, side: Side, count: int, kind: StepKind) -> Callable[[], Chosen]:
        side.run()

        def wait() -> Chosen:
            side.run.wait()
            chosen = chosen_of(side.found, count, kind)
            run.release(side)
            return chosen

        return wait

    def compute(
        self, values: dict[str, Array], kind: StepKind, single: bool, shape: tuple[int, int] | None
    ) -> dict[str, Array]:
        """A step of inputs that are complete: the outputs that are read, with more rows than results perhaps. shape: tokens
        and results of each sequence, if all have as many."""
        size, columns = values["table"].shape
        if self.device == "host" and shape and not single and not kind.adjust:
            host = self.runs.host(kind, 1 << (size - 1).bit_length(), columns, *shape)
            host.start(values)
            return dict(host.found)
        run = None if self.device == "host" or kind.adjust else self._run_of(values, kind, single, shape)
        if run is not None:
            side = run.side()
            complete(side.values, values)
            side.run()
            side.run.wait()
            found = {n: x.copy() for n, x in side.found.items()}
            run.release(side)
            return found
        program, outputs = self.program(kind, single), self.tensors.outputs()
        given = {i.name: values[i.name] for i in program.inputs if i.name in values}
        results = program.run_tensors(
            {**given, **self.tensors.inputs(kind)}, on_device=True, outputs=outputs, stream=self.runs.stream
        )
        return {n: np.asarray(t.numpy()) for n, t in results.items() if n not in outputs}

    def _run_of(
        self, values: dict[str, Array], kind: StepKind, single: bool, shape: tuple[int, int] | None
    ) -> GpuRun | None:
        """The captured graph of a step of compute(), if it has one."""
        size, columns = values["table"].shape
        if single:
            count = int(values["cumulative"][-1])
            rounded = rounded_tokens(count)
            if len(values["rows"]) == 1 and values["past"][0] + rounded <= self.folder.context:
                return self.runs.gpu(kind, True, 1, self.inputs.widest, rounded, 1)
        elif shape:
            return self.runs.gpu(kind, False, 1 << (size - 1).bit_length(), columns, *shape)
        return None


def chosen_of(found: Mapping[str, Array], count: int, kind: StepKind) -> Chosen:
    """The first `count` results of a step's outputs."""
    chosen = Chosen(found["next_tokens"][:count, 0].tolist())
    if kind.logprobs:
        chosen.logprobs = found["logprob"][:count, 0].copy()
        chosen.top_tokens = found["top_tokens"][:count].copy()
        chosen.top_logprobs = found["top_logprobs"][:count].copy()
    return chosen
