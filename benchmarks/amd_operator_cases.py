"""The operators of amd_operators.py, each with a shape that people use: one node, and the bytes that it must move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Element types of the cases: NumPy's and ONNX's.
DTYPES = {"float16": (np.float16, TensorProto.FLOAT16), "float32": (np.float32, TensorProto.FLOAT)}
RNG = np.random.default_rng


@dataclass
class Case:
    """`label` names the operator and what is special, `shape` is that of input x. `bytes`: see bytes_of()."""

    label: str
    model: onnx.ModelProto
    bytes: int

    @property
    def op(self) -> str:
        return self.model.graph.node[0].op_type


def size_of(kind: int) -> int:
    return int(helper.tensor_dtype_to_np_dtype(kind).itemsize)


def bytes_of(model: onnx.ModelProto) -> int:
    """Every input, every initializer that is no parameter (which has less than 64 elements), and every output, once."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    total = 0
    for value in [*inferred.input, *inferred.output]:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if 0 in dims or not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"{value.name} has no known size: give the case its bytes")
        total += int(np.prod(dims)) * size_of(value.type.tensor_type.elem_type)
    for tensor in inferred.initializer:
        if np.prod(tensor.dims) >= 64:
            total += int(np.prod(tensor.dims)) * size_of(tensor.data_type)
    return total


class Cases:
    """Makes the cases of one element type."""

    def __init__(self, dtype: str) -> None:
        self.numpy, self.onnx = DTYPES[dtype]
        self.size = np.dtype(self.numpy).itemsize
        self.rng = RNG(0)
        self.all: list[Case] = []
        for part in (movement, indexing, reductions, norms, ordering, windows, other):
            part(self)

    def weights(self, *shape: int, scale: float = 0.1) -> np.ndarray:
        return (self.rng.standard_normal(shape) * scale).astype(self.numpy)

    def add(
        self,
        label: str,
        shape: Sequence[int],
        /,
        *constants: Any,
        out: Sequence[int | None] = (None,),
        kind: int | None = None,
        more: Sequence[tuple[int | None, Sequence[int]]] = (),
        moves: int = 0,
        opset: int = 23,
        **attributes: Any,
    ) -> None:
        """One node, of the operator that `label` begins with. Inputs: x, those of `more`, then `constants`: arrays, lists of int64, or
        None for an input that is left out. `kind` is x's element type, `out` those of the outputs (None: the case's type). `moves`: the bytes, if they are
        not those of all tensors."""
        names = ["x", *(f"x{k}" for k in range(len(more)))]
        infos = [
            helper.make_tensor_value_info(n, t or self.onnx, list(s))
            for n, (t, s) in zip(names, [(kind, shape), *more], strict=True)
        ]
        tensors = []
        for k, value in enumerate(constants):
            array = value if isinstance(value, np.ndarray) else np.array(value if value is not None else [], np.int64)
            names.append("" if value is None else f"c{k}")
            if value is not None:
                tensors.append(numpy_helper.from_array(array, f"c{k}"))
        outputs = [helper.make_tensor_value_info(f"y{k}", t or self.onnx, None) for k, t in enumerate(out)]
        node = helper.make_node(label.split()[0], names, [o.name for o in outputs], **attributes)
        graph = helper.make_graph([node], "g", infos, outputs, tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)
        self.all.append(Case(f"{label} {'x'.join(map(str, shape))}", model, moves or bytes_of(model)))


def movement(c: Cases) -> None:
    c.add("Transpose 0213", [16, 128, 32, 64], perm=[0, 2, 1, 3])
    c.add("Transpose 10", [2048, 2048], perm=[1, 0])
    c.add("Transpose 0231", [8, 64, 96, 96], perm=[0, 2, 3, 1])
    c.add("Transpose 0312", [8, 512, 512, 3], perm=[0, 3, 1, 2])
    c.add("Transpose 3210", [32, 48, 40, 64], perm=[3, 2, 1, 0])
    c.add("Transpose 5-D 03142", [8, 12, 64, 7, 49], perm=[0, 3, 1, 4, 2])
    c.add("Transpose windows 013245", [8, 8, 7, 8, 7, 96], perm=[0, 1, 3, 2, 4, 5])
    c.add("Concat axis 1", [2048, 1024], more=[(None, [2048, 1024])], axis=1)
    c.add("Concat axis 0", [1000, 2048], more=[(None, [1024, 2048])], axis=0)
    c.add("Concat three odd parts", [2048, 511], more=[(None, [2048, 513]), (None, [2048, 77])], axis=1)
    c.add("Split 2", [2048, 2048], out=[None] * 2, axis=1, num_outputs=2)
    c.add("Split 3", [2048, 1536], out=[None] * 3, axis=1, num_outputs=3)
    c.add("Slice middle", [2048, 2048], [500], [1501], [1], moves=2 * 2048 * 1001 * c.size)
    c.add("Slice step 2", [2048, 4096], [0], [4096], [1], [2])
    c.add("Slice reverse", [2048, 2048], [-1], [-4096], [1], [-1])
    c.add("Pad", [8, 64, 128, 128], [0, 0, 1, 1, 0, 0, 1, 1])
    c.add("Pad reflect", [8, 64, 128, 128], [0, 0, 3, 3, 0, 0, 3, 3], mode="reflect")
    c.add("Tile", [512, 1024], [2, 4])
    c.add("Expand", [2048, 1], [2048, 2048])
    c.add("DepthToSpace", [4, 256, 64, 64], blocksize=2)
    c.add("SpaceToDepth", [4, 64, 128, 128], blocksize=2)
    c.add("Cast to 8 bits", [2048, 2048], out=[TensorProto.INT8], to=TensorProto.INT8)
    c.add("Trilu", [2048, 2048])
    c.add("Where", [2048, 2048], kind=TensorProto.BOOL, more=[(None, [2048, 2048]), (None, [2048, 2048])])


