"""Counters of the simulated GPU of this process."""

import contextlib
import ctypes
import json

from cli_support import BUILD


def launches():
    """How often this process has launched a kernel on the simulated GPU."""
    count = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so").sardonyxSimCount
    count.restype, count.argtypes = ctypes.c_longlong, [ctypes.c_char_p]
    return count(b"kernel_launches")


@contextlib.contextmanager
def counted():
    """A dict that has, after the block, the wave-instructions by kind that the simulated GPUs of this process executed in it."""
    lib = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so")
    lib.sardonyxSimSummary.restype = ctypes.c_char_p
    lib.sardonyxSimConfigure.argtypes = [ctypes.c_char_p]
    assert lib.sardonyxSimConfigure(b'{"summary": true}') == 0
    lib.sardonyxSimResetSummary()
    kinds = {}
    try:
        yield kinds
        for kernel in json.loads(lib.sardonyxSimSummary().decode()).values():
            for kind, n in kernel["instructions"].items():
                kinds[kind] = kinds.get(kind, 0) + n
    finally:
        assert lib.sardonyxSimConfigure(b'{"summary": false}') == 0


@contextlib.contextmanager
def traffic():
    """A dict that has, after the block, the bytes that the simulated GPUs of this process moved in it: "global_read", "lds_written" and so
    on. For use inside of counted()."""
    lib = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so")
    lib.sardonyxSimSummary.restype = ctypes.c_char_p
    moved = {}
    yield moved
    for kernel in json.loads(lib.sardonyxSimSummary().decode()).values():
        for kind, n in kernel["bytes"].items():
            moved[kind] = moved.get(kind, 0) + n
