"""Writes docs/operators.md: every operator, its supported operator sets and dtypes, and why it is not supported if it is not.

    tools/operators_doc.py            # writes it
    tools/operators_doc.py --check    # fails if it is out of date

Needs the built Python package on PYTHONPATH, and the onnx and onnxruntime packages for their lists of operators.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "operators.md"

# Why an operator is not supported: the first pattern that matches its full name. Every unsupported operator must match one.
REASONS = {
    "": [
        (r"SequenceMap", "graphs over sequences are out of scope"),
        (r"Optional\w*", "optionals are out of scope"),
        (r"String\w*|RegexFullMatch|TfIdfVectorizer", "strings are out of scope"),
        (r"ImageDecoder", "image decoding is out of scope"),
    ],
    "com.microsoft": [
        (r"\w*(BeamSearch|GreedySearch|Sampling)|SampleOp", "whole decoding loops belong to the caller"),
        (r"Tokenizer|MurmurHash3|WordConvEmbedding|N?\w*NGram\w*", "text processing is out of scope"),
        (r"Bi(t|as)maskBias?Dropout|BiasDropout|Bitmask\w*", "training is out of scope"),
        (r"EPContext|Snpe|NhwcMaxPool|Nhwc\w+|QOrdered\w+|\w+WithOrder|\w+BFP|Gemm(Float8|FastGelu)|DynamicTimeWarping|UnfoldTensor|MatMulFpQ4",
         "internal to other execution providers"),
        (r"(Packed|Paged|Sparse|Dynamic|Decoder|Longformer|Q)\w*Attention\w*|RemovePadding|RestorePadding|Varlen\w+|\w*DeltaNet|"
         r"RelativePositionBias|GatedRelativePositionBias", "this form of attention is not supported"),
        (r"Q?MoE|MatMul(Bnb4|BlockQuantized\w+|NBits\w+)|Branchwise\w+|Gated\w+|Engram\w+|HyperConnection\w+|LinearAttention\w*|MRotary\w+|Gemma\w+|"
         r"BiasSplitGelu|SkipGroupNorm|GroupNorm|BiasAdd|BiasSoftmax|CausalConvWithState|QEmbedLayerNormalization|DynamicQuantizeLSTM|AttnLSTM",
         "not implemented; export with operators of the default domain"),
        (r".*", "not among the supported quantised and transformer operators"),
    ],
}  # fmt: skip

HEAD = """# Operators

`tools/operators_doc.py` generates this page from the operators' definitions (src/ops/); do not edit it.

Anything that is not listed as supported is refused when a model is compiled, with the node's name and the reason. Operators follow the semantics of
the operator set that the model imports.

- "numbers" are all integers and floats of 8 to 64 bits and bfloat16; "floats" are float16, bfloat16, float32 and float64.
- The 8-bit floats and the types of 4 and 2 bits can be stored, cast, quantised, dequantised, and moved by operators that take all dtypes.
- Sequences of tensors are supported where their lengths and positions are known when compiling; inputs, outputs and carried values are tensors. Tensors of strings, optionals and sparse tensors as values are out of scope. Sparse initializers are converted to dense ones.
"""


def schemas():
    """{name: versions} of the default domain as onnx knows it."""
    from onnx import defs

    versions: dict[str, list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, []).append(schema.since_version)
    return {name: sorted(v) for name, v in versions.items()}, {
        s.name for s in defs.get_all_schemas_with_history() if s.deprecated and not s.domain
    }


def contrib_names() -> set[str]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return {s.name for s in state.get_all_operator_schema() if s.domain == "com.microsoft"}


def reason(domain: str, name: str) -> str:
    for pattern, why in REASONS[domain]:
        if re.fullmatch(pattern, name):
            return why
    raise SystemExit(f"{Path(__file__).name}: operator {name} is not supported, and REASONS has no reason for it")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines) + "\n"


def page() -> str:
    import sardonyx

    known = {
        (domain, name): (oldest, dtypes, notes)
        for domain, name, oldest, dtypes, notes in sardonyx._sardonyx.operators()
    }
    versions, deprecated = schemas()
    rows, refused = [], []
    for name in sorted(versions):
        if ("", name) not in known:
            refused.append([name, reason("", name)])
            continue
        oldest, dtypes, notes = known["", name]
        first = max(oldest, versions[name][0])
        text = f"{first} on" if name not in deprecated else f"{first} to {versions[name][-1] - 1}"
        changed = [str(v) for v in versions[name] if v > first]
        rows.append([name, text, ", ".join(changed), dtypes, notes])
    extra = sorted(name for domain, name in known if domain == "" and name not in versions)
    microsoft = [
        [name, *known["com.microsoft", name][1:]] for domain, name in sorted(known) if domain == "com.microsoft"
    ]
    own = [[name, *known["com.sardonyx", name][1:]] for domain, name in sorted(known) if domain == "com.sardonyx"]
    left = sorted(contrib_names() - {name for domain, name in known if domain == "com.microsoft"})
    parts = [
        HEAD,
        f'## ai.onnx (the default domain)\n\n{len(rows)} of {len(versions)} operators. "Versions" are the operator sets that changed the operator; all of them are implemented.\n',
        table(["operator", "operator sets", "versions", "dtypes", "notes"], rows),
        "Not supported:\n",
        table(["operator", "reason"], refused),
    ]
    if extra:
        parts.append("Known to runtimes, but not part of the standard: " + ", ".join(extra) + ".\n")
    parts += [
        f"## com.microsoft\n\n{len(microsoft)} operators.\n",
        table(["operator", "dtypes", "notes"], microsoft),
        "Operators of ONNX Runtime that are not supported:\n",
        table(["operator", "reason"], [[name, reason("com.microsoft", name)] for name in left]),
        "## com.sardonyx\n\nFor graphs that Sardonyx builds; they may change.\n",
        table(["operator", "dtypes", "notes"], own),
        "Other domains (ai.onnx.ml, ai.onnx.preview.training, other vendors') are not supported, except for functions that the model itself defines.\n",
    ]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check whether the page is up to date")
    check = parser.parse_args().check
    text = page()
    if check:
        if not PAGE.exists() or PAGE.read_text() != text:
            print(f"{PAGE.relative_to(PAGE.parents[1])} is out of date: run tools/operators_doc.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
