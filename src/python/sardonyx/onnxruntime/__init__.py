"""A drop-in for programs written for AMD's ROCm and MIGraphX providers: `import sardonyx.onnxruntime as ort`.

It is the onnxruntime package, in which the providers MIGraphXExecutionProvider and ROCMExecutionProvider, with their
options and the environment variables ORT_MIGRAPHX_*, mean AMDGPUExecutionProvider, and where the device types "cuda",
"hip" and "rocm" mean its memory. activate() does the same to the onnxruntime package itself, for programs whose imports
are somebody else's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime as _ort
import onnxruntime_ep_sardonyx as _ep
from onnxruntime import *  # noqa: F403  everything that is not replaced below

__version__ = _ort.__version__

NAME = _ep.get_ep_name()
ALIASES = ("MIGraphXExecutionProvider", "ROCMExecutionProvider", NAME)
_DEVICE_TYPES = ("cuda", "hip", "rocm", "migraphx", "amdgpu", "gpu")
_VENDOR = 0x1002

# The MIGraphX provider's environment variables, which override options, and the options that they are.
ENVIRONMENT = {
    "ORT_MIGRAPHX_FP16_ENABLE": "migraphx_fp16_enable",
    "ORT_MIGRAPHX_BF16_ENABLE": "migraphx_bf16_enable",
    "ORT_MIGRAPHX_FP8_ENABLE": "migraphx_fp8_enable",
    "ORT_MIGRAPHX_INT8_ENABLE": "migraphx_int8_enable",
    "ORT_MIGRAPHX_INT8_CALIBRATION_TABLE_NAME": "migraphx_int8_calibration_table_name",
    "ORT_MIGRAPHX_INT8_USE_NATIVE_CALIBRATION_TABLE": "migraphx_int8_use_native_calibration_table",
    "ORT_MIGRAPHX_CACHE_PATH": "migraphx_cache_dir",
    "ORT_MIGRAPHX_MODEL_CACHE_PATH": "migraphx_model_cache_dir",
    "ORT_MIGRAPHX_EXHAUSTIVE_TUNE": "migraphx_exhaustive_tune",
    "ORT_MIGRAPHX_MAX_DYNAMIC_BATCH": "migraphx_max_dynamic_batch",
    "ORT_MIGRAPHX_COMPILE_BATCHES": "migraphx_compile_batches",
    "ORT_MIGRAPHX_HIP_GRAPH_ENABLE": "migraphx_hip_graph_enable",
    "ORT_MIGRAPHX_COALESCE_IO": "migraphx_coalesce_io",
    "ORT_MIGRAPHX_DUMP_MODEL_OPS": "dump_model_ops",
}

_Session = _ort.InferenceSession
_OrtValue = _ort.OrtValue
_IOBinding = _ort.IOBinding
_available = _ort.get_available_providers


def get_available_providers() -> list[str]:
    """onnxruntime's list, with ours and the names that mean it first if there is a device."""
    ours = [NAME, *ALIASES[:2]] if _ep.register() else []
    return ours + [name for name in _available() if name not in ours]


def _options_of(name: str, given: Mapping[Any, Any] | None) -> dict[str, str]:
    options = {str(k): str(v) for k, v in (given or {}).items()}
    if name != "ROCMExecutionProvider":
        options |= {option: os.environ[key] for key, option in ENVIRONMENT.items() if key in os.environ}
    return options


def _split(
    providers: Sequence[str | tuple[str, dict[Any, Any]]], provider_options: Sequence[Mapping[Any, Any]] | None
) -> tuple[dict[str, str] | None, list[str | tuple[str, dict[Any, Any]]]]:
    """Our options, or None if ours is not asked for, and the other providers."""
    ours: dict[str, str] | None = None
    others: list[str | tuple[str, dict[Any, Any]]] = []
    for k, entry in enumerate(providers):
        name, options = (entry, None) if isinstance(entry, str) else (entry[0], entry[1])
        if provider_options:
            options = provider_options[k]
        if name not in ALIASES:
            others.append((name, dict(options)) if options else name)
        elif ours is None:  # asked for under two names, the first one counts
            ours = _options_of(name, options)
    return ours, others


class InferenceSession(_Session):  # type: ignore[misc]
    """onnxruntime's, whose providers may be named as AMD's other providers are."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        ours, others = _split(providers or [], provider_options)
        devices = _ep.register() if ours is not None else []
        if ours is None or not devices:  # without a device ONNX Runtime's log has said why
            rest = others if ours is not None else providers
            super().__init__(
                path_or_bytes, sess_options, rest, None if ours is not None else provider_options, **kwargs
            )
            return
        options = sess_options if sess_options is not None else _ort.SessionOptions()
        if not options.has_providers():  # an options object that made a session before has them
            wanted = ours.get("device_id")
            chosen = [d for d in devices if wanted is None or d.ep_metadata.get("device_id") == wanted] or devices
            options.add_provider_for_devices(chosen[:1], ours)
            for entry in others:
                name, extra = (entry, {}) if isinstance(entry, str) else entry
                if name == "CPUExecutionProvider" or name not in _available():
                    continue  # the CPU provider is always there; others are ignored as onnxruntime does
                options.add_provider(name, {str(k): str(v) for k, v in extra.items()})
        # A second attempt on the CPU alone would hide what is wrong with an option.
        kwargs.setdefault("enable_fallback", 0)
        super().__init__(path_or_bytes, options, **kwargs)

    def io_binding(self) -> IOBinding:
        return IOBinding(self)


def _device(device_id: int) -> Any:
    return _ort.OrtDevice.make("gpu", device_id, _VENDOR)._get_c_device()


def _is_ours(device_type: str) -> bool:
    return device_type.lower() in _DEVICE_TYPES


class IOBinding(_IOBinding):  # type: ignore[misc]
    """onnxruntime's, in which "cuda", "hip" and "rocm" are the provider's memory."""

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        if not _is_ours(device_type):
            return super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        self._iobinding.bind_input(name, _device(device_id), element_type, shape, buffer_ptr)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        if not _is_ours(device_type):
            return super().bind_output(name, device_type, device_id, element_type, shape, buffer_ptr)
        if buffer_ptr is None:
            self._iobinding.bind_output(name, _device(device_id))
        else:
            if element_type is None or shape is None:
                raise ValueError("element_type and shape are needed with memory of your own")
            self._iobinding.bind_output(name, _device(device_id), element_type, shape, buffer_ptr)


class OrtValue(_OrtValue):  # type: ignore[misc]
    """onnxruntime's, in which "cuda", "hip" and "rocm" are the provider's memory."""

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Any:
        if vendor_id < 0 and _is_ours(device_type):
            device_type, vendor_id = "gpu", _VENDOR
        return _OrtValue.ortvalue_from_numpy(numpy_obj, device_type, device_id, vendor_id)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Any, element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Any:
        if vendor_id < 0 and _is_ours(device_type):
            device_type, vendor_id = "gpu", _VENDOR
        return _OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)


def activate() -> None:
    """Puts the replacements of this module into the onnxruntime package: then `import onnxruntime` is enough."""
    for name in ("InferenceSession", "IOBinding", "OrtValue", "get_available_providers"):
        setattr(_ort, name, globals()[name])


def __getattr__(name: str) -> Any:
    return getattr(_ort, name)
