"""migraphx-driver: MIGraphX's command line on Sardonyx."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from . import __version__, argument, from_gpu, get_onnx_operators, op, program, save, save_buffer
from .driver_options import (
    UsageError,
    add_compile,
    add_read,
    compile_program,
    host_parameters,
    parameters,
    read,
    refuse_options,
)
from .graphs import operators
from .programs import compile_reference


def write(o: argparse.Namespace, p: program) -> None:
    """The program as the options ask for."""
    kind = o.output_type or ("binary" if o.output else "text")
    if kind == "text":
        text = f"{p}\n"
        if o.output:
            with open(o.output, "w") as f:
                f.write(text)
        else:
            print(text)
    elif o.output:
        save(p, o.output, format="json" if kind == "json" else "msgpack")
    elif kind == "binary":
        sys.stdout.buffer.write(save_buffer(p))
    else:
        raise UsageError("--json needs --output FILE")


def command_read(o: argparse.Namespace) -> int:
    write(o, read(o))
    return 0


def command_compile(o: argparse.Namespace) -> int:
    write(o, compile_program(o, read(o)))
    return 0


def command_params(o: argparse.Namespace) -> int:
    p = read(o)
    for name, s in p.get_parameter_shapes().items():
        print(f"{name}: {s}")
    return 0


def _on_host(results: Sequence[argument]) -> list[argument]:
    return [from_gpu(a) if a._on_device else a for a in results]


def command_run(o: argparse.Namespace) -> int:
    p = compile_program(o, read(o))
    results = p.run(parameters(o, p))
    print(p)
    for k, result in enumerate(_on_host(results)):
        print(f"result {k}: {result.get_shape()}")
    return 0


def _times(p: program, given: dict[str, argument], n: int) -> list[float]:
    """Milliseconds of each of n runs, after a first run that warms up."""
    p.run(given)
    found = []
    for _ in range(n):
        start = time.perf_counter()
        p.run(given)
        found.append((time.perf_counter() - start) * 1e3)
    return found


def command_time(o: argparse.Namespace) -> int:
    p = compile_program(o, read(o))
    print(f"Total time: {np.mean(_times(p, parameters(o, p), o.iterations)):.6g}ms")
    return 0


def command_perf(o: argparse.Namespace) -> int:
    p = compile_program(o, read(o))
    times = np.array(_times(p, parameters(o, p), o.iterations))
    mean = float(times.mean())
    low, middle, high = (float(v) for v in np.percentile(times, [5, 50, 95]))
    print(p)
    print(f"Batch size: {o.batch}")
    print(f"Rate: {1e3 / mean * o.batch:.6g} inferences/sec")
    print(f"Total time: {mean:.6g}ms (Min: {times.min():.6g}ms, Max: {times.max():.6g}ms, Median: {middle:.6g}ms)")
    print(f"Percentiles (5%, 95%): ({low:.6g}ms, {high:.6g}ms) of {o.iterations} runs")
    return 0


def tolerances(o: argparse.Namespace) -> tuple[float, float, float]:
    """MIGraphX's defaults: of the root-mean-square error, absolute, relative."""
    rms = 8e-2 if o.fp16 or o.bf16 or o.int8 or o.fp8 else 1e-3
    wide = 4e-2 if o.fp16 or o.bf16 or o.int8 or o.fp8 else 1e-3
    chosen = (o.rms_tol, o.atol, o.rtol)
    a, b, c = (d if v is None else v for v, d in zip(chosen, (rms, wide, wide)))
    return a, b, c


def command_verify(o: argparse.Namespace) -> int:
    """Compares with an unfused, unquantised program on the host."""
    p, reference = read(o), read(o)
    given = host_parameters(o, p)
    compile_reference(reference)
    compile_program(o, p)
    print(p)
    got, want = _on_host(p.run(parameters(o, p))), reference.run(given)
    rms_tol, atol, rtol = tolerances(o)
    print(f"rms_tol: {rms_tol}\natol: {atol}\nrtol: {rtol}")
    wrong = 0
    for k, (a, b) in enumerate(zip(got, want)):
        x, y = (v.numpy().astype(np.float64) for v in (a, b))
        wrong += not _close(k, x, y, rms_tol, atol, rtol)
    print("MIGraphX verification failed." if wrong else "MIGraphX verification passed successfully.")
    return 1 if wrong else 0


