"""The Open Inference Protocol v2 over HTTP (KServe's, and Triton's clients), with tensors as JSON or as binary data.

Binary data follow the JSON part of a body, in the order of tensors; the header Inference-Header-Content-Length says where
they begin (Triton's extension).
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import ml_dtypes
import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from .batcher import PlainService
from .limits import HttpError
from .openai_api import checked
from .state import ServerState

Array = np.ndarray[Any, Any]
_LENGTH = "Inference-Header-Content-Length"
_NAMES = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
}
_TYPES = {name: np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for dtype, name in _NAMES.items()}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Tensor(_Body):
    name: Annotated[str, Field(max_length=1024)]
    shape: Annotated[list[Annotated[int, Field(ge=0, lt=1 << 40)]], Field(max_length=32)]
    datatype: str
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class WantedOutput(_Body):
    name: Annotated[str, Field(max_length=1024)]
    parameters: dict[str, Any] = {}


class Inference(_Body):
    """POST /v2/models/NAME/infer."""

    id: Annotated[str, Field(max_length=1024)] | None = None
    parameters: dict[str, Any] = {}
    inputs: Annotated[list[Tensor], Field(max_length=1024)]
    outputs: Annotated[list[WantedOutput], Field(max_length=1024)] | None = None


async def _parts(http: HttpRequest) -> tuple[Any, memoryview]:
    """The JSON part and the binary data after it."""
    body = memoryview(await http.body())
    header = http.headers.get(_LENGTH)
    length = len(body)
    if header is not None:
        if not header.isdigit() or int(header) > len(body):
            raise HttpError(400, f"the header {_LENGTH} is {header[:40]!r}, and the body has {len(body)} bytes")
        length = int(header)
    try:
        return json.loads(bytes(body[:length])), body[length:]
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None


def _tensor(t: Tensor, binary: memoryview) -> tuple[Array, memoryview]:
    """The tensor, and the binary data after its own."""
    dtype = _TYPES.get(t.datatype)
    if dtype is None:
        raise HttpError(400, f"the input '{t.name}' has the type {t.datatype[:40]!r}; known are {', '.join(_TYPES)}")
    count = math.prod(t.shape)
    size = t.parameters.get("binary_data_size")
    if size is not None:
        if t.data is not None or size != count * dtype.itemsize or size > len(binary):
            raise HttpError(400, f"the input '{t.name}' of shape {t.shape} does not have {size!r} bytes of binary data")
        return np.frombuffer(binary[:size], dtype).reshape(t.shape), binary[size:]
    if set(t.parameters) - {"binary_data_size"}:
        raise HttpError(400, f"the input '{t.name}' has parameters that are not supported: {', '.join(t.parameters)}")
    if t.data is None:
        raise HttpError(400, f"the input '{t.name}' has no data")
    try:
        values = np.array(t.data)
        # Numbers with a fraction are not cut off, texts and numbers are no truth values.
        if values.size and values.dtype.kind not in {"b": "b", "i": "iu", "u": "iu"}.get(dtype.kind, "iuf"):
            raise ValueError(f"found {values.dtype.name}")
        if dtype.kind in "iu" and values.size:
            limits = np.iinfo(dtype)
            if values.min() < limits.min or values.max() > limits.max:
                raise ValueError("a number is out of range")
        values = values.astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise HttpError(400, f"the data of input '{t.name}' are not {t.datatype}: {error}"[:300]) from None
    if values.size != count:
        raise HttpError(400, f"the input '{t.name}' has {values.size} elements, and the shape {t.shape}")
    return values.reshape(t.shape), binary


def _inputs(service: PlainService, body: Inference, binary: memoryview) -> dict[str, Array]:
    known = {i.name: i for i in service.model.inputs}
    found: dict[str, Array] = {}
    for t in body.inputs:
        info = known.get(t.name)
        if info is None or t.name in found:
            raise HttpError(400, f"the input '{t.name}' is {'given twice' if info else 'none of the model'}")
        found[t.name], binary = _tensor(t, binary)
        if found[t.name].dtype != info.dtype:
            raise HttpError(400, f"the input '{t.name}' is {t.datatype}; the model takes {_NAMES.get(info.dtype.name)}")
        shape = info.shape
        if shape is not None and (
            len(shape) != len(t.shape) or any(isinstance(d, int) and d != n for d, n in zip(shape, t.shape))
        ):
            raise HttpError(400, f"the input '{t.name}' has the shape {t.shape}; the model takes {_shape(shape)}")
    missing = [n for n in known if n not in found]
    if missing:
        raise HttpError(400, f"the input '{missing[0]}' is missing")
    if len(binary):
        raise HttpError(400, f"the body has {len(binary)} bytes after the last tensor")
    return found


def _shape(shape: Any) -> list[int]:
    """As the protocol has it: -1 for sizes that vary."""
    return [d if isinstance(d, int) else -1 for d in shape or ()]


def _answer(service: PlainService, body: Inference, outputs: dict[str, Array]) -> Response:
    all_binary = bool(body.parameters.get("binary_data_output"))
    wanted = body.outputs or [WantedOutput(name=n) for n in outputs]
    described: list[dict[str, Any]] = []
    data: list[bytes] = []
    for w in wanted:
        if w.name not in outputs:
            raise HttpError(400, f"the model has no output '{w.name}'")
        x = np.ascontiguousarray(outputs[w.name])
        kind = _NAMES.get(x.dtype.name)
        if kind is None:
            raise HttpError(400, f"the output '{w.name}' is {x.dtype.name}, which the protocol does not have")
        entry: dict[str, Any] = {"name": w.name, "datatype": kind, "shape": list(x.shape)}
        if w.parameters.get("binary_data", all_binary):
            data.append(x.tobytes())
            entry["parameters"] = {"binary_data_size": len(data[-1])}
        elif kind in ("BF16",) or (x.dtype.kind == "f" and not np.isfinite(x).all()):
            raise HttpError(400, f"the output '{w.name}' cannot be written as JSON; ask for binary data")
        else:
            entry["data"] = x.reshape(-1).tolist()
        described.append(entry)
    content: dict[str, Any] = {"model_name": service.name, "model_version": "1", "outputs": described}
    if body.id is not None:
        content["id"] = body.id
    if not data:
        return JSONResponse(content)
    head = json.dumps(content, separators=(",", ":")).encode()
    return Response(b"".join((head, *data)), media_type="application/octet-stream", headers={_LENGTH: str(len(head))})


def inference_routes(state: ServerState) -> APIRouter:
    """GET /v2 and /v2/health, GET /v2/models/NAME and /ready, POST /v2/models/NAME/infer; each also with /versions/1."""
    router = APIRouter(prefix="/v2")

    def service(name: str, version: str = "1") -> PlainService:
        found = state.plain.get(name)
        if found is None or version != "1":
            raise HttpError(404, f"there is no model '{name[:200]}' of version '{version[:20]}'")
        return found

    @router.get("")
    async def server() -> Any:
        from .. import __version__

        return {"name": "sardonyx", "version": __version__, "extensions": ["binary_tensor_data"]}

    @router.get("/health/live")
    async def live() -> Any:
        return {"live": True}

    @router.get("/health/ready")
    async def ready() -> Response:
        return JSONResponse({"ready": state.ready}, 200 if state.ready else 503)

    @router.get("/models/{name}")
    @router.get("/models/{name}/versions/{version}")
    async def metadata(name: str, version: str = "1") -> Any:
        found = service(name, version)

        def described(infos: Any) -> list[dict[str, Any]]:
            names = [(i, _NAMES.get(i.dtype.name, i.dtype.name.upper())) for i in infos]
            return [{"name": i.name, "datatype": kind, "shape": _shape(i.shape)} for i, kind in names]

        return {
            "name": name,
            "versions": ["1"],
            "platform": "onnx_sardonyx",
            "inputs": described(found.model.inputs),
            "outputs": described(found.model.outputs),
        }

    @router.get("/models/{name}/ready")
    @router.get("/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str = "1") -> Any:
        return {"name": service(name, version).name, "ready": True}

    @router.post("/models/{name}/infer")
    @router.post("/models/{name}/versions/{version}/infer")
    async def infer(http: HttpRequest, name: str, version: str = "1") -> Response:
        found = service(name, version)
        content, binary = await _parts(http)
        body: Inference = checked(Inference, content)
        inputs = _inputs(found, body, binary)
        return _answer(found, body, await state.while_connected(http, found.infer(inputs)))

    return router
