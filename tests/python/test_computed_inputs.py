"""Routines whose kernels compute an input instead of reading it: the messages that a graph network adds up, the exponentials that a running
sum does (src/fuse/routine_inputs.h)."""

import re

import numpy as np
import onnx
import onnx.helper as oh
import onnx.parser
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto

CHIPS = ["gfx942", "gfx1100"]  # waves of 64 and of 32 threads
TYPES = {"float": np.float32, "float16": np.float16, "int64": np.int64}


def parse(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]>\n{text}')


def compare(text, chip, *feeds, rtol=1e-6, atol=1e-6):
    model = parse(text)
    host, gpu = sardonyx.compile(model), sardonyx.compile(model, device=f"sim:{chip}")
    for feed in feeds:
        want, got = host.run(feed), gpu.run(feed)
        for name in want:
            assert got[name].dtype == want[name].dtype and got[name].shape == want[name].shape
            np.testing.assert_allclose(got[name], want[name], rtol=rtol, atol=atol, err_msg=name)


def steps_of(text, tmp_path, *options):
    """The kernels of the model's nodes, and the source of all."""
    onnx.save(parse(text), tmp_path / "m.onnx")
    listed = cli(
        "inspect", tmp_path / "m.onnx", "--kernels", "--source", "--device", "sim:gfx942", "--cache-dir", "", *options
    )
    return [line for line in listed.splitlines() if re.match(r" +\d+ +loop", line)], listed


def messages(reduction, size, dtype="float"):
    """Rows of nodes times a number for each edge, added to (and so on) the edge's other node."""
    return f"""g ({dtype}[n, {size}] x, int64[e] source, int64[e, 1] target, {dtype}[e, 1] weight) => ({dtype}[n, {size}] y) {{
      rows = Gather <axis = 0> (x, source)
      updates = Mul (rows, weight)
      y = ScatterND <reduction = "{reduction}"> (x, target, updates)
    }}"""


def graph_of(n, e, size, dtype, seed=0):
    """With whole numbers, sums are exact in any order."""
    g = np.random.default_rng(seed)
    x, weight = g.integers(-3, 4, (n, size)).astype(dtype), g.integers(1, 3, (e, 1)).astype(dtype)
    return {"x": x, "source": g.integers(0, n, e), "target": g.integers(0, n, (e, 1)), "weight": weight}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "reduction, dtype, size",
    [
        *((("add", d, s)) for d in TYPES for s in (64, 5)),
        ("max", "float16", 6),
        ("min", "int64", 8),
        ("max", "float", 3),
    ],
)
def test_messages(chip, dtype, reduction, size):
    feeds = [graph_of(n, e, size, TYPES[dtype], e) for n, e in [(7, 1), (40, 300)]]
    compare(messages(reduction, size, dtype), chip, *feeds, atol=0)


SPLATS = """g (float[n, 6, e] updates, int64[n, 1, e] target) => (float[n, 6, 50] y) {
      shape = Shape (updates)
      indices = Expand (target, shape)
      start = Constant <value_ints = [0]> ()
      stop = Constant <value_ints = [1]> ()
      tail = Constant <value_ints = [6, 50]> ()
      zero = Constant <value = float[1] {0.0}> ()
      ends = Slice (shape, start, stop)
      whole = Concat <axis = 0> (ends, tail)
      zeros = Expand (zero, whole)
      y = ScatterElements <axis = 2, reduction = "add"> (zeros, indices, updates)
    }"""


@pytest.mark.parametrize("chip", CHIPS)
def test_places_that_all_channels_share(chip, tmp_path):
    """Where pixels are moved to: indices with their checks are not stored for each channel."""
    g = np.random.default_rng(3)
    updates = g.integers(-3, 4, (2, 6, 300)).astype(np.float32)
    compare(SPLATS, chip, {"updates": updates, "target": g.integers(-50, 50, (2, 1, 300))}, atol=0)
    kernels, _ = steps_of(SPLATS, tmp_path)
    assert len(kernels) == 2, kernels


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("reduction", ["mul", "none"])
def test_products_and_replacements(chip, reduction):
    """Each row has few factors; rows that are replaced are different ones, because ONNX leaves the order open."""
    feed = graph_of(40, 40, 12, np.float32)
    feed["target"] = np.random.default_rng(1).permutation(40)[:, None]
    compare(messages(reduction, 12), chip, feed)


