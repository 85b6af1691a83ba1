"""Epilogues of GEMMs and convolutions on simulated GPUs: bounds, saturation and NaN in float16, and what they compile to."""

import re
import subprocess

import numpy as np
import onnx
import onnx.parser
import pytest
import sardonyx
from cli_support import BUILD
from onnx import TensorProto, helper, numpy_helper
from test_amd_main_loops import OBJDUMP

CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]
#: The operators after a product, and the same in numpy.
ENDS = {
    "none": ([], lambda x: x),
    "relu": ([("Relu", [])], lambda x: np.maximum(x, 0)),
    "relu6": ([("Clip", [0.0, 6.0])], lambda x: np.clip(x, 0, 6)),
    "clip": ([("Clip", [-1e6, 100.0])], lambda x: np.clip(x, -1e6, 100)),
    "low": ([("Clip", [-2e5, -1e5])], lambda x: np.clip(x, -2e5, -1e5)),
    "relu of clip": ([("Clip", [-5.0, 7.0]), ("Relu", [])], lambda x: np.clip(x, 0, 7)),
}


def product(end, m, n, k, seed=0):
    """a x w + bias, then `end`, with a column of w for each kind of large result. A product with the unit matrix follows, so
    that results are stored in float16."""
    w = np.random.default_rng(seed).standard_normal((k, n)).astype(np.float32)
    bias = np.random.default_rng(seed + 1).standard_normal(n).astype(np.float32)
    w[:, 3], w[:, 4] = 100, -100
    constants = {"w": w, "bias": bias, "unit": np.eye(n, dtype=np.float32)}
    nodes = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "bias"], ["v0"])]
    for at, (operator, bounds) in enumerate(end):
        names = [f"bound{at}_{b}" for b in range(len(bounds))]
        constants.update(zip(names, map(np.float32, bounds), strict=True))
        nodes.append(helper.make_node(operator, [f"v{at}", *names], [f"v{at + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"v{len(end)}", "unit"], ["y"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in (("a", [m, k]), ("y", [m, n]))]
    stored = [numpy_helper.from_array(np.asarray(c), name) for name, c in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), w, bias


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=4)
def test_results_in_float16_are_bounded_and_nan_stays(chip, end):
    operators, reference = ENDS[end]
    for m, n, k in ((70, 72, 64), (33, 30, 40), (40, 36, 40)):  # the last ones' second K is no whole vector
        model, w, bias = product(operators, m, n, k)
        a = np.random.default_rng(2).standard_normal((m, k)).astype(np.float32)
        a[1], a[2, 0], a[3, 5] = 60000, np.nan, -np.nan
        got = sardonyx.compile(model, device=f"sim:{chip}", precision="fp16")(a=a)["y"]
        exact = a.astype(np.float16).astype(np.float32) @ w.astype(np.float16).astype(np.float32) + bias
        want = np.clip(reference(exact), -65504, 65504)
        assert np.isnan(got[2:4]).all() and not np.isnan(np.delete(got, [2, 3], 0)).any()
        np.testing.assert_allclose(got, want, rtol=4e-3, atol=0.06)


def disassembly(model, chip, folder):
    """The instructions of all kernels."""
    out, found = folder / "program.sdx", []
    options = ["--precision", "fp16", "--cache-dir", "", "-o", out]
    subprocess.run(
        [BUILD / "bin" / "sardonyx", "compile", model, "--arch", chip, *options], check=True, capture_output=True
    )
    for part in out.read_bytes().split(b"\x7fELF")[1:]:
        (folder / "code.elf").write_bytes(b"\x7fELF" + part)
        command = [OBJDUMP, "-d", "--no-show-raw-insn", f"--mcpu={chip}", folder / "code.elf"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found += [line.split("//")[0].strip() for line in text.splitlines() if line.startswith("\t")]
    return found


@pytest.mark.parametrize("chip", [c for c in CHIPS if c != "gfx1030"])
def test_relu_and_saturation_are_one_clamp(chip, tmp_path):
    onnx.save(product(ENDS["relu"][0], 4096, 256, 256)[0], tmp_path / "product.onnx")
    code = disassembly(tmp_path / "product.onnx", chip, tmp_path)
    stored = sum(c.startswith(("v_cvt_f16_f32", "v_cvt_pk_f16_f32")) for c in code)
    clamps = sum(bool(re.match(r"v_med3_|v_maximum|v_pk_maximum", c)) for c in code)
    selections = sum("v_cndmask" in c or "v_dual_cndmask" in c for c in code)
    assert clamps >= stored > 8 and selections < 1.5 * stored


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("chip", ["gfx942", "gfx1100", "gfx1201"])
def test_parts_of_split_k_are_sums(chip, precision, bias):
    """They are stored without the epilogue, in float32, whatever the results are."""
    m, n, k = 48, 64, 4096
    rng = np.random.default_rng(4)
    constants = {
        "w": rng.standard_normal((k, n)).astype(np.float32) / 64,
        "bias": rng.standard_normal(n).astype(np.float32),
    }
    nodes = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "bias"], ["y"])]
    if not bias:
        nodes = [helper.make_node("MatMul", ["a", "w"], ["y"])]
        del constants["bias"]
    values = [helper.make_tensor_value_info(x, TensorProto.FLOAT, s) for x, s in (("a", [m, k]), ("y", [m, n]))]
    stored = [numpy_helper.from_array(c, name) for name, c in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    a = rng.standard_normal((m, k)).astype(np.float32)
    got = sardonyx.compile(model, device=f"sim:{chip}", precision=precision)(a=a)["y"]
    np.testing.assert_allclose(
        got, a @ constants["w"] + constants.get("bias", 0), atol=2e-2 if precision == "fp16" else 1e-4
    )


def test_sines_of_a_tile_share_what_large_arguments_need(tmp_path):
    """NVIDIA: 64 elements of each thread would otherwise have copies of it, more than the instruction cache holds."""
    onnx.save(product([("Sin", [])], 4096, 1024, 256)[0], tmp_path / "m.onnx")
    command = [BUILD / "bin/sardonyx", "compile", tmp_path / "m.onnx", "--arch", "sm_90a", "--precision", "fp16"]
    subprocess.run([*command, "-o", tmp_path / "m.sdx", "--cache-dir", ""], check=True, capture_output=True)
    code = (tmp_path / "m.sdx").read_bytes()
    assert 0 < code.count(b"cvt.rn.f64.s64") <= code.count(b".version")


def test_epilogues_read_copies_in_the_order_of_the_result():
    """A residual that is an input of the model is copied with its channels last for the convolution's epilogue."""
    weights = {"w": (64, 64), "c": (64, 64, 1, 1)}
    stored = [numpy_helper.from_array(rand(s, k) / 8, n) for k, (n, s) in enumerate(weights.items())]
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[n, 64, 8, 8] x, float[n, 64, 64] t) => (float[n, 64, 8, 8] z) {
      m = MatMul (t, w)
      r = Relu (m)
      p = Transpose <perm = [0, 2, 1]> (r)
      shape = Constant <value_ints = [0, 64, 8, 8]> ()
      i = Reshape (p, shape)
      v = Conv (i, c)
      y = Add (x, v)
      z = Conv (y, c)
    }""")
    model.graph.initializer.extend(stored)
    data = model.SerializeToString()
    copies = [s.text for s in sardonyx.pass_report(data, "gfx942", precision="fp16").passes if s.pass_name == "layouts"]
    assert "order(0, 2, 3, 1): %0[i0, i1, i2, i3]" in copies[0]
    feed = {"x": rand((2, 64, 8, 8), 3), "t": rand((2, 64, 64), 4)}
    want = sardonyx.compile(data).run(feed)["z"]
    got = sardonyx.compile(data, device="sim:gfx942", precision="fp16").run(feed)["z"]
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)


def rand(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
