"""The scheduler limits prompts beside answers by the time that steps have taken, so that answers come evenly."""

import numpy as np
import pytest
from sardonyx.llm.engine_request import Request, RequestOptions
from sardonyx.llm.pages import PagePool
from sardonyx.llm.scheduler import Scheduler
from sardonyx.llm.search_options import SearchOptions
from sardonyx.llm.step_sizes import size_of, sizes_beside
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


def kernels(answers, tokens):
    """The same with 4 bits and kernels of up to 64 and up to 128 rows, of which the second takes almost twice as long."""
    rows = answers + tokens
    gemms = 1.9 if rows <= 8 else 3.3 if rows <= 64 else 5.8 if rows <= 128 else 4.6 + max(3.9, 2.45 * -(-rows // 128))
    beside = 0.9 + 0.0012 * tokens if tokens else 0
    return (gemms + 0.3 + 0.045 * answers + beside) * 1e-3


def gaps(cost, times, clients=8):
    """After LEARNING steps, seconds between tokens of answers of so many clients, where a step lasts cost(answers, tokens of prompts); tokens of prompts
    in a step with answers; tokens of answers per second."""
    scheduler = Scheduler(PagePool(9000, 64, share=False), most=64, tokens=2048, parts=8, times=times)
    rng, noise, search, options = np.random.default_rng(0), np.random.default_rng(1), SearchOptions(), RequestOptions()
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
        counts = [p.count for p in pieces if p.count > 1]
        answers, tokens = len(pieces) - len(counts), sum(counts)
        room, rows = answers, tokens
        if answers and tokens:
            room, rows = size_of(answers, sum(p.results for p in pieces), counts)
            assert room + rows <= 512 or room > 64
        seconds = cost(room, rows) * noise.normal(1, 0.04)  # contexts differ
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


EVEN = [
    (linear(1.1e-3, 5e-6), 0.97),  # a model of 1B in float16
    (linear(4.5e-3, 25e-6), 0.97),  # of 8B
    (tiles(0, 0), 1.0),
    (tiles(0.02, 5.7), 1.0),  # in int4
]


@pytest.mark.parametrize(("cost", "least"), EVEN)
def test_time_between_tokens(cost, least):
    """Answers come evenly, and their tokens per second are at least so many of those without a limit: where that costs any, time
    between tokens is much more even for it."""
    found, parts, speed = gaps(cost, StepTimes())
    assert np.percentile(found, 99) < 3 * np.median(found)
    assert sum(n >= 24 for n in parts) > 10  # prompts go on in whole sizes
    assert speed > least * gaps(cost, None)[2]


def test_even_answers_are_worth_a_tenth():
    """64 rows are computed in fewer microseconds each than any that are not many, but 56 tokens beside 8 answers still take more
    time for each token than long parts, which therefore stay."""
    found, parts, speed = gaps(kernels, StepTimes())
    assert speed > 0.9 * gaps(kernels, None)[2]
    assert np.median([n for n in parts if n >= 24]) > 56 and np.percentile(found, 99) > 3 * np.median(found)


def test_without_times_few_answers_wait():
    """What the limit is for: the same trace without it."""
    found, parts, _ = gaps(linear(4.5e-3, 25e-6), None)
    assert np.percentile(found, 99) > 3 * np.median(found) and max(parts) > 500
    found, _, _ = gaps(kernels, None)
    assert np.percentile(found, 99) > 6 * np.median(found)


@pytest.mark.parametrize("cost", [linear(3.7e-3, 55e-6), tiles(0.1, 5.7)])
def test_parts_are_not_made_too_small(cost):
    """Where small parts cost more than a tenth of the tokens per second, these come first."""
    _, parts, speed = gaps(cost, StepTimes())
    assert max(parts) > 400 and speed > 0.9 * gaps(cost, None)[2]


@pytest.mark.parametrize("cost", [linear(1.65e-3, 3e-6), tiles(0, 0), tiles(0.02, 5.7), kernels])
def test_many_clients_do_not_wait_for_small_parts(cost):
    """Parts that cost little for each token would leave most of the clients without answers."""
    _, parts, speed = gaps(cost, StepTimes(), 64)
    assert np.mean(parts) > 300 and speed > 0.98 * gaps(cost, None, 64)[2]


def test_limits():
    times = StepTimes()
    assert times.most(8, 504, 8) == 504  # nothing is known
    for _ in range(100):
        times.add(8, 0, 0.004)
    assert times.most(8, 504, 8) == 504
    times.add(7, 504, 0.004 + 504 * 20e-6)  # 7 and 8 answers are the same program's
    # 1.5 * 4 ms / 20 us: 300, and sizes that have not been measured may take a tenth more
    assert times.most(8, 504, 8) <= 312 and times.most(5, 504, 5) <= 312
    assert times.most(2, 504, 2) <= 312  # not known: the nearest
    assert times.most(8, 24, 8) == 24
    for tokens in sizes_beside(8, 504):  # the last but one is much better for each token
        for _ in range(100):
            times.add(8, tokens, 0.004 + (0.001 if tokens == 440 else 0.006))
    assert times.most(8, 504, 8) == 440


def test_steps_that_mostly_have_prompts_are_not_limited():
    """What most steps last is what most answers wait for, so a limit by those without prompts would only cost tokens per second."""
    few, many = StepTimes(), StepTimes()
    for times, each in (few, 1), (many, 6):  # tokens of prompts for each token of an answer
        for step in range(4000):
            tokens = 0 if step % 8 else (128, 384, 768, 896)[step // 8 % 4]
            tokens = tokens if each == 1 else (step % 4 and 896)
            times.add(128, tokens, 0.002 + (0.0005 + tokens * 5.2e-6 if tokens else 0))
    assert few.most(128, 896, 128) <= 512  # (1.5 * 2 ms - 0.5) / 5.2 us
    assert many.most(128, 896, 128) > 512


def test_a_slow_step_is_not_taken_for_all():
    times = StepTimes()
    for _ in range(20):
        times.add(8, 0, 0.004)
        times.add(8, 504, 0.008)
    before = times.most(8, 504, 8)
    times.add(8, 504, 5.0)
    assert times.most(8, 504, 8) >= before - 64
