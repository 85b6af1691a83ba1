"""Rewrites of the compiler: they show in the kernels, and do not change results."""

import numpy as np
import onnx.parser
import pytest
import sardonyx


def parse(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kernels(model, feed):
    return [s.kernel for s in model.profile(feed)[1] if s.kernel != "control"]


def test_common_subexpressions_are_computed_once():
    twice = """
      g (float[n, k] x, float[k, m] w) => (float[n, m] y, float[n, 1] z) {
        a = MatMul (x, w)
        b = MatMul (x, w)
        p = Softmax <axis = -1> (a)
        q = Softmax <axis = -1> (b)
        y = Mul (p, q)
        axes = Constant <value = int64[1] {1}> ()
        s = ReduceLogSumExp (a, axes)
        t = ReduceLogSumExp (b, axes)
        z = Sub (s, t)
      }"""
    once = twice.replace("b = MatMul (x, w)", "b = Identity (a)").replace(
        "q = Softmax <axis = -1> (b)", "q = Identity (p)"
    )
    feed = {"x": rand(5, 8), "w": rand(8, 3, seed=1)}
    a, b = (
        sardonyx.compile(parse(twice)),
        sardonyx.compile(parse(once.replace("ReduceLogSumExp (b", "ReduceLogSumExp (a"))),
    )
    got = a.run(feed)
    np.testing.assert_array_equal(got["y"], b.run(feed)["y"])
    np.testing.assert_array_equal(got["z"], 0)
    assert len(kernels(a, feed)) == len(kernels(b, feed)) and kernels(a, feed).count("gemm") == 1


def test_what_only_looks_alike_is_not_merged():
    model = parse("""
      g (float[n, k] x) => (float[n, n] a, float[n, k] r, float[n, k] s, float[n] t, float[k] u) {
        x2 = Neg (x)
        xt = Transpose (x)
        y = MatMul (x, xt)
        z = MatMul (x2, xt)
        a = Sub (y, z)
        r = RandomUniformLike (x)
        s = RandomUniformLike (x)
        rows = Constant <value = int64[1] {1}> ()
        columns = Constant <value = int64[1] {0}> ()
        t = ReduceSum <keepdims = 0> (x, rows)
        u = ReduceSum <keepdims = 0> (x, columns)
      }""")
    x = rand(4, 4)
    got = sardonyx.compile(model)(x=x)
    np.testing.assert_allclose(got["a"], 2 * x @ x.T, rtol=1e-5, atol=1e-5)
    assert (got["r"] != got["s"]).any()
    np.testing.assert_allclose(got["t"], x.sum(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["u"], x.sum(0), rtol=1e-5, atol=1e-6)


def test_merged_values_keep_their_names_as_outputs():
    model = parse("g (float[n] x) => (float[n] a, float[n] b) { a = Exp (x) b = Exp (x) }")
    x = rand(9)
    got = sardonyx.compile(model)(x=x)
    assert list(got) == ["a", "b"]
    np.testing.assert_array_equal(got["a"], got["b"])
    np.testing.assert_allclose(got["a"], np.exp(x), rtol=1e-6)


def test_reductions_along_a_distance():
    # Sums of neighbouring columns run side by side; columns beyond whole tiles of 64, one row, and a sum of a sum's squares too.
    text = """
      g (float[n, k, c] x) => (float[n, c] mean, float[n, c] root, float[n, c] variance) {
        axes = Constant <value = int64[1] {1}> ()
        mean = ReduceMean <keepdims = 0> (x, axes)
        square = Mul (x, x)
        power = ReduceMean <keepdims = 0> (square, axes)
        root = Sqrt (power)
        kept = ReduceMean (x, axes)
        centred = Sub (x, kept)
        centred2 = Mul (centred, centred)
        variance = ReduceMean <keepdims = 0> (centred2, axes)
      }"""
    model = sardonyx.compile(parse(text))
    for shape in [(2, 300, 70), (1, 5, 1), (3, 1, 64), (1, 129, 700)]:
        x = rand(*shape)
        got = model(x=x)
        wide = x.astype(np.float64)
        want = [wide.mean(1), np.sqrt((wide**2).mean(1)), wide.var(1)]
        for name, w in zip(["mean", "root", "variance"], want):
            np.testing.assert_allclose(got[name], w, rtol=1e-5, atol=1e-6)  # sums of up to 300 float32 in turn


@pytest.mark.parametrize("device", ["host", "sim:gfx1100"])
@pytest.mark.parametrize("batch", ["n", "1"])
@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (0, 1, 3, 2), (0, 2, 1, 3)])
def test_a_transposed_residual_of_a_convolution(perm, batch, device):
    """The epilogue reads it at other places than it writes; some of these are the same places in memory."""
    shape = [None] * 4
    for at, d in enumerate(perm):
        shape[d] = (batch, 8, 8, 8)[at]
    text = f"""g (float[{batch}, 4, 8, 8] x, float[{", ".join(map(str, shape))}] z, float[8, 4, 3, 3] w) => (float[{batch}, 8, 8, 8] y) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        t = Transpose <perm = {list(perm)}> (z)
        s = Add (c, t)
        r = Sin (z)
        q = Transpose <perm = {list(perm)}> (r)
        p = Mul (s, q)
        y = Relu (p)
      }}"""
    n = 2 if batch == "n" else 1
    feed = {"x": rand(n, 4, 8, 8), "z": rand(n, 8, 8, 8, seed=1), "w": rand(8, 4, 3, 3, seed=2)}
    want = sardonyx.compile(parse(text), fuse=False).run(feed)["y"]
    got = sardonyx.compile(parse(text), device=device).run(feed)["y"]
    # 36 products a sum, in another order, or by Winograd's algorithm: values up to about 20
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("device", ["host", "sim:gfx1100"])
@pytest.mark.parametrize("first", [0, 8])
@pytest.mark.parametrize("image", ["z", "t"])
def test_a_slice_of_a_larger_tensor_multiplies_a_convolution(image, first, device):
    """The library's epilogues read whole tensors: what it cannot read stays a loop. FocalNet's modulation is of this form."""
    text = f"""g (float[2, 19, 8, 8] z, float[2, 8, 8, 19] l, float[8, 4, 1, 1] w, float[4, 11, 3, 3] v) => (float[2, 8, 8, 8] y) {{
        t = Transpose <perm = [0, 3, 1, 2]> (l)
        zero = Constant <value_ints = [{first}]> ()
        eight = Constant <value_ints = [{first + 8}]> ()
        one = Constant <value_ints = [1]> ()
        rest = Constant <value_ints = [19]> ()
        q = Slice ({image}, zero, eight, one)
        from = Constant <value_ints = [8]> ()
        x = Slice ({image}, from, rest, one)
        a = Conv <pads = [1, 1, 1, 1]> (x, v)
        c = Conv (a, w)
        y = Mul (q, c)
      }}"""
    feed = {
        "z": rand(2, 19, 8, 8),
        "l": rand(2, 8, 8, 19, seed=1),
        "w": rand(8, 4, 1, 1, seed=2),
        "v": rand(4, 11, 3, 3, seed=3),
    }
    want = sardonyx.compile(parse(text), fuse=False).run(feed)["y"]
    got = sardonyx.compile(parse(text), device=device).run(feed)["y"]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=5e-4)


