"""Perplexity of a language model in 4 bits: sardonyx.quantize beside the methods of onnxruntime-genai's model builder.

    python benchmarks/language_accuracy.py FOLDER --data TEXT --texts A,B [--block 32] [--rows gptq,rtn,default,k_quant]

needs onnxruntime, onnx_ir, tokenizers. FOLDER: a model in float32 (convert-gguf --precision fp32). --data: a text or a folder of
.html, .md or .txt files, of which 12 parts of 256 tokens calibrate; --texts: others, of each of which 8 parts of 256 tokens are
compared. The builder quantises by onnxruntime.quantization's MatMulNBitsQuantizer: `default`, `rtn-ort` and `k_quant` are its algo_config
of this name, symmetric as the builder has it unless the row ends in -asymmetric. All rows have the same blocks and leave the
vocabulary's product in float; Sardonyx runs all of them.
"""

from __future__ import annotations

import argparse
import html
import pathlib
import re
import shutil
import tempfile
import time
from typing import Any

import onnx
import sardonyx

PART = 256  # tokens
OURS = ("gptq", "awq", "rtn")
THEIRS = ("default", "default-asymmetric", "rtn-ort", "k_quant")


def text_of(path: pathlib.Path) -> str:
    """The words of a file or of a folder's files, in the order of their names."""
    files = sorted(f for f in path.rglob("*") if f.suffix in (".html", ".md", ".txt")) if path.is_dir() else [path]
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        if file.suffix == ".html":
            main = re.search(r"<main>(.*)</main>", text, re.S)
            if main is None or file.name in ("print.html", "toc.html"):
                continue
            text = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<(script|style).*?</\1>", "", main[1], flags=re.S)))
        found.append(re.sub(r"[ \t]+", " ", re.sub(r"\n\s*\n+", "\n\n", text)).strip())
        if sum(map(len, found)) > 1 << 18:
            break
    return "\n\n".join(found)


def logits_product(model: onnx.ModelProto) -> str:
    """The name of the node that computes the logits."""
    makers = {o: n for n in model.graph.node for o in n.output}
    node = makers[model.graph.output[0].name]
    while node.op_type != "MatMul":
        node = makers[node.input[0]]
    return str(node.name)


def with_onnxruntime(folder: pathlib.Path, out: pathlib.Path, row: str, block: int) -> None:
    from onnxruntime.quantization import matmul_nbits_quantizer as ort

    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.onnx", "*.data"))
    model = onnx.load(folder / "model.onnx")
    kind, _, asymmetric = row.partition("-asym")
    own = {
        "default": None,
        "rtn-ort": ort.RTNWeightOnlyQuantConfig(),
        "k_quant": ort.KQuantWeightOnlyQuantConfig(),
    }[kind]
    done = ort.MatMulNBitsQuantizer(
        model,
        block_size=block,
        is_symmetric=not asymmetric,
        nodes_to_exclude=[logits_product(model)],
        algo_config=own,
    )
    done.process()
    onnx.save_model(
        done.model.model,
        out / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=1024,
    )


def quantised(folder: pathlib.Path, out: pathlib.Path, row: str, data: str, block: int) -> None:
    if row in THEIRS:
        return with_onnxruntime(folder, out, row, block)
    head = logits_product(onnx.load(folder / "model.onnx", load_external_data=False))
    own: dict[str, Any] = {"data": [data], "context": PART, "samples": 12}
    sardonyx.quantize(folder, to="int4", output=out, weights=row, block=block, exclude=[head], **own)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--texts", required=True)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--rows", default=",".join((*OURS, *THEIRS)))
    a = parser.parse_args()
    data, texts = text_of(a.data), {t: text_of(pathlib.Path(t)) for t in a.texts.split(",")}
    for row in a.rows.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            begun, out = time.perf_counter(), pathlib.Path(temporary) / "model"
            try:
                quantised(a.folder, out, row, data, a.block)
            except Exception as error:  # what a method does not support
                print(f"{row:20} failed: {type(error).__name__}: {str(error)[:100]}", flush=True)
                continue
            seconds, shown = time.perf_counter() - begun, []
            for name, text in texts.items():
                e = sardonyx.evaluate(out, [text], reference=a.folder, context=PART, samples=8).text
                shown.append(
                    f"{pathlib.Path(name).name}: {e.perplexity:.2f} of {e.reference_perplexity:.2f} ({100 * (e.ratio - 1):+.1f} %)"
                )
            print(f"{row:20} {'; '.join(shown)} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
