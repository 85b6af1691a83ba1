"""Options are declared once: what Python, the command line and the documentation show is the library's table."""

import argparse
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import sardonyx
import sardonyx.migraphx as mgx
from operators import model_of
from sardonyx.options import OPTIONS, add_flags, options_of_flags
from test_migraphx_c import exported

ROOT = Path(__file__).parents[2]


def test_generated_files_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "options_doc.py", "--check"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr


def accepted_names():
    """All names of options and variables that the provider takes in some form, from the tables that it reads."""
    native = sardonyx._sardonyx
    names = {n for o in OPTIONS.values() for n in (o.provider, *o.migraphx, *o.rocm) if n}
    names |= {n for o in native.provider_options() for n in (o["name"], *o["migraphx"], *o["rocm"])}
    names |= {name for _, name, _ in native.ignored_provider_options()}
    return names | {name for name, *_ in native.provider_variables()}


def existing(test):
    if "::" in test:
        file, name = test.split("::")
        return re.search(rf"^def {name}\(", (ROOT / "tests" / "python" / file).read_text(), re.MULTILINE)
    suite, name = test.split(".")
    pattern = re.compile(rf"^TEST(_P|_F)?\({suite}, {name}\)", re.MULTILINE)
    return any(pattern.search(f.read_text()) for f in (ROOT / "tests" / "cpp").rglob("*.cpp"))


def test_every_option_is_listed_with_tests_that_exist():
    tests = tomllib.loads((ROOT / "tests" / "python" / "option_tests.toml").read_text())
    assert set(tests["compiling"]) == set(OPTIONS)
    assert set(tests["provider"]) == {o["name"] for o in sardonyx._sardonyx.provider_options()}
    named = {t for table in tests.values() for of in table.values() for t in of}
    assert all(of for table in tests.values() for of in table.values())
    assert [t for t in sorted(named) if not existing(t)] == []
    page = (ROOT / "docs" / "options.md").read_text()
    assert [n for n in sorted(accepted_names()) if f"`{n}`" not in page] == []
    # The page has a row for nothing else: first cells, and cells with names of AMD's providers.
    listed = {
        n for line in page.splitlines() if line.startswith("| `") for n in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert listed <= accepted_names() | set(OPTIONS)


def test_signatures_and_docstrings():
    compiling, loading = inspect.signature(sardonyx.compile), inspect.signature(sardonyx.load)
    assert set(OPTIONS) < set(compiling.parameters)
    assert {o.name for o in OPTIONS.values() if o.at_load} == set(loading.parameters) - {"path"}
    assert compiling.parameters["precision"].default == "fp32"
    for name, option in OPTIONS.items():
        assert f"    {name}: {option.help[:20]}" in sardonyx.compile.__doc__
    assert "{options}" not in sardonyx.compile.__doc__ + sardonyx.load.__doc__ + sardonyx.code_report.__doc__


def test_help_of_the_command_line():
    program = ROOT / "build" / "bin" / "sardonyx"
    text = subprocess.run([program, "run", "--help"], capture_output=True, text=True, check=True).stdout
    for option in OPTIONS.values():
        for flag in filter(None, option.flag.split(",")):
            assert flag in text


def model():
    return model_of("Relu", {}, [np.zeros(3, np.float32)], 21)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"presicion": "fp16"}, TypeError, "compile.. has no option 'presicion'; did you mean 'precision'"),
        ({"precision": 16}, TypeError, "option 'precision' is a str, not int"),
        ({"fuse": "no"}, TypeError, "option 'fuse' is True or False, not str"),
        ({"dims": {"batch": "one"}}, TypeError, "option 'dims' is a dict of names and sizes"),
        ({"precision": "fp17"}, sardonyx.InvalidArgumentError, "there is no precision 'fp17'; use 'fp32', 'fp16'"),
        ({"tuning": "on"}, sardonyx.InvalidArgumentError, "there is no tuning 'on'; use 'off', 'first-use' or 'exhau"),
        ({"threads": 5000}, sardonyx.InvalidArgumentError, "threads is 5000; it must be 0 .all cores. or at most 4096"),
        ({"threads": -1}, sardonyx.InvalidArgumentError, "threads is -1"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        sardonyx.compile(model(), **options)


def test_load_takes_what_applies_to_a_compiled_program(tmp_path):
    sardonyx.compile(model()).save(tmp_path / "relu.sdx")
    assert sardonyx.load(tmp_path / "relu.sdx", threads=1, graphs=False).inputs
    with pytest.raises(TypeError, match=r"load.. has no option 'precision'"):
        sardonyx.load(tmp_path / "relu.sdx", precision="fp16")


def test_generate_has_the_flags_of_the_table(monkeypatch):
    parser = argparse.ArgumentParser()
    names = ("device", "threads", "cache_dir")
    add_flags(parser, names)
    assert OPTIONS["threads"].help in " ".join(parser.format_help().split())
    for o in OPTIONS.values():
        monkeypatch.delenv(o.environment or "_", raising=False)
    assert options_of_flags(parser.parse_args([]), names) == {}
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    monkeypatch.setenv("SARDONYX_DEVICE", "")
    monkeypatch.setenv("SARDONYX_THREADS", "3")
    assert options_of_flags(parser.parse_args([]), names) == {"threads": 3, "cache_dir": ""}
    assert options_of_flags(parser.parse_args(["-j", "2", "--device", "hip"]), names) == {
        "device": "hip",
        "threads": 2,
        "cache_dir": "",
    }
    monkeypatch.setenv("SARDONYX_THREADS", "many")
    with pytest.raises(sardonyx.InvalidArgumentError, match="SARDONYX_THREADS is 'many', not a number"):
        options_of_flags(parser.parse_args([]), names)


def test_the_page_of_migraphx_lists_every_option():
    """Setters of the C interface, and keyword arguments of the module's functions that take options."""
    page = (ROOT / "docs" / "migraphx.md").read_text()
    section = page[page.index("## Options") : page.index("## Differences")]
    listed = set(re.findall(r"`(\w+)`", section))
    functions = [f.removeprefix("migraphx_") for f in exported() if re.search("_options_(set|add)|op_names_add", f)]
    setters = {re.sub(r"^\w+_options_(?=set_)", "", f) for f in functions if not f.startswith(("tf_", "sardonyx_"))}
    options = (
        mgx.parse_onnx,
        mgx.parse_onnx_buffer,
        mgx.program.compile,
        mgx.load,
        mgx.save,
        mgx.quantize_int8,
        mgx.quantize_fp8,
    )
    required = {"self", "filename", "t", "p", "prog"}
    keywords = {name for f in options for name in inspect.signature(f).parameters} - required
    assert sorted((setters | keywords) - listed) == []
    tests = {"c": "test_migraphx_c.py", "m": "test_migraphx_module.py"}
    found = re.findall(r"`([cm])::(\w+)`", section)
    rows_without = [row for row in section.splitlines() if row.startswith("| `") and "::" not in row]
    assert len(found) > 15 and rows_without == []
    for file, name in found:
        assert f"def {name}(" in (ROOT / "tests" / "python" / tests[file]).read_text(), name
