"""The exceptions of the package, by what a caller can do about them; all are subclasses of `Error`.

Each says in one line what is wrong, where, and what to do. `code` is the command line's exit code for it.
"""

from __future__ import annotations


class Error(Exception):
    """The base of all exceptions that Sardonyx raises."""

    code = 1


class InternalError(Error, RuntimeError):
    """A bug in Sardonyx."""

    code = 1


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong: an input's name, dtype or shape, or an option."""

    code = 2


class InvalidModelError(Error, ValueError):
    """The model or the program file is malformed."""

    code = 3


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but not supported; the message says what to do instead."""

    code = 4


class FileError(Error, OSError):
    """A file could not be read or written."""

    code = 5


class CompileError(Error, RuntimeError):
    """The embedded compiler refused generated code."""

    code = 6


class DeviceError(Error, RuntimeError):
    """A device or its driver failed."""

    code = 7


class OverloadedError(DeviceError):
    """Too many requests are waiting, so no more are accepted; try again later."""


class MismatchError(Error):
    """Results differ from a reference."""

    code = 8


_BY_CODE: dict[int, type[Error]] = {
    c.code: c
    for c in (
        InternalError,
        InvalidArgumentError,
        InvalidModelError,
        UnsupportedError,
        FileError,
        CompileError,
        DeviceError,
        MismatchError,
    )
}


def of_code(code: int, message: str) -> Error:
    """The exception for the library's kind of error; the native module calls this."""
    return _BY_CODE.get(code, InternalError)(message)
