"""The options of compile() and load(), from the library's own table (include/sardonyx/compile_options.h)."""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from . import _sardonyx
from .errors import InvalidArgumentError

F = TypeVar("F", bound=Callable[..., Any])

PATH = "str | os.PathLike[str] | None"
DIMS = "Mapping[str, int] | None"


class Option(NamedTuple):
    """A row of the table."""

    name: str
    type: str  #: "bool", "int", "str", PATH or DIMS
    default: Any
    default_text: str
    help: str
    details: str
    values: tuple[str, ...]
    at_load: bool  #: it also applies to a compiled program
    flag: str  #: on the command line
    placeholder: str
    environment: str  #: variable that the command line reads
    empty_means_none: bool  #: an empty text is a value, not the default
    python_environment: bool  #: Python reads the variable, too
    provider: str  #: name as an option of ONNX Runtime's provider
    migraphx: tuple[str, ...]  #: the MIGraphX provider's names
    rocm: tuple[str, ...]


def _option(row: dict[str, Any]) -> Option:
    kind, default = row.pop("type"), row.pop("default")
    if kind == "path" or row["placeholder"] in ("FILE", "DIR"):
        return Option(type=PATH, default=None, **row)
    if kind == "dims":
        return Option(type=DIMS, default=None, **row)
    return Option(type=kind, default=default, **row)


OPTIONS = {o.name: o for o in map(_option, _sardonyx.options())}


def native_options(function: str, given: Mapping[str, Any], at_load: bool = False) -> dict[str, Any]:
    """The options of a call, as the native module takes them. None, like what is not given, is the default.

    Raises TypeError for an option that the function does not have.
    """
    known = [name for name, o in OPTIONS.items() if o.at_load or not at_load]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0)
            raise TypeError(f"{function}() has no option '{name}'; did you mean '{near[0]}'?")
    out: dict[str, Any] = {}
    for name in known:
        o, value = OPTIONS[name], given.get(name)
        if value is None and name == "cache_dir":
            value = _sardonyx.user_cache_directory()
        elif value is None and o.python_environment:
            value = os.environ.get(o.environment)
        if value is not None:
            out[name] = os.fspath(value) if o.type == PATH else dict(value) if o.type == DIMS else value
    return out


def add_flags(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Gives a parser the command line's flags for these options."""
    for o in (OPTIONS[name] for name in names):
        default = f"${o.environment}, else {o.default_text}" if o.environment else o.default_text
        text = (o.help + (f" (default: {default})" if default else "")).replace("%", "%%")
        kind = int if o.type == "int" else str
        parser.add_argument(*o.flag.split(","), dest=o.name, metavar=o.placeholder, type=kind, help=text)


def options_of_flags(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The options that flags give, else their environment variables; without those that neither gives.

    Raises InvalidArgumentError for a variable that is not a number, where one is wanted.
    """
    out: dict[str, Any] = {}
    for o in (OPTIONS[name] for name in names):
        value = getattr(arguments, o.name)
        if value is None and o.environment:
            value = os.environ.get(o.environment)
            if value == "" and not o.empty_means_none:
                value = None
            if value is not None and o.type == "int":
                try:
                    value = int(value)
                except ValueError:
                    raise InvalidArgumentError(f"{o.environment} is {value!r}, not a number") from None
        if value is not None:
            out[o.name] = value
    return out


def describes_options(*, at_load: bool = False) -> Callable[[F], F]:
    """Decorator: gives a function's signature and docstring ("{options}") the options that its `**options` takes."""
    options = [o for o in OPTIONS.values() if o.at_load or not at_load]

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named += [
            inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=o.type)
            for o in options
        ]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        function.__doc__ = (function.__doc__ or "").replace("    {options}", "\n".join(map(_describe, options)))
        return function

    return decorate


def _describe(o: Option) -> str:
    text = f"{o.name}: {o.help}. {o.details}".strip()
    if o.default_text and o.type not in ("bool", "int"):
        text += f" Default: {o.default_text}."
    return textwrap.fill(text, 120, initial_indent="    ", subsequent_indent="        ")
