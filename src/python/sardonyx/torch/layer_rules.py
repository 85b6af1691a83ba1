"""Layers that torch.onnx has not, or gives other results for, as rules.py has it: attention, norms, pools, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
functional = torch.nn.functional


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """With a mask, a query that sees no key gets zeros, where torch.onnx takes the mean of the values or NaN. And it takes
    operands of four dims alone."""
    if dropout_p or (attn_mask is None and query.ndim == key.ndim == value.ndim == 4) or query.ndim < 2:
        return NotImplemented
    if attn_mask is None and query.ndim == key.ndim == value.ndim == 3:
        return NotImplemented  # which repairs.py makes four dims of
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = ((x if groups == 1 else x.repeat_interleave(groups, -3)) for x in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    root = math.sqrt(abs(factor))
    scores = (query * math.copysign(root, factor)) @ (key * root).mT
    if is_causal:
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        scores = scores + torch.where(seen, 0.0, -math.inf).to(scores.dtype)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, -math.inf).to(scores.dtype)
    weights = torch.softmax(scores if attn_mask is None else scores + attn_mask, -1)
    if attn_mask is not None:
        weights = torch.where(
            torch.isnan(weights), torch.zeros((), dtype=weights.dtype, device=weights.device), weights
        )
    return weights @ value


def many_heads(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, embed_dim: int, num_head: int, qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor, proj_weight: torch.Tensor, proj_bias: torch.Tensor, mask: torch.Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """What MultiheadAttention calls in evaluation. `mask` is true where nothing is seen; its type is 0 for one of queries and
    keys, 1 for one of keys that are padding, 2 for one of all."""
    if need_weights or query.is_nested:
        return NotImplemented
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    heads = [functional.linear(x, w, b).unflatten(-1, (num_head, -1)).transpose(1, 2) for x, w, b in parts]
    if mask is not None:
        mask = mask[:, None, None] if mask_type == 1 else mask
        mask = torch.logical_not(mask) if mask.dtype == torch.bool else mask
    mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask)
    y = functional.linear(mixed.transpose(1, 2).flatten(-2), proj_weight, proj_bias)
    return y, torch.empty(0, dtype=y.dtype, device=y.device)


def encoder_layer(
    src: torch.Tensor, embed_dim: int, num_heads: int, qkv_weight: torch.Tensor, qkv_bias: torch.Tensor, proj_weight: torch.Tensor,
    proj_bias: torch.Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor, norm_weight_2: torch.Tensor, norm_bias_2: torch.Tensor, ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor, ffn_weight_2: torch.Tensor, ffn_bias_2: torch.Tensor, mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """What TransformerEncoderLayer calls in evaluation."""
    if src.is_nested:
        return NotImplemented

    def attended(x: torch.Tensor) -> torch.Tensor:
        made = many_heads(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type)  # fmt: skip
        y: torch.Tensor = made[0]
        return y

    def fed(x: torch.Tensor) -> torch.Tensor:
        y = functional.linear(x, ffn_weight_1, ffn_bias_1)
        return functional.linear(functional.gelu(y) if use_gelu else functional.relu(y), ffn_weight_2, ffn_bias_2)

    def first(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))


def layer_norm(x: torch.Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True) -> Any:  # fmt: skip
    """Of 16-bit numbers with weights of float32, as under autocast on a CPU: in float32."""
    others = [w for w in (weight, bias) if w is not None and w.dtype != x.dtype]
    if not others:
        return NotImplemented
    wide = [w if w is None else w.to(torch.float32) for w in (weight, bias)]
    return functional.layer_norm(x.to(torch.float32), shape, wide[0], wide[1], eps).to(x.dtype)


def group_norm(x: torch.Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True) -> Any:  # fmt: skip
    if all(w is None or w.dtype == x.dtype for w in (weight, bias)):
        return NotImplemented
    wide = [w if w is None else w.to(torch.float32) for w in (weight, bias)]
    return functional.group_norm(x.to(torch.float32), groups, wide[0], wide[1], eps).to(x.dtype)


def leaky(x: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:  # fmt: skip
    """rrelu, which is random in training alone."""
    return NotImplemented if training else functional.leaky_relu(x, (lower + upper) / 2)


def leaky_and_noise(x: torch.Tensor, noise: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:  # fmt: skip
    return NotImplemented if training else (functional.leaky_relu(x, (lower + upper) / 2), noise.clone())


def leaky_alone(x: torch.Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:  # fmt: skip
    return NotImplemented if training else functional.leaky_relu(x, (lower + upper) / 2)


def smoothed_cross_entropy(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Every class counts a little. torch.onnx counts labels that are to be ignored, and takes no number of classes that varies."""
    if not label_smoothing or target.is_floating_point():
        return NotImplemented
    dim = 1 if x.ndim > 1 else 0
    logs = torch.log_softmax(x, dim)
    hard = aten.nll_loss_nd.default(logs, target, weight, reduction, ignore_index)
    ignored = target == ignore_index
    weighed = logs if weight is None else logs * weight.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    soft = torch.where(ignored, 0.0, -weighed.mean(dim))
    if reduction == 1:
        counted = torch.logical_not(ignored).to(logs.dtype)
        if weight is not None:
            counted = counted * weight[torch.where(ignored, 0, target)]
        soft = soft.sum() / counted.sum()
    elif reduction == 2:
        soft = soft.sum()
    return hard * (1 - label_smoothing) + soft * label_smoothing


