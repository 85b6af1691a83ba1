"""Calls of functions in a model's answer: the forms in which models write them, and reading them as the text arrives.

A model has been trained on one form, which its chat template tells. The parser reads forms with JSON: marked calls (Hermes,
Qwen), a marked list (Mistral), and a bare object (Llama 3).
"""

from __future__ import annotations

import json
import random
import re
import string
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..errors import UnsupportedError


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls."""

    begin: str  #: text before a call, or before a list of calls; empty: the answer is a call or a text
    end: str  #: text after it; empty: none
    arguments: str  #: the name of a call's arguments
    listed: bool = False  #: calls are the items of one list
    skipped: str = ""  #: may stand before a bare call

    def new_id(self) -> str:
        """The name of a call. Mistral's templates want nine letters or digits."""
        if self.listed:
            return "".join(random.SystemRandom().choices(string.ascii_letters + string.digits, k=9))
        return f"call_{uuid.uuid4().hex[:24]}"


_MARKED = ToolFormat("<tool_call>", "</tool_call>", "arguments")
_LISTED = ToolFormat("[TOOL_CALLS]", "", "arguments", listed=True)
_BARE = ToolFormat("", "", "parameters", skipped="<|python_tag|>")


def tool_format(template: str) -> ToolFormat:
    """The form that a chat template asks for. Raises UnsupportedError if it has no tools, or another form."""
    if "tools" not in template:
        raise UnsupportedError("the model's chat template has no tools, so the model can't be asked to call functions")
    if "<tool_call>" in template and "<function=" not in template:
        return _MARKED
    if "[TOOL_CALLS]" in template and "[ARGS]" not in template:
        return _LISTED
    if re.search(r'\{\\?"name\\?": function name, \\?"parameters\\?"', template):
        return _BARE
    raise UnsupportedError(
        "the model's chat template wants calls of functions in a form that is not known here; known are <tool_call> with "
        "JSON, [TOOL_CALLS] with a list, and Llama 3's JSON"
    )


@dataclass(frozen=True)
class Delta:
    """What a part of an answer adds: text, or to the call with this index, whose first delta has its id and name."""

    content: str = ""
    index: int = -1
    id: str = ""
    name: str = ""
    arguments: str = ""


class _Balance:
    """Finds the end of a JSON object in a text that comes in parts."""

    def __init__(self, depth: int = 0):
        self._depth, self._string, self._escaped = depth, False, False

    def end(self, text: str, start: int = 0) -> int:
        """The place after the object's last brace; -1: it is not in this part."""
        for at in range(start, len(text)):
            c = text[at]
            if self._escaped:
                self._escaped = False
            elif self._string:
                self._escaped = c == "\\"
                self._string = c != '"'
            elif c == '"':
                self._string = True
            elif c in "{[":
                self._depth += 1
            elif c in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return at + 1
        return -1


