"""Executed wave-instructions and bytes of global memory of small blocks and models on simulated AMD chips (docs/amd-kernels.md).

    python benchmarks/amd_blocks.py [--chips gfx90a gfx1100] [--models DIR] [--only NAME]     # a table in Markdown

DIR: dtln_1.onnx and SqueezeNet_fp16.onnx, and resnet50.onnx and bert_base.onnx with weights (amd_models.py leaves them in
build/amd-models/filled), where there are any; the latter two are compiled in float16. Bytes are those that lanes ask for, from
whatever cache.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

BUILD = Path(__file__).resolve().parent.parent / "build"
CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
#: By block: nodes as (operator, inputs, output, attributes), the shape of x, and the shapes of weights.
BLOCKS: dict[str, tuple[list[Any], list[int], dict[str, list[int]]]] = {
    "softmax 256 x 1024": ([("Softmax", "x", "y", {})], [256, 1024], {}),
    "layer norm by parts, 384 x 768": (
        [
            ("ReduceMean", "x last", "m", {}),
            ("Sub", "x m", "d", {}),
            ("Mul", "d d", "q", {}),
            ("ReduceMean", "q last", "v", {}),
            ("Add", "v e", "w", {}),
            ("Sqrt", "w", "s", {}),
            ("Div", "d s", "n", {}),
            ("Mul", "n g", "t", {}),
            ("Add", "t b", "y", {}),
        ],
        [384, 768],
        {"last": [], "e": [1], "g": [768], "b": [768]},
    ),
    "depthwise 3 x 3 + ReLU, 1 x 32 x 112 x 112": (
        [("Conv", "x f c", "u", {"group": 32, "pads": [1] * 4}), ("Relu", "u", "y", {})],
        [1, 32, 112, 112],
        {"f": [32, 1, 3, 3], "c": [32]},
    ),
    "GEMM 384 x 768 x 3072": ([("MatMul", "x k", "y", {})], [384, 3072], {"k": [3072, 768]}),
    "GEMV 1 x 2048 x 2048": ([("MatMul", "x k", "y", {})], [1, 2048], {"k": [2048, 2048]}),
}


#: Files of models, and the precision that they are compiled in ("fp32": their own).
STORED = {"dtln_1": "fp32", "SqueezeNet_fp16": "fp32", "resnet50": "fp16", "bert_base": "fp16"}
SIZES = {"bert_base": {"batch": 1, "sequence": 64}}


def block(name: str) -> tuple[bytes, dict[str, Any]]:
    """A block's model in float16, and its input."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes, shape, weights = BLOCKS[name]
    made = [helper.make_node(op, i.split(), [o], **attributes) for op, i, o, attributes in nodes]
    tensors = [
        numpy_helper.from_array(
            np.array([-1]) if n == "last" else (np.abs(rng.standard_normal(s)) * 0.5).astype(np.float16), n
        )
        for n, s in weights.items()
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", shape), ("y", None)))
    graph = helper.make_graph(made, "g", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model.SerializeToString(), {"x": rng.standard_normal(shape).astype(np.float16)}


def stored(path: Path, dims: dict[str, int]) -> tuple[bytes, dict[str, Any]]:
    """A model in a file, and random inputs; sizes that `dims` does not name are 1."""
    import numpy as np
    import onnx

    graph, rng, feed = onnx.load(path).graph, np.random.default_rng(0), {}
    weights = {w.name for w in graph.initializer}
    for i in graph.input:
        if i.name not in weights:
            t = i.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
            shape = [d.dim_value or dims.get(d.dim_param, 1) for d in t.shape.dim]
            feed[i.name] = np.abs(rng.standard_normal(shape)).astype(dtype)  # ids of tokens are not negative
    return path.read_bytes(), feed


def counted(model: bytes, feed: dict[str, Any], precision: str, chip: str) -> tuple[int, int]:
    """Wave-instructions and bytes of global memory of one run."""
    sys.path.insert(0, str(BUILD / "python"))
    import sardonyx

    simulator = ctypes.CDLL(str(BUILD / "lib/libamdhip64-sim.so"))
    simulator.sardonyxSimSummary.restype = ctypes.c_char_p
    session = sardonyx.compile(model, device=f"sim:{chip}", precision=precision)
    session.run(feed)  # weights are rearranged before the first run
    simulator.sardonyxSimConfigure(b'{"summary": true}')
    simulator.sardonyxSimResetSummary()
    session.run(feed)
    kernels = json.loads(simulator.sardonyxSimSummary().decode()).values()
    simulator.sardonyxSimConfigure(b'{"summary": false}')
    instructions = sum(sum(k["instructions"].values()) for k in kernels)
    return instructions, sum(k["bytes"]["global_read"] + k["bytes"]["global_written"] for k in kernels)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--chips", nargs="+", choices=CHIPS, default=CHIPS)
    p.add_argument("--models", type=Path)
    p.add_argument("--only", default="", help="rows whose name contains this")
    o = p.parse_args()
    cases = {name: (*block(name), "fp32") for name in BLOCKS if o.only in name}
    for name, precision in STORED.items():
        if o.models and o.only in name and (path := o.models / f"{name}.onnx").exists():
            cases[name] = (*stored(path, SIZES.get(name, {})), precision)
    print("| thousands of instructions / MB | " + " | ".join(o.chips) + " |\n|---|" + "---|" * len(o.chips))
    for name, case in cases.items():
        cells = [counted(*case, chip) for chip in o.chips]
        print(f"| {name} | " + " | ".join(f"{n / 1e3:.0f} / {b / 1e6:.1f}" for n, b in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
