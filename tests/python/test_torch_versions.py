"""Which versions of PyTorch sardonyx.torch accepts."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")

from sardonyx.errors import UnsupportedError
from sardonyx.torch import versions


@pytest.mark.parametrize("version", ["2.7.1+cu126", "1.13", "2.0.0a0+git1"])
def test_old_versions_are_refused(version):
    with pytest.raises(UnsupportedError, match=r"needs PyTorch \d+\.\d+ or newer, and this is " + version[:4]):
        versions.check(version)


@pytest.mark.parametrize("version", [".".join(map(str, versions.OLDEST)), "2.15.0+cpu", "3.0.0a0+git1", "unknown"])
def test_newer_versions_are_accepted(version):
    versions.check(version)


def test_the_backend_says_so_itself():
    """An entry point imports it: torch.compile shows the error of a version that is too old, whatever the backend lacks there."""
    program = "import torch; torch.__version__ = '2.7.1'\nimport sardonyx.torch.backend"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode != 0
    assert "UnsupportedError: sardonyx.torch needs PyTorch" in run.stderr
