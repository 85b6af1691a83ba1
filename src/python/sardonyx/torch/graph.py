"""One graph of torch.compile as compiled programs of Sardonyx.

The graph's inputs are constants (parameters and buffers), sizes, or tensors. Constants that the graph does not change
become weights of the program. Tensors that it changes in place are results of the program, which are copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..compiling import compile_with_memory
from ..errors import UnsupportedError
from ..model import Model
from .capture import without_collecting
from .host_copies import HostCopies, host_copies
from .sizes import dims_of, kind_of, stand_in
from .trace import Conditions, Varying, trace
from .translate import translate

#: Programs of one graph: sizes that torch.export made constants need one each.
MOST_PROGRAMS = 8
#: Sets of weights that become constants of programs, one after the other. With further ones the weights are inputs.
MOST_WEIGHTS = 8
ELEMENTS = {torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}  # fmt: skip

NAMES = {t: str(t).removeprefix("torch.") for t in ELEMENTS}  # Sardonyx has the same names


@dataclass
class Roles:
    """What the graph's inputs are, by their positions."""

    tensors: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    #: sizes: a tensor's position and its dim
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: numbers in tensors without dims, whose values are constants of a program
    numbers: list[int] = field(default_factory=list)
    #: sizes that are a dim of no tensor, which are among the tensors too: a program has an input for each (sizes.py)
    counts: list[int] = field(default_factory=list)


class Number:
    """In place of a tensor of which a graph only takes the value."""

    def __init__(self, value: float):
        self.value = value

    def item(self) -> float:
        return self.value


def roles_of(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Roles:
    """Raises UnsupportedError for inputs that no program takes."""
    roles = Roles()
    symbols: list[tuple[int, Any]] = []
    nodes = placeholders(gm)
    for k, (node, x) in enumerate(zip(nodes, inputs, strict=True)):
        if isinstance(x, torch.SymInt):
            symbols.append((k, x))
        elif isinstance(x, torch.Tensor):
            check_tensor(node.name, x)
            if x.ndim == 0 and x.device.type == "cpu" and node.users and all(u.target == "item" for u in node.users):
                roles.numbers.append(k)
                continue
            static = (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type") is not None
            (roles.constants if static or isinstance(x, torch.nn.Parameter) else roles.tensors).append(k)
        else:
            raise UnsupportedError(f"input '{node.name}' is a {type(x).__name__}")
    for k, x in symbols:
        at = next(
            ((t, d) for t in roles.tensors for d, n in enumerate(shape_of(nodes[t], inputs[t])) if is_same(n, x)), None
        )
        if at is None:
            roles.tensors.append(k)
            roles.counts.append(k)
        roles.sizes[k] = at or (k, 0)
    return roles


def shape_of(node: torch.fx.Node, x: torch.Tensor | torch.SymInt) -> Sequence[Any]:
    """With symbols for the dims that vary, which real tensors do not have."""
    if isinstance(x, torch.SymInt):
        return (x, 0)
    value = node.meta.get("example_value")
    return tuple(value.shape if isinstance(value, torch.Tensor) else x.shape)


def is_same(a: Any, b: torch.SymInt) -> bool:
    return isinstance(a, torch.SymInt) and bool(a.node.expr == b.node.expr)


def check_tensor(name: str, x: torch.Tensor) -> None:
    if x.layout != torch.strided or x.is_quantized or x.is_nested:
        raise UnsupportedError(f"'{name}' is a {x.layout} tensor")
    if x.dtype not in ELEMENTS:
        raise UnsupportedError(f"'{name}' has elements of type {x.dtype}")
    if x.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"'{name}' is on the device {x.device}")


def results_of(gm: torch.fx.GraphModule) -> list[Any]:
    """The results' fake tensors; what is no tensor as it is."""
    results = next(n for n in gm.graph.nodes if n.op == "output").args[0]
    return [r.meta.get("example_value") if isinstance(r, torch.fx.Node) else r for r in results]


def placeholders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "placeholder"]


def is_channels_last(x: torch.Tensor | int) -> bool:
    """Whether its memory is a row-major tensor of [N, H, W, C], which a program reads in place."""
    if isinstance(x, int):
        return False
    return x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def check_outputs(model: Model, expected: Sequence[Any]) -> None:
    """Raises UnsupportedError if the program's results are of other types or shapes than the graph's."""
    for output, want in zip(model.outputs, expected, strict=True):
        if want is None:
            continue
        dtype = str(want.dtype).removeprefix("torch.")
        dims = output.shape
        known = dims is not None and len(dims) == want.ndim
        fits = known and all(
            a == b for a, b in zip(dims or (), want.shape) if isinstance(a, int) and isinstance(b, int)
        )
        if output.dtype.name != dtype or (dims is not None and not fits):
            raise UnsupportedError(
                f"torch.onnx gives {output.dtype.name} {list(dims or ())} for a result that is {dtype} {list(want.shape)}"
            )


class Output(NamedTuple):
    name: str
    dtype: torch.dtype
    device: torch.device


