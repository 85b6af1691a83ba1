"""sardonyx.llm.Engine: what is scheduled, on a decoder that checks every page (fake_decoder.py), and tokens of real decoders compared with those of LanguageModel one by one."""

import asyncio
import gc
import random
import threading
import weakref

import fake_decoder
import llm_models
import numpy as np
import pytest
import sardonyx
import sardonyx.llm.engine
from sardonyx.llm import EndEvent, Engine, LanguageModel, TokenEvent
from sardonyx.llm.constraints import Constraints

WAIT = 60  # seconds, for what takes milliseconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llm_models.write(tmp_path_factory.mktemp("model"), llm_models.Decoder(layers=2, positions=256))


@pytest.fixture
def fake(monkeypatch, folder):
    """Makes engines whose decoder is a fake; all of them are closed."""
    monkeypatch.setattr(sardonyx.llm.engine, "PagedDecoder", fake_decoder.FakeDecoder)
    made = []

    def engine(pages=40, delay=0.0, **options):
        options = {"page_tokens": 8, "max_sequences": 8, "step_tokens": 32, **options}
        made.append(Engine(folder, cache_memory=pages * 1024, **options))
        made[-1]._decoder.delay = delay
        return made[-1]

    yield engine
    for e in made:
        e.close(finish=False)
        assert e.statistics().used_pages == 0 and not e._live


