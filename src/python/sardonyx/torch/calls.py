"""Calls of a compiled program. What follows from the sizes of the inputs is found once for each set of sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..arrays import Raw
from .graph import NAMES, Program, Roles, in_memory
from .sizes import dims_of

#: Sets of sizes of a program whose calls are kept.
MOST_CALLS = 256

#: PyTorch's allocation for compiled code, which takes a third of the time of torch.empty; None in versions without it.
_empty_on: dict[str, Callable[..., torch.Tensor] | None] = {
    kind: getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", None) for kind in ("cpu", "cuda")
}


def sizes_of(roles: Roles, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a call depends on, besides addresses."""
    return tuple([x if isinstance(x := inputs[k], int) else x.shape for k in roles.tensors])


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class Call:
    """A program for inputs of certain sizes.

    On a GPU in the memory of torch's allocator and on its current stream, so that nothing waits. Tensors are given by
    address rather than by DLPack: they are torch's, of this stream, and a call takes microseconds."""

    def __init__(self, program: Program, roles: Roles, inputs: Sequence[Any]):
        assert program.model is not None
        self.program, self.native = program, program.model._native
        self.on_gpu = program.device.type == "cuda"
        at = dict(zip(program.names, zip(roles.tensors, program.channels_last, strict=True), strict=True))
        self.names = [i.name for i in program.model.inputs]
        self.taken = [at[n] for n in self.names]  # positions, and whether they are channels last
        self.changed = [(k, program.channels_last[roles.tensors.index(k)]) for k in program.changed]
        shapes = {n: list(in_memory(dims_of(inputs[k]), last)) for n, (k, last) in zip(self.names, self.taken)}
        found = program.model.output_shapes(shapes)
        self.made = [(o, found[o.name]) for o in program.outputs]
        self.sizes = [tuple(n or 0 for n in shape) for _, shape in self.made]  # known ones if there is a bound call
        self.strides = [strides_of(size) for size in self.sizes]
        self.bound: Any = None
        if all(None not in shape for _, shape in self.made):
            feed = {n: self.raw(0, inputs[k], shapes[n]) for n, (k, _) in zip(self.names, self.taken)}
            places = {
                o.name: (0, NAMES[o.dtype], list(size), o.device.type == "cuda")
                for (o, _), size in zip(self.made, self.sizes, strict=True)
            }
            self.bound = self.native.bind(feed, places, 0, 0, not self.on_gpu, [], [])

    @staticmethod
    def raw(address: int, x: Any, shape: Sequence[int]) -> Raw:
        return (0, "uint8", list(shape), False) if isinstance(x, int) else (address, NAMES[x.dtype], list(shape), x.is_cuda)  # fmt: skip

    def __call__(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The results that are wanted; changed inputs have been written."""
        kept: list[torch.Tensor] = []  # copies of what is not row-major
        addresses = []
        for k, last in self.taken:
            x = inputs[k]
            if isinstance(x, int):
                addresses.append(0)
                continue
            if last:
                x = in_memory(x, last)
            if not x.is_contiguous() or x.is_neg():
                x = x.detach().resolve_neg().contiguous()
                kept.append(x)
            addresses.append(x.data_ptr())
        got = self.run(addresses) if self.bound is not None else self.run_unsized(addresses, inputs)
        if not self.changed:
            return got
        for (k, last), result in zip(self.changed, got, strict=False):
            in_memory(inputs[k], last).copy_(result)
        return got[len(self.changed) :]

    def run(self, addresses: list[int]) -> list[torch.Tensor]:
        got = [
            empty(size, strides, o.dtype, o.device)
            for (o, _), size, strides in zip(self.made, self.sizes, self.strides, strict=True)
        ]
        places = [x.data_ptr() for x in got]
        if not self.on_gpu:
            self.bound.at(addresses, places, 0)
            return got
        with stream_of(self.program.device) as stream:
            self.bound.at(addresses, places, stream)
        return got

    def run_unsized(self, addresses: list[int], inputs: Sequence[Any]) -> list[torch.Tensor]:
        """With results whose sizes depend on data."""
        feed = {
            name: self.raw(address, inputs[k], in_memory(dims_of(inputs[k]), last))
            for name, address, (k, last) in zip(self.names, addresses, self.taken, strict=True)
        }
        out = {
            o.name: torch.empty(shape, dtype=o.dtype, device=o.device) for o, shape in self.made if None not in shape
        }
        places = {name: (x.data_ptr(), NAMES[x.dtype], list(x.shape), x.is_cuda) for name, x in out.items()}
        if self.on_gpu:
            with stream_of(self.program.device) as stream:
                found = self.native.run(feed, places, True, 0, False, stream, False)[0]
        else:
            found = self.native.run(feed, places, False, 0, False, 0, True)[0]
        return [out[o.name] if o.name in out else torch.from_dlpack(found[o.name]).to(o.device) for o, _ in self.made]


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for a row-major tensor."""
    allocate = _empty_on.get(device.type)
    if allocate is None or (device.type == "cuda" and device.index != torch.cuda.current_device()):
        return torch.empty(shape, dtype=dtype, device=device)
    return allocate(shape, strides, dtype)


class Stream:
    """The number of torch's current stream, for a `with` that does nothing else."""

    def __init__(self, number: int):
        self.number = number

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *_: object) -> None:
        pass


def stream_of(device: torch.device) -> Any:
    """The driver's handle of torch's current stream. HIP's default stream has none: a stream beside it takes its place."""
    index = torch.cuda.current_device() if device.index is None else device.index
    handle = torch._C._cuda_getCurrentRawStream(index)
    if handle or not torch.version.hip:
        return Stream(handle or 1)  # CUDA's name for the default stream
    return stream_beside(device)


@contextlib.contextmanager
def stream_beside(device: torch.device) -> Iterator[int]:
    current = torch.cuda.current_stream(device)
    beside = torch.cuda.Stream(device)
    beside.wait_stream(current)
    yield beside.cuda_stream
    current.wait_stream(beside)


def run(call: Call | None, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """None: the graph computes nothing, and its results are views of inputs."""
    return [] if call is None else call(inputs)
