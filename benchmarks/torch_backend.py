"""torch.compile's backend "sardonyx" beside inductor: times of the same modules in turns, and errors beside PyTorch's float32.

    python benchmarks/torch_backend.py [--device cuda] [--dtype fp16] [--only resnet50] [--batches 1,8] [--minutes 4] [--json rows.json]

On a GPU inductor uses CUDA graphs (mode "reduce-overhead"), and compiles each size by itself (dynamic=False), its fastest form;
Sardonyx has torch.compile's defaults. Each model is prepared in a process of its own, `--jobs` at a time, with empty caches, and
measured while the others wait. A first call is timed after both engines have compiled an operator each (imports, libraries,
the card's context); which engine is first alternates by model.

Where sizes vary, Sardonyx compiles kernels that only other sizes need in the background. A third batch is run at once after the
last first call, and timed: what it needs may be compiled for it. Then the benchmark waits until the background is idle, and says how
long that took; a fourth batch must compile nothing. Nothing else is timed in that process while the background works, but with
several `--jobs` it takes a part of the machine from other processes. Rows are written to the file as they come. Needs torch, onnxscript, torchvision and transformers.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
from typing import Any

import torch
import zoo
from gpu_engines import PRECISIONS
from gpu_measure import Clock, environment, interleave, relative_error
from gpu_zoo import for_torch, tensors

#: Most wanted first, for when the time ends: those of docs/gpu-benchmark.md, then other kinds.
MODELS = ["resnet50", "bert_base", "vit_b_16", "whisper_tiny_encoder", "mobilenet_v3_large", "distilbert", "gpt2", "convnext_tiny", "efficientnet_b0", "swin_t", "t5_encoder", "clip_vision", "roberta_base", "segformer_b0", "regnet_y_3_2gf", "wav2vec2_base"]  # fmt: skip
#: Batches that are run at once after the first calls, and when the background is idle.
OTHER_BATCH, LATER_BATCH = 5, 6
PREPARE_SECONDS, MEASURE_SECONDS, BACKGROUND_SECONDS = 200, 60, 60


def own_rows(small: bool) -> list[zoo.Architecture]:
    """Models of docs/gpu-benchmark.md that the zoo has in other sizes."""
    narrow = zoo.SMALL_TEXT if small else {}
    whisper = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536, "num_mel_bins": 80}  # fmt: skip

    def make_whisper() -> torch.nn.Module:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        config = WhisperConfig(**whisper, **({"max_source_positions": 50} if small else {}))
        config._attn_implementation = "sdpa"
        return zoo.Outputs(WhisperEncoder(config))

    bert = zoo.library_model("BertModel", "BertConfig", narrow)
    return [
        zoo.Architecture("bert_base", "text", bert, zoo.tokens(24 if small else 128)),
        zoo.Architecture("whisper_tiny_encoder", "speech", make_whisper, zoo.images(80, 100 if small else 3000)),
    ]


def architecture(name: str, small: bool) -> zoo.Architecture:
    return next(a for a in own_rows(small) + zoo.architectures(small) if a.name == name)


# ---- the process of one model


class Call(torch.nn.Module):
    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.module(*inputs)


def with_own_code(module: torch.nn.Module, name: str) -> torch.nn.Module:
    """torch.compile decides by the code that it traced which sizes vary, for all backends together."""
    code = Call.forward.__code__.replace(co_name=f"forward_{name}")
    kind = type(f"Call_{name}", (Call,), {"forward": types.FunctionType(code, globals())})
    made: torch.nn.Module = kind(module)
    return made


class Engines:
    """The model compiled by both, with its first calls."""

    def __init__(self, name: str, options: argparse.Namespace):
        import sardonyx.torch

        self.a, self.options = architecture(name, options.small), options
        self.clock, self.dtype = Clock(options.device), PRECISIONS[options.dtype]
        self.graphs: list[Any] = []  # of Sardonyx
        sardonyx.torch.observe(self.graphs.append)
        cuda = options.device.startswith("cuda")
        self.settings: dict[str, dict[str, Any]] = {
            "sardonyx": {"backend": "sardonyx", "options": {"cache_dir": os.environ["TORCHINDUCTOR_CACHE_DIR"]}},
            "inductor": {"dynamic": False} | ({"mode": "reduce-overhead"} if cuda else {}),
        }
        self.rows: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []

    def prepare(self, ours_first: bool) -> None:
        module = self.a.module()
        exact = {batch: tensors(module(*self.a.inputs(batch))) for batch in self.options.batches}
        one = torch.ones(4, device=self.options.device)
        for settings in self.settings.values():
            torch.compile(lambda x: x * 2 + 1, **settings)(one)
        self.clock.wait()
        torch._dynamo.reset()
        self.graphs.clear()
        self.module, _ = for_torch(module, (), self.dtype, self.options.device)
        if self.image():
            self.module = self.module.to(memory_format=torch.channels_last)
        names = list(self.settings) if ours_first else list(reversed(self.settings))
        self.compiled = {n: torch.compile(with_own_code(self.module, n), **self.settings[n]) for n in names}
        for batch in self.options.batches:
            inputs = self.inputs(batch)
            row: dict[str, Any] = {"name": self.a.name, "batch": batch, "first": {}, "errors": {}}
            for name in names:
                self.clock.wait()
                start = time.perf_counter()
                got = tensors(self.compiled[name](*inputs))
                self.clock.wait()
                row["first"][name] = time.perf_counter() - start
                if name == "sardonyx":
                    row["kernels"] = self.compiled_objects()
                    if batch == self.options.batches[-1]:
                        row["at_once"] = self.other(OTHER_BATCH)
                    row["background"] = self.wait_for_background()
                row["errors"][name] = max(relative_error(x, y) for x, y in zip(got, exact[batch], strict=True))
            row["errors"]["eager"] = max(
                relative_error(x, y) for x, y in zip(tensors(self.module(*inputs)), exact[batch], strict=True)
            )
            row["fallbacks"] = [c.reason for c in self.graphs if c.reason]
            row["graphs"] = len(self.graphs)
            self.rows.append(row)
            self.runs.append({n: (lambda e=e, x=inputs: e(*x)) for n, e in self.compiled.items()})
        later = self.other(LATER_BATCH)
        for row in self.rows:
            row["later"] = later

    def programs(self) -> int:
        return len(self.graphs) + sum(len(c.programs) for c in self.graphs)

    def models(self) -> list[Any]:
        return [p.model for c in self.graphs for p, *_ in c.programs if p.model is not None]

    def compiled_objects(self) -> list[int]:
        """Of Sardonyx's programs: objects that calls waited for, and all."""
        states = [m.compiled for m in self.models()]
        return [sum(s.on_demand for s in states), sum(s.objects for s in states)]

    def other(self, batch: int) -> dict[str, Any]:
        """Runs another batch with Sardonyx: seconds, and the programs and objects that it waited for."""
        inputs = self.inputs(batch)
        self.clock.wait()
        before, start = (self.programs(), self.compiled_objects()[0]), time.perf_counter()
        self.compiled["sardonyx"](*inputs)
        self.clock.wait()
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "programs": self.programs() - before[0],
            "objects": self.compiled_objects()[0] - before[1],
        }

    def wait_for_background(self) -> float:
        """Seconds until Sardonyx compiles nothing any more, without taking part in it."""
        start = time.perf_counter()
        while any(m.compiled.ready < m.compiled.objects for m in self.models()):
            if time.perf_counter() - start > BACKGROUND_SECONDS:
                raise RuntimeError(f"the background still compiles after {BACKGROUND_SECONDS} s")
            time.sleep(0.01)
        return time.perf_counter() - start

    def image(self) -> bool:
        return any(x.ndim == 4 for x in self.a.inputs(1))

    def inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        return tuple(for_torch(torch.nn.Identity(), self.a.inputs(batch), self.dtype, self.options.device)[1])

    def measure(self) -> None:
        for row, runs in zip(self.rows, self.runs):
            for run in runs.values():
                for _ in range(3):
                    run()
            self.clock.wait()
            row["engines"] = interleave(self.clock, runs, self.options.turns)
            print(json.dumps(row), flush=True)


