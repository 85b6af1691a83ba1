"""QuantizeLinear to 8 bits on simulated GPUs, which multiply by a reciprocal and correct it, against a division in float32."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

TYPES = {
    "int8": (TensorProto.INT8, np.int8),
    "uint8": (TensorProto.UINT8, np.uint8),
    "e4m3fn": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "e4m3fnuz": (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
}


def specials(kind, scale, zero):
    """Ties, quotients next to them, the ends of the range, what is beyond, zeros, infinities, NaN; then any values."""
    if kind in ("int8", "uint8"):
        steps = np.arange(-300, 300) + 0.5 - zero
    else:
        numbers = np.arange(256, dtype=np.uint8).view(TYPES[kind][1]).astype(np.float32)
        numbers = np.sort(numbers[np.isfinite(numbers)])
        steps = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, [460.0, 470.0, 500.0, -1e6]])
    x = np.float32(scale) * steps.astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    rng = np.random.default_rng(0)
    some = rng.standard_normal(500) * np.exp(rng.standard_normal(500)) * 40 * scale
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45]
    return np.concatenate([x, some, ends]).astype(np.float32)


def rounded(x, kind, scale, zero):
    """As ONNX defines it. It leaves NaN as an integer undefined: GPUs give the smallest one, as ONNX Runtime does."""
    with np.errstate(over="ignore", invalid="ignore"):
        q = x / np.float32(scale)
    if kind in ("int8", "uint8"):
        low, high = (-128, 127) if kind == "int8" else (0, 255)
        return np.where(np.isnan(q), low, np.clip(np.rint(q) + zero, low, high)).astype(TYPES[kind][1])
    largest = float(ml_dtypes.finfo(TYPES[kind][1]).max)
    return np.clip(q, -largest, largest).astype(TYPES[kind][1])


def model(kind, scale, zero, bias):
    """The values as an input, and as the bias of a product of zeros, which its epilogue quantises."""
    dtype, n = TYPES[kind][0], len(bias)
    weights = [
        numpy_helper.from_array(np.zeros((16, n), np.float32), "w"),
        numpy_helper.from_array(bias, "b"),
        numpy_helper.from_array(np.float32(scale), "s"),
        helper.make_tensor("z", dtype, [], np.asarray(zero, TYPES[kind][1]).tobytes(), raw=True),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"]),
        helper.make_node("Gemm", ["a", "w", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["d"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [n]),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [17, 16]),
        ],
        [helper.make_tensor_value_info("y", dtype, [n]), helper.make_tensor_value_info("d", dtype, [17, n])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1201"])
@pytest.mark.parametrize(
    ("kind", "scale", "zero"),
    [("int8", 0.5, 0), ("int8", 0.0217, -128), ("uint8", 0.0173, 131), ("e4m3fn", 0.013, 0), ("e4m3fnuz", 3.7, 0)],
)
def test_results_are_those_of_a_division(device, kind, scale, zero, tmp_path):
    x = specials(kind, scale, zero)
    onnx.save(model(kind, scale, zero, x), tmp_path / "m.onnx")
    got = sardonyx.compile(tmp_path / "m.onnx", device=device)(x=x, a=np.zeros((17, 16), np.float32))
    want = rounded(x, kind, scale, zero).astype(np.float32)
    for name, value in got.items():
        found = value.astype(np.float32)
        if device == "host" and kind == "int8":
            found[..., np.isnan(x)] = -128  # there it is 0
        differs = np.flatnonzero(~((found == want) | (np.isnan(found) & np.isnan(want))).reshape(-1, len(x)).all(0))
        assert not len(differs), (name, x[differs[:5]], found[..., differs[:5]], want[differs[:5]])
