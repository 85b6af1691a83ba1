"""LoRA adapters of sardonyx.llm.Engine: tokens of models with the adapters' products in their weights, several adapters in one batch, folders that make no sense, and the server."""

import json

import llm_models
import numpy as np
import onnx
import pytest
import sardonyx
from sardonyx.llm import Engine, LanguageModel

safetensors = pytest.importorskip("safetensors.numpy", reason="adapters need the package safetensors")

WAIT = 60  # seconds, for what takes milliseconds
D = llm_models.Decoder(layers=2, positions=160)
SIZES = {"q": (64, 64), "k": (64, 32), "v": (64, 32), "o": (64, 64), "gate": (64, 96), "up": (64, 96), "down": (96, 64)}
PROMPTS = [[1, 2, 3], list(range(60)), [9] * 20, list(range(60))]


def write_adapter(folder, seed, rank=4, alpha=8, modules=("q", "v", "down"), layers=(0, 1), dtype=np.float32, **config):
    """Random A and B of these linear layers; returns the change of each weight [in, out]."""
    rng, tensors, changes = np.random.default_rng(seed), {}, {}
    for layer in layers:
        for m in modules:
            inputs, outputs = SIZES[m]
            a = (rng.standard_normal((rank, inputs)) * inputs**-0.5).astype(dtype)
            b = (rng.standard_normal((outputs, rank)) * 0.4).astype(dtype)
            part = "mlp" if m in ("gate", "up", "down") else "self_attn"
            path = f"base_model.model.model.layers.{layer}.{part}.{m}_proj"
            tensors |= {f"{path}.lora_A.weight": a, f"{path}.lora_B.weight": b}
            scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
            changes[layer, m] = (b.astype(np.float64) @ a.astype(np.float64)).T * scale
    folder.mkdir(parents=True)
    safetensors.save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", "lora_dropout": 0.1, "target_modules": list(modules)}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings | config))
    return changes


def merged(folder, base, changes):
    """A copy of the model with the changed weights."""
    path = llm_models.write(folder, base)
    model = onnx.load(path / "model.onnx")
    left = dict(changes)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor).copy()
        for (layer, m), change in changes.items():
            name = f"/model/layers.{layer}/{'mlp' if m in ('gate', 'up', 'down') else 'attn'}"
            if tensor.name == f"{name}/{m}_proj.weight":
                values += change.astype(values.dtype)
            elif tensor.name == f"{name}/qkv_proj.weight" and m in "qkv":
                begin = {"q": 0, "k": 64, "v": 96}[m]
                values[:, begin : begin + SIZES[m][1]] += change.astype(values.dtype)
            else:
                continue
            left.pop((layer, m))
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    assert not left
    onnx.save(model, path / "model.onnx")
    return LanguageModel(path)


@pytest.mark.parametrize("packed", [False, True])
def test_tokens_are_those_of_merged_weights(tmp_path, packed):
    """Three adapters of different ranks and layers, and none, in one batch that shares prefixes only within an adapter."""
    base = llm_models.Decoder(layers=2, positions=160, packed=packed)
    folder = llm_models.write(tmp_path / "base", base)
    changes = {
        "": {},
        "a": write_adapter(tmp_path / "a", 1),
        "b": write_adapter(
            tmp_path / "b", 2, rank=7, modules=("q", "k", "v", "o", "gate", "up", "down"), use_rslora=True
        ),
        "c": write_adapter(tmp_path / "c", 3, rank=1, alpha=3, modules=("up",), layers=(1,)),
    }
    wanted = {}
    for name, change in changes.items():
        model = merged(tmp_path / f"merged {name}", base, change)
        wanted[name] = [model.generate(p, max_new_tokens=20, ignore_eos=True).tokens for p in PROMPTS]
    assert len({str(w) for w in wanted.values()}) == 4
    folders = {name: tmp_path / name for name in "abc"}
    with Engine(folder, page_tokens=16, step_tokens=40, cache_memory=4 << 20, adapters=folders) as engine:
        assert engine.adapters == ("a", "b", "c")
        requests = [
            (name, k, engine.submit(p, adapter=name, max_new_tokens=20, ignore_eos=True))
            for k, p in enumerate(PROMPTS)
            for name in changes
        ]
        for name, k, r in requests:
            assert r.wait(WAIT) and r.answer == wanted[name][k], (name, k)
        # A text's pages are found by the same adapter alone.
        for name in changes:
            again = engine.generate(PROMPTS[1], adapter=name, max_new_tokens=20, ignore_eos=True)
            assert again.tokens == wanted[name][1] and again.statistics.kept_tokens == 48
        other = engine.generate([*PROMPTS[2], 5, 6], adapter="a", max_new_tokens=2)
        assert other.statistics.kept_tokens == 16
        with pytest.raises(sardonyx.InvalidArgumentError, match="no adapter 'd'"):
            engine.submit([1], adapter="d")


