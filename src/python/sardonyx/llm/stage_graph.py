"""Divides a decoder's layers among devices: pipeline parallelism.

Each stage has some successive layers, and computes them from the hidden states that the stage before it gives. The first one
has the embedding too, the last one the logits. As in vLLM and Megatron-LM, a stage may itself be divided among several devices
(shard_graph.py). The places between layers are found by the structure of the graph, not by names: a layer begins with the GEMMs
that its attention's queries, keys and values come from, and with what only these read (its norm), where that leaves fewer
tensors to send.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError
from .genai_folder import GenaiFolder
from .packages import needed
from .shard_graph import Divider
from .shard_weights import WeightFiles, WeightWriter
from .step_graph import _read_by

_PRODUCTS = frozenset(("MatMul", "MatMulNBits", "Gemm", "MoE", "QMoE"))
_NORMS = frozenset(
    (
        *("SimplifiedLayerNormalization", "LayerNormalization", "RMSNormalization"),
        *("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"),
    )
)
Layout = tuple[np.dtype[Any], int]  #: type and width of a hidden state


@dataclass(frozen=True)
class Carried:
    """A tensor [1, tokens, width] that one stage sends to the next."""

    name: str
    dtype: np.dtype[Any]
    width: int


class Stages:
    """The places between a decoder's layers. Raises errors.Error if it can't be divided there."""

    def __init__(self, folder: GenaiFolder, model: Any):
        self._onnx, self._folder, self._graph = needed("onnx"), folder, model.graph
        self._nodes = list(model.graph.node)
        self._makers = {o: k for k, n in enumerate(self._nodes) for o in n.output if o}
        self._reads = [sorted(_read_by(n) - {""}) for n in self._nodes]
        self._users: dict[str, list[int]] = {}
        for k, names in enumerate(self._reads):
            for name in names:
                self._users.setdefault(name, []).append(k)
        self._weights = {t.name: t for t in model.graph.initializer}
        self._layers = self._attention()
        self._own = self._dependent()

    def _attention(self) -> list[int]:
        """The node of each layer's attention."""
        found = []
        for past in self._folder.past[::2]:
            nodes = [k for k in self._users.get(past, []) if self._nodes[k].op_type == "GroupQueryAttention"]
            if len(nodes) != 1:
                raise UnsupportedError(
                    f"'{self._folder.model}': '{past}' is not the cache of one GroupQueryAttention, so its layers can't be "
                    "divided among devices"
                )
            found.append(nodes[0])
        return found

    def _dependent(self) -> list[bool]:
        """Of each node, whether its results depend on what tokens mean: on the embedding or on attention. Others (lengths,
        positions) are computed by every stage that needs them."""
        found = [False] * len(self._nodes)
        attention = set(self._layers)
        ids = {self._folder.input_ids}
        for k, node in enumerate(self._nodes):
            of_ids = any(n in ids for n in self._reads[k])
            if of_ids:
                ids.update(o for o in node.output if o)
            table = [t for n in node.input if (t := self._weights.get(n)) is not None and len(t.dims) > 1]
            embeds = of_ids and node.op_type.startswith("Gather") and bool(table)
            inner = any(found[self._makers[n]] for n in self._reads[k] if n in self._makers)
            found[k] = k in attention or embeds or inner
        return found

    def _late(self, layer: int) -> set[int]:
        """The nodes that come with this layer or after it."""
        begin: set[int] = set()
        work = [self._makers[n] for n in self._nodes[self._layers[layer]].input[:3] if n in self._makers]
        while work:  # back to the GEMMs of queries, keys and values
            k = work.pop()
            if self._nodes[k].op_type in _PRODUCTS:
                begin.add(k)
            elif k not in self._layers:
                work += [self._makers[n] for n in self._reads[k] if n in self._makers and self._own[self._makers[n]]]
        late, work = set(begin), [*begin, self._layers[layer]]
        while work:
            k = work.pop()
            late.add(k)
            work += [u for o in self._nodes[k].output for u in self._users.get(o, []) if u not in late]
        outputs = {v.name for v in self._graph.output}
        changed = True
        while changed:  # nodes that only later ones read move there if fewer tensors cross then
            changed = False
            before = self._crossing(late)
            for name in before:
                k = self._makers[name]
                made = [o for o in self._nodes[k].output if o]
                if any(o in outputs for o in made) or any(u not in late for o in made for u in self._users.get(o, [])):
                    continue
                if len(self._crossing(late | {k})) < len(before):
                    late.add(k)
                    changed = True
                    break
        return late

    def _crossing(self, late: set[int]) -> list[str]:
        """What nodes in `late` read of those that are not, in the order of the nodes."""
        names = {n for k in late for n in self._reads[k] if n in self._makers}
        makers = self._makers
        return sorted(
            (n for n in names if makers[n] not in late and self._own[makers[n]]), key=lambda n: (makers[n], n)
        )

    def bounds(self, stages: int) -> list[int]:
        """The layer that each stage begins with, and the number of layers: weights, which a step of few tokens reads once, are
        divided evenly. Raises InvalidArgumentError if there are too few layers."""
        count = len(self._layers)
        if stages > count:
            raise InvalidArgumentError(f"{count} layers can't be divided among {stages} stages; take fewer")
        sizes = [self._bytes(n) for n in self._nodes]
        before = [0]  # bytes before each layer
        for layer in range(1, count):
            late = self._late(layer) if stages > 1 else set()
            before.append(sum(size for k, size in enumerate(sizes) if k not in late))
        total, found = sum(sizes), [0]
        for stage in range(1, stages):
            able = range(found[-1] + 1, count - (stages - stage) + 1)
            found.append(min(able, key=lambda layer: abs(before[layer] * stages - total * stage)))
        return [*found, count]

    def _bytes(self, node: Any) -> int:
        """Of a GEMM's weights."""
        known = [w for n in node.input if (w := self._weight(n)) is not None] if node.op_type in _PRODUCTS else []
        return sum(int(np.prod(dims, dtype=np.int64)) * dtype.itemsize for dtype, dims in known)

    def carried(self, layer: int) -> list[Carried]:
        """What crosses the place before a layer."""
        return [self._carried(n) for n in self._crossing(self._late(layer))] if layer else []

    def _carried(self, name: str) -> Carried:
        found = self._layout(name, {})
        if found is None:
            raise UnsupportedError(
                f"'{self._folder.model}': the type or width of '{name}', which two layers share, is not known, so the layers "
                "can't be divided among devices there; use tensor parallelism"
            )
        return Carried(name, *found)

    def _layout(self, name: str, seen: dict[str, Layout | None]) -> Layout | None:
        """Type and width of a hidden state, from the weights that it was computed with; None: not known."""
        if name not in seen:
            seen[name] = None  # while it is looked for
            k = self._makers.get(name)
            if k is not None:
                seen[name] = self._layout_of(self._nodes[k], seen)
        return seen[name]

    def _layout_of(self, node: Any, seen: dict[str, Layout | None]) -> Layout | None:
        """Of a node's first output (or the sum of a SkipLayerNormalization)."""
        op, given = node.op_type, {a.name: a for a in node.attribute}
        weights = [self._weight(n) for n in node.input]
        known = [w for w in weights if w is not None]
        if op == "MatMulNBits" and weights[2] is not None:
            return weights[2][0], given["N"].i
        if op == "GatherBlockQuantized" and weights[2] is not None:
            return weights[2][0], weights[2][1][-1] * given["block_size"].i
        if op in _NORMS and known:
            return known[0][0], known[0][1][-1]
        if op in ("MatMul", "Gather") and known and len(known[0][1]) > 1:
            return known[0][0], known[0][1][-1]
        if op == "Cast":
            inner = self._layout(node.input[0], seen)
            dtype = np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(given["to"].i))
            return (dtype, inner[1]) if inner else None
        if op in ("MoE", "QMoE", "Identity"):
            return self._layout(node.input[0], seen)
        if op in ("Add", "Sub", "Mul", "Div"):
            # A GEMM's result is known at once; the other one may lead through all layers before.
            able = sorted((n for n in node.input if n in self._makers), key=self._is_product, reverse=True)
            return next((found for n in able if (found := self._layout(n, seen)) is not None), None)
        return None

    def _is_product(self, name: str) -> bool:
        return self._nodes[self._makers[name]].op_type in _PRODUCTS

    def _weight(self, name: str) -> tuple[np.dtype[Any], list[int]] | None:
        """Type and dims of a weight, which may be transposed."""
        k, turned = self._makers.get(name), False
        if k is not None and self._nodes[k].op_type == "Transpose":
            name, turned = self._nodes[k].input[0], True
        tensor = self._weights.get(name)
        if tensor is None:
            return None
        dims = list(tensor.dims)
        return np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)), dims[::-1] if turned else dims

    def cut(self, bounds: list[int], stage: int) -> GenaiFolder:
        """Leaves the graph with the nodes of one stage. What its folder says; path and model are the whole one's."""
        first, last = bounds[stage], bounds[stage + 1]
        final = stage == len(bounds) - 2
        come, go = self.carried(first), [] if final else self.carried(last)
        folder = dataclasses.replace(
            self._folder,
            layers=last - first,
            past=self._folder.past[2 * first : 2 * last],
            present=self._folder.present[2 * first : 2 * last],
            logits=self._folder.logits if final else "",
            carried_in=tuple(c.name for c in come),
            carried_out=tuple(f"{c.name}/sent" for c in go),
        )
        outputs = [*folder.present, *(c.name for c in go), *([folder.logits] if final else [])]
        kept = self._ancestors(outputs, set(folder.carried_in))
        self._write(kept, folder, come, go)
        return folder

    def _ancestors(self, names: list[str], known: set[str]) -> list[int]:
        seen: set[int] = set()
        work = [n for n in names if n not in known]
        while work:
            k = self._makers.get(work.pop())
            if k is None or k in seen:
                continue
            seen.add(k)
            work += [n for n in self._reads[k] if n not in known]
        return sorted(seen)

    def _write(self, kept: list[int], folder: GenaiFolder, come: list[Carried], go: list[Carried]) -> None:
        graph, helper = self._graph, self._onnx.helper
        nodes = [self._nodes[k] for k in kept]
        if sum(n.op_type == "GroupQueryAttention" for n in nodes) != folder.layers:
            raise UnsupportedError(
                f"'{folder.model}': its layers use caches of other layers, so they can't be divided among devices; use tensor "
                "parallelism"
            )
        copies = []
        for node in nodes:
            copy = type(node)()
            copy.CopyFrom(node)
            copies.append(copy)
        # A tensor may pass through a stage, and an input can't be an output.
        copies += [helper.make_node("Identity", [c.name], [name]) for c, name in zip(go, folder.carried_out)]
        whole = set(self._folder.past)
        inputs = [v for v in graph.input if v.name not in whole or v.name in folder.past]
        outputs = [v for v in graph.output if v.name in (*folder.present, folder.logits)]

        def value(name: str, c: Carried) -> Any:
            kind = helper.np_dtype_to_tensor_dtype(c.dtype)
            return helper.make_tensor_value_info(name, kind, ["batch_size", "sequence_length", c.width])

        inputs += [value(c.name, c) for c in come]
        outputs += [value(name, c) for c, name in zip(go, folder.carried_out)]
        read = {n for k in kept for n in self._reads[k]}
        tensors = [t for t in graph.initializer if t.name in read]
        for field, values in (("node", copies), ("input", inputs), ("output", outputs), ("initializer", tensors)):
            same = []
            for v in values:
                copy = type(v)()
                copy.CopyFrom(v)
                same.append(copy)
            del getattr(graph, field)[:]
            getattr(graph, field).extend(same)
        del graph.value_info[:]


