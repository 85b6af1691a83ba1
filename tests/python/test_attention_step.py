"""Rotary embedding, appending to the KV cache and attention of one new token per sequence in one kernel: all supported head sizes, grouped
heads, windows, and sequences of one or several workgroups and iterations. Short sequences on simulated GPUs, all of them on a real
NVIDIA GPU, if there is one. The reference is the host.
"""

import re

import llm_models
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import sardonyx as cli
from llm_models import Decoder

NVIDIA = [d.name for d in sardonyx.devices() if d.target.startswith("sm_")][:1]
SHORT = [([300, 1], 320), ([5, 20, 7], 64)]
# Several clusters for a sequence; more sequences than have large clusters; several rounds of a small cluster.
LONG = [([2100, 37, 1024], 2200), ([90, 400] * 20, 500), ([900] * 35, 1000)]
# What is rounded to 11 bits on the way to the logits (queries, weights of values, results) is rounded elsewhere in another
# order; with float32 what remains is the order of sums.
TOLERANCES = {np.float16: 5e-3, np.float32: 1e-4}

DECODERS = {
    "16": {"kv_heads": 2, "head_size": 16},
    "32 of 3": {"kv_heads": 1, "head_size": 32, "heads": 3},
    "64": {"kv_heads": 4, "head_size": 64},
    "64 of 8": {"kv_heads": 1, "head_size": 64, "heads": 8},
    "128 of 4": {"kv_heads": 2, "head_size": 128, "heads": 8},
    "256 of 2": {"kv_heads": 2, "head_size": 256},
    "window": {"kv_heads": 2, "head_size": 64, "window": 100},
    "sink and cap": {"kv_heads": 2, "head_size": 64, "softcap": 20.0, "sink": True},
    "float32": {"kv_heads": 2, "head_size": 64, "dtype": np.float32},
}
WHERE = [("sim:gfx942", "sink and cap"), ("sim:gfx1100", "128 of 4")]
WHERE += [(d, n) for d in NVIDIA for n in DECODERS]


def decoder(name):
    return Decoder(**({"layers": 1, "dtype": np.float16, "positions": 4096, "packed": True} | DECODERS[name]))


@pytest.mark.parametrize(("device", "name"), WHERE)
def test_results(device, name):
    d = decoder(name)
    model = llm_models.model(d)
    programs = {x: sardonyx.compile(model, device=x) for x in ("host", device)}
    rng = np.random.default_rng(0)
    for lengths, room in SHORT + (LONG if device in NVIDIA else []):
        batch = len(lengths)
        mask = (np.arange(room) < np.array(lengths)[:, None]).astype(np.int64)
        feed = {"input_ids": rng.integers(0, d.vocab, (batch, 1)), "attention_mask": mask}
        for half in ("key", "value"):
            past = rng.standard_normal((batch, d.kv_heads, room, d.head_size)).astype(d.dtype)
            for b, count in enumerate(lengths):  # what is not there yet may be anything
                past[b, :, count - 1 :] = np.nan
            feed[f"past_key_values.0.{half}"] = past
        got, want = (programs[x](feed) for x in (device, "host"))
        tolerance = TOLERANCES[d.dtype]
        np.testing.assert_allclose(got["logits"], want["logits"], atol=tolerance * np.abs(want["logits"]).max())
        for half in ("key", "value"):
            for b, count in enumerate(lengths):
                have, wanted = (x[f"present.0.{half}"][b, :, :count] for x in (got, want))
                np.testing.assert_allclose(have, wanted, atol=tolerance * np.abs(wanted).max())


def test_code_for_hopper(tmp_path):
    """Clusters of 8, 4 and 2 workgroups on sm_90a's matrix instructions for 16 bits, those of 8 without them for float32."""

    def clusters(name, arch):
        onnx.save(llm_models.model(decoder(name)), tmp_path / "m.onnx")
        cli("compile", tmp_path / "m.onnx", "--arch", arch, "-o", tmp_path / "m.sdx", "--cache-dir", tmp_path)
        text = (tmp_path / "m.sdx").read_bytes().decode("latin1")
        kernels = [
            k for k in re.split(r"(?=\.visible \.entry)", text)[1:] if ".reqnctapercluster" in k and "attention" in k
        ]
        return {(re.search(r"reqnctapercluster (\d)", k)[1], "mma.sync" in k and "st.async" in k) for k in kernels}

    assert clusters("64", "sm_90a") == clusters("256 of 2", "sm_90a") == {("8", True), ("4", True), ("2", True)}
    assert clusters("float32", "sm_90a") == {("8", False)}
    assert clusters("64", "sm_90") == set()
