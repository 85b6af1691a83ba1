"""AllReduce and AllGather among several processes: the exchange of the host and of simulated GPUs through shared memory. Most ranks are
threads here, which share only the group's file, like processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sardonyx
from onnx import TensorProto, helper
from sardonyx.errors import DeviceError, Error, FileError, InvalidArgumentError

FLOAT = TensorProto.FLOAT


def node_model(op: str, kind: int = FLOAT, dims: tuple[Any, ...] = ("n", 3), **attributes: Any) -> bytes:
    """y = op(2 x) + 1."""
    numbers = [helper.make_tensor(n, kind, [1], [v]) for n, v in (("two", 2.0), ("one", 1.0))]
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["a"]),
        helper.make_node(op, ["a"], ["b"], name="sum", domain="com.microsoft", **attributes),
        helper.make_node("Add", ["b", "one"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, list(dims))],
        [helper.make_tensor_value_info("y", kind, None)],
        numbers,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def ranks(size: int, job: Callable[[int], Any]) -> list[Any]:
    """What each rank's job gives; an error in place of a result."""

    def one(rank: int) -> Any:
        try:
            return job(rank)
        except Error as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums(tmp_path: Path, size: int) -> None:
    x = np.random.default_rng(0).standard_normal((size, 7, 3)).astype(np.float32)

    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, size)
        model = sardonyx.compile(node_model("AllReduce", group_size=size), communicator=group)
        assert (group.rank, group.size) == (rank, size)
        return [model(x=x[rank])["y"] for _ in range(3)][-1]

    found = ranks(size, job)
    np.testing.assert_allclose(found[0], 2 * x.sum(0) + 1, rtol=1e-6)
    for y in found[1:]:  # the same bits
        np.testing.assert_array_equal(y, found[0])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int32])
def test_types(tmp_path: Path, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(-8, 8, (3, 50, 3)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, 3)
        return sardonyx.compile(node_model("AllReduce", kind), communicator=group)(x=x[rank])["y"]

    for y in ranks(3, job):  # small whole numbers: every type has them
        np.testing.assert_array_equal(y.astype(np.float64), 2 * x.astype(np.float64).sum(0) + 1)


def test_large_tensors_come_in_pieces(tmp_path: Path) -> None:
    n = (1 << 20) // 4 + 77  # of floats: a little more than a piece, with rows of 3 three of them
    x = np.arange(2 * n * 3, dtype=np.float32).reshape(2, n, 3) % 1000

    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, 2)
        total = sardonyx.compile(node_model("AllReduce"), communicator=group)
        both = sardonyx.compile(node_model("AllGather", group_size=2), communicator=group)
        return total(x=x[rank])["y"], both(x=x[rank])["y"]

    for total, both in ranks(2, job):
        np.testing.assert_array_equal(total, 2 * (x[0] + x[1]) + 1)
        np.testing.assert_array_equal(both, 2 * x.reshape(-1, 3) + 1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathers(tmp_path: Path, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 2, 5, 3)).astype(np.float32)

    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, 2)
        source = node_model("AllGather", dims=(2, "n", 3), group_size=2, axis=axis)
        return sardonyx.compile(source, communicator=group)(x=x[rank])["y"]

    for y in ranks(2, job):
        np.testing.assert_array_equal(y, 2 * np.concatenate(list(x), axis) + 1)


@pytest.mark.parametrize("graphs", [True, False])
def test_simulated_cards(tmp_path: Path, graphs: bool) -> None:
    """Also between the pieces of a captured graph, with other sizes in between."""

    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, 2, "sim:gfx1100")
        model = sardonyx.compile(node_model("AllReduce"), device="sim:gfx1100", graphs=graphs, communicator=group)
        rng = np.random.default_rng(rank)
        inputs = [rng.integers(-9, 9, (n, 3)).astype(np.float32) for n in (4, 4, 4, 6, 4, 6, 6)]
        return inputs, [model(x=x)["y"] for x in inputs]

    (a, ours), (b, theirs) = ranks(2, job)
    for x, z, y, w in zip(a, b, ours, theirs):
        np.testing.assert_array_equal(y, 2 * (x + z) + 1)
        np.testing.assert_array_equal(w, y)


