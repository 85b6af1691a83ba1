"""Operators as people write them in CUDA (custom_kernels/), beside numpy.

    PYTHONPATH=build/python .venv/bin/python tests/python/custom_cases.py --device cuda

runs all of them on a device and reports each.
"""

import argparse
import dataclasses
import math
import pathlib
import sys
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper as oh
import sardonyx

OPS = pathlib.Path(__file__).parent / "custom_kernels" / "ops.toml"


@dataclasses.dataclass
class Case:
    """A node, and what it gives."""

    op: str
    inputs: dict[str, np.ndarray | None]  #: None: omitted
    outputs: dict[str, np.ndarray]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    rtol: float = 2e-6  #: float32: some roundings, and another order of sums
    atol: float = 1e-6
    unordered: bool = False  #: elements may have any order

    @property
    def name(self) -> str:
        return self.op.lower()


def _floats(rng: np.random.Generator, *shape: int, dtype: Any = np.float32, scale: float = 1) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(dtype)


def _softmax(rng: np.random.Generator) -> Case:
    x = _floats(rng, 2, 3, 77, scale=3)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return Case("Softmax", {"x": x}, {"y": (e / e.sum(-1, keepdims=True)).astype(np.float32)}, rtol=1e-5)


def _rms_norm(rng: np.random.Generator, dtype: Any) -> Case:
    x, w = _floats(rng, 3, 100, dtype=dtype), _floats(rng, 100, dtype=dtype)
    wide = x.astype(np.float32)
    scale = 1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + np.float32(1e-6))
    y = (wide * scale).astype(dtype).astype(np.float32) * w.astype(np.float32)
    # Both results are rounded twice: to `dtype` before and after the weight.
    rtol = {"float16": 2e-3, "bfloat16": 2e-2}.get(np.dtype(dtype).name, 2e-6)
    return Case("RMSNorm", {"x": x, "weight": w}, {"y": y.astype(dtype)}, {"epsilon": 1e-6}, rtol=rtol)


def _rotary(rng: np.random.Generator, style: str) -> Case:
    tokens, heads, size, rot = 5, 3, 20, 16
    q, cache = _floats(rng, tokens, heads, size), _floats(rng, 11, rot)
    positions = rng.integers(0, 11, tokens)
    y, half = q.copy(), rot // 2
    cos, sin = cache[positions, None, :half], cache[positions, None, half:]
    first, second = (slice(0, half), slice(half, rot)) if style == "neox" else (slice(0, rot, 2), slice(1, rot, 2))
    y[..., first] = q[..., first] * cos - q[..., second] * sin
    y[..., second] = q[..., second] * cos + q[..., first] * sin
    return Case("Rotary", {"positions": positions, "query": q, "cache": cache}, {"rotated": y}, {"style": style})


def _topk(rng: np.random.Generator) -> Case:
    x = rng.permutation(4 * 70).reshape(4, 70).astype(np.float32)
    at = np.argsort(-x, axis=1)[:, :5]
    return Case("TopK", {"x": x}, {"values": np.take_along_axis(x, at, 1), "indices": at.astype(np.int32)}, {"k": 5})


def _nms(rng: np.random.Generator) -> Case:
    n = 150
    corner, size = rng.uniform(0, 10, (n, 2)), rng.uniform(1, 4, (n, 2))
    boxes = np.concatenate([corner, corner + size], 1).astype(np.float32)
    keep: list[int] = []
    for k, b in enumerate(boxes):
        kept = boxes[keep]
        low, high = np.maximum(kept[:, :2], b[:2]), np.minimum(kept[:, 2:], b[2:])
        common = np.prod(np.maximum(high - low, 0), 1)
        area = np.prod(kept[:, 2:] - kept[:, :2], 1) + np.prod(b[2:] - b[:2]) - common
        if not (common / area > 0.4).any():
            keep.append(k)
    return Case("NMS", {"boxes": boxes}, {"keep": np.array(keep, np.int64)}, {"threshold": 0.4})


