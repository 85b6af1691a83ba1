"""Divides mixtures of experts (com.microsoft MoE and QMoE) among devices.

Each device has some of the intermediate columns of every expert: outputs of fc1 and fc3, and the corresponding inputs of fc2.
The sum of the devices' fc2 results is the result, as with other pairs of GEMMs. The router is replicated, so that all devices
choose the same experts.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..errors import InvalidModelError
from .shard_weights import Ranges, WeightFiles, blocks_taken, share, share_unit, take, zero_points_taken
from .weights import Array

KINDS = ("MoE", "QMoE")


class Graph(Protocol):
    """The graph of a device, whose rank is one of `size`."""

    rank: int
    size: int
    files: WeightFiles

    def attributes(self, node: Any) -> dict[str, Any]: ...

    def add(self, name: str, array: Array) -> str:
        """A new initializer, called after an old one."""
        ...


def divide_experts(d: Graph, node: Any) -> bool:
    """Gives the node its device's part. False if it stays whole: few inner columns, weights that are computed, or a form that
    the library refuses anyway (with its own words)."""
    experts = _Quantized(d, node) if node.op_type == "QMoE" else _Dense(d, node)
    return experts.divide()


class _Dense:
    """Inputs: input, router_probs, then weights [E, N, K] and bias [E, N] of fc1, fc2, fc3."""

    first, step = 2, 2  # where fc1's inputs begin; how far it is to the next one's

    def __init__(self, d: Graph, node: Any):
        self.d, self.node, self.a = d, node, d.attributes(node)
        self.inputs = [*node.input, *[""] * (18 - len(node.input))]

    def name(self, number: int, part: int = 0) -> str:
        return self.inputs[self.first + (number - 1) * self.step + part]

    def array(self, name: str, rank: int) -> Array:
        array = self.d.files.array(name)
        if array.ndim != rank:
            raise InvalidModelError(f"'{self.node.name}': '{name}' has {array.ndim} dims instead of {rank}")
        return array

    def whole(self) -> bool:
        """Whether it can't be divided at all."""
        names = self.inputs[self.first :]
        return not self.name(1) or not self.name(2) or any(n and n not in self.d.files.tensors for n in names)

    def inner(self) -> int:
        return int(self.array(self.name(2), 3).shape[2])

    def block(self) -> int:
        """The unit in which inner columns are divided."""
        return 1

    def fused(self) -> int:
        """0: fc1 gives the inner columns; 1: also their gates, each before its column; 2: also their gates, before all of them."""
        return self.a.get("swiglu_fusion", 0) if self.a.get("activation_type", b"relu") == b"swiglu" else 0

    def divide(self) -> bool:
        d = self.d
        if self.whole():
            return False
        inner, block = self.inner(), self.block()
        unit = share_unit(inner, d.size, block)
        if inner < unit * d.size:
            return False
        begin, end = share(inner, d.rank, d.size, unit)
        ranges: dict[int, list[tuple[int, int]]] = {
            0: [(begin, end)],
            1: [(2 * begin, 2 * end)],
            2: [(begin, end), (inner + begin, inner + end)],
        }
        if self.fused() not in ranges:
            return False
        self.outputs(1, ranges[self.fused()], inner * (2 if self.fused() else 1))
        if self.name(3):
            self.outputs(3, ranges[0], inner)
        self.columns(2, [(begin, end)], inner)
        return True

    def put(self, at: int, array: Array) -> None:
        self.node.input[at] = self.d.add(self.inputs[at], array)

    def outputs(self, number: int, ranges: Ranges, count: int) -> None:
        """Keeps these of a projection's `count` outputs."""
        at = self.first + (number - 1) * self.step
        self.check_outputs(number, count)
        self.put(at, take(self.array(self.inputs[at], 3), 1, ranges))
        bias = at + self.step - 1
        if self.inputs[bias]:
            self.put(bias, take(self.array(self.inputs[bias], 2), 1, ranges))

    def check_outputs(self, number: int, count: int) -> None:
        name = self.name(number)
        if self.array(name, 3).shape[1] != count:
            raise InvalidModelError(
                f"'{self.node.name}': '{name}' has {self.array(name, 3).shape[1]} outputs instead of {count}"
            )

    def columns(self, number: int, ranges: Ranges, count: int) -> None:
        """Keeps these of a projection's `count` inputs, and its bias on one device only."""
        at = self.first + (number - 1) * self.step
        self.put(at, take(self.array(self.inputs[at], 3), 2, ranges))
        self.bias_once(at + self.step - 1)

    def bias_once(self, at: int) -> None:
        if self.inputs[at] and self.d.rank > 0:
            self.node.input[at] = ""


