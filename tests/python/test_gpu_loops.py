"""Loop kernels on simulated AMD GPUs at sizes that take different paths of the code: vectors and their remainders, unaligned addresses, groups of
threads of every width, rows that do not fit in registers, indices of 32 bits."""

import math
import re

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper
from simulated import counted
from simulated_loops import CHIPS, TYPES, compare, parse, rand


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", TYPES)
def test_packs_and_what_they_leave(chip, dtype):
    t = TYPES[dtype]
    text = f"""g ({dtype}[n, m] x, {dtype}[m] v) => ({dtype}[n, m] y, {dtype}[n, m] z, {dtype}[j, m] c, {dtype}[n, k] w) {{
      y = Add (x, x)
      z = Mul (x, v)
      c = Concat <axis = 0> (x, y)
      s = Constant <value = int64[1] {{1}}> ()
      e = Constant <value = int64[1] {{1000000}}> ()
      w = Slice (y, s, e, s)
    }}"""
    # Rows that are multiples of 16 bytes and rows that are not; one element; less than a pack; more than one workgroup.
    shapes = [(3, 16), (5, 7), (1, 2), (2, 3), (37, 40), (9, 1001), (0, 8)]
    # Both round each value once, at the end.
    tol = {"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 1e-6)
    compare(text, chip, [{"x": rand(t, n, m), "v": rand(t, m, seed=1)} for n, m in shapes], rtol=tol)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_rows_of_every_length(chip, dtype):
    t = TYPES[dtype]
    text = f"""g ({dtype}[n, m] x) => ({dtype}[n, m] y, {dtype}[n, 1] s, {dtype}[n, 1] b, int64[n, 1] a, {dtype}[n, m] d) {{
      y = Softmax <axis = -1> (x)
      axes = Constant <value = int64[1] {{1}}> ()
      s = ReduceSum (x, axes)
      b = ReduceMax (x, axes)
      a = ArgMax <axis = 1> (x)
      mean = ReduceMean (x, axes)
      e = Sub (x, mean)
      f = Mul (e, e)
      g = ReduceMean (f, axes)
      h = Sqrt (g)
      d = Div (e, h)
    }}"""
    # One for each width of a team, with and without packs, beyond registers, and fewer rows than a workgroup has teams.
    lengths = [2, 5, 8, 9, 24, 64, 100, 128, 513, 520, 1030, 2048, 4096, 5000, 5001]
    rtol, atol = (2e-2, 2e-3) if dtype == "float16" else (2e-4, 2e-5)  # sums in another order
    compare(text, chip, [{"x": rand(t, 3 if m > 600 else 11, m, seed=m)} for m in lengths], rtol=rtol, atol=atol)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("m", [6, 32, 48, 100, 512, 1024, 3000, 10000])
def test_rows_of_known_length(chip, m):
    text = f"""g (float[n, {m}] x, float[{m}] w) => (float[n, {m}] y, int64[n] a, int64[n] last, float[n, {m}] z) {{
      y = Softmax <axis = -1> (x)
      a = ArgMax <axis = 1, keepdims = 0> (x)
      last = ArgMin <axis = 1, keepdims = 0, select_last_index = 1> (x)
      z = LayerNormalization <axis = -1> (x, w)
    }}"""
    x = np.round(rand(np.float32, 5, m))  # many equal elements
    compare(text, chip, [{"x": x, "w": rand(np.float32, m, seed=1)}], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("chip", CHIPS)
def test_reductions_across_memory(chip):
    text = """g (float[n, c, m] x) => (float[n, m] s, float[n, c, m] y, float[c] t, float all, int64[n, m] a) {
      one = Constant <value = int64[1] {1}> ()
      s = ReduceSum <keepdims = 0> (x, one)
      y = Softmax <axis = 1> (x)
      both = Constant <value = int64[2] {0, 2}> ()
      t = ReduceSum <keepdims = 0> (x, both)
      all = ReduceSum <keepdims = 0> (x)
      a = ArgMax <axis = 1, keepdims = 0> (x)
    }"""
    shapes = [(2, 5, 8), (1, 3, 1), (3, 40, 17), (2, 130, 64), (1, 1, 1000), (4, 700, 3)]
    compare(text, chip, [{"x": rand(np.float32, *s)} for s in shapes], rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("chip", CHIPS)
def test_not_a_number_in_arg_reductions(chip):
    text = "g (float[n, m] x) => (int64[n] a) { a = ArgMax <axis = 1, keepdims = 0> (x) }"
    x = rand(np.float32, 4, 300)
    x[0, [7, 200]] = np.nan
    x[1, 299] = np.nan
    x[2] = -np.inf
    got = sardonyx.compile(parse(text), device=f"sim:{chip}").run({"x": x})["a"]
    np.testing.assert_array_equal(got, np.argmax(x, axis=1))


@pytest.mark.slow(part=4)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", ["float", "float16", "int32"])
@pytest.mark.parametrize("chip", CHIPS)
def test_arg_reductions_of_columns(chip, dtype, last, op):
    """Threads divide the columns: of equal elements and of NaNs the first or the last counts, whichever thread has it."""
    text = f"""g ({dtype}[2, 301, 24] x, {dtype}[90, 35] z) => (int64[2, 24] a, int64[35] b) {{
      a = {op} <axis = 1, keepdims = 0, select_last_index = {last}> (x)
      b = {op} <axis = 0, keepdims = 0, select_last_index = {last}> (z)
    }}"""
    numpy = {"float": np.float32, "float16": np.float16, "int32": np.int32}[dtype]
    rng = np.random.default_rng(0)
    x, z = (rng.integers(-9, 9, shape).astype(numpy) for shape in ((2, 301, 24), (90, 35)))
    if dtype != "int32":
        x[0, 17::40, :5] = np.nan
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    got = sardonyx.compile(model, device=f"sim:{chip}")(x=x, z=z)
    for name, of, axis in (("a", x, 1), ("b", z, 0)):
        values = of if op == "ArgMax" else -of
        want = np.argmax(np.flip(values, axis), axis)
        want = of.shape[axis] - 1 - want if last else np.argmax(values, axis)
        if dtype != "int32" and name == "a" and last:
            want[0, :5] = np.argmax(values[0, :, :5], 0)  # of NaNs the first counts
        np.testing.assert_array_equal(got[name], want)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("chip", CHIPS)
def test_arg_reductions_of_few_long_columns(chip, last):
    """In parts of unequal length, because no number of parts divides the columns."""
    text = f"""g (float16[19997, 9] x) => (int64[9] a, int64[9] b) {{
      a = ArgMax <axis = 0, keepdims = 0, select_last_index = {last}> (x)
      b = ArgMin <axis = 0, keepdims = 0, select_last_index = {last}> (x)
    }}"""
    x = np.random.default_rng(5).integers(-2000, 2000, (19997, 9)).astype(np.float16)
    x[:, 0] = 0
    x[[300, 19996], 1], x[[5, 12000], 1] = 3000, -3000
    x[[40, 9000], 2] = np.nan
    device = sardonyx.compile(parse(text), device=f"sim:{chip}")
    got = device.run({"x": x})
    assert len(device.kernels()) > 2
    for name, of in (("a", x), ("b", -x)):
        want = len(x) - 1 - np.argmax(of[::-1], 0) if last else np.argmax(of, 0)
        want[2] = 40  # of NaNs the first counts
        np.testing.assert_array_equal(got[name], want)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("chip", CHIPS)
def test_arg_reductions_of_long_rows(chip, last):
    """They are computed in parts, which agree on the first (last) of equal extremes, also of different parts."""
    text = f"""g (float[n, 98304] x) => (int64[n] a, int64[n] b) {{
      a = ArgMax <axis = 1, keepdims = 0, select_last_index = {last}> (x)
      b = ArgMin <axis = 1, keepdims = 0, select_last_index = {last}> (x)
    }}"""
    x = np.random.default_rng(4).integers(-50000, 50000, (2, 98304)).astype(np.float32)
    x[0, [777, 90000]], x[0, [3, 50000]] = 1e6, -1e6
    x[1] = 0
    device = sardonyx.compile(parse(text), device=f"sim:{chip}")
    got = device.run({"x": x})
    assert len(device.kernels()) > 2
    np.testing.assert_array_equal(got["a"], [90000, 98303] if last else [777, 0])
    np.testing.assert_array_equal(got["b"], [50000, 98303] if last else [3, 0])


@pytest.mark.parametrize("chip", CHIPS)
def test_long_reductions_to_few_results(chip):
    """They are computed in parts; parts of equal length, shorter last ones, and none at all for small sizes."""
    text = """g (float[n, m] x, float[70000] v, float[6, 5000, 8] w, float[n, 3, 90000] z)
        => (float s, float p, float[1] a, float[8] c, float[6, 8] d, float[n, 3] e, int64 i) {
      s = ReduceSum <keepdims = 0> (x)
      p = ReduceMax <keepdims = 0> (x)
      zero = Constant <value = int64[1] {0}> ()
      a = ReduceMean (v, zero)
      both = Constant <value = int64[2] {0, 1}> ()
      c = ReduceSum <keepdims = 0> (w, both)
      one = Constant <value = int64[1] {1}> ()
      d = ReduceL2 <keepdims = 0> (w, one)
      two = Constant <value = int64[1] {2}> ()
      e = ReduceSum <keepdims = 0> (z, two)
      k = Cast <to = 7> (x)
      i = ReduceSum <keepdims = 0> (k)
    }"""
    feeds = [
        {
            "x": rand(np.float32, n, m),
            "v": rand(np.float32, 70000),
            "w": rand(np.float32, 6, 5000, 8),
            "z": rand(np.float32, n, 3, 90000),
        }
        for n, m in [(1, 1), (2, 777)]
    ]
    model = compare(text, chip, feeds, rtol=1e-4, atol=2e-2)
    assert model.programs == 1


@pytest.mark.parametrize("operator", ["Exp", "Sigmoid", "Tanh", "Erf", "Sqrt", "Reciprocal"])
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_quick_functions_for_float16(chip, operator):
    """Every float16 there is: at most one unit in the last place from the host's float32 functions, rounded."""
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    want = sardonyx.compile(model).run({"x": x})["y"]
    got = sardonyx.compile(model, device=f"sim:{chip}").run({"x": x})["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    number = ~np.isnan(want)
    ulps = np.abs(got.view(np.int16).astype(int) - want.view(np.int16).astype(int))[number & (got != want)]
    assert ulps.max(initial=0) <= 1


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("operator", ["Asin", "Acos"])
def test_arcs_of_float32(operator, chip):
    """GPUs compute the root of (1 - |x|) / 2 from an approximation, and correct it."""
    rng = np.random.default_rng(0)
    near = 1 - 2.0 ** rng.uniform(-24, 0, 20000)
    x = np.concatenate([near, -near, rng.uniform(-1, 1, 20000), 2.0 ** rng.uniform(-140, -1, 5000)]).astype(np.float32)
    special = [0, -0.0, 1, -1, 0.5, -0.5, 0.50000006, 1.0000001, -2, np.inf, np.nan]
    x = np.concatenate([x, np.array(special, np.float32)])
    model = parse(f"g (float[n] x) => (float[n] y) {{ y = {operator} (x) }}")
    got = sardonyx.compile(model, device=f"sim:{chip}").run({"x": x})["y"]
    with np.errstate(invalid="ignore"):
        want = (np.arcsin if operator == "Asin" else np.arccos)(x.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    valid = ~np.isnan(want)
    ulp = np.spacing(np.abs(want[valid]).astype(np.float32)).astype(np.float64)
    # the prelude's bound for all functions of this kind is 2; the host's are within 0.75 and 1.25 (tests/cpp/kernels)
    assert (np.abs(got[valid] - want[valid]) / ulp).max() <= 1.25


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("operator", ["Asinh", "Acosh", "Atanh"])
def test_areas_of_float32(operator, chip):
    """GPUs compute them in two float32: float64 has a 16th to a 64th of the rate on many."""
    rng = np.random.default_rng(0)
    x = np.concatenate([2.0 ** rng.uniform(-140, 127.9, 20000), 2.0 ** rng.uniform(-15, 16, 20000)])
    near = 2.0 ** rng.uniform(-23, 1, 20000)
    x = np.concatenate([x, -x, 1 - near, near - 1, 1 + near])
    special = [0, -0.0, 1, -1, 16384, 16383.999, 3e38, np.inf, -np.inf, np.nan]
    x = np.concatenate([x.astype(np.float32), np.array(special, np.float32)])
    model = parse(f"g (float[n] x) => (float[n] y) {{ y = {operator} (x) }}")
    got = sardonyx.compile(model, device=f"sim:{chip}").run({"x": x})["y"]
    exact = {"Asinh": np.arcsinh, "Acosh": np.arccosh, "Atanh": np.arctanh}[operator]
    with np.errstate(invalid="ignore", divide="ignore"):
        want = exact(x.astype(np.float64))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(np.float32))
    ulp = np.spacing(np.abs(want[finite]).astype(np.float32)).astype(np.float64)
    assert (np.abs(got[finite] - want[finite]) / ulp).max() <= 2  # the prelude's bound for functions of this kind
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_quotients_of_bfloat16_of_any_size(chip):
    """Reciprocals of the largest values are below the smallest normal number."""
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    values = [0.0, -0.0, 1e-38, 1e-3, -1.0, 3.0, 1e30, 2e38, largest, -largest, np.inf, -np.inf, np.nan]
    x, z = (np.ascontiguousarray(v, ml_dtypes.bfloat16) for v in np.meshgrid(values, values))
    model = parse("g (bfloat16[n, m] x, bfloat16[n, m] z) => (bfloat16[n, m] y) { y = Div (x, z) }")
    want = sardonyx.compile(model).run({"x": x, "z": z})["y"].astype(np.float32)
    got = sardonyx.compile(model, device=f"sim:{chip}").run({"x": x, "z": z})["y"].astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=2**-8, atol=2e-38)  # denormal numbers may become 0


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_lines_that_are_no_whole_packs(chip, dtype):
    """Boxes of a detector: a transposition, an activation that three slices share, and a concatenation."""
    t = TYPES[dtype]
    text = f"""g ({dtype}[n, 2, 85, p] x, {dtype}[2] anchors) => ({dtype}[n, q, 85] y) {{
      a = Transpose <perm = [0, 1, 3, 2]> (x)
      s = Sigmoid (a)
      parts = Constant <value = int64[3] {{2, 2, 81}}> ()
      xy, wh, rest = Split <axis = 3> (s, parts)
      two = Constant <value_float = 2.0> ()
      scale = CastLike (two, x)
      exponent = Constant <value = float[1] {{2.0}}> ()
      centre = Mul (xy, scale)
      twice = Mul (wh, scale)
      square = Pow (twice, exponent)
      size = Mul (square, anchors)
      all = Concat <axis = 3> (centre, size, rest)
      shape = Constant <value = int64[3] {{0, -1, 85}}> ()
      y = Reshape (all, shape)
    }}"""
    feeds = [{"x": rand(t, n, 2, 85, p), "anchors": rand(t, 2, seed=1)} for n, p in [(1, 1), (2, 5), (3, 64)]]
    tol = 2e-3 if dtype == "float16" else 1e-5  # of float16: each rounds once, and the device's sigmoid is quick
    gpu = compare(text, chip, feeds, rtol=tol, atol=tol)
    assert len(gpu.kernels()) == 1  # each slice computes the sigmoid of its own elements


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("m", [23, 24, 31, 33, 85, 96, 255, 257])
def test_lines_of_known_length(chip, m):
    text = f"""g (float[n, {m}] x, float[n, 1] r, float[{m + 1}] v, bool[n, {m}] c) => (float[n, {m}] y) {{
      one = Constant <value = int64[1] {{1}}> ()
      end = Constant <value = int64[1] {{{m + 1}}}> ()
      zero = Constant <value = int64[1] {{0}}> ()
      w = Slice (v, one, end, zero)
      s = Add (x, w)
      t = Mul (s, r)
      y = Where (c, t, x)
    }}"""
    feeds = [
        {"x": rand(np.float32, n, m), "r": rand(np.float32, n, 1), "v": rand(np.float32, m + 1, seed=2)}
        for n in (1, 7, 300)
    ]
    for f in feeds:
        f["c"] = f["x"] > 0
    compare(text, chip, feeds)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_pooling_between_convolutions(chip, operator):
    """Channels last: packs of channels, windows over the edges, of more taps than are read at a time and of fewer."""
    text = f"""g (float[n, 8, h, w] x, float[16, 8, 1, 1] k, float[8, 16, 1, 1] l) => (float[n, 8, u, v] y, float[n, 8, i, j] z) {{
      a = Conv (x, k)
      b = {operator} <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a)
      c = {operator} <kernel_shape = [7, 7], pads = [3, 3, 3, 3]> (a)
      y = Conv (b, l)
      z = Conv (c, l)
    }}"""
    weights = {"k": rand(np.float32, 16, 8, 1, 1), "l": rand(np.float32, 8, 16, 1, 1, seed=1)}
    x = rand(np.float32, 2, 8, 9, 12, seed=2)
    compare(text, chip, [{"x": x, **weights}, {"x": -np.abs(x), **weights}], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("chip", CHIPS)
def test_gelu_in_float16(chip):
    """1 + erf in one function: everywhere as good as float16, and nothing left of large negative numbers."""
    text = """g (float16[n] x) => (float16[n] y) {
      c = Constant <value = float[1] {1.41421356}> ()
      one = Constant <value = float[1] {1.0}> ()
      half = Constant <value = float[1] {0.5}> ()
      f = Cast <to = 1> (x)
      d = Div (f, c)
      e = Erf (d)
      s = Add (e, one)
      p = Mul (f, s)
      q = Mul (p, half)
      y = Cast <to = 10> (q)
    }"""
    x = np.concatenate([np.linspace(-9, 9, 4001), [0.0, -0.0, 6e-8, 65504, -65504, np.inf, np.nan]]).astype(np.float16)
    got = sardonyx.compile(parse(text), device=f"sim:{chip}").run({"x": x})["y"].astype(np.float64)
    wide = x.astype(np.float64)
    want = np.array([v if v == np.inf else v / 2 * math.erfc(-v / math.sqrt(2)) for v in wide])
    # half an ulp of float16 for the result, and 2^-20 in 1 + erf
    bound = np.where(np.isfinite(want), 2.0**-11 * np.abs(want) + 2.0**-20 * np.abs(wide) + 2.0**-25, 0)
    finite = np.isfinite(want)
    assert (np.abs(got[finite] - want[finite]) <= bound[finite]).all()
    assert got[-2] == np.inf and np.isnan(got[-1]) and got[-3] == 0


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_columns_that_a_team_reduces(dtype, chip):
    """Global pooling in channels last: packs of columns, each reduced by a team of threads, with an epilogue and several outputs."""
    t = TYPES[dtype]
    text = f"""g ({dtype}[n, h, w, c] x, {dtype}[1, 20, 24, 40] k) => ({dtype}[n, c] y, {dtype}[n, c] z, {dtype}[1, 40] u, float[n, c] v) {{
      axes = Constant <value = int64[2] {{1, 2}}> ()
      r = Relu (x)
      y = ReduceMean <keepdims = 0> (r, axes)
      m = ReduceMax <keepdims = 0> (x, axes)
      z = Sub (m, y)
      s = Sigmoid (k)
      u = ReduceMean <keepdims = 0> (s, axes)
      f = Cast <to = 1> (x)
      q = ReduceSumSquare <keepdims = 0> (f, axes)
      v = Sqrt (q)
    }}"""
    k = rand(t, 1, 20, 24, 40, seed=7)
    shapes = [(1, 28, 28, 120), (2, 7, 9, 13), (1, 1, 1, 8), (3, 33, 20, 16), (40, 8, 9, 8)]
    feeds = [{"x": rand(t, *s), "k": k} for s in shapes]
    rtol, atol = (1e-2, 1e-2) if dtype == "float16" else (1e-4, 1e-5)
    compare(text, chip, feeds, rtol=rtol, atol=atol)


@pytest.mark.parametrize("chip", [*CHIPS, "gfx90a"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.slow(part=4)
def test_columns_that_teams_share(chip, dtype):
    """Sums over middle axes: packs and single elements of every type, teams of every size, more terms than threads and fewer."""
    t = TYPES[dtype]
    shapes = [(1, 784, 72), (3, 17, 40), (2, 197, 24), (1, 600, 7), (4, 33, 1), (1, 3000, 16)]
    for n, m, c in shapes:
        text = f"""g ({dtype}[{n}, {m}, {c}] x, {dtype}[{n}, 1, {c}] v) => ({dtype}[{n}, 1, {c}] s, {dtype}[{n}, {c}] h, {dtype}[{n}, 1, {c}] w) {{
          one = Constant <value = int64[1] {{1}}> ()
          s = {"ReduceMin" if dtype == "uint8" else "ReduceSum"} (x, one)
          h = ReduceMax <keepdims = 0> (x, one)
          w = Add (s, v)
        }}"""
        x = rand(t, n, m, c)
        x = x if dtype == "uint8" else (x / 8).astype(t)
        # sums of float16 stay near 0; each side rounds once, from sums in another order
        tol = {"float16": 2e-3, "bfloat16": 1.6e-2, "double": 1e-12}.get(dtype, 1e-4)
        compare(text, chip, [{"x": x, "v": rand(t, n, 1, c, seed=1)}], rtol=tol, atol=tol)


@pytest.mark.parametrize("chip", CHIPS)
def test_columns_of_symbolic_sizes(chip):
    text = """g (float16[n, m, c] x) => (float16[n, 1, c] s, float16[m, c] h) {
      one = Constant <value = int64[1] {1}> ()
      s = ReduceMean (x, one)
      zero = Constant <value = int64[1] {0}> ()
      h = ReduceSum <keepdims = 0> (x, zero)
    }"""
    shapes = [(1, 784, 72), (2, 5, 8), (3, 100, 13), (300, 2, 16), (1, 1, 1)]
    compare(text, chip, [{"x": rand(np.float16, *s) / 8} for s in shapes], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_mean_of_an_image_reads_it_once(chip):
    """Few channels, channels last: neighbouring threads read neighbouring packs, and no element twice."""
    text = """g (float16[1, 28, 28, 64] t) => (float16[1, 64] y) {
      axes = Constant <value = int64[2] {1, 2}> ()
      y = ReduceMean <keepdims = 0> (t, axes)
    }"""
    model = sardonyx.compile(parse(text), device=f"sim:{chip}")
    x = rand(np.float16, 1, 28, 28, 64)
    model.run({"t": x})
    with counted() as kinds:
        model.run({"t": x})
    waves = 28 * 28 * 64 // 8 // (64 if chip == "gfx942" else 32)
    # Each team's last loads read the last term again.
    assert kinds["memory"] < 1.5 * waves


FAR = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n] x) => (float[n] y) <float[1] w = {2}> {
  s = Shape (x)
  none = Constant <value = int64[1] {0}> ()
  n0 = Squeeze (s, none)
  zero = Constant <value = int64 {0}> ()
  one = Constant <value = int64 {1}> ()
  r = Range (zero, n0, one)
  far = Mul (r, n0)
  last = Sub (n0, one)
  at = Min (far, last)
  xw = Mul (x, w)
  y = Gather (xw, at)
}"""


def test_sizes_that_need_64_bits_get_a_program_of_their_own(tmp_path):
    """The product of two indices passes 2^31. Weights are released once a model is compiled, and read from its file again."""
    path = tmp_path / "far.onnx"
    onnx.save(onnx.parser.parse_model(FAR), path)
    model = sardonyx.compile(path, device="sim:gfx1100")
    for n in (10, 70000, 10):
        x = np.arange(n, dtype=np.float32)
        want = np.full(n, 2 * (n - 1), np.float32)
        want[0] = 0
        np.testing.assert_array_equal(model.run({"x": x})["y"], want)
    memory = sardonyx.compile(onnx.parser.parse_model(FAR), device="sim:gfx1100")
    with pytest.raises(sardonyx.UnsupportedError, match="load the model from a file"):
        memory.run({"x": np.zeros(70000, np.float32)})
    onnx.save(
        onnx.parser.parse_model(
            FAR.replace("float[n] x", "float[n] z").replace("(x)", "(z)").replace("(x, w)", "(z, w)")
        ),
        path,
    )
    model = sardonyx.compile(tmp_path / "far.onnx", device="sim:gfx1100")
    onnx.save(onnx.parser.parse_model(FAR), path)
    with pytest.raises(sardonyx.Error, match="another model"):
        model.run({"z": np.zeros(70000, np.float32)})


@pytest.mark.parametrize("chip", CHIPS)
def test_powers(chip):
    """A given exponent, constant ones that become products, and others."""
    exponents = [2.5, -1.0, 5.0, 9.0, 10.0]
    lines = [f"e{i} = Constant <value = float {{{e}}}> ()\ny{i} = Pow (x, e{i})" for i, e in enumerate(exponents)]
    outputs = ", ".join(f"float[n] y{i}" for i in range(len(exponents)))
    text = f"g (float[n] x, float[n] e) => (float[n] y, {outputs}) {{\ny = Pow (x, e)\n" + "\n".join(lines) + "\n}"
    x = np.abs(rand(np.float32, 1000)) + np.float32(0.01)
    e = 3 * rand(np.float32, 1000, seed=1)
    got = sardonyx.compile(parse(text, 18), device=f"sim:{chip}").run({"x": x, "e": e})
    for name, exponent in [("y", e), *((f"y{i}", np.float32(e)) for i, e in enumerate(exponents))]:
        want = np.power(x.astype(np.float64), exponent.astype(np.float64))
        np.testing.assert_allclose(got[name], want, rtol=2**-21, atol=0, err_msg=name)  # products round eight times


def test_powers_need_no_float64(tmp_path):
    graph = onnx.parser.parse_graph("g (float[n] x, float[n] e) => (float[n] y) { y = Pow (x, e) }")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    kernels = re.findall(rb"\.visible \.entry.*?\n}", (tmp_path / "m.sdx").read_bytes(), re.DOTALL)
    assert kernels and not any(b".f64" in k for k in kernels)
