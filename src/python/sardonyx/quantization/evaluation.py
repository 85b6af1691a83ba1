"""What evaluate() gives, of any kind of model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .measures import TextAgreement, ValueAgreement

#: Called after each sample with the number so far.
OnSample = Callable[[int], object]


@dataclass(frozen=True)
class Evaluation:
    """What evaluate() found."""

    model: str  #: what was compared, for reports: its path and options
    reference: str
    samples: int
    outputs: tuple[ValueAgreement, ...]
    layers: tuple[ValueAgreement, ...]  #: intermediate values that both models name, in the model's order
    text: TextAgreement | None = None  #: of language models

    def as_dict(self) -> dict[str, Any]:
        """For JSON: numbers that JSON lacks (nan, inf) are None and strings."""
        return {
            "model": self.model,
            "reference": self.reference,
            "samples": self.samples,
            "outputs": [_plain(v) for v in self.outputs],
            "layers": [_plain(v) for v in self.layers],
            "text": None if self.text is None else {**_plain(self.text), "ratio": self.text.ratio},
        }

    @property
    def out_of_range(self) -> tuple[ValueAgreement, ...]:
        """The values of which the reference has elements that float16 can't hold."""
        return tuple(v for v in (*self.layers, *self.outputs) if v.reference_saturated)


def _plain(record: Any) -> dict[str, Any]:
    def number(x: Any) -> Any:
        if isinstance(x, float) and x != x:
            return None
        return "inf" if x == float("inf") else x

    return {k: number(v) for k, v in dataclasses.asdict(record).items()}


def is_language_model(model: Any) -> bool:
    """Whether it is a folder with genai_config.json."""
    return isinstance(model, (str, os.PathLike)) and os.path.isfile(os.path.join(model, "genai_config.json"))


def describe(model: Any, options: dict[str, Any]) -> str:
    """A model with its options, for reports."""
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else f"<{type(model).__name__}>"
    shown = [str(options[k]) for k in ("precision", "device") if options.get(k)]
    return f"{name} ({', '.join(shown)})" if shown else name
