"""sardonyx.llm.LanguageModel: tokens compared with onnxruntime-genai and with reference implementations of the searches, sampling, stops, turns, errors."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper
from sardonyx.llm import Generation, LanguageModel, convert_gguf
from sardonyx.llm.beam_search import Beams
from sardonyx.llm.sampling_graph import Nodes, SamplingKind, add_sampling
from sardonyx.llm.search_options import search_options
from sardonyx.llm.text_stream import TextStream

PROMPT = [5, 77, 100, 31, 200, 9, 9, 64, 18, 150]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    gguf_files.write(path / "m.gguf", "llama")
    convert_gguf(path / "m.gguf", path / "model", precision="fp32")
    return path / "model"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return gguf_files.write(tmp_path_factory.mktemp("weights") / "m.gguf", "llama")


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return LanguageModel(folder)


def plain_greedy(weights: dict[str, np.ndarray], prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(gguf_files.logits("llama", weights, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def genai_greedy(folder: Path, prompt: list[int], count: int) -> list[int]:
    import onnxruntime_genai as og

    model = og.Model(str(folder))
    options = og.GeneratorParams(model)
    options.set_search_options(max_length=len(prompt) + count, do_sample=False)
    generator = og.Generator(model, options)
    generator.append_tokens(np.array([prompt], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(t) for t in generator.get_sequence(0)][len(prompt) :]


def test_greedy_is_plain_greedy(model: LanguageModel, weights: dict[str, np.ndarray]) -> None:
    answer = model.generate(PROMPT, max_new_tokens=20, ignore_eos=True)
    assert answer.tokens == plain_greedy(weights, PROMPT, 20)
    assert answer.finished == "length" and answer.statistics.new_tokens == 20


@pytest.mark.parametrize(
    "architecture, precision", [*((a, "fp32") for a in gguf_files.ARCHITECTURES), ("llama", "int4"), ("phi3", "int4")]
)
def test_greedy_is_genais(tmp_path: Path, architecture: str, precision: str) -> None:
    gguf_files.write(tmp_path / "m.gguf", architecture, "Q4_0" if precision == "int4" else "F32")
    activations = "fp32" if precision == "int4" else None
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision=precision, activations=activations)
    theirs = genai_greedy(tmp_path / "out", PROMPT, 40)
    ours = LanguageModel(tmp_path / "out").generate(PROMPT, max_new_tokens=40)
    ended = ours.finished == "end"  # genai's sequences leave the end token out
    assert ours.tokens[: len(ours.tokens) - ended] == theirs


@pytest.mark.parametrize("chip, precision", [("gfx1100", "fp32"), ("gfx942", "int4")])
def test_simulated_card(tmp_path: Path, chip: str, precision: str) -> None:
    weights = gguf_files.write(tmp_path / "m.gguf", "llama", "Q4_0" if precision == "int4" else "F32")
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision=precision, activations="fp32")
    card = LanguageModel(tmp_path / "out", device=f"sim:{chip}")
    assert card.generate(PROMPT[:4], max_new_tokens=4, ignore_eos=True).tokens == plain_greedy(weights, PROMPT[:4], 4)
    sampled = [card.generate(PROMPT[:4], max_new_tokens=3, do_sample=True, top_k=5, seed=1).tokens for _ in range(2)]
    assert sampled[0] == sampled[1]


def test_batch_of_uneven_prompts(model: LanguageModel) -> None:
    prompts = [PROMPT, PROMPT[:3], PROMPT[4:9]]
    together = model.generate_batch(prompts, max_new_tokens=12, ignore_eos=True)
    alone = [model.generate(p, max_new_tokens=12, ignore_eos=True) for p in prompts]
    assert [g.tokens for g in together] == [g.tokens for g in alone]


def test_prefix_is_kept(model: LanguageModel) -> None:
    first = model.generate(PROMPT, max_new_tokens=5, ignore_eos=True)
    longer = [*PROMPT, *first.tokens, 40, 41, 42]
    second = model.generate(longer, max_new_tokens=60, ignore_eos=True)  # beyond the cache's room
    assert second.statistics.kept_tokens == len(PROMPT) + 4  # the last token had not been an input
    fresh = LanguageModel(model._folder.path).generate(longer, max_new_tokens=60, ignore_eos=True)
    assert fresh.tokens == second.tokens and fresh.statistics.kept_tokens == 0
    other = model.generate([*PROMPT[:6], 7, 8], max_new_tokens=5, ignore_eos=True)
    assert other.statistics.kept_tokens == 6
    assert (
        other.tokens
        == LanguageModel(model._folder.path).generate([*PROMPT[:6], 7, 8], max_new_tokens=5, ignore_eos=True).tokens
    )


def test_streaming_and_stops(model: LanguageModel) -> None:
    parts: list[str] = []
    whole = model.generate("the and ", max_new_tokens=40, ignore_eos=True, on_text=parts.append)
    assert "".join(parts) == whole.text and whole.tokens
    readable = [c for c in whole.text if c.isprintable() and c != "\ufffd"]
    stop = readable[len(readable) // 2]
    cut = model.generate("the and ", max_new_tokens=40, ignore_eos=True, stop=stop)
    assert cut.finished == "stop" and cut.text == whole.text[: whole.text.index(stop)]
    assert len(cut.tokens) < 40


def test_text_stream_holds_back() -> None:
    words = {0: "a", 1: "END", 2: "E", 3: "N", 4: "D", 5: "x"}

    def decode(tokens: list[int]) -> str:
        return "".join(words[t] for t in tokens)

    stream = TextStream(decode, ("END",))
    assert [stream.add(t) for t in (0, 2, 3, 5)] == ["a", "", "", "ENx"]
    assert [stream.add(t) for t in (2, 3, 4)] == ["", "", ""] and stream.stopped
    assert stream.finish() == "" and stream.text == "aENx"
    stream = TextStream(decode, ("END",))
    assert stream.add(0) + stream.add(2) + stream.finish() == "aE" and not stream.stopped


def test_characters_of_several_tokens(model: LanguageModel) -> None:
    text = "Grüße 世界 🙂"
    stream = TextStream(model.decode, ())
    parts = [stream.add(t) for t in model.encode(text)] + [stream.finish()]
    assert "".join(parts) == text and not any("\ufffd" in p for p in parts)


def test_repetition_penalty(model: LanguageModel, weights: dict[str, np.ndarray]) -> None:
    tokens = list(PROMPT)
    for _ in range(12):
        scores = gguf_files.logits("llama", weights, tokens)[-1]
        seen = np.unique(tokens)
        scores[seen] = np.where(scores[seen] > 0, scores[seen] / 1.7, scores[seen] * 1.7)
        tokens.append(int(scores.argmax()))
    ours = model.generate(PROMPT, max_new_tokens=12, ignore_eos=True, repetition_penalty=1.7)
    assert ours.tokens == tokens[len(PROMPT) :]


def sampler(kind: SamplingKind, vocabulary: int) -> sardonyx.Model:
    graph = helper.make_graph(
        [], "g", [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", vocabulary])], []
    )
    add_sampling(Nodes(graph), "logits", vocabulary, kind)
    return sardonyx.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), cache_dir=""
    )


CASES = [  # top_k, top_p, min_p, temperature
    (0, 1.0, 0.0, 1.0),
    (0, 1.0, 0.2, 0.7),
    (5, 1.0, 0.0, 1.3),
    (0, 0.7, 0.0, 1.0),
    (12, 0.9, 0.1, 0.8),
]


@pytest.mark.parametrize("top_k, top_p, min_p, temperature", CASES)
def test_sampling_has_the_right_distribution(top_k: int, top_p: float, min_p: float, temperature: float) -> None:
    vocabulary, draws = 40, 20000
    logits = np.random.default_rng(5).normal(0, 2, vocabulary).astype(np.float32)
    # The distribution, filter by filter.
    p = np.exp(logits.astype(np.float64) / temperature)
    order = np.argsort(-p)
    p[order[top_k or vocabulary :]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= top_p]] = 0
    p[p < min_p * p.max()] = 0
    p /= p.sum()

    wanted = top_k or vocabulary
    candidates = min(vocabulary, 1 << (wanted - 1).bit_length()) if top_k or top_p < 1 else 0
    feeds: dict[str, Any] = {
        "logits": np.tile(logits, (draws, 1)),
        "temperature": np.array([temperature], np.float32),
        "min_p": np.array([min_p], np.float32),
        "random": np.random.default_rng(6).random((2, draws), np.float32),
        "step": np.array([1]),
    }
    if candidates:
        feeds |= {"top_p": np.array([top_p], np.float32), "top_k": np.array([wanted])}
    result = sampler(SamplingKind("sample", candidates=candidates), vocabulary)(feeds)
    assert result["step_next"].tolist() == [2]
    counts = np.bincount(result["next_tokens"][:, 0], minlength=vocabulary)
    assert counts[p == 0].sum() == 0
    # Pearson's chi-square with at most 39 degrees of freedom is below 85 in all but 3 of 100000 cases.
    assert ((counts - draws * p)[p > 0] ** 2 / (draws * p[p > 0])).sum() < 85


def test_sampling_of_the_extremes() -> None:
    """The largest random number still chooses a token that is allowed."""
    logits = np.array([[0.0, 3.0, -50.0, 1.0]], np.float32)
    feeds = {
        "logits": logits,
        "temperature": np.ones(1, np.float32),
        "min_p": np.zeros(1, np.float32),
        "step": np.array([0]),
    }
    for number, low in ((0.0, 0), (1 - 2**-22, 3)):
        feeds["random"] = np.array([[number]], np.float32)
        assert sampler(SamplingKind("sample"), 4)(feeds)["next_tokens"].tolist() == [[low]]


def test_seeds(model: LanguageModel) -> None:
    options = {
        "do_sample": True,
        "temperature": 1.5,
        "top_k": 40,
        "top_p": 0.95,
        "max_new_tokens": 20,
        "ignore_eos": True,
    }
    first = model.generate(PROMPT, seed=3, **options).tokens
    assert model.generate(PROMPT, seed=3, **options).tokens == first
    assert model.generate(PROMPT, seed=4, **options).tokens != first
    assert len({tuple(model.generate(PROMPT, **options).tokens) for _ in range(3)}) > 1


def plain_beam_search(
    weights: dict[str, np.ndarray], prompt: list[int], n: int, new: int, ends: set[int], penalty: float
) -> list[int]:
    """Without caches: every text is computed anew in each step."""
    beams, results = [(0.0, list(prompt))], []
    for _ in range(new):
        candidates = []
        for total, tokens in beams:
            scores = gguf_files.logits("llama", weights, tokens)[-1]
            log_p = scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
            candidates += [(total + p, [*tokens, t]) for t, p in enumerate(log_p)]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * n]
        beams = []
        for rank, (total, tokens) in enumerate(candidates):
            if tokens[-1] in ends:
                if rank < n:
                    results.append((total / (len(tokens) - len(prompt)) ** penalty, tokens))
            elif len(beams) < n:
                beams.append((total, tokens))
        if len(results) >= n:
            break
    else:
        results += [(total / (len(tokens) - len(prompt)) ** penalty, tokens) for total, tokens in beams]
    return max(results)[1][len(prompt) :]


@pytest.mark.parametrize("beams, penalty", [(2, 1.0), (4, 1.0), (3, 0.2)])
def test_beam_search(model: LanguageModel, weights: dict[str, np.ndarray], beams: int, penalty: float) -> None:
    options = {"num_beams": beams, "length_penalty": penalty, "max_new_tokens": 8}
    expected = plain_beam_search(weights, PROMPT, beams, 8, set(model.ends), penalty)
    assert model.generate(PROMPT, **options).tokens == expected


def test_beams_that_end() -> None:
    beams = Beams(2, frozenset({0}), 1.0, True)
    assert beams.advance([(-1.0, 0, 0), (-1.5, 0, 3), (-2.0, 0, 4), (-9.0, 0, 5)]) == [0, 0]
    assert not beams.done and beams.texts == [[3], [4]] and beams.results == [(-1.0, [0])]
    beams.advance([(-1.6, 0, 0), (-2.0, 1, 7), (-3.0, 0, 8), (-9.0, 0, 9)])
    assert beams.done and beams.best() == [3, 0]  # -1.6 / 2 is better than -1.0 / 1


def test_conversation(model: LanguageModel) -> None:
    messages = [{"role": "user", "content": "the end"}]
    answer = model.generate(messages, max_new_tokens=6, ignore_eos=True)
    assert model.chat_prompt(messages) == "<|im_start|>user\nthe end<|im_end|>\n<|im_start|>assistant\n"
    assert answer.statistics.prompt_tokens == len(model.encode(model.chat_prompt(messages)))


@pytest.mark.parametrize(
    "options, what",
    [
        ({"top_q": 1}, "no option 'top_q'"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_k": -2}, "top_k is -2"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"num_beams": 2, "do_sample": True}, "does not sample"),
        ({"stop": ("",)}, "stop strings"),
        ({"temperature": "hot"}, "not a number"),
    ],
)
def test_bad_options(model: LanguageModel, options: dict[str, Any], what: str) -> None:
    with pytest.raises(sardonyx.InvalidArgumentError, match=what):
        model.generate(PROMPT, **options)


def test_bad_prompts(model: LanguageModel) -> None:
    long = [1] * (gguf_files.CONTEXT + 1)
    for prompt, what in (
        (long, "limit is 128"),
        ([], "empty"),
        ([5, 100000], "from 0 to"),
        ([{"role": "user"}], "a message is"),
    ):
        with pytest.raises(sardonyx.InvalidArgumentError, match=what):
            model.generate(prompt)  # type: ignore[arg-type]
    with pytest.raises(sardonyx.InvalidArgumentError, match="limit is 128"):
        model.generate_batch([PROMPT, long])
    # The model is as good as before; an answer ends at the model's limit.
    answer = model.generate([1] * (gguf_files.CONTEXT - 3), max_new_tokens=50, ignore_eos=True)
    assert len(answer.tokens) == 3 and answer.finished == "length"


def test_too_little_memory(model: LanguageModel) -> None:
    before = model.generate(PROMPT, max_new_tokens=3, ignore_eos=True).tokens
    with pytest.raises(sardonyx.DeviceError, match="GiB"):
        model._engine.decoder.new_cache(1 << 20, 1 << 20)
    assert model.generate(PROMPT, max_new_tokens=3, ignore_eos=True).tokens == before


def test_too_little_memory_of_a_card(folder: Path) -> None:
    card = LanguageModel(folder, device="sim:gfx1100")
    with pytest.raises(sardonyx.DeviceError, match="GiB"):
        card._engine.decoder.new_cache(1 << 20, 1 << 20)
    assert len(card.generate(PROMPT[:3], max_new_tokens=1, ignore_eos=True).tokens) == 1


def test_ids_of_32_bits(folder: Path, tmp_path: Path, model: LanguageModel) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    onnx.save(proto, tmp_path / "copy" / "model.onnx")
    answers = [m.generate(PROMPT, max_new_tokens=6, ignore_eos=True) for m in (model, LanguageModel(tmp_path / "copy"))]
    assert answers[0].tokens == answers[1].tokens


def test_what_the_folder_wants_gives_way() -> None:
    beams, samples = {"num_beams": 4}, {"do_sample": True, "top_k": 7}
    assert search_options(beams, {}).num_beams == 4
    assert search_options(beams, {"do_sample": True}).num_beams == 1
    assert not search_options(samples, {"num_beams": 2}).do_sample
    assert search_options(samples, {"temperature": 0.5}).top_k == 7 and search_options(samples, {}).samples
    assert not search_options(samples, {"do_sample": False}).samples


@pytest.mark.parametrize("name", ["genai_config.json", "model.onnx", "model.onnx.data", "tokenizer.json"])
def test_folder_lacks_a_file(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(sardonyx.FileError, match=name.replace(".", r"\.")):
        LanguageModel(tmp_path / "copy")


@pytest.mark.parametrize("name", ["genai_config.json", "model.onnx", "tokenizer.json", "tokenizer_config.json"])
def test_folder_with_a_damaged_file(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    file = tmp_path / "copy" / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(sardonyx.InvalidModelError):
        LanguageModel(tmp_path / "copy")


def test_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(sardonyx.FileError, match="not a folder"):
        LanguageModel(tmp_path / "none")
    (tmp_path / "genai_config.json").write_text('{"model": {"decoder": {"filename": "../../etc/passwd"}}}')
    with pytest.raises(sardonyx.InvalidModelError):
        LanguageModel(tmp_path)


def test_growing_caches(folder: Path, tmp_path: Path, model: LanguageModel) -> None:
    """A decoder whose past is concatenated, as those without GroupQueryAttention have it: a folder of such a model is
    made by giving the operator's caches through an Identity, which hides that they could be shared."""
    shutil.copytree(folder, tmp_path / "copy")
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    for node in list(proto.graph.node):
        if node.op_type == "GroupQueryAttention":
            for at in (3, 4):
                proto.graph.node.insert(0, helper.make_node("Identity", [node.input[at]], [f"{node.input[at]}/same"]))
                node.input[at] += "/same"
    onnx.save(proto, tmp_path / "copy" / "model.onnx")
    growing = LanguageModel(tmp_path / "copy")
    assert not growing._engine.decoder.graph.cache.shared
    expected = model.generate(PROMPT, max_new_tokens=10, ignore_eos=True).tokens
    assert growing.generate(PROMPT, max_new_tokens=10, ignore_eos=True).tokens == expected
    assert (
        growing.generate(PROMPT, max_new_tokens=6, num_beams=3).tokens
        == model.generate(PROMPT, max_new_tokens=6, num_beams=3).tokens
    )


def drained(parts: Iterator[str]) -> Generation:
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value


def test_an_answer_that_is_left(model: LanguageModel) -> None:
    """Who stops listening leaves the model usable, with what was computed."""
    parts = model.stream("the and ", max_new_tokens=30, ignore_eos=True)
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    again = drained(model.stream("the and ", max_new_tokens=10, ignore_eos=True))
    assert again.statistics.kept_tokens > 0 and len(again.tokens) == 10
