"""Sardonyx compiles ONNX models and runs them.

    import sardonyx

    model = sardonyx.compile("model.onnx")
    outputs = model(x=array)            # a dict of output names to numpy arrays

See compile() for options, Model for what a compiled model can do, and errors for what is raised.
"""

from . import loading  # noqa: F401  # isort: skip  # first: it loads the native module
from . import errors
from ._sardonyx import Communicator, Stream, Tensor, __version__
from .compiling import (
    KernelCode,
    LaunchEstimate,
    PassReport,
    PassSnapshot,
    Progress,
    Remark,
    code_report,
    compile,
    estimate,
    load,
    pass_report,
)
from .custom import Launch, custom_operator, custom_operators, load_custom_operators
from .device import Device, chips, copy, devices, empty, pinned, to_device
from .errors import (
    CompileError,
    DeviceError,
    Error,
    FileError,
    InternalError,
    InvalidArgumentError,
    InvalidModelError,
    MismatchError,
    OverloadedError,
    UnsupportedError,
)
from .group import join
from .model import (
    BoundRun,
    Compiled,
    Kernel,
    Memory,
    MemoryInUse,
    Model,
    Node,
    Quantization,
    Step,
    TensorInfo,
    Traffic,
)
from .quantization import Evaluation, Quantized, QuantizeReport, TextAgreement, ValueAgreement, evaluate, quantize
from .replicas import ReplicatedModel, compile_replicas

__all__ = [
    "BoundRun",
    "Communicator",
    "CompileError",
    "Compiled",
    "Device",
    "DeviceError",
    "Error",
    "Evaluation",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidModelError",
    "Kernel",
    "KernelCode",
    "Launch",
    "LaunchEstimate",
    "Memory",
    "MemoryInUse",
    "MismatchError",
    "Model",
    "Node",
    "OverloadedError",
    "PassReport",
    "PassSnapshot",
    "Progress",
    "Quantization",
    "QuantizeReport",
    "Quantized",
    "Remark",
    "ReplicatedModel",
    "Step",
    "Stream",
    "Tensor",
    "TensorInfo",
    "TextAgreement",
    "Traffic",
    "UnsupportedError",
    "ValueAgreement",
    "__version__",
    "chips",
    "code_report",
    "compile",
    "compile_replicas",
    "copy",
    "custom_operator",
    "custom_operators",
    "devices",
    "empty",
    "errors",
    "estimate",
    "evaluate",
    "join",
    "load",
    "load_custom_operators",
    "pass_report",
    "pinned",
    "quantize",
    "to_device",
]
