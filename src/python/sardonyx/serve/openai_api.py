"""The OpenAI-compatible API for language models: chat and text completions, whole or as server-sent events, and the list of
models."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..errors import Error
from ..llm import EndEvent, Engine, Request, TokenEvent
from .limits import HttpError, http_error
from .openai_types import Chat, Completion, _Generation
from .state import LanguageService, ServerState, client_of
from .tool_calls import Delta, read_calls
from .tool_use import ToolUse, template_messages, tool_use

_REASONS = {"end": "stop", "stop": "stop", "length": "length"}


async def json_body(http: HttpRequest) -> Any:
    """The body as JSON; 400 if it is none."""
    try:
        return json.loads(await http.body())
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None


def checked(kind: type[BaseModel], content: Any) -> Any:
    """The body's content as `kind`; 422 with the field that does not fit."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        # Of the first field. If it can have one of several types, there is an error for each: the one that is meant goes
        # deepest, or is not about the type.
        found = [(_place(content, e), e) for e in errors if e["loc"][:1] == errors[0]["loc"][:1]]
        place, first = max(found, key=lambda f: (len(f[0]), not f[1]["type"].endswith(("_type", "_parsing"))))
        where = ".".join(map(str, place)) or "the body"
        what = "is not supported" if first["type"] == "extra_forbidden" else first["msg"]
        raise HttpError(422, f"{where}: {what}"[:500], param=where) from None


def _place(content: Any, error: Any) -> list[int | str]:
    """Where in the body it is: its place without the names of types that pydantic has tried."""
    place: list[int | str] = []
    for k, part in enumerate(error["loc"]):
        if isinstance(content, dict):
            if part not in content and (error["type"] != "missing" or k + 1 < len(error["loc"])):
                continue
            content = content.get(part)
        elif isinstance(content, list) and isinstance(part, int):
            content = content[part] if part < len(content) else None
        else:
            continue
        place.append(part)
    return place


@dataclass
class _Job:
    """A request of HTTP: its engine's requests, one for each choice."""

    service: LanguageService
    choices: list[Request]
    n: int  #: choices of each prompt
    chat: bool
    top: int | None  #: log-probabilities to show
    usage: bool  #: in the stream's last chunk
    tools: ToolUse | None
    id: str
    created: int

    @property
    def engine(self) -> Engine:
        return self.service.engine

    def cancel(self) -> None:
        for r in self.choices:
            self.engine.cancel(r)

    def head(self, chunk: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if chunk else "chat.completion") if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.service.name}

    def counts(self) -> dict[str, Any]:
        prompt = sum(r.prompt_tokens for r in self.choices[:: self.n])
        new = sum(len(r.answer) for r in self.choices)
        kept = sum(r.kept for r in self.choices[:: self.n])
        return {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
            "prompt_tokens_details": {"cached_tokens": kept},
        }


def _options(body: _Generation, service: LanguageService) -> dict[str, Any]:
    """The engine's options."""
    options: dict[str, Any] = {
        name: getattr(body, name)
        for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "ignore_eos")
        if getattr(body, name) is not None
    }
    if options.get("temperature") == 0:
        options["do_sample"] = False
    elif body.temperature is not None or body.top_p is not None or body.seed is not None:
        options["do_sample"] = True
    if options.get("do_sample") and "top_k" not in options:
        options["top_k"] = 0  # OpenAI's interface has no such filter
    options["presence_penalty"] = body.presence_penalty or 0.0
    options["frequency_penalty"] = body.frequency_penalty or 0.0
    if body.logit_bias:
        try:
            options["logit_bias"] = {int(token): bias for token, bias in body.logit_bias.items()}
        except ValueError:
            raise HttpError(422, "logit_bias: its names must be tokens, as numbers", param="logit_bias") from None
    if body.stop:
        stops = [body.stop] if isinstance(body.stop, str) else body.stop
        options["stop"] = tuple(s for s in stops if s)
    if body.stop_token_ids:
        options["stop_tokens"] = tuple(body.stop_token_ids)
    options["priority"] = body.priority
    return options


