"""GEMMs and convolutions whose sizes are no whole vectors, or whose operands lie across, in float16 on simulated AMD GPUs beside the host:
sums over several dims, heads of 30 elements, products pixel by pixel, rows of 180, 90 and 25 results, images with a dim divided."""

import numpy as np
import onnx.helper as oh
import pytest
import sardonyx
from onnx import TensorProto, numpy_helper

CHIPS = ["gfx942", "gfx1100"]


def weights(name, *shape):
    """Of sums that keep the size of their terms: float16 then has the same relative error throughout."""
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array((rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5).astype(np.float32), name)


def model(nodes, inputs, stored):
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        stored,
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8)


def graph_convolution():
    """Of a skeleton's 25 joints: the sum over three partitions and the joints."""
    nodes = [
        oh.make_node("Conv", ["x", "w"], ["a"]),
        oh.make_node("Reshape", ["a", "shape"], ["b"]),
        oh.make_node("Einsum", ["b", "adjacent"], ["c"], equation="nkctv,kvw->nctw"),
        oh.make_node("Relu", ["c"], ["y"]),
    ]
    shape = numpy_helper.from_array(np.array([-1, 3, 32, 40, 25]), "shape")
    return model(nodes, {"x": ["n", 16, 40, 25]}, [weights("w", 96, 16, 1, 1), weights("adjacent", 3, 25, 25), shape])


def several_sums():
    """Written as a product and a sum over two dims."""
    nodes = [
        oh.make_node("Unsqueeze", ["x", "last"], ["a"]),
        oh.make_node("Mul", ["a", "w"], ["b"]),
        oh.make_node("ReduceSum", ["b", "axes"], ["y"], keepdims=0),
    ]
    stored = [
        weights("w", 12, 10, 48),
        numpy_helper.from_array(np.array([3]), "last"),
        numpy_helper.from_array(np.array([1, 2]), "axes"),
    ]
    return model(nodes, {"x": ["n", 12, 10]}, stored)


def odd_heads():
    """Heads of 30 elements become the K of a linear layer of 180, with a residual."""
    nodes = [
        oh.make_node("MatMul", ["x", "q"], ["a"]),
        oh.make_node("Reshape", ["a", "heads"], ["b"]),
        oh.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3]),
        oh.make_node("Softmax", ["c"], ["d"], axis=2),
        oh.make_node("Transpose", ["d"], ["e"], perm=[0, 2, 1, 3]),
        oh.make_node("Reshape", ["e", "rows"], ["f"]),
        oh.make_node("MatMul", ["f", "w"], ["g"]),
        oh.make_node("Add", ["g", "x"], ["y"]),
    ]
    stored = [
        weights("q", 180, 180),
        weights("w", 180, 180),
        numpy_helper.from_array(np.array([0, 64, 6, 30]), "heads"),
        numpy_helper.from_array(np.array([0, 64, 180]), "rows"),
    ]
    return model(nodes, {"x": ["n", 64, 180]}, stored)


def pixel_by_pixel(tokens):
    """The multiplicative update of a triangle of pairs: a product for each channel, which is innermost."""
    nodes = [
        oh.make_node("Mul", ["x", "scale"], ["a"]),
        oh.make_node("Einsum", ["a", "z"], ["y"], equation="bikc,bjkc->bijc"),
    ]
    stored = [numpy_helper.from_array(np.float32(tokens**-0.5), "scale")]
    return model(nodes, {k: ["n", tokens, tokens, 24] for k in "xz"}, stored)


def rows_of(columns):
    nodes = [oh.make_node("MatMul", ["x", "w"], ["a"]), oh.make_node("Add", ["a", "r"], ["y"])]
    return model(nodes, {"x": ["n", 96], "r": ["n", columns]}, [weights("w", 96, columns)])


