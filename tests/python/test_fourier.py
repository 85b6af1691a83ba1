"""DFT and STFT as routines, beside numpy in float64: the host's form, and device code on simulated AMD GPUs."""

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import TensorProto, helper

DEVICES = ["host", "sim:gfx942", "sim:gfx1100"]  # waves of 64 and of 32 threads
ERROR = 2e-6  # of the largest value: 16 roundings to float32, of which a transform of 8192 elements has 13


def model_of(nodes, inputs, constants=()):
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", given, [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def dft(shape, axis, length, inverse, onesided):
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"], inverse=inverse, onesided=onesided)
    return model_of([node], [("x", shape)], [("length", np.int64(length)), ("axis", np.int64(axis))])


def expected(x, axis, length, inverse, onesided):
    z = x[..., 0].astype(np.float64) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., None]
    y = np.fft.ifft(z, length, axis) if inverse else np.fft.fft(z, length, axis)
    if onesided:
        y = np.take(y, range(length // 2 + 1), axis)
    return np.stack([y.real, y.imag], -1)


def near(got, want):
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=ERROR * np.abs(want).max())


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# shape of x, axis, length, inverse, onesided
CASES = {
    "real": ((3, 400, 1), 1, 400, 0, 1),
    "real, both sides": ((3, 384, 1), 1, 384, 0, 0),
    "real, odd": ((2, 375, 1), 1, 375, 0, 1),
    "real, more than a workgroup transforms at once": ((3, 4000, 1), 1, 4000, 0, 1),
    "real, filled": ((2, 301, 1), 1, 512, 0, 1),
    "real, cut": ((2, 600, 1), 1, 512, 0, 1),
    "real, the longest": ((1, 16384, 1), 1, 16384, 0, 1),
    "to real": ((2, 2001, 2), 1, 4000, 1, 1),
    "to real, odd": ((5, 188, 2), 1, 375, 1, 1),
    "to real, filled": ((2, 150, 2), 1, 400, 1, 1),
    "to real, of reals": ((2, 129, 1), 1, 256, 1, 1),
    "complex": ((5, 8192, 2), 1, 8192, 0, 0),
    "complex, inverse": ((2, 1155, 2), 1, 1155, 1, 0),  # 3 x 5 x 7 x 11
    "complex, large primes": ((2, 391, 2), 1, 391, 0, 0),  # 17 x 23
    "columns": ((2, 130, 19, 1), 1, 130, 0, 1),
    "columns, complex": ((2, 3, 256, 5, 2), 2, 256, 1, 0),
    "columns, to real": ((2, 151, 6, 2), 1, 300, 1, 1),
    "columns that are too long": ((2, 1024, 3, 2), 1, 1024, 0, 0),
    "in two parts": ((1, 32768, 1), 1, 32768, 0, 1),
    "a large prime": ((2, 211, 2), 1, 211, 0, 0),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_transforms(case, device):
    shape, *how = CASES[case]
    x = rand(*shape)
    got = sardonyx.compile(dft(["batch", *shape[1:]], *how), device=device).run({"x": x})["y"]
    near(got, expected(x, *how))


# The host transforms 16 lines at a time, where there are as many.
SIDE_BY_SIDE = {
    "real": ((37, 128, 1), 1, 128, 0, 1),
    "real, both sides": ((19, 256, 1), 1, 256, 0, 0),
    "real, odd": ((16, 375, 1), 1, 375, 0, 1),
    "real, filled": ((20, 301, 1), 1, 512, 0, 1),
    "real, cut": ((20, 600, 1), 1, 512, 0, 1),
    "to real": ((33, 65, 2), 1, 128, 1, 1),
    "to real, odd": ((16, 188, 2), 1, 375, 1, 1),
    "to real, of reals": ((17, 129, 1), 1, 256, 1, 1),
    "complex": ((32, 120, 2), 1, 120, 0, 0),
    "of reals, inverse": ((32, 120, 1), 1, 120, 1, 0),
    "large primes": ((9, 391, 2), 1, 391, 0, 0),
    "columns": ((2, 128, 37, 1), 1, 128, 0, 1),
    "columns, complex": ((2, 3, 96, 16, 2), 2, 96, 1, 0),
    "columns, to real": ((2, 151, 20, 2), 1, 300, 1, 1),
}


@pytest.mark.parametrize("case", SIDE_BY_SIDE)
def test_side_by_side(case):
    shape, *how = SIDE_BY_SIDE[case]
    x = rand(*shape)
    near(sardonyx.compile(dft(shape, *how)).run({"x": x})["y"], expected(x, *how))


@pytest.mark.parametrize("shape", [(20, 128, 1), (2, 128, 20, 1)])
def test_lines_do_not_meet(shape):
    """Each lane is a line: its results do not depend on its neighbours, nor on their number."""
    x = rand(*shape)
    want = sardonyx.compile(dft(shape, 1, 128, 0, 1)).run({"x": x})["y"]
    few = x[:3] if len(shape) == 3 else x[:, :, :3]
    got = sardonyx.compile(dft(few.shape, 1, 128, 0, 1)).run({"x": few})["y"]
    near(got, want[:3] if len(shape) == 3 else want[:, :, :3])
    x[(1, 5) if len(shape) == 3 else (1, 5, 7)] = np.inf
    broken = sardonyx.compile(dft(shape, 1, 128, 0, 1)).run({"x": x})["y"]
    same = np.isfinite(broken).all(axis=(1, 2) if len(shape) == 3 else (1, 3))
    assert same.sum() == same.size - 1


@pytest.mark.parametrize("device", DEVICES)
def test_imaginary_parts_that_are_not_used(device):
    """The bins of the mean and of alternating samples are real."""
    x = rand(2, 129, 2)
    model = sardonyx.compile(dft(x.shape, 1, 256, 1, 1), device=device)
    want = model.run({"x": x})["y"]
    x[:, 0, 1], x[:, 128, 1] = 5, np.nan
    np.testing.assert_array_equal(model.run({"x": x})["y"], want)


@pytest.mark.parametrize("device", DEVICES)
def test_transforms_do_not_meet(device):
    """What is not finite in one of several transforms of a workgroup stays there."""
    x = rand(6, 200, 1)
    model = sardonyx.compile(dft(x.shape, 1, 200, 0, 1), device=device)
    want = model.run({"x": x})["y"]
    x[3, 7] = np.inf
    got = model.run({"x": x})["y"]
    assert not np.isfinite(got[3]).any()
    np.testing.assert_array_equal(np.delete(got, 3, 0), np.delete(want, 3, 0))


@pytest.mark.parametrize("device", DEVICES)
def test_a_product_with_a_spectrum(device):
    """A long convolution: products of spectra are computed by the inverse transform itself, which has one launch."""
    nodes = [
        helper.make_node("DFT", ["x", "n", "axis"], ["f"], onesided=1),
        helper.make_node("Mul", ["f", "filter"], ["w"]),
        helper.make_node("DFT", ["w", "n", "axis"], ["y"], inverse=1, onesided=1),
    ]
    spectrum, x = rand(3, 257, 2), rand(2, 3, 300, 1)
    constants = [("n", np.int64(512)), ("axis", np.int64(2)), ("filter", spectrum)]
    model = model_of(nodes, [("x", ["batch", 3, 300, 1])], constants)
    f = np.fft.rfft(x[..., 0].astype(np.float64), 512, 2)
    w = f.real * spectrum[..., 0] + 1j * f.imag * spectrum[..., 1]
    near(sardonyx.compile(model, device=device).run({"x": x})["y"], np.fft.irfft(w, 512, 2)[..., None])


def test_launches(tmp_path):
    path = tmp_path / "model.onnx"
    for shape, axis in [((2, 400, 1), 1), ((2, 256, 9, 2), 1)]:  # rows; columns, which are not transposed
        onnx.save(dft(["batch", *shape[1:]], axis, shape[axis], 0, 0), path)
        assert cli("compile", path, "--arch", "gfx942", "-o", tmp_path / "program").startswith("1 kernels")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision, error", [("fp16", 1e-3), ("bf16", 8e-3)])  # a rounding of each operand
def test_16_bits(precision, error, device):
    x = rand(4, 320, 1)
    got = sardonyx.compile(dft(x.shape, 1, 320, 0, 1), device=device, precision=precision).run({"x": x})["y"]
    want = expected(x, 1, 320, 0, 1)
    np.testing.assert_allclose(got, want, rtol=0, atol=error * np.abs(want).max())


@pytest.mark.parametrize("device", DEVICES)
def test_short_time_transforms(device):
    node = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"], onesided=1)
    window = np.hanning(400).astype(np.float32)
    constants = [("step", np.int64(160)), ("window", window), ("length", np.int64(400))]
    model = sardonyx.compile(model_of([node], [("x", ["batch", "time", 1])], constants), device=device)
    for time in (400, 2000):
        x = rand(2, time, 1)
        frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], 400, axis=1)[:, ::160] * window
        f = np.fft.rfft(frames.astype(np.float64))
        near(model.run({"x": x})["y"], np.stack([f.real, f.imag], -1))


@pytest.mark.parametrize("device", DEVICES)
def test_no_samples(device):
    """Samples that are missing are 0, also if all are."""
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"])
    constants = [("length", np.int64(256)), ("axis", np.int64(1))]
    model = sardonyx.compile(model_of([node], [("x", ["batch", "time", 1])], constants), device=device)
    np.testing.assert_array_equal(model.run({"x": np.zeros((2, 0, 1), np.float32)})["y"], np.zeros((2, 256, 2)))
    near(model.run({"x": np.ones((2, 1, 1), np.float32)})["y"], np.tile([1.0, 0.0], (2, 256, 1)))
