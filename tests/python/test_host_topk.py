"""TopK on the host, which drops candidates while it reads a row: against a stable sort."""

import numpy as np
import onnx.parser
import pytest
import sardonyx


def reference(x, k, axis, largest):
    """Of equal elements the one with the lower index comes first; NaN counts as the largest."""
    codes = np.unique(x, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    return np.take(np.argsort(-codes if largest else codes, axis=axis, kind="stable"), np.arange(k), axis=axis)


@pytest.mark.parametrize("kind", ["float", "float16", "int32", "int8", "double"])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("length, k", [(1024, 20), (1000, 1), (5000, 300), (97, 90), (40, 40), (260, 31)])
def test_values_and_indices(kind, largest, length, k):
    dtype = onnx.helper.tensor_dtype_to_np_dtype({"float": 1, "float16": 10, "int32": 6, "int8": 3, "double": 11}[kind])
    rng = np.random.default_rng(0)
    rows = [
        rng.permutation(length),
        np.arange(length),
        -np.arange(length),
        rng.integers(0, 7, length),
        np.zeros(length),
    ]
    x = np.stack([(r % 100 if kind == "int8" else r) for r in rows]).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        x[0, length // 2 :] = np.nan
        x[3, length - 1] = np.nan
        x[4, ::3] = -0.0
    for axis in (0, 1):
        feed = x if axis == 1 else np.ascontiguousarray(x.T)
        n, m = feed.shape
        model = onnx.parser.parse_model(f"""
          <ir_version: 8, opset_import: ["" : 18]>
          g ({kind}[{n}, {m}] x, int64[1] k) => ({kind}[a, b] y, int64[a, b] i) {{
            y, i = TopK <axis = {axis}, largest = {largest}> (x, k)
          }}""")
        got = sardonyx.compile(model)(x=feed, k=np.array([k]))
        want = reference(feed, k, axis, largest)
        np.testing.assert_array_equal(got["i"], want)
        np.testing.assert_array_equal(got["y"], np.take_along_axis(feed, want, axis))
