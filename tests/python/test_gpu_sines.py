"""Sine and cosine on GPUs: accuracy for arguments of any size, and instructions per element."""

import re
import subprocess

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import BUILD
from cli_support import sardonyx as cli
from onnx import TensorProto, helper
from test_gpu_epilogues import disassembly, product

CHIPS = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
OPERATORS = {"Sin": np.sin, "Cos": np.cos}


def function(operator, element=TensorProto.FLOAT, size="n"):
    values = [helper.make_tensor_value_info(name, element, [size]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def arguments():
    """All magnitudes, multiples of pi / 2 and their neighbours, and the bound of the reduction that takes few instructions."""
    rng = np.random.default_rng(0)
    turns = (np.arange(3000) * (np.pi / 2)).astype(np.float32)
    parts = [
        rng.uniform(-8, 8, 4000),
        rng.uniform(-(2.0**17), 2.0**17, 8000),
        rng.uniform(-1, 1, 3000) * 2.0 ** rng.uniform(-140, 127, 3000),
        *(turns, np.nextafter(turns, np.float32(0)), np.nextafter(turns, np.float32(np.inf))),
        np.nextafter(np.float32(2**17), np.float32([0, np.inf])),
        [0, -0.0, 2**17, -(2**17), 16367173 * 2.0**72, 3e38],
    ]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("chip", CHIPS)
def test_sines_of_all_magnitudes_are_accurate(chip, operator):
    x = arguments()
    exact = OPERATORS[operator](x.astype(np.longdouble))
    got = sardonyx.compile(function(operator), device=f"sim:{chip}")(x=x)["y"]
    unit = np.spacing(np.abs(exact).astype(np.float32))
    assert (np.abs(got - exact) / unit).max() <= 1.6


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("chip", CHIPS)
def test_sines_of_infinity_and_nan_are_nan(chip, operator):
    x = np.float32([1, np.inf, -np.inf, np.nan] * 4)
    got = sardonyx.compile(function(operator), device=f"sim:{chip}")(x=x)["y"]
    np.testing.assert_array_equal(np.isnan(got), ~np.isfinite(x))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("chip", CHIPS)
def test_sines_in_float16(chip, operator):
    """Of all float16 numbers, to within rounding."""
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.isfinite(x)
    exact = OPERATORS[operator](np.where(finite, x, 0).astype(np.float64))
    got = sardonyx.compile(function(operator, TensorProto.FLOAT16), device=f"sim:{chip}")(x=x)["y"]
    unit = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    assert np.isnan(got[~finite]).all()
    assert (np.abs(got - exact)[finite] / unit[finite]).max() <= 0.52


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("chip", CHIPS)
def test_large_arguments_in_an_epilogue(chip, precision):
    """Only some of the elements of a thread are large."""
    m, n, k = 64, 64, 32
    model, w, bias = product([("Sin", [])], m, n, k)
    model = onnx.ModelProto.FromString(model.SerializeToString())
    large = np.array(bias)
    large[[5, 17, 40]] = [3e7, -2e5, 1.5e38]
    for tensor in model.graph.initializer:
        if tensor.name == "bias":
            tensor.CopyFrom(onnx.numpy_helper.from_array(large, "bias"))
    a = np.random.default_rng(3).standard_normal((m, k)).astype(np.float32)
    got = sardonyx.compile(model, device=f"sim:{chip}", precision=precision)(a=a)["y"]
    half = np.float16 if precision == "fp16" else np.float32
    sums = a.astype(half).astype(np.float64) @ w.astype(half).astype(np.float64)
    want = np.sin((sums + large).astype(np.float32).astype(np.float64))
    columns = np.abs(large) < 1e5
    columns[3:5] = False  # sums of hundreds, whose roundings differ
    np.testing.assert_allclose(got[:, columns], want[:, columns], atol=2e-3)
    # Sums vanish beside these.
    np.testing.assert_allclose(got[:, 40], np.sin(np.float64(large[40])), atol=2e-3)
    assert (np.abs(got) <= 1).all()


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_sines_take_few_instructions(chip, tmp_path):
    """Of float16 numbers: no branches for large arguments, and one polynomial."""
    onnx.save(function("Sin", TensorProto.FLOAT16, 8 * 4096), tmp_path / "m.onnx")
    code = disassembly(tmp_path / "m.onnx", chip, tmp_path)
    assert sum("f64" in c for c in code) == 0
    arithmetic = [c for c in code if c.startswith("v_") and not c.startswith("v_mov")]
    assert len(arithmetic) <= 20 * 9 + 40  # 8 of a pack, and one of those that are left


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_results_up_to_1_do_not_saturate(chip, tmp_path):
    onnx.save(product([("Sin", [])], 4096, 256, 256)[0], tmp_path / "m.onnx")
    options = ["--device", f"sim:{chip}", "--precision", "fp16", "--kernels", "--source"]
    text = cli("inspect", tmp_path / "m.onnx", *options)
    after = re.findall(r"half_sin\(.*\n(.*)", text)
    assert after and not any("saturated" in line for line in after)


def ptx(model, precision, folder):
    onnx.save(model, folder / "m.onnx")
    command = [BUILD / "bin/sardonyx", "compile", folder / "m.onnx", "--arch", "sm_90a", "--precision", precision]
    subprocess.run([*command, "-o", folder / "m.sdx", "--cache-dir", ""], check=True, capture_output=True)
    return (folder / "m.sdx").read_bytes()


def test_elements_of_a_pack_are_tested_together(tmp_path):
    """NVIDIA: large arguments of any of the elements of a thread take one branch."""
    code = ptx(function("Sin", size=4 * 4096), "fp32", tmp_path)
    assert code.count(b"setp.ge.f32") + code.count(b"setp.ltu.f32") <= 2 * 4 + 2
    # Those of the whole pack come before the first call.
    assert code[: code.index(b"call.uni")].count(b"fma.rn.f32") >= 4 * 12


def test_sines_of_float16_have_no_branches(tmp_path):
    code = ptx(function("Cos", TensorProto.FLOAT16, 8 * 4096), "fp32", tmp_path)
    assert b"call.uni" not in code and b"f64" not in code
    assert code.count(b"fma.rn.f32") <= 9 * 7


def encoding(parts, rows=50, width=3):
    """The concatenation of parts: (operator or none, factor, columns)."""
    nodes, names, stored = [], [], []
    for k, (operator, factor, columns) in enumerate(parts):
        bounds = {f"b{k}": np.int64([0]), f"e{k}": np.int64([columns]), f"a{k}": np.int64([1])}
        stored += [onnx.numpy_helper.from_array(v, n) for n, v in bounds.items()]
        stored.append(onnx.numpy_helper.from_array(np.float32(factor), f"f{k}"))
        nodes.append(helper.make_node("Slice", ["x", f"b{k}", f"e{k}", f"a{k}"], [f"s{k}"]))
        nodes.append(helper.make_node("Mul", [f"s{k}", f"f{k}"], [f"m{k}"]))
        names.append(f"y{k}" if operator else f"m{k}")
        if operator:
            nodes.append(helper.make_node(operator, [f"m{k}"], [f"y{k}"]))
    nodes.append(helper.make_node("Concat", names, ["y"], axis=1))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ENCODINGS = {
    "powers": [(None, 1, 3), *((op, 2.0**k, 3) for k in range(6) for op in OPERATORS)],
    "sines": [("Sin", k + 1.5, 3) for k in range(5)],
    "uneven": [("Sin", 1, 3), ("Sin", 2, 2), ("Cos", 3, 3), ("Cos", 5, 1), ("Sin", 7, 3), (None, 2, 2), ("Cos", 2, 3)],
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("chip", CHIPS)
def test_selected_sines_are_one(chip, name, tmp_path):
    """Encodings of positions: threads of a wave would take the sides of a concatenation one after another."""
    parts = ENCODINGS[name]
    model = encoding(parts)
    x = np.random.default_rng(0).uniform(-2, 2, (50, 3)).astype(np.float32)
    x[3, 1] = 3e5
    columns = []
    for operator, factor, width in parts:
        part = x[:, :width] * np.float32(factor)
        columns.append(OPERATORS[operator](part.astype(np.float64)) if operator else part)
    got = sardonyx.compile(model, device=f"sim:{chip}")(x=x)["y"]
    np.testing.assert_allclose(got, np.concatenate(columns, 1), atol=2e-7, rtol=1e-6)
    onnx.save(model, tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", f"sim:{chip}", "--kernels", "--source")
    sines = len(re.findall(r"\b(sin|cos|sin_or_cos)\(", text))
    # Twice where packs of elements and the rest have code of their own. The last of the uneven ones is alone.
    assert sines in ((2, 4) if name == "uneven" else (1, 2))
