"""sardonyx.quantize() and `sardonyx quantize`: what is written equals the rounding that it stands for, in ONNX Runtime too;
ranges, scales and corrections do what their papers say; what can't be done is refused."""

import dataclasses
import json
import sys

import gguf_files
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import INVALID_ARGUMENT
from cli_support import sardonyx as command
from onnx import TensorProto, helper, numpy_helper
from sardonyx.llm.convert import convert_gguf
from sardonyx.llm.weights import Dense, quantised
from sardonyx.quantization import weight_only
from sardonyx.quantization.calibration import Channels, Gram, Rows
from sardonyx.quantization.layers import find_layers
from sardonyx.quantization.onnx_model import OnnxModel
from sardonyx.quantization.qdq import FORMATS, activation_scale, rounded
from sardonyx.quantization.ranges import Histogram
from sardonyx.quantization.report import quantize_text
from sardonyx.quantization.residuals import rounding_error, within_limit

PYTHON = {"SARDONYX_PYTHON": sys.executable}


def make(nodes, inputs, outputs, weights, opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def network(opset=17):
    """Convolutions with and without a bias, a Gemm, and a MatMul behind a normalisation with uneven channels."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    # Weights of more than 1024 elements: smaller ones are dequantised when compiling.
    weights = {"w1": normal(16, 8, 3, 3), "b": normal(16), "w2": normal(32, 16, 3, 3) / 10, "w3": normal(32, 40)}
    weights |= {"gain": np.exp(2 * normal(40)), "w4": normal(40, 32), "w5": normal(16, 1, 3, 3)}
    norm = [helper.make_node("LayerNormalization", ["g", "gain"], ["n"])]
    if opset < 17:
        norm = [helper.make_node("Mul", ["g", "gain"], ["n"])]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b"], ["c1"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w5"], ["d"], name="depthwise", group=16),
        helper.make_node("Conv", ["d", "w2"], ["c2"], name="second"),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w3"], ["g"], name="dense"),
        *norm,
        helper.make_node("MatMul", ["n", "w4"], ["y"], name="head"),
    ]
    return make(nodes, [("x", ["n", 8, 12, 12])], [("y", ["n", 32])], weights, opset)


DATA = [{"x": np.random.default_rng(k).standard_normal((3, 8, 12, 12)).astype(np.float32)} for k in range(6)]
OTHER = [{"x": np.random.default_rng(k).standard_normal((3, 8, 12, 12)).astype(np.float32)} for k in range(10, 14)]


def error(model, reference):
    return sardonyx.evaluate(model, OTHER, reference=reference).outputs[0].relative


def in_onnxruntime(model, sample):
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    # Otherwise, on CPUs with AVX2 and without VNNI, ONNX Runtime's sums of two products saturate at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, sample)[0]


@pytest.mark.parametrize("method", ["mse", "minmax", "percentile", "entropy"])
def test_int8_is_close_and_runs_in_onnxruntime(method):
    done = sardonyx.quantize(network(), DATA, method=method, limit=1)
    onnx.checker.check_model(done.model)
    kinds = [n.op_type for n in done.model.graph.node]
    # Four activations and what pooling reads; four weights.
    assert kinds.count("QuantizeLinear") == 5 and kinds.count("DequantizeLinear") == 9
    assert done.report.between == {"r2": ""}
    assert done.report.kept == {"depthwise (Conv)": "it has groups"} and done.report.samples == 6
    assert {v.name for v in done.report.layers} == {"first (Conv)", "second (Conv)", "dense (Gemm)", "head (MatMul)"}
    sqnr = [v.sqnr for v in done.report.layers]
    assert sqnr == sorted(sqnr) and sqnr[0] > (10 if method == "entropy" else 25)  # most sensitive first
    # 8 bits of a bell curve give about 40 dB; entropy cuts off much where there are few values.
    assert error(done.model, network()) < (0.1 if method == "entropy" else 0.03)
    compiled = sardonyx.compile(done.model)
    ours, theirs = compiled(DATA[0])["y"], in_onnxruntime(done.model, DATA[0])
    # The same integers; scales are applied in another order, after which the mean can be rounded to another step.
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max()
    names = [k.name for k in compiled.kernels()]
    assert names.count("integer_conv") == 2 and names.count("integer_matmul") == 2


def test_the_quantised_model_has_integer_products_on_amd():
    done = sardonyx.quantize(network(), DATA)
    report = sardonyx.pass_report(done.model, "gfx942")
    after = next(p.text for p in report.passes if p.pass_name == "integer_gemm")
    assert sum(" conv int32" in line for line in after.splitlines()) == 2
    assert sum(" matmul int32" in line for line in after.splitlines()) == 2


def test_options_lower_or_raise_the_error():
    model = network()
    whole = error(sardonyx.quantize(model, DATA).model, model)
    coarse = sardonyx.quantize(model, DATA, per_channel=False, symmetric=True, smooth=False, correct_bias=False)
    assert whole < error(coarse.model, model)
    # Channels of uneven size in front of "head": SmoothQuant goes into the normalisation's weights.
    layers = {v.name: v for v in sardonyx.quantize(model, DATA).report.layers}
    rough = {v.name: v for v in sardonyx.quantize(model, DATA, smooth=False).report.layers}
    assert layers["head (MatMul)"].smoothing > 0 and rough["head (MatMul)"].smoothing == 0
    assert layers["head (MatMul)"].relative < 0.5 * rough["head (MatMul)"].relative
    assert "Mul" not in [n.op_type for n in sardonyx.quantize(model, DATA, exclude=["dense"]).model.graph.node]
    assert "n/scaled" in str(sardonyx.quantize(network(13), DATA).model.graph)  # no normalisation: a node of its own


def residual_network():
    """A block with a convolution beside it, one with the block's input beside it, both kinds of pooling."""
    rng = np.random.default_rng(3)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32) / 10
    weights = {"w1": normal(32, 8, 3, 3), "w4": normal(40, 32)}
    weights |= {f"a{k}": normal(32, 32, 3, 3) for k in (1, 2)} | {"side": normal(32, 32, 1, 1)}
    conv = lambda x, w, y: helper.make_node("Conv", [x, w], [y], name=y, pads=[1 if w != "side" else 0] * 4)
    nodes = [
        conv("x", "w1", "c1"),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        conv("m", "a1", "c2"),
        conv("m", "side", "s"),
        helper.make_node("Add", ["c2", "s"], ["t1"]),
        helper.make_node("Relu", ["t1"], ["r2"]),
        conv("r2", "a2", "c3"),
        helper.make_node("Add", ["r2", "c3"], ["t2"]),
        helper.make_node("Relu", ["t2"], ["r3"]),
        helper.make_node("GlobalAveragePool", ["r3"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w4"], ["y"], name="dense", transB=1),
    ]
    return make(nodes, [("x", ["n", 8, 12, 12])], [("y", ["n", 40])], weights)


def test_adds_and_pooling_read_8_bits():
    model = residual_network()
    done = sardonyx.quantize(model, DATA, smooth=False)
    assert done.report.between == dict.fromkeys(["r1", "s", "r2", "r3"], "")
    onnx.checker.check_model(done.model)
    readers = {x: n for n in done.model.graph.node for x in n.input}
    assert [
        i.rsplit("/", 1)[-1] for n in done.model.graph.node if n.op_type in ("Add", "MaxPool") for i in n.input
    ] == [
        "dequantized",  # of r1
        "c2",  # added in its own convolution's epilogue
        "dequantized",
        "dequantized",
        "c3",
    ]
    assert readers["r1"].op_type == "QuantizeLinear" and readers["r3"].op_type == "QuantizeLinear"
    # What pooling passes on is not rounded again.
    scales = {n.input[0]: n.input[1] for n in done.model.graph.node if n.op_type == "QuantizeLinear"}
    values = {t.name: onnx.numpy_helper.to_array(t) for t in done.model.graph.initializer}
    assert values[scales["r1"]] == values[scales["m"]]
    assert error(done.model, model) < 0.03
    ours = sardonyx.compile(done.model)(DATA[0])["y"]
    # A sum in another order can round a value to the next step.
    assert np.abs(ours - in_onnxruntime(done.model, DATA[0])).max() < 0.02 * np.abs(ours).max()
    floats = sardonyx.quantize(model, DATA, smooth=False, residuals=False)
    assert not floats.report.between and error(floats.model, model) < error(done.model, model) * 1.5


def test_values_between_products_above_the_limit_stay_in_float():
    model = OnnxModel(residual_network())
    products, _ = find_layers(model, (), grouped=False)
    found, why = within_limit(model, products, {"r1": 0.01, "s": 0.2, "r2": 0.01, "r3": 0.01}, 0.05)
    assert [r.value for r in found] == ["r3", "r2", "r1"]  # of the second Add; pooling
    assert list(why) == ["s"] and "0.2, above the limit of 0.05" in why["s"]
    # Where the product behind it stays in float, what it reads does too.
    found, _ = within_limit(model, products[:-1], dict.fromkeys(["r1", "s", "r2", "r3"], 0.0), 0.05)
    assert {r.value for r in found} == {"r1", "s"}
    report = sardonyx.quantize(residual_network(), DATA[:2], smooth=False).report
    report = dataclasses.replace(report, between=dict(report.between) | why)
    assert "3 values between layers" in quantize_text(report) and why["s"] in quantize_text(report)


def test_adds_stay_in_float_if_their_errors_add_up():
    rng = np.random.default_rng(4)
    weights = {f"w{k}": rng.standard_normal((8, 8, 1, 1)).astype(np.float32) / 10 for k in range(16)}
    nodes, value = [], "x"
    for k in range(15):
        nodes.append(helper.make_node("Conv", [value, f"w{k}"], [f"c{k}"], name=f"c{k}"))
        nodes.append(helper.make_node("Add", [f"c{k}", value], [f"s{k}"]))
        value = f"s{k}"
    nodes.append(helper.make_node("Conv", [value, "w15"], ["y"], name="last"))
    model = make(nodes, [("x", ["n", 8, 12, 12])], [("y", ["n", 8, 12, 12])], weights)
    eight = sardonyx.quantize(model, DATA, smooth=False, limit=1)
    floats = sardonyx.quantize(model, DATA, smooth=False, limit=1, residuals=False)
    worst = max(v.relative for v in eight.report.layers)
    total = sardonyx.evaluate(eight.model, DATA, reference=model).outputs[0].relative
    assert worst < 0.99 * total  # so a limit between them refuses no node by itself
    done = sardonyx.quantize(model, DATA, smooth=False, limit=0.99 * total)
    assert len(done.report.layers) == len(eight.report.layers) and list(done.report.between) == list(
        eight.report.between
    )
    assert all("error of the outputs" in why for why in done.report.between.values())
    x = DATA[0]
    assert np.array_equal(sardonyx.compile(done.model)(x)["y"], sardonyx.compile(floats.model)(x)["y"])


def test_rounding_error_is_that_of_the_values():
    x = np.abs(np.random.default_rng(0).standard_normal(100_000)).astype(np.float32)
    h = Histogram()
    h.add(x)
    form, r = FORMATS["int8"], h.minmax
    want = rounded(x, activation_scale(r, form, symmetric=False), form)
    want = np.sqrt(((want - x) ** 2).mean() / (x**2).mean())
    assert rounding_error(h, r, form, symmetric=False) == pytest.approx(want, rel=0.05)  # bins have a width


def test_products_above_the_limit_stay_in_float():
    layers = sardonyx.quantize(network(), DATA, limit=1).report.layers
    between = (layers[0].relative + layers[1].relative) / 2
    done = sardonyx.quantize(network(), DATA, limit=between)
    assert [v.name for v in done.report.layers] == [v.name for v in layers[1:]]
    assert "above the limit" in done.report.kept[layers[0].name]
    assert [n.op_type for n in done.model.graph.node].count("QuantizeLinear") == 3 + sum(
        not why for why in done.report.between.values()
    )
    with pytest.raises(sardonyx.InvalidArgumentError, match="every node has an error above"):
        sardonyx.quantize(network(), DATA, limit=1e-9)


@pytest.mark.parametrize("to", ["int8", "fp8"])
def test_output_limit(to):
    """Nodes stay in float until the outputs' error on the samples is within the limit; no more than needed."""
    model = network()
    every = sardonyx.quantize(model, DATA, to=to, limit=1)
    found = lambda done: sardonyx.evaluate(done.model, DATA, reference=model).outputs[0].relative
    limit = 0.7 * found(every)
    done = sardonyx.quantize(model, DATA, to=to, limit=1, output_limit=limit)
    assert found(done) <= limit and 0 < len(done.report.layers) < len(every.report.layers)
    left = {n for n, why in done.report.kept.items() if "error of the outputs" in why}
    assert len(left) + len(done.report.layers) == 4
    assert not left & {v.name for v in done.report.layers}
    # Without those that stay, the model is the same as if they were excluded.
    same = sardonyx.quantize(model, DATA, to=to, limit=1, residuals=False, exclude=[n.split(" ")[0] for n in left])
    assert found(same) == pytest.approx(found(done), rel=1e-3)
    loose = sardonyx.quantize(model, DATA, to=to, limit=1, output_limit=2 * found(every))
    assert loose.model == every.model
    with pytest.raises(sardonyx.InvalidArgumentError, match="any node"):
        sardonyx.quantize(model, DATA, to=to, output_limit=1e-6)
    with pytest.raises(sardonyx.InvalidArgumentError, match="output_limit"):
        sardonyx.quantize(model, DATA, to="int4", output_limit=0.1)
    with pytest.raises(sardonyx.InvalidArgumentError, match="above 0"):
        sardonyx.quantize(model, DATA, to=to, output_limit=0)


def test_bias_correction_removes_the_mean_error():
    rng = np.random.default_rng(3)
    w = rng.standard_normal((8, 32, 1, 1)).astype(np.float32)
    model = make(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        [("x", ["n", 32, 4, 4])],
        [("y", ["n", 8, 4, 4])],
        {"w": w},
    )
    data = [{"x": rng.uniform(2, 4, (4, 32, 4, 4)).astype(np.float32)} for _ in range(4)]  # means far from 0

    def mean_error(correct):
        own = sardonyx.compile(sardonyx.quantize(model, data, correct_bias=correct, per_channel=False).model)
        ref = sardonyx.compile(model)
        return np.abs(np.mean([own(s)["y"] - ref(s)["y"] for s in data], axis=(0, 1, 3, 4))).max()

    assert mean_error(True) < 0.3 * mean_error(False)


def test_older_models_are_converted():
    done = sardonyx.quantize(network(11), DATA)
    assert next(o.version for o in done.model.opset_import if not o.domain) == 13
    assert error(done.model, network(11)) < 0.03
    with pytest.raises(sardonyx.UnsupportedError, match="operator set"):
        broken = network(11)
        broken.graph.node[1].op_type = "NoSuchOperator"
        sardonyx.quantize(broken, DATA)


def test_fp8(tmp_path):
    done = sardonyx.quantize(network(), DATA, to="fp8", limit=1, output=tmp_path / "fp8.onnx")
    onnx.checker.check_model(done.model)
    assert error(tmp_path / "fp8.onnx", network()) < 0.2  # 3 bits of mantissa, four layers
    ours = sardonyx.compile(tmp_path / "fp8.onnx")(DATA[0])["y"]
    assert np.abs(ours - in_onnxruntime(done.model, DATA[0])).max() < 1e-5 * np.abs(ours).max()
    after = sardonyx.pass_report(done.model, "gfx1201").passes
    assert any("float8" in line and " matmul float32" in line for p in after for line in p.text.splitlines()) or any(
        p.pass_name == "float8_gemm" for p in after
    )


@pytest.mark.parametrize("weights", ["rtn", "gptq", "awq"])
def test_weights_of_4_bits(weights):
    rng = np.random.default_rng(4)
    w = rng.standard_normal((64, 48)).astype(np.float32)
    v = rng.standard_normal((48, 64)).astype(np.float32)
    c = rng.standard_normal(48).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "c"], ["h"], name="in"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="out"),
    ]
    model = make(nodes, [("x", ["n", 64])], [("y", ["n", 64])], {"w": w, "v": v, "c": c})
    # Channels that go together and differ in size: what GPTQ and AWQ make use of.
    mix = rng.standard_normal((8, 64)) * np.exp(rng.standard_normal(64))
    data = [{"x": (rng.standard_normal((64, 8)) @ mix).astype(np.float32)} for _ in range(6)]
    done = sardonyx.quantize(model, data[:4], to="int4", weights=weights, block=16)
    assert [n.op_type for n in done.model.graph.node if n.op_type in ("MatMul", "Gemm")] == []
    found = sardonyx.evaluate(done.model, data[4:], reference=model).outputs[0].relative
    nearest = sardonyx.quantize(model, to="int4", weights="rtn", block=16)
    limit = sardonyx.evaluate(nearest.model, data[4:], reference=model).outputs[0].relative
    assert found <= limit * {"rtn": 1, "gptq": 0.8, "awq": 0.98}[weights]
    worst = done.report.layers[0]
    mixed = sardonyx.quantize(model, data[:4], to="int4", weights=weights, block=16, limit=0.99 * worst.relative)
    assert {v.name: v.bits for v in mixed.report.layers} == {v.name: 8 if v is worst else 4 for v in done.report.layers}
    ours, theirs = sardonyx.compile(mixed.model)(data[5])["y"], in_onnxruntime(mixed.model, data[5])
    # Sums of 64 terms in another order.
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()