def texts(seed, count, longest):
    rng = random.Random(seed)
    return [[rng.randrange(250) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


def set_mode(engine, mode):
    """How the decoder works: at once, when its results are read, or with a step ahead of the results."""
    engine._decoder.immediate, engine._decoder.ahead = mode == "immediate", mode == "ahead"


@pytest.mark.parametrize("swapped", [0, 7, 1000])
@pytest.mark.parametrize("mode", ["immediate", "later", "ahead"])
def test_mixed_requests_share_few_pages(fake, mode, swapped):
    """Prompts that begin alike, three clients, three priorities, and memory for a fraction of them at a time. swapped: pages in
    host memory for those that are preempted."""
    engine, rng = fake(swap_memory=swapped << 10), random.Random(1)
    set_mode(engine, mode)
    prompts = texts(2, 30, 150)
    prompts += [p[: rng.randrange(1, 150)] + texts(3, 1, 20)[0] for p in prompts]
    requests = [
        engine.submit(p, max_new_tokens=rng.randrange(1, 60), priority=rng.randrange(3), client=str(rng.randrange(3)))
        for p in prompts
    ]
    assert all(r.wait(WAIT) for r in requests)
    for prompt, r in zip(prompts, requests, strict=True):
        assert r.answer == fake_decoder.continuation(prompt, r.search.max_new_tokens) and r.finished == "length"
    s = engine.statistics()
    assert s.preemptions > 0 and s.kept_tokens > 0 and s.used_pages == 0 and s.ended == {"length": 60}
    assert s.host_pages == swapped and s.used_host_pages == 0 and (s.restored_tokens > 0) == (swapped > 0)
    assert all(sum(step) <= 32 for step in engine._decoder.steps)
    assert engine._decoder.most_flying > 1 or mode != "ahead"


def test_a_step_ahead_of_the_results(fake):
    """Requests that end, are cancelled, fail, or need masks while a step that computes more of them is in flight."""
    engine = fake(delay=0.001)
    set_mode(engine, "ahead")
    others = [engine.submit([k] * 20, max_new_tokens=60) for k in range(3)]
    text = fake_decoder.continuation([9], 8)
    stopped = engine.generate([9], max_new_tokens=50, stop_tokens=[text[5]])
    assert stopped.tokens == text[: text.index(text[5]) + 1] and stopped.finished == "stop"
    engine.cancel(others[0])
    assert others[0].wait(WAIT) and others[0].finished == "cancelled"
    even = sum(1 << b for b in range(0, 32, 2))

    class Even:
        """Allows even tokens; asks for the tokens before each mask."""

        def __init__(self):
            self.taken = 0

        def allowed(self):
            self.asked = self.taken
            return np.full(9, even, np.uint32)

        def accept(self, token):
            assert self.asked == self.taken
            self.taken += 1
            return False

    masked = engine.submit([5, 6], max_new_tokens=20, constraint=Even())
    counted = engine.submit([5, 6], max_new_tokens=20, frequency_penalty=1.0)
    assert masked.wait(WAIT) and all(t % 2 == 0 for t in masked.answer) and len(masked.answer) == 20
    assert counted.wait(WAIT) and counted.answer == fake_decoder.continuation([5, 6], 20)
    engine._decoder.fails = sardonyx.DeviceError("the card is gone")
    assert all(r.wait(WAIT) for r in others)
    assert {r.finished for r in others[1:]} <= {"length", "error"} and "error" in {r.finished for r in others}
    for r in others[1:]:
        if r.finished == "length":
            assert r.answer == fake_decoder.continuation(r.tokens[:20], 60)
    assert engine.generate([1, 2], max_new_tokens=3).tokens == fake_decoder.continuation([1, 2], 3)
    assert engine._decoder.most_flying > 1


def test_a_long_prompt_does_not_delay_answers(fake):
    """A running request gets a token in every step while another one's prompt is computed in parts."""
    engine = fake(delay=0.002)
    first = engine.submit([1, 2, 3], max_new_tokens=100)
    events = iter(first)
    next(events)
    long = engine.submit(texts(4, 1, 2)[0] * 150, max_new_tokens=2)
    assert long.wait(WAIT)
    # A step has 32 tokens: 31 of the prompt, which run on their own, and the first request's one.
    steps = engine._decoder.steps
    parts = [k for k, counts in enumerate(steps) if counts == (31,)]
    assert len(parts) == 4 and all(steps[k + 1] == (1,) for k in parts)
    first.cancel()
    assert first.wait(WAIT)


def test_a_part_of_a_prompt_runs_beside_answers(fake):
    """Where the decoder can, parts of prompts join the answers of a step, after them."""
    engine = fake(step_tokens=64, pages=200)
    engine._decoder.both = True
    set_mode(engine, "ahead")
    prompts = [*texts(11, 6, 60), [7] * 150, [3] * 40]
    with engine._wake:  # all are there before the first step
        requests = [engine.submit(p, max_new_tokens=20) for p in prompts]
    assert all(r.wait(WAIT) for r in requests)
    assert [r.answer for r in requests] == [fake_decoder.continuation(p, 20) for p in prompts]
    both = [s for s in engine._decoder.steps if len(s) > 1 and s[-1] > 1]
    assert both and all(s[: s.count(1)] == (1,) * s.count(1) for s in both)
    assert any(s.count(1) < len(s) - 1 for s in both)  # several parts


def test_parts_of_prompts_are_not_small_beside_others(fake, monkeypatch):
    """What is left of a step beside a part of a prompt goes to another prompt only if it is all of it, or enough."""
    monkeypatch.setattr("sardonyx.llm.scheduler._LEAST", 16)
    engine, seen = fake(step_tokens=48, pages=200), []
    step = engine._step
    engine._step = lambda pieces: (
        seen.append([(p.count, p.results) for p in pieces if p.start < p.request.prompt_tokens]),
        step(pieces),
    )
    prompts = [[k] * 37 for k in range(6)] + [[9] * 5, [8] * 90]
    requests = [engine.submit(p, max_new_tokens=3) for p in prompts]
    assert all(r.wait(WAIT) for r in requests)
    assert [r.answer for r in requests] == [fake_decoder.continuation(p, 3) for p in prompts]
    assert any(len(parts) > 1 for parts in seen)  # the prompt of 5 tokens
    for parts in seen:
        assert all(count >= 16 or last for count, last in parts[1:]), parts


def test_prefixes_are_computed_once(fake):
    engine = fake()
    prompt = texts(5, 1, 2)[0] + list(range(100))
    engine.generate(prompt, max_new_tokens=1)
    again = engine.generate([*prompt[:90], 7, 8], max_new_tokens=3)
    assert again.statistics.kept_tokens == 88  # 11 pages of 8
    assert again.tokens == fake_decoder.continuation([*prompt[:90], 7, 8], 3)
    # The same prompt once more: its last token is computed in any case.
    assert engine.generate(prompt, max_new_tokens=1).statistics.kept_tokens == (len(prompt) - 1) // 8 * 8


def test_priorities_and_clients(fake):
    engine = fake(delay=0.002, max_sequences=1)
    order = []

    def follow(name, request):
        request.wait(WAIT)
        order.append(name)

    running = engine.submit([1], max_new_tokens=30, priority=5)
    next(iter(running))
    waiting = [("low", -1, "a"), ("a1", 0, "a"), ("a2", 0, "a"), ("b1", 0, "b"), ("high", 1, "a")]
    threads = []
    for name, priority, client in waiting:
        request = engine.submit([2] * 8, max_new_tokens=8, priority=priority, client=client)
        threads.append(threading.Thread(target=follow, args=(name, request)))
        threads[-1].start()
    for t in threads:
        t.join(WAIT)
    # Client b has been served less than a when its turn comes.
    assert order == ["high", "b1", "a1", "a2", "low"], order
    urgent = engine.submit([3] * 8, max_new_tokens=60, priority=0)
    next(iter(urgent))
    above = engine.submit([4] * 8, max_new_tokens=3, priority=1)
    assert above.wait(WAIT) and not urgent.finished and urgent.preempted == 1
    assert urgent.wait(WAIT) and urgent.answer == fake_decoder.continuation([3] * 8, 60)


def test_cancelled_requests_free_their_pages(fake):
    engine = fake(delay=0.002)
    request = engine.submit([1] * 50, max_new_tokens=150)
    stream = engine.stream([2] * 50, max_new_tokens=150)
    next(iter(request))
    next(stream)
    assert engine.statistics().used_pages >= 14
    request.cancel()
    stream.close()
    assert request.wait(WAIT) and request.finished == "cancelled"
    engine.generate([3], max_new_tokens=2)  # at least one step later
    assert engine.statistics().used_pages == 0 and engine.statistics().ended["cancelled"] == 2
    waiting = [engine.submit([5] * 200, max_new_tokens=50) for _ in range(4)]
    for r in waiting:
        engine.cancel(r)
    assert all(r.wait(WAIT) for r in waiting)


def test_overload_and_errors(fake, folder):
    engine = fake(delay=0.01, max_sequences=1, max_waiting=3)
    first = engine.submit([1], max_new_tokens=100)
    next(iter(first))
    waiting = [engine.submit([2], max_new_tokens=1) for _ in range(3)]
    with pytest.raises(sardonyx.OverloadedError, match="3 requests wait"):
        engine.submit([3])
    first.cancel()
    assert all(r.wait(WAIT) for r in waiting)
    engine._decoder.fails = sardonyx.DeviceError("the card is gone")
    with pytest.raises(sardonyx.DeviceError, match="card is gone"):
        engine.generate([1, 2])
    engine._decoder.fails = KeyError("a bug")
    with pytest.raises(sardonyx.InternalError, match="a bug"):
        engine.generate([1, 2])
    assert engine.generate([1, 2], max_new_tokens=3).tokens == fake_decoder.continuation([1, 2], 3)
    for options in (
        {"num_beams": 2},
        {"logprobs": 21},
        {"presence_penalty": 3},
        {"logit_bias": {999: 1}},
        {"nothing": 1},
    ):
        with pytest.raises(sardonyx.InvalidArgumentError):
            engine.submit([1], **options)
    for prompt in ([], [1] * 256, [999], "x" * 300):
        with pytest.raises(sardonyx.InvalidArgumentError):
            engine.submit(prompt)
    with pytest.raises(sardonyx.InvalidArgumentError, match="cache has room for 24"):
        fake(pages=3).submit([1] * 30)
    with pytest.raises(sardonyx.InvalidArgumentError, match="page_tokens"):
        Engine(folder, page_tokens=0)


def test_answers_end_where_the_cache_ends(fake):
    request = fake(pages=3).submit([1] * 20, max_new_tokens=100)
    assert request.wait(WAIT) and request.finished == "length" and len(request.tokens) == 24


def test_close_finishes_what_was_accepted(fake):
    engine = fake(delay=0.001, max_sequences=2)
    requests = [engine.submit([k], max_new_tokens=20) for k in range(6)]
    engine.close()
    assert [r.finished for r in requests] == ["length"] * 6
    with pytest.raises(sardonyx.OverloadedError, match="closed"):
        engine.submit([1])
    with pytest.raises(ZeroDivisionError), fake(delay=0.01) as other:
        request = other.submit([1], max_new_tokens=200)
        raise ZeroDivisionError
    assert request.finished == "cancelled"


def test_an_engine_that_nobody_has_ends(fake, folder):
    engine = Engine(folder, cache_memory=8 << 10, page_tokens=8)
    engine.generate([1], max_new_tokens=1)
    thread, gone = engine._thread, weakref.ref(engine)
    del engine
    gc.collect()
    thread.join(WAIT)
    assert gone() is None and not thread.is_alive()


def test_asyncio(fake):
    engine = fake(delay=0.001)

    async def one(k):
        return [e async for e in engine.stream_async([k], max_new_tokens=10)]

    async def all_of_them():
        streams = await asyncio.gather(*(one(k) for k in range(20)))
        whole = await engine.generate_async([3], max_new_tokens=10)
        task = asyncio.create_task(engine.generate_async([4] * 60, max_new_tokens=150))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return streams, whole

    streams, whole = asyncio.run(all_of_them())
    for k, events in enumerate(streams):
        assert isinstance(events[-1], EndEvent) and events[-1].finished == "length"
        assert [e.token for e in events[:-1]] == fake_decoder.continuation([k], 10)
    assert whole.tokens == fake_decoder.continuation([3], 10)
    assert "".join(e.text for e in streams[3]) == whole.text
    engine.generate([1], max_new_tokens=1)
    assert engine.statistics().used_pages == 0


# ---- real decoders
VARIANTS = {
    "plain": {},
    "packed": {"packed": True, "smooth": True},
    "outside": {"rotary": "outside", "qk_norm": "outside"},
    "inside": {"qk_norm": "inside", "sink": True, "window": 24, "softcap": 20.0},
}


@pytest.fixture(scope="module")
def engine(folder):
    with Engine(folder, page_tokens=16, max_sequences=8, step_tokens=40) as made:
        yield made


def one_by_one(path, prompts, count, **options):
    model = LanguageModel(path, **options)
    return [model.generate(p, max_new_tokens=count, ignore_eos=True).tokens for p in prompts]


@pytest.mark.parametrize("variant", VARIANTS)
def test_tokens_are_those_of_greedy_decoding(tmp_path, variant):
    """Prompts longer and shorter than a step and a page, together, in a cache that has room for some of them only."""
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=2, positions=160, **VARIANTS[variant]))
    prompts = [*texts(6, 7, 100), list(range(90)), [*range(60), 5, 5]]
    with Engine(
        path, page_tokens=16, max_sequences=6, step_tokens=40, cache_memory=26 * 16 * 2 * 2 * 2 * 16 * 4
    ) as engine:
        assert engine.statistics().pages == 25  # and one that no request has
        answers = engine.generate_batch(prompts, max_new_tokens=30, ignore_eos=True)
        s = engine.statistics()
    assert [a.tokens for a in answers] == one_by_one(path, prompts, 30)
    assert s.preemptions > 0 and s.used_pages == 0


