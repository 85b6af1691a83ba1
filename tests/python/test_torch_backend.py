"""torch.compile(backend="sardonyx"), sardonyx.compile() of PyTorch's programs, and sardonyx.torch.explain()."""

from __future__ import annotations

import copy
import importlib
import pathlib
import sys

import pytest
import sardonyx

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
nn = torch.nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
importlib.import_module("sardonyx.torch")
from torch_graphs import close  # noqa: E402


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.norm(self.a(x))))


def test_sizes_compile_once_more_and_then_never(graphs):
    module = Block().eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 7), (4, 9), (11, 64), (2, 5)):
            x = torch.randn(batch, length, 16)
            close(compiled(x), module(x))
    assert [c.reason for c in graphs] == ["", ""]  # fixed sizes, then any
    assert [len(c.programs) for c in graphs] == [1, 1]


class Broken(Block):
    def forward(self, x):
        y = self.a(x)
        torch._dynamo.graph_break()
        return x + self.b(torch.tanh(self.norm(y)))


@pytest.mark.parametrize("inference", [False, True])
def test_layers_that_share_a_graph(graphs, inference):
    """A graph that breaks within a layer serves all layers: each has weights of its own."""
    from sardonyx.torch.graph import MOST_WEIGHTS

    with torch.inference_mode(inference), torch.no_grad():
        module = nn.Sequential(*(Broken() for _ in range(MOST_WEIGHTS + 4))).eval()
        compiled = torch.compile(module, backend="sardonyx")
        for batch in (2, 2, 3, 4):
            x = torch.randn(batch, 5, 16)
            close(compiled(x), module(x))
        before = sum(len(c.programs) for c in graphs)
        close(compiled(x), module(x))
        assert sum(len(c.programs) for c in graphs) == before
    assert {c.reason for c in graphs} == {""}
    assert max(len(c.programs) for c in graphs) == MOST_WEIGHTS + 1  # the last takes weights as inputs
    if not inference:
        with torch.no_grad():
            module[0].a.weight.mul_(2)
            close(compiled(x), module(x))


def test_dynamic_from_the_start(graphs):
    module = Block().eval()
    compiled = torch.compile(module, backend="sardonyx", dynamic=True, fullgraph=True)
    with torch.inference_mode():
        for length in (5, 6, 50):
            x = torch.randn(2, length, 16)
            close(compiled(x), module(x))
    assert len(graphs) == 1 and len(graphs[0].programs) == 1


class Cache(nn.Module):
    """Appends to a cache that it keeps."""

    def __init__(self):
        super().__init__()
        self.key = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(2, 10, 8))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.cache.index_copy_(1, self.at, self.key(x))
        self.at += 1
        return (self.cache @ x.transpose(1, 2)).softmax(1)


def test_buffers_that_change_in_place(graphs):
    module = Cache().eval()
    peer = copy.deepcopy(module)
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 1, 8)
            close(compiled(x), peer(x))
    assert int(module.at) == 4
    close(module.cache, peer.cache)
    assert [c.reason for c in graphs] == [""]


def test_inputs_that_change_in_place(graphs):
    def step(x, total):
        total += x.sum(0)
        return x * 2

    total = torch.zeros(3)
    with torch.no_grad():
        x = torch.randn(4, 3)
        close(torch.compile(step, backend="sardonyx")(x, total), x * 2)
    close(total, x.sum(0))
    assert graphs[0].reason == ""


def test_views_of_inputs_stay_views(graphs):
    with torch.no_grad():
        x = torch.randn(4, 3)
        twice, turned, number = torch.compile(lambda x: (x * 2, x.t(), 3), backend="sardonyx")(x)
    close(twice, x * 2)
    assert turned.data_ptr() == x.data_ptr() and turned.shape == (3, 4) and number == 3


