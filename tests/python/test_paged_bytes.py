"""com.sardonyx PagedAttention: pages of int8 and float8 with a scale for each row of a head, compared with NumPy in float64, in place, and in the engine."""

import sys

import llm_models
import ml_dtypes
import numpy as np
import pytest
import sardonyx
import test_paged_attention
from onnx import TensorProto, helper
from sardonyx.llm import Engine
from test_paged_attention import HEADS, KV_HEADS, OPTIONS, ORDER, PAGES, ROWS, SIZE, case, dims

CARDS = [("sim:gfx942", np.float16), ("sim:gfx1100", np.float16), ("sim:gfx942", np.float32)]


STORED = {"int8": np.int8, "fp8": ml_dtypes.float8_e4m3fn}
MOST = {"int8": 127, "fp8": 448}


def quantized_case(option, past, new, dtype, kind):
    values = case(option, past, new, dtype)
    rng = np.random.default_rng(9)
    for name in ("key", "value"):
        values[f"{name}_cache"] = rng.integers(-127, 128, (PAGES, ROWS, KV_HEADS, SIZE)).astype(STORED[kind])
        values[f"{name}_scale"] = rng.uniform(0.005, 0.02, (PAGES, ROWS, KV_HEADS)).astype(np.float32)
    return values


def model_of(option, values, one):
    free = {n: ("pages", *values[n].shape[1:]) for n in ("key_scale", "value_scale")}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), free.get(n) or dims(n, x, one))
        for n, x in values.items()
    ]
    names = [n if n in values else "" for n in (*ORDER, "key_scale", "value_scale")]
    attributes = {n: v for n, v in option.items() if n not in ("packed", "rotated", "slots", "sink", "norms")}
    outputs = ["y", "keys", "values", "key_scales", "value_scales"]
    node = helper.make_node(
        "PagedAttention", names, outputs, domain="com.sardonyx", num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes
    )
    kind = helper.np_dtype_to_tensor_dtype(values["query"].dtype)
    stored = helper.np_dtype_to_tensor_dtype(values["key_cache"].dtype)
    kinds = [kind, stored, stored, TensorProto.FLOAT, TensorProto.FLOAT]
    infos = [helper.make_tensor_value_info(n, t, None) for n, t in zip(outputs, kinds)]
    graph = helper.make_graph([node], "paged", inputs, infos)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.sardonyx", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def reference(option, values, past, new, kind):
    """The output and the caches as numbers."""

    def rounded(x):
        """Rows as the cache keeps them: 8 bits with a scale for each head."""
        scale = np.abs(x).max(-1, keepdims=True) / MOST[kind]
        return (np.round(x / scale) if kind == "int8" else (x / scale).astype(STORED[kind]).astype(np.float64)) * scale

    caches = [
        values[f"{n}_cache"].astype(np.float64) * values[f"{n}_scale"].astype(np.float64)[..., None]
        for n in ("key", "value")
    ]
    return test_paged_attention.reference(option, values, past, new, caches, rounded)


def check(option, past, new, dtype, device, kind):
    values = quantized_case(option, past, new, dtype, kind)
    model = sardonyx.compile(model_of(option, values, len(new) == 1), device=device)
    found = model.run(values)
    caches = [
        found[f"{n}s"].astype(np.float64) * found[f"{n}_scales"].astype(np.float64)[..., None] for n in ("key", "value")
    ]
    # A number between two steps of the scale may be rounded either way: then it differs by a step, in the output by less.
    # float8 has 3 bits after the leading one, so that its steps are up to 1/8 of a number.
    tolerance = 2e-3 if dtype == np.float32 else 1.2e-2
    wanted = reference(option, values, past, new, kind)
    for name, x, y in zip(("y", "keys", "values"), (found["y"].astype(np.float64), *caches), wanted, strict=True):
        if name == "y":
            np.testing.assert_allclose(x, y, atol=tolerance * (1 if kind == "int8" else 4), rtol=tolerance)
            continue
        absolute, relative = (0.04, 0) if kind == "int8" else (0.002, 0.126)
        np.testing.assert_allclose(x, y, atol=tolerance + absolute, rtol=tolerance + relative, err_msg=name)
        # Hardly any is.
        assert (np.abs(x - y) > tolerance * (1 + np.abs(y))).mean() < 0.02, name
    return model, values, found


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("option", OPTIONS)
def test_host(option, kind):
    check(OPTIONS[option], [9, 0, 20], [1, 5, 3], np.float32, "host", kind)
    check(OPTIONS[option], [11], [9], np.float32, "host", kind)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("device, dtype", CARDS)
