"""MIGraphX's C interface through ctypes, on our library: enough of it for tests."""

import ctypes
import os
from ctypes import POINTER, byref, c_bool, c_char_p, c_size_t, c_void_p

import numpy as np
from cli_support import BUILD

LIBRARY = BUILD / "lib" / "migraphx" / "libmigraphx_c.so.3"
SUCCESS, BAD_PARAM, UNKNOWN_TARGET, UNKNOWN_ERROR = 0, 1, 3, 4
# The numbers of migraphx_shape_datatype_t.
TYPES = {
    np.dtype(name): 2 + k
    for k, name in enumerate(
        [
            "bool",
            "float16",
            "float32",
            "float64",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "int32",
            "int64",
            "uint32",
            "uint64",
        ]
    )
}
DTYPES = {v: k for k, v in TYPES.items()}

lib = ctypes.CDLL(os.environ.get("SARDONYX_TEST_MIGRAPHX", str(LIBRARY)))
lib.sardonyx_migraphx_last_error.restype = c_char_p


class MigraphxError(Exception):
    def __init__(self, status):
        self.status = status
        super().__init__(lib.sardonyx_migraphx_last_error().decode())


def call(name, *arguments):
    status = getattr(lib, "migraphx_" + name)(*arguments)
    if status != SUCCESS:
        raise MigraphxError(status)


class Handle:
    """An object that a function made, destroyed with this one."""

    def __init__(self, kind, create, *arguments):
        self.kind, self.p = kind, c_void_p()
        call(create, byref(self.p), *arguments)
        self._as_parameter_ = self.p  # ctypes keeps this object alive during a call, which it would not do for p

    def __del__(self):
        if self.p:
            getattr(lib, f"migraphx_{self.kind}_destroy")(self.p)


def shape_of(p):
    """(numpy dtype, lengths, strides) of a migraphx_shape."""
    kind, out, n = ctypes.c_int(), POINTER(c_size_t)(), c_size_t()
    call("shape_type", byref(kind), p)
    call("shape_lengths", byref(out), byref(n), p)
    lengths = out[: n.value]
    call("shape_strides", byref(out), byref(n), p)
    return DTYPES[kind.value], tuple(lengths), tuple(out[: n.value])


def make_shape(dtype, dims):
    if not dims:
        return Handle("shape", "shape_create_scalar", TYPES[np.dtype(dtype)])
    return Handle("shape", "shape_create", TYPES[np.dtype(dtype)], (c_size_t * len(dims))(*dims), c_size_t(len(dims)))


def onnx_options(shapes=(), default_dim=None):
    o = Handle("onnx_options", "onnx_options_create")
    for name, dims in dict(shapes).items():
        n = len(dims)
        call("onnx_options_set_input_parameter_shape", o.p, name.encode(), (c_size_t * n)(*dims), c_size_t(n))
    if default_dim is not None:
        call("onnx_options_set_default_dim_value", o.p, c_size_t(default_dim))
    return o


class Program:
    def __init__(self, model, shapes=(), default_dim=None):
        if isinstance(model, Handle):
            self.h = model
            return
        o = onnx_options(shapes, default_dim)
        self.h = Handle("program", "parse_onnx_buffer", model, c_size_t(len(model)), o.p)

    @property
    def p(self):
        return self.h.p

    def compile(self, target="ref", offload_copy=True):
        o = Handle("compile_options", "compile_options_create")
        call("compile_options_set_offload_copy", o.p, c_bool(offload_copy))
        call("program_compile", self.p, Handle("target", "target_create", target.encode()), o)
        return self

    def parameters(self):
        """Handles of the shapes by name, valid while the result's "" lives."""
        shapes = Handle("program_parameter_shapes", "program_get_parameter_shapes", self.p)
        n = c_size_t()
        call("program_parameter_shapes_size", byref(n), shapes.p)
        names = (c_char_p * n.value)()
        call("program_parameter_shapes_names", names, shapes.p)
        out = {}
        for name in names:
            p = c_void_p()
            call("program_parameter_shapes_get", byref(p), shapes.p, name)
            out[name.decode()] = p
        return out | {"": shapes}

    def parameter_shapes(self):
        shapes = self.parameters()
        return {name: shape_of(p) for name, p in shapes.items() if name}

    def output_shapes(self):
        shapes = Handle("shapes", "program_get_output_shapes", self.p)
        n = c_size_t()
        call("shapes_size", byref(n), shapes.p)
        out = []
        for k in range(n.value):
            p = c_void_p()
            call("shapes_get", byref(p), shapes.p, c_size_t(k))
            out.append(shape_of(p))
        return out

    def run(self, stream=None, **inputs):
        """`inputs`: numpy arrays, or (dtype, dims, address) of other memory. Returns arrays, or such tuples."""
        params = Handle("program_parameters", "program_parameters_create")
        kept = []
        for name, value in inputs.items():
            if isinstance(value, tuple):
                dtype, dims, address = value
            else:
                value = np.ascontiguousarray(value)
                dtype, dims, address = value.dtype, value.shape, value.ctypes.data
            s = make_shape(dtype, dims)
            a = Handle("argument", "argument_create", s.p, c_void_p(address))
            call("program_parameters_add", params.p, name.encode(), a.p)
            kept += [value, s, a]
        if stream is None:
            out = Handle("arguments", "program_run", self.p, params.p)
        else:
            out = Handle("arguments", "program_run_async", self.p, params.p, stream, b"ihipStream_t")
        n = c_size_t()
        call("arguments_size", byref(n), out.p)
        results = []
        for k in range(n.value):
            a, s, data = c_void_p(), c_void_p(), c_void_p()
            call("arguments_get", byref(a), out.p, c_size_t(k))
            call("argument_shape", byref(s), a)
            call("argument_buffer", byref(data), a)
            results.append((*shape_of(s)[:2], data.value))
        self.last = out  # owns the memory
        return results

    def arrays(self, **inputs):
        """The results of a run whose results are in host memory."""
        out = []
        for dtype, dims, address in self.run(**inputs):
            count = int(np.prod(dims))
            buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
            out.append(np.frombuffer(buffer, dtype).reshape(dims).copy())
        return out

    def save(self, path, form="msgpack"):
        o = Handle("file_options", "file_options_create")
        call("file_options_set_file_format", o.p, form.encode())
        call("save", self.p, str(path).encode(), o.p)

    @staticmethod
    def load(path, form="msgpack"):
        o = Handle("file_options", "file_options_create")
        call("file_options_set_file_format", o.p, form.encode())
        return Program(Handle("program", "load", str(path).encode(), o.p))
