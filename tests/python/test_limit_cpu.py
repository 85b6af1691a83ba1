"""benchmarks/limit_cpu.py: processes in which CPUID shows a CPU with AVX2."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import sardonyx as command

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import limit_cpu

# A kernel may refuse what the CPU can do: its library then ends the process with this message.
REFUSED = "CPUID does not fault"


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    if not limit_cpu.possible():
        pytest.skip("this CPU cannot make CPUID fault")
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("needs a C compiler")
    environment = limit_cpu.environment(limit_cpu.library(tmp_path_factory.mktemp("limit_cpu")))
    tried = subprocess.run(["true"], env=os.environ | environment, capture_output=True, text=True, check=False)
    if REFUSED in tried.stderr:
        pytest.skip("this kernel does not make CPUID fault")
    return environment


def test_shows_avx2_alone(limited):
    shown = command("devices", **limited)
    assert "avx2" in shown and "avx512" not in shown, shown


def test_threads_are_limited_too(limited):
    program = "import threading, subprocess; t = threading.Thread(target=lambda: subprocess.run(['true'], check=True)); t.start(); t.join(); import numpy; print(numpy._core._multiarray_umath.__cpu_features__['AVX512F'], numpy._core._multiarray_umath.__cpu_features__['AVX2'])"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | limited, capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.split() == ["False", "True"]


def test_other_faults_reach_the_program(limited):
    crash = "import ctypes, {}; {}; ctypes.string_at(0)"
    plain = subprocess.run([sys.executable, "-c", crash.format("sys", "0")], env=os.environ | limited, capture_output=True, check=False)  # fmt: skip
    assert plain.returncode == -signal.SIGSEGV
    handled = subprocess.run([sys.executable, "-c", crash.format("faulthandler", "faulthandler.enable()")], env=os.environ | limited, capture_output=True, text=True, check=False)  # fmt: skip
    assert handled.returncode == -signal.SIGSEGV and "Segmentation fault" in handled.stderr