def test_graph_breaks_make_several_graphs(graphs):
    module = Block().eval()

    def both(x):
        y = module(x)
        torch._dynamo.graph_break()
        return module(y).sum(-1)

    with torch.no_grad():
        x = torch.randn(2, 4, 16)
        close(torch.compile(both, backend="sardonyx")(x), module(module(x)).sum(-1))
    assert [c.reason for c in graphs] == ["", ""]


def test_weights_that_change_are_seen(graphs):
    module = Block().eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        x = torch.randn(2, 4, 16)
        compiled(x)
        for p in module.parameters():
            p.mul_(0.5)
        close(compiled(x), module(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_modules(graphs, dtype):
    module = Block().eval().to(dtype)
    with torch.no_grad():
        x = torch.randn(2, 4, 16, dtype=dtype)
        exact = copy.deepcopy(module).float()(x.float())
        close(torch.compile(module, backend="sardonyx")(x).float(), exact, 4 * torch.finfo(dtype).eps)
    assert graphs[0].reason == ""


def test_autocast(graphs):
    module = Block().eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(2, 4, 16)
        close(compiled(x), module(x), 4 * torch.finfo(torch.bfloat16).eps)


def test_gradients_stay_in_pytorch(graphs):
    module = Block()
    x = torch.randn(2, 4, 16, requires_grad=True)
    torch.compile(module, backend="sardonyx")(x).sum().backward()
    assert x.grad is not None and "gradients" in graphs[0].reason


def test_what_is_not_supported_stays_in_pytorch_with_its_reason(graphs, caplog):
    with torch.no_grad(), caplog.at_level("WARNING", "sardonyx.torch"):
        x = torch.randn(4, dtype=torch.complex64)
        close(torch.view_as_real(torch.compile(lambda x: x * 2, backend="sardonyx")(x)), torch.view_as_real(x * 2))
    assert "torch.complex64" in graphs[0].reason and "mul" in caplog.text


def test_options(graphs):
    module = Block().eval()
    with torch.no_grad():
        x = torch.randn(2, 4, 16)
        compiled = torch.compile(module, backend="sardonyx", options={"threads": 1})
        close(compiled(x), module(x))
    assert graphs[0].options == {"threads": 1}


def test_weights_stay_where_they_are(graphs):
    """The program reads the parameter's memory: what is written to it behind PyTorch's back is seen."""
    weight = nn.Parameter(torch.randn(64, 64))
    compiled = torch.compile(lambda x: x + weight, backend="sardonyx")
    with torch.no_grad():
        x = torch.randn(64, 64)
        close(compiled(x), x + weight)
        weight.numpy()[:] = 3.0  # the version counter does not change
        close(compiled(x), x + 3.0)
    assert len(graphs[0].programs) == 1


def test_sizes_that_a_trace_compares(graphs):
    """A condition that holds for the first sizes alone: others get a program of their own."""

    def function(x):
        parts = torch.chunk(x, 3)  # 3, or 2 for 4 rows: the number of results depends on the size
        return parts[-1] * 2

    compiled = torch.compile(function, backend="sardonyx", dynamic=True)
    with torch.no_grad():
        for rows in (9, 12, 7, 4, 9):
            x = torch.randn(rows, 5)
            close(compiled(x), function(x))
    assert not [c.reason for c in graphs if c.reason]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batch_norms_are_folded_into_convolutions(graphs, dtype):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
            self.b, self.norm_b = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, affine=False)
            self.norm_c = nn.BatchNorm2d(8)  # behind no convolution

        def forward(self, x):
            y = self.b(self.norm(self.a(x)).relu())
            return self.norm_c(self.norm_b(y).relu()) + y  # y is read twice: the second stays

    module = Layers().eval()
    for norm in (module.norm, module.norm_b, module.norm_c):
        nn.init.uniform_(norm.running_mean, -1, 1)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    with torch.no_grad():
        x = torch.randn(2, 3, 9, 9)
        want = module(x)
        got = torch.compile(module.to(dtype), backend="sardonyx")(x.to(dtype))
    # float16: the weights are rounded once more than the factors are in PyTorch.
    close(got.float(), want, 1e-5 if dtype == torch.float32 else 5e-3)
    assert graphs[0].reason == ""


def test_sorting_keeps_the_order_of_equal_elements():
    x = torch.randint(0, 3, (4, 50)).half()
    with torch.no_grad():
        for descending in (False, True):
            function = lambda x, d=descending: torch.sort(x, dim=1, descending=d)
            values, places = torch.compile(function, backend="sardonyx")(x)
            want = torch.sort(x, dim=1, descending=descending, stable=True)
            assert torch.equal(values, want.values) and torch.equal(places, want.indices)


def test_unknown_options_are_refused():
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="no option 'thread'; did you mean 'threads'"):
        torch.compile(Block().eval(), backend="sardonyx", options={"thread": 1})(torch.randn(1, 2, 16))
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="no mode 'max-autotune'"):
        torch.compile(Block().eval(), backend="sardonyx", mode="max-autotune")(torch.randn(1, 2, 16))


