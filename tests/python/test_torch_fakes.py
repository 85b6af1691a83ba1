"""The rules of sardonyx.torch for tensors without data, beside PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import sardonyx.torch  # noqa: E402
from sardonyx.torch import fakes  # noqa: E402
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
