"""Steps of the engine with sizes that occur again: their tensors are kept, so that on GPUs each is one captured graph, and are
filled and read while other steps run.

On a GPU, a run's inputs that change lie in one block of device memory. A step fills a copy of the block in pinned memory, which
is uploaded in the stream's order, as the results are downloaded. So steps can be started before the results of earlier ones
have been read; each of them takes a copy of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from .._sardonyx import Stream, Tensor
from ..device import empty, pinned, to_device
from ..model import BoundRun, Model
from .paged_sampling import StepKind
from .step_inputs import StepInputs, complete
from .step_programs import DeviceTensors, StepPrograms
from .step_sizes import PART

Array = np.ndarray[Any, Any]
_MOST_KEPT = 768  #: sizes of steps whose tensors are kept
_ALIGNMENT = 256  # bytes, of tensors in the block
#: Sizes to which the tokens of a prompt's part are rounded up.
_TOKENS = [
    *range(16, 65, 16),
    *range(96, 257, 32),
    *range(320, 513, 64),
    *range(640, 1025, 128),
    *range(1280, 2049, 256),
]


def rounded_tokens(count: int) -> int:
    """At least `count`, at most a quarter more above 64; few sizes."""
    return next((size for size in _TOKENS if size >= count), -(-count // 512) * 512)


def powers(most: int) -> list[int]:
    """1, 2, 4 ..., the last of which is at least `most`; the largest first."""
    return [1 << k for k in reversed(range((most - 1).bit_length() + 1))]


class Block:
    """Arrays side by side, each aligned, and their places."""

    def __init__(self, arrays: Mapping[str, Array]):
        self.bytes = 0
        self.places: dict[str, tuple[int, Array]] = {}
        for name, x in arrays.items():
            self.places[name] = self.bytes, x
            self.bytes += -(-x.nbytes // _ALIGNMENT) * _ALIGNMENT

    def views(self, memory: Array) -> dict[str, Array]:
        """The arrays in `memory`, uint8 [bytes]."""
        return {n: memory[at : at + x.nbytes].view(x.dtype).reshape(x.shape) for n, (at, x) in self.places.items()}


class Side:
    """Host memory of one step in flight."""

    def __init__(self, device: str, changing: Block, results: Block, bind: Callable[[Array, Array], BoundRun]):
        memory, back = (pinned([max(b.bytes, 1)], np.uint8, device) for b in (changing, results))
        self.values, self.found = changing.views(memory), results.views(back)
        for name, (_, x) in changing.places.items():
            self.values[name][...] = x
        self.run = bind(memory, back)


class GpuRun:
    """A step with fixed sizes on a GPU."""

    def __init__(
        self,
        model: Model,
        device: str,
        stream: Stream,
        constant: Mapping[str, Array],
        changing: Mapping[str, Array],
        results: Mapping[str, Array],
        tensors: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    ):
        """constant, changing: inputs, the latter with the values of unused places; results: outputs that are read, for their
        shapes; tensors: inputs and outputs that stay on the device."""
        self._device, self._changing, self._results = device, Block(changing), Block(results)
        there = empty([max(self._changing.bytes, 1)], np.uint8, device)
        back = empty([max(self._results.bytes, 1)], np.uint8, device)

        def parts(block: Block, whole: Tensor) -> dict[str, Tensor]:
            return {n: whole._part(at, x.dtype.name, list(x.shape)) for n, (at, x) in block.places.items()}

        inputs = {
            **{n: to_device(x, device) for n, x in constant.items()},
            **parts(self._changing, there),
            **tensors[0],
        }
        outputs = {**parts(self._results, back), **tensors[1]}

        def bind(memory: Array, read: Array) -> BoundRun:
            return model.bind(
                inputs, outputs, stream=stream, synchronize=False, uploads=[(there, memory)], downloads=[(read, back)]
            )

        self._bind = bind
        self._idle: list[Side] = []

    def side(self) -> Side:
        """Memory for a step, of which release() must be called when its results have been read."""
        return self._idle.pop() if self._idle else Side(self._device, self._changing, self._results, self._bind)

    def release(self, side: Side) -> None:
        self._idle.append(side)

    def warm_up(self) -> None:
        """Runs it with the values of unused places, until it is a captured graph. Then no later step allocates memory, if no
        more than two of one size are in flight."""
        sides = [self.side() for _ in range(2)]
        for side in sides:
            side.run()
        for side in sides:
            side.run.wait()
            self.release(side)


class HostRun:
    """A step with fixed sizes on the host. `found` has the results of the last one."""

    def __init__(
        self, model: Model, values: dict[str, Array], found: dict[str, Array], tensors: DeviceTensors, kind: StepKind
    ):
        """values: all inputs but those of `tensors`, with the values of unused places."""
        self._values, self.found = values, found
        self._run = model.bind({**values, **tensors.inputs(kind)}, {**found, **tensors.outputs()})

    def start(self, values: Mapping[str, Array]) -> None:
        """Computes a step, perhaps of fewer sequences."""
        complete(self._values, values)
        self._run()


_Run = TypeVar("_Run", HostRun, GpuRun)


class StepRuns:
    """The runs of a decoder's steps by their sizes; those used least recently go when there are too many."""

    def __init__(self, programs: StepPrograms, inputs: StepInputs, tensors: DeviceTensors, device: str):
        self._programs, self._inputs, self._tensors, self._device = programs, inputs, tensors, device
        self.stream = None if device == "host" else Stream(device)
        self.kept: OrderedDict[tuple[Any, ...], HostRun | GpuRun] = OrderedDict()

    def _keep(self, key: tuple[Any, ...], make: Callable[[], _Run]) -> _Run:
        if key not in self.kept:
            while len(self.kept) >= _MOST_KEPT:
                self.kept.popitem(last=False)
            self.kept[key] = make()
        self.kept.move_to_end(key)
        return self.kept[key]  # type: ignore[return-value] # a key has the runs of one kind

    def host(self, kind: StepKind, size: int, columns: int, count: int, results: int) -> HostRun:
        """Of `count` tokens, mostly one, for each of up to `size` sequences, the last `results` of which give a token.
        columns: of the table."""

        def make() -> HostRun:
            values = self._values(kind, False, size, columns, count, results)
            found = self._programs.results(kind, False, size * count, size * results)
            return HostRun(self._programs.get(kind, False), values, found, self._tensors, kind)

        return self._keep((kind, size, columns, count, results), make)

    def gpu(self, kind: StepKind, single: bool, size: int, columns: int, count: int, results: int) -> GpuRun:
        """The same on a GPU; single: see PagedGraph.build()."""

        def make() -> GpuRun:
            one = count == 1 and not single
            values = self._values(kind, single, size, columns, count, results)
            fixed = ("cumulative",) if single else ("cumulative", "rows")
            constant = {n: values.pop(n) for n in fixed if n in values}
            found = self._programs.results(kind, single, size * count, size * results, one=one)
            return self._gpu(self._programs.get(kind, single, one=one), kind, constant, values, found)

        return self._keep((kind, single, size, columns, count, results), make)

    def both(self, kind: StepKind, answers: int, tokens: int) -> GpuRun:
        """Of one token of each of up to `answers` sequences, and parts of prompts of up to `tokens` together."""

        def make() -> GpuRun:
            values = self._inputs.unused_both(kind, answers, tokens)
            ends = np.array([*range(answers), *range(answers, answers + tokens, PART), answers + tokens], np.int32)
            found = self._programs.results(kind, False, answers + tokens, answers, True)
            return self._gpu(self._programs.get(kind, False, True), kind, {"cumulative": ends}, values, found)

        return self._keep((kind, "both", answers, tokens), make)

    def _values(
        self, kind: StepKind, single: bool, size: int, columns: int, count: int, results: int
    ) -> dict[str, Array]:
        values = {
            **self._inputs.unused(kind, size, count, results),
            "table": np.zeros((size, columns), np.int32),
        }
        one = self._device != "host" and count == 1 and not single
        read = {i.name for i in self._programs.get(kind, single, one=one).inputs}
        return {n: x for n, x in values.items() if n in read}

    def _gpu(
        self,
        model: Model,
        kind: StepKind,
        constant: dict[str, Array],
        values: dict[str, Array],
        found: dict[str, Array],
    ) -> GpuRun:
        assert self.stream is not None
        tensors = self._tensors.inputs(kind), self._tensors.outputs()
        return GpuRun(model, self._device, self.stream, constant, values, found, tensors)
