"""The Open Inference Protocol v2 over HTTP (KServe's, and Triton's clients), with tensors as JSON or as binary data.

Binary data follow the JSON part of a body, in the order of tensors; the header Inference-Header-Content-Length says where
they begin (Triton's extension).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

import ml_dtypes
import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from .batcher import PlainService
from .limits import HttpError, whole_number
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


def dtype_of(name: str, datatype: str) -> np.dtype[Any]:
    """Of an input; 400 if its type is not known."""
    found = _TYPES.get(datatype)
    if found is None:
        raise HttpError(400, f"the input '{name[:200]}' has the type {datatype[:40]!r}; known are {', '.join(_TYPES)}")
    return found


def datatype_of(name: str, x: Array) -> str:
    """The protocol's name of an output's type; 400 if it has none."""
    kind = _NAMES.get(x.dtype.name)
    if kind is None:
        raise HttpError(400, f"the output '{name}' is {x.dtype.name}, which the protocol does not have")
    return kind


async def _parts(http: HttpRequest) -> tuple[Any, memoryview]:
    """The JSON part and the binary data after it."""
    body = memoryview(await http.body())
    header = http.headers.get(_LENGTH)
    length = len(body)
    if header is not None:
        length = whole_number(header)
        if not 0 <= length <= len(body):
            raise HttpError(400, f"the header {_LENGTH} is {header[:40]!r}, and the body has {len(body)} bytes")
    try:
        return json.loads(bytes(body[:length])), body[length:]
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None


def _tensor(t: Tensor, binary: memoryview) -> tuple[Array, memoryview]:
    """The tensor, and the binary data after its own."""
    dtype = dtype_of(t.name, t.datatype)
    count = math.prod(t.shape)
    size = t.parameters.get("binary_data_size")
    if size is not None:
        if t.data is not None or type(size) is not int or size != count * dtype.itemsize or size > len(binary):
            raise HttpError(400, f"the input '{t.name}' of shape {t.shape} does not have {size!r} bytes of binary data")
        return np.frombuffer(binary[:size], dtype).reshape(t.shape), binary[size:]
    if set(t.parameters) - {"binary_data_size"}:
        raise HttpError(400, f"the input '{t.name}' has parameters that are not supported: {', '.join(t.parameters)}")
    if t.data is None:
        raise HttpError(400, f"the input '{t.name}' has no data")
    try:
        kinds = kinds_of_numbers(t.data)
        values = np.array(t.data)
        if dtype.kind == "u" and values.dtype.kind == "f" and kinds == {int}:
            # What numpy makes of numbers some of which only int64 holds, and some only uint64.
            values = np.array(t.data, object).astype(dtype)
        # Numbers with a fraction are refused for integer types, not truncated; bool takes neither texts nor numbers.
        if values.size and values.dtype.kind not in {"b": "b", "i": "iu", "u": "iu"}.get(dtype.kind, "iuf"):
            raise ValueError(f"found {values.dtype.name}")
        if dtype.kind in "iu" and values.size:
            limits = np.iinfo(dtype)
            if values.min() < limits.min or values.max() > limits.max:
                raise ValueError("a number is out of range")
        with np.errstate(over="ignore"):
            cast = values.astype(dtype)
        if dtype.kind not in "biu" and (np.isinf(cast) & np.isfinite(values)).any():
            raise ValueError("a number is out of range")
        values = cast
    except (ValueError, TypeError, OverflowError) as error:
        raise HttpError(400, f"the data of input '{t.name}' are not {t.datatype}: {error}"[:300]) from None
    if values.size != count:
        raise HttpError(400, f"the input '{t.name}' has {values.size} elements, and the shape {t.shape}")
    return values.reshape(t.shape), binary


def kinds_of_numbers(data: list[Any]) -> set[type]:
    """Raises ValueError for lists that hold anything but numbers, bools and such lists: of texts numpy would make an array of the
    longest one's size for each."""
    found: set[type] = set()
    lists = [data]
    while lists:
        level = lists.pop()
        kinds = set(map(type, level))
        if list in kinds:
            lists += [part for part in level if type(part) is list]
        other = kinds - {int, float, bool, list}
        if other:
            raise ValueError(f"found {other.pop().__name__}")
        found |= kinds - {list}
    return found


def _inputs(service: PlainService, body: Inference, binary: memoryview) -> dict[str, Array]:
    tensors = []
    for t in body.inputs:
        x, binary = _tensor(t, binary)
        tensors.append((t.name, t.datatype, x))
    if len(binary):
        raise HttpError(400, f"the body has {len(binary)} bytes after the last tensor")
    return checked_inputs(service, tensors)


