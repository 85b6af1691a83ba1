"""Runs one operator in Sardonyx and in a reference: onnxruntime where it has the operator, else onnx's own evaluator."""

import numpy as np
import onnx
import sardonyx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

ORT_MAX_OPSET = 25


def element_type(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(op, attributes, inputs, opset, outputs=1, constants=(), symbolic=False, domain="", kept=()):
    """A model of one node. `inputs`: arrays, or None for one left out. `constants`: numbers of inputs that become
    initializers. `symbolic`: every dim of the other inputs is declared by a name of its own, but those in `kept`:
    (input, dim)."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(inputs)]
    declared, initializers = [], []
    for k, a in enumerate(inputs):
        if a is None:
            continue
        if k in constants:
            initializers.append(numpy_helper.from_array(a, names[k]))
            continue
        shape = list(a.shape)
        if symbolic:
            shape = [n if (k, i - a.ndim) in kept else f"d{k}_{i}" for i, n in enumerate(shape)]
        declared.append(helper.make_tensor_value_info(names[k], element_type(a), shape))
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=r) for r in results], initializers)
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def feed(inputs, constants):
    return {f"x{k}": a for k, a in enumerate(inputs) if a is not None and k not in constants}


def reference(model, values, evaluator=None):
    """The reference's outputs. `evaluator`: "onnx" forces onnx's own."""
    if evaluator != "onnx" and model.opset_import[0].version <= ORT_MAX_OPSET:
        import onnxruntime as ort

        typed = onnx.ModelProto()
        typed.CopyFrom(onnx.shape_inference.infer_shapes(model))
        known = {v.name: v for v in typed.graph.output if v.type.WhichOneof("value")}
        if len(known) == len(typed.graph.output):
            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            try:
                session = ort.InferenceSession(typed.SerializeToString(), options, providers=["CPUExecutionProvider"])
            except (ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.Fail):
                pass  # onnxruntime lacks this operator, opset or dtype
            else:
                return session.run(None, values)
    return ReferenceEvaluator(model).run(None, values)


def compare(got, want, rtol, atol, what=""):
    want = np.asarray(want)
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, err_msg=what)
    else:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, err_msg=what)


TOLERANCE = {  # relative: a few units in the last place of the result's type, as sums may be ordered differently
    "float64": 1e-12,
    "float32": 2e-6,
    "float16": 2e-3,
    "bfloat16": 2e-2,
}


def check(
    op,
    attributes,
    inputs,
    opset,
    outputs=1,
    constants=(),
    rtol=None,
    atol=None,
    evaluator=None,
    domain="",
    variants=None,
    kept=(),
):
    """Compares all variants of a node (fixed and symbolic dims, inputs given and constant) with the reference."""
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    want = reference(
        model_of(op, attributes, inputs, opset, outputs, constants, False, domain), feed(inputs, constants), evaluator
    )
    assert len(want) == outputs
    for symbolic, fixed in variants or ((False, ()), (False, constants), (True, constants), (True, ())):
        model = model_of(op, attributes, inputs, opset, outputs, fixed, symbolic, domain, kept)
        got = sardonyx.compile(model).run(feed(inputs, fixed))
        for name, w in zip(got, want):
            scale = rtol if rtol is not None else TOLERANCE.get(np.asarray(w).dtype.name, 0)
            floor = atol if atol is not None else scale
            compare(
                got[name],
                w,
                scale,
                floor,
                f"{op} opset {opset} {'symbolic' if symbolic else 'fixed'} constants {fixed} {name}",
            )


def refused(op, attributes, inputs, opset, outputs=1, constants=(), symbolic=False):
    """The message with which compiling or running the node fails."""
    inputs = [None if a is None else np.asarray(a) for a in inputs]
    model = model_of(op, attributes, inputs, opset, outputs, constants, symbolic)
    try:
        sardonyx.compile(model).run(feed(inputs, constants))
    except sardonyx.Error as error:
        return str(error)
    raise AssertionError(f"{op} was accepted")


__all__ = ["TensorProto", "check", "model_of", "refused"]
