"""torch.compile(backend="sardonyx") and exported programs: operators that torch.onnx has not, or gives other results for
(sardonyx/torch/rules.py, layer_rules.py). Sizes vary, and every graph is compiled."""

from __future__ import annotations

import math

import pytest
import sardonyx

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
from torch_graphs import close  # noqa: E402

# PyTorch says so of two operators that are called.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter"),
    pytest.mark.filterwarnings("ignore:index_reduce"),
]
nn = torch.nn
functional = nn.functional
leaves = torch.utils._pytree.tree_leaves


def rows(b, n):
    return (torch.randn(b, n),)


def rows_with_nan(b, n):
    x = torch.randn(b, n)
    x[0, 1] = x[0, 3] = x[1, 0] = math.nan
    return (x,)


def repeated(b, n):
    return (torch.randint(0, 4, (b, n)).float(),)


def scattered(b, n):
    return torch.randn(b, n), torch.randint(0, n, (b, n))


def heads(b, n, keys=2):
    return torch.randn(b, 4, n, 8), torch.randn(b, 4, n + keys, 8), torch.randn(b, 4, n + keys, 8)


def with_mask(b, n):
    return *heads(b, n), torch.arange(n)[:, None] + torch.arange(n + 2) < n  # the last query sees nothing


def with_infinities(b, n):
    q, k, v, seen = with_mask(b, n)
    return q, k, v, torch.where(seen, torch.randn(n, n + 2), -math.inf)


def grouped(b, n):
    return torch.randn(b, 8, n, 8), torch.randn(b, 2, n, 8), torch.randn(b, 2, n, 8), torch.rand(b, 1, n, n) > 0.3


def images(b, n):
    return (torch.randn(b, 3, n, n + 1),)


def attention(*operands):
    return functional.scaled_dot_product_attention(*operands)


def grouped_attention(q, k, v, mask):
    return functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, scale=0.3)


def scatters(x, at):
    zeros = torch.zeros(x.shape[0], 12)
    means = zeros.scatter_reduce(1, at, x, "mean"), zeros.scatter_reduce(1, at, x, "mean", include_self=False)
    return *means, x.scatter(1, at, x * 2, reduce="multiply"), x.scatter(1, at, 2.0, reduce="add")


def orders(x):
    return x.kthvalue(2, -1).values, x.median(-1).values, x.median(), x.nanmedian(0).values, x.nanmedian()


def extremes(x):
    return *x.cummax(-1), *x.cummin(0), x.cumprod(-1)


def places(x):
    line = x.sort(-1).values
    bounds = torch.tensor([-1.0, 0.0, 0.5])
    found = torch.searchsorted(line, x), torch.searchsorted(line, x, right=True, out_int32=True)
    return *found, torch.bucketize(x, bounds), torch.isin(x, bounds)


def distances(x):
    return [torch.cdist(x, x.flip(0) + 1, p) for p in (0.0, 1.0, 2.0, 3.0, math.inf)]


def elements(x):
    bent = x.clone()
    bent[:, 0] = math.nan
    values = torch.hypot(x, x * 2), torch.fmax(bent, -x), torch.fmin(bent, -x), torch.special.entr(x.abs() - 0.1)
    return *values, torch.erfinv(x.tanh()), torch.erfinv(torch.tensor([0.0, 1.0, -1.0, 0.999999]) + 0 * x[0, 0])


def bools(x):
    a, b = x > 0, x > 0.5
    return a + b, torch.amax(a), torch.nansum((x * 3).long()), (x * 3).long().divide(x.sign() + 3)


def nothing(x):
    return x.any(1), x.any(), x.any((0, 1))


def shifted(x):
    return x << 2, x >> 1, torch.bitwise_left_shift(x, x % 3), x.to(torch.int32) << 3, x.to(torch.int64) >> x % 4


def adaptive(x):
    found = functional.adaptive_max_pool2d(x, (3, 2), return_indices=True)
    return *found, functional.adaptive_max_pool1d(x[:, 0], 4), functional.adaptive_max_pool2d(x, 1)


def loss(x, target):
    weight = torch.linspace(0.5, 2, x.shape[1])
    losses = [functional.cross_entropy(x, target, ignore_index=0, label_smoothing=0.1, reduction=r) for r in ("mean", "sum", "none")]  # fmt: skip
    return *losses, functional.cross_entropy(x, target, weight, ignore_index=1, label_smoothing=0.2), functional.cross_entropy(x, target)  # fmt: skip


def labels(b, n):
    return torch.randn(b + 2, n), torch.arange(b + 2) % n


def diagonal(x):
    return x.clone().fill_diagonal_(0.5).triu(-1)


