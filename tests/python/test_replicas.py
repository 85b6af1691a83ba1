"""Data parallelism: compile_replicas() and `sardonyx run --devices`."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import INVALID_ARGUMENT, UNSUPPORTED
from cli_support import sardonyx as command
from onnx import TensorProto, helper
from sardonyx.errors import InvalidArgumentError, UnsupportedError

FLOAT = TensorProto.FLOAT


def model(x: Any = ("batch", 5), output: Any = ("batch", 3), extra: Any = (5, 3), last: str = "Identity") -> bytes:
    """y = last(x w), with w an input."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node(last, ["a"], ["y"], **({"axes": [0]} if last == "ReduceSum" else {})),
    ]
    inputs = [info("x", FLOAT, list(x)), info("w", FLOAT, list(extra))]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", FLOAT, list(output))])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 7, 64])
def test_any_batch(batch: int) -> None:
    replicas = sardonyx.compile_replicas(model(), ["host", "host", "host"], threads=1)
    assert replicas.batch == "batch" and replicas.devices == ["host"] * 3
    assert sum(replicas.parts(batch)) == batch and max(replicas.parts(batch)) - min(replicas.parts(batch)) <= 1
    rng = np.random.default_rng(batch)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((batch, 5), (5, 3)))
    y = replicas(x=x, w=w)["y"]
    assert y.shape == (batch, 3)
    # Other rows at a time are added in another order.
    np.testing.assert_allclose(y, x @ w, rtol=1e-5, atol=1e-6)


def test_host_and_simulated_card() -> None:
    replicas = sardonyx.compile_replicas(model(), ["host", "sim:gfx1100"], threads=1)
    x, w = np.eye(5, dtype=np.float32), np.arange(15, dtype=np.float32).reshape(5, 3)
    for _ in range(3):
        np.testing.assert_array_equal(replicas.run({"x": x, "w": w})["y"], w)
    assert replicas.devices == ["host", "sim:gfx1100"] and "sim:gfx1100" in repr(replicas)
    assert [i.name for i in replicas.inputs] == ["x", "w"] and [o.name for o in replicas.outputs] == ["y"]


def test_what_cant_be_divided() -> None:
    with pytest.raises(UnsupportedError, match="open first dim"):
        sardonyx.compile_replicas(model((4, 5), (4, 3)), ["host", "host"])
    with pytest.raises(UnsupportedError, match="output 'y' does not have 'batch'"):
        sardonyx.compile_replicas(model(output=(1, 3), last="ReduceSum"), ["host", "host"])
    with pytest.raises(UnsupportedError, match="output 'y' has 'batch' in its dim 1"):
        sardonyx.compile_replicas(model(output=(3, "batch"), last="Transpose"), ["host", "host"])
    for devices in ([], "host"):
        with pytest.raises(InvalidArgumentError, match="list of names"):
            sardonyx.compile_replicas(model(), devices)
    with pytest.raises(InvalidArgumentError, match="not device"):
        sardonyx.compile_replicas(model(), ["host"], device="host")


def test_wrong_inputs() -> None:
    replicas = sardonyx.compile_replicas(model(), ["host", "host"], threads=1)
    x, w = np.zeros((4, 5), np.float32), np.zeros((5, 3), np.float32)
    with pytest.raises(InvalidArgumentError, match="'w' is missing"):
        replicas(x=x)
    with pytest.raises(InvalidArgumentError, match="host: input 'x'"):
        replicas(x=x[:, :4], w=w)
    with pytest.raises(InvalidArgumentError, match="rank"):
        replicas(x=np.float32(1), w=w)
    two = sardonyx.compile_replicas(model(extra=("batch", 3), x=("batch", 5)), ["host"], threads=1)
    with pytest.raises(InvalidArgumentError, match="batch = 4"):
        two(x=x, w=w)


def test_command(tmp_path: Path) -> None:
    onnx.save(onnx.load_from_string(model()), tmp_path / "m.onnx")
    runs = {}
    for devices in ("host", "host,host,host"):
        out = command(
            "run", tmp_path / "m.onnx", "--dim", "batch=7", "--devices", devices, "-o", tmp_path / "y.npy",
            "--seed", 3, "-j", 1,
        )  # fmt: skip
        runs[devices] = np.load(tmp_path / "y.npy")
    assert "on host, host, host" in out
    np.testing.assert_allclose(runs["host"], runs["host,host,host"], rtol=1e-5, atol=1e-6)
    error = command("run", tmp_path / "m.onnx", "--devices", "host,moon", code=INVALID_ARGUMENT)
    assert "moon" in error
    fixed = command("run", tmp_path / "m.onnx", "--fix", "batch=4", "--devices", "host,host", code=UNSUPPORTED)
    assert "open" in fixed
