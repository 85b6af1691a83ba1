"""SavedModel folders, Keras models and files, frozen graphs and functions beside TensorFlow's CPU. Files of TFLite: test_tflite.py."""

from __future__ import annotations

import ctypes
import os
import pathlib
import sys

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed (pip install sardonyx[tensorflow])")
pytest.importorskip("tf2onnx", reason="tf2onnx is not installed (pip install sardonyx[tensorflow])")
keras = pytest.importorskip("keras", reason="keras is not installed (pip install sardonyx[tensorflow])")

import sardonyx  # noqa: E402
from cli_support import INVALID_ARGUMENT, INVALID_MODEL, UNSUPPORTED  # noqa: E402
from cli_support import sardonyx as command  # noqa: E402
from keras import layers  # noqa: E402
from sardonyx.errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError  # noqa: E402


def close(got, want, tolerance=1e-5):
    """Relative to the largest value: float32 sums in another order."""
    want = np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert np.abs(got.astype(np.float64) - want).max() <= tolerance * max(1.0, np.abs(want).max())


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(0)
    x = image = layers.Input((16, 16, 3), name="image")
    x = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2, padding="same")(x)))
    y = layers.Conv2D(8, 1)(layers.DepthwiseConv2D(3, padding="same", activation="relu")(x))
    x = layers.GlobalAveragePooling2D()(layers.MaxPooling2D(2)(layers.Add()([x, y])))
    return keras.Model(image, [layers.Dense(5, name="scores")(x), layers.Dense(2, name="box")(x)])


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype(np.float32)


def test_keras_model(network, image):
    model = sardonyx.compile(network)
    assert [(i.name, i.shape) for i in model.inputs] == [("image", ("batch", 16, 16, 3))]
    assert [o.name for o in model.outputs] == ["scores", "box"]
    for x in (image, image[:1]):
        for got, want in zip(model(image=x).values(), network(x), strict=True):
            close(got, want)
    # NHWC without transposes: 3 convolutions, the two GEMMs as one or two, and few loops.
    kinds = [k.kind for k in model.kernels()]
    assert kinds.count("tile") >= 4 and len(kinds) <= 9, model.kernels()


@pytest.mark.parametrize("name", ["m.keras", "m.h5", "saved"])
def test_files(name, network, image, tmp_path):
    path = tmp_path / name
    if name == "saved":
        network.export(path, verbose=False)
    else:
        network.save(path)
    model = sardonyx.compile(path)
    got = model({model.inputs[0].name: image})
    for y, want in zip(got.values(), network(image), strict=True):
        close(y, want)
    shown = command("run", "-q", path, "--dim", f"{model.inputs[0].shape[0]}=2", SARDONYX_PYTHON=sys.executable)
    assert all(o.name in shown for o in model.outputs)


def test_several_inputs_and_sizes(tmp_path):
    a, b = layers.Input((None, 4), name="a"), layers.Input((4,), name="b")
    model = keras.Model({"b": b, "a": a}, layers.Dense(3)(layers.Add()([a, layers.Reshape((1, 4))(b)])))
    compiled = sardonyx.compile(model)
    for batch, length in ((1, 2), (3, 5)):
        x, y = np.ones((batch, length, 4), np.float32), np.full((batch, 4), 2, np.float32)
        (got,) = compiled(a=x, b=y).values()
        close(got, model({"a": x, "b": y}))


def test_layers_that_tf2onnx_alone_refuses():
    """A convolution in groups (a function for XLA), GELU (Erfc), and a layer with constants that are no weights."""
    x = image = layers.Input((8, 8, 4))
    x = layers.DepthwiseConv2D(5, padding="same")(layers.Conv2D(8, 3, groups=4, padding="same")(x))
    x = layers.Dense(4, activation="gelu")(layers.LayerNormalization()(x))
    x = layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 2.0, 3.0, 4.0])(x)
    model, x = keras.Model(image, x), np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 4)).astype(np.float32)
    compiled = sardonyx.compile(model)
    assert len(compiled.inputs) == 1
    (got,) = compiled({compiled.inputs[0].name: x}).values()
    close(got, model(x), 1e-4)  # GELU by another approximation of erf


