"""A traced graph as an ONNX model, by torch.onnx's translations of operators, with its weights where they are."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.onnx._internal.exporter import _core
from torch.onnx._internal.fx.passes import type_promotion

from ..errors import UnsupportedError
from .decompositions import registry
from .export import cause_of, first_line, keep_dtypes, needs_optimizer, optimize, quiet, raise_version
from .host_copies import HostCopies
from .onnx_repeats import repeats_copied
from .trace import Traced

#: Smaller weights are part of the model.
INLINE_BYTES = 1024


class OnnxModel(NamedTuple):
    data: bytes  #: a serialised ModelProto
    #: its external data by locations: address, bytes, and the owner of the memory
    memory: dict[str, tuple[int, int, Any]]


def translate(traced: Traced, names: Sequence[str], copies: HostCopies | None = None) -> OnnxModel:
    """`names`: of its inputs, in order; `copies`: of its weights, if there are. Raises UnsupportedError with the exporter's reason."""
    try:
        with quiet(), torch.no_grad():
            return translated(traced, names, copies or HostCopies())
    except Exception as error:
        raise UnsupportedError(f"torch.onnx cannot export it: {first_line(cause_of(error))}") from error


def translated(traced: Traced, names: Sequence[str], copies: HostCopies) -> OnnxModel:
    import onnx_ir

    with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # as torch.onnx has it
        promote_types(traced.graph_module)
    remove_assertions(traced.graph)
    program: Any = traced
    with signatures_kept():
        made = _core._exported_program_to_onnx_program(program, registry=registry())
    model = made.model
    remove_unused(model)
    if needs_optimizer(model):
        optimize(made)
    keep_dtypes(model.graph, program)
    raise_version(model)
    for value, name in zip(model.graph.inputs, names, strict=True):
        value.name = name
    memory = {}
    for name, value in model.graph.initializers.items():
        weight = traced.constants.get(str(name))
        if weight is None or weight.nbytes < INLINE_BYTES:
            continue
        kept = copies.of(weight)
        memory[str(name)] = (kept.data_ptr(), kept.nbytes, kept)
        known = value.const_value
        value.const_value = onnx_ir.ExternalTensor(
            str(name), 0, kept.nbytes, known.dtype, shape=known.shape, name=str(name)
        )
    return OnnxModel(onnx_ir.to_proto(model).SerializeToString(), memory)


class Promotion(type_promotion._TypePromotionInterpreter):
    """torch.onnx's pass that makes type promotion explicit, which runs all operators again: here only those that it
    changes. The others' results are known."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if "val" not in n.meta:
            return super().run_node(n)
        if rule := type_promotion.get_type_promotion_rule(n, self.type_promotion_table):
            with self._set_current_node(n):
                self._maybe_promote_node(n, rule)
        return n.meta["val"]


class PromotionPass(type_promotion.InsertTypePromotion):
    def __init__(self, module: torch.fx.GraphModule):
        super().__init__(module, promotion_rules())
        self.interpreter = Promotion(module, promotion_rules())


@functools.cache
def promotion_rules() -> type_promotion.TypePromotionTable:
    return type_promotion.TypePromotionTable()


def promote_types(module: torch.fx.GraphModule) -> None:
    for inner in module.modules():
        if isinstance(inner, torch.fx.GraphModule):
            PromotionPass(inner).run()


#: Checks of sizes and values, which give nothing.
ASSERTIONS = {"sym_constrain_range_for_size", "_assert_async", "_assert_scalar", "_assert_tensor_metadata"}


def remove_assertions(graph: torch.fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._opname in ASSERTIONS:
            graph.erase_node(node)


_signatures: dict[Any, Any] = {}
_signatures_lock = threading.Lock()


@contextlib.contextmanager
def signatures_kept() -> Iterator[None]:
    """torch.onnx makes an operator's signature of its schema for each node, which takes half of the translation."""
    from onnx_ir.schemas import OpSignature

    with _signatures_lock:
        original = OpSignature.__dict__["from_op_schema"]

        def kept(kind: Any, schema: Any) -> Any:
            key = kind, schema.name, schema.domain, schema.since_version
            if key not in _signatures:
                _signatures[key] = original.__func__(kind, schema)
            return _signatures[key]

        OpSignature.from_op_schema = classmethod(kept)
        try:
            with repeats_copied():
                yield
        finally:
            OpSignature.from_op_schema = original


def remove_unused(model: Any) -> None:
    """torch.onnx computes all results of an operator, some of them with operands of different types."""
    nodes = list(model.graph)
    outputs = set(model.graph.outputs)
    for node in reversed(nodes):
        if all(not v.uses() and v not in outputs for v in node.outputs):
            model.graph.remove(node, safe=True)
