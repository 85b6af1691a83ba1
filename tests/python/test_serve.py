"""sardonyx.serve over real HTTP on 127.0.0.1: OpenAI's client, limits, clients that send nonsense, are slow or vanish, overload, and the end of a server."""

import concurrent.futures
import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import time

import fake_decoder
import llm_models
import onnx
import pytest
from sardonyx import UnsupportedError
from sardonyx.llm import LanguageModel

for package in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"serving needs the package {package}")
openai = pytest.importorskip("openai", reason="its client is the tests' client")

from sardonyx.serve import Limits  # noqa: E402
from serve_fuzz import NAMES  # noqa: E402
from serving import KEY, WAIT, row_model, servers, write_model  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def serve(monkeypatch, folder):
    with servers(monkeypatch, folder) as start:
        yield start


def idle(engine):
    """Waits until no request has pages."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        s = engine.statistics()
        if not (s.running or s.waiting or s.used_pages):
            return True
        time.sleep(0.005)
    return False


def expected(engine, text, count):
    return engine.decode(fake_decoder.continuation(engine.encode(text), count))


def test_openai_client(serve):
    server = serve()
    client, engine = server.client(), server.engine
    assert [m.id for m in client.models.list()] == ["tiny"] and client.models.retrieve("tiny").id == "tiny"
    messages = [{"role": "system", "content": "be short"}, {"role": "user", "content": "hello"}]
    wanted = expected(engine, "[system]be short[user]hello[assistant]", 20)
    chat = client.chat.completions.create(
        model="tiny", messages=messages, max_completion_tokens=20, n=2, logprobs=True, top_logprobs=2
    )
    assert [c.message.content for c in chat.choices] == [wanted] * 2 and chat.choices[1].finish_reason == "length"
    assert chat.usage.completion_tokens == 40 and chat.usage.prompt_tokens == 38
    entry = chat.choices[0].logprobs.content[3]
    assert entry.logprob == -0.5 and [t.logprob for t in entry.top_logprobs] == [-1.0, -2.0]
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=[messages[0], {"role": "user", "content": parts}], max_tokens=20, stream=True, n=2,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    for index in (0, 1):
        own = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == index]
        assert own[0].delta.role == "assistant" and own[-1].finish_reason == "length"
        assert "".join(c.delta.content or "" for c in own) == wanted
    assert chunks[-1].usage.completion_tokens == 40 and not chunks[-1].choices
    text = client.completions.create(model="tiny", prompt=["ab", "c"], max_tokens=6, logprobs=2, seed=-5)
    assert [c.text for c in text.choices] == [expected(engine, p, 6) for p in ("ab", "c")]
    assert text.choices[0].logprobs.token_logprobs == [-0.5] * 6 and len(text.choices[0].logprobs.top_logprobs[0]) == 2
    tokens = client.completions.create(model="tiny", prompt=[[5, 6]], max_tokens=6)
    assert tokens.choices[0].text == engine.decode(fake_decoder.continuation([5, 6], 6))
    assert client.completions.create(model="tiny", prompt="ab").usage.completion_tokens == 16
    stop = text.choices[0].text[2]
    cut = client.completions.create(model="tiny", prompt="ab", max_tokens=6, stop=[stop])
    assert cut.choices[0].finish_reason == "stop" and stop not in cut.choices[0].text
    streamed = client.completions.create(model="tiny", prompt="ab", max_tokens=6, stop=[stop], stream=True)
    assert "".join(c.choices[0].text for c in streamed) == cut.choices[0].text
    for kind, request in (
        (openai.NotFoundError, {"model": "other"}),
        (openai.UnprocessableEntityError, {"temperature": 1e9}),
    ):
        with pytest.raises(kind):
            client.completions.create(**{"model": "tiny", "prompt": "x", **request})
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=server.address + "/v1", api_key="wrong", max_retries=0).models.list()


CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
TEXT = {"model": "tiny", "prompt": "x", "max_tokens": 2}
WRONG = [
    ("/v1/completions", "", 400),
    ("/v1/completions", "{", 400),
    ("/v1/completions", "[" * 100_000, 400),
    ("/v1/completions", b"\xff\xfe\x00", 400),
    ("/v1/completions", "[]", 422),
    ("/v1/completions", {"model": "tiny"}, 422),
    ("/v1/completions", {**TEXT, "prompt": 7}, 422),
    ("/v1/completions", {**TEXT, "prompt": []}, 400),
    ("/v1/completions", {**TEXT, "prompt": ""}, 400),
    ("/v1/completions", {**TEXT, "prompt": [[1, 999]]}, 400),
    ("/v1/completions", {**TEXT, "prompt": "x" * 600}, 400),
    ("/v1/completions", {**TEXT, "max_tokens": 1000}, 400),
    ("/v1/completions", {**TEXT, "max_tokens": -1}, 422),
    ("/v1/completions", {**TEXT, "max_tokens": 1 << 80}, 422),
    ("/v1/completions", {**TEXT, "temperature": float("nan")}, 422),
    ("/v1/completions", {**TEXT, "n": 1000}, 400),
    ("/v1/completions", {**TEXT, "logit_bias": {"x": 1}}, 422),
    ("/v1/completions", {**TEXT, "logit_bias": {"99999": 1}}, 400),
    ("/v1/completions", {**TEXT, "best_of": 3}, 400),
    ("/v1/completions", {**TEXT, "echo": True}, 422),
    ("/v1/completions", {**TEXT, "unknown": 1}, 422),
    ("/v1/completions", {**TEXT, "model": "x" * 10_000}, 404),
    ("/v1/chat/completions", {**CHAT, "messages": []}, 422),
    ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user"}]}, 422),
    ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 422),
    ("/v1/chat/completions", {**CHAT, "tools": []}, 422),
    ("/v1/chat/completions", {**CHAT, "top_logprobs": 2}, 400),
    ("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_schema"}}, 422),
    ("/v1/nothing", {}, 404),
    ("/v2/models/none/infer", {"inputs": []}, 404),
]  # fmt: skip


#: Fields that may have several types, with the place and the reason in the answer.
PLACES = [
    ({**TEXT, "stop": ["x"] * 17}, "stop", "at most 16 items"),
    ({**TEXT, "stop": ["x", 1]}, "stop.1", "valid string"),
    ({**TEXT, "stop": {"a": 1}}, "stop", "valid string"),
    ({**TEXT, "prompt": [1, "a"]}, "prompt.0", "valid string"),
    ({**TEXT, "prompt": {"a": 1}, "unknown": 1}, "prompt", "valid string"),
    ({**TEXT, "unknown": 1}, "unknown", "is not supported"),
    ({**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]}, "messages.0.content.0.type", "'text'"),
    ({**CHAT, "messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text", "required"),
    ({**CHAT, "messages": [{"content": "x"}]}, "messages.0.role", "required"),
    ({**CHAT, "tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name", "required"),
    ({**CHAT, "tool_choice": "all"}, "tool_choice", "'required'"),
]  # fmt: skip


def test_wrong_fields_are_named(serve):
    server = serve()
    for body, place, reason in PLACES:
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        status, _, content = server.ask("POST", path, body)
        error = json.loads(content)["error"]
        assert (status, error["param"]) == (422, place) and reason in error["message"], (body, error)
    nulls = {"suffix": None, "service_tier": None, "stop": None, "unknown": None}  # ask for nothing
    assert server.ask("POST", "/v1/completions", {**TEXT, **nulls})[0] == 200
    assert server.ask("POST", "/v1/chat/completions", {**CHAT, "reasoning_effort": None, "tools": None})[0] == 200


def test_wrong_requests_get_the_right_status(serve):
    server = serve(limits=Limits(body=1 << 20, tokens=500))
    for path, body, status in WRONG:
        found, _, content = server.ask("POST", path, body)
        assert found == status, (path, str(body)[:100], found, content)
        assert json.loads(content)["error"]["message"]
    assert server.ask("GET", "/v1/completions")[0] == 405
    assert server.ask("GET", "/v1/models", key=None)[0] == 401
    status, headers, _ = server.ask("POST", "/v1/completions", TEXT, key="secret-2")
    assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
    assert server.ask("POST", "/v1/completions", " " * (2 << 20))[0] == 413
    with server.send(
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ) as c:
        with contextlib.suppress(ConnectionError):  # the server stops reading
            for _ in range(40):
                c.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        assert b" 413 " in c.recv(4096).split(b"\r\n")[0]
    for path in ("/health", "/ready", "/v2/health/live", "/v2/health/ready", "/"):
        assert server.ask("GET", path, key=None)[0] == 200, path
    assert server.ask("POST", "/v1/completions", TEXT)[0] == 200


def test_random_bodies(serve):
    """500 requests with parts of valid ones in wrong places: each gets an answer, none leaves anything."""
    server, rng = serve(), random.Random(7)
    values = [None, True, -1, 0, 1, 2.5, 1e400, "x", "", [], {}, [1], ["a"], {"a": 1}, [[1], "a"], 1 << 70, "\ud800"]

    def one(number):
        own = random.Random(number)
        path, base = own.choice((("/v1/completions", TEXT), ("/v1/chat/completions", CHAT)))
        body = dict(base)
        for _ in range(own.randrange(1, 4)):
            body[own.choice(NAMES)] = own.choice(values)
        text = json.dumps(body)
        if own.random() < 0.2:
            at = own.randrange(len(text))
            text = text[:at] + own.choice('{}[]",:0\\') + text[at + own.randrange(2) :]
        return server.ask("POST", path, text)[0]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, [rng.randrange(1 << 30) for _ in range(500)]))
    assert set(found) <= {200, 400, 404, 422}, set(found)
    assert {200, 400, 422} <= set(found)
    assert idle(server.engine)
    assert server.client().completions.create(model="tiny", prompt="ab", max_tokens=6).choices[0].text == expected(
        server.engine, "ab", 6
    )


def test_clients_that_vanish(serve):
    """Of streams, of whole answers, and while requests wait: their memory is free at once, and the others go on."""
    server = serve(delay=0.005, max_sequences=4)
    long = {"model": "tiny", "prompt": "x" * 100, "max_tokens": 400}
    stays = server.post("/v1/completions", {**long, "max_tokens": 60})
    for stream in (True, False):
        connections = [server.post("/v1/completions", {**long, "stream": stream}) for _ in range(6)]
        for c in connections[:2]:
            if stream:
                assert b"200 OK" in c.recv(1024)
        until = time.monotonic() + WAIT
        while server.engine.statistics().running < 4 and time.monotonic() < until:
            time.sleep(0.002)
        for c in connections:
            c.close()
    answer = http.client.HTTPResponse(stays)
    answer.begin()
    assert json.loads(answer.read())["choices"][0]["text"] == expected(server.engine, "x" * 100, 60)
    stays.close()
    assert idle(server.engine)
    assert server.engine.statistics().ended["cancelled"] == 12


def test_slow_clients(serve):
    server = serve(limits=Limits(body_time=0.3, header_time=0.3))
    silent = server.send("")
    half = server.send("POST /v1/completions HTT")
    body = server.post("/v1/completions", {"model": "tiny"}, length=1000)
    assert b" 408 " in body.recv(1000).split(b"\r\n")[0]
    for c in (silent, half):
        c.settimeout(WAIT)
        assert c.recv(100) == b""
    for c in (silent, half, body):
        c.close()
    late = serve(delay=0.05, limits=Limits(request_time=0.3))
    assert late.ask("POST", "/v1/completions", {**TEXT, "max_tokens": 100})[0] == 504
    stream = late.ask("POST", "/v1/completions", {**TEXT, "max_tokens": 100, "stream": True})[2].decode()
    assert "longer than 0.3 s" in stream and "[DONE]" not in stream
    assert idle(late.engine)


def test_overload(serve):
    server = serve(delay=0.01, max_sequences=1, max_waiting=2)
    statuses = []

    def ask():
        status, headers, _ = server.ask("POST", "/v1/completions", {**TEXT, "max_tokens": 20})
        statuses.append((status, headers.get("Retry-After")))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(WAIT)
    assert {s for s, _ in statuses} == {200, 429}
    assert all(retry == ("1" if status == 429 else None) for status, retry in statuses)
    assert sum(s == 200 for s, _ in statuses) >= 3


def test_the_end_of_a_server(serve):
    """What runs is finished; new requests are refused."""
    server = serve(delay=0.01)
    stream = server.client().completions.create(model="tiny", prompt="ab", max_tokens=60, stream=True)
    text = next(stream).choices[0].text
    server.end()
    deadline = time.monotonic() + WAIT
    refused = False
    while not refused and time.monotonic() < deadline:
        try:
            refused = server.ask("POST", "/v1/completions", TEXT)[0] == 503
        except OSError:
            refused = True
    assert refused
    text += "".join(c.choices[0].text for c in stream)
    assert text == expected(server.engine, "ab", 60)
    server.thread.join(WAIT)
    assert not server.thread.is_alive()
    impatient = serve(delay=0.05, grace=1)
    stream = impatient.client().completions.create(model="tiny", prompt="ab", max_tokens=400, stream=True)
    next(stream)
    begun = time.monotonic()
    impatient.end()
    impatient.thread.join(WAIT)
    assert time.monotonic() - begun < 10
    with contextlib.suppress(Exception):  # the connection is cut
        list(stream)


def test_metrics_and_page(serve):
    server = serve()
    for _ in range(3):
        assert server.ask("POST", "/v1/completions", TEXT)[0] == 200
    server.ask("POST", "/v1/completions", "{")
    lines = server.ask("GET", "/metrics")[2].decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    assert float(found['sardonyx_http_requests_total{path="/v1/completions",status="200"}']) == 3
    assert float(found['sardonyx_http_requests_total{path="/v1/completions",status="400"}']) == 1
    assert float(found['sardonyx_new_tokens_total{model="tiny"}']) == 6
    assert float(found['sardonyx_first_token_seconds_count{model="tiny"}']) == 3
    assert float(found['sardonyx_requests_ended_total{finished="length",model="tiny"}']) == 3
    status = json.loads(server.ask("GET", "/status")[2])
    assert status["languages"]["tiny"]["new_tokens"] == 6 and status["ready"] is True
    assert server.ask("GET", "/metrics", key=None)[0] == 401
    page = server.ask("GET", "/", key=None)[2].decode()
    assert "status" in page and "https://" not in page


def test_constrained_answers(serve):
    pytest.importorskip("llguidance", reason="grammars need the package llguidance")
    server = serve()
    for own in ({"regex": "(("}, {"grammar": "start: nothing"}, {"regex": "a", "grammar": 'start: "a"'}):
        assert server.ask("POST", "/v1/completions", {**TEXT, **own})[0] == 400, own


# ---- the command, with a real decoder
@contextlib.contextmanager
def command(*arguments, environment=None):
    """The server's process and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sardonyx.serve", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()


