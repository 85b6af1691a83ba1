"""Runs of an operator that a trace has seen before: layers of a network repeat those of the first.

What an operator becomes follows from its operands' types, sizes and strides. So the nodes that a trace made of it are copied
where it comes again with such operands, which takes a tenth of the time of tracing it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import (
    _ProxyTensor,
    get_proxy_mode,
    get_proxy_slot,
    set_proxy_slot,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

#: Values that are themselves.
PLAIN = (bool, int, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
#: Parts of the names and modules of functions that change a state of PyTorch, on which others depend.
STATEFUL = ("autocast", "functorch", "grad_enabled", "inference_mode", "_set_", "_enter_", "_exit_", "default_dtype", "deterministic")  # fmt: skip


class Unknown(Exception):
    """A value whose description does not say all of it."""


def unknown(x: Any) -> Any:
    raise Unknown


def described(x: Any, other: Callable[[Any], Any]) -> Any:
    """Something that is equal for equal arguments of operators. `other` describes what is neither a number nor a list."""
    if isinstance(x, SYMBOLIC):
        return type(x), x.node.expr
    if isinstance(x, float):
        return float, repr(x)  # a NaN is itself, and 0 is not -0
    if isinstance(x, PLAIN):
        return type(x), x
    if isinstance(x, (tuple, list)):
        return type(x), tuple([described(v, other) for v in x])
    if isinstance(x, dict):
        return dict, tuple([(k, described(v, other)) for k, v in x.items()])
    if isinstance(x, slice):
        return slice, tuple([described(v, other) for v in (x.start, x.stop, x.step)])
    return other(x)


class Operands:
    """The operands of a call, described so that equal descriptions become equal nodes."""

    def __init__(self, node: torch.fx.Node, args: Any, kwargs: Any):
        self.tensors: list[torch.Tensor] = []
        self.key = node.op, node.target, described((args, kwargs), self.tensor)

    def tensor(self, x: Any) -> Any:
        for k, known in enumerate(self.tensors):
            if known is x:
                return "again", k
        if not isinstance(x, FakeTensor) or x.constant is not None or x.layout != torch.strided:
            raise Unknown
        self.tensors.append(x)
        sizes = tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in (*x.shape, *x.stride()))
        offset = x.storage_offset()
        at = offset.node.expr if isinstance(offset, torch.SymInt) else offset
        return x.dtype, x.device, sizes, at, x.is_conj(), x.is_neg()


class Recorded(NamedTuple):
    """The nodes that a call became."""

    operands: list[torch.fx.Node]
    nodes: list[torch.fx.Node]
    results: list[Any]  #: nodes, numbers of operands in a list of one, or values
    form: Any  #: of the results


def nodes_of(tensors: list[torch.Tensor], tracer: Any) -> list[torch.fx.Node]:
    nodes = []
    for x in tensors:
        slot = get_proxy_slot(x, tracer, None)
        if slot is None or slot.constant is not None:
            raise Unknown
        nodes.append(slot.proxy.node)
    return nodes


class Repeats:
    """What the operators of one trace became."""

    def __init__(self, gm: torch.fx.GraphModule):
        mode = get_proxy_mode()
        self.tracer: Any = mode.tracer if mode is not None else None
        self.known: dict[Any, Recorded] = {}
        self.usable = mode is not None and not any(map(is_stateful, gm.graph.nodes))

    def run(self, node: torch.fx.Node, args: Any, kwargs: Any, make: Any) -> Any:
        """The call's results: `make()`, or copies."""
        if not self.usable or not is_operator(node):
            return make()
        try:
            operands = Operands(node, args, kwargs)
            places = nodes_of(operands.tensors, self.tracer)
        except Unknown:
            return make()
        if (found := self.known.get(operands.key)) is not None:
            return self.again(found, places, operands.tensors)
        graph = self.tracer.graph
        last, count = graph._root.prev, len(graph.nodes)
        results = make()
        made = []
        while last.next is not graph._root:
            last = last.next
            made.append(last)
        if len(made) == len(graph.nodes) - count:
            self.keep(operands, places, made, results)
        return results

    def keep(self, operands: Operands, places: list[torch.fx.Node], made: list[torch.fx.Node], results: Any) -> None:
        if any(free_unbacked_symbols(n.meta.get("val")) for n in made):
            return  # each run makes numbers of its own
        leaves, form = pytree.tree_flatten(results)
        kept: list[Any] = []
        try:
            for x in leaves:
                same = next((k for k, t in enumerate(operands.tensors) if t is x), None)
                if same is not None:
                    kept.append([same])
                elif not isinstance(x, torch.Tensor):
                    described(x, unknown)
                    kept.append(x)
                elif isinstance(x, FakeTensor) and x.constant is None:
                    (node,) = nodes_of([x], self.tracer)
                    if node not in made or not isinstance(node.meta.get("val"), FakeTensor):
                        return
                    kept.append(node)
                else:
                    return
        except Unknown:
            return
        self.known[operands.key] = Recorded(places, made, kept, form)

    def again(self, found: Recorded, places: list[torch.fx.Node], tensors: list[torch.Tensor]) -> Any:
        new = dict(zip(found.operands, places, strict=True))
        for node in found.nodes:
            new[node] = self.tracer.graph.node_copy(node, lambda n: new.get(n, n))
        results: list[Any] = []
        for x in found.results:
            if isinstance(x, list):
                results.append(tensors[x[0]])
            elif isinstance(x, torch.fx.Node):
                known = x.meta["val"]
                with no_dispatch():  # not an operator of the trace
                    value = fast_detach(known.fake_mode, known)
                set_proxy_slot(value, self.tracer, _ProxyTensor(self.tracer.proxy(new[x]), None))
                results.append(value)
            else:
                results.append(x)
        return pytree.tree_unflatten(results, found.form)


def module_of(function: Any) -> str:
    return str(getattr(function, "__module__", None) or "")


def is_stateful(node: torch.fx.Node) -> bool:
    if node.op != "call_function":
        return node.op == "call_module"
    name = f"{module_of(node.target)}.{getattr(node.target, '__name__', '')}"
    return any(part in name for part in STATEFUL)


#: Kinds of functions of PyTorch and Python that are operators.
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket, type(torch.add), type(torch.Tensor.add))  # fmt: skip


def is_operator(node: torch.fx.Node) -> bool:
    """Whether it is a call of an operator whose nodes follow from its operands. Random numbers do too: copies of their nodes
    give others."""
    if node.op == "call_method":
        return True
    known = node.op == "call_function" and isinstance(node.target, FUNCTIONS)
    return known and module_of(node.target).split(".")[0] in ("torch", "_operator", "math", "builtins", "")


class Lifted(torch.fx.Interpreter):
    """Runs a graph with other tensors in the place of those that it has as attributes."""

    def __init__(self, gm: torch.fx.GraphModule, attributes: Mapping[str, torch.Tensor], repeats: Repeats | None):
        super().__init__(gm)
        self.attributes, self.repeats = attributes, repeats

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.attributes[target] if target in self.attributes else super().get_attr(target, args, kwargs)

    def run_node(self, n: torch.fx.Node) -> Any:
        if self.repeats is None or n.op not in ("call_function", "call_method"):
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return self.repeats.run(n, args, kwargs, lambda: super(Lifted, self).run_node(n))
