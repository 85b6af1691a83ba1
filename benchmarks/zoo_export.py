"""Modules as ONNX files, by both exporters of torch.onnx."""

from __future__ import annotations

import contextlib
import io
import pathlib
import warnings
from typing import Any

import onnx
import torch

EXPORTERS = ("dynamo", "torchscript")
#: A file above protobuf's limit of 2 GB keeps its weights beside it.
INLINE_BYTES = 2**31 - 2**24


def export(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: pathlib.Path, exporter: str) -> bool:
    """Writes the module with inputs x0, x1, ... to one file (weights above 2 GB to `path`.data beside it). Returns
    whether its batch is symbolic ("batch"); where the exporter refuses that, the batch is that of the inputs."""
    for symbolic in (True, False):
        try:
            # An order of contractions that opt_einsum chooses would fix the batch.
            einsum = torch.backends.opt_einsum.flags(enabled=False)
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), einsum:
                warnings.simplefilter("ignore")
                export_as(module, inputs, path, exporter, symbolic)
            return symbolic
        except Exception:
            if not symbolic:
                raise
    return False


def export_as(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: pathlib.Path, exporter: str, symbolic: bool
) -> None:
    names = [f"x{k}" for k in range(len(inputs))]
    arguments: dict[str, Any] = {"input_names": names}
    part = path.with_name(path.stem + ".part.onnx")
    if exporter == "dynamo":
        if symbolic:
            batch = torch.export.Dim("batch")
            arguments["dynamic_shapes"] = tuple({0: batch} for _ in inputs)
        torch.onnx.export(module, inputs, str(part), dynamo=True, verbose=False, **arguments)
    else:
        if symbolic:
            arguments["dynamic_axes"] = {n: {0: "batch"} for n in names}
        torch.onnx.export(module, inputs, str(part), dynamo=False, opset_version=17, **arguments)
    model = onnx.load(part)
    for file in part.parent.glob(f"{part.name}*"):
        file.unlink()
    batch_dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    if symbolic and batch_dim.dim_param != "batch":
        raise ValueError(f"the exporter made the batch {batch_dim.dim_value}")
    # ByteSize() fails above the limit itself.
    if sum(len(t.raw_data) for t in model.graph.initializer) < INLINE_BYTES:
        onnx.save(model, part)
        part.rename(path)  # whole, if it is there
    else:
        data = path.name + ".data"
        path.with_name(data).unlink(missing_ok=True)  # onnx appends
        onnx.save(model, path, save_as_external_data=True, location=data)