def test_messages_are_in_no_memory(tmp_path):
    steps, source = steps_of(messages("add", 64), tmp_path)
    assert len(steps) == 2, steps  # the copy of x, the sums
    assert "routine_scatter_combine" in source and "computed<f32, 4>" in source
    assert re.search(r"Gather.*Mul.*ScatterND", steps[-1]), steps[-1]


@pytest.mark.parametrize("chip", CHIPS)
def test_updates_that_are_read_twice_are_stored(chip, tmp_path):
    text = """g (float[n, 8] x, int64[e, 1] target, int64[e] source, float[e, 8] z) => (float[n, 8] y, float[n, 8] most) {
      rows = Gather <axis = 0> (x, source)
      updates = Mul (z, rows)
      y = ScatterND <reduction = "add"> (x, target, updates)
      most = ScatterND <reduction = "max"> (x, target, updates)
    }"""
    assert "computed<f32" not in steps_of(text, tmp_path)[1]
    g = np.random.default_rng(0)
    feed = {"x": g.standard_normal((5, 8)), "target": g.integers(0, 5, (30, 1)), "z": g.standard_normal((30, 8))}
    feed["source"] = g.integers(0, 5, 30)
    compare(text, chip, {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in feed.items()}, rtol=1e-5)


@pytest.mark.parametrize("chip", CHIPS)
def test_elements_from_a_transposed_tensor(chip, tmp_path):
    """Such a loop stays a kernel, which transposes in registers; in a short dim it does not matter."""
    text = """g (float[n, SIZE] x, int64[e, 1] target, float[SIZE, e] z) => (float[n, SIZE] y) {
      t = Transpose <perm = [1, 0]> (z)
      updates = Neg (t)
      y = ScatterND <reduction = "add"> (x, target, updates)
    }"""
    assert "computed<f32" not in steps_of(text.replace("SIZE", "32"), tmp_path)[1]
    short = text.replace("SIZE", "4")
    assert "computed<f32" in steps_of(short, tmp_path)[1]
    g = np.random.default_rng(0)
    x, z = g.integers(-4, 5, (6, 4)).astype(np.float32), g.integers(-4, 5, (4, 50)).astype(np.float32)
    compare(short, chip, {"x": x, "target": g.integers(0, 6, (50, 1)), "z": z}, atol=0)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_number_of_edges_that_is_data(chip):
    """Edges are chosen during the run, so that their number is known to no one before it."""
    text = """g (float[n, 16] x, float[e] weight, int64[e] target) => (float[n, 16] y) {
      zero = Constant <value = float {0.0}> ()
      chosen = Greater (weight, zero)
      t = Compress <axis = 0> (target, chosen)
      w = Compress <axis = 0> (weight, chosen)
      one = Constant <value = int64[1] {1}> ()
      rows = Unsqueeze (t, one)
      factors = Unsqueeze (w, one)
      of = Gather <axis = 0> (x, t)
      updates = Mul (of, factors)
      y = ScatterND <reduction = "add"> (x, rows, updates)
    }"""
    g = np.random.default_rng(0)
    x = g.integers(-3, 4, (9, 16)).astype(np.float32)
    feeds = [{"x": x, "weight": np.full(3, -1, np.float32), "target": np.arange(3)}]
    feeds.append({"x": x, "weight": g.integers(-1, 3, 77).astype(np.float32), "target": g.integers(0, 9, 77)})
    compare(text, chip, *feeds, atol=0)


