"""Encoders of texts: embeddings and scores against a reference in NumPy, folders that make no sense, and the server with OpenAI's client."""

import concurrent.futures
import json

import llm_models
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper
from sardonyx.llm import TextEncoder

SIZE, VOCAB = 12, 258
TEXTS = ["hello", "a", "the quick brown fox jumps over the lazy dog", "x" * 40, "hello"]


def parts(seed=3):
    rng = np.random.default_rng(seed)
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    return {"table": f(VOCAB, SIZE), "kinds": f(2, SIZE), "w": f(SIZE, SIZE) * 0.4, "score": f(SIZE, 1)}


def hidden_of(tokens, types, p):
    """[tokens, SIZE]: each token knows the mean of all."""
    h = np.tanh((p["table"][tokens] + p["kinds"][types]) @ p["w"])
    return h + h.mean(0)


def model(pairs=False, output="last_hidden_state", sizes=("batch_size", "sequence_length"), names=("input_ids", "attention_mask", "token_type_ids")):  # fmt: skip
    """What padding adds is masked by attention_mask alone, as in a real encoder."""
    p, info = parts(), helper.make_tensor_value_info
    made = [numpy_helper.from_array(v, k) for k, v in p.items()]
    made.append(numpy_helper.from_array(np.array([0, 1, -1], np.int64), "row"))
    made.append(numpy_helper.from_array(np.array([0, -1, 1], np.int64), "column"))
    made.append(numpy_helper.from_array(np.array([0, -1], np.int64), "flat"))
    made.append(numpy_helper.from_array(np.array(0, np.int64), "first"))
    n = helper.make_node
    nodes = [
        n("Gather", ["table", names[0]], ["words"]),
        n("Gather", ["kinds", names[2]], ["kind_rows"])
        if len(names) > 2
        else n("Gather", ["kinds", "first"], ["kind_rows"]),
        n("Add", ["words", "kind_rows"], ["sum"]),
        n("MatMul", ["sum", "w"], ["product"]),
        n("Tanh", ["product"], ["h"]),
        n("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        n("Reshape", ["mask", "row"], ["mask_row"]),
        n("MatMul", ["mask_row", "h"], ["total"]),  # [batch, 1, size]
        n("Reshape", ["mask", "column"], ["mask_column"]),
        n("MatMul", ["mask_row", "mask_column"], ["count"]),
        n("Div", ["total", "count"], ["mean"]),
        n("Add", ["h", "mean"], ["last_hidden_state"]),
        n("Gather", ["last_hidden_state", "first"], ["cls"], axis=1),
        n("MatMul", ["cls", "score"], ["logits"]),
        n("Identity", ["cls"], ["sentence_embedding"]),
    ]
    shapes = {"last_hidden_state": [*sizes, SIZE], "logits": [sizes[0], 1], "sentence_embedding": [sizes[0], SIZE]}
    inputs = [info(k, TensorProto.INT64, list(sizes)) for k in names]
    outputs = ["logits"] if pairs else [output]
    graph = helper.make_graph(nodes, "encoder", inputs, [info(k, TensorProto.FLOAT, shapes[k]) for k in outputs], made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(folder, pooling="mean", normalize=True, config=None, pair_template=True, **own):
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model(**own), folder / "model.onnx")
    llm_models.write_tokenizer(folder, VOCAB)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    sequence = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    special = lambda name, kind: {"SpecialToken": {"id": name, "type_id": kind}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special("<s>", 0), sequence("A", 0), special("</s>", 0)],
        "pair": [special("<s>", 0), sequence("A", 0), special("</s>", 0), sequence("B", 1), special("</s>", 1)],
        "special_tokens": {
            t: {"id": t, "ids": [k], "tokens": [t]} for t, k in (("<s>", VOCAB - 2), ("</s>", VOCAB - 1))
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"max_position_embeddings": 64, "hidden_size": SIZE, "pad_token_id": 7, **(config or {})}
    (folder / "config.json").write_text(json.dumps(settings))
    kinds = ["models.Transformer", "models.Pooling", *(["models.Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": k, "name": str(k), "path": paths[k], "type": f"sentence_transformers.{t}"} for k, t in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken", "max": "max_tokens"}
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": SIZE, **{f"pooling_mode_{v}": k == pooling for k, v in modes.items()}})
    )
    return folder


def reference(encoder, text, pooling="mean", normalize=True):
    ((tokens, types),) = encoder.encode([text])
    h = hidden_of(tokens, types, parts())
    x = {"mean": h.mean(0), "cls": h[0], "last": h[-1]}[pooling]
    return x / np.linalg.norm(x) if normalize else x


@pytest.mark.parametrize("pooling, normalize", [("mean", True), ("cls", True), ("last", False)])
def test_embeddings(tmp_path, pooling, normalize):
    encoder = TextEncoder(write(tmp_path / "e", pooling, normalize))
    assert not encoder.pairs and encoder.size == SIZE and encoder.context == 64
    found = encoder.embed(TEXTS, batch=3)
    wanted = [reference(encoder, t, pooling, normalize) for t in TEXTS]
    # Sums of float32 in another order; values are up to 3.
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    tokens = encoder.encode([TEXTS[2]])[0][0]
    np.testing.assert_allclose(encoder.embed([tokens])[0], wanted[2], atol=2e-5)


def test_scores(tmp_path):
    p = parts()
    for identity in (False, True):
        config = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"} if identity else {}
        encoder = TextEncoder(write(tmp_path / str(identity), pairs=True, config=config))
        assert encoder.pairs
        found = encoder.rerank("hello", TEXTS)
        for text, score in zip(TEXTS, found, strict=True):
            ((tokens, types),) = encoder.encode([("hello", text)])
            assert types[-1] == 1
            logit = float(hidden_of(tokens, types, p)[0] @ p["score"][:, 0])
            # Sums of float32 in another order; values are up to 3.
            assert score == pytest.approx(logit if identity else 1 / (1 + np.exp(-logit)), abs=2e-5)
        with pytest.raises(sardonyx.InvalidArgumentError, match="scores pairs"):
            encoder.embed(["x"])


def test_long_texts(tmp_path):
    encoder = TextEncoder(write(tmp_path / "e"))
    with pytest.raises(sardonyx.InvalidArgumentError, match="text 1 has 102 tokens"):
        encoder.embed(["a", "b" * 100])
    cut = encoder.embed(["b" * 100], truncate=True)
    np.testing.assert_allclose(cut[0], encoder.embed(["b" * 62])[0], atol=1e-6)  # and two special tokens
    for wrong in ([[1, 999]], [[]], [[-1]]):
        with pytest.raises(sardonyx.InvalidArgumentError):
            encoder.embed(wrong)
    roberta = write(tmp_path / "r", config={"model_type": "roberta", "pad_token_id": 1})
    assert TextEncoder(roberta).context == 62


def test_other_outputs(tmp_path):
    encoder = TextEncoder(write(tmp_path / "e", output="sentence_embedding"))
    np.testing.assert_allclose(encoder.embed(["abc"])[0], reference(encoder, "abc", "cls", False), atol=2e-5)
    two = TextEncoder(write(tmp_path / "two", names=("input_ids", "attention_mask")))
    np.testing.assert_allclose(two.embed(["abc"])[0], reference(two, "abc"), atol=2e-5)


def test_folders_that_are_refused(tmp_path):
    def changed(name, **own):
        return write(tmp_path / name, **own)

    cases = [
        (changed("max", pooling="max"), "max_tokens"),
        (changed("fixed", sizes=("batch", 8)), "any size"),
        (changed("names", names=("input_ids", "attention_mask", "other")), "other"),
        (changed("relu", pairs=True, config={"sbert_ce_default_activation_function": "torch.nn.ReLU"}), "ReLU"),
    ]
    dense = changed("dense")
    (dense / "modules.json").write_text('[{"type": "x.Dense", "path": "2_Dense"}]')
    outside = changed("outside")
    (outside / "modules.json").write_text('[{"type": "x.Pooling", "path": "../other"}]')
    silent = changed("silent")
    (silent / "modules.json").write_text('[{"type": "x.Transformer", "path": ""}]')
    broken = changed("broken")
    (broken / "tokenizer.json").write_text("{")
    garbage = changed("garbage")
    (garbage / "model.onnx").write_bytes(b"\x08\xff")
    deep = changed("deep")
    (deep / "modules.json").write_text("[" * 100_000)
    cases += [
        (dense, "Dense"),
        (outside, "inside"),
        (silent, "pooled"),
        (broken, "tokenizer"),
        (garbage, "ONNX"),
        (deep, "JSON"),
    ]
    cases += [(tmp_path / "nothing", "no encoder")]
    for folder, words in cases:
        with pytest.raises(sardonyx.Error, match=words):
            TextEncoder(folder)
    assert TextEncoder(silent, pooling="cls").embed(["x"]).shape == (1, SIZE)


# ---- the server
@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    root = tmp_path_factory.mktemp("encoders")
    config = {"matryoshka_dimensions": [4, 8]}
    return {"embed": TextEncoder(write(root / "e", config=config)), "rank": TextEncoder(write(root / "r", pairs=True))}


def test_server(monkeypatch, tmp_path, encoders):
    for package in ("fastapi", "uvicorn", "prometheus_client", "openai"):
        pytest.importorskip(package, reason=f"serving and its test need the package {package}")
    from sardonyx.serve import Limits
    from serving import servers, write_model

    folder = write_model(tmp_path / "tiny")
    with servers(monkeypatch, folder) as start:
        server = start(encoders=encoders, limits=Limits(texts=40, batch=8, batch_delay=0.02))
        client = server.client()
        assert {m.id for m in client.models.list()} == {"tiny", "embed", "rank"}
        assert client.models.retrieve("rank").id == "rank"
        wanted = encoders["embed"].embed(TEXTS)
        found = client.embeddings.create(model="embed", input=TEXTS)  # base64 by default
        np.testing.assert_allclose([d.embedding for d in found.data], wanted, atol=1e-6)
        assert found.usage.prompt_tokens == sum(len(t) + 2 for t in TEXTS)
        short = client.embeddings.create(model="embed", input=TEXTS[0], encoding_format="float", dimensions=4)
        x = wanted[0][:4]
        np.testing.assert_allclose(short.data[0].embedding, x / np.linalg.norm(x), atol=1e-6)
        tokens = client.embeddings.create(model="embed", input=encoders["embed"].encode(["a"])[0][0])
        np.testing.assert_allclose(tokens.data[0].embedding, wanted[1], atol=1e-6)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            ask = lambda k: client.embeddings.create(model="embed", input=[TEXTS[k % 5]] * (1 + k % 12)).data
            for k, data in enumerate(pool.map(ask, range(24))):
                np.testing.assert_allclose([d.embedding for d in data], [wanted[k % 5]] * (1 + k % 12), atol=1e-6)
        scores = encoders["rank"].rerank("hello", TEXTS)
        body = {"model": "rank", "query": "hello", "documents": [*TEXTS[:4], {"text": TEXTS[4]}], "top_n": 3, "return_documents": True}  # fmt: skip
        status, _, content = server.ask("POST", "/v1/rerank", body)
        results = json.loads(content)["results"]
        assert status == 200 and [r["index"] for r in results] == np.argsort(-scores, kind="stable")[:3].tolist()
        assert all(r["document"]["text"] == TEXTS[r["index"]] for r in results)
        np.testing.assert_allclose([r["relevance_score"] for r in results], np.sort(scores)[::-1][:3], atol=1e-6)
        wrong = [
            ("embeddings", {"model": "rank", "input": "x"}, 404),
            ("embeddings", {"model": "tiny", "input": "x"}, 404),
            ("embeddings", {"model": "embed", "input": []}, 400),
            ("embeddings", {"model": "embed", "input": [""] * 41}, 400),
            ("embeddings", {"model": "embed", "input": [[1, 999]]}, 400),
            ("embeddings", {"model": "embed", "input": "x" * 100}, 400),
            ("embeddings", {"model": "embed", "input": "x", "dimensions": 5}, 400),
            ("embeddings", {"model": "embed", "input": 7}, 422),
            ("embeddings", {"model": "embed", "input": "x", "encoding_format": "hex"}, 422),
            ("rerank", {"model": "embed", "query": "a", "documents": ["b"]}, 404),
            ("rerank", {"model": "rank", "query": "a", "documents": []}, 422),
            ("rerank", {"model": "rank", "query": "a", "documents": ["b" * 100]}, 400),
            ("rerank", {"model": "rank", "query": "", "documents": ["b"]}, 422),
            ("chat/completions", {"model": "embed", "messages": [{"role": "user", "content": "x"}]}, 404),
        ]
        for path, content, code in wrong:
            assert server.ask("POST", f"/v1/{path}", content)[0] == code, (path, content)
        cut = server.ask("POST", "/v1/embeddings", {"model": "embed", "input": "x" * 100, "truncate": True})
        assert cut[0] == 200 and json.loads(cut[2])["usage"]["prompt_tokens"] == 64
        assert json.loads(server.ask("GET", "/status")[2])["models"]["embed"]["waiting"] == 0
