"""TensorFlow models as ONNX models: each becomes one function of tensors, which tf2onnx converts.

TensorFlow is imported only where a model needs it.
"""

from __future__ import annotations

import os
import pathlib
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError
from .converter import converted, first_line, import_tensorflow
from .operators import handlers

#: Sizes of an input: None is a dim that varies.
Shape = Sequence[int | None]
#: The newest operator set that tf2onnx writes.
OPSET = 18
NO_INPUT = "sardonyx/no_input"
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")


def is_frozen_graph(path: str) -> bool:
    """Whether a .pb file is a GraphDef: its first field is a node, where an ONNX model has a number."""
    try:
        with open(path, "rb") as file:
            return file.read(1) in (b"\x0a", b"\x12", b"\x22")
    except OSError:
        return False  # whoever opens it next says what is wrong


def is_tensorflow(model: object) -> bool:
    """Whether `model` is for this module: a Keras model, a TensorFlow function, or the path of a SavedModel folder, a
    Keras file or a frozen graph."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if path.endswith(KERAS_SUFFIXES) or os.path.isfile(os.path.join(path, "saved_model.pb")):
            return True
        return path.endswith(".pb") and is_frozen_graph(path)
    keras, tf = sys.modules.get("keras"), sys.modules.get("tensorflow")
    if keras is not None and isinstance(model, keras.Model):
        return True
    return tf is not None and isinstance(
        model, (tf.types.experimental.PolymorphicFunction, tf.types.experimental.ConcreteFunction)
    )


class Function:
    """A model as one function of tensors in order, with names for what goes in and comes out."""

    def __init__(self, call: Any, specs: Sequence[Any], outputs: Sequence[str], one_batch: bool = False):
        self.call = call  #: takes the tensors, returns a list of tensors
        self.specs = list(specs)  #: tf.TensorSpec of each, with its name
        self.outputs = list(outputs)
        self.one_batch = one_batch  #: the inputs' unknown first dims are one


def plain(name: str) -> str:
    """A tensor's name without the number of its operator's output, if that is 0."""
    return name.removesuffix(":0")


def unique(names: Sequence[str]) -> list[str]:
    """The names in order, with a number after those that occur again."""
    out: list[str] = []
    for name in names:
        k, candidate = 1, name
        while candidate in out:
            candidate, k = f"{name}_{k}", k + 1
        out.append(candidate)
    return out


def with_shapes(specs: Sequence[Any], inputs: Mapping[str, Shape | None] | None, what: str) -> list[Any]:
    """The specs with the caller's shapes for some of them."""
    tf = import_tensorflow()
    out = []
    known = {s.name for s in specs}
    for name in inputs or {}:
        if name not in known:
            raise InvalidArgumentError(f"{what} has no input '{name}'; its inputs are: {', '.join(sorted(known))}")
    for s in specs:
        shape = tf.TensorShape(s.shape)
        given = (inputs or {}).get(s.name)
        if given is not None:
            if not shape.is_compatible_with(tf.TensorShape(list(given))):
                raise InvalidArgumentError(
                    f"input '{s.name}' of {what} has the shape {shape}, which {list(given)} does not fit"
                )
            shape = tf.TensorShape(list(given))
        if s.dtype in (tf.string, tf.resource, tf.variant):
            raise UnsupportedError(
                f"input '{s.name}' of {what} has elements of type {s.dtype.name}, which is not supported: compile the part of the model "
                "after their conversion to numbers, and do that in TensorFlow"
            )
        out.append(tf.TensorSpec(shape, s.dtype, s.name))
    return out


def of_keras(model: Any, example_inputs: Sequence[Any] | None) -> Function:
    """A keras.Model. Subclassed ones without declared inputs need example_inputs."""
    import keras

    tf = import_tensorflow()
    if keras.backend.backend() != "tensorflow":
        raise UnsupportedError(
            f"the Keras model runs on the backend '{keras.backend.backend()}'; save it, and load it with KERAS_BACKEND=tensorflow"
        )
    declared = getattr(model, "inputs", None)
    if example_inputs is not None:
        specs = [tf.TensorSpec(tf.convert_to_tensor(x).shape, tf.convert_to_tensor(x).dtype) for x in example_inputs]
        names = [f"input_{k}" for k in range(len(specs))]
    elif declared:
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in declared]
        names = [plain(getattr(x, "name", "") or f"input_{k}") for k, x in enumerate(declared)]
    else:
        raise InvalidArgumentError(
            "the Keras model declares no inputs: give example_inputs, a tuple of arrays to trace it with"
        )
    specs = [tf.TensorSpec(s.shape, s.dtype, n) for s, n in zip(specs, unique(names), strict=True)]
    structure = getattr(model, "_inputs_struct", None) if example_inputs is None else None

    def call(*tensors: Any) -> list[Any]:
        if structure is not None:
            found = model(tf.nest.pack_sequence_as(structure, list(tensors)), training=False)
        elif len(tensors) == 1:
            found = model(tensors[0], training=False)
        else:
            found = (
                model(*tensors, training=False) if example_inputs is not None else model(list(tensors), training=False)
            )
        call.names = names_of(found)  # type: ignore[attr-defined]
        return tf.nest.flatten(found)

    outputs = getattr(model, "output_names", None) or []
    return Function(call, specs, outputs, one_batch=True)


