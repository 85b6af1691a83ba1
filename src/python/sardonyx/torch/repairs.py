"""Rewrites PyTorch's operators that torch.onnx exports incorrectly as operators that it exports correctly.

Found by PyTorch's own samples of its operators (benchmarks/torch_operators.py).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import UnsupportedError

aten = torch.ops.aten

#: Translations that are not used, so that PyTorch decomposes the operators: batch normalisation by the batch's statistics
#: is written as one by the running statistics; the angle of an integer as an integer;
#: erfcx as a product that overflows; a smoothed cross entropy counts labels that are to be ignored; bags of embeddings are
#: loops over sequences, and lists of tensors are mapped over sequences.
MISTRANSLATED = {"aten.cross_entropy_loss.default", "aten.embedding_bag.default", "aten.embedding_bag.padding_idx", "aten.atleast_1d.Sequence", "aten.atleast_2d.Sequence", "aten.atleast_3d.Sequence", "aten.angle.default", "aten.special_erfcx.default", "aten.native_batch_norm.default", "aten._native_batch_norm_legit.default", "aten._native_batch_norm_legit.no_stats", "aten._native_batch_norm_legit_functional.default"}  # fmt: skip


def translations() -> dict[Any, Callable[..., Any]]:
    """Replacements for torch.onnx's log(1 + x) and exp(x) - 1, which lose all digits of a small x. W. Kahan's formulas correct
    for the rounding of the sum. Where nothing is rounded (infinities too), the plain formula is exact."""
    from onnxscript import opset18

    op: Any = opset18

    def constant(value: float, like: Any) -> Any:
        return op.CastLike(op.Constant(value_float=value), like)

    def log1p(self: Any) -> Any:
        near = op.Add(self, constant(1.0, self))
        part = op.Sub(near, constant(1.0, self))
        log = op.Log(near)
        rounded = op.Where(op.Equal(part, self), log, op.Mul(log, op.Div(self, part)))
        return op.Where(op.Equal(part, constant(0.0, self)), self, rounded)

    def expm1(self: Any) -> Any:
        near = op.Exp(self)
        part = op.Sub(near, constant(1.0, self))
        large = op.Or(op.Equal(part, near), op.Equal(part, constant(-1.0, self)))
        rounded = op.Where(large, part, op.Mul(part, op.Div(self, op.Log(near))))
        return op.Where(op.Equal(part, constant(0.0, self)), self, rounded)

    def sym_numel(self: Any) -> Any:
        return op.Size(self)

    def same(a: Any) -> Any:
        return op.Identity(a)

    # torch.onnx calls functions for these, which its slow optimizer would have to take apart.
    def hardswish(self: Any) -> Any:
        return op.HardSwish(self)

    def hardtanh(self: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
        return op.Clip(self, constant(float(min_val), self), constant(float(max_val), self))

    def antialiased(mode: str, **more: Any) -> Callable[..., Any]:
        """torch.onnx ignores the scales, which PyTorch places pixels by where they are given."""

        def call(self: Any, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None) -> Any:
            place = "align_corners" if align_corners else "pytorch_half_pixel"
            named = {"mode": mode, "coordinate_transformation_mode": place, "antialias": 1, "exclude_outside": 1} | more
            if scales_h is None or scales_w is None or align_corners:
                kept = op.Slice(op.Shape(self), op.Constant(value_ints=[0]), op.Constant(value_ints=[2]))
                one = op.Constant(value_ints=[1])
                sizes = [op.Constant(value_ints=[n]) if isinstance(n, int) else op.Reshape(n, one) for n in output_size]
                return op.Resize(self, None, None, op.Concat(kept, *sizes, axis=0), **named)
            scales = op.Constant(value_floats=[1.0, 1.0, float(scales_h), float(scales_w)])
            return op.Resize(self, None, scales, None, **named)

        return call

    return {
        aten._upsample_bilinear2d_aa.default: antialiased("linear"),
        aten._upsample_bicubic2d_aa.default: antialiased("cubic", cubic_coeff_a=-0.5),
        aten.hardswish.default: hardswish,
        aten.hardtanh.default: hardtanh,
        aten.log1p.default: log1p,
        aten.expm1.default: expm1,
        aten.sym_numel.default: sym_numel,
        torch.ops.prims.view_of.default: same,
    }


def custom_translations() -> dict[Any, Callable[..., Any]]:
    """Products of rows with the weights of their experts, which ONNX does not have, as our own GroupedMatMul: PyTorch's
    operator, and transformers' for what PyTorch's does not take."""
    own = grouped_matmul()

    def grouped_mm(input: Any, weight: Any, offs: Any) -> Any:
        return own(input, weight, offs)

    def torch_grouped_mm(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
        if offs is None or bias is not None or len(self.shape) != 2 or len(mat2.shape) != 3:
            raise UnsupportedError("_grouped_mm has other operands than rows [S, K], weights [E, K, N] and offs")
        return own(self, mat2, offs)

    found = {aten._grouped_mm.default: torch_grouped_mm} if hasattr(aten, "_grouped_mm") else {}
    fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return found | ({fallback.default: grouped_mm} if fallback is not None else {})


@functools.cache
def grouped_matmul() -> Any:
    import onnxscript
    from onnx import defs

    name, domain, parameter = "GroupedMatMul", "com.sardonyx", defs.OpSchema.FormalParameter
    floats = [f"tensor({t})" for t in ("float", "float16", "bfloat16", "double")]
    schema = defs.OpSchema(
        name,
        domain,
        1,
        inputs=[parameter("rows", "T"), parameter("weights", "T"), parameter("ends", "I")],
        outputs=[parameter("y", "T")],
        type_constraints=[("T", floats, ""), ("I", ["tensor(int32)", "tensor(int64)"], "")],
    )
    return onnxscript.values.Op(onnxscript.values.Opset(domain, 1), name, schema)


def arguments_of(schema: Any, node: torch.fx.Node) -> Iterator[tuple[Any, Any]]:
    """The declared arguments of a call that are given, with their values."""
    for k, argument in enumerate(schema.arguments):
        if k < len(node.args):
            yield argument, node.args[k]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def repair(program: torch.export.ExportedProgram) -> None:
    """Changes the program's calls in place. Raises UnsupportedError for those that cannot be written otherwise."""
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            schema = getattr(node.target, "_schema", None)
            change = REPAIRS.get(schema.name.removeprefix("aten::")) if schema is not None else None
            if change is not None:
                change(module.graph, node, {a.name: x for a, x in arguments_of(schema, node)})
        module.recompile()


