"""Routines (sorting, scatter, prefix sums, recurrent layers and so on) as device code on simulated AMD GPUs, at sizes beyond one workgroup and
beyond shared memory. ONNX's node tests cover their variants."""

import numpy as np
import onnx
import onnx.helper as oh
import onnx.parser
import pytest
import sardonyx
from cli_support import sardonyx as cli

CHIPS = ["gfx942", "gfx1100"]  # waves of 64 and of 32 threads
T = {
    "float": np.float32,
    "float16": np.float16,
    "int64": np.int64,
    "uint8": np.uint8,
    "double": np.float64,
    "int8": np.int8,
    "int32": np.int32,
}


def parse(text, opset=18):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def rand(dtype, *shape, seed=0, scale=20):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32).astype(dtype)


def compare(model, chip, *feeds, rtol=1e-6, atol=0.0):
    """The device gives what the host gives; nothing of it ran on the CPU."""
    model = parse(model) if isinstance(model, str) else model
    host, gpu = sardonyx.compile(model), sardonyx.compile(model, device=f"sim:{chip}")
    for feed in feeds:
        want, got = host.run(feed), gpu.run(feed)
        for name in want:
            assert got[name].dtype == want[name].dtype and got[name].shape == want[name].shape
            np.testing.assert_allclose(got[name], want[name], rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16", "int64", "uint8", "double"])
def test_topk(chip, dtype):
    text = f"""g ({dtype}[n, m] x, int64[1] k) => ({dtype}[n, a] top, int64[n, a] at, {dtype}[n, a] low, int64[n, a] low_at) {{
      top, at = TopK <largest = 1> (x, k)
      low, low_at = TopK <largest = 0> (x, k)
    }}"""
    feeds = []
    for m, k in [(1, 1), (50, 7), (3000, 5), (2500, 2200)]:
        x = rand(T[dtype], 2, m, seed=m)  # many equal elements where the type is small
        if dtype.startswith("float"):
            x[0, ::5] = np.nan
            x[1, ::7] = -0.0
            x[1, 1::7] = 0.0
        feeds.append({"x": x, "k": np.array([k])})
    compare(text, chip, *(f for f in feeds if dtype == "float" or f["x"].shape[1] != 2500))


@pytest.mark.parametrize("chip", CHIPS)
def test_topk_along_other_axes(chip):
    text = """g (float[n, m, l] x) => (float[n, 3, l] top, int64[n, 3, l] at) {
      k = Constant <value = int64[1] {3}> ()
      top, at = TopK <axis = 1> (x, k)
    }"""
    compare(text, chip, {"x": rand(np.float32, 2, 9, 5)})


@pytest.mark.slow(part=4)
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", ["float", "float16", "int8"])
@pytest.mark.parametrize("chip", CHIPS)
def test_topk_of_short_rows(chip, dtype, largest):
    """A wave takes the first element k times. Of equal elements the first comes first, NaN is the largest, and zeros are equal."""
    text = f"""g ({dtype}[n, 130] x, {dtype}[n, 40, 3] z) => ({dtype}[n, 16] y, int64[n, 16] at, {dtype}[n, 2, 3] a, int64[n, 2, 3] a_at) {{
      k = Constant <value = int64[1] {{16}}> ()
      two = Constant <value = int64[1] {{2}}> ()
      y, at = TopK <largest = {largest}> (x, k)
      a, a_at = TopK <largest = {largest}, axis = 1> (z, two)
    }}"""
    x, z = np.round(rand(np.float32, 19, 130, scale=5)).astype(T[dtype]), rand(T[dtype], 19, 40, 3, seed=1)
    if dtype != "int8":
        x[:4] = [[-0.0], [0.0], [np.nan], [-np.inf]]
        x[0, 1::2] = 0.0
        x[5, ::9] = np.nan
    compare(text, chip, {"x": x, "z": z})


@pytest.mark.parametrize("dtype", ["float", "float16", "uint8"])
@pytest.mark.parametrize("n, k", [(1024, 1), (1024, 32), (1000, 20), (200, 32), (65, 17), (33, 32)])
@pytest.mark.parametrize("chip", CHIPS)
def test_topk_of_a_wave(chip, n, k, dtype):
    """A wave sorts what is within a limit. Where that lets too many through (equal elements, sorted ones), the limit is exact."""
    text = f"""g ({dtype}[m, {n}] x) => ({dtype}[m, {k}] y, int64[m, {k}] at, {dtype}[m, {k}] z, int64[m, {k}] z_at) {{
      k = Constant <value = int64[1] {{{k}}}> ()
      y, at = TopK (x, k)
      z, z_at = TopK <largest = 0> (x, k)
    }}"""
    g = np.random.default_rng(0)
    line = np.arange(n)
    x = [np.full(n, 2), line // 4, -line, line % 32 * 40 + line // 32, np.minimum(line, 7), *g.integers(0, 200, (3, n))]
    x = np.stack(x).astype(T[dtype])
    if dtype != "uint8":
        x[-1], x[-2, ::3], x[0, :5] = g.standard_normal(n), np.nan, np.nan
    compare(text, chip, {"x": x})


def test_topk_of_32_is_found_by_waves(tmp_path):
    text = "g (float[m, 1024] x) => (float[m, 32] y, int64[m, 32] at) { k = Constant <value = int64[1] {32}> () y, at = TopK (x, k) }"
    onnx.save(parse(text), tmp_path / "m.onnx")
    options = ["--kernels", "--source", "--device", "sim:gfx942", "--cache-dir", tmp_path]
    assert "routine_topk_waves<true, 1024>" in cli("inspect", tmp_path / "m.onnx", *options)


@pytest.mark.slow(part=4)
@pytest.mark.parametrize("n, k", [(9000, 50), (3001, 200), (9000, 700)])
@pytest.mark.parametrize("chip", CHIPS)
def test_topk_of_long_rows(chip, n, k):
    """Parts of a row have their first k before the row has; equal, sorted and random elements."""
    text = f"""g (float16[m, {n}] x) => (float16[m, {k}] y, int64[m, {k}] at) {{
      k = Constant <value = int64[1] {{{k}}}> ()
      y, at = TopK (x, k)
    }}"""
    x = np.stack([np.full(n, 2), np.arange(n) % 2000, -np.arange(n), np.random.default_rng(0).standard_normal(n)])
    compare(text, chip, {"x": x.astype(np.float16)})


@pytest.mark.slow(part=4)
@pytest.mark.parametrize("chip", CHIPS)
def test_topk_of_unknown_sizes(chip):
    """The same program divides a row or not."""
    text = """g (float[m, n] x, int64[1] k) => (float[m, j] y, int64[m, j] at) { y, at = TopK <largest = 0> (x, k) }"""
    rows = [(100, 3), (5000, 130), (9000, 1), (9000, 600)]
    compare(text, chip, *({"x": np.round(rand(np.float32, 2, n, seed=n)), "k": np.array([k])} for n, k in rows))


def test_topk_of_too_few():
    text = """g (float[n] x) => (float[5] top, int64[5] at) {
      k = Constant <value = int64[1] {5}> ()
      top, at = TopK (x, k)
    }"""
    with pytest.raises(sardonyx.Error, match="k is 5"):
        sardonyx.compile(parse(text), device="sim:gfx942").run({"x": rand(np.float32, 4)})


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("sort", [0, 1])
def test_unique(chip, sort):
    text = f"""g (int32[n] x) => (int32[k] y, int64[k] first, int64[n] back, int64[k] counts) {{
      y, first, back, counts = Unique <sorted = {sort}> (x)
    }}"""
    compare(text, chip, *({"x": rand(np.int32, n, seed=n)} for n in [1, 40, 1100, 2500]))


@pytest.mark.parametrize("chip", CHIPS)
def test_unique_rows(chip):
    text = """g (float[n, 3] x) => (float[k, 3] y, int64[n] back) { y, first, back = Unique <axis = 0> (x) }"""
    compare(text, chip, {"x": np.round(rand(np.float32, 90, 3, scale=1))})


@pytest.mark.parametrize("chip", CHIPS)
def test_nonzero(chip):
    text = "g (float[n, m] x) => (int64[2, k] y) { y = NonZero (x) }"
    x = np.round(rand(np.float32, 30, 300, scale=0.6))
    compare(text, chip, {"x": x}, {"x": x[:0]}, {"x": x[:1, :3]}, {"x": np.zeros_like(x)})


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "int64", "float16"])
def test_running_sums(chip, dtype):
    text = f"""g ({dtype}[n, m, l] x) => ({dtype}[n, m, l] a, {dtype}[n, m, l] b, {dtype}[n, m, l] c) {{
      last = Constant <value = int64 {{2}}> ()
      middle = Constant <value = int64 {{1}}> ()
      a = CumSum (x, last)
      b = CumSum <exclusive = 1, reverse = 1> (x, last)
      c = CumSum <reverse = 1> (x, middle)
    }}"""
    feeds = [{"x": rand(T[dtype], *s)} for s in [(1, 2, 3000), (2, 70, 40), (1, 1, 1)]]
    # Sums in double, in another order, rounded once.
    compare(text, chip, *feeds, rtol=1e-3 if dtype == "float16" else 1e-6, atol=1e-5)


