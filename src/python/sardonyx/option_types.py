"""Types of the options of compile() and load().

tools/options_doc.py generates this file from include/sardonyx/compile_options.h; do not edit it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict


class LoadOptions(TypedDict, total=False):
    """Options that also apply when a compiled program is loaded."""

    #: where to run: host (this machine's CPU), hip, cuda:1; `sardonyx devices` lists them.
    device: str
    #: threads to compile and run with.
    threads: int
    #: directory of the cache of compiled code; "" for none.
    cache_dir: str | os.PathLike[str] | None
    #: the vendor's GEMM library (cuBLASLt, hipBLASLt), used where tuning found it to be the fastest; off: never
    #: used.
    product_library: str | os.PathLike[str] | None
    #: on a GPU, replays runs whose sizes have occurred before as one HIP or CUDA graph.
    graphs: bool
    #: bytes of GPU memory that the model may use; 0: no limit.
    device_memory_limit: int


class CompileOptions(LoadOptions, total=False):
    """All options of compiling."""

    #: fp32: the model's own types; fp16 or bf16: weights and activations in 16 bits, accumulated in 32; int8 or
    #: fp8: GEMMs and convolutions in 8 bits, with a calibration table.
    precision: str
    #: ranges of the activations, for int8 and fp8; with fp16, tensors beyond its range stay in float32.
    calibration_table: str | os.PathLike[str] | None
    #: fixes a symbolic dim of the inputs; the program is then for this size only: batch=1.
    dims: Mapping[str, int] | None
    #: how GPU kernels of GEMMs, convolutions and attention are chosen: off (by the cost model, or from the
    #: database), first-use (the most promising candidates are timed when sizes first occur) or exhaustive (all
    #: candidates are timed).
    tuning: str
    #: file with the measured times of GPU kernels; tuning (`sardonyx tune`) writes it.
    tuning_database: str | os.PathLike[str] | None
    #: without fusion every value has its own kernel, which helps to find the cause of a wrong result.
    fuse: bool
    #: makes every named intermediate value an output.
    all_outputs: bool
    #: compiles all kernels before the model is ready, also those that only some sizes or branches need; otherwise
    #: these are compiled in the background, or when a run first needs one.
    compile_ahead: bool
    #: on a GPU, keeps constant weights of 4 and 8 bits in 16 bits too, for GEMMs of many rows, which otherwise
    #: unpack them in each run.
    unpacked_weights: bool
    #: TOML file of custom operators: kernels in CUDA or HIP, or expressions.
    custom_operators: str | os.PathLike[str] | None
