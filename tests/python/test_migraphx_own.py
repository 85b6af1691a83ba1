"""MIGraphX's own tests on our library and module: those of its C and C++ interface, of its Python module, and its ONNX
models. SARDONYX_MIGRAPHX_SOURCE names a git folder of MIGraphX; docs/migraphx.md has the results for version 2.16."""

import ctypes
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import migraphx_c as mgx
import pytest
from cli_support import BUILD

SOURCE = os.environ.get("SARDONYX_MIGRAPHX_SOURCE", "")
pytestmark = pytest.mark.skipif(not SOURCE, reason="needs a git folder of MIGraphX")


def has_tensorflow():
    command = [
        os.environ.get("SARDONYX_PYTHON", ""),
        "-c",
        "import importlib.util as u; exit(not u.find_spec('tensorflow'))",
    ]
    return bool(SOURCE and command[0]) and subprocess.run(command).returncode == 0


# What its tests include beyond its public headers.
HEADERS = {
    "migraphx/api/export.h": "#define MIGRAPHX_C_EXPORT\n",
    "migraphx/file_buffer.hpp": """
#include <filesystem>
#include <fstream>
#include <iterator>
namespace migraphx {
namespace fs = std::filesystem;
inline std::string read_string(const std::string& path) {
  std::ifstream f(path);
  return {std::istreambuf_iterator<char>(f), {}};
}
}
""",
    "migraphx/manage_ptr.hpp": """
#include <memory>
template <auto f>
struct Deleter {
  template <typename T>
  void operator()(T* p) const { (void)f(p); }
};
#define MIGRAPHX_MANAGE_PTR(T, F) std::unique_ptr<std::remove_pointer_t<T>, Deleter<&F>>
""",
    "hip/hip_runtime_api.h": """
#include <cstddef>
enum hipError_t { hipSuccess };
enum hipMemcpyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice };
using hipStream_t = struct ihipStream_t*;
extern "C" {
hipError_t hipMalloc(void**, size_t);
hipError_t hipFree(void*);
hipError_t hipMemcpy(void*, const void*, size_t, hipMemcpyKind);
hipError_t hipMemcpyAsync(void*, const void*, size_t, hipMemcpyKind, hipStream_t);
hipError_t hipMemsetAsync(void*, int, size_t, hipStream_t);
hipError_t hipDeviceSynchronize();
hipError_t hipSetDevice(int);
hipError_t hipStreamCreateWithFlags(hipStream_t*, unsigned);
hipError_t hipStreamDestroy(hipStream_t);
}
""",
    "pb_files.hpp": """
#include <migraphx/file_buffer.hpp>
#include <unordered_map>
inline std::unordered_map<std::string, std::string> pb_files() {
  std::unordered_map<std::string, std::string> files;
  for (const auto& e : migraphx::fs::directory_iterator(MODELS "/../tf/models"))
    if (e.path().extension() == ".pb") files[e.path().filename()] = migraphx::read_string(e.path());
  return files;
}
""",
    "onnx_files.hpp": """
#include <migraphx/file_buffer.hpp>
#include <string_view>
#include <unordered_map>
inline std::unordered_map<std::string, std::string_view> onnx_files() {
  static std::unordered_map<std::string, std::string> data;
  std::unordered_map<std::string, std::string_view> files;
  for (const auto& e : migraphx::fs::directory_iterator(MODELS))
    if (e.path().extension() == ".onnx") data[e.path().filename()] = migraphx::read_string(e.path());
  for (const auto& [name, bytes] : data) files[name] = bytes;
  return files;
}
""",
}

