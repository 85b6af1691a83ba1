"""Runs a program that was written for AMD's other providers, unchanged:

    python -m sardonyx.onnxruntime script.py ARGUMENTS
    python -m sardonyx.onnxruntime -m module ARGUMENTS

In it, `import onnxruntime` gives the drop-in (see sardonyx.onnxruntime).
"""

from __future__ import annotations

import sys

from ..script_runner import run_program


def main(arguments: list[str]) -> int:
    """Runs the script or module in this process; `arguments` as on the command line."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print((__doc__ or "").strip())
        return 0 if arguments else 2
    import sardonyx.onnxruntime

    sardonyx.onnxruntime.activate()
    return run_program(arguments, "sardonyx.onnxruntime")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
