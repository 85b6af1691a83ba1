"""ONNX's node tests through ONNX Runtime with the provider first and the CPU provider forbidden: claimed nodes must give correct results, and
no node that the library supports may be left to the CPU. One case in ten unless --full is given.

    SARDONYX_TEST_DEVICE=sim:gfx1100 .venv/bin/python -m pytest -q -n 2 --full tests/python/test_ep_nodes.py

runs all of it on another device; a few cases on that simulated GPU are always run."""

import os
import re
import subprocess
import sys
import unittest
import warnings

import numpy as np
import pytest

# Read when the library is registered.
os.environ["SARDONYX_DEVICE"] = os.environ.get("SARDONYX_TEST_DEVICE") or "host"
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"  # so that ONNX Runtime takes models of the newest operator set

import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep

MAX_IR = 11  # what the oldest tested runtime reads; the format did not change in what these models use
OPSETS = 27  # ONNX Runtime 1.31 reads operator sets below

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # onnx's test cases overflow on purpose while they are being built
    from onnx.backend.base import Backend, BackendRep
    from onnx.backend.test import BackendTest
    from test_onnx_backend import KWARGS, NOT_RUN

    class Rep(BackendRep):
        def __init__(self, session):
            self.session = session

        def run(self, inputs, **kwargs):
            names = [i.name for i in self.session.get_inputs()]
            return self.session.run(None, dict(zip(names, map(np.asarray, inputs))))

    class Provider(Backend):
        @classmethod
        def is_compatible(cls, model, device="CPU", **kwargs):
            return True

        @classmethod
        def supports_device(cls, device):
            return device == "CPU"

        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            if any(o.domain in ("", "ai.onnx") and o.version >= OPSETS for o in model.opset_import):
                raise unittest.SkipTest("ONNX Runtime does not read this operator set yet")
            model.ir_version = min(model.ir_version, MAX_IR)
            options = ort.SessionOptions()
            options.log_severity_level = 4
            # Constant folding would leave nothing to run of many tests.
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
            options.add_provider_for_devices(ep.register()[:1], {})
            return Rep(ort.InferenceSession(model.SerializeToString(), options, enable_fallback=0))

    SUITE = BackendTest(Provider, __name__, test_kwargs=KWARGS)

# What does not get as far as the provider, or can't come back from it through onnxruntime's Python package.
RUNTIME = [
    (r"^test_castlike_", "onnxruntime's Python package takes no arrays of these element types"),
    (r"bf16|bfloat16", "onnxruntime's Python package takes no arrays of bfloat16"),
    (
        r"(FLOAT8|FLOAT4|INT4|INT2|float8|float4|int4|int2|e4m3fn|e5m2|E8M0)",
        "onnxruntime's Python package takes no arrays of these types",
    ),
    (r"^test_flexattention", "ONNX Runtime does not have the operator's domain"),
    (r"^test_attention_.*(window|ext_cache)", "ONNX Runtime does not know these attributes yet"),
    (r"^test_affine_grid_3d.*_expanded", "a list of sizes whose length is computed; refused, with the reason"),
]


def _cases():
    case = SUITE.test_cases["OnnxBackendNodeModelTest"]
    for name in [n for n in dir(case) if n.startswith("test_")]:
        if name.endswith("_cuda"):  # the same tests for another device
            delattr(case, name)
            continue
        for pattern, reason in NOT_RUN + RUNTIME:
            if re.search(pattern, name):
                setattr(case, name, unittest.skip(reason)(getattr(case, name)))
                break
    return pytest.mark.slow(case)


TestNodes = _cases()

PART = "matmul_2d_cpu or conv_with_strides or softmax_axis_1 or top_k_cpu or lstm_defaults or gather_0 or if_cpu or loop11 or resize_downsample"


@pytest.mark.skipif(os.environ["SARDONYX_DEVICE"] != "host", reason="all of it runs on another device")
def test_a_part_on_a_simulated_card():
    """In a separate process: ONNX Runtime asks for devices once."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--full", "-k", PART, __file__]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"SARDONYX_TEST_DEVICE": "sim:gfx1100"}
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= 15, done.stdout
