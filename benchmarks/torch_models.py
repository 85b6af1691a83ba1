"""Small models of torchvision and transformers, with random weights, through torch.compile's backend "sardonyx" on the host.

    python benchmarks/torch_models.py [--only bert] [--jobs 2] [--json models.json]

Each is run with two batches (the second makes the batch symbolic) and a third, which should compile nothing, and compared with
eager PyTorch. Where a random network amplifies rounding (errors above the tolerance), both are compared with float64: an error of at
most four times eager PyTorch's own is right. Counted are the graphs that torch.compile finds, which are the same for all backends, and those that PyTorch runs
in our place: graph breaks that inductor has not.
"""

from __future__ import annotations

import argparse
import copy
import json
import pathlib
import sys
from typing import Any

import torch
import zoo
from gpu_zoo import tensors
from torch_backend import own_rows
from torch_operators import Worker, in_turn

MODELS = ["bert_base", "densenet121", "whisper_tiny_encoder", "distilbert", "roberta_base", "albert_base", "electra_base", "mpnet", "deberta_v2", "mobilebert", "squeezebert", "fnet", "modernbert", "t5_encoder", "gpt2", "opt_350m", "bloom_560m", "pythia_410m", "qwen2_0_5b", "gemma2_2b_4_layers", "mixtral_2_layers", "mamba_130m", "convbert_base", "xlnet_base", "gpt_neo_125m", "phi_4_layers", "falcon_2_layers", "stablelm_4_layers", "rwkv_169m", "deit_small", "beit_base", "dinov2_small", "convnextv2_tiny", "poolformer_s12", "segformer_b0", "pvt_v2_b0", "cvt_13", "levit", "mobilevit_small", "focalnet_tiny", "clip_vision", "siglip_vision", "wav2vec2_base", "hubert_base", "hifigan", "audio_spectrogram", "patchtst", "resnet18", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2_x1_0", "squeezenet1_1", "mnasnet1_0", "efficientnet_b0", "regnet_y_400mf", "resnet50", "googlenet", "alexnet", "vgg16_bn", "inception_v3", "convnext_tiny", "swin_t", "swin_v2_t", "vit_b_16", "lraspp_mobilenet_v3_large", "fcn_resnet50", "r3d_18", "ssdlite320_mobilenet_v3_large"]  # fmt: skip
BATCHES = (2, 3, 4)
#: Of the largest value: random networks of up to 200 layers, each of which sums in another order.
TOLERANCE = 1e-3
SECONDS = 400
#: Of eager PyTorch's own error, for networks that amplify rounding: two errors of one distribution.
AMPLIFIED = 4.0


def relative(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    pairs = list(zip(got, want, strict=True))
    return max(float((x.double() - y.double()).abs().max() / y.double().abs().max().clamp_min(1e-30)) for x, y in pairs)


def is_amplified(module: Any, inputs: tuple[Any, ...], ours: list[torch.Tensor], eager: list[torch.Tensor]) -> bool:
    """Whether float32 is no more exact in eager PyTorch."""
    exact = copy.deepcopy(module).double()
    want = tensors(exact(*(x.double() if x.is_floating_point() else x for x in inputs)))
    return relative(ours, want) <= AMPLIFIED * relative(eager, want)


def run_model(name: str) -> dict[str, Any]:
    import sardonyx.torch

    a = next(a for a in own_rows(True) + zoo.architectures(True) if a.name == name)
    found: list[Any] = []
    stop = sardonyx.torch.observe(found.append)
    torch._dynamo.reset()
    row: dict[str, Any] = {"name": name, "verdict": "right", "notes": ""}
    try:
        module = a.module()
        compiled = torch.compile(module, backend="sardonyx")
        row["errors"] = []
        for batch in BATCHES:
            before = len(found) + sum(len(c.programs) for c in found)
            inputs = a.inputs(batch)
            got, want = tensors(compiled(*inputs)), tensors(module(*inputs))
            error = relative(got, want)
            if [x.dtype for x in got] != [y.dtype for y in want]:
                error = float("inf")
            elif error > TOLERANCE and is_amplified(module, inputs, got, want):
                row.setdefault("amplified", []).append(error)
                error = 0.0
            row["errors"].append(error)
        row["compiled for the last batch"] = len(found) + sum(len(c.programs) for c in found) - before
    except Exception as error:
        row |= {"verdict": "crashed", "notes": f"{type(error).__name__}: {error}"[:500]}
        return row
    finally:
        stop()
    row["graphs"] = len({c.gm.code for c in found})
    fallbacks = [c for c in found if c.reason]
    row["in PyTorch"] = len({c.gm.code for c in fallbacks})
    if not max(row["errors"]) <= TOLERANCE:
        row |= {"verdict": "wrong", "notes": str(row["errors"])}
    elif fallbacks:
        row |= {"verdict": "in PyTorch", "notes": fallbacks[0].reason}
    return row


def work() -> None:
    with torch.no_grad():
        for line in sys.stdin:
            print(json.dumps(run_model(line.strip())), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="models whose names contain this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work()
    names = [n for n in MODELS if not options.only or any(o in n for o in options.only)]
    workers = [Worker(str(pathlib.Path(__file__)), [], SECONDS) for _ in range(options.jobs)]
    rows = []
    for row in in_turn(workers, [(n, n) for n in names]):
        rows.append(row)
        print(f"{row['verdict']:12} {row}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    right = sum(r["verdict"] in ("right", "in PyTorch") for r in rows)
    broken = sum(bool(r.get("in PyTorch")) for r in rows)
    again = sum(bool(r.get("compiled for the last batch")) for r in rows)
    print(f"{right} of {len(rows)} right; {broken} with graphs in PyTorch; {again} compiled again for a third batch")


if __name__ == "__main__":
    main()
