"""Models on simulated AMD GPUs: cases that ONNX's node tests (test_onnx_backend.py) do not cover."""

import concurrent.futures
import os

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest
import sardonyx
from cli_support import sardonyx as cli

CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


def parse(text, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(model, device, *feeds, rtol=1e-5, atol=1e-6):
    """The device gives what the host gives; both compute in float32, in another order."""
    on_host, on_device = sardonyx.compile(model), sardonyx.compile(model, device=device)
    for feed in feeds:
        want, got = on_host.run(feed), on_device.run(feed)
        assert list(want) == list(got)
        for name in want:
            assert got[name].dtype == want[name].dtype
            np.testing.assert_allclose(got[name], want[name], rtol=rtol, atol=atol, err_msg=name)
    return on_device


LAYER = """
g (float[n, k] x, float[k, m] w, float[m] b) => (float[n, m] y, float[n, m] z) {
  a = MatMul (x, w)
  y = Add (a, b)
  mean = ReduceMean <axes = [-1]> (y)
  d = Sub (y, mean)
  s = Mul (d, d)
  v = ReduceMean <axes = [-1]> (s)
  r = Sqrt (v)
  q = Div (d, r)
  z = Softmax <axis = -1> (q)
}"""


@pytest.mark.parametrize("chip", CHIPS)
def test_one_program_at_every_size(chip):
    feeds = [
        {"x": rand(n, k), "w": rand(k, m, seed=1), "b": rand(m, seed=2)}
        for n, k, m in [(5, 300, 7), (1, 1, 2), (33, 20, 700), (0, 4, 3)]
    ]
    # Sums of up to 300 products, each of the order of 1, in another order.
    model = compare(parse(LAYER), f"sim:{chip}", *feeds, rtol=1e-4, atol=1e-5)
    assert model.programs == 1


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_sizes_and_branches_that_depend_on_data(chip):
    model = parse("""
      g (float[n] x, bool flag) => (int64[1, k] found, float[m] y, float[j] z) {
        found = NonZero (x)
        y = If (flag) <
          then_branch = t () => (float[a] u) { u = Exp (x) },
          else_branch = e () => (float[b] v) { v = Concat <axis = 0> (x, x) }>
        trips = Constant <value = int64 {3}> ()
        more = Constant <value = bool {1}> ()
        last, z2 = Loop (trips, more, x) <body = body (int64 i, bool c, float[n] s) => (bool d, float[n] t, float[n] kept) {
          d = Identity (c)
          t = Add (s, s)
          kept = Sin (s)
        }>
        minus = Constant <value = int64[1] {-1}> ()
        z = Reshape (z2, minus)
      }""")
    x = rand(70)
    x[::3] = 0
    compare(model, f"sim:{chip}", {"x": x, "flag": np.array(True)}, {"x": x[:5], "flag": np.array(False)})


def test_routines():
    model = parse("""
      g (float[n, m] x) => (float[n, 3] top, int64[n, 3] at, float[n, m] sums) {
        k = Constant <value = int64[1] {3}> ()
        top, at = TopK (x, k)
        axis = Constant <value = int64 {1}> ()
        sums = CumSum (x, axis)
      }""")
    compare(model, "sim:gfx942", {"x": rand(4, 50)})


def test_many_threads_share_a_model():
    model = sardonyx.compile(parse(LAYER), device="sim:gfx1100")
    host = sardonyx.compile(parse(LAYER))
    feeds = [{"x": rand(3, 8, seed=s), "w": rand(8, 5, seed=s + 1), "b": rand(5, seed=s + 2)} for s in range(12)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for feed, got in zip(feeds, pool.map(model.run, feeds)):
            np.testing.assert_allclose(got["z"], host.run(feed)["z"], rtol=1e-4, atol=1e-6)


def test_graphs_and_limits():
    feed = {"x": rand(3, 8), "w": rand(8, 5), "b": rand(5)}
    with_graphs = sardonyx.compile(parse(LAYER), device="sim:gfx1100")
    without = sardonyx.compile(parse(LAYER), device="sim:gfx1100", graphs=False)
    for _ in range(3):
        for a, b in zip(with_graphs.run(feed).values(), without.run(feed).values()):
            np.testing.assert_array_equal(a, b)
    small = sardonyx.compile(parse(LAYER), device="sim:gfx1100", device_memory_limit=20000)
    small.run(feed)
    with pytest.raises(sardonyx.DeviceError, match=r"limit.*20000"):
        small.run({"x": rand(300, 80), "w": rand(80, 50), "b": rand(50)})


def test_profile_names_the_kernels():
    model = sardonyx.compile(parse(LAYER), device="sim:gfx1100")
    _, steps = model.profile({"x": rand(3, 8), "w": rand(8, 5), "b": rand(5)})
    assert any("MatMul" in step.nodes for step in steps)


@pytest.mark.parametrize(
    "device, words", [("sim:gfx9", "gfx942"), ("sim", "gfx942"), ("hip:x", "hip:1"), ("gpu", "host")]
)
def test_unknown_devices_are_refused(device, words):
    with pytest.raises(sardonyx.Error, match=words):
        sardonyx.compile(parse(LAYER), device=device)


def test_saved_programs(tmp_path):
    file, feed = tmp_path / "m.sdx", {"x": rand(3, 8), "w": rand(8, 5), "b": rand(5)}
    model = sardonyx.compile(parse(LAYER), device="sim:gfx1100")
    model.save(file)
    for a, b in zip(model.run(feed).values(), sardonyx.load(file, device="sim:gfx1100").run(feed).values()):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(sardonyx.UnsupportedError, match=r"gfx1100.*gfx942"):
        sardonyx.load(file, device="sim:gfx942")
    sardonyx.compile(parse(LAYER)).save(file)
    with pytest.raises(sardonyx.UnsupportedError, match="for the host"):
        sardonyx.load(file, device="sim:gfx942")


def test_a_program_file_for_several_cards(tmp_path):
    """One file holds the code of each chip and the weights once."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
      g (float[n, 512] x) => (float[n, 256] y) { y = MatMul (x, w) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(rand(512, 256), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    size = {}
    for arch in ("gfx942", "gfx942,gfx1100,sm_80,sm_90"):
        file = tmp_path / f"{arch}.sdx"
        cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", file, "--cache-dir", tmp_path / "cache")
        size[arch] = file.stat().st_size
    one, four = size.values()
    assert 512 * 256 * 4 < one < four < 2 * 512 * 256 * 4
    x = rand(3, 512, seed=1)
    want = sardonyx.compile(model).run({"x": x})["y"]
    for chip in ("gfx942", "gfx1100"):
        got = sardonyx.load(file, device=f"sim:{chip}").run({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # sums of 512 products in another order
    with pytest.raises(sardonyx.UnsupportedError, match=r"gfx942, gfx1100, sm_80, sm_90.*gfx1201"):
        sardonyx.load(file, device="sim:gfx1201")
    damaged = bytearray(file.read_bytes())
    damaged[damaged.find(b"SDXPROG", 8) + 200] ^= 1  # in the second program
    file.write_bytes(damaged)
    with pytest.raises(sardonyx.InvalidModelError, match="damaged"):
        sardonyx.load(file, device="sim:gfx942")


@pytest.mark.parametrize("arch", [row["chip"] for row in sardonyx.chips()])
@pytest.mark.slow(part=3)
def test_every_target_compiles(arch, tmp_path):
    onnx.save(parse(LAYER), tmp_path / "m.onnx")
    text = cli("compile", tmp_path / "m.onnx", "--arch", arch, "--cache-dir", tmp_path / "cache")
    assert f"for {arch} in" in text


def test_small_loops_let_the_next_launch_start(tmp_path):
    """On sm_90 and later, after the wait for the launch before; older chips know neither."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n, 300] x) => (float[n, 300] y) { y = Softmax<axis = 1>(x) }""")
    onnx.save(model, tmp_path / "m.onnx")
    for arch in ("sm_80", "sm_90"):
        cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path / "cache")
        text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
        wait, start = (text.find(f"griddepcontrol.{what};") for what in ("wait", "launch_dependents"))
        assert (0 < wait < start) if arch == "sm_90" else wait == start == -1


