"""benchmarks/llm_engine.py on a short trace: every token is the model's choice, and answers of several clients are those of one."""

import json
import pathlib
import subprocess
import sys

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"


def test_a_short_trace_on_the_host(tmp_path):
    command = [sys.executable, BENCHMARKS / "llm_engine.py", tmp_path / "models", "--json", tmp_path / "rows.json"]
    options = (
        "--rows tiny-fp16 --device host --clients 1,8 --requests 8 --prompt-tokens 100 --answer-tokens 20 --warm 0"
    )
    limits = "--row-seconds 60 --check-seconds 60 --cache-memory 64 --step-tokens 96"
    subprocess.run([*command, *options.split(), *limits.split()], check=True, capture_output=True, timeout=200)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert list(rows) == ["tiny-fp16 1", "tiny-fp16 8"]
    for row in rows.values():
        assert row["requests"] == 8 and row["wrong"] == row["unchecked"] == 0
    assert rows["tiny-fp16 8"]["same_as_one_by_one"]["wrong"] == 0
