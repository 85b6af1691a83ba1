"""torch.compile(backend="sardonyx"): operators that torch.onnx has not, or has in part."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time

import pytest
import sardonyx

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
from torch_graphs import close  # noqa: E402

nn = torch.nn


def triangle(n, batch=3):
    """Diagonally dominant, so that float32 solves it to rounding."""
    return torch.randn(batch, n, n) / n + 2 * torch.eye(n)


@pytest.mark.parametrize("n", [1, 5, 64])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(graphs, n, upper, left, unit):
    solve = functools.partial(torch.linalg.solve_triangular, upper=upper, left=left, unitriangular=unit)
    b = torch.randn(3, n, 7) if left else torch.randn(3, 7, n)
    a = triangle(n)
    with torch.no_grad():
        close(torch.compile(solve, backend="sardonyx")(a, b), solve(a, b))
    assert [c.reason for c in graphs] == [""]


def test_triangular_systems_that_are_ill_conditioned(graphs):
    """The Cholesky factor of a smooth covariance, with a condition of 8000. The residual of each row is a few roundings of
    its terms, as that of substitution is; a product with the inverse alone is 100 times as far away."""
    x = torch.linspace(0, 1, 200, dtype=torch.float64)
    covariance = torch.exp(-20 * (x[:, None] - x) ** 2) + 1e-6 * torch.eye(200, dtype=torch.float64)
    a, b = torch.linalg.cholesky(covariance).float(), torch.randn(200, 5)
    with torch.no_grad():
        y = torch.compile(functools.partial(torch.linalg.solve_triangular, upper=False), backend="sardonyx")(a, b)
    terms = a.double().abs() @ y.double().abs() + b.abs()
    residual = (a.double() @ y.double() - b).abs() / terms
    assert float(residual.max()) <= 4 * torch.finfo(torch.float32).eps
    assert [c.reason for c in graphs] == [""]


def test_triangular_systems_without_a_solution():
    a, b = torch.tensor([[1.0, 0.0], [2.0, 0.0]]), torch.tensor([[1.0], [3.0]])
    with torch.no_grad():
        y = torch.compile(functools.partial(torch.linalg.solve_triangular, upper=False), backend="sardonyx")(a, b)
    assert not bool(y.isfinite().all())


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("transpose", [False, True])
def test_the_older_form_of_triangular_systems(graphs, transpose):
    b, a = torch.randn(3, 5, 2), triangle(5, 1)[0]
    with torch.no_grad():
        got = torch.compile(functools.partial(torch.triangular_solve, transpose=transpose), backend="sardonyx")(b, a)
        for ours, theirs in zip(got, torch.triangular_solve(b, a, transpose=transpose), strict=True):
            close(ours, theirs)
    assert [c.reason for c in graphs] == [""]


def test_operators_of_torchvision_that_is_imported_late():
    """The table of operators was made before: in a process of its own."""
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    code = """
import torch, sardonyx.torch
with torch.no_grad():
    torch.compile(lambda x: x * 2, backend="sardonyx")(torch.ones(4))
    from torchvision.ops import nms
    print(sardonyx.torch.explain(lambda b, s: nms(b, s, 0.5), torch.rand(5, 4).cumsum(1), torch.rand(5)).fallbacks)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def elements(x):
    return x * x.numel() + x.shape[1]


def from_one(mask):
    return 1.0 - mask


def equal_groups(x):
    return nn.functional.scaled_dot_product_attention(x, x, x, enable_gqa=True)


def one_head(x):
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()[None].expand(3, -1, -1)
    attention = nn.functional.scaled_dot_product_attention
    return attention(x, x, x, attn_mask=mask) + attention(x, x, x, is_causal=True, enable_gqa=True), attention(x, x, x)


def squeezed(x):
    return x[None].squeeze(1) + x.squeeze((0, 1))


volume = nn.Conv3d(4, 6, 3, stride=(1, 2, 2), padding=1, groups=2, bias=False).eval()


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (volume.forward, lambda n: torch.randn(2, 4, n, 6, 6)),
        (one_head, lambda n: torch.randn(3, n, 16)),
        (squeezed, lambda n: torch.randn(3, 2, n)),
        (elements, lambda n: torch.randn(n, 3)),
        (from_one, lambda n: torch.arange(n)),
        (equal_groups, lambda n: torch.randn(2, 4, n, 16)),
    ],
    ids=[
        "conv3d without a bias",
        "attention of three dims",
        "longer dims",
        "numel",
        "number minus integers",
        "as many heads of keys",
    ],
)
def test_what_the_exporter_lacks(graphs, function, make):
    compiled = torch.compile(function, backend="sardonyx")
    with torch.no_grad():
        for n in (4, 6, 9):
            x = make(n)
            leaves = torch.utils._pytree.tree_leaves
            for got, want in zip(leaves(compiled(x)), leaves(function(x)), strict=True):
                close(got, want)
    assert {c.reason for c in graphs} == {""}


