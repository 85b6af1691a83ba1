"""The engine's speed (sardonyx.llm.Engine) on a trace of mixed lengths: shapes of Llama-3.2-1B and Llama-3-8B, random weights.

    python benchmarks/llm_engine.py FOLDER --rows 1b-fp16,transformers-1b     on a machine with a GPU

needs numpy, ml_dtypes, onnx. FOLDER gets the weights' files (2.5 and 16 GB in float16), seeded random numbers.

A row is a shape, 1b or 8b (tiny: to test the script), with fp16 or int4 (blocks of 32), or `transformers-SHAPE`: the continuous
batching of Hugging Face's transformers with random weights of that shape on the same trace, if torch and transformers are
installed. For each number of clients, 1, 8, 64 and 256, as many requests are in the engine at a time; each time one ends the
next one of the trace begins, until --row-seconds have passed. Prompts have 32 to 4096 tokens and answers 16 to 512 (log-uniform,
seeded).

Printed for each number of clients, and written to --json as soon as it is known:

- tokens of answers per second, time to the first token, 50th and 99th percentile of the time between a request's tokens.
- "bound": the time that the bytes and the operations of each step take at --bandwidth and --peak (a step's bytes: the weights
  once, keys and values that its tokens read and write; operations: products and attention), summed, as a share of the time
  that has passed. Defaults are the H200's sheet: 4.8 TB/s, 989 TFLOP/s.
- where the engine's thread spends its time (planning, starting programs, waiting, telling callers), and each kind of launch.

Then every token is checked: a step computes the choices after each token of each answer at once. A token that is not the choice
counts as a tie if its log-probability is within --tie of the best one, and as wrong otherwise. The requests of one client
are answers decoded one by one; the others' answers to the same requests are compared with them token by token: where an answer
first differs, both tokens must be ties. --answers FILE does the same between two runs, such as one on one device and one on two:
the first writes its answers there, and others compare theirs with them.

--kill ends each process of --devices once while requests run, and checks that no token of their answers is lost.

--device-times adds the time of each captured graph (replayed 20 times) and of prompts of several sizes, the first time and
later, with their bounds; --profile the kernels that take the most time.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import llm_engine_peer
import llm_engine_steps as steps
import numpy as np
from language_model import Shapes
from llm_engine_steps import PAGE

CLIENTS = (1, 8, 64, 256)
SHAPES = {
    "tiny": ("llama", 128, 2, 4, 2, 32, 256, 512, 8192, 1e-5, 5e5, 32),
    "1b": ("llama", 2048, 16, 32, 8, 64, 8192, 128256, 8192, 1e-5, 5e5, 64),
    "8b": ("llama", 4096, 32, 32, 8, 128, 14336, 128256, 8192, 1e-5, 5e5, 128, 1.0, 1.0, False),
}
START = time.perf_counter()


def prepare(target: pathlib.Path, shape: str, precision: str) -> None:
    """Writes the folder's model, and the places of its weights in the file that fill() makes."""
    import onnx
    from sardonyx.llm import decoder_graph
    from sardonyx.llm.convert import genai_config, write_json
    from sardonyx.llm.decoder_spec import DecoderSpec

    class Places(decoder_graph._ExternalData):
        """Only counts the bytes."""

        def __init__(self, name: str, file: Any):
            super().__init__(name, SimpleNamespace(write=lambda data: None))  # type: ignore[arg-type]

    spec = DecoderSpec(*SHAPES[shape])  # type: ignore[arg-type]
    target.mkdir(parents=True, exist_ok=True)
    kept, decoder_graph._ExternalData = decoder_graph._ExternalData, Places  # type: ignore[misc]
    try:
        decoder_graph.write_decoder(spec, Shapes(4 if precision == "int4" else 0), str(target), "fp16")
    finally:
        decoder_graph._ExternalData = kept  # type: ignore[misc]
    write_json(str(target), "genai_config.json", genai_config(spec, bos=1, ends=[2], pad=None))
    tensors = []
    for t in onnx.load(target / "model.onnx", load_external_data=False).graph.initializer:
        if t.data_location == onnx.TensorProto.EXTERNAL:
            place = {e.key: e.value for e in t.external_data}
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(t.data_type)).name
            tensors.append([t.name, dtype, int(place["offset"]), int(place["length"])])
    (target / "tensors.json").write_text(json.dumps({"tensors": tensors, "spec": vars(spec)}))


