"""GEMMs of few rows on Hopper that load their weights before the previous launch has ended. The test inspects the PTX in program files; no GPU is
needed."""

import re

import numpy as np
import onnx
import pytest
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

HALF, BF16 = TensorProto.FLOAT16, TensorProto.BFLOAT16
COPY, WAIT, START = "cp.async.bulk.shared", "griddepcontrol.wait", "griddepcontrol.launch_dependents"


def model(m, k, n, dtype=HALF, bits=16, block=32, zeros=False, given=False, norm=""):
    """x [m, k] times weights, which are `given` as an input or constants; with `norm`, an RMSNorm before whose weights are."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    weights, inputs = [], [helper.make_tensor_value_info("x", dtype, [m, k])]
    if bits == 16:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
        if given:
            inputs.append(helper.make_tensor_value_info("w", dtype, [k, n]))
        else:
            weights.append(numpy_helper.from_array(np.zeros((k, n), kind), "w"))
    else:
        blocks = k // block
        names = ["x", "w", "s", "z"][: 4 if zeros else 3]
        nodes = [
            helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
        ]
        weights = [
            numpy_helper.from_array(np.zeros((n, blocks, block * bits // 8), np.uint8), "w"),
            numpy_helper.from_array(np.zeros(n * blocks, kind), "s"),
        ]
        if zeros:
            weights.append(numpy_helper.from_array(np.zeros(n * ((blocks * bits + 7) // 8), np.uint8), "z"))
    if norm:
        nodes[0].input[0] = "normed"
        nodes.insert(0, helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["normed"], axis=-1))
        if norm == "given":
            inputs.append(helper.make_tensor_value_info("g", dtype, [k]))
        else:
            weights.append(numpy_helper.from_array(np.ones(k, kind), "g"))
    outputs = [helper.make_tensor_value_info("y", dtype, None)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=opsets, ir_version=9
    )


def streamed(model, tmp_path, arch="sm_90a"):
    onnx.save(model, tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return [k for k in re.split(r"(?=\.visible \.entry)", text)[1:] if COPY in k]


@pytest.mark.parametrize(
    ("dtype", "bits", "block"),
    [(HALF, 16, 0), (BF16, 16, 0), (HALF, 8, 32), (HALF, 4, 32), (HALF, 4, 128), (BF16, 4, 32)],
)
def test_weights_do_not_wait_for_the_launch_before(tmp_path, dtype, bits, block):
    (kernel,) = streamed(model(1, 2048, 2048, dtype, bits, block), tmp_path)
    assert ".maxntid " in kernel.partition("{")[0]
    # The next launch may come early, as all but weights is read after the wait.
    assert START in kernel and kernel.count(WAIT) == 1
    assert "ld.global" in kernel[kernel.index(WAIT) :] and "ld.global" not in kernel[: kernel.index(WAIT)]
    assert "st.global" not in kernel[: kernel.index(WAIT)]


@pytest.mark.parametrize(
    ("dtype", "bits", "block"),
    [(HALF, 16, 0), (BF16, 16, 0), (HALF, 8, 32), (HALF, 4, 32), (HALF, 4, 128), (BF16, 4, 32)],
)
def test_first_weights_of_a_few_rows_do_not_wait_either(tmp_path, dtype, bits, block):
    onnx.save(model(8, 2048, 2048, dtype, bits, block), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    code = [re.sub("//.*", "", k.partition("\n}")[0]) for k in text.split(".visible .entry")[1:]]
    (kernel,) = [k for k in code if "mma.sync" in k]
    # Waves that have weights load the first ones, then wait (no label is between); others wait at once.
    assert kernel.count(WAIT) == 2 and re.search(rf"ld\.global[^:]*{WAIT}", kernel)
    before = kernel.partition(WAIT)[0]
    assert START in before and "ld.global" not in before and "st.global" not in before


@pytest.mark.parametrize("norm", ["constant", "given"])
def test_weights_of_a_norm_do_not_wait_either(tmp_path, norm):
    # With any number of rows there are two: with the norm for one row, without it for rows whose norms are made apart.
    kernels = streamed(model("rows", 2048, 2048, bits=4, norm=norm), tmp_path)
    (kernel,) = [k.partition("\n}")[0] for k in kernels if "sqrt" in k.partition("\n}")[0]]
    before, _, behind = kernel.partition(WAIT)
    # Each thread reads 8 elements of the row and 8 of the norm's weights, once.
    assert before.count("ld.global.v4") == (norm == "constant")
    assert behind.count("ld.global.v4") == 1 + (norm == "given")
    assert kernel.count("ld.global") == 2


@pytest.mark.parametrize(
    "other",
    [
        model(1, 2048, 2048, given=True),  # an earlier launch may have written them
        model(64, 2048, 2048),  # rows enough for tiles
        model(1, 2048 + 32, 2048),  # columns that are no whole pieces
        model(1, 2048, 2048, bits=4, zeros=True),  # zero points that differ
    ],
    ids=["given", "rows", "depth", "zeros"],
)
def test_other_products_do(tmp_path, other):
    assert streamed(other, tmp_path) == []


def test_other_chips_have_no_copies_in_bulk(tmp_path):
    for arch in ("sm_80", "sm_90"):
        assert streamed(model(1, 2048, 2048, bits=4), tmp_path, arch) == []
