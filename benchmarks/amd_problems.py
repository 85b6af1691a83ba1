"""The problems of amd_kernels.py: which kernels of which sizes, and their models and inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

TUNING = """
gemm fp16 4096 4096 4096
gemm fp16 1024 2304 768
gemm fp16 128 768 3072
gemm bf16 2048 2048 2048
gemm int8 2048 2048 2048
gemv fp16 1 8192 2048
gemv bf16 1 8192 2048
gemv w8 1 8192 2048
gemv int4 1 8192 2048
gemv int4 4 8192 2048
gemv int4 16 8192 2048
attention 1 16 16 2048 2048 64 0
attention 8 32 8 1 4096 64 0
conv 8 64 56 64 3 1
conv 8 256 56 64 1 1
depthwise 8 256 28 3 1
softmax 4096 1024
layernorm 4096 768
rmsnorm 512 2048
sum 4096 4096 1
transpose 4096 4096 1,0
chain 4096 3072
copy 4096 4096
pool 8 64 112 3 2
gemv fp16 4 8192 2048
gemv w8 4 8192 2048
gemv fp16 1 32000 4096
gemv w8 1 32000 4096
gemv int4 1 32000 4096
depthwise 64 144 56 3 1
depthwise 32 240 28 5 2
softmax 49152 1536
layernorm 98304 768
rmsnorm 32768 2560
sum 12288 6144 0
sum 12288 6144 1
sum 64 784 512 1
transpose 6144 12288 1,0
transpose 32 12 1024 64 0,2,1,3
chain 65536 768
copy 32768 1536
pool 32 128 112 2 2
"""
REPORTING = """
gemm fp16 2048 2048 2048
gemm fp16 4096 768 3072
gemm fp16 4096 3072 768
gemm fp16 1576 3072 768
gemm fp16 384 768 3072
gemm fp16 64 1000 2048
gemm fp16 512 16384 2048
gemm bf16 4096 2304 768
gemm int8 1024 3072 768
gemv fp16 1 2048 8192
gemv fp16 1 28672 4096
gemv fp16 2 28672 4096
gemv fp16 4 14336 4096
gemv fp16 8 16384 2048
gemv bf16 1 4096 14336
gemv w8 1 28672 4096
gemv w8 4 28672 4096
gemv w8 8 28672 4096
gemv int4 1 2048 8192
gemv int4 1 28672 4096
gemv int4 1 128256 4096
gemv int4 2 28672 4096
gemv int4 4 28672 4096
gemv int4 8 28672 4096
gemv int4 16 28672 4096
attention 8 12 12 512 512 64 0
attention 1 16 16 1024 1024 128 1
attention 1 32 8 1 2048 128 0
attention 1024 8 8 20 20 24 0 rows
attention 256 4 4 49 49 32 0 bias
attention 128 8 8 77 77 64 1
conv 8 128 28 128 3 1
conv 8 512 7 512 3 1
conv 8 1024 14 256 1 1
conv 8 64 56 256 1 1
conv 8 3 224 64 7 2
depthwise 8 96 112 3 2
depthwise 8 480 14 5 1
softmax 12288 512
softmax bf16 12288 512
softmax 64 50257
layernorm 16384 1024
layernorm bf16 16384 1024
rmsnorm 4096 4096
rmsnorm 64 4096
sum 4096 4096 0
transpose 8 512 12 64 0,2,1,3
chain 16384 1024
chain bf16 16384 1024
copy 16384 1024
pool 8 256 28 3 1
sum 16384 1024 1
sum 32 49 2048 1
copy 1024 4096
"""
LARGE = """
gemv fp16 1 28672 8192
gemv fp16 4 28672 8192
gemv bf16 1 28672 8192
gemv w8 1 28672 8192
gemv w8 4 28672 8192
gemv int4 1 57344 8192
gemv int4 4 57344 8192
depthwise 64 256 56 3 1
depthwise 64 192 112 3 2
depthwise 64 480 28 5 1
softmax 65536 1024
softmax bf16 65536 1024
softmax 4096 32000
layernorm 65536 1024
layernorm bf16 65536 1024
rmsnorm 16384 4096
sum 16384 8192 0
sum 65536 2048 1
sum 64 3136 512 1
transpose 8192 8192 1,0
transpose 32 2048 16 64 0,2,1,3
transpose 64 256 3136 0,2,1
chain 65536 1024
chain bf16 65536 1024
copy 65536 1024
pool 64 128 112 3 2
pool 64 256 56 3 1
"""
#: The convolutions of ResNet-50 (v1.5): how many the network has; channels, image size, output channels, kernel, stride.
RESNET = """
1 3 224 64 7 2
1 64 56 64 1 1
3 64 56 64 3 1
4 64 56 256 1 1
2 256 56 64 1 1
1 256 56 128 1 1
1 128 56 128 3 2
4 128 28 512 1 1
1 256 56 512 1 2
3 512 28 128 1 1
3 128 28 128 3 1
1 512 28 256 1 1
1 256 28 256 3 2
6 256 14 1024 1 1
1 512 28 1024 1 2
5 1024 14 256 1 1
5 256 14 256 3 1
1 1024 14 512 1 1
1 512 14 512 3 2
3 512 7 2048 1 1
1 1024 14 2048 1 2
2 2048 7 512 1 1
2 512 7 512 3 1
"""


def resnet_convolutions(batch: int) -> dict[str, int]:
    """Problems with how often the network has them."""
    rows = [line.split(" ", 1) for line in RESNET.strip().splitlines()]
    return {f"conv {batch} {sizes}": int(count) for count, sizes in rows}


def problems() -> list[tuple[str, str]]:
    """Each problem with the half that it belongs to."""
    halves = {"tuning": TUNING, "report": REPORTING, "large": LARGE}
    return [(n, h) for h, text in halves.items() for n in text.strip().splitlines()]


@dataclass
class Case:
    model: Any
    feed: dict[str, Any]
    operations: float  # of matrix instructions
    bytes: float  # each tensor once
    eight_bits: bool = False


def half(*shape: int) -> Any:
    import numpy as np

    return (np.random.default_rng(0).standard_normal(shape) * 0.1).astype(np.float16)


def model_of(nodes: list[Any], inputs: dict[str, Any], out: int, weights: list[Any], opsets: list[Any] | None = None):
    """`inputs`: type and shape by name. The result is "y"."""
    from onnx import helper

    infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", out, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), *(opsets or [])], ir_version=11)


def product_case(kind: str, m: int, n: int, k: int) -> Case:
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng, f16 = np.random.default_rng(0), TensorProto.FLOAT16
    if kind in ("int4", "w8"):  # weights of 4 and 8 bits in blocks of 32
        bits = 4 if kind == "int4" else 8
        weights = [
            numpy_helper.from_array(rng.integers(0, 255, (n, k // 32, 4 * bits), dtype=np.uint8), "w"),
            numpy_helper.from_array(half(n * k // 32), "s"),
        ]
        sizes = {"K": k, "N": n, "bits": bits, "block_size": 32}
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes)]
        opsets = [helper.make_opsetid("com.microsoft", 1)]
        moved = n * k * (bits / 8 + 2 / 32) + 2 * (m * k + m * n)
        return Case(
            model_of(nodes, {"x": (f16, [m, k])}, f16, weights, opsets), {"x": half(m, k)}, 2 * m * n * k, moved
        )
    if kind == "int8":
        w = numpy_helper.from_array(rng.integers(-127, 127, (k, n), dtype=np.int8), "w")
        nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
        made = model_of(nodes, {"x": (TensorProto.INT8, [m, k])}, TensorProto.INT32, [w])
        return Case(made, {"x": np.zeros((m, k), np.int8)}, 2 * m * n * k, m * k + n * k + 4 * m * n, True)
    t, of = (TensorProto.BFLOAT16, ml_dtypes.bfloat16) if kind == "bf16" else (f16, np.float16)
    w = helper.make_tensor("w", t, (k, n), half(k, n).astype(of).tobytes(), raw=True)
    made = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (t, [m, k])}, t, [w])
    return Case(made, {"x": half(m, k).astype(of)}, 2 * m * n * k, 2 * (m * k + n * k + m * n))


def attention_case(kind: str, sizes: list[int], options: set[str]) -> Case:
    """`options`: "bias" adds one of scores, the same for all sequences; with "rows", queries, keys and values of a head lie in one row of a
    GEMM's result, and so do results."""
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    b, heads, key_heads, queries, keys, size, causal = sizes
    shapes = {"q": [b, heads, queries, size], "k": [b, key_heads, keys, size], "v": [b, key_heads, keys, size]}
    moved = 2 * 2 * (math.prod(shapes["q"]) + math.prod(shapes["k"]))
    weights, names, nodes = [], list(shapes), []
    if "rows" in options:
        if (heads, queries) != (key_heads, keys):
            raise ValueError("queries, keys and values in one row have the same heads and length")
        shapes = {"x": [b, queries, 3 * heads * size]}
        constants = {"split": [b, queries, 3, heads, size], "joined": [b, queries, heads * size], "zero": [0]}
        weights = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()]
        nodes = [
            helper.make_node("Reshape", ["x", "split"], ["r"]),
            helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
            helper.make_node("Split", ["t"], ["q0", "k0", "v0"], num_outputs=3, axis=0),
            *(helper.make_node("Squeeze", [f"{n}0", "zero"], [n]) for n in "qkv"),
        ]
    if "bias" in options:
        shapes["bias"] = [1, heads, queries, keys]
        names.append("bias")
        moved += 2 * math.prod(shapes["bias"])
    last = "z" if "rows" in options else "y"
    nodes.append(helper.make_node("Attention", names, [last], is_causal=causal))
    if "rows" in options:
        nodes.append(helper.make_node("Transpose", ["z"], ["w"], perm=[0, 2, 1, 3]))
        nodes.append(helper.make_node("Reshape", ["w", "joined"], ["y"]))
    t, of = (TensorProto.BFLOAT16, ml_dtypes.bfloat16) if kind == "bf16" else (TensorProto.FLOAT16, np.float16)
    made = model_of(nodes, {n: (t, s) for n, s in shapes.items()}, t, weights)
    feed = {n: half(*s).astype(of) for n, s in shapes.items()}
    return Case(made, feed, 4 * b * heads * queries * keys * size / (1 + causal), moved)


