"""More architectures of transformers for the zoo: real widths, few layers and experts, and a vocabulary of 32,000 at most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from zoo_inputs import Inputs, normal, pictures, tokens


@dataclasses.dataclass
class Library:
    """Classes of a model and of its configuration, and its inputs. `arguments` are given by name, with the input as `first`."""

    kind: str
    model: str
    config: str
    settings: dict[str, Any]
    inputs: Inputs
    first: str = ""
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)

    def make(self) -> nn.Module:
        import transformers

        config = getattr(transformers, self.config)(**{"use_cache": False} | self.settings)
        return Named(getattr(transformers, self.model)(config), self.first, self.arguments)


class Named(nn.Module):
    """A model that is called by names, and of what it gives the last hidden state, or the first tensors."""

    def __init__(self, module: nn.Module, first: str, arguments: dict[str, Any]):
        super().__init__()
        self.module, self.first, self.arguments = module, first, arguments

    def forward(self, x: torch.Tensor) -> Any:
        y = self.module(**{self.first: x} | self.arguments) if self.first else self.module(x, **self.arguments)
        if isinstance(y, torch.Tensor):
            return y
        state = getattr(y, "last_hidden_state", None)
        found = (
            [v for v in y.values() if isinstance(v, torch.Tensor)]
            if hasattr(y, "values")
            else [v for v in y if isinstance(v, torch.Tensor)]
        )
        return state if isinstance(state, torch.Tensor) else tuple(found[:3])


def text(
    name: str,
    length: int = 256,
    config: str = "",
    first: str = "",
    arguments: dict[str, Any] | None = None,
    **settings: Any,
) -> Library:
    config = config or name.removesuffix("Model") + "Config"
    return Library(
        "text",
        name,
        config,
        {"vocab_size": 32000, "pad_token_id": 0} | settings,
        tokens(length, 1000),
        first,
        arguments or {},
    )


def vision(name: str, inputs: Inputs, config: str = "", first: str = "", **settings: Any) -> Library:
    return Library("vision", name, config or name.removesuffix("Model") + "Config", settings, inputs, first)


def layers(count: int) -> dict[str, int]:
    return {"num_hidden_layers": count}


#: By name, as the rows of zoo.py.
LIBRARY: dict[str, Library] = {
    "bamba_2_layers": text("BambaModel", **layers(2), hidden_size=2048, intermediate_size=7168, num_attention_heads=16, num_key_value_heads=4, mamba_n_heads=64, mamba_d_state=128, attn_layer_indices=[1]),
    "falcon_h1_2_layers": text("FalconH1Model", **layers(2), hidden_size=1024, intermediate_size=2048, num_attention_heads=8, num_key_value_heads=2, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64),
    "jet_moe_2_layers": text("JetMoeModel", **layers(2), hidden_size=1024, intermediate_size=2816),
    "zamba2_4_layers": text("Zamba2Model", **layers(4), hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_key_value_heads=16, attention_head_dim=128, mamba_d_state=64, n_mamba_heads=32, mamba_headdim=64, layers_block_type=["mamba", "hybrid", "mamba", "mamba"], hybrid_layer_ids=[1]),
    "nemotron_h_4_layers": text("NemotronHModel", hidden_size=1024, num_attention_heads=8, num_key_value_heads=2, intermediate_size=4096, mamba_num_heads=32, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"]),
    "gemma3n_6_layers": text("Gemma3nTextModel", **layers(6), hidden_size=1024, num_attention_heads=4, num_key_value_heads=1, intermediate_size=4096, num_kv_shared_layers=2, vocab_size_per_layer_input=32000, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, activation_sparsity_pattern=[0.0] * 6),
    "hrm_text_2_layers": text("HrmTextModel", 128, num_layers_per_stack=2, num_hidden_layers=16, H_cycles=2, L_cycles=2, L_bp_cycles=[2]),
    "big_bird_4": text("BigBirdModel", 1024, **layers(4), attention_type="block_sparse"),
    "codegen_350m_6_layers": text("CodeGenModel", n_embd=1024, n_layer=6, n_head=16, rotary_dim=32),
    "timesformer_4": vision("TimesformerModel", normal((8, 3, 224, 224)), **layers(4)),
    "vjepa2_4": vision("VJEPA2Model", normal((16, 3, 256, 256)), first="pixel_values_videos", **layers(4), frames_per_clip=16, skip_predictor=True),
    "lw_detr": vision("LwDetrModel", pictures(3, 512, 512), projector_scale_factors=[1.0], num_feature_levels=1),
    "rf_detr": vision("RfDetrModel", pictures(3, 512, 512)),
    "sew_d_tiny": Library("speech", "SEWDModel", "SEWDConfig", layers(6), normal((32000,))),
    "wav2vec2_bert_4": Library("speech", "Wav2Vec2BertModel", "Wav2Vec2BertConfig", layers(4), normal((400, 160))),
    "parakeet_4": Library("speech", "ParakeetEncoder", "ParakeetEncoderConfig", layers(4), normal((1000, 80))),
    "whisper_encoder_4": Library("speech", "WhisperForAudioClassification", "WhisperConfig", {"d_model": 768, "encoder_layers": 4, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072}, normal((80, 3000))),
    "clap_audio": Library("speech", "ClapAudioModel", "ClapAudioConfig", {"enable_fusion": False}, normal((1, 1001, 64))),
}  # fmt: skip

#: As FIELDS of zoo_fields.py.
MODELS: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {name: (e.make, e.inputs) for name, e in LIBRARY.items()}
