"""Serving over HTTP: language models with an OpenAI-compatible API, other models with the Open Inference Protocol.

`sardonyx serve FOLDER` is its command line. Needs the packages of `pip install 'sardonyx[serve]'`.
"""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError
from .limits import Limits

__all__ = ["Limits", "create_app", "make_server"]


def __getattr__(name: str) -> Any:
    """The web packages are imported when they are needed."""
    if name not in ("create_app", "make_server"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .app import create_app
        from .server import make_server
    except ImportError as error:
        raise UnsupportedError(
            f"serving needs the Python package '{error.name}': pip install 'sardonyx[serve]'"
        ) from None
    return {"create_app": create_app, "make_server": make_server}[name]
