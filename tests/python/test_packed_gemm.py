"""MatMulNBits of 17 to some hundred rows: values on the host, simulated GPUs and a real NVIDIA GPU, if there is one, and which
kernels Hopper gets, whose text needs no GPU. The reference is NumPy, in float64."""

import re

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import helper, numpy_helper

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
SIMULATED = ["host", "sim:gfx942", "sim:gfx1100"]
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
# Root mean square, relative. Weights are rounded once, and so is the result: by up to 2^-11 each in float16, 2^-8 in
# bfloat16.
TOLERANCE = {F16: 1e-3, BF16: 8e-3}

#: n, k, bits, block, whether there are zero points, and the type if it is not float16
CASES = [
    (256, 512, 4, 32, False),
    (256, 2048, 4, 32, False),  # so many steps that rings of stages wrap around
    (200, 416, 4, 32, False),  # parts of tiles, of both kinds
    (192, 288, 4, 32, True),
    (320, 1024, 4, 128, False),
    (256, 512, 4, 64, True),
    (128, 1024, 8, 32, False),
    (136, 512, 8, 32, True),
    (256, 512, 4, 32, False, BF16),
    (200, 416, 4, 32, True, BF16),
    (136, 512, 8, 32, False, BF16),
    (264, 1024, 4, 64, False),
    (1000, 2048, 4, 128, True),
]
ROWS = (1, 5, 8, 16, 17, 32, 33, 64, 65, 72, 73, 100, 128, 129, 300)


def model_of(n, k, bits, block, zeros, dtype=F16, rows="m", seed=0):
    """The model, and its weights in float64, [k, n]."""
    rng, blocks, half = np.random.default_rng(seed), k // block, 2 ** (bits - 1)
    q = rng.integers(0, 2**bits, (n, blocks, block))
    z = rng.integers(0, 2**bits, (n, blocks)) if zeros else np.full((n, blocks), half)
    scales = ((rng.random((n, blocks)) + 0.5) / (8 * half)).astype(dtype)
    packed, packed_zeros = (
        (x[..., ::2] | x[..., 1::2] << 4).astype(np.uint8) if bits == 4 else x.astype(np.uint8)
        for x in (q, np.pad(z, ((0, 0), (0, blocks % 2))))
    )
    if bits == 8:
        packed_zeros = packed_zeros[:, :blocks]
    tensors = {"q": packed, "s": scales} | ({"z": packed_zeros} if zeros else {})
    node = helper.make_node(
        "MatMulNBits", ["x", *tensors], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, [rows, k])],
        [helper.make_tensor_value_info("y", kind, [rows, n])],
        [numpy_helper.from_array(v, name) for name, v in tensors.items()],
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    whole = (q - z[..., None]) * scales.astype(np.float64)[..., None]
    return helper.make_model(graph, opset_imports=versions, ir_version=10), whole.reshape(n, k).T


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("device", SIMULATED + NVIDIA)
@pytest.mark.slow(part=3)
def test_values(device, case):
    model, weights = model_of(*case)
    compiled = sardonyx.compile(model, device=device)
    for rows in ROWS if not device.startswith("sim") else ROWS[2:9:3]:
        dtype = case[5] if len(case) > 5 else F16
        x = np.random.default_rng(rows).standard_normal((rows, case[1])).astype(dtype)
        want = x.astype(np.float64) @ weights
        error = np.sqrt(np.mean((compiled.run({"x": x})["y"].astype(np.float64) - want) ** 2) / np.mean(want**2))
        assert error < TOLERANCE[dtype], rows


