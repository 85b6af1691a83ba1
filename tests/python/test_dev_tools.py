"""The tools of ./dev: `test` counts every failure and crash, `lint` reports every breach of the structure."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


run_tests, structure = load("run_tests"), load("structure")

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


def make_tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


TABLE = "# a comment\nlow:\nmiddle: low\nhigh: middle low\n"
SOUND = {
    "src/components.txt": TABLE,
    "src/low/a.h": '#include <vector>\n#include "sardonyx/tensor.h"\n',
    "src/middle/b.cpp": '#include "low/a.h"\n#include "b.h"\n',
    "src/middle/b.h": "",
    "src/high/deep/c.cpp": '#include "middle/b.h"\n  #  include "low/a.h"\n',
}


def breaches(root):
    return structure.include_problems(root / "src")


def test_includes_in_order_pass(tmp_path):
    assert breaches(make_tree(tmp_path, SOUND)) == []


@pytest.mark.parametrize(
    "name, text, expected",
    [
        (
            "src/low/a.h",
            '#include "sardonyx/tensor.h"\n#include "middle/b.h"\n',
            "src/low/a.h:2: includes middle/b.h, but src/components.txt does not let low use middle",
        ),
        (
            "src/low/a.h",
            '#include "../middle/b.h"\n',
            "src/low/a.h:1: includes ../middle/b.h, but src/components.txt does not let low use middle",
        ),
        (
            "src/components.txt",
            TABLE.replace("low:", "low: high"),
            "components.txt:2: low uses high, which is not a component above it",
        ),
        ("src/extra/d.cpp", "", "src/extra is not in src/components.txt"),
        ("src/components.txt", TABLE + "gone:\n", "components.txt: src/gone does not exist"),
        ("src/middle/b.cpp", "", "components.txt: middle includes nothing of low; remove it from the line"),
        ("src/components.txt", TABLE + "low:\n", "components.txt:5: low is listed twice"),
        ("src/components.txt", TABLE + "wrong\n", "components.txt:5: 'wrong' is not NAME: NAME..."),
    ],
)
def test_breach_of_the_include_order_is_reported(tmp_path, name, text, expected):
    assert expected in breaches(make_tree(tmp_path, SOUND | {name: text}))


def test_this_repository_is_in_order():
    assert structure.problems(ROOT, structure_names()) == []


def structure_names():
    shown = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [n for n in shown.splitlines() if n.endswith(structure.SOURCE_SUFFIXES) and (ROOT / n).exists()]


def statements(lines, indent="  "):
    return "".join(f"{indent}x += {k};\n" for k in range(lines))


def test_long_files_and_functions_are_reported(tmp_path):
    files = {
        "src/low/limit.cpp": "int f(int x) {\n" + statements(97) + "  return x;\n}\n",
        "src/low/over.cpp": "namespace n {\nstruct S {\nint f(int x) {\n" + statements(98) + "  return x;\n}\n};\n}\n",
        "src/low/file.h": "\n" * 501,
        "src/kernels/limit.h": "template <int N>\nFN int f(int x) {\n" + statements(147) + "  return x;\n}\n",
        "src/kernels/over.h": "FN int g(int x) {\n" + statements(148) + "  return x;\n}\n",
        "tools/over.py": "def outer():\n    def inner(x):\n"
        + statements(97, "        ")
        + "        return x\n\n    return inner\n",
    }
    make_tree(tmp_path, files)
    assert structure.file_problems(tmp_path, files) == ["src/low/file.h: 501 lines; split it (at most 500)"]
    assert structure.function_problems(tmp_path, list(files)) == [
        "src/low/over.cpp:3: f has 101 lines; split it (at most 100)",
        "src/kernels/over.h:1: g has 151 lines; split it (at most 150)",
        "tools/over.py:1: outer has 102 lines; split it (at most 100)",
    ]


def test_questions_for_names_and_makers_of_chips_are_reported(tmp_path):
    texts = {
        "src/low/a.cpp": 'bool a = arch == "gfx942";\n',
        "src/low/b.cpp": 'bool b = arch.starts_with("sm_");\n',
        "src/low/c.cpp": "#if defined(__gfx90a__)\n#endif\n",
        "src/low/good.cpp": 'const char* example = "gfx942"; // arch is "gfx942"\n',
        "src/target/chips.cpp": 'bool d = name != "sm_90";\n',
        "src/low/maker.cpp": "int e = chip.is_nvidia() ? 1 : 2;\n",
        "src/device/maker.cpp": "int e = chip.is_nvidia() ? 1 : 2;\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = [p.split(": ")[0] for p in structure.chip_name_problems(tmp_path, sorted(texts))]
    assert found == ["src/low/a.cpp:1", "src/low/b.cpp:1", "src/low/c.cpp:1"]
    found = [p.split(": ")[0] for p in structure.maker_problems(tmp_path, sorted(texts))]
    assert found == ["src/low/maker.cpp:1"]


def test_components_are_documented(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "src/components.txt").write_text("low:\nhigh: low\n")
    (tmp_path / "docs/architecture.md").write_text("```\nsrc/\n  low/   first\n  old/   gone\n```\n")
    found = structure.documented_problems(tmp_path)
    assert [p.split(": ")[1].split()[0] for p in found] == ["high", "old"]


def test_circles_of_python_modules_are_reported(tmp_path):
    package = tmp_path / "p"
    (package / "q").mkdir(parents=True)
    (package / "__init__.py").write_text("from .a import f\nfrom .q.b import g\n")
    (package / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .q.b import g\n")
    (package / "q" / "b.py").write_text("from .. import c\n")
    (package / "c.py").write_text("import os\n")
    assert structure.import_circles(package) == []
    (package / "c.py").write_text("def f():\n    from .a import x\n")
    (problem,) = structure.import_circles(package)
    assert "circle" in problem and all(m in problem for m in ("p.a", "p.q.b", "p.c"))