def test_compiled_without_a_card(tmp_path):
    """The command line compiles for GPUs that are not here; a program file of one runs on it."""
    onnx.save(parse(LAYER), tmp_path / "m.onnx")
    text = cli(
        "compile", tmp_path / "m.onnx", "--arch", "gfx90a,gfx1100,sm_80,sm_90", "--cache-dir", tmp_path / "cache"
    )
    assert all(f"for {arch} in" in text for arch in ("gfx90a", "gfx1100", "sm_80", "sm_90"))
    cli(
        "compile", tmp_path / "m.onnx", "--arch", "gfx1201", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path / "cache"
    )
    feed = {"x": rand(3, 8), "w": rand(8, 5), "b": rand(5)}
    np.savez(tmp_path / "in.npz", **feed)
    cli("run", tmp_path / "m.sdx", "--device", "sim:gfx1201", "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz")
    assert "on sim:gfx1201 with" in cli("run", tmp_path / "m.sdx", "--device", "sim:gfx1201", "-i", tmp_path / "in.npz")
    measured = cli(
        "perf", tmp_path / "m.sdx", "--device", "sim:gfx1201", "-i", tmp_path / "in.npz", "--runs", "2", "--json", "-"
    )
    assert '"device": "sim:gfx1201"' in measured and '"target": "gfx1201"' in measured
    want = sardonyx.compile(parse(LAYER)).run(feed)
    with np.load(tmp_path / "out.npz") as got:
        np.testing.assert_allclose(got["z"], want["z"], rtol=1e-4, atol=1e-6)
    assert "gfx942" in cli("compile", tmp_path / "m.onnx", "--arch", "gfx1", code=4)


