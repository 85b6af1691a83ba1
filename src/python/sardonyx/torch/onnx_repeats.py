"""Translations of operators that were translated before: repeats.py for torch.onnx.

The ONNX nodes of an operator follow from its arguments and their types and sizes, so those of an equal call are copied.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.onnx._internal.exporter import _core, _tensors

from .repeats import Unknown, described


class Recorded(NamedTuple):
    operands: list[Any]  #: values
    nodes: list[Any]  #: without constants, which all share
    outputs: Any  #: a value or a list of values


class Arguments:
    """The arguments of a call, described so that equal descriptions become equal nodes."""

    def __init__(self, node: torch.fx.Node, values: dict[str, Any]):
        self.values, self.nodes = values, list[torch.fx.Node]()
        self.operands: list[Any] = []
        self.key = node.target, described((node.args, node.kwargs), self.argument), type_of(node.meta.get("val"))

    def argument(self, x: Any) -> Any:
        if not isinstance(x, torch.fx.Node):
            raise Unknown
        if x in self.nodes:
            return "again", self.nodes.index(x)
        value = self.values.get(x.name)
        if x.op == "get_attr" or value is None or isinstance(value, (list, tuple)):
            raise Unknown
        self.nodes.append(x)
        self.operands.append(value)
        return x.op == "placeholder", value.dtype, type_of(x.meta.get("val"))


def type_of(x: Any) -> Any:
    """Of a node's value: what torch.onnx looks at."""

    def tensor(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            raise Unknown
        return t.dtype, tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in t.shape)

    return described(x, tensor)


class Repeats:
    """Of one translation, in the place of the function that translates a call."""

    def __init__(self, translate: Callable[..., None]):
        self.translate, self.known = translate, dict[Any, Recorded]()

    def __call__(self, model: Any, node: torch.fx.Node, values: dict[str, Any], **rest: Any) -> None:
        graph = rest["graph_like"]
        try:
            arguments = Arguments(node, values)
            key = id(graph), arguments.key
            found = self.known.get(key)
        except (Unknown, TypeError):  # TypeError: without a hash
            return self.translate(model, node, values, **rest)
        if found is not None:
            values[node.name] = copied(found, arguments.operands, node, graph, rest["opset"])
            return None
        count = len(graph)
        self.translate(model, node, values, **rest)
        made = list(itertools.islice(reversed(graph), len(graph) - count))[::-1]
        outputs = values[node.name]
        every = outputs if isinstance(outputs, Sequence) else [outputs]
        if all(v.producer() in made for v in every) and all(is_copied(n) or is_constant(n) for n in made):
            nodes = [n for n in made if not is_constant(n)]
            if all(v.producer() in nodes for v in every):
                self.known[key] = Recorded(arguments.operands, nodes, outputs)
        return None


def is_constant(node: Any) -> bool:
    return bool(node.op_type == "Constant")


def is_copied(node: Any) -> bool:
    return not any(a.type.name.startswith("GRAPH") for a in node.attributes.values())


def copied(found: Recorded, operands: list[Any], fx: torch.fx.Node, graph: Any, opset: Any) -> Any:
    import onnx_ir

    new = dict(zip(found.operands, operands, strict=True))
    made = []
    for node in found.nodes:
        outputs = []
        for old in node.outputs:
            shape = None if old.shape is None else onnx_ir.Shape(old.shape)
            new[old] = _tensors.SymbolicTensor(opset, shape=shape, type=old.type)
            outputs.append(new[old])
        inputs = [new.get(v, v) for v in node.inputs]
        made.append(
            onnx_ir.Node(
                node.domain,
                node.op_type,
                inputs,
                tuple(node.attributes.values()),
                outputs=outputs,
                version=node.version,
            )
        )
        made[-1].meta["node"] = fx
    if isinstance(found.outputs, Sequence):
        results: Any = [new[v] for v in found.outputs]
        names = [f"{fx.name}__{k}" for k in range(len(results))]
    else:
        results, names = new[found.outputs], [fx.name]
    for value, name in zip(results if isinstance(results, list) else [results], names, strict=True):
        value.name = name
        value.producer().name = f"node_{name}"
    graph.extend(made)
    return results


@contextlib.contextmanager
def repeats_copied() -> Iterator[None]:
    """While it is entered, by one thread at a time, torch.onnx copies what it has translated before, and adds no notes of
    where an operator comes from, which nothing here reads."""
    translate, note = _core._handle_call_function_node_with_lowering, _core._set_node_metadata
    _core._handle_call_function_node_with_lowering = Repeats(translate)
    _core._set_node_metadata = lambda fx_node, ir_node: None
    try:
        yield
    finally:
        _core._handle_call_function_node_with_lowering, _core._set_node_metadata = translate, note