def fill(target: pathlib.Path) -> tuple[dict[str, Any], int]:
    """Writes model.onnx.data; returns the spec, and how many of its bytes a step reads."""
    content = json.loads((target / "tensors.json").read_text())
    spec = content["spec"]
    rng = np.random.default_rng(0)
    count = (1 << 22) - 3  # a prime, so that no two rows of a matrix are equal where the numbers repeat
    small = (rng.standard_normal(count) * 0.02).astype(np.float16)
    scales, quants = np.abs(small) * np.float16(0.1), rng.integers(0, 256, count, np.uint8)
    angles = np.arange(spec["context"])[:, None] * spec["rope_base"] ** -(
        np.arange(0, spec["rope_size"], 2) / spec["rope_size"]
    )
    read = 0
    writes: list[tuple[int, Any]] = []
    for name, dtype, offset, length in content["tensors"]:
        table = name in ("cos_cache", "sin_cache")
        pool = quants if dtype == "uint8" else scales if "scales" in name else small
        if table:
            pool = (np.cos if name == "cos_cache" else np.sin)(angles).astype(np.float16).reshape(-1)
        elif "norm" in name:
            pool = np.ones(length // 2, np.float16)
        data = pool.view(np.uint8)
        writes += [(offset + at, data[: min(data.size, length - at)]) for at in range(0, length, data.size)]
        embedding = "embed_tokens" in name and not spec["tied"]  # a few rows of it
        read += 0 if table or embedding else length
    with open(target / "model.onnx.data", "wb") as file, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda w: os.pwrite(file.fileno(), w[1], w[0]), writes))
    return spec, read


def without_tokenizer() -> None:
    """Lets the engine run without a tokenizer."""
    from sardonyx.llm import texts
    from sardonyx.llm.genai_folder import read_folder

    def without_text(self: Any, folder: Any) -> None:
        self._folder = read_folder(folder)

    texts.Texts.__init__ = without_text  # type: ignore[method-assign]
    texts.Texts.decode = lambda self, tokens, shown=(): ""  # type: ignore[method-assign, assignment]


def make_trace(requests: int, vocabulary: int, prompt_tokens: int, answer_tokens: int) -> list[tuple[list[int], int]]:
    """Prompts and the lengths of their answers, and at most so many tokens of either."""
    rng = np.random.default_rng(0)
    trace = []
    for _ in range(requests):
        prompt = int(np.exp(rng.uniform(np.log(32), np.log(prompt_tokens + 1))))
        answer = int(np.exp(rng.uniform(np.log(16), np.log(answer_tokens + 1))))
        trace.append((rng.integers(3, vocabulary, prompt).tolist(), answer))
    return trace


class Results:
    """Rows that are written as soon as they are known."""

    def __init__(self, path: pathlib.Path | None):
        self.path, self.rows = path, dict[str, Any]()

    def add(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name] = row
        if self.path:
            self.path.write_text(json.dumps(self.rows, indent=1) + "\n")