def test_rounding_of_weights():
    rng = np.random.default_rng(5)
    w = rng.standard_normal((24, 100)).astype(np.float32)  # the last block is padded
    plain = quantised(Dense(w), 4, 32).dense().values
    searched = weight_only.rtn(w, 4, 32, False).dense().values
    assert searched.shape == w.shape and ((searched - w) ** 2).sum() <= ((plain - w) ** 2).sum()
    x = (
        rng.standard_normal((400, 10)) @ rng.standard_normal((10, 100)) + 0.1 * rng.standard_normal((400, 100))
    ).astype(np.float32)
    gram = Gram()
    for part in np.split(x, 4):
        gram.add(part)
    assert gram.count == 400
    np.testing.assert_allclose(gram.sum, x.T @ x, rtol=1e-4, atol=1e-2)  # float32 sums of 400 terms
    q = weight_only.gptq(w, gram.sum, 4, 32, False).dense().values
    assert weight_only.loss(q - w, gram.sum) < 0.5 * weight_only.loss(searched - w, gram.sum)
    for bits, symmetric in ((4, True), (8, True), (8, False)):
        q = weight_only.rtn(w, bits, 32, symmetric)
        # Half a step, and a little more where the range was shrunk.
        assert np.abs(q.dense().values - w).max() <= (0.51 if bits == 8 else 3) * q.scales.max()
    silent = gram.sum.copy()
    silent[:, 7] = silent[7, :] = 0  # an input that is always 0
    assert np.isfinite(weight_only.gptq(w, silent, 4, 32, False).dense().values).all()