def test_control_flow():
    """The routine is in a branch: what it computes itself is in the same graph, or is stored before."""
    chosen = oh.make_tensor_value_info("c", TensorProto.BOOL, [])
    x = oh.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = oh.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    axis = oh.make_node("Constant", [], ["axis"], value=oh.make_tensor("axis", TensorProto.INT64, [], [0]))

    def branch(nodes, out):
        return oh.make_graph(nodes, out, [], [oh.make_tensor_value_info(out, TensorProto.FLOAT, ["n"])])

    inside = [oh.make_node("Abs", ["x"], ["a"]), oh.make_node("CumSum", ["a", "axis"], ["s"])]
    outside = [oh.make_node("CumSum", ["z", "axis"], ["t"], reverse=1)]
    nodes = [axis, oh.make_node("Neg", ["x"], ["z"])]
    nodes.append(oh.make_node("If", ["c"], ["y"], then_branch=branch(inside, "s"), else_branch=branch(outside, "t")))
    model = oh.make_model(
        oh.make_graph(nodes, "g", [chosen, x], [y]), opset_imports=[oh.make_opsetid("", 20)], ir_version=8
    )
    host, gpu = sardonyx.compile(model), sardonyx.compile(model, device="sim:gfx942")
    for c in (True, False):
        feed = {"c": np.array(c), "x": np.arange(-40, 47).astype(np.float32)}
        np.testing.assert_array_equal(gpu.run(feed)["y"], host.run(feed)["y"])


def running(op, axis, shape, dtype="float", how=""):
    return f"""g ({dtype}[{", ".join(map(str, shape))}] x) => ({dtype}[{", ".join(map(str, shape))}] y) {{
      axis = Constant <value = int64 {{{axis}}}> ()
      z = {op} (x)
      y = CumSum {f"<{how}>" if how else ""} (z, axis)
    }}"""


# Lines of a wave, of a workgroup, of parts; columns of a thread, of workgroups; sizes that are no multiples of a pack.
EXCLUSIVE, REVERSE, BOTH = "exclusive = 1", "reverse = 1", "reverse = 1, exclusive = 1"
SUMS = [
    ((3, 1000), 1, ""),
    ((3, 1000), 1, REVERSE),
    ((2, 333), 1, BOTH),
    ((2, 2, 2500), 2, EXCLUSIVE),
    ((2, 17001), 1, REVERSE),
    ((40, 64), 0, EXCLUSIVE),
    ((70, 64), 0, BOTH),
    ((301, 67), 0, ""),
    ((301, 68), 0, REVERSE),
    ((2, 99, 5), 1, BOTH),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape, axis, how", SUMS)
def test_running_sums(chip, shape, axis, how):
    x = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)
    compare(running("Neg", axis, shape, how=how), chip, {"x": x}, atol=0)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype, tolerance", [("float", 2e-6), ("float16", 2e-3), ("int64", 0)])
@pytest.mark.parametrize("shape, axis", [((3, 1001), 1), ((2, 80, 36), 1)])
def test_running_sums_of_functions(chip, dtype, tolerance, shape, axis):
    """Sums of functions that the host rounds otherwise: an ulp each, and in float16 half of one of the result."""
    x = np.random.default_rng(0).uniform(0.5, 2, shape) * (1 if dtype != "int64" else 50)
    op = {"float": "Log", "float16": "Exp", "int64": "Neg"}[dtype]
    compare(running(op, axis, shape, dtype), chip, {"x": x.astype(TYPES[dtype])}, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("shape, axis", [(("n", 1000), 1), ((8, 400, 4096), 1), (("n", "m"), 1)])
def test_running_sums_have_no_other_kernel(shape, axis, tmp_path):
    steps, source = steps_of(running("Log", axis, shape), tmp_path)
    assert all(re.search(r"Log.*CumSum", s) for s in steps), steps
    assert source.count("computed<f32, ") == len(steps)


def test_long_functions_are_not_computed_twice(tmp_path):
    """Parts of long lines are summed first."""
    assert "computed<f32" not in steps_of(running("Sin", 1, (2, 40000)), tmp_path)[1]
    assert "computed<f32" in steps_of(running("Neg", 1, (2, 40000)), tmp_path)[1]


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize(
    "text", [lambda d: messages("add", 64, d), lambda d: running("Log", 1, (8, 400, 4096), d)], ids=["messages", "sums"]
)
def test_nvidia_code(text, dtype, tmp_path):
    """Computed elements are added 16 bytes at a time."""
    onnx.save(parse(text(dtype)), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", "", "--quiet")
    kernels = (tmp_path / "m.sdx").read_bytes().decode("latin1").split(".entry ")[1:]
    assert not any(".local" in k for k in kernels)
    adds = {"float": "v4.f32", "float16": "noftz.v4.f16x2"}[dtype]
    if "Scatter" in text(dtype):
        assert any(f"red.relaxed.gpu.global.add.{adds}" in k and ".v4.b" in k for k in kernels)
