"""A process of parallel.py: one device's part of a decoder. python -m sardonyx.llm.rank FD [FD ...]

It reads its configuration and then commands from the first socket, and answers each with (0, result) or (error code, message).
Others lead to its neighbours among the stages of a model (stage_link.py). The process that started it is trusted.
"""

from __future__ import annotations

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
from .paged_sampling import StepKind
from .stage_graph import write_part
from .stage_link import StageReceiver, StageSender

SILENT = object()  #: of commands without an answer


class _Part:
    """One device's part of a model, and the communicator through which it computes with the others of its stage."""

    def __init__(self, setup: dict[str, Any], make: Callable[..., Any]):
        whole = read_folder(setup["folder"])
        self.rank, size = setup["rank"], setup["size"]
        stage, stages = setup["stage"], setup["stages"]
        # Check that the model can be divided, and that the parts fit on the disk, before any process waits for others.
        part = write_part(whole, setup["part"], stage, stages, self.rank, size)
        options = setup["options"]
        if stages > 1:
            parts = {n: options[n] * stages * part.layers // whole.layers for n in ("cache_memory", "host_memory")}
            options = {**options, **parts}
        self.communicator = None
        if size > 1:
            group = f"{setup['group']}{stage}"
            self.communicator = join(group, self.rank, size, setup["device"], transport=setup["transport"])
        try:
            self.runner = make(part, device=setup["device"], communicator=self.communicator, **options)
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Tells the others of the stage, which may wait for this device."""
        if self.communicator is not None:
            self.communicator.fail(f"rank {self.rank}: {error}")


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
            self.fail(error)
            raise


class _EngineRank(_Part):
    """One device's part of an engine's decoder (paged_parallel.py)."""

    def __init__(self, setup: dict[str, Any]):
        super().__init__(setup, PagedDecoder)
        self.decoder: PagedDecoder = self.runner
        before, after = setup["links"]
        self.before = None if before is None else StageReceiver(before, self.decoder.graph.step.carried)
        self.after = None if after is None else StageSender(after)

    def do(self, name: str, *arguments: Any) -> Any:
        if name == "about":
            return self.decoder.pages, self.decoder.page_bytes, self.decoder.host_places
        try:
            if name == "prepare":
                self.decoder.program(*arguments)
                return None
            if name in ("take", "give"):
                getattr(self.decoder.copies, name)(*arguments)
                return SILENT
            if name == "warm_up":
                kind, sequences, tokens = arguments
                return self.decoder.warm_up(kind, sequences, tokens, lambda _: 0)
            return self._step(*arguments)
        except BaseException as error:
            self.fail(error)
            if self.after is not None:
                self.after.fail()
            raise

    def _step(
        self, values: dict[str, Any], kind: StepKind, single: bool, shape: tuple[int, int] | None, count: int
    ) -> dict[str, Any] | None:
        """The results, in the last stage."""
        folder = self.decoder.folder
        tokens = values[folder.input_ids].shape[1]
        if self.before is not None:
            values |= self.before.receive()
        found = self.decoder.compute(values, kind, single, shape)
        if self.after is not None:
            self.after.send([found[n][:, :tokens].copy() for n in folder.carried_out])
            return None
        return {n: x[:count].tolist() for n, x in found.items()}


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
                result = rank.do(*message)
                if result is SILENT:
                    continue
                answer = (0, result)
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
