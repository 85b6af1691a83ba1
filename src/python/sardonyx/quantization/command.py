"""The command line of precision: `sardonyx evaluate` and `sardonyx quantize`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ..command_line import Parser, ProgressLine, exit_code, write_json
from ..errors import MismatchError
from ..options import add_flags, options_of_flags
from .agreement import evaluate
from .budget import METRICS
from .quantizer import quantize
from .ranges import METHODS
from .report import evaluation_text, plot, plot_tradeoff, quantize_text
from .settings import KINDS, TARGETS
from .weight_only import METHODS as WEIGHTS

_RUN_OPTIONS = ("device", "precision", "threads", "cache_dir")
_OPTIONS = ("device", "precision", "calibration_table", "threads", "cache_dir")


def _parser() -> argparse.ArgumentParser:
    top = Parser(prog="sardonyx")
    commands = top.add_subparsers(dest="command", required=True)
    e = commands.add_parser(
        "evaluate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs a model and a reference on the same samples, and shows how much their results differ.",
        epilog="Examples:\n"
        "  sardonyx evaluate small.onnx --reference model.onnx --data samples/\n"
        "  sardonyx evaluate model.onnx --device hip --precision fp16 --data samples.npz --layers --plot layers.png\n"
        "  sardonyx evaluate model.onnx --precision int8 --calibration-table t.json --data samples.py\n"
        "  sardonyx evaluate llama-int4 --reference llama-fp16 --data texts/\n\n"
        "Samples: a folder of .npz files (arrays by the inputs' names), .npy files (for one input) or ONNX test data\n"
        "(test_data_set_0/input_0.pb); an .npz file; a Python script that defines samples(). For folders of language\n"
        "models: .txt files. docs/quantization.md has more.",
    )
    e.add_argument("model", metavar="MODEL", help="an ONNX file, or a language model's folder")
    e.add_argument("--reference", metavar="MODEL", help="what to compare with (default: MODEL itself in fp32)")
    e.add_argument("--data", required=True, metavar="DIR|SCRIPT|FILE", help="samples")
    e.add_argument("--samples", type=int, default=0, metavar="N", help="use the first N only")
    e.add_argument("--layers", action="store_true", help="also compare the intermediate values that both models have")
    e.add_argument(
        "--saturation", action="store_true", help="count values beyond float16's range, and NaN and infinity"
    )
    e.add_argument(
        "--classifier",
        action="append",
        metavar="OUTPUT",
        help="an output whose largest element along the last dim is a decision (default: float outputs of two dims)",
    )
    e.add_argument("--context", type=int, default=512, metavar="N", help="tokens per part of a text (default: 512)")
    e.add_argument(
        "--max-relative", type=float, metavar="X", help="exit with 8 if an output's relative error is larger"
    )
    add_flags(e, _OPTIONS)
    e.add_argument("--reference-device", metavar="NAME", help="where the reference runs (default: host)")
    e.add_argument("--reference-precision", metavar="TYPE", help="precision of the reference (default: fp32)")
    e.add_argument("--json", metavar="FILE", help="write all numbers; - for stdout")
    e.add_argument("--plot", metavar="FILE", help="draw the errors: .png, .svg or .pdf; needs matplotlib")
    e.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    _add_quantize(commands)
    return top


def _add_quantize(commands: Any) -> None:
    q = commands.add_parser(
        "quantize",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Quantises the MatMul, Gemm and Conv nodes of a float model, and shows how sensitive each is.",
        epilog="Examples:\n"
        "  sardonyx quantize model.onnx --data samples/ -o int8.onnx\n"
        "  sardonyx quantize model.onnx --data samples.py --to fp8 --exclude '*head*' -o fp8.onnx\n"
        "  sardonyx quantize llama-fp16 --data texts/ --to int4 -o llama-int4\n"
        "  sardonyx quantize model.onnx --data samples/ --to mixed --budget 0.01 --target gfx942 -o mixed.onnx\n"
        "  sardonyx quantize model.onnx --data samples/ --to table -o ranges.json\n\n"
        "int8, fp8: QuantizeLinear and DequantizeLinear around GEMMs and convolutions. int2, int3, int4, int8-weights: weights in\n"
        "blocks, for MatMulNBits; of Conv for DequantizeLinear. mixed: the fastest of these for each node, within a budget of\n"
        "error. table: the ranges of all values, for --calibration-table with int8, fp8 and fp16. Samples are those of\n"
        "`sardonyx evaluate`.\n"
        "docs/quantization.md has more.",
    )
    q.add_argument("model", metavar="MODEL", help="an ONNX file, or a language model's folder")
    q.add_argument("--data", metavar="DIR|SCRIPT|FILE", help="typical inputs; not needed with --weights rtn")
    q.add_argument("--samples", type=int, default=0, metavar="N", help="use the first N only")
    q.add_argument("--to", default="int8", choices=TARGETS, help="the result (default: int8)")
    q.add_argument("-o", "--output", metavar="FILE", help="the model (a folder for a language model) or table to write")
    q.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="nodes that stay in float: '*head*'"
    )
    q.add_argument(
        "--limit",
        type=float,
        metavar="X",
        help="nodes whose relative error is larger stay in float (int8 and fp8; default: 0.05), or get 8 bits (fewer than 8; "
        "default: none)",
    )
    q.add_argument(
        "--output-limit",
        type=float,
        metavar="X",
        help="int8 and fp8: nodes stay in float until the relative error of every output, on 16 samples, is at most this (default: "
        "no limit)",
    )
    q.add_argument(
        "--method", default="mse", choices=METHODS, help="how the ranges of activations are chosen (default: mse)"
    )
    q.add_argument("--percentile", type=float, default=99.99, metavar="P", help="for --method percentile")
    q.add_argument("--per-tensor", action="store_true", help="one scale per weight instead of one per output channel")
    q.add_argument("--symmetric", action="store_true", help="no zero points")
    q.add_argument("--no-smooth", action="store_true", help="do not use SmoothQuant")
    q.add_argument("--no-bias-correction", action="store_true", help="do not correct biases")
    q.add_argument("--float-residuals", action="store_true", help="int8: Adds and pooling between layers read floats")
    q.add_argument(
        "--block",
        type=int,
        default=32,
        metavar="N",
        help="elements that share a scale, of weights in blocks (default: 32)",
    )
    q.add_argument(
        "--weights", default="gptq", choices=WEIGHTS, help="how weights in blocks are rounded (default: gptq)"
    )
    q.add_argument(
        "--budget", type=float, metavar="X", help="mixed: the most error (default: 0.02; of perplexity 0.01)"
    )
    q.add_argument(
        "--metric",
        metavar="NAME|SCRIPT",
        help=f"mixed: what the budget is for: {', '.join(METRICS)}, or a script that defines error(outputs, reference, "
        "inputs) of a sample (default: relative; of language models perplexity)",
    )
    q.add_argument(
        "--types",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="LIST",
        help=f"mixed: among which to choose, besides float: {','.join(KINDS)} (default: all that can be faster)",
    )
    q.add_argument(
        "--target",
        metavar="NAME",
        help="mixed: where it is to be fast: host, or a GPU (gfx942), for which times are estimates (default: the device)",
    )
    q.add_argument(
        "--confidence",
        type=float,
        default=0.999,
        metavar="P",
        help="mixed: the probability with which as many other samples stay within the budget (default: 0.999)",
    )
    q.add_argument("--plot", metavar="FILE", help="mixed: draw time and error: .png, .svg or .pdf; needs matplotlib")
    q.add_argument("--context", type=int, default=512, metavar="N", help="tokens per part of a text (default: 512)")
    q.add_argument(
        "--top", type=int, default=15, metavar="N", help="rows of the table, most sensitive first (default: 15)"
    )
    q.add_argument("--json", metavar="FILE", help="write the report; - for stdout")
    add_flags(q, _RUN_OPTIONS)
    q.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def _evaluate(a: argparse.Namespace) -> None:
    options = options_of_flags(a, _OPTIONS)
    reference: dict[str, Any] = {k: options[k] for k in ("threads", "cache_dir") if k in options}
    reference["device"] = a.reference_device or "host"
    reference["precision"] = a.reference_precision or "fp32"
    line = ProgressLine(not a.quiet)
    line.show("compiling")
    try:
        found = evaluate(
            a.model,
            a.data,
            reference=a.reference,
            layers=a.layers,
            classifiers=a.classifier,
            samples=a.samples,
            context=a.context,
            options=options,
            reference_options=reference,
            progress=lambda k: line.show(f"sample {k}"),
        )
    finally:
        line.clear()
    if a.json:
        write_json(a.json, found.as_dict())
    if a.json != "-":
        print(evaluation_text(found, saturation=a.saturation))
    if a.plot:
        plot(found, a.plot)
    if a.max_relative is not None:
        for v in found.outputs:
            if not v.relative <= a.max_relative or v.other_shapes:
                raise MismatchError(
                    f"output '{v.name}' has a relative error of {v.relative:.3g}, more than {a.max_relative:g}"
                    + (f", and other shapes in {v.other_shapes} samples" if v.other_shapes else "")
                )


def _quantize(a: argparse.Namespace) -> None:
    line = ProgressLine(not a.quiet)
    try:
        done = quantize(
            a.model,
            a.data,
            output=a.output,
            to=a.to,
            method=a.method,
            percentile=a.percentile,
            per_channel=not a.per_tensor,
            symmetric=a.symmetric,
            smooth=not a.no_smooth,
            correct_bias=not a.no_bias_correction,
            residuals=not a.float_residuals,
            limit=a.limit,
            output_limit=a.output_limit,
            exclude=a.exclude,
            block=a.block,
            weights=a.weights,
            budget=a.budget,
            metric=a.metric,
            types=a.types,
            target=a.target,
            confidence=a.confidence,
            samples=a.samples,
            context=a.context,
            options=options_of_flags(a, _RUN_OPTIONS),
            progress=lambda what, count: line.show(f"{what} {count or ''}"),
        )
    finally:
        line.clear()
    if a.json:
        write_json(a.json, done.report.as_dict())
    if a.json != "-":
        print(quantize_text(done.report, a.top))
    if a.plot:
        plot_tradeoff(done.report, a.plot)


def _run(a: argparse.Namespace) -> None:
    if a.command == "evaluate":
        _evaluate(a)
    else:
        _quantize(a)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    return exit_code(lambda: _run(_parser().parse_args(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
