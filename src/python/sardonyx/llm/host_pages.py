"""Pages of the KV cache in host memory: where a preempted request's keys and values wait for it to run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from .._sardonyx import Stream, Tensor
from ..device import pinned
from .engine_request import Request

Array = np.ndarray[Any, Any]


class HostCopies:
    """Copies pages of a device's caches to host memory and back."""

    def __init__(self, caches: Sequence[Tensor], places: int, device: str, stream: Stream | None):
        """places: pages that the host memory has room for. Raises DeviceError if there is not that much."""
        self._caches, self._stream = caches, stream
        self._bytes = [t.nbytes // t.shape[0] for t in caches]  # of a page
        self._kept = [pinned([places, size], np.uint8, device) for size in self._bytes] if places else []

    def take(self, pages: Sequence[int], places: Sequence[int]) -> None:
        """Copies pages of the caches to places in host memory, after the steps that have been started."""
        self._wait()
        for cache, size, kept in zip(self._caches, self._bytes, self._kept):
            for page, place, count in _runs(pages, places):
                kept[place : place + count] = cache._part(page * size, "uint8", [count, size]).numpy()

    def give(self, places: Sequence[int], pages: Sequence[int]) -> None:
        """Copies them back. Steps in flight may still write to these pages for the request that had them before."""
        self._wait()
        for cache, size, kept in zip(self._caches, self._bytes, self._kept):
            for page, place, count in _runs(pages, places):
                from_ = kept[place : place + count]
                raw = from_.ctypes.data, "uint8", [count, size], False
                cache._part(page * size, "uint8", [count, size])._copy_from(raw)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _runs(pages: Sequence[int], places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """First page, first place and number of pages that follow each other in both."""
    begin = 0
    for k in range(1, len(pages) + 1):
        if k == len(pages) or pages[k] != pages[k - 1] + 1 or places[k] != places[k - 1] + 1:
            yield pages[begin], places[begin], k - begin
            begin = k


class Copies(Protocol):
    """What copies pages: of one device (HostCopies), or of all devices of a model."""

    def take(self, pages: Sequence[int], places: Sequence[int]) -> None: ...

    def give(self, places: Sequence[int], pages: Sequence[int]) -> None: ...


class HostPages:
    """Which places in host memory belong to which request. Used by the engine's thread."""

    def __init__(self, copies: Copies, places: int, rows: int):
        """rows: tokens of a page."""
        self.places, self._copies, self._rows = places, copies, rows
        self._free = list(range(places - 1, -1, -1))
        self._of: dict[int, tuple[list[int], int]] = {}  # by request: its places, and its tokens in them
        self.restored = 0  #: tokens that were copied back

    @property
    def used(self) -> int:
        return self.places - len(self._free)

    def keep(self, r: Request) -> bool:
        """Copies what the request has in the cache, if there is room for it. It still has its pages."""
        count = -(-r.computed // self._rows)
        if not 0 < count <= len(self._free):
            return False
        places = [self._free.pop() for _ in range(count)]
        self._copies.take(r.pages[:count], places)
        self._of[r.number] = places, r.computed
        return True

    def tokens(self, r: Request) -> int:
        """Of the request that are kept."""
        return self._of[r.number][1] if r.number in self._of else 0

    def restore(self, r: Request, pages: list[int], shared: int) -> int:
        """Copies what was kept to the request's pages, but for the first `shared` ones, which have it already. Returns how many
        tokens are in its pages then."""
        places, tokens = self._of[r.number]
        if len(places) > shared:
            self._copies.give(places[shared:], pages[shared : len(places)])
        self.restored += max(0, tokens - shared * self._rows)
        self.drop(r)
        return max(tokens, shared * self._rows)

    def drop(self, r: Request) -> None:
        places, _ = self._of.pop(r.number, ([], 0))
        self._free += reversed(places)

    def forget(self) -> None:
        """What was kept is lost."""
        self._of.clear()
        self._free = list(range(self.places - 1, -1, -1))
