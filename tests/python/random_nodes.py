"""Operators of random graphs (random_graphs.py): each method adds one, on values that suit it."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
CHANNELS = [1, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 64]
SIZES = [1, 2, 3, 5, 7, 8, 9, 12, 16, 20, 28]
LARGEST = 60000  # elements of a value

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
            self.node(
                "ConvTranspose",
                [x, self.weight(c, filters, k, k, fan=c * k)],
                (n, filters, oh, ow),
                strides=[stride] * 2,
            )

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
            op = self.pick(
                ["Relu", "Sigmoid", "Tanh", "HardSwish", "Gelu", "LeakyRelu", "Neg", "Abs", "Softplus", "Clip", "Elu"]
            )
            inputs = [x, self.weight(shift=-1.0, fan=100), self.weight(shift=1.0, fan=100)] if op == "Clip" else [x]
            self.node(op, inputs, self.shapes[x])

    def binary(self) -> None:
        x = self.of_rank(2, 3, 4, 5)
        if not x:
            return
        op, shape = self.pick(["Add", "Sub", "Mul", "Max", "Min"]), self.shapes[x]
        peers = [
            n
            for n, s in self.shapes.items()
            if s == shape or (len(s) == len(shape) and all(a in (1, b) for a, b in zip(s, shape)))
        ]
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
        usual = {3: [[0, 2, 1]], 4: [[0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3]], 5: [[0, 2, 1, 3, 4], [0, 1, 3, 4, 2]]}[
            rank
        ]
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
            forms += [(n, t, h, c // h) for h in (2, 4) if c % h == 0] + [
                (n, t // w, w, c) for w in (3, 4, 7) if t % w == 0
            ]
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
                y = self.node(
                    "CumSum",
                    [x, self.integers(axis)],
                    self.shapes[x],
                    exclusive=self.pick([0, 1]),
                    reverse=self.pick([0, 1]),
                )
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
            equation, weight, out = self.pick(
                [("ntc,oc->nto", (7, s[2]), (*s[:2], 7)), ("ntc,tsc->ncs", (s[1], 4, s[2]), (s[0], s[2], 4))]
            )
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
