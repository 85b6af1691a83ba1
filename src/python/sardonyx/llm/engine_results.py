"""What an engine tells about itself and about an answer."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DeviceError, Error, InternalError
from .engine_request import Request
from .language_model import Generation, Statistics


@dataclass(frozen=True)
class EngineStatistics:
    """What an engine has done since it began, and what it is doing."""

    running: int  #: requests
    waiting: int
    pages: int  #: of the KV cache
    used_pages: int  #: that running requests have
    page_tokens: int
    cache_bytes: int
    steps: int
    prompt_tokens: int  #: computed, those that were computed again included
    kept_tokens: int  #: of prompts, found in the cache
    new_tokens: int
    preemptions: int
    host_pages: int  #: of preempted requests that host memory has room for
    used_host_pages: int
    restored_tokens: int  #: that were copied back from host memory instead of being computed again
    guessed_tokens: int  #: by speculation
    right_guesses: int  #: of them, which are tokens of answers
    ended: dict[str, int]  #: requests by Request.finished


def generation(request: Request) -> Generation:
    """What a request has generated, when it has ended."""
    statistics = Statistics(
        request.prompt_tokens, request.kept, len(request.answer), request.first or request.total, request.total
    )
    return Generation(request.text, request.answer, request.finished, statistics)


def known_error(error: Exception, what: str) -> Error:
    """An exception as one of Sardonyx's."""
    if isinstance(error, Error):
        return error
    if isinstance(error, MemoryError):
        return DeviceError(f"{what}: memory ran out")
    return InternalError(f"{what}: {error!r}")
