"""Attention as models write it: transposed softmaxes, both directions from one product, sinks in a column, maxima that are subtracted
first. It is recognised, and its values are NumPy's."""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

B, H, S, T, D = 2, 3, 12, 20, 16
SCALE = D**-0.5
DEVICES = ["host", "sim:gfx942", "sim:gfx1100"]
#: Nodes from the scaled scores "s" [B, H, S, T] and values to "y", with the values' shape and the result.
FORMS = {
    "values times the transposed softmax": (
        ["p = Softmax <axis = -1> (s)", "r = Transpose <perm = [0, 1, 3, 2]> (p)", "y = MatMul (v, r)"],
        (B, H, D, T),
        lambda s, v, sink: softmax(s) @ v.swapaxes(2, 3),
    ),
    "softmax over the rows": (
        ["r = Transpose <perm = [0, 1, 3, 2]> (s)", "p = Softmax <axis = -1> (r)", "y = MatMul (p, v)"],
        (B, H, S, D),
        lambda s, v, sink: softmax(s.swapaxes(2, 3)) @ v,
    ),
    "less the maximum": (
        ["m = ReduceMax <axes = [-1]> (s)", "r = Sub (s, m)", "p = Softmax <axis = -1> (r)", "y = MatMul (p, v)"],
        (B, H, T, D),
        lambda s, v, sink: softmax(s) @ v,
    ),
    "a sink in a further column": (
        [
            "c = Expand (sink, shape)",
            "w = Concat <axis = -1> (s, c)",
            "m = ReduceMax <axes = [-1]> (w)",
            "r = Sub (w, m)",
            "a = Softmax <axis = -1> (r)",
            "p = Slice (a, zero, last, axis)",
            "y = MatMul (p, v)",
        ],
        (B, H, T, D),
        lambda s, v, sink: softmax(np.concatenate([s, np.broadcast_to(sink, (B, H, S, 1))], -1))[..., :-1] @ v,
    ),
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def model(nodes, shape):
    text = "; ".join(["u = Transpose <perm = [0, 1, 3, 2]> (k)", "z = MatMul (q, u)", "s = Mul (z, scale)", *nodes])
    tensor = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
    graph = onnx.parser.parse_graph(f"g (float[{B}, {H}, {S}, {D}] q, float[{B}, {H}, {T}, {D}] k, float[{', '.join(map(str, shape))}] v, float[1, {H}, 1, 1] sink) => (float y) {{ {text.replace('; ', chr(10))} }}")  # fmt: skip
    values = {"scale": np.float32(SCALE), "shape": [B, H, S, 1], "zero": [0], "last": [-1], "axis": [-1]}
    graph.initializer.extend(tensor(name, value) for name, value in values.items())
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", FORMS)
def test_values(form, device):
    nodes, shape, expected = FORMS[form]
    r = np.random.default_rng(0)
    feed = {n: r.standard_normal(x).astype(np.float32) for n, x in {"q": (B, H, S, D), "k": (B, H, T, D), "v": shape, "sink": (1, H, 1, 1)}.items()}  # fmt: skip
    m = sardonyx.compile(model(nodes, shape), device=device)
    assert [k.kind for k in m.kernels()].count("tile") == 1, m.kernels()
    got = m.run({n: feed[n] for n in (i.name for i in m.inputs)})["y"]
    want = expected(feed["q"].astype(np.float64) @ feed["k"].swapaxes(2, 3) * SCALE, feed["v"], feed["sink"])
    np.testing.assert_allclose(got, want if got.shape == want.shape else want.swapaxes(2, 3), rtol=0, atol=2e-6)
