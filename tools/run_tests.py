"""Runs every test and counts the cases: GoogleTest programs under ctest, tests/python under pytest, and fuzz targets.

The last line is `N passed, M failed`, with `, K skipped` when any were; the exit status is not zero when a case failed,
a program ended without reporting, or nothing ran. Programs labelled `slow` in CMake and Python tests marked
`slow` run in part unless --full is given: always the same part, so that a failure repeats.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# A slow program runs one case in this many by default; tests/python/conftest.py has the same for Python.
SLOW_PART = 10
CTEST_TIMEOUT_S = 600


@dataclasses.dataclass
class Count:
    """The number of passed cases, the names of failed ones, and the number of skipped ones by reason."""

    passed: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    skipped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.skipped += other.skipped
        self.failed += other.failed


def skip_reason(case: ElementTree.Element) -> str:
    """The first line of the reason, without the source location that GoogleTest prepends or pytest puts around it."""
    skipped = case.find("skipped")
    text = (skipped.get("message") or skipped.text or "") if skipped is not None else ""
    if text == "collection skipped":  # pytest's word for a whole file; the reason is in a tuple with the place
        found = re.search(r"Skipped: (.*?)['\"]\)$", skipped.text or "")
        text = found[1] if found else text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if not re.fullmatch(r"\S+:\d+", line)]
    return reasons[0] if reasons else "no reason given"


def count_gtest(path: Path) -> Count:
    """Counts the cases of one file that --gtest_output=xml wrote. Cases that a filter left out do not count."""
    count = Count()
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{path.stem}: {case.get('classname')}.{case.get('name')}"
        if case.get("status") != "run":
            continue
        if case.find("failure") is not None:
            count.failed.append(name)
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            count.skipped[skip_reason(case)] += 1
        else:
            count.passed += 1
    return count


def count_pytest(path: Path) -> Count:
    """Counts the cases of one file that --junit-xml wrote."""
    count = Count()
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif case.find("skipped") is not None:
            count.skipped[skip_reason(case)] += 1
        else:
            count.passed += 1
    return count


def run_ctest(build: Path, jobs: int, pattern: str | None, full: bool, slow: bool) -> Count:
    """Runs the GoogleTest programs with the label slow, or the others."""
    results = build / "test-results" / ("cpp-slow" if slow else "cpp")
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    junit = results / "ctest.junit"
    # Absolute, because each program has its own working directory.
    environment = os.environ | {"GTEST_OUTPUT": f"xml:{results.resolve()}/"}
    if pattern:
        environment["GTEST_FILTER"] = f"*{pattern}*"
    if full:
        environment["SARDONYX_TEST_FULL"] = "1"
    elif slow:
        # A part of the cases is selected by GoogleTest's sharding.
        environment |= {"GTEST_TOTAL_SHARDS": str(SLOW_PART), "GTEST_SHARD_INDEX": "0"}
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=ignore", "-j", str(jobs)]
    command += ["--timeout", str(CTEST_TIMEOUT_S), "--output-junit", str(junit.resolve())]
    command += ["-L" if slow else "-LE", "^slow$"]
    status = subprocess.run(command, env=environment, stderr=subprocess.STDOUT).returncode

    count = Count()
    explained = set()  # programs whose report names the failed cases
    for path in sorted(results.glob("*.xml")):
        try:
            reported = count_gtest(path)
        except ElementTree.ParseError:  # the program crashed while writing it
            continue
        count.add(reported)
        if reported.failed:
            explained.add(path.stem)
    # Crashes, time-outs, programs that did not start, and those that crashed at exit.
    died = []
    if junit.exists():
        failed = [
            case.get("name") for case in ElementTree.parse(junit).iter("testcase") if case.get("status") == "fail"
        ]
        died = [f"{name} (did not finish)" for name in failed if f"test_{name}" not in explained]
    count.failed += died
    if status != 0 and not count.failed:
        count.failed.append(f"ctest itself (exit status {status})")
    return count


def run_pytest(root: Path, build: Path, jobs: int, pattern: str | None, full: bool) -> Count:
    """Runs tests/python with the package in build/python."""
    folder = root / "tests" / "python"
    if not any(folder.rglob("test_*.py")):
        return Count()
    report = build / "test-results" / "python.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", str(folder), "-q", f"--junit-xml={report}"]
    command += ["-n", str(jobs), "--dist=worksteal", "--tb=short"]
    if pattern:
        command += ["-k", pattern]
    if full:
        command.append("--full")
    environment = os.environ | {"PYTHONPATH": str((build / "python").resolve()), "SARDONYX_BUILD": str(build.resolve())}
    status = subprocess.run(command, cwd=root, env=environment, stderr=subprocess.STDOUT).returncode
    count = count_pytest(report) if report.exists() else Count()
    nothing_selected = 5
    if status not in (0, nothing_selected) and not count.failed:
        count.failed.append(f"pytest itself (exit status {status})")
    return count


def run_fuzzers(root: Path, build: Path, jobs: int, seconds: int) -> Count:
    """Builds tests/fuzz, a separate project, and runs its targets for `seconds` each; counts as one case."""
    print(f"Fuzzing for {seconds} s each ...", flush=True)
    folder = build / "fuzz"
    configure = ["cmake", "-G", "Ninja", "-S", str(root / "tests" / "fuzz"), "-B", str(folder)]
    configure += [f"-DSARDONYX_PYTHON_EXECUTABLE={sys.executable}", f"-DSARDONYX_FUZZ_SECONDS={seconds}"]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    log = build / "test-results" / "fuzz.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        for command in configure, ["ninja", "-C", str(folder), "-j", str(jobs), "check"]:
            status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
            if status != 0:
                break
    if status == 0:
        return Count(passed=1)
    # libFuzzer's findings, and how to reproduce them, are at the end of what the target wrote. Others ran beside it.
    failed = log.read_text(errors="replace").partition("FAILED: ")[2]
    of_target = re.split(r"\n\[\d+/\d+\] ", failed)[0] or log.read_text(errors="replace")
    print("\n".join(of_target.splitlines()[-60:]))
    return Count(failed=[f"fuzz ({log} has the rest)"])


def printable(text: str) -> str:
    return re.sub(r"[^ -~]", "?", text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", description="Builds, then runs the C++ and Python tests.")
    parser.add_argument("--full", action="store_true", help="run the slow sweeps completely, not in part")
    parser.add_argument("-k", metavar="PATTERN", dest="pattern", help="only cases whose name contains PATTERN")
    parser.add_argument(
        "--fuzz", type=int, metavar="SECONDS", help="also run each fuzz target for this long (with --full: 60 seconds)"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--cpp", action="store_true", help="only the C++ tests")
    only.add_argument("--python", action="store_true", help="only the Python tests")
    parser.add_argument("--build", type=Path, default=Path("build"), help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    root = Path(__file__).resolve().parent.parent

    count = Count()
    if not arguments.python:
        for slow in (False, True):
            count.add(run_ctest(arguments.build, arguments.jobs, arguments.pattern, arguments.full, slow))
    if not arguments.cpp:
        count.add(run_pytest(root, arguments.build, arguments.jobs, arguments.pattern, arguments.full))
    seconds = arguments.fuzz if arguments.fuzz is not None else 60 if arguments.full else 0
    if seconds:
        count.add(run_fuzzers(root, arguments.build, arguments.jobs, seconds))

    if count.skipped:
        print("\nSkipped:")
        for reason, times in count.skipped.most_common():
            print(f"  {times:5} {printable(reason)}")
    if count.failed:
        print("\nFailed:")
        for name in count.failed:
            print(f"  {printable(name)}")
    skipped = f", {count.skipped.total()} skipped" if count.skipped else ""
    print(f"{count.passed} passed, {len(count.failed)} failed{skipped}", flush=True)
    return 0 if count.passed and not count.failed else 1


if __name__ == "__main__":
    sys.exit(main())
