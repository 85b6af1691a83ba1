"""What the engine needs of a decoder, on one device (paged_decoder.py) or several (paged_parallel.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .host_pages import Copies
from .paged_sampling import Chosen, StepKind
from .scheduler import Piece


class StepDecoder(Protocol):
    """Used by one thread at a time but for program()."""

    @property
    def device(self) -> str: ...

    @property
    def pages(self) -> int:
        """Of the KV cache, page 0 included, which no sequence gets."""
        ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def ahead(self) -> bool:
        """Whether a step may be started before the results of the one before it have been read."""
        ...

    @property
    def stages(self) -> int:
        """How many steps of different requests are computed at a time."""
        ...

    @property
    def copies(self) -> Copies:
        """Copies pages to the host and back."""
        ...

    @property
    def host_places(self) -> int:
        """How many pages fit the host memory for them."""
        ...

    def joins(self, part: Piece, answers: Sequence[Piece]) -> bool:
        """Whether a part of a prompt can be the last piece of a step. Those before it have one token each, or are parts that
        have joined."""
        ...

    def program(self, kind: StepKind, single: bool) -> object:
        """Compiles the program of a step, if it has not been compiled. single: as for start()."""
        ...

    def warm_up(self, kind: StepKind, sequences: int, tokens: int, beside: Callable[[int], int]) -> int:
        """Compiles a kind's programs with all kernels and, on GPUs, makes the captured graphs of its steps: of up to so many sequences, of prompts' parts of up
        to so many tokens, and of beside(n) tokens beside n answers. Returns how many it has made. No step is in flight."""
        ...

    def start(self, pieces: Sequence[Piece], kind: StepKind, single: bool) -> Callable[[], Chosen]:
        """Computes the pieces together. What it returns waits for the results, which are those of the pieces that give a
        token, in order. single: one piece, whose tokens are computed as one block of attention; so are those of each part
        of a prompt that joins() the pieces of one token before it."""
        ...
