"""Architectures at their real sizes, with random weights: what the zoo of gpu_zoo.py measures.

Each is a torch module and example inputs for a batch; torchvision and transformers have most of them, the networks of a
latent diffusion model are written out here. Nothing was tuned on a list: new rows are welcome where they say something
that the others don't.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


@dataclasses.dataclass
class Architecture:
    """`module()` is on the CPU in float32; `inputs(batch)` are its arguments, seeded."""

    name: str
    kind: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[torch.Tensor, ...]]

    def module(self) -> nn.Module:
        """The module in evaluation mode; its random weights are the same each time."""
        torch.manual_seed(0)
        return self.make().eval().requires_grad_(False)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def images(*shape: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda batch: (torch.randn(batch, *shape, generator=generator()),)


def tokens(length: int, vocabulary: int = 1000) -> Callable[[int], tuple[torch.Tensor, ...]]:
    return lambda batch: (torch.randint(3, vocabulary, (batch, length), generator=generator()),)


class Outputs(nn.Module):
    """Of what a library's module gives only its tensors, in order: what exporters and CUDA graphs take."""

    def __init__(self, module: nn.Module, first_only: bool = True, **settings: Any):
        super().__init__()
        self.module, self.first_only, self.settings = module, first_only, settings

    def forward(self, x: torch.Tensor) -> Any:
        y = self.module(x, **self.settings)
        if isinstance(y, torch.Tensor):
            return y
        values = list(y.values()) if hasattr(y, "values") else list(y)
        found = [v for v in values if isinstance(v, torch.Tensor)]
        return found[0] if self.first_only else tuple(found)


# ---- torchvision

IMAGE = ["alexnet", "vgg16_bn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "googlenet", "inception_v3", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_3_2gf", "regnet_x_3_2gf", "convnext_tiny", "swin_t", "swin_v2_t", "maxvit_t", "vit_b_16"]  # fmt: skip
SEGMENTATION = ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]
VIDEO = {"r3d_18": 112, "mc3_18": 112, "r2plus1d_18": 112, "s3d": 224, "mvit_v2_s": 224, "swin3d_t": 224}


