"""Imports packages that only language models need, with an error that says how to install them."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import UnsupportedError


def needed(name: str) -> Any:
    """The module of this name. Raises UnsupportedError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"language models need the Python package '{name.partition('.')[0]}' ({error}): pip install 'sardonyx[llm]'"
        ) from None
