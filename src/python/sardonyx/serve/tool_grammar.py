"""Grammars for answers that call functions, in llguidance's dialect of Lark."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .tool_calls import ToolFormat

# Some white space may stand anywhere, but not so much that an answer has nothing else.
_SPACES = {"whitespace_pattern": r"[\x20\x0A]{0,16}"}


@dataclass(frozen=True)
class Function:
    """A function that the model may call."""

    name: str
    parameters: dict[str, Any]  #: a JSON schema
    strict: bool = False  #: whether the arguments must follow it also where the model is free to call


def tool_grammar(
    form: ToolFormat,
    functions: Sequence[Function],
    special: Callable[[str], int | None],
    *,
    needed: bool,
    parallel: bool,
) -> str:
    """A grammar of answers with calls of these functions.

    special: the number of a special token with this text, if the model has one. needed: the answer is nothing but calls;
    otherwise it may have text too, and only arguments of strict functions follow their schemas. parallel: more than one
    call is allowed.
    """

    def mark(text: str) -> str:
        token = special(text)
        return json.dumps(text) if token is None else f"<[{token}]>"

    rules = []
    for k, f in enumerate(functions):
        schema = f.parameters if needed or f.strict else {"type": "object"}
        rules.append(f'object_{k}: {json.dumps(_head(form, f.name))} arguments_{k} "}}"')
        rules.append(f"arguments_{k}: %json {json.dumps({**schema, 'x-guidance': _SPACES})}")
    rules.append("object: " + " | ".join(f"object_{k}" for k in range(len(functions))))
    more = ' (", " object)*' if parallel else ""
    rules.append("TEXT: /(.|\\n)*/")
    if not form.begin:
        rules += ["PROSE: /[^ \\n{](.|\\n)*/", "start: object" + ("" if needed else ' | PROSE | ""')]
        return _joined(rules)
    body = f'" "? "[" object{more} "]"' if form.listed else f'"\\n" object "\\n" {mark(form.end)}'
    repeated = parallel and not form.listed
    if needed:
        rules += [f"call: {mark(form.begin)} {body}", 'start: call ("\\n" call)*' if repeated else "start: call"]
    elif special(form.begin) is not None:
        rules += [f"call: TEXT {mark(form.begin)} {body}", f"start: call{'*' if repeated else '?'} TEXT"]
    else:  # text up to the first mark
        rules += [f"trigger[lazy]: TEXT {mark(form.begin)}", f"call: trigger {body}"]
        rules.append("start: call* TEXT" if repeated else "start: call | TEXT")
    return _joined(rules)


def _head(form: ToolFormat, name: str) -> str:
    return f'{{"name": {json.dumps(name)}, "{form.arguments}": '


def _joined(rules: list[str]) -> str:
    return "%llguidance {}\n" + "\n".join(rules) + "\n"
