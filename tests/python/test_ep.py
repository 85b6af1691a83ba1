"""The plugin execution provider in ONNX Runtime, on the host in place of a GPU: devices, claims, options, memory, threads."""

import concurrent.futures
import ctypes
import os

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep
import pytest
from cli_support import BUILD, ROOT
from ep_sessions import NAME, VERSION, dense, model, rows, run_python, session
from onnx import TensorProto, helper


@pytest.fixture(scope="module")
def devices():
    return ep.register()


def test_offers_a_device_with_the_name_from_top_to_bottom(devices):
    assert ep.get_ep_name() == NAME
    assert os.path.basename(ep.get_library_path()) == "libamdgpu-ep.so"
    assert [d.ep_name for d in devices] == [NAME]
    assert devices[0].ep_metadata["device"] == "host"


@pytest.mark.parametrize("policy", ["PREFER_GPU", "MAX_PERFORMANCE"])
@pytest.mark.skipif(VERSION < (1, 24), reason="before 1.24 a provider can't bring a GPU that ONNX Runtime did not find")
def test_a_selection_policy_finds_the_device(devices, policy):
    so = ort.SessionOptions()
    so.set_provider_selection_policy(getattr(ort.OrtExecutionProviderDevicePolicy, policy))
    s = ort.InferenceSession(dense()[1].SerializeToString(), so, enable_fallback=0)
    assert s.get_providers()[0] == NAME


@pytest.mark.skipif(VERSION < (1, 25), reason="before 1.25 a list of providers knows built-in ones only")
def test_a_list_of_providers_names_it(devices):
    for entry in (NAME, (NAME, {"threads": "1"})):
        s = ort.InferenceSession(
            dense()[1].SerializeToString(), providers=[entry, "CPUExecutionProvider"], enable_fallback=0
        )
        assert s.get_providers() == [NAME, "CPUExecutionProvider"]


def test_runs_whole_models_of_all_sizes(devices):
    w, m = dense()
    s = session(m, devices)
    for n in (1, 3, 130):
        x = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        # Sums of eight terms in another order.
        np.testing.assert_allclose(s.run(None, {"x": x})[0], np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)


def test_claims_what_lies_around_a_node_that_it_does_not_run(devices):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Optional", ["a"], ["o"]),
        helper.make_node("OptionalGetElement", ["o"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    m = model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["n", 8])])
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_array_equal(session(m, devices, fallback=True).run(None, {"x": x})[0], -np.maximum(x, 0))
    with pytest.raises(Exception, match=r"fallback"):
        session(m, devices)


def test_an_unknown_option_is_an_error_that_names_the_nearest(devices):
    with pytest.raises(Exception, match=r"'gpu_mem_limt'.*'gpu_mem_limit'"):
        session(dense()[1], devices, {"gpu_mem_limt": "1"})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("device_id", "7", "no device 7"),
        ("gpu_mem_limit", "many", "not a number"),
        ("arena_extend_strategy", "kTwice", "kSameAsRequested"),
        ("precision", "fp12", "fp32, fp16"),
        ("force_recompile", "maybe", "neither true nor false"),
        ("gpu_external_alloc", "4096", "together"),
    ],
)
def test_values_that_do_not_fit_are_errors(devices, option, value, message):
    with pytest.raises(Exception, match=message):
        session(dense()[1], devices, {option: value})


@pytest.mark.parametrize(("precision", "step"), [("fp16", 2**-11), ("bf16", 2**-8)])
def test_precision_rounds_what_products_read(devices, precision, step):
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    shape = ["n", 64]
    m = model(nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)], [("w", w), ("v", v)])
    x = rng.standard_normal((5, 64)).astype(np.float32)
    want = np.maximum(x.astype(np.float64) @ w, 0) @ v
    on = {"device": "sim:gfx1100"}  # the host still computes in float32
    got = session(m, devices, on | {"precision": precision}).run(None, {"x": x})[0]
    error = np.abs(got - want).max() / np.abs(want).max()
    # Four roundings to nearest, of errors that add up as a random walk does, not in the worst way.
    assert step / 100 < error < 4 * step, error
    name = {"fp16": "migraphx_fp16_enable", "bf16": "migraphx_bf16_enable"}[precision]
    np.testing.assert_array_equal(session(m, devices, on | {name: "1"}).run(None, {"x": x})[0], got)
    with pytest.raises(Exception, match=r"write_calibration_table"):  # test_calibrated.py has the rest of it
        session(m, devices, {"migraphx_int8_enable": "True"})


def test_bound_tensors_stay_on_the_device(devices):
    w, m = dense()
    s = session(m, devices)
    x = ort.OrtValue.ortvalue_from_numpy(rows(5), "gpu", 0, 0x1002)
    y = ort.OrtValue.ortvalue_from_shape_and_type([5, 4], np.float32, "gpu", 0, 0x1002)
    binding = s.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    s.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), np.maximum(rows(5) @ w, 0), rtol=1e-5, atol=1e-5)
    assert binding.get_outputs()[0].data_ptr() == y.data_ptr()  # written where it was asked for, not copied