class ToolParser:
    """Divides an answer into text and calls. What is no call of a function that was offered stays text.

    A call's arguments are passed on as they come, the way the model wrote them: they are valid JSON if a grammar has
    constrained the answer, or if the model does well.
    """

    def __init__(self, form: ToolFormat, names: Collection[str], *, parallel: bool = True):
        """names: functions that may be called. parallel: whether more than the first call is taken."""
        self._form, self._names, self._parallel = form, frozenset(names), parallel
        key = re.escape(form.arguments)
        self._head = re.compile(rf'\s*\{{\s*"name"\s*:\s*"([\w.-]{{1,64}})"\s*,\s*"{key}"\s*:\s*(?=\{{)', re.ASCII)
        self._state = "text" if form.begin else "start"
        self._buffer = ""
        self._mark = ""  # what stood before the call that is being read
        self._space = ""  # white space that is shown if text follows
        self._balance = _Balance()
        self._scanned = 0
        self._out: list[Delta] = []
        self.calls = 0

    def add(self, text: str) -> list[Delta]:
        self._buffer += text
        while getattr(self, f"_in_{self._state}")():
            pass
        found, self._out = self._out, []
        return found

    def finish(self) -> list[Delta]:
        """The rest, when the answer has ended."""
        if self._state in ("call", "list"):
            self._content(self._mark + self._buffer)
        elif self._state in ("text", "start"):
            self._content(self._buffer)
        if not self.calls and self._space:
            self._out.append(Delta(self._space))
        found, self._out = self._out, []
        return found

    def _content(self, text: str) -> None:
        text = self._space + text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._out.append(Delta(shown))

    def _go(self, state: str, used: int) -> bool:
        self._state, self._buffer = state, self._buffer[used:]
        self._scanned = 0
        if state == "call":
            self._balance = _Balance()
        return True

    # ---- states; each returns whether it has used something
    def _in_start(self) -> bool:
        """A bare call can only begin an answer."""
        text, skipped = self._buffer.lstrip(), self._form.skipped
        if not text or (len(text) < len(skipped) and skipped.startswith(text)):
            return False
        if text.startswith(skipped):
            text = text[len(skipped) :].lstrip()
            if not text:
                return False
        if text.startswith("{"):
            return self._go("call", len(self._buffer) - len(text))
        return self._go("prose", 0)

    def _in_prose(self) -> bool:
        self._content(self._buffer)
        self._buffer = ""
        return False

    def _in_done(self) -> bool:
        self._buffer = ""
        return False

    def _in_text(self) -> bool:
        begin = self._form.begin
        at = self._buffer.find(begin)
        if at >= 0:
            self._content(self._buffer[:at])
            self._mark = begin
            return self._go("list" if self._form.listed else "call", at + len(begin))
        held = next((n for n in range(len(begin) - 1, 0, -1) if self._buffer.endswith(begin[:n])), 0)
        shown = len(self._buffer) - held
        self._content(self._buffer[:shown])
        self._buffer = self._buffer[shown:]
        return False

    def _in_list(self) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        used = len(self._buffer) - len(text)
        if text[0] == "[":
            self._mark += self._buffer[: used + 1]
            return self._go("call", used + 1)
        self._content(self._mark)
        return self._go("text", 0)

    def _in_call(self) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        if text[0] != "{":
            return self._no_call(0)
        head = self._head.match(self._buffer)
        if head and head[1] in self._names:
            self._begin_call(head[1])
            self._go("arguments", head.end())
            self._balance = _Balance()
            return True
        end = self._balance.end(self._buffer, self._scanned)
        self._scanned = len(self._buffer)
        if end < 0:
            return False
        try:
            call = json.loads(self._buffer[:end])
        except (ValueError, RecursionError):
            return self._no_call(end)
        arguments = call.get(self._form.arguments, call.get("arguments", call.get("parameters")))
        if call.get("name") not in self._names or not isinstance(arguments, dict):
            return self._no_call(end)
        self._begin_call(call["name"])
        self._out.append(Delta(index=self.calls - 1, arguments=json.dumps(arguments, ensure_ascii=False)))
        return self._go("after", end)

    def _begin_call(self, name: str) -> None:
        self._space = ""
        self._out.append(Delta(index=self.calls, id=self._form.new_id(), name=name))
        self.calls += 1

    def _no_call(self, end: int) -> bool:
        self._content(self._mark + self._buffer[:end])
        return self._go("text" if self._form.begin else "prose", end)

    def _in_arguments(self) -> bool:
        return self._pass_on(self._balance.end(self._buffer), True, "rest", _Balance(1))

    def _in_rest(self) -> bool:
        """Between the arguments and the end of the call's object."""
        return self._pass_on(self._balance.end(self._buffer), False, "after", _Balance())

    def _pass_on(self, end: int, shown: bool, then: str, balance: _Balance) -> bool:
        part = self._buffer[:end] if end >= 0 else self._buffer
        if part and shown:
            self._out.append(Delta(index=self.calls - 1, arguments=part))
        if end < 0:
            self._buffer = ""
            return False
        self._go(then, end)
        self._balance = balance
        return True

    def _in_after(self) -> bool:
        """Behind a call: its end mark, or the next call of a list."""
        if not self._parallel:
            return self._go("done", 0)
        form, self._mark = self._form, ""
        text = self._buffer.lstrip()
        used = len(self._buffer) - len(text)
        if not text:
            return False
        if form.end:
            if text.startswith(form.end):
                return self._go("text", used + len(form.end))
            return False if form.end.startswith(text) else self._go("text", used)
        if form.listed:
            if text[0] == ",":
                self._mark = ","
                return self._go("call", used + 1)
            return self._go("text", used + (text[0] == "]"))
        if text[0] == ";":
            return self._go("after", used + 1)
        return self._go("call" if text[0] == "{" else "prose", used)


def read_calls(parser: ToolParser, text: str) -> tuple[str, list[dict[str, Any]]]:
    """The text and the calls of a whole answer, as a message of OpenAI's interface has them."""
    content, calls = "", list[dict[str, Any]]()
    for d in (*parser.add(text), *parser.finish()):
        content += d.content
        if d.name:
            calls.append({"id": d.id, "type": "function", "function": {"name": d.name, "arguments": ""}})
        if d.arguments:
            calls[d.index]["function"]["arguments"] += d.arguments
    return content, calls
