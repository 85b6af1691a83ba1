"""Shared by the tests of loop kernels on simulated AMD GPUs: chips, data, and the comparison with the host."""

import ml_dtypes
import numpy as np
import onnx.parser
import sardonyx

CHIPS = ["gfx942", "gfx1100"]  # waves of 64 and of 32 threads
TYPES = {
    "float": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "double": np.float64,
    "uint8": np.uint8,
}


def parse(text, opset=18):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def rand(dtype, *shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 3
    return np.abs(x * 40).astype(dtype) if np.issubdtype(dtype, np.integer) else x.astype(dtype)


def compare(text, chip, feeds, rtol=1e-5, atol=1e-6, opset=18):
    """The device gives what the host gives."""
    model = parse(text, opset)
    host, gpu = sardonyx.compile(model), sardonyx.compile(model, device=f"sim:{chip}")
    for feed in feeds:
        want, got = host.run(feed), gpu.run(feed)
        for name in want:
            assert got[name].dtype == want[name].dtype
            np.testing.assert_allclose(
                got[name].astype(np.float64),
                want[name].astype(np.float64),
                rtol=rtol,
                atol=atol,
                err_msg=f"{name} {feed['x'].shape}",
            )
    return gpu
