"""Operators that draw random numbers: their distributions, seeds, and that runs differ without a seed."""

import numpy as np
import onnx
import sardonyx
from onnx import helper
from operators import model_of

N = 200_000


def run(op, attributes, inputs=(), opset=22, outputs=1, runs=1):
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    model = sardonyx.compile(model_of(op, attributes, inputs, opset, outputs))
    results = [
        list(model.run({f"x{k}": a for k, a in enumerate(inputs) if a is not None}).values()) for _ in range(runs)
    ]
    return results if runs > 1 else results[0]


def within(sample_mean, mean, deviation, count):
    """Six standard errors: fails by chance once in 5e8."""
    assert abs(sample_mean - mean) < 6 * deviation / count**0.5


def test_uniform():
    (y,) = run("RandomUniform", {"shape": [N], "low": -2.0, "high": 4.0, "seed": 1.0})
    assert y.min() >= -2 and y.max() < 4
    within(y.mean(), 1, 6 / 12**0.5, N)
    within((y < -1).mean(), 1 / 6, 0.4, N)
    assert abs(np.corrcoef(y[:-1], y[1:])[0, 1]) < 6 / N**0.5


def test_normal():
    (y,) = run("RandomNormalLike", {"mean": 3.0, "scale": 2.0, "dtype": 1, "seed": 2.0}, [np.zeros((N,), np.int32)])
    within(y.mean(), 3, 2, N)
    within(((y - 3) ** 2).mean(), 4, 4 * 2**0.5, N)
    within((y > 5).mean(), 0.158655, 0.366, N)
    assert np.isfinite(y).all()


def test_bernoulli_and_dropout():
    p = np.full(N, 0.3, np.float32)
    (y,) = run("Bernoulli", {"dtype": 9}, [p])
    assert y.dtype == bool
    within(y.mean(), 0.3, 0.46, N)
    x = np.ones(N, np.float32)
    y, mask = run("Dropout", {"seed": 5}, [x, np.float32(0.25), np.array(True)], outputs=2)
    within(mask.mean(), 0.75, 0.44, N)
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    y, mask = run("Dropout", {}, [x, np.float32(0.25), np.array(False)], outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.all()
    for opset in (7, 10, 12):
        (y,) = run("Dropout", {}, [x], opset)
        np.testing.assert_array_equal(y, x)


def test_multinomial():
    p = np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype(np.float32) + 3
    (y,) = run("Multinomial", {"sample_size": N, "dtype": 7, "seed": 3.0}, [logits])
    assert y.shape == (2, N) and y.dtype == np.int64
    for row, expected in zip(y, p):
        for k, q in enumerate(expected):
            if q:
                within((row == k).mean(), q, (q * (1 - q)) ** 0.5, N)
            else:
                assert not (row == k).any()


def test_a_seed_repeats_and_its_absence_does_not():
    a, b = run("RandomUniform", {"shape": [100], "seed": 7.0}, runs=2)
    np.testing.assert_array_equal(a, b)
    a, b = run("RandomUniform", {"shape": [100]}, runs=2)
    assert not np.array_equal(a, b)


def test_two_nodes_draw_different_numbers():
    nodes = [helper.make_node("RandomUniform", [], [name], shape=[100]) for name in ("a", "b")]
    graph = helper.make_graph(nodes, "g", [], [onnx.ValueInfoProto(name="a"), onnx.ValueInfoProto(name="b")])
    y = sardonyx.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])).run({})
    assert not np.array_equal(y["a"], y["b"])


def test_a_number_used_twice_is_the_same():
    nodes = [
        helper.make_node("RandomUniform", [], ["r"], shape=[100]),
        helper.make_node("Neg", ["r"], ["a"]),
        helper.make_node("Add", ["r", "a"], ["b"]),
    ]
    graph = helper.make_graph(nodes, "g", [], [onnx.ValueInfoProto(name="b"), onnx.ValueInfoProto(name="r")])
    y = sardonyx.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])).run({})
    assert (y["b"] == 0).all() and y["r"].std() > 0.2
