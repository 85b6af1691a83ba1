"""Architectures at their real sizes, with random weights: what the zoo of gpu_zoo.py measures.

Each is a torch module and example inputs for a batch; torchvision, transformers and timm have most of them, the networks
of a latent diffusion model are written out here. Nothing was tuned on a list: new rows are welcome where they say something
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
        """The module in evaluation mode, with the same weights each time. Activations keep a size of about one, so that
        results can be compared in fp16."""
        torch.manual_seed(0)
        module = self.make().eval().requires_grad_(False)
        vary(module)
        calibrate(module, self.inputs(2))
        return module


def vary(module: nn.Module) -> None:
    """Makes constant parameters random. Layer scales that start at 1e-6 and biases of zero would hide what their
    operators compute."""
    random = generator()
    for parameter in module.parameters():
        if parameter.numel() < 2 or not bool((parameter == parameter.flatten()[0]).all()):
            continue
        value, noise = float(parameter.flatten()[0]), torch.randn(parameter.shape, generator=random)
        scale = 0.2 if 0 < value < 0.05 else value  # a layer scale, which training makes larger
        parameter.copy_(scale * (1 + 0.1 * noise) if value else 0.05 * noise)


#: The least variance that a calibrated channel gets, as a share of its layer's mean: channels that a ReLU has cleared
#: would be multiplied by 1 / sqrt(epsilon).
LEAST_VARIANCE = 0.05


def calibrate(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Sets the statistics of batch normalisation to those of the inputs. With the initial ones (mean 0, variance 1)
    activations of random networks grow or vanish by a factor per layer: MobileNetV3's are zero in fp16."""

    def measure(norm: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        x = arguments[0]
        dims = [d for d in range(x.ndim) if d != 1]
        variance = x.var(dims, unbiased=False)
        norm.running_mean.copy_(x.mean(dims))
        norm.running_var.copy_(variance.clamp_min(LEAST_VARIANCE * float(variance.mean())))

    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    hooks = [m.register_forward_pre_hook(measure) for m in norms]
    if hooks:
        with torch.no_grad():
            module(*inputs)
    for hook in hooks:
        hook.remove()


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
        for name in ("last_hidden_state", "transformer_decoder_last_hidden_state") if self.first_only else ():
            if isinstance(getattr(y, name, None), torch.Tensor):
                return getattr(y, name)
        values = list(y.values()) if hasattr(y, "values") else list(y)
        found = [v for v in values if isinstance(v, torch.Tensor)]
        return found[0] if self.first_only else tuple(found)


# ---- torchvision

IMAGE = ["alexnet", "vgg16_bn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "googlenet", "inception_v3", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "mnasnet1_0", "shufflenet_v2_x1_0", "efficientnet_b0", "efficientnet_v2_s", "regnet_y_3_2gf", "regnet_x_3_2gf", "convnext_tiny", "swin_t", "swin_v2_t", "maxvit_t", "vit_b_16", "resnet34", "resnext101_32x8d", "vgg19", "densenet169", "mobilenet_v3_small", "mnasnet0_5", "shufflenet_v2_x0_5", "efficientnet_b4", "regnet_y_400mf", "convnext_base", "swin_s"]  # fmt: skip
SEGMENTATION = ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]
VIDEO = {
    "r3d_18": 112,
    "mc3_18": 112,
    "r2plus1d_18": 112,
    "s3d": 224,
    "mvit_v2_s": 224,
    "mvit_v1_b": 224,
    "swin3d_t": 224,
}
DETECTION = {
    "retinanet_resnet50_fpn": 640,
    "fcos_resnet50_fpn": 640,
    "ssdlite320_mobilenet_v3_large": 320,
    "ssd300_vgg16": 300,
}
#: Sizes of small images; other rows have 64. Some networks take no other size than their own.
SMALL_IMAGES = {"inception_v3": 96, "maxvit_t": 224, "s3d": 224, "mvit_v2_s": 224, "mvit_v1_b": 224, "r3d_18": 32, "mc3_18": 32, "r2plus1d_18": 32} | dict.fromkeys(DETECTION, 128) | {"ssd300_vgg16": 300}  # fmt: skip


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


def torchvision_rows(small: bool) -> list[Architecture]:
    def size_of(name: str, size: int) -> int:
        return SMALL_IMAGES.get(name, 64) if small else size

    rows = []
    for name in IMAGE:
        size = size_of(name, 299 if name == "inception_v3" else 256 if name == "swin_v2_t" else 224)
        settings: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        if name == "vit_b_16":
            settings = {"image_size": size}
        rows.append(Architecture(name, "image", torchvision_model("", name, **settings), images(3, size, size)))
    for name in SEGMENTATION:
        size = size_of(name, 256 if name.startswith("lraspp") else 520)
        make = torchvision_model("segmentation", name, weights_backbone=None)
        rows.append(Architecture(name, "segmentation", make, images(3, size, size)))
    for name, full in VIDEO.items():
        size = size_of(name, full)
        rows.append(Architecture(name, "video", torchvision_model("video", name), images(3, 16, size, size)))
    for name, full in DETECTION.items():
        size = size_of(name, full)
        rows.append(Architecture(name, "detection", lambda name=name: Detector(name), images(3, size, size)))
    return rows


# ---- transformers


@dataclasses.dataclass
class Entry:
    """Of transformers: classes of model and configuration, settings that differ from the configuration's defaults, and
    those of the small variant, which replace or join them (None: left out)."""

    model: str
    config: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    small: dict[str, Any] = dataclasses.field(default_factory=dict)


def base(**settings: Any) -> dict[str, Any]:
    """Widths of a "base" encoder, for configurations whose defaults are of another size."""
    return {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072} | settings


DEIT_SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
NO_CACHE = {"use_cache": False}
PYTHIA = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
QWEN2 = {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2}
QWEN2 |= {"intermediate_size": 4864}
BLOOM = {"hidden_size": 1024, "n_layer": 24, "n_head": 16}
MIXTRAL = {"hidden_size": 1024, "num_hidden_layers": 2, "intermediate_size": 3584}
SMALL = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}
SMALL_TEXT = SMALL | {"num_hidden_layers": 2, "vocab_size": 1000}
SMALL_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 96, 128]}

