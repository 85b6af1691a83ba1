"""What makes torch.compile's captures for this backend faster, before the backend is called.

A third to a half of a capture with symbolic sizes goes to sizes of results: in PyTorch 2.11 a batch normalisation takes 10 ms,
and a view 2 ms. Results follow from operands there too (fakes.py). And a capture makes many objects, for which Python's
collection of cycles would look through all of the process's. Captures for other backends are left as they are.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from .fakes import RULES, Results, Unusual

try:
    from torch._dynamo.callback import callback_handler
    from torch._dynamo.eval_frame import innermost_backend
except ImportError:  # another version of PyTorch, whose captures stay as they are
    callback_handler = innermost_backend = None

aten = torch.ops.aten


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Pauses Python's collection of cycles. Tracing makes many objects, for which it would look through all of the process's
    several times, in a process with torch a quarter of a second each. What was made meanwhile counts as old, so that no
    collection is due at the end either; the next full one looks at it."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if gc.get_freeze_count() == 0:  # otherwise unfreeze() would also free what the program has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def expression(n: Any) -> Any:
    return n.node.expr if isinstance(n, torch.SymInt) else n


def check(make: Results, x: Any) -> None:
    """Raises Unusual for what is no strided tensor of symbolic sizes."""
    if type(x) is not FakeTensor or x.fake_mode is not make.mode or x.constant is not None or x.requires_grad:
        raise Unusual
    if x.layout != torch.strided or x.is_conj() or x.is_neg() or not any(isinstance(n, torch.SymInt) for n in x.shape):
        raise Unusual


def strided(make: Results, x: Any, sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """A view from the first element on. PyTorch makes a tensor of the sizes and then gives it the memory, each with some twenty
    sums and products of symbols."""
    env: Any = make.mode.shape_env
    with in_kernel_invocation_manager(make.mode), env.suppress_guards():
        made = aten.as_strided.default(x, sizes, strides, x.storage_offset())
    return FakeTensor(make.mode, made, x.device)


def row_major(sizes: Sequence[Any]) -> list[Any]:
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step = step * n
    return strides[::-1]


def divided(x: torch.Tensor, sizes: Sequence[Any]) -> list[Any]:
    """The strides of a view whose dims are those of `x`, or parts of them."""
    strides: list[Any] = []
    rest = list(sizes)
    for n, step in zip(x.shape, x.stride()):
        parts: list[Any] = []
        whole: Any = 1
        while expression(whole) != expression(n) or not parts:
            if not rest:
                raise Unusual
            parts.append(rest.pop(0))
            whole = whole * parts[-1]
        strides += [step * s for s in row_major(parts)]
    if rest:
        raise Unusual
    return strides


def view(make: Results, x: Any, sizes: Sequence[Any]) -> Any:
    """A view by sizes that clearly have as many elements, of a row-major tensor or one whose dims it keeps or divides."""
    check(make, x)
    count = math.prod(x.shape)
    free = [k for k, n in enumerate(sizes) if isinstance(n, int) and n < 0]
    if free:
        known = math.prod(n for k, n in enumerate(sizes) if k != free[0])
        if len(free) > 1 or (isinstance(known, int) and known <= 0):
            raise Unusual
        sizes = [count // known if k == free[0] else n for k, n in enumerate(sizes)]
    if expression(math.prod(sizes)) != expression(count):
        raise Unusual
    strides = row_major(sizes) if x.is_contiguous() else divided(x, sizes)
    return strided(make, x, sizes, strides)


def permute(make: Results, x: Any, dims: Sequence[int]) -> Any:
    check(make, x)
    if sorted(d % x.ndim for d in dims) != list(range(x.ndim)) or not all(-x.ndim <= d < x.ndim for d in dims):
        raise Unusual
    return strided(make, x, [x.shape[d] for d in dims], [x.stride(d) for d in dims])


def transpose(make: Results, x: Any, a: int, b: int) -> Any:
    dims = list(range(x.ndim))
    if not all(-x.ndim <= d < x.ndim for d in (a, b)):
        raise Unusual
    dims[a], dims[b] = dims[b], dims[a]
    return permute(make, x, dims)


#: Operators whose results are views, with symbolic sizes.
VIEWS: dict[Any, Callable[..., Any]] = {aten.view.default: view, aten.permute.default: permute, aten.transpose.int: transpose}  # fmt: skip


def is_captured_for(backend: Callable[..., Any]) -> bool:
    """Whether this thread is in a capture of torch.compile for the backend."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_compile" and frame.f_globals.get("__name__") == "torch._dynamo.convert_frame":
            given = innermost_backend(frame.f_locals.get("compiler_fn"))
            return getattr(given, "compiler_fn", given) is backend
        frame = frame.f_back
    return False


class Captures:
    """Of one backend."""

    def __init__(self, backend: Callable[..., Any]):
        self.backend = backend
        self.paused: contextlib.ExitStack | None = None
        if innermost_backend is None:
            return
        self.listen()
        original = FakeTensorMode.dispatch

        @functools.wraps(original)
        def dispatch(mode: Any, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}) -> Any:
            rule = VIEWS.get(func)
            if (rule or func in RULES) and type(mode) is FakeTensorMode and self.made(mode):
                make = Results(mode, shared=False)
                try:
                    return rule(make, *args) if rule else make.by_rule(func, args, kwargs)
                except Unusual:
                    pass
            return original(mode, func, types, args, kwargs)

        FakeTensorMode.dispatch = dispatch

    def made(self, mode: Any) -> bool:
        """Whether a capture for the backend made the mode."""
        if "_sardonyx" not in mode.__dict__:
            usual = not mode.propagate_real_tensors and mode.shape_env is not None
            mode._sardonyx = usual and is_captured_for(self.backend)
        return bool(mode._sardonyx)

    def listen(self) -> None:
        """torch._dynamo.reset() forgets who listens."""
        if innermost_backend is not None and self.start not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(self.start)
            callback_handler.register_end_callback(self.end)

    def start(self, *_: Any) -> None:
        if self.paused is None and is_captured_for(self.backend):
            self.paused = contextlib.ExitStack()
            self.paused.enter_context(without_collecting())

    def end(self, *_: Any) -> None:
        if self.paused is not None:
            self.paused.close()
            self.paused = None
