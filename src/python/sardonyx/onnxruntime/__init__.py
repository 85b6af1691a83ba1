"""A drop-in for programs written for AMD's ROCm and MIGraphX providers: `import sardonyx.onnxruntime as ort`.

It is the onnxruntime package, but the providers MIGraphXExecutionProvider and ROCMExecutionProvider, with their options, are
replaced by AMDGPUExecutionProvider, and the device types "cuda", "hip" and "rocm" mean its memory. activate() changes the
onnxruntime package itself in the same way, for programs whose imports you can't edit; so do `python -m sardonyx.onnxruntime
script.py`, for one program, and `sardonyx onnxruntime enable`, for all programs of a Python environment.
"""

from __future__ import annotations

import difflib
import warnings
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

_Session = _ort.InferenceSession
_SessionOptions = _ort.SessionOptions
_OrtValue = _ort.OrtValue
_IOBinding = _ort.IOBinding
_available = _ort.get_available_providers
_all = _ort.get_all_providers
_get_device = _ort.get_device

Provider = str | tuple[str, dict[Any, Any]]


def get_available_providers() -> list[str]:
    """onnxruntime's list. If there is a device, our provider and its aliases come first."""
    ours = [NAME, *ALIASES[:2]] if _ep.register() else []
    return ours + [name for name in _available() if name not in ours]


def get_all_providers() -> list[str]:
    """All providers that onnxruntime knows, with or without a device; ours and its aliases come first."""
    ours = [NAME, *ALIASES[:2]]
    return ours + [name for name in _all() if name not in ours]


def get_device() -> str:
    """ "GPU" if the provider has a device, as in onnxruntime packages that are built for GPUs."""
    return "GPU" if _ep.register() else _get_device()


def _text(name: str, key: Any, value: Any) -> str:
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ValueError(f"option {key} of {name} is {value!r}; options are texts, numbers, True or False")


def _warn_if_misspelt(name: str) -> None:
    """onnxruntime leaves unknown providers out and runs on the CPU; a warning says which of ours may be meant."""
    if name in ALIASES or name in _all():
        return
    known = {_stem(n): n for n in ALIASES}
    if near := difflib.get_close_matches(_stem(name), known, 1):
        warnings.warn(f"there is no provider {name!r}; did you mean {known[near[0]]!r}?", stacklevel=5)


def _stem(provider: str) -> str:
    return provider.lower().replace("_", "").removesuffix("provider").removesuffix("execution")


def _entries(providers: Any, provider_options: Any) -> list[tuple[str, dict[str, str] | None]]:
    """The pairs of name and options (None: not given) in a session's arguments. Raises ValueError for anything else."""
    example = '["MIGraphXExecutionProvider", ("CPUExecutionProvider", {})]'
    if providers is None:
        providers = []
    if isinstance(providers, (str, bytes)) or not isinstance(providers, Sequence):
        raise ValueError(f"providers is {providers!r}, not a list of providers such as {example}")
    if provider_options is not None and len(provider_options) != len(providers):
        raise ValueError(f"there are {len(providers)} providers and {len(provider_options)} provider_options")
    entries: list[tuple[str, dict[str, str] | None]] = []
    for k, entry in enumerate(providers):
        name, options = (entry, None) if isinstance(entry, str) else (None, None)
        if isinstance(entry, (tuple, list)) and len(entry) == 2 and isinstance(entry[0], str):
            name, options = entry
        if name is None or not (options is None or isinstance(options, Mapping)):
            raise ValueError(
                f"providers[{k}] is {entry!r}; it must be a provider's name, or a pair of name and dict of options: {example}"
            )
        if provider_options is not None:
            if options is not None:
                raise ValueError("options are given both in providers and in provider_options")
            options = provider_options[k]
            if not isinstance(options, Mapping):
                raise ValueError(f"provider_options[{k}] is {options!r}, not a dict of options")
        text = {str(o): _text(name, o, v) for o, v in options.items()} if options is not None else None
        _warn_if_misspelt(name)
        entries.append((name, text))
    return entries


