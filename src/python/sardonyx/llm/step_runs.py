"""Steps of the engine with sizes that occur again: their tensors are kept, so that on GPUs each is one captured graph, and are
filled and read while other steps run.

On a GPU, a run's inputs that change lie in one block of device memory. A step fills a copy of the block in pinned memory, which
is uploaded in the stream's order, as the results are downloaded. So steps can be started before the results of earlier ones
have been read; each of them takes a copy of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import empty, pinned, to_device

if TYPE_CHECKING:
    from .._sardonyx import Stream, Tensor
    from ..model import BoundRun, Model

Array = np.ndarray[Any, Any]
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


def rounded_both(answers: int, tokens: int) -> tuple[int, int]:
    """The same for sequences of one token and the part of a prompt beside them. There is a graph for each pair of sizes, so
    sizes are fewer."""
    step = 64 if tokens <= 512 else 128 if tokens <= 1024 else 256
    return max(8, 1 << (answers - 1).bit_length()), -(-tokens // step) * step


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


class _Side:
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
        self._idle: list[_Side] = []

    def side(self) -> _Side:
        """Memory for a step, of which release() must be called when its results have been read."""
        return self._idle.pop() if self._idle else _Side(self._device, self._changing, self._results, self._bind)

    def release(self, side: _Side) -> None:
        self._idle.append(side)
