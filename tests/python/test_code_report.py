"""Resources of kernels on each GPU: no spills, no scratch memory."""

import json
import re

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper
from test_gpu import LAYER, parse

AMD = [row["chip"] for row in sardonyx.chips() if row["vendor"] == "AMD"]

ATTENTION = """
g (float[b, 4, n, 32] q, float[b, 4, n, 32] k, float[b, 4, n, 32] v) => (float[b, 4, n, 32] y) {
  t = Transpose <perm = [0, 1, 3, 2]> (k)
  s = MatMul (q, t)
  p = Softmax <axis = -1> (s)
  y = MatMul (p, v)
}"""

CONVOLUTION = """
g (float[b, 8, 16, 16] x, float[16, 8, 3, 3] w) => (float[b, 16, 8, 8] y) {
  c = Conv <pads = [1, 1, 1, 1]> (x, w)
  r = Relu (c)
  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
}"""

# The longest functions that a GEMM's epilogue may hold: called instead of inlined, they would get the sums through memory.
LONG_EPILOGUE = """
g (float16[n, 768] x, float16[768, 3072] w) => (float16[n, 3072] y) {
  m = MatMul (x, w)
  s = Sin (m)
  a = Atan (s)
  y = Mish (a)
}"""


@pytest.mark.parametrize("model", [LAYER, ATTENTION, CONVOLUTION], ids=["layer", "attention", "convolution"])
@pytest.mark.parametrize("chip", AMD)
@pytest.mark.slow(part=4)
def test_nothing_spills(chip, model):
    kernels = sardonyx.code_report(parse(model), chip)
    assert kernels
    for k in kernels:
        # SGPRs that do not fit lie in lanes of VGPRs, which costs no memory.
        assert (k.vgpr_spills, k.scratch_bytes) == (0, 0), k
        assert 0 < k.vgprs <= 512 and 0 < k.sgprs <= 128, k
        assert 0 < k.waves_per_simd <= 16, k
        assert k.code_bytes >= 4 * k.instructions > 0, k
        assert k.verdict in ("good", "few waves", "spills SGPRs"), k
        assert k.nodes, k
    assert any("MatMul" in n or "Conv" in n for k in kernels for n in k.nodes)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.slow(part=4)
def test_long_epilogues_use_no_scratch(chip):
    kernels = sardonyx.code_report(parse(LONG_EPILOGUE), chip)
    assert kernels and all((k.vgpr_spills, k.scratch_bytes) == (0, 0) for k in kernels), kernels


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_80", "sm_90"])
def test_products_use_matrix_instructions(chip):
    model = parse("g (float16[n, k] x, float16[k, m] w) => (float16[n, m] y) { y = MatMul (x, w) }")
    assert any(k.matrix_instructions > 0 for k in sardonyx.code_report(model, chip))


def test_ptx_says_less():
    for k in sardonyx.code_report(parse(LAYER), "sm_90"):
        assert k.vgprs is None and k.scratch_bytes is None and k.waves_per_simd is None
        assert "driver" in k.verdict and k.code_bytes > 0


def test_the_command(tmp_path):
    onnx.save(parse(LAYER), tmp_path / "m.onnx")
    text = cli("compile", tmp_path / "m.onnx", "--arch", "gfx942,sm_90", "--report", "--cache-dir", tmp_path / "c")
    assert "VGPRs" in text and "good" in text and "MatMul" in text
    cli("compile", tmp_path / "m.onnx", "--arch", "gfx942", "--report", "--json", tmp_path / "r.json")
    (report,) = json.loads((tmp_path / "r.json").read_text())
    assert report["target"] == "gfx942"
    assert report["code"] and all(k["vgpr_spills"] == 0 for k in report["code"])
    assert "--arch" in cli("compile", tmp_path / "m.onnx", "--report", code=2)


def test_unknown_targets_are_refused():
    with pytest.raises(sardonyx.UnsupportedError, match="gfx942"):
        sardonyx.code_report(parse(LAYER), "gfx1")
    with pytest.raises(sardonyx.UnsupportedError):
        sardonyx.code_report(parse(LAYER), "host")


