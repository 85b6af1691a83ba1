"""Turns a decoder's ONNX graph into that of a step of the engine: tokens of many sequences at a time, with a paged KV cache.

Tokens of all sequences are packed into one row, [1, tokens]. GroupQueryAttention becomes com.microsoft's PagedAttention, which
finds each sequence's keys and values through a page table. All other operators of a decoder process each token independently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import numpy_dtype
from ..errors import UnsupportedError
from .genai_folder import GenaiFolder
from .lora import Adapters, module_of
from .packages import needed
from .paged_sampling import StepKind, add_choice
from .sampling_graph import Nodes
from .step_graph import StepGraph, _read_by
from .step_sizes import PART

if TYPE_CHECKING:
    import onnx

_SAME = (
    "num_heads",
    "kv_num_heads",
    "scale",
    "softcap",
    "local_window_size",
    "do_rotary",
    "rotary_interleaved",
    "qk_norm_epsilon",
)
#: Types of caches in 8 bits by their names as options.
CACHE_TYPES = {"int8": "int8", "fp8": "float8_e4m3fn"}
GIVEN_IDS = "sardonyx/given_ids"  #: of build() with slots: the ids that the host knows
_WITHOUT_EFFECT = {"smooth_softmax": (-1, 0, 1), "causal": (1,), "qk_output": (0,), "sliding_window_cache": (0,)}


class PagedGraph:
    """A folder's decoder for the engine. Raises errors.Error if it cannot be run in this way."""

    def __init__(self, folder: GenaiFolder, rows: int, adapters: Adapters | None = None, cache_type: str = ""):
        """rows: of a page, in tokens. cache_type: of CACHE_TYPES: keys and values are stored in 8 bits, with a scale for each
        row of a head; empty: in the model's own type."""
        self._folder, self.rows, self._adapters = folder, rows, adapters
        self._stored = numpy_dtype(CACHE_TYPES[cache_type]) if cache_type else None
        self.scaled = self._stored is not None
        #: Names of the caches as inputs and outputs of a step: keys and values of each layer, then their scales.
        self.cache_inputs, self.cache_outputs = list(folder.past), list(folder.present)
        if self.scaled:
            self.cache_inputs += [f"{n}/scale" for n in folder.past]
            self.cache_outputs += [f"{n}/scale" for n in folder.present]
        self.step = StepGraph(folder)
        if not self.step.cache.shared:
            raise UnsupportedError(
                f"'{folder.model}': the engine needs a decoder whose attention is GroupQueryAttention; "
                "LanguageModel runs this one"
            )
        if self.step.pruned:
            raise UnsupportedError(
                f"'{folder.model}' gives the logits of the last position only; the engine computes several sequences' "
                "positions at a time"
            )
        #: A and B of linear layers that adapters change, by the names of the step's inputs.
        self.adapter_weights: dict[str, Any] = {}
        self._adapted: dict[str, tuple[str, str, int]] = {}  # of nodes: their inputs, and how often columns repeat
        if adapters and adapters.columns:
            self._find_adapted(adapters)

    def _find_adapted(self, adapters: Adapters) -> None:
        """The nodes that adapters change, with their weights."""
        graph, found = self.step._model.graph, set()
        shapes = {i.name: list(i.dims) for i in graph.initializer}
        for node in graph.node:
            module = module_of(node.name) if node.op_type in ("MatMul", "MatMulNBits") else None
            if module is None:
                continue
            given = {a.name: a.i for a in node.attribute}
            sizes = [given["K"], given["N"]] if node.op_type == "MatMulNBits" else shapes.get(node.input[1], [])
            if len(sizes) != 2:
                continue
            split = self._split(module, int(sizes[1]))
            pair = adapters.pair(module, int(sizes[0]), int(sizes[1]), split)
            if pair is None:
                continue
            found |= {module, *((module[0], name) for name in split)}
            names = f"{node.name}/lora_a", f"{node.name}/lora_b"
            self._adapted[node.output[0]] = (*names, adapters.repeats(module, split))
            for name, x in zip(names, pair):
                self.adapter_weights[name] = x.astype(self._float())
        missing = sorted(adapters.modules - found)
        if missing:
            raise UnsupportedError(
                f"'{self._folder.model}' has no linear layer that is known as {missing[0][1]} of layer {missing[0][0]}, "
                "which an adapter changes"
            )

    def _split(self, module: tuple[int, str], outputs: int) -> dict[str, tuple[int, int]]:
        """Where the outputs of PEFT's linear layers are in one that computes several."""
        layer, name = module
        if name == "gate_up_proj":
            return {"gate_proj": (0, outputs // 2), "up_proj": (outputs // 2, outputs)}
        if name != "qkv_proj" or 2 * layer + 1 >= len(self.layout.heads):
            return {}
        keys, values = (self.layout.heads[2 * layer + k] * self.layout.head_sizes[2 * layer + k] for k in (0, 1))
        ends = outputs - keys - values, outputs - values, outputs
        return {"q_proj": (0, ends[0]), "k_proj": (ends[0], ends[1]), "v_proj": (ends[1], ends[2])}

    def _adapt(self, n: Nodes, own: list[Any]) -> None:
        """Adds the adapters' products to those of linear layers. Input: adapter int64 [tokens], 0: none."""
        assert self._adapters is not None
        which = n.input("adapter", np.int64, ["tokens"])
        table = n.constant(self._adapters.table(), self._float())
        masks: dict[int, str] = {}
        for node in own:
            if not node.output or node.output[0] not in self._adapted:
                continue
            *names, repeats = self._adapted[node.output[0]]
            for name in names:
                x = self.adapter_weights[name]
                n.input(name, x.dtype, list(x.shape))
            if repeats not in masks:
                mask = n.add("Gather", table, which, axis=0)
                masks[repeats] = n.add("Concat", *[mask] * repeats, axis=1) if repeats > 1 else mask
            low = n.add("Mul", n.add("MatMul", node.input[0], names[0]), masks[repeats])
            output = node.output[0]
            node.output[0] = f"{output}/base"
            n.add("Add", node.output[0], n.add("MatMul", low, names[1]), outputs=(output,))

    @property
    def chooses(self) -> bool:
        """Whether a step gives tokens: not that of a stage before the last one."""
        return bool(self._folder.logits)

    @property
    def sent(self) -> tuple[str, ...]:
        """Outputs that the next stage reads."""
        return self._folder.carried_out

    @property
    def layout(self) -> Any:
        """CacheLayout: types and sizes of keys and values."""
        return self.step.cache

    def page_bytes(self) -> int:
        """Of a page of all layers' keys and values."""
        return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.cache_shapes(1))

    def cache_shapes(self, pages: int) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and type of each cache, in the order of cache_inputs."""
        sizes = list(zip(self.layout.heads, self.layout.head_sizes))
        dtype = self._stored or numpy_dtype(self.layout.dtype)
        found: list[tuple[tuple[int, ...], np.dtype[Any]]] = [((pages, self.rows, h, d), dtype) for h, d in sizes]
        if self.scaled:
            found += [((pages, self.rows, h), np.dtype(np.float32)) for h, _ in sizes]
        return found

    def build(self, kind: StepKind, single: bool, slots: int = 0, prompt: bool = False, one: bool = False) -> bytes:
        """The model of a step, serialised; its external data stays in the folder.

        Inputs: the ids [1, tokens]; the positions of that shape, if the decoder has such an input; cumulative int32
        [sequences + 1], where each sequence's tokens begin; past int32 [sequences], tokens that it has in the cache; table
        int32 [sequences, columns], its pages; rows int64 [results], the tokens whose logits are used; the caches [pages,
        rows, heads, head size]; hidden states of the stage before; those of add_choice(), and of adapters (see _adapt). Outputs: the caches, those of add_choice(), and
        hidden states for the stage after. Of the stages of a model (see stage_graph.py), only the last one has `rows` and add_choice().
        single: there is one sequence; its new tokens are then computed as one block of attention. prompt: so are those of each
        part of a prompt, PART tokens or, of the last one, 2 to PART, after sequences of one token each. one: each sequence has one token.
        slots: if not 0, the last token of so many sequences stays on the device: see _keep_tokens().
        """
        onnx, folder = needed("onnx"), self._folder
        model = onnx.ModelProto()
        model.CopyFrom(self.step._model)
        graph = model.graph
        n = Nodes(graph)
        if self.scaled or prompt or one:
            model.opset_import.append(onnx.helper.make_opsetid("com.sardonyx", 1))
        own = list(graph.node)
        sequences: Any = 1 if single else "sequences"
        ends = 2 if single else "sequences_and_one"
        self._inputs(graph)
        n.input("cumulative", np.int32, [ends])
        n.input("past", np.int32, [sequences])
        n.input("table", np.int32, [sequences, "columns"])
        sink: dict[int, str] = {}
        for node in own:
            if node.op_type == "GroupQueryAttention":
                self._page(n, node, sink, {"prompt": PART} if prompt else {"one_token": 1} if one else {})
        if kind.adapters:
            self._adapt(n, own)
        logits = ""
        if folder.logits:
            n.input("rows", np.int64, ["results"])
            logits = self._chosen_logits(n, own)
        outputs = [v for v in graph.output if v.name in folder.present]
        sent = [v for v in graph.output if v.name in folder.carried_out]
        del graph.output[:]
        graph.output.extend(outputs)
        for k, v in enumerate(outputs):
            self._cache_shape(v, k)
        if self.scaled:
            self._add_scales(n)
        graph.output.extend(sent)
        for v in sent:
            self._packed_shape(v)
        if logits:
            token = add_choice(n, logits, folder.vocabulary, kind)
            if slots:
                self._keep_tokens(n, token, slots)
        self._prune(graph)
        StepGraph._sort(graph)
        return bytes(model.SerializeToString())

    def _inputs(self, graph: onnx.GraphProto) -> None:
        """Sizes of the decoder's own inputs; attention_mask goes away."""
        folder = self._folder
        kept = [v for v in graph.input if v.name != folder.attention_mask]
        del graph.input[:]
        graph.input.extend(kept)
        del graph.value_info[:]  # shapes have changed
        past = {name: k for k, name in enumerate(folder.past)}
        for v in graph.input:
            if v.name in (folder.input_ids, folder.position_ids, *folder.carried_in):
                self._packed_shape(v)
            elif v.name in past:
                self._cache_shape(v, past[v.name])

    @staticmethod
    def _packed_shape(value: onnx.ValueInfoProto) -> None:
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_value = 1
        dims[1].dim_param = "tokens"

    def _keep_tokens(self, n: Nodes, token: str, slots: int) -> None:
        """Lets a step read tokens that earlier steps have chosen, before the host knows them.

        Inputs: GIVEN_IDS, in place of the ids; last int64 [slots], in one memory with the output last_next; source int32 [tokens], the slot whose token takes
        the place of the one in the ids, or -1; target int32 [slots], the result that a slot gets, or -1.
        """
        zero = n.constant(0, np.int32)
        last = n.input("last", np.int64, [slots])
        source = n.input("source", np.int32, ["tokens"])
        target = n.input("target", np.int32, [slots])
        ids = self._folder.input_ids
        for v in n.graph.input:
            if v.name == ids:
                v.name = GIVEN_IDS
        taken = n.add("Gather", last, n.add("Max", source, zero), axis=0)
        if self.step.ids_dtype != np.int64:
            taken = n.cast(taken, self.step.ids_dtype)
        n.add("Where", n.add("Less", source, zero), GIVEN_IDS, taken, outputs=(ids,))  # [1, tokens] and [tokens]
        results = n.add("Reshape", token, n.constant([-1], np.int64))
        kept = n.add("Gather", results, n.add("Max", target, zero), axis=0)
        n.output(n.add("Where", n.add("Less", target, zero), last, kept), "last_next", np.int64, [slots])

    def _add_scales(self, n: Nodes) -> None:
        """The scales of caches in 8 bits as inputs and outputs."""
        onnx, count = needed("onnx"), len(self._folder.past)
        for k, heads in enumerate(self.layout.heads):
            shape = ["pages", self.rows, heads]
            n.input(self.cache_inputs[count + k], np.float32, shape)
            n.graph.output.append(
                onnx.helper.make_tensor_value_info(self.cache_outputs[count + k], onnx.TensorProto.FLOAT, shape)
            )

    def _cache_shape(self, value: onnx.ValueInfoProto, k: int) -> None:
        if self._stored is not None:
            value.type.tensor_type.elem_type = needed("onnx").helper.np_dtype_to_tensor_dtype(self._stored)
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_param = "pages"
        dims[1].dim_value, dims[2].dim_value = self.rows, self.layout.heads[k]
        dims[3].dim_value = self.layout.head_sizes[k]

    def _page(self, n: Nodes, node: onnx.NodeProto, sinks: dict[int, str], own: dict[str, int]) -> None:
        """Replaces a GroupQueryAttention by nodes that compute the same on packed tokens. own: attributes that only
        com.sardonyx's PagedAttention has."""
        onnx = needed("onnx")
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for name, value in given.items():
            if name not in _SAME and value not in _WITHOUT_EFFECT.get(name, (b"NONE",)):
                raise UnsupportedError(f"the engine can't run '{node.name}' (GroupQueryAttention): {name} is {value}")
        inputs = [*node.input, *[""] * (16 - len(node.input))]
        for at, what in ((10, "an attention bias"), (12, "a quantised cache"), (13, "a quantised cache")):
            if inputs[at]:
                raise UnsupportedError(f"the engine can't run '{node.name}' (GroupQueryAttention): it has {what}")
        if len(node.output) > 3 and node.output[3]:
            raise UnsupportedError(
                f"the engine can't run '{node.name}' (GroupQueryAttention): its scores are an output"
            )
        first = n.constant([0], np.int64)
        sink = inputs[11]
        if not sink and given.get("smooth_softmax") == 1:
            heads = int(given["num_heads"])
            if heads not in sinks:
                sinks[heads] = n.constant(np.zeros(heads), self._float())
            sink = sinks[heads]
        packed = [n.add("Squeeze", x, first) if x else "" for x in inputs[:3]]
        paged = [*packed, inputs[3], inputs[4], "cumulative", "past", "table"]
        paged += [inputs[7], inputs[8], "", sink, inputs[14], inputs[15]]
        outputs = [node.output[1], node.output[2]]
        if self.scaled:
            paged += [f"{inputs[3]}/scale", f"{inputs[4]}/scale"]
            outputs += [f"{o}/scale" for o in outputs]
        while not paged[-1]:
            paged.pop()
        result = f"{node.name or node.output[0]}/packed"
        made = onnx.helper.make_node(
            "PagedAttention",
            paged,
            [result, *outputs],
            name=node.name,
            domain="com.sardonyx" if self.scaled or own else "com.microsoft",
            **{k: v for k, v in given.items() if k in _SAME},
            **own,
        )
        output = node.output[0]
        node.CopyFrom(made)
        n.add("Unsqueeze", result, first, outputs=(output,))

    def _float(self) -> Any:
        if self.layout.dtype == "bfloat16":
            return np.dtype(__import__("ml_dtypes").bfloat16)
        return np.dtype(self.layout.dtype)

    def _chosen_logits(self, n: Nodes, own: list[Any]) -> str:
        """[results, vocabulary]: the rows are chosen before the vocabulary's product, if its place is found."""
        first = n.constant([0], np.int64)
        node = self.step.logits_gemm(own, n)
        if node is None:
            return n.add("Squeeze", n.add("Gather", self._folder.logits, "rows", axis=1), first)
        node.input[0] = n.add("Gather", node.input[0], "rows", axis=1)
        return n.add("Squeeze", self._folder.logits, first)

    def _prune(self, graph: onnx.GraphProto) -> None:
        """Removes nodes that no output needs: what made seqlens_k of the attention mask."""
        needed_names = {v.name for v in graph.output}
        kept = []
        makers = {o: k for k, node in enumerate(graph.node) for o in node.output if o}
        seen: set[int] = set()
        work = [makers[name] for name in needed_names if name in makers]
        while work:
            k = work.pop()
            if k in seen:
                continue
            seen.add(k)
            read = _read_by(graph.node[k])
            needed_names |= read
            work += [makers[name] for name in read if name in makers]
        if self._folder.attention_mask in needed_names:
            raise UnsupportedError(
                f"'{self._folder.model}' uses the attention mask in another way than for the lengths of sequences, "
                "which the engine cannot give it; LanguageModel runs it"
            )
        for k, node in enumerate(graph.node):
            if k in seen:
                copy = type(node)()
                copy.CopyFrom(node)
                kept.append(copy)
        del graph.node[:]
        graph.node.extend(kept)
