"""Starts the Python half of `sardonyx generate`, `serve`, `convert-gguf` and `onnxruntime`. argv: FOLDER (of the
package, or empty) and what the command line has."""

import sys

if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
try:
    if sys.argv[2] == "onnxruntime":
        from sardonyx.enabling import main
    elif sys.argv[2] == "serve":
        from sardonyx.serve.command import main
    else:
        from sardonyx.llm.command import main
except ImportError as e:
    print(
        f"sardonyx: `sardonyx {sys.argv[2]}` runs in Python, and {sys.executable} can't use the package sardonyx ({e}); name"
        " a Python that has it with --python or SARDONYX_PYTHON",
        file=sys.stderr,
    )
    sys.exit(4)
sys.exit(main(sys.argv[3:] if sys.argv[2] in ("onnxruntime", "serve") else sys.argv[2:]))