def of_transposed(x):
    return (x * 2).transpose(0, 1).as_strided((4, 3), (2, 5), 1)


def own_stride(x):
    y = (x + 1).transpose(0, 1).contiguous().transpose(0, 1)
    return y.as_strided((y.shape[1], 2), (y.stride(1), 1))


def overlapping(x):
    y = x.reshape(-1, 2, x.shape[1]) * 2
    stride, size = list(y.stride()), list(y.shape)
    stride[0], size[0] = stride[0] // 2, size[0] * 2 - 1
    return y.as_strided(size, stride)


@pytest.mark.parametrize("function", [of_transposed, own_stride, overlapping, lambda x: x.as_strided((4, 3), (2, 5))])
def test_memory_read_by_strides(graphs, function):
    """torch.onnx takes the memory for the row-major elements of a tensor that is not row-major."""
    compiled = torch.compile(function, backend="sardonyx", dynamic=True)
    with torch.no_grad():
        for n in (6, 8, 12):
            x = torch.randn(n, 7)
            close(compiled(x), function(x))
    assert [c.reason for c in graphs] == [""] and len(graphs[0].programs) == 1


def test_strides_of_memory_that_is_not_known_stay_in_pytorch(graphs):
    part = lambda x: (x * 2)[1:].as_strided((4, 3), (2, 5)) + 1
    given = lambda x: x.as_strided((4, 3), (2, 5)) + 1
    with torch.no_grad():
        for function, x in ((part, torch.randn(6, 7)), (given, torch.randn(7, 6).t())):
            close(torch.compile(function, backend="sardonyx")(x), function(x))
    assert "a part of its memory" in graphs[0].reason and "not row-major" in graphs[1].reason


def test_exported_programs_with_strides_of_other_memory_are_refused():
    class Strided(nn.Module):
        def forward(self, x):
            return (x * 2).transpose(0, 1).as_strided((4, 3), (2, 5))

    with pytest.raises(sardonyx.UnsupportedError, match="as_strided"):
        sardonyx.compile(Strided().eval(), example_inputs=(torch.randn(6, 7),))


def sorted_rows(counts, k, dtype):
    return torch.randn(sum(counts), k, dtype=dtype), torch.tensor(counts).cumsum(0).to(torch.int32)


@pytest.mark.skipif(not hasattr(nn.functional, "grouped_mm"), reason="this PyTorch has no grouped_mm")
def test_grouped_gemm(graphs):
    weights = torch.randn(4, 32, 48, dtype=torch.bfloat16)

    def function(x, ends):
        return nn.functional.grouped_mm(x, weights, offs=ends)

    compiled = torch.compile(function, backend="sardonyx")
    with torch.no_grad():
        for counts in ((3, 0, 8, 1), (0, 0, 40, 2), (5, 5, 5, 5)):
            x, ends = sorted_rows(counts, 32, torch.bfloat16)
            close(compiled(x, ends), function(x, ends), 2.0**-8)  # results are rounded to bfloat16
    assert {c.reason for c in graphs} == {""}


def test_experts_of_transformers(graphs):
    moe = pytest.importorskip("transformers.integrations.moe", reason="transformers is not installed")
    if not hasattr(moe, "_grouped_mm_fallback"):
        pytest.skip("this transformers has no grouped_mm_fallback")
    weights = torch.randn(4, 32, 48)

    def function(x, ends):
        return torch.ops.transformers.grouped_mm_fallback(x, weights, ends)

    compiled = torch.compile(function, backend="sardonyx")
    with torch.no_grad():
        for counts in ((3, 0, 8, 1), (0, 0, 40, 2), (5, 5, 5, 5)):
            x, ends = sorted_rows(counts, 32, torch.float32)
            close(compiled(x, ends), function(x, ends))
    assert {c.reason for c in graphs} == {""}


