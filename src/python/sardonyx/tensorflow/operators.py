"""Operators that tf2onnx lacks or converts incorrectly, as functions that it calls (custom_op_handlers)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

FLOATS = (1, 10, 11, 16)  # onnx.TensorProto's float, float16, double, bfloat16
FLOAT, INT64, BOOL, DOUBLE = 1, 7, 9, 11


class Maker:
    """Makes nodes of an operator's replacement, all of its type unless said otherwise."""

    def __init__(self, ctx: Any, node: Any):
        from tf2onnx import utils

        self.ctx, self.node, self.utils = ctx, node, utils
        self.dtype = ctx.get_dtype(node.output[0])

    def constant(self, value: Any, dtype: Any = None) -> str:
        array = np.array(value, dtype or self.utils.map_onnx_to_numpy_type(self.dtype))
        name: str = self.ctx.make_const(self.utils.make_name("constant"), array).output[0]
        return name

    def op(self, kind: str, *inputs: str, dtype: int | None = None, **attributes: Any) -> str:
        types = [self.dtype if dtype is None else dtype]
        made = self.ctx.make_node(
            kind, list(inputs), attr=attributes, dtypes=types, shapes=[None], op_name_scope=self.node.name
        )
        name: str = made.output[0]
        return name

    def cast(self, x: str, dtype: int) -> str:
        return self.op("Cast", x, dtype=dtype, to=dtype)

    def finish(self, result: str) -> None:
        old = self.node.output[0]
        self.ctx.copy_shape(old, result)
        self.ctx.copy_dtype(old, result)
        self.ctx.replace_all_inputs(old, result)
        self.ctx.remove_node(self.node.name)

    def number(self, k: int) -> np.ndarray:
        """The value of an input, which has to be a constant."""
        given = self.node.inputs[k]
        if not given.is_const():
            text = f"{self.node.type} '{self.node.name}', whose input {k} is not a constant"
            logging.getLogger("tf2onnx").error(text)  # which names the reason, where tf2onnx would not
            raise ValueError(text)
        return np.asarray(given.get_tensor_value(as_list=False))


def erfc(m: Maker) -> str:
    """Keras's GELU needs it."""
    return m.op("Sub", m.constant(1), m.op("Erf", m.node.input[0]))


def log1p(m: Maker) -> str:
    """W. Kahan's formula corrects for the rounding of 1 + x; where nothing is rounded, the plain one is exact."""
    x = m.node.input[0]
    near = m.op("Add", x, m.constant(1))
    part = m.op("Sub", near, m.constant(1))
    log = m.op("Log", near)
    rounded = m.op("Where", m.op("Equal", part, x, dtype=BOOL), log, m.op("Mul", log, m.op("Div", x, part)))
    return m.op("Where", m.op("Equal", part, m.constant(0), dtype=BOOL), x, rounded)


def expm1(m: Maker) -> str:
    """As log1p."""
    x = m.node.input[0]
    near = m.op("Exp", x)
    part = m.op("Sub", near, m.constant(1))
    same, least = m.op("Equal", part, near, dtype=BOOL), m.op("Equal", part, m.constant(-1), dtype=BOOL)
    rounded = m.op("Mul", part, m.op("Div", x, m.op("Log", near)))
    rounded = m.op("Where", m.op("Or", same, least, dtype=BOOL), part, rounded)
    return m.op("Where", m.op("Equal", part, m.constant(0), dtype=BOOL), x, rounded)


def floor_mod(m: Maker) -> str:
    """With the sign of the divisor. tf2onnx rounds quotients of integers towards 0."""
    x, y = m.node.input[:2]
    if m.dtype not in FLOATS:
        return m.op("Mod", x, y)
    return m.op("Sub", x, m.op("Mul", m.op("Floor", m.op("Div", x, y)), y))


def floor_div(m: Maker) -> str:
    x, y = m.node.input[:2]
    if m.dtype in FLOATS:
        return m.op("Floor", m.op("Div", x, y))
    return m.op("Div", m.op("Sub", x, m.op("Mod", x, y)), y)


