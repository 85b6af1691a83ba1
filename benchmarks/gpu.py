"""Sardonyx compared with PyTorch on a GPU: whole models, single kernels, first results, memory, rooflines.

    ./dev bench gpu                                              everything, in a checkout on the machine with the GPU; needs torch in .venv
    python benchmarks/gpu.py measure --out results.json          on the machine with the GPU
    python benchmarks/gpu.py report results.json --out docs      anywhere: a page with tables and plots

`measure` writes each row as soon as it is measured and skips rows that are in the file, so that it can be stopped and
continued: `--limit SECONDS`, `--parts models,decode,first`, `--only "ResNet-50 resnet50 batch=8 "` (parts of row
names), `--engines eager,compile,onnxruntime`. README.md describes the measurements.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
PARTS = ["models", "decode", "fixed", "kernels", "profile", "first", "references", "autotune", "chips", "zoo"]
ROWS = {
    "models": "model",
    "references": "reference",
    "autotune": "autotune",
    "fixed": "fixed",
}  # of gpu_models, by part
CHIPS = ["gfx942", "gfx1100", "gfx90a", "gfx950", "gfx1201"]
ENGINES = ["eager", "compile", "onnxruntime"]


def names(known: list[str]):  # type: ignore[no-untyped-def]
    def parse(text: str) -> list[str]:
        chosen = [t for t in text.split(",") if t]
        for t in chosen:
            if t not in known:
                raise argparse.ArgumentTypeError(f"'{t}' is none of {', '.join(known)}")
        return chosen

    return parse


def measure(options: argparse.Namespace) -> None:
    import models
    import torch
    from gpu_measure import Budget, Results, ceilings, environment

    options.models = options.models or models.folder()
    if options.models is None and {*ROWS, "first", "profile", "chips"} & set(options.parts):
        raise SystemExit("no folder of models: name one with --models")
    options.filled = options.filled or pathlib.Path(tempfile.gettempdir()) / "sardonyx-benchmark-models"
    options.decode = options.decode or pathlib.Path(tempfile.gettempdir()) / "sardonyx-benchmark-decode"
    results = Results(options.out, options.again)
    budget = Budget(options.limit)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 is the reference
    torch.backends.cudnn.benchmark = True
    if options.device.startswith("cuda"):
        torch.cuda.set_stream(torch.cuda.Stream())
    with torch.inference_mode():
        seen = environment(options.device) | ({"remark": options.remark} if options.remark else {})
        results.begin(seen, ceilings(options.device))
        for part in options.parts:
            budget.longest = 0.0  # the rows of another part take other times
            part_of(part)(options, results, budget)


def part_of(part: str):  # type: ignore[no-untyped-def]
    """The function that measures the part, of the options, results and budget."""
    if part in ROWS:
        from gpu_models import measure_models

        return functools.partial(measure_models, ROWS[part])
    if part == "first":
        from gpu_models import measure_first as f
    elif part == "decode":
        from gpu_decode import measure_decode as f
    elif part == "kernels":
        from gpu_kernels import measure_kernels as f
    elif part == "zoo":
        from gpu_zoo import measure_zoo as f
    elif part == "profile":
        from gpu_profile import measure_profiles as f
    else:
        from gpu_chips import measure_chips as f
    return f


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    m = commands.add_parser("measure", help="measure on the GPU")
    m.add_argument("--out", type=pathlib.Path, required=True, help="JSON file of results")
    m.add_argument("--again", action="store_true", help="discard the results in the file")
    m.add_argument(
        "--models", type=pathlib.Path, help="directory of skeletons (default: SARDONYX_MODELS, or beside the checkout)"
    )
    m.add_argument("--filled", type=pathlib.Path, help="directory for models with weights (default: temporary)")
    m.add_argument("--device", default="cuda", help="torch's device name: cuda, cuda:1, cpu (to test the program)")
    m.add_argument("--precision", default="fp16", choices=["fp16", "bf16", "fp32"])
    m.add_argument("--parts", type=names(PARTS), default=PARTS)
    m.add_argument("--engines", type=names(ENGINES), default=ENGINES)
    m.add_argument("--only", action="append", default=[], help="rows whose name contains this")
    m.add_argument(
        "--decode", type=pathlib.Path, help="the folder that language_model.py prepared (default: prepared now)"
    )
    m.add_argument("--tiny", action="store_true", help="a small language model, to test the program")
    m.add_argument("--chips", type=names(CHIPS), default=CHIPS[:2], help="chips of the part chips")
    m.add_argument("--cli", default="sardonyx", help="the sardonyx command, for the part chips")
    m.add_argument(
        "--exporter", default="dynamo", choices=["dynamo", "torchscript"], help="of torch.onnx, for the part zoo"
    )
    m.add_argument("--turns", type=int, default=15)
    m.add_argument("--remark", default="", help="a note about this run for the report")
    m.add_argument("--limit", type=float, default=1e9, help="seconds; a row is started only if it is expected to fit")
    m.add_argument("--report", type=pathlib.Path, help="directory for the report, when everything is measured")
    r = commands.add_parser("report", help="write the report of results")
    r.add_argument("results", type=pathlib.Path, nargs="+")
    r.add_argument(
        "--out", type=pathlib.Path, required=True, help="directory for gpu-benchmark.md, plots and the raw data"
    )
    options = parser.parse_args()
    if options.command == "measure":
        try:
            import torch  # noqa: F401
        except ImportError:
            raise SystemExit(
                "this compares with PyTorch, which this Python has not: install torch (and torchvision, transformers)"
            ) from None
        measure(options)
        if options.report:
            from gpu_report import write_report

            write_report([options.out], options.report)
    else:
        from gpu_report import write_report

        write_report(options.results, options.out)


if __name__ == "__main__":
    main()