def without_input(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """beta * input + alpha * (a product): with a beta of 0 the input, which may be memory as it is, is not read."""
    if given.get("beta", 1) == 0:
        with graph.inserting_before(node):
            zeros = graph.call_function(aten.zeros_like.default, (node.args[0],))
        zeros.meta = dict(node.args[0].meta)
        node.args = (zeros, *node.args[1:])


def average_with_divisor(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """The divisor is ignored. Averages that count the padding are sums over all of the window, times a constant."""
    divisor = given.get("divisor_override")
    if divisor is None:
        return
    if given.get("ceil_mode"):
        raise UnsupportedError(f"'{node.name}' has a divisor_override and ceil_mode")
    kernel, dims = list(given["kernel_size"]), 2 if "2d" in node.target._schema.name else 3
    size = math.prod(kernel) if len(kernel) == dims else kernel[0] ** dims
    node.args = (node.args[0], kernel, given.get("stride", []), given.get("padding", 0), False, True, None)
    node.kwargs = {}
    with graph.inserting_after(node):
        scaled = graph.call_function(aten.mul.Tensor, (node, size / divisor))
    scaled.meta = dict(node.meta)
    node.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
    rename_result(graph, node, scaled)


def rename_result(graph: torch.fx.Graph, old: torch.fx.Node, new: torch.fx.Node) -> None:
    """A program's signature names its results' nodes: the new node takes the old one's name."""
    name = old.name
    old.name = f"{name}_unscaled"
    new.name = name


def resize_to_size(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """With align_corners PyTorch places the corners of the result, whose size is whole; ONNX those of the scaled size."""
    if not given.get("align_corners"):
        return
    if "_aa" in node.target._schema.name:
        raise UnsupportedError(f"'{node.name}' has antialias and align_corners, which ONNX's Resize defines otherwise")
    scales = given.get("scale_factors")
    if not scales or all(float(s).is_integer() for s in scales):
        return
    size = list(node.meta["val"].shape[2:])
    if not all(isinstance(n, int) for n in size):
        raise UnsupportedError(f"'{node.name}' has align_corners, a scale that is not an integer, and sizes that vary")
    node.args, node.kwargs = (node.args[0], size, True, None), {}


def refuse_running_statistics(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """torch.export loses the changes."""
    if given.get("use_input_stats") and given.get("running_mean") is not None:
        raise UnsupportedError(f"'{node.name}' changes running statistics in training")


def without_groups(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """enable_gqa with as many heads of keys as of queries, which torch.onnx refuses."""
    heads = [given[name].meta["val"].shape[-3] if given[name].meta["val"].ndim > 3 else 1 for name in ("query", "key")]
    if given.get("enable_gqa") and heads[0] == heads[1]:
        node.kwargs = {k: v for k, v in node.kwargs.items() if k != "enable_gqa"}
    if given["query"].meta["val"].ndim == 3:
        with_heads(graph, node)


def with_heads(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Operands of three dims as those of one batch: torch.onnx takes four alone."""

    def wider(x: Any) -> Any:
        if not isinstance(x, torch.fx.Node) or x.meta["val"].ndim != 3:
            return x
        made = graph.call_function(aten.unsqueeze.default, (x, 0))
        made.meta["val"] = x.meta["val"].unsqueeze(0)
        return made

    with graph.inserting_before(node):
        node.args, node.kwargs = tuple(map(wider, node.args)), {k: wider(x) for k, x in node.kwargs.items()}
    with graph.inserting_after(node):
        narrow = graph.call_function(aten.squeeze.dim, (node, 0))
    narrow.meta = dict(node.meta)
    node.meta = {"val": node.meta["val"].unsqueeze(0)}
    node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)
    rename_result(graph, node, narrow)


def without_longer_dims(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """Squeezing a dim that is not 1 leaves it. torch.onnx writes a Squeeze, which is refused."""
    shape, dims = given["self"].meta["val"].shape, given.get("dim")
    if dims is None:
        return
    asked = [dims] if isinstance(dims, int) else list(dims)
    kept = [d for d in asked if not isinstance(shape[d], int) or shape[d] == 1] if shape else []
    if len(kept) < len(asked):
        node.target, node.args, node.kwargs = aten.squeeze.dims, (node.args[0], kept), {}
    if not kept:
        node.target, node.args = aten.clone.default, node.args[:1]


def without_bias(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """torch.onnx gives a conv3d without a bias one of shape [channels, 2]."""
    if given.get("bias") is not None or given["input"].meta["val"].ndim != 5:
        return

    def listed(x: Any) -> list[Any]:
        return [x] * 3 if isinstance(x, int) else list(x) * (3 // len(x))

    stride, padding, dilation = (listed(given.get(n, d)) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1)))
    node.target, node.kwargs = aten.convolution.default, {}
    node.args = (*node.args[:2], None, stride, padding, dilation, False, [0] * 3, given.get("groups", 1))


def refuse_other_memory(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """torch.onnx takes the memory for the operand's row-major elements."""
    value = given["self"].meta["val"]
    if not value.is_contiguous() or value.storage_offset() != 0:
        raise UnsupportedError(f"'{node.name}' (as_strided) has an operand that is not row-major in memory")


def stride_of_sizes(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[str, Any]) -> None:
    """A stride as the product of the sizes of the dims that are closer in memory: torch.onnx has no strides."""
    x, dim = given["self"], given["dim"]
    value = x.meta["val"]
    hints = [n.node.hint if isinstance(n, torch.SymInt) else n for n in value.stride()]
    order = sorted(range(value.ndim), key=lambda d: -hints[d])
    product: Any = 1
    with graph.inserting_before(node):
        for d in order[order.index(dim % value.ndim) + 1 :]:
            size: Any = value.shape[d]
            if isinstance(size, torch.SymInt):
                size = graph.call_function(aten.sym_size.int, (x, d))
                size.meta["val"] = value.shape[d]
            factors = [f for f in (product, size) if isinstance(f, torch.fx.Node) or f != 1]
            if len(factors) == 2:
                wide = graph.call_function(operator.mul, (factors[0], factors[1]))
                wide.meta["val"] = number_of(factors[0]) * number_of(factors[1])
                factors = [wide]
            product = factors[0] if factors else 1
    if expression_of(number_of(product)) != expression_of(node.meta["val"]):
        raise UnsupportedError(f"'{node.name}' is a stride of a tensor that is not dense in memory")
    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, lambda n: product if n is node else n)
    graph.erase_node(node)


def number_of(x: Any) -> Any:
    return x.meta["val"] if isinstance(x, torch.fx.Node) else x


def expression_of(x: Any) -> Any:
    """A size as a term, without Max(1, n): torch writes strides for tensors without elements too."""
    if not isinstance(x, torch.SymInt):
        return x
    from torch.utils._sympy.functions import Max

    return x.node.expr.replace(lambda e: isinstance(e, Max) and e.args[0] == 1, lambda e: e.args[1])


REPAIRS: dict[str, Callable[[torch.fx.Graph, torch.fx.Node, dict[str, Any]], None]] = (
    dict.fromkeys(("addbmm", "addmm", "addmv", "addr", "baddbmm"), without_input)
    | dict.fromkeys(("avg_pool2d", "avg_pool3d"), average_with_divisor)
    | dict.fromkeys(
        ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        resize_to_size,
    )
    | {"instance_norm": refuse_running_statistics, "scaled_dot_product_attention": without_groups, "squeeze": without_longer_dims, "as_strided": refuse_other_memory, "sym_stride": stride_of_sizes, "conv3d": without_bias}
)  # fmt: skip
