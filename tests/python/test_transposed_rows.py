"""Softmax of scores whose last dim are heads, of which a product reads each head's matrix (graph attention)."""

import numpy as np
import onnx.parser
import pytest
import sardonyx

TEXT = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b, 40, 4] left, float[b, 40, 4] right, float[b, 40, 40] edges, float[b, 40, 4, 16] h) => (float[b, 40, 4, 16] y) {
  one = Constant <value_ints = [1]> ()
  two = Constant <value_ints = [2]> ()
  three = Constant <value_ints = [3]> ()
  zero = Constant <value = float {0}> ()
  least = Constant <value = float {-10000}> ()
  a = Unsqueeze (left, two)
  c = Unsqueeze (right, one)
  s = Add (a, c)
  e = Unsqueeze (edges, three)
  none = LessOrEqual (e, zero)
  m = Where (none, least, s)
  p = Softmax <axis = 2> (m)
  y = Einsum <equation = "bijh,bjhd->bihd"> (p, h)
}"""


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_values(device, precision):
    g = np.random.default_rng(0)
    left, right, edges, h = (
        g.standard_normal(s).astype(np.float32) for s in [(2, 40, 4), (2, 40, 4), (2, 40, 40), (2, 40, 4, 16)]
    )
    model = sardonyx.compile(onnx.parser.parse_model(TEXT), device=device, precision=precision)
    s = np.where(edges[..., None] <= 0, -10000, left[:, :, None] + right[:, None])
    p = np.exp(s - s.max(2, keepdims=True))
    want = np.einsum("bijh,bjhd->bihd", p / p.sum(2, keepdims=True), h)
    got = model.run({"left": left, "right": right, "edges": edges, "h": h})["y"]
    np.testing.assert_allclose(got, want, atol=1e-5 if precision == "fp32" else 5e-3)
