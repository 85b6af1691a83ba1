"""A small network quantised to 8 bits by ONNX Runtime's own tools, in each of their forms, against ONNX Runtime."""

import logging

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")


def network():
    """Convolutions (one depthwise, one strided) with a residual sum, pooling and a dense layer."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def add(op, inputs, **attributes):
        name = f"{op.lower()}{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(array):
        weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    def conv(x, channels, features, kernel, stride=1, group=1):
        fan = channels // group * kernel * kernel
        w = constant(rng.standard_normal((features, channels // group, kernel, kernel)) * (2 / fan) ** 0.5)
        b = constant(rng.standard_normal(features) * 0.1)
        return add(
            "Conv", [x, w, b], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group
        )

    x = add("Relu", [conv("x", 3, 16, 3, 2)])
    x = add("Relu", [conv(x, 16, 16, 3, group=16)])
    x = add("Relu", [conv(x, 16, 40, 1)])
    x = add("Add", [conv(add("Relu", [conv(x, 40, 40, 3)]), 40, 40, 3), x])
    x = add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = add("GlobalAveragePool", [add("Relu", [conv(x, 40, 65, 3, 2)])])
    dense = constant(rng.standard_normal((65, 40)) * 0.2), constant(rng.standard_normal(40) * 0.1)
    nodes.append(helper.make_node("Gemm", [add("Flatten", [x]), *dense], ["y"]))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 33, 47])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 40])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images(n, seed):
    return np.random.default_rng(seed).standard_normal((n, 3, 33, 47)).astype(np.float32)


class Calibration(quantization.CalibrationDataReader):
    def __init__(self):
        self.feeds = iter([{"x": images(2, seed)} for seed in range(3)])

    def get_next(self):
        return next(self.feeds, None)


U8, S8 = quantization.QuantType.QUInt8, quantization.QuantType.QInt8
STATIC = {
    f"{form}-{activation}-{weight}{'-per-channel' if channels else ''}": (form, activation, weight, channels)
    for form in ("QDQ", "QOperator")
    for activation, weight, channels in ((S8, S8, True), (U8, S8, False), (U8, U8, False))
}


@pytest.fixture(scope="module")
def floats(tmp_path_factory):
    path = tmp_path_factory.mktemp("quantized") / "float.onnx"
    onnx.save(network(), path)
    return path


def run_both(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # Not its fusions of quantised patterns, which round in other places: the result is to be what the model says.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    model = sardonyx.compile(path)
    kernels = [k.name for k in model.kernels()]
    results = [(model(x=images(n, 7))["y"], session.run(None, {"x": images(n, 7)})[0]) for n in (1, 2, 5)]
    assert model.programs == 1
    return kernels, results


@pytest.mark.parametrize("case", STATIC)
def test_static(case, floats, tmp_path):
    form, activation, weight, per_channel = STATIC[case]
    path = tmp_path / "quantized.onnx"
    logging.getLogger().setLevel(logging.ERROR)  # it recommends preprocessing
    quantization.quantize_static(
        floats, path, Calibration(), quant_format=quantization.QuantFormat[form], activation_type=activation,
        weight_type=weight, per_channel=per_channel,
    )  # fmt: skip
    quantum = next(float(numpy_helper.to_array(t)) for t in onnx.load(path).graph.initializer if t.name == "y_scale")
    kernels, results = run_both(path)
    # Not the depthwise one, nor those of up to 1024 weights whose DequantizeLinear was computed when compiling.
    assert sum("integer_conv" in k for k in kernels) >= 3, kernels
    assert any("integer_matmul" in k for k in kernels), kernels
    for got, want in results:
        # A sum that lies in the middle between two quanta is rounded by its last bit, and that of each layer adds to the next ones.
        assert np.abs(got - want).max() <= 2.01 * quantum
        assert np.abs(got - want).mean() <= 0.3 * quantum


@pytest.mark.parametrize("weight", (U8, S8), ids=str)
def test_dynamic(weight, floats, tmp_path):
    path = tmp_path / "quantized.onnx"
    # onnxruntime has no convolution of uint8 by int8 weights of this form
    operators = ["Conv", "MatMul", "Gemm"] if weight is U8 else ["MatMul", "Gemm"]
    quantization.quantize_dynamic(floats, path, weight_type=weight, op_types_to_quantize=operators)
    kernels, results = run_both(path)
    assert any("integer_matmul" in k for k in kernels), kernels
    for got, want in results:
        # Scales come from the data's extremes, whose last bit differs; a quantum is 1/255 of the range.
        assert np.abs(got - want).max() <= 2 / 255 * np.abs(want).max()
