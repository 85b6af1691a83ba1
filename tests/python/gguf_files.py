"""Makes small GGUF files with random weights, and computes the expected outputs of their models in numpy.

The reference follows GGML's own conventions (pairs of rotated elements for llama, halves for others), so it is
independent of the converter's.
"""

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

ARCHITECTURES = ("llama", "qwen2", "qwen3", "phi3", "gemma")
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, FFN, CONTEXT = 256, 2, 4, 2, 64, 256, 128
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = {b: 256 + k for k, b in enumerate(b for b in range(256) if b not in plain)}
    return [chr(others.get(b, b)) for b in range(256)]


def _tokenizer(writer: gguf.GGUFWriter, kind: str) -> int:
    control, normal, byte = 3, 1, 6
    if kind == "gpt2":
        merges = ["t h", "th e", "Ġ the", "a n", "an d"]
        tokens = [
            "<|endoftext|>",
            "<|im_start|>",
            "<|im_end|>",
            *byte_characters(),
            *(m.replace(" ", "") for m in merges),
        ]
        types = [control] * 3 + [normal] * (len(tokens) - 3)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_merges(merges)
    else:
        words = ["▁", *LETTERS, "th", "the", "▁the", "an", "and"]
        tokens = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", *(f"<0x{b:02X}>" for b in range(256)), *words]
        types = [2, control, control, control, control] + [byte] * 256 + [normal] * len(words)
        writer.add_tokenizer_model("llama")
        writer.add_add_space_prefix(False)  # as gemma's
        writer.add_token_scores([-float(k) for k in range(len(tokens))])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


def write(
    path: Path, architecture: str, type_name: str = "F32", seed: int = 0, **changes: float
) -> dict[str, np.ndarray]:
    """Writes a model; gives its weights as the file has them, dequantised."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    context = int(changes.get("context", CONTEXT))
    writer.add_context_length(context)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if architecture == "gemma":
        writer.add_key_length(HEAD)
        writer.add_value_length(HEAD)
    vocabulary = _tokenizer(writer, "llama" if architecture in ("phi3", "gemma") else "gpt2")
    weights: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int, scale: float = 0.15) -> None:
        values = rng.normal(0, scale, shape).astype(np.float32)
        if len(shape) == 1:
            values += 0 if name.endswith("bias") else 1
            writer.add_tensor(name, values)
            weights[name] = values
            return
        kind = gguf.GGMLQuantizationType[type_name]
        data = quantize(values, kind)
        weights[name] = dequantize(data, kind).reshape(shape)
        writer.add_tensor(name, data, raw_dtype=kind)

    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    add("token_embd.weight", vocabulary, HIDDEN, scale=0.1)
    if architecture in ("qwen3", "phi3"):
        add("output.weight", vocabulary, HIDDEN)
    add("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        add(f"{blk}.attn_norm.weight", HIDDEN)
        add(f"{blk}.ffn_norm.weight", HIDDEN)
        if architecture == "phi3":
            add(f"{blk}.attn_qkv.weight", q + 2 * kv, HIDDEN)
            add(f"{blk}.ffn_up.weight", 2 * FFN, HIDDEN)
        else:
            for part, rows in (("q", q), ("k", kv), ("v", kv)):
                add(f"{blk}.attn_{part}.weight", rows, HIDDEN)
                if architecture == "qwen2":
                    add(f"{blk}.attn_{part}.bias", rows)
            add(f"{blk}.ffn_gate.weight", FFN, HIDDEN)
            add(f"{blk}.ffn_up.weight", FFN, HIDDEN)
        if architecture == "qwen3":
            add(f"{blk}.attn_q_norm.weight", HEAD)
            add(f"{blk}.attn_k_norm.weight", HEAD)
        add(f"{blk}.attn_output.weight", HIDDEN, q)
        add(f"{blk}.ffn_down.weight", HIDDEN, FFN)
    if architecture == "llama" and changes.get("rope_freqs"):
        add("rope_freqs.weight", HEAD // 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def _rotated(x: np.ndarray, paired: bool, factors: np.ndarray | float) -> np.ndarray:
    """[heads, tokens, HEAD]: pairs of elements turned by position * base ** (-2i / HEAD)."""
    angle = np.arange(x.shape[1])[:, None] * (10000.0 ** (-np.arange(0, HEAD, 2) / HEAD) / factors)
    cos, sin, y = np.cos(angle), np.sin(angle), np.empty_like(x)
    one, two = (slice(0, None, 2), slice(1, None, 2)) if paired else (slice(0, HEAD // 2), slice(HEAD // 2, None))
    y[..., one] = x[..., one] * cos - x[..., two] * sin
    y[..., two] = x[..., two] * cos + x[..., one] * sin
    return y


def logits(architecture: str, weights: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """[tokens, vocabulary] in float64."""
    w = {k: v.astype(np.float64) for k, v in weights.items()}
    x = w["token_embd.weight"][tokens] * (HIDDEN**0.5 if architecture == "gemma" else 1)
    n = len(tokens)
    hidden_later = np.triu(np.full((n, n), -np.inf), 1)
    for layer in range(LAYERS):
        b = {k.split(".", 2)[2]: v for k, v in w.items() if k.startswith(f"blk.{layer}.")}
        h = _norm(x, b["attn_norm.weight"])
        if architecture == "phi3":
            qkv = h @ b["attn_qkv.weight"].T
        else:
            qkv = np.concatenate([h @ b[f"attn_{p}.weight"].T + b.get(f"attn_{p}.bias", 0) for p in "qkv"], -1)
        heads = qkv.reshape(n, HEADS + 2 * KV_HEADS, HEAD).transpose(1, 0, 2)
        q, k, v = heads[:HEADS], heads[HEADS : HEADS + KV_HEADS], heads[HEADS + KV_HEADS :]
        if architecture == "qwen3":
            q, k = _norm(q, b["attn_q_norm.weight"]), _norm(k, b["attn_k_norm.weight"])
        factors = w.get("rope_freqs.weight", 1.0)
        q, k = (_rotated(t, architecture == "llama", factors) for t in (q, k))
        k, v = (np.repeat(t, HEADS // KV_HEADS, 0) for t in (k, v))
        scores = q @ k.transpose(0, 2, 1) / HEAD**0.5 + hidden_later
        p = np.exp(scores - scores.max(-1, keepdims=True))
        y = (p / p.sum(-1, keepdims=True)) @ v
        x = x + y.transpose(1, 0, 2).reshape(n, -1) @ b["attn_output.weight"].T
        h = _norm(x, b["ffn_norm.weight"])
        if architecture == "phi3":
            gate, up = np.split(h @ b["ffn_up.weight"].T, 2, -1)
        else:
            gate, up = h @ b["ffn_gate.weight"].T, h @ b["ffn_up.weight"].T
        if architecture == "gemma":
            act = 0.5 * gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
        else:
            act = gate / (1 + np.exp(-gate))
        x = x + (act * up) @ b["ffn_down.weight"].T
    return _norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T
