"""Programs written for AMD's MIGraphX and ROCm providers, unchanged: environment variables, scripts run by
`python -m sardonyx.onnxruntime`, and `sardonyx onnxruntime enable`."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import sardonyx
from ep_sessions import dense, rows, run_python
from sardonyx._sardonyx import ignored_provider_options, provider_options, provider_variables

ROOT = Path(__file__).resolve().parents[2]

# With the plugin under its own name: nothing of the drop-in is imported.
PLAIN = """
import sys
import numpy as np, onnxruntime as ort, onnxruntime_ep_sardonyx as ep
def session(level=1, **options):
    so = ort.SessionOptions()
    so.log_severity_level = level
    so.add_provider_for_devices(ep.register()[:1], {k: str(v) for k, v in options.items()})
    return ort.InferenceSession(sys.argv[1] if len(sys.argv) > 1 else MODEL, so, enable_fallback=0)
"""


@pytest.fixture
def model(tmp_path):
    onnx.save(dense()[1], tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def plain(model, code, **environment):
    return run_python(f"MODEL = {str(model)!r}\n{PLAIN}\n{code}", SARDONYX_DEVICE="host", **environment)


def failing(model, code, **environment):
    with pytest.raises(AssertionError) as e:
        plain(model, code, **environment)
    return str(e.value)


def test_the_plugin_reads_the_variables_and_options_win(model, tmp_path):
    cache = tmp_path / "cache"
    plain(model, "session()", ORT_MIGRAPHX_MODEL_CACHE_PATH=f'"{cache}"')  # quotes, as in files for `docker --env-file`
    assert cache.is_dir()
    other = tmp_path / "other"
    log = plain(model, f"session(cache_dir={str(other)!r})", ORT_MIGRAPHX_MODEL_CACHE_PATH=str(tmp_path / "unused"))
    assert other.is_dir() and not (tmp_path / "unused").exists()
    assert "ORT_MIGRAPHX_MODEL_CACHE_PATH has no effect: option cache_dir is given" in log
    # With int8 and no table nothing is quantised, and the session says so.
    assert "calibration" in failing(model, "session()", ORT_MIGRAPHX_INT8_ENABLE="1")
    plain(model, "session(int8=0)", ORT_MIGRAPHX_INT8_ENABLE="1")
    assert "environment variable ORT_MIGRAPHX_FP16_ENABLE: 'perhaps'" in failing(
        model, "session()", ORT_MIGRAPHX_FP16_ENABLE="perhaps"
    )
    assert "both fp16 and bf16" in failing(
        model, "session()", ORT_MIGRAPHX_FP16_ENABLE="1", ORT_MIGRAPHX_BF16_ENABLE="1"
    )
    plain(model, "session(fp16=1)", ORT_MIGRAPHX_BF16_ENABLE="1")


def test_unknown_variables_are_named_with_the_nearest_known_one(model):
    log = plain(model, "session(level=2)", ORT_MIGRAPHX_FP16_ENABEL="1", MIGRAPHX_DISABLE_MLIRR="1")
    assert "ORT_MIGRAPHX_FP16_ENABEL is unknown and has no effect; did you mean ORT_MIGRAPHX_FP16_ENABLE?" in log
    assert "did you mean MIGRAPHX_DISABLE_MLIR?" in log
    assert "MIGRAPHX_ENABLE_NHWC is accepted, and not needed" in plain(model, "session()", MIGRAPHX_ENABLE_NHWC="1")


def test_calibration_tables_are_looked_for_where_the_variable_says(model, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "t.txt").write_text("TRT-8501-EntropyCalibration2\nx: 3c010a14\na: 3c010a14\n")
    log = plain(
        model,
        "session(int8=1, migraphx_int8_calibration_table_name='t.txt')",
        ORT_MIGRAPHX_CACHE_PATH=str(tmp_path / "tables"),
    )
    assert "run in int8" in log


def test_models_are_dumped_as_onnx(model, tmp_path):
    plain(model, f"session(dump_dir={str(tmp_path / 'dump')!r})")
    (path,) = (tmp_path / "dump").glob("*.onnx")
    x = rows(3)
    (expected,) = sardonyx.compile(model).run({"x": x}).values()
    (found,) = sardonyx.compile(path).run({"x": x}).values()
    np.testing.assert_array_equal(found, expected)


SAVED = """
import time
x = np.ones((3, 8), np.float32)
y = session(**OPTIONS).run(None, {"x": x})[0]
np.save(OUT, y)
"""


def saved(model, out, environment=None, **options):
    code = f"OPTIONS = {options!r}\nOUT = {str(out)!r}\n{SAVED}"
    return plain(model, code, **(environment or {}))


def test_compiled_models_are_saved_and_loaded_at_the_path_given(model, tmp_path):
    file, out = tmp_path / "compiled.mxr", tmp_path / "y.npy"
    save = {"ORT_MIGRAPHX_SAVE_COMPILED_MODEL": "1", "ORT_MIGRAPHX_SAVE_COMPILE_PATH": str(file)}
    load = {"ORT_MIGRAPHX_LOAD_COMPILED_MODEL": "1", "ORT_MIGRAPHX_LOAD_COMPILED_PATH": str(file)}
    assert f"saved a compiled group to {file}" in saved(model, out, save)
    first = np.load(out)
    assert f"loaded a compiled group from {file}" in saved(model, out, load)
    np.testing.assert_array_equal(np.load(out), first)
    options = {"migraphx_load_compiled_model": 1, "migraphx_load_model_name": str(file)}
    assert "loaded" in saved(model, out, **options)
    assert "loaded" in saved(model, out, migx_load_compiled_model=1, migx_load_model_name=str(file))
    # Other options, another model, damage, a missing file.
    code = "session(load_compiled_model=1, load_compiled_path={!r}, **{!r})"
    assert "with other options" in failing(model, code.format(str(file), {"fuse": 0}))
    onnx.save(dense(seed=1)[1], tmp_path / "other.onnx")
    assert "saved from another model" in failing(tmp_path / "other.onnx", code.format(str(file), {}))
    bytes_ = file.read_bytes()
    for damaged in (b"MIGX" * 100, bytes_[:300], bytes_[:-20], b""):
        file.write_bytes(damaged)
        failing(model, code.format(str(file), {}))
    file.unlink()
    assert f"there is no {file}" in failing(model, code.format(str(file), {}))
    # Both at once: compiled and saved the first time.
    assert "saved" in saved(model, out, save | load)
    assert "loaded" in saved(model, out, save | load)
    # A directory.
    (tmp_path / "folder").mkdir()
    saved(model, out, save_compiled_model=1, save_compiled_path=str(tmp_path / "folder"))
    assert len(list((tmp_path / "folder").iterdir())) == 1
    assert "cannot write" in failing(model, "session(save_compiled_model=1, save_compiled_path='/proc/none/x')")


def test_two_devices(model):
    code = "print(len(ep.register()), [d.ep_metadata['device_id'] for d in ep.register()])\nsession(device_id=1)"
    assert "2 ['0', '1']" in run_python(f"MODEL = {str(model)!r}\n{PLAIN}\n{code}", SARDONYX_DEVICE="host,host")


SCRIPT = """
import sys
import warnings
import numpy as np
import onnxruntime
from onnxruntime import InferenceSession, SessionOptions, get_available_providers

