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

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from random_language import integers_of, language_model
from random_nodes import CHANNELS, OPSET, SIZES, Graph
from random_patterns import STEPS
from random_quantized import quantized_model

# Of the largest value: sums of some hundreds, ten operators deep. Quantised graphs are exact: scales are powers of two, and sums fit 24 bits.
TOLERANCE = {"float": 2e-4, "float16": 2e-2, "int8": 0.0}


def random_model(seed: int, kind: str, symbolic: bool = False, family: str = "networks") -> onnx.ModelProto:
    """symbolic: batch, height, width and tokens are symbols. Some of these graphs are valid for one size only."""
    if kind == "int8":
        return quantized_model(seed)
    if family == "language":
        decoder = language_model(seed, kind, symbolic)
        return model_of(decoder, seed, decoder.results)
    g = Graph(seed, kind, symbolic)
    n = g.pick([1, 1, 2, 3])
    c, h, w, t = g.pick(CHANNELS), g.pick(SIZES), g.pick(SIZES), g.pick(SIZES)
    image = ((n, c, h, w), ["n", c, "h", "w"])
    tokens = ((n, t, c), ["n", "t", c])
    for shape, names in g.pick(
        [[image], [image, image], [tokens], [image, tokens], [((n, h, w, c), ["n", "h", "w", c])]]
    ):
        g.add_input(shape, names)
    steps = [step for step, weight in STEPS for _ in range(weight)]
    wanted = int(g.r.integers(3, 14))
    for _ in range(10 * wanted):
        if len(g.nodes) >= wanted:
            break
        g.pick(steps)(g)
    return model_of(g, seed, [name for name in g.shapes if name not in g.used])


def model_of(g: Graph, seed: int, results: list[str]) -> onnx.ModelProto:
    form = lambda name: [None] * len(g.shapes[name]) if g.symbolic else g.shapes[name]
    out = [helper.make_tensor_value_info(name, g.proto, form(name)) for name in results]
    graph = helper.make_graph(g.nodes, f"seed{seed}", g.inputs, out, g.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return model


# Of symbols; a graph's own are among those of SIZES.
OTHER_SIZES = [
    {"n": 2, "h": 9, "w": 14, "t": 12},
    {"n": 1, "h": 16, "w": 7, "t": 5},
    {"n": 5, "h": 3, "w": 24, "t": 28},
]
# Of language models: batch, new tokens, those of the past (none in a first call), and their sum.
LANGUAGE_SIZES = [
    {"b": 2, "t": 12, "p": 0, "s": 12},
    {"b": 1, "t": 5, "p": 20, "s": 25},
    {"b": 3, "t": 28, "p": 33, "s": 61},
    {"b": 2, "t": 1, "p": 47, "s": 48},
]


def feed_of(model: onnx.ModelProto, seed: int, sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    r = np.random.default_rng(seed + 10**6)
    feed = {}
    for x in model.graph.input:
        t = x.type.tensor_type
        kind = helper.tensor_dtype_to_np_dtype(t.elem_type)
        shape = [(sizes or {}).get(d.dim_param, d.dim_value) for d in t.shape.dim]
        integers = t.elem_type == TensorProto.INT64
        feed[x.name] = integers_of(x.name, shape, r) if integers else r.standard_normal(shape).astype(kind)
    return feed


def in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with exact weights in float32: the reference of float16, whose own rounding ONNX Runtime adds to."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for c in out.graph.initializer:
        if c.data_type == TensorProto.FLOAT16:
            c.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(c).astype(np.float32), c.name))
    for n in out.graph.node:
        if n.op_type == "Cast" and n.attribute[0].i == TensorProto.FLOAT16:
            n.attribute[0].i = TensorProto.FLOAT
    for v in [*out.graph.input, *out.graph.output]:
        if v.type.tensor_type.elem_type == TensorProto.FLOAT16:
            v.type.tensor_type.elem_type = TensorProto.FLOAT
    return out


def in_float32_feed(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in feed.items()}


def reference(model: onnx.ModelProto, feed: dict[str, np.ndarray], device: str) -> list[np.ndarray]:
    """In float32 by ONNX Runtime, without its optimiser, or by a device of ours."""
    if device != "onnxruntime":
        import sardonyx

        ours = sardonyx.compile(in_float32(model), device=device, threads=2)
        return list(ours.run(in_float32_feed(feed)).values())
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # a size that does not suit a graph is expected
    session = onnxruntime.InferenceSession(
        in_float32(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, in_float32_feed(feed))


def error_of(
    model: onnx.ModelProto, seed: int, device: str, against: str = "onnxruntime", precision: str = "fp32"
) -> tuple[float, str]:
    """The largest difference of an output, relative to its largest value or 1, and the output's name.

    A model with symbols is compiled once and runs at several sizes, those where the reference fails excepted.
    """
    import sardonyx

    symbols = {d.dim_param for x in model.graph.input for d in x.type.tensor_type.shape.dim} - {""}
    ours = None
    worst = (0.0, "")
    for sizes in (LANGUAGE_SIZES if "p" in symbols else OTHER_SIZES) if symbols else [{}]:
        feed = feed_of(model, seed, sizes)
        try:
            want = reference(model, feed, against)
        except Exception:
            if symbols:
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
    p.add_argument(
        "--against", default="onnxruntime", help="onnxruntime, or a device, where ONNX Runtime is not installed"
    )
    p.add_argument("--seeds", default="0:200", help="one, or FIRST:END")
    p.add_argument("--kind", default="float", choices=sorted(TOLERANCE))
    p.add_argument("--family", default="networks", choices=["networks", "language"], help="of graphs of floats")
    p.add_argument(
        "--precision", default="fp32", choices=["fp32", "fp16", "bf16"], help="that models of float32 are compiled for"
    )
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
        model = random_model(seed, a.kind, a.symbolic, a.family)
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
