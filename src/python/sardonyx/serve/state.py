"""What a server's parts share: its models, limits, keys and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import threading
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request as HttpRequest

from ..errors import InvalidArgumentError
from ..llm import Engine, TextEncoder
from ..llm.constraints import Constraints
from ..model import Model
from .batcher import PlainService
from .encoder_service import EncoderService
from .limits import HttpError, Limits
from .metrics import Metrics

T = TypeVar("T")

_FEW_STREAMS = 4  #: whose tokens are sent one by one
_PAUSE = 4e-4  #: seconds for each stream, so that chunks take at most a quarter of the time
_LONGEST_PAUSE = 0.1


class LanguageService:
    """A language model under its name, or one of its adapters."""

    def __init__(self, name: str, engine: Engine, base: LanguageService | None = None):
        """base: the model of which this is the adapter `name`."""
        self.name, self.engine, self.adapter, self._base = name, engine, name if base else "", base
        self._constraints: Constraints | None = None
        self._lock = threading.Lock()

    def constraints(self) -> Constraints:
        """Made when it is first needed. Raises UnsupportedError without the package llguidance."""
        if self._base:
            return self._base.constraints()
        with self._lock:
            if self._constraints is None:
                self._constraints = Constraints(self.engine._folder)
            return self._constraints


class ServerState:
    """See create_app()."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        models: Mapping[str, Model],
        encoders: Mapping[str, TextEncoder],
        limits: Limits,
        keys: Sequence[str],
    ):
        self.limits = limits
        self.languages = {name: LanguageService(name, e) for name, e in engines.items()}
        for base in list(self.languages.values()):
            for name in base.engine.adapters:
                if name in (*self.languages, *models, *encoders):
                    raise InvalidArgumentError(f"an adapter is named '{name}' as another model is")
                self.languages[name] = LanguageService(name, base.engine, base)
        self.engines = dict(engines)
        self.metrics = Metrics(self.engines)
        self.plain = {name: PlainService(name, m, limits, self.metrics) for name, m in models.items()}
        self.encoders = {name: EncoderService(name, e, limits, self.metrics) for name, e in encoders.items()}
        self.started = int(time.time())
        self.ready = False  #: whether new requests are accepted
        self.streams = 0  #: answers that are being streamed
        self._keys = [hashlib.sha256(k.encode()).digest() for k in keys]

    def pause(self) -> float:
        """Seconds between two chunks of a stream. With many streams, tokens that come meanwhile are sent together: a chunk
        takes up to 100 microseconds, and an interpreter that the engine's thread needs too."""
        return min(_LONGEST_PAUSE, self.streams * _PAUSE) if self.streams > _FEW_STREAMS else 0.0

    def language(self, name: str) -> LanguageService:
        """404 if there is none of this name."""
        found = self.languages.get(name)
        if found is None:
            raise HttpError(404, f"there is no language model '{name[:200]}'", param="model", code="model_not_found")
        return found

    def model(self, name: str, version: str = "1") -> PlainService:
        """404 if there is none of this name."""
        found = self.plain.get(name)
        if found is None or version != "1":
            raise HttpError(404, f"there is no model '{name[:200]}' of version '{version[:20]}'")
        return found

    def authorized(self, header: str) -> str | None:
        """Who has sent this Authorization header: a name for statistics and fair queues; None if the key is wrong."""
        if not self._keys:
            return ""
        scheme, _, key = header.partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        found = None
        for k, own in enumerate(self._keys):  # all of them, so that the time tells nothing
            if hmac.compare_digest(own, digest) and scheme.lower() == "bearer":
                found = f"key {k + 1}"
        return found

    async def while_connected(self, http: HttpRequest, work: Awaitable[T]) -> T:
        """The work's result; it is cancelled when the client goes away, or after the time for requests (504)."""
        task = asyncio.ensure_future(work)

        async def gone() -> None:
            while (await http.receive())["type"] != "http.disconnect":
                pass

        watch = asyncio.ensure_future(gone())
        try:
            await asyncio.wait((task, watch), timeout=self.limits.request_time, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if watch.done():
                raise HttpError(499, "the client has gone away")
            raise HttpError(504, f"the answer took longer than {self.limits.request_time:g} s")
        finally:
            for t in (task, watch):
                t.cancel()

    def snapshot(self) -> dict[str, Any]:
        """For the page."""
        languages = {}
        for name, engine in self.engines.items():
            languages[name] = {
                **engine.statistics().__dict__,
                "device": engine.device,
                "context": engine.context,
            }
        others = {**self.plain, **self.encoders}
        plain = {n: {"waiting": s.waiting, "device": s.device} for n, s in others.items()}
        return {
            "ready": self.ready,
            "time": time.time(),
            "process": os.getpid(),
            "languages": languages,
            "models": plain,
        }


def client_of(http: HttpRequest) -> str:
    """Whose request this is, for fair scheduling: the API key's number, or the client's address."""
    return http.scope.get("sardonyx.client") or (http.client.host if http.client else "")
