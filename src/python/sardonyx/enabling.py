"""`sardonyx onnxruntime enable`: makes plain `import onnxruntime` in a Python environment import
sardonyx.onnxruntime in its place, so that programs written for AMD's other providers run unchanged. `disable` undoes it.

It adds two files to the environment's site-packages: a .pth file, which Python reads when it starts, and a small module that
replaces onnxruntime when it is imported. Nothing else is changed; SARDONYX_ONNXRUNTIME=0 turns it off for a process.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

PTH = "sardonyx_onnxruntime.pth"
HOOK = "_sardonyx_onnxruntime.py"

HOOK_TEXT = '''"""Written by `sardonyx onnxruntime enable`; `sardonyx onnxruntime disable` removes it."""

import importlib.abc
import importlib.util
import os
import sys

FOLDERS = {folders!r}


class Loader(importlib.abc.Loader):
    """onnxruntime's own, after which the drop-in takes its place."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        sys.path.extend(f for f in FOLDERS if f not in sys.path)
        try:
            import sardonyx.onnxruntime
        except ImportError as e:
            print(
                f"sardonyx: onnxruntime stays as it is, without AMD's providers: the package sardonyx can't be used "
                f"({{e}}); install it, or undo this with `sardonyx onnxruntime disable`",
                file=sys.stderr,
            )
            return
        sardonyx.onnxruntime.activate()


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "onnxruntime":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


if os.environ.get("SARDONYX_ONNXRUNTIME", "1") != "0":
    sys.meta_path.insert(0, Finder())
'''


def enable(site: Path) -> None:
    """Writes the two files to `site`. Raises OSError."""
    package = Path(__file__).resolve().parents[1]
    folders = [] if package == site.resolve() else [str(package)]
    (site / HOOK).write_text(HOOK_TEXT.format(folders=folders))
    (site / PTH).write_text(f"import {Path(HOOK).stem}\n")


def disable(site: Path) -> bool:
    """Removes them; False if there were none."""
    found = is_enabled(site)
    for name in (PTH, HOOK):
        (site / name).unlink(missing_ok=True)
    return found


def is_enabled(site: Path) -> bool:
    return (site / PTH).exists()


def main(arguments: list[str]) -> int:
    """The command; `arguments` are those after `sardonyx`."""
    parser = argparse.ArgumentParser(
        prog="sardonyx onnxruntime", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("enable", "disable", "status"))
    parser.add_argument(
        "--site",
        type=Path,
        default=Path(sysconfig.get_path("purelib")),
        metavar="DIR",
        help="directory that Python reads .pth files from (default: site-packages of this Python, %(default)s)",
    )
    options = parser.parse_args(arguments)
    site = options.site
    try:
        if options.action == "enable":
            enable(site)
            print(
                f"enabled in {site}: `import onnxruntime` runs MIGraphXExecutionProvider and ROCMExecutionProvider here"
            )
        elif options.action == "disable":
            print(f"disabled in {site}" if disable(site) else f"it was not enabled in {site}")
        else:
            print(f"{'enabled' if is_enabled(site) else 'not enabled'} in {site}")
    except OSError as e:
        print(f"sardonyx: {e}; --site names another directory", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
