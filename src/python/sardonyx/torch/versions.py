"""Which versions of PyTorch the backend works with."""

from __future__ import annotations

import re

import torch

from ..errors import UnsupportedError

#: The oldest that its tests have passed with. It uses parts of torch.onnx and torch.fx that others lack: with PyTorch 2.7 every
#: graph would stay in PyTorch.
OLDEST = (2, 11)


def check(version: str) -> None:
    """Raises UnsupportedError for a version of PyTorch ("2.7.1+cu126") that is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedError(
            f"sardonyx.torch needs PyTorch {oldest} or newer, and this is {version}: install a newer one"
        )


check(torch.__version__)
