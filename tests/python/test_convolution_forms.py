"""Convolutions that GPUs compute in another form: few or odd channels, few outputs, results whose channels become pixels."""

import numpy as np
import onnxruntime
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
DEVICES = ["host", "sim:gfx942", "sim:gfx1100"]


def weights(name, *shape):
    values = np.random.default_rng(len(shape) + shape[0]).standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
    return numpy_helper.from_array(values.astype(np.float32), name)


def model_of(nodes, constants, image):
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["n", *image])]
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolution(image, filters, **attributes):
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)]
    return model_of(nodes, [weights("w", *filters), weights("b", filters[0])], image)


def check(model, image, device, precision="fp16"):
    """Against ONNX Runtime; float16 rounds operands and results, whose values are about one."""
    x = np.random.default_rng(1).standard_normal((2, *image)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    (got,) = sardonyx.compile(model.SerializeToString(), device=device, precision=precision).run({"x": x}).values()
    bound = 4e-3 if precision == "fp16" else 2e-5
    np.testing.assert_allclose(got, want, rtol=0, atol=bound * np.abs(want).max())


FORMS = {
    "one channel": ((1, 30, 26), (16, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    "one channel, strides, dilations": ((1, 40, 41), (16, 1, 3, 5), {"strides": [2, 3], "dilations": [2, 2]}),
    "one channel, uneven padding": ((1, 20, 21), (8, 1, 2, 4), {"pads": [0, 3, 1, 1]}),
    "two channels": ((2, 33), (24, 2, 7), {"pads": [3, 3], "strides": [2]}),
    "one channel of a volume": ((1, 10, 9, 12), (8, 1, 3, 3, 3), {"pads": [1] * 6}),
    "150 channels": ((150, 40), (150, 150, 3), {"dilations": [2], "pads": [4, 0]}),
    "33 channels, strides": ((33, 15, 14), (20, 33, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "50 channels, one tap": ((50, 15, 14), (20, 50, 1, 1), {}),
    "7 x 7 to three": ((32, 96, 100), (3, 32, 7, 7), {}),
    "5 x 5 to two, padded, dilated": ((32, 92, 93), (2, 32, 5, 5), {"pads": [2, 3, 1, 4], "dilations": [1, 2]}),
    "volume to three, padded, dilated": (
        (18, 10, 30, 31),
        (3, 18, 3, 3, 3),
        {"pads": [1, 0, 2, 1, 2, 2], "dilations": [1, 2, 2]},
    ),
    "12 channels to two": ((12, 20, 24), (2, 12, 5, 5), {"pads": [2, 2, 2, 2]}),
    "columns to four": ((64, 96, 90), (4, 64, 3, 7), {"pads": [1, 3, 1, 3]}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, device):
    image, filters, attributes = FORMS[name]
    check(convolution(image, filters, **attributes), image, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_channels_become_pixels(mode, device, precision):
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("DepthToSpace", ["c"], ["d"], blocksize=3, mode=mode),
        helper.make_node("Conv", ["d", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = [weights("w", 72, 16, 3, 3), weights("b", 72), weights("v", 16, 8, 3, 3)]
    check(model_of(nodes, constants, (16, 12, 10)), (16, 12, 10), device, precision)


@pytest.mark.parametrize("others", [["c"], ["w"]])
def test_channels_that_others_read_stay(others):
    """Another reader of the result, or of the weights, sees the model's order."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("DepthToSpace", ["c"], ["d"], blocksize=2, mode="CRD"),
        helper.make_node("ReduceMean", ["d"], ["m"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("ReduceMax", others, ["e"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Concat", ["m", "e"], ["y"], axis=0),
    ]
    check(model_of(nodes, [weights("w", 16, 8, 1, 1)], (8, 6, 6)), (8, 6, 6), "sim:gfx942")


def test_few_outputs_take_two_steps():
    """The convolution of 49 taps would load each pixel 49 times for three columns; by columns of the window, seven times."""
    image, filters, attributes = FORMS["7 x 7 to three"]
    model = convolution(image, filters, **attributes).SerializeToString()
    steps = sardonyx.estimate(model, "sm_90a", precision="fp16", sizes={"n": 8})
    operations = [s.operations for s in steps if s.operations]
    pixels = 8 * 90 * 100
    assert operations == [2.0 * pixels * 24 * 7 * 32]


def test_volumes_to_few_outputs_take_two_steps():
    """18 channels become 24; 27 columns for nine taps of three outputs become 32, and three taps stay in K."""
    model = convolution((18, 24, 32, 32), (3, 18, 3, 3, 3), pads=[1] * 6).SerializeToString()
    steps = sardonyx.estimate(model, "gfx942", precision="fp16", sizes={"n": 2})
    operations = [s.operations for s in steps if s.operations]
    assert operations == [2.0 * 2 * 24 * 32 * 34 * 32 * 3 * 24]


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
def test_one_tap_whose_pixels_are_side_by_side(device):
    """A Fourier transform reads lines of pixels, so the convolution's columns are pixels: with a bias and a residual, of 24 and 20 channels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 24, 3, 128)).astype(np.float16)
    w, b = rng.standard_normal((20, 24, 1, 1)).astype(np.float16), rng.standard_normal(20).astype(np.float16)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Add", ["c", "r"], ["s"]),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["f", "last"], ["u"]),
        node("DFT", ["u", "", "axis"], ["y"]),
    ]
    stored = {"w": w, "b": b, "last": np.array([4]), "axis": np.array(3)}
    value = helper.make_tensor_value_info
    inputs = [value(n, TensorProto.FLOAT16, s) for n, s in (("x", x.shape), ("r", (2, 20, 3, 128)))]
    outputs = [value("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, n) for n, v in stored.items()])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    r = rng.standard_normal((2, 20, 3, 128)).astype(np.float16)
    got = sardonyx.compile(model, device=device).run({"x": x, "r": r})["y"]
    sums = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(np.float64), x) + b[:, None, None].astype(np.float64) + r
    want = np.fft.fft(sums)
    # The sum is rounded to float16 twice (2^-11 of up to 32), and 128 of them are added up: a standard deviation of 0.1.
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, rtol=0, atol=0.5)
