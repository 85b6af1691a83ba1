"""examples/onnxruntime: programs written for AMD's MIGraphX and ROCm providers, in C++ and Python, in which only the line that adds
the provider (the import) differs, give correct results."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ort = pytest.importorskip("onnxruntime")
ep = pytest.importorskip("onnxruntime_ep_sardonyx")

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "onnxruntime"
LIBRARY = next((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"), None)
HEADERS = Path(sys.prefix) / "include" / "onnxruntime"


def network(path):
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((6, 3, 3, 3)).astype(np.float32), rng.standard_normal((6, 10)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    sums = lambda f, n: session.run(None, {"x": f(np.arange(n * 192, dtype=np.float32)).reshape(n, 3, 8, 8)})[0].sum()
    return {n: sums(np.sin, n) for n in (1, 2, 5)}, sums(np.cos, 3)


def run(command, device):
    environment = os.environ | {"SARDONYX_DEVICE": device, "AMDGPU_EP_PATH": ep.get_library_path()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sums_of(text):
    return [float(line.rsplit("sum ", 1)[1]) for line in text.splitlines() if "sum " in line]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    if LIBRARY is None or not HEADERS.is_dir() or not shutil.which("cmake"):
        pytest.skip("needs cmake, ONNX Runtime's headers, and a package of it that has libonnxruntime.so")
    folder = tmp_path_factory.mktemp("examples")
    library = folder / "libonnxruntime.so"
    library.symlink_to(LIBRARY)
    (folder / "libonnxruntime.so.1").symlink_to(LIBRARY)  # the name by which the linker says it is looked for
    settings = [f"-DONNXRUNTIME_INCLUDE={HEADERS}", f"-DONNXRUNTIME_LIBRARY={library}"]
    for command in (
        ["cmake", "-S", EXAMPLES, "-B", folder / "build", *settings],
        ["cmake", "--build", folder / "build"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build"


# The sum of all results, in 16 bits on the simulated GPU: each of the terms is rounded to 2^-11 of it.
@pytest.mark.parametrize(("device", "tolerance"), [("host", 1e-3), ("sim:gfx1100", 2e-2)])
def test_programs_in_cpp(built, tmp_path, device, tolerance):
    batches, bound = network(tmp_path / "m.onnx")
    out = run([built / "migraphx", tmp_path / "m.onnx"], device)
    np.testing.assert_allclose(sums_of(out), list(batches.values()), rtol=tolerance, atol=tolerance)
    out = run([built / "rocm", tmp_path / "m.onnx"], device)
    np.testing.assert_allclose(sums_of(out), [bound], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("device", "tolerance"), [("host", 1e-3), ("sim:gfx1100", 2e-2)])
def test_programs_in_python(tmp_path, device, tolerance):
    batches, bound = network(tmp_path / "m.onnx")
    out = run([sys.executable, EXAMPLES / "migraphx.py", tmp_path / "m.onnx"], device)
    assert "MIGraphXExecutionProvider" in out
    np.testing.assert_allclose(sums_of(out), list(batches.values()), rtol=tolerance, atol=tolerance)
    out = run([sys.executable, EXAMPLES / "rocm.py", tmp_path / "m.onnx"], device)
    assert "ROCMExecutionProvider output on the device: True" in out
    np.testing.assert_allclose(sums_of(out), [bound], rtol=1e-3, atol=1e-3)
