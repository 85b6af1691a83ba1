"""Runs decoders with onnxruntime-genai in a separate process: genai_jobs.py JOBS.json RESULTS.npz.

The provider reads SARDONYX_DEVICE when its library is registered, so each device needs a process. A job has: name, folder, provider (how the model is
told of it: "cpu", "append", "config"), library ("environment": AMDGPU_EP_PATH is set; "register"), turns (lists of
tokens, [batch][length], given one after another with `steps` tokens generated after each), length, and maybe chunk (how much of a prompt is run at once).
Results by job: tokens [step][batch], logits [step][batch][vocab], and on a simulated GPU counts [step][4].
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime_genai as og

COUNTS = (b"allocations", b"graphs", b"graph_launches", b"kernel_launches")


def counts():
    """What the simulated GPU has counted so far; nothing elsewhere."""
    library = os.environ.get("SARDONYX_SIM_LIBRARY")
    if not library:
        return []
    count = ctypes.CDLL(library).sardonyxSimCount
    count.restype, count.argtypes = ctypes.c_longlong, [ctypes.c_char_p]
    return [count(what) for what in COUNTS]


def run(job):
    config = og.Config(job["folder"])
    if job["provider"] != "config":
        config.clear_providers()
    if job["provider"] == "append":
        config.append_provider("amdgpu")
    model = og.Model(config)
    params = og.GeneratorParams(model)
    batch = len(job["turns"][0])
    params.set_search_options(max_length=job["length"], batch_size=batch)
    if "chunk" in job:
        params.set_search_options(chunk_size=job["chunk"])
    generator = og.Generator(model, params)
    tokens, logits, seen = [], [], []
    for turn in job["turns"]:
        generator.append_tokens(np.array(turn, np.int32))
        for _ in range(job["steps"]):
            logits.append(np.array(generator.get_logits()).reshape(batch, -1))
            generator.generate_next_token()
            tokens.append(np.array(generator.get_next_tokens()))
            seen.append(counts())
    return {"tokens": np.array(tokens), "logits": np.array(logits), "counts": np.array(seen)}


def main():
    jobs, results = json.loads(Path(sys.argv[1]).read_text()), {}
    if any(job.get("library") == "register" for job in jobs):
        og.register_execution_provider_library("AMDGPUExecutionProvider", os.environ["AMDGPU_LIBRARY"])
    for job in jobs:
        try:
            found = run(job)
        except Exception as e:  # what the test is to see
            found = {"error": np.array(str(e))}
        results |= {f"{job['name']}/{k}": v for k, v in found.items()}
    np.savez(sys.argv[2], **results)


if __name__ == "__main__":
    main()