def test_a_memory_limit_is_kept(devices):
    s = session(dense()[1], devices, {"gpu_mem_limit": str(1 << 20), "arena_extend_strategy": "kSameAsRequested"})
    s.run(None, {"x": rows(100)})
    with pytest.raises(Exception, match=r"[Mm]emory|alloc"):
        s.run(None, {"x": rows(1 << 20)})
    s.run(None, {"x": rows(100)})


def test_one_limit_for_tensors_weights_and_temporaries(devices):
    w = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)  # 1 MiB, as x and y are
    m = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", TensorProto.FLOAT, ["n", 512])],
        [("y", TensorProto.FLOAT, ["n", 512])],
        [("w", w)],
    )
    x = np.ones((512, 512), np.float32)

    def run(limit):
        options = {"device": "sim:gfx1100", "gpu_mem_limit": str(limit), "arena_extend_strategy": "kSameAsRequested"}
        return session(m, devices, options).run(None, {"x": x})[0]

    np.testing.assert_allclose(run(4 << 20), x @ w, rtol=1e-4, atol=1e-4)
    with pytest.raises(Exception, match=r"of the limit of 2621440|limit of 2621440 bytes"):
        run(5 << 19)  # tensors alone would fit, and weights alone too
    with pytest.raises(Exception, match=r"fallback|limit of 524288 bytes"):
        run(1 << 19)


DEVICES = """
import threading, numpy as np, onnxruntime as ort, onnxruntime_ep_sardonyx as ep
m = open({path!r}, "rb").read()
x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
devices = ep.register()
assert [d.ep_metadata["device"] for d in devices] == ["host", "sim:gfx1100", "sim:gfx942"], devices
assert [d.ep_metadata["device_id"] for d in devices] == ["0", "1", "2"]
def make(device, **options):
    so = ort.SessionOptions()
    so.log_severity_level = 3
    so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    so.add_provider_for_devices([device], options)
    return ort.InferenceSession(m, so, enable_fallback=0)
sessions = [make(d) for d in devices]
want = sessions[0].run(None, {{"x": x}})[0]
def bound(s, k):
    value = ort.OrtValue.ortvalue_from_numpy(x, "gpu", k, 0x1002)
    b = s.io_binding()
    b.bind_ortvalue_input("x", value)
    b._iobinding.bind_output("y", ort.OrtDevice.make("gpu", k, 0x1002)._get_c_device())
    s.run_with_iobinding(b)
    y = b.get_outputs()[0]
    assert y.device_name() != "cpu"
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-5)
    return b, y
kept = [bound(s, k) for k, s in enumerate(sessions)]
# a tensor of one device as the input of a session on another
for k, s in enumerate(sessions):
    b = s.io_binding()
    b.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "gpu", (k + 1) % 3, 0x1002))
    b.bind_output("y")
    s.run_with_iobinding(b)
    np.testing.assert_allclose(b.copy_outputs_to_cpu()[0], want, rtol=1e-5, atol=1e-5)
# device_id chooses among all
s = make(devices[0], device_id="2")
np.testing.assert_allclose(s.run(None, {{"x": x}})[0], want, rtol=1e-5, atol=1e-5)
wrong = []
def work(k):
    for _ in range(20):
        if np.abs(sessions[k].run(None, {{"x": x}})[0] - want).max() > 1e-4:
            wrong.append(k)
threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1, 2, 1)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong, wrong
print("fine")
"""


def test_several_devices_in_one_process(tmp_path):
    onnx.save(dense()[1], tmp_path / "m.onnx")
    code = DEVICES.format(path=str(tmp_path / "m.onnx"))
    assert "fine" in run_python(code, SARDONYX_DEVICE="host,sim:gfx1100,sim:gfx942")