def work(name: str, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="torch-backend-") as folder, torch.inference_mode():
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder}
        engines = Engines(name, options)
        engines.prepare(options.ours_first)
        print("ready", flush=True)
        sys.stdin.readline()
        engines.measure()


# ---- the process that lets one after another measure


class Worker:
    """A model's process. Its errors go to a file, so that it never waits for a reader."""

    def __init__(self, name: str, options: argparse.Namespace, ours_first: bool):
        self.name, self.log = name, tempfile.TemporaryFile("w+")  # noqa: SIM115
        arguments = vars(options) | {"ours_first": ours_first, "json": None}
        command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--worker", name, json.dumps(arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.reader = concurrent.futures.ThreadPoolExecutor(1)

    def line(self, seconds: float) -> str:
        """Its next line that is a row or "ready". Raises RuntimeError with its last error, or TimeoutError."""
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        found = self.reader.submit(lambda: next((x for x in lines if x.startswith(("ready", "{"))), ""))
        line = found.result(max(0.1, seconds))
        if not line:
            self.log.seek(0)
            raise RuntimeError(([x for x in self.log.read().splitlines() if x.strip()] or ["no error"])[-1][:500])
        return line

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.shutdown(wait=True)


def text_of(row: dict[str, Any]) -> str:
    ours, theirs = (row["engines"][n]["median"] * 1e3 for n in ("sardonyx", "inductor"))
    first, errors = row["first"], row["errors"]
    text = f"{row['name']} batch {row['batch']}: {ours:.3f} / {theirs:.3f} ms = {ours / theirs:.2f}; first {first['sardonyx']:.1f} / "
    text += (
        f"{first['inductor']:.1f} s = {first['sardonyx'] / first['inductor']:.2f}; errors {errors['sardonyx']:.1e}, "
    )
    text += f"inductor {errors['inductor']:.1e}, eager {errors['eager']:.1e}"
    text += f"; waited for {row['kernels'][0]} of {row['kernels'][1]} objects, background {row['background']:.1f} s"
    for key, batch in (("at_once", OTHER_BATCH), ("later", LATER_BATCH)):
        if other := row.get(key):
            text += f"; batch {batch} {key.replace('_', ' ')}: {other['seconds'] * 1e3:.0f} ms, {other['programs']} programs and {other['objects']} objects compiled"
    return text + (f"; IN PYTORCH: {row['fallbacks'][0]}" if row["fallbacks"] else "")