@pytest.mark.parametrize("chip", CHIPS)
def test_division_is_exact_over_the_whole_range(chip):
    """Also where the denominator's reciprocal, the quotient, or both are denormal."""
    model = parse("g (float[n] a, float[n] b) => (float[n] q) { q = Div (a, b) }")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32) for _ in range(2))
    huge = np.linspace(2.0**126, 3.4e38, 500).astype(np.float32)
    a, b = np.concatenate([a, np.ones_like(huge), 1 / huge]), np.concatenate([b, huge, huge])
    with np.errstate(all="ignore"):
        want = a / b
    got = sardonyx.compile(model, device=f"sim:{chip}").run({"a": a, "b": b})["q"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("device", ["sim:gfx942", *filter(None, [os.environ.get("SARDONYX_TEST_DEVICE")])])
def test_gemms_of_constants(device):
    """Computed once, when the program is loaded; on Hopper through tensor maps, for which the driver wants a context."""
    rows, width = 100, 256
    make = onnx.helper
    tensors = {"c": rand(rows, width), "w": rand(width, width, seed=1) / 16, "v": rand(width, width, seed=2) / 16}
    graph = make.make_graph(
        [
            make.make_node("Mul", ["c", "c"], ["d"]),
            make.make_node("MatMul", ["d", "w"], ["e"]),
            make.make_node("MatMul", ["e", "v"], ["f"]),
            make.make_node("Add", ["x", "f"], ["y"]),
        ],
        "g",
        [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows, width])],
        [make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [rows, width])],
        [onnx.numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    x = rand(rows, width, seed=3)
    want = x + tensors["c"] ** 2 @ tensors["w"] @ tensors["v"]
    compiled = sardonyx.compile(model, device=device, precision="fp16")
    # Three roundings of values up to about 10 to 11 bits.
    np.testing.assert_allclose(compiled.run({"x": x})["y"], want, rtol=0, atol=0.05)
