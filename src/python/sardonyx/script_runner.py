"""Runs another program in this process, as `python script.py` and `python -m module` do."""

from __future__ import annotations

import os
import runpy
import sys


def run_program(arguments: list[str], command: str) -> int:
    """Runs a script or, after "-m", a module, with the arguments that follow.

    Returns an exit code: 0 if it ends, 2 with a line on stderr, which begins with `command`, if it is not there.
    """
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print(f"{command}: -m needs a module's name", file=sys.stderr)
            return 2
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    script = arguments[0]
    if not os.path.exists(script):
        print(f"{command}: there is no {script}", file=sys.stderr)
        return 2
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0