def test_simulated_card(tmp_path):
    """With a step ahead of the results, a request that joins later, and one that ends earlier than it was expected to."""
    folder = llm_models.write(tmp_path, llm_models.Decoder(layers=1, head_size=32, positions=128))
    prompts = [[5, 77, 100], list(range(40)), [9] * 17]
    with Engine(folder, device="sim:gfx942", page_tokens=16, max_sequences=4, cache_memory=1 << 20) as engine:
        assert engine._decoder.ahead
        found = engine.generate_batch(prompts, max_new_tokens=4, ignore_eos=True)
        first = engine.submit(prompts[0], max_new_tokens=6, ignore_eos=True)
        next(iter(first))
        ended = engine.generate(prompts[1], max_new_tokens=6, ignore_eos=True, stop_tokens=[found[1].tokens[1]])
        assert ended.tokens == found[1].tokens[: found[1].tokens.index(found[1].tokens[1]) + 1]
        assert first.wait(WAIT) and first.answer[:4] == found[0].tokens
        assert engine.statistics().used_pages == 0
        sampled = [engine.generate([5, 6], max_new_tokens=2, do_sample=True, top_k=5, seed=3).tokens for _ in range(2)]
    assert [a.tokens for a in found] == one_by_one(folder, prompts, 4)
    assert sampled[0] == sampled[1]


