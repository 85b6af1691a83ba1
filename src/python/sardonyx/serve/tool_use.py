"""What a chat request says about functions: checked, and as the engine's options."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..errors import Error
from .limits import HttpError, http_error
from .openai_types import Chat, ChatMessage
from .state import LanguageService
from .tool_calls import ToolFormat, ToolParser, tool_format
from .tool_grammar import Function, tool_grammar


def template_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """The messages as chat templates take them: texts, and arguments of calls as objects."""
    found = []
    for at, m in enumerate(messages):
        if m.content is None and not m.tool_calls:
            raise HttpError(422, f"messages.{at}.content: is missing", param=f"messages.{at}.content")
        parts = m.content or ""
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        message: dict[str, Any] = {"role": m.role, "content": text}
        if m.name:
            message["name"] = m.name
        if m.tool_call_id:
            message["tool_call_id"] = m.tool_call_id
        if m.tool_calls:
            message["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {
                        "name": c.function.name,
                        "arguments": _object(c.function.arguments, f"messages.{at}.tool_calls.{k}"),
                    },
                }
                for k, c in enumerate(m.tool_calls)
            ]
        found.append(message)
    return found


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HttpError(400, f"{where}: the arguments are no JSON object", param=where)
    return found


@dataclass(frozen=True)
class ToolUse:
    """The functions of a request, and how its answers may call them."""

    form: ToolFormat
    functions: list[Function]
    described: list[dict[str, Any]]  #: for the chat template
    needed: bool  #: the answer must be calls
    parallel: bool

    def parser(self) -> ToolParser:
        """For one answer."""
        return ToolParser(self.form, [f.name for f in self.functions], parallel=self.parallel)

    def grammar(self, service: LanguageService) -> str | None:
        """A grammar, if the answer is bound by one."""
        if not self.needed and not any(f.strict for f in self.functions):
            return None
        special = service.engine.special_token
        return tool_grammar(self.form, self.functions, special, needed=self.needed, parallel=self.parallel)

    def stops(self) -> tuple[str, ...]:
        """Texts after which nothing of the answer counts."""
        return (self.form.end,) if self.form.end and not self.parallel else ()

    def shown(self, service: LanguageService) -> tuple[int, ...]:
        """Special tokens that mark calls."""
        marks = (self.form.begin, self.form.end, self.form.skipped)
        return tuple(t for t in map(service.engine.special_token, filter(None, marks)) if t is not None)


def tool_use(body: Chat, service: LanguageService) -> ToolUse | None:
    """None: the answer is text alone. Raises HttpError."""
    choice = body.tool_choice
    if body.tools is None:
        if choice is not None and choice != "none":
            raise HttpError(400, "tool_choice needs tools", param="tool_choice")
        return None
    names = [t.function.name for t in body.tools]
    if len(set(names)) < len(names):
        raise HttpError(400, "two tools have the same name", param="tools")
    if choice == "none":
        return None
    offered = body.tools
    if choice is not None and not isinstance(choice, str):
        offered = [t for t in body.tools if t.function.name == choice.function.name]
        if not offered:
            raise HttpError(400, f"tool_choice: there is no tool '{choice.function.name}'", param="tool_choice")
    if body.regex or body.grammar or (body.response_format and body.response_format.type != "text"):
        raise HttpError(400, "response_format, regex and grammar exclude tools; tool_choice 'none' allows them")
    try:
        form = tool_format(service.engine.chat_template)
    except Error as error:
        raise http_error(error) from None
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    functions = [
        Function(t.function.name, nothing if t.function.parameters is None else t.function.parameters, bool(t.function.strict))
        for t in offered
    ]  # fmt: skip
    described = [t.model_dump(exclude_none=True) for t in body.tools]
    for t in described:
        t["function"].pop("strict", None)
        t["function"].setdefault("description", "")
        t["function"].setdefault("parameters", nothing)
    return ToolUse(
        form=form,
        functions=functions,
        described=described,
        needed=choice not in (None, "auto"),
        parallel=body.parallel_tool_calls and not (choice is not None and not isinstance(choice, str)),
    )
