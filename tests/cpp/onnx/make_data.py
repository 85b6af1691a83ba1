"""make_data.py FOLDER: the onnx package's own files, with what it reads from them, for interop_test.cpp.

tensors/NAME.pb with NAME.bin: a TensorProto, and its elements in memory layout (sub-byte types one per byte).
external.onnx with its data file: saved by onnx.save_model; external_NAME.bin for each initializer.
functions.onnx with functions.txt: functions that call functions, and the operators onnx.inliner makes of it.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper, numpy_helper

NOT_REPRESENTED = {"UNDEFINED", "STRING", "FLOAT6E2M3", "FLOAT6E3M2"}


def memory_layout(tensor: TensorProto) -> bytes:
    """The elements as one would have them in memory, one per byte for sub-byte types."""
    array = numpy_helper.to_array(tensor)
    name = TensorProto.DataType.Name(tensor.data_type)
    if name in ("INT4", "INT2"):
        return array.astype(np.int8).tobytes()
    if name in ("UINT4", "UINT2"):
        return array.astype(np.uint8).tobytes()
    if name == "FLOAT4E2M1":
        return (array.view(np.uint8) & 0xF).tobytes()
    return array.tobytes()


def write_tensors(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in TensorProto.DataType.items():
        if name in NOT_REPRESENTED:
            continue
        dtype = helper.tensor_dtype_to_np_dtype(number)
        values = np.array([1, 0, 1, 1, 0]) if name in ("BOOL", "UINT2", "INT2") else np.array([1, 2, 4, 0.5, 1])
        array = values.astype(dtype)
        raw = numpy_helper.from_array(array, name)
        typed = helper.make_tensor(name, number, array.shape, array)
        assert raw.raw_data and not typed.raw_data
        for kind, tensor in (("raw", raw), ("typed", typed)):
            (folder / f"{name}_{kind}.pb").write_bytes(tensor.SerializeToString())
            (folder / f"{name}_{kind}.bin").write_bytes(memory_layout(tensor))


def write_external(folder: Path) -> None:
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.standard_normal((64, 300)).astype(np.float32), "big"),
        numpy_helper.from_array(random.integers(0, 9, 5).astype(np.int8), "small"),
        numpy_helper.from_array(random.standard_normal((300, 300)).astype(np.float16), "half"),
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", [w.name], [f"{w.name}_out"]) for w in weights],
        "external",
        [],
        [helper.make_tensor_value_info(f"{w.name}_out", w.data_type, list(w.dims)) for w in weights],
        initializer=weights,
    )
    for weight in weights:
        (folder / f"external_{weight.name}.bin").write_bytes(memory_layout(weight))
    (folder / "external.data").unlink(missing_ok=True)  # save_model appends
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.save_model(
        model,
        str(folder / "external.onnx"),
        save_as_external_data=True,
        location="external.data",
        size_threshold=0,
    )


def write_functions(folder: Path) -> None:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    scale = helper.make_function(
        "local",
        "Scale",
        ["x"],
        ["y"],
        [helper.make_node("Constant", [], ["c"]), helper.make_node("Mul", ["x", "c"], ["y"])],
        opsets,
        attributes=["by"],
    )
    reference = helper.make_attribute_ref("value_float", onnx.AttributeProto.FLOAT)
    reference.ref_attr_name = "by"
    scale.node[0].attribute.append(reference)
    twice = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [
            helper.make_node("Scale", ["a"], ["t"], domain="local", by=2.0),
            helper.make_node("Tanh", ["t"], ["u"]),
            helper.make_node("Scale", ["u"], ["b"], domain="local", by=3.0),
        ],
        opsets,
    )
    graph = helper.make_graph(
        [
            helper.make_node("Twice", ["x"], ["h"], domain="local", name="one"),
            helper.make_node("Twice", ["h"], ["y"], domain="local", name="two"),
        ],
        "functions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[scale, twice])
    onnx.checker.check_model(model)
    onnx.save_model(model, str(folder / "functions.onnx"))
    inlined = onnx.inliner.inline_local_functions(model)
    (folder / "functions.txt").write_text("".join(f"{n.op_type}\n" for n in inlined.graph.node))


def main() -> None:
    folder = Path(sys.argv[1])
    write_tensors(folder / "tensors")
    write_external(folder)
    write_functions(folder)


if __name__ == "__main__":
    main()
