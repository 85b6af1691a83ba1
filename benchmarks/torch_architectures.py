"""Every architecture of transformers, made small, through torch.compile's backend "sardonyx" on the host.

    python benchmarks/torch_architectures.py [--only bert] [--json architectures.json]

A configuration's defaults are made small by the names of its fields (widths, layers, experts, vocabularies), so nothing is
written for one architecture. Those that cannot be built or run in eager PyTorch with such values are left out, with the
reason. Each is run with two sets of sizes and compared with eager PyTorch; where rounding is amplified, as in
torch_models.py, with float64.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import pathlib
import sys
from collections import Counter
from typing import Any

import torch
from torch_models import TOLERANCE, is_amplified, relative
from torch_operators import Worker, in_turn

SECONDS = 240
MOST_PARAMETERS = 120e6
#: (batch, tokens) of the runs
SIZES = ((2, 12), (3, 17))
FIELDS = {
    64: "hidden_size d_model n_embd dim embed_dim embedding_size projection_dim d_embed encoder_hidden_size hidden_dim width conv_dim lru_width embedding_dim image_size",
    128: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner inner_dim d_inner mlp_dim dim_feedforward shared_intermediate_size moe_intermediate_size",
    4: "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads num_experts num_local_experts n_routed_experts moe_num_experts linear_num_value_heads",
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_key_value_heads n_shared_experts depth num_experts_per_tok num_decoder_layers num_encoder_layers top_k experts_top_k moe_topk linear_num_key_heads",
    500: "vocab_size",
    512: "max_position_embeddings n_positions max_seq_len",
    16: "head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim d_kv attention_head_dim mamba_d_state state_size linear_key_head_dim linear_value_head_dim",
    32: "q_lora_rank kv_lora_rank rank",
}  # fmt: skip
SMALL = {name: value for value, names in FIELDS.items() for name in names.split()}
TOKENS = 400  #: below it are all tokens that are used
SPECIAL = {"pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id", "sep_token_id"}


def made_small(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that change."""
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and name.endswith("_config"):
            made[name] = made_small(value)
        elif name in SMALL and isinstance(value, int) and not isinstance(value, bool):
            made[name] = min(value, SMALL[name])
        elif name == "image_size" and isinstance(value, (list, tuple)):
            made[name] = [SMALL[name]] * len(value)
        elif name == "layer_types" and value:
            made[name] = (list(dict.fromkeys(value)) * 2)[:2]
        elif name == "depths" and value:
            made[name] = [1] * len(value)
        elif name in SPECIAL and isinstance(value, int):
            made[name] = min(value, TOKENS)
        elif name == "image_token_id" and isinstance(value, int):
            made[name] = TOKENS + 50
    return made


def configuration(kind: str) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    cls = CONFIG_MAPPING[kind]
    fields = made_small(cls().to_dict())
    try:
        return cls(**fields)
    except Exception:  # some take no dictionaries for the configurations of their parts
        return cls(**{k: v for k, v in fields.items() if not isinstance(v, dict)})


def inputs_of(model: Any, config: Any, batch: int, tokens: int) -> dict[str, Any]:
    random = torch.Generator().manual_seed(batch)
    names = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    given: dict[str, Any] = {}
    text = torch.randint(5, TOKENS, (batch, tokens), generator=random)
    if main == "input_ids" or (main not in names and "input_ids" in names):
        given["input_ids"] = text % getattr(getattr(config, "text_config", config), "vocab_size", TOKENS)
        if "attention_mask" in names:
            given["attention_mask"] = torch.ones(batch, tokens, dtype=torch.long)
    elif main == "pixel_values":
        part = getattr(config, "vision_config", config)
        size = getattr(part, "image_size", SMALL["image_size"])
        sizes = size if isinstance(size, (list, tuple)) else (size, size)
        given[main] = torch.randn(batch, getattr(part, "num_channels", 3), *sizes, generator=random)
        if "input_ids" in names and hasattr(config, "text_config"):
            given["input_ids"] = text
    elif main == "input_values":
        given[main] = torch.randn(batch, 4000, generator=random)
    elif main == "input_features":
        widths = ("num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel")
        width = next((getattr(config, n) for n in widths if getattr(config, n, None)), 80)
        frames = getattr(config, "max_source_positions", None)
        shape = (width, 2 * frames) if frames and "whisper" in config.model_type else (60, width)
        given[main] = torch.randn(batch, *shape, generator=random)
    else:
        raise NotImplementedError(f"no values for the input {main}")
    if "decoder_input_ids" in names:
        given["decoder_input_ids"] = text[:, :7]
    if "use_cache" in names:
        given["use_cache"] = False
    return given


