"""Runs a program that was written for MIGraphX's Python module, unchanged:

    python -m sardonyx.migraphx script.py ARGUMENTS
    python -m sardonyx.migraphx -m module ARGUMENTS

In it, `import migraphx` gives Sardonyx's module. For programs that somebody else starts:

    python -m sardonyx.migraphx --path      the folder for PYTHONPATH, in which the module is called migraphx
    python -m sardonyx.migraphx --bin       the folder for PATH, with migraphx-driver
    python -m sardonyx.migraphx --library   the folder for LD_LIBRARY_PATH, with libmigraphx_c.so.3
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..script_runner import run_program

HERE = Path(__file__).resolve().parent


def _folder(option: str) -> Path:
    if option == "--library":
        from .library import folder

        return folder()
    return HERE / {"--path": "site", "--bin": "bin"}[option]


def main(arguments: list[str]) -> int:
    """Runs the script or module in this process; `arguments` as on the command line."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        return 0 if arguments else 2
    if arguments[0] in ("--path", "--bin", "--library"):
        print(_folder(arguments[0]))
        return 0
    sys.path.insert(1, str(HERE / "site"))
    import migraphx  # noqa: F401  from there, before anything else can give another one

    return run_program(arguments, "sardonyx.migraphx")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
