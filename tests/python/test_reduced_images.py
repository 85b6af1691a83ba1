"""Reductions over one dim of a convolution's result, which has its channels last in memory."""

import numpy as np
import onnx.parser
import pytest
import sardonyx

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
g (float16[n, 8, 30, 20] x, float16[24, 8, 1, 1] w) => (float16[n, 30, 24] y, float16[n, 30, 30] z) {
  c = Conv (x, w)
  last = Constant <value_ints = [3]> ()
  m = ReduceMax <keepdims = 0> (c, last)
  y = Transpose <perm = [0, 2, 1]> (m)
  s = Sigmoid (m)
  t = Transpose <perm = [0, 2, 1]> (s)
  z = MatMul (t, m)
}"""


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
def test_values(device):
    g = np.random.default_rng(0)
    x, w = (g.standard_normal(s).astype(np.float16) for s in [(2, 8, 30, 20), (24, 8, 1, 1)])
    got = sardonyx.compile(onnx.parser.parse_model(TEXT), device=device).run({"x": x, "w": w})
    m = np.einsum("nchw,kc->nkhw", x.astype(np.float32), w[:, :, 0, 0].astype(np.float32)).max(3)
    np.testing.assert_allclose(got["y"], m.transpose(0, 2, 1), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(got["z"], (1 / (1 + np.exp(-m))).transpose(0, 2, 1) @ m, rtol=1e-2, atol=1e-2)