def test_command(folder, tmp_path):
    onnx.save(row_model(), tmp_path / "rows.onnx")
    keys = tmp_path / "keys"
    keys.write_text(f"# who may ask\n{KEY}\n")
    model = LanguageModel(folder)
    with command(
        f"chat={folder}", tmp_path / "rows.onnx", "--api-keys", keys, "--cache-memory", 4, "--guess-ngram", 2
    ) as (
        process,
        address,
    ):
        client = openai.OpenAI(base_url=address + "/v1", api_key=KEY, max_retries=0)
        prompts = ["hello", "the and " * 12, "x"]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            ask = lambda p: client.completions.create(
                model="chat", prompt=p, max_tokens=20, extra_body={"ignore_eos": True}
            )
            texts = [a.choices[0].text for a in pool.map(ask, prompts)]
        assert texts == [model.generate(p, max_new_tokens=20, ignore_eos=True).text for p in prompts]
        sampled = [
            client.chat.completions.create(
                model="chat", messages=CHAT["messages"], temperature=1.2, seed=3, max_tokens=9
            )
            for _ in range(2)
        ]
        assert sampled[0].choices[0].message.content == sampled[1].choices[0].message.content
        stream = client.completions.create(
            model="chat", prompt="ab", max_tokens=200, stream=True, extra_body={"ignore_eos": True}
        )
        text = next(stream).choices[0].text
        process.send_signal(signal.SIGTERM)
        text += "".join(c.choices[0].text for c in stream)
        assert text == model.generate("ab", max_new_tokens=200, ignore_eos=True).text
        assert process.wait(WAIT) == 0