def invert_permutation(m: Maker) -> str:
    """tf2onnx gives int64 for int32."""
    x = m.node.input[0]
    size = m.op("Shape", x, dtype=INT64)
    places = m.ctx.make_node(
        "TopK", [x, size], attr={"largest": 0}, output_count=2, dtypes=[m.dtype, INT64], shapes=[None, None]
    )
    return m.cast(places.output[1], m.dtype)


def adjust_saturation(m: Maker) -> str:
    """Of RGB. The largest channel stays, the distances of the others from it are scaled, until one is 0. tf2onnx mixes
    channels up."""
    x, factor = m.node.input[:2]
    axes = m.constant([-1], np.int64)
    most, least = m.op("ReduceMax", x, axes), m.op("ReduceMin", x, axes)
    distance = m.op("Sub", most, least)
    wanted = m.op("Max", m.op("Min", m.op("Mul", distance, factor), most), m.constant(0))
    grey = m.op("Equal", distance, m.constant(0), dtype=BOOL)
    scale = m.op("Div", wanted, m.op("Where", grey, m.constant(1), distance))
    return m.op("Sub", most, m.op("Mul", m.op("Sub", most, x), scale))


def fake_quantization(m: Maker) -> str:
    """Rounds to the nearest of 2^bits levels, halves up, with the range moved so that 0 is a level. Ranges of a tensor or of
    its last dim. tf2onnx rounds halves to even, and takes 8 bits alone."""
    if m.node.type == "FakeQuantWithMinMaxArgs":
        low, high = (np.asarray(m.node.get_attr_value(k), np.float32) for k in ("min", "max"))
    else:
        low, high = m.number(1).astype(np.float32), m.number(2).astype(np.float32)
    first = 1 if m.node.get_attr_value("narrow_range", 0) else 0
    last = 2 ** int(m.node.get_attr_value("num_bits", 8)) - 1
    scale = (high - low) / np.float32(last - first)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    low, high = (first - zero) * scale, (last - zero) * scale
    inside = m.op("Max", m.op("Min", m.node.input[0], m.constant(high)), m.constant(low))
    steps = m.op("Mul", m.op("Sub", inside, m.constant(low)), m.constant(np.float32(1) / scale))
    whole = m.op("Floor", m.op("Add", steps, m.constant(0.5)))
    return m.op("Add", m.op("Mul", whole, m.constant(scale)), m.constant(low))


