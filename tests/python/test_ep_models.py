"""Whole models through ONNX Runtime with every node on the provider, inputs and outputs bound to its device, at several sizes, compared with ONNX
Runtime's CPU provider. The models and tolerances are those of test_models.py."""

import os

import numpy as np
import pytest

# Read when the library is registered.
os.environ["SARDONYX_DEVICE"] = os.environ.get("SARDONYX_TEST_DEVICE") or "host"

import onnxruntime as ort
import onnxruntime_ep_sardonyx as ep
from half_rounding import TIMES, Rounding, ratios, scale
from test_models import FOLDER, FOUND, TOLERANCES, USUAL, models, reference

GPU, AMD = "gpu", 0x1002
# On GPUs, whose sums have another order than those of test_models.py's host, the bound for these is what float32's own rounding does to them
# (half_rounding.py): basic_pitch divides by a difference from a minimum, which amplifies it.
BY_ROUNDING = {"basic_pitch"}
# Half a minute each; test_models.py runs them through the library.
LARGE = {"bert_base", "deeplabv3_resnet50", "llama_4l_dynamo", "resnet50_dynamo", "vit_b_16_dynamo", "yolov5s"}


@pytest.mark.skipif(FOLDER is None, reason="no folder of models: set SARDONYX_MODELS")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in FOUND or ["none"]]
)
@pytest.mark.slow(part=3)
def test_model(name):
    path = models.fill(FOLDER, FOUND[name])
    feeds = [models.inputs(path, sizes, seed) for seed, sizes in enumerate(models.SIZES.get(name, [{}]))]
    tolerance, floor, _ = TOLERANCES.get(name, (USUAL, 0.0, ""))
    rounding = Rounding(path, "fp32") if name in BY_ROUNDING and os.environ["SARDONYX_DEVICE"] != "host" else None
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(ep.register()[:1], {})
    session = ort.InferenceSession(str(path), options, enable_fallback=0)
    for feed, want in zip(feeds, reference(path, feeds)):
        binding = session.io_binding()
        for key, value in feed.items():
            binding.bind_ortvalue_input(key, ort.OrtValue.ortvalue_from_numpy(value, GPU, 0, AMD))
        device = ort.OrtDevice.make(GPU, 0, AMD)._get_c_device()
        for output in session.get_outputs():
            binding._iobinding.bind_output(output.name, device)
        session.run_with_iobinding(binding)
        if rounding:
            got = {o.name: v.numpy() for o, v in zip(session.get_outputs(), binding.get_outputs())}
            worst = max(ratios(got, *scale(rounding, feed)))
            assert worst <= TIMES, worst
            continue
        for output, value, w in zip(session.get_outputs(), binding.get_outputs(), want):
            y, w = value.numpy().astype(np.float64), w.astype(np.float64)
            assert y.shape == w.shape, output.name
            largest = max(np.abs(w).max(initial=0), floor)
            difference = np.abs(y - w).max(initial=0)
            assert difference <= tolerance * largest, f"{output.name}: {difference} beside {largest}"
