"""Starts the Python half of the commands that run in Python. argv: FOLDER (of the package, or empty) and what the command
line has."""

import sys

if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
command, arguments = sys.argv[2], sys.argv[2:]
try:
    if command == "onnxruntime":
        from sardonyx.enabling import main

        arguments = arguments[1:]
    elif command == "serve":
        from sardonyx.serve.command import main

        arguments = arguments[1:]
    elif command in ("evaluate", "quantize"):
        from sardonyx.quantization.command import main
    else:
        from sardonyx.llm.command import main
except ImportError as e:
    print(
        f"sardonyx: `sardonyx {command}` runs in Python, and {sys.executable} can't use the package sardonyx ({e}); name"
        " a Python that has it with --python or SARDONYX_PYTHON",
        file=sys.stderr,
    )
    sys.exit(4)
sys.exit(main(arguments))
