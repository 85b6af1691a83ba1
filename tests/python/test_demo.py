"""The demo reads the text that it draws, and gives the same result with another engine."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_support import BUILD

OCR = Path(__file__).parents[2] / "examples" / "ocr"
sys.path.insert(0, str(OCR))
import demo  # noqa: E402
import reader  # noqa: E402

ENVIRONMENT = os.environ | {"PYTHONPATH": str(BUILD / "python")}


def run_demo(*arguments):
    return subprocess.run(
        [sys.executable, str(OCR / "demo.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=600,
    )


@pytest.fixture(scope="module")
def models():
    if importlib.util.find_spec("rapidocr") is None:
        pytest.skip("the package rapidocr, which carries the models, is not installed")
    return demo.find_models(None)


def test_reads_every_drawn_word(models, tmp_path):
    done = run_demo("--save", tmp_path / "read.png")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "drawn words were found" in done.stdout and "FAILED" not in done.stdout
    for wanted in ("device: host", "compilation", "recognition: run", "Invoice 2048, total 1536.75"):
        assert wanted in done.stdout
    assert (tmp_path / "read.png").stat().st_size > 0


def test_same_boxes_and_text_as_onnxruntime(models):
    import onnxruntime
    import sardonyx

    def theirs(path):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda x: session.run(None, {session.get_inputs()[0].name: x})[0]

    detector, recogniser = (sardonyx.compile(m) for m in models)
    characters = recogniser.metadata["character"].split("\n")
    ours = reader.Reader(demo.as_function(detector), demo.as_function(recogniser), characters)
    other = reader.Reader(theirs(models[0]), theirs(models[1]), characters)
    image = demo.draw()
    a, b = ours.read(image), other.read(image)
    assert [line.text for line in a] == [line.text for line in b]
    for x, y in zip(a, b, strict=True):
        # Probabilities differ in their last digits, which may move a pixel across the threshold.
        np.testing.assert_allclose(x.box.corners(), y.box.corners(), atol=2)
        assert abs(x.confidence - y.confidence) < 1e-3


def test_missing_models_are_named(tmp_path):
    done = run_demo("--models", tmp_path)
    assert done.returncode == 1 and "*_det_*.onnx" in done.stderr and "Traceback" not in done.stderr
    done = run_demo("--image", tmp_path / "no.png")
    assert done.returncode == 1 and "no.png" in done.stderr and "Traceback" not in done.stderr


def test_regions_and_rectangles():
    mask = np.zeros((8, 10), bool)
    mask[1, 1:4] = mask[2, 4] = True  # joined by a corner
    mask[5:7, 6:9] = True
    found = sorted(reader.regions(mask))
    assert found == [[(1, 1, 4), (2, 4, 5)], [(5, 6, 9), (6, 6, 9)]]

    angle = np.radians(-20)
    along, down = 30 * np.array([np.cos(angle), np.sin(angle)]), 6 * np.array([-np.sin(angle), np.cos(angle)])
    corners = np.array([50, 40]) + np.array([along + down, along - down, -along + down, -along - down, [0, 0]])
    box = reader.smallest_rectangle(corners)
    np.testing.assert_allclose(box.centre, [50, 40], atol=1e-9)
    np.testing.assert_allclose(box.along, along, atol=1e-9)
    np.testing.assert_allclose(box.down, down, atol=1e-9)


def test_decoding_drops_repetitions_and_blanks():
    classes = [0, 1, 1, 0, 1, 2, 2, 0, 3]  # blank a a blank a b b blank space
    probabilities = np.full((len(classes), 4), 0.05)
    probabilities[np.arange(len(classes)), classes] = 0.85
    text, confidence = reader.Reader(None, None, ["a", "b"]).decode(probabilities)
    assert text == "aab" and confidence == pytest.approx(0.85)
