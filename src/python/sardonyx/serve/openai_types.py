"""Request bodies of OpenAI's API, extended with options of Sardonyx's engine. Unknown fields are refused (422), so that no
option that changes the answer is ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Penalty = Annotated[float, Field(ge=-2, le=2)]
Text = Annotated[str, Field(max_length=1 << 22)]
Stop = Text | Annotated[list[Text], Field(max_length=16)] | None


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, content: Any) -> Any:
        """Clients write null for options that they do not set, also for those that do not exist here."""
        if not isinstance(content, dict):
            return content
        known = {f.alias or name for name, f in cls.model_fields.items()}
        return {k: v for k, v in content.items() if v is not None or k in known}


class StreamOptions(_Body):
    include_usage: bool = False
    include_obfuscation: bool = False  # never added: streams are not padded


class _Generation(_Body):
    """What both kinds of requests have."""

    model: Text
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=1024)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Stop = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    user: Text | None = None  # who asks is told by the key alone
    metadata: dict[str, str] | None = None  # nothing is stored
    store: Literal[False] | None = None
    # Sardonyx's own
    top_k: Annotated[int, Field(ge=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[int], Field(max_length=64)] | None = None
    priority: Annotated[int, Field(ge=-100, le=0)] = 0  # a client can be less urgent, not more
    regex: Text | None = None
    grammar: Text | None = None


class JsonSchema(_Body):
    name: Text
    description: Text | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(_Body):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Completion(_Generation):
    """POST /v1/completions."""

    prompt: Text | list[Text] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Literal[False] | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    response_format: ResponseFormat | None = None


class ContentPart(_Body):
    type: Literal["text"]
    text: Text


FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class FunctionCall(_Body):
    name: FunctionName
    arguments: Text  # JSON


class ToolCall(_Body):
    id: Annotated[str, Field(min_length=1, max_length=256)]
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None  # of a stream's parts, which clients put together


class ChatMessage(_Body):
    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: Text | list[ContentPart] | None = None  # only messages with tool_calls may have none
    name: Text | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    refusal: None = None


class FunctionTool(_Body):
    name: FunctionName
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Body):
    type: Literal["function"]
    function: FunctionTool


class ChosenFunction(_Body):
    name: FunctionName


class ToolChoice(_Body):
    type: Literal["function"]
    function: ChosenFunction


class Chat(_Generation):
    """POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(min_length=1, max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool = True