def test_refused_without_a_group(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"sum.*communicator"):
        sardonyx.compile(node_model("AllReduce"))
    one = sardonyx.join(tmp_path / "g", 0, 1)
    with pytest.raises(InvalidArgumentError, match="group of 2, and this one has 1"):
        sardonyx.compile(node_model("AllGather", group_size=2), communicator=one)
    with pytest.raises(InvalidArgumentError, match="rank 2"):
        sardonyx.join(tmp_path / "h", 2, 2)
    with pytest.raises(InvalidArgumentError, match="1 to 64"):
        sardonyx.join(tmp_path / "h", 0, 65)
    with pytest.raises(FileError, match="opened"):
        sardonyx.join(tmp_path / "none" / "g", 0, 1)
    with pytest.raises(InvalidArgumentError, match="transport"):
        sardonyx.join(tmp_path / "h", 0, 1, transport="post")
    with pytest.raises(InvalidArgumentError, match="another process has rank 0"):
        sardonyx.join(tmp_path / "g", 0, 1)
    del one
    with pytest.raises(InvalidArgumentError, match="another group"):
        sardonyx.join(tmp_path / "g", 0, 1)


def test_who_does_not_come_is_waited_for_so_long(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(DeviceError, match="waited 1 s for rank 1"):
        sardonyx.join(tmp_path / "g", 0, 2, timeout=1)
    assert time.monotonic() - start < 10


def test_different_sizes_are_found(tmp_path: Path) -> None:
    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, 2)
        return sardonyx.compile(node_model("AllReduce"), communicator=group)(x=np.ones((rank + 1, 3), np.float32))

    for error in ranks(2, job):
        assert isinstance(error, DeviceError) and "different" in str(error)


def test_a_failure_reaches_all(tmp_path: Path) -> None:
    def job(rank: int) -> Any:
        group = sardonyx.join(tmp_path / "g", rank, 3)
        model = sardonyx.compile(node_model("AllReduce"), communicator=group)
        if rank == 1:
            group.fail("rank 1: no more memory")
        return model(x=np.ones((1, 3), np.float32))

    for error in ranks(3, job):
        assert isinstance(error, DeviceError) and "rank 1: no more memory" in str(error)


_DYING = """
import os, sys, numpy as np, sardonyx
group = sardonyx.join(sys.argv[1], 1, 2)
model = sardonyx.compile(open(sys.argv[2], "rb").read(), communicator=group)
model(x=np.ones((1, 3), np.float32))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(node_model("AllReduce"))
    other = subprocess.Popen(
        [sys.executable, "-c", _DYING, tmp_path / "g", tmp_path / "m.onnx"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        group = sardonyx.join(tmp_path / "g", 0, 2, timeout=120)
        model = sardonyx.compile(node_model("AllReduce"), communicator=group)
        np.testing.assert_array_equal(model(x=np.ones((1, 3), np.float32))["y"], np.full((1, 3), 5))
        assert other.stdout is not None and other.stdout.readline() == b"ready\n"
        other.send_signal(signal.SIGKILL)  # and not waited for yet
        start = time.monotonic()
        with pytest.raises(DeviceError, match="rank 1 is gone"):
            model(x=np.ones((1, 3), np.float32))
        assert time.monotonic() - start < 10
        with pytest.raises(DeviceError, match="rank 1 is gone"):
            group.check()
    finally:
        other.kill()
        other.communicate()


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="says what is missing where there is no card")
def test_cards_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cuda"):
        sardonyx.join(tmp_path / "g", 0, 1, "cuda:0")
