"""Loop kernels on a GPU beside their bound and torch.compile: windows (depthwise and grouped convolution, pooling), reductions,
normalisation, GEMMs after a layer norm, in float16 with the shapes of whole models.

    python benchmarks/gpu_loops.py [--only "depthwise"] [--turns 5] [--limit 480] [--json loops.json]

Needs torch. A case is REPEATS of the same nodes on different tensors in one captured graph on both sides, so that what is measured is the
kernels. `bound` is the time that the bytes of inputs, weights and outputs take at the speed of a large device copy, measured in the same
run (no less than FLOOR: a kernel of a captured graph takes that long whatever it does). Rows farthest from their bound come first.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpu_engines import Ours, our_device
from gpu_kernels import captured, graph_of, random
from gpu_measure import Clock, ceilings, interleave, relative_error
from onnx import helper

REPEATS = 8
TURN_SECONDS = 0.01
FLOOR = 1.5e-6  # seconds of a kernel that does next to nothing
ERROR = 4e-3

Torch = Callable[[torch.Tensor, list[torch.Tensor]], torch.Tensor]


class Loop:
    """What is computed of one tensor: ONNX nodes from "x" to "y", whose weights are named w0, w1, ..., and the same in torch.
    `last`: x and y are channels last, as networks on both sides keep images; the nodes see "t" and write "c", channels first."""

    def __init__(
        self,
        shape: list[int],
        nodes: list[Any],
        weights: list[list[int]],
        peer: Torch,
        scale: float = 1,
        last: bool = False,
    ):
        self.shape, self.nodes, self.weights, self.peer, self.scale, self.last = (
            shape,
            nodes,
            weights,
            peer,
            scale,
            last,
        )


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def image(batch: int, size: int, channels: int) -> list[int]:
    return [batch, size, size, channels]


def conv(
    batch: int,
    size: int,
    channels: int,
    kernel: int,
    stride: int = 1,
    group: int = 0,
    act: str = "relu",
    dilation: int = 1,
    filters: int = 0,
) -> Loop:
    group, filters = group or channels, filters or channels
    pad = dilation * (kernel // 2)
    out = "c" if not act else "a"
    nodes = [node("Conv", "t w0 w1", out, group=group, strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4)]
    if act == "relu":
        nodes.append(node("Relu", "a", "c"))
    elif act == "silu":
        nodes += [node("Sigmoid", "a", "s"), node("Mul", "a s", "c")]
    elif act == "hardswish":
        nodes.append(node("HardSwish", "a", "c"))
    function = {"": lambda x: x, "relu": F.relu, "silu": F.silu, "hardswish": F.hardswish}[act]
    weights = [[filters, channels // group, kernel, kernel], [filters]]
    peer = lambda x, w: function(F.conv2d(x, w[0], w[1], stride, pad, dilation, group))
    return Loop(image(batch, size, channels), nodes, weights, peer, (channels // group * kernel * kernel) ** -0.5, True)


def pool(batch: int, size: int, channels: int, op: str, kernel: int, stride: int, pad: int, act: bool = True) -> Loop:
    nodes = [node(op, "t", "a" if act else "c", kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)]
    if act:
        nodes.append(node("Relu", "a", "c"))
    function = F.max_pool2d if op == "MaxPool" else lambda x, k, s, p: F.avg_pool2d(x, k, s, p, count_include_pad=False)
    peer = lambda x, w: (F.relu if act else lambda v: v)(function(x, kernel, stride, pad))
    return Loop(image(batch, size, channels), nodes, [], peer, last=True)


def two_pools(batch: int, size: int, channels: int) -> Loop:
    same = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}
    nodes = [node("MaxPool", "t", "a", **same), node("AveragePool", "a", "c", **same)]
    peer = lambda x, w: F.avg_pool2d(F.max_pool2d(x, 3, 1, 1), 3, 1, 1, count_include_pad=False)
    return Loop(image(batch, size, channels), nodes, [], peer, last=True)


def global_pool(batch: int, size: int, channels: int) -> Loop:
    peer = lambda x, w: F.adaptive_avg_pool2d(x, 1)
    return Loop(image(batch, size, channels), [node("GlobalAveragePool", "t", "c")], [], peer, last=True)


def line_conv(batch: int, steps: int, channels: int, kernel: int) -> Loop:
    pad = kernel // 2
    nodes = [
        node("Conv", "t w0 w1", "a", group=channels, pads=[pad] * 2),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "c"),
    ]
    peer = lambda x, w: F.silu(F.conv1d(x, w[0], w[1], 1, pad, 1, channels))
    return Loop([batch, steps, channels], nodes, [[channels, 1, kernel], [channels]], peer, kernel**-0.5, True)


def token_conv(batch: int, size: int, channels: int) -> Loop:
    """A depthwise convolution of an image whose pixels are tokens, as SegFormer's and PVT's feed-forward layers have it."""
    side = lambda *dims: helper.make_node("Constant", [], [f"d{len(dims)}"], value_ints=dims)
    nodes = [
        side(batch, channels, size, size),
        side(batch, channels, size * size),
        helper.make_node("Transpose", ["x"], ["r"], perm=[0, 2, 1]),
        node("Reshape", "r d4", "i"),
        node("Conv", "i w0 w1", "a", group=channels, pads=[1] * 4),
        node("Reshape", "a d3", "v"),
        helper.make_node("Transpose", ["v"], ["z"], perm=[0, 2, 1]),
        node("Gelu", "z", "y"),
    ]

    def peer(x: torch.Tensor, w: list[torch.Tensor]) -> torch.Tensor:
        i = x.transpose(1, 2).reshape(batch, channels, size, size)
        return F.gelu(F.conv2d(i, w[0], w[1], 1, 1, 1, channels).flatten(2).transpose(1, 2))

    return Loop([batch, size * size, channels], nodes, [[channels, 1, 3, 3], [channels]], peer, 1 / 3)


def resize(batch: int, size: int, channels: int, scale: int) -> Loop:
    scales = helper.make_node("Constant", [], ["scales"], value_floats=[1.0, 1.0, scale, scale])
    nodes = [scales, helper.make_node("Resize", ["t", "", "scales"], ["c"], mode="linear")]
    peer = lambda x, w: F.interpolate(x, scale_factor=scale, mode="bilinear", align_corners=False)
    return Loop(image(batch, size, channels), nodes, [], peer, last=True)


def norm(rows: int, length: int) -> Loop:
    nodes = [node("LayerNormalization", "x w0 w1", "y", axis=-1)]
    peer = lambda x, w: F.layer_norm(x, (length,), w[0], w[1])
    return Loop([rows, length], nodes, [[length], [length]], peer)


def softmax(rows: int, length: int) -> Loop:
    return Loop([rows, length], [node("Softmax", "x", "y", axis=-1)], [], lambda x, w: F.softmax(x, -1))


def group_norm(batch: int, size: int, channels: int) -> Loop:
    nodes = [
        node("GroupNormalization", "t w0 w1", "a", num_groups=32),
        node("Sigmoid", "a", "s"),
        node("Mul", "a s", "c"),
    ]
    peer = lambda x, w: F.silu(F.group_norm(x, 32, w[0], w[1]))
    return Loop(image(batch, size, channels), nodes, [[channels], [channels]], peer, last=True)


def reduction(shape: list[int], *dims: int) -> Loop:
    axes = helper.make_node("Constant", [], ["axes"], value_ints=dims)
    nodes = [axes, node("ReduceMean", "x axes", "y", keepdims=0)]
    return Loop(shape, nodes, [], lambda x, w: x.mean(dims))


def normed_gemm(rows: list[int], length: int, columns: int) -> Loop:
    nodes = [
        node("LayerNormalization", "x w0 w1", "n", axis=-1),
        node("MatMul", "n w2", "p"),
        node("Add", "p w3", "q"),
        node("Gelu", "q", "y"),
    ]
    peer = lambda x, w: F.gelu(F.layer_norm(x, (length,), w[0], w[1]) @ w[2] + w[3])
    return Loop([*rows, length], nodes, [[length], [length], [length, columns], [columns]], peer, length**-0.5)


CASES: dict[str, tuple[Any, ...]] = {
    "depthwise 3x3, 8x14x14x960, hardswish": (conv, 8, 14, 960, 3, 1, 0, "hardswish"),
    "depthwise 3x3, 1x14x14x960, silu": (conv, 1, 14, 960, 3, 1, 0, "silu"),
    "depthwise 3x3, 8x128x128x16": (conv, 8, 128, 16, 3),
    "depthwise 3x3, 8x112x112x32, silu": (conv, 8, 112, 32, 3, 1, 0, "silu"),
    "depthwise 3x3/2, 8x56x56x144": (conv, 8, 56, 144, 3, 2),
    "depthwise 5x5, 8x28x28x240, silu": (conv, 8, 28, 240, 5, 1, 0, "silu"),
    "depthwise 5x5/2, 8x56x56x72": (conv, 8, 56, 72, 5, 2),
    "depthwise 7x7, 8x56x56x96": (conv, 8, 56, 96, 7, 1, 0, ""),
    "depthwise 7x7, 1x14x14x384": (conv, 1, 14, 384, 7, 1, 0, ""),
    "depthwise 7x7, 8x7x7x768": (conv, 8, 7, 768, 7, 1, 0, ""),
    "depthwise 31x31, 1x28x28x256": (conv, 1, 28, 256, 31, 1, 0, ""),
    "depthwise 3x3 dilated, 8x28x28x256": (conv, 8, 28, 256, 3, 1, 0, "relu", 2),
    "depthwise 31, 8x1000x512, silu": (line_conv, 8, 1000, 512, 31),
    "depthwise 3x3 of tokens, gelu, 1x128x128x128": (token_conv, 1, 128, 128),
    "depthwise 3x3 of tokens, gelu, 8x14x14x640": (token_conv, 8, 14, 640),
    "depthwise 3, 8x2048x1536, silu": (line_conv, 8, 2048, 1536, 3),
    "resize by 4, 1x32x32x256": (resize, 1, 32, 256, 4),
    "resize by 2, 8x64x64x128": (resize, 8, 64, 128, 2),
    "grouped 3x3 of 4, 8x56x56x128": (conv, 8, 56, 128, 3, 1, 32),
    "grouped 3x3 of 4/2, 8x56x56x256": (conv, 8, 56, 256, 3, 2, 64),
    "grouped 3x3 of 8, 8x28x28x256": (conv, 8, 28, 256, 3, 1, 32),
    "grouped 3x3 of 16, 8x14x14x512": (conv, 8, 14, 512, 3, 1, 32),
    "grouped 3x3 of 16/2, 8x56x56x512": (conv, 8, 56, 512, 3, 2, 32),
    "grouped 3x3 of 24, 8x28x28x192": (conv, 8, 28, 192, 3, 1, 8),
    "3x3 to 3 channels, 1x256x256x128": (conv, 1, 256, 128, 3, 1, 1, "", 1, 3),
    "3x3 to 1 channel, 8x64x64x64": (conv, 8, 64, 64, 3, 1, 1, "", 1, 1),
    "3x3 to 4 channels, 2x64x64x320": (conv, 2, 64, 320, 3, 1, 1, "", 1, 4),
    "1x1 to 1 channel, 1x256x256x256": (conv, 1, 256, 256, 1, 1, 1, "", 1, 1),
    "MaxPool 3x3/2, 8x112x112x64": (pool, 8, 112, 64, "MaxPool", 3, 2, 1),
    "MaxPool 2x2, 8x56x56x128": (pool, 8, 56, 128, "MaxPool", 2, 2, 0, False),
    "MaxPool 13x13, 8x20x20x256": (pool, 8, 20, 256, "MaxPool", 13, 1, 6, False),
    "AveragePool 2x2, 8x56x56x128": (pool, 8, 56, 128, "AveragePool", 2, 2, 0),
    "AveragePool 3x3, 8x35x35x192": (pool, 8, 35, 192, "AveragePool", 3, 1, 1),
    "AveragePool 7x7, 8x14x14x512": (pool, 8, 14, 512, "AveragePool", 7, 7, 0, False),
    "MaxPool and AveragePool, 8x7x7x512": (two_pools, 8, 7, 512),
    "global pool, 8x7x7x1280": (global_pool, 8, 7, 1280),
    "global pool, 8x56x56x64": (global_pool, 8, 56, 64),
    "global pool, 1x112x112x32": (global_pool, 1, 112, 32),
    "layer norm, 2056x768": (norm, 2056, 768),
    "layer norm, 25088x96": (norm, 25088, 96),
    "layer norm, 128x8192": (norm, 128, 8192),
    "softmax, 24576x512": (softmax, 24576, 512),
    "softmax, 8192x49": (softmax, 8192, 49),
    "softmax, 64x50257": (softmax, 64, 50257),
    "softmax, 8x128256": (softmax, 8, 128256),
    "softmax, 1024x4096": (softmax, 1024, 4096),
    "group norm and silu, 2x64x64x320": (group_norm, 2, 64, 320),
    "group norm and silu, 8x32x32x640": (group_norm, 8, 32, 640),
    "group norm and silu, 1x256x256x128": (group_norm, 1, 256, 128),
    "mean over 0 of 4096x1024": (reduction, [4096, 1024], 0),
    "mean over 1 of 64x197x768": (reduction, [64, 197, 768], 1),
    "mean over 2 of 64x768x197": (reduction, [64, 768, 197], 2),
    "mean over 1 and 2 of 64x14x14x768": (reduction, [64, 14, 14, 768], 1, 2),
    "mean over 0 and 2 of 8x256x3136": (reduction, [8, 256, 3136], 0, 2),
    "mean over all of 8x256x3136": (reduction, [8, 256, 3136], 0, 1, 2),
    "norm, product, gelu: 2048x768x3072": (normed_gemm, [2048], 768, 3072),
    "norm, product, gelu: 2056x768x3072": (normed_gemm, [2056], 768, 3072),
    "norm, product, gelu: 8x257x768x3072": (normed_gemm, [8, 257], 768, 3072),
    "norm, product, gelu: 1576x768x3072": (normed_gemm, [1576], 768, 3072),
    "norm, product, gelu: 1000x1024x4096": (normed_gemm, [1000], 1024, 4096),
}


def onnx_model(loop: Loop, xs: dict[str, torch.Tensor], weights: list[torch.Tensor]) -> Any:
    """The nodes once for each input; weights are the same tensors."""
    nodes = []
    rank = len(loop.shape)
    for k, x in enumerate(xs):
        names = {"x": x, "y": f"y{k}"}
        if loop.last:
            names |= {"t": f"t{k}", "c": f"c{k}"}
            nodes.append(helper.make_node("Transpose", [x], [f"t{k}"], perm=[0, rank - 1, *range(1, rank - 1)]))
        for n in loop.nodes:
            own = type(n)()
            own.CopyFrom(n)
            for names_of in (own.input, own.output):
                for i, name in enumerate(names_of):
                    names_of[i] = name if not name or name.startswith("w") else names.get(name, f"{name}_{k}")
            nodes.append(own)
        if loop.last:
            nodes.append(helper.make_node("Transpose", [f"c{k}"], [f"y{k}"], perm=[0, *range(2, rank), 1]))
    constants = {f"w{k}": w.cpu().numpy() for k, w in enumerate(weights)}
    return graph_of(nodes, list(xs.items()), [f"y{k}" for k in range(len(xs))], constants)


def measure(name: str, device: str, turns: int, speed: dict[str, float]) -> dict[str, Any]:
    import sardonyx

    make, *arguments = CASES[name]
    loop: Loop = make(*arguments)
    rank = len(loop.shape)
    xs = {f"x{k}": random(*loop.shape, seed=k, device=device) for k in range(REPEATS)}
    weights = [
        random(*shape, seed=100 + k, device=device) * (loop.scale if len(shape) > 1 else 1)
        for k, shape in enumerate(loop.weights)
    ]
    model = sardonyx.compile(onnx_model(loop, xs, weights), device=our_device(device), threads=4)
    first = (lambda x: x.permute(0, rank - 1, *range(1, rank - 1))) if loop.last else (lambda x: x)
    last = (lambda y: y.permute(0, *range(2, rank), 1)) if loop.last else (lambda y: y)
    images = [first(x) for x in xs.values()]
    theirs = [w.contiguous(memory_format=torch.channels_last) if w.ndim == 4 else w for w in weights]
    ours = Ours(model, xs)
    got = ours.results()[0].clone()
    exact = last(loop.peer(images[0].float(), [w.float() for w in weights]))
    error = relative_error(got, exact)
    engines: dict[str, Any] = {"sardonyx": ours}
    peer_error = math.nan
    torch._dynamo.reset()
    try:
        one = torch.compile(lambda x: loop.peer(x, theirs), dynamic=False)
        peer_error = relative_error(last(one(images[0])), exact)
        engines["torch"] = captured(lambda: [one(x) for x in images], device)
    except Exception as problem:
        print(f"{name}: torch.compile fails: {str(problem).splitlines()[0]}", flush=True)
    for _ in range(3):
        ours()
    timed = interleave(Clock(device), engines, turns, TURN_SECONDS)
    size = lambda x: x.numel() * x.element_size()
    moved = size(images[0]) + size(got) + sum(size(w) for w in weights)
    operations = 0.0
    if make in (conv, line_conv, token_conv):
        operations = 2.0 * got.numel() * math.prod(loop.weights[0][1:])
    elif make is normed_gemm:
        operations = 2.0 * math.prod(loop.shape[:-1]) * math.prod(loop.weights[2])
    bound = max(moved / speed["bytes_per_second"], FLOOR)
    dense = make is normed_gemm or (make is conv and loop.weights[0][1] >= 8)
    if dense:
        bound = max(bound, operations / speed["operations_per_second"])
    seconds = {n: t["median"] / REPEATS for n, t in timed.items()}
    return {
        "name": name, "seconds": seconds, "bytes": moved, "operations": operations, "bound": bound, "kernels": len(model.kernels()),
        "error": error, "peer_error": peer_error, "correct": error <= max(ERROR, 2 * peer_error),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    rows = sorted(rows, key=lambda r: r["bound"] / r["seconds"]["sardonyx"])
    lines = [
        f"{'case':42s} {'us':>9s} {'bound us':>9s} {'of bound':>9s} {'torch us':>9s} {'ratio':>6s} {'MB':>7s} kernels  error"
    ]
    for r in rows:
        us, bound = r["seconds"]["sardonyx"] * 1e6, r["bound"] * 1e6
        peer = r["seconds"].get("torch", math.nan) * 1e6
        wrong = "" if r["correct"] else "  WRONG"
        lines.append(
            f"{r['name']:42s} {us:9.2f} {bound:9.2f} {bound / us:9.0%} {peer:9.2f} {us / peer:6.2f} {r['bytes'] / 1e6:7.1f} "
            f"{r['kernels']:7d}  {r['error']:.1e}{wrong}"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="cases whose names contain one of these")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--limit", type=float, default=480, help="seconds after which no case begins")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    start = time.monotonic()
    if options.device.startswith("cuda"):
        torch.cuda.set_stream(torch.cuda.Stream())
    speed = ceilings(options.device)
    print(
        f"copy {speed['bytes_per_second'] / 1e12:.2f} TB/s, products {speed['operations_per_second'] / 1e12:.0f} TFLOP/s",
        flush=True,
    )
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for name in CASES:
            if options.only and not any(o in name for o in options.only):
                continue
            if time.monotonic() - start > options.limit:
                print(f"{name} and what follows: no time left", flush=True)
                break
            try:
                rows.append(measure(name, options.device, options.turns, speed))
                print(table(rows[-1:]).splitlines()[1], flush=True)
            except Exception:
                print(f"{name} FAILED", flush=True)
                traceback.print_exc()
            if options.json:
                options.json.write_text(json.dumps({"speed": speed, "rows": rows}))
    print("\n" + table(rows))
    return 0 if rows and all(r["correct"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