def test_seeds_do_not_depend_on_neighbours(engine):
    options = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 12, "ignore_eos": True}
    kinds = [
        {"top_k": 5},
        {"top_k": 0},
        {"top_k": 0, "top_p": 0.7},
        {"top_k": 0, "min_p": 0.01},
        {"top_k": 100, "top_p": 0.9},
    ]
    alone = [engine.generate([7, 8, 9], seed=k, **options, **kind).tokens for k, kind in enumerate(kinds)]
    together = [engine.submit([7, 8, 9], seed=k, **options, **kind) for k, kind in enumerate(kinds)]
    greedy = engine.submit([7, 8, 9], max_new_tokens=12, ignore_eos=True)
    assert all(r.wait(WAIT) for r in (*together, greedy))
    assert [r.answer for r in together] == alone
    assert greedy.answer == engine.generate([7, 8, 9], max_new_tokens=12, ignore_eos=True).tokens
    assert len({tuple(a) for a in alone}) > 1


def test_samples_follow_the_probabilities(engine):
    """The first tokens of 600 answers, against the probabilities that log-probabilities tell. 4 standard errors."""
    request = engine.submit([1, 2, 3], max_new_tokens=1, logprobs=20, ignore_eos=True)
    (event, _) = list(request)
    p = {t: np.exp(lp) for t, lp in event.top}
    count = 600
    tokens = [
        a.tokens[0]
        for a in engine.generate_batch([[1, 2, 3]] * count, max_new_tokens=1, do_sample=True, top_k=0, ignore_eos=True)
    ]
    for token, probability in list(p.items())[:5]:
        error = 4 * np.sqrt(probability * (1 - probability) / count)
        assert abs(tokens.count(token) / count - probability) < error, token
    few = engine.generate_batch([[1, 2, 3]] * 100, max_new_tokens=1, do_sample=True, top_k=3, ignore_eos=True)
    assert {a.tokens[0] for a in few} <= set(list(p)[:3])


