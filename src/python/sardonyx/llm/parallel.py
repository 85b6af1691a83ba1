"""A decoder that several devices of one machine compute together. Each device has a process (rank.py), which this process
controls.

All ranks get the same commands in the same order and run the same steps, so they enter each AllReduce together. They choose the
same tokens, because the sums are bitwise equal. If a rank ends, this process ends the others, and restarts all when the model
is used again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from socket import socketpair
from typing import Any

from ..device import devices as known_devices
from ..errors import DeviceError, Error, FileError, InvalidArgumentError, of_code
from .genai_folder import GenaiFolder
from .search_options import SearchOptions

_GRACE = 5.0  #: seconds that ranks have to report what happened when another one is gone


def device_names(devices: Sequence[str | int]) -> list[str]:
    """Names of devices; a number is a GPU's index. Raises InvalidArgumentError."""
    if isinstance(devices, str) or not devices:
        raise InvalidArgumentError("devices is a list of names or of GPU indices, such as [0, 1]")
    names = []
    for d in devices:
        text = str(d).strip()
        if text.isdecimal():
            cards = [k.name for k in known_devices() if k.name != "host"]
            if not cards:
                raise InvalidArgumentError(f"there is no GPU {text}: this machine has no usable GPU")
            text = f"{cards[0].partition(':')[0]}:{text}"
        names.append(text)
    cards = [n for n in names if n != "host" and not n.startswith("sim:")]
    if len(set(cards)) < len(cards):
        raise InvalidArgumentError(f"a GPU is named twice in {', '.join(names)}")
    kinds = {n.partition(":")[0] for n in names}
    if len(kinds) > 1:
        raise InvalidArgumentError(f"devices of several kinds can't share a model: {', '.join(names)}")
    return names


class _Rank:
    def __init__(self, number: int, device: str, setup: dict[str, Any]):
        """setup: with the descriptors of its links."""
        self.number, self.device = number, device
        ours, theirs = socketpair()
        folder = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *filter(None, sys.path)])}
        with theirs:
            passed = [theirs.fileno(), *(fd for fd in setup["links"] if fd is not None)]
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "sardonyx.llm.rank", str(theirs.fileno())],
                    pass_fds=passed,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=env,
                    start_new_session=True,  # only this process handles keyboard interrupts
                )
            except OSError as error:
                ours.close()
                raise DeviceError(f"no process could be started for {device}: {error.strerror}") from None
        self.pipe = Connection(ours.detach())
        self.send({**setup, "device": device})

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it has ended: receiving reports it
            self.pipe.send(message)

    def ending(self) -> str:
        """Why the process has ended."""
        try:
            code = self.process.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            return "does not answer"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.pipe.close()