@dataclass
class Program:
    model: Model | None  #: None: the graph computes nothing, its results are views of inputs
    device: torch.device
    names: list[str]  #: of the inputs, one for each tensor
    #: declared dims of each input: a number, or a name of a symbol
    dims: list[tuple[Any, ...]]
    channels_last: list[bool]  #: of each tensor: it is read as [N, H, W, C], which it is in memory
    changed: list[int]  #: positions of the inputs that the first results are copied to
    outputs: list[Output]
    used: list[bool]  #: whether the program has the input at all
    numbers: list[float]  #: the values of the roles' numbers
    kinds: list[int]  #: of the roles' counts
    conditions: Conditions

    def takes(self, roles: Roles, inputs: Sequence[Any]) -> bool:
        if self.numbers != [float(inputs[k]) for k in roles.numbers]:
            return False
        if self.kinds != [kind_of(inputs[k]) for k in roles.counts]:
            return False
        shapes = [in_memory(dims_of(inputs[k]), o) for k, o in zip(roles.tensors, self.channels_last, strict=True)]
        sizes: dict[str, int] = {}  # of symbols
        for shape, dims, used in zip(shapes, self.dims, self.used, strict=True):
            for got, want in zip(shape, dims, strict=True) if used else ():
                if (want if isinstance(want, int) else sizes.setdefault(want, got)) != got:
                    return False
        return self.conditions.hold(shapes)


def build(
    gm: torch.fx.GraphModule, roles: Roles, inputs: Sequence[Any], wanted: Sequence[int],
    varying: Sequence[Varying], options: dict[str, Any],
) -> tuple[Program, Roles]:  # fmt: skip
    """Compiles the graph for real `inputs`. `wanted`: the results that are tensors; `varying`: of each tensor.
    Constants that the graph changes join the tensors, so that the roles may be others than those given."""
    with host_copies(gm, [inputs[k] for k in roles.constants]) as copies:
        try:
            return compiled(gm, roles, inputs, wanted, varying, options, copies)
        except UnsupportedError:
            if not roles.counts:
                raise
        # ONNX has attributes for some sizes (RoiAlign's): sizes that are no dim of a tensor become constants.
        constant = [[None] * len(v) if k in roles.counts else v for k, v in zip(roles.tensors, varying)]
        return compiled(gm, roles, inputs, wanted, constant, options, copies)


@without_collecting()
def compiled(
    gm: torch.fx.GraphModule, roles: Roles, inputs: Sequence[Any], wanted: Sequence[int],
    varying: Sequence[Varying], options: dict[str, Any], copies: HostCopies,
) -> tuple[Program, Roles]:  # fmt: skip
    order = roles.tensors + roles.constants
    last = [is_channels_last(inputs[k]) for k in roles.tensors]
    last_of = dict(zip(roles.tensors, last, strict=True))
    fixed_numbers = {k: Number(float(inputs[k])) for k in roles.numbers}
    negative = {k for k in roles.counts if inputs[k] < 0}

    def call(run: Callable[..., Any], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given: dict[int, Any] = dict(zip(order, tensors, strict=True)) | fixed_numbers
        given |= {k: given[k].permute(0, 3, 1, 2) for k, is_last in last_of.items() if is_last}
        sizes = {k: given[tensor].shape[dim] for k, (tensor, dim) in roles.sizes.items()}
        given |= {k: -n if roles.sizes[k][0] in negative else n for k, n in sizes.items()}
        out = run(*(given[k] for k in range(len(inputs))))
        return tuple(out[k] for k in wanted)

    traced = trace(
        call,
        gm,
        [stand_in(inputs[k]) if k in roles.counts else in_memory(inputs[k].detach(), of) for k, of in last_of.items()],
        [in_memory(keys, of) for keys, of in zip(varying, last, strict=True)],
        {k: inputs[k] for k in roles.constants},
    )
    for at, k in enumerate(roles.tensors):
        if k in roles.counts and varying[at][0] is None:
            traced.conditions.constants[at, 0] = abs(inputs[k])
    changed = [order[k] for k in traced.changed]
    moved = [k for k in changed if k in roles.constants]
    if moved:
        constants = [k for k in roles.constants if k not in moved]
        roles = Roles(roles.tensors + moved, constants, roles.sizes, roles.numbers, roles.counts)
        last = last + [False] * len(moved)
    names = [f"x{k}" for k in roles.tensors]
    numbers = [float(inputs[k]) for k in roles.numbers]
    kinds = [kind_of(inputs[k]) for k in roles.counts]
    if not wanted and not changed:
        unused = [False] * len(names)
        none: list[Any] = [()] * len(names)
        return Program(
            None, torch.device("cpu"), names, none, unused, [], [], unused, numbers, kinds, Conditions()
        ), roles
    results = [results_of(gm)[k].device for k in wanted]
    given = [inputs[k].device for k in order if k not in roles.counts]
    device = next((d for d in given + results if d.type == "cuda"), torch.device("cpu"))
    chosen = {"device": device_of(device)} | options
    model = compile_with_memory(*translate(traced, names, copies), **chosen)
    check_outputs(model, [None] * len(changed) + [results_of(gm)[k] for k in wanted])
    dims = {i.name: i.shape for i in model.inputs}
    program_of = Program(
        model,
        device,
        names,
        [tuple(dims.get(n) or ()) for n in names],
        last,
        changed,
        [
            Output(o.name, getattr(torch, o.dtype.name), d)
            for o, d in zip(model.outputs, [device] * len(changed) + results, strict=True)
        ],
        [n in dims for n in names],
        numbers,
        kinds,
        traced.conditions,
    )
    return program_of, roles


def in_memory(x: Any, channels_last: bool) -> Any:
    """A tensor, or what there is for each of its dims, with the dims in the order of memory."""
    if not channels_last:
        return x
    if isinstance(x, torch.Tensor):
        return x.permute(0, 2, 3, 1)
    return [x[d] for d in (0, 2, 3, 1)] if x else x


def device_of(device: torch.device) -> str:
    """Sardonyx's name of a torch device."""
    if device.type == "cpu":
        return "host"
    index = device.index if device.index is not None else torch.cuda.current_device()
    return f"{'hip' if torch.version.hip else 'cuda'}:{index}"
