"""The effect of rounding to 16-bit floats on a model's outputs, independent of the engine: the scale of errors in test_half_precision.py.

A model that keeps weights and activations in 16 bits rounds every tensor once, each element by at most half a unit in the last place: a
factor of 1 + u 2^-p with |u| <= 1 and p = 11 bits for float16, 8 for bfloat16. How far that moves an output depends on the model: sums
average it out, differences and steep functions amplify it. So it is not bounded by a formula but propagated: every float of a model
(weights, inputs, and what each node computes) is multiplied by 1 + u 2^-p, u uniform in [-1, 1] and independent for each element, and ONNX
Runtime's CPU provider runs that in float32. Several draws give the distribution of the outputs' errors.

No error is added where rounding has no effect: to constants that 16 bits represent, and to what nodes only move or choose (a maximum of
numbers with 11 bits has 11 bits).

Exponents are unlimited here up to 2^100: overflow and underflow would only make the scale larger. What is beyond that (masks of float32's
least number) is 2^100, so that rounding does not make an infinity of it.

    python tests/python/half_rounding.py --device cuda --jobs 8 [MODEL.onnx ...]

prints errors on a device relative to that scale: for the models given, or all that benchmarks/models.py finds.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Of a significand. float32's functions are allowed two units in the last place.
BITS = {"fp16": 11, "bf16": 8, "fp32": 22}

# Operators whose results are long sums, of products by their second input.
SUMS = ("Conv", "ConvTranspose", "Gemm", "MatMul")

# Inputs by which an operator is told a size or a position. They are no data, and a version of the model that rounds them computes
# something else.
SIZES = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2), "OneHot": (1,), "Pad": (1,)}

# Operators whose results are elements of their inputs, or zero, or their negatives.
MOVES = {
    "Abs",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "DepthToSpace",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "GlobalMaxPool",
    "Identity",
    "If",
    "Loop",
    "Max",
    "MaxPool",
    "Min",
    "Neg",
    "Pad",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Reshape",
    "Scan",
    "Shape",
    "Sign",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
}


def represented(x: np.ndarray, bits: int) -> bool:
    """Whether every element has at most this many bits."""
    mantissa = np.ldexp(np.frexp(x.astype(np.float64))[0], bits)
    return bool(np.all(mantissa == np.round(mantissa)))


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all its float16 made float32: the same function, computed in float32 all through."""

    def graph(g: onnx.GraphProto) -> None:
        for k, t in enumerate(g.initializer):
            if t.data_type == TensorProto.FLOAT16:
                g.initializer[k].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float32), t.name))
        for v in [*g.input, *g.output, *g.value_info]:
            if v.type.tensor_type.elem_type == TensorProto.FLOAT16:
                v.type.tensor_type.elem_type = TensorProto.FLOAT
        for node in g.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.TENSOR and a.t.data_type == TensorProto.FLOAT16:
                    a.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(a.t).astype(np.float32), a.t.name))
                if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT16:
                    a.i = TensorProto.FLOAT
                if a.type == onnx.AttributeProto.GRAPH:
                    graph(a.g)

    graph(model.graph)
    return model


