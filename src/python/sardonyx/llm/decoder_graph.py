"""Builds the ONNX model of a decoder as onnxruntime-genai expects it: names of inputs and outputs, operators, types.

Inputs: input_ids int64 [batch, new], attention_mask int64 [batch, past + new], past_key_values.L.key and .value
[batch, kv heads, past, head size]. Outputs: logits [batch, new, vocabulary], present.L.key and .value. Past and present
may be one buffer with capacity for more tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from ..errors import Error, FileError, InvalidModelError
from .decoder_spec import DecoderSpec
from .weights import Array, Blocked, Dense, Linear, concatenated

_TYPES = {
    "fp32": (TensorProto.FLOAT, np.dtype(np.float32)),
    "fp16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bf16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}


class WeightSource(Protocol):
    """A source of a decoder's weights, by GGUF's names without ".weight"."""

    def has(self, name: str) -> bool: ...

    def vector(self, name: str, size: int) -> Array:
        """Float32 [size]."""
        ...

    def linear(self, name: str, rows: int, columns: int) -> Linear:
        """A weight [rows, columns] in the form for the model."""
        ...


class _ExternalData:
    """The file beside the model that holds its weights, written in order, each at a multiple of 64 bytes."""

    def __init__(self, name: str, file: BinaryIO):
        self.name, self.size, self._file = name, 0, file

    def write(self, tensor: TensorProto, data: bytes | memoryview) -> None:
        self._file.write(bytes(-self.size % 64))
        self.size += -self.size % 64
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.name), ("offset", self.size), ("length", len(data))):
            tensor.external_data.add(key=key, value=str(value))
        self._file.write(data)
        self.size += len(data)


class _Builder:
    def __init__(self, spec: DecoderSpec, source: WeightSource, activations: str, data: _ExternalData):
        self.spec, self.source, self.data = spec, source, data
        self.type, self.dtype = _TYPES[activations]
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []

    def constant(self, name: str, array: Array) -> str:
        array = np.ascontiguousarray(array)
        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        if array.nbytes < 1024:
            tensor.raw_data = array.tobytes()
        else:
            self.data.write(tensor, memoryview(array.reshape(-1).view(np.uint8)))
        self.initializers.append(tensor)
        return name

    def floats(self, name: str, array: Array) -> str:
        """A constant in the model's own float type."""
        with np.errstate(over="ignore"):
            narrow = array.astype(self.dtype)
        if self.dtype == np.float16 and not np.isfinite(narrow).all():
            raise InvalidModelError(f"'{name}' has elements beyond float16's range; convert with fp32 or bf16")
        return self.constant(name, narrow)

    def node(self, kind: str, inputs: list[str], name: str, outputs: list[str] | None = None, **attributes: Any) -> str:
        """Adds a node; returns its first output."""
        names = outputs or [f"{name}/output_0"]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        return names[0]

    def contrib(self, kind: str, inputs: list[str], name: str, outputs: list[str] | None = None, **a: Any) -> str:
        return self.node(kind, inputs, name, outputs, domain="com.microsoft", **a)

    def product(self, x: str, weight: Linear, name: str, bias: Array | None = None, output: str = "") -> str:
        """x times the transposed weight, plus the bias."""
        last = [output] if output else None
        final = None if bias is not None else last
        if isinstance(weight, Dense):
            y = self.node("MatMul", [x, self.floats(f"{name}.weight", weight.values.T)], name, final)
        else:
            y = self.blocked_gemm(x, self.blocked(weight, name), weight, name, final)
        if bias is None:
            return y
        return self.node("Add", [y, self.floats(f"{name}.bias", bias)], f"{name}/Add", last)

    def blocked(self, weight: Blocked, name: str) -> list[str]:
        names = [self.constant(f"{name}.weight_q", weight.packed()), self.floats(f"{name}.scales", weight.scales)]
        zeros = weight.packed_zeros()
        if zeros is not None:
            names.append((self.constant if zeros.dtype == np.uint8 else self.floats)(f"{name}.zero_points", zeros))
        return names

    def blocked_gemm(
        self, x: str, names: list[str], weight: Blocked, name: str, outputs: list[str] | None = None
    ) -> str:
        rows, columns = weight.shape
        sizes = {"K": columns, "N": rows, "bits": weight.bits, "block_size": weight.block}
        return self.contrib("MatMulNBits", [x, *names], name, outputs, accuracy_level=0, **sizes)

    def embedding(self) -> tuple[str, Callable[[str, str], str]]:
        """The embedding, and the projection to logits."""
        s = self.spec
        table = self.source.linear("token_embd", s.vocabulary, s.hidden)
        name, head = "model.embed_tokens", "/lm_head/MatMul"
        project: Callable[[str, str], str]
        if isinstance(table, Dense):
            weight = self.floats(f"{name}.weight", table.values)
            rows = self.node("Gather", [weight, "input_ids"], "/model/embed_tokens/Gather")

            def project(x: str, output: str) -> str:
                turned = self.node("Transpose", [weight], "/lm_head/Transpose", perm=[1, 0])
                return self.node("MatMul", [x, turned], head, [output])
        else:
            names = self.blocked(table, name)
            integer_zeros = table.zeros is None or table.zeros.dtype == np.uint8
            if integer_zeros and s.hidden % table.block == 0:
                shape = self.constant("embed_shape", np.array([s.vocabulary, s.hidden * table.bits // 8], np.int64))
                flat = self.node("Reshape", [names[0], shape], "/model/embed_tokens/Reshape")
                rows = self.contrib(
                    "GatherBlockQuantized",
                    [flat, "input_ids", *names[1:]],
                    "/model/embed_tokens/GatherBlockQuantized",
                    bits=table.bits,
                    block_size=table.block,
                    gather_axis=0,
                    quantize_axis=1,
                )
            else:
                weight = self.floats(f"{name}.weight", table.dense().values)
                rows = self.node("Gather", [weight, "input_ids"], "/model/embed_tokens/Gather")

            def project(x: str, output: str) -> str:
                return self.blocked_gemm(x, names, table, head, [output])

        if s.embedding_scale != 1:
            scale = self.floats("embed_scale", np.array(s.embedding_scale))
            rows = self.node("Mul", [rows, scale], "/model/embed_tokens/Mul")
        if not s.tied:

            def project(x: str, output: str) -> str:
                return self.product(x, self.source.linear("output", s.vocabulary, s.hidden), head, output=output)

        return rows, project

    def rotary_caches(self) -> tuple[str, str]:
        s = self.spec
        inverse = s.rope_base ** (-np.arange(0, s.rope_size, 2, dtype=np.float64) / s.rope_size) / s.rope_scale
        for factors in ("rope_freqs", "rope_factors_short"):
            if self.source.has(factors):
                inverse = inverse / self.source.vector(factors, s.rope_size // 2)
        angles = np.arange(s.context, dtype=np.float64)[:, None] * inverse
        cos, sin = np.cos(angles) * s.rope_magnitude, np.sin(angles) * s.rope_magnitude
        return self.floats("cos_cache", cos), self.floats("sin_cache", sin)

    def sequence_lengths(self) -> tuple[str, str]:
        """GroupQueryAttention's seqlens_k (tokens of each sequence less one) and total_sequence_length."""
        path = "/model/attn_mask_reformat/attn_mask_subgraph"
        one, axis = self.constant("one", np.array(1, np.int64)), self.constant("axis_1", np.array([1], np.int64))
        count = self.node("ReduceSum", ["attention_mask", axis], f"{path}/ReduceSum", keepdims=0)
        less = self.node("Sub", [count, one], f"{path}/Sub")
        lengths = self.node("Cast", [less], f"{path}/Sub/Cast", to=TensorProto.INT32)
        shape = self.node("Shape", ["attention_mask"], f"{path}/Shape")
        total = self.node("Gather", [shape, one], f"{path}/Gather", axis=0)
        return lengths, self.node("Cast", [total], f"{path}/Gather/Cast", to=TensorProto.INT32)

    def head_norm(self, x: str, path: str, weight: str, heads: int) -> str:
        """RMS norm of each head of [batch, new, heads * size]."""
        s = self.spec
        split = self.constant(f"{path}/split", np.array([0, -1, s.head_size], np.int64))
        whole = self.constant(f"{path}/whole", np.array([0, -1, heads * s.head_size], np.int64))
        rows = self.node("Reshape", [x, split], f"{path}/Reshape_1")
        scale = self.floats(f"{path}.weight", self.source.vector(weight, s.head_size))
        y = self.node(
            "SimplifiedLayerNormalization", [rows, scale], f"{path}/Norm", axis=-1, epsilon=s.epsilon, stash_type=1
        )
        return self.node("Reshape", [y, whole], f"{path}/Reshape_2")

    def attention(self, x: str, layer: int, shared: list[str]) -> str:
        s, path, blk = self.spec, f"/model/layers.{layer}/attn", f"blk.{layer}"
        widths = {"q": s.heads * s.head_size, "k": s.kv_heads * s.head_size, "v": s.kv_heads * s.head_size}
        biases: dict[str, Array | None] = dict.fromkeys(widths)
        if s.qkv_bias:
            biases = {w: self.source.vector(f"{blk}.attn_{w}.bias", n) for w, n in widths.items()}
        packed: Linear | None
        if self.source.has(f"{blk}.attn_qkv"):
            packed = self.source.linear(f"{blk}.attn_qkv", sum(widths.values()), s.hidden)
            parts: dict[str, Linear] = {}
        else:
            parts = {w: self.source.linear(f"{blk}.attn_{w}", n, s.hidden) for w, n in widths.items()}
            packed = None if s.qk_norm else concatenated(list(parts.values()))
        if packed is not None:
            bias = np.concatenate([b for b in biases.values() if b is not None]) if s.qkv_bias else None
            heads = [self.product(x, packed, f"{path}/qkv_proj/MatMul", bias), "", ""]
        else:
            heads = [self.product(x, parts[w], f"{path}/{w}_proj/MatMul", biases[w]) for w in widths]
        if s.qk_norm:
            heads[0] = self.head_norm(heads[0], f"{path}/q_norm", f"{blk}.attn_q_norm", s.heads)
            heads[1] = self.head_norm(heads[1], f"{path}/k_norm", f"{blk}.attn_k_norm", s.kv_heads)
        y = f"{path}/GroupQueryAttention/output_0"
        self.contrib(
            "GroupQueryAttention",
            [*heads, f"past_key_values.{layer}.key", f"past_key_values.{layer}.value", *shared],
            f"{path}/GroupQueryAttention",
            [y, f"present.{layer}.key", f"present.{layer}.value"],
            num_heads=s.heads,
            kv_num_heads=s.kv_heads,
            scale=s.head_size**-0.5,
            local_window_size=s.window,
            softcap=0.0,
            do_rotary=1,
            rotary_interleaved=0,
        )
        return self.product(y, self.source.linear(f"{blk}.attn_output", s.hidden, widths["q"]), f"{path}/o_proj/MatMul")

    def mlp(self, x: str, layer: int) -> str:
        s, path, blk = self.spec, f"/model/layers.{layer}/mlp", f"blk.{layer}"
        if self.source.has(f"{blk}.ffn_gate"):
            gate = self.source.linear(f"{blk}.ffn_gate", s.intermediate, s.hidden)
            up = self.source.linear(f"{blk}.ffn_up", s.intermediate, s.hidden)
        else:  # both in one
            both = self.source.linear(f"{blk}.ffn_up", 2 * s.intermediate, s.hidden)
            gate, up = (both.rows(np.arange(k * s.intermediate, (k + 1) * s.intermediate)) for k in (0, 1))
        g = self.product(x, gate, f"{path}/gate_proj/MatMul")
        u = self.product(x, up, f"{path}/up_proj/MatMul")
        if s.gelu:
            acted = self.node("Gelu", [g], f"{path}/act_fn/Gelu", approximate="tanh")
        else:
            sigmoid = self.node("Sigmoid", [g], f"{path}/act_fn/Sigmoid")
            acted = self.node("Mul", [g, sigmoid], f"{path}/act_fn/Mul")
        y = self.node("Mul", [acted, u], f"{path}/Mul")
        return self.product(
            y, self.source.linear(f"{blk}.ffn_down", s.hidden, s.intermediate), f"{path}/down_proj/MatMul"
        )

    def norm(self, x: str, residual: str, path: str, weight: str) -> tuple[str, str]:
        """RMS norm of x + residual, and that sum; without a residual of x."""
        scale = self.floats(f"{path}.weight", self.source.vector(weight, self.spec.hidden))
        if not residual:
            y = self.node(
                "SimplifiedLayerNormalization", [x, scale], path, axis=-1, epsilon=self.spec.epsilon, stash_type=1
            )
            return y, x
        outputs = [f"{path}/output_0", "", "", f"{path}/output_3"]
        self.contrib("SkipSimplifiedLayerNormalization", [residual, x, scale], path, outputs, epsilon=self.spec.epsilon)
        return outputs[0], outputs[3]

    def build(self, progress: Callable[[int, int], object] | None) -> onnx.ModelProto:
        s = self.spec
        rows, project = self.embedding()
        shared = [*self.sequence_lengths(), *self.rotary_caches()]
        x, residual = rows, ""
        for layer in range(s.layers):
            if progress:
                progress(layer, s.layers)
            path = f"/model/layers.{layer}"
            normed, residual = self.norm(x, residual, f"{path}/input_layernorm/LayerNorm", f"blk.{layer}.attn_norm")
            attended = self.attention(normed, layer, shared)
            normed, residual = self.norm(
                attended, residual, f"{path}/post_attention_layernorm/SkipLayerNorm", f"blk.{layer}.ffn_norm"
            )
            x = self.mlp(normed, layer)
        normed, _ = self.norm(
            x, residual, f"/model/layers.{s.layers}/final_norm_layernorm/SkipLayerNorm", "output_norm"
        )
        if self.type == TensorProto.BFLOAT16:  # genai takes logits of float32 and float16
            self.node("Cast", [project(normed, "logits_bf16")], "/lm_head/Cast", ["logits"], to=TensorProto.FLOAT)
        else:
            project(normed, "logits")
        if progress:
            progress(s.layers, s.layers)
        return self.model()

    def model(self) -> onnx.ModelProto:
        s, value = self.spec, helper.make_tensor_value_info
        logits = TensorProto.FLOAT if self.type == TensorProto.BFLOAT16 else self.type
        inputs = [
            value("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
            value("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"]),
        ]
        outputs = [value("logits", logits, ["batch_size", "sequence_length", s.vocabulary])]
        for layer in range(s.layers):
            for half in ("key", "value"):
                shape = ["batch_size", s.kv_heads, "past_sequence_length", s.head_size]
                inputs.append(value(f"past_key_values.{layer}.{half}", self.type, shape))
                shape = ["batch_size", s.kv_heads, "total_sequence_length", s.head_size]
                outputs.append(value(f"present.{layer}.{half}", self.type, shape))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="sardonyx convert-gguf")


def write_decoder(
    spec: DecoderSpec,
    source: WeightSource,
    folder: str,
    activations: str,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Writes model.onnx and model.onnx.data into the folder. activations: "fp32", "fp16" or "bf16", the type of
    everything that is not quantised. Weights are taken and written one after another."""
    name = "model.onnx.data"
    try:
        with open(os.path.join(folder, name), "wb") as file:
            model = _Builder(spec, source, activations, _ExternalData(name, file)).build(progress)
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.write(model.SerializeToString())
    except Error:
        raise
    except OSError as error:
        raise FileError(f"'{folder}' could not be written: {error}") from None
