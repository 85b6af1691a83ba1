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
    """This process's place in a group of `size` processes, for compile(communicator=); waits until all are there.

    path: a file by which they find each other and whose pages they share, in a folder that only this user may write to, best in
        memory (/dev/shm). The first process makes it; a later group needs another.
    rank: from 0, each once. device: on which this process runs the model.
    transport: how tensors are exchanged. "auto": NVIDIA's and AMD's cards through NCCL and RCCL, and small tensors of NVIDIA's cards
        that reach each other's memory by kernels that do so; the host and simulated cards through shared memory. "host": through
        shared memory, also for cards; "library": through NCCL or RCCL alone.
    library: NCCL's or RCCL's path; None: where the system finds it, else PyPI's nvidia-nccl or torch.
    timeout: seconds to wait for a process that lives but does not come; one that is gone is noticed at once.

    All processes must run their models at the same time with inputs of the same sizes. When one fails or goes away, the others'
    runs raise DeviceError, and the group is of no use any more; Communicator.fail() does that on purpose.

    Raises errors.Error: InvalidArgumentError, FileError, UnsupportedError for a library that is not installed, DeviceError.
    """
    found = os.fspath(library) if library is not None else ""
    if not found and device.partition(":")[0] in ("cuda", "hip") and transport != "host":
        found = next(filter(os.path.exists, _in_packages(device)), "")
    return _sardonyx.join(os.fspath(path), rank, size, device, transport, found, timeout)
