"""Matrix products and convolutions on simulated AMD GPUs: tile kernels of every form, compared with the host."""

import numpy as np
import pytest
import sardonyx
import simulated
from onnx import TensorProto, helper, numpy_helper

CHIPS = ["gfx942", "gfx1100"]
OTHERS = ["gfx90a", "gfx950", "gfx1201"]
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
NUMPY = {FLOAT: np.float32, HALF: np.float16}
# Of the largest output. float32: sums of up to 1000 products in another order; float16: one rounding of the result.
TOLERANCE = {FLOAT: 1e-5, HALF: 1e-3}


def weights(name, dtype, *shape, seed=7, scale=1.0):
    x = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(NUMPY[dtype])
    return helper.make_tensor(name, dtype, shape, x.tobytes(), raw=True)


def rand(dtype, *shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(NUMPY[dtype])


def model(nodes, inputs, output, initializers=(), domains=()):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
        [helper.make_tensor_value_info(output[0], output[1], None)],
        list(initializers),
    )
    opsets = [helper.make_opsetid("", 20)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(m, chip, feed, tolerance):
    """The chip's result is the host's; returns what the model became."""
    device = sardonyx.compile(m, device=f"sim:{chip}")
    want, got = sardonyx.compile(m).run(feed), device.run(feed)
    for name, w in want.items():
        g = got[name]
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype.kind in "iu":
            np.testing.assert_array_equal(g, w)
        else:
            a, b = g.astype(np.float64), w.astype(np.float64)
            assert np.abs(a - b).max() <= tolerance * np.abs(b).max()
    return device


def tiles(device):
    """How many steps of the model are tile kernels."""
    return sum(k.kind == "tile" for k in device.kernels())


# Whole tiles, parts of tiles, single rows, sums that are no whole vectors.
SIZES = [(64, 64, 64), (1, 64, 40), (5, 72, 33), (130, 200, 144), (3, 1000, 17), (70, 19, 50)]


def product(dtype, k, n):
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Add", ["y", "b"], ["z"]),
            helper.make_node("Relu", ["z"], ["o"]),
        ],
        [("x", dtype, ["m", k])],
        ("o", dtype),
        [weights("w", dtype, k, n), weights("b", dtype, n, seed=8)],
    )


@pytest.mark.parametrize("dtype", [FLOAT, HALF], ids=["float32", "float16"])
@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=5)
def test_product_with_bias_and_relu(chip, m, k, n, dtype):
    device = check(product(dtype, k, n), chip, {"x": rand(dtype, m, k)}, TOLERANCE[dtype])
    assert tiles(device) == 1


@pytest.mark.parametrize("dtype", [FLOAT, HALF], ids=["float32", "float16"])
@pytest.mark.parametrize("chip", OTHERS)
def test_product_on_other_chips(chip, dtype):
    check(product(dtype, 72, 144), chip, {"x": rand(dtype, 130, 72)}, TOLERANCE[dtype])


@pytest.mark.parametrize("chip", CHIPS)
def test_one_program_for_every_number_of_rows(chip):
    m = product(HALF, 96, 48)
    device = sardonyx.compile(m, device=f"sim:{chip}")
    host = sardonyx.compile(m)
    for rows in (1, 2, 5, 17, 64, 300):
        feed = {"x": rand(HALF, rows, 96)}
        a, b = device.run(feed)["o"].astype(np.float64), host.run(feed)["o"].astype(np.float64)
        assert np.abs(a - b).max() <= TOLERANCE[HALF] * np.abs(b).max()
    assert device.programs == 1


