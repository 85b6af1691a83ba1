"""Models with 8-bit products, as files without their weights, for quantized_gemm.py. Needs onnx; the machine that
measures does not.

    python benchmarks/quantized_cases.py cases DIR
    python benchmarks/quantized_cases.py model DIR MODEL.onnx NAME
    python benchmarks/quantized_cases.py llama DIR [--layers 8]

`cases` writes single products and convolutions. `model` writes a whole model, which `sardonyx quantize` has made or which is
in float32, with its large weights replaced by references to a file that quantized_gemm.py fills with random values. `llama` writes a prompt of 2048 tokens
through the layers of a Llama of 1 B parameters, in float32 and in float8.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from quantized_gemm import REPEATS
from quantized_specs import CHAINS, CONVOLUTIONS, PAIRS, PRODUCTS, Spec

TYPES = {
    "fp8": TensorProto.FLOAT8E4M3FN,
    "int8": TensorProto.INT8,
    "fp16": TensorProto.FLOAT16,
    "fp32": TensorProto.FLOAT,
}
SIZES = {TensorProto.FLOAT8E4M3FN: 1, TensorProto.INT8: 1, TensorProto.FLOAT16: 2, TensorProto.FLOAT: 4}
LEAST_ELEMENTS = 4096  # smaller weights of whole models stay in the file


class Writer:
    """A graph, and the weights that are filled in later."""

    def __init__(self, directory: pathlib.Path, name: str, kind: str):
        self.directory, self.name, self.kind = directory, name, kind
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.fills: list[dict[str, Any]] = []
        self.bytes = 0

    def node(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [out], **attributes))
        return out

    def weight(self, name: str, shape: list[int], type_: int, fill: str) -> str:
        t = TensorProto(name=name, data_type=type_, dims=shape)
        length = math.prod(shape) * SIZES[type_]
        t.raw_data = b""
        t.data_location = TensorProto.EXTERNAL
        for key, value in {"location": f"{self.name}.bin", "offset": self.bytes, "length": length}.items():
            t.external_data.add(key=key, value=str(value))
        self.constants.append(t)
        self.fills.append({"name": name, "shape": shape, "type": TensorProto.DataType.Name(type_), "fill": fill})
        self.bytes += length
        return name

    def zero(self, name: str, value: int) -> str:
        raw = np.asarray(value, np.int8).tobytes()  # of float8 only 0, which has no bits
        self.constants.append(helper.make_tensor(name, TYPES[self.kind], [], raw, raw=True))
        return name

    def scale(self, name: str, value: float) -> str:
        self.constants.append(numpy_helper.from_array(np.float32(value), name))
        return name

    def quantized(self, x: str, name: str, scale: float, zero: int = 0) -> str:
        """x, quantised and dequantised."""
        pair = [self.scale(f"s_{name}", scale), self.zero(f"z_{name}", zero)]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [x, *pair]), *pair])

    def dequantized(self, name: str, shape: list[int], axis: int, fill: str = "small") -> str:
        """Weights with a scale for each output channel."""
        self.weight(name, shape, TYPES[self.kind], fill)
        scales = self.weight(f"s_{name}", [shape[axis]], TensorProto.FLOAT, "scales")
        return self.node("DequantizeLinear", [name, scales], axis=axis)

    def write(
        self, inputs: list[tuple[str, int, list[int]]], outputs: list[tuple[str, int]], opset: int = 21
    ) -> dict[str, Any]:
        for k, (value, _) in enumerate(outputs):
            self.nodes.append(helper.make_node("Identity", [value], [f"y{k}"]))
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(*i) for i in inputs],
            [helper.make_tensor_value_info(f"y{k}", type_, None) for k, (_, type_) in enumerate(outputs)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        (self.directory / f"{self.name}.onnx").write_bytes(model.SerializeToString())
        return {"name": self.name, "kind": self.kind, "fills": self.fills}


def finished(w: Writer, y: str, s: Spec, channels: int, shape: list[int]) -> str:
    y = w.node("Add", [y, w.weight("bias", shape, TensorProto.FLOAT, "biases")]) if channels else y
    if s.relu:
        y = w.node("Relu", [y])
    return w.quantized(y, "y", s.sy, s.zy) if s.rounds else y


def product(directory: pathlib.Path, name: str, s: Spec) -> dict[str, Any]:
    """x [batch, m, k] times weights, or with two activations x times the transpose of y [batch, n, k]."""
    w = Writer(directory, name, s.kind)
    batch = [s.batch] if s.batch else []
    x = w.quantized("x", "x", s.sx, s.zx)
    inputs = [("x", TensorProto.FLOAT, [*batch, s.m, s.k])]
    if s.batch:
        inputs.append(("w", TensorProto.FLOAT, [*batch, s.n, s.k]))
        right = w.node("Transpose", [w.quantized("w", "w", s.sx)], perm=[0, 2, 1])
        y = w.node("MatMul", [x, right])
    else:
        y = w.node("MatMul", [x, w.dequantized("w", [s.k, s.n], 1)])
    y = finished(w, y, s, 0 if s.batch else s.n, [s.n])
    return w.write(inputs, [(y, TensorProto.FLOAT)])


def convolution(directory: pathlib.Path, name: str, s: Spec) -> dict[str, Any]:
    w = Writer(directory, name, s.kind)
    x = w.quantized("x", "x", s.sx, s.zx)
    weights = w.dequantized("w", [s.n, s.k, s.taps, s.taps], 0)
    y = w.node("Conv", [x, weights], strides=[s.stride] * 2, pads=[s.pad] * 4, dilations=[s.dilation] * 2)
    y = finished(w, y, s, s.n, [s.n, 1, 1])
    return w.write([("x", TensorProto.FLOAT, [s.m, s.k, *s.size])], [(y, TensorProto.FLOAT)])


def timed(directory: pathlib.Path, name: str, kind: str, m: int, k: int, n: int, rounds: bool) -> dict[str, Any]:
    """REPEATS of one product on different tensors. The inputs have 8 bits already; results have 8 or 16."""
    w = Writer(directory, name, kind)
    inputs, outputs = [], []
    for i in range(REPEATS):
        inputs.append((f"x{i}", TYPES[kind], [m, k]))
        if kind == "fp16":
            y = w.node("MatMul", [f"x{i}", w.weight(f"w{i}", [k, n], TensorProto.FLOAT16, "normal")])
        else:
            x = w.node("DequantizeLinear", [f"x{i}", w.scale(f"s{i}", 0.05)])
            y = w.node("MatMul", [x, w.dequantized(f"w{i}", [k, n], 1, "normal")])
        if rounds and kind != "fp16":
            y = w.node("QuantizeLinear", [y, w.scale(f"r{i}", 0.3), w.zero(f"z{i}", 0)])
            outputs.append((y, TYPES[kind]))
        else:
            y = y if kind == "fp16" else w.node("Cast", [y], to=TensorProto.FLOAT16)
            outputs.append((y, TensorProto.FLOAT16))
    about = w.write(inputs, outputs)
    return {**about, "m": m, "k": k, "n": n, "inputs": [i[0] for i in inputs]}


def cases(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, Any] = {"products": {}, "convolutions": {}, "timed": {}}
    for kind in ("fp8", "int8"):
        for k, s in enumerate(PRODUCTS):
            name = f"product-{kind}-{k}"
            manifest["products"][name] = product(directory, name, s.of(kind)) | {"spec": k}
        for k, s in enumerate(PAIRS):
            name = f"pair-{kind}-{k}"
            manifest["products"][name] = product(directory, name, s.of(kind)) | {"spec": k}
        for k, s in enumerate(CONVOLUTIONS):
            name = f"convolution-{kind}-{k}"
            manifest["convolutions"][name] = convolution(directory, name, s.of(kind)) | {"spec": k}
    for case, (m, k, n) in CHAINS.items():
        for kind, rounds in (("fp16", False), ("fp8", False), ("fp8", True), ("int8", True)):
            name = f"timed-{case.replace(' ', '-')}-{kind}{'-8' if rounds else ''}"
            manifest["timed"][name] = timed(directory, name, kind, m, k, n, rounds) | {"case": case, "rounds": rounds}
    (directory / "cases.json").write_text(json.dumps(manifest))


def llama(directory: pathlib.Path, kind: str, layers: int, tokens: int = 2048, width: int = 2048) -> None:
    """Without embeddings and the projection to logits; the scales of activations are made up."""
    name, heads, kv_heads, size, inner = f"llama_{kind}", 32, 8, 64, 8192
    directory.mkdir(parents=True, exist_ok=True)
    w = Writer(directory, name, kind)
    weights = 0

    def linear(x: str, columns: int, rows: int = width) -> str:
        nonlocal weights
        weights += 1
        if kind == "fp32":
            return w.node("MatMul", [x, w.weight(f"w{weights}", [rows, columns], TensorProto.FLOAT, "small normal")])
        return w.node("MatMul", [x, w.dequantized(f"w{weights}", [rows, columns], 1, "normal")])

    def rounded(x: str) -> str:
        return x if kind == "fp32" else w.quantized(x, f"a{len(w.nodes)}", 0.02)

    def norm(x: str) -> str:
        gain = w.weight(f"g{len(w.nodes)}", [width], TensorProto.FLOAT, "ones")
        return rounded(w.node("RMSNormalization", [x, gain], epsilon=1e-5))

    cache = [w.weight(n, [1, tokens, size // 2], TensorProto.FLOAT, "ones") for n in ("cos", "sin")]
    x = "x"
    for _ in range(layers):
        h = norm(x)
        q, k = (w.node("RotaryEmbedding", [linear(h, n * size), *cache], num_heads=n) for n in (heads, kv_heads))
        a = w.node(
            "Attention", [q, k, linear(h, kv_heads * size)], is_causal=1, q_num_heads=heads, kv_num_heads=kv_heads
        )
        x = w.node("Add", [x, linear(rounded(a), width)])
        h = norm(x)
        gate = linear(h, inner)
        gated = w.node("Mul", [w.node("Mul", [gate, w.node("Sigmoid", [gate])]), linear(h, inner)])
        x = w.node("Add", [x, linear(rounded(gated), width, inner)])
    about = w.write([("x", TensorProto.FLOAT, [1, tokens, width])], [(x, TensorProto.FLOAT)], opset=23)
    (directory / f"{name}.json").write_text(json.dumps(about))


def model(directory: pathlib.Path, path: pathlib.Path, name: str) -> None:
    """Strips a model of its large weights."""
    directory.mkdir(parents=True, exist_ok=True)
    m = onnx.load(path)
    fills, offset = [], 0
    for t in m.graph.initializer:
        if t.data_type not in SIZES or math.prod(t.dims) < LEAST_ELEMENTS:
            continue
        values = external_data_helper.uses_external_data(t) or t.raw_data
        array = numpy_helper.to_array(t).astype(np.float32) if values else np.zeros(1)
        length = math.prod(t.dims) * SIZES[t.data_type]
        fills.append(
            {
                "name": t.name,
                "shape": list(t.dims),
                "type": TensorProto.DataType.Name(t.data_type),
                "fill": "like",
                "mean": float(array.mean()),
                "deviation": float(array.std()),
            }
        )
        kept = TensorProto(name=t.name, data_type=t.data_type, dims=t.dims, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": f"{name}.bin", "offset": offset, "length": length}.items():
            kept.external_data.add(key=key, value=str(value))
        t.CopyFrom(kept)
        offset += length
    (directory / f"{name}.onnx").write_bytes(m.SerializeToString())
    (directory / f"{name}.json").write_text(json.dumps({"name": name, "fills": fills}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("cases", help="single products and convolutions")
    p.add_argument("directory", type=pathlib.Path)
    p = commands.add_parser("model", help="a whole model")
    p.add_argument("directory", type=pathlib.Path)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("name", help="of the files that are written")
    p = commands.add_parser("llama", help="layers of a Llama of 1 B parameters")
    p.add_argument("directory", type=pathlib.Path)
    p.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    if options.command == "cases":
        cases(options.directory)
    elif options.command == "llama":
        for kind in ("fp32", "fp8"):
            llama(options.directory, kind, options.layers)
    else:
        model(options.directory, options.model, options.name)


if __name__ == "__main__":
    main()