def test_histograms_do_not_depend_on_the_order_or_size_of_parts():
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.standard_normal(9000), 40 * rng.standard_normal(30)]).astype(np.float32)
    whole, parts = Histogram(), Histogram()
    whole.add(x)
    for part in np.array_split(np.sort(x), 37):  # the limit grows again and again
        parts.add(part)
    assert (parts.low, parts.high, parts.count) == (whole.low, whole.high, whole.count) == (x.min(), x.max(), x.size)
    assert np.array_equal(parts.bins, whole.bins) and whole.bins.sum() == x.size
    minmax = whole.range("minmax", symmetric=False)
    assert (minmax.low, minmax.high) == (x.min(), x.max())
    p = whole.range("percentile", symmetric=False, percentile=99.0)
    step = 2 * whole.limit / len(whole.bins)
    assert np.allclose([p.low, p.high], np.percentile(x, [0.5, 99.5]), atol=2 * step)
    bell = Histogram()
    bell.add(rng.standard_normal(200000))
    assert 3.5 < bell.range("entropy", symmetric=True).largest < 0.97 * bell.minmax.largest
    # Nothing shrunk has a smaller error than what "mse" chooses.
    r = whole.range("mse", symmetric=True, levels=15)
    assert r.largest < minmax.largest

    def loss(limit):
        s = limit / 7
        return np.mean((np.clip(np.rint(x / s), -7, 7) * s - x) ** 2)

    assert loss(r.largest) <= 1.05 * min(loss(minmax.largest * k / 50) for k in range(1, 51))
    empty = Histogram()
    empty.add(np.array([np.nan, np.inf], np.float32))
    assert empty.nonfinite == 2 and empty.range("mse", symmetric=True).largest == 0
    constant = Histogram()
    constant.add(np.full(5, 3, np.float32))
    assert constant.range("mse", symmetric=False).high > 2.9
    with pytest.raises(sardonyx.InvalidArgumentError, match="percentile"):
        whole.range("percentile", symmetric=True, percentile=10)


