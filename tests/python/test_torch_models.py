"""torch.compile(backend="sardonyx") with small models of torchvision and transformers, with random weights."""

from __future__ import annotations

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install sardonyx[torch])")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install sardonyx[torch])")
pytest.importorskip("torchvision", reason="torchvision is not installed; the models are its own")
pytest.importorskip("transformers", reason="transformers is not installed; the models are its own")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
from torch_models import MODELS, run_model  # noqa: E402


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    with torch.no_grad():
        row = run_model(name)
    assert row["verdict"] == "right", row["notes"]
    assert row["compiled for the last batch"] == 0
