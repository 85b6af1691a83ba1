"""The sizes and variants of a decoder of the Llama family, read from a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InvalidModelError, UnsupportedError
from .gguf_file import GgufFile


@dataclass(frozen=True)
class DecoderSpec:
    """Layers of RMS norm, grouped-query attention with rotary embedding, RMS norm and a gated MLP."""

    architecture: str  #: as genai_config.json calls it: "llama", "qwen2", ...
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int  #: width of the MLP
    vocabulary: int
    context: int  #: maximum tokens, including the prompt
    epsilon: float
    rope_base: float
    rope_size: int  #: number of rotated elements of a head
    rope_scale: float = 1.0  #: positions are divided by it
    rope_magnitude: float = 1.0  #: queries and keys are multiplied by it when they are rotated
    tied: bool = True  #: the embedding is also the projection to logits
    qkv_bias: bool = False
    qk_norm: bool = False  #: queries' and keys' heads are normalised
    gelu: bool = False  #: gelu in the MLP instead of silu
    embedding_scale: float = 1.0
    paired_rope: bool = False  #: the file's q and k rows are in pairs (2i, 2i + 1) instead of halves (i, i + size / 2)
    window: int = -1  #: tokens that each one attends to; -1: all

    def __post_init__(self) -> None:
        for what in ("hidden", "layers", "heads", "kv_heads", "head_size", "intermediate", "vocabulary", "context"):
            if not 1 <= getattr(self, what) < 1 << 24:
                raise InvalidModelError(f"the decoder's {what} is {getattr(self, what)}")
        if self.layers > 4096:
            raise InvalidModelError(f"the decoder has {self.layers} layers")
        if self.heads % self.kv_heads:
            raise InvalidModelError(f"{self.heads} heads can't share {self.kv_heads} heads of keys")
        if self.rope_size % 2 or not 0 < self.rope_size <= self.head_size:
            raise InvalidModelError(f"{self.rope_size} of {self.head_size} elements of a head can't be rotated")
        if not (self.rope_base > 0 and self.rope_scale > 0 and 0 <= self.epsilon < 1):
            raise InvalidModelError(
                f"rope's base is {self.rope_base}, its scale {self.rope_scale}, the norms' epsilon {self.epsilon}"
            )


# Architectures whose layers are those of DecoderSpec: genai's name, and what differs.
_ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"paired_rope": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"qk_norm": True}),
    "phi3": ("phi3", {}),
    "gemma": ("gemma", {"gelu": True}),
}


class _Metadata:
    def __init__(self, file: GgufFile, prefix: str):
        self.file, self.prefix = file, prefix

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.file.metadata.get(f"{self.prefix}.{key}", default)
        if value is None:
            raise InvalidModelError(f"'{self.file.path}' lacks {self.prefix}.{key}")
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise UnsupportedError(
                f"'{self.file.path}': {self.prefix}.{key} is {str(value)[:80]}, not one {kind.__name__}"
            )
        return kind(value)


def decoder_spec(file: GgufFile) -> DecoderSpec:
    """The spec of a file's model. Raises UnsupportedError for other families, InvalidModelError if something is missing."""
    name = file.metadata.get("general.architecture")
    if name not in _ARCHITECTURES:
        raise UnsupportedError(
            f"'{file.path}' holds a model of the architecture {name!r}; these can be converted: {', '.join(_ARCHITECTURES)}"
        )
    kind, variant = _ARCHITECTURES[name]
    m = _Metadata(file, name)
    if m.get("expert_count", int, 0):
        raise UnsupportedError(f"'{file.path}' is a mixture of experts; only dense models can be converted")
    if "token_embd.weight" not in file.tensors or len(file.tensors["token_embd.weight"].shape) != 2:
        raise InvalidModelError(f"'{file.path}' lacks the matrix token_embd.weight")
    hidden, heads = m.get("embedding_length", int), m.get("attention.head_count", int)
    if heads < 1:
        raise InvalidModelError(f"'{file.path}': {name}.attention.head_count is {heads}")
    head_size = m.get("attention.key_length", int, hidden // heads)
    if m.get("attention.value_length", int, head_size) != head_size:
        raise UnsupportedError(f"'{file.path}': heads of keys and of values differ in size")
    context = m.get("context_length", int)
    scaling = file.metadata.get(f"{name}.rope.scaling.type", "none")
    if scaling not in ("none", "linear", "longrope"):
        raise UnsupportedError(f"'{file.path}': rope scaling of type {scaling!r} is not supported")
    if "rope_factors_short.weight" in file.tensors:  # the short factors hold up to the length of the first training
        context = min(context, m.get("rope.scaling.original_context_length", int))
    return DecoderSpec(
        architecture=kind,
        hidden=hidden,
        layers=m.get("block_count", int),
        heads=heads,
        kv_heads=m.get("attention.head_count_kv", int, heads),
        head_size=head_size,
        intermediate=m.get("feed_forward_length", int),
        vocabulary=file.tensors["token_embd.weight"].shape[0],
        context=context,
        epsilon=m.get("attention.layer_norm_rms_epsilon", float),
        rope_base=m.get("rope.freq_base", float, 10000.0),
        rope_size=m.get("rope.dimension_count", int, head_size),
        rope_scale=m.get("rope.scaling.factor", float, 1.0) if scaling == "linear" else 1.0,
        rope_magnitude=m.get("rope.scaling.attn_factor", float, 1.0),
        tied="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        embedding_scale=hidden**0.5 if name == "gemma" else 1.0,
        window=m.get("attention.sliding_window", int, -1) or -1,
        **variant,
    )
