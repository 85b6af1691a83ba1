"""Modules and exported programs as ONNX models, by torch.onnx."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import pathlib
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.onnx._internal.exporter import _core

from ..errors import FileError, InvalidArgumentError, UnsupportedError
from .by_rules import apply_rules
from .decompositions import registry
from .repairs import repair

#: Weights above this are kept in a file beside the model, which is mapped; within it they would be copied several times.
INLINE_BYTES = 2**24


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
    loggers = [logging.getLogger(name) for name in ("onnx_ir", "onnxscript", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def exported(module: torch.nn.Module, arguments: Sequence[Any], shapes: Any = None) -> torch.export.ExportedProgram:
    """torch.export of a module in evaluation; `shapes` as for its dynamic_shapes. Raises UnsupportedError."""
    try:
        with quiet(), torch.no_grad():
            program: torch.export.ExportedProgram = torch.export.export(
                module, tuple(arguments), dynamic_shapes=shapes, strict=False
            )
    except Exception as error:
        raise UnsupportedError(f"torch.export cannot trace it: {first_line(cause_of(error))}") from error
    apply_rules(program)
    repair(program)
    return program


#: ONNX's numbers of element types.
NUMBERS = {torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7, torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.bfloat16: 16}  # fmt: skip


def keep_dtypes(graph: Any, program: torch.export.ExportedProgram) -> None:
    """Casts results to the program's types where torch.onnx promotes the operands of an operator and then gives the promoted
    result (abs of float16)."""
    import onnx_ir

    results = next(n for n in program.graph.nodes if n.op == "output").args[0]
    if len(results) != len(graph.outputs):
        return
    for k, result in enumerate(results):
        value, made = result.meta.get("val") if isinstance(result, torch.fx.Node) else None, graph.outputs[k]
        number = NUMBERS.get(value.dtype) if isinstance(value, torch.Tensor) else None
        if number is None or made.dtype is None or made.dtype.value == number:
            continue
        cast = onnx_ir.node("Cast", [made], {"to": number})
        cast.outputs[0].dtype, cast.outputs[0].shape = onnx_ir.DataType(number), made.shape
        cast.outputs[0].name, made.name = made.name, f"{made.name}_promoted"
        graph.append(cast)
        graph.outputs[k] = cast.outputs[0]


#: Operators of lists of tensors, which torch's optimizer replaces where a list is taken apart again.
OF_LISTS = {"SplitToSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence"}  # fmt: skip


def needs_optimizer(model: Any) -> bool:
    """Whether torch's optimizer of ONNX models has to run: it takes lists apart, inlines functions and folds batch
    normalisation into weights. What else it does Sardonyx does itself, in a fraction of the time."""
    replaced = OF_LISTS | {"BatchNormalization"}
    return bool(model.functions) or any(n.op_type in replaced for n in model.graph.all_nodes())


def raise_version(model: Any) -> None:
    """ONNX has DeformConv from version 19 on, and torch.onnx writes it into models of version 18. Operators of version 18
    mean the same in 19."""
    if model.opset_imports.get("") == 18 and any(n.op_type == "DeformConv" for n in model.graph.all_nodes()):
        model.opset_imports[""] = 19


_rules_lock = threading.Lock()


def optimize(program: Any) -> None:
    """torch's optimizer of ONNX models, without the rules that remove x + 0, x * 1 and the like: they take a number for 0 if it
    is within 1e-8 of it, as the epsilon of a norm may be, and for 1 within 1e-5. Sardonyx removes what is exactly that."""
    from onnxscript import rewriter
    from onnxscript.rewriter.rules.common import _no_op

    inexact = {id(r) for r in _no_op.rules}
    with _rules_lock:  # the table is the process's: two threads would restore each other's
        rules = rewriter._DEFAULT_REWRITE_RULES
        rewriter._DEFAULT_REWRITE_RULES = tuple(r for r in rules if id(r) not in inexact)
        try:
            program.optimize()
        finally:
            rewriter._DEFAULT_REWRITE_RULES = rules


def write_onnx(program: torch.export.ExportedProgram, folder: str | os.PathLike[str]) -> pathlib.Path:
    """Writes the program as an ONNX model into `folder`, and returns its path. Raises UnsupportedError with the
    exporter's reason."""
    path = pathlib.Path(folder) / "model.onnx"
    try:
        with quiet(), torch.no_grad():
            made = _core.export(program, (), registry=registry(), verbose=False, optimize=False)
            if needs_optimizer(made.model):
                optimize(made)
            keep_dtypes(made.model.graph, program)
            raise_version(made.model)
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
    if isinstance(model, torch.export.ExportedProgram):
        given, model = model, copy.copy(model)
        model._graph_module = copy.deepcopy(given.graph_module)  # without weights, which are the program's
    else:
        try:
            model = torch.export.load(os.fspath(model))
        except Exception as error:
            raise FileError(f"{os.fspath(model)}: torch.export cannot load it: {first_line(error)}") from error
    apply_rules(model)
    repair(model)
    return write_onnx(model, folder)
