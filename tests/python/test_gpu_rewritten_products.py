"""Layers that passes rewrite to products, on simulated AMD GPUs, compared with the host: patches, convolutions of large images to few
channels, tokens that are mixed."""

import pytest
from onnx import helper
from test_gpu_products import CHIPS, HALF, TOLERANCE, check, model, rand, tiles, weights


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
