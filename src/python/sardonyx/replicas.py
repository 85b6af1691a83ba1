"""Data parallelism: one model on several devices, each of which computes a part of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import _sardonyx
from .arrays import input_array, output_array
from .compiling import Source, compile
from .errors import InvalidArgumentError
from .model import Array, TensorInfo, inputs_of_call


class ReplicatedModel:
    """A model on several devices. Made by compile_replicas(). All members are thread-safe."""

    def __init__(self, models: list[Any]):
        self._models = models
        self._native = _sardonyx.replicas([m._native for m in models])
        self._dtypes = {i.name: i.dtype for i in models[0].inputs}

    @property
    def inputs(self) -> list[TensorInfo]:
        """Name, dtype and shape of each input."""
        return list(self._models[0].inputs)

    @property
    def outputs(self) -> list[TensorInfo]:
        """Name, dtype and shape of each output."""
        return list(self._models[0].outputs)

    @property
    def devices(self) -> list[str]:
        """Full names of its devices."""
        return [m.device for m in self._models]

    @property
    def batch(self) -> str:
        """The name of the dim that is divided: the first dim of the first input that has an open one."""
        return self._native.batch

    def parts(self, batch: int) -> list[int]:
        """The number of rows of a batch that each device gets."""
        return self._native.parts(batch)

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """Runs the model: `model(x=array)`."""
        return self.run(inputs_of_call(inputs, named))

    def run(self, inputs: Mapping[str, Any], *, threads: int = 0) -> dict[str, Array]:
        """Runs the model on inputs by name, in host memory; returns whole outputs by name, as one device would. Parts
        run at the same time. Errors have the device's name before them."""
        kept, raw = [], {}
        for name, value in inputs.items():
            owner, raw[name] = input_array(name, value, self._dtypes.get(name))
            kept.append(owner)
        found = self._native.run(raw, threads)
        del kept
        return {name: output_array(t) for name, t in found.items()}

    def __repr__(self) -> str:
        return f"<sardonyx.ReplicatedModel on {', '.join(self.devices)} of {self._models[0]!r}>"


def compile_replicas(model: Source, devices: Sequence[str], **options: Any) -> ReplicatedModel:
    """Compiles a model for several devices ("cuda:0", "cuda:1"), which divide each run's batch among them.

    The batch is the symbolic first dim of the first input that has one. Inputs with the same first dim are divided by rows, the
    others are copied to each device; every output must have it as its first dim. The rows need not be a multiple of the
    devices. Devices of one chip share compiled code. options: those of compile(), but `device`.

    Raises errors.Error as compile() does, and UnsupportedError for a model whose batch can't be divided.
    """
    if isinstance(devices, str) or not devices:
        raise InvalidArgumentError("devices is a list of names, such as ['cuda:0', 'cuda:1']")
    if "device" in options:
        raise InvalidArgumentError("give devices, not device")
    return ReplicatedModel([compile(model, device=d, **options) for d in devices])
