"""Groups of processes that compute one model together, each on its own device."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from . import _sardonyx
from ._sardonyx import Communicator


def _in_packages(device: str) -> Iterator[str]:
    """Directories in which Python packages may have NCCL or RCCL."""
    name, packages = (
        ("libnccl.so.2", ("nvidia/nccl/lib",)) if device.startswith("cuda") else ("librccl.so.1", ("torch/lib",))
    )
    for package in packages:
        first, *rest = package.split("/")
        spec = importlib.util.find_spec(first)
        for root in (spec.submodule_search_locations or []) if spec else []:
            yield os.path.join(root, *rest, name)


def join(
    path: str | os.PathLike[str],
    rank: int,
    size: int,
    device: str = "host",
    *,
    transport: str = "auto",
    library: str | os.PathLike[str] | None = None,
    timeout: float = 600,
) -> Communicator:
    """Joins a group of `size` processes, for compile(communicator=). Waits until all have joined.

    path: a file by which the processes find each other and which they all map, in a folder that only this user may write to,
        preferably in memory (/dev/shm). The first process creates it; each group needs a new one.
    rank: 0 to size - 1, different in each process. device: where this process runs the model.
    transport: how tensors are exchanged. "auto": NVIDIA and AMD GPUs through NCCL and RCCL, and small tensors of NVIDIA GPUs
        that can access each other's memory through Sardonyx's own kernels; the host and simulated GPUs through shared memory.
        "host": through shared memory, for GPUs too. "library": through NCCL or RCCL only.
    library: NCCL's or RCCL's path; None: where the system finds it, else PyPI's nvidia-nccl or torch.
    timeout: seconds to wait for a process that is alive but does not join. A process that has ended is noticed immediately.

    All processes must run their models at the same time with inputs of the same sizes. If one fails or ends, the others' runs
    raise DeviceError, and the group can't be used any more. Communicator.fail() triggers this.

    Raises errors.Error: InvalidArgumentError, FileError, UnsupportedError for a library that is not installed, DeviceError.
    """
    found = os.fspath(library) if library is not None else ""
    if not found and device.partition(":")[0] in ("cuda", "hip") and transport != "host":
        found = next(filter(os.path.exists, _in_packages(device)), "")
    return _sardonyx.join(os.fspath(path), rank, size, device, transport, found, timeout)