def test_a_residual_that_lies_channels_last_is_read_where_it_is():
    text = """g (float[n, 4, 8, 8] x, float[n, 8, 8, 8] z, float[8, 4, 3, 3] w) => (float[n, 8, 8, 8] y) {
        a = Relu (x)
        c = Conv <pads = [1, 1, 1, 1]> (a, w)
        t = Transpose <perm = [0, 3, 1, 2]> (z)
        s = Add (c, t)
        y = Transpose <perm = [0, 2, 3, 1]> (s)
      }"""
    model = sardonyx.compile(parse(text))
    feed = {"x": rand(2, 4, 8, 8), "z": rand(2, 8, 8, 8, seed=1), "w": rand(8, 4, 3, 3, seed=2)}
    assert len(kernels(model, feed)) == 2  # Relu into channels last, and the convolution with the sum


ASSIGNED = """
  g (float[n, k] x, float[m, k] u) => (float[n, k] y) {
    s = Shape <start = 0, end = 1> (%s)
    none = Constant <value = int64[1] {0}> ()
    scalar = Squeeze (s, none)
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    all = Range (zero, scalar, one)
    first = Constant <value = int64[1] {%d}> ()
    last = Constant <value = int64[1] {9223372036854775807}> ()
    step = Constant <value = int64[1] {%d}> ()
    some = Slice (all, first, last, none, step)
    axis = Constant <value = int64[1] {1}> ()
    rows = Unsqueeze (some, axis)
    data = Neg (x)
    new = Exp (u)
    changed = ScatterND (data, rows, new)
    y = Relu (changed)
  }"""


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("of,first,step", [("x", 0, 1), ("x", 3, 1), ("x", 1, 3), ("u", 0, 1)])
def test_a_slice_that_is_assigned_to_is_a_loop(of, first, step, device):
    """`x[first::step] = u` as PyTorch's exporter writes it: a scatter of rows whose positions are known."""
    model = sardonyx.compile(parse(ASSIGNED % (of, first, step)), device=device)
    for n in (9, 14):
        x = rand(n, 20)
        m = 5 if of == "u" else len(range(first, n, step))
        u = rand(m, 20, seed=1)
        want = -x
        if of == "u":
            want[:m] = np.exp(u)
        else:
            want[first::step] = np.exp(u)
        np.testing.assert_allclose(model.run({"x": x, "u": u})["y"], np.maximum(want, 0), rtol=1e-5)
    assert len(kernels(model, {"x": x, "u": u})) == 1
    if of == "u":
        with pytest.raises(sardonyx.Error, match="an index is out of range"):
            model.run({"x": rand(4, 20), "u": rand(5, 20)})