def nodes_of(g: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs inside."""
    for node in g.node:
        yield node
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(a.g)


def exact_names(model: onnx.ModelProto, types: dict[str, int]) -> set[str]:
    """Floats that only say sizes or positions: they must stay as they are."""
    uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    makers: dict[str, onnx.NodeProto] = {}
    for node in nodes_of(model.graph):
        for k, name in enumerate(node.input):
            uses.setdefault(name, []).append((node, k))
        for name in node.output:
            makers[name] = node
    outputs = {o.name for o in model.graph.output}

    def tells_size(node: onnx.NodeProto, k: int) -> bool:
        if node.op_type == "Cast":
            to = next(a.i for a in node.attribute if a.name == "to")
            return to in (TensorProto.INT32, TensorProto.INT64)
        if k in SIZES.get(node.op_type, ()):
            return True
        return bool(node.output) and all(o in exact for o in node.output if o)

    exact: set[str] = set()
    grown = True
    while grown:
        grown = False
        for name, users in uses.items():
            if name in exact or name in outputs or types.get(name) not in (TensorProto.FLOAT, None):
                continue
            if users and all(tells_size(n, k) for n, k in users):
                exact.add(name)
                grown = True
    return exact


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of all values by name; nested graphs' names must differ, which ONNX demands."""
    types: dict[str, int] = {}

    def graph(g: onnx.GraphProto) -> None:
        for t in g.initializer:
            types[t.name] = t.data_type
        for v in [*g.input, *g.output, *g.value_info]:
            types[v.name] = v.type.tensor_type.elem_type
        for node in g.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    graph(a.g)

    graph(onnx.shape_inference.infer_shapes(model, data_prop=True).graph)
    return types


def shapes_of(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Known dims of values by name, 0 for open ones."""
    shapes = {t.name: list(t.dims) for t in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    for v in [*inferred.input, *inferred.output, *inferred.value_info]:
        shapes.setdefault(v.name, [d.dim_value for d in v.type.tensor_type.shape.dim])
    return shapes


def terms(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> int:
    """How many products one element of a SUMS operator adds up."""
    w = shapes.get(node.input[1], [])
    if node.op_type == "MatMul":
        counted = w[-2:-1] or w
    elif node.op_type == "Gemm":
        counted = [w[1 if any(a.name == "transB" and a.i for a in node.attribute) else 0]] if len(w) == 2 else []
    else:
        counted = [w[0] if node.op_type == "ConvTranspose" else w[1], *w[2:]] if len(w) > 2 else []
    assert counted and all(counted), f"{node.op_type} {node.name}: the length of its sums is not known"
    return int(np.prod(counted))


class _Rounder:
    """Writes the nodes that round what a model's nodes compute; see rounded()."""

    def __init__(self, model: onnx.ModelProto, bits: int, draw: bool, seed: int, sums: bool):
        self.bits, self.draw, self.sums = bits, draw, sums
        self.types = types_of(model)
        self.exact = exact_names(model, self.types)
        self.shapes = shapes_of(model) if sums else {}
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        # ONNX Runtime's generators with nearby seeds give similar numbers, so seeds are drawn; 24 bits are exact in float32.
        self.seeds = np.random.default_rng(seed)

    def noise(self, name: str, to: str, g: list[onnx.NodeProto]) -> None:
        """`to`: the value `name`, rounded."""
        below, within = f"{to}/below", f"{to}/within"
        if self.opset < 8:  # Min and Max took equal shapes alone
            g.append(helper.make_node("Clip", [name], [within], min=-(2.0**100), max=2.0**100))
        else:
            g.append(helper.make_node("Min", [name, "largest"], [below]))
            g.append(helper.make_node("Max", [below, "least"], [within]))
        name = within
        if not self.draw:  # Veltkamp: of float32's 24 bits, x (2^s + 1) - (x (2^s + 1) - x) keeps the upper 24 - s
            part, rest = f"{to}/part", f"{to}/rest"
            g.append(helper.make_node("Mul", [name, "veltkamp"], [part]))
            g.append(helper.make_node("Sub", [part, name], [rest]))
            g.append(helper.make_node("Sub", [part, rest], [to]))
            return
        factor = f"{to}/factor"
        g.append(self.draw_like(name, factor, 1.0, 2.0**-self.bits))
        g.append(helper.make_node("Mul", [name, factor], [to]))

    def draw_like(self, name: str, to: str, middle: float, width: float) -> onnx.NodeProto:
        """`to`: random numbers of the shape of `name`, uniform around `middle`."""
        return helper.make_node(
            "RandomUniformLike",
            [name],
            [to],
            low=middle - width,
            high=middle + width,
            dtype=TensorProto.FLOAT,
            seed=float(self.seeds.integers(1, 2**24)),
        )

    def order(self, node: onnx.NodeProto, to: str, g: list[onnx.NodeProto]) -> None:
        """`to`: the result of a SUMS node with the error of its sums."""
        squares = onnx.NodeProto.FromString(node.SerializeToString())
        del squares.input[2:]  # a bias is one more term
        for k in range(2):
            squares.input[k] = f"{to}/square{k}"
            g.append(helper.make_node("Mul", [node.input[k]] * 2, [squares.input[k]]))
        for a in squares.attribute:
            if a.name == "alpha":
                a.f *= a.f
        squares.output[0], squares.name = f"{to}/squares", f"{to}/squares"
        size, error, part = f"{to}/size", f"{to}/error", f"{to}/part"
        g += [
            squares,
            helper.make_node("Sqrt", [squares.output[0]], [size]),
            self.draw_like(size, part, 0.0, 2.0**-24 * (terms(node, self.shapes) / 2) ** 0.5),
            helper.make_node("Mul", [size, part], [error]),
            helper.make_node("Add", [node.output[0], error], [to]),
        ]

    def floats(self, name: str) -> bool:
        assert name in self.types, f"the type of {name} is not known"
        return self.types[name] == TensorProto.FLOAT and name not in self.exact

    def moves(self, node: onnx.NodeProto) -> bool:
        """Whether the node's outputs need no rounding: it moves elements, or is a constant that so many bits represent."""
        if node.op_type != "Constant":
            return node.op_type in MOVES
        values = [numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"]
        values += [np.float32(a.f) for a in node.attribute if a.name == "value_float"]
        values += [np.float32(a.floats) for a in node.attribute if a.name == "value_floats"]
        return self.sums or all(represented(v, self.bits) for v in values if np.issubdtype(v.dtype, np.floating))

    def graph(self, g: onnx.GraphProto, known: dict[str, str]) -> None:
        """Rounds the graph in place. `known`: names of values around it -> their rounded values' names."""
        known = dict(known)
        nodes: list[onnx.NodeProto] = []
        weights = {t.name: t for t in g.initializer}
        for name in [*weights, *(i.name for i in g.input if i.name not in weights)]:
            if (
                self.sums
                or not self.floats(name)
                or (name in weights and represented(numpy_helper.to_array(weights[name]), self.bits))
            ):
                continue
            known[name] = f"{name}/rounded"
            self.noise(name, known[name], nodes)
        for old in g.node:
            node = onnx.NodeProto.FromString(old.SerializeToString())
            for k, name in enumerate(node.input):
                node.input[k] = known.get(name, name)
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    self.graph(a.g, known)
            nodes.append(node)
            moves = self.moves(node)
            for k, name in enumerate(node.output):
                if not name or moves or not self.floats(name):
                    continue
                node.output[k] = f"{name}/exact"  # graphs' outputs keep their names
                if self.sums and node.op_type in SUMS:
                    self.order(node, name, nodes)
                else:
                    self.noise(node.output[k], name, nodes)
        for k, o in enumerate(g.output):
            if o.name in known:  # an input or a weight is an output
                nodes.append(helper.make_node("Identity", [known[o.name]], [f"{o.name}/out"]))
                g.output[k].name = f"{o.name}/out"
        del g.node[:]
        g.node.extend(nodes)


def rounded(model: onnx.ModelProto, bits: int, draw: bool, seed: int = 1, sums: bool = False) -> onnx.ModelProto:
    """The model with every float rounded: `draw`: multiplied by 1 + u 2^-bits, u uniform in [-1, 1], anew in each run of a session. Else: to
    the nearest number of so many bits.

    `sums`: as float32 does it: inputs and weights are exact, functions have errors of so many bits, and what adds up k products has one that
    adding them in another order has. Partial sums of k terms t, rounded by 2^-24 of themselves at most, have an error whose mean square is
    (2^-24)^2 / 3 sum(s_i^2), and s_i^2 is i mean(t^2) for terms of random signs, so that u 2^-24 sqrt(k / 2 sum(t^2)) has that mean square too.
    It does not shrink where terms cancel."""
    model = widen(model)
    model.ir_version = max(model.ir_version, 8)  # weights need not be inputs
    _Rounder(model, bits, draw, seed, sums).graph(model.graph, {})
    for number, name in [(2.0 ** (24 - bits) + 1, "veltkamp"), (2.0**100, "largest"), (-(2.0**100), "least")]:
        model.graph.initializer.append(numpy_helper.from_array(np.float32(number), name))
    del model.graph.value_info[:]
    return model


class Rounding:
    """A model's outputs in float32, and what rounding to 16 bits, or with precision "fp32" float32's own, does to them."""

    def __init__(self, path, precision: str = "fp16", threads: int = 0):
        import onnxruntime as ort

        def session(model: onnx.ModelProto) -> ort.InferenceSession:
            options = ort.SessionOptions()
            options.log_severity_level = 3
            options.intra_op_num_threads = threads
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

        data, bits = onnx.load(path).SerializeToString(), BITS[precision]

        def model() -> onnx.ModelProto:
            return onnx.ModelProto.FromString(data)

        self.exact = session(widen(model()))
        if precision == "fp32":
            self.random = self.nearest = session(rounded(model(), bits, True, sums=True))
        else:
            self.random, self.nearest = (session(rounded(model(), bits, draw)) for draw in (True, False))

    @staticmethod
    def _feed(session, feed):
        halves = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in feed.items()}
        return dict(zip((i.name for i in session.get_inputs()), (halves[i.name] for i in session.get_inputs())))

    def reference(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [y.astype(np.float64) for y in self.exact.run(None, self._feed(self.exact, feed))]

    def draws(self, feed: dict[str, np.ndarray], count: int) -> Iterator[list[np.ndarray]]:
        """Outputs of runs in which every float was rounded: of 16 bits to the nearest once, and somewhere within half a unit otherwise."""
        for k in range(count):
            session = self.random if k else self.nearest
            yield [y.astype(np.float64) for y in session.run(None, self._feed(session, feed))]


def errors(y: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """The greatest and the root mean square difference."""
    d = y.astype(np.float64) - want
    return float(np.abs(d).max(initial=0)), float(np.sqrt(np.mean(d * d))) if d.size else 0.0


DRAWS = 8
TIMES = 2  # see test_half_precision.py


def scale(rounding: Rounding, feed: dict[str, np.ndarray], draws: int = DRAWS) -> tuple[list[np.ndarray], np.ndarray]:
    """The outputs in float32, and for each the largest of the draws' greatest and root mean square errors."""
    want = rounding.reference(feed)
    largest = np.zeros((len(want), 2))
    for ys in rounding.draws(feed, draws):
        largest = np.maximum(largest, [errors(y, w) for y, w in zip(ys, want)])
    return want, largest


def ratios(got: dict[str, np.ndarray], want: list[np.ndarray], largest: np.ndarray) -> list[float]:
    """Errors beside their scale; an output that rounding cannot change must be exact."""
    assert len(got) == len(want)
    out = []
    for (name, y), w, limits in zip(got.items(), want, largest):
        assert y.shape == w.shape, name
        assert np.array_equal(np.isfinite(y), np.isfinite(w)), name
        assert np.isfinite(limits).all(), f"rounding makes {name} infinite or nothing"
        for error, limit in zip(errors(y, w), limits):
            out.append(error / limit if limit else (0.0 if error == 0 else np.inf))
    return out


def measure(
    path: Path, device: str, sizes: list[dict[str, int]], precision: str = "fp16", threads: int = 0
) -> list[float]:
    """For each of the sizes the greatest ratio of an error to its scale. The scale is that of fp16 whatever the precision."""
    import models
    import sardonyx

    model = sardonyx.compile(path, device=device, precision=precision)
    rounding = Rounding(path, threads=threads)
    worst = []
    for seed, size in enumerate(sizes):
        feed = models.inputs(path, size, seed)
        want, largest = scale(rounding, feed)
        worst.append(max(ratios(model.run(feed), want, largest)))
    return worst


def report(job: tuple[Path, str, list[dict[str, int]]]) -> str:
    path, device, sizes = job
    start = time.time()
    try:
        right, wrong = (measure(path, device, sizes, precision, threads=2) for precision in ("fp16", "bf16"))
    except Exception as e:
        return f"{path.stem:40} FAILED {type(e).__name__}: {e}"
    texts = [" ".join(f"{r:6.2f}" for r in x) for x in (right, wrong)]
    verdict = "ok" if max(right) <= TIMES else "BEYOND"
    return f"{path.stem:40} {verdict:6} fp16 {texts[0]}   bf16, beside fp16's scale {texts[1]}   {time.time() - start:.0f} s"


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import models

    p = argparse.ArgumentParser()
    p.add_argument("files", nargs="*", type=Path)
    p.add_argument("--device", default="cuda")
    p.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    p.add_argument("--sizes", type=int, default=2)
    a = p.parse_args()
    folder = models.folder()
    if not a.files and folder:
        found = models.find(folder, Path(__file__).parents[2] / "build" / "models")
        a.files = [models.fill(folder, f) for f in found.values()]
    jobs = [(f, a.device, models.SIZES.get(f.stem, [{}])[: a.sizes]) for f in a.files]
    # A driver's context does not survive a fork.
    with concurrent.futures.ProcessPoolExecutor(
        a.jobs, multiprocessing.get_context("spawn"), search, (sys.path[0],)
    ) as pool:
        lines = []
        for f in concurrent.futures.as_completed([pool.submit(report, job) for job in jobs]):
            lines.append(f.result())
            print(lines[-1], flush=True)
    sys.exit(any(" ok " not in line for line in lines))


def search(folder: str) -> None:
    """Where a process of the report finds its modules."""
    sys.path.insert(0, folder)


if __name__ == "__main__":
    main()
