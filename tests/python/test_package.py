"""The Python package as its users see it: compiling from every source, arrays of every kind in and out, errors by kind,
many threads, saved programs."""

import gc
import importlib
import subprocess
import sys
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import BUILD, layer, save
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return layer(tmp_path_factory.mktemp("package") / "m.onnx")


def want(dense, x):
    _, w, b = dense
    y = np.maximum(x @ w + b, 0)
    return {"y": y, "total": y.sum(1)}


def close(got, wanted):
    assert list(got) == list(wanted)
    for name, array in wanted.items():
        # Sums of four terms in another order.
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 4)).astype(np.float32)


def one_node(op, dtype, shape, out_dtype=None, opset=20, **attributes):
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", out_dtype or dtype, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_every_source_gives_the_same_model(dense):
    path, _, _ = dense
    x = rows(5)
    data = path.read_bytes()
    for source in (path, str(path), data, bytearray(data), memoryview(data), onnx.load(path)):
        close(sardonyx.compile(source)(x=x), want(dense, x))
    with pytest.raises(TypeError, match="ModelProto"):
        sardonyx.compile(3)


def test_what_a_model_says_of_itself(dense):
    model = sardonyx.compile(dense[0])
    assert model.inputs == [("x", np.dtype("float32"), ("batch", 4))]
    assert [o.name for o in model.outputs] == ["y", "total"] and model.outputs[0].shape == ("batch", 3)
    assert model.symbols == ["batch"]
    assert model.output_shapes(x=(7, 4)) == {"y": (7, 3), "total": (7,)} == model.output_shapes({"x": [7, 4]})
    assert repr(model) == "<sardonyx.Model (x: float32[batch, 4]) -> (y: float32[batch, 3], total: float32[batch])>"
    kernels = model.kernels()
    assert {k.kind for k in kernels} <= {"loop", "tile", "routine"}
    assert {n for k in kernels for n in k.nodes} == {
        "product (MatMul)",
        "bias (Add)",
        "activation (Relu)",
        "total (ReduceSum)",
    }
    memory = model.memory(batch=10)
    assert memory.inputs == 4 * 40 and memory.outputs == 4 * 40 and memory.weights >= 4 * 15 and memory.unplanned == 0
    with pytest.raises(sardonyx.InvalidArgumentError, match="batch"):
        model.memory()
    with pytest.raises(sardonyx.InvalidArgumentError, match="no dim 'z'"):
        model.memory(batch=1, z=3)
    outputs, steps = model.profile({"x": rows(3)})
    close(outputs, want(dense, rows(3)))
    assert len(steps) >= len(kernels) and all(s.seconds >= 0 for s in steps)


def test_dims_that_depend_on_data_have_no_size():
    model = sardonyx.compile(one_node("NonZero", TensorProto.FLOAT, ["n"], TensorProto.INT64))
    assert model.output_shapes(x=[5])["y"] == (1, None)
    assert model(x=np.float32([0, 2, 3]))["y"].tolist() == [[1, 2]]


def test_options(dense):
    path, _, _ = dense
    fixed = sardonyx.compile(path, dims={"batch": 2}, threads=1, fuse=False, all_outputs=True)
    assert fixed.inputs[0].shape == (2, 4) and {"product", "sum"} <= {o.name for o in fixed.outputs}
    with pytest.raises(sardonyx.InvalidArgumentError, match="batch"):
        sardonyx.compile(path, dims={"batsh": 2})
    for options, kind, text in [
        ({"device": "abacus"}, sardonyx.InvalidArgumentError, "no device 'abacus'"),
        ({"device": "hip:63"}, sardonyx.DeviceError, "^hip"),
        ({"precision": "int8"}, sardonyx.InvalidArgumentError, "needs a calibration table"),
        ({"precision": "fp31"}, sardonyx.InvalidArgumentError, "no precision 'fp31'"),
        ({"threads": -1}, sardonyx.InvalidArgumentError, "threads"),
    ]:
        with pytest.raises(kind, match=text):
            sardonyx.compile(path, **options)


