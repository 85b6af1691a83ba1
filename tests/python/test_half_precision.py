"""precision="fp16" of whole models: errors are at most twice those that rounding to 16 bits causes in any engine.

half_rounding.py measures that: DRAWS runs of the model in ONNX Runtime in which every float is rounded, each somewhere within its half
unit. A correct implementation is one more such draw with fewer roundings (fused kernels keep values in float32), so its error, the
greatest and the root mean square of each output, is rarely above the largest of DRAWS = 8 (in one of nine cases, if it rounded as often).
Twice that is beyond any draw that was observed: for errors that are one normal variable times a tensor, the heaviest tail among these models
(basic_pitch normalises by a minimum, which shifts all it computes from), the largest of 8 is about 1.6 sigma, and 3.2 sigma come once in 700.

SARDONYX_TEST_DEVICE=cuda (or hip) runs every model on a GPU; without it, those that a simulated GPU runs in seconds. The host is not
tested: it computes in float32 with any precision.
"""

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import sardonyx
from half_rounding import TIMES, Rounding, measure, ratios, scale
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import models  # noqa: E402

FOLDER = models.folder()
FOUND = models.find(FOLDER, ROOT / "build" / "models") if FOLDER else {}
CARD = os.environ.get("SARDONYX_TEST_DEVICE", "")
DEVICE = CARD if CARD not in ("", "host") else "sim:gfx1100"
SMALL = [
    "dtln_1",
    "embedding_model",
    "magika_v3_3",
    "face_detection_front_128x128_barracuda",
    "silero_vad_v5",
    "melspectrogram",
]


@pytest.mark.skipif(FOLDER is None, reason="no folder of models: set SARDONYX_MODELS")
@pytest.mark.parametrize("name", FOUND or ["none"])
def test_error_is_within_twice_the_format(name):
    if DEVICE.startswith("sim:") and name not in SMALL:
        pytest.skip("takes minutes on a simulated card: set SARDONYX_TEST_DEVICE to a card")
    sizes = models.SIZES.get(name, [{}])[: 1 if DEVICE.startswith("sim:") else 2]
    worst = measure(models.fill(FOLDER, FOUND[name]), DEVICE, sizes)
    assert max(worst) <= TIMES, worst


def chain(path, layers=6, width=64, wrong=False):
    """Products with rectifiers between them. `wrong`: a bias is missing, of a thousandth of the values."""
    rng = np.random.default_rng(5)
    nodes, weights, x = [], [], "x"
    for k in range(layers):
        w = rng.standard_normal((width, width)).astype(np.float32) * np.float32((2 / width) ** 0.5)
        b = rng.standard_normal(width).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"w{k}"), numpy_helper.from_array(b * (not (wrong and k == 3)), f"b{k}")]
        nodes += [
            helper.make_node("Gemm", [x, f"w{k}", f"b{k}"], [f"y{k}"]),
            helper.make_node("Relu", [f"y{k}"], [f"z{k}"]),
        ]
        x = f"z{k}"
    graph = helper.make_graph(
        nodes[:-1],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, width])],
        [helper.make_tensor_value_info(f"y{layers - 1}", TensorProto.FLOAT, [16, width])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.mark.parametrize("case", ["right", "bfloat16", "a wrong model"])
def test_the_bound_tells_right_from_wrong(case, tmp_path):
    feed = {"x": np.random.default_rng(6).standard_normal((16, 64)).astype(np.float32)}
    rounding = Rounding(chain(tmp_path / "m.onnx"))
    path = chain(tmp_path / "n.onnx", wrong=case == "a wrong model")
    model = sardonyx.compile(path, device=DEVICE, precision="bf16" if case == "bfloat16" else "fp16")
    worst = max(ratios(model.run(feed), *scale(rounding, feed)))
    # bfloat16 has three bits less: eight times the error.
    assert worst <= TIMES if case == "right" else worst > TIMES, worst


def test_draws_are_roundings(tmp_path):
    """One product by an identity: errors of a draw are those of one rounding of each input, weight and output."""
    n = 512
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Transpose", ["y"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, n])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [n, n])],
        [numpy_helper.from_array(np.eye(n, dtype=np.float32), "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    x = np.random.default_rng(1).uniform(1, 2, (n, n)).astype(np.float32)
    nearest, draw = Rounding(tmp_path / "m.onnx").draws({"x": x}, 2)
    assert np.array_equal(nearest[0], x.T.astype(np.float16).astype(np.float64))
    relative = draw[0] / x.T.astype(np.float64) - 1
    # The identity is represented; x and the product are rounded, the transposition only moves: the sum of two uniform variables.
    assert abs(relative.std() - np.sqrt(2 / 3) * 2**-11) < 0.02 * 2**-11
    assert np.abs(relative).max() <= 2.001 * 2**-11
