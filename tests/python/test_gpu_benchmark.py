"""The report of the GPU benchmark, from made-up results, because measuring needs a GPU."""

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


def launch(nodes, seconds, operations):
    return {
        "kernel": "k7",
        "nodes": nodes,
        "bytes": 2e6,
        "operations": operations,
        "seconds": seconds,
        "bound": "memory",
        "matrix_share": 0.125,
        "matrix_instructions": 32 if operations else 0,
        "vgprs": 96,
        "agprs": 64,
        "lds_bytes": 16384,
        "waves_per_simd": 4,
    }


RUN = "day 2"
RESULTS = {
    "runs": {
        RUN: {
            "environment": {
                "card": "A card",
                "date": RUN,
                "versions": {"torch": "2"},
                "system": "Linux",
                "remark": "all doors open",
            },
            "ceilings": {"bytes_per_second": 4e12, "operations_per_second": 7e14},
        }
    },
    "rows": {
        "model/A/batch=8": model({"sardonyx": engine(3), "compile": engine(1.5)}, False),
        "model/A/batch=16": model({"sardonyx": engine(1), "compile": engine(2), "eager": engine(9)}),
        "model/B/batch=1": model({"sardonyx": engine(3), "compile": {"failed": "no"}}),
        "model/C/batch=1": {"failed": "Error: out of memory\nTraceback"},
        "decode/L/batch=1": {
            "engines": {
                "sardonyx": engine(1),
                "compile": engine(3),
                "compile, attention written out": engine(2),
            },
            "alike": "1 of 1",
        },
        "reference/A/batch=8": {
            "engines": {"sardonyx": engine(1), "reference compile": engine(4)},
            "seconds_to_compile": {"reference compile": 7.0},
        },
        "fixed/A/batch=8": {"engines": {"sardonyx": engine(1.2), "sardonyx fixed": engine(1)}},
        "first/A/batch=1": {
            "engines": {
                "sardonyx": {
                    "seconds": 1.5,
                    "peak": 3 << 20,
                    "constants": 1 << 20,
                    "arena": 2 << 20,
                    "live": 1 << 20,
                    "io": 0,
                },
                "compile": {"seconds": 10.0, "peak": 5 << 20},
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
        "conv/big": {
            "repeats": 8,
            "operations": 7e9,
            "bytes": 4e6,
            "correct": True,
            "engines": {"sardonyx": engine(0.16), "torch": engine(0.136)},
        },
        "attention/A": {
            "repeats": 8,
            "operations": 7e9,
            "bytes": 4e6,
            "correct": True,
            "engines": {"sardonyx": engine(0.16), "torch": engine(0.12), "flash": engine(0.24)},
        },
        "attention/B": {
            "repeats": 8,
            "operations": 7e9,
            "bytes": 4e6,
            "correct": True,
            "engines": {"sardonyx": engine(0.16), "torch": engine(0.16)},
        },
        "profile/A/batch=8": {
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
        "chip/gfx942/A/batch=8": {
            "name": "A",
            "precision": "fp16",
            "kernels": 5,
            "spills": 0,
            "launches": [launch(["c (Conv)"], 5e-6, 7e9), launch(["f (Relu)"], 1e-6, 0)],
        },
    },
}
for _row in RESULTS["rows"].values():
    _row["run"] = RUN


def report(folder, *files):
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "report", *files, "--out", "page"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "page" / "gpu-benchmark.md").read_text()


def test_report(tmp_path):
    # Two files, of which the second has what the first has not, or better. The first is of a version without runs.
    first = {
        "environment": {"card": "A card", "date": "day 1"},
        "rows": {
            "model/A/batch=16": {"failed": "Error: old"},
            "model/C/batch=1": model({"sardonyx": engine(5), "compile": engine(5)}),
        },
    }
    for name, data in (("first.json", first), ("second.json", RESULTS)):
        (tmp_path / name).write_text(json.dumps(data))
    page = report(tmp_path, "first.json", "second.json")
    assert "\nRun 2: all doors open\n" in page and "Run 1:" not in page
    assert "# Measured on A card" in page and "Error: old" not in page
    big = "| A, batch=16 | 1.000 ± 0.100 | 2.000 ± 0.100 | 9.000 ± 0.100 |  | 0.50 | 1.000 | 1.0e-03 / 2.0e-03 | 2 |"
    small = "| A, batch=8 | 3.000 ± 0.100 | 1.500 ± 0.100 |  |  | 2.00 | 3.000 |"
    assert page.index(small) < page.index(big) and page.count("**wrong**") == 1
    assert "| B, batch=1 | 3.000 ± 0.100 | failed |" in page
    # What failed later does not replace what an earlier run has measured.
    assert "| C, batch=1 | 5.000 ± 0.100 | 5.000 ± 0.100 |  |  | 1.00 | 5.000 | 1.0e-03 / 2.0e-03 | 1 |" in page
    assert "Traceback" not in page and "provider is not installed" in page
    assert "| L, batch=1 | 1.000 ± 0.100 | 2.000 ± 0.100 |  |  | 0.50 | 1.000 | tokens alike: 1 of 1 | 2 |" in page
    assert "Geometric mean of the ratios: **0.84**" in page and "3 of 4 rows" in page
    assert "| A, batch=8 | 1.000 ± 0.100 | 4.000 ± 0.100 | 0.25 | 7 | 2 |" in page
    assert "| A, batch=8 | 1.200 | 1.000 | 1.20 | 2 |" in page and "0 of 1 are at most 10 % slower" in page
    assert "| A, batch=1 | 1.50 | 10.00 | failed | 0.15 | 3 | 1.50 | 5 |  | 0.60 | 2 |" in page
    assert "1 of 1 first results" in page and "1 of 1 take no more memory" in page
    # 20 us, half as fast as the library, of a roof of 10 us
    assert "| small | 20.00 | 10.00 | 50 % | 350 | 0.20 | 50 % | 2 |" in page
    assert "Geometric mean of the speeds: **85 %**; 0 of 1 at 90 % or more." in page
    assert "Below 80 % of cuBLAS's speed: small (50.0 %)." in page
    assert "| A | 20.00 | 15.00 | 75 % | 350 | 0.20 | 50 % | 150 % | 2 |" in page
    assert "| B | 20.00 | 20.00 | 100 % | 350 | 0.20 | 50 % |  | 2 |" in page
    assert "1 of 2 at 80 % or more" in page and "to flash attention: **150 %**; 1 of 1 at 80 % or more" in page
    assert "| k1 | c (Conv) | 40.0 | 95 % | 175 | 0.10 | 25 % |" in page and "d / e" in page
    assert "| k7 | c (Conv) | 2.00 | 7.00 | 12.5 % | 96 + 64 | 16384 | 4 | 5.00 | memory | 25 % |" in page
    assert "| 1 | day 1 | A card | 1 |" in page and "| 2 | day 2 | A card | 13 | 4.00 | 700 | torch 2 | Linux |" in page
    assert (tmp_path / "page" / "gpu-models.svg").exists() and (tmp_path / "page" / "gpu-roofline.svg").exists()
    kept = json.loads((tmp_path / "page" / "gpu-benchmark.json").read_text())
    assert set(kept["runs"]) == {"day 1", RUN} and set(kept["rows"]) == set(RESULTS["rows"])
    # The data that a page keeps gives the page again.
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    assert report(tmp_path, "kept.json") == page


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
