"""How a stage of a model sends hidden states to the next one: a pair of sockets between their processes.

A thread sends, so that a stage goes on with the next step while the one after it still computes the last.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ..errors import DeviceError

Array = np.ndarray[Any, Any]
#: How errors begin that another process has caused (see parallel.py).
CAUSED = "the group of the stages"


class StageSender:
    """Sends to the next stage."""

    def __init__(self, descriptor: int):
        self._pipe = Connection(descriptor, readable=False)
        self._queue: queue.SimpleQueue[Sequence[Array] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="sardonyx stage", daemon=True).start()

    def send(self, tensors: Sequence[Array]) -> None:
        """Queues a step's hidden states. The arrays must not change afterwards."""
        self._queue.put(tensors)

    def fail(self) -> None:
        """Tells the next stage that there is no step any more."""
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while True:
                tensors = self._queue.get()
                for x in [np.empty(0)] if tensors is None else tensors:
                    self._pipe.send_bytes(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
        except OSError:
            return  # the next stage has ended, which the main process notices


class StageReceiver:
    """Receives from the stage before."""

    def __init__(self, descriptor: int, layout: Mapping[str, tuple[np.dtype[Any], int]]):
        """layout: type and width of each hidden state, in the order in which they are sent."""
        self._pipe, self._layout = Connection(descriptor, writable=False), layout

    def receive(self) -> dict[str, Array]:
        """A step's hidden states [1, tokens, width]; waits for them. Raises DeviceError if the stage before has failed."""
        found = {}
        for name, (dtype, width) in self._layout.items():
            try:
                data = self._pipe.recv_bytes()
            except (EOFError, OSError):
                data = b""
            if not data:
                raise DeviceError(f"{CAUSED}: the stage before has failed")
            found[name] = np.frombuffer(data, np.uint8).view(dtype).reshape(1, -1, width)
        return found
