"""TensorFlow models on the host beside TensorFlow's CPU: Keras applications with random weights, and frozen graphs.

    python benchmarks/tensorflow_models.py [--only MobileNet] [--frozen FOLDER] [--json rows.json]

Without --frozen: one application of each family, with images of the smallest useful size and two batches. With it: each
GraphDef (.pb) of the folder, whose inputs get random values; sizes that vary are 3. Needs tensorflow and tf2onnx.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import sardonyx
import tensorflow as tf

#: One of each family, and the size of its images.
APPLICATIONS = {"MobileNet": 64, "MobileNetV2": 64, "MobileNetV3Small": 64, "MobileNetV3Large": 64, "EfficientNetB0": 64, "EfficientNetV2B0": 64, "ResNet50": 64, "ResNet50V2": 64, "DenseNet121": 64, "ConvNeXtTiny": 64, "NASNetMobile": 64, "VGG16": 64, "VGG19": 64, "Xception": 80, "InceptionV3": 80, "InceptionResNetV2": 80, "ResNet101": 64, "DenseNet169": 64, "EfficientNetB1": 64, "EfficientNetV2S": 64}  # fmt: skip
#: Of the largest value: float32 sums in another order, through up to 200 layers of random weights.
TOLERANCE = 1e-4
OTHER_SIZE = 3  #: of dims that a frozen graph does not fix


def error_of(got: np.ndarray, want: np.ndarray) -> float:
    """Relative to the largest value. Integers and bools have to be equal."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind not in "fc":
        return 0.0 if np.array_equal(got, want) else float("inf")
    if not want.size:
        return 0.0
    scale = float(np.nanmax(np.abs(want))) or 1.0
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    both_nan = np.isnan(got) & np.isnan(want)
    return float(np.where(both_nan, 0.0, difference).max()) / scale


def vary(module: Any) -> None:
    """Makes constant weights random: statistics of 0 and 1 would hide what normalisation computes."""
    random = np.random.default_rng(0)
    for weight in module.weights:
        value = weight.numpy()
        if value.size > 1 and (value == value.flat[0]).all():
            noise = random.uniform(-0.2, 0.2, value.shape)
            weight.assign((value * (1 + noise) if value.flat[0] else noise).astype(value.dtype))


def run_application(name: str) -> dict[str, Any]:
    import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    size = APPLICATIONS[name]
    make = getattr(keras.applications, name)
    module = make(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None)
    vary(module)
    model = sardonyx.compile(module)
    errors = []
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, size, size, 3)).astype(np.float32)
        (got,) = model.run({model.inputs[0].name: x}).values()
        errors.append(error_of(np.asarray(got), module(x, training=False).numpy()))
    return {"errors": errors, "verdict": "right" if max(errors) <= TOLERANCE else "wrong"}


def value_of(spec: Any, random: np.random.Generator) -> np.ndarray:
    dims = spec.shape.as_list() if spec.shape.rank is not None else [None, None]
    shape = [OTHER_SIZE if n is None else n for n in dims]
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    return random.integers(0, 3, shape).astype(dtype)


def run_frozen(path: pathlib.Path) -> dict[str, Any]:
    from sardonyx.tensorflow.convert import Frozen

    frozen = Frozen(str(path), None, None)
    random = np.random.default_rng(0)
    feed = {s.name: value_of(s, random) for s in frozen.specs}
    try:
        with tf.compat.v1.Session(graph=frozen.graph) as session:
            want = session.run(frozen.ends, dict(zip(frozen.starts, feed.values(), strict=True)))
    except Exception as error:
        return {"verdict": "TensorFlow fails", "notes": str(error).splitlines()[0][:200]}
    model = sardonyx.compile(path)
    got = model.run({i.name: feed[i.name] for i in model.inputs})
    errors = [error_of(np.asarray(a), np.asarray(b)) for a, b in zip(got.values(), want, strict=True)]
    return {"errors": errors, "verdict": "right" if max(errors) <= TOLERANCE else "wrong"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="models whose names contain this")
    parser.add_argument("--frozen", type=pathlib.Path, help="folder of GraphDefs")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    files = sorted(options.frozen.glob("*.pb")) if options.frozen else []
    rows = []
    for item in files if options.frozen else APPLICATIONS:
        name = item.stem if isinstance(item, pathlib.Path) else item
        if options.only and not any(o in name for o in options.only):
            continue
        try:
            row = run_frozen(item) if isinstance(item, pathlib.Path) else run_application(item)
        except Exception as error:
            verdict = "refused" if isinstance(error, sardonyx.Error) else "crashed"
            row = {"verdict": verdict, "notes": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        rows.append({"name": name} | row)
        print(f"{row['verdict']:16} {rows[-1]}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    compared = [r for r in rows if r["verdict"] != "TensorFlow fails"]
    right = sum(r["verdict"] == "right" for r in compared)
    wrong = sum(r["verdict"] == "wrong" for r in compared)
    print(f"{right} of {len(compared)} right, {wrong} wrong; TensorFlow itself fails on {len(rows) - len(compared)}")


if __name__ == "__main__":
    main()
