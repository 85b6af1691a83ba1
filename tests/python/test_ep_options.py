"""What options of ONNX Runtime's provider do, where no other test shows it; docs/provider-migration.md lists the tests."""

import os

import numpy as np
import onnxruntime_ep_sardonyx as ep
import pytest
from ep_sessions import dense, model, rows, run_python, session
from onnx import TensorProto, helper


@pytest.fixture(scope="module")
def devices():
    return ep.register()


def check(s, w):
    np.testing.assert_allclose(s.run(None, {"x": rows(3)})[0], np.maximum(rows(3) @ w, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("off", ["0", "1"])
def test_disable_caching(devices, tmp_path, off):
    # A loop that no other session has compiled.
    nodes = [helper.make_node("Pow", ["x", "k"], ["p"]), helper.make_node("Sin", ["p"], ["y"])]
    k = np.float32([40.5 + int(off)])
    m = model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["n", 8])], [("k", k)])
    s = session(m, devices, {"cache_dir": str(tmp_path), "disable_caching": off})
    x = np.abs(rows(3)) / 4
    np.testing.assert_allclose(s.run(None, {"x": x})[0], np.sin(x**k), rtol=1e-4, atol=1e-6)
    assert any(tmp_path.rglob("*")) == (off == "0")


@pytest.mark.parametrize("allowed", ["0", "1"])
def test_tuning_can_be_forbidden(devices, tmp_path, allowed):
    """tunable_op_tuning_enable of 0 wins over exhaustive_tune."""
    w, m = dense()
    options = {"device": "sim:gfx942", "cache_dir": str(tmp_path), "exhaustive_tune": "1", "tunable_op_enable": "1"}
    s = session(m, devices, options | {"tunable_op_tuning_enable": allowed})
    check(s, w)
    assert any(tmp_path.rglob("tuning-2.sqlite")) == (allowed == "1")


def test_dump_model_ops(tmp_path):
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
os.chdir({str(tmp_path)!r})
import onnxruntime_ep_sardonyx as ep
from ep_sessions import dense, session
session(dense()[1], ep.register(), {{"dump_model_ops": "1"}})
"""
    run_python(code, SARDONYX_DEVICE="host")
    assert len(list(tmp_path.glob("*.onnx"))) == len(list(tmp_path.glob("*.txt"))) == 1