@pytest.mark.slow(part=4)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16", "int32", "double"])
def test_running_sums_of_long_lines(chip, dtype):
    """Lines of a wave, of a workgroup, in parts; columns whose rows threads divide, and what infinite sums leave."""
    text = f"""g ({dtype}[n, m] x) => ({dtype}[n, m] a, {dtype}[n, m] b, {dtype}[n, m] c, {dtype}[n, m] d) {{
      rows = Constant <value = int64 {{0}}> ()
      columns = Constant <value = int64 {{1}}> ()
      a = CumSum (x, columns)
      b = CumSum <exclusive = 1, reverse = 1> (x, columns)
      c = CumSum <exclusive = 1> (x, rows)
      d = CumSum <reverse = 1> (x, rows)
    }}"""
    # Of 20000 elements partial sums are of the order of 100: results near 0 have errors of the last bit of these.
    feeds = [
        {"x": np.clip(rand(np.float32, *s, scale=2), -60, 60).astype(T[dtype])}
        for s in [(3, 2000), (600, 45), (2, 20001), (70, 4100)]
    ]
    if dtype in ("float", "float16"):
        feeds[0]["x"][1, 700] = np.inf
        feeds[1]["x"][[5, 550], 7] = np.inf, -np.inf
        feeds[1]["x"][9, 8] = np.nan
    compare(text, chip, *feeds, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-4 if dtype == "float16" else 1e-5)


