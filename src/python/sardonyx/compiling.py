"""Compiling models, and loading compiled programs."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Union

from . import _sardonyx
from ._sardonyx import Communicator
from .errors import InvalidArgumentError
from .model import Model
from .options import describes_options, native_options
from .tensorflow import convert as from_tensorflow

if TYPE_CHECKING:
    import keras
    import tensorflow
    import torch
    from typing_extensions import Unpack

    from .option_types import CompileOptions, LoadOptions


class ModelProto(Protocol):
    """An onnx.ModelProto; Sardonyx itself does not need the onnx package."""

    def SerializeToString(self) -> bytes: ...


Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, ModelProto]
TorchSource = Union["torch.nn.Module", "torch.export.ExportedProgram"]
TensorFlowSource = Union["keras.Model", "tensorflow.types.experimental.PolymorphicFunction"]


class KernelCode(NamedTuple):
    """Resources of a GPU kernel. None: unknown, because the driver compiles PTX."""

    kernel: str
    nodes: tuple[str, ...]  #: the model's nodes that it computes
    vgprs: int | None
    agprs: int | None
    sgprs: int | None
    vgpr_spills: int | None
    sgpr_spills: int | None
    scratch_bytes: int | None
    lds_bytes: int
    waves_per_simd: int | None  #: occupancy
    code_bytes: int
    instructions: int
    matrix_instructions: int
    verdict: str  #: "good", or what is wrong


class LaunchEstimate(NamedTuple):
    """One launch of a run on a GPU, by estimate()."""

    kernel: str
    nodes: tuple[str, ...]  #: the model's nodes that it computes
    bytes: float  #: read and written; every tensor counts once and completely
    operations: float  #: of GEMM, convolution and attention; a multiply-add is two
    roofline: float  #: seconds: the longer of bytes / memory bandwidth and operations / peak rate
    tiling: float  #: Hopper: seconds of a GEMM or convolution by the measured times of its tiling; 0: not known

    @property
    def seconds(self) -> float:
        """The longer of both."""
        return max(self.roofline, self.tiling)


class PassSnapshot(NamedTuple):
    """The graph after a pass of the optimiser that changed it."""

    pass_name: str  #: "import" before the first pass; docs/passes.md lists the others
    nested: str  #: for the graph of an If or Loop, its first node, as "name (operator)"; "" for the model's graph
    text: str  #: the graph; docs/passes.md describes the form


class Remark(NamedTuple):
    """A rewrite that a pass considered and did not do."""

    pass_name: str  #: or "groups", for the grouping into kernels
    node: str  #: the model's node, as "name (operator)"
    reason: str
    values: dict[str, str]  #: what decided, by name


class PassReport(NamedTuple):
    """What the passes of the optimiser did to a model, and what they did not do."""

    passes: list[PassSnapshot]  #: in the order in which they ran, without those that changed nothing
    remarks: list[Remark]  #: each once, in the order in which they were made


class Progress(NamedTuple):
    """The current stage of compiling."""

    stage: str  #: "reading", "importing", "compiling", "ready"
    done: int
    total: int  #: 0 if it is not known


def _path_or_bytes(model: Source) -> tuple[str, bytes]:
    path, data = "", b""
    if from_tensorflow.is_tensorflow(model):
        model = from_tensorflow.onnx_of(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
    elif isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if not path:
            raise InvalidArgumentError("the model's path is empty")
    elif hasattr(model, "SerializeToString"):
        data = model.SerializeToString()
    else:
        raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(model).__name__}")
    return path, data


def _is_torch(model: object) -> bool:
    """Whether torch.export has to do with it: a module, an exported program, or the path of a file of one (.pt2)."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model).endswith(".pt2")
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


