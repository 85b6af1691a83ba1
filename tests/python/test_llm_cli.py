"""`sardonyx generate` and `sardonyx convert-gguf`."""

import json
import subprocess
import sys
from pathlib import Path

import gguf_files
import pytest
from cli_support import INVALID_ARGUMENT, INVALID_MODEL, IO, SARDONYX, UNSUPPORTED, sardonyx

PYTHON = {"SARDONYX_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    gguf_files.write(path / "m.gguf", "llama", "Q8_0")
    sardonyx("convert-gguf", path / "m.gguf", path / "out", "--precision", "int8", "--activations", "fp32", **PYTHON)
    return path / "out"


def test_generate(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    out = sardonyx(
        "generate", folder, "--prompt", "the end", "--max-new-tokens", 6, "--ignore-eos", "--json", file, **PYTHON
    )
    (answer,) = json.loads(file.read_text())
    assert out == answer["text"] + "\n" and len(answer["tokens"]) == 6 and answer["finished"] == "length"
    assert answer["statistics"]["new_tokens"] == 6 and answer["statistics"]["tokens_per_second"] > 0
    whole = sardonyx(
        "generate", folder, "--prompt", "the end", "--max-new-tokens", 6, "--ignore-eos", "--no-stream", **PYTHON
    )
    assert whole == out
    seeds = [
        sardonyx(
            "generate", folder, "--prompt", "the", "--seed", 5, "--temperature", 2, "--max-new-tokens", 8, **PYTHON
        )
        for _ in range(2)
    ]
    assert seeds[0] == seeds[1]


def test_chat_keeps_the_cache(folder: Path) -> None:
    done = subprocess.run(
        [SARDONYX, "generate", folder, "--chat", "--max-new-tokens", "4", "--system", "and", "--json", "-"],
        input="the end\n\nand then\n",
        capture_output=True,
        text=True,
        env={**PYTHON, "HOME": str(folder)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout[done.stdout.index("[\n") :])
    assert 0 < first["statistics"]["prompt_tokens"] <= second["statistics"]["kept_tokens"]


def test_errors(folder: Path, tmp_path: Path) -> None:
    assert "not a folder" in sardonyx("generate", tmp_path / "none", code=IO, **PYTHON)
    assert "--help" in sardonyx("generate", folder, "--tempo", 1, code=INVALID_ARGUMENT, **PYTHON)
    assert "top_p" in sardonyx("generate", folder, "--prompt", "a", "--top-p", 2, code=INVALID_ARGUMENT, **PYTHON)
    assert "limit is 128" in sardonyx(
        "generate", folder, "--raw", "--prompt", "x" * 400, code=INVALID_ARGUMENT, **PYTHON
    )
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\3\0\0\0")
    sardonyx("convert-gguf", tmp_path / "cut.gguf", tmp_path / "out", code=INVALID_MODEL, **PYTHON)
    assert "--python" in sardonyx("generate", folder, "--python", "no-such-python", code=UNSUPPORTED)
    assert "--python" in sardonyx("generate", folder, "--python=/usr/bin/python3", "--prompt", "a", code=UNSUPPORTED)


def test_help() -> None:
    assert "--repetition-penalty" in sardonyx("generate", "--help", **PYTHON)
    assert "Q4_1" in sardonyx("convert-gguf", "--help", **PYTHON)
    assert "convert-gguf" in sardonyx("--help")
