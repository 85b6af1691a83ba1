"""Accuracy of quantised trained models on inputs that were not used for quantising them.

    python benchmarks/quantized_accuracy.py table --models DIR --photos DIR [--cases PP-OCRv4_rec,open-nsfw]
    python benchmarks/quantized_accuracy.py mixed --models DIR --photos DIR --tries 20 [--target gfx942]

`table`: int8 and fp8 of `sardonyx.quantize`, without and with a limit for the outputs' error, and int8 of onnxruntime.quantization, with the same samples: how many decisions stay
the same, and the error of the outputs. Sardonyx runs all of them. `mixed`: each try quantises a model within a budget, which
depends on the try, and measures the error on other samples; and it compares the time with that of the fastest single type that
meets the budget. --models: the folder with en_PP-OCRv4_rec.onnx and others; --photos: see quantized_data.py.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np
import sardonyx
from quantized_data import HELD_BACK, Case, cases

PACKAGES = pathlib.Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages"
CALIBRATION, COMPARED = 100, 200  # samples of `table`
MIXED = 60  # of `mixed`, and as many for comparison
#: By try: a tight, a middling and a loose one.
BUDGETS = (0.01, 0.03, 0.1)


def feeds(case: Case, count: int, seed: int, dtype: Any) -> list[dict[str, Any]]:
    return [{case.input: x.astype(dtype)} for x in case.samples(count, seed)]


def compared(case: Case, model: Any, data: list[dict[str, Any]], reference: list[Any]) -> tuple[float, float]:
    """The share of the decisions that stay the same, and the relative error of the first output."""
    m = sardonyx.compile(model)
    same, above, below = 0, 0.0, 0.0
    for sample, want in zip(data, reference):
        got = next(iter(m(sample).values()))
        same += case.decision is not None and case.decision(got) == case.decision(want)
        above += float(np.square(got.astype(np.float64) - want).sum())
        below += float(np.square(want.astype(np.float64)).sum())
    return same / len(data), (above / below) ** 0.5


def with_onnxruntime(case: Case, data: list[dict[str, Any]], folder: str, gemms_only: bool) -> bytes:
    """int8 by quantize_static: both operands int8, QDQ."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(data)

        def get_next(self) -> Any:
            return next(self.feeds, None)

    path = f"{folder}/{case.name}.onnx"
    quantization.quantize_static(
        str(case.file), path, Reader(), activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8, per_channel=gemms_only,
        op_types_to_quantize=["Conv", "MatMul", "Gemm"] if gemms_only else None,
    )  # fmt: skip
    return pathlib.Path(path).read_bytes()


def table(case: Case, seed: int) -> None:
    plain = sardonyx.compile(case.file)
    dtype = plain.inputs[0].dtype
    data, other = feeds(case, CALIBRATION, seed, dtype), feeds(case, COMPARED, HELD_BACK + seed, dtype)
    reference = [next(iter(plain(x).values())) for x in other]

    def show(what: str, model: Any, note: str = "") -> None:
        same, error = compared(case, model, other, reference)
        decided = f"{100 * same:5.1f} %" if case.decision else "      -"
        print(f"{case.name:15} {what:32} same {decided}  error {error:.4f}  {note}", flush=True)

    for to, limit in (("int8", None), ("int8", 0.05), ("fp8", None), ("fp8", 0.05)):
        done = sardonyx.quantize(case.file, data, to=to, output_limit=limit)
        show(
            f"Sardonyx {to}{'' if limit is None else f', output limit {limit}'}",
            done.model,
            f"{len(done.report.layers)} of {len(done.report.layers) + len(done.report.kept)} nodes",
        )
    with tempfile.TemporaryDirectory() as folder:
        for only in (False, True):
            name = "onnxruntime, products only" if only else "onnxruntime, defaults"
            try:
                show(name, with_onnxruntime(case, data, folder, only))
            except Exception as error:  # what it does not support
                print(f"{case.name:15} {name:32} failed: {type(error).__name__}: {str(error)[:80]}", flush=True)


def one_try(case: Case, number: int, target: str | None) -> dict[str, Any]:
    budget = BUDGETS[number % len(BUDGETS)]
    plain = sardonyx.compile(case.file)
    data = feeds(case, MIXED, number, plain.inputs[0].dtype)
    other = feeds(case, MIXED, 5 * HELD_BACK + number, plain.inputs[0].dtype)
    started = time.monotonic()
    done = sardonyx.quantize(case.file, data, to="mixed", budget=budget, target=target, options={"threads": 1})
    seconds = time.monotonic() - started
    mixed = done.report.mixed
    assert mixed is not None
    chosen = next(p for p in mixed.curve if p.chosen)
    singles = [p for p in mixed.curve if p.name != "mixed" and p.meets]
    found = max(o.relative for o in sardonyx.evaluate(done.model, other, reference=case.file).outputs)
    best = min(p.seconds for p in singles)
    return {
        "case": case.name, "budget": budget, "held_back": found, "met": found <= budget, "bound": chosen.bound,
        "choice": chosen.name, "counts": chosen.counts, "time": chosen.seconds, "best_single": best,
        "float": next(p.seconds for p in mixed.curve if p.name == "float"),
        "slower": chosen.seconds > best, "seconds": seconds,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "mixed"))
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--photos", type=pathlib.Path, required=True)
    parser.add_argument("--cases", help="names, with commas; default: all")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first try, which seeds its samples")
    parser.add_argument("--target", help="of mixed")
    parser.add_argument("--json", type=pathlib.Path)
    a = parser.parse_args()
    every = cases(a.models, PACKAGES, a.photos)
    chosen = [every[n] for n in (a.cases or ",".join(every)).split(",")]
    if a.what == "table":
        for case in chosen:
            table(case, 1)
        return
    tries = []
    for k in range(a.first, a.first + a.tries):
        tries.append(one_try(chosen[k % len(chosen)], k // len(chosen) + k, a.target))
        t = tries[-1]
        print(f"{k:2} {t['case']:15} budget {t['budget']:.2f} held back {t['held_back']:.4f} {'met' if t['met'] else 'MISSED'} "
              f"{t['choice']} {t['counts']} time / best single {t['time'] / t['best_single']:.3f}, / float "
              f"{t['time'] / t['float']:.3f} ({t['seconds']:.0f} s)", flush=True)  # fmt: skip
        if a.json:
            a.json.write_text(json.dumps(tries, indent=1))
    print(
        f"{sum(t['met'] for t in tries)} of {len(tries)} met; {sum(t['slower'] for t in tries)} slower than a single type"
    )


if __name__ == "__main__":
    main()
