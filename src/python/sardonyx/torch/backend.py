"""The backend of torch.compile."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import Error, InvalidArgumentError
from ..options import native_options
from .calls import MOST_CALLS, Call, run, sizes_of
from .capture import Captures
from .graph import (
    MOST_PROGRAMS,
    MOST_WEIGHTS,
    Program,
    Roles,
    build,
    check_tensor,
    placeholders,
    roles_of,
    shape_of,
)
from .in_place import changes_operand, storage_of, without_changes
from .sizes import Numbers, places_of

#: TORCH_LOGS="+sardonyx.torch" shows it.
log = logging.getLogger("sardonyx.torch")


class Fallback(NamedTuple):
    """A graph that runs in PyTorch."""

    graph: str  #: its operators, the first few
    reason: str


#: Called with each graph that was compiled, or falls back. explain() installs one.
Observer = Callable[["Compiled"], None]
_observers: list[Observer] = []
_observers_lock = threading.Lock()


def observe(observer: Observer) -> Callable[[], None]:
    """Calls `observer` for graphs from now on, until the function is called that this returns."""
    with _observers_lock:
        _observers.append(observer)

    def stop() -> None:
        with _observers_lock:
            _observers.remove(observer)

    return stop


def operators_of(gm: torch.fx.GraphModule) -> list[str]:
    """The names of the calls of a graph, in order."""
    names = []
    for n in gm.graph.nodes:
        if n.op in ("call_function", "call_method"):
            names.append(n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target)))
        elif n.op == "call_module":
            names.append(type(gm.get_submodule(n.target)).__name__)
    return names


class Entry(NamedTuple):
    """A program, for calls with the weights that are its constants."""

    program: Program
    roles: Roles
    weights: list[torch.Tensor]
    tracked: list[torch.Tensor]  #: the weights that have versions: all but those of inference_mode
    versions: list[int]
    calls: dict[Any, Call | None]  #: by sizes

    @classmethod
    def of(cls, program: Program, roles: Roles, inputs: Sequence[Any]) -> Entry:
        weights = [inputs[k] for k in roles.constants]
        tracked = [x for x in weights if not x.is_inference()]
        return cls(program, roles, weights, tracked, [x._version for x in tracked], {})

    def has_changed(self) -> bool:
        return [x._version for x in self.tracked] != self.versions

    def has_weights_of(self, inputs: Sequence[Any]) -> bool:
        """One graph may serve many modules, as all layers of a network whose graph breaks within a layer."""
        return all(map(operator.is_, map(inputs.__getitem__, self.roles.constants), self.weights))

    def has_numbers_of(self, inputs: Sequence[Any]) -> bool:
        return not self.program.numbers or self.program.numbers == [float(inputs[k]) for k in self.roles.numbers]

    def serves(self, inputs: Sequence[Any]) -> bool:
        """Whether it is for these values and weights, and they are as they were."""
        return self.has_numbers_of(inputs) and self.has_weights_of(inputs) and not self.has_changed()

    def call_for(self, sizes: tuple[Any, ...], inputs: Sequence[Any]) -> Call | None:
        if sizes not in self.calls:
            if len(self.calls) >= MOST_CALLS:
                self.calls.clear()
            self.calls[sizes] = None if self.program.model is None else Call(self.program, self.roles, inputs)
        return self.calls[sizes]


class Compiled:
    """A graph of torch.compile: compiled by Sardonyx at its first call, or PyTorch's own with the reason."""

    def __init__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any]):
        self.gm, self.options = without_changes(gm), options
        self.reason = ""  #: why PyTorch runs it; empty: Sardonyx does
        self.programs: list[Entry] = []
        self.lock = threading.Lock()
        self.results: list[Any] = list(next(n for n in gm.graph.nodes if n.op == "output").args[0])
        self.wanted: list[int] = []
        self.inputs_returned: dict[int, int] = {}  # results that are inputs: changed in place, or as they came
        self.views: torch.fx.GraphModule | None = None
        self.reported = False
        try:
            self.roles = roles_of(gm, inputs)
            nodes = placeholders(gm)
            self.varying = [
                [n.node.expr if isinstance(n, torch.SymInt) else None for n in shape_of(nodes[k], inputs[k])]
                for k in self.roles.tensors
            ]
            self.divide_results(inputs)
        except Error as error:
            self.fall_back(str(error))

    def __call__(self, *inputs: Any) -> Any:
        if (
            not self.reason
            and torch.is_grad_enabled()
            and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
        ):
            self.fall_back("it needs gradients: use torch.no_grad() or torch.inference_mode()")
        if not self.reason:
            try:
                return self.run(inputs)
            except Error as error:
                self.fall_back(str(error))
        self.report()
        return self.gm(*inputs)

    def divide_results(self, inputs: Sequence[Any]) -> None:
        """Which results a program computes, which follow from sizes, and which are views of inputs, that PyTorch makes."""
        owners = {id(storage_of(n)): k for k, n in enumerate(placeholders(self.gm)) if storage_of(n) is not None}
        views, numbers = [], {}
        for k, r in enumerate(self.results):
            if not isinstance(r, torch.fx.Node):
                continue
            value = r.meta.get("example_value")
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                numbers[k] = value
                continue
            if not isinstance(value, torch.Tensor):
                raise InvalidArgumentError(f"a result is a {type(value).__name__}")
            check_tensor(r.name, value)
            owner = owners.get(id(storage_of(r)))
            if owner is None:
                self.wanted.append(k)
            elif is_whole(value, placeholders(self.gm)[owner].meta["example_value"]):
                self.inputs_returned[k] = owner
            else:
                views.append(k)
        self.numbers = Numbers(numbers, places_of(placeholders(self.gm), inputs))
        if views:
            self.views = only_results(self.gm, views)

    def run(self, inputs: Sequence[Any]) -> Any:
        results: list[Any] = list(self.results)
        # Without results that are wanted it may still change inputs.
        for k, x in zip(self.wanted, run(self.call_for(inputs), inputs), strict=True):
            results[k] = x
        for k, i in self.inputs_returned.items():
            results[k] = inputs[i]
        if self.views is not None:
            for k, x in self.views(*inputs):
                results[k] = x
        for k, number in self.numbers.of(inputs).items():
            results[k] = number
        self.report()
        return tuple(results)

    def call_for(self, inputs: Sequence[Any]) -> Call | None:
        call: Any
        for entry in self.programs:
            call = entry.calls.get(sizes_of(entry.roles, inputs), self)  # itself: there is none yet
            if call is not self and entry.serves(inputs):
                return call
        with self.lock:
            entry = self.program_for(inputs)
            return entry.call_for(sizes_of(entry.roles, inputs), inputs)

    def program_for(self, inputs: Sequence[Any]) -> Entry:
        kept = [e for e in self.programs if not e.has_changed()]
        if len(kept) < len(self.programs):
            log.info("weights have changed: compiling again")
            self.programs = kept
        mine = [e for e in self.programs if e.has_weights_of(inputs)]
        for entry in mine:
            if entry.program.takes(entry.roles, inputs):
                return entry
        if len(mine) == MOST_PROGRAMS:
            raise InvalidArgumentError(f"more than {MOST_PROGRAMS} sizes that the exporter made constants")
        roles, varying = self.roles, self.varying
        sets = {tuple(map(id, e.weights)) for e in self.programs if e.weights}
        if roles.constants and len(sets) >= MOST_WEIGHTS and not any(e.weights for e in mine):
            varying = varying + [[None] * inputs[k].ndim for k in roles.constants]
            roles = Roles(roles.tensors + roles.constants, [], roles.sizes, roles.numbers, roles.counts)
        program, roles = build(self.gm, roles, inputs, self.wanted, varying, self.options)
        entry = Entry.of(program, roles, inputs)
        self.programs = [*self.programs, entry]
        return entry

    def fall_back(self, reason: str) -> None:
        self.reason = reason

    def report(self) -> None:
        if self.reported:
            return
        self.reported = True
        operators = operators_of(self.gm)
        text = ", ".join(operators[:8]) + (", ..." if len(operators) > 8 else "")
        if self.reason:
            log.warning("PyTorch runs a graph of %d operators (%s): %s", len(operators), text, self.reason)
        else:
            log.info("compiled a graph of %d operators (%s)", len(operators), text)
        with _observers_lock:
            observers = list(_observers)
        for observer in observers:
            observer(self)


