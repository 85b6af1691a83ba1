"""Sessions of ONNX Runtime with the provider, on the host in place of a GPU, and small models for them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

os.environ["SARDONYX_DEVICE"] = "host"  # read when the library is registered

import onnxruntime as ort

NAME = "AMDGPUExecutionProvider"
VERSION = tuple(map(int, ort.__version__.split(".")[:2]))
# Of tests that measure memory.
SANITIZED = pytest.mark.skipif(
    "san.so" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps memory that is freed"
)


def session(model, devices, options=None, fallback=False, **config):
    so = ort.SessionOptions()
    so.log_severity_level = 3
    if not fallback:
        so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in config.items():
        so.add_session_config_entry(key.replace("__", "."), value)
    so.add_provider_for_devices(devices[:1], options or {})
    # Else the Python package tries once more with the CPU provider alone, and hides the reason.
    return ort.InferenceSession(model.SerializeToString(), so, enable_fallback=0)


def model(nodes, inputs, outputs, weights=(), opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def dense(seed=0):
    w = np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    return w, model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["n", 4])], [("w", w)])


def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 8)).astype(np.float32)


def run_python(code, **environment):
    env = {k: v for k, v in os.environ.items() if k != "SARDONYX_DEVICE"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
