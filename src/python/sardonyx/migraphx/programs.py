"""Programs of MIGraphX's Python module: reading, compiling, running, quantising and storing them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_bool, c_char, c_char_p, c_int64, c_size_t, c_void_p
from typing import Any

from . import library
from .arguments import _borrow, argument
from .graphs import module
from .library import Handle, call
from .shapes import dims_handle, dynamic_dimension, shape, shape_of_pointer, shapes_of


class target:
    """Where programs run: "gpu", or the host as "ref" or "cpu"."""

    def __init__(self, name: str) -> None:
        self._handle = library.make("target", "target_create", name.encode())


def get_target(name: str) -> target:
    """What to compile for: "gpu", "ref", "cpu"; see target."""
    return target(name)


def _parameters(params: Mapping[str, Any]) -> tuple[Handle, list[Any]]:
    """A list of parameters, and what keeps them alive."""
    made, kept = library.make("program_parameters", "program_parameters_create"), []
    for name, value in params.items():
        handle, keep, _ = _borrow(value)
        call("program_parameters_add", made, name.encode(), handle)
        kept += [handle, keep]
    return made, kept


class program:
    """program() is empty, and its main module can be filled; parse_onnx() and load() give others."""

    def __init__(self) -> None:
        self._handle = library.make("program", "program_create")

    @classmethod
    def _of(cls, handle: Handle) -> program:
        made = cls.__new__(cls)
        made._handle = handle
        return made

    def get_parameter_shapes(self) -> dict[str, shape]:
        """Of the inputs, and after compiling for device memory of the buffers of the outputs."""
        shapes = library.make("program_parameter_shapes", "program_get_parameter_shapes", self._handle)
        names = (c_char_p * max(library.size("program_parameter_shapes_size", shapes), 1))()
        call("program_parameter_shapes_names", names, shapes)
        found = {}
        for name in names:
            if name is not None:
                pointer = c_void_p()
                call("program_parameter_shapes_get", byref(pointer), shapes, name)
                found[name.decode()] = shape_of_pointer(pointer, shapes)
        return found

    def get_parameter_names(self) -> list[str]:
        """The names of the inputs."""
        return list(self.get_parameter_shapes())

    def get_output_shapes(self) -> list[shape]:
        """The shapes of the results."""
        return shapes_of(library.make("shapes", "program_get_output_shapes", self._handle))

    def is_compiled(self) -> bool:
        """Whether compile() has been called, also before the program was saved."""
        return library.flag("+program_is_compiled", self._handle)

    def compile(
        self, t: target, offload_copy: bool = True, fast_math: bool = True, exhaustive_tune: bool = False
    ) -> None:
        """With `offload_copy`, parameters and results are in host memory; otherwise in that of the target."""
        options = library.make("compile_options", "compile_options_create")
        call("compile_options_set_offload_copy", options, c_bool(offload_copy))
        if not fast_math:  # which is the default of MIGraphX's module; it has no effect here, and the library says so
            call("compile_options_set_fast_math", options, c_bool(fast_math))
        call("compile_options_set_exhaustive_tune_flag", options, c_bool(exhaustive_tune))
        call("program_compile", self._handle, t._handle, options)

    def get_main_module(self) -> module:
        """The module that a run begins with."""
        return module(library.borrow("program_get_main_module", self._handle, owner=self._handle))

    def create_module(self, name: str) -> module:
        """A new module, for control flow."""
        return module(library.borrow("program_create_module", self._handle, name.encode(), owner=self._handle))

    def _results(self, made: Handle, kept: list[Any]) -> list[argument]:
        found = []
        for k in range(library.size("arguments_size", made)):
            a = argument._of(library.borrow("arguments_get", made, c_size_t(k), owner=made))
            a._keep = kept  # a result may be in the memory of a parameter
            found.append(a)
        return found

    def run(self, params: Mapping[str, Any]) -> list[argument]:
        """The results; complete when it returns. Values: arguments, and what argument() takes."""
        made, kept = _parameters(params)
        return self._results(library.make("arguments", "program_run", self._handle, made), kept)

    def run_async(self, params: Mapping[str, Any], stream: int, stream_name: str) -> list[argument]:
        """The same, enqueued on a stream ("ihipStream_t") of the device; the parameters must live until it is done."""
        made, kept = _parameters(params)
        name = stream_name.encode()
        results = library.make("arguments", "program_run_async", self._handle, made, c_void_p(stream), name)
        return self._results(results, kept)

    def to_py(self) -> str:
        """Not offered: Python text for a graph of MIGraphX's operators. Raises RuntimeError."""
        raise RuntimeError("program.to_py is not offered here; print(program) lists it, save() stores it")

    def sort(self) -> None:
        """Puts the instructions in an order in which they can run."""
        call("program_sort", self._handle)

    def print(self) -> None:
        """Prints the instructions."""
        print(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, program):
            return NotImplemented
        return library.flag("program_equal", self._handle, other._handle)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return library.text("+program_text", self._handle)