def test_bfloat16():
    """tf2onnx takes it for float16 in some places."""
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        x = given = layers.Input((None, 8))
        x = layers.LayerNormalization()(layers.Dense(16, activation="relu")(x))
        x = layers.Dense(4, dtype="float32")(layers.MultiHeadAttention(2, 4)(x, x))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model = keras.Model(given, x)
    compiled = sardonyx.compile(model)
    for shape in ((1, 5, 8), (2, 7, 8)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (got,) = compiled({compiled.inputs[0].name: x}).values()
        close(got, model(x), 2e-2)  # some roundings to bfloat16


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_transposed_convolutions_longer_than_their_windows(padding, more):
    x = image = layers.Input((5, 4, 3))
    x = layers.Conv2DTranspose(6, 3, strides=3, padding=padding, output_padding=more, bias_initializer="ones")(x)
    model, x = keras.Model(image, x), np.random.default_rng(0).uniform(-1, 1, (2, 5, 4, 3)).astype(np.float32)
    compiled = sardonyx.compile(model)
    (got,) = compiled({compiled.inputs[0].name: x}).values()
    close(got, model(x))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3, activation="gelu")

    def call(self, x, training=False):
        return {"z": self.dense(x), "a": x * 2}


def test_subclassed_model():
    model, x = Subclassed(), np.ones((2, 4), np.float32)
    with pytest.raises(InvalidArgumentError, match="give example_inputs"):
        sardonyx.compile(model)
    compiled = sardonyx.compile(model, example_inputs=(x,))
    got, want = compiled(input_0=x), model(x)
    assert [o.name for o in compiled.outputs] == ["a", "z"]
    close(got["z"], want["z"], 1e-4)  # GELU by another approximation of erf
    close(got["a"], want["a"])


def test_control_flow():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.int32)])
    def f(x, n):
        for k in tf.range(n):
            x = x * 1.5 + tf.cast(k, tf.float32)
            if tf.reduce_sum(x) > 50.0:
                x -= 20.0
        return tf.cond(tf.reduce_max(x) > 10.0, lambda: x - 1.0, lambda: x * 2.0)

    model = sardonyx.compile(f)
    for n in (0, 3, 9):
        x = np.array([1, 2, 3], np.float32)
        (got,) = model({i.name: v for i, v in zip(model.inputs, (x, np.array(n, np.int32)), strict=True)}).values()
        close(got, f(x, n))


def frozen(function, *specs, path):
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    traced = tf.function(function, input_signature=[tf.TensorSpec(*s) for s in specs]).get_concrete_function()
    definition = convert_variables_to_constants_v2(traced).graph.as_graph_def()
    pathlib.Path(path).write_bytes(definition.SerializeToString())


def test_frozen_graph(tmp_path):
    path, w = tmp_path / "frozen.pb", tf.Variable(np.full((3, 2), 0.5, np.float32))
    frozen(lambda x: tf.nn.relu(tf.matmul(x, w, name="product"), name="out"), ([None, 3], tf.float32, "x"), path=path)
    x = np.array([[1, -2, 3], [-1, -1, -1]], np.float32)
    model = sardonyx.compile(path)
    (got,) = model(x=x).values()
    close(got, np.maximum(x @ w.numpy(), 0))
    cut = sardonyx.compile(path, tensorflow_inputs={"x": [2, 3]}, tensorflow_outputs=["product"])
    assert cut.inputs[0].shape == (2, 3) and [o.name for o in cut.outputs] == ["product"]
    close(cut(x=x)["product"], x @ w.numpy())
    python = {"SARDONYX_PYTHON": sys.executable}
    shown = command("run", "-q", path, "--tensorflow-input", "x:4,3", "--tensorflow-output", "product", **python)
    assert "float32 [4, 2]" in shown.replace("float32[", "float32 [")
    assert "no node 'nix'" in command("run", path, "--tensorflow-output", "nix", code=INVALID_ARGUMENT, **python)
    assert "does not fit" in command("run", path, "--tensorflow-input", "x:4,9", code=INVALID_ARGUMENT, **python)
    path.write_bytes(b"\x0a\xff\xff")
    assert str(path) in command("run", path, code=INVALID_MODEL, **python)


