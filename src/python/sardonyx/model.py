"""Compiled models: running, inspecting and saving them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _sardonyx
from ._sardonyx import Stream, Tensor
from .arrays import Card, Raw, input_array, numpy_dtype, output_array, output_memory
from .errors import InvalidArgumentError

Array = np.ndarray[Any, Any]


class TensorInfo(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: np.dtype[Any]
    #: Numbers; symbols ("batch") and expressions of them ("2*n + 1") as text. None: any rank.
    shape: tuple[int | str, ...] | None


class Kernel(NamedTuple):
    """One launch of a run."""

    kind: str  #: "loop", "tile" (GEMM, convolution, attention) or "routine"
    name: str
    nodes: tuple[str, ...]  #: the model's nodes that it computes, as "name (operator)"


class Node(NamedTuple):
    """A node of the model's file."""

    name: str  #: "" if it has none
    operator: str  #: "Conv"; of other domains "com.microsoft::MatMulNBits"
    inputs: tuple[str, ...]  #: "" for those left out
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.operator})" if self.name else self.operator


class Step(NamedTuple):
    """How long one step of a profiled run took."""

    kernel: str
    nodes: str
    seconds: float


class Compiled(NamedTuple):
    """How far the compilation of kernels is. An object holds one kernel or a few."""

    objects: int  #: of all programs in use
    ready: int  #: those that have been compiled
    on_demand: int  #: of these, the ones that compiling the model or a run waited for; the others were compiled in the background


class Quantization(NamedTuple):
    """How the GEMMs and convolutions of a model run with precision "int8" or "fp8"."""

    quantized: int  #: GEMMs and convolutions that run in 8 bits
    in_float: tuple[str, ...]  #: the others, each with its reason


class Memory(NamedTuple):
    """Memory of one run, in bytes."""

    weights: int
    inputs: int
    outputs: int
    arena: int  #: intermediate values; those with disjoint lifetimes share memory
    live: int  #: maximum of these alive at the same time
    temporaries: int  #: sum of the intermediate values, without sharing
    unplanned: int  #: number of tensors whose sizes depend on data; not counted above


class MemoryInUse(NamedTuple):
    """Device memory that a compiled model uses, in bytes."""

    constants: int  #: weights, and what is computed from them once
    arena: int  #: the largest arena of a run so far
    now: int  #: GPU: allocated now
    peak: int  #: GPU: maximum of `now` so far


class Traffic(NamedTuple):
    """Bytes and operations of one launch, for a roofline. Every tensor counts once and completely; operations are those of
    GEMM, convolution and attention."""

    kind: str  #: "loop", "tile" or "routine"
    name: str  #: of the kernel, or of those among which sizes choose, with commas
    nodes: tuple[str, ...]
    bytes_read: float
    bytes_written: float
    operations: float  #: a multiply-add is two


