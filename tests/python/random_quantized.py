"""Random graphs between QuantizeLinear and DequantizeLinear (random_graphs.py), whose results are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from random_nodes import CHANNELS, LARGEST, OPSET, SIZES, Graph, Shape


class QuantizedGraph(Graph):
    """Networks between QuantizeLinear and DequantizeLinear, of any zero points, with weights of 8 bits by tensor or channel."""

    def __init__(self, seed: int):
        super().__init__(seed, "float")
        self.unsigned = bool(self.r.random() < 0.4)
        self.bits: dict[str, int] = {}  # a value is a multiple of 2 ** -bits

    def scalar(self, value: Any, dtype: Any) -> str:
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def quantized(self, x: str) -> str:
        """x rounded to 8 bits; most values stay within them."""
        kind, zero = (
            (np.uint8, int(self.r.integers(0, 200)))
            if self.unsigned
            else (np.int8, int(self.pick([0, 0, -128, 5, -3, 127])))
        )
        bits = int(self.pick([3, 4, 5, 6]))
        scale, point = self.scalar(2.0**-bits, np.float32), self.scalar(zero, kind)
        shape = self.shapes[x]
        q = self.node("QuantizeLinear", [x, scale, point], shape)
        y = self.node("DequantizeLinear", [q, scale, point], shape)
        del self.shapes[q]
        self.bits[y] = bits
        return y

    def weights(self, shape: Shape, inputs_bits: int, axis: int) -> tuple[str, str]:
        outputs = shape[axis]
        w = self.r.integers(-127, 128, shape).astype(np.int8)
        fan = int(np.prod(shape)) // outputs
        bits = 7 + int(np.log2(max(1, fan))) // 2 + self.r.integers(0, 3, outputs if self.r.random() < 0.6 else ())
        scale = (2.0**-bits).astype(np.float32)
        point = np.zeros(scale.shape, np.int8)
        q = self.scalar(w, np.int8)
        dw = self.node(
            "DequantizeLinear", [q, self.scalar(scale, np.float32), self.scalar(point, np.int8)], shape, axis=axis
        )
        b = self.scalar(self.r.integers(-900, 900, outputs), np.int32)
        by = np.broadcast_to(scale * 2.0**-inputs_bits, (outputs,))
        db = self.node(
            "DequantizeLinear",
            [b, self.scalar(by, np.float32), self.scalar(np.zeros(outputs), np.int32)],
            (outputs,),
            axis=0,
        )
        for name in (dw, db):
            del self.shapes[name]
        return dw, db

    def activated(self, x: str) -> None:
        op = self.pick(["", "", "Relu", "Clip", "LeakyRelu"])
        if op == "Clip":
            x = self.node("Clip", [x, self.scalar(0, np.float32), self.scalar(6, np.float32)], self.shapes[x])
        elif op:
            x = self.node(op, [x], self.shapes[x], **({"alpha": 0.125} if op == "LeakyRelu" else {}))
        self.quantized(x)

    def exact(self, *ranks: int) -> str | None:
        """The last or an earlier value in 8 bits of one of the ranks."""
        names = [n for n in self.bits if len(self.shapes[n]) in ranks]
        return names[-1 - min(int(self.r.geometric(0.5)) - 1, len(names) - 1)] if names else None

    def convolution(self) -> None:
        x = self.exact(4)
        if not x:
            return
        n, c, h, w = self.shapes[x]
        k, stride, dilation = self.pick([1, 1, 3, 3, 5, 7]), self.pick([1, 1, 2]), self.pick([1, 1, 1, 2])
        group = self.pick([1, 1, 1, c] + [g for g in (2, 4) if c % g == 0])
        filters = c if group == c else group * self.pick([1, 2, 4, 8, 16, 32])
        pad = self.pick([k // 2, 0, k // 2])
        oh, ow = ((d + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for d in (h, w))
        if oh < 1 or ow < 1 or n * filters * oh * ow > LARGEST or c // group * k * k > 900 or filters > 160:
            return
        inputs = [x, *self.weights((filters, c // group, k, k), self.bits[x], 0)]
        y = self.node(
            "Conv",
            inputs,
            (n, filters, oh, ow),
            group=group,
            pads=[pad] * 4,
            strides=[stride] * 2,
            dilations=[dilation] * 2,
        )
        self.activated(y)

    def linear(self) -> None:
        x = self.exact(2, 3, 4)
        if not x:
            return
        *rows, k = self.shapes[x]
        n = self.pick(CHANNELS)
        if k > 900 or np.prod(rows) * n > LARGEST:
            return
        dw, db = self.weights((k, n), self.bits[x], 1)
        if len(rows) == 1 and self.r.random() < 0.5:
            y = self.node("Gemm", [x, dw, db], (*rows, n))
        else:
            y = self.node("MatMul", [x, dw], (*rows, n))
            if self.r.random() < 0.7:
                y = self.node("Add", [y, db], (*rows, n))
        self.activated(y)

    def residual(self) -> None:
        x = self.exact(2, 3, 4)
        if x:
            y = self.pick([n for n in self.bits if self.shapes[n] == self.shapes[x]])
            self.activated(self.node("Add", [x, y], self.shapes[x]))

    def step(self) -> None:
        """What moves or chooses values of 8 bits without changing them."""
        before = dict(self.shapes)
        bits = dict(self.bits)
        self.pick([Graph.transpose, Graph.transpose, Graph.reshape, Graph.concat, Graph.slice, Graph.split])(self)
        for name in set(self.shapes) - set(before):
            self.bits[name] = max(bits.values())
            if self.r.random() < 0.5:
                self.quantized(name)

    def max_pool(self) -> None:
        x = self.exact(4)
        if not x:
            return
        n, c, h, w = self.shapes[x]
        k, stride = self.pick([2, 3]), self.pick([1, 2])
        oh, ow = (h - k) // stride + 1, (w - k) // stride + 1
        if oh >= 1 and ow >= 1:
            y = self.node("MaxPool", [x], (n, c, oh, ow), kernel_shape=[k] * 2, strides=[stride] * 2)
            self.bits[y] = self.bits[x]
            if self.r.random() < 0.5:
                self.quantized(y)


def quantized_model(seed: int) -> onnx.ModelProto:
    g = QuantizedGraph(seed)
    n, c, h, w = g.pick([1, 1, 2, 3]), g.pick([3, *CHANNELS]), g.pick(SIZES), g.pick(SIZES)
    shape = g.pick([(n, c, h, w)] * 3 + [(n, h, c)])
    g.add_input(shape, list(shape))
    g.quantized("x0")
    steps = [QuantizedGraph.convolution] * 5 + [QuantizedGraph.linear] * 3 + [QuantizedGraph.residual] * 2
    steps += [QuantizedGraph.step, QuantizedGraph.step, QuantizedGraph.max_pool]
    wanted = int(g.r.integers(1, 6))
    for _ in range(5 * wanted):
        if len(g.bits) > wanted:
            break
        g.pick(steps)(g)
    ends = [name for name in g.shapes if name not in g.used]
    out = [helper.make_tensor_value_info(name, g.proto, g.shapes[name]) for name in ends]
    graph = helper.make_graph(g.nodes, f"seed{seed}", g.inputs, out, g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 9
    return model
