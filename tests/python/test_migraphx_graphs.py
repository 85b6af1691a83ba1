"""Graphs that programs build through sardonyx.migraphx, which calls the C interface: operators, modules, refusals."""

import ctypes
import math

import numpy as np
import pytest
import sardonyx.migraphx as mgx

rng = np.random.default_rng(3)
X = rng.uniform(0.2, 0.9, (2, 3)).astype(np.float32)
Y = rng.uniform(0.2, 0.9, (2, 3)).astype(np.float32)
N = np.array([[7, -7, 5], [3, 4, -9]], np.int32)
J = np.array([[3, 3, -2], [2, 4, 4]], np.int32)
B = np.array([[True, False, True], [False, False, True]])
C = np.array([[True, True, False], [False, True, True]])
V = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = rng.standard_normal((1, 2, 5, 5)).astype(np.float32)
FILTER = rng.standard_normal((3, 2, 3, 3)).astype(np.float32)
BYTES = rng.integers(-9, 9, (2, 4)).astype(np.int8)
BYTES2 = rng.integers(-9, 9, (4, 3)).astype(np.int8)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def windows(x, k):
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))


def convolved(x, w):
    return np.einsum("nchwij,ocij->nohw", windows(x, w.shape[2]), w)


# An operator, its attributes, its inputs, the result.
CASES = [
    ("abs", {}, [-X], X),
    ("acos", {}, [X], np.arccos(X)),
    ("acosh", {}, [X + 1], np.arccosh(X + 1)),
    ("add", {}, [X, Y], X + Y),
    ("asin", {}, [X], np.arcsin(X)),
    ("asinh", {}, [X], np.arcsinh(X)),
    ("atan", {}, [X], np.arctan(X)),
    ("atanh", {}, [X], np.arctanh(X)),
    ("bitwise_and", {}, [N, J], N & J),
    ("ceil", {}, [X], np.ceil(X)),
    ("clip", {}, [X, Y * 0 + 0.4, Y * 0 + 0.6], np.clip(X, 0.4, 0.6)),
    ("contiguous", {}, [X], X),
    ("convert", {"target_type": "int32_type"}, [X * 9], (X * 9).astype(np.int32)),
    ("convert", {"target_type": int(mgx.shape.type_t.double_type)}, [X], X.astype(np.float64)),
    ("cos", {}, [X], np.cos(X)),
    ("cosh", {}, [X], np.cosh(X)),
    ("dequantizelinear", {}, [N.astype(np.int8), X, J.astype(np.int8)], (N - J) * X),
    ("div", {}, [X, Y], X / Y),
    ("div", {}, [N, J], np.trunc(N / J).astype(np.int32)),
    ("elu", {"alpha": 0.5}, [-X], 0.5 * (np.exp(-X) - 1)),
    ("equal", {}, [N, J], (N == J).astype(np.int32)),
    ("erf", {}, [X], np.vectorize(math.erf)(X)),
    ("exp", {}, [X], np.exp(X)),
    ("floor", {}, [X * 9], np.floor(X * 9)),
    ("fmod", {}, [N, J], np.fmod(N, J)),
    ("greater", {}, [N, J], (N > J).astype(np.int32)),
    ("identity", {}, [X], X),
    ("isinf", {}, [np.float32([1, np.inf])], np.array([False, True])),
    ("isnan", {}, [np.float32([1, np.nan])], np.array([False, True])),
    ("layout", {"permutation": [1, 0]}, [X], X),
    ("leaky_relu", {"alpha": 0.1}, [-X], -0.1 * X),
    ("less", {}, [N, J], (N < J).astype(np.int32)),
    ("log", {}, [X], np.log(X)),
    ("log2", {}, [X], np.log2(X)),
    ("logical_and", {}, [B, C], B & C),
    ("logical_or", {}, [B, C], B | C),
    ("logical_xor", {}, [B, C], B ^ C),
    ("max", {}, [X, Y], np.maximum(X, Y)),
    ("min", {}, [X, Y], np.minimum(X, Y)),
    ("mod", {}, [N, J], np.mod(N, J)),
    ("mod", {}, [-9 * X, Y], np.mod(-9 * X, Y)),
    ("mul", {}, [X, Y], X * Y),
    ("nearbyint", {}, [np.float32([0.5, 1.5, -2.6])], np.float32([0, 2, -3])),
    ("neg", {}, [X], -X),
    ("not", {}, [B], ~B),
    ("not", {}, [J], (J == 0).astype(np.int32)),
    ("pow", {}, [X, Y], X**Y),
    ("prelu", {}, [-X, Y], -X * Y),
    ("quantizelinear", {}, [X * 9, Y, np.full((2, 3), 100, np.uint8)], np.rint(9 * X / Y) + 100),
    ("quantizelinear", {"out_type": "int8_type"}, [X * -999, Y], np.maximum(np.rint(-999 * X / Y), -128)),
    ("recip", {}, [X], 1 / X),
    ("relu", {}, [X - 0.5], np.maximum(X - 0.5, 0)),
    ("rsqrt", {}, [X], X**-0.5),
    ("sigmoid", {}, [X], 1 / (1 + np.exp(-X))),
    ("sign", {}, [N], np.sign(N)),
    ("sin", {}, [X], np.sin(X)),
    ("sinh", {}, [X], np.sinh(X)),
    ("sqdiff", {}, [X, Y], (X - Y) ** 2),
    ("sqrt", {}, [X], np.sqrt(X)),
    ("sub", {}, [X, Y], X - Y),
    ("tan", {}, [X], np.tan(X)),
    ("tanh", {}, [X], np.tanh(X)),
    ("where", {}, [B, X, Y], np.where(B, X, Y)),
    ("broadcast", {"axis": 1, "out_lens": [2, 3, 4]}, [X[0]], np.broadcast_to(X[0][:, None], (2, 3, 4))),
    ("broadcast", {"axis": 0}, [X[0, :2], X], np.broadcast_to(X[0, :2][:, None], (2, 3))),
    ("broadcast_for_dot", {}, [X, V], np.broadcast_to(X, (2, 2, 3))),
    ("concat", {"axis": 1}, [X, Y], np.concatenate([X, Y], 1)),
    ("dimensions_of", {"start": 1, "end": 3}, [V], np.array([3, 4])),
    ("fill", {}, [np.float32([7]), X], np.full((2, 3), 7, np.float32)),
    ("flatten", {"axis": 2}, [V], V.reshape(6, 4)),
    ("multibroadcast", {"out_lens": [4, 2, 3]}, [X], np.broadcast_to(X, (4, 2, 3))),
    ("multibroadcast", {}, [X[:1], Y], np.broadcast_to(X[:1], (2, 3))),
    ("pad", {"pads": [0, 1, 1, 0], "value": 2.5}, [X], np.pad(X, ((0, 1), (1, 0)), constant_values=2.5)),
    ("pad", {"pads": [0, 1, 0, 1], "mode": "reflect_pad"}, [X], np.pad(X, ((0, 0), (1, 1)), mode="reflect")),
    ("reshape", {"dims": [3, -1]}, [V], V.reshape(3, 8)),
    ("reverse", {"axes": [1]}, [X], X[:, ::-1]),
    ("scalar", {"scalar_bcst_dims": [2, 2]}, [np.float32([4])], np.full((2, 2), 4, np.float32)),
    ("slice", {"axes": [0, 2], "starts": [1, -3], "ends": [2, -1]}, [V], V[1:2, :, -3:-1]),
    ("squeeze", {"axes": [1]}, [V[:, :1]], V[:, 0]),
    ("step", {"axes": [2], "steps": [2]}, [V], V[:, :, ::2]),
    ("transpose", {"permutation": [2, 0, 1]}, [V], V.transpose(2, 0, 1)),
    ("unsqueeze", {"axes": [0, 2]}, [X], X[None, :, None]),
    ("unsqueeze", {"axes": [2], "steps": [2]}, [V], V.reshape(2, 3, 2, 2)),
    ("argmax", {"axis": 1}, [X], X.argmax(1)[:, None]),
    ("argmin", {"axis": 0}, [X], X.argmin(0)[None]),
    ("gather", {"axis": 1}, [X, np.array([2, 0])], X[:, [2, 0]]),
    ("gathernd", {}, [V, np.array([[1, 2], [0, 1]])], V[[1, 0], [2, 1]]),
    ("logsoftmax", {"axis": 1}, [X], np.log(softmax(X))),
    ("nonzero", {}, [J - 4], np.array([[0, 0, 0, 1, 0, 0], [0, 1, 2, 0, 0, 0]])),
    ("onehot", {"depth": 3}, [np.array([2, 0]), np.float32([0, 5])], np.float32([[0, 0, 5], [5, 0, 0]])),
    ("prefix_scan_sum", {"axis": 1}, [X], X.cumsum(1)),
    ("prefix_scan_sum", {"axis": 1, "exclusive": True, "reverse": True}, [N], N[:, ::-1].cumsum(1)[:, ::-1] - N),
    ("reduce_all", {"axes": [1]}, [B], B.all(1, keepdims=True)),
    ("reduce_any", {"axes": [1]}, [B], B.any(1, keepdims=True)),
    ("reduce_max", {"axes": [0]}, [X], X.max(0, keepdims=True)),
    ("reduce_mean", {"axes": [0, 2]}, [V], V.mean((0, 2), keepdims=True)),
    ("reduce_min", {"axes": [-1]}, [X], X.min(1, keepdims=True)),
    ("reduce_prod", {"axes": [1]}, [X], X.prod(1, keepdims=True)),
    ("reduce_sum", {"axes": [1]}, [X], X.sum(1, keepdims=True)),
    ("scatter_add", {"axis": 1}, [X, np.array([[0, 2], [1, 1]]), Y[:, :2]], None),
    ("scatter_max", {"axis": 1}, [X, np.array([[0], [2]]), Y[:, :1] + 1], None),
    ("scatter_min", {"axis": 1}, [X, np.array([[0], [2]]), Y[:, :1] - 1], None),
    ("scatter_mul", {"axis": 1}, [X, np.array([[0], [2]]), Y[:, :1]], None),
    ("scatter_none", {"axis": 1}, [X, np.array([[0], [2]]), Y[:, :1]], None),
    ("scatternd_add", {}, [X, np.array([[1]]), Y[:1]], np.stack([X[0], X[1] + Y[0]])),
    ("scatternd_max", {}, [X, np.array([[1]]), Y[:1]], np.stack([X[0], np.maximum(X[1], Y[0])])),
    ("scatternd_min", {}, [X, np.array([[1]]), Y[:1]], np.stack([X[0], np.minimum(X[1], Y[0])])),
    ("scatternd_mul", {}, [X, np.array([[1]]), Y[:1]], np.stack([X[0], X[1] * Y[0]])),
    ("reshape_lazy", {"dims": [6, 4]}, [V], V.reshape(6, 4)),
    ("scatternd_none", {}, [V, np.array([[1]]), V[:1] * 2], np.concatenate([V[:1], V[:1] * 2])),
    ("softmax", {"axis": 1}, [X], softmax(X)),
    ("convolution", {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1]}, [IMAGE, FILTER], None),
    ("convolution", {}, [IMAGE, FILTER], convolved(IMAGE, FILTER)),
    ("convolution_backwards", {"stride": [2, 2]}, [IMAGE[:, :, :2, :2], FILTER.transpose(1, 0, 2, 3)], None),
    ("dot", {}, [V[:, :, :3], V], V[:, :, :3] @ V),
    ("lrn", {"size": 1, "alpha": 0.5}, [IMAGE], IMAGE / (1 + 0.5 * IMAGE**2) ** 0.75),
    ("pooling", {"mode": "max", "lengths": [2, 2]}, [IMAGE], windows(IMAGE, 2).max((4, 5))),
    ("pooling", {"mode": mgx.op.pooling_mode.average, "lengths": [3, 3]}, [IMAGE], windows(IMAGE, 3).mean((4, 5))),
    ("pooling", {"mode": "lpnorm", "lengths": [2, 2]}, [IMAGE], np.sqrt((windows(IMAGE, 2) ** 2).sum((4, 5)))),
    ("pooling", {"mode": "max", "dyn_global": True}, [IMAGE], IMAGE.max((2, 3), keepdims=True)),
    ("quant_convolution", {}, [BYTES[:, :, None], BYTES2.T[:, :, None][:, :4]], None),
    ("quant_dot", {}, [BYTES, BYTES2], BYTES.astype(np.int32) @ BYTES2.astype(np.int32)),
    ("resize", {"sizes": [1, 2, 10, 10], "coordinate_transformation_mode": "asymmetric"}, [IMAGE], None),
]
SCATTERED = X.copy()
for row, column, k in [(0, 0, 0), (0, 2, 1), (1, 1, 0), (1, 1, 1)]:
    SCATTERED[row, column] += Y[row, k]


