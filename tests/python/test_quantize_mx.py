"""sardonyx.quantize(to="mxfp8") and "mxfp4": weights in the MX formats, as ONNX's DequantizeLinear in blocks reads them."""

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import numpy_helper
from sardonyx.quantization.microscaling import FORMS, rounded
from test_quantize_few_bits import convolutions, products

ELEMENTS = {"mxfp8": ml_dtypes.float8_e4m3fn, "mxfp4": ml_dtypes.float4_e2m1fn}


@pytest.mark.parametrize("to", FORMS)
def test_blocks_are_rounded_as_the_specification_says(to):
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((6, 96)) * np.exp(4 * rng.standard_normal((6, 1)))).astype(np.float32)
    w[0, :32] = 0
    found = rounded(w, FORMS[to])
    assert found.elements.shape == (6, 3, 32) and found.scales.shape == (6, 3)
    np.testing.assert_array_equal(np.exp2(np.rint(np.log2(found.scales))), found.scales)
    np.testing.assert_array_equal(found.elements.astype(ELEMENTS[to]).astype(np.float32), found.elements)
    # The specification's: the block's largest exponent less the format's; then to nearest, saturating.
    blocks = w.reshape(6, 3, 32)
    most = np.abs(blocks).max(-1)
    scale = np.exp2(np.floor(np.log2(np.where(most > 0, most, 1))) - {"mxfp8": 8, "mxfp4": 2}[to])
    limit = float(ml_dtypes.finfo(ELEMENTS[to]).max)
    q = np.clip(blocks / scale[..., None], -limit, limit).astype(ELEMENTS[to]).astype(np.float32)
    plain = ((q * scale[..., None] - blocks) ** 2).sum(-1)
    ours = ((found.dense().values.reshape(6, 3, 32) - blocks) ** 2).sum(-1)
    assert (ours <= plain * (1 + 1e-5)).all() and (ours < 0.99 * plain).any()
    same = found.scales == scale
    np.testing.assert_array_equal(found.elements[same], q[same])


@pytest.mark.parametrize("to", FORMS)
@pytest.mark.parametrize("kind", ["products", "convolutions"])
def test_models(to, kind):
    model, data = {"products": products, "convolutions": convolutions}[kind](np.random.default_rng(3))
    errors = {}
    for weights in ("rtn", "gptq"):
        # 48 input channels of a product are no whole blocks; of a convolution the 3 of an image.
        done = sardonyx.quantize(model, data[:4], to=to, weights=weights)
        onnx.checker.check_model(done.model)
        assert any("no whole blocks of 32" in why for why in done.report.kept.values())
        assert {v.bits for v in done.report.layers} == {FORMS[to].bits}
        errors[weights] = sardonyx.evaluate(done.model, data[4:], reference=model).outputs[0].relative
    # Of a bell curve e4m3 keeps a relative error of 0.027, e2m1 of 0.12.
    assert errors["rtn"] < {"mxfp8": 0.06, "mxfp4": 0.3}[to] and errors["gptq"] < 0.9 * errors["rtn"]
    stored = {t.name: onnx.TensorProto.DataType.Name(t.data_type) for t in done.model.graph.initializer}
    assert {"mxfp8": "FLOAT8E4M3FN", "mxfp4": "FLOAT4E2M1"}[to] in stored.values() and "FLOAT8E8M0" in stored.values()
    weight = next(n for n in done.model.graph.node if n.op_type == "DequantizeLinear")
    tensors = {t.name: numpy_helper.to_array(t) for t in done.model.graph.initializer}
    elements, scales = (tensors[n].astype(np.float32) for n in weight.input)
    axis = next(a.i for a in weight.attribute if a.name == "axis")
    dense = elements * np.repeat(scales, 32, axis)
    assert dense.shape == elements.shape
    plain = sardonyx.compile(done.model)(data[5])["y"]
    for device in ("sim:gfx942", "sim:gfx950"):
        other = sardonyx.compile(done.model, device=device)(data[5])["y"]
        assert np.abs(other - plain).max() < 1e-5 * np.abs(plain).max()  # sums in another order


def test_the_limit_and_what_is_refused():
    model, data = products(np.random.default_rng(5))
    done = sardonyx.quantize(model, data[:4], to="mxfp4", limit=1e-3)
    assert {v.bits for v in done.report.layers} == {8}
    small, data = convolutions(np.random.default_rng(5))
    with pytest.raises(sardonyx.InvalidArgumentError, match="no whole blocks of 32"):
        sardonyx.quantize(small, data, to="mxfp8", exclude=["strided", "pointwise"])
