"""An ONNX model to be changed: weights by name, the readers of a value, new nodes and weights, saving."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError

Array = np.ndarray[Any, Any]

_FOLDED = ("Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity")  # see OnnxModel.fold_weights()
_INSIDE = 1 << 30  # bytes of weights that go into the .onnx file itself; protobuf's limit is 2 GB


def needed_onnx() -> Any:
    try:
        import onnx
        import onnx.external_data_helper
    except ImportError as error:
        raise UnsupportedError(
            f"quantising needs the Python package 'onnx' ({error}): pip install 'sardonyx[quantize]'"
        ) from None
    return onnx


class OnnxModel:
    """A model to change. Values keep their names."""

    def __init__(self, source: Any):
        """source: a path, bytes or an onnx.ModelProto, which is copied. Raises errors.Error."""
        onnx = needed_onnx()
        self.folder = ""
        try:
            if isinstance(source, (str, os.PathLike)):
                self.folder = os.path.dirname(os.path.abspath(os.fspath(source)))
                self.proto = onnx.load(os.fspath(source), load_external_data=False)
            elif isinstance(source, (bytes, bytearray, memoryview)):
                self.proto = onnx.ModelProto.FromString(bytes(source))
            elif isinstance(source, onnx.ModelProto):
                self.proto = onnx.ModelProto()
                self.proto.CopyFrom(source)
            else:
                raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
        except OSError as error:
            raise FileError(f"'{source}' could not be read: {error.strerror}") from None
        except TypeError:
            raise
        except Exception as error:  # protobuf's
            raise InvalidModelError(f"the model can't be read: {error}") from None
        if self.proto.functions:
            self._expand_functions()
        self.index()

    def _expand_functions(self) -> None:
        """Puts the nodes of the model's functions where they are called, so that they can be changed one by one."""
        onnx = needed_onnx()
        from onnx import inliner, shape_inference

        own = {o.domain: o.version for o in self.proto.opset_import}
        other = any(own.get(o.domain, o.version) != o.version for f in self.proto.functions for o in f.opset_import)
        try:
            proto = self.proto
            if other:  # nodes are converted, which needs the types of all values
                proto = shape_inference.infer_shapes(proto)
                for t in proto.graph.initializer:
                    proto.graph.value_info.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
            self.proto = inliner.inline_local_functions(proto, convert_version=other)
        except Exception as error:  # onnx has none of its own
            raise UnsupportedError(
                f"the model's functions can't be expanded: {' '.join(str(error).split())[:300]}; export it without functions"
            ) from None

    def index(self) -> None:
        """After nodes or weights were removed."""
        g = self.proto.graph
        self.weights = {t.name: t for t in g.initializer}
        self.producers: dict[str, Any] = {}
        self.readers: dict[str, list[Any]] = {}
        for node in g.node:
            for name in node.output:
                self.producers[name] = node
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
            if node.op_type == "Constant" and not node.domain and node.output[0] not in self.weights:
                for a in node.attribute:
                    if a.name == "value":
                        self.weights[node.output[0]] = a.t
            # Some exporters put an Identity after each weight.
            if node.op_type == "Identity" and not node.domain and node.input[0] in self.weights:
                self.weights[node.output[0]] = self.weights[node.input[0]]
        self.outputs = {o.name for o in g.output}
        self.captured = set(_captured(g))
        self._names = set(self.weights) | set(self.producers) | {i.name for i in g.input} | {n.name for n in g.node}

    def opset(self) -> int:
        return next((int(o.version) for o in self.proto.opset_import if o.domain in ("", "ai.onnx")), 0)

    def require_opset(self, version: int) -> None:
        """Converts the model to an operator set, if its own is older. Raises UnsupportedError if that can't be done."""
        if self.opset() >= version:
            return
        onnx = needed_onnx()
        before = self.opset()
        self.load_external()
        try:
            from onnx import version_converter

            self.proto = version_converter.convert_version(self.proto, version)
        except Exception as error:  # onnx has none of its own
            raise UnsupportedError(
                f"the model has operator set {before}, this needs {version}, and onnx.version_converter can't convert it: "
                f"{' '.join(str(error).split())[:300]}; export it again with a newer operator set"
            ) from None
        if not self.proto.ir_version or self.proto.ir_version < 8:
            self.proto.ir_version = max(8, onnx.helper.VERSION_TABLE[0][1])
        self.index()

    def use_domain(self, domain: str, version: int) -> None:
        if not any(o.domain == domain for o in self.proto.opset_import):
            self.proto.opset_import.append(needed_onnx().helper.make_opsetid(domain, version))

    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        name, k = base, 1
        while name in self._names:
            name, k = f"{base}_{k}", k + 1
        self._names.add(name)
        return name

    def array(self, name: str) -> Array | None:
        """A weight's elements; None if the name is no weight."""
        tensor = self.weights.get(name)
        if tensor is None:
            return None
        onnx = needed_onnx()
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                copy = onnx.TensorProto()
                copy.CopyFrom(tensor)
                onnx.external_data_helper.load_external_data_for_tensor(copy, self.folder)
                tensor = copy
            return np.asarray(onnx.numpy_helper.to_array(tensor))
        except Exception as error:
            raise InvalidModelError(f"the weight '{name}' can't be read: {error}") from None

    def fold_weights(self) -> None:
        """Computes what some exporters leave between weights and the MatMul, Gemm and Conv nodes that read them: transposes,
        casts and reshapes. Not of weights that other nodes read too, as tied embeddings, which would be there twice."""
        onnx = needed_onnx()
        from onnx.reference import ReferenceEvaluator

        def folded(name: str) -> bool:
            node = self.producers.get(name)
            if node is None or name in self.weights or node.domain or node.op_type not in _FOLDED:
                return name in self.weights
            data = node.input[0]
            if not self._is_own(data) or not all(folded(n) for n in node.input if n) or not self.is_real_weight(data):
                return False
            inputs = {n: self.array(n) for n in node.input if n}
            try:
                (value,) = ReferenceEvaluator(node, opsets={"": self.opset()}).run(None, inputs)
            except Exception:  # an invalid node, which compiling the model tells
                return False
            self.proto.graph.node.remove(node)
            self.proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
            self.weights[name] = self.proto.graph.initializer[-1]
            del self.producers[name]
            return True

        for node in list(self.proto.graph.node):
            if node.op_type in ("MatMul", "Gemm", "Conv") and not node.domain and len(node.input) > 1:
                folded(node.input[1])
        self.drop_unused()

    def _is_own(self, name: str) -> bool:
        """Whether one node reads a value, and what it is the Identity of."""
        if name in self.outputs or name in self.captured or len(self.readers.get(name, [])) != 1:
            return False
        producer = self.producers.get(name)
        return producer is None or producer.op_type != "Identity" or self._is_own(producer.input[0])

    def is_real_weight(self, name: str) -> bool:
        """Whether it has floats of 16 or 32 bits."""
        tensor, types = self.weights.get(name), needed_onnx().TensorProto
        return tensor is not None and tensor.data_type in (types.FLOAT, types.FLOAT16, types.BFLOAT16)

    def is_float_weight(self, name: str, *, half: bool = False) -> bool:
        """Whether it is float32; half: or float16."""
        tensor, types = self.weights.get(name), needed_onnx().TensorProto
        return tensor is not None and (tensor.data_type == types.FLOAT or (half and tensor.data_type == types.FLOAT16))

    def weight_bytes(self) -> int:
        """Bytes of all weights of the main graph."""
        return sum(_bits(t) * int(np.prod(t.dims, dtype=np.int64)) // 8 for t in self.proto.graph.initializer)

    def dims(self, name: str) -> list[int]:
        return list(self.weights[name].dims)

    def add_weight(self, name: str, values: Array) -> str:
        onnx = needed_onnx()
        name = self.fresh(name)
        tensor = onnx.numpy_helper.from_array(values, name)
        self.proto.graph.initializer.append(tensor)
        self.weights[name] = self.proto.graph.initializer[-1]
        return name

    def replace_weight(self, node: Any, index: int, values: Array) -> None:
        """Gives a node other values for a weight, which other nodes go on reading as it was."""
        node.input[index] = self.add_weight(node.input[index] + "/changed", values)

    def insert(self, nodes: Iterable[Any], before: Any | None = None) -> None:
        """Inserts nodes before another; None: at the start."""
        g = self.proto.graph
        at = 0 if before is None else next(k for k, n in enumerate(g.node) if n is before)
        for k, node in enumerate(nodes):
            g.node.insert(at + k, node)

    def drop_unused(self) -> None:
        """Removes weights that nothing reads, and constants likewise."""
        g = self.proto.graph
        readers: dict[str, int] = {}
        for name in (*(n for node in g.node for n in node.input), *self.outputs, *_captured(g)):
            readers[name] = readers.get(name, 0) + 1
        for k in reversed(range(len(g.node))):
            node = g.node[k]
            if node.op_type in ("Constant", "Identity") and not node.domain and not readers.get(node.output[0]):
                for name in node.input:
                    readers[name] -= 1
                del g.node[k]
        used = {name for name, count in readers.items() if count}
        for k in reversed(range(len(g.initializer))):
            if g.initializer[k].name not in used:
                del g.initializer[k]
        names = {t.name for t in g.initializer}
        inputs = {i.name for i in g.input}
        for k in reversed(range(len(g.input))):  # of old files, which list weights as inputs
            if g.input[k].name not in used and g.input[k].name in inputs - names and g.input[k].name in self.weights:
                del g.input[k]
        self.index()

    def load_external(self) -> None:
        """Reads the weights of other files."""
        onnx = needed_onnx()
        try:
            onnx.external_data_helper.load_external_data_for_model(self.proto, self.folder)
        except Exception as error:
            raise InvalidModelError(f"the model's external weights can't be read: {error}") from None

    def with_outputs(self, names: Iterable[str]) -> bytes:
        """The model's file with these values as outputs, too."""
        onnx = needed_onnx()
        more = onnx.ModelProto()
        for name in names:
            if name not in self.outputs:
                more.graph.output.append(onnx.ValueInfoProto(name=name))
        try:
            # Serialized messages that follow each other merge.
            return bytes(self.proto.SerializeToString()) + bytes(more.SerializeToString())
        except Exception as error:
            raise UnsupportedError(
                f"the model can't be kept in memory as one file ({error}); store its weights as external data"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file; large weights go to PATH.data. Raises FileError."""
        onnx = needed_onnx()
        file = os.fspath(path)
        if os.path.isdir(file):
            raise InvalidArgumentError(f"'{file}' is a folder; give the name of an .onnx file")
        self.load_external()
        size = sum(len(t.raw_data) for t in self.proto.graph.initializer)
        data = os.path.basename(file) + ".data"
        try:
            if size > _INSIDE:
                if os.path.exists(file + ".data"):
                    os.remove(file + ".data")  # onnx would append to it
                onnx.save_model(self.proto, file, save_as_external_data=True, location=data, size_threshold=1024)
            else:
                onnx.save_model(self.proto, file)
        except OSError as error:
            raise FileError(f"'{file}' could not be written: {error.strerror}") from None


def _bits(tensor: Any) -> int:
    name = needed_onnx().TensorProto.DataType.Name(tensor.data_type)
    digits = "".join(c for c in name.split("E")[0] if c.isdigit())
    return int(digits) if digits else {"FLOAT": 32, "DOUBLE": 64, "BOOL": 8}.get(name, 8)


def nested_graphs(graph: Any) -> Iterable[Any]:
    """The graphs of If, Loop and Scan nodes, and those inside them."""
    for node in graph.node:
        for a in node.attribute:
            for nested in (*((a.g,) if a.HasField("g") else ()), *a.graphs):
                yield nested
                yield from nested_graphs(nested)


def _captured(graph: Any) -> Iterable[str]:
    """Names that nested graphs read, theirs included."""
    for nested in nested_graphs(graph):
        for inner in nested.node:
            yield from inner.input
        yield from (o.name for o in nested.output)