def test_command_with_stages(tmp_path):
    path = llm_models.write(tmp_path / "m", llm_models.Decoder(layers=2))
    wanted = LanguageModel(path).generate("hello", max_new_tokens=12, ignore_eos=True).text
    with command(f"chat={path}", "--devices", "host,host", "--pipeline-parallel-size", 2, "--cache-memory", 4) as (
        _,
        address,
    ):
        client = openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
        answer = client.completions.create(
            model="chat", prompt="hello", max_tokens=12, temperature=0, extra_body={"ignore_eos": True}
        )
    assert answer.choices[0].text == wanted


def test_grpc_without_its_package(serve, monkeypatch):
    from sardonyx.serve import make_server

    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(UnsupportedError, match="grpcio"):
        make_server(serve().app, port=0, grpc_port=0)


def test_command_refusals(folder, tmp_path, capsys):
    from sardonyx.serve.command import main

    (tmp_path / "empty").mkdir()
    for arguments, code, words in (
        (["nowhere"], 5, "no file or folder"),
        ([str(tmp_path / "empty")], 5, "neither"),
        ([], 2, "required"),
        (["x", "--port", "99999"], 2, "--port"),
        (["x", "--grpc-port", "99999"], 2, "--grpc-port"),
        ([str(folder), "--adapter", "x"], 2, "NAME=FOLDER"),
        ([str(folder), "--adapter", f"x={tmp_path}"], 5, "adapter_config.json"),
        ([str(folder), "--guess-tokens", "3"], 2, "ngram"),
        ([str(folder), "--pipeline-parallel-size", "2"], 2, "--devices"),
        ([str(folder), "--devices", "host,host,host", "-pp", "2"], 2, "pipeline_parallel_size"),
        ([str(folder), "--draft", str(tmp_path / "empty")], 5, "genai_config.json"),
        (["x", "--api-keys", str(tmp_path / "none")], 5, "none"),
        (["x", "--limit-body", "-1"], 2, "--limit-body"),
    ):
        assert main(arguments) == code
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1
