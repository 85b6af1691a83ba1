"""Kills replicas of a Ray Serve application while they answer, and checks that no accepted request is lost.

    PYTHONPATH=build/python python tests/python/serve_kill.py [KILLS] [requests at a time]

Two local nodes (ray.cluster_utils.Cluster) run three replicas of a tiny language model on the host. Requests are greedy and sampled
with a seed, streams and whole answers; each must be the model's own answer, which was computed before. As soon as some are being
answered, the process of one of the replicas that are alive is killed (SIGKILL), and so on.
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter

os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "300"
os.environ["RAY_raylet_start_wait_time_s"] = "300"  # noqa: SIM112  # Ray reads this spelling
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

WAIT = 300  # seconds: a machine that is busy takes long to start a replica
NAME = "ServeReplica:default:sardonyx"


def replicas():
    """Processes of the replicas of this user's clusters, as Ray names them."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            title = (p / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if f"{NAME} " in f"{title} ".replace(":answer", " ").replace("#", " ") and "front" not in title:
                found.append(int(p.name))
        except OSError:  # it has just ended
            continue
    return found


def ask(port, body):
    """The text of an answer. A stream's error is raised."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {content[:300]!r}")
        if not body["stream"]:
            return json.loads(content)["choices"][0]["text"]
        parts = [json.loads(line[6:]) for line in content.decode().split("\n\n") if line.startswith("data: {")]
        errors = [p["error"]["message"] for p in parts if "error" in p]
        if errors or not content.endswith(b"data: [DONE]\n\n"):
            raise RuntimeError(f"stream: {errors or content[-100:]}")
        return "".join(c["text"] for p in parts for c in p["choices"])
    finally:
        connection.close()


def body_of(rng):
    body = {"model": "tiny", "prompt": "the " * rng.randrange(1, 30), "max_tokens": rng.randrange(20, 200)}
    body |= {"stream": rng.random() < 0.6, "ignore_eos": True}
    return {**body, "temperature": 0.8, "seed": rng.randrange(100)} if rng.random() < 0.4 else body


def expected(model, body):
    """The model's own answer."""
    own = {"max_new_tokens": body["max_tokens"], "ignore_eos": True}
    if "seed" in body:
        own |= {"do_sample": True, "temperature": body["temperature"], "seed": body["seed"], "top_k": 0}
    return model.generate(body["prompt"], **own).text


def kill_and_ask(port, model, kills, width):
    """Counts of answers: right, another text (rounding in another batch), errors; and how many replicas were killed."""
    stop, counts, wrong = threading.Event(), Counter(), []
    killed = 0

    def client(number):
        rng = random.Random(number)
        while not stop.is_set():
            body = body_of(rng)
            try:
                found = ask(port, body)
                wanted = expected(model, body)
                counts["right" if found == wanted else "other text"] += 1
                if found != wanted:
                    wrong.append((body, found, wanted))
            except Exception as error:
                counts["lost"] += 1
                wrong.append((body, repr(error)))

    with concurrent.futures.ThreadPoolExecutor(width) as pool:
        clients = [pool.submit(client, k) for k in range(width)]
        rng = random.Random(0)
        try:
            while killed < kills:
                until = time.monotonic() + WAIT
                while len(alive := replicas()) < 2 and time.monotonic() < until:
                    time.sleep(0.2)
                before = sum(counts.values())
                while sum(counts.values()) < before + width and time.monotonic() < until:
                    time.sleep(0.02)  # all of them are at work
                if len(alive) < 2:
                    raise RuntimeError(f"only {len(alive)} replicas are alive")
                time.sleep(rng.random() * 0.3)
                try:
                    os.kill(rng.choice(alive), signal.SIGKILL)
                except ProcessLookupError:  # Ray ended it since; another one is chosen
                    continue
                killed += 1
                if killed % 10 == 0:
                    print(f"{killed} kills: {dict(counts)}", flush=True)
        finally:
            stop.set()
            for c in clients:
                c.result()
    return counts, killed, wrong


def main(kills="50", width="8"):
    import ray
    import ray.cluster_utils
    import ray.serve
    import sardonyx.ray
    from sardonyx.llm import Engine
    from serving import write_model

    with tempfile.TemporaryDirectory() as folder:
        path = write_model(pathlib.Path(folder) / "tiny")
        cluster = ray.cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False}
        )
        cluster.add_node(num_cpus=4)
        ray.init(cluster.address, log_to_driver=False)
        port = 8123
        for left in reversed(range(5)):
            try:  # Ray waits for its proxies for a minute
                ray.serve.start(proxy_location="HeadOnly", http_options={"port": port})
                break
            except TimeoutError:
                if not left:
                    raise
        own = {"num_replicas": 3, "ray_actor_options": {"num_cpus": 1}, "health_check_period_s": 1}
        application = sardonyx.ray.application(
            {"tiny": {"folder": str(path), "cache_memory": 8 << 20}}, deployment=own, tries=20
        )
        ray.serve.run(application, route_prefix="/")
        begun = time.monotonic()
        with Engine(path, cache_memory=8 << 20) as model:
            counts, killed, wrong = kill_and_ask(port, model, int(kills), int(width))
        print(f"{killed} replicas killed in {time.monotonic() - begun:.0f} s; answers: {dict(counts)}")
        for w in wrong[:5]:
            print(w)
        ray.serve.shutdown()
        ray.shutdown()
        cluster.shutdown()
    return 0 if killed == int(kills) and not counts["lost"] and not counts["other text"] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
