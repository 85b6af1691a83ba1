"""What the provider's sessions share in a process, and processes that load the provider in other ways."""

import ctypes
import gc
import os

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep
import pytest
from ep_sessions import SANITIZED, dense, model, run_python
from onnx import TensorProto, helper


@pytest.fixture(scope="module")
def devices():
    return ep.register()


@SANITIZED
def test_weights_are_shared_between_sessions(devices, tmp_path):
    w = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float32)  # 16 MiB
    m = model(
        [helper.make_node("Gather", ["w", "x"], ["y"])],
        [("x", TensorProto.INT64, ["n"])],
        [("y", TensorProto.FLOAT, ["n", 2048])],
        [("w", w)],
    )
    onnx.save(m, tmp_path / "m.onnx")

    def load():  # from a file: the Python object of a session keeps the bytes that it is made of
        so = ort.SessionOptions()
        so.add_provider_for_devices(devices[:1], {})
        return ort.InferenceSession(str(tmp_path / "m.onnx"), so)

    first = load()
    before = resident()
    more = [load() for _ in range(4)]
    assert resident() - before < 24 << 20  # not the 64 MiB that four more copies would be
    for s in [first, *more]:
        np.testing.assert_array_equal(s.run(None, {"x": np.array([5])})[0], w[5:6])


def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # ONNX Runtime's copies are free by now, but still the process's
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_without_a_gpu_no_device_is_offered_and_the_log_says_why():
    out = run_python("import onnxruntime_ep_sardonyx as ep; print(ep.register())")
    if "sardonyx" in out and "hip" in out.split("[")[-1]:
        pytest.skip("this machine has an AMD GPU")
    assert "[]" in out and "no device is offered" in out and "SARDONYX_DEVICE=host" in out


DROP_IN = """
import numpy as np, onnx, sys
import sardonyx.onnxruntime as ort
m = open(sys.argv[1], "rb").read() if len(sys.argv) > 1 else open({path!r}, "rb").read()
assert ort.get_available_providers()[:3] == ["AMDGPUExecutionProvider", "MIGraphXExecutionProvider", "ROCMExecutionProvider"]
x = np.ones((3, 8), np.float32)
keep = []
migraphx = {{"device_id": 0, "migraphx_exhaustive_tune": True, "migraphx_max_dynamic_batch": 4, "migraphx_mem_limit": 2**30}}
rocm = {{"device_id": 0, "tunable_op_enable": 1, "gpu_mem_limit": 2**30, "do_copy_in_default_stream": True}}
for p in (["MIGraphXExecutionProvider", "CPUExecutionProvider"], [("MIGraphXExecutionProvider", migraphx)],
          [("ROCMExecutionProvider", rocm), "CPUExecutionProvider"]):
    s = ort.InferenceSession(m, providers=p)
    asked = p[0] if isinstance(p[0], str) else p[0][0]
    assert s.get_providers() == [asked, "CPUExecutionProvider"], s.get_providers()
    b = s.io_binding()
    b.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
    b.bind_output("y", "hip")
    s.run_with_iobinding(b)
    y = b.get_outputs()[0]
    assert y.device_name() != "cpu" and np.array_equal(y.numpy(), s.run(None, {{"x": x}})[0])
    keep.append((s, b, y))  # ONNX Runtime 1.23 frees a device's value with its session's help
try:
    ort.InferenceSession(m, providers=[("ROCMExecutionProvider", {{"gpu_mem_limt": 1}})])
    raise SystemExit("an unknown option was taken")
except Exception as e:
    assert "gpu_mem_limit" in str(e), e
print("fine")
"""


def test_programs_for_amds_other_providers_run_unchanged(tmp_path):
    onnx.save(dense()[1], tmp_path / "m.onnx")
    code = DROP_IN.format(path=str(tmp_path / "m.onnx"))
    assert "fine" in run_python(code, SARDONYX_DEVICE="host", ORT_MIGRAPHX_HIP_GRAPH_ENABLE="0")
    with pytest.raises(AssertionError, match="neither true nor false"):
        run_python(code, SARDONYX_DEVICE="host", ORT_MIGRAPHX_HIP_GRAPH_ENABLE="perhaps")


LEAKS = """
import ctypes, gc, os
# ONNX Runtime 1.29 and later keep an event of each new session in memory (MemoryStorage::StoreRecord under Logger::LogEvent), 1.4 KB a cycle,
# until a thread writes them to a file: in one process of forty not while this runs.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import numpy as np, onnxruntime as ort, onnxruntime_ep_sardonyx as ep
m = open({path!r}, "rb").read()
libc = ctypes.CDLL(None)
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
Use = type("Use", (ctypes.Structure,), {{"_fields_": [(n, ctypes.c_size_t) for n in names]}})
libc.mallinfo2.restype = Use
def now():
    gc.collect()
    libc.malloc_trim(0)
    use = libc.mallinfo2()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return np.array([use.uordblks + use.hblkhd, resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))])
def cycle(ours=True):
    so = ort.SessionOptions()
    so.log_severity_level = 3
    if ours:
        so.add_provider_for_devices(ep.register()[:1], {{}})
    s = ort.InferenceSession(m, so)
    s.run(None, {{"x": np.ones((3, 8), np.float32)}})
    del s, so
    if ours:
        ep.unregister()
def grown(ours):
    for k in range(100):  # until every lazy thing is there
        cycle(ours)
    marks = [now()]
    for part in range(5):
        for k in range(40):
            cycle(ours)
        marks.append(now())
    return marks[-1] - marks[0], np.median([b[0] - a[0] for a, b in zip(marks, marks[1:])]) / 40
# ONNX Runtime with its own CPU provider alone keeps a few bytes of a session, which are its own.
_, theirs = grown(False)
(_, resident, files, threads), allocated = grown(True)
print("a cycle keeps", allocated, "bytes, and", theirs, "with ONNX Runtime alone;", resident / 200, "are resident")
assert files == 0 and threads == 0, (files, threads)
# Tables grow in steps, hence the median of five parts. What is allowed is half of malloc's smallest block.
# Of what is resident, parts are free blocks.
assert allocated < theirs + {allowed}, (allocated, theirs)
assert resident < 200 * 4096 + (1 << 20), resident
"""


@pytest.mark.parametrize("device", ["host", "sim:gfx1100"])
@SANITIZED
def test_200_cycles_of_loading_running_and_unregistering_leak_nothing(tmp_path, device):
    onnx.save(dense()[1], tmp_path / "m.onnx")
    code = LEAKS.format(path=str(tmp_path / "m.onnx"), allowed=16)
    # What a thread's cache of malloc keeps counts as allocated though it is free: which thread frees a block is chance, some 800
    # bytes in one part of seven.
    print(run_python(code, SARDONYX_DEVICE=device, GLIBC_TUNABLES="glibc.malloc.tcache_count=0"))


def test_a_simulated_card_has_memory_of_its_own(tmp_path):
    onnx.save(dense()[1], tmp_path / "m.onnx")
    code = DROP_IN.format(path=str(tmp_path / "m.onnx"))
    assert "fine" in run_python(code, SARDONYX_DEVICE="sim:gfx1100")