def test_cache_and_progress(dense, tmp_path):
    seen = []
    sardonyx.compile(dense[0], cache_dir=tmp_path / "cache", progress=seen.append)
    assert seen[0].stage == "reading" and seen[-1].stage == "ready"
    assert any(p.stage == "compiling" and 0 < p.done == p.total for p in seen)
    assert any((tmp_path / "cache").rglob("*"))

    def stop(progress):
        raise KeyError(progress.stage)

    with pytest.raises(KeyError, match="reading"):
        sardonyx.compile(dense[0], progress=stop)


def test_errors_by_kind(dense, tmp_path):
    path, _, _ = dense
    (tmp_path / "bad.onnx").write_bytes(path.read_bytes()[:-20])
    unsupported = save(
        tmp_path / "s.onnx",
        [helper.make_node("StringNormalizer", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, [2])],
        [("y", TensorProto.FLOAT, [2])],
    )
    model = sardonyx.compile(path)
    cases = [
        (lambda: sardonyx.compile(tmp_path / "no.onnx"), sardonyx.FileError, OSError, "no.onnx"),
        (lambda: sardonyx.compile(""), sardonyx.InvalidArgumentError, ValueError, "empty"),
        (lambda: sardonyx.compile(tmp_path / "bad.onnx"), sardonyx.InvalidModelError, ValueError, "bad.onnx"),
        (lambda: sardonyx.compile(b"junk"), sardonyx.InvalidModelError, ValueError, "ONNX"),
        (lambda: sardonyx.compile(unsupported), sardonyx.UnsupportedError, NotImplementedError, "StringNormalizer"),
        (lambda: model(), sardonyx.InvalidArgumentError, ValueError, "input 'x' is missing"),
        (lambda: model(x=rows(1), z=1), sardonyx.InvalidArgumentError, ValueError, "no input 'z'"),
        (lambda: model({"x": rows(1)}, x=rows(1)), sardonyx.InvalidArgumentError, ValueError, "given twice"),
        (lambda: model(x=rows(1).astype(np.float64)), sardonyx.InvalidArgumentError, ValueError, "float64.*float32"),
        (lambda: model(x=rows(1)[0]), sardonyx.InvalidArgumentError, ValueError, "rank 1"),
        (lambda: model(x=np.zeros((2, 5), np.float32)), sardonyx.InvalidArgumentError, ValueError, "5"),
        (lambda: model(x=np.array(["a"])), sardonyx.InvalidArgumentError, ValueError, "'x'"),
        (lambda: model(x=np.array([object()])), sardonyx.InvalidArgumentError, ValueError, "'x'"),
        (lambda: model(x=np.zeros(2, "datetime64[s]")), sardonyx.InvalidArgumentError, ValueError, "'x'"),
        (lambda: model(x=[[1, 2], [3]]), sardonyx.InvalidArgumentError, ValueError, "'x'"),
        (lambda: model(x=None), sardonyx.InvalidArgumentError, ValueError, "'x'"),
        (lambda: model.output_shapes(x=[1]), sardonyx.InvalidArgumentError, ValueError, "'x'"),
        (lambda: model.save(tmp_path / "no" / "m.sdx"), sardonyx.FileError, OSError, "m.sdx"),
        (lambda: sardonyx.load(path), sardonyx.InvalidModelError, ValueError, "m.onnx"),
    ]
    for call, kind, builtin, text in cases:
        with pytest.raises(kind, match=text) as caught:
            call()
        assert isinstance(caught.value, builtin) and isinstance(caught.value, sardonyx.Error)
        assert "\n" not in str(caught.value) and caught.value.code == kind.code


