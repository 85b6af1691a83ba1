"""The ONNX backend interface (onnx.backend.base) on Sardonyx, for ONNX's own test suites and for code written to it."""

from __future__ import annotations

import collections

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import sardonyx


class SardonyxRep(BackendRep):
    """A compiled model. run() takes arrays in the order of the inputs, or by name, and returns a named tuple."""

    def __init__(self, model: sardonyx.Model):
        self.model = model

    def run(self, inputs, **kwargs):
        names = [name for name, _, _ in self.model.inputs]
        if isinstance(inputs, (np.ndarray, np.generic)):
            inputs = [inputs]
        if isinstance(inputs, dict):
            feed = inputs
        else:
            if len(inputs) > len(names):
                raise ValueError(f"{len(inputs)} inputs given; the model has {len(names)}")
            feed = dict(zip(names, inputs))
        outputs = self.model.run(feed)
        fields = [
            name if name.isidentifier() and not name.startswith("_") else f"output_{k}"
            for k, name in enumerate(outputs)
        ]
        return collections.namedtuple("Outputs", fields, rename=True)(*outputs.values())


class SardonyxBackend(Backend):
    """Compiles ONNX models for the host. prepare() also takes the options of sardonyx.compile."""

    #: What "CPU" means: a name for sardonyx.compile(device=).
    device = "host"

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        try:
            cls.prepare(model, device, **kwargs)
        except sardonyx.Error:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs):
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r} is not supported; use 'CPU'")
        # onnx's test runner passes its tolerances here too.
        options = {k: v for k, v in kwargs.items() if k not in ("rtol", "atol")}
        return SardonyxRep(sardonyx.compile(model, device=cls.device, **options))

    @classmethod
    def run_model(cls, model, inputs, device="CPU", **kwargs):
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, **kwargs):
        """Runs one node at the newest operator set that onnx knows. Output types are inferred."""
        feed = dict(zip([n for n in node.input if n], inputs))
        given = [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype), np.asarray(v).shape
            )
            for n, v in feed.items()
        ]
        results = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        opsets = [
            onnx.helper.make_opsetid(
                node.domain, kwargs.get("opset_version", onnx.defs.onnx_opset_version() if not node.domain else 1)
            )
        ]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", given, results), opset_imports=opsets)
        return cls.prepare(model, device).run(feed)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


is_compatible = SardonyxBackend.is_compatible
prepare = SardonyxBackend.prepare
run = run_model = SardonyxBackend.run_model
run_node = SardonyxBackend.run_node
supports_device = SardonyxBackend.supports_device
