"""An installed library: found by CMake, used by a program outside of the source tree, without the build directory."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_support import BUILD, layer

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp"


def run(*command, code=0, **options):
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "PYTHONPATH")}
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=300, env=environment, **options
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("install") / "prefix"
    for component in ("library", "tools"):  # what the other components install need not have been built
        run("cmake", "--install", BUILD, "--prefix", folder, "--component", component)
    return folder


def test_example_builds_against_the_install(prefix, tmp_path):
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    run("cmake", "-G", "Ninja", "-S", source, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "b")
    program = tmp_path / "b" / "classify"
    libraries = run("ldd", program)
    assert str(prefix) in libraries and str(BUILD.resolve()) not in libraries and "not found" not in libraries
    text = run(program)
    assert "output probabilities: float32 [batch, 2]" in text
    # x = 0, 0.25, 0.5 gives the scores 0 + 0.5 - 0.5 and 0.5 + 0.5: probabilities 1 / (1 + e) and e / (1 + e).
    assert "batch 1: 0.2689 0.7311" in text
    assert len(re.findall(r"^batch \d:", text, re.M)) == 3
    path, _, _ = layer(tmp_path / "m.onnx")
    assert "input x: float32 [batch, 4]" in run(program, path)
    assert "no.onnx" in run(program, tmp_path / "no.onnx", code=5)


def test_installed_command_line(prefix, tmp_path):
    path, _, _ = layer(tmp_path / "m.onnx")
    assert "y" in run(prefix / "bin" / "sardonyx", "run", path, "--dim", "batch=2")


def test_public_headers_stand_alone(prefix, tmp_path):
    """Each installed header compiles by itself, with nothing but the install on the include path."""
    for header in sorted((prefix / "include" / "sardonyx").glob("*.h")):
        source = tmp_path / "one.cpp"
        source.write_text(f"#include <sardonyx/{header.name}>\n")
        run("g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{prefix / 'include'}", source)
