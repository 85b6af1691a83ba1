"""tf2onnx as this package runs it: quietly, and refusing models that it converts in part."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from typing import Any

from ..errors import Error, UnsupportedError

#: Operators whose values are no numbers: what they compute stays in TensorFlow.
NOT_NUMERIC = ("Lookup", "HashTable", "String", "Regex", "Decode", "Parse", "AsString", "Unicode", "Substr")


def first_line(error: BaseException) -> str:
    """The error's kind, and the first line of its text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def import_tensorflow() -> Any:
    """The module, which prints nothing. Raises UnsupportedError if it or tf2onnx is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        import tensorflow as tf
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"reading TensorFlow models needs tensorflow and tf2onnx ({first_line(error)}); pip install sardonyx[tensorflow]"
        ) from error
    return tf


class Complaints(logging.Handler):
    """Errors that tf2onnx logs without stopping: each makes the result unusable."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.nodes: list[tuple[str, str]] = []  #: name and operator of nodes that it does not convert
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().splitlines()[0]
        if (found := re.match(r"Tensorflow op \[(.*): (\w+)\] is not supported", text)) or (
            found := re.match(r"Failed to convert node '(.*)' \(fct=<bound method (\w+)\.", text)
        ):
            self.nodes.append((found[1], found[2]))
        else:
            self.texts.append(text)

    def refuse(self, what: str) -> None:
        """Raises UnsupportedError with the nodes' names, if there are any complaints."""
        if not self.nodes and not self.texts:
            return
        nodes = list(dict.fromkeys(self.nodes))
        text = ", ".join(f"node '{name}' ({operator})" for name, operator in nodes[:5]) or self.texts[0]
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        advice = ""
        if any(operator.startswith(NOT_NUMERIC) or "Table" in operator for _, operator in nodes):
            advice = "; lookups and text are not supported: do them in TensorFlow, and export a function that begins after them"
        raise UnsupportedError(f"{what}: tf2onnx does not convert {text}{more}{advice}")


def know_bfloat16() -> None:
    """tf2onnx gives tensors of bfloat16 the type float16, but casts to bfloat16."""
    import ml_dtypes
    import onnx
    from tensorflow.core.framework import types_pb2
    from tf2onnx import tf_utils, utils

    bfloat16 = onnx.TensorProto.BFLOAT16
    tf_utils.TF_TO_ONNX_DTYPE[types_pb2.DT_BFLOAT16] = bfloat16
    utils.ONNX_TO_NUMPY_DTYPE.setdefault(bfloat16, ml_dtypes.bfloat16)


def converted(convert: Callable[[], Any], what: str) -> Any:
    """The result of `convert`, quietly. Raises UnsupportedError."""
    tf = import_tensorflow()
    know_bfloat16()
    complaints = Complaints()
    log = logging.getLogger("tf2onnx")
    propagate, level = log.propagate, log.level
    other = logging.getLogger("tensorflow")  # tf2onnx calls functions that TensorFlow calls deprecated
    other_level = other.level
    log.addHandler(complaints)
    log.propagate = False
    log.setLevel(logging.ERROR)
    other.setLevel(logging.ERROR)
    try:
        with tf.device("/cpu:0"):
            proto = convert()
    except Error:
        raise
    except Exception as error:
        complaints.texts.clear()
        complaints.refuse(what)
        raise UnsupportedError(f"{what}: tf2onnx cannot convert it: {first_line(error)}") from error
    finally:
        log.removeHandler(complaints)
        log.propagate = propagate
        log.setLevel(level)
        other.setLevel(other_level)
    complaints.refuse(what)
    return proto
