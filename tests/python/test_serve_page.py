"""The server's page in a real browser: Debian's chromium, if it is installed, over its debugging protocol."""

import json
import os
import shutil
import subprocess
import time

import pytest

for package in ("fastapi", "uvicorn", "prometheus_client", "openai"):
    pytest.importorskip(package, reason=f"serving and its tests need the package {package}")

from serving import KEY, WAIT, servers, write_model  # noqa: E402

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium, which is large")


class Page:
    """A page in a browser without a window. Messages end with a zero byte (Chrome DevTools Protocol over pipes)."""

    def __init__(self, home, url):
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()
        # Descriptors 3 and 4 are where the browser looks; root needs --no-sandbox, and the page is our own.
        command = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={home}/profile", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", CHROMIUM, *flags], pass_fds=(to_child, from_child),
            env={**os.environ, "HOME": str(home)}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._buffer, self._number, self.events, self._session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.getElementById('main') !== null")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _message(self):
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def run(self, script):
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script):
        """Waits until an expression is true."""
        until = time.monotonic() + WAIT
        while not self.run(script):
            assert time.monotonic() < until, self.run("document.body.innerText")
            time.sleep(0.1)

    def faults(self):
        """Exceptions, and errors in the log: what the page's policy forbids, among others."""
        found = [e for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        logs = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return found + [e for e in logs if e["level"] == "error" and not e.get("url", "").endswith("favicon.ico")]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)


def test_page(monkeypatch, tmp_path):
    folder = write_model(tmp_path / "tiny")
    with servers(monkeypatch, folder) as start:
        server = start(delay=0.02)
        page = Page(tmp_path, server.address + "/")
        try:
            # Without a key there is a form, and nothing of the server is told.
            page.wait("!document.getElementById('ask').hidden")
            assert page.run("document.getElementById('main').innerText") == ""
            assert "API key" in page.run("document.getElementById('error').textContent")
            refused = page.faults()
            assert all("401" in str(e) for e in refused), refused
            page.events.clear()
            stream = server.client().completions.create(model="tiny", prompt="x" * 40, max_tokens=400, stream=True)
            next(stream)
            page.run(f"document.getElementById('key').value = '{KEY}'; document.querySelector('#ask button').click()")
            text = "document.getElementById('main').innerText"
            page.wait(f"{text}.includes('tiny (fake)')")
            assert page.run("document.getElementById('ask').hidden")
            page.wait("""[...document.querySelectorAll('tr')].some(
                r => r.cells[0].textContent === 'generated tokens/s' && Number(r.cells[1].textContent) > 1)""")
            page.wait("[...document.querySelectorAll('tr')].some(r => r.cells[0].textContent === 'running' && r.cells[1].textContent === '1')")  # fmt: skip
            page.wait("parseFloat(document.querySelector('.bar i').style.width) > 0")
            stream.close()
            page.wait("[...document.querySelectorAll('tr')].some(r => r.cells[0].textContent === 'ended' && r.cells[1].textContent.includes('cancelled 1'))")  # fmt: skip
            assert not page.faults()
            server.end()
            server.thread.join(WAIT)
            page.wait("document.getElementById('error').textContent.includes('does not answer')")
        finally:
            page.close()