assert "MIGraphXExecutionProvider" in get_available_providers() and "ROCMExecutionProvider" in get_available_providers()
assert onnxruntime.get_device() == "GPU"
name = sys.argv[2]
x = np.ones((3, 8), np.float32)
s = InferenceSession(sys.argv[1], providers=[(name, {"device_id": "0"}), "CPUExecutionProvider"])
assert s.get_providers() == [name, "CPUExecutionProvider"], s.get_providers()
assert sorted(s.get_provider_options()) == sorted([name, "CPUExecutionProvider"]), s.get_provider_options()
y = s.run(None, {"x": x})[0]
s.set_providers(["CPUExecutionProvider"])
assert s.get_providers() == ["CPUExecutionProvider"]
s.set_providers([name], [{"device_id": 0}])
assert s.get_providers() == [name, "CPUExecutionProvider"]
assert np.array_equal(s.run(None, {"x": x})[0], y)
so = SessionOptions()
so.add_provider(name, {"device_id": "0"})
assert InferenceSession(sys.argv[1], so).get_providers()[0] == name
for wrong in ([3], [(name, 3)], [(name, {}, 1)], name, [(name, {"device_id": None})], [{"name": name}]):
    try:
        InferenceSession(sys.argv[1], providers=wrong)
    except ValueError as e:
        assert "providers" in str(e) or "device_id" in str(e), e
    else:
        raise SystemExit(f"{wrong} was taken")
