"""The plots of the GPU report."""

from __future__ import annotations

import pathlib
from typing import Any

from gpu_results import of_part


def plots(data: dict[str, Any], ratios: dict[str, float], out: pathlib.Path) -> list[str]:
    """Writes the plots; returns the names of the files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sardonyx"  # the same data gives the same file
    import matplotlib.pyplot as plt

    made = []

    def save(figure: Any, name: str) -> None:
        figure.tight_layout()
        figure.savefig(out / name, metadata={"Date": None})
        plt.close(figure)
        made.append(name)

    if ratios:
        figure, axes = plt.subplots(figsize=(9, 0.3 * len(ratios) + 1.2))
        names = list(reversed(ratios))
        values = [1 / ratios[n] for n in names]
        axes.barh(names, values, color=["tab:green" if v >= 1 else "tab:orange" for v in values])
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xlabel("speed over torch.compile (higher is better)")
        save(figure, "gpu-models.svg")
    points = {
        part: [
            (r["operations"] / r["bytes"], r["operations"] * r["repeats"] / r["engines"]["sardonyx"]["median"] / 1e12)
            for r in of_part(data, part).values()
            if "engines" in r and "sardonyx" in r["engines"]
        ]
        for part in ("gemm", "conv", "attention")
    }
    points["kernels of models"] = [
        (k["operations"] / k["bytes"], k["operations"] / k["seconds"] / 1e12)
        for r in of_part(data, "profile").values()
        for k in r.get("kernels", [])
        if k.get("operations") and k.get("bytes") and k["seconds"]
    ]
    ceilings = next((c for r in reversed(data["runs"].values()) if (c := r.get("ceilings"))), None)
    if ceilings and any(points.values()):
        figure, axes = plt.subplots(figsize=(8, 5))
        for part, found in points.items():
            if found:
                axes.scatter(*zip(*found), s=14, alpha=0.7, label=part)
        x = [2**k for k in range(-2, 13)]
        axes.plot(
            x,
            [min(ceilings["operations_per_second"], i * ceilings["bytes_per_second"]) / 1e12 for i in x],
            color="black",
            linewidth=1,
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("operations for each byte")
        axes.set_ylabel("TFLOP/s")
        axes.legend()
        save(figure, "gpu-roofline.svg")
    return made