def scattered(update):
    out = X.copy()
    for row, column in [(0, 0), (1, 2)]:
        out[row, column] = update(X[row, column], Y[row, 0])
    return out


EXPECTED = {
    "scatter_max": scattered(lambda x, y: y + 1),
    "scatter_min": scattered(lambda x, y: y - 1),
    "scatter_mul": scattered(lambda x, y: x * y),
    "scatter_none": scattered(lambda x, y: y),
    "scatter_add": SCATTERED,
    "convolution": convolved(np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1))), FILTER),
    "quant_convolution": np.einsum("ncl,ocl->no", BYTES[:, :, None], BYTES2.T[:, :, None].astype(np.int32))[..., None],
    "resize": IMAGE.repeat(2, 2).repeat(2, 3),
}


def transposed(x, w):
    """A convolution's transpose with stride 2."""
    out = np.zeros((1, 3, 5, 5), np.float32)
    for i in range(2):
        for j in range(2):
            out[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum("nc,cohw->nohw", x[:, :, i, j], w)
    return out


EXPECTED["convolution_backwards"] = transposed(IMAGE[:, :, :2, :2], FILTER.transpose(1, 0, 2, 3))


def test_operators_compute_what_migraphx_says():
    """One program with all of them, because compiling is what takes time."""
    p = mgx.program()
    main = p.get_main_module()
    params, results, wanted = {}, [], []
    for name, attributes, inputs, want in CASES:
        values = []
        for array in inputs:
            key = f"p{len(params)}"
            array = np.ascontiguousarray(array)
            values.append(main.add_parameter(key, mgx.argument(array).get_shape()))
            params[key] = array
        made = main.add_instruction(mgx.op(name, **attributes), values)
        want = np.asarray(EXPECTED[name] if want is None else want)
        assert made.shape().lens() == list(want.shape), name
        results.append(made)
        wanted.append((name, want))
    main.add_return(results)
    p.compile(mgx.get_target("ref"))
    for (name, want), got in zip(wanted, p.run(params), strict=True):
        # float32, whose functions are a few units in the last place off
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-6, err_msg=name)
    seen = {name for name, *_ in CASES}
    assert len(seen) > 90 and seen <= set(mgx.graphs.operators())


