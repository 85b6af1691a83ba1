"""Rows whose length is no multiple of a vector, and few long rows, which several workgroups divide, on AMD's chips."""

import ml_dtypes
import numpy as np
import pytest
import sardonyx
import simulated
from onnx import TensorProto, helper, numpy_helper
from test_gpu_gemm import FLOAT, HALF, model

BF16 = TensorProto.BFLOAT16
CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
TYPES = {FLOAT: (np.float32, 2e-6), HALF: (np.float16, 2e-3), BF16: (ml_dtypes.bfloat16, 1.6e-2)}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def node(kind, x):
    """A model of rows, and its result in float64."""
    last = x.shape[-1]
    weights = []
    wide = x.astype(np.float64)
    if kind == "softmax":
        nodes, y = [helper.make_node("Softmax", ["x"], ["o"], axis=-1)], softmax(wide)
    elif kind == "logsoftmax":
        nodes, y = [helper.make_node("LogSoftmax", ["x"], ["o"], axis=-1)], np.log(softmax(wide))
    elif kind == "layernorm":
        g, b = (np.random.default_rng(k).standard_normal(last).astype(x.dtype) for k in (1, 2))
        t = helper.np_dtype_to_tensor_dtype(x.dtype)
        weights = [helper.make_tensor(n, t, [last], w.tobytes(), raw=True) for n, w in zip("gb", (g, b), strict=True)]
        nodes = [helper.make_node("LayerNormalization", ["x", "g", "b"], ["o"])]
        y = normalized(wide) * g.astype(np.float64) + b.astype(np.float64)
    else:
        nodes, y = [helper.make_node("ReduceSum", ["x", "axes"], ["o"], keepdims=1)], wide.sum(-1, keepdims=True)
        weights = [numpy_helper.from_array(np.array([-1]), "axes")]
    return nodes, weights, y


def compare(kind, dtype, rows, length, chip, launches=None):
    of, tolerance = TYPES[dtype]
    x = (np.random.default_rng(length).standard_normal((rows, length)) * 2).astype(of)
    nodes, weights, want = node(kind, x)
    session = sardonyx.compile(model(nodes, [("x", dtype, x.shape)], ("o", dtype), weights), device=f"sim:{chip}")
    before = simulated.launches()
    got = session.run({"x": x})["o"].astype(np.float64)
    if launches is not None:
        assert simulated.launches() - before == launches
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["softmax", "layernorm", "sum"])
def test_rows_of_odd_length(chip, kind):
    """Around the lengths of packs, of waves' shares, and of what registers hold."""
    for length in (33, 63, 197, 513, 1001, 4099):
        compare(kind, HALF, 70, length, chip)


@pytest.mark.parametrize("kind", ["softmax", "layernorm"])
@pytest.mark.parametrize("dtype", [FLOAT, BF16], ids=["float32", "bfloat16"])
def test_rows_of_odd_length_in_other_types(kind, dtype):
    for chip, length in (("gfx942", 197), ("gfx1100", 1027), ("gfx942", 9001)):
        compare(kind, dtype, 9, length, chip)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1201"])
def test_rows_longer_than_registers(chip):
    for kind in ("softmax", "layernorm"):
        compare(kind, FLOAT, 20, 20001, chip, 1)  # too short to be divided


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["softmax", "logsoftmax", "layernorm"])
def test_few_long_rows(chip, kind):
    """Parts of rows, then all that uses their results: two launches."""
    for rows, length in ((1, 50257), (3, 32001), (6, 40960)):
        compare(kind, HALF, rows, length, chip, 2)


@pytest.mark.parametrize("dtype", [FLOAT, BF16], ids=["float32", "bfloat16"])
def test_few_long_rows_in_other_types(dtype):
    for kind, chip in (("softmax", "gfx90a"), ("layernorm", "gfx1100")):
        compare(kind, dtype, 2, 50257, chip, 2)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_groups_of_an_image(chip):
    """Few long rows of several dims: the weights are those of channels."""
    rng = np.random.default_rng(0)
    x, g, b = rng.standard_normal((1, 8, 96, 104)), rng.standard_normal(8), rng.standard_normal(8)
    x, g, b = (v.astype(np.float16) for v in (x, g, b))
    nodes = [helper.make_node("GroupNormalization", ["x", "g", "b"], ["o"], num_groups=2)]
    tensors = [numpy_helper.from_array(g, "g"), numpy_helper.from_array(b, "b")]
    m = model(nodes, [("x", HALF, x.shape)], ("o", HALF), tensors)
    m.opset_import[0].version, m.ir_version = 21, 10
    got = sardonyx.compile(m, device=f"sim:{chip}").run({"x": x})
    of = normalized(x.astype(np.float64).reshape(1, 2, -1)).reshape(x.shape)
    want = of * g.astype(np.float64)[:, None, None] + b.astype(np.float64)[:, None, None]
    np.testing.assert_allclose(got["o"].astype(np.float64), want, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize("last", [0, 1])
def test_largest_of_few_long_rows(chip, last):
    """Of equal elements the first or the last, wherever parts of the row begin."""
    node = helper.make_node("ArgMax", ["x"], ["o"], axis=1, keepdims=0, select_last_index=last)
    x = np.random.default_rng(3).standard_normal((3, 50257)).astype(np.float16)
    x[0, [7, 50256]] = 9
    x[1, [4095, 4096]] = 9
    x[2, 50250] = 9
    session = sardonyx.compile(
        model([node], [("x", HALF, x.shape)], ("o", TensorProto.INT64), []), device=f"sim:{chip}"
    )
    assert session.run({"x": x})["o"].tolist() == ([50256, 4096, 50250] if last else [7, 4095, 50250])


def test_infinities_in_rows_of_odd_length():
    """Elements that two packs have count once; rows of nothing but -inf, and of one other element."""
    x = np.full((4, 50257), -np.inf, np.float32)
    x[1, 50256] = 1
    x[2, 0] = 1
    x[3, :] = 2
    nodes = [helper.make_node("Softmax", ["x"], ["o"], axis=-1)]
    got = sardonyx.compile(model(nodes, [("x", FLOAT, x.shape)], ("o", FLOAT), []), device="sim:gfx942").run({"x": x})[
        "o"
    ]
    assert np.isnan(got[0]).all()
    assert got[1, 50256] == 1 and got[1].sum() == 1 and got[2, 0] == 1 and got[2].sum() == 1
    np.testing.assert_allclose(got[3], 1 / 50257, rtol=1e-5)
