"""The report of the GPU's benchmark, from results made up here: measuring needs a card."""

import json
import subprocess
import sys

from cli_support import ROOT


def engine(ms, spread=0.1):
    return {
        "median": ms / 1e3,
        "low": (ms - spread) / 1e3,
        "high": (ms + spread) / 1e3,
        "times": [],
        "latency": ms / 1e3,
    }


def model(engines, correct=True):
    return {
        "engines": engines,
        "errors": {"sardonyx": 1e-3, "torch": 2e-3, "between": 1e-3},
        "correct": correct,
        "clocks_before": {"clocks.sm": "1980 MHz"},
    }


RESULTS = {
    "environment": {"card": "A card", "date": "some day", "versions": {"torch": "2"}, "system": "Linux"},
    "ceilings": {"bytes_per_second": 4e12, "operations_per_second": 7e14},
    "rows": {
        "model/A/batch=1": model(
            {"sardonyx": engine(1), "compile": engine(2), "twin compile": engine(4), "eager": engine(9)}
        ),
        "model/B/batch=1": model(
            {"sardonyx": engine(3), "compile": {"failed": "no"}, "twin compile": engine(1.5)}, False
        ),
        "model/C/batch=1": {"failed": "Error: out of memory\nTraceback"},
        "first/A/batch=1": {
            "engines": {
                "sardonyx": {"seconds": 1.5, "peak": 3 << 20, "constants": 1 << 20, "arena": 1 << 20, "io": 0},
                "compile": {"seconds": 9.25, "peak": 5 << 20},
                "eager": {"failed": "no"},
            }
        },
        "gemm/small": {
            "repeats": 8,
            "operations": 7e9,
            "bytes": 4e6,
            "correct": True,
            "engines": {"sardonyx": engine(0.16), "torch": engine(0.08)},
        },
        "profile/A/batch=1": {
            "seconds": 1e-3,
            "source": "the card's counters",
            "kernels": [
                {
                    "kernel": "k1, k2",
                    "nodes": ["c (Conv)"],
                    "bytes": 4e6,
                    "operations": 7e9,
                    "seconds": 4e-5,
                    "kind": "tile",
                },
                {"kernel": "k3", "nodes": ["d | e"], "bytes": 4e6, "operations": 0, "seconds": 2e-6, "kind": "loop"},
            ],
        },
    },
}


def test_report(tmp_path):
    # Two files, of which the second has what the first has not, or better.
    first = {"rows": {"model/A/batch=1": {"failed": "Error: old"}}}
    for name, data in (("first.json", first), ("second.json", RESULTS)):
        (tmp_path / name).write_text(json.dumps(data))
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "report", "first.json", "second.json", "--out", "page"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    page = (tmp_path / "page" / "gpu-benchmark.md").read_text()
    assert "# Measured on A card" in page and "Error: old" not in page
    assert "| A, batch=1 | 1.000 ± 0.100 | 2.000 ± 0.100 | 4.000 ± 0.100 |  | 9.000 ± 0.100 | 0.50 |" in page
    assert (
        "| B, batch=1 | 3.000 ± 0.100 | failed | 1.500 ± 0.100 |  |  | 2.00 |" in page and page.count("**wrong**") == 1
    )
    assert "failed: Error: out of memory" in page and "Traceback" not in page
    assert "Geometric mean of the ratios: **1.00**" in page and "1 of 2 rows" in page
    assert "| A, batch=1 | 1.50 | 9.25 | failed | 3 | 1.50 | 5 |  |" in page
    # 20 us, half as fast as the library, of a roof of 10 us
    assert "| small | 20.00 | 10.00 | 50 % | 350 | 0.20 | 50 % |" in page
    assert "| k1 | c (Conv) | 40.0 | 95 % | 175 | 0.10 | 25 % |" in page and "d / e" in page
    assert (tmp_path / "page" / "gpu-models.svg").exists() and (tmp_path / "page" / "gpu-roofline.svg").exists()
    kept = json.loads((tmp_path / "page" / "gpu-benchmark.json").read_text())
    assert kept["ceilings"] == RESULTS["ceilings"] and list(kept["rows"]) == list(RESULTS["rows"])


def test_wrong_use(tmp_path):
    command = [
        sys.executable,
        ROOT / "benchmarks" / "gpu.py",
        "measure",
        "--out",
        tmp_path / "x.json",
        "--parts",
        "nothing",
    ]
    failed = subprocess.run(command, capture_output=True, text=True)
    assert failed.returncode == 2 and "'nothing' is none of" in failed.stderr
    assert not (tmp_path / "x.json").exists()