def _close(k: int, x: np.ndarray, y: np.ndarray, rms_tol: float, atol: float, rtol: float) -> bool:
    """Whether each difference is within atol + rtol * |y|, and the root of their mean square within rms_tol of the
    largest value, as in MIGraphX; prints them."""
    if x.shape != y.shape:
        print(f"result {k}: dims {x.shape} instead of {y.shape}")
        return False
    if x.size == 0:
        return True
    if not np.array_equal(np.isfinite(x), np.isfinite(y)):
        print(f"result {k}: other values are infinite or NaN than in the reference")
        return False
    good = np.isfinite(x)
    difference = np.where(good, x - y, 0)
    largest = max(float(np.abs(np.where(good, y, 0)).max()), float(np.abs(np.where(good, x, 0)).max()), 1e-30)
    rms = float(np.sqrt(np.mean(difference**2)) / largest)
    beyond = int(np.sum(np.abs(difference) > atol + rtol * np.abs(np.where(good, y, 0))))
    print(
        f"result {k}: RMS error {rms:.3g}, largest difference {np.abs(difference).max():.3g}, {beyond} beyond atol, rtol"
    )
    return rms <= rms_tol and beyond == 0


def command_op(o: argparse.Namespace) -> int:
    if o.list:
        print("\n".join(operators()))
    elif o.name:
        print(f"{o.name}:")
        print("\n".join(f"    {name}: {json.dumps(value)}" for name, value in op(o.name).values().items()))
    else:
        raise UsageError("give an operator's name, or --list")
    return 0


def command_onnx(o: argparse.Namespace) -> int:
    if not o.list:
        raise UsageError("give --list")
    print("\n".join(sorted(set(get_onnx_operators()))))
    return 0


def command_tf(o: argparse.Namespace) -> int:
    raise UsageError("the operators of frozen graphs are those that tf2onnx converts; there is no list of them here")


Command = Callable[[argparse.Namespace], int]


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="migraphx-driver", description="MIGraphX's command line on Sardonyx (docs/migraphx.md)", allow_abbrev=False
    )
    top.add_argument("-v", "--version", action="version", version=f"MIGraphX Version: {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(
        name: str, run: Command, what: str, *groups: Callable[[argparse.ArgumentParser], None]
    ) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
        p.set_defaults(run=run)
        for group in groups:
            group(p)
        return p

    add("read", command_read, "read a model and list it", add_read)
    add("compile", command_compile, "compile a model", add_read, add_compile)
    add("run", command_run, "compile and run a model once", add_read, add_compile)
    add("params", command_params, "list a model's parameters", add_read)
    verify = add("verify", command_verify, "compare with a reference that fuses nothing", add_read, add_compile)
    for name in ("--rms-tol", "--atol", "--rtol"):
        verify.add_argument(name, type=float)
    for name, run, what in (
        ("perf", command_perf, "measure runs of a model"),
        ("time", command_time, "the mean time of a run"),
    ):
        p = add(name, run, what, add_read, add_compile)
        p.add_argument("-n", "--iterations", type=int, default=100, help="number of runs (%(default)s)")
    add("roctx", command_run, "run once; a profiler that listens gets a range for each node", add_read, add_compile)
    p = add("op", command_op, "operators that graphs can have, and their attributes")
    p.add_argument("name", nargs="?")
    p.add_argument("-l", "--list", action="store_true")
    for name, run in (("onnx", command_onnx), ("tf", command_tf)):
        add(name, run, f"{name} --list: operators that models can have").add_argument(
            "-l", "--list", action="store_true"
        )
    return top


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0, 1 if results are wrong, 2 for a wrong command line, 3 for other errors."""
    try:
        refuse_options(arguments)
        o = _parser().parse_args(arguments)
        if getattr(o, "iterations", 1) < 1:
            raise UsageError("--iterations must be at least 1")
        status: int = o.run(o)
        return status
    except UsageError as e:
        print(f"migraphx-driver: {e}", file=sys.stderr)
        return 2
    except (RuntimeError, ValueError, OSError) as e:
        print(f"migraphx-driver: {e}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
