"""torch.compile(backend="sardonyx"): graphs whose operators change their operands, and what tracing leaves behind."""

from __future__ import annotations

import gc
import importlib

import pytest
import sardonyx

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
importlib.import_module("sardonyx.torch")
functional = torch.nn.functional


def checked(function, *inputs):
    """Compares results and what becomes of the inputs with eager PyTorch. Returns the graphs."""
    from sardonyx.torch.in_place import changes_operand

    found: list = []
    torch._dynamo.reset()
    stop = sardonyx.torch.observe(found.append)
    ours, theirs = ([x.clone() for x in inputs] for _ in range(2))
    with torch.no_grad():
        got = torch.compile(function, backend="sardonyx")(*ours)
        want = function(*theirs)
    stop()
    leaves = torch.utils._pytree.tree_leaves
    for a, b in zip(leaves((got, ours)), leaves((want, theirs)), strict=True):
        assert a is b is None or torch.equal(a, b)
    assert [c.reason for c in found] == [""]
    return [n.name for n in found[0].gm.graph.nodes if changes_operand(n)]


def residual(x):
    y = functional.relu(x * 2, inplace=True)
    y += x
    y *= 0.5
    z = functional.hardtanh(y - 1, -1.0, 1.0, inplace=True)
    return z.abs_(), (x - 3).clamp_(0, 1)


def test_changes_that_nothing_else_sees_become_new_tensors():
    assert checked(residual, torch.randn(3, 5)) == []


def activations(x):
    """torch.compile's graphs have `inplace` as some of torch.nn's modules give it: without a name."""
    return functional.relu(functional.relu6(x * 4, True) - 1, True)


def test_a_change_may_have_no_name(graphs):
    assert checked(activations, torch.randn(3, 5)) == []
    given = [n.args[1] for n in graphs[0].gm.graph.nodes if n.op == "call_function" and "relu" in str(n.target)]
    assert given == [False, False]


def of_input(x):
    x += 1
    return functional.relu(x, inplace=True) * 2


def of_view(x):
    y = x * 2
    part = y[:2]
    functional.relu(part, inplace=True)
    return y, part


def read_before(x):
    y = x * 2
    z = y.view(-1)
    functional.relu(y, inplace=True)
    return z + 1


def read_again(x):
    y = x * 2
    z = y.abs_()
    return y + z


@pytest.mark.parametrize("function", [of_input, of_view, read_before, read_again])
def test_changes_that_others_see_stay(function):
    assert checked(function, torch.randn(3, 5))


def by_position(x):
    y = x * 2
    z = y.view(-1)
    functional.relu(y, True)
    return z + 1


def by_out(x):
    y = torch.empty(3, 5)
    torch.mul(x, 2, out=y)
    return y + 1


@pytest.mark.parametrize("function", [by_position, by_out])
def test_changes_that_names_do_not_show(function):
    checked(function, torch.randn(3, 5))


def wider(x, i):
    i += 1
    y = i * 2
    y *= i
    return x + y, (y - 1).pow_(2)


def test_a_new_tensor_would_have_the_same_type():
    checked(wider, torch.randn(4), torch.tensor(3))


def of_types(h, x, i, b):
    return h * 0.5 + 1, i * 0.5, x + i, b + i, h + x, i / 2, torch.where(b, h, 2.0), i < 1.5, h.sum(dtype=torch.float32)


def test_types_are_promoted():
    # Halves and small integers, so that all results are exact.
    half, integers = torch.tensor([0.5, 1.0, -2.0]).half(), torch.tensor([1, 2, 3])
    checked(of_types, half, torch.tensor([1.5, 2.0, 4.0]), integers, torch.tensor([True, False, True]))


@pytest.mark.parametrize("function", [lambda x: x + 1, lambda x: torch.linalg.inv(x)])
def test_garbage_collection_goes_on(function):
    """Tracing pauses it, also where a graph cannot be compiled."""
    torch._dynamo.reset()
    try:
        for enabled in (False, True):
            gc.enable() if enabled else gc.disable()
            torch._dynamo.reset()
            with torch.no_grad():
                torch.compile(function, backend="sardonyx")(torch.eye(3))
            assert gc.isenabled() == enabled
    finally:
        gc.enable()


def rows_by_mask(x, mask, rows):
    x[mask] = rows
    return x


def only_changes(x, y):
    x.add_(y)
    y.mul_(2)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (rows_by_mask, (torch.zeros(2, 3, 4), torch.tensor([[True, False, True], [False, True, False]]), torch.ones(3, 4))),
        (only_changes, (torch.ones(3), torch.arange(3.0))),
    ],
    ids=["mask", "no results"],
)  # fmt: skip
def test_graphs_without_results_of_their_own(function, inputs):
    assert checked(function, *inputs)
