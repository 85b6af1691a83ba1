"""Batch inference with sardonyx.ray over one and over four local nodes, with simulated device time.

    python benchmarks/ray_batch.py [--nodes 4] [--step 0.5] [--batches 160]

All nodes are of this machine (ray.cluster_utils.Cluster), which has fewer cores than they have workers. So the time of the device is
simulated: a worker computes its batch with a small model on the host, and then sleeps until --step seconds have passed. What is
measured is all else: Ray's scheduling, its object store, the conversion of columns, and the stream of results. Each node has one
CPU and one worker. The rate is that of the rows between the first and the last result; the whole time, with the workers' start,
is printed too.
"""

import argparse
import os
import pathlib
import sys
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import numpy as np
import ray
import ray.cluster_utils
import sardonyx.ray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "ray"))
from batch import model

ROWS = 64  # of a batch


class Timed(sardonyx.ray.Predictor):
    """A predictor whose device takes `step` seconds for a batch."""

    def __init__(self, step, **options):
        super().__init__(**options)
        self._step = step

    def __call__(self, batch):
        begun = time.perf_counter()
        result = super().__call__(batch)
        time.sleep(max(0.0, self._step - (time.perf_counter() - begun)))
        return result


def measure(nodes, step, batches):
    """Rows per second between the first and the last result, and seconds in all."""
    cluster = ray.cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False, logging_level="warning")
    ray.data.DataContext.get_current().enable_progress_bars = False
    built, (first, second) = model()
    x = np.random.default_rng(1).standard_normal((ROWS * batches, 256)).astype(np.float32)
    data = ray.data.from_numpy(np.array_split(x, batches)).rename_columns({"data": "x"})
    own = {"program": sardonyx.ray.share(built), "columns": None, "outputs": None, "keep": ("x",)}
    answers = data.map_batches(
        Timed,
        fn_constructor_kwargs={"step": step, **own},
        batch_size=ROWS,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=nodes),
        num_cpus=1,
    )
    begun, times, wrong = time.perf_counter(), [], 0
    for part in answers.iter_batches(batch_size=None, batch_format="numpy"):
        times.append((time.perf_counter(), len(part["y"])))
        wanted = np.maximum(part["x"] @ first, 0) @ second
        wrong += int((np.abs(part["y"] - wanted) > 1e-3).any(axis=1).sum())
    rows = sum(n for _, n in times)
    if wrong or rows != len(x):
        raise SystemExit(f"{rows} of {len(x)} rows, {wrong} wrong")
    ray.shutdown()
    cluster.shutdown()
    rate = (rows - times[0][1]) / (times[-1][0] - times[0][0])
    return rate, times[-1][0] - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--step", type=float, default=0.5)
    parser.add_argument("--batches", type=int, default=160)
    a = parser.parse_args()
    found = {}
    for nodes, count in ((1, max(8, a.batches // a.nodes)), (a.nodes, a.batches)):
        rate, seconds = measure(nodes, a.step, count)
        found[nodes] = rate
        limit = nodes * ROWS / a.step
        print(
            f"{nodes} nodes: {rate:.1f} rows/s ({100 * rate / limit:.1f} % of the devices'), {count} batches in {seconds:.1f} s",
            flush=True,
        )
    print(f"{a.nodes} nodes are {found[a.nodes] / found[1]:.2f} times one")


if __name__ == "__main__":
    main()
