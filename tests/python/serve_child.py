"""A server in a process of its own, with a fake language model (fake_decoder.py), an encoder and a plain model, for tests of its memory and its robustness.

    python tests/python/serve_child.py FOLDER [delay of a step in seconds] [max_sequences]

prints its port, and ends when stdin is closed.
"""

import collections
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import fake_decoder
import sardonyx
import sardonyx.llm.engine
from sardonyx.llm import Engine
from sardonyx.serve import Limits, create_app, make_server
from sardonyx.serve.memory import freeze_objects, use_one_arena


def main(folder, delay="0", most="8"):
    use_one_arena()  # as `sardonyx serve` does
    import test_encoder
    from serving import row_model, write_model

    sardonyx.llm.engine.PagedDecoder = fake_decoder.FakeDecoder
    path = write_model(Path(folder) / "tiny")
    template = "{% if tools %}<tool_call>{% endif %}" + (path / "chat_template.jinja").read_text()
    (path / "chat_template.jinja").write_text(template)
    engine = Engine(path, page_tokens=8, max_sequences=int(most), max_waiting=1 << 14, cache_memory=400 << 10)
    engine._decoder.delay = float(delay)
    engine._decoder.steps = collections.deque(maxlen=100)  # what the fake remembers of them would grow with time
    encoders = {
        name: sardonyx.llm.TextEncoder(test_encoder.write(Path(folder) / name, pairs=name == "rank"))
        for name in ("embed", "rank")
    }
    models = {"rows": sardonyx.compile(row_model())}
    limits = Limits(body=1 << 18, body_time=1.0, header_time=1.0)
    app = create_app({"tiny": engine}, models, encoders=encoders, limits=limits)
    server = make_server(app, port=0, grace=5, started=lambda a: print(a.rpartition(":")[2], flush=True))

    def watch():
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    freeze_objects()
    server.run()


@contextlib.contextmanager
def server(folder, *arguments):
    """A server's process and its port."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    try:
        yield process, int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def memory_of(process):
    """Resident bytes."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise ProcessLookupError


if __name__ == "__main__":
    main(*sys.argv[1:])
