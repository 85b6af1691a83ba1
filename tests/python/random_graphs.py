"""Random graphs of the operators that networks of images and tokens have, compared with ONNX Runtime: what no test thought of.

    PYTHONPATH=build/python .venv/bin/python tests/python/random_graphs.py --device host --seeds 0:2000
    PYTHONPATH=build/python .venv/bin/python tests/python/random_graphs.py --device sim:gfx942 --seeds 7 --save wrong.onnx --kind float16

A seed is one graph. Sizes are small and awkward: single channels, odd images, fewer elements than a vector. Weights are scaled so that
values stay near 1, and the tolerance is that of sums in float32 (or of values in float16) relative to the largest value.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
CHANNELS = [1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 64]
SIZES = [1, 2, 3, 5, 7, 8, 9, 12, 16, 20, 28]
LARGEST = 60000  # elements of a value
# Of the largest value: sums of some hundreds, ten operators deep. Quantised graphs are exact: scales are powers of two, and sums fit 24 bits.
TOLERANCE = {"float": 2e-4, "float16": 2e-2, "int8": 0.0}

Shape = tuple[int, ...]


class Graph:
    """Values by name and shape; every method adds one operator (or a few) on values that suit it."""

    def __init__(self, seed: int, kind: str, symbolic: bool = False):
        self.symbolic = symbolic
        self.r = np.random.default_rng(seed)
        self.type = np.float32 if kind == "float" else np.float16
        self.proto = TensorProto.FLOAT if kind == "float" else TensorProto.FLOAT16
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.shapes: dict[str, Shape] = {}
        self.used: set[str] = set()
        self.count = 0

    # ---- parts

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, options: Any) -> Any:
        return options[int(self.r.integers(len(options)))]

    def weight(self, *shape: int, fan: int = 1, shift: float = 0.0) -> str:
        name = self.name()
        x = self.r.standard_normal(shape) * fan**-0.5 + shift
        self.constants.append(numpy_helper.from_array(x.astype(self.type), name))
        return name

    def integers(self, *values: int) -> str:
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def node(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.used.update(inputs)
        self.shapes[name] = shape
        return name

    def add_input(self, shape: Shape, names: list[Any]) -> None:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, self.proto, names if self.symbolic else shape))
        self.shapes[name] = shape

    def of_rank(self, *ranks: int) -> str | None:
        """A value of one of the ranks; later ones are likelier, so that graphs grow deep."""
        names = [n for n, s in self.shapes.items() if len(s) in ranks]
        if not names:
            return None
        return names[-1 - min(int(self.r.geometric(0.45)) - 1, len(names) - 1)]

    # ---- operators of images [n, c, y, x]

    def convolution(self) -> None:
        x = self.of_rank(4, 4, 3, 5)
        if not x:
            return
        n, c, *space = self.shapes[x]
        k = self.pick([1, 1, 3, 3, 5, 7])
        group = self.pick([1, 1, 1, c] + [g for g in (2, 4, 8) if c % g == 0])
        filters = c * self.pick([1, 1, 2]) if group == c else group * self.pick([1, 1, 2, 3, 4, 8, 16])
        stride, dilation = self.pick([1, 1, 1, 2]), self.pick([1, 1, 1, 2])
        before = self.pick([k // 2, 0, k // 2, dilation * (k // 2)])
        after = self.pick([before, before, 1])
        out = [(d + before + after - dilation * (k - 1) - 1) // stride + 1 for d in space]
        if min(out) < 1 or n * filters * np.prod(out) > LARGEST or filters > 160 or c * k ** len(space) > 4000:
            return
        inputs = [x, self.weight(filters, c // group, *[k] * len(space), fan=c // group * k ** len(space))]
        if self.r.random() < 0.7:
            inputs.append(self.weight(filters))
        rank = len(space)
        self.node(
            "Conv", inputs, (n, filters, *out), group=group, pads=[before] * rank + [after] * rank, strides=[stride] * rank,
            dilations=[dilation] * rank,
        )  # fmt: skip

    def transposed_convolution(self) -> None:
        x = self.of_rank(4)
        if not x:
            return
        n, c, h, w = self.shapes[x]
        k, stride, filters = self.pick([2, 3, 4]), self.pick([1, 2]), self.pick([1, 2, 8, 12])
        oh, ow = (h - 1) * stride + k, (w - 1) * stride + k
        if n * filters * oh * ow <= LARGEST:
            self.node("ConvTranspose", [x, self.weight(c, filters, k, k, fan=c * k)], (n, filters, oh, ow), strides=[stride] * 2)

    def pool(self) -> None:
        x = self.of_rank(4)
        if not x:
            return
        n, c, h, w = self.shapes[x]
        op, k, stride = self.pick(["MaxPool", "AveragePool"]), self.pick([2, 3, 5]), self.pick([1, 2, 3])
        pad = self.pick([0, k // 2])
        oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
        if oh >= 1 and ow >= 1:
            more = {"count_include_pad": self.pick([0, 1])} if op == "AveragePool" else {}
            self.node(op, [x], (n, c, oh, ow), kernel_shape=[k] * 2, strides=[stride] * 2, pads=[pad] * 4, **more)

    def global_pool(self) -> None:
        x = self.of_rank(4)
        if x:
            self.node(self.pick(["GlobalAveragePool", "GlobalMaxPool"]), [x], (*self.shapes[x][:2], 1, 1))

    def resize(self) -> None:
        x = self.of_rank(4)
        if not x:
            return
        n, c, h, w = self.shapes[x]
        oh, ow = self.pick([(2 * h, 2 * w), (h + 3, 2 * w), (max(1, h // 2), max(1, w // 2))])
        if n * c * oh * ow > LARGEST:
            return
        mode = self.pick([("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")])
        more = {"nearest_mode": "floor"} if mode[0] == "nearest" else {}
        scales = self.name()
        self.constants.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), scales))
        oh, ow = (2 * h, 2 * w) if self.symbolic else (oh, ow)
        sizes = ["", scales] if self.symbolic else ["", "", self.integers(n, c, oh, ow)]
        self.node("Resize", [x, *sizes], (n, c, oh, ow), mode=mode[0], coordinate_transformation_mode=mode[1], **more)

    def batch_norm(self) -> None:
        x = self.of_rank(4, 3)
        if x:
            c = self.shapes[x][1]
            mean, variance = self.weight(c, fan=4), self.name()
            self.constants.append(numpy_helper.from_array((self.r.random(c) + 0.5).astype(self.type), variance))
            self.node("BatchNormalization", [x, self.weight(c), self.weight(c), mean, variance], self.shapes[x])

    def instance_norm(self) -> None:
        x = self.of_rank(4, 3)
        if x and np.prod(self.shapes[x][2:]) >= 8:
            c = self.shapes[x][1]
            self.node("InstanceNormalization", [x, self.weight(c), self.weight(c)], self.shapes[x], epsilon=1e-2)

    def pixel_shuffle(self) -> None:
        x = self.of_rank(4)
        if x and self.shapes[x][1] % 4 == 0:
            n, c, h, w = self.shapes[x]
            self.node("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=self.pick(["DCR", "CRD"]))

    # ---- operators of any shape

    def unary(self) -> None:
        x = self.of_rank(2, 3, 4, 5)
        if x:
            op = self.pick(["Relu", "Sigmoid", "Tanh", "HardSwish", "Gelu", "LeakyRelu", "Neg", "Abs", "Softplus", "Clip", "Elu"])
            inputs = [x, self.weight(shift=-1.0, fan=100), self.weight(shift=1.0, fan=100)] if op == "Clip" else [x]
            self.node(op, inputs, self.shapes[x])

    def binary(self) -> None:
        x = self.of_rank(2, 3, 4, 5)
        if not x:
            return
        op, shape = self.pick(["Add", "Sub", "Mul", "Max", "Min"]), self.shapes[x]
        peers = [n for n, s in self.shapes.items() if s == shape or (len(s) == len(shape) and all(a in (1, b) for a, b in zip(s, shape)))]
        if len(peers) > 1 and self.r.random() < 0.7:
            y = self.pick(peers)
        else:
            y = self.weight(*[d if self.r.random() < 0.5 else 1 for d in shape])
        inputs = [x, y] if self.r.random() < 0.5 else [y, x]
        self.node(op, inputs, shape)

    def concat(self) -> None:
        x = self.of_rank(3, 4)
        if not x:
            return
        shape, axis = self.shapes[x], self.pick([1, 1, 1, len(self.shapes[x]) - 1])
        rest = lambda s: s[:axis] + s[axis + 1 :]
        peers = [n for n, s in self.shapes.items() if len(s) == len(shape) and rest(s) == rest(shape)]
        parts = [x] + [self.pick(peers) for _ in range(self.pick([1, 2]))]
        total = sum(self.shapes[p][axis] for p in parts)
        out = (*shape[:axis], total, *shape[axis + 1 :])
        if np.prod(out) <= LARGEST:
            self.node("Concat", parts, out, axis=axis)

    def split(self) -> None:
        x = self.of_rank(3, 4)
        if not x:
            return
        shape, axis = self.shapes[x], self.pick([1, len(self.shapes[x]) - 1])
        if shape[axis] < 2:
            return
        first = int(self.r.integers(1, shape[axis]))
        names = [self.name(), self.name()]
        self.nodes.append(helper.make_node("Split", [x, self.integers(first, shape[axis] - first)], names, axis=axis))
        self.used.add(x)
        for name, size in zip(names, (first, shape[axis] - first)):
            self.shapes[name] = (*shape[:axis], size, *shape[axis + 1 :])

    def slice(self) -> None:
        x = self.of_rank(2, 3, 4)
        if not x:
            return
        shape = self.shapes[x]
        axis, step = int(self.r.integers(len(shape))), self.pick([1, 1, 2, -1])
        if shape[axis] < 2:
            return
        start, end = (1, shape[axis]) if step > 0 else (shape[axis] - 1, -shape[axis] - 1)
        size = len(range(shape[axis])[start : end if step > 0 else None : step])
        inputs = [x, self.integers(start), self.integers(end), self.integers(axis), self.integers(step)]
        self.node("Slice", inputs, (*shape[:axis], size, *shape[axis + 1 :]))

    def pad(self) -> None:
        x = self.of_rank(4)
        if not x:
            return
        n, c, h, w = self.shapes[x]
        mode = self.pick(["constant", "edge", "reflect"])
        if mode == "reflect" and min(h, w) < 3:
            return
        out = (n, c, h + 3, w + 1)
        if np.prod(out) <= LARGEST:
            self.node("Pad", [x, self.integers(0, 0, 1, 0, 0, 0, 2, 1)], out, mode=mode)

    def transpose(self) -> None:
        x = self.of_rank(3, 4, 5)
        if not x:
            return
        rank = len(self.shapes[x])
        usual = {3: [[0, 2, 1]], 4: [[0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]], 5: [[0, 2, 1, 3, 4], [0, 1, 3, 4, 2]]}[rank]
        perm = self.pick(usual) if self.r.random() < 0.8 else [int(k) for k in self.r.permutation(rank)]
        self.node("Transpose", [x], tuple(self.shapes[x][k] for k in perm), perm=perm)

    def reshape(self) -> None:
        x = self.of_rank(3, 4, 5)
        if not x:
            return
        s = self.shapes[x]
        forms: list[Shape] = [(s[0], int(np.prod(s[1:]))), (*s[:-2], s[-2] * s[-1])]
        if len(s) == 3:
            n, t, c = s
            forms += [(n, t, h, c // h) for h in (2, 4) if c % h == 0] + [(n, t // w, w, c) for w in (3, 4, 7) if t % w == 0]
            forms += [(n, t, c // w, w) for w in (3, 4, 7) if c % w == 0]
        if len(s) == 4:
            forms += [(s[0], s[1], s[2] * s[3])] * 3 + [(s[0], 2, s[1] // 2, s[2], s[3])] * (s[1] % 2 == 0)
        form = self.pick([f for f in forms if len(f) >= 2])
        # 0 keeps a dim, and one -1 takes what is left: then the graph suits other sizes too.
        kept = [0 if k < len(s) and d == s[k] and form[:k] == s[:k] else d for k, d in enumerate(form)]
        changed = [k for k, d in enumerate(kept) if d != 0]
        if self.symbolic and changed:
            kept[self.pick(changed)] = -1
        self.node("Reshape", [x, self.integers(*(kept if self.symbolic else form))], form)

    def reduce(self) -> None:
        x = self.of_rank(3, 4, 5)
        if not x:
            return
        s, keep = self.shapes[x], self.pick([0, 1, 1])
        axes = self.pick([[len(s) - 1], [1], [len(s) - 2, len(s) - 1], [1, 2]])
        if not keep and len(s) - len(axes) < 2:
            keep = 1
        out = tuple(1 if k in axes else d for k, d in enumerate(s) if keep or k not in axes)
        op = self.pick(["ReduceMean", "ReduceMean", "ReduceMax", "ReduceL2"])
        self.node(op, [x, self.integers(*axes)], out, keepdims=keep)

    def softmax(self) -> None:
        x = self.of_rank(2, 3, 4)
        if x:
            y = self.node("Softmax", [x], self.shapes[x], axis=self.pick([-1, -1, 1]))
            if self.r.random() < 0.5:
                self.node("Mul", [y, self.weight(shift=4.0, fan=100)], self.shapes[x])

    def layer_norm(self) -> None:
        x = self.of_rank(2, 3, 4)
        if x and self.shapes[x][-1] >= 4:
            c = self.shapes[x][-1]
            self.node("LayerNormalization", [x, self.weight(c), self.weight(c)], self.shapes[x], axis=-1, epsilon=1e-2)

    def linear(self) -> None:
        x = self.of_rank(2, 3, 4)
        if not x:
            return
        *rows, k = self.shapes[x]
        n = self.pick(CHANNELS)
        y = self.node("MatMul", [x, self.weight(k, n, fan=k)], (*rows, n))
        if self.r.random() < 0.6:
            self.node("Add", [y, self.weight(n)], (*rows, n))

    def scores(self) -> None:
        """Attention without its name: tokens by tokens, softmax, and back."""
        x = self.of_rank(3, 4)
        if not x:
            return
        *batch, t, c = self.shapes[x]
        if np.prod(batch) * t * t > LARGEST:
            return
        perm = [*range(len(batch)), len(batch) + 1, len(batch)]
        turned = self.node("Transpose", [x], (*batch, c, t), perm=perm)
        s = self.node("MatMul", [x, turned], (*batch, t, t))
        s = self.node("Mul", [s, self.weight(shift=c**-0.5, fan=10**6)], (*batch, t, t))
        p = self.node("Softmax", [s], (*batch, t, t), axis=-1)
        self.node("MatMul", [p, x], (*batch, t, c))

    def attention(self) -> None:
        """Heads of tokens, with what exporters put around: scales on either side, masks of several kinds, keys of other tokens."""
        x = self.of_rank(3)
        if not x:
            return
        n, t, _ = self.shapes[x]
        others = [name for name, s in self.shapes.items() if len(s) == 3 and s[0] == n]
        y = self.pick(others) if self.r.random() < 0.3 else x
        s = self.shapes[y][1]
        heads, size = self.pick([1, 2, 3, 4]), self.pick([4, 8, 16, 24, 32, 64])
        if n * heads * t * s > LARGEST or self.shapes[x][2] > 200 or self.shapes[y][2] > 200:
            return

        def project(v: str, perm: list[int]) -> str:
            rows, c = self.shapes[v][1], self.shapes[v][2]
            z = self.node("MatMul", [v, self.weight(c, heads * size, fan=c)], (n, rows, heads * size))
            if self.r.random() < 0.5:
                z = self.node("Add", [z, self.weight(heads * size)], self.shapes[z])
            z = self.node("Reshape", [z, self.integers(0, -1 if self.symbolic else rows, heads, size)], (n, rows, heads, size))
            return self.node("Transpose", [z], tuple(self.shapes[z][k] for k in perm), perm=perm)

        q, k, v = project(x, [0, 2, 1, 3]), project(y, [0, 2, 3, 1]), project(y, [0, 2, 1, 3])
        early = self.r.random() < 0.5
        if early:
            q = self.node("Mul", [q, self.weight(1, shift=size**-0.5, fan=10**6)], self.shapes[q])
        p = self.node("MatMul", [q, k], (n, heads, t, s))
        if not early:
            p = self.node("Div", [p, self.weight(shift=size**0.5, fan=10**6)], self.shapes[p])
        mask = self.pick(["", "", "causal", "bias", "where"])
        if mask == "causal" and not self.symbolic:
            name = self.name()
            self.constants.append(numpy_helper.from_array((np.triu(np.ones((t, s)), 1) * -10000).astype(self.type), name))
            p = self.node("Add", [p, name], self.shapes[p])
        elif mask == "bias" and not self.symbolic:
            p = self.node("Add", [p, self.weight(self.pick([1, heads]), t, s)], self.shapes[p])
        elif mask == "where" and not self.symbolic:
            name = self.name()
            self.constants.append(numpy_helper.from_array(np.tril(self.r.random((t, s)) < 0.7) | np.eye(t, s, dtype=bool), name))
            p = self.node("Where", [name, p, self.weight(1, shift=-10000.0)], self.shapes[p])
        p = self.node("Softmax", [p], self.shapes[p], axis=-1)
        z = self.node("MatMul", [p, v], (n, heads, t, size))
        z = self.node("Transpose", [z], (n, t, heads, size), perm=[0, 2, 1, 3])
        z = self.node("Reshape", [z, self.integers(0, -1 if self.symbolic else t, heads * size)], (n, t, heads * size))
        if self.r.random() < 0.6 and self.shapes[x][2] > 1:
            c = self.shapes[x][2]
            z = self.node("MatMul", [z, self.weight(heads * size, c, fan=heads * size)], (n, t, c))
            self.node("Add", [x, z], self.shapes[z])

    def gather(self) -> None:
        x = self.of_rank(2, 3, 4)
        if not x:
            return
        shape = self.shapes[x]
        axis = int(self.r.integers(len(shape)))
        picked = [int(k) for k in self.r.integers(-shape[axis], shape[axis], self.pick([1, 3, 5]))]
        out = (*shape[:axis], len(picked), *shape[axis + 1 :])
        if np.prod(out) <= LARGEST:
            self.node("Gather", [x, self.integers(*picked)], out, axis=axis)

    def where(self) -> None:
        """By an input or a constant: rounding must not decide which side is taken."""
        x = self.of_rank(2, 3, 4)
        if not x:
            return
        shape = self.shapes[x]
        c = self.name()
        same = [i.name for i in self.inputs if self.shapes[i.name] == shape]
        if same:
            self.nodes.append(helper.make_node("Greater", [same[0], self.weight(1)], [c]))
            self.used.add(same[0])
        else:
            self.constants.append(numpy_helper.from_array(self.r.random(shape[-1:]) < 0.5, c))
        self.node("Where", [c, x, self.weight(shape[-1])], shape)

    def repeat(self) -> None:
        x = self.of_rank(2, 3, 4)
        if not x:
            return
        shape = self.shapes[x]
        if 1 in shape and self.r.random() < 0.6:
            out = tuple(self.pick([d, 3]) if d == 1 else d for d in shape)
            self.node("Expand", [x, self.integers(*out)], out)
            return
        times = [self.pick([1, 1, 2]) for _ in shape]
        out = tuple(d * k for d, k in zip(shape, times))
        if np.prod(out) <= LARGEST:
            self.node("Tile", [x, self.integers(*times)], out)

    def running_sum(self) -> None:
        x = self.of_rank(2, 3, 4)
        if x:
            axis = int(self.r.integers(len(self.shapes[x])))
            if self.shapes[x][axis] <= 64:
                y = self.node("CumSum", [x, self.integers(axis)], self.shapes[x], exclusive=self.pick([0, 1]), reverse=self.pick([0, 1]))
                self.node("Mul", [y, self.weight(1, shift=0.2, fan=10**6)], self.shapes[x])

    def largest(self) -> None:
        """Of inputs alone: rounding must not decide which of two is larger."""
        x = self.pick([i.name for i in self.inputs])
        shape = self.shapes[x]
        k = int(self.r.integers(1, min(5, shape[-1]) + 1))
        values, places = self.name(), self.name()
        self.nodes.append(helper.make_node("TopK", [x, self.integers(k)], [values, places], axis=-1))
        self.used.add(x)
        self.shapes[values] = (*shape[:-1], k)
        if self.r.random() < 0.5:
            self.node("Cast", [places], (*shape[:-1], k), to=self.proto)

    def triangle(self) -> None:
        x = self.of_rank(2, 3, 4)
        if x:
            self.node("Trilu", [x], self.shapes[x], upper=self.pick([0, 1]))

    def einsum(self) -> None:
        x = self.of_rank(3, 4)
        if not x:
            return
        s = self.shapes[x]
        if len(s) == 4:
            equation, weight, out = self.pick([
                ("nchw,oc->nohw", (5, s[1]), (s[0], 5, s[2], s[3])), ("nchw,wo->ncho", (s[3], 6), (*s[:3], 6)),
                ("nchw,chw->nc", s[1:], s[:2]), ("nthd,hde->nte", (*s[2:], 8), (s[0], s[1], 8)),
            ])  # fmt: skip
            fan = {2: weight[-1], 3: int(np.prod(weight))}[len(weight)]
        else:
            equation, weight, out = self.pick([("ntc,oc->nto", (7, s[2]), (*s[:2], 7)), ("ntc,tsc->ncs", (s[1], 4, s[2]), (s[0], s[2], 4))])
            fan = int(np.prod(weight))
        self.node("Einsum", [x, self.weight(*weight, fan=fan)], tuple(out), equation=equation)

    def squeeze(self) -> None:
        x = self.of_rank(2, 3, 4, 5)
        if not x:
            return
        s = self.shapes[x]
        ones = [k for k, d in enumerate(s) if d == 1]
        if ones and len(s) > 2 and self.r.random() < 0.6:
            axis = self.pick(ones)
            self.node("Squeeze", [x, self.integers(axis)], (*s[:axis], *s[axis + 1 :]))
        elif len(s) < 5:
            axis = int(self.r.integers(len(s) + 1))
            self.node("Unsqueeze", [x, self.integers(axis)], (*s[:axis], 1, *s[axis:]))

    def group_norm(self) -> None:
        """As exporters write it: a reshape, an instance norm without scale, a reshape, and a scale of its own."""
        x = self.of_rank(4, 3)
        if not x:
            return
        s = self.shapes[x]
        groups = self.pick([g for g in (1, 2, 4, 8) if s[1] % g == 0])
        if int(np.prod(s[1:])) // groups < 8:
            return
        one, none = np.ones(groups, self.type), np.zeros(groups, self.type)
        names = [self.name(), self.name()]
        self.constants += [numpy_helper.from_array(v, k) for k, v in zip(names, (one, none))]
        y = self.node("Reshape", [x, self.integers(0, groups, -1)], (s[0], groups, int(np.prod(s[1:])) // groups))
        y = self.node("InstanceNormalization", [y, *names], self.shapes[y], epsilon=1e-2)
        if self.symbolic:
            form = self.name()
            self.nodes.append(helper.make_node("Shape", [x], [form]))
        else:
            form = self.integers(*s)
        y = self.node("Reshape", [y, form], s)
        wide = (s[1],) + (1,) * (len(s) - 2)
        y = self.node("Mul", [y, self.weight(*wide)], s)
        self.node("Add", [y, self.weight(*wide)], s)

    def gate(self) -> None:
        """Squeeze and excitation."""
        x = self.of_rank(4)
        if not x:
            return
        n, c, *_ = self.shapes[x]
        y = self.node("GlobalAveragePool", [x], (n, c, 1, 1))
        for outputs, op in ((4, "Relu"), (c, self.pick(["Sigmoid", "HardSigmoid"]))):
            inputs = self.shapes[y][1]
            y = self.node("Conv", [y, self.weight(outputs, inputs, 1, 1, fan=inputs), self.weight(outputs)], (n, outputs, 1, 1))
            y = self.node(op, [y], (n, outputs, 1, 1))
        self.node("Mul", [x, y], self.shapes[x])


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
        kind, zero = (np.uint8, int(self.r.integers(0, 200))) if self.unsigned else (np.int8, int(self.pick([0, 0, -128, 5, -3, 127])))
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
        dw = self.node("DequantizeLinear", [q, self.scalar(scale, np.float32), self.scalar(point, np.int8)], shape, axis=axis)
        b = self.scalar(self.r.integers(-900, 900, outputs), np.int32)
        by = np.broadcast_to(scale * 2.0**-inputs_bits, (outputs,))
        db = self.node(
            "DequantizeLinear", [b, self.scalar(by, np.float32), self.scalar(np.zeros(outputs), np.int32)], (outputs,), axis=0
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
            "Conv", inputs, (n, filters, oh, ow), group=group, pads=[pad] * 4, strides=[stride] * 2, dilations=[dilation] * 2
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
        bits = {n: b for n, b in self.bits.items()}
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


STEPS: list[tuple[Callable[[Graph], None], int]] = [
    (Graph.convolution, 6), (Graph.transposed_convolution, 1), (Graph.pool, 2), (Graph.global_pool, 1), (Graph.resize, 1),
    (Graph.batch_norm, 1), (Graph.instance_norm, 1), (Graph.pixel_shuffle, 1), (Graph.unary, 4), (Graph.binary, 5), (Graph.concat, 2),
    (Graph.split, 1), (Graph.slice, 1), (Graph.pad, 1), (Graph.transpose, 4), (Graph.reshape, 3), (Graph.reduce, 2), (Graph.softmax, 1),
    (Graph.layer_norm, 2), (Graph.linear, 4), (Graph.scores, 1), (Graph.gather, 1), (Graph.where, 1),
    (Graph.repeat, 1), (Graph.running_sum, 1), (Graph.largest, 1), (Graph.triangle, 1), (Graph.einsum, 1), (Graph.squeeze, 2),
    (Graph.group_norm, 2), (Graph.gate, 1), (Graph.attention, 4),
]  # fmt: skip


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


def random_model(seed: int, kind: str, symbolic: bool = False) -> onnx.ModelProto:
    """symbolic: batch, height, width and tokens are symbols. Some of these graphs are valid for one size only."""
    if kind == "int8":
        return quantized_model(seed)
    g = Graph(seed, kind, symbolic)
    n = g.pick([1, 1, 2, 3])
    c, h, w, t = g.pick(CHANNELS), g.pick(SIZES), g.pick(SIZES), g.pick(SIZES)
    image = ((n, c, h, w), ["n", c, "h", "w"])
    tokens = ((n, t, c), ["n", "t", c])
    for shape, names in g.pick([[image], [image, image], [tokens], [image, tokens], [((n, h, w, c), ["n", "h", "w", c])]]):
        g.add_input(shape, names)
    steps = [step for step, weight in STEPS for _ in range(weight)]
    wanted = int(g.r.integers(3, 14))
    for _ in range(10 * wanted):
        if len(g.nodes) >= wanted:
            break
        g.pick(steps)(g)
    ends = [name for name in g.shapes if name not in g.used]
    out = [helper.make_tensor_value_info(name, g.proto, [None] * len(g.shapes[name]) if symbolic else g.shapes[name]) for name in ends]
    graph = helper.make_graph(g.nodes, f"seed{seed}", g.inputs, out, g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 9
    return model


# Of symbols; a graph's own are among those of SIZES.
OTHER_SIZES = [{"n": 2, "h": 9, "w": 14, "t": 12}, {"n": 1, "h": 16, "w": 7, "t": 5}, {"n": 5, "h": 3, "w": 24, "t": 28}]


def feed_of(model: onnx.ModelProto, seed: int, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    r = np.random.default_rng(seed + 10**6)
    feed = {}
    for x in model.graph.input:
        t = x.type.tensor_type
        kind = helper.tensor_dtype_to_np_dtype(t.elem_type)
        shape = [(sizes or {}).get(d.dim_param, d.dim_value) for d in t.shape.dim]
        feed[x.name] = r.standard_normal(shape).astype(kind)
    return feed


def in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with exact weights in float32: the reference of float16, whose own rounding ONNX Runtime adds to."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for c in out.graph.initializer:
        if c.data_type == TensorProto.FLOAT16:
            c.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(c).astype(np.float32), c.name))
    for n in out.graph.node:
        if n.op_type == "Cast":
            n.attribute[0].i = TensorProto.FLOAT
    for v in [*out.graph.input, *out.graph.output]:
        v.type.tensor_type.elem_type = TensorProto.FLOAT
    return out


def reference(model: onnx.ModelProto, feed: dict[str, np.ndarray], device: str) -> list[np.ndarray]:
    """In float32 by ONNX Runtime, without its optimiser, or by a device of ours."""
    if device != "onnxruntime":
        import sardonyx

        ours = sardonyx.compile(in_float32(model), device=device, threads=2)
        return list(ours.run({k: v.astype(np.float32) for k, v in feed.items()}).values())
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # a size that does not suit a graph is expected
    session = onnxruntime.InferenceSession(in_float32(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {k: v.astype(np.float32) for k, v in feed.items()})


def error_of(
    model: onnx.ModelProto, seed: int, device: str, against: str = "onnxruntime", precision: str = "fp32"
) -> tuple[float, str]:
    """The largest difference of an output, relative to its largest value or 1, and the output's name.

    A model with symbols is compiled once and runs at several sizes, those where the reference fails excepted.
    """
    import sardonyx

    symbolic = any(d.dim_param for x in model.graph.input for d in x.type.tensor_type.shape.dim)
    ours = None
    worst = (0.0, "")
    for sizes in OTHER_SIZES if symbolic else [{}]:
        feed = feed_of(model, seed, sizes)
        try:
            want = reference(model, feed, against)
        except Exception:
            if symbolic:
                continue
            raise
        ours = ours or sardonyx.compile(model, device=device, threads=2, precision=precision)
        for (name, y), exact in zip(ours.run(feed).items(), want):
            if y.shape != exact.shape:
                return float("inf"), f"{name} with {sizes}: {y.shape} instead of {exact.shape}"
            finite = np.where(np.isinf(exact), 0.0, exact)  # the maximum of nothing
            difference = np.abs(np.where(y == exact, finite, y.astype(np.float64)) - finite)
            error = float(np.max(difference, initial=0) / max(1.0, float(np.max(np.abs(exact), initial=0))))
            worst = max(worst, (float("inf") if np.isnan(error) else error, f"{name} {sizes or ''}"))
    return worst if ours else (0.0, "no size")


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="host")
    p.add_argument("--against", default="onnxruntime", help="onnxruntime, or a device, where ONNX Runtime is not installed")
    p.add_argument("--seeds", default="0:200", help="one, or FIRST:END")
    p.add_argument("--kind", default="float", choices=sorted(TOLERANCE))
    p.add_argument("--precision", default="fp32", choices=["fp32", "fp16", "bf16"], help="that models of float32 are compiled for")
    p.add_argument("--symbolic", action="store_true", help="symbolic sizes, and several runs of each model")
    p.add_argument("--seconds", type=float, default=1e9, help="no seed begins later")
    p.add_argument("--save", type=pathlib.Path, help="where the last wrong model is written")
    a = p.parse_args()
    first, _, end = a.seeds.partition(":")
    tolerance = max(TOLERANCE[a.kind], {"fp32": 0.0, "fp16": TOLERANCE["float16"], "bf16": 0.15}[a.precision])
    began, wrong, count, none = time.monotonic(), 0, 0, 0
    for seed in range(int(first), int(end or int(first) + 1)):
        if time.monotonic() - began > a.seconds:
            break
        model = random_model(seed, a.kind, a.symbolic)
        count += 1
        try:
            error, where = error_of(model, seed, a.device, a.against, a.precision)
        except Exception as problem:
            error, where = float("inf"), f"{type(problem).__name__}: {str(problem)[:300]}"
        none += where == "no size"
        if not error <= tolerance:
            wrong += 1
            print(f"seed {seed}: {error:.3g} {where}: {' '.join(n.op_type for n in model.graph.node)}", flush=True)
            if a.save:
                onnx.save(model, a.save)
    print(f"{count} graphs, {wrong} wrong, {none} without a size that suits them, {time.monotonic() - began:.0f} s")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
