"""Windows over small images and many channels, whose last tile overlaps with the one before, compared with the host.

SARDONYX_TEST_DEVICE=cuda (or hip) runs all of them on a GPU; without it, three run on a simulated one. ptxas once chose the wrong half of a
register for the edge of such a tile, which no simulated AMD GPU shows.
"""

import os

import numpy as np
import onnx.numpy_helper
import pytest
import sardonyx
from simulated_loops import parse, rand

CARD = os.environ.get("SARDONYX_TEST_DEVICE", "")
DEVICES = [CARD] if CARD not in ("", "host") else ["sim:gfx1100", "sim:gfx942"]
# batch, height, width, channels, channels of a group, kernel
FEW = [(8, 7, 7, 768, 1, 7), (8, 5, 5, 768, 1, 7), (2, 9, 11, 128, 4, 3)]
MANY = [(8, size, size, 768, 1, kernel) for size in range(5, 15) for kernel in (3, 5, 7, 9, 11)] + [
    (n, 13, size, 4 * c, group, kernel)
    for n, c in ((1, 24), (16, 240))
    for size in (7, 13, 17)
    for group in (1, 2, 4)
    for kernel in (3, 7)
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n, height, width, channels, group, kernel", FEW + (MANY if CARD in ("cuda", "hip") else []))
def test_convolution(device, n, height, width, channels, group, kernel):
    pad = kernel // 2
    attributes = f"group = {channels // group}, pads = [{pad}, {pad}, {pad}, {pad}]"
    model = parse(f"""g (float16[{n}, {height}, {width}, {channels}] x) => (float16[{n}, {height}, {width}, {channels}] y) {{
      t = Transpose <perm = [0, 3, 1, 2]> (x)
      c = Conv <{attributes}> (t, f, b)
      y = Transpose <perm = [0, 2, 3, 1]> (c)
    }}""")
    weights = {
        "f": rand(np.float16, channels, group, kernel, kernel, seed=3) / 4,
        "b": rand(np.float16, channels, seed=4),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in weights.items())
    feed = {"x": rand(np.float16, n, height, width, channels, seed=5) / 4}
    want = sardonyx.compile(model).run(feed)["y"].astype(np.float64)
    got = sardonyx.compile(model, device=device).run(feed)["y"].astype(np.float64)
    # Both round a sum of up to 500 terms in float32, of about 1, to float16.
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


#: Windows over small images: an operator with its attributes, height and width.
WHOLE = {
    "conv": ("Conv", "kernel_shape = [7, 7], pads = [3, 3, 3, 3]", 7, 7),
    "steps": ("Conv", "kernel_shape = [5, 5], pads = [2, 1, 2, 3], strides = [2, 2]", 12, 14),
    "far": ("Conv", "kernel_shape = [5, 5], pads = [4, 4, 4, 4], dilations = [2, 2]", 5, 11),
    "mean": ("AveragePool", "kernel_shape = [5, 5], pads = [2, 2, 2, 2]", 9, 13),
    "largest": ("MaxPool", "kernel_shape = [5, 7], pads = [2, 3, 2, 3]", 6, 9),
}


@pytest.mark.parametrize("dtype, batch", [("float16", "4"), ("float16", "n"), ("float", "4")])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("window", WHOLE)
def test_whole_rows(window, last, dtype, batch):
    """On a chip with few compute units, a thread has a whole row of results, beyond which there are no taps. With an unknown batch there is
    code for few images too."""
    operator, attributes, height, width = WHOLE[window]
    n, c = 4, 256 if window == "conv" else 192
    shape = f"{height}, {width}, {c}" if last else f"{c}, {height}, {width}"
    group, weights = (f"group = {c}, ", ", f, b") if operator == "Conv" else ("", "")
    lines = ["t = Transpose <perm = [0, 3, 1, 2]> (x)", "y = Transpose <perm = [0, 2, 3, 1]> (u)"]
    middle = f"{'u' if last else 'y'} = {operator} <{group}{attributes}> ({'t' if last else 'x'}{weights})"
    body = "\n".join([lines[0], middle, lines[1]] if last else [middle])
    model = parse(f"g ({dtype}[{batch}, {shape}] x) => ({dtype}[a, b, c, d] y) {{\n{body}\n}}")
    kind = np.float16 if dtype == "float16" else np.float32
    if operator == "Conv":
        taps = [int(k) for k in attributes.split("[")[1].split("]")[0].split(",")]
        tensors = {"f": rand(kind, c, 1, *taps, seed=3) / 4, "b": rand(kind, c, seed=4)}
        model.graph.initializer.extend(onnx.numpy_helper.from_array(w, name) for name, w in tensors.items())
    host, device = sardonyx.compile(model), sardonyx.compile(model, device="sim:gfx1103")
    for images in (n, 1) if batch == "n" else (n,):
        feed = {"x": rand(kind, images, *map(int, shape.split(",")), seed=5) / 4}
        want, got = (m.run(feed)["y"].astype(np.float64) for m in (host, device))
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