def test_collectors_have_bounded_memory():
    rng = np.random.default_rng(7)
    rows, channels = Rows(50), Channels(1)
    everything = rng.standard_normal((40, 25, 6)).astype(np.float32)
    for part in everything:
        rows.add(part)
        channels.add(part.reshape(5, 6, 5))
    assert rows.rows.shape == (50, 6)
    flat = everything.reshape(-1, 6)
    kept = [int(np.flatnonzero((flat == r).all(1))[0]) for r in rows.rows]
    assert len(set(kept)) == 50 and max(kept) > 800 and min(kept) < 200  # from all parts
    images = everything.reshape(-1, 6, 5)
    np.testing.assert_allclose(channels.mean, images.mean((0, 2)), atol=1e-6)
    np.testing.assert_array_equal(channels.largest, np.abs(images).max((0, 2)))


def test_language_models(tmp_path):
    gguf_files.write(tmp_path / "m.gguf", "llama", "Q8_0")
    convert_gguf(tmp_path / "m.gguf", tmp_path / "float", precision="fp32")
    text = ["the end and then the end of the end " * 3]
    done = sardonyx.quantize(tmp_path / "float", text, to="int4", output=tmp_path / "int4", context=16)
    assert all("MatMul" in v.name for v in done.report.layers) and done.report.samples > 1
    assert done.report.quantized_bytes < done.report.weight_bytes
    e = sardonyx.evaluate(tmp_path / "int4", text, reference=tmp_path / "float", context=16)
    assert 0.5 < e.text.ratio < 2 and e.text.divergence < 0.1
    with pytest.raises(sardonyx.InvalidArgumentError, match="own folder"):
        sardonyx.quantize(tmp_path / "float", text, to="int4", output=tmp_path / "float")


