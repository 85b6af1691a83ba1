"""What a server accepts, and the errors that it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import Error, InvalidArgumentError, InvalidModelError, OverloadedError, UnsupportedError


@dataclass(frozen=True)
class Limits:
    """Limits of requests; times in seconds."""

    body: int = 8 << 20  #: bytes of a request's body; more: 413
    body_time: float = 30.0  #: for a body to arrive; longer: 408
    header_time: float = 15.0  #: for a connection's first request to begin; longer: the connection is closed
    request_time: float = 600.0  #: for an answer; longer: it ends with what there is (a stream), or 504
    tokens: int = 0  #: new tokens of an answer; 0: the model's limit; more are refused with 400
    choices: int = 16  #: answers to one request (n times prompts)
    texts: int = 2048  #: texts of a request for embeddings or scores
    batch_delay: float = 0.005  #: other models: how long a request may wait for others, to run as one batch
    batch: int = 64  #: other models: rows of a batch
    queue: int = 1024  #: other models: waiting requests; more: 429


class HttpError(Exception):
    """An answer other than 200, as OpenAI's clients expect it."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int = 0):
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Retry-After": str(self.retry)} if self.retry else {}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == 401 else headers

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, kind)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def whole_number(header: str) -> int:
    """Of a header; -1 if it is none."""
    # Python's int() takes other digits too, and refuses very many.
    return int(header) if header.isascii() and header.isdigit() and len(header) < 20 else -1


def http_error(error: Error) -> HttpError:
    """The answer for one of Sardonyx's errors."""
    text = "; ".join(str(error).splitlines())
    if isinstance(error, OverloadedError):
        return HttpError(429, text, code="overloaded", retry=1)
    if isinstance(error, (InvalidArgumentError, UnsupportedError, InvalidModelError)):
        return HttpError(400, text)
    return HttpError(500, text)
