"""A traced graph as an ONNX model, by torch.onnx's translations of operators, with its weights where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.onnx._internal.exporter import _core, _fx_passes

from ..errors import UnsupportedError
from .decompositions import registry
from .export import cause_of, first_line, keep_dtypes, needs_optimizer, quiet
from .trace import Traced

#: Smaller weights are part of the model.
INLINE_BYTES = 1024


class OnnxModel(NamedTuple):
    data: bytes  #: a serialised ModelProto
    #: its external data by locations: address, bytes, and the owner of the memory
    memory: dict[str, tuple[int, int, Any]]


def translate(traced: Traced, names: Sequence[str]) -> OnnxModel:
    """`names`: of its inputs, in order. Raises UnsupportedError with the exporter's reason."""
    try:
        with quiet(), torch.no_grad():
            return translated(traced, names)
    except Exception as error:
        raise UnsupportedError(f"torch.onnx cannot export it: {first_line(cause_of(error))}") from error


def translated(traced: Traced, names: Sequence[str]) -> OnnxModel:
    import onnx_ir

    with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # as torch.onnx has it
        _fx_passes.insert_type_promotion_nodes(traced.graph_module)
        _fx_passes.remove_assertion_nodes(traced.graph_module)
    program: Any = traced
    made = _core._exported_program_to_onnx_program(program, registry=registry())
    model = made.model
    remove_unused(model)
    if needs_optimizer(model):
        made.optimize()
    keep_dtypes(model.graph, program)
    for value, name in zip(model.graph.inputs, names, strict=True):
        value.name = name
    memory = {}
    for name, value in model.graph.initializers.items():
        weight = traced.constants.get(str(name))
        if weight is None or weight.nbytes < INLINE_BYTES:
            continue
        kept = weight.detach().cpu().contiguous()
        memory[str(name)] = (kept.data_ptr(), kept.nbytes, kept)
        known = value.const_value
        value.const_value = onnx_ir.ExternalTensor(
            str(name), 0, kept.nbytes, known.dtype, shape=known.shape, name=str(name)
        )
    return OnnxModel(onnx_ir.to_proto(model).SerializeToString(), memory)


def remove_unused(model: Any) -> None:
    """torch.onnx computes all results of an operator, some of them with operands of different types."""
    nodes = list(model.graph)
    outputs = set(model.graph.outputs)
    for node in reversed(nodes):
        if all(not v.uses() and v not in outputs for v in node.outputs):
            model.graph.remove(node, safe=True)
