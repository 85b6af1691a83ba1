"""What HTTP costs: tokens per second of the engine alone, and through `sardonyx serve`'s application.

    python benchmarks/serve_http.py [--clients 64] [--step-ms 4] [--tokens 256]

The model is not computed: a step takes --step-ms, in which other threads run, as they do while a GPU computes, and a step is
prepared while the one before it runs. All else is what runs in front of a model: the scheduler, tables of pages, a tokenizer,
OpenAI's interface, JSON, uvicorn. The server has a process of its own, and so have the clients (raw sockets, which count the
characters of the answers). Each client asks its next
request, a prompt of 64 tokens, when the last one is answered. Turns alternate, and the
best of each is reported, since other work on the machine only takes time away.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"


def timed_decoder(seconds: float) -> type:
    """A decoder of random tokens whose device takes so long for a step."""
    from sardonyx.llm import paged_decoder as pd
    from sardonyx.llm.step_inputs import StepInputs

    class Timed(pd.PagedDecoder):
        def __init__(self, *arguments: Any, slots: int = 0, **options: Any):
            super().__init__(*arguments, **options)
            self.ahead = True
            self.inputs = StepInputs(self.folder, self.graph.step, self.graph.rows, slots)
            self._free = 0.0  # when the device is
            self._kept_values: dict[Any, Any] = {}
            self._random = np.random.default_rng(0)

        def start(self, pieces: Any, kind: Any, single: bool) -> Any:
            giving = [(p.request, 0) for p in pieces for _ in range(p.results)]
            if not single:
                size = 1 << (len(pieces) - 1).bit_length()
                if size not in self._kept_values:
                    table = np.zeros((size, self.inputs.columns), np.int32)
                    self._kept_values[size] = {**self.inputs.unused(kind, size, 1, 1), "table": table}
                self.inputs.fill(self._kept_values[size], pieces, giving, kind, 1, False)
            self._free = max(self._free, time.perf_counter()) + (0 if single else seconds)
            until = self._free

            def wait() -> pd.Chosen:
                left = until - time.perf_counter()
                if left > 0:
                    time.sleep(left)
                return pd.Chosen(self._random.integers(3, 250, len(giving)).tolist())

            return wait

    return Timed


def engine(folder: pathlib.Path, clients: int, seconds: float) -> Any:
    import sardonyx.llm.engine
    from sardonyx.llm import Engine

    sardonyx.llm.engine.PagedDecoder = timed_decoder(seconds)  # type: ignore[misc]
    return Engine(folder, max_sequences=clients, page_tokens=16, cache_memory=64 << 20, step_tokens=1 << 14)


def serve(folder: pathlib.Path, clients: int, seconds: float) -> None:
    from sardonyx.serve import create_app, make_server
    from sardonyx.serve.command import let_threads_alternate

    let_threads_alternate()
    app = create_app({"tiny": engine(folder, clients, seconds)})
    make_server(app, port=0, started=lambda a: print(a.rpartition(":")[2], flush=True)).run()


def library(folder: pathlib.Path, clients: int, seconds: float, tokens: int, rounds: int) -> None:
    with engine(folder, clients, seconds) as e:

        def client(count: int) -> None:
            for _ in range(count):
                e.submit([5] * 64, max_new_tokens=tokens, ignore_eos=True).wait()

        for count in (1, rounds):
            begun = time.perf_counter()
            threads = [threading.Thread(target=client, args=(count,)) for _ in range(clients)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        print(clients * rounds * tokens / (time.perf_counter() - begun), flush=True)


def ask(port: int, clients: int, tokens: int, rounds: int, stream: bool) -> float:
    """Tokens per second; each client asks its next request when the last one is answered."""
    body = {"model": "tiny", "prompt": [5] * 64, "max_tokens": tokens, "stream": stream, "ignore_eos": True}
    text = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    selector, found = selectors.DefaultSelector(), dict[socket.socket, list[bytes]]()
    begun = time.perf_counter()

    def begin() -> None:
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(head.encode() + text)
        found[s] = []
        selector.register(s, selectors.EVENT_READ)

    for _ in range(clients):
        begin()
    left, later = clients * rounds, clients * (rounds - 1)
    while left:
        for key, _ in selector.select():
            s: Any = key.fileobj
            data = s.recv(1 << 16)
            if data:
                found[s].append(data)
            else:
                selector.unregister(s)
                left -= 1
                if later:
                    begin()
                    later -= 1
    seconds = time.perf_counter() - begun
    for s, parts in found.items():
        whole = b"".join(parts)
        assert whole.startswith(b"HTTP/1.1 200"), whole[:300]
        assert (b"[DONE]" if stream else b'"completion_tokens":%d' % tokens) in whole, whole[-300:]
        s.close()
    return clients * rounds * tokens / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=4, help="requests of each client")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--part", choices=("serve", "library"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    if a.part == "serve":
        return serve(a.folder, a.clients, a.step_ms / 1e3)
    if a.part == "library":
        return library(a.folder, a.clients, a.step_ms / 1e3, a.tokens, a.rounds)
    from serving import write_model

    with tempfile.TemporaryDirectory() as temporary:
        folder = write_model(pathlib.Path(temporary) / "tiny", positions=4096)
        own = [sys.executable, __file__, "--folder", str(folder), "--clients", str(a.clients)]
        own += ["--step-ms", str(a.step_ms), "--tokens", str(a.tokens), "--rounds", str(a.rounds)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        server = subprocess.Popen([*own, "--part", "serve"], stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            rows: dict[str, list[float]] = {"library": [], "whole answers": [], "streams": []}
            ask(port, a.clients, 16, 1, True)
            for _ in range(a.turns):
                done = subprocess.run(
                    [*own, "--part", "library"], stdout=subprocess.PIPE, text=True, env=environment, check=True
                )
                rows["library"].append(float(done.stdout))
                rows["whole answers"].append(ask(port, a.clients, a.tokens, a.rounds, False))
                rows["streams"].append(ask(port, a.clients, a.tokens, a.rounds, True))
        finally:
            server.terminate()
            server.wait()
    best = {name: max(found) for name, found in rows.items()}
    for name, value in best.items():
        print(
            f"{name:>14}: {value:8.0f} tokens/s, {100 * (value / best['library'] - 1):+.1f} %; all: "
            f"{', '.join(f'{x:.0f}' for x in rows[name])}; the device's limit {a.clients / a.step_ms * 1e3:.0f}"
        )


if __name__ == "__main__":
    main()
