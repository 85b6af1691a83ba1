"""convert-gguf: the converted model computes the same as the GGUF file's model; malformed files are refused."""

import json
import shutil
from pathlib import Path

import gguf_files
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import sardonyx
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from sardonyx.llm import convert_gguf
from sardonyx.llm.gguf_file import TYPES, GgufFile, dequantise
from sardonyx.llm.weights import Dense, quantised, repacked

TOKENS = [5, 77, 100, 31, 200, 9, 9, 64, 18, 150]


def run_onnxruntime(folder: Path, tokens: list[int]) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
    for i in session.get_inputs()[2:]:
        dtype = np.float16 if "float16" in i.type else np.float32
        feeds[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), dtype)
    return session.run(["logits"], feeds)[0][0].astype(np.float64)


def relative(ours: np.ndarray, reference: np.ndarray) -> float:
    return float(np.sqrt(((ours - reference) ** 2).mean() / (reference**2).mean()))


@pytest.mark.parametrize("architecture", gguf_files.ARCHITECTURES)
def test_architectures(tmp_path: Path, architecture: str) -> None:
    weights = gguf_files.write(tmp_path / "m.gguf", architecture, rope_freqs=1)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision="fp32")
    reference = gguf_files.logits(architecture, weights, TOKENS)
    # float32 against float64 through two layers.
    assert relative(run_onnxruntime(tmp_path / "out", TOKENS), reference) < 1e-5
    config = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert config["model"]["type"] == architecture and config["model"]["context_length"] == gguf_files.CONTEXT


def rounded(weights: dict[str, np.ndarray], bits: int, block: int = 32) -> dict[str, np.ndarray]:
    """What remains of weights whose matrices are rounded."""
    return {k: quantised(Dense(v), bits, block).dense().values if v.ndim == 2 else v for k, v in weights.items()}


@pytest.mark.parametrize("type_name", ["F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q5_1"])
@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_quantised(tmp_path: Path, type_name: str, precision: str) -> None:
    weights = gguf_files.write(tmp_path / "m.gguf", "qwen3", type_name)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision=precision, activations="fp32")
    if type_name not in ("Q4_0", "Q4_1", "Q8_0"):  # those keep their numbers
        weights = rounded(weights, int(precision[3:]))
    reference = gguf_files.logits("qwen3", weights, TOKENS)
    assert relative(run_onnxruntime(tmp_path / "out", TOKENS), reference) < 1e-5


@pytest.mark.parametrize("precision, block", [("fp16", 32), ("int4", 128), ("int8", 128)])
def test_float16_and_large_blocks(tmp_path: Path, precision: str, block: int) -> None:
    weights = gguf_files.write(tmp_path / "m.gguf", "llama", "F32")
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision=precision, block=block)
    if precision != "fp16":
        weights = rounded(weights, int(precision[3:]), block)
    reference = gguf_files.logits("llama", weights, TOKENS)
    ours = sardonyx.compile(tmp_path / "out" / "model.onnx", cache_dir="")
    feeds = {"input_ids": np.array([TOKENS]), "attention_mask": np.ones((1, len(TOKENS)), np.int64)}
    for i in ours.inputs[2:]:
        feeds[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), i.dtype)
    # Activations, scales and norms' weights are float16.
    assert relative(ours(feeds)["logits"][0].astype(np.float64), reference) < 0.005


def test_bfloat16(tmp_path: Path) -> None:
    gguf_files.write(tmp_path / "m.gguf", "qwen2", "BF16")
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision="bf16")
    model = onnx.load(tmp_path / "out" / "model.onnx", load_external_data=False)
    kinds = {v.name: v.type.tensor_type.elem_type for v in [*model.graph.input, *model.graph.output]}
    assert kinds["past_key_values.0.key"] == onnx.TensorProto.BFLOAT16 and kinds["logits"] == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("type_name, exact", [("Q4_0", True), ("Q8_0", True), ("Q4_1", False)])
def test_repacking(type_name: str, exact: bool) -> None:
    values = np.random.default_rng(1).normal(0, 1, (16, 96)).astype(np.float32)
    values[3, 32:64] = 0.25  # a block of equal elements has no step
    kind = GGMLQuantizationType[type_name]
    rows = quantize(values, kind)
    blocked = repacked(rows, type_name)
    assert blocked is not None
    ours, theirs = blocked.dense().values, dequantize(rows, kind)
    # Q4_1's zero, a quotient, is rounded to float32.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=0 if exact else 2e-6)


