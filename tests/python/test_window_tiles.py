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