def indexing(c: Cases) -> None:
    rows = c.rng.integers(0, 32000, 4096)
    c.add("Gather rows", [32000, 1024], rows, axis=0, moves=4096 * (8 + 2 * 1024 * c.size))
    c.add("Gather columns", [2048, 2048], c.rng.integers(0, 2048, 2048), axis=1)
    c.add("GatherElements", [1024, 1024], c.rng.integers(0, 1024, (1024, 1024)), axis=1)
    pairs = c.rng.integers(0, 64, (20000, 2))
    c.add("GatherND", [64, 64, 256], pairs, moves=20000 * (16 + 256 * c.size) + 64 * 64 * 256 * c.size)
    c.add("ScatterND rows", [4096, 1024], c.rng.permutation(4096)[:256, None], c.weights(256, 1024))
    c.add("ScatterND add", [4096, 64], c.rng.integers(0, 4096, (20000, 1)), c.weights(20000, 64), reduction="add")
    c.add("ScatterElements", [1024, 1024], c.rng.integers(0, 1024, (512, 1024)), c.weights(512, 1024), axis=0)
    c.add("NonZero", [1024, 1024], out=[TensorProto.INT64], moves=1024 * 1024 * (c.size + 16))
    classes = np.array(1000, np.int64)
    c.add("OneHot", [4096], classes, np.array([0, 1], c.numpy), kind=TensorProto.INT64)
    c.add("Compress", [2048, 1024], c.rng.integers(0, 2, 2048).astype(bool), axis=0, moves=2 * 1024 * 1024 * c.size)


def reductions(c: Cases) -> None:
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
        for axes in ([0], [1], [0, 1]):
            c.add(f"{op} {axes}", [2048, 2048], axes)
    c.add("ReduceSum middle", [16, 512, 512], [1])
    c.add("ReduceSum of four", [1000000, 4], [1])
    c.add("ReduceMax 0, 2 odd", [77, 129, 403], [0, 2])
    c.add("ReduceMax 1, 3 odd", [9, 67, 31, 129], [1, 3])
    for op in ("ArgMax", "ArgMin"):
        c.add(f"{op} rows", [2048, 2048], out=[TensorProto.INT64], axis=-1)
        c.add(f"{op} columns", [2048, 2048], out=[TensorProto.INT64], axis=0)
    c.add("ArgMax classes", [8, 21, 256, 256], out=[TensorProto.INT64], axis=1)
    c.add("ArgMax few columns", [100000, 16], out=[TensorProto.INT64], axis=0)


def norms(c: Cases) -> None:
    c.add("Softmax", [4096, 1000], axis=-1)
    c.add("Softmax of 7", [200000, 7], axis=-1)
    c.add("Softmax long", [32, 131072], axis=-1)
    c.add("Softmax axis 1", [8, 512, 1024], axis=1)
    c.add("Softmax classes", [8, 21, 256, 256], axis=1)
    c.add("LogSoftmax", [2048, 2048], axis=-1)
    c.add("Hardmax", [2048, 1000], axis=-1)
    for rows, width in ((4096, 1024), (40000, 96), (40000, 97), (200, 20000)):
        scale = [c.weights(width) for _ in range(2)]
        c.add(f"LayerNormalization of {width}", [rows, width], *scale, axis=-1)
    c.add("RMSNormalization", [4096, 1024], c.weights(1024), axis=-1)
    groups = [c.weights(320) for _ in range(2)]  # ONNX does not infer the result's shape
    c.add("GroupNormalization 32", [4, 320, 64, 64], *groups, num_groups=32, moves=2 * 4 * 320 * 64 * 64 * c.size)
    c.add("InstanceNormalization", [4, 64, 128, 128], *[c.weights(64) for _ in range(2)])
    c.add("MeanVarianceNormalization", [4, 64, 128, 128], axes=[2, 3])
    c.add("LpNormalization", [4096, 1024], axis=-1, p=2)
    c.add("LRN", [4, 96, 55, 55], size=5)
    moments = [c.weights(64), c.weights(64), c.weights(64), np.ones(64, c.numpy)]
    c.add("BatchNormalization", [8, 64, 112, 112], *moments)


