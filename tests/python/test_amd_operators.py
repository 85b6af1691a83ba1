"""benchmarks/amd_operators.py: the bytes that operators must move, an estimate, and the report."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from amd_operator_cases import Cases  # noqa: E402
from amd_operators import estimate  # noqa: E402
from cli_support import SARDONYX  # noqa: E402
from onnx import TensorProto  # noqa: E402

PROGRAM = ROOT / "benchmarks" / "amd_operators.py"


def run(*words):
    return subprocess.run([sys.executable, PROGRAM, *map(str, words)], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bytes(dtype):
    """Of views, parts, indices and several inputs and outputs; parameters do not count."""
    size = np.dtype(dtype).itemsize
    cases = {c.label: c for c in Cases(dtype).all}
    assert len(cases) == len(Cases(dtype).all)
    assert cases["Transpose 10 2048x2048"].bytes == 2 * 2048 * 2048 * size
    assert cases["Concat axis 0 1000x2048"].bytes == 2 * 2024 * 2048 * size
    assert cases["Split 3 2048x1536"].bytes == 2 * 2048 * 1536 * size
    assert cases["Where 2048x2048"].bytes == 2048 * 2048 * (1 + 3 * size)
    assert cases["Slice middle 2048x2048"].bytes == 2 * 2048 * 1001 * size
    assert cases["TopK 5 2048x1000"].bytes == 2048 * (1000 * size + 5 * (size + 8))
    assert cases["GroupNormalization 32 4x320x64x64"].bytes == 2 * 4 * 320 * 64 * 64 * size
    assert cases["GatherElements 1024x1024"].bytes == 1024 * 1024 * (2 * size + 8)


@pytest.mark.slow(part=2)
def test_an_estimate_and_its_report(tmp_path):
    rows = tmp_path / "rows.json"
    row = "gfx1100 float16 RNN one step 1x16x256"
    run("measure", "gfx1100", "--out", rows, "--dtypes", "float16", "--only", "^RNN one step")
    measured = json.loads(rows.read_text())
    assert list(measured) == [row] and measured[row]["launches"] >= 1
    assert measured[row]["share"] == pytest.approx(measured[row]["bytes"] / 960e3 / measured[row]["us"])
    before = tmp_path / "before.json"
    before.write_text(json.dumps({row: {**measured[row], "us": 99.5}}))
    lines = run("report", rows, "--before", before).stdout.splitlines()
    assert lines[0] == "| operator | gfx1100 |"
    assert lines[2].startswith("| RNN one step 1x16x256, float16 | 99.5 -> ")


@pytest.mark.slow(part=4)
@pytest.mark.parametrize(
    "label, shape, constants, attributes, most",
    [
        ("TopK 5", [256, 1000], [[5]], {}, 8),  # 85 us when a workgroup sorted each row
        ("TopK 50", [1, 30000], [[50]], {}, 20),  # 133 us when one workgroup read the row
        ("CumSum row", [1, 50000], [np.array(1, np.int64)], {}, 12),  # 49 us when one workgroup scanned it
        ("CumSum short rows", [8192, 64], [np.array(1, np.int64)], {}, 13),  # 14.5 us when lanes scanned empty chunks
        ("CumSum columns", [1024, 64], [np.array(0, np.int64)], {}, 16),  # 56 us with a thread for each
        ("ArgMax columns", [4000, 16], [], {"axis": 0}, 16),  # 361 us when each column was one search
    ],
)
def test_few_long_rows_and_columns_are_divided(label, shape, constants, attributes, most):
    cases = Cases("float16")
    index = [TensorProto.INT64]
    out = {"TopK": [None, *index], "ArgMax": index}.get(label.split()[0], [None])
    cases.add(label, shape, *constants, out=out, **attributes)
    row = estimate("gfx1100", cases.all[-1], SARDONYX, 100)
    assert row["us"] < most


@pytest.mark.slow(part=3)
@pytest.mark.parametrize(
    "chip, dtype, label, shape, constants, attributes, most",
    [
        # Rows of 160 KiB stay in registers: 84 MB of memory's 1.6 TB/s are 51 us, 100 us if they are read three times.
        ("gfx90a", "float32", "InstanceNormalization", [1, 256, 40960], [256, 256], {}, 70),
        # Rows too long for that have several loads in flight, and a channel's scale is one load for a pack: 11 us otherwise.
        ("gfx942", "float16", "GroupNormalization 32", [1, 640, 32, 64], [640, 640], {"num_groups": 32, "moves": 1}, 7),
        # Square roots in place of a power: 12 us otherwise.
        ("gfx942", "float16", "LRN", [16, 96, 55, 55], [], {"size": 5}, 8),
        # Few columns, which several workgroups divide: 5.6 us with one kernel.
        ("gfx942", "float16", "ReduceMean", [8, 3136, 96], [[1]], {}, 4.5),
        # One kernel, which reads columns once: 8 MB of 0.96 TB/s, twice, are 18 us; 26.6 us with a second kernel.
        ("gfx1100", "float16", "Softmax", [8, 512, 1024], [], {"axis": 1}, 25),
        # Whole packs: 8 MB are 9 us; 26 us with one element a thread.
        ("gfx1100", "float16", "Slice", [2048, 2048], [[500], [1501], [1]], {}, 14),
        ("gfx1100", "float16", "Transpose", [128, 257, 65], [], {"perm": [2, 0, 1]}, 14),
        # The four elements of a sample are loaded at once, without branches: 13.5 us with them.
        ("gfx1100", "float16", "GridSample", [4, 32, 64, 64], [[4, 64, 64, 2]], {}, 8),
    ],
)
def test_operators_wait_for_memory_only(chip, dtype, label, shape, constants, attributes, most):
    cases = Cases(dtype)
    arrays = [n if label in ("Slice", "ReduceMean") else cases.weights(*np.atleast_1d(n)) for n in constants]
    cases.add(label, shape, *arrays, **attributes)
    row = estimate(chip, cases.all[-1], SARDONYX, 100)
    assert row["us"] < most
