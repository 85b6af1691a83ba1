"""torch.compile(backend="sardonyx"): sizes that come from outside a graph, and results that are sizes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
from torch_graphs import close  # noqa: E402


def same(function, calls, dynamic=True):
    """The results of the calls beside eager PyTorch's: tensors, and numbers of the same type."""
    compiled = torch.compile(function, backend="sardonyx", dynamic=dynamic)
    leaves = torch.utils._pytree.tree_leaves
    with torch.no_grad():
        for inputs in calls:
            for got, want in zip(leaves(compiled(*inputs)), leaves(function(*inputs)), strict=True):
                if isinstance(want, torch.Tensor):
                    close(got, want)
                else:
                    assert got == want and type(got) is type(want)


def taken(x, n):
    return x * n, x.new_zeros(n), x[:, :n].sum(1), torch.arange(n)


@pytest.mark.parametrize("dynamic", [True, None])
def test_a_size_from_outside(graphs, dynamic):
    x = torch.randn(4, 7)
    same(taken, [(x, n) for n in (5, 6, 4, 3)], dynamic)
    assert {c.reason for c in graphs} == {""}
    assert len(graphs[-1].programs) == 1  # for all sizes


def test_sizes_of_no_and_one_element(graphs):
    """A trace takes a size that varies for at least 2: these have programs of their own."""
    x = torch.randn(4, 7)
    same(taken, [(x, n) for n in (5, 0, 1, 3, 1)])
    assert [c.reason for c in graphs] == [""] and len(graphs[0].programs) == 3


def test_negative_sizes(graphs):
    x = torch.randn(4, 7)
    same(lambda x, n: (x * n, x[:, : abs(n)] + 1, n < 0), [(x, n) for n in (5, -1, -3, 9, -4, 1)])
    assert {c.reason for c in graphs} == {""}


def test_sizes_behind_a_graph_break(graphs):
    def function(x, y):
        n = x.shape[0] * 2
        torch._dynamo.graph_break()
        return y.sum() * n, torch.arange(n), n + 1

    same(function, [(torch.randn(n, 3), torch.ones(4)) for n in (5, 6, 8, 1, 5)])
    assert {c.reason for c in graphs} == {""}


def test_results_that_are_sizes(graphs):
    def function(x, n):
        return x.relu(), x.shape[0] * 2 - n, x.shape[1] // n, n / 2, x.shape[0] % 3

    same(function, [(torch.randn(k, 9), n) for k, n in ((5, 3), (6, 4), (8, 2), (5, 3))])
    same(lambda x: x.shape[0] + x.shape[1], [(torch.randn(k, 9),) for k in (5, 6)])  # nothing else
    assert {c.reason for c in graphs} == {""}


def test_a_result_that_is_a_number_of_the_caller(graphs):
    same(lambda x, f: (x * f, f * 2.5), [(torch.randn(3), f) for f in (0.5, 0.25)])
    assert {c.reason for c in graphs} == {""}


def test_sizes_that_are_attributes_of_onnx(graphs):
    """RoiAlign's: each size has a program of its own, for all sizes of dims."""
    ops = pytest.importorskip("torchvision.ops", reason="torchvision is not installed")
    boxes = torch.tensor([[0.0, 1.0, 1.0, 9.0, 7.0], [0.0, 0.0, 2.0, 5.0, 5.0]])

    def function(x, n):
        return ops.roi_align(x, boxes, (n, 3), 0.5, 2) * 2

    same(function, [(torch.randn(1, 4, k, 12), n) for k, n in ((12, 5), (14, 5), (12, 4), (16, 5), (18, 4))])
    assert {c.reason for c in graphs} == {""}
    assert max(len(c.programs) for c in graphs) == 2


def test_dims_that_a_trace_makes_constant_are_checked():
    from sardonyx.torch.trace import Conditions

    conditions = Conditions(constants={(1, 0): 4})
    assert conditions.hold([(2,), (4, 3)]) and not conditions.hold([(2,), (5, 3)])


def test_a_size_that_depends_on_data_stays_in_pytorch(graphs):
    """As a result; the tensor is computed by PyTorch with it."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        same(lambda x: (x * 2, (x > 0).nonzero().shape[0]), [(torch.tensor([1.0, -1.0, 2.0]),)])
    assert len(graphs) == 1 and "depends on data" in graphs[0].reason
