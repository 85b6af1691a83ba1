"""sardonyx.ray on two local nodes: batches with Ray Data, workers that are killed, and Ray Serve with the tests' clients of the server."""

import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sardonyx

# A machine that is busy takes longer than Ray waits for a node, and Ray Serve for its proxy.
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"
os.environ["RAY_raylet_start_wait_time_s"] = "300"  # noqa: SIM112  # Ray reads this spelling
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to anybody

ray = pytest.importorskip("ray", reason="sardonyx.ray needs the package ray")
for package in ("ray.cluster_utils", "ray.data", "ray.serve", "fastapi", "uvicorn", "prometheus_client", "openai"):
    pytest.importorskip(package, reason=f"sardonyx.ray and its tests need the package {package}")

import openai  # noqa: E402
import sardonyx.ray  # noqa: E402
from sardonyx.llm import LanguageModel  # noqa: E402
from serving import row_model, write_model  # noqa: E402

# Ray's workers cannot import a test's module.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of this machine."""
    made = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    ray.init(made.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield made
    with contextlib.suppress(Exception):
        ray.serve.shutdown()
    ray.shutdown()
    made.shutdown()


def rows(count):
    rng = np.random.default_rng(3)
    x, z = (rng.standard_normal((count, 3)).astype(np.float32) for _ in range(2))
    items = [{"id": k, "x": a, "other": b} for k, (a, b) in enumerate(zip(x, z))]
    return ray.data.from_items(items, override_num_blocks=8), 2 * x + z


def check(dataset, wanted):
    found = {r["id"]: r["result"] for r in dataset.iter_rows()}
    assert sorted(found) == list(range(len(wanted)))
    np.testing.assert_array_equal(np.stack([found[k] for k in range(len(wanted))]), wanted)


@pytest.mark.parametrize("batch", ["batch", 4])
def test_batches(cluster, batch):
    data, wanted = rows(101)
    names = {"columns": {"z": "other"}, "outputs": {"y": "result"}, "keep": ["id"]}
    program = sardonyx.ray.share(row_model(batch=batch))
    check(sardonyx.ray.map_batches(data, program, batch_size=16, concurrency=2, **names), wanted)


def test_refusals(cluster):
    program = sardonyx.ray.share(row_model())
    with pytest.raises(sardonyx.InvalidArgumentError, match="device"):
        program.load(device="host")
    with pytest.raises(sardonyx.InvalidArgumentError, match="compiled"):
        sardonyx.ray.map_batches(rows(4)[0], program, precision="fp16")
    with pytest.raises(sardonyx.InvalidArgumentError, match="no model"):
        sardonyx.ray.application()
    predictor = sardonyx.ray.Predictor(program)
    x = np.ones((2, 3), np.float32)
    for batch, words in (
        ({"x": x}, "column 'z'"),
        ({"x": x, "z": x.astype(complex)}, "complex"),
        ({"x": x, "z": np.array([[1.0], [1.0, 2.0]], dtype=object)}, "differ in shape"),
    ):
        with pytest.raises(sardonyx.InvalidArgumentError, match=words):
            predictor(batch)
    for own in ({"columns": {"w": "x"}}, {"outputs": {"w": "x"}}, {"outputs": {"y": "x"}, "keep": ["x"]}):
        with pytest.raises(sardonyx.InvalidArgumentError):
            sardonyx.ray.Predictor(program, **own)


def test_example():
    """examples/ray/batch.py, which starts three nodes of its own."""
    script = Path(__file__).parents[2] / "examples" / "ray" / "batch.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, str(script), "--nodes", "3", "--rows", "1000"],
        env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "1000 rows on 3 nodes" in done.stdout and " 0 wrong" in done.stdout, done.stderr


def ask(path, body=None, headers=None):
    import urllib.request

    request = urllib.request.Request(f"http://127.0.0.1:8000{path}", body and json.dumps(body).encode(), headers or {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def infer(name):
    tensors = [{"name": n, "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]} for n in "xz"]
    return ask(f"/v2/models/{name}/infer", {"inputs": tensors}, {"serve_multiplexed_model_id": name})["outputs"][0][
        "data"
    ]


@pytest.mark.slow
def test_serve_both_interfaces(cluster, tmp_path):
    folder = write_model(tmp_path / "tiny")
    application = sardonyx.ray.application(
        {"tiny": {"folder": str(folder), "cache_memory": 4 << 20}},
        {"rows": sardonyx.ray.share(row_model())},
        deployment={"num_replicas": 2, "ray_actor_options": {"num_cpus": 1}},
    )
    ray.serve.run(application, route_prefix="/")
    client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none", max_retries=0, timeout=60)
    model = LanguageModel(folder)
    prompts = ["hello", "the and " * 12, "x", "abc"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        own = {"model": "tiny", "max_tokens": 12, "extra_body": {"ignore_eos": True}}
        texts = list(pool.map(lambda p: client.completions.create(prompt=p, **own).choices[0].text, prompts))
    assert texts == [model.generate(p, max_new_tokens=12, ignore_eos=True).text for p in prompts]
    stream = client.completions.create(prompt="hello", stream=True, **own)
    assert "".join(c.choices[0].text for c in stream) == texts[0]
    assert infer("rows") == [3, 6, 9]
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="none", prompt="x")
    ray.serve.delete("default")


@pytest.mark.slow
def test_serve_many_models(cluster):
    program = sardonyx.ray.share(row_model())
    application = sardonyx.ray.multiplexed_application(
        {f"m{k}": program for k in range(4)}, most=2, deployment={"ray_actor_options": {"num_cpus": 1}}
    )
    ray.serve.run(application, route_prefix="/")
    until = time.monotonic() + 60
    for k in (0, 1, 2, 3, 0, 0, 2):
        assert infer(f"m{k}") == [3, 6, 9]
    resident = ask("/status")["models"]
    assert len(resident) == 2 and "m2" in resident and time.monotonic() < until
    assert ask("/v2/models/m1")["name"] == "m1"
    ray.serve.delete("default")


class Dying(sardonyx.ray.Predictor):
    """Ends its process once, in the middle of the batches."""

    def __init__(self, marker, **own):
        super().__init__(**own)
        self._marker = marker

    def __call__(self, batch):
        if 50 in batch["id"]:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._marker, os.O_CREAT | os.O_EXCL))
                os._exit(1)
        return super().__call__(batch)


@pytest.mark.slow  # Ray waits for half a minute before it starts a worker again
def test_a_worker_that_dies_loses_nothing(cluster, tmp_path):
    data, wanted = rows(101)
    own = {
        "program": sardonyx.ray.share(row_model()),
        "columns": {"z": "other"},
        "outputs": {"y": "result"},
        "keep": ["id"],
    }
    marker = tmp_path / "died"
    result = data.map_batches(
        Dying,
        fn_constructor_kwargs={"marker": str(marker), **own},
        batch_size=8,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    check(result, wanted)
    assert marker.exists()
