"""Split-K in one launch on simulated CDNA GPUs (kernels/gemm_split_k_tree.h): workgroups of a tile add their sums in pairs."""

import itertools
import re
import sqlite3
import threading

import numpy as np
import onnx
import pytest
import sardonyx
import simulated
from cli_support import sardonyx as cli
from onnx import TensorProto, helper

HALF, INT32 = TensorProto.FLOAT16, TensorProto.INT32
#: By chip: its compute units as HIP counts them.
UNITS = {"gfx90a": 110, "gfx942": 304, "gfx950": 256}


def half(*shape, seed=1, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16)


def tensor(name, x):
    return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape, x.tobytes(), raw=True)


def model(nodes, feed, out, constants):
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feed.items()
    ]
    outputs = [helper.make_tensor_value_info("o", out, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [tensor(n, x) for n, x in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), feed


def product(m, n, k):
    """With a bias, ReLU and a residual."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
        helper.make_node("Relu", ["z"], ["r"]),
        helper.make_node("Add", ["r", "s"], ["o"]),
    ]
    feed = {"x": half(m, k), "s": half(m, n, seed=2)}
    return model(nodes, feed, HALF, {"w": half(k, n, seed=3, scale=0.1), "b": half(n, seed=4)})


def convolution(batch, c, o, size, kernel, stride, pad, groups):
    window = {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **window), helper.make_node("Relu", ["y"], ["o"])]
    constants = {"w": half(o, c // groups, kernel, kernel, seed=3, scale=0.1), "b": half(o, seed=4)}
    return model(nodes, {"x": half(batch, c, size, size)}, HALF, constants)


def integers(m, n, k):
    numbers = lambda seed, *shape: np.random.default_rng(seed).integers(-128, 127, shape, dtype=np.int8)
    return model(
        [helper.make_node("MatMulInteger", ["x", "w"], ["o"])], {"x": numbers(1, m, k)}, INT32, {"w": numbers(2, k, n)}
    )


# K that tiles do not divide, and rows and columns past the last whole tile; columns that are no whole vectors; windows
# with padding, strides, and in groups. With the keys of the tuning database, whose sizes are batches, M, N, K.
PROBLEMS = {
    "product": (
        lambda: product(70, 136, 1160),
        "product float16 a=vector b=vector whole buffers=5",
        (1, 70, 136, 1160),
    ),
    "ragged": (lambda: product(33, 75, 1032), "product float16 a=vector b=vector ragged buffers=5", (1, 33, 75, 1032)),
    "convolution": (
        lambda: convolution(1, 136, 72, 7, 3, 2, 1, 1),
        "conv float16 a=vector b=vector whole buffers=4",
        (1, 16, 72, 1224),
    ),
    "groups": (
        lambda: convolution(2, 256, 80, 5, 3, 1, 1, 2),
        "conv float16 a=vector b=vector whole buffers=4",
        (2, 50, 40, 1152),
    ),
    "int8": (lambda: integers(40, 72, 1168), "product int8 a=vector b=vector whole buffers=3", (1, 40, 72, 1168)),
}
# The smallest tiling, whose waves divide K, one of the largest, and one whose sums of a thread are no multiple of eight vectors.
TILINGS = {
    "gfx90a": ("32, 32, 1, 1, 4, 256, 2, 2", "128, 128, 2, 2, 1, 64, 2, 2"),
    "gfx942": ("32, 32, 1, 1, 4, 256, 2, 2", "256, 128, 2, 2, 1, 64, 1"),
    "gfx950": ("32, 32, 1, 1, 4, 256, 2, 2", "128, 128, 2, 2, 1, 128, 1", "224, 128, 2, 2, 1, 64, 2, 2"),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A tuning database without measurements."""
    folder = tmp_path_factory.mktemp("tuning")
    onnx.save(product(8, 8, 64)[0], folder / "m.onnx")
    path = folder / "d.tuning"
    cli("tune", folder / "m.onnx", "--device", "sim:gfx942", "--quick", "--tuning-database", path, "--cache-dir", "")
    return path


def splitting(problem, chip, database, tiling, shares, graphs=False):
    """The model compiled with a tiling whose K so many workgroups divide, and its input."""
    make, key, sizes = PROBLEMS[problem]
    folder = database.parent
    m, feed = make()
    onnx.save(m, folder / "m.onnx")
    name = f"gemm<Tiling<{tiling}>>"
    with sqlite3.connect(database) as db:
        db.execute("DELETE FROM times")
        db.execute("INSERT INTO times (arch, units, problem, batches, m, n, k, candidate, seconds) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (chip, UNITS[chip], key, *sizes, f"{name} / {shares}", 1e-6))  # fmt: skip
    device = sardonyx.compile(m, device=f"sim:{chip}", tuning_database=database, cache_dir="", graphs=graphs)
    text = cli("inspect", folder / "m.onnx", "--device", f"sim:{chip}", "--tuning-database", database, "--cache-dir", "", "--kernels", "--source")  # fmt: skip
    assert name in text and "split_k_tree(" in text
    return device, feed, sardonyx.compile(m).run(feed)["o"]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("chip", [pytest.param(c, marks=[] if c == "gfx942" else pytest.mark.slow) for c in UNITS])
@pytest.mark.slow(part=5)
def test_results(chip, problem, database):
    for tiling, shares in zip(TILINGS[chip], (3, 4, 3), strict=False):
        device, feed, want = splitting(problem, chip, database, tiling, shares)
        got = device.run(feed)["o"]
        before = simulated.launches()
        assert np.array_equal(got, device.run(feed)["o"])  # counters are zero again, and order does not matter
        if problem == "product":  # others are laid out anew by launches of their own
            assert simulated.launches() == before + 1
        if got.dtype == np.int32:
            np.testing.assert_array_equal(got, want)
        else:  # one rounding of the largest output
            a, b = got.astype(np.float64), want.astype(np.float64)
            assert np.abs(a - b).max() <= 1e-3 * np.abs(b).max()


def kernels_of(m, folder):
    """The tilings of a model of any number of rows: of kernels for whole tiles alone, and of those that divide K too."""
    for info in m.graph.input:
        info.type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(m, folder / "m.onnx")
    text = cli("inspect", folder / "m.onnx", "--device", "sim:gfx942", "--cache-dir", "", "--kernels", "--source")
    patterns = (r"^gemm<(Tiling<[^>]*>)>\(p\)", r"gemm<(Tiling<[^>]*>)>\(q\)")
    return [set(re.findall(p, text, re.M)) for p in patterns]


def test_whole_tiles_take_the_same_kernel(tmp_path):
    """Where a model's rows are not known, one kernel computes whole tiles for many rows, and parts of K for few."""
    whole, split = kernels_of(product(16, 4096, 4096)[0], tmp_path)
    assert whole and split and not whole & split
    m, feed = product(16, 768, 3072)
    whole, split = kernels_of(m, tmp_path)
    assert split and not whole & split
    device, host = sardonyx.compile(m, device="sim:gfx942", cache_dir=""), sardonyx.compile(m)
    for rows in (16, 100, 600):
        feed = {"x": half(rows, 3072), "s": half(rows, 768, seed=2)}
        got, want = (s.run(feed)["o"].astype(np.float64) for s in (device, host))
        assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()  # one rounding of the largest output


@pytest.mark.parametrize("graphs", [False, True])
def test_runs_at_the_same_time(database, graphs):
    """Each stream has its own counters, which graphs refer to: two models, and two threads of each, give what one gives."""
    models = []
    for problem in ("product", "convolution"):
        device, feed, _ = splitting(problem, "gfx942", database, TILINGS["gfx942"][0], 4, graphs)
        models.append((device, feed, device.run(feed)["o"]))
    wrong = []

    def run(device, feed, want):
        for _ in range(5):
            if not np.array_equal(device.run(feed)["o"], want):
                wrong.append(want.shape)

    threads = [threading.Thread(target=run, args=x) for x in itertools.chain(models, models)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
