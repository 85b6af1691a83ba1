"""Runs a model with ONNX Runtime's CPU provider, for `sardonyx verify`.

argv: MODEL FOLDER ALL THREADS. FOLDER/inputs.json lists the inputs, whose elements are in FOLDER/in_K.bin. Writes
FOLDER/out_K.pb, a TensorProto for each output, and FOLDER/outputs.json with their names (null: no tensor). ALL: "1"
makes each value listed in FOLDER/values.json an output. Needs numpy and
onnxruntime only, so protobuf messages are put together by hand.
"""

import ctypes
import json
import sys


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def message(field, body):
    return varint(field << 3 | 2) + varint(len(body)) + body


def integer(field, value):
    return varint(field << 3) + varint(value)


def more_outputs(names):
    """Appended to a serialized ModelProto, this merges into it: ModelProto.graph (7) . output (12) . name (1)."""
    return message(7, b"".join(message(12, message(1, n.encode())) for n in names))


def tensor(name, data_type, dims, raw):
    """TensorProto: dims (1), data_type (2), name (8), raw_data (9)."""
    return b"".join(integer(1, d) for d in dims) + integer(2, data_type) + message(8, name.encode()) + message(9, raw)


# ONNX's numbers of the types that onnxruntime names, and bits of an element.
TYPES = {
    "float": (1, 32), "uint8": (2, 8), "int8": (3, 8), "uint16": (4, 16), "int16": (5, 16), "int32": (6, 32),
    "int64": (7, 64), "bool": (9, 8), "float16": (10, 16), "double": (11, 64), "uint32": (12, 32), "uint64": (13, 64),
    "complex64": (14, 64), "complex128": (15, 128), "bfloat16": (16, 16), "float8e4m3fn": (17, 8),
    "float8e4m3fnuz": (18, 8), "float8e5m2": (19, 8), "float8e5m2fnuz": (20, 8), "uint4": (21, 4), "int4": (22, 4),
}  # fmt: skip


def elements(value):
    """The type and bytes of an OrtValue, whatever numpy thinks of the type."""
    number, bits = TYPES[value.data_type()[len("tensor(") : -1]]
    count = 1
    for d in value.shape():
        count *= d
    size = (count * bits + 7) // 8
    return number, ctypes.string_at(value.data_ptr(), size) if size else b""


def main():
    model, folder, everything, threads = sys.argv[1:5]
    try:
        import numpy as np
        import onnxruntime as ort
    except ImportError as e:
        print(f"{sys.executable} has no {e.name}", file=sys.stderr)
        return 3
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = int(threads)
    # The model as it stands. Optimised, quantised products become kernels that saturate on CPUs without VNNI.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if everything == "1":
        import os

        with open(folder + "/values.json", encoding="utf-8") as f:
            values = json.load(f)
        with open(model, "rb") as f:
            data = f.read()
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", os.path.dirname(os.path.abspath(model))
        )
        model = data + more_outputs(values)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with open(folder + "/inputs.json", encoding="utf-8") as f:
        inputs = json.load(f)
    feeds = {}
    for k, i in enumerate(inputs):
        array = np.fromfile(f"{folder}/in_{k}.bin", dtype=i["numpy"]).reshape(i["dims"])
        if i["raw"]:
            feeds[i["name"]] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, i["onnx"])
        else:
            feeds[i["name"]] = ort.OrtValue.ortvalue_from_numpy(array)
    names = [o.name for o in session.get_outputs()]
    written = []
    for k, (name, value) in enumerate(zip(names, session.run_with_ort_values(names, feeds), strict=True)):
        known = value.has_value() and value.is_tensor() and value.data_type()[len("tensor(") : -1] in TYPES
        written.append({"name": name, "file": f"out_{k}.pb" if known else None})
        if known:
            number, raw = elements(value)
            with open(f"{folder}/out_{k}.pb", "wb") as f:
                f.write(tensor(name, number, value.shape(), raw))
    with open(folder + "/outputs.json", "w", encoding="utf-8") as f:
        json.dump({"version": ort.__version__, "outputs": written}, f)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as e:
        print(" ".join(str(e).split()), file=sys.stderr)
        sys.exit(4)
