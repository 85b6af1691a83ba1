"""MaxPool between DequantizeLinear and QuantizeLinear on GPUs: with the same scale and zero point on both sides it is the maximum of
the integers; with others it is not."""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

TYPES = {"int8": (np.int8, -128, 127), "uint8": (np.uint8, 0, 255)}


def pool(kind, zero, scales=(0.0238, 0.0238), pads=1, result=False):
    """Images of [batch, 16, 9, 9]; `result`: the maximum is an output too."""
    dtype = TYPES[kind][0]
    weights = [numpy_helper.from_array(np.float32(s), n) for s, n in zip(scales, ("s", "t"), strict=True)]
    weights.append(numpy_helper.from_array(np.asarray(zero, dtype), "z"))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[pads] * 4),
        helper.make_node("QuantizeLinear", ["m", "t", "z"], ["q"]),
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    outputs = [helper.make_tensor_value_info("q", element, None)]
    if result:
        outputs.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, None))
    x = helper.make_tensor_value_info("x", element, ["batch", 16, 9, 9])
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize(("kind", "zero"), [("int8", -128), ("int8", 3), ("int8", 0), ("uint8", 0), ("uint8", 200)])
@pytest.mark.parametrize("scales", [(0.0238, 0.0238), (0.0238, 0.031)])
def test_values(device, kind, zero, scales):
    dtype, low, high = TYPES[kind]
    x = np.random.default_rng(1).integers(low, high + 1, (2, 16, 9, 9)).astype(dtype)
    x[0, :8] = low  # whole windows of the smallest number
    model = pool(kind, zero, scales).SerializeToString()
    want = sardonyx.compile(model, device="host", fuse=False)(x=x)["q"]
    got = sardonyx.compile(model, device=device)(x=x)["q"]
    np.testing.assert_array_equal(got, want)
    if scales[0] == scales[1]:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=low)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
        np.testing.assert_array_equal(got, windows.max((4, 5)))


@pytest.mark.parametrize("result", [False, True])
@pytest.mark.parametrize("scales", [(0.0238, 0.0238), (0.0238, 0.031)])
def test_integers_are_compared(tmp_path, scales, result):
    """Unless the scales differ, or the maximum is needed as a number."""
    onnx.save(pool("int8", -128, scales, result=result), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "--cache-dir", tmp_path, "-o", tmp_path / "m.sdx")
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    conversions = re.findall(r"cvt\.rn\.f32\.[su](?:8|16|32)", text)
    assert (not conversions) == (scales[0] == scales[1] and not result)
