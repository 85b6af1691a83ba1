"""Element-wise kernels on AMD's chips whose rows are no multiple of 16 bytes: packs that continue from one row to the next."""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper

CHIPS = ("gfx942", "gfx1100")


def model(nodes, shapes, out, of):
    """x and others of these shapes; constants of a cast are written into the nodes."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(of))
    inputs = [helper.make_tensor_value_info(n, kind, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", kind, out)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    rng = np.random.default_rng(0)
    return made, {n: rng.standard_normal(s).astype(of) for n, s in shapes.items()}


def scaled(shape, of):
    """(x - r) * s, with an r and s of each row."""
    rows = [*shape[:-1], 1]
    nodes = [helper.make_node("Sub", ["x", "r"], ["t"]), helper.make_node("Mul", ["t", "s"], ["y"])]
    return model(nodes, {"x": shape, "r": rows, "s": rows}, shape, of)


def source(made, chip, folder):
    onnx.save(made, folder / "m.onnx")
    return cli("inspect", folder / "m.onnx", "--device", f"sim:{chip}", "--kernels", "--source", "--cache-dir", "")


# Rows of odd length and of an even one that is no multiple of 4; totals with and without a last pack that is not full.
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("shape", "of", "length"),
    [
        ([7, 301], np.float16, 8),
        ([8, 301], np.float16, 8),
        ([3, 5, 1001], np.float16, 8),
        ([9, 310], np.float16, 8),
        ([5, 303], np.float32, 4),
    ],
)
def test_rows_with_values_of_their_own(chip, shape, of, length, tmp_path):
    made, feed = scaled(shape, of)
    assert f"load_pack<{length}>" in source(made, chip, tmp_path)
    got = sardonyx.compile(made, device=f"sim:{chip}").run(feed)["y"]
    # Both round the same operations once each.
    np.testing.assert_array_equal(got, sardonyx.compile(made).run(feed)["y"])


# A value for each column: such rows are not joined.
@pytest.mark.parametrize("chip", CHIPS)
def test_columns_with_values_of_their_own(chip):
    nodes = [helper.make_node("Sub", ["x", "r"], ["t"]), helper.make_node("Mul", ["t", "c"], ["y"])]
    made, feed = model(nodes, {"x": [7, 301], "r": [7, 1], "c": [301]}, [7, 301], np.float16)
    got = sardonyx.compile(made, device=f"sim:{chip}").run(feed)["y"]
    np.testing.assert_array_equal(got, sardonyx.compile(made).run(feed)["y"])


# A long softmax of odd length: maxima and sums of parts of rows, then of rows, then this kernel.
@pytest.mark.parametrize("chip", CHIPS)
def test_long_softmax(chip, tmp_path):
    made, feed = model([helper.make_node("Softmax", ["x"], ["y"])], {"x": [8, 50257]}, [8, 50257], np.float16)
    assert "load_pack<8>" in source(made, chip, tmp_path)
    got = sardonyx.compile(made, device=f"sim:{chip}").run(feed)["y"].astype(np.float64)
    x = feed["x"].astype(np.float64)
    want = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    # Half a unit in the last of 11 bits, and the smallest float16 that is not 0 (2^-24), below which results are.
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=6e-8)
