"""docs/operators.md matches the operators' definitions."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "operators_doc.py", "--check"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
