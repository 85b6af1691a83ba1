"""Models compiled for chips that are not present: each launch's bytes, operations, matrix instructions, registers, LDS and
occupancy, and the least time that the chip's data sheet allows. Needs neither a GPU nor PyTorch: `sardonyx compile --report`."""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
from typing import Any

#: name: file, sizes of symbolic dims
MODELS = {
    "ResNet-50": ("resnet50", {"batch": 8}),
    "BERT-Base": ("bert_base", {"batch": 8, "sequence": 512}),
    "ViT-B/16": ("vit_b_16_dynamo", {"batch": 8}),
    "Whisper-tiny encoder": ("whisper_tiny_encoder", {"batch": 8}),
    "YOLOv5s": ("yolov5s", {"batch": 8}),
}
CODE = ("vgprs", "agprs", "sgprs", "lds_bytes", "waves_per_simd", "instructions", "matrix_instructions", "verdict")


def measure_chips(options: Any, results: Any, budget: Any) -> None:
    import models

    for chip in options.chips:
        for name, (file, sizes) in MODELS.items():
            text = " ".join(f"{k}={v}" for k, v in sizes.items())
            key = f"chip/{chip}/{name}/{text}"
            if results.has(key) or (options.only and not any(o in f"{chip} {name} {file} " for o in options.only)):
                continue
            if not budget.begin():
                print(f"{key}: no time left", flush=True)
                return
            path = models.fill(options.models, options.filled / f"{file}.onnx")
            row: dict[str, Any] = {"chip": chip, "name": name, "sizes": sizes, "precision": options.precision}
            try:
                row |= report_of(options.cli, path, chip, sizes, options.precision)
            except (OSError, subprocess.SubprocessError) as error:
                stderr = getattr(error, "stderr", "") or ""
                row["failed"] = f"{error} {stderr}".strip()[:500]
            results.add(key, row)
            budget.done()
            print(key, row.get("failed") or f"{len(row['launches'])} launches", flush=True)


def report_of(cli: str, path: pathlib.Path, chip: str, sizes: dict[str, int], precision: str) -> dict[str, Any]:
    command = [cli, "compile", path, "--arch", chip, "--precision", precision, "--report"]
    for dim, size in sizes.items():
        command += ["--dim", f"{dim}={size}"]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "report.json"
        subprocess.run([*map(str, command), "--json", str(out)], check=True, capture_output=True, text=True)
        (found,) = json.loads(out.read_text())
    code = {k["kernel"]: k for k in found["code"]}
    launches = [{**x, **{f: code[x["kernel"]][f] for f in CODE}} for x in found["launches"]]
    return {"launches": launches, "kernels": len(code), "spills": sum(bool(k["vgpr_spills"]) for k in code.values())}
