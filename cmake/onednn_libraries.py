"""onednn_libraries.py FROM TO: copies oneDNN's library and makes it independent of the run-time libraries of Intel's compiler.

The package onednn-cpu-tbb was linked by that compiler and names libimf (of which it uses C's mathematical functions) and
libintlc (_intel_fast_memcpy and _intel_fast_memset), which the package does not contain. The copy names libm and libc
instead; libsardonyx defines the two functions (src/host/dnnl_memory.cpp). A library without these names is copied as it is.
"""

import os
import sys

RENAMED = {b"libimf.so": b"libm.so.6", b"libintlc.so.5": b"libc.so.6"}


def main(source: str, target: str) -> None:
    with open(source, "rb") as file:
        data = file.read()
    for old, new in RENAMED.items():
        entry = b"\0" + old + b"\0"  # of the dynamic string table
        if data.count(entry) > 1:
            sys.exit(f"{source} names {old.decode()} {data.count(entry)} times; expected one entry of its string table")
        data = data.replace(entry, b"\0" + new.ljust(len(old), b"\0") + b"\0")
    if os.path.exists(target):
        with open(target, "rb") as file:
            if file.read() == data:
                return
    # A new file: programs that have the old one mapped keep it.
    with open(target + ".new", "wb") as file:
        file.write(data)
    os.replace(target + ".new", target)


main(*sys.argv[1:])
