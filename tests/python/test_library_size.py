"""The size of libsardonyx.so, which every program that uses the library loads."""

import struct

import pytest
from cli_support import BUILD

LIBRARY = BUILD / "lib" / "libsardonyx.so"
MOST = 9.1e6  # a tenth above 8.3 MB, its size when most components were optimised for size


def loaded_bytes(path):
    """Bytes of the file that are mapped: sections for debuggers and symbol tables are not."""
    data = path.read_bytes()
    assert data[:5] == b"\x7fELF\x02", "not a 64-bit ELF file"
    (offset,) = struct.unpack_from("<Q", data, 32)
    entry, count = struct.unpack_from("<HH", data, 54)
    total = 0
    for k in range(count):
        kind, _, _, _, _, size = struct.unpack_from("<IIQQQQ", data, offset + k * entry)
        if kind == 1:  # PT_LOAD
            total += size
    return total


def test_library_is_small():
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "CMAKE_BUILD_TYPE:STRING=Release" not in cache or "SARDONYX_SANITIZE:STRING=\n" not in cache:
        pytest.skip("builds without optimisation or with a sanitizer are larger")
    assert loaded_bytes(LIBRARY) < MOST
