"""One graph of torch.compile as compiled programs of Sardonyx.

The graph's inputs are constants (parameters and buffers), sizes, or tensors. Constants that the graph does not change
become weights of the program. Tensors that it changes in place are results of the program, which are copied back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from ..compiling import compile as compile_model
from ..errors import UnsupportedError
from ..model import Model
from .export import exported, write_onnx

#: Programs of one graph: sizes that torch.export made constants need one each.
MOST_PROGRAMS = 8
ELEMENTS = {torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}  # fmt: skip


@dataclass
class Roles:
    """What the graph's inputs are, by their positions."""

    tensors: list[int] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)
    #: sizes: a tensor's position and its dim
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: numbers in tensors without dims, whose values are constants of a program
    numbers: list[int] = field(default_factory=list)


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
            raise UnsupportedError(f"the size {x} is no dim of an input")
        roles.sizes[k] = at
    return roles


def shape_of(node: torch.fx.Node, x: torch.Tensor) -> Sequence[Any]:
    """With symbols for the dims that vary, which real tensors do not have."""
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


def placeholders(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "placeholder"]


class Arguments(torch.nn.Module):
    """The graph as a function of its tensors alone: constants are buffers, sizes are those of tensors."""

    def __init__(self, gm: torch.fx.GraphModule, roles: Roles, inputs: Sequence[Any], wanted: Sequence[int]):
        super().__init__()
        self.gm, self.roles, self.wanted = gm, roles, list(wanted)
        self.count = len(inputs)
        self.numbers = {k: Number(float(inputs[k])) for k in roles.numbers}
        for k in roles.constants:
            self.register_buffer(f"c{k}", inputs[k].detach())

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given: dict[int, Any] = dict(zip(self.roles.tensors, tensors, strict=True)) | self.numbers
        for k in self.roles.constants:
            given[k] = getattr(self, f"c{k}")
        for k, (tensor, dim) in self.roles.sizes.items():
            given[k] = given[tensor].shape[dim]
        out = self.gm(*(given[k] for k in range(self.count)))
        return tuple(out[k] for k in self.wanted)


class Functional(torch.nn.Module):
    """A decomposed program with its changes of inputs as further results, which come first."""

    def __init__(self, program: torch.export.ExportedProgram):
        super().__init__()
        self.body = program.graph_module
        self.specs = program.graph_signature.input_specs
        tensors = {**program.state_dict, **program.constants}
        for k, spec in enumerate(self.specs):
            if spec.kind != InputKind.USER_INPUT:
                self.register_buffer(f"c{k}", tensors[str(spec.target)].detach())

    def forward(self, *tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        return self.body(
            *(
                next(rest) if s.kind == InputKind.USER_INPUT else getattr(self, f"c{k}")
                for k, s in enumerate(self.specs)
            )
        )


@dataclass
class Program:
    model: Model
    names: list[str]  #: of the inputs, one for each tensor
    #: declared dims of each input: a number, or a name of a symbol
    dims: list[tuple[Any, ...]]
    changed: list[int]  #: positions of the inputs that the first results are copied to
    outputs: list[str]
    used: list[bool]  #: whether the program has the input at all
    numbers: list[float]  #: the values of the roles' numbers

    def takes(self, roles: Roles, inputs: Sequence[Any]) -> bool:
        if self.numbers != [float(inputs[k]) for k in roles.numbers]:
            return False
        for k, dims, used in zip(roles.tensors, self.dims, self.used, strict=True):
            fixed = zip(inputs[k].shape, dims, strict=True) if used else ()
            if any(isinstance(want, int) and want != got for got, want in fixed):
                return False
        return True


def build(
    gm: torch.fx.GraphModule, roles: Roles, inputs: Sequence[Any], wanted: Sequence[int],
    dynamic: Sequence[Sequence[bool]], options: dict[str, Any],
) -> tuple[Program, Roles]:  # fmt: skip
    """Compiles the graph for real `inputs`. `wanted`: the results that are tensors; `dynamic`: for each tensor, which
    dims vary. Constants that the graph changes join the tensors, so that the roles may be others than those given."""
    auto = torch.export.Dim.AUTO
    while True:
        arguments = [inputs[k].detach() for k in roles.tensors]
        varying = dict(zip(roles.tensors, dynamic, strict=False))
        shapes = (tuple({d: auto for d, v in enumerate(varying.get(k, ())) if v} or None for k in roles.tensors),)
        program = exported(Arguments(gm, roles, inputs, wanted), arguments, shapes).run_decompositions({})
        signature = program.graph_signature
        changed_constants = [int(name[1:]) for name in signature.buffers_to_mutate.values()]
        if not changed_constants:
            break
        roles = Roles(
            roles.tensors + changed_constants,
            [k for k in roles.constants if k not in changed_constants],
            roles.sizes,
            roles.numbers,
        )
    user_inputs = [s.arg.name for s in signature.input_specs if s.kind == InputKind.USER_INPUT]
    changed = [
        roles.tensors[user_inputs.index(str(s.target))]
        for s in signature.output_specs
        if s.kind == OutputKind.USER_INPUT_MUTATION
    ]
    if changed:
        program = exported(Functional(program), arguments, shapes)
    names = [f"x{k}" for k in roles.tensors]
    device = arguments[0].device if arguments else torch.device("cpu")
    chosen = {"device": device_of(device)} | options
    with tempfile.TemporaryDirectory(prefix="sardonyx-torch-") as folder:
        model = compile_model(write_onnx(program, folder, names), **chosen)
    dims = {i.name: i.shape for i in model.inputs}
    program_of = Program(
        model,
        names,
        [tuple(dims.get(n) or ()) for n in names],
        changed,
        [o.name for o in model.outputs],
        [n in dims for n in names],
        [float(inputs[k]) for k in roles.numbers],
    )
    return program_of, roles


def device_of(device: torch.device) -> str:
    """Sardonyx's name of a torch device."""
    if device.type == "cpu":
        return "host"
    index = device.index if device.index is not None else torch.cuda.current_device()
    return f"{'hip' if torch.version.hip else 'cuda'}:{index}"


def run(program: Program, roles: Roles, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The results that are wanted; changed inputs have been written."""
    feed = {
        name: inputs[k].detach().contiguous()
        for k, name, used in zip(roles.tensors, program.names, program.used, strict=True)
        if used
    }
    cuda = any(x.is_cuda for x in feed.values())
    if cuda:
        got = run_on_device(program, feed)
    else:
        found = program.model.run_tensors(feed)
        got = [torch.from_dlpack(found[name]) for name in program.outputs]
    for k, result in zip(program.changed, got, strict=False):
        inputs[k].copy_(result)
    return got[len(program.changed) :]


def run_on_device(program: Program, feed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """In the memory of torch's allocator and on its current stream, so that nothing waits."""
    shapes = program.model.output_shapes({name: tuple(x.shape) for name, x in feed.items()})
    device = next(iter(feed.values())).device
    out = {
        o.name: torch.empty(shapes[o.name], dtype=getattr(torch, o.dtype.name), device=device)
        for o in program.model.outputs
        if None not in shapes[o.name]
    }
    stream = torch.cuda.current_stream(device).cuda_stream
    found = program.model.run_tensors(feed, on_device=True, outputs=out, stream=stream, synchronize=False)
    return [out[name] if name in out else torch.from_dlpack(found[name]) for name in program.outputs]
