"""Unmodified onnxruntime-genai runs decoders through the provider, on the host and on simulated GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import llm_models
import numpy as np
import onnxruntime_ep_sardonyx as ep
import pytest
import sardonyx
from llm_models import Decoder
from onnx import TensorProto

pytest.importorskip("onnxruntime_genai", reason="has no wheel for every platform and version of Python")

PROMPT = np.random.default_rng(0).integers(1, 256, (1, 11)).tolist()
UNEVEN = [[*range(7, 18)], [*range(30, 35), 0, 0, 0, 0, 0, 0]]  # genai pads on the right, with token 0 here
LENGTH = 48

DECODERS = {
    "llama": Decoder(),
    "options": Decoder(
        packed=True, interleaved=True, window=6, softcap=5.0, sink=True, scale=0.3, ids=TensorProto.INT32, bias=True
    ),
    "norms": Decoder(qk_norm="outside", rotary="outside", partial=0.5, seed=2),
    "four bits": Decoder(bits=4, zero_points="packed", embedding_bits=4, position_ids=True),
    "eight bits": Decoder(bits=8, block=16, embedding_bits=8, smooth=True),
    "experts": Decoder(experts=4),
    "four bit experts": Decoder(experts=4, moe_bits=4, bits=4, block=16),
    "half": Decoder(dtype=np.float16, packed=True, smooth=True),
}
ON_CARDS = ("llama", "options", "experts")
DEVICES = ("host", "sim:gfx1100", "sim:gfx942")


def run_jobs(device, folder, jobs, **environment):
    """Results of genai_jobs.py by job, as dicts."""
    library = ep.get_library_path()
    simulator = Path(library).parent / "libamdhip64-sim.so"
    settings = {"SARDONYX_DEVICE": device, "AMDGPU_EP_PATH": library, "AMDGPU_LIBRARY": library}
    if device.startswith("sim"):
        settings["SARDONYX_SIM_LIBRARY"] = str(simulator)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    out = folder / "results.npz"
    subprocess.run(
        [sys.executable, str(Path(__file__).parent / "genai_jobs.py"), str(folder / "jobs.json"), str(out)],
        env=os.environ | settings | environment,
        cwd=folder,
        check=True,
        timeout=600,
    )
    found = {}
    for key, value in np.load(out).items():
        name, _, what = key.rpartition("/")
        found.setdefault(name, {})[what] = value
    return found


def job(name, folder, provider, turns, steps=4, **more):
    return {"name": name, "folder": str(folder), "provider": provider, "turns": turns, "steps": steps} | {
        "length": LENGTH,
        **more,
    }


def compare(got, want, half=False):
    assert "error" not in got, got["error"]
    np.testing.assert_array_equal(got["tokens"], want["tokens"])
    # Sums in another order; in 16 bits each layer rounds, in another order too.
    tolerance = 3e-2 if half else 1e-4
    np.testing.assert_allclose(got["logits"], want["logits"], rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module", params=DEVICES)
def results(request, tmp_path_factory):
    """Every decoder on the CPU provider and on a device."""
    root, jobs = tmp_path_factory.mktemp("decoders"), []
    for name, decoder in DECODERS.items():
        if request.param != "host" and name not in ON_CARDS:
            continue
        folder = llm_models.write(root / name, decoder)
        for provider in ("cpu", "append"):
            jobs.append(job(f"{name} {provider}", folder, provider, [PROMPT]))
        if name == "llama":
            for provider in ("cpu", "append"):
                jobs.append(job(f"uneven {provider}", folder, provider, [UNEVEN]))
                jobs.append(job(f"long {provider}", folder, provider, [[PROMPT[0] * 3]], 1))
    return run_jobs(request.param, root, jobs)


@pytest.mark.parametrize("name", [*DECODERS, "uneven", "long"])
@pytest.mark.slow(part=4)
def test_logits_and_tokens_match_the_cpu_provider(results, name):
    if f"{name} append" not in results:
        pytest.skip("runs on the host only: the operators have tests of their own on cards")
    compare(results[f"{name} append"], results[f"{name} cpu"], half=name == "half")


@pytest.mark.parametrize("name", [*ON_CARDS, "uneven"])
def test_a_step_replays_a_graph_and_allocates_nothing(results, name):
    counts = results[f"{name} append"]["counts"]
    if counts.size == 0:
        pytest.skip("only the simulated card counts")
    # The first step runs the prompt, the next two see the sizes of a decoding step for the first times.
    later = np.diff(counts[2:], axis=0)
    assert len(later) >= 1
    np.testing.assert_array_equal(later, [[0, 0, 1, 0]] * len(later))


def test_the_configuration_names_the_provider_and_its_options(tmp_path):
    names = ("amdgpu", "AMDGPU", "AMDGPUExecutionProvider")
    jobs = []
    for k, name in enumerate(names):
        folder = llm_models.write(tmp_path / str(k), Decoder(layers=1), provider=name, options={"threads": "1"})
        jobs.append(job(name, folder, "config", [PROMPT], 2))
    bad = llm_models.write(tmp_path / "bad", Decoder(layers=1), provider="amdgpu", options={"thread": "1"})
    jobs += [job("bad", bad, "config", [PROMPT]), job("cpu", bad, "cpu", [PROMPT], 2)]
    found = run_jobs("host", tmp_path, jobs)
    for name in names:
        compare(found[name], found["cpu"])
    assert "'threads'" in str(found["bad"]["error"])


def test_the_application_registers_the_library(tmp_path):
    folder = llm_models.write(tmp_path / "m", Decoder(layers=1))
    jobs = [job("a", folder, "append", [PROMPT], 2, library="register"), job("cpu", folder, "cpu", [PROMPT], 2)]
    found = run_jobs("host", tmp_path, jobs, AMDGPU_EP_PATH="")
    compare(found["a"], found["cpu"])


def test_normalisation_inside_the_operator_equals_that_of_nodes(tmp_path):
    # The CPU provider has no such inputs; the same weights as nodes of their own are its form of this model.
    both = {w: Decoder(qk_norm=w, layers=2, seed=3) for w in ("inside", "outside")}
    inside, outside = (llm_models.write(tmp_path / w, d) for w, d in both.items())
    jobs = [job("a", inside, "append", [PROMPT]), job("cpu", outside, "cpu", [PROMPT])]
    found = run_jobs("host", tmp_path, jobs)
    compare(found["a"], found["cpu"])


def test_prompts_in_chunks(tmp_path):
    folder = llm_models.write(tmp_path / "m", Decoder(layers=2))
    found = run_jobs("host", tmp_path, [job(p, folder, p, [PROMPT], chunk=4) for p in ("append", "cpu")])
    compare(found["append"], found["cpu"])


def test_a_second_turn_is_refused_by_genai_and_a_new_generator_takes_the_whole(tmp_path):
    folder = llm_models.write(tmp_path / "m", Decoder(layers=2))
    first = job("first", folder, "append", [PROMPT, [[5, 6, 7]]], 3)
    whole = [PROMPT[0] + [5, 6, 7]]
    found = run_jobs("host", tmp_path, [first, *(job(p, folder, p, [whole], 3) for p in ("append", "cpu"))])
    assert "Continuous decoding is not supported" in str(found["first"]["error"])
    compare(found["append"], found["cpu"])


def test_a_prompt_that_is_too_long_is_one_error(tmp_path):
    folder = llm_models.write(tmp_path / "m", Decoder(layers=1))
    jobs = [job("long", folder, "append", [[PROMPT[0] * 5]]), job("next", folder, "append", [PROMPT])]
    found = run_jobs("host", tmp_path, jobs)
    assert "exceeds max length" in str(found["long"]["error"])
    assert "error" not in found["next"]


def test_a_cache_that_does_not_fit_is_one_error(tmp_path):
    decoder = Decoder(layers=1, rotary="none", positions=1 << 22)
    folder = llm_models.write(tmp_path / "m", decoder, provider="amdgpu", options={"gpu_mem_limit": str(8 << 20)})
    large, next_one = (job(n, folder, "config", [PROMPT], 2) for n in ("large", "next"))
    found = run_jobs("host", tmp_path, [large | {"length": 1 << 21}, next_one])
    assert "Could not allocate the key-value cache" in str(found["large"]["error"])
    assert "error" not in found["next"]


def test_a_damaged_folder_is_one_error(tmp_path):
    folders = [llm_models.write(tmp_path / n, Decoder(layers=1)) for n in ("missing", "cut", "whole")]
    (folders[0] / "model.onnx").unlink()
    cut = folders[1] / "model.onnx"
    cut.write_bytes(cut.read_bytes()[:5000])
    found = run_jobs("host", tmp_path, [job(f.name, f, "append", [PROMPT], 2) for f in folders])
    assert "model.onnx" in str(found["missing"]["error"])
    assert "model.onnx" in str(found["cut"]["error"])
    assert "error" not in found["whole"]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("name", [n for n in DECODERS if n not in ON_CARDS])
def test_every_decoder_on_cards(tmp_path, name, device):
    folder = llm_models.write(tmp_path / "m", DECODERS[name])
    found = run_jobs(device, tmp_path, [job(p, folder, p, [PROMPT]) for p in ("cpu", "append")])
    compare(found["append"], found["cpu"], half=name == "half")


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side(side):
    """A decoder whose mask is a bias of the scores, as exporters for padded batches write it: a row in a batch with padding gives the
    logits that it gives alone."""
    model = llm_models.model(Decoder(layers=2, position_ids=True, rotary="outside", mask="bias"))
    program = sardonyx.compile(model)
    past = {f"past_key_values.{k}.{n}": np.zeros((2, 2, 0, 16), np.float32) for k in range(2) for n in ("key", "value")}

    def run(ids, mask, cache, total):
        positions = np.maximum(np.cumsum(mask, 1) - 1, 0)[:, total - ids.shape[1] :]
        return program(input_ids=ids, attention_mask=mask, position_ids=positions, **cache)

    lengths, longest = (7, 4), 7
    tokens = np.arange(1, 1 + 2 * longest).reshape(2, longest)
    ids, mask = np.zeros((2, longest), np.int64), np.zeros((2, longest), np.int64)
    for b, n in enumerate(lengths):
        at = slice(longest - n, longest) if side == "left" else slice(0, n)
        ids[b, at], mask[b, at] = tokens[b, :n], 1
    got = run(ids, mask, past, longest)
    step = np.array([[40], [41]])
    later = {n.replace("present", "past_key_values"): got[n] for n in got if n != "logits"}
    grown = np.concatenate([mask, np.ones((2, 1), np.int64)], 1)
    next_got = run(step, grown, later, longest + 1)
    for b, n in enumerate(lengths):
        alone = np.concatenate([tokens[b : b + 1, :n], step[b : b + 1]], 1)
        ones = np.ones((1, n + 1), np.int64)
        want = run(alone, ones, {k: v[:1] for k, v in past.items()}, n + 1)["logits"][0]
        at = slice(longest - n, longest) if side == "left" else slice(0, n)
        # Sums in another order.
        np.testing.assert_allclose(got["logits"][b, at], want[:n], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(next_got["logits"][b, 0], want[n], rtol=1e-4, atol=1e-4)