def _constraint(body: Any, service: LanguageService, tools: ToolUse | None) -> Callable[[], Any] | None:
    """Makes the constraint of a choice, if the body asks for one."""
    asked: list[tuple[str, Any]] = []
    grammar = tools.grammar(service) if tools else None
    if grammar is not None:
        asked.append(("lark", grammar))
    if body.response_format and body.response_format.type == "json_object":
        asked.append(("json_object", None))
    elif body.response_format and body.response_format.type == "json_schema":
        if body.response_format.json_schema is None:
            raise HttpError(422, "response_format: json_schema is missing", param="response_format")
        asked.append(("json_schema", body.response_format.json_schema.schema_))
    if body.regex is not None:
        asked.append(("regex", body.regex))
    if body.grammar is not None:
        asked.append(("lark", body.grammar))
    if len(asked) > 1:
        raise HttpError(400, "response_format, regex and grammar exclude each other")
    return (lambda: service.constraints().make(*asked[0])) if asked else None


def _max_tokens(asked: int | None, default: int, state: ServerState) -> int:
    most = state.limits.tokens
    if asked is None:
        return min(default, most) if most else default
    if most and asked > most:
        raise HttpError(400, f"max_tokens is {asked}, and the server's limit is {most}", param="max_tokens")
    return asked


