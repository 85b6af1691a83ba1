"""Branches over one image whose results are added: they become one convolution (the pass merge_convolutions)."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import sardonyx


def weights(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("identity", ["batch norm", "image", "scaled", "none"])
@pytest.mark.parametrize(
    "channels, out, groups, kernel, pads, stride, dilation",
    [
        (16, 16, 1, 3, (1, 1, 1, 1), 1, 1),
        (32, 32, 32, 3, (1, 1, 1, 1), 1, 1),  # depthwise
        (24, 24, 4, 5, (2, 2, 2, 2), 1, 1),
        (16, 16, 2, 3, (2, 2, 2, 2), 1, 2),
        (16, 24, 1, 3, (1, 1, 1, 1), 2, 1),
        (16, 16, 1, 3, (0, 0, 2, 2), 1, 1),  # the first tap reads the same pixel
        (16, 16, 1, 1, (0, 0, 0, 0), 1, 1),
    ],
)
@pytest.mark.slow(part=4)
def test_branches(channels, out, groups, kernel, pads, stride, dilation, identity):
    rng = np.random.default_rng(0)
    arrays = {
        "w": weights(rng, out, channels // groups, kernel, kernel),
        "v": weights(rng, out, channels // groups, 1, 1),
        "u": weights(rng, out, channels // groups, kernel, kernel),
        "b": weights(rng, out),
        "scale": weights(rng, channels),
        "shift": weights(rng, channels),
        "mean": weights(rng, channels),
        "variance": np.abs(weights(rng, channels)) + 0.5,
        "half": np.array(0.5, np.float32),
    }
    form = {"image": "Identity (x)", "scaled": "Mul (half, x)", "none": "Sub (q, q)"}.get(
        identity, "BatchNormalization (x, scale, shift, mean, variance)"
    )
    if stride != 1 or channels != out:
        form = "Sub (q, q)"
    all_pads = ", ".join(map(str, pads))
    window = (
        f"pads = [{all_pads}], strides = [{stride}, {stride}], dilations = [{dilation}, {dilation}], group = {groups}"
    )
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
      g (float[n, {channels}, 13, 14] x) => (float[n, {out}, h, k] y, float[n, {out}, h, k] z) {{
        p = Conv <{window}> (x, w, b)
        q = Conv <strides = [{stride}, {stride}], group = {groups}> (x, v)
        r = Conv <{window}> (x, u)
        i = {form}
        s = Add (p, q)
        t = Add (r, i)
        c = Add (s, t)
        y = Relu (c)
        e = Conv <{window}> (x, u, b)
        z = Add (e, r)
      }}""")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items())
    x = weights(rng, 2, channels, 13, 14)
    want = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    got = sardonyx.compile(model)(x=x)
    for name, expected in zip(("y", "z"), want, strict=True):
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