def test_logprobs(engine):
    events = list(engine.stream([1, 2, 3], max_new_tokens=5, logprobs=3, ignore_eos=True))
    for event in events[:-1]:
        assert isinstance(event, TokenEvent) and len(event.top) == 3
        assert event.top[0] == (event.token, event.logprob)  # greedy
        assert 0 < sum(np.exp(p) for _, p in event.top) < 1
        assert event.top[0][1] >= event.top[1][1] >= event.top[2][1]
    sampled = list(
        engine.stream([1, 2, 3], max_new_tokens=1, logprobs=0, do_sample=True, top_k=0, seed=1, temperature=9.0)
    )
    assert sampled[0].logprob < 0 and sampled[0].top == ()


def test_biases_and_penalties(engine):
    plain = engine.generate([1, 2, 3], max_new_tokens=20, ignore_eos=True).tokens
    forced = engine.generate([1, 2, 3], max_new_tokens=3, logit_bias={65: 1000.0}, ignore_eos=True)
    assert forced.tokens == [65] * 3
    banned = engine.generate([1, 2, 3], max_new_tokens=20, logit_bias={plain[0]: -1000.0}, ignore_eos=True).tokens
    assert plain[0] not in banned
    # A penalty of the frequency that no logit outweighs: no token comes twice before all others came once.
    wide = engine.generate(
        [1, 2, 3], max_new_tokens=60, frequency_penalty=2.0, repetition_penalty=50.0, ignore_eos=True
    )
    assert len(set(wide.tokens)) > 40
    theirs = LanguageModel(engine._folder.path).generate(
        [1, 2, 3], max_new_tokens=20, repetition_penalty=1.3, ignore_eos=True
    )
    ours = engine.generate([1, 2, 3], max_new_tokens=20, repetition_penalty=1.3, ignore_eos=True)
    assert ours.tokens == theirs.tokens