def _loaded(folder: GenaiFolder) -> Any:
    try:
        return needed("onnx").load(folder.model, load_external_data=False)
    except Exception as error:  # protobuf's errors have no common base
        raise InvalidModelError(f"'{folder.model}' is not an ONNX model: {error}") from None


def check_stages(folder: GenaiFolder, stages: int) -> None:
    """Raises errors.Error if the decoder can't be divided into so many stages."""
    whole = Stages(folder, _loaded(folder))
    for layer in whole.bounds(stages)[:-1]:
        whole.carried(layer)


def write_part(whole: GenaiFolder, path: str, stage: int, stages: int, rank: int, size: int) -> GenaiFolder:
    """Writes model.onnx of one device to the folder `path`: `rank` of the `size` that divide the stage among them. With one
    device a stage, weights stay in the whole model's folder; else there is a model.onnx.data. Returns what the part is.

    Raises errors.Error: UnsupportedError for a model that can't be divided, with the node and the reason; InvalidModelError,
    FileError.
    """
    onnx, model = needed("onnx"), _loaded(whole)
    part = whole
    if stages > 1:
        cutter = Stages(whole, model)
        part = cutter.cut(cutter.bounds(stages), stage)
    data = os.path.dirname(whole.model) or "."
    file = os.path.join(path, "model.onnx")
    try:
        if size > 1:
            name = "model.onnx.data"
            with open(os.path.join(path, name), "wb") as out:
                files = WeightFiles(data, model.graph.initializer)
                Divider(model, files, WeightWriter(name, out), rank, size).run(part.logits)
            data = path
        onnx.save_model(model, file)
    except OSError as error:
        raise FileError(f"a device's part of the model can't be written to '{path}': {error.strerror}") from None
    return dataclasses.replace(part, path=path, model=file, weights=data)
