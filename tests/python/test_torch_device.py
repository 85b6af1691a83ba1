"""torch.compile's backend "sardonyx" on a GPU of torch: tensors in place, streams, devices of results."""

from __future__ import annotations

import copy
import importlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
if not torch.cuda.is_available():
    pytest.skip("torch has no GPU here", allow_module_level=True)
importlib.import_module("sardonyx.torch")


def close(got, want, tolerance):
    """Relative to the largest value."""
    assert got.dtype == want.dtype and got.shape == want.shape and got.device == want.device
    assert float((got.double() - want.double()).abs().max()) <= tolerance * (float(want.double().abs().max()) or 1.0)


def network(dtype):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(1), torch.nn.Linear(16 * 64, 32)]
    return torch.nn.Sequential(*layers).eval().to("cuda", dtype)


def test_sizes_from_outside(graphs):
    def function(x, n):
        return x * n, x[:, :n].sum(1), x.new_zeros(n), x.shape[0] * n

    compiled = torch.compile(function, backend="sardonyx", dynamic=True)
    with torch.inference_mode():
        for batch, n in ((4, 5), (6, 3), (9, 4)):
            x = torch.randn(batch, 7, device="cuda")
            *got, size = compiled(x, n)
            *want, expected = function(x, n)
            for ours, theirs in zip(got, want, strict=True):
                close(ours, theirs, 1e-5)
            assert size == expected
    assert [c.reason for c in graphs] == [""] and len(graphs[0].programs) == 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_results_and_sizes(graphs, layout):
    module = network(torch.float16)
    exact = copy.deepcopy(module).float()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.inference_mode():
        for batch in (1, 8, 5, 3):
            x = torch.randn(batch, 3, 8, 8, device="cuda", dtype=torch.float16).contiguous(memory_format=layout)
            close(compiled(x).float(), exact(x.float()), 4e-3)
    assert [c.reason for c in graphs] == ["", ""] and [len(c.programs) for c in graphs] == [1, 1]


def test_the_current_stream_orders_the_work(graphs):
    """Values are written by other work of the same stream just before, and read just after, without waiting."""
    compiled = torch.compile(lambda x: x @ x + 1, backend="sardonyx")
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        x = torch.zeros(1024, 1024, device="cuda")
        compiled(x)
        for k in range(20):
            x.fill_(k / 1024)
            torch.cuda._sleep(1_000_000)
            y = compiled(x) * 2
            close(y, torch.full_like(y, 2 * (k * k / 1024 + 1)), 2e-3)  # a product in TF32 may be allowed
    assert [c.reason for c in graphs] == [""]


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.key = torch.nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(2, 10, 8))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.cache.index_copy_(1, self.at, self.key(x))
        self.at += 1
        return (self.cache @ x.transpose(1, 2)).softmax(1)


def test_buffers_that_change_in_place(graphs):
    module = Cache().eval().cuda()
    peer, address = copy.deepcopy(module), module.cache.data_ptr()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(2, 1, 8, device="cuda")
            close(compiled(x), peer(x), 2e-3)
    assert module.cache.data_ptr() == address and int(module.at) == 5
    close(module.cache, peer.cache, 2e-3)
    assert [c.reason for c in graphs] == [""]


def test_results_are_on_their_devices(graphs):
    def both(x, n):
        return x * n, (x * 2).cpu(), torch.arange(3, device="cuda") + 1

    x, n = torch.randn(4, device="cuda"), torch.tensor(3.0)
    with torch.no_grad():
        for got, want in zip(torch.compile(both, backend="sardonyx")(x, n), both(x, n), strict=True):
            torch.cuda.synchronize()
            close(got, want, 1e-6)


def test_old_results_stay(graphs):
    """Each call's results have memory of their own, as eager PyTorch's have."""
    compiled = torch.compile(lambda x: x * 2 + 1, backend="sardonyx")
    with torch.no_grad():
        made = [(x, compiled(x)) for x in (torch.randn(1000, device="cuda") for _ in range(50))]
    for x, y in made:
        close(y, x * 2 + 1, 1e-6)
