"""Loop kernels over windows (depthwise convolutions, pooling) on simulated AMD GPUs, compared with the host."""

import numpy as np
import onnx.numpy_helper
import pytest
import sardonyx
from simulated import counted
from simulated_loops import CHIPS, TYPES, compare, parse, rand

WINDOWS = {
    # channels, filters, group, kernel, strides, dilations, pads
    "depthwise 3x3": (16, 16, 16, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "depthwise of 5 channels": (5, 5, 5, [3, 3], [1, 1], [1, 1], [0, 0, 0, 0]),
    "depthwise 3x3/2": (8, 8, 8, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1]),
    "depthwise 5x3/2x1, uneven pads": (8, 8, 8, [5, 3], [2, 1], [1, 1], [2, 0, 1, 1]),
    "depthwise dilated": (8, 8, 8, [3, 3], [1, 1], [2, 3], [2, 3, 2, 3]),
    "depthwise, strides and dilations": (8, 8, 8, [3, 3], [2, 2], [2, 2], [2, 2, 2, 2]),
    "depthwise 7x7": (8, 8, 8, [7, 7], [1, 1], [1, 1], [3, 3, 3, 3]),
    "depthwise 11x1": (8, 8, 8, [11, 1], [1, 1], [1, 1], [5, 0, 5, 0]),
    "two filters a channel": (8, 16, 8, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "groups of 4": (16, 16, 4, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "groups of 4 to 2": (16, 8, 4, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1]),
    "groups of 3": (12, 12, 4, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "groups of 8": (32, 32, 4, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "groups of 8 to 16": (16, 32, 2, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1]),
    "three filters": (24, 3, 1, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "three filters of few terms": (12, 3, 1, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "one filter": (32, 1, 1, [3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
    "seven filters of a line": (64, 7, 1, [1, 5], [1, 2], [1, 1], [0, 2, 0, 2]),
}


def between(kind, body, channels, filters, kernel, rank=2):
    """A window between pointwise convolutions, which want channels last, and the same alone, channels first."""
    space = ["h", "w", "d"][:rank]
    ones = ", ".join(["1"] * rank)
    image = ", ".join(space)
    names = ", ".join(f"o{k}" for k in range(rank))
    weights = f"{kind}[{filters}, {kernel}] f, {kind}[{filters}] b, " if kernel else ""
    return f"""g ({kind}[n, {channels}, {image}] x, {weights}{kind}[{channels}, {channels}, {ones}] k, {kind}[8, {filters}, {ones}] l)
        => ({kind}[n, 8, {names}] y, {kind}[n, {filters}, {names}] z, {kind}[n, {filters}, {names}] u) {{
      a = Conv (x, k)
      {body("a", "c")}
      y = Conv (c, l)
      {body("x", "z")}
      u = Exp (z)
    }}"""


@pytest.mark.parametrize("chip, kind", [("gfx1100", "float"), ("gfx942", "float16")])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.slow(part=4)
def test_windows_of_convolutions(window, kind, chip):
    """With an activation after, weights known and not, batch and image of any size: tiles of packs, and what they leave."""
    channels, filters, group, kernel, strides, dilations, pads = WINDOWS[window]
    t = TYPES[kind]
    attributes = (
        f"group = {group}, kernel_shape = {kernel}, strides = {strides}, dilations = {dilations}, pads = {pads}"
    )

    def body(x, y):
        return f"c{x} = Conv <{attributes}> ({x}, f, b)\n h{x} = HardSigmoid (c{x})\n {y} = Mul (c{x}, h{x})"

    each = f"{channels // group}, {kernel[0]}, {kernel[1]}"
    text = between(kind, body, channels, filters, each)
    weights = {
        "f": rand(t, filters, channels // group, *kernel, seed=3) / 4,
        "b": rand(t, filters, seed=4),
        "k": rand(t, channels, channels, 1, 1, seed=5) / 4,
        "l": rand(t, 8, filters, 1, 1, seed=6) / 4,
    }
    sizes = [(1, 11, 13), (2, 16, 8), (3, 12, 41)]
    x = [rand(t, n, channels, h, w, seed=h) / 4 for n, h, w in sizes]
    rtol, atol = (2e-2, 5e-2) if kind == "float16" else (1e-4, 1e-3)
    compare(text, chip, [{"x": v, **weights} for v in x], rtol=rtol, atol=atol)
    # Weights and sizes that are known.
    model = parse(text)
    for name in weights:
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights[name], name))
    kept = [i for i in model.graph.input if i.name == "x"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for n, h, w in sizes:
        for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, (n, channels, h, w)):
            dim.dim_value = size
        feed = {"x": rand(t, n, channels, h, w, seed=h) / 4}
        want = sardonyx.compile(model).run(feed)
        got = sardonyx.compile(model, device=f"sim:{chip}").run(feed)
        for name in want:
            a, b = got[name].astype(np.float64), want[name].astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "pool",
    [
        "MaxPool <kernel_shape = {3}, pads = {1p}, strides = {2}>",
        "MaxPool <kernel_shape = {3}, dilations = {2}>",
        "AveragePool <kernel_shape = {3}, pads = {1p}>",
        "AveragePool <kernel_shape = {2}, strides = {2}, ceil_mode = 1>",
        "AveragePool <kernel_shape = {3}, pads = {1p}, strides = {2}, count_include_pad = 1>",
        "LpPool <kernel_shape = {2}, strides = {2}>",
    ],
)
@pytest.mark.slow(part=4)
def test_windows_of_pools(pool, rank, chip):
    for k in (1, 2, 3):
        pool = pool.replace(f"{{{k}}}", str([k] * rank)).replace(f"{{{k}p}}", str([k] * 2 * rank))

    def body(x, y):
        return f"p{x} = {pool} ({x})\n {y} = Tanh (p{x})"

    ones = [1] * rank
    weights = {"k": rand(np.float32, 8, 8, *ones), "l": rand(np.float32, 8, 8, *ones, seed=1)}
    feeds = [{"x": rand(np.float32, n, 8, *([9, 7, 11][:rank]), seed=n) / 4, **weights} for n in (1, 3)]
    compare(between("float", body, 8, 8, "", rank), chip, feeds, rtol=1e-4, atol=1e-4)


# Windows that slide along packs of a row, and rows of odd length, where they do not: node, weights, sizes of the image.
ROWS = {
    "7x7": ("Conv <group = 4, pads = [3, 3, 3, 3]>", [7, 7], [16, 24]),
    "7x7 of 14": ("Conv <group = 4, pads = [3, 3, 3, 3]>", [7, 7], [9, 14]),
    "5x5, no padding": ("Conv <group = 4>", [5, 5], [12, 32]),
    "5x5/2": ("Conv <group = 4, pads = [2, 1, 2, 3], strides = [2, 2]>", [5, 5], [20, 32]),
    "7x7/3, dilated": ("Conv <group = 4, pads = [6, 6, 6, 7], strides = [1, 3], dilations = [2, 2]>", [7, 7], [15, 24]),
    "9x9": ("Conv <group = 4, pads = [4, 4, 4, 4]>", [9, 9], [11, 16]),
    "31x3 of 16": ("Conv <group = 4, pads = [15, 1, 15, 1]>", [31, 3], [16, 16]),
    "31 taps": ("Conv <group = 4, pads = [0, 15, 0, 15]>", [1, 31], [3, 40]),
    "5x5 of odd rows": ("Conv <group = 4, pads = [2, 2, 2, 2]>", [5, 5], [12, 17]),
    "maxima": ("MaxPool <kernel_shape = [5, 4], pads = [2, 1, 2, 2]>", None, [12, 16]),
    "maxima/2": ("MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>", None, [12, 32]),
    "maxima of 13 x 13": ("MaxPool <kernel_shape = [13, 13], pads = [6, 6, 6, 6]>", None, [10, 24]),
    "means": ("AveragePool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]>", None, [12, 16]),
    "means of 9 x 9": (
        "AveragePool <kernel_shape = [9, 9], pads = [4, 4, 4, 4], count_include_pad = 1>",
        None,
        [20, 24],
    ),
    "means of 8 x 8/2": ("AveragePool <kernel_shape = [8, 8], strides = [2, 2]>", None, [20, 24]),
}


@pytest.mark.parametrize("chip, kind", [("gfx1100", "float16"), ("gfx942", "float"), ("gfx1201", "bfloat16")])
@pytest.mark.parametrize("window", ROWS)
@pytest.mark.slow
def test_windows_of_rows(window, chip, kind):
    """Images with channels first, of known and unknown sizes; with an activation after."""
    node, kernel, (h, w) = ROWS[window]
    t = TYPES[kind]
    name, _, attributes = node.partition(" ")
    inputs = "x, f" if kernel else "x"
    declared = f"{kind}[4, 1, {kernel[0]}, {kernel[1]}] f, " if kernel else ""
    feeds = {"f": rand(t, 4, 1, *kernel, seed=3) / 4} if kernel else {}
    feeds["x"] = rand(t, 2, 4, h, w)
    rtol, atol = (1e-4, 1e-4) if kind == "float" else (2e-2, 2e-2)
    for sizes in (f"2, 4, {h}, {w}", "n, 4, h, w"):
        compare(
            f"""g ({declared}{kind}[{sizes}] x) => ({kind}[n, 4, p, q] y) {{
              c = {name} {attributes} ({inputs})
              y = Relu (c)
            }}""",
            chip,
            [feeds],
            rtol=rtol,
            atol=atol,
        )


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["uint8", "int8", "int32", "double"])
def test_windows_of_other_types(kind, chip):
    pools = "MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (t)"
    text = f"""g ({kind}[n, 8, 12, c] x) => ({kind}[n, 8, 12, c] y, {kind}[n, c, 8, 12] z) {{
      t = Transpose <perm = [0, 3, 1, 2]> (x)
      p = {pools}
      q = Sub (p, t)
      y = Transpose <perm = [0, 2, 3, 1]> (q)
      z = Add (p, p)
    }}"""
    if kind == "int32":  # no pooling of it: a sum over windows in its place
        text = text.replace(pools, "ReduceSum <keepdims = 1> (t, axes)").replace(
            "t = T", "axes = Constant <value = int64[1] {1}> ()\n t = T"
        )
        text = text.replace("int32[n, c, 8, 12] z", "int32[n, 1, 8, 12] z")
    t = {"uint8": np.uint8, "int8": np.int8, "int32": np.int32, "double": np.float64}[kind]
    x = np.random.default_rng(5).integers(-100, 100, (2, 8, 12, 16)).astype(t)
    compare(text, chip, [{"x": x}, {"x": x[..., :5].copy()}], rtol=1e-12)


@pytest.mark.parametrize("chip", CHIPS)
def test_several_outputs_of_a_window(chip):
    """What reads a pooled value beside the model's output, and two windows that meet in one loop."""
    text = """g (float[n, 8, 10, 12] x) => (float[n, 8, 10, 12] p, float[n, 8, 10, 12] y, float[n, 8, 10, 12] z) {
      p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
      a = AveragePool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (x)
      s = Sigmoid (p)
      y = Mul (s, x)
      z = Sub (p, a)
      i = Identity (z)
    }"""
    compare(text, chip, [{"x": rand(np.float32, n, 8, 10, 12, seed=n)} for n in (1, 4)])


#: wave-instructions for 64 (32) outputs in float16: packs of 8, tiles and what they cost in addresses and waits
BOUNDS = {
    "Conv <group = 64, pads = [1, 1, 1, 1]> (t, w)": ([64, 1, 3, 3], 60),
    "Conv <group = 64, pads = [2, 2, 2, 2], strides = [2, 2]> (t, w)": ([64, 1, 5, 5], 280),
    "Conv <group = 16, pads = [1, 1, 1, 1]> (t, w)": ([64, 4, 3, 3], 215),
    "MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (t)": (None, 110),
    "AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (t)": (None, 50),
}


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("layout", ["channels last", "channels first"])
@pytest.mark.parametrize("operator", BOUNDS)
def test_instructions_of_windows(operator, layout, chip):
    """Few enough to wait for memory, not for them: whatever stands after the windows. A team of threads for each sum took 25,000."""
    shape, bound = BOUNDS[operator]
    last = layout == "channels last"
    image = "1, 56, 56, 64" if last else "1, 64, 56, 56"
    before = "t = Transpose <perm = [0, 3, 1, 2]> (x)" if last else "t = Identity (x)"
    after = "y = Transpose <perm = [0, 2, 3, 1]> (r)" if last else "y = Identity (r)"
    model = parse(
        f"g (float16[{image}] x) => (float16[a, b, c, d] y) {{ {before}\n c = {operator}\n r = Relu (c)\n {after} }}"
    )
    if shape:
        model.graph.initializer.append(onnx.numpy_helper.from_array(rand(np.float16, *shape), "w"))
    gpu = sardonyx.compile(model, device=f"sim:{chip}")
    x = rand(np.float16, *(int(d) for d in image.split(", ")))
    gpu.run({"x": x})
    with counted() as kinds:
        y = gpu.run({"x": x})["y"]
    waves = y.size / (64 if chip.startswith("gfx9") else 32)
    count = sum(kinds.values()) / waves
    assert 1 < count < (bound if last else 4 * bound), (count, kinds)


def test_norm_behind_depthwise_windows():
    """The windows are channels last, as the norm and the GEMM after it read them; neither is computed in parts."""
    text = """g (float16[n, 32, h, w] x, float16[n, 32, h, w] e) => (float16[n, h, w, 64] y) {
      a = Add (x, e)
      d = Conv <group = 32, pads = [3, 3, 3, 3]> (a, k)
      t = Transpose <perm = [0, 2, 3, 1]> (d)
      l = LayerNormalization <axis = -1> (t, s)
      y = MatMul (l, m)
    }"""
    model = parse(text)
    weights = {"k": rand(np.float16, 32, 1, 7, 7) / 16, "s": rand(np.float16, 32), "m": rand(np.float16, 32, 64) / 8}
    for name, w in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(w, name))
    feed = {"x": rand(np.float16, 1, 32, 14, 14), "e": rand(np.float16, 1, 32, 14, 14, seed=1)}
    want = sardonyx.compile(model).run(feed)["y"].astype(np.float64)
    gpu = sardonyx.compile(model, device="sim:gfx942")
    got = gpu.run(feed)["y"].astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)
    assert len(gpu.kernels()) == 4, [k.nodes for k in gpu.kernels()]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["float", "float16"])