def _dim(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _infos(listed: list[tuple[str, str, list[str], bool]]) -> list[TensorInfo]:
    return [
        TensorInfo(name, numpy_dtype(dtype), tuple(map(_dim, shape)) if known_rank else None)
        for name, dtype, shape, known_rank in listed
    ]


def inputs_of_call(inputs: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of `model(inputs, **named)`."""
    both = {**(inputs or {}), **named}
    if inputs and len(both) < len(inputs) + len(named):
        raise InvalidArgumentError(f"input '{next(n for n in named if n in inputs)}' is given twice")
    return both


def _copies(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[int, int, int]]:
    """Addresses and bytes of copies (to, from)."""
    found = []
    for pair in pairs:
        if pair[0].nbytes != pair[1].nbytes:
            raise InvalidArgumentError(f"a copy of {pair[1].nbytes} bytes to {pair[0].nbytes}")
        to, start = (x.ctypes.data if isinstance(x, np.ndarray) else x.address for x in pair)
        found.append((to, start, pair[0].nbytes))
    return found


class BoundRun:
    """A run bound to its tensors; see Model.bind()."""

    def __init__(self, native: _sardonyx.BoundRun, kept: Any):
        self._native, self._kept = native, kept

    def __call__(self) -> None:
        """Runs again."""
        self._native()

    def wait(self) -> None:
        """Waits for the last run, but not for later work on its stream."""
        self._native.wait()


class Model:
    """A compiled model. Made by compile() or load(). All members are thread-safe."""

    def __init__(self, native: _sardonyx.Model):
        self._native = native
        self._inputs = _infos(native.inputs())
        self._dtypes = {i.name: i.dtype for i in self._inputs}
        self._device = native.device()
        self._streams: list[Stream] = []  # idle ones

    @property
    def inputs(self) -> list[TensorInfo]:
        """Name, dtype and shape of each input."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[TensorInfo]:
        """Name, dtype and shape of each output."""
        return _infos(self._native.outputs())

    @property
    def device(self) -> str:
        """The device that runs it: "host", or a GPU's full name ("cuda:0")."""
        return self._device

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the model's file, by its author's names. Program files have none."""
        return self._native.metadata()

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the model's file, in its order, without those of nested graphs. Raises UnsupportedError for a model
        from load(), which has only its compiled form."""
        return [Node(name, op, tuple(ins), tuple(outs)) for name, op, ins, outs in self._native.nodes()]

    @property
    def symbols(self) -> list[str]:
        """Symbols in the inputs' dims, which the sizes of the inputs determine."""
        return self._native.symbols()

    @property
    def programs(self) -> int:
        """How many programs have been compiled: one serves all sizes, but values and sizes that decide ranks need their own."""
        return self._native.program_count()

    def wait(self) -> None:
        """Returns when all kernels are compiled, also those that runs so far did not need: unless the option `compile_ahead`
        is set, they compile in the background. Uses all threads. Raises CompileError."""
        self._native.wait()

    @property
    def compiled(self) -> Compiled:
        """How far the compilation of kernels is."""
        return Compiled(*self._native.compiled())

    @property
    def quantization(self) -> Quantization:
        """Which GEMMs and convolutions run in 8 bits, with precision "int8" or "fp8"."""
        quantized, in_float = self._native.quantization()
        return Quantization(quantized, tuple(in_float))

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """Runs the model: `model(x=array)`, or `model({"x:0": array})` for names that are not Python identifiers."""
        return self.run(inputs_of_call(inputs, named))

    def run(self, inputs: Mapping[str, Any], *, threads: int = 0) -> dict[str, Array]:
        """Runs the model on inputs by name; returns outputs by name, in the model's order.

        Inputs are numpy arrays, objects with `__dlpack__` in host memory or on the model's device, or numbers and lists.
        Row-major ones are read in place and must not change during the run, which releases the GIL. `threads`: 0 for the number
        given to compile().
        """
        return {name: output_array(t) for name, t in self._run(inputs, threads=threads)[0].items()}

    def run_tensors(
        self,
        inputs: Mapping[str, Any],
        *,
        on_device: bool = False,
        outputs: Mapping[str, Any] | None = None,
        stream: Stream | int | None = None,
        synchronize: bool = True,
        threads: int = 0,
    ) -> dict[str, Any]:
        """run() with tensors of other libraries and in device memory. Outputs are Tensors, which have `__dlpack__` for every
        dtype, including bfloat16 and float8.

        on_device: outputs stay in the memory of the model's device.
        outputs: memory for some outputs by name: writable numpy arrays, or objects with `__dlpack__` in host or device memory,
            of the output's dtype and shape. They are returned in place of new ones.
        stream: of the model's device, a Stream or the driver's handle (`torch.cuda.current_stream().cuda_stream`), on which the
            run is enqueued; None: a stream of the model's own.
        synchronize: if False, with a stream: returns when the run has been enqueued. Inputs and outputs must then stay alive
            and unchanged until the run is done. Outputs in host memory are complete even then.
        """
        given = dict(outputs or {})
        tensors = self._run(
            inputs, threads=threads, on_device=on_device, outputs=given, stream=stream, wait=synchronize
        )[0]
        return {info: given[info] if info in given else tensors[info] for info in self._output_names()}

    def bind(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        *,
        stream: Stream | int | None = None,
        synchronize: bool = True,
        threads: int = 0,
        uploads: Sequence[tuple[Tensor, Array]] = (),
        downloads: Sequence[tuple[Array, Tensor]] = (),
    ) -> BoundRun:
        """Prepares a run on these tensors. Each call `bound()` then reads the inputs in place and writes the outputs to the
        given memory, as run_tensors() does, with little CPU time. For loops that use the same memory again and again.

        The tensors must be row-major, and their memory must stay valid. Work of other libraries on them is ordered with the
        stream only once, by this call; later, enqueue such work on the same stream, or wait for it.

        uploads, downloads: pairs (to, from) of a tensor in GPU memory and an array of as many bytes in memory of pinned().
        They are copied before and after each run, in the stream's order; they need synchronize=False. An array must not change
        from the call until wait().
        """
        for name, value in inputs.items():
            if not hasattr(value, "__dlpack__") or np.isscalar(value):
                raise InvalidArgumentError(f"input '{name}' is not a tensor in memory but a {type(value).__name__}")
        with self._card(stream, synchronize) as card:
            raw, places, kept = self._places(card, inputs, outputs)
            for (name, value), owner in zip(inputs.items(), kept):
                copied = isinstance(owner, np.ndarray) and not isinstance(value, np.ndarray)
                if copied or (isinstance(value, np.ndarray) and raw[name][0] != value.ctypes.data):
                    raise InvalidArgumentError(
                        f"input '{name}' is not row-major and aligned; it would have to be copied"
                    )
            if card is not None and stream is None:
                card.stream.synchronize()  # runs have other streams of the model's
            handle = 0 if card is None or stream is None else card.handle
            copies = [_copies(pairs) for pairs in (uploads, downloads)]
            native = self._native.bind(raw, places, threads, handle, synchronize, *copies)
            return BoundRun(native, (self._native, stream, kept, uploads, downloads))

    def profile(self, inputs: Mapping[str, Any], *, threads: int = 0) -> tuple[dict[str, Array], list[Step]]:
        """Runs once; returns the outputs and the time of each step."""
        tensors, steps = self._run(inputs, threads=threads, profile=True)
        return {name: output_array(t) for name, t in tensors.items()}, [Step(*s) for s in steps]

    def output_shapes(
        self, shapes: Mapping[str, Sequence[int]] | None = None, /, **named: Sequence[int]
    ) -> dict[str, tuple[int | None, ...]]:
        """The outputs' shapes for inputs of these shapes, without running; None where a dim depends on data."""
        given = {name: [int(d) for d in shape] for name, shape in {**(shapes or {}), **named}.items()}
        found = self._native.output_dims(given)
        return {name: tuple(None if d < 0 else d for d in dims) for name, dims in found.items()}

    def kernels(self) -> list[Kernel]:
        """The launches of a run, in order; of an If those of both branches, of a Loop those of one iteration."""
        return [Kernel(kind, name, tuple(nodes)) for kind, name, nodes in self._native.kernels()]

    def memory(self, dims: Mapping[str, int] | None = None, /, **named: int) -> Memory:
        """Memory of one run for these sizes of `symbols`."""
        return Memory(**self._native.memory({**(dims or {}), **named}))

    def memory_in_use(self) -> MemoryInUse:
        """Device memory in use."""
        return MemoryInUse(**self._native.memory_in_use())

    def traffic(self, shapes: Mapping[str, Sequence[int]] | None = None, /, **named: Sequence[int]) -> list[Traffic]:
        """Bytes and operations of each launch of a run, for inputs of these shapes."""
        given = {name: [int(d) for d in shape] for name, shape in {**(shapes or {}), **named}.items()}
        return [Traffic(kind, name, tuple(nodes), *rest) for kind, name, nodes, *rest in self._native.traffic(given)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled program with its weights to one file, for load()."""
        self._native.save(os.fspath(path))

    def _output_names(self) -> list[str]:
        return [name for name, *_ in self._native.outputs()]

    @contextlib.contextmanager
    def _card(self, stream: Stream | int | None, wait: bool) -> Iterator[Card | None]:
        """The model's device, with the stream on which other libraries' tensors are used; None on the host."""
        if self._device == "host":
            yield None
            return
        own = self._streams.pop() if self._streams else Stream(self._device)
        try:
            if isinstance(stream, Stream) and stream.device != self._device:
                raise InvalidArgumentError(f"the stream is of {stream.device}, and the model runs on {self._device}")
            if stream is None and not wait:
                raise InvalidArgumentError("synchronize=False needs a stream")
            yield Card(self._device, own, self._handle(own if stream is None else stream))
        finally:
            self._streams.append(own)

    def _handle(self, stream: Stream | int) -> int:
        handle = stream.handle if isinstance(stream, Stream) else int(stream)
        if handle:
            return handle
        if self._device.startswith("cuda"):
            return 1  # CUDA's name for the default stream
        raise InvalidArgumentError(
            f"the default stream of {self._device} has no handle; pass another stream (torch.cuda.Stream())"
        )

    def _places(
        self, card: Card | None, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> tuple[dict[str, Raw], dict[str, Raw], list[Any]]:
        """Addresses of inputs and outputs, and the objects that keep them alive."""
        kept: list[Any] = []
        raw: dict[str, Raw] = {}
        places: dict[str, Raw] = {}
        for name, value in inputs.items():
            owner, raw[name] = input_array(name, value, self._dtypes.get(name), card)
            kept.append(owner)
        for name, value in outputs.items():
            owner, places[name] = output_memory(name, value, card)
            kept.append(owner)
        return raw, places, kept

    def _run(
        self,
        inputs: Mapping[str, Any],
        *,
        threads: int = 0,
        profile: bool = False,
        on_device: bool = False,
        outputs: Mapping[str, Any] | None = None,
        stream: Stream | int | None = None,
        wait: bool = True,
    ) -> tuple[dict[str, Tensor], list[tuple[str, str, float]]]:
        with self._card(stream, wait) as card:
            raw, places, kept = self._places(card, inputs, outputs or {})
            handle = 0 if card is None else card.handle
            found = self._native.run(raw, places, on_device, threads, profile, handle, wait)
            del kept
            return found

    def __repr__(self) -> str:
        def text(infos: list[TensorInfo]) -> str:
            dims = [("?" if i.shape is None else ", ".join(map(str, i.shape))) for i in infos]
            return ", ".join(f"{i.name}: {i.dtype.name}[{d}]" for i, d in zip(infos, dims))

        return f"<sardonyx.Model ({text(self._inputs)}) -> ({text(self.outputs)})>"
