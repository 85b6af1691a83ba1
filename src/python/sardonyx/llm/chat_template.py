"""Prompts of conversations, by the model's chat template (Jinja, as Hugging Face's transformers render it).

Templates come from outside: they run in Jinja's sandbox.
"""

from __future__ import annotations

import datetime
import json
import os
from typing import Any

from ..errors import FileError, InvalidArgumentError, InvalidModelError, UnsupportedError
from .genai_folder import read_json
from .packages import needed

Message = dict[str, Any]


def _refuse(text: str) -> None:
    raise InvalidArgumentError(f"the model's chat template refuses the messages: {text}")


class ChatTemplate:
    """The template of a folder: chat_template.jinja, or the one in tokenizer_config.json."""

    def __init__(self, folder: str):
        config = os.path.join(folder, "tokenizer_config.json")
        self._values = read_json(config) if os.path.exists(config) else {}
        source: Any = self._values.get("chat_template")
        file = os.path.join(folder, "chat_template.jinja")
        if os.path.exists(file):
            try:
                with open(file, encoding="utf-8") as opened:
                    source = opened.read()
            except (OSError, UnicodeDecodeError) as error:
                raise FileError(f"'{file}' could not be read: {error}") from None
        if isinstance(source, list):  # several, by name
            named = {t.get("name"): t.get("template") for t in source if isinstance(t, dict)}
            source = named.get("default")
            tools = named.get("tool_use", source)
        else:
            tools = source
        #: The source of the template for messages with tools; empty: there is none.
        self.source = tools if isinstance(tools, str) else ""
        self._template = self._read(source, folder)
        self._with_tools = self._template if tools == source else self._read(tools, folder)

    @staticmethod
    def _read(source: Any, folder: str) -> Any:
        if not isinstance(source, str):
            return None
        sandbox = needed("jinja2.sandbox")
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        try:
            return environment.from_string(source)
        except Exception as error:  # jinja2's errors, and recursion
            raise InvalidModelError(f"the chat template in '{folder}' can't be read: {error}") from None

    @property
    def known(self) -> bool:
        return self._template is not None

    def _special(self, name: str) -> str:
        value = self._values.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else ""

    def render(self, messages: list[Message], *, answer: bool = True, tools: list[Message] | None = None) -> str:
        """The prompt for messages with "role" and "content". answer: it ends where the model's answer begins. tools:
        functions that the model may call, as OpenAI's interface describes them."""
        for message in messages:
            if not isinstance(message, dict) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
                raise InvalidArgumentError('a message is {"role": ..., "content": ...}, both texts')
        template = self._template if tools is None else self._with_tools
        if template is None:
            raise UnsupportedError("the model has no chat template; give the prompt as a text")
        special = {name: self._special(name) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
        try:
            return str(template.render(messages=messages, add_generation_prompt=answer, tools=tools, **special))
        except InvalidArgumentError:
            raise
        except Exception as error:
            raise InvalidArgumentError(f"the model's chat template fails: {error}") from None
