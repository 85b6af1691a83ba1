"""How many kernels well-known models become: a rewrite or fusion that no longer applies shows here first.

The models are skeletons whose weights are filled in; they do not ship here (see CONTRIBUTING.md, SARDONYX_MODELS).
"""

import importlib.util
import json
from pathlib import Path

import pytest
from cli_support import BUILD, sardonyx

SPEC = importlib.util.spec_from_file_location("models", Path(__file__).parents[2] / "benchmarks" / "models.py")
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)


@pytest.mark.parametrize(
    ("name", "most"), [("resnet50", 58), ("resnet50_dynamo", 58), ("bert_base", 100), ("yolov5s", 90)]
)
def test_kernels_per_run(name, most):
    folder = models.folder()
    if folder is None:
        pytest.skip("SARDONYX_MODELS is not set: there are no models to load")
    path = models.fill(folder, BUILD / "models" / f"{name}.onnx")
    assert path.exists(), f"{folder} has no skeletons/{name}.onnx"
    report = json.loads(sardonyx("inspect", path, "--json", "-"))
    assert 0 < report["kernels_per_run"] <= most
    assert report["kernels_per_run"] == sum(report["program"]["launches"].values())
