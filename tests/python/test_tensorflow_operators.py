"""TensorFlow's operators beside TensorFlow's CPU, each in a function of its own (tensorflow_cases.py)."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed (pip install sardonyx[tensorflow])")
pytest.importorskip("tf2onnx", reason="tf2onnx is not installed (pip install sardonyx[tensorflow])")

import sardonyx  # noqa: E402
from tensorflow_cases import REFUSED, cases  # noqa: E402

CASES = {c.name: c for c in cases()}
#: Of the largest value: float32 sums in another order, and functions of TensorFlow's that err by some units of their last place.
TOLERANCE = 1e-5
SIZE = 3  #: of dims that vary


def value(given, number):
    if isinstance(given, np.ndarray):
        return given
    random = np.random.default_rng(number)
    return random.standard_normal([SIZE if n is None else n for n in given]).astype(np.float32)


def close(got, want):
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    scale = max(1.0, float(np.abs(want[finite]).max(initial=0)))
    assert np.abs(got[finite].astype(np.float64) - want[finite]).max(initial=0) <= TOLERANCE * scale


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    case = CASES[name]
    specs = [
        tf.TensorSpec(x.shape, x.dtype) if isinstance(x, np.ndarray) else tf.TensorSpec(x, tf.float32)
        for x in case.inputs
    ]
    function = tf.function(case.function, input_signature=specs)
    inputs = [value(x, k) for k, x in enumerate(case.inputs)]
    if name in REFUSED:
        with pytest.raises(sardonyx.UnsupportedError, match=REFUSED[name]):
            sardonyx.compile(function)
        return
    want = [x.numpy() for x in tf.nest.flatten(function(*inputs))]
    model = sardonyx.compile(function)
    got = model.run({i.name: x for i, x in zip(model.inputs, inputs, strict=True)})
    for ours, theirs in zip(got.values(), want, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("function", [tf.math.log1p, tf.math.expm1])
def test_small_values_keep_their_digits(function):
    x = np.array([1e-20, -1e-8, 3e-7, 0.0, 1e-3, 80.0, np.inf], np.float32)
    model = sardonyx.compile(tf.function(function, input_signature=[tf.TensorSpec([None], tf.float32)]))
    (got,) = model.run({model.inputs[0].name: x}).values()
    # Exact to some units of float32's last place, relative to each value.
    np.testing.assert_allclose(got, getattr(np, function.__name__)(x.astype(np.float64)).astype(np.float32), rtol=1e-6)


def test_a_range_that_is_computed_is_refused():
    function = lambda x: tf.quantization.fake_quant_with_min_max_vars(x, tf.reduce_min(x), 1.0)
    with pytest.raises(sardonyx.UnsupportedError, match="not a constant"):
        sardonyx.compile(tf.function(function, input_signature=[tf.TensorSpec([3], tf.float32)]))
