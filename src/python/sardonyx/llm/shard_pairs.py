"""Finds the GEMMs of a decoder that can be divided among devices: pairs with only element-wise operations or attention between
them. A GEMM is the second of a pair if all paths back from its input end at GEMMs with constant weights or at
GroupQueryAttention. Nothing depends on names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import InvalidModelError
from .packages import needed
from .shard_weights import WeightFiles
from .weights import Array

# fmt: off
_ELEMENTWISE = frozenset((
    "Abs", "Add", "BiasGelu", "Cast", "Clip", "Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid", "HardSwish",
    "LeakyRelu", "Max", "Min", "Mish", "Mul", "Neg", "Pow", "QuickGelu", "Relu", "Sigmoid", "Silu", "Softplus", "Sqrt", "Sub",
    "Swish", "Tanh", "Where",
))
# fmt: on


class NoPair(Exception):
    """This GEMM is not the second of a pair."""


@dataclass
class Product:
    """A GEMM with a constant weight of K rows and N columns."""

    node: Any
    k: int
    n: int
    weight: str
    turned: Any = None  #: the node Transpose between an initializer [N, K] and it
    block: int = 1  #: of MatMulNBits


@dataclass
class Region:
    """The nodes between the GEMMs of a pair."""

    last: Product
    firsts: list[Product] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    attention: list[Any] = field(default_factory=list)


class Pairs:
    """A model's graph, with queries; shard_graph.py changes it."""

    def __init__(self, model: Any, files: WeightFiles):
        self.graph, self.files = model.graph, files
        self.onnx = needed("onnx")
        self.nodes = list(self.graph.node)  # kept alive: identity distinguishes them
        self.makers = {o: n for n in self.nodes for o in n.output if o}
        self.users: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in set(node.input):
                self.users.setdefault(name, []).append(node)
        self.outputs = {v.name for v in self.graph.output}
        self.done: set[int] = set()  # nodes that have their part
        self.products = {id(p.node): p for node in self.nodes if (p := self.product(node)) is not None}

    def constant(self, name: str) -> bool:
        if name in self.files.tensors:
            return True
        maker = self.makers.get(name)
        return maker is not None and maker.op_type == "Constant"

    def value(self, name: str) -> Array:
        """A small constant."""
        if name in self.files.tensors:
            return self.files.array(name)
        return np.asarray(self.onnx.numpy_helper.to_array(self.makers[name].attribute[0].t))

    def attributes(self, node: Any) -> dict[str, Any]:
        return {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}

    def product(self, node: Any) -> Product | None:
        if node.op_type == "MatMul" and len(node.input) == 2:
            name, turned = node.input[1], None
            maker = self.makers.get(name)
            if maker is not None and maker.op_type == "Transpose" and maker.input[0] in self.files.tensors:
                name, turned = maker.input[0], maker
                if self.attributes(maker).get("perm", [1, 0]) != [1, 0]:
                    return None
            if name not in self.files.tensors or len(self.files.shape(name)) != 2:
                return None
            k, n = self.files.shape(name)[:: -1 if turned is not None else 1]
            return Product(node, k, n, name, turned)
        if node.op_type == "MatMulNBits" and node.input[1] in self.files.tensors:
            a = self.attributes(node)
            if (len(node.input) > 4 and node.input[4]) or any(
                i and i not in self.files.tensors for i in node.input[1:]
            ):
                return None
            if min(a["K"], a["N"], a["block_size"]) < 1 or a.get("bits", 4) not in (2, 4, 8):
                raise InvalidModelError(f"'{node.name}' has invalid sizes")
            return Product(node, a["K"], a["N"], node.input[1], block=a["block_size"])
        return None

    def region(self, last: Product) -> Region:
        """Raises NoPair."""
        found, seen = Region(last), set()
        waiting = [last.node.input[0]]
        while waiting:
            name = waiting.pop()
            if not name or self.constant(name):
                continue
            node = self.makers.get(name)
            if node is None:
                raise NoPair
            if id(node) in seen:
                continue
            seen.add(id(node))
            if id(node) in self.products:
                found.firsts.append(self.products[id(node)])
            elif node.op_type == "GroupQueryAttention":
                if name != node.output[0]:
                    raise NoPair
                found.attention.append(node)
            elif node.op_type in _ELEMENTWISE:
                found.nodes.append(node)
                waiting.extend(node.input)
            elif node.op_type == "Split":
                found.nodes.append(node)
                waiting.append(node.input[0])
            else:
                raise NoPair
        inside = {id(n) for n in (*found.nodes, last.node)}
        for node in (*found.nodes, *(p.node for p in found.firsts), *found.attention):
            names = node.output[:1] if node.op_type == "GroupQueryAttention" else node.output
            for name in names:
                if name in self.outputs or any(id(u) not in inside for u in self.users.get(name, [])):
                    raise NoPair
        if any(id(n) in self.done for n in (*found.nodes, last.node, *(p.node for p in found.firsts))):
            raise NoPair
        if not found.firsts and not found.attention:
            raise NoPair
        return found
