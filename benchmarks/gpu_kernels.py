"""Single kernels compared with libraries: GEMM with cuBLAS, convolutions with cuDNN, attention with PyTorch's default (cuDNN's or flash
attention, by size) and with its flash attention by name, all in float16 with the sizes of the measured models.

Each case is REPEATS of the same kernel on different tensors in one captured graph on both sides, so that kernels are
measured, not launches. Results are compared with float32.
"""

from __future__ import annotations

import concurrent.futures
import traceback
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from gpu_engines import Ours, our_device
from gpu_measure import Budget, Clock, Results, interleave, relative_error
from onnx import TensorProto, helper, numpy_helper
from torch.nn.attention import SDPBackend, sdpa_kernel

REPEATS = 16
TOGETHER = 8  # cases that are compiled together before they are measured
TURN_SECONDS = 0.01  # seconds; hundreds of runs of a captured graph of short kernels
#: for float16: sums of up to thousands of terms are accumulated in float32 on both sides and rounded once
ERROR = 2e-3

#: M, N, K: M is the number of tokens at batch 1 and 8 (in a decoding step the batch)
GEMMS = {
    "BERT 128 q+k+v": (128, 2304, 768),
    "BERT 128 up": (128, 3072, 768),
    "BERT 128 down": (128, 768, 3072),
    "BERT 8x128 q+k+v": (1024, 2304, 768),
    "BERT 8x512 q+k+v": (4096, 2304, 768),
    "BERT 8x512 out": (4096, 768, 768),
    "BERT 8x512 up": (4096, 3072, 768),
    "BERT 8x512 down": (4096, 768, 3072),
    "ViT 8x197 q+k+v": (1576, 2304, 768),
    "ViT 8x197 up": (1576, 3072, 768),
    "Whisper 1500 up": (1500, 1536, 384),
    "Whisper 8x1500 up": (12000, 1536, 384),
    "ResNet fc 64": (64, 1000, 2048),
    "Llama-1B up+gate 1": (1, 16384, 2048),
    "Llama-1B down 1": (1, 2048, 8192),
    "Llama-1B up+gate 8": (8, 16384, 2048),
    "Llama-1B up+gate 512": (512, 16384, 2048),
    "Llama-1B head 1": (1, 128256, 2048),
    "4096 cubed": (4096, 4096, 4096),
}
#: ResNet-50's convolutions: input channels, size, output channels, kernel, stride, their number in the network
CONVOLUTIONS = [
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 1, 1, 1),
    (64, 56, 64, 3, 1, 3),
    (64, 56, 256, 1, 1, 4),
    (256, 56, 64, 1, 1, 2),
    (256, 56, 128, 1, 1, 1),
    (128, 56, 128, 3, 2, 1),
    (128, 28, 512, 1, 1, 4),
    (256, 56, 512, 1, 2, 1),
    (512, 28, 128, 1, 1, 3),
    (128, 28, 128, 3, 1, 3),
    (512, 28, 256, 1, 1, 1),
    (256, 28, 256, 3, 2, 1),
    (256, 14, 1024, 1, 1, 6),
    (512, 28, 1024, 1, 2, 1),
    (1024, 14, 256, 1, 1, 5),
    (256, 14, 256, 3, 1, 5),
    (1024, 14, 512, 1, 1, 1),
    (512, 14, 512, 3, 2, 1),
    (512, 7, 2048, 1, 1, 3),
    (1024, 14, 2048, 1, 2, 1),
    (2048, 7, 512, 1, 1, 2),
    (512, 7, 512, 3, 1, 2),
]
CONVOLUTION_BATCHES = (1, 8, 64)
#: batch, query heads, key heads, queries, keys, head size, causal
ATTENTIONS = {
    "BERT 128": (1, 12, 12, 128, 128, 64, False),
    "BERT 8x512": (8, 12, 12, 512, 512, 64, False),
    "ViT 8x197": (8, 12, 12, 197, 197, 64, False),
    "Whisper 8x1500": (8, 6, 6, 1500, 1500, 64, False),
    "16x4096x128": (1, 16, 16, 4096, 4096, 128, False),
    "16x4096x128 causal": (1, 16, 16, 4096, 4096, 128, True),
    "Llama-1B 8x512": (8, 32, 8, 512, 512, 64, True),
    "Llama-1B decode 512": (1, 32, 8, 1, 512, 64, False),
    "Llama-1B decode 8x4096": (8, 32, 8, 1, 4096, 64, False),
}


