"""MoE and QMoE compared with NumPy in float64, and NumPy with ONNX Runtime's CPU provider where it supports the variant."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
HIDDEN, INTER = 48, 32
CHIPS = ["sim:gfx942", "sim:gfx1100"]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}


def make(tokens, experts, seed=0, fusion=1, gate=False, bias=True, dtype=np.float32):
    """x, logits and by projection (weights [E, N, K], bias [E, N] or None)."""
    rng = np.random.default_rng(seed)

    def random(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(dtype)

    sizes = {"fc1": (fusion * INTER, HIDDEN), "fc2": (HIDDEN, INTER)} | ({"fc3": (INTER, HIDDEN)} if gate else {})
    layers = {
        n: (random(experts, *s, scale=2 * s[1] ** -0.5), random(experts, s[0]) if bias else None)
        for n, s in sizes.items()
    }
    return random(*tokens, HIDDEN), random(int(np.prod(tokens)), experts, scale=2.0), layers


def shares_of(logits, k, a, mix=None):
    """Experts and their shares, [T, k] each."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    if a.get("use_sparse_mixer"):
        shares = np.zeros(order.shape)
        for t, row in enumerate(logits):
            left = row.copy()
            for j, e in enumerate(order[t]):
                out = (left[e] - left) / np.maximum(np.abs(row), left[e]) > 0.02
                scores = np.where(out, -np.inf, left)
                shares[t, j] = 1 / np.exp(scores - left[e]).sum()
                left[e] = -np.inf
        return order, shares
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    shares = np.take_along_axis(p if mix is None else mix.astype(np.float64), order, 1)
    return order, shares / shares.sum(1, keepdims=True) if a.get("normalize_routing_weights") else shares


def reference(x, logits, layers, k=1, mix=None, **a):
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    layers = {
        n: (w.astype(np.float64), np.zeros(w.shape[:2]) if b is None else b.astype(np.float64))
        for n, (w, b) in layers.items()
    }
    experts, shares = shares_of(logits.astype(np.float64), k, a, mix)
    out = np.zeros(rows.shape)
    name, fusion = a.get("activation_type", "relu"), a.get("swiglu_fusion", 0)
    for t in range(len(rows)):
        for e, share in zip(experts[t], shares[t], strict=True):
            up, down, gate = (layers.get(n) and (layers[n][0][e], layers[n][1][e]) for n in ("fc1", "fc2", "fc3"))
            h = up[0] @ rows[t] + up[1]
            linear = gate[0] @ rows[t] + gate[1] if gate else None
            if fusion:
                h, linear = (h[0::2], h[1::2]) if fusion == 1 else (h[:INTER], h[INTER:])
            if name == "swiglu":
                limit = a.get("swiglu_limit", np.inf)
                h, linear = np.minimum(h, limit), np.clip(linear, -limit, limit)
                h = h * sigmoid(a.get("activation_alpha", 1.0) * h) * (linear + a.get("activation_beta", 0.0))
            else:
                h = ACTIVATIONS[name](h) * (1 if linear is None else linear)
            out[t] += share * (down[0] @ h + down[1])
    return out.reshape(x.shape)


def model_of(op, inputs, attributes, symbolic=True):
    """Inputs 0, 1 and 14 are the run's, the others weights."""
    given, weights, names = [], [], []
    for k, v in enumerate(inputs):
        names.append("" if v is None else f"i{k}")
        if v is None:
            continue
        if k in (0, 1, 14):
            shape = [f"t{k}" if symbolic else v.shape[0], *v.shape[1:]]
            given.append(helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(v.dtype), shape))
        else:
            weights.append(numpy_helper.from_array(v, f"i{k}"))
    while names[-1] == "":
        names.pop()
    kind = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain=MS, **attributes)],
        op,
        given,
        [helper.make_tensor_value_info("y", kind, None)],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def moe_inputs(x, logits, layers):
    return [x, logits, *(v for n in ("fc1", "fc2", "fc3") for v in layers.get(n, (None, None)))]


def run(op, inputs, attributes, device="host", symbolic=True):
    feed = {f"i{k}": inputs[k] for k in (0, 1, 14) if k < len(inputs) and inputs[k] is not None}
    return sardonyx.compile(model_of(op, inputs, attributes, symbolic), device=device)(**feed)["y"]


