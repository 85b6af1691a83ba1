"""Einsum of three and more operands: values, and the order in which they are contracted."""

import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT
CASES = {
    "second and third first": ("becx,bey,xyz->becz", [("n", 50, 16, 5), ("n", 50, 3), (5, 3, 4)]),
    "from the left": ("ij,jk,kl->il", [(6, 20), (20, 10), (10, 30)]),
    "first and third first": ("ab,cd,bc->ad", [(64, 40), (64, 30), (40, 64)]),
    "no shared label": ("i,j,k->ikj", [(5,), (6,), (7,)]),
    "four operands": ("bi,bj,ijk,kl->bl", [("n", 20), ("n", 30), (20, 30, 8), (8, 4)]),
    "a label that is only summed": ("bxy,yz,zw->bw", [("n", 6, 7), (7, 20), (20, 3)]),
    "matrices of one operand": ("bnd,nk->bkd", [("n", 40, 48), (40, 6)]),
    "matrices of one operand within a batch": ("bhnd,hnk->bhkd", [("n", 3, 20, 40), (3, 20, 5)]),
    "matrices of the left operand": ("bnd,nk->bdk", [("n", 40, 48), (40, 6)]),
    "matrices inside of the other's rows": ("bnd,nk->kbd", [("n", 40, 48), (40, 6)]),
    "five operands": ("ab,bc,cd,de,ef->af", [(30, 2), (2, 30), (30, 2), (2, 30), (30, 2)]),
}


def model_of(equation, shapes):
    names = [f"x{k}" for k in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Einsum", names, ["y"], equation=equation)], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
@pytest.mark.parametrize("name", CASES)
def test_values(name, device):
    equation, shapes = CASES[name]
    random = np.random.default_rng(1)
    feed = {
        f"x{k}": random.standard_normal([2 if d == "n" else d for d in s], np.float32) for k, s in enumerate(shapes)
    }
    want = np.einsum(equation, *(x.astype(np.float64) for x in feed.values()))
    (got,) = sardonyx.compile(model_of(equation, shapes), device=device).run(feed).values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_products_of_large_operands_are_not_stored():
    """Edges (e) and a small tensor are contracted first: not 1000 x 32 x 15 products of edges and nodes."""
    equation, shapes = "ecx,ey,xyz->ecz", [(1000, 32, 5), (1000, 3), (5, 3, 3)]
    model = sardonyx.compile(model_of(equation, shapes), device="sim:gfx942")
    steps = model.traffic({f"x{k}": s for k, s in enumerate(shapes)})
    assert max(s.bytes_written for s in steps) == 4 * 1000 * 32 * 3


@pytest.mark.parametrize("equation", ["bnd,nk->bkd", "nk,bnd->bkd", "bnd,nk->bdk"])
def test_matrices_of_one_operand_are_not_copied_side_by_side(equation):
    """A projection along the tokens of each sequence is a product for each, not one of all sequences' columns."""
    shapes = [("n", 64, 48), (64, 16)] if equation.startswith("b") else [(64, 16), ("n", 64, 48)]
    model = sardonyx.compile(model_of(equation, shapes), device="sim:gfx942")
    assert len(model.kernels()) == 1
