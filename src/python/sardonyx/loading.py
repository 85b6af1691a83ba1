"""Loads the native module; imported before anything that needs it.

TensorFlow exports its symbols, including those of its own version of protobuf, to every library that is loaded after it. In
such a process the native module is loaded so that it prefers the symbols of the libraries that it was linked with.
"""

from __future__ import annotations

import os
import sys

_flags = sys.getdlopenflags()
if sys.modules.get("tensorflow") is not None and "sardonyx._sardonyx" not in sys.modules:
    sys.setdlopenflags(_flags | os.RTLD_DEEPBIND)
try:
    from . import _sardonyx  # noqa: F401
finally:
    sys.setdlopenflags(_flags)