def window_case(family: str, b: int, c: int, size: int, out: int, kernel: int, stride: int) -> Case:
    """A convolution with bias and ReLU, or pooling, of a square image with channels last."""
    from onnx import TensorProto, helper, numpy_helper

    group = c if family == "depthwise" else 1
    to = (size + 2 * (kernel // 2) - kernel) // stride + 1
    window = {"strides": [stride] * 2, "pads": [kernel // 2] * 4}
    nodes, weights = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])], []
    if family == "pool":
        nodes += [helper.make_node("MaxPool", ["t"], ["v"], kernel_shape=[kernel] * 2, **window)]
    else:
        nodes += [helper.make_node("Conv", ["t", "w", "b"], ["u"], group=group, **window)]
        nodes += [helper.make_node("Relu", ["u"], ["v"])]
        weights = [half(out, c // group, kernel, kernel), half(out)]
    nodes += [helper.make_node("Transpose", ["v"], ["y"], perm=[0, 2, 3, 1])]
    tensors = [numpy_helper.from_array(w, n) for w, n in zip(weights, "wb", strict=False)]
    made = model_of(nodes, {"x": (TensorProto.FLOAT16, [b, size, size, c])}, TensorProto.FLOAT16, tensors)
    operations = 2 * b * to * to * out * c * kernel * kernel if family == "conv" else 0
    read = to * to if kernel < stride else size * size  # pixels of an image
    moved = 2 * (b * read * c + b * to * to * out + sum(w.size for w in weights))
    return Case(made, {"x": half(b, size, size, c)}, operations, moved)


def rows_case(family: str, shape: list[int], last: str, bf16: bool) -> Case:
    """What is computed from each row of a tensor, or from its elements. `last`: the last word of the problem."""
    import ml_dtypes
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weights, read, written = [], 1.0, 1.0
    t, of = (TensorProto.BFLOAT16, ml_dtypes.bfloat16) if bf16 else (TensorProto.FLOAT16, np.float16)
    g, b = (helper.make_tensor(n, t, shape[-1:], half(shape[-1]).astype(of).tobytes(), raw=True) for n in "gb")
    if family == "softmax":
        nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    elif family == "layernorm":
        nodes, weights = [helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"])], [g, b]
    elif family == "rmsnorm":
        nodes, weights = [helper.make_node("RMSNormalization", ["x", "g"], ["y"])], [g]
    elif family == "sum":
        *shape, axis = shape
        nodes = [helper.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=0)]
        weights, written = [numpy_helper.from_array(np.array([axis], np.int64), "a")], 1 / shape[axis]
    elif family == "transpose":
        nodes = [helper.make_node("Transpose", ["x"], ["y"], perm=[int(i) for i in last.split(",")])]
    elif family == "chain":  # a residual, GELU, a bias of each column
        add, gelu = helper.make_node("Add", ["x", "r"], ["t"]), helper.make_node("Gelu", ["t"], ["u"])
        nodes, weights, read = [add, gelu, helper.make_node("Add", ["u", "b"], ["y"])], [b], 2.0
    elif family == "copy":
        nodes, read, written = [helper.make_node("Concat", ["x", "r"], ["y"], axis=1)], 2.0, 2.0
    else:
        raise ValueError(f"unknown family of problems: {family}")
    names = ["x", "r"] if family in ("chain", "copy") else ["x"]
    made = model_of(nodes, dict.fromkeys(names, (t, shape)), t, weights)
    return Case(made, {n: half(*shape).astype(of) for n in names}, 0, 2 * math.prod(shape) * (read + written))


def case_of(name: str) -> Case:
    """A problem's model and inputs. gemm, gemv: type (int4, w8: weights in blocks of 32), M, N, K; attention: batch, heads, key heads, queries, keys, head size, causal (after "bf16" if it is not float16), then "bias" and "rows" (attention_case);
    conv: batch, channels, image size, output channels, kernel, stride; depthwise, pool: the same without output channels;
    sum: shape, axis; transpose: shape, permutation; others: shape, after "bf16" if it is not float16."""
    family, *words = name.split()
    if family in ("gemm", "gemv"):
        return product_case(words[0], *map(int, words[1:]))
    if family == "attention":
        kind = words.pop(0) if words[0] == "bf16" else "fp16"
        return attention_case(kind, [int(w) for w in words[:7]], set(words[7:]))
    if family == "conv":
        return window_case(family, *map(int, words))
    if family in ("depthwise", "pool"):
        b, c, size, kernel, stride = map(int, words)
        return window_case(family, b, c, size, c, kernel, stride)
    return rows_case(family, [int(w) for w in words if w.isdigit()], words[-1], words[0] == "bf16")
