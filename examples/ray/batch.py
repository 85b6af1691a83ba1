"""Batch inference over several nodes with Ray Data: here two nodes that this script starts on this machine.

    python examples/ray/batch.py [--nodes 2] [--rows 4096] [--address ray://HEAD:10001]

With --address it runs on a cluster that is there.
"""

import argparse
import time

import numpy as np
import onnx
import ray
import ray.cluster_utils
import sardonyx.ray
from onnx import TensorProto, helper, numpy_helper


def model(width=256):
    """Two linear layers with ReLU between them."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((width, width)).astype(np.float32) / 16 for _ in range(2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", width]) for n in ("x", "y")]
    made = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "mlp", info[:1], info[1:], made)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(built)
    return built, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2, help="local nodes of one CPU each")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--address", help="of a cluster; without it local nodes are started")
    a = parser.parse_args()
    cluster = None
    if a.address:
        ray.init(a.address, log_to_driver=False)
    else:
        cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        for _ in range(a.nodes - 1):
            cluster.add_node(num_cpus=1)
        ray.init(cluster.address, log_to_driver=False)
    built, (first, second) = model()
    x = np.random.default_rng(1).standard_normal((a.rows, 256)).astype(np.float32)
    data = ray.data.from_numpy(np.array_split(x, 4 * a.nodes)).rename_columns({"data": "x"})
    begun = time.perf_counter()
    answers = sardonyx.ray.map_batches(data, built, batch_size=256, concurrency=a.nodes, keep=["x"])
    wrong = rows = 0
    for batch in answers.iter_batches(batch_size=512, batch_format="numpy"):
        wanted = np.maximum(batch["x"] @ first, 0) @ second
        wrong += int((np.abs(batch["y"] - wanted) > 1e-3).any(axis=1).sum())
        rows += len(wanted)
    print(f"{rows} rows on {len(ray.nodes())} nodes in {time.perf_counter() - begun:.1f} s, {wrong} wrong")
    ray.shutdown()
    if cluster:
        cluster.shutdown()


if __name__ == "__main__":
    main()
