"""Reads and merges the files of results that gpu.py writes."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any


def label(key: str) -> str:
    """A readable form of a row's key, "ViT-B/16/batch=8"."""
    name, _, sizes = key.rpartition("/")
    return f"{name}, {sizes}" if name else sizes


def runs_of(one: dict[str, Any]) -> dict[str, Any]:
    """The runs of a file, by date. A file without runs is from an old version, which stored one environment for all rows."""
    if one.get("runs"):
        return dict(one["runs"])
    environment = one.get("environment", {})
    return {environment.get("date", "some day"): {"environment": environment, "ceilings": one.get("ceilings") or {}}}


def merged(paths: list[pathlib.Path]) -> dict[str, Any]:
    """Rows of later files replace earlier ones, except that a failed row does not replace a measured one. Runs without rows are
    dropped."""
    data: dict[str, Any] = {"runs": {}, "rows": {}}
    for path in paths:
        one = json.loads(path.read_text())
        runs = runs_of(one)
        data["runs"] |= runs
        for key, row in one["rows"].items():
            if key in data["rows"] and "failed" in row and "failed" not in data["rows"][key]:
                continue
            data["rows"][key] = {"run": next(iter(runs)), **row}
    used = {r["run"] for r in data["rows"].values()}
    data["runs"] = {k: v for k, v in sorted(data["runs"].items()) if k in used}
    return data


def natural(key: str) -> list[Any]:
    """A sort key in which numbers are ordered by value."""
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", key)]


def of_part(data: dict[str, Any], part: str) -> dict[str, Any]:
    rows = {k.partition("/")[2]: r for k, r in data["rows"].items() if k.partition("/")[0] == part}
    return {k: rows[k] for k in sorted(rows, key=natural)}


def number_of(data: dict[str, Any], row: dict[str, Any]) -> str:
    """The number on the page of the run that measured the row."""
    return str(list(data["runs"]).index(row["run"]) + 1)


def ceilings_of(data: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
    """The ceilings that the row's run measured; empty without a GPU."""
    return data["runs"][row["run"]].get("ceilings") or {}
