"""Compares Sardonyx with ONNX Runtime's CPU provider, or OpenVINO's: compile time, latency, peak memory. See README.md."""

from __future__ import annotations

import argparse
import importlib
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

#: engines that Sardonyx is compared with, and their names in the table
OTHERS = {"onnxruntime": "ORT", "openvino": "OV"}
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


def spread(times: list[float], busy: bool) -> list[float]:
    """Median, 10th and 90th percentile, in milliseconds; the mean in place of the median beside busy processes.

    There a run takes about one time on a core of its own and another on a shared one. Which of the two the median is can
    depend on a percent of the runs."""
    typical = float(np.mean(times)) if busy else float(np.median(times))
    return [typical * 1e3, *(float(np.percentile(times, q)) * 1e3 for q in (10, 90))]


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
    workers = {e: Worker(e, path, options.threads, inputs, cache) for e in ("sardonyx", *options.engines)}
    if options.busy:
        workers[ONE_THREAD] = Worker("sardonyx", path, 1, inputs, cache)
    times: dict[str, list[float]] = {e: [] for e in workers}
    clock = "process_time" if options.cpu_time else "perf_counter"
    for engine, w in workers.items():
        result[engine] = {"load_s": w.ask("load"), "first_s": w.ask("first")}
        w.ask("run", 0, options.warmup, clock)
    with BusyProcesses(options.busy):
        for _ in range(options.turns):
            for engine, w in workers.items():
                time.sleep(PAUSE)
                times[engine] += w.ask("run", options.seconds / options.turns, 2, clock)
    for engine, w in workers.items():
        with w:
            result[engine] |= {
                "ms": spread(times[engine], options.busy > 0),
                "runs": len(times[engine]),
                "peak_bytes": w.ask("memory"),
            }
    ours = result["sardonyx"]
    result["ratios"] = {e: ours["ms"][0] / result[e]["ms"][0] for e in options.engines}
    result["memory_ratios"] = {e: ours["peak_bytes"] / result[e]["peak_bytes"] for e in options.engines}
    if options.busy:
        result["one_thread_ratio"] = ours["ms"][0] / result[ONE_THREAD]["ms"][0]
    return result


def machine() -> str:
    name = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
    return f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def head(options: argparse.Namespace) -> str:
    line = f"{'model':<36}{'compile':>9}{'cached':>8}{'ms':>10}{'spread':>19}{'peak MB':>9}{'cold MB':>9}"
    for e in options.engines:
        line += f"{OTHERS[e] + ' ms':>10}{'spread':>19}{'ratio':>7}{'MB':>7}{'ratio':>7}"
    return line + (f"{'1 thread ms':>13}{'ratio':>7}" if options.busy else "")


def row(name: str, r: dict, options: argparse.Namespace) -> str:
    def times(e: dict) -> str:
        return f"{e['ms'][0]:>10.3f}{'[{1:.4g} - {2:.4g}]'.format(*e['ms']):>19}"

    ours = r["sardonyx"]
    line = f"{name:<36}{r['compile_s']:>8.2f}s{ours['load_s']:>7.2f}s{times(ours)}"
    line += f"{ours['peak_bytes'] / 1e6:>9.0f}{r['cold_peak_bytes'] / 1e6:>9.0f}"
    for e in options.engines:
        line += f"{times(r[e])}{r['ratios'][e]:>7.2f}{r[e]['peak_bytes'] / 1e6:>7.0f}{r['memory_ratios'][e]:>7.2f}"
    return line + (f"{r[ONE_THREAD]['ms'][0]:>13.3f}{r['one_thread_ratio']:>7.2f}" if options.busy else "")


def engines(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in OTHERS:
            raise argparse.ArgumentTypeError(f"no engine {name}: there are {', '.join(OTHERS)}")
    return names


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
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure the CPU time of a run instead of its latency, which other processes disturb less; implies --threads 1",
    )
    parser.add_argument("--filled", type=Path, default=Path("build/models"), help="directory of filled skeletons")
    parser.add_argument("--json", type=Path, help="write all measurements")
    parser.add_argument(
        "--engines",
        type=engines,
        default=["onnxruntime"],
        metavar="LIST",
        help=f"what to compare with, separated by commas: {', '.join(OTHERS)} (onnxruntime)",
    )
    options = parser.parse_args()
    if options.cpu_time:
        options.threads = 1  # threads that wait for each other spin

    import sardonyx

    versions = {}
    for engine in options.engines:
        try:
            versions[engine] = importlib.import_module(engine).__version__
        except ImportError:
            parser.error(f"{engine} is not installed: pip install {engine}")

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
    print(f"{machine()}; {options.threads} threads{beside}{'; CPU time' if options.cpu_time else ''}")
    print(
        f"Sardonyx {sardonyx.__version__}, {', '.join(f'{OTHERS[e]} = {e} {v} on the CPU' for e, v in versions.items())}, Python {platform.python_version()}"
    )
    print(f"command: {' '.join(sys.argv)}\n")
    typical = "mean" if options.busy else "median"
    print(f"{typical} milliseconds [10 % - 90 %]; ratios are ours to the other engine's: below 1 is faster, smaller")
    print(head(options) + "\n" + "-" * len(head(options)))
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for path in chosen:
            try:
                r = results[path.stem] = measure(path, options, Path(temporary))
            except RuntimeError as error:
                print(f"{path.stem:<36}failed: {error}", flush=True)
                results[path.stem] = {"failed": str(error)}
                continue
            print(row(path.stem, r, options), flush=True)
    good = [r for r in results.values() if "ratios" in r]
    for engine in options.engines if len(good) > 1 else ():
        ratios = [r["ratios"][engine] for r in good]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"\n{engine}: geometric mean of {len(good)} ratios {mean:.3f}; slowest {max(ratios):.2f}")
    if options.json:
        about = {
            "machine": machine(),
            "threads": options.threads,
            "busy": options.busy,
            **versions,
            "sardonyx": sardonyx.__version__,
        }
        options.json.write_text(json.dumps({"about": about, "models": results}, indent=1) + "\n")
    return 1 if len(good) < len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
