"""The engines that run a whole model: Sardonyx, and PyTorch with the network of the same ONNX file (onnx_torch.py) or with
a reference implementation of the same architecture (from torchvision or transformers; random weights, only timed)."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import onnx
import torch
from gpu_measure import Engine
from onnx_torch import to_torch

#: name: file, sizes of symbolic dims by row
MODELS: dict[str, tuple[str, list[dict[str, int]]]] = {
    "ResNet-50": ("resnet50", [{"batch": n} for n in (1, 8, 16, 32, 64)]),
    "BERT-Base": ("bert_base", [{"batch": n, "sequence": s} for s in (128, 384, 512) for n in (1, 8)]),
    "ViT-B/16": ("vit_b_16_dynamo", [{"batch": n} for n in (1, 8)]),
    "Whisper-tiny encoder": ("whisper_tiny_encoder", [{"batch": n} for n in (1, 8)]),
    "YOLOv5s": ("yolov5s", [{"batch": n} for n in (1, 8, 32)]),
}
PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def our_device(device: str) -> str:
    """Sardonyx's name of a torch device."""
    if not device.startswith("cuda"):
        return "host"
    return device.replace("cuda", "hip") if torch.version.hip else device


class Ours:
    """Sardonyx on torch tensors, in place: nothing is copied to or from the host."""

    def __init__(self, model: Any, feed: dict[str, torch.Tensor]):
        self.model, self.feed = model, feed
        device = next(iter(feed.values())).device
        shapes = model.output_shapes({name: tuple(x.shape) for name, x in feed.items()})
        self.out = {
            info.name: torch.empty(shapes[info.name], dtype=getattr(torch, info.dtype.name), device=device)
            for info in model.outputs
        }
        self.cuda = device.type == "cuda"
        arguments: dict[str, Any] = {}
        if self.cuda:
            arguments = {"stream": torch.cuda.current_stream().cuda_stream, "synchronize": False}
        self.run = model.bind(feed, self.out, **arguments)

    def __call__(self) -> None:
        self.run()

    def results(self) -> list[torch.Tensor]:
        self.run()
        if self.cuda:
            torch.cuda.synchronize()
        return list(self.out.values())


def feed_of(path: pathlib.Path, sizes: dict[str, int], device: str) -> dict[str, torch.Tensor]:
    import models

    return {
        name: torch.from_numpy(np.ascontiguousarray(x)).to(device) for name, x in models.inputs(path, sizes).items()
    }


def theirs_of(feed: dict[str, torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """The same inputs in PyTorch's fastest form: floats in the precision, images channels last."""
    out = []
    for x in feed.values():
        if x.is_floating_point():
            x = x.to(dtype)
        out.append(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
    return out


def onnxruntime_provider(device: str) -> str:
    """ONNX Runtime's provider for a torch device; empty if it is not installed."""
    from gpu_measure import onnxruntime_providers

    wanted = "CPUExecutionProvider" if not device.startswith("cuda") else "CUDAExecutionProvider"
    return wanted if wanted in onnxruntime_providers() else ""


class OnnxRuntime:
    """ONNX Runtime on the same tensors, bound in place, in the model's own types."""

    def __init__(self, path: pathlib.Path, feed: dict[str, torch.Tensor], out: dict[str, torch.Tensor], provider: str):
        import onnxruntime

        options: Any = {}
        device = next(iter(feed.values())).device
        if device.type == "cuda":
            stream = torch.cuda.current_stream().cuda_stream
            options = {"device_id": device.index or 0, "user_compute_stream": str(stream)}
        self.session = onnxruntime.InferenceSession(str(path), providers=[(provider, options)])
        self.out = {name: torch.empty_like(x) for name, x in out.items()}
        self.binding = self.session.io_binding()
        for bind, tensors in ((self.binding.bind_input, feed), (self.binding.bind_output, self.out)):
            for name, x in tensors.items():
                kind = str(x.dtype).rpartition(".")[2]
                bind(name, device.type, device.index or 0, np.dtype(kind), tuple(x.shape), x.data_ptr())
        self.keep = feed
        self.options = onnxruntime.RunOptions()
        self.options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self()

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding, self.options)


@functools.lru_cache(maxsize=2)
def graph_of(path: pathlib.Path) -> onnx.ModelProto:
    return onnx.load(path)


def walk(path: pathlib.Path, feed: dict[str, torch.Tensor], dtype: torch.dtype, device: str) -> torch.nn.Module:
    shapes = {name: tuple(x.shape) for name, x in feed.items()}
    return to_torch(graph_of(path), shapes, dtype).to(device)


def has_reference(file: str) -> bool:
    return file in ("resnet50", "vit_b_16_dynamo", "bert_base", "whisper_tiny_encoder")


def reference(file: str, dtype: torch.dtype, device: str) -> torch.nn.Module | None:
    """The reference implementation; None if its library is not installed."""
    try:
        if file == "resnet50":
            from torchvision.models import resnet50

            module = resnet50(weights=None)
        elif file == "vit_b_16_dynamo":
            from torchvision.models import vit_b_16

            module = vit_b_16(weights=None)
        elif file == "bert_base":
            from transformers import BertConfig, BertModel

            module = BertModel(BertConfig(attn_implementation="sdpa"))
        elif file == "whisper_tiny_encoder":
            from transformers import WhisperConfig
            from transformers.models.whisper.modeling_whisper import WhisperEncoder

            config = WhisperConfig(
                d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, num_mel_bins=80
            )
            config._attn_implementation = "sdpa"
            module = WhisperEncoder(config)
        else:
            return None
    except ImportError:
        return None
    module = module.eval().requires_grad_(False).to(device=device, dtype=dtype)
    return module.to(memory_format=torch.channels_last) if file in ("resnet50", "vit_b_16_dynamo") else module


def compiled(module: torch.nn.Module, mode: str) -> torch.nn.Module:
    """Compiles for one size; earlier compilations are discarded, so that sizes do not become symbolic."""
    return torch.compile(module, mode=mode, dynamic=False, fullgraph=True)


def call(module: torch.nn.Module, arguments: list[torch.Tensor], file: str, is_reference: bool) -> Engine:
    if is_reference and file == "bert_base":
        ids, mask, kinds = arguments
        return lambda: module(input_ids=ids, attention_mask=mask, token_type_ids=kinds)
    return lambda: module(*arguments)
