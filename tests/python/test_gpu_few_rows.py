"""Products of few rows on simulated AMD GPUs, as of decoding with a language model: kernels whose time is that of reading the weights."""

import numpy as np
import pytest
import sardonyx
import simulated
from onnx import TensorProto, helper, numpy_helper
from test_gpu_gemm import CHIPS, FLOAT, HALF, OTHERS, TOLERANCE, check, few_bits, model, rand, weights


# Kernels for up to 8, 16, 32 and 64 rows, and with unpacked weights for more than 64; sums of whole spans of a wave (256) and of parts of one, columns that are no
# whole tile, and, for float16, the matrix-vector kernel.
@pytest.mark.parametrize("bits", [16, 4])
@pytest.mark.parametrize("k, n", [(512, 48), (1088, 40), (96, 20)])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=4)
def test_few_rows(chip, k, n, bits):
    if bits == 4:
        node, tensors = few_bits("o", k, n)
    else:
        node, tensors = helper.make_node("MatMul", ["x", "w"], ["o"]), [weights("w", HALF, k, n, scale=0.05)]
    m = model([node], [("x", HALF, ["m", k])], ("o", HALF), tensors, ["com.microsoft"])
    device, host = sardonyx.compile(m, device=f"sim:{chip}"), sardonyx.compile(m)
    for rows in (1, 3, 8, 11, 20, 47, 64, 70):
        feed = {"x": rand(HALF, rows, k)}
        got, want = device.run(feed)["o"].astype(np.float64), host.run(feed)["o"].astype(np.float64)
        assert np.abs(got - want).max() <= TOLERANCE[HALF] * np.abs(want).max()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("chip", CHIPS + OTHERS)
@pytest.mark.slow(part=4)
def test_few_rows_of_bfloat16(chip, bits):
    """Weights become bfloat16 by way of float32, whose sums the host has too."""
    bf16, k, n, rng = TensorProto.BFLOAT16, 256, 32, np.random.default_rng(3)
    scales = helper.make_tensor("s", bf16, (n, k // 32), rng.uniform(0.01, 0.05, n * k // 32))
    packed = numpy_helper.from_array(rng.integers(0, 256, (n, k // 32, 4 * bits)).astype(np.uint8), "b")
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=bf16),
        helper.make_node(
            "MatMulNBits", ["h", "b", "s"], ["p"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=32
        ),
        helper.make_node("Cast", ["p"], ["o"], to=FLOAT),
    ]
    m = model(nodes, [("x", FLOAT, ["m", k])], ("o", FLOAT), [packed, scales], ["com.microsoft"])
    for rows in (1, 2, 4, 12, 33):
        check(m, chip, {"x": rand(FLOAT, rows, k)}, 8e-3)  # one rounding of the result


@pytest.mark.parametrize("bits", [16, 4])
@pytest.mark.parametrize("chip", OTHERS)
@pytest.mark.slow(part=3)
def test_few_rows_on_other_chips(chip, bits):
    test_few_rows(chip, 1088, 40, bits)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("chip", CHIPS + OTHERS)
def test_instructions_of_a_weight(chip, rows):
    """A product of one to four rows is bound by memory: a lane executes few instructions for each weight, and x is read by few workgroups."""
    k, n = 2048, 2048
    m = model(
        [helper.make_node("MatMul", ["x", "w"], ["o"])],
        [("x", HALF, [rows, k])],
        ("o", HALF),
        [weights("w", HALF, k, n)],
    )
    device, feed = sardonyx.compile(m, device=f"sim:{chip}"), {"x": rand(HALF, rows, k)}
    device.run(feed)  # weights are rearranged before the first run
    with simulated.counted() as kinds:
        device.run(feed)
    wave = 64 if chip.startswith("gfx9") else 32
    assert sum(kinds.values()) * wave / (k * n) <= (7 if rows == 1 else 12)
