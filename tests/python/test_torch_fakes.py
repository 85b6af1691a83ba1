"""The rules of sardonyx.torch for tensors without data, beside PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import sardonyx.torch  # noqa: E402
from sardonyx.torch import backend, capture, fakes  # noqa: E402
from sardonyx.torch.trace import Symbols  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

aten = torch.ops.aten


def described(found: Any) -> list[Any]:
    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        expressions = [str(n) for n in (*x.shape, *x.stride(), x.storage_offset())]
        return expressions, x.dtype, x.device

    return [one(x) for x in torch.utils._pytree.tree_leaves(found)]


def results(make: Any, symbolic: bool, device: str, dtype: torch.dtype, shapes: list[Any], call: Any) -> list[Any]:
    symbols = Symbols()
    mode = make(symbols.env)
    with mode:
        tensors = [
            torch.empty(
                [
                    symbols.size(n, n, 0, 0) if symbolic and len(shape) > 2 and d == 0 else n
                    for d, n in enumerate(shape)
                ],
                dtype=dtype,
                device=device,
            )
            for shape in shapes
        ]
    with torch.no_grad(), mode:
        return [*described(call(*tensors)), [g.expr for g in symbols.env.guards]]


CALLS: dict[str, tuple[list[Any], Any]] = {
    **{f"like_{p.default._opname}": ([(8, 6, 5, 4)], p.default) for p in sorted(fakes.LIKE_FIRST, key=str)},
    "like_channels_last": ([(8, 6, 5, 4)], lambda x: aten.relu.default(x.permute(0, 3, 1, 2))),
    "like_part": ([(8, 6, 4)], lambda x: aten.relu.default(x[:, 2:])),
    "softmax": ([(8, 6, 4)], lambda x: aten._softmax.default(x, -1, False)),
    "softmax_permuted": ([(8, 6, 4)], lambda x: aten._softmax.default(x.mT, -1, False)),
    "linear": ([(8, 6, 4), (3, 4), (3,)], aten.linear.default),
    "linear_square": ([(6, 4), (3, 4)], aten.linear.default),
    "addmm": ([(6,), (8, 4), (4, 6)], aten.addmm.default),
    "addmm_transposed": ([(6,), (8, 4), (6, 4)], lambda b, x, w: aten.addmm.default(b, x, w.t())),
    "addmm_symbolic": ([(6,), (8, 2, 4), (4, 6)], lambda b, x, w: aten.addmm.default(b, x.reshape(-1, 4), w)),
    "addmm_broadcast": ([(1,), (8, 4), (4, 6)], aten.addmm.default),
    "linear_wide": ([(8, 2, 6, 4), (3, 4), (3,)], aten.linear.default),
    "layer_norm": ([(8, 6, 4), (4,), (4,)], lambda x, w, b: aten.native_layer_norm.default(x, [4], w, b, 1e-5)),
    "layer_norm_two": ([(8, 6, 4)], lambda x: aten.native_layer_norm.default(x, [6, 4], None, None, 1e-5)),
    "layer_norm_permuted": ([(8, 4, 6)], lambda x: aten.native_layer_norm.default(x.mT, [4], None, None, 1e-5)),
    "batch_norm": ([(8, 6, 5, 4), (6,), (6,), (6,), (6,)], lambda *x: aten._native_batch_norm_legit_no_training.default(*x, 0.1, 1e-5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_rules_give_what_pytorch_gives(name: str, symbolic: bool) -> None:
    shapes, call = CALLS[name]
    own = lambda environment: FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for device in ("cpu", "cuda:0"):
            arguments = symbolic, device, dtype, shapes, call
            assert results(fakes.Fakes, *arguments) == results(own, *arguments), (dtype, device)


def test_pooling_to_one_element_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In channels last its strides are changed in place, which changes no element."""
    from sardonyx.torch import trace

    traces = []
    original = trace.make_fx
    monkeypatch.setattr(trace, "make_fx", lambda *a, **k: traces.append(1) or original(*a, **k))
    pool = torch.nn.AdaptiveAvgPool2d(1)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3), pool, torch.nn.Flatten()).eval()
    graphs: list[Any] = []
    stop = sardonyx.torch.observe(graphs.append)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="sardonyx")
    try:
        with torch.no_grad():
            for batch in (1, 3, 4):
                x = torch.randn(batch, 3, 8, 7).to(memory_format=torch.channels_last)
                torch.testing.assert_close(compiled(x), module(x))
    finally:
        stop()
    assert [g.reason for g in graphs] == ["", ""] and len(traces) == 2


#: What is viewed, and a list of sizes, or dims.
VIEWS: dict[str, tuple[Any, Any]] = {
    "joined": (lambda x: x, [-1, 24]),
    "joined, all sizes": (lambda x: x, [8, 4, 6]),
    "one dim": (lambda x: x, [-1]),
    "divided": (lambda x: x, [8, 4, 2, 3]),
    "part, divided": (lambda x: x[..., 2:], [8, 4, -1, 2]),
    "part, as it is": (lambda x: x[:, 1:], [8, 3, 6]),
    "part, joined": (lambda x: x[:, 1:], [8, -1]),
    "permuted, divided": (lambda x: x.transpose(1, 2), [-1, 6, 2, 2]),
    "a dim of 1": (lambda x: x, [8, 1, 4, 6]),
    "a dim of 1 at the end": (lambda x: x.transpose(0, 1), [4, 8, 6, 1]),
    "permuted": (lambda x: x, (2, 0, -2)),
    "permuted again": (lambda x: x[:, 1:].transpose(0, 1), (1, 2, 0)),
    "permuted wrongly": (lambda x: x, (0, 0, 1)),
    "permuted, fewer": (lambda x: x, (1, 0)),
    "transposed": (lambda x: x[..., 1:], (-1, 0)),
    "transposed wrongly": (lambda x: x, (3, 0)),
    "wrong": (lambda x: x, [8, 5, 6]),
    "wrong, free": (lambda x: x, [-1, 7]),
    "two free": (lambda x: x, [-1, -1]),
    "permuted, joined": (lambda x: x.transpose(1, 2), [8, 24]),
}


