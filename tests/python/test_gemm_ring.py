"""GEMMs whose tiles go straight to LDS, several at a time, on a simulated MI350X (kernels/gemm_ring.h)."""

import sqlite3

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper

CHIP, UNITS = "gfx950", 256
TILINGS = ("128, 64, 2, 2, 1, 128, 3, 0", "128, 128, 2, 2, 1, 128, 3, 0", "256, 128, 2, 2, 1, 128, 3, 0")  # fmt: skip


def numbers(of, *shape, seed=1, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(of)


def tensor(name, x):
    return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape, x.tobytes(), raw=True)


def model(nodes, x, constants):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs, outputs = ([helper.make_tensor_value_info(n, kind, s)] for n, s in (("x", x.shape), ("o", None)))
    graph = helper.make_graph(nodes, "g", inputs, outputs, [tensor(n, w) for n, w in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), {"x": x}


def product(m, n, k, of=np.float16):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Add", ["y", "b"], ["o"])]
    constants = {"w": numbers(of, k, n, seed=3, scale=0.1), "b": numbers(of, n, seed=4)}
    kind = "float16" if of == np.float16 else "bfloat16"
    key = f"product {kind} a=vector b=vector whole buffers=4"
    return *model(nodes, numbers(of, m, k), constants), key, (1, m, n, k)


def convolution(batch, channels, out, size, kernel, stride, pad):
    window = {"strides": [stride] * 2, "pads": [pad] * 4}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **window), helper.make_node("Relu", ["y"], ["o"])]
    half = np.float16
    constants = {"w": numbers(half, out, channels, kernel, kernel, seed=3, scale=0.1), "b": numbers(half, out, seed=4)}
    to = (size + 2 * pad - kernel) // stride + 1
    key = "conv float16 a=vector b=vector whole buffers=4"
    made = model(nodes, numbers(half, batch, channels, size, size), constants)
    return *made, key, (1, batch * to * to, out, channels * kernel * kernel)


def check(made, tiling, shares, folder):
    """The result with this tiling, whose K so many workgroups divide, is the host's."""
    m, feed, key, sizes = made
    onnx.save(m, folder / "m.onnx")
    path, name = folder / "d.tuning", f"gemm<Tiling<{tiling}>>"
    candidate = name if shares == 1 else f"{name} / {shares}"
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM times")
        db.execute("INSERT INTO times (arch, units, problem, batches, m, n, k, candidate, seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (CHIP, UNITS, key, *sizes, candidate, 1e-6))  # fmt: skip
    options = {"device": f"sim:{CHIP}", "tuning_database": path, "cache_dir": ""}
    text = cli("inspect", folder / "m.onnx", "--device", f"sim:{CHIP}", "--tuning-database", path, "--cache-dir", "", "--kernels", "--source")  # fmt: skip
    assert name in text, text[:2000]
    got = sardonyx.compile(m, **options).run(feed)["o"].astype(np.float64)
    want = sardonyx.compile(m).run(feed)["o"].astype(np.float64)
    # One rounding of the largest output: a half unit in the last of 11 or 8 bits.
    assert np.abs(got - want).max() <= (1e-3 if m.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16 else 8e-3) * np.abs(want).max()  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a tuning database without measurements."""
    made = tmp_path_factory.mktemp("tuning")
    onnx.save(product(8, 8, 64)[0], made / "m.onnx")
    cli("tune", made / "m.onnx", "--device", f"sim:{CHIP}", "--quick", "--tuning-database", made / "d.tuning", "--cache-dir", "")  # fmt: skip
    return made


# Of tiles along K as many as are on their way, and more, with and without a partial one; rows and columns past the last tile.
@pytest.mark.parametrize("k", [384, 392, 448, 456, 584])
@pytest.mark.parametrize("tiling", [pytest.param(t, marks=[] if t == TILINGS[2] else pytest.mark.slow) for t in TILINGS])  # fmt: skip
def test_products(tiling, k, folder):
    check(product(264, 136, k), tiling, 1, folder)


def test_bfloat16(folder):
    check(product(70, 200, 392, ml_dtypes.bfloat16), TILINGS[1], 1, folder)


# Padding, strides, several tiles in a tap and one; a part of K may begin within a tap.
@pytest.mark.parametrize("sizes", [(1, 64, 64, 9, 3, 1, 1), (2, 128, 72, 7, 3, 2, 1), (1, 192, 64, 5, 3, 1, 2), (1, 64, 40, 6, 5, 1, 2), (1, 384, 136, 6, 1, 2, 1)])  # fmt: skip
@pytest.mark.parametrize("shares", [1, 2, 3])
@pytest.mark.parametrize("tiling", [pytest.param(t, marks=[] if t == TILINGS[0] else pytest.mark.slow) for t in TILINGS])  # fmt: skip
@pytest.mark.slow(part=6)
def test_convolutions(tiling, shares, sizes, folder):
    check(convolution(*sizes), tiling, shares, folder)
