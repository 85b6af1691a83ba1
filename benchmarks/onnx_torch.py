"""An ONNX graph as a torch module, for known sizes.

`to_torch(model, shapes)` visits the graph once. Values that depend only on shapes and constants are folded (by onnx's
reference evaluator). The rest becomes a torch.fx graph of plain torch functions, which eager mode runs directly and
torch.compile traces whole. So the network and the weights are those of the ONNX file. MatMul with constant weights becomes
`linear` with the bias after it, and attention becomes `scaled_dot_product_attention`.

Only the operators of the measured models are supported; others are refused.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_TYPES = {TensorProto.INT64: torch.int64, TensorProto.INT32: torch.int32, TensorProto.BOOL: torch.bool}
_UNARY = {
    "Relu": F.relu,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "Sqrt": torch.sqrt,
    "Reciprocal": torch.reciprocal,
    "Neg": torch.neg,
    "Cos": torch.cos,
    "Sin": torch.sin,
    "Not": torch.logical_not,
    "HardSwish": F.hardswish,
    "HardSigmoid": F.hardsigmoid,
    "Exp": torch.exp,
}
_BINARY = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Pow": torch.pow,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Equal": torch.eq,
    "GreaterOrEqual": torch.ge,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "Less": torch.lt,
}


class _Walk:
    """Values are numpy arrays (known values) or nodes of the fx graph with an example on torch's meta device."""

    def __init__(self, model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype):
        self.dtype = dtype
        self.opsets = model.opset_import
        self.graph = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.values: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.buffers: dict[int, torch.fx.Node] = {}
        self.uses: dict[str, int] = {}
        self.products: dict[str, tuple[torch.fx.Node, torch.fx.Node]] = {}  # linear without a bias, by its output
        nodes = list(model.graph.node)
        for n in nodes:
            for name in n.input:
                self.uses[name] = self.uses.get(name, 0) + 1
        for i in model.graph.input:
            if i.name in self.values:
                continue
            node = self.graph.placeholder(i.name.replace(".", "_"))
            kind = _TYPES.get(i.type.tensor_type.elem_type, dtype)
            node.meta["x"] = torch.empty(shapes[i.name], dtype=kind, device="meta")
            self.values[i.name] = node
        for n in nodes:
            self.step(n)
        self.graph.output(tuple(self.node(self.values[o.name]) for o in model.graph.output))

    def call(self, function: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        node = self.graph.call_function(function, args, kwargs)
        example = lambda a: torch.fx.node.map_arg(a, lambda n: n.meta["x"])
        node.meta["x"] = function(*example(args), **example(kwargs))
        return node

    def node(self, value: Any) -> torch.fx.Node:
        """A known value as a buffer of the module; floats in the module's precision."""
        if isinstance(value, torch.fx.Node):
            return value
        if id(value) not in self.buffers:
            name = f"w{len(self.buffers)}"
            tensor = torch.from_numpy(np.array(value, order="C"))
            if tensor.is_floating_point():
                tensor = tensor.to(self.dtype)
            self.root.register_buffer(name, tensor)
            node = self.graph.get_attr(name)
            node.meta["x"] = tensor.to("meta")
            node.meta["of"] = value  # keeps its id
            self.buffers[id(value)] = node
        return self.buffers[id(value)]

    def operand(self, value: Any) -> Any:
        """A scalar stays a Python number, which does not promote the other operand."""
        if isinstance(value, np.ndarray) and value.size == 1:
            return value.item()
        return self.node(value)

    def step(self, n: onnx.NodeProto) -> None:
        inputs = [self.values[i] if i else None for i in n.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in n.attribute}
        if n.op_type == "Identity":
            self.values[n.output[0]] = inputs[0]
        elif n.op_type == "Shape":
            shape = inputs[0].meta["x"].shape if isinstance(inputs[0], torch.fx.Node) else inputs[0].shape
            part = list(shape)[attributes.get("start", 0) : attributes.get("end")]
            self.values[n.output[0]] = np.array(part, np.int64)
        elif all(x is None or isinstance(x, np.ndarray) for x in inputs):
            self.fold(n, inputs)
        else:
            handler = getattr(self, f"op_{n.op_type.lower()}", None)
            if handler is not None:
                out = handler(inputs, attributes, n)
            elif n.op_type in _UNARY:
                out = self.call(_UNARY[n.op_type], inputs[0])
            elif n.op_type in _BINARY:
                out = self.call(_BINARY[n.op_type], self.operand(inputs[0]), self.operand(inputs[1]))
            else:
                raise NotImplementedError(f"the benchmark's walk from ONNX to torch does not know {n.op_type}")
            for name, value in zip(n.output, out if isinstance(out, list) else [out]):
                self.values[name] = value

    def fold(self, n: onnx.NodeProto, inputs: list[Any]) -> None:
        feed = {name: x for name, x in zip(n.input, inputs) if x is not None}
        info = lambda name: helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
        graph = helper.make_graph([n], "fold", [info(i) for i in feed], [info(o) for o in n.output])
        model = helper.make_model(graph, opset_imports=self.opsets, ir_version=9)
        for name, value in zip(n.output, ReferenceEvaluator(model).run(None, feed)):
            self.values[name] = np.asarray(value)

    # ---- GEMM

    def op_conv(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        rank = x[1].ndim - 2
        pads = list(a.get("pads", [0] * 2 * rank))
        source = x[0]
        if pads[:rank] != pads[rank:]:
            both = [p for k in reversed(range(rank)) for p in (pads[k], pads[rank + k])]
            source, pads = self.call(F.pad, source, both), [0] * 2 * rank
        function = {1: F.conv1d, 2: F.conv2d}[rank]
        bias = self.node(x[2]) if len(x) > 2 and x[2] is not None else None
        strides, dilations = list(a.get("strides", [1] * rank)), list(a.get("dilations", [1] * rank))
        return self.call(function, source, self.node(x[1]), bias, strides, pads[:rank], dilations, a.get("group", 1))

    def linear(self, source: torch.fx.Node, weights: np.ndarray, bias: Any, name: str) -> torch.fx.Node:
        """source times weights; the weights have one column per output."""
        w = self.node(weights.T)
        out = self.call(F.linear, source, w, None if bias is None else self.node(bias))
        if bias is None:
            self.products[name] = (source, w)
        return out

    def op_gemm(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        if a.get("alpha", 1) != 1 or a.get("beta", 1) != 1 or a.get("transA") or not isinstance(x[1], np.ndarray):
            raise NotImplementedError("Gemm with other factors than 1")
        return self.linear(x[0], x[1].T if a.get("transB") else x[1], x[2] if len(x) > 2 else None, n.output[0])

    def op_matmul(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        if isinstance(x[1], np.ndarray) and x[1].ndim == 2:
            return self.linear(x[0], x[1], None, n.output[0])
        return self.call(torch.matmul, self.node(x[0]), self.node(x[1]))

    def op_add(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        for k in (0, 1):
            product = self.products.get(n.input[k])
            other = x[1 - k]
            if product and isinstance(other, np.ndarray) and other.ndim == 1 and self.uses[n.input[k]] == 1:
                return self.call(F.linear, *product, self.node(other))
        return self.call(torch.add, self.operand(x[0]), self.operand(x[1]))

    # ---- rows

    def op_layernormalization(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        bias = self.node(x[2]) if len(x) > 2 else None
        return self.call(F.layer_norm, x[0], list(x[1].shape), self.node(x[1]), bias, a.get("epsilon", 1e-5))

    def op_softmax(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        return self.call(F.softmax, x[0], a.get("axis", -1))

    def op_reducemean(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        axes = [int(k) for k in (x[1] if len(x) > 1 and x[1] is not None else a["axes"])]
        return self.call(torch.mean, x[0], axes, bool(a.get("keepdims", 1)))

    # ---- images

    def op_maxpool(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        pads = list(a.get("pads", [0] * 4))
        if pads[:2] != pads[2:] or a.get("ceil_mode", 0):
            raise NotImplementedError("MaxPool with uneven pads")
        return self.call(F.max_pool2d, x[0], list(a["kernel_shape"]), list(a.get("strides", [1, 1])), pads[:2])

    def op_globalaveragepool(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        return self.call(F.adaptive_avg_pool2d, x[0], 1)

    def op_resize(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        source = x[0].meta["x"].shape
        if len(x) > 3 and x[3] is not None and x[3].size:
            size = [int(k) for k in x[3][2:]]
        else:
            size = [int(s * f) for s, f in zip(source[2:], x[2][2:])]
        if a.get("mode") == b"linear":
            return self.call(F.interpolate, x[0], size, mode="bilinear", align_corners=False)
        return self.call(F.interpolate, x[0], size, mode="nearest")

    # ---- shapes

    def to_shape(self, x: torch.fx.Node, shape: list[int]) -> torch.fx.Node:
        return self.call(torch.reshape, x, shape)

    def op_reshape(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        old = x[0].meta["x"].shape
        shape = [int(d) for d in x[1]]
        if not a.get("allowzero", 0):
            shape = [old[k] if d == 0 else d for k, d in enumerate(shape)]
        return self.to_shape(x[0], shape)

    def op_flatten(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        old = list(x[0].meta["x"].shape)
        axis = a.get("axis", 1)
        return self.to_shape(x[0], [int(np.prod(old[:axis])), int(np.prod(old[axis:]))])

    def op_unsqueeze(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        shape = list(x[0].meta["x"].shape)
        axes = [int(k) for k in (x[1] if len(x) > 1 else a["axes"])]
        for k in sorted(k % (len(shape) + len(axes)) for k in axes):
            shape.insert(k, 1)
        return self.to_shape(x[0], shape)

    def op_squeeze(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        shape = list(x[0].meta["x"].shape)
        axes = x[1] if len(x) > 1 else a.get("axes", [k for k, d in enumerate(shape) if d == 1])
        gone = {int(k) % len(shape) for k in axes}
        return self.to_shape(x[0], [d for k, d in enumerate(shape) if k not in gone])

    def op_transpose(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        return self.call(torch.permute, x[0], list(a.get("perm", reversed(range(x[0].meta["x"].ndim)))))

    def op_expand(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        shape = np.broadcast_shapes(tuple(x[0].meta["x"].shape), tuple(int(d) for d in x[1]))
        return self.call(torch.broadcast_to, x[0], list(shape))

    def op_concat(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        return self.call(torch.cat, [self.node(v) for v in x], a["axis"])

    def op_split(self, x: list[Any], a: dict[str, Any], n: Any) -> list[torch.fx.Node]:
        axis = a.get("axis", 0)
        extent = x[0].meta["x"].shape[axis]
        sizes = [int(k) for k in x[1]] if len(x) > 1 else [extent // len(n.output)] * len(n.output)
        parts = self.call(torch.split, x[0], sizes, axis)
        return [self.call(operator.getitem, parts, k) for k in range(len(sizes))]

    def op_slice(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        starts, ends = (np.atleast_1d(v).tolist() for v in x[1:3])
        axes = np.atleast_1d(x[3]).tolist() if len(x) > 3 and x[3] is not None else list(range(len(starts)))
        steps = np.atleast_1d(x[4]).tolist() if len(x) > 4 else [1] * len(starts)
        parts = [slice(None)] * x[0].meta["x"].ndim
        for k, start, end, step in zip(axes, starts, ends, steps):
            if step < 0:
                raise NotImplementedError("Slice backwards")
            parts[k] = slice(start, end, step)
        return self.call(operator.getitem, x[0], tuple(parts))

    def op_gather(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        axis = a.get("axis", 0)
        if isinstance(x[1], torch.fx.Node):
            if axis != 0:
                raise NotImplementedError("Gather along another axis than the first by computed indices")
            return self.call(F.embedding, x[1], self.node(x[0]))
        axis %= x[0].meta["x"].ndim
        if x[1].ndim == 0:
            return self.call(torch.select, x[0], axis, int(x[1]))
        flat = self.call(torch.index_select, x[0], axis, self.node(x[1].reshape(-1)))
        old = list(x[0].meta["x"].shape)
        return self.to_shape(flat, old[:axis] + list(x[1].shape) + old[axis + 1 :])

    def op_where(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        return self.call(torch.where, self.node(x[0]), self.operand(x[1]), self.operand(x[2]))

    def op_cast(self, x: list[Any], a: dict[str, Any], n: Any) -> torch.fx.Node:
        return self.call(torch.Tensor.to, x[0], _TYPES.get(a["to"], self.dtype))


def _scaled(node: torch.fx.Node) -> tuple[torch.fx.Node, float]:
    """A value without its constant factors, and the product of these factors."""
    factor = 1.0
    while isinstance(node, torch.fx.Node) and node.target in (torch.mul, torch.div):
        numbers = [a for a in node.args if not isinstance(a, torch.fx.Node)]
        if len(numbers) != 1 or (node.target is torch.div and node.args[1] is not numbers[0]):
            break
        factor *= 1 / numbers[0] if node.target is torch.div else numbers[0]
        node = next(a for a in node.args if isinstance(a, torch.fx.Node))
    return node, factor


def _fuse_attention(graph: torch.fx.Graph) -> None:
    """softmax(q k + mask) v as torch's scaled_dot_product_attention."""
    for product in list(graph.nodes):
        if product.target is not torch.matmul:
            continue
        weights, v = product.args
        if weights.target is not F.softmax or weights.args[1] not in (-1, weights.meta["x"].ndim - 1):
            continue
        scores, mask = weights.args[0], None
        if scores.target is torch.add and all(isinstance(a, torch.fx.Node) for a in scores.args):
            for k in (0, 1):
                if _scaled(scores.args[k])[0].target is torch.matmul:
                    scores, mask = scores.args[k], scores.args[1 - k]
                    break
        scores, factor = _scaled(scores)
        if scores.target is not torch.matmul:
            continue
        (q, of_q), (k, of_k) = (_scaled(a) for a in scores.args)
        with graph.inserting_before(product):
            k = graph.call_method("transpose", (k, -1, -2))
            four = len(product.meta["x"].shape) == 4
            if not four:  # its kernels need a dim for heads
                q, k, v = (graph.call_method("unsqueeze", (x, 0)) for x in (q, k, v))
            out = graph.call_function(
                F.scaled_dot_product_attention, (q, k, v), {"attn_mask": mask, "scale": factor * of_q * of_k}
            )
            if not four:
                out = graph.call_method("squeeze", (out, 0))
        product.replace_all_uses_with(out)
    graph.eliminate_dead_code()


def to_torch(model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> torch.nn.Module:
    """The model for inputs of these shapes, on the CPU; all floats, including inputs, have the type `dtype`. It returns a tuple of
    outputs. Weights of 2-D convolutions are channels last."""
    walk = _Walk(model, shapes, dtype)
    _fuse_attention(walk.graph)
    module = torch.fx.GraphModule(walk.root, walk.graph).eval().requires_grad_(False)
    for name, tensor in module.named_buffers():
        if tensor.ndim == 4:
            setattr(module, name, tensor.contiguous(memory_format=torch.channels_last))
    return module
