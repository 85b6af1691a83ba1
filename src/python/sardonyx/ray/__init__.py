"""Sardonyx on Ray: batch inference with Ray Data, and Ray Serve deployments of the interfaces of sardonyx.serve.

Needs the packages of `pip install 'sardonyx[ray]'`.
"""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError

_HOMES = {
    "SharedProgram": "program",
    "share": "program",
    "Predictor": "data",
    "map_batches": "data",
    "application": "serving",
    "multiplexed_application": "serving",
}
__all__ = ["Predictor", "SharedProgram", "application", "map_batches", "multiplexed_application", "share"]


def __getattr__(name: str) -> Any:
    """Ray is imported when it is needed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    except ImportError as error:
        raise UnsupportedError(
            f"sardonyx.ray needs the Python package '{error.name}': pip install 'sardonyx[ray]'"
        ) from None
