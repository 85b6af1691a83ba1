"""Kernels of CDNA have their first arguments in scalar registers. Firmware that does not put them there runs instructions that load them,
which LLVM puts before the kernel: results must be the same."""

import ctypes

import numpy as np
import pytest
import sardonyx
from cli_support import BUILD
from onnx import TensorProto, helper, numpy_helper
from simulated import counted


def configure(text):
    simulator = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so")
    assert simulator.sardonyxSimConfigure(text.encode()) == 0


@pytest.fixture
def without_preloading():
    """Registers that nothing has written are faults: an argument that is not loaded cannot go unnoticed."""
    configure('{"preload_arguments": false, "check_uninitialized": true}')
    yield
    configure('{"preload_arguments": true, "check_uninitialized": false}')


def model_of(nodes, shape, weights):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", shape), ("y", None)))
    tensors = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def small(*shape):
    """Integers: sums of their products are exact in float16."""
    return np.random.default_rng(len(shape)).integers(-2, 3, shape).astype(np.float16)


def product(m, n, k):
    return model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [m, k], {"w": small(k, n)}), small(m, k)


def convolution():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["u"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["u"], ["y"]),
    ]
    return model_of(nodes, [2, 16, 9, 9], {"w": small(32, 16, 3, 3), "b": small(32)}), small(2, 16, 9, 9)


def softmax():
    nodes = [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("Add", ["s", "b"], ["y"])]
    return model_of(nodes, [64, 96], {"b": small(96)}), small(64, 96)


#: Tiles, split-K (its counters are an argument as well), a matrix-vector kernel, a convolution, and a kernel without matrix instructions.
CASES = {
    "product": lambda: product(96, 80, 64),
    "long product": lambda: product(64, 64, 4096),
    "row": lambda: product(1, 256, 512),
    "convolution": convolution,
    "softmax": softmax,
}


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("case", CASES)
def test_firmware_without_preloading(case, chip, without_preloading):
    model, x = CASES[case]()
    host = sardonyx.compile(model.SerializeToString(), device="host").run({"x": x})["y"]
    if case == "convolution":
        host = np.rint(host)  # Winograd's transforms round; the sums are integers
    session = sardonyx.compile(model.SerializeToString(), device=f"sim:{chip}")
    got = session.run({"x": x})["y"]
    np.testing.assert_allclose(got, host, rtol=0, atol=1e-3 if case == "softmax" else 0)  # an ulp of 1: exp2 differs
    with counted() as loading:
        session.run({"x": x})
    configure('{"preload_arguments": true}')
    with counted() as preloaded:
        np.testing.assert_array_equal(session.run({"x": x})["y"], got)
    # Else the option, or preloading, has no effect.
    assert loading["scalar_memory"] > preloaded.get("scalar_memory", 0)
