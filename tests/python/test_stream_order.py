"""Work on a caller's stream waits for what the stream has before it: the simulated GPU holds the stream back, so that whatever does not
wait runs too early, on inputs that are not there yet, and is seen."""

import os

import pytest
from cli_support import BUILD
from ep_sessions import run_python

# The first kernels run one by one, later ones as a captured graph.
COMMON = """
import ctypes, os, threading, ep_sessions, numpy as np
from ctypes import byref, c_int, c_longlong, c_size_t, c_void_p
del os.environ["SARDONYX_DEVICE"]  # which ep_sessions sets
hip = ctypes.CDLL("libamdhip64.so.7")
hip.sardonyxSimCount.restype = c_longlong
def waiting():
    return hip.sardonyxSimCount(b"waiting")
def allocate(nbytes, function="hipMalloc"):
    p = c_void_p()
    assert getattr(hip, function)(byref(p), c_size_t(nbytes), *([c_int(0)] if function == "hipHostMalloc" else [])) == 0
    return p
def new_stream():
    s = c_void_p()
    assert hip.hipStreamCreateWithFlags(byref(s), 1) == 0
    return s
def now(p, shape):  # the simulated GPU's memory is the process's: this waits for nothing
    return np.ctypeslib.as_array(ctypes.cast(p, ctypes.POINTER(ctypes.c_float)), shape).copy()
w = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
model = ep_sessions.model(
    [ep_sessions.helper.make_node("MatMul", ["x", "w"], ["a"]), ep_sessions.helper.make_node("Relu", ["a"], ["y"])],
    [("x", 1, [3, 8])], [("y", 1, [3, 4])], [("w", w)])
def rows(k):
    return np.random.default_rng(k).standard_normal((3, 8)).astype(np.float32)
def want(x):
    return np.maximum(x @ w, 0)
x, y, pinned = allocate(96), allocate(48), allocate(96, "hipHostMalloc")
def upload(value, stream):
    np.ctypeslib.as_array(ctypes.cast(pinned, ctypes.POINTER(ctypes.c_float)), (3, 8))[:] = value
    assert hip.hipMemcpyAsync(x, pinned, c_size_t(96), 1, stream) == 0
def is_late(run, stream, k):
    # `run` starts work that reads x and writes y on a stream, which gets x only afterwards.
    before = now(y, (3, 4))
    assert hip.sardonyxSimHoldStream(stream) == 0
    upload(rows(k), stream)
    first = waiting()
    run()
    assert waiting() > first, "the run left nothing to wait"
    assert (now(y, (3, 4)) == before).all(), "the run did not wait"
    assert hip.sardonyxSimReleaseStream(stream) == 0
    assert hip.hipStreamSynchronize(stream) == 0 and waiting() == 0
    np.testing.assert_allclose(now(y, (3, 4)), want(rows(k)), rtol=1e-5, atol=1e-6)
"""

MIGRAPHX = """
import migraphx_c as mgx
p = mgx.Program(model.SerializeToString()).compile("gpu", offload_copy=False)
given = {"x": (np.float32, (3, 8), x.value), "main:#output_0": (np.float32, (3, 4), y.value)}
stream, other = new_stream(), new_stream()
for k in range(4):
    is_late(lambda: p.run(stream, **given), stream, k)
# A run on another stream shares the program's memory, so it waits too.
assert hip.sardonyxSimHoldStream(stream) == 0
upload(rows(9), stream)
p.run(stream, **given)
first = waiting()
p.run(other, **given)
assert waiting() > first
assert hip.sardonyxSimReleaseStream(stream) == 0 and waiting() == 0
np.testing.assert_allclose(now(y, (3, 4)), want(rows(9)), rtol=1e-5, atol=1e-6)
"""

SESSION = """
import onnxruntime as ort, onnxruntime_ep_sardonyx as ep
stream = new_stream()
s = ep_sessions.session(model, ep.register(), {"user_compute_stream": str(stream.value)})
b = s.io_binding()
device = ort.OrtDevice.make("gpu", 0, 0x1002)._get_c_device()
b._iobinding.bind_input("x", device, np.float32, [3, 8], x.value)
b._iobinding.bind_output("y", device, np.float32, [3, 4], y.value)
o = ort.RunOptions()
o.add_run_config_entry("disable_synchronize_execution_providers", "1")
for k in range(4):
    is_late(lambda: s.run_with_iobinding(b, o), stream, k)
# With synchronisation a run returns when the stream, which another thread releases, has done its work.
assert hip.sardonyxSimHoldStream(stream) == 0
upload(rows(9), stream)
release = threading.Timer(0.1, lambda: hip.sardonyxSimReleaseStream(stream))
release.start()
s.run_with_iobinding(b)
np.testing.assert_allclose(now(y, (3, 4)), want(rows(9)), rtol=1e-5, atol=1e-6)
release.join()
"""

PYTHON = """
import sardonyx
m = sardonyx.compile(model.SerializeToString(), device="hip")
stream = sardonyx.Stream("hip")
given, out = sardonyx.to_device(rows(0), "hip"), sardonyx.to_device(np.zeros((3, 4), np.float32), "hip")
x, y = (c_void_p(t.address) for t in (given, out))
handle = c_void_p(stream.handle)
for k in range(4):
    is_late(lambda: m.run_tensors({"x": given}, outputs={"y": out}, stream=stream, synchronize=False), handle, k)
"""


@pytest.mark.parametrize("program", [MIGRAPHX, SESSION, PYTHON], ids=["migraphx", "onnxruntime", "python"])
def test_a_stream_that_is_late(program):
    path = f"{os.path.dirname(__file__)}:{os.environ.get('PYTHONPATH', '')}"
    folder = str(BUILD / "lib" / "sim")
    run_python(COMMON + program, LD_LIBRARY_PATH=folder, SARDONYX_SIM="gfx942", PYTHONPATH=path)
