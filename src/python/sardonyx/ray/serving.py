"""Ray Serve applications with the interfaces of sardonyx.serve: OpenAI's and the Open Inference Protocol."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ray import serve
from starlette.datastructures import Headers

from ..compiling import compile
from ..errors import InvalidArgumentError
from ..llm import Engine, TextEncoder
from ..model import Model
from ..serve import Limits
from ..serve.app import Gate, create_app
from ..serve.batcher import PlainService
from ..serve.state import ServerState
from .failover import Front
from .program import SharedProgram

Plain = str | SharedProgram  #: a model's file, which every node must have, or a program in the object store


def _loaded(model: Plain, options: Mapping[str, Any]) -> Model:
    return model.load() if isinstance(model, SharedProgram) else compile(model, **{"compile_ahead": True, **options})


def _deployment_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """One replica unless something else is said. A replica answers many requests at a time: its engine forms batches."""
    found = {"name": "sardonyx", "max_ongoing_requests": 256, **(given or {})}
    if "num_replicas" in found and "autoscaling_config" in found and found["num_replicas"] != "auto":
        raise InvalidArgumentError("deployment: give num_replicas or autoscaling_config")
    return found


def application(
    languages: Mapping[str, str | Mapping[str, Any]] | None = None,
    models: Mapping[str, Plain] | None = None,
    encoders: Mapping[str, str] | None = None,
    *,
    limits: Limits | None = None,
    keys: Sequence[str] = (),
    deployment: Mapping[str, Any] | None = None,
    front: Mapping[str, Any] | None = None,
    tries: int = 3,
    **options: Any,
) -> serve.Application:
    """An application for serve.run(), whose replicas each serve all of these models with both interfaces.

    A front receives the requests. One whose replica ends runs again on another, up to `tries` in all (see failover.py).

    languages: by name, a language model's folder, or the arguments of sardonyx.llm.Engine with "folder". models: by name,
    files or shared programs. encoders: folders. Folders and files must be on every node. limits, keys: as in
    sardonyx.serve.create_app(). deployment: options of serve.deployment, such as autoscaling_config, num_replicas and
    ray_actor_options (num_gpus: 1 gives each replica a card). front: options of the front's deployment, of which one
    replica without a CPU of its own runs unless something else is said. options: device and others of sardonyx.compile().
    """
    if not isinstance(tries, int) or tries < 1:
        raise InvalidArgumentError(f"tries is {tries!r}; it must be at least 1")
    if not (languages or models or encoders):
        raise InvalidArgumentError("there is no model to serve")
    of_languages, of_models, of_encoders = dict(languages or {}), dict(models or {}), dict(encoders or {})
    keys = tuple(keys)

    class Replica:
        """The models, and the application in front of them."""

        def __init__(self) -> None:
            self._engines = {}
            for name, given in of_languages.items():
                own = dict(given) if isinstance(given, Mapping) else {"folder": given}
                self._engines[name] = Engine(**{**options, **own})
                self._engines[name].prepare()
            plain = {name: _loaded(m, options) for name, m in of_models.items()}
            texts = {name: TextEncoder(folder, **options) for name, folder in of_encoders.items()}
            for encoder in texts.values():
                encoder.model.wait()
            self._app = create_app(self._engines, plain, encoders=texts, limits=limits, keys=keys)
            self._app.state.sardonyx.ready = True

        async def answer(self, scope: dict[str, Any], body: bytes) -> AsyncIterator[dict[str, Any]]:
            """The messages of an answer. When nobody reads them any more, the request ends."""
            messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            given = False

            async def receive() -> dict[str, Any]:
                nonlocal given
                if given:  # the client stays until this task is cancelled
                    await asyncio.get_running_loop().create_future()
                given = True
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Any) -> None:
                messages.put_nowait(dict(message))

            task = asyncio.ensure_future(self._app(scope, receive, send))
            task.add_done_callback(lambda _: messages.put_nowait({"type": "end"}))
            try:
                while (message := await messages.get())["type"] != "end":
                    yield message
                task.result()
            finally:
                task.cancel()

    options_of_front = {"name": "sardonyx-front", "max_ongoing_requests": 4096, **(front or {})}
    options_of_front.setdefault("ray_actor_options", {"num_cpus": 0})

    class FrontDeployment:
        """Hands requests to replicas."""

        def __init__(self, replicas: Any):
            handle = replicas.options(stream=True)
            self._state = ServerState({}, {}, {}, limits or Limits(), keys)
            self._state.ready = True
            self._app = Gate(Front(lambda scope, body: handle.answer.remote(scope, body), tries), self._state)

        def __serve_build_asgi_app__(self) -> Any:
            return self._app

    replicas = serve.deployment(**_deployment_options(deployment))(Replica).bind()
    return serve.deployment(**options_of_front)(serve.ingress()(FrontDeployment)).bind(replicas)


def multiplexed_application(
    models: Mapping[str, Plain],
    *,
    most: int = 4,
    limits: Limits | None = None,
    keys: Sequence[str] = (),
    deployment: Mapping[str, Any] | None = None,
    **options: Any,
) -> serve.Application:
    """An application of many models with the Open Inference Protocol, of which each replica has at most `most` in memory.

    A model is loaded when a request for it comes, and the one that was used least recently goes. Requests with the
    header `serve_multiplexed_model_id: NAME` go to a replica that has the model. Arguments are those of application().
    """
    if not isinstance(most, int) or most < 1:
        raise InvalidArgumentError(f"most is {most!r}; it must be at least 1")
    known, keys = dict(models), tuple(keys)

    class Multiplexed:
        def __init__(self) -> None:
            self._server = create_app({}, {}, limits=limits, keys=keys)
            self._state = self._server.state.sardonyx
            # Ray's cache of models alone keeps them, and requests that they answer.
            self._state.plain = weakref.WeakValueDictionary()

        @serve.multiplexed(max_num_models_per_replica=most)
        async def service(self, name: str) -> PlainService:
            model = await asyncio.to_thread(_loaded, known[name], options)
            found = PlainService(name, model, self._state.limits, self._state.metrics)
            self._state.plain[name] = found
            return found

        def __serve_build_asgi_app__(self) -> Any:
            async def app(scope: Any, receive: Any, send: Any) -> None:
                name, service = _model_in(scope), None
                if name in known:
                    given = Headers(scope=scope).get("authorization", "")
                    if self._state.authorized(given) is not None:
                        service = await self.service(name)
                await self._server(scope, receive, send)
                del service

            return app

    return serve.deployment(**_deployment_options(deployment))(serve.ingress()(Multiplexed)).bind()


def _model_in(scope: Any) -> str:
    """The model that a request's path names; empty: none."""
    parts = scope.get("path", "").split("/")
    return parts[3] if scope["type"] == "http" and parts[1:3] == ["v2", "models"] and len(parts) > 3 else ""