@pytest.mark.parametrize("trans_a, trans_b", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("chip", CHIPS)
def test_products_of_inputs_in_batches(chip, trans_a, trans_b):
    """Both operands come as they are: contiguous along the sum, or along rows and columns."""
    nodes, names = [], []
    for name, trans in (("x", trans_a), ("y", trans_b)):
        if trans:
            nodes.append(helper.make_node("Transpose", [name], [name + "t"], perm=[0, 1, 3, 2]))
        names.append(name + "t" if trans else name)
    nodes.append(helper.make_node("MatMul", names, ["o"]))
    x = (2, 3, 64, 40) if trans_a else (2, 3, 40, 64)
    y = (2, 3, 48, 64) if trans_b else (2, 3, 64, 48)
    m = model(nodes, [("x", HALF, x), ("y", HALF, y)], ("o", HALF))
    assert tiles(check(m, chip, {"x": rand(HALF, *x), "y": rand(HALF, *y, seed=2)}, TOLERANCE[HALF])) == 1


# channels in and out, height, width, kernel, stride, padding, dilation, groups
CONVOLUTIONS = [
    (16, 32, 14, 14, 3, 1, 1, 1, 1),
    (3, 16, 20, 20, 7, 2, 3, 1, 1),
    (64, 64, 7, 7, 1, 1, 0, 1, 1),
    (32, 48, 9, 11, 3, 2, 2, 2, 2),
    (24, 24, 8, 8, 3, 1, 1, 1, 24),
    # Few channels, which become more: by neighbours, by zeros, by both; of patches; of a stride that is no power of two.
    (4, 8, 9, 13, 3, 1, 1, 1, 1),
    (3, 8, 8, 9, 3, 1, 0, 1, 1),
    (20, 16, 7, 7, 3, 2, 1, 1, 1),
    (3, 16, 32, 32, 16, 16, 0, 1, 1),
    (3, 16, 11, 9, 5, 3, 2, 1, 1),
]


@pytest.mark.parametrize("dtype", [FLOAT, HALF], ids=["float32", "float16"])
@pytest.mark.parametrize("c, o, h, w, kernel, stride, pad, dilation, groups", CONVOLUTIONS)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=5)
def test_convolution(chip, dtype, c, o, h, w, kernel, stride, pad, dilation, groups):
    m = model(
        [
            helper.make_node(
                "Conv",
                ["x", "w", "b"],
                ["y"],
                strides=[stride] * 2,
                pads=[pad] * 4,
                dilations=[dilation] * 2,
                group=groups,
            ),
            helper.make_node("Relu", ["y"], ["o"]),
        ],
        [("x", dtype, ["n", c, h, w])],
        ("o", dtype),
        [weights("w", dtype, o, c // groups, kernel, kernel, scale=0.1), weights("b", dtype, o)],
    )
    device = check(m, chip, {"x": rand(dtype, 2, c, h, w)}, TOLERANCE[dtype])
    assert tiles(device) == (0 if groups == c else 1)  # depthwise convolutions are loops


@pytest.mark.parametrize("spatial", [(15,), (5, 6, 7)])
@pytest.mark.parametrize("chip", CHIPS)
def test_few_channels_of_other_ranks(chip, spatial):
    d = len(spatial)
    m = model(
        [helper.make_node("Conv", ["x", "w"], ["o"], strides=[2] * d, pads=[1] * d + [2] * d)],
        [("x", FLOAT, ["n", 3, *[f"s{k}" for k in range(d)]])],
        ("o", FLOAT),
        [weights("w", FLOAT, 16, 3, *[3] * d, scale=0.1)],
    )
    assert tiles(check(m, chip, {"x": rand(FLOAT, 2, 3, *spatial)}, TOLERANCE[FLOAT])) == 1


@pytest.mark.parametrize("spatial", [(15,), (9, 9), (5, 6, 7)])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=3)
def test_transposed_and_other_ranks(chip, spatial):
    d = len(spatial)
    for op, shape in (("Conv", (24, 16)), ("ConvTranspose", (16, 24))):
        m = model(
            [helper.make_node(op, ["x", "w"], ["o"], strides=[2] * d, pads=[1] * 2 * d)],
            [("x", HALF, ["n", 16, *spatial])],
            ("o", HALF),
            [weights("w", HALF, *shape, *[3] * d, scale=0.1)],
        )
        assert tiles(check(m, chip, {"x": rand(HALF, 2, 16, *spatial)}, TOLERANCE[HALF])) == 1


@pytest.mark.parametrize(
    "rows, k, n, bits, block, form",
    [
        (1, 128, 64, 4, 32, ""),
        (1, 256, 96, 4, 32, "zeros"),
        (40, 128, 64, 4, 128, "bias"),
        (2, 80, 40, 4, 32, "floats groups"),  # the last block is not whole
        (1, 96, 64, 8, 16, "zeros bias"),
        (33, 128, 48, 8, 64, "groups"),
        (1, 64, 48, 2, 16, "zeros"),
    ],
)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=4)
def test_weights_of_few_bits(chip, rows, k, n, bits, block, form):
    """MatMulNBits: zero points packed or as floats, a group for each k, a bias."""
    rng, blocks = np.random.default_rng(3), -(-k // block)
    arrays = {
        "b": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": (rng.random((n, blocks)) * 0.05 + 0.01).astype(np.float16) / 2 ** max(0, bits - 4),
        "z": None,
        "g": rng.integers(0, blocks, blocks * block).astype(np.int32) if "groups" in form else None,
        "bias": rng.standard_normal(n).astype(np.float16) if "bias" in form else None,
    }
    if "zeros" in form:
        arrays["z"] = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif "floats" in form:
        arrays["z"] = rng.uniform(6, 9, (n, blocks)).astype(np.float16)
    names = ["x", *(name if v is not None else "" for name, v in arrays.items())]
    while names[-1] == "":
        names.pop()
    node = helper.make_node("MatMulNBits", names, ["o"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    tensors = [numpy_helper.from_array(v, name) for name, v in arrays.items() if v is not None]
    m = model([node], [("x", HALF, ["m", k])], ("o", HALF), tensors, ["com.microsoft"])
    device = check(m, chip, {"x": rand(HALF, rows, k)}, TOLERANCE[HALF])
    # For few rows, and for many with the weights unpacked in working memory, of which one runs.
    assert tiles(device) == (1 if "groups" in form or bits == 2 else 2)
    # The weights are nowhere in 16 bits for good.
    assert device.memory(m=1).weights <= sum(v.nbytes for v in arrays.values() if v is not None) + 4096


def few_bits(name, k, n, block=32, seed=3):
    """MatMulNBits of x with 4-bit weights and packed zero points; its node and tensors."""
    rng, blocks = np.random.default_rng(seed), k // block
    arrays = {
        "b": rng.integers(0, 256, (n, blocks, block // 2)).astype(np.uint8),
        "s": (rng.random((n, blocks)) * 0.02 + 0.005).astype(np.float16),
        "z": rng.integers(0, 256, (n, -(-blocks // 2))).astype(np.uint8),
    }
    names = ["x", *(f"{name}.{key}" for key in arrays)]
    node = helper.make_node("MatMulNBits", names, [name], domain="com.microsoft", K=k, N=n, bits=4, block_size=block)
    return node, [numpy_helper.from_array(v, f"{name}.{key}") for key, v in arrays.items()]


@pytest.mark.parametrize("form", ["float16", "4 bits", "halves", "float32"])
@pytest.mark.parametrize("chip", CHIPS)
def test_gated_layer(chip, form):
    """silu(x . g) * (x . u) is one kernel, of two products or of one whose halves meet."""
    k, n, tensors, nodes = 128, 36, [], []
    dtype = FLOAT if form == "float32" else HALF
    if form == "4 bits":
        for seed, name in enumerate(("g", "u")):
            node, own = few_bits(name, k, n, seed=seed)
            nodes.append(node)
            tensors += own
    elif form == "halves":
        tensors = [weights("w", HALF, k, 2 * n, scale=0.05), numpy_helper.from_array(np.array([n, n]), "parts")]
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["t"]),
            helper.make_node("Split", ["t", "parts"], ["u", "g"], axis=-1),
        ]
    else:
        for seed, name in enumerate(("g", "u")):
            tensors.append(weights(name + "w", dtype, k, n, seed=seed, scale=0.05))
            nodes.append(helper.make_node("MatMul", ["x", name + "w"], [name]))
    nodes += [
        helper.make_node("Sigmoid", ["g"], ["s"]),
        helper.make_node("Mul", ["g", "s"], ["a"]),
        helper.make_node("Mul", ["a", "u"], ["o"]),
    ]
    m = model(nodes, [("x", dtype, ["m", k])], ("o", dtype), tensors, ["com.microsoft"])
    # Without captured graphs, whose launches are not counted.
    device, host = sardonyx.compile(m, device=f"sim:{chip}", graphs=False), sardonyx.compile(m)
    for rows in (1, 4, 13, 70):
        feed = {"x": rand(dtype, rows, k)}
        before = simulated.launches()
        got, want = device.run(feed)["o"].astype(np.float64), host.run(feed)["o"].astype(np.float64)
        # Weights of few bits are unpacked before many rows.
        assert simulated.launches() - before == (2 if form == "4 bits" and rows > 64 else 1)
        # The host keeps each product in 16 bits, which the kernel does not round.
        assert np.abs(got - want).max() <= 3 * TOLERANCE[dtype] * np.abs(want).max()


@pytest.mark.parametrize("bits", [16, 4])
@pytest.mark.parametrize("chip", CHIPS)
def test_rows_are_normalised_in_a_product(chip, bits):
    """RMSNorm before a product: for one row both are one launch, for more of them two."""
    k, n = 256, 40
    if bits == 4:
        node, tensors = few_bits("o", k, n)
    else:
        node, tensors = helper.make_node("MatMul", ["x", "w"], ["o"]), [weights("w", HALF, k, n, scale=0.05)]
    norm = helper.make_node("SimplifiedLayerNormalization", ["r", "gain"], ["x"], axis=-1, epsilon=1e-5, stash_type=1)
    m = model(
        [norm, node], [("r", HALF, ["b", "m", k])], ("o", HALF), [*tensors, weights("gain", HALF, k)], ["com.microsoft"]
    )
    device, host = sardonyx.compile(m, device=f"sim:{chip}", graphs=False), sardonyx.compile(m)
    for rows in ((1, 1), (1, 3), (2, 4), (3, 3), (1, 40)):
        feed = {"r": rand(HALF, *rows, k)}
        before = simulated.launches()
        got, want = device.run(feed)["o"].astype(np.float64), host.run(feed)["o"].astype(np.float64)
        assert simulated.launches() - before == (1 if rows == (1, 1) else 2)
        assert np.abs(got - want).max() <= 2 * TOLERANCE[HALF] * np.abs(want).max()  # a, too, is rounded


def integers(dtype, *shape, seed=5):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("a_type, b_type", [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize("each", [False, True], ids=["one zero point", "one for each column"])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.slow(part=4)
def test_integer_gemm(chip, a_type, b_type, each):
    onnx_type = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    b, zb = integers(b_type, 100, 72), integers(b_type, 72 if each else 1, seed=6)
    if not each:
        zb = zb.reshape(())
    m = model(
        [helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["o"])],
        [("a", onnx_type[a_type], [2, "m", 100]), ("za", onnx_type[a_type], [])],
        ("o", TensorProto.INT32),
        [
            helper.make_tensor("b", onnx_type[b_type], b.shape, b.tobytes(), raw=True),
            helper.make_tensor("zb", onnx_type[b_type], zb.shape, zb.tobytes(), raw=True),
        ],
    )
    a, za = integers(a_type, 2, 37, 100), integers(a_type, seed=9)
    device = check(m, chip, {"a": a, "za": za}, 0)
    want = np.matmul(a.astype(np.int32) - za.astype(np.int32), b.astype(np.int32) - zb.astype(np.int32))
    np.testing.assert_array_equal(device.run({"a": a, "za": za})["o"], want)
    assert tiles(device) == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_integer_convolution(chip):
    w = integers(np.int8, 24, 16, 3, 3)
    m = model(
        [helper.make_node("ConvInteger", ["x", "w", "zx"], ["o"], pads=[1, 1, 1, 1], strides=[2, 1])],
        [("x", TensorProto.UINT8, ["n", 16, 9, 8]), ("zx", TensorProto.UINT8, [])],
        ("o", TensorProto.INT32),
        [helper.make_tensor("w", TensorProto.INT8, w.shape, w.tobytes(), raw=True)],
    )
    feed = {"x": integers(np.uint8, 2, 16, 9, 8), "zx": np.array(131, np.uint8)}
    assert tiles(check(m, chip, feed, 0)) == 1


@pytest.mark.parametrize("precision, tolerance", [("fp16", 2e-3), ("bf16", 2e-2)])
@pytest.mark.parametrize("chip", CHIPS)
def test_precision(chip, precision, tolerance):
    """float32 models with 16 bits inside: within a few roundings (2^-11, 2^-8) of the host's float32."""
    m = model(
        [
            helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4),
            helper.make_node("Relu", ["y"], ["z"]),
            helper.make_node("Conv", ["z", "v"], ["u"], pads=[1] * 4),
            helper.make_node("Add", ["u", "z"], ["t"]),
            helper.make_node("Softmax", ["t"], ["o"], axis=1),
        ],
        [("x", FLOAT, ["n", 16, 12, 12])],
        ("o", FLOAT),
        [weights("w", FLOAT, 32, 16, 3, 3, scale=0.1), weights("v", FLOAT, 32, 32, 3, 3, scale=0.05)],
    )
    feed = {"x": rand(FLOAT, 2, 16, 12, 12)}
    want = sardonyx.compile(m).run(feed)["o"]
    device = sardonyx.compile(m, device=f"sim:{chip}", precision=precision)
    got = device.run(feed)["o"]
    assert got.dtype == np.float32 and np.abs(got - want).max() <= tolerance * np.abs(want).max()
    full = sardonyx.compile(m, device=f"sim:{chip}")
    assert not np.array_equal(full.run(feed)["o"], got)  # it does something


@pytest.mark.parametrize("chip", CHIPS)
def test_masks_stay_finite_in_fp16(chip):
    """A row that is masked out as a whole is uniform, as in float32, not NaN. Scores of the order of 10 rounded to 11 bits move
    probabilities by up to 2^-8."""
    lowest = helper.make_tensor("low", FLOAT, [], [float(np.finfo(np.float32).min)])
    m = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["s"]),
            helper.make_node("Mul", ["mask", "low"], ["far"]),
            helper.make_node("Add", ["s", "far"], ["t"]),
            helper.make_node("Softmax", ["t"], ["p"]),
            helper.make_node("MatMul", ["p", "v"], ["o"]),
        ],
        [("x", FLOAT, ["m", 32]), ("mask", FLOAT, ["m", 40])],
        ("o", FLOAT),
        [lowest, weights("w", FLOAT, 32, 40), weights("v", FLOAT, 40, 16)],
    )
    mask = np.zeros((6, 40), np.float32)
    mask[2] = 1
    mask[4, 7:] = 1
    feed = {"x": rand(FLOAT, 6, 32), "mask": mask}
    got = sardonyx.compile(m, device=f"sim:{chip}", precision="fp16").run(feed)["o"]
    want = sardonyx.compile(m).run(feed)["o"]
    assert np.abs(got - want).max() <= 5e-3 * np.abs(want).max()


# Few tiles and large K: workgroups share K of a tile, and a second kernel adds up what they have (test_tuning.py
# makes sure that such tilings are among the candidates; the model of cost prefers them here).
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("batch, m, n, k", [([], 40, 72, 2048), ([3], 7, 33, 1024), ([], "m", 64, 1024)])
@pytest.mark.slow(part=4)
def test_shared_k(chip, dtype, batch, m, n, k):
    rows = 33 if m == "m" else m
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Add", ["q", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    inputs = [("x", dtype, [*batch, m, k]), ("r", dtype, [*batch, m, n])]
    constants = [weights("w", dtype, *batch, k, n, scale=k**-0.5), weights("b", dtype, n, seed=3)]
    feed = {"x": rand(dtype, *batch, rows, k), "r": rand(dtype, *batch, rows, n, seed=5)}
    check(model(nodes, inputs, ("y", dtype), constants), chip, feed, TOLERANCE[dtype])


@pytest.mark.parametrize("chip", CHIPS)
def test_shared_k_of_a_convolution(chip):
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    constants = [weights("w", HALF, 32, 256, 3, 3, scale=0.02), weights("b", HALF, 32, seed=3)]
    m = model([node], [("x", HALF, ["n", 256, 7, 7])], ("y", HALF), constants)
    check(m, chip, {"x": rand(HALF, 1, 256, 7, 7)}, TOLERANCE[HALF])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize(("m", "k", "n"), [(67, 64, 64), (130, 32, 200), (5, 64, 37), (66, 40, 255)])
@pytest.mark.slow(part=4)
def test_epilogues_that_read_tensors(chip, dtype, m, k, n):
    """What is added lies after the last row and column too, unless it is left alone there; of few and many columns."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
        helper.make_node("Add", ["z", "r"], ["s"]),
        helper.make_node("Mul", ["s", "t"], ["u"]),
        helper.make_node("Sigmoid", ["u"], ["g"]),
        helper.make_node("Mul", ["u", "g"], ["o"]),
    ]
    inputs = [("x", dtype, ["m", k]), ("r", dtype, ["m", n]), ("t", dtype, ["m", 1])]
    ends = [weights("w", dtype, k, n, scale=k**-0.5), weights("b", dtype, n, seed=8)]
    feed = {"x": rand(dtype, m, k), "r": rand(dtype, m, n, seed=2), "t": rand(dtype, m, 1, seed=3)}
    device = check(model(nodes, inputs, ("o", dtype), ends), chip, feed, 3 * TOLERANCE[dtype])
    assert len(device.kernels()) == 1


@pytest.mark.parametrize("chip", CHIPS)
def test_channels_last_through_a_transposition_and_a_residual(chip):
    """A speech encoder's start: convolutions of one dim, tokens of them, and the first residual of its layers."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1], strides=[2]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Add", ["t", "p"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "g"], ["l"], axis=-1),
        helper.make_node("MatMul", ["l", "w3"], ["m"]),
        helper.make_node("Add", ["m", "h"], ["o"]),
    ]
    ends = [
        weights("w1", FLOAT, 32, 16, 3, scale=0.2),
        weights("w2", FLOAT, 32, 32, 3, seed=8, scale=0.2),
        weights("p", FLOAT, 10, 32, seed=9),
        weights("g", FLOAT, 32, seed=10),
        weights("w3", FLOAT, 32, 32, seed=11, scale=0.2),
    ]
    m = model(nodes, [("x", FLOAT, ["n", 16, 20])], ("o", FLOAT), ends)
    device = check(m, chip, {"x": rand(FLOAT, 2, 16, 20)}, 1e-5)
    # The image's layout, two convolutions, the rows and the product: no copy between the convolutions.
    assert len(device.kernels()) == 5
