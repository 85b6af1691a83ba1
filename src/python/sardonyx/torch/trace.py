"""One graph of torch.compile as a graph of ATen operators that change nothing, by a single trace with fake tensors.

torch.export and its decompositions trace four times: to collect metadata, and to record, each of them twice.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._functorch._aot_autograd.functional_utils import from_fun, has_data_mutation, to_fun
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from ..errors import UnsupportedError
from .batch_norm import fold_batch_norms
from .decompositions import decompositions, without_decomposing
from .export import cause_of, first_line, quiet
from .fakes import Fakes
from .in_place import changes_operand, name_of
from .repairs import repair
from .repeats import Lifted, Repeats

aten = torch.ops.aten

#: For each dim of a tensor what it is a size of, if it varies: dims with the same key are equal. None: it is constant.
Varying = Sequence[Any]


@dataclass
class Conditions:
    """What sizes have to be for a trace to hold, beyond those that the graph was captured with."""

    expressions: list[Any] = field(default_factory=list)  #: of sympy
    symbols: dict[Any, tuple[int, int]] = field(default_factory=dict)  #: which dim of which tensor a symbol is
    #: what tensors' dims have to be that vary for the graph, but are constants of the trace
    constants: dict[tuple[int, int], int] = field(default_factory=dict)

    def hold(self, shapes: Sequence[Sequence[int]]) -> bool:
        if any(shapes[tensor][dim] != n for (tensor, dim), n in self.constants.items()):
            return False
        if not self.expressions:
            return True
        import sympy

        values = {s: shapes[tensor][dim] for s, (tensor, dim) in self.symbols.items()}
        return all(e.xreplace(values) == sympy.true for e in self.expressions)


@dataclass
class Traced:
    """A graph of ATen operators, with what torch.onnx reads of an ExportedProgram."""

    graph_module: torch.fx.GraphModule
    graph_signature: ExportGraphSignature
    constants: dict[str, torch.Tensor]
    changed: list[int]  #: which of the tensors and then the constants the first results replace
    conditions: Conditions
    range_constraints: dict[Any, Any] = field(default_factory=dict)

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(())

    named_buffers = named_parameters


def attributes_of(gm: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    """The tensors that the graph has as attributes, by their names."""
    found = {}
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            value = functools.reduce(getattr, node.target.split("."), gm)
            if isinstance(value, torch.Tensor):
                found[node.target] = value.detach()
    return found


def fake(mode: FakeTensorMode, x: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    """Row-major, as programs read tensors whatever their strides are."""
    with mode:
        return torch.empty(tuple(sizes), dtype=x.dtype, device=x.device)


class Symbols:
    """Sizes that vary."""

    def __init__(self) -> None:
        self.env = ShapeEnv()
        self.sizes: dict[Any, Any] = {}  # by their keys
        self.places: dict[Any, tuple[int, int]] = {}  # of each symbol

    def size(self, key: Any, n: int, tensor: int, dim: int) -> Any:
        if key not in self.sizes:
            source = ConstantSource(f"x{tensor}_{dim}")
            symbol = self.env.create_symbol(n, source=source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
            self.sizes[key] = self.env.create_symintnode(symbol, hint=n, source=source)
            self.places[symbol] = (tensor, dim)
        return self.sizes[key]

    def constant(self) -> set[Any]:
        """The keys of sizes that turned out to be constants of the trace."""
        return {k for k, n in self.sizes.items() if isinstance(n, int) or n.node.expr.is_number}

    def conditions(self) -> Conditions:
        import sympy

        equal = [sympy.Eq(a, b) for a, b in self.env.replacements.items()]
        return Conditions([g.expr for g in self.env.guards] + equal, self.places)


def functional(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as one that changes none of its operands until it ends: what it changes is then copied to its inputs."""

    def call(*inputs: torch.Tensor) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)):
            wrapped = [to_fun(x) for x in inputs]
            results = [from_fun(x) for x in function(*wrapped)]
        for x, inner in zip(inputs, wrapped, strict=True):
            if has_data_mutation(inner):
                x.copy_(from_fun(inner))
        return tuple(results)

    return call


def trace(
    call: Callable[..., Any], gm: torch.fx.GraphModule, tensors: Sequence[torch.Tensor], varying: Sequence[Varying],
    constants: Mapping[int, torch.Tensor],
) -> Traced:  # fmt: skip
    """Traces call(run, *tensors, *constants), which returns a tuple of tensors; run(*inputs) runs `gm`.

    `constants`: by the numbers of gm's inputs. Raises UnsupportedError."""
    try:
        # Tensors of inference mode have no autograd keys, by which PyTorch finds its decompositions of composite operators.
        with quiet(), torch.inference_mode(False), torch.no_grad():
            return traced(call, gm, tensors, varying, constants)
    except UnsupportedError as error:  # torch.fx adds where it was
        raise UnsupportedError(str(error).splitlines()[0]) from error
    except Exception as error:
        raise UnsupportedError(f"torch.fx cannot trace it: {first_line(cause_of(error))}") from error


