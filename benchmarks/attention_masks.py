"""Attention in float16 over sizes of heads and kinds of masks: against float32, and in turns with PyTorch's.

    python benchmarks/attention_masks.py                                 on an NVIDIA GPU, 3 minutes
    python benchmarks/attention_masks.py --masks scores --heads 64,128   some rows
    python benchmarks/attention_masks.py --device host --shapes 1x2x37   results only

Needs numpy, onnx, torch. A row has a chain of attentions, each with the result of the one before as its query, so that copies of
inputs and outputs do not count. The exit status is 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import quantized_gemm
import sardonyx
import torch
from onnx import TensorProto, helper, save_model
from torch.nn.functional import scaled_dot_product_attention

CHAIN = 12
#: Outputs of up to 4 are rounded to float16 (2^-10 of error), and so are probabilities and the sum of two biases.
TOLERANCE = 4e-3
HEADS = "32,40,64,72,80,96,104,112,120,128"
SHAPES = "1x12x197,8x12x197,4x12x384,8x12x512,1x8x2048"  #: batch x heads x rows
#: none; causal; a bias of keys [b, 1, 1, t]; one of scores [b, h, s, t]; the sum of [1, h, s, t] and [b, 1, 1, t]
MASKS = "none,causal,keys,scores,both"


def model(shape: list[int], mask: str, count: int) -> Any:
    b, h, s, _ = shape
    masks = {
        "keys": {"m": [b, 1, 1, s]},
        "scores": {"m": [b, h, s, s]},
        "both": {"m0": [1, h, s, s], "m1": [b, 1, 1, s]},
    }
    infos = {"q": shape, "k": shape, "v": shape} | masks.get(mask, {})
    nodes = [helper.make_node("Add", ["m0", "m1"], ["m"])] if mask == "both" else []
    for n in range(count):
        names = [f"y{n - 1}" if n else "q", "k", "v"] + (["m"] if mask in masks else [])
        result = "y" if n == count - 1 else f"y{n}"
        nodes.append(helper.make_node("Attention", names, [result], is_causal=int(mask == "causal")))
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, d) for n, d in (infos | {"y": shape}).items()]
    graph = helper.make_graph(nodes, "attention", tensors[:-1], tensors[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def inputs(shape: list[int], mask: str) -> dict[str, np.ndarray]:
    """Random operands; of the keys a quarter is masked."""
    b, h, s, d = shape
    rng = np.random.default_rng(b * 1000 + d)
    keys = np.where(np.arange(s) >= s - s // 4, -60000, rng.standard_normal(s)).astype(np.float16)
    feed = {n: rng.standard_normal(shape).astype(np.float16) for n in "qkv"}
    if mask in ("keys", "both"):
        feed["m" if mask == "keys" else "m1"] = np.broadcast_to(keys, (b, 1, 1, s)).copy()
    if mask == "scores":
        feed["m"] = rng.standard_normal((b, h, s, s)).astype(np.float16)
    if mask == "both":
        feed["m0"] = rng.standard_normal((1, h, s, s)).astype(np.float16)
    return feed


def compiled(folder: pathlib.Path, device: str, *what: Any) -> Any:
    save_model(model(*what), folder / "attention.onnx")
    return sardonyx.compile(folder / "attention.onnx", device=device)


def row(shape: list[int], mask: str, device: str) -> bool:
    """Prints a row; returns whether its result is right."""
    feed = inputs(shape, mask)
    place = "cpu" if device == "host" else device
    operands = [torch.from_numpy(feed[n]).to(place) for n in "qkv"]
    bias = (
        None
        if mask in ("none", "causal")
        else sum(torch.from_numpy(x).to(place) for n, x in feed.items() if n[0] == "m")
    )
    causal = mask == "causal"
    want = scaled_dot_product_attention(
        *(x.float() for x in operands), attn_mask=None if bias is None else bias.float(), is_causal=causal
    )
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        got = np.asarray(compiled(folder, device, shape, mask, 1)(feed)["y"], np.float32)
        error = float(np.abs(got - want.cpu().numpy()).max())
        right = error < TOLERANCE
        times = ""
        if device != "host":
            quantized_gemm.DEVICE = device
            chain = quantized_gemm.bound(compiled(folder, device, shape, mask, CHAIN), feed)

            def theirs() -> None:
                y, k, v = operands
                for _ in range(CHAIN):
                    y = scaled_dot_product_attention(y, k, v, attn_mask=bias, is_causal=causal)

            turns = quantized_gemm.Turns({"ours": chain, "torch": quantized_gemm.in_graph(theirs)}, 10)
            ours, other = (turns.median(n) / CHAIN for n in ("ours", "torch"))
            times = f"{ours:8.1f} us, PyTorch {other:8.1f} us, ratio {ours / other:.2f}, "
    print(f"{'x'.join(map(str, shape)):16} {mask:8} {times}error {error:.1e}{'' if right else ' WRONG'}", flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--heads", default=HEADS, help="elements of a head")
    parser.add_argument("--shapes", default=SHAPES, help="batch x heads x rows")
    parser.add_argument("--masks", default=MASKS)
    options = parser.parse_args()
    shapes = [[int(n) for n in s.split("x")] for s in options.shapes.split(",")]
    heads = [int(n) for n in options.heads.split(",")]
    wrong = 0
    for d, mask, shape in itertools.product(heads, options.masks.split(","), shapes):
        wrong += not row([*shape, d], mask, options.device)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
