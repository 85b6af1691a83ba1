"""Requests whose replica dies: they run again on another one, and streams go on where they were.

A front receives requests and hands each to a replica. It keeps the body, and of a stream the text that the client has. If the
replica's process or node ends, the front asks another replica. The same request gives the same text: the front chooses the seed of
sampled answers that have none. So it drops what the client has, and goes on with the rest. Where that is not possible (the new
text differs, by rounding in another batch; log-probabilities; calls of tools) the stream ends with an error that says so.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from ray.exceptions import RayActorError, RayError, RayTaskError

from ..serve.limits import HttpError

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
_END = b"\n\n"


class NotResumable(Exception):
    """Why a stream can't go on."""


class SseStream:
    """An answer's stream of events, as far as the client has it. Of a second run of the same request it lets pass what comes
    after that."""

    def __init__(self) -> None:
        self._rest = b""  # the beginning of an event
        self._head: dict[str, Any] = {}  # id and time of the first run's events
        self._had: dict[int, str] = {}  # by choice: the text that the client has
        self._before: dict[int, str] = {}  # the same when the request began again
        self._skip: dict[int, int] = {}  # characters of it that the new run has given
        self._begun: set[int] = set()  # choices whose role the client knows
        self._ended: set[int] = set()
        self._why_not = ""
        self._counted = False  # the client has the usage
        self.done = False  #: it has everything

    def again(self) -> None:
        """The request begins again. Raises NotResumable."""
        if self._why_not:
            raise NotResumable(self._why_not)
        self._rest, self._before, self._skip = b"", dict(self._had), dict.fromkeys(self._had, 0)

    def take(self, data: bytes) -> bytes:
        """What of these bytes is for the client: whole events. Raises NotResumable."""
        *events, self._rest = (self._rest + data).split(_END)
        return b"".join(self._event(e) for e in events)

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(b"data: {"):
            self.done = self.done or event == b"data: [DONE]"
            return event + _END
        content = json.loads(event[6:])
        if "error" in content or "choices" not in content:
            return event + _END
        if not self._head:
            self._head = {k: content[k] for k in ("id", "created") if k in content}
        choices = [c for c in content["choices"] if self._choice(c)]
        if not choices and (content["choices"] or self._counted):
            return b""
        self._counted = self._counted or not content["choices"]
        text = json.dumps({**content, **self._head, "choices": choices}, ensure_ascii=False, separators=(",", ":"))
        return b"data: " + text.encode() + _END

    def _choice(self, choice: dict[str, Any]) -> bool:
        """Whether the client gets this one, of whose text what it has is removed."""
        index = choice["index"]
        delta = choice.get("delta")
        if choice.get("logprobs"):
            self._why_not = "it has log-probabilities"
        if delta and delta.get("tool_calls"):
            self._why_not = "it calls tools"
        if delta and "role" in delta:
            new = index not in self._begun
            self._begun.add(index)
            return new
        text = (delta or choice).get("content" if delta is not None else "text") or ""
        before, at = self._before.get(index, ""), self._skip.get(index, 0)
        if at < len(before):
            known = text[: len(before) - at]
            if not before.startswith(known, at) or (choice.get("finish_reason") and at + len(known) < len(before)):
                raise NotResumable("it runs again and becomes another text")
            self._skip[index] = at + len(known)
            text = text[len(known) :]
            if not text and not choice.get("finish_reason"):
                return False
            if delta is not None and "content" in delta:
                delta["content"] = text
            elif delta is None:
                choice["text"] = text
        self._had[index] = self._had.get(index, "") + text
        if choice.get("finish_reason"):
            new = index not in self._ended
            self._ended.add(index)
            return new
        return True


def _lost(error: Exception) -> bool:
    """Whether the replica is gone, rather than the request wrong."""
    return isinstance(error, RayActorError) or (isinstance(error, RayError) and not isinstance(error, RayTaskError))


class Front:
    """The ASGI application of the front."""

    def __init__(self, ask: Callable[[Message, bytes], Any], tries: int):
        """ask: gives the messages of a replica's answer to a scope and a body, as an asynchronous iterator; tries: replicas
        that a request may have."""
        self._ask, self._tries = ask, tries

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] != "http":
            return
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        plain = {
            k: scope[k]
            for k in ("type", "http_version", "method", "scheme", "path", "query_string", "headers")
            if k in scope
        }
        plain |= {
            "raw_path": scope.get("raw_path", b""),
            "root_path": "",
            "client": list(scope.get("client") or ("", 0)),
        }
        plain |= {"server": list(scope.get("server") or ("", 0)), "sardonyx.seed": secrets.randbits(62)}
        stream: SseStream | None = None
        for left in reversed(range(self._tries)):
            try:
                stream = await self._once(plain, bytes(body), send, stream)
                return
            except _Died as died:
                stream = died.stream
                if not left:
                    await self._end(send, stream, "the replicas that computed it have ended")
                    return
            except NotResumable as error:
                await self._end(send, SseStream(), f"its replica has ended, and {error}")
                return

    async def _once(self, scope: Message, body: bytes, send: Send, stream: SseStream | None) -> SseStream | None:
        """Forwards a replica's answer. Raises _Died with what the client has."""
        if stream:
            stream.again()
        begun, kept = stream is not None, list[Message]()
        try:
            async for message in self._ask(scope, body):
                if message["type"] == "http.response.start":
                    if begun:
                        if message["status"] != 200:
                            raise NotResumable("another one refuses it")
                        continue
                    streams = any(k.lower() == b"content-type" and b"event-stream" in v for k, v in message["headers"])
                    if streams:
                        stream, begun = SseStream(), True
                        await send(message)
                    else:
                        kept.append(message)
                elif stream:
                    more = message.get("more_body", False)
                    found = stream.take(message.get("body", b""))
                    if found or not more:
                        await send({**message, "body": found})
                    if not more:
                        return stream
                else:  # sent when it is complete
                    kept.append(message)
        except Exception as error:
            if not _lost(error):
                raise
            if stream is None or not stream.done:
                raise _Died(stream) from None
            await send({"type": "http.response.body", "body": b""})
        for message in kept:
            await send(message)
        return stream

    @staticmethod
    async def _end(send: Send, stream: SseStream | None, why: str) -> None:
        error = HttpError(503, f"the answer can't be completed: {why}; ask again", retry=5)
        text = json.dumps(error.body())
        if stream is None:
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"5")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": text.encode()})
        else:
            await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode()})


class _Died(Exception):
    def __init__(self, stream: SseStream | None):
        super().__init__("the replica has ended")
        self.stream = stream