def _deformable_attention(rng: np.random.Generator) -> Case:
    batch, queries, heads, channels, points = 2, 5, 2, 4, 3
    shapes = np.array([[6, 5], [3, 4]])
    starts = np.array([0, 30])
    value = _floats(rng, batch, 42, heads, channels)
    locations = rng.uniform(-0.1, 1.1, (batch, queries, heads, 2, points, 2)).astype(np.float32)
    weights = rng.uniform(0, 1, (batch, queries, heads, 2, points)).astype(np.float32)
    y = np.zeros((batch, queries, heads, channels))
    for b, q, m, level, p in np.ndindex(batch, queries, heads, 2, points):
        h, w = shapes[level]
        image = value[b, starts[level] : starts[level] + h * w, m].reshape(h, w, channels)
        py, px = locations[b, q, m, level, p, ::-1] * (h, w) - 0.5
        if not (-1 < py < h and -1 < px < w):
            continue
        for dy, dx in np.ndindex(2, 2):
            iy, ix = math.floor(py) + dy, math.floor(px) + dx
            if 0 <= iy < h and 0 <= ix < w:
                y[b, q, m] += weights[b, q, m, level, p] * (1 - abs(py - iy)) * (1 - abs(px - ix)) * image[iy, ix]
    inputs = {"value": value, "shapes": shapes, "starts": starts, "locations": locations, "weights": weights}
    y = y.reshape(batch, queries, -1).astype(np.float32)
    return Case("DeformableAttention", inputs, {"y": y}, rtol=1e-4, atol=1e-5)  # bilinear weights cancel