class _Quantized(_Dense):
    """Inputs: input, router_probs, then weights [E, N, K * bits / 8], scales and bias of fc1, fc2, fc3, then their zero points.
    Scales are for each output or for each block of its inputs."""

    step = 3
    zero_points = 11

    def whole(self) -> bool:
        plain = self.a.get("quant_type", b"int") == b"int" and self.a.get("weights_prepacked", -1) != 1
        return (
            not plain
            or super().whole()
            or not all(self.name(n, 1) for n in (1, 2, 3) if self.name(n))
            or any(self.inputs[15:])
            or any(self.bits(n) not in (2, 4, 8) for n in (1, 2, 3))
        )

    def bits(self, number: int) -> int:
        return int(self.a.get(f"fc{number}_expert_weight_bits", self.a.get("expert_weight_bits", 4)))

    def per_block(self) -> int:
        return int(self.a.get("block_size", 0))

    def inner(self) -> int:
        return super().inner() * 8 // self.bits(2)

    def block(self) -> int:
        return max(self.per_block(), 8)  # whole bytes of packed elements, also of zero points

    def sizes(self, number: int) -> tuple[int, int, int, int]:
        """Experts, outputs, inputs, and scales of an output."""
        e, n, packed = self.array(self.name(number), 3).shape
        k = packed * 8 // self.bits(number)
        return e, n, k, -(-k // self.per_block()) if self.per_block() > 0 else 1

    def shaped(self, name: str, *shape: int) -> Array:
        array = self.d.files.array(name)
        size = 1
        for dim in shape:
            size *= dim
        if array.size != size:
            raise InvalidModelError(f"'{self.node.name}': '{name}' has {array.size} elements instead of {size}")
        return array.reshape(shape)

    def outputs(self, number: int, ranges: Ranges, count: int) -> None:
        super().outputs(number, ranges, count)
        e, n, _, blocks = self.sizes(number)
        at = self.first + (number - 1) * self.step + 1
        scales = take(self.shaped(self.inputs[at], e, n, blocks), 1, ranges)
        self.put(at, scales if self.per_block() > 0 else scales.reshape(e, -1))
        at = self.zero_points + number - 1
        if not self.inputs[at]:
            return
        bits = self.bits(number)
        if self.per_block() > 0:
            self.put(at, take(self.shaped(self.inputs[at], e, n, -(-blocks * bits // 8)), 1, ranges))
        else:  # packed along the outputs
            zeros = self.shaped(self.inputs[at], e, -(-n * bits // 8))
            self.put(at, zero_points_taken(zeros, e, n, bits, ranges))

    def columns(self, number: int, ranges: Ranges, count: int) -> None:
        e, n, _, blocks = self.sizes(number)
        bits, per_block = self.bits(number), self.per_block()
        at = self.first + (number - 1) * self.step
        packed = [(begin * bits // 8, -(-end * bits // 8)) for begin, end in ranges]
        self.put(at, take(self.array(self.inputs[at], 3), 2, packed))
        if per_block > 0:
            taken = blocks_taken(ranges, per_block, count)
            self.put(at + 1, take(self.shaped(self.inputs[at + 1], e, n, blocks), 2, taken))
            zeros = self.zero_points + number - 1
            if self.inputs[zeros]:
                whole = self.shaped(self.inputs[zeros], e * n, -(-blocks * bits // 8))
                self.put(zeros, zero_points_taken(whole, e * n, blocks, bits, taken).reshape(e, n, -1))
        self.bias_once(at + self.step - 1)
