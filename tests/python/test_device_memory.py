"""A model on a GPU stores its weights once, and takes at most 1.15 times the memory that is live at any moment, while it is loaded and while it runs.

`memory_in_use().peak` counts every byte that a model allocates from the driver; `memory().live` is the least that a run needs, however its tensors are
placed. A simulated GPU counts like a real one; SARDONYX_TEST_DEVICE=cuda (or hip) runs every model on a GPU.
"""

import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import models  # noqa: E402

FOLDER = models.folder()
FOUND = models.find(FOLDER, ROOT / "build" / "models") if FOLDER else {}
CARD = os.environ.get("SARDONYX_TEST_DEVICE", "host")
CHIP = "sim:gfx1100" if CARD == "host" else CARD
# Trained models that a simulated GPU loads and runs in seconds.
RUNS = [
    "dtln_1",
    "face_detection_front_128x128_barracuda",
    "melspectrogram",
    "silero_vad_v5",
    "magika_v3_3",
    "embedding_model",
]
# Branches allocate what they need when they are taken; `live` does not count it. Blocks come in powers of two.
BRANCHES = {"silero_vad_v5": 64 << 10}
# How often a file's weights lie there, apart from what pads rows of a few channels: two filters of basic_pitch are used by convolutions of one
# channel with strides from 1 to 256, and a filter has an arrangement for each stride.
ARRANGED = {"basic_pitch": 3.0}
PART = 1.15
# Each tensor begins at a multiple of 256 bytes; models of some hundred kilobytes notice.
ROUNDING = 16 << 10


def limit(model, dims, extra=0):
    names = set(model._native.symbols())
    dims = {name: size for name, size in dims.items() if name in names}
    if "state.1" in names:
        dims["state.1"] = dims["input.0"]
    return model.memory_in_use().constants + PART * model.memory(dims).live + ROUNDING + extra


def check_model(name, precision, run):
    """Loads a model, and runs it at its two smallest sizes."""
    path = models.fill(FOLDER, FOUND[name])
    model = sardonyx.compile(path, device=CHIP, precision=precision)
    sizes, extra = models.SIZES.get(name, [{}]), BRANCHES.get(name, 0)
    # Weights are there once: what is kept is no more than the file's, apart from what pads rows of a few channels.
    assert model.memory_in_use().constants <= ARRANGED.get(name, 1.05) * path.stat().st_size
    # Loading is done before any run: the smallest run's limit holds for it.
    assert model.memory_in_use().peak <= min(limit(model, size) for size in sizes)
    for size in sorted(sizes, key=lambda s: limit(model, s))[:2] if run else []:
        model.run(models.inputs(path, size))
        assert model.memory_in_use().peak <= limit(model, size, extra), size


NEEDS = pytest.mark.skipif(FOLDER is None, reason="no folder of models: set SARDONYX_MODELS")


@NEEDS
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("name", RUNS[:4])
def test_loading_and_running(name, precision):
    check_model(name, precision, run=True)


@NEEDS
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("name", RUNS[4:])
def test_loading_and_running_longer(name, precision):
    check_model(name, precision, run=True)


@NEEDS
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("name", [n for n in FOUND if n not in RUNS] or ["none"])
def test_loading(name, precision):
    check_model(name, precision, run=not CHIP.startswith("sim:"))


def products(path, widths, shared=False):
    rng = np.random.default_rng(3)
    nodes, weights, x = [], [], "x"
    for k, (rows, cols) in enumerate(zip(widths, widths[1:])):
        w = rng.standard_normal((rows, cols)).astype(np.float32) / np.float32(rows**0.5)
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{k}"], [f"y{k}"]))
        x = f"y{k}"
    if shared:  # used as it is, and transposed and scaled when the model is loaded
        nodes.append(helper.make_node("Transpose", ["w0"], ["t"], perm=[1, 0]))
        nodes.append(helper.make_node("Mul", ["t", "t"], ["tt"]))
        nodes.append(helper.make_node("MatMul", [x, "tt"], ["last"]))
        x = "last"
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", widths[0]])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(
    "widths, shared",
    [
        ([64, 4096], False),
        ([512, 512, 512, 512, 512], False),
        ([128, 1024, 32, 2048, 8], False),
        ([1024, 256, 256], True),
    ],
    ids=["one weight", "equal weights", "unequal weights", "a weight of two uses"],
)
def test_products(widths, shared, precision, tmp_path):
    path = products(tmp_path / "m.onnx", widths, shared)
    model, host = sardonyx.compile(path, device=CHIP, precision=precision), sardonyx.compile(path)
    dims = {"n": 3}
    assert model.memory_in_use().peak <= limit(model, dims)
    x = np.random.default_rng(4).standard_normal((3, widths[0])).astype(np.float32)
    (got,), (want,) = model.run({"x": x}).values(), host.run({"x": x}).values()
    # Where loading works in pinned memory, it must compute the same: sums of up to 2048 products; in fp16 of 11 bits each.
    assert np.abs(got - want).max() <= (1e-5 if precision == "fp32" else 4 * 2**-11) * np.abs(want).max()
    assert model.memory_in_use().peak <= limit(model, dims)
