"""Layers of one network that differ only in N and K share kernels on AMD's GPUs (codegen/kernel_family.h)."""

import re

import numpy as np
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper

HALF = TensorProto.FLOAT16


def layers(sizes, rows):
    """GEMMs one after the other from sizes[0] columns on, each with a bias and ReLU."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], {}, "x"
    for k, (depth, columns) in enumerate(zip(sizes, sizes[1:], strict=False)):
        weights[f"w{k}"] = (rng.standard_normal((depth, columns)) / depth**0.5).astype(np.float16)
        weights[f"b{k}"] = rng.standard_normal(columns).astype(np.float16)
        nodes += [
            helper.make_node("MatMul", [x, f"w{k}"], [f"m{k}"]),
            helper.make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"]),
            helper.make_node("Relu", [f"a{k}"], [f"r{k}"]),
        ]
        x = f"r{k}"
    infos = [helper.make_tensor_value_info("x", HALF, [rows, sizes[0]])]
    out = helper.make_tensor_value_info(x, HALF, [rows, sizes[-1]])
    constants = [helper.make_tensor(n, HALF, w.shape, w.tobytes(), raw=True) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", infos, [out], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), weights


def expected(x, weights):
    for k in range(len(weights) // 2):
        y = x.astype(np.float32) @ weights[f"w{k}"].astype(np.float32) + weights[f"b{k}"].astype(np.float32)
        x = np.maximum(y, 0).astype(np.float16)
    return x


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("rows", [64, 197])
def test_layers_of_other_sizes_compute_what_they_should(chip, rows):
    model, weights = layers([256, 512, 1024, 512, 64, 256], "n")
    x = np.random.default_rng(1).standard_normal((rows, 256)).astype(np.float16)
    (got,) = sardonyx.compile(model, device=f"sim:{chip}")(x=x).values()
    # each layer rounds to float16, and sums of up to 1024 products are added in another order
    np.testing.assert_allclose(got.astype(np.float32), expected(x, weights), rtol=0.02, atol=0.02)


def tiles_of(model, chip, folder):
    """The tiling of each kernel with a text of its own."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    text = cli("inspect", path, "--device", f"sim:{chip}", "--cache-dir", folder / "cache", "--kernels", "--source")
    return re.findall(r"gemm<Tiling<[^>]*>>", text)


@pytest.mark.parametrize("rows", ["n", 49])
def test_layers_that_differ_in_n_and_k_share_kernels(rows, tmp_path):
    tiles = tiles_of(layers([1024, 512, 1024, 2048, 512], rows)[0], "gfx1100", tmp_path)
    assert tiles
    assert len(tiles) == len(set(tiles))


def test_a_known_k_of_few_tiles_has_kernels_of_its_own(tmp_path):
    """On CDNA, where there is no main loop then."""
    tiles = tiles_of(layers([64, 512, 1024, 64], "n")[0], "gfx942", tmp_path)
    assert len(tiles) > len(set(tiles))
