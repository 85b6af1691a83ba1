"""sardonyx.migraphx as programs for MIGraphX's Python module use it, its name, and migraphx-driver."""

import array
import hashlib
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx as onnx_module
import pytest
import sardonyx.migraphx as mgx
from cli_support import BUILD, ROOT
from onnx import TensorProto, helper, numpy_helper
from sardonyx.migraphx import driver
from test_migraphx_c import dense, model, rows

PACKAGE = BUILD / "python" / "sardonyx" / "migraphx"
FLOAT = TensorProto.FLOAT


def python(*arguments, **variables):
    environment = os.environ | {"PYTHONPATH": str(BUILD / "python"), "SARDONYX_DEVICE": "host"} | variables
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=300)
    return done.returncode, done.stdout, done.stderr


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-6)


def test_shapes():
    s = mgx.shape(lens=[1, 64, 3, 3])
    assert s.standard() and s.packed() and not s.transposed() and s.ndim() == 4 and s.elements() == 576
    s = mgx.shape(lens=[1, 64, 3, 3], permutation=[0, 2, 3, 1], type="int64_t")
    assert not s.standard() and s.packed() and s.transposed() and s.strides() == [576, 1, 192, 64]
    assert s.type_string() == "int64_type" and s.type_size() == 8 and s.type() == mgx.shape.type_t.int64_type
    s = mgx.shape(lens=[2, 3], strides=[0, 1])
    assert s.broadcasted() and not s.packed() and not s.transposed() and s == mgx.shape(lens=[2, 3], strides=[0, 1])
    assert mgx.shape(type="bool", lens=[1], strides=[0]).scalar() and s != mgx.shape(lens=[2, 3])
    d = mgx.shape.dynamic_dimension(1, 4, {2, 4})
    s = mgx.shape(type="half", dyn_dims=[d, mgx.shape.dynamic_dimension(3, 3)])
    assert s.dynamic() and s.dyn_dims()[0] == d and s.dyn_dims()[1].is_fixed() and s.bytes() == 24
    assert repr(s) == "dynamic, half_type, {[ 1, 4, {2, 4} ], [ 3, 3, {} ]}"
    for wrong in ({"type": "complex"}, {"lens": [-1]}, {"lens": [2, 2], "permutation": [0, 0]}):
        with pytest.raises(ValueError, match=r"no element type|negative|no permutation"):
            mgx.shape(**wrong)


def test_arguments_share_memory():
    data = memoryview(array.array("f", range(6)).tobytes()).cast("f", [2, 3])
    a = mgx.argument(data)
    assert a.tolist() == list(range(6)) and a.get_shape().lens() == [2, 3]
    view = memoryview(a)
    assert view.format == "f" and view.shape == (2, 3) and view.strides == (12, 4) and bytes(view) == bytes(data)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = mgx.argument(values)
    values[1, 2] = 50
    assert b.tolist()[-1] == 50 and b.data_ptr() == values.ctypes.data and b != a
    assert np.from_dlpack(b).ctypes.data == values.ctypes.data and np.asarray(b).base is not None
    strided = mgx.argument(values.T)
    assert strided.tolist() == [0, 3, 1, 4, 2, 50] and strided.get_shape().strides() == [1, 3]
    with pytest.raises(BufferError, match="strides"):
        hashlib.sha256(strided)
    half = mgx.argument(np.array([1, 2], ml_dtypes.bfloat16))
    assert half.get_shape().type_string() == "bf16_type" and half.tolist() == [1, 2]
    with pytest.raises(BufferError, match="no elements of this type"):
        memoryview(half)
    assert np.asarray(half).dtype == ml_dtypes.bfloat16
    kept = np.asarray(mgx.fill_argument(mgx.shape(lens=[1000]), 3))  # outlives its argument
    assert (kept == 3).all()
    assert mgx.argument(np.array(7.0)).get_shape() == mgx.shape(type="double", lens=[1], strides=[0])
    for wrong, why in [(["a"], "no tensors of <U1"), (object(), "can't be made of object"), (values[::-1], "strides")]:
        with pytest.raises(RuntimeError, match=why):
            mgx.argument(wrong)


