"""A language model's speed on a GPU: decoding steps and prefill with the shape of Llama-3.2-1B, with random weights.

    python benchmarks/language_model.py prepare FOLDER                  anywhere; needs onnx
    python benchmarks/language_model.py measure FOLDER --device cuda    on a machine with a GPU; needs numpy only

`prepare` writes the graphs of generation, without weights (a few MB): float16, and 4 bits in blocks of 32 with one float16
scale each (as Q4_0). `measure` fills the weights' files with seeded random numbers, compiles, and times decoding steps with
512 tokens of context for batches of 1 and 8 (each step chooses its token on the GPU and the next step reads it there; a
time is that of `--steps` steps divided by their number, the median of 5), and prefill of 2048 tokens. It also prints the bytes
of weights per second of a step and the operations per second of prefill. `--tiny` does both for a small model, to test the
script.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import time
from typing import Any

import numpy as np

PRECISIONS = ("fp16", "int4")
BATCHES, CONTEXT, PREFILL = (1, 8), 512, 2048


def spec_of(tiny: bool) -> Any:
    from sardonyx.llm.decoder_spec import DecoderSpec

    if tiny:
        return DecoderSpec("llama", 128, 2, 4, 2, 32, 256, 512, 4096, 1e-5, 5e5, 32)
    return DecoderSpec("llama", 2048, 16, 32, 8, 64, 8192, 128256, 4096, 1e-5, 5e5, 64)


class Shapes:
    """A decoder_graph.WeightSource whose weights are all zero, because only their sizes matter."""

    def __init__(self, bits: int):
        self._bits = bits

    def has(self, name: str) -> bool:
        return name.endswith("ffn_gate")

    def vector(self, name: str, size: int) -> Any:
        return np.ones(size, np.float32)

    def linear(self, name: str, rows: int, columns: int) -> Any:
        from sardonyx.llm.weights import Blocked, Dense

        if not self._bits:
            return Dense(np.zeros((rows, columns), np.float16))
        blocks = columns // 32
        return Blocked(
            np.zeros((rows, blocks, 32), np.uint8), np.zeros((rows, blocks), np.float16), None, self._bits, columns
        )


def prepare(folder: pathlib.Path, tiny: bool, precisions: tuple[str, ...] = PRECISIONS) -> None:
    import onnx
    from sardonyx.llm.convert import genai_config, write_json
    from sardonyx.llm.decoder_graph import write_decoder
    from sardonyx.llm.genai_folder import read_folder
    from sardonyx.llm.sampling_graph import SamplingKind
    from sardonyx.llm.step_graph import StepGraph

    spec = spec_of(tiny)
    for precision in precisions:
        target = folder / precision
        target.mkdir(parents=True, exist_ok=True)
        write_decoder(spec, Shapes(4 if precision == "int4" else 0), str(target), "fp16")
        write_json(str(target), "genai_config.json", genai_config(spec, bos=1, ends=[2], pad=None))
        graph = StepGraph(read_folder(target)).build(SamplingKind("greedy"))
        (target / "step.onnx").write_bytes(graph)
        tensors = []
        for t in onnx.load_from_string(graph).graph.initializer:
            if t.data_location == onnx.TensorProto.EXTERNAL:
                place = {e.key: e.value for e in t.external_data}
                dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(t.data_type)).name
                tensors.append([t.name, dtype, int(place["offset"]), int(place["length"])])
        (target / "tensors.json").write_text(json.dumps({"tensors": tensors, "spec": vars(spec)}))
        for name in ("model.onnx", "model.onnx.data", "genai_config.json"):
            (target / name).unlink()


def fill(folder: pathlib.Path) -> int:
    """Writes model.onnx.data; returns how many of its bytes a step reads."""
    content = json.loads((folder / "tensors.json").read_text())
    rng = np.random.default_rng(0)
    count = (1 << 22) - 3  # a prime, so that no two rows of a matrix are equal where the numbers repeat
    small = (rng.standard_normal(count) * 0.02).astype(np.float16)
    scales = np.abs(small) * np.float16(0.1)
    quants = rng.integers(0, 256, count, np.uint8)
    read = 0
    with open(folder / "model.onnx.data", "wb") as file:
        for name, dtype, offset, length in content["tensors"]:
            file.seek(offset)
            norm, cache = "norm" in name, name in ("cos_cache", "sin_cache")
            pool = quants if dtype == "uint8" else scales if "scales" in name else small
            if norm:
                pool = np.ones(length // 2, np.float16)
            data = pool.view(np.uint8)
            for at in range(0, length, data.size):
                file.write(data[: min(data.size, length - at)])
            read += 0 if norm or cache else length
    return read


def matrix_work(spec: dict[str, Any], tokens: int) -> float:
    """Operations of prefill: GEMMs of the layers, causal attention, one row of logits."""
    h, d = spec["hidden"], spec["head_size"]
    rows = (spec["heads"] + 2 * spec["kv_heads"]) * d + spec["heads"] * d + 3 * spec["intermediate"]
    attention = 2 * 2 * spec["heads"] * d * tokens * tokens / 2
    return spec["layers"] * (2 * tokens * h * rows + attention) + 2 * h * spec["vocabulary"]


class Runner:
    def __init__(self, folder: pathlib.Path, device: str):
        import sardonyx

        self.sardonyx, self.device = sardonyx, device
        self.spec = json.loads((folder / "tensors.json").read_text())["spec"]
        started = time.perf_counter()
        self.model = sardonyx.compile((folder / "step.onnx").read_bytes(), folder=folder, device=device)
        print(f"  compiled and loaded in {time.perf_counter() - started:.1f} s", flush=True)
        self.stream = None if device == "host" else sardonyx.Stream(self.model.device)

    def to_device(self, array: np.ndarray) -> Any:
        return self.sardonyx.to_device(array, self.model.device)

    def bound(self, batch: int, new: int, start: int, room: int) -> list[Any]:
        """Two alternating runs, each reading what the other wrote. `start`: the length including the new tokens."""
        s = self.spec
        shape = (batch, s["kv_heads"], room, s["head_size"])
        halves = [f"{layer}.{half}" for layer in range(s["layers"]) for half in ("key", "value")]
        cache = {h: self.to_device((np.zeros(shape)).astype(np.float16)) for h in halves}
        ids = np.random.default_rng(1).integers(3, s["vocabulary"], (batch, new))
        tokens = [self.to_device(ids), self.to_device(np.zeros((batch, 1), np.int64))]
        if new == 1:
            tokens[1] = self.to_device(ids)
        # Each step has the same context: the next step does not read the length that this one returns.
        length, following = (self.to_device(np.full(batch, start)) for _ in range(2))
        width = self.to_device(np.zeros((batch, room), np.int8))
        runs = []
        for turn in range(2):
            inputs = {"input_ids": tokens[turn if new == 1 else 0], "lengths": length, "width": width}
            inputs |= {f"past_key_values.{h}": t for h, t in cache.items()}
            outputs = {"next_tokens": tokens[1 - turn if new == 1 else 1], "lengths_next": following}
            outputs |= {f"present.{h}": t for h, t in cache.items()}
            runs.append(self.model.bind(inputs, outputs, stream=self.stream, synchronize=self.stream is None))
        return runs

    def time(self, runs: list[Any], count: int) -> float:
        """Seconds per launch of `count` launches."""
        started = time.perf_counter()
        for k in range(count):
            runs[k % 2]()
        runs[(count - 1) % 2].wait()
        return (time.perf_counter() - started) / count


def measure(folder: pathlib.Path, device: str, steps: int, precisions: list[str], results: pathlib.Path | None) -> None:
    found: dict[str, Any] = {}
    for precision in precisions:
        target = folder / precision
        print(precision, flush=True)
        read = fill(target)
        runner = Runner(target, device)
        numbers: dict[str, float] = {"weights_bytes": read}
        for batch in BATCHES:
            runs = runner.bound(batch, 1, CONTEXT + 1, CONTEXT + 128)
            runner.time(runs, steps)  # captures the graphs and raises the clocks
            times = [runner.time(runs, steps) for _ in range(5)]
            seconds = statistics.median(times)
            numbers[f"decode_ms_batch_{batch}"] = seconds * 1e3
            print(
                f"  decode, batch {batch}, {CONTEXT} tokens of context: {seconds * 1e3:.3f} ms a token"
                f" ({min(times) * 1e3:.3f} to {max(times) * 1e3:.3f}); weights at {read / seconds / 1e12:.2f} TB/s",
                flush=True,
            )
        tokens = PREFILL
        runs = runner.bound(1, tokens, tokens, tokens + 64)
        runner.time(runs, 4)
        times = [runner.time(runs, 4) for _ in range(5)]
        seconds = statistics.median(times)
        work = matrix_work(runner.spec, tokens)
        numbers["prefill_ms"] = seconds * 1e3
        numbers["prefill_tflops"] = work / seconds / 1e12
        print(f"  prefill of {tokens} tokens: {seconds * 1e3:.2f} ms, {work / seconds / 1e12:.0f} TFLOP/s", flush=True)
        found[precision] = numbers
    if results:
        results.write_text(json.dumps(found, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("prepare", "measure"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--precision", choices=PRECISIONS, action="append")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    a = parser.parse_args()
    if a.command == "prepare":
        prepare(a.folder, a.tiny)
    else:
        measure(a.folder, a.device, a.steps, a.precision or list(PRECISIONS), a.json)


if __name__ == "__main__":
    main()
