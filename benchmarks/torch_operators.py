"""PyTorch's own samples of its operators (OpInfo) through torch.compile's backend "sardonyx" on the host, beside eager PyTorch.

    python benchmarks/torch_operators.py [--only softmax] [--samples 2] [--jobs 2] [--json operators.json]

Each operator is called with PyTorch's samples (torch.testing._internal.common_methods_invocations.op_db, needs expecttest) of
each of the element types that it has on the CPU, without gradients. An operator

    ran           ran here with every sample
    fell back     ran in PyTorch with some sample, and the backend named the reason
    not captured  torch.compile does not take it, with or without Sardonyx, or there are no samples: the note says why
    wrong         gave another result, dtype or shape than eager PyTorch
    crashed       raised an error or ended the process
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import functools
import itertools
import json
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

DTYPES = ["float32", "float16", "int64", "bool"]
#: Relative and, times the largest value, absolute: some ULPs of sums in another order; functions of ours in float32 have
#: errors of some ULPs, and PyTorch's 16-bit operators round in other places.
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-7}
#: Their results are random or memory as it is: only dtypes and shapes are compared.
RANDOM = ("bernoulli", "cauchy", "dropout", "empty", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand", "uniform", "rrelu", "new_empty", "fractional_max_pool", "svd_lowrank", "pca_lowrank")  # fmt: skip
SECONDS = 240  #: for one operator


def is_random(name: str) -> bool:
    return any(part in name for part in RANDOM) and name not in ("normalize", "nn.functional.normalize")


def leaves(x: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(x)


def clone(x: Any) -> Any:
    """With the same strides and, as PyTorch's samples have them, views."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), x)


def tensors_of(x: Any) -> list[Any]:
    return [v for v in leaves(x) if isinstance(v, (torch.Tensor, int, float, bool, complex))]


#: Which of equal elements they choose is not defined: places are compared where elements differ by their type alone.
TIES = ("topk", "kthvalue", "mode", "median", "nanmedian", "unique")
#: Sardonyx keeps the order of equal elements, which PyTorch's defaults do not: its results are those of `stable=True`.
SORTS = ("sort", "argsort")


def differs(got: Any, want: Any, exact: Callable[[], Any], values: bool) -> str:
    """What is wrong with the results; empty: nothing. `exact` gives results of float64 inputs."""
    ours, theirs = tensors_of(got), tensors_of(want)
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for k, (a, b) in enumerate(zip(ours, theirs)):
        if not isinstance(b, torch.Tensor):
            if (values and isinstance(a, torch.Tensor)) or (values and a != b and not (a != a and b != b)):
                return f"result {k} is {a}, not {b}"
            continue
        if not isinstance(a, torch.Tensor):
            return f"result {k} is a {type(a).__name__}"
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k} is {a.dtype} {list(a.shape)}, not {b.dtype} {list(b.shape)}"
        if not values or is_close(a, b):
            continue
        try:
            best = tensors_of(exact())[k]
        except Exception:
            best = None
        if best is None or best.shape != b.shape or not is_better(a, b, best):
            bad = (a.to(torch.complex128) - b.to(torch.complex128)).abs().nan_to_num(float("inf"), float("inf"))
            return f"result {k} ({a.dtype} {list(a.shape)}) differs by {float(bad.max()) if bad.numel() else 0:.3g}: {a.flatten()[:4].tolist()}, not {b.flatten()[:4].tolist()}"
    return ""


def is_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_complex():
        return is_close(torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj()))
    if a.dtype not in TOLERANCES:
        return torch.equal(a.to_dense(), b.to_dense())
    a, b, t = a.to_dense().double(), b.to_dense().double(), TOLERANCES[a.dtype]
    finite = b[torch.isfinite(b)]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    return torch.allclose(a, b, rtol=t, atol=t * min(1.0, scale), equal_nan=True)


