"""Pipeline parallelism in sardonyx.llm.Engine: a decoder's layers on several devices give the tokens of one device."""

import os

import fake_decoder
import llm_models
import numpy as np
import onnx
import pytest
import sardonyx.llm.engine
from engine_kills import tokens_with_kills
from sardonyx.errors import InvalidArgumentError, UnsupportedError
from sardonyx.llm import Engine, LanguageModel
from sardonyx.llm.genai_folder import read_folder
from sardonyx.llm.paged_sampling import StepKind
from sardonyx.llm.stage_graph import Stages, write_part

WAIT = 120  # seconds, for what takes one
PROMPTS = [[5, 77, 100], list(range(3, 43)), [9] * 17, [1, 2, 3, 4, 5, 6]]
SMALL = {"page_tokens": 8, "max_sequences": 4, "cache_memory": 1 << 20, "step_tokens": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llm_models.write(tmp_path_factory.mktemp("llama"), llm_models.Decoder(layers=3, heads=4, kv_heads=2))


@pytest.fixture(scope="module")
def two(folder):
    with Engine(folder, devices=["host", "host"], pipeline_parallel_size=2, swap_memory=1 << 20, **SMALL) as e:
        yield e


def one_by_one(folder, count, prompts=PROMPTS):
    model = LanguageModel(folder)
    return [model.generate(p, max_new_tokens=count, ignore_eos=True).tokens for p in prompts]


def test_tokens_are_those_of_one_device(folder, two):
    assert two.device == "host, host"
    two.prepare()
    wanted = one_by_one(folder, 24)
    assert [a.tokens for a in two.generate_batch(PROMPTS, max_new_tokens=24, ignore_eos=True)] == wanted
    own = {"max_new_tokens": 8, "ignore_eos": True, "do_sample": True, "temperature": 1.2, "seed": 4}
    with Engine(folder, page_tokens=8, cache_memory=1 << 20) as one:
        for more in ({"top_k": 0}, {"top_k": 5}, {"top_k": 0, "frequency_penalty": 0.5}, {"top_k": 0, "logprobs": 2}):
            a, b = (e.submit(PROMPTS[0], **own, **more) for e in (one, two))
            assert a.wait(WAIT) and b.wait(WAIT) and a.answer == b.answer
            for x, y in zip(a, b, strict=True):
                assert getattr(x, "logprob", None) == pytest.approx(getattr(y, "logprob", None), abs=1e-4)
    assert two.statistics().used_pages == 0


@pytest.mark.parametrize(
    "variant",
    [
        {"packed": True, "rotary": "outside", "position_ids": True},
        {"dtype": np.float16, "qk_norm": "outside", "bias": True},
        {"bits": 4, "zero_points": "packed", "embedding_bits": 4},
        {"experts": 4, "ids": onnx.TensorProto.INT32},
    ],
    ids=["outside", "float16", "int4", "experts"],
)
def test_decoders(tmp_path, variant):
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=3, heads=4, kv_heads=2, **variant))
    with Engine(path, **SMALL) as one:
        wanted = [a.tokens for a in one.generate_batch(PROMPTS, max_new_tokens=8, ignore_eos=True)]
    with Engine(path, devices=["host"] * 3, pipeline_parallel_size=3, **SMALL) as e:
        found = [a.tokens for a in e.generate_batch(PROMPTS, max_new_tokens=8, ignore_eos=True)]
    assert found == wanted


def test_stages_of_several_devices(folder):
    """Two stages of two devices each, and pages that do not suffice for all: requests are preempted."""
    memory = {**SMALL, "cache_memory": 80 << 10}
    with Engine(folder, devices=["host"] * 4, pipeline_parallel_size=2, **memory) as e:
        found = [a.tokens for a in e.generate_batch(PROMPTS, max_new_tokens=30, ignore_eos=True)]
        statistics = e.statistics()
    assert found == one_by_one(folder, 30)
    with Engine(folder, devices=["host"] * 4, pipeline_parallel_size=2, swap_memory=80 << 10, **memory) as e:
        assert [a.tokens for a in e.generate_batch(PROMPTS, max_new_tokens=30, ignore_eos=True)] == found
        assert e.statistics().restored_tokens > 0 and e.statistics().used_host_pages == 0
    assert statistics.preemptions > 0 and statistics.cache_bytes <= 80 << 10


def test_guesses(folder):
    with Engine(
        folder, devices=["host"] * 2, pipeline_parallel_size=2, speculation={"ngram": 1, "tokens": 3}, **SMALL
    ) as e:
        found = [a.tokens for a in e.generate_batch(PROMPTS, max_new_tokens=24, ignore_eos=True)]
        assert e.statistics().guessed_tokens > 0
    assert found == one_by_one(folder, 24)