def graph_of(
    nodes: list[Any], inputs: list[Any], outputs: list[str], constants: dict[str, np.ndarray]
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, list(x.shape)) for n, x in inputs]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, None) for n in outputs]
    weights = [numpy_helper.from_array(x, n) for n, x in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def random(*shape: int, seed: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(torch.float16)


class Case:
    """REPEATS of a kernel: an ONNX model with its inputs, and the same in torch (`peer(k, dtype)` for number k), with
    torch's alternatives by name."""

    def __init__(
        self,
        model: onnx.ModelProto,
        feed: dict[str, torch.Tensor],
        peer: Any,
        operations: float,
        bytes_: float,
        others: dict[str, Any] | None = None,
    ):
        self.model, self.feed, self.peer, self.others = model, feed, peer, others or {}
        self.operations, self.bytes = operations, bytes_  # of one kernel


def gemm(m: int, n: int, k: int, device: str) -> Case:
    # Large weights are shared by the repeats: 16 sets of them would take too much memory.
    count = REPEATS if n * k < 1 << 26 else 2
    x = {f"x{i}": random(m, k, seed=i, device=device) for i in range(count)}
    w = [random(n, k, seed=100 + i, device=device) / k**0.5 for i in range(count)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"]) for i in range(count)]
    weights = {f"w{i}": w[i].T.cpu().numpy() for i in range(count)}
    model = graph_of(nodes, list(x.items()), [f"y{i}" for i in range(count)], weights)
    peer = lambda i, dtype: F.linear(x[f"x{i}"].to(dtype), w[i].to(dtype))
    return Case(model, x, peer, 2 * m * n * k, 2 * (m * k + n * k + m * n))


def convolution(batch: int, c: int, size: int, out: int, kernel: int, stride: int, device: str) -> Case:
    """Channels last on both sides: in ONNX by transpositions around the convolution, which only set the layout. Without a
    bias, which is a separate kernel in PyTorch."""
    x = {f"x{i}": random(batch, size, size, c, seed=i, device=device) for i in range(REPEATS)}
    scale = (c * kernel * kernel) ** -0.5
    weights = [
        (random(out, c, kernel, kernel, seed=100 + i, device=device) * scale).contiguous(
            memory_format=torch.channels_last
        )
        for i in range(REPEATS)
    ]
    constants, nodes = {}, []
    for i in range(REPEATS):
        constants[f"w{i}"] = weights[i].cpu().numpy()
        pads = [kernel // 2] * 4
        nodes += [
            helper.make_node("Transpose", [f"x{i}"], [f"t{i}"], perm=[0, 3, 1, 2]),
            helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"c{i}"], strides=[stride, stride], pads=pads),
            helper.make_node("Transpose", [f"c{i}"], [f"y{i}"], perm=[0, 2, 3, 1]),
        ]
    model = graph_of(nodes, list(x.items()), [f"y{i}" for i in range(REPEATS)], constants)
    images = [x[f"x{i}"].permute(0, 3, 1, 2) for i in range(REPEATS)]

    def peer(i: int, dtype: torch.dtype) -> torch.Tensor:
        y = F.conv2d(images[i].to(dtype), weights[i].to(dtype), None, stride, kernel // 2)
        return y.permute(0, 2, 3, 1)

    to = (size - 1) // stride + 1
    operations = 2 * batch * to * to * out * c * kernel * kernel
    return Case(model, x, peer, operations, 2 * (batch * size * size * c + batch * to * to * out + out * c * kernel**2))


def attention(b: int, h: int, hk: int, s: int, t: int, d: int, causal: bool, device: str) -> Case:
    shapes = {"q": (b, h, s, d), "k": (b, hk, t, d), "v": (b, hk, t, d)}
    feed = {
        f"{n}{i}": random(*shape, seed=10 * i + j, device=device)
        for i in range(REPEATS)
        for j, (n, shape) in enumerate(shapes.items())
    }
    nodes = [
        helper.make_node("Attention", [f"q{i}", f"k{i}", f"v{i}"], [f"y{i}"], is_causal=int(causal))
        for i in range(REPEATS)
    ]
    model = graph_of(nodes, list(feed.items()), [f"y{i}" for i in range(REPEATS)], {})

    def peer(i: int, dtype: torch.dtype) -> torch.Tensor:
        q, k, v = (feed[f"{n}{i}"].to(dtype) for n in "qkv")
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=h != hk)

    def flash(i: int, dtype: torch.dtype) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return peer(i, dtype)

    operations = 4 * b * h * s * t * d * (0.5 if causal else 1)
    return Case(model, feed, peer, operations, 2 * b * d * (2 * h * s + 2 * hk * t), {"flash": flash})


def captured(engine: Any, device: str) -> Any:
    """As a captured graph, on a GPU."""
    if not device.startswith("cuda"):
        return engine
    for _ in range(3):
        engine()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        engine()
    return graph.replay


def measure_kernels(options: Any, results: Results, budget: Budget) -> None:
    device = options.device
    cases: dict[str, Any] = {f"gemm/{name} {size}": (gemm, (*size, device)) for name, size in GEMMS.items()}
    for name, size in ATTENTIONS.items():
        cases[f"attention/{name}"] = (attention, (*size, device))
    for batch in CONVOLUTION_BATCHES:
        for c, size, out, kernel, stride, _ in CONVOLUTIONS:
            name = f"conv/{batch}x{c}x{size}x{size} {out} of {kernel}x{kernel}/{stride}"
            cases[name] = (convolution, (batch, c, size, out, kernel, stride, device))
    wanted = [k for k in cases if not results.has(k) and (not options.only or any(o in k for o in options.only))]
    for at in range(0, len(wanted), TOGETHER):
        keys = wanted[at : at + TOGETHER]
        if not budget.begin():
            print(f"{keys[0]} and what follows: no time left", flush=True)
            return
        made = [attempt(make, *arguments) for make, arguments in (cases[k] for k in keys)]
        with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
            models = list(pool.map(lambda c: attempt(compiled, c, device), made))
        for key, case, model in zip(keys, made, models):
            row: dict[str, Any] = {"kind": key.split("/")[0], "precision": "fp16"}
            try:
                for x in (case, model):
                    if isinstance(x, Exception):
                        raise x
                measure_case(row, case, model, options)
            except Exception as error:
                row["failed"] = f"{type(error).__name__}: {error}"
                traceback.print_exc()
            results.add(key, row)
            print(key, row.get("failed") or text_of(row), flush=True)
        budget.done()


def attempt(make: Any, *arguments: Any) -> Any:
    """The result, or the error of the case."""
    try:
        return make(*arguments)
    except Exception as error:
        return error


def compiled(case: Any, device: str) -> Any:
    import sardonyx

    if isinstance(case, Exception):
        return case
    return sardonyx.compile(case.model, device=our_device(device), threads=2)


def text_of(row: dict[str, Any]) -> str:
    us = {n: f"{e['median'] * 1e6 / row['repeats']:.2f}" for n, e in row["engines"].items()}
    return f"{us} us, {row['kernels']} kernels; from float32 {row['errors']}{'' if row['correct'] else ' WRONG'}"


def measure_case(row: dict[str, Any], case: Case, model: Any, options: Any) -> None:
    device = options.device
    dtype = torch.float16
    clock = Clock(device)
    count = len(case.model.graph.output)
    ours = Ours(model, case.feed)
    got = ours.results()
    for _ in range(3):
        ours()
    peer = captured(lambda: [case.peer(i, dtype) for i in range(count)], device)
    exact, theirs = case.peer(0, torch.float32), case.peer(0, dtype)
    row |= {"repeats": count, "operations": case.operations, "bytes": case.bytes, "kernels": len(model.kernels())}
    row["errors"] = {"sardonyx": relative_error(got[0], exact), "torch": relative_error(theirs, exact)}
    row["correct"] = row["errors"]["sardonyx"] <= ERROR
    engines = {"sardonyx": ours, "torch": peer}
    for name, other in case.others.items():
        try:
            engines[name] = captured(lambda f=other: [f(i, dtype) for i in range(count)], device)
        except RuntimeError as error:  # does not support these sizes
            print(f"{name} is left out: {str(error).splitlines()[0]}", flush=True)
    row["engines"] = interleave(clock, engines, options.turns, TURN_SECONDS)
