"""TFLite files: TensorFlow's own (tests/data/tflite, made by make_tflite_files.py), and small ones that are written here."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import sardonyx
from cli_support import INVALID_ARGUMENT, INVALID_MODEL, UNSUPPORTED
from cli_support import sardonyx as command
from sardonyx.errors import InvalidArgumentError, InvalidModelError, UnsupportedError
from tflite_files import BOOL, FLOAT32, INT8, INT32, STRING, constant, model, op, t

DATA = pathlib.Path(__file__).parents[1] / "data" / "tflite"


def run(blob, *feeds):
    m = sardonyx.compile(blob)
    got = m({i.name: x for i, x in zip(m.inputs, feeds, strict=True)})
    return [got[o.name] for o in m.outputs]


# The difference that is allowed: float32 sums in another order (1e-5 of the largest value); integers differ by one unit where
# TFLite's fixed-point multiplication rounds the other way; 16-bit activations round in steps of 2^-15.
@pytest.mark.parametrize(
    "name,tolerance",
    [("float32", 1e-5), ("float16", 1e-5), ("int8", 1), ("int16", 1e-4), ("image", 1e-5), ("image_int8", 1), ("lstm", 1e-5),
     ("control", 0), ("indexing", 1e-6)],
)  # fmt: skip
def test_files_of_the_converter(name, tolerance):
    saved = np.load(DATA / f"{name}.npz")
    feeds = [saved[f"in_{k}"] for k in range(2) if f"in_{k}" in saved]
    got = run(DATA / f"{name}.tflite", *feeds)
    for k, y in enumerate(got):
        want = saved[f"out_{k}"]
        assert (y.dtype, y.shape) == (want.dtype, want.shape)
        difference = np.abs(y.astype(np.float64) - want.astype(np.float64))
        if y.dtype == np.int8:
            assert difference.max() <= tolerance and (difference > 0).mean() <= 0.15
        else:
            assert difference.max() <= tolerance * max(1, np.abs(want).max())


def test_layers_run_without_transposes():
    # 3 convolutions, 1 GEMM, and one loop each for: pooling, the pooled mean's concatenation and mean, softmax (in two).
    m = sardonyx.compile(DATA / "float32.tflite")
    kinds = [k.kind for k in m.kernels()]
    assert kinds.count("tile") == 4 and len(kinds) <= 9, m.kernels()
    assert not any("Transpose" in n and len(k.nodes) == 1 for k in m.kernels() for n in k.nodes)


def test_integer_products_stay_integers():
    nodes = command("inspect", "-q", DATA / "int8.tflite").split("operators")[1].splitlines()[0]
    # The depthwise convolution sums the same integers as floats, exactly.
    assert "QLinearConv 2" in nodes and "MatMulInteger 1" in nodes and " Conv 1" in nodes


def test_bytes_and_names():
    path = DATA / "float32.tflite"
    m = sardonyx.compile(path.read_bytes())
    assert [(i.name, i.shape) for i in m.inputs] == [("image", ("image.0", 12, 12, 3))]
    assert [o.name for o in m.outputs] == [o.name for o in sardonyx.compile(path).outputs]


def test_operators():
    """One model of many operators, so that it is compiled once. References are numpy's."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (1, 4, 4, 4)).astype(np.float32)
    i = rng.integers(-9, 10, (2, 3)).astype(np.int32)
    j = np.where(rng.integers(0, 2, (2, 3)) == 1, 4, -3).astype(np.int32)
    tensors = [t("x", FLOAT32, [1, 4, 4, 4]), t("i", INT32, [2, 3]), t("j", INT32, [2, 3])]
    operators, wanted = [], []

    def add(code, inputs, want, options=None):
        want = np.asarray(want)
        tensors.append(
            t(f"y{len(wanted)}", {"float32": FLOAT32, "int32": INT32, "bool": BOOL}[want.dtype.name], list(want.shape))
        )
        operators.append(op(code, inputs, [len(tensors) - 1], options))
        wanted.append((len(tensors) - 1, want))

    def const(value):
        tensors.append(constant(f"c{len(tensors)}", value))
        return len(tensors) - 1

    add(90, [1, 2], i // j)
    add(95, [1, 2], np.mod(i, j))
    add(42, [1, 2], np.trunc(i / j).astype(np.int32))
    add(0, [0, 0], np.maximum(2 * x, 0), {0: ("int8", 1)})
    add(18, [0, 0], np.clip(x * x, 0, 6), {0: ("int8", 3)})
    add(76, [const(np.array([4, 16], np.float32))], np.array([0.5, 0.25], np.float32))
    add(11, [0], x / np.sqrt((x * x).sum(-1, keepdims=True)))
    add(12, [0], np.sqrt((x * x).reshape(1, 2, 2, 2, 2, 4).mean((2, 4))),
        {0: ("int8", 1), 1: ("int32", 2), 2: ("int32", 2), 3: ("int32", 2), 4: ("int32", 2)})  # fmt: skip
    blocks = x.reshape(1, 2, 2, 2, 2, 4)
    add(26, [0], blocks.transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 2, 16), {0: ("int32", 2)})
    add(5, [0], x.reshape(1, 4, 4, 2, 2, 1).transpose(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, 1), {0: ("int32", 2)})
    batches = blocks.transpose(2, 4, 0, 1, 3, 5).reshape(4, 2, 2, 4)
    block, border = const(np.array([2, 2], np.int32)), const(np.zeros((2, 2), np.int32))
    add(38, [0, block, border], batches)
    add(37, [wanted[-1][0], block, border], x)
    add(82, [0, const(np.array([1, 3], np.int32))], x.max((1, 3), keepdims=True), {0: ("bool", True)})
    add(100, [1, const(np.array([[0, 0], [1, 1]], np.int32))], np.pad(i, ((0, 0), (1, 1)), "reflect"), {0: ("int8", 0)})
    add(60, [1, const(np.array([[1, 0], [0, 2]], np.int32)), const(np.array(7, np.int32))],
        np.pad(i, ((1, 0), (0, 2)), constant_values=7))  # fmt: skip
    add(122, [const(np.array([[1], [1], [0]], np.int32)), const(np.array([5, 6, 7], np.int32)), const(np.array([3], np.int32))],
        np.array([7, 11, 0], np.int32))  # fmt: skip
    add(151, [1, const(np.array([[50, 60]], np.int32)), const(np.array([1, 2], np.int32))],
        np.concatenate([i[:1], np.concatenate([i[1:, :1], [[50, 60]]], 1)]).astype(np.int32))  # fmt: skip
    add(64, [const(np.array([True, False])), 1, 2], np.where([[True], [False]], i, j))
    add(93, [1], np.zeros_like(i))
    add(94, [const(np.array([2, 2], np.int32)), const(np.array(3, np.int32))], np.full((2, 2), 3, np.int32))
    add(110, [0], np.array(4, np.int32))
    add(156, [const(np.array([1, -1, 0], np.float32)), const(np.array([-1, -1, -2], np.float32))],
        np.arctan2([1, -1, 0], [-1, -1, -2]).astype(np.float32))  # fmt: skip
    got = run(model(tensors, operators, [0, 1, 2], [k for k, _ in wanted]), x, i, j)
    for (k, want), y in zip(wanted, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6, err_msg=tensors[k]["name"])
        assert y.dtype == want.dtype


