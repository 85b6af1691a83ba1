"""The scheduler limits prompts beside answers by the time that steps have taken, so that answers come evenly."""

import numpy as np
import pytest
from sardonyx.llm.engine_request import Request, RequestOptions
from sardonyx.llm.pages import PagePool
from sardonyx.llm.scheduler import Scheduler
from sardonyx.llm.search_options import SearchOptions
from sardonyx.llm.step_times import StepTimes

STEPS, LEARNING = 3500, 500


def linear(alone, each):
    return lambda answers, tokens: alone + each * tokens


def tiles(few, unpacking):
    """A model of 8B on an H200: GEMMs of 128 rows take as long as reading 16-bit weights. With 4 bits, up to 128 rows take `few`
    each, and more must first be unpacked."""

    def seconds(answers, tokens):
        rows = answers + tokens
        gemms = 1.9 + few * rows if few and rows <= 128 else unpacking + max(3.9, 2.6 * -(-rows // 128))
        return (gemms + 0.5 + 0.045 * answers + 0.0018 * tokens) * 1e-3

    return seconds


def gaps(cost, times, clients=8):
    """After LEARNING steps, seconds between tokens of answers of so many clients, where a step lasts cost(answers, tokens of prompts); tokens of prompts
    in a step with answers; tokens of answers per second."""
    scheduler = Scheduler(PagePool(9000, 64, share=False), most=64, tokens=2048, parts=8, times=times)
    rng, search, options = np.random.default_rng(0), SearchOptions(), RequestOptions()
    number, between, parts, last = 0, [], [], {}
    now = begun = 0.0
    for step in range(STEPS):
        while len(scheduler.running) + len(scheduler.waiting) < clients:
            prompt = [1] * int(np.exp(rng.uniform(np.log(32), np.log(4097))))
            length = int(np.exp(rng.uniform(np.log(16), np.log(513))))
            scheduler.add(Request(number, prompt, search, options, decode=str, room=length))
            number += 1
        begun = now if step == LEARNING else begun
        pieces = scheduler.plan()
        answers = sum(p.count == 1 for p in pieces)
        tokens = sum(p.count for p in pieces) - answers
        room = max(8, 1 << (answers - 1).bit_length()) if answers else 0
        seconds = cost(room, sum(-(-p.count // 64) * 64 for p in pieces if p.count > 1))
        now += seconds
        scheduler.measured(pieces, seconds)
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
            if r.number in last and step >= LEARNING:
                between.append(now - last[r.number])
            last[r.number] = now
            if len(r.tokens) - r.prompt_tokens == r.room:
                scheduler.remove(r)
    return np.array(between), parts, len(between) / (now - begun)


@pytest.mark.parametrize(
    "cost",
    [
        linear(1.1e-3, 5e-6),  # a model of 1B in float16
        linear(4.5e-3, 25e-6),  # of 8B
        tiles(0, 0),
        tiles(0.02, 5.7),  # in int4
    ],
)
def test_time_between_tokens(cost):
    found, parts, speed = gaps(cost, StepTimes())
    assert np.percentile(found, 99) < 3 * np.median(found)
    assert sum(n >= 64 for n in parts) > 10  # prompts go on in whole tiles
    assert speed > 0.9 * gaps(cost, None)[2]


def test_without_times_few_answers_wait():
    """What the limit is for: the same trace without it."""
    found, parts, _ = gaps(linear(4.5e-3, 25e-6), None)
    assert np.percentile(found, 99) > 3 * np.median(found) and max(parts) > 400


@pytest.mark.parametrize("cost", [linear(3.7e-3, 55e-6), tiles(0.1, 5.7)])
def test_parts_are_not_made_too_small(cost):
    """Where smaller parts cost much more for each token, tokens per second come first."""
    _, parts, speed = gaps(cost, StepTimes())
    assert max(parts) > 400 and speed > 0.9 * gaps(cost, None)[2]


@pytest.mark.parametrize("cost", [linear(1.65e-3, 3e-6), tiles(0, 0), tiles(0.02, 5.7)])
def test_many_clients_do_not_wait_for_small_parts(cost):
    """Parts that cost little for each token would leave most of the clients without answers."""
    _, parts, speed = gaps(cost, StepTimes(), 64)
    assert np.mean(parts) > 300 and speed > 0.95 * gaps(cost, None, 64)[2]


def test_limits():
    times = StepTimes()
    assert times.most(8, 448, 8) == 448  # nothing is known
    times.add(8, 0, 0.004)
    assert times.most(8, 448, 8) == 448
    times.add(7, 448, 0.004 + 448 * 20e-6)  # 7 and 8 answers are the same program's
    # 1.5 * 4 ms / 20 us: 300, and sizes that have not been measured may take a tenth more
    assert times.most(8, 448, 8) <= 320 and times.most(5, 448, 5) <= 320
    assert times.most(2, 448, 2) <= 320  # not known: the nearest
    assert times.most(8, 64, 8) == 64
    for tokens in range(64, 449, 64):  # the last but one is much better for each token
        for _ in range(100):
            times.add(8, tokens, 0.004 + (0.001 if tokens == 384 else 0.006))
    assert times.most(8, 448, 8) == 384


def test_steps_that_mostly_have_prompts_are_not_limited():
    """What most steps last is what most answers wait for, so a limit by those without prompts would only cost tokens per second."""
    times = StepTimes()
    for _ in range(100):
        times.add(128, 0, 0.002)
    for tokens in range(64, 897, 64):
        times.add(128, tokens, 0.002 + tokens * 5.2e-6)
    assert times.most(128, 896, 128) <= 576  # 1.5 * 2 ms / 5.2 us
    for _ in range(1024):
        times.add(128, 832, 0.002 + 832 * 5.2e-6)
    assert times.most(128, 896, 128) > 576


def test_a_slow_step_is_not_taken_for_all():
    times = StepTimes()
    for _ in range(20):
        times.add(8, 0, 0.004)
        times.add(8, 448, 0.008)
    before = times.most(8, 448, 8)
    times.add(8, 448, 5.0)
    assert times.most(8, 448, 8) >= before - 64
