"""The first convolution of a network of images: three channels, of which two pixels are 12 bytes in 16 bits. AMD's kernels read them where
they are (FuseOptions::short_vectors)."""

import ctypes
import json

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import BUILD
from onnx import TensorProto, helper
from simulated import counted
from test_amd_main_loops import instructions

CHIPS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@pytest.fixture(autouse=True)
def strict():
    """A pixel that was not read may not take part in a product."""
    simulator = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so")
    assert simulator.sardonyxSimConfigure(b'{"check_uninitialized": true}') == 0
    yield
    assert simulator.sardonyxSimConfigure(b'{"check_uninitialized": false}') == 0


def kernels():
    """What has been counted since counted() began, by kernel."""
    simulator = ctypes.CDLL(BUILD / "lib" / "libamdhip64-sim.so")
    simulator.sardonyxSimSummary.restype = ctypes.c_char_p
    return json.loads(simulator.sardonyxSimSummary().decode())


def integers(*shape):
    """Their products, and the sums of some hundred of them, are exact."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float32)


def convolution(batch, height, width, outputs, kernel, stride, kind, channels=3):
    """A convolution of an image with channels last, and its image."""
    kinds = {"fp16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
    t, dtype = kinds[kind]
    window = {"strides": [stride] * 2, "pads": [kernel // 2] * 4}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w"], ["u"], **window),
        helper.make_node("Transpose", ["u"], ["y"], perm=[0, 2, 3, 1]),
    ]
    shape = [outputs, channels, kernel, kernel]
    weights = helper.make_tensor("w", t, shape, integers(*shape).astype(dtype).tobytes(), raw=True)
    x = helper.make_tensor_value_info("x", t, [batch, height, width, channels])
    graph = helper.make_graph([*nodes], "g", [x], [helper.make_tensor_value_info("y", t, None)], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return model, integers(batch, height, width, channels).astype(dtype)


def same_as_host(model, image, chip):
    bytes_of_model = model.SerializeToString()
    expected = sardonyx.compile(bytes_of_model, device="host").run({"x": image})["y"]
    got = sardonyx.compile(bytes_of_model, device=f"sim:{chip}").run({"x": image})["y"]
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


# Kernel, stride and padding of ResNet, MobileNet and YOLOv5, and widths that do not divide, where the image is copied.
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kernel, stride, width", [(7, 2, 32), (3, 2, 30), (6, 2, 28), (3, 2, 31), (7, 2, 8)])
def test_images_of_three_channels(kernel, stride, width, chip):
    same_as_host(*convolution(2, 13, width, 40, kernel, stride, "fp16"), chip)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_bfloat16(chip):
    same_as_host(*convolution(1, 16, 16, 32, 7, 2, "bf16"), chip)


def test_six_channels():
    """12 bytes are one pixel."""
    same_as_host(*convolution(2, 9, 7, 32, 3, 1, "fp16", channels=6), "gfx942")


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_pixels_of_the_next_row_take_no_part(chip):
    """Windows at the left edge begin in the row before: an infinity there would make zeros of the padding NaN."""
    model, image = convolution(1, 12, 16, 32, 7, 2, "fp16")
    image[:, :, -1, :] = np.inf
    same_as_host(model, image, chip)


@pytest.mark.parametrize("chip", CHIPS)
def test_pixels_are_loaded_from_the_image(chip, tmp_path):
    model, _ = convolution(64, 224, 224, 64, 7, 2, "fp16")
    path = tmp_path / "first.onnx"
    onnx.save(model, path)
    code = [text for _, text, _ in instructions(path, chip, tmp_path)]
    assert sum(text.startswith(("buffer_load_dwordx3", "buffer_load_b96")) for text in code) >= 4, code


def test_the_image_is_not_copied():
    """One launch, once the weights are rearranged; a row of odd length needs two."""
    for width, launches in ((32, 1), (31, 2)):
        model, image = convolution(2, 16, width, 32, 7, 2, "fp16")
        session = sardonyx.compile(model.SerializeToString(), device="sim:gfx942")
        session.run({"x": image})
        with counted() as kinds:
            session.run({"x": image})
            assert len(kernels()) == launches
        assert kinds["matrix"] > 0