def is_better(a: torch.Tensor, b: torch.Tensor, best: torch.Tensor) -> bool:
    """Whether `a` is about as near to the result of float64 as eager PyTorch's `b` is: sums that cancel are near to nothing
    else."""
    if a.dtype not in TOLERANCES or not best.is_floating_point():
        return False
    far = lambda x: (x.double() - best.double()).abs().nan_to_num(0.0 if bool(best.isnan().any()) else float("inf"))
    step = torch.finfo(a.dtype).eps * best.double().abs().nan_to_num(0.0)
    return bool((far(a) <= 2 * far(b).max() + 4 * step).all())


def without_places(x: Any) -> Any:
    """Of values and their places, the values; of places alone, sorted ones."""
    if isinstance(x, (tuple, list)):
        return x[0]
    return x.sort(-1)[0] if isinstance(x, torch.Tensor) and x.ndim else x


def run_sample(op: Any, sample: Any, name: str) -> tuple[str, str]:
    """Verdict and reason for one sample."""
    import sardonyx.torch

    given = (sample.input, sample.args, sample.kwargs)
    flat, spec = torch.utils._pytree.tree_flatten(given)
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]

    def call(*inputs: torch.Tensor) -> Any:
        rest = iter(inputs)
        whole = [next(rest) if isinstance(x, torch.Tensor) else x for x in flat]
        x, args, kwargs = torch.utils._pytree.tree_unflatten(whole, spec)
        return op(x, *args, **kwargs)

    exact = lambda: call(*(t.double() if t.is_floating_point() else t for t in tensors))
    try:
        torch.manual_seed(0)
        want_inputs = clone(tensors)
        want = call(*want_inputs)
    except Exception as error:
        return "not captured", f"eager PyTorch: {error}"
    found: list[Any] = []
    stop = sardonyx.torch.observe(found.append)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    try:
        torch.manual_seed(0)
        inputs = clone(tensors)
        got = torch.compile(call, backend="sardonyx", dynamic=False)(*inputs)
    except Exception as error:
        torch._dynamo.reset()
        try:
            torch.compile(call, backend="eager", dynamic=False)(*clone(tensors))
        except Exception:
            return "not captured", f"torch.compile: {type(error).__name__}: {error}".splitlines()[0][:200]
        return "crashed", f"{type(error).__name__}: {error}"[:600]
    finally:
        stop()
    if name in SORTS and found and not any(c.reason for c in found):
        named = dict(zip(("dim", "descending"), sample.args)) | dict(sample.kwargs) | {"stable": True}
        want = op(sample.input, **named)
    if name in TIES and not any(t.is_floating_point() for t in tensors):
        got, want = without_places(got), without_places(want)
    wrong = differs((got, inputs), (want, want_inputs), lambda: (exact(), tensors), not is_random(name))
    if wrong:
        return "wrong", ("in PyTorch: " if any(c.reason for c in found) else "") + wrong
    reasons = [c.reason for c in found if c.reason]
    if not found:
        breaks = list(torch._dynamo.utils.counters["graph_break"])
        return "not captured", "torch.compile finds no graph: " + (breaks[0].splitlines()[0] if breaks else "no reason")
    return ("fell back", reasons[0]) if reasons else ("ran", "")


