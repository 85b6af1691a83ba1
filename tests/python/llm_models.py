"""Small random decoders in the form that onnxruntime-genai's model builder writes, with its configuration and a tokenizer.

A folder has genai_config.json, model.onnx and tokenizer files. Every option of Decoder is one of the builder's, or a property of a model family that it exports.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
ONNX_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16}


@dataclass
class Decoder:
    """What a decoder is made of. Sizes are small; `dtype` is that of weights, activations and the cache."""

    layers: int = 4
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    inter: int = 96
    vocab: int = 258
    positions: int = 128
    dtype: type = np.float32
    ids: int = TensorProto.INT64  # of input_ids and of what else genai counts in
    packed: bool = False  # one projection gives queries, keys and values
    rotary: str = "inside"  # of GroupQueryAttention, "outside" (RotaryEmbedding before it), "none"
    interleaved: bool = False
    partial: float = 1.0  # how much of a head is rotated
    position_ids: bool = False  # a fourth input of the model, that rotation outside needs
    window: int = -1
    softcap: float = 0.0
    scale: float = 0.0
    sink: bool = False
    smooth: bool = False
    qk_norm: str = "none"  # "outside" as nodes of their own, "inside" as inputs of GroupQueryAttention
    bits: int = 0  # of MatMulNBits; 0: MatMul
    block: int = 32
    zero_points: str = "none"  # "packed", "float"
    bias: bool = False  # of the attention's projections
    experts: int = 0
    top_k: int = 2
    moe_bits: int = 0  # of QMoE; 0: MoE
    embedding_bits: int = 0  # of GatherBlockQuantized; 0: Gather
    mask: str = "lengths"  # "bias": zeros of the mask are a bias of all scores, and every row has as many tokens
    seed: int = 0


class Builder:
    def __init__(self, d):
        self.d, self.rng, self.nodes, self.weights = d, np.random.default_rng(d.seed), [], []

    def node(self, op, inputs, name, outputs=None, domain="", **attributes):
        outputs = outputs or [f"{name}/output_0"]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, domain=domain, **attributes))
        return outputs[0]

    def weight(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def random(self, name, *shape, scale=1.0, offset=0.0):
        return self.weight(name, (self.rng.standard_normal(shape) * scale + offset).astype(self.d.dtype))

    def quantized(self, shape, bits, block):
        """Random [..., k] in blocks: bytes [..., blocks, bytes of a block] and scales [..., blocks]."""
        blocks = -(-shape[-1] // block)
        data = self.rng.integers(0, 256, (*shape[:-1], blocks, block * bits // 8), dtype=np.uint8)
        # Weights as large as those of a float layer: the numbers are up to 2^(bits - 1).
        scales = self.rng.uniform(0.5, 1.5, (*shape[:-1], blocks)) * (1.7 / np.sqrt(shape[-1]) / 2 ** (bits - 1))
        return data, scales.astype(self.d.dtype)

    def project(self, x, name, k, n, bias=False):
        d = self.d
        if d.bits:
            data, scales = self.quantized((n, k), d.bits, d.block)
            inputs = [x, self.weight(f"{name}.q", data), self.weight(f"{name}.scales", scales)]
            blocks = scales.shape[-1]
            if d.zero_points == "packed":
                zeros = self.rng.integers(0, 256, (n, -(-blocks * d.bits // 8)), dtype=np.uint8)
                inputs.append(self.weight(f"{name}.zeros", zeros))
            elif d.zero_points == "float":
                middle = 2 ** (d.bits - 1)
                zeros = self.rng.uniform(middle - 1, middle + 1, (n, blocks)).astype(d.dtype)
                inputs.append(self.weight(f"{name}.zeros", zeros))
            y = self.node(
                "MatMulNBits", inputs, f"{name}/MatMulNBits", domain=MS, K=k, N=n, bits=d.bits, block_size=d.block,
                accuracy_level=0,
            )  # fmt: skip
        else:
            y = self.node("MatMul", [x, self.random(f"{name}.weight", k, n, scale=k**-0.5)], f"{name}/MatMul")
        return self.node("Add", [y, self.random(f"{name}.bias", n, scale=0.3)], f"{name}/Add") if bias else y

    def head_norm(self, x, name, heads):
        """RMS norm of each head, as exporters write it: reshape, norm, reshape."""
        d = self.d
        split = self.weight(f"{name}.split", np.array([0, -1, heads, d.head_size], np.int64))
        whole = self.weight(f"{name}.whole", np.array([0, -1, heads * d.head_size], np.int64))
        y = self.node("Reshape", [x, split], f"{name}/Reshape_1")
        norm = self.random(f"{name}.weight", d.head_size, scale=0.2, offset=1)
        y = self.node("SimplifiedLayerNormalization", [y, norm], f"{name}/Norm", axis=-1, epsilon=1e-6, stash_type=1)
        return self.node("Reshape", [y, whole], f"{name}/Reshape_2")

    def attention(self, x, layer, seqlens, total, bias, tables):
        d, p = self.d, f"/model/layers.{layer}/attn"
        q_size, kv_size = d.heads * d.head_size, d.kv_heads * d.head_size
        if d.packed:
            qkv = [self.project(x, f"{p}/qkv_proj", d.hidden, q_size + 2 * kv_size, d.bias), "", ""]
        else:
            qkv = [
                self.project(x, f"{p}/{n}_proj", d.hidden, size, d.bias)
                for n, size in (("q", q_size), ("k", kv_size), ("v", kv_size))
            ]
            heads = (d.heads, d.kv_heads)
            if d.qk_norm == "outside":
                for k in (0, 1):
                    qkv[k] = self.head_norm(qkv[k], f"{p}/{'qk'[k]}_norm", heads[k])
            if d.rotary == "outside":
                for k in (0, 1):
                    qkv[k] = self.node(
                        "RotaryEmbedding", [qkv[k], "position_ids", *tables], f"{p}/{'qk'[k]}_rotary", domain=MS,
                        num_heads=heads[k] if d.partial < 1 else 0, interleaved=int(d.interleaved),
                        rotary_embedding_dim=int(d.partial * d.head_size) if d.partial < 1 else 0,
                    )  # fmt: skip
        past = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        inputs = [*qkv, *past, seqlens, total]
        inputs += tables if d.rotary == "inside" else ["", ""]
        inputs += ["", bias, self.random(f"{p}.sink", d.heads) if d.sink else ""]
        if d.qk_norm == "inside":
            inputs += ["", ""]
            inputs += [self.random(f"{p}.{n}_norm", d.head_size, scale=0.2, offset=1) for n in "qk"]
        while inputs[-1] == "":
            inputs.pop()
        attributes = {"num_heads": d.heads, "kv_num_heads": d.kv_heads, "local_window_size": d.window}
        attributes |= {"softcap": d.softcap, "do_rotary": int(d.rotary == "inside"), "scale": d.scale}
        attributes |= {"rotary_interleaved": int(d.interleaved)}
        if d.smooth:
            attributes["smooth_softmax"] = 1
        outputs = [f"{p}/output_0", f"present.{layer}.key", f"present.{layer}.value"]
        y = self.node("GroupQueryAttention", inputs, f"{p}/GroupQueryAttention", outputs, MS, **attributes)
        return self.project(y, f"{p}/o_proj", q_size, d.hidden)

    def gated(self, x, layer):
        d, p = self.d, f"/model/layers.{layer}/mlp"
        gate, up = (self.project(x, f"{p}/{n}_proj", d.hidden, d.inter) for n in ("gate", "up"))
        s = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{p}/act_fn/Sigmoid")], f"{p}/act_fn/Mul")
        return self.project(self.node("Mul", [s, up], f"{p}/Mul"), f"{p}/down_proj", d.inter, d.hidden)

    def moe(self, x, layer):
        d, p = self.d, f"/model/layers.{layer}/moe"
        router = self.node("MatMul", [x, self.random(f"{p}.router", d.hidden, d.experts)], f"{p}/router/MatMul")
        rows = self.weight(f"{p}.rows", np.array([-1, d.experts], np.int64))
        inputs = [x, self.node("Reshape", [router, rows], f"{p}/router/Reshape")]
        for n, size, width in (("fc1", 2 * d.inter, d.hidden), ("fc2", d.hidden, d.inter)):
            bias = self.random(f"{p}.{n}.bias", d.experts, size, scale=0.2)
            if d.moe_bits:
                data, scales = self.quantized((d.experts, size, width), d.moe_bits, d.block)
                data = data.reshape(d.experts, size, -1)
                inputs += [self.weight(f"{p}.{n}.q", data), self.weight(f"{p}.{n}.scales", scales), bias]
            else:
                inputs += [self.random(f"{p}.{n}.weight", d.experts, size, width, scale=width**-0.5), bias]
        attributes = {"k": d.top_k, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}
        attributes |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0, "use_sparse_mixer": 0}
        if d.moe_bits:
            attributes |= {"expert_weight_bits": d.moe_bits, "block_size": d.block}
        return self.node("QMoE" if d.moe_bits else "MoE", inputs, f"{p}/MoE", domain=MS, **attributes)

    def embed(self):
        d = self.d
        if not d.embedding_bits:
            return self.node("Gather", [self.random("embedding", d.vocab, d.hidden), "input_ids"], "/model/embed")
        data, scales = self.quantized((d.vocab, d.hidden), d.embedding_bits, d.block)
        scales = (scales.astype(np.float32) * np.sqrt(d.hidden)).astype(d.dtype)
        return self.node(
            "GatherBlockQuantized",
            [self.weight("embedding.q", data.reshape(d.vocab, -1)), "input_ids", self.weight("embedding.scales", scales)],
            "/model/embed", domain=MS, bits=d.embedding_bits, block_size=d.block, gather_axis=0, quantize_axis=1,
        )  # fmt: skip

    def skip_norm(self, x, skip, name, last=False):
        norm = self.random(f"{name}.weight", self.d.hidden, scale=0.2, offset=1)
        outputs = [f"{name}/output_0"] + ([] if last else ["", "", f"{name}/output_3"])
        inputs = [x, skip, norm]
        y = self.node("SkipSimplifiedLayerNormalization", inputs, f"{name}/Skip", outputs, MS, epsilon=1e-5)
        return y, outputs[-1]

    def lengths(self):
        """The builder's subgraph: seqlens_k and total_sequence_length of the attention mask, and its bias."""
        d, p = self.d, "/model/attn_mask_reformat"
        mask, one = "attention_mask", self.weight("one", np.array([1], np.int64))
        if d.ids != TensorProto.INT64:
            mask = self.node("Cast", [mask], f"{p}/Mask", to=TensorProto.INT64)
        whole = self.node("Shape", [mask], f"{p}/Shape")
        at = self.node("Gather", [whole, self.weight("second", np.array(1, np.int64))], f"{p}/Gather", axis=0)
        width = self.node("Cast", [at], f"{p}/Gather/Cast", to=TensorProto.INT32)
        if d.mask == "bias":
            rows = self.node("Gather", [whole, self.weight("zeroth", np.array([0], np.int64))], f"{p}/Batch", axis=0)
            least = self.node("Sub", [width, self.weight("int32 one", np.array(1, np.int32))], f"{p}/Least")
            seqlens = self.node("Expand", [least, rows], f"{p}/Expand")
            low = self.node("Sub", [mask, one], f"{p}/Inverse")
            low = self.node("Cast", [low], f"{p}/Inverse/Cast", to=ONNX_TYPES[np.dtype(d.dtype)])
            low = self.node("Mul", [low, self.weight("low", np.array(1e4, d.dtype))], f"{p}/Low")
            low = self.node("Unsqueeze", [low, self.weight("axes", np.array([1, 2], np.int64))], f"{p}/Unsqueeze")
            queries = self.node("Shape", ["input_ids"], f"{p}/Queries", start=1, end=2)
            shape = self.node(
                "Concat",
                [
                    rows,
                    self.weight("heads", np.array([1], np.int64)),
                    queries,
                    self.weight("last", np.array([1], np.int64)),
                ],
                f"{p}/Shape_4",
                axis=0,
            )
            return seqlens, width, self.node("Expand", [low, shape], f"{p}/Bias")
        total = self.node("ReduceSum", [mask, one], f"{p}/ReduceSum", keepdims=0)
        total = self.node("Sub", [total, one], f"{p}/Sub")
        return self.node("Cast", [total], f"{p}/Sub/Cast", to=TensorProto.INT32), width, ""

    def model(self):
        d, info, float_type = self.d, helper.make_tensor_value_info, ONNX_TYPES[np.dtype(self.d.dtype)]
        tables = []
        if d.rotary != "none":
            rotated = int(d.partial * d.head_size)
            angles = np.outer(np.arange(d.positions), 10000.0 ** (-np.arange(0, rotated, 2) / rotated))
            tables = [self.weight("cos_cache", np.cos(angles).astype(d.dtype))]
            tables += [self.weight("sin_cache", np.sin(angles).astype(d.dtype))]
        inputs = [info("input_ids", d.ids, ["batch_size", "sequence_length"])]
        inputs += [info("attention_mask", d.ids, ["batch_size", "total_sequence_length"])]
        if d.position_ids or d.rotary == "outside":
            inputs += [info("position_ids", d.ids, ["batch_size", "sequence_length"])]
        outputs = [info("logits", float_type, ["batch_size", "sequence_length", d.vocab])]
        for k in range(d.layers):
            for n in ("key", "value"):
                shape = ["batch_size", d.kv_heads, "past_sequence_length", d.head_size]
                inputs.append(info(f"past_key_values.{k}.{n}", float_type, shape))
                shape = ["batch_size", d.kv_heads, "total_sequence_length", d.head_size]
                outputs.append(info(f"present.{k}.{n}", float_type, shape))
        seqlens, total, bias = self.lengths()
        if d.rotary == "outside" and d.ids != TensorProto.INT64:
            raise ValueError("RotaryEmbedding takes int64 positions")
        root = self.embed()
        norm = self.random("norm.0", d.hidden, scale=0.2, offset=1)
        x = self.node("SimplifiedLayerNormalization", [root, norm], "/model/norm.0", axis=-1, epsilon=1e-5)
        for k in range(d.layers):
            y = self.attention(x, k, seqlens, total, bias, tables)
            x, root = self.skip_norm(root, y, f"/model/layers.{k}/post_attention_layernorm")
            y = self.moe(x, k) if d.experts else self.gated(x, k)
            x, root = self.skip_norm(root, y, f"/model/layers.{k + 1}/input_layernorm", k + 1 == d.layers)
        logits = self.project(x, "/lm_head", d.hidden, d.vocab)
        self.nodes[-1].output[0] = "logits"
        assert logits
        graph = helper.make_graph(self.nodes, "main_graph", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def model(d):
    """The decoder as an onnx.ModelProto."""
    return Builder(d).model()


def config(d, provider=None, options=None, length=None, end=None, pad=0):
    """genai_config.json as a dict. `end`: the token that ends a text (default: none that greedy search finds soon)."""
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    if d.position_ids or d.rotary == "outside":
        inputs["position_ids"] = "position_ids"
    inputs |= {f"past_{n}_names": f"past_key_values.%d.{n}" for n in ("key", "value")}
    outputs = {"logits": "logits"} | {f"present_{n}_names": f"present.%d.{n}" for n in ("key", "value")}
    providers = [] if provider is None else [{provider: options or {}}]
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": providers},
        "filename": "model.onnx",
        "head_size": d.head_size,
        "hidden_size": d.hidden,
        "inputs": inputs,
        "outputs": outputs,
        "num_attention_heads": d.heads,
        "num_hidden_layers": d.layers,
        "num_key_value_heads": d.kv_heads,
    }
    return {
        "model": {
            "bos_token_id": d.vocab - 2,
            "context_length": d.positions,
            "decoder": decoder,
            "eos_token_id": d.vocab - 1 if end is None else end,
            "pad_token_id": pad,
            "type": "llama",
            "vocab_size": d.vocab,
        },
        "search": {
            "do_sample": False,
            "max_length": length or d.positions,
            "min_length": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": True,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 1,
            "top_p": 1.0,
        },
    }


def byte_alphabet():
    """Characters that stand for the 256 bytes in a byte-level vocabulary."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


def write_tokenizer(folder, vocab):
    """A tokenizer of single bytes, and two special tokens at the end."""
    tokens = {c: k for k, c in enumerate(byte_alphabet())}
    special = [(vocab - 2, "<s>"), (vocab - 1, "</s>")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [{"id": k, "content": t, "single_word": False, "lstrip": False, "rstrip": False} for k, t in special]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [a | {"normalized": False, "special": True} for a in added],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": tokens | {t: k for k, t in special}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 4096}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": False}))


def write(folder, d, **settings):
    """Writes the decoder's folder; returns its path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model(d), folder / "model.onnx")
    (folder / "genai_config.json").write_text(json.dumps(config(d, **settings), indent=1))
    write_tokenizer(folder, d.vocab)
    return folder