def on_cpu_provider(op, inputs, attributes):
    feed = {f"i{k}": inputs[k] for k in (0, 1)}
    session = onnxruntime.InferenceSession(
        model_of(op, inputs, attributes).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)[0]


def check(got, want, dtype=np.float32):
    # Sums of up to 48 terms in another order, or rounded to 11 and 8 bits three times.
    tolerance = {np.dtype(np.float32): 2e-5, np.dtype(np.float16): 6e-3}.get(np.dtype(dtype), 6e-2)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance * np.abs(want).max())


SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
FORMS = {
    "relu": ({"activation_type": "relu"}, {}),
    "gelu of two": ({"activation_type": "gelu", "k": 2}, {}),
    "silu normalised": ({"activation_type": "silu", "k": 3, "normalize_routing_weights": 1}, {"bias": False}),
    "identity": ({"activation_type": "identity", "k": 2}, {}),
    "swiglu": (SWIGLU | {"k": 2, "normalize_routing_weights": 1}, {"fusion": 2}),
    "swiglu with a limit": (SWIGLU | {"k": 2, "swiglu_limit": 1.0}, {"fusion": 2}),
}
OUR_FORMS = {
    "swiglu in halves": (SWIGLU | {"swiglu_fusion": 2, "k": 2}, {"fusion": 2}),
    "swiglu apart": (SWIGLU | {"swiglu_fusion": 0, "k": 2, "swiglu_limit": 7.0}, {"gate": True}),
    "silu with a gate": ({"activation_type": "silu", "k": 2, "normalize_routing_weights": 1}, {"gate": True}),
    "sparse mixer": ({"activation_type": "silu", "k": 2, "use_sparse_mixer": 1}, {"gate": True}),
}


@pytest.mark.parametrize("form", [*FORMS, *OUR_FORMS])
def test_moe(form):
    attributes, shape = (FORMS | OUR_FORMS)[form]
    x, logits, layers = make((70,), 5, **shape)
    want = reference(x, logits, layers, **attributes)
    inputs = moe_inputs(x, logits, layers)
    program = sardonyx.compile(model_of("MoE", inputs, attributes))
    # One token; few with a block for each; 5 experts that share blocks of 16 rows.
    for n in (1, 6, 70):
        check(program(i0=x[:n], i1=logits[:n])["y"], want[:n])
    if form in FORMS:
        check(on_cpu_provider("MoE", inputs, attributes), want)


def test_tokens_of_several_sequences():
    attributes, shape = FORMS["swiglu"]
    x, logits, layers = make((2, 3), 5, **shape)
    check(run("MoE", moe_inputs(x, logits, layers), attributes), reference(x, logits, layers, **attributes))


def test_nobody_chose_some_experts_and_one_has_all():
    x, logits, layers = make((33,), 6)
    logits[:, 4] += 100
    attributes = {"activation_type": "silu"}
    check(run("MoE", moe_inputs(x, logits, layers), attributes), reference(x, logits, layers, **attributes))


def test_one_program_for_all_counts_of_tokens():
    x, logits, layers = make((50,), 4, fusion=2)
    attributes = SWIGLU | {"k": 2}
    inputs = moe_inputs(x, logits, layers)
    program = sardonyx.compile(model_of("MoE", inputs, attributes))
    want = reference(x, logits, layers, **attributes)
    for n in (50, 1, 7, 0, 32):
        got = program(i0=x[:n], i1=logits[:n])["y"]
        assert got.shape == (n, HIDDEN)
        if n:
            check(got, want[:n])


@pytest.mark.parametrize("device", CHIPS)
@pytest.mark.parametrize("tokens", [(2,), (40,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.slow(part=3)
def test_moe_on_cards(device, tokens, dtype):
    attributes, shape = FORMS["swiglu"]
    x, logits, layers = make(tokens, 5, dtype=dtype, **shape)
    got = run("MoE", moe_inputs(x, logits, layers), attributes, device)
    check(got, reference(x, logits, layers, **attributes), dtype)


def test_moe_in_bfloat16():
    attributes, shape = FORMS["gelu of two"]
    x, logits, layers = make((9,), 5, dtype=ml_dtypes.bfloat16, **shape)
    got = run("MoE", moe_inputs(x, logits, layers), attributes)
    check(got, reference(x, logits, layers, **attributes), ml_dtypes.bfloat16)


def pack(values, bits):
    """Numbers of `bits` bits along the last dim as bytes, low bits first, rows of whole bytes."""
    per = 8 // bits
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % per)])
    grouped = padded.reshape(*padded.shape[:-1], -1, per).astype(np.uint16)
    return (grouped << (np.arange(per) * bits)).sum(-1).astype(np.uint8)


