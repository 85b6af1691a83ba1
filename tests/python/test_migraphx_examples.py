"""Programs that make the calls of MIGraphX's examples (docs/migraphx.md lists them), written anew, on the host and on a simulated card. The
examples themselves, unchanged, are run by test_migraphx_own.py."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char, c_char_p, c_float, c_int, c_size_t, c_void_p

import migraphx_c as mgx
import numpy as np
import onnx
import pytest
from cli_support import BUILD
from onnx import TensorProto, helper
from sardonyx.migraphx import driver
from test_migraphx_c import dims as ranges
from test_migraphx_c import model

FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


@pytest.fixture(params=["host", "sim:gfx942"])
def device(request, monkeypatch):
    """Of the target "gpu"."""
    monkeypatch.setenv("SARDONYX_DEVICE", request.param)
    return request.param


def argument(array, strides=None):
    """In the array's memory."""
    s = mgx.make_shape(array.dtype, array.shape)
    if strides is not None:
        n = len(strides)
        sizes = [(c_size_t * n)(*v) for v in (array.shape, strides)]
        number = mgx.TYPES[array.dtype]
        s = mgx.Handle("shape", "shape_create_with_strides", number, sizes[0], c_size_t(n), sizes[1], c_size_t(n))
    a = mgx.Handle("argument", "argument_create", s, c_void_p(array.ctypes.data))
    a.keep = array
    return a


def evaluate(program, **arguments):
    params = mgx.Handle("program_parameters", "program_parameters_create")
    for name, a in arguments.items():
        mgx.call("program_parameters_add", params, name.encode(), a)
    out = mgx.Handle("arguments", "program_run", program, params)
    first = c_void_p()
    mgx.call("arguments_get", byref(first), out, c_size_t(0))
    first.keep = out
    return first


def same(a, b):
    out = c_bool()
    mgx.call("argument_equal", byref(out), a, b)
    return out.value


def values(a, count):
    data = POINTER(c_float)()
    mgx.call("argument_buffer", byref(data), a)
    return data[:count]


def compiled(program, target=b"gpu", offload_copy=True):
    o = mgx.Handle("compile_options", "compile_options_create")
    mgx.call("compile_options_set_offload_copy", o, c_bool(offload_copy))
    mgx.call("program_compile", program, mgx.Handle("target", "target_create", target), o)
    return program


@pytest.mark.parametrize("all_dims", [True, False])
def test_dynamic_batch(device, all_dims):
    nodes = [helper.make_node("Add", ["0", "1"], ["y"])]
    m = model(nodes, [("0", UINT8, ["n", 3, 4, 5]), ("1", UINT8, [1])], [("y", UINT8, ["n", 3, 4, 5])])
    o = mgx.onnx_options()
    if all_dims:
        mgx.call("onnx_options_set_dyn_input_parameter_shape", o, b"0", ranges((1, 4), (3, 3), (4, 4), (5, 5)))
    else:
        optimal = mgx.Handle("optimals", "optimals_create", (c_size_t * 2)(2, 4), c_size_t(2))
        create = "dynamic_dimension_create_min_max_optimals"
        batch = mgx.Handle("dynamic_dimension", create, c_size_t(1), c_size_t(4), optimal)
        mgx.call("onnx_options_set_default_dyn_dim_value", o, batch)
    data = m.SerializeToString()
    p = compiled(mgx.Handle("program", "parse_onnx_buffer", data, c_size_t(len(data)), o))
    for n in (2, 4):
        a, b = np.full((n, 3, 4, 5), 3, np.uint8), np.array([2], np.uint8)
        result = evaluate(p, **{"0": argument(a), "1": argument(b, strides=[0])})
        assert same(result, argument(np.full((n, 3, 4, 5), 5, np.uint8)))


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_parse_load_save(device, form, tmp_path, capfd):
    m = model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])])
    onnx.save(m, tmp_path / "m.onnx")
    o = mgx.onnx_options(default_dim=3)
    p = mgx.Handle("program", "parse_onnx", str(tmp_path / "m.onnx").encode(), o)
    mgx.call("program_print", p)
    files = mgx.Handle("file_options", "file_options_create")
    if form == "json":  # msgpack is the default
        mgx.call("file_options_set_file_format", files, form.encode())
    mgx.call("save", p, str(tmp_path / "p.mxr").encode(), files)
    again = mgx.Handle("program", "load", str(tmp_path / "p.mxr").encode(), files)
    mgx.call("program_print", again)
    first, second = capfd.readouterr().out.split("module:")[1:]
    assert first.strip() == second.strip() and "float_type, {3, 4}" in first
    x = np.float32([[-1, 2, -3, 4]] * 3)
    assert same(evaluate(compiled(again), x=argument(x)), argument(np.maximum(x, 0)))


