"""The messages of the Open Inference Protocol v2 over gRPC, made from a table of their fields.

They are in a pool of their own, so that other packages with the same messages (Triton's clients) can be in the process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = "GRPCInferenceService"

# Message: fields by number; "*" before a type: repeated; "{}": a map from strings; "|": one of several.
_TENSOR = "name string, datatype string, shape *int64, parameters {}InferParameter, contents InferTensorContents"
_TABLE: dict[str, str] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready bool",
    "ModelReadyRequest": "name string, version string",
    "ModelReadyResponse": "ready bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name string, version string, extensions *string",
    "ModelMetadataRequest": "name string, version string",
    "ModelMetadataResponse": "name string, versions *string, platform string, inputs *.TensorMetadata, outputs *.TensorMetadata",
    "ModelMetadataResponse.TensorMetadata": "name string, datatype string, shape *int64",
    "InferParameter": "bool_param |bool, int64_param |int64, string_param |string, double_param |double, uint64_param |uint64",
    "InferTensorContents": "bool_contents *bool, int_contents *int32, int64_contents *int64, uint_contents *uint32, "
    "uint64_contents *uint64, fp32_contents *float, fp64_contents *double, bytes_contents *bytes",
    "ModelInferRequest": "model_name string, model_version string, id string, parameters {}InferParameter, "
    "inputs *.InferInputTensor, outputs *.InferRequestedOutputTensor, raw_input_contents *bytes",
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": "name string, parameters {}InferParameter",
    "ModelInferResponse": "model_name string, model_version string, id string, parameters {}InferParameter, "
    "outputs *.InferOutputTensor, raw_output_contents *bytes",
    "ModelInferResponse.InferOutputTensor": _TENSOR,
}


def _fill(message: Any, path: str, fields: str) -> None:
    """Adds the fields of a line of the table to a DescriptorProto."""
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, text in enumerate(filter(None, fields.split(", ")), 1):
        name, kind = text.split(" ")
        field = message.field.add(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        if kind.startswith("|"):
            if not message.oneof_decl:
                message.oneof_decl.add(name="parameter_choice")
            field.oneof_index, kind = 0, kind[1:]
        if kind.startswith("{}"):
            entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
            value = entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_MESSAGE)
            value.type_name = f".{PACKAGE}.{kind[2:]}"
            kind = f"*.{entry.name}"
        if kind.startswith("*"):
            field.label, kind = kinds.LABEL_REPEATED, kind[1:]
        if kind.startswith("."):  # inside this message
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{path}{kind}"
        elif kind in _TABLE:
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
        else:
            field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="sardonyx_inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for path, fields in _TABLE.items():
        outer, _, name = path.rpartition(".")
        made[path] = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        _fill(made[path], path, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if not hasattr(pool, "AddSerializedFile") else pool.AddSerializedFile(file.SerializeToString())
    return {p: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{p}")) for p in _TABLE}


#: Classes of messages by name; nested ones as "ModelInferRequest.InferInputTensor".
MESSAGES = _classes()
