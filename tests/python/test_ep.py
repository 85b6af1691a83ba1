"""The plugin execution provider in ONNX Runtime, on the host in the place of a card: claims, runs, refuses."""

import concurrent.futures
import ctypes
import gc
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

os.environ["SARDONYX_DEVICE"] = "host"  # read when the library is registered

import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep

NAME = "AMDGPUExecutionProvider"
VERSION = tuple(map(int, ort.__version__.split(".")[:2]))
# Of tests that measure memory.
SANITIZED = pytest.mark.skipif(
    "san.so" in os.environ.get("LD_PRELOAD", ""), reason="a sanitizer keeps memory that is freed"
)


@pytest.fixture(scope="module")
def devices():
    return ep.register()


def session(model, devices, options=None, fallback=False, **config):
    so = ort.SessionOptions()
    so.log_severity_level = 3
    if not fallback:
        so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in config.items():
        so.add_session_config_entry(key.replace("__", "."), value)
    so.add_provider_for_devices(devices[:1], options or {})
    # Else the Python package tries once more with the CPU provider alone, and hides the reason.
    return ort.InferenceSession(model.SerializeToString(), so, enable_fallback=0)


def model(nodes, inputs, outputs, weights=(), opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def dense(seed=0):
    w = np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    return w, model(nodes, [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["n", 4])], [("w", w)])


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


def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 8)).astype(np.float32)


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
    on = {"device": "sim:gfx1100"}  # the host computes in float32 all the same
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


@pytest.mark.parametrize("embed", ["0", "1"])
def test_models_compiled_ahead_of_time(devices, tmp_path, embed):
    w, m = dense()
    onnx.save(m, tmp_path / "m.onnx")
    out = tmp_path / "compiled.onnx"
    config = {"ep__context_enable": "1", "ep__context_embed_mode": embed, "ep__context_file_path": str(out)}
    maker = "host" if embed == "0" else "sim:gfx1100"  # whose own program is one of the three
    session(m, devices, {"context_targets": "host,gfx942,gfx1100", "device": maker}, **config)
    compiled = onnx.load(out)
    assert [n.op_type for n in compiled.graph.node] == ["EPContext"]
    attributes = {a.name: a for a in compiled.graph.node[0].attribute}
    assert attributes["source"].s.decode() == NAME
    assert attributes["hardware_architecture"].s.decode().split(",")[1:] == ["gfx942", "gfx1100"]

    def load(path, options):
        so = ort.SessionOptions()
        so.log_severity_level = 4
        so.add_provider_for_devices(devices[:1], options)
        return ort.InferenceSession(str(path), so, enable_fallback=0)

    for device in ("host", "sim:gfx1100"):
        y = load(out, {"device": device}).run(None, {"x": rows(3)})[0]
        np.testing.assert_allclose(y, np.maximum(rows(3) @ w, 0), rtol=1e-5, atol=1e-5)
    with pytest.raises(Exception, match=r"compiled for .*gfx942, gfx1100, and the session's device is sim:gfx1201"):
        load(out, {"device": "sim:gfx1201"})

    def damaged(content):  # in the first program, the host's
        at = content.index(b"SDXPROG") + 300
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    if embed == "1":
        attributes["ep_cache_context"].s = damaged(attributes["ep_cache_context"].s)
        onnx.save(compiled, out)
    else:
        file = tmp_path / attributes["ep_cache_context"].s.decode()
        file.write_bytes(damaged(file.read_bytes()))
    with pytest.raises(Exception, match=r"damaged|checksum|version"):
        load(out, {"device": "host"})


def test_a_stale_program_is_refused_or_compiled_again(devices, tmp_path):
    w, m = dense()
    onnx.save(m, tmp_path / "m.onnx")
    out = tmp_path / "compiled.onnx"

    def make(path, options=None, fallback=False, **config):
        so = ort.SessionOptions()
        so.log_severity_level = 4
        if not fallback:
            so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        for key, value in config.items():
            so.add_session_config_entry(key.replace("__", "."), value)
        so.add_provider_for_devices(devices[:1], options or {})
        return ort.InferenceSession(str(path), so, enable_fallback=0)

    make(tmp_path / "m.onnx", {"context_targets": "gfx942"}, ep__context_enable="1", ep__context_file_path=str(out))
    attributes = {a.name: a for a in onnx.load(out).graph.node[0].attribute}
    assert attributes["onnx_model_filename"].s == b"m.onnx"
    with pytest.raises(Exception, match=r"compiled for gfx942, and the session's device is host.*context_rebuild"):
        make(out)
    want = np.maximum(rows(3) @ w, 0)
    for option in ("1", str(tmp_path / "m.onnx")):
        y = make(out, {"context_rebuild": option}).run(None, {"x": rows(3)})[0]
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    # What is compiled again must be what it was: another file, another name, a value that it does not have.
    onnx.save(dense(1)[1], tmp_path / "m.onnx")
    with pytest.raises(Exception, match="was changed since"):
        make(out, {"context_rebuild": "1"})
    (tmp_path / "m.onnx").unlink()
    with pytest.raises(Exception, match=r"m\.onnx"):
        make(out, {"context_rebuild": "1"})
    other = model(
        [helper.make_node("Neg", ["x"], ["z"])],
        [("x", TensorProto.FLOAT, ["n", 8])],
        [("z", TensorProto.FLOAT, ["n", 8])],
    )
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(Exception, match="has no value 'y'"):
        make(out, {"context_rebuild": str(tmp_path / "other.onnx")})
    compiled = onnx.load(out)
    for a in compiled.graph.node[0].attribute:
        if a.name == "onnx_model_filename":
            a.s = b"../m.onnx"
    onnx.save(compiled, out)
    with pytest.raises(Exception, match="not in its folder"):
        make(out, {"context_rebuild": "1"})


