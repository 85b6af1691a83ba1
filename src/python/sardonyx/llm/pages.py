"""Which pages of the KV cache belong to which sequence. Full pages are shared by sequences that begin with the same tokens."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np


class PagePool:
    """Counts the users of each page. Page 0 is never given out: padding rows of a step are written there.

    A full page is known by the hash of all tokens up to its end. Unused pages keep their contents, and
    can be found by later prompts, until their memory is needed: the least recently used goes first.
    """

    def __init__(self, pages: int, rows: int, *, share: bool = True):
        """rows: tokens of a page. share: whether pages can be found by others."""
        self.pages, self.rows, self._share = pages, rows, share
        self._users = [0] * pages
        self._free = list(range(pages - 1, 0, -1))
        self._unused: OrderedDict[int, None] = OrderedDict()  # with contents that may be found
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def available(self) -> int:
        """Pages that take() can give."""
        return len(self._free) + len(self._unused)

    @property
    def used(self) -> int:
        return self.pages - 1 - self.available

    def take(self) -> int:
        """A page for one user. There must be one."""
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._unused.popitem(last=False)
            del self._page_of[self._key_of.pop(page)]
        self._users[page] = 1
        return page

    def release(self, page: int) -> None:
        """Removes a user."""
        self._users[page] -= 1
        if self._users[page]:
            return
        if page in self._key_of:
            self._unused[page] = None
        else:
            self._free.append(page)

    def forget(self) -> None:
        """The contents of all pages are lost. No page may have a user."""
        self._free += self._unused
        self._unused.clear()
        self._page_of.clear()
        self._key_of.clear()

    def key(self, before: bytes, tokens: Sequence[int]) -> bytes:
        """The name of a full page: `before` is that of the page before it, empty for the first."""
        return hashlib.sha256(before + np.asarray(tokens, np.int64).tobytes()).digest()

    def publish(self, page: int, key: bytes) -> None:
        """Registers a full page, so that later sequences find it. Of equal pages the first one stays."""
        if self._share and key not in self._page_of and page not in self._key_of:
            self._page_of[key] = page
            self._key_of[page] = key

    def find(self, tokens: Sequence[int], seed: bytes = b"") -> tuple[list[int], bytes]:
        """Full pages with the first of these tokens, each with a user added, and the last one's key. seed: the key before
        the first one; only texts with the same seed share pages."""
        found: list[int] = []
        last = seed
        for at in range(0, len(tokens) - self.rows + 1, self.rows):
            key = self.key(last, tokens[at : at + self.rows])
            page = self._page_of.get(key)
            if page is None:
                break
            if not self._users[page]:
                del self._unused[page]
            self._users[page] += 1
            found.append(page)
            last = key
        return found, last