def graph():
    """An empty program, its main module, and functions that add to it."""
    p = mgx.Handle("program", "program_create")
    main = c_void_p()
    mgx.call("program_get_main_module", byref(main), p)
    return p, main


def add(main, name, *inputs, attributes=None):
    op = mgx.Handle("operation", "operation_create", name.encode(), attributes and attributes.encode())
    handles = (c_void_p * len(inputs))(*(i.p for i in inputs))
    args = mgx.Handle("instructions", "instructions_create", handles, c_size_t(len(inputs)))
    return mgx.Handle("instruction", "module_add_instruction", main, op, args)


def parameter(main, name, shape):
    return mgx.Handle("instruction", "module_add_parameter", main, name.encode(), shape)


def add_return(main, *results):
    handles = (c_void_p * len(results))(*(i.p for i in results))
    args = mgx.Handle("instructions", "instructions_create", handles, c_size_t(len(results)))
    return mgx.Handle("instruction", "module_add_return", main, args)


def test_trace_callback(device):
    p, main = graph()
    shape = mgx.make_shape(np.float32, (2, 3))
    x, y = parameter(main, "x", shape), parameter(main, "y", shape)
    left = add(main, "relu", add(main, "add", x, y))
    right = add(main, "sigmoid", add(main, "mul", x, y))
    add(main, "concat", left, right, attributes="{axis: 1}")
    compiled(p)
    a = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    params = mgx.Handle("program_parameters", "program_parameters_create")
    kept = {"x": argument(a), "y": argument(10 * a)}
    for name, value in kept.items():
        mgx.call("program_parameters_add", params, name.encode(), value)
    seen = {}

    @CFUNCTYPE(c_int, c_void_p, c_void_p)
    def callback(info, _data):
        index, name, result, count = c_size_t(), c_char_p(), c_void_p(), c_size_t()
        mgx.call("trace_info_get_index", byref(index), c_void_p(info))
        mgx.call("trace_info_get_name", byref(name), c_void_p(info))
        mgx.call("trace_info_get_result", byref(result), c_void_p(info))
        s = c_void_p()
        mgx.call("argument_shape", byref(s), result)
        mgx.call("shape_elements", byref(count), s)
        seen[index.value] = name.value.decode(), values(result, count.value)
        return 0

    mgx.Handle("arguments", "program_run_trace", p, params, callback, c_void_p())
    by_name = {name.split("[")[0]: v for name, v in seen.values()}
    np.testing.assert_allclose(by_name["mul"], (a * a * 10).ravel(), rtol=1e-6)
    expected = np.concatenate([11 * a, 1 / (1 + np.exp(-10 * a * a))], 1)
    np.testing.assert_allclose(by_name["concat"], expected.ravel(), rtol=1e-5)
    assert seen[6][0].startswith("concat")  # the instruction's position


def digits():
    """A small convolutional network for images of 28 x 28, and its scores for some of them in float64."""
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((8, 1, 5, 5)), rng.standard_normal((8 * 7 * 7, 10)) / 10
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["scores"]),
    ]
    weights = [("w", w.astype(np.float32)), ("v", v.astype(np.float32))]
    return model(nodes, [("image", FLOAT, [1, 1, 28, 28])], [("scores", FLOAT, [1, 10])], weights)


