"""Random valid graphs against ONNX Runtime at three sizes of their symbolic dims, each compiled once.

A graph is a chain of operators over a pool of values: element-wise ones with broadcasting, reductions, moves (transpose, slice, reshape,
concat, pad, gather, expand ...), products, normalisation, and shape arithmetic (Shape, Gather, Concat). `python test_random_graphs.py SEED`
prints the graph of a seed.
"""

import contextlib
import sys

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

SIZES = ({"n": 2, "m": 3}, {"n": 5, "m": 4}, {"n": 3, "m": 7})
SEEDS = 200


class Value:
    """A tensor with its shape at each of the sizes. `exact`: the same in any implementation, to the last bit."""

    def __init__(self, name, shapes, exact):
        self.name, self.shapes, self.exact = name, [tuple(s) for s in shapes], exact
        self.rank = len(self.shapes[0]) if shapes else 1

    def dims(self, axis):
        return [s[axis] for s in self.shapes]

    def fixed(self, axis):
        return len(set(self.dims(axis))) == 1


class Graph:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.pool = [], [], []
        self.inputs = {}
        for name, dims in (
            ("x", ["n", "m", 4]),
            ("y", [["m", 4], ["n", 1, 4], [4], ["n", "m", 1]][self.rng.integers(4)]),
        ):
            self.inputs[name] = dims
            self.pool.append(Value(name, [[sizes.get(d, d) for d in dims] for sizes in SIZES], True))
        steps = self.rng.integers(5, 16)
        operators = [getattr(self, name) for name in dir(Graph) if name.startswith("op_")]
        while len(self.pool) < 2 + steps:
            made = operators[self.rng.integers(len(operators))](self.pick())
            if made is not None and all(0 < np.prod(s) < 20000 for s in made.shapes) and made.rank <= 5:
                self.pool.append(made)

    def pick(self):
        """Mostly a value made lately."""
        k = len(self.pool)
        return self.pool[self.rng.integers(max(0, k - 3), k) if self.rng.random() < 0.7 else self.rng.integers(k)]

    def choose(self, *options):
        return options[self.rng.integers(len(options))]

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def node(self, op, inputs, shapes, exact=False, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return Value(name, shapes, exact)

    # ---- element-wise
    def op_unary(self, x):
        op = self.choose(
            "Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Erf", "Softplus", "HardSwish", "Gelu", "LeakyRelu", "Sin"
        )
        return self.node(op, [x.name], x.shapes, x.exact and op in ("Relu", "Neg", "Abs"))

    def op_clip(self, x):
        return self.node(
            "Clip", [x.name, self.constant(np.float32(-0.75)), self.constant(np.float32(1.25))], x.shapes, x.exact
        )

    def op_binary(self, x):
        fits = []
        for y in self.pool:
            with contextlib.suppress(ValueError):
                fits.append((y, [np.broadcast_shapes(a, b) for a, b in zip(x.shapes, y.shapes)]))
        y, shapes = fits[self.rng.integers(len(fits))]
        op = self.choose("Add", "Sub", "Mul", "Max", "Min", "Div")
        right = y.name
        if op == "Div":
            right = self.node("Exp", [self.node("Tanh", [y.name], y.shapes).name], y.shapes).name
        return self.node(op, [x.name, right], shapes, x.exact and y.exact and op in ("Max", "Min"))

    def op_where(self, x):
        if not x.exact:
            return None
        zero = self.constant(np.float32(0))
        mask = self.node(self.choose("Greater", "LessOrEqual"), [x.name, zero], x.shapes, True)
        return self.node("Where", [mask.name, x.name, self.constant(np.float32(0.5))], x.shapes, True)

    def op_integers(self, x):
        if not x.exact:
            return None
        whole = self.node(
            "Cast",
            [self.node("Mul", [x.name, self.constant(np.float32(8))], x.shapes).name],
            x.shapes,
            to=TensorProto.INT32,
        )
        op = self.choose("Add", "Mul", "Mod")
        done = self.node(op, [whole.name, self.constant(np.int32(3))], x.shapes)
        scaled = self.node("Cast", [done.name], x.shapes, to=TensorProto.FLOAT)
        return self.node("Mul", [scaled.name, self.constant(np.float32(0.125))], x.shapes, True)

    # ---- reductions and what contains them
    def axes(self, x):
        return sorted(self.rng.choice(x.rank, self.rng.integers(1, x.rank + 1), replace=False).tolist())

    def op_reduce(self, x):
        if not x.rank:
            return None
        axes, keep = self.axes(x), int(self.rng.integers(2))
        shapes = [[1 if k in axes else d for k, d in enumerate(s) if keep or k not in axes] for s in x.shapes]
        op = self.choose("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
        negative = [a - x.rank if self.rng.random() < 0.5 else a for a in axes]
        y = self.node(
            op, [x.name, self.ints(*negative)], shapes, x.exact and op in ("ReduceMax", "ReduceMin"), keepdims=keep
        )
        return self.node("Tanh", [y.name], shapes) if op in ("ReduceSum", "ReduceL2") else y

    def op_arg(self, x):
        if not x.rank or not x.exact:
            return None
        axis = int(self.rng.integers(x.rank))
        shapes = [(*s[:axis], 1, *s[axis + 1 :]) for s in x.shapes]
        y = self.node(
            self.choose("ArgMax", "ArgMin"), [x.name], shapes, axis=axis, select_last_index=int(self.rng.integers(2))
        )
        return self.node("Cast", [y.name], shapes, True, to=TensorProto.FLOAT)

    def op_softmax(self, x):
        return (
            self.node(
                self.choose("Softmax", "LogSoftmax"), [x.name], x.shapes, axis=int(self.rng.integers(-x.rank, x.rank))
            )
            if x.rank
            else None
        )

    def op_normalise(self, x):
        if not x.rank or not x.fixed(-1) or x.dims(-1)[0] < 2:
            return None
        n = x.dims(-1)[0]
        return self.node(
            "LayerNormalization",
            [x.name, self.constant(self.rng.random(n).astype(np.float32))],
            x.shapes,
            axis=-1,
            epsilon=0.01,
        )

    def op_cumsum(self, x):
        if not x.rank:
            return None
        axis = self.constant(np.int64(self.rng.integers(x.rank)))
        y = self.node(
            "CumSum", [x.name, axis], x.shapes, exclusive=int(self.rng.integers(2)), reverse=int(self.rng.integers(2))
        )
        return self.node("Tanh", [y.name], x.shapes)

    def op_top(self, x):
        if not x.rank or not x.exact:
            return None
        axis = int(self.rng.integers(x.rank))
        k = int(self.rng.integers(1, min(x.dims(axis)) + 1))
        shapes = [(*s[:axis], k, *s[axis + 1 :]) for s in x.shapes]
        name = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                "TopK", [x.name, self.ints(k)], [name, name + "i"], axis=axis, largest=int(self.rng.integers(2))
            )
        )
        return Value(name, shapes, True)

    # ---- products
    def op_matmul(self, x):
        if x.rank < 2:
            return None
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        turned = self.node("Transpose", [x.name], [(*s[:-2], s[-1], s[-2]) for s in x.shapes], perm=perm)
        y = self.node("MatMul", [x.name, turned.name], [(*s[:-1], s[-2]) for s in x.shapes])
        return self.node("Tanh", [self.node("Mul", [y.name, self.constant(np.float32(0.1))], y.shapes).name], y.shapes)

    def op_dense(self, x):
        if x.rank < 2 or not x.fixed(-1):
            return None
        k, n = x.dims(-1)[0], int(self.rng.integers(1, 7))
        w = self.constant(self.rng.standard_normal((k, n)).astype(np.float32))
        y = self.node("MatMul", [x.name, w], [(*s[:-1], n) for s in x.shapes])
        return self.node("Tanh", [y.name], y.shapes)

    def op_conv(self, x):
        if x.rank < 3 or x.rank > 4 or not x.fixed(1):
            return None
        w = self.constant(self.rng.standard_normal((3, x.dims(1)[0], *[3] * (x.rank - 2))).astype(np.float32) * 0.3)
        y = self.node("Conv", [x.name, w], [(s[0], 3, *s[2:]) for s in x.shapes], pads=[1] * (2 * x.rank - 4))
        return self.node("Relu", [y.name], y.shapes)

    def op_pool(self, x):
        if x.rank < 3 or x.rank > 4:
            return None
        op = self.choose("MaxPool", "AveragePool")
        return self.node(
            op,
            [x.name],
            x.shapes,
            x.exact and op == "MaxPool",
            kernel_shape=[3] * (x.rank - 2),
            pads=[1] * (2 * x.rank - 4),
        )

    # ---- moves
    def op_transpose(self, x):
        perm = self.rng.permutation(x.rank).tolist()
        return (
            self.node("Transpose", [x.name], [[s[p] for p in perm] for s in x.shapes], x.exact, perm=perm)
            if x.rank
            else None
        )

    def op_slice(self, x):
        if not x.rank:
            return None
        axis = int(self.rng.integers(x.rank))
        start, end, step = self.choose(
            (0, -1, 1), (1, 2**62, 1), (0, 2**62, 2), (-1, -(2**62), -1), (-2, 2**62, 1), (1, 3, 1), (-1, 0, -2)
        )
        shapes = [
            (*s[:axis], len(range(s[axis])[start : end if end != -(2**62) else None : step]), *s[axis + 1 :])
            for s in x.shapes
        ]
        return self.node(
            "Slice", [x.name, self.ints(start), self.ints(end), self.ints(axis), self.ints(step)], shapes, x.exact
        )

    def op_concat(self, x):
        if not x.rank:
            return None
        axis = int(self.rng.integers(x.rank))
        rest = [s[:axis] + s[axis + 1 :] for s in x.shapes]
        fits = [y for y in self.pool if y.rank == x.rank and [s[:axis] + s[axis + 1 :] for s in y.shapes] == rest]
        ys = [x, *(fits[self.rng.integers(len(fits))] for _ in range(self.rng.integers(1, 3)))]
        shapes = [(*s[:axis], sum(y.shapes[k][axis] for y in ys), *s[axis + 1 :]) for k, s in enumerate(x.shapes)]
        return self.node("Concat", [y.name for y in ys], shapes, all(y.exact for y in ys), axis=axis)

    def op_reshape(self, x):
        if x.rank < 2:
            return None
        if self.rng.random() < 0.5:
            return self.node("Flatten", [x.name], [(s[0], int(np.prod(s[1:]))) for s in x.shapes], x.exact, axis=1)
        # The first two dims become one, by arithmetic on the shape.
        shape = self.node("Shape", [x.name], [])
        ends = [
            self.node("Slice", [shape.name, self.ints(a), self.ints(b)], []) for a, b in ((0, 1), (1, 2), (2, 2**62))
        ]
        both = self.node("Mul", [ends[0].name, ends[1].name], [])
        target = self.node("Concat", [both.name, ends[2].name], [], axis=0)
        return self.node("Reshape", [x.name, target.name], [(s[0] * s[1], *s[2:]) for s in x.shapes], x.exact)

    def op_split_dim(self, x):
        axis = int(self.rng.integers(x.rank)) if x.rank else 0
        if not x.rank or not x.fixed(axis) or x.dims(axis)[0] % 2:
            return None
        target = [0] * axis + [2, x.dims(axis)[0] // 2] + [-1] * (axis + 1 < x.rank) + [0] * 0
        shapes = [
            (*s[:axis], 2, s[axis] // 2, *([int(np.prod(s[axis + 1 :]))] if axis + 1 < x.rank else []))
            for s in x.shapes
        ]
        return self.node("Reshape", [x.name, self.ints(*target)], shapes, x.exact)

    def op_unsqueeze(self, x):
        axis = int(self.rng.integers(x.rank + 1))
        return self.node("Unsqueeze", [x.name, self.ints(axis)], [(*s[:axis], 1, *s[axis:]) for s in x.shapes], x.exact)

    def op_squeeze(self, x):
        ones = [k for k in range(x.rank) if x.fixed(k) and x.dims(k)[0] == 1]
        if not ones:
            return None
        axis = self.choose(*ones)
        return self.node("Squeeze", [x.name, self.ints(axis)], [s[:axis] + s[axis + 1 :] for s in x.shapes], x.exact)

    def op_expand(self, x):
        y = self.pool[0]  # to the shape of x
        try:
            shapes = [np.broadcast_shapes(a, b) for a, b in zip(x.shapes, y.shapes)]
        except ValueError:
            return None
        return self.node("Expand", [x.name, self.node("Shape", [y.name], []).name], shapes, x.exact)

    def op_gather(self, x):
        if not x.rank:
            return None
        axis = int(self.rng.integers(x.rank))
        n = min(x.dims(axis))
        indices = self.rng.integers(-n, n, self.choose((2,), (), (2, 2)))
        shapes = [s[:axis] + indices.shape + s[axis + 1 :] for s in x.shapes]
        return self.node("Gather", [x.name, self.constant(indices.astype(np.int64))], shapes, x.exact, axis=axis)

    def op_pad(self, x):
        if not x.rank:
            return None
        mode = self.choose("constant", "edge", "reflect", "wrap")
        pads = self.rng.integers(0, 2, 2 * x.rank).tolist()
        if mode == "reflect" and min(min(s) for s in x.shapes) < 2:
            return None
        shapes = [[d + pads[k] + pads[k + x.rank] for k, d in enumerate(s)] for s in x.shapes]
        return self.node("Pad", [x.name, self.ints(*pads)], shapes, x.exact, mode=mode)

    def op_tile(self, x):
        times = self.rng.integers(1, 3, x.rank).tolist()
        return (
            self.node(
                "Tile", [x.name, self.ints(*times)], [[d * t for d, t in zip(s, times)] for s in x.shapes], x.exact
            )
            if x.rank
            else None
        )

    def model(self):
        used = {name for n in self.nodes for name in n.input}
        results = [v for v in self.pool[2:] if v.name not in used] or [self.pool[-1]]
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(v.name, TensorProto.FLOAT, [None] * v.rank) for v in results]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), results

    def feed(self, k):
        rng = np.random.default_rng(k)
        return {
            name: rng.standard_normal([SIZES[k].get(d, d) for d in dims]).astype(np.float32)
            for name, dims in self.inputs.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_graph(seed):
    import onnxruntime as ort

    graph = Graph(seed)
    model, results = graph.model()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    compiled = sardonyx.compile(model)
    for k in range(len(SIZES)):
        feed = graph.feed(k)
        want = session.run(None, feed)
        got = compiled.run(feed)
        for value, w in zip(results, want):
            assert w.shape == value.shapes[k], "the generator is wrong"
            assert got[value.name].shape == w.shape
            # Chains of up to 15 operators, some of which double an error.
            np.testing.assert_allclose(
                got[value.name], w, rtol=2e-4, atol=2e-4 * max(1.0, np.abs(w).max(initial=0)), err_msg=value.name
            )


def test_a_product_that_is_the_same_for_the_whole_batch():
    # found by seed 1365: neither operand moves along the batch that both were expanded to
    text = """<ir_version: 9, opset_import: ["" : 20]>
      g (float[n, m, 4] x, float[m, 4] y) => (float[n, m, k] z) <float[4, 1] w = {-0.9, 0.8, 0.1, 0.3}> {
        shape = Shape (x)
        e = Expand (y, shape)
        p = MatMul (e, w)
        z = Tanh (p)
      }"""
    y = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    got = sardonyx.compile(onnx.parser.parse_model(text))(x=np.zeros((5, 3, 4), np.float32), y=y)["z"]
    want = np.tanh(y @ np.array([[-0.9], [0.8], [0.1], [0.3]], np.float32))
    np.testing.assert_allclose(got, np.broadcast_to(want, (5, 3, 1)), rtol=1e-5)


if __name__ == "__main__":
    print(onnx.printer.to_text(Graph(int(sys.argv[1])).model()[0]))
