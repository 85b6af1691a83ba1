"""What the simulated card of this process has done."""

import ctypes

from cli_support import BUILD


def launches():
    """How often this process has launched a kernel on the simulated card."""
    count = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so").sardonyxSimCount
    count.restype, count.argtypes = ctypes.c_longlong, [ctypes.c_char_p]
    return count(b"kernel_launches")
