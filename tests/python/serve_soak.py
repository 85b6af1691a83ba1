"""Keeps a server busy for a set time with right and wrong requests, and checks that its memory does not grow.

    PYTHONPATH=build/python python tests/python/serve_soak.py MINUTES [requests at a time]

The server has a process of its own, with a fake language model, an encoder and a plain model (serve_child.py). In rounds of
400 requests, a third are those of serve_fuzz.py (wrong bodies, bytes that are no HTTP, clients that go away); the others are
right: completions and chats, half of them streams, embeddings and inferences, whose answers are compared. After each round
nothing may be left: no request, no page. Memory is the resident set after a round; it counts from a quarter of the time on, when
all code has run and allocators have grown. Exits with 1 if the mean of the last quarter is more than 1 % above that of the second.
"""

import concurrent.futures
import http.client
import json
import random
import statistics
import sys
import tempfile
import time

import serve_child
import serve_fuzz

WAIT = serve_fuzz.WAIT = 300  # seconds, on a machine that others keep busy
LIMIT = 1.01  # growth of the memory from the second to the last quarter


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    try:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, (answer.status, content[:300])
        return content
    finally:
        connection.close()


def right(port, rng, known):
    """A right request; its answer is that of the first time."""
    path = rng.choice(
        ("/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v2/models/rows/infer")
    )
    body, stream = dict(serve_fuzz.BASES[path]), False
    body.pop("tools", None)
    if "completions" in path:
        text, count, stream = "word " * rng.randrange(1, 20), rng.randrange(1, 40), rng.random() < 0.5
        body |= {"max_tokens": count, "stream": stream, "ignore_eos": True}
        body |= {"prompt": text} if "prompt" in body else {"messages": [{"role": "user", "content": text}]}
    content = post(port, path, body)
    if stream:
        parts = [json.loads(line[6:]) for line in content.decode().split("\n\n") if line.startswith("data: {")]
        found = "".join(c.get("text") or c.get("delta", {}).get("content") or "" for p in parts for c in p["choices"])
        assert content.endswith(b"data: [DONE]\n\n")
    else:
        found = json.loads(content)
        if "choices" in found:
            choice = found["choices"][0]
            found = choice["text"] if "text" in choice else choice["message"]["content"]
    key = json.dumps({**body, "stream": None}, sort_keys=True) + path
    found = json.dumps(found, sort_keys=True)
    assert known.setdefault(key, found) == found, (body, found, known[key])


def one(port, number, known):
    rng = random.Random(number)
    if rng.random() < 1 / 3:
        (serve_fuzz.raw if rng.random() < 0.2 else serve_fuzz.ask)(port, rng)
    else:
        right(port, rng, known)


def main(minutes, width="16"):
    sizes, count, known = [], 0, {}
    with tempfile.TemporaryDirectory() as folder, serve_child.server(folder) as (process, port):
        begun = time.monotonic()
        until = begun + 60 * float(minutes)
        with concurrent.futures.ThreadPoolExecutor(int(width)) as pool:
            while time.monotonic() < until:
                list(pool.map(lambda k: one(port, k, known), range(count, count + 400)))
                count += 400
                assert serve_fuzz.nothing_is_left(port) and serve_fuzz.right_answer(port)
                sizes.append((time.monotonic() - begun, serve_child.memory_of(process) / 2**20))
                if len(sizes) % 10 == 1:
                    print(f"{sizes[-1][0]:6.0f} s, {count} requests, {sizes[-1][1]:.2f} MiB", flush=True)
        passed = time.monotonic() - begun
        second, last = (
            statistics.mean(x for at, x in sizes if low <= at / passed <= low + 0.25) for low in (0.25, 0.75)
        )
    print(
        f"{count} requests in {passed / 60:.1f} minutes; resident MiB: {second:.2f} in the second quarter, {last:.2f} in the last "
        f"({100 * (last / second - 1):+.2f} %), at most {max(x for _, x in sizes):.2f}"
    )
    return 0 if last <= LIMIT * second else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