def ordering(c: Cases) -> None:
    index = TensorProto.INT64
    for k, shape in ((50, [64, 32000]), (50, [1, 128256]), (5, [2048, 1000]), (8, [4096, 128]), (1, [256, 32000]), (1000, [1, 100000]), (300, [8, 8400])):  # fmt: skip
        c.add(f"TopK {k}", shape, [k], out=[None, index])
    c.add("TopK 20 smallest, columns", [2000, 256], [20], out=[None, index], axis=0, largest=0)
    c.add("TopK all", [256, 2048], [2048], out=[None, index])
    c.add("Unique", [20000], out=[None], moves=20000 * 2 * c.size)
    c.add("CumSum rows", [2048, 2048], np.array(1, np.int64))
    c.add("CumSum columns", [2048, 2048], np.array(0, np.int64))
    c.add("CumSum one row", [1, 1000000], np.array(1, np.int64))
    c.add("CumSum reverse, middle", [16, 300, 1000], np.array(1, np.int64), reverse=1)
    c.add("CumSum exclusive, odd", [1000, 777], np.array(1, np.int64), exclusive=1)
    c.add("ReverseSequence", [512, 16, 512], c.rng.integers(1, 512, 16))


def windows(c: Cases) -> None:
    for mode in ("nearest", "linear", "cubic"):
        scales = np.array([1, 1, 2, 2], np.float32)
        c.add(f"Resize {mode}", [4, 64, 64, 64], None, scales, mode=mode)
    half = np.array([1, 1, 0.5, 0.5], np.float32)
    c.add("Resize half, antialiased", [4, 64, 128, 128], None, half, mode="linear", antialias=1)
    c.add("MaxPool 3", [8, 64, 112, 112], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    c.add("MaxPool 13", [4, 256, 40, 40], kernel_shape=[13, 13], strides=[1, 1], pads=[6] * 4)
    c.add("AveragePool 2", [8, 64, 112, 112], kernel_shape=[2, 2], strides=[2, 2])
    c.add("GlobalAveragePool", [64, 512, 14, 14])
    c.add("Conv depthwise 3", [8, 128, 56, 56], c.weights(128, 1, 3, 3), group=128, pads=[1] * 4)
    c.add("Conv depthwise 7", [8, 96, 56, 56], c.weights(96, 1, 7, 7), group=96, pads=[3] * 4)
    c.add("Conv depthwise of 1-D", [8, 1024, 1500], c.weights(1024, 1, 31), group=1024, pads=[15] * 2)
    c.add("ConvTranspose 2", [4, 64, 64, 64], c.weights(64, 32, 2, 2), strides=[2, 2])
    c.add("GridSample", [4, 32, 64, 64], c.rng.uniform(-1, 1, (4, 64, 64, 2)).astype(c.numpy))
    c.add("Col2Im", [4, 576, 4096], [64, 64], [3, 3], pads=[1] * 4)


def other(c: Cases) -> None:
    c.add("Mod", [2048, 2048], kind=TensorProto.INT32, more=[(TensorProto.INT32, [2048])], out=[TensorProto.INT32])
    shifts = (c.rng.integers(0, 31, 2048)).astype(np.uint32)
    c.add("BitShift", [2048, 2048], shifts, kind=TensorProto.UINT32, out=[TensorProto.UINT32], direction="RIGHT")
    c.add("Einsum bhwc,hkc->bhwk", [8, 28, 28, 64], c.weights(28, 28, 64), equation="bhwc,hkc->bhwk")
    c.add("Einsum ijk->kij", [128, 257, 65], equation="ijk->kij")
    c.add("DFT 512", [256, 512, 1], moves=256 * 512 * 3 * 4, kind=TensorProto.FLOAT, out=[TensorProto.FLOAT])
    hidden, width = 256, 256
    for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        parts = [c.weights(1, gates * hidden, n) for n in (width, hidden)]
        c.add(f"{op} one step", [1, 16, width], *parts, hidden_size=hidden)
        c.add(f"{op} 16 steps", [16, 16, width], *parts, hidden_size=hidden)