def names_of(found: Any) -> list[str]:
    """Names of a function's results: the keys of a dict, otherwise output_K."""
    tf = import_tensorflow()
    if isinstance(found, Mapping) and all(not isinstance(v, (Mapping, list, tuple)) for v in found.values()):
        return [str(key) for key in sorted(found)]  # the order of tf.nest
    return [f"output_{k}" for k in range(len(tf.nest.flatten(found)))]


def of_function(function: Any, example_inputs: Sequence[Any] | None) -> Function:
    """A tf.function, traced with example_inputs or its input_signature, or a ConcreteFunction."""
    tf = import_tensorflow()
    if not isinstance(function, tf.types.experimental.ConcreteFunction):
        if example_inputs is not None:
            function = function.get_concrete_function(*(tf.convert_to_tensor(x) for x in example_inputs))
        elif getattr(function, "input_signature", None) is not None:
            function = function.get_concrete_function()
        else:
            raise InvalidArgumentError(
                "the function has no input_signature: give example_inputs, a tuple of arrays to trace it with"
            )
    arguments, keywords = function.structured_input_signature
    flat = [s for s in tf.nest.flatten((arguments, keywords)) if isinstance(s, tf.TensorSpec)]
    names = unique([plain(s.name or f"input_{k}") for k, s in enumerate(flat)])
    specs = [tf.TensorSpec(s.shape, s.dtype, n) for s, n in zip(flat, names, strict=True)]

    def call(*tensors: Any) -> list[Any]:
        rest = iter(tensors)
        packed = tf.nest.map_structure(
            lambda s: next(rest) if isinstance(s, tf.TensorSpec) else s, (arguments, keywords)
        )
        found = function(*packed[0], **packed[1])
        call.names = names_of(found)  # type: ignore[attr-defined]
        return tf.nest.flatten(found)

    return Function(call, specs, [])


def of_saved_model(path: str, signature: str | None) -> Function:
    """A SavedModel's signature: "serving_default", or the only one."""
    tf = import_tensorflow()
    try:
        loaded = tf.saved_model.load(path)
    except Exception as error:
        raise InvalidModelError(f"{path}: TensorFlow cannot load it: {first_line(error)}") from error
    found = dict(loaded.signatures)
    name = signature or ("serving_default" if "serving_default" in found else next(iter(found), None))
    if name not in found:
        have = ", ".join(sorted(found)) or "none"
        raise InvalidArgumentError(f"{path}: there is no signature '{name or 'serving_default'}'; it has: {have}")
    function = of_function(found[name], None)
    function.keep = loaded  # type: ignore[attr-defined]  # its variables live as long as it does
    return function


