"""benchmarks/shared_cores.py: engines in turns beside busy processes, and in a control group with a quota."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import shared_cores


def test_contenders_follow_the_condition():
    options = argparse.Namespace(threads=2, engines=["onnxruntime"])
    beside = shared_cores.contenders(shared_cores.Condition(busy=2), options)
    assert beside == {"sardonyx": ("sardonyx", 2), "sardonyx, 1": ("sardonyx", 1), "onnxruntime, 2": ("onnxruntime", 2)}
    group = shared_cores.contenders(shared_cores.Condition(cpus=1.5), options)
    assert group["sardonyx"] == ("sardonyx", 0)  # which sees the quota
    assert {"onnxruntime, 1", "onnxruntime, 2"} < set(group)
    assert "onnxruntime, 2" not in shared_cores.contenders(shared_cores.Condition(cpus=0.5), options)


def test_ratios_are_of_turns_and_to_the_better_count():
    times = {"sardonyx": [2.0, 4.0, 9.0], "sardonyx, 1": [2.0, 8.0, 9.0]}
    times |= {"onnxruntime, 1": [9.0, 9.0, 9.0], "onnxruntime, 2": [4.0, 4.0, 6.0]}
    assert shared_cores.better(times, "onnxruntime") == "onnxruntime, 2"
    cells, found = shared_cores.row(times, ["onnxruntime"])
    assert found == [1.0, 1.0]
    assert cells == ["4", "8", "4 (2)", "1.00 (0.50 to 1.50)", "1.00 (0.50 to 1.00)"]


def small_model(path):
    w = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x")], [value("y")], [w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def measured(path, *condition):
    command = [sys.executable, shared_cores.__file__, path, *condition, "--seconds", "0.1", "--turns", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(line.split("|") for line in done.stdout.splitlines() if line.startswith("| small |"))


def test_beside_a_busy_process(tmp_path):
    row = measured(small_model(tmp_path / "small.onnx"), "--busy", "1")
    assert len(row) == 8 and float(row[2]) > 0 and "to" in row[5]


def test_in_a_group(tmp_path):
    try:
        with shared_cores.group(0.5) as folder:
            assert os.access(folder, os.W_OK)
    except (SystemExit, OSError) as error:
        pytest.skip(f"no control groups can be made here: {error}")
    row = measured(small_model(tmp_path / "small.onnx"), "--cpus", "0.5")
    assert float(row[3]) > 0 and row[4].strip().endswith("(1)")