def test_what_is_no_number_is_refused_by_name(tmp_path):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([1, 2], [3.0, 4.0], tf.int32, tf.float32), 0.0
    )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def looked_up(x):
        return table.lookup(x) * 2.0

    with pytest.raises(UnsupportedError, match=r"LookupTableFindV2.*export a function that begins after"):
        sardonyx.compile(looked_up)

    class Text(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
        def __call__(self, words):
            return tf.strings.length(words)

    tf.saved_model.save(Text(), tmp_path / "text")
    message = command("run", tmp_path / "text", code=UNSUPPORTED, SARDONYX_PYTHON=sys.executable)
    assert "'words'" in message and "string" in message


def test_errors(network, tmp_path):
    with pytest.raises(FileError, match=r"no\.keras: there is no such file"):
        sardonyx.compile(tmp_path / "no.keras")
    (tmp_path / "bad.keras").write_bytes(b"no zip")
    with pytest.raises(InvalidModelError, match=r"bad\.keras"):
        sardonyx.compile(tmp_path / "bad.keras")
    network.export(tmp_path / "saved", verbose=False)
    with pytest.raises(InvalidArgumentError, match="no signature 'nix'; it has: serve, serving_default"):
        sardonyx.compile(tmp_path / "saved", signature="nix")
    with pytest.raises(InvalidArgumentError, match="only SavedModel folders have signatures"):
        sardonyx.compile(network, signature="nix")
    with pytest.raises(InvalidArgumentError, match="has no input 'nix'; its inputs are: image"):
        sardonyx.compile(network, tensorflow_inputs={"nix": [1]})
    fixed = sardonyx.compile(network, tensorflow_inputs={"image": [1, 16, 16, 3]})
    assert fixed.inputs[0].shape == (1, 16, 16, 3)


@pytest.mark.parametrize("channels_first", [True, False])
def test_parse_tf_of_migraphx(tmp_path, channels_first, capfd):
    """MIGraphX's module and C interface: with nhwc, inputs and outputs of rank 4 are in NCHW."""
    import migraphx_c as mgx
    import sardonyx.migraphx as migraphx

    weights = np.random.default_rng(0).standard_normal((3, 3, 2, 4)).astype(np.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 2], tf.float32, "x")])
    def f(x):
        return tf.nn.relu(tf.nn.conv2d(x, weights, 1, "SAME"), name="y")

    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(f.get_concrete_function())
    path = tmp_path / "m.pb"
    path.write_bytes(frozen.graph.as_graph_def().SerializeToString())
    image = np.random.default_rng(1).standard_normal((3, 8, 8, 2)).astype(np.float32)
    want = np.maximum(tf.nn.conv2d(image, weights, 1, "SAME").numpy(), 0)
    order = (0, 3, 1, 2) if channels_first else (0, 1, 2, 3)
    given, want = np.ascontiguousarray(image.transpose(order)), want.transpose(order)
    p = migraphx.parse_tf(path, is_nhwc=channels_first, batch_size=3)
    (name,) = p.get_parameter_names()
    assert p.get_parameter_shapes()[name].lens() == list(given.shape)
    p.compile(migraphx.get_target("ref"))
    close(np.asarray(p.run({name: given})[0]), want)
    fixed = migraphx.parse_tf(path, channels_first, map_input_dims={name: list(given.shape)})
    assert fixed.get_output_shapes()[0].lens() == list(want.shape)
    from sardonyx.migraphx import driver

    layout = "--nhwc" if channels_first else "--nchw"
    assert driver.main(["params", str(path), layout, "--batch", "3"]) == 0
    assert str(given.shape[1]) in capfd.readouterr().out
    assert driver.main(["verify", "--tf", str(path), layout, "--batch", "3", "--ref"]) == 0
    if not channels_first:
        return
    os.environ["SARDONYX_PYTHON"] = sys.executable
    o = mgx.Handle("tf_options", "tf_options_create")
    mgx.call("tf_options_set_nhwc", o, ctypes.c_bool(True))
    mgx.call("tf_options_set_default_dim_value", o, ctypes.c_size_t(3))
    data = path.read_bytes()
    p = mgx.Program(mgx.Handle("program", "parse_tf_buffer", data, ctypes.c_size_t(len(data)), o)).compile()
    close(p.arrays(**{name: given})[0], want)
