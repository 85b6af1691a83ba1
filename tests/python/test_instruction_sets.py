"""ONEDNN_MAX_CPU_ISA limits the library's own kernels and generated code as it does oneDNN."""

import os
import platform
import subprocess
import sys

import pytest
from cli_support import sardonyx as command

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the limits are those of x86-64")

MODEL = """
import numpy as np, onnx.helper as h, sardonyx
nodes = [h.make_node("MatMul", ["x", "w"], ["y"]), h.make_node("Tanh", ["y"], ["z"])]
value = lambda n: h.make_tensor_value_info(n, 1, ["n", "n"])
x, w = np.random.default_rng(0).standard_normal((2, 65, 65)).astype(np.float32)
model = sardonyx.compile(h.make_model(h.make_graph(nodes, "g", [value("x"), value("w")], [value("z")])))
# 65 products in another order, and tanh within some units of the last place.
assert np.abs(model.run({"x": x, "w": w})["z"] - np.tanh(x @ w)).max() < 1e-4
"""


@pytest.mark.parametrize("limit, without", [("AVX2", ["avx512f"]), ("SSE41", ["avx512f", "avx2"])])
def test_limits(limit, without):
    shown = command("devices", ONEDNN_MAX_CPU_ISA=limit)
    assert not any(feature in shown for feature in without), shown
    subprocess.run([sys.executable, "-c", MODEL], check=True, env=os.environ | {"ONEDNN_MAX_CPU_ISA": limit})