def quantized(layers, bits, block, zeros, seed=1):
    """QMoE's weights, scales, zero points, and the weights that they mean."""
    rng, inputs, points, meant = np.random.default_rng(seed), [], [], {}
    for name in ("fc1", "fc2", "fc3"):
        if name not in layers:
            inputs += [None] * 3
            points.append(None)
            continue
        weights, bias = layers[name]
        e, n, k = weights.shape
        width = block or k
        q = rng.integers(0, 2**bits, (e, n, k))
        scales = (rng.uniform(0.5, 1.5, (e, n, k // width)) * 3 * k**-0.5 / 2 ** (bits - 1)).astype(weights.dtype)
        middle = np.full((e, n, k // width), 2 ** (bits - 1))
        if zeros:
            middle = rng.integers(0, 2**bits, middle.shape)
        full = (q - np.repeat(middle, width, 2)) * np.repeat(scales.astype(np.float64), width, 2)
        meant[name] = (full, bias)
        inputs += [pack(q, bits), scales if block else scales[..., 0], bias]
        points.append((pack(middle, bits) if block else pack(middle[..., 0], bits)) if zeros else None)
    return inputs + points, meant


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("block", "zeros"), [(0, False), (0, True), (16, False), (16, True)])
def test_qmoe(bits, block, zeros):
    attributes, shape = FORMS["swiglu"]
    x, logits, layers = make((40,), 5, **shape)
    weights, meant = quantized(layers, bits, block, zeros)
    settings = attributes | {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
    want = reference(x, logits, meant, **attributes)
    check(run("QMoE", [x, logits, *weights], settings), want)
    if bits == 4 and block:
        check(on_cpu_provider("QMoE", [x, logits, *weights], settings), want)


def test_qmoe_with_weights_of_their_own_and_bits_by_projection():
    attributes = {"activation_type": "silu", "k": 2, "normalize_routing_weights": 1}
    x, logits, layers = make((6,), 4, gate=True)
    four, meant = quantized(layers, 4, 16, False)
    eight, meant8 = quantized(layers, 8, 16, False)
    weights = four[:3] + eight[3:6] + four[6:]
    meant["fc2"] = meant8["fc2"]
    mix = np.random.default_rng(5).uniform(0.1, 1, logits.shape).astype(np.float32)
    settings = attributes | {"block_size": 16, "fc2_expert_weight_bits": 8}
    got = run("QMoE", [x, logits, *weights, mix], settings)
    check(got, reference(x, logits, meant, mix=mix, **attributes))


@pytest.mark.parametrize("device", CHIPS)
@pytest.mark.parametrize("tokens", [(1,), (40,)])
def test_qmoe_on_cards(device, tokens):
    attributes, shape = FORMS["swiglu"]
    x, logits, layers = make(tokens, 5, dtype=np.float16, **shape)
    weights, meant = quantized(layers, 4, 16, True)
    got = run("QMoE", [x, logits, *weights], attributes | {"block_size": 16}, device)
    check(got, reference(x, logits, meant, **attributes), np.float16)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"activation_type": "swish"}, "activation swish"),
        ({"k": 9}, "9 of 5 experts"),
        ({"activation_type": "swiglu"}, "without fc3"),
        (SWIGLU, "fc1"),
        ({"use_sparse_mixer": 1}, "sparse mixer of 1"),
    ],
)
def test_what_does_not_fit_is_an_error(attributes, text):
    with pytest.raises(sardonyx.Error, match=text):
        run("MoE", moe_inputs(*make((3,), 5)), attributes, symbolic=False)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"quant_type": "fp4"}, "quant_type fp4"),
        ({"weights_prepacked": 1}, "prepacked"),
        ({"block_size": 12}, "blocks of 12"),
    ],
)
def test_what_is_not_supported_is_refused(attributes, text):
    x, logits, layers = make((3,), 5)
    weights, _ = quantized(layers, 4, 16, False)
    with pytest.raises(sardonyx.Error, match=text):
        run("QMoE", [x, logits, *weights], {"block_size": 16} | attributes)