def test_quantised_base_with_speculation(tmp_path):
    """On 4-bit weights an adapter of zeros changes nothing, another one does; guesses do not change answers."""
    folder = llm_models.write(tmp_path / "base", llm_models.Decoder(layers=2, positions=160, bits=4))
    write_adapter(tmp_path / "zeros", 1)
    file = tmp_path / "zeros/adapter_model.safetensors"
    safetensors.save_file({n: x * 0 for n, x in safetensors.load_file(file).items()}, file)
    write_adapter(tmp_path / "a", 2)
    folders = {"zeros": tmp_path / "zeros", "a": tmp_path / "a"}
    found = []
    for speculation in (None, {"ngram": 2}):
        with Engine(folder, cache_memory=4 << 20, adapters=folders, speculation=speculation) as engine:
            ask = lambda name: engine.generate([1, 2, 3], adapter=name, max_new_tokens=40, ignore_eos=True).tokens
            found.append([ask(name) for name in ("", "zeros", "a")])
    assert found[0] == found[1] and found[0][0] == found[0][1] != found[0][2]


def test_simulated_card(tmp_path):
    base = llm_models.Decoder(layers=1, positions=160)
    folder = llm_models.write(tmp_path / "base", base)
    change = write_adapter(tmp_path / "a", 1, layers=(0,))
    wanted = merged(tmp_path / "merged", base, change).generate([5, 6, 7], max_new_tokens=3, ignore_eos=True).tokens
    with Engine(
        folder,
        device="sim:gfx942",
        page_tokens=16,
        max_sequences=2,
        cache_memory=1 << 20,
        adapters={"a": tmp_path / "a"},
    ) as engine:
        plain = engine.submit([5, 6, 7], max_new_tokens=3, ignore_eos=True)
        assert engine.generate([5, 6, 7], adapter="a", max_new_tokens=3, ignore_eos=True).tokens == wanted
        assert plain.wait(WAIT) and plain.answer != wanted


def test_folders_that_are_refused(tmp_path):
    folder = llm_models.write(tmp_path / "base", D)

    def changed(name, config=None, tensors=None, **own):
        write_adapter(tmp_path / name, 1, **own)
        if config:
            file = tmp_path / name / "adapter_config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | config))
        if tensors:
            safetensors.save_file(tensors, tmp_path / name / "adapter_model.safetensors")
        return tmp_path / name

    half = np.ones((4, 64), np.float32)
    path = "base_model.model.model.layers.0.self_attn.q_proj"
    cases = [
        (changed("type", {"peft_type": "IA3"}), "IA3"),
        (changed("dora", {"use_dora": True}), "use_dora"),
        (changed("bias", {"bias": "all"}), "bias"),
        (changed("pattern", {"rank_pattern": {"q_proj": 2}}), "rank_pattern"),
        (changed("rank", {"r": 1 << 40}), "rank"),
        (changed("alpha", {"lora_alpha": "x"}), "lora_alpha"),
        (changed("fit", {"r": 5}), "rank 5"),
        (changed("layers", layers=(7,)), "layer 7"),
        (changed("half", tensors={f"{path}.lora_A.weight": half}), "lacks"),
        (
            changed("size", tensors={f"{path}.lora_A.weight": half[:, :32], f"{path}.lora_B.weight": half.T}),
            "32 inputs",
        ),
        (changed("nan", tensors={f"{path}.lora_A.weight": half * np.nan, f"{path}.lora_B.weight": half.T}), "finite"),
        (changed("names", tensors={"base_model.model.lm_head.lora_A.weight": half}), "lm_head"),
        (changed("ints", tensors={f"{path}.lora_A.weight": half.astype(np.int32)}), "I32"),
        (tmp_path / "nothing", "adapter_config"),
    ]
    broken = changed("broken")
    (broken / "adapter_model.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    missing = changed("missing")
    (missing / "adapter_model.safetensors").unlink()
    cases += [(broken, "safetensors"), (missing, "could not be read")]
    for path, words in cases:
        with pytest.raises(sardonyx.Error, match=words):
            Engine(folder, adapters={"x": path}, cache_memory=1 << 20)


def test_server(tmp_path):
    for package in ("fastapi", "uvicorn", "prometheus_client", "openai"):
        pytest.importorskip(package, reason=f"serving and its test need the package {package}")
    from sardonyx.serve import Limits, create_app
    from serving import Running, write_model

    folder = write_model(tmp_path / "base")
    write_adapter(tmp_path / "a", 1)
    engine = Engine(folder, cache_memory=4 << 20, adapters={"poet": tmp_path / "a"})
    wanted = {n: engine.generate("hello", adapter=n, max_new_tokens=12, ignore_eos=True).text for n in ("", "poet")}
    server = Running({"tiny": engine}, {}, Limits(), (), 30)
    try:
        client = server.client()
        assert {m.id for m in client.models.list()} == {"tiny", "poet"}
        for name, model in (("", "tiny"), ("poet", "poet")):
            own = {"prompt": "hello", "max_tokens": 12, "extra_body": {"ignore_eos": True}}
            found = client.completions.create(model=model, **own)
            assert found.choices[0].text == wanted[name] and found.model == model
        assert wanted[""] != wanted["poet"]
        assert list(json.loads(server.ask("GET", "/status")[2])["languages"]) == ["tiny"]
        with pytest.raises(sardonyx.InvalidArgumentError, match="poet"):
            create_app({"poet": engine})
    finally:
        server.end()
        server.thread.join(WAIT)
