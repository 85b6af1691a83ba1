"""Sends requests that are wrong in every way to a server, and checks each answer, and that nothing is left.

    PYTHONPATH=build/python python tests/python/serve_fuzz.py 10000 [seed]

is the long run; test_serve_robust.py makes a short one.
"""

import concurrent.futures
import http.client
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter

import serve_child

WAIT = 60  # seconds, for what takes milliseconds
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
BASES = {
    "/v1/completions": {"model": "tiny", "prompt": "x", "max_tokens": 3},
    "/v1/chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "tools": [TOOL]},
    "/v1/embeddings": {"model": "embed", "input": ["a", "b"]},
    "/v1/rerank": {"model": "rank", "query": "a", "documents": ["b", "c"]},
    "/v2/models/rows/infer": {
        "inputs": [{"name": n, "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]} for n in "xz"]
    },
}  # fmt: skip
NAMES = [
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "temperature",
    "n",
    "stream",
    "stop",
    "logprobs",
    "logit_bias",
    "seed",
    "top_p",
    "response_format",
    "stop_token_ids",
    "user",
    "stream_options",
    "priority",
    "top_k",
    "min_p",
    "presence_penalty",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "regex",
    "grammar",
    "input",
    "dimensions",
    "encoding_format",
    "truncate",
    "query",
    "documents",
    "top_n",
    "return_documents",
    "inputs",
    "outputs",
    "parameters",
    "id",
    "name",
    "shape",
    "data",
    "datatype",
    "function",
    "arguments",
    "content",
    "role",
    "tool_calls",
    "tool_call_id",
]
VALUES = [None, True, False, -1, 0, 1, 7, 2.5, 1e400, 1 << 70, "x", "", "\ud800", "a" * 3000, "none", "required", [], {}, [[]], [1], [-1], ["a"], {"a": 1}, [[1], "a"], [1 << 40] * 3, {"type": "object"}, {"$ref": "#"}, TOOL]  # fmt: skip
#: What a wrong request may be answered with; 431 and 505 are uvicorn's.
STATUSES = {200, 400, 404, 405, 408, 413, 422, 429, 431}


def mutated(value, rng, depth=0):
    """A copy with a part replaced, removed, repeated or added."""
    if depth > 4 or rng.random() < 0.15:
        return rng.choice(VALUES)
    if isinstance(value, dict) and value:
        copy, key = dict(value), rng.choice(list(value))
        way = rng.random()
        if way < 0.15:
            del copy[key]
        elif way < 0.4:
            copy[rng.choice(NAMES)] = rng.choice(VALUES)
        else:
            copy[key] = mutated(copy[key], rng, depth + 1)
        return copy
    if isinstance(value, list) and value:
        copy, at = list(value), rng.randrange(len(value))
        if rng.random() < 0.2:
            return copy * rng.choice((0, 2, 50))
        copy[at] = mutated(copy[at], rng, depth + 1)
        return copy
    return rng.choice(VALUES)


def body_of(base, rng):
    for _ in range(rng.randrange(1, 4)):
        base = mutated(base, rng)
    text = json.dumps(base).encode()
    way = rng.random()
    if way < 0.1 and text:
        at = rng.randrange(len(text))
        text = text[:at] + bytes([rng.randrange(256)]) + text[at + rng.randrange(2) :]
    elif way < 0.13:
        text = rng.choice((b"[" * 50_000, b'{"a":' * 20_000, b"\xff\xfe", b"", b"nul", b"1" * 10_000))
    elif way < 0.15:
        text = text.ljust(1 << 19)  # larger than the limit
    return text


def ask(port, rng):
    """A whole request and its answer: the status. Its body is JSON, or a stream's lines."""
    path = rng.choice(list(BASES))
    method, text = "POST", body_of(BASES[path], rng)
    if rng.random() < 0.05:
        method, path = rng.choice(("GET", "PUT", "DELETE", "POST")), rng.choice((path, "/v1/%00", "/v1/models/" + "x" * 900, "/v2/models/../rows", "//", "/metrics"))  # fmt: skip
    headers = {"Content-Type": rng.choice(("application/json", "text/plain", "application/json"))}
    if rng.random() < 0.05:
        headers["Inference-Header-Content-Length"] = rng.choice(("0", "5", "-1", "x", "99999999"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    try:
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            assert json.loads(content)["error"]["message"], content[:200]
        assert answer.status in STATUSES, (answer.status, method, path, text[:300], content[:300])
        return answer.status
    except (ConnectionError, http.client.RemoteDisconnected):
        if len(text) > 1 << 18:  # refused before it had all been sent
            return 413
        raise
    finally:
        connection.close()


def raw(port, rng):
    """Bytes that are no HTTP, half a request, or a client that goes away."""
    path = rng.choice(list(BASES))
    text = json.dumps(
        {**BASES[path], **({"stream": True, "max_tokens": 300} if "completions" in path else {})}
    ).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n".encode()
    way = rng.randrange(6)
    data = [
        bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))),
        head[: rng.randrange(len(head))],
        head + text[: rng.randrange(len(text))],
        head + text,
        head.replace(b"Content-Length: ", b"Content-Length: -"),
        b"GET /" + b"x" * rng.choice((10, 100_000)) + b" HTTP/1.1\r\n\r\n",
    ][way]
    with socket.create_connection(("127.0.0.1", port), WAIT) as connection:
        try:
            connection.sendall(data)
            if way in (0, 3, 4, 5) and rng.random() < 0.5:
                connection.recv(rng.choice((1, 100)))
        except ConnectionError:
            pass
    return f"raw {way}"


def run(port, count, seed):
    """Counts of statuses and of raw connections."""
    rng = random.Random(seed)
    seeds = [rng.randrange(1 << 40) for _ in range(count)]

    def one(number):
        own = random.Random(number)
        return (raw if own.random() < 0.2 else ask)(port, own)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return Counter(pool.map(one, seeds))


def status_of(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    connection.request("GET", "/status")
    found = json.loads(connection.getresponse().read())
    connection.request("GET", "/metrics")
    metrics = connection.getresponse().read().decode()
    connection.close()
    return found["languages"]["tiny"], float(metrics.split("\nsardonyx_http_requests_open ")[1].split()[0])


def nothing_is_left(port):
    """Whether no request runs or waits, and no page is used, soon."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        engine, still_open = status_of(port)
        if not (engine["running"] or engine["waiting"] or engine["used_pages"]) and still_open <= 1:
            return True
        time.sleep(0.05)
    return False


def right_answer(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    connection.request("POST", "/v1/completions", json.dumps(BASES["/v1/completions"]))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer["usage"]["completion_tokens"] == 3


def main(count="10000", seed="1"):
    with tempfile.TemporaryDirectory() as folder, serve_child.server(folder) as (process, port):
        total, parts, sizes = Counter(), 10, []
        begun = time.monotonic()
        for part in range(parts):
            total += run(port, int(count) // parts, f"{seed} {part}")
            assert nothing_is_left(port) and right_answer(port)
            sizes.append(serve_child.memory_of(process) / 2**20)
        print(
            f"{sum(total.values())} requests in {time.monotonic() - begun:.0f} s: {dict(sorted(total.items(), key=str))}"
        )
        print("resident MiB after each tenth:", " ".join(f"{s:.1f}" for s in sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
