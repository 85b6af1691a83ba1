"""sardonyx.quantize(to="kv-int8"): a language model whose KV cache has 8 bits, in evaluate() and in LanguageModel."""

import gguf_files
import numpy as np
import onnx
import pytest
import sardonyx
from sardonyx.llm import LanguageModel
from sardonyx.llm.convert import convert_gguf
from test_quantize import network

TEXT = ["the end and then the end of the end " * 6]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("kv")
    gguf_files.write(root / "m.gguf", "llama", "Q8_0")
    convert_gguf(root / "m.gguf", root / "float", precision="fp32")
    return root / "float"


@pytest.mark.parametrize("to", ["kv-int8", "kv-fp8"])
def test_the_cache_has_8_bits_and_the_model_predicts_the_same(folder, to, tmp_path):
    done = sardonyx.quantize(folder, TEXT, to=to, output=tmp_path / "out", context=16)
    onnx_type = {"kv-int8": onnx.TensorProto.INT8, "kv-fp8": onnx.TensorProto.FLOAT8E4M3FN}[to]
    caches = [v for v in (*done.model.graph.input, *done.model.graph.output) if "past" in v.name or "present" in v.name]
    assert len(caches) == 2 * len(done.report.ranges) and len(caches) >= 4
    assert {v.type.tensor_type.elem_type for v in caches} == {onnx_type}
    e = sardonyx.evaluate(tmp_path / "out", TEXT, reference=folder, context=32)
    # The error of a key or value is 0.8 % in int8, whose step is a channel's largest / 127, and 2.6 % in e4m3. The softmax of
    # this model with random weights makes it three to four times as large.
    assert 1e-3 < e.outputs[0].relative < (0.04 if to == "kv-int8" else 0.13)
    # Perplexity over 128 tokens follows the logits' error: below 4 and 13 %, a third of it in nats per token at most.
    assert abs(e.text.ratio - 1) < (0.013 if to == "kv-int8" else 0.04)
    ours, theirs = (
        LanguageModel(str(f)).generate("the end", max_new_tokens=12, ignore_eos=True)
        for f in (tmp_path / "out", folder)
    )
    assert len(ours.tokens) == 12 and ours.tokens[0] == theirs.tokens[0]


def test_on_a_simulated_gpu(folder, tmp_path):
    sardonyx.quantize(folder, TEXT, to="kv-int8", output=tmp_path / "out", context=16)
    found = [
        LanguageModel(str(tmp_path / "out"), device=d).generate("the end", max_new_tokens=4).tokens
        for d in ("host", "sim:gfx942")
    ]
    assert found[0] == found[1]


def test_what_is_refused(folder, tmp_path):
    with pytest.raises(sardonyx.InvalidArgumentError, match="no GroupQueryAttention"):
        sardonyx.quantize(network(), [{"x": np.zeros((1, 8, 12, 12), np.float32)}], to="kv-int8")
    done = sardonyx.quantize(folder, TEXT, to="kv-int8", output=tmp_path / "out", context=16)
    assert done.report.layers == ()
    with pytest.raises(sardonyx.InvalidArgumentError, match="quantised already"):
        sardonyx.quantize(tmp_path / "out", TEXT, to="kv-fp8", context=16)
    with pytest.raises(sardonyx.InvalidArgumentError, match="needs data"):
        sardonyx.quantize(folder, to="kv-int8")
