"""Models compiled ahead of time by the provider (EPContext), and the files that its options write."""

import gc
import json
import sqlite3
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep
import pytest
from ep_sessions import NAME, VERSION, dense, model, rows, session
from onnx import TensorProto, helper


@pytest.fixture(scope="module")
def devices():
    return ep.register()


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
    # What is recompiled must be what it was: another file, another name, a value that it does not have.
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
    with sqlite3.connect(tmp_path / "tuning-2.sqlite") as db:
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