def odd_images(channels, outputs, taps):
    nodes = [
        oh.make_node("Conv", ["x", "v"], ["a"]),
        oh.make_node("Conv", ["a", "w"], ["y"], pads=[taps // 2] * 4),
    ]
    stored = [weights("v", channels, 8, 1, 1), weights("w", outputs, channels, taps, taps)]
    return model(nodes, {"x": ["n", 8, 12, 10]}, stored)


def divided_dim():
    """Pooling by attention, as in models of genomes: pairs of neighbours become a dim of the image."""
    nodes = [
        oh.make_node("Conv", ["x", "v"], ["a"], pads=[2, 2]),
        oh.make_node("Reshape", ["a", "pairs"], ["b"]),
        oh.make_node("Conv", ["b", "w"], ["c"]),
        oh.make_node("Softmax", ["c"], ["d"]),
        oh.make_node("Mul", ["b", "d"], ["e"]),
        oh.make_node("ReduceSum", ["e", "last"], ["y"], keepdims=0),
    ]
    stored = [
        weights("v", 48, 16, 5),
        weights("w", 48, 48, 1, 1),
        numpy_helper.from_array(np.array([0, 48, 30, 2]), "pairs"),
        numpy_helper.from_array(np.array([3]), "last"),
    ]
    return model(nodes, {"x": ["n", 16, 60]}, stored)


def biased_rows():
    """Attention within each row of an alignment, with a bias of each pair of positions that a product computes."""
    heads = numpy_helper.from_array(np.array([0, 0, 33, 4, 16]), "heads")
    scale = numpy_helper.from_array(np.float32(16**-0.5), "scale")
    nodes = [
        *(oh.make_node("MatMul", ["x", k], [f"{k}_rows"]) for k in "qkv"),
        *(oh.make_node("Reshape", [f"{k}_rows", "heads"], [f"{k}_heads"]) for k in "qkv"),
        oh.make_node("Mul", ["q_heads", "scale"], ["scaled"]),
        oh.make_node("Einsum", ["scaled", "k_heads"], ["a"], equation="bsihc,bsjhc->bshij"),
        oh.make_node("MatMul", ["pairs", "p"], ["b"]),
        oh.make_node("Transpose", ["b"], ["c"], perm=[0, 3, 1, 2]),
        oh.make_node("Unsqueeze", ["c", "one"], ["d"]),
        oh.make_node("Add", ["a", "d"], ["e"]),
        oh.make_node("Softmax", ["e"], ["f"]),
        oh.make_node("Einsum", ["f", "v_heads"], ["y"], equation="bshij,bsjhc->bsihc"),
    ]
    stored = [*(weights(k, 64, 64) for k in "qkv"), weights("p", 24, 4), heads, scale]
    stored.append(numpy_helper.from_array(np.array([1]), "one"))
    return model(nodes, {"x": ["n", 5, 33, 64], "pairs": ["n", 33, 33, 24]}, stored)


CASES = {
    "biased_rows": biased_rows,
    "graph_convolution": graph_convolution,
    "several_sums": several_sums,
    "odd_heads": odd_heads,
    "pixel_by_pixel_33": lambda: pixel_by_pixel(33),
    "pixel_by_pixel_40": lambda: pixel_by_pixel(40),
    **{f"rows_of_{n}": lambda n=n: rows_of(n) for n in (180, 90, 25)},
    "36_channels": lambda: odd_images(36, 36, 3),
    "36_channels_one_tap": lambda: odd_images(36, 36, 1),
    "36_to_3": lambda: odd_images(36, 3, 3),
    "divided_dim": divided_dim,
}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", CASES)
def test_values(case, chip):
    made, n = CASES[case](), 33 if case.startswith("rows") else 2
    rng = np.random.default_rng(0)
    feeds = {
        i.name: rng.standard_normal([d.dim_value or n for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in made.graph.input
    }
    want = sardonyx.compile(made)(**feeds)["y"]
    got = sardonyx.compile(made, device=f"sim:{chip}", precision="fp16")(**feeds)["y"]
    # Up to three roundings to float16, each 3e-4 of a value on average; a wrong element differs by about one deviation.
    difference, deviation = np.abs(got - want), want.std()
    assert np.sqrt((difference**2).mean()) < 1.5e-3 * deviation
    assert difference.max() < 2e-2 * deviation
