"""Keras's layers, each as a model of its own, beside TensorFlow's CPU (keras_layers.py)."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed (pip install sardonyx[tensorflow])")
pytest.importorskip("tf2onnx", reason="tf2onnx is not installed (pip install sardonyx[tensorflow])")

import sardonyx  # noqa: E402
from keras_layers import cases, inputs_of, model_of  # noqa: E402

CASES = {c.name: c for c in cases()}
#: Of the largest value: float32 sums in another order, and recurrences that repeat their rounding for each step.
TOLERANCE = 1e-5


#: TensorFlow takes the weights of bicubic interpolation from a table of 1024 positions between two pixels: with positions rounded
#: so, numpy's result is within 4e-7 of TensorFlow's, and 3e-3 without. Sardonyx does not round them.
BICUBIC = 2e-3
REFUSED = {"MelSpectrogram": "RFFT"}  #: which tf2onnx converts for some patterns only


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_layer(name):
    case = CASES[name]
    if name.endswith("Spectrogram"):
        pytest.importorskip("scipy", reason="Keras's layer needs scipy")
    module = model_of(case)
    if name in REFUSED:
        with pytest.raises(sardonyx.UnsupportedError, match=REFUSED[name]):
            sardonyx.compile(module)
        return
    model = sardonyx.compile(module)
    tolerance = BICUBIC if "bicubic" in name else TOLERANCE
    for batch in (1, 3):
        inputs = inputs_of(case, batch)
        want = [
            np.asarray(x) for x in tf.nest.flatten(module(inputs if len(inputs) > 1 else inputs[0], training=False))
        ]
        got = model.run(dict(zip((i.name for i in model.inputs), inputs, strict=True)))
        for ours, theirs in zip(got.values(), want, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            scale = max(1.0, float(np.abs(theirs).max(initial=0)))
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)