TEXT: dict[str, Entry] = {
    "distilbert": Entry("DistilBertModel", "DistilBertConfig", {}, {"hidden_dim": 256}),
    "roberta_base": Entry("RobertaModel", "RobertaConfig"),
    "albert_base": Entry("AlbertModel", "AlbertConfig", base()),
    "electra_base": Entry("ElectraModel", "ElectraConfig", {"hidden_size": 768, "num_attention_heads": 12}),
    "mpnet": Entry("MPNetModel", "MPNetConfig"),
    "deberta_v2": Entry("DebertaV2Model", "DebertaV2Config", base(num_hidden_layers=12)),
    "mobilebert": Entry("MobileBertModel", "MobileBertConfig", {}, {"hidden_size": 512, "intermediate_size": 512}),
    "squeezebert": Entry("SqueezeBertModel", "SqueezeBertConfig", {}, {"embedding_size": 128}),
    "fnet": Entry("FNetModel", "FNetConfig"),
    "modernbert": Entry("ModernBertModel", "ModernBertConfig", {}, {"pad_token_id": 0}),
    "t5_encoder": Entry("T5EncoderModel", "T5Config", {}, {"d_kv": 32, "d_ff": 256}),
    "gpt2": Entry("GPT2Model", "GPT2Config", NO_CACHE),
    "opt_350m": Entry("OPTModel", "OPTConfig", NO_CACHE, {"ffn_dim": 256, "word_embed_proj_dim": 64}),
    "bloom_560m": Entry("BloomModel", "BloomConfig", BLOOM | NO_CACHE, {"n_layer": 2, "n_head": 4}),
    "pythia_410m": Entry("GPTNeoXModel", "GPTNeoXConfig", PYTHIA | NO_CACHE),
    "qwen2_0_5b": Entry("Qwen2Model", "Qwen2Config", QWEN2 | NO_CACHE),
    "gemma2_2b_4_layers": Entry("Gemma2Model", "Gemma2Config", {"num_hidden_layers": 4} | NO_CACHE, {"head_dim": 32, "num_key_value_heads": 2}),
    "mixtral_2_layers": Entry("MixtralModel", "MixtralConfig", MIXTRAL | NO_CACHE, {"num_key_value_heads": 2}),
    "mamba_130m": Entry("MambaModel", "MambaConfig", {"hidden_size": 768, "num_hidden_layers": 24} | NO_CACHE),
    "bert_large": Entry("BertModel", "BertConfig", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}),
    "convbert_base": Entry("ConvBertModel", "ConvBertConfig"),
    "xlnet_base": Entry("XLNetModel", "XLNetConfig", {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}, {"d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 256}),
    "gpt_neo_125m": Entry("GPTNeoModel", "GPTNeoConfig", {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]} | NO_CACHE, {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
    "phi_4_layers": Entry("PhiModel", "PhiConfig", {"num_hidden_layers": 4} | NO_CACHE),
    "falcon_2_layers": Entry("FalconModel", "FalconConfig", {"num_hidden_layers": 2} | NO_CACHE),
    "stablelm_4_layers": Entry("StableLmModel", "StableLmConfig", {"num_hidden_layers": 4} | NO_CACHE, {"num_key_value_heads": 2}),
    "roformer": Entry("RoFormerModel", "RoFormerConfig", {}, {"embedding_size": 128}),
    "funnel_encoder": Entry("FunnelBaseModel", "FunnelConfig", {}, {"d_model": 128, "n_head": 4, "d_head": 32, "d_inner": 256, "block_sizes": [1, 1], "num_hidden_layers": None}),
    "bart_base": Entry("BartModel", "BartConfig", {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072} | NO_CACHE, {"d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}),
    "gptj_2_layers": Entry("GPTJModel", "GPTJConfig", {"n_layer": 2} | NO_CACHE, {"n_embd": 128, "n_head": 4, "rotary_dim": 16}),
    "mpt_4_layers": Entry("MptModel", "MptConfig", {"n_layers": 4} | NO_CACHE, {"d_model": 128, "n_heads": 4}),
    "mistral_2_layers": Entry("MistralModel", "MistralConfig", {"num_hidden_layers": 2} | NO_CACHE, {"num_key_value_heads": 2}),
    "phi3_4_layers": Entry("Phi3Model", "Phi3Config", {"num_hidden_layers": 4} | NO_CACHE, {"num_key_value_heads": 2, "pad_token_id": 0}),
    "olmo2_1b_4_layers": Entry("Olmo2Model", "Olmo2Config", {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "intermediate_size": 8192} | NO_CACHE, {"pad_token_id": 0}),
    "gemma3_1b_6_layers": Entry("Gemma3TextModel", "Gemma3TextConfig", {"hidden_size": 1152, "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 6912} | NO_CACHE, {"head_dim": 32}),
    "qwen3_0_6b_8_layers": Entry("Qwen3Model", "Qwen3Config", {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 3072} | NO_CACHE, {"num_key_value_heads": 2, "head_dim": 32}),
    "mamba2_130m_8_layers": Entry("Mamba2Model", "Mamba2Config", {"hidden_size": 768, "num_hidden_layers": 8, "num_heads": 24, "n_groups": 1} | NO_CACHE, {"hidden_size": 128, "num_heads": 4}),
    "granite_4_layers": Entry("GraniteModel", "GraniteConfig", {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192} | NO_CACHE, {"num_key_value_heads": 2}),
    "nystromformer": Entry("NystromformerModel", "NystromformerConfig", {}, {"segment_means_seq_len": 8, "num_landmarks": 8}),
    "starcoder2_4_layers": Entry("Starcoder2Model", "Starcoder2Config", {"num_hidden_layers": 4} | NO_CACHE, {"num_key_value_heads": 2}),
    "cohere_2_layers": Entry("CohereModel", "CohereConfig", {"num_hidden_layers": 2} | NO_CACHE, {"num_key_value_heads": 2}),
    "nemotron_2_layers": Entry("NemotronModel", "NemotronConfig", {"hidden_size": 3072, "num_hidden_layers": 2, "num_attention_heads": 24, "num_key_value_heads": 8, "intermediate_size": 9216, "head_dim": 128} | NO_CACHE, {"num_key_value_heads": 2, "head_dim": 32}),
    "glm_4_layers": Entry("GlmModel", "GlmConfig", {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2, "intermediate_size": 6144, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2, "head_dim": 32}),
    "olmoe_2_layers": Entry("OlmoeModel", "OlmoeConfig", {"num_hidden_layers": 2} | NO_CACHE, {"num_key_value_heads": 2, "num_experts": 8}),
    "biogpt_8_layers": Entry("BioGptModel", "BioGptConfig", {"num_hidden_layers": 8} | NO_CACHE),
    "persimmon_2_layers": Entry("PersimmonModel", "PersimmonConfig", {"num_hidden_layers": 2} | NO_CACHE),
    "smollm3_8_layers": Entry("SmolLM3Model", "SmolLM3Config", {"num_hidden_layers": 8, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "recurrent_gemma_3_layers": Entry("RecurrentGemmaModel", "RecurrentGemmaConfig", {"num_hidden_layers": 3} | NO_CACHE, {"num_key_value_heads": 1, "lru_width": 128}),
    "rwkv_169m": Entry("RwkvModel", "RwkvConfig", {"hidden_size": 768, "num_hidden_layers": 12} | NO_CACHE),
    "lfm2_6_layers": Entry("Lfm2Model", "Lfm2Config", {"hidden_size": 2048, "num_hidden_layers": 6, "layer_types": ["conv", "conv", "full_attention"] * 2, "pad_token_id": 0} | NO_CACHE, {"num_hidden_layers": 3, "layer_types": ["conv", "conv", "full_attention"], "num_key_value_heads": 2}),
    "glm4_2_layers": Entry("Glm4Model", "Glm4Config", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2, "head_dim": 32}),
    "exaone4_2_layers": Entry("Exaone4Model", "Exaone4Config", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "diffllama_4_layers": Entry("DiffLlamaModel", "DiffLlamaConfig", {"num_hidden_layers": 4, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "apertus_2_layers": Entry("ApertusModel", "ApertusConfig", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "bitnet_4_layers": Entry("BitNetModel", "BitNetConfig", {"num_hidden_layers": 4, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "helium_4_layers": Entry("HeliumModel", "HeliumConfig", {"num_hidden_layers": 4, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2, "head_dim": 32}),
    "xlm_6_layers": Entry("XLMModel", "XLMConfig", {"n_layers": 6}, {"emb_dim": 128, "n_layers": 2, "n_heads": 4}),
    "ctrl_6_layers": Entry("CTRLModel", "CTRLConfig", {"n_layer": 6} | NO_CACHE, {"n_embd": 128, "n_layer": 2, "n_head": 4, "dff": 256}),
    "canine": Entry("CanineModel", "CanineConfig", {}, {"vocab_size": None, "num_hidden_layers": 2, "local_transformer_stride": 24}),
    "rembert_8_layers": Entry("RemBertModel", "RemBertConfig", {"num_hidden_layers": 8}, {"input_embedding_size": 64}),
    "esm": Entry("EsmModel", "EsmConfig", base(num_hidden_layers=12, vocab_size=1000, pad_token_id=1, mask_token_id=32), {"position_embedding_type": "rotary"}),
    "deberta_base": Entry("DebertaModel", "DebertaConfig"),
    "qwen3_5_2_layers": Entry("Qwen3_5TextModel", "Qwen3_5TextConfig", {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32}),
    "granite_swa_2_layers": Entry("GraniteSWAModel", "GraniteSWAConfig", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "gpt_neox_japanese_2_layers": Entry("GPTNeoXJapaneseModel", "GPTNeoXJapaneseConfig", {"num_hidden_layers": 2} | NO_CACHE),
    "minicpm3_2_layers": Entry("MiniCPM3Model", "MiniCPM3Config", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}),
    "youtu_2_layers": Entry("YoutuModel", "YoutuConfig", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}),
    "arcee_2_layers": Entry("ArceeModel", "ArceeConfig", {"num_hidden_layers": 2, "pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "nanochat": Entry("NanoChatModel", "NanoChatConfig", {"pad_token_id": 0} | NO_CACHE, {"num_key_value_heads": 2}),
    "xlm_roberta_xl_2_layers": Entry("XLMRobertaXLModel", "XLMRobertaXLConfig", {"num_hidden_layers": 2}),
    "megatron_bert_8_layers": Entry("MegatronBertModel", "MegatronBertConfig", {"num_hidden_layers": 8}),
    "bigbird_pegasus_2_layers": Entry("BigBirdPegasusModel", "BigBirdPegasusConfig", {"encoder_layers": 2, "decoder_layers": 2} | NO_CACHE, {"d_model": 128, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256}),
}  # fmt: skip
#: With the size of the image.
VISION: dict[str, tuple[Entry, int]] = {
    "deit_small": (Entry("DeiTModel", "DeiTConfig", DEIT_SMALL), 224),
    "beit_base": (Entry("BeitModel", "BeitConfig"), 224),
    "dinov2_small": (Entry("Dinov2Model", "Dinov2Config", {"hidden_size": 384, "num_attention_heads": 6}), 224),
    "convnextv2_tiny": (Entry("ConvNextV2Model", "ConvNextV2Config", {}, SMALL_STAGES), 224),
    "poolformer_s12": (Entry("PoolFormerModel", "PoolFormerConfig", {}, SMALL_STAGES), 224),
    "segformer_b0": (Entry("SegformerForSemanticSegmentation", "SegformerConfig"), 512),
    "pvt_v2_b0": (Entry("PvtV2Model", "PvtV2Config"), 224),
    "cvt_13": (Entry("CvtModel", "CvtConfig", {}, {"depth": [1, 2, 3]}), 224),
    "levit": (Entry("LevitModel", "LevitConfig", {}, {"depths": [1, 1, 1]}), 224),
    "mobilevit_small": (Entry("MobileViTModel", "MobileViTConfig"), 256),
    "focalnet_tiny": (Entry("FocalNetModel", "FocalNetConfig", {}, {"depths": [1, 1, 1, 1]}), 224),
    "yolos_small": (Entry("YolosModel", "YolosConfig", DEIT_SMALL | {"image_size": [512, 512]}, {"image_size": [64, 64]}), 512),
    "clip_vision": (Entry("CLIPVisionModel", "CLIPVisionConfig"), 224),
    "vit_mae_base": (Entry("ViTMAEModel", "ViTMAEConfig", {"mask_ratio": 0.0}), 224),
    "data2vec_vision": (Entry("Data2VecVisionModel", "Data2VecVisionConfig"), 224),
    "mobilenet_v1": (Entry("MobileNetV1Model", "MobileNetV1Config"), 224),
    "bit_50": (Entry("BitModel", "BitConfig", {}, {"depths": [1, 1, 1, 1]}), 224),
    "glpn": (Entry("GLPNForDepthEstimation", "GLPNConfig"), 480),
    "hiera_tiny": (Entry("HieraModel", "HieraConfig", {"image_size": [224, 224]}, {"image_size": [64, 64], "depths": [1, 1, 1, 1]}), 224),
    "swin_hf_tiny": (Entry("SwinModel", "SwinConfig", {}, {"window_size": 2}), 224),
    "swin2sr": (Entry("Swin2SRModel", "Swin2SRConfig"), 64),
    "dpt_large_12_layers": (Entry("DPTForDepthEstimation", "DPTConfig", {"num_hidden_layers": 12, "backbone_out_indices": [2, 5, 8, 11]}, {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}), 384),
    "dinov2_registers_small": (Entry("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", {"hidden_size": 384, "num_attention_heads": 6}), 224),
    "ijepa_base": (Entry("IJepaModel", "IJepaConfig", {"num_hidden_layers": 12}), 224),
    "vitdet_base": (Entry("VitDetModel", "VitDetConfig", {"window_size": 14, "window_block_indices": [0, 1, 3, 4, 6, 7, 9, 10], "residual_block_indices": []}), 512),
    "sam_vision_base": (Entry("SamVisionModel", "SamVisionConfig", {"image_size": 512}), 512),
    "pvt_tiny": (Entry("PvtModel", "PvtConfig"), 224),
    "swinv2_hf_tiny": (Entry("Swinv2Model", "Swinv2Config", {"window_size": 7}, {"window_size": 2}), 224),
    "textnet_tiny": (Entry("TextNetModel", "TextNetConfig"), 640),
    "dinov3_vit_small": (Entry("DINOv3ViTModel", "DINOv3ViTConfig"), 224),
    "dinov3_convnext_tiny": (Entry("DINOv3ConvNextModel", "DINOv3ConvNextConfig", {}, SMALL_STAGES), 224),
    "superpoint": (Entry("SuperPointForKeypointDetection", "SuperPointConfig"), 480),
    "efficientnet_hf_b7": (Entry("EfficientNetModel", "EfficientNetConfig"), 600),
    "siglip_vision": (Entry("SiglipVisionModel", "SiglipVisionConfig"), 224),
    "detr_resnet50": (Entry("DetrModel", "DetrConfig"), 512),
    "deformable_detr": (Entry("DeformableDetrModel", "DeformableDetrConfig"), 512),
    "mask2former_swin": (Entry("Mask2FormerModel", "Mask2FormerConfig"), 384),
    "sam2_hiera": (Entry("Sam2VisionModel", "Sam2VisionConfig"), 1024),
    "aimv2_large_12_layers": (Entry("Aimv2VisionModel", "Aimv2VisionConfig", {"num_hidden_layers": 12}), 224),
    "swiftformer_xs": (Entry("SwiftFormerModel", "SwiftFormerConfig"), 224),
    "mobilevitv2": (Entry("MobileViTV2Model", "MobileViTV2Config"), 256),
    "pp_lcnet": (Entry("PPLCNetForImageClassification", "PPLCNetConfig"), 224),
    "depth_anything_small": (Entry("DepthAnythingForDepthEstimation", "DepthAnythingConfig"), 518),
    "zoedepth": (Entry("ZoeDepthForDepthEstimation", "ZoeDepthConfig"), 384),
    "donut_swin": (Entry("DonutSwinModel", "DonutSwinConfig", {}, {"window_size": 2}), 448),
    "pixio_6_layers": (Entry("PixioModel", "PixioConfig", {"num_hidden_layers": 6}), 256),
    "sapiens2": (Entry("Sapiens2Model", "Sapiens2Config"), 512),
    "tipsv2_vision": (Entry("Tipsv2VisionModel", "Tipsv2VisionConfig"), 224),
    "radio": (Entry("RadioModel", "RadioConfig"), 256),
    "sam3_vit_8_layers": (Entry("Sam3ViTModel", "Sam3ViTConfig", {"num_hidden_layers": 8}), 504),
    "mobilenet_v2_hf": (Entry("MobileNetV2Model", "MobileNetV2Config"), 224),
}  # fmt: skip
#: These have stages of their own widths; the others are made narrow.
STAGED = {"convnextv2_tiny", "poolformer_s12", "segformer_b0", "pvt_v2_b0", "cvt_13", "levit", "mobilevit_small", "focalnet_tiny", "mobilenet_v1", "bit_50", "glpn", "hiera_tiny", "swin_hf_tiny", "swin2sr", "pvt_tiny", "swinv2_hf_tiny", "textnet_tiny", "dinov3_convnext_tiny", "superpoint", "efficientnet_hf_b7", "donut_swin", "mobilenet_v2_hf"}  # fmt: skip
#: With the shape of an input, and of a small one.
SPEECH: dict[str, tuple[Entry, tuple[int, ...], tuple[int, ...]]] = {
    name: (Entry(f"{kind}Model", f"{kind}Config", {}, {"conv_dim": [32] * 7}), (32000,), (4000,))
    for name, kind in (("wav2vec2_base", "Wav2Vec2"), ("hubert_base", "Hubert"), ("wavlm_base", "WavLM"))
} | {
    "sew_tiny": (Entry("SEWModel", "SEWConfig", {}, {"conv_dim": [32] * 13}), (32000,), (4000,)),
    "wav2vec2_conformer": (Entry("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 2048, "hidden_act": "swish"}, {"conv_dim": [32] * 7}), (32000,), (4000,)),
    "unispeech_sat": (Entry("UniSpeechSatModel", "UniSpeechSatConfig", {}, {"conv_dim": [32] * 7}), (32000,), (4000,)),
    "data2vec_audio": (Entry("Data2VecAudioModel", "Data2VecAudioConfig", {}, {"conv_dim": [32] * 7}), (32000,), (4000,)),
    "dac_16khz": (Entry("DacModel", "DacConfig", {}, {"encoder_hidden_size": 16, "decoder_hidden_size": 128}), (1, 16000), (1, 1600)),
    "hifigan": (Entry("SpeechT5HifiGan", "SpeechT5HifiGanConfig", {}, {"upsample_initial_channel": 64}), (200, 80), (20, 80)),
    "audio_spectrogram": (Entry("ASTModel", "ASTConfig", {}, {"max_length": 128}), (1024, 128), (128, 128)),
}  # fmt: skip
PATCHTST = {"num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 16}


def library_model(model: str, config: str, settings: dict[str, Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return Outputs(getattr(transformers, model)(getattr(transformers, config)(**settings)))

    return make


def transformers_rows(small: bool) -> list[Architecture]:
    def make(e: Entry, narrow: dict[str, Any]) -> Callable[[], nn.Module]:
        settings = e.settings | (narrow | e.small if small else {})
        return library_model(e.model, e.config, {k: v for k, v in settings.items() if v is not None})

    rows = [Architecture(n, "text", make(e, SMALL_TEXT), tokens(24 if small else 256)) for n, e in TEXT.items()]
    for n, (e, full) in VISION.items():
        size = 64 if small else full
        narrow = {"image_size": size} | ({} if n in STAGED else SMALL | {"num_hidden_layers": 2})
        rows.append(Architecture(n, "vision", make(e, narrow), images(3, size, size)))
    for n, (e, shape, small_shape) in SPEECH.items():
        narrow = SMALL | {"num_hidden_layers": 2}
        rows.append(Architecture(n, "speech", make(e, narrow), images(*(small_shape if small else shape))))
    mixer = Entry("PatchTSMixerModel", "PatchTSMixerConfig", PATCHTST | {"d_model": 64}, {"context_length": 64})
    rows.append(Architecture("patchtsmixer", "series", make(mixer, {}), images(64 if small else 512, 7)))
    series = Entry("PatchTSTModel", "PatchTSTConfig", PATCHTST, {"context_length": 64})
    rows.append(Architecture("patchtst", "series", make(series, {}), images(64 if small else 512, 7)))
    return rows


# ---- latent diffusion


def diffusion_rows(small: bool) -> list[Architecture]:
    from zoo_diffusion import DiffusionUnet, ImageDecoder

    size, length, width = (16, 7, 64) if small else (64, 77, 768)

    def unet_inputs(batch: int) -> tuple[torch.Tensor, ...]:
        g = generator()
        latents, context = (
            torch.randn(batch, 4, size, size, generator=g),
            torch.randn(batch, length, width, generator=g),
        )
        return latents, torch.full((batch,), 500), context

    unet = (lambda: DiffusionUnet(64, width)) if small else DiffusionUnet
    decoder = (lambda: ImageDecoder((64, 64, 32, 32))) if small else ImageDecoder
    return [
        Architecture("diffusion_unet", "diffusion", unet, unet_inputs),
        Architecture("diffusion_decoder", "diffusion", decoder, images(4, size // 2, size // 2)),
    ]


def timm_rows() -> list[Architecture]:
    from zoo_timm import MODELS, timm_model

    return [Architecture(name, "timm", timm_model(name), images(3, size, size)) for name, size in MODELS.items()]


def library_rows() -> list[Architecture]:
    from zoo_library import LIBRARY

    return [Architecture(name, e.kind, e.make, e.inputs) for name, e in LIBRARY.items()]


def field_rows() -> list[Architecture]:
    from zoo_fields import FIELDS

    return [Architecture(name, "field", make, inputs) for name, (make, inputs) in FIELDS.items()]


def architectures(small: bool = False) -> list[Architecture]:
    """At their real sizes, or `small`: for comparisons of results, on simulated chips too (timm's and other fields' have one size)."""
    return (
        torchvision_rows(small)
        + transformers_rows(small)
        + library_rows()
        + diffusion_rows(small)
        + timm_rows()
        + field_rows()
    )