@pytest.mark.parametrize("how", ["cpu", "gpu", "ref", "gpu fp16", "gpu int8", "gpu int8 calibrated"])
def test_digits(device, how):
    image = np.random.default_rng(1).uniform(0, 1, (1, 1, 28, 28)).astype(np.float32)
    data = digits().SerializeToString()
    target, *options = how.split()

    def scores(target, options):
        p = mgx.Handle("program", "parse_onnx_buffer", data, c_size_t(len(data)), mgx.onnx_options())
        to = mgx.Handle("target", "target_create", target.encode())
        if options == ["fp16"]:
            mgx.call("quantize_fp16", p)
        elif options:
            o = mgx.Handle("quantize_int8_options", "quantize_int8_options_create")
            example = mgx.Handle("program_parameters", "program_parameters_create")
            kept = argument(image)
            mgx.call("program_parameters_add", example, b"image", kept)
            if "calibrated" in options:
                mgx.call("quantize_int8_options_add_calibration_data", o, example)
            mgx.call("quantize_int8", p, to, o)
        compiled(p, target.encode(), offload_copy=target == "gpu")
        return np.array(values(evaluate(p, image=argument(image)), 10))

    want, got = scores("ref", []), scores(target, options)
    # Of 8 bits, and where they are not calibrated of values that MIGraphX's rule cuts off.
    bound = {"": 1e-5, "fp16": 5e-3, "int8 calibrated": 5e-2, "int8": 1.5}[" ".join(options)]
    assert np.abs(got - want).max() <= bound * np.abs(want).max()
    assert "int8" not in options or np.abs(got - want).max() > 1e-4  # not in float32


Compute = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_char), c_size_t, c_void_p, c_void_p, c_void_p)
ComputeShape = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(c_char), c_size_t, c_void_p)
OnDevice = CFUNCTYPE(c_int, POINTER(c_bool), c_void_p, POINTER(c_char), c_size_t)
Copy, Delete = CFUNCTYPE(c_int, POINTER(c_void_p), c_void_p), CFUNCTYPE(c_int, c_void_p)
hip = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so")
KEPT = []  # functions that the library may call as long as the process runs


def nth(arguments, k):
    """Address and number of bytes."""
    a, s, data, size = c_void_p(), c_void_p(), c_void_p(), c_size_t()
    mgx.call("arguments_get", byref(a), c_void_p(arguments), c_size_t(k))
    mgx.call("argument_shape", byref(s), a)
    mgx.call("argument_buffer", byref(data), a)
    mgx.call("shape_bytes", byref(size), s)
    return data.value, size.value, a


def register(name, square, on_device):
    """An operator that squares its first input into its second; `square` gets addresses, a size and a stream."""

    @Compute
    def compute(out, _object, message, size, context, _output, inputs):
        queue = c_void_p()
        mgx.call("context_get_queue", byref(queue), c_void_p(context))
        (source, n, _), (target, _, result) = nth(inputs, 0), nth(inputs, 1)
        why = square(target, source, n, queue)
        if why:
            ctypes.memmove(message, why[: size - 1] + b"\0", min(len(why), size - 1) + 1)
            return mgx.UNKNOWN_ERROR
        mgx.call("argument_assign_to", c_void_p(out), result)
        return 0

    @ComputeShape
    def compute_shape(out, _object, message, size, inputs):
        n, s = c_size_t(), c_void_p()
        mgx.call("shapes_size", byref(n), c_void_p(inputs))
        if n.value != 2:
            ctypes.memmove(message, b"two inputs, please\0", 19)
            return mgx.UNKNOWN_ERROR
        mgx.call("shapes_get", byref(s), c_void_p(inputs), c_size_t(1))
        mgx.call("shape_assign_to", c_void_p(out), s)
        return 0

    @OnDevice
    def runs_on_offload_target(out, _object, _message, _size):
        out[0] = on_device
        return 0

    @Copy
    def copy(out, source):
        out[0] = source
        return 0

    delete = Delete(lambda _object: 0)
    KEPT.extend([compute, compute_shape, runs_on_offload_target, copy, delete])
    create = "experimental_custom_op_create"
    op = mgx.Handle("experimental_custom_op", create, c_void_p(1), copy, delete, b"square", name.encode())
    mgx.call("experimental_custom_op_set_compute", op, compute)
    mgx.call("experimental_custom_op_set_compute_shape", op, compute_shape)
    mgx.call("experimental_custom_op_set_runs_on_offload_target", op, runs_on_offload_target)
    mgx.call("experimental_custom_op_register", op)


def with_custom(name, shape):
    p, main = graph()
    x = parameter(main, "x", shape)
    memory = mgx.Handle("instruction", "module_add_allocation", main, shape)
    y = add(main, "relu", add(main, name, add(main, "neg", x), memory))
    return p, main, add_return(main, y)


