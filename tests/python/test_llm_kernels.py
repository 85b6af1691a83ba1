"""Compiled decoders on GPUs: few kernels, no copies of KV caches, only the logits that are used."""

import json

import llm_models
import numpy as np
import onnx
import pytest
import sardonyx
import simulated
from cli_support import sardonyx as command
from llm_models import Decoder
from onnx import TensorProto, helper, numpy_helper


def written_shapes(path, device):
    """The shapes that its steps write, as lists of text."""
    report = json.loads(command("inspect", path, "--json", "-", "--device", device))
    return [w["shape"] for s in report["program"]["steps"] for w in s["writes"]]


@pytest.mark.parametrize(("rows", "most"), [(1, 5), (5, 9)])
def test_launches_of_a_layer(rows, most):
    """What a run really launches for each further layer: product of queries, keys and values; rotation, appending and attention, which are one
    launch for a single token, as short sequences need no second part; product and sum; the gated product; product and sum. The two norms
    before products are part of these for a single row, and launches of their own for more."""
    counts = []
    for layers in (1, 2):
        d = Decoder(layers=layers, dtype=np.float16)
        # Without captured graphs, whose launches are not counted.
        model = sardonyx.compile(llm_models.model(d), device="sim:gfx942", graphs=False)
        past = np.zeros((1, d.kv_heads, 3, d.head_size), np.float16)
        feed = {i.name: past for i in model.inputs if i.name.startswith("past")}
        feed |= {"input_ids": np.ones((1, rows), np.int64), "attention_mask": np.ones((1, 3 + rows), np.int64)}
        model.run(feed)
        before = simulated.launches()
        model.run(feed)
        counts.append(simulated.launches() - before)
    assert counts[1] - counts[0] <= most, counts


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize(("kv_heads", "head", "dtype"), [(2, 16, np.float16), (4, 64, np.float32), (1, 64, np.float16)])
@pytest.mark.slow(part=3)
def test_a_step_of_one_token(device, kv_heads, head, dtype):
    """Rotation, appending and attention in one kernel: with keys of one or several workgroups, the cache where it was or elsewhere, a
    sequence that has just begun; and its numbers are the host's."""
    decoder = Decoder(layers=1, heads=4, kv_heads=kv_heads, head_size=head, dtype=dtype, positions=512, packed=True)
    model = llm_models.model(decoder)
    programs = {d: sardonyx.compile(model, device=d) for d in ("host", device)}
    steps = [k.name for k in programs[device].kernels() if "GroupQueryAttention" in " ".join(k.nodes)]
    assert len(steps) >= 6, steps  # rotation, appending, attention in its forms, and the two for one token
    rng = np.random.default_rng(0)
    for lengths, room in (([300, 1], 320), ([5, 20, 7], 64)):
        batch = len(lengths)
        mask = (np.arange(room) < np.array(lengths)[:, None]).astype(np.int64)
        feed = {"input_ids": rng.integers(0, decoder.vocab, (batch, 1)), "attention_mask": mask}
        for half in ("key", "value"):
            past = rng.standard_normal((batch, kv_heads, room, head)).astype(dtype)
            for b, count in enumerate(lengths):  # what is not there yet may be anything
                past[b, :, count - 1 :] = np.nan
            feed[f"past_key_values.0.{half}"] = past
        got, want = (programs[d](feed) for d in (device, "host"))
        # Of the greatest value. About eight values on the way to the logits are kept in float16, each rounded by 2^-11 of itself at most, and the
        # host rounds some of them elsewhere. In float32, sums of up to 300 terms are taken in another order: 300 * 2^-24.
        tolerance = 8 * 2.0**-11 if dtype == np.float16 else 300 * 2.0**-24
        np.testing.assert_allclose(got["logits"], want["logits"], atol=tolerance * np.abs(want["logits"]).max())
        for half in ("key", "value"):
            for b, count in enumerate(lengths):
                have, wanted = (x[f"present.0.{half}"][b, :, :count] for x in (got, want))
                np.testing.assert_allclose(have, wanted, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize("packed", [False, True])
def test_the_cache_is_read_and_written_where_it_is(tmp_path, packed):
    path = tmp_path / "m.onnx"
    onnx.save(llm_models.model(Decoder(layers=1, packed=packed)), path)
    for device in ("host", "sim:gfx942"):
        # Two heads, and as many rows as there are tokens, whatever they are called.
        caches = [w for w in written_shapes(path, device) if len(w) == 4 and w[1] == "2" and "total" in w[2]]
        times = 2 if device == "host" else 4  # by two launches, of which one runs
        assert caches == [["batch_size", "2", "max(total_sequence_length, past_sequence_length)", "16"]] * times


def last_logits(last):
    """x @ W, then the row of the last token as exporters spell it."""
    ints = {"one": [1], "minus": [-1], "end": [np.iinfo(np.int64).max], "index": -1}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["all"])]
    nodes += {
        "gather": [helper.make_node("Gather", ["all", "index"], ["y"], axis=1)],
        "slice": [helper.make_node("Slice", ["all", "minus", "end", "one"], ["y"])],
        "cast": [
            helper.make_node("Cast", ["all"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Slice", ["wide", "minus", "end", "one"], ["y"]),
        ],
    }[last]
    kind = np.float16 if last == "cast" else np.float32
    w = np.random.default_rng(0).standard_normal((64, 96)).astype(kind)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), ["b", "s", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in ints.items()]
        + [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), w


@pytest.mark.parametrize("device", ["host", "sim:gfx1100"])
@pytest.mark.parametrize("last", ["gather", "slice", "cast"])
def test_only_the_last_tokens_logits_are_computed(tmp_path, last, device):
    model, w = last_logits(last)
    onnx.save(model, tmp_path / "m.onnx")
    written = written_shapes(tmp_path / "m.onnx", device)
    assert written
    assert ["b", "s", "96"] not in written, written
    x = np.random.default_rng(1).standard_normal((2, 5, 64)).astype(w.dtype)
    program = sardonyx.compile(model, device=device)
    if last != "gather":  # which has no last row then
        assert program(x=x[:, :0])["y"].shape == (2, 0, 96)
    got = program(x=x)["y"].reshape(2, 96)
    want = x[:, -1].astype(np.float64) @ w.astype(np.float64)
    # Sums of 64 terms; in 16 bits they are rounded at the end.
    np.testing.assert_allclose(got, want, rtol=2e-3 if last == "cast" else 1e-5, atol=2e-2 if last == "cast" else 1e-4)
