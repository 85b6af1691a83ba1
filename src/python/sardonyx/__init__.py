"""Sardonyx compiles ONNX models and runs them.

    import sardonyx

    model = sardonyx.compile("model.onnx")
    outputs = model(x=array)            # a dict of output names to numpy arrays

See compile() for options, Model for what a compiled model can do, and errors for what is raised.
"""

from . import errors
from ._sardonyx import Stream, Tensor, __version__
from .errors import (
    CompileError,
    DeviceError,
    Error,
    FileError,
    InternalError,
    InvalidArgumentError,
    InvalidModelError,
    MismatchError,
    UnsupportedError,
)
from .model import (
    BoundRun,
    Device,
    Kernel,
    KernelCode,
    Memory,
    MemoryInUse,
    Model,
    Progress,
    Quantization,
    Step,
    TensorInfo,
    Traffic,
    code_report,
    compile,
    copy,
    devices,
    empty,
    load,
    to_device,
)

__all__ = [
    "BoundRun",
    "CompileError",
    "Device",
    "DeviceError",
    "Error",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidModelError",
    "Kernel",
    "KernelCode",
    "Memory",
    "MemoryInUse",
    "MismatchError",
    "Model",
    "Progress",
    "Quantization",
    "Step",
    "Stream",
    "Tensor",
    "TensorInfo",
    "Traffic",
    "UnsupportedError",
    "__version__",
    "code_report",
    "compile",
    "copy",
    "devices",
    "empty",
    "errors",
    "load",
    "to_device",
]
