"""Layers that passes rewrite to products, on simulated AMD GPUs, compared with the host: patches, convolutions of large images to few
channels, tokens that are mixed."""

import numpy as np
import pytest
from cli_support import sardonyx as cli
from onnx import helper, numpy_helper
from test_gpu_gemm import CHIPS, FLOAT, HALF, TOLERANCE, check, model, rand, tiles, weights


@pytest.mark.parametrize("size", [32, 31])
@pytest.mark.parametrize("chip", CHIPS)
def test_patches(chip, size):
    """Of 8 x 8 pixels; the last ones of an image of 31 x 31 reach past its end."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[8, 8], auto_pad="SAME_UPPER")
    m = model([node], [("x", HALF, ["n", 3, size, size])], ("y", HALF), [weights("w", HALF, 16, 3, 8, 8, scale=0.1)])
    check(m, chip, {"x": rand(HALF, 2, 3, size, size)}, TOLERANCE[HALF])


@pytest.mark.parametrize("out, pad, dilation", [(1, 1, 1), (3, 2, 2)])
@pytest.mark.parametrize("chip", CHIPS)
def test_last_convolution_of_a_decoder(chip, out, pad, dilation):
    """A large image to few channels: products with all taps, then their sums."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[pad] * 4, dilations=[dilation] * 2),
        helper.make_node("Sigmoid", ["c"], ["y"]),
    ]
    constants = [weights("w", HALF, out, 32, 3, 3, scale=0.1), weights("b", HALF, out)]
    m = model(nodes, [("x", HALF, ["n", 32, 92, 90])], ("y", HALF), constants)
    assert tiles(check(m, chip, {"x": rand(HALF, 2, 32, 92, 90)}, TOLERANCE[HALF])) == 1


@pytest.mark.parametrize("tokens", [49, 196])
@pytest.mark.parametrize("chip", CHIPS)
def test_tokens_that_an_mlp_mixes(chip, tokens):
    """K of the first product, and the columns of the second, are the number of tokens: no whole vectors."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "c"], ["n"], axis=-1),
        helper.make_node("Transpose", ["n"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["q"]),
        helper.make_node("Transpose", ["q"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Add", ["u", "x"], ["y"]),
    ]
    constants = [
        weights("g", HALF, 64),
        weights("c", HALF, 64),
        weights("w", HALF, tokens, 48, scale=0.1),
        weights("v", HALF, 48, tokens, scale=0.1),
    ]
    m = model(nodes, [("x", HALF, ["n", tokens, 64])], ("y", HALF), constants)
    # 2e-3: as in one product, but the norm and the first product are rounded to float16 before the second.
    check(m, chip, {"x": rand(HALF, 2, tokens, 64)}, 2e-3)


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("chip", CHIPS)
def test_sums_of_broadcast_products(chip, dtype):
    """Chunks of a state-space model: outputs by queries and keys, weighted, then by values."""
    axes = [numpy_helper.from_array(np.array([k]), n) for n, k in (("one", 1), ("two", 2), ("last", 4))]
    nodes = [
        helper.make_node("Unsqueeze", ["q", "two"], ["q5"]),
        helper.make_node("Unsqueeze", ["k", "one"], ["k5"]),
        helper.make_node("Mul", ["q5", "k5"], ["qk"]),
        helper.make_node("ReduceSum", ["qk", "last"], ["g"], keepdims=0),
        helper.make_node("Unsqueeze", ["g", "last"], ["g5"]),
        helper.make_node("Mul", ["g5", "d"], ["gd"]),
        helper.make_node("Unsqueeze", ["v", "one"], ["v5"]),
        helper.make_node("Mul", ["gd", "v5"], ["gv"]),
        helper.make_node("ReduceSum", ["gv", "two"], ["y"], keepdims=0),
    ]
    shape = ["n", 32, 3, 16]
    inputs = [
        ("q", dtype, shape),
        ("k", dtype, shape),
        ("v", dtype, ["n", 32, 3, 24]),
        ("d", dtype, ["n", 32, 32, 3, 1]),
    ]
    m = model(nodes, inputs, ("y", dtype), axes)
    feed = {
        "q": rand(dtype, 2, 32, 3, 16),
        "k": rand(dtype, 2, 32, 3, 16, seed=2),
        "v": rand(dtype, 2, 32, 3, 24, seed=3),
    }
    feed["d"] = rand(dtype, 2, 32, 32, 3, 1, seed=4)
    # float16 rounds the sums of the first product, which the second adds up.
    assert tiles(check(m, chip, feed, 4 * TOLERANCE[dtype])) == 2


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("chip", CHIPS)
def test_samples_of_a_deformable_convolution(chip, batched, tmp_path):
    """Nine taps of two groups of channels, each sampled at a place of its own, times weights: one matrix for all images, or one for
    each."""
    shapes = {
        "groups": [-1, 8, 6, 10],
        "samples": [-1, 16, 9, 6, 10],
        "matrix": [-1, 144, 60] if batched else [144, -1],
    }
    shapes |= {"image": [-1, 8, 6, 10] if batched else [8, -1, 6, 10]}
    constants = [numpy_helper.from_array(np.array(s), n) for n, s in shapes.items()]
    constants += [weights("c", HALF, 16, 8, 3, 3, scale=0.1), weights("w", HALF, 8, 144, scale=0.1)]
    rows = [
        helper.make_node("Conv", ["x", "c"], ["f"], pads=[1] * 4),
        helper.make_node("Reshape", ["f", "groups"], ["g"]),
        helper.make_node("GridSample", ["g", "places"], ["s"], align_corners=1),
        helper.make_node("Reshape", ["s", "samples"], ["t"]),
        helper.make_node("Transpose", ["t"], ["u"], perm=[0, 1, 2, 3, 4] if batched else [1, 2, 0, 3, 4]),
        helper.make_node("Reshape", ["u", "matrix"], ["m"]),
        helper.make_node("MatMul", ["w", "m"], ["p"]),
        helper.make_node("Reshape", ["p", "image"], ["q"]),
        helper.make_node("Transpose", ["q"], ["r"], perm=[0, 1, 2, 3] if batched else [1, 0, 2, 3]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    inputs = [("x", HALF, ["n", 8, 6, 10]), ("places", HALF, ["m", 54, 10, 2])]
    m = model(rows, inputs, ("y", HALF), constants)
    feed = {"x": rand(HALF, 3, 8, 6, 10), "places": rand(HALF, 6, 54, 10, 2)}
    check(m, chip, feed, TOLERANCE[HALF])
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    assert "// sampled_operands" in cli("inspect", tmp_path / "m.onnx", "--device", f"sim:{chip}", "--passes")
