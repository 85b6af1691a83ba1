"""The engine's speed (sardonyx.llm.Engine) on a trace of mixed lengths, with the shape of Llama-3.2-1B and random weights.

    python benchmarks/llm_engine.py prepare FOLDER                  anywhere; needs onnx
    python benchmarks/llm_engine.py measure FOLDER --device cuda    on a machine with a GPU; needs numpy and ml_dtypes only

`prepare` writes the graphs of the engine's steps, without weights (a few MB): float16, and 4 bits in blocks of 32.
`measure` fills the weights' files with seeded random numbers, compiles, and lets 1, 8 and 64 clients ask, each its next request
as soon as the last one is answered. Prompts have 32 to 2048 tokens and answers 16 to 256 (log-uniform, seeded; the longest are
those that fit --context). It prints tokens per second of answers, the time to the first token, and the 50th and 99th
percentile of the time between a request's tokens, and compares every token with the answers of one client, which are
one-by-one greedy decoding: at the first token that differs, the log-probabilities of both tell whether it is a tie (both closer
to the best than --tie, which rounding of float16 explains) or an error. Each number of clients first runs a part of the trace, so that
its programs are compiled and its graphs are captured.

--transformers measures Hugging Face's transformers with its own continuous batching on the same trace and random weights of
the same shape, if torch and transformers are installed. --tiny does everything for a small model, to test the script.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import threading
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from language_model import PRECISIONS, Shapes, fill, spec_of

CLIENTS = (1, 8, 64)
PAGE = 64


def prepare(folder: pathlib.Path, tiny: bool, precisions: list[str]) -> None:
    import onnx
    from sardonyx.llm.convert import genai_config, write_json
    from sardonyx.llm.decoder_graph import write_decoder
    from sardonyx.llm.genai_folder import read_folder
    from sardonyx.llm.paged_graph import PagedGraph
    from sardonyx.llm.paged_sampling import StepKind

    spec = spec_of(tiny)
    for precision in precisions:
        target = folder / precision
        target.mkdir(parents=True, exist_ok=True)
        write_decoder(spec, Shapes(4 if precision == "int4" else 0), str(target), "fp16")
        write_json(str(target), "genai_config.json", genai_config(spec, bos=1, ends=[2], pad=None))
        paged = PagedGraph(read_folder(target), PAGE)
        for logprobs in (False, True):
            for single in (False, True):
                name = f"step{'_logprobs' * logprobs}{'_single' * single}.onnx"
                (target / name).write_bytes(paged.build(StepKind(logprobs=logprobs), single))
        tensors = []
        for t in onnx.load(target / "step.onnx", load_external_data=False).graph.initializer:
            if t.data_location == onnx.TensorProto.EXTERNAL:
                place = {e.key: e.value for e in t.external_data}
                dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(t.data_type)).name
                tensors.append([t.name, dtype, int(place["offset"]), int(place["length"])])
        layout = {"dtype": paged.layout.dtype, "heads": paged.layout.heads, "head_sizes": paged.layout.head_sizes}
        (target / "tensors.json").write_text(json.dumps({"tensors": tensors, "spec": vars(spec), "layout": layout}))
        (target / "model.onnx").write_bytes(b"")  # its place is known, its content is not needed
        (target / "model.onnx.data").unlink()


def use_prepared_files() -> None:
    """Lets the engine take prepared graphs, and run without a tokenizer: the packages onnx and tokenizers are not needed."""
    from sardonyx.arrays import numpy_dtype
    from sardonyx.llm import paged_decoder, texts
    from sardonyx.llm.genai_folder import read_folder

    class Prepared:
        adapter_weights: ClassVar[dict[str, Any]] = {}

        def __init__(self, folder: Any, rows: int, *_: Any):
            content = json.loads((pathlib.Path(folder.path) / "tensors.json").read_text())
            self.rows, self.folder = rows, folder.path
            self.layout = SimpleNamespace(**content["layout"])
            self.step = SimpleNamespace(ids_dtype=np.dtype(np.int64), data_folder=folder.path)
            self.cache_inputs, self.cache_outputs = folder.past, folder.present

        def cache_shapes(self, pages: int) -> list[Any]:
            sizes = zip(self.layout.heads, self.layout.head_sizes)
            return [((pages, self.rows, h, d), numpy_dtype(self.layout.dtype)) for h, d in sizes]

        def page_bytes(self) -> int:
            return sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self.cache_shapes(1))

        def build(self, kind: Any, single: bool) -> bytes:
            name = f"step{'_logprobs' * kind.logprobs}{'_single' * single}.onnx"
            return (pathlib.Path(self.folder) / name).read_bytes()

    def without_text(self: Any, folder: Any) -> None:
        self._folder = read_folder(folder)

    paged_decoder.PagedGraph = Prepared  # type: ignore[misc]
    texts.Texts.__init__ = without_text  # type: ignore[method-assign]
    texts.Texts.decode = lambda self, tokens, shown=(): ""  # type: ignore[method-assign, assignment]


def make_trace(requests: int, vocabulary: int, context: int) -> list[tuple[list[int], int]]:
    """Prompts and the lengths of their answers."""
    rng = np.random.default_rng(0)
    trace = []
    for _ in range(requests):
        prompt = int(np.exp(rng.uniform(np.log(32), np.log(2048))))
        answer = int(np.exp(rng.uniform(np.log(16), np.log(256))))
        prompt = max(1, min(prompt, context - answer - 1))
        trace.append((rng.integers(3, vocabulary, prompt).tolist(), answer))
    return trace


def run(engine: Any, trace: list[tuple[list[int], int]], clients: int) -> dict[str, Any]:
    """Every client asks one request after the other."""
    answers: list[list[int]] = [[] for _ in trace]
    gaps: list[float] = []
    firsts: list[float] = []
    left = iter(range(len(trace)))
    lock = threading.Lock()

    def client() -> None:
        from sardonyx.llm import TokenEvent

        while True:
            with lock:
                k = next(left, None)
            if k is None:
                return
            prompt, count = trace[k]
            last = begun = time.perf_counter()
            own = []
            for event in engine.stream(prompt, max_new_tokens=count, ignore_eos=True):
                now = time.perf_counter()
                if isinstance(event, TokenEvent):
                    answers[k].append(event.token)
                    own.append(now - last)
                    last = now
            with lock:
                firsts.append(own[0] if own else last - begun)
                gaps.extend(own[1:])

    begun = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.perf_counter() - begun
    return {
        "answers": answers,
        "seconds": seconds,
        "tokens_per_second": sum(map(len, answers)) / seconds,
        "first_ms_p50": float(np.percentile(firsts, 50)) * 1e3,
        "gap_ms_p50": float(np.percentile(gaps, 50)) * 1e3,
        "gap_ms_p99": float(np.percentile(gaps, 99)) * 1e3,
    }


def differences(engine: Any, trace: Any, wanted: Any, found: Any, tie: float) -> tuple[int, int]:
    """Answers that are equal up to a tie, and answers that are wrong."""
    ties = wrong = 0
    for (prompt, _), a, b in zip(trace, wanted, found):
        if a == b:
            continue
        at = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        event = next(engine.stream([*prompt, *a[:at]], max_new_tokens=1, logprobs=10, ignore_eos=True))
        best, near = event.top[0][1], dict(event.top)
        if at < min(len(a), len(b)) and all(best - near.get(token, -np.inf) < tie for token in (a[at], b[at])):
            ties += 1
        else:
            wrong += 1
            print(f"  WRONG at token {at}: {a[at : at + 1]} and {b[at : at + 1]}; best {event.top}")
    return ties, wrong


def measure(a: argparse.Namespace) -> dict[str, Any]:
    from sardonyx.llm import Engine

    use_prepared_files()
    results: dict[str, Any] = {}
    for precision in a.precision or PRECISIONS:
        target = a.folder / precision
        read = fill(target)
        spec = json.loads((target / "tensors.json").read_text())["spec"]
        trace = make_trace(a.requests, spec["vocabulary"], min(a.context, spec["context"]))
        begun = time.perf_counter()
        with Engine(
            target,
            device=a.device,
            page_tokens=PAGE,
            max_sequences=max(CLIENTS),
            cache_memory=a.cache_memory << 20,
            step_tokens=a.step_tokens,
            share_prefixes=False,  # the same trace runs several times
        ) as engine:
            print(
                f"{precision}: compiled and loaded in {time.perf_counter() - begun:.1f} s, {engine.statistics().pages} pages"
            )
            run(engine, trace[: max(CLIENTS)], max(CLIENTS))
            rows = []
            for clients in CLIENTS:
                run(engine, trace[: 2 * clients], clients)
                rows.append((clients, run(engine, trace, clients)))
            for clients, row in rows:
                ties, wrong = differences(engine, trace, rows[0][1]["answers"], row["answers"], a.tie)
                numbers = {k: v for k, v in row.items() if k != "answers"}
                print(
                    f"  {clients} clients: {row['tokens_per_second']:.0f} tokens/s, first token {row['first_ms_p50']:.1f} ms, "
                    f"between tokens p50 {row['gap_ms_p50']:.2f} ms, p99 {row['gap_ms_p99']:.2f} ms; "
                    f"{len(trace) - ties - wrong} of {len(trace)} answers equal, {ties} up to a tie, {wrong} wrong",
                    flush=True,
                )
                results[f"{precision} {clients}"] = {**numbers, "ties": ties, "wrong": wrong, "weights_bytes": read}
            print(f"  {engine.statistics()}")
        if a.transformers and precision == "fp16":
            for clients in CLIENTS:
                results[f"transformers {clients}"] = measure_transformers(spec, trace, clients)
    return results


def measure_transformers(spec: dict[str, Any], trace: Any, clients: int) -> dict[str, Any] | None:
    """transformers' continuous batching: as many requests as clients are in it at a time."""
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"  transformers is not measured: {error}")
        return None
    config = transformers.LlamaConfig(
        hidden_size=spec["hidden"],
        num_hidden_layers=spec["layers"],
        num_attention_heads=spec["heads"],
        num_key_value_heads=spec["kv_heads"],
        head_dim=spec["head_size"],
        intermediate_size=spec["intermediate"],
        vocab_size=spec["vocabulary"],
        max_position_embeddings=spec["context"],
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.float16).to("cuda").eval()
    options = transformers.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=512)
    manager = model.init_continuous_batching(generation_config=options)
    manager.start()
    count = 0
    try:
        for requests in (trace[: 2 * clients], trace):  # the first time to warm up
            count, waiting, running = 0, list(enumerate(requests)), 0
            begun = time.perf_counter()
            while waiting or running:
                while waiting and running < clients:
                    k, (prompt, new) = waiting.pop(0)
                    manager.add_request(prompt, request_id=f"{len(requests)}-{k}", max_new_tokens=new)
                    running += 1
                result = manager.get_result(timeout=60)
                if result is not None and result.is_finished():
                    running -= 1
                    count += len(result.generated_tokens)
            seconds = time.perf_counter() - begun
    finally:
        manager.stop(block=True)
    print(f"  transformers {transformers.__version__}, {clients} clients: {count / seconds:.0f} tokens/s", flush=True)
    return {"seconds": seconds, "tokens_per_second": count / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("prepare", "measure"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--cache-memory", type=int, default=16384, help="MiB")
    parser.add_argument("--step-tokens", type=int, default=1024)
    parser.add_argument("--tie", type=float, default=0.02)
    parser.add_argument("--precision", choices=PRECISIONS, action="append")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    a = parser.parse_args()
    if a.command == "prepare":
        prepare(a.folder, a.tiny, a.precision or list(PRECISIONS))
        return
    results = measure(a)
    if a.json:
        a.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
