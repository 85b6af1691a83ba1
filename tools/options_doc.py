"""Generates docs/options.md and the types of Python's keyword arguments from the tables of options.

    tools/options_doc.py            # writes both files
    tools/options_doc.py --check    # fails if one is out of date

Needs the built Python package on PYTHONPATH. The tables are include/sardonyx/compile_options.h and
src/options/provider_*.cpp.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

HEAD = """# Options

`tools/options_doc.py` generates this page from `include/sardonyx/compile_options.h` and `src/options/provider_*.cpp`; do not edit it.

## Compiling and loading

These are the fields of `sardonyx::Options` in C++ and the keyword arguments of `sardonyx.compile` in Python. "flag" is the command line option, "variable" the environment variable that the command line reads if the flag is not given, and "provider" the
option of ONNX Runtime's provider. Options marked "at load" also apply when a compiled program is loaded (`CompiledModel::load`, `sardonyx.load`, a `.sdx` file on the command line); the others are refused there.
"""

PROVIDER = """## ONNX Runtime's provider

These options of `AMDGPUExecutionProvider` apply to `add_provider_for_devices`, `providers=` and `AppendExecutionProvider_V2`, in addition to those above with a name in the column "provider". An unknown option is an error that names the most similar option.
"""

LEGACY = """## Options of AMD's other providers

Every option of the MIGraphX, ROCm and AMDGPU providers is accepted. This table has the options whose names differ.
"""

VARIABLES = """## Environment variables of AMD's other providers

The plugin reads the variables of the MIGraphX provider, of AMD's plugin and of MIGraphX when a session is created. An option overrides a variable. For an unknown variable that begins with `ORT_MIGRAPHX_` or `MIGRAPHX_`, a warning names it and the most similar known one. For a variable without
effect, the reason is logged at level INFO.
"""

IGNORED = """These options have no effect, because nothing needs them. The log gives the reason once, at level INFO:
"""

TYPES = '''"""Types of the options of compile() and load().

tools/options_doc.py generates this file from include/sardonyx/compile_options.h; do not edit it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict


class LoadOptions(TypedDict, total=False):
    """Options that also apply when a compiled program is loaded."""
'''


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def codes(names: tuple[str, ...]) -> str:
    return ", ".join(map(code, names))


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines) + "\n"


def sentence(text: str) -> str:
    """As Markdown: names of pages in docs/ become links."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", text) + ("" if text.endswith(".") else ".")


def reasons(native: Any) -> dict[str, tuple[str, ...]]:
    """The variables without effect, by the reason."""
    out: dict[str, tuple[str, ...]] = {}
    for name, option, why, _ in native.provider_variables():
        if not option:
            out[why] = (*out.get(why, ()), name)
    return out


def page() -> str:
    import sardonyx.options

    native = sardonyx._sardonyx
    options = list(sardonyx.options.OPTIONS.values())
    rows = [
        [code(o.name), code(o.flag), code(o.environment), code(o.provider), o.default_text, "yes" if o.at_load else "",
         sentence(o.help) + (" " + sentence(o.details) if o.details else "")]
        for o in options
    ]  # fmt: skip
    own = native.provider_options()
    legacy = [[o.get("provider") or o["name"], o["migraphx"], o["rocm"]] for o in [x._asdict() for x in options] + own]
    return "\n".join(
        [
            HEAD,
            table(["option", "flag", "variable", "provider", "default", "at load", "meaning"], rows),
            PROVIDER,
            table(
                ["option", "default", "meaning"],
                [[code(o["name"]), o["default_text"], sentence(o["help"])] for o in own],
            ),
            LEGACY,
            table(["option", "MIGraphX", "ROCm"], [[code(n), codes(m), codes(r)] for n, m, r in legacy if m or r]),
            IGNORED,
            table(
                ["option", "of", "why"], [[code(n), of, sentence(w)] for of, n, w in native.ignored_provider_options()]
            ),
            VARIABLES,
            table(
                ["variable", "is the option"],
                [
                    [code(n), code(o) + (", inverted" if inverted else "")]
                    for n, o, _, inverted in native.provider_variables()
                    if o
                ],
            ),
            "These variables have no effect:\n",
            table(["why", "variables"], [[sentence(w), codes(names)] for w, names in reasons(native).items()]),
        ]
    )


def types() -> str:
    import sardonyx.options

    def fields(at_load: bool) -> str:
        lines = []
        for o in sardonyx.options.OPTIONS.values():
            if o.at_load == at_load:
                comment = textwrap.fill(sentence(o.help), 116, initial_indent="    #: ", subsequent_indent="    #: ")
                lines.append(f"{comment}\n    {o.name}: {o.type}\n")
        return "\n" + "".join(lines)

    last = '\n\nclass CompileOptions(LoadOptions, total=False):\n    """All options of compiling."""\n'
    return TYPES + fields(True) + last + fields(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check whether the files are up to date")
    check = parser.parse_args().check
    for file, text in (("docs/options.md", page()), ("src/python/sardonyx/option_types.py", types())):
        if check and (not (ROOT / file).exists() or (ROOT / file).read_text() != text):
            print(f"{file} is out of date: run tools/options_doc.py", file=sys.stderr)
            return 1
        if not check:
            (ROOT / file).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