def test_the_command(tmp_path):
    onnx.save(network(), tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for k, sample in enumerate(DATA):
        np.savez(tmp_path / "data" / f"{k}.npz", **sample)
    arguments = ["quantize", tmp_path / "m.onnx", "--data", tmp_path / "data"]
    out = command(*arguments, "-o", tmp_path / "q.onnx", "--exclude", "h*d", "--json", tmp_path / "q.json", **PYTHON)
    assert "3 of 5 layers in int8" in out and "excluded by a pattern: head" in out and "it has groups" in out
    report = json.loads((tmp_path / "q.json").read_text())
    assert len(report["layers"]) == 3 and report["kept"]["head (MatMul)"] == "excluded by a pattern"
    found = command("evaluate", tmp_path / "q.onnx", "--reference", tmp_path / "m.onnx", "--data", tmp_path / "data",
                    "--max-relative", 0.05, **PYTHON)  # fmt: skip
    assert "6 samples" in found
    out = command(*arguments, "--to", "table", "-o", tmp_path / "t.json", **PYTHON)
    ranges = json.loads((tmp_path / "t.json").read_text())
    assert set(ranges) == {"x", "c1", "r1", "d", "c2", "r2", "p", "f", "g", "n", "y"} and "ranges of 11 values" in out
    compiled = sardonyx.compile(tmp_path / "m.onnx", precision="int8", calibration_table=tmp_path / "t.json")
    assert compiled.quantization.quantized == 4
    for wrong, message in (
        (["quantize", tmp_path / "m.onnx"], "needs data"),
        ([*arguments, "--to", "int7"], "--help"),
        ([*arguments, "--to", "int4", "--block", 24], "blocks have"),
        ([*arguments, "--exclude", "*"], "no MatMul, Gemm or Conv that can be quantised"),
    ):
        assert message in command(*wrong, code=INVALID_ARGUMENT, **PYTHON)


@pytest.mark.parametrize("to", ["fp8-e5m2", "fp8-fnuz", "fp8-e5m2-fnuz"])
def test_other_forms_of_float8(to):
    done = sardonyx.quantize(network(), DATA, to=to, limit=1)
    onnx.checker.check_model(done.model)
    stored = {TensorProto.DataType.Name(t.data_type) for t in done.model.graph.initializer}
    kind = {"fp8-e5m2": "FLOAT8E5M2", "fp8-fnuz": "FLOAT8E4M3FNUZ", "fp8-e5m2-fnuz": "FLOAT8E5M2FNUZ"}[to]
    assert kind in stored and stored <= {kind, "FLOAT", "INT64"}
    # 3 or 2 bits of mantissa, four layers.
    assert error(done.model, network()) < (0.2 if to == "fp8-fnuz" else 0.4)
    ours = sardonyx.compile(done.model)(DATA[0])["y"]
    assert np.abs(ours - in_onnxruntime(done.model, DATA[0])).max() < 1e-5 * np.abs(ours).max()
    passes = [p.pass_name for p in sardonyx.pass_report(done.model, "gfx942").passes]
    assert ("float8_gemm" in passes) == (to == "fp8-fnuz")  # the others are multiplied in float32