def test_depthwise_convolutions_of_tokens(chip, kind):
    """A linear layer's tokens, transposed and viewed as an image: the product writes tokens, which the windows read in packs of
    channels. So does what is written back, and a channel's mean over the image."""
    t = TYPES[kind]
    text = f"""g ({kind}[n, 96, 16] x, {kind}[16, 32] w, {kind}[32] b, {kind}[32, 1, 3, 3] f, {kind}[32] c)
        => ({kind}[n, 96, 32] y, {kind}[n, 32] m) {{
      p = MatMul (x, w)
      q = Add (p, b)
      r = Transpose <perm = [0, 2, 1]> (q)
      image = Constant <value = int64[4] {{0, 32, 8, 12}}> ()
      s = Reshape (r, image)
      u = Conv <group = 32, pads = [1, 1, 1, 1]> (s, f, c)
      tokens = Constant <value = int64[3] {{0, 32, 96}}> ()
      v = Reshape (u, tokens)
      z = Transpose <perm = [0, 2, 1]> (v)
      g = Sigmoid (z)
      y = Mul (z, g)
      axes = Constant <value = int64[2] {{2, 3}}> ()
      m = ReduceMean <keepdims = 0> (s, axes)
    }}"""
    weights = {
        "w": rand(t, 16, 32, seed=1) / 4,
        "b": rand(t, 32, seed=2),
        "f": rand(t, 32, 1, 3, 3, seed=3) / 4,
        "c": rand(t, 32, seed=4),
    }
    rtol, atol = (2e-2, 5e-2) if kind == "float16" else (1e-4, 1e-3)
    compare(text, chip, [{"x": rand(t, n, 96, 16, seed=n) / 4, **weights} for n in (1, 3)], rtol=rtol, atol=atol)