@pytest.mark.parametrize("on_device", [True, False])
def test_custom_operator(device, on_device):
    array = np.arange(32 * 8, dtype=np.float32).reshape(32, 8) - 100
    where = []

    def square(target, source, n, queue):
        where.append(bool(queue))
        given = np.empty(n // 4, np.float32)
        if on_device and device != "host":  # as its kernel would, in the stream's order
            assert hip.hipMemcpyAsync(c_void_p(given.ctypes.data), c_void_p(source), c_size_t(n), 2, queue) == 0
            assert hip.hipStreamSynchronize(queue) == 0
            given *= given
            assert hip.hipMemcpyAsync(c_void_p(target), c_void_p(given.ctypes.data), c_size_t(n), 1, queue) == 0
            assert hip.hipStreamSynchronize(queue) == 0
        else:
            ctypes.memmove(given.ctypes.data, source, n)
            given *= given
            ctypes.memmove(target, given.ctypes.data, n)
        return b""

    name = f"square_{'device' if on_device else 'host'}"
    register(name, square, on_device)
    p, *_keep = with_custom(name, mgx.make_shape(np.float32, array.shape))
    compiled(p)
    for _ in range(2):
        assert same(evaluate(p, x=argument(array)), argument(array * array))
    assert where == [device != "host"] * 2
    files = mgx.Handle("file_options", "file_options_create")
    with pytest.raises(mgx.MigraphxError, match="programs with custom operators can't be saved"):
        mgx.call("save", p, b"/nowhere/p.mxr", files)
    with pytest.raises(mgx.MigraphxError, match="the parameter 'x' is missing"):
        evaluate(p)
    with pytest.raises(mgx.MigraphxError, match=r"has the shape float_type, \{2\}, \{1\}, and must have"):
        evaluate(p, x=argument(np.zeros(2, np.float32)))


def test_custom_operators_that_fail(device):
    register("square_fails", lambda *_: b"no such number", True)
    shape = mgx.make_shape(np.float32, (4,))
    p, main, _keep = with_custom("square_fails", shape)
    with pytest.raises(mgx.MigraphxError, match="Error in compute_shape of: square: two inputs, please"):
        _q, main = graph()
        add(main, "square_fails", parameter(main, "x", shape))
    with pytest.raises(mgx.MigraphxError, match="the operator square_fails is a custom one, which has no attributes"):
        mgx.Handle("operation", "operation_create", b"square_fails", b"{a: 1}")
    compiled(p)
    with pytest.raises(mgx.MigraphxError, match="Error in compute of: square: no such number"):
        evaluate(p, x=argument(np.zeros(4, np.float32)))
    with pytest.raises(mgx.MigraphxError, match="there is an operator 'add' already"):
        register("add", None, True)
    empty = mgx.Handle(
        "experimental_custom_op", "experimental_custom_op_create", c_void_p(1), KEPT[3], KEPT[4], b"t", b"none"
    )
    with pytest.raises(mgx.MigraphxError, match="the custom operator 'none' has no compute"):
        mgx.call("experimental_custom_op_register", empty)


def test_driver_commands(device, tmp_path, capfd):
    """The commands of the example migraphx_driver; its model of TensorFlow as ONNX."""
    rng = np.random.default_rng(0)
    shapes = [("w", (784, 128)), ("b", 128), ("v", (128, 10))]
    weights = [(n, rng.standard_normal(s).astype(np.float32)) for n, s in shapes]
    nodes = [
        helper.make_node("Flatten", ["x"], ["a"]),
        helper.make_node("Gemm", ["a", "w", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("Softmax", ["e"], ["y"]),
    ]
    path = str(tmp_path / "simple_graph.onnx")
    onnx.save(model(nodes, [("x", FLOAT, [1, 28, 28])], [("y", FLOAT, [1, 10])], weights), path)
    for words, said in [
        (["op", "--list"], "multibroadcast\n"),
        (["params", path], "x: float_type, {1, 28, 28}, {784, 28, 1}"),
        (["run", "--onnx", path], "result 0: float_type, {1, 10}, {10, 1}"),
        (["read", path], "Softmax"),
        (["compile", "--gpu", "--fp16", path], "@return"),
        (["verify", path], "passed successfully"),
        (["perf", "-n", "2", path], "inferences/sec"),
    ]:
        assert driver.main(words) == 0
        assert said in capfd.readouterr().out
