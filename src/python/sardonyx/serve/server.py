"""Runs the application under uvicorn, with a time limit for connections that send nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import UnsupportedError
from .limits import Limits


def _protocol(seconds: float) -> type[H11Protocol]:
    class TimedProtocol(H11Protocol):
        """Closes a connection whose first request has not begun in time."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._expire)

        def connection_lost(self, exc: Exception | None) -> None:
            self._deadline.cancel()
            super().connection_lost(exc)

        def _expire(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.close()

    return TimedProtocol


class Server(uvicorn.Server):
    """uvicorn's server, which tells its address and is no longer ready as soon as it is asked to end."""

    def __init__(
        self,
        app: FastAPI,
        config: uvicorn.Config,
        started: Callable[[str], object],
        grpc_port: int | None,
        grace: float,
    ):
        super().__init__(config)
        self._state, self._started, self._grace = app.state.sardonyx, started, grace
        self._grpc: Any = None
        self.grpc_port = grpc_port  #: where gRPC is served, when the server has started; None: nowhere

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started and self.grpc_port is not None:
            from .grpc_api import make_grpc_server

            c = self.config
            try:
                self._grpc, self.grpc_port = make_grpc_server(
                    self._state,
                    c.host,
                    self.grpc_port,
                    str(c.ssl_certfile) if c.ssl_certfile else None,
                    str(c.ssl_keyfile) if c.ssl_keyfile else None,
                )
            except OSError:
                self.started = False
                await super().shutdown(sockets)
                raise
            await self._grpc.start()
        if self.started:
            name = self.servers[0].sockets[0].getsockname()
            host = f"[{name[0]}]" if ":" in name[0] else name[0]
            self._started(f"{'https' if self.config.is_ssl else 'http'}://{host}:{name[1]}")

    async def shutdown(self, sockets: Any = None) -> None:
        if self._grpc is None:
            await super().shutdown(sockets)
        else:
            await asyncio.gather(self._grpc.stop(self._grace), super().shutdown(sockets))

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._state.ready = False
        super().handle_exit(sig, frame)


def make_server(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grpc_port: int | None = None,
    grace: float = 60.0,
    certificate: str | None = None,
    key: str | None = None,
    started: Callable[[str], object] = lambda _: None,
) -> Server:
    """A server for create_app()'s application; run() serves until SIGTERM or SIGINT, then answers what it has accepted, for
    at most `grace` seconds. port 0: any free one. grpc_port: serves the Open Inference Protocol over gRPC too, at this
    port, or any free one for 0 (see Server.grpc_port). certificate, key: files for TLS. started: gets the address.

    Raises UnsupportedError for grpc_port without the package grpcio."""
    if grpc_port is not None:
        try:
            import grpc  # noqa: F401
        except ImportError:
            raise UnsupportedError(
                "gRPC needs the Python package 'grpcio': pip install 'sardonyx[serve,grpc]'"
            ) from None
    limits: Limits = app.state.sardonyx.limits
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_protocol(limits.header_time),
        ws="none",
        loop="asyncio",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(limits.header_time)),
        timeout_graceful_shutdown=max(1, round(grace)),
        h11_max_incomplete_event_size=64 << 10,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    return Server(app, config, started, grpc_port, grace)