def test_torch_tensors():
    torch = pytest.importorskip("torch", reason="an optional dependency")
    t = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    a = mgx.argument(t)
    assert a.data_ptr() == t.data_ptr() and a.get_shape() == mgx.shape(type="bf16", lens=[2, 3])
    f = torch.arange(6.0)
    assert torch.from_dlpack(mgx.argument(f)).data_ptr() == f.data_ptr()


def test_making_arguments(tmp_path):
    s = mgx.shape(type="int32", lens=[2, 2])
    assert mgx.create_argument(s, [1, 2, 3, 4]).tolist() == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="3 values for 4 elements"):
        mgx.create_argument(s, [1, 2, 3])
    a = mgx.generate_argument(mgx.shape(lens=[5]), 3)
    assert a == mgx.generate_argument(mgx.shape(lens=[5]), 3) and a != mgx.generate_argument(mgx.shape(lens=[5]))
    mgx.argument.save(a, tmp_path / "a")
    assert mgx.argument.load(tmp_path / "a") == a
    buffer = np.ones(4, np.float32)
    assert mgx.argument_from_pointer(mgx.shape(lens=[4]), buffer.ctypes.data).tolist() == [1] * 4


def test_a_model(tmp_path):
    w, onnx = dense()
    (tmp_path / "m.onnx").write_bytes(onnx)
    p = mgx.parse_onnx(tmp_path / "m.onnx", map_input_dims={"x": [3, 8]})
    assert p.get_parameter_names() == ["x"] and p.get_output_shapes() == [mgx.shape(lens=[3, 4])]
    assert p == mgx.parse_onnx_buffer(onnx, default_dim_value=3) and not p.is_compiled()
    assert p != mgx.parse_onnx_buffer(onnx)
    dims = {"n": mgx.shape.dynamic_dimension(2, 6)}
    open_ = mgx.parse_onnx(tmp_path / "m.onnx", dim_params=dims)
    assert open_.get_parameter_shapes()["x"].dyn_dims()[0] == dims["n"]
    p.compile(mgx.get_target("ref"))
    x = rows(3)
    close(p.run({"x": x})[0], np.maximum(x @ w, 0))
    mgx.save(p, tmp_path / "p.mxr")
    close(mgx.load(tmp_path / "p.mxr").run({"x": mgx.argument(x)})[0], np.maximum(x @ w, 0))
    nodes = list(p.get_main_module())
    assert [i.name() for i in nodes] == ["@param", "@literal", "MatMul", "Relu", "@return"]
    assert nodes[3].inputs() == [nodes[2]] and nodes[3].shape() == mgx.shape(lens=[3, 4]) and "@return(y)" in repr(p)
    assert np.array_equal(np.asarray(nodes[1].get_literal()), w)
    with pytest.raises(RuntimeError, match="was parsed or loaded; a parameter can't be added"):
        p.get_main_module().add_parameter("z", mgx.shape())
    for what, why in [
        (lambda: mgx.get_target("fpga"), "there is no target 'fpga'"),
        (lambda: mgx.parse_onnx(tmp_path / "n.onnx"), "n.onnx"),
        (lambda: mgx.parse_onnx_buffer(onnx, skip_unknown_operators=True), "skip_unknown_operators is not offered"),
        (lambda: mgx.parse_tf(tmp_path / "m.pb"), "parse_tf: .*(needs tensorflow|No such file)"),
        (lambda: p.run({}), "the parameter 'x' is missing"),
        (lambda: p.to_py(), "to_py is not offered"),
        (lambda: mgx.autocast_fp8(p), "autocast_fp8 is not offered"),
    ]:
        with pytest.raises(RuntimeError, match=why):
            what()
    assert "MatMul" in mgx.get_onnx_operators()