@pytest.mark.parametrize("number", TYPES)
def test_types(number: int) -> None:
    """Sizes of blocks as GGML has them; the K types can be read, though nothing here writes them."""
    name, block, size = TYPES[number]
    kind = GGMLQuantizationType[name]
    assert kind == number and GGML_QUANT_SIZES[kind] == (block, size)
    rows = np.random.default_rng(number).integers(0, 60, (3, 2 * size), np.uint8)  # as float16 these are small
    values = dequantise(rows, name)
    assert values.shape == (3, 2 * block) and values.dtype == np.float32 and np.isfinite(values).all()


def test_quantising_is_within_half_a_step() -> None:
    values = np.random.default_rng(2).normal(0, 1, (8, 100)).astype(np.float32)
    for bits in (4, 8):
        blocked = quantised(Dense(values), bits, 32)
        steps = np.repeat(blocked.scales, 32, axis=1)[:, :100]
        # With 4 bits the zero is rounded too.
        assert (np.abs(blocked.dense().values - values) <= steps * (0.501 if bits == 8 else 1.001)).all()


@pytest.mark.parametrize("architecture", ["llama", "gemma"])
def test_tokenizer(tmp_path: Path, architecture: str) -> None:
    from tokenizers import Tokenizer

    gguf_files.write(tmp_path / "m.gguf", architecture)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out", precision="fp16")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for text in ("the and that 12", "Grüße, 世界!\n\n  x", "<|im_start|>user\nhi<|im_end|>"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False).lstrip(" ") == text
    pieces = tokenizer.encode("in the end", add_special_tokens=False).tokens
    assert ("Ġthe" if architecture == "llama" else "▁the") in pieces


def refused(path: Path, folder: Path) -> sardonyx.Error:
    with pytest.raises(sardonyx.Error) as error:
        convert_gguf(path, folder, precision="int4")
    assert "\n" not in str(error.value)
    return error.value


def test_truncated_files(tmp_path: Path) -> None:
    gguf_files.write(tmp_path / "m.gguf", "llama", "Q4_0")
    data = (tmp_path / "m.gguf").read_bytes()
    short = tmp_path / "short.gguf"
    for size in [0, 3, 4, 8, 20, 24, 100, 1000, 5000, len(data) // 2, len(data) - 1]:
        short.write_bytes(data[:size])
        error = refused(short, tmp_path / "out")
        assert isinstance(error, sardonyx.InvalidModelError), size
    assert "cut off" in str(error)


def test_damaged_files(tmp_path: Path) -> None:
    """Any damage of the header is refused or harmless; nothing else is raised."""
    gguf_files.write(tmp_path / "m.gguf", "llama", "Q4_0")
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    header = GgufFile(tmp_path / "m.gguf")
    end = min(t.offset for t in header.tensors.values())
    rng = np.random.default_rng(3)
    damaged = tmp_path / "damaged.gguf"
    for _ in range(300):
        copy = bytearray(data)
        for at in rng.integers(0, end, 3):
            copy[at] = int(rng.choice([0, 1, 127, 128, 255, copy[at] ^ 1]))
        damaged.write_bytes(copy)
        try:
            GgufFile(damaged)
        except sardonyx.Error as error:
            assert "\n" not in str(error)


def test_other_errors(tmp_path: Path) -> None:
    with pytest.raises(sardonyx.FileError):
        convert_gguf(tmp_path / "none.gguf", tmp_path / "out")
    (tmp_path / "text.gguf").write_text("this is no model")
    assert "does not start with GGUF" in str(refused(tmp_path / "text.gguf", tmp_path / "out"))
    gguf_files.write(tmp_path / "m.gguf", "llama")
    data = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "other.gguf").write_bytes(data.replace(b"llama", b"mamba"))
    assert isinstance(refused(tmp_path / "other.gguf", tmp_path / "out"), sardonyx.UnsupportedError)
    (tmp_path / "renamed.gguf").write_bytes(data.replace(b"blk.1.ffn_up", b"blk.1.ffn_xx"))
    assert "blk.1.ffn_up" in str(refused(tmp_path / "renamed.gguf", tmp_path / "out"))
    for options in ({"precision": "int3"}, {"block": 48}, {"precision": "fp16", "activations": "fp32"}):
        with pytest.raises(sardonyx.InvalidArgumentError):
            convert_gguf(tmp_path / "m.gguf", tmp_path / "out", **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(sardonyx.FileError):
        convert_gguf(tmp_path / "m.gguf", tmp_path / "file")
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
