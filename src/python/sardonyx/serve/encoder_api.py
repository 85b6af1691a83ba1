"""Encoders of texts: POST /v1/embeddings (OpenAI's), and POST /v1/rerank (as Jina's and Cohere's clients ask)."""

from __future__ import annotations

import asyncio
import base64
import uuid
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ..errors import Error
from .encoder_service import EncoderService
from .limits import HttpError, Limits, http_error
from .openai_api import checked, json_body
from .openai_types import Text, _Body
from .state import ServerState


class Embeddings(_Body):
    """POST /v1/embeddings."""

    model: Text
    input: Text | list[Text] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    user: Text | None = None  # who asks is told by the key alone
    truncate: bool = False  # Sardonyx's own: cuts texts that are too long


class Document(_Body):
    text: Text


class Rerank(_Body):
    """POST /v1/rerank."""

    model: Text
    query: Annotated[Text, Field(min_length=1)]
    documents: Annotated[list[Text | Document], Field(min_length=1)]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool = False
    truncate: bool = False  # Sardonyx's own


def _texts(given: Any, limits: Limits) -> list[Any]:
    """Each one text or list of tokens."""
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    if not given:
        raise HttpError(400, "the input is empty", param="input")
    if len(given) > limits.texts:
        raise HttpError(400, f"{len(given)} texts are given, and the server's limit is {limits.texts}", param="input")
    return list(given)


def encoder_routes(state: ServerState) -> APIRouter:
    """POST /v1/embeddings and /v1/rerank."""
    router = APIRouter(prefix="/v1")

    def service(name: str, pairs: bool) -> EncoderService:
        found = state.encoders.get(name)
        if found is None or found.encoder.pairs != pairs:
            what = "that scores pairs of texts" if pairs else "that gives embeddings"
            raise HttpError(404, f"there is no model '{name[:200]}' {what}", param="model", code="model_not_found")
        return found

    @router.post("/embeddings")
    async def embeddings(http: HttpRequest) -> Response:
        body: Embeddings = checked(Embeddings, await json_body(http))
        own = service(body.model, False)
        texts = _texts(body.input, state.limits)
        try:
            dimensions = own.encoder.check_dimensions(body.dimensions)
        except Error as error:
            raise http_error(error) from None
        work = own.run(texts, truncate=body.truncate, dimensions=dimensions)
        found, tokens = await state.while_connected(http, work)
        if not np.isfinite(found).all():
            raise HttpError(500, "the model gives embeddings that are no finite numbers")
        packed = body.encoding_format == "base64"

        def written() -> Response:
            rows = [base64.b64encode(r.astype("<f4").tobytes()).decode() if packed else r.tolist() for r in found]
            data = [{"object": "embedding", "index": k, "embedding": row} for k, row in enumerate(rows)]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            return JSONResponse({"object": "list", "data": data, "model": own.name, "usage": usage})

        return await asyncio.to_thread(written)  # many numbers take time to become text

    @router.post("/rerank")
    async def rerank(http: HttpRequest) -> Response:
        body: Rerank = checked(Rerank, await json_body(http))
        own = service(body.model, True)
        documents = [d if isinstance(d, str) else d.text for d in body.documents]
        _texts(documents, state.limits)
        work = own.run([(body.query, d) for d in documents], truncate=body.truncate)
        scores, tokens = await state.while_connected(http, work)
        if not np.isfinite(scores).all():
            raise HttpError(500, "the model gives scores that are no finite numbers")
        results: list[dict[str, Any]] = []
        for k in np.argsort(-scores, kind="stable")[: body.top_n].tolist():
            results.append({"index": k, "relevance_score": float(scores[k])})
            if body.return_documents:
                results[-1]["document"] = {"text": documents[k]}
        usage = {"total_tokens": tokens}
        return JSONResponse({"id": f"rerank-{uuid.uuid4().hex}", "model": own.name, "results": results, "usage": usage})

    return router
