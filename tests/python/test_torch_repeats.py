"""torch.compile(backend="sardonyx"): operators that a trace and a translation copy because they have seen them before."""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
nn = torch.nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
importlib.import_module("sardonyx.torch")
from torch_graphs import close  # noqa: E402

LAYERS = 6


@pytest.fixture
def copied(monkeypatch):
    """Calls of operators that were copied: of the traces, and of the translations."""
    from sardonyx.torch import onnx_repeats, repeats

    counts = [0, 0]
    again, copy = repeats.Repeats.again, onnx_repeats.copied

    def traced(*arguments):
        counts[0] += 1
        return again(*arguments)

    def translated(*arguments):
        counts[1] += 1
        return copy(*arguments)

    monkeypatch.setattr(repeats.Repeats, "again", traced)
    monkeypatch.setattr(onnx_repeats, "copied", translated)
    return counts


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        parts = [t.view(*t.shape[:2], 2, 8).transpose(1, 2) for t in self.heads(self.norm(x)).split(16, dim=2)]
        y = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def test_layers_repeat_the_first(graphs, copied):
    torch.manual_seed(0)
    module = nn.Sequential(*(Layer() for _ in range(LAYERS))).eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 7), (4, 9)):
            x = torch.randn(batch, length, 16)
            close(compiled(x), module(x))
    assert [c.reason for c in graphs] == ["", ""]
    calls = sum(n.op.startswith("call") for n in graphs[0].gm.graph.nodes)
    # Of two programs, all layers but the first; the second differs where it adds to what the input is.
    assert copied[0] >= 2 * calls * (LAYERS - 2) // LAYERS
    assert copied[1] >= 2 * calls * (LAYERS - 2) // LAYERS


def alike(x, y, i):
    """Calls that differ in one thing each."""
    parts = [
        x + 1,
        x + 2,
        x + 1.0,
        i + 1,
        i + 1.0,
        x * x,
        x * y,
        y * x,
        x[:, 1:3],
        x[:, 1:4],
        x[1:3],
        x.sum(0),
        x.sum(1),
    ]
    parts += [
        x.sum(1, keepdim=True),
        x * 0.5,
        x * 0.25,
        torch.cat([x, y]),
        torch.cat([y, x]),
    ]
    parts += [x.t() + 1, x.t() @ y, y.t() @ x, x.t() @ x, *x.split(2, 1), *y.split(2, 1), *x.split([1, 3], 1)]
    parts += [*x.max(1), *y.max(1), *x.max(0), x.to(torch.float64) + 1, x.clamp(0, 1), x.clamp(0, 2), x.clamp(0)]
    return [*parts, x.contiguous() + y, x.contiguous() + 1, y.contiguous() + 1]


def test_calls_that_are_alike(graphs):
    torch.manual_seed(0)
    compiled = torch.compile(alike, backend="sardonyx")
    with torch.no_grad():
        for rows in (4, 6, 8):
            given = torch.randn(rows, 4), torch.randn(rows, 4), torch.arange(5)
            for got, want in zip(compiled(*given), alike(*given), strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                assert torch.allclose(got.double(), want.double(), atol=1e-5, equal_nan=True)
    assert {c.reason for c in graphs} == {""}


def in_other_types(x, y):
    first = x @ y
    with torch.autocast("cpu", torch.bfloat16):
        second = x @ y
    return first, second, x @ y


def test_a_state_that_operators_depend_on(graphs):
    compiled = torch.compile(in_other_types, backend="sardonyx")
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    with torch.no_grad():
        for got, want in zip(compiled(x, y), in_other_types(x, y), strict=True):
            assert got.dtype == want.dtype
            assert torch.allclose(got.double(), want.double(), atol=2e-2)


def test_constants_of_equal_types_are_not_each_other(graphs):
    def function(x):
        return x + torch.tensor([1.0, 2.0]), x + torch.tensor([3.0, 5.0]), x + torch.full((2,), 7.0)

    x = torch.randn(3, 2)
    with torch.no_grad():
        for got, want in zip(torch.compile(function, backend="sardonyx")(x), function(x), strict=True):
            close(got, want)
