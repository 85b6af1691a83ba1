"""A server in its own process that gets nonsense, and streams that wait: right answers, nothing left, little memory."""

import json
import platform
import socket
from pathlib import Path

import pytest

for package in ("fastapi", "uvicorn", "prometheus_client", "openai"):
    pytest.importorskip(package, reason=f"serving and its tests need the package {package}")

import serve_child  # noqa: E402
import serve_fuzz  # noqa: E402

WAIT = 60  # seconds, for what takes milliseconds


def test_nonsense(tmp_path):
    """400 of the requests of serve_fuzz.py, which documents the long run."""
    with serve_child.server(tmp_path) as (_, port):
        found = serve_fuzz.run(port, 400, 1)
        assert {200, 400, 404, 413, 422} <= set(found), found
        assert serve_fuzz.nothing_is_left(port) and serve_fuzz.right_answer(port)


def open_streams(port, count):
    """Streams of which the server has begun to answer each."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "stream": True})
    text = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    streams = []
    for _ in range(count):
        streams.append(socket.create_connection(("127.0.0.1", port), WAIT))
        streams[-1].sendall(text)
    for s in streams:
        assert b"200 OK" in s.recv(1 << 12)
    return streams


def test_streams_that_wait_cost_little(tmp_path):
    """One request runs, the others' streams are open and idle. 2000 of them may cost 200 MB (docs/serving.md has a measurement)."""
    with serve_child.server(tmp_path, 0.05, 1) as (process, port):
        streams = open_streams(port, 20)  # what is imported and compiled once
        before = serve_child.memory_of(process)
        streams += open_streams(port, 200)
        cost = (serve_child.memory_of(process) - before) / 200
        assert cost < 100_000, cost
        for s in streams:
            s.close()
        assert serve_fuzz.nothing_is_left(port)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has heaps of threads")
def test_threads_share_one_heap(tmp_path):
    """Heaps of threads, which glibc maps as 64 MiB of which a part is used, would add up what each thread has ever needed."""
    with serve_child.server(tmp_path) as (process, port):
        serve_fuzz.run(port, 100, 2)
        heaps, size, maps = 0, 64 << 20, []
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            addresses, protection, *_ = line.split()
            maps.append((*(int(a, 16) for a in addresses.split("-")), protection))
        for (begin, middle, used), (again, end, free) in zip(maps, maps[1:]):
            heaps += begin % size == 0 and middle == again and end - begin == size and (used, free) == ("rw-p", "---p")
        assert heaps == 0