def test_quantisation():
    w, onnx = dense()
    x = rows(4)
    want = np.maximum(x @ w, 0)
    errors = {}
    for kind in ("none", "fp16", "bf16", "dot in fp16", "int8"):
        p = mgx.parse_onnx_buffer(onnx, map_input_dims={"x": [4, 8]})
        if kind == "int8":
            mgx.quantize_int8(p, mgx.get_target("ref"), [{"x": x}])
        elif kind == "dot in fp16":
            mgx.quantize_fp16(p, ["dot"])
            assert repr(p).count("= Cast[") == 3 and "= Relu[](a)" in repr(p)  # x, w and their product
        elif kind != "none":
            getattr(mgx, f"quantize_{kind}")(p)
        p.compile(mgx.get_target("ref"))
        errors[kind] = np.abs(np.asarray(p.run({"x": x})[0]) - want).max() / want.max()
    assert errors["none"] < 1e-6 and errors["fp16"] < 2e-3 and errors["bf16"] < 2e-2
    assert 1e-6 < errors["dot in fp16"] < 2e-3 and 1e-4 < errors["int8"] < 2e-2
    with pytest.raises(RuntimeError, match="'topk' can't have a precision of its own"):
        mgx.quantize_bf16(mgx.parse_onnx_buffer(onnx), ["topk"])
    with pytest.raises(RuntimeError, match="int8 is for the operators convolution and dot together"):
        mgx.quantize_int8(mgx.parse_onnx_buffer(onnx), mgx.get_target("ref"), ins_names=["dot"])


def test_weights_in_files(tmp_path):
    w, onnx = dense()
    m = onnx_module.load_from_string(onnx)
    options = {"all_tensors_to_one_file": True, "location": "w.bin", "size_threshold": 0, "convert_attribute": False}
    onnx_module.save_model(m, str(tmp_path / "m.onnx"), save_as_external_data=True, **options)
    assert (tmp_path / "w.bin").stat().st_size >= w.nbytes
    onnx = (tmp_path / "m.onnx").read_bytes()
    with pytest.raises(RuntimeError, match=r"w\.bin"):
        mgx.parse_onnx_buffer(onnx)
    p = mgx.parse_onnx_buffer(onnx, external_data_path=str(tmp_path), map_input_dims={"x": [3, 8]})
    p.compile(mgx.get_target("ref"))
    close(p.run({"x": rows(3)})[0], np.maximum(rows(3) @ w, 0))


def test_options_without_effect_say_so(tmp_path):
    (tmp_path / "m.onnx").write_bytes(dense()[1])
    code = f"""
import sardonyx.migraphx as mgx
from sardonyx.migraphx.library import call, make
from ctypes import c_bool
for _ in range(2):
    mgx.parse_onnx({str(tmp_path / "m.onnx")!r}, use_debug_symbols=True)
call("compile_options_set_fast_math", make("compile_options", "compile_options_create"), c_bool(True))
try:
    mgx.parse_onnx({str(tmp_path / "none.onnx")!r}, print_program_on_error=True)
except RuntimeError:
    pass
"""
    status, out, err = python("-c", code)
    assert status == 0 and "none.onnx" in out, err
    for option in ("onnx_options_set_use_debug_symbols", "compile_options_set_fast_math"):
        assert err.count(f"migraphx_{option}: Note: the option has no effect") == 1, err


ON_CARD = """
import numpy as np, sardonyx.migraphx as mgx
from test_migraphx_c import dense, rows
w, onnx = dense()
x = rows(3)
want = np.maximum(x @ w, 0)
p = mgx.parse_onnx_buffer(onnx, map_input_dims={"x": [3, 8]})
p.compile(mgx.get_target("gpu"), offload_copy=False)
assert list(p.get_parameter_shapes()) == ["main:#output_0", "x"]
given = mgx.to_gpu(mgx.argument(x))
try:
    memoryview(given)
    raise SystemExit("device memory was given as a buffer")
except BufferError as e:
    assert "from_gpu" in str(e)
assert given.__dlpack_device__() != (1, 0) and mgx.from_gpu(given) == mgx.argument(x)
y = mgx.allocate_gpu(mgx.shape(lens=[3, 4]))
result, = p.run({"x": given, "main:#output_0": y})
assert result.data_ptr() == y.data_ptr()
np.testing.assert_allclose(np.asarray(mgx.from_gpu(result)), want, rtol=1e-5, atol=1e-6)
# Tensors in device memory through DLPack: a simulated card is "sim:gfx942" by the name of its chip.
class Foreign:
    def __init__(self, a): self.a = a
    def __dlpack__(self, **k): return self.a.__dlpack__(**k)
    def __dlpack_device__(self): return self.a.__dlpack_device__()
foreign = mgx.argument(Foreign(given))
assert foreign.data_ptr() == given.data_ptr()
result, = p.run({"x": Foreign(given)})
mgx.gpu_sync()
np.testing.assert_allclose(np.asarray(mgx.from_gpu(result)), want, rtol=1e-5, atol=1e-6)
pinned = mgx.to_gpu(mgx.argument(x), host=True)
assert pinned.tolist() == x.ravel().tolist()
p = mgx.parse_onnx_buffer(onnx, map_input_dims={"x": [3, 8]})
p.compile(mgx.get_target("gpu"))
np.testing.assert_allclose(np.asarray(p.run({"x": x})[0]), want, rtol=1e-5, atol=1e-6)
"""


