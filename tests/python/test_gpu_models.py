"""Whole models on simulated AMD GPUs, compared with the host: trained models, and the first two layers of BERT-Base and of a Llama.

The models are those in the directory SARDONYX_MODELS; test_models.py compares the host with ONNX Runtime.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.utils
import pytest
import sardonyx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import models  # noqa: E402

FOLDER = models.folder()
CHIPS = ["gfx942", "gfx1100"]

pytestmark = pytest.mark.skipif(FOLDER is None, reason="no folder of models: set SARDONYX_MODELS")

# Trained models: sizes of their dims, and the greatest difference as part of the largest value of an output.
TRAINED = {
    "SqueezeNet_fp16": (
        [{}],
        5e-3,  # 26 layers whose values are rounded to float16 (2^-11 each); the host rounds fewer of them
    ),
    "magika_v3_3": ([{"unk__214": 1}], 1e-5),
    "silero_vad_v5": (
        [{"input.0": 1, "input.1": 576}, {"input.0": 2, "input.1": 288}],
        2e-5,  # a spectrum's square roots near 0
    ),
    "face_detection_front_128x128_barracuda": ([{}], 1e-5),
}


def compare(path, device, feeds, tolerance):
    on_host, on_device = sardonyx.compile(path), sardonyx.compile(path, device=device)
    for feed in feeds:
        want, got = on_host.run(feed), on_device.run(feed)
        assert list(want) == list(got)
        for name in want:
            assert (got[name].dtype, got[name].shape) == (want[name].dtype, want[name].shape)
            y, w = got[name].astype(np.float64), want[name].astype(np.float64)
            difference = np.abs(y - w).max(initial=0)
            assert difference <= tolerance * np.abs(w).max(initial=0), f"{name}: {difference}"
    return on_device


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.slow(part=3)
def test_trained_model(name, chip):
    sizes, tolerance = TRAINED[name]
    path = FOLDER / "real" / f"{name}.onnx"
    model = compare(path, f"sim:{chip}", [models.inputs(path, s, n) for n, s in enumerate(sizes)], tolerance)
    assert model.programs == 1


def first_layers(name, path, tmp_path):
    """A skeleton cut after its second layer, with what follows the last one, and seeded random weights."""
    model = onnx.load(FOLDER / "skeletons" / f"{name}.onnx", load_external_data=False)
    if name == "bert_base":
        last, second = "last_hidden_state", "/m/encoder/layer.1/output/LayerNorm/LayerNormalization_output_0"
    else:
        # The stream of residuals in front of a normalisation: the first input of its Pow. Two normalisations a layer.
        norms = [n.input[0] for n in model.graph.node if n.op_type == "Pow"]
        last, second = norms[-1], norms[4]
    for node in model.graph.node:
        for k, i in enumerate(node.input):
            if i == last:
                node.input[k] = second
    for output in model.graph.output:
        if output.name == last:
            output.name = second
    extractor = onnx.utils.Extractor(model)
    cut = extractor.extract_model([i.name for i in model.graph.input], [o.name for o in model.graph.output])
    onnx.save(cut, tmp_path / "cut.onnx")
    subprocess.run([sys.executable, FOLDER / "materialize.py", tmp_path / "cut.onnx", path], check=True)
    return sum(n.op_type == "Softmax" for n in cut.graph.node)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("precision", ["fp32", pytest.param("fp16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["bert_base", "llama_4l_dynamo"])
@pytest.mark.slow(part=3)
def test_two_layers(name, precision, chip, tmp_path):
    path = tmp_path / f"{name}.onnx"
    assert first_layers(name, path, tmp_path) == 2
    # Sums of up to 1408 products in another order; llama's random weights are normalised without the decay of trained ones.
    # In fp16, weights and activations carry 11 bits: a sum of n products is off by sqrt(n) roundings of its terms, which each of the two
    # layers' four products in a row does to what the one before gave.
    tolerance = 5e-5 if precision == "fp32" else 8 * 2**-11
    on_host, on_device = sardonyx.compile(path), sardonyx.compile(path, device=f"sim:{chip}", precision=precision)
    for seed, size in enumerate([{"batch": 1, "sequence": 5}, {"batch": 2, "sequence": 2}]):
        feed = models.inputs(path, size, seed)
        want, got = on_host.run(feed), on_device.run(feed)
        for output in want:
            assert got[output].shape == want[output].shape
            difference = np.abs(got[output].astype(np.float64) - want[output]).max()
            assert difference <= tolerance * np.abs(want[output]).max(), f"{output}: {difference}"
    assert on_device.programs == 1
