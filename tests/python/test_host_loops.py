"""Loops of the host: sums across memory, short runs of memory, few long sums, and transposes."""

import numpy as np
import onnx.parser
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def parse(text, **weights):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    return model


def normalised(x, groups, scale, bias):
    rows = x.astype(np.float64).reshape(len(x), groups, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    return rows.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]


GROUP_NORM = """
  g (float[n, {channels}, h, w] x) => (float[n, 8, h, w] y) {{
    a = Conv (x, p)
    rows = Constant <value_ints = [0, {groups}, -1]> ()
    v = Reshape (a, rows)
    m = InstanceNormalization <epsilon = 1e-5> (v, one, zero)
    shape = Shape (a)
    i = Reshape (m, shape)
    s = Mul (i, scale)
    t = Add (s, bias)
    y = Conv (t, q)
  }}"""


@pytest.mark.parametrize("dims, trained", [({}, True), ({}, False), ({"n": 1, "h": 24, "w": 20}, True)])
@pytest.mark.parametrize(
    "channels, groups",
    [
        (64, 32),  # runs of 2 channels, which are shorter than a vector
        (96, 3),  # runs of 32
        (66, 11),  # of 6
        (48, 1),  # one run of memory
        (40, 40),  # columns
    ],
)
def test_group_norms_of_images_with_channels_last(channels, groups, dims, trained):
    """As PyTorch exports GroupNorm. Untrained, scale and bias are 1 and 0 and vanish; the mean is far from 0."""
    scale = 1 + rand(channels, seed=1) / 4 if trained else np.ones(channels, np.float32)
    bias = rand(channels, seed=2) if trained else np.zeros(channels, np.float32)
    p, q = np.eye(channels, dtype=np.float32), rand(8, channels, seed=3) / 8
    model = parse(
        GROUP_NORM.format(channels=channels, groups=groups),
        p=p[:, :, None, None],
        q=q[:, :, None, None],
        scale=scale[:, None, None],
        bias=bias[:, None, None],
        one=np.ones(groups, np.float32),
        zero=np.zeros(groups, np.float32),
    )
    compiled = sardonyx.compile(model, dims=dims)
    for n, h, w in [(1, 24, 20)] if dims else [(1, 24, 20), (3, 7, 5), (2, 1, 1)]:
        x = 10 + rand(n, channels, h, w, seed=4)
        want = np.einsum("nchw,oc->nohw", normalised(x, groups, scale, bias), q.astype(np.float64))
        # Values of 10 lose 4 of 24 bits when the mean is subtracted; then up to 96 products a sum. One pixel of one
        # channel is its own mean.
        np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=1e-4, atol=1e-4 if h > 1 else 2e-3)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape, axis", [((1, 200_000), 1), ((70_001, 30), 0), ((5, 131_072), 1), ((3, 40_000, 7), 1)])
def test_long_sums_with_few_results(shape, axis, threads):
    model = parse(f"""
      g (float[{", ".join(map(str, shape))}] x) => (float[a] sum, float[b] most, float[c] deviation) {{
        axes = Constant <value_ints = [{axis}]> ()
        sum = ReduceSum <keepdims = 0> (x, axes)
        most = ReduceMax <keepdims = 0> (x, axes)
        mean = ReduceMean (x, axes)
        d = Sub (x, mean)
        e = Mul (d, d)
        deviation = ReduceMean <keepdims = 0> (e, axes)
      }}""")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    x = 100 + rand(*shape)
    wide = x.astype(np.float64)
    got = sardonyx.compile(model, threads=threads)(x=x)
    # A single float32 accumulator would be wrong by 1e-4 after 100,000 terms of one sign.
    np.testing.assert_allclose(got["sum"], wide.sum(axis), rtol=2e-6)
    np.testing.assert_array_equal(got["most"], x.max(axis))
    np.testing.assert_allclose(got["deviation"], wide.var(axis), rtol=2e-5)


