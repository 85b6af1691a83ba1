"""Checks formatting, Python types, shell syntax, the structure of the source (tools/structure.py) and clang-tidy.

clang-tidy is slow, so it looks at the .cpp files that the working tree and the last commit changed, or with --all at
every one in src/. Formatting is checked everywhere; --fix writes it. The exit status is 1 when something was found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structure

ROOT = Path(__file__).resolve().parent.parent
CPP = ("*.cpp", "*.h")


def git(*arguments: str) -> list[str]:
    output = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return output.splitlines()


def tracked(*patterns: str) -> list[str]:
    """Files that are tracked, or new and not ignored, and exist."""
    names = set(git("ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns))
    return sorted(name for name in names if (ROOT / name).exists())


def changed() -> list[str]:
    """Files changed in the working tree or by the last commit."""
    has_parent = subprocess.run(["git", "rev-parse", "-q", "--verify", "HEAD~1"], cwd=ROOT, capture_output=True)
    base = "HEAD~1" if has_parent.returncode == 0 else "HEAD"
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def check(title: str, command: list[str]) -> bool:
    print(f"{title} ...", flush=True)
    return subprocess.run(command, cwd=ROOT).returncode == 0


def structure_is_good() -> bool:
    print("structure ...", flush=True)
    found = structure.problems(ROOT, tracked(*(f"*{suffix}" for suffix in structure.SOURCE_SUFFIXES)))
    for text in found:
        print(f"  {text}", flush=True)
    return not found


def clang_format(fix: bool) -> bool:
    print("clang-format ...", flush=True)
    command = ["clang-format-22", *(["-i"] if fix else ["--dry-run", "-Werror"]), *tracked(*CPP)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    names = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error:" in line})
    for name in names:
        print(f"  {name}: not formatted; ./dev lint --fix", flush=True)
    if done.returncode != 0 and not names:
        print(done.stderr, flush=True)
    return done.returncode == 0


def clang_tidy(build: Path, jobs: int, files: list[str]) -> bool:
    if not files:
        print("clang-tidy: no source changed", flush=True)
        return True
    print(f"clang-tidy on {len(files)} files ...", flush=True)

    def one(name: str) -> bool:
        done = subprocess.run(
            ["clang-tidy-22", "--quiet", "-p", str(build), name], cwd=ROOT, capture_output=True, text=True
        )
        if done.returncode != 0:
            print(done.stdout + done.stderr, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(one, files)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev lint", description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="write the formatting instead of only checking it")
    parser.add_argument("--all", action="store_true", help="run clang-tidy on every source, not only on changed ones")
    parser.add_argument("--build", type=Path, default=Path("build"), help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    good = clang_format(arguments.fix)

    ruff = [sys.executable, "-m", "ruff"]
    good &= check("ruff", [*ruff, "check", *(["--fix"] if arguments.fix else []), "."])
    good &= check("ruff format", [*ruff, "format", *([] if arguments.fix else ["--check"]), "."])
    good &= check("mypy", [sys.executable, "-m", "mypy", "--no-error-summary"])
    for script in ["dev", ".ci/run", *tracked("*.sh")]:
        good &= check(f"bash -n {script}", ["bash", "-n", script])

    good &= structure_is_good()

    sources = tracked("src/*.cpp")
    if not arguments.all:
        recent = set(changed())
        sources = [name for name in sources if name in recent]
    good &= clang_tidy(arguments.build, arguments.jobs, sources)
    print("lint: clean" if good else "lint: see above", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