def _gemv(rng: np.random.Generator) -> Case:
    rows, cols = 6, 96
    scales = rng.uniform(0.01, 0.1, (rows, cols // 32)).astype(np.float16)
    q = rng.integers(0, 16, (rows, cols // 32, 32)).astype(np.uint8)
    packed = q[..., :16] | q[..., 16:] << 4
    w = np.concatenate([scales[..., None].view(np.uint8), packed], -1).reshape(rows, -1)
    x = _floats(rng, cols)
    y = ((q.astype(np.float64) - 8) * scales[..., None]).reshape(rows, cols) @ x.astype(np.float64)
    return Case("QuantizedGemv", {"w": w, "x": x}, {"y": y.astype(np.float32)}, rtol=1e-5, atol=1e-5)


def _gemm(rng: np.random.Generator) -> Case:
    a, b = _floats(rng, 19, 35), _floats(rng, 35, 21)
    return Case(
        "TiledGemm", {"a": a, "b": b}, {"c": (a.astype(np.float64) @ b).astype(np.float32)}, rtol=1e-5, atol=1e-5
    )


def _scan(rng: np.random.Generator) -> Case:
    x = rng.integers(-50, 50, 700).astype(np.int32)
    return Case("ExclusiveScan", {"x": x}, {"y": (np.cumsum(x) - x).astype(np.int32)})


def _histogram(rng: np.random.Generator) -> Case:
    x = (rng.standard_normal((20, 50)) * 30 + 128).clip(0, 255).astype(np.uint8)
    return Case("Histogram", {"x": x}, {"bins": np.bincount(x.ravel(), minlength=256).astype(np.uint32)})


def _layer_norm(rng: np.random.Generator) -> Case:
    x, s, b = _floats(rng, 2, 2, 92) * 3 + 1, _floats(rng, 92), _floats(rng, 92)
    d = x.astype(np.float64) - x.mean(-1, keepdims=True, dtype=np.float64)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * s + b
    return Case("LayerNorm", {"x": x, "scale": s, "bias": b}, {"y": y.astype(np.float32)}, rtol=1e-5, atol=1e-5)


def _transpose(rng: np.random.Generator) -> Case:
    x = rng.integers(-99, 99, (45, 37)).astype(np.int16)
    return Case("Transpose", {"x": x}, {"y": np.ascontiguousarray(x.T)})


def _reduce(rng: np.random.Generator) -> Case:
    x = _floats(rng, 1500)
    total = np.array(x.sum(dtype=np.float64), np.float32)
    return Case("SumAndMax", {"x": x}, {"sum": total, "maximum": np.array(x.max())}, rtol=1e-5, atol=1e-4)


def _sort(rng: np.random.Generator) -> Case:
    x = rng.permutation(3 * 100).reshape(3, 100).astype(np.float32)
    order = np.argsort(-x, axis=1)
    keys = np.take_along_axis(x, order, 1)
    return Case("Sort", {"x": x}, {"keys": keys, "order": order.astype(np.uint32)}, {"ascending": 0})


def _depthwise(rng: np.random.Generator, bias: bool) -> Case:
    x, w, b = _floats(rng, 2, 3, 9, 8), _floats(rng, 3, 1, 3, 3), _floats(rng, 3) if bias else None
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    y = np.einsum("nchwij,cij->nchw", windows, w[:, 0]) + (b[:, None, None] if b is not None else 0)
    return Case(
        "DepthwiseConv", {"x": x, "w": w, "bias": b}, {"y": y.astype(np.float32)}, {"stride": 2}, rtol=1e-5, atol=1e-5
    )


def _embedding(rng: np.random.Generator) -> Case:
    table, ids = _floats(rng, 13, 24), rng.integers(0, 13, (2, 4))
    ids[1, 2] = 99
    y = np.where((ids < 13)[..., None], table[ids % 13], np.float32(0))
    return Case("Embedding", {"ids": ids, "table": table}, {"y": y})


def _gelu(rng: np.random.Generator) -> Case:
    x, b = _floats(rng, 3, 5, 26, dtype=np.float16), _floats(rng, 26, dtype=np.float16)
    z = (x + b).astype(np.float64)
    y = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return Case("BiasGelu", {"x": x, "bias": b}, {"y": y.astype(np.float16)}, rtol=2e-3, atol=1e-4)  # float16


def _argmax(rng: np.random.Generator) -> Case:
    x = rng.integers(0, 30, (7, 90)).astype(np.float32)  # with equal maxima
    return Case("ArgMax", {"x": x}, {"y": x.argmax(1).astype(np.int32)})


def _compact(rng: np.random.Generator) -> Case:
    x = _floats(rng, 500)
    kept = x[x > 0.5]
    outputs = {"kept": kept, "count": np.array([len(kept)], np.int32)}
    return Case("Compact", {"x": x}, outputs, {"threshold": 0.5}, unordered=True)


def _roi_align(rng: np.random.Generator) -> Case:
    x = _floats(rng, 2, 3, 12, 10)
    rois = np.array([[0, 1, 2, 6, 8], [1, 0.5, 0, 9, 11], [1, 3, 3, 5.5, 4.25]], np.float32)
    pooled, samples = 3, 2
    y = np.zeros((3, 3, pooled, pooled))
    for n, (image, x0, y0, x1, y1) in enumerate(rois):
        cell_h, cell_w = (y1 - y0) / pooled, (x1 - x0) / pooled
        for i, j, s, t in np.ndindex(pooled, pooled, samples, samples):
            py = min(max(y0 - 0.5 + i * cell_h + (s + 0.5) * cell_h / samples, 0), 11)
            px = min(max(x0 - 0.5 + j * cell_w + (t + 0.5) * cell_w / samples, 0), 9)
            a, b = min(int(py), 10), min(int(px), 8)
            fy, fx = py - a, px - b
            p = x[int(image), :, a : a + 2, b : b + 2].astype(np.float64)
            y[n, :, i, j] += np.einsum("cij,i,j->c", p, [1 - fy, fy], [1 - fx, fx]) / samples**2
    attributes = {"pooled": pooled, "samples": samples}
    return Case("RoiAlign", {"x": x, "rois": rois}, {"y": y.astype(np.float32)}, attributes, rtol=1e-4, atol=1e-5)


def _resize(rng: np.random.Generator) -> Case:
    x = rng.integers(0, 256, (9, 7, 3)).astype(np.uint8)
    height, width = 13, 40

    def places(n: int, out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        f = np.maximum((np.arange(out, dtype=np.float32) + 0.5) * n / out - 0.5, 0)
        low = np.minimum(f.astype(int), n - 1)
        return low, np.minimum(low + 1, n - 1), f - low

    y0, y1, ly = places(9, height)
    x0, x1, lx = places(7, width)
    z = x.astype(np.float64)
    lx, ly = lx[None, :, None], ly[:, None, None]
    top, low = z[y0], z[y1]
    y = (top[:, x0] * (1 - lx) + top[:, x1] * lx) * (1 - ly) + (low[:, x0] * (1 - lx) + low[:, x1] * lx) * ly
    # A sum near a half may be rounded to either side.
    return Case(
        "Resize", {"x": x}, {"y": np.rint(y).astype(np.uint8)}, {"out_height": height, "out_width": width}, atol=1
    )


def _quick_gelu(rng: np.random.Generator) -> Case:
    x = _floats(rng, 3, 17, scale=3)
    z = x.astype(np.float64)
    return Case("QuickGelu", {"x": x}, {"y": (z / (1 + np.exp(-1.702 * z))).astype(np.float32)}, atol=1e-6)


def cases(seed: int = 0) -> list[Case]:
    rng = np.random.default_rng(seed)
    made = [_softmax(rng)]
    made += [_rms_norm(rng, dtype) for dtype in (np.float32, np.float16, ml_dtypes.bfloat16)]
    made += [_rotary(rng, "neox"), _rotary(rng, "gptj"), _topk(rng), _nms(rng), _deformable_attention(rng), _gemv(rng)]
    made += [_gemm(rng), _scan(rng), _histogram(rng), _layer_norm(rng), _transpose(rng), _reduce(rng), _sort(rng)]
    made += [_depthwise(rng, True), _depthwise(rng, False), _embedding(rng), _gelu(rng), _argmax(rng), _compact(rng)]
    from custom_more_cases import more_cases  # which uses Case

    return [*made, _roi_align(rng), _resize(rng), _quick_gelu(rng), *more_cases(rng)]


def model_of(listed: list[Case], fixed: bool = False) -> onnx.ModelProto:
    """A model with a node for each case; dims have names, unless `fixed`. Values are named "case.tensor"."""
    nodes, inputs, outputs = [], [], []
    for k, case in enumerate(listed):
        names = {n: f"{k}.{n}" if a is not None else "" for n, a in case.inputs.items()}
        for n, a in case.inputs.items():
            if a is None:
                continue
            shape = list(a.shape) if fixed else [f"{k}.{n}.{d}" for d in range(a.ndim)]
            inputs.append(oh.make_tensor_value_info(names[n], oh.np_dtype_to_tensor_dtype(a.dtype), shape))
        results = [f"{k}.{n}" for n in case.outputs]
        nodes.append(oh.make_node(case.op, list(names.values()), results, case.name, domain="test", **case.attributes))
        outputs += [onnx.ValueInfoProto(name=r) for r in results]
    graph = oh.make_graph(nodes, "custom", inputs, outputs)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18), oh.make_opsetid("test", 1)], ir_version=9)


def feed(listed: list[Case]) -> dict[str, np.ndarray]:
    return {f"{k}.{n}": a for k, case in enumerate(listed) for n, a in case.inputs.items() if a is not None}


def differences(k: int, case: Case, results: dict[str, np.ndarray]) -> str:
    """What is wrong with the results of case k; "" if nothing is."""
    for n, want in case.outputs.items():
        got = results[f"{k}.{n}"]
        if got.dtype != want.dtype or got.shape != want.shape:
            return f"{n}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
        if case.unordered:
            got, want = np.sort(got), np.sort(want)
        if not np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=case.rtol, atol=case.atol):
            worst = np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0)
            return f"{n}: differs by up to {worst:.3g}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host", help="host, cuda, hip, sim:gfx942")
    parser.add_argument("--only", default="", help="operators whose names contain this text")
    arguments = parser.parse_args()
    failed = 0
    for case in cases():
        if arguments.only.lower() not in case.name:
            continue
        try:
            model = sardonyx.compile(model_of([case]), device=arguments.device, custom_operators=OPS)
            why = [differences(0, case, model.run(feed([case]))) for _ in range(3)]  # later runs are replayed
            what = "; ".join(sorted({w for w in why if w}))
        except sardonyx.Error as e:
            what = str(e)
        failed += bool(what)
        print(f"{case.op:20} {'FAILED ' + what if what else 'right'}", flush=True)
    print(f"{failed} wrong" if failed else "all right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