def test_rooflines(tmp_path):
    """Bytes and operations of known sizes, and the time at a chip's data sheet; the memory of MI300X moves 5.3 TB/s."""
    model = parse("g (float16[n, 4096] x, float16[4096, 4096] w) => (float16[n, 4096] y, float16[n, 4096] z) "
                  "{ y = MatMul (x, w) z = Softmax (y) }")  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    args = ["compile", tmp_path / "m.onnx", "--arch", "gfx942,gfx1100", "--report", "--cache-dir", tmp_path / "c"]
    text = cli(*args, "--dim", "n=8", "--json", tmp_path / "r.json")
    assert "at best on Instinct MI300X" in text and "at best on Radeon RX 7900 XTX" in text
    for report, peak in zip(json.loads((tmp_path / "r.json").read_text()), (5.3e12, 0.96e12)):
        product, softmax = report["launches"]
        assert product["operations"] == 2 * 8 * 4096 * 4096 and softmax["operations"] == 0
        assert product["bytes"] == 2 * (8 * 4096 + 4096 * 4096 + 8 * 4096)
        assert product["bound"] == softmax["bound"] == "memory"
        assert product["seconds"] == pytest.approx(product["bytes"] / peak)
        assert product["matrix_share"] > 0 and product["workgroups"] > 0
    cli(*args, "--dim", "n=4096", "--json", tmp_path / "r.json")
    large = json.loads((tmp_path / "r.json").read_text())[0]["launches"][0]
    # 304 units with 2048 operations a cycle at 2.1 GHz, which the data sheet rounds to 1307.4 TFLOP/s
    assert large["bound"] == "arithmetic" and large["seconds"] == pytest.approx(2 * 4096**3 / (304 * 2048 * 2.1e9))
    assert "With --dim for each of n" in cli(*args)


def named_model(path, prefix):
    """Two convolutions that are one kernel, and a fused pair."""
    values = np.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name=f"{prefix}/0/conv", pads=[1] * 4),
        helper.make_node("Softmax", ["a"], ["b"], name=f"{prefix}/0/softmax", axis=1),
        helper.make_node("Conv", ["b", "w2"], ["c"], name=f"{prefix}/1/conv", pads=[1] * 4),
        helper.make_node("Softmax", ["c"], ["d"], axis=1),
        helper.make_node("Conv", ["d", "w3"], ["e"], name=f"{prefix}/2/conv", pads=[1] * 4),
        helper.make_node("Relu", ["e"], ["y"], name=f"{prefix}/2/relu"),
    ]
    shape = [1, 8, 16, 16]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy")
    weights = [numpy_helper.from_array(values * k, f"w{k}") for k in (1, 2, 3)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("arch", ["gfx942", "sm_90"])
def test_kernels_have_the_nodes_names(arch, tmp_path):
    def compiled(prefix, cache):
        model = named_model(tmp_path / "m.onnx", prefix)
        options = ["-q", "--arch", arch, "--cache-dir", tmp_path / cache]
        cli("compile", model, *options, "-o", tmp_path / "m.sdx")
        cli("compile", model, *options, "--report", "--json", tmp_path / "m.json")
        (report,) = json.loads((tmp_path / "m.json").read_text())
        return {k["kernel"] for k in report["code"]}, (tmp_path / "m.sdx").read_bytes()

    names, program = compiled("layer", "a")
    assert {re.sub("^k[0-9]+_", "", n) for n in names} >= {
        "layer_0_conv_x2",
        "layer_0_softmax_x2",
        "layer_2_conv_layer_2_relu",
    }
    assert compiled("layer", "b")[1] == program
    # The code does not depend on the names: what another model's cache holds serves this one.
    entries = set((tmp_path / "a").rglob("*"))
    others, _ = compiled("a_much_longer_name_of_a_layer/which_does_not_fit", "a")
    assert set((tmp_path / "a").rglob("*")) == entries and others.isdisjoint(names)
    assert all(len(n) <= 60 for n in others) and any("does_not_fit_0_conv" in n for n in others)