def test_tuples():
    p = mgx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", mgx.shape(lens=[2, 3]))
    top = main.add_instruction(mgx.op("topk", k=2, axis=1, largest=True), [x])
    assert top.shape().type_string() == "tuple_type"
    with pytest.raises(RuntimeError, match="'topk' are a tuple; get_tuple_elem"):
        main.add_instruction(mgx.op("relu"), [top])
    with pytest.raises(RuntimeError, match="2 results, no number 2"):
        main.add_instruction(mgx.op("get_tuple_elem", index=2), [top])
    parts = [main.add_instruction(mgx.op("get_tuple_elem", index=k), [top]) for k in (0, 1)]
    main.add_return(parts)
    p.compile(mgx.get_target("cpu"))
    values, indices = p.run({"x": X})
    assert np.array_equal(np.asarray(values), -np.sort(-X, 1)[:, :2])
    assert np.array_equal(np.asarray(indices), np.argsort(-X, 1)[:, :2])


def test_recurrent_layers_and_missing_inputs():
    p = mgx.program()
    main = p.get_main_module()
    sizes = {"x": [3, 1, 4], "w": [1, 20, 4], "r": [1, 20, 5], "h": [1, 1, 5]}
    arrays = {k: rng.standard_normal(v).astype(np.float32) for k, v in sizes.items()}
    x, w, r, h = (main.add_parameter(k, mgx.shape(lens=v)) for k, v in sizes.items())
    none = main.add_instruction(mgx.op("undefined"), [])
    states = main.add_instruction(mgx.op("lstm", hidden_size=5), [x, w, r, none, none, h])
    last = main.add_instruction(mgx.op("rnn_last_hs_output"), [states])
    cell = main.add_instruction(mgx.op("rnn_last_cell_output"), [states])
    assert states.shape().lens() == [3, 1, 1, 5] and last.shape().lens() == [1, 1, 5]
    main.add_return([states, last, cell])
    p.compile(mgx.get_target("ref"))
    a, b, c = (np.asarray(v) for v in p.run(arrays))

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    state, memory = arrays["h"][0, 0], np.zeros(5, np.float32)
    for step in range(3):
        i, o, f, g = np.split(arrays["w"][0] @ arrays["x"][step, 0] + arrays["r"][0] @ state, 4)
        memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(memory)
    np.testing.assert_allclose(a[-1, 0, 0], state, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(b[0, 0], state, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c[0, 0], memory, rtol=1e-4, atol=1e-5)


def test_simple_recurrent_layers():
    p = mgx.program()
    main = p.get_main_module()
    arrays, results = {}, []
    for name, gates in [("rnn", 1), ("gru", 3)]:
        sizes = {"x": [3, 1, 4], "w": [2, 5 * gates, 4], "r": [2, 5 * gates, 5]}
        made = {f"{name}_{k}": rng.standard_normal(v).astype(np.float32) for k, v in sizes.items()}
        values = [main.add_parameter(k, mgx.argument(v).get_shape()) for k, v in made.items()]
        direction = mgx.op.rnn_direction.bidirectional
        states = main.add_instruction(mgx.op(name, hidden_size=5, direction=direction), values)
        results += [states, main.add_instruction(mgx.op("rnn_var_sl_last_output"), [states])]
        arrays |= made
    main.add_return(results)
    p.compile(mgx.get_target("ref"))
    rnn, rnn_last, gru, gru_last = (np.asarray(v) for v in p.run(arrays))
    state = np.zeros(5, np.float32)
    for step in range(3):
        state = np.tanh(arrays["rnn_w"][0] @ arrays["rnn_x"][step, 0] + arrays["rnn_r"][0] @ state)
    np.testing.assert_allclose(rnn[-1, 0, 0], state, rtol=1e-4, atol=1e-5)
    # The last state is that of the last step, and in the other direction that of the first.
    for states, last in [(rnn, rnn_last), (gru, gru_last)]:
        np.testing.assert_allclose(last, np.stack([states[-1, 0], states[0, 1]]), rtol=1e-5, atol=1e-6)


def test_results_whose_size_depends_on_data():
    p = mgx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", mgx.shape(type="int64", lens=[5]))
    dims = main.add_literal(np.array([2, 5]))
    wide = main.add_instruction(mgx.op("broadcast_with_dims"), [x, dims])
    unique = main.add_instruction(mgx.op("unique"), [x])
    main.add_return([wide, main.add_instruction(mgx.op("get_tuple_elem", index=0), [unique])])
    p.compile(mgx.get_target("ref"))
    values = np.array([4, 1, 4, 2, 1])
    wide, unique = p.run({"x": values})
    assert np.asarray(wide).tolist() == [values.tolist()] * 2 and unique.tolist() == [1, 2, 4]


def test_modules():
    """A loop, in whose body a condition chooses."""
    p = mgx.program()
    main = p.get_main_module()
    one, scalar = mgx.shape(lens=[1]), {"lens": [1], "strides": [0]}
    count = main.add_parameter("count", mgx.shape(type="int64", **scalar))
    start = main.add_parameter("start", one)
    go = main.add_literal(mgx.fill_argument(mgx.shape(type="bool", **scalar), True))
    big = main.add_literal(mgx.fill_argument(one, 100))

    body = p.create_module("body")
    body.add_parameter("iteration", mgx.shape(type="int64", **scalar))
    condition = body.add_parameter("condition", mgx.shape(type="bool", **scalar))
    value = body.add_parameter("value", one)
    less = body.add_instruction(mgx.op("less"), [value, big])
    less = body.add_instruction(mgx.op("convert", target_type="bool_type"), [less])
    branches = []
    for name in ("then", "else"):
        branch = p.create_module(name)
        made = branch.add_instruction(mgx.op("add" if name == "then" else "sub"), [value, value])
        branch.add_return([made])
        branches.append(branch)
    chosen = body.add_instruction(mgx.op("if"), [less], branches)
    chosen = body.add_instruction(mgx.op("get_tuple_elem", index=0), [chosen])
    body.add_return([condition, chosen, chosen])

    looped = main.add_instruction(mgx.op("loop", max_iterations=8), [count, go, start], [body])
    main.add_return([main.add_instruction(mgx.op("get_tuple_elem", index=k), [looped]) for k in (0, 1)])
    assert 'module: "body"' in repr(p) and "= loop[max_iterations=8](count,@2,start), [body]" in repr(p)
    with pytest.raises(RuntimeError, match="an instruction uses the module 'body' already"):
        body.add_instruction(mgx.op("relu"), [value])
    p.compile(mgx.get_target("ref"))
    last, all = p.run({"count": np.array([8]), "start": np.float32([1])})
    assert last.tolist() == [0] and all.tolist() == [2, 4, 8, 16, 32, 64, 128, 0]


def test_dynamic_dims():
    p = mgx.program()
    main = p.get_main_module()
    x = main.add_parameter(
        "x", mgx.shape(dyn_dims=[mgx.shape.dynamic_dimension(1, 6), mgx.shape.dynamic_dimension(3, 3)])
    )
    w = main.add_literal(X.T.copy())
    y = main.add_instruction(mgx.op("relu"), [main.add_instruction(mgx.op("dot"), [x, w])])
    assert y.shape().dyn_dims() == [mgx.shape.dynamic_dimension(1, 6), mgx.shape.dynamic_dimension(2, 2)]
    main.add_return([y])
    p.compile(mgx.get_target("ref"))
    for n in (2, 5):
        a = rng.standard_normal((n, 3)).astype(np.float32)
        np.testing.assert_allclose(np.asarray(p.run({"x": a})[0]), np.maximum(a @ X.T, 0), rtol=1e-5, atol=1e-6)


def test_refusals():
    p, other = mgx.program(), mgx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", mgx.shape(lens=[2, 3]))
    y = main.add_parameter("y", mgx.shape(lens=[3, 2]))
    foreign = other.get_main_module().add_parameter("x", mgx.shape(lens=[2, 3]))
    for why, what in [
        ("the operator 'hip::copy' can't be added to a graph", lambda: mgx.op("hip::copy")),
        ("the operator reshape has no attribute 'dim'; it has dims", lambda: mgx.op("reshape", dim=[1])),
        ("'add': its inputs need equal shapes, .*multibroadcast", lambda: main.add_instruction(mgx.op("add"), [x, y])),
        ("'add': 1 inputs instead of 2", lambda: main.add_instruction(mgx.op("add"), [x])),
        ("'dot': dims .2, 3. and .2, 3. don't fit", lambda: main.add_instruction(mgx.op("dot"), [x, x])),
        ("operator 'reshape': ", lambda: main.add_instruction(mgx.op("reshape", dims=[7]), [x])),
        ("no list of integers", lambda: main.add_instruction(mgx.op("reshape", dims=["a"]), [x])),
        ("it can be average, max, lpnorm", lambda: main.add_instruction(mgx.op("pooling", mode="sum"), [x])),
        ("'relu' belongs to another program", lambda: main.add_instruction(mgx.op("relu"), [foreign])),
        ("has a parameter .x. already", lambda: main.add_parameter("x", mgx.shape())),
        ("has a module .main. already", lambda: p.create_module("main")),
        ("it needs 1 modules", lambda: main.add_instruction(mgx.op("if"), [x])),
        ("inputs instead of", lambda: main.add_macro(mgx.macro("gemm"), [x])),
        ("'macro:nothing' can't be added", lambda: main.add_macro(mgx.macro("nothing"), [x])),
    ]:
        with pytest.raises(RuntimeError, match=why):
            what()
    main.add_return([x])
    with pytest.raises(RuntimeError, match="has its @return already"):
        main.add_return([y])
    p.compile(mgx.get_target("ref"))
    with pytest.raises(RuntimeError, match="the program is compiled"):
        main.add_instruction(mgx.op("relu"), [x])


def test_listing_and_instructions():
    p = mgx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", mgx.shape(lens=[2, 3]))
    y = main.add_instruction(mgx.op("reshape", dims=[3, 2]), [x])
    z = main.add_literal(X)
    main.add_return([y])
    w = main.add_instruction(mgx.op("mul"), [x, z])  # before the @return
    main.replace_return([w])
    assert [i.name() for i in main] == ["@param", "reshape", "@literal", "mul", "@return"]
    assert repr(p) == (
        'module: "main"\nx = @param:x -> float_type, {2, 3}, {3, 1}\n'
        "@1 = reshape[dims={3, 2}](x) -> float_type, {3, 2}, {2, 1}\n@2 = @literal -> float_type, {2, 3}, {3, 1}\n"
        "@3 = mul(x,@2) -> float_type, {2, 3}, {3, 1}\n@4 = @return(@3)\n"
    )
    assert y.op().values() == {"dims": [3, 2]} and y.inputs() == [x] and x.outputs() == [y, w]
    assert z.get_literal() == mgx.argument(X) and hash(next(iter(main))) == hash(x) and x != y
    again = mgx.load_buffer(mgx.save_buffer(p))
    again.compile(mgx.get_target("ref"))
    np.testing.assert_allclose(np.asarray(again.run({"x": Y})[0]), X * Y, rtol=1e-6)
    assert mgx.op("pooling").values()["lengths"] == [1, 1]


def test_the_c_interface_itself():
    """Attributes in the form of printf, names without quotes; what run_trace shows."""
    from sardonyx.migraphx import library

    made = library.make(
        "operation", "operation_create", b"reduce_sum", b"{axes : [%i, %i]}", ctypes.c_int(0), ctypes.c_int(1)
    )
    name = ctypes.create_string_buffer(8)
    library.call("operation_name", name, ctypes.c_size_t(8), made)
    assert name.value == b"reduce_"
    assert library.text("+operation_values", made, ctypes.c_bool(False)) == '{"axes":[0,1]}'
    for broken in (b"{axes: [0", b"[1]", b"{axes: }", b"{axes: " + b"[" * 100000 + b"]" * 100000 + b"}"):
        with pytest.raises(RuntimeError, match="not a list of names and values"):
            library.make("operation", "operation_create", b"reduce_sum", broken)

    p = mgx.program()
    main = p.get_main_module()
    x = main.add_parameter("x", mgx.shape(lens=[3]))
    total = main.add_instruction(mgx.op("reduce_sum", axes=[0]), [main.add_instruction(mgx.op("neg"), [x])])
    main.add_return([total])
    p.compile(mgx.get_target("ref"))
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def callback(info, data):
        info = library.Handle("", ctypes.c_void_p(info), p)
        value = argument_at(library.borrow("trace_info_get_result", info, owner=p))
        seen.append((library.size("trace_info_get_index", info), library.text("trace_info_get_name", info), value))
        return 0

    def argument_at(handle):
        return mgx.argument._of(handle).tolist()

    params, kept = mgx.programs._parameters({"x": np.float32([1, 2, 4])})
    library.make("arguments", "program_run_trace", p._handle, params, callback, ctypes.c_void_p())
    assert seen == [(0, "@param[parameter=x]", [1, 2, 4]), (1, "neg", [-1, -2, -4]), (2, "reduce_sum[axes={0}]", [-7])]
    del kept