def test_explain():
    module = Block().eval()

    def both(x, z):
        y = module(x)
        torch._dynamo.graph_break()
        return y, z * 2

    found = sardonyx.torch.explain(both, torch.randn(2, 4, 16), torch.randn(3, dtype=torch.complex64))
    assert len(found.compiled) == 1 and "linear" in found.compiled[0] and found.programs == 1
    assert len(found.fallbacks) == 1 and "complex64" in found.fallbacks[0].reason
    assert "1 graphs compiled" in str(found) and "complex64" in str(found)


def test_compile_takes_modules_and_exported_programs(tmp_path):
    module = Block().eval()
    x = torch.randn(2, 4, 16)
    dynamic = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")},)
    program = torch.export.export(module, (x,), dynamic_shapes=dynamic)
    torch.export.save(program, str(tmp_path / "block.pt2"))
    made = [
        sardonyx.compile(module, example_inputs=(x,), dynamic_shapes=dynamic),
        sardonyx.compile(program),
        sardonyx.compile(tmp_path / "block.pt2", threads=1),
    ]
    y = torch.randn(3, 7, 16)
    with torch.no_grad():
        want = module(y)
    for model in made:
        (got,) = model.run({model.inputs[0].name: y}).values()
        close(torch.from_numpy(got), want)


def test_compile_says_what_a_module_lacks(tmp_path):
    with pytest.raises(sardonyx.InvalidArgumentError, match="example_inputs"):
        sardonyx.compile(Block().eval())
    with pytest.raises(sardonyx.InvalidArgumentError, match="eval"):
        sardonyx.compile(Block(), example_inputs=(torch.randn(1, 2, 16),))
    (tmp_path / "no.pt2").write_bytes(b"nothing")
    with pytest.raises(sardonyx.FileError, match=r"no\.pt2"):
        sardonyx.compile(tmp_path / "no.pt2")
    with pytest.raises(sardonyx.InvalidArgumentError, match="external data"):
        sardonyx.compile(Block().eval(), example_inputs=(torch.randn(1, 2, 16),), folder=tmp_path)


def same(function, *inputs, tolerance=1e-5, reasons=("",)):
    """The backend's results beside eager PyTorch's, what they do to their inputs among them."""
    found: list = []
    torch._dynamo.reset()
    stop = sardonyx.torch.observe(found.append)
    ours, theirs = ([x.clone() for x in inputs] for _ in range(2))
    with torch.no_grad():
        got = torch.compile(function, backend="sardonyx", dynamic=False)(*ours)
        want = function(*theirs)
    stop()
    leaves = torch.utils._pytree.tree_leaves
    for a, b in zip(leaves((got, ours)), leaves((want, theirs)), strict=True):
        close(a, b, tolerance)
    assert [c.reason for c in found] == list(reasons)


def test_results_keep_their_types():
    """torch.onnx promotes the operand of abs, and gives the promoted result."""
    same(torch.abs, torch.randn(5).half())
    # 2e-3: four additions, each rounded to float16 (by 2^-11) or not.
    same(lambda x: x.cumsum(0), torch.randn(5).half(), tolerance=2e-3)