#: What is left to PyTorch.
LEFT = {"a dim of 1 at the end", "part, joined", "wrong", "wrong, free", "two free", "permuted, joined", "permuted wrongly", "permuted, fewer", "transposed wrongly"}  # fmt: skip


@pytest.mark.parametrize("case", VIEWS)
@pytest.mark.parametrize("strict", [False, True])
def test_views(case, strict):
    """Sizes, strides and memory of a view, and the conditions on sizes that it leads to."""
    prepared, sizes = VIEWS[case]

    def found(ours):
        symbols = Symbols()
        mode = FakeTensorMode(shape_env=symbols.env)
        n = symbols.size(8, 8, 0, 0)
        with mode, torch.inference_mode(strict):
            x = prepared(torch.empty(n, 4, 6))
            given = [n if k == 8 else k for k in sizes] if isinstance(sizes, list) else sizes
            ops = (aten.permute.default, aten.transpose.int)
            op = aten.view.default if isinstance(sizes, list) else ops["transposed" in case]
            arguments = given if "transposed" in case else (given,)
            try:
                if ours:
                    y = capture.VIEWS[op](fakes.Results(mode, shared=False), x, *arguments)
                else:
                    y = op(x, *arguments)
            except fakes.Unusual:
                return None
            except (RuntimeError, ValueError, IndexError):
                return "error"
            return described(y), y.untyped_storage()._cdata == x.untyped_storage()._cdata, len(symbols.env.guards)

    want, got = found(False), found(True)
    assert got == want or got is None
    assert (got is None) == (case in LEFT)


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Hardswish())
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24)

    def forward(self, x):
        y = self.norm(self.conv(x).flatten(2).transpose(1, 2).contiguous())
        q, k, v = self.linear(y).split(8, 2)
        heads = [t.view(*t.shape[:-1], -1, 4).transpose(1, 2) for t in (q, k, v)]
        z = (heads[0] @ heads[1].permute(0, 1, 3, 2)).softmax(-1) @ heads[2]
        return torch.nn.functional.gelu(z).transpose(1, 2).reshape(y.shape), x.relu().sigmoid()


def captured(module, batches, backend):
    """The operators of the graphs of a module, with their results, which of these share memory, and what was called."""
    graphs = []

    def look(gm, inputs, **_):
        values = [n.meta.get("example_value") for n in gm.graph.nodes]
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        memory: dict[int, int] = {}
        owners = [memory.setdefault(v.untyped_storage()._cdata, len(memory)) for v in tensors]
        graphs.append(([str(n.target) for n in gm.graph.nodes], described(tensors), owners))
        return gm

    torch._dynamo.reset()
    backend.clear()
    backend.append(look)
    compiled = torch.compile(module, backend=watched)
    with torch.inference_mode():
        for batch in batches:
            x = torch.randn(batch, 3, 6, 6)
            for a, b in zip(compiled(x), module(x), strict=True):
                assert torch.equal(a, b)
    return graphs


LOOK: list[Any] = []


def watched(gm, inputs, **named):
    return LOOK[0](gm, inputs, **named)


def test_captures(monkeypatch):
    """A capture for the backend gives the graph, the sizes and the aliases of any other."""
    used = []
    by_rule = fakes.Results.by_rule

    def counted(self, func, args, kwargs):
        found = by_rule(self, func, args, kwargs)
        used.append(func)
        return found

    monkeypatch.setattr(fakes.Results, "by_rule", counted)
    for op, rule in capture.VIEWS.items():
        monkeypatch.setitem(capture.VIEWS, op, lambda *a, op=op, rule=rule: (rule(*a), used.append(op))[0])
    module = Layers().eval()
    want = captured(module, (1, 2, 3), LOOK)
    assert not used and len(want) == 2
    monkeypatch.setattr(backend.captures, "backend", watched)
    got = captured(module, (1, 2, 3), LOOK)
    assert got == want
    assert {*capture.VIEWS, aten.native_layer_norm.default, aten.addmm.default, aten.sigmoid.default} <= {*used}


@pytest.mark.parametrize("enabled", [True, False])
def test_captures_do_not_collect(monkeypatch, enabled):
    """Python's collection of cycles pauses during a capture for the backend, even after a reset if one was compiled since."""
    import gc

    seen = []
    collecting = gc.isenabled()

    def look(gm, inputs, **_):
        seen.append(gc.isenabled())
        return gm

    try:
        (gc.enable if enabled else gc.disable)()
        for ours in (False, True):
            torch._dynamo.reset()
            backend.captures.listen()
            LOOK[:] = [look]
            monkeypatch.setattr(backend.captures, "backend", watched if ours else backend.sardonyx)
            torch.compile(lambda x: x + 1, backend=watched)(torch.ones(3))
            assert gc.isenabled() == enabled
    finally:
        (gc.enable if collecting else gc.disable)()
    assert seen == [enabled, False]