@describes_options()
def compile(
    model: Source | TorchSource | TensorFlowSource,
    *,
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    tensorflow_inputs: Mapping[str, Sequence[int | None] | None] | None = None,
    tensorflow_outputs: Sequence[str] | None = None,
    signature: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    communicator: Communicator | None = None,
    progress: Callable[[Progress], object] | None = None,
    **options: Unpack[CompileOptions],
) -> Model:
    """Compiles a model for all sizes of its symbolic dims.

    model: path of an .onnx or .tflite file, the bytes of one, or an onnx.ModelProto. With torch installed also a
        torch.export.ExportedProgram, the path of a .pt2 file, or a torch.nn.Module with example_inputs: docs/pytorch.md.
        With tensorflow installed also a keras.Model, a tf.function, or the path of a SavedModel folder, a .keras or .h5
        file or a frozen graph (.pb): docs/tensorflow.md.
    example_inputs: of a module or a TensorFlow function: the arguments with which it is traced.
    dynamic_shapes: of a module: which dims vary, as torch.export takes it. None: all sizes are those of example_inputs.
    tensorflow_inputs: of a TensorFlow model: shapes of inputs by name, None for sizes that vary. A frozen graph is cut at these
        tensors.
    tensorflow_outputs: of a frozen graph: the names of its outputs. None: nodes that no other node reads.
    signature: of a SavedModel. None: "serving_default", or the only one.
    folder: directory of the external data, if the model is not a path. None: the model has none.
    communicator: the group of processes, from join(), for a model with collective operators (com.microsoft's AllReduce and
        AllGather).
    progress: called while compiling, possibly from another thread. Exceptions that it raises are raised when compiling is done.
    {options}

    Raises errors.Error: FileError, InvalidModelError, UnsupportedError, InvalidArgumentError.
    """
    wanted: dict[str, Any] = {"inputs": tensorflow_inputs, "outputs": tensorflow_outputs, "signature": signature}
    if from_tensorflow.is_tensorflow(model):
        if dynamic_shapes is not None or folder is not None:
            raise InvalidArgumentError("dynamic_shapes and folder are not for TensorFlow models; use tensorflow_inputs")
        model = from_tensorflow.onnx_of(model, example_inputs=example_inputs, **wanted)
    elif any(v is not None for v in wanted.values()):
        raise InvalidArgumentError("tensorflow_inputs, tensorflow_outputs and signature are for TensorFlow models")
    elif _is_torch(model) or example_inputs is not None or dynamic_shapes is not None:
        from .torch.export import onnx_of

        if folder is not None:
            raise InvalidArgumentError("a PyTorch program has no external data; leave out the folder")
        with tempfile.TemporaryDirectory(prefix="sardonyx-torch-") as temporary:
            written = onnx_of(model, example_inputs, dynamic_shapes, temporary)
            return compile(written, communicator=communicator, progress=progress, **options)
    path, data = _path_or_bytes(model)
    if folder is not None:
        if path:
            raise InvalidArgumentError("a model that is a path has its external data beside it; leave out the folder")
        path = os.fspath(folder) or "."
    report = None if progress is None else lambda stage, done, total: progress(Progress(stage, done, total))
    return Model(_sardonyx.compile(path, data, native_options("compile", options), communicator, report))


def compile_with_memory(data: bytes, memory: Mapping[str, tuple[int, int, object]], **options: Any) -> Model:
    """Compiles a serialised ONNX model whose external data is in memory, and stays there.

    memory: by the locations of the external data: address, size in bytes, and the object that owns the memory. The model
        keeps the owners.
    """
    return Model(_sardonyx.compile("", data, native_options("compile", options), None, None, dict(memory)))


@describes_options(at_load=True)
def load(path: str | os.PathLike[str], **options: Unpack[LoadOptions]) -> Model:
    """Loads what Model.save() wrote.

    The file is mapped for the weights, so it must not change while the model exists. It contains machine code: load only files
    that you would run as a program.

    {options}
    """
    return Model(_sardonyx.load(os.fspath(path), native_options("load", options, at_load=True)))


@describes_options()
def code_report(model: Source, target: str, **options: Unpack[CompileOptions]) -> list[KernelCode]:
    """Compiles a model for a GPU that need not be present ("gfx942", "sm_90"), and returns the resources that each kernel
    needs.

    {options}
    """
    path, data = _path_or_bytes(model)
    kernels = _sardonyx.code_report(path, data, target, native_options("code_report", options))
    return [KernelCode(**k) for k in kernels]


@describes_options()
def estimate(
    model: Source,
    target: str,
    *,
    sizes: Mapping[str, int] | None = None,
    folder: str | os.PathLike[str] | None = None,
    **options: Unpack[CompileOptions],
) -> list[LaunchEstimate]:
    """Compiles a model for a GPU that need not be present ("gfx942", "sm_90a"), and estimates the time of each launch of a run.
    The chip's default product is assumed. Not included: the time between launches, and copies to and from the GPU.

    sizes: of the symbols in the inputs' shapes.
    folder: directory of the external data, if the model is not a path. None: the model has none.
    {options}

    Raises errors.Error: as compile(), and InvalidArgumentError for a symbol without a size, or if the target is no GPU.
    """
    path, data = _path_or_bytes(model)
    if folder is not None:
        if path:
            raise InvalidArgumentError("a model that is a path has its external data beside it; leave out the folder")
        path = os.fspath(folder) or "."
    if target == "host":
        raise InvalidArgumentError("estimates are for GPUs; on the host, Model.profile() measures")
    native = native_options("estimate", options)
    return [LaunchEstimate(*e) for e in _sardonyx.estimate(path, data, target, native, dict(sizes or {}))]


@describes_options()
def pass_report(model: Source, target: str = "host", **options: Unpack[CompileOptions]) -> PassReport:
    """Runs the optimiser, and returns what each pass did and what was not fused, with the reasons.

    The same as `sardonyx inspect --passes --remarks --json`. No code is compiled, and the GPU need not be present.

    target: "host", or the GPU to optimise for ("gfx942", "sm_90"); `device` is not used.
    {options}

    Raises errors.Error: as compile(), and UnsupportedError for a model whose graph depends on the value of an input.
    """
    path, data = _path_or_bytes(model)
    passes, remarks = _sardonyx.pass_report(path, data, target, native_options("pass_report", options))
    return PassReport([PassSnapshot(*p) for p in passes], [Remark(*r) for r in remarks])
