"""The engine's decoder on several devices of one machine, which divide the model among them: its layers into stages (pipeline
parallelism, stage_graph.py), each of which may be divided among several devices (tensor parallelism, shard_graph.py).

Each device has a process with its part of the weights and of the KV cache (parallel.py, rank.py). This process makes the inputs of a
step once and sends them to all. A stage's hidden states go to the next stage directly (stage_link.py); the devices of the last one
choose the same tokens. While one stage computes a step, the others compute steps of other requests. If a process ends, all are
started again, with empty caches, and steps raise CachesLostError: the engine computes what its requests had, and goes on.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import DeviceError, Error, InvalidArgumentError
from .decoder import _free_host_memory
from .genai_folder import GenaiFolder
from .paged_decoder import chosen_of
from .paged_graph import PagedGraph
from .paged_sampling import Chosen, StepKind
from .parallel import RankGroup, rank_setup
from .scheduler import Piece
from .stage_graph import check_stages
from .step_inputs import StepInputs, giving, same_shape


class CachesLostError(DeviceError):
    """A process has ended, and others have taken its place. The caches are empty."""


class ParallelPagedDecoder(RankGroup):
    """Has the members of PagedDecoder that the engine uses. Used by one thread at a time but for program()."""

    ahead = False
    immediate = False

    def __init__(
        self,
        folder: GenaiFolder,
        devices: list[str],
        *,
        transport: str,
        stages: int = 1,
        rows: int,
        cache_memory: int,
        wanted_pages: int,
        host_memory: int = 0,
        cache_type: str,
        threads: int,
        **options: Any,
    ):
        """The arguments are those of PagedDecoder; cache_memory and host_memory are those of all devices together. stages: into which the layers
        are divided, each with as many successive devices."""
        self.folder = folder
        whole = PagedGraph(folder, rows, cache_type=cache_type)  # reports what can't be run at once
        if len(devices) % stages:
            raise InvalidArgumentError(f"{len(devices)} devices can't have {stages} stages of as many devices each")
        if stages > 1:
            check_stages(folder, stages)
        self.stages = stages
        if not cache_memory and devices[0] == "host":
            cache_memory = min((1 + wanted_pages) * whole.page_bytes(), _free_host_memory() // 2)
        own = {"rows": rows, "cache_memory": cache_memory // len(devices), "wanted_pages": wanted_pages}
        own["host_memory"] = host_memory // len(devices)
        setup = rank_setup(devices, transport, threads, {**options, **own, "cache_type": cache_type}, stages)
        self._idle = threading.Condition()  # commands are sent with it
        self._flying = 0  # steps whose answers have not been read
        self._turn = 0  # how often the processes were started again
        self._prepared: set[tuple[StepKind, bool]] = set()
        super().__init__(folder, devices, {**setup, "engine": True})
        about = self._ask("about", equal=False)
        self.pages = min(pages for pages, *_ in about)
        self.page_bytes = sum(each for _, each, _ in about)
        self.host_places = min(places for *_, places in about)
        self.copies = _RankCopies(self)
        self._inputs = StepInputs(folder, whole.step, rows, 0)

    def joins(self, part: Piece, answers: Sequence[Piece]) -> bool:
        """See PagedDecoder."""
        return False

    def program(self, kind: StepKind, single: bool) -> None:
        """Compiles the program of a step, between steps."""
        with self._idle:
            self._idle.wait_for(lambda: self._flying == 0)
            if (kind, single) not in self._prepared:
                self._ask("prepare", kind, single)
                self._prepared.add((kind, single))

    def warm_up(self, kind: StepKind, sequences: int, tokens: int, beside: Callable[[int], int]) -> int:
        """See StepDecoder."""
        with self._idle:
            self._idle.wait_for(lambda: self._flying == 0)
            self._prepared |= {(kind, False), (kind, True)}
            return min(int(made) for made in self._ask("warm_up", kind, sequences, tokens, equal=False))

    def start(self, pieces: Sequence[Piece], kind: StepKind, single: bool) -> Callable[[], Chosen]:
        """Computes the pieces together. What it returns waits for the results; results are read in the order of the steps."""
        results = giving(pieces)
        values = self._inputs.whole(pieces, results, kind)
        with self._idle:
            turn = self._turn
            self._tell("step", values, kind, single, same_shape(pieces), len(results))
            self._flying += 1

        def wait() -> Chosen:
            if turn != self._turn:
                raise CachesLostError("the processes of the devices have been started again")
            try:
                found = {n: np.asarray(x) for n, x in self._receive()[-1].items()}
            except Error as error:
                self._again()
                raise CachesLostError(str(error)) from None
            with self._idle:
                self._flying -= 1
                self._idle.notify_all()
            return chosen_of(found, len(results), kind) if results else Chosen([])

        return wait

    def copy_pages(self, what: str, first: Sequence[int], then: Sequence[int]) -> None:
        """See HostCopies; `what` is the name of its function. In the order of the steps, and without an answer."""
        with self._idle:
            self._tell(what, list(first), list(then))

    def _again(self) -> None:
        """Starts the processes again: after an error, their group can't be used any more."""
        with self._idle:
            self.close()
            self._turn += 1
            self._flying = 0
            self._prepared.clear()
            self._start()
            self._idle.notify_all()


class _RankCopies:
    """The pages' parts of all devices together."""

    def __init__(self, decoder: ParallelPagedDecoder):
        self._decoder = weakref.proxy(decoder)

    def take(self, pages: Sequence[int], places: Sequence[int]) -> None:
        self._decoder.copy_pages("take", pages, places)

    def give(self, places: Sequence[int], pages: Sequence[int]) -> None:
        self._decoder.copy_pages("give", places, pages)
