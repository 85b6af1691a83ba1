"""transformers' continuous batching on the trace of llm_engine.py."""

from __future__ import annotations

import time
from typing import Any

FIELDS = [
    "architecture",
    "hidden",
    "layers",
    "heads",
    "kv_heads",
    "head_size",
    "intermediate",
    "vocabulary",
    "context",
    "epsilon",
    "rope_base",
    "rope_size",
    "rope_scale",
    "rope_magnitude",
    "tied",
]
_models: dict[str, Any] = {}


def _model(spec: dict[str, Any], device: str) -> Any:
    """A Llama with random weights, with flash attention if it is installed."""
    import importlib.util

    import torch
    import transformers

    key = str(spec)
    if key not in _models:
        _models.clear()
        config = transformers.LlamaConfig(
            hidden_size=spec["hidden"],
            num_hidden_layers=spec["layers"],
            num_attention_heads=spec["heads"],
            num_key_value_heads=spec["kv_heads"],
            head_dim=spec["head_size"],
            intermediate_size=spec["intermediate"],
            vocab_size=spec["vocabulary"],
            max_position_embeddings=spec["context"],
            tie_word_embeddings=spec.get("tied", True),
        )
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float16 if device != "cpu" else torch.float32)
        try:
            with torch.device(device):
                model = transformers.LlamaForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(torch.float32)
        if importlib.util.find_spec("flash_attn") is None:
            model.set_attn_implementation("paged|sdpa")
        _models[key] = model
    return _models[key]


def measure(spec: dict[str, Any], trace: Any, clients: int, seconds: float, device: str) -> dict[str, Any]:
    """As many requests as clients are in it at a time, and none begins after `seconds`. Reports what went wrong."""
    try:
        import transformers

        model = _model(spec, device)
        options = transformers.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=512)
        batching = transformers.generation.ContinuousBatchingConfig(
            max_memory_percent=0.5, max_requests_per_batch=max(clients, 2), allow_block_sharing=False
        )
        manager = model.init_continuous_batching(generation_config=options, continuous_batching_config=batching)
        begun = time.perf_counter()
        if device != "cpu":
            manager.warmup()  # captures its graphs
        warm = time.perf_counter() - begun
        manager.start()
        try:
            _run(manager, [(p, min(n, 16)) for p, n in trace[:clients]], clients, seconds / 4)  # short: it is slow
            row = _run(manager, trace, clients, seconds)
        finally:
            manager.stop(block=True)
    except Exception as error:
        print(f"  transformers, {clients} clients: {type(error).__name__}: {error}", flush=True)
        return {"error": repr(error)}
    row |= {"warm_seconds": warm, "version": transformers.__version__, "attention": model.config._attn_implementation}
    print(
        f"  transformers {row['version']} ({row['attention']}), {clients} clients: {row['tokens_per_second']:.0f} tokens/s, "
        f"{row['requests']} requests in {row['seconds']:.1f} s; warmed in {warm:.1f} s",
        flush=True,
    )
    return row


def _run(manager: Any, trace: Any, clients: int, seconds: float) -> dict[str, Any]:
    asked = count = left = 0
    begun = time.perf_counter()
    while left or asked < min(clients, len(trace)) or (asked < len(trace) and time.perf_counter() - begun < seconds):
        may = asked < clients or time.perf_counter() - begun < seconds
        while left < clients and asked < len(trace) and may:
            prompt, new = trace[asked]
            manager.add_request(prompt, request_id=f"{begun}-{asked}", max_new_tokens=new)
            asked, left = asked + 1, left + 1
        result = manager.get_result(timeout=60)
        if result is None:
            raise RuntimeError("no result for a minute")
        if result.error:
            raise RuntimeError(result.error)
        if result.is_finished():
            left -= 1
            count += len(result.generated_tokens)
    passed = time.perf_counter() - begun
    return {"requests": asked, "tokens": count, "seconds": passed, "tokens_per_second": count / passed}