def _prompts(prompt: Any) -> list[Any]:
    """Each one text or list of tokens."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise HttpError(400, "the prompt is empty", param="prompt")
    return [prompt] if isinstance(prompt[0], int) else list(prompt)


async def _submit(
    http: HttpRequest,
    state: ServerState,
    body: Any,
    prompts: list[Any],
    options: dict[str, Any],
    top: int | None,
    tools: ToolUse | None = None,
) -> _Job:
    """Queues all choices, or none."""
    service = state.language(body.model)
    chat = isinstance(body, Chat)
    if len(prompts) * body.n > state.limits.choices:
        raise HttpError(
            400, f"{len(prompts) * body.n} answers are asked for, and the server's limit is {state.limits.choices}"
        )
    constraint = _constraint(body, service, tools)
    job = _Job(
        service=service,
        choices=[],
        n=body.n,
        chat=chat,
        top=top,
        usage=bool(body.stream_options and body.stream_options.include_usage),
        tools=tools,
        id=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
        created=int(time.time()),
    )

    def queue() -> None:
        try:
            for prompt in prompts:
                tokens = service.engine.chat_tokens(prompt, tools.described) if tools else prompt
                for k in range(body.n):
                    own = dict(options)
                    seed = body.seed if body.seed is not None else http.scope.get("sardonyx.seed")
                    if seed is not None:
                        own["seed"] = (seed + k) % (1 << 64)
                    if constraint:
                        own["constraint"] = constraint()
                    job.choices.append(
                        service.engine.submit(
                            tokens, client=client_of(http), adapter=service.adapter, logprobs=top, **own
                        )
                    )
        except BaseException:
            job.cancel()
            raise

    try:
        await asyncio.to_thread(queue)  # long texts take time to become tokens
    except Error as error:
        raise http_error(error) from None
    except asyncio.CancelledError:
        job.cancel()
        raise
    return job


async def _answer(http: HttpRequest, state: ServerState, job: _Job, stream: bool) -> Response:
    if stream:
        return StreamingResponse(
            _chunks(state, job), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
    try:
        events = await state.while_connected(http, asyncio.gather(*[_all(r) for r in job.choices]))
    finally:
        job.cancel()
        for r in job.choices:
            state.metrics.ended(job.service.name, r)
    choices = []
    for index, (request, its) in enumerate(zip(job.choices, events)):
        if request.error:
            raise http_error(request.error)
        choice: dict[str, Any] = {"index": index, "finish_reason": _REASONS.get(request.finished, "length")}
        choice["logprobs"] = _logprobs(job, its) if job.top is not None else None
        if job.tools:
            text, calls = read_calls(job.tools.parser(), request.text)
            choice["message"] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
            if calls:
                choice["message"]["tool_calls"] = calls
                choice["finish_reason"] = _after_calls(choice["finish_reason"])
        elif job.chat:
            choice["message"] = {"role": "assistant", "content": request.text, "refusal": None}
        else:
            choice["text"] = request.text
        choices.append(choice)
    return JSONResponse({**job.head(False), "choices": choices, "usage": job.counts()})


def _after_calls(reason: str) -> str:
    return "tool_calls" if reason == "stop" else reason


async def _all(request: Request) -> list[TokenEvent]:
    return [event for event in await request.ended() if isinstance(event, TokenEvent)]


async def _merged(state: ServerState, job: _Job) -> AsyncIterator[tuple[int, list[TokenEvent | EndEvent]]]:
    """Events of all choices, as they come; each time of one choice."""
    if len(job.choices) == 1:
        async for events in job.choices[0].batches(state.pause):
            yield 0, events
        return
    arrived: asyncio.Queue[tuple[int, list[TokenEvent | EndEvent]]] = asyncio.Queue()

    async def pump(index: int) -> None:
        async for events in job.choices[index].batches(state.pause):
            arrived.put_nowait((index, events))

    pumps = [asyncio.create_task(pump(k)) for k in range(len(job.choices))]
    try:
        left = len(pumps)
        while left:
            index, events = await arrived.get()
            left -= isinstance(events[-1], EndEvent)
            yield index, events
    finally:
        for p in pumps:
            p.cancel()


def _line(content: Any) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _chunks(state: ServerState, job: _Job) -> AsyncIterator[str]:
    """The stream. When the client disconnects, the request is closed here, and its memory is free before the next step."""
    head = job.head(True)
    if job.usage:
        head["usage"] = None

    parsers = [job.tools.parser() for _ in job.choices] if job.tools else []

    # What is the same in every chunk of text, with a place for the text.
    place = "\0"
    plain: dict[str, Any] = {"index": 0, "finish_reason": None, "logprobs": None}
    plain |= {"delta": {"content": place}} if job.chat else {"text": place}
    before, _, after = _line({**head, "choices": [plain]}).partition(json.dumps(place))

    def chunk(index: int, text: str, reason: str | None, events: list[TokenEvent]) -> str:
        if index == 0 and not reason and job.top is None:
            return before + json.dumps(text, ensure_ascii=False) + after
        choice: dict[str, Any] = {"index": index, "finish_reason": reason}
        choice["logprobs"] = _logprobs(job, events) if job.top is not None and events else None
        if job.chat:
            choice["delta"] = {"content": text} if text or not reason else {}
        else:
            choice["text"] = text
        return _line({**head, "choices": [choice]})

    def parsed(index: int, deltas: list[Delta], events: list[TokenEvent]) -> str:
        """Chunks for what the answer's parser has found; the first one has the log-probabilities."""
        lines = ""
        for delta in deltas or ([Delta()] if job.top is not None else []):
            choice = {"index": index, "finish_reason": None, "delta": _delta(delta)}
            choice["logprobs"] = _logprobs(job, events) if job.top is not None and events else None
            lines, events = lines + _line({**head, "choices": [choice]}), []
        return lines

    def lines(index: int, events: list[TokenEvent | EndEvent]) -> str:
        """Of events of a choice that come together: tokens in one chunk, and the end."""
        last = events[-1]
        tokens = [e for e in events if isinstance(e, TokenEvent)]
        text = "".join(e.text for e in tokens)
        if parsers:
            found, reason = "", None
            if tokens:
                deltas = parsers[index].add(text)
                if deltas or job.top is not None:
                    found = parsed(index, deltas, tokens)
            if isinstance(last, EndEvent) and not last.error:
                for d in (*parsers[index].add(last.text), *parsers[index].finish()):
                    found += parsed(index, [d], [])
                reason = _REASONS.get(last.finished, "length")
                found += chunk(index, "", _after_calls(reason) if parsers[index].calls else reason, [])
            return found
        found = chunk(index, text, None, tokens) if text or (tokens and job.top is not None) else ""
        if isinstance(last, EndEvent) and not last.error:
            if last.text:
                found += chunk(index, last.text, None, [])
            found += chunk(index, "", _REASONS.get(last.finished, "length"), [])
        return found

    state.streams += len(job.choices)
    try:
        if job.chat:
            for index in range(len(job.choices)):
                delta = {"role": "assistant", "content": ""}
                yield _line({**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]})
        async with asyncio.timeout(state.limits.request_time):
            async for index, events in _merged(state, job):
                found = lines(index, events)
                if found:
                    yield found
                last = events[-1]
                if isinstance(last, EndEvent) and last.error:
                    yield _line(http_error(last.error).body())
                    return
        if job.usage:
            yield _line({**head, "choices": [], "usage": job.counts()})
        yield "data: [DONE]\n\n"
    except TimeoutError:
        yield _line(HttpError(504, f"the answer took longer than {state.limits.request_time:g} s").body())
    finally:
        state.streams -= len(job.choices)
        job.cancel()
        for r in job.choices:
            state.metrics.ended(job.service.name, r)


