"""make_seeds.py MODELS FILES: what the fuzzers start from. MODELS gets small models and tensors, one for each part of
the format; FILES gets .npy, .npz and .pb files with a byte before them that says which (see fuzz_files.cpp)."""

import io
import sys
from pathlib import Path

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def value(name: str, *shape: int | str):
    return helper.make_tensor_value_info(name, FLOAT, shape)


def model(nodes: list, initializers: list = (), functions: list = (), sparse: list = ()) -> bytes:
    graph = helper.make_graph(nodes, "g", [value("x", 2, "n")], [value("y", 2, "n")], list(initializers))
    graph.sparse_initializer.extend(sparse)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions)).SerializeToString()


def branch(name: str, op: str, reads: str):
    return helper.make_graph([helper.make_node(op, [reads], [name])], name, [], [value(name, 2, "n")])


def nested() -> bytes:
    inner = helper.make_node(
        "If", ["c"], ["i"], then_branch=branch("a", "Abs", "x"), else_branch=branch("b", "Neg", "t")
    )
    outer_then = helper.make_graph([inner], "outer", [], [value("i", 2, "n")])
    outer = helper.make_node("If", ["c"], ["y"], then_branch=outer_then, else_branch=branch("e", "Exp", "t"))
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    return model([outer, helper.make_node("Sin", ["x"], ["t"])], [condition])


def functions() -> bytes:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    leaf_node = helper.make_node("Elu", ["a"], ["b"])
    reference = helper.make_attribute_ref("alpha", AttributeProto.FLOAT)
    reference.ref_attr_name = "k"
    leaf_node.attribute.append(reference)
    default = helper.make_attribute("k", 0.5)
    leaf = helper.make_function("local", "Leaf", ["a"], ["b"], [leaf_node], opsets, attribute_protos=[default])
    calls = [
        helper.make_node("Leaf", ["a"], ["t"], domain="local", k=2.0),
        helper.make_node("If", ["t"], ["u"], then_branch=branch("p", "Abs", "t"), else_branch=branch("q", "Leaf", "t")),
        helper.make_node("Leaf", ["u"], ["b"], domain="local"),
    ]
    calls[1].attribute[1].g.node[0].domain = "local"
    twice = helper.make_function("local", "Twice", ["a", "o"], ["b", "a"], calls, opsets)
    nodes = [
        helper.make_node("Twice", ["x"], ["s"], domain="local", name="one"),
        helper.make_node("Twice", ["s", "x"], ["y", "z"], domain="local"),
    ]
    return model(nodes, functions=[leaf, twice])


def sparse() -> bytes:
    """Both forms of indices."""
    pairs = helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 1, 0])
    linear = helper.make_tensor("j", TensorProto.INT64, [2], [2, 4])
    tensors = []
    for name, indices in (("s", pairs), ("t", linear)):
        values = helper.make_tensor(name, FLOAT, [2], [1.0, 2.0])
        tensors.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    return model([helper.make_node("Sum", ["x", "s", "t"], ["y"])], sparse=tensors)


def attributes() -> bytes:
    node = helper.make_node(
        "Op", ["x", "", "w"], ["y", ""], i=1, f=0.5, s=b"s", ints=[1, 2], floats=[0.5], strings=["a", "b"]
    )
    node.attribute.append(helper.make_attribute("t", helper.make_tensor("t", TensorProto.STRING, [1], [b"text"])))
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1, None]))
    node.attribute.append(helper.make_attribute("tp", helper.make_optional_type_proto(sequence)))
    return model([node], [helper.make_tensor("w", TensorProto.INT4, [3], [1, -2, 3])])


def external() -> bytes:
    """Reads the file that the fuzzer makes."""
    weights = []
    for name, number, offset in (("a", FLOAT, 16), ("b", TensorProto.UINT4, 1), ("c", TensorProto.BOOL, 0)):
        tensor = TensorProto(name=name, data_type=number, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, setting in (("location", "d"), ("offset", str(offset))):
            tensor.external_data.add(key=key, value=setting)
        weights.append(tensor)
    return model([helper.make_node("Op", ["x", "a", "b", "c"], ["y"])], weights)


def tensors() -> dict[str, bytes]:
    out = {}
    for name in ("FLOAT", "INT64", "UINT64", "COMPLEX64", "BFLOAT16", "BOOL", "INT2", "FLOAT4E2M1"):
        number = TensorProto.DataType.Value(name)
        array = np.array([1, 0, 1]).astype(helper.tensor_dtype_to_np_dtype(number))
        out[f"tensor_{name}_raw"] = numpy_helper.from_array(array, "t").SerializeToString()
        out[f"tensor_{name}_typed"] = helper.make_tensor("t", number, array.shape, array).SerializeToString()
    return out


def files() -> dict[str, bytes]:
    out = {}
    arrays = {
        "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        "swapped": np.arange(3, dtype=">i2"),
        "raw": np.zeros(2, "V2"),
        "complex": np.ones(1, np.complex64),
        "scalar": np.array(True),
        "empty": np.zeros((0, 4), np.float16),
    }
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array)
        out[f"npy_{name}"] = b"\0" + stream.getvalue()
    for save in (np.savez, np.savez_compressed):
        stream = io.BytesIO()
        save(stream, x=arrays["raw"], y=arrays["floats"], z=np.zeros((2, 2), "V1"))
        out[save.__name__] = b"\1" + stream.getvalue()
    return out | {name: b"\2" + data for name, data in tensors().items()}


