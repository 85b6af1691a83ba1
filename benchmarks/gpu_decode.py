"""A decoding step of a language model compared with torch.compile: Llama-3.2-1B's shape in float16, with the same random weights and
the same KV caches on both sides.

Sardonyx runs the graph of language_model.py, a step that chooses its token on the GPU. PyTorch runs the same network, written
for torch.compile: the same fused weights, a static KV cache that the step updates, and argmax. Its attention is the faster of two: `scaled_dot_product_attention` with a mask, and the same
written out, which torch.compile fuses.
"""

from __future__ import annotations

import json
import pathlib
import time
import traceback
from typing import Any

import language_model
import numpy as np
import torch
import torch.nn.functional as F
from gpu_engines import our_device
from gpu_measure import Budget, Clock, Results, clocks, interleave

BATCHES, CONTEXT, ROOM = (1, 8), 512, 640
NAME = "Llama-1B decode"
ATTENTIONS = {"compile": "sdpa", "compile, attention written out": "written"}


def weights_of(folder: pathlib.Path, device: str) -> dict[str, torch.Tensor]:
    """The weights that language_model.fill() wrote, by their names in the graph; those of GEMMs with one row per output."""
    import onnx

    graph = onnx.load(folder / "step.onnx", load_external_data=False).graph
    content = np.memmap(folder / "model.onnx.data", np.uint8, "r")
    found = {}
    for t in graph.initializer:
        place = {e.key: e.value for e in t.external_data}
        kind = onnx.helper.tensor_dtype_to_np_dtype(t.data_type)
        if "offset" in place:
            offset, length = int(place["offset"]), int(place["length"])
            x = np.frombuffer(content[offset : offset + length], kind).reshape(tuple(t.dims))
        else:
            x = onnx.numpy_helper.to_array(t)
        tensor = torch.from_numpy(np.array(x)).to(device)
        found[t.name] = tensor.T.contiguous() if t.name.endswith("MatMul.weight") else tensor
    return found


class Decoder(torch.nn.Module):
    """One token of each sequence, at `position` of KV caches of ROOM rows."""

    def __init__(self, spec: dict[str, Any], weights: dict[str, torch.Tensor], caches: list[torch.Tensor], form: str):
        super().__init__()
        self.spec, self.form = spec, form
        layers = range(spec["layers"])
        named = lambda text: [weights[f"/model/layers.{k}/{text}"] for k in layers]
        self.qkv, self.out = (named(f"attn/{n}_proj/MatMul.weight") for n in ("qkv", "o"))
        self.gate, self.up, self.down = (named(f"mlp/{n}_proj/MatMul.weight") for n in ("gate", "up", "down"))
        self.first = named("input_layernorm/LayerNorm.weight")
        self.second = named("post_attention_layernorm/SkipLayerNorm.weight")
        self.last = weights[f"/model/layers.{spec['layers']}/final_norm_layernorm/SkipLayerNorm.weight"]
        self.embedding = weights["model.embed_tokens.weight"]
        self.cos, self.sin = (torch.cat([weights[f"{n}_cache"]] * 2, -1) for n in ("cos", "sin"))
        self.keys, self.values = caches[0::2], caches[1::2]
        for x in caches:
            torch._dynamo.mark_static_address(x)

    def turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self.form == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        groups = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        scores = (groups @ k.transpose(2, 3)).float() * q.shape[3] ** -0.5
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return (weights.to(v.dtype) @ v).reshape(q.shape)

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        s = self.spec
        heads, groups, size, hidden = s["heads"], s["kv_heads"], s["head_size"], s["hidden"]
        batch = ids.shape[0]
        x = F.embedding(ids, self.embedding)
        cos, sin = self.cos[position], self.sin[position]
        mask = (torch.arange(ROOM, device=ids.device) <= position)[None, None, None, :]
        for k in range(s["layers"]):
            h = F.rms_norm(x, (hidden,), self.first[k], s["epsilon"])
            row = F.linear(h, self.qkv[k])
            q, key, value = row.split([heads * size, groups * size, groups * size], -1)
            q = self.turned(q.view(batch, 1, heads, size).transpose(1, 2), cos, sin)
            key = self.turned(key.view(batch, 1, groups, size).transpose(1, 2), cos, sin)
            value = value.view(batch, 1, groups, size).transpose(1, 2)
            self.keys[k].index_copy_(2, position, key)
            self.values[k].index_copy_(2, position, value)
            y = self.attention(q, self.keys[k], self.values[k], mask)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, 1, heads * size), self.out[k])
            h = F.rms_norm(x, (hidden,), self.second[k], s["epsilon"])
            x = x + F.linear(F.silu(F.linear(h, self.gate[k])) * F.linear(h, self.up[k]), self.down[k])
        logits = F.linear(F.rms_norm(x, (hidden,), self.last, s["epsilon"]), self.embedding)
        return logits[:, -1].argmax(-1, keepdim=True)


