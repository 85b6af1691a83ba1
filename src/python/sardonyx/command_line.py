"""Shared code of the commands that run in Python: parsing, errors as one line on stderr and an exit code, progress."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .errors import Error, FileError, InvalidArgumentError


class Parser(argparse.ArgumentParser):
    """Wrong use raises InvalidArgumentError."""

    def error(self, message: str) -> Any:
        raise InvalidArgumentError(f"{message}; `{self.prog} --help` shows how it is used")


def exit_code(command: Callable[[], object]) -> int:
    """Runs a command; an error is one line on stderr, and its kind the exit code that is returned."""
    try:
        command()
        sys.stdout.flush()
        return 0
    except Error as error:
        sys.stdout.flush()
        message = "; ".join(str(error).splitlines())
        print(f"sardonyx: {message}", file=sys.stderr)
        return error.code
    except BrokenPipeError:  # the reader of stdout has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print("sardonyx: stdout can't be written", file=sys.stderr)
        return FileError.code
    except MemoryError:
        print("sardonyx: out of memory", file=sys.stderr)
        return 7
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def write_json(file: str, content: Any) -> None:
    """Writes to a file, or to stdout if its name is "-"."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    if file == "-":
        print(text)
        return
    try:
        with open(file, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    except OSError as error:
        raise FileError(f"'{file}' could not be written: {error.strerror}") from None


class ProgressLine:
    """One line on stderr that is overwritten, if stderr is a terminal."""

    def __init__(self, wanted: bool = True):
        self._active = wanted and sys.stderr.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        if self._active:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False