def largest_of_line(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    made = aten.adaptive_max_pool2d.default(x.unsqueeze(-2), [1, *output_size])
    return tuple(y.squeeze(-2) for y in made)


def largest_of_parts(dims: int) -> Callable[..., Any]:
    """Adaptive max pooling: windows from floor(k n / parts) to ceil((k + 1) n / parts) along each dim."""

    def call(x: torch.Tensor, output_size: Sequence[int]) -> Any:
        if x.ndim < dims + 1:
            return NotImplemented
        sizes = [int(n) for n in x.shape[-dims:]]  # which become constants of the program
        if all(n % parts == 0 for n, parts in zip(sizes, output_size, strict=True)):
            steps = [n // parts for n, parts in zip(sizes, output_size, strict=True)]
            pool: Any = {2: aten.max_pool2d_with_indices, 3: aten.max_pool3d_with_indices}[dims]
            return pool.default(x, steps, steps)
        windows, inside, flat = x, torch.ones((), dtype=torch.bool, device=x.device), torch.zeros((), dtype=torch.int64, device=x.device)  # fmt: skip
        for d, (n, parts) in enumerate(zip(sizes, output_size, strict=True)):
            first = torch.arange(parts, device=x.device) * n // parts
            end = ((torch.arange(parts, device=x.device) + 1) * n + parts - 1) // parts
            most = max(-(-(k + 1) * n // parts) - k * n // parts for k in range(parts))
            at = first[:, None] + torch.arange(most, device=x.device)  # [parts, most]
            shape = [parts if k == d else most if k == dims + d else 1 for k in range(2 * dims)]
            inside = inside & (at < end[:, None]).reshape(shape)
            flat = flat * n + at.clamp(max=n - 1).reshape(shape)
        picked = windows.flatten(-dims)[..., flat.reshape(-1)].unflatten(-1, list(flat.shape))
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        picked = torch.where(inside, picked, lowest).flatten(-dims)
        values, which = picked.max(-1)
        places = flat.flatten(-dims).expand(picked.shape).gather(-1, which[..., None])[..., 0]
        return values, places

    return call


def mean_of_parts(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    """Adaptive average pooling of volumes, whose windows are products of those along each dim."""
    if not x.is_floating_point():
        return NotImplemented
    for dim, parts in zip(range(x.ndim - 3, x.ndim), output_size, strict=True):
        n = int(x.shape[dim])
        k, at = torch.arange(parts, device=x.device)[:, None], torch.arange(n, device=x.device)
        inside = ((at >= k * n // parts) & (at < ((k + 1) * n + parts - 1) // parts)).to(x.dtype)
        x = (x.movedim(dim, -1) @ (inside / inside.sum(1, keepdim=True)).mT).movedim(-1, dim)
    return x


def resized(operator: Any) -> Callable[..., Any]:
    """By a scale that is no integer, with corners that stay corners: by the size, which repairs.py has where it is known."""

    def call(x: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
        if not align_corners or not scale_factors or all(isinstance(n, int) for n in x.shape[2:]):
            return NotImplemented
        if all(float(s).is_integer() for s in scale_factors):
            return NotImplemented
        sizes = [torch.sym_int(n * float(s)) for n, s in zip(x.shape[2:], scale_factors, strict=True)]
        return operator(x, sizes, True, None)

    return call


def embedding_bag(
    weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: torch.Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> Any:  # fmt: skip
    """Sums, means or largest of the rows of each bag; torch.onnx writes a loop over a sequence."""
    if indices.ndim != 1 or weight.ndim != 2:
        return NotImplemented
    padding = -1 if padding_idx is None else padding_idx
    starts = offsets[:-1] if include_last_offset else offsets
    order = torch.arange(indices.shape[0], device=indices.device)
    bag = (starts[None, :] <= order[:, None]).sum(-1) - 1
    rows = weight[indices] if per_sample_weights is None else weight[indices] * per_sample_weights[:, None]
    counted = torch.ones_like(bag) if padding < 0 else (indices != padding).to(bag.dtype)
    counts = torch.zeros(starts.shape[0], dtype=bag.dtype, device=bag.device).index_add(0, bag, counted)
    empty = torch.zeros(starts.shape[0], weight.shape[1], dtype=weight.dtype, device=weight.device)
    if mode == 2:
        rows = rows if padding < 0 else torch.where(counted[:, None] != 0, rows, -math.inf)
        lowest = aten.scatter_reduce.two(
            torch.full_like(empty, -math.inf), 0, bag[:, None].expand(rows.shape), rows, "amax"
        )
        made = torch.where(counts[:, None] == 0, empty, lowest)
    else:
        rows = rows if padding < 0 else rows * counted[:, None].to(rows.dtype)
        made = empty.index_add(0, bag, rows)
        made = made / counts.clamp(min=1)[:, None].to(made.dtype) if mode == 1 else made
    return made, bag, counts, counts.clone()


LAYERS: dict[Any, Callable[..., Any]] = {
    aten.scaled_dot_product_attention.default: attention,
    aten._native_multi_head_attention.default: many_heads,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten.layer_norm.default: layer_norm,
    aten.group_norm.default: group_norm,
    aten.upsample_linear1d.vec: resized(aten.upsample_linear1d.vec),
    aten.upsample_bilinear2d.vec: resized(aten.upsample_bilinear2d.vec),
    aten.upsample_trilinear3d.vec: resized(aten.upsample_trilinear3d.vec),
    aten.upsample_bicubic2d.vec: resized(aten.upsample_bicubic2d.vec),
    aten.rrelu_with_noise.default: leaky,
    aten.rrelu_with_noise_functional.default: leaky_and_noise,
    aten.rrelu.default: leaky_alone,
    aten.cross_entropy_loss.default: smoothed_cross_entropy,
    aten.adaptive_max_pool1d.default: largest_of_line,
    aten.adaptive_max_pool2d.default: largest_of_parts(2),
    aten.adaptive_max_pool3d.default: largest_of_parts(3),
    aten._adaptive_avg_pool3d.default: mean_of_parts,
    aten.adaptive_avg_pool3d.default: mean_of_parts,
    aten._embedding_bag_forward_only.default: embedding_bag,
    aten._embedding_bag.default: embedding_bag,
    aten.embedding_bag.default: embedding_bag,
    aten.embedding_bag.padding_idx: embedding_bag,
}
