"""A process of parallel.py: one device's part of a decoder. python -m sardonyx.llm.rank FD

It reads its configuration and then commands from a socket, and answers each with (0, result) or (error code, message). The
process that started it is trusted.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from ..errors import DeviceError, Error
from ..group import join
from .genai_folder import read_folder
from .local import LocalRunner
from .paged_decoder import PagedDecoder
from .shard_graph import write_part


class _Part:
    """One device's part of a model, and the communicator through which it computes with the others."""

    def __init__(self, setup: dict[str, Any], make: Callable[..., Any]):
        whole = read_folder(setup["folder"])
        rank, size = setup["rank"], setup["size"]
        # Check that the model can be divided, and that the parts fit on the disk, before any process waits for others.
        path = write_part(whole.model, whole.logits, setup["part"], rank, size)
        part = dataclasses.replace(whole, path=setup["part"], model=path)
        self.communicator = join(setup["group"], rank, size, setup["device"], transport=setup["transport"])
        try:
            self.runner = make(part, device=setup["device"], communicator=self.communicator, **setup["options"])
        except BaseException as error:
            self.communicator.fail(f"rank {rank}: {error}")
            raise


class _Rank(_Part):
    def __init__(self, setup: dict[str, Any]):
        super().__init__(setup, LocalRunner)
        self.engine: LocalRunner = self.runner
        self.steps: Iterator[list[int]] | None = None

    def do(self, name: str, *arguments: Any) -> Any:
        if name == "generate":
            # No rank waits for another before the first step, so an error that all ranks report does not break the group.
            kept, self.steps = self.engine.generate(*arguments)
            return kept
        try:
            if name == "beams":
                return self.engine.beams(*arguments)
            assert self.steps is not None
            if name == "next":
                return next(self.steps, None)
            self.steps.close()  # type: ignore[attr-defined]
            return None
        except BaseException as error:
            self.communicator.fail(f"rank {self.communicator.rank}: {error}")
            raise


class _EngineRank(_Part):
    """One device's part of an engine's decoder (paged_parallel.py)."""

    def __init__(self, setup: dict[str, Any]):
        super().__init__(setup, PagedDecoder)
        self.decoder: PagedDecoder = self.runner

    def do(self, name: str, *arguments: Any) -> Any:
        decoder = self.decoder
        if name == "about":
            return decoder.pages, decoder.page_bytes
        try:
            if name == "prepare":
                decoder.program(*arguments)
                return None
            values, kind, single, shape, count = arguments
            found = decoder.compute(values, kind, single, shape)
            return {n: x[:count].tolist() for n, x in found.items()}
        except BaseException as error:
            self.communicator.fail(f"rank {self.communicator.rank}: {error}")
            raise


def main(descriptor: int) -> int:
    pipe = Connection(descriptor)
    rank: _Rank | _EngineRank | None = None
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            return 0  # the main process has closed the connection
        try:
            if rank is None:
                rank = (_EngineRank if message.get("engine") else _Rank)(message)
                answer: Any = (0, None)
            else:
                answer = (0, rank.do(*message))
        except Error as error:
            answer = (error.code, str(error))
        except MemoryError:
            answer = (DeviceError.code, "out of memory")
        except Exception as error:  # a bug: the main process reports it
            answer = (1, f"{type(error).__name__}: {error}")
        try:
            pipe.send(answer)
        except OSError:
            return 0
        if rank is None:
            return 1


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # what waits for other ranks in libraries must not keep it alive
