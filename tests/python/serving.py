"""Servers in this process for the tests of sardonyx.serve, with a fake language model (fake_decoder.py)."""

import contextlib
import http.client
import json
import signal
import socket
import threading

import fake_decoder
import llm_models
import openai
import sardonyx
import sardonyx.llm.engine
from onnx import TensorProto, helper
from sardonyx.llm import Engine
from sardonyx.serve import Limits, create_app, make_server

KEY = "secret-1"
WAIT = 60  # seconds, for what takes milliseconds
TEMPLATE = "{% for m in messages %}[{{m.role}}]{{m.content}}{% endfor %}[assistant]"


def write_model(path, positions=512):
    """A tiny decoder with a chat template."""
    folder = llm_models.write(path, llm_models.Decoder(layers=2, positions=positions))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def row_model(name="rows", batch="batch"):
    """y = 2 x + z for each row."""
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, [batch, 3]), info("z", TensorProto.FLOAT, [batch, 3])]
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    nodes = [helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "z"], ["y"])]
    graph = helper.make_graph(nodes, name, inputs, [info("y", TensorProto.FLOAT, [batch, 3])], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Running:
    """A server in a thread of this process."""

    def __init__(self, engines, models, limits, keys, grace, encoders=None, grpc_port=None):
        self.app = create_app(engines, models, encoders=encoders, limits=limits, keys=keys)
        self.state = self.app.state.sardonyx
        addresses, known = [], threading.Event()
        self.server = make_server(
            self.app, port=0, grpc_port=grpc_port, grace=grace, started=lambda a: (addresses.append(a), known.set())
        )
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        assert known.wait(WAIT)
        self.address = addresses[0]
        self.port = int(self.address.rpartition(":")[2])

    def end(self):
        """As SIGTERM does."""
        self.server.handle_exit(signal.SIGTERM, None)

    def client(self, **options):
        return openai.OpenAI(base_url=self.address + "/v1", api_key=KEY, max_retries=0, timeout=WAIT, **options)

    def ask(self, method, path, body=None, key=KEY, headers=None):
        """The status, headers and content of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        own = {"Authorization": f"Bearer {key}"} if key else {}
        with contextlib.closing(connection):
            connection.request(method, path, data, own | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def send(self, text):
        """A connection on which this has been sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), WAIT)
        connection.sendall(text.encode())
        return connection

    def post(self, path, body, length=None):
        """send() of a request."""
        data = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {length or len(data)}\r\n\r\n"
        return self.send(head + data)


@contextlib.contextmanager
def servers(monkeypatch, folder):
    """A function that starts servers of a fake language model and of plain models; all of them are ended."""
    monkeypatch.setattr(sardonyx.llm.engine, "PagedDecoder", fake_decoder.FakeDecoder)
    running = []

    def start(delay=0.0, limits=None, models=None, keys=(KEY,), grace=30, encoders=None, grpc_port=None, **options):
        options = {"page_tokens": 8, "max_sequences": 8, "step_tokens": 64, "cache_memory": 200 << 10, **options}
        engine = Engine(folder, **options)
        engine._decoder.delay = delay
        running.append(Running({"tiny": engine}, models or {}, limits or Limits(), keys, grace, encoders, grpc_port))
        running[-1].engine = engine
        return running[-1]

    yield start
    for server in running:
        server.end()
        server.thread.join(WAIT)
        assert not server.thread.is_alive() and server.engine.statistics().used_pages == 0