def torchvision_model(group: str, name: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision.models as models

        place = getattr(models, group) if group else models
        return Outputs(getattr(place, name)(weights=None, **settings))

    return make


class Detector(nn.Module):
    """Backbone and heads of a torchvision detector; what selects boxes depends on values and is not measured."""

    def __init__(self, name: str):
        super().__init__()
        import torchvision.models.detection as detection

        model = getattr(detection, name)(weights=None, weights_backbone=None)
        self.backbone, self.head = model.backbone, model.head

    def forward(self, x: torch.Tensor) -> Any:
        features = list(self.backbone(x).values())
        return tuple(self.head(features).values())


def torchvision_rows() -> list[Architecture]:
    rows = []
    for name in IMAGE:
        size = 299 if name == "inception_v3" else 256 if name == "swin_v2_t" else 224
        settings = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        rows.append(Architecture(name, "image", torchvision_model("", name, **settings), images(3, size, size)))
    for name in SEGMENTATION:
        size = 256 if name.startswith("lraspp") else 520
        make = torchvision_model("segmentation", name, weights_backbone=None)
        rows.append(Architecture(name, "segmentation", make, images(3, size, size)))
    for name, size in VIDEO.items():
        rows.append(Architecture(name, "video", torchvision_model("video", name), images(3, 16, size, size)))
    for name, size in (
        ("retinanet_resnet50_fpn", 640),
        ("fcos_resnet50_fpn", 640),
        ("ssdlite320_mobilenet_v3_large", 320),
    ):
        rows.append(Architecture(name, "detection", lambda name=name: Detector(name), images(3, size, size)))
    return rows


# ---- transformers

#: name: class of the model, class of its configuration, settings that differ from the configuration's defaults
TEXT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "distilbert": ("DistilBertModel", "DistilBertConfig", {}),
    "roberta_base": ("RobertaModel", "RobertaConfig", {}),
    "albert_base": (
        "AlbertModel",
        "AlbertConfig",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "electra_base": ("ElectraModel", "ElectraConfig", {"hidden_size": 768, "num_attention_heads": 12}),
    "mpnet": ("MPNetModel", "MPNetConfig", {}),
    "deberta_v2": (
        "DebertaV2Model",
        "DebertaV2Config",
        {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "mobilebert": ("MobileBertModel", "MobileBertConfig", {}),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {}),
    "fnet": ("FNetModel", "FNetConfig", {}),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {}),
    "t5_encoder": ("T5EncoderModel", "T5Config", {}),
    "gpt2": ("GPT2Model", "GPT2Config", {"use_cache": False}),
    "opt_350m": ("OPTModel", "OPTConfig", {"use_cache": False}),
    "bloom_560m": ("BloomModel", "BloomConfig", {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "use_cache": False}),
    "pythia_410m": (
        "GPTNeoXModel",
        "GPTNeoXConfig",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "use_cache": False,
        },
    ),
    "qwen2_0_5b": (
        "Qwen2Model",
        "Qwen2Config",
        {
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
            "use_cache": False,
        },
    ),
    "gemma2_2b_4_layers": (
        "Gemma2Model",
        "Gemma2Config",
        {"num_hidden_layers": 4, "use_cache": False},
    ),
    "mixtral_2_layers": (
        "MixtralModel",
        "MixtralConfig",
        {"hidden_size": 1024, "num_hidden_layers": 2, "intermediate_size": 3584, "use_cache": False},
    ),
    "mamba_130m": ("MambaModel", "MambaConfig", {"hidden_size": 768, "num_hidden_layers": 24, "use_cache": False}),
    "rwkv_169m": ("RwkvModel", "RwkvConfig", {"hidden_size": 768, "num_hidden_layers": 12, "use_cache": False}),
}
VISION: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "deit_small": (
        "DeiTModel",
        "DeiTConfig",
        {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
        224,
    ),
    "beit_base": ("BeitModel", "BeitConfig", {}, 224),
    "dinov2_small": ("Dinov2Model", "Dinov2Config", {"hidden_size": 384, "num_attention_heads": 6}, 224),
    "convnextv2_tiny": ("ConvNextV2Model", "ConvNextV2Config", {}, 224),
    "poolformer_s12": ("PoolFormerModel", "PoolFormerConfig", {}, 224),
    "segformer_b0": ("SegformerForSemanticSegmentation", "SegformerConfig", {}, 512),
    "pvt_v2_b0": ("PvtV2Model", "PvtV2Config", {}, 224),
    "cvt_13": ("CvtModel", "CvtConfig", {}, 224),
    "levit": ("LevitModel", "LevitConfig", {}, 224),
    "mobilevit_small": ("MobileViTModel", "MobileViTConfig", {}, 256),
    "focalnet_tiny": ("FocalNetModel", "FocalNetConfig", {}, 224),
    "yolos_small": (
        "YolosModel",
        "YolosConfig",
        {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "image_size": [512, 512]},
        512,
    ),
    "clip_vision": ("CLIPVisionModel", "CLIPVisionConfig", {}, 224),
    "siglip_vision": ("SiglipVisionModel", "SiglipVisionConfig", {}, 224),
}
SPEECH: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {
    "wav2vec2_base": ("Wav2Vec2Model", "Wav2Vec2Config", {}, (32000,)),
    "hubert_base": ("HubertModel", "HubertConfig", {}, (32000,)),
    "wavlm_base": ("WavLMModel", "WavLMConfig", {}, (32000,)),
    "audio_spectrogram": ("ASTModel", "ASTConfig", {}, (1024, 128)),
}


