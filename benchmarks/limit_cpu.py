"""Runs a command as on a CPU with AVX2: CPUID shows no AVX-512, no AMX and no AVX-VNNI, to every library of its processes.

    python benchmarks/limit_cpu.py python benchmarks/run.py resnet50

For comparisons on AVX2 where the other engine has no option for it. x86-64 Linux, a C compiler (CC, cc by default), and a CPU that can make
CPUID fault (`cpuid_fault` in /proc/cpuinfo). limit_cpu.c says what the result means.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
#: The C library chose before: its functions for AVX-512 are off too.
TUNABLES = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ"


def possible() -> bool:
    """Whether this CPU can make CPUID fault; the kernel may still refuse."""
    if platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists():
        return False
    return re.search(r"\bcpuid_fault\b", Path("/proc/cpuinfo").read_text()) is not None


def library(folder: Path) -> Path:
    """Builds the library that is preloaded."""
    out = folder / "limit_cpu.so"
    # initfirst: before the initialisers of other libraries, which may keep what CPUID told them.
    flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-z,initfirst"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, SOURCE, "-o", out, "-ldl"], check=True)
    return out


def environment(preload: Path) -> dict[str, str]:
    """Variables for processes that the library limits."""
    return {
        "LD_PRELOAD": f"{preload}:{os.environ['LD_PRELOAD']}" if os.environ.get("LD_PRELOAD") else str(preload),
        "GLIBC_TUNABLES": TUNABLES,
    }


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not possible():
        print("limit_cpu: this CPU cannot make CPUID fault (no cpuid_fault in /proc/cpuinfo)", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(sys.argv[1:], env=os.environ | environment(library(Path(folder))), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
