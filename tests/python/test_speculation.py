"""Speculative decoding of sardonyx.llm.Engine: the same tokens as without guesses, on a decoder that checks every page and on real ones."""

import random
import zlib

import fake_decoder
import llm_models
import numpy as np
import onnx
import pytest
import sardonyx
import sardonyx.llm.engine
from sardonyx.llm import Engine, LanguageModel

WAIT = 60  # seconds, for what takes milliseconds
NGRAM = {"ngram": 3, "tokens": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llm_models.write(tmp_path_factory.mktemp("model"), llm_models.Decoder(layers=2, positions=256))


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    """Nearly the same weights, so that some of its guesses are right; and a shorter context."""
    path = llm_models.write(tmp_path_factory.mktemp("draft"), llm_models.Decoder(layers=2, positions=120))
    model, rng = onnx.load(path / "model.onnx"), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if tensor.name.endswith("weight"):
            noise = 0.1 * np.abs(values).mean() * rng.standard_normal(values.shape)
            tensor.CopyFrom(onnx.numpy_helper.from_array((values + noise).astype(values.dtype), tensor.name))
    onnx.save(model, path / "model.onnx")
    return path


def texts(seed, count, longest):
    rng = random.Random(seed)
    return [[rng.randrange(250) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


def repeating(tokens, vocabulary, end):
    """Mostly the token seven places before, sometimes another: guesses by n-grams are often right, and often wrong."""
    key = zlib.crc32(np.asarray(tokens, np.int64).tobytes())
    token = tokens[-7] if len(tokens) > 7 and key % 6 else key % (vocabulary - 3)
    return token if token != end else token + 1


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("pages", [40, 400])
def test_pages_and_tokens(monkeypatch, folder, immediate, pages):
    """Requests that share prefixes, lose their pages and are guessed: every page holds what it should."""
    monkeypatch.setattr(sardonyx.llm.engine, "PagedDecoder", fake_decoder.FakeDecoder)
    monkeypatch.setattr(fake_decoder, "next_token", repeating)
    rng = random.Random(1)
    prompts = texts(2, 30, 150)
    prompts += [p[: rng.randrange(1, 150)] + texts(3, 1, 20)[0] for p in prompts]
    with Engine(
        folder, cache_memory=pages * 1024, page_tokens=8, max_sequences=8, step_tokens=32, speculation=NGRAM
    ) as engine:
        engine._decoder.immediate = immediate
        requests = [
            engine.submit(
                p, max_new_tokens=rng.randrange(1, 60), priority=rng.randrange(3), client=str(rng.randrange(3))
            )
            for p in prompts
        ]
        assert all(r.wait(WAIT) for r in requests)
        for prompt, r in zip(prompts, requests, strict=True):
            assert r.answer == fake_decoder.continuation(prompt, r.search.max_new_tokens) and r.finished == "length"
        s = engine.statistics()
    assert 0 < s.right_guesses < s.guessed_tokens and s.used_pages == 0 and s.kept_tokens > 0
    assert (s.preemptions > 0) == (pages == 40)
    assert s.new_tokens == sum(len(r.answer) for r in requests) and s.steps < s.new_tokens
    assert all(sum(step) <= 32 for step in engine._decoder.steps)


def test_what_ends_among_guesses(monkeypatch, folder):
    """An end token, a stop token, a stop string and the last token, in the middle of right guesses."""
    monkeypatch.setattr(sardonyx.llm.engine, "PagedDecoder", fake_decoder.FakeDecoder)
    with Engine(folder, cache_memory=1 << 20, page_tokens=8, speculation=NGRAM) as engine:
        engine._decoder.script = engine.encode("abcdefgh" * 5)
        ends = engine.generate("x", max_new_tokens=100)
        assert ends.finished == "end" and ends.text == "abcdefgh" * 5
        for count in range(1, 30):
            cut = engine.generate("x", max_new_tokens=count)
            assert cut.finished == "length" and cut.text == ("abcdefgh" * 5)[:count]
        token = engine.generate("x", max_new_tokens=100, stop_tokens=[ord("f")], stop="habcdefghabcd")
        assert token.finished == "stop" and token.text == "abcde"
        string = engine.submit("x", max_new_tokens=100, stop="habcdefghabcd")
        assert string.wait(WAIT) and string.finished == "stop" and string.text == "abcdefg"
        assert len(string.answer) == 20  # no token after the stop string's last one
        assert engine.statistics().right_guesses > 50


@pytest.mark.parametrize("kind", ["ngram", "draft", "itself"])
def test_tokens_are_those_of_greedy_decoding(folder, draft, kind):
    """In a cache that has room for some of the requests only."""
    speculation = {"ngram": {"ngram": 2}, "draft": {"draft": draft}, "itself": {"draft": folder, "tokens": 3}}[kind]
    prompts = [*texts(6, 7, 100), list(range(90)), [*range(60), 5, 5], [7] * 12]
    model = LanguageModel(folder)
    wanted = [model.generate(p, max_new_tokens=40, ignore_eos=True).tokens for p in prompts]
    page = 16 * 2 * 2 * 2 * 16 * 4
    beside = {"ngram": 0, "draft": page, "itself": page}[kind]
    with Engine(
        folder,
        page_tokens=16,
        max_sequences=6,
        step_tokens=60,
        cache_memory=26 * (page + beside),
        speculation=speculation,
    ) as engine:
        assert engine.statistics().pages == 25
        answers = engine.generate_batch(prompts, max_new_tokens=40, ignore_eos=True)
        s = engine.statistics()
    assert [a.tokens for a in answers] == wanted
    assert s.preemptions > 0 and s.used_pages == 0 and s.guessed_tokens > 0
    if kind == "itself":  # its guesses are wrong where rounding decides, and after a text lost pages that others found
        assert s.right_guesses > 0.9 * s.guessed_tokens
    else:
        assert 0 < s.right_guesses < s.guessed_tokens


@pytest.mark.parametrize("kind", ["ngram", "draft"])
def test_sampled_answers_and_logprobs(folder, draft, kind):
    """A seed gives the same tokens with guesses; penalties and constraints are not guessed, beside others that are."""
    speculation = {"ngram": {"ngram": 1, "tokens": 2}, "draft": {"draft": draft}}[kind]
    options = [
        {"do_sample": True, "temperature": 0.6, "top_k": 3, "seed": 4},
        {"do_sample": True, "temperature": 0.8, "top_k": 0, "seed": 5},
        {"frequency_penalty": 0.5},
        {"logit_bias": {66: 2.0}, "do_sample": True, "top_k": 4, "seed": 6},
        {"logprobs": 3},
        {},
    ]
    found = []
    for guessing in (None, speculation):
        with Engine(folder, page_tokens=16, cache_memory=4 << 20, speculation=guessing) as engine:
            requests = [engine.submit([7, 8, 9], max_new_tokens=40, ignore_eos=True, **o) for o in options]
            events = [[e for e in r if isinstance(e, sardonyx.llm.TokenEvent)] for r in requests]
            found.append((requests, events, engine.statistics()))
    (plain, told, _), (guessed, told_too, s) = found
    assert [r.answer for r in plain] == [r.answer for r in guessed] and s.right_guesses > 0
    assert [[e.token for e in own] for own in told] == [[e.token for e in own] for own in told_too]
    for a, b in zip(told[4], told_too[4], strict=True):
        assert [t for t, _ in a.top] == [t for t, _ in b.top]
        # The same sums of float32 in another order.
        np.testing.assert_allclose([p for _, p in a.top], [p for _, p in b.top], atol=1e-4)


def test_simulated_card(tmp_path):
    own = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, head_size=32, positions=128))
    prompts = [[5, 77, 100], [9] * 17]
    model = LanguageModel(own)
    wanted = [model.generate(p, max_new_tokens=6, ignore_eos=True).tokens for p in prompts]
    options = {"device": "sim:gfx942", "page_tokens": 16, "max_sequences": 2, "cache_memory": 1 << 20}
    with Engine(own, speculation={"draft": own, "tokens": 2}, **options) as engine:
        found = engine.generate_batch(prompts, max_new_tokens=6, ignore_eos=True)
        assert engine.statistics().right_guesses > 0
    assert [a.tokens for a in found] == wanted


def test_refusals(folder, tmp_path):
    for wrong in (
        {},
        {"ngram": 0},
        {"ngram": 2, "tokens": 16},
        {"ngram": 2, "draft": str(folder)},
        {"tokens": 2},
        {"ngram": True},
        {"other": 1},
        "ngram",
    ):
        with pytest.raises(sardonyx.InvalidArgumentError, match="speculation"):
            Engine(folder, speculation=wrong)
    with pytest.raises(sardonyx.FileError):
        Engine(folder, speculation={"draft": tmp_path / "none"})
    other = llm_models.write(tmp_path / "other", llm_models.Decoder(layers=1, vocab=300))
    with pytest.raises(sardonyx.UnsupportedError, match="other tokens"):
        Engine(folder, speculation={"draft": other})
