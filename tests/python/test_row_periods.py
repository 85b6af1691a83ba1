"""Rows that are whole images with channels last, normalised and scaled channel by channel: the scale is a period of the row, of
which a pack is loaded at once where packs divide it (codegen/gpu_row_plan.cpp). The reference is NumPy, in float64.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
DEVICES = ["host", "sim:gfx942", "sim:gfx1100", *NVIDIA]

CHANNELS = {"packs": 64, "padded for the convolutions": 12, "odd": 9}
IMAGES, SIDE = 6, 10


def weights(channels):
    rng = np.random.default_rng(channels)
    shapes = {"before": [channels, channels, 1, 1], "scale": [channels, 1, 1], "bias": [channels, 1, 1]}
    w = {n: rng.standard_normal(s).astype(np.float16) for n, s in shapes.items()}
    w["after"] = np.eye(channels, dtype=np.float16)[:, :, None, None]
    return w


def make_model(channels):
    """A normalisation of one group, as torch.onnx writes it, between convolutions, for which it is channels last."""
    w = weights(channels) | {"one": np.ones(1, np.float16), "zero": np.zeros(1, np.float16)}
    w |= {"row": np.array([0, 1, -1]), "image": np.array([0, channels, SIDE, SIDE])}
    nodes = [
        helper.make_node("Conv", ["x", "before"], ["c"]),
        helper.make_node("Reshape", ["c", "row"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "one", "zero"], ["n"]),
        helper.make_node("Reshape", ["n", "image"], ["i"]),
        helper.make_node("Mul", ["i", "scale"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["a"]),
        helper.make_node("Conv", ["a", "after"], ["y"]),
    ]
    shape = [IMAGES, channels, SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, shape)],
        [numpy_helper.from_array(v, n) for n, v in w.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CHANNELS)
def test_normalised_image(device, name):
    channels = CHANNELS[name]
    w = {n: v.astype(np.float64) for n, v in weights(channels).items()}
    x = np.random.default_rng(1).standard_normal((IMAGES, channels, SIDE, SIDE)).astype(np.float16)
    c = np.einsum("oc,nchw->nohw", w["before"][:, :, 0, 0], x.astype(np.float64))
    mean, variance = c.mean((1, 2, 3), keepdims=True), c.var((1, 2, 3), keepdims=True)
    want = (c - mean) / np.sqrt(variance + 1e-5) * w["scale"] + w["bias"]
    got = sardonyx.compile(make_model(channels).SerializeToString(), device=device).run({"x": x})["y"]
    # Two tensors are rounded to 11 bits on the way, and values are up to about 10.
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2.0**-9, atol=2.0**-6)


@pytest.mark.parametrize("name", CHANNELS)
def test_code(tmp_path, name):
    """Scale and bias are loaded in packs, if these divide the channels."""
    onnx.save(make_model(CHANNELS[name]), tmp_path / "m.onnx")
    options = ["--device", "sim:gfx1100", "--source", "--kernels", "--cache-dir", ""]
    text = cli("inspect", tmp_path / "m.onnx", *options)
    norm = next(t for t in text.split("\n// k") if "InstanceNormalization" in t.split("\n")[0])
    assert ("% 64u" in norm and norm.count("= load_pack<8>(") >= 2) == (name == "packs")