def test_names_that_python_cannot_write():
    model = one_node("Relu", TensorProto.FLOAT, [2])
    model.graph.node[0].input[0] = model.graph.input[0].name = "x:0"
    model.graph.node[0].output[0] = model.graph.output[0].name = "class/ü 1"
    compiled = sardonyx.compile(model)
    x = np.float32([-1, 1])
    for got in (compiled({"x:0": x}), compiled.run({"x:0": x}), compiled(**{"x:0": x})):
        assert list(got) == ["class/ü 1"] and got["class/ü 1"].tolist() == [0, 1]


def test_layouts_of_inputs(dense):
    model = sardonyx.compile(dense[0])
    x = rows(6)
    unaligned = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(6, 4)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (x[::2], np.asfortranarray(x), x[:, ::-1], x.astype(">f4"), unaligned, read_only, x[:0], x.tolist()):
        close(model(x=given), want(dense, np.asarray(given, np.float32)))


def test_numbers_and_lists_take_the_models_dtype():
    model = sardonyx.compile(one_node("Neg", TensorProto.INT32, []))
    assert model(x=3)["y"] == -3 and model(x=3)["y"].dtype == np.int32 and model(x=3)["y"].shape == ()
    with pytest.raises(sardonyx.InvalidArgumentError, match="float64"):
        model(x=1.5)
    with pytest.raises(sardonyx.InvalidArgumentError, match="'x'"):
        model(x=2**40)


def test_no_copies():
    """A row-major input is read where it is, and an output is the library's memory: each seen through its address."""
    model = sardonyx.compile(one_node("Relu", TensorProto.FLOAT, ["n"]))
    x = np.float32([1, 2, 3])
    assert sardonyx.model.input_array("x", x, x.dtype)[1][0] == x.ctypes.data
    tensor = model.run_tensors({"x": x})["y"]
    address = tensor.address
    array = np.from_dlpack(tensor)
    assert array.ctypes.data == address and array.tolist() == [1, 2, 3]
    del tensor
    gc.collect()
    assert array.tolist() == [1, 2, 3]
    output = model(x=x)["y"]
    assert output.flags.writeable and output.flags.aligned and output.ctypes.data % 64 == 0


def test_outputs_outlive_the_model():
    model = sardonyx.compile(one_node("Relu", TensorProto.FLOAT, ["n"]))
    x = np.arange(1000, dtype=np.float32)
    y = model(x=x)["y"]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(y, x)


class Foreign:
    """What another library's tensor offers, and no more."""

    def __init__(self, owner, device=None):
        self.owner, self.device = owner, device

    def __dlpack__(self, **arguments):
        return self.owner.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.device or self.owner.__dlpack_device__()


def test_dlpack_in(dense):
    model = sardonyx.compile(dense[0])
    x = rows(6)
    close(model(x=Foreign(x)), want(dense, x))
    close(model(x=Foreign(x[:, ::-1].copy()[:, ::-1])), want(dense, x))
    assert sardonyx.model.input_array("x", Foreign(x), x.dtype)[1] == (x.ctypes.data, "float32", [6, 4], False)
    with pytest.raises(sardonyx.InvalidArgumentError, match="'x'"):
        model(x=Foreign("no tensor"))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16", "uint8", "bool"])
