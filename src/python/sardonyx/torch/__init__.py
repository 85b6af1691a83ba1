"""PyTorch modules through Sardonyx.

    compiled = torch.compile(module, backend="sardonyx")         no import is needed
    model = sardonyx.compile(exported_program)                   or a .pt2 file, or a module with example_inputs
    print(sardonyx.torch.explain(module, x))                     what runs where, and why

Needs torch and the packages of torch.onnx: `pip install sardonyx[torch]`. docs/pytorch.md describes it.
"""

import torch

from . import versions  # noqa: F401  # isort: skip  # first: the others import what old versions of PyTorch lack

from .backend import Fallback, observe, sardonyx
from .explain import Explanation, explain

# Installed packages register it by an entry point; this is for a source tree.
if "sardonyx" not in torch._dynamo.list_backends(exclude_tags=()):
    torch._dynamo.register_backend(sardonyx, name="sardonyx")

__all__ = ["Explanation", "Fallback", "explain", "observe", "sardonyx"]
