"""Sizes of steps in which parts of prompts are computed beside answers, in rows of the step's GEMMs.

Answers come first, one row each, in room for a power of two. The tokens of prompts follow in tiles of PART rows, the last of
which may have fewer. There is a captured graph for each pair of sizes, so sizes are few: those with which answers and tokens
together have a number of rows that kernels of GEMMs are made for, whole tiles or half a one. A row more may cost much: with
4-bit weights on Hopper, for instance, 64 rows take little more than half the time of 72.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

#: Tokens of a part of a prompt in a step with several sequences: rows of a tile of attention. Longer parts are several.
PART = 64
#: Rows of a step with answers and prompts: at most so many, or for each answer. A step's time grows with them, so few answers
#: are not delayed much, and many get as many prompts after them as they need to go on together.
_ROWS, _ROWS_EACH = 512, 8


def room_of(answers: int) -> int:
    """Rows for so many answers."""
    return max(8, 1 << (answers - 1).bit_length())


def tiles_of(count: int) -> int:
    """How many sequences of PART tokens a part of a prompt takes."""
    return -(-count // PART)


def in_order(parts: Sequence[int]) -> list[int]:
    """How parts of so many tokens lie in a step: each begins a tile, and that which leaves the most rows of its last tile
    unused is the last one, so that these rows are not computed."""
    return sorted(range(len(parts)), key=lambda k: -parts[k] % PART)


def most_beside(answers: int) -> int:
    """Tokens of prompts in a step beside so many answers."""
    room = room_of(answers)
    return max(_ROWS, _ROWS_EACH * room) - room


def _sizes(room: int) -> Iterator[int]:
    """Tokens of prompts beside `room` answers for which there are graphs, the smallest first."""
    within = room % PART  # of a tile, with fewer answers than it has rows
    if room < PART // 2:
        yield PART // 2 - room
    tokens = 0
    while True:
        tokens += PART if tokens < 512 else 2 * PART if tokens < 1024 else 4 * PART
        yield tokens - within


def sizes_beside(answers: int, most: int) -> list[int]:
    """The tokens of prompts beside so many answers for which there are graphs, up to `most`."""
    found = []
    for tokens in _sizes(room_of(answers)):
        if tokens > most:
            return found
        found.append(tokens)
    return found


def rounded_both(answers: int, tokens: int) -> tuple[int, int]:
    """The sizes of the graph in which so many answers, and so many tokens of prompts beside them, are computed."""
    room = room_of(answers)
    return room, next(t for t in _sizes(room) if t >= tokens)


def size_of(answers: int, results: int, parts: Sequence[int]) -> tuple[int, int]:
    """The same for a step of so many answers and parts of prompts, which gives so many tokens: there are as many rows of logits
    as of answers."""
    whole = PART * sum(map(tiles_of, parts))
    return rounded_both(max(answers, results), whole - max(-count % PART for count in parts))


def sizes_of_both(sequences: int, beside: Callable[[int], int], context: int) -> list[tuple[int, int]]:
    """The sizes for up to so many sequences; beside: how many tokens of a prompt can be beside so many answers. The largest
    first."""
    found = set()
    for answers in range(1, sequences + 1):  # or results
        most = min(beside(answers), context)
        sizes = sizes_beside(answers, most) or ([rounded_both(answers, most)[1]] if most > 0 else [])
        found |= {(room_of(answers), tokens) for tokens in sizes}
    return sorted((s for s in found if s[1] <= context), key=lambda s: (-s[1], -s[0]))