def measure(a: argparse.Namespace, name: str, results: Results) -> None:
    """One shape with one type of weights."""
    from sardonyx.llm import Engine

    shape, precision = name.split("-")
    target = a.folder / name
    if not (target / "tensors.json").exists():
        prepare(target, shape, precision)
    spec, read = fill(target)
    begun = time.perf_counter()
    trace = make_trace(a.requests, spec["vocabulary"], a.prompt_tokens, a.answer_tokens)
    with Engine(
        target,
        device=a.device,
        devices=a.devices.split(",") if a.devices else None,
        pipeline_parallel_size=a.pipeline_parallel_size,
        page_tokens=PAGE,
        max_sequences=a.clients[-1],
        cache_memory=a.cache_memory << 20,
        cache_type=a.cache_type,
        swap_memory=a.swap_memory << 20,
        step_tokens=a.step_tokens,
        unpacked_weights=a.unpacked_weights,
        share_prefixes=False,  # the same trace runs several times
    ) as engine:
        if a.device != "host":
            engine.prepare()  # as `sardonyx serve` does
        print(
            f"{name}: {read / 1e9:.2f} GB of weights; compiled and loaded in {time.perf_counter() - begun:.1f} s, "
            f"{engine.statistics().pages} pages; {time.perf_counter() - START:.0f} s since the start",
            flush=True,
        )
        bound = steps.Bound(spec, read, a.bandwidth, a.peak)
        recorder = steps.Recorder(engine, bound)
        answers: dict[int, list[list[int]]] = {}
        for clients in a.clients:
            if time.perf_counter() - START > a.seconds:
                print(f"  {clients} clients: not measured, --seconds have passed", flush=True)
                continue
            begun = time.perf_counter()
            steps.run(engine, trace[: a.warm * clients + 32], clients, a.row_seconds)  # compiles, captures graphs
            recorder.clear()
            warm = time.perf_counter() - begun
            row = steps.run(engine, trace, clients, a.row_seconds)
            answers[clients] = row.pop("answers")
            row |= recorder.summary(row["seconds"])
            row["warm_seconds"] = warm
            row["ties"], row["wrong"], row["unchecked"] = steps.check(
                engine, trace, answers[clients], a.tie, a.check_seconds
            )
            if 1 in answers and clients > 1:
                row["same_as_one_by_one"] = steps.compare(engine, trace, answers[1], answers[clients], a.tie)
            if a.answers and a.answers.exists() and str(clients) in (kept := json.loads(a.answers.read_text())):
                row["same_as_the_first_run"] = steps.compare(engine, trace, kept[str(clients)], answers[clients], a.tie)
            results.add(f"{name} {clients}", row)
            steps.show(clients, row)
        recorder.stop()
        if a.answers and not a.answers.exists():
            a.answers.write_text(json.dumps(answers))
        if a.kill:
            results.add(f"{name} kill", steps.kill(engine, trace[: a.clients[-1]], a.tie))
        if a.device_times and not a.devices and time.perf_counter() - START < a.seconds:
            results.add(f"{name} device", steps.device_times(engine, bound, a.profile))
        print(f"  {engine.statistics()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", default="1b-fp16", help="such as 1b-fp16,1b-int4,8b-fp16,transformers-1b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--devices", help="such as 0,1: they divide the model among them; without --device-times")
    parser.add_argument("--pipeline-parallel-size", type=int, default=1, help="stages of --devices")
    parser.add_argument("--clients", default=",".join(map(str, CLIENTS)))
    parser.add_argument("--requests", type=int, default=4096, help="of the trace")
    parser.add_argument("--prompt-tokens", type=int, default=4096, help="of the longest prompt, at least 32")
    parser.add_argument("--answer-tokens", type=int, default=512, help="of the longest answer, at least 16")
    parser.add_argument("--row-seconds", type=float, default=12, help="no request begins later in a row")
    parser.add_argument("--seconds", type=float, default=230, help="no row begins later")
    parser.add_argument("--check-seconds", type=float, default=12, help="of a row")
    parser.add_argument("--warm", type=int, default=2, help="requests of each client before a row, and 32 more")
    parser.add_argument("--cache-memory", type=int, default=24576, help="MiB")
    parser.add_argument("--cache-type", default="", help="int8 or fp8; bounds are still those of float16")
    parser.add_argument("--unpacked-weights", action="store_true", help="int4: keep them in 16 bits too, for prompts")
    parser.add_argument("--swap-memory", type=int, default=0, help="MiB, for the pages of preempted requests")
    parser.add_argument(
        "--answers", type=pathlib.Path, help="a file: written if it does not exist, otherwise compared with"
    )
    parser.add_argument("--kill", action="store_true", help="end each process of --devices once, at the end")
    parser.add_argument("--step-tokens", type=int, default=2048)
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="bytes/s")
    parser.add_argument("--peak", type=float, default=989e12, help="operations/s")
    parser.add_argument("--tie", type=float, default=0.02)
    parser.add_argument("--device-times", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--peer-seconds", type=float, default=20, help="of each row of transformers")
    parser.add_argument("--peer-clients", default="64", help="of transformers, which is slow")
    parser.add_argument("--peer-device", default="cuda")
    parser.add_argument("--json", type=pathlib.Path)
    a = parser.parse_args()
    a.clients = sorted(map(int, a.clients.split(",")))
    results = Results(a.json)
    without_tokenizer()
    for name in a.rows.split(","):
        kind, _, shape = name.partition("-")
        if time.perf_counter() - START > a.seconds:
            print(f"{name}: not measured, --seconds have passed", flush=True)
        elif kind == "transformers":
            spec = dict(zip(llm_engine_peer.FIELDS, SHAPES[shape]))
            for clients in map(int, a.peer_clients.split(",")):
                if time.perf_counter() - START < a.seconds:
                    trace = make_trace(a.requests, int(spec["vocabulary"]), a.prompt_tokens, a.answer_tokens)
                    row = llm_engine_peer.measure(spec, trace, clients, a.peer_seconds, a.peer_device)
                    results.add(f"{name} {clients}", row)
        else:
            measure(a, name, results)


if __name__ == "__main__":
    main()