def listed(x):
    return torch.dstack([x, x * 2]), torch.hstack([x, x]), torch.atleast_3d(x, x[0])


def antialiased(x):
    smaller = functional.interpolate(x, scale_factor=(0.7, 0.9), mode="bilinear", antialias=True)
    return smaller, functional.interpolate(x, scale_factor=1.3, mode="bicubic", antialias=True)


def corners(x):
    return [functional.interpolate(x, scale_factor=1.5, mode=m, align_corners=True) for m in ("bilinear", "bicubic")]


def deformed(x):
    operators = pytest.importorskip("torchvision.ops", reason="torchvision is not installed")
    places = x[:, :1].expand(-1, 18, -1, -1) * 0.3
    return operators.deform_conv2d(x, places, torch.ones(4, 3, 3, 3), padding=1)


def leaky(x):
    return functional.rrelu(x)


def of_bools(x):
    a = x > 0
    octets = a.to(torch.uint8)
    found = *a.max(1), a.min(0).values, a.sort(1).values, a.cummax(1).values, a + (x > 0.5), a.amax(1), a.amin()
    return *found, octets.any(1), octets.any() + 200, octets.any((0, 1), keepdim=True)


def of_integers(x):
    i = (x * 3).long()
    return i.floor(), i.round(), torch.isnan(i), torch.isfinite(i), i.softmax(-1, torch.float32), i.log_softmax(0, torch.float32)  # fmt: skip


def reduced(x):
    at = torch.tensor([1, 0, 1])
    return [x.index_reduce(1, at, x[:, :3], r, include_self=s) for r in ("mean", "amax") for s in (True, False)]


def volumes(b, n):
    return (torch.randn(b, 3, n, n + 1, 4),)


def means_of_volumes(x):
    return functional.adaptive_avg_pool3d(x, (3, 2, 4)), functional.adaptive_max_pool3d(x, (2, 3, 2))


def by_sizes(x):
    best = x.flatten().topk(3).indices  # as in a beam search
    numbers = best // x.shape[1], best % x.shape[1], x.abs() ** (1 / x.shape[1])
    return *numbers, functional.cross_entropy(x, torch.arange(x.shape[0]), label_smoothing=0.1)


def of_two_types(x):
    i = (x * 3).long()
    chosen = torch.where(i > 1, x, i), torch.where(i > 1, 1, 0.5), torch.where(x > 0, i, -1)
    return (
        *chosen,
        torch.where(x > 0, x.half(), 2.0),
        torch.where(x > 0, i.to(torch.int8), i),
        i.masked_fill(x > 0, True),
    )


CASES = {
    "numbers by sizes": (by_sizes, rows),
    "choices of two types": (of_two_types, rows),
    "bools in order": (of_bools, rows),
    "integers": (of_integers, rows),
    "reductions by an index": (reduced, rows),
    "adaptive pools of volumes": (means_of_volumes, volumes),
    "scatters": (scatters, scattered),
    "order": (orders, rows),
    "order with NaN": (orders, rows_with_nan),
    "running extremes": (extremes, repeated),
    "running extremes with NaN": (extremes, rows_with_nan),
    "places in sorted rows": (places, rows),
    "distances": (distances, rows),
    "elements": (elements, rows),
    "bools": (bools, rows),
    "shifts of bytes": (shifted, lambda b, n: (torch.randint(0, 256, (b, n), dtype=torch.uint8),)),
    "attention of five dims": (attention, lambda b, n: [x.unflatten(1, (2, 2)) for x in heads(b, n)]),
    "attention of two dims": (attention, lambda b, n: [x[0, 0] for x in heads(b, n)]),
    "queries that see nothing": (attention, with_mask),
    "queries that see nothing, by infinities": (attention, with_infinities),
    "groups of heads with a mask": (grouped_attention, grouped),
    "adaptive maxima": (adaptive, images),
    "smoothed labels": (loss, labels),
    "a diagonal in place": (diagonal, lambda b, n: (torch.randn(n, n + b),)),
    "lists": (listed, rows),
    "antialiased by a scale": (antialiased, images),
    "corners by a scale": (corners, images),
    "deformable convolution": (deformed, images),
    "rrelu": (leaky, rows),
}


@pytest.mark.parametrize("name", CASES)
def test_rules(graphs, name):
    function, make = CASES[name]
    compiled = torch.compile(function, backend="sardonyx")
    with torch.no_grad():
        for b, n in ((2, 5), (3, 7), (4, 9)):
            given = make(b, n)
            for got, want in zip(leaves(compiled(*given)), leaves(function(*given)), strict=True):
                assert torch.equal(torch.isnan(got), torch.isnan(want)) and torch.equal(torch.isinf(got), torch.isinf(want))  # fmt: skip
                close(got.nan_to_num(), want.nan_to_num(), 2e-5)
    assert {c.reason for c in graphs} == {""}


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None, z=None, w=None):
        return self.function(*(v for v in (x, y, z, w) if v is not None))


