"""Compares Sardonyx with ONNX Runtime's CPU provider: compile time, latency, peak memory. See README.md."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import models
import numpy as np

ENGINES = ("sardonyx", "onnxruntime")
ONE_THREAD = "sardonyx, one thread"  # takes part with --busy
#: seconds before a turn: threads of the previous engine go on spinning (ONNX Runtime's for about 0.1 s), during which runs of
#: the other engine took twice as long
PAUSE = 0.5


class BusyProcesses:
    """Processes that compute for as long as the context lasts; they end by themselves if this program is killed."""

    PROGRAM = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))\n"

    def __init__(self, count: int):
        self.count = count
        self.processes: list[subprocess.Popen] = []

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", self.PROGRAM]) for _ in range(self.count)]
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


class Worker:
    def __init__(self, engine: str, model: Path, threads: int, inputs: Path, cache: Path):
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("worker.py"), engine, model, str(threads), inputs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        )

    def ask(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self.process.args[1:4]))} ended without an answer")
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def spread(times: list[float]) -> list[float]:
    """Median, 10th and 90th percentile, in milliseconds."""
    return [float(np.percentile(times, q)) * 1e3 for q in (50, 10, 90)]


def measure(path: Path, options: argparse.Namespace, temporary: Path) -> dict:
    sizes = models.SIZES.get(path.stem, [{}])[0]
    inputs = temporary / "inputs.npz"
    np.savez(inputs, **models.inputs(path, sizes))
    cache = temporary / path.stem
    result: dict = {"sizes": sizes}
    with Worker("sardonyx", path, options.threads, inputs, cache) as cold:
        result["compile_s"] = cold.ask("load")
        result["first_run_s"] = cold.ask("first")
        result["cold_peak_bytes"] = cold.ask("memory")
    workers = {e: Worker(e, path, options.threads, inputs, cache) for e in ENGINES}
    if options.busy:
        workers[ONE_THREAD] = Worker("sardonyx", path, 1, inputs, cache)
    times: dict[str, list[float]] = {e: [] for e in workers}
    for engine, w in workers.items():
        result[engine] = {"load_s": w.ask("load"), "first_s": w.ask("first")}
        w.ask("run", 0, options.warmup)
    with BusyProcesses(options.busy):
        for _ in range(options.turns):
            for engine, w in workers.items():
                time.sleep(PAUSE)
                times[engine] += w.ask("run", options.seconds / options.turns, 2)
    for engine, w in workers.items():
        with w:
            result[engine] |= {"ms": spread(times[engine]), "runs": len(times[engine]), "peak_bytes": w.ask("memory")}
    result["ratio"] = result["sardonyx"]["ms"][0] / result["onnxruntime"]["ms"][0]
    if options.busy:
        result["one_thread_ratio"] = result["sardonyx"]["ms"][0] / result[ONE_THREAD]["ms"][0]
    result["memory_ratio"] = result["sardonyx"]["peak_bytes"] / result["onnxruntime"]["peak_bytes"]
    return result


def machine() -> str:
    name = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
    return f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="names (resnet50) or files; all of SARDONYX_MODELS by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4, help="time for the runs of each engine and model")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=2, help="runs that are not measured")
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="run N busy processes beside, and Sardonyx with one thread too"
    )
    parser.add_argument("--filled", type=Path, default=Path("build/models"), help="directory of filled skeletons")
    parser.add_argument("--json", type=Path, help="write all measurements")
    options = parser.parse_args()

    import onnxruntime
    import sardonyx

    folder = models.folder()
    known = models.find(folder, options.filled) if folder else {}
    chosen = []
    for name in options.models or known:
        if name in known:
            chosen.append(models.fill(folder, known[name]).resolve())
        elif Path(name).is_file():
            chosen.append(Path(name).resolve())
        else:
            parser.error(
                f"no model {name}: give a file, or set SARDONYX_MODELS to a folder of models (benchmarks/README.md)"
            )
    if not chosen:
        parser.error("no models: give files, or set SARDONYX_MODELS to a folder of models (benchmarks/README.md)")

    beside = f"; beside {options.busy} busy processes" if options.busy else ""
    print(f"{machine()}; {options.threads} threads{beside}")
    print(
        f"Sardonyx {sardonyx.__version__}, ONNX Runtime {onnxruntime.__version__} (CPUExecutionProvider), Python {platform.python_version()}"
    )
    print(f"command: {' '.join(sys.argv)}\n")
    print("median milliseconds [10 % - 90 %]; ratios are ours to ONNX Runtime's: below 1 is faster, smaller")
    head = f"{'model':<36}{'compile':>9}{'cached':>8}{'ms':>10}{'spread':>19}{'ORT ms':>10}{'spread':>19}{'ratio':>7}{'peak MB':>9}{'ORT':>7}{'ratio':>7}{'cold MB':>9}"
    if options.busy:
        head += f"{'1 thread ms':>13}{'ratio':>7}"
    print(head + "\n" + "-" * len(head))
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for path in chosen:
            try:
                r = results[path.stem] = measure(path, options, Path(temporary))
            except RuntimeError as error:
                print(f"{path.stem:<36}failed: {error}", flush=True)
                results[path.stem] = {"failed": str(error)}
                continue
            ours, theirs = r["sardonyx"], r["onnxruntime"]
            ranges = ["[{1:.4g} - {2:.4g}]".format(*e["ms"]) for e in (ours, theirs)]
            print(
                f"{path.stem:<36}{r['compile_s']:>8.2f}s{ours['load_s']:>7.2f}s{ours['ms'][0]:>10.3f}{ranges[0]:>19}{theirs['ms'][0]:>10.3f}{ranges[1]:>19}"
                f"{r['ratio']:>7.2f}{ours['peak_bytes'] / 1e6:>9.0f}{theirs['peak_bytes'] / 1e6:>7.0f}{r['memory_ratio']:>7.2f}{r['cold_peak_bytes'] / 1e6:>9.0f}"
                + (f"{r[ONE_THREAD]['ms'][0]:>13.3f}{r['one_thread_ratio']:>7.2f}" if options.busy else ""),
                flush=True,
            )
    good = [r for r in results.values() if "ratio" in r]
    if len(good) > 1:
        mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in good))
        print(f"\ngeometric mean of {len(good)} ratios: {mean:.3f}; slowest {max(r['ratio'] for r in good):.2f}")
    if options.json:
        about = {
            "machine": machine(),
            "threads": options.threads,
            "busy": options.busy,
            "onnxruntime": onnxruntime.__version__,
            "sardonyx": sardonyx.__version__,
        }
        options.json.write_text(json.dumps({"about": about, "models": results}, indent=1) + "\n")
    return 1 if len(good) < len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