@pytest.mark.slow(part=4)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "dtype, shape",
    [("float", (2, 1100, 40)), ("float16", (1, 1540, 70)), ("int64", (1, 2049, 33)), ("float16", (8, 300, 1540))],
)
def test_running_sums_of_few_columns(chip, dtype, shape):
    """In parts of their rows, after a launch that sums up each part; the last part is shorter, and so is the last strip of columns."""
    size = ", ".join(map(str, shape))
    text = f"""g ({dtype}[{size}] x) => ({dtype}[{size}] a, {dtype}[{size}] b) {{
      rows = Constant <value = int64 {{1}}> ()
      a = CumSum (x, rows)
      b = CumSum <exclusive = 1, reverse = 1> (x, rows)
    }}"""
    x = np.clip(rand(np.float32, *shape, scale=2), -60, 60).astype(T[dtype])
    if dtype != "int64":
        x[0, 600 % shape[1], 7] = np.inf
    compare(text, chip, {"x": x}, rtol=2e-3 if dtype == "float16" else 1e-6, atol=1e-4 if dtype == "float16" else 1e-5)
    device = sardonyx.compile(parse(text), device=f"sim:{chip}")
    # Sums and scans, in both directions. 104 workgroups are enough for gfx1100.
    assert len(device.kernels()) == (2 if chip == "gfx1100" and shape[0] == 8 else 4)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("rows", "of_thread"), [(40, 2), (64, 2), (300, 16)])
