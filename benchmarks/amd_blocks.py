"""Executed wave-instructions and bytes of global memory of small blocks and models on simulated AMD chips (docs/amd-kernels.md).

    python benchmarks/amd_blocks.py [--chips gfx90a gfx1100] [--models DIR]     # a table in Markdown

DIR: dtln_1.onnx and SqueezeNet_fp16.onnx, where there are any. Bytes are those that lanes ask for, from whatever cache.
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
    "GEMV 1 x 2048 x 2048": ([("MatMul", "x k", "y", {})], [1, 2048], {"k": [2048, 2048]}),
}


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


def stored(path: Path) -> tuple[bytes, dict[str, Any]]:
    """A model in a file, and random inputs."""
    import numpy as np
    import onnx

    graph, rng, feed = onnx.load(path).graph, np.random.default_rng(0), {}
    weights = {w.name for w in graph.initializer}
    for i in graph.input:
        if i.name not in weights:
            t = i.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(t.elem_type)
            feed[i.name] = rng.standard_normal([d.dim_value or 1 for d in t.shape.dim]).astype(dtype)
    return path.read_bytes(), feed


def counted(model: bytes, feed: dict[str, Any], chip: str) -> tuple[int, int]:
    """Wave-instructions and bytes of global memory of one run."""
    sys.path.insert(0, str(BUILD / "python"))
    import sardonyx

    simulator = ctypes.CDLL(str(BUILD / "lib/libamdhip64-sim.so"))
    simulator.sardonyxSimSummary.restype = ctypes.c_char_p
    session = sardonyx.compile(model, device=f"sim:{chip}")
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
    o = p.parse_args()
    cases = {name: block(name) for name in BLOCKS}
    for name in ("dtln_1", "SqueezeNet_fp16"):
        if o.models and (path := o.models / f"{name}.onnx").exists():
            cases[name] = stored(path)
    print("| thousands of instructions / MB | " + " | ".join(o.chips) + " |\n|---|" + "---|" * len(o.chips))
    for name, (model, feed) in cases.items():
        cells = [counted(model, feed, chip) for chip in o.chips]
        print(f"| {name} | " + " | ".join(f"{n / 1e3:.0f} / {b / 1e6:.1f}" for n, b in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
