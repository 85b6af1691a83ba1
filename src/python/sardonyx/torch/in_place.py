"""Operators of torch.compile's graphs that change their operand."""

from __future__ import annotations

import functools
import inspect
import operator
import types
from typing import Any

import torch

#: Operators of Python that change their first operand, and those that make a new result.
IN_PLACE = {
    "iadd": operator.add,
    "isub": operator.sub,
    "imul": operator.mul,
    "itruediv": operator.truediv,
    "ifloordiv": operator.floordiv,
    "imod": operator.mod,
    "ipow": operator.pow,
    "iand": operator.and_,
    "ior": operator.or_,
    "ixor": operator.xor,
    "setitem": None,
    "iconcat": None,
}
#: Methods in place whose names without the underscore make the same result as a new tensor.
METHODS = {"abs_", "add_", "clamp_", "clamp_max_", "clamp_min_", "div_", "exp_", "mul_", "neg_", "pow_", "relu_", "rsqrt_", "sigmoid_", "sqrt_", "sub_", "tanh_"}  # fmt: skip


def name_of(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


@functools.cache
def place_of_inplace(function: Any) -> int | None:
    """Of a function's parameter `inplace` among its positional ones."""
    if not isinstance(function, types.FunctionType):
        return None
    names = list(inspect.signature(function).parameters)
    return names.index("inplace") if "inplace" in names else None


def has_inplace(node: torch.fx.Node) -> bool:
    """Whether the call is given `inplace`, and it is true."""
    at = place_of_inplace(node.target) if node.op == "call_function" else None
    return bool(node.kwargs.get("inplace") or (at is not None and at < len(node.args) and node.args[at]))


def changes_operand(node: torch.fx.Node) -> bool:
    """Whether the call may change an operand. Some that do are not known by their names: custom operators."""
    if not node.op.startswith("call_"):
        return False
    name = name_of(node)
    if getattr(operator, name, None) is node.target:
        return name in IN_PLACE  # and_ changes nothing
    in_place = name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    return in_place or "out" in node.kwargs or has_inplace(node)


def storage_of(node: torch.fx.Node) -> Any:
    value = node.meta.get("example_value")
    try:
        return value.untyped_storage() if isinstance(value, torch.Tensor) else None
    except NotImplementedError:  # tensors within vmap
        return None


def without_changes(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Makes calls give new tensors instead of changing an operand that nothing else reads, as activations and sums of
    residual networks do. Changes the graph, and returns it."""
    readers: dict[int, set[torch.fx.Node]] = {}  # by the storage: nodes of which others may still read
    changed = False
    for node in gm.graph.nodes:
        storage = storage_of(node)
        same = readers.setdefault(storage._cdata, set()) if storage is not None else set()
        if changes_operand(node) and node.args and isinstance(node.args[0], torch.fx.Node):
            operand = node.args[0]
            if same == {operand} and set(operand.users) == {node} and makes_new(node, operand):
                same.clear()
                changed = True
        same.add(node)
    if changed:
        gm.recompile()
    return gm


def makes_new(node: torch.fx.Node, operand: torch.fx.Node) -> bool:
    """Rewrites the call as one that makes a new tensor of the same type and shape, if there is one."""
    if operand.op in ("placeholder", "get_attr"):
        return False
    if has_inplace(node):
        at = place_of_inplace(node.target)
        if "inplace" in node.kwargs:
            node.kwargs = dict(node.kwargs) | {"inplace": False}
        elif at is not None:
            node.args = (*node.args[:at], False, *node.args[at + 1 :])
        return True
    name = name_of(node)
    target: Any = None
    if node.op == "call_function" and getattr(operator, name, None) is node.target:
        target = IN_PLACE.get(name)
    elif node.op == "call_method" and name in METHODS:
        target = name[:-1]
    value = operand.meta.get("example_value")
    if target is None or not isinstance(value, torch.Tensor):
        return False
    others = [*node.args[1:], *(x for x in node.kwargs.values() if isinstance(x, torch.fx.Node))]
    if not all(keeps(value, x) for x in others):
        return False
    node.target = target
    return True


def keeps(value: torch.Tensor, other: Any) -> bool:
    """Whether a second operand leaves the type and shape of a new tensor to the first."""
    if not isinstance(other, torch.fx.Node):
        return value.dtype.is_floating_point and isinstance(other, (int, float))
    given = other.meta.get("example_value")
    return isinstance(given, torch.Tensor) and given.dtype == value.dtype and dims_of(given) == dims_of(value)


def dims_of(x: torch.Tensor) -> list[Any]:
    """To compare without a guard for the sizes that vary."""
    return [n.node.expr if isinstance(n, torch.SymInt) else n for n in x.shape]
