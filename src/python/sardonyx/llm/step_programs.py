"""The programs of the engine's steps, and the tensors that stay on the device between steps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._sardonyx import Tensor
from ..compiling import compile
from ..device import to_device
from ..model import Model
from .paged_graph import PagedGraph
from .paged_sampling import StepKind

Array = np.ndarray[Any, Any]


class StepPrograms:
    """Programs of one model, which share its weights. Thread-safe."""

    def __init__(self, graph: PagedGraph, slots: int, options: dict[str, Any]):
        """slots: see PagedGraph.build(); options: those of compile()."""
        self._graph, self._slots, self._options = graph, slots, options
        self._programs: dict[tuple[StepKind, bool, bool, bool], Model] = {}
        self._lock = threading.Lock()

    def get(self, kind: StepKind, single: bool, prompt: bool = False, one: bool = False) -> Model:
        """The program of a step, compiled on first use. single, prompt, one: see PagedGraph.build()."""
        if not self._graph.chooses:
            kind = StepKind()
        key = kind, single, prompt, one
        with self._lock:
            if key not in self._programs:
                source = self._graph.build(kind, single, self._slots, prompt, one)
                self._programs[key] = compile(source, folder=self._graph.step.data_folder, **self._options)
            return self._programs[key]

    def results(
        self, kind: StepKind, single: bool, tokens: int, count: int, prompt: bool = False, one: bool = False
    ) -> dict[str, Array]:
        """Memory for the outputs that are read of a step of so many tokens and results."""
        found = {}
        for info in self.get(kind, single, prompt, one).outputs:
            if info.name not in self._graph.cache_outputs and info.name != "last_next":
                inner = [int(d) for d in (info.shape or ())[1:] if isinstance(d, int)]
                shape = (1, tokens, *inner) if info.name in self._graph.sent else (count, *inner)
                found[info.name] = np.zeros(shape, info.dtype)
        return found


class DeviceTensors:
    """The caches, the last token of each slot, and the weights of adapters."""

    def __init__(self, graph: PagedGraph, caches: Sequence[Tensor], slots: int, device: str):
        self._graph, self.caches = graph, list(caches)
        self._last = {"last": to_device(np.zeros(slots, np.int64), device)} if slots else {}
        self._weights = {n: to_device(x, device) for n, x in graph.adapter_weights.items()}

    def inputs(self, kind: StepKind) -> dict[str, Tensor]:
        """Inputs that are the same in every step."""
        weights = self._weights if kind.adapters else {}
        return {**dict(zip(self._graph.cache_inputs, self.caches)), **self._last, **weights}

    def outputs(self) -> dict[str, Tensor]:
        """The outputs that stay on the device."""
        caches = dict(zip(self._graph.cache_outputs, self.caches))
        return {**caches, "last_next": self._last["last"]} if self._last else caches
