"""What options do, where no other test shows it: option_tests.toml lists the tests of all."""

import ctypes
import sqlite3

import numpy as np
import pytest
import sardonyx
from cli_support import BUILD
from ep_sessions import dense, model, rows, run_python, session
from onnx import TensorProto, helper
from simulated import counted

import onnxruntime_ep_sardonyx as ep  # isort: skip  (after ep_sessions, which names the device)


@pytest.fixture(scope="module")
def devices():
    return ep.register()


def product(m=8, k=64, n=32):
    w = np.random.default_rng(0).standard_normal((k, n)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    return model(nodes, [("x", TensorProto.FLOAT, [m, k])], [("y", TensorProto.FLOAT, [m, n])], [("w", w)])


def test_threads():
    code = """
import os, numpy as np, onnx, sardonyx
from onnx import helper, TensorProto
node = [helper.make_node("MatMul", ["x", "x"], ["y"])]
value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [512, 512])
m = helper.make_model(helper.make_graph(node, "g", [value("x")], [value("y")]), ir_version=8)
before = len(os.listdir("/proc/self/task"))
x = np.ones((512, 512), np.float32)
assert sardonyx.compile(m.SerializeToString(), threads=THREADS, cache_dir="")(x=x)["y"][0, 0] == 512
print("more threads:", len(os.listdir("/proc/self/task")) - before)
"""
    assert "more threads: 0" in run_python(code.replace("THREADS", "1"))
    assert "more threads: 1" in run_python(code.replace("THREADS", "2"))


def test_fuse():
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    fused, apart = (sardonyx.compile(product(), fuse=fuse, cache_dir="") for fuse in (True, False))
    assert len(fused.kernels()) == 1 and len(apart.kernels()) == 2
    np.testing.assert_allclose(fused(x=x)["y"], apart(x=x)["y"], rtol=1e-5, atol=1e-5)


COUNTS = """
import ctypes, os, numpy as np, onnxruntime as ort, onnxruntime_ep_sardonyx as ep
library = ctypes.CDLL(os.environ["SIMULATOR"])
library.sardonyxSimCount.restype, library.sardonyxSimCount.argtypes = ctypes.c_longlong, [ctypes.c_char_p]
count = lambda what: library.sardonyxSimCount(what.encode())
def session(**options):
    so = ort.SessionOptions()
    so.add_provider_for_devices(ep.register()[:1], options)
    return ort.InferenceSession(os.environ["MODEL"], so, enable_fallback=0)
run = lambda s: s.run(None, {"x": np.ones((3, 8), np.float32)})
"""


@pytest.fixture
def on_card(tmp_path):
    """Runs code in a process with a simulated card, whose counters it reads; returns what it prints."""
    (tmp_path / "m.onnx").write_bytes(dense()[1].SerializeToString())
    variables = {
        "SARDONYX_DEVICE": "sim:gfx1100",
        "SIMULATOR": str(BUILD / "lib" / "libamdhip64-sim.so"),
        "MODEL": str(tmp_path / "m.onnx"),
    }
    return lambda code: run_python(COUNTS + code, **variables)


def test_graphs(on_card):
    for enabled, launches in (("1", 2), ("0", 0)):  # the first run of a size is not replayed
        code = f"s = session(hip_graph_enable='{enabled}')\nfor _ in range(3): run(s)\nprint('found', count('graph_launches'))"
        assert f"found {launches}" in on_card(code)


def test_force_recompile(on_card):
    """Sessions of one model share a program, which has captured its runs; one that is compiled again has not."""
    code = "a = session()\nrun(a)\nrun(a)\nn = count('graph_launches')\nb = session(force_recompile='{}')\nrun(b)\nprint('found', count('graph_launches') - n)"
    assert "found 1" in on_card(code.format(0))
    assert "found 0" in on_card(code.format(1))


def test_batches_run_when_the_session_is_created(on_card):
    options = ("", "max_dynamic_batch='4'", "compile_batches='2,5'", "compile_batches='2,5', max_dynamic_batch='4'")
    launched = [
        int(on_card(f"s = session({o})\nprint('found', count('kernel_launches'))").split("found ")[1].split()[0])
        for o in options
    ]
    none, one, two, three = launched
    assert none < one < two < three and three - two == two - one


def test_an_application_frees_memory_and_is_asked_again(devices):
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    said = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def allocate(n):
        said.append("allocate")
        if said.count("empty") == 0:
            return None
        return libc.aligned_alloc(ctypes.c_size_t(256), ctypes.c_size_t((n + 255) // 256 * 256))

    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda p: libc.free(ctypes.c_void_p(p)))
    empty = ctypes.CFUNCTYPE(None)(lambda: said.append("empty"))
    names = {"gpu_external_alloc": allocate, "gpu_external_free": free, "gpu_external_empty_cache": empty}
    w, m = dense()
    s = session(m, devices, {n: str(ctypes.cast(f, ctypes.c_void_p).value) for n, f in names.items()})
    np.testing.assert_allclose(s.run(None, {"x": rows(3)})[0], np.maximum(rows(3) @ w, 0), rtol=1e-5, atol=1e-5)
    assert said[:3] == ["allocate", "empty", "allocate"] and said.count("empty") == 1
    del s


def test_measured_times_choose_with_tunable_op_enable(devices, tmp_path):
    options = {"device": "sim:gfx942", "cache_dir": str(tmp_path), "precision": "fp16"}
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    session(product(), devices, options | {"exhaustive_tune": "1"}).run(None, {"x": x})
    with sqlite3.connect(tmp_path / "tuning-2.sqlite") as db:
        names = [name for (name,) in db.execute("SELECT candidate FROM times ORDER BY seconds")]

    fast, large = "skinny<8, 2, 1>", "gemm<Tiling<128, 128, 2, 2, 1, 64, 2, 2>>"
    assert {fast, large} <= set(names)

    def instructions(preferred, **more):
        with sqlite3.connect(tmp_path / "tuning-2.sqlite") as db:
            db.execute("UPDATE times SET seconds = CASE candidate WHEN ? THEN 1e-9 ELSE 1e-3 END", (preferred,))
        s = session(product(), devices, options | more | {"force_recompile": "1"})
        with counted() as kinds:
            s.run(None, {"x": x})
        return kinds["vector"]

    assert instructions(large, tunable_op_enable="1") > 2 * instructions(fast, tunable_op_enable="1")
    assert instructions(large) == instructions(fast)
