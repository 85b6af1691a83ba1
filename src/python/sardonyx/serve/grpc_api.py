"""The Open Inference Protocol v2 over gRPC: health, metadata and ModelInfer, beside HTTP in the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from .grpc_messages import MESSAGES, PACKAGE, SERVICE
from .inference_api import checked_inputs, datatype_of, described, dtype_of, wanted_outputs
from .limits import HttpError
from .state import ServerState

Array = np.ndarray[Any, Any]
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_CONTENTS = {
    "BOOL": "bool_contents",
    **{f"INT{bits}": "int_contents" for bits in (8, 16, 32)},
    "INT64": "int64_contents",
    **{f"UINT{bits}": "uint_contents" for bits in (8, 16, 32)},
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
_FIELDS = ("bool", "int", "int64", "uint", "uint64", "fp32", "fp64", "bytes")
_OPEN = ("ServerLive", "ServerReady")  # without a key


def _tensor(tensor: Any, raw: bytes | None) -> Array:
    """An input; raw: its bytes, if the request has its data so."""
    shape = list(tensor.shape)
    if len(shape) > 32 or any(not 0 <= n < 1 << 40 for n in shape):
        raise HttpError(400, f"the input '{tensor.name[:200]}' has the shape {shape[:40]}")
    dtype, count = dtype_of(tensor.name, tensor.datatype), 1
    for n in shape:
        count *= n
    if raw is not None:
        if len(raw) != count * dtype.itemsize or any(getattr(tensor.contents, f"{f}_contents") for f in _FIELDS):
            raise HttpError(400, f"the input '{tensor.name[:200]}' of shape {shape} does not have {len(raw)} bytes")
        return np.frombuffer(raw, dtype).reshape(shape)
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise HttpError(400, f"the input '{tensor.name[:200]}' is {tensor.datatype}, which needs raw_input_contents")
    values = np.array(getattr(tensor.contents, field))
    if values.size != count:
        raise HttpError(400, f"the input '{tensor.name[:200]}' has {values.size} elements, and the shape {shape}")
    if dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise HttpError(400, f"the input '{tensor.name[:200]}' has a number that is out of range")
    return values.astype(dtype).reshape(shape)


class InferenceServicer:
    """The methods, each from a request's message to the answer's."""

    def __init__(self, state: ServerState):
        self._state = state

    async def ServerLive(self, _: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def ServerReady(self, _: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._state.ready)

    async def ModelReady(self, request: Any) -> Any:
        known = request.name in self._state.plain and request.version in ("", "1")
        return MESSAGES["ModelReadyResponse"](ready=known and self._state.ready)

    async def ServerMetadata(self, _: Any) -> Any:
        from .. import __version__

        return MESSAGES["ServerMetadataResponse"](name="sardonyx", version=__version__)

    async def ModelMetadata(self, request: Any) -> Any:
        about = described(self._state.model(request.name, request.version or "1"))
        return MESSAGES["ModelMetadataResponse"](**about)

    async def ModelInfer(self, request: Any) -> Any:
        service = self._state.model(request.model_name, request.model_version or "1")
        if not self._state.ready:
            raise HttpError(503, "the server is starting or ending; ask again later")
        raw = list(request.raw_input_contents)
        if raw and len(raw) != len(request.inputs):
            raise HttpError(400, f"there are {len(request.inputs)} inputs, and raw_input_contents has {len(raw)} parts")
        tensors = [(t, _tensor(t, raw[k] if raw else None)) for k, t in enumerate(request.inputs)]
        inputs = checked_inputs(service, [(t.name, t.datatype, x) for t, x in tensors])
        wanted = [o.name for o in request.outputs]
        try:
            async with asyncio.timeout(self._state.limits.request_time):
                outputs = await service.infer(inputs)
        except TimeoutError:
            raise HttpError(504, f"the answer took longer than {self._state.limits.request_time:g} s") from None
        answer = MESSAGES["ModelInferResponse"](model_name=service.name, model_version="1", id=request.id)
        for name, x in wanted_outputs(outputs, wanted):
            answer.outputs.add(name=name, datatype=datatype_of(name, x), shape=list(x.shape))
            answer.raw_output_contents.append(np.ascontiguousarray(x).tobytes())
        return answer


def _handler(state: ServerState, name: str, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    kind = MESSAGES[f"{name}Request"]

    async def answered(messages: AsyncIterator[bytes], context: Any) -> bytes:
        if name not in _OPEN:
            given = dict(context.invocation_metadata() or ()).get("authorization", "")
            if state.authorized(given if isinstance(given, str) else "") is None:
                raise HttpError(401, "the API key is missing or wrong")
        try:
            async with asyncio.timeout(state.limits.body_time):
                data = await anext(aiter(messages))
        except TimeoutError:
            raise HttpError(408, f"the request did not arrive within {state.limits.body_time:g} s") from None
        except StopAsyncIteration:
            raise HttpError(400, "there is no request") from None
        try:
            request = kind.FromString(data)
        except DecodeError:
            raise HttpError(400, "the request can't be read") from None
        return bytes((await work(request)).SerializeToString())

    def count(code: grpc.StatusCode) -> None:
        state.metrics.grpc.labels(name, code.name).inc()

    async def method(messages: AsyncIterator[bytes], context: Any) -> bytes:
        # Each answer is counted before the client has it, so that its next look at the metrics shows it.
        try:
            answer = await answered(messages, context)
        except HttpError as error:
            code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
            count(code)
            await context.abort(code, error.message[:1000])
            raise
        except asyncio.CancelledError:
            count(grpc.StatusCode.CANCELLED)
            raise
        except Exception as error:
            count(grpc.StatusCode.INTERNAL)
            await context.abort(grpc.StatusCode.INTERNAL, f"the server failed: {error!r}"[:500])
            raise
        count(grpc.StatusCode.OK)
        return answer

    # For the client a call of one message each way. So a request's message has a time limit, and is read after the key.
    return grpc.stream_unary_rpc_method_handler(method)


def make_grpc_server(
    state: ServerState, host: str, port: int, certificate: str | None, key: str | None
) -> tuple[grpc.aio.Server, int]:
    """A server that is not started yet, and its port. port 0: any free one. Call it in the event loop."""
    limits = state.limits
    server = grpc.aio.server(
        maximum_concurrent_rpcs=limits.queue + 64,
        options=(
            ("grpc.max_receive_message_length", limits.body),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", 16 << 10),
            ("grpc.server_handshake_timeout_ms", round(limits.header_time * 1000)),
        ),
    )
    servicer = InferenceServicer(state)
    names = [n for n in dir(servicer) if n[0].isupper()]
    handlers = {n: _handler(state, n, getattr(servicer, n)) for n in names}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{PACKAGE}.{SERVICE}", handlers),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if certificate and key:
            with open(certificate, "rb") as c, open(key, "rb") as k:
                credentials = grpc.ssl_server_credentials([(k.read(), c.read())])
            return server, server.add_secure_port(address, credentials)
        return server, server.add_insecure_port(address)
    except RuntimeError:
        raise OSError(f"cannot listen at {address} (gRPC)") from None
