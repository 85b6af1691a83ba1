"""Sizes of steps with answers and parts of prompts: few, and such that both together fill tiles of GEMMs."""

import itertools

import pytest
from sardonyx.llm.engine_request import Request, RequestOptions
from sardonyx.llm.pages import PagePool
from sardonyx.llm.scheduler import Scheduler
from sardonyx.llm.search_options import SearchOptions
from sardonyx.llm.step_sizes import in_order, most_beside, room_of, size_of, sizes_beside, sizes_of_both


@pytest.mark.parametrize("answers", [1, 5, 8, 9, 16, 30, 33, 64, 65, 200])
def test_rows_are_whole_tiles(answers):
    sizes = sizes_beside(answers, most_beside(answers))
    rows = [room_of(answers) + tokens for tokens in sizes]
    assert all(r == 32 or r % 64 == 0 for r in rows) and rows == sorted(set(rows))
    assert rows[-1] == max(512, 8 * room_of(answers))
    assert min(sizes) <= max(64, answers) and len(sizes) <= 15
    for tokens in sizes:  # the last tile has two tokens at least: see PagedAttention
        assert tokens % 64 != 1


def test_parts_fit_the_size_that_they_were_made_for():
    """The part that leaves the most of its last tile unused is the last one, whatever the order in which parts were made."""
    for parts in ([56], [100, 376], [64, 64, 56], [2] * 3 + [56], [33, 2, 370]):
        whole = sum(-(-n // 64) * 64 for n in parts)
        for order in itertools.permutations(parts[:3]):
            own = [*order, *parts[3:]]
            assert size_of(8, 8, own)[1] - 64 < whole - max(-n % 64 for n in parts) <= size_of(8, 8, own)[1]
            assert sorted(in_order(own)) == list(range(len(own))) and own[in_order(own)[-1]] % 64 in {
                n % 64 for n in parts if -n % 64 == max(-m % 64 for m in parts)
            }
    assert size_of(8, 8, [100, 376]) == size_of(8, 8, [376, 100]) == (8, 504)
    assert size_of(8, 9, [48]) == (16, 48)  # there are as many rows of logits as of answers
    assert size_of(3, 3, [5]) == (8, 24)


def test_few_graphs():
    sizes = sizes_of_both(64, lambda answers: min(most_beside(answers), 512 - answers), 8192)
    assert len(sizes) <= 36 and sizes == sorted(sizes, key=lambda s: (-s[1], -s[0]))
    assert {(8, 504), (8, 56), (8, 24), (16, 48), (32, 480), (64, 448)} <= set(sizes)
    assert sizes_of_both(4, lambda answers: 20 - answers, 8192) == [(8, 24)]  # smaller than all


def plan(answers, prompts, times=None, most=64):
    """A step with so many answers, and what prompts of these lengths get in it."""
    scheduler = Scheduler(PagePool(9000, 64, share=False), most=most, tokens=2048, parts=8, times=times)
    search, options = SearchOptions(), RequestOptions()
    for k in range(answers):
        scheduler.add(Request(k, [1], search, options, decode=str, room=100))
    while scheduler.waiting:
        for p in scheduler.plan():
            scheduler.launched(p)
            p.request.unknown -= 1
            scheduler.count(p)
            p.request.tokens.append(1)
    for k, n in enumerate(prompts):
        scheduler.add(Request(answers + k, [1] * n, search, options, decode=str, room=100))
    return [p for p in scheduler.plan() if p.count > 1]


class Fixed:
    """Times by which the best size has so many tokens."""

    def __init__(self, tokens):
        self.tokens = tokens

    def most(self, answers, tokens, clients):
        assert self.tokens <= tokens
        return self.tokens


def test_parts_fill_a_size():
    assert [p.count for p in plan(7, [4000])] == [504]
    assert [p.count for p in plan(7, [100, 4000])] == [100, 376]  # the first takes two tiles
    assert [p.count for p in plan(7, [4000], Fixed(56))] == [56]
    assert [p.count for p in plan(7, [40, 4000], Fixed(56))] == [40]
    assert [p.count for p in plan(7, [64, 4000], Fixed(120))] == [64, 56]
    assert [p.count for p in plan(30, [4000], Fixed(32))] == [32]


def test_the_last_part_of_a_prompt_has_room_for_its_token():
    """With 8 answers the token of a ninth takes eight rows more, which the prompt does not get."""
    (part,) = plan(8, [48], Fixed(56))
    assert part.count == 48 and part.results == 1
    (part,) = plan(8, [50], Fixed(56))
    assert part.count == 48 and part.results == 0 and sum(size_of(8, 8, [part.count])) == 64
    (part,) = plan(32, [30], Fixed(32))  # there is no such room in this size: a larger one
    assert part.count == 30 and part.results == 1
