"""The scheduler limits prompts beside answers by the time that steps have taken, so that answers come evenly."""

import numpy as np
import pytest
from sardonyx.llm.engine_request import Request, RequestOptions
from sardonyx.llm.pages import PagePool
from sardonyx.llm.scheduler import Scheduler
from sardonyx.llm.search_options import SearchOptions
from sardonyx.llm.step_times import StepTimes

CLIENTS, STEPS = 8, 3000


def gaps(alone, each, times):
    """Seconds between tokens of answers of CLIENTS clients, where a step lasts `alone` and `each` for every token of a prompt;
    tokens of prompts in a step with answers."""
    scheduler = Scheduler(PagePool(4000, 64, share=False), most=CLIENTS, tokens=2048, parts=8, times=times)
    rng, search, options = np.random.default_rng(0), SearchOptions(), RequestOptions()
    number, between, parts, last = 0, [], [], {}
    now = 0.0
    for _ in range(STEPS):
        while len(scheduler.running) + len(scheduler.waiting) < CLIENTS:
            prompt = [1] * int(np.exp(rng.uniform(np.log(32), np.log(4097))))
            room = int(np.exp(rng.uniform(np.log(16), np.log(513))))
            scheduler.add(Request(number, prompt, search, options, decode=str, room=room))
            number += 1
        pieces = scheduler.plan()
        answers = sum(p.count == 1 for p in pieces)
        tokens = sum(p.count for p in pieces) - answers
        seconds = alone + each * -(-tokens // 64) * 64
        now += seconds
        if times and answers:
            times.add(answers, tokens, seconds)
        if answers and tokens:
            parts.append(tokens)
        for p in pieces:
            scheduler.launched(p)
            r = p.request
            r.unknown -= p.results
            scheduler.count(p)
            if not p.results:
                continue
            r.tokens.append(1)
            if r.number in last:
                between.append(now - last[r.number])
            last[r.number] = now
            if len(r.tokens) - r.prompt_tokens == r.room:
                scheduler.remove(r)
    return np.array(between), parts


@pytest.mark.parametrize(
    ("alone", "each"),
    [
        (1.1e-3, 5e-6),  # a model of 1B in float16
        (4.5e-3, 25e-6),  # of 8B
    ],
)
def test_time_between_tokens(alone, each):
    found, parts = gaps(alone, each, StepTimes())
    assert np.percentile(found, 99) < 3 * np.median(found)
    assert sum(n >= 64 for n in parts) > 10  # prompts go on in whole tiles


def test_without_times_few_answers_wait():
    """What the limit is for: the same trace without it."""
    found, parts = gaps(4.5e-3, 25e-6, None)
    assert np.percentile(found, 99) > 3 * np.median(found) and max(parts) > 400


def test_parts_are_not_made_too_small():
    """A model of 8B in int4, where a token of a prompt costs much beside a step of answers."""
    _, parts = gaps(3.7e-3, 55e-6, StepTimes())
    assert max(parts) > 400


def test_limits():
    times = StepTimes()
    assert times.most(8, 448) == 448  # nothing is known
    times.add(8, 0, 0.004)
    assert times.most(8, 448) == 448
    times.add(7, 448, 0.004 + 448 * 20e-6)  # 7 and 8 answers are the same program's
    assert times.most(8, 448) == 256 and times.most(5, 448) == 256  # 1.5 * 4 ms / 20 us: 300
    assert times.most(2, 448) == 256  # not known: the nearest
    times.add(2, 0, 0.002)
    assert times.most(2, 448) == 448  # 128 would be too small
    assert times.most(8, 128) == 128
    for _ in range(100):
        times.add(8, 64, 0.1)
    assert times.most(8, 448) == 448


def test_steps_that_mostly_have_prompts_are_not_limited():
    """What most steps last is what most answers wait for, so a limit by those without prompts would only cost tokens per second."""
    times = StepTimes()
    for _ in range(100):
        times.add(128, 0, 0.002)
    times.add(128, 448, 0.002 + 448 * 5.2e-6)
    assert times.most(128, 896) == 576  # 1.5 * 2 ms / 5.2 us
    for _ in range(1024):
        times.add(128, 448, 0.002 + 448 * 5.2e-6)
    assert times.most(128, 896) == 896


def test_a_slow_step_is_not_taken_for_all():
    times = StepTimes()
    for _ in range(20):
        times.add(8, 0, 0.004)
        times.add(8, 448, 0.008)
    before = times.most(8, 448)
    times.add(8, 448, 5.0)
    assert times.most(8, 448) >= before // 64 * 64 - 64