class Frozen:
    """A GraphDef whose weights are constants, with the tensors where it is cut."""

    def __init__(self, path: str, inputs: Mapping[str, Shape | None] | None, outputs: Sequence[str] | None):
        tf = import_tensorflow()
        self.path = path
        self.definition = tf.compat.v1.GraphDef()
        try:
            self.definition.ParseFromString(pathlib.Path(path).read_bytes())
        except OSError as error:
            raise FileError(f"{path}: {error.strerror or error}") from error
        except Exception as error:
            raise InvalidModelError(f"{path}: it is no TensorFlow graph: {first_line(error)}") from error
        starts = [n.name for n in self.definition.node if n.op == "Placeholder"]
        if not starts and not inputs:  # tf2onnx converts no graph without inputs
            self.definition.node.add(name=NO_INPUT, op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
            starts = [NO_INPUT]
        self.graph = tf.Graph()
        try:
            with self.graph.as_default():
                tf.import_graph_def(self.definition, name="")
        except Exception as error:
            raise InvalidModelError(f"{path}: TensorFlow cannot read the graph: {first_line(error)}") from error
        self.ends = self.tensors(self.sinks() if outputs is None else outputs)
        if not self.ends:
            raise InvalidModelError(f"{path}: the graph computes nothing")
        chosen = {self.tensor(name).name: name for name in inputs or {}}
        names = {self.tensor(name).name: name for name in starts} | chosen
        specs = [self.tensor(t) for t in names]
        self.specs = with_shapes([tf.TensorSpec(t.shape, t.dtype, names[t.name]) for t in specs], inputs, path)
        self.starts = list(names)

    def sinks(self) -> list[str]:
        """What no other node reads; in a graph of constants or inputs only, these."""
        read = {i.lstrip("^").split(":")[0] for n in self.definition.node for i in n.input}
        free = [n for n in self.definition.node if n.name not in read and n.op not in ("NoOp", "Assert")]
        free = [n for n in free if n.name != NO_INPUT]
        return [n.name for n in free if n.op not in ("Placeholder", "Const")] or [n.name for n in free]

    def tensor(self, name: str) -> Any:
        try:
            return self.graph.get_tensor_by_name(name if ":" in name else name + ":0")
        except (KeyError, ValueError) as error:
            raise InvalidArgumentError(f"{self.path}: the graph has no tensor '{name}'") from error

    def tensors(self, outputs: Sequence[str]) -> list[Any]:
        """Of a node, all that it computes."""
        found: list[Any] = []
        for name in outputs:
            if ":" in name:
                found.append(self.tensor(name))
                continue
            try:
                operation = self.graph.get_operation_by_name(name)
                # The further outputs of a normalisation are for training.
                found += operation.outputs[:1] if operation.type.startswith("FusedBatchNorm") else operation.outputs
            except (KeyError, ValueError) as error:
                raise InvalidArgumentError(f"{self.path}: the graph has no node '{name}'") from error
        return found

    def convert(self) -> Any:
        from tf2onnx import convert

        shapes = {n: s.shape.as_list() for n, s in zip(self.starts, self.specs) if s.shape.rank is not None}
        proto, _ = convert.from_graph_def(
            self.definition, input_names=self.starts, output_names=[t.name for t in self.ends], opset=OPSET, shape_override=shapes,
            custom_op_handlers=handlers(),
        )  # fmt: skip
        names = dict(zip(self.starts, (s.name for s in self.specs))) | {t.name: plain(t.name) for t in self.ends}
        rename(proto, names, one_batch=False)
        unused = [k for k, i in enumerate(proto.graph.input) if i.name == NO_INPUT]
        for k in unused:
            del proto.graph.input[k]
        return proto


def allow_inlining(definition: Any) -> None:
    """Lets tf2onnx's optimiser inline functions that are marked for XLA, as Keras does with convolutions in groups."""
    library = definition.library.function
    for owner in [*definition.node, *library, *(n for f in library for n in f.node_def)]:
        for name in ("_XlaMustCompile", "_noinline"):
            if name in owner.attr:
                del owner.attr[name]


def convert_function(function: Function, inputs: Mapping[str, Shape | None] | None, what: str) -> Any:
    """The onnx.ModelProto of a function."""
    tf = import_tensorflow()
    from tf2onnx import convert, tf_loader

    specs = with_shapes(function.specs, inputs, what)
    safe = [tf.TensorSpec(s.shape, s.dtype, f"i{k}") for k, s in enumerate(specs)]

    @tf.function(input_signature=safe, autograph=False)  # type: ignore[untyped-decorator]
    def whole(*tensors: Any) -> dict[str, Any]:
        found = function.call(*tensors)
        return {f"o{k}": tf.identity(x) for k, x in enumerate(found)}

    concrete = whole.get_concrete_function()
    starts = [t.name for t in concrete.inputs[: len(specs)]]  # after these come weights and constants of the model
    ends = [t.name for _, t in sorted(concrete.structured_outputs.items(), key=lambda item: int(item[0][1:]))]
    definition = tf_loader.from_function(concrete, starts, ends)
    allow_inlining(definition)
    proto, _ = convert.from_graph_def(
        definition, input_names=starts, output_names=ends, opset=OPSET, custom_op_handlers=handlers()
    )
    outputs = unique([str(n) for n in function.outputs or getattr(function.call, "names", [])])
    rename(proto, dict(zip(starts, (s.name for s in specs))) | dict(zip(ends, outputs)), function.one_batch)
    return proto


def keep_pads(nodes: Iterable[Any]) -> None:
    """Results of transposed convolutions that are longer than their windows reach (an output_padding of Keras) get negative
    pads, which ONNX does not have, from tf2onnx, half of them at the begin: these are elements at the end."""
    for node in nodes:
        named = {a.name: a for a in node.attribute}
        if node.op_type != "ConvTranspose" or "pads" not in named:
            continue
        pads = named["pads"].ints
        half = len(pads) // 2
        beyond = [max(0, -(a + b)) for a, b in zip(pads[:half], pads[half:], strict=True)]
        if not any(beyond):
            continue
        if "output_padding" not in named:
            added = node.attribute.add(name="output_padding", type=7)  # AttributeProto.INTS
            added.ints[:] = [0] * half
            named["output_padding"] = added
        more = named["output_padding"].ints
        for k, n in enumerate(beyond):
            if n:
                pads[k] = pads[half + k] = 0
                more[k] += n


def rename(proto: Any, new: Mapping[str, str], one_batch: bool) -> None:
    """Gives inputs and outputs the names of their author. `one_batch`: the inputs' first dims are one, where they vary."""
    taken = set(new.values())
    graph = proto.graph

    def renamed(name: str) -> str:
        if name in new or name + ":0" in new:
            return new.get(name, new.get(name + ":0", ""))
        return name + "_" if name in taken else name

    domains = {o.domain for o in proto.opset_import}

    def visit(g: Any) -> None:
        keep_pads(g.node)
        for node in g.node:
            node.input[:] = [renamed(n) for n in node.input]
            node.output[:] = [renamed(n) for n in node.output]
            if node.domain == "com.microsoft" and node.domain not in domains:  # tf2onnx does not always import it
                domains.add(node.domain)
                proto.opset_import.add(domain=node.domain, version=1)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)
        for value in [*g.input, *g.output, *g.initializer, *g.value_info]:
            value.name = renamed(value.name)

    visit(graph)
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                if one_batch and axis == 0:
                    dim.dim_param = "batch"
                else:  # the library names it after the input and the dim
                    dim.Clear()
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")  # follows from the inputs; tf2onnx's names of dims mean nothing
    del graph.value_info[:]