def calibration_tables() -> dict[str, bytes]:
    import flatbuffers  # comes with onnxruntime

    builder = flatbuffers.Builder(0)
    entries = []
    for key, value in (("input", "2.5"), ("conv1", "0.125")):
        strings = builder.CreateString(key), builder.CreateString(value)
        builder.StartObject(2)
        for slot, s in enumerate(strings):
            builder.PrependUOffsetTRelativeSlot(slot, s, 0)
        entries.append(builder.EndObject())
    builder.StartVector(4, len(entries), 4)
    for e in entries:
        builder.PrependUOffsetTRelative(e)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject())
    return {
        "native": b"TRT-8601-EntropyCalibration2\nx: 3c010a14\na:b: 3f000000\n",
        "cache": b"x 2.5\nconv 1 0.125\n",
        "json": b'{"x": [-1.0, 2], "y": {"CLS": "TensorData", "lowest": {"data": [-3.0]}, "highest": 1.5}}',
        "tensors": b'{"CLS": "TensorsData", "data": {"x": {"lowest": 0, "highest": {"data": 4.0, "CLS": "numpy.array"}}}}',
        "flatbuffers": bytes(builder.Output()),
    }


def graph_texts() -> dict[str, bytes]:
    """The text form of graphs (src/graph/text.h): one of each kind of node and expression."""
    loops = """%0 "x" = input float32[n, 4]
%1 = constant float32[4] {1.0, -2.5, inf, 1e-05}
%2 = loop float32[i0 < n, i1 < 4] order(1, 0): sum{r0 < 4}(%0[i0, r0]) * %1[i1] @"scale"
%3 = view float32[n * 4]: %2
%4 = loop bool[i0 < n]: (t0 = exp(%0[i0, 0])) < 1.0 && not(t0 == 2.0) || isnan(t0)
return %3 "y", %4
"""
    tiles = """%0 = input float32[1, 4, 9, 9]
%1 = constant float32[8, 4, 3, 3] {...}
%2 = conv float32[1, 8, 9, 9]: %0, %1 {pads = [1, 1, 1, 1]}
%3 = input float32[1, 2, s, 16]
%4 = attention float32[1, 2, s, 16] over [b < 1, h < 2, i < s, j < s, d < 16, e < 16] \
{scale = 0.25, q = %3[b, h, i, d], k = %3[b, h, j, d], v = %3[b, h, j, e], end = i + 1, zero_empty}
%5 = matmul float32[i < s, j < 8; k < 16]: %3[0, 0, i, k], %3[0, 1, j, k]
return %2, %4, %5
"""
    control = """%0 = input float32[n]
%1, %2 = routine "nonzero" int64[1, n], int64[2]: %0 {params = [0, n], floats = [0.5]}
bind dim found, data 'odd name': %2
check found <= n "more than there are" assumption
%5 = if found == 0 reads %0 then {
  %3 = loop float32[i < n]: exp(%0[i])
  return %3
} with dim m = n else {
  return %0
} with dim m = n gives float32[m]
%8 = while: %0 {iteration = dim it, carried = 1, limit = 10, carry dim k = n} do {
  %6 = input float32[k]
  %7 = loop float32[i < k + 1]: select(i < k, %6[i], float32(it))
  return %7
} then {carry k = k + 1} gives float32[k]
return %5, %8
"""
    return {"loops": loops.encode(), "tiles": tiles.encode(), "control": control.encode()}


def write(folder: Path, seeds: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (folder / name).write_bytes(data)


def main() -> None:
    models = (nested, functions, sparse, attributes, external)
    write(Path(sys.argv[1]), {make.__name__: make() for make in models} | tensors())
    write(Path(sys.argv[2]), files())
    write(Path(sys.argv[3]), calibration_tables())
    write(Path(sys.argv[4]), graph_texts())


if __name__ == "__main__":
    main()