#: torch.export leaves the view of the memory that fill_diagonal_ changes.
EXPORTED = [name for name in CASES if name != "a diagonal in place"]


@pytest.mark.parametrize("name", EXPORTED)
def test_rules_in_exported_programs(name):
    function, make = CASES[name]
    given = tuple(make(3, 7))
    model = sardonyx.compile(Called(function).eval(), example_inputs=given)
    results = model.run({i.name: x.numpy() for i, x in zip(model.inputs, given, strict=True)})
    for got, want in zip(results.values(), leaves(function(*given)), strict=True):
        close(torch.from_numpy(got).nan_to_num(), want.nan_to_num(), 2e-5)


def test_reductions_of_nothing(graphs):
    compiled = torch.compile(nothing, backend="sardonyx")
    with torch.no_grad():
        for b, n in ((2, 0), (3, 0), (2, 3), (0, 3)):
            x = torch.zeros(b, n)
            assert [r.tolist() for r in compiled(x)] == [r.tolist() for r in nothing(x)]
    assert {c.reason for c in graphs} == {""}


class Encoder(nn.Module):
    def __init__(self, **more):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **more)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x, padding=None):
        y = self.encoder(x, src_key_padding_mask=padding)
        return y if padding is None else y * torch.logical_not(padding)[..., None]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("more", [{}, {"norm_first": True, "activation": "gelu"}])
def test_transformer_encoders_in_evaluation(graphs, more, padded):
    """TransformerEncoderLayer calls one operator for all of it."""
    module = Encoder(**more).eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.inference_mode():
        for b, n in ((2, 5), (3, 7), (4, 9)):
            given = [torch.randn(b, n, 16)]
            given += [torch.arange(n) >= torch.arange(n - b + 1, n + 1)[:, None]] if padded else []
            close(compiled(*given), module(*given))
    assert {c.reason for c in graphs} == {""} and len(graphs) == 2


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags_of_embeddings(graphs, mode, padding):
    bags = nn.EmbeddingBag(20, 4, mode=mode, padding_idx=padding)
    compiled = torch.compile(bags, backend="sardonyx")
    with torch.no_grad():
        for b, n in ((2, 5), (3, 7), (4, 9)):
            given = torch.randint(0, 5, (b, n))
            close(compiled(given), bags(given))
            flat, starts = torch.randint(0, 5, (n,)), torch.tensor([0, 2, 2, 4][:b])  # one is empty
            close(compiled(flat, starts), bags(flat, starts))
    assert {c.reason for c in graphs} == {""}


def test_norms_of_halves_with_weights_of_float32(graphs):
    """Under autocast on a CPU norms get the 16-bit results of linear layers, and have their weights in float32."""
    module = nn.Sequential(
        nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4), nn.Unflatten(1, (4, 1)), nn.GroupNorm(2, 4)
    )

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    compiled = torch.compile(function, backend="sardonyx")
    with torch.no_grad():
        for n in (3, 5, 8):
            x = torch.randn(n, 6)
            close(compiled(x), function(x), 2.0**-6)  # some roundings to bfloat16
    assert {c.reason for c in graphs} == {""}


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.positive, self.negative = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.positive(v).relu(), lambda v: self.negative(v) - 1, (x,)) * 2


def test_branches_by_data(graphs):
    module = Branches().eval()
    compiled = torch.compile(module, backend="sardonyx")
    with torch.no_grad():
        for n in (3, 5, 6):
            for sign in (1, -1):
                x = torch.rand(n, 4) * sign
                close(compiled(x), module(x))
    assert {c.reason for c in graphs} == {""} and len(graphs) == 2


@pytest.mark.parametrize(
    "module",
    [nn.LSTM(4, 6, 2, bidirectional=True), nn.GRU(4, 6, batch_first=True), nn.RNN(4, 6, nonlinearity="relu")],
    ids=["LSTM", "GRU", "RNN"],
)
def test_recurrent_layers_that_torch_compile_is_told_to_capture(graphs, module):
    module.eval()
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        compiled = torch.compile(module, backend="sardonyx")
        for b, n in ((2, 5), (3, 7), (4, 9)):
            x = torch.randn(n, b, 4)
            for got, want in zip(leaves(compiled(x)), leaves(module(x)), strict=True):
                close(got, want)
    assert graphs and {c.reason for c in graphs} == {""}
