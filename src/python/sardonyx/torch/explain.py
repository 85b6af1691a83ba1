"""Which graphs of a module Sardonyx runs, and which stay in PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .backend import Compiled, Fallback, observe, operators_of, sardonyx


class Explanation(NamedTuple):
    """Made by explain()."""

    compiled: list[list[str]]  #: the operators of each graph that Sardonyx runs
    fallbacks: list[Fallback]  #: the graphs that PyTorch runs
    programs: int  #: programs that were compiled

    def __str__(self) -> str:
        lines = [f"{len(self.compiled)} graphs compiled ({sum(map(len, self.compiled))} operators, {self.programs} programs), {len(self.fallbacks)} in PyTorch"]  # fmt: skip
        lines += [f"  in PyTorch: {f.graph}: {f.reason}" for f in self.fallbacks]
        return "\n".join(lines)


def explain(module: Any, *arguments: Any, options: dict[str, Any] | None = None, **named: Any) -> Explanation:
    """Compiles `module` for these arguments and runs it once, without gradients. Returns the graphs that torch.compile finds,
    which of them Sardonyx runs, and why others stay in PyTorch."""
    found: list[Compiled] = []
    stop = observe(found.append)
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(module, backend=lambda gm, x: sardonyx(gm, x, options=options))(*arguments, **named)
    finally:
        stop()
        torch._dynamo.reset()
    good = [c for c in found if not c.reason]
    return Explanation(
        [operators_of(c.gm) for c in good],
        [Fallback(", ".join(operators_of(c.gm)[:8]), c.reason) for c in found if c.reason],
        sum(len(c.programs) for c in good),
    )
