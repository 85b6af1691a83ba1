"""Folds batch normalisation into the weights of the convolution before it."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

aten = torch.ops.aten

#: Their arguments begin with the input, the weights [out, in / groups, ...], and the bias.
CONVOLUTIONS = {aten.conv1d.default, aten.conv2d.default, aten.conv2d.padding, aten.conv3d.default, aten.convolution.default}  # fmt: skip
NORM = aten._native_batch_norm_legit_no_training.default


def fold_batch_norms(graph: torch.fx.Graph, constants: dict[torch.fx.Node, torch.Tensor]) -> None:
    """`constants`: the values of placeholders; new ones are added to it."""
    for norm in list(graph.nodes):
        if norm.target is not NORM or any(u.target is not operator.getitem or u.args[1] != 0 for u in norm.users):
            continue
        convolution, *parameters, _, epsilon = norm.args
        if convolution.target not in CONVOLUTIONS or len(convolution.users) != 1:
            continue
        weight, bias = (*convolution.args, None)[1:3]
        if convolution.target is aten.convolution.default and convolution.args[6]:  # transposed
            continue
        if convolution.kwargs or any(n is not None and n not in constants for n in (weight, bias, *parameters)):
            continue
        given = [None if n is None else constants[n] for n in (weight, bias, *parameters)]
        folded = folded_parameters(given, float(epsilon))
        if folded is None:
            continue
        new_nodes = []
        for value, like in zip(folded, (weight, parameters[2]), strict=True):
            with graph.inserting_before(like):
                node = graph.placeholder(f"{like.name}_folded")
            node.meta["val"] = like.meta["val"].to(value.dtype)
            constants[node] = value
            new_nodes.append(node)
        convolution.args = (convolution.args[0], *new_nodes, *convolution.args[3:])
        for user in list(norm.users):
            user.replace_all_uses_with(convolution)
            graph.erase_node(user)
        graph.erase_node(norm)


def folded_parameters(given: list[Any], epsilon: float) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The weights and the bias of a convolution that normalises, computed in float32 or float64 and rounded once. None:
    they overflow the weights' type."""
    wide = torch.promote_types(given[0].dtype, torch.float32)
    values: list[Any] = [None if x is None else x.to(wide) for x in given]
    weight, bias, scale, shift, mean, variance = values
    factor = torch.rsqrt(variance + epsilon)
    if scale is not None:
        factor = factor * scale
    offset = -mean if bias is None else bias - mean
    offset = offset * factor if shift is None else offset * factor + shift
    dtype = given[0].dtype
    new_weight = (weight * factor.reshape(-1, *[1] * (weight.ndim - 1))).to(dtype).contiguous()
    new_bias = offset.to(dtype)
    if not (is_finite(new_weight) and is_finite(new_bias)):
        return None
    return new_weight, new_bias


def is_finite(x: torch.Tensor) -> bool:
    """Without a tensor of answers: the least and the largest are NaN if any value is."""
    return all(math.isfinite(float(v)) for v in torch.aminmax(x)) if x.numel() else True