@pytest.mark.parametrize("chip", CHIPS)
def test_resized_images_side_by_side(chip):
    """Several images, channels last, are enlarged and concatenated: a branch for each, whose packs share the places that they read."""
    text = """g (float16[1, 4, 4, 32] a, float16[1, 8, 8, 32] b, float16[1, 16, 16, 32] c) => (float16[1, 16, 16, 96] y) {
      ta = Transpose <perm = [0, 3, 1, 2]> (a)
      tb = Transpose <perm = [0, 3, 1, 2]> (b)
      tc = Transpose <perm = [0, 3, 1, 2]> (c)
      size = Constant <value = int64[4] {1, 32, 16, 16}> ()
      la = Resize <mode = "linear"> (ta, , , size)
      lb = Resize <mode = "linear"> (tb, , , size)
      all = Concat <axis = 1> (la, lb, tc)
      y = Transpose <perm = [0, 2, 3, 1]> (all)
    }"""
    feed = {k: rand(np.float16, 1, n, n, 32, seed=n) for k, n in (("a", 4), ("b", 8), ("c", 16))}
    host = sardonyx.compile(parse(text)).run(feed)
    device = sardonyx.compile(parse(text), device=f"sim:{chip}")
    np.testing.assert_allclose(device.run(feed)["y"].astype(float), host["y"].astype(float), rtol=2e-3, atol=2e-3)
    with counted() as kinds:
        device.run(feed)
    waves = 16 * 16 * 96 // 8 // (64 if chip == "gfx942" else 32)
    # A wave has channels of all three images: packs of 8, of which 4, 4 and 1 are read, and one is written in each branch.
    assert kinds["memory"] <= 12 * waves


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("taps, pads", [(31, [15, 15]), (4, [3, 0])])
def test_filters_of_lines(taps, pads, kind, chip):
    """A convolution along the tokens with a filter for each channel, weights known: centred, and causal."""
    t = TYPES[kind]
    model = parse(f"""g ({kind}[n, m, 24] x, {kind}[24, 1, {taps}] f, {kind}[24] b) => ({kind}[n, m, 24] y) {{
      r = Transpose <perm = [0, 2, 1]> (x)
      c = Conv <group = 24, pads = {pads}> (r, f, b)
      s = Sigmoid (c)
      u = Mul (c, s)
      y = Transpose <perm = [0, 2, 1]> (u)
    }}""")
    for name, w in {"f": rand(t, 24, 1, taps, seed=1) / 8, "b": rand(t, 24, seed=2)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(w, name))
    kept = [i for i in model.graph.input if i.name == "x"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    host, device = sardonyx.compile(model), sardonyx.compile(model, device=f"sim:{chip}")
    rtol, atol = (2e-2, 2e-2) if kind == "float16" else (1e-4, 1e-4)
    for n, m in ((1, 5), (2, 40), (3, 101)):
        x = rand(t, n, m, 24, seed=m) / 4
        got, want = device.run({"x": x})["y"].astype(float), host.run({"x": x})["y"].astype(float)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [8, 40, 100])