def test_on_a_card():
    path = f"{BUILD / 'python'}:{ROOT / 'tests' / 'python'}"
    environment = os.environ | {
        "PYTHONPATH": path,
        "LD_LIBRARY_PATH": str(BUILD / "lib" / "sim"),
        "SARDONYX_SIM": "gfx942",
    }
    environment.pop("SARDONYX_DEVICE", None)
    done = subprocess.run([sys.executable, "-c", ON_CARD], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_name_is_taken_only_where_asked(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, migraphx\nprint(migraphx.__version__, migraphx.shape(lens=[2]), sys.argv[1:])\n")
    status, _, errors = python(str(script))
    assert status != 0 and "No module named 'migraphx'" in errors
    shown = f"{mgx.__version__} float_type, {{2}}, {{1}} ['a']\n"
    assert python("-m", "sardonyx.migraphx", str(script), "a")[:2] == (0, shown)
    status, folder, _ = python("-m", "sardonyx.migraphx", "--path")
    assert (status, folder.strip()) == (0, str(PACKAGE / "site"))
    path = f"{folder.strip()}:{BUILD / 'python'}"
    assert python(str(script), "a", PYTHONPATH=path)[:2] == (0, shown)
    assert python("-m", "sardonyx.migraphx", "--library")[1].strip() == str(BUILD / "lib" / "migraphx")
    status, _, errors = python("-m", "sardonyx.migraphx", "nowhere.py")
    assert status == 2 and "there is no nowhere.py" in errors


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("SARDONYX_DEVICE", "host")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(dense()[1])
    return tmp_path


def run(capfd, *arguments):
    status = driver.main([str(a) for a in arguments])
    out = capfd.readouterr()
    return status, out.out, out.err


def test_driver(models, capfd):
    assert run(capfd, "params", "m.onnx", "--batch", 3)[:2] == (0, "x: float_type, {3, 8}, {8, 1}\n")
    assert "{2, 8}" in run(capfd, "params", "m.onnx", "--input-dim", "@x", 2, 8)[1]
    assert "[ 1, 4, {} ]" in run(capfd, "params", "m.onnx", "--dyn-input-dim", "@x", "[{min:1, max:4}, 8]")[1]
    assert "{5, 8}" in run(capfd, "params", "m.onnx", "--dim-param", "@n", "5")[1]
    assert "[ 2, 3, {} ]" in run(capfd, "params", "m.onnx", "--default-dyn-dim", "{min:2, max:3}")[1]
    status, out, err = run(capfd, "read", "m.onnx", "--trim", 1, "-O")
    assert status == 0 and "@return(a)" in out and "Relu" not in out and "--optimize has no effect here" in err
    assert run(capfd, "compile", "m.onnx", "--ref", "-o", "p.mxr")[0] == 0
    status, out, _ = run(capfd, "run", "p.mxr", "--fill1", "x")
    assert status == 0 and "result 0: float_type, {1, 4}, {4, 1}" in out
    assert run(capfd, "read", "m.onnx", "--json", "-o", "p.json")[0] == 0
    assert "@return(y)" in run(capfd, "read", "p.json")[1]
    status, out, _ = run(capfd, "verify", "m.onnx", "--batch", 4, "--bf16")
    assert status == 0 and "passed" in out and "rms_tol: 0.08" in out
    status, out, _ = run(capfd, "verify", "m.onnx", "--int8", "--rms-tol", 1e-9)
    assert status == 1 and "failed" in out
    status, out, _ = run(capfd, "perf", "m.onnx", "-n", 3, "--batch", 2)
    assert status == 0 and re.search(r"Rate: \S+ inferences/sec\nTotal time: \S+ms", out)
    assert "Total time: " in run(capfd, "time", "m.onnx", "-n", 2)[1]
    assert "_result" not in run(capfd, "run", "--test")[1]
    # A product of two parameters has no weights to quantise, which is said.
    assert "Note: nothing is computed in int8; node 0" in run(capfd, "run", "--test", "--int8")[2]
    assert "Note:" not in run(capfd, "run", "m.onnx", "--int8")[2]
    mgx.argument.save(mgx.argument(rows(1)), "x.pb")
    assert run(capfd, "run", "m.onnx", "--load-arg", "@x", "x.pb")[0] == 0
    assert "pooling" in run(capfd, "op", "--list")[1].split() and "Conv" in run(capfd, "onnx", "--list")[1].split()
    assert 'mode: "average"' in run(capfd, "op", "pooling")[1]


@pytest.mark.parametrize(
    "arguments, status, why",
    [
        (["read", "m.onnx", "--graphviz"], 2, "--graphviz is not offered here: `sardonyx inspect"),
        (["verify", "m.onnx", "-b"], 2, "verify MODEL --bisect"),
        (["read"], 2, "the name of a model's file is missing"),
        (["read", "n.onnx"], 3, "n.onnx"),
        (["run", "m.onnx", "--fill0", "z"], 2, "no parameter 'z'; it has x"),
        (["params", "m.onnx", "--input-dim", "2"], 2, "needs the name of a parameter first"),
        (["params", "m.onnx", "--input-dim", "@x", "a"], 2, "--input-dim: invalid literal"),
        (["params", "m.onnx", "--dyn-input-dim", "@x", "{"], 2, "is no list of sizes"),
        (["time", "m.onnx", "-n", "0"], 2, "--iterations must be at least 1"),
        (["op", "hip::copy"], 3, "'hip::copy' can't be added"),
        (["roctx"], 2, "the name of a model's file is missing"),
        (["tf", "--list"], 2, "tf2onnx"),
        (["read", "m.onnx", "--output-names", "y"], 2, "--output-names is for frozen graphs"),
        (["read", "m.onnx", "--nchw"], 2, "m.onnx is read as onnx"),
        (["read", "g.pb"], 3, "parse_tf: "),
        (["read", "g.pb", "--dim-param", "@batch", "4"], 2, "--dim-param is not offered for frozen graphs"),
    ],
)
def test_driver_refuses(models, capfd, arguments, status, why):
    got, _, err = run(capfd, *arguments)
    assert got == status and why in err


def test_driver_as_a_program(models):
    driver_path = PACKAGE / "bin" / "migraphx-driver"
    assert os.access(driver_path, os.X_OK)
    status, out, err = python(str(driver_path), "params", str(models / "m.onnx"))
    assert (status, out) == (0, "x: float_type, {1, 8}, {8, 1}\n"), err
    status, out, err = python(str(driver_path), "verify", str(models / "m.onnx"), SARDONYX_DEVICE="sim:gfx942")
    assert status == 0 and "verification passed" in out, out + err


def lenient(nodes, inputs, outputs, weights=(), opset=13):
    m = model(nodes, inputs, outputs, weights)
    m.opset_import[0].version = opset
    return mgx.parse_onnx_buffer(m.SerializeToString())


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_models_that_only_migraphx_reads(domain):
    """Attributes in place of inputs, mixed types, bounds of int32, operators without their domain or taken out."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        helper.make_node("Slice", ["x"], ["s"], starts=[1], ends=[3], axes=[1]),
        helper.make_node("Add", ["s", "i"], ["a"]),
        helper.make_node("Pad", ["a", "pads"], ["p"]),
        helper.make_node("FastGelu", ["p"], ["g"], domain=domain),
        helper.make_node("Greater", ["b", "c"], ["greater"]),
        helper.make_node("IsInf", ["x"], ["inf"], detect_positive=1.0, domain=""),
    ]
    inputs = [
        ("x", FLOAT, [2, 3]),
        ("i", TensorProto.INT32, [2, 2]),
        ("b", TensorProto.BOOL, [2]),
        ("c", TensorProto.BOOL, [2]),
    ]
    outputs = [("g", FLOAT, [2, 3]), ("greater", TensorProto.BOOL, [2]), ("inf", TensorProto.BOOL, [2, 3])]
    p = lenient(nodes, inputs, outputs, [("pads", np.int32([0, 0, 0, 1]))])
    p.compile(mgx.get_target("ref"))
    i = np.ones((2, 2), np.int32)
    got = p.run({"x": x, "i": i, "b": np.array([True, False]), "c": np.array([False, False])})
    v = np.pad(x[:, 1:] + i, ((0, 0), (0, 1)))
    np.testing.assert_allclose(
        np.asarray(got[0]), 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))), rtol=1e-5, atol=1e-6
    )
    assert got[1].tolist() == [True, False] and got[2].tolist() == [False] * 6


def test_nested_graphs_are_mended():
    """Axes as an attribute in a loop's body."""
    f, types = helper.make_tensor_value_info, TensorProto
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["c_out"]),
            helper.make_node("Add", ["s", "x"], ["s_out"]),
            helper.make_node("ReduceSum", ["s_out"], ["row"], axes=[0], keepdims=0),
        ],
        "body",
        [f("i", types.INT64, []), f("c", types.BOOL, []), f("s", types.FLOAT, [2, 3])],
        [f("c_out", types.BOOL, []), f("s_out", types.FLOAT, [2, 3]), f("row", types.FLOAT, [3])],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["s", "rows"], body=body)]
    outputs = [("s", FLOAT, [2, 3]), ("rows", FLOAT, [2, 3])]
    p = lenient(nodes, [("x", FLOAT, [2, 3])], outputs, [("n", np.int64(2))])
    p.compile(mgx.get_target("ref"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = p.run({"x": x})
    assert (np.asarray(got[0]) == 3 * x).all()
    assert (np.asarray(got[1]) == [2 * x.sum(0), 3 * x.sum(0)]).all()


def test_clips_by_tensors_and_means_of_squares():
    x = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    low, high = np.float32([[-2, -1, 0, 1]]), np.int64([[2], [3], [4]])
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["c"]),
        helper.make_node("Clip", ["x", "", "high"], ["d"]),
        helper.make_node("SkipSimplifiedLayerNormalization", ["x", "x", "g"], ["y", "mean", "inverse"], epsilon=0.5),
    ]
    outputs = [("c", FLOAT, [3, 4]), ("d", FLOAT, [3, 4]), ("y", FLOAT, [3, 4]), ("mean", FLOAT, [3, 1])]
    weights = [("low", low), ("high", high), ("g", np.float32([1, 2, 3, 4]))]
    p = lenient(nodes, [("x", FLOAT, [3, 4])], outputs, weights)
    p.compile(mgx.get_target("ref"))
    c, d, y, mean = map(np.asarray, p.run({"x": x}))
    assert (c == np.minimum(np.maximum(x, low), high)).all() and (d == np.minimum(x, high)).all()
    square = (4 * x * x).mean(1, keepdims=True)
    np.testing.assert_allclose(mean, square, rtol=1e-6)
    np.testing.assert_allclose(y, 2 * x / np.sqrt(square + 0.5) * [1, 2, 3, 4], rtol=1e-5)