@pytest.mark.parametrize("chip", ["gfx942", pytest.param("gfx1100", marks=pytest.mark.slow)])
def test_simulated_cards(tmp_path, chip):
    path = llm_models.write(tmp_path, llm_models.Decoder(layers=2, head_size=32, heads=4, kv_heads=2, positions=128))
    cards = [f"sim:{chip}", f"sim:{chip}"]
    with Engine(
        path, devices=cards, pipeline_parallel_size=2, page_tokens=16, max_sequences=4, cache_memory=1 << 20
    ) as e:
        if chip == "gfx1100":
            e.prepare(StepKind())
        found = e.generate_batch(PROMPTS[:2], max_new_tokens=4, ignore_eos=True)
    assert [a.tokens for a in found] == one_by_one(path, 4, PROMPTS[:2])


def test_processes_that_end_lose_no_request(folder, two):
    """Each stage once, while requests run: they are computed again, and no token comes twice or is missing."""
    wanted = one_by_one(folder, 60)
    assert tokens_with_kills(two, PROMPTS, 60) == wanted
    assert two.statistics().preemptions > 0 and two.statistics().used_pages == 0


def test_steps_of_different_requests_are_in_flight(folder, monkeypatch):
    """The fake decoder checks that no step needs a token whose step has not been read."""
    monkeypatch.setattr(sardonyx.llm.engine, "PagedDecoder", fake_decoder.FakeDecoder)
    monkeypatch.setattr(fake_decoder.FakeDecoder, "stages", 3)
    monkeypatch.setattr(fake_decoder.FakeDecoder, "immediate", False)
    with Engine(folder, page_tokens=8, max_sequences=6, step_tokens=32, cache_memory=40 << 10) as e:
        decoder = e._decoder
        requests = [e.submit([k + 3] * (5 + 9 * k), max_new_tokens=40, ignore_eos=True) for k in range(6)]
        assert all(r.wait(WAIT) for r in requests)
        for k, r in enumerate(requests):
            assert r.answer == fake_decoder.continuation([k + 3] * (5 + 9 * k), 40)
    assert decoder.most_flying >= 3
    answers = [len(s) for s in decoder.steps if all(n == 1 for n in s)]
    assert max(answers) == 2  # a third of six


def test_what_a_stage_has(tmp_path):
    """Layers, inputs and outputs of each part; weights are divided by their bytes: the vocabulary's count too."""
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=4, vocab=258))
    whole = read_folder(path)
    parts = []
    for stage in range(2):
        (tmp_path / str(stage)).mkdir()
        parts.append(write_part(whole, str(tmp_path / str(stage)), stage, 2, 0, 1))
    assert [p.layers for p in parts] == [2, 2]
    first, last = (onnx.load(p.model, load_external_data=False).graph for p in parts)
    assert not parts[0].logits and parts[1].logits == whole.logits and parts[1].weights == os.path.dirname(whole.model)
    assert len(parts[0].carried_out) == len(parts[1].carried_in) <= 2
    assert {v.name for v in first.output} == {*whole.present[:4], *parts[0].carried_out}
    assert {v.name for v in last.output} == {*whole.present[4:], whole.logits}
    products = [sum(n.op_type == "MatMul" for n in g.node) for g in (first, last)]
    model = onnx.load(whole.model, load_external_data=False)
    assert sum(products) == sum(n.op_type == "MatMul" for n in model.graph.node)  # none is computed twice
    # A large vocabulary is worth several layers.
    wide = llm_models.write(tmp_path / "wide", llm_models.Decoder(layers=4, vocab=2000))
    folder = read_folder(wide)
    assert Stages(folder, onnx.load(folder.model, load_external_data=False)).bounds(2) == [0, 3, 4]


def test_refusals(folder):
    with pytest.raises(InvalidArgumentError, match="pipeline_parallel_size is 2"):
        Engine(folder, devices=["host"] * 3, pipeline_parallel_size=2)
    with pytest.raises(InvalidArgumentError, match="pipeline_parallel_size is 2"):
        Engine(folder, pipeline_parallel_size=2)
    with pytest.raises(InvalidArgumentError, match="3 layers"):
        Engine(folder, devices=["host"] * 4, pipeline_parallel_size=4)
    with pytest.raises(UnsupportedError, match="one device"):
        Engine(folder, devices=["host"] * 2, pipeline_parallel_size=2, speculation={"draft": folder})
