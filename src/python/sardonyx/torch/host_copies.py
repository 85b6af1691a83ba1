"""Copies of a GPU's weights in the host's memory, which a thread makes while their graph is traced and translated."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch

#: Smaller weights are copied when they are needed.
LEAST_BYTES = 1 << 16


def memory_of(x: torch.Tensor) -> Any:
    return x.data_ptr(), x.dtype, tuple(x.shape), x.stride()


class HostCopies:
    """Row-major copies of tensors in the host's memory. One call makes all of them without Python's lock, which each copy would
    otherwise wait for."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()):
        large = {memory_of(x): x.detach() for x in tensors if x.nbytes >= LEAST_BYTES}
        self.made: dict[Any, torch.Tensor] = {}
        self.thread: threading.Thread | None = None
        if not large:
            return
        stream = torch.cuda.current_stream(x.device) if (x := next(iter(large.values()))).is_cuda else None
        self.thread = threading.Thread(target=self.make, args=(large, stream), daemon=True)
        self.thread.start()

    def make(self, tensors: dict[Any, torch.Tensor], stream: Any) -> None:
        # What fails here is copied when it is needed, which raises the error.
        on = contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)
        with contextlib.suppress(Exception), torch.no_grad(), on:
            copies = [torch.empty(x.shape, dtype=x.dtype) for x in tensors.values()]
            torch._foreach_copy_(copies, list(tensors.values()))
            self.made = dict(zip(tensors, copies))

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """A row-major tensor in the host's memory: `x` itself, if it is one."""
        if self.thread is not None:
            self.thread.join()
            if (made := self.made.get(memory_of(x))) is not None:
                return made
        return x.detach().contiguous().cpu()  # a GPU changes the order of elements faster


def is_folded(gm: torch.fx.GraphModule) -> bool:
    """Whether tracing makes new weights of the graph's (batch_norm.py)."""
    return any("batch_norm" in str(n.target) for n in gm.graph.nodes)


@contextlib.contextmanager
def host_copies(gm: torch.fx.GraphModule, weights: Iterable[torch.Tensor]) -> Iterator[HostCopies]:
    """For weights of the graph on a GPU."""
    on_gpu = [x for x in weights if x.is_cuda]
    one = len({x.device for x in on_gpu}) == 1 and not is_folded(gm)
    copies = HostCopies(on_gpu if one else ())
    try:
        yield copies
    finally:
        if copies.thread is not None:
            copies.thread.join()  # nothing reads a weight later than its program is made
