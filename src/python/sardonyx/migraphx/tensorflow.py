"""Frozen graphs of TensorFlow for parse_tf, converted to ONNX by sardonyx.tensorflow; and a command for the C interface:

python -m sardonyx.migraphx.tensorflow SOURCE TARGET [--nhwc] [--output NAME]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import Error

TO_NHWC, TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]


def _rename(graph: Any, old: str, new: str) -> None:
    """Where nodes read or write the value, in nested graphs too."""
    for node in graph.node:
        for names in (node.input, node.output):
            for k, name in enumerate(names):
                if name == old:
                    names[k] = new
        for a in node.attribute:
            for nested in [a.g, *a.graphs] if a.HasField("g") else a.graphs:
                _rename(nested, old, new)


def channels_first(proto: Any) -> None:
    """Changes inputs and outputs of rank 4 from NHWC to NCHW, as MIGraphX has them with its option nhwc."""
    from onnx import helper, shape_inference

    graph = proto.graph
    inferred = {v.name: v for v in shape_inference.infer_shapes(proto).graph.output}
    for v in graph.output:  # the converter need not declare their ranks
        if not v.type.tensor_type.HasField("shape"):
            v.CopyFrom(inferred[v.name])
    constants = {t.name for t in graph.initializer}
    for values, permutation, order in ((graph.input, TO_NHWC, TO_NCHW), (graph.output, TO_NCHW, TO_NCHW)):
        for v in values:
            dims = v.type.tensor_type.shape.dim
            if v.name in constants or len(dims) != 4:
                continue
            inner = v.name + "#nhwc"
            _rename(graph, v.name, inner)
            if values is graph.input:
                graph.node.insert(0, helper.make_node("Transpose", [v.name], [inner], perm=permutation))
            else:
                graph.node.append(helper.make_node("Transpose", [inner], [v.name], perm=permutation))
            copies = [type(dims[0]).FromString(dims[k].SerializeToString()) for k in order]
            del dims[:]
            dims.extend(copies)


def onnx_of_graph(path: str, is_nhwc: bool, outputs: Sequence[str]) -> bytes:
    """The bytes of an ONNX model. `outputs`: none for what no node reads. Raises errors.Error."""
    from ..tensorflow.convert import onnx_of

    proto = onnx_of(path, outputs=list(outputs) or None)
    if is_nhwc:
        channels_first(proto)
    return proto.SerializeToString()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="sardonyx.migraphx.tensorflow")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--nhwc", action="store_true")
    parser.add_argument("--output", action="append", default=[])
    o = parser.parse_args(arguments)
    try:
        data = onnx_of_graph(o.source, o.nhwc, o.output)
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    with open(o.target, "wb") as file:
        file.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
