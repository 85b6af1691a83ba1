"""The plugin execution provider in ONNX Runtime, on the host in the place of a card: claims, runs, refuses."""

import os

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

os.environ["SARDONYX_DEVICE"] = "host"  # read when the library is registered

import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep

NAME = "AMDGPUExecutionProvider"


@pytest.fixture(scope="module")
def devices():
    return ep.register()


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


def test_offers_a_device_with_the_name_from_top_to_bottom(devices):
    assert ep.get_ep_name() == NAME
    assert os.path.basename(ep.get_library_path()) == "libamdgpu-ep.so"
    assert [d.ep_name for d in devices] == [NAME]
    assert devices[0].ep_metadata["device"] == "host"


def test_runs_whole_models_of_all_sizes(devices):
    w, m = dense()
    s = session(m, devices)
    for n in (1, 3, 130):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        # Sums of eight terms in another order.
        np.testing.assert_allclose(s.run(None, {"x": x})[0], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)


def test_claims_what_lies_around_a_node_that_it_does_not_run(devices):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Optional", ["a"], ["o"]),
        helper.make_node("OptionalGetElement", ["o"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    m = model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["n", 8])])
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_array_equal(session(m, devices, fallback=True).run(None, {"x": x})[0], -np.maximum(x, 0))
    with pytest.raises(Exception, match="fallback"):
        session(m, devices)


def test_an_unknown_option_is_an_error_that_names_the_nearest(devices):
    with pytest.raises(Exception, match="'gpu_mem_limt'.*'gpu_mem_limit'"):
        session(dense()[1], devices, {"gpu_mem_limt": "1"})
