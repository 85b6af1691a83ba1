"""Rows that are put together from parts: softmax and norms over Concat and Pad. Where parts are whole packs, each pack is loaded at
once from its part (codegen/gpu_row_plan.cpp); otherwise element by element. The reference is NumPy, in float64.
"""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
DEVICES = ["host", "sim:gfx942", "sim:gfx1100", *NVIDIA]

#: sizes of the parts, the first of which is also the padding before the mask; rows
CASES = {
    "packs": ([32, 512], 6),
    "three parts": ([16, 8, 40], 5),
    "odd": ([33, 95], 4),  # a pack would be in two parts
    "odd sum": ([32, 65], 4),
    "one pack": ([8, 64], 3),
    "long": ([128, 5000], 2),  # not in registers
}


def make_model(parts, rows, kind=TensorProto.FLOAT16):
    rest = sum(parts[1:])
    infos = {f"p{k}": ["batch", rows, n] for k, n in enumerate(parts)} | {"mask": ["batch", rest]}
    nodes = [
        helper.make_node("Concat", [f"p{k}" for k in range(len(parts))], ["scores"], axis=-1),
        helper.make_node("Pad", ["mask", "pads"], ["padded"]),
        helper.make_node("Unsqueeze", ["padded", "axes"], ["masks"]),
        helper.make_node("Add", ["scores", "masks"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"], axis=-1),
    ]
    numbers = {"pads": [0, parts[0], 0, 0], "axes": [1]}
    graph = helper.make_graph(
        nodes,
        "parts",
        [helper.make_tensor_value_info(n, kind, s) for n, s in infos.items()],
        [helper.make_tensor_value_info("y", kind, ["batch", rows, sum(parts)])],
        [helper.make_tensor(n, TensorProto.INT64, [len(x)], x) for n, x in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_softmax_of_parts(device, name):
    parts, rows = CASES[name]
    rng = np.random.default_rng(1)
    feed = {f"p{k}": rng.standard_normal((2, rows, n)).astype(np.float16) for k, n in enumerate(parts)}
    feed["mask"] = np.where(rng.random((2, sum(parts[1:]))) < 0.2, -np.inf, 0).astype(np.float16)
    x = np.concatenate([feed[f"p{k}"].astype(np.float64) for k in range(len(parts))], -1)
    x += np.pad(feed["mask"].astype(np.float64), ((0, 0), (parts[0], 0)))[:, None]
    want = np.exp(x - x.max(-1, keepdims=True))
    want /= want.sum(-1, keepdims=True)
    got = sardonyx.compile(make_model(parts, rows).SerializeToString(), device=device).run(feed)["y"]
    # Results are rounded to 11 bits, or to multiples of 2^-24; sums of scores and mask are exact.
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2.0**-9, atol=2.0**-24)


@pytest.mark.parametrize(("parts", "loads"), [([32, 512], True), ([33, 95], False)])
def test_code(tmp_path, parts, loads):
    """Both parts and the mask are loaded 16 bytes at a time, if packs lie in one part."""
    onnx.save(make_model(parts, 64), tmp_path / "m.onnx")
    options = ["--arch", "sm_90a", "--fix", "batch=8", "--cache-dir", tmp_path]
    cli("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.sdx", *options)
    text = (tmp_path / "m.sdx").read_bytes()
    assert (text.count(b"ld.global.v4") + text.count(b"ld.global.nc.v4") >= 3) == loads