def test_compatibility_of_compiled_models_is_known_without_loading_them(devices, tmp_path):
    state = ort.capi.onnxruntime_pybind11_state
    if not hasattr(state, "get_model_compatibility_for_ep_devices"):
        pytest.skip("this ONNX Runtime's Python package has no get_model_compatibility_for_ep_devices")
    kind = state.OrtCompiledModelCompatibility
    for targets, expected in (("host,gfx942", kind.EP_SUPPORTED_OPTIMAL), ("gfx942", kind.EP_UNSUPPORTED)):
        out = tmp_path / f"{targets}.onnx"
        config = {"ep__context_enable": "1", "ep__context_file_path": str(out), "ep__context_embed_mode": "1"}
        session(dense()[1], devices, {"context_targets": targets}, **config)
        info = {p.key: p.value for p in onnx.load(out).metadata_props}[f"ep_compatibility_info.{NAME}"]
        assert info.startswith("sardonyx;") and "gfx942" in info
        assert state.get_model_compatibility_for_ep_devices(devices[:1], info) == expected
        stale = info.replace(";0.", ";9.", 1)
        assert state.get_model_compatibility_for_ep_devices(devices[:1], stale) == kind.EP_UNSUPPORTED
    assert state.get_model_compatibility_for_ep_devices(devices[:1], "another's") == kind.EP_NOT_APPLICABLE


def test_a_program_outside_of_the_models_folder_is_refused(devices, tmp_path):
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0, source=NAME,
                            ep_cache_context="../../etc/passwd")  # fmt: skip
    m = model([node], [("x", TensorProto.FLOAT, ["n", 8])], [("y", TensorProto.FLOAT, ["n", 4])])
    m.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(Exception, match=r"not in the model's folder"):
        session(m, devices)


def test_exhaustive_tune_keeps_what_it_measures(devices, tmp_path):
    w = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    m = model(nodes, [("x", TensorProto.FLOAT, ["n", 64])], [("y", TensorProto.FLOAT, ["n", 32])], [("w", w)])
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    on = {"device": "sim:gfx942", "exhaustive_tune": "1", "cache_dir": str(tmp_path), "precision": "fp16"}
    y = session(m, devices, on).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, x @ w, rtol=2e-2, atol=5e-2)  # sums of 64 products of operands rounded to 11 bits
    with sqlite3.connect(tmp_path / "tuning.sqlite") as db:
        assert db.execute("SELECT count(*) FROM times WHERE m = 8 AND n = 32 AND k = 64").fetchone()[0] >= 2
    # The host chooses its kernels itself.
    assert session(m, devices, {**on, "device": "host"}).run(None, {"x": x})[0].shape == (8, 32)


def test_batches_are_warmed_up_and_groups_dumped(devices, tmp_path):
    s = session(dense()[1], devices, {"compile_batches": "2,5", "max_dynamic_batch": "7", "dump_dir": str(tmp_path)})
    (dump,) = tmp_path.glob("*.txt")
    text = dump.read_text()
    assert "input x float32 [n, 8]" in text and "MatMul" in text
    assert s.run(None, {"x": rows(5)})[0].shape == (5, 4)


def test_a_profile_that_perfetto_opens(devices, tmp_path):
    path = tmp_path / "profile.json"
    s = session(dense()[1], devices, {"profile": str(path)})
    s.run(None, {"x": rows(3)})
    del s
    gc.collect()
    events = json.loads(path.read_text())["traceEvents"]
    assert events and all(e["ph"] == "X" and e["args"]["provider"] == NAME for e in events)


@pytest.mark.skipif(VERSION < (1, 25), reason="ONNX Runtime before 1.25 takes no events of providers")
def test_kernels_are_in_onnx_runtimes_profile(devices, tmp_path):
    so = ort.SessionOptions()
    so.enable_profiling = True
    so.profile_file_prefix = str(tmp_path / "p")
    so.add_provider_for_devices(devices[:1], {})
    s = ort.InferenceSession(dense()[1].SerializeToString(), so, enable_fallback=0)
    s.run(None, {"x": rows(3)})
    events = json.loads(Path(s.end_profiling()).read_text())
    ours = [e for e in events if e.get("args", {}).get("provider") == NAME and e["cat"] == "Kernel"]
    assert ours and all(e["dur"] >= 0 and e["ts"] >= 0 for e in ours)


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


def run_python(code, **environment):
    env = {k: v for k, v in os.environ.items() if k != "SARDONYX_DEVICE"} | environment
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


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
    assert s.get_providers()[0] == "AMDGPUExecutionProvider", s.get_providers()
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
