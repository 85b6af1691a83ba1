"""sardonyx.quantize() with models and data that nobody prepared for it: few samples, NaN, functions, transposed weights."""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper
from sardonyx.quantization.calibration import CheckedChannels, Gram
from sardonyx.quantization.qdq import INT8
from sardonyx.quantization.scaling import smoothing
from sardonyx.quantization.weight_only import gptq


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def make(nodes, outputs, weights, inputs=(("x", ["n", 32]),), functions=(), opset=17, extra=()):
    value = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
    graph = helper.make_graph(
        nodes, "g", [value(*i) for i in inputs], [value(*o) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), *extra]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)


def dense():
    """Two layers that share nothing."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    weights = {"w1": normal(1, 32, 48) / 6, "w2": normal(2, 48, 32) / 7}
    return make(nodes, [("y", ["n", 32])], weights)


FEW = [{"x": normal(k, 5, 32)} for k in range(5)]
OTHER = [{"x": normal(k, 64, 32)} for k in range(10, 14)]


def relative(model, reference, data=OTHER):
    return sardonyx.evaluate(model, data, reference=reference).outputs[0].relative


def test_smoothing_with_few_samples_does_not_fit_to_them():
    """25 rows of 32 even channels: scales by their largest values would clip other data."""
    plain = sardonyx.quantize(dense(), FEW, smooth=False)
    smooth = sardonyx.quantize(dense(), FEW)
    assert relative(smooth.model, dense()) <= 1.1 * relative(plain.model, dense()) < 0.04
    # Uneven channels are smoothed with as few.
    data = CheckedChannels(256)
    uneven = np.exp(2 * normal(3, 32))
    for k in range(5):
        data.add(normal(k, 5, 32) * uneven)
    scales, strength = smoothing(data, [normal(4, 32, 16)], INT8, symmetric=False, per_channel=True)
    assert strength > 0 and scales.shape == (32,) and scales.argmax() == uneven.argmax()
    one = CheckedChannels(256)  # a single sample is divided
    one.add(normal(5, 60, 32) * uneven)
    assert smoothing(one, [normal(4, 32, 16)], INT8, symmetric=False, per_channel=True)[1] > 0
    row = CheckedChannels(256)
    row.add(normal(5, 1, 32))
    assert smoothing(row, [normal(4, 32, 16)], INT8, symmetric=False, per_channel=True) == (None, 0.0)


def test_functions_are_expanded():
    """Also where the operator set is converted, which drops functions, and where theirs is another."""
    function = helper.make_function(
        "own", "Block", ["a", "w", "b"], ["o"],
        [helper.make_node("MatMul", ["a", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["o"])],
        [helper.make_opsetid("", 15)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Block", ["x", "w1", "b"], ["a"], domain="own"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Block", ["r", "w2", "c"], ["y"], domain="own"),
    ]
    weights = {"w1": normal(1, 32, 48) / 6, "b": normal(3, 48), "w2": normal(2, 48, 32) / 7, "c": normal(4, 32)}
    model = make(nodes, [("y", ["n", 32])], weights, functions=[function], extra=[helper.make_opsetid("own", 1)])
    for to in ("int8", "fp8", "int4"):
        done = sardonyx.quantize(model, FEW, to=to, limit=None if to == "int4" else 1)
        assert len(done.report.layers) == 2 and not done.report.kept and not done.model.functions
        assert relative(done.model, model) < {"int8": 0.03, "fp8": 0.1, "int4": 0.3}[to]


def test_weights_that_the_exporter_transposes_or_casts():
    nodes = [
        helper.make_node("Identity", ["w1"], ["same"]),
        helper.make_node("Transpose", ["same"], ["w1t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "w1t"], ["a"], name="first"),
        helper.make_node("Cast", ["w2"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["wide", "shape"], ["w2r"]),
        helper.make_node("MatMul", ["a", "w2r"], ["b"], name="second"),
        helper.make_node("Transpose", ["p"], ["pt"], perm=[1, 0]),
        helper.make_node("MatMul", ["b", "pt"], ["y"], name="of two activations"),
        helper.make_node("Gather", ["w3", "at"], ["row"]),  # of embeddings, which are the last layer's weights too
        helper.make_node("Identity", ["w3"], ["w3i"]),
        helper.make_node("Transpose", ["w3i"], ["w3t"], perm=[1, 0]),
        helper.make_node("MatMul", ["row", "w3t"], ["z"], name="tied"),
    ]
    weights = {"w1": normal(1, 48, 32) / 6, "w2": (normal(2, 48, 4, 8) / 7).astype(np.float16)}
    weights |= {"shape": np.array([48, 32], np.int64), "w3": normal(6, 40, 32), "at": np.array([3], np.int64)}
    outputs, inputs = [("y", ["n", "m"]), ("z", [1, 40])], [("x", ["n", 32]), ("p", ["m", 32])]
    model = make(nodes, outputs, weights, inputs)
    data = [{**d, "p": normal(9, 3, 32)} for d in FEW]
    for to in ("int8", "int4"):
        done = sardonyx.quantize(model, data, to=to)
        onnx.checker.check_model(done.model)
        assert {v.name for v in done.report.layers} == {"first (MatMul)", "second (MatMul)"}
        reason = "its right operand is not constant"
        assert done.report.kept == dict.fromkeys(("of two activations (MatMul)", "tied (MatMul)"), reason)
        found = sardonyx.evaluate(done.model, data, reference=model)
        assert found.outputs[0].relative < (0.03 if to == "int8" else 0.3) and found.outputs[1].relative == 0
        assert "Cast" not in {n.op_type for n in done.model.graph.node}


def test_nodes_of_nested_graphs_are_listed():
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w2"], ["t"], name="inner")], "then", [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n", 32])],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["e"])], "else", [], [helper.make_tensor_value_info("e", TensorProto.FLOAT, ["n", 32])]
    )  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="outer"),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=other),
    ]
    weights = {"w1": normal(1, 32, 32) / 6, "w2": normal(2, 32, 32) / 6, "zero": np.float32(0)}
    done = sardonyx.quantize(make(nodes, [("y", ["n", 32])], weights), FEW)
    assert [v.name for v in done.report.layers] == ["outer (MatMul)"]
    assert done.report.kept == {"inner (MatMul)": "it is in the graph of an If, Loop or Scan"}


def conv():
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")]
    return make(nodes, [("y", ["n", 16, 6, 6])], {"w": normal(1, 16, 32, 3, 3) / 17}, [("x", ["n", 32, 8, 8])])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_have_no_part(value):
    """One element of one sample: other rows and windows count as they are."""
    for model, shape in ((dense(), (5, 32)), (conv(), (2, 32, 8, 8))):
        data = [{"x": normal(k, *shape)} for k in range(8)]
        broken = [dict(d) for d in data]
        broken[1]["x"] = data[1]["x"].copy()
        broken[1]["x"].flat[3] = value
        for to, weights in (("int8", "gptq"), ("fp8", "gptq"), ("int4", "gptq"), ("int4", "awq"), ("mxfp8", "gptq")):
            both = [sardonyx.quantize(model, d, to=to, weights=weights, limit=1) for d in (data, broken)]
            errors = [relative(q.model, model, data) for q in both]
            assert errors[1] < 1.5 * errors[0] + 1e-3, (to, weights, errors)


def test_data_that_say_nothing_are_refused():
    """Instead of ranges of nothing, or weights that are no numbers."""
    data = [{"x": np.full((5, 32), value, np.float32)} for value in (np.nan, np.inf)]
    for to, weights in (("int8", "gptq"), ("int4", "gptq"), ("int4", "awq"), ("mxfp4", "gptq"), ("table", "gptq")):
        with pytest.raises(sardonyx.InvalidArgumentError, match="on the data"):
            sardonyx.quantize(dense(), data, to=to, weights=weights)
    sardonyx.quantize(dense(), data, to="int4", weights="rtn")
    for to in ("int8", "fp8"):
        with pytest.raises(sardonyx.InvalidArgumentError, match="0 on all of the data"):
            sardonyx.quantize(dense(), [{"x": np.zeros((5, 32), np.float32)}] * 3, to=to)
    large = [*FEW, {"x": np.full((5, 32), 3e38, np.float32)}]
    for to in ("int4", "mxfp8"):
        with pytest.raises(sardonyx.InvalidArgumentError, match="'x' has values on the data whose squares exceed"):
            sardonyx.quantize(dense(), large, to=to)
    assert sardonyx.quantize(dense(), large, to="table", method="minmax").report.ranges["x"].high == np.float32(3e38)


def test_a_layer_that_the_data_do_not_reach_stays_in_float():
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Sub", ["p", "one"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["b"], name="never"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    weights = {"w1": normal(1, 32, 32) / 6, "w2": normal(2, 32, 32) / 6, "one": np.float32(1)}
    model = make(nodes, [("y", ["n", 32])], weights, [("x", ["n", 32]), ("p", ["n", 32])])
    done = sardonyx.quantize(model, [{**d, "p": np.zeros((5, 32), np.float32)} for d in FEW])
    assert done.report.kept == {"never (MatMul)": "its activation is 0 on all of the data"}
    assert relative(done.model, model, [{**d, "p": normal(7, 5, 32)} for d in FEW]) < 0.05


def test_gptq_damps_what_it_cannot_invert():
    gram = np.zeros((32, 32), np.float32)
    gram[0, 0], gram[1:, 1:] = 1e34, np.eye(31)  # one column far above the others
    weight = gptq(normal(1, 8, 32), gram, 4, 32, False).dense().values
    assert np.abs(weight - normal(1, 8, 32)).max() < 1  # two steps, of a range that may clip
    with pytest.raises(sardonyx.InvalidArgumentError, match="differ too much"):
        gptq(normal(1, 8, 32), -np.ones((32, 32), np.float32), 4, 32, False)


def test_scripts_that_end_and_arrays_that_are_none(tmp_path):
    script = tmp_path / "samples.py"
    for text, message in (
        ("import sys\nsys.exit(0)\n", "can't be run: SystemExit"),
        ("def samples():\n    raise RuntimeError('no camera')\n    yield\n", "RuntimeError: no camera"),
        ("import sys\ndef samples():\n    sys.exit(0)\n    yield\n", "failed: SystemExit"),
    ):
        script.write_text(text)
        with pytest.raises(sardonyx.InvalidArgumentError, match=message):
            sardonyx.quantize(dense(), script)
        with pytest.raises(sardonyx.InvalidArgumentError, match=message):
            sardonyx.evaluate(dense(), script)
    with pytest.raises(sardonyx.InvalidArgumentError, match="'x' is no array"):
        sardonyx.quantize(dense(), [{"x": [[1.0, 2.0], [3.0]]}])


def test_gptq_with_few_samples_does_not_fit_to_them():
    """25 rows of 32 even channels say nothing about how channels go together; rounding to nearest is as good."""
    errors = {
        w: relative(sardonyx.quantize(dense(), FEW, to="int4", weights=w).model, dense()) for w in ("gptq", "rtn")
    }
    assert errors["gptq"] < 1.05 * errors["rtn"]
    # Rows of few directions keep what they say, however few they are, and many rows do in any case.
    mixing = normal(3, 4, 32)
    few, many = Gram(), Gram()
    few.add(normal(4, 25, 4) @ mixing)
    many.add(normal(5, 20000, 32) * np.linspace(1, 2, 32, dtype=np.float32))
    for gram, most in ((few, 0.3), (many, 0.01)):
        difference = np.linalg.norm(gram.shrunk() - gram.sum) / np.linalg.norm(gram.sum)
        assert 0 < difference < most
    assert np.trace(few.shrunk()) == pytest.approx(np.trace(few.sum), rel=1e-5)
    one = Gram()
    one.add(np.zeros((3, 8), np.float32))
    assert not one.shrunk().any()


@pytest.mark.parametrize("to", ["fp8", "fp8-fnuz", "fp8-e5m2", "int8"])
def test_onnxruntime_gives_the_same_with_its_usual_options(to):
    """Its optimiser removes a Relu in front of a QuantizeLinear with a zero point of float8, and fuses a Gemm of them."""
    ort = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "c"], ["g"]),
        helper.make_node("Gemm", ["g", "w3"], ["h"]),
        helper.make_node("Clip", ["h", "low", "high"], ["k"]),
        helper.make_node("MatMul", ["k", "w4"], ["y"]),
    ]
    weights = {
        "w1": normal(1, 32, 48) / 6,
        "w2": normal(2, 48, 40) / 7,
        "c": normal(4, 40),
        "w3": normal(3, 40, 32) / 6,
    }
    weights["w4"] = normal(5, 32, 48) / 6
    weights |= {"low": np.float32(0), "high": np.float32(1)}
    model = make(nodes, [("y", ["n", 48])], weights)
    done = sardonyx.quantize(model, FEW, to=to, limit=1)
    assert len(done.report.layers) == 4
    options = ort.SessionOptions()
    # Otherwise, on CPUs with AVX2 and without VNNI, ONNX Runtime's sums of two products saturate at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(done.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ours = sardonyx.compile(done.model)(FEW[0])["y"]
    np.testing.assert_allclose(session.run(None, FEW[0])[0], ours, atol=0.02 * np.abs(ours).max())  # a step of 8 bits
