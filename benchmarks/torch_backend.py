"""torch.compile's backend "sardonyx" beside inductor: times of the same modules in turns, and agreement with eager PyTorch.

    python benchmarks/torch_backend.py [--device cuda] [--dtype fp16] [--only " resnet50 "] [--batches 1,8] [--json rows.json]

On a GPU inductor uses CUDA graphs (mode "reduce-overhead"). A first call is timed with all of its compilation, caches as they
are. Needs torch, torchvision and transformers.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import torch
import zoo
from gpu_engines import PRECISIONS
from gpu_measure import Clock, interleave, relative_error
from gpu_zoo import for_torch, tensors

DEFAULT = ["resnet50", "mobilenet_v3_large", "vit_b_16", "distilbert", "gpt2", "convnext_tiny"]


def measure(a: zoo.Architecture, batches: list[int], options: Any) -> list[dict[str, Any]]:
    clock, dtype = Clock(options.device), PRECISIONS[options.dtype]
    module = a.module()
    rows = []
    engines: dict[str, Any] = {}
    for name, settings in (
        ("sardonyx", {"backend": "sardonyx"}),
        ("inductor", {"mode": "reduce-overhead"} if options.device.startswith("cuda") else {}),
    ):
        torch._dynamo.reset()
        engines[name] = torch.compile(module, **settings)
    for batch in batches:
        module, inputs = for_torch(module, a.inputs(batch), dtype, options.device)
        want = tensors(module(*inputs))
        row: dict[str, Any] = {"name": a.name, "batch": batch, "first": {}, "errors": {}}
        for name, engine in engines.items():
            start = time.perf_counter()
            got = tensors(engine(*inputs))
            clock.wait()
            row["first"][name] = time.perf_counter() - start
            row["errors"][name] = max(relative_error(x, y) for x, y in zip(got, want))
            for _ in range(3):
                engine(*inputs)
        runs = {n: (lambda e=e, x=inputs: e(*x)) for n, e in engines.items()}
        row["engines"] = interleave(clock, runs, options.turns)
        ours, theirs = (row["engines"][n]["median"] * 1e3 for n in ("sardonyx", "inductor"))
        print(
            f"{a.name} batch {batch}: {ours:.3f} / {theirs:.3f} ms = {ours / theirs:.2f}; first {row['first']['sardonyx']:.1f} / "
            f"{row['first']['inductor']:.1f} s; errors {row['errors']['sardonyx']:.1e} {row['errors']['inductor']:.1e}",
            flush=True,
        )
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="fp16" if torch.cuda.is_available() else "fp32", choices=list(PRECISIONS))
    parser.add_argument("--only", action="append", default=[], help="architectures of zoo.py whose names contain this")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = []
    with torch.inference_mode():
        for a in zoo.architectures():
            if any(o in f" {a.name} " for o in options.only or [f" {n} " for n in DEFAULT]):
                rows += measure(a, [int(b) for b in options.batches.split(",")], options)
                if options.json:
                    options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
