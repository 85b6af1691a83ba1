"""Makes tests/data/tflite: models that TensorFlow's converter writes, with inputs and what TensorFlow Lite's interpreter computes.

    python tests/python/make_tflite_files.py      needs tensorflow (made with 2.21)

Weights are random, from a fixed seed. The tests need the files only.
"""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "tflite"
RNG = np.random.default_rng(0)
Converter = tf.lite.TFLiteConverter


def save(name: str, blob: bytes, feeds: list[np.ndarray]) -> None:
    interpreter = tf.lite.Interpreter(model_content=blob)
    inputs = interpreter.get_input_details()
    for d, x in zip(inputs, feeds, strict=True):
        interpreter.resize_tensor_input(d["index"], x.shape)
    interpreter.allocate_tensors()
    for d, x in zip(inputs, feeds, strict=True):
        interpreter.set_tensor(d["index"], x)
    interpreter.invoke()
    arrays = {f"in_{k}": x for k, x in enumerate(feeds)}
    arrays |= {f"out_{k}": interpreter.get_tensor(d["index"]) for k, d in enumerate(interpreter.get_output_details())}
    (FOLDER / f"{name}.tflite").write_bytes(blob)
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def randomise(model: Any) -> Any:
    for v in model.variables:
        if v.name in ("moving_variance", "gamma"):
            v.assign(RNG.uniform(0.5, 1.5, v.shape))
        elif v.name in ("moving_mean", "beta", "bias"):
            v.assign(RNG.normal(0, 0.2, v.shape))
    return model


def classifier() -> Any:
    x = image = layers.Input((12, 12, 3), name="image")
    x = layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x))
    x = layers.ReLU(6.0)(x)
    y = layers.ReLU()(layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(x)))
    x = layers.MaxPooling2D(2)(layers.Add()([x, layers.Conv2D(8, 1)(y)]))
    x = layers.Concatenate()([x, layers.AveragePooling2D(3, 1, padding="same")(x)])
    x = layers.Dense(5, name="scores")(layers.GlobalAveragePooling2D()(x))
    return randomise(keras.Model(image, layers.Softmax()(x)))


def upsampler() -> Any:
    image = layers.Input((6, 6, 2))
    a = layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="relu")(image)
    b = layers.UpSampling2D(2, interpolation="bilinear")(image)
    c = layers.UpSampling2D(2)(layers.Cropping2D(1)(layers.ZeroPadding2D(1)(image)))
    d = layers.Conv2D(4, 3, dilation_rate=2, padding="same")(layers.Concatenate()([a, b, c]))
    return randomise(keras.Model(image, layers.Dense(3)(layers.PReLU()(d))))


def quantised(model: Any, shape: tuple[int, ...], interface: Any, operators: Any) -> bytes:
    c = Converter.from_keras_model(model)
    c.optimizations = [tf.lite.Optimize.DEFAULT]
    c.representative_dataset = lambda: ([RNG.uniform(-1, 1, (1, *shape)).astype(np.float32)] for _ in range(40))
    c.target_spec.supported_ops = [operators]
    c.inference_input_type = c.inference_output_type = interface
    return bytes(c.convert())


def of_function(function: Any, *specs: Any) -> bytes:
    traced = tf.function(function, input_signature=[tf.TensorSpec(*s) for s in specs])
    return bytes(Converter.from_concrete_functions([traced.get_concrete_function()]).convert())


def control(x: Any, n: Any) -> Any:
    y = tf.while_loop(
        lambda k, s: tf.logical_and(k < n, tf.reduce_sum(s) < 100.0),
        lambda k, s: (k + 1, s * 1.5 + tf.cast(k, tf.float32)),
        [0, x],
    )[1]
    return tf.cond(tf.reduce_max(y) > 10.0, lambda: y - 1.0, lambda: y * 2.0)


def indexing(x: Any, k: Any) -> Any:
    return [
        x[1:, ..., ::-2, tf.newaxis], x[:, -1, k : k + 2], tf.gather(x, [2, 0], axis=1), tf.one_hot(tf.argmax(x[0], -1), 5),
        tf.reverse(x, [1]), tf.where(x > 0.0, x, -2.0 * x), tf.pad(x, [[0, 0], [1, 2], [0, 1]], "SYMMETRIC"),
        tf.math.top_k(x, 2)[0], tf.stack(tf.unstack(x, axis=1)[::-1], axis=-1), tf.cumsum(x, axis=2, exclusive=True),
        tf.math.floormod(x, 0.75),
    ]  # fmt: skip


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(0)
    model, image = classifier(), RNG.uniform(-1, 1, (2, 12, 12, 3)).astype(np.float32)
    sets = tf.lite.OpsSet
    save("float32", Converter.from_keras_model(model).convert(), [image])
    c = Converter.from_keras_model(model)
    c.optimizations, c.target_spec.supported_types = [tf.lite.Optimize.DEFAULT], [tf.float16]
    save("float16", c.convert(), [image])
    integers = RNG.integers(-128, 128, (2, 12, 12, 3)).astype(np.int8)
    save("int8", quantised(model, (12, 12, 3), tf.int8, sets.TFLITE_BUILTINS_INT8), [integers])
    wide = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    save("int16", quantised(model, (12, 12, 3), tf.float32, wide), [image])
    model = upsampler()
    save("image", Converter.from_keras_model(model).convert(), [RNG.uniform(-1, 1, (1, 6, 6, 2)).astype(np.float32)])
    integers = RNG.integers(-128, 128, (1, 6, 6, 2)).astype(np.int8)
    save("image_int8", quantised(model, (6, 6, 2), tf.int8, sets.TFLITE_BUILTINS_INT8), [integers])
    sequence = layers.Input(batch_shape=(1, 7, 4))
    model = randomise(keras.Model(sequence, layers.Dense(2)(layers.LSTM(6, return_sequences=True)(sequence))))
    save("lstm", Converter.from_keras_model(model).convert(), [RNG.uniform(-1, 1, (1, 7, 4)).astype(np.float32)])
    blob = of_function(control, ([3], tf.float32), ([], tf.int32))
    save("control", blob, [np.array([1, 2, 3], np.float32), np.array(4, np.int32)])
    blob = of_function(indexing, ([2, 3, 4], tf.float32), ([], tf.int32))
    save("indexing", blob, [RNG.uniform(-2, 2, (2, 3, 4)).astype(np.float32), np.array(1, np.int32)])


if __name__ == "__main__":
    main()