def run_operator(index: int, samples: int, dtypes: list[str]) -> dict[str, Any]:
    op = operators()[index]
    name = op.name + (f" ({op.variant_test_name})" if op.variant_test_name else "")
    outcome: dict[str, Any] = {"name": name, "counts": collections.Counter(), "notes": {}}
    for dtype in (getattr(torch, d) for d in dtypes):
        if dtype not in op.dtypes:
            continue
        try:
            torch.manual_seed(1)
            made = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 200))
        except Exception as error:
            outcome["notes"].setdefault("no samples", f"{dtype}: {error}"[:200])
            continue
        take = samples if dtype == torch.float32 else max(1, samples // 2)
        # Over the whole list, its first and its last among them.
        chosen = sorted({round(k * (len(made) - 1) / max(1, take - 1)) for k in range(take)}) if made else []
        for k in chosen:
            try:
                verdict, reason = run_sample(op, made[k], op.name)
            except Exception as error:  # in this program's own comparison
                verdict, reason = "crashed", f"comparing: {type(error).__name__}: {error}"[:300]
            outcome["counts"][verdict] += 1
            if reason:
                outcome["notes"].setdefault(verdict, f"{dtype} sample {k}: {reason}")
    if not outcome["counts"]:
        outcome["notes"].setdefault("not captured", f"no samples of {', '.join(dtypes)} on the CPU")
    outcome["verdict"] = verdict_of(outcome["counts"])
    return outcome


def verdict_of(counts: dict[str, int]) -> str:
    for verdict in ("crashed", "wrong", "fell back", "ran"):
        if counts.get(verdict):
            return verdict
    return "not captured"


def operators() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


class Worker:
    """A process that reads lines and answers each with one of JSON; it is started again if a line ends it."""

    def __init__(self, script: str, arguments: list[str], seconds: float):
        self.command, self.seconds = [sys.executable, script, "--worker", *arguments], seconds
        self.process: subprocess.Popen[str] | None = None

    def run(self, given: Any, name: str) -> dict[str, Any]:
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(self.seconds, process.kill)
        timer.start()
        process.stdin.write(f"{given}\n")
        process.stdin.flush()
        line = next((line for line in process.stdout if line.startswith("{")), "")
        timer.cancel()
        if line:
            return dict(json.loads(line))
        self.process = None
        slow = process.wait() == -9
        note = f"more than {self.seconds} s" if slow else f"the process ended with {process.returncode}"
        return {"name": name, "counts": {"crashed": 1}, "notes": {"crashed": note}, "verdict": "crashed"}

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def remember(module: Any, name: str) -> None:
    """Makes a function of torch.export, which walks through all operators of PyTorch, remember its result."""
    function = getattr(module, name, None)
    if function is not None:
        setattr(module, name, functools.cache(lambda: function()))


def work(options: argparse.Namespace) -> None:
    import logging
    import warnings

    from torch.export import decomp_utils, exported_program

    remember(exported_program, "_collect_all_valid_cia_ops")
    remember(decomp_utils, "_collect_all_valid_cia_ops")

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch._dynamo.config.cache_size_limit = 64
    torch.set_num_threads(1)
    with torch.no_grad():
        for line in sys.stdin:
            print(json.dumps(run_operator(int(line), options.samples, options.dtypes.split(","))), flush=True)


def sweep(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    wanted = lambda name: not options.only or any(n in name for n in options.only)
    named = [(k, o.name) for k, o in enumerate(operators()) if k >= options.begin and wanted(o.name)]
    arguments = ["--samples", str(options.samples), "--dtypes", options.dtypes]
    workers = [Worker(str(pathlib.Path(__file__)), arguments, SECONDS) for _ in range(options.jobs)]
    yield from in_turn(workers, named)


def in_turn(workers: list[Worker], jobs: list[tuple[Any, str]]) -> Iterator[dict[str, Any]]:
    """The answers to all jobs, in order."""
    idle = list(workers)

    def one(job: tuple[int, str]) -> dict[str, Any]:
        worker = idle.pop()
        try:
            return worker.run(*job)
        finally:
            idle.append(worker)

    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        yield from pool.map(one, jobs)
    for worker in workers:
        worker.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="operators whose names contain this")
    parser.add_argument("--samples", type=int, default=2, help="of float32; half as many of other types")
    parser.add_argument("--begin", type=int, default=0, help="number of the first operator")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    rows: list[dict[str, Any]] = []
    for row in sweep(options):
        rows.append(row)
        notes = "; ".join(f"{k}: {v}" for k, v in row["notes"].items() if k != "not captured" or row["verdict"] == k)
        print(f"{row['verdict']:12} {row['name']} {dict(row['counts'])} {notes}"[:400], flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    total = collections.Counter(r["verdict"] for r in rows)
    captured = len(rows) - total["not captured"]
    good = total["ran"] + total["fell back"]
    print(
        f"{good} of {captured} operators right ({total['ran']} ran here, {total['fell back']} fell back for some sample); {total['wrong']} wrong, {total['crashed']} crashed; {total['not captured']} not captured by torch.compile"
    )


if __name__ == "__main__":
    main()
