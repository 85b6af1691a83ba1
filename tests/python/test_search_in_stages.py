"""ArgMin and ArgMax in a kernel with other reductions of the row, over another number of elements: the team searches together."""

import numpy as np
import onnx
import onnx.parser
import pytest
import sardonyx
from cli_support import sardonyx as cli


def model(dtype, n, operator, last):
    """The distances of vectors to those of a codebook, |x|^2 + |w|^2 - 2 x w, and the nearest one, as in a VQ-VAE."""
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
g ({dtype}[m, 40] x, {dtype}[{n}] w, {dtype}[m, {n}] p) => (int64[m] y) {{
  one = Constant <value_ints = [1]> ()
  xx = Mul (x, x)
  s = ReduceSum <keepdims = 1> (xx, one)
  sw = Add (s, w)
  d = Sub (sw, p)
  y = {operator} <axis = 1, keepdims = 0, select_last_index = {last}> (d)
}}""")


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n", [7, 300, 512])
def test_values(device, dtype, n):
    g = np.random.default_rng(0)
    x, w, p = (g.integers(-3, 4, s).astype(dtype) for s in [(9, 40), (n,), (9, n)])  # ties, and sums without rounding
    p[3, n // 2 :] = np.nan
    name = "float" if dtype == np.float32 else "float16"
    d = (x * x).sum(1, keepdims=True) + w - p
    for operator, of in [("ArgMin", np.argmin), ("ArgMax", np.argmax)]:
        got = sardonyx.compile(model(name, n, operator, 0), device=device).run({"x": x, "w": w, "p": p})["y"]
        np.testing.assert_array_equal(got, of(d, 1))
        got = sardonyx.compile(model(name, n, operator, 1), device=device).run({"x": x, "w": w, "p": p})["y"]
        rows = np.arange(9) != 3  # numpy has no last index; NaN
        np.testing.assert_array_equal(got[rows], n - 1 - of(d[rows, ::-1], 1))


def test_the_team_searches(tmp_path):
    onnx.save(model("float", 512, "ArgMin", 0), tmp_path / "m.onnx")
    options = ["--kernels", "--source", "--device", "sim:gfx942", "--cache-dir", tmp_path]
    assert "reduce_team(r_" in (text := cli("inspect", tmp_path / "m.onnx", *options)) and "better_next" in text