def library_model(model: str, config: str, settings: dict[str, Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        c = getattr(transformers, config)(**settings)
        c.return_dict = False
        return Outputs(getattr(transformers, model)(c))

    return make


def transformers_rows() -> list[Architecture]:
    rows = [Architecture(n, "text", library_model(m, c, s), tokens(256)) for n, (m, c, s) in TEXT.items()]
    for n, (m, c, s, size) in VISION.items():
        rows.append(Architecture(n, "vision", library_model(m, c, s), images(3, size, size)))
    rows += [
        Architecture(n, "speech", library_model(m, c, s), images(*shape)) for n, (m, c, s, shape) in SPEECH.items()
    ]
    patches = {"num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 16}
    rows.append(
        Architecture("patchtst", "series", library_model("PatchTSTModel", "PatchTSTConfig", patches), images(512, 7))
    )
    return rows


# ---- latent diffusion


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, out: int, embedding: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(embedding, out) if embedding else None
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor | None = None) -> torch.Tensor:
        y = self.conv1(nn.functional.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(nn.functional.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels: int, heads: int, context: int | None = None):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(channels, channels, bias=False)
        self.k, self.v = (nn.Linear(context or channels, channels, bias=False) for _ in range(2))
        self.out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        source = x if context is None else context
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q(x), self.k(source), self.v(source))
        )
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """Of a diffusion model's U-net: attention to itself, to the text, and a gated layer."""

    def __init__(self, channels: int, heads: int, context: int):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.into, self.back = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own, self.cross = Attention(channels, heads), Attention(channels, heads, context)
        self.gated, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[2:]
        y = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        a, gate = self.gated(self.norms[2](y)).chunk(2, dim=-1)
        y = y + self.down(a * nn.functional.gelu(gate))
        return x + self.back(y.transpose(1, 2).unflatten(2, (h, w)))


class DiffusionUnet(nn.Module):
    """The U-net of Stable Diffusion 1 by shape: 860 M parameters, latents of 64 x 64, 77 tokens of 768."""

    def __init__(self, width: int = 320, context: int = 768):
        super().__init__()
        embedding, sizes = 4 * width, [width, 2 * width, 4 * width, 4 * width]
        self.width, self.time = (
            width,
            nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding)),
        )
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, skips = width, [width]
        for level, size in enumerate(sizes):
            for _ in range(2):
                attention = TransformerBlock(size, 8, context) if level < 3 else None
                self.down.append(nn.ModuleList([ResidualBlock(channels, size, embedding)] + [attention] * (level < 3)))
                channels = size
                skips.append(size)
            if level < 3:
                self.down.append(nn.ModuleList([nn.Conv2d(size, size, 3, stride=2, padding=1)]))
                skips.append(size)
        self.middle = nn.ModuleList(
            [
                ResidualBlock(channels, channels, embedding),
                TransformerBlock(channels, 8, context),
                ResidualBlock(channels, channels, embedding),
            ]
        )
        for level, size in reversed(list(enumerate(sizes))):
            for k in range(3):
                parts = [ResidualBlock(channels + skips.pop(), size, embedding)]
                if level < 3:
                    parts.append(TransformerBlock(size, 8, context))
                if k == 2 and level > 0:
                    parts.append(nn.Conv2d(size, size, 3, padding=1))
                self.up.append(nn.ModuleList(parts))
                channels = size
        self.norm, self.last = nn.GroupNorm(32, width), nn.Conv2d(width, 4, 3, padding=1)

    def apply_parts(self, parts: Any, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        for part in parts:
            if isinstance(part, ResidualBlock):
                x = part(x, t)
            elif isinstance(part, TransformerBlock):
                x = part(x, context)
            elif part.stride == (2, 2):
                x = part(x)
            else:
                x = part(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return x

    def forward(self, x: torch.Tensor, step: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(
            -9.21034 / (self.width // 2) * torch.arange(self.width // 2, device=x.device, dtype=torch.float32)
        )
        angles = step[:, None].float() * rates
        t = self.time(torch.cat([angles.cos(), angles.sin()], dim=1).to(x.dtype))
        x = self.first(x)
        kept = [x]
        for parts in self.down:
            x = self.apply_parts(parts, x, t, context)
            kept.append(x)
        x = self.apply_parts(self.middle, x, t, context)
        for parts in self.up:
            x = self.apply_parts(parts, torch.cat([x, kept.pop()], dim=1), t, context)
        return self.last(nn.functional.silu(self.norm(x)))


class ImageDecoder(nn.Module):
    """The decoder of Stable Diffusion's autoencoder by shape: latents of 32 x 32 to images of 256 x 256."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 512, 3, padding=1)
        self.norm_attention, self.attention = nn.GroupNorm(32, 512), Attention(512, 1)
        self.middle = nn.ModuleList(ResidualBlock(512, 512, 0) for _ in range(2))
        blocks: list[nn.Module] = []
        channels = 512
        for level, size in enumerate((512, 512, 256, 128)):
            for _ in range(3):
                blocks.append(ResidualBlock(channels, size, 0))
                channels = size
            if level < 3:
                blocks += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(size, size, 3, padding=1)]
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.last = nn.GroupNorm(32, 128), nn.Conv2d(128, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.middle[0](self.first(x))
        h, w = x.shape[2:]
        x = x + self.attention(self.norm_attention(x).flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, (h, w))
        return self.last(nn.functional.silu(self.norm(self.blocks(self.middle[1](x)))))


def diffusion_rows() -> list[Architecture]:
    def unet_inputs(batch: int) -> tuple[torch.Tensor, ...]:
        g = generator()
        latents, context = torch.randn(batch, 4, 64, 64, generator=g), torch.randn(batch, 77, 768, generator=g)
        return latents, torch.full((batch,), 500), context

    return [
        Architecture("diffusion_unet", "diffusion", DiffusionUnet, unet_inputs),
        Architecture("diffusion_decoder", "diffusion", ImageDecoder, images(4, 32, 32)),
    ]


def architectures() -> list[Architecture]:
    return torchvision_rows() + transformers_rows() + diffusion_rows()
