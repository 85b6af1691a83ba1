"""Shared by the tests of the command line: running it, and small models."""

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("SARDONYX_BUILD", ROOT / "build"))
SARDONYX = BUILD / "bin" / "sardonyx"

# ErrorKind of include/sardonyx/error.h
INVALID_ARGUMENT, INVALID_MODEL, UNSUPPORTED, IO, DEVICE, MISMATCH = 2, 3, 4, 5, 7, 8


def sardonyx(*arguments, code=0, env=None, cwd=None, **variables):
    """Runs the command line; returns its stdout, or with a `code` with which it must fail, its one line on stderr."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SARDONYX_")} | variables
    done = subprocess.run(
        [str(SARDONYX), *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, timeout=300
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    if code == 0:
        assert done.stderr == ""
        return done.stdout
    assert done.stderr.startswith("sardonyx: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def save(path, nodes, inputs, outputs, initializers=(), opset=17, **options):
    """Writes a model; inputs and outputs are (name, TensorProto type, shape)."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in initializers],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **options)
    model.ir_version = 8
    onnx.save(model, path)
    return path


def layer(path, scale=1.0):
    """y = relu(x w + b) with x [batch, 4], w [4, 3], and total = the sum over dim 1 of y."""
    rng = np.random.default_rng(0)
    w = (scale * rng.standard_normal((4, 3))).astype(np.float32)
    b = rng.standard_normal(3).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Add", ["product", "b"], ["sum"], name="bias"),
        helper.make_node("Relu", ["sum"], ["y"], name="activation"),
        helper.make_node("ReduceSum", ["y", "axes"], ["total"], name="total", keepdims=0),
    ]
    save(
        path,
        nodes,
        [("x", TensorProto.FLOAT, ["batch", 4])],
        [("y", TensorProto.FLOAT, ["batch", 3]), ("total", TensorProto.FLOAT, ["batch"])],
        [("w", w), ("b", b), ("axes", np.array([1], np.int64))],
    )
    return path, w, b