for misspelt in ("MIGraphX", "migraphx_execution_provider", "RocmExecutionProvider"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        InferenceSession(sys.argv[1], providers=[misspelt, "CPUExecutionProvider"])
    assert any("did you mean" in str(w.message) for w in caught), misspelt
print("fine", __name__, sys.argv)
"""


def run(command, environment):
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("name", ["MIGraphXExecutionProvider", "ROCMExecutionProvider"])
def test_scripts_run_unchanged(model, script, name, host_environment):
    command = [sys.executable, "-m", "sardonyx.onnxruntime"]
    done = run([*command, str(script), str(model), name], host_environment)
    assert done.returncode == 0 and "fine __main__" in done.stdout, done.stderr
    done = run(
        [*command, "-m", "script", str(model), name],
        host_environment | {"PYTHONPATH": f"{script.parent}:{host_environment['PYTHONPATH']}"},
    )
    assert done.returncode == 0 and "fine __main__" in done.stdout, done.stderr
    done = run([*command, "absent.py"], host_environment)
    assert done.returncode == 2 and "there is no absent.py" in done.stderr


# The Python samples of ONNX Runtime's pages about the two providers. `torch` and onnxruntime.training's allocator stand in for AMD's
# builds, which need a card: what the samples ask them for is the stream and the memory of the device here.
SAMPLES = """
import ctypes, os, sys, types
import numpy as np
import onnxruntime as ort

torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(current_device=lambda: 0, current_stream=lambda: types.SimpleNamespace(cuda_stream=STREAM))
STREAM = 0
if os.environ["SARDONYX_DEVICE"] != "host":
    hip = ctypes.CDLL("libamdhip64.so")
    stream = ctypes.c_void_p()
    assert hip.hipStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
    STREAM = stream.value
libc = hip if STREAM else ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
asked = []

@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
def allocate(n):
    asked.append(n)
    p = ctypes.c_void_p()
    if STREAM:
        assert hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(n)) == 0
        return p.value
    return libc.malloc(ctypes.c_size_t(n + 256)) + 255 & ~255  # never freed

release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda p: hip.hipFree(ctypes.c_void_p(p)) if STREAM else None)
nothing = ctypes.CFUNCTYPE(None)(lambda: None)
address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
allocator = types.SimpleNamespace(
    gpu_caching_allocator_raw_alloc_address=lambda: address(allocate),
    gpu_caching_allocator_raw_delete_address=lambda: address(release),
    gpu_caching_allocator_empty_cache_address=lambda: address(nothing),
)
parents = ["onnxruntime.training", "onnxruntime.training.ortmodule", "onnxruntime.training.ortmodule.torch_cpp_extensions"]
for name in parents:
    sys.modules[name] = types.ModuleType(name)
sys.modules[parents[-1]].torch_gpu_allocator = allocator

model_path = "my_model.onnx"
x = np.ones((3, 8), np.float32)
found = []

# Samples, both pages.
for name in ("MIGraphXExecutionProvider", "ROCMExecutionProvider"):
    providers = [name, "CPUExecutionProvider"]
    session = ort.InferenceSession(model_path, providers=providers)
    assert session.get_providers() == providers
    found.append(session.run(None, {"x": x})[0])

# user_compute_stream
stream = str(torch.cuda.current_stream().cuda_stream)
options = {"device_id": torch.cuda.current_device(), "user_compute_stream": stream}
session = ort.InferenceSession(model_path, sess_options=ort.SessionOptions(), providers=[("ROCMExecutionProvider", options)])
found.append(session.run(None, {"x": x})[0])

# gpu_external_alloc, gpu_external_free, gpu_external_empty_cache
from onnxruntime.training.ortmodule.torch_cpp_extensions import torch_gpu_allocator as a

