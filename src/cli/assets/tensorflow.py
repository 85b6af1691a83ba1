"""Starts sardonyx.tensorflow for the command line. argv: FOLDER (of the package, or empty), then command.py's arguments."""

import sys

if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])
try:
    from sardonyx.tensorflow.command import main
except ImportError as e:
    print(
        f"TensorFlow models are read in Python, and {sys.executable} can't use the package sardonyx ({e}); name a Python that has"
        " it, and tensorflow, with SARDONYX_PYTHON",
        file=sys.stderr,
    )
    sys.exit(4)
sys.exit(main(sys.argv[2:]))
