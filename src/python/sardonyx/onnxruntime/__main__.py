"""Runs a program that was written for AMD's other providers, unchanged:

    python -m sardonyx.onnxruntime script.py ARGUMENTS
    python -m sardonyx.onnxruntime -m module ARGUMENTS

In it, `import onnxruntime` gives the drop-in (see sardonyx.onnxruntime).
"""

from __future__ import annotations

import os
import runpy
import sys


def main(arguments: list[str]) -> int:
    """Runs the script or module in this process; `arguments` as on the command line."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        return 0 if arguments else 2
    import sardonyx.onnxruntime

    sardonyx.onnxruntime.activate()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print("sardonyx.onnxruntime: -m needs a module's name", file=sys.stderr)
            return 2
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    script = arguments[0]
    if not os.path.exists(script):
        print(f"sardonyx.onnxruntime: there is no {script}", file=sys.stderr)
        return 2
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
