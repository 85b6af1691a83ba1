"""Graphs of thousands of nodes and operators of hundreds of operands: compiling is linear in the number of nodes."""

import re
import resource
import subprocess

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import SARDONYX
from onnx import TensorProto, helper, numpy_helper

NODES = 10_000
# Of CPU time for 10,000 nodes. A core takes 1 to 10, and 34 to 44 for long_skips where it has AVX2 only.
MOST_SECONDS = 120


def weights(name, *shape):
    values = np.random.default_rng(len(name)).standard_normal(shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(values.astype(np.float32), name)


def residual_layers(count, size=32):
    """GEMM, bias, ReLU and residual: four nodes a layer."""
    nodes, initializers, x = [], [], "x"
    for i in range(count // 4):
        initializers += [weights(f"w{i}", size, size), weights(f"b{i}", size)]
        nodes += [
            helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"]),
            helper.make_node("Add", [f"r{i}", x], [f"x{i}"]),
        ]
        x = f"x{i}"
    return nodes, initializers, x, size


def parallel_branches(count, size=16):
    """GEMMs of one input, summed in a tree: everything could be merged into one GEMM and one loop."""
    nodes, initializers, values = [], [], []
    for i in range(count // 3):
        initializers.append(weights(f"w{i}", size, size))
        nodes += [
            helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"]),
            helper.make_node("Relu", [f"m{i}"], [f"r{i}"]),
        ]
        values.append(f"r{i}")
    while len(values) > 1:
        pairs = list(zip(values[::2], values[1::2], strict=False))
        nodes += [helper.make_node("Add", [a, b], [a + "s"]) for a, b in pairs]
        values = [a + "s" for a, _ in pairs] + values[2 * len(pairs) :]
    return nodes, initializers, values[0], size


def long_skips(count, size=32):
    """Each layer reads values of layers far before it."""
    random, nodes, values = np.random.default_rng(0), [], ["x"]
    for i in range(count // 4):
        a, b = (values[random.integers(len(values))] for _ in range(2))
        nodes += [
            helper.make_node("Add", [values[-1], a], [f"a{i}"]),
            helper.make_node("Mul", [f"a{i}", b], [f"b{i}"]),
            helper.make_node("Softmax", [f"b{i}"], [f"c{i}"], axis=-1),
            helper.make_node("Sub", [f"c{i}", values[-1]], [f"x{i}"]),
        ]
        values.append(f"x{i}")
    return nodes, [], values[-1], size


def save(path, parts):
    nodes, initializers, output, size = parts
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", size])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", size])],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def cpu_seconds(model, target, out):
    """CPU time of compiling with one thread, and the number of kernels."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [SARDONYX, "compile", "-q", "-j", "1", "--cache-dir", "", *target, "-o", out, model]
    text = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=600).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, int(re.match(r"(\d+) kernels", text)[1])


@pytest.mark.parametrize("target", [("--device", "host"), ("--arch", "gfx942")], ids=["host", "gfx942"])
@pytest.mark.parametrize("make", [residual_layers, parallel_branches, long_skips])
@pytest.mark.slow(part=2)
def test_compile_time_is_linear(make, target, tmp_path):
    save(tmp_path / "small.onnx", make(NODES // 4))
    save(tmp_path / "large.onnx", make(NODES))
    small, few = cpu_seconds(tmp_path / "small.onnx", target, tmp_path / "o.sdx")
    large, many = cpu_seconds(tmp_path / "large.onnx", target, tmp_path / "o.sdx")
    assert 3 * few <= many <= 5 * few
    assert large < MOST_SECONDS
    # Four times the nodes. Quadratic work would take 16 times as long; 7 leaves room for noise of a shared machine.
    assert large < 7 * small + 0.5


def operand_model(op, count, **attributes):
    names = [f"x{i}" for i in range(count)]
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(op, names, ["y"], **attributes)],
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in names],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("Concat", {"axis": 0}, np.concatenate),
        ("Concat", {"axis": 1}, lambda xs: np.concatenate(xs, axis=1)),
        ("Sum", {}, lambda xs: np.sum(xs, axis=0, dtype=np.float64)),
        ("Mean", {}, lambda xs: np.mean(xs, axis=0, dtype=np.float64)),
        ("Max", {}, lambda xs: np.max(xs, axis=0)),
        ("Min", {}, lambda xs: np.min(xs, axis=0)),
    ],
    ids=["concat rows", "concat columns", "sum", "mean", "max", "min"],
)
@pytest.mark.parametrize("count", [33, 1100])
def test_operators_of_many_operands(op, attributes, expected, count, device):
    # A kernel takes at most 64 pointers; 1100 operands take two levels of runs.
    random = np.random.default_rng(count)
    xs = [random.standard_normal((2, 3)).astype(np.float32) for _ in range(count)]
    model = sardonyx.compile(operand_model(op, count, **attributes), device=device)
    (y,) = model.run({f"x{i}": x for i, x in enumerate(xs)}).values()
    # float32 sums of 1100 values of about 1: 1100 roundings of at most 2^-24 of a partial sum below 100
    np.testing.assert_allclose(
        y, expected(xs), rtol=0 if op in ("Concat", "Max", "Min") else 1e-5, atol=2e-4 * (op == "Sum")
    )
