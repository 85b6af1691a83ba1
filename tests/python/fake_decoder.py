"""A stand-in for the engine's decoder that computes nothing but checks everything: each page remembers which tokens were stored in it, and a step's tokens follow from what its tables of pages lead to.

The next token of a text is a hash of all its tokens, so any wrong page, position or order gives another text.
"""

import time
import zlib

import numpy as np
from sardonyx.llm.paged_decoder import Chosen


def next_token(tokens, vocabulary, end):
    """What the fake model continues a text with; never its end token."""
    token = zlib.crc32(np.asarray(tokens, np.int64).tobytes()) % (vocabulary - 3)
    return token if token != end else token + 1


def continuation(tokens, count, vocabulary=258, end=257):
    text = list(tokens)
    for _ in range(count):
        text.append(next_token(text, vocabulary, end))
    return text[len(tokens) :]


class FakeDecoder:
    """Takes the place of paged_decoder.PagedDecoder."""

    delay = 0.0  #: seconds of a step
    fails = None  #: an exception of the next step
    immediate = True
    ahead = False  #: whether steps may be started before the results of earlier ones are read
    stages = 1  #: how many steps of different requests are in flight at a time
    both = False  #: whether a part of a prompt may be in a step with tokens of answers
    script = None  #: tokens of every answer, then the end token; None: the hash

    def __init__(self, folder, *, rows, cache_memory, wanted_pages, host_memory=0, **_):
        self.folder, self.rows, self.device, self.page_bytes = folder, rows, "fake", 1024
        self.pages = 1 + (cache_memory // self.page_bytes if cache_memory else wanted_pages)
        self.memory = np.full((self.pages, rows), -1, np.int64)
        self.host_places = host_memory // self.page_bytes
        self.kept = np.full((self.host_places, rows), -2, np.int64)
        self.copies = self
        self.later = []  # computes the steps whose results have not been read
        self.steps = []  #: of each: (tokens of the piece, ...)
        self.last = {}  #: by slot: the token that was chosen last
        self.most_flying = self.flying = 0  #: steps whose results have not been read

    def program(self, kind, single):
        return None

    def take(self, pages, places):
        """After the steps that have been started, as on a GPU's stream."""
        for compute in self.later:
            compute()
        self.kept[places] = self.memory[pages]

    def give(self, places, pages):
        for compute in self.later:
            compute()
        self.memory[pages] = self.kept[places]

    def warm_up(self, kind, sequences, tokens, beside):
        return 0

    def joins(self, part, answers):
        return self.ahead and self.both

    def start(self, pieces, kind, single):
        """Computes it at once, or, like a GPU, when somebody waits for the results."""
        given = [(p, [*p.request.tokens, *p.guesses], list(p.request.pages), p.request.slot) for p in pieces]
        assert self.ahead or not any(p.unknown for p in pieces)
        if self.immediate:
            chosen = self.run(given, kind)
            return lambda: chosen
        self.flying += 1
        self.most_flying = max(self.flying, self.most_flying)
        order = self.started = getattr(self, "started", 0) + 1
        found = []
        compute = lambda: found or found.append(self.run(given, kind))
        self.later.append(compute)

        def wait():
            assert order == self.started - self.flying + 1, "steps are read in another order than they were started"
            self.flying -= 1
            compute()
            self.later.remove(compute)
            return found[0]

        return wait

    def run(self, given, kind):
        if self.fails:
            error, self.fails = self.fails, None
            raise error
        time.sleep(self.delay)
        self.steps.append(tuple(p.count for p, *_ in given))
        written = set()
        for p, tokens, pages, slot in given:
            if p.unknown:
                tokens.append(self.last[slot])
            assert len(set(pages)) == len(pages) and 0 not in pages
            assert len(pages) * self.rows >= p.start + p.count
            for at in range(p.start, p.start + p.count):
                place = pages[at // self.rows], at % self.rows
                assert place not in written, "two sequences write to one place"
                written.add(place)
                self.memory[place] = tokens[at]
        chosen = []
        for p, tokens, pages, slot in given:
            end = p.start + p.count
            assert p.results == 0 or end == len(tokens)
            text = self.memory[pages].reshape(-1)[:end].tolist()
            assert text == tokens[:end], "the pages hold another text"
            for length in range(end - p.results + 1, end + 1):
                if self.script is not None:
                    at = length - p.request.prompt_tokens
                    chosen.append(self.script[at] if at < len(self.script) else self.folder.ends[0])
                else:
                    chosen.append(next_token(text[:length], self.folder.vocabulary, self.folder.ends[0]))
                if p.request.allowed is not None:  # the token itself, or one of the constraint's
                    bits = np.unpackbits(p.request.allowed.view(np.uint8), bitorder="little")
                    allowed = np.flatnonzero(bits[: self.folder.vocabulary])
                    if chosen[-1] not in allowed:
                        chosen[-1] = int(allowed[chosen[-1] % len(allowed)])
                self.last[slot] = chosen[-1]
        return Chosen(chosen, *self._logprobs(len(chosen), kind))

    def _logprobs(self, count, kind):
        if not kind.logprobs:
            return ()
        return np.full(count, -0.5), np.tile(np.arange(20), (count, 1)), np.tile(-np.arange(1.0, 21), (count, 1))
