"""Writes small TFLite files with the flatbuffers package, for tests without TensorFlow.

    x = t("x", FLOAT32, [2, 3]); y = t("y", FLOAT32, [2, 3])
    model([x, y], [op(0, [0, 0], [1], {0: ("int8", 1)})], inputs=[0], outputs=[1])

Numbers of fields, types and operators are those of TFLite's schema.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np

FLOAT32, INT32, UINT8, INT64, STRING, BOOL, INT8 = 0, 2, 3, 4, 5, 6, 9
CODES = {"float32": FLOAT32, "int32": INT32, "uint8": UINT8, "int64": INT64, "bool": BOOL, "int8": INT8}
WIDTHS = {"int8": 1, "bool": 1, "uint8": 1, "int32": 4, "uint32": 4, "float32": 4, "int64": 8}


def t(name: str, dtype: int, shape: list[int], data: np.ndarray | None = None, scale: float = 0, zero: int = 0,
      **more: Any) -> dict[str, Any]:  # fmt: skip
    return {"name": name, "type": dtype, "shape": shape, "data": data, "scale": scale, "zero": zero, **more}


def constant(name: str, value: Any, **more: Any) -> dict[str, Any]:
    array = np.asarray(value)
    return t(name, CODES[array.dtype.name], list(array.shape), array, **more)


def op(code: int, inputs: list[int], outputs: list[int], options: dict[int, tuple[str, Any]] | None = None,
       custom: str | None = None) -> dict[str, Any]:  # fmt: skip
    return {"code": code, "inputs": inputs, "outputs": outputs, "options": options or {}, "custom": custom}


class Writer:
    def __init__(self) -> None:
        self.b = flatbuffers.Builder(1024)

    def numbers(self, values: Any, dtype: str) -> int:
        return int(self.b.CreateNumpyVector(np.asarray(values, dtype).ravel()))

    def offsets(self, offsets: list[int]) -> int:
        self.b.StartVector(4, len(offsets), 4)
        for o in reversed(offsets):
            self.b.PrependUOffsetTRelative(o)
        return int(self.b.EndVector())

    def table(self, fields: dict[int, tuple[str, Any]]) -> int:
        """Each field is (its type, value); "ref" is an offset that was written before."""
        ready = {}
        for k, (kind, value) in fields.items():
            if kind == "text":
                kind, value = "ref", self.b.CreateString(value)
            elif kind.startswith("list "):
                kind, value = "ref", self.numbers(value, kind[5:])
            ready[k] = (kind, value)
        self.b.StartObject(max(ready, default=-1) + 1)
        for k, (kind, value) in ready.items():
            if kind == "ref":
                self.b.PrependUOffsetTRelativeSlot(k, value, 0)
            else:
                getattr(self.b, f"Prepend{kind.capitalize()}Slot")(k, value, None)
        return int(self.b.EndObject())


def model(tensors: Any, operators: Any, inputs: Any, outputs: Any, *further: Any, version: int = 3) -> bytes:
    """A file; `further`: more subgraphs, as (tensors, operators, inputs, outputs)."""
    w = Writer()
    buffers, codes, graphs = [w.table({})], [], []
    known: dict[tuple[int, str | None], int] = {}
    for ts, os_, ins, outs in [(tensors, operators, inputs, outputs), *further]:
        tables = []
        for x in ts:
            fields = {0: ("list int32", x["shape"]), 1: ("int8", x["type"]), 3: ("text", x["name"])}
            if x["data"] is not None:
                fields[2] = ("uint32", len(buffers))
                buffers.append(w.table({0: ("list uint8", np.frombuffer(x["data"].tobytes(), np.uint8))}))
            if x["scale"]:
                quantization = {2: ("list float32", [x["scale"]]), 3: ("list int64", [x["zero"]])}
                fields[4] = ("ref", w.table(quantization))
            if "signature" in x:
                fields[7] = ("list int32", x["signature"])
            tables.append(w.table(fields))
        rows = []
        for o in os_:
            key = (o["code"], o["custom"])
            if key not in known:
                known[key] = len(codes)
                custom = {} if o["custom"] is None else {1: ("text", o["custom"])}
                codes.append(w.table({0: ("int8", min(o["code"], 127)), 3: ("int32", o["code"]), **custom}))
            fields = {0: ("uint32", known[key]), 1: ("list int32", o["inputs"]), 2: ("list int32", o["outputs"])}
            if o["options"]:
                fields |= {3: ("uint8", 1), 4: ("ref", w.table(o["options"]))}
            rows.append(w.table(fields))
        graphs.append(
            w.table(
                {
                    0: ("ref", w.offsets(tables)),
                    1: ("list int32", ins),
                    2: ("list int32", outs),
                    3: ("ref", w.offsets(rows)),
                }
            )
        )
    fields = {
        0: ("uint32", version),
        1: ("ref", w.offsets(codes)),
        2: ("ref", w.offsets(graphs)),
        4: ("ref", w.offsets(buffers)),
    }
    w.b.Finish(w.table(fields), b"TFL3")
    return bytes(w.b.Output())