def checked_inputs(service: PlainService, tensors: Sequence[tuple[str, str, Array]]) -> dict[str, Array]:
    """The model's inputs from names, types and values; 400 if they are not what the model takes."""
    known = {i.name: i for i in service.model.inputs}
    found: dict[str, Array] = {}
    for name, datatype, x in tensors:
        info = known.get(name)
        if info is None or name in found:
            what = "given twice" if info else "none of the model"
            raise HttpError(400, f"the input '{name[:200]}' is {what}")
        found[name] = x
        if x.dtype != info.dtype:
            raise HttpError(400, f"the input '{name}' is {datatype}; the model takes {_NAMES.get(info.dtype.name)}")
        shape = info.shape
        if shape is not None and (
            len(shape) != x.ndim or any(isinstance(d, int) and d != n for d, n in zip(shape, x.shape))
        ):
            raise HttpError(400, f"the input '{name}' has the shape {list(x.shape)}; the model takes {_shape(shape)}")
    missing = [n for n in known if n not in found]
    if missing:
        raise HttpError(400, f"the input '{missing[0]}' is missing")
    return found


def wanted_outputs(outputs: dict[str, Array], names: Sequence[str]) -> list[tuple[str, Array]]:
    """Those with these names, or all; 400 for a name that is none."""
    for name in names:
        if name not in outputs:
            raise HttpError(400, f"the model has no output '{name[:200]}'")
    return [(n, outputs[n]) for n in names or outputs]


def described(service: PlainService) -> dict[str, Any]:
    """A model's metadata."""

    def of(infos: Any) -> list[dict[str, Any]]:
        names = [(i, _NAMES.get(i.dtype.name, i.dtype.name.upper())) for i in infos]
        return [{"name": i.name, "datatype": kind, "shape": _shape(i.shape)} for i, kind in names]

    return {
        "name": service.name,
        "versions": ["1"],
        "platform": "onnx_sardonyx",
        "inputs": of(service.model.inputs),
        "outputs": of(service.model.outputs),
    }


def _shape(shape: Any) -> list[int]:
    """As the protocol has it: -1 for sizes that vary."""
    return [d if isinstance(d, int) else -1 for d in shape or ()]


def _answer(service: PlainService, body: Inference, outputs: dict[str, Array]) -> Response:
    all_binary = bool(body.parameters.get("binary_data_output"))
    wanted = body.outputs or [WantedOutput(name=n) for n in outputs]
    entries: list[dict[str, Any]] = []
    data: list[bytes] = []
    for w, (_, found) in zip(wanted, wanted_outputs(outputs, [w.name for w in wanted])):
        x = np.ascontiguousarray(found)
        kind = datatype_of(w.name, x)
        entry: dict[str, Any] = {"name": w.name, "datatype": kind, "shape": list(x.shape)}
        if w.parameters.get("binary_data", all_binary):
            data.append(x.tobytes())
            entry["parameters"] = {"binary_data_size": len(data[-1])}
        elif kind in ("BF16",) or (x.dtype.kind == "f" and not np.isfinite(x).all()):
            raise HttpError(400, f"the output '{w.name}' cannot be written as JSON; ask for binary data")
        else:
            entry["data"] = x.reshape(-1).tolist()
        entries.append(entry)
    content: dict[str, Any] = {"model_name": service.name, "model_version": "1", "outputs": entries}
    if body.id is not None:
        content["id"] = body.id
    if not data:
        return JSONResponse(content)
    head = json.dumps(content, separators=(",", ":")).encode()
    return Response(b"".join((head, *data)), media_type="application/octet-stream", headers={_LENGTH: str(len(head))})


def inference_routes(state: ServerState) -> APIRouter:
    """GET /v2 and /v2/health, GET /v2/models/NAME and /ready, POST /v2/models/NAME/infer; each also with /versions/1."""
    router = APIRouter(prefix="/v2")

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
        return described(state.model(name, version))

    @router.get("/models/{name}/ready")
    @router.get("/models/{name}/versions/{version}/ready")
    async def model_ready(name: str, version: str = "1") -> Any:
        return {"name": state.model(name, version).name, "ready": True}

    @router.post("/models/{name}/infer")
    @router.post("/models/{name}/versions/{version}/infer")
    async def infer(http: HttpRequest, name: str, version: str = "1") -> Response:
        found = state.model(name, version)
        content, binary = await _parts(http)
        body: Inference = checked(Inference, content)
        inputs = _inputs(found, body, binary)
        return _answer(found, body, await state.while_connected(http, found.infer(inputs)))

    return router