def test_an_invalid_model_is_an_error():
    model = model_of("MoE", moe_inputs(*make((3,), 5)), {})
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, INTER, HIDDEN), np.float32), "i2"))
    with pytest.raises(sardonyx.Error, match="MoE"):
        sardonyx.compile(model)


def grouped_model(dtype, experts, k, n, ends_dtype=TensorProto.INT64):
    given = {"rows": (dtype, ["S", k]), "weights": (dtype, [experts, k, n]), "ends": (ends_dtype, [experts])}
    node = helper.make_node("GroupedMatMul", list(given), ["y"], domain="com.sardonyx")
    infos = [helper.make_tensor_value_info(name, t, shape) for name, (t, shape) in given.items()]
    graph = helper.make_graph([node], "grouped", infos, [helper.make_tensor_value_info("y", dtype, ["S", n])])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(d, v) for d, v in (("", 21), ("com.sardonyx", 1))]
    )


#: Rows of each expert, and rows that none has.
GROUPS = [((3, 0, 70, 1), 0), ((0, 0, 0, 5), 2), ((1, 1, 1, 1), 0), ((0, 0, 0, 0), 3), ((200, 100, 0, 33), 1)]


@pytest.mark.parametrize("device", ["host", *CHIPS])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_grouped_matmul(device, dtype):
    model = sardonyx.compile(grouped_model(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), 4, 40, 24), device=device)
    rng = np.random.default_rng(5)
    weights = rng.standard_normal((4, 40, 24)).astype(dtype)
    for counts, others in GROUPS:
        rows = rng.standard_normal((sum(counts) + others, 40)).astype(dtype)
        ends = np.cumsum(counts)
        got = model(rows=rows, weights=weights, ends=ends)["y"]
        owners = np.repeat(np.arange(4), counts)
        want = np.zeros((len(rows), 24))
        want[: len(owners)] = np.einsum("sk,skn->sn", rows[: len(owners)].astype(float), weights[owners].astype(float))
        # Sums of 40 products of normal values: float32 accumulators, then rounded to the type.
        np.testing.assert_allclose(
            got, want, rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-2 if dtype == np.float16 else 1e-5
        )
        assert not np.any(np.asarray(got)[len(owners) :])


@pytest.mark.parametrize("device", ["host", *CHIPS, "sim:gfx950", "sim:gfx1201"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.slow(part=4)
def test_grouped_matmul_of_large_groups(device, transposed):
    """Groups that begin and end within tiles, more of them than a tile's search reads at a time, of no whole vectors of
    columns; weights as they are, or transposed by a node."""
    experts, k, n = 11, 72, 100
    model = grouped_model(TensorProto.FLOAT16, experts, k, n, TensorProto.INT32)
    if transposed:
        dims = model.graph.input[1].type.tensor_type.shape.dim
        dims[1].dim_value, dims[2].dim_value = n, k
        model.graph.node[0].input[1] = "w"
        model.graph.node.insert(0, helper.make_node("Transpose", ["weights"], ["w"], perm=[0, 2, 1]))
    program = sardonyx.compile(model, device=device)
    rng = np.random.default_rng(8)
    weights = rng.standard_normal((experts, n, k) if transposed else (experts, k, n)).astype(np.float16)
    counts = np.array([0, 37, 0, 0, 150, 1, 0, 129, 0, 64, 5])
    rows = rng.standard_normal((counts.sum() + 20, k)).astype(np.float16)
    got = program(rows=rows, weights=weights, ends=np.cumsum(counts).astype(np.int32))["y"].astype(np.float64)
    by_expert = weights.swapaxes(1, 2) if transposed else weights
    begin = 0
    for e, count in enumerate(counts):
        want = rows[begin : begin + count].astype(np.float64) @ by_expert[e].astype(np.float64)
        # Rounded once, to 11 bits, from sums of 72 products in float32.
        np.testing.assert_allclose(got[begin : begin + count], want, rtol=1e-3, atol=1e-2)
        begin += count
    assert not np.any(got[begin:])


def test_grouped_matmul_refuses():
    with pytest.raises(sardonyx.Error, match="1025 experts; there may be up to 1024"):
        sardonyx.compile(grouped_model(TensorProto.FLOAT, 1025, 4, 4), device="host")
    with pytest.raises(sardonyx.Error, match="ends of float32"):
        sardonyx.compile(grouped_model(TensorProto.FLOAT, 4, 4, 4, TensorProto.FLOAT), device="host")