def test_stops(engine):
    whole = engine.generate("the and ", max_new_tokens=40, ignore_eos=True)
    readable = [c for c in whole.text if c.isprintable() and c != "\ufffd"]
    stop = readable[len(readable) // 2]
    cut = engine.generate("the and ", max_new_tokens=40, ignore_eos=True, stop=stop)
    assert cut.finished == "stop" and cut.text == whole.text[: whole.text.index(stop)]
    token = engine.generate("the and ", max_new_tokens=40, stop_tokens=[whole.tokens[3]], ignore_eos=True)
    assert token.finished == "stop" and len(token.tokens) == whole.tokens.index(whole.tokens[3]) + 1


def test_constraints(engine):
    pytest.importorskip("llguidance", reason="grammars need the package llguidance")
    make = Constraints(engine._folder).make
    answers = [
        engine.submit("x", max_new_tokens=30, constraint=make("regex", "[0-9]{3}-[ab]+c"), do_sample=sample, seed=1)
        for sample in (False, True)
    ]
    beside = engine.submit([1, 2, 3], max_new_tokens=20, ignore_eos=True)
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    json = engine.generate("x", max_new_tokens=120, constraint=make("json_schema", schema))
    assert all(r.wait(WAIT) for r in (*answers, beside))
    import json as reader
    import re

    assert reader.loads(json.text)["n"] in (1, 2) and json.finished == "end"
    for r in answers:
        assert re.fullmatch("[0-9]{3}-[ab]+c", r.text) or (
            r.finished == "length" and re.fullmatch("[0-9]{3}-[ab]*", r.text)
        )
    assert beside.answer == engine.generate([1, 2, 3], max_new_tokens=20, ignore_eos=True).tokens
    for kind, text in (("regex", "(("), ("lark", "start: nothing"), ("json_schema", {"type": "no"}), ("other", "x")):
        with pytest.raises(sardonyx.InvalidArgumentError):
            make(kind, text)


def test_refusals(tmp_path):
    biased = llm_models.write(tmp_path / "bias", llm_models.Decoder(layers=1, mask="bias"))
    with pytest.raises(sardonyx.UnsupportedError, match="attention bias"):
        Engine(biased)
    plain = llm_models.write(tmp_path / "plain", llm_models.Decoder(layers=1))
    for memory in (1 << 50, 1000):
        with pytest.raises(sardonyx.DeviceError, match="cache_memory"):
            Engine(plain, cache_memory=memory)


def test_preempted_pages_in_host_memory(tmp_path, fake):
    """A request that gives way computes nothing twice; one that is cancelled meanwhile frees its places."""
    engine = fake(pages=9, swap_memory=8 << 10, share_prefixes=False, delay=0.002)
    low = engine.submit([5] * 40, max_new_tokens=20)
    events = iter(low)
    next(events)
    urgent = engine.submit([7] * 40, max_new_tokens=8, priority=1)
    assert urgent.wait(WAIT) and low.wait(WAIT) and low.preempted == 1
    assert low.answer == fake_decoder.continuation([5] * 40, 20)
    s = engine.statistics()
    assert s.restored_tokens >= 40 and s.prompt_tokens == 80
    waits = engine.submit([5] * 40, max_new_tokens=20)
    next(iter(waits))
    urgent = engine.submit([7] * 40, max_new_tokens=20, priority=1)
    next(iter(urgent))
    assert engine.statistics().used_host_pages > 0
    engine.cancel(waits)
    assert waits.wait(WAIT) and urgent.wait(WAIT)
    assert engine.statistics().used_host_pages == 0
