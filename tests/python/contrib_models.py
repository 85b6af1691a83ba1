"""One-node models of com.microsoft operators, run here and by ONNX Runtime's CPU execution provider, with fixed shapes and with every dim symbolic."""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper

onnxruntime = pytest.importorskip("onnxruntime")

MS = "com.microsoft"
RNG = np.random.default_rng


def rand(*shape, seed=0, scale=1.0, dtype=np.float32):
    return (RNG(seed + 7 * sum(shape)).standard_normal(shape) * scale).astype(dtype)


def quant(*shape, seed=0, dtype=np.uint8):
    info = np.iinfo(dtype)
    return RNG(seed + sum(shape)).integers(info.min, info.max + 1, shape, dtype=dtype)


def f(x):
    return np.float32(x)


def model_of(op, inputs, attrs, outputs, constant, symbolic, domain=MS, opset=17):
    names, graph_inputs, initializers = [], [], []
    for k, x in enumerate(inputs):
        names.append("" if x is None else f"i{k}")
        if x is None:
            continue
        if k in constant:
            initializers.append(onnx.numpy_helper.from_array(np.asarray(x), f"i{k}"))
            continue
        x = np.asarray(x)
        shape = [f"i{k}_{d}" for d in range(x.ndim)] if symbolic else x.shape
        graph_inputs.append(helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(x.dtype), shape))
    results = [f"o{k}" if k in outputs else "" for k in range(max(outputs) + 1)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    graph = helper.make_graph(
        [node], op, graph_inputs, [onnx.ValueInfoProto(name=n) for n in results if n], initializers
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feed_of(inputs, constant):
    return {f"i{k}": np.asarray(x) for k, x in enumerate(inputs) if x is not None and k not in constant}


def run_ours(op, inputs, attrs=None, outputs=(0,), constant=(), symbolic=False, domain=MS):
    model = model_of(op, inputs, attrs or {}, outputs, constant, symbolic, domain)
    return list(sardonyx.compile(model).run(feed_of(inputs, constant)).values())


def run_both(op, inputs, attrs=None, outputs=(0,), constant=(), symbolic=False, domain=MS):
    model = model_of(op, inputs, attrs or {}, outputs, constant, symbolic, domain)
    feed = feed_of(inputs, constant)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feed
    )
    got = list(sardonyx.compile(model).run(feed).values())
    return got, expected


def check(
    op,
    inputs,
    attrs=None,
    outputs=(0,),
    constant=(),
    rtol=1e-5,
    atol=1e-5,
    step=0,
    symbolic=(False, True),
    domain=MS,
    parts=None,
    expected=None,
):
    """Compares with `expected`, a list of outputs, or with ONNX Runtime's results if there is none."""
    for sym in symbolic:
        if expected is None:
            got, want = run_both(op, inputs, attrs, outputs, constant, sym, domain)
        else:
            got, want = run_ours(op, inputs, attrs, outputs, constant, sym, domain), expected
        for k, (a, b) in enumerate(zip(got, want, strict=True)):
            assert a.shape == b.shape and a.dtype == b.dtype
            if parts and k in parts:
                a, b = parts[k](a), parts[k](b)
            if step:
                assert np.abs(a.astype(np.int64) - b.astype(np.int64)).max() <= step
            else:
                np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol)


def pack(q, bits):
    """Packs the last axis, low bits first."""
    per = 8 // bits
    pad = -q.shape[-1] % per
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, pad)]).reshape(*q.shape[:-1], -1, per)
    return np.bitwise_or.reduce(q << (np.arange(per, dtype=np.uint8) * bits).astype(np.uint8), axis=-1).astype(np.uint8)
