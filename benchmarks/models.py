"""The models that tests and benchmarks use: where they are, sizes for their symbolic dims, inputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

# Sizes for the symbolic dims of each model: the first is what benchmarks run, all three are what tests run.
SIZES: dict[str, list[dict[str, int]]] = {
    "bert_base": [{"batch": 1, "sequence": 128}, {"batch": 2, "sequence": 17}, {"batch": 3, "sequence": 1}],
    "deeplabv3_resnet50": [{"batch": 1}, {"batch": 2}, {"batch": 3}],
    "llama_4l_dynamo": [{"batch": 1, "sequence": 64}, {"batch": 2, "sequence": 9}, {"batch": 3, "sequence": 33}],
    "mobilenet_v3_large": [{"batch": 1}, {"batch": 2}, {"batch": 5}],
    "resnet50": [{"batch": 1}, {"batch": 2}, {"batch": 3}],
    "resnet50_dynamo": [{"batch": 1}, {"batch": 2}, {"batch": 3}],
    "vit_b_16_dynamo": [{"batch": 1}, {"batch": 2}, {"batch": 3}],
    "whisper_tiny_encoder": [{"batch": 1}, {"batch": 2}, {"batch": 3}],
    "yolov5s": [{"batch": 1}, {"batch": 2}, {"batch": 3}],
    "basic_pitch": [{"unk__749": 1}, {"unk__749": 2}, {"unk__749": 3}],
    "embedding_model": [{"unk__314": 1}, {"unk__314": 4}, {"unk__314": 7}],
    "en_PP-OCRv3_det_infer": [
        {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 320, "p2o.DynamicDimension.2": 480},
        {"p2o.DynamicDimension.0": 2, "p2o.DynamicDimension.1": 96, "p2o.DynamicDimension.2": 64},
        {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 224, "p2o.DynamicDimension.2": 160},
    ],
    "en_PP-OCRv4_rec": [
        {"p2o.DynamicDimension.0": 1, "p2o.DynamicDimension.1": 320},
        {"p2o.DynamicDimension.0": 3, "p2o.DynamicDimension.1": 96},
        {"p2o.DynamicDimension.0": 2, "p2o.DynamicDimension.1": 200},
    ],
    "magika_v3_3": [{"unk__214": 1}, {"unk__214": 2}, {"unk__214": 5}],
    "melspectrogram": [
        {"batch_size": 1, "samples": 16000},
        {"batch_size": 2, "samples": 1760},
        {"batch_size": 1, "samples": 12800},
    ],
    # Its input dims have no names: see UNNAMED.
    "silero_vad_v5": [{"input.0": 1, "input.1": 576}, {"input.0": 2, "input.1": 576}, {"input.0": 3, "input.1": 288}],
}
# Sizes of dims that have neither a size nor a name in the file.
UNNAMED = {
    "silero_vad_v5": {"input": ["input.0", "input.1"], "state": [2, "input.0", 128]},
}
# Inputs that are images instead of noise (a detector finds nothing in noise, and peaks of an image do not depend on rounding): the values
# of dark and light.
PICTURES = {
    "en_PP-OCRv3_det_infer": (-1.5, 1.5),
    "en_PP-OCRv4_rec": (-1, 1),
    "face_detection_front_128x128_barracuda": (-1, 1),
    "mlsd_320x320_tiny": (0, 255),
    "SqueezeNet_fp16": (-2, 2),
}
# Ranges of integer inputs, if not 0 to 99.
RANGES = {"attention_mask": (0, 2), "token_type_ids": (0, 2), "bytes": (0, 257)}
VALUES = {("silero_vad_v5", "sr"): {576: 16000, 288: 8000}}

DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 10: np.float16, 11: np.float64, 9: np.bool_}


def folder() -> Path | None:
    """The directory in SARDONYX_MODELS, or models/ beside the checkout; None if there is none."""
    root = Path(__file__).resolve().parent.parent
    named = os.environ.get("SARDONYX_MODELS")
    for path in [Path(named)] if named else [root / "models", root.parent / "shared" / "models"]:
        if (path / "real").is_dir():
            return path
    return None


def find(models: Path, filled: Path) -> dict[str, Path]:
    """Every model by name; skeletons as files in `filled`, which fill() creates when they are used."""
    found = {p.stem: p for p in sorted((models / "real").glob("*.onnx"))}
    found |= {p.stem: filled / p.name for p in sorted((models / "skeletons").glob("*.onnx"))}
    return found


def fill(models: Path, path: Path) -> Path:
    """Creates the file of a skeleton with seeded random weights, unless it exists."""
    skeleton = models / "skeletons" / path.name
    if not path.exists() and skeleton.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{os.getpid()}-{path.name}")
        subprocess.run(
            [sys.executable, models / "materialize.py", skeleton, part], check=True, stdout=subprocess.DEVNULL
        )
        part.rename(path)
    return path


def picture(shape: tuple[int, ...], low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """Dark strokes on a light background with a little noise; channels are first unless the last dim is at most 4."""
    last = shape[-1] <= 4
    n, h, w = (shape[0], shape[1], shape[2]) if last else (shape[0], shape[2], shape[3])
    image = np.full((n, h, w), 0.9) + rng.uniform(-0.02, 0.02, (n, h, w))
    for k in range(n):
        for _ in range(max(4, h * w // 500)):
            y, x = rng.integers(0, h), rng.integers(0, w)
            tall = rng.random() < 0.6
            image[k, y : y + (12 if tall else 2), x : x + (2 if tall else 9)] = 0.1
    channels = shape[-1] if last else shape[1]
    image = np.stack([image] * channels, axis=-1 if last else 1)
    return image * (high - low) + low


def inputs(path: Path, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded inputs of a model for sizes of its symbolic dims (1 for those not named)."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {t.name for t in model.graph.initializer}
    rng = np.random.default_rng(seed)
    feed = {}
    for i in model.graph.input:
        if i.name in weights:
            continue
        t = i.type.tensor_type
        dims = [d.dim_param or d.dim_value for d in t.shape.dim]
        dims = UNNAMED.get(path.stem, {}).get(i.name, dims)
        shape = tuple(sizes.get(d, 1) if isinstance(d, str) else d for d in dims)
        dtype = DTYPES[t.elem_type]
        if (path.stem, i.name) in VALUES:
            feed[i.name] = np.full(shape, VALUES[path.stem, i.name][sizes["input.1"]], dtype)
        elif path.stem in PICTURES:
            feed[i.name] = picture(shape, *PICTURES[path.stem], rng).astype(dtype)
        elif np.issubdtype(dtype, np.floating):
            feed[i.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feed[i.name] = rng.integers(*RANGES.get(i.name, (0, 100)), shape).astype(dtype)
        if i.name == "attention_mask":
            feed[i.name][:, :1] = 1  # a row that attends to nothing has no defined result
    return feed
