"""Products on Hopper: which of them the card's copy engine (TMA) fetches, and how results are stored. What is looked at is the
PTX in program files; no card is needed."""

import re

import numpy as np
import onnx
import pytest
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

HALF = TensorProto.FLOAT16
COPY = "cp.async.bulk.tensor"


def product(m, k, n, dtype=HALF):
    """x [m, k] times weights, with a bias."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
    ]
    weights = [numpy_helper.from_array(np.zeros((k, n), kind), "w"), numpy_helper.from_array(np.zeros(n, kind), "b")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, [m, k])],
        [helper.make_tensor_value_info("z", dtype, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def kernels(model, tmp_path, arch="sm_90a"):
    onnx.save(model, tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return [k for k in re.split(r"(?=\.visible \.entry)", text)[1:] if "wgmma.mma_async" in k]


@pytest.mark.parametrize("dtype", [HALF, TensorProto.BFLOAT16], ids=["float16", "bfloat16"])
def test_plain_operands_are_copied(tmp_path, dtype):
    (kernel,) = kernels(product(4096, 768, 2304, dtype=dtype), tmp_path)
    assert COPY in kernel and "sardonyx_parameter" not in kernel
    # Maps are read after the launch before this one is done.
    assert kernel.index("griddepcontrol.wait") < kernel.index(COPY)
    assert ".maxntid" in kernel.partition("{")[0]


def test_rows_that_are_no_multiple_of_sixteen_bytes_are_not(tmp_path):
    assert all(COPY not in k for k in kernels(product(4096, 770, 2304), tmp_path))


@pytest.mark.parametrize("n", [768, 2304, 3072])
@pytest.mark.parametrize("m", [1024, 4096])
def test_results_are_stored_sixteen_bytes_at_a_time(tmp_path, m, n):
    found = kernels(product(m, 768, n), tmp_path)
    assert found
    for k in found:
        assert "st.global.v4" in k and not re.search(r"st\.global\.b(16|32)", k)


def test_other_chips_have_no_copy_engine(tmp_path):
    onnx.save(product(4096, 768, 2304), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    assert COPY.encode() not in (tmp_path / "m.sdx").read_bytes()
