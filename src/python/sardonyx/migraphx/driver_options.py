"""Options of migraphx-driver: how a model is read, compiled and given parameters."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from . import (
    argument,
    fill_argument,
    generate_argument,
    get_target,
    load,
    parse_onnx,
    parse_tf,
    program,
    quantize_bf16,
    quantize_fp8,
    quantize_fp16,
    quantize_int8,
    shape,
    to_gpu,
)
from .library import text
from .programs import trim

Dim = shape.dynamic_dimension


class UsageError(Exception):
    """What is wrong with the command line."""


# Options of MIGraphX that have no effect here, and why.
NO_EFFECT = {
    "--optimize": "programs are optimised when they are compiled",
    "--mlir": "there is no MLIR in Sardonyx",
    "--debug-symbols": "programs always keep the names of nodes",
    "--brief": "listings have no weights",
    "--disable-fast-math": "arithmetic is never less accurate",
}
# Those that can't be offered, and what to use instead.
REFUSED = {
    "--skip-unknown-operators": "a program without an operator can't be compiled",
    "--trim-size": "only --trim is offered",
    "--replace-literals": "weights stay as they are",
    "--apply-pass": "`sardonyx inspect --passes` shows the compiler's passes",
    "--strip-context": "programs have no context",
    "--graphviz": "`sardonyx inspect MODEL --html FILE` draws the graph",
    "--cpp": "a listing as a C++ program is not offered",
    "--python": "a listing as a Python program is not offered",
    "--netron": "Netron opens the ONNX model itself",
    "--int4-weights": "weights of 4 bits come with the model (MatMulNBits, DequantizeLinear)",
    "--per-instruction": "`sardonyx verify MODEL --bisect` names the first wrong value",
    "--reduce": "`sardonyx verify MODEL --bisect` names the first wrong value",
    "--bisect": "`sardonyx verify MODEL --bisect` names the first wrong value",
    "--ref-use-double": "the reference computes in the model's types",
    "--compiled-model": "compile and verify in one command",
    "--detailed": "`sardonyx perf MODEL --kernels` has times of kernels",
}
_SHORT = {"-O": "--optimize", "-g": "--graphviz", "-i": "--per-instruction", "-r": "--reduce", "-b": "--bisect"}
_SHORT |= {"-d": "--detailed", "-c": "--compiled-model", "--py": "--python", "-p": "--apply-pass", "-s": "--trim-size"}


def add_read(p: argparse.ArgumentParser) -> None:
    p.add_argument("file", nargs="?", help="an ONNX model, a frozen graph of TensorFlow, or a program that was saved")
    p.add_argument("--test", action="store_true", help="a small GEMM in place of a model")
    p.add_argument("--onnx", dest="file_type", action="store_const", const="onnx", help="the file is ONNX")
    p.add_argument("--tf", dest="file_type", action="store_const", const="tf", help="it is a frozen graph")
    layout = p.add_mutually_exclusive_group()
    layout.add_argument("--nhwc", action="store_const", const=True, help="a frozen graph's layout (the default)")
    layout.add_argument("--nchw", dest="nhwc", action="store_const", const=False, help="the same: channels first")
    p.add_argument("--output-names", nargs="+", action="extend", metavar="NAME", help="outputs of a frozen graph")
    p.add_argument("--migraphx", dest="file_type", action="store_const", const="msgpack", help="it is a saved program")
    p.add_argument("--migraphx-json", dest="file_type", action="store_const", const="json", help="saved with --json")
    p.add_argument("--batch", type=int, default=1, help="size of dims that the model leaves open (%(default)s)")
    p.add_argument("-t", "--trim", type=int, default=0, help="leave out this many nodes at the end")
    names = {"--input-dim": "@x 1 3 224 224", "--dim-param": '@batch 4, or @batch "{min:1, max:4}"'}
    names |= {"--dyn-input-dim": '@x "[{min:1, max:4}, 3, 224, 224]"'}
    for name, example in names.items():
        p.add_argument(name, nargs="+", action="extend", default=[], help=f"sizes: {example}", metavar="WORD")
    p.add_argument("--default-dyn-dim", help='range of dims that the model leaves open: "{min:1, max:8}"')
    outputs = {"--text": "text", "--json": "json", "--binary": "binary"}
    for name, kind in outputs.items():
        p.add_argument(name, dest="output_type", action="store_const", const=kind, help=f"write the program as {kind}")
    p.add_argument("-o", "--output", metavar="FILE", help="write it there instead of to standard output")
    for name, why in NO_EFFECT.items():
        p.add_argument(
            name, *_short(name), dest="no_effect", action="append_const", const=name, help=f"no effect: {why}"
        )


def _short(name: str) -> list[str]:
    return [s for s, long in _SHORT.items() if long == name]


def add_parameters(p: argparse.ArgumentParser) -> None:
    p.add_argument("--fill0", nargs="+", action="extend", default=[], metavar="NAME", help="parameters of zeros")
    p.add_argument("--fill1", nargs="+", action="extend", default=[], metavar="NAME", help="parameters of ones")
    p.add_argument("--load-arg", nargs="+", action="extend", default=[], metavar="WORD", help="@x FILE: from a file")
    for name in ("gpu", "cpu", "ref"):
        p.add_argument(f"--{name}", dest="target", action="store_const", const=name, help=f"run on the target {name}")


def add_compile(p: argparse.ArgumentParser) -> None:
    add_parameters(p)
    p.add_argument("--enable-offload-copy", action="store_true", help="parameters and results in host memory")
    p.add_argument("--exhaustive-tune", action="store_true", help="measure kernels when sizes first occur")
    for name in ("fp16", "bf16", "int8", "fp8"):
        p.add_argument(f"--{name}", action="store_true", help=f"quantise to {name}")


def refuse_options(words: Sequence[str]) -> None:
    for word in words:
        name = _SHORT.get(word, word).split("=")[0]
        if name in REFUSED:
            raise UsageError(f"{word} is not offered here: {REFUSED[name]}")


def _numbers(text: str) -> Any:
    """JSON whose names have no quotes."""
    try:
        return json.loads(re.sub(r"([A-Za-z_]+)\s*:", r'"\1":', text))
    except json.JSONDecodeError:
        raise UsageError(f"{text!r} is no list of sizes such as [{{min:1, max:4}}, 3]") from None


def _range(value: Any) -> Dim:
    if isinstance(value, int) and value >= 0:
        return Dim(value, value)
    if not isinstance(value, dict) or not {"min", "max"} <= value.keys() <= {"min", "max", "optimals"}:
        raise UsageError(f"{value!r} is no size and no range such as {{min:1, max:4}}")
    return Dim(value["min"], value["max"], value.get("optimals") or ())


def by_name(option: str, words: Sequence[str]) -> dict[str, list[str]]:
    """The words after each @name."""
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("@"):
            found[word[1:]] = []
        elif not found:
            raise UsageError(f"{option} needs the name of a parameter first: {option} @x ...")
        else:
            found[next(reversed(found))].append(word)
    return found


def _sizes(option: str, words: Sequence[str]) -> dict[str, list[int]]:
    try:
        return {name: [int(w) for w in sizes] for name, sizes in by_name(option, words).items()}
    except ValueError as e:
        raise UsageError(f"{option}: {e}") from None


def _test_program() -> program:
    from .graphs import op

    p = program()
    main = p.get_main_module()
    a = main.add_parameter("a", shape(lens=[4, 5]))
    b = main.add_parameter("b", shape(lens=[5, 3]))
    main.add_return([main.add_instruction(op("dot"), [a, b])])
    return p


def _kind(file: str) -> str:
    """What MIGraphX takes the file for; --onnx, --tf and others say it otherwise."""
    kinds = {".json": "json", ".mxr": "msgpack", ".pb": "tf"}
    return next((kind for end, kind in kinds.items() if file.endswith(end)), "onnx")


def _read_graph(o: argparse.Namespace) -> program:
    """Reads a frozen graph of TensorFlow."""
    for name in ("dim_param", "dyn_input_dim", "default_dyn_dim"):
        if getattr(o, name):
            raise UsageError(f"--{name.replace('_', '-')} is not offered for frozen graphs: --input-dim or --batch")
    p = parse_tf(
        o.file,
        is_nhwc=o.nhwc is not False,
        batch_size=o.batch,
        map_input_dims=_sizes("--input-dim", o.input_dim),
        output_names=o.output_names or (),
    )
    return trim(p, o.trim) if o.trim else p


def read(o: argparse.Namespace) -> program:
    """The program that the options name."""
    for name in o.no_effect or []:
        print(f"migraphx-driver: {name} has no effect here: {NO_EFFECT[name]}", file=sys.stderr)
    if o.test:
        return _test_program()
    if not o.file:
        raise UsageError("the name of a model's file is missing")
    kind = o.file_type or _kind(o.file)
    if kind == "tf":
        return _read_graph(o)
    for name, value in (("--nhwc or --nchw", o.nhwc), ("--output-names", o.output_names)):
        if value is not None:
            raise UsageError(f"{name} is for frozen graphs of TensorFlow; {o.file} is read as {kind}")
    if kind != "onnx":
        return load(o.file, format=kind)
    ranges = {name: _range(_numbers(w[0])) for name, w in by_name("--dim-param", o.dim_param).items() if w}
    p = parse_onnx(
        o.file,
        default_dim_value=0 if o.default_dyn_dim else o.batch,
        default_dyn_dim_value=_range(_numbers(o.default_dyn_dim)) if o.default_dyn_dim else None,
        dim_params=ranges,
        map_input_dims=_sizes("--input-dim", o.input_dim),
        map_dyn_input_dims={
            name: [_range(d) for d in _numbers(" ".join(w))]
            for name, w in by_name("--dyn-input-dim", o.dyn_input_dim).items()
        },
    )
    return trim(p, o.trim) if o.trim else p


def compile_program(o: argparse.Namespace, p: program) -> program:
    """Quantises and compiles it."""
    t = get_target(o.target or "gpu")
    if o.fp16:
        quantize_fp16(p)
    if o.bf16:
        quantize_bf16(p)
    if o.int8 or o.fp8:
        examples = [host_parameters(o, p)]
        if o.int8:
            quantize_int8(p, t, examples)
        if o.fp8:
            quantize_fp8(p, t, examples)
    if not p.is_compiled():
        p.compile(t, offload_copy=o.enable_offload_copy, exhaustive_tune=o.exhaustive_tune)
    return p


def _static(s: shape, batch: int) -> shape:
    """A shape of this type in which open dims have the size of a batch, or the nearest that is allowed."""
    if not s.dynamic():
        return s
    lens = [d.min if d.is_fixed() else min(max(batch, d.min), d.max) for d in s.dyn_dims()]
    return shape(type=s.type(), lens=lens)


def host_parameters(o: argparse.Namespace, p: program) -> dict[str, argument]:
    """What the options fill or load; otherwise MIGraphX's pseudo-random elements."""
    shapes = p.get_parameter_shapes()
    # Results get memory of their own, so a compiled program has the same numbers as before.
    shapes = {name: s for name, s in shapes.items() if not name.startswith("main:#output_")}
    found = {}
    given = _sizes("--input-dim", o.input_dim)
    files = {name: w[0] for name, w in by_name("--load-arg", o.load_arg).items() if w}
    for name in [*o.fill0, *o.fill1, *files]:
        if name not in shapes:
            raise UsageError(f"the program has no parameter {name!r}; it has {', '.join(shapes)}")
    for number, (name, s) in enumerate(shapes.items()):
        s = shape(type=s.type(), lens=given[name]) if name in given else _static(s, o.batch)
        if name in files:
            found[name] = argument.load(files[name])
        elif name in o.fill0 or name in o.fill1:
            found[name] = fill_argument(s, 0 if name in o.fill0 else 1)
        else:
            found[name] = generate_argument(s, number)
    return found


def parameters(o: argparse.Namespace, p: program) -> dict[str, argument]:
    """The same where the compiled program takes them."""
    host = host_parameters(o, p)
    on_device = (o.target or "gpu") == "gpu" and not o.enable_offload_copy and text("+gpu_device") != "host"
    return {name: to_gpu(a) for name, a in host.items()} if on_device else host