Dims = Mapping[str, Sequence[int]]
DynamicDims = Mapping[str, Sequence[dynamic_dimension]]


def _onnx_options(
    default_dim_value: int,
    default_dyn_dim_value: dynamic_dimension | None,
    dim_params: Mapping[str, dynamic_dimension],
    map_input_dims: Dims,
    map_dyn_input_dims: DynamicDims,
    skip_unknown_operators: bool,
) -> Handle:
    if skip_unknown_operators:
        raise RuntimeError("skip_unknown_operators is not offered: a program without an operator can't be compiled")
    o = library.make("onnx_options", "onnx_options_create")
    if default_dim_value and default_dyn_dim_value is not None:
        raise RuntimeError("give default_dim_value or default_dyn_dim_value, not both")
    if default_dim_value:
        call("onnx_options_set_default_dim_value", o, c_size_t(default_dim_value))
    if default_dyn_dim_value is not None:
        call("onnx_options_set_default_dyn_dim_value", o, default_dyn_dim_value._handle())
    for name, dim in dim_params.items():
        call("+onnx_options_set_dim_param", o, name.encode(), dim._handle())
    for name, dims in map_input_dims.items():
        call("onnx_options_set_input_parameter_shape", o, name.encode(), *library.sizes(list(dims)))
    for name, ranges in map_dyn_input_dims.items():
        call("onnx_options_set_dyn_input_parameter_shape", o, name.encode(), dims_handle(ranges))
    return o


def _or_explain(print_program_on_error: bool, parse: Any) -> program:
    try:
        return program._of(parse())
    except RuntimeError as e:
        if print_program_on_error:
            print(e)  # there is no part of a program to show
        raise


def parse_onnx(
    filename: str | os.PathLike[str],
    default_dim_value: int = 0,
    default_dyn_dim_value: dynamic_dimension | None = None,
    dim_params: Mapping[str, dynamic_dimension] | None = None,
    map_input_dims: Dims | None = None,
    map_dyn_input_dims: DynamicDims | None = None,
    skip_unknown_operators: bool = False,
    print_program_on_error: bool = False,
    max_loop_iterations: int | None = None,
    limit_max_iterations: int | None = None,
    use_debug_symbols: bool = False,
) -> program:
    """Reads an ONNX model. Dims that it leaves open get the sizes of their input, of their name, or the default (1).

    Loops run as often as the model says, unless one of the two numbers is given: then, as in MIGraphX, what iterations
    produce has the length of the largest number of iterations. Names of nodes are always kept (use_debug_symbols).
    """
    o = _onnx_options(
        default_dim_value,
        default_dyn_dim_value,
        dim_params or {},
        map_input_dims or {},
        map_dyn_input_dims or {},
        skip_unknown_operators,
    )
    if max_loop_iterations is not None:
        call("onnx_options_set_default_loop_iterations", o, c_int64(max_loop_iterations))
    if limit_max_iterations is not None:
        call("onnx_options_set_limit_loop_iterations", o, c_int64(limit_max_iterations))
    if use_debug_symbols:
        call("onnx_options_set_use_debug_symbols", o, c_bool(True))
    name = os.fsencode(filename)
    return _or_explain(print_program_on_error, lambda: library.make("program", "parse_onnx", name, o))


def parse_onnx_buffer(
    filename: bytes | str,
    default_dim_value: int = 0,
    default_dyn_dim_value: dynamic_dimension | None = None,
    map_input_dims: Dims | None = None,
    map_dyn_input_dims: DynamicDims | None = None,
    skip_unknown_operators: bool = False,
    print_program_on_error: bool = False,
    external_data_path: str = "",
    use_debug_symbols: bool = False,
) -> program:
    """The same of a model's bytes (the first argument's name is MIGraphX's). external_data_path: the folder of the
    files that hold its weights."""
    if isinstance(filename, str):
        raise TypeError("an ONNX model's bytes are bytes, not str")
    o = _onnx_options(
        default_dim_value,
        default_dyn_dim_value,
        {},
        map_input_dims or {},
        map_dyn_input_dims or {},
        skip_unknown_operators,
    )
    if external_data_path:
        call("onnx_options_set_external_data_path", o, os.fsencode(external_data_path))
    if use_debug_symbols:
        call("onnx_options_set_use_debug_symbols", o, c_bool(True))
    size = c_size_t(len(filename))
    parse = lambda: library.make("program", "parse_onnx_buffer", filename, size, o)
    return _or_explain(print_program_on_error, parse)


