"""Tensor parallelism: a decoder divided among processes (host devices, simulated GPUs) chooses the tokens of the undivided one."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import llm_models
import numpy as np
import onnx
import pytest
from cli_support import INVALID_ARGUMENT, UNSUPPORTED, sardonyx
from sardonyx.errors import DeviceError, Error, InvalidArgumentError, InvalidModelError, UnsupportedError
from sardonyx.llm import LanguageModel
from sardonyx.llm.genai_folder import read_folder
from sardonyx.llm.parallel import device_names
from sardonyx.llm.shard_weights import WeightFiles, blocks_taken, share, zero_points_taken
from sardonyx.llm.stage_graph import write_part

PROMPT = [5, 77, 100, 31, 200, 9, 9, 64, 18, 150]
HOSTS = ["host", "host"]


def part(folder: Path, out: Path, rank: int, size: int) -> onnx.ModelProto:
    out.mkdir(parents=True, exist_ok=True)
    whole = read_folder(folder)
    return onnx.load(write_part(whole, str(out), 0, 1, rank, size).model)


def operators(model: onnx.ModelProto) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in model.graph.node:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llm_models.write(tmp_path_factory.mktemp("llama"), llm_models.Decoder(layers=2, heads=4, kv_heads=2))


@pytest.fixture(scope="module")
def two(folder: Path) -> LanguageModel:
    return LanguageModel(folder, devices=HOSTS)


def test_greedy_batches_sampling_and_beams(folder: Path, two: LanguageModel) -> None:
    one = LanguageModel(folder)
    assert two.device == "host, host"
    plain = {"max_new_tokens": 24, "ignore_eos": True}
    first = two.generate(PROMPT, **plain)
    assert first.tokens == one.generate(PROMPT, **plain).tokens and first.finished == "length"
    # The next turn finds the cache.
    longer = [*PROMPT, *first.tokens, 40, 41]
    second = two.generate(longer, max_new_tokens=6, ignore_eos=True)
    assert second.statistics.kept_tokens == len(PROMPT) + 23
    assert second.tokens == one.generate(longer, max_new_tokens=6, ignore_eos=True).tokens
    prompts = [PROMPT, PROMPT[:3], PROMPT[4:9]]
    together = two.generate_batch(prompts, max_new_tokens=8, ignore_eos=True)
    assert [g.tokens for g in together] == [
        g.tokens for g in one.generate_batch(prompts, max_new_tokens=8, ignore_eos=True)
    ]
    drawn = {"max_new_tokens": 8, "do_sample": True, "top_k": 20, "temperature": 1.5, "seed": 3, "ignore_eos": True}
    assert two.generate(PROMPT, **drawn).tokens == one.generate(PROMPT, **drawn).tokens
    assert len(two.generate(PROMPT, max_new_tokens=4, do_sample=True, ignore_eos=True).tokens) == 4  # some seed
    beams = {"max_new_tokens": 6, "num_beams": 2, "ignore_eos": True}
    assert two.generate(PROMPT, **beams).tokens == one.generate(PROMPT, **beams).tokens


def test_an_answer_that_is_left(two: LanguageModel) -> None:
    whole = two.generate(PROMPT, max_new_tokens=12, ignore_eos=True)
    parts = two.stream(PROMPT, max_new_tokens=12, ignore_eos=True)
    next(parts)
    assert two.generate(PROMPT, max_new_tokens=12, ignore_eos=True).tokens == whole.tokens
    parts = two.stream(PROMPT, max_new_tokens=12, ignore_eos=True)
    next(parts)
    parts.close()
    assert two.generate(PROMPT, max_new_tokens=12, ignore_eos=True).tokens == whole.tokens


def test_a_rank_that_dies(two: LanguageModel) -> None:
    engine: Any = two._engine
    before = two.generate(PROMPT, max_new_tokens=6, ignore_eos=True).tokens
    parts = two.stream(PROMPT, max_new_tokens=50, ignore_eos=True)
    next(parts)
    os.kill(engine._ranks.alive[1].process.pid, signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(DeviceError, match=r"rank 1 \(host\) was ended by SIGKILL"):
        for _ in parts:
            pass
    assert time.monotonic() - start < 15
    assert engine._ranks is None
    assert two.generate(PROMPT, max_new_tokens=6, ignore_eos=True).tokens == before  # in new processes
    folders = engine._ranks.folders
    two.close()
    assert not any(os.path.exists(f) for f in folders)


# What differs in how heads, weights and norms are divided.
DECODERS = {
    "packed, with a bias, one head for keys": {"packed": True, "bias": True, "kv_heads": 1},
    "int4, packed zero points": {"bits": 4, "zero_points": "packed", "head_size": 32, "inter": 160, "bias": True},
    "int8, float zero points, packed heads": {
        "bits": 8,
        "zero_points": "float",
        "packed": True,
        "head_size": 32,
        "inter": 64,
    },
    "norms and rotation outside": {"qk_norm": "outside", "rotary": "outside", "partial": 0.5},
    "sinks, window, norms inside": {"sink": True, "window": 7, "qk_norm": "inside", "vocab": 259},
    "experts": {"experts": 4},
    "a bias of scores": {"mask": "bias"},
}


# By default those whose parts are the least like the plain ones': packed heads, and blocks with packed zero points.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if k < 2 else [pytest.mark.slow]) for k, n in enumerate(DECODERS)]
)
def test_decoders(tmp_path: Path, name: str) -> None:
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, **DECODERS[name]))
    options = {"max_new_tokens": 10, "ignore_eos": True}
    expected = LanguageModel(path).generate(PROMPT, **options).tokens
    model = LanguageModel(path, devices=HOSTS)
    assert model.generate(PROMPT, **options).tokens == expected
    model.close()


@pytest.mark.slow
def test_four_ranks(tmp_path: Path) -> None:
    """An intermediate size that four do not divide evenly, and two heads for keys."""
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, heads=8, inter=90, vocab=261))
    options = {"max_new_tokens": 6, "ignore_eos": True}
    expected = LanguageModel(path).generate(PROMPT, **options).tokens
    model = LanguageModel(path, devices=["host"] * 4)
    assert model.generate(PROMPT, **options).tokens == expected
    model.close()


def test_simulated_cards(tmp_path: Path) -> None:
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1))
    options = {"max_new_tokens": 4, "ignore_eos": True}
    expected = LanguageModel(path).generate(PROMPT[:4], **options).tokens
    model = LanguageModel(path, devices=["sim:gfx1100"] * 2)
    assert model.generate(PROMPT[:4], **options).tokens == expected
    model.close()


def test_parts(folder: Path, tmp_path: Path) -> None:
    whole = onnx.load(folder / "model.onnx")
    elements = {i.name: int(np.prod(i.dims)) for i in whole.graph.initializer}
    sizes = []
    for rank in (0, 1):
        model = part(folder, tmp_path / str(rank), rank, 2)
        found = operators(model)
        assert found["AllReduce"] == 4 and found["AllGather"] == 1
        assert found["MatMul"] == operators(whole)["MatMul"]
        (attention, *_) = [n for n in model.graph.node if n.op_type == "GroupQueryAttention"]
        assert {a.name: a.i for a in attention.attribute if a.name.endswith("num_heads")} == {
            "num_heads": 2,
            "kv_num_heads": 1,
        }
        caches = [v for v in (*model.graph.input, *model.graph.output) if v.name.split(".")[0].startswith(("p",))]
        assert {v.type.tensor_type.shape.dim[1].dim_value for v in caches if "." in v.name} == {1}
        sizes.append(sum(int(np.prod(i.dims)) for i in model.graph.initializer if "weight" in i.name))
    divided = sum(n for name, n in elements.items() if name.endswith("proj.weight") or "lm_head" in name)
    rest = sum(n for name, n in elements.items() if "weight" in name) - divided
    assert sizes == [divided // 2 + rest] * 2  # 258 tokens are even


def test_experts_are_divided(tmp_path: Path) -> None:
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=1, experts=4))
    found = operators(part(path, tmp_path / "p", 0, 2))
    assert found["AllReduce"] == 2 and found["MoE"] == 1


def test_refusals(tmp_path: Path) -> None:
    odd = llm_models.write(tmp_path / "odd", llm_models.Decoder(layers=1, heads=6, kv_heads=3))
    with pytest.raises(UnsupportedError, match=r"6 heads and 3 for keys.*4 devices"):
        part(odd, tmp_path / "p", 0, 4)
    with pytest.raises(UnsupportedError, match="6 heads and 3 for keys"):
        LanguageModel(odd, devices=HOSTS)
    block = llm_models.write(tmp_path / "block", llm_models.Decoder(layers=1, bits=4, head_size=16, heads=2))
    with pytest.raises(UnsupportedError, match="blocks of 32"):
        part(block, tmp_path / "p", 0, 2)
    plain = onnx.load(odd / "model.onnx")
    for node in plain.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "MultiHeadAttention"
    onnx.save(plain, odd / "model.onnx")
    with pytest.raises(UnsupportedError, match="no GroupQueryAttention"):
        part(odd, tmp_path / "p", 0, 2)
    (odd / "model.onnx").write_bytes(b"\xff\xff")
    with pytest.raises(InvalidModelError, match="not an ONNX model"):
        part(odd, tmp_path / "p", 0, 2)


def test_devices() -> None:
    assert device_names(["host", "host"]) == HOSTS
    assert device_names(["cuda:0", "cuda:1"]) == ["cuda:0", "cuda:1"]
    for wrong, why in (
        (["cuda:0", "cuda:0"], "twice"),
        (["cuda:0", "host"], "several kinds"),
        ([], "list"),
        ("host", "list"),
    ):
        with pytest.raises(InvalidArgumentError, match=why):
            device_names(wrong)


def test_a_device_that_is_not_there(folder: Path) -> None:
    start = time.monotonic()
    with pytest.raises(Error, match="gfx1"):
        LanguageModel(folder, devices=["sim:gfx1", "sim:gfx1"])
    with pytest.raises(Error, match="mars:"):
        LanguageModel(folder, devices=["mars:0", "mars:1"])
    assert time.monotonic() - start < 60


def test_weights_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))

    def array(location: str, offset: str = "0", dims: tuple[int, ...] = (4,)) -> Any:
        tensor = onnx.TensorProto(name="w", dims=dims, data_type=onnx.TensorProto.FLOAT)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", "16")):
            tensor.external_data.add(key=key, value=value)
        return WeightFiles(str(tmp_path / "m"), [tensor]).array("w")

    with pytest.raises(InvalidModelError, match="outside"):
        array("../secret")
    with pytest.raises(Error, match="can't be read"):
        array("none")
    (tmp_path / "m" / "data").write_bytes(bytes(24))
    assert array("data").tolist() == [0.0] * 4
    for wrong in ({"offset": "12"}, {"offset": "-4"}, {"offset": "x"}, {"dims": (5,)}, {"dims": (-4,)}):
        with pytest.raises(InvalidModelError):
            array("data", **wrong)  # type: ignore[arg-type]


def test_shares() -> None:
    for total, size, unit in ((90, 4, 1), (96, 2, 32), (5, 3, 2), (1, 4, 1), (7 * 32 + 5, 3, 32)):
        parts = [share(total, rank, size, unit) for rank in range(size)]
        assert parts[0][0] == 0 and parts[-1][1] == total
        assert all(a[1] == b[0] and b[0] % unit in (0, total % unit) for a, b in zip(parts, parts[1:]))
    assert blocks_taken([(32, 96), (96, 100)], 32, 100) == [(1, 3), (3, 4)]
    with pytest.raises(UnsupportedError, match="32"):
        blocks_taken([(16, 64)], 32, 128)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_zero_points(bits: int) -> None:
    zeros = np.random.default_rng(0).integers(0, 1 << bits, (3, 7), np.uint8)

    def pack(values: np.ndarray) -> np.ndarray:
        each = 8 // bits
        full = np.pad(values, ((0, 0), (0, -values.shape[1] % each))).reshape(len(values), -1, each).astype(np.uint32)
        return (full << (bits * np.arange(each))).sum(2).astype(np.uint8)

    for start, stop in ((0, 7), (1, 4), (3, 7), (2, 4)):
        found = zero_points_taken(pack(zeros), 3, 7, bits, [(start, stop)])
        np.testing.assert_array_equal(found, pack(zeros[:, start:stop]))


def test_command_line(folder: Path) -> None:
    python = {"SARDONYX_PYTHON": sys.executable}
    asked = ("generate", folder, "--raw", "--prompt", "the end", "--max-new-tokens", 6, "--ignore-eos")
    assert sardonyx(*asked, "--devices", "host,host", **python) == sardonyx(*asked, **python)
    error = sardonyx(*asked, "--devices", "host,cuda:0", code=INVALID_ARGUMENT, **python)
    assert "several kinds" in error
    error = sardonyx(*asked, "--devices", "host,host", "--device", "host", code=INVALID_ARGUMENT, **python)
    assert "not both" in error
    error = sardonyx(*asked, "--devices", "host,host,host", code=UNSUPPORTED, **python)
    assert "3 devices" in error