def test_a_quantised_layer_sums_integers():
    """x and w in int8, by hand: the sum, the bias, one multiplication by the scales, and the fused ReLU as a clamp."""
    rng = np.random.default_rng(1)
    x = rng.integers(-128, 128, (3, 16)).astype(np.int8)
    w, b = rng.integers(-127, 128, (5, 16)).astype(np.int8), rng.integers(-500, 500, 5).astype(np.int32)
    tensors = [
        t("x", INT8, [3, 16], scale=0.05, zero=3), constant("w", w, scale=0.01), constant("b", b, scale=0.0005),
        t("y", INT8, [3, 5], scale=0.1, zero=-20),
    ]  # fmt: skip
    (got,) = run(model(tensors, [op(9, [0, 1, 2], [3], {0: ("int8", 1)})], [0], [3]), x)
    total = (x.astype(np.int32) - 3) @ w.T.astype(np.int32) + b
    want = np.clip(np.rint(total * (0.05 * 0.01 / 0.1)) - 20, -20, 127)
    assert np.abs(got - want).max() <= 1 and (got != want).mean() < 0.1  # float32 rounds ties another way


REFUSED = {
    "custom": ([op(32, [0], [1], custom="FlexErfinv")], "'FlexErfinv', which is TensorFlow's"),
    "lookup": ([op(137, [0], [1])], r"'y' \(HASHTABLE_FIND\): a lookup"),
    "state": ([op(143, [0], [1])], r"\(READ_VARIABLE\): state"),
    "random": ([op(148, [0], [1])], r"\(RANDOM_UNIFORM\)"),
    "stablehlo": ([op(163, [0], [1])], "number 163 of TFLite's operators"),
    "activation": ([op(0, [0, 0], [1], {0: ("int8", 5)})], "fused activation function 5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    operators, message = REFUSED[case]
    with pytest.raises(UnsupportedError, match=message):
        sardonyx.compile(model([t("x", FLOAT32, [2]), t("y", FLOAT32, [2])], operators, [0], [1]))


def test_strings_are_refused():
    with pytest.raises(UnsupportedError, match="input 'x': its elements are strings"):
        sardonyx.compile(model([t("x", STRING, [2])], [], [0], [0]))


def test_malformed():
    x, y = t("x", FLOAT32, [2]), t("y", FLOAT32, [2])
    cases = {
        "no output": model([x], [], [0], []),
        "is used before": model([x, y], [], [0], [1]),
        "refers to tensor 7 of 2": model([x, y], [op(0, [0, 7], [1])], [0], [1]),
        "input 1 is missing": model([x, y], [op(0, [0], [1])], [0], [1]),
        "has 4 bytes": model([t("c", FLOAT32, [2], np.zeros(1, np.float32))], [], [], [0]),
        "has the shape": model([t("c", FLOAT32, [-1], np.zeros(1, np.float32))], [], [], [0]),
        "has a dim of size -2": model([t("x", FLOAT32, [-2])], [], [0], [0]),
        "axis 3 of 1 dims": model([x, y], [op(2, [0, 0], [1], {0: ("int32", 3)})], [0], [1]),
        "there is no graph 9": model(
            [t("c", BOOL, []), x, y], [op(118, [0, 1], [2], {0: ("int32", 9), 1: ("int32", 9)})], [0, 1], [2]
        ),
    }
    for message, blob in cases.items():
        with pytest.raises(InvalidModelError, match=message):
            sardonyx.compile(blob)
    with pytest.raises(UnsupportedError, match="version 2"):
        sardonyx.compile(model([x], [], [0], [0], version=2))


def test_graphs_that_call_themselves():
    c, x, y = t("c", BOOL, []), t("x", FLOAT32, [2]), t("y", FLOAT32, [2])
    itself = op(118, [0, 1], [2], {0: ("int32", 1), 1: ("int32", 1)})
    branch = ([c, x, y], [op(118, [0, 0, 1], [2], {0: ("int32", 1), 1: ("int32", 1)})], [0, 1], [2])
    start = op(118, [0, 0, 1], [2], {0: ("int32", 1), 1: ("int32", 1)})
    assert itself != start
    with pytest.raises(UnsupportedError, match=r"deep|multiplies|make more"):
        sardonyx.compile(model([c, x, y], [start], [0, 1], [2], branch))


def test_every_truncation_is_refused():
    blob = (DATA / "control.tflite").read_bytes()
    for n in range(8, len(blob), 97):
        try:
            sardonyx.pass_report(blob[:n])
        except sardonyx.errors.Error as error:
            assert not isinstance(error, sardonyx.errors.InternalError), (n, error)


def test_command_line(tmp_path):
    path = DATA / "float32.tflite"
    assert "output_0" in command("run", "-q", path, "--dim", "image.0=2")
    assert "ONNX Runtime can't run" in command("verify", path, code=INVALID_ARGUMENT)
    assert "not a SavedModel folder" in command("run", path, "--signature", "x", code=INVALID_ARGUMENT)
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(path.read_bytes()[:100])
    assert str(broken) in command("run", broken, code=INVALID_MODEL)
    compiled = tmp_path / "m.sdx"
    command("compile", "-q", path, "-o", compiled)
    assert "output_0" in command("run", "-q", compiled, "--dim", "image.0=1")


def test_tensorflow_models_need_tensorflow(tmp_path):
    """Where it is not installed the error says so; nothing else needs it."""
    with pytest.raises(InvalidArgumentError, match="are for TensorFlow models"):
        sardonyx.compile(DATA / "float32.tflite", signature="x")
    hidden = "import sys; sys.modules['tensorflow'] = None; import sardonyx; sardonyx.compile('m.keras')"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert "UnsupportedError" in done.stderr and "pip install sardonyx[tensorflow]" in done.stderr, done.stderr
    (tmp_path / "frozen.pb").write_bytes(b"\x0a\x00")
    message = command("run", tmp_path / "frozen.pb", code=UNSUPPORTED, SARDONYX_PYTHON="/nonexistent/python")
    assert "there is no Python '/nonexistent/python'" in message
