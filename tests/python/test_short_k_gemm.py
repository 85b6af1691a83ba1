"""GEMMs with a short K, and convolutions whose windows compute several outputs: values beside float64 on the host, simulated cards
and (SARDONYX_TEST_DEVICE=cuda or hip) on a GPU, and the machine code for Hopper."""

import os
import re

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper, numpy_helper

DEVICES = ["host", "sim:gfx942", "sim:gfx1100", *filter(None, [os.environ.get("SARDONYX_TEST_DEVICE")])]
HALF, BF16 = TensorProto.FLOAT16, TensorProto.BFLOAT16
# Of the largest result: one rounding of a sum in float32, and of what is added to it.
TOLERANCE = {HALF: 1.2e-3, BF16: 1e-2}


def model_of(nodes, inputs, dtype, constants):
    inputs = [helper.make_tensor_value_info(name, dtype, x.shape) for name, x in inputs.items()]
    output = helper.make_tensor_value_info(nodes[-1].output[0], dtype, None)
    constants = [numpy_helper.from_array(x, name) for name, x in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def draw(dtype, *shape, seed):
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(helper.tensor_dtype_to_np_dtype(dtype))


def product(m, n, k, dtype=HALF, residual=False, gated=False, batch=()):
    """x times constant weights and a bias, with a `residual` that is added, and multiplied by its sigmoid if `gated`; its inputs, and
    the result in float64."""
    x, w, b = draw(dtype, *batch, m, k, seed=1), draw(dtype, k, n, seed=2), draw(dtype, n, seed=3)
    inputs = {"x": x}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    want = x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64)
    if residual:
        inputs["r"] = draw(dtype, *batch, m, n, seed=4)
        nodes.append(helper.make_node("Add", ["y", "r"], ["sum"]))
        want = want + inputs["r"].astype(np.float64)
    if gated:
        last = nodes[-1].output[0]
        nodes.append(helper.make_node("Sigmoid", [last], ["gate"]))
        nodes.append(helper.make_node("Mul", [last, "gate"], ["gated"]))
        want = want / (1 + np.exp(-want))
    return model_of(nodes, inputs, dtype, {"w": w, "b": b}), inputs, want


def check(model, inputs, want, device, tolerance):
    (got,) = sardonyx.compile(model, device=device).run(inputs).values()
    assert got.shape == want.shape
    assert np.abs(got.astype(np.float64) - want).max() <= tolerance * np.abs(want).max()


# Parts of tiles of rows, of columns and of vectors along K; all numbers of spans that registers hold.
SIZES = [
    (131, 8, 8),
    (1000, 24, 24),
    (700, 40, 16),
    (1025, 136, 32),
    (301, 72, 48),
    (130, 320, 64),
    (257, 32, 104),
    (65, 64, 96),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_products(size, device):
    for options in ({}, {"residual": True, "gated": True}, {"dtype": BF16, "residual": True}):
        model, inputs, want = product(*size, **options)
        check(model, inputs, want, device, TOLERANCE[options.get("dtype", HALF)])


def batched(rows, columns, k, batch):
    """Products of `batch` pairs of matrices that are inputs, with K innermost in both: each has columns of its own."""
    a, b = draw(HALF, batch, rows, k, seed=7), draw(HALF, batch, columns, k, seed=8)
    nodes = [
        helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a", "t"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64).transpose(0, 2, 1), 0)
    return model_of(nodes, {"a": a, "b": b}, HALF, {}), {"a": a, "b": b}, want


@pytest.mark.parametrize("device", DEVICES)
def test_matrices_of_a_batch(device):
    check(*product(333, 48, 24, batch=(3,), residual=True), device, TOLERANCE[HALF])
    for rows, columns, k in ((6, 256, 64), (16, 40, 24), (3, 200, 128), (17, 136, 32)):
        check(*batched(rows, columns, k, 37), device, TOLERANCE[HALF])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "width"),
    [(8, 8, (3, 39), 1, 64), (8, 16, (1, 21), 1, 30), (3, 8, (5, 9), 2, 66), (16, 8, (3, 7), 1, 24)],
)
def test_long_windows_of_few_channels(channels, outputs, kernel, stride, width, device):
    x, w = draw(HALF, 2, channels, 9, width, seed=5), draw(HALF, outputs, channels, *kernel, seed=6)
    y, z = kernel[0] // 2, kernel[1] // 2
    conv = helper.make_node("Conv", ["x", "w"], ["y"], pads=[y, z, y, z], strides=[1, stride])
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (y, y), (z, z)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[:, :, :, ::stride]
    want = np.einsum("bcyxij,ocij->boyx", windows, w.astype(np.float64))
    check(model_of([conv, helper.make_node("Relu", ["y"], ["z"])], {"x": x}, HALF, {"w": w}), {"x": x}, np.maximum(want, 0), device, TOLERANCE[HALF])  # fmt: skip


def kernels(model, tmp_path, arch="sm_90a"):
    """The kernels that multiply matrices."""
    onnx.save(model, tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "--cache-dir", tmp_path, "-o", tmp_path / "m.sdx")
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return [k for k in re.split(r"(?=\.visible \.entry)", text)[1:] if "mma.sync" in k or "wgmma.mma_async" in k]


@pytest.mark.parametrize(("columns", "depth"), [(64, 24), (1152, 24), (32, 96), (24, 64)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_operands_are_loaded_to_registers(columns, depth, residual, arch, tmp_path):
    (kernel,) = kernels(product(50000, columns, depth, residual=residual)[0], tmp_path, arch)
    assert "mma.sync" in kernel and "shared" not in kernel and "bar.sync" not in kernel
    assert "ld.global.nc.v4.b32" in kernel
    assert not re.search(r"st\.global(?!\.v4)", kernel), "results are stored eight at a time"


def test_other_depths_have_tiles_in_shared_memory(tmp_path):
    for depth in (256, 1024):
        assert all("wgmma.mma_async" in k for k in kernels(product(4096, 256, depth)[0], tmp_path))
