"""The files of results that gpu.py writes: merged, and read by part."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any


def label(key: str) -> str:
    """A row's key, "ViT-B/16/batch=8", for people."""
    name, _, sizes = key.rpartition("/")
    return f"{name}, {sizes}" if name else sizes


def runs_of(one: dict[str, Any]) -> dict[str, Any]:
    """By date. A file without runs was written by a version that had one environment for all rows."""
    if one.get("runs"):
        return dict(one["runs"])
    environment = one.get("environment", {})
    return {environment.get("date", "some day"): {"environment": environment, "ceilings": one.get("ceilings") or {}}}


def merged(paths: list[pathlib.Path]) -> dict[str, Any]:
    """Later files' rows replace earlier ones', but a row that failed none that did not. Kept are the runs with rows."""
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
    """For sorting: numbers by their value."""
    return [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", key)]


def of_part(data: dict[str, Any], part: str) -> dict[str, Any]:
    rows = {k.partition("/")[2]: r for k, r in data["rows"].items() if k.partition("/")[0] == part}
    return {k: rows[k] for k in sorted(rows, key=natural)}


def number_of(data: dict[str, Any], row: dict[str, Any]) -> str:
    """Of the run that measured it, as the page counts them."""
    return str(list(data["runs"]).index(row["run"]) + 1)


def ceilings_of(data: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
    """Measured in the row's run; empty where there was no card."""
    return data["runs"][row["run"]].get("ceilings") or {}
