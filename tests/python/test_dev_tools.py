"""The counting behind `./dev test`: a case that failed or a program that crashed must never read as a pass."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load_run_tests():
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "tools" / "run_tests.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_tests"] = module
    spec.loader.exec_module(module)
    return module


run_tests = load_run_tests()

GTEST = """<testsuites tests="4"><testsuite name="A">
<testcase name="good" status="run" result="completed" classname="A"/>
<testcase name="left_out" status="notrun" result="suppressed" classname="A"/>
<testcase name="bad" status="run" result="completed" classname="A"><failure message="1 != 2"/></testcase>
<testcase name="not_here" status="run" result="skipped" classname="A">
<skipped message="a_test.cpp:7&#xA;no card"/></testcase>
</testsuite></testsuites>"""

PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="t" name="good"/>
<testcase classname="t" name="bad"><failure/></testcase>
<testcase classname="t" name="broken_fixture"><error/></testcase>
<testcase classname="t" name="not_here"><skipped message="no card"/></testcase>
</testsuite></testsuites>"""


def test_gtest_report_is_counted_by_case(tmp_path):
    report = tmp_path / "test_a.xml"
    report.write_text(GTEST)
    count = run_tests.count_gtest(report)
    assert (count.passed, dict(count.skipped), count.failed) == (1, {"no card": 1}, ["test_a: A.bad"])


def test_pytest_report_is_counted_by_case(tmp_path):
    report = tmp_path / "python.xml"
    report.write_text(PYTEST)
    count = run_tests.count_pytest(report)
    assert (count.passed, dict(count.skipped), count.failed) == (1, {"no card": 1}, ["t::bad", "t::broken_fixture"])


def test_program_that_crashes_is_a_failure(tmp_path):
    (tmp_path / "CTestTestfile.cmake").write_text('add_test(crashes "/bin/sh" "-c" "kill -SEGV $$")\n')
    count = run_tests.run_ctest(tmp_path, jobs=1, pattern=None, full=False, slow=False)
    assert (count.passed, count.failed) == (0, ["crashes (did not finish)"])
