"""Recurrent layers on the host: sequences of a batch are computed side by side, with the results that each has alone."""

import numpy as np
import onnx.parser
import pytest
import sardonyx

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(kind, attributes, inputs, hidden, dtype="float"):
    gates, rng = GATES[kind], np.random.default_rng(0)
    numbers = np.float32 if dtype == "float" else np.float64
    weights = {
        "w": rng.standard_normal((2, gates * hidden, inputs)) / np.sqrt(inputs),
        "r": rng.standard_normal((2, gates * hidden, hidden)) / np.sqrt(hidden),
        "bias": rng.standard_normal((2, 2 * gates * hidden)),
    }
    last = ", last_c" if kind == "LSTM" else ""
    peepholes = ", , , peepholes" if kind == "LSTM" else ""
    if kind == "LSTM":
        weights["peepholes"] = rng.standard_normal((2, 3 * hidden))
    model = onnx.parser.parse_model(f"""
      <ir_version: 8, opset_import: ["" : 18]>
      g ({dtype}[steps, batch, {inputs}] x, int32[batch] lengths) => ({dtype}[steps, 2, batch, {hidden}] y, {dtype}[2, batch, {hidden}] last) {{
        y, last{last} = {kind} <hidden_size = {hidden}, direction = "bidirectional"{attributes}> (x, w, r, bias, lengths{peepholes})
      }}""")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v.astype(numbers), k) for k, v in weights.items())
    return model, numbers


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("hidden", [20, 70, 128])
@pytest.mark.parametrize(
    "kind, attributes",
    [("RNN", ""), ("GRU", ""), ("GRU", ", linear_before_reset = 1"), ("LSTM", ""), ("LSTM", ", input_forget = 1")],
)
def test_batches_are_as_their_sequences(kind, attributes, hidden, dtype, threads):
    model, numbers = layer(kind, attributes, 12, hidden, dtype)
    compiled, one = sardonyx.compile(model, threads=threads), sardonyx.compile(model, threads=1)
    x = np.random.default_rng(1).standard_normal((7, 9, 12)).astype(numbers)
    lengths = np.array([7, 1, 4, 0, 7, 7, 2, 5, 6], np.int32)
    for batch in (2, 5, 9):
        got = compiled(x=x[:, :batch], lengths=lengths[:batch])
        assert np.array_equal(got["y"], one(x=x[:, :batch], lengths=lengths[:batch])["y"])
        for b in range(batch):
            alone = compiled(x=x[:, b : b + 1], lengths=lengths[b : b + 1])
            np.testing.assert_allclose(got["y"][:, :, b], alone["y"][:, :, 0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(got["last"][:, b], alone["last"][:, 0], rtol=1e-4, atol=1e-5)


# Its recurrent weights are in panels too, so that sums have the same order.
@pytest.mark.parametrize(
    "kind, attributes", [("RNN", ""), ("GRU", ""), ("GRU", ", linear_before_reset = 1"), ("LSTM", "")]
)
@pytest.mark.parametrize("hidden", [20, 128])
def test_a_long_sequence_alone_is_as_in_a_batch(kind, attributes, hidden):
    model, numbers = layer(kind, attributes, 12, hidden)
    compiled = sardonyx.compile(model, threads=1)
    x = np.random.default_rng(1).standard_normal((16, 2, 12)).astype(numbers)
    both, alone = (compiled(x=x[:, :n], lengths=np.full(n, 16, np.int32)) for n in (2, 1))
    assert np.array_equal(both["y"][:, :, :1], alone["y"])
