"""Long reductions on simulated AMD GPUs, which are computed in parts: softmax, norms, statistics of images, in every order of dims."""

import numpy as np
import pytest
import sardonyx
from simulated_loops import CHIPS, compare, parse, rand


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("length", [40000, 50257])
def test_softmax_of_few_long_rows(chip, length):
    """Rows of parts of equal length and of others; with infinities and what is not a number in some of them."""
    text = f"""g (float[6, {length}] x) => (float[6, {length}] y, float[6, {length}] z, float[6, 1] s) {{
      y = Softmax <axis = -1> (x)
      z = LogSoftmax <axis = -1> (x)
      s = ReduceLogSumExp <axes = [1]> (x)
    }}"""
    x = rand(np.float32, 6, length)
    x[1, : length // 2] = -np.inf  # whole parts
    x[2] = -np.inf
    x[3, 7] = np.inf
    x[4, length - 1] = np.nan
    x[5] += 80  # the sum of exponentials would overflow
    host = sardonyx.compile(parse(text, opset=13)).run({"x": x})
    device = sardonyx.compile(parse(text, opset=13), device=f"sim:{chip}")
    got = device.run({"x": x})
    for name in ("y", "z"):
        np.testing.assert_allclose(got[name], host[name], rtol=1e-4, atol=1e-7, err_msg=name)
    assert np.isnan(got["y"][2:5]).all() and np.isfinite(got["y"][[0, 1, 5]]).all()
    wide = x[[0, 1, 5]].astype(np.float64)
    want = np.log(np.exp(wide).sum(1, keepdims=True))
    np.testing.assert_allclose(got["s"][[0, 1, 5]], want, rtol=1e-5)


@pytest.mark.parametrize("chip", CHIPS)
def test_sums_of_exponentials_of_infinities(chip):
    """The maximum that is subtracted is made finite, as exporters do: parts that are infinite stay so."""
    text = """g (float[4, 40000] x) => (float[4, 1] s) {
      axes = Constant <value = int64[1] {1}> ()
      top = Constant <value = float {10.0}> ()
      m = ReduceMax (x, axes)
      b = Min (m, top)
      d = Sub (x, b)
      e = Exp (d)
      s = ReduceSum (e, axes)
    }"""
    x = rand(np.float32, 4, 40000)
    x[1, 100] = np.inf
    x[2, :30000] = -np.inf
    x[3] = -3e38
    compare(text, chip, [{"x": x}], rtol=1e-4)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("length", [32768, 40001])
def test_norms_of_few_long_rows(chip, length):
    """Squares of parts are taken from the part's own mean: as exact as from the row's, far from 0 too."""
    text = f"""g (float[3, {length}] x, float[{length}] w, float[{length}] b) => (float[3, {length}] y) {{
      y = LayerNormalization <axis = -1> (x, w, b)
    }}"""
    x = rand(np.float32, 3, length)
    x[1] += 1000
    x[2] *= 1e-3
    w, b = rand(np.float32, length, seed=1), rand(np.float32, length, seed=2)
    model = sardonyx.compile(parse(text), device=f"sim:{chip}")
    got = model.run({"x": x, "w": w, "b": b})["y"]
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=3e-4)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("order", ["channels first", "channels last"])
def test_group_norm_of_images(chip, dtype, order):
    """Groups of 8, of 10 and of 3 channels; an image whose pixels are no multiple of the parts."""
    t = {"float": np.float32, "float16": np.float16}[dtype]
    for size, channels, groups in [((1, 40, 24), 64, 8), ((2, 33, 31), 40, 4), ((1, 64, 64), 24, 8)]:
        n, h, w = size
        shape = f"{n}, {h}, {w}, {channels}" if order == "channels last" else f"{n}, {channels}, {h}, {w}"
        into = "t = Transpose <perm = [0, 3, 1, 2]> (x)" if order == "channels last" else "t = Identity (x)"
        back = "y = Transpose <perm = [0, 2, 3, 1]> (c)" if order == "channels last" else "y = Identity (c)"
        text = f"""g ({dtype}[{shape}] x, {dtype}[{channels}] w, {dtype}[{channels}] b) => ({dtype}[{shape}] y) {{
          {into}
          a = GroupNormalization <num_groups = {groups}> (t, w, b)
          s = Sigmoid (a)
          c = Mul (a, s)
          {back}
        }}"""
        dims = [n, h, w, channels] if order == "channels last" else [n, channels, h, w]
        feed = {"x": rand(t, *dims) + t(2), "w": rand(t, channels, seed=1), "b": rand(t, channels, seed=2)}
        rtol, atol = (1e-2, 1e-2) if dtype == "float16" else (1e-4, 1e-4)
        model = compare(text, chip, [feed], rtol=rtol, atol=atol, opset=21)
        assert model.programs == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_statistics_over_several_dims(chip):
    """Runs with gaps between them: long ones are rows, elements of short ones are columns; and dims of unknown size."""
    text = """g (float[4, 12, 2500] x, float[40, 6, 300] s, float[n, 6, 700] u, float16[1200, 3, 8] c)
        => (float[12] m, float[12] v, float[6] a, float[6] b, float16[3] d, float[12] e) {
      axes = Constant <value = int64[2] {0, 2}> ()
      m = ReduceMean <keepdims = 0> (x, axes)
      k = ReduceMean (x, axes)
      o = Sub (x, k)
      q = Mul (o, o)
      v = ReduceMean <keepdims = 0> (q, axes)
      a = ReduceMax <keepdims = 0> (s, axes)
      b = ReduceSum <keepdims = 0> (u, axes)
      d = ReduceMean <keepdims = 0> (c, axes)
      e = ReduceMin <keepdims = 0> (x, axes)
    }"""
    feeds = [
        {
            "x": rand(np.float32, 4, 12, 2500) / 3,
            "s": rand(np.float32, 40, 6, 300),
            "u": rand(np.float32, n, 6, 700),
            "c": rand(np.float16, 1200, 3, 8),
        }
        for n in (1, 5, 40)
    ]
    compare(text, chip, feeds, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("chip", CHIPS)
def test_short_rows_have_a_thread_each(chip):
    """Rows of two elements that are far apart in memory, which are stored and summed by one kernel."""
    text = """g (float[n, 2, 40, 33] x) => (float[n, 2, 40, 33] t, float[n, 40, 33] s) {
      axes = Constant <value_ints = [1]> ()
      t = Tanh (x)
      s = ReduceSum <keepdims = 0> (t, axes)
    }"""
    x = rand(np.float32, 3, 2, 40, 33)
    got = sardonyx.compile(parse(text, opset=18), device=f"sim:{chip}").run({"x": x})
    # A few units in the last place of tanh, whose values are at most 1; of a sum, one rounding more.
    np.testing.assert_allclose(got["t"], np.tanh(x), rtol=0, atol=1e-6)
    np.testing.assert_allclose(got["s"], np.tanh(x).sum(1), rtol=0, atol=2e-6)