@pytest.mark.parametrize("kind", ["int32", "int64", "double", "float16"])
def test_long_sums_of_other_types(kind):
    model = parse(f"""
      g ({kind}[n, 24, 96, 50] x) => ({kind}[n, 4] y) {{
        rows = Constant <value_ints = [0, 4, -1]> ()
        t = Transpose <perm = [0, 3, 1, 2]> (x)
        u = Slice (t, first, last, axes)
        v = Reshape (u, rows)
        two = Constant <value_ints = [2]> ()
        y = ReduceMax <keepdims = 0> (v, two)
      }}""", first=np.array([2]), last=np.array([50]), axes=np.array([1]))  # fmt: skip
    dtype = onnx.helper.tensor_dtype_to_np_dtype({"int32": 6, "int64": 7, "double": 11, "float16": 10}[kind])
    x = np.random.default_rng(0).integers(-1000, 1000, (2, 24, 96, 50)).astype(dtype)
    want = x.transpose(0, 3, 1, 2)[:, 2:].reshape(2, 4, -1).max(2)
    np.testing.assert_array_equal(sardonyx.compile(model)(x=x)["y"], want)


def test_softmax_over_channels():
    """Pixels next to each other are reduced side by side."""
    model = parse("g (float[n, 70, h, w] x) => (float[n, 70, h, w] y) { y = Softmax <axis = 1> (x) }")
    for shape in [(2, 70, 9, 11), (1, 70, 1, 1), (1, 70, 64, 3)]:
        x = 4 * rand(*shape)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(sardonyx.compile(model)(x=x)["y"], e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("kind", ["float", "float16", "int64", "bool", "uint8"])
@pytest.mark.parametrize("perm", [(0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
@pytest.mark.parametrize("symbolic", [True, False])
def test_transposes(kind, perm, symbolic):
    """In tiles of 16 x 16, four of them side by side, with what is left over; 600 is more than a work item takes."""
    for shape in [(2, 600, 50), (3, 16, 32), (17, 1, 40), (1, 7, 90), (2, 70, 203), (25, 64, 128)]:
        n, h, w = ("n", "h", "w") if symbolic else shape
        out = ", ".join(str((n, h, w)[p]) for p in perm)
        model = parse(f"g ({kind}[{n}, {h}, {w}] x) => ({kind}[{out}] y) {{ y = Transpose <perm = {list(perm)}> (x) }}")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, kind.upper()))
        x = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 120, shape).astype(dtype)
        np.testing.assert_array_equal(sardonyx.compile(model)(x=x)["y"], x.transpose(perm))


def test_transposes_within_a_sum():
    """Of two tensors that are read across memory, one that is read along it, and one that is read under a condition only."""
    model = parse("""
      g (float[n, h, w] x, float[n, h, w] z, float[n, w, h] u, float[n, h, w] c) => (float[n, w, k] y) {
        sum = Add (x, z)
        t = Transpose <perm = [0, 2, 1]> (sum)
        s = Sub (t, u)
        pads = Constant <value_ints = [0, 0, 3, 0, 0, 2]> ()
        q = Transpose <perm = [0, 2, 1]> (c)
        p = Pad (q, pads)
        r = Pad (s, pads)
        y = Mul (r, p)
      }""")
    compiled = sardonyx.compile(model)
    for n, h, w in [(1, 40, 33), (2, 16, 16), (3, 5, 20)]:
        x, z, c = (rand(n, h, w, seed=s) for s in range(3))
        u = rand(n, w, h, seed=3)
        want = np.pad(((x + z).transpose(0, 2, 1) - u) * c.transpose(0, 2, 1), ((0, 0), (0, 0), (3, 2)))
        np.testing.assert_allclose(compiled(x=x, z=z, u=u, c=c)["y"], want, rtol=1e-6)


@pytest.mark.parametrize("n", [5, 16, 31, 32, 33, 49, 197, "n"])
@pytest.mark.parametrize("masked", [True, False])
def test_softmax_of_rows(n, masked):
    """Terms past whole vectors are added in vectors too. Exponentials far below the row's maximum are 0 rather than subnormal: nothing else
    computes with them at a fraction of the speed."""
    model = parse(f"""
      g (float[b, 6, {n}] x, float[{n}] m) => (float[b, 6, {n}] y, float[b, 6, {n}] z) {{
        a = Add (x, m)
        y = Softmax <axis = -1> (a)
        z = LogSoftmax <axis = -1> (a)
      }}""")
    length = 77 if n == "n" else n
    x, m = 4 * rand(7, 6, length), np.zeros(length, np.float32)
    if masked:
        m[1::2] = -100
    x[0, 0, 0], x[0, 1, 1], x[0, 2] = np.nan, -np.inf, 1e30
    a = x.astype(np.float64) + m
    e = np.exp(a - a.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True)
    got = sardonyx.compile(model)(x=x, m=m)
    np.testing.assert_allclose(got["y"], want, rtol=2e-6, atol=2e-38)
    np.testing.assert_allclose(
        got["z"][1:], (a - a.max(-1, keepdims=True) - np.log(e.sum(-1, keepdims=True)))[1:], rtol=2e-6, atol=1e-5
    )
    if masked:
        assert not got["y"][1:, :, 1::2][want[1:, :, 1::2] < 1e-40].any()


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"])
def test_reductions_along_rows(op, kind):
    """Lanes are folded in vectors; NaN stays NaN."""
    for n in (33, 49, 64, 95, "n"):
        length = 70 if n == "n" else n
        model = parse(
            f"g ({kind}[b, {n}] x) => ({kind}[b] y) {{ axis = Constant <value_ints = [1]> () y = {op} <keepdims = 0> (x, axis) }}"
        )
        x = rand(9, length).astype(np.float32 if kind == "float" else np.float64)
        x[3, length - 1], x[4, 0] = np.nan, np.nan
        function = {
            "ReduceSum": np.sum,
            "ReduceMax": np.max,
            "ReduceMin": np.min,
            "ReduceProd": np.prod,
            "ReduceMean": np.mean,
        }[op]
        np.testing.assert_allclose(
            sardonyx.compile(model)(x=x)["y"], function(x.astype(np.float64), 1), rtol=2e-5, atol=1e-5
        )


@pytest.mark.parametrize("channels, side", [(64, 12), (24, 7), (3, 5)])
@pytest.mark.parametrize("threads", [1, 2])
def test_pooled_pixels_of_a_convolution(channels, side, threads):
    """Pooling by attention, as in GCNet: a view of the image is multiplied by a softmax over its pixels."""
    w, score = rand(channels, channels, 3, 3, seed=1) / 16, rand(1, channels, 1, 1, seed=2)
    model = parse(
        f"""
  g (float[n, {channels}, h, w] x) => (float[n, {channels}, 1] y, float[n, {channels}, h, w] image) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, k)
    s = Sigmoid (a)
    image = Mul (a, s)
    rows = Constant <value_ints = [0, 0, -1]> ()
    pixels = Reshape (image, rows)
    c = Conv (image, score)
    flat = Reshape (c, rows)
    p = Softmax <axis = 2> (flat)
    t = Transpose <perm = [0, 2, 1]> (p)
    y = MatMul (pixels, t)
  }}""",
        k=w,
        score=score,
    )
    x = rand(2, channels, side, side + 1, seed=3)
    got = sardonyx.compile(model, threads=threads)(x=x)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    a = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))
    image = a / (1 + np.exp(-a))
    scores = np.einsum("nchw,c->nhw", image, score[0, :, 0, 0]).reshape(2, 1, -1)
    p = np.exp(scores - scores.max(2, keepdims=True))
    want = image.reshape(2, channels, -1) @ (p / p.sum(2, keepdims=True)).transpose(0, 2, 1)
    # Sums of 576 products of about 1/16, by Winograd; their error is multiplied by the scores' sum over channels.
    np.testing.assert_allclose(got["image"], image, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got["y"], want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channels, size, scale", [(21, 8, 8), (3, 5, 3), (16, 7, 2)])
def test_images_resized_by_interpolation(channels, size, scale):
    """The indices of what is loaded are cast from floats, in vectors."""
    model = parse(
        f"""
  g (float[n, {channels}, {size}, {size}] x) => (float[n, {channels}, h, w] y) {{
    y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , s)
  }}""",
        s=np.array([1, 1, scale, scale], np.float32),
    )
    x = rand(2, channels, size, size)
    at = np.clip((np.arange(size * scale) + 0.5) / scale - 0.5, 0, size - 1)
    low = np.floor(at).astype(int)
    high, part = np.minimum(low + 1, size - 1), at - low
    rows = x[:, :, low] * (1 - part)[:, None] + x[:, :, high] * part[:, None]
    want = rows[..., low] * (1 - part) + rows[..., high] * part
    # Coordinates to 64 are rounded to 2^-18, which differences of pixels to 8 multiply.
    np.testing.assert_allclose(sardonyx.compile(model)(x=x)["y"], want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("by", [3, 2**31, -(2**40)])
def test_casts_of_large_integers(by):
    model = parse(
        """
  g (int64[n] x) => (float[n, 8] y, int64[n, 8] z) {
    shape = Constant <value_ints = [1, 8]> ()
    one = Constant <value_int = 1> ()
    first = Constant <value_int = 0> ()
    end = Constant <value_int = 8> ()
    i = Range (first, end, one)
    j = Mul (i, by)
    f = Cast <to = 1> (j)
    rows = Unsqueeze (x, axis)
    r = Cast <to = 1> (rows)
    y = Add (r, f)
    t = Cast <to = 7> (f)
    z = Add (rows, t)
  }""",
        by=np.array(by, np.int64),
        axis=np.array([1], np.int64),
    )
    x = np.arange(5, dtype=np.int64)
    got = sardonyx.compile(model)(x=x)
    f = (np.arange(8) * np.int64(by)).astype(np.float32)
    np.testing.assert_array_equal(got["y"], x[:, None].astype(np.float32) + f)
    np.testing.assert_array_equal(got["z"], x[:, None] + f.astype(np.int64))


def test_a_transposed_residual_beside_a_split_sum():
    """The residual of the last convolution is the copy that the first one reads; a mean over all pixels is divided."""
    channels, side = 16, 56
    w, q = rand(channels, 1, 3, 3, seed=1) / 3, rand(channels, channels, 1, 1, seed=2) / 4
    model = parse(
        f"""
  g (float[n, {side}, {side}, {channels}] tokens) => (float[n, {channels}, {side}, {side}] y) {{
    t = Tanh (tokens)
    x = Transpose <perm = [0, 3, 1, 2]> (t)
    a = Conv <pads = [1, 1, 1, 1], group = {channels}> (x, w)
    r = Relu (a)
    axes = Constant <value_ints = [2, 3]> ()
    mean = ReduceMean <keepdims = 1> (r, axes)
    gate = Sigmoid (mean)
    s = Mul (r, gate)
    p = Conv (s, q)
    y = Add (p, x)
  }}""",
        w=w,
        q=q,
    )
    tokens = rand(2, side, side, channels, seed=3)
    x = np.tanh(tokens.astype(np.float64)).transpose(0, 3, 1, 2)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    r = np.maximum(np.einsum("nchwij,cij->nchw", windows, w[:, 0].astype(np.float64)), 0)
    s = r / (1 + np.exp(-r.mean((2, 3), keepdims=True)))
    want = np.einsum("nchw,oc->nohw", s, q[:, :, 0, 0].astype(np.float64)) + x
    # Sums of 16 and 9 products of about 1.
    np.testing.assert_allclose(sardonyx.compile(model)(tokens=tokens)["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["float", "float16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_extremes(op, last, kind):
    """Lanes of long rows search side by side. Of equal elements the first or the last one counts, of NaN the first."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, kind.upper()))
    for n in (64, 79, 200, "n"):
        length = 5 if n == "n" else n
        rng = np.random.default_rng(0)
        x = np.stack([rng.integers(0, most, length) for most in (1, 3, 9, 40, 100, 250, 7, 7)]).astype(dtype)
        if np.issubdtype(dtype, np.floating):
            x[1, 3:], x[2, length - 1], x[3, 0] = np.nan, np.nan, np.nan
            x[4], x[5] = np.inf, -np.inf
        model = parse(
            f"g ({kind}[b, {n}] x) => (int64[b] i) {{ i = {op} <axis = 1, keepdims = 0, select_last_index = {last}> (x) }}"
        )
        find = np.argmax if op == "ArgMax" else np.argmin
        want = find(x, 1)
        if last:
            reversed_at = length - 1 - find(x[:, ::-1], 1)
            want = np.where(np.isnan(x.astype(np.float64)).any(1), want, reversed_at)
        np.testing.assert_array_equal(sardonyx.compile(model)(x=x)["i"], want)


def sampled(images, places):
    """Bilinear samples with zeros outside, in float64: images [n, c, h, w], places [n, q, p, 2]. NaN is -1."""
    height, width = images.shape[2:]
    places = np.where(np.isnan(places), -1, places).astype(np.float64)
    x, y = ((places[..., 0] + 1) * width - 1) / 2, ((places[..., 1] + 1) * height - 1) / 2
    out = np.zeros((*images.shape[:2], *x.shape[1:]))
    for i, j in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        row, column = np.floor(y).astype(int) + i, np.floor(x).astype(int) + j
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        weight = (1 - abs(y - row)) * (1 - abs(x - column)) * inside
        for n in range(len(images)):
            out[n] += weight[n] * images[n][:, row[n].clip(0, height - 1), column[n].clip(0, width - 1)]
    return out


@pytest.mark.parametrize("channels", [5, 8, 32, 40])
@pytest.mark.parametrize("summed", [False, True])
def test_samples_of_images_with_channels_last(channels, summed):
    """As deformable attention reads values: tokens of two images and two heads. Some places are outside."""
    tail = "w = Mul (s, f)\n y = ReduceSum <keepdims = 0> (w, last)" if summed else "y = Mul (s, f)"
    model = parse(
        f"""
      g (float[b, 42, {2 * channels}] v, float[heads, q, 6, 2] p, float[heads, 1, q, 6] f) => (float[r, c, k{"" if summed else ", 6"}] y) {{
        split = Constant <value_ints = [30, 12]> ()
        last = Constant <value_ints = [-1]> ()
        heads = Constant <value_ints = [0, 0, 2, {channels}]> ()
        a = Reshape (v, heads)
        b = Transpose <perm = [0, 2, 3, 1]> (a)
        large, small = Split <axis = 3> (b, split)
        image0 = Constant <value_ints = [-1, {channels}, 5, 6]> ()
        image1 = Constant <value_ints = [-1, {channels}, 3, 4]> ()
        c0 = Reshape (large, image0)
        c1 = Reshape (small, image1)
        places = Constant <value_ints = [3, 3]> ()
        p0, p1 = Split <axis = 2> (p, places)
        s0 = GridSample <align_corners = 0, mode = "bilinear", padding_mode = "zeros"> (c0, p0)
        s1 = GridSample <align_corners = 0, mode = "bilinear", padding_mode = "zeros"> (c1, p1)
        s = Concat <axis = 3> (s0, s1)
        {tail}
      }}"""
    )
    v, p, f = rand(2, 42, 2 * channels), rand(4, 7, 6, 2, seed=1), rand(4, 1, 7, 6, seed=2)
    p[1, 2], p[3, 0, 0, 1] = np.nan, 5
    heads = v.astype(np.float64).reshape(2, 42, 2, channels).transpose(0, 2, 3, 1).reshape(4, channels, 42)
    images = heads[..., :30].reshape(4, channels, 5, 6), heads[..., 30:].reshape(4, channels, 3, 4)
    want = f * np.concatenate([sampled(images[0], p[:, :, :3]), sampled(images[1], p[:, :, 3:])], axis=3)
    for dims in ({}, {"b": 2, "heads": 4, "q": 7}):
        got = sardonyx.compile(model, dims=dims)(v=v, p=p, f=f)["y"]
        np.testing.assert_allclose(got, want.sum(-1) if summed else want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7, 8, 12, 15, 16, 17])
def test_quantised_images_of_few_channels(channels):
    """An image becomes 8 bits with channels last, a convolution with as few results, and a concatenation of few channels."""
    rng = np.random.default_rng(channels)
    x = rng.integers(-60, 60, (2, channels, 9, 11)).astype(np.float32)
    weights = {"w": rng.integers(-9, 9, (channels, channels, 3, 3)).astype(np.int8), "half": np.float32(0.5)}
    weights |= {"one": np.float32(1), "zero": np.int8(0), "four": np.float32(4), "three": np.int8(3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "half", "three"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "half", "three"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "one", "zero"], ["dw"]),
        helper.make_node("Conv", ["d", "dw"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Concat", ["r", "x"], ["both"], axis=1),
        helper.make_node("QuantizeLinear", ["both", "four", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, (2, 2 * channels, 9, 11))],
        [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    d = (np.clip(np.rint(x / 0.5) + 3, -128, 127) - 3) * 0.5
    padded = np.pad(d, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    c = np.maximum(np.einsum("nchwij,mcij->nmhw", windows, weights["w"].astype(np.float64)), 0)
    want = np.clip(np.rint(np.concatenate([c, x], 1) / 4), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(sardonyx.compile(model.SerializeToString())(x=x)["y"], want)
