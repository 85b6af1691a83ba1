"""MIGraphX's Python module on Sardonyx: `import sardonyx.migraphx as migraphx`.

For unchanged programs with `import migraphx`, the same module has that name in a folder of its own. Python does not search this
folder by default, so that AMD's module is not hidden:

    python -m sardonyx.migraphx script.py ARGUMENTS
    PYTHONPATH=$(python -m sardonyx.migraphx --path) python script.py

The functions and classes are those of MIGraphX; unsupported ones raise RuntimeError with the reason.
"""

from .arguments import (
    allocate_gpu,
    argument,
    argument_from_pointer,
    create_argument,
    fill_argument,
    from_gpu,
    generate_argument,
    gpu_sync,
    to_gpu,
)
from .graphs import instruction_ref, macro, module, op
from .programs import (
    autocast_fp8,
    get_onnx_operators,
    get_target,
    load,
    load_buffer,
    parse_onnx,
    parse_onnx_buffer,
    parse_tf,
    program,
    quantize_bf16,
    quantize_fp8,
    quantize_fp16,
    quantize_int8,
    save,
    save_buffer,
    target,
)
from .shapes import shape

#: The version of MIGraphX whose interface this is, and Sardonyx's own.
__version__ = "2.16.0+sardonyx"

__all__ = [
    "allocate_gpu",
    "argument",
    "argument_from_pointer",
    "autocast_fp8",
    "create_argument",
    "fill_argument",
    "from_gpu",
    "generate_argument",
    "get_onnx_operators",
    "get_target",
    "gpu_sync",
    "instruction_ref",
    "load",
    "load_buffer",
    "macro",
    "module",
    "op",
    "parse_onnx",
    "parse_onnx_buffer",
    "parse_tf",
    "program",
    "quantize_bf16",
    "quantize_fp8",
    "quantize_fp16",
    "quantize_int8",
    "save",
    "save_buffer",
    "shape",
    "target",
    "to_gpu",
]
