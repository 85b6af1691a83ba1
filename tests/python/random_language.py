"""Random language models for random_graphs.py: decoder layers as exporters write them, with a cache of keys and values.

Every choice that exporters and architectures make differently is drawn: norms and where they stand, rotary embeddings, shared
heads of keys, masks, scaled and capped scores, kinds of MLP, quantised weights, contributed operators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from random_nodes import Graph

VOCABULARY = 40
LOWEST = -30000.0  # of a mask; finite in float16


class Decoder(Graph):
    """Layers over x [b, t, d] with a past of p tokens; s = p + t. Dims of `shapes` are those of the seed."""

    def __init__(self, seed: int, kind: str, symbolic: bool):
        super().__init__(seed, kind, symbolic)
        self.b, self.t, self.p = self.pick([1, 1, 2, 3]), self.pick([1, 1, 2, 5, 8, 17]), self.pick([1, 3, 8, 16, 31])
        self.s = self.p + self.t
        self.size, self.kv_heads = self.pick([8, 16, 24, 32, 64]), self.pick([1, 1, 2, 3])
        self.heads = self.kv_heads * self.pick([1, 1, 2, 4])
        self.d = self.pick([32, 48, 64, 96])
        self.norm = self.pick(["layer", "rms", "rms", "rms_op", "rms_in_float32"])
        self.bias = self.chance(0.4)
        self.bits = self.pick([0, 0, 0, 4, 4, 8])
        self.results: list[str] = []

    # ---- parts

    def chance(self, p: float) -> bool:
        return bool(self.r.random() < p)

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.type), name))
        return name

    def contributed(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> str:
        return self.node(op, inputs, shape, domain="com.microsoft", **attributes)

    def dims(self, *sizes: int | str) -> list[int]:
        """Of a Reshape: b and t keep what they are where sizes are symbols."""
        return [{"b": 0 if self.symbolic else self.b, "t": 0 if self.symbolic else self.t}.get(d, d) for d in sizes]  # type: ignore[misc,call-overload]

    def linear_to(self, x: str, n: int, bias: bool | None = None) -> str:
        *rows, k = self.shapes[x]
        if self.bits and k % 16 == 0:
            y = self.packed_linear(x, n)
        elif self.chance(0.3):  # as the checkpoint has it: the exporter's transpose of a constant
            w = self.node("Transpose", [self.weight(n, k, fan=k)], (k, n), perm=[1, 0])
            del self.shapes[w]
            y = self.node("MatMul", [x, w], (*rows, n))
        else:
            y = self.node("MatMul", [x, self.weight(k, n, fan=k)], (*rows, n))
        if self.bias if bias is None else bias:
            y = self.node("Add", [y, self.weight(n)] if self.chance(0.7) else [self.weight(n), y], (*rows, n))
        return y

    def packed_linear(self, x: str, n: int) -> str:
        *rows, k = self.shapes[x]
        block = self.pick([b for b in (16, 32) if k % b == 0])
        blocks = k // block
        w = self.constant(self.r.integers(0, 256, (n, blocks, block * self.bits // 8)), np.uint8)
        scales = self.constant((self.r.random(n * blocks) + 0.5) * (2.0 ** (1 - self.bits) * 1.7 * k**-0.5))
        inputs = [x, w, scales]
        if self.chance(0.5):
            inputs.append(self.constant(self.r.integers(0, 256, n * ((blocks * self.bits + 7) // 8)), np.uint8))
        return self.contributed(
            "MatMulNBits", inputs, (*rows, n), K=k, N=n, bits=self.bits, block_size=block, accuracy_level=0
        )

    def cast(self, x: str, to: int) -> str:
        return self.node("Cast", [x], self.shapes[x], to=to)

    def normed(self, x: str) -> str:
        shape, c = self.shapes[x], self.shapes[x][-1]
        w = self.weight(c, shift=1.0, fan=16)
        if self.norm == "layer":
            return self.node("LayerNormalization", [x, w, self.weight(c)], shape, axis=-1, epsilon=1e-3)
        if self.norm == "rms_op":
            return self.node("SimplifiedLayerNormalization", [x, w], shape, axis=-1, epsilon=1e-3)
        wide = self.norm == "rms_in_float32" and self.proto != TensorProto.FLOAT
        y = self.cast(x, TensorProto.FLOAT) if wide else x
        kind = np.float32 if wide else self.type
        square = self.pick(["Pow", "Mul"])
        z = self.node(square, [y, self.constant(2.0, kind) if square == "Pow" else y], shape)
        z = self.node("ReduceMean", [z, self.integers(-1)], (*shape[:-1], 1), keepdims=1)
        z = self.node("Add", [z, self.constant(1e-3, kind)], self.shapes[z])
        z = self.node("Sqrt", [z], self.shapes[z])
        if self.chance(0.5):
            y = self.node("Div", [y, z], shape)
        else:
            y = self.node("Mul", [y, self.node("Reciprocal", [z], self.shapes[z])], shape)
        if wide:
            y = self.cast(y, self.proto)
        return self.node("Mul", [w, y] if self.chance(0.5) else [y, w], shape)

    # ---- positions

    def lengths(self) -> None:
        """Sizes as numbers in the graph: of the past, and of past and new tokens together."""
        self.past_length = self.size_of("past_k0", 2, self.p)
        self.new_length = self.size_of("ids", 1, self.t)
        self.total_length = self.node("Add", [self.past_length, self.new_length], ())
        for name in (self.past_length, self.new_length, self.total_length):
            self.shapes.pop(name, None)

    def size_of(self, x: str, axis: int, value: int) -> str:
        if not self.symbolic:
            return self.constant(value, np.int64)
        shape = self.node("Shape", [x], (len(self.shapes[x]),))
        size = self.node("Gather", [shape, self.constant(axis, np.int64)], (), axis=0)
        for name in (shape, size):
            del self.shapes[name]
        return size

    def ranged(self, first: str, end: str, shape: tuple[int, ...], *axes: int) -> str:
        x = self.node("Range", [first, end, self.constant(1, np.int64)], ())
        return self.node("Unsqueeze", [x, self.integers(*axes)], shape) if axes else x

    def tables(self) -> None:
        """Cosines and sines [t, r] of the new tokens, from a table or computed."""
        self.rotated = self.size if self.chance(0.7) else self.size // 2
        self.interleaved = self.chance(0.2)
        half = self.rotated // 2
        frequencies = 100.0 ** (-np.arange(half) / half)
        if self.chance(0.5):
            angles = np.outer(np.arange(128), frequencies)
            at = self.ranged(self.past_length, self.total_length, ())
            shape = (self.t, half)
            self.cos, self.sin = (
                self.node("Gather", [self.constant(f(angles)), at], shape, axis=0) for f in (np.cos, np.sin)
            )
        else:
            at = self.ranged(self.past_length, self.total_length, (self.t, 1), 1)
            at = self.cast(at, TensorProto.FLOAT)
            angles = self.node("Mul", [at, self.constant(frequencies[None], np.float32)], (self.t, half))
            self.cos, self.sin = (self.cast(self.node(f, [angles], (self.t, half)), self.proto) for f in ("Cos", "Sin"))
            del self.shapes[angles]

    def rotary(self, x: str) -> str:
        """Of x [b, h, t, size]."""
        b, h, t, size = self.shapes[x]
        rest = ""
        if self.rotated < size:
            parts = [self.name(), self.name()]
            self.nodes.append(
                helper.make_node("Split", [x, self.integers(self.rotated, size - self.rotated)], parts, axis=-1)
            )
            self.used.add(x)
            x, rest = parts
        shape, half = (b, h, t, self.rotated), self.rotated // 2
        sliced = lambda first, end, step: self.node(
            "Slice", [x, self.integers(first), self.integers(end), self.integers(3), self.integers(step)],
            (b, h, t, half),
        )  # fmt: skip
        if self.interleaved:
            one, two = sliced(0, self.rotated, 2), sliced(1, self.rotated, 2)
        else:
            one, two = sliced(0, half, 1), sliced(half, self.rotated, 1)
        if not self.interleaved and self.chance(0.6):  # rotate_half
            turned = self.node("Concat", [self.node("Neg", [two], (b, h, t, half)), one], shape, axis=-1)
            wide = [self.node("Concat", [v, v], (self.t, self.rotated), axis=-1) for v in (self.cos, self.sin)]
            y = self.node("Mul", [x, wide[0]], shape)
            y = self.node("Add", [y, self.node("Mul", [turned, wide[1]], shape)], shape)
        else:
            product = lambda v, w: self.node("Mul", [v, w], (b, h, t, half))
            first = self.node("Sub", [product(one, self.cos), product(two, self.sin)], (b, h, t, half))
            second = self.node("Add", [product(one, self.sin), product(two, self.cos)], (b, h, t, half))
            if self.interleaved:
                pair = [self.node("Unsqueeze", [v, self.integers(-1)], (b, h, t, half, 1)) for v in (first, second)]
                y = self.node("Concat", pair, (b, h, t, half, 2), axis=-1)
                y = self.node("Reshape", [y, self.integers(0, 0, -1 if self.symbolic else t, self.rotated)], shape)
            else:
                y = self.node("Concat", [first, second], shape, axis=-1)
        return self.node("Concat", [y, rest], (b, h, t, size), axis=-1) if rest else y

    def mask(self) -> None:
        """What is added to scores, [1 or b, 1, t, s]: causal, perhaps of a window, perhaps with padding on the left."""
        q = self.ranged(self.past_length, self.total_length, (self.t, 1), 1)
        k = self.ranged(self.constant(0, np.int64), self.total_length, (1, self.s), 0)
        seen = self.node("LessOrEqual", [k, q], (self.t, self.s))
        if self.chance(0.3):
            oldest = self.node("Sub", [q, self.constant(self.pick([2, 5, 9]), np.int64)], (self.t, 1))
            seen = self.node("And", [seen, self.node("Greater", [k, oldest], (self.t, self.s))], (self.t, self.s))
        shape: tuple[int, ...] = (self.t, self.s)
        if self.padded:
            there = self.node("Cast", ["attention_mask"], (self.b, self.s), to=TensorProto.BOOL)
            there = self.node("Unsqueeze", [there, self.integers(1, 2)], (self.b, 1, 1, self.s))
            shape = (self.b, 1, self.t, self.s)
            seen = self.node("And", [seen, there], shape)
        self.seen, self.added = seen, self.node("Where", [seen, self.constant(0.0), self.constant(LOWEST)], shape)

    # ---- a layer

    def heads_of(self, x: str, heads: int) -> str:
        y = self.linear_to(x, heads * self.size)
        y = self.node(
            "Reshape", [y, self.integers(*self.dims("b", "t", heads, self.size))], (self.b, self.t, heads, self.size)
        )
        return self.node("Transpose", [y], (self.b, heads, self.t, self.size), perm=[0, 2, 1, 3])

    def projections(self, x: str) -> list[str]:
        """Queries, keys and values [b, h, t, size]; from one product or three."""
        counts = [self.heads, self.kv_heads, self.kv_heads]
        if self.chance(0.6):
            return [self.heads_of(x, h) for h in counts]
        total = sum(counts)
        y = self.heads_of(x, total)
        parts = [self.name() for _ in counts]
        self.nodes.append(helper.make_node("Split", [y, self.integers(*counts)], parts, axis=1))
        self.used.add(y)
        for part, h in zip(parts, counts):
            self.shapes[part] = (self.b, h, self.t, self.size)
        return parts

    def with_past(self, x: str, past: str) -> str:
        y = self.node("Concat", [past, x], (self.b, self.kv_heads, self.s, self.size), axis=2)
        self.results.append(y)
        return y

    def repeated(self, x: str) -> str:
        each = self.heads // self.kv_heads
        if each == 1:
            return x
        wide = (self.b, self.kv_heads, each, self.s, self.size)
        y = self.node("Unsqueeze", [x, self.integers(2)], (self.b, self.kv_heads, 1, self.s, self.size))
        y = self.node("Expand", [y, self.integers(1, 1, each, 1, 1)], wide)
        # 0 keeps the batch, and one -1 takes what is left.
        sizes = [0, self.heads, -1, self.size] if self.symbolic else [self.b, self.heads, self.s, self.size]
        return self.node("Reshape", [y, self.integers(*sizes)], (self.b, self.heads, self.s, self.size))

    def scores(self, q: str, k: str) -> str:
        shape = (self.b, self.heads, self.t, self.s)
        k = self.node("Transpose", [k], (self.b, self.heads, self.size, self.s), perm=[0, 1, 3, 2])
        scale, place = self.size**-0.5, self.pick(["q", "after", "both", "div"])
        if place == "q":
            q = self.node("Mul", [q, self.constant(scale)], self.shapes[q])
        if place == "both":
            q, k = (self.node("Mul", [v, self.constant(scale**0.5)], self.shapes[v]) for v in (q, k))
        p = self.node("MatMul", [q, k], shape)
        if place == "after":
            p = self.node("Mul", [p, self.constant(scale)], shape)
        if place == "div":
            p = self.node("Div", [p, self.constant(1 / scale)], shape)
        if self.capped:
            p = self.node("Tanh", [self.node("Div", [p, self.constant(5.0)], shape)], shape)
            p = self.node("Mul", [p, self.constant(5.0)], shape)
        return p

    def attention(self, x: str, layer: int) -> str:
        q, k, v = self.projections(x)
        if self.head_norm:
            q, k = self.normed(q), self.normed(k)
        if self.has_rotary:
            q, k = self.rotary(q), self.rotary(k)
        k, v = (self.with_past(new, f"past_{name}{layer}") for new, name in ((k, "k"), (v, "v")))
        k, v = self.repeated(k), self.repeated(v)
        p = self.scores(q, k)
        shape = self.shapes[p]
        if self.chance(0.6):
            p = self.node("Add", [p, self.added] if self.chance(0.7) else [self.added, p], shape)
        else:
            p = self.node("Where", [self.seen, p, self.constant(LOWEST)], shape)
        wide = self.proto != TensorProto.FLOAT and self.chance(0.4)
        p = self.cast(p, TensorProto.FLOAT) if wide else p
        p = self.node("Softmax", [p], shape, axis=-1)
        p = self.cast(p, self.proto) if wide else p
        y = self.node("MatMul", [p, v], (self.b, self.heads, self.t, self.size))
        y = self.node("Transpose", [y], (self.b, self.t, self.heads, self.size), perm=[0, 2, 1, 3])
        n = self.heads * self.size
        y = self.node("Reshape", [y, self.integers(*self.dims("b", "t", n))], (self.b, self.t, n))
        return self.linear_to(y, self.d)

    def activated(self, x: str) -> str:
        shape = self.shapes[x]
        kind = self.pick(["silu", "silu", "gelu", "erf", "tanh", "relu2", "quick"])
        if kind == "silu":
            return self.node("Mul", [x, self.node("Sigmoid", [x], shape)], shape)
        if kind == "gelu":
            return self.node("Gelu", [x], shape, approximate=self.pick(["none", "tanh"]))
        if kind == "erf":
            y = self.node("Erf", [self.node("Div", [x, self.constant(2**0.5)], shape)], shape)
            y = self.node("Mul", [x, self.node("Add", [y, self.constant(1.0)], shape)], shape)
            return self.node("Mul", [y, self.constant(0.5)], shape)
        if kind == "tanh":
            y = self.node("Mul", [self.node("Mul", [x, x], shape), x], shape)
            y = self.node("Add", [x, self.node("Mul", [y, self.constant(0.044715)], shape)], shape)
            y = self.node("Tanh", [self.node("Mul", [y, self.constant(0.7978846)], shape)], shape)
            y = self.node("Add", [y, self.constant(1.0)], shape)
            return self.node("Mul", [self.node("Mul", [x, self.constant(0.5)], shape), y], shape)
        if kind == "relu2":
            y = self.node("Relu", [x], shape)
            return self.node("Mul", [y, y], shape)
        y = self.node("Sigmoid", [self.node("Mul", [x, self.constant(1.702)], shape)], shape)
        return self.node("Mul", [x, y], shape)

    def mlp(self, x: str) -> str:
        n = self.pick([32, 64, 128, 176])
        gated = self.chance(0.7)
        if gated and self.chance(0.4):  # one product, split
            y = self.linear_to(x, 2 * n)
            parts = [self.name(), self.name()]
            self.nodes.append(helper.make_node("Split", [y, self.integers(n, n)], parts, axis=-1))
            self.used.add(y)
            for part in parts:
                self.shapes[part] = (self.b, self.t, n)
            y = self.node("Mul", [self.activated(parts[0]), parts[1]], (self.b, self.t, n))
        elif gated:
            y, z = self.activated(self.linear_to(x, n)), self.linear_to(x, n)
            y = self.node("Mul", [y, z] if self.chance(0.5) else [z, y], (self.b, self.t, n))
        else:
            y = self.activated(self.linear_to(x, n))
        return self.linear_to(y, self.d)

    def layer(self, x: str, index: int) -> str:
        shape = (self.b, self.t, self.d)
        add = lambda a, b: self.node("Add", [a, b] if self.chance(0.5) else [b, a], shape)
        order = self.pick(["before", "before", "before", "after", "both", "parallel"])
        if order == "after":
            x = self.normed(add(x, self.attention(x, index)))
            return self.normed(add(x, self.mlp(x)))
        if order == "parallel":
            y = self.normed(x)
            return add(add(x, self.attention(y, index)), self.mlp(y))
        y = self.attention(self.normed(x), index)
        x = add(x, self.normed(y) if order == "both" else y)
        y = self.mlp(self.normed(x))
        return add(x, self.normed(y) if order == "both" else y)

    def model(self) -> None:
        layers = self.pick([1, 1, 2])
        self.add_typed("ids", TensorProto.INT64, (self.b, self.t), ["b", "t"])
        for i in range(layers):
            for name in ("k", "v"):
                shape, names = (self.b, self.kv_heads, self.p, self.size), ["b", self.kv_heads, "p", self.size]
                self.add_typed(f"past_{name}{i}", self.proto, shape, names)
        self.padded = self.chance(0.4)
        if self.padded:
            self.add_typed("attention_mask", TensorProto.INT64, (self.b, self.s), ["b", "s"])
        self.capped, self.head_norm = self.chance(0.15), self.chance(0.25)
        self.has_rotary = self.chance(0.75)
        self.lengths()
        if self.has_rotary:
            self.tables()
        self.mask()
        table = self.weight(VOCABULARY, self.d)
        x = self.node("Gather", [table, "ids"], (self.b, self.t, self.d), axis=0)
        if self.chance(0.2):
            x = self.node("Mul", [x, self.constant(self.d**0.5 / 4)], self.shapes[x])
        for i in range(layers):
            x = self.layer(x, i)
        x = self.normed(x)
        if self.chance(0.3):  # of the last token alone
            x = self.node("Gather", [x, self.integers(-1)], (self.b, 1, self.d), axis=1)
        self.results.insert(0, self.linear_to(x, VOCABULARY, bias=False))

    def add_typed(self, name: str, proto: int, shape: tuple[int, ...], names: list[Any]) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, proto, names if self.symbolic else shape))
        self.shapes[name] = shape


def language_model(seed: int, kind: str, symbolic: bool) -> Decoder:
    """The nodes, constants, inputs and names of results of a model."""
    g = Decoder(seed, kind, symbolic)
    g.model()
    return g


def integers_of(name: str, shape: list[int], r: np.random.Generator) -> np.ndarray:
    """A feed: token ids, or a mask whose rows are padded on the left."""
    if name == "ids":
        return r.integers(0, VOCABULARY, shape)
    skipped = r.integers(0, max(1, shape[1] // 2), (shape[0], 1))
    return (np.arange(shape[1])[None] >= skipped).astype(np.int64)