def kernels_of(tmp_path, rows, arch):
    onnx.save(model_of(256, 512, 4, 32, False, rows=rows)[0], tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return re.split(r"(?=\.visible \.entry)", text)[1:]


@pytest.mark.parametrize(
    ("n", "k", "rows", "kernel"),
    [
        (1024, 4096, 8, "skinny<8, 1, 4>"),  # few columns: a tile for each workgroup
        (4096, 4096, 8, "skinny<8, 2, 4>"),  # one wave of workgroups
        (4096, 5120, 16, "skinny<16, 2, 3>"),  # two rounds of five spans
        (6144, 256, 8, "skinny<8, 2, 1>"),  # two waves
        (16384, 256, 8, "skinny<8, 4, 1>"),  # many columns
        (24576, 256, 8, "packed_ring<2, 8, 5, 1, 1>"),
        (4096, 8192, 8, "packed_ring<2, 8, 5, 6, 1>"),  # a long K, which clusters divide
        (6144, 4096, 16, "packed_ring<2, 16, 4, 4, 1>"),
        (16384, 256, 16, "packed_ring<2, 16, 4, 1, 1>"),
        (24576, 256, 32, "packed_ring<4, 32, 4, 1, 1>"),
        (24576, 288, 32, "skinny<32, 4, "),  # no whole stages
        (4096, 512, 32, "skinny<32, 2, 1>"),
        (6144, 512, 32, "skinny<32, 4, 1>"),
        (6144, 4096, 32, "gemm_packed<32, "),
    ],
)
@pytest.mark.slow(part=4)
def test_few_rows_on_hopper(tmp_path, n, k, rows, kernel):
    names = names_of(tmp_path, n, k, rows, False)
    assert names and all(name.startswith(kernel) for name in names)


def test_zero_points_take_the_ring_with_many_columns_only(tmp_path):
    assert all(name.startswith("packed_ring<4, 32, ") for name in names_of(tmp_path, 24576, 256, 32, True))
    assert not any(name.startswith("packed_ring") for name in names_of(tmp_path, 4096, 8192, 16, True))


def names_of(tmp_path, n, k, rows, zeros):
    onnx.save(model_of(n, k, 4, 32, zeros, rows=rows)[0], tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
    return re.findall(r"(?:skinny|gemm_packed|packed_ring)<[0-9, ]+>", text)


@pytest.mark.parametrize("rows", [33, 128])
def test_hopper_dequantises_in_the_gemm(tmp_path, rows):
    """One kernel (and the one that adds up split-K's sums) with wgmma, which loads no operand by TMA."""
    kernels = kernels_of(tmp_path, rows, "sm_90a")
    assert len(kernels) <= 2 and "wgmma.mma_async" in kernels[0] and "cp.async.bulk.tensor" not in kernels[0]


def test_weights_in_registers_do_not_wait_for_the_launch_before(tmp_path):
    onnx.save(model_of(16384, 2048, 4, 32, False, rows=64)[0], tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    (kernel,) = (tmp_path / "m.sdx").read_bytes().decode("latin1").split(".visible .entry")[1:]
    before, _, behind = kernel.partition("griddepcontrol.wait")
    assert "ld.global" in before and "wgmma.mma_async" in behind and "st.global" not in before


@pytest.mark.parametrize("zeros", [False, True])
def test_copies_of_weights_do_not_wait_for_the_launch_before(tmp_path, zeros):
    onnx.save(model_of(24576, 512, 4, 32, zeros, rows=16)[0], tmp_path / "m.onnx")
    cli("compile", tmp_path / "m.onnx", "--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
    (kernel,) = (tmp_path / "m.sdx").read_bytes().decode("latin1").split(".visible .entry")[1:]
    before, _, behind = kernel.partition("griddepcontrol.wait")
    assert "cp.async.cg" in before + behind and "mma.sync" in behind and "st.global" not in before
    # Each role of warps waits for itself: those that copy weights after their first copies.
    copies = [part for part in kernel.split("griddepcontrol.wait") if "cp.async.ca" in part]
    assert copies and "cp.async.mbarrier.arrive" in copies[0]


def test_many_rows_are_multiplied_by_unpacked_weights(tmp_path):
    kernels = kernels_of(tmp_path, 129, "sm_90a")
    assert len(kernels) >= 2 and "wgmma.mma_async" not in kernels[0]
    before, *stores = kernels[0].split("st.global")  # several loads are in flight before the first store
    assert len(stores) == 4 == before.count("ld.global.nc.b32") and not any("ld.global" in x for x in stores)


def test_other_chips_have_no_such_kernel(tmp_path):
    assert not any("wgmma" in k for k in kernels_of(tmp_path, 64, "sm_80"))


@pytest.mark.parametrize("device", SIMULATED[1:])
def test_weights_unpacked_at_load_are_not_unpacked_again(device):
    model = model_of(256, 512, 4, 32, True)[0]
    each, kept = (sardonyx.compile(model, device=device, unpacked_weights=k) for k in (False, True))
    for rows, launches in ((64, (1, 1)), (65, (2, 1)), (300, (2, 1))):
        x = np.ones((rows, 512), np.float16)
        assert tuple(len(m.profile({"x": x})[1]) for m in (each, kept)) == launches, rows
    assert kept.memory(m=1).weights - each.memory(m=1).weights == 256 * 512 * 2


def test_programs_share_weights_unpacked_at_load():
    """Both have the same weights; the second is another program, as it also stores what it has added to."""
    (first, weights), (other, _) = (model_of(1024, 1024, 4, 32, False) for _ in range(2))
    other.graph.node.append(helper.make_node("Add", ["y", "y"], ["twice"]))
    other.graph.output.append(helper.make_tensor_value_info("twice", onnx.TensorProto.FLOAT16, ["m", 1024]))
    compiled = [sardonyx.compile(m, device="sim:gfx942", unpacked_weights=True) for m in (first, other)]
    whole = 1024 * 1024 * 2
    assert compiled[0].memory_in_use().now > whole > compiled[1].memory_in_use().now
    assert compiled[1].memory_in_use().constants == compiled[0].memory_in_use().constants
    del compiled[0]  # the other one keeps what both use
    x = np.zeros((65, 1024), np.float16)
    x[np.arange(65), np.arange(65)] = 1  # each row of the result is a column of the weights
    np.testing.assert_array_equal(compiled[0].run({"x": x})["y"], weights[:65].astype(np.float16))


@pytest.mark.parametrize("case", [CASES[2], CASES[7]], ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("device", SIMULATED[1:] + NVIDIA)
def test_weights_unpacked_at_load_have_the_same_values(device, case):
    model, _ = model_of(*case)
    each, kept = (sardonyx.compile(model, device=device, unpacked_weights=k) for k in (False, True))
    dtype = case[5] if len(case) > 5 else F16
    for rows in (8, 65):
        x = np.random.default_rng(rows).standard_normal((rows, case[1])).astype(dtype)
        same = np.array_equal(each.run({"x": x})["y"], kept.run({"x": x})["y"])
        # On Hopper, 65 to 128 rows take another kernel, which adds up in another order.
        assert same or (device in NVIDIA and rows == 65)