def results_of(found: Any) -> list[torch.Tensor]:
    found = [x for x in torch.utils._pytree.tree_leaves(found) if torch.is_tensor(x) and x.numel()]
    return [x.nan_to_num() if x.is_floating_point() else x for x in found]


class Positional(torch.nn.Module):
    """The model with its inputs as a tuple, as is_amplified() calls modules."""

    def __init__(self, model: Any, names: list[str]):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: Any) -> Any:
        found = self.model(**dict(zip(self.names, given, strict=True)), use_cache=False)
        return tuple(x for x in torch.utils._pytree.tree_leaves(found) if torch.is_tensor(x) and x.numel())


def captured(model: Any, feed: dict[str, Any]) -> list[torch.Tensor]:
    """What torch.compile makes of the model, run by PyTorch."""
    return results_of(torch.compile(model, backend="eager", fullgraph=False)(**feed))


def run_architecture(kind: str) -> dict[str, Any]:
    import sardonyx.torch
    import transformers

    row: dict[str, Any] = {"name": kind, "verdict": "left out", "notes": ""}
    torch.manual_seed(0)
    try:
        config = configuration(kind)
        with torch.device("meta"):  # without memory: some stay large
            row["parameters"] = sum(p.numel() for p in transformers.AutoModel.from_config(config).parameters())
        if row["parameters"] > MOST_PARAMETERS:
            return row | {"notes": f"{row['parameters'] / 1e6:.0f} million parameters"}
        model = transformers.AutoModel.from_config(config).eval().float()
        feeds = [inputs_of(model, config, *sizes) for sizes in SIZES]
        wants = [results_of(model(**feed)) for feed in feeds]
        if [x.shape for x in results_of(model(**feeds[0]))] != [x.shape for x in wants[0]]:
            return row | {"notes": "the sizes of its results are random"}
    except Exception as error:
        return row | {"notes": f"{type(error).__name__}: {error}"[:200]}
    found: list[Any] = []
    stop = sardonyx.torch.observe(found.append)
    torch._dynamo.reset()
    try:
        compiled = torch.compile(model, backend="sardonyx")
        row["errors"] = []
        for feed, want in zip(feeds, wants, strict=True):
            got = results_of(compiled(**feed))
            error = relative(got, want)
            if error > TOLERANCE:  # some models themselves compute something else when they are compiled
                error = min(error, relative(got, captured(model, feed)))
            if error > TOLERANCE:
                names = [k for k in feed if k != "use_cache"]
                module = Positional(model, names) if "use_cache" in feed else None
                if module is not None and is_amplified(module, tuple(feed[k] for k in names), got, want):
                    row.setdefault("amplified", []).append(error)
                    error = 0.0
            row["errors"].append(error)
    except Exception as error:
        return row | {"verdict": "crashed", "notes": f"{type(error).__name__}: {error}"[:500]}
    finally:
        stop()
    fallbacks = [c.reason for c in found if c.reason]
    row |= {"graphs": len(found), "in PyTorch": len(fallbacks)}
    if not max(row["errors"]) <= TOLERANCE:
        return row | {"verdict": "wrong", "notes": str(row["errors"])}
    notes = " | ".join(sorted({reason[:200] for reason in fallbacks}))
    return row | {"verdict": "in PyTorch" if fallbacks else "right", "notes": notes}


def work() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
    torch.set_num_threads(2)
    with torch.no_grad():
        for line in sys.stdin:
            print(json.dumps(run_architecture(line.strip())), flush=True)


def main() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="architectures whose names contain this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work()
    names = [n for n in CONFIG_MAPPING_NAMES if not options.only or any(o in n for o in options.only)]
    rows = []
    for row in in_turn(
        [Worker(str(pathlib.Path(__file__)), [], SECONDS) for _ in range(options.jobs)], [(n, n) for n in names]
    ):
        rows.append(row)
        print(f"{row['verdict']:12} {row}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    print(", ".join(f"{n} {verdict}" for verdict, n in Counter(r["verdict"] for r in rows).most_common()))


if __name__ == "__main__":
    main()
