"""libmigraphx_c.so.3 as programs for MIGraphX's C interface use it, on the host and on a simulated card."""

import ctypes
import os
import re
import subprocess
import sys
from ctypes import byref, c_bool, c_size_t, c_void_p

import migraphx_c as mgx
import numpy as np
import pytest
from cli_support import BUILD, ROOT
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def model(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def dense(batch="n", seed=0):
    w = np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    return w, model(nodes, [("x", FLOAT, [batch, 8])], [("y", FLOAT, [batch, 4])], [("w", w)]).SerializeToString()


def rows(n, seed=1):
    return np.random.default_rng(seed).standard_normal((n, 8)).astype(np.float32)


def exported():
    done = subprocess.run(["nm", "-D", "--defined-only", mgx.LIBRARY], capture_output=True, text=True, check=True)
    return sorted(line.split()[-1] for line in done.stdout.splitlines() if " T " in line)


def test_the_page_lists_every_function():
    page = (ROOT / "docs" / "migraphx.md").read_text()
    listed = set(re.findall(r"\w*migraphx_\w+", page))
    assert [f for f in exported() if f not in listed] == []
    functions = [f for f in exported() if f.startswith("migraphx_")]
    assert len(functions) == 167


@pytest.mark.skipif(not os.environ.get("SARDONYX_MIGRAPHX_SOURCE"), reason="needs a git folder of MIGraphX")
def test_all_functions_of_the_header_exist():
    git = ["git", "--git-dir", os.environ["SARDONYX_MIGRAPHX_SOURCE"], "show"]
    header = subprocess.run(
        [*git, "HEAD:src/api/include/migraphx/migraphx.h"], capture_output=True, text=True, check=True
    ).stdout
    wanted = set(re.findall(r"MIGRAPHX_C_EXPORT\s+migraphx_status\s+(migraphx_\w+)\(", header))
    assert len(wanted) > 160 and wanted - set(exported()) == set()


@pytest.mark.parametrize("dims, default, batch", [({"x": (3, 8)}, None, 3), ({}, 5, 5), ({}, None, 1)])
def test_a_model_on_the_host(dims, default, batch):
    w, onnx = dense()
    p = mgx.Program(onnx, dims, default)
    assert p.parameter_shapes() == {"x": (np.float32, (batch, 8), (8, 1))}
    assert p.output_shapes() == [(np.float32, (batch, 4), (4, 1))]
    p.compile("ref")
    assert p.parameter_shapes().keys() == {"x"} and p.output_shapes() == [(np.float32, (batch, 4), (4, 1))]
    x = rows(batch)
    np.testing.assert_allclose(p.arrays(x=x)[0], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_scalars_have_one_length_and_the_stride_0():
    nodes = [helper.make_node("Mul", ["x", "s"], ["y"]), helper.make_node("ReduceSum", ["y"], ["z"], keepdims=0)]
    onnx = model(nodes, [("x", FLOAT, [3]), ("s", FLOAT, [])], [("z", FLOAT, [])])
    p = mgx.Program(onnx.SerializeToString()).compile()
    assert p.parameter_shapes()["s"] == (np.float32, (1,), (0,)) and p.output_shapes() == [(np.float32, (1,), (0,))]
    assert p.arrays(x=np.float32([1, 2, 3]), s=np.float32(2))[0] == 12


def test_strided_parameters_are_packed():
    w, onnx = dense()
    p = mgx.Program(onnx, {"x": (3, 8)}).compile()
    x = np.asfortranarray(rows(3))
    s = mgx.Handle(
        "shape", "shape_create_with_strides", mgx.TYPES[x.dtype], (c_size_t * 2)(3, 8), c_size_t(2),
        (c_size_t * 2)(1, 3), c_size_t(2),
    )  # fmt: skip
    a = mgx.Handle("argument", "argument_create", s.p, c_void_p(x.ctypes.data))
    params = mgx.Handle("program_parameters", "program_parameters_create")
    mgx.call("program_parameters_add", params.p, b"x", a.p)
    out = mgx.Handle("arguments", "program_run", p.p, params.p)
    first, data = c_void_p(), ctypes.POINTER(ctypes.c_float)()
    mgx.call("arguments_get", byref(first), out.p, c_size_t(0))
    mgx.call("argument_buffer", byref(data), first)
    got = np.ctypeslib.as_array(data, (3, 4))
    np.testing.assert_allclose(got, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def dims(*ranges):
    each = [mgx.Handle("dynamic_dimension", "dynamic_dimension_create_min_max", *map(c_size_t, r)) for r in ranges]
    pointers = (c_void_p * len(each))(*(d.p for d in each))
    return mgx.Handle("dynamic_dimensions", "dynamic_dimensions_create", pointers, c_size_t(len(each)))


def test_dynamic_dims():
    w, onnx = dense()
    o = mgx.onnx_options()
    mgx.call("onnx_options_set_dyn_input_parameter_shape", o.p, b"x", dims((2, 6), (8, 8)))
    p = mgx.Program(mgx.Handle("program", "parse_onnx_buffer", onnx, c_size_t(len(onnx)), o.p)).compile()
    with pytest.raises(mgx.MigraphxError, match="dynamic"):
        p.output_shapes()
    for n in (2, 5):
        x = rows(n)
        np.testing.assert_allclose(p.arrays(x=x)[0], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
    with pytest.raises(mgx.MigraphxError, match="parameter 'x': dim 0 is 7, and must be 2 to 6"):
        p.run(x=rows(7))


def refused(status, what, f, *arguments, **keywords):
    with pytest.raises(mgx.MigraphxError, match=what) as e:
        f(*arguments, **keywords)
    assert e.value.status == status


def test_errors_name_the_function_and_the_cause(tmp_path, monkeypatch):
    _w, onnx = dense()
    target = lambda name: mgx.Handle("target", "target_create", name)
    refused(
        mgx.UNKNOWN_TARGET,
        r"target_create: there is no target 'fpga'; the targets are gpu, ref and cpu",
        target,
        b"fpga",
    )
    refused(mgx.UNKNOWN_ERROR, "parse_onnx_buffer: not an ONNX model", mgx.Program, onnx[:-20])
    p = mgx.Program(onnx, {"x": (2, 8)})
    refused(mgx.BAD_PARAM, "must be compiled", p.run, x=rows(2))
    p.compile()
    refused(mgx.BAD_PARAM, "parameter 'x' is missing", p.run)
    refused(mgx.BAD_PARAM, "float64", p.run, x=rows(2).astype(np.float64))
    refused(mgx.BAD_PARAM, "input 'x'", p.run, x=rows(3))
    refused(mgx.BAD_PARAM, "already", p.compile)
    unknown = model([helper.make_node("Nonsense", ["x"], ["y"])], [("x", FLOAT, [1])], [("y", FLOAT, [1])])
    refused(mgx.UNKNOWN_ERROR, "Nonsense", mgx.Program, unknown.SerializeToString())
    o = mgx.onnx_options()
    parse = lambda: mgx.Handle("program", "parse_onnx", str(tmp_path / "no.onnx").encode(), o.p)
    refused(mgx.UNKNOWN_ERROR, "no.onnx", parse)
    tf = mgx.Handle("tf_options", "tf_options_create")
    parse_tf = lambda path: mgx.Handle("program", "parse_tf", str(path).encode(), tf.p)
    refused(mgx.UNKNOWN_ERROR, "parse_tf: m.pb: there is no such file", parse_tf, "m.pb")
    (tmp_path / "m.pb").write_bytes(b"\nnothing")
    monkeypatch.setenv("SARDONYX_PYTHON", "/nowhere/python")
    refused(mgx.UNKNOWN_ERROR, "there is no Python '/nowhere/python'", parse_tf, tmp_path / "m.pb")
    monkeypatch.setenv("SARDONYX_PYTHON", sys.executable)
    refused(mgx.UNKNOWN_ERROR, "parse_tf: .*(needs tensorflow|no TensorFlow graph)", parse_tf, tmp_path / "m.pb")


def test_null_arguments_are_refused():
    """Every function with nothing but null; in a separate process, because a fault would end it."""
    code = f"""
import ctypes
lib = ctypes.CDLL({str(mgx.LIBRARY)!r})
for name in {[f for f in exported() if f.startswith("migraphx_")]!r}:
    print(name, getattr(lib, name)(*[ctypes.c_void_p()] * 6), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:]
    status = dict(line.split() for line in done.stdout.splitlines())
    wrong = {f: s for f, s in status.items() if s != ("0" if f.endswith("_destroy") else "1")}
    assert len(status) > 160 and wrong == {}
    assert "migraphx_shape_bytes: Error: the argument 'shape' is null" in done.stderr


@pytest.mark.parametrize("form", ["msgpack", "json"])
@pytest.mark.parametrize("compiled", [False, True])
def test_save_and_load(tmp_path, form, compiled):
    w, onnx = dense()
    p = mgx.Program(onnx, {"x": (3, 8)})
    if compiled:
        p.compile()
    p.save(tmp_path / "p.mxr", form)
    q = mgx.Program.load(tmp_path / "p.mxr", form)
    assert q.parameter_shapes() == p.parameter_shapes() and q.output_shapes() == p.output_shapes()
    if not compiled:
        same = c_bool()
        mgx.call("program_equal", byref(same), p.p, q.p)
        assert same
        q.compile()
    x = rows(3)
    np.testing.assert_allclose(q.arrays(x=x)[0], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_files_of_others_are_refused(tmp_path):
    _w, onnx = dense()
    p = mgx.Program(onnx).compile()
    p.save(tmp_path / "p.mxr")
    good = (tmp_path / "p.mxr").read_bytes()
    path = tmp_path / "other.mxr"
    for content, why in [
        (b"\x83\xa7version\x08\xb0migraphx_version", "program of MIGraphX's own"),
        (b"", "not a program"),
        (b"hello", "not a program"),
        (b'{"sardonyx": 1}', "damaged"),
        (b'{"sardonyx": 1, "content": "*"}', "base64"),
        (good[: len(good) // 2], "other.mxr"),
        (good[:12], "not a program"),
        (good[:8] + b"\xff" * 8 + good[16:], "truncated"),
    ]:
        path.write_bytes(content)
        refused(mgx.UNKNOWN_ERROR, why, mgx.Program.load, path)
    refused(mgx.UNKNOWN_ERROR, "nowhere", mgx.Program.load, tmp_path / "nowhere")
    refused(mgx.BAD_PARAM, "file format 'xml'", p.save, path, "xml")


def test_quantisation():
    w, onnx = dense()
    x = rows(4)
    want = np.maximum(x @ w, 0)
    target = mgx.Handle("target", "target_create", b"ref")
    s = mgx.make_shape(x.dtype, x.shape)
    a = mgx.Handle("argument", "argument_create", s.p, c_void_p(x.ctypes.data))
    data = mgx.Handle("program_parameters", "program_parameters_create")
    mgx.call("program_parameters_add", data.p, b"x", a.p)
    errors = {}
    for kind in ("none", "fp16", "bf16", "int8", "int8 by rule"):
        p = mgx.Program(onnx, {"x": (4, 8)})
        if kind in ("fp16", "bf16"):
            mgx.call("quantize_" + kind, p.p)
        elif kind.startswith("int8"):
            o = mgx.Handle("quantize_int8_options", "quantize_int8_options_create")
            if kind == "int8":
                mgx.call("quantize_int8_options_add_calibration_data", o.p, data.p)
            mgx.call("quantize_int8", p.p, target.p, o.p)
        errors[kind] = np.abs(p.compile().arrays(x=x)[0] - want).max() / want.max()
    assert errors["none"] < 1e-6 and errors["fp16"] < 2e-3 and errors["bf16"] < 2e-2
    assert 1e-4 < errors["int8"] < 2e-2  # 8 bits, with a range that fits
    assert errors["int8"] < errors["int8 by rule"]  # which cuts off at 127/64


def test_arguments(tmp_path):
    s = mgx.make_shape(np.float32, (2, 3))
    made = mgx.Handle("argument", "argument_generate", s.p, c_size_t(0))
    data = ctypes.POINTER(ctypes.c_float)()
    mgx.call("argument_buffer", byref(data), made.p)
    values = data[:6]
    assert all(-1 <= v < 1 and (v * 16).is_integer() for v in values) and len(set(values)) > 2
    mgx.call("argument_save", made.p, str(tmp_path / "a").encode())
    again = mgx.Handle("argument", "argument_load", str(tmp_path / "a").encode())
    same = c_bool()
    mgx.call("argument_equal", byref(same), made.p, again.p)
    assert same
    other = mgx.Handle("argument", "argument_generate", s.p, c_size_t(1))
    mgx.call("argument_equal", byref(same), made.p, other.p)
    assert not same
    (tmp_path / "b").write_bytes(b"\x93nothing")
    refused(
        mgx.UNKNOWN_ERROR, "ONNX tensors", lambda: mgx.Handle("argument", "argument_load", str(tmp_path / "b").encode())
    )


def test_shapes():
    s = mgx.Handle(
        "shape", "shape_create_with_strides", 4, (c_size_t * 2)(2, 3), c_size_t(2), (c_size_t * 2)(1, 4), c_size_t(2)
    )
    n, yes = c_size_t(), c_bool(True)
    for what, value in [("elements", 6), ("bytes", 40), ("ndim", 2)]:
        mgx.call("shape_" + what, byref(n), s.p)
        assert n.value == value
    mgx.call("shape_index", byref(n), s.p, c_size_t(4))  # row 1, column 1
    assert n.value == 5
    mgx.call("shape_standard", byref(yes), s.p)
    assert not yes
    huge = (c_size_t * 2)(1 << 40, 1 << 40)
    refused(mgx.BAD_PARAM, "too many elements", lambda: mgx.Handle("shape", "shape_create", 4, huge, c_size_t(2)))
    refused(mgx.BAD_PARAM, "77 is no element type", lambda: mgx.Handle("shape", "shape_create_scalar", 77))


# ---- on a simulated card, in processes of their own: a process has one set of simulated cards


def simulated(code, chip="gfx942", **variables):
    environment = os.environ | {"LD_LIBRARY_PATH": str(BUILD / "lib" / "sim"), "SARDONYX_SIM": chip} | variables
    environment.pop("SARDONYX_DEVICE", None)
    environment["PYTHONPATH"] = f"{ROOT / 'tests' / 'python'}:{environment.get('PYTHONPATH', '')}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ON_DEVICE = """
import ctypes, numpy as np, migraphx_c as mgx
from ctypes import byref, c_size_t, c_void_p
from test_migraphx_c import dense, rows
hip = ctypes.CDLL("libamdhip64.so.7")
def device(array):
    p = c_void_p()
    assert hip.hipMalloc(byref(p), c_size_t(array.nbytes)) == 0
    assert hip.hipMemcpy(p, c_void_p(array.ctypes.data), c_size_t(array.nbytes), 1) == 0
    return p.value
def host(dtype, dims, address):
    out = np.empty(dims, dtype)
    assert hip.hipMemcpy(c_void_p(out.ctypes.data), c_void_p(address), c_size_t(out.nbytes), 2) == 0
    return out
def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
w, onnx = dense()
x = rows(3)
want = np.maximum(x @ w, 0)
"""


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_memory_on_a_card(chip):
    """With offload_copy, arguments are in host memory, otherwise in the card's, where outputs have parameters."""
    simulated(
        ON_DEVICE
        + """
p = mgx.Program(onnx, {"x": (3, 8)}).compile("gpu", offload_copy=True)
assert p.parameter_shapes().keys() == {"x"}
close(p.arrays(x=x)[0], want)
p = mgx.Program(onnx, {"x": (3, 8)}).compile("gpu", offload_copy=False)
assert p.parameter_shapes() == {"x": (x.dtype, (3, 8), (8, 1)), "main:#output_0": (x.dtype, (3, 4), (4, 1))}
y = device(np.zeros((3, 4), np.float32))
given = (np.float32, (3, 4), y)
(dtype, dims, address), = p.run(**{"x": (np.float32, (3, 8), device(x)), "main:#output_0": given})
assert address == y
close(host(*given), want)
close(host(*p.run(x=(np.float32, (3, 8), device(x)))[0]), want)   # memory of the program's own
stream = c_void_p()
assert hip.hipStreamCreateWithFlags(byref(stream), 1) == 0
result = p.run(stream, x=(np.float32, (3, 8), device(x)))[0]
assert hip.hipStreamSynchronize(stream) == 0
close(host(*result), want)
close(host(*p.run(c_void_p(), x=(np.float32, (3, 8), device(x)))[0]), want)   # the default stream
context, queue = c_void_p(), c_void_p()
mgx.call("program_experimental_get_context", byref(context), p.p)
mgx.call("context_get_queue", byref(queue), context)
mgx.call("context_finish", context)
assert queue
small = {"x": (np.float32, (3, 8), device(x)), "main:#output_0": (np.float32, (2, 4), y)}
try:
    p.run(**small)
    raise SystemExit("a buffer that is too small was taken")
except mgx.MigraphxError as e:
    assert "has 32 bytes; the output needs 48" in str(e), e
""",
        chip,
    )


def test_a_program_for_a_card_is_saved_and_loaded(tmp_path):
    simulated(
        ON_DEVICE
        + f"""
path = {str(tmp_path / "p.mxr")!r}
mgx.Program(onnx, {{"x": (3, 8)}}).compile("gpu", offload_copy=False).save(path)
p = mgx.Program.load(path)
assert p.parameter_shapes().keys() == {{"x", "main:#output_0"}}
close(host(*p.run(x=(np.float32, (3, 8), device(x)))[0]), want)
"""
    )
    refused(mgx.UNKNOWN_ERROR, "libamdhip64|no program for|device", mgx.Program.load, tmp_path / "p.mxr")


def test_exhaustive_tuning(tmp_path):
    """Times are kept in the cache, from the first run of some sizes on."""
    code = """
import migraphx_c as mgx
from ctypes import c_bool
from test_migraphx_c import dense, rows
w, onnx = dense()
p = mgx.Program(onnx, {"x": (3, 8)})
o = mgx.Handle("compile_options", "compile_options_create")
mgx.call("compile_options_set_offload_copy", o.p, c_bool(True))
mgx.call("compile_options_set_exhaustive_tune_flag", o.p, c_bool(TUNE))
mgx.call("program_compile", p.p, mgx.Handle("target", "target_create", b"gpu"), o)
p.run(x=rows(3))
"""
    for tune in (False, True):
        cache = tmp_path / str(tune)
        simulated(code.replace("TUNE", str(tune)), SARDONYX_CACHE_DIR=str(cache))
        assert (cache / "tuning-2.sqlite").exists() == tune


def test_variables():
    """MIGraphX's own variables: those with an effect, and one note for each of the others."""
    code = """
import migraphx_c as mgx
from test_migraphx_c import dense, rows
_w, onnx = dense()
for _ in range(2):
    mgx.Program(onnx, {"x": (3, 8)}).compile("gpu").run(x=rows(3))
"""
    command = [sys.executable, "-c", code]
    environment = os.environ | {"SARDONYX_DEVICE": "sim:gfx942", "PYTHONPATH": str(ROOT / "tests" / "python")}
    environment["PYTHONPATH"] += ":" + os.environ.get("PYTHONPATH", "")
    environment |= {"SARDONYX_SIM": '{"summary": true, "print_summary": true}'}

    def run(**variables):
        return subprocess.run(command, capture_output=True, text=True, env=environment | variables)

    fused, apart = run(), run(MIGRAPHX_DISABLE_POINTWISE_FUSION="1")
    kernels = lambda done: len(re.findall(r"^kernel ", done.stderr, re.MULTILINE))
    assert fused.returncode == apart.returncode == 0 and 0 < kernels(fused) < kernels(apart), apart.stderr
    said = run(MIGRAPHX_TRACE_COMPILE="1", MIGRAPHX_DISABLE_MLIRR="1", ORT_MIGRAPHX_FP16_ENABLE="1").stderr
    assert said.count("MIGRAPHX_TRACE_COMPILE is accepted, and not needed") == 1
    assert said.count("did you mean MIGRAPHX_DISABLE_MLIR?") == 1 and "ORT_" not in said
    assert "MIGRAPHX_GPU_COMPILE_PARALLEL: 'many'" in run(MIGRAPHX_GPU_COMPILE_PARALLEL="many").stderr


def test_without_a_card_the_target_gpu_says_so():
    _w, onnx = dense()
    if os.environ.get("SARDONYX_DEVICE"):
        pytest.skip("the target gpu is another device here")
    refused(mgx.UNKNOWN_ERROR, "program_compile: hip: .*libamdhip64", mgx.Program(onnx).compile, "gpu")


# ---- ONNX Runtime's MIGraphX provider from PyPI, unmodified

WHEEL = os.environ.get("SARDONYX_ORT_MIGRAPHX") or str(ROOT / ".venv-migraphx" / "bin" / "python")
needs_wheel = pytest.mark.skipif(
    not os.path.exists(WHEEL), reason="tools/migraphx_wheel.sh .venv-migraphx installs the package"
)
SESSION = """
import os, numpy as np, onnxruntime as ort
s = ort.InferenceSession("model.onnx", providers=["MIGraphXExecutionProvider"])
assert s.get_providers()[0] == "MIGraphXExecutionProvider", s.get_providers()
for n in (3, 5):
    x = np.load(f"x{n}.npy")
    np.testing.assert_allclose(s.run(None, {"x": x})[0], np.load(f"y{n}.npy"), rtol=1e-2, atol=1e-2)
"""


def with_wheel(arguments, cwd, chip="gfx942", **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SARDONYX_", "PYTHON"))}
    environment |= {
        "LD_LIBRARY_PATH": f"{BUILD / 'lib' / 'migraphx'}:{BUILD / 'lib' / 'sim'}",
        "SARDONYX_SIM": f'{{"chips": ["{chip}"], "summary": true, "print_summary": true}}',
        "ORT_DISABLE_TELEMETRY": "1",
    }
    command = [WHEEL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment | variables, cwd=cwd, timeout=3600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


@needs_wheel
@pytest.mark.parametrize(
    "chip, variables",
    [
        ("gfx942", {}),
        ("gfx1100", {}),
        ("gfx942", {"ORT_MIGRAPHX_FP16_ENABLE": "1"}),
        ("gfx942", {"ORT_MIGRAPHX_BF16_ENABLE": "1"}),
        ("gfx942", {"ORT_MIGRAPHX_MODEL_CACHE_PATH": "cache"}),
    ],
)
def test_the_provider_of_the_wheel(tmp_path, chip, variables):
    w, onnx = dense()
    (tmp_path / "model.onnx").write_bytes(onnx)
    (tmp_path / "cache").mkdir()
    for n in (3, 5):
        np.save(tmp_path / f"x{n}.npy", rows(n))
        np.save(tmp_path / f"y{n}.npy", np.maximum(rows(n) @ w, 0))
    out = with_wheel(["-c", SESSION], tmp_path, chip, **variables)
    assert "kernel " in out or "launches" in out, out  # the simulator's summary of the kernels that ran
    if "ORT_MIGRAPHX_MODEL_CACHE_PATH" in variables:
        files = list((tmp_path / "cache").iterdir())
        assert files
        with_wheel(["-c", SESSION], tmp_path, chip, **variables)  # loads them
        assert sorted(files) == sorted((tmp_path / "cache").iterdir())


PART = (
    "matmul_2d or matmul_1d_1d or conv_with_strides or softmax_axis_1 or gather_0 or add_bcast or reshape_extended_dims"
    " or gemm_all or dropout_zero_ratio"
)


@needs_wheel
@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_node_tests_through_the_wheel(request, device):
    """A part of ONNX's node tests, or with --full all of them: as many as docs/migraphx.md says."""
    full = request.config.getoption("--full")
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "migraphx_nodes.py"] + (
        [] if full else ["-k", PART]
    )
    variables = {"SARDONYX_DEVICE": device} if device == "host" else {}
    out = with_wheel(arguments, ROOT / "tests" / "python", **variables)
    passed = re.search(r"(\d+) passed", out)
    assert passed and int(passed[1]) >= (1327 if full else 10), out[-2000:]