class SessionOptions(_SessionOptions):  # type: ignore[misc]
    """onnxruntime's, to which the provider may be added by any of its names."""

    #: The name under which the provider was asked for.
    asked: str | None = None

    def add_provider(self, name: str, options: Mapping[Any, Any]) -> None:
        if name not in ALIASES:
            return super().add_provider(name, dict(options))
        _add(self, name, {str(k): _text(name, k, v) for k, v in options.items()})


def _add(options: Any, name: str, ours: dict[str, str]) -> bool:
    """Adds our provider to session options; False if there is no device, for which ONNX Runtime's log has the reason."""
    devices = _ep.register()
    if not devices:
        return False
    wanted = ours.get("device_id")
    chosen = [d for d in devices if wanted is None or d.ep_metadata.get("device_id") == wanted] or devices
    options.add_provider_for_devices(chosen[:1], ours)
    if isinstance(options, SessionOptions):
        options.asked = name
    return True


class InferenceSession(_Session):  # type: ignore[misc]
    """onnxruntime's; providers may have the names of AMD's other providers. get_providers() returns the requested name."""

    _asked: str | None = None

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        entries = _entries(providers, provider_options)
        asked = next(((name, options) for name, options in entries if name in ALIASES), None)
        if asked is None or not _ep.register():  # without a device ONNX Runtime's log has said why
            self._asked = getattr(sess_options, "asked", None)
            if asked is not None:
                providers, provider_options = _without_ours(entries), None
            super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)
            return
        options = sess_options if sess_options is not None else SessionOptions()
        self._add_providers(options, entries)
        # A second attempt on the CPU alone would hide what is wrong with an option.
        kwargs.setdefault("enable_fallback", 0)
        super().__init__(path_or_bytes, options, **kwargs)

    def _add_providers(self, options: Any, entries: Sequence[tuple[str, dict[str, str] | None]]) -> None:
        """If the provider is requested under two names, the first one counts."""
        name, ours = next((name, given or {}) for name, given in entries if name in ALIASES)
        self._asked = name
        if options.has_providers():  # an options object that made a session before; its options may change
            for key, value in ours.items():
                options.add_session_config_entry(f"ep.{NAME.lower()}.{key}", value)
            return
        _add(options, name, ours)
        for other, extra in entries:
            # The CPU provider is always there; others that are not are ignored, as onnxruntime does.
            if other not in ALIASES and other != "CPUExecutionProvider" and other in _available():
                options.add_provider(other, extra or {})

    def set_providers(
        self, providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Creates the session anew, with these providers."""
        entries = _entries(providers, provider_options)
        if not any(name in ALIASES for name, _ in entries) or not _ep.register():
            self._asked = None
            super().set_providers(_without_ours(entries) or ["CPUExecutionProvider"])
            return
        if self._sess_options_initial is None:
            self._sess_options_initial = SessionOptions()
        self._add_providers(self._sess_options_initial, entries)
        self._reset_session(None, None)

    def get_providers(self) -> list[str]:
        return [self._asked if name == NAME and self._asked else name for name in super().get_providers()]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        options = super().get_provider_options()
        return {self._asked if name == NAME and self._asked else name: o for name, o in options.items()}

    def io_binding(self) -> IOBinding:
        return IOBinding(self)


def _without_ours(entries: Sequence[tuple[str, dict[str, str] | None]]) -> list[Provider]:
    return [(name, options) if options else name for name, options in entries if name not in ALIASES]


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
                raise ValueError("element_type and shape are needed with your own memory")
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


_REPLACED = (
    "InferenceSession",
    "SessionOptions",
    "IOBinding",
    "OrtValue",
    "get_all_providers",
    "get_available_providers",
    "get_device",
)


def activate() -> None:
    """Puts the replacements of this module into the onnxruntime package: then `import onnxruntime` is enough."""
    for name in _REPLACED:
        setattr(_ort, name, globals()[name])


def __getattr__(name: str) -> Any:
    return getattr(_ort, name)