def is_whole(view: torch.Tensor, of: torch.Tensor) -> bool:
    """Whether the view is the tensor itself, element by element."""
    same = view.shape == of.shape and view.dtype == of.dtype and view.stride() == of.stride()
    return bool(same and view.storage_offset() == of.storage_offset())


def only_results(gm: torch.fx.GraphModule, positions: Sequence[int]) -> torch.fx.GraphModule:
    """The graph with these of its results alone, as pairs of their positions and values. They are views of inputs: what
    else the graph does is left out."""
    results = next(n for n in gm.graph.nodes if n.op == "output").args[0]
    needed: set[torch.fx.Node] = set()
    stack = [results[k] for k in positions]
    while stack:
        node = stack.pop()
        if node in needed:
            continue
        if changes_operand(node):
            raise InvalidArgumentError(f"a result is a view of an input that '{node.name}' has changed")
        needed.add(node)
        stack += node.all_input_nodes
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in gm.graph.nodes:
        if node in needed or node.op == "placeholder":
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output([(k, copies[results[k]]) for k in positions])
    return torch.fx.GraphModule(gm, graph)


def sardonyx(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Callable[..., Any]:
    """torch.compile(module, backend="sardonyx", options={...}): options are those of sardonyx.compile().

    Raises InvalidArgumentError for options that do not exist. A graph that Sardonyx cannot run is run by PyTorch; the
    logger "sardonyx.torch" names it with the reason."""
    mode = settings.pop("mode", None)
    if mode not in (None, "default"):
        raise InvalidArgumentError(f"the backend sardonyx has no mode '{mode}'; it has options={{...}}")
    options = dict(settings.pop("options", None) or {})
    if settings:
        raise InvalidArgumentError(f"the backend sardonyx takes options={{...}}, not {', '.join(settings)}")
    captures.listen()
    native_options("compile", options)  # unknown ones are refused now, rather than at the first call
    return Compiled(gm, example_inputs, options)  # torch.compile itself traces no calls of it


captures = Captures(sardonyx)
