"""Attention with few keys, all of which a wave has in registers (kernels/attention_short.h, attention_short_mma.h): values beside NumPy in
float64, and the machine code. SARDONYX_TEST_DEVICE=cuda (or hip) also computes the values on a GPU."""

import os
import re

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper
from test_amd_main_loops import instructions
from test_attention_tiles import TOLERANCE, operands, run
from test_gpu_attention import CHIPS, grouped_query, model_of, reference, values

F16 = np.float16
DEVICES = [f"sim:{chip}" for chip in CHIPS] + list(filter(None, [os.environ.get("SARDONYX_TEST_DEVICE")]))
#: batch, heads, heads of keys, queries, keys, elements of a head: rows of keys, heads and groups that fill no tile, vector or step; heads
#: of fewer elements than a vector; one tile of queries and several.
SIZES = [
    (2, 3, 3, 24, 24, 16),
    (1, 4, 2, 39, 39, 32),
    (2, 2, 2, 64, 64, 30),
    (3, 2, 2, 4, 16, 56),
    (1, 3, 3, 5, 7, 9),
    (2, 2, 1, 33, 3, 40),
    (1, 2, 2, 10, 10, 5),
    (1, 1, 1, 17, 77, 24),
    (1, 1, 1, 20, 49, 23),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.slow(part=3)
def test_values(device, size):
    """Plain scores, causal limits, biases of keys and of scores, a list of keys, a soft cap."""
    feed, (b, h, _, s, t, d) = operands(size), size

    def check(want, *mask, **attributes):
        np.testing.assert_allclose(run(device, feed, size, *mask, **attributes), want, rtol=0, atol=TOLERANCE)

    operand, scale = list(feed.values()), d**-0.5
    check(reference(*operand, scale))
    check(reference(*operand, scale, np.arange(t)[None, :] <= np.arange(s)[:, None]), is_causal=1)
    column, bias = values(b, 1, 1, t, dtype=F16, seed=7), values(1, h, s, t, dtype=F16, seed=8)
    check(reference(*operand, scale, True, column), column)
    check(reference(*operand, scale, True, bias), bias)
    allowed = np.random.default_rng(5).random((1, 1, s, t)) < 0.7
    allowed[..., 0] = True
    check(reference(*operand, scale, allowed), allowed)
    check(reference(*operand, scale, softcap=2.0), softcap=2.0)


@pytest.mark.parametrize("device", DEVICES)
def test_keys_that_are_all_masked_alike(device):
    size = (2, 2, 2, 18, 21, 16)
    feed = operands(size)
    got = run(device, feed, size, np.full((2, 1, 1, 21), np.finfo(np.float32).min, np.float32))
    np.testing.assert_allclose(got, reference(*feed.values(), 0.0), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", [-1, 9])
def test_prompt_with_a_cache(device, window):
    """GroupQueryAttention over a prompt: heads share keys, limits of every row, one more score, NaN in what the cache has not filled."""
    b, heads, kv_heads, s, room, d = 2, 6, 2, 21, 44, 40
    model = grouped_query(F16, heads, kv_heads, d, room, b, local_window_size=window, smooth_softmax=1)
    lengths = np.array([s - 1, s - 6], np.int32)
    feed = {
        "q": values(b, s, heads * d, dtype=F16),
        "k": values(b, s, kv_heads * d, dtype=F16, seed=1),
        "v": values(b, s, kv_heads * d, dtype=F16, seed=2),
        "pk": np.full((b, kv_heads, room, d), np.nan, F16),
        "pv": np.full((b, kv_heads, room, d), np.nan, F16),
        "lens": lengths,
        "total": np.array([s], np.int32),
    }
    got = sardonyx.compile(model, device=device).run(feed)["y"].astype(np.float64)
    q = feed["q"].reshape(b, s, heads, d).transpose(0, 2, 1, 3)
    k, v = (feed[n].reshape(b, s, kv_heads, d).transpose(0, 2, 1, 3) for n in "kv")
    row, key = np.arange(s)[:, None], np.arange(s)[None, :]
    allowed = (key <= row) & ((row - key < window) | (window < 0))
    want = reference(q, k, v, d**-0.5, allowed, sink=0.0).transpose(0, 2, 1, 3).reshape(b, s, heads * d)
    for i, last in enumerate(lengths):  # rows after a sequence's last token are padding
        np.testing.assert_allclose(got[i, : last + 1], want[i, : last + 1], rtol=0, atol=TOLERANCE)


def heads_side_by_side(b, s, h, d, dtype):
    """Queries, keys and values of a head in one row of a GEMM's result; results likewise."""
    nodes = [
        helper.make_node("Reshape", ["x", "split"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
        helper.make_node("Split", ["t"], ["q0", "k0", "v0"], num_outputs=3, axis=0),
        *(helper.make_node("Squeeze", [n + "0", "zero"], [n]) for n in "qkv"),
        helper.make_node("Attention", ["q", "k", "v"], ["z"]),
        helper.make_node("Transpose", ["z"], ["w"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["w", "joined"], ["y"]),
    ]
    constants = {"split": [0, s, 3, h, d], "joined": [0, s, h * d], "zero": [0]}
    tensors = [helper.make_tensor(n, onnx.TensorProto.INT64, [len(v)], v) for n, v in constants.items()]
    return model_of(nodes, {"x": (dtype, [b, s, 3 * h * d])}, {"y": (dtype, [b, s, h * d])}, initializers=tensors)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", [30, 13])
@pytest.mark.parametrize("dtype", [F16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
def test_rows_that_are_not_aligned(device, d, dtype):
    """Also with an unknown batch, so that the grid follows from it. Values of bfloat16 have 8 bits."""
    b, s, h = 3, 35, 2
    x = values(b, s, 3 * h * d).astype(dtype)
    got = sardonyx.compile(heads_side_by_side("b", s, h, d, dtype), device=device).run({"x": x})["y"]
    q, k, v = x.astype(np.float64).reshape(b, s, 3, h, d).transpose(2, 0, 3, 1, 4)
    want = reference(q, k, v, d**-0.5).transpose(0, 2, 1, 3).reshape(b, s, h * d)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=TOLERANCE * (1 if dtype == F16 else 8))


def test_several_tiles_of_a_wave():
    """CDNA: with a wave for each SIMD, a wave has several tiles of queries, the next of which it loads ahead."""
    size = (110, 2, 2, 100, 20, 16)
    feed = operands(size)
    np.testing.assert_allclose(run("sim:gfx90a", feed, size), reference(*feed.values(), 0.25), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("d", [32, 30])
def test_machine_code(chip, d, tmp_path):
    """No barrier, no spilled register, nothing stored to LDS, and only loads of whole vectors, also of rows that are not aligned."""
    model = heads_side_by_side(64, 48, 4, d, F16)
    onnx.save(model, tmp_path / "m.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "m.onnx", chip, tmp_path)]
    assert sum(bool(re.search(r"v_(mfma|wmma)_", text)) for text in code) >= 8
    assert not [
        text for text in code if re.search(r"s_barrier|scratch_|buffer_(load|store)|ds_(read|load|write|store)", text)
    ]
    assert not [text for text in code if re.search(r"global_load_(u?short|d16|u16)", text)]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("d", "load"), [(32, "v4.b32"), (30, "b32")])
def test_nvidia_code(arch, d, load, tmp_path):
    """Products of matrices and a transposition in registers, no barrier, nothing in shared memory, and only loads of whole vectors."""
    onnx.save(heads_side_by_side(64, 48, 4, d, F16), tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", "", "--quiet")
    kernels = (tmp_path / "m.sdx").read_bytes().decode("latin1").split(".entry ")[1:]
    (kernel,) = [k for k in kernels if "movmatrix" in k]
    assert "mma.sync" in kernel
    assert not re.search(r"bar\.sync|barrier|\.shared", kernel)
    assert set(re.findall(r"ld\.global[.a-z0-9:]*?\.((?:v\d\.)?[a-z]\d+)\b", kernel)) == {load}
