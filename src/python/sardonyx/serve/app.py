"""The web application: limits, keys, health and metrics around the interfaces of models."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from ..errors import Error
from ..llm import Engine, TextEncoder
from ..model import Model
from .encoder_api import encoder_routes
from .inference_api import inference_routes
from .limits import HttpError, Limits, http_error, whole_number
from .openai_api import openai_routes
from .state import ServerState

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_OPEN = ("/", "/health", "/ready", "/v2/health/live", "/v2/health/ready")  # without a key


def create_app(
    engines: Mapping[str, Engine] | None = None,
    models: Mapping[str, Model] | None = None,
    *,
    encoders: Mapping[str, TextEncoder] | None = None,
    limits: Limits | None = None,
    keys: Sequence[str] = (),
) -> FastAPI:
    """An ASGI application that serves language models (`engines`), encoders of texts and other models by name.

    keys: API keys, one of which requests must have (`Authorization: Bearer KEY`), except for health and readiness; none:
    everybody is served. When the application ends, its engines answer what they have accepted, then they are closed.
    """
    state = ServerState(engines or {}, models or {}, encoders or {}, limits or Limits(), keys)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        state.ready = True
        yield
        state.ready = False
        for engine in state.engines.values():
            await asyncio.to_thread(engine.close)

    app = FastAPI(title="Sardonyx", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.sardonyx = state
    app.include_router(openai_routes(state))
    app.include_router(encoder_routes(state))
    app.include_router(inference_routes(state))
    _own_routes(app, state)
    _error_answers(app)
    app.add_middleware(Gate, state=state)
    return app


def _own_routes(app: FastAPI, state: ServerState) -> None:
    with open(os.path.join(os.path.dirname(__file__), "page.html"), encoding="utf-8") as file:
        page = file.read()

    @app.get("/")
    async def status_page() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": "default-src 'self' 'unsafe-inline'"})

    @app.get("/status")
    async def status() -> Any:
        return state.snapshot()

    @app.get("/health")
    async def health() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/ready")
    async def ready() -> Response:
        return PlainTextResponse("ready\n" if state.ready else "not ready\n", 200 if state.ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _error_answers(app: FastAPI) -> None:
    def answer(error: HttpError) -> Response:
        return JSONResponse(error.body(), error.status, headers=error.headers)

    async def of_http(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HttpError)
        return answer(error)

    async def of_starlette(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(HttpError(error.status_code, str(error.detail)))

    async def of_library(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, Error)
        return answer(http_error(error))

    app.add_exception_handler(HttpError, of_http)
    app.add_exception_handler(HTTPException, of_starlette)
    app.add_exception_handler(Error, of_library)


class Gate:
    """In front of everything: keys, the size and the time of bodies, and the count of answers."""

    def __init__(self, app: Any, state: ServerState):
        self._app, self._state = app, state

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state, begun = self._state, False
        status = 500

        async def noted(message: Message) -> None:
            nonlocal begun, status
            if message["type"] == "http.response.start":
                begun, status = True, message["status"]
            await send(message)

        state.metrics.open.inc()
        try:
            self._admit(scope)
            await self._app(scope, self._limited(scope, receive), noted)
        except HttpError as error:  # of a body that is too large or too slow, too
            if begun:
                raise
            await self._discard(receive)
            headers = {**error.headers, "Connection": "close"}  # the rest of the body is not read
            await JSONResponse(error.body(), error.status, headers=headers)(scope, receive, noted)
        except ClientDisconnect:  # before its request had come; nobody is there to be answered
            status = 499
        finally:
            state.metrics.open.dec()
            route = scope.get("route")
            state.metrics.http.labels(getattr(route, "path", "other"), str(status)).inc()

    async def _discard(self, receive: Receive) -> None:
        """Reads more of a body that is refused: many clients read no answer before they have sent everything, and closing
        a connection with unread data may lose the answer."""
        left = 4 * self._state.limits.body
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return

    def _admit(self, scope: Any) -> None:
        headers, limits = Headers(scope=scope), self._state.limits
        if scope["path"] not in _OPEN:
            client = self._state.authorized(headers.get("authorization", ""))
            if client is None:
                raise HttpError(401, "the API key is missing or wrong", code="invalid_api_key")
            scope["sardonyx.client"] = client
            if scope["method"] == "POST" and not self._state.ready:
                raise HttpError(503, "the server is starting or shutting down; try again later", retry=5)
        length = whole_number(headers.get("content-length", "0"))
        if length < 0:
            raise HttpError(400, "the header Content-Length is not a number")
        if length > limits.body:
            raise HttpError(413, f"the body has {length} bytes, and the server's limit is {limits.body}")

    def _limited(self, scope: Any, receive: Receive) -> Receive:
        limits, loop = self._state.limits, asyncio.get_running_loop()
        until, size, whole = loop.time() + limits.body_time, 0, False

        async def limited() -> Message:
            nonlocal size, whole
            if whole:  # waits for the client to go away
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise HttpError(408, f"the body did not arrive within {limits.body_time:g} s") from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if size > limits.body:
                    if not whole:
                        await self._discard(receive)
                    raise HttpError(413, f"the body has more than {limits.body} bytes, the server's limit")
            return message

        return limited
