"""Loops that transpose on NVIDIA GPUs: both sides are accessed 16 bytes at a time, also where the innermost dim is filled with zeros."""

import re

import numpy as np
import onnx
import onnx.helper as oh
import pytest
from cli_support import sardonyx as cli
from onnx import TensorProto, numpy_helper


def transpose():
    """Tokens to an image."""
    node = oh.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])
    return [node], [], ["n", 3136, 64], ["n", 64, 3136]


def joints():
    """The K of a GEMM: three partitions of 25 joints become 75 neighbours, and 80 with zeros."""
    rng = np.random.default_rng(0)
    adjacent = numpy_helper.from_array(rng.standard_normal((3, 25, 25)).astype(np.float16), "w")
    to = numpy_helper.from_array(np.array([0, 3, 64, 300, 25]), "to")
    nodes = [
        oh.make_node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]),
        oh.make_node("Reshape", ["a", "to"], ["b"]),
        oh.make_node("Einsum", ["b", "w"], ["y"], equation="nkctv,kvw->nctw"),
    ]
    return nodes, [adjacent, to], ["n", 300, 25, 192], ["n", 64, 300, 25]


@pytest.mark.parametrize("case", [transpose, joints])
def test_loads_and_stores_are_vectors(case, tmp_path):
    nodes, stored, x, y = case()
    values = [oh.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", x), ("y", y))]
    graph = oh.make_graph(nodes, "g", values[:1], values[1:], stored)
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    options = ["--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", "", "--quiet"]
    cli("compile", tmp_path / "m.onnx", *options)
    kernels = (tmp_path / "m.sdx").read_bytes().decode("latin1").split(".entry ")[1:]
    # A block of 8 x 8 elements: eight packs are loaded, and eight stored.
    accesses = [[len(re.findall(rf"\b{kind}\.global[.a-z0-9:]*\.v4\.", k)) for kind in ("ld", "st")] for k in kernels]
    assert [8, 8] in accesses, accesses
