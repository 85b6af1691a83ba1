"""Modules and exported programs as ONNX models, by torch.onnx."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..errors import FileError, InvalidArgumentError, UnsupportedError

#: A model above protobuf's limit of 2 GB keeps its weights in a file beside it.
INLINE_BYTES = 2**31 - 2**24


def first_line(error: BaseException) -> str:
    """The error's kind, and the first line of its text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def cause_of(error: BaseException) -> BaseException:
    """The innermost of chained errors: the exporter wraps what went wrong into texts of its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print; errors are raised all the same."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def exported(module: torch.nn.Module, arguments: Sequence[Any], shapes: Any = None) -> torch.export.ExportedProgram:
    """torch.export of a module in evaluation; `shapes` as for its dynamic_shapes. Raises UnsupportedError."""
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(module, tuple(arguments), dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise UnsupportedError(f"torch.export cannot trace it: {first_line(cause_of(error))}") from error


def write_onnx(
    program: torch.export.ExportedProgram, folder: str | os.PathLike[str], names: Sequence[str] | None = None
) -> pathlib.Path:
    """Writes the program as an ONNX model into `folder`, and returns its path. `names`: of its inputs, in order.

    Raises UnsupportedError with the exporter's reason."""
    path = pathlib.Path(folder) / "model.onnx"
    try:
        with quiet(), torch.no_grad():
            made = torch.onnx.export(
                program, (), dynamo=True, verbose=False, input_names=list(names) if names else None
            )
            assert made is not None
            values = [v.const_value for v in made.model.graph.initializers.values()]
            large = sum(v.nbytes for v in values if v is not None) >= INLINE_BYTES
            made.save(str(path), external_data=large)
    except Exception as error:
        raise UnsupportedError(f"torch.onnx cannot export it: {first_line(cause_of(error))}") from error
    return path


def onnx_of(model: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any, folder: str) -> pathlib.Path:
    """A module with example inputs, an ExportedProgram, or the path of a .pt2 file, as an ONNX model in `folder`."""
    if isinstance(model, torch.nn.Module):
        if example_inputs is None:
            raise InvalidArgumentError(
                "a torch.nn.Module needs example_inputs, a tuple of the arguments to trace it with"
            )
        if model.training:
            raise InvalidArgumentError("the module is in training: call module.eval() first")
        return write_onnx(exported(model, example_inputs, dynamic_shapes), folder)
    if example_inputs is not None or dynamic_shapes is not None:
        raise InvalidArgumentError("example_inputs and dynamic_shapes are for a torch.nn.Module")
    if not isinstance(model, torch.export.ExportedProgram):
        try:
            model = torch.export.load(os.fspath(model))
        except Exception as error:
            raise FileError(f"{os.fspath(model)}: torch.export cannot load it: {first_line(error)}") from error
    return write_onnx(model, folder)
