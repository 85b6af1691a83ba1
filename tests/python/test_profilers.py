"""Ranges for profilers: a library that stands for the profiler's writes down what it is told."""

import subprocess

import pytest
from cli_support import sardonyx
from test_code_report import named_model

RECORD = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
static int depth = 0;
static int push(const char* name) {
  FILE* f = fopen(getenv("RANGES"), "a");
  fprintf(f, "%d %s\\n", depth++, name);
  fclose(f);
  return depth;
}
static int pop(void) { return --depth; }
"""
ROCTX = (
    RECORD
    + """
int roctxRangePushA(const char* name) { return push(name); }
int roctxRangePop(void) { return pop(); }
"""
)
# As nvtxTypes.h of NVTX 3 describes the tables: the tool writes its functions where the program says.
NVTX = (
    RECORD
    + """
typedef void (*function)(void);
struct callbacks {
  size_t size;
  int (*table)(uint32_t module, function*** table, unsigned* size);
};
int InitializeInjectionNvtx2(const void* (*tables)(uint32_t)) {
  const struct callbacks* c = tables(1);
  function** core;
  unsigned size;
  if (!c || c->size < sizeof(*c) || !c->table(1, &core, &size) || size < 12) return 0;
  for (unsigned k = 1; k < size; ++k)
    if (!core[k]) return 0;
  *core[9] = (function)push;
  *core[11] = (function)pop;
  return 1;
}
"""
)


def library(path, source):
    path.with_suffix(".c").write_text(source)
    soname = f"-Wl,-soname,{path.name}"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, soname, path.with_suffix(".c")], check=True)
    return str(path)


def run(tmp_path, device, **variables):
    ranges = tmp_path / "ranges"
    model = named_model(tmp_path / "m.onnx", "layer")
    sardonyx("run", "-q", model, "--device", device, RANGES=str(ranges), **variables)
    return ranges.read_text().splitlines() if ranges.exists() else []


NODES = ["layer/0/conv (Conv)", "layer/0/softmax (Softmax)", "layer/1/conv (Conv)", "Softmax", "layer/2/conv (Conv)"]


def check(lines):
    runs = lines[lines.index("0 sardonyx: run") + 1 :]
    assert all(line.startswith("1 ") for line in runs)  # each step's range ends before the next one begins
    assert [n for n in NODES if any(n in line for line in runs)] == NODES, lines


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_roctx_under_rocprofv3(tmp_path, device):
    check(run(tmp_path, device, LD_PRELOAD=library(tmp_path / "librocprofiler-sdk-roctx.so.1", ROCTX)))


def test_roctx_under_rocprof(tmp_path):
    library(tmp_path / "libroctx64.so.4", ROCTX)
    assert run(tmp_path, "host", LD_LIBRARY_PATH=str(tmp_path)) == []  # no profiler listens
    profiler = library(tmp_path / "libroctracer64.so.4", "")
    check(run(tmp_path, "host", LD_LIBRARY_PATH=str(tmp_path), LD_PRELOAD=profiler))


def test_nvtx(tmp_path):
    check(run(tmp_path, "host", NVTX_INJECTION64_PATH=library(tmp_path / "tool.so", NVTX)))


def test_a_tool_that_refuses(tmp_path):
    refuses = library(tmp_path / "tool.so", NVTX.replace("return 1;", "return 0;"))
    assert run(tmp_path, "host", NVTX_INJECTION64_PATH=refuses) == []
    assert run(tmp_path, "host", NVTX_INJECTION64_PATH=str(tmp_path / "none.so")) == []