def random_caches(spec: dict[str, Any], batch: int, device: str) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(batch)
    shape = (batch, spec["kv_heads"], ROOM, spec["head_size"])
    return [torch.randn(shape, generator=generator, device=device).to(torch.float16) for _ in range(2 * spec["layers"])]


class OurStep:
    """Sardonyx's step on torch tensors; the KV cache is updated in place."""

    def __init__(self, model: Any, spec: dict[str, Any], ids: torch.Tensor, caches: list[torch.Tensor]):
        device, batch = ids.device, ids.shape[0]
        self.tokens = torch.zeros_like(ids)
        lengths = torch.full((batch,), CONTEXT + 1, device=device)
        self.feed = {
            "input_ids": ids,
            "lengths": lengths,
            "width": torch.zeros((batch, ROOM), dtype=torch.int8, device=device),
        }
        out = {"next_tokens": self.tokens, "lengths_next": torch.zeros_like(lengths)}
        for k, x in enumerate(caches):
            name = f"{k // 2}.{('key', 'value')[k % 2]}"
            self.feed[f"past_key_values.{name}"] = out[f"present.{name}"] = x
        arguments: dict[str, Any] = {}
        if device.type == "cuda":
            arguments = {"stream": torch.cuda.current_stream().cuda_stream, "synchronize": False}
        self.run = model.bind(self.feed, out, **arguments)

    def __call__(self) -> None:
        self.run()


def measure_decode(options: Any, results: Results, budget: Budget) -> None:
    import sardonyx

    wanted = [b for b in BATCHES if not results.has(key_of(b))]
    wanted = [b for b in wanted if not options.only or any(o in f"{NAME} {text_of(b)} " for o in options.only)]
    if not wanted or not budget.begin():
        return print(f"{NAME}: {'no time left' if wanted else 'nothing to measure'}", flush=True)
    if not (options.decode / "fp16" / "step.onnx").exists():
        language_model.prepare(options.decode, options.tiny, ("fp16",))
    folder = options.decode / "fp16"
    read = language_model.fill(folder)
    start = time.perf_counter()
    model = sardonyx.compile((folder / "step.onnx").read_bytes(), folder=folder, device=our_device(options.device))
    seconds = time.perf_counter() - start
    spec = json.loads((folder / "tensors.json").read_text())["spec"]
    filled = time.perf_counter()
    weights = weights_of(folder, options.device)
    print(
        f"{NAME}: compiled in {seconds:.1f} s, weights for PyTorch in {time.perf_counter() - filled:.1f} s", flush=True
    )
    for batch in wanted:
        if batch != wanted[0] and not budget.begin():
            return print(f"{key_of(batch)}: no time left", flush=True)
        row: dict[str, Any] = {"name": NAME, "weights_bytes": read, "load_seconds": seconds, "engines": {}}
        try:
            measure_batch(row, batch, model, spec, weights, options)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        torch._dynamo.reset()
        results.add(key_of(batch), row)
        budget.done()
        times = {n: f"{e['median'] * 1e3:.3f}" if "median" in e else "failed" for n, e in row["engines"].items()}
        print(f"{key_of(batch)}: {row.get('failed') or times} ms; tokens alike {row.get('alike')}", flush=True)


def text_of(batch: int) -> str:
    return f"batch={batch} context={CONTEXT}"


def key_of(batch: int) -> str:
    return f"decode/{NAME}/{text_of(batch)}"


def measure_batch(
    row: dict[str, Any], batch: int, model: Any, spec: dict[str, Any], weights: dict[str, torch.Tensor], options: Any
) -> None:
    device = options.device
    clock = Clock(device)
    generator = torch.Generator(device).manual_seed(0)
    ids = torch.randint(3, spec["vocabulary"], (batch, 1), generator=generator, device=device)
    position = torch.full((1,), CONTEXT, device=device)
    ours = OurStep(model, spec, ids, random_caches(spec, batch, device))
    engines: dict[str, Any] = {"sardonyx": ours}
    for _ in range(3):
        ours()
    row["seconds_to_compile"] = {}
    caches = random_caches(spec, batch, device)
    exact = None
    for name, form in ATTENTIONS.items():
        module = Decoder(spec, weights, caches, form)
        if exact is None:
            exact = module(ids, position).clone()
        if "compile" not in options.engines:
            continue
        try:
            torch._dynamo.reset()
            start = time.perf_counter()
            run = torch.compile(module, mode="reduce-overhead", dynamic=False, fullgraph=True)
            for _ in range(4):
                run(ids, position)
            clock.wait()
            row["seconds_to_compile"][name] = time.perf_counter() - start
            print(f"  {name}: {row['seconds_to_compile'][name]:.1f} s to compile", flush=True)
            engines[name] = lambda run=run: run(ids, position)
        except Exception as error:
            row["engines"][name] = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}
    clock.wait()
    # With random weights the largest logits are close to each other, so a different token is not an error by itself.
    row["alike"] = f"{int((ours.tokens == exact).sum())} of {batch}"
    row["clocks_before"] = clocks()
    row["engines"] |= interleave(clock, engines, options.turns)
    row["clocks_after"] = clocks()
