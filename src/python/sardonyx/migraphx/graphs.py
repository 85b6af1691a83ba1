"""Graphs that programs build themselves: operators, modules and instructions of MIGraphX's Python module."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from ctypes import byref, c_bool, c_size_t, c_void_p
from typing import Any

from . import library
from .arguments import _borrow, argument
from .library import Handle, call
from .shapes import dynamic_dimension, shape


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, enum.Enum):
        return int(value.value)
    if isinstance(value, (str, bool)) or value is None:
        return value
    if isinstance(value, float):
        return value
    if hasattr(value, "__index__"):
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dynamic_dimension):
        return {"min": value.min, "max": value.max, "optimals": sorted(value.optimals)}
    raise RuntimeError(f"an attribute can't be {value!r}")


def _attributes(keywords: dict[str, Any]) -> bytes:
    return json.dumps({k: _plain(v) for k, v in keywords.items()}).encode()


class op:
    """An operator with its attributes: op("reshape", dims=[2, 3])."""

    class pooling_mode(enum.IntEnum):
        average = 0
        max = 1
        lpnorm = 2

    class rnn_direction(enum.IntEnum):
        forward = 0
        reverse = 1
        bidirectional = 2

    def __init__(self, name: str, **attributes: Any) -> None:
        self._handle = library.make("operation", "operation_create", name.encode(), b"%s", _attributes(attributes))
        self._name = name

    @classmethod
    def _of(cls, handle: Handle, name: str) -> op:
        made = cls.__new__(cls)
        made._handle, made._name = handle, name
        return made

    def name(self) -> str:
        """The name of the operator."""
        return self._name

    def values(self) -> Any:
        """All attributes, with their defaults."""
        all = not self._name.startswith("@") and self._name in operators()
        return json.loads(library.text("+operation_values", self._handle, c_bool(all)))

    def __repr__(self) -> str:
        return f"{self._name}{self.values()}"


def operators() -> list[str]:
    """The operators that can be added to a graph. (Not MIGraphX's.)"""
    count = library.size("+operators_size")
    return [library.text("+operator_name_at_index", c_size_t(k)) for k in range(count)]


class macro:
    """Several operators that an ONNX operator is in MIGraphX: macro("gemm", transB=True)."""

    def __init__(self, name: str, **options: Any) -> None:
        self._name, self._options = name, {k: _plain(v) for k, v in options.items()}

    def name(self) -> str:
        """The name of the ONNX operator."""
        return self._name

    def options(self) -> dict[str, Any]:
        """Its attributes by name."""
        return dict(self._options)


class instruction_ref:
    """A value in a module."""

    def __init__(self, handle: Handle, module: module) -> None:
        self._handle, self._module = handle, module
        self._id = library.size("+instruction_id", handle)

    def shape(self) -> shape:
        """The shape of the value."""
        return shape._of(library.make("shape", "+instruction_shape", self._handle))

    def op(self) -> op:
        """The operator, with its attributes."""
        return op._of(library.make("operation", "+instruction_operation", self._handle), self.name())

    def name(self) -> str:
        """The name of the operator; "@param", "@literal" and "@return" are no operators."""
        return library.text("+instruction_name", self._handle)

    def inputs(self) -> list[instruction_ref]:
        """The values that the instruction reads."""
        count = library.size("+instruction_inputs_size", self._handle)
        each = (library.make("instruction", "+instruction_input", self._handle, c_size_t(k)) for k in range(count))
        return [instruction_ref(h, self._module) for h in each]

    def outputs(self) -> list[instruction_ref]:
        """The instructions of the module that use it."""
        return [i for i in self._module if any(x._id == self._id for x in i.inputs())]

    def get_literal(self) -> argument:
        """The data of a literal. Raises RuntimeError for other instructions."""
        return argument._of(library.make("argument", "+instruction_literal", self._handle))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, instruction_ref) and self._id == other._id

    def __hash__(self) -> int:
        return self._id

    def __repr__(self) -> str:
        return f"{self.name()} -> {self.shape()}"


class module:
    """A list of instructions of a program."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def _instructions(self, args: Sequence[instruction_ref]) -> Handle:
        return library.handles("instructions", [a._handle for a in args])

    def _made(self, function: str, *arguments: Any) -> instruction_ref:
        return instruction_ref(library.make("instruction", function, *arguments), self)

    def print(self) -> None:
        """Prints the instructions."""
        print(self)

    def add_parameter(self, name: str, shape: shape) -> instruction_ref:
        """An input of the program."""
        return self._made("module_add_parameter", self._handle, name.encode(), shape._handle)

    def add_literal(self, data: Any) -> instruction_ref:
        """data: an argument, or anything with the buffer protocol or DLPack in host memory. It is copied."""
        made, keep, on_device = _borrow(data)
        if on_device:
            raise RuntimeError("a literal's data must be in host memory")
        shape_pointer, address = c_void_p(), c_void_p()
        call("argument_shape", byref(shape_pointer), made)
        call("argument_buffer", byref(address), made)
        added = self._made("module_add_literal", self._handle, shape_pointer, address)
        del keep
        return added

    def add_instruction(
        self, op: op, args: Sequence[instruction_ref], mod_args: Sequence[module] = ()
    ) -> instruction_ref:
        """The result of an operator on these values. mod_args: the modules of control flow ("if", "loop")."""
        inputs = self._instructions(args)
        if not mod_args:
            return self._made("module_add_instruction", self._handle, op._handle, inputs)
        modules = library.handles("modules", [m._handle for m in mod_args])
        return self._made("module_add_instruction_with_mod_args", self._handle, op._handle, inputs, modules)

    def add_return(self, args: Sequence[instruction_ref]) -> instruction_ref:
        """Makes these values the results."""
        return self._made("module_add_return", self._handle, self._instructions(args))

    def replace_return(self, args: Sequence[instruction_ref]) -> instruction_ref:
        """Makes these values the results in place of earlier ones."""
        return self._made("+module_replace_return", self._handle, self._instructions(args))

    def _macro(self, before: Any, macro: macro, args: Sequence[instruction_ref]) -> list[instruction_ref]:
        options = _attributes(macro.options())
        inputs = self._instructions(args)
        add = "+module_add_macro"
        return [self._made(add, self._handle, before, macro.name().encode(), options, inputs)]

    def add_macro(
        self, macro: macro, args: Sequence[instruction_ref], mod_args: Sequence[module] = ()
    ) -> list[instruction_ref]:
        """Its instructions, the result last; here there is one."""
        _require_no_modules(mod_args)
        return self._macro(c_void_p(), macro, args)

    def insert_macro(
        self, ins: instruction_ref, macro: macro, args: Sequence[instruction_ref], mod_args: Sequence[module] = ()
    ) -> list[instruction_ref]:
        """The same, before an instruction."""
        _require_no_modules(mod_args)
        return self._macro(ins._handle, macro, args)

    def __iter__(self) -> Iterator[instruction_ref]:
        for k in range(library.size("+module_size", self._handle)):
            yield self._made("+module_get", self._handle, c_size_t(k))

    def __repr__(self) -> str:
        return library.text("+module_text", self._handle)


def _require_no_modules(modules: Sequence[module]) -> None:
    if modules:
        raise RuntimeError("macros take no modules here")
