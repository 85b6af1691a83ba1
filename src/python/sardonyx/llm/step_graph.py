"""Turns a decoder's ONNX graph into that of one step of generation: tokens in, the chosen tokens out.

In genai's interface, the application computes attention mask and positions; here the graph computes them from the sequences'
lengths. It computes logits only for each sequence's last token, and chooses the next token. So a step needs nothing from the
host, and returns only a token for each sequence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidModelError, UnsupportedError
from .genai_folder import GenaiFolder
from .packages import needed
from .sampling_graph import Nodes, SamplingKind, _range, add_sampling

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class CacheLayout:
    """Shapes and type of a decoder's keys and values."""

    shared: bool  #: past and present are one buffer with spare capacity (GroupQueryAttention); else the past grows
    dtype: str
    heads: tuple[int, ...]  #: of keys, by the order of GenaiFolder.past
    head_sizes: tuple[int, ...]


class StepGraph:
    """A folder's decoder, without its weights. Raises errors.Error if it cannot be run."""

    def __init__(self, folder: GenaiFolder):
        onnx = needed("onnx")
        self._folder = folder
        try:
            self._model: onnx.ModelProto = onnx.load(folder.model, load_external_data=False)
        except Exception as error:  # protobuf's errors have no common base
            raise InvalidModelError(f"'{folder.model}' is not an ONNX model: {error}") from None
        graph = self._model.graph
        inputs = {v.name: v for v in graph.input}
        outputs = {v.name: v for v in graph.output}
        named = [folder.input_ids, folder.attention_mask, folder.position_ids, *folder.past, *folder.carried_in]
        for name in named:
            if name and name not in inputs:
                raise InvalidModelError(f"'{folder.model}' has no input '{name}', which genai_config.json names")
        for name in (folder.logits, *folder.present, *folder.carried_out):
            if name and name not in outputs:
                raise InvalidModelError(f"'{folder.model}' has no output '{name}', which genai_config.json names")
        fed = {i.name for i in graph.initializer}
        for name in inputs:
            if name not in named and name not in fed:
                raise UnsupportedError(f"'{folder.model}' has the input '{name}', whose use is not known here")

        def dtype_of(name: str) -> np.dtype[Any]:
            return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(inputs[name].type.tensor_type.elem_type))

        self.ids_dtype = dtype_of(folder.input_ids)
        self.positions_dtype = dtype_of(folder.position_ids) if folder.position_ids else np.dtype(np.int64)
        #: Type and width of the hidden states that come from the stage before.
        self.carried = {
            n: (dtype_of(n), int(inputs[n].type.tensor_type.shape.dim[2].dim_value)) for n in folder.carried_in
        }
        self.cache = self._cache_layout(inputs)
        shape = outputs[folder.logits].type.tensor_type.shape.dim if folder.logits else ()
        self.pruned = len(shape) == 3 and shape[1].dim_value == 1  #: the model gives the last position's logits only

    def _cache_layout(self, inputs: dict[str, Any]) -> CacheLayout:
        onnx, folder = needed("onnx"), self._folder
        users: dict[str, list[tuple[Any, int]]] = {}
        for node in self._model.graph.node:
            for at, name in enumerate(node.input):
                users.setdefault(name, []).append((node, at))
        shared, heads, sizes, dtype = True, [], [], ""
        for k, name in enumerate(folder.past):
            tensor = inputs[name].type.tensor_type
            dims = [d.dim_value for d in tensor.shape.dim]
            if len(dims) != 4 or dims[1] < 1 or dims[3] < 1:
                raise UnsupportedError(
                    f"'{folder.model}': '{name}' is not [batch, heads, past, head size] of known sizes"
                )
            heads.append(dims[1])
            sizes.append(dims[3])
            this = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
            if dtype not in ("", this):
                raise UnsupportedError(f"'{folder.model}': keys and values have types {dtype} and {this}")
            dtype = this
            found = users.get(name, [])
            shared &= (
                len(found) == 1
                and found[0][0].op_type == "GroupQueryAttention"
                and found[0][1] == 3 + k % 2
                and list(found[0][0].output)[1 + k % 2 : 2 + k % 2] == [folder.present[k]]
            )
        return CacheLayout(shared, dtype, tuple(heads), tuple(sizes))

    def build(self, kind: SamplingKind) -> bytes:
        """The model for this kind of step, serialised; its external data stays in the folder.

        Inputs: the ids [batch, new]; lengths int64 [batch], of each sequence with the new tokens; width int8 [batch,
        attended], of which only the size counts: that of the cache's buffer, or, when all tokens are new, their number;
        the caches; those of add_sampling(). "beam" has beam_index int64 [batch] too, which sequence of the caches each
        one continues. Outputs: the caches, those of add_sampling(), lengths_next.
        """
        onnx, folder = needed("onnx"), self._folder
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        graph = model.graph
        n = Nodes(graph)
        own = list(graph.node)
        kept = [v for v in graph.input if v.name not in (folder.attention_mask, folder.position_ids)]
        replaced = {v.name: v for v in graph.input}
        del graph.input[:]
        graph.input.extend(kept)
        lengths = n.input("lengths", np.int64, ["batch_size"])
        width = n.input("width", np.int8, ["batch_size", "width"])
        ids_shape = n.add("Shape", folder.input_ids)
        new = n.add("Gather", ids_shape, n.constant(1, np.int64), axis=0)
        all_of = n.add("Gather", n.add("Shape", width), n.constant(1, np.int64), axis=0)
        first = n.add("Equal", new, all_of)
        rows = n.add("Unsqueeze", lengths, n.constant([1], np.int64))
        zero, one = n.constant(0, np.int64), n.constant(1, np.int64)
        if self.cache.shared:  # tokens are at the buffer's start, padding is to the right
            start = n.add("Where", first, zero, n.add("Sub", rows, new))
            position = n.add("Add", start, _range(n, new))
            mask = n.add("Less", _range(n, all_of), rows)
            last = n.add("Sub", n.add("Where", first, rows, new), one)
        else:  # tokens are at the end, padding is to the left
            missing = n.add("Sub", all_of, rows)
            place = n.add("Add", n.add("Sub", all_of, new), _range(n, new))
            position = n.add("Max", n.add("Sub", place, missing), zero)
            mask = n.add("GreaterOrEqual", _range(n, all_of), missing)
            last = n.add("Sub", n.add("Mul", rows, zero), n.add("Sub", one, new))
        for name, value in ((folder.attention_mask, mask), (folder.position_ids, position)):
            if name:
                kind_of = onnx.helper.tensor_dtype_to_np_dtype(replaced[name].type.tensor_type.elem_type)
                n.add("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(kind_of), outputs=(name,))
        if kind.mode == "beam":
            self._reorder_caches(n, own)
        logits = self._last_logits(n, own, "" if self.pruned else last)
        graph_outputs = [v for v in graph.output if v.name in folder.present]
        del graph.output[:]
        graph.output.extend(graph_outputs)
        add_sampling(n, logits, folder.vocabulary, kind, self.ids_dtype)
        n.output(n.add("Add", lengths, one), "lengths_next", np.int64, ["batch_size"])
        self._sort(graph)
        return bytes(model.SerializeToString())

    def _reorder_caches(self, n: Nodes, own: list[Any]) -> None:
        """Gathers the sequences of the caches that beam_index names."""
        index = n.input("beam_index", np.int64, ["batch_size"])
        for v in n.graph.input:
            if v.name in self._folder.past:
                v.type.tensor_type.shape.dim[0].dim_param = "sequences_before"
        taken = {p: n.add("Gather", p, index, axis=0) for p in self._folder.past}
        for node in own:
            for at, name in enumerate(node.input):
                node.input[at] = taken.get(name, name)

    def _last_logits(self, n: Nodes, own: list[Any], last: str) -> str:
        """[batch, vocabulary] of the last tokens: the rows are chosen before the vocabulary's product, if its place is
        found. `last` [batch, 1]; empty: there is one row only."""
        name = self._folder.logits
        squeeze = n.constant([1], np.int64)
        if not last:
            return n.add("Squeeze", name, squeeze)
        node = self.logits_gemm(own, n)
        if node is None:
            rows = n.add("GatherND", name, last, batch_dims=1)
            return rows
        hidden = n.add("GatherND", node.input[0], last, batch_dims=1)
        node.input[0] = n.add("Unsqueeze", hidden, squeeze)
        del n.graph.value_info[:]  # later shapes have changed
        return n.add("Squeeze", name, squeeze)

    def logits_gemm(self, own: list[Any], n: Nodes) -> Any:
        """The node of the vocabulary's product, each row of which gives a row of logits; None if it is not found."""
        name = self._folder.logits
        makers = {o: node for node in own for o in node.output if o}
        known = {i.name for i in n.graph.initializer} | {
            o for node in own if node.op_type == "Constant" for o in node.output
        }
        node = makers.get(name)
        while node is not None and node.op_type in (
            *("Cast", "Mul", "Div", "Tanh", "Add", "Where"),
            *("AllGather", "Slice"),  # of a model that several devices share
        ):
            inner = [i for i in node.input if i and i not in known]
            node = makers.get(inner[0]) if len(inner) == 1 else None
        return node if node is not None and node.op_type in ("MatMul", "MatMulNBits") else None

    @staticmethod
    def _sort(graph: onnx.GraphProto) -> None:
        """The nodes in topological order."""
        makers = {o: k for k, node in enumerate(graph.node) for o in node.output if o}
        waits = []
        readers: dict[int, list[int]] = {}
        for k, node in enumerate(graph.node):
            needs = {makers[i] for i in _read_by(node) if i in makers}
            waits.append(len(needs))
            for maker in needs:
                readers.setdefault(maker, []).append(k)
        ready = [k for k, count in enumerate(waits) if count == 0]
        order = []
        for k in ready:  # grows meanwhile
            order.append(k)
            for reader in readers.get(k, []):
                waits[reader] -= 1
                if waits[reader] == 0:
                    ready.append(reader)
        if len(order) < len(graph.node):
            raise InvalidModelError("the model's nodes depend on each other in a cycle")
        nodes = [graph.node[k] for k in order]
        copies = [type(node)() for node in nodes]
        for copy, node in zip(copies, nodes):
            copy.CopyFrom(node)
        del graph.node[:]
        graph.node.extend(copies)

    @property
    def data_folder(self) -> str:
        return self._folder.weights or os.path.dirname(self._folder.model) or "."


def _read_by(node: Any) -> set[str]:
    """Names that a node reads, including those that its bodies capture."""
    names = set(node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                names |= _read_by(inner)
            names |= {v.name for v in body.output}
    return names