def test_batch_norms_and_activations_of_inference_mode(graphs, monkeypatch):
    """Tensors of inference mode have no autograd keys: operators are left whole, and folded, as with other tensors."""
    from sardonyx.torch import graph, translate

    seen: list = []
    original = graph.translate

    def watched(traced, *rest):
        seen.extend(str(n.target) for n in traced.graph.nodes if n.op == "call_function")
        return original(traced, *rest)

    monkeypatch.setattr(graph, "translate", watched)
    optimized = []
    monkeypatch.setattr(
        translate, "needs_optimizer", lambda m, f=translate.needs_optimizer: optimized.append(f(m)) or optimized[-1]
    )
    with torch.inference_mode():
        layers = [
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.Hardswish(True),
            nn.Conv2d(8, 4, 1),
            nn.BatchNorm2d(4),
            nn.ReLU6(True),
        ]
        module = nn.Sequential(*layers).eval()
        module[1].running_mean.normal_()
        module[1].running_var.uniform_(0.5, 2)
        compiled = torch.compile(module, backend="sardonyx")
        for batch in (1, 3):
            x = torch.randn(batch, 3, 8, 8)
            close(compiled(x), module(x))
    assert [c.reason for c in graphs] == ["", ""]
    assert not [t for t in seen if "norm" in t or "sqrt" in t] and sum("conv" in t for t in seen) == 4
    assert optimized == [False, False]


def test_numbers_near_0_and_1_stay(graphs):
    """torch's optimizer of ONNX models, which runs for such operators, takes 1e-12 for 0 and 1.000004 for 1."""
    loss = functools.partial(torch.nn.functional.cosine_embedding_loss, reduction="none")
    x, target = torch.zeros(2, 3), torch.tensor([1, -1])
    with torch.no_grad():
        assert torch.compile(loss, backend="sardonyx")(x, x, target).tolist() == loss(x, x, target).tolist() == [1, 0]
    assert [c.reason for c in graphs] == [""]


def test_numbers_near_0_and_1_stay_in_exported_programs(monkeypatch):
    from sardonyx.torch import export

    class Near(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            return self.norm(x), x.relu() + 5e-9, x.relu() - 5e-9, x * 1.000004, x / 1.000004

    optimized = []
    monkeypatch.setattr(
        export, "needs_optimizer", lambda m, f=export.needs_optimizer: optimized.append(f(m)) or optimized[-1]
    )
    module, x = Near().eval(), torch.tensor([[0.0, -1.0, 2.0], [1.0, 3.0, -3.0]])
    results = list(sardonyx.compile(module, example_inputs=(x,))(x=x.numpy()).values())
    assert optimized == [True]
    for got, want in zip(results, module(x), strict=True):
        torch.testing.assert_close(torch.from_numpy(got), want.detach(), rtol=2e-7, atol=0)


def test_threads_that_export_leave_the_rules_as_they_were():
    """The second begins while the first runs the optimizer, and ends after it: each would restore what it found."""
    from onnxscript import rewriter
    from sardonyx.torch import export

    entered, seen = threading.Event(), []

    class Program:
        def __init__(self, wait):
            self.wait = wait

        def optimize(self):
            entered.set()
            time.sleep(self.wait)
            seen.append(rewriter._DEFAULT_REWRITE_RULES)

    before = rewriter._DEFAULT_REWRITE_RULES
    threads = [threading.Thread(target=export.optimize, args=(Program(wait),)) for wait in (0.1, 0.3)]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    for t in threads:
        t.join()
    assert rewriter._DEFAULT_REWRITE_RULES is before
    assert [len(rules) < len(before) for rules in seen] == [True, True]


def test_host_copies(monkeypatch):
    """Those that a thread makes are row-major; where it fails, weights are copied when they are needed."""
    from sardonyx.torch import host_copies

    weights = [torch.randn(200, 300).T, torch.randn(300, 200), torch.randn(5)]
    copies = host_copies.HostCopies(weights)
    for x in weights:
        made = copies.of(x)
        assert made.is_contiguous() and torch.equal(made, x)
    assert [copies.of(x).data_ptr() == x.data_ptr() for x in weights] == [False, False, True]
    assert copies.of(weights[1][:100].T).shape == (200, 100)

    def fail(*_):
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch, "_foreach_copy_", fail)
    copies = host_copies.HostCopies(weights)
    assert [torch.equal(copies.of(x), x) for x in weights] == [True] * 3 and not copies.made