# Cases that fail, and why: docs/migraphx.md.
OTHER_DIMS_OF_A_STACKED_SCALAR = {"set_loop_default_iter_num", "set_loop_limit_iterations"}
EXCEPTIONS_LEAVE_THE_LIBRARY = {
    "run_sigmoid_with_incorrect_shape"
}  # through a function of MIGraphX's own builds for tests
FAIL = OTHER_DIMS_OF_A_STACKED_SCALAR | EXCEPTIONS_LEAVE_THE_LIBRARY
PROGRAMS = [
    "array_base",
    "assign",
    "lookup",
    "module_construct",
    "dynamic_shape",
    "cpu",
    "save_load",
    "op_construct",
    "c_op_construct",
    "custom_op",
    "custom_op_gpu",
    "onnx_op_list",
    "trace_callback",
    pytest.param(
        "tf_parser",
        marks=pytest.mark.skipif(not has_tensorflow(), reason="SARDONYX_PYTHON names a Python with tensorflow"),
    ),
    "gpu",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    folder = tmp_path_factory.mktemp("migraphx")
    wanted = ["test/api", "test/include", "test/py", "test/onnx", "test/tf/models", "src/api/include", "examples"]
    git = ["git", "--git-dir", SOURCE, "archive", "HEAD", *wanted]
    with tarfile.open(fileobj=io.BytesIO(subprocess.run(git, capture_output=True, check=True).stdout)) as tar:
        tar.extractall(folder)
    for name, text in HEADERS.items():
        path = folder / "more" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(("" if name.endswith(".h") and "api" in name else "#pragma once\n") + text)
    return folder


def environment(tree):
    return os.environ | {
        "SARDONYX_SIM": "gfx942",
        "LD_LIBRARY_PATH": f"{BUILD / 'lib' / 'sim'}:{BUILD / 'lib' / 'migraphx'}:{BUILD / 'lib'}",
        "PYTHONPATH": f"{BUILD / 'python'}:{BUILD / 'python' / 'sardonyx' / 'migraphx' / 'site'}",
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(tree, name):
    (source,) = (tree / "test" / "api").glob(f"test_{name}.c*")
    program = tree / name
    compiler = ["gcc"] if source.suffix == ".c" else ["g++", "-std=c++17", f'-DMODELS="{tree / "test" / "onnx"}"']
    folders = [f"-I{tree / f}" for f in ("src/api/include", "more", "test/include", "test/api/include")]
    libraries = [f"-L{BUILD / 'lib' / 'migraphx'}", "-lmigraphx_c", f"-Wl,-rpath-link,{BUILD / 'lib'}"]
    if name.endswith("gpu"):
        libraries += [f"-L{BUILD / 'lib' / 'sim'}", "-lamdhip64"]
    extra = []
    if name == "custom_op":  # a function of MIGraphX's own builds for tests
        (tree / "more" / "private.cpp").write_text(
            'extern "C" void migraphx_test_private_disable_exception_catch(bool) {}\n'
        )
        extra = [tree / "more" / "private.cpp"]
    subprocess.run([*compiler, "-w", *folders, source, *extra, "-o", program, *libraries], check=True)
    cases = re.findall(r"^TEST_CASE\((\w+)\)", source.read_text(), re.MULTILINE) or [""]
    failed = set()
    for case in cases:
        first = ["register_custom_op"] if name == "custom_op" else []  # the operator that the other cases use
        command = [program, *first, *([case] if case else [])]
        done = subprocess.run(command, cwd=tree / "test" / "onnx", env=environment(tree), capture_output=True)
        if done.returncode != 0:
            failed.add(case)
    assert failed == FAIL & set(cases), failed


# Of the folder examples: programs that need no data from elsewhere, with their arguments, and what they print.
EXAMPLES = {
    "migraphx/cpp_dynamic_batch/dynamic_batch": {"": "Successfully executed dynamic batch add"},
    "migraphx/cpp_parse_load_save/parse_load_save": {
        "../../../vision/cpp_mnist/mnist-8.onnx --save m": "Program has been saved as ./m.mxr",
        "m.mxr --load msgpack": "@return(Plus214_Output_0)",
    },
    "migraphx/cpp_trace_callback/trace_callback_example": {"": "concat[axis=1]"},
    "vision/cpp_mnist/mnist_inference": dict.fromkeys(
        ["", "-c", "-g -p", "-g -f", "-g -i", "-g -i --cal"], "\nCORRECT"
    ),
    "migraphx/custom_op_hip_kernel/custom_op_hip_kernel": {"": "Successfully executed custom HIP kernel example"},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(tree, name):
    """On the host and on a simulated card; the one with a HIP kernel on the card alone."""
    source = tree / "examples" / f"{name}.cpp"
    hip = "hip_kernel" in name
    compiler = ["clang++-22", "-x", "hip", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc"] if hip else ["g++"]
    folders = [f"-I{tree / f}" for f in ("src/api/include", "more")]
    libraries = [f"-L{BUILD / 'lib' / 'migraphx'}", "-lmigraphx_c", f"-Wl,-rpath-link,{BUILD / 'lib'}"]
    if hip:
        folders.insert(0, f"-I{BUILD / 'lib' / 'sim' / 'include'}")
        libraries += [f"-L{BUILD / 'lib' / 'sim'}", "-lamdhip64"]
    folder = source.parent / "build"
    folder.mkdir(exist_ok=True)
    program = folder / source.stem
    subprocess.run([*compiler, "-std=c++17", "-w", *folders, source, "-o", program, *libraries], check=True)
    for device in ("sim:gfx942",) if hip else ("host", "sim:gfx942"):
        for arguments, said in EXAMPLES[name].items():
            variables = environment(tree) | ({"SARDONYX_DEVICE": "host"} if device == "host" else {})
            command = [program, *arguments.split()]
            done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
            assert done.returncode == 0 and said in done.stdout, (device, arguments, done.stdout, done.stderr)


def test_python_programs(tree):
    failed = set()
    for script in sorted((tree / "test" / "py").glob("test_*.py")):
        command = [sys.executable, script]
        done = subprocess.run(command, cwd=tree / "test" / "onnx", env=environment(tree), capture_output=True)
        if done.returncode != 0:
            failed.add(script.name)
    assert failed == {"test_autocast_fp8.py"}


# Models of MIGraphX's tests that it reads and we refuse: docs/migraphx.md.
REFUSED = {
    "constant_value_float_test.onnx": "no outputs",
    "constant_value_floats_test.onnx": "no outputs",
    "constant_value_int_test.onnx": "no outputs",
    "constant_value_ints_test.onnx": "no outputs",
    "int4_const_identity_block_sz_2_qdq_test.onnx": "doesn't fit a tensor",
    "mha_past_key_value_bias_seq_len_test.onnx": "past and present in one buffer",
    "mha_past_key_value_seq_len_test.onnx": "past and present in one buffer",
    "quantizelinear_mxfp4_even_test.onnx": "float4_e2m1fn",
    "quantizelinear_mxfp4_odd_test.onnx": "float4_e2m1fn",
    "reducel1_dyn_test.onnx": "axis -2 is outside a tensor of rank 1",
    "undefined_test.onnx": "input 0 is missing",
    "unknown_test.onnx": "operator Unknown is not supported",  # skip_unknown_operators is refused
}
# Of operators that are not offered: the others of MIGraphX's tests are.
OUT_OF_SCOPE = {"ATen", "DynamicScale", "MatMulBnb4", "MXQuantizeDequantize", "NhwcConv"}


def models_of_tests(tree):
    """The models of MIGraphX's tests, by name: those that some test reads, and those of which every test expects a refusal. The others
    are in no test."""
    read, refused = set(), set()
    for path in [p for folder in ("onnx", "py", "api") for p in (tree / "test" / folder).rglob("*") if p.is_file()]:
        if path.suffix not in (".cpp", ".c", ".py"):
            continue
        text = path.read_text()
        cases = re.findall(r"TEST_CASE\(\w+\)\s*\{(.*?)\n\}", text, re.DOTALL)
        rest = re.sub(r"TEST_CASE\(\w+\)\s*\{.*?\n\}", "", text, flags=re.DOTALL)
        for case in [*cases, rest]:
            names = {Path(n).name for n in re.findall(r"""["']([\w/]+\.onnx)["']""", case)}
            (refused if "throws" in case and case is not rest else read).update(names)
    return read, refused - read


def test_models_are_read(tree, monkeypatch):
    monkeypatch.chdir(tree / "test" / "onnx")
    expected, refusals = models_of_tests(tree)
    fixed, open_dims = mgx.onnx_options(), mgx.onnx_options()
    dynamic = mgx.Handle(
        "dynamic_dimension", "dynamic_dimension_create_min_max", ctypes.c_size_t(4), ctypes.c_size_t(16)
    )
    mgx.call("onnx_options_set_default_dyn_dim_value", open_dims.p, dynamic.p)
    outcome = {
        "read": set(),
        "read, though a refusal is expected": set(),
        "refused, as expected": set(),
        "in no test": set(),
    }
    failed, out_of_scope = {}, set()
    for path in sorted(Path().rglob("*.onnx")):
        program = ctypes.c_void_p()
        for options in (fixed, open_dims):  # some tests give their models ranges of dims
            status = mgx.lib.migraphx_parse_onnx(ctypes.byref(program), str(path).encode(), options.p)
            if status == 0:
                mgx.lib.migraphx_program_destroy(program)
                break
        why = "" if status == 0 else mgx.lib.sardonyx_migraphx_last_error().decode()
        operator = re.search(r"operator (\S+) is not supported", why)
        if path.name in refusals:
            outcome["read, though a refusal is expected" if status == 0 else "refused, as expected"].add(path.name)
        elif path.name not in expected:
            outcome["in no test"].add(path.name)
        elif status == 0:
            outcome["read"].add(path.name)
        elif operator and operator[1] in OUT_OF_SCOPE:
            out_of_scope.add(path.name)
        else:
            failed[path.name] = why
    in_scope = len(outcome["read"]) + len(failed)
    print(
        f"{len(outcome['read'])} of {in_scope} models are read; {len(out_of_scope)} have operators that are not offered"
    )
    print({k: len(v) for k, v in outcome.items()}, *failed.items(), sep="\n")
    assert failed.keys() == REFUSED.keys() and all(REFUSED[n] in why for n, why in failed.items()), failed
    assert len(outcome["read"]) >= 0.97 * in_scope
