"""What ./dev lint checks about the structure of the source: the direction of includes, and the lengths of files and functions.

src/components.txt lists the components and which of them each may include. A file has at most 500 lines. A function has at most 100,
in src/kernels 150, because a kernel's phases share registers and shared memory and are hard to pass between functions. Names of chips
are compared in src/target only, and only the components between the table and the drivers ask whose chip it is. Modules of the Python
package do not import each other in a circle.
"""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CPP_SUFFIXES = (".cpp", ".h", ".inc", ".hip")
SOURCE_SUFFIXES = (*CPP_SUFFIXES, ".py", ".sh", ".cmake", ".html")
LONGEST_FILE = 500
LONGEST_FUNCTION = 100
LONGEST_KERNEL_FUNCTION = 150  # in src/kernels

_CHIP_NAME = re.compile(r'(?:[=!]=\s*|starts_with\()"(?:gfx|sm_)|__gfx[0-9a-f]+__')
_MAKER = re.compile(r"\bis_nvidia\(|\bVendor::k")
KNOW_MAKERS = ("src/target/", "src/compile/", "src/device/", "src/sim/")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Function(NamedTuple):
    path: str
    line: int
    name: str
    lines: int


def read_components(table: Path) -> tuple[dict[str, list[str]], list[str]]:
    """The components of src/components.txt with those that each may include, and what is wrong with the table itself."""
    components: dict[str, list[str]] = {}
    problems: list[str] = []
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        name, colon, uses = (part.strip() for part in text.partition(":"))
        if not colon:
            problems.append(f"{table.name}:{number}: '{text}' is not NAME: NAME...")
            continue
        for use in uses.split():
            if use not in components:
                problems.append(f"{table.name}:{number}: {name} uses {use}, which is not a component above it")
        if name in components:
            problems.append(f"{table.name}:{number}: {name} is listed twice")
        components[name] = uses.split()
    return components, problems