def test_running_sums_of_computed_short_columns(tmp_path, chip, rows, of_thread):
    """Threads share the rows of a column, because what is computed takes longer than the sums."""
    text = f"""g (float[n, {rows}, 48] x) => (float[n, {rows}, 48] a, float[n, {rows}, 48] b) {{
      axis = Constant <value = int64 {{1}}> ()
      s = Sigmoid (x)
      e = Exp (s)
      t = Tanh (s)
      a = CumSum (e, axis)
      b = CumSum <exclusive = 1, reverse = 1> (t, axis)
    }}"""
    compare(text, chip, {"x": rand(np.float32, 3, rows, 48, scale=2)}, rtol=1e-5, atol=1e-5)
    onnx.save(parse(text), tmp_path / "m.onnx")
    source = cli("inspect", tmp_path / "m.onnx", "--source", "--device", f"sim:{chip}", "--cache-dir", tmp_path)
    assert source.count(f"routine_scan_columns<8, {of_thread}, ") == 2


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", ["float", "float16", "int8", "int64", "double"])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_scatter(chip, dtype, reduction):
    text = f"""g ({dtype}[n, m] x, int64[k, m] at, {dtype}[k, m] u, int64[j, 1] rows, {dtype}[j, m] v) => ({dtype}[n, m] y, {dtype}[n, m] z) {{
      y = ScatterElements <axis = 0, reduction = "{reduction}"> (x, at, u)
      z = ScatterND <reduction = "{reduction}"> (x, rows, v)
    }}"""
    g = np.random.default_rng(1)
    n, m, k = 9, 70, 30  # each row several times
    feed = {
        "x": rand(T[dtype], n, m, scale=2),
        "at": g.integers(-n, n, (k, m)),
        "u": rand(T[dtype], k, m, seed=2, scale=2),
        "rows": g.integers(0, n, (k, 1)),
        "v": rand(T[dtype], k, m, seed=3, scale=2),
    }
    # Sums and products in any order; in float16 of up to ten terms of the order of ten.
    rtol, atol = {"float16": (3e-2, 0.1), "float": (1e-4, 1e-5)}.get(dtype, (1e-9, 1e-12))
    compare(text, chip, feed, rtol=rtol, atol=atol if reduction in ("add", "mul") else 0)


def scatter_of_rows(dtype, k, width, reduction):
    return parse(f"""g ({dtype}[2, 40, {width}] x, int64[2, {k}] at, {dtype}[2, {k}, {width}] u) => ({dtype}[2, 40, {width}] y) {{
      last = Constant <value_ints = [2]> ()
      column = Unsqueeze (at, last)
      all = Constant <value_ints = [1, 1, {width}]> ()
      rows = Expand (column, all)
      y = ScatterElements <axis = 1, reduction = "{reduction}"> (x, rows, u)
    }}""")