def test_an_application_allocates_the_memory(devices):
    libc = ctypes.CDLL(None)
    given = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def allocate(n):
        libc.aligned_alloc.restype = ctypes.c_void_p
        given.append(n)
        return libc.aligned_alloc(ctypes.c_size_t(256), ctypes.c_size_t((n + 255) // 256 * 256))

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def free(p):
        libc.free(ctypes.c_void_p(p))

    address = lambda f: str(ctypes.cast(f, ctypes.c_void_p).value)
    w, m = dense()
    s = session(m, devices, {"gpu_external_alloc": address(allocate), "gpu_external_free": address(free)})
    np.testing.assert_allclose(s.run(None, {"x": rows(3)})[0], np.maximum(rows(3) @ w, 0), rtol=1e-5, atol=1e-5)
    assert given
    del s


EXTERNAL = """
import ctypes, sys
sys.path.insert(0, {tests!r})
import numpy as np, onnxruntime as ort, onnxruntime_ep_sardonyx as ep
from ctypes import byref, c_size_t, c_void_p
from onnx import TensorProto, helper, numpy_helper
hip = ctypes.CDLL("libamdhip64.so.7")
live = {{}}
def used():
    free, total = c_size_t(), c_size_t()
    assert hip.hipMemGetInfo(byref(free), byref(total)) == 0
    return total.value - free.value
class cuda:   # what torch_memory() uses of torch
    @staticmethod
    def caching_allocator_alloc(n):
        p = c_void_p()
        assert hip.hipMalloc(byref(p), c_size_t(n)) == 0
        live[p.value] = n
        return p.value
    @staticmethod
    def caching_allocator_delete(p):
        del live[p]
        hip.hipFree(c_void_p(p))
    empty_cache = staticmethod(lambda: None)
sys.modules["torch"] = type(sys)("torch")
sys.modules["torch"].cuda = cuda
w = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
v = np.random.default_rng(1).standard_normal((128, 64)).astype(np.float32)
nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["s"]),
         helper.make_node("MatMul", ["s", "v"], ["y"])]
graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 256])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 64])],
    [numpy_helper.from_array(a, n) for a, n in [(w, "w"), (v, "v")]])
m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
devices = ep.register()
before = used()
so = ort.SessionOptions()
so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
so.add_provider_for_devices(devices[:1], ep.torch_memory())
s = ort.InferenceSession(m.SerializeToString(), so)
assert sum(live.values()) >= w.nbytes + v.nbytes, live   # the weights
x = np.random.default_rng(2).standard_normal((4, 256)).astype(np.float32)
y = s.run(None, {{"x": x}})[0]
e = np.exp(x @ w - (x @ w).max(1, keepdims=True))
np.testing.assert_allclose(y, e / e.sum(1, keepdims=True) @ v, rtol=1e-4, atol=1e-4)
# The driver rounds sizes up.
taken, given = used() - before, sum((n + 4095) // 4096 * 4096 for n in live.values())
assert taken <= given, (taken, live)
del s
import gc; gc.collect()
assert not live, live
print("fine")
"""


def test_all_device_memory_is_the_applications():
    """Weights, temporaries and tensors, on a simulated card: nothing but the application asks the driver for memory, and
    all of it is freed with the session."""
    code = EXTERNAL.format(tests=str(ROOT / "tests" / "python"))
    assert "fine" in run_python(code, LD_LIBRARY_PATH=str(BUILD / "lib" / "sim"), SARDONYX_SIM="gfx942")


def test_runs_from_many_threads_at_once(devices):
    w, m = dense()
    s = session(m, devices)

    def one(n):
        return np.abs(s.run(None, {"x": rows(n, n)})[0] - np.maximum(rows(n, n) @ w, 0)).max()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert max(pool.map(one, range(1, 200))) < 1e-4


IF_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8] x, bool c) => (float[n, 8] y) {
  a = Relu(x)
  y = If (c) <then_branch = t () => (float[n, 8] p) { p = Neg(a) }, else_branch = e () => (float[n, 8] q) { q = Abs(a) }>
}
"""


def test_control_flow_is_claimed_whole(devices):
    m = onnx.parser.parse_model(IF_MODEL)
    s = session(m, devices)  # the CPU provider may not have any node
    for c in (True, False):
        a = np.maximum(rows(2), 0)
        np.testing.assert_array_equal(s.run(None, {"x": rows(2), "c": np.array(c)})[0], -a if c else a)


SEQUENCES = """
<ir_version: 9, opset_import: ["" : 17]>
g (float[n, 8] x) => (float[n, 16] y) {
  i = Constant <value_int = -1> ()
  w = Constant <value_ints = [2, 6]> ()
  s = SplitToSequence <axis = 1> (x, w)
  p = SequenceAt (s, i)
  t = SequenceInsert (s, p)
  c = ConcatFromSequence <axis = 1> (t)
  a = SequenceConstruct (c)
  b = SequenceAt (a, i)
  d = Slice (b, j, k, l)
  y = Concat <axis = 1> (d, x)
}
"""


def test_sequences_are_claimed_with_what_makes_and_reads_them(devices):
    m = onnx.parser.parse_model(SEQUENCES)
    for name, value in (("j", 0), ("k", 8), ("l", 1)):
        m.graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [1], [value]))
    s = session(m, devices)  # the CPU provider may not have any node
    np.testing.assert_array_equal(s.run(None, {"x": rows(2)})[0], np.concatenate([rows(2)] * 2, 1))


def test_a_sequence_that_the_cpu_reads_is_made_there(devices):
    body = onnx.parser.parse_graph("b (float[n, 8] e) => (float[n, 8] f) { f = Neg (e) }")
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("SequenceConstruct", ["a", "x"], ["s"]),
        helper.make_node("SequenceMap", ["s"], ["t"], body=body),
        helper.make_node("ConcatFromSequence", ["t"], ["c"], axis=0),
        helper.make_node("Abs", ["c"], ["y"]),
    ]
    m = model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["m", 8])])
    want = np.concatenate([np.maximum(rows(2), 0), np.abs(rows(2))])
    np.testing.assert_array_equal(session(m, devices, fallback=True).run(None, {"x": rows(2)})[0], want)