@pytest.mark.parametrize("gap", [True, False], ids=["ONNX Runtime's inputs", "MIGraphX's inputs"])
def test_packed_keys_and_values_with_a_bias(gap):
    """The same as keys and values by themselves."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 6)).astype(np.float32) for n in (3, 4, 4))
    bias, mask = rng.standard_normal(18).astype(np.float32), np.int32([[1, 1, 0, 1], [1, 0, 1, 1]])
    packed = np.stack([k.reshape(2, 4, 2, 3), v.reshape(2, 4, 2, 3)], 3)
    inputs = [("q", FLOAT, q.shape), ("kv", FLOAT, packed.shape), ("k", FLOAT, k.shape), ("v", FLOAT, v.shape)]
    inputs += [("b", FLOAT, bias.shape), ("m", TensorProto.INT32, mask.shape)]
    first = ["q", "kv", "", "b", "m"] if gap else ["q", "kv", "b", "m"]
    nodes = [
        helper.make_node("MultiHeadAttention", first, ["y"], num_heads=2),
        helper.make_node("MultiHeadAttention", ["q", "k", "v", "b", "m"], ["z"], num_heads=2),
    ]
    p = lenient(nodes, inputs, [("y", FLOAT, q.shape), ("z", FLOAT, q.shape)])
    p.compile(mgx.get_target("ref"))
    y, z = map(np.asarray, p.run({"q": q, "kv": packed, "k": k, "v": v, "b": bias, "m": mask}))
    np.testing.assert_allclose(y, z, rtol=1e-5, atol=1e-6)


def test_group_normalisation_with_a_scale_for_each_channel():
    """As exporters wrote it before operator set 21, too."""
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    scale, bias = np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, -1])
    nodes = [helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)]
    p = lenient(nodes, [("x", FLOAT, [2, 4, 3])], [("y", FLOAT, [2, 4, 3])], [("s", scale), ("b", bias)], opset=18)
    p.compile(mgx.get_target("ref"))
    groups = x.reshape(2, 2, 6)
    z = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    want = z.reshape(2, 4, 3) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(np.asarray(p.run({"x": x})[0]), want, rtol=1e-4, atol=1e-5)


def test_operators_that_onnx_has_taken_out():
    image = np.ones((1, 2, 2, 2), np.float32)
    nodes = [
        helper.make_node("ImageScaler", ["x"], ["y"], scale=0.5, bias=[1.0, 2.0]),
        helper.make_node("ConstantFill", [], ["c"], shape=[2, 2], value=3.0),
    ]
    p = lenient(nodes, [("x", FLOAT, [1, 2, 2, 2])], [("y", FLOAT, [1, 2, 2, 2]), ("c", FLOAT, [2, 2])])
    p.compile(mgx.get_target("ref"))
    y, c = p.run({"x": image})
    assert y.tolist() == [1.5] * 4 + [2.5] * 4 and c.tolist() == [3] * 4


def test_loops_of_a_fixed_length(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "one"], ["w"]),
            helper.make_node("Less", ["w", "three"], ["go"]),
            helper.make_node("Identity", ["w"], ["each"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, [1]),
            helper.make_tensor_value_info("w", FLOAT, [1]),
            helper.make_tensor_value_info("each", FLOAT, [1]),
        ],
        [numpy_helper.from_array(np.float32([n]), name) for name, n in [("one", 1), ("three", 3)]],
    )
    nodes = [helper.make_node("Loop", ["", "", "x"], ["last", "all"], body=body)]
    m = model(nodes, [("x", FLOAT, [1])], [("last", FLOAT, [1]), ("all", FLOAT, None)]).SerializeToString()
    p = mgx.parse_onnx_buffer(m)
    p.compile(mgx.get_target("ref"))
    assert [r.tolist() for r in p.run({"x": np.float32([0])})] == [[3], [1, 2, 3]]
    for bounds, all in [({"max_loop_iterations": 5}, [1, 2, 3, 0, 0]), ({"limit_max_iterations": 2}, [1, 2])]:
        (tmp_path / "m.onnx").write_bytes(m)
        p = mgx.parse_onnx(tmp_path / "m.onnx", **bounds)
        assert p.get_output_shapes()[1].lens() == [len(all), 1]
        p.compile(mgx.get_target("ref"))
        assert [r.tolist() for r in p.run({"x": np.float32([0])})] == [[all[min(len(all), 3) - 1]], all]
