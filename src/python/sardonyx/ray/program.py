"""A program that is compiled once, and loaded by workers on any node from Ray's object store."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from ..compiling import Source, compile, load
from ..errors import FileError, InvalidArgumentError
from ..model import Model


@dataclass(frozen=True)
class SharedProgram:
    """A compiled model in the object store. Workers call load(). The object lives as long as this does somewhere."""

    content: Any  #: ObjectRef of a uint8 array
    digest: str  #: SHA-256, in hexadecimal
    device: str

    def load(self, **options: Any) -> Model:
        """Loads it on this node, through a file that all of the node's workers share; options are those of
        sardonyx.load(), without the device. Raises errors.Error if the node has no such device, or another chip."""
        if "device" in options:
            raise InvalidArgumentError("a shared program's device was chosen when it was compiled")
        user = os.getuid() if hasattr(os, "getuid") else 0
        folder = os.path.join(tempfile.gettempdir(), f"sardonyx-ray-{user}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        about = os.stat(folder)
        if hasattr(os, "getuid") and (about.st_uid != user or about.st_mode & 0o022):
            raise FileError(f"others can write to '{folder}', so programs in it can't be trusted; delete it")
        path = os.path.join(folder, f"{self.digest}.sdnx")
        if not os.path.exists(path):
            data = np.asarray(ray.get(self.content))
            if hashlib.sha256(data).hexdigest() != self.digest:
                raise FileError("the shared program has other bytes than when it was shared")
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data.data)
            os.replace(file.name, path)  # nobody sees a part of it
        return load(path, device=self.device, **options)


def share(model: Source, *, device: str = "host", **options: Any) -> SharedProgram:
    """Compiles a model, and puts the program into the object store. Options are those of sardonyx.compile(); the device
    is that of the workers: they must have the same chip (on the host: a CPU with the same instructions) as this
    process. Raises errors.Error."""
    with tempfile.TemporaryDirectory(prefix="sardonyx-ray-") as folder:
        path = os.path.join(folder, "program")
        compile(model, device=device, **options).save(path)
        data = np.fromfile(path, np.uint8)
    data.flags.writeable = False
    return SharedProgram(ray.put(data), hashlib.sha256(data).hexdigest(), device)