def _included_components(file: Path, source: Path, components: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Line, text and component of each #include "..." of another component's header."""
    text = file.read_text(encoding="utf-8")
    for match in _INCLUDE.finditer(text):
        header = match[1]
        if (file.parent / header).exists():
            target = (file.parent / header).resolve().relative_to(source.resolve()).parts[0]
        else:
            target = header.split("/")[0]
        if target in components:
            yield text.count("\n", 0, match.start(1)) + 1, header, target


def include_problems(source: Path) -> list[str]:
    """Every breach of source/components.txt: an include that it does not allow, a directory that it lacks, an entry without use."""
    components, problems = read_components(source / "components.txt")
    folders = {p.name for p in source.iterdir() if p.is_dir() and any(p.rglob("*.*"))}
    for name in sorted(folders - components.keys()):
        problems.append(f"src/{name} is not in src/components.txt")
    for name in sorted(components.keys() - folders):
        problems.append(f"components.txt: src/{name} does not exist")
    used = defaultdict(set)
    for name in sorted(components.keys() & folders):
        for file in sorted((source / name).rglob("*")):
            if file.suffix not in CPP_SUFFIXES:
                continue
            for line, header, target in _included_components(file, source, components):
                if target == name:
                    continue
                used[name].add(target)
                if target not in components[name]:
                    where = f"src/{file.relative_to(source)}:{line}"
                    problems.append(
                        f"{where}: includes {header}, but src/components.txt does not let {name} use {target}"
                    )
    for name, uses in components.items():
        for use in sorted((set(uses) & components.keys()) - used[name]):
            problems.append(f"components.txt: {name} includes nothing of {use}; remove it from the line")
    return problems


def _imported_modules(name: str, tree: ast.AST, modules: Collection[str]) -> Iterator[str]:
    """The modules of `modules` that module `name` (a.b.c) imports anywhere, also for types only or within functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".")[: -node.level] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            found = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (m for m in found if m in modules)


def import_circles(package: Path) -> list[str]:
    """A circle of imports below the folder of a Python package, if there is one. An __init__.py only hands names on, so it does not
    count."""
    files = {
        ".".join(p.relative_to(package.parent).with_suffix("").parts): p
        for p in sorted(package.rglob("*.py"))
        if p.name != "__init__.py"
    }
    imports = {
        m: set(_imported_modules(m, ast.parse(p.read_text(encoding="utf-8"), str(p)), files)) for m, p in files.items()
    }
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return [f"{package.name}: modules import each other in a circle: {' <- '.join(error.args[1])}"]
    return []


def file_problems(root: Path, names: Iterable[str]) -> list[str]:
    problems: list[str] = []
    for name in names:
        lines = (root / name).read_text(encoding="utf-8").count("\n")
        if lines > LONGEST_FILE:
            problems.append(f"{name}: {lines} lines; split it (at most {LONGEST_FILE})")
    return problems


def cpp_functions(root: Path, names: list[str]) -> Iterator[Function]:
    """C++ functions as universal-ctags finds them. A lambda counts as part of the function around it."""
    command = [
        "ctags",
        "--quiet",
        "--output-format=json",
        "--fields=+ne",
        "--languages=C++",
        "--langmap=C++:+.inc.hip.h",
    ]
    command += ["--kinds-C++=f", "-f", "-", "-L", "-"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, input="\n".join(names))
    for line in done.stdout.splitlines():
        tag = json.loads(line)
        if "end" in tag:
            yield Function(tag["path"], tag["line"], tag["name"], tag["end"] - tag["line"] + 1)


def python_functions(root: Path, names: list[str]) -> Iterator[Function]:
    for name in names:
        for node in ast.walk(ast.parse((root / name).read_text(encoding="utf-8"), name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                yield Function(name, node.lineno, node.name, node.end_lineno - node.lineno + 1)


def function_problems(root: Path, names: list[str]) -> list[str]:
    functions = [
        *cpp_functions(root, [n for n in names if n.endswith(CPP_SUFFIXES)]),
        *python_functions(root, [n for n in names if n.endswith(".py")]),
    ]
    problems: list[str] = []
    for f in functions:
        longest = LONGEST_KERNEL_FUNCTION if f.path.startswith("src/kernels/") else LONGEST_FUNCTION
        if f.lines > longest:
            problems.append(f"{f.path}:{f.line}: {f.name} has {f.lines} lines; split it (at most {longest})")
    return problems


def chip_name_problems(root: Path, names: Iterable[str]) -> list[str]:
    """Comparisons with chips' names in src/: only src/target, the table of chips, knows them."""
    problems: list[str] = []
    for name in names:
        if not (name.startswith("src/") and name.endswith(CPP_SUFFIXES)) or name.startswith("src/target/"):
            continue
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            if _CHIP_NAME.search(line):
                problems.append(f"{name}:{number}: compares a chip's name; ask the table of chips (src/target/chip.h)")
    return problems


def maker_problems(root: Path, names: Iterable[str]) -> list[str]:
    """Questions whose chip it is, outside of KNOW_MAKERS: others ask for a feature or a policy."""
    problems: list[str] = []
    for name in names:
        if not (name.startswith("src/") and name.endswith(CPP_SUFFIXES)) or name.startswith(KNOW_MAKERS):
            continue
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            if _MAKER.search(line):
                problems.append(
                    f"{name}:{number}: asks whose chip it is; ask for a feature or a policy (src/target/chip.h)"
                )
    return problems


def documented_problems(root: Path) -> list[str]:
    """Components that the list in docs/architecture.md lacks, or has too many."""
    components = set(read_components(root / "src" / "components.txt")[0])
    page = root / "docs" / "architecture.md"
    listed = set(re.findall(r"^  (\w+)/  ", page.read_text(encoding="utf-8"), re.MULTILINE))
    wrong = [(c, "is not in the list of components") for c in sorted(components - listed)]
    wrong += [(c, "is listed, but src/components.txt does not have it") for c in sorted(listed - components)]
    return [f"docs/architecture.md: {name} {why}" for name, why in wrong]


def problems(root: Path, names: list[str]) -> list[str]:
    """What is wrong with the source files `names` below `root`."""
    return [
        *include_problems(root / "src"),
        *file_problems(root, names),
        *function_problems(root, names),
        *chip_name_problems(root, names),
        *maker_problems(root, names),
        *documented_problems(root),
        *import_circles(root / "src" / "python" / "sardonyx"),
    ]