class _Ranks:
    """The processes and their temporary files."""

    def __init__(self, folder: GenaiFolder, devices: list[str], setup: dict[str, Any]):
        self.alive: list[_Rank] = []
        self.folders: list[str] = []
        stages: int = setup["stages"]
        size = len(devices) // stages  # of a stage
        # A device sends to the one of the same rank in the next stage.
        links = [socketpair() for _ in range(len(devices) - size)]
        try:
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            self.folders.append(tempfile.mkdtemp(prefix="sardonyx-", dir=memory))
            self.folders.append(tempfile.mkdtemp(prefix="sardonyx-"))
            group = os.path.join(self.folders[0], "group")
            for number, device in enumerate(devices):
                part = os.path.join(self.folders[1], str(number))
                os.mkdir(part)
                ends = (
                    links[number - size][1].fileno() if number >= size else None,
                    links[number][0].fileno() if number < len(links) else None,
                )
                place = {"stage": number // size, "rank": number % size, "size": size, "links": ends}
                each = {**setup, **place, "folder": folder.path, "group": group, "part": part}
                self.alive.append(_Rank(number, device, each))
        except OSError as error:
            self.end()
            raise FileError(f"no folder could be made for the devices' parts: {error}") from None
        except BaseException:
            self.end()
            raise
        finally:
            for end in itertools.chain.from_iterable(links):
                end.close()

    def end(self) -> None:
        for rank in self.alive:
            rank.kill()
        self.alive.clear()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


class RankGroup:
    """The processes of a model's devices, which get the same commands."""

    def __init__(self, folder: GenaiFolder, devices: list[str], setup: dict[str, Any]):
        """setup: what each process is told first, beside its own. Raises errors.Error."""
        self._folder, self._devices, self._setup = folder, devices, setup
        self._ranks: _Ranks | None = None
        self._finalizer: Any = None
        self._start()

    @property
    def device(self) -> str:
        return ", ".join(self._devices)

    def close(self) -> None:
        """Ends the processes."""
        if self._finalizer is not None:
            self._finalizer()
        self._ranks = self._finalizer = None

    def _start(self) -> None:
        self._ranks = ranks = _Ranks(self._folder, self._devices, self._setup)
        self._finalizer = weakref.finalize(self, ranks.end)
        try:
            self._receive()
        except Error:
            self.close()
            raise

    def _tell(self, *command: Any) -> None:
        if self._ranks is None:
            raise DeviceError("the processes of the devices have ended")
        for rank in self._ranks.alive:
            rank.send(command)

    def _ask(self, *command: Any, equal: bool = True) -> list[Any]:
        self._tell(*command)
        return self._receive(equal)

    def _receive(self, equal: bool = True) -> list[Any]:
        """The answers of all ranks. equal: those that have one must have the same. Raises the error of a rank, or an error if
        one has ended."""
        assert self._ranks is not None
        try:
            answers = self._answers(self._ranks.alive)
            if equal and len({repr(a) for a in answers if a is not None}) > 1:
                raise DeviceError(f"the devices disagree: {answers}")
            return answers
        except Error as error:
            # If all ranks report an error, their state has not changed.
            if not getattr(error, "all_live", False):
                self.close()
            raise
        except BaseException:  # an interrupt: it is unknown which processes have answered
            self.close()
            raise

    def _answers(self, ranks: list[_Rank]) -> list[Any]:
        answers: dict[int, Any] = {}
        failures: dict[int, Error] = {}
        gone: dict[int, str] = {}
        by_pipe = {r.pipe: r for r in ranks}
        while by_pipe:
            ready = wait(list(by_pipe), timeout=_GRACE if gone or failures else None)
            if not ready:
                break
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = by_pipe.pop(pipe)
                try:
                    code, content = pipe.recv()
                except (EOFError, OSError):
                    gone[rank.number] = rank.ending()
                    continue
                if code:
                    failures[rank.number] = of_code(code, content)
                else:
                    answers[rank.number] = content
        if gone:
            number = min(gone)
            raise DeviceError(
                f"the process of rank {number} ({self._devices[number]}) {gone[number]}; the model is loaded again when it is "
                "used again"
            )
        if failures:
            # Errors of ranks that were caused by another rank's failure are not the reason.
            first = min(failures.items(), key=lambda f: ("the group of" in str(f[1]), f[0]))
            same = len(failures) == len(ranks) and not any("the group of" in str(f) for f in failures.values())
            error = of_code(
                type(first[1]).code, f"{self._devices[first[0]]}: {first[1]}" if not same else str(first[1])
            )
            error.all_live = same  # type: ignore[attr-defined]
            raise error
        return [answers[r.number] for r in ranks]


class ParallelEngine(RankGroup):
    """A DecoderRunner (local.py) on several devices."""

    def __init__(self, folder: GenaiFolder, devices: list[str], *, transport: str, threads: int, **options: Any):
        """options: those of Decoder but for device, progress and communicator. Raises errors.Error."""
        self._steps: Iterator[list[int]] | None = None
        super().__init__(folder, devices, rank_setup(devices, transport, threads, options))

    def generate(self, texts: list[list[int]], options: SearchOptions) -> tuple[int, Iterator[list[int]]]:
        self._ready()
        kept = self._ask("generate", texts, _seeded(options))[0]
        self._steps = steps = self._rows()
        return kept, steps

    def beams(self, tokens: list[int], options: SearchOptions, new: int) -> list[int]:
        self._ready()
        return list(self._ask("beams", tokens, options, new)[0])

    def close(self) -> None:
        """Ends the processes. The engine starts new ones if it is used again."""
        super().close()
        self._steps = None

    def _ready(self) -> None:
        if self._ranks is None:
            self._start()
        elif self._steps is not None:  # a generation was not finished
            self._steps.close()  # type: ignore[attr-defined]
            self._steps = None

    def _rows(self) -> Iterator[list[int]]:
        ranks = self._ranks
        finished = False
        try:
            while not finished:
                row = self._ask("next")[0]
                if row is None:
                    finished = True
                else:
                    yield row
        finally:
            if not finished and self._ranks is ranks and ranks is not None:
                self._ask("stop")


def rank_setup(
    devices: list[str], transport: str, threads: int, options: dict[str, Any], stages: int = 1
) -> dict[str, Any]:
    """What the processes are told first: the transport, into how many stages the layers are divided, and the options of their
    decoders."""
    if threads == 0:
        threads = max(1, len(os.sched_getaffinity(0)) // len(devices))
    cache = options["cache_dir"]
    options["cache_dir"] = None if cache is None else os.fspath(cache)
    return {"transport": transport, "stages": stages, "options": {**options, "threads": threads}}


def _seeded(options: SearchOptions) -> SearchOptions:
    """All ranks use the same random numbers."""
    if options.samples and options.seed is None:
        return dataclasses.replace(options, seed=secrets.randbits(63))
    return options
