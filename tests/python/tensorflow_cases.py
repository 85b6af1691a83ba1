"""Small TensorFlow functions, which together use the operators that tf2onnx converts. Written for this repository.

Each case is a function and its inputs: an array, or a shape of float32 values, of which None is a size that varies (3 is given).
REFUSED are refused by name. Not here: operators of strings, tables, queues, sparse and ragged tensors, which are not numeric, and random ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

raw, nn, image, signal = tf.raw_ops, tf.nn, tf.image, tf.signal


#: Why cases are refused.
REFUSED = {"scan": "scan/while"}


class Case(NamedTuple):
    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]


F32, I32, I64 = np.float32, np.int32, np.int64
#: Values of one sign, between -1 and 1, and above 1, where functions are defined there alone.
POSITIVE = np.linspace(0.1, 3, 12, dtype=F32).reshape(3, 4)
UNIT = np.linspace(-0.95, 0.95, 12, dtype=F32).reshape(3, 4)
ABOVE_ONE = POSITIVE + 1
WHOLE = np.array([[7, -7, 5, 0], [3, -3, 2, 9]], I32)
DIVISOR = np.array([[2, 2, -3, 4], [-2, -2, 5, 7]], I32)
BITS = np.array([1, 6, 255, 1024], I32)
TRUTH = np.array([[True, False, True], [False, False, True]])
SPECIAL = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], F32)
BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3]], F32)
SCORES = np.array([0.9, 0.75, 0.6, 0.95], F32)
IMAGE, VOLUME = (None, 8, 8, 3), (1, 4, 6, 6, 2)


def weights(*shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(7).standard_normal(shape).astype(F32))


UNARY = {
    "Abs": tf.abs, "Ceil": tf.math.ceil, "Cos": tf.cos, "Cosh": tf.cosh, "Elu": nn.elu, "Erf": tf.math.erf, "Exp": tf.exp,
    "Floor": tf.floor, "LeakyRelu": lambda x: nn.leaky_relu(x, 0.3), "LogSoftmax": nn.log_softmax, "Neg": tf.negative,
    "OnesLike": tf.ones_like, "Relu": nn.relu, "Relu6": lambda x: nn.relu6(x * 6), "Rint": tf.math.rint,
    "Round": tf.round, "Selu": nn.selu, "Sigmoid": tf.sigmoid, "Sign": tf.sign, "Sin": tf.sin, "Sinh": tf.sinh,
    "Softmax": nn.softmax, "Softplus": nn.softplus, "Softsign": nn.softsign, "Square": tf.square, "Tan": tf.tan, "Tanh": tf.tanh,
    "ZerosLike": tf.zeros_like, "Atan": tf.atan, "Asinh": tf.asinh, "Identity": tf.identity, "StopGradient": tf.stop_gradient,
    "gelu": lambda x: nn.gelu(x), "gelu_tanh": lambda x: nn.gelu(x, approximate=True), "swish": nn.swish, "Expm1": tf.math.expm1,
    "HardSwish": lambda x: x * nn.relu6(x + 3) / 6, "L2Normalization": lambda x: tf.math.l2_normalize(x, -1),
    "softmax_axis": lambda x: nn.softmax(x, axis=0), "Size": lambda x: tf.cast(tf.size(x), tf.float32) + x, "Shape": lambda x: tf.shape(x),
    "Rank": lambda x: tf.rank(x), "CheckNumerics": lambda x: tf.debugging.check_numerics(x, "x"), "EnsureShape": lambda x: tf.ensure_shape(x, (None, 4)),
    "ClipByValue": lambda x: tf.clip_by_value(x, -0.5, 0.5), "IdentityN": lambda x: tf.identity_n([x, x + 1]),
    "Invert": lambda x: tf.bitwise.invert(tf.cast(x * 9, tf.int32)), "Dropout": lambda x: nn.dropout(x, 0.0),
    "Prelu": lambda x: tf.maximum(x, 0.0) + weights(4) * tf.minimum(x, 0.0), "logsumexp": lambda x: tf.reduce_logsumexp(x, -1),
    "FakeQuantWithMinMaxArgs": lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1.0, 1.0),
}  # fmt: skip
BINARY = {
    "Add": tf.add, "Sub": tf.subtract, "Mul": tf.multiply, "Maximum": tf.maximum, "Minimum": tf.minimum, "SquaredDifference": tf.math.squared_difference,
    "Atan2": tf.atan2, "RealDiv": tf.realdiv, "FloorDiv": tf.math.floordiv, "FloorMod": tf.math.floormod,
    "Equal": lambda x, y: tf.equal(tf.round(x), tf.round(y)), "NotEqual": lambda x, y: tf.not_equal(tf.round(x), tf.round(y)),
    "Greater": tf.greater, "GreaterEqual": tf.greater_equal, "Less": tf.less, "LessEqual": tf.less_equal,
    "AddN": lambda x, y: tf.add_n([x, y, x]), "DivNoNan": lambda x, y: tf.math.divide_no_nan(x, tf.round(y)),
    "SelectV2": lambda x, y: tf.where(x > y, x, y * 2), "Select": lambda x, y: raw.Select(condition=x > y, x=x, y=y),
    "Concat": lambda x, y: tf.concat([x, y], 1), "Pack": lambda x, y: tf.stack([x, y], 1),
    "SoftmaxCrossEntropyWithLogits": lambda x, y: nn.softmax_cross_entropy_with_logits(nn.softmax(x), y),
    "BatchMatMulV2": lambda x, y: tf.matmul(x[:, None], y[:, :, None]), "Einsum": lambda x, y: tf.einsum("ij,ik->jk", x, y),
    "matmul_transposed": lambda x, y: tf.matmul(x, y, transpose_b=True), "tensordot": lambda x, y: tf.tensordot(x, y, [[0], [0]]),
    "sigmoid_cross_entropy": lambda x, y: nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(x), y),
}  # fmt: skip
REDUCTIONS = {
    "Sum": tf.reduce_sum,
    "Mean": tf.reduce_mean,
    "Max": tf.reduce_max,
    "Min": tf.reduce_min,
    "Prod": tf.reduce_prod,
}


def cases() -> list[Case]:
    found = [Case(name, f, ((None, 4),)) for name, f in UNARY.items()]
    found += [Case(name, f, ((None, 4), (None, 4))) for name, f in BINARY.items()]
    for name, f in REDUCTIONS.items():
        found += reductions(name, f)
    return found + domains() + integers() + shapes() + indices() + images() + sequences()


def reductions(name: str, f: Callable[..., Any]) -> list[Case]:
    return [
        Case(name, lambda x: f(x, 1), ((None, 4, 5),)),
        Case(f"{name}_all", lambda x: f(x), ((None, 4),)),
        Case(f"{name}_kept", lambda x: f(x, [0, 2], keepdims=True), ((None, 4, 5),)),
    ]


def domains() -> list[Case]:
    return [
        Case("Acos", tf.acos, (UNIT,)),
        Case("Asin", tf.asin, (UNIT,)),
        Case("Atanh", tf.atanh, (UNIT,)),
        Case("Acosh", tf.acosh, (ABOVE_ONE,)),
        Case("Log", tf.math.log, (POSITIVE,)),
        Case("Log1p", tf.math.log1p, (POSITIVE,)),
        Case("Sqrt", tf.sqrt, (POSITIVE,)),
        Case("Rsqrt", tf.math.rsqrt, (POSITIVE,)),
        Case("Reciprocal", tf.math.reciprocal, (POSITIVE,)),
        Case("Pow", tf.pow, (POSITIVE, POSITIVE)),
        Case("IsNan", tf.math.is_nan, (SPECIAL,)),
        Case("IsInf", tf.math.is_inf, (SPECIAL,)),
        Case("IsFinite", tf.math.is_finite, (SPECIAL,)),
    ]


def integers() -> list[Case]:
    return [
        Case("FloorDiv_int", tf.math.floordiv, (WHOLE, DIVISOR)),
        Case("FloorMod_int", tf.math.floormod, (WHOLE, DIVISOR)),
        Case("TruncateDiv", tf.truncatediv, (WHOLE, DIVISOR)),
        Case("Div_int", lambda x, y: x / y, (WHOLE, DIVISOR)),
        Case("Cast", lambda x: [tf.cast(x, t) for t in (tf.float32, tf.int64, tf.bool, tf.float16, tf.uint8)], (np.abs(WHOLE),)),
        Case("BitwiseAnd", lambda x: tf.bitwise.bitwise_and(x, 7), (BITS,)),
        Case("BitwiseOr", lambda x: tf.bitwise.bitwise_or(x, 7), (BITS,)),
        Case("BitwiseXor", lambda x: tf.bitwise.bitwise_xor(x, 7), (BITS,)),
        Case("LeftShift", lambda x: tf.bitwise.left_shift(x, 2), (BITS,)),
        Case("RightShift", lambda x: tf.bitwise.right_shift(x, 2), (BITS,)),
        Case("LogicalAnd", lambda x: tf.logical_and(x, ~x[:, ::-1]), (TRUTH,)),
        Case("LogicalOr", lambda x: tf.logical_or(x, x[:, ::-1]), (TRUTH,)),
        Case("LogicalNot", tf.logical_not, (TRUTH,)),
        Case("All", lambda x: tf.reduce_all(x, 1), (TRUTH,)),
        Case("Any", lambda x: tf.reduce_any(x, 0), (TRUTH,)),
        Case("Where", tf.where, (TRUTH,)),
        Case("ArgMax", lambda x: tf.argmax(x, 1), ((None, 6),)),
        Case("ArgMin", lambda x: tf.argmin(x, 0, output_type=tf.int32), ((None, 6),)),
        Case("Cumsum", lambda x: [tf.cumsum(x, 1), tf.cumsum(x, 1, exclusive=True, reverse=True)], ((None, 5),)),
        Case("Cumprod", lambda x: tf.math.cumprod(x, 1), ((None, 5),)),
        Case("Bincount", lambda x: tf.math.bincount(x, minlength=8, maxlength=8), (np.array([1, 3, 3, 7], I32),)),
        Case("Unique", lambda x: tf.unique(x), (np.array([4, 1, 4, 7, 1], I32),)),
        Case("UniqueWithCounts", lambda x: tf.unique_with_counts(x), (np.array([4, 1, 4, 7, 1], I32),)),
        Case("InvertPermutation", tf.math.invert_permutation, (np.array([2, 0, 3, 1], I32),)),
    ]  # fmt: skip


def shapes() -> list[Case]:
    return [
        Case("Reshape", lambda x: tf.reshape(x, (-1, 2)), ((None, 4),)),
        Case("Reshape_of_Shape", lambda x: tf.reshape(x, (tf.shape(x)[0], -1)), ((None, 4, 2),)),
        Case("Bucketize", lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 1.0]), (SPECIAL,)),
        Case("Bucketize of integers", lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.5, 2.0]), (np.arange(4).astype(np.int32),)),
        Case("Flatten", lambda x: tf.keras.layers.Flatten()(x), ((None, 4, 2),)),
        Case("Transpose", lambda x: tf.transpose(x, (2, 0, 1)), ((None, 4, 2),)),
        Case("ExpandDims", lambda x: tf.expand_dims(x, 1), ((None, 4),)),
        Case("Squeeze", lambda x: tf.squeeze(x, 1), ((None, 1, 4),)),
        Case("Tile", lambda x: tf.tile(x, (2, 3)), ((None, 4),)),
        Case("Fill", lambda x: tf.fill(tf.shape(x), 2.5), ((None, 4),)),
        Case("BroadcastTo", lambda x: tf.broadcast_to(x, (5, 3, 4)), ((3, 4),)),
        Case("Range", lambda x: tf.range(tf.shape(x)[0]), ((None, 4),)),
        Case("Pad", lambda x: tf.pad(x, ((1, 2), (0, 1))), ((None, 4),)),
        Case("PadV2", lambda x: tf.pad(x, ((1, 2), (0, 1)), constant_values=3), ((None, 4),)),
        Case("MirrorPad", lambda x: [tf.pad(x, ((1, 1), (2, 1)), mode) for mode in ("REFLECT", "SYMMETRIC")], ((3, 4),)),
        Case("Slice", lambda x: tf.slice(x, (1, 0), (2, 3)), ((None, 4),)),
        Case("StridedSlice", lambda x: [x[:, 1:3], x[::-1, -1], x[..., None, ::2], x[1:]], ((None, 4),)),
        Case("StridedSlice_new_axis", lambda x: x[:, tf.newaxis, 1:], ((None, 4),)),
        Case("Split", lambda x: tf.split(x, 2, 1), ((None, 4),)),
        Case("SplitV", lambda x: tf.split(x, (1, 3), 1), ((None, 4),)),
        Case("Unpack", lambda x: tf.unstack(x, axis=1), ((None, 4),)),
        Case("ReverseV2", lambda x: tf.reverse(x, (1,)), ((None, 4),)),
        Case("ReverseSequence", lambda x: tf.reverse_sequence(x, (2, 4, 1), seq_axis=1, batch_axis=0), ((3, 4, 2),)),
        Case("Roll", lambda x: tf.roll(x, (1, -2), (0, 1)), ((3, 5),)),
        Case("SpaceToDepth", lambda x: nn.space_to_depth(x, 2), (IMAGE,)),
        Case("DepthToSpace", lambda x: nn.depth_to_space(x, 2), ((None, 4, 4, 8),)),
        Case("SpaceToBatchND", lambda x: tf.space_to_batch(x, (2, 2), ((0, 0), (0, 0))), ((1, 4, 6, 2),)),
        Case("BatchToSpaceND", lambda x: tf.batch_to_space(x, (2, 2), ((0, 0), (0, 1))), ((4, 2, 3, 2),)),
        Case("MatrixBandPart", lambda x: [tf.linalg.band_part(x, -1, 0), tf.linalg.band_part(x, 0, -1)], ((None, 5, 5),)),
        Case("MatrixDiag", tf.linalg.diag, ((None, 4),)),
        Case("MatrixDiagPart", tf.linalg.diag_part, ((None, 4, 4),)),
        Case("MatrixSetDiag", lambda x: tf.linalg.set_diag(x, tf.ones((2, 4))), ((2, 4, 4),)),
        Case("MatrixDeterminant", tf.linalg.det, ((None, 4, 4),)),
        Case("Meshgrid", lambda x: tf.meshgrid(x, x * 2), ((5,),)),
    ]  # fmt: skip


def indices() -> list[Case]:
    places = np.array([[0, 1], [2, 3], [1, 0]], I32)
    update = lambda op: lambda x: op(x, places, np.array([1, 2, 3], F32))
    return [
        Case("Gather", lambda x: tf.gather(x, (2, 0), axis=1), ((None, 4),)),
        Case("Gather_by_input", lambda x, i: tf.gather(x, i), ((5, 4), np.array([[4, 0], [1, 1]], I64))),
        Case("Gather_batch", lambda x, i: tf.gather(x, i, axis=1, batch_dims=1), ((2, 5), np.array([[4, 0], [1, 1]], I32))),
        Case("GatherNd", lambda x: tf.gather_nd(x, places), ((3, 4),)),
        Case("ScatterNd", lambda x: tf.scatter_nd(places, x, (3, 4)), ((3,),)),
        Case("TensorScatterUpdate", update(tf.tensor_scatter_nd_update), ((3, 4),)),
        Case("TensorScatterAdd", update(tf.tensor_scatter_nd_add), ((3, 4),)),
        Case("TensorScatterSub", update(tf.tensor_scatter_nd_sub), ((3, 4),)),
        Case("TensorScatterMax", update(tf.tensor_scatter_nd_max), ((3, 4),)),
        Case("TensorScatterMin", update(tf.tensor_scatter_nd_min), ((3, 4),)),
        Case("OneHot", lambda i: tf.one_hot(i, 5, on_value=2.0, off_value=-1.0), (np.array([0, 4, 2], I32),)),
        Case("OneHot_axis", lambda i: tf.one_hot(i, 5, axis=0), (np.array([0, 4, 2], I32),)),
        Case("TopKV2", lambda x: tf.math.top_k(x, 3), ((None, 6),)),
        Case("sort", lambda x: tf.sort(x, 1, "DESCENDING"), ((None, 6),)),
        Case("argsort", lambda x: tf.argsort(x, 1), ((None, 6),)),
        Case("DynamicStitch", lambda x: tf.dynamic_stitch([[0, 2], [1, 3]], [x[:2], x[2:]]), ((4, 3),)),
        Case("SegmentSum", lambda x: tf.math.segment_sum(x, (0, 0, 1, 2)), ((4, 3),)),
        Case("SegmentMax", lambda x: tf.math.segment_max(x, (0, 0, 1, 2)), ((4, 3),)),
        Case("UnsortedSegmentSum", lambda x: tf.math.unsorted_segment_sum(x, (2, 0, 2, 1), 3), ((4, 3),)),
        Case("UnsortedSegmentMax", lambda x: tf.math.unsorted_segment_max(x, (2, 0, 2, 1), 3), ((4, 3),)),
        Case("NonMaxSuppressionV3", lambda b, s: image.non_max_suppression(b, s, 3, 0.5, 0.1), (BOXES, SCORES)),
        Case("NonMaxSuppressionV5", lambda b, s: image.non_max_suppression_with_scores(b, s, 3, 0.5, 0.1)[0], (BOXES, SCORES)),
        Case("SparseSoftmaxCrossEntropy", lambda x: nn.sparse_softmax_cross_entropy_with_logits((0, 2, 3), x), ((3, 4),)),
        Case("boolean_mask", lambda x: tf.boolean_mask(x, x[:, 0] > 0), ((None, 4),)),
        Case("sequence_mask", lambda i: tf.sequence_mask(i, 5), (np.array([0, 4, 2], I32),)),
    ]  # fmt: skip


def images() -> list[Case]:
    conv = lambda **k: lambda x: nn.conv2d(x, weights(3, 3, 3, 4), **k)
    pool = lambda f, **k: lambda x: f(x, **k)
    scale, shift = weights(3), weights(3)
    norm = lambda x: raw.FusedBatchNormV3(
        x=x, scale=scale, offset=shift, mean=shift, variance=scale * scale, is_training=False
    )[0]
    resize = lambda method, **k: lambda x: image.resize(x, (12, 10), method, **k)
    return [
        Case("Conv2D", conv(strides=1, padding="SAME"), (IMAGE,)),
        Case("Conv2D_strided", conv(strides=2, padding="SAME"), (IMAGE,)),
        Case("Conv2D_odd", conv(strides=2, padding="SAME"), ((1, 7, 9, 3),)),
        Case("Conv2D_dilated", conv(strides=1, padding="VALID", dilations=2), (IMAGE,)),
        Case("Conv2D_explicit", conv(strides=1, padding=((0, 0), (1, 2), (0, 1), (0, 0))), (IMAGE,)),
        Case("Conv2D_any_size", conv(strides=2, padding="SAME"), ((None, None, None, 3),)),
        Case("Conv1D", lambda x: nn.conv1d(x, weights(3, 4, 5), 1, "SAME"), ((None, 9, 4),)),
        Case("Conv3D", lambda x: nn.conv3d(x, weights(2, 3, 3, 2, 4), (1, 1, 2, 2, 1), "SAME"), (VOLUME,)),
        Case("DepthwiseConv2d", lambda x: nn.depthwise_conv2d(x, weights(3, 3, 3, 2), (1, 2, 2, 1), "SAME"), (IMAGE,)),
        Case("SeparableConv2d", lambda x: nn.separable_conv2d(x, weights(3, 3, 3, 2), weights(1, 1, 6, 4), (1, 1, 1, 1), "SAME"), (IMAGE,)),
        Case("Conv2DBackpropInput", lambda x: nn.conv2d_transpose(x, weights(3, 3, 4, 3), (1, 16, 16, 4), 2, "SAME"), ((1, 8, 8, 3),)),
        Case("Conv2DBackpropInput_valid", lambda x: nn.conv2d_transpose(x, weights(3, 3, 4, 3), (1, 17, 17, 4), 2, "VALID"), ((1, 8, 8, 3),)),
        Case("Conv3DBackpropInputV2", lambda x: nn.conv3d_transpose(x, weights(2, 3, 3, 4, 2), (1, 8, 12, 12, 4), 2, "SAME"), (VOLUME,)),
        Case("BiasAdd", lambda x: nn.bias_add(x, weights(3)), (IMAGE,)),
        Case("BiasAdd_NCHW", lambda x: nn.bias_add(x, weights(3), data_format="NCHW"), ((None, 3, 8, 8),)),
        Case("FusedBatchNormV3", norm, (IMAGE,)),
        Case("batch_normalization", lambda x: nn.batch_normalization(x, shift, scale * scale, shift, scale, 1e-3), (IMAGE,)),
        Case("moments", lambda x: nn.moments(x, (1, 2)), (IMAGE,)),
        Case("MaxPool", pool(nn.max_pool2d, ksize=3, strides=2, padding="SAME"), (IMAGE,)),
        Case("MaxPool_valid", pool(nn.max_pool2d, ksize=2, strides=2, padding="VALID"), ((None, 7, 7, 3),)),
        Case("AvgPool", pool(nn.avg_pool2d, ksize=3, strides=2, padding="SAME"), (IMAGE,)),
        Case("MaxPool3D", pool(nn.max_pool3d, ksize=2, strides=2, padding="VALID"), (VOLUME,)),
        Case("AvgPool3D", pool(nn.avg_pool3d, ksize=2, strides=2, padding="VALID"), (VOLUME,)),
        Case("MaxPoolWithArgmax", lambda x: nn.max_pool_with_argmax(x, 2, 2, "VALID")[0], ((1, 8, 8, 3),)),
        Case("LRN", lambda x: nn.local_response_normalization(x, 2, 1.0, 0.5, 0.6), ((None, 4, 4, 8),)),
        Case("ExtractImagePatches", lambda x: image.extract_patches(x, (1, 3, 3, 1), (1, 2, 2, 1), (1, 1, 1, 1), "VALID"), ((1, 8, 8, 3),)),
        Case("ResizeBilinear", resize("bilinear"), (IMAGE,)),
        Case("ResizeBilinear_twice", lambda x: image.resize(x, (16, 16)), (IMAGE,)),
        Case("ResizeNearestNeighbor", resize("nearest"), (IMAGE,)),
        Case("ResizeBicubic", lambda x: raw.ResizeBicubic(images=x, size=(16, 16), half_pixel_centers=True), (IMAGE,)),
        Case("ResizeArea", lambda x: raw.ResizeArea(images=x, size=(16, 16)), ((1, 8, 8, 3),)),
        Case("ResizeBilinear_corners", lambda x: raw.ResizeBilinear(images=x, size=(15, 15), align_corners=True), (IMAGE,)),
        Case("AdjustContrastv2", lambda x: image.adjust_contrast(x, 1.5), (IMAGE,)),
        Case("AdjustSaturation", lambda x: image.adjust_saturation(tf.sigmoid(x), 1.5), ((1, 4, 4, 3),)),
        Case("AdjustHue", lambda x: image.adjust_hue(tf.sigmoid(x), 0.2), ((1, 4, 4, 3),)),
        Case("CropAndResize_nearest", lambda x, b: image.crop_and_resize(x, b, (0, 1, 1), (3, 1), "nearest", 7.0), ((2, 8, 8, 3), BOXES[1:] / 3)),
        Case("CropAndResize", lambda x, b: image.crop_and_resize(x, b, (0, 0, 0, 0), (4, 4)), ((1, 8, 8, 3), BOXES / 4)),
        Case("NCHW", lambda x: nn.relu(tf.transpose(nn.conv2d(tf.transpose(x, (0, 2, 3, 1)), weights(3, 3, 3, 4), 1, "SAME"), (0, 3, 1, 2))), ((None, 3, 8, 8),)),
    ]  # fmt: skip


def loop(x: tf.Tensor) -> Any:
    return tf.while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5 + x), (0, x))[1]


def scan_of(x: tf.Tensor) -> Any:
    return tf.scan(lambda total, row: total * 0.5 + row, x)


def collected(x: tf.Tensor) -> Any:
    rows = tf.TensorArray(tf.float32, 3)
    for i in tf.range(3):
        rows = rows.write(i, x[i] * tf.cast(i, tf.float32))
    return rows.stack()


def recurrent(make: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    made = []

    def run(x: tf.Tensor) -> Any:
        if not made:
            tf.keras.utils.set_random_seed(3)
            made.append(make(5, **settings))
        return made[0](x)

    return run


def sequences() -> list[Case]:
    layers = tf.keras.layers
    return [
        Case("MatMul", lambda x: x @ weights(4, 5), ((None, 4),)),
        Case("BatchMatMul", lambda x: tf.matmul(x, x, adjoint_b=True), ((None, 3, 4),)),
        Case("Einsum_attention", lambda x: tf.einsum("bqhd,bkhd->bhqk", x, x), ((None, 5, 2, 4),)),
        Case("If", lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1), ((None, 4),)),
        Case("While", loop, ((None, 4),)),
        Case("scan", scan_of, ((4, 3),)),
        Case("TensorArray", tf.function(collected), ((3, 4),)),
        Case("map_fn", lambda x: tf.map_fn(lambda row: row * tf.reduce_sum(row), x), ((None, 4),)),
        Case("LSTM", recurrent(layers.LSTM, return_sequences=True), ((None, 6, 4),)),
        Case("GRU", recurrent(layers.GRU), ((None, 6, 4),)),
        Case("GRU_before", recurrent(layers.GRU, reset_after=False), ((None, 6, 4),)),
        Case("SimpleRNN", recurrent(layers.SimpleRNN), ((None, 6, 4),)),
        Case("LSTM_backwards", recurrent(layers.LSTM, go_backwards=True), ((None, 6, 4),)),
        Case("RFFT", lambda x: tf.abs(signal.rfft(x)), ((1, 16),)),
        Case("FakeQuantWithMinMaxVars", lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.3, 4, True), ((None, 4),)),
        Case("FakeQuantWithMinMaxVarsPerChannel", lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(x, (-1.0, 0.0, -2.0, -0.1), (1.0, 2.0, 0.0, 3.0)), ((None, 4),)),
    ]  # fmt: skip