def test_reductions_on_one_side_of_a_select(size, chip):
    """A reduction whose only reader chooses by position: the kernel's first stage is not its result."""
    text = f"""g (float[n, 1, {size}, {size}] x, float[1, 1, 5, 5] w) => (float[n, 1, k, k] y, float[n, {size}] z) {{
      c = Conv <pads = [2, 2, 2, 2], strides = [2, 2]> (x, w)
      y = Trilu <upper = 1> (c)
      a = Constant <value_ints = [1, 3]> ()
      s = ReduceSum <keepdims = 0> (x, a)
      z = Trilu <upper = 0> (s)
    }}"""
    x = {"x": rand(np.float32, 3, 1, size, size, seed=1), "w": rand(np.float32, 1, 1, 5, 5, seed=2)}
    compare(text, chip, [x], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "attributes, image, weights, size",
    [
        ("strides = [2, 2]", [9, 11], [16, 8, 2, 2], [18, 22]),
        ("strides = [2, 2], pads = [1, 1, 1, 1]", [9, 11], [16, 8, 4, 4], [18, 22]),
        ("strides = [3, 2], pads = [1, 0, 0, 1], output_padding = [1, 1]", [9, 11], [16, 5, 5, 3], [29, 23]),
        ("strides = [1, 1]", [1, 1], [16, 8, 4, 4], [4, 4]),
        ("strides = [2, 3], pads = [1, 0, 0, 2], output_padding = [1, 2]", [1, 1], [16, 5, 5, 4], [5, 4]),
        ("strides = [1, 2], pads = [0, 1, 1, 1]", [1, 11], [16, 8, 3, 4], [2, 22]),
    ],
)
@pytest.mark.slow(part=3)
def test_transposed_convolutions(attributes, image, weights, size):
    """By phases (fuse/subpixel_convolution.h), with a bias and an activation after."""
    model = parse(f"""g (float16[n, 16, {image[0]}, {image[1]}] x) => (float16[n, {weights[1]}, {size[0]}, {size[1]}] y) {{
      t = ConvTranspose <{attributes}> (x, w, b)
      y = Tanh (t)
    }}""")
    for name, shape in (("w", weights), ("b", weights[1:2])):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rand(np.float16, *shape, seed=3) / 4, name))
    feed = {"x": rand(np.float16, 2, 16, *image)}
    want = sardonyx.compile(model).run(feed)["y"]
    got = sardonyx.compile(model, device="sim:gfx1100").run(feed)["y"]
    assert got.shape == want.shape == (2, weights[1], *size)
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=1e-2, atol=1e-2)
