"""Divides a decoder among the devices of one machine: tensor parallelism.

As in Shoeybi et al. 2019 (Megatron-LM, arXiv:1909.08053). Of a pair of GEMMs with only element-wise operations or attention
between them, each device has some columns of the first weight and the corresponding rows of the second. The sum of the devices'
results (AllReduce) is the result. Attention heads, and with them the KV cache, are divided with the columns that compute them.
Each device computes the logits of a part of the vocabulary (AllGather), and has some intermediate columns of every expert of a
mixture of experts (shard_experts.py). Everything else, such as norms and embeddings, is replicated. Pairs of GEMMs are found by
the structure of the graph, not by names: see shard_pairs.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidModelError, UnsupportedError
from .shard_experts import KINDS, divide_experts
from .shard_pairs import NoPair, Pairs, Product, Region
from .shard_weights import (
    Ranges,
    WeightFiles,
    WeightWriter,
    blocks_taken,
    filled_up,
    share,
    share_unit,
    size_of,
    take,
    zero_points_taken,
)
from .weights import Array

_NORMS = frozenset(("SimplifiedLayerNormalization", "LayerNormalization", "RMSNormalization"))
_LOGITS_TAIL = frozenset(("Cast", "Mul", "Div", "Tanh", "Add", "Where"))


class Divider(Pairs):
    def __init__(self, model: Any, files: WeightFiles, writer: WeightWriter, rank: int, size: int):
        super().__init__(model, files)
        self.model, self.writer = model, writer
        self.rank, self.size = rank, size
        self.added: list[Any] = []  # initializers
        self.new_nodes: list[tuple[Any, Any]] = []  # after which node; the node
        self.kv_heads: dict[str, int] = {}  # of caches

    # ---- parts

    def add(self, name: str, array: Array) -> str:
        """A new initializer, called after an old one."""
        new = f"{name}/part{len(self.added)}"
        self.added.append(self.writer.tensor(new, array))
        return new

    def columns(self, p: Product, ranges: Ranges, filled: int = 0) -> None:
        """Keeps only these columns; appends zeros if there are fewer than `filled`."""
        self.done.add(id(p.node))
        node, count = p.node, max(size_of(ranges), filled)
        if node.op_type == "MatMul":
            axis = 0 if p.turned is not None else 1
            part = filled_up(take(self.files.array(p.weight), axis, ranges), axis, count)
            name = self.add(p.weight, part)
            if p.turned is not None:
                turned = f"{name}/turned"
                self.new_nodes.append((None, self.onnx.helper.make_node("Transpose", [name], [turned], perm=[1, 0])))
                name = turned
            node.input[1] = name
            return
        for at, name in list(enumerate(node.input))[1:]:
            if name:
                array = self.files.array(name)
                node.input[at] = self.add(name, filled_up(take(array.reshape(p.n, -1), 0, ranges), 0, count).reshape(
                    (count, *array.shape[1:]) if array.ndim > 1 else -1))  # fmt: skip
        self.set(node, "N", count)

    def rows(self, p: Product, ranges: Ranges) -> None:
        """Keeps only these rows; the result becomes a partial sum."""
        self.done.add(id(p.node))
        node = p.node
        if node.op_type == "MatMul":
            axis = 1 if p.turned is not None else 0
            name = self.add(p.weight, take(self.files.array(p.weight), axis, ranges))
            if p.turned is not None:
                turned = f"{name}/turned"
                self.new_nodes.append((None, self.onnx.helper.make_node("Transpose", [name], [turned], perm=[1, 0])))
                name = turned
            node.input[1] = name
        else:
            a = self.attributes(node)
            blocks, taken = -(-p.k // p.block), blocks_taken(ranges, p.block, p.k)
            weight = self.files.array(p.weight).reshape(p.n, blocks, -1)
            node.input[1] = self.add(p.weight, take(weight, 1, taken))
            scales = self.files.array(node.input[2])
            part = take(scales.reshape(p.n, blocks), 1, taken)
            node.input[2] = self.add(node.input[2], part if scales.ndim > 1 else part.reshape(-1))
            if len(node.input) > 3 and node.input[3]:
                zeros = self.files.array(node.input[3])
                part = zero_points_taken(zeros, p.n, blocks, a.get("bits", 4), taken)
                node.input[3] = self.add(node.input[3], part if zeros.ndim > 1 else part.reshape(-1))
            if len(node.input) > 5 and node.input[5] and self.rank > 0:
                node.input[5] = ""  # only one device adds it
            self.set(node, "K", size_of(ranges))
        self.summed(node)

    def summed(self, node: Any) -> None:
        """The result becomes a partial sum over the devices."""
        whole = node.output[0]
        node.output[0] = f"{whole}/part"
        self.new_nodes.append(
            (
                node,
                self.onnx.helper.make_node(
                    "AllReduce",
                    [node.output[0]],
                    [whole],
                    name=f"{node.name}/AllReduce",
                    domain="com.microsoft",
                    group_size=self.size,
                ),
            )
        )

    def set(self, node: Any, name: str, value: int) -> None:
        for a in node.attribute:
            if a.name == name:
                a.i = value
                return
        node.attribute.append(self.onnx.helper.make_attribute(name, value))

    # ---- between GEMMs

    def divide(self, r: Region) -> None:
        width = r.last.k
        if r.attention:
            heads = {self.attributes(a)["num_heads"] for a in r.attention}
            if len(heads) != 1:
                raise NoPair
            per_head, left = divmod(width, heads.pop())
            if left:
                raise InvalidModelError(f"'{r.last.node.name}' has {width} rows, which the heads before it do not give")
            part = share(width, self.rank, self.size, per_head)
        else:
            unit = share_unit(width, self.size, r.last.block)
            if width < unit * self.size:
                return  # too narrow
            part = share(width, self.rank, self.size, unit)
        widths = {p.node.output[0]: p.n for p in r.firsts}
        widths.update((a.output[0], width) for a in r.attention)
        for p in r.firsts:
            if p.n % width:
                raise NoPair

        def ranges(of: int) -> Ranges:
            return [(k * width + part[0], k * width + part[1]) for k in range(of // width)]

        changes: list[tuple[Any, int, str, int]] = []  # node, input, constant, its width
        for node in reversed(self.in_order(r.nodes)):
            self.follow(node, widths, width, changes)
        if widths.get(r.last.node.input[0]) != width:
            raise NoPair
        if r.last.node.op_type == "MatMulNBits":
            blocks_taken([part], r.last.block, width)
        # From here on the graph changes.
        for attention in r.attention:
            self.divide_attention(attention)
        for p in r.firsts:
            self.columns(p, ranges(p.n))
        for node, at, name, of in changes:
            array = self.value(name)
            if node.op_type == "Split":
                array = np.full(array.shape, part[1] - part[0], np.int64)
            else:
                array = take(array, array.ndim - 1, ranges(of))
            node.input[at] = self.add(name, array)
        self.rows(r.last, [part])
        self.done.update(id(n) for n in r.nodes)

    def in_order(self, nodes: list[Any]) -> list[Any]:
        """In reverse order."""
        place = {id(n): k for k, n in enumerate(self.nodes)}
        return sorted(nodes, key=lambda n: -place[id(n)])

    def follow(self, node: Any, widths: dict[str, int], width: int, changes: list[tuple[Any, int, str, int]]) -> None:
        """The width of a node's results, and which of its constants are divided with them."""
        if node.op_type == "Split":
            a = self.attributes(node)
            if a.get("axis", 0) not in (-1, 2) or widths.get(node.input[0], 0) != width * len(node.output):
                raise NoPair
            if len(node.input) > 1 and node.input[1]:
                if not self.constant(node.input[1]) or set(self.value(node.input[1]).tolist()) != {width}:
                    raise NoPair
                changes.append((node, 1, node.input[1], width))
            widths.update((o, width) for o in node.output if o)
            return
        wide = {widths[i] for i in node.input if i in widths}
        if len(wide) != 1:
            raise NoPair
        (of,) = wide
        for at, name in enumerate(node.input):
            if name and self.constant(name) and name not in widths:
                shape = self.value(name).shape
                if shape and shape[-1] == of:
                    changes.append((node, at, name, of))
                elif shape and shape[-1] != 1:
                    raise NoPair
        widths.update((o, of) for o in node.output if o)

    # ---- attention

    def divide_attention(self, node: Any) -> None:
        a = self.attributes(node)
        heads, kv_heads = a["num_heads"], a["kv_num_heads"]
        inputs = [*node.input, *[""] * (16 - len(node.input))]
        q = share(heads, self.rank, self.size, 1)
        if kv_heads % self.size == 0:
            kv = share(kv_heads, self.rank, self.size, 1)
        else:  # several devices have the same one
            kv = (self.rank * kv_heads // self.size, self.rank * kv_heads // self.size + 1)
        if inputs[10] and self.constant(inputs[10]):  # one that is computed must be the same for all heads
            bias = self.value(inputs[10])
            if bias.ndim == 4 and bias.shape[1] == heads > 1:
                node.input[10] = self.add(inputs[10], take(bias, 1, [q]))
        if inputs[12] or inputs[13]:
            raise UnsupportedError(f"'{node.name}' has a quantised cache, so its heads can't be divided among devices")
        if inputs[11]:
            if not self.constant(inputs[11]):
                raise UnsupportedError(f"'{node.name}' has sinks that are computed; its heads can't be divided")
            node.input[11] = self.add(inputs[11], take(self.value(inputs[11]), 0, [q]))
        if inputs[1]:
            self.divide_heads(node, inputs, (heads, kv_heads, kv_heads), (q, kv, kv))
        else:
            first, chain = self.chain(inputs[0], node)
            self.divide_chain(first, chain, (heads, kv_heads, kv_heads), (q, kv, kv))
        self.set(node, "num_heads", q[1] - q[0])
        self.set(node, "kv_num_heads", kv[1] - kv[0])
        for name in (*inputs[3:5], *node.output[1:3]):
            self.kv_heads[name] = kv[1] - kv[0]
        self.done.add(id(node))

    def divide_heads(
        self, node: Any, inputs: list[str], heads: tuple[int, ...], parts: tuple[tuple[int, int], ...]
    ) -> None:
        """Queries, keys and values from separate GEMMs, or from one GEMM through a Split."""
        ways = [self.chain(name, node) for name in inputs[:3]]
        splits = [chain[-1] for _, chain in ways if chain and chain[-1].op_type == "Split"]
        if not splits:
            for (first, chain), count, part in zip(ways, heads, parts):
                self.divide_chain(first, chain, (count,), (part,))
            return
        split = splits[0]
        if len(splits) != 3 or any(s is not split for s in splits):
            raise UnsupportedError(
                f"'{node.name}': its queries, keys and values are not computed by GEMMs that can be divided"
            )
        first = ways[0][0]
        size = first.n // sum(heads)
        if len(split.input) < 2 or self.value(split.input[1]).tolist() != [h * size for h in heads]:
            raise UnsupportedError(f"'{split.name}' does not divide into queries, keys and values")
        self.divide_chain(first, [], heads, parts)
        split.input[1] = self.add(split.input[1], np.array([(e - b) * size for b, e in parts], np.int64))
        for (_, chain), count, part in zip(ways, heads, parts):
            self.divide_chain(None, chain[:-1], (count,), (part,), size)

    def chain(self, name: str, attention: Any) -> tuple[Product, list[Any]]:
        """From attention's input back to the GEMM that computes it; returns the nodes in between, the last first."""
        chain: list[Any] = []
        reader = attention
        while True:
            node = self.makers.get(name)
            alone = node is not None and (node.op_type == "Split" or len(self.users.get(name, [])) == 1)
            if node is None or not alone or name in self.outputs or id(node) in self.done or len(chain) > 16:
                break
            if id(node) in self.products:
                return self.products[id(node)], chain
            fixed = [i for i in node.input[1:] if i and not self.constant(i)]
            simple = node.op_type in ("Cast", "Split", "RotaryEmbedding")
            by_constants = node.op_type in ("Add", "Reshape", *_NORMS) and not fixed
            if not simple and not by_constants:
                break
            chain.append(node)
            reader, name = node, node.input[0]
        raise UnsupportedError(
            f"'{attention.name}': its queries, keys and values are not computed by GEMMs that can be divided among devices "
            f"('{name}', which '{reader.name}' reads)"
        )

    def divide_chain(
        self,
        first: Product | None,
        chain: list[Any],
        heads: tuple[int, ...],
        parts: tuple[tuple[int, int], ...],
        head_size: int = 0,
    ) -> None:
        """A GEMM whose columns are several kinds of heads, and the nodes after it."""
        total = sum(heads)
        size = first.n // total if first is not None else head_size
        if first is not None and first.n % total:
            raise InvalidModelError(f"'{first.node.name}' has {first.n} columns for {total} heads")
        ranges, start = [], 0
        for count, (begin, end) in zip(heads, parts):
            ranges.append(((start + begin) * size, (start + end) * size))
            start += count
        local = size_of(ranges) // size
        if first is not None:
            self.columns(first, ranges)
        for node in chain:
            if node.op_type == "Add":
                bias = self.value(node.input[1])
                if bias.ndim and bias.shape[-1] == total * size:
                    node.input[1] = self.add(node.input[1], take(bias, bias.ndim - 1, ranges))
                elif bias.size != 1:
                    raise UnsupportedError(f"'{node.name}' adds something that can't be divided among devices")
            elif node.op_type == "Reshape":
                shape = self.value(node.input[1]).tolist()
                if shape[-1] not in (size, total * size):
                    raise UnsupportedError(f"'{node.name}' makes a shape that can't be divided among devices: {shape}")
                last = size if shape[-1] == size else local * size
                inner = [local if d == total and k >= 2 else d for k, d in enumerate(shape[:-1])]
                node.input[1] = self.add(node.input[1], np.array([*inner, last], np.int64))
            elif node.op_type in _NORMS and self.value(node.input[1]).shape != (size,):
                raise UnsupportedError(
                    f"'{node.name}' is a norm over several heads, which can't be divided among devices"
                )
            elif node.op_type == "RotaryEmbedding" and self.attributes(node).get("num_heads", 0) > 0:
                self.set(node, "num_heads", local)
            self.done.add(id(node))

    # ---- the vocabulary

    def divide_logits(self, name: str) -> None:
        node = self.makers.get(name)
        while node is not None and node.op_type in _LOGITS_TAIL and id(node) not in self.products:
            inner = [i for i in node.input if i and not self.constant(i)]
            node = self.makers.get(inner[0]) if len(inner) == 1 else None
        p = self.products.get(id(node))
        if p is None or id(node) in self.done or p.n < self.size:
            return
        each = -(-p.n // self.size)
        part = min(self.rank * each, p.n), min((self.rank + 1) * each, p.n)
        self.columns(p, [part], each)
        whole = p.node.output[0]
        p.node.output[0] = f"{whole}/part"
        together = whole if each * self.size == p.n else f"{whole}/filled"
        gather = self.onnx.helper.make_node(
            "AllGather",
            [p.node.output[0]],
            [together],
            name=f"{p.node.name}/AllGather",
            domain="com.microsoft",
            group_size=self.size,
            axis=-1,
        )
        self.new_nodes.append((p.node, gather))
        if together != whole:
            bounds = [self.add(f"{whole}/{n}", np.array([v], np.int64)) for n, v in (("b", 0), ("e", p.n), ("a", -1))]
            cut = self.onnx.helper.make_node("Slice", [together, *bounds], [whole], name=f"{p.node.name}/cut")
            self.new_nodes.append((gather, cut))

    # ---- all of it

    def run(self, logits: str) -> None:
        attention = [n for n in self.nodes if n.op_type == "GroupQueryAttention"]
        if not attention:
            raise UnsupportedError(
                "the model has no GroupQueryAttention, whose heads could be divided among devices; use one device, or export "
                "it with onnxruntime-genai's model builder or convert-gguf"
            )
        for node in attention:
            a = self.attributes(node)
            h, g = a.get("num_heads", 0), a.get("kv_num_heads", 0)
            if h < 1 or g < 1:
                raise InvalidModelError(f"'{node.name}' has {h} heads and {g} for keys")
            if h % self.size or (g % self.size and self.size % g):
                raise UnsupportedError(
                    f"'{node.name}' has {h} heads and {g} for keys, which can't be divided evenly among {self.size} devices"
                )
        for product in list(self.products.values()):
            try:
                self.divide(self.region(product))
            except NoPair:
                continue
        for node in self.nodes:
            if node.op_type in KINDS and node.domain == "com.microsoft" and divide_experts(self, node):
                self.summed(node)
        for node in attention:
            if id(node) not in self.done:
                raise UnsupportedError(
                    f"'{node.name}' can't be divided among devices: no GEMM with constant weights follows it"
                )
        self.divide_logits(logits)
        self.finish()

    def finish(self) -> None:
        graph = self.graph
        for v in (*graph.input, *graph.output):
            if v.name in self.kv_heads:
                dim = v.type.tensor_type.shape.dim
                if len(dim) == 4:
                    dim[1].dim_value = self.kv_heads[v.name]
        del graph.value_info[:]
        after: dict[int, list[Any]] = {}
        start: list[Any] = []
        for place, node in self.new_nodes:
            (start if place is None else after.setdefault(id(place), [])).append(node)
        nodes = start
        stack = list(reversed(self.nodes))
        while stack:
            node = stack.pop()
            nodes.append(node)
            stack.extend(reversed(after.get(id(node), [])))
        copies = []
        for node in nodes:
            copy = self.onnx.NodeProto()
            copy.CopyFrom(node)
            copies.append(copy)
        used = {i for n in copies for i in n.input} | self.outputs
        copies = [n for n in copies if n.op_type != "Transpose" or any(o in used for o in n.output)]
        read = _read_names(copies) | self.outputs
        kept = []
        for name, tensor in self.files.tensors.items():
            if name not in read:
                continue
            if tensor.data_location == self.onnx.TensorProto.EXTERNAL:
                kept.append(self.writer.tensor(name, self.files.array(name)))
            else:
                same = self.onnx.TensorProto()
                same.CopyFrom(tensor)
                kept.append(same)
        del graph.node[:]
        graph.node.extend(copies)
        del graph.initializer[:]
        graph.initializer.extend([*kept, *(t for t in self.added if t.name in read)])
        if not any(o.domain == "com.microsoft" for o in self.model.opset_import):
            self.model.opset_import.append(self.onnx.helper.make_opsetid("com.microsoft", 1))


def _read_names(nodes: Any) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                names |= _read_names(body.node)
    return names