def test_dlpack_between_models(name):
    """A tensor of one model goes into the next; numpy itself knows no bfloat16 in DLPack."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, name, name)))
    first = sardonyx.compile(one_node("Cast", TensorProto.FLOAT, ["n"], code, to=code))
    second = sardonyx.compile(one_node("Cast", code, ["n"], TensorProto.FLOAT, to=TensorProto.FLOAT))
    x = np.float32([0, 1, 2.5, 3])
    middle = first.run_tensors({"x": x})["y"]
    assert middle.dtype == name
    array = first(x=x)["y"]
    assert array.dtype.name == name
    for given in (middle, Foreign(middle), array):
        np.testing.assert_array_equal(second(x=given)["y"], array.astype(np.float32))


@pytest.mark.parametrize(
    "name", ["INT4", "UINT4", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "BFLOAT16", "FLOAT16", "INT8", "DOUBLE"]
)
def test_every_kind_of_element_comes_back(name):
    code = TensorProto.DataType.Value(name)
    model = sardonyx.compile(one_node("Identity", code, ["n", 2], opset=21))
    x = np.array([[0, 1], [3, 7]]).astype(helper.tensor_dtype_to_np_dtype(code))
    y = model(x=x)["y"]
    assert y.dtype == x.dtype and y.tolist() == x.tolist()
    assert model(x=x[:0])["y"].shape == (0, 2)


def test_4_bits_have_no_dlpack():
    model = sardonyx.compile(one_node("Identity", TensorProto.INT4, ["n"], opset=21))
    tensor = model.run_tensors({"x": np.zeros(3, ml_dtypes.int4)})["y"]
    with pytest.raises(BufferError, match="int4"):
        tensor.__dlpack__()


def test_save_and_load(dense, tmp_path):
    model = sardonyx.compile(dense[0])
    model.save(tmp_path / "m.sdx")
    loaded = sardonyx.load(tmp_path / "m.sdx", threads=1)
    assert loaded.inputs == model.inputs and loaded.outputs == model.outputs and loaded.symbols == ["batch"]
    for n in (1, 9):
        close(loaded(x=rows(n)), want(dense, rows(n)))
    damaged = bytearray((tmp_path / "m.sdx").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged.sdx").write_bytes(damaged)
    with pytest.raises(sardonyx.InvalidModelError, match="damaged"):
        sardonyx.load(tmp_path / "damaged.sdx")


def test_many_threads_at_once(dense):
    model = sardonyx.compile(dense[0], threads=2)
    failures = []

    def work(seed):
        try:
            for n in range(1, 40):
                x = rows((n * (seed + 3)) % 23 + 1, seed)
                close(model(x=x), want(dense, x))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def test_other_threads_run_during_a_run():
    n = 1200
    w = numpy_helper.from_array(np.eye(n, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x" if k == 0 else f"t{k}", "w"], [f"t{k + 1}"]) for k in range(8)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, n])],
        [helper.make_tensor_value_info("t8", TensorProto.FLOAT, [n, n])],
        [w],
    )
    model = sardonyx.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), threads=1
    )
    x = np.ones((n, n), np.float32)
    ends = []

    def work():
        start = time.perf_counter()
        model(x=x)
        ends.append((start, time.perf_counter()))

    thread = threading.Thread(target=work)
    ticks = []
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.002)
    # At the edges the other thread may hold the lock; in the middle only the run itself could.
    (start, end) = ends[0]
    margin = 0.1 * (end - start)
    assert any(start + margin < t < end - margin for t in ticks)


def test_devices_and_version():
    device = sardonyx.devices()[0]
    assert device.name == "host" and device.threads >= 1 and device.memory > 0 and device.description and device.target
    assert [int(n) for n in sardonyx.__version__.split(".")] and sardonyx.__version__ in subprocess.run(
        [str(BUILD / "bin" / "sardonyx"), "--version"], capture_output=True, text=True
    ).stdout


def test_everything_public_is_documented_and_typed():
    assert (BUILD / "python" / "sardonyx" / "py.typed").exists()
    native = importlib.import_module("sardonyx._sardonyx")
    stub = (BUILD / "python" / "sardonyx" / "_sardonyx.pyi").read_text()
    for holder in (native, native.Model, native.Tensor):
        for member in vars(holder):
            if not member.startswith("_"):
                assert f"def {member}(" in stub or f"class {member}:" in stub, f"{member} has no type"
    for name in sardonyx.__all__:
        assert name == "__version__" or getattr(sardonyx, name).__doc__, name
    for name, member in vars(sardonyx.Model).items():
        assert name.startswith("_") or member.__doc__, name


def test_nothing_but_numpy_is_imported():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, sardonyx; print(*sorted({m.split('.')[0] for m in sys.modules}))"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(BUILD / "python"), "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    assert not {"onnx", "onnxruntime", "google"} & set(done.stdout.split())
