"""sardonyx verify: matching and differing results, and --bisect."""

import json
import os
import sys

import numpy as np
import onnx
import pytest
from cli_support import INVALID_ARGUMENT, IO, MISMATCH, UNSUPPORTED, layer, sardonyx, save
from onnx import helper, numpy_helper

PYTHON = ["--python", sys.executable]


@pytest.fixture
def model(tmp_path):
    return layer(tmp_path / "m.onnx")


def test_agrees_with_onnxruntime(model, tmp_path):
    out = tmp_path / "v.json"
    text = sardonyx("verify", model[0], "--dim", "batch=7", *PYTHON, "--json", out)
    assert "ONNX Runtime" in text and text.count(" ok") == 2
    values = json.loads(out.read_text())["values"]
    assert [v["name"] for v in values] == ["y", "total"]
    assert all(v["matches"] and v["relative"] < 1e-6 and v["elements"] > 0 for v in values)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "float64"])
def test_types_reach_onnxruntime_and_come_back(tmp_path, dtype):
    import ml_dtypes

    t = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    path = save(
        tmp_path / "m.onnx",
        [helper.make_node("Transpose", ["x"], ["y"])],
        [("x", t, ["n", 5])],
        [("y", t, [5, "n"])],
    )
    sardonyx("verify", path, "--dim", "n=3", *PYTHON)


def test_bisect_compares_every_value(model):
    text = sardonyx("verify", model[0], "--dim", "batch=7", "--bisect", *PYTHON)
    assert "4 values match ONNX Runtime" in text


def test_reference_folder(model, tmp_path):
    path, w, b = model
    folder = tmp_path / "set"
    folder.mkdir()
    x = np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)
    y = np.maximum(x @ w + b, 0)

    def write(name, array):
        onnx.save_tensor(numpy_helper.from_array(array, "any"), folder / name)

    write("input_0.pb", x)
    write("output_0.pb", y)
    assert "the model has 2" in sardonyx("verify", path, "--reference", folder, code=INVALID_ARGUMENT)
    write("output_1.pb", y.sum(1))
    sardonyx("verify", path, "--reference", folder)
    y[1, 2] += 1
    write("output_0.pb", y)
    line = sardonyx("verify", path, "--reference", folder, code=MISMATCH)
    assert "'y'[1, 2]" in line and "1 of 6 elements differ" in line
    sardonyx("verify", path, "--reference", folder, "--atol", 2)
    write("output_0.pb", y[:1])
    assert "shape [2, 3] instead of [1, 3]" in sardonyx("verify", path, "--reference", folder, code=MISMATCH)
    write("output_0.pb", y.astype(np.float64))
    assert "dtype float32 instead of float64" in sardonyx("verify", path, "--reference", folder, code=MISMATCH)
    assert "no such folder" in sardonyx("verify", path, "--reference", tmp_path / "no", code=IO)


def fake_python(tmp_path, edit):
    """A Python whose onnxruntime gives other values: those that `edit`, a line of Python, makes of the dict `v`."""
    package = tmp_path / "fake" / "onnxruntime"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"""
import sys
sys.path = [p for p in sys.path if p != {str(tmp_path / "fake")!r}]
del sys.modules["onnxruntime"]
import onnxruntime as real
import numpy as np
class Session(real.InferenceSession):
    def run_with_ort_values(self, names, feeds):
        v = dict(zip(names, [o.numpy().copy() for o in super().run_with_ort_values(names, feeds)]))
        {edit}
        return [real.OrtValue.ortvalue_from_numpy(v[n]) for n in names]
real.InferenceSession = Session  # what `import onnxruntime` gives is what sys.modules holds in the end
"""
    )
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "fake"} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def test_bisect_names_the_first_node_that_differs(model, tmp_path):
    python = fake_python(
        tmp_path, "v['sum'][1, 2] += 0.5; v['y'] = np.maximum(v['sum'], 0); v['total'] = v['y'].sum(1)"
    )
    line = sardonyx(
        "verify", model[0], "--dim", "batch=4", "--fill", "x=0", "--bisect", "--python", python, code=MISMATCH
    )
    assert "'bias' (Add)" in line and "'sum'[1, 2]" in line and "1 of 12" in line


def test_difference_of_plain_outputs(model, tmp_path):
    python = fake_python(tmp_path, "v['total'][3] += 0.5")
    run = ["verify", model[0], "--dim", "batch=4", "--python", python]
    assert "'total'[3]" in sardonyx(*run, code=MISMATCH)
    assert "'total'[3]" in sardonyx(*run, "--atol", 0.49, "--rtol", 0, code=MISMATCH)
    sardonyx(*run, "--atol", 0.51, "--rtol", 0)


def test_what_is_missing_is_said(model, tmp_path):
    run = ["verify", model[0], "--dim", "batch=1"]
    assert "no Python '/no/python'" in sardonyx(*run, "--python", "/no/python", code=UNSUPPORTED)
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -I -S "$@"\n')
    bare.chmod(0o755)
    line = sardonyx(*run, "--python", bare, code=UNSUPPORTED)
    assert "pip install" in line and "--reference" in line
    line = sardonyx(*run, "--bisect", "--reference", tmp_path, code=INVALID_ARGUMENT)
    assert "--bisect" in line
