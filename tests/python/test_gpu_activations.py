"""Activations behind matrix products, on simulated AMD GPUs, in 16 bits: as accurate as these can hold."""

import math

import numpy as np
import pytest
import sardonyx
from onnx import helper, numpy_helper
from test_gpu_gemm import CHIPS, FLOAT, HALF, model


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("form", ["tanh", "erf"])
def test_gelu_of_a_product_in_16_bits_keeps_small_results(chip, form):
    # Far below zero 1 + tanh and 1 + erf would cancel, if they were not one function.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((33, 32)).astype(np.float16)
    w = np.eye(32, dtype=np.float32)  # so that the arguments are exact
    x[0] = np.linspace(-4, 4, 32)
    one, half = numpy_helper.from_array(np.float32(1), "one"), numpy_helper.from_array(np.float32(0.5), "half")
    z = x.astype(np.float64)
    if form == "tanh":
        inner = [
            helper.make_node("Mul", ["m", "m"], ["m2"]),
            helper.make_node("Mul", ["m2", "m"], ["m3"]),
            helper.make_node("Mul", ["m3", "c"], ["m4"]),
            helper.make_node("Add", ["m", "m4"], ["u"]),
            helper.make_node("Mul", ["u", "s"], ["v"]),
            helper.make_node("Tanh", ["v"], ["f"]),
        ]
        factor, scale = 0.044715, 0.7978845608028654
        want = z / (1 + np.exp(-2 * scale * (z + factor * z**3)))
    else:
        inner = [helper.make_node("Mul", ["m", "s"], ["v"]), helper.make_node("Erf", ["v"], ["f"])]
        factor, scale = 0.0, 0.7071067811865476
        want = np.array([0.5 * v * math.erfc(-v * scale) for v in z.ravel()]).reshape(z.shape)
    nodes = [
        helper.make_node("Cast", ["x"], ["xf"], to=FLOAT),
        helper.make_node("MatMul", ["xf", "w"], ["m"]),
        *inner,
        helper.make_node("Add", ["f", "one"], ["g"]),
        helper.make_node("Mul", ["m", "half"], ["h"]),
        helper.make_node("Mul", ["h", "g"], ["yf"]),
        helper.make_node("Cast", ["yf"], ["y"], to=HALF),
    ]
    constants = [one, half, numpy_helper.from_array(w, "w")]
    constants += [numpy_helper.from_array(np.float32(v), n) for n, v in (("c", factor), ("s", scale))]
    m = model(nodes, [("x", HALF, ["n", 32])], ("y", HALF), constants)
    got = sardonyx.compile(m, device=f"sim:{chip}", precision="fp16").run({"x": x})["y"].astype(np.float64)
    # One rounding to float16, of which small results have less precision. x^3 and its sum in float32: 2^-20. The
    # polynomial of erf has absolute errors below 2^-20, which are multiplied by up to 2.
    np.testing.assert_allclose(got, want, rtol=2.0**-11 + 2.0**-20, atol=2.0**-24 if form == "tanh" else 2.0**-19)