@pytest.mark.parametrize("chip", [*CHIPS, "gfx90a"])
@pytest.mark.parametrize("dtype", ["float", "float16", "int8", "double"])
@pytest.mark.parametrize("width", [64, 5])
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_scatter_of_rows(chip, dtype, width, reduction):
    """Indices repeated along the last dim, as by torch's scatter_add of rows, become an index for each row."""
    g = np.random.default_rng(1)
    b, n, k = 2, 40, 30 if reduction == "none" else 90
    model = scatter_of_rows(dtype, k, width, reduction)
    at = np.stack([g.permutation(n)[:k] if reduction == "none" else g.integers(-n, n, k) for _ in range(b)])
    x, u = rand(T[dtype], b, n, width, scale=2), rand(T[dtype], b, k, width, seed=2, scale=2)
    want = x.astype(np.float64)
    for i in range(b):
        if reduction == "none":
            want[i, at[i]] = u[i]
        else:
            (np.add if reduction == "add" else np.maximum).at(want[i], at[i], u[i].astype(np.float64))
    got = sardonyx.compile(model, device=f"sim:{chip}").run({"x": x, "at": at, "u": u})["y"]
    rtol, atol = {"float16": (3e-2, 0.1), "float": (1e-5, 1e-5)}.get(dtype, (1e-12, 1e-12))
    np.testing.assert_allclose(got, want.astype(T[dtype]), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("dtype", "added"), [("float", "v4.f32"), ("float16", "noftz.v4.f16x2"), ("bfloat16", "noftz.v4.bf16x2")]
)
def test_scattered_rows_are_added_16_bytes_at_a_time(tmp_path, dtype, added):
    onnx.save(scatter_of_rows(dtype, 90, 64, "add"), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    assert f"red.relaxed.gpu.global.add.{added} " in (tmp_path / "m.sdx").read_bytes().decode("latin1")
    steps = cli("inspect", tmp_path / "m.onnx", "--kernels", "--device", "sim:gfx942", "--cache-dir", tmp_path)
    assert "int64" not in steps[steps.index("#  kind") :]  # the kernel computes the rows


@pytest.mark.parametrize("chip", CHIPS)
def test_boxes(chip):
    g = np.random.default_rng(0)

    def feed(images, classes, n):
        corner = g.random((images, n, 2), np.float32) * 10
        boxes = np.concatenate([corner, corner + g.random((images, n, 2), np.float32) * 4], axis=2)
        return {"boxes": boxes, "scores": np.round(g.random((images, classes, n), np.float32), 2)}

    text = """g (float[b, n, 4] boxes, float[b, c, n] scores) => (int64[k, 3] y) {
      most = Constant <value = int64[1] {20}> ()
      iou = Constant <value = float[1] {0.4}> ()
      least = Constant <value = float[1] {0.3}> ()
      y = NonMaxSuppression (boxes, scores, most, iou, least)
    }"""
    compare(text, chip, feed(2, 3, 60), feed(1, 1, 2100), feed(1, 2, 1))


@pytest.mark.parametrize("chip", CHIPS)
def test_determinants(chip):
    text = "g (float[b, n, n] x) => (float[b] y) { y = Det (x) }"
    singular = np.ones((2, 3, 3), np.float32)
    compare(text, chip, {"x": rand(np.float32, 3, 20, 20, scale=0.5)}, {"x": singular}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("GRU", 3), ("GRU_linear", 3), ("LSTM", 4)])
def test_recurrent_layers(chip, kind, gates):
    op, hidden, width = kind.split("_")[0], 40, 6
    attributes = {"direction": "bidirectional", "hidden_size": hidden}
    if kind == "GRU_linear":
        attributes["linear_before_reset"] = 1
    states = ["h0", "c0"] if op == "LSTM" else ["h0"]
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    node = oh.make_node(op, ["x", "w", "r", "b", "lengths", *states], outputs, **attributes)
    f32, i32 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    shapes = {
        "x": ["t", "n", width],
        "w": [2, gates * hidden, width],
        "r": [2, gates * hidden, hidden],
        "b": [2, 2 * gates * hidden],
    }
    shapes |= {s: [2, "n", hidden] for s in states}
    inputs = [oh.make_tensor_value_info(k, f32, v) for k, v in shapes.items()] + [
        oh.make_tensor_value_info("lengths", i32, ["n"])
    ]
    graph = oh.make_graph([node], "g", inputs, [oh.make_tensor_value_info(o, f32, None) for o in outputs])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)

    def feed(t, n, lengths):
        sizes = {"t": t, "n": n}
        return {k: rand(np.float32, *(sizes.get(d, d) for d in v), scale=0.3) for k, v in shapes.items()} | {
            "lengths": np.array(lengths, np.int32)
        }

    # Sums of 40 products in another order.
    compare(model, chip, feed(5, 3, [5, 2, 0]), feed(1, 1, [1]), rtol=1e-4, atol=1e-5)
