"""The options that decide how the next token is chosen, with their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import InvalidArgumentError


@dataclass(frozen=True)
class SearchOptions:
    """Options of LanguageModel.generate(). Filters apply in this order: repetition penalty, temperature, top_k, top_p, min_p."""

    max_new_tokens: int = 256
    do_sample: bool = False  #: False: always the most likely token
    temperature: float = 1.0  #: logits are divided by it; 0 is do_sample=False
    top_k: int = 50  #: only the k most likely tokens; 0: all
    top_p: float = 1.0  #: only the most likely tokens, up to this total probability
    min_p: float = 0.0  #: only tokens with at least this fraction of the highest probability
    repetition_penalty: float = 1.0  #: logits of tokens that occur in the text: positive ones are divided by it
    num_beams: int = 1  #: more than 1: beam search
    length_penalty: float = 1.0  #: of beam search: scores are divided by length ** length_penalty
    early_stopping: bool = True  #: of beam search: ends when num_beams texts have ended
    stop: tuple[str, ...] = ()  #: texts that end the answer and are not part of it
    ignore_eos: bool = False  #: continues after the end token; for measuring
    seed: int | None = None  #: of sampling; None: a different one each time

    def __post_init__(self) -> None:
        def need(ok: bool, what: str) -> None:
            if not ok:
                raise InvalidArgumentError(what)

        for name in ("max_new_tokens", "top_k", "num_beams"):
            value = getattr(self, name)
            need(isinstance(value, int) and not isinstance(value, bool), f"{name} is {value!r}, not a whole number")
        for name in ("temperature", "top_p", "min_p", "repetition_penalty", "length_penalty"):
            value = getattr(self, name)
            need(isinstance(value, (int, float)) and abs(value) < 1e30, f"{name} is {value!r}, not a number")
        need(1 <= self.max_new_tokens < 1 << 31, f"max_new_tokens is {self.max_new_tokens}; it must be 1 or more")
        need(self.temperature >= 0, f"temperature is {self.temperature}; it must not be negative")
        need(self.top_k >= 0, f"top_k is {self.top_k}; it must be 0 (all) or more")
        need(0 < self.top_p <= 1, f"top_p is {self.top_p}; it must be above 0 and at most 1")
        need(0 <= self.min_p <= 1, f"min_p is {self.min_p}; it must be from 0 to 1")
        need(self.repetition_penalty > 0, f"repetition_penalty is {self.repetition_penalty}; it must be above 0")
        need(1 <= self.num_beams <= 64, f"num_beams is {self.num_beams}; it must be from 1 to 64")
        need(all(isinstance(s, str) and s for s in self.stop), "stop strings must be texts that are not empty")
        need(not (self.num_beams > 1 and self.samples), "beam search does not sample: set do_sample or num_beams")
        need(self.seed is None or (isinstance(self.seed, int) and self.seed >= 0), f"seed is {self.seed!r}")

    @property
    def samples(self) -> bool:
        return self.do_sample and self.temperature > 0


_OF_GENAI = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "num_beams",
    "length_penalty",
    "early_stopping",
)


def search_options(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> SearchOptions:
    """Options from genai_config.json's "search" and, before these, from the caller."""
    names = [f.name for f in fields(SearchOptions)]
    for name in given:
        if name not in names:
            raise InvalidArgumentError(f"generate() has no option '{name}'; it has {', '.join(names)}")
    base = {name: defaults[name] for name in _OF_GENAI if defaults.get(name) is not None}
    # The folder may ask for beam search or for sampling, and the caller for the other one.
    if given.get("do_sample"):
        base.pop("num_beams", None)
    if (given.get("num_beams") or 1) > 1:
        base.pop("do_sample", None)
    chosen = {k: v for k, v in given.items() if v is not None}
    if isinstance(chosen.get("stop"), str):
        chosen["stop"] = (chosen["stop"],)
    elif "stop" in chosen:
        chosen["stop"] = tuple(chosen["stop"])
    return replace(SearchOptions(), **{**base, **chosen})