def crop_and_resize(m: Maker) -> str:
    """Of images [N, H, W, C], for each of [n, 4] boxes the pixels of [n, height, width] points between its corners."""
    images, boxes, owners, _ = m.node.input
    crop = [int(n) for n in m.number(3)]
    method = m.node.get_attr_value("method", b"bilinear")
    nearest = method in (b"nearest", "nearest")
    outside = float(m.node.get_attr_value("extrapolation_value", 0.0))
    shape = m.op("Shape", images, dtype=INT64)

    def part(x: str, begin: int, end: int, axis: int, dtype: int) -> str:
        return m.op("Slice", x, *(m.constant([k], np.int64) for k in (begin, end, axis)), dtype=dtype)

    height, width = (part(shape, k, k + 1, 0, INT64) for k in (1, 2))
    low, high, between, beyond = [], [], [], []
    for axis, size in enumerate((height, width)):
        last = m.op("Sub", m.cast(size, m.dtype), m.constant(1))
        begin, end = (part(boxes, k, k + 1, 1, m.dtype) for k in (axis, axis + 2))
        if crop[axis] > 1:
            step = m.op("Div", m.op("Mul", m.op("Sub", end, begin), last), m.constant(crop[axis] - 1))
            at = m.op("Add", m.op("Mul", begin, last), m.op("Mul", step, m.constant([range(crop[axis])])))
        else:
            at = m.op("Mul", m.op("Mul", m.op("Add", begin, end), m.constant(0.5)), last)
        new = [-1, crop[0], 1, 1] if axis == 0 else [-1, 1, crop[1], 1]
        at = m.op("Reshape", at, m.constant(new, np.int64))
        beyond.append(m.op("Or", m.op("Less", at, m.constant(0), dtype=BOOL), m.op("Greater", at, last, dtype=BOOL), dtype=BOOL))  # fmt: skip
        at = m.op("Max", m.op("Min", at, last), m.constant(0))
        if nearest:
            at = m.op("Floor", m.op("Add", at, m.constant(0.5)))
        below = m.op("Floor", at)
        between.append(m.op("Sub", at, below))
        low.append(m.cast(below, INT64))
        high.append(m.cast(m.op("Ceil", at), INT64))
    channels = part(shape, 3, 4, 0, INT64)
    rows = m.op("Reshape", images, m.op("Concat", m.constant([-1], np.int64), channels, dtype=INT64, axis=0))
    if m.ctx.get_dtype(images) != m.dtype:
        rows = m.cast(rows, m.dtype)
    owner = m.op("Reshape", m.cast(owners, INT64), m.constant([-1, 1, 1, 1], np.int64), dtype=INT64)

    def pixels(y: str, x: str) -> str:
        """[n, height, width, C]"""
        line = m.op("Add", m.op("Mul", owner, height, dtype=INT64), y, dtype=INT64)
        places = m.op("Add", m.op("Mul", line, width, dtype=INT64), x, dtype=INT64)
        return m.op("Gather", rows, m.op("Squeeze", places, m.constant([3], np.int64), dtype=INT64), axis=0)

    def mixed(a: str, b: str, weight: str) -> str:
        return m.op("Add", a, m.op("Mul", m.op("Sub", b, a), weight))

    top = mixed(pixels(low[0], low[1]), pixels(low[0], high[1]), between[1])
    bottom = mixed(pixels(high[0], low[1]), pixels(high[0], high[1]), between[1])
    return m.op("Where", m.op("Or", *beyond, dtype=BOOL), m.constant(outside), mixed(top, bottom, between[0]))


def bucketize(m: Maker) -> str:
    """How many boundaries are not above an element; all of them for NaN. Integers are compared as float32, as TensorFlow does."""
    x = m.node.input[0]
    dtype = m.ctx.get_dtype(x)
    if dtype != DOUBLE:
        x, dtype = m.cast(x, FLOAT), FLOAT
    boundaries = np.asarray(m.node.get_attr_value("boundaries"), np.float32)
    column = m.op("Unsqueeze", x, m.constant([-1], np.int64), dtype=dtype)
    below = m.op("Less", column, m.constant(boundaries, np.float64 if dtype == DOUBLE else np.float32), dtype=BOOL)
    return m.op("ReduceSum", m.cast(m.op("Not", below, dtype=BOOL), m.dtype), m.constant([-1], np.int64), keepdims=0)


OPERATORS: dict[str, Callable[[Maker], str]] = {
    "Erfc": erfc,
    "Log1p": log1p,
    "Expm1": expm1,
    "FloorMod": floor_mod,
    "FloorDiv": floor_div,
    "InvertPermutation": invert_permutation,
    "AdjustSaturation": adjust_saturation,
    "FakeQuantWithMinMaxArgs": fake_quantization,
    "FakeQuantWithMinMaxVars": fake_quantization,
    "FakeQuantWithMinMaxVarsPerChannel": fake_quantization,
    "CropAndResize": crop_and_resize,
    "Bucketize": bucketize,
}


def handler(make: Callable[[Maker], str]) -> Callable[..., None]:
    def handle(ctx: Any, node: Any, name: str, arguments: Any) -> None:
        m = Maker(ctx, node)
        m.finish(make(m))

    return handle


def handlers() -> dict[str, Any]:
    return {name: (handler(make), []) for name, make in OPERATORS.items()}
