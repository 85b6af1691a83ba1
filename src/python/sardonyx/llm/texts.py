"""The text side of a model folder: its tokenizer and its chat template."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..errors import FileError, InvalidArgumentError, InvalidModelError
from .chat_template import ChatTemplate, Message
from .genai_folder import GenaiFolder, read_folder
from .packages import needed

#: A text, tokens, or messages of a conversation.
Prompt = str | Sequence[int] | Sequence[Message]


class Texts:
    """A folder with what converts prompts to tokens, and tokens to text."""

    def __init__(self, folder: str | os.PathLike[str]):
        self._folder: GenaiFolder = read_folder(folder)
        file = os.path.join(self._folder.path, "tokenizer.json")
        tokenizers = needed("tokenizers")
        if not os.path.isfile(file):
            raise FileError(f"the folder lacks '{file}'")
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(file)
        except Exception as error:  # the package has no exception type
            raise InvalidModelError(f"'{file}' can't be read: {error}") from None
        self._template = ChatTemplate(self._folder.path)
        self._special: dict[str, int] | None = None

    @property
    def context(self) -> int:
        """Maximum tokens of a prompt and its answer together."""
        return self._folder.context

    @property
    def ends(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        return self._folder.ends

    @property
    def has_chat_template(self) -> bool:
        """Whether prompts can be messages: the model has a chat template."""
        return self._template.known

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; special tokens in it count as such."""
        return list(self.tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int], shown: Collection[int] = ()) -> str:
        """The text of tokens, without special ones other than `shown`."""
        if not shown:
            return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))
        text, run = "", list[int]()
        for token in tokens:
            if token in shown:
                text += self.decode(run) + str(self.tokenizer.id_to_token(token))
                run = []
            else:
                run.append(token)
        return text + self.decode(run)

    def special_token(self, text: str) -> int | None:
        """The special token with this text, if there is one."""
        if self._special is None:
            self._special = {
                t.content: k for k, t in self.tokenizer.get_added_tokens_decoder().items() if t.special
            }  # fmt: skip
        return self._special.get(text)

    def chat_prompt(self, messages: Sequence[Message], tools: Sequence[Message] | None = None) -> str:
        """The text of a prompt for messages of a conversation. tools: functions that the model may call, as OpenAI's
        interface describes them; the model's template must know tools."""
        return self._template.render(list(messages), tools=None if tools is None else list(tools))

    def chat_tokens(self, messages: Sequence[Message], tools: Sequence[Message] | None = None) -> list[int]:
        """The tokens of chat_prompt()."""
        return list(self.tokenizer.encode(self.chat_prompt(messages, tools), add_special_tokens=False).ids)

    @property
    def chat_template(self) -> str:
        """The source of the model's chat template; empty if it has none."""
        return self._template.source

    def prompt_tokens(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt."""
        if isinstance(prompt, str):
            return self.encode(prompt)
        items: list[Any] = list(prompt)
        if items and isinstance(items[0], dict):
            return self.chat_tokens(items)
        if not all(isinstance(t, (int, np.integer)) for t in items):
            raise InvalidArgumentError("a prompt is a text, a list of tokens or a list of messages")
        return [int(t) for t in items]