def traced(
    call: Callable[..., Any], gm: torch.fx.GraphModule, tensors: Sequence[torch.Tensor], varying: Sequence[Varying],
    constants: Mapping[int, torch.Tensor],
) -> Traced:  # fmt: skip
    attributes = attributes_of(gm)
    for node in gm.graph.nodes:
        if name_of(node).startswith("as_strided") and not all(
            x.is_contiguous() for x in (*tensors, *constants.values())
        ):
            raise UnsupportedError(f"'{node.name}' reads memory by strides, and an input is not row-major")
    values = [x.detach() for x in constants.values()] + list(attributes.values())
    count = len(tensors) + len(constants)

    def function(*given: torch.Tensor) -> Any:
        run = Lifted(gm, dict(zip(attributes, given[count:])), Repeats(gm) if direct else None)
        return call(run.run, *given[:count])

    fixed: set[Any] = set()
    # Functionalising takes as long as tracing, so it is left out where no operator changes a tensor.
    direct = not any(changes_operand(n) for n in gm.graph.nodes)
    while True:
        symbols = Symbols()
        mode = Fakes(symbols.env)
        fakes = [
            fake(mode, x, [n if key is None or key in fixed else symbols.size(key, n, k, d) for d, (n, key) in enumerate(zip(x.shape, keys, strict=True))])
            for k, (x, keys) in enumerate(zip(tensors, varying, strict=True))
        ]  # fmt: skip
        fakes += [fake(mode, x, x.shape) for x in values]
        with (
            mode,
            enable_python_dispatcher(),
            torch.no_grad(),
            without_decomposing(),
            contextlib.nullcontext() if direct else FunctionalTensorMode(export=True),
        ):
            traceable = function if direct else functional(function)
            made = make_fx(traceable, decompositions(), _disable_torch_fn_metadata_mode=True)(*fakes)
        remove_new_strides(made.graph)
        if direct and any(is_mutable(n) for n in made.graph.nodes):
            direct = False  # a decomposition does
        elif not symbols.constant():
            break
        else:
            fixed |= symbols.constant()
    conditions = symbols.conditions()
    conditions.constants = {
        (k, d): int(n)
        for k, (x, keys) in enumerate(zip(tensors, varying, strict=True))
        for d, (n, key) in enumerate(zip(x.shape, keys, strict=True))
        if key in fixed
    }
    return finished(made, len(tensors), values, conditions)


def expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def remove_new_strides(graph: torch.fx.Graph) -> None:
    """Removes changes of strides that leave all elements where they are, as pooling to one element gives its result those of
    channels last."""
    for node in graph.find_nodes(op="call_function", target=aten.as_strided_.default):
        operand, sizes, _, *offset = node.args
        before, after = operand.meta["val"], node.meta["val"]
        if offset or node.kwargs or len(sizes) != before.ndim:
            continue
        old, new = ([(expression(n), expression(s)) for n, s in zip(x.shape, x.stride())] for x in (before, after))
        if all(a == b or (a[0] == b[0] == 1) for a, b in zip(old, new)):
            node.replace_all_uses_with(operand)
            graph.erase_node(node)


def is_mutable(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def finished(gm: torch.fx.GraphModule, tensors: int, values: Sequence[torch.Tensor], conditions: Conditions) -> Traced:
    graph = gm.graph
    places = [n for n in graph.nodes if n.op == "placeholder"]
    constants = dict(zip(places[tensors:], values, strict=True))
    changed = take_changes(graph, places)
    (output,) = graph.find_nodes(op="output")
    output.args = ((*changed.values(), *output.args[0]),)
    graph.eliminate_dead_code()
    inputs = places[:tensors] + [p for p in changed if p in constants]
    for place in inputs[tensors:]:
        del constants[place]
    lift_attributes(gm, constants)
    for node in graph.nodes:
        if is_mutable(node):
            raise UnsupportedError(f"'{node.name}' changes its operand")
    fold_batch_norms(graph, constants)
    results: list[Any] = []
    for x in output.args[0]:
        if x.op == "placeholder" or x in results:  # a result of ONNX is made by a node, and made for it alone
            with graph.inserting_before(output):
                copy = graph.call_function(aten.clone.default, (x,))
            copy.meta = dict(x.meta)
            x = copy
        results.append(x)
    output.args = (tuple(results),)
    specs = [InputSpec(InputKind.USER_INPUT, TensorArgument(p.name), None) for p in inputs]
    for node in list(constants):
        if not node.users:
            graph.erase_node(node)
            del constants[node]
    specs += [InputSpec(InputKind.BUFFER, TensorArgument(n.name), f"w_{n.name}", True) for n in constants]
    made = Traced(
        gm,
        ExportGraphSignature(
            specs, [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(r.name), None) for r in results]
        ),
        {f"w_{n.name}": x for n, x in constants.items()},
        [places.index(p) for p in changed],
        conditions,
    )
    repair(made)
    return made


def take_changes(graph: torch.fx.Graph, places: Sequence[torch.fx.Node]) -> dict[torch.fx.Node, torch.fx.Node]:
    """Takes the copies out of the graph with which it ends by changing its inputs. Returns the inputs' new values."""
    changed: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in list(graph.nodes):
        if node.target is aten.copy_.default and node.args[0] in places:
            changed[node.args[0]] = node.args[1]
            node.replace_all_uses_with(node.args[1])
            graph.erase_node(node)
    return changed


def lift_attributes(gm: torch.fx.GraphModule, constants: dict[torch.fx.Node, torch.Tensor]) -> None:
    """Makes placeholders of the tensors that tracing has made attributes: constants that the graph itself makes."""
    first = next(iter(gm.graph.nodes))
    for node in list(gm.graph.nodes):
        value = getattr(gm, node.target, None) if node.op == "get_attr" else None
        if not isinstance(value, torch.Tensor):
            continue
        real = getattr(value, "constant", None) if isinstance(value, torch._subclasses.FakeTensor) else value
        if real is None:
            raise UnsupportedError(f"'{node.name}' is a tensor without a value")
        with gm.graph.inserting_before(first):
            place = gm.graph.placeholder(f"{node.name}_constant")
        place.meta = dict(node.meta)
        place.meta.setdefault("val", value)
        constants[place] = real.detach()
        node.replace_all_uses_with(place)
        gm.graph.erase_node(node)
