"""Keeps the memory of a server that runs for long flat."""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # of glibc's malloc.h


def use_one_arena() -> None:
    """glibc gives each thread a heap of its own, up to eight for each core, and returns hardly anything of them: what many
    threads have needed at any time adds up. With one heap for all threads they reuse each other's memory. Python's own
    small objects are not in it. Call it first: heaps that exist stay. Other C libraries have no such heaps."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def freeze_objects() -> None:
    """Collections no longer look at the objects that exist now, modules and models. Otherwise cycles are kept until they
    are a quarter of these, and a collection of all of them delays every request. Call it when the models are loaded."""
    gc.collect()
    gc.freeze()