@pytest.mark.slow(part=3)
def test_simulated_card(device, dtype, kind):
    check(OPTIONS["plain"], [9, 0, 20], [1, 2, 1], dtype, device, kind)
    check(OPTIONS["rotary"], [11], [9], dtype, device, kind)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_caches_are_read_and_written_in_place(device, kind):
    """The attention is one step whose operands are the caches: no step copies or gathers them."""
    model, values, found = check({}, [9, 0, 20], [1, 1, 1], np.float32, device, kind)
    kernels = model.kernels()
    assert [k.kind for k in kernels].count("tile") == 1, kernels
    names = ("key_cache", "value_cache", "key_scale", "value_scale")
    caches = [sardonyx.to_device(values[n], device) for n in names]
    outputs = ("keys", "values", "key_scales", "value_scales")
    given = values | dict(zip(names, caches, strict=True))
    results = model.run_tensors(given, outputs=dict(zip(outputs, caches, strict=True)), on_device=True)
    for name in ("y", *outputs):
        np.testing.assert_array_equal(results[name].numpy(), found[name])
    sizes = [model.memory(pages=p, tokens=3, sequences=3, ends=4, columns=4) for p in (PAGES, 100 * PAGES)]
    own = [m.temporaries - (0 if device == "host" else m.inputs + m.outputs) for m in sizes]
    assert own[0] == own[1] < 8192, own


def test_every_code_of_float8_on_the_host():
    """All finite codes of values are read; keys are zeros, so that all have the same weight but for the new one."""
    codes = np.array([c for c in range(256) if c & 127 != 127], np.uint8)
    past, new = [9, 0, 31], [1, 1, 1]
    values = quantized_case({}, past, new, np.float32, "fp8")
    stored = np.random.default_rng(1).permutation(np.resize(codes, values["value_cache"].size))
    values["value_cache"] = stored.reshape(values["value_cache"].shape).view(ml_dtypes.float8_e4m3fn)
    values["key_cache"] = np.zeros_like(values["key_cache"])
    read = values["value_cache"][test_paged_attention.TABLE[2]].view(np.uint8)
    assert set(read.reshape(-1)) == set(codes)
    found = sardonyx.compile(model_of({}, values, False), device="host").run(values)["y"]
    np.testing.assert_allclose(found, reference({}, values, past, new, "fp8")[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_cards_read_rows_as_vectors(monkeypatch, arch, kind):
    """A head of 32 elements is read in parts of 8; one of 36 element by element, which takes far more instructions."""
    counts = []
    for size in (32, 36):
        for module in (test_paged_attention, sys.modules[__name__]):
            monkeypatch.setattr(module, "SIZE", size)
        values = quantized_case({}, [9, 0, 20], [1, 1, 1], np.float16, kind)
        report = sardonyx.code_report(model_of({}, values, False).SerializeToString(), arch)
        counts.append(max(k.instructions for k in report if k.kernel.startswith("attention")))
    assert counts[0] < 0.6 * counts[1], counts


# ---- the engine
@pytest.mark.parametrize("kind", STORED)
def test_engine(tmp_path, kind):
    """Tokens do not depend on neighbours, lost pages, shared prefixes and guesses; and are nearly those of float pages."""
    folder = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=2, positions=160, head_size=32))
    prompts = [[7] * 12, list(range(90)), [*range(60), 5, 5], list(range(100, 140))]
    options = {"max_new_tokens": 30, "ignore_eos": True, "logprobs": 5}
    page = 16 * 2 * 2 * 2 * (32 + 4)
    with Engine(folder, page_tokens=16, cache_memory=100 * page, cache_type=kind) as engine:
        assert engine.statistics().pages == 99
        alone = [list(engine.stream(p, **options))[:-1] for p in prompts]
    # Less memory than all of them need, and guesses.
    with Engine(folder, page_tokens=16, cache_memory=13 * page, cache_type=kind, speculation={"ngram": 2}, step_tokens=64) as engine:  # fmt: skip
        requests = [engine.submit(p, **options) for p in prompts]
        assert all(r.wait(60) for r in requests)
        assert engine.statistics().preemptions > 0
        assert [r.answer for r in requests] == [[e.token for e in own] for own in alone]
    with Engine(folder, page_tokens=16, cache_memory=4 << 20) as engine:
        for prompt, own in zip(prompts, alone, strict=True):
            first = next(iter(engine.submit(prompt, **options)))
            # Rows are rounded to 1/254 of their largest element, or elements to 1/16 of themselves. Logits are up to 5.
            most = 0.05 if kind == "int8" else 0.15
            assert abs(first.logprob - dict(own[0].top).get(first.token, -99.0)) < most
    with pytest.raises(sardonyx.InvalidArgumentError, match="cache_type"):
        Engine(folder, cache_type="int4")


@pytest.mark.parametrize("kind", STORED)
def test_engine_on_a_simulated_card(tmp_path, kind):
    folder = llm_models.write(tmp_path, llm_models.Decoder(layers=1, head_size=32, positions=128))
    options = {"page_tokens": 16, "max_sequences": 2, "cache_memory": 1 << 20, "cache_type": kind}
    found = []
    for device in ("host", "sim:gfx942"):
        with Engine(folder, device=device, **options) as engine:
            found.append(
                [a.tokens for a in engine.generate_batch([[5, 77, 100], [9] * 17], max_new_tokens=4, ignore_eos=True)]
            )
    assert found[0] == found[1]
