"""Writes a TensorFlow model as an ONNX file, for the command line (`sardonyx run saved_model/`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import Error, UnsupportedError
from .convert import onnx_of


def shape_of(text: str) -> tuple[str, list[int | None] | None]:
    """ "NAME:1,224,224,3" as a name and sizes; "NAME" alone keeps the shape that the model declares; ? is a size that varies."""
    name, colon, sizes = text.rpartition(":")
    words = sizes.split(",")
    if not colon or not all(w.strip() in ("", "?", "-1") or w.strip().isdecimal() for w in words):
        return text, None
    if words == [""]:
        return name, []
    return name, [None if w.strip() in ("?", "-1") else int(w) for w in words]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="sardonyx")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--tensorflow-input", action="append", default=[])
    parser.add_argument("--tensorflow-output", action="append", default=[])
    parser.add_argument("--signature")
    o = parser.parse_args(arguments)
    try:
        proto = onnx_of(
            o.source,
            inputs=dict(map(shape_of, o.tensorflow_input)) or None,
            outputs=o.tensorflow_output or None,
            signature=o.signature,
        )
        data = proto.SerializeToString()
        if len(data) >= 2**31:
            raise UnsupportedError(f"{o.source}: as an ONNX model it has {len(data)} bytes; files end at 2 GiB")
        with open(o.target, "wb") as file:
            file.write(data)
    except Error as error:
        print(error, file=sys.stderr)
        return error.code
    return 0