def _delta(d: Delta) -> dict[str, Any]:
    if d.index < 0:
        return {"content": d.content}
    call: dict[str, Any] = {"index": d.index, "function": {"arguments": d.arguments}}
    if d.name:
        call |= {"id": d.id, "type": "function", "function": {"name": d.name, "arguments": d.arguments}}
    return {"tool_calls": [call]}


def _logprobs(job: _Job, events: list[TokenEvent]) -> dict[str, Any]:
    def text(token: int) -> str:
        return str(job.engine.tokenizer.decode([token], skip_special_tokens=False))

    if not job.chat:
        return {
            "tokens": [text(e.token) for e in events],
            "token_logprobs": [e.logprob for e in events],
            "top_logprobs": [{text(t): p for t, p in e.top} for e in events] if job.top else None,
            "text_offset": None,
        }

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        shown = text(token)
        known = "\ufffd" not in shown  # a part of a character has no text of its own
        return {"token": shown, "logprob": logprob, "bytes": list(shown.encode()) if known else None}

    content = [{**entry(e.token, e.logprob), "top_logprobs": [entry(t, p) for t, p in e.top]} for e in events]
    return {"content": content, "refusal": None}


def openai_routes(state: ServerState) -> APIRouter:
    """POST /v1/chat/completions, POST /v1/completions, GET /v1/models and /v1/models/NAME."""
    router = APIRouter(prefix="/v1")

    def described(service: Any) -> dict[str, Any]:
        return {"id": service.name, "object": "model", "created": state.started, "owned_by": "sardonyx"}

    @router.get("/models")
    async def models() -> Any:
        return {"object": "list", "data": [described(s) for s in (*state.languages.values(), *state.encoders.values())]}

    @router.get("/models/{name:path}")
    async def model(name: str) -> Any:
        return described(state.encoders.get(name) or state.language(name))

    @router.post("/chat/completions")
    async def chat(http: HttpRequest) -> Response:
        body: Chat = checked(Chat, await json_body(http))
        service = state.language(body.model)
        if body.top_logprobs and not body.logprobs:
            raise HttpError(400, "top_logprobs needs logprobs", param="top_logprobs")
        asked = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
        messages = template_messages(body.messages)
        tools = tool_use(body, service)
        options = _options(body, service)
        if tools:
            options["shown_tokens"] = tools.shown(service)
            options["stop"] = (*options.get("stop", ()), *tools.stops())
        options["max_new_tokens"] = _max_tokens(asked, service.engine.context, state)
        top = (body.top_logprobs or 0) if body.logprobs else None
        job = await _submit(http, state, body, [messages], options, top, tools)
        return await _answer(http, state, job, body.stream)

    @router.post("/completions")
    async def completions(http: HttpRequest) -> Response:
        body: Completion = checked(Completion, await json_body(http))
        service = state.language(body.model)
        if body.best_of is not None and body.best_of != body.n:
            raise HttpError(400, "best_of other than n is not supported", param="best_of")
        options = _options(body, service)
        options["max_new_tokens"] = _max_tokens(body.max_tokens, 16, state)
        job = await _submit(http, state, body, _prompts(body.prompt), options, body.logprobs)
        return await _answer(http, state, job, body.stream)

    return router
