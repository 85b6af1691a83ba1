"""Kernels that memory bounds, on AMD's chips: results can be correct although each load waits for the one before, rows are read again
by every stage, or a lane executes several times the instructions that an element needs."""

import re

import numpy as np
import onnx
import pytest
import sardonyx
import simulated
from onnx import helper, numpy_helper
from test_amd_main_loops import WAIT, instructions
from test_gpu_gemm import FLOAT, HALF, few_bits, model, rand, weights

LOAD = re.compile(r"\bglobal_load_(dwordx4|b128)\b")


def most_in_flight(code):
    """The most loads of 16 bytes between two waits for any."""
    most = now = 0
    for text in code:
        now = now + 1 if LOAD.search(text) else 0 if WAIT.search(text) else now
        most = max(most, now)
    return most


def loops(code):
    """The instructions of each loop, in the order of their addresses."""
    for at, (address, text, _) in enumerate(code):
        branch = re.match(r"s_c?branch\S* (\d+)", text)
        if branch and int(branch[1]) >= 0x8000:
            first = address + 4 + 4 * (int(branch[1]) - 0x10000)
            yield [text for address, text, _ in code[: at + 1] if address >= first]


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_weights_of_all_columns_are_in_flight(chip, tmp_path):
    node = helper.make_node("MatMul", ["x", "w"], ["o"])
    # A shorter sum has no loop.
    m = model([node], [("x", HALF, [1, 8192])], ("o", HALF), [weights("w", HALF, 8192, 1024)])
    onnx.save(m, tmp_path / "row.onnx")
    bodies = [b for b in loops(instructions(tmp_path / "row.onnx", chip, tmp_path)) if any("v_dot2" in i for i in b)]
    body = min(bodies, key=len)
    assert most_in_flight(body) == sum(bool(LOAD.search(i)) for i in body) >= 5  # x and four columns, or more


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_taps_of_a_window_are_in_flight(chip, tmp_path):
    """Of 3 x 3 taps: those of the image and those of the filter."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w"], ["u"], group=256, pads=[1] * 4),
        helper.make_node("Transpose", ["u"], ["o"], perm=[0, 2, 3, 1]),
    ]
    filters = numpy_helper.from_array(rand(HALF, 256, 1, 3, 3), "w")
    onnx.save(model(nodes, [("x", HALF, [8, 28, 28, 256])], ("o", HALF), [filters]), tmp_path / "window.onnx")
    assert most_in_flight([text for _, text, _ in instructions(tmp_path / "window.onnx", chip, tmp_path)]) >= 18


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
def test_products_of_a_window_are_added_at_once(chip, tmp_path):
    """With a bias and an activation the compiler paired only some of the products, and added them by other instructions."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w", "b"], ["u"], group=256, pads=[1] * 4),
        helper.make_node("Relu", ["u"], ["v"]),
        helper.make_node("Transpose", ["v"], ["o"], perm=[0, 2, 3, 1]),
    ]
    weights = [numpy_helper.from_array(rand(HALF, 256, 1, 3, 3), "w"), numpy_helper.from_array(rand(HALF, 256), "b")]
    onnx.save(model(nodes, [("x", HALF, [64, 56, 56, 256])], ("o", HALF), weights), tmp_path / "window.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "window.onnx", chip, tmp_path)]
    products = {"v_fma_mix_f32": 1, "v_pk_fma_f32": 2, "v_fma_f32": 1, "v_fmac_f32": 1}
    # 9 taps of 8 channels of 4 outputs.
    assert sum(k * sum(text.startswith(name) for text in code) for name, k in products.items()) >= 288
    assert not [text for text in code if text.startswith("v_pk_mul_f32")]


def run(m, chip, feed, tolerance):
    """Compares with the host, and returns the wave-instructions by kind and the bytes read from global memory."""
    device, host = sardonyx.compile(m, device=f"sim:{chip}"), sardonyx.compile(m)
    device.run(feed)  # weights are rearranged before the first run
    with simulated.counted() as kinds, simulated.traffic() as traffic:
        got = device.run(feed)
    for name, want in host.run(feed).items():
        error = np.abs(got[name].astype(float) - want.astype(float)).max()
        assert error <= tolerance * np.abs(want.astype(float)).max()
    return sum(kinds.values()), traffic["global_read"]


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_tiles_are_loaded_once(chip):
    """The loop of a GEMM has loads for tiles beyond the last one; it ends before those would load the last one again."""
    node = helper.make_node("MatMul", ["x", "w"], ["o"])
    m = model([node], [("x", HALF, [64, 768])], ("o", HALF), [weights("w", HALF, 768, 768)])
    _, read = run(m, chip, {"x": rand(HALF, 64, 768)}, 2e-3)
    # Tiles of 32 x 32: each row is read for 24 tiles, each column for 2.
    assert read < 1.02 * 2 * 768 * (64 * 24 + 768 * 2)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
def test_long_rows_are_read_once(chip):
    node = helper.make_node("Softmax", ["x"], ["o"])
    x = rand(HALF, 256, 10240)
    _, read = run(model([node], [("x", HALF, x.shape)], ("o", HALF), []), chip, {"x": x}, 1e-3)
    assert read <= 1.01 * x.nbytes


# Wave-instructions: a tenth above what was executed when these were set.
@pytest.mark.parametrize(("chip", "most"), [("gfx90a", 75e3), ("gfx942", 70e3), ("gfx1100", 125e3)])
def test_instructions_of_an_lstm_of_one_step(chip, most):
    """257 inputs, 128 units, one row, in float32: rows of the weights are no whole vectors."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 512, 257), "r": (1, 512, 128), "v": (1, 512, 128), "s": (1, 512, 128), "d": (128, 257)}
    tensors = [numpy_helper.from_array((rng.standard_normal(s) * 0.1).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=128),
        helper.make_node("LSTM", ["h", "v", "s"], ["", "g"], hidden_size=128),
        helper.make_node("MatMul", ["g", "d"], ["o"]),
    ]
    m = model(nodes, [("x", FLOAT, [1, 1, 257])], ("o", FLOAT), tensors)
    count, _ = run(m, chip, {"x": rand(FLOAT, 1, 1, 257)}, 1e-5)
    assert count <= most


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("rows", [2, 4])
def test_instructions_of_four_bits(chip, rows):
    """Products of a few rows with weights of 4 bits: sums are those of matrix instructions, which leave vector arithmetic to the weights."""
    k, n = 4096, 512
    node, tensors = few_bits("o", k, n)
    m = model([node], [("x", HALF, [rows, k])], ("o", HALF), tensors, ["com.microsoft"])
    count, _ = run(m, chip, {"x": rand(HALF, rows, k)}, 5e-3)
    assert count * 64 / (k * n) <= 4.5


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("kind", [FLOAT, HALF], ids=["float32", "float16"])
def test_rows_of_any_length(chip, kind):
    """Lengths around those of a vector and of a wave's part; weights with an infinite element beside what is masked."""
    for k in (9, 65, 257, 511, 1030):
        for rows in (1, 3):
            x = rand(kind, rows, k)
            w = rand(kind, 20, k) * np.float32(0.1).astype(x.dtype)
            nodes = [helper.make_node("Gemm", ["x", "w"], ["o"], transB=1)]
            m = model(nodes, [("x", kind, [rows, k])], ("o", kind), [numpy_helper.from_array(w, "w")])
            run(m, chip, {"x": x}, 1e-5 if kind == FLOAT else 2e-3)
    w[7, 1028] = np.inf
    m = model(nodes, [("x", kind, [rows, k])], ("o", kind), [numpy_helper.from_array(w, "w")])
    got = sardonyx.compile(m, device=f"sim:{chip}").run({"x": np.abs(x) + x.dtype.type(0.5)})["o"]
    assert np.isposinf(got[:, 7]).all() and np.isfinite(np.delete(got, 7, axis=1)).all()


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_extremes_of_windows(chip):
    """Of float16, two at a time: NaN of either sign wins, infinities and zeros of either sign, windows at edges."""
    x = rand(HALF, 2, 24, 13, 15)
    flat = x.reshape(-1)
    places = np.random.default_rng(5).permutation(flat.size)
    for k, value in enumerate((np.inf, -np.inf, np.nan, 0.0, -0.0)):
        flat[places[k * 40 : k * 40 + 40]] = value
    flat.view(np.uint16)[places[200:220]] = 0xFE00  # a negative NaN
    x[1, 3] = -np.inf
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("MaxPool", ["t"], ["u"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Transpose", ["u"], ["o"], perm=[0, 2, 3, 1]),
    ]
    m = model(nodes, [("x", HALF, [2, 13, 15, 24])], ("o", HALF), [])
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    got, want = (sardonyx.compile(m, device=d).run({"x": x})["o"] for d in (f"sim:{chip}", "host"))
    np.testing.assert_array_equal(got, want)
    assert np.isnan(want).any() and np.isneginf(want).any()


@pytest.mark.parametrize(("chip", "most"), [("gfx90a", 75e3), ("gfx942", 75e3)])
def test_instructions_of_pooling(chip, most):
    """Elements are not converted to float32."""
    node = helper.make_node("MaxPool", ["t"], ["u"], kernel_shape=[3, 3], pads=[1] * 4)
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node]
    nodes.append(helper.make_node("Transpose", ["u"], ["o"], perm=[0, 2, 3, 1]))
    m = model(nodes, [("x", HALF, [2, 28, 28, 64])], ("o", HALF), [])
    count, _ = run(m, chip, {"x": rand(HALF, 2, 28, 28, 64)}, 1e-6)
    assert count <= most


@pytest.mark.parametrize(("chip", "kernel", "most"), [("gfx1100", 5, 60), ("gfx1100", 7, 110), ("gfx1201", 7, 110)])
def test_windows_load_rows_in_packs(chip, kernel, most, tmp_path):
    """With channels first: not each element that a tap reads, once for each of the neighbouring outputs."""
    node = helper.make_node("Conv", ["x", "w"], ["o"], group=64, pads=[kernel // 2] * 4)
    filters = numpy_helper.from_array(rand(HALF, 64, 1, kernel, kernel), "w")
    onnx.save(model([node], [("x", HALF, [8, 64, 56, 56])], ("o", HALF), [filters]), tmp_path / "window.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "window.onnx", chip, tmp_path)]
    loads = [text for text in code if re.match("(global|buffer)_load_", text)]
    assert 10 <= len(loads) <= most
    assert sum(bool(LOAD.search(text)) for text in loads) >= len(loads) / 2


@pytest.mark.parametrize("last", [False, True])
def test_whole_rows_of_small_images(last):
    """A third of the instructions (144,480 and 124,320, with parts of rows 379,904 and 460,992), and no tap outside of the image."""
    shape = [4, 7, 7, 256] if last else [4, 256, 7, 7]
    names = ("t", "u") if last else ("x", "o")
    nodes = [helper.make_node("Conv", [names[0], "w"], [names[1]], group=256, pads=[3] * 4)]
    if last:
        nodes.insert(0, helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]))
        nodes.append(helper.make_node("Transpose", ["u"], ["o"], perm=[0, 2, 3, 1]))
    m = model(nodes, [("x", HALF, shape)], ("o", HALF), [weights("w", HALF, 256, 1, 7, 7)])
    count, _ = run(m, "gfx1103", {"x": rand(HALF, *shape)}, 2e-3)
    assert count <= 160e3


def test_large_pools_read_along_one_dim_after_the_other(tmp_path):
    node = helper.make_node("MaxPool", ["x"], ["o"], kernel_shape=[13, 13], pads=[6] * 4)
    m = model([node], [("x", HALF, [1, 16, 40, 40])], ("o", HALF), [])
    x = rand(HALF, 1, 16, 40, 40)
    count, _ = run(m, "gfx1100", {"x": x}, 0)
    assert count <= 160e3


@pytest.mark.parametrize("kind", [FLOAT, HALF])
def test_functions_take_no_float64(kind, tmp_path):
    """RDNA computes float64 at a 32nd of the rate: asinh took 4.7 times as long as a kernel that memory bounds, in float16 nine."""
    # Not sin, cos and tan: arguments from 16384 on, which are behind a branch, are reduced in float64.
    names = ["Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Gelu", "Softplus", "Softsign"]
    names += ["Mish", "Elu", "Selu", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"]
    nodes = [helper.make_node(name, ["x"], [name]) for name in names]
    nodes += [helper.make_node("Pow", ["x", "z"], ["Pow"]), helper.make_node("Div", ["x", "z"], ["Div"])]
    nodes.append(helper.make_node("Sum", [n.output[0] for n in nodes], ["o"]))
    onnx.save(model(nodes, [("x", kind, [4096]), ("z", kind, [4096])], ("o", kind), []), tmp_path / "functions.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "functions.onnx", "gfx1100", tmp_path)]
    assert len(code) > 500
    assert not [text for text in code if "_f64" in text]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_searches_along_columns_load_ahead(chip, tmp_path):
    """Threads divide a column: 32 searched the same one, and waited for each element before they loaded the next."""
    node = helper.make_node("ArgMax", ["x"], ["o"], axis=1, keepdims=0)
    m = model([node], [("x", HALF, [3, 200, 70])], ("o", onnx.TensorProto.INT64))
    onnx.save(m, tmp_path / "search.onnx")
    most = now = 0
    for _, text, _ in instructions(tmp_path / "search.onnx", chip, tmp_path):
        now = now + 1 if text.startswith("global_load") else 0 if WAIT.search(text) else now
        most = max(most, now)
    assert most >= 7  # all 200 / 32 of a thread
    x = rand(HALF, 3, 200, 70)
    x[:, 7] = x[:, 190] = 60000  # the first of equal elements counts,
    x[1, 100:, 5] = np.nan  # and NaN as the largest
    program = sardonyx.compile(m, device=f"sim:{chip}")
    with simulated.counted() as kinds:
        got = program(x=x)["o"]
    np.testing.assert_array_equal(got, np.argmax(x, 1))
    assert got[1, 5] == 100 and got[0, 0] == 7
    # 210 columns of 200 elements, 32 or 64 elements a wave: some 25 instructions for these, and the end of each team
    assert sum(kinds.values()) < 210 * 200 / 32 * 35
