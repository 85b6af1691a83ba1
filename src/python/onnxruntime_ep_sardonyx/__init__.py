"""Sardonyx as a plugin execution provider of ONNX Runtime.

    import onnxruntime as ort
    import onnxruntime_ep_sardonyx as ep

    devices = ep.register()                       # what ONNX Runtime calls OrtEpDevices
    options = ort.SessionOptions()
    options.add_provider_for_devices(devices[:1], {})
    session = ort.InferenceSession("model.onnx", options)

The environment variable SARDONYX_DEVICE says what to run on before register() is called: unset for all AMD GPUs,
"host" for the CPU, "sim:gfx1100" for a simulated card.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

_NAME = "AMDGPUExecutionProvider"
_LIBRARY = "libamdgpu-ep.so"


def get_ep_name() -> str:
    """The execution provider's name."""
    return _NAME


def get_ep_names() -> list[str]:
    """The names of all execution providers in the library: one."""
    return [_NAME]


def get_library_path() -> str:
    """The path of the library that onnxruntime.register_execution_provider_library() takes."""
    here = Path(__file__).resolve().parent
    for path in (here / _LIBRARY, here.parent.parent / "lib" / _LIBRARY):  # installed; in a build tree
        if path.is_file():
            return str(path)
    raise FileNotFoundError(f"{_LIBRARY} is not in {here}: this copy of the package was made without the provider")


def register(name: str = _NAME) -> list[Any]:
    """Registers the library with the onnxruntime package under `name`, if it is not yet, and returns its devices.

    The list is empty where no device can be used; ONNX Runtime's log says why.
    """
    import onnxruntime as ort

    found = [d for d in ort.get_ep_devices() if d.ep_name == _NAME]
    if not found and name not in _registered:
        ort.register_execution_provider_library(name, get_library_path())
        _registered.add(name)
        found = [d for d in ort.get_ep_devices() if d.ep_name == _NAME]
    return found


def unregister(name: str = _NAME) -> None:
    """Undoes register(). All sessions that use the provider must be gone."""
    import onnxruntime as ort

    ort.unregister_execution_provider_library(name)
    _registered.discard(name)


_registered: set[str] = set()


def torch_memory() -> dict[str, str]:
    """Options with which a session takes all its device memory from PyTorch's caching allocator, on PyTorch's current
    device. PyTorch must be built for the card. The options are good for the rest of the process."""
    if not _torch_memory:
        import torch

        @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
        def allocate(size: int) -> int:
            try:
                return int(torch.cuda.caching_allocator_alloc(size))
            except RuntimeError:  # out of memory, which null stands for
                return 0

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def free(address: int) -> None:
            torch.cuda.caching_allocator_delete(address)

        @ctypes.CFUNCTYPE(None)
        def empty_cache() -> None:
            torch.cuda.empty_cache()

        functions = {"alloc": allocate, "free": free, "empty_cache": empty_cache}
        _torch_memory.update({f"gpu_external_{name}": f for name, f in functions.items()})
    address = lambda f: str(ctypes.cast(f, ctypes.c_void_p).value)
    return {name: address(f) for name, f in _torch_memory.items()}


_torch_memory: dict[str, Any] = {}  #: keeps the functions, whose addresses sessions have