def check_file(path: str) -> None:
    """Raises errors that name the file, where Keras's do not."""
    if not os.path.isfile(path):
        raise FileError(f"{path}: there is no such file")
    if path.endswith(".keras") and not zipfile.is_zipfile(path):
        raise InvalidModelError(f"{path}: it is no Keras file (a zip archive), or truncated")


def onnx_of(
    model: Any,
    *,
    example_inputs: Sequence[Any] | None = None,
    inputs: Mapping[str, Shape | None] | None = None,
    outputs: Sequence[str] | None = None,
    signature: str | None = None,
) -> Any:
    """A TensorFlow model as an onnx.ModelProto.

    model: a keras.Model, a tf.function or ConcreteFunction, or the path of a SavedModel folder, a .keras or .h5 file, or a frozen graph.
    example_inputs: arrays to trace a function or a subclassed Keras model with.
    inputs: shapes of inputs by name, None for sizes that vary; in a frozen graph also tensors at which it is cut.
    outputs: of a frozen graph: names of nodes, or of tensors as "node:1". None: what no other node reads.
    signature: of a SavedModel; None: "serving_default", or the only one.

    Raises errors.Error: UnsupportedError naming nodes that tf2onnx does not convert, InvalidModelError, InvalidArgumentError, FileError.
    """
    import_tensorflow()
    what = "the model"
    is_path = isinstance(model, (str, os.PathLike))
    path = os.fspath(model) if is_path else ""
    frozen = is_path and not os.path.isdir(path) and not path.endswith(KERAS_SUFFIXES)
    if outputs is not None and not frozen:
        raise InvalidArgumentError("outputs are chosen in frozen graphs only")
    if signature is not None and not (is_path and os.path.isdir(path)):
        raise InvalidArgumentError("only SavedModel folders have signatures")
    if is_path:
        what = path
        if example_inputs is not None:
            raise InvalidArgumentError("example_inputs are for models in memory; a file declares its inputs")
    if frozen:
        return converted(lambda: Frozen(path, inputs, outputs).convert(), what)
    if is_path and os.path.isdir(path):
        function = of_saved_model(path, signature)
    else:
        function = of_object_or_keras_file(model, path, example_inputs)
    return converted(lambda: convert_function(function, inputs, what), what)


def of_object_or_keras_file(model: Any, path: str, example_inputs: Sequence[Any] | None) -> Function:
    import keras

    if path:
        check_file(path)
        try:
            model = keras.saving.load_model(path, compile=False)  # in safe mode: code in the file is refused
        except Exception as error:
            raise InvalidModelError(f"{path}: Keras cannot load it: {first_line(error)}") from error
    if isinstance(model, keras.Model):
        return of_keras(model, example_inputs)
    return of_function(model, example_inputs)