def test_rows_that_are_data_are_scattered():
    text = """
      g (float[n, k] x, int64[m, 1] rows, float[m, k] u) => (float[n, k] y) {
        y = ScatterND (x, rows, u)
      }"""
    x, u = rand(6, 4), rand(2, 4, seed=1)
    want = x.copy()
    want[[4, 1]] = u
    got = sardonyx.compile(parse(text)).run({"x": x, "rows": np.array([[4], [1]]), "u": u})
    np.testing.assert_array_equal(got["y"], want)


WINDOWS = """
  g (float[n, h, t, d] q, float[n, h, t, d] k, float[n, h, t, d] v, float[w, 1, t, t] mask, float[h, t, t] bias,
     float[n, h, t, 1] factor) => (float[n, h, t, d] y) {
    kt = Transpose <perm = [0, 1, 3, 2]> (k)
    s = MatMul (q, kt)
    scaled = Mul (s, factor)
    biased = Add (scaled, bias)
    split = Constant <value = int64[5] {-1, 3, 2, 24, 24}> ()
    windows = Reshape (biased, split)
    masked = Add (windows, mask)
    whole = Constant <value = int64[4] {-1, 2, 24, 24}> ()
    scores = Reshape (masked, whole)
    p = Softmax <axis = -1> (scores)
    y = MatMul (p, v)
  }"""


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
def test_attention_of_windows_with_masks_and_factors(device):
    """Swin: windows are divided from the batch for their masks. Swin v2: a factor of each query."""
    model = sardonyx.compile(parse(WINDOWS), device=device, dims={"n": 6, "h": 2, "t": 24, "d": 16, "w": 3})
    n = 6
    q, k, v = (rand(n, 2, 24, 16, seed=s) for s in range(3))
    mask = np.where(rand(3, 1, 24, 24, seed=3) > 1, -100, 0).astype(np.float32)
    bias, factor = rand(2, 24, 24, seed=4), np.exp(rand(n, 2, 24, 1, seed=5))
    scores = (q @ k.swapaxes(2, 3)) * factor + bias + np.tile(mask, (n // 3, 1, 1, 1))
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    feed = {"q": q, "k": k, "v": v, "mask": mask, "bias": bias, "factor": factor}
    np.testing.assert_allclose(model.run(feed)["y"], want, atol=2e-5)
    assert any("attention" in name for name in kernels(model, feed))


@pytest.mark.parametrize(
    "function, value",
    [
        ("y = Mul (a, a)", lambda a: a * a),
        ("b = Mul (a, a)\n y = Mul (b, b)", lambda a: a**4),
        ("b = Mul (a, a)\n y = Neg (b)", lambda a: -a * a),
        ("b = Mul (a, a)\n y = Mul (b, a)", lambda a: a**3),
    ],
)
def test_functions_that_overflow_at_both_ends_are_no_limits(function, value):
    """As the epilogue of a GEMM, a function is recognised by its values, at +-3e38 too, where powers are infinite."""
    model = parse(f"g (float[n, 16] x, float[16, 8] w) => (float[n, 8] y) {{\n a = MatMul (x, w)\n {function} }}")
    x, w = rand(5, 16), rand(16, 8, seed=1)
    # Sums of 16 terms in another order, to the fourth power.
    np.testing.assert_allclose(sardonyx.compile(model)(x=x, w=w)["y"], value(x @ w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5, 8, 130])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_transposed_constant_weights_are_read_as_they_are_stored(rows, kind, tmp_path):
    """Linear layers as PyTorch exports them. 200 columns leave a part of a panel, K of 600 a part of a block."""
    wq, wk, wo = (0.05 * rand(n, k, seed=n + k) for n, k in ((200, 600), (130, 600), (600, 200)))
    constants = [onnx.numpy_helper.from_array(w.astype(kind), name) for name, w in (("wq", wq), ("wk", wk), ("wo", wo))]
    element = "float" if kind is np.float32 else "float16"
    model = parse(f"""
      g ({element}[m, 600] x) => ({element}[m, 600] y, {element}[m, 130] z) {{
        q = Transpose <perm = [1, 0]> (wq)
        k = Transpose <perm = [1, 0]> (wk)
        o = Transpose <perm = [1, 0]> (wo)
        a = MatMul (x, q)
        z = MatMul (x, k)
        b = Relu (a)
        y = MatMul (b, o)
      }}""")
    model.graph.initializer.extend(constants)
    x = rand(rows, 600, seed=9).astype(kind)
    compiled = sardonyx.compile(model)
    compiled.save(tmp_path / "saved")
    exact = [w.astype(kind).astype(np.float64) for w in (wq, wk, wo)]
    a = x.astype(np.float64) @ exact[0].T
    want = {"y": np.maximum(a, 0) @ exact[2].T, "z": x.astype(np.float64) @ exact[1].T}
    for m in (compiled, sardonyx.load(tmp_path / "saved")):
        assert kernels(m, {"x": x}).count("gemm") == 2
        for name, value in m.run({"x": x}).items():
            # Sums of 600 terms in another order, or (float16) results and the layer between rounded to 11 bits.
            np.testing.assert_allclose(value, want[name], rtol=0, atol=np.abs(want[name]).max() * (2e-6 if kind is np.float32 else 2e-3))  # fmt: skip
    stored = sum(w.size for w in (wq, wk, wo)) * np.dtype(kind).itemsize
    # The two that are merged are stored once more, and nothing else is.
    merged = (wq.size + wk.size) * np.dtype(kind).itemsize
    assert (tmp_path / "saved").stat().st_size < stored + merged + 200_000


def test_tokens_between_a_gemm_and_a_depthwise_convolution_are_not_copied():
    """Transposed and viewed as an image, which has its channels last in memory: how the GEMM writes them."""
    model = parse("""
      g (float[n, 48, 20] x) => (float[n, 48, 24] y) {
        a = MatMul (x, w)
        b = Add (a, bias)
        t = Transpose <perm = [0, 2, 1]> (b)
        image = Constant <value_ints = [-1, 32, 6, 8]> ()
        i = Reshape (t, image)
        c = Conv <pads = [1, 1, 1, 1], group = 32> (i, k)
        tokens = Constant <value_ints = [-1, 32, 48]> ()
        f = Reshape (c, tokens)
        u = Transpose <perm = [0, 2, 1]> (f)
        r = Sin (u)
        y = MatMul (r, v)
      }""")
    weights = {"w": rand(20, 32), "bias": rand(32, seed=1), "k": rand(32, 1, 3, 3, seed=2), "v": rand(32, 24, seed=3)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    feed = {"x": rand(2, 48, 20, seed=4)}
    got, want = sardonyx.compile(model), sardonyx.compile(model, fuse=False)
    # Sines of sums of 9 values of up to 20, in another order; then sums of 32 terms.
    np.testing.assert_allclose(got.run(feed)["y"], want.run(feed)["y"], rtol=1e-4, atol=5e-4)
    assert len(kernels(got, feed)) == 4  # GEMM with bias, convolution, sine, GEMM


@pytest.mark.parametrize("dims", [{}, {"n": 1, "t": 40}])
def test_gemms_of_heads_between_tokens_are_gemms(dims):
    """Not attention, as there is no softmax: what lies apart in memory is copied for the host's GEMM."""
    model = parse("""
      g (float[n, t, 96] x) => (float[n, t, 32] y) {
        shape = Constant <value_ints = [0, 0, 3, 2, 16]> ()
        s = Reshape (x, shape)
        u = Transpose <perm = [2, 0, 3, 1, 4]> (s)
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        two = Constant <value_int = 2> ()
        q = Gather (u, zero)
        k = Gather (u, one)
        v = Gather (u, two)
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        scores = MatMul (q, kt)
        p = Relu (scores)
        o = MatMul (p, v)
        ot = Transpose <perm = [0, 2, 1, 3]> (o)
        whole = Constant <value_ints = [0, 0, 32]> ()
        y = Reshape (ot, whole)
      }""")
    compiled = sardonyx.compile(model, dims=dims)
    for n, t in [(1, 40)] if dims else [(1, 40), (3, 17)]:
        x = rand(n, t, 96)
        q, k, v = x.astype(np.float64).reshape(n, t, 3, 2, 16).transpose(2, 0, 3, 1, 4)
        want = (np.maximum(q @ k.swapaxes(2, 3), 0) @ v).transpose(0, 2, 1, 3).reshape(n, t, 32)
        # Sums of 40 products of sums of 16.
        np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=1e-4, atol=1e-4)
        assert kernels(compiled, {"x": x}).count("gemm") == 2


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
@pytest.mark.parametrize("pads", [(0, 0, 1, 1), (1, 1, 1, 1), (0, 3, 2, 0)])
@pytest.mark.parametrize("groups, stride", [(1, 1), (1, 2), (16, 2), (4, 1)])
def test_pads_before_a_convolution_are_its_own(pads, groups, stride, device):
    """As models from TensorFlow pad: the image is not copied."""
    top, left, bottom, right = pads
    model = parse(f"""
      g (float[n, 16, 13, 11] x) => (float[n, 16, h, w] y) {{
        pads = Constant <value_ints = [0, 0, {top}, {left}, 0, 0, {bottom}, {right}]> ()
        r = Conv (x, v)
        p = Pad (r, pads)
        y = Conv <group = {groups}, strides = [{stride}, {stride}], pads = [1, 0, 0, 1]> (p, w)
      }}""")
    w = rand(16, 16 // groups, 3, 3)
    v = np.eye(16, dtype=np.float32)[:, :, None, None]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for a, name in ((w, "w"), (v, "v")))
    feed = {"x": rand(2, 16, 13, 11, seed=1)}
    got = sardonyx.compile(model, device=device)
    want = sardonyx.compile(model, fuse=False).run(feed)["y"]
    # 144 products a sum, in another order, or by Winograd's algorithm: values up to about 40
    np.testing.assert_allclose(got.run(feed)["y"], want, rtol=2e-5, atol=5e-4)
    assert len(kernels(got, feed)) <= 4  # two convolutions, the image's order before and after them


@pytest.mark.parametrize("kind", ["float", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("sizes", [(1, 3, 64), (9000, 5, 8192, 1)])
def test_parts_of_a_concatenation(kind, sizes):
    """Along the innermost dim: a copy of each part. 9000 is more than a work item takes, one part is computed, one is read twice."""
    names = [f"x{k}" for k in range(len(sizes))]
    inputs = ", ".join(f"{kind}[n, {size}] {name}" for name, size in zip(names, sizes))
    width = sum(sizes) + sizes[0]
    negate = "Not" if kind == "bool" else "Neg" if kind != "uint8" else "BitwiseNot"
    model = parse(f"""
      g ({inputs}) => ({kind}[n, {width}] y) {{
        z = {negate} (x1)
        y = Concat <axis = 1> (x0, {", ".join(["z", *names[2:], "x0"])})
      }}""")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, kind.upper()))
    rng = np.random.default_rng(0)
    feed = {name: rng.integers(0, 2 if kind == "bool" else 100, (3, size)).astype(dtype) for name, size in zip(names, sizes)}  # fmt: skip
    z = np.logical_not(feed["x1"]) if kind == "bool" else ~feed["x1"] if kind == "uint8" else -feed["x1"]
    want = np.concatenate([feed["x0"], z, *(feed[n] for n in names[2:]), feed["x0"]], 1)
    np.testing.assert_array_equal(sardonyx.compile(model)(**feed)["y"], want)


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("channels", [3, 70])
def test_pooling_that_is_stored_and_computed_with(pool, channels):
    """Two nodes read it, one element by element; channels are last between the convolutions."""
    model = parse(f"""
      g (float[1, {channels}, 11, 9] x, float[{channels}] s) => (float[1, {channels}, 5, 4] y, float[1, {channels}, 5, 4] z) {{
        a = Conv (x, w)
        p = {pool} <kernel_shape = [3, 3], strides = [2, 2]> (a)
        shape = Constant <value_ints = [1, {channels}, 1, 1]> ()
        t = Reshape (s, shape)
        q = Mul (p, t)
        r = Relu (q)
        y = Conv (r, w)
        z = Conv (p, w)
      }}""")
    w = 0.1 * rand(channels, channels, 1, 1)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    x, s = rand(1, channels, 11, 9, seed=1), rand(channels, seed=2)
    mix = lambda v: np.einsum("nchw,oc->nohw", v, w[:, :, 0, 0])
    windows = np.lib.stride_tricks.sliding_window_view(mix(x), (3, 3), (2, 3))[:, :, ::2, ::2]
    pooled = windows.max((4, 5)) if pool == "MaxPool" else windows.mean((4, 5))
    got = sardonyx.compile(model)(x=x, s=s)
    # Sums of 70 products of 70 terms, in another order.
    np.testing.assert_allclose(got["z"], mix(pooled), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["y"], mix(np.maximum(pooled * s[:, None, None], 0)), rtol=1e-4, atol=1e-5)
