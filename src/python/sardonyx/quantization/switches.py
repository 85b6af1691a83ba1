"""A float model in which each layer can be switched to another type while it runs.

Every layer is there once for each type, on the same activation, and Where nodes choose among the results by bools that are
inputs. So one compiled model computes what a model with any choice of types would, and tries need no compiling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..compiling import compile
from ..model import Model, TensorInfo
from .layers import Layer
from .onnx_model import OnnxModel, needed_onnx

Array = np.ndarray[Any, Any]
#: Given a model: a function that writes one of its layers in a type.
Writer = Callable[[OnnxModel], Callable[[Layer, str], None]]


class Switches:
    """The compiled model."""

    def __init__(
        self,
        source: OnnxModel,
        layers: Sequence[Layer],
        kinds: Sequence[Sequence[str]],
        writer: Writer,
        options: Mapping[str, Any],
    ):
        """layers: of `source`, which is copied; kinds: types of each."""
        onnx = needed_onnx()
        model = OnnxModel(source.proto)
        model.folder = source.folder
        nodes = {n.output[0]: n for n in model.proto.graph.node if n.output}
        twins = []
        self._names: list[dict[str, str]] = []
        for p, types in zip(layers, kinds):
            original = nodes[p.node.output[0]]
            result = original.output[0]
            value = original.output[0] = model.fresh(result + "/float")
            at = 1 + next(k for k, n in enumerate(model.proto.graph.node) if n is original)
            names: dict[str, str] = {}
            for j, kind in enumerate(types):
                twin = type(original)()
                twin.CopyFrom(original)
                twin.output[0] = model.fresh(f"{result}/{kind}")
                twin.name = model.fresh(f"{original.name or original.op_type}/{kind}")
                names[kind] = model.fresh(f"{result}/{kind}/switch")
                model.proto.graph.input.append(
                    onnx.helper.make_tensor_value_info(names[kind], onnx.TensorProto.BOOL, [])
                )
                chosen = result if j == len(types) - 1 else model.fresh(f"{result}/{kind}/chosen")
                where = onnx.helper.make_node(
                    "Where", [names[kind], twin.output[0], value], [chosen], name=model.fresh(chosen + "/Where")
                )
                model.proto.graph.node.insert(at, twin)
                twins.append((dataclasses.replace(p, node=model.proto.graph.node[at]), kind))
                model.proto.graph.node.insert(at + 1, where)
                value, at = chosen, at + 2
            if not types:
                original.output[0] = result
            self._names.append(names)
        model.index()
        write = writer(model)
        for twin_layer, kind in twins:
            write(twin_layer, kind)
        model.drop_unused()
        self._off = {n: np.array(False) for names in self._names for n in names.values()}
        self._model: Model = compile(model.with_outputs(()), folder=model.folder or None, **options)

    @property
    def inputs(self) -> list[TensorInfo]:
        """Those of the float model."""
        return [i for i in self._model.inputs if i.name not in self._off]

    def run(self, sample: Mapping[str, Array], choice: Sequence[str | None]) -> dict[str, Array]:
        """choice: the type of each layer; None: float."""
        on = {self._names[k][kind]: np.array(True) for k, kind in enumerate(choice) if kind is not None}
        return self._model({**sample, **self._off, **on})
