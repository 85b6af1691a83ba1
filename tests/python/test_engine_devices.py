"""sardonyx.llm.Engine on several devices: tokens are those of one, and requests outlive the processes that compute them."""

import os
import signal
import time

import llm_models
import pytest
from engine_kills import tokens_with_kills
from sardonyx.errors import DeviceError, UnsupportedError
from sardonyx.llm import Engine, LanguageModel

WAIT = 120  # seconds, for what takes one
PROMPTS = [[5, 77, 100], list(range(3, 43)), [9] * 17, [1, 2, 3, 4, 5, 6]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llm_models.write(tmp_path_factory.mktemp("llama"), llm_models.Decoder(layers=2, heads=4, kv_heads=2))


@pytest.fixture(scope="module")
def two(folder):
    with Engine(
        folder, devices=["host", "host"], page_tokens=8, max_sequences=4, cache_memory=1 << 20, step_tokens=32
    ) as e:
        yield e


def one_by_one(folder, count, **options):
    model = LanguageModel(folder)
    return [model.generate(p, max_new_tokens=count, ignore_eos=True, **options).tokens for p in PROMPTS]


def test_tokens_are_those_of_one_device(folder, two):
    assert two.device == "host, host"
    wanted = one_by_one(folder, 24)
    found = two.generate_batch(PROMPTS, max_new_tokens=24, ignore_eos=True)
    assert [a.tokens for a in found] == wanted
    own = {"max_new_tokens": 8, "ignore_eos": True, "do_sample": True, "temperature": 1.2, "seed": 4}
    with Engine(folder, page_tokens=8, cache_memory=1 << 20) as one:
        for more in ({"top_k": 0}, {"top_k": 5}, {"top_k": 0, "frequency_penalty": 0.5}, {"top_k": 0, "logprobs": 2}):
            a, b = (e.submit(PROMPTS[0], **own, **more) for e in (one, two))
            assert a.wait(WAIT) and b.wait(WAIT) and a.answer == b.answer
            for x, y in zip(a, b, strict=True):
                assert getattr(x, "logprob", None) == pytest.approx(getattr(y, "logprob", None), abs=1e-4)
    assert two.statistics().used_pages == 0


def test_simulated_cards(tmp_path):
    path = llm_models.write(tmp_path, llm_models.Decoder(layers=1, head_size=32, heads=4, kv_heads=2, positions=128))
    cards = ["sim:gfx942", "sim:gfx942"]
    with Engine(
        path, devices=cards, page_tokens=16, max_sequences=4, cache_memory=1 << 20, speculation={"ngram": 2}
    ) as e:
        found = e.generate_batch(PROMPTS[:2], max_new_tokens=4, ignore_eos=True)
    assert [a.tokens for a in found] == one_by_one(path, 4)[:2]


def test_processes_that_end_lose_no_request(folder, two):
    """Twice, while requests run: they are computed again, and no token comes twice or is missing."""
    wanted = one_by_one(folder, 60)
    assert tokens_with_kills(two, PROMPTS, 60) == wanted
    assert two.statistics().preemptions > 0 and two.statistics().used_pages == 0
    # The pages of the texts before are not found: the caches are empty.
    again = two.generate_batch(PROMPTS, max_new_tokens=60, ignore_eos=True)
    assert [a.tokens for a in again] == wanted


def test_processes_that_end_each_time_are_an_error(folder, monkeypatch):
    with Engine(folder, devices=["host", "host"], page_tokens=8, cache_memory=1 << 20) as e:
        real = e._decoder._receive

        def dies():
            if e._decoder._flying:
                os.kill(e._decoder._ranks.alive[0].process.pid, signal.SIGKILL)
                while e._decoder._ranks.alive[0].process.poll() is None:
                    time.sleep(0.01)
            return real()

        monkeypatch.setattr(e._decoder, "_receive", dies)
        request = e.submit(PROMPTS[0], max_new_tokens=4)
        assert request.wait(WAIT) and isinstance(request.error, DeviceError)
        monkeypatch.undo()
        assert len(e.generate(PROMPTS[0], max_new_tokens=4, ignore_eos=True).tokens) == 4


def test_refusals(folder, tmp_path):
    with pytest.raises(UnsupportedError, match="one device"):
        Engine(folder, devices=["host", "host"], speculation={"draft": folder})
    with pytest.raises(UnsupportedError, match="heads"):
        odd = llm_models.write(tmp_path, llm_models.Decoder(heads=3, kv_heads=3))
        Engine(odd, devices=["host", "host"])
