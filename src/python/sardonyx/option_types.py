"""Types of the options of compile() and load().

tools/options_doc.py generates this file from include/sardonyx/compile_options.h; do not edit it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict


class LoadOptions(TypedDict, total=False):
    """Options that also apply to a program that is compiled already."""

    #: where to run: host (this machine's CPU), hip, cuda:1; `sardonyx devices` lists them.
    device: str
    #: threads to compile and run with.
    threads: int
    #: directory of the cache of compiled code; "" for none.
    cache_dir: str | os.PathLike[str] | None
    #: the vendor's GEMM library (cuBLASLt, hipBLASLt), which runs where tuning measured it to be the fastest; off:
    #: never.
    product_library: str | os.PathLike[str] | None
    #: on a GPU, runs of sizes seen before are replayed as one HIP or CUDA graph.
    graphs: bool
    #: bytes of GPU memory that the model may use; 0: no limit.
    device_memory_limit: int


class CompileOptions(LoadOptions, total=False):
    """All options of compiling."""

    #: fp32: the model's own types; fp16 or bf16: weights and activations in 16 bits, accumulated in 32; int8 or
    #: fp8: GEMMs and convolutions in 8 bits, with a calibration table.
    precision: str
    #: the ranges of the activations, for int8 and fp8; with fp16, values that leave its range stay in float32.
    calibration_table: str | os.PathLike[str] | None
    #: fixes a symbolic dim of the inputs, so that the program is for this size alone: batch=1.
    dims: Mapping[str, int] | None
    #: how GPU kernels of GEMMs, convolutions and attention are chosen: off (by rule, or as the database says),
    #: first-use (the most promising are timed when a run first has some sizes) or exhaustive (all are).
    tuning: str
    #: file of measured times of GPU kernels, which tuning (`sardonyx tune`) writes.
    tuning_database: str | os.PathLike[str] | None
    #: without fusion there is one kernel for each value, to find a wrong result.
    fuse: bool
    #: every named intermediate value becomes an output.
    all_outputs: bool
    #: operators of your own, in a TOML file: kernels in CUDA's or HIP's language, or expressions.
    custom_operators: str | os.PathLike[str] | None
