"""Sardonyx compiles ONNX models and runs them.

    import sardonyx
    model = sardonyx.compile("model.onnx")
    outputs = model(x=array)            # a mapping of output names to numpy arrays
"""
from __future__ import annotations

import os
from typing import Mapping

import numpy as np

from ._sardonyx import Error, __version__, make as _make

__all__ = ["compile", "Model", "Error", "__version__"]


def _numpy_dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # bfloat16, float8 and 4-bit types

        return np.dtype(getattr(ml_dtypes, name))


def _cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "sardonyx")


class Model:
    """A compiled model. Calling it runs it: inputs by name, outputs as a dict of numpy arrays in the model's order."""

    def __init__(self, handle):
        self._handle = handle

    @property
    def inputs(self):
        """(name, dtype, shape) of each input; dims of the shape are numbers or symbols, as text."""
        return self._handle.inputs()

    @property
    def outputs(self):
        return self._handle.outputs()

    @property
    def metadata(self) -> dict[str, str]:
        """What the model's file says about itself under names of its author's choice."""
        return self._handle.metadata()

    def run(self, inputs: Mapping[str, np.ndarray], *, threads: int = 0) -> dict[str, np.ndarray]:
        return self._run(inputs, threads, False)[0]

    def __call__(self, **inputs):
        return self.run(inputs)

    def profile(self, inputs: Mapping[str, np.ndarray], *, threads: int = 0):
        """Runs once; returns the outputs and (kernel, model nodes, seconds) of each step."""
        return self._run(inputs, threads, True)

    def _run(self, inputs, threads, profile):
        kept, raw = [], {}
        for name, value in inputs.items():
            a = np.asarray(value)
            if not a.flags.c_contiguous:
                a = np.ascontiguousarray(a)
            dtype = a.dtype.name
            if dtype in ("int4", "int2"):  # ml_dtypes leaves the bits above the value clear; Sardonyx wants the sign there
                shift = 8 - int(dtype[3:])
                a = (a.view(np.int8) << shift) >> shift
            kept.append(a)
            raw[name] = (a.ctypes.data, dtype, list(a.shape))
        buffers, steps = self._handle.run(raw, threads, profile)
        out = {}
        for name, b in zip(self._handle.output_names(), buffers):
            out[name] = b.bytes().view(_numpy_dtype(b.dtype)).reshape(b.shape)
        return out, steps


def compile(model, *, device: str = "host", precision: str = "fp32", threads: int = 0, cache_dir: str | None = None,
            dims: Mapping[str, int] | None = None, fuse: bool = True, all_outputs: bool = False) -> Model:
    """Compiles a model: a path of an .onnx file, its bytes, or an onnx.ModelProto."""
    if device != "host":
        raise ValueError(f"device {device!r} is not available in this build; use 'host'")
    if precision != "fp32":
        raise ValueError(f"precision {precision!r} is not available on the host device; use 'fp32'")
    cache = _cache_dir() if cache_dir is None else cache_dir
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, (bytes, bytearray)):
        return Model(_make("", bytes(model), threads, cache, dict(dims or {}), fuse, all_outputs))
    return Model(_make(os.fspath(model), b"", threads, cache, dict(dims or {}), fuse, all_outputs))
