"""The zoo as graphs without weights: small files for machines that cannot, or have no time to, export modules.

    python benchmarks/zoo_skeletons.py write DIR [--only resnet] [--exporter dynamo]     needs torch, torchvision, transformers
    python benchmarks/zoo_skeletons.py pack DIR FILE.tar.xz                              one file of all
    python benchmarks/zoo_skeletons.py fill SKELETON OUT.onnx                            needs numpy and onnx

A skeleton is the exported ONNX file in which each large float tensor has kept its shape and statistics (JSON in its
doc_string) and lost its values; `fill` makes normally distributed ones. Integers and tensors of few distinct values
(masks, index tables) stay, so that the graph computes the same.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import math
import multiprocessing
import pathlib
import re
import sys
import tarfile
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

LEAST_ELEMENTS = 64  # smaller tensors keep their values
FEW_VALUES = 16  # a tensor of so few distinct values is a mask or a table
FIXED_BATCHES = (1, 8)  # where the exporter cannot leave the batch symbolic
INLINE_ELEMENTS = 1 << 18  # fill() writes larger tensors to a file beside the model
MANIFEST = "kinds.json"
BLOCK = 1 << 22  # random values that are drawn; longer tensors repeat them
TYPES = {onnx.TensorProto.FLOAT: np.dtype(np.float32), onnx.TensorProto.FLOAT16: np.dtype(np.float16)}


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and values of Constant nodes, of subgraphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from tensors(attribute.g)


def strip(model: onnx.ModelProto) -> int:
    """Removes the values of large float tensors, and what describes the model to people. Returns the elements removed."""
    removed = 0
    for t in tensors(model.graph):
        if t.data_type not in TYPES or math.prod(t.dims) < LEAST_ELEMENTS:
            continue
        values = numpy_helper.to_array(t)
        if len(np.unique(values.flat[:4096])) <= FEW_VALUES or not np.isfinite(values).all():
            continue
        values = values.astype(np.float64) if values.size < BLOCK else values
        statistics = {"mean": float(values.mean()), "deviation": float(values.std())}
        if values.min() > 0:
            statistics["least"] = float(values.min())
        kept = onnx.TensorProto(name=t.name, data_type=t.data_type, dims=t.dims, doc_string=json.dumps(statistics))
        t.CopyFrom(kept)
        removed += values.size
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        del value.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    return removed


def fill(model: onnx.ModelProto, out: pathlib.Path, seed: int = 0) -> None:
    """Writes a skeleton with random weights to `out`; large ones to `out`.data beside it."""
    block = np.random.default_rng(seed).standard_normal(BLOCK, dtype=np.float32)
    data = out.with_name(out.name + ".data")
    with data.open("wb") as file:
        for index, t in enumerate(tensors(model.graph)):
            if t.HasField("raw_data") or not t.doc_string.startswith("{"):
                continue
            statistics = json.loads(t.doc_string)
            t.doc_string = ""
            # Each tensor starts elsewhere in the block, so that no two are equal.
            values = np.resize(np.roll(block, -7919 * (index + 1)), math.prod(t.dims))
            values *= statistics["deviation"]
            values += statistics["mean"]
            if "least" in statistics:
                np.maximum(values, statistics["least"], out=values)
            values = values.astype(TYPES[t.data_type], copy=False)
            if values.size < INLINE_ELEMENTS:
                t.raw_data = values.tobytes()
                continue
            file.write(b"\0" * (-file.tell() % 4096))
            t.raw_data = b"\0"  # set_external_data() wants some, and it is removed
            external_data_helper.set_external_data(t, data.name, offset=file.tell(), length=values.nbytes)
            t.ClearField("raw_data")
            file.write(values.data)
    if data.stat().st_size == 0:
        data.unlink()
    onnx.save(model, out)


class Skeletons:
    """What `write` left in a folder, or `pack` in a file. `kinds`: by name, in the zoo's order (a folder: "", by name)."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        if path.is_dir():
            self.kinds = dict.fromkeys(sorted(p.name.split(".")[0] for p in path.glob("*.onnx")), "")
            return
        with tarfile.open(path) as archive:
            member = archive.extractfile(MANIFEST)
            if member is None:
                raise ValueError(f"{path} has no {MANIFEST}; zoo_skeletons.py pack writes it")
            self.kinds = json.load(member)

    def models(self, name: str) -> dict[int, onnx.ModelProto]:
        """By batch; 0: any batch. Empty if there is none."""
        found = {}
        for file, data in self._files(f"{name}."):
            batch = re.search(r"\.batch(\d+)\.onnx$", file)
            found[int(batch[1]) if batch else 0] = onnx.load_from_string(data)
        return found

    def _files(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        if self.path.is_dir():
            for path in sorted(self.path.glob(f"{prefix}*.onnx")):
                yield path.name, path.read_bytes()
            return
        with tarfile.open(self.path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.startswith(prefix) else None
                if file:
                    yield member.name, file.read()


def pack(folder: pathlib.Path, out: pathlib.Path) -> None:
    """One compressed file of a folder of skeletons, with their kinds. Similar networks lie side by side."""
    import zoo

    names = {p.name.split(".")[0] for p in folder.glob("*.onnx")}
    kinds = {a.name: a.kind for a in zoo.architectures() if a.name in names}
    with (
        lzma.open(out, "wb", preset=9 | lzma.PRESET_EXTREME) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        files = [(MANIFEST, json.dumps(kinds).encode())]
        for name in kinds:
            files += [(p.name, p.read_bytes()) for p in sorted(folder.glob(f"{name}.*.onnx"))]
        for file, data in files:
            member = tarfile.TarInfo(file)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    print(f"{len(kinds)} architectures, {out.stat().st_size / 1e6:.2f} MB")


def write_one(name: str, folder: pathlib.Path, exporter: str, small: bool) -> str:
    """In a process of its own. Returns a line that says what was written."""
    import torch
    import zoo
    from zoo_export import export

    start = time.monotonic()
    row = next(a for a in zoo.architectures(small) if a.name == name)
    torch.set_num_threads(1)
    path = folder / f"{name}.{exporter}.part"
    sizes = []
    with torch.no_grad():
        module = row.module()
        symbolic = export(module, row.inputs(2), path, exporter)
        for batch in ("any",) if symbolic else FIXED_BATCHES:
            if not symbolic:
                export(module, row.inputs(batch), path, exporter)
            model = onnx.load(path)
            removed = strip(model)
            onnx.save(model, folder / f"{name}.{exporter}{'' if symbolic else f'.batch{batch}'}.onnx")
            sizes.append(model.ByteSize())
    for file in folder.glob(f"{path.name}*"):
        file.unlink()
    batch_text = "" if symbolic else f"; batches {FIXED_BATCHES}: the exporter cannot leave the batch symbolic"
    return f"{name}: {removed / 1e6:.1f} M weights, {sum(sizes) / 1e3:.0f} kB, {time.monotonic() - start:.0f} s{batch_text}"


def guarded(task: tuple[str, pathlib.Path, str, bool]) -> str:
    try:
        return write_one(*task)
    except Exception as error:
        traceback.print_exc()
        return f"{task[0]}: FAILED {type(error).__name__}: {str(error).strip().splitlines()[:1]}"


def write(options: Any) -> int:
    import zoo

    options.folder.mkdir(parents=True, exist_ok=True)
    names = [a.name for a in zoo.architectures() if not options.only or any(o in a.name for o in options.only)]
    missing = [n for n in names if not list(options.folder.glob(f"{n}.{options.exporter}*.onnx"))]
    failed = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=4) as pool:
        for line in pool.imap_unordered(
            guarded, [(n, options.folder, options.exporter, options.small) for n in missing]
        ):
            failed += "FAILED" in line
            print(line, flush=True)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    w = commands.add_parser("write", help="export the zoo; files that exist are kept")
    w.add_argument("folder", type=pathlib.Path)
    w.add_argument("--only", action="append", default=[], help="part of a name")
    w.add_argument("--exporter", default="dynamo", choices=["dynamo", "torchscript"])
    w.add_argument("--small", action="store_true", help="small sizes, for simulated chips")
    w.add_argument("--jobs", type=int, default=1)
    p = commands.add_parser("pack", help="one file of all skeletons of a folder")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    f = commands.add_parser("fill", help="give a skeleton random weights")
    f.add_argument("skeleton", type=pathlib.Path)
    f.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    if options.command == "write":
        return write(options)
    if options.command == "pack":
        pack(options.folder, options.out)
    else:
        fill(onnx.load(options.skeleton), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
