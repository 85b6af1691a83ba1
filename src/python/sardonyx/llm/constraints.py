"""Answers that follow a JSON schema, a regular expression or a grammar, through the package llguidance."""

from __future__ import annotations

import functools
import json
import os
import threading
from typing import Any

import numpy as np

from ..errors import InternalError, InvalidArgumentError
from .genai_folder import GenaiFolder
from .packages import needed

KINDS = ("json_schema", "json_object", "regex", "lark")
_LONGEST = 1 << 17  #: characters of a grammar


class Constraints:
    """Makes constraints for a model's tokens. All members are thread-safe."""

    def __init__(self, folder: GenaiFolder):
        """Raises UnsupportedError if the package llguidance is not installed."""
        self._package = needed("llguidance")
        self._folder = folder
        self._tokenizer: Any = None
        self._lock = threading.Lock()

    def make(self, kind: str, text: Any = None) -> TokenConstraint:
        """A constraint for one request. kind: "json_schema" (`text`: the schema as an object), "json_object" (any object),
        "regex", "lark" (a grammar in llguidance's dialect of Lark). Raises InvalidArgumentError for what it cannot read."""
        matcher = self._package.LLMatcher
        if kind in ("json_schema", "json_object"):
            schema = {"type": "object"} if kind == "json_object" else text
            if not isinstance(schema, dict):
                raise InvalidArgumentError("a JSON schema must be an object")
            text = json.dumps(schema)
            # Some white space may stand anywhere, but not so much that an answer has nothing else.
            make = functools.partial(
                matcher.grammar_from_json_schema, defaults={"whitespace_pattern": r"[\x20\x0A]{0,16}"}
            )
        elif kind in ("regex", "lark") and isinstance(text, str):
            make = matcher.grammar_from_regex if kind == "regex" else matcher.grammar_from_lark
        else:
            raise InvalidArgumentError(f"a constraint of kind {kind!r}; it must be one of {', '.join(KINDS)}")
        if len(text) > _LONGEST:
            raise InvalidArgumentError(f"a grammar of {len(text)} characters; it may have {_LONGEST}")
        try:
            grammar = make(text)
        except ValueError as error:
            raise InvalidArgumentError(f"the {kind} can't be read: {error}") from None
        made = matcher(self._tokens(), grammar, log_level=0)
        if made.is_error():
            raise InvalidArgumentError(f"the {kind} can't be used: {_line(made.get_error())}")
        return TokenConstraint(made, self._folder.vocabulary)

    def _tokens(self) -> Any:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = self._package.LLTokenizer(
                    os.path.join(self._folder.path, "tokenizer.json"),
                    n_vocab=self._folder.vocabulary,
                    eos_token=list(self._folder.ends),
                )
            return self._tokenizer


class TokenConstraint:
    """See engine_request.Constraint."""

    def __init__(self, matcher: Any, vocabulary: int):
        self._matcher, self._words = matcher, -(-vocabulary // 32)

    def allowed(self) -> np.ndarray[Any, Any]:
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        words = np.zeros(self._words * 4, np.uint8)
        count = min(len(mask), len(words))
        words[:count] = mask[:count]
        if not words.any():
            raise InvalidArgumentError("no token of the model can continue the text that the grammar asks for")
        return words.view(np.uint32)

    def accept(self, token: int) -> bool:
        if not self._matcher.consume_token(token):
            error = _line(self._matcher.get_error())
            if error.startswith(("lexer error", "parser error")):  # its limits, which it finds as it reads
                raise InvalidArgumentError(f"the grammar is too large: {error}")
            raise InternalError(f"the grammar does not take its own token: {error}")
        return bool(self._matcher.is_stopped())


def _line(text: str) -> str:
    return "; ".join(text.splitlines())[:400]
