"""Reductions and windows of few elements on AMD's chips: results can be correct although threads of a team have nothing to do, or each
element is a load of its own."""

import json
import re

import numpy as np
import onnx
import pytest
import sardonyx
import simulated
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper
from test_amd_main_loops import instructions
from test_gpu_gemm import HALF, model, rand, weights

N = helper.make_node
LOAD = re.compile(r"(global|buffer)_load_")


def code_of(m, chip, folder):
    onnx.save(m, folder / "model.onnx")
    return [text for _, text, _ in instructions(folder / "model.onnx", chip, folder)]


def compared(m, chip, feed, tolerance):
    """Wave-instructions by kind, of a run whose results equal the host's."""
    device, host = sardonyx.compile(m, device=f"sim:{chip}"), sardonyx.compile(m)
    device.run(feed)  # weights are rearranged before the first run
    with simulated.counted() as kinds:
        got = device.run(feed)["o"].astype(float)
    want = host.run(feed)["o"].astype(float)
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()
    return kinds


def launch_of(m, folder):
    """The estimate of a model's only launch on gfx942."""
    model, times = folder / "model.onnx", folder / "times.json"
    onnx.save(m, model)
    cli("perf", model, "--device", "sim:gfx942", "--timing", "--sample", "--json", times)
    (launch,) = json.loads(times.read_text())["launches"]
    return launch


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize(("size", "kernel"), [(7, 5), (13, 5), (14, 7)])
def test_whole_rows_are_loaded_in_packs(chip, size, kernel, tmp_path):
    """With channels first, rows of 7 elements take two loads, of 13 and 14 two, and their results two stores."""
    m = model(
        [N("Conv", ["x", "w"], ["o"], group=192, pads=[kernel // 2] * 4)],
        [("x", HALF, [16, 192, size, size])],
        ("o", HALF),
        [weights("w", HALF, 192, 1, kernel, kernel)],
    )
    code = code_of(m, chip, tmp_path)
    loads = [text for text in code if LOAD.match(text)]
    stores = [text for text in code if text.startswith("global_store")]
    assert len(loads) <= kernel * 4 + 2
    assert len(stores) <= 2
    compared(m, chip, {"x": rand(HALF, 16, 192, size, size)}, 2e-3)


@pytest.mark.parametrize("kernel", [5, 7])
@pytest.mark.parametrize("size", [9, 13, 14])
@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_windows_at_all_edges(kernel, size, kind):
    """Packs of whole rows begin anywhere; those outside of the image are zeros, whatever is there. A chip with few units has whole rows of
    few images."""
    t, of = (HALF, np.float16) if kind == "float16" else (TensorProto.FLOAT, np.float32)
    x = np.random.default_rng(3).standard_normal([3, 40, size, size]).astype(of)
    x[0, 0, 0, 0] = x[2, 39, -1, -1] = np.inf
    m = model(
        [N("Conv", ["x", "w", "b"], ["c"], group=40, pads=[kernel // 2] * 4), N("Relu", ["c"], ["o"])],
        [("x", t, list(x.shape))],
        ("o", t),
        [numpy_helper.from_array(np.abs(rand(t, 40, 1, kernel, kernel)), "w"), weights("b", t, 40)],
    )
    got, want = (sardonyx.compile(m, device=d).run({"x": x})["o"] for d in ("sim:gfx1103", "host"))
    finite = np.isfinite(want)
    assert (finite == np.isfinite(got)).all()
    np.testing.assert_allclose(got[finite], want[finite], atol=2e-3 * np.abs(want[finite]).max())


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("shape", [[2, 19, 64, 64], [1, 150, 32, 36], [3, 5, 7, 9], [2, 200, 6, 6]])
def test_softmax_of_classes(chip, shape):
    m = model([N("Softmax", ["x"], ["o"], axis=1)], [("x", HALF, shape)], ("o", HALF), [])
    compared(m, chip, {"x": rand(HALF, *shape)}, 2e-3)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100"])
def test_teams_of_few_classes_are_small(chip, tmp_path):
    """Of a team of 32 threads for 19 elements, 13 would have none."""
    onnx.save(
        model([N("Softmax", ["x"], ["o"], axis=1)], [("x", HALF, [4, 19, 128, 256])], ("o", HALF), []),
        tmp_path / "m.onnx",
    )
    source = cli("inspect", tmp_path / "m.onnx", "--device", f"sim:{chip}", "--source")
    assert int(re.search(r"team = (\d+)", source)[1]) <= 8


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("n", [7, 13, 15, 29, 31])
def test_short_odd_rows_are_loaded_in_packs(chip, n, tmp_path):
    m = model([N("Softmax", ["x"], ["o"])], [("x", HALF, [5000, n])], ("o", HALF), [])
    loads = [text for text in code_of(m, chip, tmp_path) if LOAD.match(text)]
    assert loads and not [t for t in loads if "u16" in t or "ushort" in t or "short_d16" in t]
    compared(m, chip, {"x": rand(HALF, 5000, n)}, 2e-3)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_sums_of_few_terms_need_no_team(chip, tmp_path):
    m = model([N("ReduceSum", ["x", "a"], ["o"], keepdims=0)], [("x", HALF, [64, 39, 200])], ("o", HALF),
              [numpy_helper.from_array(np.array([1]), "a")])  # fmt: skip
    code = code_of(m, chip, tmp_path)
    assert not [text for text in code if text.startswith(("ds_", "s_barrier"))]
    compared(m, chip, {"x": rand(HALF, 64, 39, 200)}, 2e-3)


def test_single_elements_of_neighbouring_lanes(tmp_path):
    """On CDNA lanes have neighbouring results of odd rows, so that L1 serves 16 of them in a cycle (5.2 us with four results along a row)."""
    m = model([N("Conv", ["x", "w"], ["o"], group=320, pads=[2] * 4, dilations=[2, 2])], [("x", HALF, [2, 320, 33, 33])],
              ("o", HALF), [weights("w", HALF, 320, 1, 3, 3)])  # fmt: skip
    assert launch_of(m, tmp_path)["us"] < 3.5


def test_few_transforms_are_divided_among_workgroups(tmp_path):
    """Four lines of 512 real samples in a workgroup instead of 16."""
    m = model([N("DFT", ["x"], ["o"])], [("x", TensorProto.FLOAT, [256, 512, 1])], ("o", TensorProto.FLOAT), [])
    assert launch_of(m, tmp_path)["grid"][0] == 64
    compared(m, "gfx942", {"x": rand(TensorProto.FLOAT, 256, 512, 1)}, 1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_matrix_windows_of_any_batch(last, tmp_path):
    names = ("t", "u") if last else ("x", "o")
    nodes = [N("Conv", [names[0], "w"], [names[1]], group=48, pads=[3] * 4)]
    if last:
        nodes.insert(0, N("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]))
        nodes.append(N("Transpose", ["u"], ["o"], perm=[0, 2, 3, 1]))
    shape = ["batch", 14, 14, 48] if last else ["batch", 48, 14, 14]
    m = model(nodes, [("x", HALF, shape)], ("o", HALF), [weights("w", HALF, 48, 1, 7, 7)])
    session, host = sardonyx.compile(m, device="sim:gfx942"), sardonyx.compile(m)
    for batch in (1, 3, 5):
        feed = {"x": rand(HALF, batch, *shape[1:])}
        with simulated.counted() as kinds:
            got = session.run(feed)["o"].astype(float)
        want = host.run(feed)["o"].astype(float)
        assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()
        assert kinds["matrix"] > 0