def parse_tf(
    filename: str | os.PathLike[str],
    is_nhwc: bool = True,
    batch_size: int = 1,
    map_input_dims: Dims | None = None,
    output_names: Sequence[str] = (),
) -> program:
    """Reads a frozen graph of TensorFlow (docs/tensorflow.md), with the package tensorflow. With is_nhwc, inputs and
    outputs of rank 4 are in NCHW. Dims that the graph leaves open get batch_size. Raises RuntimeError."""
    from ..errors import Error
    from .tensorflow import onnx_of_graph

    try:
        data = onnx_of_graph(os.fspath(filename), is_nhwc, output_names)
    except Error as e:
        raise RuntimeError(f"parse_tf: {e}") from e
    return parse_onnx_buffer(data, default_dim_value=batch_size, map_input_dims=map_input_dims)


def get_onnx_operators() -> list[str]:
    """ONNX's operators that models may have."""
    names = []
    for k in range(library.size("get_onnx_operators_size")):
        names.append(library.text("get_onnx_operator_name_at_index", c_size_t(k)))
    return names


def _file_options(format: str) -> Handle:
    options = library.make("file_options", "file_options_create")
    call("file_options_set_file_format", options, format.encode())
    return options


def load(filename: str | os.PathLike[str], format: str = "msgpack") -> program:
    """Reads a file of save(). It holds machine code: load only what you trust."""
    return program._of(library.make("program", "load", os.fsencode(filename), _file_options(format)))


def save(p: program, filename: str | os.PathLike[str], format: str = "msgpack") -> None:
    """Writes a program, compiled or not, in a format of Sardonyx's own."""
    call("save", p._handle, os.fsencode(filename), _file_options(format))


def save_buffer(p: program) -> bytes:
    """The bytes that save() writes."""
    data, count = c_void_p(), c_size_t()
    call("+save_buffer", byref(data), byref(count), p._handle)
    return bytes((c_char * count.value).from_address(data.value or 0))


def load_buffer(b: bytes) -> program:
    """The program of which save_buffer() made these bytes."""
    return program._of(library.make("program", "+load_buffer", b, c_size_t(len(b))))


def _names(ins_names: Iterable[str]) -> Handle:
    names = library.make("quantize_op_names", "quantize_op_names_create")
    for name in ins_names:
        call("quantize_op_names_add", names, name.encode())
    return names


def quantize_fp16(prog: program, ins_names: Iterable[str] = ("all",)) -> None:
    """Weights and activations in float16; of the named operators only, if any are named."""
    call("quantize_fp16_with_op_names", prog._handle, _names(ins_names))


def quantize_bf16(prog: program, ins_names: Iterable[str] = ("all",)) -> None:
    """Weights and activations in bfloat16; of the named operators only, if any are named."""
    call("quantize_bf16_with_op_names", prog._handle, _names(ins_names))


def quantize_int8(
    prog: program,
    t: target,
    calibration: Sequence[Mapping[str, Any]] = (),
    ins_names: Iterable[str] = ("dot", "convolution"),
) -> None:
    """GEMMs and convolutions with 8-bit integers, whose ranges come from runs with the calibration data."""
    options = library.make("quantize_int8_options", "quantize_int8_options_create")
    for name in ins_names:
        call("quantize_int8_options_add_op_name", options, name.encode())
    lists = [_parameters(example) for example in calibration]
    for made, _ in lists:
        call("quantize_int8_options_add_calibration_data", options, made)
    call("quantize_int8", prog._handle, t._handle, options)


def quantize_fp8(prog: program, t: target, calibration: Sequence[Mapping[str, Any]] = ()) -> None:
    """GEMMs and convolutions with 8-bit floats, whose ranges come from runs with the calibration data."""
    options = library.make("quantize_fp8_options", "quantize_fp8_options_create")
    lists = [_parameters(example) for example in calibration]
    for made, _ in lists:
        call("quantize_fp8_options_add_calibration_data", options, made)
    call("quantize_fp8", prog._handle, t._handle, options)


def autocast_fp8(prog: program) -> None:
    """Not offered: parameters and results of 8-bit floats as float32. Raises RuntimeError."""
    raise RuntimeError("autocast_fp8 is not offered here; add `convert` to the graph, or Cast to the ONNX model")


def trim(p: program, nodes: int) -> program:
    """A program without the last nodes of the model; its results are those of the node before them. (The driver's.)"""
    return program._of(library.make("program", "+program_trim", p._handle, c_size_t(nodes)))


def compile_reference(p: program) -> None:
    """Compiles for the host, each operator by itself. (The driver's.)"""
    call("+program_compile_reference", p._handle)