def test_batch_normalisation_by_the_batch(graphs):
    """It changes the running statistics, which the operator's schema does not say."""
    norm = lambda x, w, m, v: nn.functional.batch_norm(x, m, v, w, None, training=True)
    same(norm, torch.randn(4, 3, 5), torch.rand(3), torch.rand(3), torch.rand(3))


def test_terms_with_a_factor_of_zero_are_not_read():
    """torch.onnx multiplies them, which keeps what is not a number."""
    x = torch.full((4, 5), float("nan"))
    same(lambda x, a, b: torch.addmm(x, a, b, beta=0), torch.zeros(4, 5), torch.randn(4, 3), torch.randn(3, 5))
    with torch.no_grad():
        a, b = torch.randn(4, 3), torch.randn(3, 5)
        close(torch.compile(lambda x, a, b: torch.addmm(x, a, b, beta=0), backend="sardonyx")(x, a, b), a @ b)


def test_averages_with_a_divisor():
    """torch.onnx ignores the divisor."""
    same(lambda x: nn.functional.avg_pool2d(x, 3, 1, 1, divisor_override=2) + 1, torch.randn(1, 3, 9, 9))


def test_averages_of_exported_programs():
    class Average(nn.Module):
        def forward(self, x):
            return nn.functional.avg_pool2d(x, 3, divisor_override=2)

    x = torch.randn(1, 3, 9, 9)
    program = torch.export.export(Average(), (x,))
    (got,) = sardonyx.compile(program).run({"x": x}).values()
    close(torch.from_numpy(got), program.module()(x))  # as it was


def test_resizing_with_aligned_corners():
    """ONNX aligns the corners of the scaled size, PyTorch those of the whole one."""
    resize = lambda x: nn.functional.interpolate(x, scale_factor=0.6, mode="bilinear", align_corners=True)
    same(resize, torch.randn(1, 2, 4, 4))


@pytest.mark.parametrize("function", [torch.log1p, torch.expm1])
def test_small_values_keep_their_digits(function):
    """torch.onnx writes log(1 + x) and exp(x) - 1."""
    x = torch.tensor([1e-10, -1e-9, 1e-4, -0.5, 0.0, 3.0, 88.0, 1e20, float("inf"), -1.0, -100.0, float("nan")])
    with torch.no_grad():
        got = torch.compile(lambda x: function(x), backend="sardonyx")(x)
    torch.testing.assert_close(got, function(x), rtol=1e-6, atol=0, equal_nan=True)  # some ULPs of two functions


def test_channels_last_inputs_are_read_in_place(graphs):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        for batch in (2, 3, 5):
            x = torch.randn(batch, 3, 8, 8).contiguous(memory_format=torch.channels_last)
            close(compiled(x), module(x))
        x = torch.randn(5, 3, 8, 8)
        close(compiled(x), module(x))
    assert graphs[0].programs[0][0].channels_last == [True]
    assert not [c.reason for c in graphs if c.reason]


def test_graphs_that_compute_nothing(graphs):
    with torch.no_grad():
        x = torch.randn(2, 3)
        y = torch.compile(lambda x: x.t().unsqueeze(0), backend="sardonyx")(x)
    assert y.shape == (1, 3, 2) and y.data_ptr() == x.data_ptr()
    assert graphs[0].reason == "" and graphs[0].programs[0][0].model is None


def test_graphs_without_inputs_and_without_elements():
    same(lambda: torch.arange(3, 12) * 2)
    same(lambda x: x * 2 + 1, torch.zeros(0, 3))


def test_complex_results_stay_in_pytorch(graphs):
    with torch.no_grad():
        y = torch.compile(lambda x: torch.fft.fft(x), backend="sardonyx")(torch.ones(4))
    assert y.dtype == torch.complex64 and "complex64" in graphs[0].reason