def sweep(options: argparse.Namespace) -> list[dict[str, Any]]:
    end = time.monotonic() + 60 * options.minutes
    names = list(options.only or MODELS)
    rows: list[dict[str, Any]] = []
    found = {"environment": environment(options.device), "rows": rows}

    def note(row: dict[str, Any], text: str) -> None:
        rows.append(row)
        print(text, flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(found, indent=1))

    for first in range(0, len(names), options.jobs):
        if time.monotonic() > end - 20:
            print(f"no time left for {', '.join(names[first:])}", flush=True)
            break
        chunk = names[first : first + options.jobs]
        workers = [Worker(n, options, (first + k) % 2 == 0) for k, n in enumerate(chunk)]
        by = min(time.monotonic() + PREPARE_SECONDS, end)
        ready = []
        for w in workers:  # all are ready, or have ended, before one measures
            try:
                w.line(by - time.monotonic())
                ready.append(w)
            except Exception as error:
                note(
                    {"name": w.name, "failed": str(error) or type(error).__name__},
                    f"{w.name}: {str(error) or type(error).__name__}",
                )
                w.end()
        for w in ready:
            try:
                w.go()
                for _ in options.batches:
                    row = json.loads(w.line(min(MEASURE_SECONDS, end + 20 - time.monotonic())))
                    note(row, text_of(row))
            except Exception as error:
                note(
                    {"name": w.name, "failed": str(error) or type(error).__name__},
                    f"{w.name}: {str(error) or type(error).__name__}",
                )
            w.end()
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    good = [r for r in rows if "engines" in r]
    if not good:
        return "no model was measured"
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values))
    ratios = {f"{r['name']} batch {r['batch']}": r["engines"]["sardonyx"]["median"] / r["engines"]["inductor"]["median"] for r in good}  # fmt: skip
    firsts = {f"{r['name']} batch {r['batch']}": r["first"]["sardonyx"] / r["first"]["inductor"] for r in good}
    slowest, last = max(ratios, key=lambda k: ratios[k]), max(firsts, key=lambda k: firsts[k])
    text = f"{len(good)} rows: geometric mean of the ratios {mean(ratios.values()):.2f}, largest {ratios[slowest]:.2f} ({slowest}); "
    text += f"first calls {mean(firsts.values()):.2f}, largest {firsts[last]:.2f} ({last}); "
    again = sum(r["later"]["programs"] + r["later"]["objects"] > 0 for r in good)
    text += f"{again} compiled for another batch when the background was idle, {sum(r['at_once']['programs'] > 0 for r in good if 'at_once' in r)} programs at once;"
    return text + f" {sum(bool(r['fallbacks']) for r in good)} in PyTorch"


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        return work(sys.argv[2], argparse.Namespace(**json.loads(sys.argv[3])))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="fp16" if torch.cuda.is_available() else "fp32", choices=list(PRECISIONS))
    parser.add_argument("--only", action="append", help="this architecture; may be repeated")
    parser.add_argument("--batches", type=lambda s: [int(b) for b in s.split(",")], default=[1, 8])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=4 if torch.cuda.is_available() else 1, help="prepared at a time")
    parser.add_argument("--minutes", type=float, default=4.0, help="no model is begun, or waited for, later")
    parser.add_argument("--small", action="store_true", help="narrow models of few layers, to try this program")
    parser.add_argument("--json", help="file for the rows")
    options = parser.parse_args()
    print(summary(sweep(options)))


if __name__ == "__main__":
    main()