options = {
    "gpu_external_alloc": str(a.gpu_caching_allocator_raw_alloc_address()),
    "gpu_external_free": str(a.gpu_caching_allocator_raw_delete_address()),
    "gpu_external_empty_cache": str(a.gpu_caching_allocator_empty_cache_address()),
}
session = ort.InferenceSession(model_path, providers=[("ROCMExecutionProvider", options)])
found.append(session.run(None, {"x": x})[0])
assert asked
del session
assert all(np.array_equal(y, found[0]) for y in found)
np.save("y.npy", found[0])
"""


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_samples_of_the_pages(tmp_path, host_environment, device):
    w, m = dense()
    w = w * np.float32(1.001)  # not exact in 16 bits
    m.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(w, "w"))
    onnx.save(m, tmp_path / "my_model.onnx")
    (tmp_path / "example_script.py").write_text(SAMPLES)
    environment = host_environment | {"SARDONYX_DEVICE": device, "LD_LIBRARY_PATH": str(ROOT / "build" / "lib" / "sim")}
    # Variables before a command, and exported.
    command = f"{sys.executable} -m sardonyx.onnxruntime example_script.py"
    errors = []
    for shell in (command, f"export ORT_MIGRAPHX_FP16_ENABLE=1; {command}", f"ORT_MIGRAPHX_FP16_ENABLE=1 {command}"):
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        errors.append(np.abs(np.load(tmp_path / "y.npy") - np.maximum(w.sum(0), 0)).max())
    assert errors[0] < 1e-5 and errors[1] == errors[2] > 1e-4


@pytest.fixture
def host_environment():
    import os

    return os.environ | {"SARDONYX_DEVICE": "host", "PYTHONPATH": str(Path(sardonyx.__file__).parents[1])}


def test_enable_and_disable(model, script, tmp_path, host_environment):
    site = tmp_path / "site"
    site.mkdir()
    cli = [str(ROOT / "build" / "bin" / "sardonyx"), "onnxruntime", "--python", sys.executable]
    plain_script = [
        sys.executable,
        "-c",
        f"import site, sys; site.addsitedir({str(site)!r}); sys.argv = {['x', str(model), 'ROCMExecutionProvider']!r}; "
        f"exec(open({str(script)!r}).read())",
    ]
    assert run(plain_script, host_environment).returncode != 0  # without it
    assert "not enabled" in run([*cli, "status", "--site", str(site)], host_environment).stdout
    assert run([*cli, "enable", "--site", str(site)], host_environment).returncode == 0
    assert "enabled in" in run([*cli, "status", "--site", str(site)], host_environment).stdout
    done = run(plain_script, host_environment)
    assert done.returncode == 0 and "fine" in done.stdout, done.stderr
    # Where the package can't be imported, onnxruntime still can, and the reason is printed.
    broken = (
        (site / "_sardonyx_onnxruntime.py").read_text().replace("import sardonyx.onnxruntime", "import sardonyx.absent")
    )
    (site / "_sardonyx_onnxruntime.py").write_text(broken)
    done = run(
        [sys.executable, "-c", f"import site; site.addsitedir({str(site)!r}); import onnxruntime; print('ok')"],
        host_environment,
    )
    assert "ok" in done.stdout and "onnxruntime stays as it is" in done.stderr
    assert run(plain_script, host_environment | {"SARDONYX_ONNXRUNTIME": "0"}).returncode != 0
    assert "disabled in" in run([*cli, "disable", "--site", str(site)], host_environment).stdout
    assert not list(site.iterdir())
    assert run([*cli, "enable", "--site", str(tmp_path / "absent")], host_environment).returncode == 4


def test_every_option_and_variable_says_what_it_does():
    """What docs/options.md is made of has no silent rows."""
    names = {o["name"] for o in provider_options()} | {"precision", "calibration_table", "cache_dir", "threads", "fuse"}
    names |= {"hip_graph_enable"}
    for variable, option, why, _ in provider_variables():
        assert (option in names) != bool(why), variable
    assert all(why for _, _, why in ignored_provider_options())
    assert all(o["help"] for o in provider_options())
